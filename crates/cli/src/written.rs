//! Files that commands write captures to. A FIFO among them has no room before somebody reads it.

use rustix::fs::OFlags;
use rustix::io::Errno;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::thread;
use std::time::Duration;

/// How often a FIFO is looked at for somebody who reads it: the kernel tells of that only who waits in the open, which no signal
/// of ours would end.
const LOOK: Duration = Duration::from_millis(20);

/// Makes a file, or empties it. A FIFO is waited for until somebody reads it, or `gives_up` says so.
///
/// # Errors
/// It cannot be written, or it was given up.
pub fn create(path: &Path, gives_up: impl Fn() -> bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    loop {
        match options.open(path) {
            // A socket is, too, for another reason.
            Err(e) if Errno::from_io_error(&e) == Some(Errno::NXIO) && is_fifo(path) => {}
            Err(e) => return Err(e),
            Ok(file) => {
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

fn is_fifo(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.file_type().is_fifo())
}
