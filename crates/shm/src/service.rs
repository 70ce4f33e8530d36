//! What programs and the netstack service say to each other: formats, and nothing that is done by them. docs/netstack-service.md is
//! their specification.
//!
//! Messages are read and written octet by octet: neither side trusts the other.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// Version of the protocol, in HELLO.
pub const VERSION: u32 = 1;
/// Octets of a message at most.
pub const MESSAGE: usize = 4096;
/// Octets of a header.
pub const HEADER: usize = 24;
/// Octets of an address.
pub const ADDRESS: usize = 32;
/// Octets of a record of an accepted connection.
pub const ACCEPTED: usize = 80;
/// Octets of a [`Claim`].
pub const CLAIM: usize = 20;
/// The first octets of such a record.
pub const ACCEPTED_MAGIC: [u8; 8] = *b"BYPACPT1";
/// What names of the service's ends begin with, behind the NUL of an abstract name.
pub const NAME_PREFIX: &str = "bypath/netstack/";
/// Level of options that are ours.
pub const LEVEL: i32 = 0x6279_7061;
/// Of [`LEVEL`]: octets that the other end has not acknowledged (SIOCOUTQ).
pub const UNACKNOWLEDGED: i32 = 1;
/// Of [`LEVEL`]: octets that were not sent (SIOCOUTQNSD).
pub const UNSENT: i32 = 2;
/// Of [`LEVEL`], to be set: so many octets that the program is about to write will be followed by others (MSG_MORE).
pub const FOLLOWED: i32 = 3;
/// Of [`LEVEL`]: octets that came after the program has shut the receiving side. They are taken.
pub const TAKE: i32 = 4;
/// Of [`LEVEL`]: the same octets, which stay.
pub const LOOK: i32 = 5;
/// Of [`LEVEL`]: how many of them there are.
pub const UNREAD: i32 = 6;
/// Of [`LEVEL`], of a socket of datagrams: what is in the program's ring goes through the pair.
pub const TAKE_BACK: i32 = 7;
/// Of [`LEVEL`], to be set: the program is about to write an urgent octet (MSG_OOB).
pub const URGENT: i32 = 8;
/// Of [`LEVEL`], of a socket of datagrams: the oldest error of the network that was not asked for (MSG_ERRQUEUE), as a
/// [`Failure`](crate::datagram::Failure). EAGAIN: there is none.
pub const ERROR_QUEUE: i32 = 9;
/// Of [`LEVEL`], to be said: the process closes its last descriptor of a connection that comes up.
pub const LEFT: i32 = 10;
/// SO_SNDBUF of a program's end, once there is a connection, as far as the kernel allows it (net.core.wmem_max).
pub const SEND_BUFFER: i32 = 256 << 10;
/// Octets of a service's name at most.
pub const LONGEST_NAME: usize = 32;
/// Hexadecimal digits of each number in the name of an end.
const DIGITS: usize = 16;

const AF_INET: u16 = 2;
const AF_INET6: u16 = 10;

/// What is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Op {
    /// Which version, and who.
    Hello = 1,
    /// A new socket.
    Open = 2,
    /// bind(2).
    Bind = 3,
    /// listen(2).
    Listen = 4,
    /// connect(2), begun.
    Connect = 5,
    /// Both addresses, and the state.
    Names = 6,
    /// setsockopt(2).
    Set = 7,
    /// getsockopt(2).
    Get = 8,
    /// SO_ERROR.
    Error = 9,
    /// shutdown(2) of a listening socket.
    Shutdown = 10,
    /// About the service itself, in JSON.
    Query = 11,
    /// Rings for a connection.
    Rings = 12,
    /// Whether a datagram may be sent there.
    Reach = 13,
    /// A new socket in place of one of an earlier service of this name.
    Again = 14,
    /// setsockopt(2) that nobody waits for: it has no answer.
    Say = 15,
    /// One of the stack's interfaces.
    Interfaces = 20,
}

impl Op {
    /// All of them.
    pub const ALL: [Op; 16] = [
        Op::Hello,
        Op::Open,
        Op::Bind,
        Op::Listen,
        Op::Connect,
        Op::Names,
        Op::Set,
        Op::Get,
        Op::Error,
        Op::Shutdown,
        Op::Query,
        Op::Rings,
        Op::Reach,
        Op::Again,
        Op::Say,
        Op::Interfaces,
    ];

    /// The question of a number.
    pub fn from_number(number: u32) -> Option<Op> {
        Op::ALL.into_iter().find(|op| *op as u32 == number)
    }
}

/// Header of questions and answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What is asked.
    pub op: Op,
    /// Chosen by who asks.
    pub serial: u32,
    /// SO_COOKIE of the program's end, 0: no socket.
    pub socket: u64,
    /// Of an answer.
    pub errno: i32,
}

impl Header {
    /// Its octets.
    pub fn encode(&self) -> [u8; HEADER] {
        let mut out = [0; HEADER];
        out[..4].copy_from_slice(&(self.op as u32).to_ne_bytes());
        out[4..8].copy_from_slice(&self.serial.to_ne_bytes());
        out[8..16].copy_from_slice(&self.socket.to_ne_bytes());
        out[16..20].copy_from_slice(&self.errno.to_ne_bytes());
        out
    }

    /// Header and body of a message; `None`: it is none.
    pub fn decode(message: &[u8]) -> Option<(Header, &[u8])> {
        let (mut header, body) = (Body(message.get(..HEADER)?), message.get(HEADER..)?);
        let header = Header {
            op: Op::from_number(header.u32()?)?,
            serial: header.u32()?,
            socket: header.u64()?,
            errno: header.u32()? as i32,
        };
        Some((header, body))
    }
}

/// The octets of a body, taken from its beginning.
#[derive(Clone, Copy, Debug)]
pub struct Body<'a>(pub &'a [u8]);

impl<'a> Body<'a> {
    /// So many octets.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    /// A number of four octets.
    pub fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    /// A number of four octets with a sign.
    pub fn i32(&mut self) -> Option<i32> {
        self.take().map(i32::from_ne_bytes)
    }

    /// A number of eight octets.
    pub fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_ne_bytes)
    }

    /// An address.
    pub fn address(&mut self) -> Option<Address> {
        self.take().map(|raw| Address::decode(&raw))
    }

    /// The rest.
    pub const fn rest(self) -> &'a [u8] {
        self.0
    }
}

/// An address with its port; `None`: there is none, or of no family that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Address(pub Option<SocketAddr>);

impl Address {
    /// Its octets.
    pub fn encode(&self) -> [u8; ADDRESS] {
        let mut out = [0; ADDRESS];
        let mut put = |at: usize, octets: &[u8]| out[at..at + octets.len()].copy_from_slice(octets);
        match self.0 {
            None => {}
            Some(SocketAddr::V4(a)) => {
                put(0, &AF_INET.to_ne_bytes());
                put(2, &a.port().to_ne_bytes());
                put(16, &a.ip().octets());
            }
            Some(SocketAddr::V6(a)) => {
                put(0, &AF_INET6.to_ne_bytes());
                put(2, &a.port().to_ne_bytes());
                put(4, &a.scope_id().to_ne_bytes());
                put(8, &a.flowinfo().to_ne_bytes());
                put(16, &a.ip().octets());
            }
        }
        out
    }

    /// What the octets say.
    pub fn decode(raw: &[u8; ADDRESS]) -> Address {
        let mut fields = Body(raw);
        let word = |octets: Option<[u8; 2]>| u16::from_ne_bytes(octets.unwrap_or_default());
        let family = word(fields.take());
        let port = word(fields.take());
        let (scope, flow) = (fields.u32().unwrap_or(0), fields.u32().unwrap_or(0));
        let bytes: [u8; 16] = raw[16..].try_into().unwrap_or_default();
        Address(match family {
            AF_INET => {
                let ip = Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]);
                Some(SocketAddrV4::new(ip, port).into())
            }
            AF_INET6 => Some(SocketAddrV6::new(Ipv6Addr::from(bytes), port, flow, scope).into()),
            _ => None,
        })
    }

    /// The IP address, if there is one.
    pub fn ip(&self) -> Option<IpAddr> {
        self.0.map(|a| a.ip())
    }
}

/// A connection that was accepted; its descriptor comes beside this record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// SO_COOKIE of that descriptor's socket.
    pub cookie: u64,
    /// Its own address.
    pub local: Address,
    /// The other end's.
    pub remote: Address,
}

impl Accepted {
    /// Its octets.
    pub fn encode(&self) -> [u8; ACCEPTED] {
        let mut out = [0; ACCEPTED];
        out[..8].copy_from_slice(&ACCEPTED_MAGIC);
        out[8..16].copy_from_slice(&self.cookie.to_ne_bytes());
        out[16..48].copy_from_slice(&self.local.encode());
        out[48..].copy_from_slice(&self.remote.encode());
        out
    }

    /// What the octets say; `None`: it is none.
    pub fn decode(raw: &[u8; ACCEPTED]) -> Option<Accepted> {
        let mut fields = Body(raw);
        if fields.take::<8>()? != ACCEPTED_MAGIC {
            return None;
        }
        Some(Accepted { cookie: fields.u64()?, local: fields.address()?, remote: fields.address()? })
    }
}

/// What a service says of a socket that listens, or of datagrams with a port: a later service of its name makes another one for who holds the
/// socket and says the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Whose socket it is.
    pub uid: u32,
    /// What only a service of this name knows of that, of the socket, and of its address.
    pub proof: [u8; 16],
}

impl Claim {
    /// Its octets.
    pub fn encode(&self) -> [u8; CLAIM] {
        let mut out = [0; CLAIM];
        out[..4].copy_from_slice(&self.uid.to_ne_bytes());
        out[4..].copy_from_slice(&self.proof);
        out
    }

    /// Taken from a body.
    pub fn decode(body: &mut Body<'_>) -> Option<Claim> {
        Some(Claim { uid: body.u32()?, proof: body.take()? })
    }
}

/// What is asked for in place of a socket of an earlier service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Domain, type and protocol, as for socket(2).
    pub kind: [i32; 3],
    /// Where it was.
    pub local: Address,
    /// What that service said of it.
    pub claim: Claim,
}

impl Wanted {
    /// Its octets.
    pub fn encode(&self) -> [u8; 64] {
        let mut out = [0; 64];
        for (at, number) in out[..12].chunks_exact_mut(4).zip(self.kind) {
            at.copy_from_slice(&number.to_ne_bytes());
        }
        out[12..44].copy_from_slice(&self.local.encode());
        out[44..].copy_from_slice(&self.claim.encode());
        out
    }

    /// Taken from a body.
    pub fn decode(body: &mut Body<'_>) -> Option<Wanted> {
        let kind = [body.i32()?, body.i32()?, body.i32()?];
        Some(Wanted { kind, local: body.address()?, claim: Claim::decode(body)? })
    }
}

/// Which rings a program asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingsWanted {
    /// Random name of the process.
    pub token: u64,
    /// Random name of what it shares with this service already; 0: nothing.
    pub pair: u64,
    /// What it wants to find marked in its inbox.
    pub end: u32,
    /// Octets of each ring at most.
    pub ring: u32,
}

impl RingsWanted {
    /// Its octets.
    pub fn encode(&self) -> [u8; 24] {
        let mut out = [0; 24];
        out[..8].copy_from_slice(&self.token.to_ne_bytes());
        out[8..16].copy_from_slice(&self.pair.to_ne_bytes());
        out[16..20].copy_from_slice(&self.end.to_ne_bytes());
        out[20..].copy_from_slice(&self.ring.to_ne_bytes());
        out
    }

    /// Taken from a body.
    pub fn decode(body: &mut Body<'_>) -> Option<RingsWanted> {
        Some(RingsWanted { token: body.u64()?, pair: body.u64()?, end: body.u32()?, ring: body.u32()? })
    }
}

/// Where rings are: a slot of an arena, which comes as a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RingsGiven {
    /// Random name of what the process and the service share.
    pub pair: u64,
    /// Random name of the service.
    pub token: u64,
    /// Number of the arena.
    pub arena: u32,
    /// Number of the slot.
    pub slot: u32,
    /// Slots of the arena.
    pub slots: u32,
    /// Octets of each ring.
    pub ring: u32,
    /// 1: these are the first rings of this process, and the service's inbox, bell and socket for bells come along; 0.
    pub first: u32,
}

impl RingsGiven {
    /// Its octets.
    pub fn encode(&self) -> [u8; 40] {
        let mut out = [0; 40];
        let numbers = [self.arena, self.slot, self.slots, self.ring, self.first];
        out[..8].copy_from_slice(&self.pair.to_ne_bytes());
        out[8..16].copy_from_slice(&self.token.to_ne_bytes());
        for (at, number) in out[16..36].chunks_exact_mut(4).zip(numbers) {
            at.copy_from_slice(&number.to_ne_bytes());
        }
        out
    }

    /// Taken from a body.
    pub fn decode(body: &mut Body<'_>) -> Option<RingsGiven> {
        Some(RingsGiven {
            pair: body.u64()?,
            token: body.u64()?,
            arena: body.u32()?,
            slot: body.u32()?,
            slots: body.u32()?,
            ring: body.u32()?,
            first: body.u32()?,
        })
    }
}

/// Whether a service may have this name: letters, digits, `-`, `_` and `.`, the first one no dot.
pub fn is_name(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=LONGEST_NAME).contains(&name.len()) && name.bytes().all(plain) && !name.starts_with('.')
}

/// The abstract name, without its NUL, of the service's end of a socket. `random`: what nobody knows before the name is taken.
/// Cookies are counted up, so all else of the next names is known to everybody, who could take them first.
pub fn end_name(service: &str, cookie: u64, random: u64) -> String {
    format!("{NAME_PREFIX}{service}/{cookie:016x}/{random:016x}")
}

// An abstract name has 107 octets at most.
const _: () = assert!(NAME_PREFIX.len() + LONGEST_NAME + 2 * (1 + DIGITS) <= 107);

/// The service and the cookie that the name of a service's end tells.
pub fn of_end_name(name: &[u8]) -> Option<(&str, u64)> {
    let rest = std::str::from_utf8(name).ok()?.strip_prefix(NAME_PREFIX)?;
    let (rest, random) = rest.rsplit_once('/')?;
    let (service, cookie) = rest.rsplit_once('/')?;
    let (cookie, _) = (of_digits(cookie)?, of_digits(random)?);
    is_name(service).then_some((service, cookie))
}

/// The number that all [`DIGITS`] tell.
fn of_digits(text: &str) -> Option<u64> {
    let are_digits = text.len() == DIGITS && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if are_digits { u64::from_str_radix(text, 16).ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_addresses_come_back() {
        for op in Op::ALL {
            let header = Header { op, serial: 7, socket: u64::MAX - 1, errno: 111 };
            let mut message = header.encode().to_vec();
            message.push(9);
            assert_eq!(Header::decode(&message), Some((header, &[9][..])));
            assert_eq!(Header::decode(&message[..HEADER - 1]), None);
        }
        assert_eq!(Header::decode(&[0; HEADER]), None);
        for text in ["10.0.0.2:80", "[fe80::1%3]:65535", "[::]:0"] {
            let address = Address(Some(text.parse().unwrap()));
            assert_eq!(Address::decode(&address.encode()), address);
        }
        assert_eq!(Address::decode(&[0xff; ADDRESS]), Address(None));
    }

    #[test]
    fn what_is_said_of_rings_comes_back() {
        let wanted = RingsWanted { token: u64::MAX - 3, pair: 9, end: 7, ring: 1 << 16 };
        assert_eq!(RingsWanted::decode(&mut Body(&wanted.encode())), Some(wanted));
        assert_eq!(RingsWanted::decode(&mut Body(&wanted.encode()[1..])), None);
        let given = RingsGiven { pair: 1, token: 2, arena: 3, slot: 4, slots: 5, ring: 6, first: 1 };
        assert_eq!(RingsGiven::decode(&mut Body(&given.encode())), Some(given));
        assert_eq!(RingsGiven::decode(&mut Body(&given.encode()[5..])), None);
    }

    #[test]
    fn claims_come_back() {
        let claim = Claim { uid: 7, proof: *b"0123456789abcdef" };
        let local = Address(Some("[fd00::1]:53".parse().unwrap()));
        let wanted = Wanted { kind: [10, 2, 17], local, claim };
        assert_eq!(Wanted::decode(&mut Body(&wanted.encode())), Some(wanted));
        assert_eq!(Wanted::decode(&mut Body(&wanted.encode()[1..])), None);
        assert_eq!(Claim::decode(&mut Body(&claim.encode()[1..])), None);
    }

    #[test]
    fn records_of_accepted_connections_come_back() {
        let record = Accepted {
            cookie: 3,
            local: Address(Some("10.0.0.2:80".parse().unwrap())),
            remote: Address(Some("[fd00::1]:4000".parse().unwrap())),
        };
        assert_eq!(Accepted::decode(&record.encode()), Some(record));
        assert_eq!(Accepted::decode(&[0; ACCEPTED]), None);
    }

    #[test]
    fn names_of_ends_tell_service_and_cookie() {
        for (name, cookie, random) in
            [("lab-1", 0xabc, 0xdef), ("a", 0, 0), ("0000000000000abc", u64::MAX, u64::MAX - 1)]
        {
            assert_eq!(of_end_name(end_name(name, cookie, random).as_bytes()), Some((name, cookie)));
        }
        assert_eq!(end_name("lab", 0xabc, 0xdef), "bypath/netstack/lab/0000000000000abc/0000000000000def");
        for other in [
            // Without what is random.
            "bypath/netstack/lab/0000000000000abc",
            "bypath/netstack/lab/0000000000000abc/",
            "bypath/netstack/0000000000000abc/0000000000000def",
            "bypath/netstack//0000000000000abc/0000000000000def",
            "bypath/netstack/a/b/0000000000000abc/0000000000000def",
            "bypath/netstack/lab/0000000000000abc/0000000000000def/",
            "bypath/netstack/lab/0000000000000abc/0000000000000def/0000000000000123",
            "bypath/netstack/.lab/0000000000000abc/0000000000000def",
            "bypath/1/0000000000000abc/0000000000000def",
            "bypath/netstack/lab/abc/0000000000000def",
            "bypath/netstack/lab/0000000000000abc/def",
            "bypath/netstack/lab/00000000000000abc/0000000000000def",
            "bypath/netstack/lab/0000000000000abc/00000000000000def",
            "bypath/netstack/lab/0000000000000ABC/0000000000000def",
            "bypath/netstack/lab/0000000000000abc/0000000000000DEF",
            "bypath/netstack/lab/+000000000000abc/0000000000000def",
            "bypath/netstack/lab/0000000000000abc/+000000000000def",
            "bypath/netstack/lab/0000000000000abc/00000000000\0def",
        ] {
            assert_eq!(of_end_name(other.as_bytes()), None, "{other}");
        }
        assert_eq!(of_end_name(b"bypath/netstack/lab/0000000000000abc/000000000000\xff\xfff"), None);
        assert!(is_name("default") && is_name("a.b") && !is_name(".a") && !is_name("") && !is_name("a/b"));
        assert!(!is_name(&"a".repeat(LONGEST_NAME + 1)));
    }

    /// Rows `| ... |` of the specification.
    fn rows() -> Vec<Vec<&'static str>> {
        let text = include_str!("../../../docs/netstack-service.md");
        let cells = |line: &'static str| line.trim_matches('|').split('|').map(str::trim).collect();
        text.lines().filter(|line| line.starts_with("| ")).map(cells).collect()
    }

    #[test]
    fn the_specification_has_these_numbers() {
        let rows = rows();
        let place = |name: &str| -> (usize, usize) {
            let row = rows.iter().find(|row| row[0] == format!("`{name}`"));
            let row = row.unwrap_or_else(|| panic!("no row for {name}"));
            (row[1].parse().unwrap(), row[2].parse().unwrap())
        };
        let header =
            Header { op: Op::Open, serial: 0x0101_0101, socket: 0x0202_0202_0202_0202, errno: 0x0303_0303 };
        let octets = header.encode();
        let at = |(from, len): (usize, usize)| octets[from..from + len].to_vec();
        assert_eq!(at(place("Header.op")), (Op::Open as u32).to_ne_bytes());
        assert_eq!(at(place("Header.serial")), [1; 4]);
        assert_eq!(at(place("Header.socket")), [2; 8]);
        assert_eq!(at(place("Header.errno")), [3; 4]);
        let (last, len) = place("Header.pad");
        assert_eq!(last + len, HEADER);

        let address =
            Address(Some(SocketAddrV6::new([4; 16].into(), 0x0505, 0x0606_0606, 0x0707_0707).into()));
        let octets = address.encode();
        let at = |(from, len): (usize, usize)| octets[from..from + len].to_vec();
        assert_eq!(at(place("Address.family")), AF_INET6.to_ne_bytes());
        assert_eq!(at(place("Address.port")), [5; 2]);
        assert_eq!(at(place("Address.scope")), [7; 4]);
        assert_eq!(at(place("Address.flow")), [6; 4]);
        assert_eq!(at(place("Address.bytes")), [4; 16]);
        assert_eq!(place("Address.bytes").0 + 16, ADDRESS);

        let record = Accepted { cookie: 0x0808_0808_0808_0808, local: address, remote: Address(None) };
        let octets = record.encode();
        let at = |(from, len): (usize, usize)| octets[from..from + len].to_vec();
        assert_eq!(at(place("Accepted.magic")), ACCEPTED_MAGIC);
        assert_eq!(at(place("Accepted.cookie")), [8; 8]);
        assert_eq!(at(place("Accepted.local")), address.encode());
        assert_eq!(at(place("Accepted.remote")), [0; ADDRESS]);
        assert_eq!(place("Accepted.remote").0 + ADDRESS, ACCEPTED);

        let octets = Claim { uid: 0x0909_0909, proof: [10; 16] }.encode();
        assert_eq!(octets[..place("Claim.uid").1], [9; 4]);
        let (last, len) = place("Claim.proof");
        assert_eq!((octets[last..last + len].to_vec(), last + len), (vec![10; 16], CLAIM));

        for op in Op::ALL {
            let name = format!("`{}`", format!("{op:?}").to_uppercase());
            let row = rows.iter().find(|row| row[1] == name).unwrap_or_else(|| panic!("no row for {name}"));
            assert_eq!(row[0], (op as u32).to_string());
        }
    }
}
