//! What a socket of TCP is ready for, as poll(2) asks it.

use super::error::WriteError;
use super::settle::Before;
use super::socket::Tcp;
use crate::time::Instant;

impl Tcp<'_> {
    /// Somebody has called and can be accepted.
    pub fn has_callers(&mut self) -> bool {
        self.stack.tcp.listener(self.index).is_some_and(|listener| !listener.queue.is_empty())
    }

    /// There is an error to be fetched.
    pub fn has_failed(&mut self) -> bool {
        self.stack.tcp.entry(self.index).is_some_and(|entry| entry.connection.has_failed())
    }

    /// The other side has finished.
    pub fn is_finished(&mut self) -> bool {
        self.stack.tcp.entry(self.index).is_some_and(|entry| entry.connection.is_finished())
    }

    /// Octets that were written and are not acknowledged.
    pub fn unacknowledged(&mut self) -> usize {
        self.stack.tcp.entry(self.index).map_or(0, |entry| entry.connection.unacknowledged())
    }

    /// We have finished.
    pub fn is_shut(&mut self) -> bool {
        self.stack.tcp.entry(self.index).is_some_and(|entry| entry.connection.is_shut())
    }

    /// Nobody will read what comes from now on: once we have finished, too, it is answered with a reset, as after `close`
    /// (RFC 9293, 3.6.1). What came already can be read.
    pub fn stop_reading(&mut self) {
        if let Some(entry) = self.stack.tcp.entry_mut(self.index) {
            entry.connection.deaf = true;
        }
    }

    /// What was written goes at once, however short it is and whatever it waits for: what setting TCP_NODELAY does, beside.
    pub fn push(&mut self, now: Instant) {
        let Some(entry) = self.stack.tcp.entry_mut(self.index) else { return };
        let before = Before::of(entry);
        entry.connection.push();
        self.stack.settle(now, self.index, &before);
    }

    /// As [`write`](Tcp::write); `more`: the next octets follow soon, what is short can wait for them (MSG_MORE). It waits until
    /// something is heard of the other side, or for as long as an acknowledgement is waited for.
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write_more(&mut self, now: Instant, octets: &[u8], more: bool) -> Result<usize, WriteError> {
        self.stack.tcp.clock = now;
        self.write_before(octets, more)
    }
}
