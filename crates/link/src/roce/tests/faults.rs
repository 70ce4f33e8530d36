//! Losses, doubles, reordering and corruption: transfers stay octet for octet what they are.

use super::*;

/// Everything at once, in a random order of requests; the same in a model without a network.
fn mixed(faults: Faults, seed: u64, mtu: u32) -> [Counters; 2] {
    const SIZE: usize = 40_000;
    let patient =
        Config { window: 32, reads: 4, retries: 1000, timeout: 2_000_000, rnr_timer: 2, ..config(mtu) };
    let (here, there) = (octets(SIZE, seed), octets(SIZE, seed + 99));
    let mut pair = Pair::new(patient, faults, seed).with_memory(here.clone(), there.clone(), Access::ALL);
    let (mut model_here, mut model_there) = (here, there);
    let (mut expected, mut told) = (Vec::new(), Vec::new());
    let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = move |limit: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random % limit
    };
    for id in 0..60 {
        let len = match below(4) {
            0 => below(10),
            1 => below(u64::from(mtu) * 2),
            _ => below(15_000),
        } as u32;
        // Messages go from and to the first half. Requests do not wait for the READs before them, so that neither end of
        // those is in it while others are on their way.
        let (at, to) = (below(5_000), below(5_000));
        let (from, place) =
            (at as usize..at as usize + len as usize, to as usize..to as usize + len as usize);
        match below(5) {
            0 => {
                pair.receive(id, to, len);
                pair.post(id, send(at, len));
                let received = Received { id, len, written: false, immediate: None, source: None };
                told.push(What::Received(received));
                model_there[place].copy_from_slice(&model_here[from]);
                expected.push(done(id));
            }
            1 => {
                pair.receive(id, 0, 0);
                let immediate = Some(id as u32);
                pair.post(id, Request::Write { from: local(at, len), to: remote(to), immediate });
                told.push(What::Received(Received { id, len, written: true, immediate, source: None }));
                model_there[place].copy_from_slice(&model_here[from]);
                expected.push(done(id));
            }
            2 => {
                let alone = below(2) == 0;
                if alone {
                    pair.run();
                }
                let len = len.min(9_000);
                let from = if alone { below(20_000) } else { 20_000 + below(1_000) } as usize;
                let offset = if alone { below(30_000) } else { 20_000 + below(10_000) } as usize;
                pair.post(id, read(from as u64, offset as u64, len));
                let len = len as usize;
                model_here[offset..offset + len].copy_from_slice(&model_there[from..from + len]);
                expected.push(done(id));
                if alone {
                    pair.run();
                }
            }
            kind => {
                let offset = (30_000 + below(100) * 8) as usize;
                let word: &mut [u8; 8] = (&mut model_there[offset..offset + 8]).try_into().unwrap();
                let (was, at) = (u64::from_ne_bytes(*word), remote(offset as u64));
                let value = below(u64::MAX);
                let compare = if below(2) == 0 { was } else { value };
                if kind == 3 {
                    pair.post(id, Request::FetchAdd { at, add: value });
                    *word = was.wrapping_add(value).to_ne_bytes();
                } else {
                    pair.post(id, Request::CompareSwap { at, compare, swap: value });
                    *word = if was == compare { value } else { was }.to_ne_bytes();
                }
                expected.push(What::Over { id, result: Ok(Done::Was(was)) });
            }
        }
        // Sometimes all is done before the next one comes.
        if below(8) == 0 {
            pair.run();
        }
    }
    pair.run();
    assert_eq!(pair.events[0], expected, "seed {seed}: what the requester was told");
    assert_eq!(pair.events[1], told, "seed {seed}: what the responder was told");
    assert!(pair.here() == model_here, "seed {seed}: memory here");
    assert!(pair.there() == model_there, "seed {seed}: memory there");
    pair.counters()
}

fn all(faults: Faults, seeds: u64) -> [Counters; 2] {
    let mut sum = [Counters::default(); 2];
    for seed in 1..=seeds {
        let mtu = [256, 1024, 4096][seed as usize % 3];
        for (sum, counters) in sum.iter_mut().zip(mixed(faults, seed, mtu)) {
            sum.repeated += counters.repeated;
            sum.duplicates += counters.duplicates;
            sum.ahead += counters.ahead;
            sum.wrong_icrc += counters.wrong_icrc;
            sum.gaps += counters.gaps;
            sum.timeouts += counters.timeouts;
            sum.stale_answers += counters.stale_answers;
        }
    }
    sum
}

#[test]
fn without_faults_nothing_is_repeated() {
    let [here, there] = all(Faults::NONE, 25);
    assert_eq!((here, there.duplicates, there.ahead), (Counters::default(), 0, 0));
}

#[test]
fn lost_packets_are_sent_again() {
    let [here, there] = all(Faults { loss: 0.05, ..Faults::NONE }, 25);
    assert!(here.repeated > 100 && here.timeouts > 0 && here.gaps > 0, "{here:?}");
    assert!(there.ahead > 100 && there.duplicates > 0, "{there:?}");
}

#[test]
fn packets_that_come_twice_are_executed_once() {
    let [here, there] = all(Faults { duplication: 0.2, ..Faults::NONE }, 25);
    assert!(there.duplicates > 100 && here.stale_answers > 100, "{here:?} {there:?}");
}

#[test]
fn packets_that_overtake_each_other_are_put_right() {
    let [here, there] = all(Faults { reordering: 0.05, ..Faults::NONE }, 25);
    assert!(there.ahead > 50 && here.repeated > 50, "{here:?} {there:?}");
}

#[test]
fn flipped_bits_are_seen() {
    let [here, there] = all(Faults { corruption: 0.05, ..Faults::NONE }, 25);
    assert!(here.wrong_icrc > 20 && there.wrong_icrc > 20, "{here:?} {there:?}");
}

#[test]
fn all_at_once_with_delay_and_jitter() {
    let faults = Faults {
        loss: 0.03,
        duplication: 0.03,
        corruption: 0.02,
        reordering: 0.02,
        delay: 20_000,
        jitter: 10_000,
        ..Faults::NONE
    };
    let [here, there] = all(faults, 8);
    assert!(here.repeated > 100 && there.duplicates > 100, "{here:?} {there:?}");
}

#[test]
fn the_same_seed_has_the_same_course() {
    let faults = Faults { loss: 0.1, jitter: 5_000, ..Faults::NONE };
    assert_eq!(mixed(faults, 3, 1024), mixed(faults, 3, 1024));
}

#[test]
fn unreliable_messages_arrive_whole_or_not_at_all() {
    let faults = Faults { loss: 0.02, duplication: 0.02, reordering: 0.02, corruption: 0.02, ..Faults::NONE };
    let mut delivered = 0;
    for seed in 1..=20 {
        let data = octets(8000, seed);
        let mut pair = Pair::of(config(256), faults, seed, true, false).with_memory(
            data.clone(),
            vec![0; 8000 * 40],
            Access::LOCAL,
        );
        for n in 0..40 {
            pair.receive(n, n * 8000, 8000);
            // Each message says by its length which one it is.
            pair.post(n, send(0, 1000 + n as u32));
        }
        pair.run();
        assert_eq!(pair.events[0], (0..40).map(done).collect::<Vec<_>>());
        for event in pair.events[1].clone() {
            let What::Received(received) = event else { panic!("{event:?}") };
            let from = received.id as usize * 8000;
            let got = &pair.there()[from..from + received.len as usize];
            assert!(received.len >= 1000 && got == &data[..received.len as usize], "seed {seed}");
            delivered += 1;
        }
    }
    assert!((100..800).contains(&delivered), "{delivered}");
}
