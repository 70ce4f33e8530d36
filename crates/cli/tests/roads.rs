//! Roads back to the kernel that no call on a descriptor leads to: each program runs on the kernel and under Bypath, and
//! must say the same.

#[path = "agent/programs.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod programs;

#[path = "roads/ends.rs"]
mod ends;
#[path = "roads/filter.rs"]
mod filter;
#[path = "roads/heir.rs"]
mod heir;
#[path = "roads/identity.rs"]
mod identity;
#[path = "roads/leaves.rs"]
mod leaves;
#[path = "roads/moves.rs"]
mod moves;
#[path = "roads/tables.rs"]
mod tables;
#[path = "roads/taken.rs"]
mod taken;
#[path = "roads/uring.rs"]
mod uring;

use bypath_shm::reason::Reason;
use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::path::Path;
use std::process::{Command, Output};
use std::sync::atomic::{AtomicU32, Ordering};

/// A test that cannot run here says so, and is counted as skipped.
fn skip(name: &str, reason: &str) {
    eprintln!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list");
        file.write_all(format!("{name}\t{reason}\n").as_bytes()).expect("the list");
    }
}

/// Runs the program. It ends itself if it hangs.
fn run(program: &Path, args: &[&str], environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program);
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
        command.env_remove(variable);
    }
    command.args(args).envs(environment.iter().copied()).output().expect("run the program")
}

/// What it printed; it must have ended well.
#[track_caller]
fn said(what: &str, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let complaints = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}\n{text}\n{complaints}", output.status);
    text
}

/// A run under Bypath.
struct Ran {
    text: String,
    complaints: String,
    /// One for each process: the program, its peer.
    counted: Vec<StatsSnapshot>,
}

impl Ran {
    fn ring_bytes(&self) -> u64 {
        self.counted.iter().map(|s| s.bytes.ring_tx).sum()
    }

    fn kernel_bytes(&self) -> u64 {
        self.counted.iter().map(|s| s.bytes.kernel_tx).sum()
    }

    /// Directions that were taken back as `reason`, by whichever process.
    fn recalled(&self, reason: Reason) -> u64 {
        self.counted.iter().map(|s| s.recalled[reason as usize]).sum()
    }

    /// Connections that stayed on the kernel as `reason`.
    fn stayed(&self, reason: Reason) -> u64 {
        self.counted.iter().map(|s| s.not_upgraded[reason as usize]).sum()
    }
}

/// Runs the program on the kernel and under the library with these settings, and compares what it prints.
#[track_caller]
fn same(program: &Path, args: &[&str], settings: &[(&str, &str)]) -> Ran {
    let kernel = said(&format!("{args:?} on the kernel"), &run(program, args, &[]));
    let ours = ran(program, args, settings);
    assert_eq!(kernel, ours.text, "{args:?} {settings:?}: {}", ours.complaints);
    ours
}

/// Runs the program under the library with these settings.
#[track_caller]
fn ran(program: &Path, args: &[&str], settings: &[(&str, &str)]) -> Ran {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let stats = programs::workshop().join(format!("roads-{}-{number}.stats", std::process::id()));
    let library = programs::library().to_str().expect("a plain path");
    let mut environment = vec![
        ("LD_PRELOAD", library),
        ("BYPATH_UPGRADE", "eager"),
        ("BYPATH_STATS", stats.to_str().expect("a plain path")),
    ];
    environment.extend_from_slice(settings);
    let output = run(program, args, &environment);
    let raw = std::fs::read(&stats).unwrap_or_default();
    let _ = std::fs::remove_file(&stats);
    let text = said(&format!("{args:?} {settings:?} under Bypath"), &output);
    Ran {
        text,
        complaints: String::from_utf8_lossy(&output.stderr).into_owned(),
        counted: raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode).collect(),
    }
}

/// The same while directions go up and come back at random.
#[track_caller]
fn same_while_paths_change(program: &Path, args: &[&str]) {
    for seed in ["3", "17"] {
        let ran = same(program, args, &[("BYPATH_TEST_FLIP", seed)]);
        assert!(ran.ring_bytes() > 0, "{args:?}: nothing went through rings");
    }
}
