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
    /// When a packet came that the device took.
    alive: u64,
    taken: u64,
}

impl Engine {
    /// On this road; `listener`: the queue pair for datagrams.
    pub fn new(road: Box<dyn Road>, listener: Qpn) -> Result<Engine, Failure> {
        let mut device = Device::new();
        let broken =
            |e: &dyn std::fmt::Display| Failure::new(1, format_args!("cannot make a queue pair: {e}"));
        let mtu = Mtu::within(road.mtu()).filter(|mtu| mtu.octets() >= LONGEST).ok_or_else(|| {
            let text = format!(
                "{}: an MTU of {} octets is too small; 1108 are needed: ip link set dev IFACE mtu 1500",
                road.name(),
                road.mtu()
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
        })
    }

    /// The largest path MTU of the road, no larger than `most`.
    pub fn mtu(&self, most: Mtu) -> Mtu {
        Mtu::within(self.road.mtu()).map_or(most, |mtu| mtu.min(most))
    }

    /// Sends a message to a listening queue pair. False: the way is not known yet, it is being asked for.
    pub fn say(&mut self, to: IpAddr, pair: Qpn, message: &impl Serialize) -> Result<bool, Failure> {
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

    /// Nanoseconds since the device took a packet.
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
        let taken = taken(self.device.counters());
        if taken > self.taken {
            self.taken = taken;
            self.alive = now;
        }
        let mut any = received + sent > 0;
        while let Some(event) = self.device.poll_event() {
            any = true;
            if event.pair != self.listener {
                self.events.push_back(event);
            } else if let What::Received(received) = event.what {
                self.hear(received.id, received.len, received.source);
            }
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

/// Packets that reached a queue pair.
const fn taken(c: &Counters) -> u64 {
    let dropped = c.other + c.malformed + c.wrong_icrc + c.unknown_pair + c.wrong_address + c.wrong_partition;
    c.received - dropped
}
