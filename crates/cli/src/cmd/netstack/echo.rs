//! `bypath netstack udp-echo`.

use super::attach::{Attach, Host};
use crate::args::Json;
use crate::output::{self, Failure, Outcome};
use crate::raw::wait::Stop;
use bypath_stack::SendTo;
use bypath_stack::socket::{Options, SocketId};
use bypath_sys::clock;
use serde::Serialize;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;

/// Arguments of `bypath netstack udp-echo`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath netstack udp-echo --link tap:bp0 --net 10.9.0.1/24 &\n  \
    echo hello | nc -u -w 1 10.9.0.2 7\n  \
    bypath netstack udp-echo --link packet:eth0 --dhcp --port 7000\n\n\
    It ends with Ctrl-C, and prints what it counted. Datagrams from its own port, and from those of services that answer whatever \
    comes (7, 13, 17, 19, 37), are not answered: two such services would never end.\n\n\
    Exit status: 0, 1 if the link or the addresses cannot be used, 2 for wrong usage.")]
pub struct Args {
    #[command(flatten)]
    attach: Attach,

    /// UDP port
    #[arg(long, value_name = "PORT", default_value_t = 7, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,

    /// End after so many datagrams
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,

    #[command(flatten)]
    json: Json,
}

/// What is printed as JSON.
#[derive(Serialize, Default)]
struct Report {
    datagrams: u64,
    octets: u64,
    /// Answers that could not be sent, and datagrams from ports that answer whatever comes.
    unanswered: u64,
    /// Datagrams that were dropped for their checksum.
    wrong_checksum: u64,
}

/// Ports of services that answer any datagram (echo, daytime, quote of the day, character generator, time): two of them would answer
/// each other for ever.
const ANSWERING: [u16; 5] = [7, 13, 17, 19, 37];

/// Longest sleep between two looks.
const LOOK_NS: u64 = 1_000_000_000;

/// Sends back what comes.
pub fn run(args: &Args) -> Outcome {
    let stop = Stop::new()?;
    let Some(mut host) = args.attach.begin(&stop)? else { return Ok(ExitCode::SUCCESS) };
    let socket = host.stack().open_udp().map_err(|e| Failure::new(1, e))?;
    let any = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), args.port);
    if let Some(mut udp) = host.stack().udp(socket) {
        let options = Options { broadcast: true, ..udp.options() };
        udp.set_options(options);
        udp.bind(any).map_err(|e| Failure::new(1, format_args!("port {}: {e}", args.port)))?;
    }
    let own = host.addresses();
    output::message(format_args!("answering on {}, {own}, UDP port {}", host.name, args.port));
    let mut report = Report::default();
    let echoed = echo(&mut host, socket, args, &stop, &mut report);
    report.wrong_checksum = host.stack().counters().udp_drop_checksum;
    host.end();
    match args.json.target() {
        Some(target) => output::json(&target, &report)?,
        None => output::message(format_args!(
            "{} datagrams, {} octets, {} not answered",
            report.datagrams, report.octets, report.unanswered
        )),
    }
    if report.wrong_checksum > 0 {
        output::message(format_args!(
            "{} datagrams had a wrong checksum; the kernel at the other end of a veth pair leaves it out unless told otherwise: ethtool \
             -K PEER tx off",
            report.wrong_checksum
        ));
    }
    echoed.map(|()| ExitCode::SUCCESS)
}

/// Until Ctrl-C, or as many as are wanted.
fn echo(
    host: &mut Host,
    socket: SocketId,
    args: &Args,
    stop: &Stop,
    report: &mut Report,
) -> Result<(), Failure> {
    let mut room = vec![0; 65_536];
    let wanted = args.count.unwrap_or(u64::MAX);
    while report.datagrams < wanted && !stop.asked() {
        host.turn(stop, clock::monotonic_ns() + LOOK_NS)?;
        host.hear()?;
        while report.datagrams < wanted
            && let Some(mut udp) = host.stack().udp(socket)
        {
            // An error is what the network said of an answer.
            let Ok(received) = udp.receive(&mut room) else { break };
            let datagram = received.datagram;
            let source = Some(datagram.to.ip()).filter(|ip| is_one_host(*ip));
            let answer = SendTo { to: Some(datagram.from), source, ..SendTo::default() };
            report.datagrams += 1;
            report.octets += received.len as u64;
            if ANSWERING.contains(&datagram.from.port()) || datagram.from.port() == args.port {
                report.unanswered += 1;
                continue;
            }
            match udp.send_with(&room[..received.len.min(65_535)], &answer) {
                Ok(()) => {}
                Err(_) => report.unanswered += 1,
            }
        }
    }
    Ok(())
}

/// Who asked a group or everybody is answered from an address of our own.
const fn is_one_host(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(v4) => !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => !v6.is_multicast(),
    }
}
