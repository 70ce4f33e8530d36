//! Programs in containers, which have network, pid, mount, IPC and UTS namespaces of their own and a `/proc` of their own: they
//! share memory where both are asked to, with one folder, and nowhere else.

#[path = "../programs/support/mod.rs"]
mod support;

mod changes;
mod folder;
mod lab;
mod networks;
mod watched;

use lab::{Lab, Request, Side};

/// Two containers on a bridge, each asked.
#[test]
fn containers_on_a_bridge_share_memory() {
    let Some(lab) = Lab::new("containers_on_a_bridge_share_memory") else { return };
    for address in ["10.7.0.2", "fd07::2"] {
        lab.play(&Request { address, ..lab.both() }).assert_ring();
    }
}

/// Nobody is root of more than a user namespace of his own, and each container has another one.
#[test]
fn containers_without_root_share_memory() {
    let Some(lab) = Lab::new("containers_without_root_share_memory") else { return };
    lab.play(&Request { own_users: true, ..lab.both() }).assert_ring();
}

#[test]
fn one_who_is_not_asked_stays_on_the_kernel() {
    let Some(lab) = Lab::new("one_who_is_not_asked_stays_on_the_kernel") else { return };
    for (server, client) in [(true, false), (false, true), (false, false)] {
        let side = |asked| if asked { lab.asked() } else { Side::default() };
        let played = lab.play(&Request { server: side(server), client: side(client), ..lab.both() });
        played.assert_kernel("peer-remote", "peer-remote");
    }
}

/// A pod: one network, other pid, mount, IPC and UTS namespaces. The kernel shows the ends to each other; the folder says that it is meant.
#[test]
fn containers_of_a_pod_share_memory_if_asked() {
    let Some(lab) = Lab::new("containers_of_a_pod_share_memory_if_asked") else { return };
    let pod = || Request { layout: "pod", address: "127.0.0.1", ..lab.both() };
    lab.play(&pod()).assert_ring();
    lab.play(&Request { client: Side::default(), ..pod() })
        .assert_kernel("policy-namespace", "policy-namespace");
    let played = lab.play(&Request { server: lab.asked_for("other"), ..pod() });
    played.assert_kernel("policy-namespace", "policy-namespace");
}

#[test]
fn a_connection_goes_on_in_a_forked_process() {
    let Some(lab) = Lab::new("a_connection_goes_on_in_a_forked_process") else { return };
    let played = lab.play(&Request { deed: "fork", ..lab.both() });
    assert_eq!(played.server.records, 2, "{played:?}");
    played.assert_ring();
}

/// Exec takes the connection back; the next image meets the other end again, in the same folder.
#[test]
fn a_connection_comes_up_again_in_another_image() {
    let Some(lab) = Lab::new("a_connection_comes_up_again_in_another_image") else { return };
    let played = lab.play(&Request { deed: "exec", ..lab.both() });
    assert_eq!((played.server.records, played.server.upgraded), (2, 2), "{played:?}");
    assert_eq!(played.server.recalled.get("recalled-exec"), Some(&1), "{played:?}");
    played.assert_ring();
}

/// The client sees the end of the connection after what was sent before it, and no sooner or later.
#[test]
fn a_killed_process_ends_its_connection_in_the_other_container() {
    let Some(lab) = Lab::new("a_killed_process_ends_its_connection_in_the_other_container") else { return };
    let played = lab.play(&Request { deed: "die", ..lab.both() });
    // It has answered a thousand messages of 1,024 octets, or was killed with answers on the way.
    assert_eq!(played.said, [["ended", "1024000"]], "{played:?}");
    assert_eq!((played.server.upgraded, played.client.upgraded), (1, 1), "{played:?}");
}

#[test]
fn many_connections_of_the_same_processes_meet() {
    let Some(lab) = Lab::new("many_connections_of_the_same_processes_meet") else { return };
    let played = lab.play(&Request { streams: 12, rounds: 500, ..lab.both() });
    assert_eq!((played.server.upgraded, played.client.upgraded), (12, 12), "{played:?}");
    played.assert_ring();
}
