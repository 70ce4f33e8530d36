//! A process's counters: one fixed record, mapped either from a file (`--stats FILE`) or from the view, so
//! that it survives `kill -9` and `_exit`.
//!
//! A statistics file is a plain sequence of records of [`RECORD_SIZE`] bytes, one per process image; writers
//! append under `flock`. Native byte order; all counters are 64-bit.

use crate::reason::REASON_SLOTS;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// Size of one record and alignment of records in a file, in bytes.
pub const RECORD_SIZE: usize = 8192;
/// `BYPSTAT1`, little endian.
pub const STATS_MAGIC: u64 = u64::from_le_bytes(*b"BYPSTAT1");
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
    /// Decodes one record of [`RECORD_SIZE`] bytes; `None` if it is not a complete record.
    pub fn decode(raw: &[u8]) -> Option<StatsSnapshot> {
        if raw.len() < RECORD_SIZE {
            return None;
        }
        let word = |at: usize| u64::from_ne_bytes(raw[at..at + 8].try_into().expect("8 bytes"));
        let half = |at: usize| u32::from_ne_bytes(raw[at..at + 4].try_into().expect("4 bytes"));
        if word(std::mem::offset_of!(StatsRecord, magic)) != STATS_MAGIC {
            return None;
        }
        let command = &raw[std::mem::offset_of!(StatsRecord, command)..][..16];
        let end = command.iter().position(|&b| b == 0).unwrap_or(16);
        let slots = |at: usize| (0..REASON_SLOTS).map(|i| word(at + 8 * i)).collect::<Vec<_>>();
        let (mut bytes, mut spun_ticks) = (Bytes::default(), 0u64);
        for i in 0..BLOCKS {
            let at = std::mem::offset_of!(StatsRecord, bytes) + i * size_of::<ByteBlock>();
            bytes.ring_tx = bytes.ring_tx.saturating_add(word(at));
            bytes.ring_rx = bytes.ring_rx.saturating_add(word(at + 8));
            bytes.kernel_tx = bytes.kernel_tx.saturating_add(word(at + 16));
            bytes.kernel_rx = bytes.kernel_rx.saturating_add(word(at + 24));
            spun_ticks = spun_ticks.saturating_add(word(at + 32));
        }
        Some(StatsSnapshot {
            pid: half(std::mem::offset_of!(StatsRecord, pid)),
            state: half(std::mem::offset_of!(StatsRecord, state)),
            start_time: word(std::mem::offset_of!(StatsRecord, start_time)),
            command: String::from_utf8_lossy(&command[..end]).into_owned(),
            connections: word(std::mem::offset_of!(StatsRecord, connections)),
            upgraded: word(std::mem::offset_of!(StatsRecord, upgraded)),
            recalled: slots(std::mem::offset_of!(StatsRecord, recalled)),
            not_upgraded: slots(std::mem::offset_of!(StatsRecord, not_upgraded)),
            bytes,
            spun_ticks,
        })
    }
}
