//! A device on a road: packets, time, events, and the datagrams of the conversation.

use super::road::Road;
use super::session::{self, LONGEST, Message, QKEY};
use crate::output::Failure;
use crate::raw::wait::{READ, Stop, WRITE};
use bypath::roce::{Access, Counters, Device, Event, Local, Mtu, Receive, Source, To, What};
use bypath::wire::roce::Qpn;
use bypath_sys::clock;
use serde::Serialize;
use std::collections::VecDeque;
use std::net::IpAddr;

/// The region of datagrams.
const KEY: u32 = 2;
/// Places for datagrams of each direction.
const PLACES: u64 = 16;

/// A device on a road.
pub struct Engine {
    pub device: Device,
    pub road: Box<dyn Road>,
    pub stop: Stop,
    listener: Qpn,
    said: u64,
    heard: VecDeque<(Message, Source)>,
    events: VecDeque<Event>,
    /// When a packet came that a connected queue pair took.
    alive: u64,
    taken: u64,
    /// Datagrams that were heard.
    knocks: u64,
}

impl Engine {
    /// On this road; `listener`: the queue pair for datagrams.
    pub fn new(road: Box<dyn Road>, listener: Qpn) -> Result<Engine, Failure> {
        let mut device = Device::new();
        let broken =
            |e: &dyn std::fmt::Display| Failure::new(1, format_args!("cannot make a queue pair: {e}"));
        let mtu = Mtu::within(road.mtu()).filter(|mtu| mtu.octets() >= LONGEST).ok_or_else(|| {
            let text = format!(
                "{}: an MTU of {} octets is too small; 1108 are needed: ip link set dev {} mtu 1500",
                road.name(),
                road.mtu(),
                road.interface()
            );
            Failure::new(1, text)
        })?;
        device.datagrams(listener, QKEY, mtu).map_err(|e| broken(&e))?;
        let region = vec![0; (PLACES * 2 * u64::from(LONGEST)) as usize];
        device.memory.register(KEY, region, 0, Access::LOCAL).map_err(|_| broken(&"the key is taken"))?;
        for id in 0..PLACES {
            device.receive(listener, Receive { id, to: place(id) }).map_err(|e| broken(&e))?;
        }
        Ok(Engine {
            device,
            road,
            stop: Stop::new()?,
            listener,
            said: 0,
            heard: VecDeque::new(),
            events: VecDeque::new(),
            alive: clock::monotonic_ns(),
            taken: 0,
            knocks: 0,
        })
    }

    /// The largest path MTU of the road, no larger than `most`.
    pub fn mtu(&self, most: Mtu) -> Mtu {
        Mtu::within(self.road.mtu()).map_or(most, |mtu| mtu.min(most))
    }

    /// Sends a message to a listening queue pair. False: the way is not known yet, it is being asked for; or as many as have
    /// a place wait to be sent.
    pub fn say(&mut self, to: IpAddr, pair: Qpn, message: &impl Serialize) -> Result<bool, Failure> {
        if self.device.pending(self.listener) as u64 >= PLACES {
            return Ok(false);
        }
        let Some(envelope) = self.road.way(to)? else { return Ok(false) };
        let Some(octets) = session::written(message) else {
            return Err(Failure::new(
                1,
                "a message of the conversation is too long; use a shorter file name",
            ));
        };
        let mut from = place(PLACES + self.said % PLACES);
        self.said += 1;
        from.len = octets.len() as u32;
        if let Ok(room) = self.device.memory.octets_mut(from) {
            room.copy_from_slice(&octets);
        }
        let to = To { envelope, pair, qkey: QKEY };
        self.device
            .post_datagram(self.listener, 0, to, from, None)
            .map_err(|e| Failure::new(1, format_args!("cannot say it: {e}")))?;
        Ok(true)
    }

    /// The next message that was heard.
    pub fn heard(&mut self) -> Option<(Message, Source)> {
        self.heard.pop_front()
    }

    /// The next event of a connected queue pair.
    pub fn event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    pub fn counters(&self) -> Counters {
        *self.device.counters()
    }

    /// Nanoseconds since a connected queue pair took a packet. Who knocks does not break the silence of a peer.
    pub fn silent_for(&self) -> u64 {
        clock::monotonic_ns().saturating_sub(self.alive)
    }

    /// The silence begins now.
    pub fn listen_anew(&mut self) {
        self.alive = clock::monotonic_ns();
    }

    /// Moves packets and takes events; if there was nothing to do, waits for a packet, the device's time, or `until`.
    pub fn turn(&mut self, until: u64) -> Result<(), Failure> {
        let now = clock::monotonic_ns();
        let received = self.road.receive(&mut self.device, now)?;
        if self.device.poll_timeout().is_some_and(|at| at <= now) {
            self.device.handle_timeout(now);
        }
        let sent = self.road.send(&mut self.device, now)?;
        let mut any = received + sent > 0;
        while let Some(event) = self.device.poll_event() {
            any = true;
            if event.pair != self.listener {
                self.events.push_back(event);
            } else if let What::Received(received) = event.what {
                self.knocks += 1;
                self.hear(received.id, received.len, received.source);
            }
        }
        let taken = taken(self.device.counters()) - self.knocks;
        if taken > self.taken {
            self.taken = taken;
            self.alive = now;
        }
        if any {
            return Ok(());
        }
        let until = self.device.poll_timeout().map_or(until, |at| at.min(until));
        let what = if self.road.is_full() { READ | WRITE } else { READ };
        match self.road.descriptor() {
            Some(fd) => _ = self.stop.wait([(fd, what)], Some(until)),
            None => _ = self.stop.wait([], Some(until)),
        }
        Ok(())
    }

    /// Takes a datagram out of its place.
    fn hear(&mut self, id: u64, len: u32, source: Option<Source>) {
        let to = place(id);
        let octets = self.device.memory.octets(Local { len, ..to }).unwrap_or(&[]);
        // No more than wait for their turn.
        if let (Some(message), Some(source), true) = (session::read(octets), source, self.heard.len() < 64) {
            self.heard.push_back((message, source));
        }
        // It was posted before: it can be again.
        let _ = self.device.receive(self.listener, Receive { id, to });
    }
}

/// A place for a datagram.
const fn place(n: u64) -> Local {
    Local { key: KEY, address: n * LONGEST as u64, len: LONGEST }
}

/// Packets that reached a connected queue pair, or were datagrams and heard.
const fn taken(c: &Counters) -> u64 {
    let nobodys = c.other
        + c.extended
        + c.malformed
        + c.wrong_icrc
        + c.unknown_pair
        + c.wrong_address
        + c.wrong_partition;
    // No room, and a wrong Q_Key, there is for datagrams only: no queue pair here is an unreliable connection.
    c.received - nobodys - c.wrong_service - c.wrong_qkey - c.no_room
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath::wire::roce::{Bth, Deth, Envelope, Extended, Headers, Opcode, Operation, Psn, Service};
    use bypath::wire::{IpProtocol, Ipv4Header, Network};
    use std::os::fd::BorrowedFd;

    /// A road on which these packets wait, and all that is sent goes nowhere.
    struct Waiting(Vec<Vec<u8>>);

    fn from_to(from: u8, to: u8) -> Envelope {
        let header = Ipv4Header::new([10, 0, 0, from].into(), [10, 0, 0, to].into(), IpProtocol::UDP);
        Envelope::new(Network::V4(header), 0xc000)
    }

    impl Road for Waiting {
        fn name(&self) -> String {
            "nowhere".to_owned()
        }

        fn interface(&self) -> String {
            "nowhere".to_owned()
        }

        fn mtu(&self) -> usize {
            1500
        }

        fn window(&self) -> u32 {
            32
        }

        fn way(&mut self, _: IpAddr) -> Result<Option<Envelope>, Failure> {
            Ok(Some(from_to(1, 2)))
        }

        fn receive(&mut self, device: &mut Device, now: u64) -> Result<usize, Failure> {
            let packets = std::mem::take(&mut self.0);
            packets.iter().for_each(|packet| device.handle(now, packet));
            Ok(packets.len())
        }

        fn send(&mut self, _: &mut Device, _: u64) -> Result<usize, Failure> {
            Ok(0)
        }

        fn descriptor(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        fn is_full(&self) -> bool {
            false
        }
    }

    const OWN: Qpn = Qpn::new(0x11);

    fn packet(opcode: Opcode, to: Qpn, extended: Extended, payload: &[u8]) -> Vec<u8> {
        let headers = Headers { bth: Bth::new(opcode, to, Psn::new(0)), extended };
        let mut buffer = vec![0; 1500];
        let len = from_to(2, 1).emit(&mut buffer, &headers, payload).expect("a packet");
        buffer.truncate(len);
        buffer
    }

    fn knock(qkey: u32, payload: &[u8]) -> Vec<u8> {
        let ud = Opcode::new(Service::Ud, Operation::SendOnly).expect("an opcode");
        packet(ud, session::LISTENER, Extended::Deth(Deth { qkey, source: OWN }), payload)
    }

    /// An engine with these packets, whose last packet was an age ago.
    fn silent(packets: Vec<Vec<u8>>) -> Engine {
        let mut engine = Engine::new(Box::new(Waiting(packets)), session::LISTENER).expect("an engine");
        let first = Psn::new(0);
        let config = bypath::roce::Config::DEFAULT;
        engine
            .device
            .connect(OWN, Qpn::new(0x22), from_to(1, 2), config, first, first)
            .expect("a queue pair");
        engine.alive = 0;
        engine
    }

    #[test]
    fn who_knocks_does_not_break_the_silence_of_a_peer() {
        let refusal = Message::Refused { session: 1, why: "no".to_owned() };
        let said = session::written(&refusal).expect("a message");
        let rc = Opcode::rc(Operation::SendOnly);
        let mut knocks = vec![knock(QKEY, &said); 40];
        knocks.extend([knock(QKEY, b"nonsense"), knock(5, &said), vec![0x45; 90]]);
        knocks.push(packet(rc, session::LISTENER, Extended::None, b"x"));
        let mut engine = silent(knocks);
        engine.turn(0).expect("a turn");
        assert_eq!(engine.heard().map(|(message, _)| message), Some(refusal));
        assert_eq!(engine.alive, 0);
        engine = silent(vec![knock(QKEY, &said), packet(rc, OWN, Extended::None, b"x")]);
        engine.turn(0).expect("a turn");
        assert_ne!(engine.alive, 0);
    }

    #[test]
    fn what_cannot_be_said_yet_is_not_written_over_what_waits() {
        let mut engine = silent(Vec::new());
        let mut say = |n: u64| {
            let message = Message::Refused { session: n, why: String::new() };
            engine.say(IpAddr::from([10, 0, 0, 2]), OWN, &message).expect("a way")
        };
        let said: Vec<bool> = (0..PLACES + 2).map(&mut say).collect();
        assert_eq!(said.iter().filter(|said| **said).count() as u64, PLACES);
        assert_eq!(said[PLACES as usize..], [false, false]);
        let mut room = vec![0; engine.device.longest()];
        for n in 0..PLACES {
            let len = engine.device.poll_transmit(0, &mut room).expect("a packet");
            let packet = bypath::wire::roce::Packet::parse(&room[..len]).expect("a packet");
            let Some(Message::Refused { session, .. }) = session::read(packet.payload) else {
                panic!("{:?}", packet.payload);
            };
            assert_eq!(session, n);
        }
    }
}
