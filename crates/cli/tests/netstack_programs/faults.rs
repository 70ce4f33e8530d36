//! A link that loses, doubles and reorders frames, and one that is down for five seconds: everything arrives all the same.

use crate::lab::{Lab, ROLES, have, script};
use rustix::process::Signal;
use std::fs;
use std::time::{Duration, Instant};

isolated! {
    fn loss_doubles_and_disorder_are_survived_in_both_roles() {
        if !have("faults::loss_doubles_and_disorder_are_survived_in_both_roles", &["python3"]) {
            return;
        }
        let lab = Lab::new("[faults]\nloss = 0.02\nduplication = 0.02\nreordering = 0.05\n");
        let crowd = script("crowd.py");
        for (server, client) in ROLES {
            let served = lab.start(server, &["python3", &crowd, "server", server.address(), "7000"]).hears("listening");
            // All octets are compared by those who sent them.
            let line = ["python3", &crowd, "client", server.address(), "7000", "20", "600000"];
            let client = lab.start(client, &line).hears("good 20");
            // It was no link without faults.
            let again: u64 = lab.told(&["sockets"]).iter().filter_map(|s| s["octets_again"].as_u64()).sum();
            assert!(again > 0, "nothing was sent again");
            client.quiet().end().expect(0);
            let served = served.hears("open 20");
            served.signal(Signal::TERM);
            served.end().expect(0);
        }
        lab.is_empty();
        lab.end();
    }
}

isolated! {
    fn five_seconds_without_a_link_are_survived_in_both_roles() {
        if !have("faults::five_seconds_without_a_link_are_survived_in_both_roles", &["python3"]) {
            return;
        }
        let begin = "link = \"packet:left\"\naddr = \"10.0.0.1/24\"\n[faults]\n";
        let lab = Lab::new("[faults]\n");
        let crowd = script("crowd.py");
        let loads = ROLES.map(|(server, client)| {
            let served = lab.start(server, &["python3", &crowd, "server", server.address(), "7000"]).hears("listening");
            (served, lab.start(client, &["python3", &crowd, "load", server.address(), "7000", "5"]).hears("flows"))
        });
        let set = |faults: &str| {
            fs::write(lab.folder.join("lab.toml"), format!("{begin}{faults}")).expect("a file");
            lab.service().signal(Signal::HUP);
        };
        let moved = || -> Vec<u64> {
            let all = lab.told(&["sockets"]);
            all.iter().filter(|s| s["state"] == "Established").filter_map(|s| s["octets_received"].as_u64()).collect()
        };
        set("loss = 1\n");
        // What was on its way has come, and nothing more does.
        let down = Instant::now();
        let mut before = moved();
        while down.elapsed() < Duration::from_secs(5) {
            std::thread::park_timeout(Duration::from_secs(5).saturating_sub(down.elapsed()).min(Duration::from_secs(1)));
            let now = moved();
            assert!(down.elapsed() < Duration::from_secs(2) || now == before, "octets come while the link is down");
            before = now;
        }
        set("");
        // All of them go on.
        let end = Instant::now() + crate::network::LONG;
        assert_eq!(before.len(), 10);
        while !moved().iter().zip(&before).all(|(now, before)| *now > before + 100_000) {
            assert!(Instant::now() < end, "{:?}, after {before:?}", moved());
        }
        for (served, load) in loads {
            // Who serves is gone: each connection's end is told of, and none was lost before.
            served.signal(Signal::TERM);
            served.end().expect(0);
            load.hears("lost 5").end().expect(0);
        }
        lab.is_empty();
        lab.end();
    }
}
