//! What all sockets of a host have in common: who waits for them, how long, what is polled of them, and their end.

use crate::descriptor::{Descriptors, Side};
use crate::host::{Inner, Shared, Waiters};
use crate::in_process::spin;
use crate::signal::Signal;
use bypath_stack::socket::SocketId;
use std::io::{self, ErrorKind};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A socket of the stack, and who waits for it. Dropping it closes the socket.
pub struct Socket {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: SocketId,
    news: Arc<Signal>,
    timeouts: Mutex<Timeouts>,
    /// Nothing more is read.
    deaf: AtomicBool,
    descriptors: Descriptors,
}

/// Longest waits of calls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeouts {
    pub read: Option<Duration>,
    pub write: Option<Duration>,
    /// They do not wait at all.
    pub nonblocking: bool,
}

/// What a call waits for.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    Read,
    Write,
}

impl Socket {
    /// The socket, from now on one that can be waited for.
    pub(crate) fn register(shared: Arc<Shared>, inner: &mut Inner, id: SocketId) -> Socket {
        let waiters = Waiters::default();
        let news = Arc::clone(&waiters.threads);
        inner.waiters.insert(id, waiters);
        Socket {
            shared,
            id,
            news,
            timeouts: Mutex::default(),
            deaf: AtomicBool::new(false),
            descriptors: Descriptors::default(),
        }
    }

    pub(crate) fn timeouts(&self) -> MutexGuard<'_, Timeouts> {
        self.timeouts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Longest wait; `None`: as long as it takes; zero: it does not wait.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) {
        let mut timeouts = self.timeouts();
        (timeouts.read, timeouts.write) = (timeout, timeout);
    }

    /// Tries, and waits while there is nothing.
    pub(crate) fn wait<T>(
        &self,
        way: Way,
        mut attempt: impl FnMut(&mut Inner) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let timeouts = *self.timeouts();
        let timeout = match way {
            _ if timeouts.nonblocking => Some(Duration::ZERO),
            Way::Read => timeouts.read,
            Way::Write => timeouts.write,
        };
        let now = timeout.is_some_and(|t| t.is_zero());
        let end = timeout.filter(|_| !now).and_then(|t| Instant::now().checked_add(t));
        if self.shared.is_polled() {
            return spin(&self.shared, now, end, attempt);
        }
        loop {
            let mut inner = self.shared.lock();
            if let Some(done) = attempt(&mut inner)? {
                return Ok(done);
            }
            let seen = self.news.count();
            drop(inner);
            if now {
                return Err(ErrorKind::WouldBlock.into());
            }
            if !self.news.wait(seen, end) {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }

    /// A descriptor to be polled.
    pub(crate) fn descriptor(&self, side: Side) -> io::Result<BorrowedFd<'_>> {
        self.descriptors.of(&self.shared, self.id, side, || self.is_deaf())
    }

    /// After a call, under the lock of the stack: what it is may be something else.
    #[inline]
    pub(crate) fn show(&self, inner: &mut Inner) {
        self.descriptors.show(inner, self.id);
    }

    /// Nothing more is read.
    pub(crate) fn is_deaf(&self) -> bool {
        self.deaf.load(Ordering::Relaxed)
    }

    /// Reads no more, and says so to who waits.
    pub(crate) fn deafen(&self) {
        let mut inner = self.shared.lock();
        self.deaf.store(true, Ordering::Relaxed);
        let mut woken = Vec::new();
        if let Some(waiters) = inner.waiters.get_mut(&self.id) {
            waiters.threads.raise();
            waiters.tasks.wake(&mut woken);
            if let Some(shown) = &mut waiters.shown {
                shown.deaf = true;
            }
        }
        inner.show(self.id);
        drop(inner);
        // What they run may use the stack.
        woken.into_iter().for_each(std::task::Waker::wake);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        let waiters = inner.waiters.remove(&self.id);
        if let Ok(engine) = inner.engine() {
            engine.stack().close(self.id);
        }
        self.shared.push(&mut inner);
        drop(inner);
        drop(waiters);
    }
}

/// Not yet.
///
/// # Errors
/// BrokenPipe: nothing comes any more. What was there could be read after the end.
pub fn nothing<T>(inner: &mut Inner) -> io::Result<Option<T>> {
    inner.running().map(|_| None)
}
