//! Whatever comes, nothing panics, memory stays bounded, and the service goes on.

use crate::fragments::fragment;
use crate::neighbors::ndp_frame;
use crate::reach::frame;
use crate::world::{World, check};
use bypath_stack::socket::SocketId;
use bypath_wire::meta::{ChecksumState, Gso, GsoKind};
use bypath_wire::ndp::{NdpOption, PrefixInformation, RouterPreference};
use bypath_wire::{Addresses, FrameMeta, MacAddr, NdpMessage, VlanTag, checksum, icmpv6};
use proptest::prelude::*;

/// xorshift64: attackers need not be secret.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: usize) -> usize {
        (self.roll() >> 11) as usize % end.max(1)
    }
}

struct Victim {
    world: World,
    server: SocketId,
    client: SocketId,
}

impl Victim {
    /// A host with all that a host has: sockets, groups, a VLAN, raw sockets, somebody to forward for.
    fn new() -> Victim {
        let mut world = World::new(2, 1);
        let server = world.bound(0, "[::]:7");
        let now = world.now();
        let iface = world.hosts[0].iface;
        for group in ["239.1.2.3", "ff15::99"] {
            world.udp(0, server).join(now, iface, group.parse().unwrap()).unwrap();
        }
        world.connected(0, "10.0.0.2:1234");
        world.connected(0, "[fd00::2]:1234");
        let stack = &mut world.hosts[0].stack;
        stack.add_vlan(iface, 5, 1500).unwrap();
        stack.autoconfigure(now, iface);
        stack.open_raw(bypath_wire::IpProtocol::ICMP).unwrap();
        let forwarder = stack.open_udp().unwrap();
        stack.udp(forwarder).unwrap().bind("0.0.0.0:0".parse().unwrap()).unwrap();
        stack.set_udp_forwarder(Some(forwarder));
        let client = world.bound(1, "[::]:9");
        Victim { world, server, client }
    }

    /// A good datagram still arrives.
    fn serves(&mut self) {
        self.world.received(0, self.server);
        for to in ["10.0.0.1:7", "[fd00::1]:7"] {
            self.world.send_to(1, self.client, b"still there?", to);
        }
        self.world.secs(5);
        let got = self.world.received(0, self.server);
        assert_eq!(got.iter().filter(|(_, octets)| octets == b"still there?").count(), 2);
        self.world.trace.clear();
    }
}

/// Frames of all kinds as they are seen on a link.
fn seeds() -> Vec<Vec<u8>> {
    let mut world = World::new(3, 9);
    let now = world.now();
    let iface = world.hosts[0].iface;
    let client = world.bound(1, "[::]:9");
    let server = world.bound(0, "[::]:7");
    for group in ["239.1.2.3", "ff15::99"] {
        world.udp(0, server).join(now, iface, group.parse().unwrap()).unwrap();
    }
    world.hosts[1].stack.add_address(now, iface, "fd00::77/64".parse().unwrap()).unwrap();
    for to in ["10.0.0.1:7", "[fd00::1]:7", "10.0.0.1:8", "[fe80::1%2]:8", "239.1.2.3:7", "[ff15::99]:7"] {
        for len in [0, 10, 3000] {
            world.send_to(1, client, &vec![5; len], to);
        }
    }
    let ping = world.hosts[1].stack.open_raw(bypath_wire::IpProtocol::ICMPV6).unwrap();
    world.raw(1, ping).send(&[128, 0, 0, 0, 1, 1, 1, 1], "fd00::1".parse().unwrap(), None).unwrap();
    world.secs(3);
    let mut frames: Vec<_> = std::mem::take(&mut world.trace).into_iter().map(|(_, frame)| frame).collect();
    let mac = MacAddr([2, 0, 0, 0, 0, 1]);
    let advertisement = NdpMessage::RouterAdvertisement {
        hop_limit: 64,
        managed: false,
        other: false,
        preference: RouterPreference::Medium,
        lifetime: 60,
        reachable_ms: 0,
        retransmit_ms: 0,
    };
    let net = NdpOption::Prefix(PrefixInformation {
        len: 64,
        on_link: true,
        autonomous: true,
        valid_s: 100,
        preferred_s: 50,
        prefix: "2001:db8::".parse().unwrap(),
    });
    frames.push(ndp_frame(mac, "fe80::99", "ff02::1", 255, &advertisement, &[net, NdpOption::Mtu(1400)]));
    frames.push(frame(mac, "10.0.0.9", "10.0.0.1"));
    frames.push(fragment(true, 7, 8, &[1; 64], true));
    frames
}

/// Mends the checksum of the IPv4 header, so that what is behind it is looked at.
fn mend(frame: &mut [u8]) {
    if frame.len() >= 34 && frame[12..14] == [8, 0] {
        let len = usize::from(frame[14] & 15) * 4;
        if (20..=frame.len() - 14).contains(&len) {
            frame[24..26].fill(0);
            let sum = checksum::checksum(&frame[14..14 + len]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
        }
    }
}

/// Mends the checksum of what an IPv6 packet without extension headers, or an IPv4 packet without options, carries if that is
/// ICMP.
fn mend_icmp(frame: &mut [u8]) {
    let address = |frame: &[u8], at: usize| {
        let octets: Option<[u8; 16]> = frame.get(at..at + 16).and_then(|octets| octets.try_into().ok());
        std::net::Ipv6Addr::from(octets.unwrap_or_default())
    };
    if frame.len() > 62 && frame[12..14] == [0x86, 0xdd] && frame[20] == 58 {
        let addresses = Addresses::V6 { source: address(frame, 22), destination: address(frame, 38) };
        let len = usize::from(u16::from_be_bytes([frame[18], frame[19]])).min(frame.len() - 54);
        icmpv6::fill(&addresses, &mut frame[54..54 + len]);
    } else if frame.len() > 42 && frame[12..15] == [8, 0, 0x45] && matches!(frame[23], 1 | 2) {
        let len = usize::from(u16::from_be_bytes([frame[16], frame[17]])).clamp(28, frame.len() - 14);
        bypath_wire::icmpv4::fill(&mut frame[34..14 + len]);
    }
}

#[test]
fn frames_that_were_tampered_with_harm_nobody() {
    let seeds = seeds();
    let mut victim = Victim::new();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let rounds =
        if std::env::var_os("BYPATH_SOAK").is_some_and(|soak| soak != "0") { 5_000_000 } else { 60_000 };
    for round in 0..rounds {
        let mut frame = seeds[dice.below(seeds.len())].clone();
        for _ in 0..1 + dice.below(4) {
            match dice.below(8) {
                0 => frame.truncate(dice.below(frame.len() + 1)),
                1 => frame.extend(std::iter::repeat_n(0xff, dice.below(64))),
                2..=4 if !frame.is_empty() => {
                    let at = dice.below(frame.len().min(100));
                    frame[at] = dice.roll() as u8;
                }
                5 if !frame.is_empty() => {
                    let at = dice.below(frame.len().min(100));
                    frame[at] ^= 1 << dice.below(8);
                }
                6 if frame.len() > 60 => {
                    // A piece of another one.
                    let other = &seeds[dice.below(seeds.len())];
                    let at = 14 + dice.below(40);
                    let Some(most) = other.len().min(frame.len()).checked_sub(at) else { continue };
                    let len = dice.below(most + 1);
                    frame[at..at + len].copy_from_slice(&other[at..at + len]);
                }
                _ => {}
            }
        }
        if frame.len() >= 6 && dice.below(4) > 0 {
            frame[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
        }
        mend(&mut frame);
        if dice.below(4) > 0 {
            mend_icmp(&mut frame);
        }
        let meta = FrameMeta {
            checksum: match dice.below(3) {
                0 => ChecksumState::Unknown,
                1 => ChecksumState::Verified,
                _ => ChecksumState::Partial { start: dice.roll() as u16, offset: dice.roll() as u16 },
            },
            gso: (dice.below(8) == 0).then(|| Gso {
                kind: GsoKind::Udp,
                size: dice.below(3000) as u16,
                header_len: dice.roll() as u16,
                ecn: false,
            }),
            vlan: (dice.below(8) == 0).then(|| VlanTag::from_tci(0x8100, dice.below(7) as u16)),
            ..FrameMeta::default()
        };
        victim.world.hand(0, &frame, &meta);
        if round % 64 == 0 {
            victim.world.millis(dice.below(200) as u64);
            victim.world.trace.clear();
        }
    }
    // What attackers said of neighbours and routers is forgotten, as far as it was believed.
    victim.world.secs(700);
    victim.serves();
}

#[test]
fn chains_of_headers_and_options_end() {
    let mut victim = Victim::new();
    let mac = victim.world.hosts[0].mac;
    let base = frame(mac, "fd00::9", "fd00::1");
    let with = |next: u8, headers: &[u8]| {
        let mut octets = base[..54].to_vec();
        octets[20] = next;
        octets[18..20].copy_from_slice(&(headers.len() as u16).to_be_bytes());
        octets.extend_from_slice(headers);
        octets
    };
    // Destination options without end; hop-by-hop ones at the wrong place; a routing header that leads on; an option of a length
    // beyond its header; and one that must be known.
    let cases = [
        (60, [60, 0, 1, 4, 0, 0, 0, 0].repeat(150), "ipv6_drop_extension"),
        (60, [0, 0, 1, 4, 0, 0, 0, 0].repeat(2), "ipv6_drop_extension"),
        (
            43,
            vec![17, 2, 0, 1, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 5, 6, 7, 8],
            "ipv6_drop_routing",
        ),
        (0, vec![17, 0, 5, 200, 0, 0, 0, 0], "ipv6_drop_option"),
        (60, vec![17, 0, 0xc7, 2, 0, 0, 1, 0], "ipv6_drop_option"),
        (60, vec![17, 255, 1, 4, 0, 0, 0, 0], "ipv6_drop_extension"),
        (51, vec![17, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "ipv6_drop_extension"),
    ];
    for (next, headers, counter) in cases {
        let before = victim.world.count(0, counter);
        victim.world.hand(0, &with(next, &headers), &FrameMeta::default());
        assert_eq!(victim.world.count(0, counter), before + 1, "{next} {headers:?}");
    }
    // IPv4: options of no length, and a source route.
    let base = frame(mac, "10.0.0.9", "10.0.0.1");
    for (option, counter) in [
        ([7, 0, 0, 0], "ipv4_drop_option"),
        ([7, 1, 0, 0], "ipv4_drop_option"),
        ([7, 90, 4, 0], "ipv4_drop_option"),
        ([131, 3, 4, 0], "ipv4_drop_source_route"),
        ([137, 3, 4, 0], "ipv4_drop_source_route"),
    ] {
        let mut octets = base[..34].to_vec();
        octets[14] = 0x46;
        let total = base.len() as u16 - 14 + 4;
        octets[16..18].copy_from_slice(&total.to_be_bytes());
        octets.extend_from_slice(&option);
        octets.extend_from_slice(&base[34..]);
        mend(&mut octets);
        let before = victim.world.count(0, counter);
        victim.world.hand(0, &octets, &FrameMeta::default());
        assert_eq!(victim.world.count(0, counter), before + 1, "{option:?}");
    }
    victim.serves();
}

#[test]
fn a_header_with_a_wrong_checksum_is_dropped() {
    let mut victim = Victim::new();
    let mut octets = frame(victim.world.hosts[0].mac, "10.0.0.9", "10.0.0.1");
    octets[24] ^= 1;
    victim.world.hand(0, &octets, &FrameMeta::default());
    assert_eq!(victim.world.count(0, "ipv4_drop_checksum"), 1);
    assert!(victim.world.received(0, victim.server).is_empty());
}

#[test]
fn lengths_that_contradict_each_other_are_dropped() {
    let mut victim = Victim::new();
    let mac = victim.world.hosts[0].mac;
    let v4 = frame(mac, "10.0.0.9", "10.0.0.1");
    let v6 = frame(mac, "fd00::9", "fd00::1");
    for (base, at, ip, udp) in [(&v4, 34, "ipv4_drop_malformed", 38), (&v6, 54, "ipv6_drop_malformed", 58)] {
        for len in 0..base.len() {
            victim.world.hand(0, &base[..len], &FrameMeta::default());
        }
        let short = victim.world.count(0, ip);
        assert!(short as usize >= base.len() - 14 - 1, "{short}");
        // A datagram that says more or less than there is.
        for len in [0u16, 7, 11, 0xffff] {
            let before = victim.world.count(0, "udp_drop_malformed");
            let mut octets = base.clone();
            octets[udp..udp + 2].copy_from_slice(&len.to_be_bytes());
            victim.world.hand(0, &octets, &FrameMeta::default());
            assert_eq!(victim.world.count(0, "udp_drop_malformed"), before + 1, "{at} {len}");
        }
    }
    assert!(victim.world.received(0, victim.server).is_empty());
    victim.serves();
}

#[test]
fn a_full_queue_of_the_link_drops_and_counts() {
    let mut victim = Victim::new();
    let mac = victim.world.hosts[0].mac;
    // A link that takes nothing: answers heap up to the bound.
    let mut ping = frame(mac, "10.0.0.2", "10.0.0.1");
    ping.resize(14 + 20 + 1400, 0);
    ping[16..18].copy_from_slice(&1420u16.to_be_bytes());
    ping[23] = 1;
    ping[34..42].copy_from_slice(&[8, 0, 0, 0, 1, 1, 1, 1]);
    mend(&mut ping);
    let verified = FrameMeta { checksum: ChecksumState::Verified, ..FrameMeta::default() };
    for _ in 0..10_000 {
        victim.world.hand(0, &ping, &verified);
    }
    assert!(victim.world.count(0, "link_drop_queue_full") > 1000);
    victim.serves();
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn any_octets_at_all_harm_nobody(
        frames in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..200), 0..3u8, any::<bool>()), 1..40),
    ) {
        let mut world = World::new(1, 3);
        for (mut octets, kind, ours) in frames {
            let front: &[u8] = match kind { 0 => &[8, 0, 0x45], 1 => &[0x86, 0xdd, 0x60], _ => &[8, 6, 0] };
            if octets.len() >= 15 && ours {
                octets[..6].copy_from_slice(&[2, 0, 0, 0, 0, 1]);
                octets[12..15].copy_from_slice(front);
            }
            mend(&mut octets);
            world.hand(0, &octets, &FrameMeta::default());
        }
        world.secs(1);
        check(&world.hosts[0].stack);
    }
}
