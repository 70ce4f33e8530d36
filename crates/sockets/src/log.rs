//! Log lines: one raw write of a buffer on the stack to standard error as it was at start-up, never to what the
//! program opened there since, never allocating.

use crate::config::LogLevel;
use crate::state;
use bypath_sys::{fd, process};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicI32, AtomicU8, AtomicU64, Ordering::Relaxed};

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Off as u8);
/// Private duplicate of standard error.
static FD: AtomicI32 = AtomicI32::new(-1);
/// What descriptor 2 was at start-up: device and inode.
static STDERR: [AtomicU64; 2] = [const { AtomicU64::new(u64::MAX) }; 2];

/// Sets the level. Where lines are to be expected descriptor 2 is duplicated now, else at the first line, if it is
/// still the same.
pub fn init(level: LogLevel) {
    LEVEL.store(level as u8, Relaxed);
    if let Ok((device, inode)) = fd::identity(2) {
        STDERR[0].store(device, Relaxed);
        STDERR[1].store(inode, Relaxed);
    }
    if level >= LogLevel::Info {
        FD.store(duplicate(), Relaxed);
    }
}

/// Lines are to be expected later: the program may have put something else at descriptor 2 by then.
#[cold]
pub fn keep() {
    if FD.load(Relaxed) < 0 && wanted(LogLevel::Error) && !state::is_borrowed() {
        let kept = duplicate();
        if kept >= 0 && FD.compare_exchange(-1, kept, Relaxed, Relaxed).is_err() {
            fd::close(kept);
        }
    }
}

/// They may be to be expected, of a process that never comes to [`keep`] before it puts something else there (a server whose workers alone connect).
/// Not a pipe or a socket: whoever reads that waits for the end of all who have it.
pub fn keep_if_lasting() {
    if matches!(fd::kind(2), Ok(libc::S_IFREG | libc::S_IFCHR)) {
        keep();
    }
}

fn duplicate() -> i32 {
    let known = (STDERR[0].load(Relaxed), STDERR[1].load(Relaxed));
    if fd::identity(2) != Ok(known) {
        return -1;
    }
    fd::dup_high(2, state::floor()).unwrap_or(-1)
}

/// Whether lines of this level are wanted.
#[inline]
pub fn wanted(level: LogLevel) -> bool {
    level as u8 <= LEVEL.load(Relaxed)
}

/// The descriptor of the log, if open.
pub fn descriptor() -> i32 {
    FD.load(Relaxed)
}

struct Line {
    bytes: [u8; 400],
    len: usize,
}

impl Write for Line {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let room = self.bytes.len() - 1 - self.len;
        let take = s.len().min(room);
        self.bytes[self.len..self.len + take].copy_from_slice(&s.as_bytes()[..take]);
        self.len += take;
        Ok(())
    }
}

/// Writes one line, if lines of its level are wanted.
pub fn line(level: LogLevel, args: fmt::Arguments<'_>) {
    if wanted(level) {
        always(level, args);
    }
}

/// Writes one line, whatever the level.
#[cold]
pub fn always(level: LogLevel, args: fmt::Arguments<'_>) {
    // Where no file may grow a write raises a signal, and standard error may be a file.
    if state::is_sealed() || fd::are_files_closed() {
        return;
    }
    let mut fd = FD.load(Relaxed);
    if fd < 0 {
        if state::is_borrowed() {
            return;
        }
        fd = duplicate();
        if fd < 0 {
            return;
        }
        FD.store(fd, Relaxed);
    }
    let mut line = Line { bytes: [0; 400], len: 0 };
    let word = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warning",
        LogLevel::Debug => "debug",
        _ => "info",
    };
    let _ = write!(line, "bypath[{}]: {word}: {args}", process::pid());
    line.bytes[line.len] = b'\n';
    fd::write_once(fd, &line.bytes[..line.len + 1]);
}
