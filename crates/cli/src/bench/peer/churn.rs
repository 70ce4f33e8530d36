//! Connect, request, reply, close: counted where connections are accepted.

use super::channel::{Channel, Sock};
use super::clock::{Beside, clock_cost_ns, cpu_ns, now_ns};
use super::messages::{CHECKED, CHECKED_LAST, TIMED, TIMED_LAST, check, write_checked, wrong};
use super::transport::{connect_tcp_to, listen_tcp, listen_unix, tune};
use super::{PeerArgs, PeerResult, Role, Transport, in_process};
use crate::bench::histogram::Histogram;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;

const CHECKED_CONNECTIONS: u64 = 50;
/// TCP connections go round these many addresses after the one that is given (of loopback where that is none), so that no port
/// has to be used twice within its TIME-WAIT.
const ADDRESSES: u32 = 16;

pub fn run(args: &PeerArgs) -> io::Result<PeerResult> {
    match (args.transport, args.role) {
        (Transport::Tcp, Role::Serve) => {
            let listener = listen_tcp(args)?;
            serve(args, || {
                let (socket, _) = listener.accept()?;
                Ok(Sock { cc: tune(&socket, args)?, socket, close: |s| s.shutdown(Shutdown::Write) })
            })
        }
        (Transport::Tcp, Role::Drive) => {
            let given: SocketAddr = args.addr.parse().map_err(io::Error::other)?;
            let mut next = addresses_after(given);
            drive(args, || {
                let socket = connect_tcp_to(args, next())?;
                Ok(Sock { cc: tune(&socket, args)?, socket, close: |s| s.shutdown(Shutdown::Write) })
            })
        }
        (Transport::Unix, Role::Serve) => {
            let listener = listen_unix(args)?;
            serve(args, || {
                let (socket, _) = listener.accept()?;
                Ok(Sock { cc: None, socket, close: |s| s.shutdown(Shutdown::Write) })
            })
        }
        (Transport::Unix, Role::Drive) => drive(args, || {
            let socket = UnixStream::connect(&args.addr)?;
            Ok(Sock { cc: None, socket, close: |s| s.shutdown(Shutdown::Write) })
        }),
        (Transport::InProcess, Role::Serve) => {
            let host = in_process::Host::open(args)?;
            let listener = host.listen(args)?;
            serve(args, || host.accept(&listener))
        }
        (Transport::InProcess, Role::Drive) => {
            let host = in_process::Host::open(args)?;
            let mut next = addresses_after(args.addr.parse().map_err(io::Error::other)?);
            drive(args, || host.connect(next()))
        }
        (other, _) => Err(io::Error::other(format!("{other:?} has no connections"))),
    }
}

fn addresses_after(given: SocketAddr) -> impl FnMut() -> SocketAddr {
    let first = match given.ip() {
        IpAddr::V4(ip) if !ip.is_unspecified() => ip,
        _ => Ipv4Addr::LOCALHOST,
    };
    let mut n = 0;
    move || {
        n = n % ADDRESSES + 1;
        SocketAddr::new(Ipv4Addr::from_bits(first.to_bits() + n).into(), given.port())
    }
}

fn drive<C: Channel>(args: &PeerArgs, mut connect: impl FnMut() -> io::Result<C>) -> io::Result<PeerResult> {
    let mut buf = vec![0; args.size];
    let mut scratch = vec![0; args.size];
    let mut cc = None;
    for number in 0..CHECKED_CONNECTIONS {
        let last = number + 1 == CHECKED_CONNECTIONS;
        let mut channel = connect()?;
        write_checked(&mut buf, if last { CHECKED_LAST } else { CHECKED }, number);
        channel.send(&buf)?;
        channel.recv(&mut buf)?;
        check(&buf, !number, &mut scratch)?;
        cc = channel.cc();
    }
    let mut samples = Histogram::new();
    let clock_cost = clock_cost_ns();
    let beside = Beside::begin(args);
    let (start, cpu_before) = (now_ns(), cpu_ns());
    let until = start + (args.seconds * 1e9) as u64;
    let mut before = start;
    let mut sent = 0;
    loop {
        buf[0] = if before >= until { TIMED_LAST } else { TIMED };
        let mut channel = connect()?;
        channel.send(&buf)?;
        channel.recv(&mut buf)?;
        drop(channel);
        sent += 1;
        let now = now_ns();
        samples.record((now - before).saturating_sub(clock_cost));
        if before >= until {
            break;
        }
        before = now;
    }
    let mut result = PeerResult {
        elapsed_ns: now_ns() - start,
        cpu_ns: cpu_ns() - cpu_before,
        sent,
        samples: samples.pairs().collect(),
        cc,
        ..Default::default()
    };
    beside.end(&mut result);
    Ok(result)
}

fn serve<C: Channel>(args: &PeerArgs, mut accept: impl FnMut() -> io::Result<C>) -> io::Result<PeerResult> {
    let mut buf = vec![0; args.size];
    let mut scratch = vec![0; args.size];
    for number in 0.. {
        let mut channel = accept()?;
        channel.recv(&mut buf)?;
        check(&buf, number, &mut scratch)?;
        let kind = buf[0];
        write_checked(&mut buf, kind, !number);
        channel.send(&buf)?;
        channel.expect_end()?;
        if kind == CHECKED_LAST {
            break;
        }
    }
    let mut received = 0u64;
    let mut clock = None;
    loop {
        let mut channel = accept()?;
        let (start, cpu_before) = *clock.get_or_insert_with(|| (now_ns(), cpu_ns()));
        channel.recv(&mut buf)?;
        channel.send(&buf)?;
        channel.expect_end()?;
        received += 1;
        match buf[0] {
            TIMED => {}
            TIMED_LAST => {
                return Ok(PeerResult {
                    elapsed_ns: now_ns() - start,
                    cpu_ns: cpu_ns() - cpu_before,
                    received,
                    bytes: received * args.size as u64,
                    cc: channel.cc(),
                    ..Default::default()
                });
            }
            kind => return Err(wrong(format!("kind {kind} in the timed phase"))),
        }
    }
}
