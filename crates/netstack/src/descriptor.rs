//! Descriptors of sockets, for programs with a loop of their own: one that is readable while the socket is, one that is readable
//! while the socket is writable. They are eventfds, as only poll(2) and its like need them: nobody reads or writes them but us.
//!
//! They are set under the lock of the stack, by whoever changes what they say: the host's thread when there is news, and calls of
//! the socket. So they say what the next call will do, as poll(2) does of the kernel's sockets.

use crate::host::{Inner, Shared};
use bypath_stack::event::Ready;
use bypath_stack::socket::SocketId;
use bypath_sys::eventfd::{self, Bell};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Those of a socket, made when they are first asked for.
#[derive(Debug, Default)]
pub struct Descriptors {
    readable: OnceLock<Bell>,
    writable: OnceLock<Bell>,
    /// There is one.
    any: AtomicBool,
}

/// What a descriptor is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Readable,
    Writable,
}

impl Descriptors {
    /// The one for a side of a socket. `deaf`: the socket reads no more, as it is under the lock.
    pub fn of(
        &self,
        shared: &Shared,
        id: SocketId,
        side: Side,
        deaf: impl FnOnce() -> bool,
    ) -> io::Result<BorrowedFd<'_>> {
        let place = match side {
            Side::Readable => &self.readable,
            Side::Writable => &self.writable,
        };
        if let Some(bell) = place.get() {
            return Ok(bell.as_fd());
        }
        let new = Bell::new().map_err(|e| io::Error::from_raw_os_error(e.raw_os_error()))?;
        let mut inner = shared.lock();
        let bell = place.get_or_init(|| new).as_fd();
        if let Some(waiters) = inner.waiters.get_mut(&id) {
            let shown = waiters.shown.get_or_insert_default();
            let flag = match side {
                Side::Readable => &mut shown.readable,
                Side::Writable => &mut shown.writable,
            };
            flag.get_or_insert(Flag { bell: bell.as_raw_fd(), rung: false });
            shown.deaf |= deaf();
        }
        self.any.store(true, Ordering::Relaxed);
        inner.show(id);
        Ok(bell)
    }

    /// After a call of the socket, under the lock of the stack: what it is may be something else.
    #[inline]
    pub fn show(&self, inner: &mut Inner, id: SocketId) {
        // Relaxed: it was stored under the same lock.
        if self.any.load(Ordering::Relaxed) {
            inner.show(id);
        }
    }
}

/// What is shown of a socket. The descriptors are the socket's, which takes this away before it closes them.
#[derive(Debug, Default)]
pub struct Shown {
    readable: Option<Flag>,
    writable: Option<Flag>,
    /// It reads no more: that is an end, which can be read.
    pub deaf: bool,
}

#[derive(Debug)]
struct Flag {
    bell: i32,
    rung: bool,
}

impl Flag {
    fn set(&mut self, rung: bool) {
        match (std::mem::replace(&mut self.rung, rung), rung) {
            (false, true) => eventfd::ring(self.bell),
            (true, false) => eventfd::silence(self.bell),
            _ => {}
        }
    }
}

impl Shown {
    /// Shows what the socket is now.
    pub fn set(&mut self, ready: Ready) {
        if let Some(flag) = &mut self.readable {
            flag.set(ready.readable || self.deaf);
        }
        if let Some(flag) = &mut self.writable {
            flag.set(ready.writable);
        }
    }
}
