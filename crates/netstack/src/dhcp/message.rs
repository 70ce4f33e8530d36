//! Messages of DHCP (RFC 2131 section 2, options by RFC 2132), by smoltcp's codec.

use smoltcp::wire::{
    DhcpFlags, DhcpMessageType, DhcpOpCode, DhcpOption, DhcpOptionWriter, DhcpPacket, EthernetAddress,
};
use std::net::Ipv4Addr;

/// UDP port of clients.
pub const CLIENT_PORT: u16 = 68;
/// UDP port of servers.
pub const SERVER_PORT: u16 = 67;

/// RFC 2131 section 2: fixed fields, `sname`, `file` and the magic number.
const FIXED: usize = 240;
/// Shorter messages are lost on old relays (RFC 1542 section 2.1).
const SHORTEST: usize = 300;
/// What one datagram of 576 octets carries, which every host takes: 548.
const LONGEST: u16 = 576;
const MAGIC: u32 = 0x6382_5363;
const END: u8 = 255;

/// Kinds of messages (RFC 2132 section 9.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Discover,
    Offer,
    Request,
    Decline,
    Ack,
    Nak,
    Release,
}

/// Codes of options.
pub mod option {
    pub const SUBNET_MASK: u8 = 1;
    pub const ROUTER: u8 = 3;
    pub const NAME_SERVER: u8 = 6;
    pub const HOST_NAME: u8 = 12;
    pub const DOMAIN_NAME: u8 = 15;
    pub const MTU: u8 = 26;
    pub const REQUESTED_ADDRESS: u8 = 50;
    pub const LEASE_TIME: u8 = 51;
    pub const KIND: u8 = 53;
    pub const SERVER: u8 = 54;
    pub const PARAMETERS: u8 = 55;
    pub const LONGEST_MESSAGE: u8 = 57;
    pub const RENEWAL_TIME: u8 = 58;
    pub const REBINDING_TIME: u8 = 59;
    pub const CLIENT: u8 = 61;
    /// RFC 3442.
    pub const CLASSLESS_ROUTES: u8 = 121;
}

/// What is asked for. RFC 3442: classless routes before routers.
const PARAMETERS: [u8; 8] = [
    option::SUBNET_MASK,
    option::CLASSLESS_ROUTES,
    option::ROUTER,
    option::NAME_SERVER,
    option::DOMAIN_NAME,
    option::MTU,
    option::RENEWAL_TIME,
    option::REBINDING_TIME,
];

/// A message of the client.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    pub kind: Kind,
    pub transaction: u32,
    pub seconds: u16,
    pub hardware: [u8; 6],
    /// `ciaddr`.
    pub current: Ipv4Addr,
    pub requested: Option<Ipv4Addr>,
    pub server: Option<Ipv4Addr>,
    pub identifier: Option<&'a [u8]>,
    pub host_name: Option<&'a str>,
}

impl Default for Request<'_> {
    fn default() -> Self {
        Request {
            kind: Kind::Discover,
            transaction: 0,
            seconds: 0,
            hardware: [0; 6],
            current: Ipv4Addr::UNSPECIFIED,
            requested: None,
            server: None,
            identifier: None,
            host_name: None,
        }
    }
}

impl Request<'_> {
    /// Writes the message in place of what is there.
    pub fn emit(&self, out: &mut Vec<u8>) {
        let (kind, asks) = match self.kind {
            Kind::Request => (DhcpMessageType::Request, true),
            Kind::Decline => (DhcpMessageType::Decline, false),
            Kind::Release => (DhcpMessageType::Release, false),
            _ => (DhcpMessageType::Discover, true),
        };
        let (requested, server) = (self.requested.map(|a| a.octets()), self.server.map(|a| a.octets()));
        let (kind, longest) = ([u8::from(kind)], LONGEST.to_be_bytes());
        let options = [
            Some((option::KIND, &kind[..])),
            requested.as_ref().map(|a| (option::REQUESTED_ADDRESS, &a[..])),
            server.as_ref().map(|a| (option::SERVER, &a[..])),
            asks.then_some((option::PARAMETERS, &PARAMETERS[..])),
            asks.then_some((option::LONGEST_MESSAGE, &longest[..])),
            self.identifier.map(|id| (option::CLIENT, id)),
            self.host_name.filter(|_| asks).map(|name| (option::HOST_NAME, name.as_bytes())),
        ];
        let options = || options.iter().flatten().map(|&(kind, data)| DhcpOption { kind, data: short(data) });
        let len = FIXED + options().map(|o| 2 + o.data.len()).sum::<usize>() + 1;
        out.clear();
        out.resize(len.max(SHORTEST), 0);
        {
            let mut packet = DhcpPacket::new_unchecked(&mut out[..]);
            packet.set_opcode(DhcpOpCode::Request);
            packet.set_hardware_type(smoltcp::wire::ArpHardware::Ethernet);
            packet.set_hardware_len(6);
            packet.set_transaction_id(self.transaction);
            packet.set_secs(self.seconds);
            // Before there is an address the answer can only come to all; with one it comes to that.
            let all = asks && self.current.is_unspecified();
            packet.set_flags(if all { DhcpFlags::BROADCAST } else { DhcpFlags::empty() });
            packet.set_client_ip(self.current);
            packet.set_client_hardware_address(EthernetAddress(self.hardware));
            packet.set_magic_number(MAGIC);
        }
        let mut writer = DhcpOptionWriter::new(&mut out[FIXED..]);
        let written = options().all(|o| writer.emit(o).is_ok()) && writer.end().is_ok();
        debug_assert!(written, "the buffer is as long as its options");
    }
}

/// An option holds 255 octets.
fn short(data: &[u8]) -> &[u8] {
    &data[..data.len().min(255)]
}

/// A message of a server.
#[derive(Clone, Debug)]
pub struct Reply {
    pub kind: Kind,
    /// `yiaddr`.
    pub address: Ipv4Addr,
    pub server: Ipv4Addr,
    options: Vec<(u8, Vec<u8>)>,
}

impl Reply {
    /// A message that answers `transaction` of `hardware`; anything else is none.
    pub fn parse(payload: &[u8], hardware: [u8; 6], transaction: u32) -> Option<Reply> {
        let packet = DhcpPacket::new_checked(payload).ok()?;
        let ours = packet.opcode() == DhcpOpCode::Reply
            && packet.magic_number() == MAGIC
            && packet.hardware_len() == 6
            && packet.client_hardware_address() == EthernetAddress(hardware)
            && packet.transaction_id() == transaction;
        if !ours {
            return None;
        }
        // RFC 3396: what does not fit into one option goes on in others of the same code.
        let mut options: Vec<(u8, Vec<u8>)> = Vec::new();
        for DhcpOption { kind, data } in packet.options().filter(|o| o.kind != END) {
            match options.iter_mut().find(|(k, _)| *k == kind) {
                Some((_, before)) => before.extend_from_slice(data),
                None => options.push((kind, data.to_vec())),
            }
        }
        let mut reply =
            Reply { kind: Kind::Nak, address: packet.your_ip(), server: Ipv4Addr::UNSPECIFIED, options };
        reply.kind = match DhcpMessageType::from(*reply.octets(option::KIND)?.first()?) {
            DhcpMessageType::Offer => Kind::Offer,
            DhcpMessageType::Ack => Kind::Ack,
            DhcpMessageType::Nak => Kind::Nak,
            _ => return None,
        };
        // RFC 2131 table 3: a server MUST name itself in each of them.
        reply.server = reply.address_in(option::SERVER)?;
        Some(reply)
    }

    /// An option's octets.
    pub fn octets(&self, code: u8) -> Option<&[u8]> {
        self.options.iter().find(|(k, _)| *k == code).map(|(_, data)| &data[..])
    }

    /// An option of one address.
    pub fn address_in(&self, code: u8) -> Option<Ipv4Addr> {
        Some(Ipv4Addr::from(<[u8; 4]>::try_from(self.octets(code)?).ok()?))
    }

    /// An option of several addresses; none if its length is wrong.
    pub fn addresses_in(&self, code: u8) -> Vec<Ipv4Addr> {
        let (addresses, rest) = self.octets(code).unwrap_or_default().as_chunks::<4>();
        if rest.is_empty() { addresses.iter().map(|a| Ipv4Addr::from(*a)).collect() } else { Vec::new() }
    }

    /// An option of 32 bits.
    pub fn number_in(&self, code: u8) -> Option<u32> {
        Some(u32::from_be_bytes(self.octets(code)?.try_into().ok()?))
    }
}
