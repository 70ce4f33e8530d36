//! Round trips.

use super::order::{Answer, Carrier, Order, Run};
use super::stage::Road;
use super::throughput::{figure, finish, fits};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Sample};
use std::rc::Rc;

/// Seconds that a round trip may take, for the time a run gets: on a busy machine each end waits for its processor.
const SLOW: f64 = 0.02;

/// One subject, at one size, on one link, spinning or sleeping.
pub struct RoundTrip {
    pub road: Rc<Road>,
    pub carrier: Carrier,
    pub size: usize,
    pub spin: bool,
    /// In one run.
    pub count: u64,
}

impl Job for RoundTrip {
    fn title(&self) -> String {
        let mode = if self.spin { "spin" } else { "block" };
        format!("round-trip {} {} B {mode} {}", self.road.name, self.size, self.carrier.name())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        let mode = Some(if self.spin { "spin" } else { "block" });
        vec![Figure {
            mode,
            ..figure(&self.road, "round-trip", self.carrier.name(), self.size, "round_trip_ns")
        }]
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        fits(&self.road, self.carrier, self.size)?;
        if self.spin && context.machine.cores < 2 && self.road.name != "peer" {
            return Err(Trouble::Skipped("two spinning programs need two cores".into()));
        }
        if self.carrier == Carrier::Xdp && self.road.name == "lo" {
            let why = "two AF_XDP sockets cannot share loopback's one queue";
            return Err(Trouble::Skipped(why.into()));
        }
        let (carrier, size, spin) = (self.carrier, self.size, self.spin);
        let run = self.road.numbered(Run { carrier, size, number: 0, spin, verify: true, deep: false });
        let (trips, mut notes) = self.road.with(context, |ends| {
            let deadline = context.deadline(self.count as f64 * SLOW);
            ends.far.order(&Order::Echo(run))?;
            let (to, notes) = ends.far.ready(deadline)?;
            ends.near.order(&Order::Trip { run, to, count: self.count })?;
            let trips = match ends.near.answer(deadline)? {
                Answer::Trips(trips) => trips,
                other => return Err(ends.near.unexpected(&other)),
            };
            finish(&mut ends.far, 0, deadline)?;
            Ok((trips, notes))
        })?;
        if trips.corrupt > 0 {
            return Err(Trouble::Failed(format!("{} frames came back changed", trips.corrupt)));
        }
        notes.extend(trips.notes);
        if trips.lost > 0 {
            notes.push(format!("{} frames were lost in a run, and are not in the figure", trips.lost));
        }
        let sample = Sample::spread(trips.samples, 1.0);
        let figures = self.figures(context).into_iter().map(|f| (f, sample.clone())).collect();
        Ok(Outcome { figures, note: (!notes.is_empty()).then(|| notes.join("; ")) })
    }
}

/// Opening and closing sockets.
pub struct OpenClose {
    pub road: Rc<Road>,
    pub carrier: Carrier,
    /// In one run.
    pub count: u32,
}

impl Job for OpenClose {
    fn title(&self) -> String {
        format!("open-close {} {}", self.road.name, self.carrier.name())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        ["open_ns", "close_ns"]
            .into_iter()
            .map(|m| Figure { size: None, ..figure(&self.road, "open-close", self.carrier.name(), 0, m) })
            .collect()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let (open, close) = self.road.with(context, |ends| {
            ends.near.order(&Order::OpenClose { carrier: self.carrier, count: self.count })?;
            match ends.near.answer(context.deadline(f64::from(self.count) * 0.1))? {
                Answer::Opened { open, close } => Ok((open, close)),
                other => Err(ends.near.unexpected(&other)),
            }
        })?;
        let sample = |ns: Vec<u64>| Sample::spread(ns.into_iter().map(|ns| (ns, 1)), 1.0);
        let figures = self.figures(context).into_iter().zip([sample(open), sample(close)]).collect();
        Ok(Outcome { figures, note: None })
    }
}
