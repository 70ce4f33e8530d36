//! Sockets: opened, closed, asked.

use crate::boundary::{Outcome, guarded, read, text, writable, write};
use crate::handle::{self, Handle};
use crate::mac::bypath_mac;
use crate::options::{
    BYPATH_WAIT_NEVER, BYPATH_WAIT_SLEEP, BYPATH_WAIT_SPIN, bypath_l2_options, timeout, unknown,
};
use crate::status::{bypath_error, bypath_status};
use bypath_link::l2::{Socket, Wait};
use std::ffi::{c_char, c_int};
use std::os::fd::{AsFd, AsRawFd};

/// A raw Ethernet socket. Only pointers to it are of use.
pub struct bypath_l2_socket {
    handle: Handle<Socket>,
}

handle::held!(bypath_l2_socket, Socket);

/// Runs `f` with the socket, alone.
pub fn with<R>(socket: *mut bypath_l2_socket, f: impl FnOnce(&mut Socket) -> Outcome<R>) -> Outcome<R> {
    handle::with(socket, "socket", f)
}

/// Opens a socket on an interface, such as `eth0`. Close it by `bypath_l2_close`.
///
/// Needs the capability CAP_NET_RAW; with `BYPATH_MODE_XDP` CAP_NET_ADMIN and CAP_BPF, too, of the whole machine and not of
/// a user namespace. `options` may be NULL for the usual ones. When it fails, `*socket` is NULL.
///
/// Fails with `BYPATH_E_UNKNOWN`, `BYPATH_E_NAME`, `BYPATH_E_NOT_ETHERNET`, `BYPATH_E_DOWN`, `BYPATH_E_NOT_ALLOWED`,
/// `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`; with `BYPATH_MODE_XDP` also `BYPATH_E_UNSUPPORTED` where the kernel or the driver
/// cannot do it, and `BYPATH_E_IN_USE` where another program has the queue, or the interface's place for a program.
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
        write(socket, "socket", handle::begin(opened))
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
        drop(handle::end(socket, "socket")?);
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

/// Octets of the longest payload that `bypath_l2_send` sends: 4 less than the MTU for a socket with a tag on loopback. A
/// second tag takes 4 everywhere. Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
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
    /// Received frames left out because they were longer than any buffer.
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
