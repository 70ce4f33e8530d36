//! What became of what was asked.

use crate::boundary::{guarded, slice_mut, writable, write};
use crate::options::{
    BYPATH_MODE_LATENCY_RING, BYPATH_MODE_MMSG, BYPATH_MODE_PLAIN, BYPATH_MODE_RING, BYPATH_MODE_XDP,
};
use crate::socket::{bypath_l2_socket, with};
use crate::status::{bypath_error, bypath_status, put_text};
use crate::types::{BYPATH_TIMESTAMP_HARDWARE, BYPATH_TIMESTAMP_NONE, BYPATH_TIMESTAMP_SOFTWARE};
use crate::xdp::{
    BYPATH_PLACE_BEST, BYPATH_PLACE_DRIVER, BYPATH_PLACE_GENERIC, BYPATH_TRANSFER_BEST, BYPATH_TRANSFER_COPY,
    BYPATH_TRANSFER_ZERO_COPY,
};
use bypath_link::Timestamps;
use bypath_link::l2::{Obtained, Place, Transfer};
use bypath_link::packet::{Receive, Send};
use std::ffi::c_char;

/// What was asked, and what was obtained of it. What is for `BYPATH_MODE_XDP` is 0 in other modes.
#[repr(C)]
pub struct bypath_l2_obtained {
    /// Octets of the receive queue, by the kernel's count.
    pub receive_queue: usize,
    /// Octets of the receive ring, with `BYPATH_MODE_XDP` of the buffers to receive into; 0: there is none.
    pub receive_ring: usize,
    /// Frames of the send ring; 0: there is none.
    pub send_ring: usize,
    /// With `BYPATH_MODE_XDP`: octets of the longest frame that can be received.
    pub longest_received: usize,
    /// With `BYPATH_MODE_XDP`: octets of all buffers.
    pub memory: usize,
    /// The way in that was asked for: `BYPATH_MODE_...`
    pub receive_mode_asked: u32,
    /// The way in.
    pub receive_mode: u32,
    /// The way out that was asked for: `BYPATH_MODE_...`
    pub send_mode_asked: u32,
    /// The way out.
    pub send_mode: u32,
    /// Who was to take the time of received frames: `BYPATH_TIMESTAMP_...`
    pub timestamps_asked: u32,
    /// Who takes it: `BYPATH_TIMESTAMP_...`
    pub timestamps: u32,
    /// With `BYPATH_MODE_XDP`: the device queue.
    pub queue: u32,
    /// With `BYPATH_MODE_XDP`: who was to copy: `BYPATH_TRANSFER_...`
    pub transfer_asked: u32,
    /// Who copies: `BYPATH_TRANSFER_COPY` or `BYPATH_TRANSFER_ZERO_COPY`.
    pub transfer: u32,
    /// With `BYPATH_MODE_XDP`: where frames were to be looked at: `BYPATH_PLACE_...`
    pub place_asked: u32,
    /// Where they are looked at: `BYPATH_PLACE_DRIVER` or `BYPATH_PLACE_GENERIC`.
    pub place: u32,
    /// 1 if sent frames bypass the queueing discipline.
    pub qdisc_bypass: u8,
    /// 1 if the queue sends frames at their time.
    pub send_time: u8,
    /// With `BYPATH_MODE_XDP`: 1 if the kernel was to tell when it must be woken.
    pub need_wakeup_asked: u8,
    /// 1 if it tells.
    pub need_wakeup: u8,
    /// With `BYPATH_MODE_XDP`: 1 if the device was to be polled.
    pub busy_poll_asked: u8,
    /// 1 if it is polled.
    pub busy_poll: u8,
    /// With `BYPATH_MODE_XDP`: 1 if the MTU asks for frames that lie in several buffers.
    pub multi_buffer_asked: u8,
    /// 1 if frames may lie in several buffers.
    pub multi_buffer: u8,
}

const fn receive_mode(mode: Receive) -> u32 {
    match mode {
        Receive::Plain => BYPATH_MODE_PLAIN,
        Receive::Mmsg => BYPATH_MODE_MMSG,
        Receive::Ring => BYPATH_MODE_RING,
        Receive::LatencyRing => BYPATH_MODE_LATENCY_RING,
        Receive::Xdp => BYPATH_MODE_XDP,
    }
}

const fn send_mode(mode: Send) -> u32 {
    match mode {
        Send::Plain => BYPATH_MODE_PLAIN,
        Send::Mmsg => BYPATH_MODE_MMSG,
        Send::Ring => BYPATH_MODE_RING,
        Send::Xdp => BYPATH_MODE_XDP,
    }
}

const fn timestamps(who: Timestamps) -> u32 {
    match who {
        Timestamps::None => BYPATH_TIMESTAMP_NONE,
        Timestamps::Software => BYPATH_TIMESTAMP_SOFTWARE,
        Timestamps::Hardware => BYPATH_TIMESTAMP_HARDWARE,
    }
}

const fn transfer(who: Option<Transfer>) -> u32 {
    match who {
        None => BYPATH_TRANSFER_BEST,
        Some(Transfer::Copy) => BYPATH_TRANSFER_COPY,
        Some(Transfer::ZeroCopy) => BYPATH_TRANSFER_ZERO_COPY,
    }
}

const fn place(place: Option<Place>) -> u32 {
    match place {
        None => BYPATH_PLACE_BEST,
        Some(Place::Driver) => BYPATH_PLACE_DRIVER,
        Some(Place::Generic) => BYPATH_PLACE_GENERIC,
    }
}

impl From<&Obtained> for bypath_l2_obtained {
    fn from(o: &Obtained) -> bypath_l2_obtained {
        let xdp = o.xdp.as_ref();
        let flag = |f: fn(&bypath_link::xdp::Obtained) -> bool| xdp.is_some_and(f).into();
        bypath_l2_obtained {
            receive_queue: o.receive_queue,
            receive_ring: o.receive_ring,
            send_ring: o.send_ring,
            longest_received: xdp.map_or(0, |x| x.longest_received),
            memory: xdp.map_or(0, |x| x.memory),
            receive_mode_asked: receive_mode(o.asked.receive),
            receive_mode: receive_mode(o.mode.receive),
            send_mode_asked: send_mode(o.asked.send),
            send_mode: send_mode(o.mode.send),
            timestamps_asked: timestamps(o.timestamps_asked),
            timestamps: timestamps(o.timestamps),
            queue: xdp.map_or(0, |x| x.queue),
            transfer_asked: xdp.map_or(0, |x| transfer(x.transfer_asked)),
            transfer: xdp.map_or(0, |x| transfer(Some(x.transfer))),
            place_asked: xdp.map_or(0, |x| place(x.place_asked)),
            place: xdp.map_or(0, |x| place(Some(x.place))),
            qdisc_bypass: o.qdisc_bypass.into(),
            send_time: o.send_time.into(),
            need_wakeup_asked: flag(|x| x.need_wakeup_asked),
            need_wakeup: flag(|x| x.need_wakeup),
            busy_poll_asked: flag(|x| x.busy_poll_asked.is_some()),
            busy_poll: flag(|x| x.busy_poll),
            multi_buffer_asked: flag(|x| x.multi_buffer_asked),
            multi_buffer: flag(|x| x.multi_buffer),
        }
    }
}

/// Says what was obtained of what was asked.
///
/// Why something was not obtained is written into `notes`, one sentence to a line, cut to `capacity` octets with the zero
/// that ends it. `notes` may be NULL with a capacity of 0.
///
/// Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_read_obtained(
    socket: *mut bypath_l2_socket,
    obtained: *mut bypath_l2_obtained,
    notes: *mut c_char,
    capacity: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(obtained, "obtained")?;
        let into = slice_mut(notes, capacity, "notes")?;
        let got = with(socket, |s| {
            put_text(into, &s.obtained().notes.join("\n"));
            Ok(s.obtained().into())
        })?;
        write(obtained, "obtained", got)
    })
}
