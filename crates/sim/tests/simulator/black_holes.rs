//! Paths whose MTU is smaller than that of the links at their ends, and that swallow what is longer without a word (RFC 2923, 2.1): a
//! stream stands still there, unless its segments find out what gets through (RFC 4821).

use bypath_sim::link::LinkConfig;
use bypath_sim::{NodeId, Simulation};
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::{MtuProbing, Settings};
use std::net::SocketAddr;
use std::time::Duration;

const OCTETS: usize = 2_000_000;
/// Octets of a packet between the routers.
const NARROW: usize = 1000;

/// Two hosts, and two routers between them that say nothing.
fn network(name: &str) -> (Simulation, [NodeId; 2]) {
    let mut sim = Simulation::new(name, 7);
    let (left, right) = (sim.link("left", LinkConfig::default()), sim.link("right", LinkConfig::default()));
    let middle = sim.link("middle", LinkConfig { mtu: NARROW, ..LinkConfig::default() });
    let hosts = [sim.host("a"), sim.host("b")];
    let routers = [sim.router("r"), sim.router("s")];
    for (n, link) in [left, right].into_iter().enumerate() {
        let address = |host: u8| [format!("10.0.{n}.{host}/24"), format!("fd00:{n}::{host}/64")];
        let (host, router) = (address(1), address(254));
        sim.attach(hosts[n], link, &[&host[0], &host[1]]);
        sim.attach(routers[n], link, &[&router[0], &router[1]]);
        sim.attach(routers[n], middle, &[&format!("10.9.0.{}/24", n + 1), &format!("fd09::{}/64", n + 1)]);
    }
    for n in 0..2 {
        sim.route(hosts[n], "0.0.0.0/0", &format!("10.0.{n}.254"));
        sim.route(hosts[n], "::/0", &format!("fd00:{n}::254"));
        sim.route(routers[n], &format!("10.0.{}.0/24", 1 - n), &format!("10.9.0.{}", 2 - n));
        sim.route(routers[n], &format!("fd00:{}::/64", 1 - n), &format!("fd09::{}", 2 - n));
        sim.silence(routers[n], true);
    }
    sim.run(Duration::from_secs(4));
    (sim, hosts)
}

fn socket(sim: &mut Simulation, host: NodeId, mtu_probing: MtuProbing) -> SocketId {
    let now = sim.now();
    let stack = sim.stack(host);
    let id = stack.open_tcp().expect("room");
    let mut tcp = stack.tcp(id).expect("it is there");
    let settings = Settings { mtu_probing, ..tcp.settings() };
    tcp.set_settings(now, settings);
    id
}

/// A connection from the first host to the second one, as its ends.
fn connection(
    sim: &mut Simulation,
    hosts: [NodeId; 2],
    to: SocketAddr,
    probing: MtuProbing,
) -> [SocketId; 2] {
    let listener = socket(sim, hosts[1], probing);
    let mut tcp = sim.stack(hosts[1]).tcp(listener).expect("it is there");
    tcp.bind(SocketAddr::new(to.ip(), to.port())).expect("a port");
    tcp.listen(5).expect("nobody else");
    let caller = socket(sim, hosts[0], probing);
    let now = sim.now();
    sim.stack(hosts[0]).tcp(caller).expect("it is there").connect(now, to).expect("a way");
    sim.run(Duration::from_secs(1));
    [caller, sim.stack(hosts[1]).tcp(listener).expect("it is there").accept().expect("it is open")]
}

/// Octets that came from one end to the other in that time, and the length of segments then.
fn stream(
    sim: &mut Simulation,
    from: (NodeId, SocketId),
    to: (NodeId, SocketId),
    patience: Duration,
) -> (usize, u32) {
    let until = sim.now() + patience;
    let (mut written, mut read, mut room) = (0, 0, vec![0; 1 << 20]);
    while read < OCTETS && sim.now() < until {
        let octets = vec![5; OCTETS - written];
        written += sim.stack(from.0).tcp(from.1).expect("it is there").write(&octets).unwrap_or(0);
        sim.run(Duration::from_millis(50));
        read += sim.stack(to.0).tcp(to.1).expect("it is there").read(&mut room).unwrap_or(0);
    }
    let mss = sim.stack(from.0).tcp(from.1).expect("it is there").statistics().expect("a connection").mss;
    (read, mss)
}

#[test]
fn a_path_that_swallows_long_segments_is_got_through_where_it_is_probed() {
    let modes = [MtuProbing::Off, MtuProbing::AfterTimeouts, MtuProbing::Always];
    for (port, (to, headers)) in (80..).zip([("10.0.1.1", 40), ("fd00:1::1", 60)]) {
        for probing in modes {
            // Who calls writes, or who is called.
            for writer in [0, 1] {
                let (mut sim, hosts) =
                    network("a_path_that_swallows_long_segments_is_got_through_where_it_is_probed");
                let to = SocketAddr::new(to.parse().unwrap(), port);
                let ends = connection(&mut sim, hosts, to, probing);
                let (from, to) = ((hosts[writer], ends[writer]), (hosts[1 - writer], ends[1 - writer]));
                let (read, mss) = stream(&mut sim, from, to, Duration::from_secs(60));
                let most = (NARROW - headers) as u32;
                if probing == MtuProbing::Off {
                    assert_eq!((read, mss), (0, 1500 - headers as u32), "{to:?}");
                } else {
                    assert_eq!(read, OCTETS, "{probing:?} {to:?}");
                    assert!((most - 8..=most).contains(&mss), "{probing:?} {to:?}: {mss}");
                }
            }
        }
    }
}
