use super::*;
use crate::checksum::Sum;
use crate::ethernet::MacAddr;
use crate::meta::VlanTag;
use crate::vlan::VlanTags;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::vec::Vec;

fn every_kind() -> Vec<Headers> {
    let mut tagged =
        EthernetHeader::new(MacAddr([2, 0, 0, 0, 0, 2]), MacAddr([2, 0, 0, 0, 0, 1]), EtherType(0));
    tagged.tags = VlanTags::one(VlanTag { tpid: 0x8100, pcp: 7, dei: false, vid: 10 });
    let plain = EthernetHeader { tags: VlanTags::new(), ..tagged };
    let v4 = Ipv4Header::new(Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2), IpProtocol(253));
    let v6 = Ipv6Header::new(Ipv6Addr::LOCALHOST, Ipv6Addr::LOCALHOST, IpProtocol(253));
    let mut tcp = TcpHeader::new(1, 2);
    assert!(tcp.options.push(&crate::TcpOption::MaxSegmentSize(1460)));
    let transports = [
        Transport::Udp(UdpHeader { source_port: 1000, destination_port: 2000 }),
        Transport::Tcp(tcp),
        Transport::Icmpv4(Icmpv4Message::EchoRequest { identifier: 1, sequence: 2 }),
        Transport::Icmpv6(Icmpv6Message::EchoRequest { identifier: 1, sequence: 2 }),
        Transport::None,
    ];
    let mut all = Vec::new();
    for link in [None, Some(plain), Some(tagged)] {
        for network in [Network::V4(v4), Network::V6(v6)] {
            all.extend(transports.map(|transport| Headers { link, network, transport }));
        }
    }
    let belongs = |h: &Headers| {
        !matches!(
            (h.network, h.transport),
            (Network::V6(_), Transport::Icmpv4(_)) | (Network::V4(_), Transport::Icmpv6(_))
        )
    };
    let (fitting, others): (Vec<_>, Vec<_>) = all.into_iter().partition(belongs);
    for headers in others {
        assert!(matches!(headers.emit(&mut [0; 200], &[]), Err(EmitError::Mismatch { .. })));
    }
    fitting
}

#[test]
fn copied_and_in_place_are_the_same_packet() {
    for headers in every_kind() {
        for len in [0, 1, 7, 100, 1400] {
            let payload = &[0xc3; 1400][..len];
            let mut copied = [0xee; 1600];
            let all = headers.emit(&mut copied, payload).unwrap();
            assert_eq!(all, headers.len() + len);
            let mut placed = [0xee; 1600];
            placed[headers.len()..all].copy_from_slice(payload);
            assert_eq!(headers.emit_in_front(&mut placed, len), Ok(all));
            assert_eq!(placed[..], copied[..], "{headers:?}, {len} octets");
            for room in 0..all {
                assert!(headers.emit(&mut [0; 1600][..room], payload).is_err());
                assert!(headers.emit_in_front(&mut [0; 1600][..room], len).is_err());
            }
        }
    }
}

#[test]
fn a_device_completes_what_it_is_told_to() {
    for headers in every_kind() {
        let mut whole = [0x3c; 300];
        let len = headers.emit_in_front(&mut whole, 99).unwrap();
        let mut partial = [0x3c; 300];
        let (again, state) = headers.emit_for_device(&mut partial, 99).unwrap();
        assert_eq!(again, len);
        if let ChecksumState::Partial { start, offset } = state {
            let at = (start + offset) as usize;
            let check = Sum::new().bytes(&partial[start as usize..len]).finish();
            partial[at..at + 2].copy_from_slice(&check.to_be_bytes());
        }
        assert_eq!(partial, whole, "{headers:?}");
    }
}

#[test]
fn the_layers_name_each_other() {
    for headers in every_kind() {
        let mut bytes = [0; 200];
        let len = headers.emit(&mut bytes, b"payload").unwrap();
        let mut packet = &bytes[..len];
        if headers.link.is_some() {
            let (link, rest) = EthernetHeader::parse(packet).unwrap();
            assert_eq!(link.ethertype, headers.network.ethertype());
            packet = rest;
        }
        let protocol = match headers.network {
            Network::V4(_) => Ipv4Header::parse(packet).unwrap().0.protocol,
            Network::V6(_) => Ipv6Header::parse(packet).unwrap().0.next_header,
        };
        assert_eq!(protocol, headers.transport.protocol(IpProtocol(253)));
    }
}

#[test]
fn what_the_length_fields_cannot_say_is_refused() {
    let mut buffer = std::vec![0; 70000];
    for headers in every_kind() {
        let found = headers.emit_in_front(&mut buffer, 65536);
        assert!(matches!(found, Err(EmitError::TooLong { .. })), "{headers:?}");
    }
}
