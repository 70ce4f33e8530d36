//! `bypath chat`: two people, or two programs, talk over raw Ethernet frames. docs/l2-tools.md has the protocol.

mod call;
mod talk;

use crate::output::Outcome;
use crate::raw::{self, values, wait::Stop};
use bypath::l2::{self, Socket, VlanTag};
use clap::Subcommand;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

/// Arguments of `bypath chat`.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    after_help = "Examples:\n  \
    bypath chat eth0 server                          on one host\n  \
    bypath chat eth0 client 192.0.2.1                on the other one: what is typed here is read there, and the reverse\n\n\
    Both ends agree over TCP, and send what is said as raw frames of EtherType 0x88b5 in VLAN 10 with priority 7. Anybody in \
    this network can listen: nothing is encrypted."
)]
pub struct Args {
    /// The interface that the frames go through
    #[arg(value_name = "IFACE")]
    interface: String,

    #[command(subcommand)]
    side: Side,
}

#[derive(Debug, Subcommand)]
enum Side {
    /// Wait for a client
    #[command(after_help = "Examples:\n  \
        bypath chat eth0 server                          what the client says, and what is typed here\n  \
        bypath chat eth0 server --listen 192.0.2.1 < /dev/null > copy\n\n\
        One conversation, then it ends. A second client is told to come later.\n\n\
        Exit status: 0 if both sides said and heard everything; 1 if interface, port, standard input or output cannot be \
        used; 2 for wrong usage; 3 if the other end died, fell silent, gave up or cannot be trusted, or after Ctrl-C.")]
    Server(Server),
    /// Call a server
    #[command(after_help = "Examples:\n  \
        bypath chat eth0 client 192.0.2.1\n  \
        bypath chat eth0 client 192.0.2.1 --whole < file     it arrives octet for octet, or it is told that it did not\n  \
        tail -f log | bypath chat eth0 client fe80::1 --vlan none\n\n\
        It ends when standard input has ended on both sides and everything has arrived.\n\n\
        Exit status: 0 if both sides said and heard everything; 1 if interface, server, standard input or output cannot be \
        used, or the server refused; 2 for wrong usage; 3 if the other end died, fell silent, gave up or cannot be trusted, \
        or after Ctrl-C.")]
    Client(Client),
}

#[derive(Debug, clap::Args)]
struct Server {
    /// Listen on this address only
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V6(Ipv6Addr::UNSPECIFIED))]
    listen: IpAddr,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Client {
    /// The server's IP address
    #[arg(value_name = "SERVER_IP")]
    server: IpAddr,

    /// Longest wait for the server
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = values::time)]
    wait: Duration,

    #[command(flatten)]
    common: Common,
}

#[derive(Debug, clap::Args)]
struct Common {
    /// TCP port of the server
    #[arg(long, value_name = "PORT", default_value_t = 9000, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// EtherType of the frames
    #[arg(long, value_name = "TYPE", default_value = "0x88b5", value_parser = values::ethertype)]
    ethertype: u16,

    /// VLAN of the frames, 1 to 4094; `none`: frames without a tag
    #[arg(long, value_name = "VLAN", default_value = "10", value_parser = vlan)]
    vlan: Vlan,

    /// Priority of the frames, 0 to 7
    #[arg(long, value_name = "PRIORITY", default_value_t = l2::DEFAULT_PRIORITY,
        value_parser = clap::value_parser!(u8).range(0..=7))]
    priority: u8,

    /// Standard input is not lines: it is cut into messages of 1 MiB
    #[arg(long)]
    whole: bool,

    /// Print a JSON document per message, each in a line
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug)]
struct Vlan(Option<u16>);

fn vlan(text: &str) -> Result<Vlan, String> {
    match text.parse() {
        _ if text == "none" => Ok(Vlan(None)),
        Ok(id @ 1..=4094) => Ok(Vlan(Some(id))),
        _ => Err("expected a VLAN from 1 to 4094, or `none`".into()),
    }
}

impl Common {
    fn tag(&self) -> Option<VlanTag> {
        self.vlan.0.map(|vid| VlanTag { tpid: l2::TPID_VLAN, pcp: self.priority, dei: false, vid })
    }
}

/// Serves, or calls, and talks.
pub fn run(args: &Args) -> Outcome {
    let common = match &args.side {
        Side::Server(s) => &s.common,
        Side::Client(c) => &c.common,
    };
    let mut builder = Socket::builder(&args.interface).ethertype(common.ethertype);
    builder = match common.tag() {
        Some(tag) => builder.tag(tag),
        None => builder.receive_vlan(l2::Vlan::None),
    };
    let socket = raw::open(builder)?;
    let stop = Stop::new()?;
    match &args.side {
        Side::Server(s) => call::serve(args, s, socket, &stop),
        Side::Client(c) => call::call(args, c, socket, &stop),
    }
}
