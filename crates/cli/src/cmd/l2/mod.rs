//! `bypath l2`: raw Ethernet frames by hand.

mod capture;
mod jitter;
mod list;
mod ping;
mod recv;
mod send;

use crate::output::Outcome;
use clap::Subcommand;

/// Arguments of `bypath l2`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List the interfaces
    List(list::Args),
    /// Send frames
    Send(send::Args),
    /// Print the frames that arrive
    Recv(recv::Args),
    /// Measure round trips to `bypath l2 echo`
    Ping(ping::PingArgs),
    /// Answer `bypath l2 ping`
    Echo(ping::EchoArgs),
    /// Send or receive frames at a fixed cycle and measure how late they are
    Jitter(jitter::Args),
}

/// Does what was asked for.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::List(args) => list::run(&args),
        Command::Send(args) => send::run(args),
        Command::Recv(args) => recv::run(&args),
        Command::Ping(args) => ping::ping(args),
        Command::Echo(args) => ping::echo(&args),
        Command::Jitter(args) => jitter::run(args),
    }
}
