//! The end of a connection that asks (IBTA 9.7.2 to 9.7.6; of UC, 9.8). It sends, waits for answers, and sends again from
//! the first packet that was not answered.

use super::counters::Counters;
use super::extended_of;
use super::memory::Memory;
use super::outgoing::Outgoing;
use super::responder::LONGEST;
use super::work::{Beside, Config, Done, Failure, NotPosted, Request};
use bypath_wire::roce::{
    Aeth, AtomicEth, Extended, Headers, Nak, Operation, Psn, Reth, Syndrome, extended::rnr_ns,
};
use std::collections::VecDeque;

/// Requests that wait at most.
const QUEUE: usize = 4096;
/// Packets of a request at most: a quarter of the circle of PSNs.
const MOST_PACKETS: u32 = 1 << 22;
/// The time doubles as often at most.
const MOST_DOUBLED: u32 = 4;
/// More of "not ready" are not counted.
const FOR_EVER: u32 = 7;

/// A request that is not over.
#[derive(Clone, Copy, Debug)]
struct Pending {
    id: u64,
    request: Request,
    /// Its first PSN, once it has one.
    first: Psn,
    /// Packets of it, or of its answer.
    packets: u32,
    /// READ: packets of the answer that are there. Others: 0.
    got: u32,
}

impl Pending {
    /// The PSN behind its last one.
    fn end(&self) -> Psn {
        self.first + self.packets
    }

    const fn is_answered(&self) -> bool {
        self.request.is_answered()
    }
}

/// What is to be told: the caller's number, and what came of it.
pub type Over = (u64, Result<Done, Failure>);

/// The requester of one queue pair.
#[derive(Debug)]
pub struct Requester {
    config: Config,
    reliable: bool,
    /// In the order of their PSNs; the first `begun` of them have some.
    pending: VecDeque<Pending>,
    begun: usize,
    /// `una`: everything before it is answered. `nxt`: is sent next. `top`: this and what follows was never sent. `free`:
    /// this and what follows is no request's.
    una: Psn,
    nxt: Psn,
    top: Psn,
    free: Psn,
    /// The request that the last packet was of.
    cursor: usize,
    /// Packets since an acknowledgement was asked for.
    unasked: u32,
    deadline: Option<u64>,
    /// Nothing is sent before.
    quiet_until: u64,
    silences: u32,
    not_ready: u32,
    /// Where it went back to because an answer was missing: once for each place.
    gap: Option<Psn>,
    broken: bool,
    over: VecDeque<Over>,
}

impl Requester {
    pub fn new(config: Config, first: Psn, reliable: bool) -> Requester {
        Requester {
            config,
            reliable,
            pending: VecDeque::new(),
            begun: 0,
            una: first,
            nxt: first,
            top: first,
            free: first,
            cursor: 0,
            unasked: 0,
            deadline: None,
            quiet_until: 0,
            silences: 0,
            not_ready: 0,
            gap: None,
            broken: false,
            over: VecDeque::new(),
        }
    }

    pub const fn is_broken(&self) -> bool {
        self.broken
    }

    /// Requests that are not over.
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    pub fn poll_over(&mut self) -> Option<Over> {
        self.over.pop_front()
    }

    /// Takes a request.
    pub fn post(&mut self, memory: &Memory, id: u64, request: Request) -> Result<(), NotPosted> {
        if self.broken {
            return Err(NotPosted::Broken);
        }
        if self.pending.len() >= QUEUE {
            return Err(NotPosted::Full);
        }
        let invalidates = matches!(request, Request::Send { beside: Beside::Invalidate(_), .. });
        if !self.reliable && (request.is_answered() || invalidates) {
            return Err(NotPosted::Service);
        }
        let mut packets = 1;
        if let Some(local) = request.local() {
            let most = LONGEST.min(MOST_PACKETS.saturating_mul(self.config.mtu.octets()));
            if local.len > most {
                return Err(NotPosted::TooLong { len: local.len, most });
            }
            memory.octets(local).map_err(|_| NotPosted::Memory)?;
            packets = self.config.mtu.packets(local.len);
        }
        self.pending.push_back(Pending { id, request, first: Psn::default(), packets, got: 0 });
        Ok(())
    }

    /// Packets that were sent and not answered.
    fn outstanding(&self) -> u32 {
        self.top.since(self.una)
    }

    /// The next packet, if one may be sent.
    pub fn poll_transmit(&mut self, now: u64, memory: &Memory, counters: &mut Counters) -> Option<Outgoing> {
        if self.broken || now < self.quiet_until {
            return None;
        }
        self.quiet_until = 0;
        if self.reliable && self.nxt.since(self.una) >= self.config.window {
            return None;
        }
        let index = if self.nxt == self.free { self.begin()? } else { self.find(self.nxt)? };
        self.cursor = index;
        let pending = *self.pending.get(index)?;
        if let Some(local) = pending.request.local()
            && memory.octets(local).is_err()
        {
            self.fail(index, Failure::Memory);
            return None;
        }
        let psn = self.nxt;
        let mut outgoing = self.packet(&pending, psn);
        let end = if pending.is_answered() { pending.end() } else { psn + 1 };
        if psn.before(self.top) {
            counters.repeated += 1;
        }
        self.nxt = end;
        if self.top.before(end) {
            self.top = end;
        }
        let last = pending.is_answered() || end == pending.end();
        self.unasked += 1;
        // The last one that may be sent asks, too: nothing else would come back.
        let full = end.since(self.una) >= self.config.window;
        if self.reliable {
            outgoing.ack_request = last || full || self.unasked >= self.config.ack_every;
            if outgoing.ack_request {
                self.unasked = 0;
            }
            if self.deadline.is_none() {
                self.deadline = Some(now.saturating_add(self.config.timeout));
            }
        } else {
            // Nobody answers.
            self.una = end;
            if last {
                self.over.push_back((pending.id, Ok(Done::Done)));
                self.pending.pop_front();
                self.begun = 0;
            }
        }
        Some(outgoing)
    }

    /// Which request has this PSN: mostly the one of the packet before, or the next one.
    fn find(&self, psn: Psn) -> Option<usize> {
        let has = |index: &usize| {
            *index < self.begun && self.pending.get(*index).is_some_and(|p| psn.is_within(p.first, p.packets))
        };
        [self.cursor, self.cursor + 1].into_iter().find(has).or_else(|| self.index_of(psn))
    }

    /// Gives the next request its PSNs, and answers its place.
    fn begin(&mut self) -> Option<usize> {
        let answered = self.pending.range(..self.begun).filter(|p| p.is_answered()).count();
        let free = self.free;
        let next = self.pending.get_mut(self.begun)?;
        if next.is_answered() && answered >= self.config.reads {
            return None;
        }
        // Half of the circle must stay free.
        if free.since(self.una) + next.packets >= 1 << 23 {
            return None;
        }
        next.first = free;
        self.free = free + next.packets;
        self.begun += 1;
        Some(self.begun - 1)
    }

    /// The packet of a request with this PSN.
    fn packet(&self, pending: &Pending, psn: Psn) -> Outgoing {
        use Operation::*;
        let mtu = self.config.mtu.octets();
        let index = psn.since(pending.first);
        let offset = index.saturating_mul(mtu);
        let (begins, ends) = (index == 0, index + 1 == pending.packets);
        let part = |local: super::Local| {
            let len = local.len.saturating_sub(offset).min(mtu);
            (len > 0).then(|| local.part(offset, len))
        };
        match pending.request {
            Request::Send { from, beside } => {
                let operation = match (begins, ends, beside) {
                    (true, false, _) => SendFirst,
                    (false, false, _) => SendMiddle,
                    (false, true, Beside::Nothing) => SendLast,
                    (false, true, Beside::Immediate(_)) => SendLastImmediate,
                    (false, true, Beside::Invalidate(_)) => SendLastInvalidate,
                    (true, true, Beside::Nothing) => SendOnly,
                    (true, true, Beside::Immediate(_)) => SendOnlyImmediate,
                    (true, true, Beside::Invalidate(_)) => SendOnlyInvalidate,
                };
                let extended = if ends { extended_of(beside) } else { Extended::None };
                let payload = part(from);
                Outgoing { extended, payload, solicited: ends, ..Outgoing::new(operation, psn) }
            }
            Request::Write { from, to, immediate } => {
                let reth = Reth { address: to.address, key: to.key, length: from.len };
                let (operation, extended) = match (begins, ends, immediate) {
                    (true, false, _) => (WriteFirst, Extended::Reth(reth)),
                    (false, false, _) => (WriteMiddle, Extended::None),
                    (false, true, None) => (WriteLast, Extended::None),
                    (false, true, Some(data)) => (WriteLastImmediate, Extended::Immediate(data)),
                    (true, true, None) => (WriteOnly, Extended::Reth(reth)),
                    (true, true, Some(data)) => (WriteOnlyImmediate, Extended::RethImmediate(reth, data)),
                };
                let solicited = ends && immediate.is_some();
                Outgoing { extended, payload: part(from), solicited, ..Outgoing::new(operation, psn) }
            }
            Request::Read { from, to } => {
                // What is left of it.
                let address = from.address.wrapping_add(offset.into());
                let reth = Reth { address, key: from.key, length: to.len.saturating_sub(offset) };
                Outgoing { extended: Extended::Reth(reth), ..Outgoing::new(ReadRequest, psn) }
            }
            Request::CompareSwap { at, compare, swap } => {
                let atomic = AtomicEth { address: at.address, key: at.key, swap_or_add: swap, compare };
                Outgoing { extended: Extended::Atomic(atomic), ..Outgoing::new(CompareSwap, psn) }
            }
            Request::FetchAdd { at, add } => {
                let atomic = AtomicEth { address: at.address, key: at.key, swap_or_add: add, compare: 0 };
                Outgoing { extended: Extended::Atomic(atomic), ..Outgoing::new(FetchAdd, psn) }
            }
        }
    }

    /// Takes an answer.
    pub fn handle(
        &mut self,
        now: u64,
        memory: &mut Memory,
        counters: &mut Counters,
        headers: &Headers,
        payload: &[u8],
    ) {
        let psn = headers.bth.psn;
        // To something that was sent and is not answered.
        if self.broken || !psn.is_within(self.una, self.outstanding()) {
            counters.stale_answers += 1;
            return;
        }
        let done = |aeth: Aeth| matches!(aeth.syndrome, Syndrome::Ack { .. });
        match (headers.bth.opcode.operation(), headers.extended) {
            // Who refuses says so in an acknowledgement, never beside an answer (IBTA 9.7.5.2).
            (operation, extended)
                if operation != Operation::Acknowledge && !extended.aeth().is_none_or(done) =>
            {
                self.fail(self.index_of(psn).unwrap_or(0), Failure::BadAnswer);
            }
            (Operation::Acknowledge, Extended::Aeth(aeth)) => match aeth.syndrome {
                Syndrome::Ack { .. } => {
                    if !self.advance(now, psn + 1) {
                        self.missing(now, counters);
                    }
                }
                Syndrome::NotReady { timer } => {
                    counters.not_ready_received += 1;
                    self.not_ready(now, psn, timer, counters);
                }
                Syndrome::Nak(Nak::SequenceError) => {
                    counters.naks_received += 1;
                    let before = self.una;
                    if !self.advance(now, psn) {
                        self.missing(now, counters);
                    } else if self.una == before {
                        // The same again, without progress in between.
                        self.once_more(now, Failure::Silence);
                    } else {
                        self.go_back(now);
                    }
                }
                Syndrome::Nak(nak) => {
                    counters.naks_received += 1;
                    self.advance(now, psn);
                    let index = self.index_of(psn).unwrap_or(0);
                    self.fail(index, Failure::Refused(nak));
                }
            },
            (Operation::AtomicAcknowledge, Extended::AtomicAck(_, original)) => {
                if !self.advance(now, psn) {
                    return self.missing(now, counters);
                }
                match self.pending.front() {
                    Some(Pending { request: Request::Read { .. }, .. }) | None => {
                        self.fail(0, Failure::BadAnswer);
                    }
                    Some(front) if !front.is_answered() => self.fail(0, Failure::BadAnswer),
                    Some(_) => self.finish(now, Done::Was(original)),
                }
            }
            (operation, _) => self.read_answer(now, memory, counters, operation, psn, payload),
        }
    }

    /// An answer to a READ.
    fn read_answer(
        &mut self,
        now: u64,
        memory: &mut Memory,
        counters: &mut Counters,
        operation: Operation,
        psn: Psn,
        payload: &[u8],
    ) {
        // Answers are in order: what was asked before is done, but for READs and atomic operations.
        let index = self.index_of(psn).unwrap_or(0);
        let first = self.pending.get(index).map_or(self.una, |p| p.first);
        if self.una.before(first) && !self.advance(now, first) {
            return self.missing(now, counters);
        }
        let Some(&Pending { request: Request::Read { to, .. }, first, packets, got, .. }) =
            self.pending.front()
        else {
            return self.fail(0, Failure::BadAnswer);
        };
        let at = psn.since(first);
        if at != got {
            // What is before `una` does not come here: it is ahead.
            return self.missing(now, counters);
        }
        let mtu = self.config.mtu.octets();
        let offset = got.saturating_mul(mtu);
        let len = to.len.saturating_sub(offset).min(mtu);
        let last = got + 1 == packets;
        let fits = match operation {
            Operation::ReadFirst | Operation::ReadMiddle => !last,
            Operation::ReadLast | Operation::ReadOnly => last,
            _ => false,
        };
        if !fits || payload.len() != len as usize {
            return self.fail(0, Failure::BadAnswer);
        }
        match memory.octets_mut(to.part(offset, len)) {
            Ok(place) => place.copy_from_slice(payload),
            Err(_) => return self.fail(0, Failure::Memory),
        }
        if let Some(front) = self.pending.front_mut() {
            front.got += 1;
        }
        if last {
            return self.finish(now, Done::Done);
        }
        self.una = self.una + 1;
        self.progress(now);
    }

    /// Which request has this PSN.
    fn index_of(&self, psn: Psn) -> Option<usize> {
        self.pending.range(..self.begun).position(|p| psn.is_within(p.first, p.packets))
    }

    /// Everything before `to` is answered, as far as an acknowledgement can. False: something before it needs more.
    fn advance(&mut self, now: u64, to: Psn) -> bool {
        while self.una.before(to) {
            let Some(front) = self.pending.front().filter(|_| self.begun > 0) else { break };
            if front.is_answered() {
                return false;
            }
            let end = front.end();
            if to.before(end) {
                self.una = to;
                self.progress(now);
                break;
            }
            self.finish(now, Done::Done);
        }
        true
    }

    /// The first request is done.
    fn finish(&mut self, now: u64, done: Done) {
        let Some(front) = self.pending.pop_front() else { return };
        self.begun -= 1;
        self.cursor = self.cursor.saturating_sub(1);
        self.over.push_back((front.id, Ok(done)));
        self.una = front.end();
        self.progress(now);
    }

    /// Something was answered.
    fn progress(&mut self, now: u64) {
        self.silences = 0;
        self.not_ready = 0;
        // An answer can come to what is about to be sent again.
        if self.nxt.before(self.una) {
            self.seek(self.una);
        }
        let waits = self.una != self.top;
        self.deadline = waits.then(|| now.saturating_add(self.config.timeout));
    }

    /// An answer is missing: once for each place it is asked for again.
    fn missing(&mut self, now: u64, counters: &mut Counters) {
        if self.gap != Some(self.una) {
            self.gap = Some(self.una);
            counters.gaps += 1;
            self.go_back(now);
        }
    }

    fn not_ready(&mut self, now: u64, psn: Psn, timer: u8, counters: &mut Counters) {
        if !self.advance(now, psn) {
            return self.missing(now, counters);
        }
        self.not_ready += 1;
        if self.config.rnr_retries < FOR_EVER && self.not_ready > self.config.rnr_retries {
            return self.fail(0, Failure::NotReady);
        }
        self.silences = 0;
        self.quiet_until = now.saturating_add(rnr_ns(timer));
        self.go_back(self.quiet_until);
    }

    /// Everything that is not answered is sent again; the time begins anew.
    fn go_back(&mut self, now: u64) {
        self.seek(self.una);
        // Whoever does not answer is not helped by being asked as often.
        let timeout = self.config.timeout.saturating_mul(1 << self.silences.min(MOST_DOUBLED));
        self.deadline = Some(now.saturating_add(timeout));
    }

    /// The next packet to be sent is this one.
    fn seek(&mut self, psn: Psn) {
        self.cursor = 0;
        self.nxt = psn;
        self.unasked = 0;
    }

    /// Goes back without progress, as often as is allowed.
    fn once_more(&mut self, now: u64, failure: Failure) {
        self.silences += 1;
        if self.silences > self.config.retries {
            self.fail(0, failure);
        } else {
            self.go_back(now);
        }
    }

    /// When something is to be done next; `None`: when something arrives.
    pub fn poll_timeout(&self) -> Option<u64> {
        if self.broken {
            return None;
        }
        // While it is quiet there is something to be sent at the end.
        let quiet = (self.nxt != self.free || self.begun < self.pending.len()).then_some(self.quiet_until);
        let quiet = quiet.filter(|at| *at > 0 && self.una != self.top);
        match (self.deadline, quiet) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Time has passed.
    pub fn handle_timeout(&mut self, now: u64, counters: &mut Counters) {
        if now >= self.quiet_until {
            self.quiet_until = 0;
        }
        if self.deadline.is_some_and(|at| at <= now) && !self.broken {
            counters.timeouts += 1;
            self.gap = None;
            self.once_more(now, Failure::Silence);
        }
    }

    /// A request failed: nothing more is sent, and all others are flushed.
    pub fn fail(&mut self, index: usize, failure: Failure) {
        self.broken = true;
        self.deadline = None;
        for (n, pending) in self.pending.drain(..).enumerate() {
            let failure = if n == index { failure } else { Failure::Flushed };
            self.over.push_back((pending.id, Err(failure)));
        }
        (self.begun, self.cursor) = (0, 0);
        (self.una, self.nxt, self.top) = (self.free, self.free, self.free);
    }
}
