//! `bypath netstack`: our own TCP/IP stack on a link of this host, for programs (the service) or for one task.

mod attach;
mod capture;
mod changes;
mod echo;
pub mod found;
mod http;
pub mod look;
mod others;
mod ping;
pub mod queries;
pub mod rows;
mod serve;

use crate::output::Outcome;
use clap::Subcommand;

/// Arguments of `bypath netstack`.
#[derive(Debug, clap::Args)]
#[command(
    arg_required_else_help = true,
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Without a subcommand it is a service: it owns the link, and runs the stack for programs until Ctrl-C.\n\n\
    Examples:\n  \
    bypath netstack --link tap:bp0 --net 10.9.0.1/24 &            the kernel is 10.9.0.1, the stack 10.9.0.2\n  \
    bypath run --netstack -- curl http://10.9.0.1/                a program on the stack\n  \
    bypath netstack sockets                                       and what it has open\n  \
    bypath netstack --link packet:eth0 --dhcp --slaac --name lab\n  \
    bypath netstack --config /etc/bypath/netstack/lab.toml\n\n\
    The service ends with Ctrl-C or SIGTERM: what programs have written is sent, for two seconds at most, and connections that\n\
    they have not ended are reset; a second one ends it at once. SIGHUP reads the file of --config again: addresses, routes and\n\
    limits; what takes a restart is told.\n\n\
    It runs as root, or with CAP_NET_RAW for packet:, CAP_NET_ADMIN for tap: and tun: (none for a persistent device of this user's),\n\
    and these and CAP_BPF for xdp:; they are given up once the link is open. In a user and network namespace of one's own\n\
    (unshare -Urn) all but xdp: work without root.\n\n\
    Where programs find it: in $BYPATH_NETSTACK_DIR, else /run/bypath/netstack (root), $XDG_RUNTIME_DIR/bypath/netstack, or\n\
    /tmp/bypath-UID/netstack.\n\n\
    Exit status: 0, 1 if the link or the addresses cannot be used, the name is taken or the link goes, 2 for wrong usage or a wrong\n\
    file, 130 if it was ended at once."
)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    serve: serve::ServeArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Ask a host for answers (ICMP echo), from a service's stack or one of the command's own
    Ping(ping::Args),
    /// Write the frames of a service's links to a file (pcapng), or those of a link of the command's own
    Capture(capture::Args),
    /// Send every datagram back to whom it came from
    UdpEcho(echo::Args),
    /// Serve the files of a folder by HTTP, over the stack's TCP
    ServeHttp(http::Args),
    /// List the services that are running
    Ls(queries::LsArgs),
    /// List the sockets of a service
    Sockets(queries::Args),
    /// Print the counters of a service
    Stats(queries::StatsArgs),
    /// List the addresses of a service, or change them
    Addr(changes::AddressArgs),
    /// List its routes, or change them
    Route(changes::RouteArgs),
    /// List its neighbours, or forget them
    Neigh(changes::NeighborArgs),
}

/// Does what was asked for.
pub fn run(args: Args) -> Outcome {
    let Some(command) = args.command else { return serve::run(&args.serve) };
    match command {
        Command::Ping(args) => ping::run(&args),
        Command::Capture(args) => capture::run(&args),
        Command::UdpEcho(args) => echo::run(&args),
        Command::ServeHttp(args) => http::run(&args),
        Command::Ls(args) => queries::list(&args),
        Command::Sockets(args) => queries::SOCKETS.run(&args),
        Command::Stats(args) => queries::statistics(&args),
        Command::Addr(args) => changes::addresses(&args, &queries::ADDRESSES),
        Command::Route(args) => changes::routes(&args, &queries::ROUTES),
        Command::Neigh(args) => changes::neighbors(&args, &queries::NEIGHBORS),
    }
}
