//! `bypath roce recv`.

use super::report::{Measured, Progress};
use crate::args::Json;
use crate::output::{self, Failure, Outcome as Ending};
use crate::raw::{self, values, wait::WRITE};
use crate::roce::engine::Engine;
use crate::roce::road::Which;
use crate::roce::session::{self, End, LISTENER, LONGEST, Message, Offer, Op, Outcome, PIECE, SILENCE};
use bypath::roce::{Access, Beside, Config, Local, Mtu, NotPosted, Receive, Remote, Request, Source, What};
use bypath::wire::roce::Envelope;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{clock, mem};
use clap::ValueHint;
use serde::Serialize;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath roce recv`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath roce recv                                   one file, into this directory, through a UDP socket\n  \
    bypath roce recv --output - --count 1 > copy       to standard output\n  \
    bypath roce recv --count 0 --output inbox/         all that come, until Ctrl-C\n  \
    bypath roce recv --iface eth0 --bind 10.0.0.78     as raw Ethernet frames, with an address of its own\n  \
    bypath roce recv --tun tun%d --net 10.9.0.1/24     behind a TUN device, at 10.9.0.2\n\n\
    It gives one sender at a time a queue pair and memory as long as the file, and keeps the file only if its SHA-256 is the one \
    that the sender told. Anybody who reaches UDP port 4791 can send: use it in networks that you trust.\n\n\
    Exit status: 0 if everything that was begun is there; 1 if the address, the interface or the output cannot be used; 2 for \
    wrong usage; 3 if a transfer failed, nobody came in time, or Ctrl-C came inside a transfer or before the first.")]
pub struct Args {
    /// Where files go: a directory, a file (of one transfer), or `-` for standard output
    #[arg(long, value_name = "PATH", default_value = ".", value_hint = ValueHint::AnyPath)]
    output: PathBuf,

    /// Replace files that are there
    #[arg(long)]
    force: bool,

    /// Transfers until it ends; 0: until Ctrl-C
    #[arg(long, value_name = "N", default_value_t = 1)]
    count: u64,

    /// Longest wait for a sender [default: any]
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    wait: Option<Duration>,

    /// Largest file, in MiB
    #[arg(long, value_name = "MIB", default_value_t = 1024, value_parser = clap::value_parser!(u64).range(1..=4095))]
    most: u64,

    /// Have the memory of a file there before its sender is welcomed, as a registration with an RDMA device has. Who offers a
    /// file makes this host find so much memory, whether he sends it or not [default: 32 MiB ahead of what has arrived]
    #[arg(long)]
    prepare: bool,

    #[command(flatten)]
    which: Which,

    /// Octets of payload in a packet: 256, 512, 1024, 2048 or 4096 [default: the largest that fits at both ends]
    #[arg(long, value_name = "OCTETS", value_parser = super::mtu)]
    mtu: Option<Mtu>,

    #[command(flatten)]
    json: Json,
}

/// The key of this end's last word.
const WORD: u32 = 4;
/// The request of the last word.
const LAST: u64 = u64::MAX;
/// Octets that are hashed or written before the network is looked at.
const CHUNK: usize = 8 << 20;
/// Octets that a pipe which has room takes in any case: PIPE_BUF, see pipe(7).
const ROOM: usize = 4096;
/// How long nothing is looked at but one thing, in ns.
const PAUSE: u64 = 100_000_000;
/// Octets of memory that are prepared before the network is looked at: up to 5 ms where a virtual machine's host has to find
/// them first.
const SLICE: usize = 2 << 20;
/// Octets of memory that are prepared beyond those that have arrived, at most: who offers a large file and sends nothing of it
/// takes no more.
const AHEAD: usize = 32 << 20;
/// How long a sender waits for all of it at most (`--prepare`), in ns.
const PREPARED: u64 = 1_000_000_000;
/// Buffers for messages at a time.
const BUFFERS: u64 = 4;

/// Why a name is not taken.
const NO_NAME: &str = "its name is not taken: it is hidden (.name), empty, longer than 200 octets, or has control characters; \
                       --output FILE keeps it under another one";

/// What is printed as JSON, one for each transfer.
#[derive(Serialize)]
struct Report {
    op: Op,
    from: IpAddr,
    name: String,
    ok: bool,
    sha256: String,
    mtu: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<String>,
    #[serde(flatten)]
    measured: Measured,
}

struct Receiver<'a> {
    engine: Engine,
    args: &'a Args,
    /// The counter that senders count in.
    counter: u64,
    /// The last offer and what was answered, if it is asked again; nothing yet while memory is prepared.
    answered: Option<(u64, Option<Message>)>,
    reports: Vec<Report>,
}

/// A transfer that has begun.
struct Transfer {
    offer: Offer,
    from: IpAddr,
    own: End,
    config: Config,
    /// Where it goes; none: standard output, or nowhere.
    path: Option<PathBuf>,
    /// SEND: what has arrived, and how many buffers were given.
    arrived: Vec<u8>,
    posted: u64,
    /// Octets of its memory that the kernel has backed.
    prepared: usize,
    /// READ: whether the sender is connected, what was asked for, and what is there.
    begun: bool,
    asked: u64,
    got: u64,
}

impl Transfer {
    /// Octets of the file.
    const fn len(&self) -> usize {
        self.offer.size as usize
    }
}

/// Receives.
pub fn run(args: &Args) -> Ending {
    // What cannot be written is told before anybody sends it.
    let directory = match args.output.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    if args.output != Path::new("-") && !args.output.is_dir() && !directory.is_dir() {
        let (output, shown) = (args.output.display(), directory.display());
        return Err(Failure::new(
            1,
            format_args!("--output {output}: there is no directory {shown}; make it first"),
        ));
    }
    let road = args.which.open(None)?;
    output::message(format_args!("receiving by {}", road.name()));
    let engine = Engine::new(road, LISTENER)?;
    let mut receiver = Receiver { engine, args, counter: 0, answered: None, reports: Vec::new() };
    let whole = receiver.all();
    if let Some(target) = args.json.target().filter(|_| whole.is_ok() || !receiver.reports.is_empty()) {
        output::json(&target, &receiver.reports)?;
    }
    let good = whole? && receiver.reports.iter().all(|r| r.ok);
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

impl Receiver<'_> {
    /// One transfer after the other. Whether as many came as were waited for.
    fn all(&mut self) -> Result<bool, Failure> {
        let wait = self.args.wait.map(|w| w.as_nanos() as u64);
        let mut begun = clock::monotonic_ns();
        let mut count = 0;
        while self.args.count == 0 || count < self.args.count {
            let now = clock::monotonic_ns();
            let end = wait.map_or(u64::MAX, |wait| begun.saturating_add(wait));
            if self.engine.stop.asked() {
                return Ok(count > 0 && self.args.count == 0);
            }
            if now >= end {
                return Err(Failure::new(raw::LOST, "nobody sent anything in time"));
            }
            self.engine.turn(end)?;
            while self.engine.event().is_some() {}
            while let Some((message, source)) = self.engine.heard() {
                let Message::Hello(offer) = message else { continue };
                if let Some(transfer) = self.consider(offer, source) {
                    self.serve(transfer)?;
                    count += 1;
                    begun = clock::monotonic_ns();
                    break;
                }
            }
        }
        Ok(true)
    }

    /// Answers an offer; a transfer if it is a new one that can be taken.
    fn consider(&mut self, offer: Offer, source: Source) -> Option<Transfer> {
        if let Some((session, answer)) = &self.answered
            && *session == offer.session
        {
            if let Some(answer) = answer.clone() {
                self.answer(&source, &answer);
            }
            return None;
        }
        let session = offer.session;
        let way = self.engine.road.way(source.address).map_err(|e| e.to_string());
        let prepared = match way {
            // It is being asked for, and the offer comes again.
            Ok(None) => return None,
            Ok(Some(envelope)) => {
                self.answered = Some((session, None));
                self.prepare(offer, envelope, source.address)
            }
            Err(why) => Err(why),
        };
        let (answer, transfer) = match prepared {
            Ok(transfer) => (Message::Welcome { session, end: transfer.own }, Some(transfer)),
            Err(why) => {
                output::message(format_args!("refused {}: {why}", source.address));
                (Message::Refused { session, why: session::short(&why) }, None)
            }
        };
        self.answer(&source, &answer);
        self.answered = Some((session, Some(answer)));
        transfer
    }

    /// Says something to a stranger. Who cannot be answered is nobody's trouble but his own.
    fn answer(&mut self, to: &Source, answer: &Message) {
        if let Err(e) = self.engine.say(to.address, to.pair, answer) {
            output::message(format_args!("{} cannot be answered: {e}", to.address));
        }
    }

    /// Memory, a place for the file, a queue pair. Why not, otherwise.
    fn prepare(&mut self, offer: Offer, envelope: Envelope, from: IpAddr) -> Result<Transfer, String> {
        let most = self.args.most << 20;
        if offer.size > most {
            return Err(format!("{} octets are too many, {most} are the most here (--most)", offer.size));
        }
        let path = if offer.op == Op::Atomic { None } else { self.place(&offer.name)? };
        let own = End::draw(self.engine.mtu(self.args.mtu.unwrap_or(Mtu::LARGEST)));
        let config = own.agreed(&offer.end, self.engine.road.window()).ok_or("its path MTU is none")?;
        let device = &mut self.engine.device;
        let (len, access) = match offer.op {
            Op::Send => (BUFFERS * u64::from(PIECE), Access::LOCAL),
            Op::Write => (offer.size, Access { write: true, ..Access::LOCAL }),
            Op::Read => (offer.size, Access::LOCAL),
            Op::Atomic => (8, Access { atomic: true, ..Access::LOCAL }),
        };
        // That there is room is found out before: making it ends the program otherwise.
        let room = Vec::<u8>::new().try_reserve_exact(len as usize);
        room.map_err(|_| format!("there is no memory for {len} octets"))?;
        let mut region = vec![0; len as usize];
        if offer.op == Op::Atomic {
            region.copy_from_slice(&self.counter.to_ne_bytes());
        }
        let gone = |_| "a key is taken; try again".to_owned();
        device.memory.register(own.key, region, own.address, access).map_err(gone)?;
        device.memory.register(WORD, vec![0; LONGEST as usize], 0, Access::LOCAL).map_err(gone)?;
        let other = &offer.end;
        let made = device.connect(own.pair(), other.pair(), envelope, config, own.first(), other.first());
        let mut transfer = Transfer {
            from,
            own,
            config,
            path,
            arrived: Vec::new(),
            posted: 0,
            prepared: 0,
            begun: false,
            asked: 0,
            got: 0,
            offer,
        };
        if let Err(e) = made {
            self.close(&transfer);
            return Err(e.to_string());
        }
        self.buffers(&mut transfer);
        let patience = clock::monotonic_ns() + PREPARED;
        while self.args.prepare && clock::monotonic_ns() < patience && self.back(&mut transfer, u64::MAX) {
            let turned = self.turn(0);
            let stopped = self.engine.stop.asked().then(|| "its user ended the receiver".to_owned());
            if let Some(why) = turned.err().or(stopped) {
                self.close(&transfer);
                return Err(why);
            }
        }
        Ok(transfer)
    }

    /// Where a file of this name goes.
    fn place(&self, name: &str) -> Result<Option<PathBuf>, String> {
        let output = &self.args.output;
        if output == Path::new("-") {
            return Ok(None);
        }
        let path = if output.is_dir() {
            output.join(session::file_name(name).ok_or(NO_NAME)?)
        } else {
            output.clone()
        };
        if path.exists() && !is_special(&path) && !self.args.force {
            let shown = path.display();
            return Err(format!("{shown} is there already; `bypath roce recv --force` replaces files"));
        }
        Ok(Some(path))
    }

    /// Gives buffers for the messages that are to come.
    fn buffers(&mut self, transfer: &mut Transfer) {
        let (own, size) = (transfer.own, transfer.offer.size);
        let (most, len) = match transfer.offer.op {
            Op::Send => (size.div_ceil(PIECE.into()).max(1), PIECE),
            // For immediate data, or the empty message.
            Op::Write | Op::Atomic | Op::Read => (1, 0),
        };
        let drained = transfer.arrived.len() as u64 / u64::from(PIECE);
        while transfer.posted < most.min(drained + BUFFERS) {
            let slot = transfer.posted % BUFFERS;
            let address = own.address + if len > 0 { slot * u64::from(PIECE) } else { 0 };
            let to = Local { key: own.key, address, len };
            if self.engine.device.receive(own.pair(), Receive { id: slot, to }).is_err() {
                break;
            }
            transfer.posted += 1;
        }
    }

    /// Asks for the next pieces of a READ: no more at a time than a queue on the way holds.
    fn ask(&mut self, transfer: &mut Transfer) -> Result<(), Failure> {
        let (own, other, size) = (transfer.own, transfer.offer.end, transfer.offer.size);
        let piece = u64::from(transfer.config.window / 2 * transfer.config.mtu.octets());
        while transfer.begun && transfer.asked < size && self.engine.device.pending(own.pair()) < 2 {
            let len = (size - transfer.asked).min(piece) as u32;
            let from = Remote { key: other.key, address: other.address.wrapping_add(transfer.asked) };
            let to = Local { key: own.key, address: own.address + transfer.asked, len };
            match self.engine.device.post(own.pair(), len.into(), Request::Read { from, to }) {
                Ok(()) => transfer.asked += u64::from(len),
                Err(NotPosted::Full | NotPosted::Broken) => break,
                Err(e) => return Err(Failure::new(1, format_args!("cannot read: {e}"))),
            }
        }
        Ok(())
    }

    /// Does a transfer. How it was is in the reports.
    fn serve(&mut self, mut transfer: Transfer) -> Result<(), Failure> {
        let before = self.engine.counters();
        let mut progress = Progress::new(transfer.offer.size);
        self.engine.listen_anew();
        let arrived = self.arrive(&mut transfer, &mut progress);
        let measured = Measured::new(&progress, &before, &self.engine.counters());
        let outcome = match arrived {
            Ok(()) => self.check(&transfer),
            Err(why) => {
                Outcome { ok: false, sha256: String::new(), value: None, why: Some(session::short(&why)) }
            }
        };
        // The last word, and its acknowledgement.
        self.last_word(&transfer, &outcome)?;
        self.close(&transfer);
        // Who asks again, whether it is alive, has not heard that.
        let session = transfer.offer.session;
        let why = "the transfer is over here; look at what the receiver printed".to_owned();
        self.answered = Some((session, Some(Message::Refused { session, why })));
        let report = Report {
            op: transfer.offer.op,
            from: transfer.from,
            name: output::printable(&transfer.offer.name),
            ok: outcome.ok,
            sha256: outcome.sha256,
            mtu: transfer.config.mtu.octets(),
            value: outcome.value,
            why: outcome.why,
            measured,
        };
        match (&report.why, report.value) {
            (Some(why), _) => output::message(format_args!("{} from {}: {why}", report.name, report.from)),
            (None, Some(value)) => {
                output::message(format_args!("{} counted; the counter is {value}", report.from));
            }
            (None, None) => output::message(format_args!(
                "{} from {}, SHA-256 {}: {}",
                report.name, report.from, report.sha256, report.measured
            )),
        }
        self.reports.push(report);
        Ok(())
    }

    /// Has the kernel back the next slice of a file's memory, if what has arrived comes near: pages that it has to find while
    /// packets wait slow the sender down. Whether there is a slice to be backed at once.
    fn back(&mut self, transfer: &mut Transfer, arrived: u64) -> bool {
        if !matches!(transfer.offer.op, Op::Write | Op::Read) {
            return false;
        }
        let end = transfer.len().min((arrived as usize).saturating_add(AHEAD));
        if transfer.prepared >= end {
            return false;
        }
        let whole =
            Local { key: transfer.own.key, address: transfer.own.address, len: transfer.len() as u32 };
        let Ok(octets) = self.engine.device.memory.octets_mut(whole) else { return false };
        transfer.prepared = mem::prepare(octets, transfer.prepared, SLICE);
        transfer.prepared < end
    }

    /// Until everything is there. Why not, otherwise.
    fn arrive(&mut self, transfer: &mut Transfer, progress: &mut Progress) -> Result<(), String> {
        let before = self.engine.device.counters().taken_octets;
        let mut there = 0;
        loop {
            let arrived = match transfer.offer.op {
                Op::Read => transfer.got,
                _ => self.engine.device.counters().taken_octets - before,
            };
            let more = self.back(transfer, arrived);
            if transfer.offer.op == Op::Write && arrived > there {
                there = arrived;
                progress.reach(arrived.min(transfer.offer.size));
            }
            if transfer.offer.op == Op::Read {
                if transfer.begun && transfer.got >= transfer.offer.size {
                    return Ok(());
                }
                self.ask(transfer).map_err(|e| e.to_string())?;
            }
            self.turn(if more { 0 } else { clock::monotonic_ns() + PAUSE })?;
            while let Some(event) = self.engine.event() {
                match event.what {
                    _ if event.pair != transfer.own.pair() => {}
                    What::Over { id, result: Ok(_) } => {
                        transfer.got += id;
                        progress.reach(transfer.got);
                    }
                    What::Over { result: Err(failure), .. } => return Err(failure.to_string()),
                    What::Broken(nak) => {
                        return Err(format!("the sender asked for what it may not have: {nak}"));
                    }
                    What::Received(received) => {
                        if transfer.offer.op == Op::Read {
                            transfer.begun = true;
                            continue;
                        }
                        if transfer.offer.op == Op::Send {
                            self.drain(transfer, received.id, received.len)?;
                            progress.reach(transfer.arrived.len() as u64);
                            if (transfer.arrived.len() as u64) < transfer.offer.size {
                                continue;
                            }
                        } else {
                            progress.reach(transfer.offer.size);
                        }
                        return Ok(());
                    }
                }
            }
            if self.engine.stop.asked() {
                return Err("stopped here before everything had come".into());
            }
            if self.engine.silent_for() > SILENCE {
                let why = self.engine.road.trouble();
                return Err(format!("the sender fell silent before everything had come{why}"));
            }
            progress.tell();
        }
    }

    /// Takes a message out of its buffer, which is given again.
    fn drain(&mut self, transfer: &mut Transfer, slot: u64, len: u32) -> Result<(), String> {
        let own = transfer.own;
        let from = Local { key: own.key, address: own.address + slot * u64::from(PIECE), len };
        let octets = self.engine.device.memory.octets(from).map_err(|_| "a buffer is gone".to_owned())?;
        if transfer.arrived.len() as u64 + u64::from(len) > transfer.offer.size {
            return Err("more came than was told".into());
        }
        transfer.arrived.extend_from_slice(octets);
        self.buffers(transfer);
        Ok(())
    }

    /// Moves packets, waits until then for some, and answers those who knock meanwhile.
    fn turn(&mut self, until: u64) -> Result<(), String> {
        self.engine.turn(until).map_err(|e| e.to_string())?;
        while let Some((message, source)) = self.engine.heard() {
            let offer = match (message, &self.answered) {
                (Message::Hello(offer), _) => offer,
                // Who knows the number is the one who offered it.
                (Message::Refused { session, why }, Some((served, _))) if session == *served => {
                    return Err(format!("the sender gave up: {}", output::printable(&why)));
                }
                _ => continue,
            };
            let answer = match &self.answered {
                Some((session, answer)) if *session == offer.session => answer.clone(),
                _ => {
                    let why = "another transfer is going on; try again in a while".into();
                    Some(Message::Refused { session: offer.session, why })
                }
            };
            if let Some(answer) = answer {
                self.answer(&source, &answer);
            }
        }
        Ok(())
    }

    /// Compares the hash, and keeps the file.
    fn check(&mut self, transfer: &Transfer) -> Outcome {
        let offer = &transfer.offer;
        if offer.op == Op::Atomic {
            let counter = Local { key: transfer.own.key, address: transfer.own.address, len: 8 };
            let octets = self.engine.device.memory.octets(counter).unwrap_or(&[]);
            let value = octets.try_into().map_or(0, u64::from_ne_bytes);
            self.counter = value;
            return Outcome { ok: true, sha256: String::new(), value: Some(value), why: None };
        }
        let mut sum = Sha256::new();
        let mut at = 0;
        while at < transfer.len() {
            let octets = self.piece(transfer, at, CHUNK);
            if octets.is_empty() {
                break;
            }
            sum.update(octets);
            at += octets.len();
            let _ = self.turn(0);
        }
        let sha256 = values::hex(&sum.finalize());
        let kept = if sha256 != offer.sha256 {
            Err("what arrived is not what was sent: SHA-256 differs".to_owned())
        } else {
            self.keep(transfer)
        };
        Outcome { ok: kept.is_ok(), sha256, value: None, why: kept.err().as_deref().map(session::short) }
    }

    /// What has arrived from `at` on, `most` octets of it.
    fn piece<'a>(&'a self, transfer: &'a Transfer, at: usize, most: usize) -> &'a [u8] {
        if transfer.offer.op == Op::Send {
            let rest = transfer.arrived.get(at..).unwrap_or(&[]);
            return &rest[..rest.len().min(most)];
        }
        let own = transfer.own;
        let len = transfer.len().saturating_sub(at).min(most) as u32;
        let part = Local { key: own.key, address: own.address + at as u64, len };
        self.engine.device.memory.octets(part).unwrap_or(&[])
    }

    /// Writes a file beside its place first, so that there is a whole one or none; standard output without a place.
    fn keep(&mut self, transfer: &Transfer) -> Result<(), String> {
        let Some(path) = transfer.path.as_deref() else {
            let out = std::io::stdout();
            let poured = self.pour(transfer, out.as_fd(), true);
            return poured.map_err(|e| format!("the receiver cannot write to standard output: {e}"));
        };
        let failed = |e: std::io::Error| format!("the receiver cannot write {}: {e}", path.display());
        if is_special(path) {
            let file = File::options().write(true).open(path).map_err(failed)?;
            return self.pour(transfer, file.as_fd(), true).map_err(failed);
        }
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        let poured = File::create(&part).and_then(|file| self.pour(transfer, file.as_fd(), false));
        poured.and_then(|()| std::fs::rename(&part, path)).map_err(|e| {
            let _ = std::fs::remove_file(&part);
            failed(e)
        })
    }

    /// Writes what has arrived, and lets the sender know meanwhile that this end lives. What may not be read for a long time
    /// gets no more at a time than it has room for.
    fn pour(&mut self, transfer: &Transfer, to: BorrowedFd<'_>, waits: bool) -> std::io::Result<()> {
        let (mut at, mut turned) = (0, 0);
        while at < transfer.len() {
            let mut room = [PollFd { fd: to.as_raw_fd(), events: WRITE, revents: 0 }];
            if waits && matches!(ppoll(&mut room, Some(PAUSE), 0), Ok(0)) {
                let _ = self.turn(0);
                if self.engine.stop.asked() {
                    return Err(std::io::Error::other("its user ended it"));
                }
                continue;
            }
            let octets = self.piece(transfer, at, if waits { ROOM } else { CHUNK });
            if octets.is_empty() {
                return Err(std::io::Error::other("its memory is gone"));
            }
            match rustix::io::write(to, octets) {
                Ok(len) => at += len,
                Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
                Err(e) => return Err(e.into()),
            }
            if at - turned >= CHUNK {
                turned = at;
                let _ = self.turn(0);
            }
        }
        Ok(())
    }

    /// Says how it was, and waits until that was heard, or cannot be.
    fn last_word(&mut self, transfer: &Transfer, outcome: &Outcome) -> Result<(), Failure> {
        let Some(octets) = session::written(outcome) else { return Ok(()) };
        let from = Local { key: WORD, address: 0, len: octets.len() as u32 };
        let pair = transfer.own.pair();
        if let Ok(room) = self.engine.device.memory.octets_mut(from) {
            room.copy_from_slice(&octets);
        }
        let word = Request::Send { from, beside: Beside::Nothing };
        if self.engine.device.post(pair, LAST, word).is_err() {
            return Ok(());
        }
        self.engine.listen_anew();
        // Who ended this one does not like to wait.
        let patience = |stopped: bool| if stopped { SILENCE / 10 } else { SILENCE };
        while self.engine.device.pending(pair) > 0
            && self.engine.silent_for() < patience(self.engine.stop.asked())
        {
            // Who knocks now is not too early: he is answered when this is over.
            self.engine.turn(clock::monotonic_ns() + 100_000_000)?;
            while self.engine.event().is_some() {}
        }
        Ok(())
    }

    /// The queue pair and its memory go away.
    fn close(&mut self, transfer: &Transfer) {
        self.engine.device.remove(transfer.own.pair());
        self.engine.device.memory.deregister(transfer.own.key);
        self.engine.device.memory.deregister(WORD);
    }
}

/// A device or a pipe: it is written to, and nothing takes its place.
fn is_special(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|found| !found.is_file())
}
