//! `bypath bench tun`: UDP through a TUN device, in the classic ways, in their naive versions, and in super-packets. What
//! counts is what a kernel's socket received.

mod naive; //     as programs usually do it
mod prototype; // the same system calls in plain C
mod receive; //   what the kernel sends, read from the device
mod report; //    tables and what follows from them; the targets
mod send; //      what we write, received by a socket
mod stage; //     device and socket

use super::c_program;
use super::context::{Context, Job};
use super::section::{self, Runs, Usual};
use crate::output::Outcome;
use clap::ValueEnum;

/// Arguments of `bypath bench tun`.
#[derive(clap::Args, Clone, Debug)]
pub struct TunArgs {
    #[command(flatten)]
    pub runs: Runs,
    /// Only this case (may be given several times)
    #[arg(long = "case", value_name = "CASE", value_enum)]
    pub cases: Vec<Case>,
    /// Octets of payload (may be given several times)
    #[arg(long = "size", value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(16..=65_507))]
    pub sizes: Vec<u32>,
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

/// Many short runs: what disturbs the machine for a while falls on all subjects alike, and in few runs of each.
const USUAL: Usual = Usual { rounds: 21, seconds: 0.1 };

/// Measures and prints.
pub fn run(args: &TunArgs) -> Outcome {
    let everything = args.cases.is_empty() && args.sizes.is_empty();
    let plan = |context: &Context| {
        // Without a device nothing is measured, and what is missing is told once.
        drop(stage::device()?);
        // The kernel's way from the device to the socket is part of the write.
        context.stay_on_one_core();
        Ok(plan(args, context))
    };
    section::run(&args.runs, USUAL, everything, plan, report::check, report::section)
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
