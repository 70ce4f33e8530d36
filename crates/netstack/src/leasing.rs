//! A lease of an interface: the client's messages over the stack's own UDP, and what it is given as addresses and routes.

use crate::dhcp::{CLIENT_PORT, Client, Event, Lease, SERVER_PORT, Settings};
use bypath_stack::iface::IfaceId;
use bypath_stack::prefix::Prefix;
use bypath_stack::route::Route;
use bypath_stack::socket::{Options, ReceiveError, SocketId, TooMany};
use bypath_stack::time::Instant;
use bypath_stack::{SendTo, Stack};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Longest message that is read; longer ones than asked for do not come.
const LONGEST: usize = 1500;
/// Its routes are worse than those that somebody adds by hand.
const METRIC: u32 = 100;

/// A client, and what it brought.
pub struct Leasing {
    iface: IfaceId,
    client: Client,
    socket: SocketId,
    used: Option<Lease>,
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
        Ok(Leasing { iface, client, socket, used: None, room: Box::new([0; LONGEST]) })
    }

    pub fn is_own(&self, socket: SocketId) -> bool {
        self.socket == socket
    }

    pub fn poll_timeout(&self) -> Option<Instant> {
        self.client.poll_timeout()
    }

    /// Reads and sends messages. What happened, after it was done.
    pub fn turn(&mut self, now: Instant, stack: &mut Stack) -> Option<Event> {
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

    /// Tells the server that the address is not needed any more.
    pub fn release(&mut self, now: Instant, stack: &mut Stack) {
        self.client.release();
        // From the address while it is still ours.
        let _ = self.turn(now, stack);
        self.drop_lease(stack);
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
