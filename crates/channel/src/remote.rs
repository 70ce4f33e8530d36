//! The end that is for the other process: three descriptors, and what is checked of them.

use crate::half::Half;
use crate::{Channel, Datagrams, Receiver, Sender, failed};
use bypath_shm::atomic::Ordering::*;
use bypath_shm::region::OwnSlot;
use bypath_sys::strangers::Others;
use bypath_sys::{Errno, pair, poll, seqpacket, sock};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

/// Begins the message that brings the descriptors.
const MESSAGE: u64 = Kind::Octets.magic();
/// Direction that the end writes which made the memory.
const MAKER: usize = 1;

/// What goes through a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Octets,
    Datagrams,
}

impl Kind {
    /// Stands in the first cookie of the slot; the second one is that of the bell of the other end's sender.
    const fn magic(self) -> u64 {
        u64::from_be_bytes(match self {
            Kind::Octets => *b"BYPCHAN1",
            Kind::Datagrams => *b"BYPDGRM1",
        })
    }
}

/// The two halves of an end.
pub(crate) type Halves = (Sender, Receiver);

/// The other end of a channel, which nobody uses yet: to be sent to another process, inherited by it, or opened here.
#[derive(Debug)]
pub struct Remote {
    memory: OwnedFd,
    /// The bell of its sender.
    sends: OwnedFd,
    /// The bell of its receiver.
    receives: OwnedFd,
}

/// Both ends of a new channel: the halves of this one, and the other one.
pub(crate) fn pair(kind: Kind, ring: u32) -> io::Result<(Halves, Remote)> {
    let (slot, memory) = OwnSlot::new(ring).map_err(failed)?;
    slot.back().map_err(failed)?;
    // A page of zeroes is two empty rings, on the path of rings. Where the ends run is not known yet.
    for direction in &slot.control().direction {
        direction.t.cpu.store(u32::MAX, Relaxed);
        direction.h.cpu.store(u32::MAX, Relaxed);
    }
    let (here_sends, receives) = pair::new().map_err(failed)?;
    let (here_receives, sends) = pair::new().map_err(failed)?;
    slot.control().cookies[1].store(number(&sends), Relaxed);
    slot.control().cookies[0].store(kind.magic(), Release);
    for end in [&here_sends, &here_receives, &sends, &receives] {
        // Where the kernel cannot refuse them, it closes them: they are never taken.
        let _ = pair::refuse_descriptors(end.as_fd());
    }
    Ok((halves(slot, MAKER, here_sends, here_receives), Remote { memory, sends, receives }))
}

/// Tells one bell from another, whichever process has it.
fn number(bell: &OwnedFd) -> u64 {
    sock::option_u64(bell.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE).unwrap_or(0)
}

fn halves(slot: OwnSlot, side: usize, sends: OwnedFd, receives: OwnedFd) -> Halves {
    let slot = Arc::new(slot);
    let sender = Sender(Half::new(slot.clone(), side, true, sends));
    (sender, Receiver(Half::new(slot, 1 - side, false, receives)))
}

impl Channel {
    /// Both ends of a new channel with rings of this many octets: a power of two from 4 KiB to 1 MiB.
    ///
    /// # Errors
    /// EINVAL for the size; EMFILE, ENFILE, ENOMEM, EPERM (a filter).
    pub fn pair(ring: u32) -> io::Result<(Channel, Remote)> {
        pair(Kind::Octets, ring).map(|(halves, remote)| (halves.into(), remote))
    }
}

impl Datagrams {
    /// Both ends of a new channel with rings of this many octets: a power of two from 4 KiB to 1 MiB.
    ///
    /// # Errors
    /// EINVAL for the size; EMFILE, ENFILE, ENOMEM, EPERM (a filter).
    pub fn pair(ring: u32) -> io::Result<(Datagrams, Remote)> {
        pair(Kind::Datagrams, ring).map(|(halves, remote)| (halves.into(), remote))
    }
}

impl Remote {
    /// Opens it in this process.
    ///
    /// # Errors
    /// EINVAL: the descriptors are not those of a channel's end; EPROTOTYPE: those of a channel of datagrams; EPERM: its memory
    /// could shrink; ENOMEM.
    pub fn open(self) -> io::Result<Channel> {
        self.halves(Kind::Octets).map(Channel::from)
    }

    /// The same of a channel of datagrams.
    ///
    /// # Errors
    /// As [`open`](Remote::open); EPROTOTYPE: they are those of a channel of octets.
    pub fn open_datagrams(self) -> io::Result<Datagrams> {
        self.halves(Kind::Datagrams).map(Datagrams::from)
    }

    fn halves(self, kind: Kind) -> io::Result<Halves> {
        match self.examined(kind) {
            Ok(slot) => Ok(halves(slot, 1 - MAKER, self.sends, self.receives)),
            Err(e) => {
                leave(self.into_fds().into());
                Err(e)
            }
        }
    }

    /// Its memory, if it is a channel's end.
    fn examined(&self, kind: Kind) -> io::Result<OwnSlot> {
        let slot = OwnSlot::map(self.memory.as_raw_fd()).map_err(failed)?;
        if ![&self.sends, &self.receives].into_iter().all(is_bell) {
            return Err(failed(Errno::INVAL));
        }
        let there = slot.control().cookies[0].load(Acquire);
        match [Kind::Octets, Kind::Datagrams].into_iter().find(|kind| kind.magic() == there) {
            Some(there) if there == kind => {}
            Some(_) => return Err(failed(Errno::PROTOTYPE)),
            None => return Err(failed(Errno::INVAL)),
        }
        // Nobody would hear the bells in the other order.
        if slot.control().cookies[1].load(Relaxed) != number(&self.sends) {
            return Err(failed(Errno::INVAL));
        }
        slot.back().map_err(failed)?;
        Ok(slot)
    }

    /// Its descriptors (memory, sender's bell, receiver's bell), close-on-exec: for a process that inherits them.
    pub fn into_fds(self) -> [OwnedFd; 3] {
        [self.memory, self.sends, self.receives]
    }

    /// From [`into_fds`](Remote::into_fds), in the other process, in the same order.
    pub fn from_fds([memory, sends, receives]: [OwnedFd; 3]) -> Remote {
        Remote { memory, sends, receives }
    }

    /// Sends it through an AF_UNIX socket, in one message.
    ///
    /// # Errors
    /// EAGAIN: there is no room; EPIPE, ECONNRESET, ETOOMANYREFS.
    pub fn send(self, socket: impl AsFd) -> io::Result<()> {
        let with = [self.memory.as_fd(), self.sends.as_fd(), self.receives.as_fd()];
        seqpacket::send_with(socket.as_fd(), &MESSAGE.to_be_bytes(), &with).map_err(failed)
    }

    /// Takes it from an AF_UNIX socket on which nothing else is sent at that time; waits so long, or for ever.
    ///
    /// # Errors
    /// ETIMEDOUT; ECONNRESET: the other process ended, or sent none; EPROTO: it sent something else; EMFILE.
    pub fn receive(socket: impl AsFd, limit: Option<std::time::Duration>) -> io::Result<Remote> {
        let socket = socket.as_fd();
        let limit = limit.map(|limit| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX));
        let mut one = [poll::PollFd { fd: socket.as_raw_fd(), events: libc::POLLIN, revents: 0 }];
        if poll::ppoll(&mut one, limit, 0).map_err(failed)? == 0 {
            return Err(failed(Errno::TIMEDOUT));
        }
        let mut text = [0; 8];
        let (len, fds) =
            seqpacket::receive(socket, &mut text).map_err(failed)?.ok_or(failed(Errno::AGAIN))?;
        if len == 0 {
            return Err(failed(Errno::CONNRESET));
        }
        let fds: Result<[OwnedFd; 3], _> = fds.try_into();
        match fds {
            Ok(fds) if len == 8 && text == MESSAGE.to_be_bytes() => Ok(Remote::from_fds(fds)),
            Ok(fds) => {
                leave(fds.into());
                Err(failed(Errno::PROTO))
            }
            Err(fds) => {
                leave(fds);
                Err(failed(Errno::PROTO))
            }
        }
    }
}

/// Closes what somebody sent who may mean harm: the last close of other sockets than bells may wait.
fn leave(fds: Vec<OwnedFd>) {
    let _others = Others::among(&fds);
    drop(fds);
}

/// Whether it is an AF_UNIX stream with nothing in it, nor anything to come that would be closed with it (Linux 6.16, unless its maker, who may have it
/// still, lets it take that again): nobody rings before somebody sleeps.
fn is_bell(end: &OwnedFd) -> bool {
    let _ = pair::refuse_descriptors(end.as_fd());
    let end = end.as_raw_fd();
    let option = |name| sock::option(end, libc::SOL_SOCKET, name);
    if option(libc::SO_DOMAIN) != Ok(libc::AF_UNIX) || option(libc::SO_TYPE) != Ok(libc::SOCK_STREAM) {
        return false;
    }
    sock::inq(end) == Ok(0)
}
