//! The path of a direction: consent, withdrawal, upgrade, drain, claim, recall.

use crate::{SIZE, check, on_ring};
use bypath_shm::atomic::fence_after_rmw;
use bypath_shm::direction::{Direction, Path, Readable, ask};
use loom::sync::Arc;
use loom::sync::atomic::Ordering::{Acquire, Relaxed};
use loom::thread;

const POSITION: u64 = 5;
const SWITCH_K: u64 = 7;

/// R takes its consent back (before fork, fd passing, ...) or learns that it was used: never both, never neither.
#[test]
fn a_consent_is_either_used_or_withdrawn() {
    check(|| {
        let d = Arc::new(Direction::new());
        d.consent();
        let writer = {
            let d = d.clone();
            thread::spawn(move || d.consented() && d.begin_ring(POSITION, SWITCH_K))
        };
        let withdrawn = d.withdraw_consent();
        if withdrawn {
            assert_eq!(d.path(), Path::Kernel);
        }
        let upgraded = writer.join().unwrap();
        assert_eq!(upgraded, !withdrawn);
        assert_eq!(d.path() == Path::Drain, upgraded);
    });
}

/// Who sees D sees the carrier count and the position that belong to it.
#[test]
fn who_sees_drain_sees_switch_k_and_tail() {
    check(|| {
        let d = Arc::new(Direction::new());
        d.consent();
        let writer = {
            let d = d.clone();
            thread::spawn(move || {
                if d.begin_ring(POSITION, SWITCH_K) {
                    d.publish(POSITION + 1);
                }
            })
        };
        match d.readable(SIZE).unwrap() {
            Readable::Kernel => {}
            Readable::Drain(head) => {
                assert_eq!(head.position(), POSITION);
                assert_eq!(d.wa.switch_k.load(Relaxed), SWITCH_K);
                assert!(d.drained(head));
                let Readable::Ring { head, available } = d.readable(SIZE).unwrap() else {
                    panic!("W has not claimed")
                };
                assert_eq!(head.position(), POSITION);
                assert!(available <= 1);
            }
            Readable::Ring { .. } => panic!("only R drains"),
        }
        writer.join().unwrap();
    });
}

#[test]
#[should_panic]
fn a_head_stored_before_switch_k_is_found() {
    check(|| {
        let d = Arc::new(Direction::new());
        d.consent();
        let writer = {
            let d = d.clone();
            thread::spawn(move || {
                d.ra.ask.compare_exchange(ask::CONSENT, 0, Acquire, Relaxed).unwrap();
                d.h.head.store(1 << 62 | POSITION, Relaxed);
                d.wa.switch_k.store(SWITCH_K, Relaxed);
            })
        };
        if let Readable::Drain(_) = d.readable(SIZE).unwrap() {
            assert_eq!(d.wa.switch_k.load(Relaxed), SWITCH_K);
        }
        writer.join().unwrap();
    });
}

/// D ends by R's word or by W's claim, not both.
#[test]
fn a_claim_in_drain_defeats_a_late_drained() {
    check(|| {
        let d = Arc::new(Direction::new());
        d.consent();
        assert!(d.begin_ring(POSITION, SWITCH_K));
        d.publish(POSITION + 1);
        let reader = {
            let d = d.clone();
            thread::spawn(move || {
                let Readable::Drain(head) = d.readable(SIZE).unwrap() else { return false };
                if !d.drained(head) {
                    return false;
                }
                match d.readable(SIZE).unwrap() {
                    Readable::Ring { head, available } => available > 0 && d.commit(head, 1),
                    _ => false,
                }
            })
        };
        let from = d.claim().unwrap();
        let consumed = reader.join().unwrap();
        assert_eq!(from, POSITION + u64::from(consumed));
        assert_eq!(d.path(), Path::Kernel);
    });
}

/// W's side of a send: publish, leave the lock by a read-modify-write, look.
fn publish_then_look(d: &Direction, tail: u64) -> bool {
    d.publish(tail);
    fence_after_rmw();
    d.ra.ask.load(Relaxed) & ask::RECALL != 0
}

/// R asks for the kernel path while W publishes: W sees the question, or R sees the bytes.
#[test]
fn no_recall_misses_bytes() {
    check(|| {
        let d = on_ring();
        let writer = {
            let d = d.clone();
            thread::spawn(move || publish_then_look(&d, 1))
        };
        d.ask_recall(ask::RECALL);
        let seen = d.t.tail.load(Relaxed);
        let asked = writer.join().unwrap();
        assert!(asked || seen == 1, "bytes stay in a ring that nobody reads");
    });
}

#[test]
#[should_panic]
fn a_recall_without_fences_is_found() {
    check(|| {
        let d = on_ring();
        let writer = {
            let d = d.clone();
            thread::spawn(move || {
                d.publish(1);
                d.ra.ask.load(Relaxed) & ask::RECALL != 0
            })
        };
        d.ra.ask.store(ask::RECALL, Relaxed);
        let seen = d.t.tail.load(Relaxed);
        assert!(writer.join().unwrap() || seen == 1);
    });
}

/// A recall against an upgrade that is under way: refused, or seen by the first look after it.
#[test]
fn a_recall_stops_an_upgrade_or_is_seen_after_it() {
    check(|| {
        let d = Arc::new(Direction::new());
        d.consent();
        let writer = {
            let d = d.clone();
            thread::spawn(move || {
                if !d.begin_ring(0, 0) {
                    return None;
                }
                Some(publish_then_look(&d, 1))
            })
        };
        d.ask_recall(ask::RECALL);
        let (path, tail) = (d.path(), d.t.tail.load(Relaxed));
        match writer.join().unwrap() {
            None => assert_eq!(path, Path::Kernel),
            Some(asked) => assert!(asked || (path == Path::Drain && tail == 1)),
        }
        // The question stays until it is withdrawn: no upgrade slips in.
        d.consent();
        assert!(!d.consented());
    });
}
