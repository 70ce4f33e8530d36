//! Calls with an address or a message header: sendto, recvfrom, sendmsg, recvmsg and their vectors.
//!
//! On TCP the kernel ignores a destination address, and answers a length of zero for the source's.

use crate::child::borrowed_memory;
use crate::datagrams::{self, Beside};
use crate::errno::{self, is_still, kept};
use crate::io::{MAX_BYTES, settle, to_kernel, unless_refused, urgent, user};
use crate::memory;
use crate::real::hook;
use crate::served::sent;
use crate::udp;
use bypath_sockets::hook::{self, MeantAll, Parts, Reason, Verdict, served};
use bypath_sys::page::Access;
use bypath_sys::thread::stack_address;
use bypath_sys::user::{IoVec, UserControl};
use libc::{c_int, c_uint, c_void, cmsghdr, mmsghdr, msghdr, size_t, sockaddr, socklen_t, timespec};

/// Longest socket address that the kernel takes (sizeof(struct sockaddr_storage)).
const MAX_ADDRESS: usize = 128;

/// Most messages of one sendmmsg or recvmmsg; the kernel caps the number silently.
const MAX_MESSAGES: usize = 1024;

hook! {
    /// `recvfrom()`.
    fn recvfrom(fd: c_int, buf: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t) -> isize,
    raw Some(libc::SYS_recvfrom);
    only hook::concerns_read(fd); {
        let iov = [IoVec { base: buf as usize, len: len.min(MAX_BYTES) }];
        if hook::moves_datagrams() {
            if let Some(r) = udp::of(fd) {
                return udp::receive_from(fd, r, &iov, flags, (address, address_len), || {
                    real(fd, buf, len, flags, address, address_len)
                });
            }
            if datagrams::concerns(fd)
                && let Some(n) = datagrams::receive_from(fd, &iov, flags, address, address_len)
            {
                return n;
            }
        }
        if flags & libc::MSG_OOB != 0 && !served::is_served(fd) {
            return if urgent(fd) { real(fd, buf, len, flags, address, address_len) } else { -1 };
        }
        match hook::recv(fd, user(&iov), flags) {
            verdict @ (Verdict::Served | Verdict::ServedKernel(_)) => {
                let (none, no_len) = (std::ptr::null_mut(), std::ptr::null_mut());
                let real = || real(fd, buf, len, flags, none, no_len);
                let n = crate::served::received_flagged(fd, verdict, len, flags, real);
                if n < 0 || address.is_null() { n } else { no_source(n as usize, address_len) }
            }
            Verdict::Done(moved) if !address.is_null() => match moved.result() {
                Ok(n) => no_source(n, address_len),
                failed => errno::answer(failed),
            },
            verdict => settle(verdict, || real(fd, buf, len, flags, address, address_len)),
        }
    }

    /// `recvfrom()` with the buffer's size known to the compiler.
    fn __recvfrom_chk(fd: c_int, buf: *mut c_void, len: size_t, size: size_t, flags: c_int, address: *mut sockaddr, address_len: *mut socklen_t) -> isize,
    raw None; {
        if len > size {
            return real(fd, buf, len, size, flags, address, address_len);
        }
        // SAFETY: same buffer, same contract.
        unsafe { recvfrom(fd, buf, len, flags, address, address_len) }
    }

    /// `sendto()`: with an address on a connected TCP socket, send() after the address was checked.
    fn sendto(fd: c_int, buf: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, address_len: socklen_t) -> isize,
    raw Some(libc::SYS_sendto);
    only hook::is_followed(fd); {
        if hook::moves_datagrams()
            && let Some(r) = udp::to_send(fd)
        {
            let iov = [IoVec { base: buf as usize, len: len.min(MAX_BYTES) }];
            return udp::send(fd, r, &iov, Beside::address(address, address_len), flags, || {
                real(fd, buf, len, flags, address, address_len)
            });
        }
        if datagrams::concerns(fd) {
            let iov = [IoVec { base: buf as usize, len: len.min(MAX_BYTES) }];
            return match datagrams::send(fd, &iov, Beside::address(address, address_len), flags) {
                Some(n) => n,
                None => real(fd, buf, len, flags, address, address_len),
            };
        }
        if flags & (libc::MSG_OOB | libc::MSG_FASTOPEN) != 0 {
            if let Some(refused) = crate::served::fast_open(fd, flags, address, address_len) {
                return refused;
            }
            if !served::is_served(fd) {
                let holds = errno::still([fd], || urgent_or_fast_open(fd, flags));
                return if holds { real(fd, buf, len, flags, address, address_len) } else { -1 };
            }
        }
        if !address.is_null() && hook::is_followed(fd) && !acceptable_address(address, address_len) {
            // Refused by the kernel before any byte moves.
            return real(fd, buf, len, flags, address, address_len);
        }
        let iov = [IoVec { base: buf as usize, len: len.min(MAX_BYTES) }];
        sent(
            fd,
            hook::send(fd, user(&iov), flags),
            &iov,
            flags,
            || real(fd, buf, len, flags, address, address_len),
            |rest| real(fd, rest[0].base as _, rest[0].len, flags, address, address_len),
        )
    }

    /// `sendmsg()`.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> isize, raw Some(libc::SYS_sendmsg);
    only hook::is_followed(fd) || has_control(message); {
        send_message(fd, message, flags, (true, None), || real(fd, message, flags))
    }

    /// `recvmsg()`.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> isize, raw Some(libc::SYS_recvmsg);
    only hook::concerns_read(fd) || hook::serves() && has_control(message); {
        let n = receive_message(fd, message, flags, None, || real(fd, message, flags));
        if n >= 0 && hook::serves() && !borrowed_memory() {
            know_passed(message);
        }
        n
    }

    /// `sendmmsg()`.
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int, raw Some(libc::SYS_sendmmsg); {
        let Some(all) = memory::slice_mut(messages, (count as usize).min(MAX_MESSAGES)) else {
            return if to_kernel(fd) { real(fd, messages, count, flags) } else { -1 };
        };
        if !hook::is_followed(fd) || is_the_kernels(fd) {
            let passed = |f: &mut dyn FnMut(c_int)| all.iter().for_each(|m| each_passed(&m.msg_hdr, &mut *f));
            let holds = still(fd, passed, || announce_passed(passed));
            return if holds { real(fd, messages, count, flags) } else { -1 };
        }
        if let Some(r) = udp::to_send(fd) {
            return udp::send_messages(fd, r, all, flags, || real(fd, messages, count, flags));
        }
        let special = flags & (libc::MSG_OOB | libc::MSG_FASTOPEN) != 0;
        if !special
            && all.iter().all(|m| m.msg_hdr.msg_controllen == 0)
            && let Some(report) = hook::several_begin(fd, flags, true)
        {
            let done = real(fd, messages, count, flags);
            report.finish(moved(all, done));
            return done;
        }
        send_messages(fd, all, flags)
    }

    /// `recvmmsg()`.
    fn recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int,
    raw Some(libc::SYS_recvmmsg);
    only hook::is_followed(fd); {
        let all = memory::slice_mut(messages, (count as usize).min(MAX_MESSAGES));
        if datagrams::concerns(fd) && !served::is_served(fd) {
            return real(fd, messages, count, flags, timeout);
        }
        if let Some(r) = udp::of(fd)
            && udp::takes_whole(r)
        {
            return udp::receive_messages(fd, r, all, || real(fd, messages, count, flags, timeout));
        }
        let (Some(all), Ok(limit)) = (all, memory::nanoseconds(timeout)) else {
            return if to_kernel(fd) { real(fd, messages, count, flags, timeout) } else { -1 };
        };
        if flags & libc::MSG_OOB == 0
            && let Some(report) = hook::several_begin(fd, flags, false)
        {
            let done = real(fd, messages, count, flags, timeout);
            report.finish(moved(all, done));
            return done;
        }
        receive_messages(fd, all, flags, limit, timeout)
    }
}

/// Whether `fd` is a socket of datagrams that the kernel has for good.
fn is_the_kernels(fd: c_int) -> bool {
    hook::datagram::of(fd).is_some_and(hook::datagram::Record::is_settled)
}

/// The end of a recvfrom() that moved `n` bytes out of a ring: as the kernel, which has consumed them when it looks
/// at the address's length.
#[cold]
fn no_source(n: usize, address_len: *mut socklen_t) -> isize {
    let Some(room) = memory::read(address_len) else { return errno::fail(libc::EFAULT) };
    if (room as c_int) < 0 {
        return errno::fail(libc::EINVAL);
    }
    memory::write(address_len, 0);
    n as isize
}

fn acceptable_address(address: *const sockaddr, len: socklen_t) -> bool {
    len as usize <= MAX_ADDRESS && (len == 0 || memory::readable(address.cast::<u8>(), len as usize))
}

#[cold]
fn urgent_or_fast_open(fd: c_int, flags: c_int) {
    if flags & libc::MSG_OOB != 0 {
        hook::recall(fd, Reason::RecalledOob, true);
    } else if hook::is_followed(fd) {
        hook::recall(fd, Reason::FastOpen, true);
    }
}

/// Runs `takes_back` before messages on `fd` that pass on what `each` names. False: the call fails ([`still`](errno::still)).
fn still(fd: c_int, each: impl Fn(&mut dyn FnMut(c_int)), takes_back: impl FnOnce()) -> bool {
    let all = |f: &mut dyn FnMut(c_int)| {
        f(fd);
        each(f);
    };
    let meant = MeantAll::begin(all);
    kept(takes_back);
    is_still(meant.gone(all))
}

/// Descriptors that messages pass to another process, those that `each` names, must be on the kernel before they leave.
fn announce_passed(each: impl Fn(&mut dyn FnMut(c_int))) {
    let mut any = false;
    each(&mut |_| any = true);
    if !any {
        return;
    }
    if hook::is_sealed() {
        hook::spread_everything();
    }
    hook::recall_passed(each);
}

/// Every descriptor in a message's control data.
fn each_passed(m: &msghdr, mut f: impl FnMut(c_int)) {
    if m.msg_control.is_null() || m.msg_controllen < size_of::<cmsghdr>() {
        return;
    }
    let start = m.msg_control as usize;
    if !memory::readable(m.msg_control.cast::<u8>(), m.msg_controllen) {
        return;
    }
    let mut at = 0;
    while m.msg_controllen - at >= size_of::<cmsghdr>() {
        let Some(header) = memory::read((start + at) as *const cmsghdr) else { return };
        if header.cmsg_len < size_of::<cmsghdr>() || header.cmsg_len > m.msg_controllen - at {
            return;
        }
        if header.cmsg_level == libc::SOL_SOCKET && header.cmsg_type == libc::SCM_RIGHTS {
            let data = start + at + size_of::<cmsghdr>();
            for i in 0..(header.cmsg_len - size_of::<cmsghdr>()) / size_of::<c_int>() {
                if let Some(fd) = memory::read((data + i * size_of::<c_int>()) as *const c_int) {
                    f(fd);
                }
            }
        }
        at += header.cmsg_len.next_multiple_of(size_of::<usize>());
        if at > m.msg_controllen {
            return;
        }
    }
}

/// After a receive: sockets of a service that came along are known from here on.
#[cold]
fn know_passed(message: *const msghdr) {
    if let Some(m) = memory::read(message) {
        kept(|| each_passed(&m, served::came));
    }
}

/// Whether a message carries control data, which can name other descriptors than the one it is sent on.
#[inline]
fn has_control(message: *const msghdr) -> bool {
    memory::read(message).is_some_and(|m| m.msg_controllen != 0)
}

/// `is_alone`: this is the only message of its call; `rest_since`: it is not the first one of a call, which began after so many handlers.
fn send_message(
    fd: c_int,
    message: *const msghdr,
    flags: c_int,
    (is_alone, rest_since): (bool, Option<u32>),
    real: impl FnOnce() -> isize,
) -> isize {
    let Some((m, iov)) = memory::message(message) else {
        let holds = memory::read(message).is_none_or(|m| {
            let passed = |f: &mut dyn FnMut(c_int)| each_passed(&m, f);
            match hook::is_followed(fd) {
                true => unless_refused(fd, m.msg_iov),
                false => still(fd, passed, || announce_passed(passed)),
            }
        });
        return if holds { real() } else { -1 };
    };
    if hook::moves_datagrams() {
        if let Some(r) = udp::to_send(fd) {
            return udp::send(fd, r, iov, Beside::sent(&m), flags, real);
        }
        if datagrams::concerns(fd)
            && let Some(n) = datagrams::send(fd, iov, Beside::sent(&m), flags)
        {
            return n;
        }
    }
    let has_control = m.msg_controllen != 0;
    if has_control || flags & (libc::MSG_OOB | libc::MSG_FASTOPEN) != 0 {
        let name = m.msg_name.cast_const().cast::<sockaddr>();
        if let Some(refused) = crate::served::fast_open(fd, flags, name, m.msg_namelen) {
            return refused;
        }
        if served::is_served(fd) {
            // TCP passes no descriptors, and has no other use for control messages here.
            return crate::served::send_plainly(fd, iov, flags);
        }
        return if special(fd, &m, flags) { real() } else { -1 };
    }
    if !m.msg_name.is_null() && hook::is_followed(fd) && !acceptable_name(&m) {
        return real();
    }
    let verdict = match rest_since {
        None => hook::send(fd, user(iov), flags),
        Some(handlers) => hook::send_rest(fd, user(iov), flags, handlers),
    };
    sent(fd, verdict, iov, flags, real, |rest| {
        if !is_alone {
            // Of several the call answers with what was sent of the last one.
            return 0;
        }
        let mut m = crate::served::header(rest.as_ptr().cast(), rest.len());
        // SAFETY: the program's own octets, and nothing beside them.
        unsafe { crate::served::message::<{ crate::real::index("sendmsg") }>(fd, &raw mut m, flags) }
    })
}

/// The kernel cuts a header's address length instead of refusing it, unless it is negative.
fn acceptable_name(m: &msghdr) -> bool {
    let len = (m.msg_namelen as usize).min(MAX_ADDRESS);
    (m.msg_namelen as c_int) >= 0 && (len == 0 || memory::readable(m.msg_name.cast::<u8>(), len))
}

/// Control data or a flag that a ring cannot carry. False: the call fails.
#[cold]
fn special(fd: c_int, m: &msghdr, flags: c_int) -> bool {
    let passed = |f: &mut dyn FnMut(c_int)| each_passed(m, f);
    still(fd, passed, || {
        if m.msg_controllen != 0 {
            announce_passed(passed);
            if hook::is_followed(fd) {
                hook::recall(fd, Reason::RecalledOption, true);
            }
        }
        if flags & (libc::MSG_OOB | libc::MSG_FASTOPEN) != 0 {
            urgent_or_fast_open(fd, flags);
        }
    })
}

/// `rest_since` as for a message that is sent.
fn receive_message(
    fd: c_int,
    message: *mut msghdr,
    flags: c_int,
    rest_since: Option<u32>,
    real: impl FnOnce() -> isize,
) -> isize {
    let Some((m, iov)) = memory::message(message) else {
        let holds = memory::read(message).is_none_or(|m| unless_refused(fd, m.msg_iov));
        return if holds { real() } else { -1 };
    };
    if hook::moves_datagrams() {
        if let Some(r) = udp::of(fd) {
            return udp::receive_message(fd, r, (message, &m), iov, flags, real);
        }
        if datagrams::concerns(fd)
            && let Some(n) = datagrams::receive_message(fd, message, &m, iov, flags)
        {
            return n;
        }
    }
    if flags & libc::MSG_OOB != 0 && !served::is_served(fd) {
        return if urgent(fd) { real() } else { -1 };
    }
    if (m.msg_namelen as c_int) < 0 && !m.msg_name.is_null() {
        return real();
    }
    // SAFETY: the room that the program gave to the call that is running.
    let mut control = unsafe { UserControl::new(m.msg_control as usize, m.msg_controllen) };
    match hook::recv_message(fd, user(iov), flags, rest_since, &mut control) {
        Verdict::Done(moved) if let Ok(n) = moved.result() => {
            let mut out = m;
            // The kernel stores the length of the source only where the program asked for the source.
            if !m.msg_name.is_null() {
                out.msg_namelen = 0;
            }
            let told = control.told().or_else(|| Some(tell_rest(&m, hook::rest_to_tell(fd)?)));
            let (used, said) = told.unwrap_or((0, 0));
            out.msg_controllen = used;
            out.msg_flags = flags & libc::MSG_CMSG_CLOEXEC | said;
            // The bytes are consumed all the same.
            if memory::write(message, out) { n as isize } else { errno::fail(libc::EFAULT) }
        }
        Verdict::Served => crate::served::receive_message(fd, message, &m, iov, flags),
        Verdict::ServedKernel(cold) => {
            crate::served::reported(cold, || crate::served::receive_message(fd, message, &m, iov, flags))
        }
        verdict => settle(verdict, real),
    }
}

/// Control message of TCP_INQ after a receive that took bytes out of a ring, as far as the program has room for it. Returns
/// how much it took, and the `MSG_*` flags that go with it.
#[cold]
fn tell_rest(m: &msghdr, rest: c_int) -> (usize, c_int) {
    /// TCP_CM_INQ (linux/tcp.h).
    const INQ: c_int = 36;
    const HEADER: usize = size_of::<cmsghdr>();
    const WHOLE: usize = HEADER + size_of::<c_int>();
    let room = m.msg_controllen;
    if m.msg_control.is_null() || room < HEADER {
        return (0, libc::MSG_CTRUNC);
    }
    let len = room.min(WHOLE);
    let mut bytes = [0; WHOLE];
    bytes[..8].copy_from_slice(&len.to_ne_bytes());
    bytes[8..12].copy_from_slice(&libc::IPPROTO_TCP.to_ne_bytes());
    bytes[12..16].copy_from_slice(&INQ.to_ne_bytes());
    bytes[16..].copy_from_slice(&rest.to_ne_bytes());
    let said = if len < WHOLE { libc::MSG_CTRUNC } else { 0 };
    let to = m.msg_control.cast::<u8>();
    if memory::usable(to, len, Access::Write) < len {
        return (0, said);
    }
    for (i, byte) in bytes[..len].iter().enumerate() {
        memory::write(to.wrapping_add(i), *byte);
    }
    (room.min(len.next_multiple_of(size_of::<usize>())), said)
}

/// The end of a call that failed after `moved` messages: the failure shows only if there is nothing else to tell.
fn partial(moved: usize, errno_before: c_int) -> c_int {
    if moved == 0 {
        return -1;
    }
    errno::set(errno_before);
    moved as c_int
}

/// Bytes of the first `done` messages, as a call that moves bytes would return them.
fn moved(all: &[mmsghdr], done: c_int) -> isize {
    let Ok(done) = usize::try_from(done) else { return -1 };
    all.iter().take(done).map(|m| m.msg_len as isize).sum()
}

/// Signal handlers run between the messages: [`hook::send_rest`]. What the number means by then does not count: [`Parts`].
fn send_messages(fd: c_int, all: &mut [mmsghdr], flags: c_int) -> c_int {
    let parts = Parts::begin(fd, stack_address());
    let handlers = hook::handlers();
    let before = errno::get();
    for (i, m) in all.iter_mut().enumerate() {
        let header = &raw const m.msg_hdr;
        let Some(fd) = (if i == 0 { Some(fd) } else { parts.next() }) else { return i as c_int };
        if i > 0 && hook::is_sealed() {
            // The others are sent by the program's next call: this one's number may be the only one that it may use.
            return i as c_int;
        }
        let rest_since = (i > 0).then_some(handlers);
        let n = send_message(fd, header, flags, (false, rest_since), || {
            parts.hold();
            let Some(fd) = parts.number() else { return errno::fail(libc::EBADF) };
            // SAFETY: a header inside the program's array.
            unsafe { sendmsg(fd, header, flags) }
        });
        if n < 0 {
            return partial(i, before);
        }
        m.msg_len = n as c_uint;
        let whole = memory::message(header).map_or(0, |(_, iov)| iov.iter().map(|v| v.len).sum());
        if (n as usize) < whole {
            // What follows must not overtake the rest.
            return i as c_int + 1;
        }
    }
    all.len() as c_int
}

fn receive_messages(
    fd: c_int,
    all: &mut [mmsghdr],
    mut flags: c_int,
    limit: Option<u64>,
    timeout: *mut timespec,
) -> c_int {
    let wait_for_one = flags & libc::MSG_WAITFORONE != 0;
    flags &= !libc::MSG_WAITFORONE;
    let parts = Parts::begin(fd, stack_address());
    // Unlike recvmsg() this call tells an error before it gives out data.
    if let Some(e) = hook::take_error(fd) {
        return errno::fail(e.raw_os_error());
    }
    let started = now();
    let handlers = hook::handlers();
    let before = errno::get();
    for (i, m) in all.iter_mut().enumerate() {
        let header = &raw mut m.msg_hdr;
        let Some(fd) = (if i == 0 { Some(fd) } else { parts.next() }) else { return i as c_int };
        let rest_since = (i > 0).then_some(handlers);
        let n = receive_message(fd, header, flags, rest_since, || {
            if udp::of(fd).is_some() {
                // SAFETY: a header inside the program's array.
                return unsafe {
                    crate::served::message::<{ crate::real::index("recvmsg") }>(fd, header, flags)
                };
            }
            parts.hold();
            let Some(fd) = parts.number() else { return errno::fail(libc::EBADF) };
            // SAFETY: a header inside the program's array.
            unsafe { recvmsg(fd, header, flags) }
        });
        if n < 0 {
            // EINTR: the kernel keeps a number there that programs are not meant to see.
            if i > 0 && !matches!(errno::get(), libc::EAGAIN | libc::EINTR | libc::EBADF) {
                parts.keep_error(errno::get());
            }
            return partial(i, before);
        }
        m.msg_len = n as c_uint;
        if wait_for_one {
            flags |= libc::MSG_DONTWAIT;
        }
        if let Some(limit) = limit {
            // As in the kernel the time is looked at between messages only.
            let left = limit.saturating_sub(now() - started);
            memory::write(timeout, memory::timespec(left));
            if left == 0 {
                return i as c_int + 1;
            }
        }
    }
    all.len() as c_int
}

/// The monotonic clock in nanoseconds.
pub(crate) fn now() -> u64 {
    let mut t = timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a live timespec; this clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}
