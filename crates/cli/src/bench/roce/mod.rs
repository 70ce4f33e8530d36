//! `bypath bench roce`: RoCEv2 packets built with their ICRC, on one core; RDMA WRITE between two processes over a veth pair.

mod build; //  packets in memory
mod report; // tables; the targets
mod write; //  a transfer by the tools themselves

use super::context::{Context, Job};
use super::record::Figure;
use super::section::{self, Runs, Usual};
use crate::output::Outcome;
use bypath_sys::netns;
use clap::ValueEnum;

/// Arguments of `bypath bench roce`.
#[derive(clap::Args, Clone, Debug)]
pub struct RoceArgs {
    #[command(flatten)]
    pub runs: Runs,
    /// Only this case (may be given several times)
    #[arg(long = "case", value_name = "CASE", value_enum)]
    pub cases: Vec<Case>,
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

const USUAL: Usual = Usual { rounds: 9, seconds: 0.2 };

/// Measures and prints.
pub fn run(args: &RoceArgs) -> Outcome {
    let plan = |context: &Context| plan(args, context);
    section::run(&args.runs, USUAL, args.cases.is_empty(), plan, report::check, report::section)
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
