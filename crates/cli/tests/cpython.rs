//! CPython's own tests of sockets, readiness and signals: with everything upgraded at the first byte each test has the
//! outcome that it has on the kernel.
//!
//! A test that differs is run again alone, both ways, up to three times: one that comes out different on the kernel alone
//! does not count.

#[path = "agent/programs.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod programs;

use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Seconds after which a module counts as hanging.
const LIMIT: &str = "240";

/// An interpreter that has its tests.
fn python() -> Option<&'static str> {
    static PYTHON: OnceLock<Option<&str>> = OnceLock::new();
    *PYTHON.get_or_init(|| {
        ["/usr/bin/python3", "python3"].into_iter().find(|python| {
            let asked =
                Command::new(python).args(["-c", "import test.test_socket"]).stderr(Stdio::null()).status();
            asked.is_ok_and(|status| status.success())
        })
    })
}

/// Says that `test` did not run.
fn skip(test: &str, reason: &str) {
    println!("skipped: {reason}");
    if let Some(list) = std::env::var_os("BYPATH_TEST_SKIPS") {
        use std::io::Write;
        let file = std::fs::OpenOptions::new().append(true).create(true).open(list);
        let _ = file.and_then(|mut file| file.write_all(format!("{test}\t{reason}\n").as_bytes()));
    }
}

/// Outcomes by test, and the connections that went through rings.
struct Run {
    outcomes: BTreeMap<String, String>,
    upgraded: u64,
    /// Octets sent by rings, mailboxes among them.
    ring_tx: u64,
    complaints: String,
}

/// Runs a module, or those of its tests whose names contain one of these words, on the kernel or with everything upgraded.
fn run(python: &str, module: &str, only: &[&str], rings: bool) -> Run {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = COUNT.fetch_add(1, Relaxed);
    let place = programs::workshop().join(format!("cpython-{}-{number}", std::process::id()));
    std::fs::create_dir_all(&place).expect("create a directory");
    let stats = place.join("stats");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agent/cpython.py");
    let mut command = Command::new("timeout");
    command.args([LIMIT, python]).arg(script).arg(module).args(only);
    command.current_dir(&place).stdin(Stdio::null());
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
        command.env_remove(variable);
    }
    if rings {
        command.env("LD_PRELOAD", programs::library());
        command.env("BYPATH_UPGRADE", "eager").env("BYPATH_STATS", &stats);
    }
    let output = command.output().expect("run python");
    let text = String::from_utf8_lossy(&output.stdout);
    let known = ["ok", "error", "failed", "skipped", "expected-failure", "unexpected-success"];
    let outcomes = text
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(outcome, _)| known.contains(outcome))
        .map(|(outcome, id)| (id.to_owned(), outcome.to_owned()))
        .collect();
    let raw = std::fs::read(&stats).unwrap_or_default();
    let records = raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode);
    let (upgraded, ring_tx) = records.fold((0, 0), |sum, s| (sum.0 + s.upgraded, sum.1 + s.bytes.ring_tx));
    let complaints = String::from_utf8_lossy(&output.stderr).into_owned();
    let _ = std::fs::remove_dir_all(&place);
    Run { outcomes, upgraded, ring_tx, complaints }
}

/// The tests whose outcomes are not the same.
fn differences(kernel: &Run, rings: &Run) -> BTreeSet<String> {
    let ids = kernel.outcomes.keys().chain(rings.outcomes.keys());
    ids.filter(|id| kernel.outcomes.get(*id) != rings.outcomes.get(*id)).cloned().collect()
}

/// Compares a module, or some of its tests, of which at least `tests` must have an outcome and `upgrades` connections go through rings.
#[track_caller]
fn same(name: &str, module: &str, only: &[&str], tests: usize, upgrades: u64) {
    let Some(python) = python() else {
        return skip(name, "no CPython with its tests (package libpython3-testsuite)");
    };
    let (kernel, rings) = (run(python, module, only, false), run(python, module, only, true));
    println!(
        "{module}: {} tests, {} connections on rings, {} octets",
        rings.outcomes.len(),
        rings.upgraded,
        rings.ring_tx
    );
    assert!(kernel.outcomes.len() >= tests, "{module} hardly ran: {}", kernel.complaints);
    assert!(rings.upgraded >= upgrades, "{module}: only {} connections were upgraded", rings.upgraded);
    let mut real = Vec::new();
    for id in differences(&kernel, &rings) {
        let first = [&kernel, &rings].map(|run| run.outcomes.get(&id).cloned().unwrap_or_default());
        // Alone, both ways: what comes out the same once, or is not steady on the kernel, is the test's own doing.
        let alone: Vec<[String; 2]> = (0..3)
            .map(|_| {
                [false, true]
                    .map(|rings| run(python, module, &[&id], rings).outcomes.remove(&id).unwrap_or_default())
            })
            .collect();
        let excused = alone.iter().any(|[kernel, rings]| kernel == rings);
        println!(
            "{id}: {first:?} (kernel, rings); alone {alone:?}{}",
            if excused { ", excused" } else { "" }
        );
        if !excused {
            real.push(id);
        }
    }
    assert!(real.is_empty(), "other outcomes than on the kernel: {real:?}\n{}", rings.complaints);
}

macro_rules! modules {
    ($($name:ident $tests:literal $upgrades:literal;)*) => {$(
        #[test]
        fn $name() {
            same(stringify!($name), stringify!($name), &[], $tests, $upgrades);
        }
    )*};
}

/// The words in the names of tests of datagrams. One or two of a socket are too few for shared memory: that the library is in their way changes nothing,
/// is what these show. What goes by mailboxes `differential_udp` compares with the kernel.
const DATAGRAMS: [&str; 6] = ["datagram", "Datagram", "recvfrom", "sendto", "SysLog", "UDP"];

#[test]
fn asyncio_with_datagrams() {
    for (module, tests) in [("test_asyncio.test_events", 9), ("test_asyncio.test_sock_lowlevel", 9)] {
        same("asyncio_with_datagrams", module, &DATAGRAMS, tests, 0);
    }
}

#[test]
fn logging_by_datagrams() {
    same("logging_by_datagrams", "test_logging", &DATAGRAMS, 8, 0);
}

modules! {
    test_socket 400 5;
    test_select 3 0;
    test_poll 4 0;
    test_epoll 5 0;
    test_selectors 30 0;
    test_socketserver 10 0;
    test_httplib 60 1;
    test_asyncore 50 0;
    test_signal 30 0;
    test_ftplib 30 0;
    test_ssl 100 5;
}
