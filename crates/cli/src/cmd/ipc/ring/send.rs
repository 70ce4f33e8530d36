//! `bypath ipc send --via ring`.

use super::{FLOOR, GEOMETRY, GREETING, LONGEST_WORD, Shared, Socket, Word, socket_name};
use crate::cmd::ipc::effort::Effort;
use crate::cmd::ipc::send::Args;
use crate::cmd::ipc::{BODY, SILENCE};
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self,
    header::{END_OF_MESSAGE, FIRST, Header, Kind, SIZE},
    input::Input,
    wait::{READ, Stop},
};
use bypath_shm::direction::wait;
use bypath_shm::region::Arena;
use bypath_sys::poll::PollFd;
use bypath_sys::{Errno, clock, fd, process, unix};
use std::os::fd::AsRawFd;
use std::process::ExitCode;

/// Between two attempts to reach the receiver.
const AGAIN: u64 = 20_000_000;

struct Sender {
    socket: Socket,
    shared: Shared,
    stop: Stop,
    session: u64,
    /// Where the next record goes.
    tail: u64,
    next: u32,
    message: u32,
    octets: u64,
    /// The receiver has written everything up to here to its output.
    written: Option<u32>,
    effort: Effort,
    record: Vec<u8>,
}

/// Sends standard input.
pub fn run(args: &Args) -> Outcome {
    let stop = Stop::new()?;
    let channel = args.via.channel();
    let until = clock::monotonic_ns().saturating_add(args.wait.as_nanos() as u64);
    let Some((socket, shared)) = reach(channel, until, &stop)? else { return Ok(ExitCode::from(raw::LOST)) };
    let mut sender = Sender {
        socket,
        shared,
        stop,
        session: process::random_u64(),
        tail: 0,
        next: 0,
        message: 0,
        octets: 0,
        written: None,
        effort: Effort::default(),
        record: Vec::new(),
    };
    let complete = sender.input(args.whole)?;
    sender.finish()?;
    output::message(format_args!(
        "{} messages with {} octets sent to the receiver of channel {channel}",
        sender.message, sender.octets
    ));
    if args.via.stats {
        sender.effort.tell("ring", sender.message.into(), sender.octets);
    }
    let all = sender.written == Some(sender.next.saturating_add(1));
    Ok(if complete && all { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

/// Connects to the receiver and gets the memory; `None` after Ctrl-C.
fn reach(channel: &str, until: u64, stop: &Stop) -> Result<Option<(Socket, Shared)>, Failure> {
    let name = socket_name(channel);
    let socket = loop {
        match unix::connect(&name, FLOOR) {
            Ok(fd) => break Socket(fd),
            Err(Errno::CONNREFUSED | Errno::AGAIN) if clock::monotonic_ns() < until => {
                stop.sleep((clock::monotonic_ns() + AGAIN).min(until));
            }
            Err(Errno::CONNREFUSED | Errno::AGAIN) => {
                let text = format!(
                    "nobody receives on channel {channel}; start `bypath ipc recv --via ring` first, for the same user in the \
                     same network namespace, or wait for it longer: --wait 1min"
                );
                return Err(Failure::new(raw::LOST, text));
            }
            Err(e) => {
                return Err(Failure::new(
                    1,
                    format_args!("cannot reach the receiver of channel {channel}: {e}"),
                ));
            }
        }
        if stop.asked() {
            return Ok(None);
        }
    };
    if let Err(uid) = socket.is_own() {
        let text = format!(
            "channel {channel} is held by user {uid}: nothing is sent to others; choose another --channel"
        );
        return Err(Failure::new(1, text));
    }
    let until = until.max(clock::monotonic_ns() + SILENCE.as_nanos() as u64);
    let broken = |what: &str| {
        Failure::new(
            raw::LOST,
            format_args!("the receiver of channel {channel} {what}; start it anew, of the same release"),
        )
    };
    loop {
        let mut octets = [0; LONGEST_WORD];
        match unix::recv(socket.0, &mut octets, FLOOR) {
            Ok(None) if stop.asked() => return Ok(None),
            Ok(None) if clock::monotonic_ns() >= until => return Err(broken("does not answer")),
            Ok(None) => {
                stop.wait_any(&mut vec![PollFd { fd: socket.0, events: READ, revents: 0 }], Some(until));
            }
            Ok(Some(got)) => {
                let fits = octets[..got.len] == GREETING && got.fd_count == 1;
                let mapped = if fits { Arena::map(got.fds[0], GEOMETRY) } else { Err(Errno::INVAL) };
                got.fds[..got.fd_count].iter().for_each(|&f| fd::close(f));
                return match mapped.and_then(Shared::of) {
                    Ok(shared) => Ok(Some((socket, shared))),
                    Err(Errno::NOMEM) => Err(super::out_of_memory(Errno::NOMEM)),
                    Err(_) if got.len == 0 => Err(broken("has enough senders, or ended")),
                    Err(_) => Err(broken("offers what is not a ring")),
                };
            }
            Err(_) => return Err(broken("hung up")),
        }
    }
}

impl Sender {
    fn died(&self) -> Failure {
        let text =
            format!("the receiver died after {} messages were given to it; start it anew", self.message);
        Failure::new(raw::LOST, text)
    }

    /// Hears what the receiver says.
    fn hear(&mut self) -> Result<(), Failure> {
        // As many as there may be in the queue: one that never ends holds nobody up.
        for _ in 0..16 {
            self.effort.calls += 1;
            match self.socket.hear() {
                Word::Nothing => break,
                Word::Woken => {}
                Word::Said(octets) => {
                    let ack = Header::parse(&octets)
                        .filter(|(h, _)| h.kind == Kind::Ack && h.session == self.session);
                    self.written = ack.map(|(h, _)| h.seq).or(self.written);
                }
                Word::Gone if self.written == Some(self.next.saturating_add(1)) => break,
                Word::Gone => return Err(self.died()),
            }
        }
        Ok(())
    }

    fn sleep(&mut self, stdin: bool) -> Result<bool, Failure> {
        let input = if stdin { std::io::stdin().as_raw_fd() } else { -1 };
        let mut what: Vec<_> =
            [self.socket.0, input].map(|fd| PollFd { fd, events: READ, revents: 0 }).into();
        self.stop.wait_any(&mut what, None);
        self.effort.calls += u64::from(!stdin);
        if what[0].revents != 0 {
            self.hear()?;
        }
        Ok(what[1].revents != 0)
    }

    /// Waits for room. False after Ctrl-C.
    fn room(&mut self, octets: u64) -> Result<bool, Failure> {
        let (direction, size) = (self.shared.direction(), self.shared.ring.size());
        let lies = |_| {
            Failure::new(
                raw::LOST,
                "the receiver wrote what cannot be into the shared memory; nothing more is sent",
            )
        };
        let mut looked = None;
        loop {
            if direction.space(self.tail, size).map_err(lies)? >= octets {
                return Ok(true);
            }
            if self.stop.asked() {
                return Ok(false);
            }
            let now = clock::monotonic_ns();
            if now < *looked.get_or_insert(now) + super::SPIN {
                std::hint::spin_loop();
                continue;
            }
            // A ticket that is never 0; who wakes asks for no more.
            let ticket = wait::word(1, now as u32 | 1);
            wait::arm(&direction.wa.wait, ticket);
            // The receiver wakes when it has taken much; so much must be awaited.
            if direction.space(self.tail, size).map_err(lies)? < octets {
                self.sleep(false)?;
            }
            wait::disarm(&direction.wa.wait, ticket);
        }
    }

    /// Puts one record into the ring. False after Ctrl-C.
    fn put(&mut self, header: Header, body: &[u8]) -> Result<bool, Failure> {
        let mut record = std::mem::take(&mut self.record);
        record.clear();
        header.write(body, &mut record);
        let room = self.room(record.len() as u64)?;
        if room {
            self.shared.ring.copy_from_slice(self.tail, &record);
            self.tail += record.len() as u64;
            self.shared.direction().publish(self.tail);
            self.effort.calls += Shared::wake(&self.shared.direction().ra.wait, &self.socket);
        }
        self.record = record;
        Ok(room)
    }

    /// Sends one message. False after Ctrl-C.
    fn message(&mut self, message: &[u8]) -> Result<bool, Failure> {
        self.effort.begin();
        let count = message.len().div_ceil(BODY);
        for (n, part) in message.chunks(BODY).enumerate() {
            let first = if n == 0 { FIRST } else { 0 };
            let flags = first | if n + 1 == count { END_OF_MESSAGE } else { 0 };
            let header =
                Header { message: self.message, flags, ..Header::new(Kind::Data, self.session, self.next) };
            if !self.put(header, part)? {
                return Ok(false);
            }
            let none_left = || Failure::new(1, "a sender has 4,294,967,295 frames; start it anew for more");
            self.next = self.next.checked_add(1).filter(|n| *n < u32::MAX).ok_or_else(none_left)?;
        }
        self.message += 1;
        self.octets += message.len() as u64;
        Ok(true)
    }

    /// Sends what standard input has, until its end or Ctrl-C. Whether it was the end.
    fn input(&mut self, whole: bool) -> Result<bool, Failure> {
        let mut input = Input::new(whole);
        while !self.stop.asked() {
            if self.sleep(true)? && input.read(|message| self.message(message).map(|_| ()))? {
                return Ok(!self.stop.asked());
            }
        }
        Ok(false)
    }

    /// Says that there is no more, and waits until the receiver has written all of it.
    fn finish(&mut self) -> Result<(), Failure> {
        let end = Header { message: self.message, ..Header::new(Kind::End, self.session, self.next) };
        if self.put(end, &[])? {
            while self.written.is_none() && !self.stop.asked() {
                self.sleep(false)?;
            }
        }
        Ok(())
    }
}

const _: () = assert!(((SIZE + BODY) as u64) < GEOMETRY.ring as u64 / 2);
