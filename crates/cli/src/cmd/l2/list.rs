//! `bypath l2 list`.

use crate::args::Json;
use crate::output::{self, Outcome};
use crate::raw;
use bypath::l2::{self, Interface};
use serde::Serialize;
use std::process::ExitCode;

/// Arguments of `bypath l2 list`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath l2 list            number, name, hardware address, MTU, state, speed of each interface\n  \
    bypath l2 list --json     the same for programs\n\n\
    Exit status: 0, 1 if the kernel cannot be asked, 2 for wrong usage.")]
pub struct Args {
    #[command(flatten)]
    json: Json,
}

/// An interface in JSON.
#[derive(Serialize)]
struct Record {
    index: u32,
    name: String,
    mac: String,
    mtu: u32,
    flags: u32,
    up: bool,
    carrier: Option<bool>,
    loopback: bool,
    ethernet: bool,
    queueing: String,
    speed_mbit_per_s: Option<u32>,
}

impl From<Interface> for Record {
    fn from(i: Interface) -> Record {
        Record {
            speed_mbit_per_s: i.speed(),
            index: i.index,
            mac: i.mac.to_string(),
            mtu: i.mtu,
            flags: i.flags,
            up: i.up,
            carrier: i.carrier,
            loopback: i.loopback,
            ethernet: i.ethernet,
            queueing: i.queueing,
            name: i.name,
        }
    }
}

impl Record {
    fn state(&self) -> &'static str {
        match (self.up, self.carrier) {
            (false, _) => "down",
            (true, Some(false)) => "no carrier",
            (true, _) => "up",
        }
    }

    fn kind(&self) -> &'static str {
        match (self.loopback, self.ethernet) {
            (true, _) => "loopback",
            (_, true) => "ethernet",
            _ => "other",
        }
    }
}

/// Lists them.
pub fn run(args: &Args) -> Outcome {
    let all: Vec<Record> = l2::interfaces().map_err(raw::failed)?.into_iter().map(Record::from).collect();
    if let Some(target) = args.json.target() {
        output::json(&target, &all)?;
        return Ok(ExitCode::SUCCESS);
    }
    const HEADING: [&str; 8] = ["INDEX", "NAME", "MAC", "MTU", "STATE", "KIND", "SPEED", "QUEUEING"];
    let mut table = output::table(&HEADING, &["INDEX", "MTU", "SPEED"]);
    for i in all {
        let speed = i.speed_mbit_per_s.map_or("-".to_owned(), |s| format!("{s} Mbit/s"));
        let (state, kind) = (i.state().to_owned(), i.kind().to_owned());
        let name = output::printable(&i.name);
        table.add_row([i.index.to_string(), name, i.mac, i.mtu.to_string(), state, kind, speed, i.queueing]);
    }
    output::print(&output::lines(&table))?;
    Ok(ExitCode::SUCCESS)
}
