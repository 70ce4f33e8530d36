//! Messages with descriptors of a program's, which may be another user's.

use super::message::{ALL_FDS, Control, MAX_FDS, Received, brings_descriptors, recv_raw};
use super::{pair, peer_credentials};
use crate::apart::Errand;
use crate::mem::{InPages, Zeroes};
use crate::signal::Blocked;
use crate::sock::{self, MsgHdr};
use crate::syscall::check;
use crate::turn::Turn;
use crate::user::IoVec;
use crate::{Errno, Result, fd, open_files, process, strangers};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering::Acquire};

/// What other threads may open meanwhile.
const SPARE_FDS: u64 = 16;

fn is_of_another_user(s: i32) -> bool {
    !peer_credentials(s).is_ok_and(|other| other.uid == process::euid())
}

/// Of what cannot be told it is assumed.
fn has_room_for_all() -> bool {
    fd::count_free().is_none_or(|free| free >= ALL_FDS as u64 + SPARE_FDS)
}

/// Receives one message without waiting; `None` if there is none yet, or somebody replaces a descriptor just now, or another user's finds no thread, as a limit is
/// reached.
///
/// What another user sends comes to a thread apart (`apart.rs`) first, and is passed on if it is sealed memory and eventfds: a number of the program's table is
/// never that of anything else, not for a moment.
///
/// # Errors
/// ECONNRESET and others as recvmsg(2); EMFILE when the descriptors, or one of them, could not be kept: all are closed, and the message is gone.
/// EMFILE also where another user is at the other end, no thread may be made as it must be, and there is not room for as many as he can send along: the kernel would
/// close the others within the call. The message stays then.
pub fn recv(s: i32, bytes: &mut [u8], floor: i32) -> Result<Option<Received>> {
    let brings = match brings_descriptors(s) {
        None => return Ok(None),
        Some(brings) => brings,
    };
    if is_of_another_user(s) {
        if let Some(outcome) = recv_apart(s, bytes, floor) {
            return outcome;
        }
        if brings && !has_room_for_all() {
            return Err(Errno::MFILE);
        }
    }
    recv_here(s, bytes, floor)
}

/// As [`recv`] on a socket that nobody but the calling thread reads: a message that brings nothing needs no thread. Its length.
///
/// # Errors
/// Those of [`recv`].
pub fn recv_octets(s: i32, bytes: &mut [u8], floor: i32) -> Result<Option<usize>> {
    if brings_descriptors(s) == Some(true) {
        let got = recv(s, bytes, floor)?;
        return Ok(got.map(|got| {
            got.fds[..got.fd_count].iter().for_each(|file| fd::close(*file));
            got.len
        }));
    }
    // The kernel gives none to who has no room for them.
    Ok(recv_raw(s, bytes, &mut [0u8; 0])?.map(|(len, ..)| len))
}

/// As [`recv`] of whom the caller has chosen to rely on, as a program does on its netstack service: what he sends, sockets too, comes into the program's table at
/// once, whoever he is.
///
/// # Errors
/// Those of [`recv`]; EMFILE where another user is at the other end also while there is not room for as many as can come along.
pub fn recv_relied_on(s: i32, bytes: &mut [u8], floor: i32) -> Result<Option<Received>> {
    match brings_descriptors(s) {
        None => Ok(None),
        Some(true) if is_of_another_user(s) && !has_room_for_all() => Err(Errno::MFILE),
        Some(_) => recv_here(s, bytes, floor),
    }
}

/// The same into the program's table. By itself, so that a small stack has this room or that.
#[inline(never)]
fn recv_here(s: i32, bytes: &mut [u8], floor: i32) -> Result<Option<Received>> {
    let mut control = Control::<ALL_FDS>::new();
    let mut got = Received { len: 0, fds: [-1; MAX_FDS], fd_count: 0 };
    let Some(turn) = Turn::to_take() else { return Ok(None) };
    let Some((len, all, mut failed)) = recv_raw(s, bytes, &mut control)? else { return Ok(None) };
    got.len = len;
    let (wanted, more) = control.files(all);
    failed |= !more.is_empty() || !got.moves_high(wanted, floor);
    drop(turn);
    strangers::close(more);
    // Nobody tells an empty message from the end: what came with it is nobody's.
    if failed || len == 0 {
        strangers::close(&got.fds[..got.fd_count]);
        got.fd_count = 0;
    }
    if failed { Err(Errno::MFILE) } else { Ok(Some(got)) }
}

/// What a thread apart is to do, reads and writes.
struct Work {
    errand: Errand,
    received: MsgHdr,
    receives: [IoVec; 1],
    passed_on: MsgHdr,
    passes_on: [IoVec; 1],
    /// What came along, and is passed on.
    control: Control<ALL_FDS>,
    /// Of each descriptor that is wanted.
    seals: [AtomicU64; MAX_FDS],
    /// Results.
    len: AtomicU64,
    passed: AtomicU64,
    octet: u8,
}

// SAFETY: integers, and an errand.
unsafe impl Zeroes for Work {}

impl Work {
    const SOCKET: usize = 1;
    const TO_US: usize = 2;
    /// It is given the lowest free numbers.
    const FIRST: usize = 3;

    fn prepare(&mut self, s: i32, bytes: &mut [u8], theirs: i32) {
        let along = &raw mut self.control as usize;
        self.receives = [IoVec { base: bytes.as_mut_ptr() as usize, len: bytes.len() }];
        self.received = sock::header(&self.receives, (along, size_of_val(&self.control)));
        self.passes_on = [IoVec { base: &raw mut self.octet as usize, len: 1 }];
        self.passed_on = sock::header(&self.passes_on, (along, 0));
        let Work { errand, received, passed_on, seals, len, passed, .. } = self;
        errand.begin();
        let numbers = (errand.takes(s), errand.takes(theirs));
        assert_eq!(numbers, (Work::SOCKET, Work::TO_US));
        let flags = (libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC) as usize;
        errand.calls(
            libc::SYS_recvmsg,
            [Work::SOCKET, ptr::from_mut(received) as usize, flags, 0, 0, 0],
            len,
        );
        for (at, seals) in seals.iter().enumerate() {
            errand.calls(libc::SYS_fcntl, [Work::FIRST + at, libc::F_GET_SEALS as usize, 0, 0, 0, 0], seals);
        }
        errand.waits();
        let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
        errand.calls(
            libc::SYS_sendmsg,
            [Work::TO_US, ptr::from_mut(passed_on) as usize, flags, 0, 0, 0],
            passed,
        );
        errand.waits();
    }

    /// What has come, once it has; descriptors are taken from `ours`.
    fn take(&mut self, tid: u32, ours: i32, floor: i32) -> Result<Option<Received>> {
        let len = match check(self.len.load(Acquire) as isize) {
            Err(Errno::AGAIN) => return Ok(None),
            other => other?,
        };
        let (wanted, more) = self.control.files(self.received.controllen);
        if self.received.flags & libc::MSG_CTRUNC != 0 || !more.is_empty() {
            return Err(Errno::MFILE);
        }
        let mut got = Received { len, fds: [-1; MAX_FDS], fd_count: 0 };
        // Nobody tells an empty message from the end: what came with it is nobody's.
        if wanted.is_empty() || len == 0 {
            return Ok(Some(got));
        }
        // A plain file of a file system in memory has none of these.
        let length = i64::from(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW);
        let is_memory = |at: usize| {
            let seals = self.seals[at].load(Acquire) as i64;
            seals >= 0 && seals & length == length
        };
        let is_good = |at: usize, file: i32| {
            file == (Work::FIRST + at) as i32
                && (is_memory(at) || open_files::is_of_thread(tid, file, strangers::EVENTFD))
        };
        if !wanted.iter().enumerate().all(|(at, file)| is_good(at, *file)) {
            return Err(Errno::MFILE);
        }
        let count = wanted.len();
        self.passed_on.controllen = self.control.len;
        self.errand.goes_on(0);
        if !self.errand.has_arrived(1) {
            return Err(Errno::MFILE);
        }
        check(self.passed.load(Acquire) as isize)?;
        let mut control = Control::<MAX_FDS>::new();
        // It has come: not as `to_take`.
        let _turn = Turn::to_make();
        let Some((_, all, failed)) = recv_raw(ours, &mut [0], &mut control)? else {
            return Err(Errno::MFILE);
        };
        let (passed_on, _) = control.files(all);
        if !got.moves_high(passed_on, floor) || failed || got.fd_count != count {
            got.fds[..got.fd_count].iter().for_each(|file| fd::close(*file));
            return Err(Errno::MFILE);
        }
        Ok(Some(got))
    }
}

/// The same by a thread apart; `None`: there can be none.
#[cold]
#[inline(never)]
fn recv_apart(s: i32, bytes: &mut [u8], floor: i32) -> Option<Result<Option<Received>>> {
    match process::has_filter() {
        Some(false) => {}
        Some(true) => return None,
        None => return Some(Ok(None)),
    }
    // Rather later than into the program's table.
    let (Some(mut memory), Some((ours, theirs))) = (InPages::<Work>::new(), packets(floor)) else {
        return Some(Ok(None));
    };
    let work = memory.get();
    work.prepare(s, bytes, theirs);
    let _blocked = Blocked::all();
    let close_ends = || [ours, theirs].into_iter().for_each(fd::close);
    let tid = match work.errand.sent() {
        Ok(Some(tid)) => tid,
        came_to_nothing => {
            close_ends();
            // There may be one later, or of another thread.
            let is_later = matches!(came_to_nothing, Err(Errno::AGAIN | Errno::NOMEM | Errno::INVAL));
            return is_later.then_some(Ok(None));
        }
    };
    let outcome = work.take(tid, ours, floor);
    work.errand.ends();
    work.errand.is_over();
    close_ends();
    strangers::leave(tid);
    Some(outcome)
}

/// Two ends for one message.
fn packets(floor: i32) -> Option<(i32, i32)> {
    let _turn = Turn::to_take()?;
    match pair().ok()?.map(|end| fd::move_high(end, floor)) {
        [Ok(ours), Ok(theirs)] => Some((ours, theirs)),
        other => {
            other.into_iter().flatten().for_each(fd::close);
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::send;
    use super::super::tests::pair;
    use super::*;
    use std::os::fd::{AsRawFd, IntoRawFd};

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn what_another_user_sends_is_known_before_it_has_a_number_here() {
        const FLOOR: i32 = 700;
        let [ours, theirs] = pair();
        let mut room = [0u8; 8];
        let mut heard = |s| {
            recv_apart(s, &mut room, FLOOR)
                .expect("a thread apart")
                .map(|got| got.map(|got| (got.len, got.fd_count, got.fds)))
        };
        assert_eq!(heard(ours), Ok(None));
        send(theirs, b"alone", &[]).unwrap();
        assert_eq!(heard(ours).unwrap().unwrap().1, 0);
        let memory = crate::memfd::create(c"test", 4096, FLOOR).unwrap();
        let bell = crate::eventfd::create(FLOOR).unwrap();
        send(theirs, b"both", &[memory, bell]).unwrap();
        let (len, count, fds) = heard(ours).unwrap().unwrap();
        assert_eq!((len, count), (4, 2));
        assert!(fds[..2].iter().all(|file| *file >= FLOOR));
        assert_eq!(fd::identity(fds[0]), fd::identity(memory));
        assert!(open_files::is(fds[1], strangers::EVENTFD));
        fds[..2].iter().for_each(|file| fd::close(*file));
        let (reader, writer) = std::io::pipe().unwrap();
        let [reader, writer] = [reader.into_raw_fd(), writer.into_raw_fd()];
        for bad in [&[writer][..], &[memory, writer], &[bell, memory, bell, writer]] {
            send(theirs, b"bad", bad).unwrap();
            assert_eq!(heard(ours), Err(Errno::MFILE), "{bad:?}");
        }
        fd::close(writer);
        // Nothing of it is left anywhere.
        let is_over = || crate::poll::now(reader, libc::POLLIN) & libc::POLLHUP != 0;
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while !is_over() && std::time::Instant::now() < until {
            std::thread::yield_now();
        }
        assert!(is_over());
        fd::close(theirs);
        assert!(matches!(heard(ours), Ok(Some((0, 0, _)))));
        [ours, memory, bell, reader].into_iter().for_each(fd::close);
    }

    #[test]
    fn octets_come_without_what_is_sent_along() {
        const FLOOR: i32 = 700;
        let [ours, theirs] = pair();
        let mut room = [0u8; 8];
        assert_eq!(recv_octets(ours, &mut room, FLOOR), Ok(None));
        send(theirs, b"alone", &[]).unwrap();
        assert_eq!((recv_octets(ours, &mut room, FLOOR), &room[..5]), (Ok(Some(5)), &b"alone"[..]));
        let (reader, writer) = std::io::pipe().unwrap();
        send(theirs, b"both", &[writer.as_raw_fd()]).unwrap();
        drop(writer);
        assert_eq!((recv_octets(ours, &mut room, FLOOR), &room[..4]), (Ok(Some(4)), &b"both"[..]));
        let is_over = crate::poll::now(reader.as_raw_fd(), libc::POLLIN) & libc::POLLHUP != 0;
        assert!(is_over, "it was not closed");
        fd::close(theirs);
        assert_eq!(recv_octets(ours, &mut room, FLOOR), Ok(Some(0)));
        fd::close(ours);
    }
}
