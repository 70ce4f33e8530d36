//! `bypath netstack ping`.

use super::attach::{Attach, Host};
use crate::args::Json;
use crate::bench::histogram::Histogram;
use crate::output::{self, Failure, Outcome};
use crate::raw::{self, values, wait::Stop};
use bypath::wire::{Icmpv4Message, Icmpv6Message, IpProtocol, icmpv4};
use bypath_stack::socket::{Options, SocketId};
use bypath_sys::{clock, process};
use serde::Serialize;
use std::net::IpAddr;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath netstack ping`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath netstack ping --link tap:bp0 --net 10.9.0.1/24 10.9.0.1          the kernel at the device's other end\n  \
    bypath netstack ping --link tap:bp0 --net fd09::1/64 fd09::1\n  \
    bypath netstack ping --link packet:eth0 --dhcp 192.0.2.1\n  \
    bypath netstack ping --link packet:eth0 --addr 10.0.0.9/24 --gateway 10.0.0.1 192.0.2.1\n\n\
    It needs CAP_NET_ADMIN for a device that it makes, CAP_NET_RAW for packet:, both and CAP_BPF for xdp:; root of a user \
    namespace of one's own has them for the interfaces there: unshare --user --net --map-root-user\n\n\
    Exit status: 0 if every request was answered, 1 if the link or the addresses cannot be used, 2 for wrong usage, 3 if \
    answers were lost or wrong.")]
pub struct Args {
    #[command(flatten)]
    attach: Attach,

    /// Whom to ask
    #[arg(value_name = "IP")]
    destination: IpAddr,

    /// How many requests, up to 65535
    #[arg(short, long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=65_535))]
    count: u32,

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
#[derive(Serialize, Default)]
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

/// What came back.
enum Answer {
    /// The reply to the request with this number.
    Reply { sequence: u16, right: bool },
    /// The request was not delivered.
    Refused(&'static str),
}

struct Ping<'a> {
    args: &'a Args,
    host: Host,
    socket: SocketId,
    identifier: u16,
    payload: Vec<u8>,
    room: Vec<u8>,
}

/// Asks, and waits for answers.
pub fn run(args: &Args) -> Outcome {
    let stop = Stop::new()?;
    let Some(mut host) = args.attach.begin(&stop)? else { return Ok(ExitCode::from(raw::LOST)) };
    let protocol = if args.destination.is_ipv4() { IpProtocol::ICMP } else { IpProtocol::ICMPV6 };
    let socket = host.stack().open_raw(protocol).map_err(|e| Failure::new(1, e))?;
    let seed = process::random_u64();
    let mut ping = Ping {
        args,
        host,
        socket,
        identifier: seed as u16,
        payload: (0..args.size).map(|n| (u64::from(n) ^ seed) as u8).collect(),
        room: vec![0; 65_536],
    };
    if let Some(mut raw) = ping.host.stack().raw(socket) {
        let options = Options {
            hop_limit: Some(args.ttl),
            group_hop_limit: args.ttl,
            broadcast: true,
            ..raw.options()
        };
        raw.set_options(options);
    }
    let (report, times) = ping.all(&stop)?;
    let own = ping.host.addresses();
    let link = format!("{} ({own})", ping.host.name);
    ping.host.end();
    let report = Report { link, round_trip_ns: times, ..report };
    match args.json.target() {
        Some(target) => output::json(&target, &report)?,
        None => output::print(&text(&report))?,
    }
    let good = report.sent > 0 && report.received == report.sent && report.corrupt == 0;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

impl Ping<'_> {
    fn all(&mut self, stop: &Stop) -> Result<(Report, Option<Times>), Failure> {
        let mut report = Report { destination: self.args.destination.to_string(), ..Report::default() };
        let mut times = Histogram::new();
        let (interval, timeout) = (self.args.interval.as_nanos() as u64, self.args.timeout.as_nanos() as u64);
        let began = clock::monotonic_ns();
        // When each was sent; 0: it was answered.
        let mut sent: Vec<u64> = Vec::new();
        while !stop.asked() {
            let now = clock::monotonic_ns();
            let next = began.saturating_add(sent.len() as u64 * interval);
            let all = sent.len() as u32 == self.args.count;
            let waits = sent.last().is_some_and(|at| now < at.saturating_add(timeout))
                && sent.iter().any(|at| *at != 0);
            if all && !waits {
                break;
            }
            if !all && now >= next {
                let text = format!("cannot send to {}", self.args.destination);
                self.ask(sent.len() as u16).map_err(|e| Failure::new(1, format_args!("{text}: {e}")))?;
                sent.push(now);
            }
            let last = sent.last().copied().unwrap_or(now).saturating_add(timeout);
            self.host
                .turn(stop, if all { last } else { began.saturating_add(sent.len() as u64 * interval) })?;
            self.host.hear()?;
            let now = clock::monotonic_ns();
            while let Some((answer, from)) = self.answer() {
                match answer {
                    Answer::Reply { sequence, right } => match sent.get_mut(usize::from(sequence)) {
                        Some(_) if !right => report.corrupt += 1,
                        Some(0) => report.duplicate += 1,
                        Some(at) => {
                            let took = now.saturating_sub(std::mem::take(at));
                            // Too late is lost.
                            if took <= timeout {
                                times.record(took);
                                report.received += 1;
                                if self.args.json.target().is_none() {
                                    let line = format!(
                                        "{} octets from {from}: number {sequence}, {}\n",
                                        self.args.size,
                                        values::ns(took)
                                    );
                                    output::print(&line)?;
                                }
                            }
                        }
                        None => {}
                    },
                    Answer::Refused(why) => {
                        report.refused += 1;
                        output::message(format_args!("{from} says: {why}"));
                    }
                }
            }
        }
        report.sent = sent.len() as u32;
        report.lost = report.sent - report.received;
        let at = |q| times.quantile(q).map(|v| v as u64);
        let all = (at(0.0), at(0.5), at(0.99), at(1.0));
        let times = match all {
            (Some(min), Some(p50), Some(p99), Some(max)) => Some(Times { min, p50, p99, max }),
            _ => None,
        };
        Ok((report, times))
    }

    fn ask(&mut self, sequence: u16) -> Result<(), Box<dyn std::error::Error>> {
        let identifier = self.identifier;
        let len = match self.args.destination {
            IpAddr::V4(_) => Icmpv4Message::EchoRequest { identifier, sequence }
                .emit_with(&mut self.room, &self.payload)?,
            IpAddr::V6(_) => {
                let header = Icmpv6Message::EchoRequest { identifier, sequence }.emit(&mut self.room)?;
                self.room[header..header + self.payload.len()].copy_from_slice(&self.payload);
                header + self.payload.len()
            }
        };
        let on = is_link_local(self.args.destination).then_some(self.host.iface);
        let to = self.args.destination;
        if let Some(mut raw) = self.host.engine.stack().raw(self.socket) {
            raw.send(&self.room[..len], to, on)?;
        }
        Ok(())
    }

    /// The next answer to one of ours, and who sent it.
    fn answer(&mut self) -> Option<(Answer, IpAddr)> {
        while let Some(mut raw) = self.host.engine.stack().raw(self.socket) {
            let Ok(received) = raw.receive(&mut self.room) else { break };
            let octets = &self.room[..received.len.min(self.room.len())];
            let from = received.datagram.from.ip();
            let found = match from {
                IpAddr::V4(_) => self.read_v4(octets),
                IpAddr::V6(_) => self.read_v6(octets),
            };
            if let Some(answer) = found {
                return Some((answer, from));
            }
        }
        None
    }

    fn reply(&self, identifier: u16, sequence: u16, payload: &[u8]) -> Option<Answer> {
        (identifier == self.identifier).then(|| Answer::Reply { sequence, right: payload == self.payload })
    }

    fn read_v4(&self, octets: &[u8]) -> Option<Answer> {
        let (message, rest) = Icmpv4Message::parse(octets).ok().filter(|_| icmpv4::is_intact(octets))?;
        let why = match message {
            Icmpv4Message::EchoReply { identifier, sequence } => {
                return self.reply(identifier, sequence, rest);
            }
            Icmpv4Message::Unreachable { .. } => "the destination cannot be reached",
            Icmpv4Message::TimeExceeded { .. } => {
                "the request passed too many routers, or fragments were lost"
            }
            Icmpv4Message::ParameterProblem { .. } => "the request's header is not understood",
            _ => return None,
        };
        // What it quotes begins with the IP header of the request.
        let header = usize::from(rest.first()? & 0xf) * 4;
        self.is_own(rest.get(header..)?, 8).then_some(Answer::Refused(why))
    }

    fn read_v6(&self, octets: &[u8]) -> Option<Answer> {
        let (message, rest) = Icmpv6Message::parse(octets).ok()?;
        let why = match message {
            Icmpv6Message::EchoReply { identifier, sequence } => {
                return self.reply(identifier, sequence, rest);
            }
            Icmpv6Message::Unreachable { .. } => "the destination cannot be reached",
            Icmpv6Message::PacketTooBig { .. } => "the request is too big for a link on the way",
            Icmpv6Message::TimeExceeded { .. } => {
                "the request passed too many routers, or fragments were lost"
            }
            Icmpv6Message::ParameterProblem { .. } => "the request's header is not understood",
            _ => return None,
        };
        self.is_own(rest.get(40..)?, 128).then_some(Answer::Refused(why))
    }

    /// Whether the quoted ICMP message is a request of ours.
    fn is_own(&self, quoted: &[u8], kind: u8) -> bool {
        quoted.first() == Some(&kind) && quoted.get(4..6) == Some(&self.identifier.to_be_bytes())
    }
}

const fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => v4.is_broadcast(),
        IpAddr::V6(v6) => v6.is_unicast_link_local() || v6.is_multicast(),
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
