//! `bypath ipc send`.

use super::effort::Effort;
use super::{BODY, RECEIVERS, SENDERS, SILENCE, Via, WINDOW};
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self,
    header::{END_OF_MESSAGE, FIRST, Header, Kind, LEAVES, SIZE},
    input::Input,
    values,
    wait::{READ, Stop},
};
use bypath::l2::{self, Error, Socket};
use bypath_sys::{clock, process};
use std::collections::{HashMap, VecDeque};
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
    Receivers that answer before it begins, which is 200 ms after the first answer, get every message; the slowest one sets \
    the pace. One that answers later gets what is sent from then on, and does not count. One that never answers, as it is \
    stopped, is not known to be there. Frames travel on the loopback interface only, and need CAP_NET_RAW. A ring needs no \
    capability: one receiver, of the same user.\n\n\
    Exit status: 0 if every receiver that counts got everything; 1 if the loopback interface, shared memory or standard input cannot be \
    used; 2 for wrong usage; 3 if there was no receiver, one died, fell silent or left before it had everything, or Ctrl-C came before the end.")]
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
/// How long after the first answer others may answer before the first message is sent.
const GATHER: u64 = 200_000_000;
/// The same as [`HELLO`], while there is nothing to be sent.
const ALIVE: u64 = 1_000_000_000;

/// How far a receiver is.
struct Progress {
    expected: u32,
    heard: u64,
    /// It answered when messages were being sent already, and may have missed some.
    late: bool,
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
    /// Whether messages are being sent.
    begun: bool,
    latest: Latest,
    silent: Vec<Gone>,
    left: Vec<Gone>,
    ignored: u64,
    effort: Effort,
}

/// A receiver that is not there any more: how many messages it acknowledged, and whether it had answered late.
struct Gone {
    messages: u32,
    late: bool,
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
        begun: false,
        latest: Latest::default(),
        silent: Vec::new(),
        left: Vec::new(),
        ignored: 0,
        effort: Effort::default(),
    };
    sender.find(args.wait)?;
    let outcome = sender.all(args.whole);
    // A receiver that left when it had everything got as much as one that stayed.
    let (had_all, early): (Vec<_>, Vec<_>) = sender.left.iter().partition(|r| r.messages >= sender.message);
    let got = sender.receivers.len() + had_all.len();
    let late =
        sender.receivers.values().filter(|r| r.late).count() + had_all.iter().filter(|r| r.late).count();
    let gone = early.iter().copied().chain(&sender.silent);
    let missed: u64 = gone.map(|r| u64::from(sender.message.saturating_sub(r.messages))).sum();
    output::message(format_args!(
        "{} messages with {} octets sent to {got} receivers, {late} of which answered late; {} fell silent, {} left before the \
         end, {missed} messages not acknowledged by these; {} frames of others ignored",
        sender.message,
        sender.octets,
        sender.silent.len(),
        early.len(),
        sender.ignored
    ));
    // One that answered late does not count.
    let good = sender.silent.is_empty() && early.iter().all(|r| r.late) && got > 0;
    if args.via.stats {
        sender.effort.tell("l2", sender.message.into(), sender.octets);
    }
    let complete = outcome?;
    Ok(if complete && good { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

/// Of which messages the latest frames are: as many as a receiver may be behind.
#[derive(Default)]
struct Latest {
    frames: VecDeque<u32>,
    /// Messages that are whole with the last of them.
    whole: u32,
}

impl Latest {
    /// A frame was sent that is of this message, and perhaps its last one.
    fn push(&mut self, message: u32, last: bool) {
        // With the one that it is waited for before another goes.
        if self.frames.len() > WINDOW as usize {
            self.frames.pop_front();
        }
        self.frames.push_back(message);
        self.whole = message + u32::from(last);
    }

    /// How many messages somebody has who has the frames before `expected`, where `next` is the next frame.
    fn had(&self, expected: u32, next: u32) -> u32 {
        let first = next - self.frames.len() as u32;
        match expected.checked_sub(first) {
            // Of the message that its next frame is of, something is missing.
            Some(at) => self.frames.get(at as usize).copied().unwrap_or(self.whole),
            None => self.frames.front().copied().unwrap_or(0),
        }
    }
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
        let (session, next, late) = (self.session, self.next, self.begun);
        let latest = &self.latest;
        let (receivers, left, ignored) = (&mut self.receivers, &mut self.left, &mut self.ignored);
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
                    let progress = receivers.entry(id).or_insert(Progress { expected: 0, heard: now, late });
                    progress.expected = progress.expected.max(h.seq);
                    progress.heard = now;
                    any = true;
                    if h.flags & LEAVES != 0 {
                        left.push(Gone {
                            messages: latest.had(progress.expected, next),
                            late: progress.late,
                        });
                        receivers.remove(&id);
                    }
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

    /// Asks who listens, until somebody answers, and a moment longer for the others.
    fn find(&mut self, longest: Duration) -> Result<(), Failure> {
        let mut end = clock::monotonic_ns().saturating_add(longest.as_nanos() as u64);
        let mut found = false;
        while !self.stop.asked() {
            self.control(Kind::Hello)?;
            let mut until = (clock::monotonic_ns() + HELLO).min(end);
            while !self.stop.asked() && clock::monotonic_ns() < until {
                self.stop.wait([(self.socket.as_fd(), READ)], Some(until));
                self.listen()?;
                if !found && !self.receivers.is_empty() {
                    found = true;
                    end = clock::monotonic_ns() + GATHER;
                    until = until.min(end);
                }
            }
            if clock::monotonic_ns() >= end {
                break;
            }
        }
        self.begun = true;
        if self.receivers.is_empty() && !self.stop.asked() {
            let text = "nobody receives; start `bypath ipc recv` first, in the same network namespace, or wait for it \
                        longer: --wait 1min";
            return Err(Failure::new(raw::LOST, text));
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
            let (latest, next) = (&self.latest, self.next);
            let fell_silent =
                |r: &Progress| r.expected < seq && now.saturating_sub(r.heard) >= SILENCE.as_nanos() as u64;
            let gone: Vec<Gone> = self
                .receivers
                .extract_if(|_, r| fell_silent(r))
                .map(|(_, r)| Gone { messages: latest.had(r.expected, next), late: r.late })
                .collect();
            if !gone.is_empty() {
                output::message(format_args!("{} receivers fell silent; going on without them", gone.len()));
                self.silent.extend(gone);
                self.somebody()?;
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

    /// That somebody receives.
    fn somebody(&self) -> Result<(), Failure> {
        match self.receivers.is_empty() {
            false => Ok(()),
            true => Err(Failure::new(raw::LOST, "no receiver is left; start `bypath ipc recv` anew")),
        }
    }

    /// Sends one message.
    fn message(&mut self, message: &[u8]) -> Result<(), Failure> {
        self.effort.begin();
        let body = BODY.min(self.socket.mtu() - SIZE);
        let count = message.chunks(body).count();
        let mut frame = Vec::with_capacity(SIZE + body);
        for (n, part) in message.chunks(body).enumerate() {
            // Those that left may have had enough; what nobody takes is lost.
            self.somebody()?;
            let first = if n == 0 { FIRST } else { 0 };
            let flags = first | if n + 1 == count { END_OF_MESSAGE } else { 0 };
            let header =
                Header { message: self.message, flags, ..Header::new(Kind::Data, self.session, self.next) };
            frame.clear();
            header.write(part, &mut frame);
            raw::send(&mut self.socket, &self.to, &frame).map_err(raw::failed)?;
            self.effort.calls += 1;
            let none_left = || Failure::new(1, "a sender has 4,294,967,295 frames; start it anew for more");
            self.latest.push(self.message, n + 1 == count);
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

    /// Sends all, and the end. Whether it was the end of standard input.
    fn all(&mut self, whole: bool) -> Result<bool, Failure> {
        let complete = if self.stop.asked() { false } else { self.input(whole)? };
        self.finish()?;
        Ok(complete)
    }

    /// Says that there is no more, and waits until all know.
    fn finish(&mut self) -> Result<(), Failure> {
        self.control(Kind::End)?;
        if self.stop.asked() { Ok(()) } else { self.reached(self.next.saturating_add(1), Kind::End) }
    }
}
