//! Calls that move datagrams of followed UDP sockets: through a mailbox, or by the program's own call, whose result is reported.

use crate::child::borrowed_memory;
use crate::datagrams::{Beside, MAX_ADDRESS};
use crate::errno::{self, answer, fail, kept};
use crate::io::user;
use crate::memory;
use crate::real::index;
use crate::served::{header, message};
use crate::told;
use bypath_sockets::hook::Parts;
use bypath_sockets::hook::udp::{self, LONGEST, MOST_SAID, Receiving, Record, Said, Sending, Taken};
use bypath_sys::thread::stack_address;
use bypath_sys::user::IoVec;
use libc::{c_int, c_uint, iovec, mmsghdr, msghdr, sockaddr, socklen_t};

/// The followed UDP socket behind `fd`, for a call that receives, if this process may do anything to it.
#[inline]
pub(crate) fn of(fd: c_int) -> Option<&'static Record> {
    let r = udp::of(fd)?;
    if borrowed_memory() {
        receives_as_child(r);
        return None;
    }
    Some(r)
}

/// Before a child in borrowed memory receives, by the kernel: what waits in the mailbox has come first.
#[cold]
#[inline(never)]
fn receives_as_child(r: &Record) {
    kept(|| r.child_receives());
}

/// As [`of`], for a call that sends: of a child in borrowed memory, too, whose datagrams are the kernel's.
#[inline]
pub(crate) fn to_send(fd: c_int) -> Option<&'static Record> {
    udp::of(fd)
}

/// What a child in borrowed memory sends.
#[cold]
fn send_as_child<T>(r: &Record, real: impl FnOnce() -> T) -> T {
    let sent = real();
    r.child_has_sent();
    sent
}

/// Any call that sends a datagram; `real` is the program's own.
#[inline]
pub(crate) fn send(
    fd: c_int,
    r: &'static Record,
    iov: &[IoVec],
    beside: Beside,
    flags: c_int,
    real: impl FnOnce() -> isize,
) -> isize {
    if borrowed_memory() {
        return send_as_child(r, real);
    }
    let to = if beside.name == 0 {
        r.destination(None)
    } else {
        // The kernel refuses what is longer, and what cannot be read.
        let len = Some(beside.name_len).filter(|len| *len <= MAX_ADDRESS);
        let raw = len.and_then(|len| memory::slice(beside.name as *const u8, len));
        r.destination(Some(raw.unwrap_or(&[])))
    };
    let said = match beside.control_len {
        0 => Said::Nothing,
        _ if beside.control == 0 => Said::Nothing,
        1..=MOST_SAID => memory::slice(beside.control as *const u8, beside.control_len)
            .map_or(Said::Else, |raw| Said::parse(raw, r.family())),
        _ => Said::Else,
    };
    match r.send(to, user(iov), flags, said) {
        Sending::Done(result) => answer(result),
        Sending::Real(report) => {
            let n = real();
            kept(|| report.finish(fd, n));
            n
        }
    }
}

/// What a receive tells beside the octets.
pub(crate) struct Came {
    /// What the call returns.
    pub(crate) ret: isize,
    /// It came through the mailbox.
    taken: Option<Taken>,
}

/// Any call that receives a datagram. `real` is the program's own, and `source` says where that has put the address.
#[inline]
pub(crate) fn receive(
    fd: c_int,
    r: &'static Record,
    iov: &[IoVec],
    has_room_for_source: bool,
    flags: c_int,
    real: impl FnOnce() -> isize,
    source: impl FnOnce() -> Option<(usize, usize)>,
) -> Came {
    match r.receive(fd, user(iov), flags) {
        Receiving::Done(Ok(taken)) => {
            let told = if flags & libc::MSG_TRUNC != 0 { taken.len } else { taken.copied };
            Came { ret: told as isize, taken: Some(taken) }
        }
        Receiving::Done(Err(e)) => Came { ret: answer(Err(e)), taken: None },
        Receiving::Real(report) => {
            let mut own = [0u8; LONGEST];
            let (ret, at) = if !has_room_for_source && report.wants_source() {
                // The program does not ask who has sent it; who is asked for a mailbox has to know.
                let mut m = header(iov.as_ptr().cast::<iovec>(), iov.len());
                (m.msg_name, m.msg_namelen) = (own.as_mut_ptr().cast(), LONGEST as socklen_t);
                // SAFETY: the program's own list, and a header of ours.
                let ret = unsafe { message::<{ index("recvmsg") }>(fd, &raw mut m, flags) };
                (ret, Some((own.as_ptr() as usize, m.msg_namelen as usize)))
            } else {
                (real(), source())
            };
            kept(|| {
                let raw = at
                    .filter(|_| ret >= 0)
                    .and_then(|(at, len)| memory::slice(at as *const u8, len.min(LONGEST)));
                report.finish(fd, ret, raw);
            });
            Came { ret, taken: None }
        }
    }
}

/// read, recv and their like.
#[inline]
pub(crate) fn receive_plain(
    fd: c_int,
    r: &'static Record,
    iov: &[IoVec],
    flags: c_int,
    real: impl FnOnce() -> isize,
) -> isize {
    receive(fd, r, iov, false, flags, real, || None).ret
}

/// `recvfrom()`: the address goes where the program wants it.
#[inline]
pub(crate) fn receive_from(
    fd: c_int,
    r: &'static Record,
    iov: &[IoVec],
    flags: c_int,
    (at, at_len): (*mut sockaddr, *mut socklen_t),
    real: impl FnOnce() -> isize,
) -> isize {
    let source = || Some((at as usize, memory::read(at_len)? as usize));
    let came = receive(fd, r, iov, !at.is_null(), flags, real, source);
    let Some(taken) = came.taken.filter(|_| !at.is_null()) else { return came.ret };
    let mut raw = [0; LONGEST];
    let len = taken.from.emit(r.family(), &mut raw);
    if store(&raw[..len], at, at_len) { came.ret } else { -1 }
}

/// Stores an address as the kernel does: cut to the program's room, with the length that it has. False: errno is set.
fn store(raw: &[u8], at: *mut sockaddr, at_len: *mut socklen_t) -> bool {
    let Some(room) = memory::read(at_len) else { return fail::<c_int>(libc::EFAULT) == 0 };
    if (room as c_int) < 0 {
        return fail::<c_int>(libc::EINVAL) == 0;
    }
    let cut = &raw[..raw.len().min(room as usize)];
    match memory::slice_mut(at.cast::<u8>(), cut.len()) {
        Some(to) => to.copy_from_slice(cut),
        None => return fail::<c_int>(libc::EFAULT) == 0,
    }
    memory::write(at_len, raw.len() as socklen_t) || fail::<c_int>(libc::EFAULT) == 0
}

/// `recvmsg()`.
pub(crate) fn receive_message(
    fd: c_int,
    r: &'static Record,
    (to, m): (*mut msghdr, &msghdr),
    iov: &[IoVec],
    flags: c_int,
    real: impl FnOnce() -> isize,
) -> isize {
    if !m.msg_name.is_null() && (m.msg_namelen as c_int) < 0 {
        return real();
    }
    let mut own = [0u8; LONGEST];
    let mut copy = *m;
    if m.msg_name.is_null() {
        (copy.msg_name, copy.msg_namelen) = (own.as_mut_ptr().cast(), LONGEST as socklen_t);
    }
    let before = errno::get();
    let at = std::cell::Cell::new(None);
    let came = receive(
        fd,
        r,
        iov,
        true,
        flags,
        || {
            if m.msg_name.is_null() && r.stays().is_none() {
                // The program does not ask who has sent it; who is asked for a mailbox has to know.
                // SAFETY: the program's own header, with room of ours for the address.
                let n = unsafe { message::<{ index("recvmsg") }>(fd, &raw mut copy, flags) };
                if n >= 0 {
                    at.set(Some((copy.msg_name as usize, copy.msg_namelen as usize)));
                    told::learn(r, &copy, m);
                    let told =
                        msghdr { msg_controllen: copy.msg_controllen, msg_flags: copy.msg_flags, ..*m };
                    if !memory::write(to, told) {
                        return fail(libc::EFAULT);
                    }
                }
                return n;
            }
            let n = real();
            let after = memory::read(to).filter(|after| n >= 0 && !after.msg_name.is_null());
            after.iter().for_each(|after| told::learn(r, after, m));
            at.set(after.map(|after| (after.msg_name as usize, after.msg_namelen as usize)));
            n
        },
        || at.get(),
    );
    let Some(taken) = came.taken else { return came.ret };
    errno::set(before);
    let mut out = *m;
    if !m.msg_name.is_null() {
        let mut raw = [0; LONGEST];
        let len = taken.from.emit(r.family(), &mut raw);
        let cut = &raw[..len.min(m.msg_namelen as usize)];
        match memory::slice_mut(m.msg_name.cast::<u8>(), cut.len()) {
            Some(room) => room.copy_from_slice(cut),
            None => return fail(libc::EFAULT),
        }
        out.msg_namelen = len as socklen_t;
    }
    let (control, more) = if r.wants() == 0 { (0, 0) } else { told::tell(r, &taken, &Beside::of(m)) };
    out.msg_controllen = control;
    let cut = if taken.len > taken.copied { libc::MSG_TRUNC } else { 0 };
    out.msg_flags = cut | more | flags & libc::MSG_CMSG_CLOEXEC;
    if memory::write(to, out) { came.ret } else { fail(libc::EFAULT) }
}

/// Whether recvmmsg() is the kernel's as a whole: nothing comes through a mailbox.
pub(crate) fn takes_whole(r: &Record) -> bool {
    udp::is_plain(r)
}

/// `recvmmsg()` of the kernel's: each message is reported.
pub(crate) fn receive_messages(
    fd: c_int,
    r: &'static Record,
    all: Option<&mut [mmsghdr]>,
    real: impl FnOnce() -> c_int,
) -> c_int {
    let Some(report) = r.whole_receive() else { return real() };
    let done = real();
    kept(|| {
        report.lower();
        let got = usize::try_from(done).unwrap_or(0);
        for m in all.iter().flat_map(|all| all.iter()).take(got) {
            let len = (m.msg_hdr.msg_namelen as usize).min(LONGEST);
            let raw = if m.msg_hdr.msg_name.is_null() {
                None
            } else {
                memory::slice(m.msg_hdr.msg_name as *const u8, len)
            };
            r.one_received(fd, m.msg_len as usize, raw);
        }
    });
    done
}

/// `sendmmsg()`: as a whole by the kernel, or one by one.
pub(crate) fn send_messages(
    fd: c_int,
    r: &'static Record,
    all: &mut [mmsghdr],
    flags: c_int,
    real: impl FnOnce() -> c_int,
) -> c_int {
    if borrowed_memory() {
        return send_as_child(r, real);
    }
    if udp::is_plain(r) {
        let done = real();
        kept(|| {
            for m in all.iter().take(usize::try_from(done).unwrap_or(0)) {
                let raw = (!m.msg_hdr.msg_name.is_null())
                    .then(|| {
                        memory::slice(
                            m.msg_hdr.msg_name as *const u8,
                            (m.msg_hdr.msg_namelen as usize).min(MAX_ADDRESS),
                        )
                    })
                    .map(|raw| raw.unwrap_or(&[]));
                r.one_sent(fd, raw, m.msg_len as usize);
            }
        });
        return done;
    }
    let before = errno::get();
    let parts = Parts::begin(fd, stack_address());
    for (i, m) in all.iter_mut().enumerate() {
        if i > 0 && parts.next().is_none() {
            return i as c_int;
        }
        let head = &raw const m.msg_hdr;
        // SAFETY: a header inside the program's array.
        let real = || unsafe { message::<{ index("sendmsg") }>(fd, head.cast_mut(), flags) };
        let n = match memory::message(head) {
            Some((h, iov)) => send(fd, r, iov, Beside::sent(&h), flags, real),
            None => real(),
        };
        if n < 0 {
            if i == 0 {
                return -1;
            }
            errno::set(before);
            return i as c_int;
        }
        m.msg_len = n as c_uint;
    }
    all.len() as c_int
}
