//! What an end that does nothing costs whoever waits for it.

use crate::allowed::own_bell;
use crate::known::{alone, ring_from_victim, ring_to_victim, until};
use crate::peer::{self, Line};
use crate::victim::Process;
use bypath_shm::arena::Geometry;
use bypath_shm::direction::ask;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

const SMALL: Geometry = Geometry { slots: 1, ring: 4096 };

/// How often its threads have gone to sleep.
fn sleeps(server: &Process) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid().as_raw_nonzero())).expect("threads");
    tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join("status")).ok())
        .filter_map(|status| {
            let word = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"))?;
            word.trim().parse::<u64>().ok()
        })
        .sum()
}

/// It sleeps without a word, has asked for the carrier, and gets no answer.
#[test]
fn who_fills_the_places_of_sleepers_costs_few_looks() {
    for mode in ["threads", "epoll", "poll"] {
        let (server, port) = alone(mode);
        let line = Line::to(port);
        let m = peer::accept_well(&line, SMALL);
        ring_from_victim(&line, &m);
        let bell = own_bell(&line, &m);
        ring_to_victim(&line, &m);
        let is_asked = || m.out().ra.ask.load(SeqCst) & ask::RECALL != 0;
        until(&format!("{mode}: the victim does not ask for the carrier"), || {
            // It is in its place each time, until it finds none.
            m.out().ra.wait.iter().for_each(|word| word.store(9 << 32 | 1, SeqCst));
            // Whichever of its ends it is.
            (0..16).for_each(|end| m.inbox.get().mark(end));
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
            is_asked()
        });
        std::thread::sleep(Duration::from_secs(1));
        let before = sleeps(&server);
        std::thread::sleep(Duration::from_secs(2));
        let looks = sleeps(&server) - before;
        assert!(is_asked(), "{mode}: it has stopped to ask");
        assert!(looks <= 60, "{mode}: {looks} looks in two seconds");
    }
}

/// What is marked there for the other end whoever marks it would look at, and mark again.
#[test]
fn nobody_is_given_its_own_inbox() {
    let (server, port) = alone("epoll");
    let line = Line::to(port);
    let (channel, theirs) = peer::called(&line).expect("the victim calls");
    let offer = peer::Offer::new(SMALL, &mut crate::dice::Dice(1));
    assert!(peer::send(&channel, &offer.said, &[&theirs, &offer.file]));
    crate::known::hangs_up(&line, &channel);
    crate::known::keeps_nothing(&server);
    let line = Line::to(port);
    let m = peer::accept_well(&line, SMALL);
    ring_from_victim(&line, &m);
}
