//! The end of a stack: who is at the other end of a connection hears of it, as nobody would answer him any more.

use super::settle::Before;
use crate::Stack;
use crate::time::Instant;

impl Stack {
    /// Whether octets that were written wait to be acknowledged, of any connection.
    pub fn owes_octets(&self) -> bool {
        let entries = (0..self.tcp.places()).filter_map(|index| self.tcp.entry(index));
        entries.into_iter().any(|entry| entry.connection.unacknowledged() > 0)
    }

    /// Resets all connections but those that have sent everything and finished: for who is not going to call the stack any more, but to
    /// fetch the frames that say so. A process that ends leaves its connections to the kernel; those of a stack end with it, and without
    /// a word the other side would wait for ever.
    pub fn reset_connections(&mut self, now: Instant) {
        self.tcp.clock = now;
        for index in 0..self.tcp.places() {
            let Some(entry) = self.tcp.entry_mut(index) else { continue };
            let c = &mut entry.connection;
            if c.is_shut() && c.unacknowledged() == 0 {
                continue;
            }
            let before = Before::of(entry);
            entry.connection.abort();
            self.settle(now, index, &before);
        }
    }
}
