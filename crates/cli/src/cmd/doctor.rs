//! `bypath doctor`.

use crate::args::Json;
use crate::doctor::{self, Finding, Interface, Root, State};
use crate::output::{self, Failure, Outcome};
use bypath_sys::{fd, netif, sock, sockdiag};
use serde::Serialize;
use std::os::fd::AsRawFd;
use std::process::ExitCode;

/// Arguments of `bypath doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath doctor                 the host: kernel, processors, limits, rights\n  \
    bypath doctor eth0            the interface, its device, and the host\n  \
    bypath doctor eth0 --json     the same for programs\n\n\
    Nothing is changed: where something hurts, the command that mends it is printed.\n\n\
    Exit status: 0 if nothing hurts, 3 if something does, 1 if the interface cannot be looked at, 2 for wrong usage.")]
pub struct Args {
    /// The interface to look at; without it only the host is
    #[arg(value_name = "INTERFACE")]
    interface: Option<String>,

    /// Print also what is good
    #[arg(long)]
    all: bool,

    #[command(flatten)]
    json: Json,
}

/// Exit status where something hurts.
const HURTS: u8 = 3;

/// What is printed as JSON.
#[derive(Serialize)]
struct Report {
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<Interface>,
    findings: Vec<Finding>,
}

/// Looks, and prints what was found.
pub fn run(args: Args) -> Outcome {
    let root = Root::real();
    let mut report = Report { interface: None, findings: Vec::new() };
    if let Some(name) = &args.interface {
        let interface = Interface::find(name).map_err(|text| Failure::new(1, text))?;
        let sys = netif::list().is_ok_and(|all| doctor::sees(&root, &all));
        report.findings.extend(doctor::of_interface(&root, &interface, sys));
        let device = doctor::of_device(name);
        let gone = |e| {
            Failure::new(
                1,
                format_args!(
                    "{}: the device cannot be asked: {e}; is it still there?",
                    output::printable(name)
                ),
            )
        };
        report.findings.extend(device.map_err(gone)?);
        report.interface = Some(interface);
    }
    report.findings.extend(doctor::of_host(&root));
    if args.interface.is_none() {
        report.findings.extend(doctor::of_rings(&root));
        report.findings.extend([memory(), sock_diag()]);
    }
    match args.json.target() {
        Some(target) => output::json(&target, &report)?,
        None => output::print(&text(&report, args.all))?,
    }
    let hurts = report.findings.iter().any(|f| f.state == State::Hurts);
    Ok(if hurts { ExitCode::from(HURTS) } else { ExitCode::SUCCESS })
}

/// Whether there is memory that two processes can map and neither can shrink, tried out.
fn memory() -> Finding {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let made =
        memfd_create("bypath-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).and_then(|fd| {
            ftruncate(&fd, 4096)?;
            fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
        });
    Finding::shared_memory(made.err().map(|e| e.to_string()))
}

/// Whether the kernel finds a UDP socket and a TCP socket by their addresses, tried out with two of our own.
fn sock_diag() -> Finding {
    use std::net::{TcpListener, TcpStream, UdpSocket};
    let asks = || -> std::io::Result<Option<String>> {
        let of = |fd: i32| sock::local_address(fd);
        let udp = UdpSocket::bind("127.0.0.1:0")?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let tcp = TcpStream::connect(listener.local_addr()?)?;
        let netlink = sockdiag::open(3)?;
        let own = of(udp.as_raw_fd()).and_then(|own| sockdiag::udp(netlink, &own, &own));
        let other = of(tcp.as_raw_fd())
            .and_then(|own| sockdiag::tcp(netlink, &own, &sock::remote_address(tcp.as_raw_fd())?));
        fd::close(netlink);
        let problem = |what: &str, found: Result<Option<_>, _>| match found {
            Ok(Some(_)) => None,
            Ok(None) => Some(format!("the kernel does not find a {what} socket")),
            Err(e) => Some(format!("the kernel is not asked about {what}: {}", std::io::Error::from(e))),
        };
        Ok(problem("UDP", own).or_else(|| problem("TCP", other)))
    };
    Finding::sock_diag(asks().unwrap_or_else(|e| Some(e.to_string())))
}

fn text(report: &Report, all: bool) -> String {
    let mut text = report.interface.as_ref().map_or(String::new(), |i| i.line() + "\n\n");
    let shown = |f: &&Finding| all || matches!(f.state, State::Note | State::Hurts);
    // What hurts first; within that in the order of the checks.
    let mut findings: Vec<_> = report.findings.iter().filter(shown).collect();
    findings.sort_by_key(|f| (f.state != State::Hurts, f.state != State::Note));
    let width = findings.iter().map(|f| f.check.len()).max().unwrap_or(0);
    for f in findings {
        text += &format!("{:<7}  {:<width$}  {}\n", f.state.word(), f.check, output::printable(&f.found));
        for (word, more) in [("why", f.why), ("mend", f.remedy.as_deref())] {
            if let Some(more) = more {
                text += &format!("{:<7}  {word:<width$}  {}\n", "", output::printable(more));
            }
        }
    }
    let count = |state| report.findings.iter().filter(|f| f.state == state).count();
    text += &format!(
        "\n{} hurt, {} worth knowing, {} good, {} unknown\n",
        count(State::Hurts),
        count(State::Note),
        count(State::Good),
        count(State::Unknown)
    );
    text
}
