use super::*;
use crate::pair::{End, pair};
use std::cell::Cell;
use std::rc::Rc;

type Time = Rc<Cell<u64>>;
const MS: u64 = 1_000_000;

/// A faulty way from `a` to `b`, and the time.
fn faulty(faults: Faults, seed: u64) -> (FaultInjector<End, impl FnMut() -> u64>, End, Time) {
    let (a, b) = pair(1500, 1000);
    let time = Time::default();
    let clock = Rc::clone(&time);
    let a = FaultInjector::new(a, Faults::NONE, faults, seed, move || clock.get()).unwrap();
    (a, b, time)
}

/// Frame number `n`, long enough to be accepted.
fn numbered(n: u32, len: usize) -> Vec<u8> {
    let mut bytes = vec![2; len];
    bytes[14..18].copy_from_slice(&n.to_be_bytes());
    bytes
}

fn number(bytes: &[u8]) -> u32 {
    u32::from_be_bytes(bytes[14..18].try_into().unwrap())
}

fn send(link: &mut dyn Link, frames: impl IntoIterator<Item = Vec<u8>>) {
    let mut frames = frames.into_iter();
    let sent = link.send(usize::MAX, &mut |slot| {
        let frame = frames.next()?;
        slot[..frame.len()].copy_from_slice(&frame);
        Some((frame.len(), FrameMeta::default()))
    });
    sent.unwrap();
    assert_eq!(frames.next(), None, "all were taken");
}

fn received(link: &mut dyn Link) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    link.receive(usize::MAX, &mut |bytes, _| got.push(bytes.to_vec())).unwrap();
    got
}

fn numbers(link: &mut dyn Link) -> Vec<u32> {
    received(link).iter().map(|bytes| number(bytes)).collect()
}

#[test]
fn without_faults_everything_passes_both_ways() {
    let (a, mut b) = pair(1500, 1000);
    let mut a = FaultInjector::new(a, Faults::NONE, Faults::NONE, 1, || 0).unwrap();
    let frames: Vec<_> = (0..100).map(|n| numbered(n, 60 + n as usize)).collect();
    send(&mut a, frames.clone());
    assert_eq!(received(&mut b), frames);
    send(&mut b, frames.clone());
    assert_eq!(received(&mut a), frames);
    let counters = Counters { entered: 100, left: 100, ..Counters::default() };
    assert_eq!((a.ingress(), a.egress()), (counters, counters));
    assert_eq!((a.statistics().received, a.statistics().sent), (100, 100));
    assert_eq!(a.next_due(), None);
}

#[test]
fn the_same_seed_has_the_same_effect_and_another_seed_another() {
    let faults = Faults {
        loss: 0.1,
        duplication: 0.1,
        corruption: 0.1,
        reordering: 0.1,
        delay: MS,
        jitter: MS,
        rate: Some(50_000_000),
        ..Faults::NONE
    };
    let run = |seed| {
        let (mut a, mut b, time) = faulty(faults, seed);
        let mut trace = Vec::new();
        for n in 0..500 {
            time.set(time.get() + 100_000);
            send(&mut a, [numbered(n, 100)]);
            trace.extend(received(&mut b).into_iter().map(|bytes| (time.get(), bytes)));
        }
        while let Some(due) = a.next_due() {
            time.set(due);
            a.flush().unwrap();
            trace.extend(received(&mut b).into_iter().map(|bytes| (time.get(), bytes)));
        }
        (trace, a.egress())
    };
    let (trace, counters) = run(7);
    assert_eq!(run(7), (trace.clone(), counters));
    assert_ne!(run(8).0, trace);
    let c = counters;
    assert_eq!(c.entered + c.duplicated, c.left + c.lost + c.overflowed);
    assert_eq!(c.left, trace.len() as u64);
    assert!([c.lost, c.duplicated, c.corrupted, c.reordered, c.delayed].iter().all(|&n| n > 10), "{c:?}");
}

#[test]
fn chances_are_what_was_asked_for_and_independent() {
    const COUNT: u32 = 5_000;
    let lost = |faults: Faults| {
        let (mut a, mut b, _) = faulty(faults, 3);
        let mut seen = vec![false; COUNT as usize];
        for first in (0..COUNT).step_by(250) {
            send(&mut a, (first..first + 250).map(|n| numbered(n, 60)));
            for n in numbers(&mut b) {
                seen[n as usize] = true;
            }
        }
        ((0..COUNT).filter(|&n| !seen[n as usize]).collect::<Vec<_>>(), a.egress())
    };
    let (which, counters) = lost(Faults { loss: 0.05, ..Faults::NONE });
    // Five standard deviations (15) around the mean.
    assert!((173..328).contains(&which.len()) && counters.lost == which.len() as u64, "{}", which.len());
    let (with_copies, counters) = lost(Faults { loss: 0.05, duplication: 0.5, ..Faults::NONE });
    assert_eq!(with_copies, which, "the same frames are lost");
    assert!((2_200..2_550).contains(&counters.duplicated), "{counters:?}");
    assert_eq!(lost(Faults { loss: 1.0, ..Faults::NONE }).0.len(), COUNT as usize);
    assert_eq!(lost(Faults { duplication: 1.0, ..Faults::NONE }).1.left, 2 * u64::from(COUNT));
}

#[test]
fn corruption_flips_one_bit() {
    let (mut a, mut b, _) = faulty(Faults { corruption: 1.0, ..Faults::NONE }, 5);
    let mut where_flipped = std::collections::BTreeSet::new();
    for _ in 0..2000 {
        let sent = numbered(9, 30);
        send(&mut a, [sent.clone()]);
        let got = received(&mut b).remove(0);
        let flipped: Vec<_> =
            (0..240).filter(|bit| (sent[bit / 8] ^ got[bit / 8]) >> (bit % 8) & 1 == 1).collect();
        assert_eq!((flipped.len(), got.len()), (1, sent.len()));
        where_flipped.insert(flipped[0]);
    }
    assert!(where_flipped.len() > 230, "every bit may be hit: {}", where_flipped.len());
}

#[test]
fn a_verified_checksum_is_not_vouched_for_after_corruption() {
    let mut lane = Lane::new(Faults { corruption: 1.0, ..Faults::NONE }, Chances::new(1, 1));
    let meta = FrameMeta { checksum: ChecksumState::Verified, ..FrameMeta::default() };
    lane.admit(0, vec![0; 60], meta);
    assert_eq!(lane.due(0).unwrap().meta.checksum, ChecksumState::Unknown);
}

#[test]
fn delay_holds_frames_until_their_time() {
    let (mut a, mut b, time) = faulty(Faults { delay: 5 * MS, ..Faults::NONE }, 1);
    send(&mut a, [numbered(1, 60)]);
    time.set(MS);
    send(&mut a, [numbered(2, 60)]);
    assert_eq!((a.next_due(), a.flush()), (Some(5 * MS), Ok(2)));
    time.set(5 * MS - 1);
    assert_eq!(a.flush(), Ok(2));
    assert_eq!(numbers(&mut b), [0; 0]);
    time.set(5 * MS);
    assert_eq!(a.flush(), Ok(1));
    assert_eq!(numbers(&mut b), [1]);
    assert_eq!(a.next_due(), Some(6 * MS));
    time.set(20 * MS);
    assert_eq!(a.flush(), Ok(0));
    assert_eq!(numbers(&mut b), [2]);
    assert_eq!(a.egress().delayed, 2);
}

#[test]
fn delay_on_the_way_in_holds_them_too() {
    let (a, mut b) = pair(1500, 100);
    let time = Time::default();
    let clock = Rc::clone(&time);
    let slow = Faults { delay: MS, ..Faults::NONE };
    let mut a = FaultInjector::new(a, slow, Faults::NONE, 1, move || clock.get()).unwrap();
    send(&mut b, [numbered(1, 60), numbered(2, 60)]);
    assert_eq!(numbers(&mut a), [0; 0]);
    assert!(a.descriptor().is_none());
    time.set(MS);
    let mut got = Vec::new();
    assert_eq!(a.receive(1, &mut |bytes, _| got.push(number(bytes))), Ok(1));
    assert_eq!((got, numbers(&mut a)), (vec![1], vec![2]));
}

#[test]
fn frames_pass_at_the_rate() {
    // 1000 octets at 8 Mbit/s: a millisecond each.
    let (mut a, mut b, time) = faulty(Faults { rate: Some(8_000_000), ..Faults::NONE }, 1);
    send(&mut a, (0..10).map(|n| numbered(n, 1000)));
    for n in 0..10 {
        time.set(u64::from(n + 1) * MS - 1);
        a.flush().unwrap();
        assert_eq!(numbers(&mut b), [0; 0]);
        time.set(time.get() + 1);
        a.flush().unwrap();
        assert_eq!(numbers(&mut b), [n]);
    }
    // What was not used is not saved up.
    time.set(100 * MS);
    send(&mut a, [numbered(10, 1000)]);
    assert_eq!(a.next_due(), Some(101 * MS));
}

#[test]
fn the_queue_is_bounded_and_its_losses_are_counted() {
    let (mut a, mut b, time) = faulty(Faults { delay: MS, queue: 10, ..Faults::NONE }, 1);
    send(&mut a, (0..25).map(|n| numbered(n, 60)));
    assert_eq!(a.egress().overflowed, 15);
    time.set(MS);
    a.flush().unwrap();
    assert_eq!(numbers(&mut b), (0..10).collect::<Vec<_>>());
}

#[test]
fn a_full_link_inside_holds_the_sender_and_loses_nothing() {
    let (a, mut b) = pair(1500, 5);
    let few = Faults { queue: 3, ..Faults::NONE };
    let mut a = FaultInjector::new(a, Faults::NONE, few, 1, || 0).unwrap();
    let mut frames = (0..20).map(|n| numbered(n, 60));
    let mut put = |a: &mut dyn Link| {
        let sent = a.send(usize::MAX, &mut |slot| {
            let frame = frames.next()?;
            slot[..60].copy_from_slice(&frame);
            Some((60, FrameMeta::default()))
        });
        sent.unwrap()
    };
    let mut got = Vec::new();
    for _ in 0..20 {
        put(&mut a);
        got.extend(numbers(&mut b));
    }
    assert_eq!(got, (0..20).collect::<Vec<_>>());
    assert_eq!(a.egress().overflowed, 0);
}

#[test]
fn a_reordered_frame_is_overtaken_by_a_few_and_none_is_lost() {
    let faults = Faults { reordering: 0.1, overtaken_by: 4, ..Faults::NONE };
    let (mut a, mut b, time) = faulty(faults, 11);
    let mut got = Vec::new();
    for n in 0..1000 {
        send(&mut a, [numbered(n, 60)]);
        got.extend(numbers(&mut b));
    }
    time.set(faults.overtaken_within);
    assert_eq!(a.flush(), Ok(0));
    got.extend(numbers(&mut b));
    assert_eq!(got.len(), 1000);
    let late = got.windows(2).filter(|w| w[1] < w[0]).count();
    assert!(late > 50 && a.egress().reordered > 70, "{late} {:?}", a.egress());
    for (at, &n) in got.iter().enumerate() {
        let by = got[..at].iter().filter(|&&other| other > n).count();
        // Others that were held back at the same time may pass it, too.
        assert!(by <= 8, "{n} was overtaken by {by}");
    }
    got.sort_unstable();
    assert_eq!(got, (0..1000).collect::<Vec<_>>());
}

#[test]
fn a_reordered_frame_that_nobody_overtakes_goes_on() {
    let faults = Faults { reordering: 1.0, overtaken_within: MS, ..Faults::NONE };
    let (mut a, mut b, time) = faulty(faults, 11);
    send(&mut a, [numbered(1, 60)]);
    assert_eq!((numbers(&mut b), a.next_due()), (vec![], Some(MS)));
    time.set(MS);
    assert_eq!(a.flush(), Ok(0));
    assert_eq!(numbers(&mut b), [1]);
}

#[test]
fn jitter_stays_within_its_bounds() {
    let (mut a, mut b, time) = faulty(Faults { delay: MS, jitter: MS, ..Faults::NONE }, 2);
    send(&mut a, (0..200).map(|n| numbered(n, 60)));
    time.set(MS - 1);
    a.flush().unwrap();
    assert_eq!(numbers(&mut b), [0; 0]);
    time.set(MS + MS / 2);
    a.flush().unwrap();
    let half = numbers(&mut b).len();
    assert!((60..140).contains(&half), "{half}");
    time.set(2 * MS);
    assert_eq!(a.flush(), Ok(0));
    assert_eq!(numbers(&mut b).len(), 200 - half);
}

#[test]
fn what_waits_can_be_forgotten() {
    let faults = Faults { delay: MS, reordering: 0.5, ..Faults::NONE };
    let (mut a, mut b, time) = faulty(faults, 2);
    send(&mut a, (0..20).map(|n| numbered(n, 60)));
    assert_eq!(a.forget(), 20);
    time.set(100 * MS);
    assert_eq!((a.flush(), a.next_due(), a.statistics().refused), (Ok(0), None, 20));
    assert_eq!(numbers(&mut b), [0; 0]);
}

#[test]
fn frames_that_cannot_be_are_refused_by_the_link_inside() {
    let (mut a, mut b, _) = faulty(Faults::NONE, 2);
    for len in [13, 1515, 100_000] {
        let mut once = Some((len, FrameMeta::default()));
        let refused = a.send(3, &mut |_| once.take());
        assert!(matches!(refused, Err(Error::TooShort { .. } | Error::TooLong { .. })), "{len}: {refused:?}");
    }
    send(&mut a, [numbered(1, 60)]);
    assert_eq!(numbers(&mut b), [1]);
    assert_eq!(a.statistics().refused, 3);
}

#[test]
fn faults_that_cannot_be_are_refused() {
    let none = Faults::NONE;
    for wrong in [
        Faults { loss: 1.5, ..none },
        Faults { duplication: -0.1, ..none },
        Faults { corruption: f64::NAN, ..none },
        Faults { rate: Some(0), ..none },
        Faults { queue: 0, ..none },
        Faults { overtaken_by: 0, ..none },
    ] {
        let (a, _) = pair(1500, 1);
        assert!(matches!(FaultInjector::new(a, none, wrong, 1, || 0), Err(Error::Invalid(_))), "{wrong:?}");
    }
}

#[test]
fn a_clock_that_is_set_back_holds_nothing() {
    let (mut a, mut b, time) = faulty(Faults { delay: MS, ..Faults::NONE }, 1);
    time.set(1000 * MS);
    send(&mut a, [numbered(1, 60)]);
    time.set(0);
    send(&mut a, [numbered(2, 60)]);
    time.set(1001 * MS);
    a.flush().unwrap();
    assert_eq!(numbers(&mut b), [1, 2]);
}

#[test]
fn a_switch_changes_the_faults_of_an_injector_that_is_elsewhere() {
    let (a, mut b) = pair(1500, 1000);
    let mut a = FaultInjector::new(a, Faults::NONE, Faults::NONE, 1, || 0).unwrap();
    let switch = a.switch();
    let all = Faults { loss: 1.0, ..Faults::NONE };
    let pass = |a: &mut dyn Link, b: &mut dyn Link| {
        send(a, [numbered(1, 60)]);
        send(b, [numbered(2, 60)]);
        (numbers(b).len(), numbers(a).len())
    };
    assert_eq!(pass(&mut a, &mut b), (1, 1));
    switch.set(all, Faults::NONE).unwrap();
    assert_eq!(pass(&mut a, &mut b), (1, 0));
    a.switch().set(Faults::NONE, all).unwrap();
    assert_eq!(pass(&mut a, &mut b), (0, 1));
    assert!(switch.set(Faults { loss: 2.0, ..Faults::NONE }, Faults::NONE).is_err());
    switch.clone().set(Faults::NONE, Faults::NONE).unwrap();
    assert_eq!(pass(&mut a, &mut b), (1, 1));
}
