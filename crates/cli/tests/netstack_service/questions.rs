//! What a service says of itself.

use crate::common::TempDir;
use crate::{TAP, asked, devices, end, is_there, service};
use serde_json::Value;

/// The answer as JSON.
#[track_caller]
fn json(folder: &TempDir, args: &[&str]) -> Vec<Value> {
    let ended = asked(folder, &[args, &["--json"]].concat()).expect(0);
    serde_json::from_slice(&ended.stdout).expect("JSON")
}

isolated! {
    fn addresses_routes_neighbours_and_counters_are_told() {
        if !devices("questions::addresses_routes_neighbours_and_counters_are_told") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &[&TAP[..], &["--gateway=10.9.0.1"]].concat());
        assert!(is_there("10.9.0.2"));
        let all = json(&folder, &["addr"]);
        let own = all.iter().find(|a| a["address"] == "10.9.0.2/24").expect("an address");
        assert_eq!((&own["interface"], &own["state"]), (&"mine".into(), &"preferred".into()));
        let all = json(&folder, &["route"]);
        let default = all.iter().find(|r| r["destination"] == "0.0.0.0/0").expect("a route");
        assert_eq!((&default["via"], &default["interface"]), (&"10.9.0.1".into(), &"mine".into()));
        let all = json(&folder, &["neigh"]);
        let kernel = all.iter().find(|n| n["address"] == "10.9.0.1").expect("a neighbour");
        assert_eq!(kernel["mac"].as_str().map(str::len), Some(17), "{kernel}");
        assert_eq!(json(&folder, &["sockets"]), Vec::<Value>::new());
        let all = json(&folder, &["stats"]);
        let value = |name: &str| all.iter().find(|s| s["name"] == name).map(|s| s["value"].clone());
        assert!(value("link_received").expect("a counter").as_u64() > Some(0));
        let device = all.iter().find(|s| s["interface"] == "mine").expect("a link");
        assert!(device["received"].as_u64() > Some(0), "{device}");
        assert_eq!(json(&folder, &["ls"])[0]["pid"], running.id());

        for (what, words) in [
            ("addr", ["10.9.0.2/24", "fd09::2/64", "preferred"]),
            ("route", ["10.9.0.0/24", "0.0.0.0/0", "10.9.0.1"]),
            ("neigh", ["10.9.0.1", "mine", "STATE"]),
            ("stats", ["link_received", "link_sent of mine", "VALUE"]),
            ("ls", ["default", "running", "SOCKETS"]),
        ] {
            let text = asked(&folder, &[what]).expect(0).text();
            for word in words {
                assert!(text.contains(word), "{what}: {word}: {text}");
            }
        }
        let (few, all) = (asked(&folder, &["stats"]).text(), asked(&folder, &["stats", "--all"]).text());
        assert!(!few.contains("udp_drop_checksum") && all.contains("udp_drop_checksum"), "{few}");
        assert!(asked(&folder, &["sockets"]).expect(0).stderr.contains("no sockets"));
        end(running);
    }
}

isolated! {
    fn limits_of_the_file_hold() {
        if !devices("questions::limits_of_the_file_hold") {
            return;
        }
        let folder = TempDir::new();
        let file = folder.join("lab.toml");
        let write = |sockets: u32| {
            std::fs::write(&file, format!("[limits]\nsockets-per-user = {sockets}\n")).expect("a file");
        };
        write(7);
        let config = format!("--config={}", file.display());
        let running = service(&folder, &[&TAP[..], &[&config]].concat());
        let most = || json(&folder, &["ls"])[0]["sockets_per_user"].clone();
        assert_eq!(most(), 7);
        write(9);
        running.signal(rustix::process::Signal::HUP);
        let running = running.says("configuration read again: limits changed");
        assert_eq!(most(), 9);
        end(running);
    }
}
