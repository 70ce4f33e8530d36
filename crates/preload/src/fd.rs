//! fcntl and ioctl. Both are variadic in C; with one integer or pointer behind the fixed arguments the x86-64
//! convention is that of a function of three arguments.

use crate::child::{borrowed_memory, handed_on};
use crate::errno::{fail, kept, still};
use crate::real::hook;
use crate::{interfaces, memory};
use bypath_sockets::hook::{self, datagrams, served, udp};
use libc::{c_int, c_ulong};

hook! {
    /// `fcntl()`.
    fn fcntl(fd: c_int, command: c_int, arg: usize) -> c_int, raw Some(libc::SYS_fcntl); aka __fcntl;
    only hook::is_followed(fd) || makes_descriptor(command); {
        control(fd, command, arg, || real(fd, command, arg))
    }

    /// `fcntl64()`.
    fn fcntl64(fd: c_int, command: c_int, arg: usize) -> c_int, raw Some(libc::SYS_fcntl);
    only hook::is_followed(fd) || makes_descriptor(command); {
        control(fd, command, arg, || real(fd, command, arg))
    }

    /// `ioctl()`.
    fn ioctl(fd: c_int, request: c_ulong, arg: usize) -> c_int, raw Some(libc::SYS_ioctl);
    only hook::is_followed(fd) || hook::serves() && interfaces::is_asked_for(request); {
        if hook::serves() && !borrowed_memory() && let Some(done) = interfaces::control(fd, request, arg, real) {
            return done;
        }
        // The kernel looks at 32 bits of the request; a C int may arrive sign-extended.
        match c_ulong::from(request as u32) {
            // What waits there is no octets.
            libc::FIONREAD if served::is_listening(fd) => fail(libc::EINVAL),
            libc::FIONREAD if kept(|| udp::next_len(fd)).is_some() => {
                let next = kept(|| udp::next_len(fd)).unwrap_or(0);
                if memory::write(arg as *mut c_int, next as c_int) { 0 } else { fail(libc::EFAULT) }
            }
            libc::FIONREAD if datagrams::is_served(fd) => {
                let next = kept(|| datagrams::next_len(fd)).unwrap_or(0);
                if memory::write(arg as *mut c_int, next as c_int) { 0 } else { fail(libc::EFAULT) }
            }
            request @ (libc::TIOCOUTQ | SIOCOUTQNSD) => {
                let queued = || kept(|| hook::served::queued(fd, request == libc::TIOCOUTQ));
                match (hook::serves() && !borrowed_memory()).then(queued).flatten() {
                    None => real(fd, request, arg),
                    Some(Err(e)) => fail(e.raw_os_error()),
                    Some(Ok(octets)) => {
                        let octets = c_int::try_from(octets).unwrap_or(c_int::MAX);
                        if memory::write(arg as *mut c_int, octets) { 0 } else { fail(libc::EFAULT) }
                    }
                }
            }
            libc::FIONREAD => {
                let ret = real(fd, request, arg);
                if ret == 0 {
                    kept(|| tell_unread(fd, arg as *mut c_int));
                }
                ret
            }
            libc::FIONBIO => {
                let ret = real(fd, request, arg);
                // As F_SETFL below.
                if ret == 0 && let Some(on) = memory::read(arg as *const c_int) {
                    kept(|| hook::nonblocking_done(fd, on != 0));
                }
                ret
            }
            SIOCGSTAMP | SIOCGSTAMPNS | SIOCGSTAMP_NEW | SIOCGSTAMPNS_NEW => {
                // The kernel knows of the last datagram that it has brought itself.
                kept(|| udp::keep(fd, hook::Reason::SocketOption));
                real(fd, request, arg)
            }
            FIOSETOWN | SIOCSPGRP if !may_have(fd, libc::O_ASYNC) => -1,
            FIOASYNC
                if memory::read(arg as *const c_int).is_some_and(|on| on != 0)
                    && !may_have(fd, libc::O_ASYNC) =>
            {
                -1
            }
            _ => real(fd, request, arg),
        }
    }
}

/// linux/sockios.h.
const SIOCOUTQNSD: c_ulong = 0x894b;
/// asm-generic/sockios.h, and the same for times of 64 bits (linux/sockios.h).
const SIOCGSTAMP: c_ulong = 0x8906;
const SIOCGSTAMPNS: c_ulong = 0x8907;
const SIOCGSTAMP_NEW: c_ulong = 0x8010_8906;
const SIOCGSTAMPNS_NEW: c_ulong = 0x8010_8907;
/// asm-generic/sockios.h: as F_SETOWN.
const FIOSETOWN: c_ulong = 0x8901;
const SIOCSPGRP: c_ulong = 0x8902;
/// Not in the `libc` crate for this target (asm-generic/ioctls.h).
const FIOASYNC: c_ulong = 0x5452;
/// asm-generic/fcntl.h.
const F_SETSIG: c_int = 10;
/// asm-generic/fcntl.h.
const F_SETOWN_EX: c_int = 15;

/// Commands whose new descriptor can bear a number that was followed.
#[inline]
fn makes_descriptor(command: c_int) -> bool {
    matches!(command, libc::F_DUPFD | libc::F_DUPFD_CLOEXEC)
}

#[inline]
fn control(fd: c_int, command: c_int, arg: usize, real: impl FnOnce() -> c_int) -> c_int {
    match command {
        libc::F_DUPFD | libc::F_DUPFD_CLOEXEC => {
            if borrowed_memory() {
                handed_on(fd);
                return real();
            }
            let new = real();
            if new >= 0 {
                kept(|| hook::dup_done(fd, new));
            }
            new
        }
        libc::F_SETFL => {
            // The flags belong to the open file, which a vfork child shares: this is recorded there, too.
            if !may_have(fd, arg as c_int) {
                return -1;
            }
            let ret = real();
            if ret >= 0 {
                kept(|| hook::status_flags_done(fd, arg as c_int));
            }
            ret
        }
        libc::F_SETFD => {
            let ret = real();
            if ret >= 0 && arg as c_int & libc::FD_CLOEXEC == 0 && !borrowed_memory() {
                kept(|| hook::made_inheritable(fd));
            }
            ret
        }
        libc::F_SETOWN | F_SETSIG | F_SETOWN_EX if !may_have(fd, libc::O_ASYNC) => -1,
        _ => real(),
    }
}

/// Before a call by which it has these file status flags. False: the call fails.
fn may_have(fd: c_int, flags: c_int) -> bool {
    flags & libc::O_ASYNC == 0 || still([fd], || hook::status_flags_begin(fd, flags))
}

fn tell_unread(fd: c_int, to: *mut c_int) {
    let (all, beside) = (hook::unread_bytes(fd), served::unread(fd));
    let behind = served::behind_mark(fd);
    if all.is_some() || beside > 0 || behind > 0 {
        let all = all.unwrap_or_else(|| memory::read(to).map_or(0, |told| told as usize));
        memory::write(to, c_int::try_from((all + beside).saturating_sub(behind)).unwrap_or(c_int::MAX));
    }
}
