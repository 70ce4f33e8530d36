//! `bypath ipc`: messages between programs on one host, as frames on the loopback interface, or through shared memory.
//! docs/l2-tools.md has the protocol.

mod effort;
mod incoming;
mod recv;
mod ring;
mod send;

use crate::output::{Failure, Outcome};
use crate::raw;
use bypath::l2::{self, MacAddr, Socket};
use clap::Subcommand;
use std::time::Duration;

/// Arguments of `bypath ipc`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Write the messages that arrive to standard output
    Recv(recv::Args),
    /// Send standard input to all receivers
    Send(send::Args),
}

/// Which way messages go.
#[derive(Debug, clap::Args)]
pub struct Via {
    /// As frames on loopback, to any number of receivers, or through a ring in shared memory, to one receiver
    #[arg(long, value_name = "WAY", value_enum, default_value_t = Way::L2)]
    via: Way,

    /// Name of the ring, so that several can be used beside each other [default: default]
    #[arg(long, value_name = "NAME", value_parser = ring::channel)]
    channel: Option<String>,

    /// Say in the end what a message cost: time, processor, system calls
    #[arg(long)]
    stats: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Way {
    // Explained where the option is.
    L2,
    Ring,
}

impl Via {
    /// Whether it is the ring.
    ///
    /// # Errors
    /// A channel was named, and frames have none.
    fn is_ring(&self) -> Result<bool, Failure> {
        if self.via == Way::L2 && self.channel.is_some() {
            return Err(Failure::new(2, "--channel names a ring; give --via ring, too"));
        }
        Ok(self.via == Way::Ring)
    }

    fn channel(&self) -> &str {
        self.channel.as_deref().unwrap_or("default")
    }
}

/// Does what was asked for.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Recv(args) if args.via.is_ring()? => ring::recv::run(&args),
        Command::Send(args) if args.via.is_ring()? => ring::send::run(&args),
        Command::Recv(args) => recv::run(&args),
        Command::Send(args) => send::run(&args),
    }
}

/// Longest message.
const LONGEST: usize = crate::raw::input::LONGEST;
/// Longest body of a frame: 32 of them are well below what a socket's queue holds.
const BODY: usize = 32 << 10;
/// Frames on their way at most.
const WINDOW: u32 = 32;
/// After so long without a word an end is taken for dead.
const SILENCE: Duration = Duration::from_secs(5);
/// What data is sent to.
const RECEIVERS: MacAddr = MacAddr([0x03, 0x42, 0x59, 0, 0, 1]);
/// What acknowledgements are sent to.
const SENDERS: MacAddr = MacAddr([0x03, 0x42, 0x59, 0, 0, 2]);

/// Opens the loopback interface, and no other: frames cannot leave the host.
fn open(group: MacAddr) -> Result<Socket, Failure> {
    raw::open(Socket::builder("lo").ethertype(l2::ETHERTYPE_IPC).group(group).padding(false))
}
