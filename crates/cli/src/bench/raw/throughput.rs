//! Frames one way: what arrives of what is sent, and what it costs; and what a benchmark prints that only sends.

use super::end::DEEP;
use super::order::{Answer, Carrier, Flaws, Order, Received, Run, Sent};
use super::stage::{End, Road};
use crate::bench::context::{Context, Job, Outcome, Trouble};
use crate::bench::record::{Figure, Record, Sample, Status};
use std::rc::Rc;

/// More loss than this is not taken for a rate that a link carries.
pub const LOSS_LIMIT: f64 = 0.001;
/// Slower and slower, at most so often.
const ATTEMPTS: u32 = 6;
/// Headers of a UDP datagram in a frame's payload (IPv6, the longer).
const UDP_HEADERS: usize = 48;

/// What a figure consists of.
pub const METRICS: [&str; 6] = [
    "received_bytes_per_s",
    "received_frames_per_s",
    "loss_ratio",
    "corrupt_frames",
    "cpu_ns_per_frame_tx",
    "cpu_ns_per_frame_rx",
];
/// And of one that only sends.
const SENDER_METRICS: [&str; 6] = [
    "sent_bytes_per_s",
    "sent_frames_per_s",
    "received_bytes_per_s",
    "received_frames_per_s",
    "loss_ratio",
    "cpu_ns_per_frame_tx",
];

/// One subject, at one size, on one link.
pub struct Throughput {
    pub road: Rc<Road>,
    pub carrier: Carrier,
    pub size: usize,
    pub flaws: Flaws,
}

/// A figure of this benchmark.
pub fn figure(road: &Road, case: &str, subject: &'static str, size: usize, metric: &'static str) -> Figure {
    Figure {
        bench: "raw",
        case: case.into(),
        subject,
        link: Some(road.name.into()),
        mode: None,
        size: Some(size as u64),
        burst: None,
        profile: None,
        cc: None,
        metric,
    }
}

/// Whether payloads of this size fit into the link's frames.
pub fn fits(road: &Road, carrier: Carrier, size: usize) -> Result<(), Trouble> {
    let limit = road.mtu.saturating_sub(if carrier.is_udp() { UDP_HEADERS } else { 0 });
    if size <= limit {
        return Ok(());
    }
    Err(Trouble::Skipped(format!(
        "payloads to {limit} octets fit into the frames of this link (MTU {})",
        road.mtu
    )))
}

impl Throughput {
    fn once(
        &self,
        context: &Context,
        deep: bool,
        pace: Option<f64>,
    ) -> Result<(Sent, Received, Vec<String>), Trouble> {
        let run = Run { carrier: self.carrier, size: self.size, number: 0, spin: false, verify: true, deep };
        let run = self.road.numbered(run);
        self.road.with(context, |ends| {
            let deadline = context.deadline(context.seconds);
            ends.far.order(&Order::Receive(run))?;
            let (to, mut notes) = ends.far.ready(deadline)?;
            if deep {
                notes.push(format!("a receive ring of {} MiB: one as large as a cache overran", DEEP >> 20));
            }
            let (seconds, flaws) = (context.seconds, self.flaws);
            ends.near.order(&Order::Send { run, to, seconds, pace, flaws, greet: true })?;
            let sent = match ends.near.answer(deadline)? {
                Answer::Sent(sent) => sent,
                other => return Err(ends.near.unexpected(&other)),
            };
            ends.far.order(&Order::Finish(sent.frames))?;
            let received = match ends.far.answer(deadline)? {
                Answer::Received(received) => received,
                other => return Err(ends.far.unexpected(&other)),
            };
            notes.extend(sent.notes.iter().cloned());
            Ok((sent, received, notes))
        })
    }
}

/// Gives figures that lost too much, or whose frames arrived changed in any run, a status of their own.
pub fn judge(records: &mut [Record]) {
    let of_figure = |r: &Record| (r.figure.link.clone(), r.figure.subject, r.figure.size);
    let lossy: Vec<_> = records
        .iter()
        .filter(|r| r.figure.case == "throughput" && r.figure.metric == "loss_ratio")
        // Those lose everything, and say so.
        .filter(|r| !r.figure.subject.ends_with("-sender-only"))
        .filter_map(|r| Some((of_figure(r), r.median.filter(|m| *m > LOSS_LIMIT)?)))
        .collect();
    let corrupt: Vec<_> = records
        .iter()
        .filter(|r| r.figure.case == "throughput" && r.figure.metric == "corrupt_frames")
        .map(|r| (of_figure(r), r.run_medians.iter().sum::<f64>()))
        .filter(|(_, frames)| *frames > 0.0)
        .collect();
    for record in records.iter_mut().filter(|r| r.figure.case == "throughput" && r.status == Status::Ok) {
        let of = |found: &[(_, f64)]| found.iter().find(|(of, _)| *of == of_figure(record)).map(|(_, n)| *n);
        let (status, why) = match (of(&corrupt), of(&lossy)) {
            (Some(frames), _) => (Status::Corrupt, format!("{frames} frames arrived changed")),
            (None, Some(loss)) => (Status::Lossy, format!("{:.3} % lost", 100.0 * loss)),
            (None, None) => continue,
        };
        record.status = status;
        record.reason = Some(record.reason.take().map_or(why.clone(), |noted| format!("{why}; {noted}")));
    }
}

fn loss(sent: &Sent, received: &Received) -> f64 {
    let arrived = received.good + received.corrupt;
    1.0 - (arrived as f64 / sent.frames.max(1) as f64).min(1.0)
}

/// Good frames per second, by the receiver's clock. They cannot have come faster than they were sent, which the clock does
/// not see where all of them came at one look.
fn rate(sent: &Sent, received: &Received) -> f64 {
    let per_second = |frames: u64, ns: u64| frames as f64 / (ns.max(1) as f64 / 1e9);
    let sending = per_second(received.good, sent.elapsed_ns);
    if received.timed == 0 { sending } else { sending.min(per_second(received.timed, received.elapsed_ns)) }
}

/// What is tried after so many attempts that lost too much, the last of them with this ring and pace; `rate`: of what arrived
/// of the best of them, in frames/s.
fn next(carrier: Carrier, attempt: u32, last: (bool, Option<f64>), rate: f64) -> (bool, Option<f64>) {
    let (deep, pace) = last;
    match attempt {
        1 => last,
        // A ring as large as a cache is the quickest, and overruns where the receiver loses its processor for a moment.
        2 if carrier == Carrier::RawRing => (true, pace),
        _ => (deep, Some(pace.map_or(0.97 * rate, |pace| 0.9 * pace))),
    }
}

impl Job for Throughput {
    fn title(&self) -> String {
        format!("throughput {} {} B {}", self.road.name, self.size, self.carrier.name())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        METRICS.iter().map(|m| figure(&self.road, "throughput", self.carrier.name(), self.size, m)).collect()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        fits(&self.road, self.carrier, self.size)?;
        let mut best = (self.once(context, false, None)?, None);
        let (mut deep, mut pace) = (false, None);
        // As RFC 2544 has it: the highest rate at which next to nothing is lost. Once more at full speed, as the receiver may
        // only have been without a processor for a moment.
        for attempt in 1..ATTEMPTS {
            let (sent, received, _) = &best.0;
            if loss(sent, received) <= LOSS_LIMIT || self.flaws != Flaws::default() {
                break;
            }
            (deep, pace) = next(self.carrier, attempt, (deep, pace), rate(sent, received));
            let next = self.once(context, deep, pace)?;
            if loss(&next.0, &next.1) < loss(sent, received) {
                best = (next, pace);
            }
        }
        let ((sent, received, mut notes), at) = best;
        if received.good == 0 {
            return Err(Trouble::Failed(format!("{} frames were sent, none arrived whole", sent.frames)));
        }
        if let Some(at) = at {
            notes.push(format!("sent at {at:.0} frames/s at most: faster, too many were lost"));
        }
        if pace.is_some() && loss(&sent, &received) > LOSS_LIMIT {
            notes.push(format!(
                "more than {} % lost at every pace: no rate that this link carries",
                100.0 * LOSS_LIMIT
            ));
        }
        if received.disordered > 0 {
            notes.push(format!("{} frames came behind later ones", received.disordered));
        }
        if received.foreign > 0 {
            notes.push(format!("{} frames of somebody else, not counted", received.foreign));
        }
        let frames = rate(&sent, &received);
        let arrived = (received.good + received.corrupt).max(1) as f64;
        let values = [
            frames * self.size as f64,
            frames,
            loss(&sent, &received),
            received.corrupt as f64,
            sent.cpu_ns as f64 / sent.frames.max(1) as f64,
            received.cpu_ns as f64 / arrived,
        ];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: (!notes.is_empty()).then(|| notes.join("; ")) })
    }
}

/// What naive benchmarks print: a sender whose frames nobody takes.
pub struct SenderOnly {
    pub road: Rc<Road>,
    pub raw: bool,
    pub size: usize,
}

impl SenderOnly {
    fn subject(&self) -> &'static str {
        if self.raw { "raw-sender-only" } else { "udp-sender-only" }
    }

    fn why(&self) -> &'static str {
        if self.raw {
            "sent, not received: the socket that these frames are for is never read, so that the kernel drops what does \
             not fit into its queue, which is cheaper than delivering it; no throughput"
        } else {
            "sent, not received: to a port without a listener, so that the kernel answers each datagram with an ICMP \
             error, which is dearer than delivering it; no throughput"
        }
    }
}

impl Job for SenderOnly {
    fn title(&self) -> String {
        format!("throughput {} {} B {}", self.road.name, self.size, self.subject())
    }

    fn figures(&self, _: &Context) -> Vec<Figure> {
        SENDER_METRICS
            .iter()
            .map(|m| figure(&self.road, "throughput", self.subject(), self.size, m))
            .collect()
    }

    fn run(&self, context: &Context) -> Result<Outcome, Trouble> {
        let carrier = if self.raw { Carrier::RawPlain } else { Carrier::UdpSendto };
        fits(&self.road, carrier, self.size)?;
        let run = Run { carrier, size: self.size, number: 0, spin: false, verify: false, deep: false };
        let run = self.road.numbered(run);
        let sent = self.road.with(context, |ends| {
            let deadline = context.deadline(context.seconds);
            ends.far.order(&Order::Ignore(run))?;
            let (to, _) = ends.far.ready(deadline)?;
            let (seconds, flaws) = (context.seconds, Flaws::default());
            ends.near.order(&Order::Send { run, to, seconds, pace: None, flaws, greet: false })?;
            let sent = match ends.near.answer(deadline)? {
                Answer::Sent(sent) => sent,
                other => return Err(ends.near.unexpected(&other)),
            };
            finish(&mut ends.far, sent.frames, deadline)?;
            Ok(sent)
        })?;
        let rate = sent.frames as f64 / (sent.elapsed_ns.max(1) as f64 / 1e9);
        let cpu = sent.cpu_ns as f64 / sent.frames.max(1) as f64;
        let values = [rate * self.size as f64, rate, 0.0, 0.0, 1.0, cpu];
        let figures = self.figures(context).into_iter().zip(values.map(Sample::Value)).collect();
        Ok(Outcome { figures, note: Some(self.why().into()) })
    }
}

/// Ends what the far end does.
pub fn finish(far: &mut End, frames: u64, deadline: std::time::Instant) -> Result<(), Trouble> {
    far.order(&Order::Finish(frames))?;
    match far.answer(deadline)? {
        Answer::Done => Ok(()),
        other => Err(far.unexpected(&other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deep_ring_at_full_speed_comes_before_a_slower_sender() {
        let tried = |carrier: Carrier| {
            let mut last = (false, None);
            (1..5)
                .map(|attempt| {
                    last = next(carrier, attempt, last, 1000.0);
                    (last.0, last.1.map(|pace| pace.round() as u32))
                })
                .collect::<Vec<_>>()
        };
        let slower = [Some(970), Some(873), Some(786)];
        let ring = [(false, None), (true, None), (true, slower[0]), (true, slower[1])];
        assert_eq!(tried(Carrier::RawRing), ring);
        let others = [(false, None), (false, slower[0]), (false, slower[1]), (false, slower[2])];
        assert_eq!(tried(Carrier::RawPlain), others);
        assert_eq!(DEEP, 64 << 20);
    }
}
