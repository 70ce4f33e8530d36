//! Signals and cancellation (docs/signals.md): one program, agent/signals.c, runs on the kernel and on rings, and must
//! say the same.

#[path = "agent/programs.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod programs;

use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::sync::{Mutex, OnceLock};

fn program() -> &'static PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| programs::compile("signals", &["signals.c"], &[]))
}

fn run(test: &str, environment: &[(&str, &str)]) -> Output {
    let mut command = Command::new(program());
    for (variable, _) in std::env::vars().filter(|(variable, _)| variable.starts_with("BYPATH_")) {
        command.env_remove(variable);
    }
    // The program ends itself if it hangs.
    command.arg(test).envs(environment.iter().copied()).output().expect("run the program")
}

fn said(what: &str, output: &Output) -> String {
    let complaints = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{what}: {}\n{text}\n{complaints}", output.status);
    text
}

/// What `test` says without the library.
fn on_the_kernel(test: &str) -> String {
    static SAID: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    if let Some(text) = SAID.lock().expect("no test panics here").get(test) {
        return text.clone();
    }
    let text = said("on the kernel", &run(test, &[]));
    SAID.lock().expect("no test panics here").insert(test.to_owned(), text.clone());
    text
}

/// Runs `test` both ways, with more settings on rings.
#[track_caller]
fn same_with(test: &str, settings: &[(&str, &str)]) {
    let kernel = on_the_kernel(test);
    let name: String = settings.iter().map(|(_, value)| *value).collect();
    let stats = programs::workshop().join(format!("signals-{test}-{name}-{}.stats", std::process::id()));
    let library = programs::library().to_str().expect("a plain path");
    let mut environment = vec![
        ("LD_PRELOAD", library),
        ("BYPATH_UPGRADE", "eager"),
        ("BYPATH_STATS", stats.to_str().expect("a plain path")),
    ];
    environment.extend_from_slice(settings);
    let output = run(test, &environment);
    let raw = std::fs::read(&stats).unwrap_or_default();
    let _ = std::fs::remove_file(&stats);
    let rings = said("on rings", &output);
    assert_eq!(kernel, rings, "{test} {settings:?}: {}", String::from_utf8_lossy(&output.stderr));
    // That it was on rings when it mattered: what warms the connection up went that way, and more.
    let all: Vec<StatsSnapshot> = raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode).collect();
    let sent: u64 = all.iter().map(|s| s.bytes.ring_tx).sum();
    assert!(
        sent > 3000 || test == "registration" || settings.contains(&("BYPATH_UPGRADE", "off")),
        "{test} {settings:?}: only {sent} bytes went through rings"
    );
}

#[track_caller]
fn same(test: &str) {
    same_with(test, &[]);
}

#[test]
fn handlers_are_registered_as_the_program_says() {
    same("registration");
}

#[test]
fn interrupted_calls_restart_or_end_as_on_the_kernel() {
    same("interruptions");
}

#[test]
fn interrupted_calls_of_threads_that_never_spin() {
    same_with("interruptions", &[("BYPATH_PROFILE", "frugal")]);
}

#[test]
fn interrupted_calls_of_threads_that_spin_long() {
    same_with("interruptions", &[("BYPATH_PROFILE", "latency")]);
}

#[test]
fn interrupted_files_end_with_what_was_sent() {
    for test in ["files", "files-restart"] {
        same(test);
        same_with(test, &[("BYPATH_UPGRADE", "off")]);
        // The first passes are those of the warming up.
        for pass in [44, 46] {
            same_with(test, &[("BYPATH_TEST_RAISE", &format!("published:{pass}"))]);
        }
    }
}

#[test]
fn several_messages_end_with_those_before_a_handler() {
    same("several");
    same_with("several", &[("BYPATH_UPGRADE", "off")]);
    // The first passes are those of the warming up.
    for pass in [44, 46] {
        same_with("several", &[("BYPATH_TEST_RAISE", &format!("published:{pass}"))]);
    }
}

#[test]
fn of_several_handlers_the_one_that_ran_decides() {
    same("mixed");
}

#[test]
fn masks_hold_for_the_wait_only() {
    same("masks");
}

#[test]
fn each_signal_arrives_once_with_its_data() {
    same("information");
}

#[test]
fn a_handler_may_leave_any_call_by_longjmp() {
    same("leaves");
}

#[test]
fn o_async_notifies() {
    same("notified");
}

#[test]
fn every_wait_is_a_cancellation_point() {
    same("cancels");
}

/// A thread that may be cancelled anywhere leaves no call of ours half done.
#[test]
fn a_thread_cancelled_in_the_middle_of_a_call_holds_nothing() {
    let severed = programs::compile("severed", &["severed.c"], &[]);
    let plain = said("on the kernel", &Command::new(&severed).output().expect("run the program"));
    for upgrade in ["lazy", "eager"] {
        let mut command = Command::new(&severed);
        command.env("LD_PRELOAD", programs::library()).env("BYPATH_UPGRADE", upgrade);
        let output = command.output().expect("run the program");
        assert_eq!(plain, said(upgrade, &output), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

/// A call that a cancellation, pthread_exit or longjmp ended is over: its connection comes up on a ring after it.
#[test]
fn calls_that_never_return_hold_no_connection_on_the_kernel() {
    let left = programs::compile("left", &["left.c"], &[]);
    let plain = said("on the kernel", &Command::new(&left).output().expect("run the program"));
    let stats = programs::workshop().join(format!("left-{}.stats", std::process::id()));
    let output = Command::new(&left)
        .env("LD_PRELOAD", programs::library())
        .env("BYPATH_UPGRADE", "eager")
        .env("BYPATH_STATS", &stats)
        .output()
        .expect("run the program");
    let raw = std::fs::read(&stats).unwrap_or_default();
    let _ = std::fs::remove_file(&stats);
    assert_eq!(plain, said("on rings", &output), "{}", String::from_utf8_lossy(&output.stderr));
    let all: Vec<StatsSnapshot> = raw.chunks(RECORD_SIZE).filter_map(StatsSnapshot::decode).collect();
    let (ends, upgraded) = all.iter().fold((0, 0), |(a, b), s| (a + s.connections, b + s.upgraded));
    assert_eq!((ends, upgraded), (30, 30), "ends of connections, and those that were upgraded");
}

#[test]
fn storm_over_sends_whose_handler_sends() {
    same("sends");
}

#[test]
fn storm_over_sends_without_restart() {
    same("sends-eintr");
}

#[test]
fn storm_over_sends_whose_handler_does_not_wait() {
    same("sends-nowait");
}

#[test]
fn storm_whose_handler_polls() {
    same("polls");
}

#[test]
fn storm_whose_handler_forks() {
    same("forks");
}

#[test]
fn storm_whose_handler_receives() {
    same("receives");
}

#[test]
fn storm_in_a_forked_child() {
    same("child");
}

#[test]
fn storm_over_two_threads() {
    same("threads");
}

/// Every storm once more: with paths that change at random, and with the handler called at each marked point of the
/// library, a few passes in.
macro_rules! storms {
    ($($name:ident $test:literal;)*) => {$(
        mod $name {
            #[test]
            fn while_paths_change() {
                for seed in ["3", "17"] {
                    super::same_with($test, &[("BYPATH_TEST_FLIP", seed)]);
                }
            }

            #[test]
            fn at_each_point() {
                for point in super::POINTS {
                    for pass in [3, 60, 100] {
                        let raise = format!("{point}:{pass}");
                        super::same_with($test, &[("BYPATH_TEST_RAISE", &raise), ("BYPATH_TEST_FLIP", "5")]);
                    }
                }
            }
        }
    )*};
}

/// Points that every program passes while bytes move.
const POINTS: [&str; 10] = [
    "consented",
    "ring-begun",
    "copied-in",
    "published",
    "unlocked",
    "copied-out",
    "committed",
    "claimed",
    "mid-flush",
    "drained",
];

storms! {
    sends "sends";
    sends_that_break "sends-eintr";
    sends_nowait "sends-nowait";
    polls "polls";
    forks "forks";
    receives "receives";
    threads "threads";
    leaves "leaves";
}

/// Handlers that the library does not know of run inside its calls, and all bytes arrive even so. (A nested send answers
/// EAGAIN then, which the handlers of these storms can bear.)
#[test]
fn handlers_that_run_inside() {
    for test in ["sends-nowait", "polls", "receives", "threads", "information"] {
        for point in POINTS {
            let raise = format!("{point}:100");
            same_with(test, &[("BYPATH_TEST_DEFER", "0"), ("BYPATH_TEST_RAISE", &raise)]);
        }
    }
}
