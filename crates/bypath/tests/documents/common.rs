//! Where things are, and what a test needs.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

/// Root of the workspace.
pub fn workspace() -> PathBuf {
    // At run time where there is one: two checkouts may share a target directory.
    let here = env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&here).join("../..").canonicalize().expect("workspace")
}

/// Says that a test did not run, and why.
pub fn skip(name: &str, reason: &str) {
    use std::io::Write;
    println!("skipped: {name}: {reason}");
    if let Some(path) = env::var_os("BYPATH_TEST_SKIPS") {
        let mut file =
            fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        // One write of one line: tests append at the same time.
        file.write_all(format!("{name}\t{reason}\n").as_bytes()).expect("the list of skips");
    }
}

/// Whether there are these programs, namespaces, and pairs of interfaces in them; says which test is skipped for want of
/// one.
pub fn need(test: &str, programs: &[&str]) -> bool {
    if let Some(program) = programs.iter().find(|p| Command::new(p).arg("--version").output().is_err()) {
        skip(test, &format!("{program} is not installed"));
        return false;
    }
    let mut probe = Command::new("unshare");
    probe.args(["--user", "--net", "--map-root-user", "ip", "link", "add", "left", "type", "veth"]);
    let there = probe.output().is_ok_and(|o| o.status.success());
    if !there {
        skip(test, "no user and network namespaces, no veth, or no `unshare` and `ip`");
    }
    there
}

/// A command, or a shell that reads what it is to do, in `place`. What it builds in Rust stays below the target directory.
pub fn shell(arguments: &[&str], place: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.args(["--kill-after=10", "300"]).args(arguments).current_dir(place);
    command
        // What was downloaded for the workspace is enough; what was compiled stays for the next time.
        .env("CARGO_NET_OFFLINE", "true")
        .env("CARGO_TERM_QUIET", "true")
        .env("CARGO_PROFILE_DEV_DEBUG", "0")
        .env("CARGO_TARGET_DIR", Path::new(env!("CARGO_TARGET_TMPDIR")).join("documents"))
        .env_remove("CARGO_MANIFEST_DIR")
        .env_remove("PKG_CONFIG_PATH")
        .env_remove("LD_LIBRARY_PATH");
    command
}

/// The workspace's own target directory, where the C library is built.
pub fn target() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().expect("a target directory")
}

/// Standard output and standard error.
pub fn texts(output: &Output) -> (String, String) {
    let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
    (text(&output.stdout), text(&output.stderr))
}

/// A directory with a link `bypath` to the workspace, removed with everything in it. It is at the same place in every run, so that
/// cargo knows again what it has compiled there; a second run at the same time waits.
pub struct Place {
    path: PathBuf,
    /// Locked as long as it is open.
    _lock: fs::File,
}

impl Place {
    /// An empty one. It is not in the target directory, where cargo would take it for a part of the workspace.
    pub fn new(name: &str) -> Place {
        let lock = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.lock"));
        let lock = fs::File::create(lock).expect("a file to be locked");
        lock.lock().expect("a lock");
        let mut whose = DefaultHasher::new();
        target().hash(&mut whose);
        let path = env::temp_dir().join(format!("bypath-{name}-{:016x}", whose.finish()));
        // What a run left behind that was killed.
        if path.exists() {
            fs::remove_dir_all(&path).expect("removed");
        }
        fs::create_dir(&path).expect("a new directory");
        std::os::unix::fs::symlink(workspace(), path.join("bypath")).expect("a link to the repository");
        Place { path, _lock: lock }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes a file.
    pub fn write(&self, name: &str, text: &str) {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().expect("a directory")).expect("its directory");
        fs::write(path, text).expect("a file");
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}
