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
