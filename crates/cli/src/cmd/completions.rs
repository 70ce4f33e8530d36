//! `bypath completions`.

use crate::args::{Cli, Target};
use crate::output::{self, Outcome};
use clap::CommandFactory;
use clap_complete::Shell;
use std::process::ExitCode;

/// Arguments of `bypath completions`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  bypath completions bash > ~/.local/share/bash-completion/completions/bypath"
)]
pub struct Args {
    /// The shell
    shell: Shell,
}

/// Prints the script.
pub fn run(args: Args) -> Outcome {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "bypath", &mut script);
    output::write_to(&Target::Stdout, &script)?;
    Ok(ExitCode::SUCCESS)
}
