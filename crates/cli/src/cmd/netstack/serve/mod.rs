//! `bypath netstack --link ...`: the service, in the foreground (docs/netstack-service.md).
//!
//! Here is how it begins, changes and ends. What it does for programs is done by `bypath_netstack::service`.

mod file;
mod metrics;
mod plan;
mod privileges;
mod reload;
mod report;
mod starting;
mod telling;

use super::attach::{self, Host, Wishes};
use super::found::{self, DEFAULT_NAME};
use crate::args::Json;
use crate::output::{self, Failure, Outcome};
use crate::raw::wait::Stop;
use crate::written;
use bypath::link::fault::Switch;
use bypath_netstack::service::{QueryError, Service, Settings, Stopper};
use bypath_netstack::{Engine, LinkName};
use bypath_sockets::service::place;
use bypath_stack::iface::IfaceId;
use clap::ValueHint;
pub use file::named as name;
use file::{Limits, Users};
use plan::Plan;
use report::{Link, Privileges, Report};
use sd_notify::NotifyState;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use starting::Starting;
use std::io::Read as _;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;
use telling::Telling;

/// Sockets of one user at most, unless the file says more.
const SOCKETS: usize = 16_384;
/// Octets of one user's sockets at most, unless the file says more.
const OCTETS: usize = 256 << 20;
/// Octets of each ring that a connection shares with the service, unless the file says so.
const RING: u32 = 256 << 10;
/// Microseconds of `--busy-poll` at most: a second.
pub const MOST_BUSY: i64 = 1_000_000;
/// Longest wait at the end, for connections to close as they should.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Arguments of `bypath netstack` without a subcommand.
#[derive(Clone, Debug, clap::Args)]
pub struct ServeArgs {
    /// What the stack stands on: `tap:NAME` or `tun:NAME`, a device that is made, with the kernel at its other end;
    /// `packet:IFACE`, an interface by packet sockets; `xdp:IFACE`, the first queue of one by AF_XDP (all IP that comes there
    /// is the stack's then)
    #[arg(long, value_name = "LINK", value_parser = attach::link, required_unless_present = "config")]
    link: Option<LinkName>,

    #[command(flatten)]
    wishes: Wishes,

    /// Name of the service, which programs say that want this one: bypath run --netstack=NAME [default: default]
    #[arg(long, value_name = "NAME", value_parser = file::named)]
    name: Option<String>,

    /// Write every frame to this file (pcapng), which is begun anew; a new one has mode 0600
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    capture: Option<PathBuf>,

    /// Counters for Prometheus by HTTP at /metrics: a port, on 127.0.0.1, or ADDRESS:PORT; port 0 is any
    #[arg(long, value_name = "[ADDRESS:]PORT", value_parser = metrics::place)]
    metrics: Option<SocketAddr>,

    /// Look for work for so long after there was some before sleeping, on a processor that nobody else wants: round trips are shorter,
    /// and the processor is not free meanwhile
    #[arg(long, value_name = "MICROSECONDS", value_parser = file::microseconds)]
    busy_poll: Option<u32>,

    /// Who may use the service, beside root and the user that it runs as: names or numbers, or `all`
    #[arg(long, value_name = "USER,...|all", value_parser = file::users)]
    users: Option<Users>,

    /// The same settings from a file, and routes and limits; flags win. SIGHUP reads it again
    #[arg(long, value_name = "FILE.toml", value_hint = ValueHint::FilePath)]
    config: Option<PathBuf>,

    #[command(flatten)]
    json: Json,
}

/// Runs a service until it is told to end.
pub fn run(args: &ServeArgs) -> Outcome {
    // Before anything that takes time: it would end the process.
    let again = Arc::new(AtomicBool::new(false));
    signal_hook::flag::register(SIGHUP, Arc::clone(&again)).map_err(unwatched)?;
    let plan = Plan::of(args)?;
    if let Some((prefix, holder)) = plan.taken() {
        let text = format!(
            "--addr {prefix}: the kernel has that address on {holder}; give the stack one of its own"
        );
        return Err(Failure::new(2, text));
    }
    if let Some((address, holder)) = plan.kernels_elsewhere() {
        let text = format!(
            "--net {address}: the kernel has that address on {holder} already, and would answer there; take another network, or remove \
             it: ip addr del {address} dev {holder}"
        );
        return Err(Failure::new(2, text));
    }
    let folder = place::folder_to_serve().map_err(|e| Failure::new(1, e))?;
    if let Some(path) = place::find(&plan.name).filter(|path| is_taken(path)) {
        let text = format!(
            "a service named {} is running already, at {}; end it, or give this one a name: --name NAME",
            plan.name,
            path.display()
        );
        return Err(Failure::new(1, text));
    }
    let addresses: Vec<IpAddr> = plan.wishes.addresses().iter().map(|own| own.address()).collect();
    attach::taken_by_a_service(&plan.link, &addresses, &plan.name)?;
    let starting = Starting::new(&folder, &plan.name)?;
    let metrics = plan.metrics.map(metrics::listen).transpose()?;
    let opened = attach::open(with_capture(&plan)?, &plan.wishes, &plan.ways_of_tables())?;
    let faults = opened.faults();
    if faults.is_some() {
        output::message("frames are harmed on purpose: [faults] in the file");
    }
    // Before the first thread: each has its own.
    let dropped = privileges::drop_all()?;

    let stop = Stop::new()?;
    tell(&[NotifyState::Status(&format!("{} on {}: starting", plan.name, plan.link))]);
    let Some(host) = opened.settle(&stop)? else { return Ok(ExitCode::SUCCESS) };
    let Host { mut engine, iface, name: interface, .. } = host;
    // Of two that began together one was there first; and both may have got an address from the same server.
    let addresses: Vec<IpAddr> = engine.stack().addresses(iface).iter().map(|own| own.ip()).collect();
    attach::taken_by_a_service(&plan.link, &addresses, &plan.name)?;
    let socket = folder.join(&plan.name);
    let settings = settings(&plan, folder.clone());
    let mut service = Service::open(engine, settings).map_err(|e| Failure::new(1, e))?;
    // From here on questions wait for their answers.
    drop(starting);
    watch(&service.stopper())?;
    let at = Begun { iface, interface, socket: &socket, dropped, metrics: metrics.as_ref(), faults };
    let report = begun(&mut service, &plan, &at);
    if let Some(listener) = &metrics {
        metrics::serve(listener, &socket)?;
    }
    match args.json.target() {
        Some(target) => output::json(&target, &report)?,
        None => output::print(&report.text())?,
    }
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("{} on {}", plan.name, plan.link))]);
    let ended = turn_until_stopped(&mut service, &Signals { stop, again }, args, plan, &at, folder);
    tell(&[NotifyState::Stopping]);
    service.finish(LAST_WORDS);
    ended.map(|()| ExitCode::SUCCESS)
}

/// Whether somebody listens there, even if he does not answer.
fn is_taken(socket: &Path) -> bool {
    !matches!(found::probe(socket, found::SOON), Err(QueryError::NotThere { .. }))
}

/// The stack and its link as they are wanted, and the file of its frames.
fn with_capture(plan: &Plan) -> Result<bypath_netstack::Setup, Failure> {
    let Some(path) = &plan.capture else { return Ok(plan.setup()) };
    let file = written::create(path, written::PRIVATE, || false)
        .map_err(|e| Failure::new(1, format_args!("--capture {}: {e}", path.display())))?;
    Ok(plan.setup().capture(file))
}

fn settings(plan: &Plan, folder: PathBuf) -> Settings {
    let Limits { sockets_per_user, octets_per_user, ring_octets, low_ports, users } = plan.limits.clone();
    Settings {
        name: plan.name.clone(),
        folder,
        sockets_per_user: sockets_per_user.unwrap_or(SOCKETS),
        octets_per_user: octets_per_user.unwrap_or(OCTETS),
        ring_octets: ring_octets.unwrap_or(RING),
        low_ports,
        users: match users {
            Users::All => None,
            Users::Some(users) => Some(users),
        },
        busy_poll: Duration::from_micros(plan.busy_poll.into()),
    }
}

/// What is known of a service that has begun.
struct Begun<'a> {
    iface: IfaceId,
    interface: String,
    socket: &'a Path,
    dropped: Vec<String>,
    metrics: Option<&'a std::net::TcpListener>,
    faults: Option<Switch>,
}

fn begun(service: &mut Service, plan: &Plan, what: &Begun<'_>) -> Report {
    let engine = service.engine();
    let can = engine.capabilities(what.iface);
    let stack = engine.stack();
    let addresses = stack.addresses(what.iface).iter().map(|a| a.prefix.to_string()).collect();
    let ways = stack.routes().filter(|route| route.iface == what.iface);
    let ways = ways.map(|r| bypath_netstack::Way { to: r.prefix, via: r.via, metric: r.metric });
    // By routers first.
    let (mut ways, near): (Vec<_>, Vec<_>) = ways.partition(|way| way.via.is_some());
    ways.extend(near);
    // Nobody types an address that is one of a link only.
    let routers = ways.iter().filter_map(|way| way.via);
    let mut routers = routers.filter(|via| !matches!(via, IpAddr::V6(v6) if v6.is_unicast_link_local()));
    let near = plan.wishes.net.first().map(|(ip, _)| *ip).or_else(|| routers.next());
    let url = match near {
        Some(IpAddr::V6(ip)) => format!("http://[{ip}]/"),
        Some(ip) => format!("http://{ip}/"),
        None => "http://HOST/".to_owned(),
    };
    let at = what.metrics.and_then(|listener| listener.local_addr().ok());
    Report {
        name: plan.name.clone(),
        pid: std::process::id(),
        socket: report::shown(what.socket),
        link: can.map(|can| Link::new(plan, &what.interface, &can)),
        addresses,
        users: report::users(&plan.limits.users),
        routes: ways.iter().map(report::way).collect(),
        metrics: at.map(|at| format!("http://{at}/metrics")),
        capture: plan.capture.as_deref().map(report::shown),
        privileges: Privileges { dropped: what.dropped.clone(), kept: Vec::new() },
        next: report::how_to_run(&plan.name, &url),
    }
}

fn unwatched(e: std::io::Error) -> Failure {
    Failure::new(1, format_args!("cannot watch for signals: {e}"))
}

/// From now on signals interrupt the service.
fn watch(stopper: &Stopper) -> Result<(), Failure> {
    let failed = unwatched;
    let (mut bell, ringer) = UnixStream::pair().map_err(failed)?;
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        let ringer = ringer.try_clone().map_err(failed)?;
        signal_hook::low_level::pipe::register(signal, ringer).map_err(failed)?;
    }
    let stopper = stopper.clone();
    let run = move || {
        while bell.read_exact(&mut [0]).is_ok() {
            stopper.stop();
        }
    };
    std::thread::Builder::new().name("stopper".into()).spawn(run).map_err(failed)?;
    Ok(())
}

/// What signals have said.
struct Signals {
    stop: Stop,
    /// SIGHUP.
    again: Arc<AtomicBool>,
}

fn turn_until_stopped(
    service: &mut Service,
    signals: &Signals,
    args: &ServeArgs,
    mut plan: Plan,
    at: &Begun<'_>,
    folder: PathBuf,
) -> Result<(), Failure> {
    let mut telling = Telling::new();
    // A signal may have come before anybody watched for it.
    while !signals.stop.asked() {
        if signals.again.swap(false, SeqCst) {
            read_again(service, args, &mut plan, (at.iface, at.faults.as_ref()));
            service.set_limits(&settings(&plan, folder.clone()));
        }
        while let Some(news) = service.run_until_news().map_err(|e| Failure::new(1, e))? {
            if let Some(text) = attach::told(&news, &at.interface) {
                tell_of_link(&mut telling, &text);
            }
        }
    }
    Ok(())
}

/// What happened on a link: not all, where that is very much.
fn tell_of_link(telling: &mut Telling, text: &str) {
    match telling.next(Engine::now()) {
        None => {}
        Some(0) => output::message(text),
        Some(more) => {
            output::message(format_args!("{text} ({more} such lines before this one are left out)"))
        }
    }
}

fn read_again(service: &mut Service, args: &ServeArgs, plan: &mut Plan, at: (IfaceId, Option<&Switch>)) {
    if args.config.is_none() {
        return output::message("SIGHUP: there is no file to read again (--config FILE.toml)");
    }
    let now = NotifyState::monotonic_usec_now();
    tell(&[Some(NotifyState::Reloading), now.ok()].into_iter().flatten().collect::<Vec<_>>());
    match Plan::of(args) {
        Ok(new) => {
            reload::apply(service.engine(), at, plan, &new);
            *plan = plan.clone().changed_to(new);
        }
        // It goes on as it was.
        Err(e) => output::message(format_args!("not read again: {e}")),
    }
    tell(&[NotifyState::Ready]);
}

/// Tells systemd, if it started us.
fn tell(state: &[NotifyState<'_>]) {
    if let Err(e) = sd_notify::notify(state) {
        output::message(format_args!("cannot tell systemd: {e}"));
    }
}
