//! What processes of one family share about their sockets, and one of them that means harm.

use crate::agents;
use crate::stage::{Side, Stage, installed};
use crate::support::{Outcome, missing, skip};
use bypath_shm::family::{ENDS_OFFSET, End, WriterLine};
use rustix::process::Signal;
use std::mem::offset_of;

/// It may lose connections. It ends neither by a signal nor not at all (`finish`).
#[test]
fn a_child_that_writes_nonsense_ends_no_more_than_connections() {
    const SEEDS: u64 = 8;
    if let Some(reason) = missing(&["python3"]) {
        return skip("users::relatives::a_child_that_writes_nonsense_ends_no_more_than_connections", &reason);
    }
    let stage = Stage::new();
    let server = stage.program(&Side::default(), "server.stats", &installed("python3"));
    let mut server = server.arg(stage.scene.path("echo_server.py")).arg("threads").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let mut lost = 0;
    for seed in 0..SEEDS {
        let side = Side { options: &[("upgrade", "eager")], ..Side::default() };
        let parent = stage.program(&side, "client.stats", &installed("python3")).script("sibling.py");
        lost += parent.args(&format!("{port} {seed} {ENDS_OFFSET}")).finish().number("lost ");
    }
    server.stop(Signal::TERM);
    assert!(lost > 0, "nothing was found to be wrong: this test shows nothing");
}

/// What is said on one connection goes to no other one's end.
#[test]
fn a_child_that_says_that_a_place_is_free_has_no_two_sockets_share_it() {
    if let Some(reason) = missing(&["python3"]) {
        return skip(
            "users::relatives::a_child_that_says_that_a_place_is_free_has_no_two_sockets_share_it",
            &reason,
        );
    }
    let stage = Stage::new();
    let side = Side { options: &[("upgrade", "eager")], ..Side::default() };
    let parent = stage.program(&side, "client.stats", &installed("python3")).script("recycled.py");
    let said = parent.args(&ENDS_OFFSET.to_string()).finish();
    assert_eq!(said.number("lied "), 1);
    let answered = said.stdout.lines().find_map(|line| line.strip_prefix("answered ")).expect("an answer");
    // Its own connection may be lost.
    assert!(answered.starts_with('1') || !answered.contains("alone"), "{}", said.stdout);
    assert!(said.stdout.contains("then 2x"), "{}", said.stdout);
}

/// Needs no entry in /etc/passwd.
const ANNE: u32 = 65001;

/// What a script says, with these words, beside a server: a script, too, with its words, that prints its port. Both are upgraded at the first octet.
fn played(server: (&str, &str), script: &str, words: impl Fn(u16) -> String) -> Outcome {
    let stage = Stage::new();
    let side = Side { options: &[("upgrade", "eager")], ..Side::default() };
    let serving = stage.program(&side, "server.stats", &installed("python3"));
    let mut serving = serving.script(server.0).args(server.1).start();
    let port: u16 = serving.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let program = stage.program(&side, "client.stats", &installed("python3")).script(script);
    let said = program.args(&words(port)).finish();
    serving.stop(Signal::TERM);
    said
}

/// What a worker of a program that runs as root has, while that makes a further connection.
fn worker(mode: &str) -> Option<Outcome> {
    let reason = missing(&["python3"]).or_else(|| {
        (!rustix::process::geteuid().is_root()).then(|| "needs root to become another user".into())
    });
    if let Some(reason) = reason {
        skip(&format!("users::relatives::worker_that_{mode}"), &reason);
        return None;
    }
    Some(played(("echo_server.py", "threads"), "worker.py", |port| format!("{port} {mode} {ANNE}")))
}

#[test]
fn a_worker_that_becomes_another_user_keeps_nothing_of_its_parents() {
    let Some(said) = worker("drops") else { return };
    assert!(said.number("before ") > 0);
    assert_eq!((said.number("arenas "), said.number("inboxes "), said.number("descriptors ")), (0, 0, 0));
    assert!(said.number("new ") > 0, "the parent's next connection is where the worker's were");
}

/// Zeroes that can be written would be data.
#[test]
fn a_worker_that_becomes_another_user_keeps_nothing_where_it_may_have_no_more_data() {
    let Some(said) = worker("limited") else { return };
    assert!(said.number("before ") > 0);
    assert_eq!((said.number("arenas "), said.number("inboxes "), said.number("descriptors ")), (0, 0, 0));
}

/// As a child of clone3, behind a filter, and with fewer addresses than it has.
#[test]
fn a_worker_that_becomes_another_user_keeps_nothing_however_it_was_made_and_whatever_limits_it() {
    for mode in ["cloned", "sealed", "narrow"] {
        let Some(said) = worker(mode) else { return };
        assert!(said.number("before ") > 0, "{mode}");
        let left = ["arenas ", "inboxes ", "descriptors "].map(|what| said.number(what));
        assert_eq!(left, [0, 0, 0], "{mode}");
        assert!(said.number("new ") > 0, "{mode}: the parent's next connection is where the worker's were");
    }
}

#[test]
fn a_worker_that_becomes_another_user_keeps_what_it_holds() {
    let Some(said) = worker("holds") else { return };
    // One slot of sixteen.
    let (before, left) = (said.number("before "), said.number("arenas "));
    assert!(left > 0 && left <= before / 8, "{left} of {before}");
    assert_eq!((said.number("descriptors "), said.number("seen ")), (0, 0));
}

/// Before its fork has returned.
#[test]
fn a_worker_that_becomes_another_user_within_its_fork_keeps_what_it_holds() {
    let Some(said) = worker("atfork") else { return };
    // Two slots of sixteen.
    let (before, left) = (said.number("before "), said.number("arenas "));
    assert!(left > 0 && left <= before / 8 * 2, "{left} of {before}");
    assert_eq!((said.number("descriptors "), said.number("seen ")), (0, 0));
}

/// Of a connection whose octets were put aside at a shutdown, and of one that comes after it was closed.
#[test]
fn a_worker_does_not_see_what_its_parent_puts_aside_later() {
    let Some(said) = worker("aside") else { return };
    let told = ["aside ", "read ", "seen "].map(|what| said.number(what));
    assert_eq!(told, [1, 20, 0], "{}", said.stdout);
}

/// Not what its family says of its sockets, nor of those that come later.
#[test]
fn a_program_that_a_worker_executes_as_another_user_shares_nothing_with_the_family() {
    let Some(said) = worker("executes") else { return };
    assert_eq!((said.number("answers "), said.number("shared ")), (1, 0));
}

/// What the last program has that `hands.py` speaks of: libraries, answers, deeds, descriptors of the family's region, and those of them that open it. `become.c` is compiled
/// with these flags into a program of this name.
fn handed_on<const N: usize>(name: &str, flags: &[&str], ways: [&str; N]) -> Option<[[u64; 5]; N]> {
    let reason = missing(&["python3", "cc"]).or_else(|| {
        (!rustix::process::geteuid().is_root()).then(|| "needs root to become another user".into())
    });
    if let Some(reason) = reason {
        skip(&format!("users::relatives::handed_on, {name}"), &reason);
        return None;
    }
    let program = agents::compile(name, &["become.c"], flags);
    Some(ways.map(|how| {
        let words = |port| format!("{port} {how} {ANNE} {}", program.display());
        let said = played(("echo_server.py", "threads"), "hands.py", words);
        ["libraries ", "answers ", "deeds ", "regions ", "opened "].map(|what| said.number(what))
    }))
}

/// There nobody lets go: nothing may come to it.
#[test]
fn a_static_program_that_becomes_another_user_hands_nothing_of_the_family_on() {
    let ways = ["plain", "searched", "opened", "script"];
    let Some(told) = handed_on("become_static", &["-static"], ways) else { return };
    assert_eq!(told, [[0, 1, 0, 0, 0]; 4]);
}

/// The library is in it, and takes what it is left for itself alone; it is left nothing where there is no room for saying so.
#[test]
fn a_dynamic_program_that_becomes_another_user_hands_nothing_of_the_family_on() {
    let Some(told) = handed_on("become", &[], ["plain", "narrow"]) else { return };
    assert_eq!(told, [[0, 1, 0, 0, 0]; 2]);
}

/// Its loader leaves the library out, as of a setuid one.
#[test]
fn a_program_that_is_executed_with_the_rights_of_another_user_has_nothing_of_the_family() {
    let Some(told) = handed_on("become_other", &[], ["secure"]) else { return };
    assert_eq!(told, [[0, 1, 0, 0, 0]]);
}

/// The library comes along with it and does not know itself for its heir, as its clock is another one.
#[test]
fn a_program_of_another_time_namespace_hands_nothing_of_the_family_on() {
    let Some(told) = handed_on("become_later", &[], ["clock"]) else { return };
    assert_eq!(told, [[0, 1, 0, 0, 0]]);
}

/// What stays open there, as nobody knew that the library would not come along, opens nothing.
#[test]
fn what_stays_open_where_the_library_cannot_be_loaded_opens_for_nobody_else() {
    let Some(told) = handed_on("become_mapless", &[], ["mapless"]) else { return };
    assert_eq!(told, [[0, 1, 0, 1, 0]]);
}

/// A process talks over a connection that it made after a fork, and the child lies about a word of its record: how often, and the answers that came.
fn lied_to(mode: &str, word: usize) -> Option<[u64; 2]> {
    if let Some(reason) = missing(&["python3"]) {
        skip(&format!("users::relatives::lied_to, {mode}"), &reason);
        return None;
    }
    let (word, size) = (offset_of!(End, w) + word, size_of::<End>());
    let words = |port| format!("{mode} {port} {ENDS_OFFSET} {size} {word}");
    let said = played(("echo_server.py", "threads"), "writing.py", words);
    Some(["lied ", "answers "].map(|what| said.number(what)))
}

/// A word that says that a thread of the process itself is about to write: of one that is not, or of the caller.
#[test]
fn a_child_that_says_that_its_parent_writes_keeps_it_in_no_call() {
    let Some(numbers) = lied_to("lock", offset_of!(WriterLine, lock)) else { return };
    assert_eq!(numbers, [200, 200]);
}

/// Of others of the family it is the same: of one that is not there, one that cannot have the socket, and one that sleeps, which nobody does who writes.
#[test]
fn a_child_that_is_dead_and_has_said_that_others_write_keeps_its_parent_in_no_call() {
    let Some(numbers) = lied_to("held", offset_of!(WriterLine, lock)) else { return };
    assert_eq!(numbers, [3, 3]);
}

/// It may be in the midst of it.
#[test]
fn a_child_that_is_stopped_while_it_writes_is_waited_for() {
    let Some(numbers) = lied_to("stopped", offset_of!(WriterLine, lock)) else { return };
    assert_eq!(numbers, [1, 1]);
}

/// Neither what the ring had before goes out again, nor what nobody has written.
#[test]
fn a_child_that_says_how_much_was_sent_has_its_parent_send_nothing_else() {
    let Some([lied, answers]) = lied_to("tail", offset_of!(WriterLine, tail)) else { return };
    assert_eq!(lied, 200);
    assert!(answers < 200, "no lie was about a connection in memory: this test shows nothing");
}

/// What a sender has mapped of mailboxes, as `mailboxes.py` says it.
fn mailboxes(mode: &str, number: u32) -> Option<Outcome> {
    let reason = missing(&["python3"]).or_else(|| {
        (!rustix::process::geteuid().is_root()).then(|| "needs root to become another user".into())
    });
    if let Some(reason) = reason {
        skip(&format!("users::relatives::mailboxes_{mode}"), &reason);
        return None;
    }
    Some(played(("udp_echo.py", "server spinning"), "mailboxes.py", |port| format!("{port} {mode} {number}")))
}

#[test]
fn a_worker_that_becomes_another_user_keeps_no_mailboxes() {
    let Some(said) = mailboxes("worker", ANNE) else { return };
    assert!(said.number("before ") > 0);
    assert_eq!(said.number("after "), 0);
}

#[test]
fn a_sender_that_becomes_another_user_keeps_no_mailboxes() {
    let Some(said) = mailboxes("sender", ANNE) else { return };
    assert!(said.number("before ") > 0);
    assert_eq!(said.number("after "), 0);
}

#[test]
fn a_receiver_that_becomes_another_user_ends_its_mailbox() {
    let Some(said) = mailboxes("receiver", ANNE) else { return };
    assert!(said.number("before ") > 0);
    let told = ["named ", "after ", "unnamed "].map(|word| said.number(word));
    assert_eq!(told, [1, 0, 1]);
}

#[test]
fn mailboxes_that_are_over_are_not_mapped() {
    let Some(said) = mailboxes("many", 20) else { return };
    let most = said.number("most ");
    assert!(most > 0 && most <= 8, "{most} at a time of two sockets");
    assert_eq!(said.number("after "), 0);
}

/// More than a process has mailboxes in its life without using them again (4096, two for each pair); in a soak 100,000.
#[test]
fn sockets_of_datagrams_that_come_and_go_leave_nothing() {
    let is_soak = std::env::var_os("BYPATH_SOAK").is_some_and(|v| v == "1");
    let Some(said) = mailboxes("cycles", if is_soak { 50_000 } else { 2_500 }) else { return };
    let more = ["more descriptors ", "more mappings "].map(|what| said.number(what));
    assert!(more.iter().all(|more| *more <= 4), "{more:?}");
    assert!(said.number("more kib ") <= 256, "{} KiB", said.number("more kib "));
    assert!(said.number("had ") >= 90, "{} of the last hundred had mailboxes", said.number("had "));
}

/// Whoever is privileged forks: what the child will be is not known.
#[test]
fn a_worker_does_not_see_its_parents_later_connections() {
    let Some(said) = worker("stays") else { return };
    assert_eq!(said.number("arenas "), said.number("before "));
    assert!(said.number("new ") > 0);
    assert_eq!(said.number("seen "), 0);
}

/// What the library's own function is not called for, the C library tells of.
#[test]
fn a_worker_whose_fork_was_looked_up_by_a_handle_does_not_see_its_parents_later_connections() {
    let Some(said) = worker("handle") else { return };
    assert_eq!(said.number("arenas "), said.number("before "));
    assert!(said.number("new ") > 0);
    assert_eq!(said.number("seen "), 0);
}

/// What pthread_atfork(3) has run before a fork, and other threads meanwhile, may be the first to have a connection.
#[test]
fn a_worker_does_not_see_later_connections_of_who_had_none_when_its_fork_began() {
    const NAME: &str =
        "users::relatives::a_worker_does_not_see_later_connections_of_who_had_none_when_its_fork_began";
    if !rustix::process::geteuid().is_root() {
        return skip(NAME, "needs root: whoever cannot become another user shares them");
    }
    let program = agents::compile("prepares", &["prepares.c"], &[]);
    for who in ["handler", "thread"] {
        let mut command = std::process::Command::new(&program);
        command.arg(who).env("LD_PRELOAD", agents::library()).env("BYPATH_UPGRADE", "eager");
        let output = command.output().expect("run the program");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{who}: {}{text}", String::from_utf8_lossy(&output.stderr));
        let (parent, child) = text
            .trim()
            .strip_prefix("parent ")
            .and_then(|rest| rest.split_once(" child "))
            .unwrap_or_else(|| panic!("{who} says {text:?}"));
        assert_ne!(parent, "0", "{who}: they went by no ring");
        assert_eq!(child, "0", "{who}");
    }
}

/// An earlier fork was of somebody whose children could not become others.
#[test]
fn a_worker_of_who_has_forked_before_with_fewer_rights_does_not_see_later_connections() {
    let in_namespace =
        std::process::Command::new("unshare").args(["--user", "--map-root-user", "true"]).status();
    if !in_namespace.is_ok_and(|status| status.success()) {
        return skip("users::relatives::worker_that_gains", "no user namespace may be made");
    }
    let Some(said) = worker("gains") else { return };
    assert_eq!(said.number("arenas "), said.number("before "));
    assert!(said.number("new ") > 0);
    assert_eq!(said.number("seen "), 0);
}

/// As an allowed user, or anybody who calls, may send without a pause.
#[test]
fn a_connection_that_is_always_ready_leaves_room_for_datagrams_in_an_epoll_set() {
    if let Some(reason) = missing(&["python3"]) {
        return skip(
            "users::relatives::a_connection_that_is_always_ready_leaves_room_for_datagrams_in_an_epoll_set",
            &reason,
        );
    }
    for room in [1, 2, 64] {
        let said = played(("fair.py", "flood"), "fair.py", |port| format!("{port} {room}"));
        let (datagrams, octets) = (said.number("datagrams "), said.number("octets "));
        println!("room for {room}: {datagrams} datagrams, {octets} times octets");
        assert!(datagrams > 300 && octets > 300, "room for {room}: {datagrams}, {octets}");
    }
}
