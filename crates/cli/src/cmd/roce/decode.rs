//! `bypath roce decode`.

use crate::args::{Json, Target};
use crate::output::{self, Failure, Outcome};
use crate::raw::{self, values};
use bypath::wire::dissect::{First, Header, Verdict, Why, dissect};
use bypath::wire::print::Line;
use bypath::{pcap, pcapng};
use clap::ValueHint;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{BufReader, Cursor, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `bypath roce decode`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath roce decode capture.pcap\n  \
    bypath l2 recv eth0 --ethertype 0x0800 -w now.pcapng; bypath roce decode now.pcapng\n  \
    bypath roce decode capture.pcap --json | jq '.packets[] | select(.icrc == \"wrong\")'\n\n\
    Reads pcap and pcapng files of Ethernet frames or IP packets. Each RoCEv2 packet (UDP port 4791) takes a line: its number \
    in the file, the time since the first frame, what its headers say, and whether the ICRC fits. Other frames are counted.\n\n\
    Of a packet that the capture cut there is what its headers say, as far as they are there; its ICRC is not known.\n\n\
    Exit status: 0 if every RoCEv2 packet, as far as the capture has it, is well formed, and every ICRC that can be checked \
    fits; 1 if the file cannot be read; 2 for wrong usage; 3 if a packet is malformed or has a wrong ICRC.")]
pub struct Args {
    /// The capture file; `-` is standard input
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    file: PathBuf,

    #[command(flatten)]
    json: Json,
}

/// What a packet's ICRC says.
#[derive(Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Icrc {
    Right,
    Wrong,
    /// Not everything that it covers was captured.
    Unknown,
    /// The packet breaks a rule of its format.
    Malformed,
}

#[derive(Serialize)]
struct Packet {
    frame: u64,
    seconds: f64,
    icrc: Icrc,
    /// The capture has not all of it.
    cut: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    opcode: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    qpn: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    psn: Option<u32>,
    text: String,
}

#[derive(Default, Serialize)]
struct Report {
    frames: u64,
    roce: u64,
    right: u64,
    wrong: u64,
    unknown: u64,
    malformed: u64,
    /// Those of which the capture has not all.
    cut: u64,
    packets: Vec<Packet>,
    /// Why the file was not read to its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

struct Decoder {
    report: Report,
    /// Lines that are not printed yet; `None`: packets are kept for the report.
    lines: Option<String>,
    begun: Option<u64>,
}

/// Explains a file.
pub fn run(args: &Args) -> Outcome {
    let target = args.json.target();
    let lines = target.is_none().then(String::new);
    let mut decoder = Decoder { report: Report::default(), lines, begun: None };
    if let Err(error) = decoder.file(&args.file) {
        let text = format!("{}: {error}", args.file.display());
        // Nothing was read: there is nothing to be told.
        if decoder.report.frames == 0 {
            return Err(Failure::new(1, text));
        }
        decoder.report.error = Some(text);
    }
    decoder.flush()?;
    let report = decoder.report;
    match target {
        Some(target) => output::json(&target, &report)?,
        None => output::message(format_args!(
            "{} frames, {} of them RoCEv2: ICRC right {}, wrong {}, not to be checked {}; malformed {}{}",
            report.frames,
            report.roce,
            report.right,
            report.wrong,
            report.unknown,
            report.malformed,
            match report.cut {
                0 => String::new(),
                cut => format!("; {cut} cut by the capture (tcpdump -s 0 keeps whole packets)"),
            }
        )),
    }
    if let Some(error) = &report.error {
        return Err(Failure::new(1, error));
    }
    let good = report.wrong == 0 && report.malformed == 0;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::from(raw::LOST) })
}

/// What frames begin with, by LINKTYPE_...; `None`: not known here.
const fn first(link_type: u16) -> Option<First> {
    match link_type {
        pcapng::ETHERNET => Some(First::Ethernet),
        // RAW, as different systems number it; IPV4; IPV6.
        12 | 14 | 101 | 228 | 229 => Some(First::Ip),
        _ => None,
    }
}

impl Decoder {
    fn file(&mut self, path: &Path) -> Result<(), String> {
        let mut file: Box<dyn Read> = match path.to_str() {
            Some("-") => Box::new(std::io::stdin()),
            _ => Box::new(File::open(path).map_err(|e| e.to_string())?),
        };
        let mut magic = [0; 4];
        file.read_exact(&mut magic).map_err(|e| match e.kind() {
            ErrorKind::UnexpectedEof => "this is no capture file: it has less than 4 octets".to_owned(),
            _ => format!("cannot be read: {e}"),
        })?;
        // Not sought in: it may be a pipe.
        let input = BufReader::new(Cursor::new(magic).chain(file));
        let unknown = |link: u16| match link {
            // LINUX_SLL, LINUX_SLL2.
            113 | 276 => format!(
                "frames of link type {link}, of a capture on any interface, are not read here: capture on one (tcpdump -i eth0)"
            ),
            _ => {
                format!("frames of link type {link} are not read here: capture Ethernet frames or IP packets")
            }
        };
        if pcap::Reader::<File>::begins(magic) {
            let mut reader = pcap::Reader::new(input).map_err(|e| e.to_string())?;
            let begin = first(reader.link_type()).ok_or_else(|| unknown(reader.link_type()))?;
            while let Some(frame) = reader.next().map_err(|e| e.to_string())? {
                self.frame(begin, frame.ns, &frame.bytes).map_err(|e| e.to_string())?;
            }
            return Ok(());
        }
        if u32::from_be_bytes(magic) != 0x0a0d_0d0a {
            return Err(
                "this is neither a pcap nor a pcapng file; write one with tcpdump -w or bypath l2 recv -w"
                    .into(),
            );
        }
        let mut reader = pcapng::Reader::new(input);
        let mut interfaces = Vec::new();
        while let Some(block) = reader.next().map_err(|e| e.to_string())? {
            match block {
                pcapng::reader::Block::Section { .. } => interfaces.clear(),
                pcapng::reader::Block::Interface { link_type, .. } => interfaces.push(link_type),
                pcapng::reader::Block::Frame(frame) => {
                    let link_type = interfaces.get(frame.interface as usize).copied().unwrap_or(u16::MAX);
                    let begin = first(link_type).ok_or_else(|| unknown(link_type))?;
                    self.frame(begin, frame.ns, &frame.bytes).map_err(|e| e.to_string())?;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn frame(&mut self, begin: First, ns: u64, bytes: &[u8]) -> Result<(), Failure> {
        self.report.frames += 1;
        let begun = *self.begun.get_or_insert(ns);
        let mut layers = dissect(bytes, begin);
        let mut to_port = false;
        let (mut icrc, mut bth) = (None, None);
        for layer in layers.by_ref().filter(|l| !l.quoted) {
            match layer.header {
                Header::Udp(udp, _) => to_port = udp.destination_port == bypath::wire::roce::PORT,
                Header::Roce(headers, verdict) => {
                    bth = Some(headers.bth);
                    icrc = Some(match verdict {
                        Verdict::Fits => Icrc::Right,
                        Verdict::Wrong => Icrc::Wrong,
                        Verdict::Absent | Verdict::Unknown => Icrc::Unknown,
                    });
                }
                _ => {}
            }
        }
        let end = layers.end();
        let icrc = match icrc {
            Some(icrc) => icrc,
            // What is cut off by the capture is nobody's fault.
            None if to_port && matches!(end.why, Why::Error(_)) && end.missing > 0 => Icrc::Unknown,
            None if to_port && matches!(end.why, Why::Error(_)) => Icrc::Malformed,
            None => return Ok(()),
        };
        let report = &mut self.report;
        report.roce += 1;
        let cut = end.missing > 0;
        report.cut += u64::from(cut);
        *match icrc {
            Icrc::Right => &mut report.right,
            Icrc::Wrong => &mut report.wrong,
            Icrc::Unknown => &mut report.unknown,
            Icrc::Malformed => &mut report.malformed,
        } += 1;
        let text = Line::new(bytes, begin).without_link().to_string();
        let since = ns.saturating_sub(begun);
        if let Some(lines) = &mut self.lines {
            let told = match icrc {
                Icrc::Right => "ICRC right",
                Icrc::Wrong => "ICRC WRONG",
                Icrc::Unknown => "ICRC ?",
                Icrc::Malformed => "MALFORMED",
            };
            // Writing to a String cannot fail.
            let _ = writeln!(lines, "{:>6} {:>10} {told}  {text}", report.frames, values::ns(since));
            if lines.len() > 1 << 16 {
                self.flush()?;
            }
        } else {
            let (frame, seconds) = (report.frames, since as f64 / 1e9);
            report.packets.push(Packet {
                frame,
                seconds,
                icrc,
                cut,
                opcode: bth.map(|bth| bth.opcode.to_string()),
                qpn: bth.map(|bth| bth.destination.value()),
                psn: bth.map(|bth| bth.psn.value()),
                text,
            });
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        match &mut self.lines {
            Some(lines) => {
                output::write_to(&Target::Stdout, lines.as_bytes())?;
                lines.clear();
                Ok(())
            }
            None => Ok(()),
        }
    }
}
