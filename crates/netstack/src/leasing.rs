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

/// A client, and what it brought.
pub struct Leasing {
    iface: IfaceId,
    client: Client,
    socket: SocketId,
    used: Option<Lease>,
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
    ) -> Result<Leasing, TooMany> {
        let socket = stack.open_udp()?;
        if let Some(mut udp) = stack.udp(socket) {
            let own = Options { broadcast: true, iface: Some(iface), reuse_address: true, ..udp.options() };
            udp.set_options(own);
            // Nobody else has the port on this interface, unless he shares it: then he gets copies, too.
            let _ = udp.bind(SocketAddr::from((Ipv4Addr::UNSPECIFIED, CLIENT_PORT)));
        }
        let client = Client::new(now, settings, bypath_sys::process::random_u64());
        Ok(Leasing { iface, client, socket, used: None, leaves: None, room: Box::new([0; LONGEST]) })
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
                    // RFC 2131 section 4.1: servers send from their port.
                    if received.datagram.from.port() == SERVER_PORT {
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
        let event = self.client.poll_event()?;
        match &event {
            Event::Bound(lease) => self.use_lease(now, stack, lease.clone()),
            Event::Lost => self.drop_lease(stack),
            Event::Renewed(_) => {}
        }
        Some(event)
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
        self.leaves = Some(now + LAST_WORDS);
    }

    fn use_lease(&mut self, now: Instant, stack: &mut Stack, lease: Lease) {
        let same = |old: &Lease| (old.address, old.prefix_len) == (lease.address, lease.prefix_len);
        if self.used.as_ref().is_some_and(same) {
            self.drop_routes(stack);
        } else {
            self.drop_lease(stack);
            if let Some(prefix) = Prefix::new(IpAddr::V4(lease.address), lease.prefix_len) {
                // One that somebody added by hand is as good.
                let _ = stack.add_address(now, self.iface, prefix);
            }
        }
        for route in routes(&lease, self.iface) {
            let _ = stack.add_route(route);
        }
        self.used = Some(lease);
    }

    fn drop_lease(&mut self, stack: &mut Stack) {
        self.drop_routes(stack);
        if let Some(lease) = self.used.take() {
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
        fn new() -> World {
            let now = Instant::from_nanos(1_000_000_000);
            // As the replies of the client's own tests have it.
            let [(a, a_iface), (mut b, b_iface)] = [7, 1].map(|last| {
                let mut stack = Stack::new(Config::default(), [last; 32]);
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
            let options: [(u8, &[u8]); 4] =
                [(54, &SERVER.octets()), (51, &[0, 0, 0, 100]), (1, &[255, 255, 255, 0]), (3, &router)];
            self.answer(to, &reply(transaction, kind, address.into(), &options));
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
        let mut world = World::new().bound();
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
        let mut world = World::new().bound();
        world.pass(101);
        world.settle();
        assert_eq!((world.events.last(), world.addresses().len()), (Some(&Event::Lost), 0));
        assert_eq!(world.default_routers(), [] as [IpAddr; 0]);

        let mut world = World::new().bound();
        world.pass(51);
        let (renewal, _, _) = world.asked().expect("a renewal");
        world.answer(
            [10, 0, 0, 42].into(),
            &reply(renewal, NAK, Ipv4Addr::UNSPECIFIED, &[(54, &SERVER.octets())]),
        );
        assert_eq!((world.events.last(), world.addresses().len()), (Some(&Event::Lost), 0));

        let mut world = World::new().bound();
        world.leasing.conflict(world.now, [10, 0, 0, 9].into());
        assert!(world.asked().is_none());
        world.leasing.conflict(world.now, [10, 0, 0, 42].into());
        let (_, kind, from) = world.asked().expect("a message");
        assert_eq!((kind, from), (4, SocketAddr::from(([0, 0, 0, 0], CLIENT_PORT))));
        assert_eq!(world.addresses().len(), 0);

        let mut world = World::new().bound();
        world.leasing.release(world.now);
        let (_, kind, from) = world.asked().expect("a message");
        assert_eq!((kind, from), (7, SocketAddr::from(([10, 0, 0, 42], CLIENT_PORT))));
        world.pass(2);
        world.settle();
        assert_eq!(world.addresses().len(), 0);
    }

    #[test]
    fn who_does_not_send_from_the_servers_port_is_no_server() {
        let mut world = World::new();
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
}
