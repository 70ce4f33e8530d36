//! What the two ends of a measurement are told, and what they answer: one JSON document per line.

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// What carries the frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Carrier {
    /// UDP: sendto and recvfrom
    UdpSendto,
    /// UDP on connected sockets: send and recv
    UdpConnected,
    /// UDP: sendmmsg and recvmmsg
    UdpMmsg,
    /// UDP cut and joined by the kernel: UDP_SEGMENT and UDP_GRO
    UdpGso,
    /// Raw Ethernet, one system call per frame
    RawPlain,
    /// Raw Ethernet through rings
    RawRing,
    /// Raw Ethernet over AF_XDP
    Xdp,
}

impl Carrier {
    /// All of them, UDP first.
    pub const ALL: [Carrier; 7] = [
        Carrier::UdpSendto,
        Carrier::UdpConnected,
        Carrier::UdpMmsg,
        Carrier::UdpGso,
        Carrier::RawPlain,
        Carrier::RawRing,
        Carrier::Xdp,
    ];

    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            Carrier::UdpSendto => "udp-sendto",
            Carrier::UdpConnected => "udp-connected",
            Carrier::UdpMmsg => "udp-mmsg",
            Carrier::UdpGso => "udp-gso",
            Carrier::RawPlain => "raw-plain",
            Carrier::RawRing => "raw-ring",
            Carrier::Xdp => "xdp",
        }
    }

    /// Whether it is UDP.
    pub fn is_udp(self) -> bool {
        matches!(self, Carrier::UdpSendto | Carrier::UdpConnected | Carrier::UdpMmsg | Carrier::UdpGso)
    }
}

/// Where frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Hardware address of the interface.
    pub mac: [u8; 6],
    /// Address for UDP.
    pub ip: IpAddr,
    /// UDP port of this run; 0 for raw frames.
    pub port: u16,
}

/// Made on purpose, to see that they are noticed; 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Flaws {
    /// One frame out of so many is counted as sent, and is not.
    pub lose: u64,
    /// One frame out of so many gets a wrong octet.
    pub spoil: u64,
}

/// What all orders of one run share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// What carries the frames.
    pub carrier: Carrier,
    /// Octets of payload: of a UDP datagram, or behind the Ethernet header.
    pub size: usize,
    /// Number of the run, in each of its frames.
    pub number: u32,
    /// Looks without a pause instead of sleeping.
    pub spin: bool,
    /// Looks at every octet of every frame; otherwise at its number only.
    pub verify: bool,
    /// A receive ring for a receiver that is kept from its processor now and then.
    #[serde(default)]
    pub deep: bool,
}

/// To an end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// Say where you are.
    Where,
    /// Receive, and count, until [`Order::Finish`].
    Receive(Run),
    /// Be there, but take nothing: what a sender meets that nobody listens to.
    Ignore(Run),
    /// Send as fast as it goes.
    Send {
        /// What.
        run: Run,
        /// Where to.
        to: Place,
        /// How long.
        seconds: f64,
        /// At most so many frames per second.
        pace: Option<f64>,
        /// See there.
        flaws: Flaws,
        /// Whether the other end answers a greeting.
        greet: bool,
    },
    /// Send each frame back until [`Order::Finish`].
    Echo(Run),
    /// Measure round trips.
    Trip {
        /// What.
        run: Run,
        /// Where to.
        to: Place,
        /// How many.
        count: u64,
    },
    /// Open and close a socket so many times.
    OpenClose {
        /// Of what kind.
        carrier: Carrier,
        /// How many times.
        count: u32,
    },
    /// End what [`Order::Receive`], [`Order::Ignore`] or [`Order::Echo`] began; so many frames were sent.
    Finish(u64),
}

/// From an end.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// It waits there; with what the reader of the figure should know.
    Ready {
        /// Where.
        place: Place,
        /// What was not obtained of what was asked.
        notes: Vec<String>,
    },
    /// [`Order::Send`] is done.
    Sent(Sent),
    /// [`Order::Receive`] is done.
    Received(Received),
    /// [`Order::Trip`] is done.
    Trips(Trips),
    /// [`Order::OpenClose`] is done: nanoseconds of each.
    Opened {
        /// Opening.
        open: Vec<u64>,
        /// Closing.
        close: Vec<u64>,
    },
    /// [`Order::Echo`] or [`Order::Ignore`] is done.
    Done,
    /// Not possible here, for this reason.
    Impossible(String),
    /// It went wrong.
    Error(String),
}

/// What a sender did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sent {
    /// Frames that the kernel took (and those lost on purpose).
    pub frames: u64,
    /// From the first to the last.
    pub elapsed_ns: u64,
    /// Processor time of the process in it.
    pub cpu_ns: u64,
    /// What was not obtained.
    pub notes: Vec<String>,
}

/// What a receiver saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Received {
    /// Frames that were as they should be.
    pub good: u64,
    /// Frames with a wrong octet or length, or that came a second time.
    pub corrupt: u64,
    /// Of the good ones, those that came behind a later one.
    pub disordered: u64,
    /// Frames of other runs or programs, not counted elsewhere.
    pub foreign: u64,
    /// Dropped by the kernel for want of room, as far as the socket tells.
    pub dropped: u64,
    /// Good frames between the first and the last look at the clock, and that time.
    pub timed: u64,
    /// See there.
    pub elapsed_ns: u64,
    /// Processor time of the process for all frames.
    pub cpu_ns: u64,
}

/// What round trips took.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trips {
    /// As (nanoseconds, count).
    pub samples: Vec<(u64, u64)>,
    /// Frames that did not come back.
    pub lost: u64,
    /// Frames that came back changed.
    pub corrupt: u64,
    /// What was not obtained.
    pub notes: Vec<String>,
}
