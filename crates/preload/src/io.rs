//! read, write and their vectors; recv and send without a header; calls that move bytes inside the kernel.

use crate::child::borrowed_memory;
use crate::datagrams::{self, Beside};
use crate::errno::{answer, fail, is_still, still};
use crate::memory;
use crate::real::hook;
use crate::served::{received, received_flagged, sent};
use crate::udp;
use bypath_sockets::hook::{self, MeantAll, Reason, Verdict, served};
use bypath_sys::user::{IoVec, UserVec};
use libc::{c_int, c_uint, c_void, iovec, off_t, size_t};

// recv and send cut a larger length before they look at the buffer; read and write look first.
pub(crate) use bypath_sys::user::MAX_BYTES;

/// No buffer is that long: EFAULT for read and write. An element of a vector may not even be longer: EINVAL.
const TOO_LONG: usize = isize::MAX as usize;

/// Wraps the program's buffers for the engine.
#[inline]
pub(crate) fn user(iov: &[IoVec]) -> UserVec<'_> {
    // SAFETY: every caller passes the addresses that the program gave to the call that is running.
    unsafe { UserVec::new(iov) }
}

/// Carries out the engine's verdict; `real` is the program's own call.
#[inline]
pub(crate) fn settle(verdict: Verdict, real: impl FnOnce() -> isize) -> isize {
    match verdict {
        Verdict::NotOurs | Verdict::Served => real(),
        Verdict::Kernel(cold) | Verdict::ServedKernel(cold) => {
            let ret = real();
            cold.finish(ret);
            ret
        }
        Verdict::Done(moved) => answer(moved.result()),
    }
}

/// Before a call whose arguments can only be judged by the kernel. False, as of those below: it fails ([`still`]).
#[cold]
#[inline(never)]
#[must_use]
pub(crate) fn to_kernel(fd: c_int) -> bool {
    still([fd], || hook::recall(fd, Reason::RecalledSplice, false))
}

/// Before a call whose list cannot be a slice.
#[cold]
#[inline(never)]
#[must_use]
pub(crate) fn unless_refused(fd: c_int, list: *const iovec) -> bool {
    !memory::misaligned(list) || to_kernel(fd)
}

/// Before a call with MSG_OOB.
#[cold]
#[inline(never)]
#[must_use]
pub(crate) fn urgent(fd: c_int) -> bool {
    still([fd], || hook::recall(fd, Reason::RecalledOob, true))
}

/// A datagram that does not come by the program's own call alone; `None`: the descriptor is no such socket.
#[inline]
fn datagram_in(fd: c_int, iov: &[IoVec], flags: c_int, real: impl FnOnce() -> isize) -> Option<isize> {
    if !hook::moves_datagrams() {
        return None;
    }
    if let Some(r) = udp::of(fd) {
        return Some(udp::receive_plain(fd, r, iov, flags, real));
    }
    let came =
        if datagrams::concerns(fd) { datagrams::receive(fd, iov, Beside::default(), flags) } else { None };
    came.map(|came| came.len)
}

/// The same of one that is sent.
#[inline]
fn datagram_out(fd: c_int, iov: &[IoVec], flags: c_int, real: impl FnOnce() -> isize) -> Option<isize> {
    if !hook::moves_datagrams() {
        return None;
    }
    if let Some(r) = udp::to_send(fd) {
        return Some(udp::send(fd, r, iov, Beside::default(), flags, real));
    }
    if datagrams::concerns(fd) { datagrams::send(fd, iov, Beside::default(), flags) } else { None }
}

hook! {
    /// `read()`. A zero-length read of a socket never waits, unlike a zero-length recv: the kernel answers it.
    fn read(fd: c_int, buf: *mut c_void, len: size_t) -> isize, raw Some(libc::SYS_read); aka __read;
    only hook::concerns_read(fd); {
        if len == 0 {
            return real(fd, buf, len);
        }
        let iov = [IoVec { base: buf as usize, len: len.min(TOO_LONG) }];
        if let Some(n) = datagram_in(fd, &iov, 0, || real(fd, buf, len)) {
            return n;
        }
        received(fd, hook::recv(fd, user(&iov), 0), 0, || real(fd, buf, len))
    }

    /// `read()` with the buffer's size known to the compiler.
    fn __read_chk(fd: c_int, buf: *mut c_void, len: size_t, size: size_t) -> isize, raw Some(libc::SYS_read);
    only hook::concerns_read(fd); {
        // Too small a buffer: the C library reports it and aborts.
        if len > size || len == 0 {
            return real(fd, buf, len, size);
        }
        let iov = [IoVec { base: buf as usize, len: len.min(TOO_LONG) }];
        if let Some(n) = datagram_in(fd, &iov, 0, || real(fd, buf, len, size)) {
            return n;
        }
        received(fd, hook::recv(fd, user(&iov), 0), 0, || real(fd, buf, len, size))
    }

    /// `write()`.
    fn write(fd: c_int, buf: *const c_void, len: size_t) -> isize, raw Some(libc::SYS_write); aka __write;
    only hook::is_followed(fd); {
        let iov = [IoVec { base: buf as usize, len: len.min(TOO_LONG) }];
        if let Some(n) = datagram_out(fd, &iov, 0, || real(fd, buf, len)) {
            return n;
        }
        sent(fd, hook::send(fd, user(&iov), 0), &iov, 0, || real(fd, buf, len), |rest| real(fd, rest[0].base as _, rest[0].len))
    }

    /// `readv()`.
    fn readv(fd: c_int, iov: *const iovec, count: c_int) -> isize, raw Some(libc::SYS_readv);
    only hook::concerns_read(fd); {
        match memory::iovecs(iov, count as usize) {
            Some(v) if v.iter().any(|e| e.len != 0) => match datagram_in(fd, v, 0, || real(fd, iov, count)) {
                Some(n) => n,
                None => received(fd, hook::recv(fd, user(v), 0), 0, || real(fd, iov, count)),
            },
            // Nothing to read: as read() above.
            Some(_) => real(fd, iov, count),
            None if unless_refused(fd, iov) => real(fd, iov, count),
            None => -1,
        }
    }

    /// `writev()`.
    fn writev(fd: c_int, iov: *const iovec, count: c_int) -> isize, raw Some(libc::SYS_writev);
    only hook::is_followed(fd); {
        match memory::iovecs(iov, count as usize) {
            Some(v) if v.iter().any(|e| e.len != 0) => match datagram_out(fd, v, 0, || real(fd, iov, count)) {
                Some(n) => n,
                None => sent(fd, hook::send(fd, user(v), 0), v, 0, || real(fd, iov, count), |rest| {
                    real(fd, rest.as_ptr().cast(), rest.len() as c_int)
                }),
            },
            // Nothing to write: the socket is not asked, not even whether it may be written to.
            Some(_) => real(fd, iov, count),
            None if unless_refused(fd, iov) => real(fd, iov, count),
            None => -1,
        }
    }

    /// `preadv2()`: offset -1 is readv() with flags; any other offset is ESPIPE on a socket.
    fn preadv2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize, raw None; aka preadv64v2; {
        if offset == -1 && hook::is_followed(fd) {
            let list = memory::iovecs(iov, count as usize);
            if list.is_some_and(|v| v.iter().all(|e| e.len == 0)) {
                // As readv() above.
                return real(fd, iov, count, offset, flags);
            }
            if let (Some(v), Some(how)) = (list, message_flags(flags)) {
                if let Some(n) = datagram_in(fd, v, how, || real(fd, iov, count, offset, flags)) {
                    return n;
                }
                return received(fd, hook::recv(fd, user(v), how), how, || real(fd, iov, count, offset, flags));
            }
            let holds = if list.is_some() { to_kernel(fd) } else { unless_refused(fd, iov) };
            if !holds {
                return -1;
            }
        }
        real(fd, iov, count, offset, flags)
    }

    /// `pwritev2()`, as preadv2().
    fn pwritev2(fd: c_int, iov: *const iovec, count: c_int, offset: off_t, flags: c_int) -> isize, raw None; aka pwritev64v2; {
        if offset == -1 && hook::is_followed(fd) {
            let list = memory::iovecs(iov, count as usize);
            if let (Some(v), Some(how)) = (list, message_flags(flags)) {
                if v.iter().all(|e| e.len == 0) {
                    // As writev() above.
                    return real(fd, iov, count, offset, flags);
                }
                if let Some(n) = datagram_out(fd, v, how, || real(fd, iov, count, offset, flags)) {
                    return n;
                }
                return sent(fd, hook::send(fd, user(v), how), v, how, || real(fd, iov, count, offset, flags), |rest| {
                    real(fd, rest.as_ptr().cast(), rest.len() as c_int, offset, flags)
                });
            }
            let holds = if list.is_some() { to_kernel(fd) } else { unless_refused(fd, iov) };
            if !holds {
                return -1;
            }
        }
        real(fd, iov, count, offset, flags)
    }

    /// `recv()`.
    fn recv(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int) -> isize, raw Some(libc::SYS_recvfrom);
    only hook::concerns_read(fd); {
        let iov = [IoVec { base: buf as usize, len: len.min(MAX_BYTES) }];
        // UDP has nothing urgent: the kernel passes that flag over.
        if let Some(n) = datagram_in(fd, &iov, flags, || real(fd, buf, len, flags)) {
            return n;
        }
        if flags & libc::MSG_OOB != 0 && !served::is_served(fd) {
            return if urgent(fd) { real(fd, buf, len, flags) } else { -1 };
        }
        received_flagged(fd, hook::recv(fd, user(&iov), flags), len, flags, || real(fd, buf, len, flags))
    }

    /// `recv()` with the buffer's size known to the compiler.
    fn __recv_chk(fd: c_int, buf: *mut c_void, len: size_t, size: size_t, flags: c_int) -> isize, raw None; {
        if len > size {
            return real(fd, buf, len, size, flags);
        }
        // SAFETY: same buffer, same contract.
        unsafe { recv(fd, buf, len, flags) }
    }

    /// `send()`.
    fn send(fd: c_int, buf: *const c_void, len: size_t, flags: c_int) -> isize, raw Some(libc::SYS_sendto); aka __send;
    only hook::is_followed(fd); {
        let iov = [IoVec { base: buf as usize, len: len.min(MAX_BYTES) }];
        if let Some(n) = datagram_out(fd, &iov, flags, || real(fd, buf, len, flags)) {
            return n;
        }
        if flags & libc::MSG_OOB != 0 && !served::is_served(fd) {
            return if urgent(fd) { real(fd, buf, len, flags) } else { -1 };
        }
        if let Some(refused) = crate::served::fast_open(fd, flags, std::ptr::null(), 0) {
            return refused;
        }
        sent(fd, hook::send(fd, user(&iov), flags), &iov, flags, || real(fd, buf, len, flags), |rest| {
            real(fd, rest[0].base as _, rest[0].len, flags)
        })
    }

    /// `sendfile()`: a file goes into a ring in pieces. Else the kernel moves the bytes, after those that are in the ring.
    fn sendfile(out: c_int, from: c_int, offset: *mut off_t, count: size_t) -> isize, raw Some(libc::SYS_sendfile); aka sendfile64; {
        if hook::is_followed(out) && !hook::is_followed(from) && !borrowed_memory() {
            let kernel = |out, from, count| real(out, from, offset, count);
            return crate::sendfile::send(out, from, offset, count, kernel, |out, from| to_kernel_pair(from, out));
        }
        if to_kernel_pair(from, out) { real(out, from, offset, count) } else { -1 }
    }

    /// `splice()`, as sendfile().
    fn splice(from: c_int, from_offset: *mut i64, out: c_int, out_offset: *mut i64, len: size_t, flags: c_uint) -> isize,
    raw Some(libc::SYS_splice); {
        if !to_kernel_pair(from, out) {
            return -1;
        }
        let moved = real(from, from_offset, out, out_offset, len, flags);
        // The end of a pair may stand for a reset.
        if moved == 0 && len != 0 && hook::serves() {
            return crate::served::ended(from);
        }
        if moved == 0 && len != 0 && hook::is_cut_short(from) { fail(libc::ECONNRESET) } else { moved }
    }

    /// `aio_read()`: helper threads of the C library read where nobody sees it.
    fn aio_read(block: *mut libc::aiocb) -> c_int, raw None; {
        unseen(block);
        real(block)
    }

    /// `aio_read64()`.
    fn aio_read64(block: *mut libc::aiocb) -> c_int, raw None; {
        unseen(block);
        real(block)
    }

    /// `aio_write()`.
    fn aio_write(block: *mut libc::aiocb) -> c_int, raw None; {
        unseen(block);
        real(block)
    }

    /// `aio_write64()`.
    fn aio_write64(block: *mut libc::aiocb) -> c_int, raw None; {
        unseen(block);
        real(block)
    }

    /// `lio_listio()`.
    fn lio_listio(mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut c_void) -> c_int, raw None; {
        all_unseen(list, count);
        real(mode, list, count, event)
    }

    /// `lio_listio64()`.
    fn lio_listio64(mode: c_int, list: *const *mut libc::aiocb, count: c_int, event: *mut c_void) -> c_int, raw None; {
        all_unseen(list, count);
        real(mode, list, count, event)
    }
}

/// The MSG_* form of RWF_* flags, where there is one.
fn message_flags(flags: c_int) -> Option<c_int> {
    match flags {
        0 => Some(0),
        libc::RWF_NOWAIT => Some(libc::MSG_DONTWAIT),
        _ => None,
    }
}

fn to_kernel_pair(from: c_int, to: c_int) -> bool {
    still([from, to], || {
        for (fd, sending) in [(from, false), (to, true)] {
            if hook::is_followed(fd) {
                hook::recall_for_splice(fd, sending);
            }
        }
    })
}

/// The C library looks the number up later, whatever it means by then.
fn unseen(block: *mut libc::aiocb) {
    // The descriptor is the first member of the block.
    if let Some(fd) = memory::read(block.cast::<c_int>())
        && hook::is_followed(fd)
    {
        hook::recall(fd, Reason::RecalledSplice, true);
    }
}

fn all_unseen(list: *const *mut libc::aiocb, count: c_int) {
    for block in memory::slice(list, usize::try_from(count).unwrap_or(0)).unwrap_or(&[]) {
        if !block.is_null() {
            unseen(*block);
        }
    }
}

/// Before kernel AIO (`io_submit`) on followed descriptors.
#[must_use]
pub(crate) fn submitted(count: libc::c_long, blocks: *const *const u8) -> bool {
    /// Offset of `aio_fildes` in `struct iocb` (linux/aio_abi.h).
    const FD_AT: usize = 20;
    let each = |f: &mut dyn FnMut(c_int)| {
        for block in memory::slice(blocks, usize::try_from(count).unwrap_or(0)).unwrap_or(&[]) {
            if let Some(fd) = memory::read(block.wrapping_add(FD_AT).cast::<c_int>()) {
                f(fd);
            }
        }
    };
    let meant = MeantAll::begin(each);
    each(&mut |fd| {
        if hook::is_followed(fd) {
            hook::recall(fd, Reason::RecalledSplice, true);
        }
    });
    is_still(meant.gone(each))
}
