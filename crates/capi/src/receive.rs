//! Frames in: copied, or looked at where they are.

use crate::boundary::{Outcome, guarded, octets_mut, slice_mut, writable, write};
use crate::socket::{bypath_l2_socket, with};
use crate::status::{Failure, bypath_error, bypath_status};
use crate::types::bypath_l2_frame;
use bypath_link::l2::Frame;
use std::ffi::c_void;

/// Copies as much of a payload as fits; returns how much that is.
pub fn copied(payload: &[u8], buffer: &mut [u8]) -> usize {
    let len = payload.len().min(buffer.len());
    buffer[..len].copy_from_slice(&payload[..len]);
    len
}

/// Receives one of something into the caller's buffer, by `receive`, and writes what is known of it to `target`.
///
/// # Errors
/// Pointers that cannot be; those of `receive`.
pub fn one<T>(
    buffer: *mut c_void,
    capacity: usize,
    target: *mut T,
    name: &'static str,
    receive: impl FnOnce(&mut [u8], &mut Option<T>) -> Outcome<usize>,
) -> Outcome<()> {
    writable(target, name)?;
    let mut known = None;
    receive(octets_mut(buffer, capacity, "buffer")?, &mut known)?;
    // `receive` returns after one, or with an error.
    known.map_or(Ok(()), |known| write(target, name, known))
}

/// A place for a received frame.
#[repr(C)]
pub struct bypath_l2_slot {
    /// Where the payload goes.
    pub data: *mut c_void,
    /// Octets that there is room for.
    pub capacity: usize,
    /// What is known of the frame: written by `bypath_l2_receive_batch`.
    pub frame: bypath_l2_frame,
}

/// Waits for a frame and copies its payload into `buffer`, as much as fits.
///
/// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_DOWN` once when the interface
/// goes down, `BYPATH_E_GONE` from when it is removed, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_receive(
    socket: *mut bypath_l2_socket,
    buffer: *mut c_void,
    capacity: usize,
    frame: *mut bypath_l2_frame,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        one(buffer, capacity, frame, "frame", |buffer, known| {
            let each = |f: Frame<'_>| *known = Some(bypath_l2_frame::of(&f, copied(f.payload, buffer)));
            with(socket, |s| Ok(s.receive_batch(1, each)?))
        })
    })
}

/// Waits for a frame, and puts it and those that are there already into `slots`, up to `count` of them.
///
/// `*received` is how many slots were filled, from the first one on: 0 only if it fails, or if `count` is 0. Fails as
/// `bypath_l2_receive` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_receive_batch(
    socket: *mut bypath_l2_socket,
    slots: *mut bypath_l2_slot,
    count: usize,
    received: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(received, "received", 0)?;
        let slots = slice_mut(slots, count, "slots")?;
        for slot in slots.iter() {
            octets_mut(slot.data, slot.capacity, "data")?;
        }
        let mut places = slots.iter_mut();
        let taken = with(socket, |s| {
            let taken = s.receive_batch(count, |f| {
                let Some(slot) = places.next() else { return };
                let Ok(buffer) = octets_mut(slot.data, slot.capacity, "data") else { return };
                slot.frame = bypath_l2_frame::of(&f, copied(f.payload, buffer));
            });
            Ok(taken?)
        })?;
        write(received, "received", taken)
    })
}

/// Takes a received frame: `context` is what was given to `bypath_l2_receive_each`, `payload` has `frame->len` octets. Both
/// `frame` and `payload` are there until it returns.
///
/// It must return: no longjmp, no exception. Calls with the same socket are answered with `BYPATH_E_BUSY` meanwhile.
pub type bypath_l2_taker =
    Option<unsafe extern "C" fn(context: *mut c_void, frame: *const bypath_l2_frame, payload: *const c_void)>;

/// Waits for a frame, and gives it and those that are there already, up to `most`, to `taker`, one after the other. Nothing
/// is copied: payloads are read where the kernel put them.
///
/// `*received` is how many were given: 0 only if it fails, or if `most` is 0. Fails as `bypath_l2_receive` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_receive_each(
    socket: *mut bypath_l2_socket,
    most: usize,
    taker: bypath_l2_taker,
    context: *mut c_void,
    received: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(received, "received", 0)?;
        let taker = taker.ok_or_else(|| Failure::invalid("`taker` is NULL"))?;
        let each = |f: Frame<'_>| {
            let frame = bypath_l2_frame::of(&f, f.payload.len());
            // SAFETY: the caller's function, with the caller's context; frame and payload outlive the call.
            unsafe { taker(context, &frame, f.payload.as_ptr().cast()) };
        };
        write(received, "received", with(socket, |s| Ok(s.receive_batch(most, each)?))?)
    })
}
