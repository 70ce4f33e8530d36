//! Calls to others that come through a netstack's link.

use crate::boundary::{Outcome, guarded, writable, write};
use crate::netstack::{bypath_netstack, with as with_netstack};
use crate::options::timeout;
use crate::shared::{self, Shared};
use crate::status::{Failure, bypath_error, bypath_status};
use crate::tcp::{bypath_tcp, opened};
use crate::tcp_options::{Wanted, bypath_tcp_options};
use crate::tun::bypath_endpoint;
use ::bypath_netstack::{TcpCall, TcpForwarder};
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A forwarder, and the longest waits of its connections.
pub struct Forwarder {
    forwarder: TcpForwarder,
    timeout: Option<Duration>,
}

/// What gets the calls to others that come through a netstack's link: a proxy, or the end of a tunnel. Only pointers to it are of use.
/// Several threads may use one at the same time.
pub struct bypath_tcp_forwarder {
    shared: Shared<Forwarder>,
}

shared::held!(bypath_tcp_forwarder, Forwarder);

/// Somebody calls somebody else, and is not answered yet. Only pointers to it are of use; one call ends it.
pub struct bypath_tcp_call {
    shared: Shared<Called>,
}

/// A call, and the longest waits of its connection.
pub struct Called {
    call: TcpCall,
    timeout: Option<Duration>,
}

shared::held!(bypath_tcp_call, Called);

fn with<R>(forwarder: *mut bypath_tcp_forwarder, f: impl FnOnce(&Forwarder) -> Outcome<R>) -> Outcome<R> {
    shared::with(forwarder, "forwarder", f)
}

/// From now on, TCP that comes through the netstack's link and is for nobody there comes here, to whatever address and port. A netstack
/// has one forwarder at most. Close it by `bypath_tcp_forwarder_close`. The netstack needs a way to those who call, such as a router.
///
/// `options`: what connections shall want that are accepted, and how many calls wait; NULL: what is usual. When it fails, `*forwarder` is
/// NULL.
///
/// Fails with `BYPATH_E_IN_USE` where there is one, `BYPATH_E_INVALID`, `BYPATH_E_GONE`, `BYPATH_E_SYSTEM` for too many sockets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_forward(
    netstack: *mut bypath_netstack,
    options: *const bypath_tcp_options,
    forwarder: *mut *mut bypath_tcp_forwarder,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(forwarder, "forwarder", std::ptr::null_mut())?;
        let wanted = Wanted::by(options)?;
        let timeout = wanted.timeout;
        let opened = with_netstack(netstack, |n| {
            let change = |options: &mut _, settings: &mut _| wanted.put(options, settings);
            Ok(TcpForwarder::open_with(&n.host, wanted.backlog, change)?)
        })?;
        opened.set_timeout(timeout);
        write(forwarder, "forwarder", shared::begin(Forwarder { forwarder: opened, timeout }))
    })
}

/// Closes it: calls that were not taken are refused; those that were taken, and connections, go on. NULL is left alone.
///
/// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it, and then
/// nothing is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_forwarder_close(
    forwarder: *mut bypath_tcp_forwarder,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        drop(shared::end(forwarder, "forwarder")?);
        Ok(())
    })
}

/// Waits for the next call. Nothing answers it before `bypath_tcp_call_accept` does; end it by that or by `bypath_tcp_call_refuse`. `from`
/// and `to`: get who calls, and whom, unless they are NULL. When it fails, `*call` is NULL.
///
/// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_forwarder_next(
    forwarder: *mut bypath_tcp_forwarder,
    call: *mut *mut bypath_tcp_call,
    from: *mut bypath_endpoint,
    to: *mut bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(call, "call", std::ptr::null_mut())?;
        for (place, name) in [(from, "from"), (to, "to")] {
            if !place.is_null() {
                writable(place, name)?;
            }
        }
        let next = with(forwarder, |f| Ok(Called { call: f.forwarder.accept()?, timeout: f.timeout }))?;
        for (place, name, end) in [(from, "from", next.call.from()), (to, "to", next.call.to())] {
            if !place.is_null() {
                write(place, name, end.into())?;
            }
        }
        write(call, "call", shared::begin(next))
    })
}

/// Changes the longest wait of `bypath_tcp_forwarder_next` calls that begin afterwards, in ns; `BYPATH_FOREVER`: no limit; 0: they do
/// not wait, and answer `BYPATH_E_WOULD_BLOCK`. Connections have that of the options. Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_forwarder_set_timeout(
    forwarder: *mut bypath_tcp_forwarder,
    timeout_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        with(forwarder, |f| {
            f.forwarder.set_timeout(timeout(timeout_ns));
            Ok(())
        })
    })
}

/// The descriptor to poll: readable (POLLIN) while there is a call to be taken, or the netstack has gone. Poll it, and do nothing else
/// with it; it is valid as long as the forwarder. Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM` where none is to be had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_forwarder_descriptor(
    forwarder: *mut bypath_tcp_forwarder,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let fd = with(forwarder, |f| Ok(f.forwarder.readable_fd()?.as_raw_fd()))?;
        write(descriptor, "descriptor", fd)
    })
}

/// Answers as whom is called, and waits until the connection is open: a minute at most, whatever time-out there is. Close it by
/// `bypath_tcp_close`. When it fails, `*tcp` is NULL.
///
/// The call is over, and its pointer must not be used afterwards, unless it fails with `BYPATH_E_INVALID`. Fails with that,
/// `BYPATH_E_REFUSED` and `BYPATH_E_RESET` where nobody calls any more, `BYPATH_E_TIMED_OUT`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_call_accept(
    call: *mut bypath_tcp_call,
    tcp: *mut *mut bypath_tcp,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(tcp, "tcp", std::ptr::null_mut())?;
        let Some(Called { call, timeout }) = shared::end(call, "call")? else {
            return Err(Failure::invalid("call is NULL"));
        };
        let stream = call.accept()?;
        stream.set_timeout(timeout);
        write(tcp, "tcp", opened(stream))
    })
}

/// Refuses it, as where nobody listens. The pointer must not be used afterwards. NULL is left alone. Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_call_refuse(
    call: *mut bypath_tcp_call,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        drop(shared::end(call, "call")?);
        Ok(())
    })
}
