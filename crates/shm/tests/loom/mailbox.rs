//! Mailboxes: every datagram comes once, by the ring or by the carrier, in the order of its writer, and nobody sleeps beside a full ring.

use crate::datagrams::{Plain, Racy, word};
use crate::{check, check_three};
use bypath_shm::dgram::{MARK, Octets, Record};
use bypath_shm::mailbox::{Mailbox, Pushed, Reader, Writer, phase};
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::collections::VecDeque;

/// Octets of the ring.
const SIZE: u64 = 32;

/// The carrier: a queue with a lock, which is looked into without it first, as the kernel does: it orders nothing but what goes through it.
struct Carrier {
    queued: AtomicU64,
    queue: Mutex<VecDeque<u64>>,
}

impl Carrier {
    fn send(&self, number: u64) {
        let mut queue = self.queue.lock().unwrap();
        queue.push_back(number);
        self.queued.fetch_add(1, Relaxed);
    }

    fn receive(&self) -> Option<u64> {
        if self.queued.load(Relaxed) == 0 {
            return None;
        }
        let mut queue = self.queue.lock().unwrap();
        self.queued.fetch_sub(1, Relaxed);
        queue.pop_front()
    }
}

struct Post<R> {
    mailbox: Mailbox,
    ring: R,
    carrier: Carrier,
}

impl<R> Post<R> {
    fn new(ring: R, gate: u64) -> Arc<Post<R>> {
        let mailbox = Mailbox::new();
        mailbox.gate.0.store(gate, Relaxed);
        Arc::new(Post {
            mailbox,
            ring,
            carrier: Carrier { queued: AtomicU64::new(0), queue: Mutex::new(VecDeque::new()) },
        })
    }
}

/// Open in epoch 1.
const OPEN: u64 = 1 << 2 | phase::OPEN;

/// Sends a number as a program does.
fn send<O: Octets>(writer: &Writer<'_, O>, carrier: &Carrier, left: &AtomicU64, number: u64) {
    match writer.push(left, &[], &number.to_ne_bytes(), SIZE) {
        Pushed::Sent => {}
        Pushed::Kernel | Pushed::Full => {
            carrier.send(number);
            writer.sent_by_kernel(left);
        }
        Pushed::Poisoned => panic!("nobody lies"),
    }
}

/// The next one of the ring, in at most `tries` looks.
fn take<O: Octets>(reader: &Reader<'_, O>, tries: usize) -> Option<u64> {
    for _ in 0..tries {
        let peeked = reader.peek().expect("nobody lies")?;
        let mut octets = [0; 8];
        peeked.place.copy(reader.ring(), &mut octets);
        if reader.release(&peeked) {
            return Some(word(&octets));
        }
    }
    None
}

/// A writer sends, a reader takes what it finds and goes to sleep: `close` says how.
fn asleep(send: fn(&Post<Arc<Racy>>, &AtomicU64, u64), close: fn(&Mailbox, &Reader<'_, &Racy>)) {
    check(move || {
        let shared = Post::new(Racy::new(), OPEN);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let left = AtomicU64::new(0);
                (0..2).for_each(|number| send(&shared, &left, number));
            })
        };
        let reader = Reader::new(&shared.mailbox, &*shared.ring);
        let mut got: Vec<u64> = take(&reader, 2).into_iter().collect();
        close(&shared.mailbox, &reader);
        // Nobody looks at the ring again.
        let asleep = loop {
            match take(&reader, 2) {
                Some(number) => got.push(number),
                None => break reader.is_empty(),
            }
        };
        writer.join().unwrap();
        if asleep {
            assert!(reader.is_empty(), "it sleeps, and a datagram is in the ring");
        }
        got.extend(std::iter::from_fn(|| take(&reader, 1)));
        got.extend(std::iter::from_fn(|| shared.carrier.receive()));
        assert_eq!(got, [0, 1]);
    });
}

fn send_well(shared: &Post<Arc<Racy>>, left: &AtomicU64, number: u64) {
    send(&Writer::new(&shared.mailbox, &*shared.ring, 7), &shared.carrier, left, number);
}

#[test]
fn nobody_sleeps_beside_a_datagram_and_each_comes_once() {
    asleep(send_well, |_, reader| reader.close());
}

#[test]
#[should_panic(expected = "it sleeps")]
fn a_reader_that_closes_without_a_fence_is_found() {
    asleep(send_well, |mailbox, _| mailbox.gate.0.store(OPEN & !3, Relaxed));
}

#[test]
#[should_panic(expected = "it sleeps")]
fn a_writer_that_does_not_look_again_is_found() {
    asleep(
        |shared, left, number| {
            if shared.mailbox.gate.0.load(Relaxed) != OPEN {
                return send_well(shared, left, number);
            }
            // Its own tail: all that was sent before went by the ring, too.
            let at = number * 16;
            let record = Record { octets: 8, head: 0, mark: MARK };
            Octets::put(&&*shared.ring, at, &record.encode());
            Octets::put(&&*shared.ring, at + 8, &number.to_ne_bytes());
            shared.mailbox.tail.0.store(at + 16, loom::sync::atomic::Ordering::Release);
        },
        |_, reader| reader.close(),
    );
}

/// Nobody looks at the ring any more when a send is over, open or not: what was offered was taken, or went by the carrier.
fn offered(send: fn(&Post<Arc<Racy>>, &AtomicU64, u64)) {
    check(move || {
        let shared = Post::new(Racy::new(), OPEN);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let left = AtomicU64::new(0);
                (0..2).for_each(|number| send(&shared, &left, number));
            })
        };
        let reader = Reader::new(&shared.mailbox, &*shared.ring);
        let mut got: Vec<u64> = take(&reader, 2).into_iter().collect();
        reader.close();
        got.extend(take(&reader, 2));
        writer.join().unwrap();
        assert!(reader.is_empty(), "a datagram stayed behind");
        got.extend(std::iter::from_fn(|| shared.carrier.receive()));
        assert_eq!(got, [0, 1]);
    });
}

#[test]
fn what_is_offered_is_taken_or_goes_by_the_carrier() {
    offered(|shared, left, number| {
        let writer = Writer::new(&shared.mailbox, &*shared.ring, 7);
        let mut looks = 0;
        let waits = || {
            looks += 1;
            looks < 3
        };
        let octets = number.to_ne_bytes();
        match writer.offer_with(left, &[], octets.len(), |ring, at| ring.put(at, &octets), waits) {
            Pushed::Sent => {}
            Pushed::Kernel => {
                shared.carrier.send(number);
                writer.sent_by_kernel(left);
            }
            other => panic!("{other:?}"),
        }
    });
}

#[test]
#[should_panic(expected = "stayed behind")]
fn what_is_pushed_may_stay_behind() {
    offered(send_well);
}

/// A reader opens, drains, reads, closes; the writer sends all the time.
fn ordered(after: fn(&Mailbox, &Writer<'_, &Racy>, &AtomicU64)) {
    check(move || {
        let shared = Post::new(Racy::new(), phase::CLOSED);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (left, writer) = (AtomicU64::new(0), Writer::new(&shared.mailbox, &*shared.ring, 7));
                for number in 0..3u64 {
                    match writer.push(&left, &[], &number.to_ne_bytes(), SIZE) {
                        Pushed::Sent => {}
                        _ => {
                            shared.carrier.send(number);
                            after(&shared.mailbox, &writer, &left);
                        }
                    }
                }
            })
        };
        let reader = Reader::new(&shared.mailbox, &*shared.ring);
        let mut got = Vec::new();
        let epoch = reader.open_begin().expect("closed");
        got.extend(std::iter::from_fn(|| take(&reader, 1).or_else(|| shared.carrier.receive())));
        reader.open_finish(epoch);
        got.extend(take(&reader, 2));
        reader.close();
        got.extend(std::iter::from_fn(|| take(&reader, 2)));
        got.extend(shared.carrier.receive());
        writer.join().unwrap();
        got.extend(std::iter::from_fn(|| take(&reader, 2)));
        got.extend(std::iter::from_fn(|| shared.carrier.receive()));
        assert_eq!(got, [0, 1, 2], "in the order of the calls");
    });
}

#[test]
fn datagrams_of_one_writer_stay_in_order_over_an_opening_and_a_closing() {
    ordered(|_, writer, left| writer.sent_by_kernel(left));
}

#[test]
#[should_panic(expected = "in the order of the calls")]
fn a_writer_that_does_not_leave_the_epoch_is_found() {
    ordered(|_, _, _| {});
}

#[test]
#[should_panic(expected = "in the order of the calls")]
fn a_writer_that_asks_without_a_fence_is_found() {
    ordered(|mailbox, _, left| {
        let gate = mailbox.gate.0.load(Relaxed);
        if matches!(gate & 3, phase::OPENING | phase::OPEN) {
            left.store(gate >> 2, Relaxed);
        }
    });
}

/// Two writers, whose words are plain memory: the lock keeps them apart, and what each sends comes in its order.
#[test]
fn writers_take_turns() {
    check_three(|| {
        let shared = Post::new(Plain::new(), OPEN);
        let writer = |owner: u32| {
            let shared = shared.clone();
            thread::spawn(move || {
                let writer = Writer::new(&shared.mailbox, &*shared.ring, owner);
                send(&writer, &shared.carrier, &AtomicU64::new(0), u64::from(owner));
            })
        };
        let writers = [writer(1), writer(2)];
        let reader = Reader::new(&shared.mailbox, &*shared.ring);
        reader.close();
        let mut got: Vec<u64> = std::iter::from_fn(|| take(&reader, 1)).collect();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert!(reader.is_empty(), "it sleeps, and a datagram is in the ring");
        got.extend(std::iter::from_fn(|| shared.carrier.receive()));
        got.sort_unstable();
        assert_eq!(got, [1, 2]);
    });
}

/// Two threads read, one of them closes, and the writer takes back what it has shown: each datagram comes once.
#[test]
fn threads_that_read_and_a_writer_that_takes_back_have_each_datagram_once() {
    check_three(|| {
        let shared = Post::new(Racy::new(), OPEN);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let left = AtomicU64::new(0);
                (0..2).for_each(|number| send_well(&shared, &left, number));
            })
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || take(&Reader::new(&shared.mailbox, &*shared.ring), 2))
        };
        let reader = Reader::new(&shared.mailbox, &*shared.ring);
        reader.close();
        let mut got: Vec<u64> = take(&reader, 2).into_iter().collect();
        writer.join().unwrap();
        got.extend(other.join().unwrap());
        got.extend(std::iter::from_fn(|| take(&reader, 1)));
        got.extend(std::iter::from_fn(|| shared.carrier.receive()));
        got.sort_unstable();
        assert_eq!(got, [0, 1]);
    });
}

/// Who is about to sleep says so and closes; who opens asks whether anybody sleeps: the gate does not open beside a sleeper.
#[test]
fn the_gate_does_not_open_beside_a_sleeper() {
    check(|| {
        let shared = Post::new(Racy::new(), phase::CLOSED);
        let sleepers = Arc::new(AtomicU64::new(0));
        let sleeper = {
            let (shared, sleepers) = (shared.clone(), sleepers.clone());
            thread::spawn(move || {
                sleepers.fetch_add(1, Relaxed);
                Reader::new(&shared.mailbox, &*shared.ring).close();
            })
        };
        let reader = Reader::new(&shared.mailbox, &*shared.ring);
        if let Some(epoch) = reader.open_begin() {
            if sleepers.load(Relaxed) == 0 {
                reader.open_finish(epoch);
            }
        }
        sleeper.join().unwrap();
        assert!(!reader.is_open());
    });
}

/// A writer sends, and the mailbox is recalled meanwhile: what is in it goes by the carrier, from its reader. `waits` says how the writer goes on.
fn recalled(waits: fn(&Mailbox)) {
    check(move || {
        let shared = Post::new(Racy::new(), OPEN);
        let writer = {
            let shared = shared.clone();
            thread::spawn(move || {
                let (left, writer) = (AtomicU64::new(0), Writer::new(&shared.mailbox, &*shared.ring, 7));
                for number in 0..2u64 {
                    match writer.push(&left, &[], &number.to_ne_bytes(), SIZE) {
                        Pushed::Sent => {}
                        _ => {
                            waits(&shared.mailbox);
                            shared.carrier.send(number);
                        }
                    }
                }
            })
        };
        let (mailbox, reader) = (&shared.mailbox, Reader::new(&shared.mailbox, &*shared.ring));
        assert!(mailbox.recall());
        if mailbox.unread() != 0 {
            reader.keep_writers_out(9, || {
                thread::yield_now();
                true
            });
            while let Some(number) = take(&reader, 3) {
                shared.carrier.send(number);
            }
        }
        mailbox.kill();
        writer.join().unwrap();
        assert!(reader.is_empty(), "a datagram stayed behind");
        let got: Vec<u64> = std::iter::from_fn(|| shared.carrier.receive()).collect();
        assert_eq!(got, [0, 1], "in the order of the calls");
    });
}

#[test]
fn what_is_recalled_comes_once_and_before_what_its_writer_sends_next() {
    recalled(|mailbox| {
        while mailbox.is_recalled() {
            thread::yield_now();
        }
    });
}

#[test]
#[should_panic(expected = "in the order of the calls")]
fn a_writer_that_does_not_wait_for_a_recall_is_found() {
    recalled(|_| {});
}
