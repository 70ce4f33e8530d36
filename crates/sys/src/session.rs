//! The folder of a login session, `$XDG_RUNTIME_DIR`: `su`, and `sudo` that keeps variables, leave it another user's, who exchanges there what he likes.

use crate::{fd, no_magic, process};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::{fs, io};

/// Whether nobody but this user and root can exchange names there.
///
/// # Errors
/// Of kind `PermissionDenied`, with what can be done: another user can; as stat(2).
pub fn check(folder: &Path) -> io::Result<()> {
    let (path, own) = (CString::new(folder.as_os_str().as_bytes())?, process::euid());
    if fd::is_safe_directory(&path, own) {
        return Ok(());
    }
    let (owner, shown) = (fs::metadata(folder)?.uid(), folder.display());
    let led = no_magic::open(None, folder, libc::O_PATH);
    let why = if led.is_err_and(|e| e.raw_os_error() == Some(libc::ELOOP)) {
        format!("XDG_RUNTIME_DIR={shown}: a link of /proc leads there, to what another process sees")
    } else if owner == own || owner == 0 {
        format!("XDG_RUNTIME_DIR={shown}: others may write to it: chmod go-w {shown}")
    } else {
        format!(
            "XDG_RUNTIME_DIR={shown}: it is user {owner}'s, and this is user {own}: log in as that one (sudo -i)"
        )
    };
    let text = format!("{why}, or start this without the variable (env -u XDG_RUNTIME_DIR)");
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}
