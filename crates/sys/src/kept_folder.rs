//! A folder that is kept open: whoever exchanges it, or one above it, leads nobody to other names by that. Names go by `/proc/self/fd`.

use crate::{Errno, fd, no_magic, process};
use std::fs::{self, File, OpenOptions, Permissions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// An open folder, whatever its path leads to by now.
#[derive(Debug)]
pub struct KeptFolder(File);

fn look(path: &Path, flags: i32) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_PATH | flags).open(path)
}

/// Where an open file is found without its name.
fn by_number(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

impl KeptFolder {
    /// Opens what a path leads to.
    ///
    /// # Errors
    /// As open(2): ENOENT, ENOTDIR, EACCES, EMFILE.
    pub fn open(path: &Path) -> io::Result<KeptFolder> {
        look(path, libc::O_DIRECTORY).map(KeptFolder)
    }

    /// The same of a folder that is this user's alone, and no symbolic link.
    ///
    /// # Errors
    /// Those of [`open`](KeptFolder::open); EACCES: it is no folder, another user's, or others may write to it; ELOOP: a link of
    /// `/proc` leads there.
    pub fn open_own(path: &Path) -> io::Result<KeptFolder> {
        let folder = no_magic::open(None, path, libc::O_PATH | libc::O_NOFOLLOW)?;
        if fd::is_own_directory_open(folder.as_raw_fd(), process::euid()) {
            return Ok(KeptFolder(folder));
        }
        Err(refused())
    }

    /// The path of a name in this folder, as long as it is open.
    ///
    /// # Errors
    /// EINVAL: it is a path.
    pub fn at(&self, name: &str) -> io::Result<PathBuf> {
        if name.contains('/') {
            return Err(io::Error::from_raw_os_error(Errno::INVAL.raw_os_error()));
        }
        Ok(by_number(&self.0).join(name))
    }
}

/// Gives the socket at a path a mode: one of this user's, and no link to one.
///
/// # Errors
/// EACCES: it is no socket, or another user's; as open(2) and chmod(2); ENOENT where there is no `/proc`.
pub fn set_mode(socket: &Path, mode: u32) -> io::Result<()> {
    let file = look(socket, libc::O_NOFOLLOW)?;
    let of = file.metadata()?;
    if !of.file_type().is_socket() || of.uid() != process::euid() {
        return Err(refused());
    }
    fs::set_permissions(by_number(&file), Permissions::from_mode(mode))
}

fn refused() -> io::Error {
    io::Error::from_raw_os_error(Errno::ACCESS.raw_os_error())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seqpacket;
    use std::fs::DirBuilder;
    use std::os::unix::fs::{DirBuilderExt, symlink};

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("bypath-kept-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        DirBuilder::new().mode(0o700).create(&path).unwrap();
        path
    }

    fn mode(path: &Path) -> u32 {
        fs::symlink_metadata(path).unwrap().mode() & 0o777
    }

    #[test]
    fn names_stay_in_the_folder_that_was_opened() {
        let top = scratch("exchanged");
        let [good, evil] = ["good", "evil"].map(|name| top.join(name));
        for path in [&good, &evil] {
            DirBuilder::new().mode(0o700).create(path).unwrap();
        }
        let folder = KeptFolder::open_own(&good).unwrap();
        fs::rename(&good, top.join("elsewhere")).unwrap();
        fs::rename(&evil, &good).unwrap();
        let _socket = seqpacket::bind(&folder.at("x").unwrap()).unwrap();
        assert!(top.join("elsewhere/x").exists() && !good.join("x").exists());
        assert!(folder.at("../x").is_err());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn a_folder_of_others_or_a_link_is_not_the_own_one() {
        let top = scratch("own");
        symlink(&top, top.join("link")).unwrap();
        assert!(KeptFolder::open_own(&top).is_ok() && KeptFolder::open_own(&top.join("link")).is_err());
        assert!(KeptFolder::open(&top.join("link")).is_ok());
        let led = Path::new("/proc/self/root").join(top.strip_prefix("/").unwrap());
        assert_eq!(KeptFolder::open_own(&led).unwrap_err().raw_os_error(), Some(libc::ELOOP));
        fs::set_permissions(&top, Permissions::from_mode(0o770)).unwrap();
        assert_eq!(KeptFolder::open_own(&top).unwrap_err().raw_os_error(), Some(libc::EACCES));
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn the_mode_of_nothing_but_an_own_socket_is_set() {
        let top = scratch("mode");
        let [socket, file, link] = ["socket", "file", "link"].map(|name| top.join(name));
        let _bound = seqpacket::bind(&socket).unwrap();
        set_mode(&socket, 0o600).unwrap();
        fs::write(&file, "").unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o644)).unwrap();
        assert_eq!(set_mode(&file, 0o666).unwrap_err().raw_os_error(), Some(libc::EACCES));
        for to in [&file, &socket] {
            symlink(to, &link).unwrap();
            assert_eq!(set_mode(&link, 0o666).unwrap_err().raw_os_error(), Some(libc::EACCES));
            fs::remove_file(&link).unwrap();
        }
        assert_eq!([&socket, &file].map(|path| mode(path)), [0o600, 0o644]);
        fs::remove_dir_all(top).unwrap();
    }
}
