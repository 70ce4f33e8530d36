//! Sockets: opened, closed, asked.

use crate::boundary::{Outcome, guarded, read, slice_mut, text, writable, write};
use crate::mac::bypath_mac;
use crate::options::{
    BYPATH_MODE_BATCH, BYPATH_MODE_LATENCY_RING, BYPATH_MODE_PLAIN, BYPATH_MODE_RING, BYPATH_WAIT_NEVER,
    BYPATH_WAIT_SLEEP, BYPATH_WAIT_SPIN, bypath_l2_options, timeout, unknown,
};
use crate::status::{Failure, bypath_error, bypath_status, put_text};
use crate::types::{BYPATH_TIMESTAMP_HARDWARE, BYPATH_TIMESTAMP_NONE, BYPATH_TIMESTAMP_SOFTWARE};
use bypath_link::Timestamps;
use bypath_link::l2::{Socket, Wait};
use bypath_link::packet::{Receive, Send};
use std::cell::UnsafeCell;
use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicU8, Ordering};

/// A raw Ethernet socket. Only pointers to it are of use.
pub struct bypath_l2_socket {
    state: AtomicU8,
    socket: UnsafeCell<Socket>,
}

/// Nobody is inside a call.
const IDLE: u8 = 0;
/// Somebody is.
const BUSY: u8 = 1;
/// A call ended by a panic: what it left is not looked at again.
const BROKEN: u8 = 2;

/// A socket may be used by one thread after another.
const fn moves_between_threads<T: std::marker::Send>() {}
const _: () = moves_between_threads::<Socket>();

/// Gives the socket back; as broken if it is dropped by a panic.
struct Turn<'a>(&'a AtomicU8);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let left = if std::thread::panicking() { BROKEN } else { IDLE };
        // Release: pairs with the Acquire of the next turn.
        self.0.store(left, Ordering::Release);
    }
}

fn take(state: &AtomicU8) -> Outcome {
    // Acquire: pairs with the Release at the end of the turn before.
    match state.compare_exchange(IDLE, BUSY, Ordering::Acquire, Ordering::Relaxed) {
        Ok(_) => Ok(()),
        Err(BROKEN) => {
            Err(Failure::internal("a call with this socket failed by a mistake in bypath: close it"))
        }
        Err(_) => Err(Failure::busy()),
    }
}

/// Runs `f` with the socket, alone.
pub fn with<R>(socket: *mut bypath_l2_socket, f: impl FnOnce(&mut Socket) -> Outcome<R>) -> Outcome<R> {
    let handle = read(socket.cast_const(), "socket")?;
    take(&handle.state)?;
    let turn = Turn(&handle.state);
    // SAFETY: `take` let nobody else in until `turn` is dropped.
    let outcome = f(unsafe { &mut *handle.socket.get() });
    drop(turn);
    outcome
}

/// Opens a socket on an interface, such as `eth0`. Close it by `bypath_l2_close`.
///
/// Needs the capability CAP_NET_RAW. `options` may be NULL for the usual ones. When it fails, `*socket` is NULL.
///
/// Fails with `BYPATH_E_UNKNOWN`, `BYPATH_E_NAME`, `BYPATH_E_NOT_ETHERNET`, `BYPATH_E_DOWN`, `BYPATH_E_NOT_ALLOWED`,
/// `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_open(
    interface: *const c_char,
    options: *const bypath_l2_options,
    socket: *mut *mut bypath_l2_socket,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(socket, "socket", std::ptr::null_mut())?;
        let name = text(interface, "interface")?;
        let usual = bypath_l2_options::USUAL;
        let options = if options.is_null() { &usual } else { read(options, "options")? };
        let opened = options.builder(name)?.open()?;
        let handle = bypath_l2_socket { state: AtomicU8::new(IDLE), socket: UnsafeCell::new(opened) };
        write(socket, "socket", Box::into_raw(Box::new(handle)))
    })
}

/// Closes a socket: in microseconds, and the same interface can be opened anew at once. NULL is left alone.
///
/// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY`, and then nothing is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_close(
    socket: *mut bypath_l2_socket,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        if socket.is_null() {
            return Ok(());
        }
        let handle = read(socket.cast_const(), "socket")?;
        // Whatever it was, but not in use: BUSY for ever, for whoever still comes before the memory is given back.
        if handle.state.swap(BUSY, Ordering::Acquire) == BUSY {
            return Err(Failure::busy());
        }
        // SAFETY: made by `Box::into_raw` in `bypath_l2_open`, and this is the one call that ends it.
        drop(unsafe { Box::from_raw(socket) });
        Ok(())
    })
}

/// The descriptor to poll: readable (POLLIN) when a frame may be there. Read, write and close it by this library only. It
/// is valid as long as the socket. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_descriptor(
    socket: *mut bypath_l2_socket,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(descriptor, "descriptor", with(socket, |s| Ok(s.as_fd().as_raw_fd()))?))
}

/// This end's hardware address. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_mac(
    socket: *mut bypath_l2_socket,
    mac: *mut bypath_mac,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(mac, "mac", with(socket, |s| Ok(s.mac().into()))?))
}

/// Octets of the longest payload. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_mtu(
    socket: *mut bypath_l2_socket,
    mtu: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(mtu, "mtu", with(socket, |s| Ok(s.mtu()))?))
}

/// Changes the longest wait, in ns; `BYPATH_FOREVER`: no limit. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_set_timeout(
    socket: *mut bypath_l2_socket,
    timeout_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        with(socket, |s| {
            s.set_timeout(timeout(timeout_ns));
            Ok(())
        })
    })
}

/// Changes how calls wait: `BYPATH_WAIT_...`. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_set_wait(
    socket: *mut bypath_l2_socket,
    wait: u32,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let wait = match wait {
            BYPATH_WAIT_SLEEP => Wait::Sleep,
            BYPATH_WAIT_SPIN => Wait::Spin,
            BYPATH_WAIT_NEVER => Wait::Never,
            other => return Err(unknown("wait", other)),
        };
        with(socket, |s| {
            s.set_wait(wait);
            Ok(())
        })
    })
}

/// Begins to receive frames to a group.
///
/// Fails with `BYPATH_E_INVALID` for an address that is no group's, `BYPATH_E_GONE`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_join(
    socket: *mut bypath_l2_socket,
    group: bypath_mac,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || with(socket, |s| Ok(s.join(group.into())?)))
}

/// Ends `bypath_l2_join`.
///
/// Fails with `BYPATH_E_INVALID` for a group that was not joined, `BYPATH_E_GONE`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_leave(
    socket: *mut bypath_l2_socket,
    group: bypath_mac,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || with(socket, |s| Ok(s.leave(group.into())?)))
}

/// What has passed through a socket since it was opened.
#[repr(C)]
pub struct bypath_l2_statistics {
    /// Frames received.
    pub received: u64,
    /// Octets of these frames.
    pub received_octets: u64,
    /// Frames that were dropped because they were not received in time.
    pub dropped: u64,
    /// Received frames left out because they were longer than the buffers made for the MTU.
    pub cut: u64,
    /// Frames accepted for sending.
    pub sent: u64,
    /// Octets of these frames.
    pub sent_octets: u64,
    /// Accepted frames that were not sent after all.
    pub refused: u64,
}

/// Reads the counters. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_read_statistics(
    socket: *mut bypath_l2_socket,
    statistics: *mut bypath_l2_statistics,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(statistics, "statistics")?;
        let s = with(socket, |s| Ok(s.statistics()))?;
        let counted = bypath_l2_statistics {
            received: s.received,
            received_octets: s.received_octets,
            dropped: s.dropped,
            cut: s.cut,
            sent: s.sent,
            sent_octets: s.sent_octets,
            refused: s.refused,
        };
        write(statistics, "statistics", counted)
    })
}

/// What was obtained of what was asked.
#[repr(C)]
pub struct bypath_l2_obtained {
    /// Octets of the receive queue, by the kernel's count.
    pub receive_queue: usize,
    /// Octets of the receive ring; 0: there is none.
    pub receive_ring: usize,
    /// Frames of the send ring; 0: there is none.
    pub send_ring: usize,
    /// The way in: `BYPATH_MODE_...`
    pub receive_mode: u32,
    /// The way out: `BYPATH_MODE_...`
    pub send_mode: u32,
    /// Who takes the time of received frames: `BYPATH_TIMESTAMP_...`
    pub timestamps: u32,
    /// 1 if sent frames bypass the queueing discipline.
    pub qdisc_bypass: u8,
    /// 1 if the queue sends frames at their time.
    pub send_time: u8,
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
        let place = slice_mut(notes, capacity, "notes")?;
        let o = with(socket, |s| Ok(s.obtained().clone()))?;
        put_text(place, &o.notes.join("\n"));
        let got = bypath_l2_obtained {
            receive_queue: o.receive_queue,
            receive_ring: o.receive_ring,
            send_ring: o.send_ring,
            receive_mode: match o.mode.receive {
                Receive::Plain => BYPATH_MODE_PLAIN,
                Receive::Batch => BYPATH_MODE_BATCH,
                Receive::Ring => BYPATH_MODE_RING,
                Receive::LatencyRing => BYPATH_MODE_LATENCY_RING,
            },
            send_mode: match o.mode.send {
                Send::Plain => BYPATH_MODE_PLAIN,
                Send::Batch => BYPATH_MODE_BATCH,
                Send::Ring => BYPATH_MODE_RING,
            },
            timestamps: match o.timestamps {
                Timestamps::None => BYPATH_TIMESTAMP_NONE,
                Timestamps::Software => BYPATH_TIMESTAMP_SOFTWARE,
                Timestamps::Hardware => BYPATH_TIMESTAMP_HARDWARE,
            },
            qdisc_bypass: o.qdisc_bypass.into(),
            send_time: o.send_time.into(),
        };
        write(obtained, "obtained", got)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::{BYPATH_E_BUSY, BYPATH_E_INTERNAL};

    #[test]
    fn one_thread_at_a_time() {
        let state = AtomicU8::new(IDLE);
        take(&state).ok().unwrap();
        let turn = Turn(&state);
        assert_eq!(take(&state).err().unwrap().status, BYPATH_E_BUSY);
        drop(turn);
        assert!(take(&state).is_ok());
    }

    #[test]
    fn a_panic_leaves_a_broken_socket() {
        let state = AtomicU8::new(IDLE);
        let status = guarded(std::ptr::null_mut(), || {
            take(&state)?;
            let _turn = Turn(&state);
            panic!("for the test");
        });
        assert_eq!(status, BYPATH_E_INTERNAL);
        assert_eq!(take(&state).err().unwrap().status, BYPATH_E_INTERNAL);
    }
}
