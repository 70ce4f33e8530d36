//! Devices as links: packets and frames with their facts, both ways.

use crate::common::{LONG, device, ip, kernel, ours, payload};
use bypath_link::tun::{Device, Offloads};
use bypath_link::{Apart, Error, FrameMeta, Link, Medium, Result, Source};
use bypath_wire::meta::{Addressed, ChecksumState, Gso, GsoKind, VlanTag};
use bypath_wire::{
    EtherType, EthernetHeader, Headers, IpProtocol, Ipv4Header, MacAddr, Network, Transport, UdpHeader,
};

fn send(link: &mut Device, frame: &[u8], meta: FrameMeta) -> Result<()> {
    let mut once = Some(meta);
    assert_eq!(
        link.send(5, &mut |slot| {
            let meta = once.take()?;
            slot[..frame.len()].copy_from_slice(frame);
            Some((frame.len(), meta))
        })?,
        1
    );
    assert_eq!(link.flush(), Ok(0));
    Ok(())
}

/// Frames that lie in three pieces.
struct Cut<'a> {
    frames: Vec<(&'a [u8], FrameMeta)>,
    /// Where the second and the third one begin.
    at: (usize, usize),
}

impl Source for Cut<'_> {
    fn next(&mut self, room: &mut [u8]) -> Option<Apart<'_>> {
        let (frame, meta) = self.frames.pop()?;
        let (head, end) = frame.split_at(self.at.0);
        room[..head.len()].copy_from_slice(head);
        Some(Apart { len: head.len(), behind: end.split_at(self.at.1 - self.at.0), meta })
    }
}

/// Waits for a frame that `wanted` takes; others are the kernel's own (neighbour discovery, group reports).
fn receive(link: &mut Device, wanted: impl Fn(&[u8]) -> bool) -> (Vec<u8>, FrameMeta) {
    loop {
        assert!(link.wait(Some(LONG)).unwrap(), "nothing arrived");
        let mut got = None;
        link.receive(1, &mut |frame, meta| got = Some((frame.to_vec(), *meta))).unwrap();
        if let Some(found) = got.filter(|(frame, _)| wanted(frame)) {
            return found;
        }
    }
}

/// A datagram from our end to the kernel's.
fn packet(port: u16, data: &[u8], link: Option<EthernetHeader>) -> Vec<u8> {
    let std::net::IpAddr::V4(source) = ours(0).ip() else { unreachable!() };
    let std::net::IpAddr::V4(destination) = ip("10.9.0.1") else { unreachable!() };
    let headers = Headers {
        link,
        network: Network::V4(Ipv4Header::new(source, destination, IpProtocol::UDP)),
        transport: Transport::Udp(UdpHeader { source_port: 7000, destination_port: port }),
    };
    let mut frame = vec![0; 65_600];
    let len = headers.emit(&mut frame, data).unwrap();
    frame.truncate(len);
    frame
}

/// What a socket receives next.
fn taken(socket: &std::net::UdpSocket) -> Vec<u8> {
    let mut buffer = vec![0; 65_536];
    let len = socket.recv(&mut buffer).unwrap();
    buffer.truncate(len);
    buffer
}

/// In place of the checksum, the pseudo header's sum.
fn unfinished(packet: &mut [u8], at: usize) -> ChecksumState {
    let (header, datagram) = packet[at..].split_at_mut(20);
    let (ip, _) = Ipv4Header::parse_header(header).unwrap();
    bypath_wire::udp::fill_partial(&ip.addresses(), datagram);
    ChecksumState::Partial { start: at as u16 + 20, offset: 6 }
}

isolated! {
    fn packets_leave_and_arrive_with_what_was_left_to_the_other_side() {
        let mut link = device(1500).open().unwrap();
        let socket = kernel(0);
        let port = socket.local_addr().unwrap().port();
            // Ready, with a checksum to be computed, and a super-packet.
        let data = payload(1, 1000);
        send(&mut link, &packet(port, &data, None), FrameMeta::default()).unwrap();
        assert!(taken(&socket) == data[..]);
        let mut frame = packet(port, &data, None);
        let checksum = unfinished(&mut frame, 0);
        send(&mut link, &frame, FrameMeta { checksum, ..FrameMeta::default() }).unwrap();
        assert!(taken(&socket) == data[..]);
        let data = payload(2, 20_000);
        let mut frame = packet(port, &data, None);
        let checksum = unfinished(&mut frame, 0);
        let gso = Some(Gso { kind: GsoKind::Udp, size: 1400, header_len: 28, ecn: false });
        send(&mut link, &frame, FrameMeta { checksum, gso, ..FrameMeta::default() }).unwrap();
        for part in data.chunks(1400) {
            assert!(taken(&socket) == *part);
        }
        assert_eq!((link.statistics().sent, link.statistics().refused), (3, 0));
        // What comes from the kernel has no checksum yet.
        socket.send_to(&data[..1000], ours(0)).unwrap();
        let udp = |frame: &[u8]| frame.len() > 28 && frame[0] == 0x45 && frame[9] == 17;
        let (frame, meta) = receive(&mut link, udp);
        assert_eq!(meta.checksum, ChecksumState::Partial { start: 20, offset: 6 });
        assert_eq!((meta.gso, meta.addressed), (None, Addressed::Host));
        assert!(frame[28..] == data[..1000]);
        drop(link);
        // Without offloads it has.
        let mut link = device(1500).offloads(Offloads::NONE).open().unwrap();
        let socket = kernel(0);
        socket.send_to(&data[..1000], ours(0)).unwrap();
        let (frame, meta) = receive(&mut link, udp);
        assert_eq!(meta.checksum, ChecksumState::Unknown);
        let (ip, datagram) = Ipv4Header::parse(&frame).unwrap();
        assert_eq!(bypath_wire::udp::verify(&ip.addresses(), datagram), bypath_wire::udp::UdpChecksum::Fits);
        for (checksum, gso) in [(checksum, None), (ChecksumState::Unknown, gso)] {
            let refused = send(&mut link, &frame, FrameMeta { checksum, gso, ..FrameMeta::default() });
            assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
        }
    }
}

isolated! {
    fn a_tap_device_carries_frames_with_tags_and_addresses() {
        let mut link = Device::tap("tap%d").address(ip("10.9.0.1"), 24).open().unwrap();
        let kernels = bypath_link::Interface::named("tap0").unwrap().mac;
        let own = link.capabilities().mac;
        assert_eq!(link.capabilities().medium, Medium::Ethernet);
        assert!(own != kernels && !own.is_multicast());
        let socket = kernel(0);
        let port = socket.local_addr().unwrap().port();
        // The kernel asks for our address, everybody; and gets an answer.
        socket.send_to(b"who", ours(0)).unwrap();
        let (asked, meta) = receive(&mut link, |f| f[12..14] == [0x08, 0x06]);
        assert_eq!(meta.addressed, Addressed::Broadcast);
        let mut answer = asked.clone();
        answer[..6].copy_from_slice(&kernels.0);
        answer[6..12].copy_from_slice(&own.0);
        answer[21] = 2;
        answer[22..28].copy_from_slice(&own.0);
        answer[28..32].copy_from_slice(&asked[38..42]);
        answer[32..42].copy_from_slice(&asked[22..32]);
        send(&mut link, &answer, FrameMeta::default()).unwrap();
        let (frame, meta) = receive(&mut link, |f| f[12..14] == [0x08, 0x00]);
        assert_eq!((meta.addressed, &frame[42..45]), (Addressed::Host, &b"who"[..]));
        assert_eq!(meta.checksum, ChecksumState::Partial { start: 34, offset: 6 });
        // Ours, and one for somebody else.
        let header = |to| EthernetHeader::new(to, own, EtherType::IPV4);
        let data = payload(3, 1472);
        send(&mut link, &packet(port, &data, Some(header(MacAddr([2, 0, 0, 0, 0, 9])))), FrameMeta::default()).unwrap();
        send(&mut link, &packet(port, &data, Some(header(kernels))), FrameMeta::default()).unwrap();
        assert!(taken(&socket) == data[..]);
        // A tag beside the frame is put in: a packet socket sees it.
        let config = bypath_link::packet::Config { foreign: true, ..bypath_link::packet::Config::new("tap0") };
        let mut look = bypath_link::packet::PacketLink::open(&config).unwrap();
        let vlan = Some(VlanTag { tpid: 0x8100, pcp: 5, dei: false, vid: 77 });
        send(&mut link, &packet(port, &data, Some(header(kernels))), FrameMeta { vlan, ..FrameMeta::default() }).unwrap();
        let mut seen = Vec::new();
        look.receive(10, &mut |_, meta| seen.push(meta.vlan)).unwrap();
        assert!(seen.contains(&vlan), "{seen:?}");
    }
}

isolated! {
    fn what_is_too_long_or_too_short_is_refused_and_counted() {
        let mut link = device(1500).open().unwrap();
        let long = send(&mut link, &[0x45; 1501], FrameMeta::default()).unwrap_err();
        assert_eq!(long, Error::TooLong { interface: "tun0".to_owned(), payload: 1501, mtu: 1500 });
        assert!(matches!(send(&mut link, &[], FrameMeta::default()), Err(Error::TooShort { len: 0 })));
        let vlan = Some(VlanTag { tpid: 0x8100, pcp: 0, dei: false, vid: 1 });
        let tagged = send(&mut link, &[0x45; 100], FrameMeta { vlan, ..FrameMeta::default() });
        assert!(matches!(tagged, Err(Error::Invalid(_))));
        // What is no packet at all the kernel refuses.
        let nonsense = send(&mut link, &[0x15; 100], FrameMeta::default());
        assert!(matches!(nonsense, Err(Error::System { code: libc::EINVAL, .. })), "{nonsense:?}");
        let counts = link.statistics();
        assert_eq!((counts.sent, counts.refused), (4, 4));
        let mut tap = Device::tap("tap%d").open().unwrap();
        assert!(matches!(send(&mut tap, &[1; 13], FrameMeta::default()), Err(Error::TooShort { len: 13 })));
        let long = send(&mut tap, &[0; 1515], FrameMeta::default()).unwrap_err();
        assert_eq!(long, Error::TooLong { interface: "tap0".to_owned(), payload: 1501, mtu: 1500 });
        link.set_mtu(2000).unwrap();
        send(&mut link, &packet(9, &[1; 1972], None), FrameMeta::default()).unwrap();
    }
}

isolated! {
    fn a_frame_in_pieces_is_one_frame() {
        let mut link = device(1500).open().unwrap();
        let socket = kernel(0);
        let port = socket.local_addr().unwrap().port();
        let data = payload(3, 20_000);
        let mut long = packet(port, &data, None);
        let checksum = unfinished(&mut long, 0);
        let gso = Some(Gso { kind: GsoKind::Udp, size: 1400, header_len: 28, ecn: false });
        let short = packet(port, &data[..1000], None);
        for at in [(28, 10_000), (28, 28), (40, 20_028)] {
            let frames = vec![(long.as_slice(), FrameMeta { checksum, gso, ..FrameMeta::default() })];
            assert_eq!(link.send_apart(5, &mut Cut { frames, at }), Ok(1));
            for part in data.chunks(1400) {
                assert!(taken(&socket) == *part);
            }
        }
        let plain = FrameMeta::default();
        for at in [(28, 500), (28, 1028), (1028, 1028)] {
            let frames = vec![(short.as_slice(), plain); 7];
            assert_eq!(link.send_apart(5, &mut Cut { frames, at }), Ok(5));
            (0..5).for_each(|_| assert!(taken(&socket) == data[..1000]));
        }
        assert_eq!((link.statistics().sent, link.statistics().refused), (18, 0));
        assert_eq!(link.statistics().sent_octets, 3 * 20_028 + 15 * 1028);
        // Longer than the link takes, though its beginning is not.
        let long = packet(port, &data[..1600], None);
        let frames = vec![(long.as_slice(), plain)];
        let refused = link.send_apart(5, &mut Cut { frames, at: (28, 28) });
        assert!(matches!(refused, Err(Error::TooLong { payload: 1628, mtu: 1500, .. })), "{refused:?}");
        // Nothing takes it while the interface is down.
        link.set_up(false).unwrap();
        let frames = vec![(short.as_slice(), plain)];
        let refused = link.send_apart(5, &mut Cut { frames, at: (28, 28) });
        assert!(matches!(refused, Err(Error::Down { .. })), "{refused:?}");
        assert_eq!((link.statistics().sent, link.statistics().refused), (20, 2));
    }
}
