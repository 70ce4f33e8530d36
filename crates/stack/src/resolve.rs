//! Hardware addresses: ARP (RFC 826, RFC 5227) on the wire, what neighbours ask of us, and what waits for them. Neighbour
//! discovery is in [`crate::ndp`].

use crate::Stack;
use crate::egress::{Fragmentation, Hop, Kind, Outgoing, Waiting};
use crate::event::Event;
use crate::iface::{AddressState, IfaceId};
use crate::ingress::Origin;
use crate::neighbor::{Action, Advertisement, State};
use crate::report::Report;
use crate::socket::SocketError;
use crate::stack::Due;
use crate::time::Instant;
use bypath_wire::arp::{self, ArpOperation, ArpPacket};
use bypath_wire::{Addresses, MacAddr, TrafficClass};
use core::net::{IpAddr, Ipv4Addr, SocketAddr};
use core::time::Duration;

/// Between the two announcements of an IPv4 address: ANNOUNCE_INTERVAL (RFC 5227, 1.1).
const ANNOUNCE: Duration = Duration::from_secs(2);
/// Between the last probe and the first announcement: ANNOUNCE_WAIT.
const ANNOUNCE_WAIT: Duration = Duration::from_secs(2);
/// Between two probes at least: PROBE_MIN. It is less than a second more.
const PROBE: Duration = Duration::from_secs(1);
/// So long an address is not defended again, and nobody is told that it is another one's, too: DEFEND_INTERVAL.
const DEFEND: Duration = Duration::from_secs(10);
/// Neighbours of an interface that are remembered for not having answered, at most.
const MOST_SILENT: usize = 64;

impl Stack {
    /// What neighbours' states ask for by now.
    pub(crate) fn poll_neighbors(&mut self, now: Instant, iface: IfaceId) {
        // What made room for others was not asked for in vain.
        self.drop_lost(iface, None);
        while let Some(action) = self.ifaces[iface.at()].neighbors.poll(now) {
            match action {
                Action::Solicit { address: IpAddr::V4(target), to } => {
                    let own = &self.ifaces[iface.at()];
                    let (Some(mac), Some(source)) = (own.mac(), own.asking_v4(target)) else { continue };
                    let packet = ArpPacket::request(mac, source, target);
                    self.send_arp(iface, to.unwrap_or(MacAddr::BROADCAST), &packet);
                }
                Action::Solicit { address: IpAddr::V6(target), to } => self.solicit(iface, target, to),
                Action::Unreachable { address } => {
                    self.counters.neighbor_failed += 1;
                    // RFC 1122, 3.3.1.4: who was redirected there goes by the first router again.
                    if self.destinations.forget_router(iface, address) {
                        self.generation += 1;
                    }
                    self.fell_silent(iface, address);
                }
            }
            self.drop_lost(iface, Some(now));
        }
    }

    /// Drops what waited in vain; `tell`: now, as if a router had said that the host is not there (RFC 4861, 7.2.2).
    pub(crate) fn drop_lost(&mut self, iface: IfaceId, tell: Option<Instant>) {
        self.counters.neighbor_replaced += self.ifaces[iface.at()].neighbors.take_replaced();
        while let Some((address, waiting)) = self.ifaces[iface.at()].neighbors.take_lost() {
            let Waiting::Packet(outgoing, octets) = waiting else {
                match tell {
                    Some(now) => self.unpark_in_vain(now, iface, address),
                    // It made room for another one: it is asked for once more.
                    None => self.unpark(iface, address),
                }
                continue;
            };
            self.counters.neighbor_drop_unreachable += 1;
            // Who has the sender's port by now may be another one: these octets are none of his.
            if tell.is_some()
                && let Kind::Udp { source, destination, .. } = outgoing.kind
                && let Some(sender) = outgoing.owner.and_then(|id| self.sockets.place(id))
            {
                let addresses = outgoing.addresses;
                let local = SocketAddr::new(addresses.source(), source);
                let remote = SocketAddr::new(addresses.destination(), destination);
                if self.is_told(sender, remote) {
                    self.report(sender, || Report::of_neighbor(local.ip(), remote, iface, &octets));
                    self.socket_failed(sender, SocketError::HostUnreachable, true);
                }
            }
            self.recycle(outgoing.whom, octets);
        }
    }

    /// A neighbour did not answer. Of a router that is told, once until it is heard of again.
    fn fell_silent(&mut self, iface: IfaceId, address: IpAddr) {
        let silent = &mut self.ifaces[iface.at()].silent;
        if silent.contains(&address) {
            return;
        }
        if silent.len() >= MOST_SILENT {
            silent.pop_front();
        }
        silent.push_back(address);
        if self.is_router(iface, address) {
            self.tell(Event::RouterSilent { iface, address });
        }
    }

    /// Something came of a neighbour.
    pub(crate) fn heard_of(&mut self, iface: IfaceId, address: IpAddr) {
        let silent = &mut self.ifaces[iface.at()].silent;
        if let Some(at) = silent.iter().position(|other| *other == address) {
            silent.remove(at);
            if self.is_router(iface, address) {
                self.tell(Event::RouterBack { iface, address });
            }
        }
    }

    /// Whether a way leads by this neighbour.
    fn is_router(&self, iface: IfaceId, address: IpAddr) -> bool {
        self.routes().any(|route| route.iface == iface && route.via == Some(address))
    }

    /// Who would get packets to `to` next, on which interface, if they were not answered for when they were last asked, or, where time is `over`, are
    /// still being asked.
    pub fn silent_towards(
        &mut self,
        to: IpAddr,
        on: Option<IfaceId>,
        over: bool,
    ) -> Option<(IfaceId, IpAddr)> {
        let path = self.path(to, on, None).ok()?;
        let own = &self.ifaces[path.iface.at()];
        let silent = match own.neighbors.state(path.next_hop) {
            // Who is asked again may answer yet.
            Some((State::Incomplete, _)) => over,
            _ => own.silent.contains(&path.next_hop),
        };
        silent.then_some((path.iface, path.next_hop))
    }

    /// What waits for a neighbour goes out next.
    pub(crate) fn resolved(&mut self, iface: IfaceId, ip: IpAddr) {
        let link = self.ifaces[iface.at()].link;
        self.ifaces[link.at()].resolved.push_back((iface, ip));
    }

    pub(crate) fn input_arp(&mut self, origin: &Origin<'_>, packet: &[u8]) {
        self.counters.arp_received += 1;
        let iface = origin.through;
        let own = &self.ifaces[iface.at()];
        let (Some(mac), Ok(arp)) = (own.mac(), ArpPacket::parse(packet)) else {
            self.counters.arp_drop_malformed += 1;
            return;
        };
        let sender = arp.sender_ip;
        if sender.is_multicast()
            || sender.is_loopback()
            || own.is_broadcast(sender)
            || arp.sender_mac.is_multicast()
            || arp.sender_mac == MacAddr::UNSPECIFIED
        {
            self.counters.arp_drop_malformed += 1;
            return;
        }
        let sender_ip = IpAddr::V4(sender);
        self.heard_of(iface, sender_ip);
        let own = &self.ifaces[iface.at()];
        // What a switch gives us back of what we said is no conflict.
        let others = arp.sender_mac != mac;
        if own.has(sender_ip) {
            if others {
                self.counters.arp_conflicts += 1;
                self.defend(origin.now, iface, sender, arp.sender_mac);
            }
            return;
        }
        // RFC 5227, 2.1.1: somebody has the address that we ask for, or asks for it as well.
        let wanted = if arp.is_probe() { arp.target_ip } else { sender };
        if others && own.asks_for(IpAddr::V4(wanted)) {
            self.counters.arp_conflicts += 1;
            return self.duplicate(iface, IpAddr::V4(wanted), Some(arp.sender_mac));
        }
        let for_us = own.has(IpAddr::V4(arp.target_ip));
        let answers = arp.operation == ArpOperation::REPLY;
        let advertisement =
            Advertisement { mac: Some(arp.sender_mac), solicited: answers && for_us, overrides: true };
        let neighbors = &mut self.ifaces[iface.at()].neighbors;
        // RFC 826: whom we know, we know anew; whoever asks us is noted, as we are going to answer him.
        let ready = if for_us && !answers && !arp.is_probe() {
            neighbors.heard(sender_ip, arp.sender_mac)
        } else {
            neighbors.advertised(origin.now, sender_ip, advertisement)
        };
        if ready {
            self.resolved(iface, sender_ip);
        }
        self.drop_lost(iface, None);
        if for_us && arp.operation == ArpOperation::REQUEST {
            self.send_arp(iface, arp.sender_mac, &arp.reply(mac));
        }
    }

    fn send_arp(&mut self, iface: IfaceId, to: MacAddr, packet: &ArpPacket) {
        let outgoing = Outgoing {
            iface,
            hop: Hop::Station(to),
            addresses: Addresses::V4 { source: packet.sender_ip, destination: packet.target_ip },
            hops: 0,
            class: TrafficClass(0),
            fragmentation: Fragmentation::Never,
            mtu: u32::MAX,
            kind: Kind::Arp,
            owner: None,
            whom: 0,
        };
        self.enqueue(outgoing, arp::PACKET_LEN, |room| {
            let _fits = packet.emit(room);
        });
    }

    /// An address is there: it is announced, or asked for first.
    pub(crate) fn address_added(&mut self, now: Instant, iface: IfaceId, ip: IpAddr, asks: bool) {
        self.addresses_changed();
        if self.ifaces[iface.at()].mac().is_none() {
            return;
        }
        match ip {
            IpAddr::V4(_) if asks => self.ask_later(now, iface, ip),
            IpAddr::V4(v4) => self.announce_twice(now, iface, v4),
            IpAddr::V6(v6) => {
                let group = bypath_wire::ipv6::solicited_node(v6);
                // More groups than there may be: it is not asked for over Ethernet, then.
                let _full = self.join(now, iface, IpAddr::V6(group), 0);
                if asks {
                    self.ask_later(now, iface, ip);
                }
            }
        }
    }

    /// Not all at once after a power failure (RFC 4862, 5.4.2; RFC 5227, 2.1.1: PROBE_WAIT).
    fn ask_later(&mut self, now: Instant, iface: IfaceId, ip: IpAddr) {
        let timer = self.timers.create(Due::Tentative(iface, ip));
        let delay = self.less_than_a_second();
        self.timers.set(timer, now + delay);
        self.set_timer_of(iface, ip, timer);
    }

    fn less_than_a_second(&mut self) -> Duration {
        Duration::from_nanos(self.random.below(1_000_000_000).into())
    }

    fn announce_twice(&mut self, now: Instant, iface: IfaceId, ip: Ipv4Addr) {
        self.announce(iface, ip);
        let timer = self.timers.create(Due::Announce(iface, ip));
        self.timers.set(timer, now + ANNOUNCE);
        self.set_timer_of(iface, IpAddr::V4(ip), timer);
    }

    /// Somebody else uses an address of ours that is in use: told once in a while. True: it was so lately already.
    pub(crate) fn disputed(&mut self, now: Instant, iface: IfaceId, ip: IpAddr) -> bool {
        let address = self.ifaces[iface.at()].addresses.iter_mut().find(|a| a.ip() == ip);
        let Some(own) = address else { return true };
        if own.defended.is_some_and(|at| now < at + DEFEND) {
            return true;
        }
        own.defended = Some(now);
        self.tell(Event::AddressConflict { iface, address: ip });
        false
    }

    /// Somebody else uses an IPv4 address of ours (RFC 5227, 2.4): it is announced, once in a while, or given up if it yields and
    /// was defended lately.
    fn defend(&mut self, now: Instant, iface: IfaceId, ip: Ipv4Addr, other: MacAddr) {
        let address = IpAddr::V4(ip);
        let addresses = &self.ifaces[iface.at()].addresses;
        let yields = addresses.iter().any(|a| a.ip() == address && a.yields);
        match (self.disputed(now, iface, address), yields) {
            (true, true) => {
                self.duplicate(iface, address, Some(other));
                self.addresses_changed();
            }
            // Two that defend an address do not fill the link with it.
            (true, false) => {}
            (false, _) => self.announce(iface, ip),
        }
    }

    fn set_timer_of(&mut self, iface: IfaceId, ip: IpAddr, timer: crate::timer::TimerId) {
        if let Some(address) = self.ifaces[iface.at()].addresses.iter_mut().find(|a| a.ip() == ip) {
            address.timer = Some(timer);
        }
    }

    /// Tells everybody that an address is ours (RFC 5227, 2.3), so that nobody keeps sending to whose it was.
    fn announce(&mut self, iface: IfaceId, ip: Ipv4Addr) {
        if let Some(mac) = self.ifaces[iface.at()].mac() {
            self.send_arp(iface, MacAddr::BROADCAST, &ArpPacket::request(mac, ip, ip));
        }
    }

    pub(crate) fn announce_again(&mut self, iface: IfaceId, ip: Ipv4Addr) {
        self.stop_timer_of(iface, IpAddr::V4(ip));
        self.announce(iface, ip);
    }

    pub(crate) fn stop_timer_of(&mut self, iface: IfaceId, ip: IpAddr) {
        let address = self.ifaces[iface.at()].addresses.iter_mut().find(|a| a.ip() == ip);
        if let Some(timer) = address.and_then(|a| a.timer.take()) {
            self.timers.remove(timer);
        }
    }

    /// A tentative address is asked for, or was asked for often enough (RFC 4862, 5.4; RFC 5227, 2.1.1).
    pub(crate) fn ask_on(&mut self, now: Instant, iface: IfaceId, ip: IpAddr) {
        let address = self.ifaces[iface.at()].addresses.iter_mut().find(|a| a.ip() == ip);
        let Some(address) = address else { return };
        let AddressState::Tentative { left } = address.state else { return };
        if left == 0 {
            address.state = AddressState::Preferred;
            self.stop_timer_of(iface, ip);
            self.addresses_changed();
            if let IpAddr::V4(v4) = ip {
                self.announce_twice(now, iface, v4);
            }
            return self.tell(Event::AddressReady { iface, address: ip });
        }
        address.state = AddressState::Tentative { left: left - 1 };
        let timer = address.timer;
        let wait = match ip {
            IpAddr::V6(target) => {
                self.probe(iface, target);
                self.config.neighbors.retransmit
            }
            IpAddr::V4(target) => {
                if let Some(mac) = self.ifaces[iface.at()].mac() {
                    let probe = ArpPacket::request(mac, Ipv4Addr::UNSPECIFIED, target);
                    self.send_arp(iface, MacAddr::BROADCAST, &probe);
                }
                if left == 1 { ANNOUNCE_WAIT } else { PROBE + self.less_than_a_second() }
            }
        };
        if let Some(timer) = timer {
            self.timers.set(timer, now + wait);
        }
    }

    /// Somebody else has an address: it is not used (RFC 4862, 5.4.5; RFC 5227, 2.1.1 and 2.4).
    pub(crate) fn duplicate(&mut self, iface: IfaceId, ip: IpAddr, holder: Option<MacAddr>) {
        self.stop_timer_of(iface, ip);
        if let Some(address) = self.ifaces[iface.at()].addresses.iter_mut().find(|a| a.ip() == ip) {
            (address.state, address.holder) = (AddressState::Duplicate, holder);
        }
        if ip.is_ipv6() {
            self.counters.ndp_conflicts += 1;
        }
        self.tell(Event::AddressConflict { iface, address: ip });
    }
}
