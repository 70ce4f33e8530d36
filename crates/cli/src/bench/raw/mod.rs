//! `bypath bench raw`: raw Ethernet beside UDP, on links where nothing else happens. What counts is what arrived.

mod args;
mod charts; //     the classic charts
mod end; //        the two programs
mod order; //      what they are told, and answer
mod prototype; //  the library beside bare C
mod remote; //     the other host
pub mod report; // HTML, CSV
mod serve; //      the program there
mod stage; //      namespaces, links, programs
pub mod tables; //     text
mod targets; //    what is demanded
mod throughput; // one way; and what only a sender sees
mod trips; //      there and back; opening and closing

pub use args::RawArgs;
pub use end::EndArgs;
pub use end::run as end;

pub use serve::{ServeArgs, run as serve};
pub use stage::inside_namespaces;

use super::args::Common;
use super::c_program;
use super::child::interrupted;
use super::context::{Context, Job};
use super::output;
use crate::output::{Failure, Outcome};
use args::{Case, LinkName};
use order::{Carrier, Flaws};
use std::rc::Rc;

/// Payloads that are looked at closely, and those between them.
const SIZES: [usize; 3] = [50, 1400, 8000];
const SWEEP: [usize; 9] = [50, 100, 200, 400, 800, 1400, 2000, 4000, 8000];
/// The classic table: 50 to 1500 octets in steps of 50.
const STEP: usize = 50;
const STEPS: usize = 30;
/// Round trips of a figure.
const TRIPS: u64 = 100_000;
const QUICK_TRIPS: u64 = 100;
/// Sockets opened and closed in a run: fewer than the library closes in the background.
const LIVES: u32 = 50;
const QUICK_LIVES: u32 = 10;
/// Payload at which the library and the C program are compared.
const PROTOTYPE_SIZE: usize = 1400;

type Group = Vec<Box<dyn Job>>;

/// Measures and prints.
pub fn run(args: &RawArgs) -> Outcome {
    let fail = |e: String| Failure::new(1, e);
    if args.peer.is_none() && !args.inside {
        return stage::inside_namespaces().map_err(fail);
    }
    if args.inside {
        // A bench without the program that the user started is of no use.
        let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGTERM);
    }
    let common = Common {
        quick: args.quick,
        rounds: args.rounds.or(args.quick.then_some(1)),
        seconds: args.seconds.or(args.quick.then_some(0.05)),
        profile: String::new(),
        json: args.json.clone(),
    };
    let context = Context::new(&common).map_err(fail)?;
    let roads = roads(args).map_err(|e| Failure::new(if interrupted() { crate::raw::LOST } else { 1 }, e))?;
    let groups = plan(args, &context, &roads);
    let mut records = context.measure(&groups).records();
    throughput::judge(&mut records);
    let whole = !interrupted();
    drop(groups);
    let everything =
        args.cases.is_empty() && args.subjects.is_empty() && args.sizes.is_empty() && args.links.is_empty();
    // Figures of a part of the runs are no ground for a verdict.
    let checks = if whole { targets::check(&records) } else { Vec::new() };
    let mut text = tables::all(&context.machine, &records);
    text += &super::table::targets(&checks, everything && args.peer.is_none());
    if let Some(folder) = &args.report {
        let document = output::document(&context.machine, &records);
        report::write(folder, &context.machine, &records, &checks, &document).map_err(fail)?;
        text += &format!("\nreport: {}\n", folder.join("report.html").display());
    }
    output::write(&common, &context.machine, &records, &text, whole)
}

fn roads(args: &RawArgs) -> Result<Vec<Rc<stage::Road>>, String> {
    if let (Some(peer), Some(iface)) = (&args.peer, &args.iface) {
        let remote = remote::Remote::find(peer, iface)?;
        let mtu = bypath::link::Interface::named(iface).map_err(|e| e.to_string())?.mtu;
        return Ok(vec![Rc::new(stage::Road::peer(remote, mtu as usize))]);
    }
    let wanted = |link: LinkName| args.links.is_empty() || args.links.contains(&link);
    let mut roads = Vec::new();
    if wanted(LinkName::Lo) {
        roads.push(Rc::new(stage::Road::loopback()?));
    }
    if wanted(LinkName::Veth) {
        roads.push(Rc::new(stage::Road::veth()?));
    }
    Ok(roads)
}

/// What is to be measured, the longest case last: `--quick` may cut it off.
fn plan(args: &RawArgs, context: &Context, roads: &[Rc<stage::Road>]) -> Vec<Group> {
    let wanted = |case: Case| args.cases.is_empty() || args.cases.contains(&case);
    let mut groups: Vec<Group> = Vec::new();
    type Plan = fn(&RawArgs, &Context, &Rc<stage::Road>) -> Vec<Group>;
    let all: [(Case, Plan); 3] =
        [(Case::Throughput, throughputs), (Case::OpenClose, lives), (Case::RoundTrip, round_trips)];
    for (case, plan) in all {
        if case == Case::RoundTrip && wanted(Case::Prototype) && args.peer.is_none() {
            groups.extend(prototypes(args, context, roads));
        }
        if wanted(case) {
            groups.extend(roads.iter().flat_map(|road| plan(args, context, road)));
        }
    }
    groups.retain(|g| !g.is_empty());
    groups
}

fn subjects(args: &RawArgs, of: &[Carrier]) -> Vec<Carrier> {
    of.iter().copied().filter(|c| args.subjects.is_empty() || args.subjects.contains(c)).collect()
}

fn sizes(args: &RawArgs, default: &[usize]) -> Vec<usize> {
    match args.sizes.is_empty() {
        true => default.to_vec(),
        false => args.sizes.iter().map(|s| *s as usize).collect(),
    }
}

fn throughputs(args: &RawArgs, context: &Context, road: &Rc<stage::Road>) -> Vec<Group> {
    let flaws = Flaws { lose: args.inject_loss, spoil: args.inject_corruption };
    let of_size = |size: usize| {
        let job = |carrier| {
            Box::new(throughput::Throughput { road: Rc::clone(road), carrier, size, flaws }) as Box<dyn Job>
        };
        let mut group: Group = subjects(args, &Carrier::ALL).into_iter().map(job).collect();
        if args.subjects.is_empty() && (SIZES.contains(&size) || !args.sizes.is_empty()) {
            for raw in [false, true] {
                group.push(Box::new(throughput::SenderOnly { road: Rc::clone(road), raw, size }));
            }
        }
        group
    };
    sizes(args, if context.quick { &SIZES } else { &SWEEP }).into_iter().map(of_size).collect()
}

fn lives(args: &RawArgs, context: &Context, road: &Rc<stage::Road>) -> Vec<Group> {
    let count = if context.quick { QUICK_LIVES } else { LIVES };
    let of = [Carrier::UdpSendto, Carrier::UdpConnected, Carrier::RawPlain, Carrier::RawRing, Carrier::Xdp];
    let job = |carrier| Box::new(trips::OpenClose { road: Rc::clone(road), carrier, count }) as Box<dyn Job>;
    vec![subjects(args, &of).into_iter().map(job).collect()]
}

fn round_trips(args: &RawArgs, context: &Context, road: &Rc<stage::Road>) -> Vec<Group> {
    let count = args.trips.unwrap_or(if context.quick { QUICK_TRIPS } else { TRIPS });
    let count = count.div_ceil(u64::from(context.rounds));
    let classic: Vec<usize> = (1..=STEPS).map(|n| n * STEP).collect();
    let block = [Carrier::UdpSendto, Carrier::RawPlain];
    let spin = [Carrier::UdpSendto, Carrier::UdpConnected, Carrier::RawPlain, Carrier::RawRing, Carrier::Xdp];
    let modes: [(bool, &[Carrier]); 2] = [(false, &block), (true, &spin)];
    let of_size = |size: usize| {
        modes.map(|(spin, of)| {
            let job = |carrier| {
                Box::new(trips::RoundTrip { road: Rc::clone(road), carrier, size, spin, count })
                    as Box<dyn Job>
            };
            subjects(args, of).into_iter().map(job).collect()
        })
    };
    sizes(args, &classic).into_iter().flat_map(of_size).collect()
}

fn prototypes(args: &RawArgs, context: &Context, roads: &[Rc<stage::Road>]) -> Vec<Group> {
    let program = c_program::compile(context, "raw", prototype::SOURCE);
    let mut groups = Vec::new();
    for road in roads {
        for size in sizes(args, &[PROTOTYPE_SIZE]) {
            let mut group: Group = Vec::new();
            // What disturbs the machine for a while is to fall on both alike.
            let turns = if context.quick { 1 } else { 5 };
            let seconds = context.seconds / f64::from(turns);
            for _ in 0..turns {
                for carrier in subjects(args, &[Carrier::RawPlain, Carrier::RawRing]) {
                    for program in [None, Some(program.clone())] {
                        let road = Rc::clone(road);
                        group.push(Box::new(prototype::Prototype { road, carrier, size, seconds, program }));
                    }
                }
            }
            groups.push(group);
        }
    }
    groups
}
