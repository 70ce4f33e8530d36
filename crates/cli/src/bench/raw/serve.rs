//! `bypath bench serve`: the far end of `bypath bench raw --peer` on another host.
//!
//! It answers a question for its address that comes as a raw frame, takes one connection at a time, and has a program of
//! its own do what is ordered over it. It receives and echoes; it floods nobody. Whoever reaches the port may do this with
//! the one interface that was named: serve on a network of your own.

use crate::bench::child::{catch_interrupts, interrupted};
use crate::output::{self, Failure, Outcome};
use bypath::l2::{Error, Socket};
use nix::ifaddrs::getifaddrs;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::PidfdFlags;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Duration;

/// Port of the control connection unless another is asked for.
pub const PORT: u16 = 7709;
/// EtherType of the question where a host's end is, and of the answer: local experimental EtherType 1 (IEEE 802).
pub const ETHERTYPE: u16 = 0x88b5;
/// The question, and what an answer begins with; the addresses with their port follow, a line each.
pub const QUESTION: &[u8] = b"bypath bench: where?\n";
/// See [`QUESTION`].
pub const ANSWER: &[u8] = b"bypath bench: there\n";
/// Between two looks at what has come.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long a program whose connection was closed may take to end.
const PATIENCE: Duration = Duration::from_millis(500);

/// Arguments of `bypath bench serve`.
#[derive(clap::Args, Clone, Debug)]
#[command(after_help = "Examples:\n  \
    bypath bench serve --iface eth0                         until Ctrl-C, on all addresses\n  \
    bypath bench serve --iface eth0 --listen 192.0.2.2\n\n\
    It asks nobody who he is: serve on a network of your own.\n\n\
    Exit status: 0 after Ctrl-C (SIGINT, SIGTERM); 1 if the interface, the rights or the port do not allow it; 2 for wrong \
    usage.")]
pub struct ServeArgs {
    /// The interface that frames come through
    #[arg(long, value_name = "INTERFACE")]
    pub iface: String,
    /// Address and port to listen on, in place of all addresses
    #[arg(long, value_name = "ADDRESS[:PORT]", value_parser = listen)]
    pub listen: Option<SocketAddr>,
    /// Core for the measured program
    #[arg(long, value_name = "CORE")]
    pub cpu: Option<usize>,
}

fn listen(text: &str) -> Result<SocketAddr, String> {
    let ip = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, PORT));
    ip.or_else(|_| text.parse())
        .map_err(|_| "expected an address such as 192.0.2.2, or 192.0.2.2:7709".into())
}

/// Addresses of an interface: IPv4 first, link-local ones last.
pub fn addresses(iface: &str) -> Vec<IpAddr> {
    let all = getifaddrs().into_iter().flatten().filter(|a| a.interface_name == iface);
    let mut found: Vec<IpAddr> = all
        .filter_map(|a| {
            let address = a.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
        })
        .collect();
    found.sort_by_key(|ip| match ip {
        IpAddr::V4(v4) => (u8::from(v4.is_link_local()), 0),
        IpAddr::V6(v6) => (u8::from(v6.is_unicast_link_local()), 1),
    });
    found
}

/// Why there is no listening at this address, and what to do.
fn cannot_listen(iface: &str, at: SocketAddr, e: &io::Error) -> String {
    let remedy = match e.kind() {
        io::ErrorKind::AddrNotAvailable => {
            let known: Vec<String> = addresses(iface).iter().map(IpAddr::to_string).collect();
            match known.as_slice() {
                [] => format!("{iface} has no address; give it one: ip address add ADDRESS/24 dev {iface}"),
                known => format!("name an address of this host; {iface} has: {}", known.join(", ")),
            }
        }
        io::ErrorKind::AddrInUse => format!(
            "another program has this port, perhaps another bench serve; end it, or take another port: --listen {}",
            SocketAddr::new(at.ip(), at.port().saturating_add(1))
        ),
        io::ErrorKind::PermissionDenied => "take a port from 1024 on".to_owned(),
        _ => "name another address: --listen ADDRESS[:PORT]".to_owned(),
    };
    format!("cannot listen on {at}: {e}; {remedy}")
}

/// Serves until Ctrl-C.
pub fn run(args: &ServeArgs) -> Outcome {
    let fail = |what: &str, e: &dyn std::fmt::Display| Failure::new(1, format_args!("{what}: {e}"));
    catch_interrupts().map_err(|e| fail("cannot catch signals", &e))?;
    // Never waits longer than a look.
    let mut questions = Socket::builder(&args.iface)
        .ethertype(ETHERTYPE)
        .timeout(LOOK_EVERY)
        .open()
        .map_err(|e| Failure::new(1, e))?;
    let any = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let listener = match args.listen {
        Some(at) => TcpListener::bind(at),
        // Both versions of IP where there are both.
        None => TcpListener::bind(("::", PORT)).or_else(|_| TcpListener::bind(any)),
    };
    let at = args.listen.unwrap_or(any);
    let listener = listener.map_err(|e| Failure::new(1, cannot_listen(&args.iface, at, &e)))?;
    listener.set_nonblocking(true).map_err(|e| fail("cannot listen", &e))?;
    let port = listener.local_addr().map_err(|e| fail("cannot listen", &e))?.port();
    let exe = std::env::current_exe().map_err(|e| fail("cannot find this program", &e))?;
    let own = args.listen.map(|at| at.ip()).filter(|ip| !ip.is_unspecified());
    let mac = questions.mac();
    output::message(format_args!(
        "bench serve: waiting on {}, hardware address {mac}, TCP port {port}",
        args.iface
    ));
    let mut session: Option<Child> = None;
    while !interrupted() {
        if session.as_mut().is_some_and(|child| ended(child, Duration::ZERO)) {
            session = None;
        }
        if let Ok((stream, from)) = listener.accept() {
            // Whoever comes again has hung up before.
            if session.as_mut().is_some_and(|child| !ended(child, PATIENCE)) {
                // The one that is measured is not disturbed.
                drop(stream);
                output::message(format_args!("bench serve: refused {from}: another measurement is going on"));
            } else {
                session = start(&exe, args, own, stream, from);
            }
        }
        // While a measurement goes on its frames are not ours to look at.
        if session.is_some() {
            std::thread::sleep(LOOK_EVERY);
        } else {
            answer(&mut questions, args, own, port)?;
        }
    }
    if let Some(mut child) = session {
        // Errors mean that it has ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether a measured program has ended, or does within this time.
fn ended(child: &mut Child, within: Duration) -> bool {
    let pid = rustix::process::Pid::from_raw(child.id() as i32).expect("not 0");
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty());
    if let (Ok(pidfd), Ok(timeout)) = (pidfd, Timespec::try_from(within)) {
        // An error is a signal.
        let _ = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&timeout));
    }
    !matches!(child.try_wait(), Ok(None))
}

/// Answers one question, if there is one within a look.
fn answer(questions: &mut Socket, args: &ServeArgs, own: Option<IpAddr>, port: u16) -> Result<(), Failure> {
    let mut asked = None;
    let got = questions.receive_batch(1, |frame| {
        asked = frame.payload.starts_with(QUESTION).then_some(frame.source);
    });
    match got {
        Ok(_) => {}
        Err(Error::TimedOut { .. } | Error::Interrupted | Error::Down { .. }) => return Ok(()),
        Err(e) => return Err(Failure::new(1, e)),
    }
    if let Some(from) = asked {
        let known = own.map_or_else(|| addresses(&args.iface), |ip| vec![ip]);
        let lines: String = known.iter().map(|ip| format!("{}\n", SocketAddr::new(*ip, port))).collect();
        // Whoever asked asks again.
        let _ = questions.send(from, &[ANSWER, lines.as_bytes()].concat());
    }
    Ok(())
}

fn start(
    exe: &std::path::Path,
    args: &ServeArgs,
    own: Option<IpAddr>,
    stream: TcpStream,
    from: SocketAddr,
) -> Option<Child> {
    let at = stream.local_addr().ok()?.ip();
    // An IPv4 connection to a socket of both versions.
    let ip = own.unwrap_or_else(|| at.to_canonical());
    let begin = || -> io::Result<Child> {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        let orders = OwnedFd::from(stream.try_clone()?);
        let mut command = Command::new(exe);
        command.args(["bench", "end", "--far", "--iface", &args.iface, "--ip", &ip.to_string()]);
        if let Some(core) = args.cpu {
            command.args(["--cpu", &core.to_string()]);
        }
        command.stdin(Stdio::from(orders)).stdout(Stdio::from(OwnedFd::from(stream))).spawn()
    };
    match begin() {
        Ok(child) => {
            output::message(format_args!("bench serve: measuring with {from}"));
            Some(child)
        }
        Err(e) => {
            output::message(format_args!("bench serve: cannot measure with {from}: {e}"));
            None
        }
    }
}
