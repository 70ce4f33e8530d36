//! A shell under Bypath, and what people do in one: the same output and exit status as without, and nothing said by
//! us.

use crate::support::{Outcome, Program, Scene, Way, bypath, launcher, missing, preload_library, skip, ways};
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt;

ways! {
    terminal needs ["script", "bash", "python3"] => terminal;
}

/// Runs a script in a fresh directory, under Bypath or not. It writes to $LOADED how many lines of the innermost
/// process's memory map name the library.
fn play(scene: &Scene, script: &str, shell: Program<'_>) -> (Outcome, bool) {
    // The same name both times: it is in outputs and files.
    let dir = scene.path("work");
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).expect("a fresh directory");
    let loaded = scene.path("loaded");
    let _ = fs::remove_file(&loaded);
    if rustix::process::geteuid().is_root() {
        // For programs that run as nobody. Debian's id serves as a program whose file makes it root's.
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o777)).expect("ours");
        let id = dir.join("setuid-id");
        fs::copy("/usr/bin/id", &id).expect("a copy of id");
        fs::set_permissions(&id, fs::Permissions::from_mode(0o4755)).expect("ours");
    }
    let shell = shell.script(script).directory(&dir).env("HOME", &dir).env("LOADED", &loaded);
    let outcome = shell.env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin").start().wait();
    let lines =
        fs::read_to_string(&loaded).unwrap_or_else(|e| panic!("{}: {e}\n{outcome:?}", loaded.display()));
    (outcome, lines.trim() != "0")
}

fn same(scene: &Scene, script: &str) -> String {
    let (plain, loaded) = play(scene, script, scene.plain("sh"));
    assert!(!loaded, "the plain shell runs with the library");
    let (under, loaded) = play(scene, script, scene.client("sh"));
    assert!(loaded, "the library did not come down to the innermost process: {under:#?}");
    assert_eq!(plain.status, under.status, "{under:#?}");
    assert_eq!(plain.stdout, under.stdout, "{}", under.stderr);
    assert_eq!(plain.stderr, under.stderr);
    under.stdout
}

fn case(test: &str, needs: &[&str], script: &str, expected: &str) {
    if let Some(reason) = missing(needs) {
        return skip(&format!("shell::{test}"), &reason);
    }
    let scene = Scene::new_in(Way::Both, &std::env::temp_dir());
    let output = same(&scene, script);
    assert!(output.contains(expected), "{output}");
}

#[test]
fn make_and_gcc() {
    case("make_and_gcc", &["make", "cc"], "shell_make.sh", "111 steps\nmake: 0\n");
}

#[test]
fn git() {
    case("git", &["git"], "shell_git.sh", "git: 1\n");
}

#[test]
fn python_venv_and_pip() {
    let test = "python_venv_and_pip";
    let venv = std::process::Command::new("/usr/bin/python3").args(["-c", "import venv, ensurepip"]).output();
    if missing(&["python3"]).is_none() && !venv.is_ok_and(|o| o.status.success()) {
        return skip(&format!("shell::{test}"), "venv is not installed (Debian package python3-venv)");
    }
    case(test, &["python3"], "shell_venv.sh", "tiny says 42\ntiny says 42\ntiny       1.0\npip: 1\n");
}

#[test]
fn npm() {
    case("npm", &["npm", "node"], "shell_npm.sh", "tiny says 42\n");
}

/// As root, who may do everything. The variables for the loader are not handed on by sudo.
#[test]
fn sudo_by_root() {
    if !rustix::process::geteuid().is_root() {
        return skip("shell::sudo_by_root", "not root");
    }
    case("sudo_by_root", &["sudo"], "shell_sudo.sh", "sudo: 0\nnobody\nsudo: 0\nsudo: 9\nTEXT\n");
}

/// As somebody who may not: the loader drops the library for sudo itself, as for every program of another user's
/// rights.
#[test]
fn sudo_and_setuid_by_nobody() {
    let test = "shell::sudo_and_setuid_by_nobody";
    if let Some(reason) = missing(&["sudo", "setpriv"]) {
        return skip(test, &reason);
    }
    if !rustix::process::geteuid().is_root() {
        return skip(test, "not root: cannot make a program of root's");
    }
    let scene = Scene::new_in(Way::Both, &std::env::temp_dir()).unprivileged();
    let output = same(&scene, "shell_sudo.sh");
    // On a file system that is mounted nosuid it would be nobody.
    let nosuid = rustix::fs::statvfs(scene.path(""))
        .is_ok_and(|s| s.f_flag.contains(rustix::fs::StatVfsMountFlags::NOSUID));
    assert!(output.ends_with(if nosuid { "\n65534\n" } else { "\n0\n" }), "{output}");
}

/// Keys typed at a terminal: jobs are stopped, resumed and interrupted, with a connection under way.
fn terminal(scene: &Scene) {
    let mut server = scene.server("python3").script("echo_server.py").arg("threads").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let mut words: Vec<OsString> = Vec::new();
    if scene.way() != Way::OnlyServer {
        words = launcher((bypath(), preload_library()), &scene.path("client.stats"), &[]);
    }
    words.extend(["bash", "--norc", "--noprofile", "-i"].map(OsString::from));
    let command = words.join(std::ffi::OsStr::new(" "));
    let driver = scene.plain("python3").script("terminal.py").arg(port.to_string()).script("steady.py");
    let report = driver.arg(command).finish();
    server.stop(Signal::TERM);
    scene.prove(report.number("payload "));
}
