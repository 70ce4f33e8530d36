//! What the library adds to the kernel's interface: its processor time beside that of a bare C program in the same mode, neither
//! of which looks at more than the number of a frame.

use super::order::{Answer, Carrier, Flaws, Order, Run};
use super::stage::Road;
use super::throughput::{figure, fits};
use crate::bench::child::Child;
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use bypath::l2::MacAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;

/// The program.
pub const SOURCE: &str = include_str!("../raw.c");

const METRICS: [&str; 3] = ["cpu_ns_per_frame", "cpu_ns_per_frame_tx", "cpu_ns_per_frame_rx"];

/// The library (no program) or the C program, in one mode.
pub struct Prototype {
    pub road: Rc<Road>,
    pub carrier: Carrier,
    pub size: usize,
    /// Of a run.
    pub seconds: f64,
    pub program: Option<Result<PathBuf, String>>,
}

/// Frames and processor time of both sides.
struct Cost {
    sent: u64,
    received: u64,
    tx_ns: u64,
    rx_ns: u64,
}

impl Prototype {
    fn library(&self, context: &Context) -> Result<Cost, Trouble> {
        let run = Run {
            carrier: self.carrier,
            size: self.size,
            number: 0,
            spin: false,
            verify: false,
            deep: false,
        };
        let run = self.road.numbered(run);
        self.road.with(context, |ends| {
            let deadline = context.deadline(self.seconds);
            ends.far.order(&Order::Receive(run))?;
            let (to, _) = ends.far.ready(deadline)?;
            let (seconds, flaws) = (self.seconds, Flaws::default());
            ends.near.order(&Order::Send { run, to, seconds, pace: None, flaws, greet: true })?;
            let sent = match ends.near.answer(deadline)? {
                Answer::Sent(sent) => sent,
                other => return Err(ends.near.unexpected(&other)),
            };
            ends.far.order(&Order::Finish(sent.frames))?;
            match ends.far.answer(deadline)? {
                Answer::Received(r) if r.corrupt == 0 => {
                    Ok(Cost { sent: sent.frames, received: r.good, tx_ns: sent.cpu_ns, rx_ns: r.cpu_ns })
                }
                other => Err(ends.far.unexpected(&other)),
            }
        })
    }

    fn bare(&self, context: &Context, program: &Path) -> Result<Cost, Trouble> {
        let Some(interfaces) = self.road.interfaces() else {
            return Err(Trouble::Skipped("the other host has no C program".into()));
        };
        // Where the far end is, from itself.
        let to = self.road.with(context, |ends| {
            ends.far.order(&Order::Where)?;
            Ok(ends.far.ready(context.deadline(0.0))?.0)
        })?;
        let command = |which: usize| {
            let mut command = Command::new(program);
            let mode = if self.carrier == Carrier::RawRing { "ring" } else { "plain" };
            command.args([["send", "recv"][which], mode, interfaces[which], &MacAddr(to.mac).to_string()]);
            command.args([self.size.to_string(), self.seconds.to_string()]);
            command.arg(context.core(which).map_or("-1".into(), |c| c.to_string()));
            command
        };
        let deadline = context.deadline(self.seconds);
        let mut receiver = match self.road.far_namespace() {
            Some(namespace) => {
                let command = command(1);
                namespace
                    .run(|| Child::spawn(command, "C receiver"))
                    .map_err(|e| format!("cannot enter the far end's namespace: {e}"))??
            }
            None => Child::spawn(command(1), "C receiver")?,
        };
        receiver.ready(deadline)?;
        let sender = Child::spawn(command(0), "C sender")?.result(deadline)?;
        let receiver = receiver.result(deadline)?;
        Ok(Cost {
            sent: sender.sent,
            received: receiver.received,
            tx_ns: sender.cpu_ns,
            rx_ns: receiver.cpu_ns,
        })
    }
}

impl Job for Prototype {
    fn title(&self) -> String {
        let what = if self.program.is_some() { "C" } else { "library" };
        format!("prototype {} {} B {what} {}", self.road.name, self.size, self.carrier.name())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        let mode = Some(if self.program.is_some() { "c" } else { "library" });
        METRICS
            .iter()
            .map(|m| Figure { mode, ..figure(&self.road, "prototype", self.carrier.name(), self.size, m) })
            .collect()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        fits(&self.road, self.carrier, self.size)?;
        let cost = match &self.program {
            None => self.library(context)?,
            Some(Ok(program)) => self.bare(context, program)?,
            Some(Err(why)) => return Err(Trouble::Skipped(why.clone())),
        };
        if cost.received == 0 {
            return Err(Trouble::Failed("no frame arrived".into()));
        }
        let (tx, rx) =
            (cost.tx_ns as f64 / cost.sent.max(1) as f64, cost.rx_ns as f64 / cost.received as f64);
        let figures = self.figures(context).into_iter().zip([tx + rx, tx, rx].map(Sample::Value)).collect();
        let lost = cost.sent.saturating_sub(cost.received);
        let note = (lost * 1000 > cost.sent).then(|| format!("{lost} of {} frames were lost", cost.sent));
        Ok(Outcome { figures, note })
    }
}
