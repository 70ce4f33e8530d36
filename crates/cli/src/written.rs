//! Files that commands write captures to. A FIFO among them has no room before somebody reads it.

use crate::connections::is_trusted;
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How often a FIFO is looked at for somebody who reads it: the kernel tells of that only who waits in the open, which no signal
/// of ours would end.
const LOOK: Duration = Duration::from_millis(20);

/// Makes a file, or empties it. A FIFO is waited for until somebody reads it, or `gives_up` says so. In a folder to which others may write, as `/tmp`, it
/// is not what another user has put there: who reads it would be he, or what is emptied what his link leads to.
///
/// # Errors
/// It cannot be written, it is another user's, or it was given up.
pub fn create(path: &Path, gives_up: impl Fn() -> bool) -> io::Result<File> {
    let is_open = is_open_to_others(path);
    let flags = if is_open { OFlags::NONBLOCK | OFlags::NOFOLLOW } else { OFlags::NONBLOCK };
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(!is_open).custom_flags(flags.bits().cast_signed());
    loop {
        match options.open(path) {
            // A socket is, too, for another reason.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NXIO) && is_fifo(path) => {}
            Err(e) if Errno::from_io_error(&e) == Some(Errno::LOOP) && is_open => {
                return Err(refused("a link"));
            }
            Err(e) => return Err(e),
            Ok(file) => {
                if is_open {
                    let found = file.metadata()?;
                    if !is_trusted(found.uid()) {
                        return Err(refused("another user's"));
                    }
                    if found.is_file() {
                        if found.nlink() > 1 {
                            return Err(refused("the file of another name, too"));
                        }
                        file.set_len(0)?;
                    }
                }
                // Who reads slowly is waited for.
                rustix::fs::fcntl_setfl(&file, OFlags::empty())?;
                return Ok(file);
            }
        }
        if gives_up() {
            return Err(io::Error::other("nobody reads this FIFO"));
        }
        thread::sleep(LOOK);
    }
}

fn refused(what: &str) -> io::Error {
    io::Error::other(format!(
        "it is {what}, in a folder to which others may write: remove it, or name another file"
    ))
}

/// Whether users who are not trusted may make files, and links, beside it.
fn is_open_to_others(path: &Path) -> bool {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    fs::metadata(folder).is_ok_and(|folder| folder.mode() & 0o002 != 0 || !is_trusted(folder.uid()))
}

fn is_fifo(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn where_others_may_write_nothing_of_theirs_is_written_to() {
        let folder = std::env::temp_dir().join(format!("bypath-written-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let path = |name: &str| folder.join(name);
        let create = |name: &str| create(&path(name), || true).map(drop);
        for mode in [0o755, 0o1777] {
            fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
            let is_open = mode != 0o755;
            for name in ["new", "own", "linked", "again"] {
                let _ = fs::remove_file(path(name));
            }
            fs::write(path("own"), "own").unwrap();
            symlink(path("own"), path("linked")).unwrap();
            assert_eq!(create("linked").is_err(), is_open);
            assert_eq!(fs::read(path("own")).unwrap().is_empty(), !is_open);
            fs::hard_link(path("own"), path("again")).unwrap();
            assert_eq!(create("again").is_err(), is_open);
            fs::remove_file(path("again")).unwrap();
            fs::write(path("own"), "own").unwrap();
            assert!(create("new").is_ok() && create("own").is_ok());
            assert_eq!(fs::read(path("own")).unwrap(), b"");
            if rustix::process::geteuid().is_root() {
                fs::write(path("own"), "another user's").unwrap();
                std::os::unix::fs::chown(path("own"), Some(12345), None).unwrap();
                assert_eq!(create("own").is_err(), is_open);
            }
        }
        fs::remove_dir_all(folder).unwrap();
    }
}
