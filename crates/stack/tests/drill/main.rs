//! Scripts in the syntax of packetdrill, run against the stack in virtual time: docs/tcp.md says how to write one.

mod calls;
mod flow;
mod host;
mod lex;
mod mutate;
mod parse;
mod runner;
mod script;

use script::Script;
use std::fs;
use std::path::{Path, PathBuf};

/// Scripts of a folder and those below, in the order of their names.
fn scripts(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of scripts") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            all.extend(scripts(&path));
        } else if path.extension().is_some_and(|extension| extension == "pkt") {
            all.push(path);
        }
    }
    all.sort();
    all
}

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/drill/scripts")
}

/// Our scripts; with `DRILL` set, those whose path has that in it.
fn ours() -> Vec<(PathBuf, Script)> {
    let wanted = std::env::var("DRILL").unwrap_or_default();
    let all = scripts(&own()).into_iter().filter(|path| path.to_string_lossy().contains(&wanted));
    all.map(|path| {
        let text = fs::read_to_string(&path).expect("a script");
        let name = path.strip_prefix(own()).expect("ours").to_string_lossy().into_owned();
        let script = parse::parse(&name, &text).unwrap_or_else(|why| panic!("{why}"));
        (path, script)
    })
    .collect()
}

fn tell(failed: &[String], of: usize) {
    assert!(failed.is_empty(), "{} of {of} scripts fail:\n\n{}\n", failed.len(), failed.join("\n\n"));
}

#[test]
fn every_script_passes() {
    let all = ours();
    let failed: Vec<String> = all.iter().filter_map(|(_, script)| runner::run(script, false).err()).collect();
    tell(&failed, all.len());
}

#[test]
fn every_script_notices() {
    let all = ours();
    let mut failed = Vec::new();
    let mut count = 0;
    for (_, script) in &all {
        for (what, broken) in mutate::broken(script) {
            count += 1;
            if runner::run(&broken, false).is_ok() {
                failed.push(format!("{}: it passes with {what}", script.name));
            }
        }
    }
    assert!(count > all.len(), "{count} broken scripts");
    tell(&failed, count);
}

#[test]
fn every_script_says_what_it_follows() {
    for (path, script) in ours() {
        let text = fs::read_to_string(&path).expect("a script");
        assert!(text.starts_with("// "), "{}: it begins with what it shows", script.name);
        let comments: String = text.lines().take_while(|line| line.starts_with("//")).collect();
        assert!(comments.contains("RFC "), "{}: it names no RFC", script.name);
    }
}

/// Scripts as those from elsewhere are run: timestamps and PSH are taken as they come. `DRILL_ELSEWHERE`: a file or a folder in place
/// of our own.
#[test]
fn scripts_pass_as_those_from_elsewhere_are_run() {
    let from = std::env::var_os("DRILL_ELSEWHERE").map_or_else(own, PathBuf::from);
    let all = if from.is_dir() { scripts(&from) } else { vec![from] };
    let mut failed = Vec::new();
    for path in &all {
        let text = fs::read_to_string(path).expect("a script");
        let found =
            parse::parse(&path.to_string_lossy(), &text).and_then(|script| runner::run(&script, true));
        match found {
            Ok(()) => println!("pass  {}", path.display()),
            Err(why) => failed.push(why),
        }
    }
    tell(&failed, all.len());
}
