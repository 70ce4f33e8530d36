//! What socket is wanted.

use crate::boundary::{Outcome, guarded, slice, write};
use crate::mac::bypath_mac;
use crate::status::{Failure, bypath_error, bypath_status};
use crate::types::{
    BYPATH_FOREVER, BYPATH_TIMESTAMP_HARDWARE, BYPATH_TIMESTAMP_NONE, BYPATH_TIMESTAMP_SOFTWARE,
    BYPATH_TIMESTAMP_USUAL, bypath_vlan_tag,
};
use crate::xdp::{BYPATH_PLACE_BEST, BYPATH_TRANSFER_BEST};
use bypath_link::Timestamps;
use bypath_link::l2::{Builder, Clock, Fanout, Mode, Socket, Vlan};
use bypath_link::packet::{Receive, Send};
use std::time::Duration;

/// One system call per frame.
pub const BYPATH_MODE_PLAIN: u32 = 0;
/// One system call for many frames (recvmmsg, sendmmsg).
pub const BYPATH_MODE_MMSG: u32 = 1;
/// A ring shared with the kernel: no system call per frame, the least CPU. A frame that comes alone may be given over a
/// millisecond late.
pub const BYPATH_MODE_RING: u32 = 2;
/// Receiving only: a ring of slots in which each frame can be seen at once. For programs that spin.
pub const BYPATH_MODE_LATENCY_RING: u32 = 3;
/// AF_XDP, both ways: frames of the EtherTypes and the VLAN asked for pass by the kernel's path, and nobody else receives
/// them; all others stay on it. One socket has a device queue. It needs at least one EtherType. There are no timestamps,
/// fanout, send times, frames that this host sends, sockets that only send, and no `receive_queue`: asking for one of them
/// is `BYPATH_E_INVALID`.
pub const BYPATH_MODE_XDP: u32 = 4;

/// A waiting call sleeps.
pub const BYPATH_WAIT_SLEEP: u32 = 0;
/// A waiting call looks without a pause: the quickest, and a processor's whole time.
pub const BYPATH_WAIT_SPIN: u32 = 1;
/// No call waits: `BYPATH_E_WOULD_BLOCK`.
pub const BYPATH_WAIT_NEVER: u32 = 2;

/// Frames of the socket's own VLAN are received, or of all if it has none.
pub const BYPATH_VLAN_OWN: u32 = 0;
/// Tagged or not, of whatever VLAN.
pub const BYPATH_VLAN_ANY: u32 = 1;
/// Frames without a tag, or with a priority only.
pub const BYPATH_VLAN_NONE: u32 = 2;
/// Frames of VLAN `receive_vlan_id`.
pub const BYPATH_VLAN_ID: u32 = 3;

/// Flag: frames to any group are received.
pub const BYPATH_ALL_GROUPS: u32 = 0x1;
/// Flag: frames to other hosts are received if the device gives them to us, as loopback and veth do.
pub const BYPATH_FOREIGN: u32 = 0x2;
/// Flag: the device is to give us everything, and everything is received.
pub const BYPATH_PROMISCUOUS: u32 = 0x4;
/// Flag: frames that this host sends are received, too.
pub const BYPATH_OUTGOING: u32 = 0x8;
/// Flag: sent frames do not pass the queueing discipline.
pub const BYPATH_QDISC_BYPASS: u32 = 0x10;
/// Flag: nothing is received.
pub const BYPATH_SEND_ONLY: u32 = 0x20;
/// Flag: the interface may be down; frames come when it is up.
pub const BYPATH_MAY_BE_DOWN: u32 = 0x40;
/// Flag: short frames are not padded.
pub const BYPATH_NO_PADDING: u32 = 0x80;
/// Flag: a send ring on loopback, too.
pub const BYPATH_RING_ON_LOOPBACK: u32 = 0x100;
/// Every flag there is.
/// Flag, with `BYPATH_MODE_XDP`: the kernel is woken for every batch, and does not tell when it must be.
pub const BYPATH_ALWAYS_WAKE: u32 = 0x200;
const ALL_FLAGS: u32 = 0x3ff;

/// No sharing among sockets.
pub const BYPATH_FANOUT_OFF: u32 = 0;
/// Frames of one flow to one socket.
pub const BYPATH_FANOUT_HASH: u32 = 1;
/// In turns.
pub const BYPATH_FANOUT_ROUND_ROBIN: u32 = 2;
/// By the processor that received the frame.
pub const BYPATH_FANOUT_CPU: u32 = 3;
/// To the first socket that has room.
pub const BYPATH_FANOUT_ROLLOVER: u32 = 4;
/// At random.
pub const BYPATH_FANOUT_RANDOM: u32 = 5;
/// By the device queue that the frame came through.
pub const BYPATH_FANOUT_QUEUE: u32 = 6;

/// Frames are sent at once.
pub const BYPATH_CLOCK_NONE: u32 = 0;
/// Frames may carry a time of CLOCK_MONOTONIC at which they are sent, for the queueing discipline `fq`.
pub const BYPATH_CLOCK_MONOTONIC: u32 = 1;
/// The same with CLOCK_TAI, for `etf` and `taprio`.
pub const BYPATH_CLOCK_TAI: u32 = 2;

/// What socket is wanted. Fill it by `bypath_l2_options_init`, then change what should differ. It may be thrown away when
/// `bypath_l2_open` has returned.
#[repr(C)]
pub struct bypath_l2_options {
    /// Octets of this structure: set by `bypath_l2_options_init`, by which the library knows what it was given.
    pub size: usize,
    /// More EtherTypes of received frames, beside `ethertype`.
    pub more_ethertypes: *const u16,
    /// How many.
    pub more_ethertype_count: usize,
    /// Groups whose frames are received.
    pub groups: *const bypath_mac,
    /// How many.
    pub group_count: usize,
    /// The longest wait in ns; `BYPATH_FOREVER` unless changed.
    pub timeout_ns: u64,
    /// Octets of the receive queue; 0: the usual 4 MiB.
    pub receive_queue: usize,
    /// Octets of the receive ring, where the mode has one; 0: the usual 8 MiB. With `BYPATH_MODE_XDP` of the buffers to
    /// receive into; 0: as many as 2048 frames of an ordinary MTU take.
    pub receive_ring: usize,
    /// Octets of a block of the receive ring of `BYPATH_MODE_RING`, 32 KiB to 4 MiB; 0: the usual 128 KiB. A sleeping reader is
    /// woken for each.
    pub block: usize,
    /// Frames of the send ring, where the mode has one; 0: the usual 256, 512 with `BYPATH_MODE_XDP`.
    pub send_ring: usize,
    /// Frames of one system call in `BYPATH_MODE_MMSG`; 0: the usual 64.
    pub batch: usize,
    /// `BYPATH_ALL_GROUPS` and the other flags, joined by `|`.
    pub flags: u32,
    /// How calls wait: `BYPATH_WAIT_...`
    pub wait: u32,
    /// The way in: `BYPATH_MODE_...`
    pub receive_mode: u32,
    /// The way out: `BYPATH_MODE_...` without `BYPATH_MODE_LATENCY_RING`; `BYPATH_MODE_XDP` is for both ways together.
    pub send_mode: u32,
    /// Who takes the time of received frames: `BYPATH_TIMESTAMP_...`; `BYPATH_TIMESTAMP_USUAL` unless changed.
    pub timestamps: u32,
    /// Which VLANs' frames are received: `BYPATH_VLAN_...`
    pub receive_vlan: u32,
    /// How the sockets of a fanout group share frames: `BYPATH_FANOUT_...`
    pub fanout: u32,
    /// The clock of `at_ns` of sent frames: `BYPATH_CLOCK_...`
    pub send_clock: u32,
    /// The device queue, from 0, with `BYPATH_MODE_XDP`. Other queues stay with the kernel.
    pub queue: u32,
    /// Who copies frames, with `BYPATH_MODE_XDP`: `BYPATH_TRANSFER_...`
    pub transfer: u32,
    /// Where frames are looked at, with `BYPATH_MODE_XDP`: `BYPATH_PLACE_...`
    pub place: u32,
    /// With `BYPATH_MODE_XDP`: receiving calls work in the device's queue themselves for so many microseconds at most; 0:
    /// they do not.
    pub busy_poll_us: u32,
    /// Frames of one such poll, to 65535; 0: the usual 64.
    pub busy_poll_budget: u32,
    /// EtherType of sent and of received frames, such as `BYPATH_ETHERTYPE_HYBRID`. 0, as it is unless changed, and no
    /// other ones: frames of every EtherType are received, and frames are sent by `bypath_l2_send_with` only.
    pub ethertype: u16,
    /// The fanout group, if there is one.
    pub fanout_group: u16,
    /// The VLAN, with `BYPATH_VLAN_ID`.
    pub receive_vlan_id: u16,
    /// The tag of sent frames, such as `bypath_vlan(10, 7)`; frames of its VLAN are received, of whatever priority. None
    /// unless changed.
    pub tag: bypath_vlan_tag,
}

impl bypath_l2_options {
    pub const USUAL: bypath_l2_options = bypath_l2_options {
        size: size_of::<bypath_l2_options>(),
        more_ethertypes: std::ptr::null(),
        more_ethertype_count: 0,
        groups: std::ptr::null(),
        group_count: 0,
        timeout_ns: BYPATH_FOREVER,
        receive_queue: 0,
        receive_ring: 0,
        block: 0,
        send_ring: 0,
        batch: 0,
        flags: 0,
        wait: BYPATH_WAIT_SLEEP,
        receive_mode: BYPATH_MODE_PLAIN,
        send_mode: BYPATH_MODE_PLAIN,
        timestamps: BYPATH_TIMESTAMP_USUAL,
        receive_vlan: BYPATH_VLAN_OWN,
        fanout: BYPATH_FANOUT_OFF,
        send_clock: BYPATH_CLOCK_NONE,
        queue: 0,
        transfer: BYPATH_TRANSFER_BEST,
        place: BYPATH_PLACE_BEST,
        busy_poll_us: 0,
        busy_poll_budget: 0,
        ethertype: 0,
        fanout_group: 0,
        receive_vlan_id: 0,
        tag: bypath_vlan_tag::none(),
    };

    /// The same for the library.
    pub fn builder(&self, interface: &str) -> Outcome<Builder> {
        if self.size != size_of::<bypath_l2_options>() {
            return Err(Failure::invalid(format!(
                "these options have a size of {}, this library's have {}: fill them by bypath_l2_options_init, and \
                 compile against the header of the library that runs",
                self.size,
                size_of::<bypath_l2_options>()
            )));
        }
        if self.flags & !ALL_FLAGS != 0 {
            return Err(unknown("flags", self.flags & !ALL_FLAGS));
        }
        let mut builder = Socket::builder(interface);
        let more = slice(self.more_ethertypes, self.more_ethertype_count, "more_ethertypes")?;
        if self.ethertype != 0 {
            builder = builder.ethertype(self.ethertype);
        } else if !more.is_empty() {
            return Err(Failure::invalid("`more_ethertypes` without `ethertype`: the first one goes there"));
        }
        for &ethertype in more {
            builder = builder.ethertype(ethertype);
        }
        for &group in slice(self.groups, self.group_count, "groups")? {
            builder = builder.group(group.into());
        }
        if let Some(tag) = self.tag.checked()? {
            builder = builder.tag(tag);
        }
        builder = match self.receive_vlan {
            BYPATH_VLAN_OWN => builder,
            BYPATH_VLAN_ANY => builder.receive_vlan(Vlan::Any),
            BYPATH_VLAN_NONE => builder.receive_vlan(Vlan::None),
            BYPATH_VLAN_ID if self.receive_vlan_id <= 4094 => {
                builder.receive_vlan(Vlan::Id(self.receive_vlan_id))
            }
            BYPATH_VLAN_ID => return Err(unknown("receive_vlan_id", self.receive_vlan_id.into())),
            other => return Err(unknown("receive_vlan", other)),
        };
        builder = crate::xdp::asked(self, builder.mode(self.mode()?))?;
        builder = match self.timestamps {
            BYPATH_TIMESTAMP_USUAL => builder,
            BYPATH_TIMESTAMP_NONE => builder.timestamps(Timestamps::None),
            BYPATH_TIMESTAMP_SOFTWARE => builder.timestamps(Timestamps::Software),
            BYPATH_TIMESTAMP_HARDWARE => builder.timestamps(Timestamps::Hardware),
            other => return Err(unknown("timestamps", other)),
        };
        builder = match self.wait {
            BYPATH_WAIT_SLEEP => builder,
            BYPATH_WAIT_SPIN => builder.spin(),
            BYPATH_WAIT_NEVER => builder.nonblocking(),
            other => return Err(unknown("wait", other)),
        };
        if let Some(longest) = timeout(self.timeout_ns) {
            builder = builder.timeout(longest);
        }
        let fanout = match self.fanout {
            BYPATH_FANOUT_OFF => None,
            BYPATH_FANOUT_HASH => Some(Fanout::Hash),
            BYPATH_FANOUT_ROUND_ROBIN => Some(Fanout::RoundRobin),
            BYPATH_FANOUT_CPU => Some(Fanout::Cpu),
            BYPATH_FANOUT_ROLLOVER => Some(Fanout::Rollover),
            BYPATH_FANOUT_RANDOM => Some(Fanout::Random),
            BYPATH_FANOUT_QUEUE => Some(Fanout::Queue),
            other => return Err(unknown("fanout", other)),
        };
        if let Some(how) = fanout {
            builder = builder.fanout(self.fanout_group, how);
        }
        builder = match self.send_clock {
            BYPATH_CLOCK_NONE => builder,
            BYPATH_CLOCK_MONOTONIC => builder.send_time(Clock::Monotonic),
            BYPATH_CLOCK_TAI => builder.send_time(Clock::Tai),
            other => return Err(unknown("send_clock", other)),
        };
        Ok(self.sizes(self.flagged(builder)))
    }

    fn mode(&self) -> Outcome<Mode> {
        let receive = match self.receive_mode {
            BYPATH_MODE_PLAIN => Receive::Plain,
            BYPATH_MODE_MMSG => Receive::Mmsg,
            BYPATH_MODE_RING => Receive::Ring,
            BYPATH_MODE_LATENCY_RING => Receive::LatencyRing,
            BYPATH_MODE_XDP => Receive::Xdp,
            other => return Err(unknown("receive_mode", other)),
        };
        let send = match self.send_mode {
            BYPATH_MODE_PLAIN => Send::Plain,
            BYPATH_MODE_MMSG => Send::Mmsg,
            BYPATH_MODE_RING => Send::Ring,
            BYPATH_MODE_XDP => Send::Xdp,
            other => return Err(unknown("send_mode", other)),
        };
        Ok(Mode { receive, send })
    }

    fn flagged(&self, mut builder: Builder) -> Builder {
        type Change = fn(Builder) -> Builder;
        let change: [(u32, Change); 9] = [
            (BYPATH_ALL_GROUPS, Builder::all_groups),
            (BYPATH_FOREIGN, Builder::foreign),
            (BYPATH_PROMISCUOUS, Builder::promiscuous),
            (BYPATH_OUTGOING, Builder::outgoing),
            (BYPATH_QDISC_BYPASS, Builder::qdisc_bypass),
            (BYPATH_SEND_ONLY, Builder::send_only),
            (BYPATH_MAY_BE_DOWN, Builder::may_be_down),
            (BYPATH_NO_PADDING, |b| b.padding(false)),
            (BYPATH_RING_ON_LOOPBACK, Builder::ring_on_loopback),
        ];
        for (flag, with) in change {
            if self.flags & flag != 0 {
                builder = with(builder);
            }
        }
        builder
    }

    fn sizes(&self, mut builder: Builder) -> Builder {
        type Change = fn(Builder, usize) -> Builder;
        let change: [(usize, Change); 5] = [
            (self.receive_queue, Builder::receive_queue),
            (self.receive_ring, Builder::receive_ring),
            (self.block, Builder::block),
            (self.send_ring, Builder::send_ring),
            (self.batch, Builder::batch),
        ];
        for (size, with) in change {
            if size != 0 {
                builder = with(builder, size);
            }
        }
        builder
    }
}

/// A value that is none of the constants there are.
pub fn unknown(field: &str, value: u32) -> Failure {
    Failure::invalid(format!("`{field}` cannot be {value:#x}: bypath.h lists its values"))
}

/// A time-out as the library has it.
pub fn timeout(ns: u64) -> Option<Duration> {
    (ns != BYPATH_FOREVER).then(|| Duration::from_nanos(ns))
}

/// Fills options with the usual values.
///
/// Fails with `BYPATH_E_INVALID` if `options` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_options_init(
    options: *mut bypath_l2_options,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(options, "options", bypath_l2_options::USUAL))
}
