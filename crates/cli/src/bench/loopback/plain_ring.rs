//! The same ring written in plain C, compiled here: our own must be as fast.

use super::pair::{Both, Options};
use crate::bench::c_program;
use crate::bench::child::Child;
use crate::bench::context::{Context, Trouble};
use crate::bench::proof::Proof;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = include_str!("../ring.c");

/// Compiles it; the error says why there is none.
pub fn build(context: &Context) -> Result<PathBuf, String> {
    c_program::compile(context, "ring", SOURCE)
}

/// As [`super::pair::converse`], for two copies of the C program.
pub fn converse(context: &Context, program: &Path, options: &Options) -> Result<Both, Trouble> {
    let deadline = context.deadline(options.seconds);
    // Memory only: a file system that writes to a disk would disturb.
    let folder = if Path::new("/dev/shm").is_dir() { Path::new("/dev/shm") } else { context.scratch.path() };
    let file = folder.join(format!("bypath-bench-{}-ring", std::process::id()));
    let _ = std::fs::remove_file(&file);
    let start = |which: usize| {
        let mut command = Command::new(program);
        command.arg(&file).arg(["serve", "drive"][which]).arg(options.talk);
        command.args([options.size.to_string(), options.seconds.to_string()]);
        command.arg(context.core(which).map_or("-1".into(), |c| c.to_string()));
        Child::spawn(command, ["C ring server", "C ring client"][which])
    };
    let outcome = (|| {
        let mut server = start(0)?;
        server.ready(deadline)?;
        let mut driver = start(1)?;
        let driver_result = driver.result(deadline)?;
        Ok(Both { server: server.result(deadline)?, driver: driver_result, proof: Proof::default() })
    })();
    let _ = std::fs::remove_file(&file);
    outcome.map_err(Trouble::Failed)
}
