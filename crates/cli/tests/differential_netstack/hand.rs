//! Checking the hand-written scripts of one file, and telling which were left out.

use crate::script::{Step, parse};
use crate::stage::Stage;
use crate::{known, network};
use bypath::tun::Device;
use bypath_sys::netns;
use std::collections::BTreeMap;
use std::io::Write;
use std::process::Command;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Whether a script's bytes can be on a ring of the same host, which there is none of here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// They can.
    Ring,
    /// They cannot.
    Either,
}

/// A hand-written script.
#[derive(Debug)]
pub struct Script {
    /// The behaviour.
    pub name: &'static str,
    /// Which promise it checks.
    pub covers: &'static str,
    /// Whether it is about rings.
    pub expect: Expect,
    /// The steps.
    pub text: &'static str,
}

/// Declares the list of scripts of a file.
macro_rules! scripts {
    (over $over:ident; $($name:ident, $covers:literal, $expect:ident: $text:literal;)*) => {
        $crate::hand::scripts! { $($name, $covers, $expect: $text;)* }
    };
    ($($name:ident, $covers:literal, $expect:ident: $text:literal;)*) => {
        /// Every script of this file.
        pub const SCRIPTS: &[$crate::hand::Script] = &[$($crate::hand::Script {
            name: stringify!($name),
            covers: $covers,
            expect: $crate::hand::Expect::$expect,
            text: $text,
        },)*];
    };
}
pub(crate) use scripts;

/// The scripts of a file, and whether they run over TAP devices, too: what is there beside the link is the same for all.
type File = (&'static str, &'static [Script], bool);

const STREAMS: &[File] = &[
    ("calls", crate::calls::SCRIPTS, true),
    ("data", crate::data::SCRIPTS, false),
    ("ends", crate::ends::SCRIPTS, false),
    ("epoll", crate::epoll::SCRIPTS, false),
    ("inherited", crate::inherited::SCRIPTS, false),
    ("narrow", crate::narrow::SCRIPTS, false),
    ("own", crate::own::SCRIPTS, true),
    ("pressure", crate::pressure::SCRIPTS, false),
    ("readiness", crate::readiness::SCRIPTS, true),
    ("recall", crate::recall::SCRIPTS, false),
    ("sockets", crate::sockets::SCRIPTS, false),
    ("urgent", crate::urgent::SCRIPTS, true),
    ("waiting", crate::waiting::SCRIPTS, false),
];
const DATAGRAMS: &[File] = &[
    ("datagrams: calls", crate::udp_calls::SCRIPTS, true),
    ("datagrams: names", crate::udp_names::SCRIPTS, false),
    ("datagrams: options", crate::udp_options::SCRIPTS, false),
    ("datagrams: order", crate::udp_order::SCRIPTS, false),
    ("datagrams: waiting", crate::udp_waiting::SCRIPTS, true),
];
/// Where processors are shared, a machine that stands still for a moment is no news: so many scripts may differ in one run and
/// not in the next, and so many may be answered differently by the kernel itself.
const MOST_UNSTEADY: usize = 4;
/// Of a hundred scripts, so many are compared at least: of streams, and of datagrams, many of which are about one host.
const LEAST_COMPARED: usize = 75;
const LEAST_DATAGRAMS: usize = 50;
/// Scripts that run side by side: most of a run is waiting.
const WORKERS: usize = 3;

enum Outcome {
    Equal,
    /// It is not compared, and why.
    LeftOut(String),
    /// The kernel has answered differently from itself, and how.
    Undecided(String),
    /// It has differed, and not when it ran once more; the first time.
    Unsteady(String),
    Differs(Vec<String>),
}

/// Whether TAP devices can be made; tells the closing summary where they cannot.
pub fn has_taps(test: &str) -> bool {
    match Device::tap("probe%d").open() {
        Ok(_) => true,
        Err(e) => {
            network::skip(&format!("differential_netstack {test} over TAP"), &format!("no TAP devices: {e}"));
            false
        }
    }
}

/// Runs `body` in a process in namespaces of its own, as `network::in_namespace`, but what it tells is heard.
pub fn alone(path: &str, body: impl FnOnce()) {
    const INSIDE: &str = "BYPATH_TEST_NAMESPACE";
    let name = path.split_once("::").map_or(path, |(_, name)| name);
    if std::env::var_os(INSIDE).is_some_and(|inside| inside == name) {
        return body();
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args([name, "--exact", "--nocapture", "--test-threads=1"]).env(INSIDE, name);
    match netns::isolated(&mut command).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let told = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success() && text.contains("1 passed"), "{text}{told}");
            tell(&told);
            // A part that was left out inside.
            text.lines()
                .filter(|line| line.starts_with("skipped: "))
                .for_each(|line| tell(&format!("{line}\n")));
        }
        Err(e) => network::skip(
            &format!("differential_netstack {name}"),
            &format!("no user and network namespaces: {e}"),
        ),
    }
}

/// Past libtest, which keeps what tests that pass have printed.
pub fn tell(text: &str) {
    let _ = std::io::stderr().write_all(text.as_bytes());
}

#[test]
fn every_script_answers_as_the_kernels_do() {
    alone(concat!(module_path!(), "::every_script_answers_as_the_kernels_do"), || {
        check(STREAMS, LEAST_COMPARED);
    });
}

#[test]
fn every_script_of_datagrams_answers_as_the_kernels_do() {
    alone(concat!(module_path!(), "::every_script_of_datagrams_answers_as_the_kernels_do"), || {
        check(DATAGRAMS, LEAST_DATAGRAMS);
    });
}

/// Runs the scripts, or those whose names contain `BYPATH_TEST_SCRIPT`, as often as `BYPATH_TEST_TIMES` says; what differs fails, what is left out is
/// told.
fn check(files: &[File], least: usize) {
    let only = std::env::var("BYPATH_TEST_SCRIPT").unwrap_or_default();
    let all = || {
        files
            .iter()
            .flat_map(|(file, scripts, taps)| scripts.iter().map(move |script| (*file, script, *taps)))
    };
    let times = std::env::var("BYPATH_TEST_TIMES").map_or(1, |times| times.parse().expect("a number"));
    let todo: Vec<_> =
        (0..times).flat_map(|_| all().filter(|(_, script, _)| script.name.contains(&only))).collect();
    let stage = Stage::new(has_taps("scripts"));
    let (next, outcomes) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((file, script, taps)) = todo.get(next.fetch_add(1, Relaxed)) {
            let outcome = outcome(&stage, script, *taps);
            outcomes.lock().expect("no other panics").push((*file, *script, outcome));
        }
    };
    std::thread::scope(|scope| (0..WORKERS).for_each(|_| drop(scope.spawn(work))));
    let outcomes = outcomes.into_inner().expect("nobody panicked");
    assert_eq!(outcomes.len(), todo.len());
    let (mut differ, mut unsteady, mut compared) = (Vec::new(), 0, 0);
    for (name, ..) in files {
        let of_file = outcomes.iter().filter(|(file, ..)| file == name);
        let (mut equal, mut left) = (0, BTreeMap::<&str, Vec<&str>>::new());
        for (_, script, outcome) in of_file {
            match outcome {
                Outcome::Equal => equal += 1,
                Outcome::LeftOut(why) => left.entry(why).or_default().push(script.name),
                Outcome::Undecided(why) | Outcome::Unsteady(why) => {
                    unsteady += 1;
                    left.entry(why).or_default().push(script.name);
                }
                Outcome::Differs(how) => differ.extend(how.iter().map(|how| {
                    format!("{name}: {} ({}, {:?}) {how}\n", script.name, script.covers, script.expect)
                })),
            }
        }
        compared += equal;
        let count: usize = left.values().map(Vec::len).sum();
        let left: String =
            left.iter().map(|(why, names)| format!("    {why}: {}\n", names.join(" "))).collect();
        tell(&format!("{name}: {equal} scripts are equal, {count} not\n{left}"));
    }
    assert!(differ.is_empty(), "{} differences\n{}", differ.len(), differ.join("\n"));
    assert!(
        unsteady <= MOST_UNSTEADY,
        "{unsteady} scripts are not decided, or unsteady (at most {MOST_UNSTEADY})"
    );
    assert!(!only.is_empty() || compared * 100 >= todo.len() * least, "{compared} scripts were compared");
    stage.end();
}

fn outcome(stage: &Stage, script: &Script, over_tap: bool) -> Outcome {
    let mut steps = known::adapted(parse(script.text));
    steps.extend(["c", "s"].map(|end| Step::new(end, "fds")));
    if let Some(why) = known::reason(script.name, &steps) {
        return Outcome::LeftOut(why);
    }
    let expected = match stage.record(&steps) {
        Ok(expected) => expected,
        Err(why) => return Outcome::LeftOut(format!("over a link the kernel cannot: {why}")),
    };
    let short = |how: &str| {
        how.lines().skip_while(|line| !line.starts_with("-->")).take(3).collect::<Vec<_>>().join(" ")
    };
    let mut first = None;
    for _ in 0..2 {
        let mut differences = stage.compare(&steps, &expected, over_tap).into_iter();
        if let Some(how) = differences.next().flatten() {
            return Outcome::Undecided(format!("the kernel is not equal to itself: {}", short(&how)));
        }
        let differences: Vec<_> = differences.flatten().collect();
        match (differences.first(), first.take()) {
            (None, None) => return Outcome::Equal,
            (None, Some(how)) => return Outcome::Unsteady(how),
            (Some(_), Some(_)) => return Outcome::Differs(differences),
            (Some(how), None) => {
                let which = how.lines().next().unwrap_or_default();
                first = Some(format!("{which} once, and not again: {}", short(how)));
            }
        }
    }
    unreachable!("the second run decides")
}
