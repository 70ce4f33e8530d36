//! Mailboxes: random walks beside queues, threads, limits, maps, and others that lie.
#![cfg(not(loom))]

use bypath_shm::dgram::{HEADS, LONGEST, MARK, Octets, Record, WORD, span};
use bypath_shm::direction::Poisoned;
use bypath_shm::mailbox::{Mailbox, Pushed, Reader, Writer, phase};
use bypath_shm::region::{MailboxMap, own_ring};
use bypath_shm::ring::Ring;
use bypath_sys::Errno;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Barrier, Mutex};

/// A generator that says the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 29
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    /// Octets that tell where they are.
    fn octets(&mut self, n: u64) -> Vec<u8> {
        let first = self.roll();
        (0..n).map(|i| (first.wrapping_add(i * 31)) as u8).collect()
    }
}

/// A ring whose every access is looked at.
#[derive(Clone, Copy)]
struct Watched(Ring);

impl Octets for Watched {
    fn size(&self) -> u64 {
        self.0.size()
    }

    fn put(&self, position: u64, from: &[u8]) {
        assert!(from.len() as u64 <= self.size(), "writes more than the ring");
        self.0.copy_from_slice(position, from);
    }

    fn get(&self, position: u64, to: &mut [u8]) {
        assert!(to.len() as u64 <= self.size(), "reads more than the ring");
        self.0.copy_to_slice(position, to);
    }
}

/// An open one whose positions go over the ring's end from the start.
fn open(at: u64) -> Mailbox {
    let mailbox = Mailbox::new();
    mailbox.head.0.store(at, Relaxed);
    mailbox.tail.0.store(at, Relaxed);
    mailbox.writers.head.store(at, Relaxed);
    mailbox.writers.tail.store(at, Relaxed);
    let reader = Reader::new(&mailbox, own_ring(4096).unwrap());
    let epoch = reader.open_begin().unwrap();
    assert!(!reader.is_open() && reader.open_finish(epoch) && reader.is_open());
    mailbox
}

fn take<O: Octets>(reader: &Reader<'_, O>) -> Option<(Vec<u8>, Vec<u8>)> {
    let peeked = reader.peek().expect("no lies")?;
    let (mut head, mut octets) = (vec![0; HEADS], vec![0; peeked.place.len() + 5]);
    let heads = peeked.place.copy_head(reader.ring(), &mut head);
    let n = peeked.place.copy(reader.ring(), &mut octets);
    assert_eq!((heads, n), (peeked.place.head_len(), peeked.place.len()));
    head.truncate(heads);
    octets.truncate(n);
    assert!(reader.stands(&peeked) && reader.release(&peeked) && !reader.stands(&peeked));
    assert!(!reader.release(&peeked), "once only");
    Some((head, octets))
}

/// A socket that is read as the rules say, and writers that use the carrier where they may not use the ring: what each sends comes in its order.
fn walk(size: u32, sole: bool, seed: u64) -> (u64, u64, u64) {
    let mut dice = Dice(seed);
    let ring = Watched(own_ring(size).unwrap());
    let at = u64::from(size) * 5 - 16;
    let mailbox = open(at);
    let own = AtomicU64::new(at);
    let reader = Reader::new(&mailbox, ring);
    let writer = |n: usize| match sole {
        true => Writer::sole(&mailbox, ring, &own),
        false => Writer::new(&mailbox, ring, n as u32 + 1),
    };
    let left = [AtomicU64::new(0), AtomicU64::new(0)];
    let mut carrier = VecDeque::new();
    let mut sent = [VecDeque::new(), VecDeque::new()];
    let (mut by_ring, mut by_carrier, mut full) = (0, 0, 0);
    for step in 0..5000 {
        // Now more is sent than read, now less.
        let sends = if step % 500 < 100 { 60 } else { 30 };
        match dice.below(100) {
            n if n < sends => {
                let who = dice.below(2) as usize;
                let n = match dice.below(8) {
                    0 => 0,
                    1 => (LONGEST as u64).min(u64::from(size) - 264),
                    2 => dice.below(2000),
                    _ => dice.below(100),
                };
                let (head, octets) = (vec![who as u8; 1 + dice.below(4) as usize * 37], dice.octets(n));
                match writer(who).push(&left[who], &head, &octets, u64::from(size)) {
                    Pushed::Sent => by_ring += 1,
                    Pushed::Poisoned => panic!("no lies"),
                    other => {
                        full += u64::from(other == Pushed::Full);
                        by_carrier += 1;
                        carrier.push_back((head.clone(), octets.clone()));
                        writer(who).sent_by_kernel(&left[who]);
                    }
                }
                sent[who].push_back((head, octets));
            }
            n if n < 97 => {
                // One datagram, the ring's first.
                let epoch = reader.open_begin();
                if reader.is_open() && !carrier.is_empty() {
                    reader.close();
                }
                let found =
                    take(&reader).or_else(|| if reader.is_open() { None } else { carrier.pop_front() });
                match found {
                    Some((head, octets)) => {
                        assert_eq!(sent[usize::from(head[0])].pop_front().unwrap(), (head, octets));
                    }
                    None => {
                        if let Some(epoch) = epoch {
                            assert!(reader.open_finish(epoch));
                        }
                    }
                }
            }
            _ => reader.close(),
        }
    }
    assert_eq!(reader.is_empty(), !writer(0).unread());
    (by_ring, by_carrier, full)
}

#[test]
fn what_nobody_takes_is_taken_back_and_what_is_behind_another_is_not_offered() {
    let ring = own_ring(4096).unwrap();
    let (mailbox, left) = (open(0), AtomicU64::new(0));
    let (reader, writer) = (Reader::new(&mailbox, ring), Writer::new(&mailbox, ring, 1));
    let offer = |octets: &[u8], waits: &mut dyn FnMut() -> bool| {
        writer.offer_with(&left, b"head", octets.len(), |ring, at| ring.put(at, octets), waits)
    };
    assert_eq!(offer(b"alone", &mut || false), Pushed::Kernel);
    assert!(reader.is_empty());
    let mut got = None;
    let mut takes = || {
        got = take(&reader);
        true
    };
    assert_eq!(offer(b"taken", &mut takes), Pushed::Sent);
    assert_eq!(got, Some((b"head".to_vec(), b"taken".to_vec())));
    let mut closes = || {
        reader.close();
        true
    };
    assert_eq!(offer(b"closed", &mut closes), Pushed::Kernel);
    assert!(reader.is_empty());
    let epoch = reader.open_begin().unwrap();
    assert!(reader.open_finish(epoch));
    assert_eq!(writer.push(&left, b"", b"first", 4096), Pushed::Sent);
    assert_eq!(offer(b"second", &mut || panic!("it is not even shown")), Pushed::Kernel);
    assert_eq!(take(&reader).unwrap().1, b"first");
    assert!(writer.held_by().is_none());
}

#[test]
fn datagrams_of_each_writer_come_once_and_in_order_whichever_way_they_go() {
    for seed in 0..20 {
        for (size, sole) in [(4096, false), (1 << 17, false), (4096, true)] {
            let (by_ring, by_carrier, full) = walk(size, sole, seed);
            assert!(by_ring > 100 && by_carrier > 100, "{size} {seed}: {by_ring} {by_carrier}");
            assert!(size > 4096 || full > 10, "{size} {seed}: {full}");
        }
    }
}

#[test]
fn a_gate_that_is_not_open_sends_writers_to_the_carrier() {
    let mailbox = Mailbox::new();
    let ring = own_ring(4096).unwrap();
    let (reader, writer) = (Reader::new(&mailbox, ring), Writer::new(&mailbox, ring, 1));
    let (left, other) = (AtomicU64::new(0), AtomicU64::new(0));
    let push = |left| writer.push(left, &[], b"octets", 4096);
    assert_eq!(push(&left), Pushed::Kernel);
    writer.sent_by_kernel(&left);
    let epoch = reader.open_begin().unwrap();
    assert_eq!(reader.open_begin(), Some(epoch), "who comes later goes on with it");
    assert_eq!(push(&other), Pushed::Kernel);
    writer.sent_by_kernel(&other);
    assert!(reader.open_finish(epoch) && !reader.open_finish(epoch));
    assert_eq!(reader.open_begin(), None, "it is open");
    // Who sent while it was closed may; who sent while it opened may not, before the next epoch.
    assert_eq!([push(&left), push(&other)], [Pushed::Sent, Pushed::Kernel]);
    reader.close();
    reader.close();
    assert!(!reader.is_open() && !reader.is_empty());
    let epoch = reader.open_begin().unwrap();
    assert!(!reader.open_finish(epoch), "something is to be read first");
    assert!(take(&reader).is_some() && reader.open_finish(epoch));
    assert_eq!(push(&other), Pushed::Sent);
    // A closing beside it: that opening is over.
    reader.close();
    let epoch = reader.open_begin().unwrap();
    reader.close();
    assert!(take(&reader).is_some() && !reader.open_finish(epoch));
    // For good.
    let epoch = reader.open_begin().unwrap();
    assert!(reader.open_finish(epoch) && push(&left) == Pushed::Sent);
    reader.kill();
    reader.close();
    assert!(reader.is_dead() && reader.open_begin().is_none() && push(&left) == Pushed::Kernel);
    assert!(take(&reader).is_some(), "what is in it can be read");
    mailbox.reset();
    assert!(!reader.is_dead() && reader.is_empty() && reader.open_begin().is_some());
}

#[test]
fn a_full_ring_refuses_and_a_limit_leaves_room_for_one() {
    let mailbox = open(0);
    let ring = own_ring(4096).unwrap();
    let (reader, writer, left) =
        (Reader::new(&mailbox, ring), Writer::new(&mailbox, ring, 1), AtomicU64::new(0));
    let push = |head: &[u8], n: usize, limit| writer.push(&left, head, &vec![1; n], limit);
    // What it never has room for goes by the carrier.
    assert_eq!(push(&[], 4089, u64::MAX), Pushed::Kernel);
    assert_eq!(push(&[0; HEADS + 1], 0, u64::MAX), Pushed::Kernel);
    // The first one whatever the limit, and whatever it is.
    assert_eq!(push(&[], 100, 50), Pushed::Sent);
    assert_eq!(push(&[], 0, 50), Pushed::Full);
    assert_eq!(push(&[], 0, 200), Pushed::Sent);
    assert_eq!(push(&[], 3969, u64::MAX), Pushed::Full);
    assert_eq!(push(&[], 3968, u64::MAX), Pushed::Sent);
    assert_eq!(push(&[], 0, u64::MAX), Pushed::Full);
    assert_eq!(mailbox.unread(), 4096);
    writer.lose();
    assert_eq!(mailbox.lost(), 1);
    let lengths: Vec<usize> = std::iter::from_fn(|| Some(take(&reader)?.1.len())).collect();
    assert_eq!(lengths, [100, 0, 3968]);
    // All of it, in one, by pieces.
    let fill = |ring: &Ring, at: u64| ring.copy_from_slice(at, &[7; 4088]);
    assert_eq!(writer.push_with(&left, &[], 4088, 0, fill), Pushed::Sent);
    assert_eq!(take(&reader).unwrap().1, [7; 4088]);
}

#[test]
fn a_writer_that_never_gives_its_turn_back_is_not_waited_for() {
    let mailbox = open(0);
    let ring = own_ring(4096).unwrap();
    let (writer, left) = (Writer::new(&mailbox, ring, 7), AtomicU64::new(0));
    assert_eq!(writer.held_by(), None);
    mailbox.writers.lock.store(9, Relaxed);
    assert_eq!(writer.push(&left, &[], b"x", 4096), Pushed::Kernel);
    assert_eq!(writer.held_by(), Some(9));
    // Who is alone does not ask.
    let own = AtomicU64::new(0);
    assert_eq!(Writer::sole(&mailbox, ring, &own).push(&left, &[], b"x", 4096), Pushed::Sent);
    assert_eq!(own.into_inner(), span(0, 1));
}

/// Writers, readers and a gate that opens and closes all the time, over a carrier: everything comes once, and to each reader in its writer's order.
#[test]
fn threads_send_and_read_while_the_gate_moves() {
    const EACH: u64 = 30_000;
    let ring = own_ring(4096).unwrap();
    let mailbox = open(0);
    let carrier: Mutex<VecDeque<(u64, u64)>> = Mutex::new(VecDeque::new());
    let (taken, by_ring, sum) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU64::new(0));
    // Writers that were done before there is a reader would use the carrier alone.
    let begin = Barrier::new(3);
    std::thread::scope(|scope| {
        for who in 0..2 {
            let (mailbox, carrier, by_ring, begin) = (&mailbox, &carrier, &by_ring, &begin);
            scope.spawn(move || {
                begin.wait();
                let (writer, left) = (Writer::new(mailbox, ring, who + 1), AtomicU64::new(0));
                for number in 1..=EACH {
                    let mut octets = vec![number as u8; 8 + (number % 100) as usize];
                    octets[..8].copy_from_slice(&number.to_ne_bytes());
                    match writer.push(&left, &[who as u8], &octets, 4096) {
                        Pushed::Sent => _ = by_ring.fetch_add(1, Relaxed),
                        Pushed::Poisoned => panic!("no lies"),
                        _ => {
                            carrier.lock().unwrap().push_back((u64::from(who), number));
                            writer.sent_by_kernel(&left);
                        }
                    }
                    if number % 16 == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        scope.spawn(|| {
            let reader = Reader::new(&mailbox, ring);
            let mut dice = Dice(1);
            let mut last = [0, 0];
            begin.wait();
            let mut got = |who: u64, number: u64| {
                assert_eq!(std::mem::replace(&mut last[who as usize], number) + 1, number, "of {who}");
                taken.fetch_add(1, Relaxed);
                sum.fetch_add(number, Relaxed);
            };
            while taken.load(Relaxed) < 2 * EACH {
                let epoch = reader.open_begin();
                if dice.below(50) == 0 || (reader.is_open() && !carrier.lock().unwrap().is_empty()) {
                    reader.close();
                }
                let found = reader.peek().expect("no lies");
                if let Some(peeked) = found {
                    let (mut head, mut octets) = ([0], [0; 200]);
                    peeked.place.copy_head(&ring, &mut head);
                    let n = peeked.place.copy(&ring, &mut octets);
                    if reader.release(&peeked) {
                        let number = u64::from_ne_bytes(octets[..8].try_into().unwrap());
                        assert_eq!(n as u64, 8 + number % 100);
                        assert!(octets[8..n].iter().all(|octet| *octet == number as u8), "torn");
                        got(u64::from(head[0]), number);
                    }
                } else if reader.is_open() {
                    std::thread::yield_now();
                } else if let Some((who, number)) = { carrier.lock().unwrap().pop_front() } {
                    got(who, number);
                } else if let Some(epoch) = epoch {
                    reader.open_finish(epoch);
                }
            }
        });
    });
    assert_eq!(sum.into_inner(), EACH * (EACH + 1));
    assert!(by_ring.into_inner() > 0 && Reader::new(&mailbox, ring).is_empty());
}

#[test]
fn each_lie_is_found_out() {
    let ring = Watched(own_ring(4096).unwrap());
    let lied = |lie: &dyn Fn(&Mailbox)| {
        let mailbox = open(0);
        assert_eq!(
            Writer::new(&mailbox, ring, 1).push(&AtomicU64::new(0), &[1; 8], &[2; 40], 4096),
            Pushed::Sent
        );
        lie(&mailbox);
        Reader::new(&mailbox, ring).peek().map(|found| found.is_some())
    };
    let word = |at: u64, octets: &[u8]| {
        let octets = octets.to_vec();
        move |_: &Mailbox| ring.put(at, &octets)
    };
    assert_eq!(lied(&|_| {}), Ok(true));
    assert_eq!(lied(&word(0, &40u32.to_ne_bytes())), Ok(true));
    assert_eq!(lied(&word(0, &41u32.to_ne_bytes())), Err(Poisoned));
    assert_eq!(lied(&word(0, &u32::MAX.to_ne_bytes())), Err(Poisoned));
    assert_eq!(lied(&word(4, &u16::MAX.to_ne_bytes())), Err(Poisoned));
    assert_eq!(lied(&word(6, &[0])), Err(Poisoned));
    for tail in [1, 7, 55, 57, 4097, 4104, u64::MAX] {
        assert_eq!(lied(&|m| m.tail.0.store(tail, Relaxed)), Err(Poisoned), "{tail}");
    }
    for head in [1, 8, 65, 4096, 1 << 62, u64::MAX, u64::MAX - 7] {
        assert_eq!(lied(&|m| m.head.0.store(head, Relaxed)), Err(Poisoned), "{head}");
    }
    // The writer's side.
    let refused = |lie: &dyn Fn(&Mailbox)| {
        let mailbox = open(0);
        let writer = Writer::new(&mailbox, ring, 1);
        assert_eq!(writer.push(&AtomicU64::new(0), &[], &[2; 40], 4096), Pushed::Sent);
        // So that it looks at the head itself.
        mailbox.writers.head.store(1 << 40, Relaxed);
        lie(&mailbox);
        let pushed = writer.push(&AtomicU64::new(0), &[], &[1], 4096);
        assert_eq!(writer.held_by(), None);
        pushed
    };
    assert_eq!(refused(&|_| {}), Pushed::Sent);
    for position in [3, 56, 4096, 1 << 62, u64::MAX] {
        assert_eq!(refused(&|m| m.head.0.store(position, Relaxed)), Pushed::Poisoned, "{position}");
    }
    for position in [1, 49, 8192, 1 << 62, u64::MAX] {
        assert_eq!(refused(&|m| m.writers.tail.store(position, Relaxed)), Pushed::Poisoned, "{position}");
    }
}

/// Any octet of the ring and any word changes at any time: accesses stay inside the ring (`Watched`), no datagram is longer than the
/// ring, and every call ends.
#[test]
fn whatever_another_writes_nothing_is_read_out_of_bounds() {
    let ring = Watched(own_ring(4096).unwrap());
    let mailbox = open(0);
    let done = AtomicBool::new(false);
    let (mut found, mut poisoned, mut sent) = (0, 0, 0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(3);
            while !done.load(Relaxed) {
                let head = dice.below(1 << 20) & !7;
                let odd = dice.roll() << 31 ^ dice.roll();
                mailbox.head.0.store(if odd.is_multiple_of(9) { odd } else { head }, Relaxed);
                mailbox
                    .tail
                    .0
                    .store(if odd.is_multiple_of(7) { odd } else { head + (dice.below(4096) & !7) }, Relaxed);
                mailbox
                    .gate
                    .0
                    .store(if odd.is_multiple_of(5) { odd } else { odd & !3 | phase::OPEN }, Relaxed);
                mailbox.writers.head.store(odd, Relaxed);
                let tail = if odd.is_multiple_of(11) { odd } else { head + (dice.below(4096) & !7) };
                mailbox.writers.tail.store(tail, Relaxed);
                mailbox.writers.lock.store((odd.is_multiple_of(3)) as u32, Relaxed);
                let word =
                    Record { octets: dice.below(5000) as u32, head: dice.below(300) as u16, mark: MARK };
                (0..64).for_each(|at| ring.put(head + at * 8, &word.encode()));
            }
        });
        let (reader, own) = (Reader::new(&mailbox, ring), AtomicU64::new(0));
        let writers = [Writer::new(&mailbox, ring, 5), Writer::sole(&mailbox, ring, &own)];
        let mut octets = vec![0; LONGEST];
        let mut looks = 0;
        while looks < 20_000 || ((found == 0 || sent == 0 || poisoned == 0) && looks < 10_000_000) {
            looks += 1;
            match reader.peek() {
                Ok(Some(peeked)) => {
                    found += 1;
                    assert!((WORD..=4096).contains(&peeked.place.span()) && peeked.place.head_len() <= HEADS);
                    peeked.place.copy_head(reader.ring(), &mut octets);
                    peeked.place.copy(reader.ring(), &mut octets);
                    reader.release(&peeked);
                }
                Ok(None) => {}
                Err(Poisoned) => poisoned += 1,
            }
            let left = AtomicU64::new(0);
            for writer in &writers {
                sent += u64::from(writer.push(&left, &[1; 16], &[2; 100], 4096) == Pushed::Sent);
                writer.sent_by_kernel(&left);
            }
            if let Some(epoch) = reader.open_begin() {
                reader.open_finish(epoch);
            }
            reader.close();
        }
        done.store(true, Relaxed);
    });
    assert!(found > 0 && sent > 0 && poisoned > 0, "{found} {sent} {poisoned}: this test shows nothing");
}

#[test]
fn a_mapped_mailbox_is_the_same_memory_for_all_who_map_it() {
    let (here, fd) = MailboxMap::new(8192, 3).unwrap();
    let there = MailboxMap::map(fd).unwrap();
    bypath_sys::fd::close(fd);
    assert_eq!(there.ring().size(), 8192);
    let reader = Reader::new(here.mailbox(), here.ring());
    let epoch = reader.open_begin().unwrap();
    assert!(reader.open_finish(epoch));
    let writer = Writer::new(there.mailbox(), there.ring(), 1);
    assert_eq!(writer.push(&AtomicU64::new(0), b"from", b"octets", 8192), Pushed::Sent);
    assert_eq!(take(&reader), Some((b"from".to_vec(), b"octets".to_vec())));
    // Nobody sees what is written there afterwards.
    there.let_go();
    there.mailbox().gate.0.store(phase::OPEN, Relaxed);
    assert!(!there.mailbox().is_dead() && here.mailbox().gate.0.load(Relaxed) == 1 << 2 | phase::OPEN);
    for size in [0, 2048, 5000, 1 << 23] {
        assert_eq!(MailboxMap::new(size, 3).err(), Some(Errno::INVAL), "{size}");
    }
    let (_, inbox) = bypath_shm::region::new_inbox(3).unwrap();
    assert_eq!(MailboxMap::map(inbox).err(), Some(Errno::INVAL));
    bypath_sys::fd::close(inbox);
}

#[test]
fn the_next_record_is_prepared_wherever_somebody_says_that_it_is() {
    let (ring, mailbox) = (own_ring(8192).unwrap(), Mailbox::new());
    for tail in [0, 64, 1 << 62, u64::MAX - 2048, u64::MAX - 1400, u64::MAX - 500, u64::MAX - 1, u64::MAX] {
        mailbox.tail.0.store(tail, Relaxed);
        for octets in [0, 128, 129, 1400, LONGEST] {
            Writer::new(&mailbox, ring, 1).prepare(octets);
        }
    }
}
