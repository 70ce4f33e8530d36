//! `bypath ipc`: messages between programs on one host, as frames on the loopback interface. docs/l2-tools.md has the protocol.

mod incoming;
mod recv;
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

/// Does what was asked for.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Recv(args) => recv::run(&args),
        Command::Send(args) => send::run(&args),
    }
}

/// Longest message.
const LONGEST: usize = 16 << 20;
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
