//! What is missing, forbidden, taken or removed, and what is said about it.

use crate::common::{FAMILIES, device, ip, kernel, ours, over, payload};
use bypath_link::tun::{Checksum, Device, Mode, Offloads, Refused, Udp};
use bypath_link::{Error, Link};
use bypath_wire::ipv6_ext::FragmentHeader;
use bypath_wire::{Addresses, Headers, IpProtocol, Ipv4Header, Ipv6Header, Network, Transport, UdpHeader};
use std::net::IpAddr;
use std::time::Duration;

fn names() -> Vec<String> {
    bypath_link::interface::list().unwrap().into_iter().map(|i| i.name).collect()
}

fn refused(opened: Result<Device, Error>) -> Refused {
    match opened {
        Err(Error::Tun(refused)) => refused,
        other => panic!("{other:?}"),
    }
}

isolated! {
    fn names_that_are_taken_or_of_another_kind() {
        let _first = Device::tun("first").open().unwrap();
        bypath_sys::netns::veth("left", "right", None).unwrap();
        for name in ["first", "left", "lo"] {
            let e = refused(Device::tun(name).open());
            assert_eq!(e, Refused::Taken { interface: name.to_owned() });
            assert!(e.to_string().contains("tun%d"), "{e}");
        }
        for (name, builder) in [("first", Device::tap("first")), ("left", Device::tap("left")), ("lo", Device::tun("lo"))] {
            let e = refused(builder.attach().open());
            assert!(matches!(&e, Refused::OtherKind { interface, .. } if interface == name), "{e:?}");
        }
        let busy = refused(Device::tun("first").attach().open());
        assert_eq!(busy, Refused::Busy { interface: "first".to_owned() });
        let queues = Device::tun("first").attach().open_queues(2).map(|_| ()).unwrap_err();
        assert!(matches!(queues, Error::Tun(Refused::Busy { .. })), "{queues:?}");
        let unknown = Device::tun("nobody").attach().open().unwrap_err();
        assert!(matches!(unknown, Error::Unknown { .. }), "{unknown:?}");
        let most = Device::tun("most").open_queues(257).map(|_| ()).unwrap_err();
        assert!(matches!(most, Error::Tun(Refused::Queues { asked: 257, .. })), "{most:?}");
        assert_eq!(names(), ["lo", "first", "right", "left"]);
    }
}

isolated! {
    fn what_fails_on_the_way_leaves_nothing_behind() {
        for builder in [
            Device::tun("gone").mtu(67),
            Device::tun("gone").mtu(65_536),
            Device::tap("gone").mtu(65_536),
            Device::tun("gone").persistent(true).owner(4_000_000_000),
            Device::tun("gone").address(ip("10.0.0.1"), 24).address(ip("10.0.0.1"), 24),
        ] {
            let e = refused(builder.open());
            assert!(matches!(&e, Refused::Setting { interface, .. } if interface == "gone"), "{e:?}");
            assert_eq!(names(), ["lo"], "{e}");
        }
        let prefix = Device::tun("gone").address(ip("10.0.0.1"), 33).open().unwrap_err();
        assert!(matches!(prefix, Error::Invalid(_)), "{prefix:?}");
    }
}

isolated! {
    fn without_the_capability_the_error_says_how_to_get_it() {
        drop(Device::tun("mine").persistent(true).open().unwrap());
        // Capabilities are a thread's own.
        let seen = std::thread::spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective -= rustix::thread::CapabilitySet::NET_ADMIN;
            rustix::thread::set_capabilities(None, sets).unwrap();
            let made = refused(Device::tun("new").open());
            // Nobody owns it, so nobody is kept from it but by its settings.
            let attached = Device::tun("mine").attach().up(false).open().map(|_| ());
            (made, attached)
        });
        let (made, attached) = seen.join().unwrap();
        assert!(matches!(made, Refused::NotAllowed { .. }), "{made:?}");
        for way in ["CAP_NET_ADMIN", "unshare", "ip tuntap add new mode tun user"] {
            assert!(made.to_string().contains(way), "{made}");
        }
        attached.unwrap();
    }
}

isolated! {
    fn a_node_that_may_not_be_opened_is_named() {
        let file = std::env::temp_dir().join(format!("bypath-tun-{}", std::process::id()));
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o0)).unwrap();
        let path = file.to_str().unwrap().to_owned();
        let seen = std::thread::spawn(move || {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective -= rustix::thread::CapabilitySet::DAC_OVERRIDE;
            rustix::thread::set_capabilities(None, sets).unwrap();
            refused(Device::tun("new").path(&path).open())
        });
        let seen = seen.join();
        std::fs::remove_file(&file).unwrap();
        let seen = seen.unwrap();
        assert!(matches!(seen, Refused::Forbidden { .. }), "{seen:?}");
        assert!(seen.to_string().contains("chmod 0666"), "{seen}");
    }
}

isolated! {
    fn one_that_goes_down_or_is_removed_says_so() {
        let mut udp = over(device(1500).open().unwrap(), 0, |b| b);
        let to = kernel(0).local_addr().unwrap();
        udp.device().set_up(false).unwrap();
        let down = udp.send(to, b"hello").unwrap_err();
        assert_eq!(down, Error::Down { interface: "tun0".to_owned() });
        udp.device().set_up(true).unwrap();
        udp.send(to, b"hello").unwrap();
        bypath_sys::netns::remove("tun0").unwrap();
        for _ in 0..2 {
            assert_eq!(udp.send(to, b"hello"), Err(Error::Gone { interface: "tun0".to_owned() }));
            assert_eq!(udp.receive(&mut [0; 10]), Err(Error::Gone { interface: "tun0".to_owned() }));
            assert!(matches!(udp.device().wait(Some(Duration::from_secs(5))), Err(Error::Gone { .. })));
        }
        assert_eq!((udp.statistics().sent, udp.statistics().refused), (4, 3));
    }
}

isolated! {
    fn values_that_cannot_be() {
        let open = |with: &dyn Fn(bypath_link::tun::udp::Builder) -> bypath_link::tun::udp::Builder, local: &str| {
            let device = device(1500).open().unwrap();
            with(Udp::over(device, local.parse().unwrap())).open().map(|_| ()).unwrap_err()
        };
        assert!(matches!(open(&|b| b.ttl(0), "10.9.0.2:7000"), Error::Invalid(_)));
        assert!(matches!(open(&|b| b.dscp(64), "10.9.0.2:7000"), Error::Invalid(_)));
        for local in ["10.9.0.2:0", "0.0.0.0:7000", "[::]:7000", "224.0.0.1:7000"] {
            assert!(matches!(open(&|b| b, local), Error::Invalid(_)), "{local}");
        }
        assert!(matches!(open(&|b| b.checksum(Checksum::Omitted), "[fd09::2]:7000"), Error::Invalid(_)));
        assert!(matches!(open(&|b| b.checksum(Checksum::Own).mode(Mode::Super), "10.9.0.2:7000"), Error::Invalid(_)));
        let small = open(&|b| b.path_mtu(1279), "[fd09::2]:7000");
        assert!(matches!(small, Error::Tun(Refused::MtuTooSmall { least: 1280, .. })), "{small:?}");
        let tap = Device::tap("tap%d").open().unwrap();
        assert!(matches!(Udp::over(tap, ours(0)).open(), Err(Error::Invalid(_))));
        let mut udp = over(device(1500).open().unwrap(), 0, |b| b);
        let other = udp.send("[fd09::1]:9".parse().unwrap(), b"").unwrap_err();
        assert!(matches!(other, Error::Invalid(_)), "{other:?}");
        assert!(matches!(udp.send_cut("10.9.0.1:9".parse().unwrap(), b"1", 0), Err(Error::Invalid(_))));
    }
}

isolated! {
    fn without_super_packets_the_mode_is_refused_and_the_others_work() {
        let offloads = Offloads { udp: false, ..Offloads::ALL };
        let refused = Udp::over(device(1500).offloads(offloads).open().unwrap(), ours(0)).mode(Mode::Super).open();
        assert!(matches!(refused, Err(Error::Tun(Refused::NoSuperPackets { .. }))));
        let mut udp = over(device(1500).offloads(offloads).open().unwrap(), 0, |b| b);
        assert!(udp.set_mode(Mode::Super).is_err());
        let to = kernel(0);
        udp.send_batch(to.local_addr().unwrap(), [&b"one"[..], b"two"]).unwrap();
        let mut buffer = [0; 10];
        assert_eq!(to.recv(&mut buffer).unwrap(), 3);
    }
}

isolated! {
    fn packets_of_strangers_are_counted_and_harm_nobody() {
        // Whatever is sent through the interface comes to us: from a packet socket, anything can.
        let mut udp = over(device(1500).offloads(Offloads::NONE).open().unwrap(), 0, |b| b);
        let socket = kernel(0);
        socket.send_to(b"first", ours(0)).unwrap();
        let mut other = ours(0);
        other.set_port(7001);
        socket.send_to(b"another port", other).unwrap();
        other.set_ip(ip("10.9.0.77"));
        socket.send_to(b"another host", other).unwrap();
        socket.send_to(b"last", ours(0)).unwrap();
        let mut seen = Vec::new();
        while seen.len() < 2 {
            udp.receive_batch(10, |d| seen.push(d.payload.to_vec())).unwrap();
        }
        assert_eq!(seen, [b"first".to_vec(), b"last".to_vec()]);
        assert!(udp.counts().others >= 2, "{:?}", udp.counts());
        assert_eq!(udp.device().statistics().cut, 0);
    }
}

/// Sends octets through the interface as if the kernel had made a packet of them.
fn inject(socket: i32, index: u32, octets: &[u8]) {
    // struct sockaddr_ll: family, protocol, index; a TUN device has no addresses.
    let mut address = [0u8; 20];
    address[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
    let kind: u16 = if octets.first().is_some_and(|b| b >> 4 == 6) { 0x86dd } else { 0x0800 };
    address[2..4].copy_from_slice(&kind.to_be_bytes());
    address[4..8].copy_from_slice(&index.to_ne_bytes());
    // SAFETY: the kernel reads the octets, and the address of this length.
    let sent = unsafe {
        libc::sendto(
            socket,
            octets.as_ptr().cast(),
            octets.len(),
            0,
            address.as_ptr().cast(),
            address.len() as u32,
        )
    };
    assert_eq!(sent, octets.len() as isize, "{}", std::io::Error::last_os_error());
}

/// A datagram to us, or a first fragment of one.
fn whole(family: usize, fragment: bool) -> Vec<u8> {
    let udp = UdpHeader { source_port: 5, destination_port: 7000 };
    let data = payload(1, 100);
    let mut packet = vec![0; 200];
    let extra = if fragment { 8 } else { 0 };
    let at = if family == 0 {
        let mut header = Ipv4Header::new([10, 9, 0, 1].into(), [10, 9, 0, 2].into(), IpProtocol::UDP);
        (header.more_fragments, header.identification) = (fragment, 7);
        header.emit(&mut packet, 8 + data.len()).unwrap()
    } else {
        let [from, to] = ["fd09::1", "fd09::2"].map(|text| text.parse().unwrap());
        let next = if fragment { IpProtocol::FRAGMENT } else { IpProtocol::UDP };
        let at = Ipv6Header::new(from, to, next).emit(&mut packet, extra + 8 + data.len()).unwrap();
        if fragment {
            let header = FragmentHeader { offset: 0, more: true, identification: 7 };
            header.emit(&mut packet[at..], IpProtocol::UDP).unwrap();
        }
        at + extra
    };
    udp.emit(&mut packet[at..], data.len()).unwrap();
    packet[at + 8..at + 8 + data.len()].copy_from_slice(&data);
    let [from, to] = [FAMILIES[family].0, FAMILIES[family].1].map(ip);
    let addresses = match (from, to) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => Addresses::V4 { source, destination },
        (IpAddr::V6(source), IpAddr::V6(destination)) => Addresses::V6 { source, destination },
        _ => unreachable!("of one family"),
    };
    bypath_wire::udp::fill(&addresses, &mut packet[at..at + 8 + data.len()]);
    packet.truncate(at + 8 + data.len());
    packet
}

isolated! {
    fn packets_that_are_not_what_they_say_are_counted_and_harm_nobody() {
        // SAFETY: integers only.
        let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
        assert!(raw >= 0);
        let mut state = 88_172_645_463_325_252u64;
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state as usize
        };
        for family in 0..FAMILIES.len() {
            let mut udp = over(device(1500).offloads(Offloads::NONE).open().unwrap(), family, |b| b);
            udp.set_timeout(Some(Duration::ZERO));
            let index = udp.device().index();
            let mut given = 0u64;
            const ROUNDS: u64 = 20_000;
            for _ in 0..ROUNDS {
                let mut packet = whole(family, random().is_multiple_of(8));
                let len = packet.len();
                for _ in 0..random() % 4 {
                    let at = random() % if family == 0 { 30 } else { 58 };
                    packet[at] = random() as u8;
                }
                packet.truncate(len - if random().is_multiple_of(4) { random() % (len - 1) } else { 0 });
                // Half of the changed headers get a checksum that fits.
                if family == 0 && packet.len() >= 20 && random().is_multiple_of(2) {
                    packet[10..12].fill(0);
                    let head = usize::from(packet[0] & 15) * 4;
                    let check = bypath_wire::checksum::checksum(&packet[..head.min(packet.len())]);
                    packet[10..12].copy_from_slice(&check.to_be_bytes());
                }
                inject(raw, index, &packet);
                given += udp.receive_batch(10, |d| assert!(d.payload.len() <= 200)).unwrap_or(0) as u64;
            }
            let counts = udp.counts();
            let read = udp.statistics().received;
            // A datagram that was put together was counted by its fragments.
            let seen = given + counts.others + counts.malformed + counts.corrupt + counts.fragments;
            assert!(read <= seen && seen <= read + counts.fragments, "{read} {given} {counts:?}");
            assert!(given > ROUNDS / 10 && counts.malformed > ROUNDS / 20 && counts.corrupt > 100, "{given} {counts:?}");
            assert!(counts.fragments > 100 && counts.others > 100, "{counts:?}");
        }
        // SAFETY: closes a number of our own.
        unsafe { libc::close(raw) };
    }
}

/// "Port unreachable", said of a datagram from `source` to 10.9.0.1 port 9.
fn complaint(source: [u8; 4]) -> Vec<u8> {
    let header = |from: [u8; 4], to: [u8; 4], protocol| Ipv4Header::new(from.into(), to.into(), protocol);
    let mut quoted = vec![0; 100];
    let headers = Headers {
        link: None,
        network: Network::V4(header(source, [10, 9, 0, 1], IpProtocol::UDP)),
        transport: Transport::Udp(UdpHeader { source_port: 7000, destination_port: 9 }),
    };
    let len = headers.emit(&mut quoted, b"hello").unwrap();
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&quoted[..len]);
    let check = bypath_wire::checksum::checksum(&message);
    message[2..4].copy_from_slice(&check.to_be_bytes());
    let mut packet = vec![0; 20];
    header([10, 9, 0, 1], [10, 9, 0, 2], IpProtocol::ICMP).emit(&mut packet, message.len()).unwrap();
    packet.extend_from_slice(&message);
    packet
}

isolated! {
    fn only_who_was_sent_something_can_say_that_nobody_takes_it() {
        let mut udp = over(device(1500).offloads(Offloads::NONE).open().unwrap(), 0, |b| b);
        udp.set_timeout(Some(Duration::ZERO));
        let index = udp.device().index();
        // SAFETY: integers only.
        let raw = unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0) };
        assert!(raw >= 0);
        let told = complaint([10, 9, 0, 2]);
        let mut damaged = told.clone();
        *damaged.last_mut().unwrap() ^= 1;
        // The same octets as the rest of a packet.
        let mut rest = told.clone();
        rest[6..8].copy_from_slice(&1u16.to_be_bytes());
        rest[10..12].fill(0);
        let check = bypath_wire::checksum::checksum(&rest[..20]);
        rest[10..12].copy_from_slice(&check.to_be_bytes());
        for (what, packet) in [("another's datagram", complaint([10, 9, 0, 77])), ("damaged", damaged), ("a fragment", rest)] {
            inject(raw, index, &packet);
            assert_eq!(udp.receive(&mut [0; 100]), Err(Error::WouldBlock), "{what}");
        }
        inject(raw, index, &told);
        let peer = "10.9.0.1:9".parse().unwrap();
        assert_eq!(udp.receive(&mut [0; 100]), Err(Refused::Unreachable { peer }.into()));
        // SAFETY: closes a number of our own.
        unsafe { libc::close(raw) };
    }
}
