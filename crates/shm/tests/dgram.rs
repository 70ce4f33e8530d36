//! Rings of datagrams in shared memory: random walks beside a queue, siblings, and others that lie.
#![cfg(not(loom))]

use bypath_shm::dgram::{Found, HEADS, LONGEST, Octets, Peeked, Reader, Refused, WORD, Writer, span};
use bypath_shm::direction::{Direction, Head, Path, Poisoned};
use bypath_shm::region::own_ring;
use bypath_shm::ring::Ring;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

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
    fn octets(&mut self, n: usize) -> Vec<u8> {
        let first = self.roll();
        (0..n as u64).map(|i| (first.wrapping_add(i * 31)) as u8).collect()
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

fn on_ring(at: u64) -> Direction {
    let d = Direction::new();
    d.consent();
    assert!(d.begin_ring(at, 0) && d.drained(Head::new(at, Path::Drain)));
    d
}

fn datagram<O: Octets>(reader: &Reader<'_, O>) -> Option<Peeked> {
    match reader.peek().expect("no lies") {
        Found::Datagram(peeked) => Some(peeked),
        Found::Empty => None,
        other => panic!("{other:?}"),
    }
}

/// Head and octets of a datagram, by buffers of other lengths than its own.
fn copy(reader: &Reader<'_, Watched>, peeked: &Peeked) -> (Vec<u8>, Vec<u8>) {
    let (mut head, mut octets) = (vec![0; HEADS], vec![0; peeked.place.len() + 5]);
    let heads = peeked.place.copy_head(reader.ring(), &mut head);
    let n = peeked.place.copy(reader.ring(), &mut octets);
    assert_eq!((heads, n), (peeked.place.head_len(), peeked.place.len()));
    head.truncate(heads);
    octets.truncate(n);
    (head, octets)
}

/// Sends, reads, peeks, claims and switches at random, and compares with a queue.
fn walk(size: u32, seed: u64, steps: usize) -> (u64, u64) {
    let mut dice = Dice(seed);
    let ring = Watched(own_ring(size).unwrap());
    // Positions go over the ring's end from the start.
    let at = u64::from(size) * 5 - 16;
    let d = on_ring(at);
    let mut tail = at;
    let mut queue: VecDeque<(Vec<u8>, Vec<u8>)> = VecDeque::new();
    let (mut sent, mut full) = (0, 0);
    for _ in 0..steps {
        let reader = Reader::new(&d, ring);
        let mut writer = Writer::new(&d, ring, tail);
        match dice.below(20) {
            0..9 => {
                for _ in 0..1 + dice.below(3) {
                    let n = match dice.below(8) {
                        0 => 0,
                        1 => LONGEST.min(size as usize - 264) - dice.below(9) as usize,
                        2 => dice.below(2000) as usize,
                        _ => dice.below(100) as usize,
                    };
                    let head_len = dice.below(4) as usize * 37;
                    let head = dice.octets(head_len);
                    let octets = dice.octets(n);
                    let used: u64 = queue.iter().map(|(h, o)| span(h.len(), o.len())).sum();
                    let fits = used + span(head.len(), octets.len()) <= u64::from(size);
                    let said = writer.push(&head, &octets, u64::MAX);
                    assert_eq!(said, if fits { Ok(()) } else { Err(Refused::Full) });
                    if fits {
                        queue.push_back((head, octets));
                        sent += 1;
                    } else {
                        writer.lose();
                        full += 1;
                    }
                }
                writer.publish();
                tail = writer.tail();
            }
            9..19 => {
                let peeked = datagram(&reader);
                assert_eq!(peeked.is_none(), queue.is_empty());
                let Some(peeked) = peeked else { continue };
                assert_eq!(copy(&reader, &peeked), queue[0]);
                if dice.below(4) == 0 {
                    assert!(reader.stands(&peeked));
                } else {
                    assert!(reader.release(&peeked) && !reader.stands(&peeked));
                    // Once only.
                    assert!(!reader.release(&peeked));
                    queue.pop_front();
                }
            }
            _ => {
                let before = datagram(&reader);
                let mut from = d.claim().unwrap();
                assert_eq!(reader.peek(), Ok(Found::Kernel));
                assert!(before.is_none_or(|peeked| !reader.release(&peeked)));
                while let Some(place) = writer.again(from).unwrap() {
                    let mut octets = vec![0; place.len()];
                    place.copy(writer.ring(), &mut octets);
                    assert_eq!(queue.pop_front().unwrap().1, octets);
                    from = place.end();
                }
                assert!(queue.is_empty() && from == tail);
                d.consent();
                assert!(d.begin_ring(tail, 0));
                let Found::Drain(head) = reader.peek().unwrap() else { panic!("drain") };
                assert!(d.drained(head));
            }
        }
    }
    assert_eq!(d.t.lost.load(Relaxed), full);
    (sent, full)
}

#[test]
fn datagrams_are_those_of_a_queue() {
    for seed in 0..20 {
        for size in [4096, 1 << 17] {
            let (sent, full) = walk(size, seed, 3000);
            assert!(sent > 500 && full > 100, "{size} {seed}: {sent} {full}");
        }
    }
}

#[test]
fn a_full_ring_refuses_and_a_limit_leaves_room_for_one() {
    let d = on_ring(0);
    let ring = own_ring(4096).unwrap();
    let mut writer = Writer::new(&d, ring, 0);
    assert_eq!(writer.push(&[], &[0; 4089], u64::MAX), Err(Refused::TooLong));
    assert_eq!(writer.push(&[0; HEADS + 1], &[], u64::MAX), Err(Refused::TooLong));
    // The first one whatever the limit, and whatever it is.
    assert_eq!(writer.push(&[], &[1; 100], 50), Ok(()));
    assert_eq!(writer.push(&[], &[], 50), Err(Refused::Full));
    assert_eq!(writer.push(&[], &[], 200), Ok(()));
    assert_eq!(writer.push(&[], &[2; 3969], u64::MAX), Err(Refused::Full));
    assert_eq!(writer.push(&[], &[2; 3968], u64::MAX), Ok(()));
    assert_eq!(writer.push(&[], &[], u64::MAX), Err(Refused::Full));
    writer.publish();
    let reader = Reader::new(&d, ring);
    let lengths: Vec<usize> = std::iter::from_fn(|| {
        let peeked = datagram(&reader)?;
        assert!(reader.release(&peeked));
        Some(peeked.place.len())
    })
    .collect();
    assert_eq!(lengths, [100, 0, 3968]);
    // All of it, in one.
    let whole = writer.reserve(0, 4088, u64::MAX).unwrap();
    assert_eq!(whole.room(), 4088);
    writer.commit(whole, 4087);
    assert_eq!(datagram(&reader), None, "not published yet");
    writer.publish();
    assert_eq!(datagram(&reader).unwrap().place.len(), 4087);
}

#[test]
fn the_longest_datagram_with_the_longest_head_comes_through() {
    let d = on_ring(8);
    let ring = Watched(own_ring(1 << 17).unwrap());
    let mut writer = Writer::new(&d, ring, 8);
    let mut dice = Dice(1);
    let (head, octets) = (dice.octets(HEADS), dice.octets(LONGEST));
    assert_eq!(writer.push(&head, &dice.octets(LONGEST + 1), u64::MAX), Err(Refused::TooLong));
    let reader = Reader::new(&d, ring);
    for _ in 0..5 {
        writer.push(&head, &octets, u64::MAX).unwrap();
        writer.publish();
        let peeked = datagram(&reader).unwrap();
        assert_eq!(copy(&reader, &peeked), (head.clone(), octets.clone()));
        // Half of it where there is no more room: the rest is lost with the release.
        let mut half = vec![0; LONGEST / 2];
        assert_eq!(peeked.place.copy(reader.ring(), &mut half), half.len());
        assert!(half[..] == octets[..half.len()]);
        assert!(reader.release(&peeked));
    }
}

/// Threads as siblings: a datagram is taken by one of them, whole, and none finds a liar where there is none.
#[test]
fn siblings_take_each_datagram_once() {
    const SENT: u64 = 60_000;
    let d = on_ring(0);
    let ring = own_ring(4096).unwrap();
    let (taken, sum) = (AtomicU64::new(0), AtomicU64::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let reader = Reader::new(&d, ring);
                let mut octets = [0; 600];
                let mut last = 0;
                while taken.load(Relaxed) < SENT {
                    let Some(peeked) = datagram(&reader) else {
                        std::thread::yield_now();
                        continue;
                    };
                    let n = peeked.place.copy(&ring, &mut octets);
                    if !reader.release(&peeked) {
                        continue;
                    }
                    let number = u64::from_ne_bytes(octets[..8].try_into().unwrap());
                    assert!(number > last, "in order for each of them");
                    last = number;
                    assert_eq!(n as u64, 8 + number % 500);
                    assert!(octets[8..n].iter().all(|octet| *octet == number as u8), "torn");
                    taken.fetch_add(1, Relaxed);
                    sum.fetch_add(number, Relaxed);
                }
            });
        }
        let mut writer = Writer::new(&d, ring, 0);
        for number in 1..=SENT {
            let mut octets = vec![number as u8; 8 + (number % 500) as usize];
            octets[..8].copy_from_slice(&number.to_ne_bytes());
            while let Err(refused) = writer.push(&[], &octets, u64::MAX) {
                assert_eq!(refused, Refused::Full);
                std::thread::yield_now();
            }
            writer.publish();
        }
    });
    assert_eq!((taken.into_inner(), sum.into_inner()), (SENT, SENT * (SENT + 1) / 2));
}

#[test]
fn each_lie_is_found_out() {
    let ring = Watched(own_ring(4096).unwrap());
    let lied = |lie: &dyn Fn(&Direction)| {
        let d = on_ring(0);
        let mut writer = Writer::new(&d, ring, 0);
        writer.push(&[1; 8], &[2; 40], u64::MAX).unwrap();
        writer.publish();
        lie(&d);
        Reader::new(&d, ring).peek().map(|found| matches!(found, Found::Datagram(_)))
    };
    let word = |at: u64, octets: &[u8]| {
        let octets = octets.to_vec();
        move |_: &Direction| ring.put(at, &octets)
    };
    assert_eq!(lied(&|_| {}), Ok(true));
    // Lengths that reach up to the tail, and beyond it.
    assert_eq!(lied(&word(0, &40u32.to_ne_bytes())), Ok(true));
    assert_eq!(lied(&word(0, &41u32.to_ne_bytes())), Err(Poisoned));
    assert_eq!(lied(&word(0, &u32::MAX.to_ne_bytes())), Err(Poisoned));
    assert_eq!(lied(&word(4, &17u16.to_ne_bytes())), Err(Poisoned));
    assert_eq!(lied(&word(4, &u16::MAX.to_ne_bytes())), Err(Poisoned));
    assert_eq!(lied(&word(6, &[0])), Err(Poisoned));
    // Positions.
    for tail in [1, 7, 55, 57, 4097, 4104, u64::MAX] {
        assert_eq!(lied(&|d| d.t.tail.store(tail, Relaxed)), Err(Poisoned), "{tail}");
    }
    for head in [1, 8, 65, 4096, (1 << 62) - 8] {
        assert_eq!(lied(&|d| d.h.head.store(head, Relaxed)), Err(Poisoned), "{head}");
    }
    // The writer's side.
    let d = on_ring(0);
    let mut writer = Writer::new(&d, ring, 0);
    writer.push(&[], &[2; 40], u64::MAX).unwrap();
    for head in [3, 56, Head::new(0, Path::Kernel).raw()] {
        d.h.head.store(head, Relaxed);
        assert_eq!(writer.push(&[], &[1], u64::MAX), Err(Refused::Poisoned), "{head}");
    }
    for from in [1, 8, 40, 56, u64::MAX - 7] {
        assert_eq!(writer.again(from), Err(Poisoned), "{from}");
    }
}

/// Any octet of the ring and any word of the direction changes at any time: accesses stay inside the ring (`Watched`), no
/// datagram is longer than what lies between head and tail, and every call ends.
#[test]
fn whatever_another_writes_nothing_is_read_out_of_bounds() {
    let (mut found, mut poisoned) = (0, 0);
    for seed in 0..300 {
        let mut dice = Dice(seed);
        let ring = Watched(own_ring(4096).unwrap());
        let d = on_ring(0);
        let mut writer = Writer::new(&d, ring, 0);
        for _ in 0..200 {
            let n = dice.below(300) as usize;
            if writer.push(&[9; 16], &vec![7; n], 4096) == Err(Refused::Poisoned) {
                poisoned += 1;
            }
            writer.publish();
            let word = if dice.below(2) == 0 { &d.t.tail } else { &d.h.head };
            match dice.below(6) {
                0 => word.store(dice.roll() << 35 ^ dice.roll(), Relaxed),
                1 => word.store((writer.tail() + dice.below(64)).wrapping_sub(dice.below(64)), Relaxed),
                2 => ring.put(dice.below(4096), &dice.roll().to_ne_bytes()),
                3 => d.h.head.store(writer.tail().saturating_sub(8 * dice.below(512)), Relaxed),
                _ => {}
            }
            let reader = Reader::new(&d, ring);
            match reader.peek() {
                Ok(Found::Datagram(peeked)) => {
                    found += 1;
                    assert!((WORD..=4096).contains(&peeked.place.span()));
                    copy(&reader, &peeked);
                    reader.release(&peeked);
                }
                Err(Poisoned) => poisoned += 1,
                Ok(_) => {}
            }
            if dice.below(20) == 0 {
                let mut from = d.claim().unwrap_or(0);
                let mut records = 0;
                while let Ok(Some(place)) = writer.again(from) {
                    assert!(place.end() > from);
                    from = place.end();
                    records += 1;
                }
                assert!(records <= 4096 / WORD);
                d.h.head.store(writer.tail(), Relaxed);
                d.t.tail.store(writer.tail(), Relaxed);
            }
        }
    }
    assert!(found > 1000 && poisoned > 1000, "{found} {poisoned}");
}

/// The same while another thread writes.
#[test]
fn a_writer_that_lies_all_the_time_makes_nobody_wait() {
    let ring = Watched(own_ring(1 << 17).unwrap());
    let d = on_ring(0);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut dice = Dice(5);
            while !done.load(Relaxed) {
                let head = dice.below(1 << 20) & !7;
                d.h.head.store(head, Relaxed);
                d.t.tail.store(head + (dice.below(1 << 17) & !7), Relaxed);
                let octets = dice.below(1 << 17) as u32;
                let word = bypath_shm::dgram::Record { octets, head: 112, mark: bypath_shm::dgram::MARK };
                for at in 0..64 {
                    ring.put(head + at * 8, &word.encode());
                }
            }
        });
        let reader = Reader::new(&d, ring);
        let mut octets = vec![0; LONGEST];
        let mut found = 0;
        let mut looks = 0;
        while looks < 20_000 || (found == 0 && looks < 10_000_000) {
            looks += 1;
            if let Ok(Found::Datagram(peeked)) = reader.peek() {
                found += 1;
                assert!(peeked.place.len() <= LONGEST && peeked.place.head_len() <= HEADS);
                peeked.place.copy(reader.ring(), &mut octets);
                reader.release(&peeked);
            }
        }
        done.store(true, Relaxed);
        assert!(found > 0, "the liar was never believed: this test shows nothing");
    });
}
