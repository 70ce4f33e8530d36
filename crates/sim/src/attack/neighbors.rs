//! Floods of what hosts of a link believe each other, and of groups.

use super::*;

fn advertisement(n: u16, lifetime: u16) -> Vec<u8> {
    let source = Ipv6Addr::new(0xfe80, 0, 0, 0, 0x66, 0, 0, n);
    let message = NdpMessage::RouterAdvertisement {
        hop_limit: 1,
        managed: false,
        other: false,
        preference: RouterPreference::High,
        lifetime,
        reachable_ms: 1,
        retransmit_ms: 1,
    };
    let network = PrefixInformation {
        len: 64,
        on_link: true,
        autonomous: true,
        valid_s: u32::MAX,
        preferred_s: u32::MAX,
        prefix: Ipv6Addr::new(0x2001, 0xdb8, 0x66, n, 0, 0, 0, 0),
    };
    let mac = MacAddr([2, 6, 6, 6, (n >> 8) as u8, n as u8]);
    ndp(
        source,
        ALL_NODES,
        &message,
        &[NdpOption::SourceLinkLayer(mac), NdpOption::Prefix(network), NdpOption::Mtu(0)],
    )
}

/// Floods of what hosts of a link believe each other (RFC 3756, 6583), and of groups.
pub(super) fn all() -> Vec<Attack> {
    let sender = |n: u32| Ipv4Addr::from_bits(0x0a00_0000 + n % 0xff_0000 + 256);
    let mac = |n: u32| MacAddr([2, 6, (n >> 24) as u8, (n >> 16) as u8, (n >> 8) as u8, n as u8]);
    let asker = |n: u32| Ipv6Addr::new(0xfd00, 0, 0, 0, 0x66, 0, (n >> 16) as u16, n as u16);
    let ask = NdpMessage::NeighborSolicitation { target: V6 };
    let group = Ipv4Addr::new(239, 1, 2, 3);
    let group_v6 = Ipv6Addr::new(0xff15, 0, 0, 0, 0, 0, 0, 0x99);
    vec![
        attack(
            "questions of everybody",
            "neighbor_replaced",
            3000,
            (0..5000).map(|n| arp(&ArpPacket::request(mac(n), sender(n), V4))).collect(),
        ),
        attack(
            "questions of everybody, in IPv6",
            "neighbor_replaced",
            3000,
            (0..5000).map(|n| ndp(asker(n), V6, &ask, &[NdpOption::SourceLinkLayer(mac(n))])).collect(),
        ),
        attack(
            "answers that nobody asked for",
            "arp_received",
            1000,
            (0..1000)
                .map(|n| {
                    let answer = ArpPacket::request(MAC, V4, sender(n)).reply(mac(n));
                    arp(&answer)
                })
                .collect(),
        ),
        attack(
            "an address that moves and moves",
            "arp_received",
            2000,
            (0..2000).map(|n| arp(&ArpPacket::request(mac(n), EVIL_V4, V4))).collect(),
        ),
        attack(
            "claims of the victim's address",
            "arp_conflicts",
            2000,
            (0..2000).map(|n| arp(&ArpPacket::request(mac(n), V4, V4))).collect(),
        ),
        attack(
            "claims of the victim's address, in IPv6",
            "ndp_conflicts",
            2000,
            (0..2000)
                .map(|n| {
                    let message = NdpMessage::NeighborAdvertisement {
                        router: false,
                        solicited: false,
                        replace: true,
                        target: V6,
                    };
                    ndp(asker(n), ALL_NODES, &message, &[NdpOption::TargetLinkLayer(mac(n))])
                })
                .collect(),
        ),
        attack(
            "stations that are groups",
            "arp_drop_malformed",
            2,
            [MacAddr::BROADCAST, MacAddr::UNSPECIFIED]
                .map(|mac| arp(&ArpPacket::request(mac, EVIL_V4, V4)))
                .to_vec(),
        ),
        attack("options without a length", "ndp_drop_malformed", 1, {
            let mut message =
                [&[135, 0, 0, 0, 0, 0, 0, 0][..], &V6.octets(), &[1, 0, 0, 0, 0, 0, 0, 0]].concat();
            icmpv6::fill(&addresses_v6(EVIL_V6), &mut message);
            let header = Ipv6Header { hop_limit: 255, ..Ipv6Header::new(EVIL_V6, V6, IpProtocol::ICMPV6) };
            vec![v6(&header, &message)]
        }),
        attack("neighbours from afar", "ndp_drop_malformed", 1, {
            let mut frame = ndp(EVIL_V6, V6, &ask, &[NdpOption::SourceLinkLayer(EVIL)]);
            frame[21] = 254;
            vec![frame]
        }),
        attack("redirects by others than the router, in IPv6", "ndp_drop_redirect", 1, {
            let evil = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x66);
            let message = NdpMessage::Redirect { target: evil, destination: FAR_V6 };
            vec![ndp(evil, V6, &message, &[NdpOption::TargetLinkLayer(EVIL)])]
        }),
        attack(
            "redirects of everything",
            "destination_replaced",
            800,
            (0..5000)
                .map(|n: u32| {
                    let evil = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0x66);
                    let destination = Ipv6Addr::new(0x2001, 0xdb8, 0xdead, 0, 0, 0, 0, n as u16);
                    let message = NdpMessage::Redirect { target: evil, destination };
                    ndp(ROUTER_V6, V6, &message, &[NdpOption::TargetLinkLayer(EVIL)])
                })
                .collect(),
        ),
        attack(
            "routers and networks without number",
            "ndp_drop_full",
            1000,
            (0..1000).map(|n| advertisement(n, 9000)).collect(),
        ),
        attack(
            "routers that come and go",
            "ndp_received",
            2000,
            (0..1000).flat_map(|_| [advertisement(1, 9000), advertisement(1, 0)]).collect(),
        ),
        attack(
            "questions for groups",
            "group_received",
            3000,
            (0..1000)
                .flat_map(|n: u32| {
                    [
                        igmp(0x11, (n % 256) as u8, Ipv4Addr::UNSPECIFIED, n.is_multiple_of(2)),
                        igmp(0x11, 0, group, false),
                        igmp(0x16, 0, group, false),
                    ]
                })
                .collect(),
        ),
        attack(
            "questions for groups, in IPv6",
            "group_received",
            2000,
            (0..1000u16)
                .flat_map(|n| {
                    let len = if n.is_multiple_of(2) { 28 } else { 24 };
                    [mld(ROUTER_V6, 130, n, Ipv6Addr::UNSPECIFIED, len), mld(ROUTER_V6, 131, 0, group_v6, 24)]
                })
                .collect(),
        ),
        attack(
            "groups that cannot be",
            "group_drop_malformed",
            4,
            vec![
                igmp(0x99, 0, group, false),
                {
                    let mut wrong = igmp(0x11, 0, group, false);
                    wrong[41] ^= 1;
                    wrong
                },
                mld(EVIL_V6, 130, 0, Ipv6Addr::UNSPECIFIED, 24),
                mld(ROUTER_V6, 130, 0, Ipv6Addr::UNSPECIFIED, 12),
            ],
        ),
    ]
}
