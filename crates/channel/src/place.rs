//! Where names are: in a folder that is the user's alone, or at a path in such a folder.

use crate::failed;
use bypath_sys::kept_folder::KeptFolder;
use bypath_sys::{Errno, process, session};
use std::ffi::{OsStr, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// Octets of a name in its folder: a socket's path has 107 at most, and the one by an open folder's number leaves so many.
const LONGEST_NAME: usize = 80;

/// Where a name is.
#[derive(Debug)]
pub struct Place {
    /// The socket, whatever is exchanged above its folder.
    pub path: PathBuf,
    /// The user's alone, and open as long as the path is used.
    _folder: KeptFolder,
}

/// The socket of a name. One with a slash is a path; others are in `$XDG_RUNTIME_DIR/bypath/channel` or
/// `/tmp/bypath-UID/channel`, which is made if `make` says so.
///
/// # Errors
/// EINVAL: it cannot be a name; ENAMETOOLONG; EACCES: somebody else could put names there, which is said with its remedy of the session's folder; as
/// mkdir(2) and open(2).
pub fn socket(name: &str, make: bool) -> io::Result<Place> {
    let invalid = || failed(Errno::INVAL);
    if name.contains('\0') {
        return Err(invalid());
    }
    let (folder, name) = if name.contains('/') {
        let path = Path::new(name);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let name = path.file_name().and_then(OsStr::to_str);
        (KeptFolder::open_own(folder.ok_or_else(invalid)?)?, name.ok_or_else(invalid)?)
    } else if name.is_empty() || name.starts_with('.') {
        return Err(invalid());
    } else {
        (of_user(make)?, name)
    };
    if name.len() > LONGEST_NAME {
        return Err(failed(Errno::NAMETOOLONG));
    }
    let path = folder.at(name)?;
    Ok(Place { path, _folder: folder })
}

/// Where names without a slash are.
fn of_user(make: bool) -> io::Result<KeptFolder> {
    let of_session = of_session(std::env::var_os("XDG_RUNTIME_DIR"));
    if let Some(session) = &of_session {
        session::check(session)?;
    }
    let folder = folder(of_session, process::euid_outside());
    let own = |path: &Path| {
        if make {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        KeptFolder::open_own(path)
    };
    own(folder.parent().unwrap_or(&folder))?;
    own(&folder)
}

fn of_session(variable: Option<OsString>) -> Option<PathBuf> {
    variable.map(PathBuf::from).filter(|path| path.is_absolute())
}

fn folder(of_session: Option<PathBuf>, outside: u32) -> PathBuf {
    match of_session {
        Some(path) => path.join("bypath/channel"),
        None => format!("/tmp/bypath-{outside}/channel").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sessions_folder_comes_first() {
        let folder = |variable: Option<&str>| folder(of_session(variable.map(OsString::from)), 7);
        assert_eq!(folder(Some("/run/user/7")), Path::new("/run/user/7/bypath/channel"));
        for not in [None, Some(""), Some("relative")] {
            assert_eq!(folder(not), Path::new("/tmp/bypath-7/channel"));
        }
    }
}
