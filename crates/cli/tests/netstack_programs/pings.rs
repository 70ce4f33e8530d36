//! ping, of loopback and of the longest messages.

use crate::lab::{Lab, Side, have, script};

#[track_caller]
fn comes_back(lab: &Lab, side: Side, args: &[&str]) {
    let said = lab.start(side, &[&["ping", "-c", "2", "-i", "0.2", "-W", "10"], args].concat()).quiet().end();
    assert!(
        said.code() == Some(0) && said.text().contains("2 received"),
        "{args:?}: {}{}",
        said.text(),
        said.stderr
    );
}

isolated! {
    fn pings_of_loopback_and_of_any_length_come_back() {
        if !have("pings::pings_of_loopback_and_of_any_length_come_back", &["ping", "python3"]) {
            return;
        }
        let lab = Lab::new("");
        let range = "/proc/sys/net/ipv4/ping_group_range";
        // Where the kernel allows no ping sockets, as in a new namespace, loopback is the stack's, else the kernel's.
        for allowed in [false, true] {
            if allowed {
                std::fs::write(range, "0 0").expect("a setting of this namespace");
            }
            comes_back(&lab, Side::Stack, &["127.0.0.1"]);
            comes_back(&lab, Side::Stack, &["::1"]);
            // One that was bound to every address before it was known where it sends.
            let bound = lab.done(Side::Stack, &["python3", &script("ping_bound.py"), "127.0.0.1"]);
            assert_eq!(bound.text(), "0 127.0.0.1\n", "{allowed}: {}", bound.stderr);
        }
        for size in ["65480", "65499", "65500", "65507"] {
            comes_back(&lab, Side::Stack, &["-s", size, Side::Kernel.address()]);
            comes_back(&lab, Side::Kernel, &["-s", size, Side::Stack.address()]);
        }
        lab.is_empty();
        lab.end();
    }
}
