//! How connections begin and end.

use super::super::clock::TIME_WAIT;
use super::super::tcb::{Failure, Keepalive};
use super::*;

fn plain() -> Settings {
    Settings { timestamps: false, ..Settings::default() }
}

#[test]
fn a_handshake_takes_three_segments() {
    let pair = Pair::open(plain(), Path::default(), 1);
    assert_eq!(pair.said(0), ["0 S 0+0 ack 0", "1 S. 0+0 ack 1", "0 . 1+0 ack 1"]);
    let options = pair.log[0].2.options.known();
    assert_eq!((options.mss, options.window_scale, options.sack_permitted), (Some(1460), Some(7), true));
}

#[test]
fn a_syn_has_its_options_in_the_order_of_linux() {
    let pair = Pair::open(Settings::default(), Path::default(), 1);
    let kinds: Vec<u8> = {
        let octets = pair.log[0].2.options.as_bytes();
        let mut at = 0;
        core::iter::from_fn(|| {
            let kind = *octets.get(at)?;
            at += if kind < 2 { 1 } else { octets[at + 1] as usize };
            Some(kind)
        })
        .collect()
    };
    // MSS, SACK permitted, timestamps, padding, scale.
    assert_eq!(kinds, [2, 4, 8, 1, 3]);
    assert_eq!(pair.log[0].2.options.as_bytes().len(), 20);
}

#[test]
fn both_may_call_each_other_at_once() {
    let mut pair = Pair::new(plain(), Path::default(), 1);
    let now = pair.now;
    pair.ends[1] = Some(Connection::connect(now, plain(), ISS[1], 0));
    let until = now + Duration::from_secs(5);
    assert!(
        pair.until(until, |p| p.is(0, State::Established) && p.is(1, State::Established)),
        "{:?}",
        pair.said(0)
    );
    pair.transfer(0, 5000, Duration::from_secs(5));
    pair.transfer(1, 5000, Duration::from_secs(5));
}

#[test]
fn octets_for_who_finished_and_reads_no_more_end_it_with_an_error() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    pair.end(1).write(b"in time");
    pair.end(0).finish();
    pair.pass(Duration::from_secs(1));
    assert!(pair.is(0, State::FinWait2), "{:?}", pair.ends[0]);
    pair.end(0).deaf = true;
    pair.end(1).write(b"late");
    pair.pass(Duration::from_secs(1));
    assert!(pair.is(0, State::Closed) && pair.is(1, State::Closed), "{:?}", pair.ends);
    assert_eq!(pair.end(0).take_failure(), Some(Failure::Reset));
    let mut room = [0; 9];
    assert_eq!((pair.end(0).read(&mut room), &room[..7]), (7, &b"in time"[..]));
}

#[test]
fn who_finishes_first_waits_out_what_is_under_way() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    let from = pair.log.len();
    pair.end(0).write(b"bye");
    pair.end(0).close();
    pair.pass(Duration::from_secs(1));
    assert!(pair.is(0, State::FinWait2) && pair.is(1, State::CloseWait), "{:?}", pair.said(from));
    let mut room = [0; 9];
    assert_eq!((pair.end(1).read(&mut room), pair.end(1).is_at_end()), (3, true));
    pair.end(1).close();
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.said(from), ["0 FP. 1+3 ack 1", "1 . 1+0 ack 5", "1 F. 1+0 ack 5", "0 . 5+0 ack 2"]);
    assert!(pair.is(0, State::TimeWait) && pair.is(1, State::Closed));
    pair.pass(TIME_WAIT);
    assert!(pair.is(0, State::Closed));
    assert_eq!((pair.end(0).take_failure(), pair.end(1).take_failure()), (None, None));
}

#[test]
fn both_may_finish_at_once() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    pair.end(0).close();
    pair.end(1).close();
    pair.pass(Duration::from_secs(1));
    assert!(pair.is(0, State::TimeWait) && pair.is(1, State::TimeWait), "{:?}", pair.said(0));
}

#[test]
fn a_lost_syn_or_fin_is_sent_again() {
    for (side, number) in [(0, 0), (1, 0), (0, 1), (0, 2), (1, 1)] {
        let mut pair = Pair::new(plain(), Path::default(), 1);
        pair.doomed[side] = std::vec![number];
        let until = pair.now + Duration::from_secs(20);
        assert!(pair.until(until, |p| p.is(0, State::Established)), "{:?}", pair.said(0));
        pair.end(0).close();
        assert!(pair.until(until, |p| p.is(1, State::CloseWait)), "{side} {number}: {:?}", pair.said(0));
        pair.end(1).close();
        let until = pair.now + Duration::from_secs(20);
        assert!(pair.until(until, |p| p.is(1, State::Closed)), "{side} {number}: {:?}", pair.said(0));
    }
}

#[test]
fn who_is_not_answered_gives_up() {
    let mut pair = Pair::new(plain(), Path { loss: 1000, ..Path::default() }, 1);
    let until = pair.now + Duration::from_secs(500);
    assert!(pair.until(until, |p| p.is(0, State::Closed)));
    assert_eq!(pair.end(0).take_failure(), Some(Failure::TimedOut));
    // 1, 2, 4, 8, 16, 32, 64 s.
    assert_eq!((pair.log.len(), pair.now.since(pair.log[0].1)), (7, Duration::from_secs(127)));
}

#[test]
fn octets_that_are_never_acknowledged_end_it() {
    let mut settings = Settings::default();
    let patience = Duration::from_secs(1200);
    for (user_timeout, least, most) in [(None, 900, 1100), (Some(Duration::from_secs(20)), 20, 40)] {
        settings.user_timeout = user_timeout;
        let mut pair = Pair::open(settings, Path::default(), 1);
        pair.paths = [Path { loss: 1000, ..Path::default() }; 2];
        let begin = pair.now;
        pair.end(0).write(b"hello?");
        let until = begin + patience;
        assert!(pair.until(until, |p| p.is(0, State::Closed)));
        assert_eq!(pair.end(0).take_failure(), Some(Failure::TimedOut));
        let took = pair.now.since(begin).as_secs();
        assert!((least..most).contains(&took), "{took} s");
    }
}

#[test]
fn a_reset_counts_if_its_number_is_exactly_the_next() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    let mut header = TcpHeader::new(2, 1);
    header.flags = TcpFlags::RST;
    for (distance, closes) in [(1, false), (60_000, false), (0, true)] {
        header.seq = ISS[1] + 1 + distance;
        let before = pair.log.len();
        pair.arrive(0, &Packet { header, payload: Vec::new(), ect: false, marked: false });
        assert_eq!(pair.is(0, State::Closed), closes, "{distance}");
        pair.transmit(0);
        // RFC 5961, 3.2: the first one is asked about, those that follow at once are not.
        assert_eq!(pair.log.len() - before, usize::from(distance == 1), "{distance}");
    }
    assert_eq!(pair.end(0).take_failure(), Some(Failure::Reset));
}

#[test]
fn a_syn_in_the_middle_is_asked_about() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    let mut header = TcpHeader::new(2, 1);
    (header.flags, header.seq) = (TcpFlags::SYN, ISS[1] + 1);
    let before = pair.log.len();
    pair.arrive(0, &Packet { header, payload: Vec::new(), ect: false, marked: false });
    pair.transmit(0);
    assert_eq!(pair.said(before), ["0 . 1+0 ack 1"]);
    assert!(pair.is(0, State::Established));
}

#[test]
fn unread_octets_make_a_close_a_reset() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    pair.end(0).write(b"unread");
    pair.pass(Duration::from_secs(1));
    pair.end(1).close();
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.end(0).take_failure(), Some(Failure::Reset));
    // Octets for who does not read any more, too.
    let mut pair = Pair::open(plain(), Path::default(), 1);
    pair.end(1).close();
    pair.pass(Duration::from_secs(1));
    pair.end(0).write(b"late");
    pair.pass(Duration::from_secs(1));
    assert_eq!(pair.end(0).take_failure(), Some(Failure::Reset));
}

#[test]
fn silence_is_looked_into() {
    let keepalive = Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10), probes: 3 };
    let settings = Settings { keepalive: Some(keepalive), ..Settings::default() };
    let mut pair = Pair::open(settings, Path::default(), 1);
    pair.pass(Duration::from_secs(600));
    assert!(pair.is(0, State::Established) && pair.is(1, State::Established));
    pair.paths = [Path { loss: 1000, ..Path::default() }; 2];
    pair.pass(Duration::from_secs(200));
    assert_eq!(pair.end(0).take_failure(), Some(Failure::TimedOut));
}
