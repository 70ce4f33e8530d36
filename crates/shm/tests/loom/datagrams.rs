//! Records of datagrams: whole, in order, each once.

use crate::{check, check_three, ring_head};
use bypath_shm::dgram::{Found, MARK, Octets, Reader, Record, Refused, Writer};
use bypath_shm::direction::{Direction, Readable};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU64, Ordering::Relaxed};
use loom::thread;

/// Octets of a ring: four words. A record of one word of datagram takes two.
const SIZE: u64 = 32;

fn words(position: u64, octets: usize) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    assert!(position.is_multiple_of(8) && octets.is_multiple_of(8) && octets as u64 <= SIZE);
    let first = (position / 8) as usize;
    (0..octets / 8).map(move |n| ((first + n) % 4, n * 8..n * 8 + 8))
}

pub fn word(octets: &[u8]) -> u64 {
    u64::from_ne_bytes(octets.try_into().expect("eight"))
}

/// Words as plain memory: loom fails on any copy out that is not ordered against a copy in.
pub struct Plain([UnsafeCell<u64>; 4]);

// SAFETY: loom checks every access.
unsafe impl Sync for Plain {}
// SAFETY: as above.
unsafe impl Send for Plain {}

impl Plain {
    pub fn new() -> Arc<Plain> {
        Arc::new(Plain([0; 4].map(|_| UnsafeCell::new(u64::MAX))))
    }
}

impl Octets for &Plain {
    fn size(&self) -> u64 {
        SIZE
    }

    fn put(&self, position: u64, from: &[u8]) {
        for (index, at) in words(position, from.len()) {
            // SAFETY: the pointer is valid; exclusivity is what loom checks.
            self.0[index].with_mut(|p| unsafe { *p = word(&from[at]) });
        }
    }

    fn get(&self, position: u64, to: &mut [u8]) {
        for (index, at) in words(position, to.len()) {
            // SAFETY: as in `put`.
            to[at].copy_from_slice(&self.0[index].with(|p| unsafe { *p }).to_ne_bytes());
        }
    }
}

/// Words that are written and read at once, as siblings do.
pub struct Racy([AtomicU64; 4]);

impl Racy {
    pub fn new() -> Arc<Racy> {
        Arc::new(Racy([0; 4].map(|_| AtomicU64::new(u64::MAX))))
    }
}

impl Octets for &Racy {
    fn size(&self) -> u64 {
        SIZE
    }

    fn put(&self, position: u64, from: &[u8]) {
        for (index, at) in words(position, from.len()) {
            self.0[index].store(word(&from[at]), Relaxed);
        }
    }

    fn get(&self, position: u64, to: &mut [u8]) {
        for (index, at) in words(position, to.len()) {
            to[at].copy_from_slice(&self.0[index].load(Relaxed).to_ne_bytes());
        }
    }
}

/// Offers datagrams `from..to`, each its own number, in `tries` tries; returns which is next.
fn write<O: Octets>(writer: &mut Writer<'_, O>, from: u64, to: u64, tries: usize) -> u64 {
    let mut next = from;
    for _ in 0..tries {
        if next == to {
            break;
        }
        match writer.push(&[], &next.to_ne_bytes(), SIZE) {
            Ok(()) => next += 1,
            Err(refused) => assert_eq!(refused, Refused::Full),
        }
        writer.publish();
    }
    next
}

/// Takes what it finds in `tries` tries.
fn read<O: Octets>(reader: &Reader<'_, O>, tries: usize) -> Vec<u64> {
    let mut got = Vec::new();
    for _ in 0..tries {
        match reader.peek().expect("no lies") {
            Found::Datagram(peeked) => {
                let mut octets = [0; 24];
                let n = peeked.place.copy(reader.ring(), &mut octets);
                if reader.release(&peeked) {
                    assert!(octets[8..n].iter().all(|octet| *octet == 0xff), "torn by a later write");
                    got.push(word(&octets[..8]));
                }
            }
            Found::Empty => {}
            Found::Kernel => break,
            Found::Drain(_) => panic!("nobody switches"),
        }
    }
    got
}

#[test]
fn datagrams_arrive_whole_and_in_order() {
    check(|| {
        let (d, ring) = (crate::on_ring(), Plain::new());
        let writer = {
            let (d, ring) = (d.clone(), ring.clone());
            thread::spawn(move || write(&mut Writer::new(&d, &*ring, 0), 0, 3, 3))
        };
        let reader = Reader::new(&d, &*ring);
        let mut got = read(&reader, 3);
        let sent = writer.join().unwrap();
        got.extend(read(&reader, 3));
        assert_eq!(got, (0..sent).collect::<Vec<_>>());
    });
}

#[test]
#[should_panic]
fn a_record_that_is_shown_before_it_is_whole_is_found() {
    check(|| {
        let (d, ring) = (crate::on_ring(), Plain::new());
        let writer = {
            let (d, ring) = (d.clone(), ring.clone());
            thread::spawn(move || {
                d.publish(16);
                Writer::new(&d, &*ring, 0).push(&[], &7u64.to_ne_bytes(), SIZE).unwrap();
            })
        };
        read(&Reader::new(&d, &*ring), 2);
        writer.join().unwrap();
    });
}

/// A claim stands between two records: what was taken and what is sent again are all, each once.
#[test]
fn a_claim_splits_between_two_datagrams() {
    check(|| {
        let (d, ring) = (crate::on_ring(), Plain::new());
        let mut writer = Writer::new(&d, &*ring, 0);
        assert_eq!(write(&mut writer, 0, 2, 2), 2);
        let reader = {
            let (d, ring) = (d.clone(), ring.clone());
            thread::spawn(move || read(&Reader::new(&d, &*ring), 3))
        };
        let sent = write(&mut writer, 2, 3, 1);
        let mut from = d.claim().expect("W alone claims");
        let mut again = Vec::new();
        while let Some(place) = writer.again(from).expect("no lies") {
            let mut octets = [0; 8];
            assert_eq!(place.copy(writer.ring(), &mut octets), 8);
            again.push(word(&octets));
            from = place.end();
        }
        let mut all = reader.join().unwrap();
        all.extend(again);
        assert_eq!(all, (0..sent).collect::<Vec<_>>());
    });
}

/// Two readers of one record and a writer which, once it was taken, writes a longer one over it: what stands now where a sibling
/// looked for a record is none.
fn siblings(read: fn(&Direction, &Racy) -> Vec<u64>) {
    check_three(move || {
        let (d, ring) = (crate::on_ring(), Racy::new());
        d.h.head.store(ring_head(16), Relaxed);
        assert_eq!(write(&mut Writer::new(&d, &*ring, 16), 0, 1, 1), 1);
        let reader = || {
            let (d, ring) = (d.clone(), ring.clone());
            thread::spawn(move || read(&d, &ring))
        };
        let both = [reader(), reader()];
        // Spawned last: loom finds what follows on a release only from where it runs first.
        let writer = {
            let (d, ring) = (d.clone(), ring.clone());
            thread::spawn(move || {
                let mut long = [0xff; 24];
                long[..8].copy_from_slice(&1u64.to_ne_bytes());
                let mut writer = Writer::new(&d, &*ring, 32);
                let sent = 1 + u64::from(writer.push(&[], &long, SIZE).is_ok());
                writer.publish();
                sent
            })
        };
        let mut all: Vec<u64> = both.into_iter().flat_map(|reader| reader.join().unwrap()).collect();
        let sent = writer.join().unwrap();
        all.extend(self::read(&Reader::new(&d, &*ring), 2));
        all.sort_unstable();
        assert_eq!(all, (0..sent).collect::<Vec<_>>());
    });
}

#[test]
fn siblings_take_each_datagram_once_and_no_record_that_was_written_over() {
    siblings(|d, ring| read(&Reader::new(d, ring), 1));
}

#[test]
#[should_panic(expected = "no record")]
fn a_sibling_that_does_not_look_at_the_head_again_is_found() {
    siblings(|d, ring| {
        let Readable::Ring { head, available: 1.. } = d.readable(SIZE).unwrap() else { return Vec::new() };
        let mut octets = [0; 16];
        ring.get(head.position(), &mut octets);
        assert_eq!(Record::decode(*octets.first_chunk().unwrap()).mark, MARK, "no record");
        if d.commit(head, 16) { vec![word(&octets[8..])] } else { Vec::new() }
    });
}
