//! Netstack services of another user that lie to who looks: rows and names without end, and answers that never come to one.

use crate::common::{TempDir, bypath, stderr, stdout, workspace};
use crate::lab::{Running, has};
use crate::liar::within;
use crate::whose::{STRANGER, may_be_others};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(50);

/// What services of other users are given in one look, and more than a busy machine needs beside it.
const LOOK: Duration = Duration::from_secs(15);

/// Memory that who looks may have (KiB), programs and libraries included.
const MEMORY: u32 = 1_000_000;

/// A folder in which everybody may have services.
struct Folder(TempDir);

impl Folder {
    /// `None`: the test is left out.
    fn new(name: &str) -> Option<Folder> {
        if !has(name, &["python3"]) || !may_be_others(name) {
            return None;
        }
        let folder = TempDir::new();
        std::fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o1777)).expect("a mode");
        Some(Folder(folder))
    }

    /// Services of this user's that tell this lie.
    fn services(&self, user: u32, lie: &str, count: usize) -> Running {
        let mut services = Command::new("python3");
        services.arg(workspace().join("crates/cli/tests/liars/services.py")).arg(user.to_string());
        services.arg(self.0.path()).args([lie, &count.to_string()]);
        services.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut services = Running(services.spawn().expect("python3 starts"));
        let mut line = String::new();
        BufReader::new(services.0.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        assert_eq!(line, "ready\n");
        services
    }

    /// What a command says that may have so much memory, and how long it took.
    #[track_caller]
    fn look(&self, arguments: &[&str]) -> (Output, Duration) {
        let inner = bypath(arguments);
        let mut look = Command::new("sh");
        look.args(["-c", &format!("ulimit -v {MEMORY}; exec \"$@\""), "sh"]).arg(inner.get_program());
        look.args(inner.get_args()).env("BYPATH_CONFIG", "none").env("BYPATH_NETSTACK_DIR", self.0.path());
        let begun = Instant::now();
        (within(LONG, look), begun.elapsed())
    }

    /// The same, which ends well and soon.
    #[track_caller]
    fn looks_soon(&self, arguments: &[&str]) -> Output {
        let (output, took) = self.look(arguments);
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        assert!(took < LOOK, "{arguments:?}: {took:?}");
        output
    }
}

#[test]
fn rows_without_end_take_no_memory_of_who_looks() {
    let name = "services::rows_without_end_take_no_memory_of_who_looks";
    let Some(folder) = Folder::new(name) else { return };
    let _honest = folder.services(0, "honest:1", 1);
    let _liars = ["small", "deep", "many"].map(|lie| folder.services(STRANGER, lie, 1));
    let listed = folder.looks_soon(&["ss", "-l"]);
    assert!(stdout(&listed).contains("honest0"), "{listed:?}");
    assert!(stderr(&listed).contains("not all listeners of the netstack service"), "{}", stderr(&listed));
    let (sockets, _) = folder.look(&["netstack", "sockets", "--name=deep0", "--json"]);
    assert_eq!(sockets.status.code(), Some(0), "{}", stderr(&sockets));
    assert!(stderr(&sockets).contains("is too long: what comes after"), "{}", stderr(&sockets));
    // Of these there are no more than some.
    let (neighbors, _) = folder.look(&["netstack", "stats", "--name=small0"]);
    assert_eq!(neighbors.status.code(), Some(1), "{}", stderr(&neighbors));
    assert!(stderr(&neighbors).contains("does not come to an end"), "{}", stderr(&neighbors));
}

#[test]
fn a_list_of_very_many_sockets_is_shown_whole() {
    let name = "services::a_list_of_very_many_sockets_is_shown_whole";
    let Some(folder) = Folder::new(name) else { return };
    let _honest = folder.services(STRANGER, "honest:100000", 1);
    let (sockets, _) = folder.look(&["netstack", "sockets", "--name=honest0"]);
    assert_eq!(stdout(&sockets).lines().count(), 1 + 100_000, "{}", stderr(&sockets));
    assert!(!stderr(&sockets).contains("left out"), "{}", stderr(&sockets));
}

#[test]
fn answers_that_come_slowly_without_end_hold_nobody_up() {
    let name = "services::answers_that_come_slowly_without_end_hold_nobody_up";
    let Some(folder) = Folder::new(name) else { return };
    let _honest = folder.services(0, "honest:1", 1);
    let _liars = folder.services(STRANGER, "slow", 3);
    let listed = folder.looks_soon(&["ss", "-l"]);
    assert!(stdout(&listed).contains("honest0"), "{listed:?}");
    assert!(
        stderr(&listed).contains("not all listeners of the netstack service slow0"),
        "{}",
        stderr(&listed)
    );
    assert!(stderr(&listed).contains("there is no time for 2 services"), "{}", stderr(&listed));
    let services = folder.looks_soon(&["netstack", "ls"]);
    let states = stdout(&services);
    let state = |name: &str, state: &str| states.lines().any(|l| l.starts_with(name) && l.contains(state));
    assert!(state("honest0", "running") && state("slow0", "no answer"), "{states}");
    // Only who is believed could say that this process listens.
    let own = std::process::id().to_string();
    let (why, took) = folder.look(&["why", &own]);
    assert!(why.status.code() == Some(1) && took < Duration::from_secs(5), "{took:?}: {why:?}");
    let (sockets, took) = folder.look(&["netstack", "sockets", "--name=slow0"]);
    assert!(stderr(&sockets).contains("4 s at most"), "{}", stderr(&sockets));
    assert!(stderr(&sockets).contains("does not come to an end"), "{}", stderr(&sockets));
    assert!(sockets.status.code() == Some(1) && took < LOOK, "{took:?}");
}

#[test]
fn names_of_others_without_number_are_left_out() {
    let name = "services::names_of_others_without_number_are_left_out";
    let Some(folder) = Folder::new(name) else { return };
    let _liars = folder.services(STRANGER, "silent", 116);
    let _honest = folder.services(0, "honest:1", 1);
    for look in [&["ss", "-l"][..], &["netstack", "ls"]] {
        let output = folder.looks_soon(look);
        assert!(stdout(&output).contains("honest0"), "{output:?}");
        assert!(stderr(&output).contains("100 names are left out"), "{}", stderr(&output));
    }
}
