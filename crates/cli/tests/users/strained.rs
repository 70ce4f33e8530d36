//! A peer of another user where there is little room, or others use the same: what comes of him takes a thread of its own, memory, and numbers of descriptors.

use crate::agents;
use crate::stage::{Counted, Side, Stage, installed, open_to_all};
use crate::support::{Outcome, missing, ring_required, skip};
use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// Of the server; each of its threads has one.
const CONNECTIONS: u64 = 8;

/// `narrow` on both sides.
struct Play<'a> {
    /// Users of this play alone, as the kernel counts their threads; `None`: ours.
    users: [Option<u32>; 2],
    /// Of `prlimit`.
    limit: Option<&'a str>,
    /// What the server does meanwhile.
    beside: Option<&'a str>,
    /// Connections of each process that calls: these come one after the other.
    each: u64,
}

impl Play<'_> {
    fn of(server: u32, client: u32) -> Play<'static> {
        Play { users: [Some(server), Some(client)], limit: None, beside: None, each: CONNECTIONS }
    }

    /// What the server said, and what both counted; the paths of all who called.
    fn run(&self, test: &str) -> Option<(Outcome, Counted)> {
        let stage = stage(test)?;
        let program = narrow(&stage);
        let options = [("upgrade", "eager"), ("allow-uid", "any")];
        let of = |uid, stats: &str| {
            let before = self.limit.map(|limit| vec![installed("prlimit").into(), limit.into(), "--".into()]);
            let side = Side { uid, options: &options, before: before.unwrap_or_default(), ..Side::default() };
            stage.program(&side, stats, &program)
        };
        let count = CONNECTIONS.to_string();
        let mut server =
            of(self.users[0], "server.stats").words(["serve", &count]).words(self.beside).start();
        let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
        let payloads = (0..CONNECTIONS / self.each).map(|_| {
            let client = of(self.users[1], "client.stats");
            client.words(["call", &self.each.to_string(), &port.to_string()]).finish().number("payload ")
        });
        let payload = payloads.sum();
        let said = server.wait();
        Some((said, Counted { payload, ..stage.counted() }))
    }
}

fn stage(test: &str) -> Option<Stage> {
    let reason = missing(&["setpriv", "prlimit"]).or_else(|| {
        (!rustix::process::geteuid().is_root())
            .then(|| "needs root to start programs as other users".to_owned())
    });
    match reason {
        Some(reason) => {
            skip(&format!("users::strained::{test}"), &reason);
            None
        }
        None => Some(Stage::new()),
    }
}

fn narrow(stage: &Stage) -> PathBuf {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let program = stage.scene.path("narrow");
    let compiled = COMPILED.get_or_init(|| agents::compile_with("narrow", &["narrow.c"], &[], &["-lrt"]));
    fs::copy(compiled, &program).expect("copy the program");
    open_to_all(&program, 0o755);
    program
}

/// Not all are: on busy processors some are over before the other end has shown that it is theirs.
#[track_caller]
fn assert_some_upgraded(counted: &Counted) {
    let upgraded = counted.server.upgraded.min(counted.client.upgraded);
    assert!(!ring_required() || upgraded > 0, "{counted:#?}");
}

#[test]
fn the_smallest_stacks_are_large_enough() {
    let play = Play::of(65011, 65012);
    let Some((_, counted)) = play.run("the_smallest_stacks_are_large_enough") else { return };
    assert_some_upgraded(&counted);
}

/// What he sends is received by a thread apart or not at all, and the connection stays on the kernel until there may be one.
#[test]
fn where_there_may_be_no_other_thread_connections_stay_on_the_kernel() {
    let test = "where_there_may_be_no_other_thread_connections_stay_on_the_kernel";
    // The threads of the program are all that there may be.
    let play = Play { limit: Some("--nproc=9"), ..Play::of(65013, 65014) };
    if let Some((_, counted)) = play.run(test) {
        counted.assert_kernel(None, None);
    }
}

/// A thread whose children are in another process namespace can make no other thread.
#[test]
fn where_children_are_set_apart_connections_stay_on_the_kernel() {
    let mut play = Play::of(0, 65016);
    play.users[0] = None;
    play.beside = Some("apart");
    if let Some((_, counted)) = play.run("where_children_are_set_apart_connections_stay_on_the_kernel") {
        counted.assert_kernel(None, None);
    }
}

/// A thread apart has copies of low numbers for a moment, and the kernel takes the notification back where one of them is closed.
#[test]
fn who_is_told_of_messages_in_a_queue_still_is() {
    let play = Play { beside: Some("told"), ..Play::of(65017, 65018) };
    if let Some((said, counted)) = play.run("who_is_told_of_messages_in_a_queue_still_is") {
        assert_eq!(said.number("told "), 1);
        counted.assert_kernel(None, None);
    }
}

/// What is made and taken for each process that comes stands at the lowest free number first, and in the place of a standard descriptor that is closed.
#[test]
fn what_the_program_puts_at_a_low_number_stays_there() {
    for (beside, server) in [("puts", 65019), ("reopens", 65021)] {
        let play = Play { beside: Some(beside), each: 1, ..Play::of(server, server + 1) };
        let test = "what_the_program_puts_at_a_low_number_stays_there";
        let Some((said, counted)) = play.run(test) else { return };
        assert_eq!(said.number("lost "), 0, "{beside}: of {}", said.number("done "));
        assert!(said.number("done ") > 1000, "{beside}");
        assert_some_upgraded(&counted);
    }
}
