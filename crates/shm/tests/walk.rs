//! An exhaustive walk of one direction of a connection: every interleaving of single shared accesses of W, R and
//! the carrier, with a kill at every step, and with a signal handler that sends or receives at every step.
//!
//! The memory model here is sequential; loom.rs checks the orderings. Sleeps have no time limit here, so every
//! lost wake shows. Each mutation breaks one rule of docs/switch-protocol.md and must be caught.
#![cfg(not(loom))]

#[path = "walk/explore.rs"]
mod explore;
#[path = "walk/reader.rs"]
mod reader;
#[path = "walk/state.rs"]
mod state;
#[path = "walk/writer.rs"]
mod writer;

/// A rule left out.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    SkipDrain,
    NoTickets,
    NoLookAfterPublish,
    ReaderSleepsUnseeing,
    WriterSleepsUnseeing,
    ClaimByStore,
    CommitByStore,
    FinBeforeFlush,
    QueueBeforeUnlockOnly,
    HandlerKeepsBell,
    LeaveDrainToOthers,
    AnyoneWithdrawsRecall,
    ReaderForgetsWhatItSaw,
    EndAtFirstSight,
    ClaimUnannounced,
    InheritFromTheClaim,
}

/// What may happen in a walk.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug)]
pub struct Config {
    pub bytes: u8,
    pub kills: bool,
    pub recalls: bool,
    pub signals_writer: bool,
    pub signals_reader: bool,
    pub mutation: Option<Mutation>,
}

/// Everything but accidents.
const CALM: Config = Config {
    bytes: 3,
    kills: false,
    recalls: true,
    signals_writer: false,
    signals_reader: false,
    mutation: None,
};
const KILLS: Config = Config { kills: true, ..CALM };
const WRITER_SIGNALS: Config = Config { signals_writer: true, ..KILLS };
const READER_SIGNALS: Config = Config { signals_reader: true, ..KILLS };

/// Walks `config` and requires that the walk did not shrink below `at_least` states.
fn holds(name: &str, config: Config, at_least: usize) {
    let seen = explore::walk(&config).unwrap_or_else(|broken| panic!("{broken:?}"));
    println!("{name}: {} states, {} steps, all invariants hold", seen.states, seen.steps);
    assert!(seen.states >= at_least, "the walk shrank to {} states", seen.states);
}

/// Leaves a rule out of `config`: one of `faults` must be found.
fn catches(mutation: Mutation, config: Config, faults: &[&str]) {
    match explore::walk(&Config { mutation: Some(mutation), ..config }) {
        Ok(seen) => panic!("{mutation:?} was not caught in {} states", seen.states),
        Err(broken) => {
            println!("{mutation:?}: {} after {} steps", broken.fault, broken.trace.len() - 1);
            assert!(faults.iter().any(|f| broken.fault.starts_with(f)), "{broken:?}");
        }
    }
}

#[test]
fn the_switch_is_right_in_every_interleaving() {
    holds("calm", CALM, 460_000);
}

#[test]
fn the_switch_survives_a_kill_at_every_step() {
    holds("kills", KILLS, 660_000);
}

#[test]
fn the_switch_survives_a_sending_signal_handler_at_every_step() {
    holds("signals, writer", WRITER_SIGNALS, 2_700_000);
}

/// Two bytes by default; BYPATH_WALK_BYTES=3 walks 13 million states more and takes gigabytes.
#[test]
fn the_switch_survives_a_receiving_signal_handler_at_every_step() {
    let bytes = std::env::var("BYPATH_WALK_BYTES").map_or(2, |v| v.parse().expect("2 or 3"));
    holds("signals, reader", Config { bytes, ..READER_SIGNALS }, 4_000_000);
}

const LOST_WAKE: &[&str] = &["I4", "stuck"];

#[test]
fn skipping_drain_is_caught() {
    catches(Mutation::SkipDrain, CALM, &["byte out of order", "I1"]);
}

#[test]
fn leaving_tickets_out_is_caught() {
    catches(Mutation::NoTickets, CALM, LOST_WAKE);
}

#[test]
fn not_looking_after_publish_is_caught() {
    catches(Mutation::NoLookAfterPublish, CALM, LOST_WAKE);
}

#[test]
fn a_reader_that_sleeps_without_looking_again_is_caught() {
    catches(Mutation::ReaderSleepsUnseeing, CALM, LOST_WAKE);
}

#[test]
fn a_reader_that_compares_with_a_newer_path_than_it_acted_on_is_caught() {
    catches(Mutation::ReaderForgetsWhatItSaw, CALM, LOST_WAKE);
}

#[test]
fn a_writer_that_sleeps_without_looking_again_is_caught() {
    catches(Mutation::WriterSleepsUnseeing, CALM, LOST_WAKE);
}

#[test]
fn a_claim_by_plain_store_is_caught() {
    catches(Mutation::ClaimByStore, CALM, &["I1", "byte out of order"]);
}

#[test]
fn a_commit_by_plain_store_is_caught() {
    catches(Mutation::CommitByStore, CALM, &["I1", "I2", "byte out of order"]);
}

#[test]
fn fin_before_flush_is_caught() {
    catches(Mutation::FinBeforeFlush, CALM, &["end of stream before the data"]);
}

#[test]
fn an_end_believed_at_first_sight_is_caught() {
    catches(Mutation::EndAtFirstSight, KILLS, &["end of stream before the data"]);
}

#[test]
fn a_claim_that_is_not_announced_is_caught() {
    catches(Mutation::ClaimUnannounced, KILLS, &["end of stream before the data"]);
}

#[test]
fn inheriting_what_was_sent_again_is_caught() {
    catches(Mutation::InheritFromTheClaim, KILLS, &["byte out of order"]);
}

#[test]
fn looking_at_the_handlers_queue_only_before_the_unlock_is_caught() {
    catches(Mutation::QueueBeforeUnlockOnly, WRITER_SIGNALS, &["a byte accepted in a signal handler"]);
}

#[test]
fn a_handler_that_keeps_the_bell_is_caught() {
    catches(Mutation::HandlerKeepsBell, READER_SIGNALS, LOST_WAKE);
}

#[test]
fn leaving_the_end_of_drain_to_others_is_caught() {
    catches(Mutation::LeaveDrainToOthers, READER_SIGNALS, LOST_WAKE);
}

#[test]
fn a_recall_that_anyone_withdraws_is_caught() {
    catches(Mutation::AnyoneWithdrawsRecall, READER_SIGNALS, &["a recall was lost"]);
}
