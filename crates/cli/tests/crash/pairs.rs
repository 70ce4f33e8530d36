//! Two programs, one of them killed at a point: what the other sees, and that it can go on with somebody else.

use crate::program::{Place, Program, Progress, field};
use crate::programs;
use std::path::PathBuf;
use std::sync::OnceLock;

/// How the programs wait.
const MODES: [&str; 5] = ["blocking", "threads", "poll", "epoll", "edge"];

/// Bytes of the messages that the survivor still sends (`SMALL` in crash.c).
const MESSAGE: u64 = 200;

/// Which passes of a point a conversation has.
#[derive(Clone, Copy)]
enum Passes {
    /// One, and only on the side that dials or on the side that answers, by who speaks first.
    Rendezvous { speaker: bool },
    /// One on each side.
    Once,
    /// Two on each side.
    Twice,
    /// Many on each side.
    Often,
}

fn program() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let path = PROGRAM.get_or_init(|| programs::compile("crash", &["crash.c"], &[]));
    path.to_str().expect("a plain path")
}

/// One conversation in which the side `victim` is to die at `kill`; false if it came through alive. `first` speaks
/// first, and `fills` (a side, or both) writes more than a ring holds before anybody reads.
fn converse(point: &str, kill: &str, victim: &str, (mode, first, fills): (&str, &str, &str)) -> bool {
    let place = Place::new();
    let what = format!("{kill}, {victim} killed, {mode}, {first} first, {fills} filling");
    let start = |side: &str, name: &str, first: &str, environment: &[(&str, &str)]| {
        let words = [program(), side, mode, first, fills, place.text()];
        Program::start(&place, name, &words, environment)
    };
    place.pipe("to-server");
    place.pipe("to-client");
    // In some of the modes positions wrap: while rings are filled.
    let wraps = ["threads", "epoll"].contains(&mode);
    let doom = [("BYPATH_TEST_WRAP", if wraps { "20000" } else { "0" }), ("BYPATH_TEST_KILL", kill)];
    let doom_of = |side: &str| if side == victim { &doom[..] } else { &doom[..1] };
    let mut server = start("server", "server", first, doom_of("server"));
    let mut client = start("client", "client", first, doom_of("client"));
    let port = server.expect("port");
    client.tell(&port);
    let other = if victim == "server" { "client" } else { "server" };
    let (dead, mut survivor) = if victim == "server" { (server, client) } else { (client, server) };
    if !dead.was_killed() {
        return false;
    }

    // What it saw of the death: nothing, if that came when all was said (a busy machine may bring rings up that late).
    let report = survivor.line();
    if report == "finished" {
        return survivor.was_killed();
    }
    let report = report
        .strip_prefix("first")
        .unwrap_or_else(|| panic!("the {other} says {report:?}"))
        .trim()
        .to_owned();
    let progress = |side: &str| Progress::read(&place.path(&format!("{side}.progress")), 0);
    let (left, had) = (progress(victim), progress(other));
    let seen: u64 = field(&report, "received").parse().expect("a number");
    let context = format!("{what}: {report}; the dead: {left:?}; the survivor: {had:?}");
    assert_eq!(field(&report, "wrong"), "0", "{context}");
    assert_eq!(field(&report, "names"), "0", "{context}");
    let sends: u32 = field(&report, "sends").parse().expect("a number");
    assert!(sends <= 1, "{context}");
    let sent = had.returned - u64::from(sends) * MESSAGE;
    assert!(seen <= left.attempted, "{context}");
    // A process that dies with unread bytes resets the connection, and may take with it what it had sent; one that
    // had read all leaves that, and the end of file.
    // Which of the two it was is known, unless the survivor wrote when the other was dying.
    let unread = sent > left.received;
    let ends: &[&str] = match (point, unread) {
        ("copied-out", _) => &["reset"],
        (_, true) => &["eof", "reset"],
        (_, false) => &["eof"],
    };
    assert!(ends.contains(&field(&report, "end")), "{context}");
    if !unread {
        assert!(seen >= left.returned, "{context}");
    }

    // And it goes on, with a new process.
    let before = survivor.stats();
    let mut other = if victim == "server" {
        let mut other = start("server", "other", "nobody", &[]);
        survivor.tell(&other.expect("port"));
        other
    } else {
        let mut other = start("client", "other", "nobody", &[]);
        other.tell(&port);
        other
    };
    survivor.expect("second done");
    other.expect("second done");
    for (program, before, name) in [(&survivor, before.upgraded, "survivor"), (&other, 0, "new process")] {
        let now = program.stats();
        assert_eq!(now.upgraded, before + 1, "{context}: the {name}'s next connection: {now:?}");
        let both_ways = now.bytes.ring_tx > 0 && now.bytes.ring_rx > 0;
        assert!(both_ways || !programs::REQUIRE_RING, "{context}: {name}: {now:?}");
    }
    survivor.finish();
    other.finish();
    true
}

/// Kills `victim` at `point` in every mode.
#[track_caller]
fn kill_at(point: &str, victim: &str, passes: Passes) {
    let other = if victim == "server" { "client" } else { "server" };
    for (index, mode) in MODES.into_iter().enumerate() {
        let in_turn = ["client", "server"][index % 2];
        let (first, counts) = match passes {
            // Who speaks first has a name first, so the other one dials and the first one answers.
            Passes::Rendezvous { speaker } => (if speaker { victim } else { other }, &[1][..]),
            Passes::Once => (in_turn, &[1][..]),
            Passes::Twice => (in_turn, &[1, 2][..]),
            Passes::Often => (in_turn, &[1, 7, 20, 50, 80][..]),
        };
        for count in counts {
            let kill = format!("{point}:{count}");
            // A claim is made by whoever fills a ring: with the other one doing the same, and alone.
            let alone = matches!(passes, Passes::Once).then_some(victim);
            for fills in ["both"].into_iter().chain(alone) {
                // On a machine that stands still for long a rendezvous may go the other way round once.
                let dead = (0..3).any(|_| converse(point, &kill, victim, (mode, first, fills)));
                assert!(
                    dead,
                    "the {victim} never passed the point: {kill}, {mode}, {first} first, {fills} filling"
                );
            }
        }
    }
}

macro_rules! points {
    ($($test:ident $point:literal $passes:expr;)*) => {
        /// Every point that is tested here.
        pub const POINTS: &[&str] = &[$($point),*];

        $(mod $test {
            use super::*;

            #[test]
            fn client() {
                kill_at($point, "client", $passes);
            }

            #[test]
            fn server() {
                kill_at($point, "server", $passes);
            }
        })*
    };
}

points! {
    listening "listening" Passes::Once;
    hello_sent "hello-sent" Passes::Rendezvous { speaker: false };
    slot_allocated "slot-allocated" Passes::Rendezvous { speaker: true };
    welcome_sent "welcome-sent" Passes::Rendezvous { speaker: true };
    welcome_taken "welcome-taken" Passes::Rendezvous { speaker: false };
    consented "consented" Passes::Twice;
    ring_begun "ring-begun" Passes::Twice;
    drained "drained" Passes::Twice;
    copied_in "copied-in" Passes::Often;
    published "published" Passes::Often;
    unlocked "unlocked" Passes::Often;
    copied_out "copied-out" Passes::Often;
    committed "committed" Passes::Often;
    claimed "claimed" Passes::Once;
    mid_flush "mid-flush" Passes::Once;
}
