//! Urgent octets, in both directions.

use super::super::urgent::UrgentError;
use super::*;
use proptest::prelude::*;
use std::collections::BTreeSet;

fn plain() -> Settings {
    Settings { timestamps: false, ..Settings::default() }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn urgently(pair: &mut Pair, side: usize, octets: &[u8]) {
    let end = pair.end(side);
    end.expect_more(false);
    assert_eq!(end.write(octets), octets.len());
    end.urge();
    pair.transmit(side);
}

fn write(pair: &mut Pair, side: usize, octets: &[u8]) {
    assert_eq!(pair.end(side).write(octets), octets.len());
    pair.transmit(side);
}

fn read(pair: &mut Pair, side: usize, most: usize) -> Vec<u8> {
    let mut room = std::vec![0; most];
    let n = pair.end(side).read(&mut room);
    room.truncate(n);
    room
}

fn peek(pair: &mut Pair, side: usize, most: usize) -> Vec<u8> {
    let mut room = std::vec![0; most];
    let n = pair.end(side).peek(&mut room);
    room.truncate(n);
    room
}

/// What stands there: octets to be read, octets before the mark, whether the urgent octet is there.
fn stands(pair: &mut Pair, side: usize) -> (usize, Option<usize>, bool) {
    let end = pair.end(side);
    (end.unread(), end.before_mark(), end.has_urgent())
}

/// A segment from the other side, `seq` octets behind the first one.
fn come(pair: &mut Pair, side: usize, flags: TcpFlags, seq: i32, urgent: u16, payload: &[u8]) {
    let mut header = TcpHeader::new(1, 2);
    let first = ISS[1 - side] + 1;
    header.seq = SeqNumber(first.0.wrapping_add(seq as u32));
    header.ack = pair.end(side).snd.nxt;
    (header.flags, header.urgent, header.window) = (flags | TcpFlags::ACK, urgent, 1000);
    pair.arrive(side, &Packet { header, payload: payload.to_vec(), ect: false, marked: false });
}

const URG: TcpFlags = TcpFlags::URG;

#[test]
fn an_urgent_octet_is_kept_apart_in_either_direction() {
    for side in 0..2 {
        let mut pair = Pair::open(plain(), Path::default(), 1);
        let from = pair.log.len();
        write(&mut pair, side, b"before");
        urgently(&mut pair, side, b"!");
        write(&mut pair, side, b"behind");
        pair.pass(ms(500));
        let urgent: Vec<_> = pair.log[from..].iter().filter(|(_, _, h, _)| h.flags.has(URG)).collect();
        assert!(urgent.iter().all(|(from, _, h, _)| *from == side && (1..=7).contains(&h.urgent)));
        assert!(!urgent.is_empty());
        let other = 1 - side;
        assert_eq!(stands(&mut pair, other), (12, Some(6), true));
        assert_eq!(peek(&mut pair, other, 100), b"before");
        assert_eq!(read(&mut pair, other, 4), b"befo");
        assert_eq!(read(&mut pair, other, 100), b"re");
        assert_eq!(stands(&mut pair, other), (6, Some(0), true));
        assert_eq!(pair.end(other).urgent_octet(true), Ok(b'!'));
        assert_eq!(pair.end(other).urgent_octet(false), Ok(b'!'));
        assert_eq!(pair.end(other).urgent_octet(false), Err(UrgentError::Nothing));
        assert_eq!(stands(&mut pair, other), (6, Some(0), false));
        assert_eq!(peek(&mut pair, other, 2), b"be");
        assert_eq!(stands(&mut pair, other), (6, Some(0), false));
        assert_eq!(read(&mut pair, other, 2), b"be");
        assert_eq!(stands(&mut pair, other), (4, None, false));
        assert_eq!(read(&mut pair, other, 100), b"hind");
        assert!(pair.ends.iter().flatten().all(|end| end.urgent.is_none()), "nothing is remembered");
    }
}

#[test]
fn octets_are_shown_where_they_lie_up_to_the_mark() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    write(&mut pair, 0, b"abc");
    urgently(&mut pair, 0, b"!");
    write(&mut pair, 0, b"def");
    pair.pass(ms(500));
    let mut seen: Vec<Vec<u8>> = Vec::new();
    for take in [2, 100, 1, 100] {
        pair.end(1).read_with(100, |octets| {
            seen.push(octets.to_vec());
            take
        });
    }
    assert_eq!(seen, [&b"abc"[..], b"c", b"def", b"ef"]);
}

#[test]
fn an_urgent_octet_that_nobody_read_apart_goes_when_it_is_passed() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    urgently(&mut pair, 0, b"!");
    pair.pass(ms(500));
    assert_eq!(stands(&mut pair, 1), (0, Some(0), true));
    assert_eq!(peek(&mut pair, 1, 9), b"");
    assert_eq!(stands(&mut pair, 1), (0, Some(0), true));
    assert_eq!(read(&mut pair, 1, 0), b"");
    assert_eq!(stands(&mut pair, 1), (0, Some(0), true), "nothing was asked for");
    assert_eq!(read(&mut pair, 1, 9), b"");
    assert_eq!(stands(&mut pair, 1), (0, None, false));
    assert_eq!(pair.end(1).urgent_octet(false), Err(UrgentError::Nothing));
}

#[test]
fn in_line_an_urgent_octet_is_read_in_its_place_and_ends_a_read_before_it() {
    let mut pair = Pair::open(Settings { urgent_inline: true, ..plain() }, Path::default(), 1);
    write(&mut pair, 0, b"ab");
    urgently(&mut pair, 0, b"!");
    write(&mut pair, 0, b"cd");
    pair.pass(ms(500));
    assert_eq!(stands(&mut pair, 1), (5, Some(2), true));
    assert_eq!(pair.end(1).urgent_octet(false), Err(UrgentError::Nothing));
    assert_eq!(peek(&mut pair, 1, 100), b"ab");
    assert_eq!(read(&mut pair, 1, 100), b"ab");
    assert_eq!(stands(&mut pair, 1), (3, Some(0), true));
    assert_eq!(peek(&mut pair, 1, 100), b"!cd");
    assert_eq!(read(&mut pair, 1, 100), b"!cd");
    assert_eq!(stands(&mut pair, 1), (0, None, false));
}

#[test]
fn an_urgent_octet_that_was_lost_comes_again_as_one() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    let number = pair.counts[0];
    pair.doomed[0] = std::vec![number];
    urgently(&mut pair, 0, b"abc!");
    write(&mut pair, 0, &[7; 1460]);
    pair.pass(ms(15));
    // The segment behind it tells nothing: urgent octets do not begin there, and are before it.
    assert_eq!(stands(&mut pair, 1), (0, None, false));
    pair.pass(Duration::from_secs(1));
    assert_eq!(stands(&mut pair, 1), (3 + 1460, Some(3), true));
    assert_eq!((read(&mut pair, 1, 9), pair.end(1).urgent_octet(false)), (b"abc".to_vec(), Ok(b'!')));
    assert_eq!(read(&mut pair, 1, 9999).len(), 1460);
}

#[test]
fn an_urgent_octet_beyond_a_gap_is_read_before_the_gap_is_filled() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    come(&mut pair, 1, URG, 10, 5, b"klmnopqrst");
    assert_eq!(stands(&mut pair, 1), (0, Some(14), true));
    assert_eq!(pair.end(1).urgent_octet(false), Ok(b'o'));
    come(&mut pair, 1, TcpFlags::default(), 0, 0, b"abcdefghij");
    assert_eq!(stands(&mut pair, 1), (19, Some(14), false));
    assert_eq!(read(&mut pair, 1, 99), b"abcdefghijklmn");
    assert_eq!(read(&mut pair, 1, 99), b"pqrst");
}

#[test]
fn an_octet_is_announced_before_it_comes() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    come(&mut pair, 1, URG, 0, 4, b"ab");
    assert_eq!(stands(&mut pair, 1), (2, Some(3), false));
    assert_eq!(pair.end(1).urgent_octet(false), Err(UrgentError::Awaited));
    assert_eq!(read(&mut pair, 1, 99), b"ab");
    come(&mut pair, 1, TcpFlags::default(), 2, 0, b"cd");
    assert_eq!(stands(&mut pair, 1), (1, Some(1), true));
    assert_eq!(pair.end(1).urgent_octet(false), Ok(b'd'));
    // One that comes a second time is not urgent a second time, nor is the mark moved back.
    come(&mut pair, 1, URG, 2, 2, b"cd");
    come(&mut pair, 1, URG, 0, 1, b"abcd");
    assert_eq!(stands(&mut pair, 1), (1, Some(1), false));
    assert_eq!(pair.end(1).urgent_octet(false), Err(UrgentError::Nothing));
    assert_eq!(read(&mut pair, 1, 99), b"c");
    come(&mut pair, 1, TcpFlags::default(), 4, 0, b"e");
    assert_eq!(read(&mut pair, 1, 99), b"e");
}

#[test]
fn of_two_urgent_octets_the_first_is_one_of_the_stream_unless_it_was_next() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    write(&mut pair, 0, b"ab");
    urgently(&mut pair, 0, b"X");
    pair.pass(ms(500));
    urgently(&mut pair, 0, b"Y");
    pair.pass(ms(500));
    assert_eq!(stands(&mut pair, 1), (3, Some(3), true));
    assert_eq!(read(&mut pair, 1, 99), b"abX");
    assert_eq!(pair.end(1).urgent_octet(false), Ok(b'Y'));
    assert_eq!(read(&mut pair, 1, 99), b"");
    for reads in [false, true] {
        urgently(&mut pair, 0, b"X");
        pair.pass(ms(500));
        if reads {
            assert_eq!(pair.end(1).urgent_octet(false), Ok(b'X'));
        }
        urgently(&mut pair, 0, b"Y");
        pair.pass(ms(500));
        assert_eq!(stands(&mut pair, 1), (0, Some(0), true));
        assert_eq!(pair.end(1).urgent_octet(false), Ok(b'Y'));
        write(&mut pair, 0, b"z");
        pair.pass(ms(500));
        assert_eq!(read(&mut pair, 1, 99), b"z");
    }
}

#[test]
fn urgent_octets_come_with_the_end_and_with_the_beginning() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    pair.end(0).write(b"ab!");
    pair.end(0).urge();
    pair.end(0).finish();
    let from = pair.log.len();
    pair.pass(ms(500));
    let (_, _, header, _) = pair.log[from];
    assert!(header.flags.has(URG | TcpFlags::FIN) && header.urgent == 3, "{header:?}");
    assert_eq!(stands(&mut pair, 1), (2, Some(2), true));
    assert_eq!(read(&mut pair, 1, 99), b"ab");
    assert!(pair.end(1).is_at_end(), "all that is left is kept apart");
    assert_eq!(pair.end(1).urgent_octet(false), Ok(b'!'));
    assert_eq!(read(&mut pair, 1, 99), b"");
    assert_eq!(stands(&mut pair, 1), (0, None, false));
    // Behind a FIN there is nothing (RFC 9293, 3.10.7.4).
    come(&mut pair, 1, URG, 4, 9, b"");
    assert_eq!(stands(&mut pair, 1), (0, None, false));

    // With a SYN, the pointer is one behind that.
    let mut pair = Pair::new(plain(), Path::default(), 1);
    pair.transmit(0);
    come(&mut pair, 0, URG | TcpFlags::SYN, -1, 3, b"a!b");
    assert_eq!(stands(&mut pair, 0), (2, Some(1), true));
    assert_eq!(pair.end(0).urgent_octet(false), Ok(b'!'));
    assert_eq!((read(&mut pair, 0, 9), read(&mut pair, 0, 9)), (b"a".to_vec(), b"b".to_vec()));
}

#[test]
fn pointers_that_point_at_nothing_do_nothing() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    come(&mut pair, 1, TcpFlags::default(), 0, 0, b"abcd");
    // Before what comes; and beyond every window.
    for (seq, urgent) in [(0, 1), (0, 4), (-1, 1)] {
        come(&mut pair, 1, URG, seq, urgent, b"abcd");
        assert_eq!(stands(&mut pair, 1), (4, None, false), "{seq} {urgent}");
    }
    // 0 and 1 are the same: the first octet.
    come(&mut pair, 1, URG, 4, 0, b"e");
    assert_eq!((stands(&mut pair, 1), read(&mut pair, 1, 9)), ((4, Some(4), true), b"abcd".to_vec()));
    come(&mut pair, 1, URG, 5, 0xffff, b"fg");
    assert_eq!(stands(&mut pair, 1), (2, Some(0xfffe), false));
    assert_eq!(read(&mut pair, 1, 9), b"fg");
    // Without URG a pointer is none.
    come(&mut pair, 1, TcpFlags::default(), 7, 0xffff, b"h");
    assert_eq!(stands(&mut pair, 1), (1, Some(0xfffc), false));
}

#[test]
fn an_urgent_octet_beyond_the_window_comes_when_there_is_room() {
    let settings = Settings { receive_octets: 3000, tune_receive: false, ..plain() };
    let mut pair = Pair::open(settings, Path::default(), 1);
    let first: Vec<u8> = (0..3010).map(|n| n as u8).collect();
    come(&mut pair, 1, URG, 0, 3006, &first);
    let promised = pair.end(1).unread();
    assert!(promised <= 3000);
    assert_eq!(stands(&mut pair, 1), (promised, Some(3005), false));
    assert_eq!(read(&mut pair, 1, 5000), first[..promised]);
    pair.transmit(1);
    come(&mut pair, 1, URG, promised as i32, (3006 - promised) as u16, &first[promised..]);
    assert_eq!(pair.end(1).urgent_octet(false), Ok(first[3005]));
    assert_eq!(read(&mut pair, 1, 5000), first[promised..3005]);
    assert_eq!(read(&mut pair, 1, 5000), first[3006..]);
}

#[test]
fn what_is_urgent_does_not_wait_for_more() {
    let mut pair = Pair::open(Settings { cork: true, ..plain() }, Path::default(), 1);
    let from = pair.log.len();
    write(&mut pair, 0, b"ab");
    assert_eq!(pair.log.len(), from);
    urgently(&mut pair, 0, b"!");
    write(&mut pair, 0, b"cd");
    assert_eq!(pair.said(from), ["0 P.U 1+3 ack 1", "0 P. 4+2 ack 1"]);
    pair.pass(ms(500));
    write(&mut pair, 0, b"ef");
    assert_eq!(pair.log.len(), from + 3, "{:?}", pair.said(from));
}

#[test]
fn segments_up_to_an_urgent_octet_tell_how_far_it_is_and_are_not_cut_by_others() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    // Windows grow first.
    pair.transfer(0, 3_000_000, Duration::from_secs(60));
    pair.pass(Duration::from_secs(1));
    let from = pair.log.len();
    let before = pair.end(0).snd.nxt;
    pair.most = 64_000;
    write(&mut pair, 0, &[1; 1460]);
    urgently(&mut pair, 0, &[2; 146_000]);
    pair.pass(ms(500));
    let up = before + 147_460;
    let mut told = BTreeSet::new();
    for (_, _, header, len) in pair.log[from..].iter().filter(|(side, _, _, len)| *side == 0 && *len > 0) {
        let ahead = up.since(header.seq);
        let urgent = header.flags.has(URG);
        told.insert((urgent, urgent && header.urgent != 0xffff));
        // The first one went before anything was urgent.
        if header.seq == before {
            assert!(!urgent);
        } else {
            assert!(urgent && u32::from(header.urgent) == ahead.min(0xffff), "{header:?} {ahead}");
        }
        assert!(*len <= 1460);
    }
    assert_eq!(told, BTreeSet::from([(false, false), (true, false), (true, true)]));
    let read: usize = core::iter::from_fn(|| Some(read(&mut pair, 1, 99_999).len()).filter(|n| *n > 0)).sum();
    assert_eq!(read, 147_459);
}

#[test]
fn an_urgent_octet_behind_a_closed_window_is_told_of() {
    let settings = Settings { receive_octets: 3000, tune_receive: false, ..plain() };
    let mut pair = Pair::open(settings, Path::default(), 1);
    write(&mut pair, 0, &[1; 3000]);
    pair.pass(Duration::from_secs(3));
    let unread = pair.end(1).unread();
    urgently(&mut pair, 0, b"ab!");
    let from = pair.log.len();
    pair.pass(Duration::from_secs(20));
    let ahead = 3003 - unread;
    assert_eq!(stands(&mut pair, 1), (unread, Some(unread + ahead - 1), false));
    assert_eq!(pair.end(1).urgent_octet(false), Err(UrgentError::Awaited));
    // Each probe is two: one that tells, and one that asks.
    let probes: Vec<_> = pair.log[from..].iter().filter(|(side, ..)| *side == 0).collect();
    assert!(probes.len() >= 4 && probes.len() % 2 == 0, "{:?}", pair.said(from));
    for two in probes.chunks(2) {
        let (tells, asks) = (two[0].2, two[1].2);
        assert_eq!((two[0].1, two[0].3, two[1].3), (two[1].1, 0, 0));
        assert!(tells.seq == asks.seq + 1 && tells.flags.has(URG) && usize::from(tells.urgent) == ahead);
    }
    while pair.end(1).unread() > 0 || pair.end(1).before_mark() != Some(0) {
        read(&mut pair, 1, 9999);
        pair.pass(Duration::from_secs(2));
    }
    assert_eq!(pair.end(1).urgent_octet(false), Ok(b'!'));
}

#[test]
fn an_urgent_octet_that_will_not_come_is_not_waited_for() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    come(&mut pair, 1, URG, 0, 9, b"a");
    come(&mut pair, 1, TcpFlags::FIN, 1, 0, b"");
    assert_eq!(pair.end(1).urgent_octet(false), Err(UrgentError::Finished));
    let mut pair = Pair::open(plain(), Path::default(), 1);
    come(&mut pair, 1, URG, 0, 1, b"!a");
    come(&mut pair, 1, TcpFlags::RST, 2, 0, b"");
    assert!(pair.is(1, State::Closed));
    assert_eq!(stands(&mut pair, 1), (1, Some(0), true));
    assert_eq!(pair.end(1).urgent_octet(false), Err(UrgentError::NotConnected));
    assert_eq!(read(&mut pair, 1, 9), b"a");
}

#[test]
fn who_closes_without_having_passed_an_urgent_octet_resets() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    urgently(&mut pair, 0, b"!");
    pair.pass(ms(500));
    assert_eq!(pair.end(1).urgent_octet(false), Ok(b'!'));
    pair.end(1).close();
    pair.pass(ms(500));
    assert!(pair.is(0, State::Closed), "{:?}", pair.ends[0]);
}

fn pattern(at: u32) -> u8 {
    (at.wrapping_mul(7) ^ at >> 8) as u8
}

/// What a reader got of a stream.
#[derive(Default)]
struct Reader {
    at: u32,
    octets: u32,
    left_out: u32,
    apart: u32,
}

impl Reader {
    /// Reads; the octets are those of their places, and none but those that are urgent are left out.
    fn read(&mut self, pair: &mut Pair, urgent: &BTreeSet<u32>, most: usize, apart: bool) {
        let end = pair.end(1);
        let place = |seq: SeqNumber| seq.since(ISS[0] + 1);
        let mark = end.before_mark().map(|n| place(end.next_unread() + n as u32));
        assert!(mark.is_none_or(|mark| urgent.contains(&mark)), "{mark:?} is marked of {urgent:?}");
        if apart && let Ok(octet) = end.urgent_octet(false) {
            assert_eq!(Some(octet), mark.map(pattern));
            self.apart += 1;
        }
        let begin = place(end.next_unread());
        let mut octets = std::vec![0; most];
        let n = end.read(&mut octets) as u32;
        // One is left out before the others, or none.
        let skipped = place(end.next_unread()) - begin - n;
        assert!(skipped == 0 || skipped == 1 && mark == Some(begin), "{skipped} at {begin}, {mark:?}");
        assert!((0..n).all(|k| octets[k as usize] == pattern(begin + skipped + k)), "from {begin} on");
        assert!(mark.is_none_or(|mark| mark <= begin || begin + n <= mark), "beyond the mark");
        // Those that are next when another one is announced are left out, too.
        assert!((self.at..begin + skipped).all(|octet| urgent.contains(&octet)), "of {urgent:?}");
        self.left_out += begin + skipped - self.at;
        self.octets += n;
        self.at = begin + skipped + n;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// What is written is read, but for urgent octets, each of which is left out or not; whatever a path does.
    #[test]
    fn nothing_but_urgent_octets_is_left_out(
        seed in any::<u8>(),
        loss in 0..200u32,
        twice in 0..200u32,
        jitter in 0..20u64,
        room in prop_oneof![Just(4000usize), Just(100_000)],
        steps in prop::collection::vec((0..5u8, 1..3000usize, 0..40u64, any::<bool>()), 1..60),
    ) {
        let settings = Settings { receive_octets: room, tune_receive: false, ..Settings::default() };
        let path = Path { loss, twice, jitter: ms(jitter), ..Path::default() };
        let mut pair = Pair::open(settings, path, seed);
        let (mut written, mut urgent) = (0u32, BTreeSet::new());
        let mut reader = Reader::default();
        for (what, len, wait, apart) in steps {
            if what < 4 {
                let octets: Vec<u8> = (written..written + len as u32).map(pattern).collect();
                let n = pair.end(0).write(&octets[..if what < 2 { len } else { len.min(5) }]) as u32;
                written += n;
                if what % 2 == 1 && n > 0 {
                    pair.end(0).urge();
                    urgent.insert(written - 1);
                }
            } else {
                reader.read(&mut pair, &urgent, len, apart);
            }
            pair.pass(ms(wait));
        }
        pair.end(0).finish();
        let until = pair.now + Duration::from_secs(3600);
        while !pair.end(1).is_at_end() {
            reader.read(&mut pair, &urgent, 1000, false);
            prop_assert!(pair.step() || pair.end(1).is_at_end() || pair.end(1).unread() > 0);
            prop_assert!(pair.now < until, "{:?}", pair.ends);
        }
        reader.read(&mut pair, &urgent, 1000, false);
        prop_assert_eq!(reader.octets + reader.left_out, written);
        prop_assert!(reader.left_out as usize <= urgent.len() && reader.apart as usize <= urgent.len());
        prop_assert_eq!(pair.end(1).before_mark(), None);
        prop_assert_eq!(pair.end(1).counts.received, u64::from(written));
    }
}
