//! Processes that share, hand on and inherit connections: what arrives is what arrives on the kernel.

use crate::support::{Program, Scene, Way, missing, ring_required, skip};
use std::process::Command;

/// Runs one case of processes.py on the kernel and with everything under Bypath. At least `share` percent of the bytes
/// must have gone through rings: what comes before a fork or after a recall for good is the kernel's.
fn case(name: &str, share: u64) {
    Scene::play(&format!("processes::{name}"), Way::Both, &["python3"], |scene| {
        let kernel = scene.plain("python3").script("processes.py").arg(name).finish();
        let rings = scene.client("python3").script("processes.py").arg(name).finish();
        assert_eq!(kernel.stdout, rings.stdout, "{}", rings.stderr);
        scene.prove_share(0, share);
    });
}

#[test]
fn shut_down_without_room() {
    if let Some(reason) = missing(&["python3"]) {
        return skip("processes::shut_down_without_room", &reason);
    }
    for narrow in ["0", "1"] {
        let scene = Scene::new(Way::Both);
        let run = |program: Program| {
            let program = program.env("BYPATH_TEST_NARROW", narrow).script("processes.py");
            program.arg("shut_down_without_room").finish().stdout
        };
        assert_eq!(run(scene.plain("python3")), run(scene.client("python3")), "narrow: {narrow}");
    }
}

#[test]
fn sockets_that_are_connected_to_somebody_else() {
    if let Some(reason) = missing(&["python3"]) {
        return skip("processes::sockets_that_are_connected_to_somebody_else", &reason);
    }
    let scene = Scene::new(Way::Both);
    let kernel = scene.plain("python3").script("dissolved.py").finish();
    let rings = scene.client("python3").script("dissolved.py").finish();
    assert_eq!(kernel.stdout, rings.stdout, "{}", rings.stderr);
    assert!(!ring_required() || scene.totals().ring_tx > 0, "{:#?}", scene.totals());
}

#[test]
fn closed_as_it_comes_up() {
    if let Some(reason) = missing(&["python3"]) {
        return skip("processes::closed_as_it_comes_up", &reason);
    }
    let scene = Scene::new(Way::Both);
    let run = |program: Program| {
        // After the first of these connections none would be moved as too short.
        let program = program.env("BYPATH_UPGRADE", "eager").script("processes.py");
        program.arg("closed_as_it_comes_up").finish().stdout
    };
    assert_eq!(run(scene.plain("python3")), run(scene.client("python3")));
}

#[test]
fn handed_on_into_another_time() {
    let may_be_made = || Command::new("unshare").args(["--time", "true"]).status().is_ok_and(|s| s.success());
    let refused = || (!may_be_made()).then(|| "no time namespace may be made".to_owned());
    match missing(&["python3", "unshare"]).or_else(refused) {
        Some(reason) => skip("processes::handed_on_into_another_time", &reason),
        None => case("handed_on_into_another_time", 40),
    }
}

macro_rules! cases {
    ($($name:ident $share:literal;)*) => {$(
        #[test]
        fn $name() {
            case(stringify!($name), $share);
        }
    )*};
}

cases! {
    files_sent 2;
    files_in_one_call 90;
    forked_before_any_socket 90;
    prefork 95;
    fork_per_connection 95;
    shared_by_children 1;
    read_by_a_child 90;
    vfork 90;
    spawn 90;
    privileges_dropped 90;
    everything_closed 90;
    limit_lowered 60;
    ranges_closed 90;
    replaced_by_dup2 90;
    closed_under_a_reader 90;
    outlived_child 90;
    answers_of_two_servers 90;
    forked_before_the_answer 75;
    slow_reader 60;
    reset_under_a_writer 1;
    bell_told_before_a_vfork 50;
    bell_that_cannot_be_told 50;
    resting_ones_keep_nobody_out 50;
    open_for_each_size 50;
    everybody_has_a_turn 90;
}
