//! The configuration file: where it is, what stands in it, and what follows from it together with flags and
//! environment. See docs/rules.md.

mod file;
mod place;
mod resolve;
mod rule;
mod text;

pub use file::read;
pub use place::{Place, Source, VARIABLE, locate};
pub use resolve::{Effective, Origin, Value, resolve};
pub use rule::conditions;
pub use text::{Problem, Text, nearest, report, scalar};

use bypath_sockets::config::ConfigError;
use std::io;
use std::path::{Path, PathBuf};
use thiserror::Error;

/// Why there are no settings.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// A flag or variable has a bad value.
    #[error("{0}")]
    Value(#[from] ConfigError),
    /// A variable that is no text.
    #[error("the value of {0} is not valid UTF-8")]
    NotUtf8(&'static str),
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {reason} (name it with --config, or go without: --config none)", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: io::Error,
    },
    /// The file has mistakes.
    #[error("the configuration file has mistakes:\n{}", report(path, problems).trim_end())]
    Mistakes {
        /// The file.
        path: PathBuf,
        /// All of them, and warnings.
        problems: Vec<Problem>,
    },
    /// BYPATH_CONFIG or --config without a name.
    #[error("{VARIABLE} and --config take the name of a file, or none")]
    NoName,
    /// More rules than fit.
    #[error("the rules of {} take {length} bytes in the environment, at most {} fit", path.display(), bypath_sockets::rules::text::LONGEST)]
    TooLong {
        /// The file.
        path: PathBuf,
        /// Bytes of the text.
        length: usize,
    },
}

/// Reads the file, if there is one, and puts it together with flags and environment.
///
/// # Errors
/// As [`SettingsError`] says.
pub fn effective(
    source: &Source,
    flags: &crate::args::Settings,
    environment: impl Fn(&str) -> Option<std::ffi::OsString>,
) -> Result<Effective, SettingsError> {
    let place = locate(source, &environment)?;
    let unreadable =
        |reason| SettingsError::Unreadable { path: place.path().unwrap_or(Path::new("")).to_owned(), reason };
    let file = match read(&place).map_err(unreadable)? {
        Some((file, problems)) if problems.iter().any(|p| !p.warning) => {
            return Err(SettingsError::Mistakes { path: file.path, problems });
        }
        found => found.map(|(file, _)| file),
    };
    resolve(place, file, flags, environment)
}
