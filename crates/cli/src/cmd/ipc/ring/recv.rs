//! `bypath ipc recv --via ring`.

use super::{FLOOR, GEOMETRY, GREETING, Shared, Socket, Word, socket_name};
use crate::cmd::ipc::effort::Effort;
use crate::cmd::ipc::incoming::Incoming;
use crate::cmd::ipc::recv::{Args, add, put};
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self,
    header::{Header, Kind, SIZE},
    wait::{READ, Stop},
};
use bypath_shm::direction::{Readable, wait};
use bypath_shm::region::Arena;
use bypath_sys::poll::PollFd;
use bypath_sys::{Errno, clock, fd, unix};
use std::process::ExitCode;

/// Senders at one time.
const SENDERS: usize = 64;
/// Senders at all: the addresses of a ring are never used for another.
const EVER: usize = 1024;
/// Octets that are gathered for one write.
const GATHER: usize = 64 << 10;

/// While there is much to take, it is looked so often who calls.
const ADMIT: u64 = 10_000_000;
/// A sender that was told that everything is written hangs up; it is waited for so long.
const PARTING: u64 = 1_000_000_000;

/// What is wrong with a sender.
struct Lie(&'static str);

struct Sender {
    socket: Socket,
    shared: Shared,
    incoming: Incoming,
    session: Option<u64>,
    /// The end came, and is acknowledged when everything is written.
    owed: Option<u32>,
    /// When that was.
    acknowledged: Option<u64>,
    gone: bool,
}

#[derive(Default)]
struct Receiver {
    senders: Vec<Sender>,
    ever: usize,
    messages: u64,
    octets: u64,
    lost_messages: u64,
    lost_frames: u64,
    refused: u64,
    died: u64,
    lied: u64,
    ended: u64,
    effort: Effort,
    record: Vec<u8>,
    output: Vec<u8>,
}

/// Writes messages until there were enough.
pub fn run(args: &Args) -> Outcome {
    let stop = Stop::new()?;
    let channel = args.via.channel();
    let listener = Socket(unix::listen(&socket_name(channel), FLOOR).map_err(|e| match e {
        Errno::ADDRINUSE => Failure::new(
            1,
            format_args!(
                "channel {channel} has a receiver: a ring has one; end it, choose another --channel, or let several receive with \
                 --via l2"
            ),
        ),
        e => Failure::new(1, format_args!("cannot listen on channel {channel}: {e}")),
    })?);
    let mut receiver = Receiver::default();
    output::message("receiving");
    let end = args.timeout.map(|t| clock::monotonic_ns().saturating_add(t.as_nanos() as u64));
    let mut late = false;
    // When it was last looked who calls, and since when nothing comes.
    let (mut looked, mut idle) = (clock::monotonic_ns(), None);
    loop {
        let taken = receiver.take(args)?;
        if receiver.output.len() >= GATHER || !taken {
            if !receiver.write()? {
                break;
            }
            receiver.acknowledge();
        }
        let full = args.count.is_some_and(|count| receiver.messages >= count);
        if full || stop.asked() {
            break;
        }
        let now = clock::monotonic_ns();
        if taken {
            idle = None;
            // Who has much to say does not keep others out.
            if now >= looked + ADMIT {
                receiver.admit(&listener)?;
                looked = now;
            }
            continue;
        }
        if receiver.senders.is_empty() && receiver.ended + receiver.died + receiver.lied > 0 && !args.follow {
            break;
        }
        late = end.is_some_and(|end| now >= end);
        if late {
            break;
        }
        if !receiver.senders.is_empty() && now < idle.get_or_insert(now).saturating_add(super::SPIN) {
            std::hint::spin_loop();
            continue;
        }
        receiver.sleep(&listener, &stop, end)?;
        (looked, idle) = (clock::monotonic_ns(), None);
    }
    receiver.write()?;
    receiver.acknowledge();
    receiver.tell();
    if args.via.stats {
        receiver.effort.tell("ring", receiver.messages, receiver.octets);
    }
    let wrong = receiver.lost_messages + receiver.lost_frames + receiver.died + receiver.lied;
    Ok(if wrong == 0 && !late { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

impl Receiver {
    /// Takes what is in the rings. Whether there was anything.
    fn take(&mut self, args: &Args) -> Result<bool, Failure> {
        let mut any = false;
        let mut senders = std::mem::take(&mut self.senders);
        for sender in &mut senders {
            match self.take_from(sender, args)? {
                Ok(0) => {}
                Ok(_) => {
                    any = true;
                    self.effort.calls += Shared::wake(&sender.shared.direction().wa.wait, &sender.socket);
                }
                Err(Lie(what)) => {
                    output::message(format_args!(
                        "a sender {what}; its connection is closed, and what it did not say is missing"
                    ));
                    self.lied += 1;
                    sender.gone = true;
                    sender.incoming.silent();
                }
            }
        }
        senders.retain(|sender| !sender.gone || self.forget(sender));
        self.senders = senders;
        Ok(any)
    }

    /// Ends a sender that is gone. Always false: it is not kept.
    fn forget(&mut self, sender: &Sender) -> bool {
        self.lost_messages += sender.incoming.lost_messages();
        self.lost_frames += sender.incoming.lost_frames;
        sender.shared.arena.release_all();
        false
    }

    /// Takes records from one ring, until enough are gathered. How many.
    fn take_from(&mut self, sender: &mut Sender, args: &Args) -> Result<Result<u64, Lie>, Failure> {
        let (direction, ring) = (sender.shared.direction(), sender.shared.ring);
        let mut records = 0;
        while self.output.len() < GATHER && args.count.is_none_or(|count| self.messages < count) {
            let Ok(Readable::Ring { head, available }) = direction.readable(ring.size()) else {
                return Ok(Err(Lie("wrote positions that cannot be")));
            };
            if available == 0 || sender.owed.is_some() {
                break;
            }
            if available < SIZE as u64 {
                return Ok(Err(Lie("wrote less than a record")));
            }
            // Copied first, and only then looked at: the other end may still write.
            let mut start = [0; SIZE];
            ring.copy_to_slice(head.position(), &mut start);
            let len = SIZE + usize::from(u16::from_be_bytes([start[SIZE - 2], start[SIZE - 1]]));
            if len as u64 > available {
                return Ok(Err(Lie("wrote less than a record")));
            }
            self.record.resize(len, 0);
            ring.copy_to_slice(head.position(), &mut self.record);
            let record = std::mem::take(&mut self.record);
            let outcome = match Header::parse(&record) {
                Some((header, body)) if SIZE + body.len() == len => {
                    self.record(sender, &header, body, args)?
                }
                _ => Err(Lie("wrote what is no record")),
            };
            self.record = record;
            if let Err(lie) = outcome {
                return Ok(Err(lie));
            }
            if !direction.commit(head, len as u64) {
                return Ok(Err(Lie("changed what only the receiver changes")));
            }
            records += 1;
        }
        Ok(Ok(records))
    }

    /// Takes one record.
    fn record(
        &mut self,
        sender: &mut Sender,
        header: &Header,
        body: &[u8],
        args: &Args,
    ) -> Result<Result<(), Lie>, Failure> {
        self.effort.begin();
        if *sender.session.get_or_insert(header.session) != header.session {
            return Ok(Err(Lie("has two sessions")));
        }
        match header.kind {
            Kind::Data => {
                if let Some(message) = sender.incoming.data(header, body) {
                    self.messages += 1;
                    self.octets += message.len() as u64;
                    add(args, header, &message, &mut self.output)?;
                }
            }
            Kind::End => {
                sender.incoming.end(header);
                sender.owed = Some(sender.incoming.expected());
            }
            _ => return Ok(Err(Lie("wrote a record that is not a sender's"))),
        }
        Ok(Ok(()))
    }

    /// Writes what was gathered; `false` if nobody reads it any more.
    fn write(&mut self) -> Result<bool, Failure> {
        let written = if self.output.is_empty() { Ok(true) } else { put(&self.output) };
        self.output.clear();
        written
    }

    /// Tells senders that ended that everything is written.
    fn acknowledge(&mut self) {
        let now = clock::monotonic_ns();
        for sender in &mut self.senders {
            let (Some(seq), Some(session)) = (sender.owed, sender.session) else { continue };
            match sender.acknowledged {
                None => {
                    let ack = Header::new(Kind::Ack, session, seq).frame(&[]);
                    let _ = unix::send(sender.socket.0, &ack, &[]);
                    self.ended += 1;
                    sender.acknowledged = Some(now);
                }
                Some(at) => sender.gone |= now >= at + PARTING,
            }
        }
    }

    /// Sleeps until something comes.
    fn sleep(&mut self, listener: &Socket, stop: &Stop, end: Option<u64>) -> Result<(), Failure> {
        let ticket = wait::word(1, clock::monotonic_ns() as u32 | 1);
        let mut nothing = true;
        for sender in &self.senders {
            let direction = sender.shared.direction();
            wait::arm(&direction.ra.wait, ticket);
            // Looked at again after it was said that this end sleeps: nothing is missed.
            nothing &= matches!(
                direction.readable(sender.shared.ring.size()),
                Ok(Readable::Ring { available: 0, .. })
            );
        }
        if nothing {
            let all = std::iter::once(listener.0).chain(self.senders.iter().map(|s| s.socket.0));
            let mut what: Vec<_> = all.map(|fd| PollFd { fd, events: READ, revents: 0 }).collect();
            stop.wait_any(&mut what, end);
            self.effort.calls += 1;
            for (at, heard) in what[1..].iter().enumerate() {
                if heard.revents != 0 {
                    self.hear(at);
                }
            }
            if what[0].revents != 0 {
                self.admit(listener)?;
            }
        }
        for sender in &self.senders {
            wait::disarm(&sender.shared.direction().ra.wait, ticket);
        }
        Ok(())
    }

    /// Hears what a sender says on its socket: that it wakes, or is gone.
    fn hear(&mut self, at: usize) {
        // One that never ends holds nobody up.
        for _ in 0..16 {
            self.effort.calls += 1;
            match self.senders[at].socket.hear() {
                Word::Nothing => break,
                Word::Woken | Word::Said(_) => {}
                Word::Gone => {
                    let sender = &mut self.senders[at];
                    if sender.acknowledged.is_some() {
                        sender.gone = true;
                        break;
                    }
                    let rest = sender.shared.direction().readable(sender.shared.ring.size());
                    // What it wrote before it died is taken first.
                    if sender.owed.is_none() && !matches!(rest, Ok(Readable::Ring { available: 1.., .. })) {
                        sender.gone = true;
                        sender.incoming.silent();
                        self.died += 1;
                        output::message("a sender died; what it did not send is missing");
                    }
                    break;
                }
            }
        }
    }

    /// Lets senders in.
    fn admit(&mut self, listener: &Socket) -> Result<(), Failure> {
        while let Ok(Some(fd)) = unix::accept(listener.0, FLOOR) {
            let socket = Socket(fd);
            if socket.is_own().is_err() || self.senders.len() >= SENDERS || self.ever >= EVER {
                self.refused += 1;
                continue;
            }
            let (arena, memory) = Arena::new(GEOMETRY, FLOOR).map_err(super::out_of_memory)?;
            let shared = Shared::of(arena).map_err(super::out_of_memory);
            let sent = unix::send(socket.0, &GREETING, &[memory]);
            fd::close(memory);
            let shared = shared?;
            if sent.is_ok() {
                self.ever += 1;
                let incoming = Incoming::default();
                self.senders.push(Sender {
                    socket,
                    shared,
                    incoming,
                    session: None,
                    owed: None,
                    acknowledged: None,
                    gone: false,
                });
            }
        }
        Ok(())
    }

    fn tell(&mut self) {
        let senders = std::mem::take(&mut self.senders);
        let open = senders.iter().filter(|s| s.acknowledged.is_none()).count();
        let ever = self.ever;
        for sender in &senders {
            self.forget(sender);
        }
        output::message(format_args!(
            "{} messages with {} octets received from {ever} senders; {} messages lost, {} frames missing; {} senders died, {} \
             wrote what cannot be, {} were refused, {open} had not ended",
            self.messages,
            self.octets,
            self.lost_messages,
            self.lost_frames,
            self.died,
            self.lied,
            self.refused
        ));
    }
}
