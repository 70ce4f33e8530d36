//! Networks in which addresses do not say who the other end is.

use crate::lab::{Lab, Request};

/// The server sees another address than the client has: no name is the same, and the bytes stay where the translation is.
#[test]
fn what_is_translated_stays_on_the_kernel() {
    let Some(lab) = Lab::new("what_is_translated_stays_on_the_kernel") else { return };
    let played = lab.play(&Request { layout: "translated", address: "10.8.0.2", ..lab.both() });
    played.assert_kernel("peer-remote", "peer-remote");
}

/// Routed without translation, through a namespace between the two, it is one connection.
#[test]
fn what_is_routed_is_not_translated() {
    let Some(lab) = Lab::new("what_is_routed_is_not_translated") else { return };
    lab.play(&Request { layout: "routed", address: "10.8.0.2", ..lab.both() }).assert_ring();
}

/// Two networks of one host with the same addresses and ports: the client of one and the server of the other have each a name that the
/// other one looks for.
#[test]
fn twins_of_two_networks_do_not_meet() {
    let Some(lab) = Lab::new("twins_of_two_networks_do_not_meet") else { return };
    let played = lab.play(&Request { layout: "twins", ..lab.both() });
    played.assert_no_ring();
    assert!(played.log.contains("stays on the kernel: peer-unproven"), "they did not try: {played:?}");
}
