//! Processes that say of themselves what is not so: `bypath why` looks into them, and no further.

use crate::common::{TempDir, bypath, stdout, workspace};
use crate::lab::{Running, has, skip};
use crate::liar::{Liar, copy, within};
use bypath_shm::reason::Reason;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(30);

/// Compiles the program that does, in this folder.
fn program(folder: &TempDir, flags: &[&str]) -> PathBuf {
    let program = folder.join("otherwise");
    let mut compiler = Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()));
    compiler.args(["-O2", "-Wall", "-Wextra"]).args(flags).arg("-o").arg(&program);
    compiler.arg(workspace().join("crates/cli/tests/agent/otherwise.c"));
    assert!(compiler.status().expect("a C compiler").success());
    program
}

/// It has begun, or what it said instead.
fn begun(mut command: Command) -> Result<Running, String> {
    let mut running =
        Running(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts"));
    let mut line = String::new();
    BufReader::new(running.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    if line == "ready\n" { Ok(running) } else { Err(line) }
}

fn why(running: &Running) -> String {
    let output = within(LONG, bypath(["why", &running.0.id().to_string()]));
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    stdout(&output)
}

#[test]
fn an_environment_without_end_is_not_read_to_its_end() {
    let name = "otherwise::an_environment_without_end_is_not_read_to_its_end";
    if !has(name, &["cc", "prlimit"]) {
        return;
    }
    let folder = TempDir::new();
    let mut liar = Command::new(program(&folder, &[]));
    liar.arg("environment");
    let running = begun(liar).expect("a process");
    // Of 3 GiB that it says it has.
    let tool = bypath::<&str>([]);
    let mut limited = Command::new("prlimit");
    limited
        .arg("--as=1073741824")
        .arg("--")
        .arg(tool.get_program())
        .args(["why", &running.0.id().to_string()]);
    let output = within(LONG, limited);
    assert!(stdout(&output).contains("the library is not loaded"), "{output:?}");
}

#[test]
fn rules_with_long_names_that_decide_of_very_many_sockets_are_told_shortly() {
    const SOCKETS: usize = 3000;
    let name = "otherwise::rules_with_long_names_that_decide_of_very_many_sockets_are_told_shortly";
    if !has(name, &["sleep"]) {
        return;
    }
    let liar = Liar::new();
    let mut other = Command::new("sleep");
    other.arg("1000").env("BYPATH_RULES", format!("1;rule 1 kernel line=1 name={}", "n".repeat(60_000)));
    let other = Running(other.stdout(copy(&liar)).spawn().expect("sleep starts"));
    liar.has_member(1, other.0.id());
    for number in 0..SOCKETS {
        liar.has_end(number, 0, 0);
        let end = &liar.family.ends[number];
        end.holders.store(2, Relaxed);
        end.reason.store(Reason::Rule as u16, Relaxed);
        end.rule.store(1, Relaxed);
    }
    let said = stdout(&bypath(["why", &other.0.id().to_string()]).output().expect("bypath starts"));
    assert!(said.contains("It is rule 1 'nnnn") && said.contains("And 2000 more."), "{:.1000}", said);
    assert!(said.len() < 1 << 20, "{}", said.len());
}

#[test]
fn no_file_is_opened_that_the_file_names_which_runs() {
    let name = "otherwise::no_file_is_opened_that_the_file_names_which_runs";
    if !has(name, &["cc", "mkfifo"]) {
        return;
    }
    let folder = TempDir::new();
    let (script, pipe) = (folder.join("script"), folder.join("pipe"));
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    std::fs::write(&script, format!("#!{}\n", pipe.display())).expect("a file");
    let mut liar = Command::new(program(&folder, &[]));
    liar.arg("program").arg(&script);
    let running = match begun(liar) {
        Ok(running) => running,
        Err(said) => {
            return skip(name, &format!("another program cannot be named here: {}", said.trim_end()));
        }
    };
    let exe = std::fs::read_link(format!("/proc/{}/exe", running.0.id())).expect("a link");
    assert_eq!(exe, script);
    // Who opens the pipe waits for a writer.
    assert!(why(&running).contains("the library is not loaded"));
}

#[test]
fn the_name_of_a_loader_steers_no_terminal() {
    const LOADER: &str = "/lib64/ld-linux-x86-64.so.2";
    let name = "otherwise::the_name_of_a_loader_steers_no_terminal";
    if !has(name, &["cc"]) {
        return;
    }
    if !Path::new(LOADER).exists() {
        return skip(name, &format!("no {LOADER}"));
    }
    let folder = TempDir::new();
    let loader = folder.join("a\x1b[2Jb").join("ld-musl-x");
    std::fs::create_dir(loader.parent().expect("a folder")).expect("a folder");
    symlink(LOADER, &loader).expect("a link");
    let flag = format!("-Wl,--dynamic-linker={}", loader.display());
    let mut liar = Command::new(program(&folder, &[&flag]));
    liar.arg("environment");
    let said = why(&begun(liar).expect("a process"));
    assert!(said.contains("another C library (loader ") && said.contains("a?[2Jb/ld-musl-x"), "{said:?}");
    assert!(!said.contains('\x1b'), "{said:?}");
}
