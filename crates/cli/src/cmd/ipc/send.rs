//! `bypath ipc send`.

use super::effort::Effort;
use super::{BODY, RECEIVERS, SENDERS, SILENCE, Via, WINDOW};
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self,
    header::{END_OF_MESSAGE, FIRST, Header, Kind, SIZE},
    input::Input,
    values,
    wait::{READ, Stop},
};
use bypath::l2::{self, Error, Socket};
use bypath_sys::{clock, process};
use std::collections::HashMap;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath ipc send`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    echo hello | bypath ipc send              a message per line\n  \
    bypath ipc send --whole < photo.jpg       a file; `bypath ipc recv > copy` writes it\n  \
    tail -f log | bypath ipc send             each line when it comes\n  \
    seq 1000000 | bypath ipc send --via ring --stats     through shared memory, and what a message costs\n\n\
    Receivers that are there get every message; the slowest one sets the pace. Frames travel on the loopback interface \
    only, and need CAP_NET_RAW. A ring needs no capability: one receiver, of the same user.\n\n\
    Exit status: 0 if every receiver got everything; 1 if the loopback interface, shared memory or standard input cannot be \
    used; 2 for wrong usage; 3 if there was no receiver, one died or fell silent, or Ctrl-C came before the end.")]
pub struct Args {
    /// Standard input is not lines: it is cut into messages of 1 MiB
    #[arg(long)]
    pub whole: bool,

    /// Longest wait for the first receiver
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::time)]
    pub wait: Duration,

    #[command(flatten)]
    pub via: Via,
}

/// Receivers that are followed at most.
const RECEIVERS_FOLLOWED: usize = 64;
/// Acknowledgements that are read in one go at most.
const LOOK: usize = 64;
/// How often it is asked who listens, and said that this end lives.
const HELLO: u64 = 50_000_000;
/// The same, while there is nothing to be sent.
const ALIVE: u64 = 1_000_000_000;

/// How far a receiver is.
struct Progress {
    expected: u32,
    heard: u64,
}

struct Sender {
    socket: Socket,
    stop: Stop,
    to: l2::Header,
    session: u64,
    next: u32,
    message: u32,
    octets: u64,
    receivers: HashMap<u64, Progress>,
    left_behind: u64,
    ignored: u64,
    effort: Effort,
}

/// Sends standard input.
pub fn run(args: &Args) -> Outcome {
    let socket = super::open(SENDERS)?;
    let mut sender = Sender {
        to: socket.header(RECEIVERS),
        socket,
        stop: Stop::new()?,
        session: process::random_u64(),
        next: 0,
        message: 0,
        octets: 0,
        receivers: HashMap::new(),
        left_behind: 0,
        ignored: 0,
        effort: Effort::default(),
    };
    sender.find(args.wait)?;
    let complete = if sender.stop.asked() { false } else { sender.input(args.whole)? };
    sender.finish()?;
    output::message(format_args!(
        "{} messages with {} octets sent to {} receivers; {} fell silent; {} frames of others ignored",
        sender.message,
        sender.octets,
        sender.receivers.len(),
        sender.left_behind,
        sender.ignored
    ));
    if args.via.stats {
        sender.effort.tell("l2", sender.message.into(), sender.octets);
    }
    let good = complete && sender.left_behind == 0 && !sender.receivers.is_empty();
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

impl Sender {
    fn control(&mut self, kind: Kind) -> Result<(), Failure> {
        let header = Header { message: self.message, ..Header::new(kind, self.session, self.next) };
        self.effort.calls += 1;
        raw::send(&mut self.socket, &self.to, &header.frame(&[])).map_err(raw::failed)
    }

    /// Reads the acknowledgements that are there. Whether there were any.
    fn listen(&mut self) -> Result<bool, Failure> {
        let now = clock::monotonic_ns();
        let mut any = false;
        let (session, next, receivers, ignored) =
            (self.session, self.next, &mut self.receivers, &mut self.ignored);
        let received = self.socket.receive_batch(LOOK, |frame| {
            let ack = Header::parse(frame.payload).and_then(|(h, body)| Some((h, body.try_into().ok()?)));
            match ack {
                // To another sender.
                Some((h, _)) if h.kind == Kind::Ack && h.session != session => {}
                // Nobody can have what was not sent; the end counts as one more frame.
                Some((h, id)) if h.kind == Kind::Ack && h.seq <= next.saturating_add(1) => {
                    let id = u64::from_be_bytes(id);
                    let full = receivers.len() >= RECEIVERS_FOLLOWED;
                    if full && !receivers.contains_key(&id) {
                        *ignored += 1;
                        return;
                    }
                    let progress = receivers.entry(id).or_insert(Progress { expected: 0, heard: now });
                    progress.expected = progress.expected.max(h.seq);
                    progress.heard = now;
                    any = true;
                }
                _ => *ignored += 1,
            }
        });
        // One per frame, and the one that finds none.
        self.effort.calls += received.as_ref().map_or(1, |n| *n as u64 + u64::from(*n < LOOK));
        match received {
            Ok(_) | Err(Error::WouldBlock | Error::Interrupted) => Ok(any),
            Err(e) => Err(raw::failed(e)),
        }
    }

    /// Asks who listens, until somebody does.
    fn find(&mut self, longest: Duration) -> Result<(), Failure> {
        let end = clock::monotonic_ns().saturating_add(longest.as_nanos() as u64);
        while !self.stop.asked() {
            self.control(Kind::Hello)?;
            let until = (clock::monotonic_ns() + HELLO).min(end);
            while !self.listen()? && !self.stop.asked() && clock::monotonic_ns() < until {
                self.stop.wait([(self.socket.as_fd(), READ)], Some(until));
            }
            if !self.receivers.is_empty() {
                break;
            }
            if clock::monotonic_ns() >= end {
                let text = "nobody receives; start `bypath ipc recv` first, in the same network namespace, or wait for it \
                            longer: --wait 1min";
                return Err(Failure::new(raw::LOST, text));
            }
        }
        Ok(())
    }

    /// Waits until all receivers have the frames before `seq`. Those that are silent are left behind.
    fn reached(&mut self, seq: u32, ask: Kind) -> Result<(), Failure> {
        let mut asked = clock::monotonic_ns();
        loop {
            self.listen()?;
            let now = clock::monotonic_ns();
            if self.receivers.values().all(|r| r.expected >= seq) || self.stop.asked() {
                return Ok(());
            }
            let before = self.receivers.len();
            self.receivers
                .retain(|_, r| r.expected >= seq || now.saturating_sub(r.heard) < SILENCE.as_nanos() as u64);
            let gone = before - self.receivers.len();
            if gone > 0 {
                self.left_behind += gone as u64;
                output::message(format_args!("{gone} receivers fell silent; going on without them"));
                if self.receivers.is_empty() {
                    return Err(Failure::new(raw::LOST, "no receiver is left; start `bypath ipc recv` anew"));
                }
            }
            if now.saturating_sub(asked) >= HELLO {
                // The acknowledgement was lost, or the last frames were: the answer says how far it is.
                asked = now;
                self.control(ask)?;
            }
            self.stop.wait([(self.socket.as_fd(), READ)], Some(asked + HELLO));
            self.effort.calls += 1;
        }
    }

    /// Sends one message.
    fn message(&mut self, message: &[u8]) -> Result<(), Failure> {
        self.effort.begin();
        let body = BODY.min(self.socket.mtu() - SIZE);
        let count = message.chunks(body).count();
        let mut frame = Vec::with_capacity(SIZE + body);
        for (n, part) in message.chunks(body).enumerate() {
            let first = if n == 0 { FIRST } else { 0 };
            let flags = first | if n + 1 == count { END_OF_MESSAGE } else { 0 };
            let header =
                Header { message: self.message, flags, ..Header::new(Kind::Data, self.session, self.next) };
            frame.clear();
            header.write(part, &mut frame);
            raw::send(&mut self.socket, &self.to, &frame).map_err(raw::failed)?;
            self.effort.calls += 1;
            let none_left = || Failure::new(1, "a sender has 4,294,967,295 frames; start it anew for more");
            self.next = self.next.checked_add(1).filter(|n| *n < u32::MAX).ok_or_else(none_left)?;
            self.reached(self.next.saturating_sub(WINDOW), Kind::Hello)?;
            if self.stop.asked() {
                return Ok(());
            }
        }
        self.message += 1;
        self.octets += message.len() as u64;
        Ok(())
    }

    /// Sends what standard input has, until its end or Ctrl-C. Whether it was the end.
    fn input(&mut self, whole: bool) -> Result<bool, Failure> {
        let mut input = Input::new(whole);
        let mut said = clock::monotonic_ns();
        loop {
            if self.stop.asked() {
                return Ok(false);
            }
            if clock::monotonic_ns().saturating_sub(said) >= ALIVE {
                said = clock::monotonic_ns();
                self.control(Kind::Hello)?;
            }
            let stdin = std::io::stdin();
            let what = [(stdin.as_fd(), READ), (self.socket.as_fd(), READ)];
            let ready = self.stop.wait(what, Some(said + ALIVE));
            if ready[1] {
                self.listen()?;
            }
            if ready[0] && input.read(|message| self.message(message))? {
                return Ok(!self.stop.asked());
            }
        }
    }

    /// Says that there is no more, and waits until all know.
    fn finish(&mut self) -> Result<(), Failure> {
        self.control(Kind::End)?;
        if self.stop.asked() { Ok(()) } else { self.reached(self.next.saturating_add(1), Kind::End) }
    }
}
