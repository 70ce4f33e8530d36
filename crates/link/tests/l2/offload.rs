//! What is left to the kernel and the device: checksums, segmentation, the time of sending.

use crate::common::{LONG, MODES, TYPE, builder, payload, skip, until, veth};
use bypath_link::l2::{Clock, Header, MacAddr, Mode};
use bypath_link::packet::{Config, PacketLink};
use bypath_link::{Error, Link};
use bypath_sys::{clock, netns};
use bypath_wire::FrameMeta;
use bypath_wire::meta::{ChecksumState, Gso, GsoKind};
use std::process::Command;

const IP: usize = 14;
const UDP: usize = IP + 20;
const DATA: usize = UDP + 8;

/// The sum of RFC 1071 over sixteen-bit words, not yet complemented.
fn sum(bytes: &[u8]) -> u16 {
    let mut sum: u32 =
        bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0))).sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

/// A UDP datagram from 10.0.0.1 to 10.0.0.2 in an Ethernet frame, with only the pseudo header's sum.
fn datagram(to: MacAddr, from: MacAddr, data: &[u8]) -> Vec<u8> {
    let mut f = vec![0; DATA];
    f[..6].copy_from_slice(&to.0);
    f[6..12].copy_from_slice(&from.0);
    f[12..14].copy_from_slice(&[0x08, 0x00]);
    f[IP] = 0x45;
    f[IP + 2..IP + 4].copy_from_slice(&((data.len() + 28) as u16).to_be_bytes());
    f[IP + 8] = 64;
    f[IP + 9] = 17;
    f[IP + 12..IP + 20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let header = !sum(&f[IP..UDP]);
    f[IP + 10..IP + 12].copy_from_slice(&header.to_be_bytes());
    let len = ((data.len() + 8) as u16).to_be_bytes();
    f[UDP..UDP + 4].copy_from_slice(&[0x12, 0x34, 0x23, 0x45]);
    f[UDP + 4..UDP + 6].copy_from_slice(&len);
    let pseudo = sum(&[10, 0, 0, 1, 10, 0, 0, 2, 0, 17, len[0], len[1]]);
    f[UDP + 6..UDP + 8].copy_from_slice(&pseudo.to_be_bytes());
    f.extend_from_slice(data);
    f
}

fn send(link: &mut PacketLink, frame: &[u8], meta: FrameMeta) -> bypath_link::Result<()> {
    let mut once = Some(meta);
    link.send(1, &mut |slot| {
        let meta = once.take()?;
        slot[..frame.len()].copy_from_slice(frame);
        Some((frame.len(), meta))
    })?;
    until("a frame that leaves", || link.flush().unwrap() == 0);
    Ok(())
}

fn receive(link: &mut PacketLink) -> (Vec<u8>, FrameMeta) {
    let mut got = None;
    until("a frame", || {
        link.receive(1, &mut |frame, meta| got = Some((frame.to_vec(), *meta))).unwrap();
        got.is_some()
    });
    got.unwrap()
}

const PARTIAL: ChecksumState = ChecksumState::Partial { start: UDP as u16, offset: 6 };

isolated! {
    fn a_super_frame_arrives_whole_or_in_segments() {
        veth();
        netns::add_address("right", "10.0.0.2".parse().unwrap(), 24).unwrap();
        for (what, mode) in MODES {
            for tagged in [false, true] {
                let config = |name: &str| Config { mode, offload: true, ethertypes: vec![0x0800], ..Config::new(name) };
                let mut left = PacketLink::open(&config("left")).unwrap();
                let mut right = PacketLink::open(&config("right")).unwrap();
                assert!(left.capabilities().segmentation && left.obtained().mode == mode, "{:?}", left.obtained());
                let data = payload(5, 20_000);
                let frame = datagram(right.capabilities().mac, left.capabilities().mac, &data);
                let vlan = tagged.then_some(bypath_wire::meta::VlanTag { tpid: 0x8100, pcp: 7, dei: false, vid: 10 });
                let gso = Gso { kind: GsoKind::Udp, size: 1000, header_len: DATA as u16, ecn: false };
                let meta = FrameMeta { checksum: PARTIAL, gso: Some(gso), vlan, ..FrameMeta::default() };
                send(&mut left, &frame, meta).unwrap();
                let (got, facts) = receive(&mut right);
                assert!(got == frame, "{what}");
                assert_eq!((facts.checksum, facts.vlan), (PARTIAL, vlan), "{what}");
                assert_eq!(facts.gso.map(|g| (g.kind, g.size)), Some((GsoKind::Udp, 1000)), "{what}");
            }
        }
    }
}

isolated! {
    fn the_kernel_accepts_what_was_left_to_it() {
        // The other end is the kernel's own UDP, which verifies checksums and sees segments.
        veth();
        netns::add_address("right", "10.0.0.2".parse().unwrap(), 24).unwrap();
        let socket = std::net::UdpSocket::bind("10.0.0.2:9029").unwrap();
        socket.set_read_timeout(Some(LONG)).unwrap();
        for (what, mode) in MODES {
            let config = Config { mode, offload: true, send_only: true, ..Config::new("left") };
            let mut left = PacketLink::open(&config).unwrap();
            let to = bypath_link::Interface::named("right").unwrap().mac;
            let mut whole = payload(6, 3500);
            let mut frame = datagram(to, left.capabilities().mac, &whole);
            let gso = Gso { kind: GsoKind::Udp, size: 1000, header_len: DATA as u16, ecn: false };
            send(&mut left, &frame, FrameMeta { checksum: PARTIAL, gso: Some(gso), ..FrameMeta::default() }).unwrap();
            let mut buffer = [0; 2000];
            for part in whole.chunks(1000) {
                let len = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert!(&buffer[..len] == part, "{what}");
            }
            whole.truncate(800);
            frame = datagram(to, left.capabilities().mac, &whole);
            send(&mut left, &frame, FrameMeta { checksum: PARTIAL, ..FrameMeta::default() }).unwrap();
            let len = socket.recv(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e}"));
            assert!(buffer[..len] == whole[..], "{what}");
        }
    }
}

isolated! {
    fn what_needs_offload_is_refused_without_it() {
        veth();
        for (what, mode) in MODES {
            let mut left = PacketLink::open(&Config { mode, ..Config::new("left") }).unwrap();
            assert!(!left.capabilities().checksum && !left.capabilities().segmentation);
            let frame = datagram(MacAddr::BROADCAST, left.capabilities().mac, &[1; 100]);
            let refused = send(&mut left, &frame, FrameMeta { checksum: PARTIAL, ..FrameMeta::default() });
            assert!(matches!(refused, Err(Error::Invalid(_))), "{what}: {refused:?}");
            assert_eq!((left.statistics().sent, left.statistics().refused), (1, 1));
            send(&mut left, &frame, FrameMeta::default()).unwrap();
        }
    }
}

isolated! {
    fn a_queue_that_knows_times_sends_a_frame_at_its_time() {
        const NAME: &str = "offload::a_queue_that_knows_times_sends_a_frame_at_its_time";
        veth();
        let fq = Command::new("tc").args(["qdisc", "replace", "dev", "left", "root", "fq"]).output();
        if !fq.is_ok_and(|o| o.status.success()) {
            return skip(NAME, "no queueing discipline fq (the kernel's sch_fq, Debian package iproute2)");
        }
        for (what, mode) in [("plain", Mode::PLAIN), ("mmsg", Mode::MMSG)] {
            let mut left = builder("left", mode).send_time(Clock::Monotonic).open().unwrap();
            let mut right = builder("right", mode).open().unwrap();
            assert!(left.obtained().send_time, "{:?}", left.obtained());
            let at = clock::monotonic_ns() + 30_000_000;
            let header = Header { at: Some(at), ..left.header(right.mac()) };
            left.send_with(&header, &[1; 60]).unwrap();
            assert_eq!(right.receive(&mut [0; 60]).unwrap().ethertype, TYPE);
            assert!(clock::monotonic_ns() >= at, "{what}: before its time");
        }
    }
}
