//! Services that are there.

use super::look::Look;
use crate::output::{self, Failure};
use bypath::l2::Interface;
use bypath_netstack::service::{Patience, QueryError, Reached};
use bypath_sockets::service::ServiceName;
use bypath_sockets::service::place::{self, Named};
use bypath_stack::prefix::Prefix;
use bypath_sys::Errno;
use bypath_sys::poll::{PollFd, ppoll};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for one that is starting, which waits 30 s at most itself.
const LONGEST_NS: u64 = 40_000_000_000;

/// Name of a service for which none is said.
pub const DEFAULT_NAME: &str = ServiceName::DEFAULT;

/// So long nobody is told that a service is waited for.
pub const SOON: Duration = Duration::from_millis(300);

const SOON_WHOLE: Patience = Patience { row: SOON, whole: SOON };

/// Longest wait for the answer of one that is there.
pub const PATIENCE: Duration = Duration::from_secs(4);

/// Longest wait for one that was just started to say that it is about to be there, and how often that is looked for.
const APPEARS: Duration = Duration::from_secs(2);
pub const LOOK: Duration = Duration::from_millis(20);

/// Asks a service whether it is there.
///
/// # Errors
/// Nobody listens, it does not admit this user, or it does not answer within this time.
pub fn probe(path: &Path, longest: Duration) -> Result<(), QueryError> {
    let patience = Patience { row: longest, whole: longest };
    Reached::at(path)?.query(r#"{"what":"service"}"#, patience, |_| true)
}

/// The same; who has to wait is told for whom.
fn probe_patiently(name: &str, path: &Path) -> Result<(), QueryError> {
    match probe(path, SOON) {
        Err(e) if is_slow(&e) => {
            output::message(waits(&[(name, pid_of(&e))]));
            probe(path, PATIENCE)
        }
        answered => answered,
    }
}

/// Whether the time was over before the answer was.
pub const fn is_slow(error: &QueryError) -> bool {
    matches!(error, QueryError::Silent { .. } | QueryError::Endless { .. })
}

/// The process that does not answer, as far as it is known.
pub const fn pid_of(error: &QueryError) -> Option<u32> {
    match error {
        QueryError::Silent { pid, .. } => *pid,
        _ => None,
    }
}

/// That services are waited for: their names and processes.
pub fn waits(silent: &[(&str, Option<u32>)]) -> String {
    let shown = |(name, pid): &(&str, Option<u32>)| {
        pid.map_or((*name).to_owned(), |pid| format!("{name} (pid {pid})"))
    };
    let names: Vec<String> = silent.iter().map(shown).collect();
    let s = if silent.len() == 1 { "" } else { "s" };
    format!("waiting for the netstack service{s} {}: {} s at most", names.join(", "), PATIENCE.as_secs())
}

/// The socket of a service that answers.
///
/// # Errors
/// None of this name does: which ones do, and how to start one; or why the one that is there does not.
pub fn running(name: &str, code: u8) -> Result<PathBuf, Failure> {
    found(name).map_err(|why| Failure::new(code, why.unwrap_or_else(|| none(name))))
}

/// The same; `else_say`: what else can be done where none is running.
///
/// # Errors
/// Those of [`running`].
pub fn running_or(name: &str, code: u8, else_say: &str) -> Result<PathBuf, Failure> {
    found(name)
        .map_err(|why| Failure::new(code, why.unwrap_or_else(|| format!("{}, {else_say}", none(name)))))
}

/// The socket of a service that answers, or why the one that is there does not; `None`: there is none.
fn found(name: &str) -> Result<PathBuf, Option<String>> {
    let path = place::find(name).ok_or(None)?;
    match probe_patiently(name, &path) {
        Ok(()) => Ok(path),
        Err(QueryError::NotThere { .. }) => Err(None),
        Err(e) => Err(Some(e.to_string())),
    }
}

/// The same as [`running`], but one that is starting is waited for, and with `appears` for a short time one that does not say so yet: it
/// may have been started just before.
///
/// # Errors
/// Those of [`running`].
pub fn awaited(name: &str, code: u8, appears: bool) -> Result<PathBuf, Failure> {
    match found(name) {
        Ok(path) => return Ok(path),
        Err(Some(why)) => return Err(Failure::new(code, why)),
        Err(None) => {}
    }
    let begin = Instant::now();
    let mut told = false;
    let mut end = starting(name);
    while appears && end.is_none() && begin.elapsed() < APPEARS {
        if !told && begin.elapsed() >= SOON {
            told = true;
            let seconds = APPEARS.as_secs();
            output::message(format_args!(
                "waiting for a netstack service {name} to be started: {seconds} s at most"
            ));
        }
        let _ = ppoll(&mut [], Some(LOOK.as_nanos() as u64), 0);
        // It may need no time to start.
        if place::find(name).is_some_and(|path| probe(&path, SOON).is_ok()) {
            break;
        }
        end = starting(name);
    }
    if let Some(mut starting) = end {
        let seconds = LONGEST_NS / 1_000_000_000;
        output::message(format_args!(
            "the netstack service {name} is starting: waiting for it, {seconds} s at most (it asks others whether its addresses are free, which takes 4 to 7 s)"
        ));
        let begin = Instant::now();
        loop {
            let left = LONGEST_NS.saturating_sub(begin.elapsed().as_nanos() as u64);
            starting = match starting {
                Starting::Heard(end) => {
                    let mut wait = [PollFd { fd: end.as_raw_fd(), events: 0, revents: 0 }];
                    let _ = ppoll(&mut wait, Some(left), 0);
                    break;
                }
                Starting::Crowded if left > 0 => {
                    let _ = ppoll(&mut [], Some(LOOK.as_nanos() as u64), 0);
                    match self::starting(name) {
                        Some(starting) => starting,
                        None => break,
                    }
                }
                Starting::Crowded => break,
            };
        }
    }
    running(name, code)
}

/// A service that is about to be there.
enum Starting {
    /// A connection that ends when it is there, or will not be.
    Heard(OwnedFd),
    /// So many wait for it that there is no room for another one.
    Crowded,
}

/// The service of this name, if it is about to be there.
fn starting(name: &str) -> Option<Starting> {
    let path = place::find(&place::starting_name(name))?;
    match place::connect(&path) {
        Ok(end) => place::is_believed(&path, end.as_fd()).ok().map(|()| Starting::Heard(end)),
        Err(Errno::AGAIN) => Some(Starting::Crowded),
        Err(_) => None,
    }
}

/// Whether somebody listens at this socket, even if too many wait there to be heard.
pub fn is_starting(socket: &Path) -> bool {
    matches!(place::connect(socket), Ok(_) | Err(Errno::AGAIN))
}

/// Services that are about to be there, and how many names of others were left out.
pub fn all_starting() -> (Vec<Named>, usize) {
    let is_believed = |service: &Named| match place::connect(&service.path) {
        Ok(end) => place::is_believed(&service.path, end.as_fd()).is_ok(),
        Err(e) => e == Errno::AGAIN,
    };
    let all = place::all_starting();
    (all.services.into_iter().filter(is_believed).collect(), all.left_out)
}

/// What to say where no service of this name answers.
pub fn none(name: &str) -> String {
    if place::find(&place::starting_name(name)).is_some_and(|path| is_starting(&path)) {
        return format!(
            "the netstack service {name} is starting: whether its addresses are free is not known yet; try again in a few seconds"
        );
    }
    let (mut look, services) = Look::new();
    let mut answers = |other: &Named| matches!(look.ask(other, "service", SOON_WHOLE, |_| true), Some(Ok(_)));
    let others: Vec<String> = services
        .into_iter()
        .filter(|other| other.name != name && answers(other))
        .map(|other| other.name)
        .collect();
    let there = match &others[..] {
        [] => "(and none of another name); start one".to_owned(),
        [_] => format!("(there are: {}); name that one, or start one", others.join(", ")),
        some => format!("(there are: {}); name one of those, or start one", some.join(", ")),
    };
    format!("no netstack service named {name} is running {there}: {}", how_to_start(name))
}

/// What starts a service of this name: on a device that is not there yet, with a network that the kernel does not have.
pub fn how_to_start(name: &str) -> String {
    let flag = if name == DEFAULT_NAME { String::new() } else { format!(" --name {name}") };
    let kernels = super::attach::kernels();
    let is_free = |n: &u8| {
        let network = Prefix::new([10, 9, *n, 0].into(), 24);
        Interface::named(&format!("bp{n}")).is_err()
            && !kernels.iter().any(|(ip, _)| network.is_some_and(|network| network.contains(*ip)))
    };
    let n = (0..=u8::MAX).find(is_free).unwrap_or(0);
    format!("bypath netstack{flag} --link tap:bp{n} --net 10.9.{n}.1/24")
}
