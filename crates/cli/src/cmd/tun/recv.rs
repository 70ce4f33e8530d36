//! `bypath tun recv`.

use super::carrier::{Carrier, Ends, Got, Sent};
use super::files::Place;
use super::header::{Header, Kind, SIZE};
use super::stream::{HASH, Reader, Sink};
use super::{Link, Way};
use crate::args::Json;
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self, values,
    wait::{Stop, WRITE},
};
use bypath_sys::clock;
use clap::ValueHint;
use serde::Serialize;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath tun recv`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath tun recv --out copy                    through a TUN device: packets to 10.10.0.2:9000 are ours\n  \
    bypath tun send dir --via socket --to 10.10.0.2:9000     what an ordinary socket sends there\n  \
    bypath tun recv --via socket --out copy       an ordinary socket, for `bypath tun send dir --to 10.9.0.1:9000`\n  \
    bypath tun recv > copy                        one file, to standard output\n  \
    bypath tun recv --raw --count 100 --out dir   whatever datagrams come, each a file: 1, 2, ...\n\n\
    From one TUN device to another the kernel forwards if it is told to: sysctl net.ipv4.ip_forward=1.\n\n\
    Exit status: 0 if everything arrived as it was sent; 1 if the device, the rights or the files do not fit, or what arrived \
    is not what was sent; 2 for wrong usage; 3 if the sender fell silent, --timeout passed, or Ctrl-C came before the end.")]
pub struct Args {
    /// The own address and port [default: behind the kernel's end of the device, or any of the host's, port 9000]
    #[arg(long, value_name = "IP:PORT")]
    listen: Option<SocketAddr>,

    #[command(flatten)]
    link: Link,

    /// Write files into this directory, which is made; without it one file goes to standard output
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    out: Option<PathBuf>,

    /// Files that are there already are written anew
    #[arg(long)]
    overwrite: bool,

    /// Whatever datagrams come: each is a file, named by its number; nobody is answered
    #[arg(long, requires = "out")]
    raw: bool,

    /// With --raw: end after so many datagrams
    #[arg(long, value_name = "N", requires = "raw", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End if nothing came for this time, such as 5s
    #[arg(long, value_name = "TIME", value_parser = values::period)]
    timeout: Option<Duration>,

    #[command(flatten)]
    json: Json,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    from: Option<String>,
    via: &'static str,
    files: u64,
    octets: u64,
    datagrams: u64,
    /// Datagrams that were not the next ones.
    out_of_order: u64,
    /// Datagrams of others.
    ignored: u64,
    seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    complete: bool,
}

/// A sender that says nothing for so long is taken for dead.
const SILENCE: u64 = 15_000_000_000;
/// How long it is waited for the last word of a sender that has everything.
const LINGER: u64 = 2_000_000_000;
/// What somebody else is told meanwhile.
const BUSY: &str = "the receiver is busy with another transfer; try again when it is over";
/// How often progress is told.
const TELL: u64 = 1_000_000_000;

/// How it stands with the sender.
#[derive(PartialEq, Eq)]
enum State {
    /// Nobody has begun.
    Waiting,
    Running,
    /// Everything is there; the sender may ask again.
    Done,
}

struct Receiver<'a> {
    args: &'a Args,
    carrier: Carrier,
    stop: Stop,
    reader: Reader,
    place: Place,
    state: State,
    sender: Option<(SocketAddr, u64)>,
    /// Who could not be answered last: that is told once.
    unanswered: Option<SocketAddr>,
    expected: u64,
    started: u64,
    /// When the sender said something last; before there is one, when it was begun to wait.
    heard: u64,
    datagrams: u64,
    out_of_order: u64,
    ignored: u64,
}

/// Receives.
pub fn run(args: &Args) -> Outcome {
    if args.link.mode.is_some() && args.link.via == Way::Socket {
        return Err(Failure::new(
            2,
            "--mode is how packets are handed to a device; a socket has none: leave it out",
        ));
    }
    let v6 = args.listen.is_some_and(|l| l.is_ipv6()) || args.link.net.is_some_and(|(ip, _)| ip.is_ipv6());
    let net: IpAddr = if v6 { [0xfd10, 0, 0, 0, 0, 0, 0, 1].into() } else { [10, 10, 0, 1].into() };
    let ends = Ends { local: args.listen, port: 9000, to: None, net: (net, if v6 { 64 } else { 24 }) };
    let mut carrier = Carrier::open(&args.link, &ends)?;
    if let Some(directory) = &args.out {
        std::fs::create_dir_all(directory)
            .map_err(|e| Failure::new(1, format_args!("cannot make {}: {e}", directory.display())))?;
    }
    let stop = Stop::new()?;
    output::message(format_args!("receiving at {}", carrier.describe()));
    let mut receiver = Receiver {
        args,
        carrier,
        stop,
        reader: Reader::new(),
        place: Place::new(args.out.clone(), args.overwrite),
        state: State::Waiting,
        sender: None,
        unanswered: None,
        expected: 0,
        started: clock::monotonic_ns(),
        heard: clock::monotonic_ns(),
        datagrams: 0,
        out_of_order: 0,
        ignored: 0,
    };
    if args.raw { receiver.raw() } else { receiver.transfer() }
}

impl Receiver<'_> {
    fn patience(&self) -> Option<u64> {
        self.args.timeout.map(|t| self.heard.saturating_add(t.as_nanos() as u64))
    }

    /// Each datagram is a file.
    fn raw(&mut self) -> Outcome {
        let mut buffer = vec![0; 65_536];
        let mut octets = 0;
        while self.args.count.is_none_or(|count| self.datagrams < count) {
            let until = self.patience();
            match self.carrier.receive(&mut buffer, until, &self.stop)? {
                Got::Datagram(len, from) => {
                    if self.datagrams == 0 {
                        self.started = clock::monotonic_ns();
                    }
                    self.sender = Some((from, 0));
                    self.heard = clock::monotonic_ns();
                    self.datagrams += 1;
                    octets += len as u64;
                    let name = self.datagrams.to_string();
                    let done = self.place.begin(&name).and_then(|()| self.place.octets(&buffer[..len]));
                    done.and_then(|()| self.place.end()).map_err(|e| Failure::new(1, e))?;
                }
                Got::Unreachable => {}
                Got::Nothing => break,
            }
            if self.stop.asked() {
                break;
            }
        }
        let complete = self.args.count.is_none_or(|count| self.datagrams == count);
        self.report(self.datagrams, octets, None, complete)
    }

    /// A sender cannot be answered: another one may come.
    fn not_answered(&mut self, from: SocketAddr, why: &str) {
        if self.unanswered.replace(from) != Some(from) {
            output::message(format_args!("{from} cannot be answered{why}"));
        }
        (self.sender, self.state) = (None, State::Waiting);
    }

    fn answer(&mut self, to: SocketAddr, header: Header, body: &[u8]) -> Result<Sent, Failure> {
        let mut datagram = header.encode().to_vec();
        datagram.extend_from_slice(body);
        // A sender that is gone is noticed by its silence.
        self.carrier.send(to, &datagram, datagram.len())
    }

    fn transfer(&mut self) -> Outcome {
        let mut buffer = vec![0; 65_536];
        let mut told = clock::monotonic_ns();
        loop {
            let now = clock::monotonic_ns();
            // Whatever others send: it neither keeps a dead sender alive nor Ctrl-C from being seen.
            let until = match self.state {
                State::Waiting => self.patience(),
                State::Running => self.patience().or(Some(self.heard + SILENCE)),
                State::Done => Some(self.heard + LINGER),
            };
            if self.stop.asked() || until.is_some_and(|until| now >= until) {
                break;
            }
            match self.carrier.receive(&mut buffer, until, &self.stop)? {
                Got::Datagram(len, from) => {
                    if self.datagram(&buffer[..len], from)? {
                        break;
                    }
                }
                Got::Unreachable if self.state == State::Done => break,
                Got::Unreachable => {}
                Got::Nothing => break,
            }
            if now - told >= TELL && self.state == State::Running {
                told = now;
                let (files, octets) = (self.reader.files, output::bytes(self.reader.octets));
                output::message(format_args!("{files} files, {octets} received"));
            }
        }
        let complete = self.state == State::Done;
        if !complete && !self.stop.asked() && self.state == State::Running {
            let why = self.carrier.trouble();
            output::message(format_args!("the sender fell silent; what is not whole was removed{why}"));
        }
        let hash = complete.then(|| values::hex(&self.reader.hash()));
        self.report(self.reader.files, self.reader.octets, hash, complete)
    }

    /// Takes a datagram. True: that was the last one.
    fn datagram(&mut self, datagram: &[u8], from: SocketAddr) -> Result<bool, Failure> {
        let Some((header, body)) = Header::parse(datagram) else {
            self.ignored += 1;
            return Ok(false);
        };
        match self.sender {
            None if header.kind == Kind::Hello => {
                self.sender = Some((from, header.session));
                self.state = State::Running;
                self.started = clock::monotonic_ns();
            }
            Some(sender) if sender == (from, header.session) => {}
            _ => {
                self.ignored += 1;
                if header.kind == Kind::Hello && self.state == State::Running {
                    let refusal = Header { kind: Kind::Fail, position: 0, ..header };
                    // Who cannot be told finds out.
                    let _ = self.answer(from, refusal, BUSY.as_bytes());
                }
                return Ok(false);
            }
        }
        self.datagrams += 1;
        self.heard = clock::monotonic_ns();
        let reply = |kind, position| Header { kind, answer: false, session: header.session, position };
        match header.kind {
            Kind::Hello => match self.answer(from, reply(Kind::Ack, self.expected), &[]) {
                // From port 0, say, or from where there is no way back to: the next one may be heard.
                Ok(Sent::Lost) if self.expected == 0 => {
                    let why = self.carrier.trouble();
                    self.not_answered(from, &why);
                }
                Err(e) if self.expected == 0 => {
                    self.not_answered(from, &format!(": {e}"));
                }
                answered => _ = answered?,
            },
            Kind::Data => {
                if header.position == self.expected && self.state == State::Running {
                    let taken = self.reader.take(body, &mut self.place);
                    if let Err(why) = taken.and_then(|()| self.give(from, header.session)) {
                        let failed = self.fail(from, header.session, &why);
                        return if self.stop.asked() { Ok(true) } else { failed.map(|()| true) };
                    }
                    self.expected += body.len() as u64;
                } else {
                    self.out_of_order += 1;
                }
                if header.answer {
                    self.answer(from, reply(Kind::Ack, self.expected), &[])?;
                }
            }
            Kind::End if header.position == self.expected => {
                let hash = self.reader.hash();
                if body != &hash[..HASH] || !self.reader.between_files() {
                    let why = "what arrived is not what was sent: the hashes differ";
                    return self.fail(from, header.session, why).map(|()| true);
                }
                self.state = State::Done;
                self.answer(from, reply(Kind::Done, self.expected), &hash)?;
            }
            Kind::End => _ = self.answer(from, reply(Kind::Ack, self.expected), &[])?,
            Kind::Bye => return Ok(self.state == State::Done),
            Kind::Ack | Kind::Done | Kind::Fail => self.ignored += 1,
        }
        Ok(false)
    }

    /// Waits until standard output has taken what it gets, and meanwhile lets the sender know that this end lives.
    fn give(&mut self, to: SocketAddr, session: u64) -> Result<(), String> {
        let mut at = clock::monotonic_ns() + TELL;
        while !self.place.drain()? {
            if self.stop.asked() {
                return Err("its user ended it".into());
            }
            self.stop.wait([(std::io::stdout().as_fd(), WRITE)], Some(at));
            self.heard = clock::monotonic_ns();
            if self.heard >= at {
                at = self.heard + TELL;
                let alive = Header { kind: Kind::Ack, answer: false, session, position: self.expected };
                self.answer(to, alive, &[]).map_err(|e| e.to_string())?;
            }
        }
        Ok(())
    }

    /// Tells the sender why it goes no further, and ends.
    fn fail(&mut self, to: SocketAddr, session: u64, why: &str) -> Result<(), Failure> {
        let header = Header { kind: Kind::Fail, answer: false, session, position: self.expected };
        // A stranger's names are in it.
        let why = output::printable(why);
        let room = 1200 - SIZE;
        let text = why.get(..room.min(why.len())).unwrap_or("the receiver cannot go on");
        self.answer(to, header, text.as_bytes())?;
        Err(Failure::new(1, why))
    }

    fn report(&self, files: u64, octets: u64, sha256: Option<String>, complete: bool) -> Outcome {
        let seconds = (clock::monotonic_ns() - self.started) as f64 / 1e9;
        let report = Report {
            from: self.sender.map(|(from, _)| from.to_string()),
            via: match self.args.link.via {
                Way::Tun => "tun",
                Way::Socket => "socket",
            },
            files,
            octets,
            datagrams: self.datagrams,
            out_of_order: self.out_of_order,
            ignored: self.ignored,
            seconds,
            sha256,
            complete,
        };
        match self.args.json.target() {
            Some(target) => output::json(&target, &report)?,
            None => output::message(format_args!(
                "{files} files with {octets} octets in {} datagrams, {} of them out of order, {} of others ignored, \
                 {seconds:.3} s{}{}",
                self.datagrams,
                self.out_of_order,
                self.ignored,
                report.sha256.as_ref().map_or(String::new(), |h| format!("; the hashes agree: {}", &h[..16])),
                if complete { "" } else { "; NOT complete" }
            )),
        }
        Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
    }
}
