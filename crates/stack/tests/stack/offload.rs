//! Checksums and segmentation that the link does, and frames that it put together.

use crate::world::World;
use bypath_stack::SendTo;
use bypath_stack::config::Config;
use bypath_stack::iface::Offload;
use bypath_stack::socket::SendError;
use bypath_wire::meta::{ChecksumState, Gso, GsoKind};
use bypath_wire::{Addresses, FrameMeta, MacAddr, udp};

const CHECKSUM: Offload = Offload { checksum: true, segmentation: false };
const ALL: Offload = Offload { checksum: true, segmentation: true };

fn message(to: &str, segment: u16) -> SendTo {
    SendTo { to: Some(to.parse().unwrap()), segment: Some(segment), ..SendTo::default() }
}

#[test]
fn a_link_that_sums_gets_the_pseudo_header_and_where_to_put_the_sum() {
    for (to, headers) in [("10.0.0.2:7", 34usize), ("[fd00::2]:7", 54)] {
        let mut world = World::with(2, 1, &Config::default(), CHECKSUM, 1500);
        let (server, client) = (world.bound(1, "[::]:7"), world.bound(0, "[::]:9"));
        world.send_to(0, client, b"hello", to);
        world.millis(10);
        assert_eq!(world.received(1, server).len(), 1);
        let iface = world.hosts[0].iface;
        let now = world.now();
        world.send_to(0, client, b"again", to);
        let mut room = [0; 2000];
        let (len, meta) = world.hosts[0].stack.poll_transmit(now, iface, &mut room).unwrap();
        assert_eq!(meta.checksum, ChecksumState::Partial { start: headers as u16, offset: 6 });
        // What the device does.
        let frame = &mut room[..len];
        let sum = bypath_wire::checksum::checksum(&frame[headers..]);
        frame[headers + 6..headers + 8].copy_from_slice(&sum.to_be_bytes());
        let addresses = if headers == 34 {
            Addresses::V4 { source: "10.0.0.1".parse().unwrap(), destination: "10.0.0.2".parse().unwrap() }
        } else {
            Addresses::V6 { source: "fd00::1".parse().unwrap(), destination: "fd00::2".parse().unwrap() }
        };
        assert_eq!(udp::verify(&addresses, &frame[headers..]), udp::UdpChecksum::Fits);
    }
}

#[test]
fn what_is_cut_into_fragments_is_summed_here_in_any_case() {
    let mut world = World::with(2, 1, &Config::default(), ALL, 1500);
    let (server, client) = (world.bound(1, "[::]:7"), world.bound(0, "[::]:9"));
    world.send_to(0, client, &[7; 5000], "10.0.0.2:7");
    world.millis(10);
    assert_eq!(world.received(1, server), [("10.0.0.1:9".parse().unwrap(), vec![7; 5000])]);
}

#[test]
fn several_datagrams_in_one_call_arrive_as_several() {
    let octets: Vec<u8> = (0..10_500).map(|n| (n / 100) as u8).collect();
    let mut world = World::new(2, 1);
    let (server, client) = (world.bound(1, "[::]:7"), world.bound(0, "[::]:9"));
    world.udp(0, client).send_with(&octets, &message("10.0.0.2:7", 1000)).unwrap();
    world.millis(10);
    let got: Vec<Vec<u8>> = world.received(1, server).into_iter().map(|(_, octets)| octets).collect();
    assert_eq!(got.len(), 11);
    assert_eq!(got.concat(), octets);
    assert!(got[..10].iter().all(|one| one.len() == 1000));
    let mut send =
        |octets: &[u8], segment| world.udp(0, client).send_with(octets, &message("10.0.0.2:7", segment));
    assert_eq!(send(&octets, 0), Err(SendError::Segment));
    assert_eq!(send(&octets, 1473), Err(SendError::Segment));
    assert_eq!(send(&octets[..1], 5), Ok(()));
    assert!(matches!(send(&[0; 65_508], 1000), Err(SendError::TooLong { .. })));
}

#[test]
fn a_link_that_cuts_gets_one_frame() {
    let mut world = World::with(1, 1, &Config::default(), ALL, 1500);
    let iface = world.hosts[0].iface;
    for (to, header_len) in [("10.0.0.2:7", 42), ("[fd00::2]:7", 62)] {
        let ip = to.parse::<std::net::SocketAddr>().unwrap().ip();
        world.hosts[0].stack.set_neighbor(iface, ip, MacAddr([2, 0, 0, 0, 0, 2]));
        let client = world.bound(0, "[::]:0");
        let now = world.now();
        world.udp(0, client).send_with(&[9; 60_000], &message(to, 1400)).unwrap();
        let mut room = vec![0; 65_553];
        let (len, meta) = world.hosts[0].stack.poll_transmit(now, iface, &mut room).unwrap();
        assert_eq!(len, header_len + 60_000);
        let gso = Gso { kind: GsoKind::Udp, size: 1400, header_len: header_len as u16, ecn: false };
        assert_eq!(meta.gso, Some(gso));
        let start = header_len as u16 - 8;
        assert_eq!(meta.checksum, ChecksumState::Partial { start, offset: 6 });
        assert!(world.hosts[0].stack.poll_transmit(now, iface, &mut room).is_none());
        // The other end, whose link does not cut it: several datagrams, or one to who asks for it.
        let mut peer = World::with(2, 1, &Config::default(), ALL, 1500);
        let server = peer.bound(1, "[::]:7");
        peer.hand(1, &room[..len], &meta);
        let got = peer.received(1, server);
        assert_eq!((got.len(), got[0].1.len(), got[42].1.len()), (43, 1400, 60_000 - 42 * 1400));
        let mut options = peer.udp(1, server).options();
        options.gro = true;
        peer.udp(1, server).set_options(options);
        peer.hand(1, &room[..len], &meta);
        let mut all = vec![0; 65_536];
        let got = peer.udp(1, server).receive(&mut all).unwrap();
        assert_eq!((got.len, got.datagram.segment), (60_000, Some(1400)));
    }
}

/// Linux's devices refuse a frame of more than 128 datagrams, and older ones of more than 64.
#[test]
fn a_link_that_cuts_gets_no_more_datagrams_in_a_frame_than_it_takes() {
    let mut world = World::with(1, 1, &Config::default(), ALL, 1500);
    let iface = world.hosts[0].iface;
    world.hosts[0].stack.set_neighbor(iface, "10.0.0.2".parse().unwrap(), MacAddr([2, 0, 0, 0, 0, 2]));
    let client = world.bound(0, "[::]:0");
    let now = world.now();
    for (octets, segment, frames) in [
        (6400, 100, vec![64]),
        (6410, 100, vec![64, 1]),
        (12_800, 100, vec![64, 64]),
        // What counts for less than a datagram does beside its octets is one.
        (128, 1, vec![1; 128]),
        (126, 63, vec![1; 2]),
        (128, 64, vec![2]),
    ] {
        world.udp(0, client).send_with(&vec![9; octets], &message("10.0.0.2:7", segment)).unwrap();
        let mut room = vec![0; 65_553];
        let sent = core::iter::from_fn(|| world.hosts[0].stack.poll_transmit(now, iface, &mut room));
        let cut: Vec<_> = sent.map(|(len, meta)| (len, meta.gso.map(|gso| gso.size))).collect();
        let pieces =
            |(len, size): &(usize, Option<u16>)| size.map_or(1, |size| (len - 42).div_ceil(size.into()));
        assert_eq!(cut.iter().map(pieces).collect::<Vec<_>>(), frames);
        assert_eq!(cut.iter().map(|(len, _)| len - 42).sum::<usize>(), octets);
    }
    // As Linux has it: of one send no more.
    for segment in [1, 100] {
        let octets = vec![9; usize::from(segment) * 128 + 1];
        let more = world.udp(0, client).send_with(&octets, &message("10.0.0.2:7", segment));
        assert_eq!(more, Err(SendError::Segment));
    }
}

#[test]
fn what_the_device_looked_at_is_not_summed_again() {
    let mut world = World::new(1, 1);
    let server = world.bound(0, "[::]:7");
    let mut frame = crate::reach::frame(world.hosts[0].mac, "10.0.0.9", "10.0.0.1");
    frame[14 + 20 + 6] ^= 1;
    world.hand(0, &frame, &FrameMeta::default());
    assert_eq!(world.count(0, "udp_drop_checksum"), 1);
    world.hand(0, &frame, &FrameMeta { checksum: ChecksumState::Verified, ..FrameMeta::default() });
    assert_eq!(world.received(0, server).len(), 1);
}
