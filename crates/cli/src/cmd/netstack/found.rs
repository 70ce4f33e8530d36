//! Services that are there.

use crate::output::Failure;
use bypath_netstack::service::query;
use bypath_sockets::service::{ServiceName, place};
use std::path::{Path, PathBuf};

/// Name of a service for which none is said.
pub const DEFAULT_NAME: &str = ServiceName::DEFAULT;

/// Whether a service answers there.
pub fn answers(path: &Path) -> bool {
    query(path, r#"{"what":"service"}"#, |_| {}).is_ok()
}

/// The socket of a service that answers.
///
/// # Errors
/// None of this name does: which ones do, and how to start one.
pub fn running(name: &str, code: u8) -> Result<PathBuf, Failure> {
    let path = place::find(name);
    match path {
        Some(path) if answers(&path) => Ok(path),
        _ => Err(Failure::new(code, none(name))),
    }
}

/// What to say where no service of this name answers.
pub fn none(name: &str) -> String {
    let others: Vec<String> = place::all()
        .into_iter()
        .filter(|(other, path)| other != name && answers(path))
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
