//! What all sockets of a host have in common: who waits for them, how long, and their end.

use crate::host::{Inner, Shared, Waiters};
use crate::signal::Signal;
use bypath_stack::socket::SocketId;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A socket of the stack, and who waits for it. Dropping it closes the socket.
pub struct Socket {
    pub(crate) shared: Arc<Shared>,
    pub(crate) id: SocketId,
    pub(crate) news: Arc<Signal>,
    timeout: Mutex<Option<Duration>>,
}

impl Socket {
    /// The socket, from now on one that can be waited for.
    pub(crate) fn register(shared: Arc<Shared>, inner: &mut Inner, id: SocketId) -> Socket {
        let waiters = Waiters::default();
        let news = Arc::clone(&waiters.threads);
        inner.waiters.insert(id, waiters);
        Socket { shared, id, news, timeout: Mutex::new(None) }
    }

    /// Longest wait; `None`: as long as it takes; zero: it does not wait.
    pub(crate) fn set_timeout(&self, timeout: Option<Duration>) {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }

    /// Tries, and waits while there is nothing.
    pub(crate) fn wait<T>(
        &self,
        mut attempt: impl FnMut(&mut Inner) -> io::Result<Option<T>>,
    ) -> io::Result<T> {
        let timeout = *self.timeout.lock().unwrap_or_else(PoisonError::into_inner);
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            let mut inner = self.shared.lock();
            if let Some(done) = attempt(&mut inner)? {
                return Ok(done);
            }
            let seen = self.news.count();
            drop(inner);
            if timeout.is_some_and(|t| t.is_zero()) {
                return Err(ErrorKind::WouldBlock.into());
            }
            if !self.news.wait(seen, end) {
                return Err(ErrorKind::TimedOut.into());
            }
        }
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
