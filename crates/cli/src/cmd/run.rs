//! `bypath run`: becomes the program, with the library preloaded.
//!
//! The process is replaced, so pid, exit status, signals and terminal are the program's own. What can be wrong
//! is found before that: settings, library, statistics file, program.

mod rendezvous;
mod services;

use crate::args::Settings;
use crate::config::{self, SettingsError, Source};
use crate::library::{self, Library, LibraryError};
use crate::output::{self, Failure, Outcome};
use crate::program::{self, Identity, Obstacle, ProgramError};
use crate::written;
use bypath_shm::stats::{RECORD_SIZE, STATS_MAGIC};
use bypath_sockets::config::{Config, OnUnsupported, SETTINGS, SMALLEST_DESCRIPTOR_LIMIT};
use bypath_sockets::rules::text;
use bypath_sockets::service::place;
use clap::ValueHint;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thiserror::Error;

/// Arguments of `bypath run`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  \
    bypath run -- redis-server --port 6379\n  \
    bypath run --upgrade=eager --stats counters -- ./server\n  \
    bypath run --profile latency -- python3 -m http.server\n  \
    bypath run --netstack -- curl http://10.9.0.1/\n\n\
    Every setting can also be given in the environment (--ring-size as BYPATH_RING_SIZE) and in the\n\
    configuration file; the flag wins, then the environment. `bypath config show --effective` tells.\n\n\
    Exit status: that of PROGRAM, or 2 for a wrong flag, BYPATH_* value or configuration file, 125 if bypath itself fails,\n\
    126 if PROGRAM cannot be executed, 127 if it cannot be found.")]
pub struct Args {
    /// Settings of the library.
    #[command(flatten)]
    pub settings: Settings,

    /// Where more settings, and rules, are read.
    #[command(flatten)]
    pub source: Source,

    /// The preload library; by default looked for beside bypath and in ../lib/bypath
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        long_help = "The preload library; by default looked for beside bypath and in ../lib/bypath\n\n\
                     [environment: BYPATH_LIBRARY]"
    )]
    pub library: Option<PathBuf>,

    /// The program and its arguments
    #[arg(
        required = true,
        num_args = 1..,
        trailing_var_arg = true,
        value_names = ["PROGRAM", "ARGS"],
        value_hint = ValueHint::CommandWithArguments
    )]
    pub program: Vec<OsString>,
}

/// Why the program was not started.
#[derive(Debug, Error)]
enum RunError {
    #[error("{0}")]
    Settings(#[from] SettingsError),
    #[error("{0}")]
    Library(#[from] LibraryError),
    #[error(
        "cannot tell where bypath itself is: {0} (is /proc mounted? name the library with --library FILE)"
    )]
    Executable(io::Error),
    #[error("--stats {path}: {reason}")]
    Stats { path: String, reason: String },
    #[error("--rendezvous {0}")]
    Rendezvous(String),
    #[error("{0}")]
    Program(#[from] ProgramError),
    #[error("{file} cannot run under Bypath: {obstacle} (--on-unsupported=fallback runs it without)")]
    Unsupported { file: String, obstacle: Obstacle },
    #[error("{0}")]
    Netstack(String),
    #[error("cannot execute {name}: {reason}")]
    Exec { name: String, reason: String, code: u8 },
}

impl RunError {
    /// As `env` and `timeout`: 125 is our own failure, 126 and 127 are about the program; 2 is wrong usage.
    fn exit_code(&self) -> u8 {
        match self {
            RunError::Settings(_) => 2,
            RunError::Program(e) => e.exit_code(),
            RunError::Exec { code, .. } => *code,
            _ => 125,
        }
    }
}

/// Starts the program; returns only if that failed.
pub fn run(args: Args) -> Outcome {
    let Err(error) = start(&args);
    Err(Failure::new(error.exit_code(), error))
}

fn start(args: &Args) -> Result<std::convert::Infallible, RunError> {
    let effective = config::effective(&args.source, &args.settings, |name| std::env::var_os(name))?;
    let mut variables = effective.variables()?;
    warn_about_unknown_variables();
    let stats = &effective.value("stats").text;
    if !stats.is_empty() {
        let path = statistics_file(Path::new(stats))?;
        // A directory of many letters may have been put in front.
        Config::default().set("stats", &path).map_err(SettingsError::from)?;
        variables.retain(|(name, _)| *name != "BYPATH_STATS");
        variables.push(("BYPATH_STATS", Some(path.into())));
    }

    let folder = effective.config.rendezvous.as_bytes();
    if !folder.is_empty() {
        rendezvous::prepare(Path::new(OsStr::from_bytes(folder))).map_err(RunError::Rendezvous)?;
    }

    let library = find_library(args.library.as_deref())?;
    let search_path = std::env::var_os("PATH");
    let (name, arguments) = args.program.split_first().expect("clap requires a program");
    let file = program::find(name, search_path.as_deref()).map_err(|error| match error {
        ProgramError::NotFound { name, .. } if names_no_service(&args.settings) => ProgramError::NotFound {
            suggestion: format!("; if that is a service, write --netstack={name}"),
            name,
        },
        other => other,
    })?;

    services::check(&effective, &file).map_err(RunError::Netstack)?;

    let mut environment: Environment = std::env::vars_os().collect();
    for (name, value) in variables {
        match value {
            Some(value) => set_variable(&mut environment, name, value),
            None => environment.retain(|(n, _)| n != name),
        }
    }
    let obstacle = Identity::own().ok().and_then(|me| program::obstacle(&file, &library.elf, me));
    if let Some((about, obstacle)) = &obstacle {
        let file = about.display().to_string();
        match effective.config.on_unsupported {
            // Whoever asks for another stack is told that it is the kernel's.
            OnUnsupported::Fallback if effective.config.netstack.is_some() => output::message(format_args!(
                "warning: {file} runs without Bypath, on the kernel's sockets: {obstacle} (--on-unsupported=error refuses)"
            )),
            OnUnsupported::Fallback => {}
            OnUnsupported::Warn => {
                output::message(format_args!("warning: {file} runs without Bypath: {obstacle}"))
            }
            OnUnsupported::Error | OnUnsupported::Abort => {
                return Err(RunError::Unsupported { file, obstacle: obstacle.clone() });
            }
        }
    }
    let (limit, _) = bypath_sys::fd::limits();
    if obstacle.is_none() && limit < SMALLEST_DESCRIPTOR_LIMIT {
        output::message(format_args!(
            "warning: no connection will be upgraded (no-descriptors): a limit of {limit} descriptors (ulimit -n) leaves \
             none to Bypath, which begins at {SMALLEST_DESCRIPTOR_LIMIT}"
        ));
    }
    if obstacle.is_none_or(|(_, o)| o.tolerates_preload()) {
        let existing = std::env::var_os("LD_PRELOAD");
        let list = library::preload_list(&library.path, existing.as_deref());
        set_variable(&mut environment, "LD_PRELOAD", list);
    }
    Err(exec_error(name, &file, &exec(name, &file, arguments, &environment)))
}

/// Whether `--netstack` is given without a name: the word behind it is the program.
fn names_no_service(settings: &Settings) -> bool {
    SETTINGS.iter().any(|s| s.flag == "netstack" && settings.value(s) == Some("default"))
}

/// As `execvp(3)`: a file that the kernel cannot execute is a shell script. Returns only on failure.
fn exec(
    name: &OsStr,
    file: &Path,
    arguments: &[OsString],
    environment: &[(OsString, OsString)],
) -> io::Error {
    let environment: Vec<CString> =
        environment.iter().map(|(name, value)| c_string(&[name, OsStr::new("="), value])).collect();
    let arguments: Vec<CString> = arguments.iter().map(|a| c_string(&[a])).collect();
    let path = c_string(&[file.as_os_str()]);
    let become_program = |file: &CString, first: Vec<CString>| {
        let Err(e) = bypath_sys::exec::exec(file, &[first, arguments.clone()].concat(), &environment);
        e
    };
    let mut error = become_program(&path, vec![c_string(&[name])]);
    if error == bypath_sys::Errno::NOEXEC {
        error = become_program(&c"/bin/sh".to_owned(), vec![c"/bin/sh".to_owned(), path]);
    }
    error.into()
}

/// The parts in one. They come from the system's own C strings, so there is no NUL in them.
fn c_string(parts: &[&OsStr]) -> CString {
    CString::new(parts.iter().map(|p| p.as_bytes()).collect::<Vec<_>>().concat()).expect("no NUL inside")
}

/// The program's environment in the caller's order.
type Environment = Vec<(OsString, OsString)>;

fn set_variable(environment: &mut Environment, name: &str, value: OsString) {
    match environment.iter_mut().find(|(n, _)| n == name) {
        Some((_, old)) => *old = value,
        None => environment.push((name.into(), value)),
    }
}

/// A misspelt variable would silently do nothing.
fn warn_about_unknown_variables() {
    let names = || {
        SETTINGS.iter().map(|s| s.variable).chain([
            library::VARIABLE,
            config::VARIABLE,
            text::VARIABLE,
            place::VARIABLE,
        ])
    };
    for (name, _) in std::env::vars_os() {
        let Some(name) = name.to_str().filter(|n| n.starts_with("BYPATH_")) else { continue };
        if !names().any(|known| known == name)
            && let Some((_, known)) = names()
                .map(|known| (strsim::damerau_levenshtein(name, known), known))
                .filter(|(distance, _)| *distance <= 2)
                .min()
        {
            output::message(format_args!("warning: {name} is not a setting; did you mean {known}?"));
        }
    }
}

fn find_library(flag: Option<&Path>) -> Result<Library, RunError> {
    let variable = std::env::var_os(library::VARIABLE);
    let executable = match (flag, &variable) {
        (None, None) => std::env::current_exe().map_err(RunError::Executable)?,
        _ => std::env::current_exe().unwrap_or_default(),
    };
    Ok(Library::find(flag, variable.as_deref(), &executable)?)
}

/// Makes the path absolute (the program may change its directory), creates the file if there is none, and
/// refuses one that holds something else: records would be appended to it.
fn statistics_file(path: &Path) -> Result<String, RunError> {
    let shown = path.display().to_string();
    let wrong = |reason: String| RunError::Stats { path: shown.clone(), reason };
    let path = std::path::absolute(path).map_err(|e| wrong(e.to_string()))?;
    let is_other = |m: &std::fs::Metadata| !m.is_file();
    let no_file = || wrong("not a regular file; name a file, it will be created".to_owned());
    if std::fs::symlink_metadata(&path).is_ok_and(|m| is_other(&m)) {
        return Err(no_file());
    }
    // The library opens it by the same path, in each process, and follows no links.
    let unwritable =
        |e: io::Error| wrong(format!("cannot be written: {e}; name a file in a directory of yours"));
    let (file, path) = written::append_to(&path).map_err(unwritable)?;
    let metadata = file.metadata().map_err(|e| wrong(e.to_string()))?;
    if is_other(&metadata) {
        return Err(no_file());
    }
    if ![0, bypath_sys::process::euid()].contains(&metadata.uid()) {
        let owner = metadata.uid();
        return Err(wrong(format!(
            "belongs to user {owner}, who could cut it while it is used; name a file in a directory of yours"
        )));
    }
    let length = whole_length(&file, metadata.len()).map_err(|e| wrong(e.to_string()))?;
    let mut magic = [0; 8];
    let begins_well = (&file).read_exact(&mut magic).is_ok()
        // A record whose writer was killed early has no magic number.
        && (magic == STATS_MAGIC.to_le_bytes() || magic == [0; 8]);
    if length > 0 && (!begins_well || length % RECORD_SIZE as u64 != 0) {
        return Err(wrong(
            "holds something other than statistics and is left alone; name another file".to_owned(),
        ));
    }
    path.into_string().map_err(|_| SettingsError::NotUtf8("BYPATH_STATS").into())
}

/// Octets of the file once what is being appended to it is there: of a record that spans pages the first ones may be seen alone.
fn whole_length(file: &File, mut length: u64) -> io::Result<u64> {
    const LOOKS: u32 = 50;
    for _ in 0..LOOKS {
        if length.is_multiple_of(RECORD_SIZE as u64) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
        length = file.metadata()?.len();
    }
    Ok(length)
}

fn exec_error(name: &OsStr, file: &Path, error: &io::Error) -> RunError {
    let missing = error.kind() == io::ErrorKind::NotFound;
    // The file is there; so what is missing is what it names.
    let wants = program::interpreter(file)
        .or_else(|| program::elf_of(file).ok()??.interpreter)
        .filter(|wanted| missing && !wanted.exists());
    let reason = match wants {
        Some(wanted) => format!("its interpreter {} does not exist", wanted.display()),
        None => error.to_string(),
    };
    let name = output::printable(&name.to_string_lossy());
    RunError::Exec { name, reason, code: if missing { 127 } else { 126 } }
}
