//! How much of a narrow link streams get, and how they share it: a table that is looked at when it changes
//! (`BYPATH_UPDATE=1` writes it anew), and bounds that hold whatever it says.

use bypath_sim::app::{App, Context};
use bypath_sim::link::{Faults, LinkConfig};
use bypath_sim::{NodeId, Simulation};
use bypath_stack::event::Event;
use bypath_stack::tcp::congestion::Algorithm;
use std::cell::RefCell;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

/// Bits in a second of the link.
const RATE: u64 = 10_000_000;
/// Octets that wait before it.
const QUEUE: usize = 64 << 10;
/// Payload of a frame of 1514 octets, with timestamps: what the link can carry.
const MOST: f64 = 1448.0 / 1514.0;
const ALGORITHMS: [(&str, Algorithm); 2] = [("cubic", Algorithm::Cubic), ("reno", Algorithm::Reno)];

/// Octets that came, by port of who is called.
type Counts = Rc<RefCell<Vec<u64>>>;

/// Reads whatever comes to port 80 and those behind it.
fn reader(counts: Counts, size: Option<usize>) -> impl App {
    let (mut listeners, mut ends) = (Vec::new(), Vec::new());
    move |context: &mut Context<'_>, _: Option<&Event>| {
        let count = counts.borrow().len();
        for n in listeners.len()..count {
            let id = context.stack.open_tcp().expect("room");
            let mut tcp = context.stack.tcp(id).expect("it is there");
            let mut settings = tcp.settings();
            settings.receive_octets = size.unwrap_or(settings.receive_octets);
            tcp.set_settings(context.now, settings);
            tcp.bind(SocketAddr::new([0, 0, 0, 0].into(), 80 + n as u16)).expect("a port");
            tcp.listen(5).expect("nobody else");
            listeners.push(id);
        }
        for (n, listener) in listeners.iter().enumerate() {
            while let Ok(end) = context.stack.tcp(*listener).expect("it is there").accept() {
                ends.push((n, end));
            }
        }
        let mut room = [0; 16_384];
        for (n, end) in &ends {
            let mut tcp = context.stack.tcp(*end).expect("it is there");
            while let Ok(came @ 1..) = tcp.read(&mut room) {
                counts.borrow_mut()[*n] += came as u64;
            }
        }
    }
}

/// Writes to a port as much as it can, from a time on.
fn writer(port: u16, algorithm: Algorithm, after: Duration) -> impl App {
    let mut end = None;
    let mut begin = None;
    move |context: &mut Context<'_>, _: Option<&Event>| {
        let begin = *begin.get_or_insert(context.now + after);
        if context.now < begin {
            return context.wake_at(begin);
        }
        let id = *end.get_or_insert_with(|| {
            let id = context.stack.open_tcp().expect("room");
            let mut tcp = context.stack.tcp(id).expect("it is there");
            let mut settings = tcp.settings();
            settings.algorithm = algorithm;
            tcp.set_settings(context.now, settings);
            tcp.connect(context.now, SocketAddr::new([10, 0, 0, 2].into(), port)).expect("a way");
            id
        });
        let octets = [7; 16_384];
        let mut tcp = context.stack.tcp(id).expect("it is there");
        while tcp.write(&octets).is_ok() {}
    }
}

/// Two hosts on a narrow link.
fn scene(name: &str, rtt: u64, loss: f64) -> (Simulation, [NodeId; 2]) {
    let mut sim = Simulation::new(name, 7);
    sim.keep(100);
    let lan = sim.link(
        "lan",
        LinkConfig {
            delay: Duration::from_millis(rtt) / 2,
            bandwidth: Some(RATE),
            queue: QUEUE,
            faults: Faults { loss, ..Faults::default() },
            ..LinkConfig::default()
        },
    );
    let hosts = [sim.host("a"), sim.host("b")];
    for (n, host) in hosts.into_iter().enumerate() {
        sim.attach(host, lan, &[&format!("10.0.0.{}/24", n + 1)]);
    }
    (sim, hosts)
}

/// The part of the link that one stream gets.
fn goodput(algorithm: Algorithm, size: Option<usize>, rtt: u64, loss: f64) -> f64 {
    const TIME: u64 = 15;
    let (mut sim, hosts) = scene("goodput", rtt, loss);
    let counts = Counts::new(RefCell::new(vec![0]));
    sim.run_program(hosts[1], reader(Rc::clone(&counts), size));
    sim.run_program(hosts[0], writer(80, algorithm, Duration::ZERO));
    sim.run(Duration::from_secs(TIME));
    let octets = counts.borrow()[0];
    octets as f64 * 8.0 / (TIME * RATE) as f64
}

/// What each of two streams gets of the link in half a minute, when both have been there for a while.
fn shares(of: [Algorithm; 2], rtt: u64, later: u64) -> [f64; 2] {
    const TIME: u64 = 40;
    let (mut sim, hosts) = scene("shares", rtt, 0.0);
    let counts = Counts::new(RefCell::new(vec![0; 2]));
    sim.run_program(hosts[1], reader(Rc::clone(&counts), None));
    for (n, algorithm) in of.into_iter().enumerate() {
        let after = Duration::from_millis(n as u64 * later);
        sim.run_program(hosts[0], writer(80 + n as u16, algorithm, after));
    }
    sim.run(Duration::from_secs(20));
    let before = counts.borrow().clone();
    sim.run(Duration::from_secs(TIME));
    let counts = counts.borrow();
    [0, 1].map(|n| (counts[n] - before[n]) as f64 * 8.0 / (TIME * RATE) as f64)
}

/// Jain's index of fairness: 1 if both have as much, a half if one has all.
fn jain([a, b]: [f64; 2]) -> f64 {
    (a + b).powi(2) / (2.0 * (a * a + b * b))
}

/// The table says what it said, or is written anew.
fn reviewed(name: &str, table: &str) {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/simulator/tables").join(name);
    if std::env::var_os("BYPATH_UPDATE").is_some_and(|update| update == "1") {
        std::fs::write(&file, table).expect("a table that can be written");
    }
    let known = std::fs::read_to_string(&file).expect("a table");
    assert!(known == table, "{name} has changed (BYPATH_UPDATE=1 writes it anew):\n{known}\nis now\n{table}");
}

#[test]
fn a_stream_gets_what_path_and_buffers_let_it() {
    let mut table = String::from(
        "Goodput in kb/s of one stream of 15 s over a link of 10,000 kb/s with a queue of 64 KiB: by congestion control, the\n\
         size of the receive buffer, the round trip in ms, and the part of frames that is lost in each direction.\n\n\
         control   buffer   RTT      0 %    0.1 %      1 %      5 %\n",
    );
    for (name, algorithm) in ALGORITHMS {
        for size in [Some(16 << 10), Some(64 << 10), None] {
            for rtt in [2, 20, 100] {
                let text = size.map_or(String::from("tuned"), |size| format!("{} KiB", size >> 10));
                let _ = write!(table, "{name:<8} {text:>7} {rtt:>5}");
                let mut cleaner = f64::INFINITY;
                for loss in [0.0, 0.001, 0.01, 0.05] {
                    let got = goodput(algorithm, size, rtt, loss);
                    let _ = write!(table, " {:>8.0}", got * RATE as f64 / 1000.0);
                    let what = format!("{name}, {text}, {rtt} ms, loss {loss}: {got}");
                    assert!(got <= MOST, "more than the link carries: {what}");
                    // A window in each round trip; what waits in the queue makes that longer.
                    let window = size.map_or(f64::INFINITY, |size| {
                        (size * 8) as f64 / (rtt as f64 / 1000.0) / RATE as f64
                    });
                    assert!(got <= window * 1.02, "more than the window: {what}");
                    // Segments are not paced: a window that opens at once overruns a queue of half of what is on its way.
                    assert!(loss > 0.0 || got >= 0.7 * MOST.min(window), "too little: {what}");
                    assert!(got > 0.01, "nothing: {what}");
                    // By chance a little more may come through than with less loss.
                    assert!(got <= cleaner * 1.1, "more than with less loss: {what}");
                    cleaner = got;
                }
                table.push('\n');
            }
        }
    }
    reviewed("goodput.txt", &table);
}

#[test]
fn two_streams_share_a_narrow_link_fairly() {
    let mut table = String::from(
        "Goodput in kb/s of two streams for 40 s over a link of 10,000 kb/s with a queue of 64 KiB, 20 s after the first one has\n\
         begun: by congestion control of both, the round trip in ms, by how many ms the second one begins later, and Jain's index.\n\n\
         first    second     RTT   later    first   second    Jain\n",
    );
    for (one, other) in [(0, 0), (1, 1), (0, 1), (1, 0)] {
        for rtt in [20, 60] {
            for later in [0, 5000] {
                let of = [ALGORITHMS[one], ALGORITHMS[other]];
                let got = shares(of.map(|(_, algorithm)| algorithm), rtt, later);
                let (index, sum) = (jain(got), got[0] + got[1]);
                let kilobits = got.map(|share| share * RATE as f64 / 1000.0);
                let _ = writeln!(
                    table,
                    "{:<8} {:<8} {rtt:>5} {later:>7} {:>8.0} {:>8.0} {index:>7.3}",
                    of[0].0, of[1].0, kilobits[0], kilobits[1]
                );
                let what = format!("{} and {}, {rtt} ms, {later} ms later: {got:?}", of[0].0, of[1].0);
                // What waited for a gap to be filled when the time began counts, too.
                assert!(sum <= 1.01 * MOST && sum > 0.85 * MOST, "{what}");
                assert!(index > if one == other { 0.9 } else { 0.75 }, "{index}: {what}");
            }
        }
    }
    reviewed("fairness.txt", &table);
}
