//! Octets that are taken as they come: the same stream, whatever happens to its segments.

use super::*;
use crate::world::{Faults, Taker};
use bypath_stack::config::Config;
use bypath_stack::iface::Offload;
use bypath_wire::{FrameMeta, meta::ChecksumState};

const ALL: Offload = Offload { checksum: true, segmentation: true };

/// Has host 0 send a stream to host 1, whose application has these rooms: what of it was taken as it came.
fn stream(world: &mut World, faults: Faults, octets: usize, rooms: &[usize]) -> usize {
    let (client, accepted) = pair(world, "10.0.0.2:80");
    world.faults = faults;
    let taker = Taker { socket: accepted, rooms: rooms.to_vec(), asked: 0, got: Vec::new(), given: 0 };
    world.hosts[1].taker = Some(taker);
    let all: Vec<u8> = (0..octets).map(octet).collect();
    let mut written = 0;
    let end = world.now().as_nanos() + 300_000_000_000;
    loop {
        written += tcp(world, 0, client).write(&all[written..]).unwrap_or(0);
        let (came, _) = read(world, 1, accepted);
        let taker = world.hosts[1].taker.as_mut().expect("a taker");
        taker.got.extend(came);
        if taker.got.len() >= octets {
            break;
        }
        world.run(std::time::Duration::from_micros(300));
        assert!(world.now().as_nanos() < end, "time is over");
    }
    let taker = world.hosts[1].taker.take().expect("a taker");
    assert!(taker.got == all, "another stream");
    let statistics = tcp(world, 1, accepted).statistics().expect("a connection");
    assert_eq!(statistics.octets_received, octets as u64);
    // The end comes behind it.
    world.faults = Faults::default();
    tcp(world, 0, client).finish().expect("a connection");
    world.millis(1000);
    assert_eq!(read(world, 1, accepted), (Vec::new(), true));
    taker.given
}

#[test]
fn a_stream_is_the_same_whether_octets_are_taken_as_they_come_or_read() {
    for offload in [Offload::default(), ALL] {
        for rooms in [&[100_000][..], &[0], &[100_000, 0, 700, 3000]] {
            for (seed, loss, jitter) in [(1, 0.0, 0), (2, 0.02, 0), (3, 0.0, 400_000), (4, 0.03, 300_000)] {
                let mut world = World::with(2, seed, &Config::default(), offload, 1500);
                let faults = Faults { loss, duplication: loss / 2.0, jitter };
                let given = stream(&mut world, faults, 1_500_000, rooms);
                match (rooms, loss > 0.0 || jitter > 0) {
                    ([0], _) => assert_eq!(given, 0),
                    // All but the first segment, of which nothing was known.
                    ([_], false) => assert!(given > 1_400_000, "{given}"),
                    _ => assert!(given > 0 && given < 1_500_000, "{given}"),
                }
            }
        }
    }
}

#[test]
fn what_is_taken_leaves_the_window_open_and_no_news_to_be_read() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    assert_eq!(tcp(&mut world, 0, client).write(b"first"), Ok(5));
    world.millis(100);
    assert_eq!(read(&mut world, 1, accepted).0, b"first");
    told(&mut world, 1, accepted);
    let taker = Taker { socket: accepted, rooms: vec![100_000], asked: 0, got: Vec::new(), given: 0 };
    world.hosts[1].taker = Some(taker);
    // More than its window, and nobody reads.
    let mut written = 0;
    while written < 1_000_000 {
        written += tcp(&mut world, 0, client).write(&[7; 10_000]).unwrap_or(0);
        world.millis(1);
    }
    world.millis(500);
    assert_eq!(world.hosts[1].taker.as_ref().map(|taker| taker.given), Some(written));
    assert_eq!(told(&mut world, 1, accepted), (false, false, false));
    assert_eq!(tcp(&mut world, 1, accepted).unread(), 0);
    assert_eq!(tcp(&mut world, 0, client).unacknowledged(), 0);
}

#[test]
fn what_was_changed_on_the_way_is_not_taken() {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, "10.0.0.2:80");
    assert_eq!(tcp(&mut world, 0, client).write(b"first"), Ok(5));
    world.millis(100);
    assert_eq!(read(&mut world, 1, accepted).0, b"first");
    world.trace.clear();
    let taker = Taker { socket: accepted, rooms: vec![100_000], asked: 0, got: Vec::new(), given: 0 };
    world.hosts[1].taker = Some(taker);
    world.faults.loss = 1.0;
    assert_eq!(tcp(&mut world, 0, client).write(b"second"), Ok(6));
    world.run(std::time::Duration::ZERO);
    let (_, frame) = world.trace.first().cloned().expect("a segment");
    let meta = FrameMeta { checksum: ChecksumState::Unknown, ..FrameMeta::default() };
    let mut other = frame.clone();
    *other.last_mut().expect("octets") ^= 1;
    world.hand(1, &other, &meta);
    assert_eq!(world.hosts[1].taker.as_ref().map(|taker| taker.given), Some(0));
    world.hand(1, &frame, &meta);
    assert_eq!(world.hosts[1].taker.as_ref().map(|taker| &taker.got[..]), Some(&b"second"[..]));
}
