//! When segments go: Nagle's algorithm, delayed acknowledgements, windows.

use super::*;

fn plain() -> Settings {
    Settings { timestamps: false, ..Settings::default() }
}

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

#[test]
fn short_segments_wait_for_the_one_before_unless_told_not_to() {
    let mut pair = Pair::open(plain(), Path::default(), 1);
    let from = pair.log.len();
    for _ in 0..3 {
        pair.end(0).write(b"x");
        pair.transmit(0);
    }
    assert_eq!(pair.said(from), ["0 P. 1+1 ack 1"]);
    pair.pass(ms(100));
    assert!(pair.said(from).contains(&"0 P. 2+2 ack 1".into()), "{:?}", pair.said(from));
    let mut pair = Pair::open(Settings { nodelay: true, ..plain() }, Path::default(), 1);
    let from = pair.log.len();
    for _ in 0..3 {
        pair.end(0).write(b"x");
        pair.transmit(0);
    }
    assert_eq!(pair.said(from), ["0 P. 1+1 ack 1", "0 P. 2+1 ack 1", "0 P. 3+1 ack 1"]);
}

#[test]
fn answers_take_the_acknowledgement_along() {
    let mut pair = Pair::open(Settings { nodelay: true, ..plain() }, Path::default(), 1);
    // The first exchange shows that there are answers.
    for round in 0..3 {
        let from = pair.log.len();
        pair.end(0).write(b"ping");
        let until = pair.now + Duration::from_secs(1);
        pair.until(until, |p| p.ends[1].as_ref().is_some_and(|e| e.unread() > 0));
        let mut room = [0; 9];
        pair.end(1).read(&mut room);
        pair.end(1).write(b"pong");
        let until = pair.now + Duration::from_secs(1);
        pair.until(until, |p| p.ends[0].as_ref().is_some_and(|e| e.unread() > 0));
        pair.end(0).read(&mut room);
        if round > 0 {
            assert_eq!(pair.log.len() - from, 2, "{:?}", pair.said(from));
        }
    }
    // The last answer is acknowledged when nothing goes with it.
    let from = pair.log.len();
    pair.pass(ms(39));
    assert_eq!(pair.log.len(), from);
    pair.pass(ms(30));
    assert_eq!(pair.said(from), ["0 . 13+0 ack 13"]);
}

#[test]
fn every_second_full_segment_is_acknowledged() {
    let mut pair = Pair::open(plain(), Path { rate: 12_500_000, ..Path::default() }, 1);
    pair.transfer(0, 300_000, Duration::from_secs(5));
    let from = pair.log.len();
    pair.transfer(0, 146_000, Duration::from_secs(5));
    pair.pass(ms(500));
    let acks = pair.log[from..].iter().filter(|(side, ..)| *side == 1).count();
    assert!((45..=60).contains(&acks), "{acks} for 100 segments");
}

#[test]
fn a_window_is_not_told_in_crumbs() {
    let settings = Settings { receive_octets: 14_600, ..plain() };
    let mut pair = Pair::open(settings, Path::default(), 1);
    pair.end(0).write(&[1; 40_000]);
    pair.pass(Duration::from_secs(2));
    let from = pair.log.len();
    // A reader that takes ten octets at a time.
    let mut room = [0; 10];
    for _ in 0..140 {
        pair.end(1).read(&mut room);
        pair.pass(Duration::from_micros(100));
    }
    let short =
        pair.log[from..].iter().filter(|(side, _, _, len)| *side == 0 && (1..1000).contains(len)).count();
    assert_eq!(short, 0, "{:?}", pair.said(from));
}

#[test]
fn a_first_flight_is_ten_segments() {
    for settings in [plain(), Settings::default()] {
        let mut pair = Pair::open(settings, Path::default(), 1);
        let from = pair.log.len();
        pair.end(0).write(&[1; 100_000]);
        pair.transmit(0);
        assert_eq!(pair.log.len() - from, 10);
    }
}

#[test]
fn an_idle_connection_is_small() {
    let mut pair = Pair::open(Settings::default(), Path::default(), 1);
    pair.transfer(0, 500_000, Duration::from_secs(5));
    pair.transfer(1, 500_000, Duration::from_secs(5));
    pair.pass(Duration::from_secs(5));
    for end in pair.ends.iter_mut().flatten() {
        end.release();
    }
    let octets = core::mem::size_of::<Connection>();
    assert!(octets < 800, "{octets}");
    for end in pair.ends.iter().flatten() {
        assert_eq!((end.tx.capacity(), end.rx.capacity()), (0, 0));
    }
}
