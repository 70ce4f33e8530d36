//! `bypath dump`: what goes through the rings of programs, as packets for Wireshark, or as lines.
//!
//! The programs do nothing for it and know nothing of it: their memory is read from outside (`memory`), beside their own
//! reading and writing (`tap`). What was overwritten before it could be read is told, and counted.

mod authors;
mod effort;
mod find;
mod mail;
mod meanwhile;
mod memory;
mod newest;
mod packet;
mod posts;
mod tap;
mod taps;
mod whose;
mod within;

use crate::args::user;
use crate::cmd::why;
use crate::connections;
use crate::ending;
use crate::filter::Filter;
use crate::output::{self, Failure, Outcome};
use crate::written;
use bypath::clock::{monotonic_ns, realtime_ns};
use bypath::link::pcapng::writer::Frame;
use bypath::link::pcapng::{Counts, Writer};
use clap::ValueHint;
use meanwhile::Pace;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tap::News;
use taps::{Taps, Wanted};
use whose::{One, Whose};

/// Arguments of `bypath dump`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath dump port 6379                       a line for each piece that goes through a ring\n  \
    bypath dump -w /tmp/rings.pcapng --pid 1234\n  \
    bypath dump -w - port 8080 | tshark -r - -d tcp.port==8080,http\n  \
    bypath dump udp and port 53                 datagrams between programs that are both awake\n  \
    bypath dump src port 6379 and not comm redis-cli\n  \
    bypath dump --user www-data                 what that user's programs say of their connections\n\n\
    What programs of root and of the own user say of their connections is shown, or with --user what that user's programs say; --pid shows those of one\n\
    process, as its user's programs say, and ends when that does. Processes of several users that share sockets, as a server's whose workers are another\n\
    user's, are the less trusted one's, and not root's; of several others they are shown by --pid alone.\n\n\
    FILTER is as for tcpdump and ss: [src|dst] host|net|port|portrange VALUE, sport and dport with = != < > <= >=, pid, comm (name\n\
    of a program, or a pattern), tcp, udp, ip, ip6; and, or, not, parentheses (which the shell must not see).\n\n\
    There are no packets in a ring: what is found there of a connection is cut into segments, with sequence numbers that count the ring's\n\
    bytes; datagrams of UDP are whole, and stand there from their sender to their receiver. What goes through the kernel, such as the first bytes of a connection, tcpdump sees. Rings are read from outside\n\
    while programs use them: bytes that were overwritten before they could be read are a gap in the numbers, counted as\n\
    dropped. New connections are looked for every 0.2 s: what went through one that came and went in between is in no count. A segment or datagram has the time of the look that found it, mostly less than a millisecond behind the write; a datagram whose\n\
    receiver asks for time stamps (SO_TIMESTAMP) has that of its send, as its sender says. Of sockets of a netstack service what goes by the rings of connections is shown; the rest, and what TCP does\n\
    with it, is in frames: `bypath netstack capture`. What two programs of one service say to each other is on no link,\n    and shown at the rings of one of them. With --pid of a process that does not run under Bypath it ends at once. It takes the rights of a debugger: root, or the same user where yama's ptrace_scope is 0.\n\n\
    Exit status: 0; 1 if the file cannot be written, the process does not exist or may not be read; 2 for wrong usage.")]
pub struct Args {
    /// Write a capture file (pcapng); a new one has mode 0600; `-` is standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    write: Option<PathBuf>,

    /// Only connections of this process, as programs of its user show them, until it ends
    #[arg(long, conflicts_with = "user", value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// What programs of this user show (a name or a number), in place of those of root and the own user
    #[arg(long, value_name = "USER", value_parser = user)]
    user: Option<u32>,

    /// Only connections from or to this port
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Octets of each packet that are written to the file at most, headers included
    #[arg(short, long, value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(1..))]
    snap: Option<u32>,

    /// End after so many segments and datagrams
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after so many seconds, such as 0.5
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    seconds: Option<Duration>,

    /// Only what this lets through, such as: port 80 and not host 10.0.0.1
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    filter: Vec<String>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|s: f64| Duration::try_from_secs_f64(s).ok());
    seconds
        .filter(|s| !s.is_zero())
        .ok_or_else(|| "expected a number of seconds above 0, such as 10 or 0.5".to_owned())
}

/// How often new connections are looked for.
const LOOK_NS: u64 = 200_000_000;

/// Follows until it is told to end.
pub fn run(args: &Args) -> Outcome {
    let one = args.pid.map(One::of).transpose()?;
    if let Some(pid) = args.pid {
        let scan = connections::scan()
            .map_err(|e| Failure::new(1, format_args!("cannot list processes in /proc: {e}")))?;
        // What it is not now it never will be: no library comes to a process that runs.
        if scan.family_of(pid).is_none()
            && let Some(why) = why::is_plain(pid).map_err(|_| taps::forbidden(pid))?
        {
            return Err(Failure::new(
                1,
                format_args!(
                    "nothing of process {pid} ({}) goes through rings, as it is not under Bypath: {why} (tcpdump sees what goes by the kernel)",
                    why::name_of(pid)
                ),
            ));
        }
    }
    let filter = Filter::read(&args.filter).map_err(|e| Failure::new(2, format_args!("the filter: {e}")))?;
    let whose = match (one, args.user) {
        (Some(one), _) => Whose::Process(one),
        (None, Some(user)) => Whose::User(user),
        (None, None) => Whose::Lookers,
    };
    let asked = Arc::new(AtomicBool::new(false));
    ending::watch(&asked).map_err(|e| Failure::new(1, e))?;
    let begun = monotonic_ns();
    let end = args.seconds.map(|s| begun.saturating_add(u64::try_from(s.as_nanos()).unwrap_or(u64::MAX)));
    let is_over = || asked.load(Relaxed) || end.is_some_and(|end| monotonic_ns() >= end);
    let mut out = Out::create(args.write.as_deref(), args.count, args.snap, is_over)?;
    let mut taps = Taps::new(Wanted { pid: args.pid, port: args.port, filter }, whose);
    let (mut look, mut pace) = (begun, Pace::new());
    let mut room = Vec::new();
    while !is_over() && !out.is_done() && !taps.is_over() {
        if monotonic_ns() >= look {
            taps.discover(&asked, &mut out, &mut room)?;
            out.flush()?;
            look = monotonic_ns() + LOOK_NS;
        }
        pace.rest(taps.look(&mut out, &mut room)?);
    }
    // What was there when it was asked to end, of connections that have just come up, too.
    taps.discover(&AtomicBool::new(false), &mut out, &mut room)?;
    let last = monotonic_ns() + tap::PATIENCE;
    while taps.look(&mut out, &mut room)? && !out.is_done() && monotonic_ns() < last {}
    out.end(begun)?;
    Ok(ExitCode::SUCCESS)
}

/// Where what was found goes.
struct Out {
    file: Option<Writer<BufWriter<Box<dyn Write + Send>>>>,
    name: String,
    /// After so many segments it is done.
    most: Option<u64>,
    segments: u64,
    datagrams: u64,
    missed: u64,
    /// Connections of which it is not known what was missed at their end.
    cut: u64,
    unread: bool,
    frame: Vec<u8>,
}

impl Out {
    fn create(
        path: Option<&Path>,
        most: Option<u64>,
        snap: Option<u32>,
        gives_up: impl Fn() -> bool,
    ) -> Result<Out, Failure> {
        let name = path.map_or("standard output".to_owned(), |p| p.display().to_string());
        let frame = Vec::new();
        let mut out = Out {
            file: None,
            name,
            most,
            segments: 0,
            datagrams: 0,
            missed: 0,
            cut: 0,
            unread: false,
            frame,
        };
        let Some(path) = path else { return Ok(out) };
        let failed = |e: io::Error| Failure::new(1, format_args!("cannot write {}: {e}", path.display()));
        let inner: Box<dyn Write + Send> = if path != Path::new("-") {
            Box::new(written::create(path, written::PRIVATE, gives_up).map_err(failed)?)
        } else if io::stdout().is_terminal() {
            let text =
                "standard output is a terminal, and a capture is nothing to look at; name a file: -w FILE";
            return Err(Failure::new(2, text));
        } else {
            Box::new(io::stdout())
        };
        let begin = || {
            let mut writer = Writer::new(
                BufWriter::new(inner),
                concat!("bypath ", env!("CARGO_PKG_VERSION")),
                snap.map_or(usize::MAX, |snap| snap as usize),
            )?;
            let comment = "segments and datagrams made of what went through rings; a gap is what was overwritten before it was read";
            writer.interface_with("bypath", None, Some(comment))?;
            writer.flush()?;
            Ok(writer)
        };
        out.file = Some(begin().map_err(failed)?);
        Ok(out)
    }

    /// An error of writing, unless it is that nobody reads.
    fn outcome(&mut self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                self.unread = true;
                Ok(())
            }
            other => other.map_err(|e| Failure::new(1, format_args!("cannot write {}: {e}", self.name))),
        }
    }

    /// Nobody reads it, or there is as much as was asked for.
    fn is_done(&self) -> bool {
        self.unread || self.most.is_some_and(|most| self.segments + self.datagrams >= most)
    }

    fn news(&mut self, [from, to]: [SocketAddr; 2], answered: u64, news: &News) -> Result<(), Failure> {
        let ns = realtime_ns();
        let mut missed = news.missed;
        self.missed = self.missed.saturating_add(missed);
        // What was missed is told even if nothing is left to show.
        let empty = news.bytes.is_empty().then_some(&[][..]);
        let mut position = news.position;
        for piece in news.bytes.chunks(packet::MOST).chain(empty) {
            if self.is_done() {
                break;
            }
            let lost = std::mem::take(&mut missed);
            let comment = format!("{lost} octets were overwritten before they could be read");
            let written = match &mut self.file {
                Some(file) => {
                    packet::build(&mut self.frame, from, to, position, answered, piece);
                    file.frame(&Frame {
                        ns,
                        pieces: [&self.frame, &[], &[]],
                        // In segments, as which they would have been counted.
                        lost: (lost > 0).then(|| lost.div_ceil(packet::MOST as u64)),
                        comment: (lost > 0).then_some(comment.as_str()),
                        ..Frame::default()
                    })
                }
                None => {
                    let gap = if lost > 0 { format!("({comment})\n") } else { String::new() };
                    let line = line(ns, from, to, &format!("{} at {position}", piece.len()), piece);
                    io::stdout().lock().write_all(format!("{gap}{line}\n").as_bytes())
                }
            };
            self.outcome(written)?;
            position += piece.len() as u64;
            self.segments += 1;
        }
        Ok(())
    }

    /// A datagram, before which octets of others were missed. `sent`: when, as its sender says.
    fn datagram(
        &mut self,
        [from, to]: [SocketAddr; 2],
        sent: Option<u64>,
        missed: u64,
        octets: &[u8],
    ) -> Result<(), Failure> {
        if self.is_done() {
            return Ok(());
        }
        // Nothing that is there now is sent later.
        let now = realtime_ns();
        let ns = sent.map_or(now, |sent| sent.min(now));
        self.missed = self.missed.saturating_add(missed);
        let comment = format!("{missed} octets of datagrams were overwritten before they could be read");
        let written = match &mut self.file {
            // None so long was ever sent.
            Some(_) if !packet::datagram(&mut self.frame, from, to, octets) => return Ok(()),
            Some(file) => file.frame(&Frame {
                ns,
                pieces: [&self.frame, &[], &[]],
                // How many there were is not known.
                lost: (missed > 0).then_some(1),
                comment: (missed > 0).then_some(comment.as_str()),
                ..Frame::default()
            }),
            None => {
                let gap = if missed > 0 { format!("({comment})\n") } else { String::new() };
                let line = line(ns, from, to, &format!("UDP {}", octets.len()), octets);
                io::stdout().lock().write_all(format!("{gap}{line}\n").as_bytes())
            }
        };
        self.outcome(written)?;
        self.datagrams += 1;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        let flushed = match &mut self.file {
            Some(file) => file.flush(),
            None => io::stdout().flush(),
        };
        self.outcome(flushed)
    }

    fn end(mut self, begun: u64) -> Result<(), Failure> {
        let now = realtime_ns();
        if let Some(file) = &mut self.file {
            let counts = Counts {
                start: Some(now - monotonic_ns().saturating_sub(begun)),
                end: Some(now),
                received: Some(self.segments + self.datagrams),
                dropped: Some(self.missed.div_ceil(packet::MOST as u64)),
            };
            let written = file.statistics(0, now, &counts);
            self.outcome(written)?;
        }
        self.flush()?;
        let cut = match self.cut {
            0 => String::new(),
            n => format!(", and what {n} connections sent last"),
        };
        let datagrams = match self.datagrams {
            0 => String::new(),
            n => format!(" and {n} datagrams"),
        };
        output::message(format_args!(
            "{} segments{datagrams}, {} octets missed{cut}",
            self.segments, self.missed
        ));
        Ok(())
    }
}

fn line(ns: u64, from: SocketAddr, to: SocketAddr, what: &str, bytes: &[u8]) -> String {
    const SHOWN: usize = 60;
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)])
        .chars()
        .map(|c| if output::steers(c) || c == char::REPLACEMENT_CHARACTER { '.' } else { c })
        .collect();
    let (s, us) = (ns / 1_000_000_000, ns / 1000 % 1_000_000);
    format!("{s}.{us:06} {from} > {to}: {what}  {text}")
}
