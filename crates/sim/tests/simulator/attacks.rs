//! Attacks by name: memory stays bounded (the simulation checks that after each frame), honest datagrams are served meanwhile
//! and afterwards, and a counter tells what it was.

use bypath_sim::attack::{self, Attack, FAR_V4, FAR_V6, MAC, PORT, ROUTER_V4, ROUTER_V6};
use bypath_sim::link::LinkConfig;
use bypath_sim::{NodeId, Simulation};
use bypath_stack::socket::SocketId;
use bypath_wire::{FrameMeta, IpProtocol};
use std::net::SocketAddr;
use std::time::Duration;

/// A port of the victim's, from which it has a partner behind its router.
const FROM: u16 = 50_053;

struct Scene {
    sim: Simulation,
    victim: NodeId,
    peer: NodeId,
    server: SocketId,
    client: SocketId,
}

fn scene(name: &str) -> Scene {
    let mut sim = Simulation::new(name, 1);
    let lan = sim.link("lan", LinkConfig::default());
    let (victim, peer, router) = (sim.host("victim"), sim.host("peer"), sim.router("router"));
    let iface = sim.attach(victim, lan, &["10.0.0.1/8", "fd00::1/64", "fe80::1/64"]);
    sim.attach(peer, lan, &["10.0.0.2/8", "fd00::2/64", "fe80::2/64"]);
    sim.attach(router, lan, &["10.0.0.254/8", "fd00::fe/64", "fe80::fe/64"]);
    sim.route(victim, "0.0.0.0/0", &ROUTER_V4.to_string());
    sim.route(victim, "::/0", &ROUTER_V6.to_string());
    assert_eq!(sim.mac(victim, 0), MAC);
    sim.run(Duration::from_secs(4));
    let now = sim.now();
    let stack = sim.stack(victim);
    let server = stack.open_udp().unwrap();
    stack.udp(server).unwrap().bind(format!("[::]:{PORT}").parse().unwrap()).unwrap();
    for group in ["239.1.2.3", "ff15::99"] {
        stack.udp(server).unwrap().join(now, iface, group.parse().unwrap()).unwrap();
    }
    for (local, far) in [("10.0.0.1", FAR_V4.into()), ("fd00::1", FAR_V6.into())] {
        let partner = stack.open_udp().unwrap();
        let mut udp = stack.udp(partner).unwrap();
        udp.bind(SocketAddr::new(local.parse().unwrap(), FROM)).unwrap();
        udp.connect(SocketAddr::new(far, 53)).unwrap();
    }
    stack.add_vlan(iface, 5, 1500).unwrap();
    stack.autoconfigure(now, iface);
    stack.open_raw(IpProtocol::IGMP).unwrap();
    let client = sim.stack(peer).open_udp().unwrap();
    sim.stack(peer).udp(client).unwrap().bind("[::]:9".parse().unwrap()).unwrap();
    let mut scene = Scene { sim, victim, peer, server, client };
    scene.serves("before");
    scene
}

impl Scene {
    /// A question of an honest peer is answered, in both kinds.
    fn serves(&mut self, when: &str) {
        let Scene { sim, victim, peer, server, client } = self;
        let mut room = [0; 2000];
        for to in ["10.0.0.1:7", "[fd00::1]:7"] {
            sim.stack(*peer).udp(*client).unwrap().send(b"question", Some(to.parse().unwrap())).unwrap();
            sim.run(Duration::from_millis(1));
            let (mut asked, mut udp) = (None, sim.stack(*victim).udp(*server).unwrap());
            while let Ok(received) = udp.receive(&mut room) {
                if &room[..received.len] == b"question" {
                    asked = Some(received.datagram.from);
                }
            }
            let asked = asked.unwrap_or_else(|| panic!("{when}: the question to {to} did not come"));
            udp.send(b"answer", Some(asked)).unwrap();
            sim.run(Duration::from_millis(1));
            let received = sim.stack(*peer).udp(*client).unwrap().receive(&mut room);
            assert!(received.is_ok_and(|r| &room[..r.len] == b"answer"), "{when}: no answer from {to}");
        }
    }

    /// What the counter says if that is too little.
    fn suffers(&mut self, attack: &Attack) -> Option<String> {
        let Attack { name, counter, least, frames } = attack;
        let before = self.sim.count(self.victim, counter);
        for (n, frame) in frames.iter().enumerate() {
            self.sim.hand(self.victim, 0, frame, &FrameMeta::default());
            // As many as a link hands over at once.
            if n % 64 == 63 {
                self.sim.run(Duration::from_micros(100));
            }
            if n % 1000 == 500 {
                self.serves(name);
            }
        }
        self.serves(name);
        // What is waited for ends.
        self.sim.run(Duration::from_secs(40));
        self.serves(name);
        let counted = self.sim.count(self.victim, counter) - before;
        let usage = self.sim.stack(self.victim).usage();
        assert_eq!((usage.fragment_octets, usage.waiting_octets), (0, 0), "{name}");
        (counted < *least).then(|| format!("{name}: {counter} {counted}, not {least}"))
    }
}

#[test]
fn attacks_by_name_end_nothing_but_themselves() {
    let each = attack::corpus(FROM).into_iter().filter_map(|attack| {
        let mut scene = scene("attacks_by_name_end_nothing_but_themselves");
        scene.sim.forget_frames();
        scene.suffers(&attack)
    });
    assert_eq!(each.collect::<Vec<_>>(), Vec::<String>::new());
}

#[test]
fn all_attacks_one_after_the_other_leave_a_host_that_serves() {
    let mut scene = scene("all_attacks_one_after_the_other_leave_a_host_that_serves");
    for attack in attack::corpus(FROM) {
        for frame in &attack.frames {
            scene.sim.hand(scene.victim, 0, frame, &FrameMeta::default());
        }
        scene.serves(attack.name);
    }
    scene.sim.run(Duration::from_secs(700));
    scene.serves("after all");
}

#[test]
fn attacks_while_the_link_takes_nothing_cost_no_more_than_the_queues() {
    let mut scene = scene("attacks_while_the_link_takes_nothing_cost_no_more_than_the_queues");
    let far = "10.0.0.66:9".parse().unwrap();
    scene.sim.stack(scene.victim).udp(scene.server).unwrap().send(b"waits", Some(far)).unwrap();
    scene.sim.run(Duration::from_micros(10));
    scene.sim.stall(scene.victim, 0, true);
    for attack in attack::corpus(FROM) {
        for frame in &attack.frames {
            scene.sim.hand(scene.victim, 0, frame, &FrameMeta::default());
        }
        scene.sim.run(Duration::from_millis(10));
    }
    scene.sim.stall(scene.victim, 0, false);
    scene.sim.run(Duration::from_secs(60));
    scene.serves("after all");
}

#[test]
fn who_is_refused_by_an_attacker_has_heard_nothing() {
    // What ICMP says of the connections of others is not believed (RFC 5927, 4); a path is never narrower than any link.
    let mut scene = scene("who_is_refused_by_an_attacker_has_heard_nothing");
    for attack in attack::corpus(FROM) {
        if attack.counter.starts_with("icmp_") && !attack.counter.contains("path") {
            for frame in &attack.frames {
                scene.sim.hand(scene.victim, 0, frame, &FrameMeta::default());
            }
        }
    }
    let stack = scene.sim.stack(scene.victim);
    for (far, least) in
        [(SocketAddr::new(FAR_V4.into(), 53), 1500), (SocketAddr::new(FAR_V6.into(), 53), 1500)]
    {
        let path = stack.path(far.ip(), None, None).unwrap();
        assert_eq!(path.mtu, least);
        assert!(
            path.next_hop == std::net::IpAddr::from(ROUTER_V4)
                || path.next_hop == std::net::IpAddr::from(ROUTER_V6)
        );
    }
}
