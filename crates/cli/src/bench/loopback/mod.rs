//! `bypath bench loopback`: two ordinary programs on this host, over everything that could connect them.

mod fork;
mod idle;
mod oversubscribed;
mod pair;
mod plain_ring;
mod processes;
mod subject;
mod targets;
mod watched;

use super::args::{Case, LoopbackArgs, SubjectName};
use super::c_program;
use super::child::interrupted;
use super::context::{Context, Job};
use super::peer::LARGEST_DATAGRAM;
use super::{output, table};
use crate::output::{Failure, Outcome};
use pair::PairJob;
use subject::Subject;

/// Messages of the ping-pong, in bytes.
const SIZES: [usize; 5] = [14, 64, 1400, 16384, 65536];
const QUICK_SIZES: [usize; 2] = [14, 1400];
/// Datagrams of their ping-pong.
const DATAGRAMS: [usize; 2] = [14, 1400];

/// Idle connections.
const IDLE: u32 = 10_000;
const QUICK_IDLE: u32 = 1_000;
/// The few that the many are compared with.
const IDLE_FEW: usize = 10;

/// Measures and prints.
pub fn run(args: &LoopbackArgs) -> Outcome {
    let mut context = Context::new(&args.common).map_err(|e| Failure::new(1, e))?;
    let ring = plain_ring::build(&context);
    context.machine.bare_ring_ns = pair::bare_ring_ns(&context);
    let groups = plan(args, &context, &ring);
    let records = context.measure(&groups).records();
    let whole = !interrupted();
    let mut text = table::figures(&context.machine, &records);
    let everything = args.cases.is_empty() && args.subjects.is_empty() && args.sizes.is_empty();
    if whole {
        text += &table::targets(&targets::check(&records), everything);
    }
    output::write(&args.common, &context.machine, &records, &text, whole)
}

type Group = Vec<Box<dyn Job>>;

fn plan(args: &LoopbackArgs, context: &Context, ring: &Result<std::path::PathBuf, String>) -> Vec<Group> {
    let wanted = |case: Case| args.cases.is_empty() || args.cases.contains(&case);
    let subjects = |names: &[SubjectName]| -> Vec<Subject> {
        let chosen = |n: &SubjectName| args.subjects.is_empty() || args.subjects.contains(n);
        names.iter().filter(|n| chosen(n)).flat_map(|n| Subject::all(*n, context, ring)).collect()
    };
    let sizes = |default: &[usize]| match args.sizes.is_empty() {
        true => default.to_vec(),
        false => args.sizes.iter().map(|s| *s as usize).collect(),
    };
    use SubjectName::{Bypath, Channel, Floor, KernelTcp, KernelUdp, Pipe, Unix};
    let everything = [KernelTcp, Unix, Pipe, Bypath, Channel, Floor];
    let mut groups: Vec<Group> = Vec::new();
    let mut pairs = |case: Case, subjects: &[Subject], spin: bool, size: usize| {
        let job = |s: &Subject| Box::new(PairJob::new(case, s.clone(), spin, size)) as Box<dyn Job>;
        groups.push(subjects.iter().filter(|s| s.can(case, spin)).map(job).collect());
    };
    if wanted(Case::Pingpong) {
        for size in sizes(if context.quick { &QUICK_SIZES } else { &SIZES }) {
            for spin in [true, false] {
                pairs(Case::Pingpong, &subjects(&everything), spin, size);
            }
        }
    }
    if wanted(Case::Sleep) {
        pairs(Case::Sleep, &subjects(&[KernelTcp, Unix, Pipe, Bypath, Channel]), false, 14);
    }
    if wanted(Case::Stream) {
        for size in sizes(if context.quick { &[64] } else { &[64, 1400] }) {
            pairs(Case::Stream, &subjects(&everything), false, size);
        }
    }
    if wanted(Case::Bulk) {
        for size in sizes(&[65536]) {
            pairs(Case::Bulk, &subjects(&everything), false, size);
        }
    }
    let datagrams: Vec<Subject> =
        subjects(&[KernelUdp, Bypath, Channel, Floor]).into_iter().map(Subject::by_datagrams).collect();
    let fits = |size: &usize| *size <= LARGEST_DATAGRAM;
    if wanted(Case::UdpPingpong) {
        for size in sizes(&DATAGRAMS).into_iter().filter(fits) {
            for spin in [true, false] {
                pairs(Case::UdpPingpong, &datagrams, spin, size);
            }
        }
    }
    if wanted(Case::UdpStream) {
        for size in sizes(&[64]).into_iter().filter(fits) {
            pairs(Case::UdpStream, &datagrams, false, size);
        }
    }
    if wanted(Case::Churn) {
        pairs(Case::Churn, &subjects(&[KernelTcp, Unix, Bypath]), false, 64);
    }
    if wanted(Case::Oversubscribed) {
        let jobs = subjects(&[KernelTcp, Unix, Bypath]).into_iter().filter(|s| !s.is_extra_row());
        groups.push(jobs.map(|s| Box::new(oversubscribed::FourPairs::new(s)) as Box<dyn Job>).collect());
    }
    if wanted(Case::Watched) {
        let subject = subjects(&[Bypath]).into_iter().next();
        let job = |w| subject.clone().map(|s| Box::new(watched::Watched::new(s, w)) as Box<dyn Job>);
        groups.push(watched::Watcher::ALL.into_iter().filter_map(job).collect());
    }
    if wanted(Case::ForeignCall) {
        let jobs = subjects(&[KernelTcp, Bypath]).into_iter().filter(|s| !s.is_extra_row());
        groups.push(jobs.map(|s| Box::new(processes::ForeignCall::new(s)) as Box<dyn Job>).collect());
    }
    if wanted(Case::Exec) {
        let jobs = subjects(&[Bypath]).into_iter();
        groups.push(jobs.map(|_| Box::new(processes::Exec) as Box<dyn Job>).collect());
    }
    if wanted(Case::Fork) {
        let program = c_program::compile(context, "fork", fork::SOURCE);
        for connections in [0, 1] {
            let jobs = subjects(&[KernelTcp, Bypath]).into_iter().filter(|s| !s.is_extra_row());
            let job = |s| Box::new(fork::Fork::new(s, connections, program.clone())) as Box<dyn Job>;
            groups.push(jobs.map(job).collect());
        }
    }
    if wanted(Case::Idle) {
        let many = args.connections.unwrap_or(if context.quick { QUICK_IDLE } else { IDLE }) as usize;
        for connections in [IDLE_FEW, many] {
            let jobs = subjects(&[KernelTcp, Unix, Bypath]).into_iter().filter(|s| !s.is_extra_row());
            groups.push(
                jobs.map(|s| Box::new(idle::Idle::new(s, connections, many)) as Box<dyn Job>).collect(),
            );
        }
    }
    groups.retain(|g| !g.is_empty());
    groups
}
