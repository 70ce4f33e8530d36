//! Groups: who hears what, and what routers are told.

use crate::world::World;
use bypath_stack::group::NoGroup;
use bypath_wire::{
    Addresses, EtherType, EthernetHeader, FrameMeta, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, checksum,
    icmpv6, ipv6_ext,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

#[test]
fn whoever_joined_hears_a_group_and_nobody_else() {
    for (group, to) in [("239.1.2.3", "239.1.2.3:7"), ("ff15::99", "[ff15::99]:7")] {
        let mut world = World::new(3, 1);
        let servers: Vec<_> = (0..3).map(|host| world.bound(host, "[::]:7")).collect();
        let now = world.now();
        let iface = world.hosts[0].iface;
        for host in [0, 1] {
            world.udp(host, servers[host]).join(now, iface, ip(group)).unwrap();
        }
        let again = world.udp(1, servers[1]).join(now, iface, ip(group));
        assert_eq!(again, Err(NoGroup::Joined));
        let client = world.bound(0, "[::]:9");
        world.send_to(0, client, b"all", to);
        world.millis(10);
        // The sender's own host is a member, too (IP_MULTICAST_LOOP).
        let heard: Vec<_> = (0..3).map(|host| world.received(host, servers[host]).len()).collect();
        assert_eq!(heard, [1, 1, 0]);
        // It did not leave the link, and its frame went to the group.
        let (_, frame) = world.trace.iter().find(|(_, f)| f.ends_with(b"all")).unwrap();
        assert_eq!((frame[0] & 1, frame[if group.contains(':') { 14 + 7 } else { 14 + 8 }]), (1, 1));
        let mut options = world.udp(0, client).options();
        options.group_loop = false;
        world.udp(0, client).set_options(options);
        assert!(world.udp(1, servers[1]).leave(iface, ip(group)));
        assert!(!world.udp(1, servers[1]).leave(iface, ip(group)));
        world.send_to(0, client, b"all", to);
        world.millis(10);
        let heard: Vec<_> = (0..3).map(|host| world.received(host, servers[host]).len()).collect();
        assert_eq!(heard, [0, 0, 0]);
    }
}

#[test]
fn a_socket_may_hear_its_own_groups_alone() {
    let mut world = World::new(2, 1);
    let (iface, now) = (world.hosts[0].iface, world.now());
    let reuse = |world: &mut World| {
        let stack = &mut world.hosts[1].stack;
        let id = stack.open_udp().unwrap();
        let mut udp = stack.udp(id).unwrap();
        let mut options = udp.options();
        options.reuse_address = true;
        options.group_all = false;
        udp.set_options(options);
        udp.bind("0.0.0.0:7".parse().unwrap()).unwrap();
        id
    };
    let (a, b) = (reuse(&mut world), reuse(&mut world));
    world.udp(1, a).join(now, iface, ip("239.0.0.1")).unwrap();
    world.udp(1, b).join(now, iface, ip("239.0.0.2")).unwrap();
    let client = world.bound(0, "0.0.0.0:9");
    world.send_to(0, client, b"1", "239.0.0.1:7");
    world.send_to(0, client, b"2", "239.0.0.2:7");
    world.millis(10);
    let only = |octets: &[u8]| vec![("10.0.0.1:9".parse().unwrap(), octets.to_vec())];
    assert_eq!((world.received(1, a), world.received(1, b)), (only(b"1"), only(b"2")));
    // A closed socket leaves.
    world.hosts[1].stack.close(a);
    world.send_to(0, client, b"1", "239.0.0.1:7");
    let before = world.count(1, "ipv4_drop_not_local");
    world.millis(10);
    assert_eq!(world.count(1, "ipv4_drop_not_local"), before + 1);
}

/// Reports: kinds of IGMP messages or records sent by a host, with their groups.
fn igmp(world: &World) -> Vec<(u8, u8, Ipv4Addr)> {
    let of = |f: &[u8]| {
        let (_, packet) = EthernetHeader::parse(f).unwrap();
        let (header, message) = Ipv4Header::parse(packet).ok()?;
        if header.protocol != IpProtocol::IGMP {
            return None;
        }
        assert!(header.ttl == 1 && checksum::is_valid(message));
        let group = |at: usize| Ipv4Addr::new(message[at], message[at + 1], message[at + 2], message[at + 3]);
        Some(if message[0] == 0x22 { (0x22, message[8], group(12)) } else { (message[0], 0, group(4)) })
    };
    world.trace.iter().filter(|(_, f)| f[12..14] == [8, 0]).filter_map(|(_, f)| of(f)).collect()
}

fn igmp_query(code: u8, group: Ipv4Addr, v3: bool) -> Vec<u8> {
    let mut message = vec![0x11, code, 0, 0];
    message.extend_from_slice(&group.octets());
    if v3 {
        message.extend_from_slice(&[0; 4]);
    }
    let sum = checksum::checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let all = Ipv4Addr::new(224, 0, 0, 1);
    let mut frame = vec![0; 34];
    EthernetHeader::new(MacAddr::of_ipv4_group(all), MacAddr([2, 0, 0, 0, 0, 0x99]), EtherType::IPV4)
        .emit(&mut frame)
        .unwrap();
    let header =
        Ipv4Header { ttl: 1, ..Ipv4Header::new(Ipv4Addr::new(10, 0, 0, 254), all, IpProtocol::IGMP) };
    header.emit(&mut frame[14..], message.len()).unwrap();
    frame.extend_from_slice(&message);
    frame
}

#[test]
fn routers_are_told_of_ipv4_groups_in_the_version_that_they_speak() {
    let mut world = World::new(1, 1);
    let iface = world.hosts[0].iface;
    let server = world.bound(0, "[::]:7");
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let join = |world: &mut World| {
        let now = world.now();
        world.udp(0, server).join(now, iface, group.into()).unwrap();
    };
    join(&mut world);
    world.secs(3);
    // RFC 3376, 5.1: a change to "exclude nothing", twice.
    assert_eq!(igmp(&world), [(0x22, 4, group); 2]);
    world.trace.clear();
    world.hand(0, &igmp_query(100, Ipv4Addr::UNSPECIFIED, true), &FrameMeta::default());
    world.hand(0, &igmp_query(100, Ipv4Addr::new(239, 9, 9, 9), true), &FrameMeta::default());
    world.secs(10);
    assert_eq!(igmp(&world), [(0x22, 2, group)]);
    world.trace.clear();
    world.udp(0, server).leave(iface, group.into());
    world.secs(3);
    assert_eq!(igmp(&world), [(0x22, 3, group); 2]);
    world.trace.clear();
    // Version 2.
    world.hand(0, &igmp_query(100, Ipv4Addr::UNSPECIFIED, false), &FrameMeta::default());
    join(&mut world);
    world.secs(3);
    world.udp(0, server).leave(iface, group.into());
    world.millis(1);
    assert_eq!(igmp(&world)[..3], [(0x16, 0, group), (0x16, 0, group), (0x17, 0, group)]);
    world.secs(3);
    world.trace.clear();
    // Version 1 has no word for leaving.
    world.hand(0, &igmp_query(0, Ipv4Addr::UNSPECIFIED, false), &FrameMeta::default());
    join(&mut world);
    world.secs(3);
    world.udp(0, server).leave(iface, group.into());
    world.secs(3);
    assert_eq!(igmp(&world), [(0x12, 0, group); 2]);
    world.trace.clear();
    // In time they speak the newest again.
    world.secs(260);
    join(&mut world);
    world.secs(3);
    assert_eq!(igmp(&world), [(0x22, 4, group); 2]);
}

#[test]
fn routers_are_told_of_ipv6_groups() {
    let mut world = World::new(1, 1);
    let iface = world.hosts[0].iface;
    let server = world.bound(0, "[::]:7");
    let group: Ipv6Addr = "ff15::99".parse().unwrap();
    let now = world.now();
    world.udp(0, server).join(now, iface, group.into()).unwrap();
    world.secs(3);
    let reports = |world: &World| {
        let all = world.trace.iter().filter(|(_, f)| f[12..14] == [0x86, 0xdd] && f[20] == 0);
        all.map(|(_, f)| {
            assert_eq!((f[21], &f[54..62]), (1, &[58, 0, 5, 2, 0, 0, 1, 0][..]));
            let (header, payload) = Ipv6Header::parse(&f[14..]).unwrap();
            assert!(icmpv6::verify(&header.addresses(), &payload[8..]));
            let own = if f[62] == 143 { &f[74..90] } else { &f[70..86] };
            (f[62], f[70], own == group.octets())
        })
        .filter(|(_, _, own)| *own)
        .map(|(kind, record, _)| (kind, if kind == 143 { record } else { 0 }))
        .collect::<Vec<_>>()
    };
    assert_eq!(reports(&world), [(143, 4); 2]);
    world.trace.clear();
    // A query of version 1, within 100 ms.
    let (source, destination): (Ipv6Addr, Ipv6Addr) =
        ("fe80::99".parse().unwrap(), "ff02::1".parse().unwrap());
    let mut message = vec![0; 24];
    (message[0], message[5]) = (130, 100);
    icmpv6::fill(&Addresses::V6 { source, destination }, &mut message);
    let mut frame = vec![0; 62];
    EthernetHeader::new(MacAddr::of_ipv6_group(destination), MacAddr([2, 0, 0, 0, 0, 0x99]), EtherType::IPV6)
        .emit(&mut frame)
        .unwrap();
    let header = Ipv6Header { hop_limit: 1, ..Ipv6Header::new(source, destination, IpProtocol::HOP_BY_HOP) };
    header.emit(&mut frame[14..], 32).unwrap();
    ipv6_ext::emit_options(&mut frame[54..], IpProtocol::ICMPV6, &[5, 2, 0, 0]).unwrap();
    frame.extend_from_slice(&message);
    // From afar, or without the alert, it is none.
    let mut far = frame.clone();
    far[21] = 2;
    world.hand(0, &far, &FrameMeta::default());
    assert_eq!(world.count(0, "group_drop_malformed"), 1);
    world.hand(0, &frame, &FrameMeta::default());
    world.millis(101);
    assert_eq!(reports(&world), [(131, 0)]);
    world.trace.clear();
    world.hosts[0].stack.close(server);
    world.secs(3);
    assert_eq!(reports(&world), [(132, 0); 2]);
}

#[test]
fn groups_are_bounded() {
    let mut world = World::new(1, 1);
    let (iface, now) = (world.hosts[0].iface, world.now());
    let server = world.bound(0, "[::]:7");
    assert_eq!(world.udp(0, server).join(now, iface, ip("10.0.0.1")), Err(NoGroup::NotAGroup));
    let group = |n: u32| IpAddr::V4(Ipv4Addr::from_bits(0xef00_0000 + n));
    let joined = (0..1000).take_while(|n| world.udp(0, server).join(now, iface, group(*n)).is_ok()).count();
    assert!((500..512).contains(&joined), "{joined}");
    world.hosts[0].stack.close(server);
    world.secs(3);
    let server = world.bound(0, "[::]:7");
    let now = world.now();
    assert_eq!(world.udp(0, server).join(now, iface, group(999)), Ok(()));
}

#[test]
fn a_hop_limit_of_nothing_keeps_a_group_on_this_host() {
    let mut world = World::new(2, 1);
    let servers = [0, 1].map(|host| world.bound(host, "[::]:7"));
    let (iface, now) = (world.hosts[0].iface, world.now());
    for host in [0, 1] {
        world.udp(host, servers[host]).join(now, iface, ip("239.1.2.3")).unwrap();
    }
    let client = world.bound(0, "[::]:9");
    let mut options = world.udp(0, client).options();
    options.group_hop_limit = 0;
    world.udp(0, client).set_options(options);
    world.send_to(0, client, b"all", "239.1.2.3:7");
    world.send_to(0, client, b"all", "239.1.2.4:7");
    world.millis(10);
    assert_eq!([0, 1].map(|host| world.received(host, servers[host]).len()), [1, 0]);
}

#[test]
fn a_socket_bound_to_a_group_hears_that_group_and_what_is_sent_past_the_queue_comes_here_too() {
    let mut world = World::new(1, 1);
    let (iface, now) = (world.hosts[0].iface, world.now());
    let server = world.bound(0, "239.1.2.3:7");
    world.udp(0, server).join(now, iface, ip("239.1.2.3")).unwrap();
    world.udp(0, server).join(now, iface, ip("239.1.2.4")).unwrap();
    let client = world.bound(0, "0.0.0.0:9");
    let mut room = [0; 2000];
    for to in ["239.1.2.3:7", "239.1.2.4:7"] {
        for _ in 0..2 {
            let sent =
                world.udp(0, client).send_through(now, b"x", Some(to.parse().unwrap()), iface, &mut room);
            assert_eq!(sent, Ok(None));
            world.millis(10);
        }
    }
    assert_eq!(world.received(0, server).len(), 2);
}
