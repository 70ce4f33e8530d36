//! What tshark reads in a frame is what is read here, and what is written again is the frame.

use crate::frames::{all, named};
use bypath_wire::dissect::{First, Header, Layer, Verdict, Why, dissect};
use bypath_wire::ipv6_ext::Extension;
use bypath_wire::ndp::NdpOption;
use bypath_wire::print::Line;
use bypath_wire::tcp_options::TcpOption;
use bypath_wire::{EthernetHeader, Headers, Icmpv4Message, NdpMessage, Network, Transport};
use bypath_wire::{Ipv4Header, Ipv6Header};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::Ipv6Addr;

/// Fields by tshark's names; several values of one are joined with commas, as tshark does.
#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Fields {
    fn add(&mut self, name: &str, value: impl Display) {
        let place = self.0.entry(name.to_owned()).or_default();
        let comma = if place.is_empty() { "" } else { "," };
        *place = format!("{place}{comma}{value}");
    }

    /// tshark: 0 wrong, 1 right, 2 not looked at, 3 not there, 4 not possible.
    fn checksum(&mut self, protocol: &str, verdict: Verdict) {
        let value = match verdict {
            Verdict::Wrong => "0",
            Verdict::Fits => "1",
            Verdict::Absent | Verdict::Unknown => "not checked",
        };
        self.add(&format!("{protocol}.checksum.status"), value);
    }
}

fn on(flag: bool) -> u8 {
    flag as u8
}

fn ethernet(fields: &mut Fields, header: &EthernetHeader) {
    fields.add("eth.dst", header.destination);
    fields.add("eth.src", header.source);
    for tag in &header.tags {
        let protocol = if tag.tpid == 0x88a8 { "ieee8021ad" } else { "vlan" };
        fields.add(&format!("{protocol}.id"), tag.vid);
        fields.add(&format!("{protocol}.priority"), tag.pcp);
        fields.add(&format!("{protocol}.dei"), on(tag.dei));
    }
}

fn ipv4(fields: &mut Fields, header: &Ipv4Header, verdict: Verdict, packet: &[u8]) {
    let (_, extent) = Ipv4Header::parse_header(packet).expect("read before");
    fields.add("ip.hdr_len", header.len());
    fields.add("ip.dsfield", format!("{:#04x}", header.class.0));
    fields.add("ip.len", extent.total_len);
    fields.add("ip.id", format!("{:#06x}", header.identification));
    fields.add("ip.flags.df", on(header.dont_fragment));
    fields.add("ip.flags.mf", on(header.more_fragments));
    fields.add("ip.frag_offset", header.fragment_offset / 8);
    fields.add("ip.ttl", header.ttl);
    fields.add("ip.proto", header.protocol.0);
    fields.checksum("ip", verdict);
    fields.add("ip.src", header.source);
    fields.add("ip.dst", header.destination);
}

fn ipv6(fields: &mut Fields, header: &Ipv6Header, packet: &[u8]) {
    fields.add("ipv6.tclass", format!("{:#010x}", header.class.0));
    fields.add("ipv6.flow", format!("{:#08x}", header.flow_label));
    fields.add("ipv6.plen", Ipv6Header::parse_header(packet).expect("read before").1);
    fields.add("ipv6.nxt", header.next_header.0);
    fields.add("ipv6.hlim", header.hop_limit);
    fields.add("ipv6.src", header.source);
    fields.add("ipv6.dst", header.destination);
}

fn tcp(fields: &mut Fields, layer: &Layer) {
    let Header::Tcp(header, verdict) = layer.header else { return };
    fields.add("tcp.srcport", header.source_port);
    fields.add("tcp.dstport", header.destination_port);
    fields.add("tcp.seq_raw", header.seq);
    fields.add("tcp.ack_raw", header.ack);
    fields.add("tcp.hdr_len", header.len());
    fields.add("tcp.flags", format!("{:#06x}", header.flags.bits()));
    fields.add("tcp.window_size_value", header.window);
    fields.add("tcp.urgent_pointer", header.urgent);
    fields.checksum("tcp", verdict);
    for option in &header.options {
        match option.expect("a good option") {
            TcpOption::MaxSegmentSize(size) => fields.add("tcp.options.mss_val", size),
            TcpOption::WindowScale(shift) => fields.add("tcp.options.wscale.shift", shift),
            TcpOption::Timestamps { value, echo } => {
                fields.add("tcp.options.timestamp.tsval", value);
                fields.add("tcp.options.timestamp.tsecr", echo);
            }
            TcpOption::Sack(blocks) => blocks.as_slice().iter().for_each(|block| {
                fields.add("tcp.options.sack_le", block.left);
                fields.add("tcp.options.sack_re", block.right);
            }),
            TcpOption::SackPermitted | TcpOption::Nop | TcpOption::Other { .. } => {}
        }
    }
}

fn ndp(fields: &mut Fields, message: &NdpMessage, options: impl Iterator<Item = NdpOption<'static>>) {
    match message {
        NdpMessage::RouterSolicitation => {}
        NdpMessage::RouterAdvertisement { lifetime, .. } => {
            fields.add("icmpv6.nd.ra.router_lifetime", lifetime);
        }
        NdpMessage::NeighborSolicitation { target } => fields.add("icmpv6.nd.ns.target_address", target),
        NdpMessage::NeighborAdvertisement { target, .. } => {
            fields.add("icmpv6.nd.na.target_address", target);
        }
        NdpMessage::Redirect { target, destination } => {
            fields.add("icmpv6.nd.rd.target_address", target);
            fields.add("icmpv6.rd.na.destination_address", destination);
        }
    }
    for option in options {
        match option {
            NdpOption::SourceLinkLayer(mac) | NdpOption::TargetLinkLayer(mac) => {
                fields.add("icmpv6.opt.linkaddr", mac);
            }
            NdpOption::Prefix(prefix) => {
                fields.add("icmpv6.opt.prefix", prefix.prefix);
                fields.add("icmpv6.opt.prefix.length", prefix.len);
            }
            NdpOption::DnsServers { addresses, .. } => {
                addresses.iter().for_each(|a| fields.add("icmpv6.opt.rdnss", Ipv6Addr::from(*a)));
            }
            NdpOption::Mtu(mtu) => fields.add("icmpv6.opt.mtu", mtu),
            NdpOption::RedirectedHeader(_) | NdpOption::Other { .. } => {}
        }
    }
}

/// Type and code as they are written.
fn kind_and_code(fields: &mut Fields, protocol: &str, verdict: Verdict, written: [u8; 8]) {
    fields.add(&format!("{protocol}.type"), written[0]);
    fields.add(&format!("{protocol}.code"), written[1]);
    fields.checksum(protocol, verdict);
}

/// What is read here in a frame that lives as long as the program.
fn fields(frame: &'static [u8]) -> Fields {
    let mut fields = Fields::default();
    for layer in dissect(frame, First::Ethernet) {
        let here = &frame[layer.at..];
        match layer.header {
            Header::Ethernet(header) => ethernet(&mut fields, &header),
            Header::Arp(packet) => {
                fields.add("arp.opcode", packet.operation.0);
                fields.add("arp.src.hw_mac", packet.sender_mac);
                fields.add("arp.src.proto_ipv4", packet.sender_ip);
                fields.add("arp.dst.hw_mac", packet.target_mac);
                fields.add("arp.dst.proto_ipv4", packet.target_ip);
            }
            Header::Ipv4(header, verdict) => ipv4(&mut fields, &header, verdict, here),
            Header::Ipv6(header) => ipv6(&mut fields, &header, here),
            Header::Extension(header) => match header.extension {
                Extension::Fragment(fragment) => {
                    fields.add("ipv6.fraghdr.offset", fragment.offset / 8);
                    fields.add("ipv6.fraghdr.more", on(fragment.more));
                    fields.add("ipv6.fraghdr.ident", format!("{:#010x}", fragment.identification));
                }
                Extension::Routing { kind, segments_left, .. } => {
                    fields.add("ipv6.routing.type", kind);
                    fields.add("ipv6.routing.segleft", segments_left);
                }
                _ => {}
            },
            Header::Udp(header, verdict) => {
                fields.add("udp.srcport", header.source_port);
                fields.add("udp.dstport", header.destination_port);
                fields.checksum("udp", verdict);
            }
            Header::Tcp(..) => tcp(&mut fields, &layer),
            Header::Icmpv4(message, verdict) => {
                let mut written = [0; 8];
                message.emit(&mut written).expect("room");
                kind_and_code(&mut fields, "icmp", verdict, written);
                match message {
                    Icmpv4Message::Unreachable { code: 4, mtu } => fields.add("icmp.mtu", mtu),
                    Icmpv4Message::Redirect { gateway, .. } => fields.add("icmp.redir_gw", gateway),
                    _ => {}
                }
            }
            Header::Icmpv6(message, verdict) => {
                use bypath_wire::Icmpv6Message::*;
                let mut written = [0; 8];
                message.emit(&mut written).expect("room");
                kind_and_code(&mut fields, "icmpv6", verdict, written);
                match message {
                    PacketTooBig { mtu } => fields.add("icmpv6.mtu", mtu),
                    EchoRequest { identifier, sequence } | EchoReply { identifier, sequence } => {
                        fields.add("icmpv6.echo.identifier", format!("{identifier:#06x}"));
                        fields.add("icmpv6.echo.sequence_number", sequence);
                    }
                    _ => {}
                }
            }
            Header::Ndp(message, options, verdict) => {
                kind_and_code(&mut fields, "icmpv6", verdict, [message.kind(), 0, 0, 0, 0, 0, 0, 0]);
                ndp(&mut fields, &message, options.iter());
            }
            // Those have a file of their own.
            #[cfg(feature = "roce")]
            Header::Roce(..) => {}
        }
    }
    fields
}

#[test]
fn the_fields_are_those_that_tshark_reads() {
    for golden in all() {
        let frame: &'static [u8] = golden.octets.leak();
        let quoting = dissect(frame, First::Ethernet).any(|layer| layer.quoted);
        let mut theirs = golden.fields;
        let mut ours = fields(frame).0;
        for (name, value) in &mut theirs {
            if name.ends_with("checksum.status") && !matches!(&value[..1], "0" | "1") {
                "not checked".clone_into(value);
            }
        }
        if quoting {
            // tshark judges checksums of quoted packets, and gives no sequence number of a quoted segment.
            for name in ["ip.checksum.status", "udp.checksum.status", "tcp.checksum.status", "tcp.seq_raw"] {
                theirs.remove(name);
                ours.remove(name);
            }
        }
        assert_eq!(ours, theirs, "{}", golden.name);
    }
}

#[test]
fn every_frame_is_read_to_its_end() {
    for golden in all() {
        let end = dissect(&golden.octets, First::Ethernet).end();
        let fine = match end.why {
            Why::Payload | Why::EtherType(_) | Why::Fragment => true,
            Why::Protocol(protocol) => protocol.0 == 253,
            Why::Error(_) | Why::TooDeep => false,
        };
        assert!(fine, "{}: {end:?}", golden.name);
        let quoting = dissect(&golden.octets, First::Ethernet).any(|layer| layer.quoted);
        let cut = end.missing > 0;
        assert!(
            !cut || quoting || end.why == Why::Payload && golden.name.contains("fragment"),
            "{}",
            golden.name
        );
    }
}

/// Headers that can be written in one piece: no extension headers, no quotation looked into.
fn headers(frame: &[u8]) -> Option<(Headers, usize)> {
    let mut layers = dissect(frame, First::Ethernet).filter(|layer| !layer.quoted);
    let Header::Ethernet(link) = layers.next()?.header else { return None };
    let network = match layers.next()?.header {
        Header::Ipv4(header, Verdict::Fits) if !header.is_fragment() => Network::V4(header),
        Header::Ipv6(header) => Network::V6(header),
        _ => return None,
    };
    let last = layers.next()?;
    let transport = match last.header {
        Header::Udp(header, Verdict::Fits) => Transport::Udp(header),
        Header::Tcp(header, Verdict::Fits) => Transport::Tcp(header),
        Header::Icmpv4(message, Verdict::Fits) => Transport::Icmpv4(message),
        Header::Icmpv6(message, Verdict::Fits) => Transport::Icmpv6(message),
        _ => return None,
    };
    Some((Headers { link: Some(link), network, transport }, last.at + last.len))
}

#[test]
fn what_is_read_is_written_again_octet_by_octet() {
    let mut written = 0;
    for golden in all() {
        let Some((headers, payload_at)) = headers(&golden.octets) else { continue };
        let padding = if golden.name.ends_with("padded") { 17 } else { 0 };
        let frame = &golden.octets[..golden.octets.len() - padding];
        let mut buffer = vec![0xee; 2048];
        let len = headers.emit(&mut buffer, &frame[payload_at..]).expect("room");
        assert_eq!(&buffer[..len], frame, "{}", golden.name);
        written += 1;
    }
    assert!(written > 40, "only {written}");
}

#[test]
fn neighbour_discovery_is_written_again_octet_by_octet() {
    let mut written = 0;
    for golden in all() {
        for layer in dissect(&golden.octets, First::Ethernet) {
            let Header::Ndp(message, options, Verdict::Fits) = layer.header else { continue };
            let options: Vec<NdpOption> = options.iter().collect();
            let mut buffer = [0xee; 512];
            let len = message.emit(&mut buffer, &options).expect("room");
            let frame = &golden.octets[layer.at..];
            // The checksum is of the addresses' making.
            buffer[2..4].copy_from_slice(&frame[2..4]);
            assert_eq!(&buffer[..len], frame, "{}", golden.name);
            written += 1;
        }
    }
    assert!(written >= 8, "only {written}");
}

fn line(name: &str) -> String {
    Line::new(&named(name), First::Ethernet).without_link().to_string()
}

#[test]
fn a_frame_is_one_line() {
    assert_eq!(
        Line::new(&named("vlan 10, priority 7"), First::Ethernet).to_string(),
        "02:00:00:00:00:0a > 02:00:00:00:00:0b, vlan 10 p 7, IPv4 192.0.2.1.5353 > 198.51.100.2.53: UDP, length 6"
    );
    for (name, expected) in [
        ("arp request", "ARP who-has 10.0.0.2 tell 10.0.0.1"),
        ("arp reply, tagged", "vlan 3 p 0, ARP 10.0.0.1 is-at 02:00:00:00:00:0a"),
        ("local experimental", "local experimental 1 (0x88b5), length 56"),
        ("vlan, drop eligible", "vlan 4094 p 1 dei, IPv6 2001:db8::1.5353 > 2001:db8:1::2.53: UDP, length 6"),
        (
            "two tags",
            "service vlan 200 p 3, vlan 10 p 6, IPv4 192.0.2.1.40000 > 198.51.100.2.443: \
             TCP [S], seq 4294967280, win 4321, length 4",
        ),
        (
            "tcp4 syn",
            "IPv4 192.0.2.1.1 > 198.51.100.2.2: TCP [SEW], seq 7, win 8192, \
             options [mss 1460,sackOK,TS val 123456 ecr 0,nop,wscale 10], length 0",
        ),
        (
            "tcp4 sack",
            "IPv4 192.0.2.1.1 > 198.51.100.2.2: TCP [.], seq 0, ack 9, win 8192, \
             options [nop,nop,sack 100:200 300:400 500:600], length 0",
        ),
        ("udp4 with a wrong checksum", "IPv4 192.0.2.1.1 > 198.51.100.2.2: UDP [wrong checksum], length 5"),
        ("icmp4 echo", "IPv4 192.0.2.1 > 198.51.100.2: ICMP echo request, id 4660, seq 5, length 9"),
        (
            "icmp4 fragmentation needed",
            "IPv4 192.0.2.1 > 198.51.100.2: ICMP fragmentation needed, mtu 1400 (about IPv4 \
             198.51.100.2.7 > 203.0.113.9.8: TCP [S], seq 0, win 8192, length 0 [cut: 1460 octets missing])",
        ),
        ("ip4 later fragment", "IPv4 frag 0x0007:1480 192.0.2.1 > 192.0.2.2: fragment, length 24"),
        ("ip6 first fragment", "IPv6 frag 0xdeadbeef:0+ 2001:db8::1.5353 > 2001:db8:1::2.53: UDP, length 48"),
        (
            "icmp6 parameter problem",
            "IPv6 2001:db8::1 > 2001:db8:1::2: ICMPv6 parameter problem, code 1, octet 40 (about IPv6 \
             2001:db8:1::2 > 2001:db8::1: protocol 253, length 8)",
        ),
        ("nd solicitation", "IPv6 fe80::a > ff02::1:ff00:b: ICMPv6 who-has fe80::b, from 02:00:00:00:00:0a"),
        ("nd advertisement", "IPv6 fe80::b > fe80::a: ICMPv6 fe80::b is-at 02:00:00:00:00:0b"),
    ] {
        assert_eq!(line(name), expected);
    }
}

#[test]
fn a_cut_frame_says_where_it_ends() {
    let whole = named("two tags");
    for (len, expected) in [
        (10, "[Ethernet: needs 14 octets, 10 are there], length 10"),
        (16, "[VLAN tag: needs 4 octets, 2 are there], length 16"),
        (30, "service vlan 200 p 3, vlan 10 p 6, [IPv4: needs 20 octets, 8 are there], length 8"),
        (
            50,
            "service vlan 200 p 3, vlan 10 p 6, IPv4 192.0.2.1 > 198.51.100.2: \
             [TCP: needs 20 octets, 8 are there], length 8 [cut: 16 octets missing]",
        ),
        (
            64,
            "service vlan 200 p 3, vlan 10 p 6, IPv4 192.0.2.1.40000 > 198.51.100.2.443: \
             TCP [S], seq 4294967280, win 4321, length 2 [cut: 2 octets missing]",
        ),
    ] {
        let line = Line::new(&whole[..len], First::Ethernet).without_link().to_string();
        assert_eq!(line, expected, "{len}");
    }
}
