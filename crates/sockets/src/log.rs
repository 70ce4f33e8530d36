//! Log lines: one raw write of a buffer on the stack to a private duplicate of standard error, never through the
//! program's descriptors, never allocating.

use crate::config::LogLevel;
use crate::state;
use bypath_sys::{fd, process};
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering::Relaxed};

static LEVEL: AtomicU8 = AtomicU8::new(LogLevel::Off as u8);
static FD: AtomicI32 = AtomicI32::new(-1);

/// Sets the level. The descriptor is duplicated at the first line.
pub fn init(level: LogLevel) {
    LEVEL.store(level as u8, Relaxed);
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

/// Writes one line.
pub fn line(level: LogLevel, args: fmt::Arguments<'_>) {
    if !wanted(level) {
        return;
    }
    let mut fd = FD.load(Relaxed);
    if fd < 0 {
        fd = fd::dup_high(2, state::floor()).unwrap_or(-1);
        if fd < 0 {
            return;
        }
        FD.store(fd, Relaxed);
    }
    let mut line = Line { bytes: [0; 400], len: 0 };
    let word = match level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warning",
        _ => "info",
    };
    let _ = write!(line, "bypath[{}]: {word}: {args}", process::pid());
    line.bytes[line.len] = b'\n';
    fd::write_once(fd, &line.bytes[..line.len + 1]);
}
