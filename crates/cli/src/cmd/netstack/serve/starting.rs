//! That a service is about to be there: said by a socket beside its own, while addresses are asked for. Who waits connects, and hears by the end of
//! that connection that it is there now, or will not be.

use crate::cmd::netstack::found;
use crate::output::Failure;
use bypath_sockets::service::place;
use bypath_sys::kept_folder::{self, KeptFolder};
use bypath_sys::name_lock::NameLock;
use bypath_sys::{Errno, seqpacket};
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

/// Who waits, at most.
const BACKLOG: i32 = 1024;

/// Says so until it is dropped.
#[derive(Debug)]
pub struct Starting {
    /// Its name in the folder as that was opened, whatever is exchanged above it.
    path: PathBuf,
    _folder: KeptFolder,
    /// Open as long as that is so.
    socket: OwnedFd,
}

impl Starting {
    /// From now on the service `name` is about to be in this folder. `None`: it cannot be said there, such as for want of room in the path.
    ///
    /// # Errors
    /// Another one of this name is about to be.
    pub fn new(folder: &Path, name: &str) -> Result<Option<Starting>, Failure> {
        let file = place::starting_name(name);
        if folder.join(&file).as_os_str().len() > place::LONGEST_PATH {
            return Ok(None);
        }
        let Ok(kept) = KeptFolder::open(folder) else { return Ok(None) };
        let Ok(path) = kept.at(&file) else { return Ok(None) };
        // Two that start at once look at it one after the other.
        let Ok(_alone) = NameLock::of(&path) else { return Ok(None) };
        if found::is_starting(&path) {
            let text = format!(
                "a service named {name} is starting already, in {}; wait for it, or give this one a name: --name NAME",
                folder.display()
            );
            return Err(Failure::new(1, text));
        }
        let bound = match seqpacket::bind(&path) {
            // Left behind.
            Err(Errno::ADDRINUSE) if fs::remove_file(&path).is_ok() => seqpacket::bind(&path),
            bound => bound,
        };
        let Ok(socket) = bound else { return Ok(None) };
        let starting = Starting { path, _folder: kept, socket };
        // As the service's own socket: who may ask what is another question.
        let is_open = kept_folder::set_mode(&starting.path, 0o666).is_ok()
            && seqpacket::listen(starting.socket.as_fd(), BACKLOG).is_ok();
        Ok(is_open.then_some(starting))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}
