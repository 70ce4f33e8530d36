//! The family region: what a process and its fork descendants share about their own sockets, and what
//! `bypath ss` and `bypath why` read from outside (through /proc/PID/fd, so also while a program is stopped).
//!
//! It is one memfd named [`VIEW_NAME`], mapped before any fork. Peers never map it. Everything is an atomic:
//! the region is shared, and type-stable for the life of the process.

use crate::inbox::BELLS;
use crate::reason::Reason;
use crate::service::LONGEST_NAME;
use crate::stats::{RECORD_SIZE, StatsRecord};
use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicI32, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Name of the memfd; it shows as `/memfd:bypath-view (deleted)` in /proc/PID/fd.
pub const VIEW_NAME: &CStr = c"bypath-view";
/// `BYPVIEW1`, little endian.
pub const VIEW_MAGIC: u64 = u64::from_le_bytes(*b"BYPVIEW1");
/// Processes a family can have at a time (one bit each in [`End::holders`]).
pub const PROCESSES: usize = 64;
/// Sockets a family can follow at a time.
pub const ENDS: usize = 1 << 16;
/// Sockets of datagrams that a family shows at a time.
pub const DATAGRAM_ENDS: usize = 1024;
/// Writer-path values of [`WriterLine::path`].
pub mod wpath {
    /// Bytes go through the carrier.
    pub const KERNEL: u32 = 0;
    /// Bytes go through the ring.
    pub const RING: u32 = 1;
    /// A claim was made; ring bytes are being re-sent through the carrier.
    pub const FLUSH: u32 = 2;
}
/// Life of an end record, [`End::state`].
pub mod end_state {
    /// Not in use.
    pub const FREE: u32 = 0;
    /// A followed socket on the kernel path, no partner in shared memory.
    pub const COLD: u32 = 1;
    /// Both ends have mapped a common control block; each direction has its own path.
    pub const WARM: u32 = 2;
    /// A process has taken it and is about to follow a socket by it.
    pub const CLAIMED: u32 = 3;
}

/// What somebody outside wants of a connection, [`End::wish`].
pub mod wish {
    /// Nothing.
    pub const NONE: u32 = 0;
    /// Both directions back to the kernel, for good.
    pub const RECALL: u32 = 1;
    /// An attempt to upgrade now.
    pub const UPGRADE: u32 = 2;
    /// Both directions back to the kernel, never to come up again: another process has taken a descriptor of one of the
    /// two ends, and uses the carrier.
    pub const TAKEN: u32 = 3;
}

/// What [`Family::bells`] says of a bell: its descriptor, and the place of the process that made it.
pub mod bell {
    const DESCRIPTOR: i32 = (1 << 22) - 1;
    const PLACE_SHIFT: u32 = 22;
    const PLACE: i32 = 0x7f << PLACE_SHIFT;
    /// Processes of other families may know it by its number for longer than its maker lives: the number is not used again.
    pub const LASTING: i32 = 1 << 30;

    /// The bell that is `descriptor` in the process at `place` of the table.
    pub fn pack(descriptor: i32, place: u32) -> i32 {
        let named = if (0..DESCRIPTOR).contains(&descriptor) { descriptor + 1 } else { 0 };
        match i32::try_from(place) {
            Ok(place) if place < 64 => named | ((place + 1) << PLACE_SHIFT),
            _ => named | LASTING,
        }
    }

    /// Its descriptor in the process that made it, -1 = none is known.
    pub fn descriptor(bell: i32) -> i32 {
        (bell & DESCRIPTOR) - 1
    }

    /// Whether a process at `place` made it, and nobody will know it by its number once that is gone.
    pub fn ends_with(bell: i32, place: u32) -> bool {
        bell & (LASTING | PLACE) == pack(-1, place)
    }
}

/// One process of the family.
#[repr(C)]
#[derive(Debug)]
pub struct Process {
    /// Process id, 0 = slot free.
    pub pid: AtomicU32,
    /// 1 once the slot is complete.
    pub ready: AtomicU32,
    /// Start time in clock ticks since boot: pid and start time together name a process.
    pub start_time: AtomicU64,
    /// Command name, NUL padded.
    pub command: [AtomicU64; 2],
}

/// First page of the region.
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct Header {
    /// [`VIEW_MAGIC`], stored last.
    pub magic: AtomicU64,
    /// Highest end number ever used, plus one: readers stop there.
    pub ends_used: AtomicU32,
    /// Next bell number (bells are numbered per family, from 1).
    pub next_bell: AtomicU32,
    /// The processes.
    pub processes: [Process; PROCESSES],
    /// Raised whenever a place among the processes was given to a new one.
    pub births: AtomicU32,
    /// Where the next look for a used end begins (modulo `ends_used`).
    pub next_look: AtomicU32,
    /// By place: execs of that process, raised before and after each; odd = one is under way, or has succeeded.
    pub execs: [AtomicU32; PROCESSES],
}

/// An address as stored for the view: family (AF_INET, AF_INET6 or 0), port in host byte order, 16 address
/// bytes in network order (IPv4 in the first four).
#[repr(C)]
#[derive(Debug)]
pub struct Addr {
    /// AF_INET, AF_INET6, or 0 = unknown.
    pub family: AtomicU16,
    /// Port, host byte order.
    pub port: AtomicU16,
    _pad: AtomicU32,
    /// Address bytes as two words in memory order.
    pub bytes: [AtomicU64; 2],
}

/// Name of the netstack service whose socket this is, padded with NUL; nothing: it is the kernel's.
#[repr(C)]
#[derive(Debug)]
pub struct Label([AtomicU64; LONGEST_NAME / 8]);

impl Label {
    /// Stores a name; what is longer than one can be is cut.
    pub fn set(&self, name: &str) {
        let mut padded = [0; LONGEST_NAME];
        let len = name.len().min(LONGEST_NAME);
        padded[..len].copy_from_slice(&name.as_bytes()[..len]);
        for (word, octets) in self.0.iter().zip(padded.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(octets.try_into().expect("8")), Relaxed);
        }
    }
}

/// One socket (open file description) of the family. 512 bytes; writer state, reader state and rare state
/// stand on cache lines of their own.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct End {
    // -- identity and rare state
    /// One of [`end_state`].
    pub state: AtomicU32,
    /// Raised at each reuse of the record.
    pub generation: AtomicU32,
    /// Descriptor number in the process that created or accepted it.
    pub fd: AtomicI32,
    /// Reason (value) of the outgoing direction's path, else of the whole connection.
    pub reason: AtomicU16,
    /// Reason (value) of the incoming direction's path.
    pub rx_reason: AtomicU16,
    /// One bit per process of the family that holds a descriptor.
    pub holders: AtomicU64,
    /// SO_COOKIE of this socket, 0 = not read yet.
    pub cookie: AtomicU64,
    /// SO_COOKIE of the other end, 0 = unknown.
    pub peer_cookie: AtomicU64,
    /// Local address.
    pub local: Addr,
    /// Remote address.
    pub remote: Addr,
    /// Bytes of one ring, 0 while cold.
    pub ring_size: AtomicU32,
    /// Error to be reported by the next call (an errno that a flush received), 0 = none.
    pub pending_error: AtomicI32,
    /// Bits: see `sockets` (never upgrade, non-blocking, was upgraded once, ...).
    pub flags: AtomicU32,
    /// SO_RCVLOWAT.
    pub rcvlowat: AtomicU32,
    /// SO_RCVTIMEO and SO_SNDTIMEO in nanoseconds, 0 = none.
    pub rcvtimeo: AtomicU64,
    /// See `rcvtimeo`.
    pub sndtimeo: AtomicU64,
    /// The rule that keeps the connection on the kernel (its place in the configuration file, from 1), 0 = none. Of an end that only says who holds a
    /// UDP socket: how often they have changed its names and options.
    pub rule: AtomicU32,
    /// One of [`wish`]; written from outside, taken by the process.
    pub wish: AtomicU32,

    // -- outgoing direction, under `wlock`
    /// Line of the writer's lock: {family process index + 1, thread id}, 0 = free.
    pub w: WriterLine,
    // -- incoming direction
    /// Line of the reader.
    pub r: ReaderLine,
    // -- what views show
    /// The netstack service whose socket it is.
    pub service: Label,
    /// Number (inode) of the arena's memory, in whose slot `slot` its rings are; 0 = not told. Means something while `ring_size` does.
    pub arena: AtomicU64,
    /// See `arena`.
    pub slot: AtomicU32,
    /// Of a stream that is over, in its ring: how far it was read, and where it ends (positions, with the highest bit); 0 = not known.
    pub last: [AtomicU64; 2],
}

/// The outgoing direction as its own family sees it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct WriterLine {
    /// Owner of the writer's lock: {process index + 1, or 2^31 and the process id} << 32 | thread id; 0 = free.
    pub lock: AtomicU64,
    /// Bytes ever offered on this stream, ring or carrier: the true tail.
    pub tail: AtomicU64,
    /// Last head position seen.
    pub head_cache: AtomicU64,
    /// One of [`wpath`].
    pub path: AtomicU32,
    /// Times this direction was taken back: back-off.
    pub claims: AtomicU32,
    /// In state FLUSH: next ring position to re-send.
    pub flush: AtomicU64,
    /// The ring is backed by memory from `backed_from` up to this position; `u64::MAX` = all of it.
    pub backed: AtomicU64,
    /// Threads inside a blocking kernel call that may write this direction.
    pub in_kernel: AtomicU32,
    /// While R still drains the carrier: ring bytes that may be in use; 0 = the whole ring.
    pub limit: AtomicU32,
    /// Bytes sent through rings.
    pub ring_bytes: AtomicU64,
    /// Bytes sent through the carrier by hooked calls (recalled bytes are counted as ring bytes).
    pub kernel_bytes: AtomicU64,
    /// Upgrades of this direction are refused before this many bytes are sent.
    pub not_before: AtomicU64,
    /// Start of the ring's memory, see `backed`: a position, a multiple of the page size.
    pub backed_from: AtomicU64,
}

/// The incoming direction as its own family sees it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct ReaderLine {
    /// Last tail position seen.
    pub tail_cache: AtomicU64,
    /// Threads inside a blocking kernel call that may read this direction.
    pub in_kernel: AtomicU32,
    /// Calls made on this end while cold, both directions: the upgrade threshold.
    pub calls: AtomicU32,
    /// Bytes received through rings.
    pub ring_bytes: AtomicU64,
    /// Bytes received through the carrier.
    pub kernel_bytes: AtomicU64,
    /// Bytes that were put aside when the connection was shut down, and that were read since.
    pub kept_read: AtomicU64,
    /// Bytes that were put aside.
    pub kept: AtomicU64,
    /// Who goes on with the socket in another program image of its process: 0 = nobody, [`HEIR_CAME`], else the random
    /// number of a deed that was left.
    pub heir: AtomicU64,
    /// Of the holders, those that will hold it no longer if the exec under way succeeds.
    pub leaving: AtomicU64,
}

/// What a socket of datagrams has moved in one direction.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct DatagramCounts {
    /// Datagrams that went through shared memory.
    pub ring: AtomicU64,
    /// Their octets.
    pub ring_bytes: AtomicU64,
    /// Datagrams that went through the kernel by hooked calls.
    pub kernel: AtomicU64,
    /// Their octets.
    pub kernel_bytes: AtomicU64,
    /// Datagrams that were dropped as the other end's mailbox was full.
    pub lost: AtomicU64,
}

/// Bits of [`DatagramEnd::paths`].
pub mod datagram_path {
    /// It sends to at least one mailbox.
    pub const SENDS: u32 = 1;
    /// It has a mailbox.
    pub const RECEIVES: u32 = 2;
}

/// A UDP socket of one process of the family, as views show it.
#[repr(C, align(128))]
#[derive(Debug)]
pub struct DatagramEnd {
    /// Place of the process in the family's table plus one, 0 = not in use.
    pub holder: AtomicU32,
    /// Its descriptor there.
    pub fd: AtomicI32,
    /// Bits of [`datagram_path`].
    pub paths: AtomicU32,
    /// Why what it sends goes where it goes (a [`Reason`] value).
    pub reason: AtomicU16,
    /// Why it has no mailbox, or [`Reason::Ring`].
    pub rx_reason: AtomicU16,
    /// SO_COOKIE.
    pub cookie: AtomicU64,
    /// The rule that keeps it on the kernel, 0 = none.
    pub rule: AtomicU32,
    /// Mailboxes that it sends to.
    pub routes: AtomicU32,
    /// Its own address.
    pub local: Addr,
    /// To whom it is connected, or has last got a mailbox from.
    pub remote: Addr,
    /// The netstack service whose socket it is.
    pub service: Label,
    /// What it sent.
    pub tx: DatagramCounts,
    /// What it received; lost: what those who write to its mailbox have dropped.
    pub rx: DatagramCounts,
}

const _: () = assert!(size_of::<DatagramEnd>() == 256);

/// [`ReaderLine::heir`]: a deed was left and taken.
pub const HEIR_CAME: u64 = 1;

const _: () = assert!(size_of::<End>() == 640 || size_of::<End>() == 512);
const _: () = assert!(size_of::<Header>() == 4096);

/// Offset of the statistics records (one per process slot) in the region.
pub const STATS_OFFSET: usize = size_of::<Header>();
/// Offset of the end records in the region.
pub const ENDS_OFFSET: usize = STATS_OFFSET + PROCESSES * RECORD_SIZE;
/// Offset of the records of sockets of datagrams in the region.
pub const DATAGRAMS_OFFSET: usize = ENDS_OFFSET + ENDS * size_of::<End>() + BELLS * size_of::<AtomicI32>();
/// Size of the region in bytes; it is sparse.
pub const REGION_SIZE: usize = DATAGRAMS_OFFSET + DATAGRAM_ENDS * size_of::<DatagramEnd>();

impl Addr {
    /// Stores an address: `family` AF_INET or AF_INET6, `port` in host order, `bytes` in network order.
    pub fn set(&self, family: u16, port: u16, bytes: [u8; 16]) {
        self.bytes[0].store(u64::from_ne_bytes(bytes[..8].try_into().expect("8")), Relaxed);
        self.bytes[1].store(u64::from_ne_bytes(bytes[8..].try_into().expect("8")), Relaxed);
        self.port.store(port, Relaxed);
        self.family.store(family, Relaxed);
    }

    /// Whether it is this address, as [`Addr::set`] takes it: also if a socket became one of IPv4 since (IPV6_ADDRFORM).
    pub fn is(&self, family: u16, port: u16, bytes: [u8; 16]) -> bool {
        self.name() == name(family, port, bytes)
    }

    /// The address, IPv4 addresses mapped into IPv6 as the IPv4 ones, and the port; `None` = unknown.
    pub fn name(&self) -> Option<(IpAddr, u16)> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.bytes[0].load(Relaxed).to_ne_bytes());
        bytes[8..].copy_from_slice(&self.bytes[1].load(Relaxed).to_ne_bytes());
        name(self.family.load(Relaxed), self.port.load(Relaxed), bytes)
    }
}

fn name(family: u16, port: u16, bytes: [u8; 16]) -> Option<(IpAddr, u16)> {
    let address = match family {
        // The values of AF_INET and AF_INET6 on Linux.
        2 => IpAddr::from(Ipv4Addr::from([bytes[0], bytes[1], bytes[2], bytes[3]])),
        10 => IpAddr::from(bytes).to_canonical(),
        _ => return None,
    };
    Some((address, port))
}

impl DatagramEnd {
    /// Why what it sends goes where it goes, and why it has no mailbox, or [`Reason::Ring`].
    pub fn reasons(&self) -> (Reason, Reason) {
        let of = |value: &AtomicU16| Reason::from_value(value.load(Relaxed)).unwrap_or(Reason::None);
        (of(&self.reason), of(&self.rx_reason))
    }
}

impl End {
    /// The reason of the outgoing direction (or of the whole connection while cold).
    pub fn reason(&self) -> Reason {
        Reason::from_value(self.reason.load(Relaxed)).unwrap_or(Reason::None)
    }
}

/// The whole region; only ever used behind a mapping of [`REGION_SIZE`] bytes.
#[repr(C)]
#[derive(Debug)]
pub struct Family {
    /// First page.
    pub header: Header,
    /// Statistics of each process slot, unless they live in a file.
    pub stats: [StatsSlot; PROCESSES],
    /// The ends.
    pub ends: [End; ENDS],
    /// By bell number: see [`bell`]; 0 = not made yet.
    pub bells: [AtomicI32; BELLS],
    /// UDP sockets.
    pub datagrams: [DatagramEnd; DATAGRAM_ENDS],
}

/// A statistics record padded to [`RECORD_SIZE`].
#[repr(C, align(4096))]
#[derive(Debug)]
pub struct StatsSlot {
    /// The record.
    pub record: StatsRecord,
}

const _: () = assert!(size_of::<StatsSlot>() == RECORD_SIZE);
const _: () = assert!(std::mem::offset_of!(Family, stats) == STATS_OFFSET);
const _: () = assert!(std::mem::offset_of!(Family, ends) == ENDS_OFFSET);
const _: () = assert!(std::mem::offset_of!(Family, datagrams) == DATAGRAMS_OFFSET);
const _: () = assert!(size_of::<Family>() <= REGION_SIZE.next_multiple_of(4096));
