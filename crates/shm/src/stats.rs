//! A process's counters: one fixed record, mapped either from a file (`--stats FILE`) or from the view, so
//! that it survives `kill -9` and `_exit`.
//!
//! A statistics file is a plain sequence of records of [`RECORD_SIZE`] bytes, one per process image; writers
//! append (O_APPEND). Native byte order; all counters are 64-bit.

use crate::reason::REASON_SLOTS;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Size of one record and alignment of records in a file, in bytes.
pub const RECORD_SIZE: usize = 8192;
/// `BYPSTAT2`, little endian.
pub const STATS_MAGIC: u64 = u64::from_le_bytes(*b"BYPSTAT2");
/// Of records with fewer reasons, which files may have from before.
const ELDER: Layout = Layout { magic: u64::from_le_bytes(*b"BYPSTAT1"), slots: 64 };
/// Of those that are written.
const OURS: Layout = Layout { magic: STATS_MAGIC, slots: REASON_SLOTS };
/// Byte-counter blocks; a thread owns one, threads beyond share the last.
pub const BLOCKS: usize = 64;

/// Bytes moved by one thread, each path and direction, and what it spun. One cache line: threads never share it.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct ByteBlock {
    /// Bytes sent through rings.
    pub ring_tx: AtomicU64,
    /// Bytes received through rings.
    pub ring_rx: AtomicU64,
    /// Bytes of followed sockets sent through the kernel.
    pub kernel_tx: AtomicU64,
    /// Bytes of followed sockets received through the kernel.
    pub kernel_rx: AtomicU64,
    /// Time spent spinning for the other end, in ticks of the processor's counter.
    pub spun_ticks: AtomicU64,
    /// Bytes of sockets of netstack services sent by their descriptors, pairs.
    pub pair_tx: AtomicU64,
    /// The same, received.
    pub pair_rx: AtomicU64,
}

/// The record. `repr(C)`, atomics only: it may be mapped by several processes.
#[repr(C, align(64))]
#[derive(Debug)]
pub struct StatsRecord {
    /// [`STATS_MAGIC`], stored last when a record is created.
    pub magic: AtomicU64,
    /// Process id in its own pid namespace.
    pub pid: AtomicU32,
    /// 1 while running, 2 after an orderly end.
    pub state: AtomicU32,
    /// Start time of the process in clock ticks since boot (field 22 of /proc/PID/stat).
    pub start_time: AtomicU64,
    /// Command name, NUL padded, as in /proc/PID/comm.
    pub command: [AtomicU64; 2],
    /// TCP connections seen (connected or accepted, and used for data).
    pub connections: AtomicU64,
    /// Connections of which at least one direction went to a ring at least once.
    pub upgraded: AtomicU64,
    _reserved: [AtomicU64; 8],
    /// Recalls by reason value.
    pub recalled: [AtomicU64; REASON_SLOTS],
    /// Connections that ended without ever being upgraded, by reason value.
    pub not_upgraded: [AtomicU64; REASON_SLOTS],
    /// Byte counters; the totals are the sums.
    pub bytes: [ByteBlock; BLOCKS],
}

const _: () = assert!(size_of::<StatsRecord>() <= RECORD_SIZE);

/// How a version lays its records out: what stands behind the counters by reason moves with how many these are.
#[derive(Clone, Copy)]
struct Layout {
    magic: u64,
    slots: usize,
}

impl Layout {
    const fn not_upgraded(self) -> usize {
        std::mem::offset_of!(StatsRecord, recalled) + 8 * self.slots
    }

    const fn bytes(self) -> usize {
        (self.not_upgraded() + 8 * self.slots).next_multiple_of(align_of::<ByteBlock>())
    }
}

const _: () = assert!(OURS.not_upgraded() == std::mem::offset_of!(StatsRecord, not_upgraded));
const _: () = assert!(OURS.bytes() == std::mem::offset_of!(StatsRecord, bytes));

/// Totals of the byte counters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bytes {
    /// Bytes sent through rings.
    pub ring_tx: u64,
    /// Bytes received through rings.
    pub ring_rx: u64,
    /// Bytes sent through the kernel.
    pub kernel_tx: u64,
    /// Bytes received through the kernel.
    pub kernel_rx: u64,
    /// Bytes of sockets of netstack services sent by their descriptors, pairs.
    pub pair_tx: u64,
    /// The same, received.
    pub pair_rx: u64,
}

impl Bytes {
    /// Sent, by each path.
    pub const fn sent(&self) -> u64 {
        self.ring_tx.saturating_add(self.kernel_tx).saturating_add(self.pair_tx)
    }

    /// Received, by each path.
    pub const fn received(&self) -> u64 {
        self.ring_rx.saturating_add(self.kernel_rx).saturating_add(self.pair_rx)
    }
}

impl StatsRecord {
    /// Sums the byte counters of all threads.
    pub fn total_bytes(&self) -> Bytes {
        let mut sum = Bytes::default();
        for b in &self.bytes {
            sum.ring_tx += b.ring_tx.load(Relaxed);
            sum.ring_rx += b.ring_rx.load(Relaxed);
            sum.kernel_tx += b.kernel_tx.load(Relaxed);
            sum.kernel_rx += b.kernel_rx.load(Relaxed);
            sum.pair_tx += b.pair_tx.load(Relaxed);
            sum.pair_rx += b.pair_rx.load(Relaxed);
        }
        sum
    }
}

/// A record as read from a file: plain values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatsSnapshot {
    /// Process id.
    pub pid: u32,
    /// 1 running, 2 ended in order.
    pub state: u32,
    /// Start time in clock ticks since boot.
    pub start_time: u64,
    /// Command name.
    pub command: String,
    /// TCP connections seen.
    pub connections: u64,
    /// Connections upgraded at least once.
    pub upgraded: u64,
    /// Recalls by reason value.
    pub recalled: Vec<u64>,
    /// Never upgraded, by reason value.
    pub not_upgraded: Vec<u64>,
    /// Byte totals.
    pub bytes: Bytes,
    /// Time spent spinning, in ticks of the processor's counter.
    pub spun_ticks: u64,
}

impl StatsSnapshot {
    /// Whether a record of this version, or an earlier one, begins with these bytes.
    pub fn is_magic(magic: [u8; 8]) -> bool {
        [OURS, ELDER].iter().any(|layout| layout.magic.to_le_bytes() == magic)
    }

    /// Decodes one record of [`RECORD_SIZE`] bytes; `None` if it is not a complete record.
    pub fn decode(raw: &[u8]) -> Option<StatsSnapshot> {
        if raw.len() < RECORD_SIZE {
            return None;
        }
        let word = |at: usize| u64::from_ne_bytes(raw[at..at + 8].try_into().expect("8 bytes"));
        let half = |at: usize| u32::from_ne_bytes(raw[at..at + 4].try_into().expect("4 bytes"));
        let magic = word(std::mem::offset_of!(StatsRecord, magic));
        let layout = [OURS, ELDER].into_iter().find(|layout| layout.magic == magic)?;
        let command = &raw[std::mem::offset_of!(StatsRecord, command)..][..16];
        let end = command.iter().position(|&b| b == 0).unwrap_or(16);
        let slots = |at: usize| (0..layout.slots).map(|i| word(at + 8 * i)).collect::<Vec<_>>();
        let (mut bytes, mut spun_ticks) = (Bytes::default(), 0u64);
        for i in 0..BLOCKS {
            let at = layout.bytes() + i * size_of::<ByteBlock>();
            bytes.ring_tx = bytes.ring_tx.saturating_add(word(at));
            bytes.ring_rx = bytes.ring_rx.saturating_add(word(at + 8));
            bytes.kernel_tx = bytes.kernel_tx.saturating_add(word(at + 16));
            bytes.kernel_rx = bytes.kernel_rx.saturating_add(word(at + 24));
            spun_ticks = spun_ticks.saturating_add(word(at + 32));
            // Nothing where they were not counted yet.
            bytes.pair_tx = bytes.pair_tx.saturating_add(word(at + 40));
            bytes.pair_rx = bytes.pair_rx.saturating_add(word(at + 48));
        }
        Some(StatsSnapshot {
            pid: half(std::mem::offset_of!(StatsRecord, pid)),
            state: half(std::mem::offset_of!(StatsRecord, state)),
            start_time: word(std::mem::offset_of!(StatsRecord, start_time)),
            command: String::from_utf8_lossy(&command[..end]).into_owned(),
            connections: word(std::mem::offset_of!(StatsRecord, connections)),
            upgraded: word(std::mem::offset_of!(StatsRecord, upgraded)),
            recalled: slots(std::mem::offset_of!(StatsRecord, recalled)),
            not_upgraded: slots(layout.not_upgraded()),
            bytes,
            spun_ticks,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reason::Reason;

    /// A record as a writer of that version leaves it.
    fn record(layout: Layout) -> Vec<u8> {
        let mut raw = vec![0; RECORD_SIZE];
        let mut set = |at: usize, n: u64| raw[at..at + 8].copy_from_slice(&n.to_ne_bytes());
        set(0, layout.magic);
        set(std::mem::offset_of!(StatsRecord, recalled) + 8 * Reason::RecalledTest as usize, 5);
        set(layout.not_upgraded() + 8 * Reason::PeerUnproven as usize, 6);
        set(layout.bytes(), 7);
        set(layout.bytes() + (BLOCKS - 1) * size_of::<ByteBlock>(), 8);
        raw
    }

    #[test]
    fn records_of_both_versions_say_the_same() {
        assert_eq!((ELDER.not_upgraded(), ELDER.bytes()), (632, 1152), "as they were written");
        for layout in [OURS, ELDER] {
            let raw = record(layout);
            assert!(StatsSnapshot::is_magic(raw[..8].try_into().unwrap()));
            let read = StatsSnapshot::decode(&raw).unwrap();
            assert_eq!((read.recalled.len(), read.not_upgraded.len()), (layout.slots, layout.slots));
            assert_eq!(read.recalled[Reason::RecalledTest as usize], 5);
            assert_eq!(read.not_upgraded[Reason::PeerUnproven as usize], 6);
            assert_eq!((read.bytes.ring_tx, read.recalled.iter().sum::<u64>()), (15, 5));
        }
        let mut later = record(OURS);
        later[7] = b'3';
        assert_eq!(StatsSnapshot::decode(&later), None);
        assert!(!StatsSnapshot::is_magic(*b"BYPSTAT3"));
    }
}
