//! Byte-exact soak: many connections between processes under the library, both directions at once, random
//! sizes, upgrades and recalls forced at random, peers killed at random moments. Nothing may be lost, doubled
//! or hang, and nothing may be left behind.
//!
//! Rounds go on for `BYPATH_SOAK_SECONDS` (20 by default); `BYPATH_TEST_SEED` fixes everything random.

#[path = "agent/programs.rs"]
mod programs;

#[path = "soak/roads.rs"]
mod roads;

use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// No round takes as long as this unless something hangs.
const DEADLINE: Duration = Duration::from_secs(60);
/// Descriptors that the library may keep: a few for each peer process, epoll set and thread, none per connection.
const OWN_DESCRIPTORS: i64 = 48;
/// Resident memory of a process after all connections have ended.
const RESIDENT_KIB: i64 = 128 * 1024;

/// splitmix64: what is random here is decided by the seed.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

/// A running soak program.
struct Soak {
    child: Child,
    lines: BufReader<ChildStdout>,
    name: &'static str,
}

impl Soak {
    fn start(
        program: &Path,
        name: &'static str,
        arguments: &[String],
        environment: &HashMap<&str, String>,
    ) -> Soak {
        let mut child = Command::new(program)
            .args(arguments)
            .env_remove("LD_PRELOAD")
            .envs(environment)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("start the soak program");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Soak { child, lines, name }
    }

    /// The first line: the server's port, or that the client is connected.
    fn first_line(&mut self) -> String {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("read the first line");
        line.trim().to_owned()
    }

    fn kill(mut self) {
        self.child.kill().expect("kill -9");
    }

    /// Waits for an orderly end and checks the report.
    fn finish(mut self, until: Instant) -> HashMap<String, i64> {
        let status = loop {
            if let Some(status) = self.child.try_wait().expect("wait") {
                break status;
            }
            if Instant::now() > until {
                let stuck = describe(self.child.id());
                let _ = self.child.kill();
                let _ = self.child.wait();
                panic!("the {} hangs:\n{stuck}", self.name);
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        let mut text = String::new();
        self.lines.read_to_string(&mut text).expect("read the report");
        let mut complaints = String::new();
        self.child
            .stderr
            .take()
            .expect("piped")
            .read_to_string(&mut complaints)
            .expect("read the complaints");
        assert!(status.success(), "the {} failed ({status}): {text}\n{complaints}", self.name);
        let fields = text.split_whitespace().filter_map(|w| w.split_once('='));
        let report: HashMap<String, i64> =
            fields.map(|(name, value)| (name.to_owned(), value.parse().expect("a number"))).collect();
        assert_eq!(report["wrong"], 0, "{text}\n{complaints}");
        let kept = report["fds"] - report["fds_before"];
        assert!(kept <= OWN_DESCRIPTORS, "the {} keeps {kept} descriptors: {text}", self.name);
        assert!(report["resident_kib"] <= RESIDENT_KIB, "the {} keeps memory: {text}", self.name);
        report
    }
}

impl Drop for Soak {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the threads of a process that hangs are.
fn describe(pid: u32) -> String {
    let read = |path: PathBuf| std::fs::read_to_string(path).unwrap_or_default().replace('\n', " | ");
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    tasks
        .map(|t| {
            format!(
                "    {:?}: {} {}\n",
                t.file_name(),
                read(t.path().join("wchan")),
                read(t.path().join("syscall"))
            )
        })
        .collect()
}

/// The processes that execute `program` now.
fn running(program: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir("/proc").expect("list the processes").flatten();
    all.map(|e| e.path())
        .filter(|p| std::fs::read_link(p.join("exe")).is_ok_and(|exe| exe == program))
        .collect()
}

fn program() -> PathBuf {
    // One copy for each test process: what it leaves behind can then be told from what others do.
    programs::compile(&format!("soak-{}", std::process::id()), &["soak.c"], &[])
}

fn number(variable: &str, otherwise: u64) -> u64 {
    match std::env::var(variable) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{variable}={text} is not a number")),
        Err(_) => otherwise,
    }
}

fn ours(stats: &Path, flips: Option<u64>, wrap: u64) -> HashMap<&'static str, String> {
    let mut e = HashMap::from([
        ("LD_PRELOAD", programs::library().to_string_lossy().into_owned()),
        ("BYPATH_UPGRADE", "eager".to_owned()),
        ("BYPATH_STATS", stats.to_string_lossy().into_owned()),
        ("BYPATH_TEST_WRAP", wrap.to_string()),
    ]);
    if let Some(seed) = flips {
        e.insert("BYPATH_TEST_FLIP", seed.to_string());
    }
    e
}

fn client(port: &str, connections: u64, megabytes: f64, seed: u64, mortal: bool) -> Vec<String> {
    let words = [
        "client".to_owned(),
        port.to_owned(),
        connections.to_string(),
        megabytes.to_string(),
        seed.to_string(),
        u8::from(mortal).to_string(),
    ];
    words.to_vec()
}

/// Which ends run under the library in a round.
const SIDES: [(bool, bool); 4] = [(true, true), (true, true), (true, false), (false, true)];

/// One round: a server, a client that lives, one that is killed; in every third round the server is killed.
fn round(program: &Path, stats: &Path, random: &mut Random, index: u64) -> i64 {
    let (client_ours, server_ours) = SIDES[index as usize % SIDES.len()];
    let flips = |random: &mut Random| Some(random.below(1 << 32)).filter(|_| index.is_multiple_of(2));
    // In some rounds positions wrap, somewhere in each stream.
    let wraps = |random: &mut Random| if index % 8 < 4 { 0 } else { 1 + random.below(1 << 20) };
    let plain = HashMap::new();
    let server_environment =
        if server_ours { ours(stats, flips(random), wraps(random)) } else { plain.clone() };
    let client_environment = if client_ours { ours(stats, flips(random), wraps(random)) } else { plain };
    let kill_server = index % 3 == 2;
    let (connections, doomed) = (4 + random.below(16), 1 + random.below(8));
    let expect = connections + if kill_server { u64::from(u32::MAX) } else { doomed };
    let until = Instant::now() + DEADLINE;

    let words = ["server".to_owned(), expect.to_string()];
    let mut server = Soak::start(program, "server", &words, &server_environment);
    let port = server.first_line().strip_prefix("port ").expect("the server says its port").to_owned();
    let seed = random.below(1 << 40);
    let words = client(&port, connections, 3.0, seed, kill_server);
    let mut survivor = Soak::start(program, "client", &words, &client_environment);
    assert_eq!(survivor.first_line(), "connected");
    // The moment of the kill is random on purpose; whatever it hits must be survived.
    let moment = Duration::from_micros(random.below(60_000));
    if kill_server {
        std::thread::sleep(moment);
        server.kill();
        let report = survivor.finish(until);
        assert_eq!(report["ended"], connections as i64);
        return report["verified"];
    }
    let words = client(&port, doomed, 50.0, seed + 1, true);
    let mut victim = Soak::start(program, "client to be killed", &words, &client_environment);
    assert_eq!(victim.first_line(), "connected");
    std::thread::sleep(moment);
    victim.kill();
    let client = survivor.finish(until);
    let server = server.finish(until);
    assert_eq!(client["ended"], connections as i64);
    assert_eq!(client["early"], 0, "a stream between survivors ended early");
    assert_eq!(server["ended"], (connections + doomed) as i64);
    client["verified"] + server["verified"]
}

#[test]
fn every_byte_arrives_once_whatever_is_switched_or_killed() {
    let seconds = number("BYPATH_SOAK_SECONDS", 20);
    let mut random = Random(number("BYPATH_TEST_SEED", 2));
    let program = program();
    let stats = programs::workshop().join(format!("soak-{}.stats", std::process::id()));
    let _ = std::fs::remove_file(&stats);
    programs::library();
    let end = Instant::now() + Duration::from_secs(seconds);
    let (mut rounds, mut verified) = (0, 0);
    // At least one round of each kind, however slow the machine.
    while rounds < 12 || Instant::now() < end {
        verified += round(&program, &stats, &mut random, rounds);
        rounds += 1;
    }
    let left = running(&program);
    assert!(left.is_empty(), "processes left behind: {left:?}");
    let raw = std::fs::read(&stats).unwrap_or_default();
    let ring: u64 = raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode).map(|s| s.bytes.ring_rx).sum();
    println!("{rounds} rounds, {verified} bytes verified, {ring} of them through rings");
    assert!(verified > 0);
    assert!(!programs::REQUIRE_RING || ring > 0, "nothing went through a ring");
    let _ = std::fs::remove_file(&program);
    let _ = std::fs::remove_file(&stats);
}
