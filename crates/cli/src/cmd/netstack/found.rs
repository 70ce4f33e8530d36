//! Services that are there.

use crate::output::{self, Failure};
use bypath_netstack::service::{QueryError, query};
use bypath_sockets::service::{ServiceName, place};
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::seqpacket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Longest wait for one that is starting, which waits 30 s at most itself.
const LONGEST_NS: u64 = 40_000_000_000;

/// Name of a service for which none is said.
pub const DEFAULT_NAME: &str = ServiceName::DEFAULT;

/// Asks a service whether it is there.
///
/// # Errors
/// Nobody listens, it does not admit this user, or it does not answer.
pub fn probe(path: &Path) -> Result<(), QueryError> {
    query(path, r#"{"what":"service"}"#, |_| {})
}

/// The socket of a service that answers.
///
/// # Errors
/// None of this name does: which ones do, and how to start one; or why the one that is there does not.
pub fn running(name: &str, code: u8) -> Result<PathBuf, Failure> {
    let Some(path) = place::find(name) else { return Err(Failure::new(code, none(name))) };
    match probe(&path) {
        Ok(()) => Ok(path),
        Err(QueryError::NotThere { .. }) => Err(Failure::new(code, none(name))),
        Err(e) => Err(Failure::new(code, e)),
    }
}

/// The same; `else_say`: what else can be done where none is running.
///
/// # Errors
/// Those of [`running`].
pub fn running_or(name: &str, code: u8, else_say: &str) -> Result<PathBuf, Failure> {
    match place::find(name).map(|path| (probe(&path), path)) {
        None | Some((Err(QueryError::NotThere { .. }), _)) => {
            Err(Failure::new(code, format_args!("{}, {else_say}", none(name))))
        }
        Some((Ok(()), path)) => Ok(path),
        Some((Err(e), _)) => Err(Failure::new(code, e)),
    }
}

/// The same, but one that is starting is waited for.
///
/// # Errors
/// Those of [`running`].
pub fn awaited(name: &str, code: u8) -> Result<PathBuf, Failure> {
    running(name, code).or_else(|_| {
        if let Some(end) = starting(name) {
            let seconds = LONGEST_NS / 1_000_000_000;
            output::message(format_args!(
                "the netstack service {name} is starting: waiting for it, {seconds} s at most"
            ));
            let mut wait = [PollFd { fd: end.as_raw_fd(), events: 0, revents: 0 }];
            // It ends when the service is there, or will not be.
            let _ = ppoll(&mut wait, Some(LONGEST_NS), 0);
        }
        running(name, code)
    })
}

/// A connection to the service of this name that is about to be there: it ends when it is, or will not be.
fn starting(name: &str) -> Option<OwnedFd> {
    let path = place::find(&place::starting_name(name))?;
    seqpacket::connect(&path).ok()
}

/// Names of services that are about to be there.
pub fn all_starting() -> Vec<(String, PathBuf)> {
    place::all_starting().into_iter().filter(|(_, path)| seqpacket::connect(path).is_ok()).collect()
}

/// What to say where no service of this name answers.
pub fn none(name: &str) -> String {
    if starting(name).is_some() {
        return format!(
            "the netstack service {name} is starting: whether its addresses are free is not known yet; try again in a few seconds"
        );
    }
    let others: Vec<String> = place::all()
        .into_iter()
        .filter(|(other, path)| other != name && probe(path).is_ok())
        .map(|(other, _)| other)
        .collect();
    let there = match &others[..] {
        [] => "and none of another name".to_owned(),
        some => format!("there are: {}", some.join(", ")),
    };
    let flag = if name == DEFAULT_NAME { String::new() } else { format!(" --name {name}") };
    format!(
        "no netstack service named {name} is running ({there}); start one: bypath netstack{flag} --link tap:bp0 --net 10.9.0.1/24"
    )
}
