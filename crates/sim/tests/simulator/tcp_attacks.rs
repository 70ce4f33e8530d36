//! Attacks on TCP by name: memory stays bounded, who is honest is served in the middle of it, and a counter tells.

use bypath_sim::attack::tcp::{ATTACKER, ATTACKERS_MAC, call, complaint, header, heard, segment};
use bypath_sim::link::LinkConfig;
use bypath_sim::{NodeId, Simulation};
use bypath_stack::config::Config;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::State;
use bypath_wire::tcp_options::{SackBlock, SackBlocks};
use bypath_wire::{FrameMeta, SeqNumber, TcpFlags, TcpHeader, TcpOption, TcpOptions};
use std::net::Ipv4Addr;
use std::time::Duration;

/// Octets that the victim has for buffers.
const OCTETS: usize = 4 << 20;
/// The largest buffer that grew when the last octet was free, and what each connection may have besides.
const BEYOND: usize = 256 << 10;
const HONEST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

struct Scene {
    sim: Simulation,
    victim: NodeId,
    peer: NodeId,
    listener: SocketId,
    /// An honest connection that has been there before, from the peer's end and the victim's.
    old: (SocketId, SocketId),
}

/// The attacker's end of a connection.
#[derive(Clone, Copy, Debug)]
struct Evil {
    port: u16,
    seq: SeqNumber,
    /// The next that comes.
    ack: SeqNumber,
    /// The victim's end.
    end: SocketId,
}

fn scene(name: &str) -> Scene {
    let mut sim = Simulation::new(name, 3);
    let lan = sim.link("lan", LinkConfig::default());
    let mut config = Config::default();
    (config.tcp.octets, config.tcp.connections, config.tcp.half_open) = (OCTETS, 2000, 200);
    let (victim, peer) = (sim.host_with("victim", config), sim.host("peer"));
    let iface = sim.attach(victim, lan, &["10.0.0.1/8"]);
    sim.attach(peer, lan, &["10.0.0.2/8"]);
    assert!(sim.stack(victim).set_neighbor(iface, ATTACKER.into(), ATTACKERS_MAC));
    let listener = sim.stack(victim).open_tcp().unwrap();
    let mut tcp = sim.stack(victim).tcp(listener).unwrap();
    tcp.bind("0.0.0.0:80".parse().unwrap()).unwrap();
    tcp.listen(100).unwrap();
    sim.run(Duration::from_secs(1));
    let mut scene = Scene { sim, victim, peer, listener, old: (listener, listener) };
    scene.old = scene.connect();
    scene.serves("before");
    scene
}

impl Scene {
    fn run(&mut self, microseconds: u64) {
        self.sim.run(Duration::from_micros(microseconds));
    }

    /// An honest connection.
    fn connect(&mut self) -> (SocketId, SocketId) {
        let now = self.sim.now();
        let id = self.sim.stack(self.peer).open_tcp().unwrap();
        self.sim.stack(self.peer).tcp(id).unwrap().connect(now, "10.0.0.1:80".parse().unwrap()).unwrap();
        for _ in 0..100 {
            self.run(50_000);
            while let Ok(end) = self.listener().accept() {
                let from = self.sim.stack(self.victim).tcp(end).unwrap().remote().unwrap();
                if from.ip() == HONEST {
                    return (id, end);
                }
            }
        }
        panic!("an honest one was not let in");
    }

    fn listener(&mut self) -> bypath_stack::Tcp<'_> {
        self.sim.stack(self.victim).tcp(self.listener).unwrap()
    }

    /// Carries some octets each way.
    fn exchanges(&mut self, (here, there): (SocketId, SocketId), when: &str) {
        for (from, by, to, at) in
            [(self.peer, here, self.victim, there), (self.victim, there, self.peer, here)]
        {
            let (mut room, mut got, mut sent) = ([0; 4096], 0, 0);
            // Without memory it takes its time.
            for _ in 0..20_000 {
                let octets = [5; 20_000];
                sent += self.sim.stack(from).tcp(by).unwrap().write(&octets[sent..]).unwrap_or(0);
                self.run(500);
                while let Ok(n @ 1..) = self.sim.stack(to).tcp(at).unwrap().read(&mut room) {
                    got += n;
                }
                if got == octets.len() {
                    break;
                }
            }
            assert_eq!(got, 20_000, "{when}: an honest connection does not get on");
        }
    }

    /// Who is connected gets on, and who calls is let in; memory is bounded.
    fn serves(&mut self, when: &str) {
        self.bounded(when);
        self.exchanges(self.old, when);
        let new = self.connect();
        self.exchanges(new, when);
        self.sim.stack(self.peer).close(new.0);
        self.sim.stack(self.victim).close(new.1);
        self.run(10_000);
        self.bounded(when);
    }

    fn bounded(&mut self, when: &str) {
        let usage = self.sim.stack(self.victim).usage();
        let most = OCTETS + BEYOND + usage.connections * 2 * 2048;
        assert!(usage.connection_octets <= most && usage.connections <= 2000, "{when}: {usage:?}");
    }

    fn count(&self, counter: &str) -> u64 {
        self.sim.count(self.victim, counter)
    }

    fn hand(&mut self, from: (Ipv4Addr, u16), header: &TcpHeader, octets: &[u8]) {
        self.sim.hand(self.victim, 0, &segment(from, 80, header, octets), &FrameMeta::default());
    }

    /// What the victim has said to a port of the attacker's since it was last asked.
    fn heard(&mut self, port: u16) -> Vec<(TcpHeader, usize)> {
        self.run(100);
        let all = self.sim.record().frames().filter_map(|sent| heard(&sent.frame));
        let all = all.filter(|(header, _)| header.destination_port == port).collect();
        self.sim.forget_frames();
        all
    }

    /// The attacker connects.
    fn evil(&mut self, port: u16, mss: u16) -> Evil {
        self.sim.forget_frames();
        let seq = SeqNumber(u32::from(port) * 1000);
        self.hand((ATTACKER, port), &call(seq, mss), &[]);
        let answer = self.heard(port)[0].0;
        let ack = answer.seq + 1;
        self.hand((ATTACKER, port), &header(TcpFlags::ACK, seq + 1, ack), &[]);
        self.run(100);
        let end = self.listener().accept().expect("the attacker's connection");
        Evil { port, seq: seq + 1, ack, end }
    }

    fn says(&mut self, evil: &Evil, seq: SeqNumber, ack: SeqNumber, window: u16, octets: &[u8]) {
        let header = TcpHeader { window, ..header(TcpFlags::ACK, seq, ack) };
        self.hand((ATTACKER, evil.port), &header, octets);
    }

    /// The victim writes to the attacker; how much it takes.
    fn writes(&mut self, evil: &Evil, octets: usize) -> usize {
        let octets = vec![9; octets];
        self.sim.stack(self.victim).tcp(evil.end).unwrap().write(&octets).unwrap_or(0)
    }

    fn statistics(&mut self, end: SocketId) -> bypath_stack::tcp::Statistics {
        self.sim.stack(self.victim).tcp(end).unwrap().statistics().unwrap()
    }
}

#[test]
fn a_flood_of_calls_is_answered_with_cookies() {
    let mut scene = scene("a_flood_of_calls_is_answered_with_cookies");
    for n in 0..5000u32 {
        let from = (Ipv4Addr::from_bits(0x0a42_0000 + n), 1000);
        scene.hand(from, &call(SeqNumber(n * 77), 1460), &[]);
        if n % 50 == 49 {
            scene.run(1000);
        }
    }
    // Of some nobody knows the station: these make room.
    assert!(scene.count("tcp_cookies_sent") >= 3000, "{}", scene.count("tcp_cookies_sent"));
    assert!(scene.sim.stack(scene.victim).usage().half_open <= 100);
    scene.serves("a flood of calls");
    assert!(scene.count("tcp_cookies_returned") >= 1);
}

#[test]
fn segments_of_strangers_end_nothing() {
    let mut scene = scene("segments_of_strangers_end_nothing");
    let port = scene.sim.stack(scene.peer).tcp(scene.old.0).unwrap().local().unwrap().port();
    for (what, flags, octets) in [
        ("resets", TcpFlags::RST, 0u32),
        ("calls", TcpFlags::SYN, 0),
        ("octets", TcpFlags::ACK | TcpFlags::PSH, 100),
        ("ends", TcpFlags::ACK | TcpFlags::FIN, 0),
    ] {
        let before = scene.count("tcp_challenges_sent");
        // Resets are answered in the window alone: each is hit.
        let (count, step) = if flags == TcpFlags::RST { (1 << 16, 1 << 16) } else { (1 << 12, 1 << 20) };
        for n in 0..count {
            let (seq, ack) = (SeqNumber(n * step), SeqNumber(n.wrapping_mul(2_654_435_761)));
            scene.hand((HONEST, port), &header(flags, seq, ack), &vec![0xee; octets as usize]);
            if n % (count / 40) == 0 {
                scene.run(60_000);
            }
        }
        assert!(scene.count("tcp_challenges_sent") > before, "{what}");
        // And not more than two in a second.
        assert!(scene.count("tcp_challenges_sent") - before < 10, "{what}");
        scene.serves(what);
    }
}

#[test]
fn what_strangers_say_of_the_network_ends_nothing() {
    let mut scene = scene("what_strangers_say_of_the_network_ends_nothing");
    let port = scene.sim.stack(scene.peer).tcp(scene.old.0).unwrap().local().unwrap().port();
    for code in [0, 1, 2, 3, 4] {
        let before = scene.count("icmp_drop_unrelated");
        for n in 0..1000u32 {
            let seq = SeqNumber(n.wrapping_mul(4_294_967));
            let frame = complaint(code, 68, (80, port), HONEST, seq);
            scene.sim.hand(scene.victim, 0, &frame, &FrameMeta::default());
        }
        assert!(scene.count("icmp_drop_unrelated") - before >= 999, "{code}");
    }
    assert_eq!(scene.statistics(scene.old.1).mss, 1460);
    scene.serves("complaints");
}

#[test]
fn tiny_segments_are_not_made_as_small_as_the_attacker_wants() {
    let mut scene = scene("tiny_segments_are_not_made_as_small_as_the_attacker_wants");
    for (port, mss) in [(1000, 0), (1001, 1), (1002, 8), (1003, 47), (1004, 48)] {
        let mut evil = scene.evil(port, mss);
        assert_eq!(scene.statistics(evil.end).mss, 48);
        scene.writes(&evil, 10_000);
        let (mut got, mut segments) = (0, 0);
        for _ in 0..2000 {
            for (header, len) in scene.heard(port) {
                if header.seq == evil.ack {
                    (got, segments, evil.ack) = (got + len, segments + 1, evil.ack + len as u32);
                }
            }
            scene.says(&evil, evil.seq, evil.ack, 65_535, &[]);
            if got == 10_000 {
                break;
            }
        }
        assert_eq!(got, 10_000);
        assert!(segments <= 10_000usize.div_ceil(48) + 10, "{segments} segments");
    }
    scene.serves("tiny segments");
}

#[test]
fn blocks_of_single_octets_cost_no_more_than_segments_do() {
    let mut scene = scene("blocks_of_single_octets_cost_no_more_than_segments_do");
    let evil = scene.evil(1000, 1460);
    // A large window, and none of it is acknowledged.
    scene.writes(&evil, 100_000);
    scene.run(1000);
    for n in 0..10_000u32 {
        let mut header = header(TcpFlags::ACK, evil.seq, evil.ack);
        let mut blocks = SackBlocks::new();
        for k in 0..4 {
            let left = evil.ack + 1 + (n * 4 + k) * 2 % 14_000;
            let _fits = blocks.push(SackBlock { left, right: left + 1 });
        }
        header.options = TcpOptions::new();
        assert!(header.options.push(&TcpOption::Sack(blocks)));
        scene.hand((ATTACKER, 1000), &header, &[]);
        if n % 1000 == 999 {
            scene.run(1000);
        }
    }
    let statistics = scene.statistics(evil.end);
    // Octets that are not a whole segment have not arrived.
    assert_eq!(statistics.sacked, 0, "{statistics:?}");
    scene.serves("single octets");
}

#[test]
fn acknowledging_little_by_little_or_too_early_gains_little() {
    let mut scene = scene("acknowledging_little_by_little_or_too_early_gains_little");
    // ACK splitting (RFC 3465, 2.3): an octet each.
    let evil = scene.evil(1000, 1460);
    scene.writes(&evil, 100_000);
    scene.run(1000);
    let before = scene.statistics(evil.end).cwnd;
    for n in 1..=1460 {
        scene.says(&evil, evil.seq, evil.ack + n, 65_535, &[]);
    }
    scene.run(1000);
    let after = scene.statistics(evil.end).cwnd;
    assert!(after <= before + 1460, "{before} {after}");
    // What was not sent cannot be acknowledged.
    let challenges = scene.count("tcp_challenges_sent");
    for n in 0..1000 {
        scene.says(&evil, evil.seq, evil.ack + 1_000_000 + n * 1000, 65_535, &[]);
    }
    assert!(scene.count("tcp_challenges_sent") > challenges);
    assert_eq!(scene.statistics(evil.end).cwnd, after);
    // Whatever is sent is acknowledged before it can have come: windows grow as far as the buffer does, and no further.
    let mut ack = evil.ack + 1460;
    for _ in 0..300 {
        scene.writes(&evil, 100_000);
        let sent = scene.heard(1000).into_iter().map(|(h, len)| h.seq + len as u32);
        ack = sent.fold(ack, SeqNumber::later);
        scene.says(&evil, evil.seq, ack, 65_535, &[]);
        scene.bounded("too early");
    }
    scene.serves("too early");
}

#[test]
fn who_never_opens_a_window_does_not_keep_others_out() {
    let mut scene = scene("who_never_opens_a_window_does_not_keep_others_out");
    let mut all: Vec<_> = (1000..1300).map(|port| scene.evil(port, 1460)).collect();
    for evil in &mut all {
        // A question, and no window for the answer.
        scene.says(evil, evil.seq, evil.ack, 0, b"GET");
        evil.seq += 3;
        scene.writes(evil, 100_000);
    }
    scene.bounded("no window");
    scene.serves("no window");
    // All that can be written was: more is not taken.
    let full = all.iter().filter(|evil| scene.writes(evil, 100_000) == 0).count();
    assert!(full > 250, "{full}");
    for _ in 0..20 {
        scene.run(1_000_000);
        for evil in &all {
            scene.says(evil, evil.seq, evil.ack, 0, &[]);
        }
    }
    scene.serves("no window for long");
    // When the application has had enough of them, nothing is left.
    for evil in &all {
        let mut tcp = scene.sim.stack(scene.victim).tcp(evil.end).unwrap();
        tcp.abort();
        scene.sim.stack(scene.victim).close(evil.end);
    }
    scene.run(1_000_000);
    assert!(scene.sim.stack(scene.victim).usage().connection_octets < BEYOND);
}

#[test]
fn single_octets_far_ahead_take_no_more_memory_than_there_is() {
    let mut scene = scene("single_octets_far_ahead_take_no_more_memory_than_there_is");
    let all: Vec<_> = (1000..1200).map(|port| scene.evil(port, 1460)).collect();
    for evil in &all {
        for n in 0..200u32 {
            scene.says(evil, evil.seq + 60_000 - n * 3, evil.ack, 65_535, b"x");
        }
    }
    assert!(scene.count("tcp_drop_memory") > 1000);
    scene.serves("octets far ahead");
}

#[test]
fn octets_that_come_twice_and_differ_are_one_of_both() {
    let mut scene = scene("octets_that_come_twice_and_differ_are_one_of_both");
    let evil = scene.evil(1000, 1460);
    let mut read = Vec::new();
    let mut room = [0; 5000];
    for n in 0..200u32 {
        let (at, len) = (n * 37 % 1500, 50 + n * 13 % 300);
        let octets = vec![if n % 2 == 0 { b'a' } else { b'b' }; len as usize];
        scene.says(&evil, evil.seq + at, evil.ack, 65_535, &octets);
        if n % 20 == 19
            && let Ok(n) = scene.sim.stack(scene.victim).tcp(evil.end).unwrap().read(&mut room)
        {
            read.extend_from_slice(&room[..n]);
        }
    }
    assert!(read.len() > 1500 && read.iter().all(|octet| matches!(octet, b'a' | b'b')), "{}", read.len());
    assert_eq!(scene.statistics(evil.end).octets_received, read.len() as u64);
    scene.serves("other octets");
}

#[test]
fn a_window_that_shrinks_stops_nothing_but_its_own_connection() {
    let mut scene = scene("a_window_that_shrinks_stops_nothing_but_its_own_connection");
    let evil = scene.evil(1000, 1460);
    scene.writes(&evil, 100_000);
    let mut ack = evil.ack;
    for n in 0..200u32 {
        let sent = scene.heard(1000).into_iter().map(|(h, len)| h.seq + len as u32);
        let end = sent.fold(ack, SeqNumber::later);
        // Now all of it, now nothing, and the edge goes back and forth.
        let window = [65_535, 0, 1, 10, 0][n as usize % 5];
        scene.says(&evil, evil.seq, ack, window, &[]);
        if n % 5 == 4 {
            ack += 700.min(end.since(ack));
        }
        scene.run(300_000);
        scene.bounded("shrinking");
    }
    scene.serves("shrinking");
    assert_ne!(scene.statistics(evil.end).state, State::Closed);
}
