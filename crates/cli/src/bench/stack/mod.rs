//! `bypath bench stack`: what a UDP datagram costs in the TCP/IP stack, on one core and without a device: written from a
//! socket to a frame in a buffer, and received from a frame beside idle sockets; and TCP between two stacks. No kernel and
//! no namespaces take part.

mod allocations; // what writes take from malloc
mod connections; // round trips, opening and closing
mod idle; //        a segment beside idle connections; what those hold
mod kernel_peer; // a stream between our stack and the kernel
mod pair; //        two stacks and a cable
mod profile; //     the flame graph
mod receive; //     frame to socket, beside idle sockets
mod report; //      rows, what follows from them, the targets
mod sink; //        a link for an engine, which ends in a buffer
mod stream; //      octets of one connection
mod write; //       socket to frame

pub use allocations::{Args as AllocationsArgs, run as allocations};
pub use idle::{Args as ConnectionsArgs, run as connections};
pub use kernel_peer::{Args as KernelPeerArgs, run as kernel_peer};
pub use profile::{Args as ProfiledArgs, run as profiled};

use super::context::{Context, Job};
use super::record::Figure;
use super::section::{self, Runs, Usual};
use crate::output::Outcome;
use bypath_sys::clock::monotonic_ns;
use clap::ValueEnum;
use std::path::PathBuf;

/// Arguments of `bypath bench stack`.
#[derive(clap::Args, Clone, Debug)]
pub struct StackArgs {
    #[command(flatten)]
    pub runs: Runs,
    /// Only this case (may be given several times)
    #[arg(long = "case", value_name = "CASE", value_enum)]
    pub cases: Vec<Case>,
    /// Octets of payload of device-write (may be given several times)
    #[arg(long = "size", value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(1..=65_507))]
    pub sizes: Vec<u32>,
    /// Draw where the time of device-write goes (a flame graph)
    #[arg(long, value_name = "FILE.svg", value_hint = clap::ValueHint::FilePath)]
    pub profile: Option<PathBuf>,
}

/// Cases of `bypath bench stack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// A datagram written to a socket, and the frame that it becomes: straight, through the queue, and with an engine
    DeviceWrite,
    /// A frame handed in, and the datagram that a socket gets of it, beside 1 to 1,000,000 idle sockets
    ReceiveUdp,
    /// A stream between two stacks, over a cable whose packets have 1500 or 65,535 octets
    PairStream,
    /// A round trip of one octet between two stacks
    PairPingpong,
    /// Connections between two stacks that are opened, carry one octet, and are closed
    PairChurn,
    /// A stream from our stack to a socket of the kernel, over TAP, TUN and packet sockets; beside it one between two such sockets
    KernelPeerSend,
    /// The same from the kernel's socket to our stack
    KernelPeerReceive,
    /// A TCP segment handed in, and the octets that a socket gets of it, beside 1 to 1,000,000 idle connections
    ReceiveTcp,
    /// What an idle connection holds
    Memory,
}

/// Payloads: 1 to 2048 octets, each twice the one before.
const DOUBLINGS: u32 = 12;

/// Many short runs: what disturbs the machine for a while falls on all subjects alike, and in few runs of each.
const USUAL: Usual = Usual { rounds: 15, seconds: 0.05 };

/// Measures and prints.
pub fn run(args: &StackArgs) -> Outcome {
    let everything = args.cases.is_empty() && args.sizes.is_empty();
    let plan = |context: &Context| {
        context.stay_on_one_core();
        let groups = plan(args, context);
        if let Some(file) = &args.profile {
            profile::draw(context, &sizes(args), file)?;
        }
        Ok(groups)
    };
    section::here(&args.runs, USUAL, everything, plan, report::check, report::section)
}

fn sizes(args: &StackArgs) -> Vec<u32> {
    if args.sizes.is_empty() { (0..DOUBLINGS).map(|n| 1 << n).collect() } else { args.sizes.clone() }
}

fn plan(args: &StackArgs, context: &Context) -> Vec<Vec<Box<dyn Job>>> {
    let wanted = |case: Case| args.cases.is_empty() || args.cases.contains(&case);
    let mut groups: Vec<Vec<Box<dyn Job>>> = Vec::new();
    if wanted(Case::DeviceWrite) {
        let library = allocations::library(context);
        for size in sizes(args) {
            let mut group: Vec<Box<dyn Job>> = Vec::new();
            for subject in write::Subject::ALL {
                group.push(Box::new(write::Write { subject, size }));
                group.push(Box::new(allocations::Allocations { subject, size, library: library.clone() }));
            }
            groups.push(group);
        }
    }
    if wanted(Case::ReceiveUdp) {
        let job = |idle| Box::new(receive::Receive::new(idle)) as Box<dyn Job>;
        groups.push(receive::IDLE.map(job).into());
    }
    if wanted(Case::PairStream) {
        groups.push(stream::STREAMS.map(|job| Box::new(job) as Box<dyn Job>).into());
    }
    if wanted(Case::PairPingpong) {
        groups.push(vec![Box::new(connections::PairPingpong)]);
    }
    if wanted(Case::PairChurn) {
        groups.push(vec![Box::new(connections::PairChurn)]);
    }
    for (case, direction) in [
        (Case::KernelPeerSend, kernel_peer::Direction::Send),
        (Case::KernelPeerReceive, kernel_peer::Direction::Receive),
    ] {
        if wanted(case) {
            let job = |subject| Box::new(kernel_peer::KernelPeer { subject, direction }) as Box<dyn Job>;
            groups.push(kernel_peer::Subject::ALL.map(job).into());
        }
    }
    if wanted(Case::Memory) {
        groups.push(vec![Box::new(idle::Memory)]);
    }
    if wanted(Case::ReceiveTcp) {
        let job = |idle| Box::new(idle::ReceiveTcp::new(idle)) as Box<dyn Job>;
        groups.push(receive::IDLE.map(job).into());
    }
    groups
}

/// What stretches yield, one after the other, for as long as a run is; one at least.
fn timed(context: &Context, mut stretch: impl FnMut() -> Result<f64, String>) -> Result<Vec<f64>, String> {
    let end = monotonic_ns() + (context.seconds * 1e9) as u64;
    let mut stretches = Vec::new();
    while stretches.is_empty() || monotonic_ns() < end {
        stretches.push(stretch()?);
    }
    Ok(stretches)
}

fn figure(case: &str, subject: &'static str, size: u32, burst: Option<u64>, metric: &'static str) -> Figure {
    Figure {
        bench: "stack",
        case: case.into(),
        subject,
        link: None,
        mode: None,
        size: Some(size.into()),
        burst,
        profile: None,
        cc: None,
        metric,
    }
}
