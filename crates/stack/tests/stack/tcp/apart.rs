//! Frames whose payload is told and not written, for links that take them in pieces.

use super::*;
use bypath_stack::config::Config;
use bypath_stack::iface::Offload;
use bypath_wire::FrameMeta;
use bypath_wire::tcp::TcpFlags;

const ALL: Offload = Offload { checksum: true, segmentation: true };
const OCTETS: usize = 100_000;

/// A frame: octets that were written, those that were told, and its facts.
type Said = (Vec<u8>, Vec<u8>, FrameMeta);

/// A connection that has sent octets before, and has written [`OCTETS`] now.
fn begun(remote: &str, offload: Offload) -> (World, SocketId, SocketId) {
    let mut world = World::with(2, 1, &Config::default(), offload, 1500);
    let (client, accepted) = pair(&mut world, remote);
    exchange(&mut world, [(0, client), (1, accepted)], 400_000, 10);
    let octets: Vec<u8> = (0..OCTETS).map(octet).collect();
    assert_eq!(tcp(&mut world, 0, client).write(&octets), Ok(OCTETS));
    (world, client, accepted)
}

/// The next frame of the first host.
fn say(world: &mut World, apart: bool) -> Option<Said> {
    let (now, iface) = (world.now(), world.hosts[0].iface);
    let stack = &mut world.hosts[0].stack;
    let mut room = vec![0; 65_553];
    let (len, behind, meta) = if apart {
        let frame = stack.poll_transmit_apart(now, iface, &mut room)?;
        (frame.len, [frame.behind.0, frame.behind.1].concat(), frame.meta)
    } else {
        let (len, meta) = stack.poll_transmit(now, iface, &mut room)?;
        (len, Vec::new(), meta)
    };
    room.truncate(len);
    Some((room, behind, meta))
}

fn all(world: &mut World, apart: bool) -> Vec<Said> {
    std::iter::from_fn(|| say(world, apart)).collect()
}

#[test]
fn what_is_told_is_what_would_have_been_written() {
    for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
        let (mut world, ..) = begun(remote, ALL);
        let (mut other, client, accepted) = begun(remote, ALL);
        let (whole, apart) = (all(&mut world, false), all(&mut other, true));
        assert!(whole.len() > 1);
        assert_eq!(whole.len(), apart.len());
        for ((frame, _, meta), (head, behind, same)) in whole.iter().zip(&apart) {
            assert!(*frame == [head.as_slice(), behind].concat());
            assert_eq!(meta, same);
        }
        assert!(apart[0].1.len() > 50_000 && apart[0].0.len() < 100);
        let sent = |world: &World| {
            (world.hosts[0].stack.counters().tcp_sent, world.hosts[0].stack.counters().link_sent)
        };
        assert_eq!(sent(&world), sent(&other));
        for (head, behind, _) in apart {
            let meta =
                FrameMeta { checksum: bypath_wire::meta::ChecksumState::Verified, ..FrameMeta::default() };
            other.hand(1, &[head, behind].concat(), &meta);
        }
        other.millis(10);
        let (got, _) = read(&mut other, 1, accepted);
        assert!(got.len() == OCTETS && got.iter().enumerate().all(|(at, found)| *found == octet(at)));
        assert_eq!(tcp(&mut other, 0, client).statistics().map(|s| s.unacknowledged), Some(0));
    }
}

#[test]
fn what_is_short_and_what_is_summed_here_is_written() {
    let (mut world, ..) = begun("10.0.0.2:80", Offload::default());
    let said = all(&mut world, true);
    assert!(said.len() > 16 && said.iter().all(|(_, behind, _)| behind.is_empty()));
    let (mut world, ..) = begun("10.0.0.2:80", Offload { segmentation: false, ..ALL });
    assert!(all(&mut world, true).iter().all(|(_, behind, _)| behind.is_empty()));
    let (mut world, client, accepted) = begun("10.0.0.2:80", ALL);
    world.secs(1);
    assert_eq!(read(&mut world, 1, accepted).0.len(), OCTETS);
    world.secs(1);
    assert_eq!(tcp(&mut world, 0, client).write(&[1; 4000]), Ok(4000));
    let (frame, behind, _) = say(&mut world, true).expect("a frame");
    assert!(frame.len() > 4000 && behind.is_empty());
}

#[test]
fn what_is_sent_once_more_is_told_once_more() {
    let (mut world, client, _) = begun("10.0.0.2:80", ALL);
    let lost = all(&mut world, true);
    assert!(!lost.is_empty());
    // None of them arrives, and nobody says so.
    let due = world.hosts[0].stack.poll_timeout().expect("a timer");
    let mut again = Vec::new();
    for _ in 0..20 {
        let due = world.hosts[0].stack.poll_timeout().unwrap_or(due);
        world.hosts[0].stack.handle_timeout(due);
        let iface = world.hosts[0].iface;
        let mut room = vec![0; 65_553];
        while let Some(frame) = world.hosts[0].stack.poll_transmit_apart(due, iface, &mut room) {
            again.push((frame.len, [frame.behind.0, frame.behind.1].concat()));
        }
    }
    let statistics = tcp(&mut world, 0, client).statistics().expect("a connection");
    assert!(statistics.octets_again > 0 && !again.is_empty());
    // Each is a part of what was told before, from its place on.
    let octets: Vec<u8> = (0..OCTETS).map(octet).collect();
    for (len, behind) in again.iter().filter(|(_, behind)| !behind.is_empty()) {
        assert!(*len < 100 && octets.windows(behind.len()).any(|part| part == behind));
    }
}

#[test]
fn behind_a_frame_without_payload_nothing_of_the_last_one_follows() {
    let (mut world, client, _) = begun("10.0.0.2:80", ALL);
    assert!(!say(&mut world, true).expect("a frame").1.is_empty());
    tcp(&mut world, 0, client).abort();
    let (frame, behind, _) = say(&mut world, true).expect("a reset");
    assert!(behind.is_empty());
    assert!(u16::from(frame[14 + 20 + 13]) & TcpFlags::RST.bits() != 0);
    assert!(say(&mut world, true).is_none());
}
