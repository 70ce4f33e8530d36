//! `bypath l2 ping` and `bypath l2 echo`: round trips of frames.

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
use bypath::l2::{self, Builder, Error, MacAddr, Socket, Wait};
use bypath_sys::{clock, process};
use serde::Serialize;
use std::os::fd::AsFd;
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath l2 ping`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath l2 echo eth0                                      on the other host\n  \
    bypath l2 ping eth0 --dst 02:00:5e:10:00:01              1000 round trips, one each millisecond\n  \
    bypath l2 ping eth0 --dst 02:00:5e:10:00:01 --spin --interval 0us --size 1500\n\n\
    A round trip is the time from before the call that sends to after the one that receives; one frame is on its way at a \
    time. The content of each answer is compared.\n\n\
    Exit status: 0 if every frame came back as it was sent, 1 if the interface cannot be used, 2 for wrong usage, 3 if \
    answers were lost, late or wrong.")]
pub struct PingArgs {
    #[command(flatten)]
    common: Common,

    /// The hardware address of the answering side
    #[arg(long, value_name = "MAC", value_parser = raw::unicast)]
    dst: MacAddr,

    /// How many frames
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    count: u32,

    /// Time from one frame to the next
    #[arg(long, value_name = "TIME", default_value = "1ms", value_parser = values::time)]
    interval: Duration,

    /// Longest wait for an answer
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = values::period)]
    timeout: Duration,

    /// Octets of payload, from 24 up to the interface's MTU
    #[arg(long, value_name = "OCTETS", default_value_t = 46, value_parser = clap::value_parser!(u32).range(24..))]
    size: u32,

    #[command(flatten)]
    json: Json,
}

/// Arguments of `bypath l2 echo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath l2 echo eth0              answers `bypath l2 ping` until Ctrl-C\n  \
    bypath l2 echo eth0 --spin       the quickest answers, for a processor's whole time\n\n\
    Only frames of `bypath l2 ping` to this host are answered; others are counted.\n\n\
    Exit status: 0, 1 if the interface cannot be used, 2 for wrong usage.")]
pub struct EchoArgs {
    #[command(flatten)]
    common: Common,

    /// End after so many answers
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// EtherType of the frames
    #[arg(long, value_name = "TYPE", default_value = "0x88b5", value_parser = values::ethertype)]
    ethertype: u16,

    #[command(flatten)]
    tag: Tag,

    /// Look without a pause instead of sleeping
    #[arg(long)]
    spin: bool,
}

impl Common {
    fn open(&self) -> Result<Socket, Failure> {
        let builder: Builder = Socket::builder(&self.interface).ethertype(self.ethertype);
        raw::open(self.tag.apply(builder))
    }
}

/// Longest stretch of spinning between two looks at whether Ctrl-C was pressed.
const SPIN: Duration = Duration::from_millis(50);

/// Waits for frames until this time; `false` if there are none. Returns early, with `true`, after Ctrl-C and whenever a look
/// is due.
fn wait(socket: &mut Socket, stop: &Stop, spin: bool, until: Option<u64>) -> bool {
    let now = clock::monotonic_ns();
    if until.is_some_and(|until| now >= until) {
        return false;
    }
    if spin {
        let left = until.map_or(SPIN, |until| Duration::from_nanos(until - now).min(SPIN));
        socket.set_wait(Wait::Spin);
        socket.set_timeout(Some(left));
    } else {
        stop.wait([(socket.as_fd(), READ)], until);
    }
    true
}

/// What is printed as JSON.
#[derive(Serialize, Default)]
struct Report {
    interface: String,
    destination: String,
    payload_octets: u32,
    sent: u32,
    received: u32,
    lost: u32,
    late: u32,
    corrupt: u32,
    ignored: u64,
    round_trip_ns: Option<RoundTrip>,
}

#[derive(Serialize)]
struct RoundTrip {
    min: u64,
    mean: u64,
    p50: u64,
    p99: u64,
    #[serde(rename = "p99.9")]
    p999: u64,
    max: u64,
}

impl RoundTrip {
    fn of(times: &Histogram) -> Option<RoundTrip> {
        let at = |q| times.quantile(q).map(|v| v as u64);
        let (p50, p99, p999) = (at(0.5)?, at(0.99)?, at(0.999)?);
        Some(RoundTrip { min: at(0.0)?, mean: times.mean()? as u64, p50, p99, p999, max: at(1.0)? })
    }
}

/// Sends frames and waits for each answer.
pub fn ping(args: PingArgs) -> Outcome {
    let mut socket = args.common.open()?;
    raw::fits(&socket, args.size)?;
    let stop = Stop::new()?;
    let mut carrier = Carrier::new(&args.common.interface);
    let session = process::random_u64();
    let started = clock::monotonic_ns();
    let mut times = Histogram::new();
    let mut report = Report {
        interface: args.common.interface.clone(),
        destination: args.dst.to_string(),
        payload_octets: args.size,
        ..Report::default()
    };
    let header = l2::Header { ethertype: args.common.ethertype, ..socket.header(args.dst) };
    let mut outcome = Ok(());
    for seq in 0..args.count {
        stop.sleep(started.saturating_add(u64::from(seq) * args.interval.as_nanos() as u64));
        if stop.asked() {
            break;
        }
        let body = header::fill(seq, args.size as usize - header::SIZE);
        let frame = Header::new(Kind::Request, session, seq).frame(&body);
        let sent = clock::monotonic_ns();
        if let Err(e) = raw::send(&mut socket, &header, &frame) {
            outcome = Err(raw::failed(e));
            break;
        }
        report.sent += 1;
        match answer(&mut socket, &stop, &args, session, seq, sent, &mut report) {
            Ok(Some(received)) => {
                report.received += 1;
                times.record(received - sent);
            }
            // The user did not want to wait for it.
            Ok(None) if stop.asked() => report.sent -= 1,
            Ok(None) => {
                report.lost += 1;
                let now = clock::monotonic_ns();
                if carrier.is_due(now) {
                    carrier.look(now);
                }
            }
            Err(e) => {
                report.lost += 1;
                outcome = Err(e);
                break;
            }
        }
    }
    report.round_trip_ns = RoundTrip::of(&times);
    match args.json.target() {
        Some(target) => output::json(&target, &report)?,
        None => output::print(&text(&report))?,
    }
    outcome?;
    let good = report.sent > 0 && report.lost + report.late + report.corrupt == 0;
    if report.received == 0 && report.sent > 0 {
        output::message(format_args!(
            "nobody answered; does `bypath l2 echo IFACE` run there, with the same --ethertype and --vlan, and is {} the \
             hardware address of that interface?",
            args.dst
        ));
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

/// Waits for the answer to this frame. When it came; `None` if it did not.
fn answer(
    socket: &mut Socket,
    stop: &Stop,
    args: &PingArgs,
    session: u64,
    seq: u32,
    sent: u64,
    report: &mut Report,
) -> Result<Option<u64>, Failure> {
    let until = sent.saturating_add(args.timeout.as_nanos() as u64);
    loop {
        let mut found = None;
        let received = socket.receive_batch(64, |frame| {
            let now = clock::monotonic_ns();
            match Header::parse(frame.payload) {
                Some((h, body))
                    if h.kind == Kind::Reply && h.session == session && frame.source == args.dst =>
                {
                    let right =
                        body.len() + header::SIZE == args.size as usize && header::is_filled(h.seq, body);
                    match h.seq == seq && found.is_none() {
                        _ if !right => report.corrupt += 1,
                        true => found = Some(now),
                        // Of a frame that was given up, or a second one.
                        false => report.late += 1,
                    }
                }
                _ => report.ignored += 1,
            }
        });
        match received {
            Ok(_) if found.is_some() => return Ok(found),
            Ok(_) | Err(Error::Interrupted) => {}
            Err(Error::WouldBlock | Error::TimedOut { .. }) => {
                if stop.asked() || !wait(socket, stop, args.common.spin, Some(until)) {
                    return Ok(None);
                }
            }
            Err(e) => return Err(raw::failed(e)),
        }
    }
}

fn text(r: &Report) -> String {
    let mut text = format!(
        "{} on {}: {} frames of {} octets sent, {} came back, {} lost ({}), {} late or twice, {} with wrong content, {} \
         frames of others ignored\n",
        r.destination,
        r.interface,
        r.sent,
        r.payload_octets,
        r.received,
        r.lost,
        output::share(r.lost.into(), r.sent.into()),
        r.late,
        r.corrupt,
        r.ignored
    );
    if let Some(t) = &r.round_trip_ns {
        let [min, mean, p50, p99, p999, max] = [t.min, t.mean, t.p50, t.p99, t.p999, t.max].map(values::ns);
        text +=
            &format!("round trip: min {min}, mean {mean}, p50 {p50}, p99 {p99}, p99.9 {p999}, max {max}\n");
    }
    text
}

/// Sends requests back.
pub fn echo(args: &EchoArgs) -> Outcome {
    let mut socket = args.common.open()?;
    let stop = Stop::new()?;
    output::message(format_args!("answering on {} ({})", args.common.interface, socket.mac()));
    let wanted = args.count.unwrap_or(u64::MAX);
    let (mut answered, mut ignored) = (0u64, 0u64);
    let mut reply = Vec::new();
    let outcome = loop {
        if answered >= wanted || stop.asked() {
            break Ok(());
        }
        let mut to = None;
        let received = socket.receive_batch(1, |frame| {
            match Header::parse(frame.payload) {
                Some((h, body)) if h.kind == Kind::Request => {
                    reply.clear();
                    Header { kind: Kind::Reply, ..h }.write(body, &mut reply);
                    // To where it came from, with the tag that it had.
                    to = Some((frame.source, frame.vlan));
                }
                _ => ignored += 1,
            }
        });
        let sent = match (received, to) {
            (Ok(_), Some((destination, vlan))) => {
                let header =
                    l2::Header { ethertype: args.common.ethertype, vlan, ..socket.header(destination) };
                answered += 1;
                raw::send(&mut socket, &header, &reply)
            }
            (Err(Error::WouldBlock | Error::TimedOut { .. }), _) => {
                wait(&mut socket, &stop, args.common.spin, None);
                Ok(())
            }
            (Ok(_) | Err(Error::Interrupted), _) => Ok(()),
            (Err(e), _) => Err(e),
        };
        if let Err(e) = sent {
            break Err(raw::failed(e));
        }
    };
    output::message(format_args!("{answered} frames answered, {ignored} frames of others ignored"));
    outcome.map(|()| ExitCode::SUCCESS)
}
