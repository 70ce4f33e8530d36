//! The programs under test: the library, built with crash points and forced switching, and small C programs,
//! compiled by the system's compiler.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// Whether bytes must have gone through rings where both ends are ours and the traffic is worth it.
pub const REQUIRE_RING: bool = true;

/// Where the tests of this target directory keep what they build.
pub fn workshop() -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("harness");
    std::fs::create_dir_all(&dir).expect("create the tests' directory");
    dir
}

/// The preload library with feature `faults`, built by its own cargo invocation (so that features of other
/// crates do not reach it) into its own target directory (so that it does not replace the ordinary one).
/// `BYPATH_TEST_LIBRARY` names another one instead, for instance one that is broken on purpose.
pub fn library() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        if let Some(path) = std::env::var_os("BYPATH_TEST_LIBRARY") {
            return PathBuf::from(path);
        }
        let output = Command::new(env!("CARGO"))
            .args(["build", "-p", "bypath-preload", "--features", "faults", "--message-format=json"])
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
            .env("CARGO_TARGET_DIR", workshop().join("faults"))
            .env_remove("RUSTFLAGS")
            .output()
            .expect("run cargo");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success(),
            "building bypath-preload failed:\n{text}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
        // One JSON object a line; the artifact's file name is the only string that ends like this.
        text.split('"')
            .find(|word| word.ends_with("/libbypath_preload.so"))
            .map(PathBuf::from)
            .expect("cargo names the library it built")
    })
}

/// Compiles the C files `sources` of `tests/agent` into `name`.
pub fn compile(name: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
    compile_with(name, sources, flags, &[])
}

/// The same with `libraries` (`-lNAME`), which must stand behind the sources.
pub fn compile_with(name: &str, sources: &[&str], flags: &[&str], libraries: &[&str]) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent");
    let to = workshop().join(name);
    // Under another name first: another test binary may be executing the old one.
    let fresh = workshop().join(format!("{name}.{}", std::process::id()));
    let output = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
        .args(["-O2", "-Wall", "-Wextra", "-Wno-unused-result", "-Wno-deprecated-declarations", "-pthread"])
        .args(flags)
        .args(sources.iter().map(|s| from.join(s)))
        .args(libraries)
        .arg("-o")
        .arg(&fresh)
        .output()
        .expect("run the C compiler (cc)");
    assert!(output.status.success(), "compiling {name}: {}", String::from_utf8_lossy(&output.stderr));
    std::fs::rename(&fresh, &to).expect("put the program in its place");
    to
}
