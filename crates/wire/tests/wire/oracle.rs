//! etherparse, which was written by others from the same specifications: it reads what is written here, and what it
//! writes is read here.

use bypath_wire::dissect::{First, Header, Verdict, Why, dissect};
use bypath_wire::ipv4::Ipv4Options;
use bypath_wire::ipv6_ext::{self, Extension, ExtensionWalk, FragmentHeader};
use bypath_wire::tcp_options::{SackBlock, SackBlocks, TcpOption, TcpOptions};
use bypath_wire::udp::UdpChecksum;
use bypath_wire::{ArpPacket, EtherType, EthernetHeader, Headers, Icmpv4Message, Icmpv6Message, IpProtocol};
use bypath_wire::{Ipv4Header, Ipv6Header, MacAddr, Network, SeqNumber, TcpFlags, TcpHeader, TrafficClass};
use bypath_wire::{Transport, UdpHeader, VlanTag, VlanTags, arp, checksum, tcp, udp};
use etherparse::{self as their, TransportHeader};
use proptest::prelude::*;
use std::net::{Ipv4Addr, Ipv6Addr};

// ---------------------------------------------------------------------------------------- any values

fn any_tag() -> impl Strategy<Value = VlanTag> {
    let tpid = prop_oneof![Just(0x8100), Just(0x88a8), Just(0x9100)];
    (tpid, any::<u16>()).prop_map(|(tpid, tci)| VlanTag::from_tci(tpid, tci))
}

/// At most three tags: that is what etherparse takes.
fn any_link() -> impl Strategy<Value = EthernetHeader> {
    let tags = prop::collection::vec(any_tag(), 0..=3);
    (any::<[u8; 6]>(), any::<[u8; 6]>(), tags).prop_map(|(destination, source, list)| {
        let mut tags = VlanTags::new();
        assert!(list.into_iter().all(|tag| tags.push(tag)));
        let (destination, source) = (MacAddr(destination), MacAddr(source));
        EthernetHeader { destination, source, tags, ethertype: EtherType::IPV4 }
    })
}

fn any_ipv4() -> impl Strategy<Value = Ipv4Header> {
    let options = prop::collection::vec(any::<[u8; 4]>(), 0..=10);
    let place = (any::<bool>(), any::<bool>(), 0..0x2000u16);
    (any::<(u8, u16, u8, u8, u32, u32)>(), place, options).prop_map(|(fields, place, options)| {
        let (class, identification, ttl, protocol, source, destination) = fields;
        Ipv4Header {
            class: TrafficClass(class),
            identification,
            dont_fragment: place.0,
            more_fragments: place.1,
            fragment_offset: place.2 * 8,
            ttl,
            protocol: IpProtocol(protocol),
            source: Ipv4Addr::from(source),
            destination: Ipv4Addr::from(destination),
            options: Ipv4Options::from_bytes(options.as_flattened()).expect("at most forty octets"),
        }
    })
}

fn any_ipv6() -> impl Strategy<Value = Ipv6Header> {
    (any::<(u8, u8, u8, u128, u128)>(), 0..1u32 << 20).prop_map(|(fields, flow_label)| {
        let (class, next_header, hop_limit, source, destination) = fields;
        Ipv6Header {
            class: TrafficClass(class),
            flow_label,
            next_header: IpProtocol(next_header),
            hop_limit,
            source: Ipv6Addr::from(source),
            destination: Ipv6Addr::from(destination),
        }
    })
}

fn any_tcp_option() -> impl Strategy<Value = TcpOption<'static>> {
    let block = any::<(u32, u32)>();
    let sack = prop::collection::vec(block, 1..=4).prop_map(|list| {
        let mut blocks = SackBlocks::new();
        for (left, right) in list {
            assert!(blocks.push(SackBlock { left: SeqNumber(left), right: SeqNumber(right) }));
        }
        TcpOption::Sack(blocks)
    });
    prop_oneof![
        Just(TcpOption::Nop),
        any::<u16>().prop_map(TcpOption::MaxSegmentSize),
        any::<u8>().prop_map(TcpOption::WindowScale),
        Just(TcpOption::SackPermitted),
        any::<(u32, u32)>().prop_map(|(value, echo)| TcpOption::Timestamps { value, echo }),
        sack,
    ]
}

fn any_tcp() -> impl Strategy<Value = TcpHeader> {
    let options = prop::collection::vec(any_tcp_option(), 0..8);
    (any::<(u16, u16, u32, u32, u16, u16, u16)>(), options).prop_map(|(fields, list)| {
        let mut options = TcpOptions::new();
        // Those that fit.
        let _ = list.iter().all(|option| options.push(option));
        TcpHeader {
            source_port: fields.0,
            destination_port: fields.1,
            seq: SeqNumber(fields.2),
            ack: SeqNumber(fields.3),
            flags: TcpFlags::from_bits(fields.4),
            window: fields.5,
            urgent: fields.6,
            options,
        }
    })
}

fn any_udp() -> impl Strategy<Value = UdpHeader> {
    any::<(u16, u16)>()
        .prop_map(|(source_port, destination_port)| UdpHeader { source_port, destination_port })
}

fn any_icmpv4() -> impl Strategy<Value = Icmpv4Message> {
    // Types 0 to 15 have meanings, and low codes.
    (0..16u8, prop_oneof![0..16u8, any::<u8>()], any::<[u8; 6]>()).prop_map(|(kind, code, rest)| {
        let [b, c, d, e, f, g] = rest;
        match Icmpv4Message::parse(&[kind, code, b, c, d, e, f, g]).expect("eight octets").0 {
            // What these octets say without their code, etherparse does not keep.
            Icmpv4Message::Unreachable { code, .. } if code != 4 => {
                Icmpv4Message::Unreachable { code, mtu: 0 }
            }
            Icmpv4Message::ParameterProblem { code, .. } if code != 0 => {
                Icmpv4Message::ParameterProblem { code, pointer: 0 }
            }
            message => message,
        }
    })
}

fn any_icmpv6() -> impl Strategy<Value = Icmpv6Message> {
    let kind = prop_oneof![1..=4u8, 128..=129u8, 138..=255u8];
    (kind, prop_oneof![0..8u8, any::<u8>()], any::<[u8; 6]>()).prop_map(|(kind, code, rest)| {
        let [b, c, d, e, f, g] = rest;
        Icmpv6Message::parse(&[kind, code, b, c, d, e, f, g]).expect("eight octets").0
    })
}

/// Whole packets, not fragments.
fn any_headers() -> impl Strategy<Value = Headers> {
    let v4 = (
        any_ipv4(),
        prop_oneof![
            any_udp().prop_map(Transport::Udp),
            any_tcp().prop_map(Transport::Tcp),
            any_icmpv4().prop_map(Transport::Icmpv4),
        ],
    )
        .prop_map(|(header, transport)| {
            let whole = Ipv4Header { more_fragments: false, fragment_offset: 0, ..header };
            (Network::V4(whole), transport)
        });
    let v6 = (
        any_ipv6(),
        prop_oneof![
            any_udp().prop_map(Transport::Udp),
            any_tcp().prop_map(Transport::Tcp),
            any_icmpv6().prop_map(Transport::Icmpv6),
        ],
    )
        .prop_map(|(header, transport)| (Network::V6(header), transport));
    (any_link(), prop_oneof![v4, v6]).prop_map(|(link, (network, transport))| Headers {
        link: Some(link),
        network,
        transport,
    })
}

fn any_payload() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), 0..200)
}

// ------------------------------------------------------------------------- the same values as theirs

fn their_ipv4(header: &Ipv4Header, payload_len: usize) -> their::Ipv4Header {
    let mut theirs = their::Ipv4Header {
        dscp: header.class.dscp().try_into().expect("six bits"),
        ecn: (header.class.ecn() as u8).try_into().expect("two bits"),
        total_len: (header.len() + payload_len) as u16,
        identification: header.identification,
        dont_fragment: header.dont_fragment,
        more_fragments: header.more_fragments,
        fragment_offset: (header.fragment_offset / 8).try_into().expect("thirteen bits"),
        time_to_live: header.ttl,
        protocol: their::IpNumber(header.protocol.0),
        header_checksum: 0,
        source: header.source.octets(),
        destination: header.destination.octets(),
        options: header.options.as_bytes().try_into().expect("whole words"),
    };
    theirs.header_checksum = theirs.calc_header_checksum();
    theirs
}

fn their_ipv6(header: &Ipv6Header, payload_len: usize) -> their::Ipv6Header {
    their::Ipv6Header {
        traffic_class: header.class.0,
        flow_label: header.flow_label.try_into().expect("twenty bits"),
        payload_length: payload_len as u16,
        next_header: their::IpNumber(header.next_header.0),
        hop_limit: header.hop_limit,
        source: header.source.octets(),
        destination: header.destination.octets(),
    }
}

fn their_option(option: &TcpOption) -> their::TcpOptionElement {
    use their::TcpOptionElement::*;
    match *option {
        TcpOption::Nop => Noop,
        TcpOption::MaxSegmentSize(size) => MaximumSegmentSize(size),
        TcpOption::WindowScale(shift) => WindowScale(shift),
        TcpOption::SackPermitted => SelectiveAcknowledgementPermitted,
        TcpOption::Timestamps { value, echo } => Timestamp(value, echo),
        TcpOption::Sack(blocks) => {
            let pair = |i: usize| blocks.as_slice().get(i).map(|b| (b.left.0, b.right.0));
            SelectiveAcknowledgement(pair(0).expect("a block"), [pair(1), pair(2), pair(3)])
        }
        TcpOption::Other { .. } => unreachable!("not made by any_tcp_option"),
    }
}

fn their_tcp(header: &TcpHeader) -> their::TcpHeader {
    let options: Vec<_> = header.options.iter().map(|o| their_option(&o.expect("a good option"))).collect();
    let mut theirs =
        their::TcpHeader::new(header.source_port, header.destination_port, header.seq.0, header.window);
    theirs.acknowledgment_number = header.ack.0;
    theirs.urgent_pointer = header.urgent;
    let has = |flag| header.flags.has(flag);
    theirs.fin = has(TcpFlags::FIN);
    theirs.syn = has(TcpFlags::SYN);
    theirs.rst = has(TcpFlags::RST);
    theirs.psh = has(TcpFlags::PSH);
    theirs.ack = has(TcpFlags::ACK);
    theirs.urg = has(TcpFlags::URG);
    theirs.ece = has(TcpFlags::ECE);
    theirs.cwr = has(TcpFlags::CWR);
    theirs.ns = has(TcpFlags::AE);
    theirs.set_options(&options).expect("at most forty octets");
    theirs
}

/// The network header as theirs, with type and protocol as [`Headers::emit`] sets them.
fn their_network(headers: &Headers, payload_len: usize) -> their::IpHeaders {
    let behind = headers.transport.len() + payload_len;
    let protocol = match headers.transport {
        Transport::Udp(_) => IpProtocol::UDP,
        Transport::Tcp(_) => IpProtocol::TCP,
        Transport::Icmpv4(_) => IpProtocol::ICMP,
        Transport::Icmpv6(_) => IpProtocol::ICMPV6,
        Transport::None => unreachable!("not made by any_headers"),
    };
    match headers.network {
        Network::V4(header) => their::IpHeaders::Ipv4(
            their_ipv4(&Ipv4Header { protocol, ..header }, behind),
            their::Ipv4Extensions::default(),
        ),
        Network::V6(header) => their::IpHeaders::Ipv6(
            their_ipv6(&Ipv6Header { next_header: protocol, ..header }, behind),
            their::Ipv6Extensions::default(),
        ),
    }
}

/// The transport header as theirs, its checksum computed by them. ICMP's fields are theirs by reading eight octets.
fn their_transport(headers: &Headers, network: &their::IpHeaders, payload: &[u8]) -> TransportHeader {
    let mut theirs = match &headers.transport {
        Transport::Udp(header) => TransportHeader::Udp(their::UdpHeader {
            source_port: header.source_port,
            destination_port: header.destination_port,
            length: 8 + payload.len() as u16,
            checksum: 0,
        }),
        Transport::Tcp(header) => TransportHeader::Tcp(their_tcp(header)),
        Transport::Icmpv4(message) => {
            let mut bytes = [0; 20];
            message.emit(&mut bytes).expect("room");
            let (header, _) = their::Icmpv4Header::from_slice(&bytes).expect("a message");
            TransportHeader::Icmpv4(header)
        }
        Transport::Icmpv6(message) => {
            let mut bytes = [0; 8];
            message.emit(&mut bytes).expect("room");
            let (header, _) = their::Icmpv6Header::from_slice(&bytes).expect("a message");
            TransportHeader::Icmpv6(header)
        }
        Transport::None => unreachable!("not made by any_headers"),
    };
    match network {
        their::IpHeaders::Ipv4(header, _) => theirs.update_checksum_ipv4(header, payload).expect("a sum"),
        their::IpHeaders::Ipv6(header, _) => theirs.update_checksum_ipv6(header, payload).expect("a sum"),
    }
    theirs
}

/// The frame as they write it.
fn their_frame(headers: &Headers, payload: &[u8]) -> Vec<u8> {
    let network = their_network(headers, payload.len());
    let transport = their_transport(headers, &network, payload);
    let link = headers.link.expect("made with a link");
    let mut types: Vec<u16> = link.tags.iter().map(|tag| tag.tpid).collect();
    types.push(headers.network.ethertype().0);
    let mut frame = Vec::new();
    let ethernet = their::Ethernet2Header {
        source: link.source.0,
        destination: link.destination.0,
        ether_type: their::EtherType(types[0]),
    };
    frame.extend(ethernet.to_bytes());
    for (tag, inner) in link.tags.iter().zip(&types[1..]) {
        let tag = their::SingleVlanHeader {
            pcp: tag.pcp.try_into().expect("three bits"),
            drop_eligible_indicator: tag.dei,
            vlan_id: tag.vid.try_into().expect("twelve bits"),
            ether_type: their::EtherType(*inner),
        };
        frame.extend(tag.to_bytes());
    }
    match &network {
        their::IpHeaders::Ipv4(header, _) => frame.extend(header.to_bytes()),
        their::IpHeaders::Ipv6(header, _) => frame.extend(header.to_bytes()),
    }
    match transport {
        TransportHeader::Udp(header) => frame.extend(header.to_bytes()),
        TransportHeader::Tcp(header) => frame.extend(header.to_bytes()),
        TransportHeader::Icmpv4(header) => frame.extend(header.to_bytes()),
        TransportHeader::Icmpv6(header) => frame.extend(header.to_bytes()),
        TransportHeader::Igmp(_) => unreachable!("not made by any_headers"),
    }
    frame.extend(payload);
    frame
}

/// Their ICMP timestamps have more octets in their header than the eight of ours.
fn longer_there(headers: &Headers) -> bool {
    matches!(headers.transport, Transport::Icmpv4(Icmpv4Message::Other { kind: 13 | 14, code: 0, .. }))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn they_read_what_is_written_here(headers in any_headers(), payload in any_payload()) {
        prop_assume!(!longer_there(&headers));
        let mut frame = vec![0xee; 600];
        let len = headers.emit(&mut frame, &payload).expect("room");
        let read = their::PacketHeaders::from_ethernet_slice(&frame[..len]).expect("a frame");
        let network = their_network(&headers, payload.len());
        prop_assert_eq!(read.transport, Some(their_transport(&headers, &network, &payload)));
        prop_assert_eq!(read.net, Some(network.into()));
        prop_assert_eq!(read.payload.slice(), &payload);
        let link = headers.link.expect("made with a link");
        let tags: Vec<_> = read.link_exts.iter().map(|ext| match ext {
            their::LinkExtHeader::Vlan(tag) => {
                (u8::from(tag.pcp), tag.drop_eligible_indicator, u16::from(tag.vlan_id))
            }
            other => panic!("{other:?}"),
        }).collect();
        let ours: Vec<_> = link.tags.iter().map(|tag| (tag.pcp, tag.dei, tag.vid)).collect();
        prop_assert_eq!(tags, ours);
    }

    #[test]
    fn what_they_write_is_read_here(headers in any_headers(), payload in any_payload()) {
        prop_assume!(!longer_there(&headers));
        let frame = their_frame(&headers, &payload);
        let mut ours = vec![0xee; 600];
        let len = headers.emit(&mut ours, &payload).expect("room");
        prop_assert_eq!(&ours[..len], &frame);

        let mut layers = dissect(&frame, First::Ethernet);
        let link = headers.link.expect("made with a link");
        let expected = EthernetHeader { ethertype: headers.network.ethertype(), ..link };
        prop_assert_eq!(layers.next().map(|l| l.header), Some(Header::Ethernet(expected)));
        match (layers.next().map(|l| l.header), headers.network) {
            (Some(Header::Ipv4(found, Verdict::Fits)), Network::V4(header)) => {
                let protocol = found.protocol;
                prop_assert_eq!(found, Ipv4Header { protocol, ..header });
            }
            (Some(Header::Ipv6(found)), Network::V6(header)) => {
                let next_header = found.next_header;
                prop_assert_eq!(found, Ipv6Header { next_header, ..header });
            }
            (found, _) => prop_assert!(false, "{:?}", found),
        }
        let transport = layers.next().map(|l| l.header);
        match headers.transport {
            Transport::Udp(header) => prop_assert_eq!(transport, Some(Header::Udp(header, Verdict::Fits))),
            Transport::Tcp(header) => prop_assert_eq!(transport, Some(Header::Tcp(header, Verdict::Fits))),
            Transport::Icmpv4(m) => prop_assert_eq!(transport, Some(Header::Icmpv4(m, Verdict::Fits))),
            Transport::Icmpv6(m) => prop_assert_eq!(transport, Some(Header::Icmpv6(m, Verdict::Fits))),
            Transport::None => {}
        }
        let end = layers.end();
        if end.why == Why::Payload && !matches!(headers.transport, Transport::Icmpv4(_) | Transport::Icmpv6(_)) {
            prop_assert_eq!(end.rest, &payload[..]);
        }
    }

    #[test]
    fn ipv4_headers_of_fragments_too_are_the_same(header in any_ipv4(), payload_len in 0..60000usize) {
        let theirs = their_ipv4(&header, payload_len);
        let mut bytes = [0xee; 60];
        let len = header.emit(&mut bytes, payload_len).expect("room");
        prop_assert_eq!(&bytes[..len], &theirs.to_bytes()[..]);
        let (read, extent) = Ipv4Header::parse_header(&theirs.to_bytes()).expect("a header");
        prop_assert_eq!(read, header);
        prop_assert!(extent.checksum_fits && extent.total_len == len + payload_len);
    }

    #[test]
    fn the_same_octets_are_taken_for_headers(bytes in prop::collection::vec(any::<u8>(), 0..80), first in 0x40..0x50u8) {
        let mut bytes = bytes;
        if let Some(place) = bytes.first_mut() {
            *place = first;
        }
        let ours = Ipv4Header::parse_header(&bytes);
        // They leave a total length below the header's to their caller.
        let theirs = their::Ipv4Header::from_slice(&bytes).ok().filter(|(h, _)| h.total_len as usize >= h.header_len());
        prop_assert_eq!(ours.is_ok(), theirs.is_some(), "{:?}", ours);
        if let (Ok((header, extent)), Some((theirs, _))) = (ours, theirs) {
            let expected = their_ipv4(&header, extent.total_len - extent.header_len);
            let fits = expected.header_checksum == theirs.header_checksum;
            // 0x0000 and 0xffff are the same sum.
            prop_assert!(extent.checksum_fits == fits || theirs.header_checksum % 0xffff == 0);
            prop_assert_eq!(their::Ipv4Header { header_checksum: theirs.header_checksum, ..expected }, theirs);
        }
        let ours = TcpHeader::parse(&bytes);
        let theirs = their::TcpHeader::from_slice(&bytes);
        prop_assert_eq!(ours.is_ok(), theirs.is_ok(), "{:?}", ours);
        if let (Ok((header, payload)), Ok((theirs, rest))) = (ours, theirs) {
            prop_assert_eq!(payload, rest);
            prop_assert_eq!(header.options.as_bytes(), theirs.options.as_slice());
            let numbers = (header.seq.0, header.ack.0, header.window, header.urgent);
            let expected =
                (theirs.sequence_number, theirs.acknowledgment_number, theirs.window_size, theirs.urgent_pointer);
            prop_assert_eq!(numbers, expected);
            // The same options, as long as both know them. (They take no length but the usual one.)
            let mut found = theirs.options_iterator();
            for option in &header.options {
                match option {
                    Ok(TcpOption::Other { .. }) | Err(_) => break,
                    Ok(option) => prop_assert_eq!(found.next(), Some(Ok(their_option(&option)))),
                }
            }
        }
    }

    #[test]
    fn arp_is_the_same_both_ways(
        operation in 1..=2u16, macs in any::<([u8; 6], [u8; 6])>(), ips in any::<(u32, u32)>(),
    ) {
        let ours = ArpPacket {
            operation: arp::ArpOperation(operation),
            sender_mac: MacAddr(macs.0),
            sender_ip: Ipv4Addr::from(ips.0),
            target_mac: MacAddr(macs.1),
            target_ip: Ipv4Addr::from(ips.1),
        };
        let theirs: their::ArpPacket = their::ArpEthIpv4Packet {
            operation: their::ArpOperation(operation),
            sender_mac: macs.0,
            sender_ipv4: ips.0.to_be_bytes(),
            target_mac: macs.1,
            target_ipv4: ips.1.to_be_bytes(),
        }.into();
        let mut bytes = [0xee; 28];
        prop_assert_eq!(ours.emit(&mut bytes), Ok(28));
        prop_assert_eq!(&bytes[..], &theirs.to_bytes()[..]);
        prop_assert_eq!(ArpPacket::parse(&theirs.to_bytes()), Ok(ours));
    }

    #[test]
    fn extension_headers_are_the_same_both_ways(
        hop in prop::option::of(any::<[u8; 14]>()),
        destination in prop::option::of(any::<[u8; 6]>()),
        routing in prop::option::of((any::<[u8; 20]>(), any::<(u8, u8)>())),
        fragment in prop::option::of((0..0x2000u16, any::<bool>(), any::<u32>())),
    ) {
        let raw = |data: &[u8]| their::Ipv6RawExtHeader::new_raw(their::IpNumber(0), data).expect("a length");
        let routed = routing.map(|(data, (kind, left))| [&[kind, left][..], &data].concat());
        let mut theirs = their::Ipv6Extensions {
            hop_by_hop_options: hop.map(|d| raw(&d)),
            destination_options: destination.map(|d| raw(&d)),
            routing: routed.as_ref().map(|d| their::Ipv6RoutingExtensions {
                routing: raw(d),
                final_destination_options: None,
            }),
            fragment: fragment.map(|(offset, more, id)| their::Ipv6FragmentHeader::new(
                their::IpNumber(0), offset.try_into().expect("thirteen bits"), more, id,
            )),
            auth: None,
        };
        let first = theirs.set_next_headers(their::IpNumber(17));
        let mut bytes = Vec::new();
        theirs.write(&mut bytes, first).expect("written");

        let mut walk = ExtensionWalk::new(IpProtocol(first.0), &bytes);
        let mut ours = Vec::new();
        let mut buffer = [0xee; 64];
        for header in &mut walk {
            let header = header.expect("a header");
            let next = header.next_header;
            let len = match header.extension {
                Extension::HopByHop(options) => {
                    prop_assert_eq!(Some(options.0), hop.as_ref().map(|d| &d[..]));
                    ipv6_ext::emit_options(&mut buffer, next, options.0)
                }
                Extension::DestinationOptions(options) => {
                    prop_assert_eq!(Some(options.0), destination.as_ref().map(|d| &d[..]));
                    ipv6_ext::emit_options(&mut buffer, next, options.0)
                }
                Extension::Routing { kind, segments_left, data } => {
                    prop_assert_eq!(routing.map(|(d, k)| (d.to_vec(), k)), Some((data.to_vec(), (kind, segments_left))));
                    ipv6_ext::emit_routing(&mut buffer, next, kind, segments_left, data)
                }
                Extension::Fragment(found) => {
                    let expected = fragment.map(|(offset, more, identification)| FragmentHeader {
                        offset: offset * 8, more, identification,
                    });
                    prop_assert_eq!(Some(found), expected);
                    found.emit(&mut buffer, next)
                }
                Extension::Authentication { .. } => unreachable!("not made above"),
            }.expect("room");
            ours.extend(&buffer[..len]);
        }
        prop_assert_eq!(&ours, &bytes);
        prop_assert_eq!(walk.rest(), (IpProtocol::UDP, bytes.len(), &[][..]));
        let (read, next, rest) = their::Ipv6Extensions::from_slice(first, &ours).expect("headers");
        prop_assert_eq!((read, next, rest.len()), (theirs, their::IpNumber(17), 0));
    }

    #[test]
    fn checksums_are_the_same(headers in any_headers(), payload in prop::collection::vec(any::<u8>(), 0..3000)) {
        let ours = checksum::checksum(&payload);
        prop_assert_eq!(internet_checksum::checksum(&payload), ours.to_be_bytes());
        let addresses = headers.network.addresses();
        let network = their_network(&headers, payload.len());
        let mut buffer = vec![0; 3100];
        match their_transport(&headers, &network, &payload) {
            TransportHeader::Udp(theirs) => {
                let Transport::Udp(header) = headers.transport else { panic!("{headers:?}") };
                let len = header.emit_with(&mut buffer, &addresses, &payload).expect("room");
                prop_assert_eq!(buffer[6..8].to_vec(), theirs.checksum.to_be_bytes().to_vec());
                prop_assert_eq!(udp::verify(&addresses, &buffer[..len]), UdpChecksum::Fits);
            }
            TransportHeader::Tcp(theirs) => {
                let Transport::Tcp(header) = headers.transport else { panic!("{headers:?}") };
                let len = header.emit_with(&mut buffer, &addresses, &payload).expect("room");
                prop_assert_eq!(buffer[16..18].to_vec(), theirs.checksum.to_be_bytes().to_vec());
                prop_assert!(tcp::verify(&addresses, &buffer[..len]));
            }
            _ => {}
        }
    }
}
