//! How programs are started: found, pinned, bound to the life of the bench, and as another user where root is refused.

use crate::bench::child::{Child, Ended};
use crate::bench::context::{Context, Trouble};
use crate::bench::scratch::Scratch;
use crate::library::{self, Library};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// A program and the Debian package that has it.
pub type Program = (&'static str, &'static str);

/// The user of programs that refuse to run as root: nobody.
const UNPRIVILEGED: u32 = 65534;
const SETPRIV: Program = ("setpriv", "util-linux");
/// What is made ready for a server may take this long.
const PREPARATION: Duration = Duration::from_secs(60);

/// Starts the programs of one server and its clients.
#[derive(Default)]
pub struct Launcher {
    /// Where Bypath counts; `None` = without Bypath.
    stats: Option<PathBuf>,
    user: Option<OtherUser>,
}

/// Another user than root, with copies of what it may not be able to read.
struct OtherUser {
    setpriv: PathBuf,
    folder: Scratch,
    exe: PathBuf,
    library: Option<PathBuf>,
}

impl OtherUser {
    fn new(context: &Context) -> Result<OtherUser, Trouble> {
        let setpriv = find(SETPRIV)?;
        let fail = |what: &Path, e: std::io::Error| Trouble::Failed(format!("{}: {e}", what.display()));
        let temporary = std::env::temp_dir();
        let folder = Scratch::with_mode(&temporary, 0o755).map_err(|e| fail(&temporary, e))?;
        // Whatever the mask of new files is.
        let open = |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o755));
        open(folder.path()).map_err(|e| fail(folder.path(), e))?;
        let copy = |from: &Path| {
            let to = folder.path().join(from.file_name().expect("a file"));
            fs::copy(from, &to).and_then(|_| open(&to)).map_err(|e| fail(from, e))?;
            Ok::<PathBuf, Trouble>(to)
        };
        let exe = copy(&context.exe)?;
        let named = std::env::var_os(library::VARIABLE);
        // What is wrong with it `bypath run` says.
        let found = Library::find(None, named.as_deref(), &context.exe).ok();
        let library = found.map(|l| copy(&l.path)).transpose()?;
        chown(folder.path(), Some(UNPRIVILEGED), Some(UNPRIVILEGED)).map_err(|e| fail(folder.path(), e))?;
        Ok(OtherUser { setpriv, folder, exe, library })
    }

    /// The words before the program. The kernel forgets who ends with the bench when the user changes.
    fn words(&self, end: &str) -> Vec<OsString> {
        let mut words = vec![self.setpriv.clone().into_os_string()];
        words.extend([format!("--reuid={UNPRIVILEGED}"), format!("--regid={UNPRIVILEGED}")].map(Into::into));
        words.extend(["--clear-groups", "--pdeathsig", end, "--"].map(Into::into));
        words
    }
}

impl Launcher {
    /// For programs under Bypath or not, that may run as root or not.
    pub fn new(context: &Context, bypath: bool, refuses_root: bool) -> Result<Launcher, Trouble> {
        let other = refuses_root && rustix::process::geteuid().is_root();
        let user = if other { Some(OtherUser::new(context)?) } else { None };
        let mut launcher = Launcher { stats: None, user };
        launcher.stats = bypath.then(|| launcher.fresh(context, "stats"));
        Ok(launcher)
    }

    /// A path that its programs can use.
    pub fn fresh(&self, context: &Context, what: &str) -> PathBuf {
        self.user.as_ref().map_or(&context.scratch, |u| &u.folder).fresh(what)
    }

    /// Where Bypath counts.
    pub fn stats(&self) -> Option<&Path> {
        self.stats.as_deref()
    }

    /// The command for a program on the core of the server (0) or client (1).
    pub fn command(&self, context: &Context, core: usize, program: &Path, args: &[String]) -> Command {
        self.any_command(context, core, self.stats(), program, args)
    }

    fn any_command(
        &self,
        context: &Context,
        core: usize,
        stats: Option<&Path>,
        program: &Path,
        args: &[String],
    ) -> Command {
        let mut command = Command::new(&context.exe);
        command.args(["bench", "peer", "--talk", "launch"]);
        if let Some(core) = context.core(core) {
            command.args(["--cpu", &core.to_string()]);
        }
        command.arg("--");
        let mut exe = context.exe.as_path();
        if let Some(user) = &self.user {
            // A server that is killed leaves things behind.
            command.args(user.words(if core == 0 { "INT" } else { "KILL" }));
            command.current_dir(user.folder.path());
            command.envs(user.library.as_ref().map(|file| (library::VARIABLE, file)));
            exe = &user.exe;
        }
        if let Some(stats) = stats {
            let run = context.under_copy(exe, Some(stats));
            command.arg(run.get_program()).args(run.get_args());
        }
        command.arg(program).args(args);
        command
    }

    /// Runs a program that makes something ready, without Bypath, to its successful end.
    pub fn prepare(&self, context: &Context, program: &Path, args: &[String]) -> Result<Ended, Trouble> {
        let mut command = self.any_command(context, 1, None, program, args);
        // initdb looks through all time zones otherwise.
        command.env("TZ", "UTC").env("LC_ALL", "C");
        let name = program.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        Ok(Child::spawn(command, &name)?.finish(Instant::now() + PREPARATION)?)
    }
}

/// Where an installed program is. PostgreSQL's programs are taken from behind Debian's wrappers; servers may be where
/// an ordinary user's PATH does not lead.
pub fn find((program, package): Program) -> Result<PathBuf, Trouble> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let postgres = versions.map(|v| v.path().join("bin").join(program)).filter(|p| p.is_file());
    // The highest version, by number.
    let number = |p: &PathBuf| -> Option<u32> { p.ancestors().nth(2)?.file_name()?.to_str()?.parse().ok() };
    if let Some(path) = postgres.max_by_key(number) {
        return Ok(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let server = (program == "sshd").then(|| PathBuf::from("/usr/sbin"));
    let mut files = std::env::split_paths(&path).chain(server).map(|folder| folder.join(program));
    files
        .find(|p| p.is_file())
        .ok_or_else(|| Trouble::Skipped(format!("{program} is not installed; Debian package: {package}")))
}
