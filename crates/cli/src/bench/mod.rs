//! `bypath bench`: paired, alternating measurements of ordinary programs, with a table, JSON and the targets.

mod apps;
mod args;
mod c_program;
mod child;
mod context;
mod cpu;
pub mod histogram;
mod loopback;
mod machine;
mod netstack;
mod output;
mod peer;
mod progress;
mod proof;
mod raw;
mod record;
mod roce;
mod scratch;
mod section;
mod stack;
mod table;
mod tun;

pub use args::Args;

use crate::output::Outcome;
use args::What;

/// Runs it.
pub fn run(args: Args) -> Outcome {
    match args.what {
        What::Peer(peer) => Ok(peer::run(&peer)),
        What::Loopback(args) => loopback::run(&args),
        What::Apps(args) => apps::run(&args),
        What::Raw(args) => raw::run(&args),
        What::Tun(args) => tun::run(&args),
        What::Roce(args) => roce::run(&args),
        What::Stack(args) => stack::run(&args),
        What::Netstack(args) => netstack::run(&args),
        What::Allocations(args) => Ok(stack::allocations(&args)),
        What::Connections(args) => Ok(stack::connections(&args)),
        What::KernelPeer(args) => Ok(stack::kernel_peer(&args)),
        What::Profiled(args) => Ok(stack::profiled(&args)),
        What::Serve(args) => raw::serve(&args),
        What::End(args) => Ok(raw::end(&args)),
    }
}
