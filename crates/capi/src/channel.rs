//! Channels of octets between two processes that were written for them.

use crate::boundary::{Outcome, guarded, octets, octets_mut, read, text, writable, write};
use crate::handle::{self, Handle, Held};
use crate::status::{
    BYPATH_E_FORMAT, BYPATH_E_GONE, BYPATH_E_IN_USE, BYPATH_E_INTERRUPTED, BYPATH_E_INVALID, BYPATH_E_NAME,
    BYPATH_E_NOT_ALLOWED, BYPATH_E_REFUSED, BYPATH_E_RESET, BYPATH_E_SYSTEM, BYPATH_E_TIMED_OUT,
    BYPATH_E_TOO_LONG, BYPATH_E_WOULD_BLOCK, Failure, bypath_error, bypath_status,
};
use crate::types::BYPATH_FOREVER;
use bypath_channel::{Channel, Listener, Receiver, Remote, Sender};
use std::ffi::{c_char, c_int, c_void};
use std::io::{self, Read, Write};
use std::ops::{Deref, DerefMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::time::Duration;

// asm-generic/errno-base.h, errno.h
const ENOENT: c_int = 2;
const EINTR: c_int = 4;
const EIO: c_int = 5;
const EBADF: c_int = 9;
const EAGAIN: c_int = 11;
const EACCES: c_int = 13;
const EINVAL: c_int = 22;
const EPIPE: c_int = 32;
const ENAMETOOLONG: c_int = 36;
const EPROTO: c_int = 71;
const EMSGSIZE: c_int = 90;
const EPROTOTYPE: c_int = 91;
const EADDRINUSE: c_int = 98;
const ECONNRESET: c_int = 104;
const ETIMEDOUT: c_int = 110;
const ECONNREFUSED: c_int = 111;

/// Octets of a channel's rings where nothing else is wished.
pub const BYPATH_CHANNEL_RING: u32 = 262_144;
const _: () = assert!(BYPATH_CHANNEL_RING == Channel::RING);

/// The half of a channel that writes. Only pointers to it are of use.
pub struct bypath_channel_sender {
    handle: Handle<Given<Sender>>,
}

handle::held!(bypath_channel_sender, Given<Sender>);

/// The half of a channel that reads. Only pointers to it are of use.
pub struct bypath_channel_receiver {
    handle: Handle<Given<Receiver>>,
}

handle::held!(bypath_channel_receiver, Given<Receiver>);

/// A name at which channels are made. Only pointers to it are of use.
pub struct bypath_channel_listener {
    handle: Handle<Listener>,
}

handle::held!(bypath_channel_listener, Listener);

/// A run of a ring's octets. The other process can change them at any time: what is looked at twice may differ.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_channel_run {
    /// Where it begins.
    pub octets: *mut u8,
    /// How many.
    pub length: usize,
}

/// An end of a channel that is for another process.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_channel_remote {
    /// Memory, the sender's bell, the receiver's bell: close-on-exec.
    pub descriptors: [c_int; 3],
}

/// A half, and what was given to the caller last and is not used up: so many octets, or room for so many.
pub struct Given<H> {
    half: H,
    octets: Option<usize>,
}

impl<H> From<H> for Given<H> {
    fn from(half: H) -> Given<H> {
        Given { half, octets: None }
    }
}

impl<H> Deref for Given<H> {
    type Target = H;

    fn deref(&self) -> &H {
        &self.half
    }
}

impl<H> DerefMut for Given<H> {
    fn deref_mut(&mut self) -> &mut H {
        &mut self.half
    }
}

impl<H> Given<H> {
    /// The first `count` of them are used up.
    pub(crate) fn take(&mut self, count: usize) -> Outcome {
        let rest = self.octets.and_then(|octets| octets.checked_sub(count));
        self.octets =
            Some(rest.ok_or_else(|| Failure::invalid("`count`: more than was given, and is left of it"))?);
        Ok(())
    }

    /// Nothing is, from now on.
    pub(crate) fn forget(&mut self) {
        self.octets = None;
    }

    /// These runs are.
    pub(crate) fn show(&mut self, runs: [bypath_channel_run; 2]) -> [bypath_channel_run; 2] {
        self.octets = Some(runs.iter().map(|run| run.length).sum());
        runs
    }
}

/// What an operation of a channel answered.
fn failure(e: &io::Error) -> Failure {
    if let (io::ErrorKind::PermissionDenied, Some(why)) = (e.kind(), e.get_ref()) {
        return Failure { status: BYPATH_E_NOT_ALLOWED, system: EACCES, text: why.to_string().into() };
    }
    let system = e.raw_os_error().unwrap_or(EIO);
    let (status, text) = match system {
        EAGAIN => (BYPATH_E_WOULD_BLOCK, "it would have to wait: nothing has come, or there is no room"),
        ETIMEDOUT => (BYPATH_E_TIMED_OUT, "nothing came in time, or there was no room in time"),
        EINTR => (BYPATH_E_INTERRUPTED, "a signal came while waiting"),
        EPIPE => (BYPATH_E_GONE, "the other end is gone: it reads no more"),
        EPROTO => (
            BYPATH_E_FORMAT,
            "the other end wrote to the memory, or sent, what no correct one does: close the channel",
        ),
        EINVAL => (
            BYPATH_E_INVALID,
            "a size, a name, or descriptors that cannot be: rings have 4096 octets to 1 MiB, a power of two; \
                                      `least` is 1 to half of it",
        ),
        EPROTOTYPE => (
            BYPATH_E_INVALID,
            "the channel is of the other kind: octets have functions of their own, and datagrams",
        ),
        EMSGSIZE => (
            BYPATH_E_TOO_LONG,
            "the datagram is longer than half of the ring but 8 octets, than 65527, or than the buffer",
        ),
        EBADF => (BYPATH_E_INVALID, "`remote`: a number that is no descriptor"),
        ENAMETOOLONG => (BYPATH_E_NAME, "the name has more than 80 octets, without its folder"),
        EADDRINUSE => (BYPATH_E_IN_USE, "somebody listens at the name, or what is there is no socket"),
        EACCES => (BYPATH_E_NOT_ALLOWED, "the name's folder, or the listener, is not this user's alone"),
        ENOENT | ECONNREFUSED => (BYPATH_E_REFUSED, "nobody listens at the name, or its folder is not there"),
        ECONNRESET => (BYPATH_E_RESET, "the listener ended, or sends this process away"),
        _ => return Failure { status: BYPATH_E_SYSTEM, system, text: e.to_string().into() },
    };
    Failure { status, system, text: text.into() }
}

pub(crate) fn told<T>(result: io::Result<T>) -> Outcome<T> {
    result.map_err(|e| failure(&e))
}

pub(crate) fn limit(ns: u64) -> Option<Duration> {
    (ns != BYPATH_FOREVER).then(|| Duration::from_nanos(ns))
}

/// Both halves, for the caller.
pub(crate) fn give<S: Held, R: Held>(
    (sends, receives): (impl Into<S::Value>, impl Into<R::Value>),
    sender: *mut *mut S,
    receiver: *mut *mut R,
) -> Outcome {
    write(sender, "sender", handle::begin(sends.into()))?;
    write(receiver, "receiver", handle::begin(receives.into()))
}

pub(crate) fn both<S, R>(sender: *mut *mut S, receiver: *mut *mut R) -> Outcome {
    writable(sender, "sender")?;
    writable(receiver, "receiver")
}

/// What a caller's end is opened from: descriptors of our own for the same files, as the caller's stay as they are where it fails.
pub(crate) fn duplicates(remote: *const bypath_channel_remote) -> Outcome<([c_int; 3], Remote)> {
    let numbers = read(remote, "remote")?.descriptors;
    let [a, b, c] = numbers;
    if numbers.iter().any(|n| *n < 0) || a == b || b == c || a == c {
        return Err(Failure::invalid("`remote`: three different descriptors"));
    }
    let duplicate = |n: c_int| {
        // SAFETY: not negative; open, as the caller promises, for the time of this call, and one that is not is EBADF.
        told(unsafe { BorrowedFd::borrow_raw(n) }.try_clone_to_owned())
    };
    Ok((numbers, Remote::from_fds([duplicate(a)?, duplicate(b)?, duplicate(c)?])))
}

/// Closes the caller's descriptors, once the end is open.
pub(crate) fn use_up(numbers: [c_int; 3]) {
    for n in numbers {
        // SAFETY: the caller's promise that it is its own, and that nothing uses it any more where the call has worked; it was
        // open when it was duplicated, and the three differ.
        drop(unsafe { OwnedFd::from_raw_fd(n) });
    }
}

/// Takes a name of this user's at which channels with rings of so many octets are made: a power of two from 4096 to 1 MiB.
///
/// A name without a slash stands in `$XDG_RUNTIME_DIR/bypath/channel`, or without that variable in `/tmp/bypath-UID/channel`; one with a slash is a path,
/// whose folder must be this user's, and nobody else's to write to. What a process that was killed has left is replaced.
///
/// Fails with `BYPATH_E_IN_USE`, `BYPATH_E_NAME` (too long), `BYPATH_E_NOT_ALLOWED` (somebody else's folder), `BYPATH_E_INVALID`,
/// `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_listen(
    name: *const c_char,
    ring: u32,
    listener: *mut *mut bypath_channel_listener,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(listener, "listener")?;
        if !ring.is_power_of_two() || !(4096..=1 << 20).contains(&ring) {
            return Err(Failure::invalid("`ring`: a power of two from 4096 to 1 MiB"));
        }
        let mut bound = told(Listener::bind(text(name, "name")?))?;
        bound.set_ring(ring);
        write(listener, "listener", handle::begin(bound))
    })
}

/// Waits so long for a process that wants a channel (ns; 0: no wait; `BYPATH_FOREVER`: no limit), and gives this end's halves. Processes of other users
/// are sent away.
///
/// Fails with `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_accept(
    listener: *mut bypath_channel_listener,
    timeout_ns: u64,
    sender: *mut *mut bypath_channel_sender,
    receiver: *mut *mut bypath_channel_receiver,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        both(sender, receiver)?;
        let channel = handle::with(listener, "listener", |l| {
            l.set_timeout(limit(timeout_ns));
            told(l.accept())
        })?;
        give(channel.split(), sender, receiver)
    })
}

/// The descriptor to poll for POLLIN: somebody waits. Still owned by the listener.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_listener_descriptor(
    listener: *mut bypath_channel_listener,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(descriptor, "descriptor")?;
        let number = handle::with(listener, "listener", |l| Ok(l.as_fd().as_raw_fd()))?;
        write(descriptor, "descriptor", number)
    })
}

/// Gives the name back. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_listener_close(
    listener: *mut bypath_channel_listener,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || handle::end(listener, "listener").map(drop))
}

/// A channel with the process that listens at a name of this user's (`bypath_channel_listen`); waits so long for its answer (ns; `BYPATH_FOREVER`: no
/// limit).
///
/// Fails with `BYPATH_E_REFUSED` where nobody listens, `BYPATH_E_RESET`, `BYPATH_E_TIMED_OUT`, `BYPATH_E_NOT_ALLOWED`, `BYPATH_E_NAME`,
/// `BYPATH_E_FORMAT`, `BYPATH_E_INVALID`, `BYPATH_E_WOULD_BLOCK` (too many wait), `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_connect(
    name: *const c_char,
    timeout_ns: u64,
    sender: *mut *mut bypath_channel_sender,
    receiver: *mut *mut bypath_channel_receiver,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        both(sender, receiver)?;
        let channel = told(Channel::connect(text(name, "name")?, limit(timeout_ns)))?;
        give(channel.split(), sender, receiver)
    })
}

/// Both ends of a new channel with rings of so many octets: this end's halves, and what another process opens with `bypath_channel_open` after it inherited
/// the descriptors or got them by SCM_RIGHTS. They are the caller's to close.
///
/// Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_pair(
    ring: u32,
    sender: *mut *mut bypath_channel_sender,
    receiver: *mut *mut bypath_channel_receiver,
    remote: *mut bypath_channel_remote,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        both(sender, receiver)?;
        writable(remote, "remote")?;
        let (channel, end) = told(Channel::pair(ring))?;
        write(
            remote,
            "remote",
            bypath_channel_remote { descriptors: end.into_fds().map(IntoRawFd::into_raw_fd) },
        )?;
        give(channel.split(), sender, receiver)
    })
}

/// Opens an end from its descriptors, in the order that `bypath_channel_pair` gave: open ones of the caller's that nothing else uses. They are used
/// up where it works, and stay as they are where it fails.
///
/// Fails with `BYPATH_E_INVALID`: they are not those of such a channel's end, or in another order; `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_open(
    remote: *const bypath_channel_remote,
    sender: *mut *mut bypath_channel_sender,
    receiver: *mut *mut bypath_channel_receiver,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        both(sender, receiver)?;
        let (numbers, end) = duplicates(remote)?;
        let channel = told(end.open())?;
        use_up(numbers);
        give(channel.split(), sender, receiver)
    })
}

/// Reads at least one octet, and what there is up to `capacity`, into `octets`, and how many into `length`: 0 at the end of the stream, which the other end makes by
/// closing its sender, or by its own end. With a `capacity` of 0 none are read, which is no end. Waits so long (ns; 0: no wait; `BYPATH_FOREVER`: no limit).
///
/// Fails with `BYPATH_E_WOULD_BLOCK` (with a wait of 0), `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_FORMAT` where the other end wrote to the
/// memory what no correct one does, `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_read(
    receiver: *mut bypath_channel_receiver,
    octets: *mut c_void,
    capacity: usize,
    timeout_ns: u64,
    length: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(length, "length")?;
        let room = octets_mut(octets, capacity, "octets")?;
        let n = handle::with(receiver, "receiver", |r| {
            r.forget();
            if timeout_ns == 0 {
                return told(r.try_read(room));
            }
            r.set_timeout(limit(timeout_ns));
            told(r.read(room))
        })?;
        write(length, "length", n)
    })
}

/// Writes as many octets as there is room for, at least one, and how many into `written`. Waits so long for room (ns; 0: no wait; `BYPATH_FOREVER`: no limit).
///
/// Fails with `BYPATH_E_GONE` where the other end reads no more, which is seen at the latest when the ring is full, `BYPATH_E_WOULD_BLOCK`,
/// `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`, `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_write(
    sender: *mut bypath_channel_sender,
    octets: *const c_void,
    length: usize,
    timeout_ns: u64,
    written: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(written, "written")?;
        let all = self::octets(octets, length, "octets")?;
        let n = handle::with(sender, "sender", |s| {
            s.forget();
            if timeout_ns == 0 {
                return told(s.try_write(all));
            }
            s.set_timeout(limit(timeout_ns));
            told(s.write(all))
        })?;
        write(written, "written", n)
    })
}

pub(crate) fn shown(runs: [&[std::sync::atomic::AtomicU8]; 2]) -> [bypath_channel_run; 2] {
    runs.map(|run| bypath_channel_run { octets: run.as_ptr().cast_mut().cast(), length: run.len() })
}

/// Shows what has come, where it lies: writes two runs, the second one of length 0 unless the ring begins anew in it. Together they have at least `least` octets (1 to
/// half of the ring), fewer only before the end of the stream, none at it. They stay until they are released, or the receiver is closed.
/// Waits, and fails, as `bypath_channel_read`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_peek(
    receiver: *mut bypath_channel_receiver,
    least: usize,
    timeout_ns: u64,
    runs: *mut bypath_channel_run,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let place = runs.cast::<[bypath_channel_run; 2]>();
        writable(place, "runs")?;
        let both = handle::with(receiver, "receiver", |r| {
            let runs = if timeout_ns == 0 {
                told(r.try_peek(least)).map(|o| shown(o.runs()))
            } else {
                r.set_timeout(limit(timeout_ns));
                told(r.peek(least)).map(|o| shown(o.runs()))
            };
            runs.map(|runs| r.show(runs))
        })?;
        write(place, "runs", both)
    })
}

/// Gives the first `count` of the octets that were shown back; the rest can follow later. A read makes the end of what was shown. Fails with `BYPATH_E_INVALID` where fewer were shown,
/// `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_release(
    receiver: *mut bypath_channel_receiver,
    count: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        handle::with(receiver, "receiver", |r| {
            if count == 0 {
                return Ok(());
            }
            r.take(count)?;
            told(r.try_peek(1))?.release(count);
            Ok(())
        })
    })
}

/// Gives room for at least `least` octets (1 to half of the ring), where they will lie, as two runs. Nothing is sent before `bypath_channel_commit`.
/// Waits, and fails, as `bypath_channel_write`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_reserve(
    sender: *mut bypath_channel_sender,
    least: usize,
    timeout_ns: u64,
    runs: *mut bypath_channel_run,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let place = runs.cast::<[bypath_channel_run; 2]>();
        writable(place, "runs")?;
        let both = handle::with(sender, "sender", |s| {
            let runs = if timeout_ns == 0 {
                told(s.try_reserve(least)).map(|room| shown(room.runs()))
            } else {
                s.set_timeout(limit(timeout_ns));
                told(s.reserve(least)).map(|room| shown(room.runs()))
            };
            runs.map(|runs| s.show(runs))
        })?;
        write(place, "runs", both)
    })
}

/// Sends the first `count` octets of the room that was given; the rest can follow later. A write makes the end of that room. Fails with `BYPATH_E_INVALID` where less was given,
/// `BYPATH_E_GONE`, `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_commit(
    sender: *mut bypath_channel_sender,
    count: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        handle::with(sender, "sender", |s| {
            if count == 0 {
                return Ok(());
            }
            s.take(count)?;
            told(s.try_reserve(1))?.commit(count);
            Ok(())
        })
    })
}

/// Before the receiver's descriptor is polled for POLLIN: `sleep` becomes 1 if it will be readable as soon as there are `least` octets or the stream has ended, or
/// earlier; 0 if that is so already and it may not be. Fails with `BYPATH_E_FORMAT`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_receiver_arm(
    receiver: *mut bypath_channel_receiver,
    least: usize,
    sleep: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(sleep, "sleep")?;
        let armed = handle::with(receiver, "receiver", |r| told(r.arm(least)))?;
        write(sleep, "sleep", c_int::from(armed))
    })
}

/// The same of the sender, for room for `least` octets. Its descriptor is polled for POLLIN, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_sender_arm(
    sender: *mut bypath_channel_sender,
    least: usize,
    sleep: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(sleep, "sleep")?;
        let armed = handle::with(sender, "sender", |s| told(s.arm(least)))?;
        write(sleep, "sleep", c_int::from(armed))
    })
}

/// The descriptor to poll after `bypath_channel_receiver_arm`. Still owned by the receiver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_receiver_descriptor(
    receiver: *mut bypath_channel_receiver,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(descriptor, "descriptor")?;
        let number = handle::with(receiver, "receiver", |r| Ok(r.as_fd().as_raw_fd()))?;
        write(descriptor, "descriptor", number)
    })
}

/// The descriptor to poll after `bypath_channel_sender_arm`. Still owned by the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_sender_descriptor(
    sender: *mut bypath_channel_sender,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(descriptor, "descriptor")?;
        let number = handle::with(sender, "sender", |s| Ok(s.as_fd().as_raw_fd()))?;
        write(descriptor, "descriptor", number)
    })
}

/// How long calls that wait look before they sleep (ns; `BYPATH_FOREVER`: they never sleep). 50 us to begin with. One of both may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_set_spin(
    sender: *mut bypath_channel_sender,
    receiver: *mut bypath_channel_receiver,
    spin_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let spin = Duration::from_nanos(spin_ns);
        if sender.is_null() && receiver.is_null() {
            return Err(Failure::invalid("`sender` and `receiver` are NULL"));
        }
        if !sender.is_null() {
            handle::with(sender, "sender", |s| {
                s.set_spin(spin);
                Ok(())
            })?;
        }
        if !receiver.is_null() {
            handle::with(receiver, "receiver", |r| {
                r.set_spin(spin);
                Ok(())
            })?;
        }
        Ok(())
    })
}

/// Ends the stream at the other end, after what was committed. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_sender_close(
    sender: *mut bypath_channel_sender,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || handle::end(sender, "sender").map(drop))
}

/// Reads no more: the other end's writes fail. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_receiver_close(
    receiver: *mut bypath_channel_receiver,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || handle::end(receiver, "receiver").map(drop))
}
