//! Hosts behind routers: path MTUs, hop limits, redirects, what routers advertise.

use bypath_sim::link::{Change, LinkConfig};
use bypath_sim::{LinkId, NodeId, Simulation};
use bypath_stack::Fragmentation;
use bypath_stack::socket::{SendError, SocketError, SocketId};
use bypath_wire::ndp::PrefixInformation;
use std::net::IpAddr;
use std::time::Duration;

/// a - left - r - right - b.
struct Pair {
    sim: Simulation,
    hosts: [NodeId; 2],
    router: NodeId,
    right: LinkId,
    server: SocketId,
}

const FAR: [(&str, usize); 2] = [("10.0.1.1:7", 28), ("[fd00:0:0:1::1]:7", 48)];

fn pair(name: &str, mtu: usize) -> Pair {
    let mut sim = Simulation::new(name, 1);
    let left = sim.link("left", LinkConfig::default());
    let right = sim.link("right", LinkConfig { mtu, ..LinkConfig::default() });
    let router = sim.router("r");
    let hosts = [(0, left), (1, right)].map(|(net, link)| {
        let host = sim.host(["a", "b"][net]);
        let own = [format!("10.0.{net}.1/24"), format!("fd00:0:0:{net}::1/64"), String::from("fe80::1/64")];
        sim.attach(host, link, &own.each_ref().map(String::as_str));
        let its =
            [format!("10.0.{net}.254/24"), format!("fd00:0:0:{net}::254/64"), String::from("fe80::254/64")];
        sim.attach(router, link, &its.each_ref().map(String::as_str));
        sim.route(host, "0.0.0.0/0", &format!("10.0.{net}.254"));
        sim.route(host, "::/0", &format!("fd00:0:0:{net}::254"));
        host
    });
    let server = bound(&mut sim, hosts[1], "[::]:7");
    sim.run(Duration::from_secs(4));
    sim.forget_frames();
    Pair { sim, hosts, router, right, server }
}

fn bound(sim: &mut Simulation, host: NodeId, local: &str) -> SocketId {
    let id = sim.stack(host).open_udp().unwrap();
    sim.stack(host).udp(id).unwrap().bind(local.parse().unwrap()).unwrap();
    id
}

impl Pair {
    fn connected(&mut self, to: &str, fragmentation: Fragmentation) -> SocketId {
        let stack = self.sim.stack(self.hosts[0]);
        let id = stack.open_udp().unwrap();
        let mut udp = stack.udp(id).unwrap();
        let mut options = udp.options();
        options.fragmentation = fragmentation;
        options.all_errors = true;
        udp.set_options(options);
        udp.connect(to.parse().unwrap()).unwrap();
        id
    }

    fn send(&mut self, id: SocketId, len: usize) -> Result<(), SendError> {
        let sent = self.sim.stack(self.hosts[0]).udp(id).unwrap().send(&vec![7; len], None);
        self.sim.run(Duration::from_millis(100));
        sent
    }

    /// Octets of the datagrams that came.
    fn received(&mut self) -> Vec<usize> {
        let mut room = vec![0; 65_536];
        let mut udp = self.sim.stack(self.hosts[1]).udp(self.server).unwrap();
        std::iter::from_fn(|| udp.receive(&mut room).ok().map(|received| received.len)).collect()
    }
}

#[test]
fn the_path_mtu_is_found_out_by_losing_one_packet() {
    for (to, headers) in FAR {
        let mut pair = pair("the_path_mtu_is_found_out_by_losing_one_packet", 1300);
        let never = pair.connected(to, Fragmentation::Never);
        assert_eq!(pair.send(never, 1500 - headers), Ok(()));
        let refused = Err(SendError::Network(SocketError::TooBig { mtu: 1300 }));
        assert_eq!((pair.send(never, 1), pair.received()), (refused, vec![]));
        assert_eq!(pair.send(never, 1300 - headers), Ok(()));
        assert_eq!(pair.received(), [1300 - headers]);
        // Others cut for the same way.
        let here = pair.connected(to, Fragmentation::Here);
        assert_eq!((pair.send(here, 4000), pair.received()), (Ok(()), vec![4000]));
        assert_eq!(pair.sim.router_counters(pair.router).too_big, 1);
        assert_eq!(pair.sim.count(pair.hosts[0], "icmp_path_mtus"), 1);
    }
}

#[test]
fn a_router_that_says_nothing_is_a_black_hole_but_for_what_it_may_cut() {
    for (to, headers) in FAR {
        let mut pair = pair("a_router_that_says_nothing_is_a_black_hole_but_for_what_it_may_cut", 1300);
        pair.sim.silence(pair.router, true);
        let here = pair.connected(to, Fragmentation::Here);
        for len in [1500 - headers, 1300 - headers] {
            assert_eq!(pair.send(here, len), Ok(()));
        }
        assert_eq!(pair.received(), [1300 - headers]);
        let anywhere = pair.connected(to, Fragmentation::Anywhere);
        assert_eq!(pair.send(anywhere, 1500 - headers), Ok(()));
        let cut = if headers == 28 { vec![1500 - headers] } else { vec![] };
        assert_eq!(pair.received(), cut);
    }
}

#[test]
fn a_packet_with_too_few_hops_ends_and_its_sender_is_told() {
    for (to, _) in FAR {
        let mut pair = pair("a_packet_with_too_few_hops_ends_and_its_sender_is_told", 1500);
        let client = pair.connected(to, Fragmentation::Here);
        let hops = |pair: &mut Pair, hops| {
            let mut udp = pair.sim.stack(pair.hosts[0]).udp(client).unwrap();
            let mut options = udp.options();
            options.hop_limit = Some(hops);
            udp.set_options(options);
        };
        hops(&mut pair, 1);
        assert_eq!(pair.send(client, 10), Ok(()));
        assert_eq!(pair.send(client, 10), Err(SendError::Network(SocketError::HostUnreachable)));
        assert_eq!((pair.received(), pair.sim.router_counters(pair.router).expired), (vec![], 1));
        hops(&mut pair, 2);
        assert_eq!((pair.send(client, 10), pair.received()), (Ok(()), vec![10]));
    }
}

#[test]
fn where_no_route_leads_the_sender_is_told() {
    for to in ["10.9.9.9:7", "[fd00:9::9]:7"] {
        let mut pair = pair("where_no_route_leads_the_sender_is_told", 1500);
        let client = pair.connected(to, Fragmentation::Here);
        assert_eq!(pair.send(client, 10), Ok(()));
        assert_eq!(pair.send(client, 10), Err(SendError::Network(SocketError::NetUnreachable)));
    }
}

#[test]
fn a_better_router_is_taken_once_it_was_named() {
    for (to, v6) in [("10.0.1.1:7", false), ("[fd00:0:0:1::1]:7", true)] {
        let mut sim = Simulation::new("a_better_router_is_taken_once_it_was_named", 1);
        let [left, right] = ["left", "right"].map(|name| sim.link(name, LinkConfig::default()));
        let (a, b, first, second) = (sim.host("a"), sim.host("b"), sim.router("r"), sim.router("s"));
        sim.attach(a, left, &["10.0.0.1/24", "fd00::1/64", "fe80::1/64"]);
        sim.attach(first, left, &["10.0.0.253/24", "fd00::253/64", "fe80::253/64"]);
        sim.attach(second, left, &["10.0.0.254/24", "fd00::254/64", "fe80::254/64"]);
        sim.attach(second, right, &["10.0.1.254/24", "fd00:0:0:1::254/64", "fe80::254/64"]);
        sim.attach(b, right, &["10.0.1.1/24", "fd00:0:0:1::1/64", "fe80::1/64"]);
        // A host knows routers by their link-local addresses (RFC 4861, 8): redirects come from there.
        sim.route(a, "0.0.0.0/0", "10.0.0.253");
        sim.route(a, "::/0", "fe80::253");
        sim.route(b, "0.0.0.0/0", "10.0.1.254");
        sim.route(b, "::/0", "fe80::254");
        sim.route(first, "10.0.1.0/24", "10.0.0.254");
        sim.route(first, "fd00:0:0:1::/64", "fe80::254");
        let server = bound(&mut sim, b, "[::]:7");
        let client = sim.stack(a).open_udp().unwrap();
        sim.run(Duration::from_secs(4));
        if !v6 {
            // Of IPv4 a redirect about a connection's segment counts.
            let now = sim.now();
            let call = sim.stack(a).open_tcp().unwrap();
            sim.stack(a).tcp(call).unwrap().connect(now, to.parse().unwrap()).unwrap();
            sim.run(Duration::from_millis(100));
        }
        for _ in 0..10 {
            sim.stack(a).udp(client).unwrap().send(b"?", Some(to.parse().unwrap())).unwrap();
            sim.run(Duration::from_millis(100));
        }
        assert_eq!(sim.count(b, "udp_delivered"), 10);
        assert!(sim.stack(b).udp(server).unwrap().receive(&mut [0; 10]).is_ok());
        let counters = sim.router_counters(first);
        assert_eq!((counters.forwarded, counters.redirected), (1, 1), "IPv6: {v6}");
    }
}

#[test]
fn who_is_told_of_a_network_makes_itself_an_address_and_gets_through() {
    let mut sim = Simulation::new("who_is_told_of_a_network_makes_itself_an_address_and_gets_through", 1);
    let [left, right] = ["left", "right"].map(|name| sim.link(name, LinkConfig::default()));
    let (a, b, router) = (sim.host("a"), sim.host("b"), sim.router("r"));
    let iface = sim.attach(a, left, &[]);
    sim.attach(router, left, &["fd00::254/64", "fe80::254/64"]);
    sim.attach(router, right, &["fd00:0:0:1::254/64", "fe80::254/64"]);
    sim.attach(b, right, &["fd00:0:0:1::1/64", "fe80::1/64"]);
    sim.route(b, "::/0", "fe80::254");
    let prefix = "fd00::".parse().unwrap();
    let network = PrefixInformation {
        len: 64,
        on_link: true,
        autonomous: true,
        valid_s: 3600,
        preferred_s: 1800,
        prefix,
    };
    sim.advertise(router, 0, network);
    let now = sim.now();
    assert!(sim.stack(a).autoconfigure(now, iface));
    let server = bound(&mut sim, b, "[::]:7");
    sim.run(Duration::from_secs(6));
    let own: Vec<IpAddr> = sim.stack(a).addresses(iface).iter().map(|address| address.ip()).collect();
    assert_eq!(own.len(), 2, "{own:?}");
    let client = sim.stack(a).open_udp().unwrap();
    sim.stack(a).udp(client).unwrap().send(b"?", Some("[fd00:0:0:1::1]:7".parse().unwrap())).unwrap();
    sim.run(Duration::from_secs(1));
    let mut room = [0; 10];
    let got = sim.stack(b).udp(server).unwrap().receive(&mut room).unwrap();
    assert!(own.contains(&got.datagram.from.ip()));
}

#[test]
fn a_partition_is_told_while_it_lasts_and_forgotten_with_it() {
    for (to, _) in FAR {
        let mut pair = pair("a_partition_is_told_while_it_lasts_and_forgotten_with_it", 1500);
        let client = pair.connected(to, Fragmentation::Here);
        assert_eq!((pair.send(client, 10), pair.received()), (Ok(()), vec![10]));
        let at = |seconds| Duration::from_secs(seconds);
        pair.sim.change(pair.right, at(5)..at(100), Change::Down);
        pair.sim.run(at(5));
        for _ in 0..20 {
            assert_eq!(pair.send(client, 10), Ok(()));
        }
        pair.sim.run(at(200));
        assert_eq!(pair.received(), []);
        assert_eq!((pair.send(client, 10), pair.received()), (Ok(()), vec![10]));
        assert!(pair.sim.link_counters(pair.right).cut >= 20);
    }
}
