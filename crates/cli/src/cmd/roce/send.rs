//! `bypath roce send`.

use super::report::{Measured, Progress};
use crate::args::Json;
use crate::output::{self, Failure, Outcome as Ending};
use crate::raw::{self, values};
use crate::roce::engine::Engine;
use crate::roce::road::Which;
use crate::roce::session::{self, End, LISTENER, LONGEST, Message, Offer, Op, Outcome, PIECE, SILENCE};
use bypath::roce::{Access, Beside, Config, Done, Local, Mtu, NotPosted, Receive, Remote, Request, What};
use bypath_sys::{clock, process};
use clap::ValueHint;
use serde::Serialize;
use std::io::Read;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath roce send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath roce send photo.jpg --to 10.0.0.2                     RDMA WRITE into the memory of `bypath roce recv` there\n  \
    bypath roce send photo.jpg --to 10.0.0.2 --op read           the receiver fetches it\n  \
    bypath roce send --to 10.0.0.2 --op atomic --add 5 --count 3 counts there\n  \
    bypath roce send a --to 127.0.0.1 --bind 127.0.0.2           on one host, with `bypath roce recv --bind 127.0.0.1`\n  \
    bypath roce send a --to 10.0.0.2 --iface eth0 --bind 10.0.0.77   as raw Ethernet frames, with an address of its own\n\n\
    The file is held in memory. The receiver compares SHA-256 of what arrived and says so; only then it was sent.\n\n\
    Exit status: 0 if the receiver has everything; 1 if the file, the address or the interface cannot be used, or the receiver \
    refused; 2 for wrong usage; 3 if nobody answered, what arrived is not what was sent, or Ctrl-C came before the end.")]
pub struct Args {
    /// The file; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present_any = ["add", "compare", "op"])]
    file: Option<PathBuf>,

    /// The receiver's address
    #[arg(long, value_name = "IP")]
    to: IpAddr,

    /// How it is transferred
    #[arg(long, value_enum, default_value_t = Op::Write)]
    op: Op,

    #[command(flatten)]
    which: Which,

    /// Atomic: add this
    #[arg(long, value_name = "N", conflicts_with_all = ["compare", "file"])]
    add: Option<u64>,

    /// Atomic: store --swap if the counter is this
    #[arg(long, value_name = "N", requires = "swap", conflicts_with = "file")]
    compare: Option<u64>,

    /// Atomic: what is stored
    #[arg(long, value_name = "N", requires = "compare")]
    swap: Option<u64>,

    /// Atomic: how many times
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    count: u64,

    /// Octets of payload in a packet: 256, 512, 1024, 2048 or 4096 [default: the largest that fits at both ends]
    #[arg(long, value_name = "OCTETS", value_parser = super::mtu)]
    mtu: Option<Mtu>,

    /// Longest wait for the receiver
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = values::time)]
    wait: Duration,

    #[command(flatten)]
    json: Json,
}

/// The key of the memory that the receiver's last word goes to.
const WORD: u32 = 4;
/// How often it is asked whether there is a receiver.
const ASK: u64 = 100_000_000;
/// After so long without a packet a receiver that has everything is asked whether it lives, and so often.
const ALIVE: u64 = 1_000_000_000;
/// From so many octets on it is told that they are read and hashed, which takes its time.
const LARGE: usize = 256 << 20;
/// Octets of a transfer at most: what a receiver can be told to take.
const MOST: u64 = 4095 << 20;
/// Pieces that wait at most.
const AHEAD: usize = 8;
/// The request of the empty message.
const LAST: u64 = u64::MAX;

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    op: Op,
    to: IpAddr,
    name: String,
    sha256: String,
    mtu: u32,
    /// Values that were there before each atomic operation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    before: Vec<u64>,
    /// The counter afterwards.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    #[serde(flatten)]
    measured: Measured,
}

struct Sender<'a> {
    engine: Engine,
    args: &'a Args,
    offer: Offer,
    peer: End,
    before: Vec<u64>,
    outcome: Option<Outcome>,
    /// Whether something has arrived, as the receiver says.
    confirmed: bool,
}

/// Sends.
pub fn run(args: &Args) -> Ending {
    let counts = args.add.is_some() || args.compare.is_some();
    if args.op != Op::Atomic && args.file.is_none() && !counts {
        return Err(Failure::new(2, "name the FILE that is to be sent"));
    }
    if (args.op == Op::Atomic) != args.file.is_none() || (args.op == Op::Atomic) != counts {
        let text = "--op atomic takes --add N, or --compare N --swap N, and no file; the others take a file";
        return Err(Failure::new(2, text));
    }
    let name = match args.file.as_deref().and_then(Path::file_name) {
        None => "data",
        Some(name) if name == "-" => "data",
        Some(name) => name.to_str().ok_or_else(|| {
            Failure::new(
                1,
                format_args!("{}: the name is not UTF-8; send it as standard input: `-`", name.display()),
            )
        })?,
    };
    let data = args.file.as_deref().map_or(Ok(Vec::new()), load)?;
    if data.len() >= LARGE {
        output::message(format_args!("{} are there; hashing them", output::bytes(data.len() as u64)));
    }
    let mut engine = Engine::new(args.which.open(Some(args.to))?, LISTENER)?;
    let end = End::draw(engine.mtu(args.mtu.unwrap_or(Mtu::LARGEST)));
    let offer = Offer {
        session: process::random_u64(),
        op: args.op,
        size: data.len() as u64,
        name: name.to_owned(),
        sha256: session::hash(&data),
        end,
    };
    let access = Access { read: args.op == Op::Read, ..Access::LOCAL };
    let taken = |_| Failure::new(1, "a key is taken; try again");
    engine.device.memory.register(end.key, data, end.address, access).map_err(taken)?;
    engine.device.memory.register(WORD, vec![0; LONGEST as usize], 0, Access::LOCAL).map_err(taken)?;
    let mut sender =
        Sender { engine, args, offer, peer: end, before: Vec::new(), outcome: None, confirmed: false };
    sender.find()?;
    let mut progress = Progress::new(sender.offer.size);
    let before = sender.engine.counters();
    let whole = sender.transfer(&mut progress)?;
    sender.part()?;
    let measured = Measured::new(&progress, &before, &sender.engine.counters());
    sender.report(whole, measured)
}

/// The octets of a file, or of standard input.
fn load(path: &Path) -> Result<Vec<u8>, Failure> {
    let mut octets = Vec::new();
    let len = std::fs::metadata(path).map_or(0, |found| found.len());
    let fits = |len: u64| match len {
        len if len > MOST => Err(Failure::new(
            1,
            format_args!(
                "{}: {len} octets are too many for a transfer, which carries {MOST}",
                path.display()
            ),
        )),
        _ => Ok(()),
    };
    fits(len)?;
    if len >= LARGE as u64 {
        output::message(format_args!("reading {} of {}", output::bytes(len), path.display()));
    }
    let read = if path == Path::new("-") {
        std::io::stdin().read_to_end(&mut octets).map(|_| ())
    } else {
        std::fs::read(path).map(|all| octets = all)
    };
    read.map_err(|e| Failure::new(1, format_args!("cannot read {}: {e}", path.display())))?;
    fits(octets.len() as u64)?;
    Ok(octets)
}

impl Sender<'_> {
    /// Asks until the receiver answers, and connects.
    fn find(&mut self) -> Result<(), Failure> {
        let to = self.args.to;
        let hello = Message::Hello(self.offer.clone());
        let longest = self.args.wait.as_nanos() as u64;
        let end = clock::monotonic_ns().saturating_add(longest);
        let mut asked = 0;
        loop {
            let now = clock::monotonic_ns();
            if self.engine.stop.asked() {
                return Err(Failure::new(raw::LOST, "stopped before anybody answered"));
            }
            if now >= end {
                return Err(self.nobody());
            }
            if now >= asked + ASK {
                asked = now;
                self.engine.say(to, LISTENER, &hello)?;
            }
            self.engine.turn((asked + ASK).min(end))?;
            while let Some((message, source)) = self.engine.heard() {
                match message {
                    Message::Welcome { session, end }
                        if session == self.offer.session && source.address == to =>
                    {
                        return self.connect(end);
                    }
                    Message::Refused { session, why } if session == self.offer.session => {
                        let why = output::printable(&why);
                        return Err(Failure::new(1, format_args!("{to} refused: {why}")));
                    }
                    _ => {}
                }
            }
        }
    }

    fn nobody(&mut self) -> Failure {
        let c = self.engine.counters();
        let hint = if c.wrong_icrc > 0 {
            format!(
                "; {} packets came with a wrong ICRC: does the sender use an address of several, without --bind?",
                c.wrong_icrc
            )
        } else {
            String::new()
        };
        let text = format!(
            "nobody answered at {}: start `bypath roce recv` there first, and let UDP port 4791 through{hint}{}",
            self.args.to,
            self.engine.road.trouble()
        );
        Failure::new(raw::LOST, text)
    }

    fn silent(&self) -> Failure {
        // The longest packets of a READ are the sender's, too.
        let hint = if self.confirmed || self.offer.size < u64::from(self.peer.mtu) {
            ""
        } else {
            ". It answered, and none of the data arrived: if a router on the way carries less, try --mtu 1024, or 512"
        };
        let why = self.engine.road.trouble();
        Failure::new(raw::LOST, format_args!("the receiver fell silent; is it still running?{hint}{why}"))
    }

    fn connect(&mut self, peer: End) -> Result<(), Failure> {
        let own = self.offer.end;
        let wrong = |what: &dyn std::fmt::Display| Failure::new(1, format_args!("cannot connect: {what}"));
        let window = self.engine.road.window();
        let config = own.agreed(&peer, window).ok_or_else(|| wrong(&"the receiver's path MTU is none"))?;
        let envelope = self.engine.road.way(self.args.to)?.ok_or_else(|| wrong(&"the way was forgotten"))?;
        let device = &mut self.engine.device;
        device
            .connect(own.pair(), peer.pair(), envelope, config, own.first(), peer.first())
            .map_err(|e| wrong(&e))?;
        let to = Local { key: WORD, address: 0, len: LONGEST };
        device.receive(own.pair(), Receive { id: 0, to }).map_err(|e| wrong(&e))?;
        self.peer = End { mtu: config.mtu.octets(), ..peer };
        self.engine.listen_anew();
        Ok(())
    }

    /// The n-th request of the transfer; none if that was the last one.
    fn request(&self, n: u64) -> Option<Request> {
        let (own, peer) = (self.offer.end, self.peer);
        let offset = n * u64::from(PIECE);
        let last = n + 1 >= self.offer.size.div_ceil(PIECE.into());
        let len = self.offer.size.saturating_sub(offset).min(PIECE.into()) as u32;
        let from = Local { key: own.key, address: own.address + offset, len };
        let counter = Remote { key: peer.key, address: peer.address };
        let request = match self.offer.op {
            _ if n > 0 && len == 0 && self.offer.op != Op::Atomic => return None,
            Op::Send => Request::Send { from, beside: Beside::Nothing },
            Op::Write => {
                let to = Remote { key: peer.key, address: peer.address.wrapping_add(offset) };
                Request::Write { from, to, immediate: last.then_some(0) }
            }
            Op::Read => return None,
            Op::Atomic if n >= self.args.count => return None,
            Op::Atomic => match (self.args.compare, self.args.swap) {
                (Some(compare), Some(swap)) => Request::CompareSwap { at: counter, compare, swap },
                _ => Request::FetchAdd { at: counter, add: self.args.add.unwrap_or(1) },
            },
        };
        Some(request)
    }

    /// Posts what there is room for, until everything is over and the receiver said how it was. Whether it did.
    fn transfer(&mut self, progress: &mut Progress) -> Result<bool, Failure> {
        let pair = self.offer.end.pair();
        let mut next = 0;
        // An empty message: of counting no more comes; of a READ the receiver may begin.
        let mut ended = !matches!(self.offer.op, Op::Atomic | Op::Read);
        let mut asked = 0;
        loop {
            while self.engine.device.pending(pair) < AHEAD {
                let (id, request) = match self.request(next) {
                    Some(request) => (next, request),
                    None if !ended => {
                        ended = true;
                        let from = Local { key: WORD, address: 0, len: 0 };
                        (LAST, Request::Send { from, beside: Beside::Nothing })
                    }
                    None => break,
                };
                match self.engine.device.post(pair, id, request) {
                    Ok(()) => next += u64::from(id != LAST),
                    Err(NotPosted::Full) => break,
                    // The event says why.
                    Err(NotPosted::Broken) => break,
                    Err(e) => return Err(Failure::new(1, format_args!("cannot send: {e}"))),
                }
            }
            self.engine.turn(clock::monotonic_ns() + ASK)?;
            while let Some(event) = self.engine.event() {
                match event.what {
                    What::Over { id, result: Ok(done) } => {
                        self.confirmed = true;
                        if let Done::Was(value) = done {
                            self.before.push(value);
                        }
                        if id != LAST && self.offer.op != Op::Atomic {
                            progress
                                .add(self.offer.size.saturating_sub(id * u64::from(PIECE)).min(PIECE.into()));
                        }
                    }
                    What::Over { result: Err(bypath::roce::Failure::Silence), .. } => {
                        return Err(self.silent());
                    }
                    What::Over { result: Err(failure), .. } => {
                        return Err(Failure::new(raw::LOST, format_args!("the transfer failed: {failure}")));
                    }
                    What::Received(received) => {
                        let said = Local { key: WORD, address: 0, len: received.len };
                        let octets = self.engine.device.memory.octets(said).unwrap_or(&[]);
                        self.outcome = session::read(octets);
                        if self.offer.op == Op::Read {
                            progress.add(self.offer.size);
                        }
                        return Ok(true);
                    }
                    What::Broken(nak) => {
                        let text = format!("the receiver asked for what it may not have: {nak}");
                        return Err(Failure::new(raw::LOST, text));
                    }
                }
            }
            self.ask_whether_it_lives(&mut asked)?;
            if self.engine.stop.asked() {
                let why = "its user ended it".to_owned();
                let word = Message::Refused { session: self.offer.session, why };
                // A receiver that is not reached notices the silence.
                let _ = self.engine.say(self.args.to, LISTENER, &word);
                for _ in 0..4 {
                    self.engine.turn(0)?;
                }
                return Ok(false);
            }
            if self.engine.silent_for() > SILENCE {
                return Err(self.silent());
            }
            progress.tell();
        }
    }

    /// A receiver that has everything may be busy with it for long: hashing, or writing to who reads slowly. It still
    /// answers the first message, and who answers lives.
    fn ask_whether_it_lives(&mut self, asked: &mut u64) -> Result<(), Failure> {
        let (to, now) = (self.args.to, clock::monotonic_ns());
        let waits = self.engine.device.pending(self.offer.end.pair()) == 0;
        if waits && self.engine.silent_for() > ALIVE && now >= *asked + ALIVE {
            *asked = now;
            self.engine.say(to, LISTENER, &Message::Hello(self.offer.clone()))?;
        }
        while let Some((message, source)) = self.engine.heard() {
            match message {
                _ if source.address != to => {}
                Message::Welcome { session, .. } if session == self.offer.session => {
                    self.engine.listen_anew()
                }
                Message::Refused { session, why } if session == self.offer.session => {
                    let why = output::printable(&why);
                    return Err(Failure::new(raw::LOST, format_args!("{to}: {why}")));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Lets the receiver know that its last word was heard.
    /// And once more, if that was lost and it says it again.
    fn part(&mut self) -> Result<(), Failure> {
        let until = clock::monotonic_ns() + Config::DEFAULT.timeout * 3 / 2;
        while clock::monotonic_ns() < until && !self.engine.stop.asked() {
            self.engine.turn(until)?;
        }
        Ok(())
    }

    fn report(self, whole: bool, measured: Measured) -> Ending {
        let outcome = self.outcome.as_ref().filter(|_| whole);
        let good = outcome.is_some_and(|o| o.ok);
        let report = Report {
            op: self.offer.op,
            to: self.args.to,
            sha256: self.offer.sha256,
            name: self.offer.name,
            mtu: self.peer.mtu,
            before: self.before,
            value: outcome.and_then(|o| o.value),
            measured,
        };
        match self.args.json.target() {
            Some(target) => output::json(&target, &report)?,
            None if report.op == Op::Atomic => {
                let text: String = report.before.iter().map(|value| format!("{value}\n")).collect();
                output::print(&text)?;
                output::message(format_args!(
                    "{} operations on the counter of {}; it is {} now",
                    report.before.len(),
                    report.to,
                    report.value.map_or("unknown".into(), |v| v.to_string())
                ));
            }
            None => output::message(format_args!("{} to {}: {}", report.name, report.to, report.measured)),
        }
        if good {
            return Ok(ExitCode::SUCCESS);
        }
        let why =
            outcome.and_then(|o| o.why.as_deref()).unwrap_or("stopped before the receiver had everything");
        Err(Failure::new(raw::LOST, output::printable(why)))
    }
}
