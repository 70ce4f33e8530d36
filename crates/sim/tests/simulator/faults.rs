//! Faults of any kind, for a while: nothing wrong is delivered meanwhile, and everything works again afterwards.

use crate::traffic::{Asks, Book, Shared, cases, client, seeds, server};
use bypath_sim::link::{Change, Faults, LinkConfig};
use bypath_sim::{LinkId, NodeId, Simulation};
use bypath_stack::time::Instant;
use proptest::prelude::*;
use std::time::Duration;

/// A network of two hosts on one link, and two more behind routers.
pub struct Network {
    pub sim: Simulation,
    pub links: Vec<LinkId>,
    pub hosts: Vec<NodeId>,
    pub routers: Vec<NodeId>,
}

/// Faults end then.
pub const END: u64 = 20;
/// Neighbours that could not be asked are asked again by then.
const CALM: u64 = 25;

fn secs(seconds: u64) -> Instant {
    Instant::ZERO + Duration::from_secs(seconds)
}

pub fn network(name: &str, seed: u64) -> Network {
    let mut sim = Simulation::new(name, seed);
    let narrow = [1280, 1300, 1400, 1492, 1500][sim.dice().index(5)];
    let bandwidth = [None, Some(2_000_000), Some(10_000_000)][sim.dice().index(3)];
    let wan =
        LinkConfig { delay: Duration::from_millis(20), bandwidth, mtu: narrow, ..LinkConfig::default() };
    let left = sim.link("left", LinkConfig::default());
    let wan = sim.link("wan", wan);
    let right = sim.link("right", LinkConfig::default());
    let mut hosts = Vec::new();
    for (name, link, net, number) in
        [("a", left, 0, 1), ("b", left, 0, 2), ("c", right, 2, 1), ("d", right, 2, 2)]
    {
        let host = sim.host(name);
        let addresses = [
            format!("10.0.{net}.{number}/24"),
            format!("fd00:0:0:{net}::{number}/64"),
            format!("fe80::{number}/64"),
        ];
        sim.attach(host, link, &addresses.each_ref().map(String::as_str));
        sim.route(host, "0.0.0.0/0", &format!("10.0.{net}.254"));
        sim.route(host, "::/0", &format!("fd00:0:0:{net}::254"));
        hosts.push(host);
    }
    let mut routers = Vec::new();
    for (name, link, net, other, number) in [("r", left, 0, 2, 1), ("s", right, 2, 0, 2)] {
        let router = sim.router(name);
        routers.push(router);
        let near =
            [format!("10.0.{net}.254/24"), format!("fd00:0:0:{net}::254/64"), String::from("fe80::254/64")];
        sim.attach(router, link, &near.each_ref().map(String::as_str));
        let far =
            [format!("10.0.1.{number}/24"), format!("fd00:0:0:1::{number}/64"), format!("fe80::{number}/64")];
        sim.attach(router, wan, &far.each_ref().map(String::as_str));
        sim.route(router, &format!("10.0.{other}.0/24"), &format!("10.0.1.{}", 3 - number));
        sim.route(router, &format!("fd00:0:0:{other}::/64"), &format!("fd00:0:0:1::{}", 3 - number));
    }
    Network { sim, links: vec![left, wan, right], hosts, routers }
}

/// What goes wrong by chance until [`END`].
pub fn trouble(network: &mut Network) {
    let Network { sim, links, hosts, .. } = network;
    for _ in 0..1 + sim.dice().index(6) {
        let link = links[sim.dice().index(links.len())];
        let begin = sim.dice().below(END * 1000);
        let end = begin + sim.dice().below(END * 1000 - begin) + 1;
        let mut part = |most: f64| {
            let often = sim.dice().below(1000) as f64 / 1000.0;
            if sim.dice().chance(0.5) { often * most } else { 0.0 }
        };
        let faults = Faults {
            loss: part(0.9),
            duplication: part(0.5),
            corruption: part(0.5),
            reordering: part(0.5),
            late: Duration::from_millis(300),
            jitter: Duration::from_micros(part(20_000.0) as u64),
            marks: part(0.5),
        };
        let change = match sim.dice().index(4) {
            0 => Change::Down,
            1 => Change::Cut(vec![hosts[sim.dice().index(hosts.len())]]),
            _ => Change::Faults(faults),
        };
        sim.change(link, Duration::from_millis(begin)..Duration::from_millis(end), change);
    }
}

const SERVERS: [&str; 4] = ["10.0.0.2:7", "[fd00::2]:7", "10.0.2.2:7", "[fd00:0:0:2::2]:7"];

fn traffic(network: &mut Network, from: Instant, until: Instant, every: Duration) -> Shared {
    let book = Shared::default();
    let Network { sim, hosts, .. } = network;
    for server_host in [1, 3] {
        sim.run_program(hosts[server_host], server(Shared::clone(&book)));
    }
    for (n, to) in SERVERS.into_iter().enumerate() {
        let asks = Asks { to: to.parse().unwrap(), from, until, every, longest: 4000 };
        sim.run_program(hosts[n % 2 * 2], client(Shared::clone(&book), asks));
    }
    book
}

/// A run with faults, to the end of them.
pub fn chaos(name: &str, seed: u64) -> Simulation {
    let mut network = network(name, seed);
    trouble(&mut network);
    let faults = Faults { loss: 0.02, duplication: 0.02, corruption: 0.02, ..Faults::default() };
    network.sim.change(
        network.links[0],
        Duration::from_secs(3)..Duration::from_secs(END),
        Change::Faults(faults),
    );
    traffic(&mut network, secs(3), secs(END), Duration::from_millis(50));
    network.sim.run(Duration::from_secs(END));
    network.sim
}

/// Nobody asks for himself here.
fn copies_are_the_networks(network: &Network, book: &Book) {
    let made: u64 = network.links.iter().map(|link| network.sim.link_counters(*link).duplicated).sum();
    assert!(book.copies() <= made, "{} copies, of which the network made {made}", book.copies());
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn after_any_faults_that_end_questions_are_answered_again(seed in seeds()) {
        let mut network = network("after_any_faults_that_end_questions_are_answered_again", seed);
        trouble(&mut network);
        // What was delivered was sent so: the book sees to that. Bounds and counters: the simulation does.
        let book = traffic(&mut network, secs(0), secs(END), Duration::from_millis(100));
        network.sim.run(Duration::from_secs(CALM));
        copies_are_the_networks(&network, &book.borrow());

        // Each question of four; the first of a way may be longer than it takes, and is lost for that.
        for to in SERVERS {
            for host in [network.hosts[0], network.hosts[2]] {
                let now = network.sim.now();
                let (every, until) = (Duration::from_millis(500), now + Duration::from_millis(1900));
                let asks = Asks { to: to.parse().unwrap(), from: now, until, every, longest: 3000 };
                assert!(ask(&mut network, host, asks, &book) >= 2, "{to}: no answers");
            }
        }
        // Nothing is left behind.
        network.sim.run(Duration::from_secs(60));
        for host in &network.hosts {
            let usage = network.sim.stack(*host).usage();
            let left = (usage.transmit_octets, usage.waiting_octets, usage.fragment_octets, usage.fragmented, usage.ready);
            assert_eq!(left, (0, 0, 0, 0, 0));
        }
    }
}

/// Answers that a host gets to four questions.
fn ask(network: &mut Network, host: NodeId, asks: Asks, book: &Shared) -> usize {
    let before = book.borrow().answered.len();
    network.sim.run_program(host, client(Shared::clone(book), asks));
    network.sim.run(Duration::from_secs(3));
    book.borrow().answered.len() - before
}

#[test]
fn a_network_without_faults_loses_nothing_but_what_is_too_long_at_first() {
    for seed in 0..5 {
        let mut network =
            network("a_network_without_faults_loses_nothing_but_what_is_too_long_at_first", seed);
        let book = traffic(&mut network, secs(4), secs(14), Duration::from_millis(100));
        network.sim.run(Duration::from_secs(20));
        let (book, asked) = (book.borrow(), 4 * 100);
        assert_eq!(book.copies(), 0);
        // Each host learns the path MTU once for each of two destinations, by losing packets for a round trip.
        assert!(book.answered.len() >= asked - 8, "seed {seed}: {} of {asked}", book.answered.len());
        assert!(book.delivered() >= 2 * book.answered.len());
    }
}
