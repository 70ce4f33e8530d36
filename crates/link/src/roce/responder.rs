//! The end of a reliable connection that does what it is asked (IBTA 9.7.4, 9.7.5). No clock: it answers, and waits for
//! nothing.

use super::counters::Counters;
use super::inbound::{Inbound, Refusal};
use super::memory::{Local, Memory, Want};
use super::outgoing::Outgoing;
use super::work::{Config, Received};
use bypath_wire::roce::{Aeth, AtomicEth, Extended, Headers, Nak, Operation, Psn, Reth, Syndrome};
use std::collections::VecDeque;

/// Octets of a message at most (IBTA 9.7.7: 2^31).
pub const LONGEST: u32 = 1 << 31;

/// What is to be sent, in the order of its PSNs.
#[derive(Clone, Copy, Debug)]
enum Answer {
    Acknowledge {
        psn: Psn,
        aeth: Aeth,
    },
    /// The rest of a READ: the next packet's PSN, what is left, whether something of it was sent.
    Read {
        psn: Psn,
        rest: Local,
        msn: u32,
        begun: bool,
        again: bool,
    },
    Atomic {
        psn: Psn,
        original: u64,
        msn: u32,
        again: bool,
    },
}

impl Answer {
    const fn psn(&self) -> Psn {
        match *self {
            Answer::Acknowledge { psn, .. } | Answer::Read { psn, .. } | Answer::Atomic { psn, .. } => psn,
        }
    }

    /// Whether it was given before.
    const fn is_again(&self) -> bool {
        matches!(*self, Answer::Read { again: true, .. } | Answer::Atomic { again: true, .. })
    }
}

/// What came of a request that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Nothing to be told.
    Quietly,
    /// A message is complete.
    Received(Received),
    /// It was refused, and no more are taken.
    Broken(Nak),
}

/// The responder of one queue pair.
#[derive(Debug)]
pub struct Responder {
    /// The PSN that comes next.
    expected: Psn,
    /// Messages completed, modulo 2^24.
    msn: u32,
    /// A NAK was sent for what is missing; no other until it is there.
    asked: bool,
    broken: bool,
    /// It broke while it answered, which is to be told.
    broke: Option<Nak>,
    answers: VecDeque<Answer>,
    /// Results of the last atomic operations.
    saved: VecDeque<(Psn, u64)>,
    config: Config,
}

impl Responder {
    pub fn new(config: Config, expected: Psn) -> Responder {
        Responder {
            expected,
            msn: 0,
            asked: false,
            broken: false,
            broke: None,
            answers: VecDeque::new(),
            saved: VecDeque::new(),
            config,
        }
    }

    /// Takes a request.
    pub fn handle(
        &mut self,
        memory: &mut Memory,
        inbound: &mut Inbound,
        counters: &mut Counters,
        headers: &Headers,
        payload: &[u8],
    ) -> Taken {
        if self.broken {
            counters.broken += 1;
            return Taken::Quietly;
        }
        let psn = headers.bth.psn;
        if psn != self.expected {
            // Half of the circle is behind (IBTA 9.7.2), its end included: a READ of 2^31 octets in packets of 256 goes so far.
            if self.expected.since(psn) <= 1 << 23 {
                counters.duplicates += 1;
                self.repeat(counters, headers);
            } else {
                counters.ahead += 1;
                if !self.asked {
                    self.asked = true;
                    self.answer(self.expected, Syndrome::Nak(Nak::SequenceError));
                }
            }
            return Taken::Quietly;
        }
        self.asked = false;
        match self.execute(memory, inbound, headers, payload) {
            Ok(received) => {
                counters.taken_octets += payload.len() as u64;
                // The answer of a READ or atomic operation is its acknowledgement.
                let is_answered = matches!(
                    headers.bth.opcode.operation(),
                    Operation::ReadRequest | Operation::CompareSwap | Operation::FetchAdd
                );
                if headers.bth.ack_request && !is_answered {
                    self.acknowledge();
                }
                received.map_or(Taken::Quietly, Taken::Received)
            }
            Err(Refusal::NotReady) => {
                // What follows is not asked for: all of it comes again.
                self.asked = true;
                self.answer(self.expected, Syndrome::NotReady { timer: self.config.rnr_timer });
                Taken::Quietly
            }
            Err(Refusal::Nak(nak)) => {
                self.broken = true;
                inbound.abandon();
                self.answer(self.expected, Syndrome::Nak(nak));
                Taken::Broken(nak)
            }
        }
    }

    fn execute(
        &mut self,
        memory: &mut Memory,
        inbound: &mut Inbound,
        headers: &Headers,
        payload: &[u8],
    ) -> Result<Option<Received>, Refusal> {
        let invalid = Err(Refusal::Nak(Nak::InvalidRequest));
        let psn = self.expected;
        let packets = match headers.extended {
            // READs and atomic operations stand between messages.
            Extended::Reth(reth) if headers.bth.opcode.operation() == Operation::ReadRequest => {
                if inbound.is_inside() || !self.make_room() {
                    return invalid;
                }
                let rest = readable(memory, &reth)?;
                self.complete();
                self.answers.push_back(Answer::Read { psn, rest, msn: self.msn, begun: false, again: false });
                self.config.mtu.packets(reth.length)
            }
            Extended::Atomic(atomic) => {
                if inbound.is_inside() || !self.make_room() {
                    return invalid;
                }
                let original = execute_atomic(memory, headers.bth.opcode.operation(), &atomic)?;
                self.complete();
                if self.saved.len() >= self.config.reads {
                    self.saved.pop_front();
                }
                self.saved.push_back((psn, original));
                self.answers.push_back(Answer::Atomic { psn, original, msn: self.msn, again: false });
                1
            }
            _ => {
                let (operation, mtu) = (headers.bth.opcode.operation(), self.config.mtu);
                let (complete, received) =
                    inbound.take(memory, mtu, operation, &headers.extended, payload)?;
                if complete {
                    self.complete();
                }
                self.expected = self.expected + 1;
                return Ok(received);
            }
        };
        self.expected = self.expected + packets;
        Ok(None)
    }

    const fn complete(&mut self) {
        self.msn = (self.msn + 1) & 0xff_ffff;
    }

    /// Whether one more answer with contents may wait.
    fn has_room(&self) -> bool {
        self.answers.iter().filter(|a| !matches!(a, Answer::Acknowledge { .. })).count() < self.config.reads
    }

    /// Makes room for a new answer. Who asks for something new has all but the last ones of what he asked for before: the
    /// oldest one that is given again is not awaited any more.
    fn make_room(&mut self) -> bool {
        if !self.has_room()
            && let Some(at) = self.answers.iter().position(Answer::is_again)
        {
            self.answers.remove(at);
        }
        self.has_room()
    }

    /// Everything before the expected PSN is acknowledged.
    fn acknowledge(&mut self) {
        self.answer(self.expected - 1, Syndrome::DONE);
    }

    /// An acknowledgement behind all answers. It takes the place of one that is there already: that one said less, or was
    /// about a packet that has come since.
    fn answer(&mut self, psn: Psn, syndrome: Syndrome) {
        if let Some(Answer::Acknowledge { .. }) = self.answers.back() {
            self.answers.pop_back();
        }
        self.answers.push_back(Answer::Acknowledge { psn, aeth: Aeth { syndrome, msn: self.msn } });
    }

    /// A request that was there before.
    fn repeat(&mut self, counters: &mut Counters, headers: &Headers) {
        let psn = headers.bth.psn;
        match headers.extended {
            Extended::Reth(reth) if headers.bth.opcode.operation() == Operation::ReadRequest => {
                let packets = self.config.mtu.packets(reth.length);
                // Never more than was asked for the first time: nothing that is yet to be expected.
                if reth.length > LONGEST || packets > self.expected.since(psn) {
                    counters.stale_answers += 1;
                    return;
                }
                let rest = Local { key: reth.key, address: reth.address, len: reth.length };
                let answer = Answer::Read { psn, rest, msn: self.msn, begun: false, again: true };
                self.insert(answer, packets);
            }
            Extended::Atomic(_) => match self.saved.iter().find(|(saved, _)| *saved == psn) {
                Some((_, original)) => {
                    let original = *original;
                    self.insert(Answer::Atomic { psn, original, msn: self.msn, again: true }, 1);
                }
                None => counters.forgotten += 1,
            },
            // While it is not ready, or something is missing, that was said already; it may have been lost.
            _ => self.acknowledge_again(),
        }
    }

    /// The acknowledgement of everything, again; but not behind a NAK, which says as much.
    fn acknowledge_again(&mut self) {
        if !matches!(self.answers.back(), Some(Answer::Acknowledge { .. })) {
            self.acknowledge();
        }
    }

    /// Puts an answer that is given once more where its PSN belongs, in place of those to the same packets.
    fn insert(&mut self, answer: Answer, packets: u32) {
        let psn = answer.psn();
        self.answers.retain(|a| match a {
            Answer::Acknowledge { .. } => true,
            _ => !a.psn().is_within(psn, packets),
        });
        if !self.has_room() {
            return;
        }
        let at = self.answers.iter().position(|a| psn.before(a.psn())).unwrap_or(self.answers.len());
        self.answers.insert(at, answer);
    }

    /// With what it refused a request that it had taken, once.
    pub const fn poll_broken(&mut self) -> Option<Nak> {
        self.broke.take()
    }

    /// The next packet.
    pub fn poll_transmit(&mut self, memory: &Memory, counters: &mut Counters) -> Option<Outgoing> {
        let mtu = self.config.mtu;
        match self.answers.front_mut()? {
            Answer::Acknowledge { psn, aeth } => {
                let (psn, aeth) = (*psn, *aeth);
                self.answers.pop_front();
                match aeth.syndrome {
                    Syndrome::Ack { .. } => counters.acks_sent += 1,
                    Syndrome::NotReady { .. } => counters.not_ready_sent += 1,
                    Syndrome::Nak(nak) => counters.nak_sent(nak),
                }
                let extended = Extended::Aeth(aeth);
                Some(Outgoing { extended, ..Outgoing::new(Operation::Acknowledge, psn) })
            }
            Answer::Atomic { psn, original, msn, .. } => {
                let aeth = Aeth { syndrome: Syndrome::DONE, msn: *msn };
                let extended = Extended::AtomicAck(aeth, *original);
                let outgoing = Outgoing { extended, ..Outgoing::new(Operation::AtomicAcknowledge, *psn) };
                self.answers.pop_front();
                Some(outgoing)
            }
            Answer::Read { psn, rest, msn, begun, .. } => {
                let aeth = Aeth { syndrome: Syndrome::DONE, msn: *msn };
                if rest.len > 0 && memory.wanted(*rest, Want::Read).is_err() {
                    // Taken away since it was asked for.
                    let psn = *psn;
                    self.answers.clear();
                    // What was told already is told once.
                    self.broke = (!self.broken).then_some(Nak::RemoteAccess);
                    self.broken = true;
                    counters.nak_sent(Nak::RemoteAccess);
                    let aeth = Aeth { syndrome: Syndrome::Nak(Nak::RemoteAccess), msn: aeth.msn };
                    let extended = Extended::Aeth(aeth);
                    return Some(Outgoing { extended, ..Outgoing::new(Operation::Acknowledge, psn) });
                }
                let len = rest.len.min(mtu.octets());
                let (part, ends, this) = (rest.part(0, len), len == rest.len, *psn);
                let operation = match (*begun, ends) {
                    (false, true) => Operation::ReadOnly,
                    (false, false) => Operation::ReadFirst,
                    (true, true) => Operation::ReadLast,
                    (true, false) => Operation::ReadMiddle,
                };
                *rest = rest.part(len, rest.len - len);
                *psn = *psn + 1;
                *begun = true;
                if ends {
                    self.answers.pop_front();
                }
                let extended =
                    if operation == Operation::ReadMiddle { Extended::None } else { Extended::Aeth(aeth) };
                let payload = (len > 0).then_some(part);
                Some(Outgoing { extended, payload, ..Outgoing::new(operation, this) })
            }
        }
    }
}

/// What a READ asks for, if it may.
fn readable(memory: &Memory, reth: &Reth) -> Result<Local, Refusal> {
    let rest = Local { key: reth.key, address: reth.address, len: reth.length };
    if reth.length > LONGEST {
        return Err(Refusal::Nak(Nak::InvalidRequest));
    }
    // Of no octets nobody asks.
    if reth.length > 0 {
        memory.wanted(rest, Want::Read).map_err(|_| Refusal::Nak(Nak::RemoteAccess))?;
    }
    Ok(rest)
}

/// Does it, and answers what was there before. The octets are a number in this machine's order.
fn execute_atomic(memory: &mut Memory, operation: Operation, atomic: &AtomicEth) -> Result<u64, Refusal> {
    if !atomic.address.is_multiple_of(8) {
        return Err(Refusal::Nak(Nak::InvalidRequest));
    }
    let denied = Refusal::Nak(Nak::RemoteAccess);
    let place = Local { key: atomic.key, address: atomic.address, len: 8 };
    let octets = memory.wanted_mut(place, Want::Atomic).map_err(|_| denied)?;
    let place: &mut [u8; 8] = octets.try_into().map_err(|_| denied)?;
    let original = u64::from_ne_bytes(*place);
    let new = match operation {
        Operation::FetchAdd => original.wrapping_add(atomic.swap_or_add),
        _ if original == atomic.compare => atomic.swap_or_add,
        _ => original,
    };
    *place = new.to_ne_bytes();
    Ok(original)
}
