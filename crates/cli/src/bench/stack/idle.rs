//! A segment received beside idle connections, and what an idle connection holds.

use super::pair::{CLIENT, Cable, Pair, SERVER, Side, elsewhere};
use super::receive::SIZE;
use super::{figure, timed};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath::wire::FrameMeta;
use bypath_stack::config::Config;
use bypath_stack::event::Event;
use bypath_stack::socket::SocketId;
use bypath_stack::time::Instant;
use bypath_sys::clock::monotonic_ns;
use std::cell::RefCell;
use std::hint::black_box;
use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};

/// Segments between two looks at the clock: fewer octets than a sender may send at first (RFC 6928).
pub const STRETCH: u32 = 100;
/// Nanoseconds that pass from segment to segment.
const STEP: u64 = 100;
/// Nanoseconds until acknowledgements and buffers that wait for something have done so.
const WHILE: u64 = 1_000_000_000;
/// Stretches before the first run: the connections that were made last are in the caches.
const WARM: u32 = 20;
/// Connections of one client.
const EACH: u32 = 32_768;
/// The first port of a client.
const FIRST: u16 = 1024;
/// Connections whose memory is looked at.
pub const COUNT: u32 = 50_000;

/// The ends of the nth connection, at its client.
fn end(n: u32) -> SocketAddr {
    SocketAddr::new(elsewhere(n / EACH), FIRST + (n % EACH) as u16)
}

/// A server with two connections on which octets come in turns, and many on which none do. Of one alone the headers would be
/// remembered, and nothing would be looked up.
struct Receiver {
    pair: Pair,
    /// Of each its client's and its server's socket.
    ids: [[SocketId; 2]; 2],
    frames: Vec<Vec<u8>>,
    now: u64,
}

impl Receiver {
    fn new(idle: u32) -> Result<Receiver, String> {
        let mut pair = Pair::new(Cable::ETHERNET, &Config::default())?;
        let now = Instant::ZERO;
        let ids = [pair.open(now, None)?, pair.open(now, None)?];
        for ids in ids {
            let mut tcp = pair.sides[CLIENT].stack.tcp(ids[CLIENT]).ok_or("no socket")?;
            let settings = tcp.settings();
            tcp.set_settings(now, bypath_stack::tcp::Settings { nodelay: true, ..settings });
        }
        // Clients go when they have their connections: a server does not know.
        let mut first = None;
        for n in 0..idle {
            if n % EACH == 0 {
                let gone =
                    pair.plug(Side::client(elsewhere(n / EACH), Cable::ETHERNET)?, elsewhere(n / EACH));
                first.get_or_insert(gone);
            }
            pair.open(now, Some(end(n)))?;
        }
        if let Some(first) = first {
            pair.sides[CLIENT] = first;
        }
        let connections = pair.sides[SERVER].stack.usage().connections;
        // The listener, and those that are not idle.
        if connections != idle as usize + 3 {
            return Err(format!("{connections} sockets, not {}", idle + 3));
        }
        let mut receiver = Receiver { pair, ids, frames: Vec::new(), now: 0 };
        // Timers of handshakes come once more, and find nothing to do.
        receiver.rest()?;
        for _ in 0..WARM {
            receiver.stretch()?;
        }
        Ok(receiver)
    }

    const fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// One segment; whether its octets came as they were sent. What it is answered with is fetched.
    #[inline]
    fn receive(&mut self, n: usize, expected: &[u8]) -> bool {
        self.now += STEP;
        let now = self.now();
        let Side { stack, iface } = &mut self.pair.sides[SERVER];
        let id = self.ids[n % 2][SERVER];
        stack.handle_frame(now, *iface, black_box(&self.frames[n]), &FrameMeta::default());
        let Some(Event::Socket { id: told, ready }) = stack.poll_event() else { return false };
        if told != id || !ready.readable {
            return false;
        }
        let mut room = [0; SIZE as usize];
        let Some(mut tcp) = stack.tcp(id) else { return false };
        let read = tcp.read(&mut room);
        let mut answer = [0; 2048];
        while stack.poll_transmit(now, *iface, &mut answer).is_some() {}
        read == Ok(room.len()) && room[..] == *expected
    }

    /// Nanoseconds for a stretch of segments. They are made before, and acknowledged after.
    fn stretch(&mut self) -> Result<u64, String> {
        let salt = self.now / WHILE;
        let payload: Vec<u8> = (0..u64::from(SIZE)).map(|n| ((n * 3) ^ salt) as u8).collect();
        let mut room = vec![0; 2048];
        let now = self.now();
        self.frames.clear();
        for n in 0..STRETCH as usize {
            if self.pair.write(CLIENT, self.ids[n % 2][CLIENT], &payload)? != payload.len() {
                return Err("no room for a segment".into());
            }
            let Side { stack, iface } = &mut self.pair.sides[CLIENT];
            let (len, _) = stack.poll_transmit(now, *iface, &mut room).ok_or("no segment")?;
            self.frames.push(room[..len].to_vec());
        }
        let before = self.pair.sides[SERVER].stack.counters().tcp_received;
        let begun = monotonic_ns();
        for n in 0..STRETCH as usize {
            if !self.receive(n, &payload) {
                return Err("a segment did not come, or not as it was sent".into());
            }
        }
        let elapsed = monotonic_ns() - begun;
        let received = self.pair.sides[SERVER].stack.counters().tcp_received - before;
        if received != u64::from(STRETCH) {
            return Err(format!("{received} segments received of {STRETCH}"));
        }
        // One more octet: its acknowledgement is for all of them, those whose own were fetched and thrown away included.
        for ids in self.ids {
            self.now += STEP;
            let now = self.now();
            self.pair.pass(now, CLIENT, ids, 7)?;
        }
        self.rest()?;
        Ok(elapsed)
    }

    /// Lets a while go by: what waits for time has happened then.
    fn rest(&mut self) -> Result<(), String> {
        self.now += WHILE;
        let now = self.now();
        self.pair.carry(now, SERVER)?;
        self.pair.settle(now)
    }
}

/// Segments beside so many idle connections.
pub struct ReceiveTcp {
    idle: u32,
    subject: &'static str,
    /// Made for the first run, and kept: a million connections take a while.
    receiver: RefCell<Option<Receiver>>,
}

impl ReceiveTcp {
    pub fn new((idle, subject): (u32, &'static str)) -> ReceiveTcp {
        ReceiveTcp { idle, subject, receiver: RefCell::new(None) }
    }
}

impl Job for ReceiveTcp {
    fn title(&self) -> String {
        format!("receive-tcp {}", self.subject)
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![figure("receive-tcp", self.subject, SIZE, Some(self.idle.into()), "ns_per_op")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let mut receiver = self.receiver.borrow_mut();
        let receiver = match &mut *receiver {
            Some(receiver) => receiver,
            none => none.insert(Receiver::new(self.idle)?),
        };
        receiver.stretch()?;
        let stretches = timed(context, || Ok(receiver.stretch()? as f64 / f64::from(STRETCH)))?;
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Values(stretches.clone())));
        Ok(Outcome { figures: figures.collect(), note: None })
    }
}

/// Arguments of the process whose memory is looked at.
#[derive(clap::Args, Clone, Debug)]
pub struct Args {
    /// Connections
    #[arg(long)]
    pub connections: u32,
}

/// The process whose memory is looked at: it says by how many octets it has grown for each end of a connection.
pub fn run(args: &Args) -> ExitCode {
    match held(args.connections) {
        Ok(octets) => {
            println!("{octets}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            crate::output::message(format_args!("bench: {e}"));
            ExitCode::FAILURE
        }
    }
}

/// Octets of this process that are in memory.
fn resident() -> Result<u64, String> {
    let place = "/proc/self/statm";
    let text = std::fs::read_to_string(place).map_err(|e| format!("{place}: {e}"))?;
    let pages = text.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    Ok(pages.ok_or_else(|| format!("{place}: {text}"))? * rustix::param::page_size() as u64)
}

/// Opens connections, sends an octet each way, and lets them be idle, a few at a time; octets for each of their ends.
fn held(connections: u32) -> Result<f64, String> {
    const AT_ONCE: u32 = 100;
    let mut pair = Pair::new(Cable::ETHERNET, &Config::default())?;
    pair.plug(Side::client(elsewhere(0), Cable::ETHERNET)?, elsewhere(0));
    let mut now = 0;
    let mut more = |pair: &mut Pair, numbers: std::ops::Range<u32>| -> Result<(), String> {
        for n in numbers {
            now += STEP;
            let at = Instant::from_nanos(now);
            let from = SocketAddr::new(elsewhere(0), FIRST + n as u16);
            let ids = pair.open(at, Some(from))?;
            pair.pass(at, CLIENT, ids, 1)?;
            pair.pass(at, SERVER, ids, 2)?;
            if n % AT_ONCE == AT_ONCE - 1 {
                for _ in 0..2 {
                    now += WHILE;
                    for side in [CLIENT, SERVER] {
                        pair.carry(Instant::from_nanos(now), side)?;
                    }
                    pair.settle(Instant::from_nanos(now))?;
                }
            }
        }
        Ok(())
    };
    more(&mut pair, 0..AT_ONCE)?;
    let before = resident()?;
    more(&mut pair, AT_ONCE..AT_ONCE + connections)?;
    let grown = resident()?.saturating_sub(before);
    for (side, listeners) in [(CLIENT, 0), (SERVER, 1)] {
        let usage = pair.sides[side].stack.usage();
        let all = (AT_ONCE + connections) as usize + listeners;
        if (usage.connections, usage.half_open, usage.connection_octets) != (all, 0, 0) {
            return Err(format!("connections are not all open and idle: {usage:?}"));
        }
    }
    Ok(grown as f64 / f64::from(2 * connections))
}

/// What a connection holds.
pub struct Memory;

impl Job for Memory {
    fn title(&self) -> String {
        "memory".into()
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        vec![figure("memory", "idle", 0, Some(COUNT.into()), "bytes_per_connection")]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let mut command = Command::new(&context.exe);
        command.args(["bench", "connections", "--connections", &COUNT.to_string()]).stdin(Stdio::null());
        let out = command.output().map_err(|e| format!("cannot start {}: {e}", context.exe.display()))?;
        let octets: f64 = String::from_utf8_lossy(&out.stdout)
            .trim()
            .parse()
            .map_err(|_| format!("{} {}", out.status, String::from_utf8_lossy(&out.stderr).trim()))?;
        let figures = self.figures(context).into_iter().map(|f| (f, Sample::Value(octets)));
        Ok(Outcome { figures: figures.collect(), note: None })
    }
}
