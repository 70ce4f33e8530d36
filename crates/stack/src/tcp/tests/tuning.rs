//! Buffers that grow with what the path and the application take.

use super::*;

fn rooms(pair: &Pair, side: usize) -> (usize, usize) {
    pair.ends[side].as_ref().expect("it was called").statistics().rooms
}

#[test]
fn a_long_path_is_filled_in_both_directions() {
    // 100 ms there and back, 50 MB/s: who has 128 KiB gets 1.3 MB/s of them.
    let path = Path { delay: Duration::from_millis(50), rate: 50_000_000, ..Path::default() };
    for timestamps in [true, false] {
        let settings = Settings { timestamps, ..Settings::default() };
        let mut pair = Pair::open(settings, path, 1);
        assert_eq!((rooms(&pair, 0), rooms(&pair, 1)), ((131_072, 131_072), (131_072, 131_072)));
        for from in if timestamps { 0..2 } else { 0..1 } {
            let took = pair.transfer(from, 10_000_000, Duration::from_secs(60));
            assert!(took < Duration::from_millis(1900), "timestamps {timestamps}: {took:?}");
            let (sent, read) = (rooms(&pair, from).0, rooms(&pair, 1 - from).1);
            assert!(sent > 2_000_000 && read > 2_000_000, "{sent} {read}");
        }
    }
}

#[test]
fn slow_start_is_not_held_up_by_the_window() {
    // With the window of the settings from the beginning it takes as long.
    let path = Path { delay: Duration::from_millis(50), rate: 50_000_000, ..Path::default() };
    let took = [true, false].map(|tuned| {
        let settings = Settings { tune_send: tuned, tune_receive: tuned, ..Settings::default() };
        Pair::open(settings, path, 1).transfer(0, 4_000_000, Duration::from_secs(60))
    });
    assert!(took[0] <= took[1] + Duration::from_millis(100), "{took:?}");
}

#[test]
fn a_narrow_path_takes_no_more_than_it_needs() {
    // 25,000 octets are on their way, and as many wait.
    for timestamps in [true, false] {
        let path = Path { rate: 1_250_000, queue: 25_000, ..Path::default() };
        let mut pair = Pair::open(Settings { timestamps, ..Settings::default() }, path, 1);
        pair.transfer(0, 3_000_000, Duration::from_secs(60));
        let (most_sent, most_read) = (rooms(&pair, 0).0, rooms(&pair, 1).1);
        assert!(most_sent <= 200_000 && most_read <= 1_500_000, "{timestamps}: {most_sent} {most_read}");
    }
}

#[test]
fn who_does_not_read_gets_no_larger_window() {
    let mut pair = Pair::open(Settings::default(), Path::default(), 1);
    pair.transfer(0, 100_000, Duration::from_secs(9));
    let before = rooms(&pair, 1).1;
    for _ in 0..50 {
        pair.end(0).write(&[1; 65_536]);
        pair.pass(Duration::from_millis(100));
    }
    assert_eq!((rooms(&pair, 1).1, pair.end(1).unread() <= before), (before, true));
}

#[test]
fn windows_grow_no_further_than_there_is_memory() {
    let path = Path { delay: Duration::from_millis(50), ..Path::default() };
    for (spare, most) in [(0, 131_072), (5000, 400_000)] {
        let mut pair = Pair::open(Settings::default(), path, 1);
        pair.spare = spare;
        pair.transfer(0, 5_000_000, Duration::from_secs(60));
        assert!(rooms(&pair, 1).1 <= most, "{:?}", rooms(&pair, 1));
    }
}

#[test]
fn a_size_that_was_chosen_stays() {
    let path = Path { delay: Duration::from_millis(50), ..Path::default() };
    let mut pair = Pair::open(Settings::default(), path, 1);
    pair.resized = true;
    let now = pair.now;
    for side in [0, 1] {
        let chosen = Settings { send_octets: 50_000, receive_octets: 70_000, ..pair.end(side).settings() };
        pair.end(side).set_settings(now, chosen);
        let settings = pair.end(side).settings();
        assert!(!settings.tune_send && !settings.tune_receive);
    }
    // What was promised before is still taken, and no more.
    pair.transfer(0, 1_000_000, Duration::from_secs(60));
    assert_eq!((rooms(&pair, 0), rooms(&pair, 1)), ((50_000, 70_000), (50_000, 70_000)));
    // A larger one than any that is tuned.
    let now = pair.now;
    for side in [0, 1] {
        let chosen = Settings { send_octets: 9 << 20, receive_octets: 9 << 20, ..pair.end(side).settings() };
        pair.end(side).set_settings(now, chosen);
    }
    assert!(pair.end(0).write(&std::vec![0; 10 << 20]) > 9_000_000);
}
