//! Where names are: in a folder that is the user's alone, or at a path in such a folder.

use crate::failed;
use bypath_sys::{Errno, fd, process};
use std::ffi::{CString, OsString};
use std::fs::DirBuilder;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The socket of a name. One with a slash is a path; others are in `$XDG_RUNTIME_DIR/bypath/channel` or
/// `/tmp/bypath-UID/channel`, which is made if `make` says so.
///
/// # Errors
/// EINVAL: it cannot be a name; EACCES: somebody else could put names there; as mkdir(2).
pub fn socket(name: &str, make: bool) -> io::Result<PathBuf> {
    if name.contains('/') {
        let path = PathBuf::from(name);
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        is_own(folder.ok_or(failed(Errno::INVAL))?)?;
        return Ok(path);
    }
    if name.is_empty() || name.starts_with('.') || name.contains('\0') {
        return Err(failed(Errno::INVAL));
    }
    let folder = folder(std::env::var_os("XDG_RUNTIME_DIR"), process::euid_outside());
    let both = [folder.parent().unwrap_or(&folder), &folder];
    for path in both {
        if make {
            match DirBuilder::new().mode(0o700).create(path) {
                Err(e) if e.kind() != io::ErrorKind::AlreadyExists => return Err(e),
                _ => {}
            }
        }
        is_own(path)?;
    }
    Ok(folder.join(name))
}

fn folder(of_session: Option<OsString>, outside: u32) -> PathBuf {
    match of_session.map(PathBuf::from).filter(|path| path.is_absolute()) {
        Some(path) => path.join("bypath/channel"),
        None => format!("/tmp/bypath-{outside}/channel").into(),
    }
}

fn is_own(folder: &Path) -> io::Result<()> {
    let path = CString::new(folder.as_os_str().as_bytes()).map_err(|_| failed(Errno::INVAL))?;
    if fd::is_own_directory(&path, process::euid()) {
        return Ok(());
    }
    // What is not there is no stranger's.
    std::fs::symlink_metadata(folder)?;
    Err(failed(Errno::ACCESS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sessions_folder_comes_first() {
        assert_eq!(folder(Some("/run/user/7".into()), 7), Path::new("/run/user/7/bypath/channel"));
        for not in [None, Some("".into()), Some("relative".into())] {
            assert_eq!(folder(not, 7), Path::new("/tmp/bypath-7/channel"));
        }
    }
}
