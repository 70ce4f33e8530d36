//! Where the configuration file is.

use super::SettingsError;
use clap::ValueHint;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

/// The variable that names the file.
pub const VARIABLE: &str = "BYPATH_CONFIG";
/// The file for all users.
pub(super) const SYSTEM_WIDE: &str = "/etc/bypath/config.toml";

/// The flag that names the file.
#[derive(Clone, Debug, Default, clap::Args)]
pub struct Source {
    /// The configuration file, or `none`; by default ~/.config/bypath/config.toml, else /etc/bypath/config.toml
    #[arg(
        long,
        value_name = "FILE|none",
        value_hint = ValueHint::FilePath,
        long_help = "The configuration file (settings, profiles, rules), or `none`; by default the first of \
                     $XDG_CONFIG_HOME/bypath/config.toml (~/.config/bypath/config.toml) and /etc/bypath/config.toml\n\n\
                     [environment: BYPATH_CONFIG]"
    )]
    pub config: Option<PathBuf>,
}

/// The file to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// One that was named; its path is absolute.
    Named(PathBuf),
    /// One that was found.
    Found(PathBuf),
    /// `none` was said.
    Off,
    /// There is none at any of these places.
    Nowhere(Vec<PathBuf>),
}

impl Place {
    /// The file, if there is one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Place::Named(path) | Place::Found(path) => Some(path),
            Place::Off | Place::Nowhere(_) => None,
        }
    }

    /// What [`VARIABLE`] must say for programs that start others, if anything.
    pub fn variable(&self) -> Option<OsString> {
        match self {
            Place::Named(path) => Some(path.into()),
            Place::Off => Some("none".into()),
            Place::Found(_) | Place::Nowhere(_) => None,
        }
    }
}

/// Decides which file is read.
///
/// # Errors
/// An empty name, or a relative one where the working directory is gone.
pub fn locate(
    source: &Source,
    environment: impl Fn(&str) -> Option<OsString>,
) -> Result<Place, SettingsError> {
    let named = source.config.clone().or_else(|| environment(VARIABLE).map(PathBuf::from));
    match named {
        Some(name) if name.as_os_str() == "none" => Ok(Place::Off),
        Some(name) => Ok(Place::Named(std::path::absolute(name).map_err(|_| SettingsError::NoName)?)),
        None => {
            let places = default_places(environment);
            // Anything that is there counts: a file that cannot be read is told, not passed over.
            let there = |p: &&PathBuf| !matches!(p.symlink_metadata(), Err(e) if is_absence(&e));
            Ok(match places.iter().find(there) {
                Some(path) => Place::Found(path.clone()),
                None => Place::Nowhere(places),
            })
        }
    }
}

fn is_absence(e: &std::io::Error) -> bool {
    use std::io::ErrorKind::{NotADirectory, NotFound, PermissionDenied};
    // Behind a directory that may not be searched (another user's HOME, after su) there is nothing to be seen.
    matches!(e.kind(), NotFound | NotADirectory | PermissionDenied)
}

fn default_places(environment: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let directory =
        |name: &str| environment(name).filter(|value| Path::new(value).is_absolute()).map(PathBuf::from);
    let own = directory("XDG_CONFIG_HOME").or_else(|| Some(directory("HOME")?.join(".config")));
    let own = own.map(|dir| dir.join(OsStr::new("bypath/config.toml")));
    own.into_iter().chain([PathBuf::from(SYSTEM_WIDE)]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(variables: &[(&str, &str)]) -> Vec<String> {
        let found = default_places(|name| {
            variables.iter().find(|(n, _)| *n == name).map(|(_, value)| OsString::from(value))
        });
        found.into_iter().map(|p| p.display().to_string()).collect()
    }

    #[test]
    fn default_places_follow_the_base_directory_specification() {
        assert_eq!(
            places(&[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "/x")]),
            ["/x/bypath/config.toml", SYSTEM_WIDE]
        );
        assert_eq!(
            places(&[("HOME", "/home/a"), ("XDG_CONFIG_HOME", "x")]),
            ["/home/a/.config/bypath/config.toml", SYSTEM_WIDE]
        );
        assert_eq!(places(&[("HOME", "")]), [SYSTEM_WIDE]);
    }

    #[test]
    fn the_flag_wins_over_the_variable_and_none_is_no_file() {
        let variable = |value: &'static str| move |n: &str| (n == VARIABLE).then(|| OsString::from(value));
        let flag = |value: &str| Source { config: Some(value.into()) };
        assert_eq!(locate(&flag("/f"), variable("/v")).unwrap(), Place::Named("/f".into()));
        assert_eq!(locate(&Source::default(), variable("/v")).unwrap(), Place::Named("/v".into()));
        assert_eq!(locate(&flag("none"), variable("/v")).unwrap(), Place::Off);
        assert_eq!(locate(&Source::default(), variable("none")).unwrap().variable(), Some("none".into()));
        assert!(matches!(locate(&flag(""), variable("/v")), Err(SettingsError::NoName)));
    }
}
