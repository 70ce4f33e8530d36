//! Every road back to the kernel against each other: both ends of live streams move their bytes by all of them at
//! random, at the same time, while recalls and upgrades are asked for from outside. Each byte is told by its position.
//!
//! Rounds go on for `BYPATH_SOAK_SECONDS`, and until each road was taken often enough.

use crate::{Random, describe, number, programs, running};
use bypath_shm::reason::Reason;
use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::collections::{BTreeMap, HashMap};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const BYPATH: &str = env!("CARGO_BIN_EXE_bypath");
const SOURCES: [&str; 7] = [
    "soak_roads/main.c",
    "soak_roads/moves.c",
    "soak_roads/outward.c",
    "soak_roads/inward.c",
    "soak_roads/others.c",
    "soak_roads/waits.c",
    "soak_roads/uring.c",
];
/// No round takes as long as this unless something hangs. (Waits that should end fail after 20 s by themselves.)
const DEADLINE: Duration = Duration::from_secs(180);
/// Pairs of ends at a time.
const PAIRS: usize = 3;
/// How often each road must have been taken under the library, and on the kernel alone.
const TIMES: u64 = 10;
const TIMES_PLAIN: u64 = 1;
/// Rounds go on for as long as this where that is not so yet: a busy machine does little in the usual time.
const PATIENCE: Duration = Duration::from_secs(120);

/// For what a ring must have been taken back, at least once.
const REASONS: [Reason; 11] = [
    Reason::RecalledSplice,
    Reason::RecalledExec,
    Reason::RecalledSpawn,
    Reason::RecalledScmRights,
    Reason::RecalledTaken,
    Reason::RecalledStdio,
    Reason::RecalledOob,
    Reason::RecalledOption,
    Reason::RecalledIoUring,
    Reason::RecalledCommand,
    Reason::RecalledPeer,
];

/// What a run has done.
#[derive(Default)]
struct Tally {
    rounds: u32,
    /// How often each road was taken, and refused by the kernel.
    roads: BTreeMap<String, (u64, u64)>,
    /// Directions taken back, by reason.
    recalled: HashMap<Reason, u64>,
    ring_bytes: u64,
    kernel_bytes: u64,
    /// Requests from outside that a process took.
    asked: u64,
}

impl Tally {
    /// Roads that were taken less often than that, and not because the kernel refused them.
    fn missing(&self, times: u64) -> Vec<&str> {
        let few = self.roads.iter().filter(|(_, (taken, refused))| *taken < times && *refused == 0);
        few.map(|(name, _)| name.as_str()).collect()
    }

    fn is_enough(&self, times: u64, ours: bool) -> bool {
        let seen = |reason| self.recalled.get(reason).is_some_and(|n| *n > 0);
        self.rounds > 0
            && self.missing(times).is_empty()
            && (!ours || self.asked > 0 && REASONS.iter().all(seen))
    }
}

/// The ends of one pair: how they move their bytes, and which of them run under the library.
struct Pair {
    children: Vec<Child>,
    what: String,
}

impl Drop for Pair {
    fn drop(&mut self) {
        for child in &mut self.children {
            // With all of its movers.
            let group = rustix::process::Pid::from_child(child);
            let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            let _ = child.wait();
        }
    }
}

struct Roads<'a> {
    program: &'a Path,
    /// For who has to repeat it.
    round: String,
    file: PathBuf,
    stats: PathBuf,
}

impl Roads<'_> {
    /// Is there when an end has found something wrong.
    fn failed(&self) -> PathBuf {
        self.file.with_extension("notes.failed")
    }

    fn start(&self, words: &[String], environment: &HashMap<&'static str, String>) -> Child {
        let mut command = Command::new(self.program);
        for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
            command.env_remove(variable);
        }
        command
            .args(words)
            .env_remove("LD_PRELOAD")
            .envs(environment)
            .stdin(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("start the program")
    }

    fn environment(&self, random: &mut Random) -> HashMap<&'static str, String> {
        let mut e = HashMap::from([
            ("LD_PRELOAD", programs::library().to_string_lossy().into_owned()),
            ("BYPATH_UPGRADE", "eager".to_owned()),
            ("BYPATH_STATS", self.stats.to_string_lossy().into_owned()),
        ]);
        if random.below(2) == 0 {
            e.insert("BYPATH_TEST_FLIP", random.below(1 << 32).to_string());
        }
        e
    }

    /// Two ends, as strangers, as relatives, or in one process.
    fn pair(&self, number: usize, random: &mut Random, ours: bool, connections: u64) -> Pair {
        let topology = ["end", "end", "end", "kin", "both"][random.below(5) as usize];
        let mut threads = || u64::from(topology == "both" || random.below(2) == 0);
        let (t0, t1) = (threads(), threads());
        let helps = random.below(3);
        let sides = match (ours, topology) {
            (false, _) => [false, false],
            (true, "end") => [[true, true], [true, true], [true, true], [true, false], [false, true]]
                [random.below(5) as usize],
            (true, _) => [true, true],
        };
        let words = |side: usize| {
            let plain = u64::from(!sides[side]);
            let mut words = vec![topology.to_owned(), self.file.to_string_lossy().into_owned()];
            let numbers = [number as u64, t0, t1, helps, plain, connections, 60];
            words.extend(numbers.map(|n| n.to_string()));
            if topology == "end" {
                words.push(side.to_string());
            }
            words
        };
        let ends = if topology == "end" { 2 } else { 1 };
        let mut children = Vec::new();
        for (side, is_ours) in sides.iter().enumerate().take(ends) {
            let environment = if *is_ours { self.environment(random) } else { HashMap::new() };
            children.push(self.start(&words(side), &environment));
        }
        Pair { children, what: words(0)[2..].join(" ") + &format!(" {topology} {sides:?}") }
    }

    /// What the ends have noted of themselves.
    fn report(&self) -> String {
        let output = Command::new(self.program).arg("report").arg(&self.file).output().expect("the report");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// How everything stands when something went wrong: what the library says of live ends, where they wait, what they did.
    fn states(&self, pairs: &[Pair]) -> String {
        let mut text = self.round.clone();
        for pair in pairs {
            text += &format!("\n{}\n", pair.what);
            for pid in pair.children.iter().map(Child::id) {
                let output =
                    Command::new(BYPATH).args(["why", &pid.to_string()]).output().expect("run bypath");
                let why = String::from_utf8_lossy(&output.stdout);
                text += &format!("  process {pid}\n{why}{}", describe(pid));
            }
        }
        text + "\n" + &self.report()
    }

    fn add_to(&self, tally: &mut Tally) {
        for line in self.report().lines().filter(|line| line.starts_with("road\t")) {
            let fields: Vec<&str> = line.split('\t').collect();
            let of = tally.roads.entry(fields[1].to_owned()).or_default();
            of.0 += fields[2].parse::<u64>().expect("a number");
            of.1 += fields[3].parse::<u64>().expect("a number");
        }
        let raw = std::fs::read(&self.stats).unwrap_or_default();
        for snapshot in raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode) {
            tally.ring_bytes += snapshot.bytes.ring_rx;
            tally.kernel_bytes += snapshot.bytes.kernel_rx;
            for reason in Reason::ALL {
                *tally.recalled.entry(*reason).or_default() += snapshot.recalled[*reason as usize];
            }
        }
        let _ = std::fs::remove_file(&self.stats);
    }

    /// Waits until all are done, while somebody asks for recalls and upgrades.
    fn watch(&self, pairs: &mut [Pair], random: &mut Random, tally: &mut Tally, ours: bool) {
        let until = Instant::now() + DEADLINE;
        let mut left: Vec<u32> = pairs.iter().flat_map(|p| p.children.iter().map(Child::id)).collect();
        while !left.is_empty() {
            assert!(!self.failed().exists(), "it failed: {}", self.states(pairs));
            // The moment is random on purpose; whatever it hits must be survived.
            std::thread::sleep(Duration::from_millis(1 + random.below(20)));
            for pair in &mut *pairs {
                for child in &mut pair.children {
                    let Some(status) = child.try_wait().expect("wait") else { continue };
                    assert!(status.success(), "{} {}: {status}\n{}", self.round, pair.what, self.report());
                    left.retain(|pid| *pid != child.id());
                }
            }
            assert!(Instant::now() < until, "it hangs: {}", self.states(pairs));
            if ours && !left.is_empty() {
                let pid = left[random.below(left.len() as u64) as usize];
                tally.asked += u64::from(ask(pid, random));
            }
        }
    }

    fn round(&self, random: &mut Random, tally: &mut Tally, ours: bool, connections: u64) {
        let seed = random.below(1 << 40);
        let created = Command::new(self.program).arg("create").arg(&self.file).arg(seed.to_string()).status();
        assert!(created.expect("the file").success());
        let mut pairs: Vec<Pair> = (0..PAIRS).map(|n| self.pair(n, random, ours, connections)).collect();
        self.watch(&mut pairs, random, tally, ours);
        self.add_to(tally);
        tally.rounds += 1;
    }
}

/// Asks a process to take back, or to bring up, everything that it has or one descriptor; whether it was reached.
fn ask(pid: u32, random: &mut Random) -> bool {
    let what = if random.below(2) == 0 { "recall" } else { "upgrade" };
    let of = if random.below(2) == 0 { String::new() } else { format!(":{}", 4 + random.below(4)) };
    let status = Command::new(BYPATH)
        .args([what, &format!("{pid}{of}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    status.expect("run bypath").success()
}

fn program(test: &str) -> PathBuf {
    programs::compile(&format!("soak-roads-{test}-{}", std::process::id()), &SOURCES, &[])
}

/// A road that could not be taken here is named, and counted as skipped.
fn skip(test: &str, road: &str) {
    let (name, reason) = (format!("soak::roads::{test}"), format!("the kernel refuses {road}"));
    eprintln!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        use std::io::Write;
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list");
        file.write_all(format!("{name}: {road}\t{reason}\n").as_bytes()).expect("the list");
    }
}

/// Rounds for that long, and until everything was done `times` times.
fn rounds(test: &str, ours: bool, span: Duration, times: u64, connections: u64) -> Tally {
    let seed = number("BYPATH_TEST_SEED", 3);
    let mut random = Random(seed);
    let program = program(test);
    let place = |kind: &str| programs::workshop().join(format!("soak-{test}-{}.{kind}", std::process::id()));
    let mut roads =
        Roads { program: &program, round: String::new(), file: place("notes"), stats: place("stats") };
    let _ = std::fs::remove_file(&roads.stats);
    let _ = std::fs::remove_file(roads.failed());
    let begin = Instant::now();
    let mut tally = Tally::default();
    while begin.elapsed() < span || !tally.is_enough(times, ours) && begin.elapsed() < PATIENCE {
        roads.round = format!("round {} of seed {seed}", tally.rounds);
        roads.round(&mut random, &mut tally, ours, connections);
    }
    // Helpers end when they hear that their ends have.
    let until = Instant::now() + Duration::from_secs(10);
    while !running(&program).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert!(running(&program).is_empty(), "processes left behind: {:?}", running(&program));
    for (road, _) in tally.roads.iter().filter(|(_, (taken, refused))| *taken < times && *refused > 0) {
        skip(test, road);
    }
    assert!(tally.missing(times).is_empty(), "taken less than {times} times: {:?}", tally.missing(times));
    let _ = std::fs::remove_file(&program);
    let _ = std::fs::remove_file(&roads.file);
    tally
}

#[test]
fn every_road_is_taken_on_the_kernel_alone() {
    // What the program expects is what the kernel does.
    let tally = rounds("plain", false, Duration::from_secs(3), TIMES_PLAIN, 4);
    println!("{} rounds on the kernel", tally.rounds);
}

#[test]
fn every_road_back_is_taken_while_others_are() {
    programs::library();
    let span = Duration::from_secs(number("BYPATH_SOAK_SECONDS", 22));
    let tally = rounds("ours", true, span, TIMES, 8);
    println!(
        "{} rounds, {} bytes through rings, {} by the kernel, {} requests from outside",
        tally.rounds, tally.ring_bytes, tally.kernel_bytes, tally.asked
    );
    for (road, (taken, refused)) in &tally.roads {
        println!("{road}: {taken} times, refused {refused} times");
    }
    let mut recalled: Vec<_> = tally.recalled.iter().filter(|(_, n)| **n > 0).collect();
    recalled.sort_by_key(|(reason, _)| reason.code());
    for (reason, times) in recalled {
        println!("{}: {times} directions", reason.code());
    }
    if programs::REQUIRE_RING {
        assert!(tally.ring_bytes > 0, "nothing went through a ring");
        assert!(tally.asked > 0, "nobody heard a request");
        for reason in REASONS {
            let times = tally.recalled.get(&reason).copied().unwrap_or(0);
            assert!(times > 0, "no ring was ever {}", reason.code());
        }
    }
}
