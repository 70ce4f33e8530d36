//! Folders that cannot be used, and what others do in one that can.

use crate::lab::{Lab, Request, Side};
use crate::support::{bypath, preload_library};
use bypath_shm::reason::Reason;
use rustix::process::geteuid;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::process::Command;

/// Under `bypath run` the program is not started.
#[test]
fn a_folder_that_cannot_be_used_is_refused_at_the_start() {
    let Some(lab) = Lab::new("a_folder_that_cannot_be_used_is_refused_at_the_start") else { return };
    let run = |folder: &str, expected: i32| {
        let mut command = Command::new(bypath());
        command.env("BYPATH_CONFIG", "none").arg("run").arg("--library").arg(preload_library());
        let output = command.arg("--rendezvous").arg(folder).args(["--", "true"]).output().expect("bypath");
        assert_eq!(output.status.code(), Some(expected), "{output:?}");
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let folder = lab.folder("meet");
    let path = folder.to_str().expect("a plain path");
    assert_eq!(run(path, 0), "");
    assert!(run("here", 2).contains("absolute path"));
    assert!(run(&format!("{path}/missing"), 125).contains("mkdir -m 700"));
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o770)).expect("our folder");
    assert!(run(path, 125).contains("chmod 700"));
}

/// A folder that others may write to after the start: each attempt looks at it.
#[test]
fn a_folder_that_others_may_write_to_is_not_used() {
    let Some(lab) = Lab::new("a_folder_that_others_may_write_to_is_not_used") else { return };
    let folder = lab.folder("meet");
    // `bypath run` would not start the client with it any more.
    let request = Request { client: Side::default(), villain: "opens the folder", ..lab.both() };
    lab.play(&request).assert_kernel("rendezvous-folder", "peer-remote");
    assert_eq!(fs::metadata(folder).expect("the folder").permissions().mode() & 0o777, 0o777);
}

/// Names that lead elsewhere, or to one who does not answer or says nonsense: the connection stays as it was.
#[test]
fn who_answers_and_is_not_the_other_end_gets_nothing() {
    let Some(lab) = Lab::new("who_answers_and_is_not_the_other_end_gets_nothing") else { return };
    for (villain, is_called) in [("links", false), ("is silent", true), ("says nonsense", true)] {
        let played = lab.play(&Request { client: lab.plain(), villain, ..lab.both() });
        played.assert_no_ring();
        assert_eq!(played.villain.contains(&"called".to_owned()), is_called, "{villain}: {played:?}");
        lab.empty("meet");
    }
}

/// One of the own user answers as if it were the other end, and shows sockets that prove nothing.
#[test]
fn who_answers_and_shows_nothing_that_proves_it_gets_nothing() {
    let Some(lab) = Lab::new("who_answers_and_shows_nothing_that_proves_it_gets_nothing") else { return };
    for villain in [
        "answers and shows pipes",
        "answers and shows another protocol",
        "answers and shows another domain",
        "answers and shows another probe",
        "answers and shows the wrong namespace",
        "answers and shows another cookie",
        "answers and says another namespace",
        "answers and shows all",
    ] {
        let played = lab.play(&Request { client: lab.plain(), villain, ..lab.both() });
        played.assert_no_ring();
        assert!(played.villain.contains(&"called".to_owned()), "{villain}: {played:?}");
        // It could trace both. What it passes as memory is none, so here it ends.
        let reason = if villain.ends_with(" all") { "peer-memory-invalid" } else { "peer-unproven" };
        assert_eq!(played.server.refused_for(reason), 1, "{villain}: {played:?}");
        lab.empty("meet");
    }
}

/// One of the own user calls, shows sockets that prove nothing, and says that it is the other end.
#[test]
fn who_calls_and_is_not_the_other_end_gets_nothing() {
    let Some(lab) = Lab::new("who_calls_and_is_not_the_other_end_gets_nothing") else { return };
    let unproven = Reason::PeerUnproven;
    for (villain, reason) in [
        ("shows pipes", unproven),
        ("shows another protocol", unproven),
        ("shows another domain", unproven),
        ("shows another probe", unproven),
        ("shows the wrong namespace", unproven),
        ("shows another cookie", unproven),
        ("says another namespace", unproven),
        // It could trace both. What it passes as its inbox is none, so here it ends.
        ("shows all", Reason::PeerMemoryInvalid),
    ] {
        let played = lab.play(&Request { client: lab.plain(), villain, ..lab.both() });
        played.assert_no_ring();
        let declined = (reason as u16).to_string();
        assert!(!played.villain.is_empty(), "{villain} was not declined: {played:?}");
        assert!(played.villain.iter().all(|said| *said == declined), "{villain}: {played:?}");
    }
}

/// Other users may have the folder, if names of one are safe from the other: they do not meet.
#[test]
fn other_users_do_not_meet() {
    const ANNE: u32 = 65001;
    const BERT: u32 = 65002;
    let Some(lab) = Lab::new("other_users_do_not_meet") else { return };
    if !geteuid().is_root() {
        return crate::support::skip(
            "containers::folder::other_users_do_not_meet",
            "needs root to be other users",
        );
    }
    let folder = lab.folder("meet");
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o1777)).expect("our folder");
    chown(&folder, Some(0), Some(0)).expect("chown by root");
    let side = |uid| {
        let mut side = Side { uid: Some(uid), ..lab.asked() };
        side.options.push(("allow-uid", "any".to_owned()));
        side
    };
    let same = Request { server: side(ANNE), client: side(ANNE), ..lab.both() };
    lab.play_as(&same, false).assert_ring();
    let others = Request { server: side(ANNE), client: side(BERT), ..lab.both() };
    lab.play_as(&others, false).assert_kernel("peer-remote", "peer-remote");
}
