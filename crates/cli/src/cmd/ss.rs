//! `bypath ss`.

mod listening;
mod udp;

use crate::args::Json;
use crate::connections::{self, Connection, Scan};
use crate::filter::Filter;
use crate::output::{self, Failure, Outcome};
use crate::subject::out_of_reach;
use bypath_shm::reason::Reason;
use bypath_shm::stats::Bytes;
use bypath_shm::view::Direction;
use bypath_sys::process::shown_thread;
use serde::Serialize;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::process::ExitCode;

/// Arguments of `bypath ss`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath ss\n  \
    bypath ss --pid 1234\n  \
    bypath ss -u                           UDP sockets: datagrams by each path, and those lost\n  \
    bypath ss -l                           sockets of netstack services that listen\n  \
    bypath ss dport = :6379 and not comm redis-cli\n  \
    bypath ss --json | jq '.[] | select(.path == \"ring\")'\n\n\
    A connection stands once for each process that holds it. PATH and REASON have one word, or two\n\
    (sending/receiving) if the directions differ. IN RING: bytes sent that wait in shared memory. Of sockets of a netstack\n\
    service PATH is netstack:ring, or netstack:pair where bytes go by the descriptor itself (SENT PAIR, RCVD PAIR).\n\
    FILTER is as for ss and tcpdump: [src|dst] host|net|port|portrange VALUE, sport and dport with = != < > <= >=, pid, comm, path,\n\
    reason, tcp, udp, ip, ip6; and, or, not, parentheses (which the shell must not see). The source is the local end.\n\n\
    Exit status: 0, also if there are no connections; 1 if PID does not exist, or may not be looked\n\
    into; 2 for wrong usage.")]
pub struct Args {
    #[command(flatten)]
    json: Json,

    /// UDP sockets, in place of TCP connections
    #[arg(short, long)]
    udp: bool,

    /// Sockets of netstack services that listen, in place of connections
    #[arg(short, long, conflicts_with = "udp")]
    listening: bool,

    /// Only the connections of this process
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    pid: Option<u32>,

    /// Only what this lets through, such as: port 80 and not host 10.0.0.1
    #[arg(value_name = "FILTER", trailing_var_arg = true)]
    filter: Vec<String>,
}

/// Prints the connections.
pub fn run(args: Args) -> Outcome {
    if let Some(pid) = args.pid
        && !connections::exists(pid)
    {
        return Err(Failure::new(1, format_args!("there is no process {pid}")));
    }
    if let Some(pid) = args.pid
        && let Err(e) = std::fs::read_dir(format!("/proc/{}/fd", shown_thread(pid)))
    {
        let why = format_args!("process {pid} cannot be looked into: {e} ({})", out_of_reach());
        return Err(Failure::new(1, why));
    }
    let filter = Filter::read(&args.filter).map_err(|e| Failure::new(2, format_args!("the filter: {e}")))?;
    if args.listening {
        return listening::print(&args.json, args.pid, filter.as_ref());
    }
    let scan = scan()?;
    if args.udp {
        let mut found = scan.udp();
        found.retain(|u| args.pid.is_none_or(|pid| u.process.pid == pid));
        found.retain(|u| filter.as_ref().is_none_or(|filter| u.passes(filter)));
        return udp::print(&args.json, &found, args.pid, filter.is_some());
    }
    let mut found = scan.connections();
    found.retain(|c| args.pid.is_none_or(|pid| c.process.pid == pid));
    found.retain(|c| filter.as_ref().is_none_or(|filter| c.passes(filter)));
    match args.json.target() {
        Some(target) => output::json(&target, &found.iter().map(Record::from).collect::<Vec<_>>())?,
        None => output::print(&text(&found))?,
    }
    if found.is_empty() && args.json.target().is_none() {
        output::message(match args.pid {
            _ if filter.is_some() => {
                "no connection of programs under Bypath that the filter lets through".to_owned()
            }
            None => {
                "no connections of programs under Bypath (start them with: bypath run -- PROGRAM)".to_owned()
            }
            Some(pid) => {
                format!("process {pid} has no connections that Bypath follows; see: bypath why {pid}")
            }
        });
    }
    Ok(ExitCode::SUCCESS)
}

/// Scans, and tells on standard error what could not be seen.
pub fn scan() -> Result<Scan, Failure> {
    let scan = connections::scan()
        .map_err(|e| Failure::new(1, format_args!("cannot list processes in /proc: {e}")))?;
    tell_unseen(&scan);
    Ok(scan)
}

/// Tells on standard error what could not be seen.
pub fn tell_unseen(scan: &Scan) {
    for note in &scan.notes {
        output::message(format_args!("note: {note}"));
    }
    if scan.unreadable > 0 {
        let n = scan.unreadable;
        let (noun, verb) = if n == 1 { ("process", "belongs") } else { ("processes", "belong") };
        output::message(format_args!(
            "note: {n} {noun} {verb} to other users and cannot be read; root sees all"
        ));
    }
}

/// A connection in JSON: stable codes and numbers only.
#[derive(Serialize)]
struct Record<'a> {
    pid: u32,
    command: &'a str,
    fd: i32,
    local: Option<String>,
    remote: Option<String>,
    path: String,
    reason: String,
    service: Option<&'a str>,
    tx: DirectionRecord,
    rx: DirectionRecord,
    bytes: BytesRecord,
    ring_size: Option<u32>,
    ring_fill: FillRecord,
    holders: usize,
}

#[derive(Serialize)]
struct DirectionRecord {
    path: &'static str,
    reason: &'static str,
}

#[derive(Serialize)]
struct FillRecord {
    tx: Option<u64>,
    rx: Option<u64>,
}

/// Byte counters in JSON, as in `bypath stats`.
#[derive(Serialize)]
pub struct BytesRecord {
    ring_tx: u64,
    ring_rx: u64,
    kernel_tx: u64,
    kernel_rx: u64,
    pair_tx: u64,
    pair_rx: u64,
}

impl From<Bytes> for BytesRecord {
    fn from(b: Bytes) -> Self {
        let Bytes { ring_tx, ring_rx, kernel_tx, kernel_rx, pair_tx, pair_rx } = b;
        BytesRecord { ring_tx, ring_rx, kernel_tx, kernel_rx, pair_tx, pair_rx }
    }
}

impl DirectionRecord {
    fn of(service: Option<&str>, d: Direction) -> DirectionRecord {
        DirectionRecord { path: connections::path_word(service, d.path), reason: connections::reason_code(d) }
    }
}

/// An address in a table.
fn address(address: Option<SocketAddr>) -> String {
    address.map_or("-".to_owned(), |a| a.to_string())
}

impl<'a> From<&Connection<'a>> for Record<'a> {
    fn from(c: &Connection<'a>) -> Self {
        Record {
            pid: c.process.pid,
            command: &c.process.command,
            fd: c.end.fd,
            local: c.end.local.map(|a| a.to_string()),
            remote: c.end.remote.map(|a| a.to_string()),
            path: c.path_code(),
            reason: c.reason_code(),
            service: c.end.service.as_deref(),
            tx: DirectionRecord::of(c.end.service.as_deref(), c.end.outgoing),
            rx: DirectionRecord::of(c.end.service.as_deref(), c.end.incoming),
            bytes: c.bytes().into(),
            ring_size: c.end.ring_size,
            ring_fill: FillRecord { tx: c.outgoing_fill, rx: c.incoming_fill },
            holders: c.holders,
        }
    }
}

/// What was moved by each path. `pairs`: sockets of netstack services are among them, which have a descriptor of another kind.
pub fn columns(pairs: bool) -> &'static [&'static str] {
    match pairs {
        false => &["SENT RING", "SENT KERNEL", "RCVD RING", "RCVD KERNEL"],
        true => &["SENT RING", "SENT KERNEL", "SENT PAIR", "RCVD RING", "RCVD KERNEL", "RCVD PAIR"],
    }
}

/// What stands in these columns.
pub fn cells(b: Bytes, pairs: bool) -> Vec<u64> {
    let moved = [[b.ring_tx, b.kernel_tx, b.pair_tx], [b.ring_rx, b.kernel_rx, b.pair_rx]];
    moved.into_iter().flat_map(|way| way.into_iter().take(if pairs { 3 } else { 2 })).collect()
}

fn text(found: &[Connection]) -> String {
    if found.is_empty() {
        return String::new();
    }
    let pairs = found.iter().any(|c| c.end.service.is_some());
    let mut headings = vec!["PID", "COMMAND", "FD", "LOCAL", "REMOTE", "PATH", "REASON"];
    headings.extend(columns(pairs));
    headings.push("IN RING");
    let numbers = [&["PID", "FD"], &headings[7..]].concat();
    let mut table = output::table(&headings, &numbers);
    for c in found {
        let b = c.bytes();
        let mut cells = vec![
            c.process.pid.to_string(),
            output::printable(&c.process.command),
            c.end.fd.to_string(),
            address(c.end.local),
            address(c.end.remote),
            c.path_code(),
            c.reason_code(),
        ];
        cells.extend(self::cells(b, pairs).into_iter().map(output::bytes));
        cells.push(c.outgoing_fill.map_or("-".to_owned(), output::bytes));
        table.add_row(cells);
    }
    let mut text = output::lines(&table);
    text +=
        &legend(found.iter().map(|c| Told::of(c.end.service.as_deref(), [c.end.outgoing, c.end.incoming])));
    text
}

/// What a table tells of a socket in words that need a legend.
pub struct Told<'a> {
    service: Option<&'a str>,
    reasons: [Option<Reason>; 2],
}

impl<'a> Told<'a> {
    /// Of one socket.
    pub fn of(service: Option<&'a str>, directions: [Direction; 2]) -> Told<'a> {
        Told { service, reasons: directions.map(|d| d.reason) }
    }
}

impl From<Reason> for Told<'_> {
    fn from(reason: Reason) -> Self {
        Told { service: None, reasons: [Some(reason), None] }
    }
}

/// What the reason codes and services in a table mean, a line each.
pub fn legend<'a>(all: impl Iterator<Item = Told<'a>>) -> String {
    let (mut seen, mut services) = (Vec::new(), BTreeSet::new());
    for Told { service, reasons } in all {
        services.extend(service);
        seen.extend(
            reasons.into_iter().flatten().map(|r| (r as u16, r.code(), connections::reason_text(service, r))),
        );
    }
    seen.sort_unstable();
    seen.dedup();
    let mut lines: String = seen.iter().map(|(_, code, text)| format!("{code}: {text}\n")).collect();
    for name in services {
        lines += &format!(
            "netstack: a socket of the netstack service {name}; see: bypath netstack sockets --name {name}\n"
        );
    }
    if lines.is_empty() { lines } else { format!("\n{lines}") }
}
