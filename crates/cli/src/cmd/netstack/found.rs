//! Services that are there.

use crate::output::Failure;
use bypath_netstack::service::{QueryError, query};
use bypath_sockets::service::{ServiceName, place};
use std::path::{Path, PathBuf};

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

/// What to say where no service of this name answers.
pub fn none(name: &str) -> String {
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
