//! `bypath l2 jitter`: a cyclic sender, and a receiver that tells how late its frames are.

use crate::args::Json;
use crate::bench::histogram::Histogram;
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self, Tag,
    carrier::Carrier,
    header::{self, Header, Kind},
    values,
    wait::{READ, Stop},
};
use bypath::l2::{self, Error, MacAddr, Socket};
use bypath_sys::{clock, process, realtime};
use serde::Serialize;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath l2 jitter`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("side").required(true).args(["dst", "receive"]),
    after_help = "Examples:\n  \
    bypath l2 jitter eth0 --receive                                    on the other host\n  \
    bypath l2 jitter eth0 --dst 02:00:5e:10:00:01                      10000 frames, one each millisecond\n  \
    bypath l2 jitter eth0 --dst 02:00:5e:10:00:01 --cycle 250us --vlan 10 --priority 7\n\n\
    The sender tells how long after its time each frame was given to the kernel; the receiver how much later than the \
    least delayed one each frame came to it, so that the clocks of both hosts need not agree. Both ask for SCHED_FIFO and \
    locked memory, and say what they did not get; bypath doctor tells why.\n\n\
    Exit status: 0, 1 if the interface cannot be used, 2 for wrong usage, 3 if frames were lost, came out of order, twice \
    or changed, the sender fell silent, or Ctrl-C came before the end."
)]
pub struct Args {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// Send, to this hardware address
    #[arg(long, value_name = "MAC", value_parser = raw::mac)]
    dst: Option<MacAddr>,

    /// Receive
    #[arg(long)]
    receive: bool,

    /// Time from one frame to the next, as the sender says [default: 1ms]
    #[arg(long, value_name = "TIME", value_parser = values::period)]
    cycle: Option<Duration>,

    /// How many frames, as the sender says [default: 10000]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(MOST)))]
    count: Option<u32>,

    /// Octets of payload, from 46 up to the interface's MTU, as the sender says [default: 46]
    #[arg(long, value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(46..))]
    size: Option<u32>,

    /// The receiver ends when nothing came for so long
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = values::period)]
    timeout: Duration,

    /// EtherType of the frames
    #[arg(long, value_name = "TYPE", default_value = "0x88b5", value_parser = values::ethertype)]
    ethertype: u16,

    #[command(flatten)]
    tag: Tag,

    /// Priority under SCHED_FIFO, 1 to 99; 0: not asked for
    #[arg(long, value_name = "PRIORITY", default_value_t = 80, value_parser = clap::value_parser!(i32).range(0..=99))]
    fifo: i32,

    #[command(flatten)]
    json: Json,
}

/// Frames of one run at most.
const MOST: u32 = 10_000_000;
/// Octets of the body in front of the fill: the cycle in ns.
const CYCLE: usize = 8;
/// The cycle unless another is asked for.
const CYCLE_NS: u64 = 1_000_000;
/// Frames unless another number is asked for.
const COUNT: u32 = 10_000;
/// What must be left of a cycle for a look at the interface.
const FOR_A_LOOK: u64 = 500_000;
/// How often the end is said.
const ENDS: u32 = 3;

/// What is printed as JSON.
#[derive(Serialize, Default)]
struct Report {
    side: &'static str,
    interface: String,
    cycle_ns: u64,
    scheduling: String,
    memory: String,
    frames: u64,
    /// What only a receiver knows.
    #[serde(flatten)]
    arrived: Option<Arrived>,
    /// What only a sender knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    missed_cycles: Option<u64>,
    complete: bool,
    lateness_ns: Option<Lateness>,
}

#[derive(Serialize, Default)]
struct Arrived {
    lost: u64,
    out_of_order: u64,
    twice: u64,
    corrupt: u64,
    ignored: u64,
}

#[derive(Serialize)]
struct Lateness {
    p50: u64,
    p99: u64,
    #[serde(rename = "p99.9")]
    p999: u64,
    max: u64,
    /// Frames by lateness: each bucket has those below its bound and not below the one before.
    buckets: Vec<Bucket>,
}

#[derive(Serialize)]
struct Bucket {
    below_ns: u64,
    frames: u64,
}

impl Lateness {
    fn of(times: &Histogram) -> Option<Lateness> {
        let at = |q| times.quantile(q).map(|v| v as u64);
        let mut buckets: Vec<Bucket> = Vec::new();
        for (ns, frames) in times.pairs() {
            let below_ns = 1000 * (ns / 1000 + 1).next_power_of_two();
            match buckets.last_mut() {
                Some(last) if last.below_ns == below_ns => last.frames += frames,
                _ => buckets.push(Bucket { below_ns, frames }),
            }
        }
        Some(Lateness { p50: at(0.5)?, p99: at(0.99)?, p999: at(0.999)?, max: at(1.0)?, buckets })
    }
}

impl Args {
    /// That nothing was asked of a receiver which the sender decides.
    fn check(&self) -> Result<(), Failure> {
        let of_sender = [
            ("--cycle", self.cycle.is_some()),
            ("--count", self.count.is_some()),
            ("--size", self.size.is_some()),
        ];
        match of_sender.iter().find(|(_, given)| *given && self.receive) {
            None => Ok(()),
            Some((option, _)) => Err(Failure::new(
                2,
                format_args!(
                    "{option} is the sender's: the receiver takes what comes until the sender says that it ends; leave it \
                     out here, and give it there, with --dst"
                ),
            )),
        }
    }
}

/// Sends or receives.
pub fn run(args: Args) -> Outcome {
    args.check()?;
    let builder = Socket::builder(&args.interface).ethertype(args.ethertype);
    let mut socket = raw::open(args.tag.apply(builder))?;
    let size = args.size.unwrap_or(46);
    raw::fits(&socket, size)?;
    let stop = Stop::new()?;
    let mut report = Report { interface: args.interface.clone(), ..Report::default() };
    report.memory = match realtime::lock_memory() {
        Ok(()) => "locked".into(),
        Err(e) => format!("not locked: {e}"),
    };
    report.scheduling = match args.fifo {
        0 => "ordinary, as asked".into(),
        priority => match realtime::fifo(priority) {
            Ok(()) => format!("SCHED_FIFO, priority {priority}"),
            Err(e) => format!("ordinary; no SCHED_FIFO: {e}"),
        },
    };
    let mut times = Histogram::new();
    let outcome = match args.dst {
        Some(dst) => send(&args, dst, size as usize, &mut socket, &stop, &mut report, &mut times),
        None => receive(&args, &mut socket, &stop, &mut report, &mut times),
    };
    report.lateness_ns = Lateness::of(&times);
    match args.json.target() {
        Some(target) => output::json(&target, &report)?,
        None => output::print(&text(&report))?,
    }
    outcome.map_err(raw::failed)?;
    let wrong = report.arrived.map_or(0, |a| a.lost + a.out_of_order + a.twice + a.corrupt);
    Ok(if report.complete && wrong == 0 { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

fn send(
    args: &Args,
    to: MacAddr,
    size: usize,
    socket: &mut Socket,
    stop: &Stop,
    report: &mut Report,
    times: &mut Histogram,
) -> Result<(), Error> {
    let cycle = args.cycle.map_or(CYCLE_NS, |c| c.as_nanos() as u64);
    let count = args.count.unwrap_or(COUNT);
    (report.side, report.cycle_ns) = ("sender", cycle);
    let mut missed = 0;
    report.missed_cycles = Some(missed);
    let mut carrier = Carrier::new(&args.interface);
    let session = process::random_u64();
    let header = l2::Header { ethertype: args.ethertype, ..socket.header(to) };
    let started = clock::monotonic_ns() + cycle;
    for seq in 0..count {
        let body = [&cycle.to_be_bytes()[..], &header::fill(seq, size - header::SIZE - CYCLE)];
        let frame = Header::new(Kind::Cycle, session, seq).frame(&body.concat());
        let due = started.saturating_add(u64::from(seq).saturating_mul(cycle));
        stop.sleep(due);
        if stop.asked() {
            break;
        }
        raw::send(socket, &header, &frame)?;
        let now = clock::monotonic_ns();
        let late = now.saturating_sub(due);
        times.record(late);
        report.frames += 1;
        missed += u64::from(late >= cycle);
        report.missed_cycles = Some(missed);
        if carrier.is_due(now) && due.saturating_add(cycle).saturating_sub(now) > FOR_A_LOOK {
            carrier.look(now);
        }
    }
    carrier.look(clock::monotonic_ns());
    for _ in 0..ENDS {
        let end = Header::new(Kind::End, session, report.frames as u32).frame(&[]);
        raw::send(socket, &header, &end)?;
    }
    report.complete = report.frames == u64::from(count);
    Ok(())
}

/// What a receiver knows of the run that it follows.
#[derive(Default)]
struct Run {
    session: Option<u64>,
    /// Frames that came, by number.
    seen: Vec<bool>,
    /// For each frame when it came, less its number times the cycle.
    offsets: Vec<u64>,
    arrived: Arrived,
    /// How many were sent, once that was said.
    sent: Option<u32>,
}

impl Run {
    fn frame(&mut self, payload: &[u8], now: u64, report: &mut Report) {
        let ours = Header::parse(payload)
            .filter(|(h, _)| h.seq < MOST || h.kind == Kind::End && h.seq == MOST)
            .filter(|(h, _)| self.session.is_none_or(|s| s == h.session));
        match ours {
            Some((h, body)) if h.kind == Kind::Cycle && body.len() >= CYCLE => {
                let (cycle, fill) = body.split_at(CYCLE);
                let cycle = cycle.iter().fold(0, |value, b| value << 8 | u64::from(*b));
                if self.session.is_none() {
                    (self.session, report.cycle_ns) = (Some(h.session), cycle);
                }
                if cycle != report.cycle_ns || !header::is_filled(h.seq, fill) {
                    self.arrived.corrupt += 1;
                    return;
                }
                let at = h.seq as usize;
                if at < self.seen.len() {
                    if self.seen[at] {
                        self.arrived.twice += 1;
                        return;
                    }
                    self.arrived.out_of_order += 1;
                } else {
                    self.seen.resize(at + 1, false);
                }
                self.seen[at] = true;
                report.frames += 1;
                self.offsets.push(now.wrapping_sub(cycle.wrapping_mul(u64::from(h.seq))));
            }
            Some((h, _)) if h.kind == Kind::End && self.session.is_some() => self.sent = Some(h.seq),
            _ => self.arrived.ignored += 1,
        }
    }

    /// How much later than the least delayed frame each one came.
    fn lateness(&self, times: &mut Histogram) {
        let first = self.offsets.first().copied().unwrap_or(0);
        // Relative to the first: the numbers themselves may be beyond what their type has.
        let relative = || self.offsets.iter().map(|o| o.wrapping_sub(first) as i64);
        let least = relative().min().unwrap_or(0);
        relative().for_each(|o| times.record(o.abs_diff(least)));
    }
}

fn receive(
    args: &Args,
    socket: &mut Socket,
    stop: &Stop,
    report: &mut Report,
    times: &mut Histogram,
) -> Result<(), Error> {
    report.side = "receiver";
    output::message(format_args!("receiving on {} ({})", args.interface, socket.mac()));
    let mut run = Run::default();
    let mut heard = clock::monotonic_ns();
    let mut outcome = Ok(());
    while run.sent.is_none() && !stop.asked() {
        let received = socket.receive_batch(1, |frame| {
            heard = clock::monotonic_ns();
            run.frame(frame.payload, heard, report);
        });
        match received {
            Ok(_) | Err(Error::Interrupted) => {}
            Err(Error::WouldBlock) => {
                let until = heard.saturating_add(args.timeout.as_nanos() as u64);
                if clock::monotonic_ns() >= until {
                    break;
                }
                stop.wait([(socket.as_fd(), READ)], Some(until));
            }
            Err(e) => {
                outcome = Err(e);
                break;
            }
        }
    }
    let sent = u64::from(run.sent.unwrap_or(0)).max(run.seen.len() as u64);
    report.complete = run.sent.is_some();
    run.lateness(times);
    report.arrived = Some(Arrived { lost: sent - report.frames, ..run.arrived });
    outcome
}

fn text(r: &Report) -> String {
    let mut text =
        format!("{} on {}, cycle {}: {} frames", r.side, r.interface, values::ns(r.cycle_ns), r.frames);
    if let Some(a) = &r.arrived {
        text += &format!(
            ", {} lost, {} out of order, {} twice, {} changed, {} of others ignored{}",
            a.lost,
            a.out_of_order,
            a.twice,
            a.corrupt,
            a.ignored,
            if r.complete { "" } else { "; the end did not come" }
        );
    } else {
        let missed = r.missed_cycles.unwrap_or(0);
        text += &format!(
            " sent, {missed} cycles missed{}",
            if r.complete { "" } else { "; ended before the last one" }
        );
    }
    text += &format!("\nscheduling: {}; memory: {}\n", r.scheduling, r.memory);
    let Some(late) = &r.lateness_ns else { return text };
    let [p50, p99, p999, max] = [late.p50, late.p99, late.p999, late.max].map(values::ns);
    text += &format!("lateness: p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}\n");
    let most = late.buckets.iter().map(|b| b.frames).max().unwrap_or(1).max(1);
    for b in &late.buckets {
        let bar = "#".repeat((b.frames * 50).div_ceil(most) as usize);
        text += &format!("  < {:>9}  {:>9}  {bar}\n", values::ns(b.below_ns), b.frames);
    }
    text
}
