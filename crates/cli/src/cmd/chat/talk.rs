//! A conversation: carries octets between the session, the connection, the raw socket, standard input and output.

use super::call::Door;
use crate::chat::control::Hello;
use crate::chat::session::{Fault, Role, Session};
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self,
    input::Input,
    values,
    wait::{READ, Stop, WRITE},
};
use bypath::l2::{Error, Header, Interface, Socket};
use bypath_sys::clock;
use bypath_sys::poll::{PollFd, ppoll};
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;

/// What was asked for on the command line.
pub struct Terms<'a> {
    /// The interface.
    pub interface: &'a str,
    /// Which end this is.
    pub role: Role,
    /// Who it is.
    pub own: Hello,
    /// Standard input is not lines.
    pub whole: bool,
    /// Messages are printed as JSON.
    pub json: bool,
}

/// A message in JSON.
#[derive(Serialize)]
struct Record {
    session: String,
    message: u64,
    octets: usize,
    payload: String,
}

/// Frames that are sent in one round at most.
const ROUND: usize = 64;
/// Frames that are taken in one round at most: a window of those that Ethernet usually has.
const TAKEN: usize = 1024;
/// How often the interface is looked at.
const LOOK: u64 = 1_000_000_000;
/// After a frame that could not be sent: a full queue, an interface that is down.
const PAUSE: [u64; 2] = [200_000, 100_000_000];
/// Octets that wait for standard output before further messages are taken.
const OUTPUT: usize = 64 << 10;
/// A pipe that has room has at least so much (PIPE_BUF): a longer write could wait.
const PIPE: usize = 4096;
/// How long the last words may take.
const LAST_WORDS: u64 = 1_000_000_000;

/// A conversation.
pub struct Talk<'a> {
    terms: Terms<'a>,
    session: Session,
    socket: &'a mut Socket,
    to: Header,
    stream: TcpStream,
    door: Option<&'a mut Door>,
    stop: &'a Stop,
    input: Option<Input>,
    output: Output,
    /// What the interface carries, and the buffers of this socket.
    mtu: usize,
    opened_mtu: usize,
    /// What it was found to carry less, where it says more: loopback counts the tag.
    carried: Option<(usize, usize)>,
    look_at: u64,
    send_at: u64,
    trouble: Trouble,
    peer_ended: bool,
}

/// What is wrong with the interface, as far as it was told.
#[derive(Default, PartialEq)]
enum Trouble {
    #[default]
    None,
    Down,
    NoCarrier,
}

/// What is on its way to standard output.
struct Output {
    octets: Vec<u8>,
    written: usize,
    terminal: bool,
    most: usize,
    messages: u64,
}

/// How a conversation ends that does not fail.
enum End {
    Complete,
    Stopped,
    NobodyReads,
}

impl<'a> Talk<'a> {
    /// A conversation over a connection that was made just now.
    ///
    /// # Errors
    /// The connection is broken already.
    pub fn new(
        terms: Terms<'a>,
        socket: &'a mut Socket,
        stream: TcpStream,
        door: Option<&'a mut Door>,
        stop: &'a Stop,
    ) -> Result<Talk<'a>, Failure> {
        let now = clock::monotonic_ns();
        // A queue of small messages gains nothing by waiting.
        let ready = stream.set_nonblocking(true).and_then(|()| stream.set_nodelay(true));
        ready.map_err(|e| Failure::new(1, format_args!("cannot use the connection: {e}")))?;
        let stdout = std::io::stdout();
        let file = rustix::fs::fstat(&stdout)
            .is_ok_and(|s| rustix::fs::FileType::from_raw_mode(s.st_mode).is_file());
        Ok(Talk {
            session: Session::new(terms.role, terms.own, now),
            to: socket.header(terms.own.mac),
            mtu: socket.mtu(),
            opened_mtu: socket.mtu(),
            carried: None,
            input: Some(Input::new(terms.whole)),
            output: Output {
                octets: Vec::new(),
                written: 0,
                terminal: stdout.is_terminal() && !terms.json,
                most: if file { OUTPUT } else { PIPE },
                messages: 0,
            },
            terms,
            socket,
            stream,
            door,
            stop,
            look_at: now + LOOK,
            send_at: now,
            trouble: Trouble::None,
            peer_ended: false,
        })
    }

    /// Whether the other end said who it is, and fits.
    pub const fn has_begun(&self) -> bool {
        self.session.peer().is_some()
    }

    /// Talks until the end.
    ///
    /// # Errors
    /// Why it ended otherwise.
    pub fn run(&mut self) -> Outcome {
        let end = self.rounds();
        if let Err(failure) = &end {
            self.session.quit(&failure.to_string());
        }
        match end {
            Ok(End::Stopped) => self.session.quit("its user ended it"),
            Ok(End::NobodyReads) => self.session.quit("nobody reads there any more"),
            _ => {}
        }
        self.last_words();
        if self.has_begun() {
            self.summary();
        }
        match end? {
            End::Complete | End::NobodyReads => Ok(ExitCode::SUCCESS),
            End::Stopped => Ok(ExitCode::from(raw::LOST)),
        }
    }

    fn rounds(&mut self) -> Result<End, Failure> {
        let mut ready = [false; 5];
        loop {
            if self.stop.asked() {
                return Ok(End::Stopped);
            }
            if ready[4]
                && let Some(door) = &mut self.door
            {
                door.turn_away();
            }
            // Before what is said about them: frames that are here are not asked for.
            self.receive()?;
            let ended = self.hear()?;
            let now = clock::monotonic_ns();
            if now >= self.look_at {
                self.look(now);
            }
            if now >= self.session.next_tick() {
                let ticked = self.session.tick(now, self.mtu);
                ticked.map_err(|fault| self.fault(&fault))?;
            }
            if !self.write(ready[3])? {
                return Ok(End::NobodyReads);
            }
            if ready[2] && self.session.has_room() {
                self.read()?;
            }
            let more = self.send()?;
            self.speak()?;
            if self.session.is_complete() {
                return Ok(End::Complete);
            }
            if ended {
                let ended = self.session.ended();
                return ended.map(|()| End::Complete).map_err(|fault| self.fault(&fault));
            }
            ready = self.wait(more);
        }
    }

    fn wait(&mut self, more: bool) -> [bool; 5] {
        let (stdin, stdout) = (std::io::stdin(), std::io::stdout());
        let speaks = if self.session.control().is_empty() { 0 } else { WRITE };
        let reads = if self.input.is_some() && self.session.has_room() { READ } else { 0 };
        let writes = if self.output.octets.is_empty() { 0 } else { WRITE };
        let door = self.door.as_ref().map_or((self.stream.as_fd(), 0), |door| (door.as_fd(), READ));
        let mut until = self.session.next_tick().min(self.look_at);
        if self.session.has_frame() {
            until = until.min(self.send_at);
        }
        if more {
            until = 0;
        }
        let takes = if self.has_begun() { READ } else { 0 };
        let what = [
            (self.socket.as_fd(), takes),
            (self.stream.as_fd(), READ | speaks),
            (stdin.as_fd(), reads),
            (stdout.as_fd(), writes),
            door,
        ];
        self.stop.wait(what, Some(until))
    }

    fn fault(&self, fault: &Fault) -> Failure {
        let hint = match self.trouble {
            Trouble::Down => format!("; {} is down here", self.terms.interface),
            Trouble::NoCarrier => format!("; {} has no carrier here", self.terms.interface),
            Trouble::None => String::new(),
        };
        let hint = if matches!(fault, Fault::Deaf(_) | Fault::Unheard) { hint } else { String::new() };
        // What the other end wrote may be among it.
        let text = output::printable(&fault.to_string());
        Failure::new(if self.has_begun() { raw::LOST } else { 1 }, format_args!("{text}{hint}"))
    }

    /// Reads the connection. Whether it has ended.
    fn hear(&mut self) -> Result<bool, Failure> {
        let mut octets = [0; 16 << 10];
        let began = self.has_begun();
        let ended = match self.stream.read(&mut octets) {
            Ok(0) => true,
            Ok(len) => {
                let heard = self.session.connection(clock::monotonic_ns(), &octets[..len]);
                heard.map_err(|fault| self.fault(&fault))?;
                false
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => false,
            // Reset: what it said before was read.
            Err(_) => true,
        };
        if !began && let Some(peer) = self.session.peer().copied() {
            self.to.destination = peer.mac;
            output::message(format_args!(
                "conversation {:016x} with {} on {}: EtherType {:#06x}, {}, {} octets in a frame",
                self.session.number(),
                peer.mac,
                self.terms.interface,
                peer.ethertype,
                peer.vlan.map_or("no VLAN".to_owned(), |v| format!(
                    "VLAN {v} with priority {}",
                    self.terms.own.priority
                )),
                self.mtu.min(peer.mtu as usize)
            ));
        }
        if !self.peer_ended && self.session.peer_ended() {
            self.peer_ended = true;
            if self.input.is_some() && std::io::stdin().is_terminal() {
                output::message("the other end has said everything; Ctrl-D ends this side");
            }
        }
        Ok(ended)
    }

    /// Writes to the connection what it takes.
    fn speak(&mut self) -> Result<(), Failure> {
        let waiting = self.session.control();
        while !waiting.is_empty() {
            match self.stream.write(waiting) {
                Ok(len) => drop(waiting.drain(..len)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // A broken connection is told by reading it: its last words may be there.
                Err(e) if e.kind() != ErrorKind::WouldBlock => {
                    waiting.clear();
                    break;
                }
                Err(_) => break,
            }
        }
        Ok(())
    }

    /// Takes frames.
    fn receive(&mut self) -> Result<(), Failure> {
        if !self.has_begun() {
            // The other end may be quicker than its word of who it is: they wait in the socket.
            return Ok(());
        }
        let now = clock::monotonic_ns();
        let mut outcome = Ok(());
        let session = &mut self.session;
        let received = self.socket.receive_batch(TAKEN, |frame| {
            if outcome.is_ok() {
                outcome = session.frame(now, frame.source, frame.payload);
            }
        });
        outcome.map_err(|fault| self.fault(&fault))?;
        match received {
            Ok(_) | Err(Error::WouldBlock | Error::Interrupted) => Ok(()),
            Err(e) => self.device(e),
        }
    }

    /// Sends frames. Whether there are more to be sent at once.
    fn send(&mut self) -> Result<bool, Failure> {
        let mut frame = Vec::with_capacity(self.mtu);
        for _ in 0..ROUND {
            let now = clock::monotonic_ns();
            if now < self.send_at {
                return Ok(false);
            }
            frame.clear();
            let Some(piece) = self.session.next_frame(now, self.mtu, &mut frame) else { return Ok(false) };
            let Err(e) = self.socket.send_with(&self.to, &frame) else { continue };
            self.session.refused(piece);
            match e {
                Error::WouldBlock | Error::TimedOut { .. } | Error::QueueFull { .. } | Error::Interrupted => {
                    self.send_at = now + PAUSE[0];
                }
                // It was made smaller: the piece is cut anew.
                Error::TooLong { mtu, .. } if mtu < frame.len() => {
                    self.carried = Some((self.socket.mtu(), mtu));
                    self.mtu = mtu;
                }
                e => {
                    self.send_at = now + PAUSE[1];
                    self.device(e)?;
                }
            }
        }
        Ok(self.session.has_frame())
    }

    /// What is wrong with the interface. While it is down, frames are lost, and asked for again when it is up.
    fn device(&mut self, e: Error) -> Result<(), Failure> {
        if !matches!(e, Error::Down { .. }) {
            return Err(raw::failed(e));
        }
        if self.trouble != Trouble::Down {
            self.trouble = Trouble::Down;
            output::message(format_args!("{e}; waiting for it"));
        }
        Ok(())
    }

    /// Looks at the interface: what it carries, and whether it runs.
    fn look(&mut self, now: u64) {
        self.look_at = now + LOOK;
        let Ok(found) = Interface::named(self.terms.interface) else { return };
        let says = found.mtu as usize;
        let carries = self.carried.filter(|(said, _)| *said == says).map_or(says, |(_, carried)| carried);
        self.mtu = carries.min(self.opened_mtu);
        let trouble = match (found.up, found.carrier) {
            (false, _) => Trouble::Down,
            (true, Some(false)) => Trouble::NoCarrier,
            _ => Trouble::None,
        };
        if trouble != self.trouble {
            let name = self.terms.interface;
            match trouble {
                Trouble::Down => {}
                Trouble::NoCarrier => output::message(format_args!(
                    "{name}: no carrier: the cable is out, or the interface at its other end is down; waiting for it"
                )),
                Trouble::None => output::message(format_args!("{name}: it is up again")),
            }
            if trouble != Trouble::Down {
                self.trouble = trouble;
            }
        }
    }

    /// Reads standard input.
    fn read(&mut self) -> Result<(), Failure> {
        let Some(input) = &mut self.input else { return Ok(()) };
        let session = &mut self.session;
        let ended = input.read(|message| {
            session.message(message);
            Ok(())
        })?;
        if ended {
            self.session.finish();
            self.input = None;
            // What is to be said now is said by the next tick.
            self.tick_now()?;
        }
        Ok(())
    }

    fn tick_now(&mut self) -> Result<(), Failure> {
        let ticked = self.session.tick(clock::monotonic_ns(), self.mtu);
        ticked.map_err(|fault| self.fault(&fault))
    }

    /// Writes messages to standard output; `false` if nobody reads it any more.
    fn write(&mut self, ready: bool) -> Result<bool, Failure> {
        let mut any = false;
        while self.output.octets.len() < OUTPUT {
            let Some(message) = self.session.take() else { break };
            self.output.add(&self.terms, self.session.number(), &message)?;
            any = true;
        }
        if self.output.octets.is_empty() || !(ready || any) {
            return Ok(true);
        }
        // Whether there is room is not known yet of what was just taken.
        let stdout = std::io::stdout();
        let room = ready || self.stop.wait([(stdout.as_fd(), WRITE)], Some(0))[0];
        if !room {
            return Ok(true);
        }
        let rest = &self.output.octets[self.output.written..];
        match rustix::io::write(&stdout, &rest[..rest.len().min(self.output.most)]) {
            Ok(len) => self.output.written += len,
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(rustix::io::Errno::PIPE) => return Ok(false),
            Err(e) => return Err(Failure::new(1, format_args!("cannot write to standard output: {e}"))),
        }
        if self.output.written == self.output.octets.len() {
            self.output.octets.clear();
            self.output.written = 0;
            if !self.session.receiving().has_message() {
                self.session.written();
            }
            self.tick_now()?;
        }
        Ok(true)
    }

    /// Says what is still to be said, and lets the other end hear it.
    fn last_words(&mut self) {
        let until = clock::monotonic_ns() + LAST_WORDS;
        // Not `stop`: after Ctrl-C, too, they are said.
        let wait = |stream: &TcpStream, events| {
            let left = until.saturating_sub(clock::monotonic_ns());
            let mut fds = [PollFd { fd: stream.as_raw_fd(), events, revents: 0 }];
            let _ = ppoll(&mut fds, Some(left), 0);
        };
        let _ = self.speak();
        while !self.session.control().is_empty() && clock::monotonic_ns() < until {
            wait(&self.stream, WRITE);
            let _ = self.speak();
        }
        let _ = self.stream.shutdown(Shutdown::Write);
        // Closed with something unread, a connection is reset, and the other end would not hear the last words.
        let mut octets = [0; 4096];
        while clock::monotonic_ns() < until {
            match self.stream.read(&mut octets) {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => wait(&self.stream, READ),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
    }

    fn summary(&mut self) {
        let dropped = self.socket.statistics().dropped;
        let (out, inc, foreign) = (self.session.sending(), self.session.receiving(), &self.session.foreign);
        let mut text = format!(
            "{} messages with {} octets sent in {} frames, {} of them again; {} messages with {} octets received; {} frames \
             came twice, {} changed, {dropped} were not taken in time, {} of others ignored",
            out.messages,
            out.octets,
            out.frames,
            out.again,
            self.output.messages,
            inc.octets,
            inc.twice,
            foreign.corrupt,
            foreign.others + foreign.elsewhere + inc.refused
        );
        if let Some(ns) = self.session.round_trip() {
            text += &format!("; round trip of the connection {}", values::ns(ns));
        }
        output::message(text);
    }
}

impl Output {
    /// Appends a message as it is printed.
    fn add(&mut self, terms: &Terms<'_>, session: u64, message: &[u8]) -> Result<(), Failure> {
        if terms.json {
            let record = Record {
                session: format!("{session:016x}"),
                message: self.messages,
                octets: message.len(),
                payload: values::hex(message),
            };
            let written = serde_json::to_writer(&mut self.octets, &record);
            written.map_err(|e| Failure::new(1, format_args!("cannot make JSON of this: {e}")))?;
            self.octets.push(b'\n');
        } else if self.terminal {
            // Whoever sends does not steer this terminal.
            let text = String::from_utf8_lossy(message);
            let plain =
                text.chars().map(|c| if output::steers(c) && c != '\n' && c != '\t' { '?' } else { c });
            self.octets.extend(plain.collect::<String>().bytes());
        } else {
            self.octets.extend_from_slice(message);
        }
        self.messages += 1;
        Ok(())
    }
}
