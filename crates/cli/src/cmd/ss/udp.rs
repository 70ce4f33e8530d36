//! `bypath ss -u`: UDP sockets.

use super::{DirectionRecord, Told, address, columns, legend};
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
    pair_tx: u64,
    pair_rx: u64,
}

impl Both {
    /// Sent and received by rings, and otherwise: by the kernel, or by the pair that a service's socket is.
    const fn of((ring_tx, ring_rx): (u64, u64), (tx, rx): (u64, u64), pair: bool) -> Both {
        let ((kernel_tx, kernel_rx), (pair_tx, pair_rx)) =
            if pair { ((0, 0), (tx, rx)) } else { ((tx, rx), (0, 0)) };
        Both { ring_tx, ring_rx, kernel_tx, kernel_rx, pair_tx, pair_rx }
    }
}

#[derive(Serialize)]
struct Lost {
    /// At the mailboxes that it sends to.
    tx: u64,
    /// At its own mailbox.
    rx: u64,
    /// In its queue in the kernel.
    kernel: u64,
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
            datagrams: Both::of((ring, s.rx.ring), (kernel, s.rx.kernel), s.service.is_some()),
            bytes: Both::of(
                (ring_bytes, s.rx.ring_bytes),
                (kernel_bytes, s.rx.kernel_bytes),
                s.service.is_some(),
            ),
            lost: Lost { tx: lost, rx: s.rx.lost, kernel: u.dropped },
            routes: s.routes,
        }
    }
}

fn text(found: &[Udp]) -> String {
    let pairs = found.iter().any(|u| u.socket.service.is_some());
    let mut headings = vec!["PID", "COMMAND", "FD", "LOCAL", "REMOTE", "PATH", "REASON"];
    headings.extend(columns(pairs));
    headings.push("LOST");
    let numbers = [&["PID", "FD"], &headings[7..]].concat();
    let mut table = output::table(&headings, &numbers);
    for u in found {
        let s = u.socket;
        let mut cells = vec![
            u.process.pid.to_string(),
            output::printable(&u.process.command),
            s.fd.to_string(),
            address(s.local),
            address(s.remote),
            u.path_code(),
            u.reason_code(),
        ];
        let n = Both::of((s.tx.ring, s.rx.ring), (s.tx.kernel, s.rx.kernel), s.service.is_some());
        let moved = [[n.ring_tx, n.kernel_tx, n.pair_tx], [n.ring_rx, n.kernel_rx, n.pair_rx]];
        cells.extend(moved.iter().flat_map(|way| &way[..if pairs { 3 } else { 2 }]).map(u64::to_string));
        cells.push(u.lost().to_string());
        table.add_row(cells);
    }
    let sockets = found.iter().map(|u| u.socket);
    let told = sockets.map(|s| Told::of(s.service.as_deref(), [s.outgoing, s.incoming]));
    output::lines(&table) + &legend(told)
}
