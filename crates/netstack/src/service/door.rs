//! The socket at a path where the service is asked.

use super::{ServiceError, Settings};
use bypath_shm::service::is_name;
use bypath_sockets::service::place::LONGEST_PATH;
use bypath_sys::kept_folder::{self, KeptFolder};
use bypath_sys::name_lock::NameLock;
use bypath_sys::{Errno, seqpacket, unix};
use std::fs;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::PathBuf;

/// Processes that wait to be admitted.
const BACKLOG: i32 = 1024;

/// The socket, and its name in the file system, which goes with it.
#[derive(Debug)]
pub struct Door {
    socket: OwnedFd,
    /// Its name in the folder as that was opened, whatever is exchanged above it.
    path: PathBuf,
    _folder: KeptFolder,
    /// Which file it is: somebody may have put another one in its place.
    file: Option<(u64, u64)>,
}

impl Door {
    /// Takes the name. One that was left behind is replaced.
    pub fn open(settings: &Settings) -> Result<Door, ServiceError> {
        if !is_name(&settings.name) {
            return Err(ServiceError::Name { name: settings.name.clone() });
        }
        let shown = settings.folder.join(&settings.name);
        if shown.as_os_str().len() > LONGEST_PATH {
            return Err(ServiceError::TooLong { path: shown });
        }
        let folder = |source| ServiceError::Folder { folder: settings.folder.clone(), source };
        let failed = |e: Errno| folder(std::io::Error::from_raw_os_error(e.raw_os_error()));
        let kept = KeptFolder::open(&settings.folder).map_err(folder)?;
        let path = kept.at(&settings.name).map_err(folder)?;
        // Two that start at once look at it one after the other.
        let _alone = NameLock::of(&path).map_err(|e| {
            let text = format!("{}: {e}", NameLock::path_of(&shown).display());
            folder(std::io::Error::new(e.kind(), text))
        })?;
        let socket = match seqpacket::bind(&path) {
            Err(Errno::ADDRINUSE) => {
                // What is no socket refuses connections, too.
                if !fs::symlink_metadata(&path).map_err(folder)?.file_type().is_socket() {
                    return Err(ServiceError::NoSocket { path: shown });
                }
                match seqpacket::connect(&path) {
                    Err(Errno::CONNREFUSED) => {}
                    Ok(_) | Err(Errno::AGAIN | Errno::ACCESS | Errno::PERM) => {
                        return Err(ServiceError::Exists { name: settings.name.clone(), path: shown });
                    }
                    Err(_) => return Err(ServiceError::NoSocket { path: shown }),
                }
                fs::remove_file(&path).map_err(folder)?;
                seqpacket::bind(&path).map_err(failed)?
            }
            bound => bound.map_err(failed)?,
        };
        // Who may ask what depends on whom he is, and on what he holds (`control.rs`): a mode cannot tell.
        kept_folder::set_mode(&path, 0o666).map_err(folder)?;
        unix::tell_senders(socket.as_raw_fd()).map_err(failed)?;
        seqpacket::listen(socket.as_fd(), BACKLOG).map_err(failed)?;
        let file = fs::symlink_metadata(&path).ok().map(|m| (m.dev(), m.ino()));
        Ok(Door { socket, path, _folder: kept, file })
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
