//! Listeners of a netstack.

use crate::boundary::{Outcome, guarded, write};
use crate::netstack::{bypath_netstack, with as with_netstack};
use crate::options::timeout;
use crate::shared::{self, Shared};
use crate::status::{bypath_error, bypath_status};
use crate::tcp::{bypath_tcp, opened};
use crate::tcp_options::{Wanted, bypath_tcp_options};
use crate::tun::bypath_endpoint;
use ::bypath_netstack::TcpListener;
use std::ffi::c_int;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// A listener, and the longest waits of its connections.
pub struct Listener {
    listener: TcpListener,
    timeout: Option<Duration>,
}

/// What gets connections to an address and port of a netstack. Only pointers to it are of use. Several threads may use one at the
/// same time.
pub struct bypath_tcp_listener {
    shared: Shared<Listener>,
}

shared::held!(bypath_tcp_listener, Listener);

fn with<R>(listener: *mut bypath_tcp_listener, f: impl FnOnce(&Listener) -> Outcome<R>) -> Outcome<R> {
    shared::with(listener, "listener", f)
}

/// Listens to this address and port of the netstack's. The addresses `0.0.0.0` and `::` stand for all of them, port 0 for one that
/// is free: `bypath_tcp_listener_local` tells it. Close it by `bypath_tcp_listener_close`.
///
/// `options`: what connections shall want that are accepted; NULL: what is usual. When it fails, `*listener` is NULL.
///
/// Fails with `BYPATH_E_IN_USE`, `BYPATH_E_INVALID` for an address that is not the netstack's, `BYPATH_E_GONE`,
/// `BYPATH_E_SYSTEM` for too many sockets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_listen(
    netstack: *mut bypath_netstack,
    local: bypath_endpoint,
    options: *const bypath_tcp_options,
    listener: *mut *mut bypath_tcp_listener,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(listener, "listener", std::ptr::null_mut())?;
        let local = local.checked()?;
        let wanted = Wanted::by(options)?;
        let timeout = wanted.timeout;
        let opened = with_netstack(netstack, |n| {
            let change = |options: &mut _, settings: &mut _| wanted.put(options, settings);
            Ok(TcpListener::bind_with(&n.host, local, wanted.backlog, change)?)
        })?;
        opened.set_timeout(timeout);
        write(listener, "listener", shared::begin(Listener { listener: opened, timeout }))
    })
}

/// Closes it: who called and was not accepted is reset; connections that were accepted go on. NULL is left alone.
///
/// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it, and then
/// nothing is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_listener_close(
    listener: *mut bypath_tcp_listener,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        drop(shared::end(listener, "listener")?);
        Ok(())
    })
}

/// Waits for the next connection. Close it by `bypath_tcp_close`. `remote`: gets who has called, unless it is NULL. When it fails,
/// `*tcp` is NULL.
///
/// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_accept(
    listener: *mut bypath_tcp_listener,
    tcp: *mut *mut bypath_tcp,
    remote: *mut bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(tcp, "tcp", std::ptr::null_mut())?;
        let (stream, from) = with(listener, |l| {
            let (stream, from) = l.listener.accept()?;
            stream.set_timeout(l.timeout);
            Ok((stream, from))
        })?;
        if !remote.is_null() {
            write(remote, "remote", from.into())?;
        }
        write(tcp, "tcp", opened(stream))
    })
}

/// Its own address and port. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_listener_local(
    listener: *mut bypath_tcp_listener,
    local: *mut bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(local, "local", with(listener, |l| Ok(l.listener.local_addr()?))?.into()))
}

/// Changes the longest wait of `bypath_tcp_accept` calls that begin afterwards, in ns; `BYPATH_FOREVER`: no limit; 0: they do not
/// wait, and answer `BYPATH_E_WOULD_BLOCK`. Connections have that of the options. Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_listener_set_timeout(
    listener: *mut bypath_tcp_listener,
    timeout_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        with(listener, |l| {
            l.listener.set_timeout(timeout(timeout_ns));
            Ok(())
        })
    })
}

/// The descriptor to poll: readable (POLLIN) while a connection can be accepted, or the netstack has gone. Poll it, and do
/// nothing else with it; it is valid as long as the listener. Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM` where none is to be had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_listener_descriptor(
    listener: *mut bypath_tcp_listener,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(descriptor, "descriptor", with(listener, |l| Ok(l.listener.readable_fd()?.as_raw_fd()))?)
    })
}
