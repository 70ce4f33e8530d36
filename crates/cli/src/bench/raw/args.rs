//! What can be typed after `bypath bench raw`.

use super::order::Carrier;
use super::remote::{self, Peer};
use crate::args::Json;
use clap::{Args, ValueEnum};
use std::path::PathBuf;

/// Arguments of `bypath bench raw`.
#[derive(Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    bypath bench raw                                        loopback and a veth pair, all of it: half an hour\n  \
    bypath bench raw --quick --report out                   half a minute, with charts: out/report.html\n  \
    bypath bench raw --case round-trip --link veth --size 50\n  \
    bypath bench serve --iface eth0                         on another host, and then here\n  \
    bypath bench raw --iface eth0 --peer 192.0.2.2\n\n\
    Loopback and veth pair are made in network namespaces of their own, which end with the bench. Root is not needed where \
    the kernel lets users make namespaces; AF_XDP is measured by root only.\n\n\
    Exit status: 0 if no figure failed, also if targets are missed or figures skipped; 1 if one failed, there are no \
    namespaces, the peer does not answer, or a file cannot be written; 2 for wrong usage; 3 if Ctrl-C (SIGINT, SIGTERM) came \
    before the end: what was measured is told, and no target judged.")]
pub struct RawArgs {
    /// End within about 30 seconds: fewer sizes, shorter runs
    #[arg(long)]
    pub quick: bool,
    /// Rounds; in each, every subject has one run
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub rounds: Option<u32>,
    /// Length of a throughput run in seconds
    #[arg(long, value_name = "S", value_parser = crate::bench::args::seconds)]
    pub seconds: Option<f64>,
    /// Round trips of a figure, all rounds together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub trips: Option<u64>,
    /// Only this case (may be given several times)
    #[arg(long = "case", value_name = "CASE", value_enum)]
    pub cases: Vec<Case>,
    /// Only this link (may be given several times)
    #[arg(long = "link", value_name = "LINK", value_enum, conflicts_with = "peer")]
    pub links: Vec<LinkName>,
    /// Only this subject (may be given several times)
    #[arg(long = "subject", value_name = "SUBJECT", value_enum)]
    pub subjects: Vec<Carrier>,
    /// Octets of payload (may be given several times)
    #[arg(long = "size", value_name = "OCTETS", value_parser = clap::value_parser!(u32).range(46..=65_000))]
    pub sizes: Vec<u32>,
    /// The other host, where `bypath bench serve` runs: hardware address, IP address or name
    #[arg(long, value_name = "MAC|IP[:PORT]", value_parser = remote::peer, requires = "iface")]
    pub peer: Option<Peer>,
    /// The interface to the other host
    #[arg(long, value_name = "INTERFACE", requires = "peer")]
    pub iface: Option<String>,
    /// Write a report with charts (HTML, SVG), tables (CSV) and records (JSON) to this directory
    #[arg(long, value_name = "DIR", value_hint = clap::ValueHint::DirPath)]
    pub report: Option<PathBuf>,
    /// Leave out one frame of so many on purpose, to see that the bench counts it as lost
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = every)]
    pub inject_loss: u64,
    /// Spoil an octet of one frame of so many on purpose, to see that the bench counts it as corrupt
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = every)]
    pub inject_corruption: u64,
    /// Where the records go (a file beside the tables, standard output instead of them).
    #[command(flatten)]
    pub json: Json,
    /// This is the bench in its own namespaces.
    #[arg(long, hide = true)]
    pub inside: bool,
}

fn every(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(n @ 2..) => Ok(n),
        Ok(0) => Ok(0),
        _ => Err("expected a number from 2 on, or 0 for none".into()),
    }
}

/// Cases of `bypath bench raw`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Case {
    /// Frames one way: what arrives, and what it costs
    Throughput,
    /// A frame there and back, spinning and blocking
    RoundTrip,
    /// Opening and closing sockets
    OpenClose,
    /// The library beside a bare C program
    Prototype,
}

/// Links that the bench makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LinkName {
    /// The loopback interface
    Lo,
    /// Two virtual interfaces, each in a namespace
    Veth,
}
