//! `bypath ss -u`: UDP sockets.

use super::{DirectionRecord, Told, address, legend};
use crate::args::Json;
use crate::connections::Udp;
use crate::output::{self, Outcome};
use bypath_shm::view::DatagramCounts;
use serde::Serialize;
use std::process::ExitCode;

/// Prints them.
pub fn print(json: &Json, found: &[Udp], pid: Option<u32>, is_filtered: bool) -> Outcome {
    match json.target() {
        Some(target) => output::json(&target, &found.iter().map(Record::from).collect::<Vec<_>>())?,
        None if found.is_empty() => output::message(match pid {
            _ if is_filtered => "no UDP socket of programs under Bypath that the filter lets through".to_owned(),
            None => "no UDP sockets of programs under Bypath that were used (start them with: bypath run -- PROGRAM)"
                .to_owned(),
            Some(pid) => format!("process {pid} has no UDP sockets that were used; see: bypath why {pid}"),
        }),
        None => output::print(&text(found))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A socket in JSON.
#[derive(Serialize)]
struct Record<'a> {
    pid: u32,
    command: &'a str,
    fd: i32,
    protocol: &'static str,
    local: Option<String>,
    remote: Option<String>,
    path: String,
    reason: String,
    service: Option<&'a str>,
    tx: DirectionRecord,
    rx: DirectionRecord,
    datagrams: Both,
    bytes: Both,
    lost: Lost,
    routes: u32,
}

#[derive(Serialize)]
struct Both {
    ring_tx: u64,
    ring_rx: u64,
    kernel_tx: u64,
    kernel_rx: u64,
}

#[derive(Serialize)]
struct Lost {
    tx: u64,
    rx: u64,
}

impl<'a> From<&Udp<'a>> for Record<'a> {
    fn from(u: &Udp<'a>) -> Self {
        let s = u.socket;
        let DatagramCounts { ring, ring_bytes, kernel, kernel_bytes, lost } = s.tx;
        Record {
            pid: u.process.pid,
            command: &u.process.command,
            fd: s.fd,
            protocol: "udp",
            local: s.local.map(|a| a.to_string()),
            remote: s.remote.map(|a| a.to_string()),
            path: u.path_code(),
            reason: u.reason_code(),
            service: s.service.as_deref(),
            tx: DirectionRecord::of(s.service.as_deref(), s.outgoing),
            rx: DirectionRecord::of(s.service.as_deref(), s.incoming),
            datagrams: Both { ring_tx: ring, ring_rx: s.rx.ring, kernel_tx: kernel, kernel_rx: s.rx.kernel },
            bytes: Both {
                ring_tx: ring_bytes,
                ring_rx: s.rx.ring_bytes,
                kernel_tx: kernel_bytes,
                kernel_rx: s.rx.kernel_bytes,
            },
            lost: Lost { tx: lost, rx: s.rx.lost },
            routes: s.routes,
        }
    }
}

fn text(found: &[Udp]) -> String {
    const HEADING: [&str; 12] = [
        "PID",
        "COMMAND",
        "FD",
        "LOCAL",
        "REMOTE",
        "PATH",
        "REASON",
        "SENT RING",
        "SENT KERNEL",
        "RCVD RING",
        "RCVD KERNEL",
        "LOST",
    ];
    let numbers = ["PID", "FD", "SENT RING", "SENT KERNEL", "RCVD RING", "RCVD KERNEL", "LOST"];
    let mut table = output::table(&HEADING, &numbers);
    for u in found {
        let s = u.socket;
        table.add_row([
            u.process.pid.to_string(),
            output::printable(&u.process.command),
            s.fd.to_string(),
            address(s.local),
            address(s.remote),
            u.path_code(),
            u.reason_code(),
            s.tx.ring.to_string(),
            s.tx.kernel.to_string(),
            s.rx.ring.to_string(),
            s.rx.kernel.to_string(),
            s.tx.lost.saturating_add(s.rx.lost).to_string(),
        ]);
    }
    let sockets = found.iter().map(|u| u.socket);
    let told = sockets.map(|s| Told::of(s.service.as_deref(), [s.outgoing, s.incoming]));
    output::lines(&table) + &legend(told)
}
