//! What Linux does where RFCs leave it open, as seen on the wire.

use super::*;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn plain() -> Settings {
    Settings { timestamps: false, ..Settings::default() }
}

/// A pair whose caller has sent octets and had them acknowledged, on a path of 100 ms.
fn measured(settings: Settings) -> Pair {
    let path = Path { delay: ms(50), ..Path::default() };
    let mut pair = Pair::open(settings, path, 1);
    pair.transfer(0, 1000, Duration::from_secs(5));
    pair.pass(Duration::from_secs(2));
    pair
}

/// When a side sent, and what, in milliseconds since then.
fn times(pair: &Pair, from: usize, side: usize, since: Instant) -> Vec<(u64, usize)> {
    let all = pair.log[from..].iter().filter(|(who, ..)| *who == side);
    all.map(|(_, at, _, len)| (at.since(since).as_millis() as u64, *len)).collect()
}

#[test]
fn without_timestamps_sack_stands_before_the_scale() {
    let mut pair = Pair::new(plain(), Path::default(), 1);
    pair.transmit(0);
    let options = pair.log[0].2.options;
    let kinds = options.padded().to_vec();
    assert_eq!(kinds, [2, 4, 5, 180, 1, 1, 4, 2, 1, 3, 3, 7]);
}

#[test]
fn the_end_of_what_is_cut_in_one_go_is_pushed() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    pair.most = 64_000;
    let from = pair.log.len();
    pair.end(0).write(&[1; 20_000]);
    pair.transmit(0);
    // The window takes ten segments, half of it at once.
    for (n, said) in pair.said(from).iter().enumerate() {
        assert!(said.starts_with(if n % 5 == 4 { "0 P." } else { "0 . " }), "{:?}", pair.said(from));
    }
    assert_eq!(pair.log.len() - from, 10);
}

#[test]
fn what_is_followed_by_more_waits_for_it_or_for_a_word_of_the_other_side() {
    let settings = Settings { nodelay: true, ..plain() };
    let mut pair = measured(settings);
    let (from, begin) = (pair.log.len(), pair.now);
    pair.end(0).expect_more(true);
    pair.end(0).write(&[1; 40]);
    pair.pass(ms(50));
    assert_eq!(pair.log.len(), from);
    pair.end(0).expect_more(false);
    pair.end(0).write(&[1; 40]);
    pair.pass(ms(1));
    assert_eq!(times(&pair, from, 0, begin), [(50, 80)]);
    pair.pass(ms(500));
    // Nothing follows: it goes after the time for which an acknowledgement is waited for.
    let (from, begin) = (pair.log.len(), pair.now);
    pair.end(0).expect_more(true);
    pair.end(0).write(&[1; 40]);
    pair.pass(ms(900));
    assert_eq!(times(&pair, from, 0, begin)[0], (300, 40));
    // A full segment goes, and what it leaves over does when that is acknowledged, not pushed.
    let (from, begin) = (pair.log.len(), pair.now);
    pair.end(0).expect_more(true);
    pair.end(0).write(&[1; 1500]);
    pair.pass(ms(900));
    assert_eq!(times(&pair, from, 0, begin), [(0, 1460), (100, 40)]);
    assert!(pair.said(from)[2].starts_with("0 . "), "{:?}", pair.said(from));
}

#[test]
fn what_is_corked_goes_when_it_is_pushed() {
    let mut pair = measured(Settings { cork: true, ..plain() });
    let from = pair.log.len();
    pair.end(0).write(&[1; 40]);
    pair.pass(ms(50));
    assert_eq!(pair.log.len(), from);
    let now = pair.now;
    let settings = Settings { cork: true, nodelay: true, ..plain() };
    pair.end(0).set_settings(now, settings);
    pair.pass(ms(1));
    assert_eq!(pair.log.len() - from, 1);
    // What is written later waits again.
    pair.pass(ms(300));
    let from = pair.log.len();
    pair.end(0).expect_more(false);
    pair.end(0).write(&[1; 40]);
    pair.pass(ms(50));
    assert_eq!(pair.log.len(), from);
}

#[test]
fn a_reset_of_our_own_has_timestamps() {
    let mut pair = measured(Settings::default());
    pair.end(0).abort();
    let from = pair.log.len();
    pair.transmit(0);
    let header = pair.log[from].2;
    assert!(header.flags.has(TcpFlags::RST) && header.options.known().timestamps.is_some(), "{header:?}");
}

#[test]
fn octets_for_who_has_left_are_answered_with_a_reset_that_counts() {
    let mut pair = measured(plain());
    // Our FIN is lost: its number is not one that the other side expects.
    pair.doomed[0] = std::vec![pair.counts[0]];
    pair.end(0).close();
    pair.pass(ms(10));
    pair.end(1).write(b"anybody there?");
    pair.pass(ms(60));
    assert!(pair.is(0, State::Closed));
    pair.pass(ms(60));
    assert!(pair.is(1, State::Closed), "{:?}", pair.ends[1]);
}

#[test]
fn a_probe_comes_in_place_of_the_first_time_out_and_one_only() {
    let mut pair = measured(plain());
    pair.doomed[0] = (0..4).map(|n| pair.counts[0] + n).collect();
    let (from, begin) = (pair.log.len(), pair.now);
    pair.end(0).finish();
    pair.pass(ms(1600));
    let sent = times(&pair, from, 0, begin);
    assert_eq!(sent.iter().map(|(at, _)| *at).collect::<Vec<_>>(), [0, 300, 600, 1200]);
}

#[test]
fn who_finishes_or_was_silent_has_not_answered() {
    let mut pair = measured(plain());
    pair.end(0).finish();
    pair.pass(ms(300));
    let (from, begin) = (pair.log.len(), pair.now);
    pair.end(1).write(&[1; 1000]);
    pair.pass(ms(300));
    assert_eq!(times(&pair, from, 0, begin)[0], (50, 0), "at once");
}

#[test]
fn slow_start_grows_by_all_that_is_acknowledged() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    pair.most = 64_000;
    pair.end(0).write(&[1; 100_000]);
    pair.transmit(0);
    // One answer to ten segments.
    pair.under_way[0].clear();
    let header = {
        let mut header = TcpHeader::new(2, 1);
        (header.seq, header.ack) = (ISS[1] + 1, ISS[0] + 14_601);
        (header.flags, header.window) = (TcpFlags::ACK, 65_535);
        header
    };
    let packet = Packet { header, payload: Vec::new(), ect: false, marked: false };
    pair.arrive(0, &packet);
    assert_eq!(pair.end(0).congestion.cwnd(), 29_200);
}

#[test]
fn a_time_out_is_a_round_trip_and_a_fifth_of_a_second_at_least() {
    let mut pair = measured(plain());
    for _ in 0..50 {
        pair.transfer(0, 1000, Duration::from_secs(5));
        pair.pass(ms(200));
    }
    let rtt = pair.end(0).rtt;
    assert_eq!(Some(rtt.rto()), rtt.srtt().map(|srtt| srtt + ms(200)));
}

#[test]
fn a_full_window_does_not_hold_the_end_back() {
    let mut pair = measured(plain());
    let from = pair.log.len();
    pair.end(0).write(&[1; 14_600]);
    pair.transmit(0);
    pair.end(0).finish();
    pair.transmit(0);
    assert_eq!(pair.log.len() - from, 11, "{:?}", pair.said(from));
}

#[test]
fn without_sack_each_segment_out_of_order_is_told() {
    let mut pair = measured(Settings { sack: false, ..plain() });
    pair.doomed[0] = std::vec![pair.counts[0]];
    let from = pair.log.len();
    pair.end(0).write(&[1; 7300]);
    pair.transmit(0);
    // Four segments at one moment, before anything is sent.
    pair.pass(ms(60));
    assert_eq!(pair.log[from..].iter().filter(|(side, ..)| *side == 1).count(), 4, "{:?}", pair.said(from));
}
