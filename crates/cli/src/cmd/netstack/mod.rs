//! `bypath netstack`: our own TCP/IP stack on a link of this host.

mod attach;
mod echo;
mod http;
mod ping;

use crate::output::Outcome;
use clap::Subcommand;

/// Arguments of `bypath netstack`.
#[derive(Debug, clap::Args)]
#[command(arg_required_else_help = true)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ask a host for answers (ICMP echo), from the stack
    Ping(ping::Args),
    /// Send every datagram back to whom it came from
    UdpEcho(echo::Args),
    /// Serve the files of a folder by HTTP, over the stack's TCP
    ServeHttp(http::Args),
}

/// Does what was asked for.
pub fn run(args: Args) -> Outcome {
    match args.command {
        Command::Ping(args) => ping::run(&args),
        Command::UdpEcho(args) => echo::run(&args),
        Command::ServeHttp(args) => http::run(&args),
    }
}
