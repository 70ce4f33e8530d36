//! Many connections that rest, and one that does not.
//!
//! The server is an echo server on epoll. The driver opens the connections, sends a little over each, lets
//! the server time its `epoll_wait` calls while one connection is busy, and then both rest in `epoll_wait`.

use super::channel::{Channel, Sock};
use super::clock::{Beside, clock_cost_ns, cpu_ns, now_ns};
use super::messages::{CHECKED, TIMED, TIMED_LAST, check, write_checked, wrong};
use super::transport::{connect_tcp, listen_tcp, listen_unix, tune};
use super::{PeerArgs, PeerResult, Role, Transport};
use crate::bench::histogram::Histogram;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

/// "A little traffic": this many echoed messages of this size on each connection.
const ROUNDS: u64 = 32;
const SIZE: usize = 1024;
/// Connections are opened and used in groups, so that no queue of the server overflows.
const GROUP: usize = 100;
/// Between the last message and the measured rest: longer than a connection takes to be counted as resting.
const SETTLE_NS: u64 = 800_000_000;
/// The same beside a service, which gives back once, after a second, what a load before has left.
const SETTLE_BESIDE_NS: u64 = 1_500_000_000;
/// Asks the server to rest as the driver does.
const REST: u8 = 9;

pub fn run(args: &PeerArgs) -> io::Result<PeerResult> {
    allow_descriptors(args.connections as u64 + 100)?;
    let close_tcp = |s: &TcpStream| s.shutdown(Shutdown::Write);
    let close_unix = |s: &UnixStream| s.shutdown(Shutdown::Write);
    match (args.transport, args.role) {
        (Transport::Tcp, Role::Serve) => {
            let listener = listen_tcp(args)?;
            serve(args, || {
                let (socket, _) = listener.accept()?;
                Ok(Sock { cc: tune(&socket, args)?, socket, close: close_tcp })
            })
        }
        (Transport::Tcp, Role::Drive) => drive(args, || {
            let socket = connect_tcp(args)?;
            Ok(Sock { cc: tune(&socket, args)?, socket, close: close_tcp })
        }),
        (Transport::Unix, Role::Serve) => {
            let listener = listen_unix(args)?;
            serve(args, || Ok(Sock { cc: None, socket: listener.accept()?.0, close: close_unix }))
        }
        (Transport::Unix, Role::Drive) => {
            drive(args, || Ok(Sock { cc: None, socket: UnixStream::connect(&args.addr)?, close: close_unix }))
        }
        (other, _) => Err(io::Error::other(format!("{other:?} has no connections"))),
    }
}

fn allow_descriptors(need: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if need <= hard {
        setrlimit(Resource::RLIMIT_NOFILE, need.max(hard.min(1 << 20)), hard)?;
    } else {
        // Only root may raise the hard limit.
        setrlimit(Resource::RLIMIT_NOFILE, need, need)
            .map_err(|_| io::Error::other(format!("needs {need} descriptors, `ulimit -Hn` allows {hard}")))?;
    }
    Ok(())
}

/// The connection that drives the server comes first in the list.
fn drive<S: AsFd>(args: &PeerArgs, mut connect: impl FnMut() -> io::Result<Sock<S>>) -> io::Result<PeerResult>
where
    for<'a> &'a S: Read + Write,
{
    let mut buf = vec![0; SIZE];
    let mut scratch = vec![0; SIZE];
    let pss_before = pss_bytes()?;
    let mut active = connect()?;
    let cc = active.cc();
    let mut idle = Vec::with_capacity(args.connections);
    let mut number = 0;
    for n in 1..=args.connections {
        idle.push(connect()?);
        if n % GROUP == 0 || n == args.connections {
            echo_checked(std::slice::from_mut(&mut active), &mut number, &mut buf, &mut scratch)?;
        }
    }
    for _ in 0..ROUNDS {
        for group in idle.chunks_mut(GROUP) {
            echo_checked(group, &mut number, &mut buf, &mut scratch)?;
        }
        echo_checked(std::slice::from_mut(&mut active), &mut number, &mut buf, &mut scratch)?;
    }

    let until = now_ns() + (args.seconds.min(1.0) * 5e8) as u64;
    loop {
        let last = now_ns() >= until;
        buf[0] = if last { TIMED_LAST } else { TIMED };
        active.send(&buf)?;
        active.recv(&mut buf)?;
        if last {
            break;
        }
    }

    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for (i, channel) in idle.iter().enumerate() {
        epoll.add(&channel.socket, EpollEvent::new(EpollFlags::EPOLLIN, i as u64 + 1))?;
    }
    buf[0] = REST;
    active.send(&buf)?;
    active.recv(&mut buf)?;
    let mut result = rest(&epoll, args)?;
    result.figures.insert("pss_bytes".into(), pss_bytes()? as f64 - pss_before as f64);
    result.cc = cc;

    // The server ends its rest later than we ended ours; then everything still works.
    for group in idle.chunks_mut(GROUP) {
        echo_checked(group, &mut number, &mut buf, &mut scratch)?;
    }
    active.close_sending()?;
    active.expect_end()?;
    Ok(result)
}

fn serve<S: AsFd>(args: &PeerArgs, mut accept: impl FnMut() -> io::Result<Sock<S>>) -> io::Result<PeerResult>
where
    for<'a> &'a S: Read + Write,
{
    let mut buf = vec![0; 64 * 1024];
    let pss_before = pss_bytes()?;
    let mut connections = vec![accept()?];
    let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
    for n in 1..=args.connections {
        connections.push(accept()?);
        if n % GROUP == 0 || n == args.connections {
            let active = &mut connections[0];
            active.recv(&mut buf[..SIZE])?;
            active.send(&buf[..SIZE])?;
        }
    }
    for (i, channel) in connections.iter().enumerate() {
        epoll.add(&channel.socket, EpollEvent::new(EpollFlags::EPOLLIN, i as u64))?;
    }

    let mut result = PeerResult::default();
    let mut events = vec![EpollEvent::empty(); 256];
    let (mut samples, clock_cost) = (Histogram::new(), clock_cost_ns());
    let mut timing = false;
    loop {
        // While timing, the server polls: what is timed is the call, not the wait.
        let timeout = if timing { EpollTimeout::ZERO } else { EpollTimeout::NONE };
        let before = now_ns();
        let n = match epoll.wait(&mut events, timeout) {
            Err(nix::errno::Errno::EINTR) => continue,
            n => n?,
        };
        let after = now_ns();
        if timing && n > 0 {
            samples.record((after - before).saturating_sub(clock_cost));
        }
        for event in &events[..n] {
            let i = event.data() as usize;
            let channel = &mut connections[i];
            let got = match (&channel.socket).read(&mut buf) {
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                got => got?,
            };
            if got == 0 {
                if i != 0 {
                    return Err(wrong(format!("connection {i} ended early")));
                }
                result.samples = samples.pairs().collect();
                result.received = args.connections as u64;
                result.cc = channel.cc();
                channel.close_sending()?;
                return Ok(result);
            }
            channel.send(&buf[..got])?;
            if i == 0 && got == SIZE {
                match buf[0] {
                    TIMED => timing = true,
                    TIMED_LAST => timing = false,
                    REST => {
                        let PeerResult { elapsed_ns, cpu_ns, figures, .. } = rest(&epoll, args)?;
                        result = PeerResult { elapsed_ns, cpu_ns, figures, ..result };
                        let grown = pss_bytes()? as f64 - pss_before as f64;
                        result.figures.insert("pss_bytes".into(), grown);
                    }
                    _ => {}
                }
            }
        }
    }
}

/// Waits for events that should not come; measures what the waiting costs.
fn rest(epoll: &Epoll, args: &PeerArgs) -> io::Result<PeerResult> {
    // What happened a moment ago is not part of resting.
    let settles = if args.beside.is_some() { SETTLE_BESIDE_NS } else { SETTLE_NS };
    let (_, over) = wait_for(epoll, settles)?;
    let beside = Beside::begin(args);
    let (start, cpu_before) = (now_ns(), cpu_ns());
    let wakeups = if over { 0 } else { wait_for(epoll, (args.seconds * 1e9) as u64)?.0 };
    let mut result =
        PeerResult { elapsed_ns: now_ns() - start, cpu_ns: cpu_ns() - cpu_before, ..Default::default() };
    beside.end(&mut result);
    result.figures.insert("wakeups".into(), f64::from(wakeups));
    Ok(result)
}

/// Waits for events for so long. Returns how often the wait ended, and whether events came.
fn wait_for(epoll: &Epoll, ns: u64) -> io::Result<(u32, bool)> {
    let mut events = [EpollEvent::empty(); 16];
    let until = now_ns() + ns;
    let mut wakeups = 0;
    loop {
        let left = until.saturating_sub(now_ns()).div_ceil(1_000_000);
        if left == 0 {
            return Ok((wakeups, false));
        }
        match epoll.wait(&mut events, EpollTimeout::try_from(left as i32).map_err(io::Error::other)?) {
            Ok(0) | Err(nix::errno::Errno::EINTR) => {}
            // The driver may end its rest a little sooner: its traffic ends ours.
            Ok(_) => return Ok((wakeups, true)),
            Err(e) => return Err(e.into()),
        }
        wakeups += 1;
    }
}

/// Sends a checked message on every channel, then takes all the echoes.
fn echo_checked<S>(
    channels: &mut [Sock<S>],
    number: &mut u64,
    buf: &mut [u8],
    scratch: &mut [u8],
) -> io::Result<()>
where
    for<'a> &'a S: Read + Write,
{
    let first = *number;
    for channel in channels.iter_mut() {
        write_checked(buf, CHECKED, *number);
        channel.send(buf)?;
        *number += 1;
    }
    for (channel, expected) in channels.iter_mut().zip(first..) {
        channel.recv(buf)?;
        check(buf, expected, scratch)?;
    }
    Ok(())
}

/// This process's share of its anonymous and shared memory (pages shared by n processes count 1/n). Mapped files are
/// left out: their share falls when anybody starts the same program.
fn pss_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup")?;
    let kib = |name: &str| -> Option<u64> {
        let line = text.lines().find_map(|l| l.strip_prefix(name))?;
        line.trim().strip_suffix("kB")?.trim().parse().ok()
    };
    match (kib("Pss_Anon:"), kib("Pss_Shmem:")) {
        (Some(anonymous), Some(shared)) => Ok((anonymous + shared) * 1024),
        _ => Err(io::Error::other("no Pss_Anon and Pss_Shmem in /proc/self/smaps_rollup")),
    }
}
