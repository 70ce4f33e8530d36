//! `bypath bench netstack`: programs on the netstack service, beside the same programs on the kernel's own TCP, over the same kind of
//! link and to the same kind of peer: a program of the kernel's in another network namespace.

mod pair; //   two programs that talk
mod redis; //  a real one
mod report; // rows, what follows from them, the targets
mod stage; //  namespaces, links, services, programs

use super::context::{Context, Job};
use super::record::Figure;
use super::section::{self, Runs, Usual};
use crate::output::Outcome;
use clap::ValueEnum;
use stage::Stage;
use std::rc::Rc;

/// Arguments of `bypath bench netstack`.
#[derive(clap::Args, Clone, Debug)]
pub struct NetstackArgs {
    #[command(flatten)]
    pub runs: Runs,
    /// Only this case (may be given several times)
    #[arg(long = "case", value_name = "CASE", value_enum)]
    pub cases: Vec<Case>,
    /// Only this subject (may be given several times)
    #[arg(long = "subject", value_name = "SUBJECT", value_enum)]
    pub subjects: Vec<Subject>,
    /// Connections of the case idle
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub connections: Option<u32>,
    /// Start services with --busy-poll
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=1_000_000))]
    pub busy_poll: u32,
}

/// Cases of `bypath bench netstack`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// A round trip of one octet, spinning and sleeping
    Pingpong,
    /// A stream to the peer
    BulkSend,
    /// A stream from the peer
    BulkReceive,
    /// Connections that are opened, carry one octet each way, and are closed
    Churn,
    /// redis-server, asked by redis-benchmark -c50
    Redis,
    /// Connections that rest: what the service takes of a processor
    Idle,
}

/// Whose TCP it is, on what link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Subject {
    /// The kernel's, on a veth pair
    KernelVeth,
    /// The service's, on packet sockets of one end of a veth pair
    Packet,
    /// The service's, on a TAP device
    Tap,
    /// The service's, on AF_XDP on one end of a veth pair
    Xdp,
    /// A stack in the program itself, on packet sockets of one end of a veth pair
    InProcess,
}

impl Case {
    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Case::Pingpong => "pingpong",
            Case::BulkSend => "bulk-send",
            Case::BulkReceive => "bulk-receive",
            Case::Churn => "churn",
            Case::Redis => "redis",
            Case::Idle => "idle",
        }
    }
}

impl Subject {
    pub const ALL: [Subject; 5] =
        [Subject::KernelVeth, Subject::Packet, Subject::Tap, Subject::Xdp, Subject::InProcess];

    /// Its name in records.
    pub const fn name(self) -> &'static str {
        match self {
            Subject::KernelVeth => "kernel-veth",
            Subject::Packet => "packet",
            Subject::Tap => "tap",
            Subject::Xdp => "xdp",
            Subject::InProcess => "in-process",
        }
    }

    /// A service runs its stack.
    pub const fn is_served(self) -> bool {
        matches!(self, Subject::Packet | Subject::Tap | Subject::Xdp)
    }
}

/// Whose time of the processors it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Program,
    Service,
    Peer,
}

impl Who {
    pub const ALL: [Who; 3] = [Who::Program, Who::Service, Who::Peer];

    /// `mode` of the record, of programs that spin, that sleep, and of others.
    const fn mode(self, spin: Option<bool>) -> &'static str {
        match (self, spin) {
            (Who::Program, None) => "program",
            (Who::Service, None) => "service",
            (Who::Peer, None) => "peer",
            (Who::Program, Some(true)) => "spin-program",
            (Who::Service, Some(true)) => "spin-service",
            (Who::Peer, Some(true)) => "spin-peer",
            (Who::Program, Some(false)) => "block-program",
            (Who::Service, Some(false)) => "block-service",
            (Who::Peer, Some(false)) => "block-peer",
        }
    }
}

const USUAL: Usual = Usual { rounds: 5, seconds: 0.5 };
/// Connections that rest.
const IDLE: u32 = 1000;
const QUICK_IDLE: u32 = 100;

/// Measures and prints.
pub fn run(args: &NetstackArgs) -> Outcome {
    let everything = args.cases.is_empty() && args.subjects.is_empty();
    section::run(&args.runs, USUAL, everything, |context| plan(args, context), report::check, report::section)
}

fn plan(args: &NetstackArgs, context: &Context) -> Result<Vec<Vec<Box<dyn Job>>>, String> {
    let wanted = |case: Case| args.cases.is_empty() || args.cases.contains(&case);
    let chosen = |subject: &Subject| args.subjects.is_empty() || args.subjects.contains(subject);
    stage::prepare()?;
    // All services begin at once: looking for others with their addresses takes seconds.
    let stages: Vec<Rc<Stage>> = Subject::ALL
        .into_iter()
        .filter(chosen)
        .map(|subject| Rc::new(Stage::new(context, subject, args.busy_poll)))
        .collect();
    let mut groups: Vec<Vec<Box<dyn Job>>> = Vec::new();
    let mut pairs = |kind: pair::Kind| {
        let stages = stages.iter().filter(|stage| kind.makes_sense(stage.subject));
        groups.push(stages.map(|stage| Box::new(pair::Pair::new(stage, kind)) as Box<dyn Job>).collect());
    };
    if wanted(Case::Pingpong) {
        pairs(pair::Kind::Pingpong { spin: true });
        pairs(pair::Kind::Pingpong { spin: false });
    }
    if wanted(Case::BulkSend) {
        pairs(pair::Kind::BulkSend);
    }
    if wanted(Case::BulkReceive) {
        pairs(pair::Kind::BulkReceive);
    }
    if wanted(Case::Churn) {
        pairs(pair::Kind::Churn);
    }
    if wanted(Case::Idle) {
        let connections = args.connections.unwrap_or(if context.quick { QUICK_IDLE } else { IDLE });
        pairs(pair::Kind::Idle { connections });
    }
    if wanted(Case::Redis) {
        let stages = stages.iter().filter(|stage| stage.subject != Subject::InProcess);
        groups.push(stages.map(|stage| Box::new(redis::Redis::new(stage)) as Box<dyn Job>).collect());
    }
    groups.retain(|group| !group.is_empty());
    Ok(groups)
}

fn figure(context: &Context, case: Case, subject: Subject, metric: &'static str) -> Figure {
    Figure {
        bench: "netstack",
        case: case.name().into(),
        subject: subject.name(),
        link: Some(if subject == Subject::Tap { "tap" } else { "veth" }.into()),
        mode: None,
        size: None,
        burst: None,
        profile: None,
        cc: context.cc.map(str::to_owned),
        metric,
    }
}
