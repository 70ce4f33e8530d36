//! Making, naming and ending sockets and descriptors.

use crate::child::{borrowed_memory, handed_on};
use crate::errno::{self, fail, is_still, kept, still};
use crate::memory;
use crate::real::hook;
use crate::served;
use bypath_sockets::hook::{self, Meant};
use bypath_sys::fd;
use bypath_sys::turn::{Replacing, STANDARD, is_plug};
use libc::{c_int, c_uint, c_void, sockaddr, socklen_t};

/// The port that an address of the internet names, which bind() takes or not; 0: none.
fn port_of(address: *const sockaddr, len: socklen_t) -> u16 {
    // sin_port and sin6_port stand behind the family.
    let start = (len >= 4).then(|| memory::read(address.cast::<[u8; 4]>())).flatten();
    start.map_or(0, |start| u16::from_be_bytes([start[2], start[3]]))
}

/// Whether connect() takes this address, and dissolves a connection by it.
fn dissolves(address: *const sockaddr, len: socklen_t) -> bool {
    let len = len as usize;
    let is_taken = (size_of::<libc::sa_family_t>()..=size_of::<libc::sockaddr_storage>()).contains(&len)
        && memory::readable(address.cast::<u8>(), len);
    is_taken && memory::read(address.cast::<libc::sa_family_t>()) == Some(libc::AF_UNSPEC as u16)
}

hook! {
    /// `socket()`.
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int, raw Some(libc::SYS_socket); {
        let mut fd = real(domain, kind, protocol);
        if fd < 0 && errno::get() == libc::EACCES && !borrowed_memory() && hook::datagram::is_ping(domain, kind, protocol) {
            // The kernel lets this user have none, a service may: until it is that one's, another socket has the number.
            fd = real(domain, kind, 0);
        }
        if fd >= 0 && !borrowed_memory() {
            kept(|| hook::socket_done(fd, domain, kind, protocol));
        }
        fd
    }

    /// `accept()`.
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, raw Some(libc::SYS_accept); {
        if hook::serves() && !borrowed_memory() && let Some(done) = served::accept(fd, address, len, 0) {
            return done;
        }
        accepted(fd, real(fd, address, len), 0)
    }

    /// `accept4()`.
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int, raw Some(libc::SYS_accept4); {
        if hook::serves() && !borrowed_memory() && let Some(done) = served::accept(fd, address, len, flags) {
            return done;
        }
        accepted(fd, real(fd, address, len, flags), flags)
    }

    /// `connect()`.
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, raw Some(libc::SYS_connect); aka __connect;
    only hook::is_followed(fd) || hook::serves(); {
        if !borrowed_memory() {
            if hook::serves() && let Some(done) = served::connect(fd, address, len) {
                return done;
            }
            if !still([fd], || hook::connect_begin(fd, dissolves(address, len))) {
                return -1;
            }
        }
        let ret = real(fd, address, len);
        if !borrowed_memory() {
            let begun = ret == 0 || errno::get() == libc::EINPROGRESS;
            kept(|| hook::connect_end(fd, begun));
        }
        ret
    }

    /// `bind()`: the carrier's answer is the socket's, unless a netstack service has it or gets it.
    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int, raw Some(libc::SYS_bind);
    only hook::moves_datagrams(); {
        if hook::serves() && !borrowed_memory() && let Some(done) = served::bind(fd, address, len) {
            return done;
        }
        if borrowed_memory() {
            return real(fd, address, len);
        }
        let port = port_of(address, len);
        kept(|| hook::bind_begin(fd, port));
        let ret = real(fd, address, len);
        kept(|| hook::named(fd, port != 0));
        ret
    }

    /// `listen()`, as bind().
    fn listen(fd: c_int, backlog: c_int) -> c_int, raw Some(libc::SYS_listen);
    only hook::serves(); {
        if !borrowed_memory() && let Some(done) = served::listen(fd, backlog) {
            return done;
        }
        real(fd, backlog)
    }

    /// `getsockname()`: the carrier's answer is the socket's, unless a netstack service has it.
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, raw Some(libc::SYS_getsockname);
    only hook::serves(); {
        if !borrowed_memory() && let Some(done) = served::name(fd, false, address, len) {
            return done;
        }
        real(fd, address, len)
    }

    /// `getpeername()`, as getsockname().
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int, raw Some(libc::SYS_getpeername);
    only hook::serves(); {
        if !borrowed_memory() && let Some(done) = served::name(fd, true, address, len) {
            return done;
        }
        real(fd, address, len)
    }

    /// `getsockopt()`: the carrier's answer is the socket's, but for an error that a call of ours took from it. One option
    /// receives.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int, raw Some(libc::SYS_getsockopt);
    only hook::serves() || hook::is_followed(fd) && (level == libc::SOL_SOCKET && name == libc::SO_ERROR || hook::receives(level, name)); {
        if hook::serves() && !borrowed_memory() && let Some(done) = served::option(fd, level, name, value, len) {
            return done;
        }
        if !hook::is_followed(fd) {
            return real(fd, level, name, value, len);
        }
        if hook::receives(level, name) {
            let holds = borrowed_memory() || still([fd], || hook::setsockopt_begin(fd, level, name));
            return if holds { real(fd, level, name, value, len) } else { -1 };
        }
        let ret = real(fd, level, name, value, len);
        if ret == 0 && memory::read(len) == Some(size_of::<c_int>() as socklen_t) {
            // The earlier error counts; what the kernel has now came of what was done about it.
            let kept_one = kept(|| hook::take_socket_error(fd));
            if kept_one != 0 {
                memory::write(value.cast::<c_int>(), kept_one);
            }
        }
        ret
    }

    /// `setsockopt()`.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int, raw Some(libc::SYS_setsockopt);
    only hook::is_followed(fd); {
        if borrowed_memory() {
            if !is_still(kept(|| hook::setsockopt_may_by_child(fd, level, name)).err()) {
                return -1;
            }
            let ret = real(fd, level, name, value, len);
            if ret == 0 {
                kept(|| hook::setsockopt_done_by_child(fd, level, name));
            }
            return ret;
        }
        if hook::serves() && let Some(done) = served::set_option(fd, level, name, value, len) {
            return done;
        }
        let begin = || hook::setsockopt_begin(fd, level, name);
        if !hook::option_takes_back(level, name) {
            kept(begin);
        } else if !still([fd], begin) || !is_still(kept(|| hook::setsockopt_may(fd, level, name)).err()) {
            return -1;
        }
        let ret = real(fd, level, name, value, len);
        if ret == 0 {
            kept(|| hook::setsockopt_done(fd, level, name));
        }
        ret
    }

    /// `shutdown()`.
    fn shutdown(fd: c_int, how: c_int) -> c_int, raw Some(libc::SYS_shutdown);
    only hook::is_followed(fd) || hook::serves(); {
        if hook::serves() && !borrowed_memory() && let Some(done) = served::shutdown(fd, how) {
            return done;
        }
        if still([fd], || hook::shutdown_begin(fd, how)) { real(fd, how) } else { -1 }
    }

    /// `close()`.
    fn close(fd: c_int) -> c_int, raw Some(libc::SYS_close); aka __close;
    only hook::is_followed(fd) || hook::is_own_fd(fd) || is_standard(fd); {
        if borrowed_memory() {
            return real(fd);
        }
        if hook::is_own_fd(fd) {
            return fail(libc::EBADF);
        }
        let closing = kept(|| hook::close_begin(fd));
        let ret = {
            let _replacing = is_standard(fd).then(Replacing::begin);
            if is_plug(fd) { fail(libc::EBADF) } else { real(fd) }
        };
        kept(|| closing.finish(ret));
        ret
    }

    /// `close_range()`: the library's own descriptors stay open.
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int, raw Some(libc::SYS_close_range); {
        const CLOSE_RANGE_UNSHARE: c_int = 2;
        const CLOSE_RANGE_CLOEXEC: c_int = 4;
        if flags & CLOSE_RANGE_UNSHARE != 0 {
            kept(hook::unshare_begin);
        }
        if first > last || flags & CLOSE_RANGE_CLOEXEC != 0 || borrowed_memory() {
            return real(first, last, flags);
        }
        around_own(first, last, |a, b| {
            let _replacing = is_standard_from(a).then(Replacing::begin);
            real(a, b, flags)
        })
    }

    /// `closefrom()`: the library's own descriptors stay open.
    fn closefrom(first: c_int) -> (), raw None; {
        if borrowed_memory() {
            return real(first);
        }
        if hook::next_own_fd(0).is_none() {
            kept(|| hook::close_range_begin(first.max(0) as c_uint, c_uint::MAX));
            let _replacing = is_standard_from(first.max(0) as c_uint).then(Replacing::begin);
            return real(first);
        }
        around_own(first.max(0) as c_uint, c_uint::MAX, |a, b| {
            // SAFETY: closes what the program asked to close; ours are outside of a..=b.
            unsafe { close_range(a, b, 0) }
        });
    }

    /// `pidfd_getfd()`: it may be one of our own sockets once more, or one that another process has on rings.
    fn pidfd_getfd(pidfd: c_int, fd: c_int, flags: c_uint) -> c_int, raw Some(libc::SYS_pidfd_getfd); {
        let taken = real(pidfd, fd, flags);
        if taken >= 0 && !borrowed_memory() {
            kept(|| hook::taken(taken, pidfd));
        }
        taken
    }

    /// `dup()`.
    fn dup(old: c_int) -> c_int, raw Some(libc::SYS_dup); {
        if borrowed_memory() {
            handed_on(old);
            return real(old);
        }
        let new = real(old);
        if new >= 0 && (hook::is_followed(old) || hook::is_followed(new)) {
            kept(|| hook::dup_done(old, new));
        }
        new
    }

    /// `dup2()`.
    fn dup2(old: c_int, new: c_int) -> c_int, raw Some(libc::SYS_dup2); aka __dup2; {
        replaced(old, new, || real(old, new))
    }

    /// `dup3()`.
    fn dup3(old: c_int, new: c_int, flags: c_int) -> c_int, raw Some(libc::SYS_dup3); {
        replaced(old, new, || real(old, new, flags))
    }
}

#[inline]
fn accepted(listener: c_int, fd: c_int, flags: c_int) -> c_int {
    if fd >= 0 && !borrowed_memory() {
        kept(|| hook::accept_done(listener, fd, flags));
    }
    fd
}

/// Whether a plug may stand at a number, which only the library takes away.
#[inline]
pub(crate) fn is_standard(fd: c_int) -> bool {
    (0..STANDARD).contains(&fd)
}

fn is_standard_from(first: c_uint) -> bool {
    first < STANDARD.cast_unsigned()
}

/// dup2 and dup3: `new` is closed and becomes `old`.
fn replaced(old: c_int, new: c_int, real: impl FnOnce() -> c_int) -> c_int {
    if old == new {
        return real();
    }
    if borrowed_memory() {
        handed_on(old);
        return real();
    }
    if hook::is_own_fd(old) || hook::is_own_fd(new) {
        return fail(libc::EBADF);
    }
    let meant = Meant::beside([old], new);
    let token = kept(|| hook::dup2_begin(old, new));
    // What the library makes or takes stands at a low number for a moment.
    let replacing = Replacing::begin();
    let ret = match meant.gone() {
        None => real(),
        Some(e) => {
            // What it was to be is gone. Its own connection has ended already.
            fd::close(new);
            fail(e.raw_os_error())
        }
    };
    drop(replacing);
    kept(|| hook::dup2_done(token, old, ret));
    ret
}

/// Closes `first..=last` but for the library's own descriptors.
fn around_own(first: c_uint, last: c_uint, close: impl Fn(c_uint, c_uint) -> c_int) -> c_int {
    kept(|| hook::close_range_begin(first, last));
    let mut from = first;
    while let Some(own) = kept(|| hook::next_own_fd(from)).filter(|&own| own <= last) {
        if own > from {
            let ret = close(from, own - 1);
            if ret != 0 {
                return ret;
            }
        }
        from = own + 1;
    }
    if from > last { 0 } else { close(from, last) }
}
