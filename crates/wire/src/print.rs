//! A frame in one line, much as tcpdump prints it.

use crate::arp::{ArpOperation, ArpPacket};
use crate::dissect::{First, Header, Verdict, Why, dissect};
use crate::ethernet::{EtherType, EthernetHeader};
use crate::icmpv4::{Icmpv4Message, unreachable as unreachable_v4};
use crate::icmpv6::{Icmpv6Message, unreachable as unreachable_v6};
use crate::ip::Addresses;
use crate::ipv4::Ipv4Header;
use crate::ipv6_ext::{Extension, ExtensionHeader};
use crate::ndp::{NdpMessage, NdpOptions};
use crate::tcp::{TcpFlags, TcpHeader};
use crate::tcp_options::TcpOption;
use core::fmt::{self, Formatter, Write};

/// Prints a frame in one line, without a line break: `println!("{}", Line::new(frame, First::Ethernet))`.
///
/// Octets that are no header are counted, not shown. What is wrong stands in brackets.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    frame: &'a [u8],
    first: First,
    link: bool,
}

impl<'a> Line<'a> {
    /// A frame, or a packet without a link header.
    pub const fn new(frame: &'a [u8], first: First) -> Line<'a> {
        Line { frame, first, link: true }
    }

    /// Without the addresses of the link. VLAN tags are printed all the same.
    #[must_use]
    pub const fn without_link(self) -> Line<'a> {
        Line { link: false, ..self }
    }
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let mut layers = dissect(self.frame, self.first);
        // The innermost addresses, as long as nobody has printed them with or without ports.
        let mut pending: Option<Addresses> = None;
        let mut quoting = false;
        // An empty payload is worth a word behind TCP and UDP.
        let mut counts = false;
        for layer in &mut layers {
            if layer.quoted && !quoting {
                f.write_str(" (about ")?;
                quoting = true;
            }
            counts = matches!(layer.header, Header::Udp(..) | Header::Tcp(..));
            #[cfg(feature = "roce")]
            {
                counts |= matches!(layer.header, Header::Roce(..));
            }
            match layer.header {
                Header::Ethernet(header) => link(f, &header, self.link)?,
                Header::Arp(packet) => arp(f, &packet)?,
                Header::Ipv4(header, verdict) => {
                    plain(f, pending.replace(header.addresses()))?;
                    f.write_str("IPv4 ")?;
                    ipv4(f, &header, verdict)?;
                }
                Header::Ipv6(header) => {
                    plain(f, pending.replace(header.addresses()))?;
                    f.write_str("IPv6 ")?;
                }
                Header::Extension(header) => extension(f, &header)?,
                Header::Udp(header, verdict) => {
                    ports(f, pending.take(), header.source_port, header.destination_port)?;
                    f.write_str("UDP")?;
                    judged(f, verdict)?;
                }
                Header::Tcp(header, verdict) => {
                    ports(f, pending.take(), header.source_port, header.destination_port)?;
                    tcp(f, &header)?;
                    judged(f, verdict)?;
                }
                Header::Icmpv4(message, verdict) => {
                    plain(f, pending.take())?;
                    icmpv4(f, &message)?;
                    judged(f, verdict)?;
                }
                Header::Icmpv6(message, verdict) => {
                    plain(f, pending.take())?;
                    icmpv6(f, &message)?;
                    judged(f, verdict)?;
                }
                #[cfg(feature = "roce")]
                Header::Roce(headers, verdict) => {
                    write!(f, " RoCE {headers}")?;
                    if verdict == Verdict::Wrong {
                        f.write_str(" [wrong ICRC]")?;
                    }
                }
                Header::Ndp(message, options, verdict) => {
                    plain(f, pending.take())?;
                    ndp(f, &message, options)?;
                    judged(f, verdict)?;
                }
            }
        }
        plain(f, pending)?;
        let end = layers.end();
        match end.why {
            Why::Payload => {}
            Why::EtherType(EtherType(length)) if EtherType(length).is_length() => {
                write!(f, "802.3 {length}")?
            }
            Why::EtherType(other) => write!(f, "{other:#}")?,
            Why::Protocol(other) => write!(f, "{other}")?,
            Why::Fragment => f.write_str("fragment")?,
            Why::Error(error) => write!(f, "[{error}]")?,
            Why::TooDeep => f.write_str("[too many layers]")?,
        }
        if counts || end.why != Why::Payload || !end.rest.is_empty() {
            write!(f, ", length {}", end.rest.len())?;
        }
        if end.missing > 0 {
            write!(f, " [cut: {} octets missing]", end.missing)?;
        }
        if quoting {
            f.write_char(')')?;
        }
        Ok(())
    }
}

fn judged(f: &mut Formatter<'_>, verdict: Verdict) -> fmt::Result {
    if verdict == Verdict::Wrong { f.write_str(" [wrong checksum]") } else { Ok(()) }
}

fn link(f: &mut Formatter<'_>, header: &EthernetHeader, addresses: bool) -> fmt::Result {
    if addresses {
        write!(f, "{} > {}, ", header.source, header.destination)?;
    }
    for tag in &header.tags {
        let kind = if tag.tpid == EtherType::VLAN.0 { "vlan" } else { "service vlan" };
        write!(f, "{kind} {} p {}{}, ", tag.vid, tag.pcp, if tag.dei { " dei" } else { "" })?;
    }
    Ok(())
}

fn arp(f: &mut Formatter<'_>, packet: &ArpPacket) -> fmt::Result {
    let ArpPacket { operation, sender_mac, sender_ip, target_ip, .. } = packet;
    match *operation {
        ArpOperation::REQUEST if packet.is_probe() => write!(f, "ARP who-has {target_ip} (probe)"),
        ArpOperation::REQUEST if packet.is_announcement() => {
            write!(f, "ARP announces {sender_ip} at {sender_mac}")
        }
        ArpOperation::REQUEST => write!(f, "ARP who-has {target_ip} tell {sender_ip}"),
        ArpOperation::REPLY => write!(f, "ARP {sender_ip} is-at {sender_mac}"),
        ArpOperation(other) => write!(f, "ARP operation {other}"),
    }
}

/// Addresses without ports.
fn plain(f: &mut Formatter<'_>, addresses: Option<Addresses>) -> fmt::Result {
    match addresses {
        Some(a) => write!(f, "{} > {}: ", a.source(), a.destination()),
        None => Ok(()),
    }
}

fn ports(f: &mut Formatter<'_>, addresses: Option<Addresses>, from: u16, to: u16) -> fmt::Result {
    match addresses {
        Some(a) => write!(f, "{}.{from} > {}.{to}: ", a.source(), a.destination()),
        None => write!(f, "{from} > {to}: "),
    }
}

fn ipv4(f: &mut Formatter<'_>, header: &Ipv4Header, verdict: Verdict) -> fmt::Result {
    if verdict == Verdict::Wrong {
        f.write_str("[wrong header checksum] ")?;
    }
    if header.is_fragment() {
        let more = if header.more_fragments { "+" } else { "" };
        write!(f, "frag {:#06x}:{}{more} ", header.identification, header.fragment_offset)?;
    }
    Ok(())
}

fn extension(f: &mut Formatter<'_>, header: &ExtensionHeader<'_>) -> fmt::Result {
    match header.extension {
        Extension::HopByHop(_) => f.write_str("hop-by-hop "),
        Extension::DestinationOptions(_) => f.write_str("destination options "),
        Extension::Routing { kind, segments_left, .. } => write!(f, "routing {kind} left {segments_left} "),
        Extension::Fragment(fragment) => {
            let more = if fragment.more { "+" } else { "" };
            write!(f, "frag {:#010x}:{}{more} ", fragment.identification, fragment.offset)
        }
        Extension::Authentication { .. } => f.write_str("AH "),
    }
}

fn tcp(f: &mut Formatter<'_>, header: &TcpHeader) -> fmt::Result {
    write!(f, "TCP [{}], seq {}", header.flags, header.seq)?;
    if header.flags.has(TcpFlags::ACK) {
        write!(f, ", ack {}", header.ack)?;
    }
    write!(f, ", win {}", header.window)?;
    if header.flags.has(TcpFlags::URG) {
        write!(f, ", urg {}", header.urgent)?;
    }
    for (i, option) in header.options.iter().enumerate() {
        f.write_str(if i == 0 { ", options [" } else { "," })?;
        match option {
            Ok(TcpOption::Nop) => f.write_str("nop")?,
            Ok(TcpOption::MaxSegmentSize(size)) => write!(f, "mss {size}")?,
            Ok(TcpOption::WindowScale(shift)) => write!(f, "wscale {shift}")?,
            Ok(TcpOption::SackPermitted) => f.write_str("sackOK")?,
            Ok(TcpOption::Sack(blocks)) => {
                f.write_str("sack")?;
                for block in blocks.as_slice() {
                    write!(f, " {}:{}", block.left, block.right)?;
                }
            }
            Ok(TcpOption::Timestamps { value, echo }) => write!(f, "TS val {value} ecr {echo}")?,
            Ok(TcpOption::Other { kind, data }) => write!(f, "option {kind} ({} octets)", data.len())?,
            Err(_) => f.write_str("broken")?,
        }
    }
    if header.options.iter().next().is_some() { f.write_char(']') } else { Ok(()) }
}

fn icmpv4(f: &mut Formatter<'_>, message: &Icmpv4Message) -> fmt::Result {
    match *message {
        Icmpv4Message::EchoRequest { identifier, sequence } => {
            write!(f, "ICMP echo request, id {identifier}, seq {sequence}")
        }
        Icmpv4Message::EchoReply { identifier, sequence } => {
            write!(f, "ICMP echo reply, id {identifier}, seq {sequence}")
        }
        Icmpv4Message::Unreachable { code, mtu } => match code {
            unreachable_v4::NET => f.write_str("ICMP network unreachable"),
            unreachable_v4::HOST => f.write_str("ICMP host unreachable"),
            unreachable_v4::PROTOCOL => f.write_str("ICMP protocol unreachable"),
            unreachable_v4::PORT => f.write_str("ICMP port unreachable"),
            unreachable_v4::FRAGMENTATION_NEEDED => write!(f, "ICMP fragmentation needed, mtu {mtu}"),
            _ => write!(f, "ICMP unreachable, code {code}"),
        },
        Icmpv4Message::Redirect { gateway, .. } => write!(f, "ICMP redirect to {gateway}"),
        Icmpv4Message::TimeExceeded { code: 0 } => f.write_str("ICMP time exceeded in transit"),
        Icmpv4Message::TimeExceeded { .. } => f.write_str("ICMP time exceeded in reassembly"),
        Icmpv4Message::ParameterProblem { code, pointer } => {
            write!(f, "ICMP parameter problem, code {code}, octet {pointer}")
        }
        Icmpv4Message::Other { kind, code, .. } => write!(f, "ICMP type {kind}, code {code}"),
    }
}

fn icmpv6(f: &mut Formatter<'_>, message: &Icmpv6Message) -> fmt::Result {
    match *message {
        Icmpv6Message::EchoRequest { identifier, sequence } => {
            write!(f, "ICMPv6 echo request, id {identifier}, seq {sequence}")
        }
        Icmpv6Message::EchoReply { identifier, sequence } => {
            write!(f, "ICMPv6 echo reply, id {identifier}, seq {sequence}")
        }
        Icmpv6Message::Unreachable { code } => match code {
            unreachable_v6::NO_ROUTE => f.write_str("ICMPv6 no route"),
            unreachable_v6::ADDRESS => f.write_str("ICMPv6 address unreachable"),
            unreachable_v6::PORT => f.write_str("ICMPv6 port unreachable"),
            _ => write!(f, "ICMPv6 unreachable, code {code}"),
        },
        Icmpv6Message::PacketTooBig { mtu } => write!(f, "ICMPv6 packet too big, mtu {mtu}"),
        Icmpv6Message::TimeExceeded { code: 0 } => f.write_str("ICMPv6 time exceeded in transit"),
        Icmpv6Message::TimeExceeded { .. } => f.write_str("ICMPv6 time exceeded in reassembly"),
        Icmpv6Message::ParameterProblem { code, pointer } => {
            write!(f, "ICMPv6 parameter problem, code {code}, octet {pointer}")
        }
        Icmpv6Message::Other { kind, code, .. } => write!(f, "ICMPv6 type {kind}, code {code}"),
    }
}

fn ndp(f: &mut Formatter<'_>, message: &NdpMessage, options: NdpOptions<'_>) -> fmt::Result {
    match *message {
        NdpMessage::RouterSolicitation => f.write_str("ICMPv6 router solicitation")?,
        NdpMessage::RouterAdvertisement { lifetime, .. } => {
            write!(f, "ICMPv6 router advertisement, lifetime {lifetime} s")?;
        }
        NdpMessage::NeighborSolicitation { target } => write!(f, "ICMPv6 who-has {target}")?,
        NdpMessage::NeighborAdvertisement { target, .. } => write!(f, "ICMPv6 {target} is-at")?,
        NdpMessage::Redirect { target, destination } => {
            write!(f, "ICMPv6 redirect {destination} to {target}")?;
        }
    }
    match (message, options.target_link_layer(), options.source_link_layer()) {
        (NdpMessage::NeighborAdvertisement { .. }, Some(mac), _) => write!(f, " {mac}"),
        (NdpMessage::NeighborAdvertisement { .. }, None, _) => f.write_str(" the sender"),
        (_, _, Some(mac)) => write!(f, ", from {mac}"),
        _ => Ok(()),
    }
}
