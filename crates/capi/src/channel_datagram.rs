//! Channels of datagrams between two processes that were written for them.

use crate::boundary::{Outcome, guarded, octets, octets_mut, text, writable, write};
use crate::channel::{
    Given, both, bypath_channel_listener, bypath_channel_remote, bypath_channel_run, duplicates, give, limit,
    shown, told, use_up,
};
use crate::handle::{self, Handle};
use crate::status::{BYPATH_E_END, BYPATH_E_TOO_LONG, Failure, bypath_error, bypath_status};
use bypath_channel::{DatagramReceiver, DatagramSender, Datagrams};
use std::ffi::{c_char, c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd};
use std::time::Duration;

// asm-generic/errno.h
const ENODATA: c_int = 61;
const EMSGSIZE: c_int = 90;

/// The half of a channel that sends datagrams. Only pointers to it are of use.
pub struct bypath_channel_datagram_sender {
    handle: Handle<Given<DatagramSender>>,
}

handle::held!(bypath_channel_datagram_sender, Given<DatagramSender>);

/// The half of a channel that receives datagrams. Only pointers to it are of use.
pub struct bypath_channel_datagram_receiver {
    handle: Handle<DatagramReceiver>,
}

handle::held!(bypath_channel_datagram_receiver, DatagramReceiver);

/// All datagrams were received, and the other end is gone.
fn end() -> Failure {
    Failure { status: BYPATH_E_END, system: ENODATA, text: "the other end sends no more".into() }
}

/// As `bypath_channel_accept`; the process gets a channel of datagrams. One listener may give both kinds.
///
/// Fails as `bypath_channel_accept`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_accept(
    listener: *mut bypath_channel_listener,
    timeout_ns: u64,
    sender: *mut *mut bypath_channel_datagram_sender,
    receiver: *mut *mut bypath_channel_datagram_receiver,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        both(sender, receiver)?;
        let channel = handle::with(listener, "listener", |l| {
            l.set_timeout(limit(timeout_ns));
            told(l.accept_datagrams())
        })?;
        give(channel.split(), sender, receiver)
    })
}

/// As `bypath_channel_connect`, with a listener that gives channels of datagrams.
///
/// Fails as `bypath_channel_connect`; with `BYPATH_E_INVALID`, too, where the listener gives the other kind.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_connect(
    name: *const c_char,
    timeout_ns: u64,
    sender: *mut *mut bypath_channel_datagram_sender,
    receiver: *mut *mut bypath_channel_datagram_receiver,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        both(sender, receiver)?;
        let channel = told(Datagrams::connect(text(name, "name")?, limit(timeout_ns)))?;
        give(channel.split(), sender, receiver)
    })
}

/// As `bypath_channel_pair`, of datagrams: the other end is for `bypath_channel_datagram_open`.
///
/// Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_pair(
    ring: u32,
    sender: *mut *mut bypath_channel_datagram_sender,
    receiver: *mut *mut bypath_channel_datagram_receiver,
    remote: *mut bypath_channel_remote,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        both(sender, receiver)?;
        writable(remote, "remote")?;
        let (channel, end) = told(Datagrams::pair(ring))?;
        let descriptors = end.into_fds().map(IntoRawFd::into_raw_fd);
        write(remote, "remote", bypath_channel_remote { descriptors })?;
        give(channel.split(), sender, receiver)
    })
}

/// As `bypath_channel_open`, of datagrams.
///
/// Fails with `BYPATH_E_INVALID`: they are not those of such a channel's end; `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_open(
    remote: *const bypath_channel_remote,
    sender: *mut *mut bypath_channel_datagram_sender,
    receiver: *mut *mut bypath_channel_datagram_receiver,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        both(sender, receiver)?;
        let (numbers, end) = duplicates(remote)?;
        let channel = told(end.open_datagrams())?;
        use_up(numbers);
        give(channel.split(), sender, receiver)
    })
}

/// The octets that a datagram of this channel has at most: half of the ring but 8, and 65527.
///
/// Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_longest(
    sender: *mut bypath_channel_datagram_sender,
    longest: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(longest, "longest")?;
        let most = handle::with(sender, "sender", |s| Ok(s.longest()))?;
        write(longest, "longest", most)
    })
}

/// Sends a datagram; it may be empty. Waits so long for room (ns; 0: no wait; `BYPATH_FOREVER`: no limit), and loses nothing.
///
/// Fails with `BYPATH_E_TOO_LONG`; `BYPATH_E_GONE` where the other end reads no more, which is seen at the latest when the ring is full; `BYPATH_E_WOULD_BLOCK`
/// (with a wait of 0), `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`; `BYPATH_E_FORMAT` where the other end wrote to the memory what no correct one does;
/// `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_send(
    sender: *mut bypath_channel_datagram_sender,
    octets: *const c_void,
    length: usize,
    timeout_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let datagram = self::octets(octets, length, "octets")?;
        handle::with(sender, "sender", |s| {
            s.forget();
            if timeout_ns == 0 {
                return told(s.try_send(datagram));
            }
            s.set_timeout(limit(timeout_ns));
            told(s.send(datagram))
        })
    })
}

/// Takes the next datagram into `octets`, and how many it has, which may be none, into `length`. Waits so long (ns; 0: no wait; `BYPATH_FOREVER`: no limit).
///
/// Fails with `BYPATH_E_END` once the other end sends no more and all was received; `BYPATH_E_TOO_LONG` where it has more than `capacity` octets: it stays, and `length`
/// tells how many; `BYPATH_E_WOULD_BLOCK` (with a wait of 0), `BYPATH_E_TIMED_OUT`, `BYPATH_E_INTERRUPTED`; `BYPATH_E_FORMAT` where the other end wrote to the
/// memory what no correct one does; `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_receive(
    receiver: *mut bypath_channel_datagram_receiver,
    octets: *mut c_void,
    capacity: usize,
    timeout_ns: u64,
    length: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(length, "length")?;
        let room = octets_mut(octets, capacity, "octets")?;
        let (has, fits) = handle::with(receiver, "receiver", |r| {
            let shown = if timeout_ns == 0 {
                told(r.try_peek())?
            } else {
                r.set_timeout(limit(timeout_ns));
                told(r.peek())?
            };
            let datagram = shown.ok_or_else(end)?;
            let has = datagram.len();
            if has <= room.len() {
                datagram.copy_to(0, room);
                datagram.release();
            }
            Ok((has, has <= room.len()))
        })?;
        write(length, "length", has)?;
        match fits {
            true => Ok(()),
            false => Err(Failure {
                status: BYPATH_E_TOO_LONG,
                system: EMSGSIZE,
                text: "the datagram has more octets than `capacity`; it is still there, and `length` tells how many".into(),
            }),
        }
    })
}

/// Shows the next datagram where it lies: writes two runs, the second one of length 0 unless the ring begins anew in it. It stays until it is released, or the receiver is
/// closed; its length stays what it is, its octets can be changed by the other process.
/// Waits, and fails, as `bypath_channel_datagram_receive`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_peek(
    receiver: *mut bypath_channel_datagram_receiver,
    timeout_ns: u64,
    runs: *mut bypath_channel_run,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let place = runs.cast::<[bypath_channel_run; 2]>();
        writable(place, "runs")?;
        let both = handle::with(receiver, "receiver", |r| {
            let datagram = if timeout_ns == 0 {
                told(r.try_peek())?
            } else {
                r.set_timeout(limit(timeout_ns));
                told(r.peek())?
            };
            datagram.map(|d| shown(d.runs())).ok_or_else(end)
        })?;
        write(place, "runs", both)
    })
}

/// Gives the next datagram back, shown or not. Fails with `BYPATH_E_WOULD_BLOCK` or `BYPATH_E_END` where there is none, `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`, `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_release(
    receiver: *mut bypath_channel_datagram_receiver,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        handle::with(receiver, "receiver", |r| {
            told(r.try_peek())?.ok_or_else(end)?.release();
            Ok(())
        })
    })
}

/// Gives room for a datagram of at most `most` octets, where they will lie, as two runs. Nothing is sent before `bypath_channel_datagram_commit`.
/// Waits, and fails, as `bypath_channel_datagram_send`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_reserve(
    sender: *mut bypath_channel_datagram_sender,
    most: usize,
    timeout_ns: u64,
    runs: *mut bypath_channel_run,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let place = runs.cast::<[bypath_channel_run; 2]>();
        writable(place, "runs")?;
        let both = handle::with(sender, "sender", |s| {
            let runs = if timeout_ns == 0 {
                told(s.try_reserve(most)).map(|room| shown(room.runs()))
            } else {
                s.set_timeout(limit(timeout_ns));
                told(s.reserve(most)).map(|room| shown(room.runs()))
            };
            runs.map(|runs| s.show(runs))
        })?;
        write(place, "runs", both)
    })
}

/// Sends a datagram of the first `count` octets of the room that was given, which it uses up; another send does, too. Fails with `BYPATH_E_INVALID` where less was given,
/// `BYPATH_E_GONE`, `BYPATH_E_FORMAT`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_commit(
    sender: *mut bypath_channel_datagram_sender,
    count: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        handle::with(sender, "sender", |s| {
            s.take(count)?;
            s.forget();
            told(s.try_reserve(count))?.commit(count);
            Ok(())
        })
    })
}

/// Before the receiver's descriptor is polled for POLLIN: `sleep` becomes 1 if it will be readable as soon as there is a datagram or the end, or earlier; 0 if that is so
/// already and it may not be. Fails with `BYPATH_E_FORMAT`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_receiver_arm(
    receiver: *mut bypath_channel_datagram_receiver,
    sleep: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(sleep, "sleep")?;
        let armed = handle::with(receiver, "receiver", |r| told(r.arm()))?;
        write(sleep, "sleep", c_int::from(armed))
    })
}

/// The same of the sender, for room for a datagram of `length` octets. Its descriptor is polled for POLLIN, too.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_sender_arm(
    sender: *mut bypath_channel_datagram_sender,
    length: usize,
    sleep: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(sleep, "sleep")?;
        let armed = handle::with(sender, "sender", |s| told(s.arm(length)))?;
        write(sleep, "sleep", c_int::from(armed))
    })
}

/// The descriptor to poll after `bypath_channel_datagram_receiver_arm`. Still owned by the receiver.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_receiver_descriptor(
    receiver: *mut bypath_channel_datagram_receiver,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(descriptor, "descriptor")?;
        let number = handle::with(receiver, "receiver", |half| Ok(half.as_fd().as_raw_fd()))?;
        write(descriptor, "descriptor", number)
    })
}

/// The descriptor to poll after `bypath_channel_datagram_sender_arm`. Still owned by the sender.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_sender_descriptor(
    sender: *mut bypath_channel_datagram_sender,
    descriptor: *mut c_int,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(descriptor, "descriptor")?;
        let number = handle::with(sender, "sender", |half| Ok(half.as_fd().as_raw_fd()))?;
        write(descriptor, "descriptor", number)
    })
}

/// As `bypath_channel_set_spin`. One of both may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_set_spin(
    sender: *mut bypath_channel_datagram_sender,
    receiver: *mut bypath_channel_datagram_receiver,
    spin_ns: u64,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let spin = Duration::from_nanos(spin_ns);
        if sender.is_null() && receiver.is_null() {
            return Err(Failure::invalid("`sender` and `receiver` are NULL"));
        }
        if !sender.is_null() {
            handle::with(sender, "sender", |s| -> Outcome {
                s.set_spin(spin);
                Ok(())
            })?;
        }
        if !receiver.is_null() {
            handle::with(receiver, "receiver", |r| -> Outcome {
                r.set_spin(spin);
                Ok(())
            })?;
        }
        Ok(())
    })
}

/// Tells the other end that no more is sent, after what was committed. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_sender_close(
    sender: *mut bypath_channel_datagram_sender,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || handle::end(sender, "sender").map(drop))
}

/// Receives no more: the other end's calls fail. NULL does nothing. Fails with `BYPATH_E_BUSY` while another thread is inside a call with it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_channel_datagram_receiver_close(
    receiver: *mut bypath_channel_datagram_receiver,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || handle::end(receiver, "receiver").map(drop))
}
