//! `bypath netstack serve-http`: files of a folder by HTTP/1.1 (RFC 9110, RFC 9112), over the stack's own TCP.
//!
//! One thread turns the stack and every connection. There is no TLS, no compression, and nobody is asked who he is.

mod conditions;
mod connection;
mod files;
mod request;

use super::attach::{Attach, Host};
use crate::args::Json;
use crate::output::{self, Failure, Outcome};
use crate::raw::wait::Stop;
use bypath_netstack::Engine;
use bypath_stack::socket::SocketId;
use bypath_sys::clock;
use clap::ValueHint;
use connection::{Connection, Next, Turn};
use files::Folder;
use serde::Serialize;
use std::collections::{HashMap, VecDeque};
use std::net::{Ipv6Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

/// Arguments of `bypath netstack serve-http`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath netstack serve-http --link tap:bp0 --net 10.9.0.1/24 /srv/files &\n  \
    curl -O http://10.9.0.2/photo.jpg\n  \
    bypath netstack serve-http --link packet:eth0 --dhcp --port 8080 .\n\n\
    It ends with Ctrl-C, and prints what it counted. Whoever reaches the address gets every file in DIR that the command may \
    read; nothing outside of it, wherever symbolic links lead. A folder is its index.html, or a list of what is in it.\n\n\
    Exit status: 0, 1 if the folder, the link or the addresses cannot be used, 2 for wrong usage.")]
pub struct Args {
    #[command(flatten)]
    attach: Attach,

    /// Folder whose files are served
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: PathBuf,

    /// TCP port
    #[arg(long, value_name = "PORT", default_value_t = 80, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    #[command(flatten)]
    json: Json,
}

/// What is printed as JSON.
#[derive(Serialize, Default)]
struct Report {
    connections: u64,
    requests: u64,
    /// Requests that were answered by a file, or by a part of one, up to the end.
    files: u64,
    /// Octets of files.
    octets: u64,
    /// Requests that were answered by an error.
    refused: u64,
    /// Connections that ended in the middle of an answer.
    broken: u64,
}

/// A status and its name (RFC 9110, 15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status(u16, &'static str);

impl Status {
    const OK: Status = Status(200, "OK");
    const PART: Status = Status(206, "Partial Content");
    const ELSEWHERE: Status = Status(301, "Moved Permanently");
    const UNCHANGED: Status = Status(304, "Not Modified");
    const BAD: Status = Status(400, "Bad Request");
    const FORBIDDEN: Status = Status(403, "Forbidden");
    const NOT_FOUND: Status = Status(404, "Not Found");
    const METHOD: Status = Status(405, "Method Not Allowed");
    const FAILED_CONDITION: Status = Status(412, "Precondition Failed");
    const NO_SUCH_PART: Status = Status(416, "Range Not Satisfiable");
    const TOO_LONG: Status = Status(431, "Request Header Fields Too Large");
    const FAILED: Status = Status(500, "Internal Server Error");
    const BUSY: Status = Status(503, "Service Unavailable");
    const VERSION: Status = Status(505, "HTTP Version Not Supported");
}

/// Connections at most; others wait in the listener's queue.
const CONNECTIONS: usize = 512;
/// From so many on, each ends with its answer, so that those who wait have their turn.
const CROWD: usize = CONNECTIONS / 2;
/// Callers who wait at most.
const BACKLOG: usize = 128;
/// Octets of requests that wait to be read.
const RECEIVE_OCTETS: usize = 64 << 10;
/// Octets of a file that are read with one call.
const PIECE: usize = 256 << 10;
/// Longest sleep between two looks, and how often deadlines are looked at.
const LOOK_NS: u64 = 1_000_000_000;

struct Server {
    folder: Folder,
    listener: SocketId,
    connections: HashMap<SocketId, Connection>,
    /// Those that can go on, and those of which there is news, each once.
    ready: VecDeque<SocketId>,
    /// When deadlines are looked at (ns of the monotonic clock).
    look: u64,
    room: Vec<u8>,
    report: Report,
}

/// Serves files.
pub fn run(args: &Args) -> Outcome {
    let folder = Folder::open(&args.directory)
        .map_err(|e| Failure::new(1, format_args!("cannot serve {}: {e}", args.directory.display())))?;
    let stop = Stop::new()?;
    let Some(mut host) = args.attach.begin(&stop)? else { return Ok(ExitCode::SUCCESS) };
    let listener = listen(&mut host, args.port)?;
    let own = host.addresses();
    output::message(format_args!(
        "serving {} on {}, {own}, TCP port {}",
        args.directory.display(),
        host.name,
        args.port
    ));
    let mut server = Server {
        folder,
        listener,
        connections: HashMap::new(),
        ready: VecDeque::new(),
        look: 0,
        room: vec![0; PIECE],
        report: Report::default(),
    };
    let served = server.serve(&mut host, &stop);
    let report = server.end(&mut host);
    host.end();
    match args.json.target() {
        Some(target) => output::json(&target, &report)?,
        None => output::message(format_args!(
            "{} connections, {} requests, {} files, {} octets, {} refused, {} broken off",
            report.connections, report.requests, report.files, report.octets, report.refused, report.broken
        )),
    }
    served.map(|()| ExitCode::SUCCESS)
}

fn listen(host: &mut Host, port: u16) -> Result<SocketId, Failure> {
    let id = host.stack().open_tcp().map_err(|e| Failure::new(1, e))?;
    if let Some(mut tcp) = host.stack().tcp(id) {
        let mut settings = tcp.settings();
        // The end of a file does not wait for an acknowledgement.
        (settings.receive_octets, settings.nodelay) = (RECEIVE_OCTETS, true);
        tcp.set_settings(Engine::now(), settings);
        let failed = |e: &dyn std::fmt::Display| Failure::new(1, format_args!("port {port}: {e}"));
        tcp.bind(SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port)).map_err(|e| failed(&e))?;
        tcp.listen(BACKLOG).map_err(|e| failed(&e))?;
    }
    Ok(id)
}

impl Server {
    /// Until Ctrl-C.
    ///
    /// # Errors
    /// The link is gone.
    fn serve(&mut self, host: &mut Host, stop: &Stop) -> Result<(), Failure> {
        while !stop.asked() {
            let until = if self.ready.is_empty() { clock::monotonic_ns() + LOOK_NS } else { 0 };
            host.turn(stop, until)?;
            host.hear_of(|socket| self.queue(socket));
            self.turn(host);
        }
        Ok(())
    }

    /// Everybody of whom there is news has a turn.
    fn turn(&mut self, host: &mut Host) {
        let now = clock::monotonic_ns();
        if now >= self.look {
            self.look = now + LOOK_NS;
            let mut is_late = |c: &mut Connection| c.is_late(host.stack(), now);
            let late: Vec<SocketId> =
                self.connections.iter_mut().filter_map(|(id, c)| is_late(c).then_some(*id)).collect();
            late.into_iter().for_each(|id| self.close(host, id));
            // The memory that all have in common may have room again, which nobody is told of.
            let owed: Vec<SocketId> =
                self.connections.iter().filter(|(_, c)| c.is_owed()).map(|(id, _)| *id).collect();
            owed.into_iter().for_each(|id| self.queue(id));
        }
        self.accept(host, now);
        for _ in 0..self.ready.len() {
            let Some(id) = self.ready.pop_front() else { break };
            let keep = self.connections.len() < CROWD;
            let Some(connection) = self.connections.get_mut(&id) else { continue };
            connection.queued = false;
            let (folder, room, report) = (&self.folder, &mut self.room, &mut self.report);
            match connection.turn(&mut Turn { stack: host.stack(), folder, now, keep, room, report }) {
                Next::Wait => {}
                Next::Again => self.queue(id),
                Next::Over => self.close(host, id),
            }
        }
        self.accept(host, now);
    }

    fn accept(&mut self, host: &mut Host, now: u64) {
        while self.connections.len() < CONNECTIONS
            && let Some(mut tcp) = host.stack().tcp(self.listener)
            && let Ok(id) = tcp.accept()
        {
            self.report.connections += 1;
            self.connections.insert(id, Connection::new(id, now));
            self.queue(id);
        }
    }

    /// It has a turn, one however often that is said. Of the listener's news nothing is kept: it is asked each time.
    fn queue(&mut self, id: SocketId) {
        if let Some(connection) = self.connections.get_mut(&id)
            && !std::mem::replace(&mut connection.queued, true)
        {
            self.ready.push_back(id);
        }
    }

    fn close(&mut self, host: &mut Host, id: SocketId) {
        if self.connections.remove(&id).is_some_and(|connection| connection.is_owed()) {
            self.report.broken += 1;
            // Who is owed something shall see that it is not all.
            if let Some(mut tcp) = host.stack().tcp(id) {
                tcp.abort();
            }
        }
        host.stack().close(id);
    }

    /// Nobody is served any more.
    fn end(mut self, host: &mut Host) -> Report {
        host.stack().close(self.listener);
        let left: Vec<SocketId> = self.connections.keys().copied().collect();
        left.into_iter().for_each(|id| self.close(host, id));
        self.report
    }
}
