//! `bypath l2 send`.

use crate::args::Json;
use crate::output::{self, Failure, Outcome};
use crate::raw::{self, Tag, carrier::Carrier, values, wait::Stop};
use bypath::l2::{self, MacAddr, Socket};
use bypath_sys::clock;
use clap::ValueHint;
use serde::Serialize;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath l2 send`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("what").required(true).args(["payload", "hex", "file"]),
    after_help = "Examples:\n  \
    bypath l2 send eth0 --dst 02:00:5e:10:00:01 --payload hello\n  \
    bypath l2 send eth0 --dst broadcast --vlan 10 --priority 7 --hex 'de ad be ef'\n  \
    bypath l2 send eth0 --dst 02:00:5e:10:00:01 --file frame.bin --count 1000 --interval 1ms\n\n\
    A payload shorter than 46 octets is padded with zeroes, as Ethernet demands; the receiver cannot tell them from it.\n\n\
    Exit status: 0 if all frames were given to the device, 1 if the interface, the rights or the payload do not fit (what was \
    sent by then is told), 2 for wrong usage, 3 if Ctrl-C came before the last frame."
)]
pub struct Args {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// EtherType of the frames
    #[arg(long, value_name = "TYPE", default_value = "0x88b5", value_parser = values::ethertype)]
    ethertype: u16,

    #[command(flatten)]
    tag: Tag,

    /// To this hardware address, or `broadcast`
    #[arg(long, value_name = "MAC", value_parser = raw::mac)]
    dst: MacAddr,

    /// From this hardware address instead of the interface's
    #[arg(long, value_name = "MAC", value_parser = raw::mac)]
    src: Option<MacAddr>,

    /// The payload as text
    #[arg(long, value_name = "TEXT")]
    payload: Option<String>,

    /// The payload as hexadecimal digits
    #[arg(long, value_name = "HEX")]
    hex: Option<String>,

    /// The payload is what this file contains; `-` is standard input
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: Option<PathBuf>,

    /// How many frames
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    count: u64,

    /// Time from one frame to the next, such as 1ms; without it, as fast as possible
    #[arg(long, value_name = "TIME", value_parser = values::time)]
    interval: Option<Duration>,

    #[command(flatten)]
    json: Json,
}

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    interface: String,
    frames: u64,
    asked: u64,
    payload_octets: usize,
    seconds: f64,
}

/// Sends.
pub fn run(args: Args) -> Outcome {
    let mut socket = raw::open(args.tag.apply(Socket::builder(&args.interface)).send_only())?;
    let payload = payload(&args, socket.mtu())?;
    let header = l2::Header {
        source: args.src.unwrap_or(socket.mac()),
        ethertype: args.ethertype,
        ..socket.header(args.dst)
    };
    let stop = Stop::new()?;
    let started = clock::monotonic_ns();
    let interval = args.interval.map_or(0, |i| i.as_nanos() as u64);
    let mut carrier = Carrier::new(&args.interface);
    let mut frames = 0;
    let outcome = loop {
        if frames >= args.count {
            break Ok(());
        }
        if interval > 0 {
            stop.sleep(started.saturating_add(frames.saturating_mul(interval)));
        }
        if stop.asked() {
            break Ok(());
        }
        if let Err(e) = raw::send(&mut socket, &header, &payload) {
            break Err(raw::failed(e));
        }
        frames += 1;
        let now = clock::monotonic_ns();
        if carrier.is_due(now) {
            carrier.look(now);
        }
    };
    let seconds = (clock::monotonic_ns() - started) as f64 / 1e9;
    let complete = frames == args.count;
    let report = Report {
        frames,
        asked: args.count,
        payload_octets: payload.len(),
        seconds,
        interface: args.interface,
    };
    match args.json.target() {
        Some(target) => output::json(&target, &report)?,
        None => output::message(format_args!(
            "{frames} of {} frames of {} octets of payload sent to {} in {seconds:.3} s",
            args.count,
            payload.len(),
            args.dst
        )),
    }
    outcome?;
    Ok(if complete { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

/// The payload, of which no more is read than tells that it is too long.
fn payload(args: &Args, mtu: usize) -> Result<Vec<u8>, Failure> {
    if let Some(text) = &args.payload {
        return Ok(text.clone().into_bytes());
    }
    if let Some(text) = &args.hex {
        return values::octets(text).map_err(|e| Failure::new(2, format_args!("--hex: {e}")));
    }
    let path = args.file.as_deref().unwrap_or(Path::new("-"));
    let mut octets = Vec::new();
    let longest = mtu as u64 + 1;
    let read = if path == Path::new("-") {
        std::io::stdin().take(longest).read_to_end(&mut octets)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(longest).read_to_end(&mut octets))
    };
    read.map_err(|e| Failure::new(1, format_args!("cannot read {}: {e}", path.display())))?;
    if octets.len() > mtu {
        let text = format!(
            "{}: longer than the {mtu} octets that {} carries in a frame; cut it: head -c {mtu}",
            path.display(),
            args.interface
        );
        return Err(Failure::new(1, text));
    }
    Ok(octets)
}
