//! What a checksum costs, beside the `internet-checksum` crate, in turns: `cargo bench -p bypath-wire --bench checksum`.
//!
//! Each line is the best of many short rounds, in ns per call, on data that is in the cache. `ratio` is the other
//! crate's time over ours of the same run.

use bypath_wire::checksum::{self, portable};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 60;
const TARGET_NS: f64 = 200_000.0;

/// Nanoseconds per call over one short round.
fn round(calls: usize, work: &mut dyn FnMut()) -> f64 {
    let start = Instant::now();
    for _ in 0..calls {
        work();
    }
    start.elapsed().as_nanos() as f64 / calls as f64
}

/// Best round of each, the rounds in turns.
fn best<const N: usize>(mut works: [&mut dyn FnMut(); N]) -> [f64; N] {
    let calls = works.each_mut().map(|w| (TARGET_NS / round(64, *w).max(0.5)) as usize + 1);
    let mut best = [f64::INFINITY; N];
    for _ in 0..ROUNDS {
        for ((work, calls), best) in works.iter_mut().zip(calls).zip(&mut best) {
            *best = best.min(round(calls, *work));
        }
    }
    best
}

fn main() {
    println!(
        "octets  internet-checksum  portable ratio  dispatched ratio  memcpy  copy+sum portable  copy+sum"
    );
    for len in [20, 40, 64, 128, 256, 576, 1460, 1461, 4096, 8960, 65536] {
        let data: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
        let expected = u16::from_be_bytes(internet_checksum::checksum(&data));
        assert_eq!(checksum::checksum(&data), expected);
        assert_eq!(portable::sum(&data).finish(), expected);
        let (mut to_a, mut to_b, mut to_c) = (vec![0; len], vec![0; len], vec![0; len]);
        let times = best([
            &mut || _ = black_box(internet_checksum::checksum(black_box(&data))),
            &mut || _ = black_box(portable::sum(black_box(&data)).finish()),
            &mut || _ = black_box(checksum::checksum(black_box(&data))),
            &mut || black_box(&mut to_a).copy_from_slice(black_box(&data)),
            &mut || _ = black_box(portable::copy(black_box(&mut to_b), black_box(&data)).finish()),
            &mut || _ = black_box(checksum::copy(black_box(&mut to_c), black_box(&data)).finish()),
        ]);
        let [theirs, plain, wide, memcpy, copy_plain, copy] = times;
        println!(
            "{len:6}  {theirs:17.1}  {plain:8.1} {:5.2}  {wide:10.1} {:5.2}  {memcpy:6.1}  {copy_plain:17.1}  {copy:8.1}",
            theirs / plain,
            theirs / wide,
        );
    }
}
