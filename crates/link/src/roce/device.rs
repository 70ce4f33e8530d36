//! Queue pairs and memory: packets in, packets out, events. What every packet must fulfil before a queue pair sees it.

use super::counters::Counters;
use super::inbound::{Inbound, Refusal};
use super::memory::{Local, Memory};
use super::outgoing::Outgoing;
use super::requester::Requester;
use super::responder::{Responder, Taken};
use super::work::{Config, Done, Event, NotPosted, Receive, Received, Request, Source, What};
use bypath_wire::roce::bth::DEFAULT_PKEY;
use bypath_wire::roce::{
    Bth, Deth, Envelope, Extended, Headers, Opcode, Operation, Packet, Psn, Qpn, Refused, Service,
};
use bypath_wire::{Ecn, Network};
use std::collections::{BTreeMap, VecDeque};

/// A queue pair answers congestion with one notification in so long at most, in ns.
const NOTIFY_EVERY: u64 = 50_000;
/// Receive buffers and datagrams that wait at most.
const QUEUE: usize = 4096;
/// Octets around a payload: BTH 12, the longest extended headers beside one 20, ICRC 4. Path MTUs need no padding.
const AROUND: usize = 36;
/// What the lower bits of a partition key say; the uppermost one is membership.
const PARTITION: u16 = 0x7fff;

/// Why a queue pair was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotMade {
    /// The number is taken.
    #[error("there is a queue pair with this number already")]
    Taken,
    /// A value that cannot be.
    #[error("{0}")]
    Invalid(&'static str),
}

/// To whom a datagram goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct To {
    /// The way.
    pub envelope: Envelope,
    /// The queue pair there.
    pub pair: Qpn,
    /// Its key.
    pub qkey: u32,
}

/// A queue pair that is connected to one other.
struct Connected {
    remote: Qpn,
    envelope: Envelope,
    requester: Requester,
    inbound: Inbound,
    service: Answering,
    /// A congestion notification is to be sent.
    notify: bool,
    notified: Option<u64>,
}

enum Answering {
    Rc(Responder),
    /// UC: the PSN that comes next, and the path MTU.
    Uc(Psn, super::Mtu),
}

/// A datagram that waits.
#[derive(Clone, Copy)]
struct Datagram {
    id: u64,
    to: To,
    from: Local,
    immediate: Option<u32>,
}

/// A queue pair for datagrams.
struct Datagrams {
    qkey: u32,
    mtu: u32,
    next: Psn,
    waiting: VecDeque<Datagram>,
    receives: VecDeque<Receive>,
}

enum Pair {
    Connected(Box<Connected>),
    Datagrams(Datagrams),
}

/// Queue pairs with their memory.
#[derive(Default)]
pub struct Device {
    /// The registered regions.
    pub memory: Memory,
    pairs: BTreeMap<Qpn, Pair>,
    events: VecDeque<Event>,
    counters: Counters,
    /// Whose turn it is to send.
    turn: Qpn,
    longest: usize,
}

impl Device {
    /// Without queue pairs.
    pub fn new() -> Device {
        Device::default()
    }

    /// Makes a reliable connection to the queue pair `remote`, on the way of `envelope`; `first` is the PSN that this end
    /// begins with, `expected` the other end's.
    ///
    /// # Errors
    /// [`NotMade`].
    pub fn connect(
        &mut self,
        local: Qpn,
        remote: Qpn,
        envelope: Envelope,
        config: Config,
        first: Psn,
        expected: Psn,
    ) -> Result<(), NotMade> {
        let service = Answering::Rc(Responder::new(config, expected));
        self.connected(local, remote, envelope, config, Requester::new(config, first, true), service)
    }

    /// Makes an unreliable connection. As [`Device::connect`]; the other end begins with any PSN.
    ///
    /// # Errors
    /// [`NotMade`].
    pub fn connect_unreliably(
        &mut self,
        local: Qpn,
        remote: Qpn,
        envelope: Envelope,
        config: Config,
        first: Psn,
    ) -> Result<(), NotMade> {
        let service = Answering::Uc(Psn::default(), config.mtu);
        self.connected(local, remote, envelope, config, Requester::new(config, first, false), service)
    }

    fn connected(
        &mut self,
        local: Qpn,
        remote: Qpn,
        envelope: Envelope,
        config: Config,
        requester: Requester,
        service: Answering,
    ) -> Result<(), NotMade> {
        if !(1..=1 << 20).contains(&config.window) || config.ack_every == 0 || config.timeout == 0 {
            return Err(NotMade::Invalid(
                "a window is 1 to 2^20 packets; acknowledgements and timeouts are not 0",
            ));
        }
        if !(1..=128).contains(&config.reads) {
            return Err(NotMade::Invalid("1 to 128 READs can be on their way"));
        }
        let inbound = Inbound::default();
        let pair = Connected { remote, envelope, requester, inbound, service, notify: false, notified: None };
        let made = self.add(local, Pair::Connected(Box::new(pair)));
        if made.is_ok() {
            self.longest = self.longest.max(envelope.len() + config.mtu.octets() as usize + AROUND);
        }
        made
    }

    /// Makes a queue pair for datagrams, which takes those with this Q_Key.
    ///
    /// # Errors
    /// [`NotMade`].
    pub fn datagrams(&mut self, local: Qpn, qkey: u32, mtu: super::Mtu) -> Result<(), NotMade> {
        let (waiting, receives) = (VecDeque::new(), VecDeque::new());
        let pair = Datagrams { qkey, mtu: mtu.octets(), next: Psn::default(), waiting, receives };
        self.add(local, Pair::Datagrams(pair))
    }

    fn add(&mut self, local: Qpn, pair: Pair) -> Result<(), NotMade> {
        if self.pairs.contains_key(&local) {
            return Err(NotMade::Taken);
        }
        self.pairs.insert(local, pair);
        Ok(())
    }

    /// Takes a queue pair away, with all that it has not done. False: there is none.
    pub fn remove(&mut self, local: Qpn) -> bool {
        self.events.retain(|e| e.pair != local);
        self.pairs.remove(&local).is_some()
    }

    /// Whether a queue pair still works: false if it failed, or there is none.
    pub fn is_well(&self, local: Qpn) -> bool {
        match self.pairs.get(&local) {
            Some(Pair::Connected(pair)) => !pair.requester.is_broken(),
            Some(Pair::Datagrams(_)) => true,
            None => false,
        }
    }

    /// Requests of a queue pair that are not over.
    pub fn pending(&self, local: Qpn) -> usize {
        match self.pairs.get(&local) {
            Some(Pair::Connected(pair)) => pair.requester.pending(),
            Some(Pair::Datagrams(pair)) => pair.waiting.len(),
            None => 0,
        }
    }

    /// Asks a connected queue pair to do something. `id` comes back when it is over.
    ///
    /// # Errors
    /// [`NotPosted`].
    pub fn post(&mut self, local: Qpn, id: u64, request: Request) -> Result<(), NotPosted> {
        match self.pairs.get_mut(&local) {
            Some(Pair::Connected(pair)) => pair.requester.post(&self.memory, id, request),
            Some(Pair::Datagrams(_)) => Err(NotPosted::Service),
            None => Err(NotPosted::Unknown),
        }
    }

    /// Sends a datagram: in one packet, so no longer than the path MTU.
    ///
    /// # Errors
    /// [`NotPosted`].
    pub fn post_datagram(
        &mut self,
        local: Qpn,
        id: u64,
        to: To,
        from: Local,
        immediate: Option<u32>,
    ) -> Result<(), NotPosted> {
        match self.pairs.get_mut(&local) {
            Some(Pair::Datagrams(pair)) => {
                if from.len > pair.mtu {
                    return Err(NotPosted::TooLong { len: from.len, most: pair.mtu });
                }
                if pair.waiting.len() >= QUEUE {
                    return Err(NotPosted::Full);
                }
                self.memory.octets(from).map_err(|_| NotPosted::Memory)?;
                self.longest = self.longest.max(to.envelope.len() + pair.mtu as usize + AROUND);
                pair.waiting.push_back(Datagram { id, to, from, immediate });
                Ok(())
            }
            Some(Pair::Connected(_)) => Err(NotPosted::Service),
            None => Err(NotPosted::Unknown),
        }
    }

    /// Gives a queue pair a buffer for a message that comes.
    ///
    /// # Errors
    /// [`NotPosted`].
    pub fn receive(&mut self, local: Qpn, receive: Receive) -> Result<(), NotPosted> {
        let receives = match self.pairs.get_mut(&local) {
            Some(Pair::Connected(pair)) => &mut pair.inbound.receives,
            Some(Pair::Datagrams(pair)) => &mut pair.receives,
            None => return Err(NotPosted::Unknown),
        };
        if receives.len() >= QUEUE {
            return Err(NotPosted::Full);
        }
        self.memory.octets(receive.to).map_err(|_| NotPosted::Memory)?;
        receives.push_back(receive);
        Ok(())
    }

    /// What has passed.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What is to be told.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Room that a packet needs at most, link header included; it grows with what is made and posted.
    pub const fn longest(&self) -> usize {
        self.longest
    }

    /// Takes a packet that begins with its IP header.
    pub fn handle(&mut self, now: u64, packet: &[u8]) {
        let counters = &mut self.counters;
        counters.received += 1;
        let packet = match Packet::parse(packet) {
            Ok(packet) => packet,
            Err(refused) => {
                match refused {
                    Refused::Other => counters.other += 1,
                    Refused::Extended => counters.extended += 1,
                    Refused::Malformed(_) => counters.malformed += 1,
                    Refused::Icrc => counters.wrong_icrc += 1,
                }
                return;
            }
        };
        let bth = &packet.headers.bth;
        if bth.pkey & PARTITION != DEFAULT_PKEY & PARTITION {
            counters.wrong_partition += 1;
            return;
        }
        let local = bth.destination;
        match self.pairs.get_mut(&local) {
            None => counters.unknown_pair += 1,
            Some(Pair::Datagrams(pair)) => {
                if let Some(received) = pair.handle(&mut self.memory, counters, &packet) {
                    self.events.push_back(Event { pair: local, what: What::Received(received) });
                }
            }
            Some(Pair::Connected(pair)) => {
                let what = pair.handle(now, &mut self.memory, counters, &packet);
                self.events.extend(what.map(|what| Event { pair: local, what }));
                pair.tell(local, &mut self.events);
            }
        }
    }

    /// Writes the next packet that is to be sent into the buffer, which has room for [`Device::longest`] octets; answers
    /// its length. It begins with a link header if the way has one. `None`: there is none now, or too little room.
    pub fn poll_transmit(&mut self, now: u64, buffer: &mut [u8]) -> Option<usize> {
        if buffer.len() < self.longest {
            return None;
        }
        // Each in turn, so that none waits for another's long message.
        let mut at = self.turn;
        for _ in 0..self.pairs.len() {
            let next = self.pairs.range(at..).next().or_else(|| self.pairs.iter().next());
            let local = *next?.0;
            at = Qpn::new(local.value() + 1);
            if let Some(len) = self.transmit_of(now, local, buffer) {
                self.turn = at;
                self.counters.sent += 1;
                return Some(len);
            }
        }
        None
    }

    /// The next packet of a queue pair.
    fn transmit_of(&mut self, now: u64, local: Qpn, buffer: &mut [u8]) -> Option<usize> {
        let pair = self.pairs.get_mut(&local)?;
        match pair {
            Pair::Connected(pair) => {
                let len = pair.transmit(now, &self.memory, &mut self.counters, buffer);
                pair.tell(local, &mut self.events);
                len
            }
            Pair::Datagrams(pair) => {
                let (id, len) = pair.transmit(local, &self.memory, buffer)?;
                let what = What::Over { id, result: len.map(|_| Done::Done) };
                self.events.push_back(Event { pair: local, what });
                len.ok()
            }
        }
    }

    /// When [`Device::handle_timeout`] is to be called next; `None`: when something was posted or has arrived.
    pub fn poll_timeout(&self) -> Option<u64> {
        let of = |pair: &Pair| match pair {
            Pair::Connected(pair) => pair.requester.poll_timeout(),
            Pair::Datagrams(_) => None,
        };
        self.pairs.values().filter_map(of).min()
    }

    /// Does what is due.
    pub fn handle_timeout(&mut self, now: u64) {
        for (local, pair) in &mut self.pairs {
            if let Pair::Connected(pair) = pair {
                pair.requester.handle_timeout(now, &mut self.counters);
                pair.tell(*local, &mut self.events);
            }
        }
    }
}

impl Connected {
    /// What its responder and its requester have to tell.
    fn tell(&mut self, local: Qpn, events: &mut VecDeque<Event>) {
        if let Answering::Rc(responder) = &mut self.service
            && let Some(nak) = responder.poll_broken()
        {
            self.requester.fail(usize::MAX, super::Failure::Flushed);
            events.push_back(Event { pair: local, what: What::Broken(nak) });
        }
        while let Some((id, result)) = self.requester.poll_over() {
            events.push_back(Event { pair: local, what: What::Over { id, result } });
        }
    }

    fn handle(
        &mut self,
        now: u64,
        memory: &mut Memory,
        counters: &mut Counters,
        packet: &Packet<'_>,
    ) -> Option<What> {
        if packet.network.addresses() != self.envelope.network.addresses().reversed() {
            counters.wrong_address += 1;
            return None;
        }
        let opcode = packet.headers.bth.opcode;
        if congested(&packet.network) {
            counters.congested += 1;
            let late = |at: u64| now.saturating_sub(at) >= NOTIFY_EVERY;
            self.notify |= opcode.service() != Service::Cnp && self.notified.is_none_or(late);
        }
        let service = match self.service {
            Answering::Rc(_) => Service::Rc,
            Answering::Uc(..) => Service::Uc,
        };
        if opcode.service() == Service::Cnp {
            counters.notifications_received += 1;
            return None;
        }
        if opcode.service() != service {
            counters.wrong_service += 1;
            return None;
        }
        let (headers, payload) = (&packet.headers, packet.payload);
        if !opcode.operation().is_request() {
            self.requester.handle(now, memory, counters, headers, payload);
            return None;
        }
        if self.requester.is_broken() {
            // The queue pair is in error, in both directions.
            counters.broken += 1;
            return None;
        }
        match &mut self.service {
            Answering::Rc(responder) => {
                match responder.handle(memory, &mut self.inbound, counters, headers, payload) {
                    Taken::Quietly => None,
                    Taken::Received(received) => Some(What::Received(received)),
                    Taken::Broken(nak) => {
                        self.requester.fail(usize::MAX, super::Failure::Flushed);
                        Some(What::Broken(nak))
                    }
                }
            }
            Answering::Uc(expected, mtu) => {
                let received =
                    take_unreliably(expected, *mtu, &mut self.inbound, memory, counters, headers, payload);
                received.map(What::Received)
            }
        }
    }

    fn transmit(
        &mut self,
        now: u64,
        memory: &Memory,
        counters: &mut Counters,
        buffer: &mut [u8],
    ) -> Option<usize> {
        let (remote, envelope) = (self.remote, self.envelope);
        if std::mem::take(&mut self.notify) {
            self.notified = Some(now);
            counters.notifications_sent += 1;
            let bth = Bth { becn: true, ..Bth::new(Opcode::CNP, remote, Psn::default()) };
            let headers = Headers { bth, extended: Extended::Congestion };
            return envelope.emit(buffer, &headers, &[]).ok();
        }
        let mut service = Service::Uc;
        let mut outgoing = None;
        if let Answering::Rc(responder) = &mut self.service {
            service = Service::Rc;
            outgoing = responder.poll_transmit(memory, counters);
        }
        let outgoing = outgoing.or_else(|| self.requester.poll_transmit(now, memory, counters))?;
        emit(buffer, &envelope, service, remote, memory, &outgoing)
    }
}

impl Datagrams {
    fn handle(
        &mut self,
        memory: &mut Memory,
        counters: &mut Counters,
        packet: &Packet<'_>,
    ) -> Option<Received> {
        let Some(deth) = packet.headers.extended.deth() else {
            counters.wrong_service += 1;
            return None;
        };
        if congested(&packet.network) {
            counters.congested += 1;
        }
        if deth.qkey != self.qkey {
            counters.wrong_qkey += 1;
            return None;
        }
        let len = packet.payload.len() as u32;
        let place = self.receives.front().filter(|r| len <= r.to.len).copied();
        let Some((receive, octets)) =
            place.and_then(|r| Some((r, memory.octets_mut(r.to.part(0, len)).ok()?)))
        else {
            counters.no_room += 1;
            return None;
        };
        octets.copy_from_slice(packet.payload);
        self.receives.pop_front();
        let address = packet.network.addresses().source();
        let source = Source { address, port: packet.source_port, pair: deth.source };
        let immediate = packet.headers.extended.immediate();
        Some(Received { id: receive.id, len, written: false, immediate, source: Some(source) })
    }

    /// The caller's number of the next datagram, and the length of its packet or why there is none.
    fn transmit(
        &mut self,
        local: Qpn,
        memory: &Memory,
        buffer: &mut [u8],
    ) -> Option<(u64, Result<usize, super::Failure>)> {
        let datagram = self.waiting.pop_front()?;
        let Datagram { id, to, from, immediate } = datagram;
        let deth = Deth { qkey: to.qkey, source: local };
        let (operation, extended) = match immediate {
            None => (Operation::SendOnly, Extended::Deth(deth)),
            Some(data) => (Operation::SendOnlyImmediate, Extended::DethImmediate(deth, data)),
        };
        let psn = self.next;
        self.next = self.next + 1;
        let payload = (from.len > 0).then_some(from);
        let outgoing = Outgoing { extended, payload, solicited: true, ..Outgoing::new(operation, psn) };
        let len = emit(buffer, &to.envelope, Service::Ud, to.pair, memory, &outgoing);
        Some((id, len.ok_or(super::Failure::Memory)))
    }
}

/// Takes a packet of an unreliable connection (IBTA 9.8.2).
fn take_unreliably(
    expected: &mut Psn,
    mtu: super::Mtu,
    inbound: &mut Inbound,
    memory: &mut Memory,
    counters: &mut Counters,
    headers: &Headers,
    payload: &[u8],
) -> Option<Received> {
    use Operation::*;
    let operation = headers.bth.opcode.operation();
    let begins = matches!(
        operation,
        SendFirst | SendOnly | SendOnlyImmediate | WriteFirst | WriteOnly | WriteOnlyImmediate
    );
    let psn = headers.bth.psn;
    if inbound.is_inside() && (begins || psn != *expected) {
        counters.incomplete += 1;
        inbound.abandon();
    }
    *expected = psn + 1;
    if !begins && !inbound.is_inside() {
        // The rest of a message that was given up.
        counters.headless += 1;
        return None;
    }
    match inbound.take(memory, mtu, operation, &headers.extended, payload) {
        Ok((_, received)) => {
            counters.taken_octets += payload.len() as u64;
            received
        }
        Err(Refusal::NotReady | Refusal::Nak(_)) => {
            counters.no_room += 1;
            inbound.abandon();
            None
        }
    }
}

const fn congested(network: &Network) -> bool {
    let class = match network {
        Network::V4(header) => header.class,
        Network::V6(header) => header.class,
    };
    matches!(class.ecn(), Ecn::Experienced)
}

/// Makes the packet; none if its memory is gone.
fn emit(
    buffer: &mut [u8],
    envelope: &Envelope,
    service: Service,
    remote: Qpn,
    memory: &Memory,
    outgoing: &Outgoing,
) -> Option<usize> {
    let opcode = Opcode::new(service, outgoing.operation)?;
    let bth = Bth {
        ack_request: outgoing.ack_request,
        solicited: outgoing.solicited,
        ..Bth::new(opcode, remote, outgoing.psn)
    };
    let headers = Headers { bth, extended: outgoing.extended };
    let payload = match outgoing.payload {
        Some(local) => memory.octets(local).ok()?,
        None => &[],
    };
    envelope.emit(buffer, &headers, payload).ok()
}
