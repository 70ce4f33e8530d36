//! Senders that have a mailbox, as its receiver sees them: who of them is gone, and what he has lent (`stand_in`) keeps its port no longer.
//!
//! Their receiver looks in its own calls: at all when somebody wants a place, at one when it looks who calls, and before a sleep at one in a millisecond.
//! While it sleeps nobody does.

use super::Record;
use super::inbound::{Inbound, SENDERS, take};
use crate::{state, table};
use bypath_sys::{clock, fd, strangers, unix};
use std::sync::atomic::Ordering::*;

/// How often one is looked after before a sleep, at most.
const EVERY_US: u64 = 1000;

impl Inbound {
    /// Whether a sender's place is nobody's, or its sender is gone. Under [`state::LIFE`].
    pub(super) fn is_free(&self, at: usize) -> bool {
        let (place, lent) = (&self.senders[at], &self.lent[at]);
        let own = place.load(Relaxed) - 1;
        // A sender says nothing more: what can be read is its end.
        if own >= 0 && unix::peek(own, &mut [0; 8]).is_none() {
            return false;
        }
        take(place).into_iter().for_each(strangers::close_caller);
        take(lent).into_iter().for_each(fd::close);
        for kept in &self.shares[at] {
            drop(kept.take());
        }
        true
    }

    /// The next one who has lent something, if somebody has. Under [`state::LIFE`].
    pub(super) fn look_after_a_lender(&self) {
        if !self.has_lenders.load(Relaxed) {
            return;
        }
        let from = self.lender.load(Relaxed) as usize;
        let mut turns = (from..from + SENDERS).map(|at| at % SENDERS);
        match turns.find(|at| self.lent[*at].load(Relaxed) != 0) {
            Some(at) => {
                self.lender.store((at + 1) as u32, Relaxed);
                self.is_free(at);
            }
            None => self.has_lenders.store(false, Relaxed),
        }
    }
}

impl Record {
    /// Before a sleep.
    #[inline]
    pub(super) fn look_after_lenders(&self) {
        if self.inbound.has_lenders.load(Relaxed) {
            self.look_after_some();
        }
    }

    fn look_after_some(&self) {
        let (now, last) = (clock::ticks(), &self.inbound.lenders_seen);
        if now.wrapping_sub(last.load(Relaxed)) <= EVERY_US * state::ticks_per_us() || state::is_borrowed() {
            return;
        }
        let Some(_life) = state::LIFE.try_lock(table::tid()) else { return };
        last.store(now, Relaxed);
        self.inbound.look_after_a_lender();
    }
}
