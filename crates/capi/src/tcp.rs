//! Connections of a netstack.

use crate::boundary::{Outcome, guarded, octets, octets_mut, read, slice, writable, write};
use crate::netstack::{bypath_netstack, with as with_netstack};
use crate::options::{timeout, unknown};
use crate::send::bypath_octets;
use crate::shared::{self, Shared};
use crate::status::{bypath_error, bypath_status};
use crate::tcp_options::{Wanted, bypath_tcp_options, bypath_tcp_statistics, told};
use crate::tun::bypath_endpoint;
use ::bypath_netstack::TcpStream;
use std::ffi::{c_int, c_void};
use std::io::IoSlice;
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;

/// What is polled: a call that reads would not wait.
pub const BYPATH_READABLE: u32 = 1;
/// What is polled: a call that writes would not wait.
pub const BYPATH_WRITABLE: u32 = 2;

/// What is shut down: nothing more is read; calls that wait for octets, and later ones, read the end.
pub const BYPATH_SHUT_READ: u32 = 0;
/// What is shut down: nothing more is written; the other side reads an end behind what was.
pub const BYPATH_SHUT_WRITE: u32 = 1;
/// What is shut down: both.
pub const BYPATH_SHUT_BOTH: u32 = 2;

/// Pieces of one call at most.
const PIECES: usize = 64;

/// A connection of a netstack. Only pointers to it are of use. Several threads may use one at the same time, such as one that reads
/// and one that writes.
pub struct bypath_tcp {
    shared: Shared<TcpStream>,
}

shared::held!(bypath_tcp, TcpStream);

fn with<R>(tcp: *mut bypath_tcp, f: impl FnOnce(&TcpStream) -> Outcome<R>) -> Outcome<R> {
    shared::with(tcp, "tcp", f)
}

/// The pointer for the caller.
pub fn opened(stream: TcpStream) -> *mut bypath_tcp {
    shared::begin(stream)
}

/// Calls, and waits if that is wanted.
fn call(
    netstack: *mut bypath_netstack,
    to: bypath_endpoint,
    from: *const bypath_endpoint,
    options: *const bypath_tcp_options,
    waits: bool,
) -> Outcome<TcpStream> {
    let to = to.checked()?;
    let from: Option<SocketAddr> = match from.is_null() {
        true => None,
        false => Some(read(from, "from")?.checked()?),
    };
    let wanted = Wanted::by(options)?;
    let stream = with_netstack(netstack, |n| {
        Ok(TcpStream::begin_connect(&n.host, to, from, |options, settings| wanted.put(options, settings))?)
    })?;
    stream.set_timeout(wanted.timeout);
    if waits {
        stream.finish_connect()?;
    }
    Ok(stream)
}

/// Calls `to`, and waits until the connection is open. Close it by `bypath_tcp_close`. `from`: the own address, or port, or both
/// (`0.0.0.0`, `::` and port 0 leave them open); NULL: as it comes. `options`: what is wanted; NULL: what is usual. When it fails,
/// `*tcp` is NULL, and nothing is left of the call.
///
/// Fails with `BYPATH_E_REFUSED` where nobody listens, `BYPATH_E_TIMED_OUT`, `BYPATH_E_RESET`, `BYPATH_E_NO_ROUTE`,
/// `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_IN_USE` where no port is free, `BYPATH_E_WOULD_BLOCK` with a time-out of 0,
/// `BYPATH_E_GONE`, `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM` for too many sockets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_connect(
    netstack: *mut bypath_netstack,
    to: bypath_endpoint,
    from: *const bypath_endpoint,
    options: *const bypath_tcp_options,
    tcp: *mut *mut bypath_tcp,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(tcp, "tcp", std::ptr::null_mut())?;
        write(tcp, "tcp", opened(call(netstack, to, from, options, true)?))
    })
}

/// Calls `to`, and does not wait: the connection is open when `bypath_tcp_finish_connect` says so. The descriptor for
/// `BYPATH_WRITABLE` is readable when that has something to say. Close it by `bypath_tcp_close` in any case.
///
/// Fails as `bypath_tcp_connect` does, with what is known at once.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_begin_connect(
    netstack: *mut bypath_netstack,
    to: bypath_endpoint,
    from: *const bypath_endpoint,
    options: *const bypath_tcp_options,
    tcp: *mut *mut bypath_tcp,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(tcp, "tcp", std::ptr::null_mut())?;
        write(tcp, "tcp", opened(call(netstack, to, from, options, false)?))
    })
}

/// Waits until a connection is open, as long as writing may wait. It may be called again.
///
/// Fails as `bypath_tcp_connect` does; once it has told why there is no connection, with `BYPATH_E_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_finish_connect(
    tcp: *mut bypath_tcp,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || with(tcp, |t| Ok(t.finish_connect()?)))
}

/// Closes it. What was written is still sent, without waiting for it; if octets came that were not read, the connection is reset
/// instead. NULL is left alone.
///
/// The pointer must not be used afterwards. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it, and then
/// nothing is closed: `bypath_tcp_shutdown` with `BYPATH_SHUT_READ` ends a call that waits for octets, `bypath_tcp_abort` any.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_close(tcp: *mut bypath_tcp, error: *mut bypath_error) -> bypath_status {
    guarded(error, || {
        drop(shared::end(tcp, "tcp")?);
        Ok(())
    })
}

/// Waits for octets, and takes as many as there are and fit; `*len`: how many. 0 says that the other side has finished, and that
/// everything was read; so does a capacity of 0 at once.
///
/// Fails with `BYPATH_E_RESET`, `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_NO_ROUTE`, `BYPATH_E_GONE`,
/// `BYPATH_E_INVALID`. Why a connection ended is told once; afterwards there is an end. After one's own
/// `bypath_tcp_abort` there is what had come before, then an end, and no error.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_read(
    tcp: *mut bypath_tcp,
    buffer: *mut c_void,
    capacity: usize,
    len: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(len, "len")?;
        let buffer = octets_mut(buffer, capacity, "buffer")?;
        write(len, "len", with(tcp, |t| Ok(t.recv(buffer)?))?)
    })
}

/// The same, and the octets stay.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_peek(
    tcp: *mut bypath_tcp,
    buffer: *mut c_void,
    capacity: usize,
    len: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(len, "len")?;
        let buffer = octets_mut(buffer, capacity, "buffer")?;
        write(len, "len", with(tcp, |t| Ok(t.peek(buffer)?))?)
    })
}

/// Waits for room, and queues as many octets to be sent as there is room for; `*written`: how many.
///
/// Fails with `BYPATH_E_CLOSED` where writing was finished, or the connection is over and it was told why, `BYPATH_E_RESET`,
/// `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_NO_ROUTE`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`. After one's own
/// `bypath_tcp_abort` it is `BYPATH_E_CLOSED`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_write(
    tcp: *mut bypath_tcp,
    data: *const c_void,
    len: usize,
    written: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(written, "written")?;
        let data = octets(data, len, "data")?;
        write(written, "written", with(tcp, |t| Ok(t.send(data)?))?)
    })
}

/// The same with several pieces, one behind the other, of which the first 64 are looked at.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_write_pieces(
    tcp: *mut bypath_tcp,
    pieces: *const bypath_octets,
    count: usize,
    written: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(written, "written")?;
        let mut all = [IoSlice::new(&[]); PIECES];
        let pieces = slice(pieces, count, "pieces")?;
        for (place, piece) in all.iter_mut().zip(pieces) {
            *place = IoSlice::new(octets(piece.data, piece.len, "data")?);
        }
        let all = &all[..count.min(PIECES)];
        write(written, "written", with(tcp, |t| Ok(t.send_vectored(all)?))?)
    })
}

/// Queues all octets to be sent, and waits for room as often as that takes; each wait is as long as writing may wait. `*written`:
/// how many were queued, also when it fails, unless `written` is NULL.
///
/// Fails as `bypath_tcp_write` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_write_all(
    tcp: *mut bypath_tcp,
    data: *const c_void,
    len: usize,
    written: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let mut done = 0;
        if !written.is_null() {
            write(written, "written", 0)?;
        }
        let data = octets(data, len, "data")?;
        let outcome = with(tcp, |t| {
            while done < data.len() {
                done += t.send(&data[done..])?;
            }
            Ok(())
        });
        if !written.is_null() {
            write(written, "written", done)?;
        }
        outcome
    })
}

/// Reads no more, writes no more, or both: `BYPATH_SHUT_...`
///
/// Fails with `BYPATH_E_CLOSED` where the connection is over, `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_shutdown(
    tcp: *mut bypath_tcp,
    how: u32,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let how = match how {
            BYPATH_SHUT_READ => Shutdown::Read,
            BYPATH_SHUT_WRITE => Shutdown::Write,
            BYPATH_SHUT_BOTH => Shutdown::Both,
            other => return Err(unknown("how", other)),
        };
        with(tcp, |t| Ok(t.shutdown(how)?))
    })
}

/// Ends the connection at once, with a reset: what was written and not acknowledged is lost; what came can still be read, and
/// then there is an end (`bypath_tcp_read`: 0 octets, no error); writing fails with `BYPATH_E_CLOSED`. Calls that wait end. It is still
/// to be closed; a second time does nothing. Fails with `BYPATH_E_GONE`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_abort(tcp: *mut bypath_tcp, error: *mut bypath_error) -> bypath_status {
    guarded(error, || with(tcp, |t| Ok(t.abort()?)))
}

/// Its own address and port. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_local(
    tcp: *mut bypath_tcp,
    local: *mut bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(local, "local", with(tcp, |t| Ok(t.local_addr()?))?.into()))
}

/// The other side's. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_remote(
    tcp: *mut bypath_tcp,
    remote: *mut bypath_endpoint,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(remote, "remote", with(tcp, |t| Ok(t.peer_addr()?))?.into()))
}

/// Changes the longest waits of calls that begin afterwards, in ns: of those that read, and of those that write.
/// `BYPATH_FOREVER`: no limit; 0: they do not wait, and answer `BYPATH_E_WOULD_BLOCK`. Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_set_timeouts(
    tcp: *mut bypath_tcp,
    read_ns: u64,
    write_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        with(tcp, |t| {
            t.set_timeouts(timeout(read_ns), timeout(write_ns));
            Ok(())
        })
    })
}

/// What it wants now; `timeout_ns` is that of calls that read. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_read_options(
    tcp: *mut bypath_tcp,
    options: *mut bypath_tcp_options,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let now = with(tcp, |t| {
            let (options, settings) = t.settings()?;
            Ok(told(&options, &settings, t.read_timeout()?))
        })?;
        write(options, "options", now)
    })
}

/// Wants something else, but for what is for opening: that stays. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_set_options(
    tcp: *mut bypath_tcp,
    options: *const bypath_tcp_options,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let wanted = read(options, "options")?.checked()?;
        with(tcp, |t| {
            Ok(t.set(|options, settings| {
                let (only_v6, reuse_port) = (options.only_v6, options.reuse_port);
                wanted.put(options, settings);
                (options.only_v6, options.reuse_port) = (only_v6, reuse_port);
            })?)
        })
    })
}

/// How it does. Fails with `BYPATH_E_INVALID`, `BYPATH_E_GONE`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_read_statistics(
    tcp: *mut bypath_tcp,
    statistics: *mut bypath_tcp_statistics,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || write(statistics, "statistics", with(tcp, |t| Ok(t.statistics()?))?.into()))
}

/// One of its two descriptors to poll. Both are polled for POLLIN: the one for `BYPATH_READABLE` is readable while a call that reads
/// would not wait, the one for `BYPATH_WRITABLE` while one that writes would not, and when a connection that was begun is open or
/// has failed. Calls that fail at once do not wait, either. After a write that found no room for everything there is room when half
/// of it is free. Two threads that read may both be told of the same octets.
///
/// Poll them, and do nothing else with them; they are valid as long as the connection. Fails with `BYPATH_E_INVALID`,
/// `BYPATH_E_SYSTEM` where none is to be had.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_tcp_descriptor(
    tcp: *mut bypath_tcp,
    what: u32,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let fd = with(tcp, |t| match what {
            BYPATH_READABLE => Ok(t.readable_fd()?.as_raw_fd()),
            BYPATH_WRITABLE => Ok(t.writable_fd()?.as_raw_fd()),
            other => Err(unknown("what", other)),
        })?;
        write(descriptor, "descriptor", fd)
    })
}
