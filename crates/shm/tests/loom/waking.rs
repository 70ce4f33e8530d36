//! Wait words: ask-then-look by sleepers, publish-then-look by wakers, tickets, killed wakers.

use crate::{SIZE, available, check, check_three, on_ring, ring_head};
use bypath_shm::atomic::{fence, fence_after_rmw};
use bypath_shm::direction::{Direction, Readable, wait};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};
use loom::thread;

const BELL: u32 = 9;

/// An eventfd: writing and reading it are system calls, ordered among themselves.
struct Bell(AtomicU32);

impl Bell {
    fn new() -> Arc<Bell> {
        Arc::new(Bell(AtomicU32::new(0)))
    }

    fn ring(&self, bell: u32) {
        assert_eq!(bell, BELL);
        self.0.fetch_add(1, AcqRel);
    }

    fn is_rung(&self) -> bool {
        self.0.load(Acquire) != 0
    }

    fn silence(&self) {
        self.0.swap(0, AcqRel);
    }
}

/// A waker after its publish and its lock's read-modify-write.
fn look_and_wake(places: &[AtomicU64], bell: &Bell) {
    fence_after_rmw();
    if wait::any(places) {
        wait::wake(places, |b| bell.ring(b));
    }
}

/// A sleeper whose last look, after arming, found nothing must be rung.
#[test]
fn a_reader_that_saw_nothing_is_rung() {
    check(|| {
        let (d, bell) = (on_ring(), Bell::new());
        let writer = {
            let (d, bell) = (d.clone(), bell.clone());
            thread::spawn(move || {
                d.publish(1);
                look_and_wake(&d.ra.wait, &bell);
            })
        };
        assert!(wait::arm(&d.ra.wait, wait::word(BELL, 1)));
        let sleeps = available(&d) == 0;
        writer.join().unwrap();
        assert!(!sleeps || bell.is_rung(), "lost wake");
        if sleeps {
            assert!(!wait::disarm(&d.ra.wait, wait::word(BELL, 1)), "rung but not cleared");
        }
    });
}

#[test]
#[should_panic(expected = "lost wake")]
fn a_look_without_a_fence_is_found() {
    check(|| {
        let (d, bell) = (on_ring(), Bell::new());
        let writer = {
            let (d, bell) = (d.clone(), bell.clone());
            thread::spawn(move || {
                d.publish(1);
                if wait::any(&d.ra.wait) {
                    wait::wake(&d.ra.wait, |b| bell.ring(b));
                }
            })
        };
        assert!(wait::arm(&d.ra.wait, wait::word(BELL, 1)));
        let sleeps = available(&d) == 0;
        writer.join().unwrap();
        assert!(!sleeps || bell.is_rung(), "lost wake");
    });
}

#[test]
#[should_panic(expected = "lost wake")]
fn a_sleeper_that_does_not_look_again_is_found() {
    check(|| {
        let (d, bell) = (on_ring(), Bell::new());
        let writer = {
            let (d, bell) = (d.clone(), bell.clone());
            thread::spawn(move || {
                d.publish(1);
                look_and_wake(&d.ra.wait, &bell);
            })
        };
        let sleeps = available(&d) == 0;
        assert!(wait::arm(&d.ra.wait, wait::word(BELL, 1)));
        writer.join().unwrap();
        assert!(!sleeps || bell.is_rung(), "lost wake");
    });
}

/// The same for a writer that waits for space.
#[test]
fn a_writer_that_saw_no_space_is_rung() {
    check(|| {
        let (d, bell) = (on_ring(), Bell::new());
        d.publish(SIZE);
        let reader = {
            let (d, bell) = (d.clone(), bell.clone());
            thread::spawn(move || {
                let Readable::Ring { head, .. } = d.readable(SIZE).unwrap() else { panic!("ring") };
                assert!(d.commit(head, 1));
                look_and_wake(&d.wa.wait, &bell);
            })
        };
        assert!(wait::arm(&d.wa.wait, wait::word(BELL, 1)));
        let sleeps = d.space(SIZE, SIZE).unwrap() == 0;
        reader.join().unwrap();
        assert!(!sleeps || bell.is_rung(), "lost wake");
    });
}

/// A channel's ends, which both wait for half of a ring of 16 octets, of which 9 are used: the reader took three, which is not yet a
/// multiple of a quarter, and waits for more than the rest. Whether it looks after the writer then is the question.
fn both_ends_of_a_channel_wait(looks_after_writer: bool) {
    const RING: u64 = 16;
    const HALF: u64 = RING / 2;
    let (d, [writes, reads]) = (on_ring(), [Bell::new(), Bell::new()]);
    d.publish(9);
    let reader = {
        let (d, writes) = (d.clone(), writes.clone());
        thread::spawn(move || {
            d.h.head.store(ring_head(3), Release);
            assert!(wait::arm(&d.ra.wait, wait::word(BELL, 1)));
            let sleeps = d.t.tail.load(Acquire) - 3 < HALF;
            if sleeps && looks_after_writer {
                fence(SeqCst);
                wait::wake(&d.wa.wait, |b| writes.ring(b));
            }
            sleeps
        })
    };
    assert!(wait::arm(&d.wa.wait, wait::word(BELL, 1)));
    let writer_sleeps = d.space(9, RING).unwrap() < HALF;
    if !writer_sleeps {
        d.publish(9 + HALF);
        fence(SeqCst);
        wait::wake(&d.ra.wait, |b| reads.ring(b));
    }
    let reader_sleeps = reader.join().unwrap();
    assert!(!writer_sleeps || writes.is_rung(), "lost wake");
    assert!(writer_sleeps || !reader_sleeps || reads.is_rung(), "lost wake of the reader");
}

#[test]
fn a_reader_that_waits_for_more_wakes_the_writer_that_waits_for_room() {
    check(|| both_ends_of_a_channel_wait(true));
}

#[test]
#[should_panic(expected = "lost wake")]
fn a_reader_that_looks_after_the_writer_at_quarters_only_is_found() {
    check(|| both_ends_of_a_channel_wait(false));
}

/// A writer about to sleep and a reader that asks for the kernel path: one sees the other.
#[test]
fn a_writer_about_to_sleep_sees_a_recall_or_is_rung() {
    check(|| {
        let (d, bell) = (on_ring(), Bell::new());
        let reader = {
            let (d, bell) = (d.clone(), bell.clone());
            thread::spawn(move || {
                d.ask_recall(bypath_shm::direction::ask::RECALL);
                if wait::any(&d.wa.wait) {
                    wait::wake(&d.wa.wait, |b| bell.ring(b));
                }
            })
        };
        assert!(wait::arm(&d.wa.wait, wait::word(BELL, 1)));
        let sleeps = d.ra.ask.load(Relaxed) == 0;
        reader.join().unwrap();
        assert!(!sleeps || bell.is_rung(), "lost wake");
    });
}

/// The sleeper of the ticket models: wakes for whatever reason, consumes, sleeps again under a new ticket.
/// Returns whether it sleeps in the end.
fn sleep_twice(d: &Direction, bell: &Bell) -> bool {
    bell.silence();
    assert!(wait::arm(&d.ra.wait, wait::word(BELL, 1)));
    if let Readable::Ring { head, available: 1.. } = d.readable(SIZE).unwrap() {
        assert!(d.commit(head, 1));
    }
    // Woken, by the bell or by the carrier.
    wait::disarm(&d.ra.wait, wait::word(BELL, 1));
    bell.silence();
    assert!(wait::arm(&d.ra.wait, wait::word(BELL, 2)));
    available(d) == 0
}

/// A slow waker of the first sleep must not erase the second one.
#[test]
fn a_newer_sleep_survives_a_late_clear() {
    check(|| {
        let (d, bell) = (on_ring(), Bell::new());
        let writer = {
            let (d, bell) = (d.clone(), bell.clone());
            thread::spawn(move || {
                for tail in 1..=2 {
                    d.publish(tail);
                    look_and_wake(&d.ra.wait, &bell);
                }
            })
        };
        let sleeps = sleep_twice(&d, &bell);
        writer.join().unwrap();
        // In the end two bytes were published and at most one was consumed.
        assert!(!sleeps || bell.is_rung(), "lost wake");
    });
}

#[test]
#[should_panic(expected = "lost wake")]
fn a_clear_without_ticket_is_found() {
    check(|| {
        let (d, bell) = (on_ring(), Bell::new());
        let writer = {
            let (d, bell) = (d.clone(), bell.clone());
            thread::spawn(move || {
                for tail in 1..=2 {
                    d.publish(tail);
                    fence_after_rmw();
                    for p in &d.ra.wait {
                        if p.load(Acquire) != 0 {
                            bell.ring(BELL);
                            p.store(0, Release);
                        }
                    }
                }
            })
        };
        let sleeps = sleep_twice(&d, &bell);
        writer.join().unwrap();
        assert!(!sleeps || bell.is_rung(), "lost wake");
    });
}

/// The places of the one wait word in use, as a waker that is killed inside [`wait::wake`] leaves them:
/// `rings` and `clears` are the steps it still did.
fn killed_waker(d: &Direction, bell: &Bell, ring_first: bool) {
    fence_after_rmw();
    let word = d.ra.wait[0].load(Acquire);
    if word == 0 {
        return;
    }
    if ring_first {
        bell.ring(wait::bell(word));
    } else {
        let _ = d.ra.wait[0].compare_exchange(word, 0, AcqRel, Relaxed);
    }
    // Killed here, before the second of the two.
}

fn killed_waker_model(ring_first: bool) {
    check(move || {
        let (d, bell) = (on_ring(), Bell::new());
        let killed = {
            let (d, bell) = (d.clone(), bell.clone());
            thread::spawn(move || {
                d.publish(1);
                killed_waker(&d, &bell, ring_first);
            })
        };
        assert!(wait::arm(&d.ra.wait, wait::word(BELL, 1)));
        let sleeps = available(&d) == 0;
        killed.join().unwrap();
        assert!(!sleeps || bell.is_rung(), "lost wake");
        // It wakes (spuriously, perhaps), sleeps again, and a living sibling of the waker must still reach it.
        wait::disarm(&d.ra.wait, wait::word(BELL, 1));
        bell.silence();
        assert!(wait::arm(&d.ra.wait, wait::word(BELL, 2)), "a dead waker leaves no place taken");
        d.publish(2);
        look_and_wake(&d.ra.wait, &bell);
        assert!(bell.is_rung());
    });
}

#[test]
fn a_waker_killed_between_ring_and_clear_loses_no_wake() {
    killed_waker_model(true);
}

#[test]
#[should_panic(expected = "lost wake")]
fn clear_before_ring_is_found() {
    killed_waker_model(false);
}

/// Two sleepers take two places; each is rung or saw the byte.
#[test]
fn every_sleeper_of_a_direction_is_reached() {
    check_three(|| {
        let (d, rung) = (on_ring(), Arc::new([AtomicU32::new(0), AtomicU32::new(0)]));
        let writer = {
            let (d, rung) = (d.clone(), rung.clone());
            thread::spawn(move || {
                d.publish(1);
                fence_after_rmw();
                if wait::any(&d.ra.wait) {
                    wait::wake(&d.ra.wait, |b| {
                        rung[b as usize - 1].fetch_add(1, AcqRel);
                    });
                }
            })
        };
        let sleepers: Vec<_> = [1u32, 2]
            .map(|bell| {
                let d = d.clone();
                thread::spawn(move || {
                    assert!(wait::arm(&d.ra.wait, wait::word(bell, 1)));
                    available(&d) == 0
                })
            })
            .into_iter()
            .map(|s| s.join().unwrap())
            .collect();
        writer.join().unwrap();
        for (i, sleeps) in sleepers.into_iter().enumerate() {
            assert!(!sleeps || rung[i].load(Acquire) != 0, "lost wake of sleeper {i}");
        }
    });
}
