//! Becomes another program: pinned, and killed with the bench (both survive exec).

use super::{PeerArgs, PeerResult};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

pub fn run(args: &PeerArgs) -> io::Result<PeerResult> {
    let (program, rest) = args.program.split_first().ok_or_else(|| io::Error::other("no program given"))?;
    Err(Command::new(program).args(rest).exec())
}
