//! Hands the results over: JSON where it was asked for, otherwise (or also) text.

use super::args::Common;
use super::machine::Machine;
use super::record::{Record, Status};
use crate::args::Target;
use crate::output::{self, Outcome};
use crate::raw;
use serde::Serialize;
use std::process::ExitCode;

#[derive(Serialize)]
struct Document<'a, R: Serialize> {
    schema: u32,
    machine: &'a Machine,
    results: Vec<R>,
}

/// The records as JSON.
pub fn document(machine: &Machine, records: &[Record]) -> Vec<u8> {
    let results = records.iter().map(Record::document).collect();
    let document = Document { schema: 1, machine, results };
    let mut bytes = serde_json::to_vec_pretty(&document).expect("plain data");
    bytes.push(b'\n');
    bytes
}

/// Writes them. The exit status tells a run that was interrupted (not `whole`), and is a failure if a figure failed (not if
/// one was skipped).
pub fn write(common: &Common, machine: &Machine, records: &[Record], text: &str, whole: bool) -> Outcome {
    let target = common.json.target();
    if let Some(target) = &target {
        output::write_to(target, &document(machine, records))?;
    }
    if target != Some(Target::Stdout) {
        output::print(text)?;
    }
    if !whole {
        output::message("bench: interrupted; what was measured by then is told, and no target judged by it");
        return Ok(ExitCode::from(raw::LOST));
    }
    let failed = records.iter().filter(|r| r.status == Status::Failed).count();
    if failed > 0 {
        output::message(format_args!("bench: {failed} figures failed; the reasons stand with them"));
        return Ok(ExitCode::FAILURE);
    }
    Ok(ExitCode::SUCCESS)
}
