//! The family region read from outside: bytes in, plain values out.
//!
//! The bytes come from another program's memory, which that program may be changing or may have filled with
//! anything. Nothing here trusts them: every number is copied once, lengths are bounded by the layout, unknown
//! values stay unknown. Finding the region and reading its bytes is the caller's business.

use crate::family::{self, ENDS, ENDS_OFFSET, PROCESSES, STATS_OFFSET, VIEW_MAGIC, end_state, wpath};
use crate::reason::Reason;
use crate::service::is_name;
use crate::stats::{Bytes, RECORD_SIZE};
use std::fmt;
use std::mem::offset_of;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Bytes to be read from offset 0 for [`Header::decode`].
pub const HEADER_SIZE: usize = size_of::<family::Header>();
/// Bytes of one record at [`end_offset`], for [`End::decode`].
pub const END_SIZE: usize = size_of::<family::End>();

/// Where the record of end `number` begins; `number` is below [`ENDS`].
pub const fn end_offset(number: usize) -> u64 {
    (ENDS_OFFSET + number * END_SIZE) as u64
}

/// Bytes of a record at [`datagrams_offset`], for [`Datagrams::decode`].
pub const DATAGRAMS_SIZE: usize = size_of::<family::DatagramEnd>();

/// Where the record of UDP socket `number` begins; `number` is below [`family::DATAGRAM_ENDS`].
pub const fn datagrams_offset(number: usize) -> u64 {
    (family::DATAGRAMS_OFFSET + number * DATAGRAMS_SIZE) as u64
}

/// Where the statistics record of process slot `slot` begins; `slot` is below [`PROCESSES`].
pub const fn stats_offset(slot: usize) -> u64 {
    (STATS_OFFSET + slot * RECORD_SIZE) as u64
}

/// Why bytes are not a family region that can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotAView {
    /// Fewer bytes than a header has.
    Short,
    /// The owner has not finished writing the header.
    NotReady,
    /// Another version of Bypath wrote it; the byte is its version mark.
    OtherVersion(u8),
    /// Something else.
    Foreign,
}

impl fmt::Display for NotAView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotAView::Short => f.write_str("shorter than its own header"),
            NotAView::NotReady => f.write_str("not yet written"),
            NotAView::OtherVersion(mark) => {
                write!(f, "written by another version of Bypath (format '{}')", mark.escape_ascii())
            }
            NotAView::Foreign => f.write_str("not written by Bypath"),
        }
    }
}

impl std::error::Error for NotAView {}

/// A process of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its slot: the bit number in [`End::holders`].
    pub slot: usize,
    /// Process id in its own pid namespace.
    pub pid: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// Command name; may contain any character.
    pub command: String,
}

/// The first page of the region.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// End records in use have numbers below this; at most [`ENDS`].
    pub ends_used: usize,
    /// The complete slots of the process table; a process in it may have died since.
    pub processes: Vec<Process>,
}

impl Header {
    /// Decodes the first [`HEADER_SIZE`] bytes of a region.
    ///
    /// # Errors
    /// The bytes are not the header of a region of this version.
    pub fn decode(raw: &[u8]) -> Result<Header, NotAView> {
        if raw.len() < HEADER_SIZE {
            return Err(NotAView::Short);
        }
        let ours = VIEW_MAGIC.to_le_bytes();
        let magic = word(raw, offset_of!(family::Header, magic)).to_le_bytes();
        if magic == [0; 8] {
            return Err(NotAView::NotReady);
        }
        if magic[..7] != ours[..7] {
            return Err(NotAView::Foreign);
        }
        if magic != ours {
            return Err(NotAView::OtherVersion(magic[7]));
        }
        let processes = (0..PROCESSES).filter_map(|slot| Process::decode(raw, slot)).collect();
        let ends_used = half(raw, offset_of!(family::Header, ends_used)) as usize;
        Ok(Header { ends_used: ends_used.min(ENDS), processes })
    }
}

impl Process {
    fn decode(header: &[u8], slot: usize) -> Option<Process> {
        let at = offset_of!(family::Header, processes) + slot * size_of::<family::Process>();
        let raw = &header[at..at + size_of::<family::Process>()];
        let pid = half(raw, offset_of!(family::Process, pid));
        if pid == 0 || half(raw, offset_of!(family::Process, ready)) != 1 {
            return None;
        }
        let command = &raw[offset_of!(family::Process, command)..][..16];
        let end = command.iter().position(|&b| b == 0).unwrap_or(16);
        Some(Process {
            slot,
            pid,
            start_time: word(raw, offset_of!(family::Process, start_time)),
            command: String::from_utf8_lossy(&command[..end]).into_owned(),
        })
    }
}

/// The path of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// Through shared memory.
    Ring,
    /// Through the kernel.
    Kernel,
}

impl Path {
    /// The stable code: `ring` or `kernel`.
    pub const fn code(self) -> &'static str {
        match self {
            Path::Ring => "ring",
            Path::Kernel => "kernel",
        }
    }
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Direction {
    /// The path that its bytes take.
    pub path: Path,
    /// Why; `None` if a value that this version does not know stands there.
    pub reason: Option<Reason>,
}

/// One socket of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Its place in the region.
    pub number: usize,
    /// Raised at each reuse of the place.
    pub generation: u32,
    /// What somebody outside wants and the process has not taken note of yet: one of [`family::wish`].
    pub wish: u32,
    /// Whether both ends share a control block; else the connection never left the kernel, or has gone back.
    pub warm: bool,
    /// Descriptor number in the process that created or accepted it.
    pub fd: i32,
    /// One bit per process slot that holds a descriptor.
    pub holders: u64,
    /// Kernel's number of this socket, `None` = not known yet.
    pub cookie: Option<u64>,
    /// Kernel's number of the other end, `None` = not known.
    pub peer_cookie: Option<u64>,
    /// Local address, if known.
    pub local: Option<SocketAddr>,
    /// Remote address, if known.
    pub remote: Option<SocketAddr>,
    /// What is sent.
    pub outgoing: Direction,
    /// What is received.
    pub incoming: Direction,
    /// The rule that keeps the connection on the kernel: its place in the configuration file, from 1.
    pub rule: Option<u32>,
    /// Name of the netstack service whose socket it is; what is not on the ring goes by its descriptor, a pair, then.
    pub service: Option<String>,
    /// Bytes of one ring, `None` while there is none.
    pub ring_size: Option<u32>,
    /// Where its rings are: inode of the arena, and the slot there. `None` while there are none, and in what earlier versions wrote.
    pub rings: Option<(u64, u32)>,
    /// Bytes moved by hooked calls.
    pub bytes: Bytes,
}

impl End {
    /// Decodes the record of [`END_SIZE`] bytes at place `number`; `None` if it is not in use (or too short).
    pub fn decode(number: usize, raw: &[u8]) -> Option<End> {
        if raw.len() < END_SIZE {
            return None;
        }
        let warm = match half(raw, offset_of!(family::End, state)) {
            end_state::COLD => false,
            end_state::WARM => true,
            _ => return None,
        };
        let reason = Reason::from_value(quarter(raw, offset_of!(family::End, reason)));
        let rx_reason = Reason::from_value(quarter(raw, offset_of!(family::End, rx_reason)));
        let out_path = half(raw, offset_of!(family::End, w.path));
        let outgoing = Direction {
            path: if warm && out_path == wpath::RING { Path::Ring } else { Path::Kernel },
            reason,
        };
        // A cold end has one reason for both directions.
        let incoming = match rx_reason {
            _ if !warm => Direction { path: Path::Kernel, reason },
            Some(Reason::Ring) => Direction { path: Path::Ring, reason: rx_reason },
            other => Direction { path: Path::Kernel, reason: other },
        };
        let cookie = |at| Some(word(raw, at)).filter(|c| *c != 0);
        let service = service(raw, offset_of!(family::End, service));
        let tx = word(raw, offset_of!(family::End, w.kernel_bytes));
        let rx = word(raw, offset_of!(family::End, r.kernel_bytes));
        // What does not go by the ring goes by the carrier: the kernel's connection, or a pair.
        let by_carrier = match &service {
            None => Bytes { kernel_tx: tx, kernel_rx: rx, ..Bytes::default() },
            Some(_) => Bytes { pair_tx: tx, pair_rx: rx, ..Bytes::default() },
        };
        Some(End {
            number,
            generation: half(raw, offset_of!(family::End, generation)),
            wish: half(raw, offset_of!(family::End, wish)),
            warm,
            fd: half(raw, offset_of!(family::End, fd)).cast_signed(),
            holders: word(raw, offset_of!(family::End, holders))
                & !word(raw, offset_of!(family::End, r.leaving)),
            cookie: cookie(offset_of!(family::End, cookie)),
            peer_cookie: cookie(offset_of!(family::End, peer_cookie)),
            local: address(raw, offset_of!(family::End, local)),
            remote: address(raw, offset_of!(family::End, remote)),
            outgoing,
            incoming,
            rule: Some(half(raw, offset_of!(family::End, rule))).filter(|n| *n != 0),
            service,
            ring_size: Some(half(raw, offset_of!(family::End, ring_size))).filter(|n| warm && *n != 0),
            rings: Some((
                word(raw, offset_of!(family::End, arena)),
                half(raw, offset_of!(family::End, slot)),
            ))
            .filter(|(arena, _)| warm && *arena != 0),
            bytes: Bytes {
                ring_tx: word(raw, offset_of!(family::End, w.ring_bytes)),
                ring_rx: word(raw, offset_of!(family::End, r.ring_bytes)),
                ..by_carrier
            },
        })
    }

    /// Bytes that wait in this end's outgoing ring, given the record of the other end: what this end has sent
    /// less what the other has received, on both paths (bytes taken back from a ring were sent to it and are
    /// received from the kernel). `None` while the outgoing direction has no ring.
    pub fn outgoing_fill(&self, other: &End) -> Option<u64> {
        let size = u64::from(self.ring_size.filter(|_| self.outgoing.path == Path::Ring)?);
        let (sent, received) = (self.bytes.sent(), other.bytes.received());
        Some(sent.saturating_sub(received).min(size))
    }
}

/// What a UDP socket has moved in one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramCounts {
    /// Datagrams through shared memory.
    pub ring: u64,
    /// Their bytes.
    pub ring_bytes: u64,
    /// Datagrams through the kernel, by hooked calls.
    pub kernel: u64,
    /// Their bytes.
    pub kernel_bytes: u64,
    /// Datagrams dropped, as a mailbox was full.
    pub lost: u64,
}

/// One UDP socket of a process of the family.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagrams {
    /// Its place in the region.
    pub number: usize,
    /// The slot of the process.
    pub slot: usize,
    /// The descriptor there.
    pub fd: i32,
    /// The kernel's number of the socket, `None` = not known.
    pub cookie: Option<u64>,
    /// Its own address, if known.
    pub local: Option<SocketAddr>,
    /// To whom it is connected, or has last got a mailbox from.
    pub remote: Option<SocketAddr>,
    /// What is sent: by the ring to those whose mailboxes it has, if anything has gone there.
    pub outgoing: Direction,
    /// What is received: by the ring if it has a mailbox, and anything has come there.
    pub incoming: Direction,
    /// The rule that keeps it on the kernel: its place in the configuration file, from 1.
    pub rule: Option<u32>,
    /// As [`End::service`].
    pub service: Option<String>,
    /// Mailboxes that it sends to.
    pub routes: u32,
    /// What it sent; lost: at full mailboxes of others.
    pub tx: DatagramCounts,
    /// What it received; lost: at its own full mailbox.
    pub rx: DatagramCounts,
}

impl Datagrams {
    /// Decodes the record of [`DATAGRAMS_SIZE`] bytes at place `number`; `None` if it is not in use (or too short).
    pub fn decode(number: usize, raw: &[u8]) -> Option<Datagrams> {
        use family::{DatagramEnd as Record, datagram_path};
        if raw.len() < DATAGRAMS_SIZE {
            return None;
        }
        let slot =
            (half(raw, offset_of!(Record, holder)) as usize).checked_sub(1).filter(|s| *s < PROCESSES)?;
        let paths = half(raw, offset_of!(Record, paths));
        let counts = |at: usize| DatagramCounts {
            ring: word(raw, at + offset_of!(family::DatagramCounts, ring)),
            ring_bytes: word(raw, at + offset_of!(family::DatagramCounts, ring_bytes)),
            kernel: word(raw, at + offset_of!(family::DatagramCounts, kernel)),
            kernel_bytes: word(raw, at + offset_of!(family::DatagramCounts, kernel_bytes)),
            lost: word(raw, at + offset_of!(family::DatagramCounts, lost)),
        };
        let (tx, rx) = (counts(offset_of!(Record, tx)), counts(offset_of!(Record, rx)));
        let service = service(raw, offset_of!(Record, service));
        let direction = |bit: u32, at: usize, by_ring: u64| {
            let reason = Reason::from_value(quarter(raw, at));
            match reason {
                _ if paths & bit == 0 => Direction { path: Path::Kernel, reason },
                // It could go there, and nothing has yet. Of a service's it is the rings that it has.
                _ if by_ring == 0 && service.is_none() => {
                    let asleep = reason.map(|r| if r == Reason::Ring { Reason::Asleep } else { r });
                    Direction { path: Path::Kernel, reason: asleep }
                }
                _ => Direction { path: Path::Ring, reason },
            }
        };
        Some(Datagrams {
            number,
            slot,
            fd: half(raw, offset_of!(Record, fd)).cast_signed(),
            cookie: Some(word(raw, offset_of!(Record, cookie))).filter(|c| *c != 0),
            local: address(raw, offset_of!(Record, local)),
            remote: address(raw, offset_of!(Record, remote)),
            outgoing: direction(datagram_path::SENDS, offset_of!(Record, reason), tx.ring),
            incoming: direction(datagram_path::RECEIVES, offset_of!(Record, rx_reason), rx.ring),
            rule: Some(half(raw, offset_of!(Record, rule))).filter(|n| *n != 0),
            service,
            routes: half(raw, offset_of!(Record, routes)),
            tx,
            rx,
        })
    }
}

/// A service's name; `None`: there is none, or nothing that can be one.
fn service(raw: &[u8], at: usize) -> Option<String> {
    let padded = &raw[at..at + size_of::<family::Label>()];
    let len = padded.iter().position(|&b| b == 0).unwrap_or(padded.len());
    let name = std::str::from_utf8(&padded[..len]).ok()?;
    is_name(name).then(|| name.to_owned())
}

fn address(raw: &[u8], at: usize) -> Option<SocketAddr> {
    // The values of AF_INET and AF_INET6 on Linux; they are part of the region's format.
    const INET: u16 = 2;
    const INET6: u16 = 10;
    let bytes: [u8; 16] =
        raw[at + offset_of!(family::Addr, bytes)..][..16].try_into().expect("sixteen bytes");
    let ip = match quarter(raw, at + offset_of!(family::Addr, family)) {
        INET => IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])),
        INET6 => IpAddr::V6(Ipv6Addr::from(bytes)),
        _ => return None,
    };
    Some(SocketAddr::new(ip, quarter(raw, at + offset_of!(family::Addr, port))))
}

fn word(raw: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(raw[at..at + 8].try_into().expect("eight bytes"))
}

fn half(raw: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(raw[at..at + 4].try_into().expect("four bytes"))
}

fn quarter(raw: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(raw[at..at + 2].try_into().expect("two bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(raw: &mut [u8], at: usize, bytes: &[u8]) {
        raw[at..at + bytes.len()].copy_from_slice(bytes);
    }

    fn header() -> Vec<u8> {
        let mut raw = vec![0; HEADER_SIZE];
        put(&mut raw, offset_of!(family::Header, magic), b"BYPVIEW1");
        put(&mut raw, offset_of!(family::Header, ends_used), &3u32.to_ne_bytes());
        raw
    }

    fn process(raw: &mut [u8], slot: usize, pid: u32, ready: u32, command: &[u8]) {
        let at = offset_of!(family::Header, processes) + slot * size_of::<family::Process>();
        put(raw, at + offset_of!(family::Process, pid), &pid.to_ne_bytes());
        put(raw, at + offset_of!(family::Process, ready), &ready.to_ne_bytes());
        put(raw, at + offset_of!(family::Process, start_time), &77u64.to_ne_bytes());
        put(raw, at + offset_of!(family::Process, command), command);
    }

    fn end(state: u32, reason: u16, rx_reason: u16, path: u32) -> Vec<u8> {
        let mut raw = vec![0; END_SIZE];
        put(&mut raw, offset_of!(family::End, state), &state.to_ne_bytes());
        put(&mut raw, offset_of!(family::End, fd), &7i32.to_ne_bytes());
        put(&mut raw, offset_of!(family::End, reason), &reason.to_ne_bytes());
        put(&mut raw, offset_of!(family::End, rx_reason), &rx_reason.to_ne_bytes());
        put(&mut raw, offset_of!(family::End, holders), &0b101u64.to_ne_bytes());
        put(&mut raw, offset_of!(family::End, cookie), &11u64.to_ne_bytes());
        put(&mut raw, offset_of!(family::End, ring_size), &65536u32.to_ne_bytes());
        put(&mut raw, offset_of!(family::End, w.path), &path.to_ne_bytes());
        for (at, n) in [
            (offset_of!(family::End, w.ring_bytes), 1000u64),
            (offset_of!(family::End, w.kernel_bytes), 200),
            (offset_of!(family::End, r.ring_bytes), 30),
            (offset_of!(family::End, r.kernel_bytes), 4),
        ] {
            put(&mut raw, at, &n.to_ne_bytes());
        }
        let (local, remote) = (offset_of!(family::End, local), offset_of!(family::End, remote));
        put(&mut raw, local + offset_of!(family::Addr, family), &2u16.to_ne_bytes());
        put(&mut raw, local + offset_of!(family::Addr, port), &6379u16.to_ne_bytes());
        put(&mut raw, local + offset_of!(family::Addr, bytes), &[127, 0, 0, 1]);
        put(&mut raw, remote + offset_of!(family::Addr, family), &10u16.to_ne_bytes());
        put(&mut raw, remote + offset_of!(family::Addr, port), &80u16.to_ne_bytes());
        put(&mut raw, remote + offset_of!(family::Addr, bytes), &Ipv6Addr::LOCALHOST.octets());
        raw
    }

    #[test]
    fn header_lists_complete_processes() {
        let mut raw = header();
        process(&mut raw, 0, 10, 1, b"server\0\0garbage!");
        process(&mut raw, 1, 11, 0, b"half-made");
        process(&mut raw, 63, 12, 1, b"sixteen-letters!");
        let header = Header::decode(&raw).unwrap();
        assert_eq!(header.ends_used, 3);
        let seen: Vec<_> =
            header.processes.iter().map(|p| (p.slot, p.pid, p.start_time, p.command.as_str())).collect();
        assert_eq!(seen, [(0, 10, 77, "server"), (63, 12, 77, "sixteen-letters!")]);
    }

    #[test]
    fn other_headers_are_told_apart() {
        let mut raw = header();
        assert_eq!(Header::decode(&raw[..HEADER_SIZE - 1]), Err(NotAView::Short));
        raw[7] = b'2';
        assert_eq!(Header::decode(&raw), Err(NotAView::OtherVersion(b'2')));
        raw[0] = b'x';
        assert_eq!(Header::decode(&raw), Err(NotAView::Foreign));
        raw[..8].fill(0);
        assert_eq!(Header::decode(&raw), Err(NotAView::NotReady));
    }

    #[test]
    fn a_header_cannot_claim_more_ends_than_fit() {
        let mut raw = header();
        put(&mut raw, offset_of!(family::Header, ends_used), &u32::MAX.to_ne_bytes());
        assert_eq!(Header::decode(&raw).unwrap().ends_used, ENDS);
    }

    #[test]
    fn warm_end_has_a_path_per_direction() {
        let e = End::decode(0, &end(end_state::WARM, 1, 42, wpath::RING)).unwrap();
        assert_eq!(e.outgoing, Direction { path: Path::Ring, reason: Some(Reason::Ring) });
        assert_eq!(e.incoming, Direction { path: Path::Kernel, reason: Some(Reason::RecalledStalledReader) });
        assert_eq!((e.fd, e.holders, e.cookie, e.peer_cookie), (7, 0b101, Some(11), None));
        assert_eq!(e.local, Some("127.0.0.1:6379".parse().unwrap()));
        assert_eq!(e.remote, Some("[::1]:80".parse().unwrap()));
        assert_eq!(e.ring_size, Some(65536));
        assert_eq!(
            e.bytes,
            Bytes { ring_tx: 1000, ring_rx: 30, kernel_tx: 200, kernel_rx: 4, ..Bytes::default() }
        );
        let mut raw = end(end_state::WARM, 1, 42, wpath::RING);
        put(&mut raw, offset_of!(family::End, service), b"lab");
        let of_service = End::decode(0, &raw).unwrap().bytes;
        assert_eq!(
            of_service,
            Bytes { ring_tx: 1000, ring_rx: 30, pair_tx: 200, pair_rx: 4, ..Bytes::default() }
        );
    }

    #[test]
    fn a_service_is_known_by_a_name_that_it_can_have() {
        let mut raw = end(end_state::COLD, 4, 0, 0);
        assert_eq!(End::decode(0, &raw).unwrap().service, None);
        let longest = "x".repeat(32);
        for (name, shown) in [("lab", Some("lab")), (&longest, Some(&*longest)), ("a/b\n", None)] {
            let label = offset_of!(family::End, service);
            raw[label..label + 32].fill(0);
            put(&mut raw, label, name.as_bytes());
            assert_eq!(End::decode(0, &raw).unwrap().service.as_deref(), shown);
        }
        let mut raw = vec![0; DATAGRAMS_SIZE];
        put(&mut raw, offset_of!(family::DatagramEnd, holder), &1u32.to_ne_bytes());
        put(&mut raw, offset_of!(family::DatagramEnd, service), b"lab");
        assert_eq!(Datagrams::decode(0, &raw).unwrap().service.as_deref(), Some("lab"));
    }

    #[test]
    fn datagrams_take_the_ring_where_some_have() {
        let mut raw = vec![0; DATAGRAMS_SIZE];
        let tx = offset_of!(family::DatagramEnd, tx) + offset_of!(family::DatagramCounts, ring);
        let outgoing = |raw: &[u8]| Datagrams::decode(0, raw).unwrap().outgoing;
        put(&mut raw, offset_of!(family::DatagramEnd, holder), &1u32.to_ne_bytes());
        put(&mut raw, offset_of!(family::DatagramEnd, reason), &(Reason::Ring as u16).to_ne_bytes());
        put(&mut raw, offset_of!(family::DatagramEnd, paths), &3u32.to_ne_bytes());
        assert_eq!(outgoing(&raw), Direction { path: Path::Kernel, reason: Some(Reason::Asleep) });
        put(&mut raw, tx, &1u64.to_ne_bytes());
        assert_eq!(outgoing(&raw), Direction { path: Path::Ring, reason: Some(Reason::Ring) });
        assert_eq!(Datagrams::decode(0, &raw).unwrap().incoming.path, Path::Kernel);
        put(&mut raw, offset_of!(family::DatagramEnd, paths), &2u32.to_ne_bytes());
        assert_eq!(outgoing(&raw).path, Path::Kernel);
    }

    #[test]
    fn a_claimed_direction_is_on_the_kernel() {
        let e = End::decode(0, &end(end_state::WARM, 41, 1, wpath::FLUSH)).unwrap();
        assert_eq!((e.outgoing.path, e.incoming.path), (Path::Kernel, Path::Ring));
    }

    #[test]
    fn cold_end_has_one_reason_and_no_ring() {
        let e = End::decode(0, &end(end_state::COLD, 3, 0, wpath::RING)).unwrap();
        let plain = Direction { path: Path::Kernel, reason: Some(Reason::PeerPlain) };
        assert_eq!((e.outgoing, e.incoming, e.ring_size), (plain, plain, None));
    }

    #[test]
    fn free_unknown_and_short_records_are_nothing() {
        assert_eq!(End::decode(0, &end(end_state::FREE, 0, 0, 0)), None);
        assert_eq!(End::decode(0, &end(u32::MAX, 0, 0, 0)), None);
        assert_eq!(End::decode(0, &[0xff; END_SIZE - 1]), None);
    }

    #[test]
    fn unknown_values_stay_unknown() {
        let mut raw = end(end_state::WARM, 9999, 9998, 77);
        put(&mut raw, offset_of!(family::End, local), &99u16.to_ne_bytes());
        let e = End::decode(0, &raw).unwrap();
        assert_eq!((e.outgoing.reason, e.incoming.reason, e.local), (None, None, None));
        assert_eq!(e.outgoing.path, Path::Kernel);
    }

    #[test]
    fn fill_counts_both_paths_and_never_exceeds_the_ring() {
        let us = End::decode(0, &end(end_state::WARM, 1, 1, wpath::RING)).unwrap();
        let mut other = us.clone();
        other.bytes = Bytes { ring_rx: 900, kernel_rx: 260, ..Bytes::default() };
        assert_eq!(us.outgoing_fill(&other), Some(40));
        other.bytes = Bytes { ring_rx: u64::MAX, kernel_rx: 1, ..Bytes::default() };
        assert_eq!(us.outgoing_fill(&other), Some(0));
        let mut liar = us.clone();
        liar.bytes = Bytes { ring_tx: u64::MAX, kernel_tx: 5, ..Bytes::default() };
        assert_eq!(liar.outgoing_fill(&us), Some(65536));
        let cold = End::decode(0, &end(end_state::COLD, 3, 0, 0)).unwrap();
        assert_eq!(cold.outgoing_fill(&us), None);
    }

    #[test]
    fn no_bytes_make_the_decoder_panic() {
        for fill in [0u8, 1, 2, 0x7f, 0xff] {
            let mut raw = vec![fill; HEADER_SIZE.max(END_SIZE)];
            let _ = End::decode(0, &raw);
            put(&mut raw, offset_of!(family::End, state), &end_state::WARM.to_ne_bytes());
            let _ = End::decode(0, &raw).unwrap();
            put(&mut raw, offset_of!(family::Header, magic), b"BYPVIEW1");
            let _ = Header::decode(&raw).unwrap();
        }
    }
}
