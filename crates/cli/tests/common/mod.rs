//! What several test files need: the built programs and a directory for files.
#![allow(dead_code, reason = "each test file uses a part")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// The `bypath` under test.
pub const BYPATH: &str = env!("CARGO_BIN_EXE_bypath");

/// Root of the workspace.
pub fn workspace() -> PathBuf {
    // At run time where there is one: two checkouts may share a target directory.
    let package = std::env::var_os("CARGO_MANIFEST_DIR").unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    Path::new(&package).join("../..").canonicalize().expect("workspace")
}

/// Records that a test, or a part of it, is skipped, and why.
pub fn skip(test: &str, why: &str) {
    eprintln!("skipped: {test}: {why}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let list = std::fs::OpenOptions::new().append(true).create(true).open(path);
        list.and_then(|mut list| list.write_all(format!("{test}\t{why}\n").as_bytes()))
            .expect("the list of skips");
    }
}

/// Builds the preload library, in its own cargo invocation as for a release, and gives its path.
pub fn preload_library() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        // CARGO_TARGET_DIR is inherited.
        let output = Command::new(env!("CARGO"))
            .args(["build", "-p", "bypath-preload", "--message-format=json"])
            .current_dir(workspace())
            .output()
            .expect("cargo starts");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text.lines()
            .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
            .filter(|m| m["reason"] == "compiler-artifact" && m["target"]["name"] == "bypath_preload")
            .find_map(|m| {
                let files = m["filenames"].as_array()?;
                files.iter().filter_map(|f| f.as_str()).find(|f| f.ends_with(".so")).map(PathBuf::from)
            })
            .expect("cargo names the library it built")
    })
}

/// `bypath` with arguments, in an environment without settings of the tester's own.
pub fn bypath<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = Command::new(BYPATH);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("BYPATH_") || name == "LD_PRELOAD" {
            command.env_remove(name);
        }
    }
    // The tester's own file is none of the tests' business.
    command.env("BYPATH_CONFIG", "none").args(args);
    command
}

/// `bypath run` with the built library, arguments and program.
pub fn run<S: AsRef<std::ffi::OsStr>>(args: impl IntoIterator<Item = S>) -> Command {
    let mut command = bypath(["run"]);
    command.env("BYPATH_LIBRARY", preload_library()).args(args);
    command
}

/// Standard output as text.
pub fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Standard error as text.
pub fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A directory that is removed with everything in it.
pub struct TempDir(PathBuf);

impl TempDir {
    /// A new, empty one.
    pub fn new() -> TempDir {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("bypath-cli-{}-{number}", std::process::id()));
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
