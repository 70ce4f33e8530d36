//! Segments that are longer than those that are known to arrive (RFC 4821).

use super::super::mtu::MtuProbing;
use super::*;

fn plain() -> Settings {
    Settings { timestamps: false, ..Settings::default() }
}

fn always() -> Settings {
    Settings { mtu_probing: MtuProbing::Always, base_mss: 512, ..plain() }
}

fn after_timeouts() -> Settings {
    Settings { mtu_probing: MtuProbing::AfterTimeouts, ..always() }
}

/// A path that swallows segments of more octets of payload and options.
fn narrow(longest: usize) -> Path {
    Path { longest, ..Path::default() }
}

/// Lengths of segments with octets that a side sent, each when it is another one than before.
fn lengths(pair: &Pair, side: usize) -> Vec<usize> {
    let mut all: Vec<usize> =
        pair.log.iter().filter(|(who, _, _, len)| *who == side && *len > 0).map(|(.., len)| *len).collect();
    all.dedup();
    all
}

fn mss(pair: &mut Pair, side: usize) -> u32 {
    pair.end(side).snd.mss
}

#[test]
fn longer_segments_are_tried_and_sent_from_then_on_if_they_arrive() {
    for (timestamps, sack) in [(false, true), (true, true), (false, false)] {
        let settings = Settings { timestamps, sack, ..always() };
        let mut pair = Pair::open(settings, Path::default(), 1);
        let options = if timestamps { 12 } else { 0 };
        assert_eq!(mss(&mut pair, 0), 512 + options, "who calls begins with what any path takes");
        pair.transfer(0, 8 << 20, Duration::from_secs(60));
        let most = mss(&mut pair, 0);
        assert!((1453..=1460).contains(&most), "{most}");
        let c = pair.end(0);
        assert_eq!((c.counts.again, c.congestion.ssthresh()), (0, u32::MAX));
        // Half of what is left of the range each time; when one has arrived, all that follow are as long.
        let lengths = lengths(&pair, 0);
        let expected: &[usize] =
            if timestamps { &[512, 980, 512, 1214, 980] } else { &[512, 986, 512, 1223, 986] };
        assert_eq!(lengths[..5], *expected, "{lengths:?}");
    }
}

#[test]
fn nothing_is_tried_unless_it_is_wanted() {
    for settings in [plain(), after_timeouts()] {
        let mut pair = Pair::open(settings, Path::default(), 1);
        pair.transfer(0, 8 << 20, Duration::from_secs(60));
        assert_eq!(lengths(&pair, 0)[0], 1460);
        assert!(pair.end(0).search.is_none());
    }
}

#[test]
fn a_long_segment_that_is_lost_narrows_the_range_and_not_the_window() {
    for (sack, timestamps) in [(true, false), (true, true), (false, false)] {
        let settings = Settings { sack, timestamps, ..always() };
        let mut pair = Pair::open(settings, narrow(1000), 1);
        let took = pair.transfer(0, 8 << 20, Duration::from_secs(60));
        let most = mss(&mut pair, 0);
        assert!((993..=1000).contains(&most), "{most}");
        let c = pair.end(0);
        assert_eq!(c.congestion.ssthresh(), u32::MAX, "sack {sack}: it was taken for congestion");
        // Those of 1223, 1104, 1045, 1015 and 1000 octets, each sent again once, and no time-out.
        assert!(c.counts.again < 6000 && c.counts.again > 3000, "{}", c.counts.again);
        assert!(took < Duration::from_secs(1), "{took:?}");
    }
}

#[test]
fn a_long_segment_that_is_lost_with_others_says_nothing_of_its_length() {
    let mut pair = Pair::open(always(), Path::default(), 1);
    pair.transfer(0, 60_000, Duration::from_secs(9));
    let own: Vec<usize> = pair.log.iter().filter(|(who, ..)| *who == 0).map(|(.., len)| *len).collect();
    let tried = own.iter().position(|len| *len == 986).unwrap() as u64;
    // Alone, and with the one behind it.
    for (others, high) in [(0, 985), (1, 1460)] {
        let mut pair = Pair::open(always(), Path::default(), 1);
        pair.doomed[0] = (tried..=tried + others).collect();
        pair.transfer(0, 60_000, Duration::from_secs(9));
        let c = pair.end(0);
        assert_eq!(c.search.as_ref().unwrap().high, high);
        assert_eq!(c.congestion.ssthresh() < u32::MAX, others > 0);
    }
}

#[test]
fn what_the_path_takes_is_looked_for_again_after_ten_minutes() {
    let mut pair = Pair::open(always(), narrow(1000), 1);
    pair.transfer(0, 8 << 20, Duration::from_secs(60));
    pair.paths[0].longest = usize::MAX;
    pair.pass(Duration::from_secs(500));
    pair.transfer(0, 8 << 20, Duration::from_secs(60));
    assert!(mss(&mut pair, 0) <= 1000, "not yet");
    pair.pass(Duration::from_secs(100));
    pair.transfer(0, 8 << 20, Duration::from_secs(60));
    assert!(mss(&mut pair, 0) > 1452, "{}", mss(&mut pair, 0));
}

#[test]
fn a_path_that_swallows_long_segments_is_found_out_by_time_outs() {
    // Nothing gets through, but for short segments; the other direction is as it should be.
    let mut pair = Pair::open(plain(), narrow(900), 1);
    pair.end(0).write(&[1; 100_000]);
    pair.pass(Duration::from_secs(100));
    assert_eq!(pair.end(1).unread(), 0, "it stands for ever");
    for settings in [after_timeouts(), Settings { timestamps: true, sack: false, ..after_timeouts() }] {
        for side in [0, 1] {
            let mut pair = Pair::open(settings, narrow(900), 1);
            let took = pair.transfer(side, 8 << 20, Duration::from_secs(60));
            let most = mss(&mut pair, side);
            assert!((893..=900).contains(&most), "{most}");
            assert!(took > Duration::from_secs(1) && took < Duration::from_secs(30), "{took:?}");
        }
    }
    // Who is called and always tries begins with what the path is said to take: it is the same.
    let mut pair = Pair::open(always(), narrow(900), 1);
    pair.transfer(1, 8 << 20, Duration::from_secs(60));
    assert!((893..=900).contains(&mss(&mut pair, 1)));
}

#[test]
fn segments_become_as_short_as_it_takes_and_no_shorter_than_a_bound() {
    let mut pair = Pair::open(after_timeouts(), narrow(130), 1);
    pair.transfer(0, 20_000, Duration::from_secs(200));
    assert!((123..=130).contains(&mss(&mut pair, 0)), "{}", mss(&mut pair, 0));
    let mut pair = Pair::open(after_timeouts(), narrow(0), 1);
    pair.end(0).write(&[1; 20_000]);
    pair.pass(Duration::from_secs(500));
    assert_eq!(lengths(&pair, 0), [1460, 512, 256, 128, 64, 48]);
}

#[test]
fn a_path_that_is_said_to_be_narrower_than_what_is_tried_costs_that_segment_alone() {
    let mut pair = Pair::open(always(), narrow(900), 1);
    pair.end(0).write(&[1; 60_000]);
    while lengths(&pair, 0).len() < 2 {
        assert!(pair.step());
    }
    let now = pair.now;
    let before = pair.end(0).congestion.cwnd();
    pair.end(0).path_changed(now, 900);
    let c = pair.end(0);
    assert_eq!((c.snd.mss, c.sent.lost()), (512, 986), "others are short enough");
    assert_eq!((c.congestion.cwnd(), c.congestion.ssthresh()), (before, u32::MAX));
    pair.pass(Duration::from_secs(2));
    assert_eq!(pair.end(1).read(&mut [0; 100_000]), 60_000);
    pair.transfer(0, 8 << 20, Duration::from_secs(60));
    assert!((893..=900).contains(&mss(&mut pair, 0)), "{}", mss(&mut pair, 0));
    assert_eq!(pair.end(0).counts.again, 986);
}

#[test]
fn who_does_not_want_it_any_more_believes_the_network() {
    let mut pair = Pair::open(always(), Path::default(), 1);
    let now = pair.now;
    pair.end(0).set_settings(now, plain());
    assert_eq!(mss(&mut pair, 0), 1460);
    pair.end(0).set_settings(now, always());
    assert_eq!(mss(&mut pair, 0), 1460, "what goes already is long enough");
    assert!(pair.end(0).search.is_some());
}

#[test]
fn segments_that_are_too_short_for_their_options_stay_as_they_are() {
    for mtu_probing in [MtuProbing::AfterTimeouts, MtuProbing::Always] {
        for mss in [1, 8, 12, 20] {
            let settings = Settings { mss, timestamps: true, mtu_probing, base_mss: 0, ..plain() };
            let mut pair = Pair::open(settings, Path::default(), 1);
            pair.transfer(0, 2000, Duration::from_secs(60));
            pair.paths[0].loss = 1000;
            pair.end(0).write(&[1; 2000]);
            pair.pass(Duration::from_secs(100));
            assert_eq!(self::mss(&mut pair, 0), mss.into());
        }
    }
}
