//! `bypath tun send`.

use super::carrier::{Carrier, Ends, Got, Means, Sent};
use super::files::{self, Entry, STDIN};
use super::header::{Header, Kind, SIZE};
use super::stream::{HASH, Writer};
use super::{Link, Way};
use crate::args::Json;
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self, values,
    wait::{READ, Stop},
};
use bypath::tun::Refused;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{clock, process};
use clap::ValueHint;
use serde::Serialize;
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath tun send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath tun recv --via socket --out copy       a receiver: an ordinary socket at port 9000\n  \
    bypath tun send photos --to 10.9.0.1:9000     a directory, through a TUN device whose other end is 10.9.0.1\n  \
    bypath tun send photos --to 127.0.0.1:9000 --via socket     the same through a socket, for comparison\n  \
    bypath tun send dir --to 10.9.0.1:5000 --raw  each file in one datagram, to any program that receives UDP\n\n\
    What arrived is compared by SHA-256, file by file and as a whole; what was lost is sent again. With --raw nobody answers, \
    and what the receiver's queue has no room for is lost.\n\n\
    Exit status: 0 if everything arrived (--raw: was sent); 1 if the device, the rights or the files do not fit, or the receiver \
    cannot write; 2 for wrong usage; 3 if nobody receives, the receiver fell silent, or Ctrl-C came before the end.")]
pub struct Args {
    /// A file, a directory of files, or `-` for standard input
    #[arg(value_name = "FILE|DIR|-", value_hint = ValueHint::AnyPath)]
    what: PathBuf,

    /// To this address and port
    #[arg(long, value_name = "IP:PORT")]
    to: SocketAddr,

    /// The own address and port [default: behind the kernel's end of the device, port 7000]
    #[arg(long, value_name = "IP:PORT")]
    from: Option<SocketAddr>,

    #[command(flatten)]
    link: Link,

    /// Octets of a datagram's payload [default: what fits into one packet]
    #[arg(long, value_name = "OCTETS")]
    size: Option<usize>,

    /// Each file is the payload of one datagram, with nothing added; nobody answers
    #[arg(long)]
    raw: bool,

    /// Longest wait for the receiver
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::time)]
    wait: Duration,

    #[command(flatten)]
    json: Json,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    to: String,
    via: &'static str,
    files: u64,
    octets: u64,
    datagrams: u64,
    sent_again: u64,
    seconds: f64,
    octets_per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    sha256: Option<String>,
    complete: bool,
}

/// Datagrams of a burst at most; as many a super-packet holds.
const BURST: usize = 64;
/// Octets of a burst at most: what an ordinary socket's queue holds for sure.
const BURST_OCTETS: usize = 64 * 1024;
/// How long an answer is waited for at first, and at last.
const PATIENCE: (u64, u64) = (50_000_000, 800_000_000);
/// After so long without a word the receiver is taken for dead.
const SILENCE: u64 = 10_000_000_000;
/// How long it is waited for more of standard input before what is there is sent.
const SOON: u64 = 5_000_000;
/// How often a receiver is told that this end lives, while there is nothing to be sent.
const ALIVE: u64 = 1_000_000_000;
/// How often progress is told.
const TELL: u64 = 1_000_000_000;

struct Sender<'a> {
    args: &'a Args,
    carrier: Carrier,
    stop: Stop,
    session: u64,
    /// Octets of a datagram, header included.
    size: usize,
    datagrams: u64,
    again: u64,
    /// Whether data has arrived, as the receiver says.
    confirmed: bool,
    answer: Vec<u8>,
}

/// Standard input as far as it is there: who waits for it does not hear the receiver.
struct Present(io::Stdin);

impl Read for Present {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut input = [PollFd { fd: self.0.as_raw_fd(), events: READ, revents: 0 }];
        match ppoll(&mut input, Some(SOON), 0) {
            Ok(0) => Err(io::ErrorKind::WouldBlock.into()),
            // An error is told by reading.
            _ => self.0.read(buffer),
        }
    }
}

/// What a receiver said.
enum Said {
    Nothing,
    Ack(u64),
    Done(Vec<u8>),
}

/// Sends.
pub fn run(args: &Args) -> Outcome {
    let files = files::find(&args.what)?;
    // What cannot be is told before anything is made.
    let most = if args.to.is_ipv6() { 65_535 - 8 } else { 65_535 - 28 };
    if let Some(size) = args.size.filter(|s| *s <= SIZE || *s > most) {
        let text = format!("--size {size}: a datagram has {} to {most} octets of payload here", SIZE + 1);
        return Err(Failure::new(2, text));
    }
    if args.raw {
        let name = args.what.display();
        if args.what.as_os_str() == STDIN {
            return Err(Failure::new(
                2,
                "--raw sends files, of which each has its length; standard input has none",
            ));
        }
        if let Some(long) = files.iter().find(|f| f.len > most as u64) {
            let text = format!(
                "{}: {} octets, and a datagram carries {most} at most; without --raw files are cut and put together \
                 again by `bypath tun recv`; nothing of {name} was sent",
                long.path.display(),
                long.len
            );
            return Err(Failure::new(1, text));
        }
    }
    let v6 = args.to.is_ipv6();
    let net: IpAddr = if v6 { [0xfd09, 0, 0, 0, 0, 0, 0, 1].into() } else { [10, 9, 0, 1].into() };
    let ends = Ends { local: args.from, port: 7000, to: Some(args.to), net: (net, if v6 { 64 } else { 24 }) };
    let ends = if args.link.via == Way::Socket { Ends { port: 0, ..ends } } else { ends };
    let mut carrier = Carrier::open(&args.link, &ends)?;
    let (_, uncut) = carrier.most(v6);
    let size = args.size.unwrap_or(uncut);
    if let Means::Tun(udp) = &mut carrier.means
        && args.link.dont_fragment
        && size > uncut
    {
        let interface = udp.device().name().to_owned();
        let need = size + udp.mtu() - uncut;
        return Err(Failure::new(1, Refused::TooLong { interface, len: size, most: uncut, need }));
    }
    output::message(format_args!("sending from {} to {}", carrier.describe(), args.to));
    let stop = Stop::new()?;
    let mut sender = Sender {
        args,
        carrier,
        stop,
        session: process::random_u64(),
        size,
        datagrams: 0,
        again: 0,
        confirmed: false,
        answer: vec![0; 65_536],
    };
    if args.raw { sender.raw(&files) } else { sender.transfer(&files) }
}

impl Sender<'_> {
    /// Each file as it is.
    fn raw(&mut self, files: &[Entry]) -> Outcome {
        let started = clock::monotonic_ns();
        let (mut octets, mut sent) = (0, 0);
        for file in files {
            if self.stop.asked() {
                break;
            }
            let content = std::fs::read(&file.path)
                .map_err(|e| Failure::new(1, format_args!("cannot read {}: {e}", file.path.display())))?;
            match self.carrier.send(self.args.to, &content, content.len())? {
                Sent::All => {}
                Sent::Nobody => return Err(self.absent()),
                // Nobody asks for it again.
                Sent::Lost => {
                    let (name, why) = (file.path.display(), self.carrier.trouble());
                    return Err(Failure::new(
                        1,
                        format_args!("{name} could not be sent to {}{why}", self.args.to),
                    ));
                }
            }
            self.datagrams += 1;
            sent += 1;
            octets += content.len() as u64;
        }
        let complete = sent == files.len() as u64;
        self.report(sent, octets, started, None, complete)
    }

    fn absent(&self) -> Failure {
        let way = if self.args.link.via == Way::Tun {
            ". Through a TUN device the kernel's end of it is reached (see above), and other hosts and devices where it \
             forwards: sysctl net.ipv4.ip_forward=1"
        } else {
            ""
        };
        let text = format!(
            "{}: nobody receives there; start `bypath tun recv` first, or wait for it longer: --wait 1min{way}{}",
            self.args.to,
            self.carrier.trouble()
        );
        Failure::new(raw::LOST, text)
    }

    /// The stream of all files, in bursts, each of which is answered.
    fn transfer(&mut self, files: &[Entry]) -> Outcome {
        let started = clock::monotonic_ns();
        if !self.find()? {
            return self.report(0, 0, started, None, false);
        }
        let total: u64 = files.iter().map(|f| f.len).sum();
        let mut rest = files.iter();
        let mut writer = Writer::new(|| {
            let Some(file) = rest.next() else { return Ok(None) };
            let open: Box<dyn Read> = if file.name == STDIN {
                Box::new(Present(io::stdin()))
            } else {
                Box::new(File::open(&file.path)?)
            };
            Ok(Some((file.name.clone(), open)))
        });
        let body = self.size - SIZE;
        let most = (BURST_OCTETS / self.size).clamp(1, BURST);
        let mut burst = Vec::with_capacity(most * self.size);
        let mut position = 0u64;
        let mut told = started;
        loop {
            burst.clear();
            let begin = position;
            let mut lens = 0;
            let mut waits = false;
            while lens < most {
                let at = burst.len();
                burst.resize(at + self.size, 0);
                let filled = writer.fill(&mut burst[at + SIZE..]);
                let len = match filled {
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                        waits = true;
                        0
                    }
                    filled => filled.map_err(|e| {
                        Failure::new(1, format_args!("cannot read {}: {e}", self.args.what.display()))
                    })?,
                };
                burst.truncate(at + if len == 0 { 0 } else { SIZE + len });
                if len == 0 {
                    break;
                }
                self.head(&mut burst[at..], Kind::Data, false, position);
                position += len as u64;
                lens += 1;
                if len < body {
                    break;
                }
            }
            if lens == 0 && waits {
                if !self.await_input(position)? {
                    return self.report(0, writer.octets, started, None, false);
                }
                continue;
            }
            if lens == 0 {
                break;
            }
            if !self.burst(&mut burst, begin, position)? {
                return self.report(0, writer.octets, started, None, false);
            }
            let now = clock::monotonic_ns();
            if now - told >= TELL {
                told = now;
                let of = if total > 0 { format!(" of {}", output::bytes(total)) } else { String::new() };
                output::message(format_args!("{}{of} sent", output::bytes(writer.octets)));
            }
        }
        let hash = writer.hash();
        let octets = writer.octets;
        let Some(theirs) = self.end(position, &hash)? else {
            return self.report(0, octets, started, None, false);
        };
        if theirs.get(..HASH) != Some(&hash[..]) {
            return Err(Failure::new(1, "what arrived is not what was sent: the hashes differ"));
        }
        self.report(files.len() as u64, octets, started, Some(values::hex(&hash)), true)
    }

    /// Waits for standard input, and meanwhile lets the receiver know that this end lives. False: Ctrl-C.
    fn await_input(&mut self, position: u64) -> Result<bool, Failure> {
        let mut at = clock::monotonic_ns() + ALIVE;
        loop {
            if self.stop.wait([(io::stdin().as_fd(), READ)], Some(at))[0] {
                return Ok(true);
            }
            if self.stop.asked() {
                return Ok(false);
            }
            if clock::monotonic_ns() >= at {
                // No octets, and an answer is wanted.
                let mut empty = vec![0; SIZE];
                self.head(&mut empty, Kind::Data, true, position);
                if !self.burst(&mut empty, position, position)? {
                    return Ok(false);
                }
                at = clock::monotonic_ns() + ALIVE;
            }
        }
    }

    fn head(&self, datagram: &mut [u8], kind: Kind, answer: bool, position: u64) {
        let header = Header { kind, answer, session: self.session, position };
        datagram[..SIZE].copy_from_slice(&header.encode());
    }

    /// One datagram without octets of the stream.
    fn say(&mut self, kind: Kind, position: u64, body: &[u8]) -> Result<Sent, Failure> {
        let mut datagram = vec![0; SIZE + body.len()];
        self.head(&mut datagram, kind, true, position);
        datagram[SIZE..].copy_from_slice(body);
        self.datagrams += 1;
        self.carrier.send(self.args.to, &datagram, datagram.len())
    }

    /// What the receiver says until then. Whether it is absent, as its host says, is for the caller.
    fn hear(&mut self, until: u64) -> Result<Option<Said>, Failure> {
        loop {
            match self.carrier.receive(&mut self.answer, Some(until), &self.stop)? {
                Got::Nothing => return Ok(Some(Said::Nothing)),
                Got::Unreachable => return Ok(None),
                // By its number: where the receiver has several addresses, the answer may come from another one.
                Got::Datagram(len, _) => {
                    let parsed = Header::parse(&self.answer[..len]);
                    let Some((header, body)) = parsed.filter(|(h, _)| h.session == self.session) else {
                        // However many of them there are.
                        if clock::monotonic_ns() >= until || self.stop.asked() {
                            return Ok(Some(Said::Nothing));
                        }
                        continue;
                    };
                    match header.kind {
                        Kind::Ack => return Ok(Some(Said::Ack(header.position))),
                        Kind::Done => return Ok(Some(Said::Done(body.to_vec()))),
                        Kind::Fail => {
                            let text = output::printable(&String::from_utf8_lossy(body));
                            return Err(Failure::new(1, format_args!("{}: {text}", self.args.to)));
                        }
                        Kind::Hello | Kind::Data | Kind::End | Kind::Bye => {}
                    }
                }
            }
        }
    }

    /// Waits until somebody receives. False: Ctrl-C.
    fn find(&mut self) -> Result<bool, Failure> {
        let end = clock::monotonic_ns().saturating_add(self.args.wait.as_nanos() as u64);
        loop {
            self.say(Kind::Hello, 0, &[])?;
            let until = end.min(clock::monotonic_ns() + PATIENCE.0);
            match self.hear(until)? {
                Some(Said::Ack(_)) => return Ok(true),
                // Its host lives: it may be about to start.
                None => drop(self.stop.wait([], Some(until))),
                Some(_) => {}
            }
            if self.stop.asked() {
                return Ok(false);
            }
            if clock::monotonic_ns() >= end {
                return Err(self.absent());
            }
        }
    }

    fn silent(&self) -> Failure {
        let hint = if self.confirmed {
            ""
        } else {
            ". It answered, and none of the data arrived: if a router on the way carries less, send less at a time, such as \
             --size 1200"
        };
        let (to, why) = (self.args.to, self.carrier.trouble());
        Failure::new(raw::LOST, format_args!("{to}: the receiver fell silent; start both anew{hint}{why}"))
    }

    /// Sends datagrams until the receiver has everything before `end`. False: Ctrl-C.
    fn burst(&mut self, burst: &mut [u8], begin: u64, end: u64) -> Result<bool, Failure> {
        let body = (self.size - SIZE) as u64;
        let last = (burst.len() - 1) / self.size * self.size;
        // Of each burst the last datagram wants an answer.
        burst[last + 6] = 1;
        let mut reached = begin;
        let mut patience = PATIENCE.0;
        let mut heard = clock::monotonic_ns();
        let mut first = true;
        loop {
            let from = ((reached - begin) / body) as usize * self.size;
            let count = (burst.len() - from).div_ceil(self.size) as u64;
            self.datagrams += count;
            self.again += if first { 0 } else { count };
            first = false;
            if self.carrier.send(self.args.to, &burst[from..], self.size)? == Sent::Nobody {
                return Err(self.silent());
            }
            let until = clock::monotonic_ns() + patience;
            loop {
                match self.hear(until)? {
                    None => return Err(self.silent()),
                    Some(Said::Ack(position)) if position >= end => {
                        self.confirmed = true;
                        return Ok(true);
                    }
                    Some(Said::Ack(position)) if position > reached => {
                        self.confirmed = true;
                        (reached, heard, patience) = (position, clock::monotonic_ns(), PATIENCE.0);
                        break;
                    }
                    // An answer to something before, or to this burst, of which it then has nothing new.
                    Some(Said::Ack(_)) => heard = clock::monotonic_ns(),
                    Some(Said::Done(_)) => {}
                    Some(Said::Nothing) => {
                        patience = (patience * 2).min(PATIENCE.1);
                        break;
                    }
                }
            }
            if self.stop.asked() {
                return Ok(false);
            }
            if clock::monotonic_ns() - heard > SILENCE {
                return Err(self.silent());
            }
        }
    }

    /// Says that this was all, and hears what arrived. `None`: Ctrl-C.
    fn end(&mut self, position: u64, hash: &[u8]) -> Result<Option<Vec<u8>>, Failure> {
        let started = clock::monotonic_ns();
        loop {
            self.say(Kind::End, position, hash)?;
            match self.hear(clock::monotonic_ns() + PATIENCE.1)? {
                Some(Said::Done(theirs)) => {
                    self.say(Kind::Bye, position, &[])?;
                    return Ok(Some(theirs));
                }
                None => return Err(self.silent()),
                Some(_) => {}
            }
            if self.stop.asked() {
                return Ok(None);
            }
            if clock::monotonic_ns() - started > SILENCE {
                return Err(self.silent());
            }
        }
    }

    fn report(
        &self,
        files: u64,
        octets: u64,
        started: u64,
        sha256: Option<String>,
        complete: bool,
    ) -> Outcome {
        let seconds = (clock::monotonic_ns() - started) as f64 / 1e9;
        let report = Report {
            to: self.args.to.to_string(),
            via: match self.args.link.via {
                Way::Tun => "tun",
                Way::Socket => "socket",
            },
            files,
            octets,
            datagrams: self.datagrams,
            sent_again: self.again,
            seconds,
            octets_per_second: octets as f64 / seconds.max(1e-9),
            sha256,
            complete,
        };
        match self.args.json.target() {
            Some(target) => output::json(&target, &report)?,
            None => output::message(format_args!(
                "{files} files with {octets} octets in {} datagrams, {} of them sent again, {seconds:.3} s, {}/s{}{}",
                self.datagrams,
                self.again,
                output::bytes(report.octets_per_second as u64),
                report.sha256.as_ref().map_or(String::new(), |h| format!("; the hashes agree: {}", &h[..16])),
                if complete { "" } else { "; NOT complete" }
            )),
        }
        Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
    }
}
