//! Server and client of different users: the kernel path by default, the ring where both sides allow it.

use crate::stage::{Counted, Side, Stage, installed, open_to_all};
use crate::support::{assert_same, missing, ring_required, sample, skip};
use rustix::process::Signal;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

/// Two users that need no entry in /etc/passwd.
const ANNE: u32 = 65001;
const BERT: u32 = 65002;

/// The stage, unless this machine does not let us be other users.
fn stage(test: &str, needs: &[&str]) -> Option<Stage> {
    let reason = missing(needs).or_else(|| {
        if !rustix::process::geteuid().is_root() {
            return Some("needs root to start programs as other users".to_owned());
        }
        // A container may map too few users, or keep the interpreter where only root can read it.
        let mut probe = Command::new(installed("setpriv"));
        probe.args([&format!("--reuid={ANNE}"), &format!("--regid={BERT}"), "--clear-groups", "--"]);
        probe.arg(installed("python3")).args(["-c", "pass"]).stdin(Stdio::null()).stderr(Stdio::null());
        let works = probe.status().is_ok_and(|s| s.success());
        (!works).then(|| format!("python3 does not run as user {ANNE} here"))
    });
    match reason {
        Some(reason) => {
            skip(&format!("users::policy::{test}"), &reason);
            None
        }
        None => Some(Stage::new()),
    }
}

const NEEDS: &[&str] = &["python3", "setpriv"];

#[test]
fn the_same_user_uses_the_ring_without_privileges() {
    let Some(stage) = stage("the_same_user_uses_the_ring_without_privileges", NEEDS) else { return };
    stage.ping(&Side::user(ANNE), &Side::user(ANNE)).assert_ring();
}

#[test]
fn another_user_stays_on_the_kernel() {
    let Some(stage) = stage("another_user_stays_on_the_kernel", NEEDS) else { return };
    let counted = stage.ping(&Side::user(ANNE), &Side::user(BERT));
    counted.assert_kernel(Some("policy-uid"), Some("policy-uid"));
}

#[test]
fn root_is_another_user_too() {
    let Some(stage) = stage("root_is_another_user_too", NEEDS) else { return };
    let counted = stage.ping(&Side::default(), &Side::user(BERT));
    counted.assert_kernel(Some("policy-uid"), Some("policy-uid"));
}

#[test]
fn users_that_name_each_other_use_the_ring() {
    let Some(stage) = stage("users_that_name_each_other_use_the_ring", NEEDS) else { return };
    let server = Side { options: &[("allow-uid", "65002")], ..Side::user(ANNE) };
    let client = Side { options: &[("allow-uid", "65001")], ..Side::user(BERT) };
    stage.ping(&server, &client).assert_ring();
}

/// In front of a program: a filter that kills, for `apart`: the calls that receive of another user with a descriptor table of its own, or for `threads`, too; `None` where there can be none.
fn killing(stage: &Stage, calls: &str, test: &str) -> Option<Vec<OsString>> {
    let filter: Vec<OsString> =
        vec![installed("python3").into(), stage.scene.path("forbid.py").into(), calls.into()];
    let probe = Command::new(&filter[0]).args(&filter[1..]).arg("/bin/true").output().expect("python3");
    if !probe.status.success() {
        skip(&format!("users::policy::{test}"), String::from_utf8_lossy(&probe.stderr).trim());
        return None;
    }
    Some(filter)
}

/// Nobody can ask it what it kills for, so nothing is called that a program like this need not list.
#[test]
fn under_a_filter_that_kills_users_meet_in_the_way_that_takes_no_rare_calls() {
    let test = "under_a_filter_that_kills_users_meet_in_the_way_that_takes_no_rare_calls";
    let Some(stage) = stage(test, NEEDS) else { return };
    let Some(filter) = killing(&stage, "apart", test) else { return };
    let of = |uid| Side { options: &[("allow-uid", "any")], before: filter.clone(), ..Side::user(uid) };
    stage.ping(&of(ANNE), &of(BERT)).assert_ring();
}

/// A filter that the library did not see come is seen before any such call.
#[test]
fn under_a_filter_that_came_later_past_the_library_users_meet_in_that_way_too() {
    let test = "under_a_filter_that_came_later_past_the_library_users_meet_in_that_way_too";
    let Some(stage) = stage(test, NEEDS) else { return };
    if killing(&stage, "apart", test).is_none() {
        return;
    }
    let of = |uid| Side { options: &[("allow-uid", "any")], ..Side::user(uid) };
    let server = stage.program(&of(ANNE), "server.stats", &installed("python3"));
    let mut server = server.arg(stage.scene.path("filtered_later.py")).start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let payload = (0..2)
        .map(|_| {
            let client = stage.program(&of(BERT), "client.stats", &installed("python3"));
            client.arg(stage.scene.path("ping.py")).arg(port.to_string()).finish().number("payload ")
        })
        .sum();
    server.stop(Signal::TERM);
    let counted = Counted { payload, ..stage.counted() };
    assert!(!ring_required() || counted.server.upgraded == 2, "{counted:#?}");
}

/// Of what another user shows as the other end of a connection that hears nothing of this one nobody knows that it is.
#[test]
fn who_hears_nothing_of_another_user_meets_nobody_of_him() {
    let played = |users: [u32; 2]| {
        let stage = stage("who_hears_nothing_of_another_user_meets_nobody_of_him", NEEDS)?;
        let of = |uid: u32, stats: &str| {
            let side = Side { options: &[("allow-uid", "any")], ..Side::user(uid) };
            let python = stage.program(&side, stats, &installed("python3"));
            python.arg(stage.scene.path("one_way.py"))
        };
        let mut server = of(users[0], "server.stats").arg("server").start();
        let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
        of(users[1], "client.stats").arg("client").arg(port.to_string()).finish();
        let payload = server.wait().number("payload ");
        assert_eq!(payload, 20_480_000);
        Some(Counted { payload, ..stage.counted() })
    };
    let Some(counted) = played([ANNE, BERT]) else { return };
    counted.assert_kernel(Some("peer-unproven"), None);
    let own = played([ANNE, ANNE]).expect("users");
    assert!(!ring_required() || (own.server.upgraded, own.client.upgraded) == (1, 1), "{own:#?}");
}

/// What rings bells is the kernel's, of which all users together have so much. A process that is forked while nothing of it is left still wakes its peers.
#[test]
fn a_child_of_who_has_a_peer_of_another_user_wakes_its_peers_without_a_ringer() {
    let test = "a_child_of_who_has_a_peer_of_another_user_wakes_its_peers_without_a_ringer";
    let Some(stage) = stage(test, NEEDS) else { return };
    let options = [("upgrade", "eager"), ("spin-budget", "0"), ("allow-uid", "any")];
    let played = |uid, stats: &str, words: &str| {
        let side = Side { options: &options, ..Side::user(uid) };
        let python = stage.program(&side, stats, &installed("python3"));
        python.arg(stage.scene.path("unrung.py")).args(words)
    };
    let mut server = played(ANNE, "server.stats", "server").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let mut first = played(BERT, "first.stats", &format!("first {port}")).start();
    first.ready(|line| (line == "served").then_some(()));
    let said = played(ANNE, "next.stats", &format!("next {port}")).finish();
    assert_eq!(said.number("answers "), 20);
    first.stop(Signal::TERM);
    server.stop(Signal::TERM);
}

/// What another user gives back could not be had again where the kernel promises no more than it has.
#[test]
fn where_memory_may_be_missed_only_the_own_user_shares_it() {
    let needs = ["python3", "setpriv", "unshare", "nsenter", "mount"];
    let Some(stage) = stage("where_memory_may_be_missed_only_the_own_user_shares_it", &needs) else { return };
    // Nothing is changed of this machine: in a mount namespace another file is in the place of the kernel's.
    let says = stage.scene.path("overcommit");
    fs::write(&says, "2\n").expect("a file");
    open_to_all(&says, 0o644);
    let mut holder = Command::new(installed("unshare"));
    let script = "mount --bind \"$0\" /proc/sys/vm/overcommit_memory && echo so && exec cat";
    holder.args(["--mount", "sh", "-c", script]).arg(&says).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().expect("unshare starts");
    let mut line = String::new();
    BufReader::new(holder.stdout.take().expect("a pipe")).read_line(&mut line).expect("text");
    let of = |uid: u32| {
        let namespace = format!("--mount=/proc/{}/ns/mnt", holder.id());
        let (id, group) = (format!("--reuid={uid}"), format!("--regid={uid}"));
        let nsenter = installed("nsenter").into_os_string();
        let setpriv = installed("setpriv").into_os_string();
        let words = [namespace, id, group, "--clear-groups".to_owned()].map(OsString::from);
        let [namespace, id, group, clear] = words;
        let before = vec![nsenter, namespace, setpriv, id, group, clear];
        Side { options: &[("allow-uid", "any")], before, ..Side::default() }
    };
    let why = Some("no-overcommit");
    if line == "so\n" {
        stage.ping(&of(ANNE), &of(ANNE)).assert_ring();
        Stage::new().ping(&of(ANNE), &of(BERT)).assert_kernel(why, why);
        fs::write(&says, "0\n").expect("a file");
        Stage::new().ping(&of(ANNE), &of(BERT)).assert_ring();
    } else {
        skip(
            "users::policy::where_memory_may_be_missed_only_the_own_user_shares_it",
            "no mount namespace here",
        );
    }
    drop(holder.stdin.take());
    holder.wait().expect("it ends with its input");
}

#[test]
fn any_allows_every_user() {
    let Some(stage) = stage("any_allows_every_user", NEEDS) else { return };
    let server = Side { options: &[("allow-uid", "any")], ..Side::user(ANNE) };
    let client = Side { options: &[("allow-uid", "any")], ..Side::user(BERT) };
    stage.ping(&server, &client).assert_ring();
}

#[test]
fn one_side_alone_cannot_allow_it() {
    let Some(stage) = stage("one_side_alone_cannot_allow_it", NEEDS) else { return };
    let client = Side { options: &[("allow-uid", "any")], ..Side::user(BERT) };
    stage.ping(&Side::user(ANNE), &client).assert_kernel(Some("policy-uid"), None);
}

#[test]
fn allowing_a_third_user_allows_nobody_else() {
    let Some(stage) = stage("allowing_a_third_user_allows_nobody_else", NEEDS) else { return };
    let server = Side { options: &[("allow-uid", "65003")], ..Side::user(ANNE) };
    let client = Side { options: &[("allow-uid", "65001")], ..Side::user(BERT) };
    stage.ping(&server, &client).assert_kernel(Some("policy-uid"), None);
}

/// The senders of datagrams share a mailbox: it is for one user, whomever the programs allow beside him.
#[test]
fn mailboxes_are_for_one_user_alone() {
    if stage("mailboxes_are_for_one_user_alone", NEEDS).is_none() {
        return;
    }
    let both = |server, client| {
        let of = |uid| Side { options: &[("allow-uid", "any")], ..Side::user(uid) };
        Stage::new().ping_datagrams(&of(server), &of(client))
    };
    let counted = both(ANNE, ANNE);
    if ring_required() {
        assert!(counted.server.ring_rx > counted.payload / 10, "{counted:#?}");
    }
    both(ANNE, BERT).assert_kernel(None, None);
}

/// The loader ignores LD_PRELOAD in a setuid program: it runs plain, and its peer notices nothing but that.
#[test]
fn setuid_program_runs_plain() {
    let needs = ["python3", "setpriv", "nc.openbsd"];
    let Some(stage) = stage("setuid_program_runs_plain", &needs) else { return };
    let (sent, received) = (sample(8), stage.scene.path("received"));
    let setuid = stage.scene.path("nc-setuid");
    fs::copy(installed("nc.openbsd"), &setuid).expect("a copy of nc");
    chown(&setuid, Some(ANNE), Some(ANNE)).expect("chown by root");
    open_to_all(&setuid, 0o4755);

    let server = stage.program(&Side::user(ANNE), "server.stats", &installed("nc.openbsd"));
    let mut server = server.args("-l -v -n 127.0.0.1 0").stdout_to(&received).start();
    let port = server.ready(|l| Some(l.strip_prefix("Listening on ")?.rsplit(' ').next()?.to_owned()));
    let client = stage.program(&Side::user(BERT), "client.stats", &setuid);
    client.args("-N 127.0.0.1").arg(port).stdin_from(&sent).finish();
    server.wait().ok();
    assert_same(&sent, &received);
    stage.counted().assert_kernel(Some("peer-plain"), None);
}

/// A daemon that starts as root and becomes somebody else after it has bound its port.
#[test]
fn server_that_drops_its_privileges_serves_on() {
    let Some(stage) = stage("server_that_drops_its_privileges_serves_on", NEEDS) else { return };
    let drop = format!(
        "import os, socket, sys
sys.argv = ['echo_server.py', 'selectors']
create = socket.create_server
def bind_then_drop(*address):
    listener = create(*address)
    os.setgid({ANNE})
    os.setuid({ANNE})
    return listener
socket.create_server = bind_then_drop
exec(open({script:?}).read())",
        script = stage.scene.path("echo_server.py")
    );
    let server = stage.program(&Side::default(), "server.stats", &installed("python3"));
    let mut server = server.arg("-c").arg(drop).start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    // Neither the old nor the new user of the server may be served wrongly.
    for (uid, stats) in [(0, "client.stats"), (ANNE, "second.stats"), (BERT, "third.stats")] {
        let client = stage.program(&Side::user(uid), stats, &installed("python3"));
        let report = client.arg(stage.scene.path("ping.py")).arg(port.to_string()).finish();
        assert_eq!(report.number("payload "), 3000 * 2 * 1024);
    }
    server.stop(Signal::TERM);
}

/// A stranger calls a victim with a descriptor whose last close waits for 40 s: it is not the victim who waits.
fn is_held_up_by_nobody(test: &str, role: &str, partner: &str, name: &str) {
    if let Some(stage) = stage(test, NEEDS) {
        is_held_up_by_nobody_on(&stage, Vec::new(), role, partner, name);
    }
}

/// The same of a victim that is started by this program.
fn is_held_up_by_nobody_on(stage: &Stage, before: Vec<OsString>, role: &str, partner: &str, name: &str) {
    let script = stage.scene.path("stranger.py");
    let python = installed("python3");
    let port = |line: &str| line.strip_prefix("port ")?.parse::<u16>().ok();
    let cookie = |line: &str| line.strip_prefix("cookie ").map(str::to_owned);
    let victim = Side { before, ..Side::user(ANNE) };
    let victim = stage.program(&victim, "server.stats", &python).arg(&script).arg(role);
    let beside = |words: &[&str]| stage.plain(ANNE, &python).arg(&script).words(words);
    let (mut victim, partner) = if role == "tcp" {
        let mut echo = beside(&[partner]).start();
        let port = echo.ready(port).to_string();
        (victim.arg(port).start(), echo)
    } else {
        let mut victim = victim.start();
        let port = victim.ready(port).to_string();
        let flood = stage.program(&Side::user(ANNE), "client.stats", &python);
        (victim, flood.arg(&script).arg(partner).arg(port).start())
    };
    let cookie = victim.ready(cookie);
    let stranger = stage.plain(BERT, &python).arg(&script).arg("attack").arg(format!("{name}{cookie}"));
    let mut stranger = stranger.start();
    stranger.ready(|line| (line == "seen").then_some(()));
    victim.signal(Signal::TERM);
    let pause: f64 = victim.ready(|line| line.strip_prefix("pause ")?.parse().ok());
    assert!(pause < 20.0, "the victim stood for {pause} s");
    victim.wait().ok();
    for beside in [partner, stranger] {
        beside.stop(Signal::KILL);
    }
}

#[test]
fn a_stranger_who_calls_holds_no_stream_up() {
    is_held_up_by_nobody("a_stranger_who_calls_holds_no_stream_up", "tcp", "echo", "bypath/1/");
}

fn are_descriptors_refused() -> bool {
    let (end, _other) = std::os::unix::net::UnixStream::pair().expect("a pair");
    bypath_sys::pair::refuse_descriptors(end.as_fd())
}

#[test]
fn a_stranger_who_calls_ends_no_program_under_a_filter_that_kills() {
    let test = "a_stranger_who_calls_ends_no_program_under_a_filter_that_kills";
    let Some(stage) = stage(test, NEEDS) else { return };
    let mut calls = vec!["apart"];
    // Where a stranger cannot leave descriptors with it, nothing but octets is there to be closed.
    if are_descriptors_refused() {
        calls.push("threads");
    } else {
        skip(&format!("users::policy::{test}: threads"), "this kernel has no SO_PASSRIGHTS (Linux 6.16)");
    }
    for calls in calls {
        let Some(filter) = killing(&stage, calls, test) else { return };
        is_held_up_by_nobody_on(&stage, filter, "tcp", "echo", "bypath/1/");
    }
}

#[test]
fn a_stranger_who_calls_holds_no_datagrams_up() {
    is_held_up_by_nobody("a_stranger_who_calls_holds_no_datagrams_up", "udp", "flood", "bypath/1/udp/");
}

/// Who is allowed holds nobody up, either: the victim closes what he has left unread, and goes on.
#[test]
fn an_allowed_user_who_is_called_holds_no_stream_up() {
    let Some(stage) = stage("an_allowed_user_who_is_called_holds_no_stream_up", NEEDS) else { return };
    let script = stage.scene.path("stranger.py");
    let python = installed("python3");
    let mut ally = stage.plain(BERT, &python).arg(&script).arg("ally").start();
    let port: u16 = ally.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let victim = Side { options: &[("allow-uid", "65002")], ..Side::user(ANNE) };
    let victim =
        stage.program(&victim, "server.stats", &python).arg(&script).arg("tcp").arg(port.to_string());
    let victim = victim.start();
    let longest: f64 = ally.ready(|line| line.strip_prefix("longest ")?.parse().ok());
    victim.stop(Signal::KILL);
    assert!(longest < 20.0, "the victim stood for {longest} s");
    ally.wait().ok();
}

/// In a user namespace that maps nobody everybody is 65534, strangers too.
#[test]
fn where_a_namespace_knows_no_users_nobody_shares_memory() {
    const BOTH_ENDS: &str = "\
import socket
listener = socket.create_server(('127.0.0.1', 0))
ends = [socket.create_connection(listener.getsockname()), listener.accept()[0]]
for turn in range(2000):
    for a, b in (ends, ends[::-1]):
        a.sendall(b'octets')
        assert b.recv(6, socket.MSG_WAITALL) == b'octets'
print('done')
";
    let test = "where_a_namespace_knows_no_users_nobody_shares_memory";
    let Some(stage) = stage(test, &["python3", "setpriv", "unshare"]) else { return };
    let outcome = |sandbox: &[&str]| {
        let mut program = Command::new(installed("setpriv"));
        program.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).args(sandbox);
        program.arg(stage.scene.path("bypath")).args(["run", "--upgrade=eager", "--log=debug", "--library"]);
        program.arg(stage.scene.path("libbypath_preload.so")).arg("--").arg(installed("python3"));
        let output = program.args(["-c", BOTH_ENDS]).stdin(Stdio::null()).output().expect("setpriv");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        (output.status.success() && output.stdout == b"done\n", said.contains("policy-uid"), said)
    };
    let probe = Command::new(installed("unshare")).args(["--user", "true"]).status();
    if !probe.is_ok_and(|status| status.success()) {
        return skip(&format!("users::policy::{test}"), "no user namespaces");
    }
    let (done, refused, said) = outcome(&[]);
    assert!(done && !refused, "{said}");
    let (done, refused, said) = outcome(&["unshare", "--user"]);
    assert!(done && refused, "{said}");
}

#[test]
fn the_configuration_in_the_home_of_another_user_is_not_obeyed() {
    let test = "the_configuration_in_the_home_of_another_user_is_not_obeyed";
    let Some(stage) = stage(test, NEEDS) else { return };
    let file = stage.scene.path("bypath-home/bypath/config.toml");
    let folder = file.parent().and_then(Path::parent).expect("two folders");
    fs::create_dir_all(file.parent().expect("a folder")).expect("folders");
    fs::write(&file, "[settings]\nallow-uid = [\"any\"]\n").expect("a file");
    let run = |config: &Path| {
        let mut program = Command::new(stage.scene.path("bypath"));
        program.args(["config", "show"]).env("XDG_CONFIG_HOME", folder).env_remove("BYPATH_CONFIG");
        if config != folder {
            program.arg("--config").arg(config);
        }
        let output = program.stdin(Stdio::null()).output().expect("bypath");
        (
            output.status.code(),
            [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned()),
        )
    };
    let (code, [shown, _]) = run(folder);
    assert!(code == Some(0) && shown.contains("any"), "{shown}");
    // Nor one that everybody writes, or puts there.
    for part in [file.as_path(), folder] {
        let mode = part.metadata().expect("it").permissions();
        fs::set_permissions(part, Permissions::from_mode(mode.mode() | 0o002)).expect("root may");
        let (code, [_, said]) = run(folder);
        assert!(
            code == Some(2) && said.contains(&format!("{} can be written by everybody", part.display())),
            "{said}"
        );
        fs::set_permissions(part, mode).expect("root may");
    }
    chown(&file, Some(ANNE), None).expect("root may");
    let (code, [_, said]) = run(folder);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains(&format!("belongs to user {ANNE}")) && said.contains("--config none"), "{said}");
    let (code, [shown, said]) = run(&file);
    assert!(code == Some(0) && shown.contains("any"), "{said}");

    // Nor where it is: in his folder there may be a link to a file of anybody's.
    let roots = stage.scene.path("of-root.toml");
    fs::rename(&file, &roots).expect("root may");
    chown(&roots, Some(0), None).expect("root may");
    std::os::unix::fs::symlink(&roots, &file).expect("a link");
    let (code, [shown, _]) = run(folder);
    assert!(code == Some(0) && shown.contains("any"), "{shown}");
    for his in [file.parent().expect("a folder"), folder] {
        chown(his, Some(ANNE), None).expect("root may");
        let (code, [_, said]) = run(folder);
        assert!(
            code == Some(2) && said.contains(&format!("{} belongs to user {ANNE}", his.display())),
            "{said}"
        );
        chown(his, Some(0), None).expect("root may");
    }
    std::os::unix::fs::lchown(&file, Some(ANNE), None).expect("root may");
    let (code, [_, said]) = run(folder);
    assert!(code == Some(2) && said.contains("config.toml belongs to user"), "{said}");
    fs::remove_file(&file).expect("root may");
    fs::write(&file, vec![b'#'; (1 << 20) + 1]).expect("a file");
    let (code, [_, said]) = run(folder);
    assert!(code == Some(2) && said.contains("longer than"), "{said}");
}

/// A link of `/proc` leads into what another user has mounted for himself, where it is he who says whose files are.
#[test]
fn the_configuration_in_a_mount_namespace_of_another_user_is_not_obeyed() {
    let test = "the_configuration_in_a_mount_namespace_of_another_user_is_not_obeyed";
    let Some(stage) = stage(test, &["setpriv", "unshare", "mount"]) else { return };
    let config = |home: &Path| {
        let mut program = Command::new(stage.scene.path("bypath"));
        program.args(["config", "show"]).env("HOME", home).env_remove("XDG_CONFIG_HOME");
        let output = program.env_remove("BYPATH_CONFIG").stdin(Stdio::null()).output().expect("bypath");
        let shown = [output.stdout, output.stderr].map(|o| String::from_utf8_lossy(&o).into_owned());
        (output.status.code(), shown.concat())
    };
    let home = stage.scene.path("home");
    let file = home.join(".config/bypath/config.toml");
    fs::create_dir_all(file.parent().expect("a folder")).expect("folders");
    fs::write(&file, "[settings]\nallow-uid = [\"any\"]\n").expect("a file");
    let mut above = file.as_path();
    while let Some(folder) = above.parent().filter(|folder| folder.starts_with(&home)) {
        fs::set_permissions(folder, Permissions::from_mode(0o755)).expect("root may");
        above = folder;
    }
    let (code, shown) = config(&home);
    assert!(code == Some(0) && shown.contains("any"), "{shown}");
    let refused = |home: &Path| {
        let (code, shown) = config(home);
        assert!(code == Some(2) && shown.contains("link of /proc"), "{shown}");
        assert!(shown.contains("--config none"), "{shown}");
    };
    refused(&Path::new("/proc/self/root").join(home.strip_prefix("/").expect("a whole path")));

    // Folders of root's with his names, and there a file of root's that he has chosen.
    let roots = stage.scene.path("roots.toml");
    fs::copy(&file, &roots).expect("a file");
    open_to_all(&roots, 0o644);
    let script = "cd /mnt && mount -t tmpfs none /mnt && cd /mnt && mkdir -p a/.config b/bypath c h && : >c/config.toml &&
        mount -t overlay -o lowerdir=/srv:/mnt/a none h && mount -t overlay -o lowerdir=/srv:/mnt/b none h/.config &&
        mount -t overlay -o lowerdir=/srv:/mnt/c none h/.config/bypath &&
        mount --bind \"$0\" h/.config/bypath/config.toml && echo so && exec cat";
    let mut holder = Command::new(installed("setpriv"));
    holder.args([&format!("--reuid={ANNE}"), &format!("--regid={ANNE}"), "--clear-groups", "--", "unshare"]);
    holder.args(["-Urm", "sh", "-c", script]).arg(&roots).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.stderr(Stdio::null()).spawn().expect("setpriv");
    let mut said = String::new();
    BufReader::new(holder.stdout.as_mut().expect("a pipe")).read_line(&mut said).expect("a pipe");
    if said == "so\n" {
        let led = Path::new("/proc").join(holder.id().to_string()).join("root/mnt/h");
        assert!(led.join(".config/bypath/config.toml").exists(), "{}", led.display());
        refused(&led);
        // Nor where a link says that it is there.
        let link = stage.scene.path("link");
        std::os::unix::fs::symlink(&led, &link).expect("a link");
        refused(&link);
    } else {
        skip(&format!("users::policy::{test}"), "users may not mount here in a namespace of their own");
    }
    drop(holder.stdin.take());
    holder.wait().expect("it ends");
}

/// What looks on says what it could not see: that is not the same as that there is nothing.
#[test]
fn who_looks_as_another_user_is_told_what_he_does_not_see() {
    let test = "who_looks_as_another_user_is_told_what_he_does_not_see";
    let Some(stage) = stage(test, NEEDS) else { return };
    let by_bert = |look: &[&str]| {
        let mut command = Command::new(installed("setpriv"));
        command.args([&format!("--reuid={BERT}"), &format!("--regid={BERT}"), "--clear-groups", "--"]);
        command.arg(stage.scene.path("bypath")).args(look).env("BYPATH_CONFIG", "none");
        command.stdin(Stdio::null()).output().expect("setpriv")
    };
    for look in [&["ss"][..], &["top", "--once", "-d", "0.1"], &["dump", "--seconds", "0.1"]] {
        let output = by_bert(look);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && said.contains("root sees all"), "{look:?}: {said}");
    }
    // Who asks for another user's programs by name has an error.
    let output = by_bert(&["dump", "--seconds", "0.1", "--user", &ANNE.to_string()]);
    let said = String::from_utf8_lossy(&output.stderr);
    let words = format!("programs of user {ANNE} may not be looked into: run this as root");
    assert_eq!((output.status.code(), said.contains(&words)), (Some(1), true), "{said}");
}

/// Root's programs and an allowed user's have connections together: each side's record tells what it has sent, and only one of them counts.
#[test]
fn dump_shows_both_directions_of_a_connection_with_another_user() {
    const ROUNDS: usize = 60;
    let Some(stage) = stage("dump_shows_both_directions_of_a_connection_with_another_user", NEEDS) else {
        return;
    };
    let options = [("upgrade", "eager"), ("allow-uid", "any")];
    let own = Side { options: &options, ..Side::default() };
    let server = stage.program(&own, "server.stats", &installed("python3"));
    let mut server = server.arg(stage.scene.path("echo_server.py")).arg("threads").start();
    let port: u16 = server.ready(|line| line.strip_prefix("port ")?.parse().ok());
    let code = format!(
        "import socket, time\ns = socket.create_connection(('127.0.0.1', {port}))\nfor _ in range({ROUNDS}):\n    \
         s.sendall(b'some octets')\n    assert s.recv(99) == b'some octets'\n    time.sleep(0.05)\nprint('rounds {ROUNDS}')"
    );
    let dump = |by: &[&str]| {
        let mut command = Command::new(stage.scene.path("bypath"));
        command.args(["dump", "--seconds", "4"]).args(by).args(["port", &port.to_string()]);
        command.env("BYPATH_CONFIG", "none");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("bypath")
    };
    let dumps = [dump(&[]), dump(&["--user", &BERT.to_string()])];
    let others = Side { options: &options, ..Side::user(BERT) };
    let client = stage.program(&others, "client.stats", &installed("python3"));
    let said = client.arg("-c").arg(&code).finish();
    assert_eq!(said.number("rounds "), ROUNDS as u64);
    for dump in dumps {
        let output = dump.wait_with_output().expect("it ends");
        let (lines, said) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(said.contains(", 0 octets missed"), "{said}{lines}");
        let shown = |way: &str| lines.matches(way).count();
        let ways = [format!("> 127.0.0.1:{port}"), format!(":{port} >")].map(|way| shown(&way));
        // The first rounds go by the kernel.
        assert!(ways.iter().all(|count| *count > ROUNDS / 2), "{ways:?}: {said}{lines}");
        // Two may be one segment.
        assert!(shown("some octets") >= ways[0] + ways[1], "{lines}");
    }
    server.stop(Signal::TERM);
}
