//! The library, installed for the tests, and what runs programs against it.

use bypath_sys::bpf;
use bypath_sys::netns::{self, Namespace};
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

/// Says that a test did not run, and why.
pub fn skip(name: &str, reason: &str) {
    use std::io::Write;
    println!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        // One write of one line: tests append at the same time.
        file.write_all(format!("{name}\t{reason}\n").as_bytes()).expect("the list of skips");
    }
}

/// Builds the libraries in an invocation of its own, and returns where cargo put libbypath.so and libbypath.a.
fn build(arguments: &[&str]) -> PathBuf {
    let mut command = Command::new(env!("CARGO"));
    command.args(["build", "--locked", "-p", "bypath-capi", "--message-format=json"]).args(arguments);
    let text = pass(command.current_dir(workspace()));
    let artifact = text
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|m| m["reason"] == "compiler-artifact")
        .filter(|m| m["manifest_path"].as_str().is_some_and(|p| p.ends_with("crates/capi/Cargo.toml")))
        .flat_map(|m| m["filenames"].as_array().cloned().unwrap_or_default())
        .find_map(|f| f.as_str().filter(|f| f.ends_with("libbypath.so")).map(PathBuf::from))
        .expect("cargo names the library it built");
    artifact.parent().expect("a directory").to_owned()
}

/// Where the libraries are, built as for a release.
pub fn libraries() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| build(&["--profile", "capi"]))
}

/// Where the libraries are that panic when asked to: beside the others, so that none of them is ever taken for those.
pub fn faulty_libraries() -> PathBuf {
    let target = libraries().parent().expect("a target directory").join("capi-faults");
    build(&["--features", "faults", "--target-dir", target.to_str().expect("UTF-8")])
}

/// Runs `make` with `DESTDIR` and a prefix, for the libraries that were built already.
pub fn make(target: &str, destination: &Path, prefix: &str) {
    let mut command = Command::new("make");
    command.args(["--no-print-directory", target]).current_dir(workspace());
    command.env("CARGO_TARGET_DIR", libraries().parent().expect("a target directory"));
    command.arg(format!("DESTDIR={}", destination.display())).arg(format!("PREFIX={prefix}"));
    pass(&mut command);
}

/// A prefix with header, libraries, pkg-config and CMake files, made by the Makefile.
pub fn installed() -> TempDir {
    let prefix = TempDir::new();
    make("install-c", Path::new(""), prefix.path().to_str().expect("UTF-8"));
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

/// Compiler flags with which no warning passes.
const WARNINGS: [&str; 5] = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-g"];

/// A command that knows where the library was installed, and does not run for ever.
pub fn tool(program: impl AsRef<Path>, prefix: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("300").arg(program.as_ref());
    command.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig")).env("LD_LIBRARY_PATH", prefix.join("lib"));
    command
}

/// Compiles one source with the flags that pkg-config gives for `package`, and `more`, and nothing else.
pub fn compile(prefix: &Path, package: &str, source: &Path, to: &Path, more: &[&str]) {
    let flags = pass(tool("pkg-config", prefix).args(["--cflags", "--libs", package]));
    let cpp = source.extension().is_some_and(|e| e == "cpp");
    let mut command = Command::new(if cpp { "c++" } else { "cc" });
    command.arg(if cpp { "-std=c++17" } else { "-std=c11" });
    command.args(WARNINGS).args(more).arg(source).arg("-o").arg(to).args(flags.split_whitespace());
    pass(&mut command);
}

/// Runs the test `name` again in a user and network namespace of its own, with two connected interfaces `left` and `right`,
/// and returns true in there.
pub fn isolated(name: &str) -> bool {
    const INSIDE: &str = "BYPATH_TEST_NAMESPACE";
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        netns::veth("left", "right", None).expect("a veth pair");
        for name in ["left", "right", "lo"] {
            netns::set_up(name, true).expect("an interface that is up");
        }
        return true;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, name);
    match netns::isolated(&mut command).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
        }
        Err(e) => skip(name, &format!("no user and network namespaces: {e}")),
    }
    false
}

/// Runs `body` on a thread in a network namespace of its own, where it and what it starts have all the rights of this
/// process, and `left` and `right` are connected; without the right to attach programs the test is skipped.
pub fn privileged(name: &str, body: impl FnOnce() + Send) {
    if let Err(e) = bpf::SocketMap::new(1) {
        return skip(name, &format!("no programs for received frames ({e}): needs root of the machine"));
    }
    let namespace = match Namespace::new() {
        Ok(namespace) => namespace,
        Err(e) => return skip(name, &format!("no network namespaces: {e}")),
    };
    let entered = namespace.run(|| {
        netns::veth("left", "right", None).expect("a veth pair");
        for name in ["left", "right"] {
            netns::set_up(name, true).expect("an interface that is up");
        }
        body();
    });
    entered.expect("inside the namespace");
}

/// Whether TUN devices can be made here; says which test is skipped, or cut short, where they cannot.
pub fn tun_devices(name: &str) -> bool {
    match bypath_link::tun::Device::tun("probe%d").open() {
        Ok(_) => true,
        Err(e) => {
            skip(name, &format!("no TUN devices: {e}"));
            false
        }
    }
}

/// Whether these programs are there; says which test is skipped for want of one.
pub fn need(test: &str, programs: &[&str]) -> bool {
    let missing = programs.iter().find(|p| Command::new(p).arg("--version").output().is_err());
    if let Some(program) = missing {
        skip(test, &format!("{program} is not installed"));
    }
    missing.is_none()
}
