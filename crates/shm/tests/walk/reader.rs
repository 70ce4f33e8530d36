//! R: recv on each path, drain, consent and its withdrawal, recall, turning plain, sleep.
//!
//! The accesses follow `Direction::{readable, commit, drained, consent, withdraw_consent, ask_recall,
//! withdraw_recall}` and `wait::{arm, disarm, wake}`; what stands between them follows docs/switch-protocol.md.

use crate::state::*;
use crate::{Config, Mutation};

/// The next access of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum R {
    /// No such frame.
    None,
    /// Between two calls.
    Idle,
    // `readable` and the three paths.
    LoadHead,
    Consent,
    WithdrawRecall,
    KernelRecv,
    DrainRecv,
    LoadSwitchK,
    CountCarrier,
    CountQueue,
    Drained,
    // The carrier ended on K: `inherit` what a killed W had not sent again.
    LoadFlushing,
    LoadResentFrom,
    LoadInherited,
    Inherit,
    // Look: `wait::wake` for the other readers, who slept over the carrier.
    LoadSleeper,
    RingSleeper,
    ClearSleeper,
    LoadTail,
    LoadHeadAgain,
    Copy,
    Commit,
    // Look: `wait::wake` for writers.
    LoadWait,
    RingBell,
    ClearWait,
    // `ask_recall`, then the inbox and the sleeping bells of W's process.
    AskOr,
    AskAnd,
    MarkInbox,
    LoadAsleep,
    RingProcess,
    // Sleep.
    Silence,
    Arm,
    LookHead,
    LookTail,
    Sleep,
    Disarm,
    Peek,
    PeekedHead,
    /// A plain program's blocking recv.
    PlainRecv,
    /// See `W::RingOwn`.
    RingOwn,
}

/// [`Frame::purpose`]: the carrier's end was seen.
const END_SEEN: u8 = 1;
/// [`Frame::purpose`]: it has a byte already and returns once the state is right.
const HAS_BYTE: u8 = 2;

pub fn successors(s: &State, config: &Config, out: &mut Vec<Next>) -> Result<(), Fault> {
    let f = usize::from(s.r[1].at != R::None);
    let mut step = Step { s: *s, f, config, out };
    if config.signals_reader && !s.signalled && !s.plain {
        let mut n = *s;
        n.signalled = true;
        n.r[1] = Frame::new(R::LoadHead);
        if n.r[0].at == R::Sleep {
            n.r[0].at = R::Disarm;
        }
        step.out.push(Next { state: n, kind: Kind::Accident, by_writer: false });
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
    fn me(&mut self) -> &mut Frame<R> {
        &mut self.s.r[self.f]
    }

    fn emit(&mut self, kind: Kind) {
        self.out.push(Next { state: self.s, kind, by_writer: false });
    }

    fn goto(&mut self, at: R) -> Result<(), Fault> {
        self.me().at = at;
        self.emit(Kind::Goes);
        Ok(())
    }

    fn broken(&self, m: Mutation) -> bool {
        self.config.mutation == Some(m)
    }

    /// From the top, all that was seen forgotten but for the carrier's end.
    fn retry(&mut self) -> Result<(), Fault> {
        let old = *self.me();
        *self.me() = Frame { purpose: old.purpose, silenced: old.silenced, ..Frame::new(R::LoadHead) };
        self.emit(Kind::Goes);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Fault> {
        if self.f == 0 {
            *self.me() = Frame::new(if self.s.plain { R::PlainRecv } else { R::Idle });
        } else if self.me().silenced && !self.broken(Mutation::HandlerKeepsBell) {
            *self.me() = Frame::new(R::RingOwn);
        } else {
            *self.me() = Frame::new(R::None);
        }
        self.emit(Kind::Goes);
        Ok(())
    }

    /// recv returns 0.
    fn end(&mut self) -> Result<(), Fault> {
        self.s.check_end()?;
        if self.f == 1 {
            return self.finish();
        }
        self.s.r_life = Life::Ended;
        self.s.reader_gone();
        self.emit(Kind::Goes);
        Ok(())
    }

    /// The carrier's end was seen: everything up to a tail loaded from now on is still to be delivered.
    fn end_seen(&mut self, at: R) -> Result<(), Fault> {
        self.me().purpose = END_SEEN;
        if at == R::LoadHead { self.retry() } else { self.goto(at) }
    }

    /// Nothing was left in the ring, or another frame was faster.
    fn inherited(&mut self) -> Result<(), Fault> {
        self.me().value = 0;
        if self.s.head.path == Path::Kernel { self.end() } else { self.retry() }
    }

    fn got(&mut self, byte: u8) -> Result<(), Fault> {
        self.s.deliver(byte)?;
        self.finish()
    }

    /// Nothing to read: wait. A handler's recv may also be non-blocking.
    fn nothing(&mut self) -> Result<(), Fault> {
        if self.f == 1 {
            let s = self.s;
            self.finish()?;
            self.s = s;
        }
        self.goto(R::Silence)
    }

    fn idle(&mut self) {
        let before = self.s;
        let start = |step: &mut Self, at| {
            step.me().at = at;
            step.emit(Kind::Starts);
            step.s = before;
        };
        start(self, R::LoadHead);
        if self.config.recalls && !self.s.asked {
            start(self, R::AskOr);
        }
        if self.s.ask & CONSENT != 0 {
            // `withdraw_consent`, before fork or fd passing.
            self.s.ask &= !CONSENT;
            start(self, R::Idle);
        }
    }

    fn run(&mut self) -> Result<(), Fault> {
        let at = self.me().at;
        match at {
            R::None => Ok(()),
            R::Idle => {
                self.idle();
                Ok(())
            }
            R::LoadHead => {
                let seen = self.s.head;
                self.me().head = seen;
                match seen.path {
                    Path::Kernel => {
                        // Only the frame that asked may withdraw: a handler must not undo what the frame
                        // below asks for just now.
                        let may_withdraw = self.f == 0 || self.broken(Mutation::AnyoneWithdrawsRecall);
                        if self.s.asked && may_withdraw {
                            self.goto(R::WithdrawRecall)?;
                        } else if self.s.ask == 0 {
                            self.goto(R::Consent)?;
                        }
                        self.goto(R::KernelRecv)
                    }
                    Path::Drain => self.goto(R::DrainRecv),
                    Path::Ring => self.goto(R::LoadTail),
                }
            }
            R::Consent => {
                if self.s.ask == 0 {
                    self.s.ask = CONSENT;
                }
                self.goto(R::KernelRecv)
            }
            R::WithdrawRecall => {
                self.s.ask &= !RECALL;
                self.s.asked = false;
                self.goto(R::KernelRecv)
            }
            R::KernelRecv => match self.s.carrier.recv() {
                Received::Byte(b) => self.got(b),
                Received::Nothing => self.nothing(),
                // The head may have moved since it was loaded: look once more.
                Received::End if self.me().purpose != END_SEEN => {
                    if self.broken(Mutation::EndAtFirstSight) {
                        self.end()
                    } else {
                        self.end_seen(R::LoadHead)
                    }
                }
                Received::End => self.goto(R::LoadFlushing),
            },
            R::LoadFlushing => {
                if self.s.flushing {
                    self.goto(R::LoadResentFrom)
                } else {
                    self.end()
                }
            }
            R::LoadResentFrom => {
                let switch_k = self.s.switch_k;
                let counted = self.broken(Mutation::InheritFromTheClaim);
                self.me().value = if counted { 0 } else { self.s.carrier.taken() - switch_k };
                self.goto(R::LoadInherited)
            }
            R::LoadInherited => {
                let head = self.s.head;
                let behind = self.s.tail - head.at;
                self.me().head = head;
                let any = head.path == Path::Kernel && self.me().value < behind;
                if any { self.goto(R::Inherit) } else { self.inherited() }
            }
            R::Inherit => {
                let (seen, resent) = (self.me().head, self.me().value);
                if self.s.head != seen {
                    return self.inherited();
                }
                self.s.head = Head { at: seen.at + resent, path: Path::Ring };
                self.retry()
            }
            R::DrainRecv => match self.s.carrier.recv() {
                Received::Byte(b) if self.broken(Mutation::LeaveDrainToOthers) => self.got(b),
                Received::Byte(b) => {
                    // Whoever takes the last carrier byte ends the state: others sleep until a carrier byte comes.
                    self.s.deliver(b)?;
                    self.me().purpose = HAS_BYTE;
                    self.goto(R::LoadSwitchK)
                }
                Received::Nothing => self.goto(R::LoadSwitchK),
                Received::End => self.end_seen(R::Drained),
            },
            R::LoadSwitchK => {
                self.me().value = self.s.switch_k;
                self.goto(R::CountCarrier)
            }
            R::CountCarrier => {
                let all = self.s.carrier.bytes_received() == self.me().value;
                self.me().value = 0;
                match all {
                    true => self.goto(R::CountQueue),
                    false if self.me().purpose == HAS_BYTE => self.finish(),
                    false => self.nothing(),
                }
            }
            R::CountQueue => match self.s.carrier.queue() {
                0 => self.goto(R::Drained),
                _ if self.me().purpose == HAS_BYTE => self.finish(),
                _ => self.retry(),
            },
            R::Drained => {
                let seen = self.me().head;
                if self.s.head != seen {
                    return if self.me().purpose == HAS_BYTE { self.finish() } else { self.retry() };
                }
                self.s.head.path = Path::Ring;
                self.me().place = 0;
                self.goto(R::LoadSleeper)
            }
            R::LoadSleeper => {
                let place = self.me().place as usize;
                self.me().value = self.s.r_wait[place];
                match self.s.r_wait[place] {
                    0 => self.next_sleeper(),
                    _ => self.goto(R::RingSleeper),
                }
            }
            R::RingSleeper => {
                self.s.r_bell = true;
                self.goto(R::ClearSleeper)
            }
            R::ClearSleeper => {
                let (place, seen) = (self.me().place as usize, self.me().value);
                if self.s.r_wait[place] == seen {
                    self.s.r_wait[place] = 0;
                }
                self.next_sleeper()
            }
            R::LoadTail => {
                let available = self.s.tail.wrapping_sub(self.me().head.at);
                if available > SIZE {
                    return self.goto(R::LoadHeadAgain);
                }
                if available > 0 {
                    return self.goto(R::Copy);
                }
                if self.me().purpose == END_SEEN { self.end() } else { self.nothing() }
            }
            R::LoadHeadAgain => {
                if self.s.head == self.s.r[self.f].head {
                    return Err("R sees a tail that no correct peer writes");
                }
                self.retry()
            }
            R::Copy => {
                let at = self.me().head.at;
                self.me().value = self.s.ring[(at % SIZE) as usize];
                self.goto(R::Commit)
            }
            R::Commit => {
                let (seen, byte) = (self.me().head, self.me().value);
                if self.s.head != seen && !self.broken(Mutation::CommitByStore) {
                    return self.retry();
                }
                self.s.head = Head { at: seen.at + 1, path: seen.path };
                self.s.deliver(byte)?;
                *self.me() = Frame { silenced: self.me().silenced, ..Frame::new(R::LoadWait) };
                self.emit(Kind::Goes);
                Ok(())
            }
            R::LoadWait => {
                let place = self.me().place;
                let seen = self.s.w_wait[place as usize];
                if seen != 0 {
                    self.me().value = seen;
                    return self.goto(R::RingBell);
                }
                self.next_place()
            }
            R::RingBell => {
                self.s.w_bell = true;
                self.goto(R::ClearWait)
            }
            R::ClearWait => {
                let (place, seen) = (self.me().place as usize, self.me().value);
                if self.s.w_wait[place] == seen || self.broken(Mutation::NoTickets) {
                    self.s.w_wait[place] = 0;
                }
                self.next_place()
            }
            _ => self.rare(),
        }
    }

    fn next_place(&mut self) -> Result<(), Fault> {
        self.me().value = 0;
        if (self.me().place as usize) < PLACES - 1 && self.config.signals_writer {
            self.me().place += 1;
            return self.goto(R::LoadWait);
        }
        self.finish()
    }

    fn next_sleeper(&mut self) -> Result<(), Fault> {
        self.me().value = 0;
        if (self.me().place as usize) < PLACES - 1 && self.config.signals_reader {
            self.me().place += 1;
            return self.goto(R::LoadSleeper);
        }
        if self.me().purpose == HAS_BYTE { self.finish() } else { self.retry() }
    }

    fn rare(&mut self) -> Result<(), Fault> {
        let at = self.me().at;
        match at {
            R::AskOr => {
                self.s.ask |= RECALL;
                self.s.asked = true;
                self.goto(R::AskAnd)
            }
            R::AskAnd => {
                self.s.ask &= !CONSENT;
                self.goto(R::MarkInbox)
            }
            R::MarkInbox => {
                self.s.inbox = self.s.w_life == Life::Runs;
                self.goto(R::LoadAsleep)
            }
            R::LoadAsleep => {
                if self.s.asleep {
                    return self.goto(R::RingProcess);
                }
                self.asked()
            }
            R::RingProcess => {
                self.s.w_bell = true;
                self.asked()
            }
            R::Silence => {
                self.s.r_bell = false;
                if self.broken(Mutation::ReaderForgetsWhatItSaw) {
                    self.me().head = self.s.head;
                }
                self.me().silenced = self.f == 1;
                self.goto(R::Arm)
            }
            R::Arm => {
                let wakers = self.s.w.iter().map(|f| f.value);
                let ticket = State::fresh_ticket(&self.s.r_wait, wakers);
                let place = self.s.r_wait.iter().position(|p| *p == 0).ok_or("no place to wait")?;
                self.s.r_wait[place] = ticket;
                self.me().ticket = ticket;
                let skip = self.broken(Mutation::ReaderSleepsUnseeing);
                self.goto(if skip { R::Sleep } else { R::LookHead })
            }
            R::LookHead => {
                if self.s.head != self.s.r[self.f].head {
                    return self.goto(R::Disarm);
                }
                let at = if self.s.head.path == Path::Ring { R::LookTail } else { R::Sleep };
                self.goto(at)
            }
            R::LookTail => {
                let at = if self.s.tail == self.me().head.at { R::Sleep } else { R::Disarm };
                self.goto(at)
            }
            R::Sleep => {
                // ppoll {carrier, bell}
                let woken = self.s.r_bell || self.s.carrier.readable();
                self.me().at = R::Disarm;
                self.emit(if woken { Kind::Goes } else { Kind::Accident });
                Ok(())
            }
            R::Disarm => {
                let mine = self.me().ticket;
                self.me().ticket = 0;
                for p in &mut self.s.r_wait {
                    if *p == mine {
                        *p = 0;
                    }
                }
                if self.me().head.path == Path::Ring { self.goto(R::Peek) } else { self.retry() }
            }
            R::Peek => {
                let mut copy = self.s.carrier;
                match copy.recv() {
                    Received::Byte(_) => self.goto(R::PeekedHead),
                    Received::Nothing => self.retry(),
                    Received::End => self.end_seen(R::LoadHead),
                }
            }
            R::PeekedHead => {
                if self.s.head == self.s.r[self.f].head {
                    return Err("I6: W's own bytes taken for those of an un-hooked writer");
                }
                self.retry()
            }
            R::PlainRecv => match self.s.carrier.recv() {
                Received::Byte(b) => self.got(b),
                Received::Nothing => Ok(()),
                // Residual risk 1: ring bytes of a killed writer are lost to a plain reader.
                Received::End => self.end(),
            },
            R::RingOwn => {
                self.s.r_bell = true;
                *self.me() = Frame::new(R::None);
                self.emit(Kind::Goes);
                Ok(())
            }
            other => unreachable!("{other:?}"),
        }
    }

    /// The recall is asked for: R goes on by hooked calls, or turns plain at once.
    fn asked(&mut self) -> Result<(), Fault> {
        let s = self.s;
        self.finish()?;
        self.s = s;
        self.s.plain = true;
        self.finish()
    }
}
