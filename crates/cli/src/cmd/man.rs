//! `bypath man`.

use crate::args::{Cli, Target};
use crate::output::{self, Failure, Outcome};
use crate::written;
use clap::{Command, CommandFactory, ValueHint};
use clap_mangen::Man;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Arguments of `bypath man`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  bypath man | man -l -\n  bypath man /usr/local/share/man/man1")]
pub struct Args {
    /// Write a page per subcommand (bypath.1, bypath-run.1, ...) to this existing directory
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    directory: Option<PathBuf>,
}

/// Prints the main page, or writes all pages.
pub fn run(args: Args) -> Outcome {
    // A page of its own for `bypath help` would say nothing.
    let command = Cli::command().disable_help_subcommand(true);
    match args.directory {
        None => {
            let mut page = Vec::new();
            Man::new(command)
                .render(&mut page)
                .map_err(|e| Failure::new(1, format_args!("cannot make the page: {e}")))?;
            output::write_to(&Target::Stdout, &page)?;
        }
        Some(directory) => {
            write_pages(command, &directory).map_err(|e| {
                Failure::new(1, format_args!("cannot write man pages to {}: {e}", directory.display()))
            })?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// A page of the command, and of each one within it.
fn write_pages(mut command: Command, directory: &Path) -> io::Result<()> {
    command.build();
    for within in command.get_subcommands().filter(|within| !within.is_hide_set()) {
        write_pages(within.clone().disable_help_subcommand(true), directory)?;
    }
    let page = Man::new(command);
    let file = directory.join(page.get_filename());
    page.render(&mut written::create(&file, written::USUAL, || false)?)
}
