//! The two things under test: the `bypath` command and the preload library.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The `bypath` command of this build.
pub fn bypath() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_bypath"))
}

/// The preload library. `cargo test` does not build a cdylib that nothing can depend on, so this runs
/// `cargo build` once per test process.
/// `BYPATH_TEST_LIBRARY` names another one instead.
pub fn preload_library() -> &'static Path {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        if let Some(path) = std::env::var_os("BYPATH_TEST_LIBRARY") {
            return PathBuf::from(path);
        }
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--package", "bypath-preload", "--message-format", "json"]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        cargo.current_dir(env!("CARGO_MANIFEST_DIR")).stdin(Stdio::null()).stderr(Stdio::inherit());
        let output = cargo.output().expect("cargo runs");
        assert!(output.status.success(), "building the preload library: {}", output.status);
        artifact(&String::from_utf8_lossy(&output.stdout)).expect("cargo names the library it built")
    })
}

/// The shared library in cargo's stream of messages.
fn artifact(messages: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|m| m["reason"] == "compiler-artifact" && m["target"]["name"] == "bypath_preload")
        .flat_map(|m| m["filenames"].as_array().cloned().unwrap_or_default())
        .filter_map(|f| f.as_str().map(PathBuf::from))
        .find(|f| f.extension().is_some_and(|e| e == "so"))
}
