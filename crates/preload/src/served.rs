//! Calls on sockets of a netstack service (docs/netstack-service.md): pairs of AF_UNIX sockets in the clothes of TCP ones.
//!
//! Octets go by the real functions. What is done beside them: no address and no control message of AF_UNIX gets in or out, a
//! broken pipe raises its signal only once it is known that it is no reset, and an end is asked about.

use crate::errno::{self, answer, fail, kept};
use crate::memory;
use crate::real::{cancellable, index, load};
use bypath_sockets::hook::{self, Cold, Moved, SocketName, Verdict, served};
use bypath_sys::Errno;
use bypath_sys::user::IoVec;
use libc::{c_int, c_void, cmsghdr, iovec, msghdr, size_t, sockaddr, socklen_t};

/// Octets of the record that comes for each connection to accept.
const RECORD: usize = 80;
/// Longest socket address that the kernel takes.
const MAX_ADDRESS: usize = 128;

/// The real `sendmsg` or `recvmsg`.
///
/// # Safety
/// That of the C functions.
pub(crate) unsafe fn message<const I: usize>(fd: c_int, message: *mut msghdr, flags: c_int) -> isize {
    let address = load::<I>();
    // SAFETY: both take a descriptor, a header and flags; a C library without them has no sockets.
    unsafe {
        let f = cancellable!(pointer! address, (c_int, *mut msghdr, c_int) -> isize);
        f(fd, message, flags)
    }
}

/// A header for a list, and nothing beside it.
pub(crate) fn header(iov: *const iovec, count: usize) -> msghdr {
    // SAFETY: zeroes are a valid value.
    let mut m: msghdr = unsafe { std::mem::zeroed() };
    m.msg_iov = iov.cast_mut();
    m.msg_iovlen = count;
    m
}

/// Carries out a verdict on a call that sends `iov`; `real` is the program's own call, and `rest` one of the same kind for what is left of it.
#[inline]
pub(crate) fn sent(
    fd: c_int,
    verdict: Verdict,
    iov: &[IoVec],
    flags: c_int,
    real: impl FnOnce() -> isize,
    rest: impl FnOnce(&[IoVec]) -> isize,
) -> isize {
    match verdict {
        Verdict::Done(moved) if hook::is_sealed() && is_part(moved, iov) && hook::lacks_the_rest() => {
            with_the_rest(iov, moved.result().unwrap_or(0), rest)
        }
        Verdict::Served => send(fd, iov, flags),
        Verdict::ServedKernel(cold) => reported(cold, || send(fd, iov, flags)),
        Verdict::Done(moved) if moved.is(Errno::PIPE) && hook::serves() && served::is_served(fd) => {
            broken(Errno::PIPE, flags)
        }
        verdict => crate::io::settle(verdict, real),
    }
}

/// Whether it may be less than there is.
#[inline]
fn is_part(moved: Moved, iov: &[IoVec]) -> bool {
    moved.is_some() && !matches!(iov, [one] if moved == Moved::octets(one.len))
}

/// The call goes on behind the first `done` octets, which were moved, by the program's own call. More elements than fit here are left to its next one.
#[cold]
#[inline(never)]
fn with_the_rest(iov: &[IoVec], done: usize, rest: impl FnOnce(&[IoVec]) -> isize) -> isize {
    const ENDS: [c_int; 5] =
        [libc::ECONNRESET, libc::ECONNABORTED, libc::ETIMEDOUT, libc::EHOSTUNREACH, libc::ENETUNREACH];
    let mut left = [IoVec { base: 0, len: 0 }; 64];
    let (mut before, mut n) = (done, 0);
    for element in iov {
        let skipped = before.min(element.len);
        before -= skipped;
        if skipped < element.len && n < left.len() {
            left[n] = IoVec { base: element.base + skipped, len: element.len - skipped };
            n += 1;
        }
    }
    if n == 0 {
        return done as isize;
    }
    let said = errno::get();
    match rest(&left[..n]) {
        more @ 0.. => done as isize + more,
        // The kernel tells it once, and of a connection that is over nobody has what was sent.
        failed if ENDS.contains(&errno::get()) => failed,
        _ => {
            errno::set(said);
            done as isize
        }
    }
}

/// Carries out a verdict on a call that receives; `real` is the program's own call.
#[inline]
pub(crate) fn received(fd: c_int, verdict: Verdict, flags: c_int, real: impl FnOnce() -> isize) -> isize {
    match verdict {
        Verdict::Served => receive(fd, flags, real),
        Verdict::ServedKernel(cold) => reported(cold, || receive(fd, flags, real)),
        verdict => crate::io::settle(verdict, real),
    }
}

/// A call of a socket that is followed.
#[inline]
pub(crate) fn reported(cold: Cold, call: impl FnOnce() -> isize) -> isize {
    let n = call();
    cold.finish(n);
    n
}

/// A send with a control message or a flag that a connection of the stack has no use for.
pub(crate) fn send_plainly(fd: c_int, iov: &[IoVec], flags: c_int) -> isize {
    let verdict = hook::send(fd, crate::io::user(iov), flags & !libc::MSG_FASTOPEN);
    sent(fd, verdict, iov, flags, || send(fd, iov, flags), |rest| send(fd, rest, flags))
}

/// As [`received`], of a call with flags for a message and room for `len` octets.
#[inline]
pub(crate) fn received_flagged(
    fd: c_int,
    verdict: Verdict,
    len: usize,
    flags: c_int,
    real: impl FnOnce() -> isize,
) -> isize {
    match verdict {
        Verdict::Served if flags & libc::MSG_TRUNC != 0 => discard(fd, len, flags),
        Verdict::ServedKernel(cold) if flags & libc::MSG_TRUNC != 0 => {
            reported(cold, || discard(fd, len, flags))
        }
        // An urgent octet that nobody has room for: AF_UNIX counts it.
        verdict if flags & libc::MSG_OOB != 0 && len == 0 => received(fd, verdict, flags, real).min(0),
        verdict => received(fd, verdict, flags, real),
    }
}

/// A receive with MSG_TRUNC: TCP counts the octets, takes them away, and leaves the program's memory alone.
#[cold]
pub(crate) fn discard(fd: c_int, len: usize, flags: c_int) -> isize {
    const PIECE: usize = 4096;
    let mut scratch = [0u8; PIECE];
    let base = scratch.as_mut_ptr().cast::<c_void>();
    // All pieces are the same memory; what is longer is a short receive.
    let iov: [iovec; 16] =
        std::array::from_fn(|n| iovec { iov_base: base, iov_len: len.saturating_sub(n * PIECE).min(PIECE) });
    let flags = flags & !libc::MSG_TRUNC;
    receive(fd, flags, || {
        let mut m = header(iov.as_ptr(), iov.len());
        // SAFETY: a header whose addresses are of locals; the kernel alone writes to the scratch.
        unsafe { message::<{ index("recvmsg") }>(fd, &raw mut m, flags) }
    })
}

/// Any call that sends octets.
pub(crate) fn send(fd: c_int, iov: &[IoVec], flags: c_int) -> isize {
    if let Err(e) = kept(|| served::may_move(fd, true)) {
        return broken(e, flags);
    }
    let mut flags = flags;
    if flags & libc::MSG_OOB != 0 {
        if iov.iter().all(|piece| piece.len == 0) {
            flags &= !libc::MSG_OOB;
        } else if let Err(e) = kept(|| served::urges(fd)) {
            return broken(e, flags);
        }
    }
    // `IoVec` is laid out as `struct iovec`.
    let mut m = header(iov.as_ptr().cast(), iov.len());
    // SAFETY: the program's own list, in a header of ours.
    let ret = unsafe {
        message::<{ index("sendmsg") }>(fd, &raw mut m, flags & !libc::MSG_FASTOPEN | libc::MSG_NOSIGNAL)
    };
    // The pair's own error is no news of the connection.
    if ret < 0 && matches!(errno::get(), libc::EPIPE | libc::ECONNRESET) {
        return broken(kept(|| served::ended(fd, true)).unwrap_or(Errno::PIPE), flags);
    }
    ret
}

#[cold]
fn broken(error: Errno, flags: c_int) -> isize {
    if error == Errno::PIPE && flags & libc::MSG_NOSIGNAL == 0 {
        // SAFETY: a signal to the calling thread, as the kernel sends it.
        unsafe { libc::raise(libc::SIGPIPE) };
    }
    fail(error.raw_os_error())
}

/// Any call that receives octets, by `real`, with neither address nor control messages.
pub(crate) fn receive(fd: c_int, flags: c_int, real: impl FnOnce() -> isize) -> isize {
    if flags & libc::MSG_ERRQUEUE != 0 {
        return fail(libc::EAGAIN);
    }
    if let Err(e) = kept(|| served::may_move(fd, false)) {
        return fail(e.raw_os_error());
    }
    let ret = real();
    if ret != 0 && !(ret < 0 && errno::get() == libc::ECONNRESET) {
        return ret;
    }
    ended(fd)
}

/// A call has met the end of what comes: what the program is told.
#[cold]
pub(crate) fn ended(fd: c_int) -> isize {
    match kept(|| served::ended(fd, false)) {
        Some(e) => fail(e.raw_os_error()),
        // The pair's own error is no news of the connection.
        None => 0,
    }
}

/// `recvmsg()`: into the program's buffers, with a header of ours.
pub(crate) fn receive_message(fd: c_int, to: *mut msghdr, m: &msghdr, iov: &[IoVec], flags: c_int) -> isize {
    let mut own = header(m.msg_iov, m.msg_iovlen);
    let n = if flags & libc::MSG_TRUNC != 0 {
        discard(fd, iov.iter().map(|piece| piece.len).sum(), flags)
    } else {
        receive(fd, flags, || {
            // SAFETY: the program's own list, in a header of ours.
            unsafe { message::<{ index("recvmsg") }>(fd, &raw mut own, flags) }
        })
    };
    if n < 0 {
        return n;
    }
    let mut out = *m;
    if !m.msg_name.is_null() {
        out.msg_namelen = 0;
    }
    out.msg_controllen = 0;
    out.msg_flags = own.msg_flags | flags & libc::MSG_CMSG_CLOEXEC;
    if memory::write(to, out) { n } else { fail(libc::EFAULT) }
}

/// The program's address; EFAULT where it cannot be read, EINVAL where it is too long.
fn address(at: *const sockaddr, len: socklen_t, room: &mut [u8; MAX_ADDRESS]) -> Result<&[u8], Errno> {
    let Some(room) = room.get_mut(..len as usize) else { return Err(Errno::INVAL) };
    let bytes = memory::slice(at.cast::<u8>(), len as usize).ok_or(Errno::FAULT)?;
    room.copy_from_slice(bytes);
    Ok(room)
}

fn done(result: Result<(), Errno>) -> c_int {
    answer(result.map(|()| 0))
}

/// A call with an address: what `ask` says to it, where it can be read at all.
fn addressed(
    at: *const sockaddr,
    len: socklen_t,
    ask: impl FnOnce(&[u8]) -> Option<Result<(), Errno>>,
) -> Option<c_int> {
    let mut room = [0; MAX_ADDRESS];
    // The kernel refuses what cannot be read, whatever the socket is.
    let raw = address(at, len, &mut room).ok()?;
    kept(|| ask(raw)).map(done)
}

/// `bind()`; `None`: the real call.
#[cold]
pub(crate) fn bind(fd: c_int, at: *const sockaddr, len: socklen_t) -> Option<c_int> {
    addressed(at, len, |raw| served::bind(fd, raw))
}

/// `connect()`; `None`: the real call.
#[cold]
pub(crate) fn connect(fd: c_int, at: *const sockaddr, len: socklen_t) -> Option<c_int> {
    addressed(at, len, |raw| served::connect(fd, raw))
}

/// A send with MSG_FASTOPEN is a connect before it, and nothing more here: the octets go when it is done. `Some`: that
/// failed, or is under way, or there is a connection already.
#[cold]
pub(crate) fn fast_open(fd: c_int, flags: c_int, at: *const sockaddr, len: socklen_t) -> Option<isize> {
    if flags & libc::MSG_FASTOPEN == 0 || !served::is_active() {
        return None;
    }
    if at.is_null() {
        return kept(|| served::is_connected(fd)).then(|| fail(libc::EISCONN));
    }
    // As the kernel, whatever the socket is.
    let dissolves = addressed(at, len, |raw| {
        (served::dissolves(raw) && served::is_served(fd)).then_some(Err(Errno::OPNOTSUPP))
    });
    if dissolves.is_some() {
        return dissolves.map(|_| -1);
    }
    let connected = connect(fd, at, len)?;
    (connected < 0).then_some(-1)
}

/// `listen()`; `None`: the real call.
#[cold]
pub(crate) fn listen(fd: c_int, backlog: c_int) -> Option<c_int> {
    kept(|| served::listen(fd, backlog)).map(done)
}

/// `shutdown()`; `None`: the real call.
#[cold]
pub(crate) fn shutdown(fd: c_int, how: c_int) -> Option<c_int> {
    kept(|| served::shutdown(fd, how)).map(done)
}

/// Stores an address as the kernel does: cut to the program's room, with the length that it has.
pub(crate) fn store(name: &SocketName, at: *mut sockaddr, len: *mut socklen_t) -> c_int {
    let Some(room) = memory::read(len) else { return fail(libc::EFAULT) };
    if (room as c_int) < 0 {
        return fail(libc::EINVAL);
    }
    let bytes = name.as_bytes();
    let cut = &bytes[..bytes.len().min(room as usize)];
    match memory::slice_mut(at.cast::<u8>(), cut.len()) {
        Some(to) => to.copy_from_slice(cut),
        None => return fail(libc::EFAULT),
    }
    memory::write(len, bytes.len() as socklen_t);
    0
}

/// `getsockname()`, or `getpeername()`, after the real call has answered `ret`.
#[cold]
pub(crate) fn name(fd: c_int, peer: bool, at: *mut sockaddr, len: *mut socklen_t) -> Option<c_int> {
    Some(match kept(|| served::name(fd, peer))? {
        Ok(name) => store(&name, at, len),
        Err(e) => fail(e.raw_os_error()),
    })
}

/// A control message with one descriptor.
#[repr(C, align(8))]
struct Control {
    header: cmsghdr,
    fd: c_int,
    pad: c_int,
}

/// `accept()` and `accept4()`; `None`: the real call.
#[cold]
pub(crate) fn accept(fd: c_int, at: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> Option<c_int> {
    if let Err(e) = kept(|| served::accept_begin(fd))? {
        return Some(fail(e.raw_os_error()));
    }
    if flags & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC) != 0 {
        return Some(fail(libc::EINVAL));
    }
    if !at.is_null() && memory::read(len).is_none_or(|room| (room as c_int) < 0) {
        return Some(fail(if memory::read(len).is_none() { libc::EFAULT } else { libc::EINVAL }));
    }
    let mut record = [0u8; RECORD];
    let iov = iovec { iov_base: record.as_mut_ptr().cast(), iov_len: RECORD };
    // SAFETY: zeroes are a valid value.
    let mut control: Control = unsafe { std::mem::zeroed() };
    let mut m = header(&raw const iov, 1);
    m.msg_control = (&raw mut control).cast::<c_void>();
    m.msg_controllen = size_of::<Control>() as size_t;
    let how = if flags & libc::SOCK_CLOEXEC != 0 { libc::MSG_CMSG_CLOEXEC } else { 0 };
    // SAFETY: a header whose addresses are of locals.
    let got = unsafe { message::<{ index("recvmsg") }>(fd, &raw mut m, how) };
    // ENOTSOCK: another thread was first, and has put a timer in its place.
    if got < 0 && !matches!(errno::get(), libc::ECONNRESET | libc::ENOTSOCK) {
        return Some(-1);
    }
    if got <= 0 {
        // The service is gone, or the socket does not listen any more.
        return Some(fail(kept(|| served::listener_ended(fd)).raw_os_error()));
    }
    let passed = m.msg_controllen >= size_of::<cmsghdr>() + size_of::<c_int>()
        && control.header.cmsg_level == libc::SOL_SOCKET
        && control.header.cmsg_type == libc::SCM_RIGHTS;
    let new = passed.then_some(control.fd);
    Some(match kept(|| served::accepted(fd, &record[..got as usize], new, flags)) {
        Ok(from) if !at.is_null() && store(&from, at, len) < 0 => {
            // SAFETY: a descriptor that nobody knows yet.
            unsafe { crate::sock::close(new.unwrap_or(-1)) };
            fail(libc::EFAULT)
        }
        Ok(_) => new.unwrap_or(-1),
        Err(e) => fail(e.raw_os_error()),
    })
}

/// `getsockopt()`; `None`: the real call.
#[cold]
pub(crate) fn option(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> Option<c_int> {
    let mut room = [0; served::LONGEST_OPTION];
    let Ok(most) = usize::try_from(memory::read(len)? as c_int) else {
        return served::is_served(fd).then(|| fail(libc::EINVAL));
    };
    let most = most.min(room.len());
    Some(match kept(|| served::option(fd, level, name, &mut room[..most]))? {
        Err(e) => fail(e.raw_os_error()),
        Ok(n) => match memory::slice_mut(value.cast::<u8>(), n) {
            Some(to) => {
                to.copy_from_slice(&room[..n]);
                memory::write(len, n as socklen_t);
                0
            }
            None => fail(libc::EFAULT),
        },
    })
}

/// `setsockopt()`; `None`: the real call.
#[cold]
pub(crate) fn set_option(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> Option<c_int> {
    if !served::is_served(fd) {
        served::noted(level, name);
        return None;
    }
    let len = (len as usize).min(served::LONGEST_OPTION);
    let Some(bytes) = memory::slice(value.cast::<u8>(), len) else { return Some(fail(libc::EFAULT)) };
    kept(|| served::set_option(fd, level, name, bytes)).map(done)
}
