//! `bypath bench roce`: RoCEv2 packets built with their ICRC, on one core; RDMA WRITE between two processes over a veth pair.

mod build; //  packets in memory
mod report; // tables; the targets
mod write; //  a transfer by the tools themselves

use super::args::Common;
use super::child::interrupted;
use super::context::{Context, Job};
use super::record::Figure;
use super::{output, raw};
use crate::args::Json;
use crate::output::{Failure, Outcome};
use bypath_sys::netns;
use clap::ValueEnum;
use std::path::PathBuf;

/// Arguments of `bypath bench roce`.
#[derive(clap::Args, Clone, Debug)]
pub struct RoceArgs {
    /// End within 30 seconds: one round, shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Rounds; in each, every subject has one run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Length of a run that builds packets, in seconds
    #[arg(long, value_name = "S", value_parser = super::args::seconds)]
    pub seconds: Option<f64>,
    /// Only this case (may be given several times)
    #[arg(long = "case", value_name = "CASE", value_enum)]
    pub cases: Vec<Case>,
    /// Write tables and an HTML page into this directory; a section is added to a page of another bench that is there
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub report: Option<PathBuf>,
    /// Where the records go (a file beside the tables, standard output instead of them).
    #[command(flatten)]
    pub json: Json,
    /// This is the bench in its own namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

/// Cases of `bypath bench roce`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Packets built in memory: headers, a copy of the payload, the ICRC
    Build,
    /// A file written into another process's memory over a veth pair
    RdmaWrite,
}

/// Octets of payload in a packet: the path MTUs.
pub const SIZES: [u32; 3] = [256, 1024, 4096];

/// Measures and prints.
pub fn run(args: &RoceArgs) -> Outcome {
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
    let records = context.measure(&plan(args, &context).map_err(fail)?).records();
    let whole = !interrupted();
    // Figures of a part of the runs are no ground for a verdict.
    let checks = if whole { report::check(&records) } else { Vec::new() };
    let section = report::section(&context.machine, &records);
    let mut text = section.text();
    text += &super::table::targets(&checks, args.cases.is_empty());
    if let Some(folder) = &args.report {
        let document = output::document(&context.machine, &records);
        section.write(folder, &checks, &document).map_err(fail)?;
        text += &format!("\nreport: {}\n", folder.join("report.html").display());
    }
    output::write(&common, &context.machine, &records, &text, whole)
}

fn plan(args: &RoceArgs, context: &Context) -> Result<Vec<Vec<Box<dyn Job>>>, String> {
    let wanted = |case: Case| args.cases.is_empty() || args.cases.contains(&case);
    let mut groups: Vec<Vec<Box<dyn Job>>> = Vec::new();
    if wanted(Case::Build) {
        for size in SIZES {
            let job = |v6| Box::new(build::Build { v6, size }) as Box<dyn Job>;
            groups.push([false, true].map(job).into());
        }
    }
    if wanted(Case::RdmaWrite) {
        netns::veth(write::LEFT, write::RIGHT, None).map_err(|e| format!("cannot make a veth pair: {e}"))?;
        for name in [write::LEFT, write::RIGHT] {
            netns::set_mtu(name, write::MTU)
                .and_then(|()| netns::set_up(name, true))
                .map_err(|e| format!("cannot set up {name}: {e}"))?;
        }
        let file = write::file(context)?;
        let job = |size| Box::new(write::Write { size, file: file.clone() }) as Box<dyn Job>;
        groups.push(SIZES.map(job).into());
    }
    Ok(groups)
}

fn figure(case: &str, subject: &'static str, link: Option<&str>, size: u32, metric: &'static str) -> Figure {
    Figure {
        bench: "roce",
        case: case.into(),
        subject,
        link: link.map(str::to_owned),
        mode: None,
        size: Some(size.into()),
        burst: None,
        profile: None,
        cc: None,
        metric,
    }
}
