//! The library, installed for the tests, and what runs programs against it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// This crate's directory.
pub fn crate_root() -> PathBuf {
    // At run time where there is one: two checkouts may share a target directory.
    std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into()).into()
}

/// Root of the workspace.
pub fn workspace() -> PathBuf {
    crate_root().join("../..").canonicalize().expect("workspace")
}

/// Runs a command to its end.
pub fn output(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"))
}

/// Runs a command that must succeed, and returns what it printed.
pub fn pass(command: &mut Command) -> String {
    let output = output(command);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}{errors}", output.status);
    text
}

/// Whether a program is there.
pub fn have(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok()
}

/// Says that a test did not run, and why.
pub fn skip(name: &str, reason: &str) {
    use std::io::Write;
    println!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        writeln!(file, "{name}\t{reason}").expect("the list of skips");
    }
}

/// Where cargo put libbypath.so and libbypath.a, in an invocation of its own, as for a release.
pub fn libraries() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let text = pass(
            Command::new(env!("CARGO"))
                .args(["build", "-p", "bypath-capi", "--message-format=json"])
                .current_dir(workspace()),
        );
        let artifact = text
            .lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|m| m["reason"] == "compiler-artifact")
            .filter(|m| {
                m["package_id"]
                    .as_str()
                    .is_some_and(|p| p.contains("bypath-capi") || p.contains("crates/capi"))
            })
            .find_map(|m| {
                let files = m["filenames"].as_array()?;
                files
                    .iter()
                    .filter_map(|f| f.as_str())
                    .find(|f| f.ends_with("libbypath.so"))
                    .map(PathBuf::from)
            })
            .expect("cargo names the library it built");
        artifact.parent().expect("a directory").to_owned()
    })
}

/// Runs `make` with a prefix, for the tests' build of the libraries.
pub fn make(target: &str, prefix: &Path) -> String {
    let mut command = Command::new("make");
    command.args(["--no-print-directory", target]).current_dir(workspace());
    command.arg(format!("PREFIX={}", prefix.display())).arg(format!("c_libraries={}", libraries().display()));
    pass(&mut command)
}

/// A prefix with header, libraries, pkg-config and CMake files, made by the Makefile.
pub fn installed() -> TempDir {
    let prefix = TempDir::new();
    make("install-c", prefix.path());
    prefix
}

/// A directory that is removed with everything in it.
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new, empty one.
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bypath-capi-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).expect("a new directory");
        TempDir(path)
    }

    /// A path in it.
    pub fn join(&self, name: impl AsRef<Path>) -> PathBuf {
        self.0.join(name)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
