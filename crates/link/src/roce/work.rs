//! What a queue pair is asked to do, and what it tells.

use super::memory::{Local, Remote};
use bypath_wire::roce::{Nak, Qpn};
use std::net::IpAddr;

/// Octets of payload in a packet at most: the path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mtu(u32);

impl Mtu {
    /// The largest one.
    pub const LARGEST: Mtu = Mtu(4096);

    /// One of 256, 512, 1024, 2048, 4096; others there are none.
    pub const fn new(octets: u32) -> Option<Mtu> {
        match octets {
            256 | 512 | 1024 | 2048 | 4096 => Some(Mtu(octets)),
            _ => None,
        }
    }

    /// The largest one whose packets, with headers of IPv6 and RoCE, fit into IP packets of `octets`.
    pub fn within(octets: usize) -> Option<Mtu> {
        // IPv6 40, UDP 8, BTH 12, the longest extended headers beside a payload 20, ICRC 4.
        const HEADERS: usize = 84;
        [4096, 2048, 1024, 512, 256].into_iter().find(|m| *m as usize + HEADERS <= octets).map(Mtu)
    }

    /// Octets.
    pub const fn octets(self) -> u32 {
        self.0
    }

    /// Packets that a message of `len` octets takes: at least one.
    pub(super) const fn packets(self, len: u32) -> u32 {
        match len.div_ceil(self.0) {
            0 => 1,
            packets => packets,
        }
    }
}

/// How a connected queue pair behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Path MTU: the same at both ends.
    pub mtu: Mtu,
    /// Packets that may be on their way without acknowledgement, 1 to 2^20.
    pub window: u32,
    /// Every so many packets an acknowledgement is asked for, from 1.
    pub ack_every: u32,
    /// After so long without progress it sends again, in ns; then after twice, 4, 8 and 16 times as long, and so on.
    pub timeout: u64,
    /// Times that it does so without any progress before it gives up.
    pub retries: u32,
    /// Times that it comes back after "not ready" without any progress; from 7 on, any number (IBTA 9.7.5.2.8).
    pub rnr_retries: u32,
    /// What this end asks for when it is not ready: a code of [`bypath_wire::roce::extended::rnr_ns`].
    pub rnr_timer: u8,
    /// READs and atomic operations that may be on their way, 1 to 128: the same at both ends.
    pub reads: usize,
}

impl Config {
    /// What suits a fast network.
    pub const DEFAULT: Config = Config {
        mtu: Mtu(1024),
        window: 256,
        ack_every: 16,
        timeout: 50_000_000,
        retries: 7,
        rnr_retries: 7,
        // 0.64 ms.
        rnr_timer: 12,
        reads: 16,
    };
}

impl Default for Config {
    fn default() -> Config {
        Config::DEFAULT
    }
}

/// What a SEND carries beside its octets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Beside {
    /// Nothing.
    #[default]
    Nothing,
    /// Immediate data.
    Immediate(u32),
    /// A key of the other end, whose region nobody else can use from then on.
    Invalidate(u32),
}

/// What a requester does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Sends a message into the next receive buffer of the other end.
    Send {
        /// The message.
        from: Local,
        /// What goes with it.
        beside: Beside,
    },
    /// Writes into the other end's memory.
    Write {
        /// What is written.
        from: Local,
        /// Where.
        to: Remote,
        /// With immediate data it takes a receive buffer of the other end, and is told to it.
        immediate: Option<u32>,
    },
    /// Reads the other end's memory.
    Read {
        /// What is read.
        from: Remote,
        /// Where it goes, and how much.
        to: Local,
    },
    /// Swaps eight octets of the other end's memory if they are what they are expected to be.
    CompareSwap {
        /// Where: a multiple of eight.
        at: Remote,
        /// What they are expected to be.
        compare: u64,
        /// What they become.
        swap: u64,
    },
    /// Adds to eight octets of the other end's memory.
    FetchAdd {
        /// Where: a multiple of eight.
        at: Remote,
        /// What is added, modulo 2^64.
        add: u64,
    },
}

impl Request {
    /// Octets of this end's memory that it needs.
    pub(super) const fn local(&self) -> Option<Local> {
        match *self {
            Request::Send { from, .. } | Request::Write { from, .. } => Some(from),
            Request::Read { to, .. } => Some(to),
            Request::CompareSwap { .. } | Request::FetchAdd { .. } => None,
        }
    }

    /// Whether an answer with contents is awaited, not an acknowledgement only.
    pub(super) const fn is_answered(&self) -> bool {
        matches!(self, Request::Read { .. } | Request::CompareSwap { .. } | Request::FetchAdd { .. })
    }
}

/// Why a request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotPosted {
    /// There is no such queue pair.
    #[error("there is no such queue pair")]
    Unknown,
    /// The service does not have it.
    #[error("the queue pair's service does not have this operation")]
    Service,
    /// The queue pair is in error.
    #[error("the queue pair is in error; make a new one")]
    Broken,
    /// No such local memory.
    #[error("the local memory is not registered, or not as far as that")]
    Memory,
    /// Too long.
    #[error("a message of {len} octets is too long: {most} are the most")]
    TooLong {
        /// Its octets.
        len: u32,
        /// The most.
        most: u32,
    },
    /// The queue is full.
    #[error("the queue is full; wait until something is done")]
    Full,
}

/// What came of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Done {
    /// It is done. UC, UD: it is sent.
    Done,
    /// It is done, and this was there before.
    Was(u64),
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The other end refused it.
    #[error("the other end refused it: {0}")]
    Refused(Nak),
    /// No acknowledgement came, however often it was sent.
    #[error("no answer came; is the other end there, and does anything on the way drop UDP port 4791?")]
    Silence,
    /// The other end had no receive buffer, however often it was asked.
    #[error("the other end never had a receive buffer")]
    NotReady,
    /// An answer came that cannot be.
    #[error("the other end answered with what cannot be an answer")]
    BadAnswer,
    /// This end's memory is gone.
    #[error("the local memory was deregistered meanwhile")]
    Memory,
    /// One before it failed.
    #[error("one before it failed")]
    Flushed,
}

/// A buffer for a message that comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receive {
    /// The caller's number.
    pub id: u64,
    /// Where it goes, and how long it may be.
    pub to: Local,
}

/// A message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The buffer's number.
    pub id: u64,
    /// Its octets. Of a WRITE: those written, none of them into the buffer.
    pub len: u32,
    /// Whether it was a WRITE with immediate data.
    pub written: bool,
    /// Immediate data.
    pub immediate: Option<u32>,
    /// UD: who sent it.
    pub source: Option<Source>,
}

/// Who sent a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Source {
    /// From where.
    pub address: IpAddr,
    /// From which UDP port.
    pub port: u16,
    /// From which queue pair.
    pub pair: Qpn,
}

/// What is to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// Of which queue pair.
    pub pair: Qpn,
    /// What.
    pub what: What,
}

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// A request is over.
    Over {
        /// The caller's number.
        id: u64,
        /// How.
        result: Result<Done, Failure>,
    },
    /// A message came.
    Received(Received),
    /// The responder refused a request and takes no more.
    Broken(Nak),
}
