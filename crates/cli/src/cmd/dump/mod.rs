//! `bypath dump`: what goes through the rings of programs, as packets for Wireshark, or as lines.
//!
//! The programs do nothing for it and know nothing of it: their memory is read from outside (`memory`), beside their own
//! reading and writing (`tap`). What was overwritten before it could be read is told, and counted.

mod memory;
mod packet;
mod tap;

use crate::connections::{self, Connection, Scan};
use crate::ending;
use crate::output::{self, Failure, Outcome};
use bypath::clock::{monotonic_ns, realtime_ns};
use bypath::link::pcapng::writer::Frame;
use bypath::link::pcapng::{Counts, Writer};
use clap::ValueHint;
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, IsTerminal as _, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tap::{News, Over, Tap};

/// Arguments of `bypath dump`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath dump --port 6379                     a line for each piece that goes through a ring\n  \
    bypath dump -w /tmp/rings.pcapng --pid 1234\n  \
    bypath dump -w - --port 8080 | tshark -r - -d tcp.port==8080,http\n\n\
    There are no packets in a ring: what is found there is cut into segments, with sequence numbers that count the ring's\n\
    bytes. What goes through the kernel, such as the first bytes of a connection, tcpdump sees. Rings are read from outside\n\
    while programs use them: bytes that were overwritten before they could be read are a gap in the numbers, counted as\n\
    dropped. It takes the rights of a debugger: root, or the same user where yama's ptrace_scope is 0.\n\n\
    Exit status: 0; 1 if the file cannot be written, the process does not exist or may not be read; 2 for wrong usage.")]
pub struct Args {
    /// Write a capture file (pcapng); `-` is standard output
    #[arg(short, long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    write: Option<PathBuf>,

    /// Only connections of this process
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Only connections from or to this port
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// End after so many segments
    #[arg(short, long, value_name = "NUMBER", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    seconds: Option<u64>,
}

/// How often new connections are looked for.
const LOOK_NS: u64 = 200_000_000;
/// For so long after the last news rings are looked at without a pause.
const EAGER_NS: u64 = 200_000;
/// Longest pause between two looks.
const PAUSE: Duration = Duration::from_micros(500);

/// Follows until it is told to end.
pub fn run(args: &Args) -> Outcome {
    if let Some(pid) = args.pid
        && connections::start_time(pid).is_none()
    {
        return Err(Failure::new(1, format_args!("there is no process {pid}")));
    }
    let asked = Arc::new(AtomicBool::new(false));
    ending::watch(&asked).map_err(|e| Failure::new(1, e))?;
    let mut out = Out::create(args.write.as_deref())?;
    let mut taps = Taps::default();
    let begun = monotonic_ns();
    let end = args.seconds.map(|s| begun.saturating_add(s.saturating_mul(1_000_000_000)));
    let (mut look, mut news) = (begun, begun);
    let mut room = Vec::new();
    while !asked.load(Relaxed) && !out.unread && args.count.is_none_or(|n| out.segments < n) {
        let now = monotonic_ns();
        if end.is_some_and(|end| now >= end) {
            break;
        }
        if now >= look {
            taps.discover(args)?;
            out.flush()?;
            look = monotonic_ns() + LOOK_NS;
        }
        if taps.look(&mut out, &mut room, args.count)? {
            news = monotonic_ns();
        } else if now.saturating_sub(news) > EAGER_NS {
            std::thread::sleep(PAUSE.min(Duration::from_nanos((now - news) / 4)));
        }
    }
    // What was there when it was asked to end.
    taps.look(&mut out, &mut room, args.count)?;
    out.end(begun)?;
    Ok(ExitCode::SUCCESS)
}

/// What is followed.
#[derive(Default)]
struct Taps {
    open: Vec<Tap>,
    /// Up to where connections were known that are followed no longer in the memory of one process: perhaps in that of another.
    known: HashMap<[u64; 2], [Option<u64>; 2]>,
}

impl Taps {
    /// Looks for connections on rings that are not followed yet.
    fn discover(&mut self, args: &Args) -> Result<(), Failure> {
        let scan = connections::scan()
            .map_err(|e| Failure::new(1, format_args!("cannot list processes in /proc: {e}")))?;
        let all = scan.connections();
        // A connection is wanted if either of its ends is.
        let wanted = |c: &Connection| {
            let port = |p| [c.end.local, c.end.remote].iter().flatten().any(|a| a.port() == p);
            args.pid.is_none_or(|pid| c.process.pid == pid) && args.port.is_none_or(port)
        };
        for c in all.iter().filter(|c| wanted(c)) {
            if let (Some(own), Some(other), Some(ring)) = (c.end.cookie, c.end.peer_cookie, c.end.ring_size) {
                if self.open.iter().any(|tap| tap.cookies.contains(&own) && tap.cookies.contains(&other)) {
                    continue;
                }
                if let Some(tap) = self.tap(&scan, c, [own, other], ring)? {
                    self.open.push(tap);
                }
            }
        }
        // Of connections that are no more nothing need be known.
        self.known.retain(|cookies, _| cookies.iter().any(|cookie| scan.socket(*cookie).is_some()));
        Ok(())
    }

    fn tap(
        &mut self,
        scan: &Scan,
        c: &Connection,
        ends: [u64; 2],
        ring: u32,
    ) -> Result<Option<Tap>, Failure> {
        let pid = c.process.pid;
        let Ok(arenas) = memory::arenas(pid) else { return Ok(None) };
        for arena in arenas {
            for cookies in [ends, [ends[1], ends[0]]] {
                let place = match memory::find(pid, arena, ring, cookies) {
                    Ok(Some(place)) => place,
                    Err(nix::Error::EPERM) => return Err(forbidden(pid)),
                    // It goes, or was given back just now.
                    Ok(None) | Err(_) => continue,
                };
                let sockets = cookies.map(|cookie| scan.socket(cookie));
                let address = |which: usize| {
                    let own = sockets[which].and_then(|(_, end)| end.local);
                    own.or_else(|| sockets[1 - which].and_then(|(_, end)| end.remote))
                };
                let (Some(dialler), Some(accepter)) = (address(0), address(1)) else { return Ok(None) };
                return Ok(Some(Tap {
                    pid,
                    place,
                    cookies,
                    addresses: [dialler, accepter],
                    writers: sockets.map(|socket| socket.and_then(|(family, end)| family.writer(end).ok())),
                    seen: self.known.get(&cookies).copied().unwrap_or_default(),
                    backed: [u64::MAX; 2],
                }));
            }
        }
        Ok(None)
    }

    /// Looks at every ring once; whether there was anything.
    fn look(&mut self, out: &mut Out, room: &mut Vec<u8>, most: Option<u64>) -> Result<bool, Failure> {
        let mut any = false;
        let mut at = 0;
        while at < self.open.len() {
            let tap = &mut self.open[at];
            let mut over = None;
            for d in [0, 1] {
                match tap.look(d, room) {
                    Ok(None) => {}
                    Ok(Some(news)) => {
                        any = true;
                        let answered = tap.seen[1 - d].unwrap_or(0);
                        out.news([tap.addresses[d], tap.addresses[1 - d]], answered, &news, most)?;
                    }
                    Err(why) => over = Some(why),
                }
            }
            match over {
                None => at += 1,
                Some(Over::Forbidden) => return Err(forbidden(tap.pid)),
                Some(Over::Closed) => {
                    let tap = self.open.swap_remove(at);
                    self.known.insert(tap.cookies, tap.seen);
                }
            }
        }
        Ok(any)
    }
}

fn forbidden(pid: u32) -> Failure {
    Failure::new(
        1,
        format_args!(
            "process {pid} may not be looked into: run this as root, or see: bypath doctor (ptrace)"
        ),
    )
}

/// Where what was found goes.
struct Out {
    file: Option<Writer<BufWriter<Box<dyn Write>>>>,
    name: String,
    segments: u64,
    missed: u64,
    unread: bool,
    frame: Vec<u8>,
}

impl Out {
    fn create(path: Option<&Path>) -> Result<Out, Failure> {
        let name = path.map_or("standard output".to_owned(), |p| p.display().to_string());
        let mut out = Out { file: None, name, segments: 0, missed: 0, unread: false, frame: Vec::new() };
        let Some(path) = path else { return Ok(out) };
        let failed = |e: io::Error| Failure::new(1, format_args!("cannot write {}: {e}", path.display()));
        let inner: Box<dyn Write> = if path != Path::new("-") {
            Box::new(File::create(path).map_err(failed)?)
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
                usize::MAX,
            )?;
            let comment =
                "segments made of what went through rings; a gap is what was overwritten before it was read";
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

    fn news(
        &mut self,
        [from, to]: [std::net::SocketAddr; 2],
        answered: u64,
        news: &News,
        most: Option<u64>,
    ) -> Result<(), Failure> {
        let ns = realtime_ns();
        let mut missed = news.missed;
        self.missed = self.missed.saturating_add(missed);
        // What was missed is told even if nothing is left to show.
        let empty = news.bytes.is_empty().then_some(&[][..]);
        let mut position = news.position;
        for piece in news.bytes.chunks(packet::MOST).chain(empty) {
            if self.unread || most.is_some_and(|most| self.segments >= most) {
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
                    let line = line(ns, from, to, position, piece);
                    io::stdout().lock().write_all(format!("{gap}{line}\n").as_bytes())
                }
            };
            self.outcome(written)?;
            position += piece.len() as u64;
            self.segments += 1;
        }
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
                received: Some(self.segments),
                dropped: Some(self.missed.div_ceil(packet::MOST as u64)),
            };
            let written = file.statistics(0, now, &counts);
            self.outcome(written)?;
        }
        self.flush()?;
        output::message(format_args!("{} segments, {} octets missed", self.segments, self.missed));
        Ok(())
    }
}

fn line(
    ns: u64,
    from: std::net::SocketAddr,
    to: std::net::SocketAddr,
    position: u64,
    bytes: &[u8],
) -> String {
    const SHOWN: usize = 60;
    let text: String = String::from_utf8_lossy(&bytes[..bytes.len().min(SHOWN)])
        .chars()
        .map(|c| if c.is_control() || c == char::REPLACEMENT_CHARACTER { '.' } else { c })
        .collect();
    let (s, us) = (ns / 1_000_000_000, ns / 1000 % 1_000_000);
    format!("{s}.{us:06} {from} > {to}: {} at {position}  {text}", bytes.len())
}
