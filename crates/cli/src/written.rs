//! Files that commands write: captures, and JSON. A FIFO among them has no room before somebody reads it.
//!
//! Where others may write to a folder, as `/tmp`, they choose what stands there: nothing of theirs is written to, nor followed.

use crate::connections::is_trusted;
use bypath_sys::process::{OVERFLOW_UID, knows_all_users};
use rustix::fs::{self, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, OwnedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::Path;
use std::thread;
use std::time::Duration;

/// Mode of a new file in which octets of programs are.
pub const PRIVATE: Mode = Mode::from_raw_mode(0o600);
/// Mode of any other new one, as far as the umask lets it.
pub const USUAL: Mode = Mode::from_raw_mode(0o666);

/// How often a FIFO is looked at for somebody who reads it: the kernel tells of that only who waits in the open, which no signal
/// of ours would end.
const LOOK: Duration = Duration::from_millis(20);
/// Links on the way at most, as the kernel's.
const LINKS: usize = 40;
/// linux/magic.h
const PROC_SUPER_MAGIC: u64 = 0x9fa0;

/// Makes a file of this mode, or empties it. A FIFO is waited for until somebody reads it, or `gives_up` says so. In a folder to which others may write
/// neither the file nor a link that leads to it is another user's, or has a second name.
///
/// # Errors
/// It cannot be written, it is another user's, or it was given up.
pub fn create(path: &Path, mode: Mode, gives_up: impl Fn() -> bool) -> io::Result<File> {
    loop {
        match Place::of(path, true)?.open(mode) {
            // A socket is, too, for another reason.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NXIO) && is_fifo(path) => {}
            opened => return opened,
        }
        if gives_up() {
            return Err(io::Error::other("nobody reads this FIFO"));
        }
        thread::sleep(LOOK);
    }
}

/// Opens a file to read and append to, and makes it if there is none, at a path that leads there as [`create`] wants it, but is no link itself. Where it is, by a path
/// without links: who follows none gets there again, whatever the owner of a folder on the way does.
///
/// # Errors
/// As [`create`].
pub fn append_to(path: &Path) -> io::Result<(File, OsString)> {
    let place = Place::of(path, false)?;
    // Whatever is there by now: nobody waits for it.
    let careful = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | careful;
    let file = fs::openat(&place.folder, &*place.name, flags, PRIVATE)?;
    let link = format!("/proc/self/fd/{}", place.folder.as_raw_fd());
    let path = match fs::readlink(link, Vec::new()) {
        Ok(folder) => Path::new(OsStr::from_bytes(folder.to_bytes())).join(&place.name),
        // Where there is no `/proc`: as it was given. If it has links the programs say so.
        Err(_) => std::path::absolute(path)?,
    };
    Ok((file.into(), path.into_os_string()))
}

fn is_fifo(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo())
}

/// Where a path leads, link by link.
struct Place {
    folder: OwnedFd,
    name: OsString,
    /// A link of `/proc`, which only the kernel follows.
    is_of_proc: bool,
}

impl Place {
    /// `is_led`: also by a link that it names itself.
    fn of(path: &Path, is_led: bool) -> io::Result<Place> {
        let mut left = LINKS;
        let mut folder = beginning(path.as_os_str())?;
        let mut names = backwards(path.as_os_str());
        loop {
            let name = names.pop().ok_or(Errno::NOENT)?;
            let is_last = names.is_empty();
            let looked = match look(&folder, &name, OFlags::NOFOLLOW) {
                Err(Errno::NOENT) if is_last => return Ok(Place { folder, name, is_of_proc: false }),
                looked => looked?,
            };
            let found = fs::fstat(&looked)?;
            let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
            if is_link || is_last {
                check(&folder, &found)?;
            }
            if is_last && !(is_link && is_led) {
                return Ok(Place { folder, name, is_of_proc: false });
            }
            if !is_link {
                folder = look(&folder, &name, OFlags::DIRECTORY | OFlags::NOFOLLOW)?;
            } else if fs::fstatfs(&looked)?.f_type.cast_unsigned() == PROC_SUPER_MAGIC {
                if is_last {
                    return Ok(Place { folder, name, is_of_proc: true });
                }
                folder = look(&folder, &name, OFlags::DIRECTORY)?;
            } else {
                left = left.checked_sub(1).ok_or(Errno::LOOP)?;
                let to = OsString::from_vec(fs::readlinkat(&looked, "", Vec::new())?.into_bytes());
                if to.as_bytes().first() == Some(&b'/') {
                    folder = beginning(&to)?;
                }
                names.extend(backwards(&to));
            }
        }
    }

    fn open(&self, mode: Mode) -> io::Result<File> {
        let led = if self.is_of_proc { OFlags::empty() } else { OFlags::NOFOLLOW };
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC | led;
        let file = fs::openat(&self.folder, &*self.name, flags, mode)?;
        let found = fs::fstat(&file)?;
        if !self.is_of_proc {
            // It may have been exchanged since it was looked at.
            check(&self.folder, &found)?;
        }
        if FileType::from_raw_mode(found.st_mode) == FileType::RegularFile {
            fs::ftruncate(&file, 0)?;
        }
        // Who reads slowly is waited for.
        fs::fcntl_setfl(&file, OFlags::empty())?;
        Ok(file.into())
    }
}

fn beginning(path: &OsStr) -> Result<OwnedFd, Errno> {
    let at = if path.as_bytes().first() == Some(&b'/') { "/" } else { "." };
    look(fs::CWD, OsStr::new(at), OFlags::DIRECTORY)
}

fn look(folder: impl AsFd, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    fs::openat(folder, name, OFlags::PATH | OFlags::CLOEXEC | flags, Mode::empty())
}

/// The names of a path, the first one last. A slash at its end asks for a folder.
fn backwards(path: &OsStr) -> Vec<OsString> {
    let path = path.as_bytes();
    let names = path.rsplit(|octet| *octet == b'/').filter(|name| !name.is_empty());
    let folder = path.ends_with(b"/").then_some(&b"."[..]);
    folder.into_iter().chain(names).map(|name| OsStr::from_bytes(name).to_owned()).collect()
}

/// Whether what stands in a folder is not what another user can have put there.
fn check(folder: &OwnedFd, found: &Stat) -> io::Result<()> {
    let around = fs::fstat(folder)?;
    let is_shared = around.st_mode & 0o022 != 0;
    let is_link = FileType::from_raw_mode(found.st_mode) == FileType::Symlink;
    // In a container's user namespace that is root's `/dev`, too.
    let is_nobodys = is_link && around.st_uid == OVERFLOW_UID && !knows_all_users();
    if !is_shared && (is_trusted(around.st_uid) || is_nobodys) {
        return Ok(());
    }
    let whose = if !is_trusted(found.st_uid) {
        "another user's"
    } else if FileType::from_raw_mode(found.st_mode) != FileType::Directory && found.st_nlink > 1 {
        "the file of another name, too"
    } else {
        return Ok(());
    };
    let what = if is_link { "a link that leads there is" } else { "it is" };
    Err(io::Error::other(format!(
        "{what} {whose}, in a folder to which others may write: remove it, or name another file"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, lchown, symlink};
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let path = std::env::temp_dir().join(format!("bypath-written-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Folder(path)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.join(name)
        }

        fn set_mode(&self, mode: u32) {
            fs::set_permissions(&self.0, fs::Permissions::from_mode(mode)).unwrap();
        }

        fn create(&self, name: &str) -> Result<(), String> {
            create(&self.path(name), PRIVATE, || true).map(drop).map_err(|e| e.to_string())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const ANOTHER: u32 = 12345;

    /// Only root can give files away. The summary of the whole test command names what is left out.
    fn is_root(test: &str) -> bool {
        let is_root = rustix::process::geteuid().is_root();
        if let Some(file) = std::env::var_os("BYPATH_TEST_SKIPS").filter(|_| !is_root) {
            let mut file = fs::OpenOptions::new().append(true).open(file).unwrap();
            let line = format!("cli::written::{test}\tneeds root to give files away\n");
            io::Write::write_all(&mut file, line.as_bytes()).unwrap();
        }
        is_root
    }

    #[test]
    fn where_others_may_write_nothing_of_theirs_is_written_to() {
        let folder = Folder::new("theirs");
        let (path, create) = (|name: &str| folder.path(name), |name: &str| folder.create(name));
        for mode in [0o755, 0o1777, 0o2775] {
            folder.set_mode(mode);
            let is_open = mode != 0o755;
            for name in ["new", "own", "linked", "again", "pipe"] {
                let _ = fs::remove_file(path(name));
            }
            fs::write(path("own"), "own").unwrap();
            fs::hard_link(path("own"), path("again")).unwrap();
            assert_eq!(create("again").is_err(), is_open);
            assert_eq!(fs::read(path("own")).unwrap().is_empty(), !is_open);
            fs::remove_file(path("again")).unwrap();
            symlink("own", path("linked")).unwrap();
            fs::write(path("own"), "own").unwrap();
            assert_eq!(create("linked"), Ok(()));
            assert_eq!(fs::read(path("own")).unwrap(), b"");
            fs::write(path("own"), "own").unwrap();
            assert_eq!((create("new"), create("own")), (Ok(()), Ok(())));
            assert_eq!(fs::read(path("own")).unwrap(), b"");
            if !is_root("where_others_may_write_nothing_of_theirs_is_written_to") {
                continue;
            }
            fs::write(path("own"), "another user's").unwrap();
            chown(path("own"), Some(ANOTHER), None).unwrap();
            assert_eq!(create("own").is_err(), is_open);
            assert_eq!(fs::read(path("own")).unwrap().is_empty(), !is_open);
            rustix::fs::mkfifoat(rustix::fs::CWD, path("pipe"), Mode::from_raw_mode(0o666)).unwrap();
            chown(path("pipe"), Some(ANOTHER), None).unwrap();
            let told = create("pipe").unwrap_err();
            assert_eq!(told.contains("another user's"), is_open, "{told}");
        }
    }

    #[test]
    fn where_others_may_write_no_link_of_theirs_is_followed() {
        if !is_root("where_others_may_write_no_link_of_theirs_is_followed") {
            return;
        }
        let folder = Folder::new("links");
        let path = |name: &str| folder.path(name);
        fs::create_dir_all(path("private/deep")).unwrap();
        fs::create_dir(path("shared")).unwrap();
        symlink("../private/", path("shared/folder")).unwrap();
        symlink(path("private/deep/file"), path("shared/file")).unwrap();
        // What the own user's link leads to is looked at in the same way.
        symlink("shared/folder", path("own")).unwrap();
        let names = ["shared/file", "shared/folder/deep/file", "own/deep/../deep/file"];
        for (mode, owner) in [(0o755, 0), (0o1777, 0), (0o2775, 0), (0o755, ANOTHER)] {
            fs::set_permissions(path("shared"), fs::Permissions::from_mode(mode)).unwrap();
            chown(path("shared"), Some(owner), None).unwrap();
            for whose in [ANOTHER, 0] {
                lchown(path("shared/folder"), Some(whose), None).unwrap();
                lchown(path("shared/file"), Some(whose), None).unwrap();
                let is_refused = whose == ANOTHER && (mode, owner) != (0o755, 0);
                for name in names {
                    fs::write(path("private/deep/file"), "precious").unwrap();
                    let done = folder.create(name);
                    let is_kept = fs::read(path("private/deep/file")).unwrap() == b"precious";
                    assert_eq!((done.is_err(), is_kept), (is_refused, is_refused), "{name} {mode:o} {owner}");
                }
            }
        }
    }

    #[test]
    fn a_path_leads_where_it_leads_otherwise() {
        let folder = Folder::new("ways");
        let path = |name: &str| folder.path(name);
        fs::create_dir(path("inner")).unwrap();
        symlink("made", path("nowhere")).unwrap();
        symlink("loop", path("loop")).unwrap();
        assert_eq!(folder.create("nowhere"), Ok(()));
        assert!(path("made").is_file());
        for name in ["inner", "inner/", "inner/.", "new/", "made/x", "missing/x", "loop", "loop/x", ""] {
            assert!(folder.create(name).is_err(), "{name}");
        }
        assert!(!path("new").exists() && create(Path::new(""), USUAL, || true).is_err());
        // Links of the kernel: /dev/fd, /proc/self, and that of the descriptor.
        fs::write(path("made"), "long").unwrap();
        let made = File::options().write(true).open(path("made")).unwrap();
        let led = format!("/dev/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&made));
        create(Path::new(&led), USUAL, || true).unwrap();
        assert_eq!(fs::read(path("made")).unwrap(), b"");
        create(Path::new("/dev/null"), USUAL, || true).unwrap();
    }

    #[test]
    fn a_new_file_is_its_owners_and_an_old_one_keeps_its_mode() {
        let folder = Folder::new("modes");
        let mode = |name: &str| fs::metadata(folder.path(name)).unwrap().mode() & 0o7777;
        assert_eq!((folder.create("new"), mode("new")), (Ok(()), 0o600));
        fs::set_permissions(folder.path("new"), fs::Permissions::from_mode(0o640)).unwrap();
        assert_eq!((folder.create("new"), mode("new")), (Ok(()), 0o640));
    }
}
