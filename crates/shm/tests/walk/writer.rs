//! W: send, upgrade, claim, flush, sleep for space, shutdown. One step is one access to something shared.
//!
//! The accesses follow `Direction::{space, publish, begin_ring, claim}` and `wait::{arm, disarm, wake}`; what
//! stands between them follows docs/switch-protocol.md.

use crate::state::*;
use crate::{Config, Mutation};

/// The next access of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum W {
    /// No such frame.
    None,
    /// Between two calls.
    Idle,
    // A call on a warm end: attention.
    LoadInbox,
    TakeInbox,
    LoadAskFirst,
    Lock,
    // `begin_ring`, under the lock.
    LoadConsent,
    CountCarrier,
    StoreSwitchK,
    StoreTail,
    TakeConsent,
    StoreHead,
    KernelSend,
    // `space`, the copy, `publish`.
    LoadHead,
    Put,
    Publish,
    Unlock,
    // Look: `wait::wake`, then the ask word.
    LoadWait,
    RingBell,
    ClearWait,
    LoadAsk,
    // `claim` and what follows.
    ClaimLock,
    RaiseFlushing,
    ClaimLoad,
    ClaimSwap,
    Flush,
    DropFlushing,
    Fin,
    // Sleep for space.
    UnlockToWait,
    Silence,
    RaiseAsleep,
    Arm,
    LookHead,
    LookAsk,
    LookInbox,
    Sleep,
    Disarm,
    DropAsleep,
    /// A handler that silenced the thread's bell rings it again for the frame below.
    RingOwn,
}

/// [`Frame::purpose`]: the byte of this call.
const OWN: u8 = 0;
/// A byte that a signal handler queued.
const QUEUED: u8 = 1;
/// The call's work is done; a claim remains.
const CLAIM_ONLY: u8 = 2;
/// Shutdown.
const SHUT: u8 = 3;

pub fn successors(s: &State, config: &Config, out: &mut Vec<Next>) -> Result<(), Fault> {
    let nested = s.w[1].at != W::None;
    let f = usize::from(nested);
    let mut step = Step { s: *s, f, config, out };
    if config.signals_writer && !s.signalled && s.started < config.bytes {
        let mut n = *s;
        n.signalled = true;
        n.started += 1;
        n.w[1] = Frame::new(W::LoadInbox);
        if n.w[0].at == W::Sleep {
            // EINTR, once the handler has returned.
            n.w[0].at = W::Disarm;
        }
        step.out.push(Next { state: n, kind: Kind::Accident, by_writer: true });
    }
    step.run()
}

struct Step<'a> {
    s: State,
    f: usize,
    config: &'a Config,
    out: &'a mut Vec<Next>,
}

impl Step<'_> {
    fn me(&mut self) -> &mut Frame<W> {
        &mut self.s.w[self.f]
    }

    fn emit(&mut self, kind: Kind) {
        self.out.push(Next { state: self.s, kind, by_writer: true });
    }

    fn goto(&mut self, at: W) -> Result<(), Fault> {
        self.me().at = at;
        self.emit(Kind::Goes);
        Ok(())
    }

    fn broken(&self, m: Mutation) -> bool {
        self.config.mutation == Some(m)
    }

    /// The call returns.
    fn finish(&mut self) -> Result<(), Fault> {
        if self.f == 0 {
            *self.me() = Frame::new(W::Idle);
        } else if self.me().silenced && !self.broken(Mutation::HandlerKeepsBell) {
            *self.me() = Frame::new(W::RingOwn);
        } else {
            *self.me() = Frame::new(W::None);
        }
        self.emit(Kind::Goes);
        Ok(())
    }

    /// The carrier reports that the reader is gone: the program gets the error and ends.
    fn fail(&mut self) -> Result<(), Fault> {
        self.s.w_life = Life::Ended;
        self.s.writer_gone();
        self.emit(Kind::Goes);
        Ok(())
    }

    /// Under the lock: where the byte goes.
    fn dispatch(&mut self) -> Result<(), Fault> {
        let at = match self.s.w_path {
            WPath::Kernel => W::LoadConsent,
            WPath::Ring => W::LoadHead,
            WPath::Flush => return Err("W left its lock in the middle of a flush"),
        };
        self.goto(at)
    }

    /// A byte found its place: next a queued one, else out of the lock.
    fn placed(&mut self) -> Result<(), Fault> {
        match self.me().purpose {
            OWN => self.s.accepted += 1,
            QUEUED => self.s.queued -= 1,
            _ => {}
        }
        self.leave(W::Unlock)
    }

    fn leave(&mut self, unlock: W) -> Result<(), Fault> {
        if self.s.queued > 0 {
            self.me().purpose = QUEUED;
            return self.dispatch();
        }
        self.me().purpose = CLAIM_ONLY;
        self.goto(unlock)
    }

    /// The flush is complete, the lock still held.
    fn flushed(&mut self) -> Result<(), Fault> {
        self.s.w_path = WPath::Kernel;
        self.s.flush = 0;
        self.me().head = Frame::new(W::None).head;
        match self.me().purpose {
            OWN | QUEUED => self.goto(W::KernelSend),
            SHUT => self.shut(),
            _ => self.leave(W::Unlock),
        }
    }

    /// Everything is flushed: queued bytes, then FIN.
    fn shut(&mut self) -> Result<(), Fault> {
        if self.s.queued > 0 { self.goto(W::KernelSend) } else { self.goto(W::Fin) }
    }

    fn claim_locked(&mut self) -> Result<(), Fault> {
        if self.s.w_path == WPath::Ring
            && !(self.broken(Mutation::FinBeforeFlush) && self.me().purpose == SHUT)
        {
            return self.goto(W::RaiseFlushing);
        }
        match self.me().purpose {
            SHUT => self.shut(),
            OWN => self.dispatch(),
            _ => self.leave(W::Unlock),
        }
    }

    fn idle(&mut self) {
        let before = self.s;
        if self.s.started < self.config.bytes {
            self.s.started += 1;
            self.me().at = W::LoadInbox;
            self.emit(Kind::Starts);
            self.s = before;
        }
        if self.s.w_path == WPath::Ring {
            *self.me() = Frame { purpose: CLAIM_ONLY, ..Frame::new(W::ClaimLock) };
            self.emit(Kind::Starts);
            self.s = before;
        }
        *self.me() = Frame { purpose: SHUT, ..Frame::new(W::ClaimLock) };
        self.emit(Kind::Starts);
    }

    fn run(&mut self) -> Result<(), Fault> {
        let size = SIZE;
        let at = self.me().at;
        match at {
            W::None => Ok(()),
            W::Idle => {
                self.idle();
                Ok(())
            }
            W::LoadInbox => {
                let at = if self.s.inbox { W::TakeInbox } else { W::Lock };
                self.goto(at)
            }
            W::TakeInbox => {
                self.s.inbox = false;
                self.goto(W::LoadAskFirst)
            }
            W::LoadAskFirst => {
                let at = if self.s.ask & RECALL != 0 { W::ClaimLock } else { W::Lock };
                self.goto(at)
            }
            W::Lock | W::ClaimLock if self.s.locked_by == 1 => {
                // A handler inside its own thread's lock. (A frame below holds it: f is 1 here.)
                if self.me().purpose != OWN || self.s.w[0].purpose == SHUT {
                    // Nothing of its own to place, or EPIPE.
                    return self.finish();
                }
                self.s.queued += 1;
                self.s.accepted += 1;
                self.finish()
            }
            W::Lock => {
                self.s.locked_by = self.f as u8 + 1;
                self.dispatch()
            }
            W::ClaimLock => {
                self.s.locked_by = self.f as u8 + 1;
                self.claim_locked()
            }
            W::LoadConsent => {
                if self.s.ask == CONSENT {
                    self.goto(W::CountCarrier)?;
                }
                self.goto(W::KernelSend)
            }
            W::CountCarrier => {
                self.me().value = self.s.carrier.written();
                self.goto(W::StoreSwitchK)
            }
            W::StoreSwitchK => {
                self.s.switch_k = self.me().value;
                self.me().value = 0;
                self.goto(W::StoreTail)
            }
            W::StoreTail => {
                self.s.tail = self.s.w_tail;
                self.goto(W::TakeConsent)
            }
            W::TakeConsent => {
                if self.s.ask == CONSENT {
                    self.s.ask = 0;
                    self.goto(W::StoreHead)
                } else {
                    self.goto(W::KernelSend)
                }
            }
            W::StoreHead => {
                let path = if self.broken(Mutation::SkipDrain) { Path::Ring } else { Path::Drain };
                self.s.head = Head { at: self.s.w_tail, path };
                self.s.w_path = WPath::Ring;
                self.goto(W::LoadHead)
            }
            W::KernelSend => {
                if self.s.r_life != Life::Runs {
                    return self.fail();
                }
                let byte = self.s.w_tail;
                self.s.carrier.send(byte)?;
                self.s.w_tail += 1;
                if self.me().purpose == SHUT {
                    self.s.queued -= 1;
                    return self.shut();
                }
                self.placed()
            }
            W::LoadHead => {
                let head = self.s.head;
                let used = self.s.w_tail.wrapping_sub(head.at);
                if head.path == Path::Kernel || used > size {
                    return Err("W sees a head that no correct peer writes");
                }
                if used < size {
                    return self.goto(W::Put);
                }
                // Full: spill, or wait (not with bytes that were accepted already).
                if self.me().purpose == OWN && self.s.queued == 0 {
                    let s = self.s;
                    self.goto(W::UnlockToWait)?;
                    self.s = s;
                }
                self.goto(W::RaiseFlushing)
            }
            W::Put => {
                let at = self.s.w_tail;
                self.s.ring[(at % size) as usize] = at;
                self.goto(W::Publish)
            }
            W::Publish => {
                self.s.w_tail += 1;
                self.s.tail = self.s.w_tail;
                self.placed()
            }
            W::Unlock => {
                self.s.locked_by = 0;
                if self.s.queued > 0 && !self.broken(Mutation::QueueBeforeUnlockOnly) {
                    // A handler came between the last look at the queue and the unlock.
                    self.me().purpose = QUEUED;
                    return self.goto(W::Lock);
                }
                if self.s.w_path == WPath::Ring && !self.broken(Mutation::NoLookAfterPublish) {
                    self.me().place = 0;
                    return self.goto(W::LoadWait);
                }
                self.finish()
            }
            W::LoadWait => {
                let place = self.me().place;
                let seen = self.s.r_wait[place as usize];
                if seen != 0 {
                    self.me().value = seen;
                    return self.goto(W::RingBell);
                }
                self.next_place()
            }
            W::RingBell => {
                self.s.r_bell = true;
                self.goto(W::ClearWait)
            }
            W::ClearWait => {
                let (place, seen) = (self.me().place as usize, self.me().value);
                if self.s.r_wait[place] == seen || self.broken(Mutation::NoTickets) {
                    self.s.r_wait[place] = 0;
                }
                self.next_place()
            }
            W::LoadAsk => {
                if self.s.ask & RECALL != 0 {
                    return self.goto(W::ClaimLock);
                }
                self.finish()
            }
            W::RaiseFlushing => {
                self.s.flushing = !self.broken(Mutation::ClaimUnannounced);
                self.goto(W::ClaimLoad)
            }
            W::ClaimLoad => {
                self.me().head = self.s.head;
                self.goto(W::ClaimSwap)
            }
            W::ClaimSwap => {
                let seen = self.me().head;
                if seen.path == Path::Kernel {
                    return Err("W claims what is claimed");
                }
                if self.s.head != seen && !self.broken(Mutation::ClaimByStore) {
                    self.me().head = self.s.head;
                    return self.goto(W::ClaimSwap);
                }
                self.s.head = Head { at: seen.at, path: Path::Kernel };
                self.s.w_path = WPath::Flush;
                self.s.flush = seen.at;
                let done = self.s.flush == self.s.w_tail;
                self.goto(if done { W::DropFlushing } else { W::Flush })
            }
            W::Flush => {
                if self.s.r_life != Life::Runs {
                    return self.fail();
                }
                let at = self.s.flush;
                let byte = self.s.ring[(at % size) as usize];
                self.s.carrier.send(byte)?;
                self.s.flush += 1;
                let done = self.s.flush == self.s.w_tail;
                self.goto(if done { W::DropFlushing } else { W::Flush })
            }
            W::DropFlushing => {
                self.s.flushing = false;
                self.flushed()
            }
            W::Fin => {
                self.s.carrier.fin = Fin::Sent;
                if self.s.w_path == WPath::Ring {
                    // Only the mutation comes here.
                    return self.goto(W::ClaimLoad);
                }
                self.s.w_life = Life::Ended;
                self.s.writer_gone();
                self.emit(Kind::Goes);
                Ok(())
            }
            _ => self.wait(),
        }
    }

    fn next_place(&mut self) -> Result<(), Fault> {
        self.me().value = 0;
        if (self.me().place as usize) < PLACES - 1 && self.config.signals_reader {
            self.me().place += 1;
            return self.goto(W::LoadWait);
        }
        self.me().place = 0;
        self.goto(W::LoadAsk)
    }

    fn wait(&mut self) -> Result<(), Fault> {
        let at = self.me().at;
        match at {
            W::UnlockToWait => {
                self.s.locked_by = 0;
                if self.s.queued > 0 {
                    return self.goto(W::Lock);
                }
                self.goto(W::Silence)
            }
            W::Silence => {
                self.s.w_bell = false;
                self.me().silenced = self.f == 1;
                self.goto(W::RaiseAsleep)
            }
            W::RaiseAsleep => {
                self.s.asleep = true;
                self.goto(W::Arm)
            }
            W::Arm => {
                let wakers = self.s.r.iter().map(|f| f.value);
                let ticket = State::fresh_ticket(&self.s.w_wait, wakers);
                let place = self.s.w_wait.iter().position(|p| *p == 0).ok_or("no place to wait")?;
                self.s.w_wait[place] = ticket;
                self.me().ticket = ticket;
                let skip = self.broken(Mutation::WriterSleepsUnseeing);
                self.goto(if skip { W::Sleep } else { W::LookHead })
            }
            W::LookHead => {
                let h = self.s.head;
                let full = h.path != Path::Kernel && self.s.w_tail - h.at == SIZE;
                self.goto(if full { W::LookAsk } else { W::Disarm })
            }
            W::LookAsk => {
                let at = if self.s.ask & RECALL != 0 { W::Disarm } else { W::LookInbox };
                self.goto(at)
            }
            W::LookInbox => {
                let at = if self.s.inbox { W::Disarm } else { W::Sleep };
                self.goto(at)
            }
            W::Sleep => {
                // ppoll {carrier, bell}
                let woken = self.s.w_bell || self.s.r_life != Life::Runs;
                self.me().at = W::Disarm;
                self.emit(if woken { Kind::Goes } else { Kind::Accident });
                Ok(())
            }
            W::Disarm => {
                let mine = self.me().ticket;
                self.me().ticket = 0;
                for p in &mut self.s.w_wait {
                    if *p == mine {
                        *p = 0;
                    }
                }
                self.goto(W::DropAsleep)
            }
            W::DropAsleep => {
                self.s.asleep = false;
                if self.s.r_life != Life::Runs {
                    return self.fail();
                }
                // An asked recall is answered before the next try.
                self.goto(W::LoadAskFirst)
            }
            W::RingOwn => {
                self.s.w_bell = true;
                *self.me() = Frame::new(W::None);
                self.emit(Kind::Goes);
                Ok(())
            }
            other => unreachable!("{other:?}"),
        }
    }
}
