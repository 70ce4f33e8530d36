//! UDP sockets of a netstack.

use crate::boundary::{Outcome, guarded, octets, write};
use crate::netstack::{bypath_netstack, with as with_netstack};
use crate::options::{timeout, unknown};
use crate::receive::one;
use crate::shared::{self, Shared};
use crate::status::{Failure, bypath_error, bypath_status};
use crate::tcp::{BYPATH_READABLE, BYPATH_WRITABLE};
use crate::tun::bypath_endpoint;
use ::bypath_netstack::UdpSocket;
use bypath_stack::Fragmentation;
use bypath_stack::iface::IfaceId;
use bypath_stack::socket::Received;
use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;

/// Flag: it may send to everybody (255.255.255.255, and the last address of a network).
pub const BYPATH_UDP_BROADCAST: u32 = 0x1;
/// Flag: its address and port may be those of other sockets that have this flag, too: all get what is for a group or for
/// everybody, and the last one that was bound gets the rest (SO_REUSEADDR).
pub const BYPATH_UDP_REUSE_ADDRESS: u32 = 0x2;
/// Flag: the same, and each datagram goes to one of them (SO_REUSEPORT).
pub const BYPATH_UDP_REUSE_PORT: u32 = 0x4;
/// Flag: bound to `::`, it has nothing to do with IPv4.
pub const BYPATH_UDP_ONLY_V6: u32 = 0x8;
/// Flag: a datagram that does not fit into the MTU is `BYPATH_E_TOO_LONG`, and not cut into fragments.
pub const BYPATH_UDP_DONT_FRAGMENT: u32 = 0x10;
/// Flag: it is told of errors that may pass, too, such as a host that cannot be reached just now, and of all errors while it is connected to
/// nobody (IP_RECVERR). They are told as others are.
pub const BYPATH_UDP_ALL_ERRORS: u32 = 0x20;
/// Every flag there is.
const ALL_FLAGS: u32 = 0x3f;

/// A socket, and the interface on which it joins groups.
pub struct Udp {
    socket: UdpSocket,
    iface: IfaceId,
}

/// A UDP socket of a netstack. Only pointers to it are of use. Several threads may use one at the same time, such as one that
/// receives and one that sends.
pub struct bypath_udp {
    shared: Shared<Udp>,
}

shared::held!(bypath_udp, Udp);

fn with<R>(udp: *mut bypath_udp, f: impl FnOnce(&Udp) -> Outcome<R>) -> Outcome<R> {
    shared::with(udp, "udp", f)
}

/// Makes a socket that is bound to this address and port of the netstack's. The addresses `0.0.0.0` and `::` stand for all of them,
/// port 0 for one that is free: `bypath_udp_local` tells it. Close it by `bypath_udp_close`.
///
/// Its calls wait as long as it takes, unless `bypath_udp_set_timeout` says otherwise. `flags`: 0, or `BYPATH_UDP_BROADCAST` and
/// the other flags joined by `|`. When it fails, `*udp` is NULL.
///
/// Fails with `BYPATH_E_IN_USE`, `BYPATH_E_INVALID` for an address that is not the netstack's, `BYPATH_E_GONE`,
/// `BYPATH_E_SYSTEM` for too many sockets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_bind(
    netstack: *mut bypath_netstack,
    local: bypath_endpoint,
    flags: u32,
    udp: *mut *mut bypath_udp,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(udp, "udp", std::ptr::null_mut())?;
        let local = local.checked()?;
        if flags & !ALL_FLAGS != 0 {
            return Err(unknown("flags", flags & !ALL_FLAGS));
        }
        let bound = with_netstack(netstack, |n| {
            let socket = UdpSocket::bind_with(&n.host, local, |options| {
                options.broadcast = flags & BYPATH_UDP_BROADCAST != 0;
                options.reuse_address = flags & BYPATH_UDP_REUSE_ADDRESS != 0;
                options.reuse_port = flags & BYPATH_UDP_REUSE_PORT != 0;
                options.only_v6 = flags & BYPATH_UDP_ONLY_V6 != 0;
                options.all_errors = flags & BYPATH_UDP_ALL_ERRORS != 0;
                if flags & BYPATH_UDP_DONT_FRAGMENT != 0 {
                    options.fragmentation = Fragmentation::Never;
                }
            })?;
            Ok(Udp { socket, iface: n.iface })
        })?;
        write(udp, "udp", shared::begin(bound))
    })
}

/// Closes it; what it has still to send is sent. NULL is left alone.
///
/// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it, and then
/// nothing is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_close(udp: *mut bypath_udp, error: *mut bypath_error) -> bypath_status {
    guarded(error, || {
        drop(shared::end(udp, "udp")?);
        Ok(())
    })
}

/// Changes the longest wait of calls that begin afterwards, in ns; `BYPATH_FOREVER`: no limit; 0: they do not wait, and answer
/// `BYPATH_E_WOULD_BLOCK`. Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_set_timeout(
    udp: *mut bypath_udp,
    timeout_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        with(udp, |u| {
            u.socket.set_timeout(timeout(timeout_ns));
            Ok(())
        })
    })
}

/// Sends to this partner from now on, and hears of it alone. Nothing is sent.
///
/// Fails with `BYPATH_E_NO_ROUTE`, `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_connect(
    udp: *mut bypath_udp,
    remote: bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let remote = remote.checked()?;
        with(udp, |u| Ok(u.socket.connect(remote)?))
    })
}

/// Has no partner any more. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_disconnect(
    udp: *mut bypath_udp,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || with(udp, |u| Ok(u.socket.disconnect()?)))
}

/// Its own address and port. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_local(
    udp: *mut bypath_udp,
    local: *mut bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(local, "local", with(udp, |u| Ok(u.socket.local_addr()?))?.into()))
}

/// To whom it is connected. Fails with `BYPATH_E_INVALID`, also if it is to nobody, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_remote(
    udp: *mut bypath_udp,
    remote: *mut bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(remote, "remote", with(udp, |u| Ok(u.socket.peer_addr()?))?.into()))
}

/// Begins to hear a group, whose port does not matter. Fails with `BYPATH_E_IN_USE` if it does, `BYPATH_E_INVALID`, `BYPATH_E_GONE`,
/// `BYPATH_E_SYSTEM` for too many groups.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_join(
    udp: *mut bypath_udp,
    group: bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let group = group.checked()?.ip();
        with(udp, |u| Ok(u.socket.join(u.iface, group)?))
    })
}

/// Ends `bypath_udp_join`. Fails with `BYPATH_E_INVALID`, also if the group was not joined, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_leave(
    udp: *mut bypath_udp,
    group: bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let group = group.checked()?.ip();
        let left = with(udp, |u| Ok(u.socket.leave(u.iface, group)?))?;
        left.then_some(()).ok_or_else(|| Failure::invalid(format!("{group} was not joined")))
    })
}

/// Sends one datagram to whom it is connected. Waits while as much as it may have is still to be sent.
///
/// Fails with `BYPATH_E_TOO_LONG`, `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, and once with
/// what the network said of an earlier datagram: `BYPATH_E_UNREACHABLE`, `BYPATH_E_NO_ROUTE`, `BYPATH_E_NOT_ALLOWED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_send(
    udp: *mut bypath_udp,
    payload: *const c_void,
    len: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let payload = octets(payload, len, "payload")?;
        with(udp, |u| Ok(u.socket.send(payload).map(drop)?))
    })
}

/// Sends one datagram to this receiver. Fails as `bypath_udp_send` does, with `BYPATH_E_NO_ROUTE` also at once where no route
/// leads there, and with `BYPATH_E_NOT_ALLOWED` for everybody without `BYPATH_UDP_BROADCAST`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_send_to(
    udp: *mut bypath_udp,
    to: bypath_endpoint,
    payload: *const c_void,
    len: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let payload = octets(payload, len, "payload")?;
        let to = to.checked()?;
        with(udp, |u| Ok(u.socket.send_to(payload, to).map(drop)?))
    })
}

/// What is known of a received datagram.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_udp_datagram {
    /// Octets of payload in the buffer.
    pub len: usize,
    /// Octets of payload that the datagram had: more than `len` if the buffer was too short.
    pub whole: usize,
    /// From whom.
    pub source: bypath_endpoint,
    /// To which address and port.
    pub destination: bypath_endpoint,
    /// Routers that it might still have passed.
    pub ttl: u8,
    /// Type of service, traffic class: DSCP in the upper six bits, ECN in the lower two.
    pub class_octet: u8,
    /// Not used.
    pub reserved: [u8; 6],
}

impl bypath_udp_datagram {
    fn of(received: &Received, capacity: usize) -> bypath_udp_datagram {
        let datagram = &received.datagram;
        bypath_udp_datagram {
            len: received.len.min(capacity),
            whole: received.len,
            source: datagram.from.into(),
            destination: datagram.to.into(),
            ttl: datagram.hop_limit,
            class_octet: datagram.class.0,
            reserved: [0; 6],
        }
    }
}

/// Waits for a datagram and copies its payload into `buffer`, as much as fits.
///
/// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, and once with what the network said
/// of an earlier datagram: `BYPATH_E_UNREACHABLE`, `BYPATH_E_NO_ROUTE`, `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_TOO_LONG`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_receive(
    udp: *mut bypath_udp,
    buffer: *mut c_void,
    capacity: usize,
    datagram: *mut bypath_udp_datagram,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        one(buffer, capacity, datagram, "datagram", |buffer, known| {
            let received = with(udp, |u| Ok(u.socket.receive(buffer)?))?;
            *known = Some(bypath_udp_datagram::of(&received, buffer.len()));
            Ok(1)
        })
    })
}

/// One of its two descriptors to poll. Both are polled for POLLIN: the one for `BYPATH_READABLE` is readable while a call that
/// receives would not wait, the one for `BYPATH_WRITABLE` while half of what it may have unsent is free. Calls that fail at once do
/// not wait, either. Two threads that receive may both be told of the same datagram.
///
/// Poll them, and do nothing else with them; they are valid as long as the socket. Fails with `BYPATH_E_INVALID`,
/// `BYPATH_E_SYSTEM` where none is to be had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_udp_descriptor(
    udp: *mut bypath_udp,
    what: u32,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let fd = with(udp, |u| match what {
            BYPATH_READABLE => Ok(u.socket.readable_fd()?.as_raw_fd()),
            BYPATH_WRITABLE => Ok(u.socket.writable_fd()?.as_raw_fd()),
            other => Err(unknown("what", other)),
        })?;
        write(descriptor, "descriptor", fd)
    })
}
