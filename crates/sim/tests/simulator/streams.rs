//! Streams: programs that are told of events alone, and read and write what they can. Whatever goes wrong for a while, each octet
//! arrives once and in order, or somebody is told; and in the end nothing is left.

use crate::faults::{END, Network, network, trouble};
use crate::traffic::{cases, seeds};
use bypath_sim::app::{App, Context};
use bypath_sim::dice::Dice;
use bypath_sim::link::LinkConfig;
use bypath_sim::{NodeId, Simulation};
use bypath_stack::Tcp;
use bypath_stack::event::Event;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::congestion::Algorithm;
use bypath_stack::tcp::error::{ReadError, WriteError};
use bypath_stack::tcp::{MtuProbing, Settings, State};
use bypath_stack::time::Instant;
use proptest::prelude::*;
use std::cell::RefCell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// The octet at a place of a stream.
fn octet(at: usize, salt: usize) -> u8 {
    (at * 31 + at / 253 + salt) as u8
}

/// What came of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Outcome {
    /// Octets that were read at the end that was called, and at the one that called.
    read: [usize; 2],
    /// When the one that called had read everything, nanoseconds.
    done: Option<u64>,
    /// Somebody was told that it failed.
    failed: bool,
}

type Shared = Rc<RefCell<Vec<Outcome>>>;

/// One end of a connection: writes so many octets and finishes, reads until the other side has finished, closes.
#[derive(Debug)]
struct End {
    id: SocketId,
    side: usize,
    written: usize,
    most: usize,
    read: usize,
    at_end: bool,
    finished: bool,
    closed: bool,
    /// It speaks urgently now and then.
    urges: bool,
}

/// The place of the octet that is read next: urgent ones that were left out count as read.
fn place(tcp: &mut Tcp<'_>) -> usize {
    tcp.statistics().map_or(0, |s| s.octets_received as usize - s.unread)
}

impl End {
    fn new(id: SocketId, side: usize, most: usize, urges: bool) -> End {
        End { id, side, written: 0, most, read: 0, at_end: false, finished: false, closed: false, urges }
    }

    /// Reads and writes what can be. True: it has failed.
    fn go_on(&mut self, context: &mut Context<'_>) -> bool {
        let mut room = [0; 20_000];
        let Some(mut tcp) = context.stack.tcp(self.id) else { return false };
        if matches!(tcp.state(), Some(State::SynSent)) {
            return false;
        }
        while !self.at_end {
            let read = tcp.read(&mut room);
            self.read = place(&mut tcp);
            match read {
                Ok(0) => self.at_end = true,
                Ok(n) => {
                    let from = self.read - n;
                    let right = |(k, found): (usize, &u8)| *found == octet(from + k, 1 - self.side);
                    assert!(room[..n].iter().enumerate().all(right), "wrong octets at {from}");
                }
                Err(ReadError::Empty) => break,
                Err(ReadError::Failed(_)) => return self.fail(context),
                Err(error) => panic!("{error}"),
            }
        }
        while self.written < self.most {
            let end = self.most.min(self.written + 30_000);
            let piece: Vec<u8> = (self.written..end).map(|at| octet(at, self.side)).collect();
            let urgently = self.urges && self.written % 3 == 1;
            let written = if urgently { tcp.write_urgent(&piece, false) } else { tcp.write(&piece) };
            match written {
                Ok(n) => self.written += n,
                Err(WriteError::Full) => break,
                Err(WriteError::Failed(_) | WriteError::Finished) => return self.fail(context),
                Err(error) => panic!("{error}"),
            }
        }
        // Who has nothing to say listens to the end.
        if self.written == self.most && !self.finished && (self.most > 0 || self.at_end) {
            self.finished = tcp.finish().is_ok();
        }
        if self.at_end && self.finished {
            self.closed = true;
            context.stack.close(self.id);
        }
        false
    }

    fn fail(&mut self, context: &mut Context<'_>) -> bool {
        self.closed = true;
        context.stack.close(self.id);
        true
    }
}

/// Whatever an application may want.
fn wishes(dice: &mut Dice, settings: Settings) -> Settings {
    let mut chance = || dice.chance(0.5);
    let algorithm = if chance() { Algorithm::Cubic } else { Algorithm::Reno };
    let (sack, timestamps, ecn, nodelay) = (chance(), chance(), chance(), chance());
    let window_scale = chance() || chance();
    // As large as they become, or as they are wanted.
    let mut size = |tuned| [tuned, 3000, 20_000, 300_000][dice.index(4)];
    let (send_octets, receive_octets) = (size(settings.send_octets), size(settings.receive_octets));
    let mtu_probing = [MtuProbing::Off, MtuProbing::AfterTimeouts, MtuProbing::Always][dice.index(3)];
    Settings {
        algorithm,
        sack,
        timestamps,
        ecn,
        nodelay,
        window_scale,
        send_octets,
        receive_octets,
        mtu_probing,
        ..settings
    }
}

/// Answers whoever calls port 80.
fn server(outcomes: Shared, streams: Vec<SocketAddr>, octets: usize, any: bool) -> impl App {
    let mut listener = None;
    let mut ends: Vec<(usize, End)> = Vec::new();
    move |context: &mut Context<'_>, _: Option<&Event>| {
        let id = *listener.get_or_insert_with(|| {
            let id = context.stack.open_tcp().expect("room");
            let mut tcp = context.stack.tcp(id).expect("it is there");
            if any {
                let wishes = wishes(context.dice, tcp.settings());
                tcp.set_settings(context.now, wishes);
            }
            tcp.bind("[::]:80".parse().unwrap()).expect("a port");
            tcp.listen(50).expect("nobody else");
            id
        });
        while let Ok(accepted) = context.stack.tcp(id).expect("it is there").accept() {
            // Which stream it is follows from who calls: its port says it.
            let from = context.stack.tcp(accepted).and_then(|mut tcp| tcp.remote()).expect("a caller");
            let which = streams.iter().position(|s| s.port() == from.port()).expect("a stream");
            ends.push((which, End::new(accepted, 0, octets, any)));
        }
        for (which, end) in &mut ends {
            if end.closed {
                continue;
            }
            let failed = end.go_on(context);
            let outcome = &mut outcomes.borrow_mut()[*which];
            outcome.read[0] = outcome.read[0].max(end.read);
            outcome.failed |= failed;
        }
    }
}

/// Calls from a port, at a time.
fn client(
    outcomes: Shared,
    (which, port): (usize, u16),
    to: SocketAddr,
    at: Instant,
    octets: usize,
    any: bool,
) -> impl App {
    let mut end: Option<End> = None;
    let mut begun = false;
    move |context: &mut Context<'_>, event: Option<&Event>| {
        if event.is_none() && !begun {
            if context.now < at {
                return context.wake_at(at);
            }
            begun = true;
            let id = context.stack.open_tcp().expect("room");
            let mut tcp = context.stack.tcp(id).expect("it is there");
            if any {
                let wishes = wishes(context.dice, tcp.settings());
                tcp.set_settings(context.now, wishes);
            }
            let all = if to.is_ipv4() { "0.0.0.0" } else { "[::]" };
            tcp.bind(format!("{all}:{port}").parse().unwrap()).expect("a port of its own");
            tcp.connect(context.now, to).expect("a way");
            end = Some(End::new(id, 1, octets, any));
        }
        let Some(end) = end.as_mut().filter(|end| !end.closed) else { return };
        let failed = end.go_on(context);
        let outcome = &mut outcomes.borrow_mut()[which];
        outcome.read[1] = end.read;
        outcome.failed |= failed;
        if end.at_end && end.closed && !failed {
            outcome.done = Some(context.now.as_nanos());
        }
    }
}

/// Streams from hosts to the servers among them: what came of each.
fn streams(
    sim: &mut Simulation,
    callers: &[(NodeId, SocketAddr)],
    octets: usize,
    until: u64,
    any: bool,
) -> Shared {
    let outcomes = Rc::new(RefCell::new(vec![Outcome::default(); callers.len()]));
    let ports = ports(callers.len());
    for (n, (host, to)) in callers.iter().enumerate() {
        let at = sim.now() + Duration::from_millis(sim.dice().below(until * 1000 + 1));
        sim.run_program(*host, client(Rc::clone(&outcomes), (n, ports[n].port()), *to, at, octets, any));
    }
    outcomes
}

const SERVERS: [&str; 4] = ["10.0.0.2:80", "[fd00::2]:80", "10.0.2.2:80", "[fd00:0:0:2::2]:80"];

fn ports(count: usize) -> Vec<SocketAddr> {
    (0..count).map(|n| SocketAddr::new([0, 0, 0, 0].into(), 2000 + n as u16)).collect()
}

/// Two hosts and a link between them.
fn two(name: &str, seed: u64, link: LinkConfig) -> (Simulation, [NodeId; 2]) {
    let mut sim = Simulation::new(name, seed);
    let lan = sim.link("lan", link);
    let hosts = [sim.host("a"), sim.host("b")];
    for (n, host) in hosts.into_iter().enumerate() {
        sim.attach(host, lan, &[&format!("10.0.0.{}/24", n + 1), &format!("fd00::{}/64", n + 1)]);
    }
    sim.run(Duration::from_secs(4));
    (sim, hosts)
}

/// Nothing is left of connections but who listens.
fn nothing_is_left(sim: &mut Simulation, hosts: &[NodeId]) {
    for host in hosts {
        let usage = sim.stack(*host).usage();
        assert!(usage.connections <= 1, "{usage:?}");
        assert_eq!((usage.time_wait, usage.orphans, usage.half_open), (0, 0, 0), "{usage:?}");
        assert_eq!(usage.connection_octets, 0, "{usage:?}");
    }
}

proptest! {
    #![proptest_config(cases(12))]

    #[test]
    fn octets_arrive_once_and_in_order_whatever_goes_wrong_for_a_while(seed in seeds()) {
        let Network { mut sim, links, hosts, routers } =
            network("octets_arrive_once_and_in_order_whatever_goes_wrong_for_a_while", seed);
        // Addresses are there.
        sim.run(Duration::from_secs(4));
        let outcomes = {
            let callers: Vec<_> =
                SERVERS.iter().enumerate().map(|(n, to)| (hosts[n % 2 * 2], to.parse().unwrap())).collect();
            let octets = 20_000 + sim.dice().index(150_000);
            let outcomes = streams(&mut sim, &callers, octets, END, true);
            for host in [1, 3] {
                sim.run_program(hosts[host], server(Rc::clone(&outcomes), ports(callers.len()), octets, true));
            }
            let wan = sim.link_mtu(links[1]);
            let mut network = Network { sim, links, hosts: hosts.clone(), routers: routers.clone() };
            trouble(&mut network);
            sim = network.sim;
            // The way between the routers becomes narrower, and wider again.
            for _ in 0..sim.dice().index(4) {
                let time = sim.dice().below(6000);
                sim.run(Duration::from_millis(time));
                let mtu = [1280, 1281, 1333, 1400, 1500][sim.dice().index(5)];
                routers.iter().for_each(|router| sim.set_mtu(*router, 1, mtu.min(wan)));
            }
            // The longest time-out is two minutes, TIME-WAIT one; 15 tries are made before it is given up.
            sim.run(Duration::from_secs(1500));
            (outcomes, octets)
        };
        let (outcomes, octets) = outcomes;
        for outcome in outcomes.borrow().iter() {
            assert!(
                outcome.failed || outcome.done.is_some() && outcome.read == [octets; 2],
                "{outcome:?} of {octets}"
            );
        }
        nothing_is_left(&mut sim, &hosts);
    }
}

/// What came of each stream, the counters of all hosts, and all frames with their times.
type Run = (Vec<Outcome>, String, Vec<(Instant, Vec<u8>)>);

/// A network in trouble, with streams; `raw`: hosts have a raw socket of a protocol that nobody speaks, so that no segment is taken as
/// the one that was expected without looking at all of its headers.
fn headers_compared_or_read(seed: u64, raw: bool) -> Run {
    let Network { mut sim, links, hosts, routers } = network("headers_compared_or_read", seed);
    sim.keep(1 << 20);
    if raw {
        for host in &hosts {
            sim.stack(*host).open_raw(bypath_wire::IpProtocol(253)).expect("room");
        }
    }
    sim.run(Duration::from_secs(4));
    let callers: Vec<_> =
        SERVERS.iter().enumerate().map(|(n, to)| (hosts[n % 2 * 2], to.parse().unwrap())).collect();
    let octets = 500_000 + sim.dice().index(1_000_000);
    let any = seed % 3 == 2;
    let outcomes = streams(&mut sim, &callers, octets, END, any);
    // Who answers says as much, or nothing at all.
    let answers = octets * (seed % 2) as usize;
    for host in [1, 3] {
        sim.run_program(hosts[host], server(Rc::clone(&outcomes), ports(callers.len()), answers, any));
    }
    let mut network = Network { sim, links, hosts: hosts.clone(), routers };
    trouble(&mut network);
    sim = network.sim;
    sim.run(Duration::from_secs(1500));
    let counters: Vec<_> = hosts.iter().map(|host| format!("{:?}", sim.stack(*host).counters())).collect();
    let outcomes = outcomes.borrow().clone();
    let frames = sim.record().frames().map(|sent| (sent.at, sent.frame.clone())).collect();
    (outcomes, counters.join("\n"), frames)
}

#[test]
fn headers_that_are_compared_mean_what_they_mean_when_they_are_read() {
    for seed in 0..12 {
        let (compared, read) = (headers_compared_or_read(seed, false), headers_compared_or_read(seed, true));
        assert_eq!((&compared.0, &compared.1), (&read.0, &read.1), "seed {seed}");
        let differs = compared.2.iter().zip(&read.2).find(|(one, other)| one != other);
        assert_eq!((differs, compared.2.len()), (None, read.2.len()), "seed {seed}");
    }
}

#[test]
fn a_clean_link_fails_nothing() {
    let (mut sim, hosts) = two("a_clean_link_fails_nothing", 5, LinkConfig::default());
    let callers = vec![(hosts[0], "10.0.0.2:80".parse().unwrap()); 20];
    let outcomes = streams(&mut sim, &callers, 200_000, 2, false);
    sim.run_program(hosts[1], server(Rc::clone(&outcomes), ports(20), 200_000, false));
    sim.run(Duration::from_secs(100));
    let all = |o: &Outcome| o.done.is_some() && !o.failed && o.read == [200_000; 2];
    assert!(outcomes.borrow().iter().all(all), "{outcomes:?}");
    nothing_is_left(&mut sim, &hosts);
}
