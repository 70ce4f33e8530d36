//! `bypath roce`: RDMA over Converged Ethernet, version 2, without an adapter. docs/roce.md has the protocol.

mod decode;
mod recv;
mod report;
mod send;

use crate::output::Outcome;
use bypath::roce::Mtu;
use clap::Subcommand;

/// Arguments of `bypath roce`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Receive files, or be counted in
    Recv(recv::Args),
    /// Send a file, or count in the receiver's memory
    Send(send::Args),
    /// Explain the packets of a capture file and check each ICRC
    Decode(decode::Args),
}

/// Does what was asked for.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Recv(args) => recv::run(&args),
        Command::Send(args) => send::run(&args),
        Command::Decode(args) => decode::run(&args),
    }
}

/// A path MTU as it is typed.
fn mtu(text: &str) -> Result<Mtu, String> {
    let known = text.parse().ok().and_then(Mtu::new);
    known.ok_or_else(|| "expected 256, 512, 1024, 2048 or 4096".to_owned())
}
