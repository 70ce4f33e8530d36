//! `bypath netstack capture`: the frames of a service's links, or of a link that it opens, in a file.

use super::attach::{Attach, Source, Stacks};
use super::found;
use crate::args::{Json, Target};
use crate::output::{self, Failure, Outcome};
use crate::raw::{self, values, wait::READ, wait::Stop};
use crate::written;
use bypath_netstack::service::{Client, QueryError};
use bypath_netstack::{Filter, TapCounts};
use bypath_sys::clock;
use clap::ValueHint;
use serde::Serialize;
use std::io::{self, ErrorKind, IsTerminal, Read, Write};
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Octets that are carried at once.
const PIECE: usize = 256 << 10;

/// Arguments of `bypath netstack capture`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --link the service writes down what passes its links, for root and the user who runs it. It waits for no \
    reader: what does not fit into 8 MiB while the file is slow is dropped, and counted. The kernel need not see these frames: of xdp: no \
    other capture does.\n\n\
    Examples:\n  \
    bypath netstack capture -w lab.pcapng                     until Ctrl-C\n  \
    bypath netstack capture --name lab --port 80 --count 100 -w -  | tshark -r -\n  \
    bypath netstack capture --link packet:eth0 --addr 10.0.0.9/24 --time 10s -w eth0.pcapng\n\n\
    Exit status: 0, 1 if the link, the service or the file cannot be used, 2 for wrong usage, 3 if frames were dropped."
)]
pub struct Args {
    #[command(flatten)]
    source: Source,

    /// The file (pcapng), which is begun anew; a new one has mode 0600; `-` is standard output
    #[arg(short = 'w', long = "write", value_name = "FILE", value_hint = ValueHint::FilePath)]
    write: PathBuf,

    /// Only this link of the service, where it has several
    #[arg(long, value_name = "NAME", conflicts_with = "link")]
    interface: Option<String>,

    /// Only frames from or to this address
    #[arg(long, value_name = "IP")]
    host: Option<IpAddr>,

    /// Only frames from or to this port of TCP or UDP
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,

    /// Only frames of this protocol: `tcp`, `udp`, `icmp`, `icmp6`, or its number
    #[arg(long, value_name = "PROTOCOL", value_parser = protocol)]
    protocol: Option<u8>,

    /// Octets of each frame that are written at most [default: all]
    #[arg(long, value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(14..))]
    snap: Option<u32>,

    /// End after so many frames
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after this time, such as 5s
    #[arg(long, value_name = "TIME", value_parser = values::period)]
    time: Option<Duration>,

    #[command(flatten)]
    json: Json,
}

fn protocol(text: &str) -> Result<u8, String> {
    match text {
        "icmp" => Ok(1),
        "tcp" => Ok(6),
        "udp" => Ok(17),
        "icmp6" => Ok(58),
        number => {
            number.parse().map_err(|_| "expected tcp, udp, icmp, icmp6, or a number up to 255".to_owned())
        }
    }
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    file: String,
    frames: u64,
    octets: u64,
    dropped: u64,
}

/// The file, begun with the first octets.
struct Sink<'a> {
    path: &'a Path,
    stop: &'a Stop,
    end: Option<u64>,
    out: Option<Box<dyn Write>>,
    /// Nobody reads it any more.
    unread: bool,
}

impl Sink<'_> {
    fn write(&mut self, octets: &[u8]) -> Result<(), Failure> {
        let failed =
            |e: io::Error| Failure::new(1, format_args!("cannot write {}: {e}", self.path.display()));
        let out = match &mut self.out {
            Some(out) => out,
            None if self.path == Path::new("-") => self.out.insert(Box::new(io::stdout())),
            None => {
                let is_over =
                    || self.stop.asked() || self.end.is_some_and(|end| clock::monotonic_ns() >= end);
                self.out
                    .insert(Box::new(written::create(self.path, written::PRIVATE, is_over).map_err(failed)?))
            }
        };
        match out.write_all(octets).and_then(|()| out.flush()) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => {
                self.unread = true;
                Ok(())
            }
            done => done.map_err(failed),
        }
    }
}

/// Writes frames until it is told to end.
pub fn run(args: &Args) -> Outcome {
    let to_stdout = args.write == Path::new("-");
    if to_stdout && io::stdout().is_terminal() {
        let text = "standard output is a terminal, and a capture is nothing to look at; name a file: -w FILE";
        return Err(Failure::new(2, text));
    }
    if to_stdout && args.json.target() == Some(Target::Stdout) {
        return Err(Failure::new(
            2,
            "the capture and the JSON would both go to standard output; name a file: --json=FILE",
        ));
    }
    let stop = Stop::new()?;
    let mut sink = Sink { path: &args.write, stop: &stop, end: args.end(), out: None, unread: false };
    let counts = match args.source.stack()? {
        Stacks::Own(attach) => match own(args, &attach, &mut sink, &stop)? {
            Some(counts) => counts,
            None => return Ok(ExitCode::SUCCESS),
        },
        Stacks::Service(name) => of_service(args, &name, &mut sink, &stop)?,
    };
    let TapCounts { frames, octets, dropped } = counts;
    let file = args.write.display().to_string();
    match args.json.target() {
        Some(target) => output::json(&target, &Report { file, frames, octets, dropped })?,
        None => output::message(format_args!(
            "{frames} frames ({}) in {file}, {dropped} dropped",
            output::bytes(octets)
        )),
    }
    Ok(if dropped > 0 { ExitCode::from(raw::LOST) } else { ExitCode::SUCCESS })
}

impl Args {
    const fn filter(&self) -> Filter {
        Filter { host: self.host, port: self.port, protocol: self.protocol }
    }

    fn snap(&self) -> Option<usize> {
        self.snap.map(|snap| snap as usize)
    }

    /// When it ends (ns of the monotonic clock).
    fn end(&self) -> Option<u64> {
        self.time.map(|time| clock::monotonic_ns().saturating_add(time.as_nanos() as u64))
    }
}

fn of_service(args: &Args, name: &str, sink: &mut Sink<'_>, stop: &Stop) -> Result<TapCounts, Failure> {
    let path = found::running_or(name, 1, "or say --link LINK, for a stack of the command's own")?;
    let failed = |e: QueryError| Failure::new(1, e);
    let capture =
        Client::at(&path).capture(args.interface.as_deref(), args.count, args.snap(), args.filter());
    let capture = capture.map_err(failed)?;
    let (end, mut ends) = (args.end(), false);
    let mut room = vec![0; PIECE];
    loop {
        if !ends {
            let ready = stop.wait([(capture.octets().as_fd(), READ)], end)[0];
            if stop.asked() || sink.unread || end.is_some_and(|end| clock::monotonic_ns() >= end) {
                capture.stop();
                ends = true;
            } else if !ready {
                continue;
            }
        }
        match capture.octets().read(&mut room) {
            Ok(0) => return capture.counts().map_err(failed),
            Ok(n) if !sink.unread => sink.write(&room[..n])?,
            Ok(_) => {}
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(Failure::new(1, e)),
        }
    }
}

/// Of a stack of the command's own. `None`: Ctrl-C came before it had its addresses.
fn own(args: &Args, attach: &Attach, sink: &mut Sink<'_>, stop: &Stop) -> Result<Option<TapCounts>, Failure> {
    let Some(mut host) = attach.begin(stop)? else { return Ok(None) };
    let tap = host.engine.begin_tap(None, args.filter(), args.count, args.snap().unwrap_or(usize::MAX));
    let tap = tap.map_err(|e| Failure::new(1, e))?;
    let end = args.end();
    let mut waiting = Vec::new();
    loop {
        let Some(seen) = host.engine.tap(tap) else { return Ok(None) };
        let over = stop.asked()
            || sink.unread
            || seen.is_complete()
            || end.is_some_and(|end| clock::monotonic_ns() >= end);
        if over {
            seen.end();
        }
        while !seen.is_empty() {
            // Into memory: that takes everything.
            seen.hand_on(&mut waiting).map_err(|e| Failure::new(1, e))?;
        }
        let counts = seen.counts();
        if !waiting.is_empty() && !sink.unread {
            sink.write(&waiting)?;
        }
        waiting.clear();
        if over {
            host.end();
            return Ok(Some(counts));
        }
        host.turn(stop, end.unwrap_or(u64::MAX))?;
        host.hear()?;
    }
}
