//! Datagrams where little is granted: a container's usual seccomp profile and ones that forbid more, a bare read-only root, a memory cgroup, few
//! descriptors. Mailboxes are there where they can be had; where not the program runs as it would without us.

use crate::cgroup::Cgroup;
use crate::stage::{Counted, Side, Stage, installed, open_to_all};
use crate::support::{launcher, missing, ring_required, skip};
use std::ffi::OsString;

/// How much goes through mailboxes between two that are always awake, at least: what comes before the ends have found each other does not.
const SHARE: u64 = 80;

fn name(test: &str) -> String {
    format!("users::datagrams::{test}")
}

fn stage(test: &str, needs: &[&str]) -> Option<Stage> {
    match missing(needs) {
        Some(reason) => {
            skip(&name(test), &reason);
            None
        }
        None => Some(Stage::new()),
    }
}

fn script(stage: &Stage, words: &[&str]) -> Vec<OsString> {
    let mut all = vec![installed("python3").into(), stage.scene.path(words[0]).into()];
    all.extend(words[1..].iter().map(OsString::from));
    all
}

/// A wrapper that sets both limits of descriptors.
fn limit(soft: u32, hard: u32) -> Vec<OsString> {
    vec![installed("prlimit").into(), format!("--nofile={soft}:{hard}").into(), "--".into()]
}

/// Whether the wrapper works here (status 77: it does not).
fn works(stage: &Stage, test: &str, wrapper: &[OsString]) -> bool {
    let probe = stage.scene.plain("python3").words(&wrapper[1..]).arg("/bin/true").start().wait();
    if probe.status.code() == Some(77) {
        skip(&name(test), probe.stderr.trim());
        return false;
    }
    probe.ok();
    true
}

fn in_front(before: &[OsString]) -> Side<'static> {
    Side { before: before.to_vec(), ..Side::default() }
}

#[track_caller]
fn assert_share(counted: &Counted) {
    if ring_required() {
        let mut sum = counted.server.clone();
        sum.add(&counted.client);
        sum.assert_share(counted.payload / 10 * 9, SHARE);
    }
}

/// All came, and nothing of it through a mailbox.
#[track_caller]
fn assert_kernel(counted: &Counted) {
    assert!(counted.payload > 1_000_000, "{counted:#?}");
    counted.assert_kernel(None, None);
}

#[test]
fn containers_have_mailboxes() {
    let test = "containers_have_mailboxes";
    let Some(stage) = stage(test, &["python3"]) else { return };
    let container = script(&stage, &["container.py"]);
    if works(&stage, test, &container) {
        assert_share(&stage.ping_datagrams(&in_front(&container), &in_front(&container)));
    }
}

/// Without memory a receiver has no mailbox; who may not ask the kernel who receives, or call him, writes into none.
#[test]
fn containers_that_forbid_more_run_plain() {
    let test = "containers_that_forbid_more_run_plain";
    for call in ["memfd_create", "unix-socket", "netlink-socket"] {
        for server_is_bound in [true, false] {
            let Some(stage) = stage(test, &["python3"]) else { return };
            let usual = script(&stage, &["container.py"]);
            let less = [usual.clone(), script(&stage, &["forbid.py", call])].concat();
            if !works(&stage, test, &less) {
                return;
            }
            let sides = [in_front(&less), in_front(&usual)];
            let [server, client] =
                if server_is_bound { [&sides[0], &sides[1]] } else { [&sides[1], &sides[0]] };
            let counted = stage.ping_datagrams(server, client);
            assert!(counted.payload > 1_000_000, "{call}: {counted:#?}");
            let bound = if server_is_bound { &counted.server } else { &counted.client };
            match call {
                "memfd_create" => assert_eq!(bound.ring_rx, 0, "{call}: {counted:#?}"),
                "netlink-socket" => assert_eq!(bound.ring_tx, 0, "{call}: {counted:#?}"),
                _ => assert_eq!((bound.ring_tx, bound.ring_rx), (0, 0), "{call}: {counted:#?}"),
            }
        }
    }
}

#[test]
fn a_bare_read_only_root_has_mailboxes_or_runs_plain() {
    let test = "a_bare_read_only_root_has_mailboxes_or_runs_plain";
    let Some(stage) = stage(test, &["python3", "unshare"]) else { return };
    let kept = stage.scene.path("");
    let (root, writable) = (kept.join("root"), kept.join("out"));
    for place in [&root, &writable] {
        std::fs::create_dir(place).expect("a directory");
        open_to_all(place, 0o777);
    }
    let side = |stats: &str, words: &[&str]| {
        let tools = [stage.scene.path("bypath"), stage.scene.path("libbypath_preload.so")];
        let mut all = launcher((&tools[0], &tools[1]), &writable.join(stats), &[]);
        all.extend(script(&stage, words));
        all
    };
    let bare = stage.scene.plain("unshare").args("--mount").arg(installed("python3"));
    let bare = bare.arg(stage.scene.path("bare.py")).words([&root, &kept, &writable]);
    let bare = bare.words(side("server.stats", &["udp_echo.py", "server", "spinning"])).arg("and");
    // Its port comes last.
    let client = ["udp_echo.py", "client", "spinning", "last", "8"];
    let bare = bare.words(side("client.stats", &client)).start().wait();
    if bare.status.code() == Some(77) {
        return skip(&name(test), bare.stderr.trim());
    }
    let report = bare.ok();
    assert!(report.stdout.starts_with("root: Read-only"), "{}", report.stdout);
    let counted = stage.counted_in("out");
    assert_share(&Counted { payload: report.number("payload "), ..counted });
}

/// Far more mailboxes than there could be memory for: nobody is killed, and who finds no room stays on the kernel.
#[test]
fn a_memory_cgroup_kills_nobody_for_its_mailboxes() {
    /// Enough for python3 and a fourth of it for rings.
    const LIMIT: u64 = 47 << 20;
    let test = "a_memory_cgroup_kills_nobody_for_its_mailboxes";
    let Some(stage) = stage(test, &["python3"]) else { return };
    let cgroup = match Cgroup::new(LIMIT) {
        Ok(cgroup) => cgroup,
        Err(reason) => return skip(&name(test), &reason),
    };
    let side = Side { options: &[("upgrade", "eager")], before: cgroup.enter(), ..Side::default() };
    // Each ring has 512 KiB: 50 MiB of them, each of which is written to its end.
    let program = stage.program(&side, "client.stats", &installed("python3"));
    let report = program.arg(stage.scene.path("letters.py")).args("100 130 5000").finish();
    assert_eq!(report.number("payload "), 100 * 130 * 5000);
    if ring_required() {
        let counted = stage.counted().client;
        assert!(counted.ring_tx > 0, "{counted:#?}");
        // Those beyond a fourth of the limit had none: a good half of all octets.
        assert!(counted.kernel_tx > report.number("payload ") / 2, "{counted:#?}");
    }
}

const LIMITED: &[&str] = &["python3", "prlimit"];

/// Below 256 descriptors nothing of a process moves, whichever end it is.
#[test]
fn a_process_with_few_descriptors_runs_plain() {
    for few_at_the_receiver in [true, false] {
        let Some(stage) = stage("a_process_with_few_descriptors_runs_plain", LIMITED) else { return };
        let (few, usual) = (in_front(&limit(200, 200)), Side::default());
        let counted = match few_at_the_receiver {
            true => stage.ping_datagrams(&few, &usual),
            false => stage.ping_datagrams(&usual, &few),
        };
        assert_kernel(&counted);
    }
}

/// What a program sees of its descriptors under a limit, and what its sockets do where every one is taken, is the same as without us.
#[test]
fn descriptors_of_a_receiver_and_their_limit_are_the_kernels() {
    for (soft, hard) in [(64, 1024), (16, 16), (400, 400)] {
        for when in ["before", "after"] {
            let Some(stage) = stage("descriptors_of_a_receiver_and_their_limit_are_the_kernels", LIMITED)
            else {
                return;
            };
            let words = ["3", "400", "1000", when];
            let script = stage.scene.path("letters.py");
            let side = Side { options: &[("upgrade", "eager")], ..in_front(&limit(soft, hard)) };
            let under = stage.program(&side, "client.stats", &installed("python3"));
            let under = under.arg(&script).words(words).finish();
            let plain = stage.scene.plain("prlimit").words(&limit(soft, hard)[1..]).arg(installed("python3"));
            let plain = plain.arg(&script).words(words).finish();
            if soft < 256 {
                assert_eq!(under.stdout, plain.stdout);
            }
            assert_eq!(under.number("payload "), 3 * 400 * 1000);
            assert!(plain.stdout.starts_with(&format!("seen ({soft}, {hard}) ")), "{}", plain.stdout);
            // Below that number the library does not come up at all, nor where the program has taken all that there are before.
            if ring_required() && soft >= 256 && when == "after" {
                let counted = stage.counted().client;
                assert!(counted.sent() >= 3 * 390 * 1000 && counted.ring_tx > 0, "{soft}: {counted:#?}");
            }
        }
    }
}
