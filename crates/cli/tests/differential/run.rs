//! Running a script on two agents, and comparing the run with the kernel's.

use super::link;
use super::process::{Agent, Answer};
use super::script::{Names, Step};
use crate::programs;
use bypath_shm::stats::{Bytes, RECORD_SIZE, StatsSnapshot};
use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// How long an observation may lag behind what the kernel showed.
const LAG: Duration = Duration::from_secs(2);

/// What one end runs under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Under {
    /// The kernel alone.
    Plain,
    /// The library, upgrading at the first byte.
    Eager,
    /// The library with its defaults.
    Lazy,
    /// The library, with upgrades and recalls forced at random; the agent is compiled with _FORTIFY_SOURCE.
    Flips(u64),
    /// Our TCP/IP stack, by the plug-in's table of functions.
    Stack,
    /// Our TCP/IP stack in a netstack service, by the library.
    Netstack,
}

/// What the two ends run under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Combination {
    /// The client end.
    pub client: Under,
    /// The server end.
    pub server: Under,
    /// What connects them.
    pub over: Over,
}

/// The kind of connection that carries a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Over {
    /// TCP, as the script says.
    Tcp,
    /// The same where send buffers cannot be made wider.
    Narrow,
    /// AF_UNIX streams in place of TCP connections, abstract names in place of addresses.
    Unix,
    /// TCP over a link: each end is a host of its own. See `agent/link.c`.
    Link,
    /// The same with buffers for megabytes.
    WideLink,
    /// TCP between two hosts that the tests made, with their agents.
    Hosts,
    /// UDP on one host, where what was sent is there, or lost, before the call returns: no observation may lag.
    Datagrams,
}

impl Combination {
    /// The specification.
    pub const KERNEL: Combination =
        Combination { client: Under::Plain, server: Under::Plain, over: Over::Tcp };

    /// Whether both ends can use a ring.
    pub fn both_ours(self) -> bool {
        self.client != Under::Plain && self.server != Under::Plain
    }
}

/// Every combination that is compared with the kernel; with `BYPATH_TEST_COMBINATIONS=rings` only those that are on
/// rings from the first byte.
pub fn combinations(seed: u64, over: Over) -> Vec<Combination> {
    let both = |under| Combination { client: under, server: under, over };
    if on_rings_alone() {
        return vec![both(Under::Eager), both(Under::Flips(seed))];
    }
    vec![
        both(Under::Eager),
        Combination { client: Under::Eager, server: Under::Plain, over },
        Combination { client: Under::Plain, server: Under::Eager, over },
        both(Under::Flips(seed)),
        both(Under::Lazy),
    ]
}

/// Whether only [`combinations`] on rings are wanted.
pub fn on_rings_alone() -> bool {
    std::env::var_os("BYPATH_TEST_COMBINATIONS").is_some_and(|v| v == "rings")
}

/// The agent program, compiled once: plainly, or with _FORTIFY_SOURCE (`__recv_chk` and the like).
pub fn agent_program(fortified: bool) -> &'static Path {
    static PROGRAMS: OnceLock<[PathBuf; 2]> = OnceLock::new();
    let sources = [
        "agent.c",
        "sockets.c",
        "data.c",
        "ready.c",
        "process.c",
        "bad.c",
        "stdio.c",
        "told.c",
        "datagrams.c",
    ];
    let programs = PROGRAMS.get_or_init(|| {
        let plain = programs::compile("agent", &sources, &["-U_FORTIFY_SOURCE"]);
        let fortified =
            programs::compile("agent-fortified", &sources, &["-U_FORTIFY_SOURCE", "-D_FORTIFY_SOURCE=2"]);
        let image = std::fs::read(&fortified).expect("read the fortified agent");
        for twin in ["__recv_chk", "__recvfrom_chk", "__read_chk", "__poll_chk", "__ppoll_chk"] {
            assert!(
                image.windows(twin.len()).any(|w| w == twin.as_bytes()),
                "the fortified agent does not call {twin}"
            );
        }
        [plain, fortified]
    });
    &programs[usize::from(fortified)]
}

/// What an agent says of the library.
fn loads(under: Under) -> String {
    if matches!(under, Under::Plain | Under::Stack) { "plain" } else { "preloaded" }.to_owned()
}

fn program_of(over: Over, under: Under) -> &'static Path {
    match over {
        Over::Link | Over::WideLink => link::program(),
        _ => agent_program(matches!(under, Under::Flips(_))),
    }
}

/// Two running agents and everything they started.
pub struct Pair {
    combination: Combination,
    dir: PathBuf,
    agents: BTreeMap<String, Agent>,
    /// Which of the two ends a process has come from, if it is none of them.
    from: HashMap<String, String>,
    names: Names,
}

/// The first difference of a run.
#[derive(Debug)]
pub struct Difference {
    /// Index of the step.
    pub step: usize,
    /// What the kernel answered.
    pub expected: String,
    /// What came.
    pub got: String,
}

impl Pair {
    /// Starts both agents.
    pub fn start(combination: Combination) -> Pair {
        Pair::with(combination, |end, under, dir| {
            let program = program_of(combination.over, under);
            let mut set = environment(under, combination.over, dir);
            if matches!(combination.over, Over::Link | Over::WideLink) {
                let wide = combination.over == Over::WideLink;
                set.extend(link::environment(end, under == Under::Stack, wide, dir));
            }
            Agent::start(program, &set, &dir.join(format!("{end}.stderr")))
        })
    }

    /// Two agents as `start` starts them: for an end, what it runs under, and the run's directory.
    pub fn with(combination: Combination, start: impl Fn(&str, Under, &Path) -> Agent) -> Pair {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("run-{}-{:05}", std::process::id(), COUNT.fetch_add(1, Relaxed));
        let dir = programs::workshop().join(name);
        std::fs::create_dir_all(&dir).expect("create the run's directory");
        let mut agents = BTreeMap::new();
        for (end, under) in [("c", combination.client), ("s", combination.server)] {
            let mut agent = start(end, under, &dir);
            let loaded = agent.ask("preloaded");
            assert_eq!(loaded, Answer::Line(loads(under)), "the agent of end {end}, under {under:?}");
            agents.insert(end.to_owned(), agent);
        }
        Pair { combination, dir, agents, from: HashMap::new(), names: Names::default() }
    }

    /// Runs one step; the answer is normalised.
    pub fn step(&mut self, step: &Step) -> String {
        if step.end.is_empty() {
            return self.drive(&step.command);
        }
        let command = match self.combination.over {
            Over::Link | Over::WideLink | Over::Hosts => {
                link::addresses(&step.end, &step.command, |end| self.host(end).to_owned())
            }
            _ => step.command.clone(),
        };
        let Some(command) = self.substitute(&command) else {
            return format!("! cannot substitute in {step}");
        };
        let Some(agent) = self.agents.get_mut(&step.end) else {
            // The closing look at the descriptors also comes to ends that the script has ended.
            if step.command == "fds" && matches!(step.end.as_str(), "c" | "s") {
                return "gone".to_owned();
            }
            return format!("! no end called {}", step.end);
        };
        match agent.ask(&command) {
            Answer::Line(line) => {
                if let Some(pid) = line.strip_prefix("child pid=") {
                    let name = step.command.split(' ').nth(1).unwrap_or("?");
                    let program = program_of(self.combination.over, self.combination.client);
                    let pid = pid.parse().expect("a process id");
                    match Agent::adopt(program, &self.dir.join(name), pid) {
                        Some(child) => {
                            let host = self.host(&step.end).to_owned();
                            self.from.insert(name.to_owned(), host);
                            self.agents.insert(name.to_owned(), child);
                        }
                        None => return format!("! child {name} never came"),
                    }
                }
                self.names.normalise(&line)
            }
            Answer::Died(status) => {
                // A process that an agent started is waited for by that agent.
                self.agents.remove(&step.end);
                format!("died: {status}")
            }
            Answer::Hung => "HANGS".to_owned(),
        }
    }

    /// The end whose host a process is on.
    fn host<'a>(&'a self, end: &'a str) -> &'a str {
        self.from.get(end).map_or(end, String::as_str)
    }

    fn drive(&mut self, command: &str) -> String {
        let (verb, end) = command.split_once(' ').unwrap_or((command, ""));
        let Some(agent) = self.agents.get(end) else { return format!("! no end called {end}") };
        agent.signal(if verb == "stop" { "STOP" } else { "CONT" });
        let until = Instant::now() + LAG;
        while agent.is_stopped() != (verb == "stop") && Instant::now() < until {
            std::thread::yield_now();
        }
        verb.to_owned()
    }

    /// Puts ports, process ids and paths into a command.
    fn substitute(&mut self, command: &str) -> Option<String> {
        let mut words: Vec<String> = command.split(' ').map(str::to_owned).collect();
        if matches!(words[0].as_str(), "fork" | "spawn") && words.len() > 1 {
            words[1] = self.dir.join(&words[1]).to_string_lossy().into_owned();
        }
        for word in &mut words {
            if let Some(at) = word.find("%port:").or_else(|| word.find("%peer:")) {
                let (end, fd) = word[at + 6..].split_once(':')?;
                let verb = &word[at + 1..at + 5];
                let Answer::Line(port) = self.agents.get_mut(end)?.ask(&format!("{verb} {fd}")) else {
                    return None;
                };
                *word = format!("{}{port}", &word[..at]);
            } else if let Some(end) = word.strip_prefix("%pid:") {
                *word = self.agents.get(end)?.pid().to_string();
            }
        }
        Some(words.join(" "))
    }

    /// Runs the steps and records every answer.
    pub fn record(&mut self, steps: &[Step]) -> Vec<String> {
        let mut answers = Vec::with_capacity(steps.len());
        for step in steps {
            let answer = self.step(step);
            let stop = answer == "HANGS";
            answers.push(answer);
            if stop {
                break;
            }
        }
        answers
    }

    /// Runs the steps and compares with what the kernel answered. Observations of news from the other end
    /// may lag (TCP promises no time), so they are repeated until they agree or are late.
    pub fn compare(&mut self, steps: &[Step], expected: &[String]) -> Result<(), Difference> {
        self.compare_but(steps, expected, |_, _, _| false)
    }

    /// The same, but for differences that `is_known` by the command, what the kernel answered, and what came.
    pub fn compare_but(
        &mut self,
        steps: &[Step],
        expected: &[String],
        is_known: impl Fn(&str, &str, &str) -> bool,
    ) -> Result<(), Difference> {
        for (index, (step, expected)) in steps.iter().zip(expected).enumerate() {
            let mut got = self.step(step);
            let until = Instant::now() + LAG;
            // What is counted is read: the rest is what comes later.
            while self.combination.over == Over::Hosts
                && let Some(missing) = fewer(&step.command, expected, &got)
                && Instant::now() < until
            {
                std::thread::yield_now();
                got = more(&got, missing, &self.step(step));
            }
            let mut seen = Events::default();
            let mut pause = Duration::from_micros(50);
            while got != *expected
                && !is_known(&step.command, expected, &got)
                && (self.combination.over != Over::Datagrams || step.command.starts_with("epoll_edges"))
                && may_lag(&step.command, expected, &got, &mut seen)
                && Instant::now() < until
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(5));
                got = self.step(step);
                if seen.complete(&step.command, expected, &got) {
                    got.clone_from(expected);
                }
            }
            if got != *expected && !is_known(&step.command, expected, &got) {
                return Err(Difference { step: index, expected: expected.clone(), got });
            }
        }
        Ok(())
    }

    /// Brings long-lived agents back to the state after their start.
    pub fn reset(&mut self) -> Result<(), String> {
        self.names = Names::default();
        self.from.clear();
        self.agents.retain(|name, _| name == "c" || name == "s");
        // Named pipes of processes that a script began.
        for entry in std::fs::read_dir(&self.dir).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|end| end == "in" || end == "out") {
                let _ = std::fs::remove_file(path);
            }
        }
        for (end, under) in [("c", self.combination.client), ("s", self.combination.server)] {
            // It may have executed itself without the library.
            for (command, right) in [("reset", "ready".to_owned()), ("preloaded", loads(under))] {
                let answer = self.agents.get_mut(end).map(|a| a.ask(command));
                if answer != Some(Answer::Line(right)) {
                    return Err(format!("end {end} cannot go on: {answer:?}"));
                }
            }
        }
        Ok(())
    }

    /// Ends both agents in order and reads their counters: totals over all processes of the run.
    pub fn finish(mut self) -> Result<Bytes, String> {
        for end in ["c", "s"] {
            if let Some(mut agent) = self.agents.remove(end) {
                match agent.ask("exit 0") {
                    Answer::Died(status) if status == "exit 0" => {}
                    other => return Err(format!("end {end} does not exit: {other:?}")),
                }
            }
        }
        let bytes = ring_bytes(&self.dir.join("stats"));
        Ok(bytes)
    }

    /// What the agents and the library wrote to standard error.
    pub fn complaints(&self) -> String {
        let read = |end| std::fs::read_to_string(self.dir.join(format!("{end}.stderr"))).unwrap_or_default();
        format!("{}{}", read("c"), read("s"))
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        self.agents.clear();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

fn environment(under: Under, over: Over, dir: &Path) -> HashMap<String, String> {
    let mut e = HashMap::new();
    if over == Over::Unix {
        let run = dir.file_name().expect("the run's directory has a name").to_string_lossy();
        e.insert("AGENT_UNIX".to_owned(), format!("bypath-test/{run}"));
        e.insert("BYPATH_TEST_UNIX".to_owned(), "1".to_owned());
    }
    if matches!(under, Under::Plain | Under::Stack | Under::Netstack) {
        return e;
    }
    if over == Over::Narrow {
        e.insert("BYPATH_TEST_NARROW".to_owned(), "1".to_owned());
    }
    let mut set = |name: &str, value: String| drop(e.insert(name.to_owned(), value));
    set("LD_PRELOAD", programs::library().to_string_lossy().into_owned());
    set("BYPATH_STATS", dir.join("stats").to_string_lossy().into_owned());
    match under {
        Under::Plain | Under::Lazy | Under::Stack | Under::Netstack => {}
        Under::Eager => set("BYPATH_UPGRADE", "eager".to_owned()),
        Under::Flips(seed) => {
            set("BYPATH_UPGRADE", "eager".to_owned());
            set("BYPATH_TEST_FLIP", seed.to_string());
        }
    }
    e
}

/// The sum of the byte counters of all records in a statistics file.
pub fn ring_bytes(file: &Path) -> Bytes {
    let mut sum = Bytes::default();
    let raw = std::fs::read(file).unwrap_or_default();
    for record in raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode) {
        sum.ring_tx += record.bytes.ring_tx;
        sum.ring_rx += record.bytes.ring_rx;
        sum.kernel_tx += record.bytes.kernel_tx;
        sum.kernel_rx += record.bytes.kernel_rx;
    }
    sum
}

/// What `count FD` says: how many there were.
fn counted(answer: &str) -> Option<u32> {
    answer.split_once(" from ")?.0.parse().ok()
}

/// How many fewer than expected were counted at one descriptor.
fn fewer(command: &str, expected: &str, got: &str) -> Option<u32> {
    command.strip_prefix("count ").filter(|rest| !rest.contains(' '))?;
    counted(expected)?.checked_sub(counted(got)?).filter(|missing| *missing > 0)
}

/// The count once more have come: as one that was made later.
fn more(got: &str, missing: u32, later: &str) -> String {
    match (counted(got), counted(later)) {
        (Some(before), Some(now)) if now > 0 && now <= missing => format!("{} from 1", before + now),
        (Some(_), Some(0)) => got.to_owned(),
        _ => format!("{got}, then {later}"),
    }
}

/// Whether `got` can be the same observation, made too early.
fn may_lag(command: &str, expected: &str, got: &str, seen: &mut Events) -> bool {
    let words: Vec<&str> = command.split(' ').collect();
    match words[0] {
        "poll" | "ppoll" | "select" | "pselect" => words.get(1) == Some(&"0"),
        "epoll_wait" | "epoll_pwait" | "epoll_pwait2" => {
            words.get(3) == Some(&"0") && seen.add(expected, got)
        }
        // Edges may come with others, and more often: what is expected must be among them.
        "epoll_edges" => seen.gather(got),
        "fionread" | "outq" | "atmark" => true,
        "copied" => got.contains("copied=0 "),
        // The end of the connection is news, too.
        "shutdown" | "getpeername" => expected.starts_with("-1 ENOTCONN"),
        "getsockopt" => words.get(2) == Some(&"error") && got.ends_with(" 0"),
        _ => got.starts_with("-1 EAGAIN") && !expected.starts_with("-1 EAGAIN"),
    }
}

/// Events of repeated epoll_wait calls, put together: an edge is reported once, so a repetition must not
/// forget what the first call said.
#[derive(Debug, Default)]
struct Events {
    union: BTreeMap<String, Vec<String>>,
}

impl Events {
    fn parse(line: &str) -> BTreeMap<String, Vec<String>> {
        let words = line.split(' ').skip(2).filter_map(|word| word.split_once(':'));
        words.map(|(data, bits)| (data.to_owned(), bits.split('|').map(str::to_owned).collect())).collect()
    }

    /// Takes up the events of `got`; false when one of them is not expected at all.
    fn add(&mut self, expected: &str, got: &str) -> bool {
        let expected = Self::parse(expected);
        for (data, bits) in Self::parse(got) {
            let Some(allowed) = expected.get(&data) else { return false };
            let known = self.union.entry(data).or_default();
            for bit in bits {
                if !allowed.contains(&bit) {
                    return false;
                }
                if !known.contains(&bit) {
                    known.push(bit);
                }
            }
        }
        true
    }

    /// Takes up the events of `got`, whatever they are.
    fn gather(&mut self, got: &str) -> bool {
        for (data, bits) in Self::parse(got) {
            self.union.entry(data).or_default().extend(bits);
        }
        true
    }

    /// Whether everything expected was reported over the repetitions, the last of which said `got`.
    fn complete(&mut self, command: &str, expected: &str, got: &str) -> bool {
        if command.starts_with("epoll_edges") {
            self.gather(got);
            let known = |data: &String, bit: &String| self.union.get(data).is_some_and(|b| b.contains(bit));
            return Self::parse(expected).iter().all(|(data, bits)| {
                // The end of a connection is the kernel's to report: its edge leaves out the room of a ring.
                let end = bits.iter().any(|bit| ["rdhup", "hup", "err"].contains(&bit.as_str()));
                bits.iter().all(|bit| end && bit == "out" || known(data, bit))
            });
        }
        if self.union.is_empty() || !self.add(expected, got) {
            return false;
        }
        let wanted = Self::parse(expected);
        wanted.len() == self.union.len()
            && wanted.iter().all(|(data, bits)| self.union[data].len() == bits.len())
    }
}
