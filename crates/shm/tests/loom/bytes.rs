//! Bytes of the ring: publish against commit, claim against commit.

use crate::{SIZE, check, check_three, on_ring};
use bypath_shm::direction::{Direction, Path, Readable};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU8, Ordering::Relaxed};
use loom::thread;

/// Ring bytes as plain memory: loom fails on any copy out that is not ordered against a copy in.
struct PlainRing([UnsafeCell<u8>; SIZE as usize]);

// SAFETY: loom checks every access.
unsafe impl Sync for PlainRing {}
// SAFETY: as above.
unsafe impl Send for PlainRing {}

impl PlainRing {
    fn new() -> Arc<PlainRing> {
        Arc::new(PlainRing([UnsafeCell::new(0xff), UnsafeCell::new(0xff)]))
    }

    fn put(&self, position: u64, byte: u8) {
        // SAFETY: the pointer is valid; exclusivity is what loom checks.
        self.0[(position % SIZE) as usize].with_mut(|p| unsafe { *p = byte });
    }

    fn get(&self, position: u64) -> u8 {
        // SAFETY: as in `put`.
        self.0[(position % SIZE) as usize].with(|p| unsafe { *p })
    }
}

/// W offers bytes `from..to` (each byte is its own position), as far as there is room in `tries` tries.
fn write(d: &Direction, ring: &PlainRing, from: u64, to: u64, tries: usize) -> u64 {
    let mut tail = from;
    for _ in 0..tries {
        if tail < to && d.space(tail, SIZE).expect("no lies") > 0 {
            ring.put(tail, tail as u8);
            tail += 1;
            d.publish(tail);
        }
    }
    tail
}

/// R consumes what it finds in `tries` tries; returns its position.
fn read(d: &Direction, ring: &PlainRing, from: u64, tries: usize) -> u64 {
    let mut position = from;
    for _ in 0..tries {
        let Readable::Ring { head, available } = d.readable(SIZE).expect("no lies") else { continue };
        assert_eq!(head.position(), position);
        if available > 0 {
            let copied = ring.get(position);
            assert!(d.commit(head, 1), "nobody else moves the head");
            assert_eq!(copied, position as u8);
            position += 1;
        }
    }
    position
}

#[test]
fn bytes_arrive_in_order_and_are_not_overwritten_while_copied() {
    check(|| {
        let (d, ring) = (on_ring(), PlainRing::new());
        let writer = {
            let (d, ring) = (d.clone(), ring.clone());
            thread::spawn(move || write(&d, &ring, 0, 4, 4))
        };
        let position = read(&d, &ring, 0, 4);
        let tail = writer.join().unwrap();
        assert!(position <= tail);
        assert_eq!(read(&d, &ring, position, 4), tail);
    });
}

#[test]
#[should_panic]
fn a_publish_without_release_is_found() {
    check(|| {
        let (d, ring) = (on_ring(), PlainRing::new());
        let writer = {
            let (d, ring) = (d.clone(), ring.clone());
            thread::spawn(move || {
                ring.put(0, 0);
                d.t.tail.store(1, Relaxed);
            })
        };
        read(&d, &ring, 0, 2);
        writer.join().unwrap();
    });
}

#[test]
#[should_panic]
fn a_commit_without_release_is_found() {
    check(|| {
        let (d, ring) = (on_ring(), PlainRing::new());
        write(&d, &ring, 0, 2, 2);
        let reader = {
            let (d, ring) = (d.clone(), ring.clone());
            thread::spawn(move || {
                assert_eq!(ring.get(0), 0);
                d.h.head.store(1, Relaxed);
            })
        };
        write(&d, &ring, 2, 3, 2);
        reader.join().unwrap();
    });
}

/// One R that consumes, W that claims: consumed and re-sent bytes are the stream, each once.
#[test]
fn a_claim_splits_the_stream_at_one_position() {
    check(|| {
        let (d, ring) = (on_ring(), PlainRing::new());
        write(&d, &ring, 0, 2, 2);
        let reader = {
            let (d, ring) = (d.clone(), ring.clone());
            thread::spawn(move || {
                let mut got = Vec::new();
                for _ in 0..3 {
                    let Readable::Ring { head, available } = d.readable(SIZE).unwrap() else { break };
                    if available > 0 {
                        let byte = ring.get(head.position());
                        if d.commit(head, 1) {
                            got.push(byte);
                        }
                    }
                }
                got
            })
        };
        let tail = 2 + u64::from({
            let room = d.space(2, SIZE).unwrap() > 0;
            if room {
                ring.put(2, 2);
                d.publish(3);
            }
            room
        });
        let from = d.claim().expect("W alone claims");
        let resent: Vec<u8> = (from..tail).map(|p| ring.get(p)).collect();
        let mut stream = reader.join().unwrap();
        assert_eq!(d.path(), Path::Kernel);
        assert_eq!(stream.len() as u64, from);
        stream.extend(resent);
        assert_eq!(stream, (0..tail as u8).collect::<Vec<_>>());
    });
}

/// Two readers share an end (threads or forked processes): copies race by design, commits decide.
#[test]
fn siblings_never_deliver_a_byte_twice_or_torn() {
    check_three(|| {
        let d = on_ring();
        let ring = Arc::new([AtomicU8::new(0), AtomicU8::new(1)]);
        d.publish(2);
        let consume = |d: Arc<Direction>, ring: Arc<[AtomicU8; 2]>| {
            move || {
                let mut got = Vec::new();
                for _ in 0..2 {
                    let Readable::Ring { head, available } = d.readable(SIZE).unwrap() else { break };
                    if available > 0 {
                        let byte = ring[(head.position() % SIZE) as usize].load(Relaxed);
                        if d.commit(head, 1) {
                            assert_eq!(u64::from(byte), head.position(), "torn by a later write");
                            got.push(byte);
                        }
                    }
                }
                got
            }
        };
        let siblings = [
            thread::spawn(consume(d.clone(), ring.clone())),
            thread::spawn(consume(d.clone(), ring.clone())),
        ];
        // W goes on and overwrites what is free.
        let mut tail = 2;
        if d.space(tail, SIZE).unwrap() > 0 {
            ring[0].store(2, Relaxed);
            tail += 1;
            d.publish(tail);
        }
        let from = d.claim().unwrap();
        let mut all: Vec<u8> = siblings.into_iter().flat_map(|s| s.join().unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..from as u8).collect::<Vec<_>>());
    });
}
