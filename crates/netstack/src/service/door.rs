//! The socket at a path where the service is asked.

use super::{ServiceError, Settings};
use bypath_shm::service::is_name;
use bypath_sys::name_lock::NameLock;
use bypath_sys::{Errno, seqpacket};
use std::fs::{self, Permissions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::PathBuf;

/// Processes that wait to be admitted.
const BACKLOG: i32 = 1024;

/// The socket, and its name in the file system, which goes with it.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    path: PathBuf,
    /// Which file it is: somebody may have put another one in its place.
    file: Option<(u64, u64)>,
}

impl Door {
    /// Takes the name. One that was left behind is replaced.
    pub fn open(settings: &Settings) -> Result<Door, ServiceError> {
        if !is_name(&settings.name) {
            return Err(ServiceError::Name { name: settings.name.clone() });
        }
        let path = settings.folder.join(&settings.name);
        let failed = |e: Errno| match e {
            Errno::NAMETOOLONG => ServiceError::TooLong { path: path.clone() },
            e => ServiceError::Folder {
                folder: settings.folder.clone(),
                source: std::io::Error::from_raw_os_error(e.raw_os_error()),
            },
        };
        let folder = |source| ServiceError::Folder { folder: settings.folder.clone(), source };
        // Two that start at once look at it one after the other.
        let _alone = NameLock::of(&path).map_err(|e| {
            let text = format!("{}: {e}", NameLock::path_of(&path).display());
            folder(std::io::Error::new(e.kind(), text))
        })?;
        let socket = match seqpacket::bind(&path) {
            Err(Errno::ADDRINUSE) => {
                // What is no socket refuses connections, too.
                if !fs::symlink_metadata(&path).map_err(folder)?.file_type().is_socket() {
                    return Err(ServiceError::NoSocket { path });
                }
                match seqpacket::connect(&path) {
                    Err(Errno::CONNREFUSED) => {}
                    Ok(_) | Err(Errno::AGAIN | Errno::ACCESS | Errno::PERM) => {
                        return Err(ServiceError::Exists { name: settings.name.clone(), path });
                    }
                    Err(_) => return Err(ServiceError::NoSocket { path }),
                }
                fs::remove_file(&path).map_err(folder)?;
                seqpacket::bind(&path).map_err(failed)?
            }
            bound => bound.map_err(failed)?,
        };
        // Who may ask what depends on whom he is, and on what he holds (`control.rs`): a mode cannot tell.
        fs::set_permissions(&path, Permissions::from_mode(0o666)).map_err(folder)?;
        seqpacket::listen(socket.as_fd(), BACKLOG).map_err(failed)?;
        let file = fs::metadata(&path).ok().map(|m| (m.dev(), m.ino()));
        Ok(Door { socket, path, file })
    }

    /// The next one who wants to ask.
    pub fn next(&self) -> bypath_sys::Result<Option<OwnedFd>> {
        seqpacket::accept(self.socket.as_fd())
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let now = fs::symlink_metadata(&self.path).ok().map(|m| (m.dev(), m.ino()));
        if now.is_some() && now == self.file {
            let _ = fs::remove_file(&self.path);
        }
    }
}
