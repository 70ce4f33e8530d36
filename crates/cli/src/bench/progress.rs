//! One line on standard error that says how far the bench is; nothing if nobody looks at it.
//!
//! Our own: a crate for it would have every `bypath run` load the mathematics library.

use std::io::{IsTerminal as _, Write as _};

/// The line. Dropping it clears it.
pub struct Progress {
    total: usize,
    done: usize,
    shown: bool,
}

impl Progress {
    /// For `total` steps.
    pub fn new(total: usize) -> Progress {
        Progress { total, done: 0, shown: std::io::stderr().is_terminal() }
    }

    /// Begins the next step.
    pub fn step(&mut self, title: &str) {
        self.done += 1;
        if self.shown {
            // Back to the start of the line, which is erased to its end after the text.
            let _ = write!(std::io::stderr(), "\r{}/{} {title}\x1b[K", self.done, self.total);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown {
            let _ = write!(std::io::stderr(), "\r\x1b[K");
        }
    }
}
