//! `bypath netstack ping`.

use super::attach::{Host, Source, Stacks};
use super::found;
use crate::args::Json;
use crate::bench::histogram::Histogram;
use crate::output::{self, Failure, Outcome};
use crate::raw::{self, values, wait::READ, wait::Stop};
use bypath_netstack::service::{Client, QueryError};
use bypath_netstack::{Ping, PingCounts, PingEvent, Pinger};
use bypath_sys::{Errno, clock, process};
use serde::Serialize;
use std::fmt::Display;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath netstack ping`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Without --link the service asks, from its stack, for root and the user who runs it.\n\n\
    Examples:\n  \
    bypath netstack ping 10.9.0.1                                           from the service named default\n  \
    bypath netstack ping --name lab --count 100 --interval 10ms 192.0.2.1\n  \
    bypath netstack ping --link tap:bp0 --net 10.9.0.1/24 10.9.0.1          the kernel at the device's other end\n  \
    bypath netstack ping --link tap:bp0 --net fd09::1/64 fd09::1\n  \
    bypath netstack ping --link packet:eth0 --dhcp 192.0.2.1\n  \
    bypath netstack ping --link packet:eth0 --addr 10.0.0.9/24 --gateway 10.0.0.1 192.0.2.1\n\n\
    With --link it needs CAP_NET_ADMIN for a device that it makes, CAP_NET_RAW for packet:, both and CAP_BPF for xdp:; root of a user \
    namespace of one's own has them for the interfaces there: unshare --user --net --map-root-user\n\n\
    Exit status: 0 if every request was answered, 1 if the link, the addresses or the service cannot be used, 2 for wrong usage, 3 if \
    answers were lost or wrong."
)]
pub struct Args {
    #[command(flatten)]
    source: Source,

    /// Whom to ask
    #[arg(value_name = "IP")]
    destination: IpAddr,

    /// How many requests, up to 65535
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..))]
    count: u16,

    /// Time from one request to the next
    #[arg(short, long, value_name = "TIME", default_value = "1s", value_parser = values::time)]
    interval: Duration,

    /// Longest wait for an answer
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::period)]
    timeout: Duration,

    /// Octets of a request behind its ICMP header; more than the MTU has room for are cut into fragments
    #[arg(short, long, value_name = "OCTETS", default_value_t = 56, value_parser = clap::value_parser!(u32).range(8..=65_400))]
    size: u32,

    /// Routers that a request may pass
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u8).range(1..))]
    ttl: u8,

    #[command(flatten)]
    json: Json,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    destination: String,
    link: String,
    sent: u32,
    received: u32,
    lost: u32,
    duplicate: u32,
    corrupt: u32,
    /// Errors that routers or the host sent.
    refused: u32,
    round_trip_ns: Option<Times>,
}

#[derive(Serialize)]
struct Times {
    min: u64,
    p50: u64,
    p99: u64,
    max: u64,
}

/// What has come so far.
struct Heard<'a> {
    args: &'a Args,
    times: Histogram,
    counts: PingCounts,
}

/// Asks, and waits for answers.
pub fn run(args: &Args) -> Outcome {
    let stop = Stop::new()?;
    let ping = Ping {
        destination: args.destination,
        count: args.count,
        interval_ns: args.interval.as_nanos() as u64,
        timeout_ns: args.timeout.as_nanos() as u64,
        octets: args.size,
        hop_limit: args.ttl,
    };
    let mut heard = Heard { args, times: Histogram::new(), counts: PingCounts::default() };
    let link = match args.source.stack()? {
        Stacks::Own(attach) => {
            let Some(host) = attach.begin(&stop)? else { return Ok(ExitCode::from(raw::LOST)) };
            heard.by_own(host, ping, &stop)?
        }
        Stacks::Service(name) => heard.by_service(&name, ping, &stop)?,
    };
    let Heard { times, counts, .. } = heard;
    let at = |q| times.quantile(q).map(|v| v as u64);
    let times = match (at(0.0), at(0.5), at(0.99), at(1.0)) {
        (Some(min), Some(p50), Some(p99), Some(max)) => Some(Times { min, p50, p99, max }),
        _ => None,
    };
    let PingCounts { sent, received, lost, duplicate, corrupt, refused, .. } = counts;
    let destination = args.destination.to_string();
    let report =
        Report { destination, link, sent, received, lost, duplicate, corrupt, refused, round_trip_ns: times };
    match args.json.target() {
        Some(target) => output::json(&target, &report)?,
        None => output::print(&text(&report))?,
    }
    let good = report.sent > 0 && report.received == report.sent && report.corrupt == 0;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

impl Heard<'_> {
    fn hear(&mut self, event: PingEvent) -> Result<(), Failure> {
        match event {
            PingEvent::Answered { from, number, round_trip_ns } => {
                self.times.record(round_trip_ns);
                if self.args.json.target().is_none() {
                    let (size, took) = (self.args.size, values::ns(round_trip_ns));
                    output::print(&format!("{size} octets from {from}: number {number}, {took}\n"))?;
                }
            }
            PingEvent::Refused { from, why } => {
                output::message(format_args!("{from} says: {}", output::printable(&why)));
            }
            PingEvent::Silent { neighbor } if neighbor == self.args.destination => {
                output::message(format_args!(
                    "no neighbour answers for {neighbor}: is that host there, and in this network?"
                ));
            }
            PingEvent::Silent { neighbor } => output::message(format_args!(
                "the router {neighbor}, by which {} is reached, does not answer: no neighbour has that address",
                self.args.destination
            )),
            PingEvent::Ended(counts) => self.counts = counts,
            _ => {}
        }
        Ok(())
    }

    fn unsent(&self, why: impl Display) -> Failure {
        Failure::new(1, format_args!("cannot send to {}: {why}", self.args.destination))
    }

    /// From a stack of our own; which link it has been.
    fn by_own(&mut self, mut host: Host, ping: Ping, stop: &Stop) -> Result<String, Failure> {
        let (iface, seed) = (host.iface, process::random_u64());
        let begun = Pinger::begin(host.stack(), ping, seed, clock::monotonic_ns());
        let mut pinger = begun.map_err(|e| Failure::new(1, e))?;
        while !stop.asked() {
            while let Some(event) = pinger.event(host.stack(), clock::monotonic_ns()) {
                self.hear(event)?;
            }
            let next = pinger.turn(host.stack(), clock::monotonic_ns(), iface).map_err(|e| self.unsent(e))?;
            let Some(until) = next else { break };
            host.turn(stop, until)?;
            host.hear()?;
        }
        while let Some(event) = pinger.event(host.stack(), clock::monotonic_ns()) {
            self.hear(event)?;
        }
        self.hear(PingEvent::Ended(pinger.end(host.stack())))?;
        let own = host.addresses();
        let link = format!("{} ({own})", host.name);
        host.end();
        Ok(link)
    }

    /// From a service's; which one it has been.
    fn by_service(&mut self, name: &str, ping: Ping, stop: &Stop) -> Result<String, Failure> {
        let client =
            Client::at(&found::running_or(name, 1, "or say --link LINK, for a stack of the command's own")?);
        let mut pings = client.ping(ping).map_err(|e| Failure::new(1, e))?;
        let mut stopped = false;
        loop {
            // Once it is stopped the answer is waited for alone.
            if !stopped && !stop.wait([(pings.descriptor(), READ)], None)[0] {
                stopped = stop.asked();
                if stopped {
                    pings.stop();
                }
                continue;
            }
            match pings.event() {
                Ok(Some(event)) => self.hear(event)?,
                Ok(None) => return Ok(format!("the service {name}")),
                Err(QueryError::Refused { errno, why, .. }) if errno == Errno::NETUNREACH.raw_os_error() => {
                    return Err(self.unsent(why));
                }
                Err(e) => return Err(Failure::new(1, e)),
            }
        }
    }
}

fn text(r: &Report) -> String {
    let mut text = format!(
        "{} from {}: {} sent, {} answered, {} lost ({}), {} twice, {} with wrong content, {} refused\n",
        r.destination,
        r.link,
        r.sent,
        r.received,
        r.lost,
        output::share(r.lost.into(), r.sent.into()),
        r.duplicate,
        r.corrupt,
        r.refused
    );
    if let Some(t) = &r.round_trip_ns {
        let [min, p50, p99, max] = [t.min, t.p50, t.p99, t.max].map(values::ns);
        text += &format!("round trip: min {min}, p50 {p50}, p99 {p99}, max {max}\n");
    }
    text
}
