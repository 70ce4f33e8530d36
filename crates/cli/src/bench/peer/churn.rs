//! Connect, request, reply, close: counted where connections are accepted.

use super::channel::{Channel, Sock};
use super::clock::{clock_cost_ns, cpu_ns, now_ns};
use super::messages::{CHECKED, CHECKED_LAST, TIMED, TIMED_LAST, check, write_checked, wrong};
use super::transport::{listen_tcp, listen_unix, tune};
use super::{PeerArgs, PeerResult, Role, Transport};
use crate::bench::histogram::Histogram;
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;

const CHECKED_CONNECTIONS: u64 = 50;
/// TCP connections go round these many loopback addresses, so that no port has to be used twice within its
/// TIME-WAIT.
const ADDRESSES: u64 = 16;

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
            let mut address = 0;
            drive(args, || {
                address = (address + 1) % ADDRESSES as u8;
                let ip = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 1 + address));
                let socket = TcpStream::connect((ip, given.port()))?;
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
        (other, _) => Err(io::Error::other(format!("{other:?} has no connections"))),
    }
}

fn drive<S>(args: &PeerArgs, mut connect: impl FnMut() -> io::Result<Sock<S>>) -> io::Result<PeerResult>
where
    for<'a> &'a S: Read + Write,
{
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
    Ok(PeerResult {
        elapsed_ns: now_ns() - start,
        cpu_ns: cpu_ns() - cpu_before,
        sent,
        samples: samples.pairs().collect(),
        cc,
        ..Default::default()
    })
}

fn serve<S>(args: &PeerArgs, mut accept: impl FnMut() -> io::Result<Sock<S>>) -> io::Result<PeerResult>
where
    for<'a> &'a S: Read + Write,
{
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
