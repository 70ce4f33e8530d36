//! What is said of others' packets.

use super::*;

/// What ICMP can do to others' connections (RFC 5927), and to a network ("smurf"). `from`: the port of a socket of the victim's
/// that is connected to port 53 of [`FAR_V4`] and [`FAR_V6`].
pub(super) fn all(from: u16) -> Vec<Attack> {
    let about_v4 = |to: Ipv4Addr, from: u16| {
        let addresses = Addresses::V4 { source: V4, destination: to };
        v4(&Ipv4Header::new(V4, to, IpProtocol::UDP), &datagram(&addresses, from, 53, 600))[14..].to_vec()
    };
    let about_v6 = |to: Ipv6Addr, from: u16| {
        let addresses = Addresses::V6 { source: V6, destination: to };
        v6(&Ipv6Header::new(V6, to, IpProtocol::UDP), &datagram(&addresses, from, 53, 1300))[14..].to_vec()
    };
    let too_big = |mtu| Icmpv4Message::Unreachable { code: 4, mtu };
    let guess = |n: u16| 1024 + n * 31;
    let others = (0..1000).map(guess).filter(move |port| *port != from);
    vec![
        attack(
            "resets for guessed ports",
            "icmp_drop_unrelated",
            900,
            others
                .clone()
                .map(|port| {
                    icmp4(EVIL_V4, Icmpv4Message::Unreachable { code: 3, mtu: 0 }, &about_v4(FAR_V4, port))
                })
                .collect(),
        ),
        attack(
            "resets for guessed ports, in IPv6",
            "icmp_drop_unrelated",
            900,
            others
                .map(|port| icmp6(EVIL_V6, Icmpv6Message::Unreachable { code: 4 }, &about_v6(FAR_V6, port)))
                .collect(),
        ),
        attack(
            "paths that are no wider than dust",
            "icmp_path_mtus",
            1,
            [0, 1, 67, 68, 100, 551]
                .map(|mtu| icmp4(EVIL_V4, too_big(mtu), &about_v4(FAR_V4, from)))
                .to_vec(),
        ),
        attack(
            "paths that are no wider than dust, in IPv6",
            "icmp_path_mtus",
            1,
            [0, 1, 68, 1279]
                .map(|mtu| icmp6(EVIL_V6, Icmpv6Message::PacketTooBig { mtu }, &about_v6(FAR_V6, from)))
                .to_vec(),
        ),
        attack(
            "paths to everywhere",
            "destination_replaced",
            800,
            (0..5000u32)
                .map(|n| {
                    // Any destination will do for a socket that is connected to nobody.
                    let to = Ipv4Addr::from_bits(0xc612_0000 + n);
                    icmp4(EVIL_V4, too_big(600), &about_v4(to, PORT))
                })
                .collect(),
        ),
        attack("errors that quote too little", "icmp_drop_unrelated", 20, {
            let about = about_v4(FAR_V4, from);
            (0..24).map(|len| icmp4(EVIL_V4, too_big(600), &about[..len])).collect()
        }),
        attack("errors about errors", "icmp_drop_unrelated", 1, {
            let inner =
                icmp4(EVIL_V4, Icmpv4Message::Unreachable { code: 3, mtu: 0 }, &about_v4(FAR_V4, from));
            vec![icmp4(EVIL_V4, Icmpv4Message::Unreachable { code: 3, mtu: 0 }, &inner[14..])]
        }),
        attack(
            "source quench",
            "icmp_drop_kind",
            1,
            vec![icmp4(
                EVIL_V4,
                Icmpv4Message::Other { kind: 4, code: 0, rest: [0; 4] },
                &about_v4(FAR_V4, from),
            )],
        ),
        attack(
            "redirects by others than the router",
            "icmp_drop_redirect",
            2,
            [EVIL_V4, FAR_V4]
                .map(|source| {
                    icmp4(
                        source,
                        Icmpv4Message::Redirect { code: 1, gateway: EVIL_V4 },
                        &about_v4(FAR_V4, from),
                    )
                })
                .to_vec(),
        ),
        attack("redirects to nowhere", "icmp_drop_redirect", 4, {
            let gateways =
                [Ipv4Addr::new(9, 9, 9, 9), V4, Ipv4Addr::UNSPECIFIED, Ipv4Addr::new(224, 0, 0, 1)];
            let frames = gateways.map(|gateway| {
                icmp4(ROUTER_V4, Icmpv4Message::Redirect { code: 1, gateway }, &about_v4(FAR_V4, from))
            });
            frames.to_vec()
        }),
        attack("smurf", "icmp_drop_broadcast_echo", 1, {
            let header = Ipv4Header::new(FAR_V4, Ipv4Addr::BROADCAST, IpProtocol::ICMP);
            let mut echo = [0; 16];
            let _fits =
                Icmpv4Message::EchoRequest { identifier: 1, sequence: 1 }.emit_with(&mut echo, &[0; 8]);
            vec![v4(&header, &echo)]
        }),
        attack("wrong sums", "icmp_drop_checksum", 2, {
            let mut frames = vec![
                icmp4(EVIL_V4, too_big(600), &about_v4(FAR_V4, from)),
                icmp6(EVIL_V6, Icmpv6Message::PacketTooBig { mtu: 1280 }, &about_v6(FAR_V6, from)),
            ];
            frames[0][50] ^= 1;
            frames[1][70] ^= 1;
            frames
        }),
    ]
}
