//! Groups: joined on either side, and reported to routers.

use crate::{Config, LONGEST, Offloads, at, host, isolated, kernels, ours};
use bypath_link::l2::{self, Socket};
use bypath_netstack::Engine;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

fn index() -> u32 {
    l2::Interface::named("mine").expect("the device").index
}

isolated! {
    fn datagrams_to_groups_reach_who_joined() {
        let (host, iface) = host(Config::default(), Offloads::NONE);
        // To the stack.
        let member = ours(&host, "0.0.0.0:5000");
        host.with(|engine| {
            let mut udp = engine.stack().udp(member.id()).expect("a socket");
            udp.join(Engine::now(), iface, IpAddr::from([239, 1, 2, 3])).expect("joined");
        });
        let sender = kernels("10.9.0.1:0");
        nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::BindToDevice, &"mine".into()).expect("the device");
        sender.send_to(b"not joined", at("239.1.2.9:5000")).expect("sent");
        sender.send_to(b"joined", at("239.1.2.3:5000")).expect("sent");
        let mut room = [0; 100];
        let (len, from) = member.recv_from(&mut room).expect("a datagram");
        assert_eq!((&room[..len], from.ip()), (&b"joined"[..], IpAddr::from([10, 9, 0, 1])));

        let member = ours(&host, "[::]:5001");
        let group = "ff15::77".parse().expect("a group");
        host.with(|engine| {
            let mut udp = engine.stack().udp(member.id()).expect("a socket");
            udp.join(Engine::now(), iface, IpAddr::V6(group)).expect("joined");
        });
        let sender = kernels("[fd09::1]:0");
        sender.send_to(b"six", SocketAddrV6::new(group, 5001, 0, index())).expect("sent");
        let (len, from) = member.recv_from(&mut room).expect("a datagram");
        assert_eq!((&room[..len], from.ip()), (&b"six"[..], at("[fd09::1]:1").ip()));

        // To the kernel.
        let member = kernels("0.0.0.0:5002");
        member.join_multicast_v4(&[239, 1, 2, 4].into(), &[10, 9, 0, 1].into()).expect("joined");
        let sender = ours(&host, "10.9.0.2:0");
        sender.send_to(b"four", at("239.1.2.4:5002")).expect("sent");
        let (len, from) = member.recv_from(&mut room).expect("a datagram");
        assert_eq!((&room[..len], from.ip()), (&b"four"[..], IpAddr::from([10, 9, 0, 2])));
        let member = kernels("[::]:5003");
        let group = "ff15::78".parse().expect("a group");
        member.join_multicast_v6(&group, index()).expect("joined");
        let sender = ours(&host, "[fd09::2]:0");
        sender.send_to(b"sixth", SocketAddr::new(group.into(), 5003)).expect("sent");
        let (len, _) = member.recv_from(&mut room).expect("a datagram");
        assert_eq!(&room[..len], b"sixth");
    }
}

isolated! {
    fn what_is_joined_is_reported() {
        let (host, iface) = host(Config::default(), Offloads::NONE);
        // IGMPv3 (RFC 3376, 4.2): type 0x22, one record of a change to exclude nobody. MLDv2 (RFC 3810, 5.2): type 143.
        for (ethertype, group, report) in [(0x0800, "239.7.7.7", 0x22), (0x86dd, "ff15::7:7", 143)] {
            let mut line = Socket::builder("mine").ethertype(ethertype).all_groups().timeout(LONGEST).open().expect("a socket");
            let socket = ours(&host, if ethertype == 0x0800 { "0.0.0.0:0" } else { "[::]:0" });
            let group: IpAddr = group.parse().expect("a group");
            host.with(|engine| {
                let mut udp = engine.stack().udp(socket.id()).expect("a socket");
                udp.join(Engine::now(), iface, group).expect("joined");
            });
            let named = |octets: &[u8]| match group {
                IpAddr::V4(v4) => octets.ends_with(&v4.octets()),
                IpAddr::V6(v6) => octets.windows(16).any(|w| w == v6.octets()),
            };
            let mut room = [0; 1500];
            loop {
                let frame = line.receive(&mut room).expect("a report");
                let packet = &room[..frame.len];
                // Behind a router alert: 24 octets of IPv4, 40 and 8 of IPv6.
                let at = if ethertype == 0x0800 { 24 } else { 48 };
                let whole = if ethertype == 0x0800 { u16::from_be_bytes([packet[2], packet[3]]).into() } else { packet.len() };
                if packet.get(at) == Some(&report) && named(&packet[..whole]) {
                    break;
                }
            }
        }
    }
}
