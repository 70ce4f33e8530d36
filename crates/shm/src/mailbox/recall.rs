//! The end of a mailbox whose reader sends again by the carrier what it has not read.

use super::{Mailbox, Reader, phase};
use crate::atomic::{Ordering::*, fence};
use crate::dgram::Octets;
use crate::direction::MOVES;

/// Dead, and what is in it is being sent again. A mailbox that was killed says 0 beside the phase.
const RECALLED: u64 = 1 << 2 | phase::DEAD;

impl Mailbox {
    /// Nothing goes into the ring from now on, and what is in it is sent again by its reader, until that [kills](Mailbox::kill) it: what its writers have to
    /// say goes by the carrier after that. False: it was dead before, and nobody waits.
    pub fn recall(&self) -> bool {
        let gate = &self.gate.0;
        let mut seen = gate.load(Relaxed);
        let mut is_recalled = false;
        for _ in 0..MOVES {
            if seen & 3 == phase::DEAD {
                break;
            }
            match gate.compare_exchange(seen, RECALLED, AcqRel, Relaxed) {
                Ok(_) => {
                    is_recalled = true;
                    break;
                }
                Err(now) => seen = now,
            }
        }
        // Pairs with that of `Writer::push`, as in `Mailbox::kill`.
        fence(SeqCst);
        is_recalled
    }

    /// Whether what is in it is being sent again just now; asked by a writer that could not push.
    pub fn is_recalled(&self) -> bool {
        // Pairs with the Release of `Reader::keep_writers_out`: who has found the lock held by it sees the gate as it was changed before.
        fence(Acquire);
        // Acquire pairs with the end of that: who sends by the carrier then is behind it.
        self.gate.0.load(Acquire) == RECALLED
    }
}

impl<O: Octets> Reader<'_, O> {
    /// Takes the writers' lock as `owner`, for good: nobody writes into the ring any more, and what is taken out of it stays as it was. Asks `waits` as long as
    /// somebody else has it; false: he does not give it back. Only of a mailbox that is dead.
    pub fn keep_writers_out(&self, owner: u32, mut waits: impl FnMut() -> bool) -> bool {
        let lock = &self.mailbox.writers.lock;
        loop {
            // Acquire pairs with `Writer::unlock`: his record is seen. Release pairs with the fence of `Mailbox::is_recalled`.
            match lock.compare_exchange(0, owner, AcqRel, Relaxed) {
                Ok(_) => return true,
                Err(held) if held == owner => return true,
                Err(_) if !waits() => return false,
                Err(_) => {}
            }
        }
    }
}
