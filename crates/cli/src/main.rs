//! The `bypath` command: a face over the libraries.
#![forbid(unsafe_code)]

mod args; //      what can be typed: subcommands, settings, `--json`
mod aside; //     looks at other users' processes, which may keep whoever looks waiting
mod bench; //     the measured programs, their conversations, the figures
mod chat; //      the protocol of `bypath chat`
mod cmd; //       one file per subcommand
mod config; //    the configuration file, and what follows from it with flags and environment
mod connections; // the connections of all programs under Bypath, read from /proc
mod doctor; //     what slows a host or an interface down
mod effort; //    how long is spent on what other users' processes show
mod ending; //     SIGINT and SIGTERM
mod filter; //    which connections are meant: `port 80 and not pid 42`
mod foreign; //   what is read of a process that may be anybody's
mod library; //   where the preload library is
mod listening; //  listening sockets of netstack services, and who holds them
mod output; //    how it is printed: standard output that may be closed, JSON, tables, numbers
mod program; //   is there such a program, and can it be preloaded?
mod raw; //       what the tools for raw Ethernet share
mod roce; //      what `bypath roce send` and `recv` share
mod scrape; //    counters by HTTP, for Prometheus
mod subject; //   PID[:FD]
mod written; //   files of captures, which may be FIFOs

use args::{Cli, Command};
use std::process::ExitCode;

fn main() -> ExitCode {
    let command = Cli::of_this_process().command;
    if command.looks_at_others() {
        bypath_sys::heap::share_one();
    }
    let result = match command {
        Command::Run(args) => cmd::run::run(args),
        Command::Ss(args) => cmd::ss::run(args),
        Command::Why(args) => cmd::why::run(args),
        Command::Recall(args) => cmd::paths::recall(&args),
        Command::Upgrade(args) => cmd::paths::upgrade(&args),
        Command::Stats(args) => cmd::stats::run(args),
        Command::Top(args) => cmd::top::run(args),
        Command::Dump(args) => cmd::dump::run(&args),
        Command::Metrics(args) => cmd::metrics::run(args),
        Command::Config(args) => cmd::config::run(args),
        Command::Doctor(args) => cmd::doctor::run(args),
        Command::Chat(args) => cmd::chat::run(&args),
        Command::Ipc(args) => cmd::ipc::run(args),
        Command::L2(args) => cmd::l2::run(args),
        Command::Tun(args) => cmd::tun::run(args),
        Command::Roce(args) => cmd::roce::run(args),
        Command::Netstack(args) => cmd::netstack::run(*args),
        Command::Bench(args) => bench::run(args),
        Command::Completions(args) => cmd::completions::run(args),
        Command::Man(args) => cmd::man::run(args),
    };
    result.unwrap_or_else(|failure| failure.report())
}
