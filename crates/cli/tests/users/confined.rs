//! Places that grant little: a container's usual seccomp profile, a read-only root with neither `/proc` nor `/dev/shm`, a
//! memory cgroup. Where rings can be had they are used; where not the program runs as it would without us.

use crate::cgroup::Cgroup;
use crate::stage::{Side, Stage, installed, open_to_all};
use crate::support::{Outcome, Program, launcher, missing, ring_required, skip};
use rustix::process::Signal;
use std::ffi::OsString;

fn stage(test: &str, needs: &[&str]) -> Option<Stage> {
    match missing(needs) {
        Some(reason) => {
            skip(&format!("users::confined::{test}"), &reason);
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

/// Whether the wrapper works here (status 77: it does not).
fn works(stage: &Stage, test: &str, wrapper: &[OsString]) -> bool {
    let probe: Program = stage.scene.plain("python3").words(&wrapper[1..]).arg("/bin/true");
    let probe: Outcome = probe.start().wait();
    if probe.status.code() == Some(77) {
        skip(&format!("users::confined::{test}"), probe.stderr.trim());
        return false;
    }
    probe.ok();
    true
}

#[test]
fn containers_have_rings() {
    let test = "containers_have_rings";
    let Some(stage) = stage(test, &["python3"]) else { return };
    let container = script(&stage, &["container.py"]);
    if !works(&stage, test, &container) {
        return;
    }
    let side = || Side { before: container.clone(), ..Side::default() };
    stage.ping(&side(), &side()).assert_ring();
}

/// A profile that forbids one thing more, on either side.
#[test]
fn containers_that_forbid_more_run_plain() {
    let test = "containers_that_forbid_more_run_plain";
    for call in ["memfd_create", "eventfd2", "unix-socket", "netlink-socket"] {
        let Some(stage) = stage(test, &["python3"]) else { return };
        let container = script(&stage, &["container.py"]);
        if !works(&stage, test, &container) {
            return;
        }
        let usual = || Side { before: container.clone(), ..Side::default() };
        let less = [container.clone(), script(&stage, &["forbid.py", call])].concat();
        let less = || Side { before: less.clone(), ..Side::default() };
        stage.ping(&usual(), &less()).assert_kernel(None, Some("forbidden-call"));
        let Some(stage) = self::stage(test, &["python3"]) else { return };
        stage.ping(&less(), &usual()).assert_kernel(Some("forbidden-call"), None);
    }
}

#[test]
fn a_bare_read_only_root_has_rings() {
    let test = "a_bare_read_only_root_has_rings";
    let Some(stage) = stage(test, &["python3", "unshare"]) else { return };
    let kept = stage.scene.path("");
    let (root, writable) = (kept.join("root"), kept.join("out"));
    for place in [&root, &writable] {
        std::fs::create_dir(place).expect("a directory");
        open_to_all(place, 0o777);
    }
    let side = |stats: &str, script: &str, words: &[&str]| {
        let library = stage.scene.path("libbypath_preload.so");
        let mut all = launcher(
            (&stage.scene.path("bypath"), &library),
            &stage.scene.path(&format!("out/{stats}")),
            &[],
        );
        all.push(installed("python3").into());
        all.push(stage.scene.path(script).into());
        all.extend(words.iter().map(OsString::from));
        all
    };
    let bare = stage.scene.plain("unshare").args("--mount").arg(installed("python3"));
    let bare = bare.arg(stage.scene.path("bare.py")).words([&root, &kept, &writable]);
    let bare = bare.words(side("server.stats", "echo_server.py", &["selectors"])).arg("and");
    let bare = bare.words(side("client.stats", "ping.py", &[])).start().wait();
    if bare.status.code() == Some(77) {
        return skip(&format!("users::confined::{test}"), bare.stderr.trim());
    }
    let report = bare.ok();
    assert!(report.stdout.starts_with("root: Read-only"), "{}", report.stdout);
    let counted = stage.counted_in("out");
    crate::stage::Counted { payload: report.number("payload "), ..counted }.assert_ring();
}

/// Far more connections than rings could have memory for: nobody is killed, and what finds no room stays on the kernel.
#[test]
fn a_memory_cgroup_kills_nobody_for_its_rings() {
    /// What the client may have: enough for python3 and a fourth of it for rings.
    const LIMIT: u64 = 48 << 20;
    let test = "a_memory_cgroup_kills_nobody_for_its_rings";
    let Some(stage) = stage(test, &["python3"]) else { return };
    let cgroup = match Cgroup::new(LIMIT) {
        Ok(cgroup) => cgroup,
        Err(reason) => return skip(&format!("users::confined::{test}"), &reason),
    };
    let (server, port) = stage.echo_server(&Side::default());
    let client = Side { before: cgroup.enter(), ..Side::default() };
    let client = stage.program(&client, "client.stats", &installed("python3"));
    // Each ring would take 64 KiB: 44 MiB of them, beside a program of 25 MiB.
    let report = client.script("crowd.py").arg(port.to_string()).args("700 8 12000").finish();
    server.stop(Signal::TERM);
    if ring_required() {
        let counted = stage.counted();
        assert!(counted.client.ring_tx > 0, "{counted:#?}");
        assert_eq!(report.number("payload "), 2 * 700 * 8 * 12_000);
    }
}
