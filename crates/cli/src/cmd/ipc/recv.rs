//! `bypath ipc recv`.

use super::effort::Effort;
use super::incoming::Incoming;
use super::{RECEIVERS, SENDERS, SILENCE, Via};
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self,
    header::{Header, Kind, LEAVES},
    values,
    wait::{GONE, READ, Stop},
};
use bypath::l2::{Error, Socket};
use bypath_sys::{clock, process};
use serde::Serialize;
use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath ipc recv`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath ipc recv > copy                     what `bypath ipc send` sends, octet for octet\n  \
    bypath ipc recv --follow                   every message of every sender, until Ctrl-C\n  \
    bypath ipc recv --count 1 --timeout 5s     one message, if it comes in time\n  \
    bypath ipc recv --via ring --channel logs --follow    through shared memory\n\n\
    A receiver that is there when a sender begins gets every message; one that comes later, or is stopped then, counts as \
    lost what the numbers in the frames say that it missed. Frames travel on the loopback interface only, and need CAP_NET_RAW. A ring needs no \
    capability: one receiver, senders of the same user.\n\n\
    One that ends before its senders do (--count, --timeout, Ctrl-C, `| head -1`) tells them, and is not waited for.\n\n\
    Exit status: 0; 1 if the loopback interface or shared memory cannot be used, or standard output not written; 2 for wrong \
    usage; 3 if messages were lost, frames are missing, a sender died, fell silent or wrote what cannot be, or --timeout passed.")]
pub struct Args {
    /// Go on when the senders have ended
    #[arg(long)]
    pub follow: bool,

    /// End after so many messages
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,

    /// End after this time, such as 5s
    #[arg(long, value_name = "TIME", value_parser = values::period)]
    pub timeout: Option<Duration>,

    /// Print a JSON document per message, each in a line
    #[arg(long)]
    pub json: bool,

    #[command(flatten)]
    pub via: Via,
}

/// A message in JSON.
#[derive(Serialize)]
struct Record {
    session: String,
    message: u32,
    octets: usize,
    payload: String,
}

/// Senders that are followed at most, those that ended included.
const SENDERS_FOLLOWED: usize = 1024;

#[derive(Default)]
struct Receiver {
    id: u64,
    senders: HashMap<u64, Incoming>,
    /// Senders that are to be told how far they got.
    owed: Vec<u64>,
    messages: u64,
    octets: u64,
    ignored: u64,
    silent: u64,
    effort: Effort,
}

impl Receiver {
    /// Takes a frame's payload. The message that it completed.
    fn frame(&mut self, payload: &[u8], now: u64) -> Option<(Header, Vec<u8>)> {
        let Some((header, body)) = Header::parse(payload) else {
            self.ignored += 1;
            return None;
        };
        let known = self.senders.contains_key(&header.session);
        let ours = matches!(header.kind, Kind::Hello | Kind::Data | Kind::End);
        if !ours || !known && self.senders.len() >= SENDERS_FOLLOWED {
            self.ignored += 1;
            return None;
        }
        let sender = self.senders.entry(header.session).or_default();
        sender.heard = now;
        if !self.owed.contains(&header.session) {
            self.owed.push(header.session);
        }
        self.effort.begin();
        let message = match header.kind {
            Kind::Data => sender.data(&header, body)?,
            Kind::End => {
                sender.end(&header);
                return None;
            }
            _ => {
                sender.hello(&header);
                return None;
            }
        };
        self.messages += 1;
        self.octets += message.len() as u64;
        Some((header, message))
    }

    /// Tells the senders how far they got.
    fn acknowledge(&mut self, socket: &mut Socket, flags: u16) -> Result<(), Failure> {
        let to = socket.header(SENDERS);
        for session in self.owed.drain(..) {
            let expected = self.senders.get(&session).map_or(0, Incoming::expected);
            let ack = Header { flags, ..Header::new(Kind::Ack, session, expected) };
            raw::send(socket, &to, &ack.frame(&self.id.to_be_bytes())).map_err(raw::failed)?;
            self.effort.calls += 1;
        }
        Ok(())
    }

    /// Tells the senders that have not ended that nobody is here any more: they need not wait.
    fn leave(&mut self, socket: &mut Socket) {
        self.owed = self.senders.iter().filter(|(_, s)| !s.ended).map(|(session, _)| *session).collect();
        // If it cannot be told, they notice that this end is silent.
        let _ = self.acknowledge(socket, LEAVES);
    }

    /// Ends senders that are silent for too long.
    fn look_for_the_dead(&mut self, now: u64) {
        for (session, sender) in self.senders.iter_mut().filter(|(_, s)| !s.ended) {
            if now.saturating_sub(sender.heard) > SILENCE.as_nanos() as u64 {
                sender.silent();
                self.silent += 1;
                output::message(format_args!(
                    "sender {session:016x} fell silent; what it did not send is missing"
                ));
            }
        }
    }

    fn all_ended(&self) -> bool {
        !self.senders.is_empty() && self.senders.values().all(|s| s.ended)
    }
}

/// Writes messages until there were enough.
pub fn run(args: &Args) -> Outcome {
    let mut socket = super::open(RECEIVERS)?;
    let stop = Stop::new()?;
    let mut receiver = Receiver { id: process::random_u64(), ..Receiver::default() };
    output::message("receiving");
    let end = args.timeout.map(|t| clock::monotonic_ns().saturating_add(t.as_nanos() as u64));
    let mut late = false;
    let mut printed = Vec::new();
    let outcome = loop {
        let now = clock::monotonic_ns();
        let mut written = Ok(true);
        let full = |receiver: &Receiver| args.count.is_some_and(|count| receiver.messages >= count);
        let received = socket.receive_batch(8, |frame| {
            if full(&receiver) || !matches!(written, Ok(true)) {
                return;
            }
            receiver.effort.calls += 1;
            if let Some((header, message)) = receiver.frame(frame.payload, now) {
                printed.clear();
                written = add(args, &header, &message, &mut printed).and_then(|()| put(&printed));
            }
        });
        let told = receiver.acknowledge(&mut socket, 0);
        match written.and_then(|read| told.map(|()| read)) {
            Ok(read) if !read || full(&receiver) || stop.asked() => break Ok(()),
            Ok(_) => {}
            Err(e) => break Err(e),
        }
        match received {
            Ok(_) | Err(Error::Interrupted) => {}
            Err(Error::WouldBlock) => {
                receiver.look_for_the_dead(now);
                if receiver.all_ended() && !args.follow {
                    break Ok(());
                }
                late = end.is_some_and(|end| now >= end);
                if late {
                    break Ok(());
                }
                let stdout = io::stdout();
                if stop.wait([(socket.as_fd(), READ), (stdout.as_fd(), GONE)], end)[1] {
                    break Ok(());
                }
                // And the look that found nothing.
                receiver.effort.calls += 2;
            }
            Err(e) => break Err(raw::failed(e)),
        }
    };
    receiver.leave(&mut socket);
    let dropped = socket.statistics().dropped;
    let sum = |what: fn(&Incoming) -> u64| receiver.senders.values().map(what).sum::<u64>();
    // Numbers show a gap only if a frame came after it; the kernel knows what found no room, whatever came after.
    let (messages, frames) = (sum(Incoming::lost_messages), sum(|s| s.lost_frames).max(dropped));
    // How much a silent sender had sent, nobody told.
    let at_least = if receiver.silent > 0 { "at least " } else { "" };
    output::message(format_args!(
        "{} messages with {} octets received from {} senders; \
         {at_least}{messages} messages lost, {at_least}{frames} frames missing, \
         {dropped} of them not taken in time; {} frames of others ignored",
        receiver.messages,
        receiver.octets,
        receiver.senders.len(),
        receiver.ignored
    ));
    if args.via.stats {
        receiver.effort.tell("l2", receiver.messages, receiver.octets);
    }
    outcome?;
    let good = messages == 0 && frames == 0 && receiver.silent == 0 && !late;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

/// Appends a message as it is printed.
pub fn add(args: &Args, header: &Header, message: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
    if !args.json {
        out.extend_from_slice(message);
        return Ok(());
    }
    let record = Record {
        session: format!("{:016x}", header.session),
        message: header.message,
        octets: message.len(),
        payload: values::hex(message),
    };
    let written = serde_json::to_writer(&mut *out, &record);
    written.map_err(|e| Failure::new(1, format_args!("cannot make JSON of this: {e}")))?;
    out.push(b'\n');
    Ok(())
}

/// Writes octets to standard output; `false` if nobody reads it any more.
pub fn put(octets: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(octets).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Failure::new(1, format_args!("cannot write to standard output: {e}"))),
        Ok(()) => Ok(true),
    }
}
