//! A frame taken apart, layer by layer, as far as it can be read: for people who look at frames, not for the way of a
//! packet. Frames that are cut off, wrong or strange give the layers that are there, and why it went no further.

use crate::arp::{self, ArpPacket};
use crate::error::{ParseError, Part};
use crate::ethernet::{EtherType, EthernetHeader};
use crate::icmpv4::{self, Icmpv4Message};
use crate::icmpv6::{self, Icmpv6Message};
use crate::ip::{self, Addresses, IpProtocol};
use crate::ipv4::Ipv4Header;
use crate::ipv6::{self, Ipv6Header};
use crate::ipv6_ext::{Extension, ExtensionHeader, ExtensionWalk, MOST_HEADERS};
use crate::ndp::{NdpMessage, NdpOptions};
#[cfg(feature = "roce")]
use crate::roce;
use crate::tcp::{self, TcpHeader};
use crate::udp::{self, UdpChecksum, UdpHeader};

/// The most layers that are taken: tunnels in tunnels end somewhere.
pub const MOST_LAYERS: usize = 32;

/// What the bytes begin with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum First {
    /// An Ethernet header.
    Ethernet,
    /// An IP packet, of the version that it says: as TUN devices have them.
    Ip,
}

/// What is known about a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It fits.
    Fits,
    /// It does not fit.
    Wrong,
    /// The sender computed none (UDP).
    Absent,
    /// Not everything that it covers is there; or the frame was captured where it was sent, and the device had yet to finish
    /// the sum, of which so far only the part of the pseudo-header is there (UDP).
    Unknown,
}

impl From<bool> for Verdict {
    fn from(fits: bool) -> Verdict {
        if fits { Verdict::Fits } else { Verdict::Wrong }
    }
}

/// One header and what is known beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header<'a> {
    /// Ethernet with its VLAN tags.
    Ethernet(EthernetHeader),
    /// Address resolution.
    Arp(ArpPacket),
    /// IPv4, and whether the header's own checksum fits.
    Ipv4(Ipv4Header, Verdict),
    /// IPv6's fixed header.
    Ipv6(Ipv6Header),
    /// An extension header of IPv6; `at` in it counts from behind the fixed header.
    Extension(ExtensionHeader<'a>),
    /// UDP.
    Udp(UdpHeader, Verdict),
    /// TCP.
    Tcp(TcpHeader, Verdict),
    /// ICMP.
    Icmpv4(Icmpv4Message, Verdict),
    /// ICMPv6, but for neighbour discovery.
    Icmpv6(Icmpv6Message, Verdict),
    /// Neighbour discovery.
    Ndp(NdpMessage, NdpOptions<'a>, Verdict),
    /// RoCEv2's transport headers, and whether the ICRC fits.
    #[cfg(feature = "roce")]
    Roce(roce::Headers, Verdict),
}

/// One layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layer<'a> {
    /// Its header.
    pub header: Header<'a>,
    /// Where the header begins, in octets from the frame's first one.
    pub at: usize,
    /// Octets of the header.
    pub len: usize,
    /// It is part of a packet that an ICMP error quotes.
    pub quoted: bool,
}

/// Why it goes no further.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// What follows is the application's.
    Payload,
    /// Nobody here reads this type.
    EtherType(EtherType),
    /// Nobody here reads this protocol.
    Protocol(IpProtocol),
    /// What follows is the middle of a packet that was cut.
    Fragment,
    /// The next header cannot be read.
    Error(ParseError),
    /// There were [`MOST_LAYERS`] already.
    TooDeep,
}

/// Where it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End<'a> {
    /// Why.
    pub why: Why,
    /// Where, in octets from the frame's first one.
    pub at: usize,
    /// What was not taken apart, without padding.
    pub rest: &'a [u8],
    /// Octets that the headers announce and that are not there.
    pub missing: usize,
}

impl From<ParseError> for Why {
    fn from(error: ParseError) -> Why {
        Why::Error(error)
    }
}

#[derive(Clone, Copy, Debug)]
enum Next {
    Ethernet,
    Type(EtherType),
    Ip,
    Protocol(IpProtocol),
    #[cfg(feature = "roce")]
    Roce,
    End(Why),
}

/// The layers of a frame, from the outside to the inside: an iterator. Afterwards, [`Dissector::end`] says where and
/// why it ended.
#[derive(Clone, Debug)]
pub struct Dissector<'a> {
    frame: &'a [u8],
    at: usize,
    /// Where the innermost announced length ends, or the frame if that is shorter.
    stop: usize,
    missing: usize,
    next: Next,
    /// Of the network header that counts for checksums; none where they cannot be checked.
    addresses: Option<Addresses>,
    /// Where the innermost network header begins.
    #[cfg(feature = "roce")]
    network_at: usize,
    /// In IPv6: where extension headers began, and how many there were.
    extensions: Option<(usize, usize)>,
    quoted: bool,
    count: usize,
}

/// Takes a frame apart.
pub fn dissect(frame: &[u8], first: First) -> Dissector<'_> {
    let next = match first {
        First::Ethernet => Next::Ethernet,
        First::Ip => Next::Ip,
    };
    Dissector {
        frame,
        at: 0,
        stop: frame.len(),
        missing: 0,
        next,
        addresses: None,
        #[cfg(feature = "roce")]
        network_at: 0,
        extensions: None,
        quoted: false,
        count: 0,
    }
}

/// What is in a UDP checksum's place until a device finishes the sum.
fn unfinished(addresses: &Addresses, len: usize) -> [u8; 2] {
    addresses.pseudo_header(IpProtocol::UDP, len).folded().to_be_bytes()
}

/// A header, its octets, and what follows.
type Read<'a> = Result<(Header<'a>, usize, Next), Why>;

impl<'a> Dissector<'a> {
    /// Goes on to the last layer, and says where it ended.
    pub fn end(mut self) -> End<'a> {
        self.by_ref().for_each(drop);
        let why = match self.next {
            Next::End(why) => why,
            // Not reached: the iterator ends with a reason.
            _ => Why::Payload,
        };
        End { why, at: self.at, rest: self.rest(), missing: self.missing }
    }

    fn rest(&self) -> &'a [u8] {
        self.frame.get(self.at..self.stop).unwrap_or(&[])
    }

    /// The innermost length: `len` octets from here.
    fn announce(&mut self, len: usize) {
        let announced = self.at.saturating_add(len);
        self.missing = announced.saturating_sub(self.stop);
        self.stop = self.stop.min(announced);
    }

    /// What a check over everything to the end says: nothing if something is missing.
    fn judge(&self, check: impl FnOnce(&Addresses, &[u8]) -> Verdict) -> Verdict {
        match &self.addresses {
            Some(addresses) if self.missing == 0 => check(addresses, self.rest()),
            _ => Verdict::Unknown,
        }
    }

    fn ipv4(&mut self) -> Read<'a> {
        let (header, extent) = Ipv4Header::parse_header(self.rest())?;
        self.announce(extent.total_len);
        self.addresses = (!header.is_fragment() && !self.quoted).then(|| header.addresses());
        let next = match header.fragment_offset {
            0 => Next::Protocol(header.protocol),
            _ => Next::End(Why::Fragment),
        };
        Ok((Header::Ipv4(header, extent.checksum_fits.into()), extent.header_len, next))
    }

    fn ipv6(&mut self) -> Read<'a> {
        let (header, payload_len) = Ipv6Header::parse_header(self.rest())?;
        self.announce(ipv6::HEADER_LEN + payload_len);
        self.addresses = (!self.quoted).then(|| header.addresses());
        self.extensions = Some((self.at + ipv6::HEADER_LEN, 0));
        Ok((Header::Ipv6(header), ipv6::HEADER_LEN, Next::Protocol(header.next_header)))
    }

    /// An extension header; none if the protocol is none, or this is not IPv6.
    fn extension(&mut self, protocol: IpProtocol) -> Option<Read<'a>> {
        let (begin, count) = self.extensions?;
        let behind_fixed = self.at.saturating_sub(begin);
        let mut header = match ExtensionWalk::new(protocol, self.rest()).next()? {
            _ if protocol == IpProtocol::HOP_BY_HOP && behind_fixed > 0 => {
                return Some(Err(ParseError::ExtensionOrder { at: behind_fixed }.into()));
            }
            _ if count == MOST_HEADERS => return Some(Err(ParseError::TooManyExtensions.into())),
            Ok(header) => header,
            Err(error) => return Some(Err(error.into())),
        };
        self.extensions = Some((begin, count + 1));
        header.at += behind_fixed;
        let mut next = Next::Protocol(header.next_header);
        match header.extension {
            Extension::Fragment(fragment) if !fragment.is_atomic() => {
                self.addresses = None;
                if fragment.offset != 0 {
                    next = Next::End(Why::Fragment);
                }
            }
            // The sum covers the last station's address, which is in the header somewhere.
            Extension::Routing { segments_left: 1.., .. } => self.addresses = None,
            _ => {}
        }
        Some(Ok((Header::Extension(header), header.len, next)))
    }

    fn udp(&mut self) -> Read<'a> {
        let (header, len) = UdpHeader::parse_header(self.rest())?;
        let whole = self.missing == 0;
        self.announce(len);
        // Longer than its packet: nothing is missing on the way, the field is wrong.
        if whole && self.missing > 0 && self.addresses.is_some() {
            let have = self.rest().len();
            self.missing = 0;
            return Err(ParseError::Truncated { part: Part::Udp, need: len, have }.into());
        }
        let verdict = self.judge(|addresses, datagram| match udp::verify(addresses, datagram) {
            UdpChecksum::Fits => Verdict::Fits,
            UdpChecksum::Absent => Verdict::Absent,
            UdpChecksum::Wrong if datagram.get(6..8) == Some(&unfinished(addresses, len)[..]) => {
                Verdict::Unknown
            }
            UdpChecksum::Wrong => Verdict::Wrong,
        });
        #[cfg(feature = "roce")]
        if header.destination_port == roce::PORT {
            return Ok((Header::Udp(header, verdict), udp::HEADER_LEN, Next::Roce));
        }
        Ok((Header::Udp(header, verdict), udp::HEADER_LEN, Next::End(Why::Payload)))
    }

    /// The payload ends in front of padding and ICRC.
    #[cfg(feature = "roce")]
    fn roce(&mut self) -> Read<'a> {
        if self.missing > 0 {
            // Where the payload ends, and the ICRC, is not known.
            let (bth, _, rest) = roce::Bth::parse(self.rest())?;
            let extended = roce::Extended::parse(bth.opcode.extension(), rest);
            let extended = extended.map_or(roce::Extended::None, |(extended, _)| extended);
            let headers = roce::Headers { bth, extended };
            return Ok((Header::Roce(headers, Verdict::Unknown), headers.len(), Next::End(Why::Payload)));
        }
        let (headers, payload, _) = roce::Headers::parse(self.rest())?;
        let packet = self.frame.get(self.network_at..self.stop).unwrap_or(&[]);
        let verdict =
            self.judge(|_, _| roce::icrc::is_intact(packet).map_or(Verdict::Unknown, Verdict::from));
        self.stop = self.at + headers.len() + payload.len();
        Ok((Header::Roce(headers, verdict), headers.len(), Next::End(Why::Payload)))
    }

    fn tcp(&mut self) -> Read<'a> {
        let (header, payload) = TcpHeader::parse(self.rest())?;
        let len = self.rest().len() - payload.len();
        let verdict = self.judge(|addresses, segment| tcp::verify(addresses, segment).into());
        Ok((Header::Tcp(header, verdict), len, Next::End(Why::Payload)))
    }

    /// What follows an ICMP header of eight octets: a packet if it is an error, but not in what is quoted already.
    fn behind_icmp(&self, is_error: bool) -> Next {
        let quotes = is_error && !self.quoted && self.rest().len() > icmpv4::HEADER_LEN;
        if quotes { Next::Ip } else { Next::End(Why::Payload) }
    }

    fn icmpv4(&mut self) -> Read<'a> {
        let (message, _) = Icmpv4Message::parse(self.rest())?;
        let verdict = self.judge(|_, message| icmpv4::is_intact(message).into());
        let next = self.behind_icmp(message.is_error());
        Ok((Header::Icmpv4(message, verdict), icmpv4::HEADER_LEN, next))
    }

    fn icmpv6(&mut self) -> Read<'a> {
        let rest = self.rest();
        let verdict = self.judge(|addresses, message| icmpv6::verify(addresses, message).into());
        if let Some(133..=137) = rest.first() {
            let (message, options) = NdpMessage::parse(rest)?;
            return Ok((Header::Ndp(message, options, verdict), rest.len(), Next::End(Why::Payload)));
        }
        let (message, _) = Icmpv6Message::parse(rest)?;
        let next = self.behind_icmp(matches!(message.kind(), 1..=4));
        Ok((Header::Icmpv6(message, verdict), icmpv6::HEADER_LEN, next))
    }

    fn protocol(&mut self, protocol: IpProtocol) -> Read<'a> {
        if let Some(read) = self.extension(protocol) {
            return read;
        }
        match (protocol, self.extensions) {
            (IpProtocol::UDP, _) => self.udp(),
            (IpProtocol::TCP, _) => self.tcp(),
            (IpProtocol::ICMP, None) => self.icmpv4(),
            (IpProtocol::ICMPV6, Some(_)) => self.icmpv6(),
            (IpProtocol::IPV4, _) => self.ip(4),
            (IpProtocol::IPV6, _) => self.ip(6),
            _ => Err(Why::Protocol(protocol)),
        }
    }

    fn ethernet(&mut self) -> Read<'a> {
        let (header, _) = EthernetHeader::parse(self.rest())?;
        Ok((Header::Ethernet(header), header.len(), Next::Type(header.ethertype)))
    }

    fn arp(&mut self) -> Read<'a> {
        let packet = ArpPacket::parse(self.rest())?;
        self.announce(arp::PACKET_LEN);
        Ok((Header::Arp(packet), arp::PACKET_LEN, Next::End(Why::Payload)))
    }

    fn ip(&mut self, version: u8) -> Read<'a> {
        self.extensions = None;
        #[cfg(feature = "roce")]
        {
            self.network_at = self.at;
        }
        if version == 6 { self.ipv6() } else { self.ipv4() }
    }

    /// The next layer, or why there is none.
    fn step(&mut self) -> Result<Layer<'a>, Why> {
        if self.count == MOST_LAYERS && !matches!(self.next, Next::End(_)) {
            return Err(Why::TooDeep);
        }
        let (header, len, next) = match self.next {
            Next::Ethernet => self.ethernet(),
            Next::Type(EtherType::ARP) => self.arp(),
            Next::Type(EtherType::IPV4) => self.ip(4),
            Next::Type(EtherType::IPV6) => self.ip(6),
            Next::Type(other) => Err(Why::EtherType(other)),
            Next::Ip => {
                // The outermost packet is nobody's quotation.
                self.quoted = self.count > 0;
                self.ip(ip::version(self.rest()).unwrap_or(4))
            }
            Next::Protocol(protocol) => self.protocol(protocol),
            #[cfg(feature = "roce")]
            Next::Roce => self.roce(),
            Next::End(why) => Err(why),
        }?;
        let layer = Layer { header, at: self.at, len, quoted: self.quoted };
        self.at = (self.at + len).min(self.stop);
        self.next = next;
        self.count += 1;
        Ok(layer)
    }
}

impl<'a> Iterator for Dissector<'a> {
    type Item = Layer<'a>;

    fn next(&mut self) -> Option<Layer<'a>> {
        match self.step() {
            Ok(layer) => Some(layer),
            Err(why) => {
                self.next = Next::End(why);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
