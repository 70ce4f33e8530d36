//! `bypath bench tun`: UDP through a TUN device, in the classic ways, in their naive versions, and in super-packets. What
//! counts is what a kernel's socket received.

mod naive; //     as programs usually do it
mod prototype; // the same system calls in plain C
mod receive; //   what the kernel sends, read from the device
mod report; //    tables and what follows from them; the targets
mod send; //      what we write, received by a socket
mod stage; //     device and socket

use super::args::Common;
use super::child::interrupted;
use super::context::{Context, Job};
use super::{c_program, output, raw};
use crate::args::Json;
use crate::output::{Failure, Outcome};
use clap::ValueEnum;
use std::path::PathBuf;

/// Arguments of `bypath bench tun`.
#[derive(clap::Args, Clone, Debug)]
pub struct TunArgs {
    /// End within 30 seconds: one round, shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Rounds; in each, every subject has one run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Length of a run in seconds
    #[arg(long, value_name = "S", value_parser = super::args::seconds)]
    pub seconds: Option<f64>,
    /// Only this case (may be given several times)
    #[arg(long = "case", value_name = "CASE", value_enum)]
    pub cases: Vec<Case>,
    /// Octets of payload (may be given several times)
    #[arg(long = "size", value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(16..=65_507))]
    pub sizes: Vec<u32>,
    /// Write tables and an HTML page into this directory; a section is added to a page of `bench raw` that is there
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub report: Option<PathBuf>,
    /// Where the records go (a file beside the tables, standard output instead of them).
    #[command(flatten)]
    pub json: Json,
    /// This is the bench in its own namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// Cases of `bypath bench tun`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Datagrams written into the device
    Send,
    /// Datagrams read from the device
    Receive,
    /// Twenty datagrams of each size, in microseconds together
    #[value(name = "burst-20")]
    Burst20,
}

/// Payloads: 1 to 32 KB.
pub const SIZES: [usize; 5] = [1024, 4096, 8192, 16_384, 32_768];

/// Measures and prints.
pub fn run(args: &TunArgs) -> Outcome {
    let fail = |e: String| Failure::new(1, e);
    if !args.inside {
        return raw::inside_namespaces().map_err(fail);
    }
    // A bench without the program that the user started is of no use.
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
    let common = Common {
        quick: args.quick,
        rounds: args.rounds.or(args.quick.then_some(1)),
        seconds: args.seconds.or(Some(if args.quick { 0.1 } else { 0.3 })),
        profile: String::new(),
        json: args.json.clone(),
    };
    let context = Context::new(&common).map_err(fail)?;
    // Without a device nothing is measured, and what is missing is told once.
    drop(stage::device().map_err(|e| Failure::new(1, e))?);
    pin(&context);
    let records = context.measure(&plan(args, &context)).records();
    let whole = !interrupted();
    let everything = args.cases.is_empty() && args.sizes.is_empty();
    // Figures of a part of the runs are no ground for a verdict.
    let checks = if whole { report::check(&records) } else { Vec::new() };
    let section = report::section(&context.machine, &records);
    let mut text = section.text();
    text += &super::table::targets(&checks, everything);
    if let Some(folder) = &args.report {
        let document = output::document(&context.machine, &records);
        section.write(folder, &checks, &document).map_err(fail)?;
        text += &format!("\nreport: {}\n", folder.join("report.html").display());
    }
    output::write(&common, &context.machine, &records, &text, whole)
}

/// Stays on one core: the kernel's way from the device to the socket is part of the write.
fn pin(context: &Context) {
    if let Some(core) = context.core(1) {
        let mut set = nix::sched::CpuSet::new();
        if set.set(core).is_ok() {
            // Where it is not allowed figures are less steady, not wrong.
            let _ = nix::sched::sched_setaffinity(nix::unistd::Pid::from_raw(0), &set);
        }
    }
}

fn plan(args: &TunArgs, context: &Context) -> Vec<Vec<Box<dyn Job>>> {
    let wanted = |case: Case| args.cases.is_empty() || args.cases.contains(&case);
    let sizes: Vec<usize> =
        if args.sizes.is_empty() { SIZES.to_vec() } else { args.sizes.iter().map(|&s| s as usize).collect() };
    let program = c_program::compile(context, "tun", prototype::SOURCE);
    let mut groups: Vec<Vec<Box<dyn Job>>> = Vec::new();
    for &size in &sizes {
        if wanted(Case::Send) {
            let mut group: Vec<Box<dyn Job>> = Vec::new();
            for subject in send::Subject::ALL {
                group.push(Box::new(send::Send { subject, size, burst: false }));
                if matches!(subject, send::Subject::Assemble | send::Subject::Writev) {
                    group.push(Box::new(prototype::Bare { subject, size, program: program.clone() }));
                }
            }
            groups.push(group);
        }
        if wanted(Case::Receive) {
            let job = |together| Box::new(receive::Receive { together, size }) as Box<dyn Job>;
            groups.push([false, true].map(job).into());
        }
        if wanted(Case::Burst20) {
            let job = |subject| Box::new(send::Send { subject, size, burst: true }) as Box<dyn Job>;
            groups.push(send::Subject::ALL.map(job).into());
        }
    }
    groups
}
