//! Connections that come up and end without number, and processes that do: nothing grows. As many as `BYPATH_SURVIVAL_CYCLES`
//! says; in a soak 100,000.

use crate::program::{Place, Program, field};
use crate::programs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// Endings that a client knows (agent/cycles.c): as many cycles, or a multiple.
const KINDS: usize = 6;
/// Processes that come and go: cycles of each.
const OF_PROCESS: usize = 6;

fn program() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let path = PROGRAM.get_or_init(|| programs::compile("cycles", &["cycles.c"], &[]));
    path.to_str().expect("a plain path")
}

fn cycles() -> usize {
    if let Ok(text) = std::env::var("BYPATH_SURVIVAL_CYCLES") {
        return text.parse().expect("BYPATH_SURVIVAL_CYCLES is a number");
    }
    if std::env::var_os("BYPATH_SOAK").is_some_and(|v| v == "1") { 100_000 } else { 1_200 }
}

/// How a process stands.
#[derive(Clone, Copy, Debug)]
struct Standing {
    descriptors: i64,
    mappings: i64,
    arenas: i64,
    /// Resident, and tables of pages.
    kib: i64,
}

impl Standing {
    #[track_caller]
    fn of(program: &mut Program, asks: &str) -> Standing {
        program.tell(asks);
        let line = program.line();
        let number = |name| field(&line, name).parse().expect("a number");
        let status = std::fs::read_to_string(format!("/proc/{}/status", program.pid())).expect("its status");
        let tables = status.lines().find_map(|l| l.strip_prefix("VmPTE:")).expect("VmPTE");
        let tables: i64 = tables.trim().trim_end_matches(" kB").parse().expect("KiB");
        Standing {
            descriptors: number("fds"),
            mappings: number("maps"),
            arenas: number("arenas"),
            kib: number("kib") + tables,
        }
    }

    /// No more than before, but for what comes and goes, such as the two arenas of a process that has just gone; memory within `kib`.
    #[track_caller]
    fn has_not_grown_since(self, before: Standing, kib: i64, what: &str) {
        let grown = |now: i64, then: i64, most: i64| now - then > most;
        let is_more = grown(self.descriptors, before.descriptors, 4)
            || grown(self.mappings, before.mappings, 4)
            || grown(self.arenas, before.arenas, 2)
            || grown(self.kib, before.kib, kib);
        assert!(!is_more, "{what}: {before:?}, {self:?}");
    }
}

/// End records that were ever used in a process's family.
fn ends_used(pid: u32) -> u32 {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its descriptors").flatten();
    let mut views = descriptors.filter(|e| {
        std::fs::read_link(e.path()).is_ok_and(|to| to.to_string_lossy().contains("bypath-view"))
    });
    let view = std::fs::File::open(views.next().expect("a view").path()).expect("open it");
    let used = std::os::unix::fs::FileExt::read_at;
    let mut word = [0; 4];
    let at = std::mem::offset_of!(bypath_shm::family::Header, ends_used) as u64;
    assert_eq!(used(&view, &mut word, at).expect("read it"), 4);
    u32::from_ne_bytes(word)
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    let place = Place::new();
    let count = cycles() / KINDS * KINDS;
    let mut server = Program::start(&place, "server", &[program(), "server"], &[]);
    let port = server.expect("port");
    let mut client = Program::start(&place, "client", &[program(), "client", &port], &[]);
    let begin = 100 * KINDS;
    let before = [Standing::of(&mut client, &begin.to_string()), Standing::of(&mut server, "?")];
    let used = [&client, &server].map(|p| ends_used(p.pid().as_raw_nonzero().get() as u32));
    let after = [Standing::of(&mut client, &count.to_string()), Standing::of(&mut server, "?")];
    for (i, side) in ["client", "server"].into_iter().enumerate() {
        after[i].has_not_grown_since(before[i], 256, side);
    }
    let still = [&client, &server].map(|p| ends_used(p.pid().as_raw_nonzero().get() as u32));
    assert!(still.iter().zip(used).all(|(now, then)| *now <= then + 16), "{used:?}, {still:?}");
    for one in [&client, &server] {
        let counted = one.stats();
        let all = (begin + count) as u64;
        assert!(counted.upgraded == all || !programs::REQUIRE_RING, "{all}: {counted:?}");
    }
    client.finish();
    server.finish();
}

#[test]
fn processes_that_come_and_go_leave_nothing() {
    let place = Place::new();
    let count = cycles() / OF_PROCESS;
    let mut server = Program::start(&place, "server", &[program(), "server"], &[]);
    let port = server.expect("port");
    let mut come_and_go = |count: usize| {
        for _ in 0..count {
            let status = Command::new(program())
                .args(["once", &port, &OF_PROCESS.to_string()])
                .env("LD_PRELOAD", programs::library())
                .env("BYPATH_UPGRADE", "eager")
                .stdin(Stdio::null())
                .status()
                .expect("a client");
            assert!(status.success(), "{status}");
        }
        Standing::of(&mut server, "?")
    };
    // Many at first: what grows once, such as a table's chunk, has grown.
    let before = come_and_go(100);
    let after = come_and_go(count);
    // The memory of one that has just gone may still be there.
    after.has_not_grown_since(before, 160, "server");
    let counted = server.stats();
    let all = ((100 + count) * OF_PROCESS) as u64;
    assert!(counted.upgraded == all || !programs::REQUIRE_RING, "{all}: {counted:?}");
    server.finish();
}
