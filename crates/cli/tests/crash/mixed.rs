//! A writer under Bypath, on the ring, and one without it, at the same time, to one reader: each one's datagrams come in its order, none twice, and
//! what does not come was dropped at a full queue, and counted there.

use crate::floods::{ends, floods, lost};
use crate::mailbox::{Reader, Seen, Writer, has_all, meet, numbers, until};
use crate::program::Place;

/// Datagrams that are read while both send as fast as they can.
const SOME: u64 = 30_000;
/// More than any queue or mailbox has room for.
const MANY: u64 = 4_000;
/// As many as fit into both.
const FEW: u64 = 100;

/// Without the library.
const PLAIN: &[(&str, &str)] = &[("LD_PRELOAD", "")];

/// A reader, a writer that goes to it by the ring, and one that goes there as if there were none.
struct Mixed {
    reader: Reader,
    ring: Writer,
    plain: Writer,
}

impl Mixed {
    fn start(place: &Place, how: &str) -> Mixed {
        let mut reader = Reader::start(place, "reader", 0, "kept", &[]);
        let mut ring = Writer::start(place, 0, reader.port, how, &[]);
        let plain = Writer::start(place, 1, reader.port, how, PLAIN);
        meet(&mut reader, &mut ring);
        assert!(!place.path("writer1.stats").exists(), "the plain one has counters");
        Mixed { reader, ring, plain }
    }

    /// What has not come was dropped, by the kernel at the queue or by the writer at the mailbox; how much was.
    #[track_caller]
    fn is_told(&mut self) -> u64 {
        while self.reader.looks() > 0 {}
        self.reader.program.tell("drops");
        let [drops] = numbers(&mut self.reader.program, "drops");
        let dropped = drops + lost(&self.ring);
        let [of_ring, of_plain] = [self.reader.seen(0), self.reader.seen(1)];
        for Seen { twice, disorder, damaged, .. } in [of_ring, of_plain] {
            assert_eq!((twice, disorder, damaged), (0, 0, 0), "{of_ring:?} {of_plain:?}");
        }
        let (sent, received) = (self.ring.sent + self.plain.sent, of_ring.received + of_plain.received);
        assert_eq!(received + dropped, sent, "{of_ring:?} {of_plain:?}, {drops} dropped by the kernel");
        dropped
    }

    #[track_caller]
    fn finish(self) {
        self.ring.program.finish();
        self.plain.program.finish();
        self.reader.program.finish();
    }
}

#[track_caller]
fn at_once(how: &str) {
    let place = Place::new();
    let mut mixed = Mixed::start(&place, how);
    let before = mixed.ring.by_ring();
    // Again and again there is nothing more, so that the gate is open as both begin.
    until("the ring is used beside the kernel", || {
        let Mixed { reader, ring, plain } = &mut mixed;
        plain.program.tell(&format!("send {FEW}"));
        ring.program.tell(&format!("send {FEW}"));
        reader.looks();
        plain.has_sent();
        ring.has_sent();
        while reader.looks() > 0 {}
        ring.by_ring() > before + 64 * FEW
    });
    mixed.is_told();
    // And without an end to it, whatever goes where.
    let Mixed { reader, ring, plain } = &mut mixed;
    floods(plain);
    floods(ring);
    reader.program.tell(&format!("take {SOME}"));
    reader.program.expect("got");
    ends(ring);
    ends(plain);
    mixed.is_told();
    assert!(mixed.reader.seen(1).received > 1, "nothing came of the plain one");
    mixed.finish();
}

#[test]
fn a_plain_sender_and_one_on_the_ring_to_a_reader_that_is_not_connected() {
    for how in ["bound", "connected", "everywhere"] {
        at_once(how);
    }
}

#[test]
fn a_reader_connected_to_one_of_them_hears_that_one_alone() {
    let place = Place::new();
    let mut mixed = Mixed::start(&place, "bound");
    mixed.plain.sends(FEW);
    let Mixed { reader, ring, plain } = &mut mixed;
    has_all(reader, ring, 0);
    has_all(reader, plain, 0);

    reader.program.tell(&format!("connect {}", ring.port));
    reader.program.expect("connected");
    meet(reader, ring);
    let before = ring.by_ring();
    until("it is on the ring beside one who is not heard", || {
        floods(plain);
        for _ in 0..20 {
            ring.sends(FEW);
            has_all(reader, ring, 0);
        }
        ends(plain);
        ring.by_ring() > before + 64 * FEW
    });
    while reader.looks() > 0 {}
    assert_eq!(reader.seen(1).received, 1 + FEW);

    reader.program.tell(&format!("connect {}", plain.port));
    reader.program.expect("connected");
    let (of_ring, of_plain) = (reader.seen(0), plain.sent);
    floods(ring);
    for _ in 0..20 {
        plain.sends(FEW);
        let heard = plain.sent - of_plain + 1 + FEW;
        until("all of the plain one come", || {
            reader.looks();
            reader.seen(1).received == heard
        });
    }
    ends(ring);
    while reader.looks() > 0 {}
    assert_eq!(reader.seen(0), of_ring, "the reader is connected to the other one");
    let of_plain = reader.seen(1);
    assert_eq!((of_plain.twice, of_plain.disorder, of_plain.damaged), (0, 0, 0));
    mixed.finish();
}

#[test]
fn what_a_full_queue_drops_of_both_is_counted() {
    let place = Place::new();
    let mut mixed = Mixed::start(&place, "bound");
    let before = mixed.ring.by_ring();
    until("both are full, and one of them is the ring", || {
        // Nobody reads, and the gate is as the last look has left it.
        while mixed.reader.looks() > 0 {}
        mixed.plain.program.tell(&format!("send {MANY}"));
        mixed.ring.program.tell(&format!("send {MANY}"));
        mixed.plain.has_sent();
        mixed.ring.has_sent();
        mixed.ring.by_ring() > before && lost(&mixed.ring) > 0
    });
    let dropped = mixed.is_told();
    assert!(dropped > lost(&mixed.ring), "the kernel has dropped nothing");
    // Those who find room again are heard.
    for _ in 0..20 {
        mixed.plain.sends(FEW / 2);
        mixed.ring.sends(FEW / 2);
        while mixed.reader.looks() > 0 {}
    }
    assert_eq!(mixed.is_told(), dropped);
    mixed.finish();
}
