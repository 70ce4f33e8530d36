//! A folder for the sockets, pipes and counters of a bench, removed at its end.

use std::cell::Cell;
use std::path::{Path, PathBuf};

/// The folder.
pub struct Scratch {
    path: PathBuf,
    next: Cell<u32>,
}

impl Scratch {
    /// Creates it in the folder for temporary files, readable by nobody else.
    pub fn new() -> std::io::Result<Scratch> {
        Scratch::with_mode(&std::env::temp_dir(), 0o700)
    }

    /// Creates it in `base`.
    pub fn with_mode(base: &Path, mode: u32) -> std::io::Result<Scratch> {
        use std::os::unix::fs::DirBuilderExt as _;
        for n in 0.. {
            let path = base.join(format!("bypath-bench-{}-{n}", std::process::id()));
            match std::fs::DirBuilder::new().mode(mode).create(&path) {
                Ok(()) => return Ok(Scratch { path, next: Cell::new(0) }),
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && n < 100 => {}
                Err(e) => return Err(std::io::Error::new(e.kind(), format!("{}: {e}", path.display()))),
            }
        }
        unreachable!("the loop returns")
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A name in it that was not given before.
    pub fn fresh(&self, what: &str) -> PathBuf {
        let n = self.next.get();
        self.next.set(n + 1);
        self.path.join(format!("{what}-{n}"))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}
