//! Who takes a name in the file system does so alone: of several processes of a user one looks whether it was left behind, and the others wait.
//!
//! flock(2) asks for no right but to have the file open, and keeps it as long as its holder likes: of a folder, or of anything that others may
//! open, it would be everybody's to take. So the lock is a file of the user's own, which nobody else can open, and it is gone with its holder.

use crate::{Errno, process};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Files that are gone by the time they are locked, at most, as their holders have finished.
const TRIES: usize = 1000;

/// The right to look at a name, and to take it. The file goes when this is dropped.
#[derive(Debug)]
pub struct NameLock {
    path: PathBuf,
    /// Locked as long as it is open.
    _file: File,
}

impl NameLock {
    /// The file that is locked for a name.
    pub fn path_of(name: &Path) -> PathBuf {
        let file = name.file_name().unwrap_or_default();
        name.with_file_name([".".as_ref(), file, ".lock".as_ref()].join("".as_ref()))
    }

    /// Waits until no other process of this user has it: `.NAME.lock` beside the name.
    ///
    /// # Errors
    /// EACCES: what is there is another user's, or others may open it; EAGAIN: it changes hands all the time; as open(2).
    pub fn of(name: &Path) -> io::Result<NameLock> {
        let path = NameLock::path_of(name);
        for _ in 0..TRIES {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false).mode(0o600);
            let file = options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK).open(&path)?;
            let of = file.metadata()?;
            let is_own = of.is_file() && of.uid() == process::euid() && of.mode() & 0o077 == 0;
            if !is_own || of.nlink() > 1 {
                return Err(io::Error::from_raw_os_error(libc::EACCES));
            }
            file.lock()?;
            // Who had it has taken it away before he let go.
            if fs::symlink_metadata(&path).is_ok_and(|now| (now.dev(), now.ino()) == (of.dev(), of.ino())) {
                return Ok(NameLock { path, _file: file });
            }
        }
        Err(io::Error::from_raw_os_error(Errno::AGAIN.raw_os_error()))
    }
}

impl Drop for NameLock {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir().join(format!("bypath-lock-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn one_has_a_name_at_a_time_and_nothing_is_left() {
        let folder = Scratch::new("one");
        let (name, inside) = (folder.0.join("name"), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let lock = NameLock::of(&name).unwrap();
                        assert_eq!(inside.fetch_add(1, SeqCst), 0);
                        assert_eq!(inside.fetch_sub(1, SeqCst), 1);
                        drop(lock);
                    }
                });
            }
        });
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    }

    #[test]
    fn other_names_and_the_folder_are_other_locks() {
        let folder = Scratch::new("others");
        let held = File::open(&folder.0).unwrap();
        held.lock().unwrap();
        let locks = ["a", "b"].map(|name| NameLock::of(&folder.0.join(name)).unwrap());
        assert_eq!(locks[0].path, folder.0.join(".a.lock"));
        assert_eq!(fs::metadata(&locks[1].path).unwrap().mode() & 0o777, 0o600);
    }

    #[test]
    fn what_others_may_open_is_no_lock() {
        let folder = Scratch::new("open");
        let (name, lock) = (folder.0.join("name"), folder.0.join(".name.lock"));
        let refused = || NameLock::of(&name).err().and_then(|e| e.raw_os_error());
        // Left behind by a process that was killed.
        fs::write(&lock, "").unwrap();
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o600)).unwrap();
        drop(NameLock::of(&name).unwrap());
        fs::write(&lock, "").unwrap();
        fs::set_permissions(&lock, fs::Permissions::from_mode(0o644)).unwrap();
        assert_eq!(refused(), Some(libc::EACCES));
        fs::rename(&lock, folder.0.join("elsewhere")).unwrap();
        symlink(folder.0.join("elsewhere"), &lock).unwrap();
        assert_eq!(refused(), Some(libc::ELOOP));
        fs::remove_file(&lock).unwrap();
        fs::set_permissions(folder.0.join("elsewhere"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::hard_link(folder.0.join("elsewhere"), &lock).unwrap();
        assert_eq!(refused(), Some(libc::EACCES));
    }
}
