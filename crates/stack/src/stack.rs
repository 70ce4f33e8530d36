//! The stack: what it consists of, its interfaces, addresses and routes, and its time.

use crate::config::Config;
use crate::counters::Counters;
use crate::destination::Destinations;
use crate::egress::{self, Behind, Identification};
use crate::event::Event;
use crate::iface::{
    Address, AddressState, Iface, IfaceConfig, IfaceId, Medium, NoAddress, NoIface, Offload, Shape,
};
use crate::ip::reassembly::Reassembly;
use crate::limit::Limit;
use crate::neighbor::{Neighbors, State};
use crate::prefix::Prefix;
use crate::random::Random;
use crate::raw::Raws;
use crate::route::{Metrics, NoRoute, Route, Routes};
use crate::share::{Copies, Shares, Whom};
use crate::socket::{SocketId, Sockets};
use crate::tcp::table::Table;
use crate::time::{Instant, sooner};
use crate::timer::Timers;
use crate::udp::demux::Demux;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec;
use alloc::vec::Vec;
use bypath_wire::meta::ChecksumState;
use bypath_wire::{EtherType, FrameMeta, MacAddr, VlanTag};
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use foldhash::quality::FixedState;
use hashbrown::HashSet;

/// What a timer of the stack is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// An address is asked for once more, or is ours now.
    Tentative(IfaceId, IpAddr),
    /// An address is announced once more (RFC 5227, 2.3).
    Announce(IfaceId, Ipv4Addr),
    /// What routers advertised is over.
    Lifetimes(IfaceId),
    /// Routers are to be asked for.
    Solicit(IfaceId),
    /// A group is to be reported.
    Report(IfaceId, IpAddr),
}

/// Packets to ourselves that one [`Stack::handle_timeout`] takes at most: two programs that answer each other for ever must
/// not keep it.
const LOOPED_AT_ONCE: usize = 256;
/// Octets of the longest packet to ourselves: nothing is cut there.
const LOOPBACK_MTU: usize = 65_535 + bypath_wire::ipv6::HEADER_LEN;

/// What a stack holds, each of it bounded by its [`Config`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Octets in the queues of all interfaces, 64 more counted for each datagram.
    pub transmit_octets: usize,
    /// Octets of memory that wait for neighbours' addresses, 256 more counted for each datagram.
    pub waiting_octets: usize,
    /// Octets of memory of datagrams in the making, 512 more counted for each.
    pub fragment_octets: usize,
    /// Datagrams in the making.
    pub fragmented: usize,
    /// Neighbours that are known or asked for, of all interfaces.
    pub neighbors: usize,
    /// Destinations of which a router said something.
    pub destinations: usize,
    /// Sockets that are open, but those of TCP.
    pub sockets: usize,
    /// Sockets of TCP that are open, and connections without.
    pub connections: usize,
    /// Of those, connections that were asked for and are not open yet.
    pub half_open: usize,
    /// Of those, connections that applications have left.
    pub orphans: usize,
    /// Connections in TIME-WAIT, beside them.
    pub time_wait: usize,
    /// Octets in the buffers of connections.
    pub connection_octets: usize,
    /// Timers that are set.
    pub timers: usize,
    /// Events that wait to be fetched.
    pub ready: usize,
}

/// Octets of a packet that every link of IPv4 takes (RFC 791, 3.2).
pub(crate) const LEAST_MTU: u16 = 68;

/// A TCP/IP stack: see the crate's documentation.
#[derive(Debug)]
pub struct Stack {
    pub(crate) config: Config,
    pub(crate) counters: Counters,
    pub(crate) random: Random,
    /// Interface identifiers follow from it.
    pub(crate) identifiers: Random,
    pub(crate) ifaces: Vec<Iface>,
    pub(crate) routes: Routes,
    pub(crate) destinations: Destinations,
    /// Usable addresses, of all interfaces.
    pub(crate) local: HashSet<IpAddr, FixedState>,
    /// Another number whenever a way may be another one.
    pub(crate) generation: u64,
    /// Addresses that were ever added.
    serial: u64,
    pub(crate) reassembly: Reassembly,
    pub(crate) timers: Timers<Due>,
    pub(crate) sockets: Sockets,
    /// Ports of UDP that sockets of users have.
    pub(crate) ports: Shares,
    /// Octets of memory of UDP sockets' queues of what they have not received, and of their reports.
    pub(crate) unread: Shares,
    /// Places of users.
    pub(crate) whoms: BTreeMap<u32, Whom>,
    pub(crate) demux: Demux,
    pub(crate) raw: Raws,
    pub(crate) tcp: Box<Table>,
    pub(crate) forwarder: Option<SocketId>,
    /// Sockets with something to tell.
    pub(crate) ready: VecDeque<SocketId>,
    pub(crate) news: VecDeque<Event>,
    pub(crate) identification: Box<Identification>,
    pub(crate) icmp_limit: Limit,
    /// Octets of memory that wait for neighbours' addresses, and what each counts beside it.
    pub(crate) waiting_octets: usize,
    /// Whose they are.
    pub(crate) waiting: Shares,
    /// Memory of packets that waited for them.
    pub(crate) spare: Vec<Vec<u8>>,
    /// Where the end of the frame lies that was written last, if not with the rest.
    pub(crate) behind: Option<Behind>,
    /// A datagram made of fragments, and the packet of its first one, while they are looked into.
    pub(crate) whole: (Vec<u8>, Vec<u8>),
    looped: Vec<u8>,
    /// Copies of datagrams to many that users have got.
    pub(crate) copies: Copies,
    /// Memory for the sockets that a datagram to many is for.
    pub(crate) hearers: Vec<u32>,
}

impl Stack {
    /// A stack with a loopback interface, `127.0.0.1/8` and `::1`, and nothing else.
    ///
    /// `seed`: a secret; ports, identifications and tables follow from it. The same seed and the same calls do the same.
    pub fn new(config: Config, seed: [u8; 32]) -> Stack {
        let mut random = Random::new(seed);
        let mut secret = [0; 32];
        secret.as_chunks_mut::<4>().0.iter_mut().for_each(|octets| *octets = random.next_u32().to_le_bytes());
        let mut stack = Stack {
            counters: Counters::default(),
            ifaces: Vec::new(),
            routes: Routes::new(config.routes),
            destinations: Destinations::new(config.destinations, random.next_u64()),
            local: HashSet::with_hasher(FixedState::with_seed(random.next_u64())),
            // 0 is that of a way that was never found.
            generation: 1,
            serial: 0,
            reassembly: Reassembly::new(config.reassembly, random.next_u64()),
            timers: Timers::default(),
            sockets: Sockets::default(),
            demux: Demux::new(random.next_u64()),
            raw: Raws::default(),
            tcp: Box::new(Table::new(&mut random, &config.tcp)),
            forwarder: None,
            ready: VecDeque::new(),
            news: VecDeque::new(),
            identification: Box::new(Identification::new(&mut random)),
            icmp_limit: Limit::new(config.icmp_rate, config.icmp_burst),
            waiting_octets: 0,
            waiting: Shares::default(),
            ports: Shares::default(),
            unread: Shares::default(),
            whoms: BTreeMap::new(),
            spare: Vec::new(),
            behind: None,
            whole: (Vec::new(), Vec::new()),
            looped: Vec::new(),
            copies: Copies::default(),
            hearers: Vec::new(),
            identifiers: Random::new(secret),
            random,
            config,
        };
        let offload = Offload { checksum: true, segmentation: false };
        let shape = Shape { medium: Medium::Ip, vlan: None, mtu: LOOPBACK_MTU, offload };
        stack.push_iface(shape, IfaceId::LOOPBACK);
        let own = [
            Prefix::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8),
            Some(Prefix::host(IpAddr::V6(Ipv6Addr::LOCALHOST))),
        ];
        for prefix in own.into_iter().flatten() {
            stack.ifaces[0].addresses.push(Address::new(prefix, AddressState::Preferred));
        }
        stack.addresses_changed();
        stack
    }

    /// Adds an interface. Its frames are handed to [`handle_frame`](Stack::handle_frame) and fetched by
    /// [`poll_transmit`](Stack::poll_transmit) with its id.
    ///
    /// # Errors
    /// [`NoIface`].
    pub fn add_iface(&mut self, config: IfaceConfig) -> Result<IfaceId, NoIface> {
        if !(usize::from(LEAST_MTU)..=65_535).contains(&config.mtu) {
            return Err(NoIface::Mtu);
        }
        let IfaceConfig { medium, mtu, offload } = config;
        let id = IfaceId(self.ifaces.len() as u32);
        self.room_for_iface()?;
        Ok(self.push_iface(Shape { medium, vlan: None, mtu, offload }, id))
    }

    /// Adds an interface for a VLAN on another one, whose frames carry its packets with a tag (IEEE 802.1Q).
    ///
    /// # Errors
    /// [`NoIface`].
    pub fn add_vlan(&mut self, on: IfaceId, vid: u16, mtu: usize) -> Result<IfaceId, NoIface> {
        let Some(link) = self.ifaces.get(on.at()) else { return Err(NoIface::Medium) };
        if link.shape.medium == Medium::Ip || link.shape.vlan.is_some() {
            return Err(NoIface::Medium);
        }
        if !(1..=bypath_wire::vlan::MOST_VID).contains(&vid) {
            return Err(NoIface::Vid);
        }
        if link.vlans.iter().any(|(other, _)| *other == vid) {
            return Err(NoIface::Exists);
        }
        if !(usize::from(LEAST_MTU)..=link.shape.mtu).contains(&mtu) {
            return Err(NoIface::Mtu);
        }
        let vlan = Some(VlanTag { tpid: EtherType::VLAN.0, pcp: 0, dei: false, vid });
        let shape = Shape { vlan, mtu, ..link.shape };
        self.room_for_iface()?;
        let id = self.push_iface(shape, on);
        self.ifaces[on.at()].vlans.push((vid, id));
        Ok(id)
    }

    fn room_for_iface(&self) -> Result<(), NoIface> {
        let most = self.config.ifaces;
        if self.ifaces.len() >= most { Err(NoIface::Full { most }) } else { Ok(()) }
    }

    fn push_iface(&mut self, shape: Shape, link: IfaceId) -> IfaceId {
        let id = IfaceId(self.ifaces.len() as u32);
        self.ifaces.push(Iface {
            shape,
            link,
            vlans: Vec::new(),
            addresses: Vec::new(),
            broadcasts: Vec::new(),
            neighbors: Neighbors::new(self.config.neighbors, self.random.next_u64()),
            groups: crate::group::Groups::default(),
            queue: egress::queue(self.config.transmit_octets),
            queued: Shares::default(),
            talkers: VecDeque::new(),
            burst: None,
            heard: false,
            resolved: VecDeque::new(),
            cutting: egress::Cutting::default(),
            autoconf: crate::slaac::Autoconf::default(),
            ipv4_mtu: None,
            silent: VecDeque::new(),
        });
        id
    }

    /// Gives an interface an address, and a route to its network. An IPv6 address on Ethernet is tentative first (RFC 4862,
    /// 5.4): [`Event::AddressReady`] or [`Event::AddressConflict`] follows. An IPv4 address is used at once, and kept whatever
    /// others say (RFC 5227, 2.4 (c)), as Linux has it.
    ///
    /// # Errors
    /// [`NoAddress`].
    pub fn add_address(&mut self, now: Instant, iface: IfaceId, prefix: Prefix) -> Result<(), NoAddress> {
        self.give_address(now, iface, prefix)?;
        self.route_to_network(iface, prefix)
    }

    /// As [`add_address`](Stack::add_address), but an IPv4 address on Ethernet is tentative first, too (RFC 5227, 2.1): it takes 4 to
    /// 7 seconds until [`Event::AddressReady`]. From then on it is kept whatever others say (2.4 (c)).
    ///
    /// # Errors
    /// [`NoAddress`].
    pub fn claim_address(&mut self, now: Instant, iface: IfaceId, prefix: Prefix) -> Result<(), NoAddress> {
        let probes = self.config.acd_probes;
        self.give_address_after(now, iface, prefix, probes)?;
        self.route_to_network(iface, prefix)
    }

    /// As [`claim_address`](Stack::claim_address), but an IPv4 address is given up if somebody else insists on it (RFC 5227, 2.4 (b)):
    /// for one that somebody can be asked to replace.
    ///
    /// # Errors
    /// [`NoAddress`].
    pub fn claim_leased_address(
        &mut self,
        now: Instant,
        iface: IfaceId,
        prefix: Prefix,
    ) -> Result<(), NoAddress> {
        self.claim_address(now, iface, prefix)?;
        let addresses = &mut self.ifaces[iface.at()].addresses;
        if let Some(address) = addresses.iter_mut().find(|a| a.ip() == prefix.address()) {
            address.yields = true;
        }
        Ok(())
    }

    fn route_to_network(&mut self, iface: IfaceId, prefix: Prefix) -> Result<(), NoAddress> {
        let added = self.routes.add(Route { prefix, iface, via: None, metric: 0, source: None });
        self.generation += 1;
        if let Err(NoRoute::Full { most }) = added {
            self.remove_address(iface, prefix.address());
            return Err(NoAddress::Routes { most });
        }
        Ok(())
    }

    /// An address alone.
    pub(crate) fn give_address(
        &mut self,
        now: Instant,
        iface: IfaceId,
        prefix: Prefix,
    ) -> Result<(), NoAddress> {
        self.give_address_after(now, iface, prefix, 0)
    }

    /// An address alone; one of IPv4 is asked for so often.
    fn give_address_after(
        &mut self,
        now: Instant,
        iface: IfaceId,
        prefix: Prefix,
        probes: u8,
    ) -> Result<(), NoAddress> {
        let ip = prefix.address();
        let Some(own) = self.ifaces.get(iface.at()) else { return Err(NoAddress::NoIface) };
        let nobodys = ip.is_unspecified() || ip.is_multicast();
        // Packets from or to these never leave a host (RFC 1122, 3.2.1.3; RFC 4291, 2.5.3), and sockets take the last kind for IPv4.
        let inner = iface != IfaceId::LOOPBACK && ip.is_loopback()
            || matches!(ip, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        if nobodys || inner || matches!(ip, IpAddr::V4(v4) if v4.is_broadcast()) {
            return Err(NoAddress::NotAHost);
        }
        if let Some(host) = prefix.first_host() {
            match ip {
                IpAddr::V4(v4) if prefix.broadcast() == Some(v4) => {
                    return Err(NoAddress::Broadcast { host });
                }
                ip if prefix.network().address() == ip => return Err(NoAddress::Network { host }),
                _ => {}
            }
        }
        if ip.is_ipv6() && own.shape.mtu < bypath_wire::ipv6::MIN_MTU {
            return Err(NoAddress::Mtu);
        }
        if own.addresses.iter().any(|a| a.ip() == ip) {
            return Err(NoAddress::Exists);
        }
        let most = self.config.addresses;
        if own.addresses.len() >= most {
            return Err(NoAddress::Full { most });
        }
        let ethernet = own.mac().is_some();
        let left = if ip.is_ipv6() { self.config.dad_transmits } else { probes };
        let asks = ethernet && left > 0;
        let state = if asks { AddressState::Tentative { left } } else { AddressState::Preferred };
        self.serial += 1;
        let address = Address { serial: self.serial, ..Address::new(prefix, state) };
        self.ifaces[iface.at()].addresses.push(address);
        self.address_added(now, iface, ip, asks);
        Ok(())
    }

    /// Takes an address away, and the route to its network if that was the last one there; false: there was none.
    pub fn remove_address(&mut self, iface: IfaceId, ip: IpAddr) -> bool {
        let Some(own) = self.ifaces.get_mut(iface.at()) else { return false };
        let addresses = &mut own.addresses;
        let Some(at) = addresses.iter().position(|a| a.ip() == ip) else { return false };
        let gone = addresses.remove(at);
        if let Some(timer) = gone.timer {
            self.timers.remove(timer);
        }
        let network = gone.prefix.network();
        if !addresses.iter().any(|a| a.prefix.network() == network) {
            // The address's own route; a router may still say that the network is here, and so does another one.
            let stays = own.autoconf.is_on_link(network);
            let gone = |r: &Route| r.metric == 0 || !stays;
            self.routes.remove(|r| r.prefix == network && r.iface == iface && r.via.is_none() && gone(r));
        }
        if let IpAddr::V6(v6) = ip {
            self.leave(iface, IpAddr::V6(bypath_wire::ipv6::solicited_node(v6)), 0);
        }
        self.addresses_changed();
        true
    }

    /// Addresses of an interface.
    pub fn addresses(&self, iface: IfaceId) -> &[Address] {
        self.ifaces.get(iface.at()).map_or(&[], |i| &i.addresses)
    }

    /// Tells how many octets an IPv4 packet has on an interface at most, as a DHCP server may say (RFC 2132, 5.1): 68 or more; more
    /// than the interface takes means nothing. `None`: as many as the interface takes. Of IPv6, routers say it themselves (RFC 4861,
    /// 4.6.4). False: there is no such interface.
    pub fn set_ipv4_mtu(&mut self, iface: IfaceId, octets: Option<u16>) -> bool {
        let Some(own) = self.ifaces.get_mut(iface.at()) else { return false };
        own.ipv4_mtu = octets.map(|octets| u32::from(octets.max(LEAST_MTU)));
        self.generation += 1;
        true
    }

    /// Adds a route.
    ///
    /// # Errors
    /// [`NoRoute`].
    pub fn add_route(&mut self, route: Route) -> Result<(), NoRoute> {
        self.generation += 1;
        self.routes.add(route)
    }

    /// Removes the routes of which this is true; how many they were.
    pub fn remove_routes(&mut self, gone: impl Fn(&Route) -> bool) -> usize {
        self.generation += 1;
        self.routes.remove(gone)
    }

    /// What is known of the ways to a network beside where they lead: connections that are open hear of the MTU, the rest counts for
    /// new ones. Nothing, [`Metrics::default`]: it is forgotten.
    ///
    /// # Errors
    /// [`NoRoute::Full`].
    pub fn set_metrics(&mut self, to: Prefix, metrics: Metrics) -> Result<(), NoRoute> {
        if self.routes.set_metrics(to, metrics)? {
            self.generation += 1;
        }
        Ok(())
    }

    /// All routes, longest prefix first.
    pub fn routes(&self) -> impl Iterator<Item = &Route> {
        self.routes.iter()
    }

    /// Tells a neighbour's hardware address, which nothing that is heard changes. False: there is no room.
    pub fn set_neighbor(&mut self, iface: IfaceId, ip: IpAddr, mac: MacAddr) -> bool {
        let Some(own) = self.ifaces.get_mut(iface.at()) else { return false };
        let set = own.neighbors.set_permanent(ip, mac);
        self.drop_lost(iface, None);
        self.resolved(iface, ip);
        set
    }

    /// Forgets a neighbour: it is asked for again.
    pub fn remove_neighbor(&mut self, iface: IfaceId, ip: IpAddr) {
        if let Some(own) = self.ifaces.get_mut(iface.at()) {
            own.neighbors.remove(ip);
            self.drop_lost(iface, None);
        }
    }

    /// What is known of a neighbour.
    pub fn neighbor(&self, iface: IfaceId, ip: IpAddr) -> Option<(State, MacAddr)> {
        self.ifaces.get(iface.at())?.neighbors.state(ip)
    }

    /// The neighbours of an interface, in no order. One that is asked for has no hardware address yet.
    pub fn all_neighbors(&self, iface: IfaceId) -> impl Iterator<Item = (IpAddr, State, MacAddr)> {
        self.ifaces.get(iface.at()).into_iter().flat_map(|i| i.neighbors.iter())
    }

    /// Neighbours of an interface that are known or asked for.
    pub fn neighbors(&self, iface: IfaceId) -> usize {
        self.ifaces.get(iface.at()).map_or(0, |i| i.neighbors.len())
    }

    /// What has happened so far.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What it holds now.
    pub fn usage(&self) -> Usage {
        Usage {
            transmit_octets: self.ifaces.iter().map(|i| i.queue.used()).sum(),
            waiting_octets: self.waiting_octets,
            fragment_octets: self.reassembly.used(),
            fragmented: self.reassembly.len(),
            neighbors: self.ifaces.iter().map(|i| i.neighbors.len()).sum(),
            destinations: self.destinations.len(),
            sockets: self.sockets.len(),
            connections: self.tcp.len(),
            half_open: self.tcp.half_open,
            orphans: self.tcp.orphans,
            time_wait: self.tcp.waits.len(),
            connection_octets: self.tcp.octets,
            timers: self.timers.len(),
            ready: self.ready.len() + self.news.len(),
        }
    }

    /// Octets of memory that the buffers of connections have: what [`usage`](Stack::usage) tells beside all else.
    pub const fn connection_octets(&self) -> usize {
        self.tcp.octets
    }

    /// Octets of memory of datagrams and errors that wait for users' sockets, of datagrams that wait for neighbours' addresses, and of those in the
    /// making.
    pub fn datagram_octets(&self) -> usize {
        self.unread.all() + self.waiting_octets + self.reassembly.used()
    }

    /// When [`handle_timeout`](Stack::handle_timeout) is to be called next; a time that has passed: now.
    pub fn poll_timeout(&self) -> Option<Instant> {
        if self.wants_transmit(IfaceId::LOOPBACK) {
            return Some(Instant::ZERO);
        }
        let own = sooner(self.timers.next(), self.tcp.poll_timeout());
        let tables = sooner(self.reassembly.poll_timeout(), self.destinations.poll_timeout());
        let neighbors = self.ifaces.iter().map(|i| i.neighbors.poll_timeout());
        neighbors.fold(sooner(own, tables), sooner)
    }

    /// Does what is due by now, and hands the stack what it sent to itself.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(due) = self.timers.pop_due(now) {
            match due {
                Due::Tentative(iface, ip) => self.ask_on(now, iface, ip),
                Due::Announce(iface, ip) => self.announce_again(iface, ip),
                Due::Lifetimes(iface) => self.lifetimes_due(now, iface),
                Due::Solicit(iface) => self.solicit_routers(now, iface),
                Due::Report(iface, group) => self.report_due(now, iface, group),
            }
        }
        for n in 0..self.ifaces.len() {
            self.poll_neighbors(now, IfaceId(n as u32));
        }
        self.give_up_fragments(now);
        self.tcp_due(now);
        if self.destinations.forget(now) {
            self.generation += 1;
        }
        self.loop_back(now);
    }

    /// Reads in what was sent to ourselves.
    fn loop_back(&mut self, now: Instant) {
        if !self.wants_transmit(IfaceId::LOOPBACK) {
            return;
        }
        let mut room = core::mem::take(&mut self.looped);
        if room.is_empty() {
            room = vec![0; LOOPBACK_MTU];
        }
        for _ in 0..LOOPED_AT_ONCE {
            let Some(frame) = self.transmit(now, IfaceId::LOOPBACK, false, &mut room) else { break };
            let meta = FrameMeta { checksum: ChecksumState::Verified, ..FrameMeta::default() };
            self.handle_looped(now, frame.iface, &room[..frame.len], &meta);
        }
        self.looped = room;
    }
}
