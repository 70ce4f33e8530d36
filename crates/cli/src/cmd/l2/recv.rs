//! `bypath l2 recv`.

use super::capture::Capture;
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self, values,
    wait::{GONE, READ, Stop},
};
use bypath::l2::{Addressed, Builder, Error, Frame, MacAddr, Socket, TPID_SERVICE, TPID_VLAN, Vlan, VlanTag};
use bypath_sys::clock;
use clap::ValueHint;
use serde::Serialize;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// Arguments of `bypath l2 recv`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath l2 recv eth0                                 frames of EtherType 0x88b5 to this host\n  \
    bypath l2 recv eth0 --vlan 10 --count 1 --timeout 5s\n  \
    bypath l2 recv eth0 --ethertype any --promiscuous --hex\n  \
    bypath l2 recv eth0 --json | jq .payload            a document per frame and line\n  \
    bypath l2 recv eth0 --ethertype any -w frames.pcapng     for Wireshark, tags where they stood on the wire\n  \
    bypath l2 recv eth0 -w - | tshark -r - -V\n\n\
    Padding counts as payload: frames do not tell it apart. The counts are printed to standard error at the end.\n\n\
    Exit status: 0, also after Ctrl-C, and when nobody reads its output any more (`| head -1`); 1 if the interface cannot be used, or the output not written; 2 for wrong usage; 3 if \
    --timeout passed before --count frames (without --count: before one), or frames were lost because they were not taken in \
    time.")]
pub struct Args {
    /// The interface
    #[arg(value_name = "IFACE")]
    interface: String,

    /// Only this EtherType; may be given several times; `any`: all [default: 0x88b5]
    #[arg(long, value_name = "TYPE", value_parser = some_ethertype)]
    ethertype: Vec<Wanted>,

    /// Only frames of this VLAN, 1 to 4094; `none`: only frames of none
    #[arg(long, value_name = "VLAN", value_parser = vlan)]
    vlan: Option<Vlan>,

    /// Only frames from this hardware address
    #[arg(long, value_name = "MAC", value_parser = raw::mac)]
    from: Option<MacAddr>,

    /// Everything that the device hears, to whomever it is sent
    #[arg(long)]
    promiscuous: bool,

    /// End after so many frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    /// End after this time, such as 5s
    #[arg(long, value_name = "TIME", value_parser = values::period)]
    timeout: Option<Duration>,

    /// Write the frames to this file as a capture (pcapng) instead of printing them; a new one has mode 0600; `-` is standard output
    #[arg(short = 'w', long = "write", value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with_all = ["hex", "json"])]
    write: Option<PathBuf>,

    /// A remark in the capture
    #[arg(long, value_name = "TEXT", requires = "write")]
    comment: Option<String>,

    /// Print payloads as hexadecimal digits
    #[arg(long, conflicts_with = "json")]
    hex: bool,

    /// Print a JSON document per frame, each in a line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
enum Wanted {
    Any,
    Only(u16),
}

fn some_ethertype(text: &str) -> Result<Wanted, String> {
    if text == "any" { Ok(Wanted::Any) } else { values::ethertype(text).map(Wanted::Only) }
}

fn vlan(text: &str) -> Result<Vlan, String> {
    match text.parse() {
        _ if text == "none" => Ok(Vlan::None),
        Ok(id @ 1..=4094) => Ok(Vlan::Id(id)),
        _ => Err("expected a VLAN from 1 to 4094, or `none`".into()),
    }
}

/// A VLAN tag in JSON.
#[derive(Serialize)]
struct Tag {
    vlan: u16,
    priority: u8,
    drop_eligible: bool,
    tpid: u16,
}

impl From<VlanTag> for Tag {
    fn from(t: VlanTag) -> Tag {
        Tag { vlan: t.vid, priority: t.pcp, drop_eligible: t.dei, tpid: t.tpid }
    }
}

/// A frame in JSON.
#[derive(Serialize)]
struct Record {
    time_ns: Option<u64>,
    destination: String,
    source: String,
    tags: Vec<Tag>,
    ethertype: u16,
    addressed: String,
    octets: usize,
    payload: String,
}

/// Prints frames until there were enough.
pub fn run(args: &Args) -> Outcome {
    let mut socket = raw::open(builder(args))?;
    let stop = Stop::new()?;
    let end = args.timeout.map(|t| clock::monotonic_ns().saturating_add(t.as_nanos() as u64));
    let is_over = || stop.asked() || end.is_some_and(|end| clock::monotonic_ns() >= end);
    let comment = args.comment.as_deref();
    let mut capture = match &args.write {
        Some(path) => Some(Capture::create(path, &args.interface, socket.mac(), comment, is_over)?),
        None => None,
    };
    output::message(format_args!("receiving on {} ({})", args.interface, socket.mac()));
    let wanted = args.count.unwrap_or(u64::MAX);
    let printed = args.write.as_deref().is_none_or(|file| file == Path::new("-"));
    let (mut frames, mut octets, mut foreign) = (0u64, 0u64, 0u64);
    let mut lines = Vec::new();
    let outcome = loop {
        if frames >= wanted || stop.asked() {
            break Ok(());
        }
        let most = usize::try_from(wanted - frames).unwrap_or(usize::MAX).min(64);
        lines.clear();
        let mut written = Ok(());
        let received = socket.receive_batch(most, |frame| {
            if args.from.is_some_and(|from| from != frame.source) {
                foreign += 1;
                return;
            }
            frames += 1;
            octets += frame.payload.len() as u64;
            if written.is_ok() {
                written = match &mut capture {
                    Some(capture) => capture.frame(&frame),
                    None => print(args, &frame, &mut lines),
                };
            }
        });
        written?;
        let read = match &mut capture {
            Some(capture) => capture.is_read(),
            None => put(&lines)?,
        };
        match received {
            _ if !read => break Ok(()),
            Ok(_) | Err(Error::Interrupted) => {}
            Err(Error::WouldBlock) if end.is_some_and(|end| clock::monotonic_ns() >= end) => break Ok(()),
            Err(Error::WouldBlock) => {
                if let Some(capture) = &mut capture {
                    // What is there can be read by others while nothing comes.
                    capture.flush()?;
                }
                // A reader that goes away is noticed at once, not only with the next frame.
                let gone = if printed { GONE } else { 0 };
                let stdout = io::stdout();
                if stop.wait([(socket.as_fd(), READ), (stdout.as_fd(), gone)], end)[1] {
                    break Ok(());
                }
            }
            Err(e) => break Err(raw::failed(e)),
        }
    };
    let statistics = socket.statistics();
    if let Some(capture) = capture {
        capture.finish(statistics.received, statistics.dropped)?;
    }
    let mut text = format!("{frames} frames with {octets} octets of payload received");
    if args.from.is_some() {
        text += &format!(", {foreign} from others left out");
    }
    if statistics.cut > 0 {
        text += &format!(", {} left out because they were longer than any buffer", statistics.cut);
    }
    if statistics.dropped > 0 {
        text += &format!(", {} lost because they were not taken in time", statistics.dropped);
    }
    output::message(text);
    outcome?;
    let too_few = frames < args.count.unwrap_or(1) && args.timeout.is_some() && !stop.asked();
    Ok(if too_few || statistics.dropped + statistics.cut > 0 {
        ExitCode::from(raw::LOST)
    } else {
        ExitCode::SUCCESS
    })
}

fn builder(args: &Args) -> Builder {
    let mut builder = Socket::builder(&args.interface).all_groups();
    let any = args.ethertype.iter().any(|w| matches!(w, Wanted::Any));
    if args.ethertype.is_empty() {
        builder = builder.ethertype(bypath::l2::ETHERTYPE_HYBRID);
    }
    for wanted in &args.ethertype {
        if let (Wanted::Only(ethertype), false) = (wanted, any) {
            builder = builder.ethertype(*ethertype);
        }
    }
    if args.promiscuous {
        builder = builder.promiscuous();
    }
    builder.receive_vlan(args.vlan.unwrap_or(Vlan::Any))
}

/// Writes lines to standard output; `false` if nobody reads it any more.
fn put(lines: &[u8]) -> Result<bool, Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(lines).and_then(|()| out.flush()) {
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(e) => Err(Failure::new(1, format_args!("cannot write to standard output: {e}"))),
        Ok(()) => Ok(true),
    }
}

fn addressed(whom: Addressed) -> String {
    format!("{whom:?}").to_lowercase()
}

/// All tags of a frame, what its payload is, and the payload: a frame knows two tags, and may have more.
fn taken_apart<'a>(frame: &Frame<'a>) -> (Vec<VlanTag>, u16, &'a [u8]) {
    let mut tags: Vec<_> = [frame.vlan, frame.inner_vlan].into_iter().flatten().collect();
    let (mut ethertype, mut payload) = (frame.ethertype, frame.payload);
    while let (TPID_VLAN | TPID_SERVICE, [a, b, c, d, rest @ ..]) = (ethertype, payload) {
        tags.push(VlanTag::from_tci(ethertype, u16::from_be_bytes([*a, *b])));
        (ethertype, payload) = (u16::from_be_bytes([*c, *d]), rest);
    }
    (tags, ethertype, payload)
}

/// Appends the line of a frame.
fn print(args: &Args, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Failure> {
    let (tags, ethertype, payload) = taken_apart(frame);
    let tags = tags.into_iter();
    if args.json {
        let record = Record {
            time_ns: frame.timestamp.map(|t| t.ns),
            destination: frame.destination.to_string(),
            source: frame.source.to_string(),
            tags: tags.map(Tag::from).collect(),
            ethertype,
            addressed: addressed(frame.addressed),
            octets: payload.len(),
            payload: values::hex(payload),
        };
        let written = serde_json::to_writer(&mut *out, &record);
        written.map_err(|e| Failure::new(1, format_args!("cannot make JSON of this: {e}")))?;
        out.push(b'\n');
        return Ok(());
    }
    let time = frame
        .timestamp
        .map_or("-".to_owned(), |t| format!("{}.{:09}", t.ns / 1_000_000_000, t.ns % 1_000_000_000));
    let tags: String = tags
        .map(|t| format!(" vlan {} priority {}{}", t.vid, t.pcp, if t.dei { " drop-eligible" } else { "" }))
        .collect();
    let shown = if args.hex {
        values::hex(payload)
    } else {
        // Zeroes at the end are padding, most likely, and nothing to look at.
        let end = payload.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1);
        output::printable(&String::from_utf8_lossy(&payload[..end]))
    };
    let line = format!(
        "{time} {} > {}{tags} {:#06x} {} octets: {shown}\n",
        frame.source,
        frame.destination,
        ethertype,
        payload.len()
    );
    out.extend_from_slice(line.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath::link::FrameMeta;

    #[test]
    fn every_tag_is_shown_and_half_of_one_is_payload() {
        let mut octets = vec![2; 12];
        octets.extend([0x88, 0xa8, 0, 7, 0x81, 0, 0, 10, 0x81, 0, 0xe0, 11, 0x88, 0xb5, 1, 2, 3]);
        let seen = |len: usize| {
            let frame = Frame::parse(&octets[..len], &FrameMeta::default()).expect("a header");
            let (tags, ethertype, payload) = taken_apart(&frame);
            (tags.iter().map(|tag| tag.vid).collect::<Vec<_>>(), ethertype, payload.len())
        };
        assert_eq!(seen(29), (vec![7, 10, 11], 0x88b5, 3));
        assert_eq!(seen(26), (vec![7, 10, 11], 0x88b5, 0));
        assert_eq!(seen(25), (vec![7, 10], 0x8100, 3));
        assert_eq!(seen(20), (vec![7], 0x8100, 2));
    }
}
