//! A lease of an interface: the client's messages over the stack's own UDP, and what it is given as addresses and routes.

use crate::dhcp::{CLIENT_PORT, Client, Event, Lease, SERVER_PORT, Settings};
use bypath_stack::iface::IfaceId;
use bypath_stack::prefix::Prefix;
use bypath_stack::route::Route;
use bypath_stack::socket::{Options, ReceiveError, SocketId, TooMany};
use bypath_stack::time::Instant;
use bypath_stack::{SendTo, Stack};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

/// Longest message that is read; longer ones than asked for do not come.
const LONGEST: usize = 1500;
/// Its routes are worse than those that somebody adds by hand.
const METRIC: u32 = 100;

/// How long an address stays that was given back: a second for each of two requests of a neighbour's address.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Why there is no client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoLease {
    /// The stack has no more sockets.
    Sockets(TooMany),
    /// The client's port is another socket's.
    Port,
}

/// A client, and what it brought.
pub struct Leasing {
    iface: IfaceId,
    client: Client,
    socket: SocketId,
    used: Option<Lease>,
    /// Which of the stack's addresses it brought ([`Address::serial`](bypath_stack::iface::Address::serial)): one that was there before is not
    /// the server's to take away.
    brought: Option<u64>,
    /// What was not told yet: the address is still asked for on the link.
    claims: Option<Lease>,
    /// It was given back: the address goes at this time.
    leaves: Option<Instant>,
    room: Box<[u8; LONGEST]>,
}

impl Leasing {
    pub fn begin(
        stack: &mut Stack,
        iface: IfaceId,
        settings: Settings,
        now: Instant,
    ) -> Result<Leasing, NoLease> {
        let socket = stack.open_udp().map_err(NoLease::Sockets)?;
        if let Some(mut udp) = stack.udp(socket) {
            let own = Options { broadcast: true, iface: Some(iface), ..udp.options() };
            udp.set_options(own);
            // It is shared with nobody: who is bound to an address gets what is sent there, before who is bound to all.
            if udp.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, CLIENT_PORT))).is_err() {
                stack.close(socket);
                return Err(NoLease::Port);
            }
        }
        let client = Client::new(now, settings, bypath_sys::process::random_u64());
        Ok(Leasing {
            iface,
            client,
            socket,
            used: None,
            brought: None,
            claims: None,
            leaves: None,
            room: Box::new([0; LONGEST]),
        })
    }

    /// Takes away what it brought; the server is told nothing.
    pub fn end(mut self, stack: &mut Stack) {
        self.drop_lease(stack);
        stack.close(self.socket);
    }

    pub fn is_own(&self, socket: SocketId) -> bool {
        self.socket == socket
    }

    pub const fn has_lease(&self) -> bool {
        self.used.is_some()
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout().into_iter().chain(self.leaves).min()
    }

    /// Reads and sends messages. What happened, after it was done.
    pub fn turn(&mut self, now: Instant, stack: &mut Stack) -> Option<Event> {
        if self.leaves.is_some_and(|at| at <= now) {
            self.leaves = None;
            self.drop_lease(stack);
        }
        while let Some(mut udp) = stack.udp(self.socket) {
            match udp.receive(&mut self.room[..]) {
                Ok(received) => {
                    let octets = &self.room[..received.len.min(LONGEST)];
                    // RFC 2131 section 4.1: servers send from their port. What programs of this stack send to everybody is none.
                    if received.datagram.from.port() == SERVER_PORT && !received.datagram.looped {
                        self.client.handle(now, octets);
                    }
                }
                Err(ReceiveError::Empty) => break,
                // An ICMP error: the server's host is up without it. The client asks again by itself.
                Err(_) => {}
            }
        }
        while let Some(message) = self.client.poll_transmit(now) {
            let to = SocketAddr::from((message.destination, SERVER_PORT));
            let how = SendTo { to: Some(to), source: Some(IpAddr::V4(message.source)), ..SendTo::default() };
            if let Some(mut udp) = stack.udp(self.socket) {
                // A message that is lost is sent again.
                let _ = udp.send_with(message.payload, &how);
            }
        }
        loop {
            if let Some(lease) = self.claims.take_if(|lease| !is_claimed(stack, self.iface, lease)) {
                self.use_routes(stack, &lease);
                return Some(Event::Bound(lease));
            }
            // The last one counts.
            match self.client.poll_event()? {
                Event::Bound(lease) => self.use_lease(now, stack, lease),
                Event::Lost => {
                    self.drop_lease(stack);
                    // Nobody heard of one that was still asked for.
                    if self.claims.take().is_none() {
                        return Some(Event::Lost);
                    }
                }
                renewed @ Event::Renewed(_) if self.claims.is_none() => return Some(renewed),
                Event::Renewed(_) => {}
            }
        }
    }

    /// Somebody else has an address of the interface.
    pub fn conflict(&mut self, now: Instant, address: IpAddr) {
        if self.used.as_ref().is_some_and(|lease| IpAddr::V4(lease.address) == address) {
            self.client.decline(now);
        }
    }

    /// Tells the server that the address is not needed any more. It stays for a moment: the server's hardware address may have
    /// to be asked for from it.
    pub fn release(&mut self, now: Instant) {
        self.client.release();
        self.claims = None;
        self.leaves = Some(now + LAST_WORDS);
    }

    fn use_lease(&mut self, now: Instant, stack: &mut Stack, lease: Lease) {
        let same = |old: &Lease| (old.address, old.prefix_len) == (lease.address, lease.prefix_len);
        if self.used.as_ref().is_some_and(same) {
            self.drop_routes(stack);
        } else {
            self.drop_lease(stack);
            if let Some(prefix) = Prefix::new(IpAddr::V4(lease.address), lease.prefix_len) {
                // RFC 2131, 4.4.1: it asks on the link whether the address is free. One that somebody added by hand is as good, and stays his.
                let is_new = stack.claim_leased_address(now, self.iface, prefix).is_ok();
                self.brought = if is_new { serial(stack, self.iface, &lease) } else { None };
            }
        }
        self.used = Some(lease.clone());
        self.claims = Some(lease);
    }

    /// What comes with an address, once that can be used.
    fn use_routes(&self, stack: &mut Stack, lease: &Lease) {
        stack.set_ipv4_mtu(self.iface, lease.mtu);
        for route in routes(lease, self.iface) {
            let _ = stack.add_route(route);
        }
    }

    fn drop_lease(&mut self, stack: &mut Stack) {
        self.drop_routes(stack);
        stack.set_ipv4_mtu(self.iface, None);
        if let Some(lease) = self.used.take()
            && let Some(brought) = self.brought.take()
            && serial(stack, self.iface, &lease) == Some(brought)
        {
            stack.remove_address(self.iface, IpAddr::V4(lease.address));
        }
    }

    fn drop_routes(&self, stack: &mut Stack) {
        if let Some(lease) = &self.used {
            let own: Vec<Route> = routes(lease, self.iface).collect();
            stack.remove_routes(|route| own.contains(route));
        }
    }
}

/// Whether the address is still asked for on the link, or was found to be somebody else's.
fn is_claimed(stack: &Stack, iface: IfaceId, lease: &Lease) -> bool {
    stack.addresses(iface).iter().any(|a| a.ip() == IpAddr::V4(lease.address) && !a.is_usable())
}

/// Which of all addresses that the stack ever had the leased one is.
fn serial(stack: &Stack, iface: IfaceId, lease: &Lease) -> Option<u64> {
    stack.addresses(iface).iter().find(|a| a.ip() == IpAddr::V4(lease.address)).map(|a| a.serial)
}

fn routes(lease: &Lease, iface: IfaceId) -> impl Iterator<Item = Route> {
    let source = Some(IpAddr::V4(lease.address));
    lease.routes.iter().filter_map(move |route| {
        let prefix = Prefix::new(IpAddr::V4(route.network), route.prefix_len)?;
        let via = (!route.router.is_unspecified()).then_some(IpAddr::V4(route.router));
        Some(Route { prefix, iface, via, metric: METRIC, source })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dhcp::tests::{ACK, NAK, OFFER, reply};
    use bypath_link::FrameMeta;
    use bypath_stack::config::Config;
    use bypath_stack::iface::{IfaceConfig, Medium, Offload};
    use bypath_stack::socket::BindError;
    use bypath_wire::MacAddr;

    const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);

    /// A stack that leases, and one with a server's socket.
    struct World {
        now: Instant,
        stacks: [Stack; 2],
        ifaces: [IfaceId; 2],
        leasing: Leasing,
        server: SocketId,
        events: Vec<Event>,
    }

    impl World {
        /// `probes`: times that the address is asked for.
        fn new(probes: u8) -> World {
            let now = Instant::from_nanos(1_000_000_000);
            // As the replies of the client's own tests have it.
            let [(a, a_iface), (mut b, b_iface)] = [7, 1].map(|last| {
                let mut stack = Stack::new(Config { acd_probes: probes, ..Config::default() }, [last; 32]);
                let medium = Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, last]));
                let config = IfaceConfig { medium, mtu: 1500, offload: Offload::default() };
                let iface = stack.add_iface(config).expect("an interface");
                (stack, iface)
            });
            b.add_address(now, b_iface, "10.0.0.1/24".parse().expect("an address")).expect("an address");
            let server = b.open_udp().expect("a socket");
            let mut udp = b.udp(server).expect("a socket");
            let options = Options { broadcast: true, ..udp.options() };
            udp.set_options(options);
            udp.bind(SocketAddr::from(([0, 0, 0, 0], SERVER_PORT))).expect("the port");
            let mut stacks = [a, b];
            let settings =
                Settings { hardware: [2, 0, 0, 0, 0, 7], identifier: None, host_name: None, address: None };
            let leasing = Leasing::begin(&mut stacks[0], a_iface, settings, now).expect("a socket");
            World { now, stacks, ifaces: [a_iface, b_iface], leasing, server, events: Vec::new() }
        }

        /// Everything that happens now.
        fn settle(&mut self) {
            let mut frame = [0; 2048];
            for _ in 0..20 {
                while let Some(event) = self.leasing.turn(self.now, &mut self.stacks[0]) {
                    self.events.push(event);
                }
                for from in 0..2 {
                    self.stacks[from].handle_timeout(self.now);
                    while let Some((len, _)) =
                        self.stacks[from].poll_transmit(self.now, self.ifaces[from], &mut frame)
                    {
                        let meta = FrameMeta::default();
                        self.stacks[1 - from].handle_frame(
                            self.now,
                            self.ifaces[1 - from],
                            &frame[..len],
                            &meta,
                        );
                    }
                }
            }
        }

        /// The next message to the server: its transaction, its kind, and who sent it.
        fn asked(&mut self) -> Option<(u32, u8, SocketAddr)> {
            self.settle();
            let mut room = [0; 1500];
            let received = self.stacks[1].udp(self.server)?.receive(&mut room).ok()?;
            let transaction = u32::from_be_bytes([room[4], room[5], room[6], room[7]]);
            Some((transaction, room[242], received.datagram.from))
        }

        fn answer(&mut self, to: Ipv4Addr, message: &[u8]) {
            let mut udp = self.stacks[1].udp(self.server).expect("a socket");
            udp.send(message, Some(SocketAddr::from((to, CLIENT_PORT)))).expect("sent");
            self.settle();
        }

        fn grant(&mut self, to: Ipv4Addr, transaction: u32, kind: u8, address: [u8; 4], router: [u8; 4]) {
            self.grant_with(to, transaction, kind, address, router, &[]);
        }

        fn grant_with(
            &mut self,
            to: Ipv4Addr,
            transaction: u32,
            kind: u8,
            address: [u8; 4],
            router: [u8; 4],
            more: &[(u8, &[u8])],
        ) {
            let server = SERVER.octets();
            let mut options: Vec<(u8, &[u8])> =
                vec![(54, &server), (51, &[0, 0, 0, 100]), (1, &[255, 255, 255, 0]), (3, &router)];
            options.extend(more);
            self.answer(to, &reply(transaction, kind, address.into(), &options));
        }

        /// Octets of the packets that a datagram is cut into.
        fn packets(&mut self, octets: usize) -> Vec<usize> {
            let stack = &mut self.stacks[0];
            let socket = stack.open_udp().expect("a socket");
            let to = SocketAddr::from((SERVER, 9));
            stack.set_neighbor(self.ifaces[0], to.ip(), MacAddr([2, 0, 0, 0, 0, 1]));
            stack.udp(socket).expect("a socket").send(&vec![1; octets], Some(to)).expect("sent");
            let mut room = [0; 2000];
            let mut lens = Vec::new();
            while let Some((len, _)) = stack.poll_transmit(self.now, self.ifaces[0], &mut room) {
                lens.push(len - 14);
            }
            stack.close(socket);
            lens
        }

        fn addresses(&self) -> Vec<String> {
            self.stacks[0].addresses(self.ifaces[0]).iter().map(|a| a.prefix.to_string()).collect()
        }

        fn default_routers(&self) -> Vec<IpAddr> {
            self.stacks[0].routes().filter(|r| r.prefix.is_empty()).filter_map(|r| r.via).collect()
        }

        fn bound(mut self) -> World {
            let (discover, kind, from) = self.asked().expect("a first message");
            assert_eq!((kind, from), (1, SocketAddr::from(([0, 0, 0, 0], CLIENT_PORT))));
            self.grant(Ipv4Addr::BROADCAST, discover, OFFER, [10, 0, 0, 42], [10, 0, 0, 254]);
            let (request, kind, _) = self.asked().expect("a request");
            assert_eq!((request, kind), (discover, 3));
            self.grant(Ipv4Addr::BROADCAST, request, ACK, [10, 0, 0, 42], [10, 0, 0, 254]);
            assert!(matches!(self.events[..], [Event::Bound(_)]), "{:?}", self.events);
            assert_eq!(self.addresses(), ["10.0.0.42/24"]);
            assert_eq!(self.default_routers(), [IpAddr::from([10, 0, 0, 254])]);
            self
        }

        fn pass(&mut self, seconds: u64) {
            self.now = self.now + Duration::from_secs(seconds);
        }
    }

    #[test]
    fn a_lease_becomes_an_address_and_routes_and_is_renewed_with_what_is_new() {
        let mut world = World::new(0).bound();
        world.pass(51);
        let (renewal, kind, from) = world.asked().expect("a renewal");
        assert_eq!((kind, from), (3, SocketAddr::from(([10, 0, 0, 42], CLIENT_PORT))));
        world.grant([10, 0, 0, 42].into(), renewal, ACK, [10, 0, 0, 42], [10, 0, 0, 253]);
        assert_eq!(world.addresses(), ["10.0.0.42/24"]);
        assert_eq!(world.default_routers(), [IpAddr::from([10, 0, 0, 253])]);
        world.pass(51);
        let (renewal, _, _) = world.asked().expect("a renewal");
        world.grant([10, 0, 0, 42].into(), renewal, ACK, [10, 0, 0, 43], [10, 0, 0, 253]);
        assert_eq!(world.addresses(), ["10.0.0.43/24"]);
        assert_eq!(world.events.len(), 3);
    }

    #[test]
    fn what_ends_is_taken_away() {
        let mut world = World::new(0).bound();
        world.pass(101);
        world.settle();
        assert_eq!((world.events.last(), world.addresses().len()), (Some(&Event::Lost), 0));
        assert_eq!(world.default_routers(), [] as [IpAddr; 0]);

        let mut world = World::new(0).bound();
        world.pass(51);
        let (renewal, _, _) = world.asked().expect("a renewal");
        world.answer(
            [10, 0, 0, 42].into(),
            &reply(renewal, NAK, Ipv4Addr::UNSPECIFIED, &[(54, &SERVER.octets())]),
        );
        assert_eq!((world.events.last(), world.addresses().len()), (Some(&Event::Lost), 0));

        let mut world = World::new(0).bound();
        world.leasing.conflict(world.now, [10, 0, 0, 9].into());
        assert!(world.asked().is_none());
        world.leasing.conflict(world.now, [10, 0, 0, 42].into());
        let (_, kind, from) = world.asked().expect("a message");
        assert_eq!((kind, from), (4, SocketAddr::from(([0, 0, 0, 0], CLIENT_PORT))));
        assert_eq!(world.addresses().len(), 0);

        let mut world = World::new(0).bound();
        world.leasing.release(world.now);
        let (_, kind, from) = world.asked().expect("a message");
        assert_eq!((kind, from), (7, SocketAddr::from(([10, 0, 0, 42], CLIENT_PORT))));
        world.pass(2);
        world.settle();
        assert_eq!(world.addresses().len(), 0);
    }

    /// Of a service whoever may have ports below 1024 is on the same stack.
    #[test]
    fn programs_of_the_same_stack_neither_hear_nor_say_what_a_server_says() {
        let mut world = World::new(0).bound();
        let iface = world.ifaces[0];
        let everybody =
            Options { broadcast: true, reuse_address: true, reuse_port: true, ..Options::default() };
        for iface in [None, Some(iface), Some(IfaceId::LOOPBACK)] {
            for at in ["10.0.0.42:68", "0.0.0.0:68", "255.255.255.255:68", "10.0.0.255:68", "[::]:68"] {
                let id = world.stacks[0].open_udp().expect("a socket");
                let mut udp = world.stacks[0].udp(id).expect("a socket");
                udp.set_options(Options { iface, ..everybody });
                udp.set_user(7);
                let bound = udp.bind(at.parse().expect("an address"));
                assert!(matches!(bound, Err(BindError::InUse(_))), "{at}: {bound:?}");
                world.stacks[0].close(id);
            }
        }

        world.pass(51);
        let (renewal, ..) = world.asked().expect("a renewal");
        let forger = world.stacks[0].open_udp().expect("a socket");
        let mut udp = world.stacks[0].udp(forger).expect("a socket");
        udp.set_options(everybody);
        udp.bind("0.0.0.0:67".parse().expect("an address")).expect("the port");
        let server = SERVER.octets();
        let options: [(u8, &[u8]); 4] =
            [(54, &server), (51, &[0, 0, 0, 100]), (1, &[255, 255, 255, 0]), (3, &[10, 0, 0, 66])];
        let forged = [
            reply(renewal, ACK, [10, 0, 0, 77].into(), &options),
            reply(renewal, NAK, Ipv4Addr::UNSPECIFIED, &options),
        ];
        for message in &forged {
            for to in ["255.255.255.255:68", "10.0.0.255:68", "10.0.0.42:68"] {
                let mut udp = world.stacks[0].udp(forger).expect("a socket");
                udp.send(message, Some(to.parse().expect("an address"))).expect("sent");
                world.settle();
            }
        }
        assert!(matches!(world.events[..], [Event::Bound(_)]), "{:?}", world.events);
        assert_eq!(world.default_routers(), [IpAddr::from([10, 0, 0, 254])]);
        // The server is heard.
        world.grant([10, 0, 0, 42].into(), renewal, ACK, [10, 0, 0, 42], [10, 0, 0, 253]);
        assert_eq!(world.default_routers(), [IpAddr::from([10, 0, 0, 253])]);
    }

    #[test]
    fn who_does_not_send_from_the_servers_port_is_no_server() {
        let mut world = World::new(0);
        let (discover, _, _) = world.asked().expect("a first message");
        let other = world.stacks[1].open_udp().expect("a socket");
        let options: [(u8, &[u8]); 3] =
            [(54, &SERVER.octets()), (51, &[0, 0, 0, 100]), (1, &[255, 255, 255, 0])];
        let offer = reply(discover, OFFER, [10, 0, 0, 42].into(), &options);
        let mut udp = world.stacks[1].udp(other).expect("a socket");
        let broadcast = Options { broadcast: true, ..udp.options() };
        udp.set_options(broadcast);
        udp.send(&offer, Some("255.255.255.255:68".parse().expect("an address"))).expect("sent");
        assert!(world.asked().is_none());
    }

    /// RFC 2132, 5.1.
    #[test]
    fn the_mtu_of_a_lease_is_that_of_the_interface_as_long_as_it_lasts() {
        let mut world = World::new(0).bound();
        assert_eq!(world.packets(1472), [1500]);
        let own = Ipv4Addr::new(10, 0, 0, 42);
        // Nothing else is new.
        for (mtu, packets) in [
            (Some(1000u16), &[996, 524][..]),
            (Some(9000), &[1500]),
            (Some(576), &[572, 572, 396]),
            (None, &[1500]),
        ] {
            world.pass(51);
            let (renewal, ..) = world.asked().expect("a renewal");
            let octets = mtu.unwrap_or_default().to_be_bytes();
            let option = [(26, &octets[..])];
            let more = if mtu.is_some() { &option[..] } else { &[] };
            world.grant_with(own, renewal, ACK, own.octets(), [10, 0, 0, 254], more);
            assert_eq!(world.packets(1472), packets, "{mtu:?}");
        }
        world.pass(51);
        let (renewal, ..) = world.asked().expect("a renewal");
        world.grant_with(own, renewal, ACK, own.octets(), [10, 0, 0, 254], &[(26, &[4, 0])]);
        let path = |world: &World| world.stacks[0].path(IpAddr::V4(SERVER), None, Some(IpAddr::V4(own)));
        assert_eq!(path(&world).map(|p| p.mtu), Ok(1024));
        world.leasing.release(world.now);
        world.pass(3);
        world.settle();
        let again = "10.0.0.43/24".parse().expect("an address");
        world.stacks[0].add_address(world.now, world.ifaces[0], again).expect("an address");
        assert_eq!(path(&world).map(|p| p.mtu), Ok(1500));
    }

    /// A server may lease what was given by hand, and take that back.
    #[test]
    fn an_address_that_was_there_before_its_lease_stays_after_it() {
        let by_hand = || {
            let mut world = World::new(0);
            let own = "10.0.0.42/24".parse().expect("an address");
            world.stacks[0].add_address(world.now, world.ifaces[0], own).expect("an address");
            world.bound()
        };
        let mut world = by_hand();
        world.pass(51);
        let (renewal, ..) = world.asked().expect("a renewal");
        world.answer([10, 0, 0, 42].into(), &reply(renewal, NAK, [0; 4].into(), &[(54, &SERVER.octets())]));
        assert!(matches!(world.events[..], [Event::Bound(_), Event::Lost]), "{:?}", world.events);
        assert_eq!((world.addresses(), world.default_routers().len()), (vec!["10.0.0.42/24".to_owned()], 0));

        let mut world = by_hand();
        world.pass(51);
        let (renewal, ..) = world.asked().expect("a renewal");
        world.grant([10, 0, 0, 42].into(), renewal, ACK, [10, 0, 0, 43], [10, 0, 0, 254]);
        assert_eq!(world.addresses(), ["10.0.0.42/24", "10.0.0.43/24"]);
        world.leasing.release(world.now);
        world.pass(3);
        world.settle();
        assert_eq!(world.addresses(), ["10.0.0.42/24"]);

        // One that was added again by hand is another one than was leased.
        let mut world = World::new(0).bound();
        let iface = world.ifaces[0];
        let own: Prefix = "10.0.0.42/24".parse().expect("an address");
        assert!(world.stacks[0].remove_address(iface, own.address()));
        world.stacks[0].add_address(world.now, iface, own).expect("an address");
        world.leasing.release(world.now);
        world.pass(3);
        world.settle();
        assert_eq!(world.addresses(), ["10.0.0.42/24"]);
    }

    /// RFC 2131, 4.4.1.
    #[test]
    fn a_leased_address_is_asked_for_on_the_link_before_it_is_told() {
        let grant = |world: &mut World, kind: u8, address: [u8; 4]| {
            let (transaction, ..) = world.asked().expect("a message");
            world.grant(Ipv4Addr::BROADCAST, transaction, kind, address, [10, 0, 0, 254]);
        };
        let mut world = World::new(3);
        for kind in [OFFER, ACK] {
            grant(&mut world, kind, [10, 0, 0, 42]);
        }
        assert_eq!((world.events.len(), world.default_routers().len()), (0, 0));
        for _ in 0..9 {
            world.pass(1);
            world.settle();
        }
        assert!(
            matches!(&world.events[..], [Event::Bound(lease)] if lease.address.octets() == [10, 0, 0, 42])
        );
        assert_eq!((world.addresses(), world.default_routers().len()), (vec!["10.0.0.42/24".to_owned()], 1));

        // Given back meanwhile: nobody hears of it any more, not even the server, as nothing is sent from such an address.
        let mut world = World::new(3);
        for kind in [OFFER, ACK] {
            grant(&mut world, kind, [10, 0, 0, 42]);
        }
        world.leasing.release(world.now);
        assert_eq!(world.asked(), None);
        for _ in 0..9 {
            world.pass(1);
            world.settle();
        }
        assert!(
            world.events.is_empty() && world.addresses().is_empty() && world.default_routers().is_empty()
        );

        // The server's own: nobody hears of it, and another one is asked for.
        let mut world = World::new(3);
        for kind in [OFFER, ACK] {
            grant(&mut world, kind, [10, 0, 0, 1]);
        }
        for _ in 0..3 {
            world.pass(1);
            world.settle();
            while let Some(event) = world.stacks[0].poll_event() {
                if let bypath_stack::event::Event::AddressConflict { address, .. } = event {
                    world.leasing.conflict(world.now, address);
                }
            }
        }
        let (_, kind, from) = world.asked().expect("a message");
        assert_eq!((kind, from), (4, SocketAddr::from(([0, 0, 0, 0], CLIENT_PORT))));
        assert!(world.events.is_empty() && world.addresses().is_empty());
        world.pass(11);
        for kind in [OFFER, ACK] {
            grant(&mut world, kind, [10, 0, 0, 43]);
        }
        for _ in 0..9 {
            world.pass(1);
            world.settle();
        }
        assert!(
            matches!(&world.events[..], [Event::Bound(lease)] if lease.address.octets() == [10, 0, 0, 43])
        );
    }
}
