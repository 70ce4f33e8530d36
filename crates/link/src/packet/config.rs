//! What is asked of a packet link, and what was obtained.

use crate::{MacAddr, Timestamps};

pub use bypath_sys::packet::Fanout;
pub use bypath_sys::packet::filter::Vlan;

/// How frames move between the kernel and us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mode {
    /// The way in.
    pub receive: Receive,
    /// The way out.
    pub send: Send,
}

/// The way in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Receive {
    /// One system call per frame.
    Plain,
    /// One system call for many frames (recvmmsg).
    Mmsg,
    /// A ring of blocks (TPACKET_V3): no system call while there is work, the least CPU. A frame that comes alone waits for
    /// its block to be given over: a millisecond, or a tick of the kernel.
    Ring,
    /// A ring of slots (TPACKET_V2): each frame can be seen at once. For programs that spin.
    LatencyRing,
    /// AF_XDP, together with [`Send::Xdp`]: no packet link's ([`Mode::XDP`]).
    Xdp,
}

/// The way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Send {
    /// One system call per frame.
    Plain,
    /// One system call for many frames (sendmmsg).
    Mmsg,
    /// A ring: one system call for many frames, and the kernel sends from our memory. Not on loopback unless
    /// [`Config::ring_on_loopback`] is set.
    Ring,
    /// AF_XDP, together with [`Receive::Xdp`]: no packet link's ([`Mode::XDP`]).
    Xdp,
}

impl Mode {
    /// One system call per frame, both ways.
    pub const PLAIN: Mode = Mode { receive: Receive::Plain, send: Send::Plain };
    /// recvmmsg and sendmmsg.
    pub const MMSG: Mode = Mode { receive: Receive::Mmsg, send: Send::Mmsg };
    /// Rings both ways.
    pub const RING: Mode = Mode { receive: Receive::Ring, send: Send::Ring };
    /// The quickest answer: a ring of slots in, one system call per frame out.
    pub const LATENCY: Mode = Mode { receive: Receive::LatencyRing, send: Send::Plain };
    /// AF_XDP both ways: chosen frames pass by the kernel, which does not see them. What [`crate::l2`] opens in this mode is
    /// a [`crate::xdp::XdpLink`]; a packet link refuses it.
    pub const XDP: Mode = Mode { receive: Receive::Xdp, send: Send::Xdp };

    /// Whether one of its ways is AF_XDP's.
    pub const fn any_xdp(self) -> bool {
        matches!(self.receive, Receive::Xdp) || matches!(self.send, Send::Xdp)
    }
}

/// Which groups' frames are received.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Groups {
    /// All of them.
    All,
    /// Only these.
    Only(Vec<MacAddr>),
}

/// The clock of the times at which frames are to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Clock {
    /// CLOCK_MONOTONIC, for the queueing discipline `fq`.
    Monotonic = 1,
    /// CLOCK_TAI, for `etf` and `taprio`.
    Tai = 11,
}

/// What is asked of a packet link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Name of the interface.
    pub interface: String,
    /// How frames move.
    pub mode: Mode,
    /// EtherTypes that are received, behind at most two tags, chosen in the kernel; empty: all.
    pub ethertypes: Vec<u16>,
    /// Which VLANs' frames are received.
    pub vlan: Vlan,
    /// Which groups' frames are received.
    pub groups: Groups,
    /// Frames to other hosts are received, if the device gives them to us: loopback and veth do, others when promiscuous.
    pub foreign: bool,
    /// The device is to give us everything; sets `foreign`, too.
    pub promiscuous: bool,
    /// Frames that this host sends are received, too. Their tag may be in the bytes.
    pub outgoing: bool,
    /// Nothing is received at all.
    pub send_only: bool,
    /// Who is to take the time of received frames.
    pub timestamps: Timestamps,
    /// Sent frames do not pass the queueing discipline. Captures on this host do not see them either.
    pub qdisc_bypass: bool,
    /// Checksums and segmentation are left to the kernel and the device (virtio-net headers).
    pub offload: bool,
    /// Share the interface's frames with other links of this group.
    pub fanout: Option<(u16, Fanout)>,
    /// Frames carry the time at which they are to be sent.
    pub send_time: Option<Clock>,
    /// Octets of the receive queue, by the kernel's count.
    pub receive_queue: usize,
    /// Octets of the send queue, by the kernel's count; 0: the system's default.
    pub send_queue: usize,
    /// Octets of the receive ring.
    pub receive_ring: usize,
    /// Octets of a block of a ring of blocks: 128 KiB unless asked, 32 KiB to 4 MiB, a power of two. A sleeping
    /// reader is woken for each: long ones cost less. A block is used up when it is given over by time, however little is in
    /// it: where frames come slowly, the ring is full after as many [`block_ms`](Config::block_ms) without a reader as it
    /// has blocks, four at least.
    pub block: usize,
    /// Frames of the send ring.
    pub send_ring: usize,
    /// Milliseconds after which the ring of blocks gives over a block that is not full.
    pub block_ms: u32,
    /// Frames of one call, with [`Receive::Mmsg`] and [`Send::Mmsg`]. Each that is received has addresses for the longest
    /// frame there can be, 64 KiB, and memory as far as frames were that long.
    pub batch: usize,
    /// A send ring on loopback, too. There the kernel takes a frame for sent before a receiver that has no ring of its own
    /// has copied it: such receivers may see frames overwritten. Set it where every receiver uses a receive ring.
    pub ring_on_loopback: bool,
    /// Opening an interface that is down is no error.
    pub may_be_down: bool,
}

impl Config {
    /// All frames to us, to everybody and to any group on this interface, one system call each.
    pub fn new(interface: &str) -> Config {
        Config {
            interface: interface.to_owned(),
            mode: Mode::PLAIN,
            ethertypes: Vec::new(),
            vlan: Vlan::Any,
            groups: Groups::All,
            foreign: false,
            promiscuous: false,
            outgoing: false,
            send_only: false,
            timestamps: Timestamps::None,
            qdisc_bypass: false,
            offload: false,
            fanout: None,
            send_time: None,
            receive_queue: 4 << 20,
            send_queue: 0,
            receive_ring: 8 << 20,
            block: 128 << 10,
            send_ring: 256,
            block_ms: 1,
            batch: 64,
            ring_on_loopback: false,
            may_be_down: false,
        }
    }
}

/// What was obtained of what was asked: of a packet link, and of the AF_XDP link that [`crate::l2`] opens in its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obtained {
    /// How frames were to move.
    pub asked: Mode,
    /// How they move.
    pub mode: Mode,
    /// Who was to take the time of received frames.
    pub timestamps_asked: Timestamps,
    /// Who takes it.
    pub timestamps: Timestamps,
    /// Whether sent frames bypass the queueing discipline.
    pub qdisc_bypass: bool,
    /// Whether checksums and segmentation are left to the kernel and the device.
    pub offload: bool,
    /// Whether the queue sends frames at their time.
    pub send_time: bool,
    /// Octets of the receive queue, by the kernel's count.
    pub receive_queue: usize,
    /// Octets of the receive ring, with AF_XDP of the buffers to receive into; 0: there is none.
    pub receive_ring: usize,
    /// Frames of the send ring; 0: there is none.
    pub send_ring: usize,
    /// What is AF_XDP's alone, asked and obtained; `None` where frames do not move by AF_XDP.
    pub xdp: Option<crate::xdp::Obtained>,
    /// Why something asked was not obtained, one sentence each.
    pub notes: Vec<String>,
}
