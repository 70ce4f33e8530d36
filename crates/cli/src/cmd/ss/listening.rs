//! `bypath ss -l`: listening sockets of netstack services.

use super::address;
use crate::args::Json;
use crate::filter::{Facts, Filter, Protocol};
use crate::listening::{self, Listening};
use crate::output::{self, Failure, Outcome};
use std::process::ExitCode;

/// Prints them.
pub fn print(json: &Json, pid: Option<u32>, filter: Option<&Filter>) -> Outcome {
    let (mut found, notes) = listening::find();
    for note in notes {
        output::message(format_args!("note: {note}"));
    }
    found.retain(|l| pid.is_none() || l.pid == pid);
    found.retain(|l| filter.is_none_or(|filter| passes(l, filter)));
    match json.target() {
        Some(target) => output::json(&target, &found)?,
        None if found.is_empty() => output::message(
            "no listening sockets of netstack services; those of the kernel, under Bypath or not: ss -l",
        ),
        None => print_table(&found)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn passes(socket: &Listening, filter: &Filter) -> bool {
    let process = socket.pid.zip(socket.command.as_deref());
    filter.passes(&Facts {
        protocol: Protocol::Tcp,
        source: socket.local,
        destination: None,
        processes: process.as_slice(),
        path: "netstack",
        reason: "",
    })
}

fn print_table(found: &[Listening]) -> Result<(), Failure> {
    let heading = ["PID", "COMMAND", "FD", "LOCAL", "SERVICE", "COOKIE"];
    let shown = |n: Option<String>| n.unwrap_or_else(|| "-".to_owned());
    let cells = |l: &Listening| {
        vec![
            shown(l.pid.map(|pid| pid.to_string())),
            shown(l.command.as_deref().map(output::printable)),
            shown(l.fd.map(|fd| fd.to_string())),
            address(l.local),
            l.service.clone(),
            l.cookie.clone(),
        ]
    };
    output::long_table(&heading, &["PID", "FD"], found, cells, output::print)
}
