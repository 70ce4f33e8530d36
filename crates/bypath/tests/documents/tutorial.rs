//! docs/raw-ethernet.md, typed from its first line to its last: once by somebody who reads it for Rust, once for C.
//!
//! A block of it is a file, named in the text before it; commands that must succeed (`sh`); or commands with what they print
//! (`console`). Anything else is an error, so that nothing is shown that does not run.

use crate::blocks::blocks;
use crate::common::{Place, need, shell, target, workspace};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;
use std::process::Stdio;

/// Ends the output of a command; its exit status follows.
const END: &str = "--- end of the command, status";

/// A line that is typed.
#[derive(Debug, PartialEq)]
struct Step {
    /// Where it stands in the document.
    line: usize,
    /// The heading that it stands under.
    heading: String,
    command: String,
    /// What it prints; `None`: that is not shown.
    prints: Option<String>,
}

/// The document, as its reader follows it.
#[derive(Debug, Default)]
struct Tutorial {
    /// By their place in the reader's directory.
    files: BTreeMap<String, String>,
    steps: Vec<Step>,
}

/// The directory of files of a kind, and how their names end.
fn files_of(kind: &str) -> Option<(&'static str, &'static [&'static str])> {
    Some(match kind {
        "rust" => ("src/bin/", &[".rs"]),
        "c" => ("c/", &[".c", ".h"]),
        "make" => ("c/", &["Makefile"]),
        "toml" => ("", &["Cargo.toml"]),
        _ => return None,
    })
}

impl Tutorial {
    /// Reads the document.
    fn read(document: &str) -> Result<Tutorial, String> {
        let mut tutorial = Tutorial::default();
        for block in blocks(document) {
            let step = |line: usize, command: &str, prints| Step {
                line,
                heading: block.heading.clone(),
                command: command.to_owned(),
                prints,
            };
            let lines = block.text.lines().zip(block.line..);
            if let Some((directory, endings)) = files_of(&block.kind) {
                let words = block.lead.split('`').skip(1).step_by(2);
                let names: BTreeSet<_> =
                    words.filter(|w| !w.contains('/') && endings.iter().any(|e| w.ends_with(e))).collect();
                let [name] = names.iter().collect::<Vec<_>>()[..] else {
                    return Err(format!("line {}: a file with the names {names:?}", block.line));
                };
                if tutorial.files.insert(format!("{directory}{name}"), block.text.clone()).is_some() {
                    return Err(format!("line {}: {name} for the second time", block.line));
                }
            } else if block.kind == "sh" {
                tutorial.steps.extend(lines.map(|(command, line)| step(line, command, None)));
            } else if block.kind == "console" {
                let before = tutorial.steps.len();
                for (text, line) in lines {
                    if let Some(command) = text.strip_prefix("$ ") {
                        tutorial.steps.push(step(line, command, Some(String::new())));
                    } else if tutorial.steps.len() > before {
                        let last = tutorial.steps.last_mut().and_then(|s| s.prints.as_mut());
                        *last.expect("a command that prints") += &format!("{text}\n");
                    } else {
                        return Err(format!("line {line}: output without a command"));
                    }
                }
            } else {
                return Err(format!("line {}: nobody runs a block of kind {:?}", block.line, block.kind));
            }
        }
        tutorial.complete()
    }

    /// Every program is there in both languages, and is started.
    fn complete(self) -> Result<Tutorial, String> {
        let programs = |directory: &str, ending: &str| -> BTreeSet<String> {
            let name = |path: &String| Some(path.strip_prefix(directory)?.strip_suffix(ending)?.to_owned());
            self.files.keys().filter_map(name).collect()
        };
        let (rust, c) = (programs("src/bin/", ".rs"), programs("c/", ".c"));
        if let Some(name) = rust.symmetric_difference(&c).next() {
            return Err(format!("{name} is there in one language only"));
        }
        let started = |name: &str| {
            self.steps.iter().any(|s| s.prints.is_some() && s.command.split(' ').any(|word| word == name))
        };
        if let Some(name) = rust.iter().find(|name| !started(name)) {
            return Err(format!("nobody starts {name}"));
        }
        Ok(self)
    }

    /// Types everything but what is under the heading `but`, in a place of this name, and compares. Returns how many commands'
    /// output was compared.
    fn follow(&self, name: &str, but: &str, target: &Path) -> usize {
        let place = Place::new(name);
        fs::create_dir(place.path().join("tutorial")).expect("the reader's directory");
        for (name, text) in &self.files {
            place.write(&format!("tutorial/{name}"), text);
        }
        let steps: Vec<_> = self.steps.iter().filter(|s| s.heading != but).collect();
        // bash reads what it is to do octet by octet: a shell that it starts goes on where it is.
        let typed = steps.iter().map(|s| format!("{}\necho '{END}' $?\n", s.command));
        let typed = format!("exec 2>&1\n{}", typed.collect::<String>());
        let mut bash = shell(&["bash"], &place.path().join("tutorial"))
            .env("CARGO_TARGET_DIR", target)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("timeout");
        let mut keyboard = bash.stdin.take().expect("its input");
        let typist = std::thread::spawn(move || keyboard.write_all(typed.as_bytes()));
        let mut text = Vec::new();
        bash.stdout.take().expect("its output").read_to_end(&mut text).expect("what it prints");
        let status = bash.wait().expect("its end");
        let text = String::from_utf8_lossy(&text);

        let mut rest = &*text;
        for Step { line, command, prints, .. } in &steps {
            let wrong = |what: &str, got: &str| panic!("line {line}: {command}\n{what}:\n{got}");
            let ended = rest.match_indices(END).find(|&(at, _)| at == 0 || rest.as_bytes()[at - 1] == b'\n');
            let Some((at, _)) = ended else { return wrong("did not end", rest) };
            let (printed, end) = rest.split_at(at);
            let (code, after) = end[END.len()..].split_once('\n').unwrap_or((end, ""));
            if code != " 0" {
                return wrong(&format!("ended with status{code}"), printed);
            }
            if prints.as_ref().is_some_and(|expected| expected != printed) {
                return wrong(
                    &format!("should print\n{}and printed", prints.as_deref().unwrap_or("")),
                    printed,
                );
            }
            if prints.is_none() && printed.contains("warning") {
                return wrong("warns", printed);
            }
            rest = after;
        }
        typist.join().expect("a thread").expect("everything was typed");
        assert!(status.success() && rest.is_empty(), "{status}: {rest}");
        steps.iter().filter(|s| s.prints.is_some()).count()
    }
}

fn document() -> String {
    fs::read_to_string(workspace().join("docs/raw-ethernet.md")).expect("the document")
}

fn tutorial() -> Tutorial {
    Tutorial::read(&document()).unwrap_or_else(|e| panic!("docs/raw-ethernet.md: {e}"))
}

#[test]
fn every_block_is_a_file_or_is_typed() {
    let document = document();
    let found = blocks(&document).len();
    // Counted in another way: no block is overlooked, and nothing else looks like one.
    assert_eq!(document.matches("\n```").count(), 2 * found);
    assert!(!document.contains("<pre") && !document.contains("<code"));
    let tutorial = tutorial();
    let typed: BTreeSet<_> = tutorial.steps.iter().map(|s| s.line).collect();
    assert_eq!(typed.len(), tutorial.steps.len(), "each line is typed once");
    assert!(tutorial.files.len() > 30 && typed.len() > 30, "{} files, {typed:?}", tutorial.files.len());
}

#[test]
fn figures_are_those_of_the_readme() {
    let readme = fs::read_to_string(workspace().join("README.md")).expect("README.md");
    let document = document();
    let rows: Vec<_> =
        document.lines().filter(|l| l.starts_with("| UDP ") || l.starts_with("| raw, ")).collect();
    assert_eq!(rows.len(), 4, "{rows:?}");
    for row in rows {
        assert!(readme.contains(&format!("\n{row}")), "no row of README begins like this: {row}");
    }
}

#[test]
fn in_rust() {
    if need("tutorial::in_rust", &["bash"]) {
        let compiled = target().join("tmp/documents");
        assert!(tutorial().follow("tutorial-rust", "In C", &compiled) > 0);
    }
}

#[test]
fn in_c() {
    if need("tutorial::in_c", &["bash", "cc", "make", "pkg-config"]) {
        assert!(tutorial().follow("tutorial-c", "In Rust", target()) > 0);
    }
}

const PROGRAMS: &str = "`a.rs`:\n\n```rust\nfn\n```\n\nIn C, `a.c`:\n\n```c\nint\n```\n";

#[test]
fn a_document_is_read_as_meant() {
    let document =
        format!("## In C\n{PROGRAMS}\n```sh\none\ntwo\n```\n## all\n```console\n$ a\nx\n\ny\n$ b a\n```\n");
    let read = Tutorial::read(&document).unwrap();
    let files: Vec<_> = read.files.iter().map(|(name, text)| (&**name, &**text)).collect();
    assert_eq!(files, [("c/a.c", "int\n"), ("src/bin/a.rs", "fn\n")]);
    let steps: Vec<_> =
        read.steps.iter().map(|s| (s.line, &*s.heading, &*s.command, s.prints.as_deref())).collect();
    let expected = [
        (15, "In C", "one", None),
        (16, "In C", "two", None),
        (20, "all", "a", Some("x\n\ny\n")),
        (24, "all", "b a", Some("")),
    ];
    assert_eq!(steps, expected);
}

#[test]
fn what_nobody_runs_is_an_error() {
    let started = "```console\n$ a\n```\n";
    let whole = format!("{PROGRAMS}{started}");
    assert!(Tutorial::read(&whole).is_ok());
    for (document, says) in [
        (PROGRAMS.to_owned(), "nobody starts a"),
        (format!("{whole}text:\n\n    indented\n"), "line 17: nobody runs a block of kind \"\""),
        (format!("{whole}```text\n```\n"), "line 16: nobody runs a block of kind \"text\""),
        (format!("{whole}`b.c`\n```rust\n```\n"), "line 17: a file with the names {}"),
        (
            format!("{whole}`b.rs` and `c.rs`:\n```rust\n```\n"),
            "line 17: a file with the names {\"b.rs\", \"c.rs\"}",
        ),
        (format!("{whole}`b.rs`:\n```rust\n```\n"), "b is there in one language only"),
        (format!("{whole}`a.c`:\n```c\n```\n"), "line 17: a.c for the second time"),
        (format!("{whole}```console\nx\n$ a\n```\n"), "line 16: output without a command"),
    ] {
        assert_eq!(Tutorial::read(&document).unwrap_err(), says, "{document}");
    }
}

/// A tutorial of these commands, with what they print.
fn commands(steps: &[(&str, &str)]) -> Tutorial {
    let step = |&(command, prints): &(&str, &str)| Step {
        line: 1,
        heading: String::new(),
        command: command.to_owned(),
        prints: Some(prints.to_owned()),
    };
    Tutorial { files: BTreeMap::new(), steps: steps.iter().map(step).collect() }
}

#[test]
fn output_that_differs_is_noticed() {
    let run = |steps: &[(&str, &str)]| {
        let tutorial = commands(steps);
        std::panic::catch_unwind(|| tutorial.follow("typed", "no heading", target()))
            .is_ok_and(|compared| compared == steps.len())
    };
    assert!(run(&[("echo a; echo b >&2", "a\nb\n"), ("bash", ""), ("cd /; pwd", "/\n")]));
    assert!(!run(&[("echo a", "a")]));
    assert!(!run(&[("echo a", "a\nb\n")]));
    assert!(!run(&[("echo a", "")]));
    assert!(!run(&[("printf a", "a")]));
    assert!(!run(&[("false", "")]));
    assert!(!run(&[("exit", ""), ("echo a", "a\n")]));
    assert!(!run(&[("cat", ""), ("echo a", "a\n")]));
}
