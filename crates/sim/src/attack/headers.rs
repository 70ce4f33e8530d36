//! Headers that cannot be.

use super::*;

/// Headers that cannot be (RFC 791, 1122, 7126, 8200).
pub(super) fn all() -> Vec<Attack> {
    let to_port = |source| {
        v4(&Ipv4Header::new(source, V4, IpProtocol::UDP), &datagram(&addresses_v4(source), 1, PORT, 8))
    };
    let to_port_v6 = |source| {
        v6(&Ipv6Header::new(source, V6, IpProtocol::UDP), &datagram(&addresses_v6(source), 1, PORT, 8))
    };
    let good = to_port(EVIL_V4);
    // Writes an octet into the IPv4 header, and mends its checksum.
    let with = |at: usize, value: u8| {
        let mut frame = good.clone();
        frame[14 + at] = value;
        frame[24..26].fill(0);
        let len = usize::from(frame[14] & 15) * 4;
        let sum = checksum::checksum(&frame[14..(14 + len).min(frame.len())]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
        frame
    };
    let options = |octets: [u8; 4]| {
        let mut packet = good[14..34].to_vec();
        packet[0] = 0x46;
        packet[2..4].copy_from_slice(&40u16.to_be_bytes());
        packet.extend_from_slice(&octets);
        packet.extend_from_slice(&good[34..50]);
        packet[10..12].fill(0);
        let sum = checksum::checksum(&packet[..24]);
        packet[10..12].copy_from_slice(&sum.to_be_bytes());
        ethernet(MAC, EtherType::IPV4, &packet)
    };
    let extension = |next: u8, headers: &[u8]| v6(&Ipv6Header::new(EVIL_V6, V6, IpProtocol(next)), headers);
    let short = |frame: &[u8]| (14..frame.len()).map(|len| frame[..len].to_vec()).collect::<Vec<_>>();
    vec![
        attack("land", "ipv4_drop_source", 1, vec![to_port(V4)]),
        attack("land, in IPv6", "ipv6_drop_source", 2, vec![to_port_v6(V6), to_port_v6(LINK_LOCAL)]),
        attack("from everybody and from nobody", "ipv4_drop_source", 4, {
            let sources = ["255.255.255.255", "10.255.255.255", "224.0.0.1", "127.0.0.1"];
            sources.into_iter().filter_map(|source| source.parse().ok()).map(to_port).collect()
        }),
        attack("from groups, ourselves and other worlds", "ipv6_drop_source", 3, {
            let sources = ["ff02::1", "::1", "::ffff:10.0.0.66"];
            sources.into_iter().filter_map(|source| source.parse().ok()).map(to_port_v6).collect()
        }),
        attack(
            "no IPv4 header",
            "ipv4_drop_malformed",
            8,
            (0..5)
                .map(|words| with(0, 0x40 | words))
                .chain([with(0, 0x4f), with(2, 0xff), with(3, 19)])
                .collect(),
        ),
        attack("cut off", "ipv4_drop_malformed", 30, short(&good)),
        attack("cut off, in IPv6", "ipv6_drop_malformed", 40, short(&to_port_v6(EVIL_V6))),
        attack(
            "options of no length",
            "ipv4_drop_option",
            3,
            vec![options([7, 0, 0, 0]), options([7, 1, 0, 0]), options([7, 200, 4, 0])],
        ),
        attack(
            "source routes",
            "ipv4_drop_source_route",
            2,
            vec![options([131, 3, 4, 0]), options([137, 3, 4, 0])],
        ),
        attack(
            "options of options",
            "ipv6_drop_extension",
            1,
            vec![extension(60, &[60, 0, 1, 4, 0, 0, 0, 0].repeat(150))],
        ),
        attack(
            "an option longer than its header",
            "ipv6_drop_option",
            1,
            vec![extension(60, &[17, 0, 5, 200, 0, 0, 0, 0])],
        ),
        attack(
            "a routing header of type 0",
            "ipv6_drop_routing",
            1,
            vec![extension(43, &[[17, 2, 0, 1, 0, 0, 0, 0].as_slice(), &V6.octets()].concat())],
        ),
        attack("nothing behind the headers", "ipv6_drop_protocol", 1, vec![extension(59, &[])]),
        attack(
            "tags upon tags",
            "link_drop_vlan",
            1,
            vec![[&MAC.0[..], &EVIL.0, &[0x81, 0, 0, 5, 0x81, 0, 0, 5, 8, 0], &good[14..]].concat()],
        ),
        attack(
            "lengths of UDP that are none",
            "udp_drop_malformed",
            3,
            [0u16, 7, 0xffff]
                .into_iter()
                .map(|len| {
                    let mut frame = good.clone();
                    frame[38..40].copy_from_slice(&len.to_be_bytes());
                    frame
                })
                .collect(),
        ),
        attack("no checksum under IPv6", "udp_drop_checksum", 1, {
            let mut frame = to_port_v6(EVIL_V6);
            frame[60..62].fill(0);
            vec![frame]
        }),
        attack(
            "a scan of ports",
            "icmp_drop_rate",
            900,
            (0..1000u16)
                .map(|n| {
                    let octets = datagram(&addresses_v4(EVIL_V4), 1, 10_000 + n, 8);
                    v4(&Ipv4Header::new(EVIL_V4, V4, IpProtocol::UDP), &octets)
                })
                .collect(),
        ),
    ]
}
