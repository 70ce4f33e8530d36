//! What a service does for who types: echo requests, captures, changes.

use crate::common::TempDir;
use crate::network::Tool;
use crate::{TAP, asked, devices, end, is_there, netstack, service};
use bypath::pcapng::Reader;
use bypath::pcapng::reader::Block;
use rustix::process::Signal;
use serde_json::Value;
use std::process::Stdio;
use std::time::Duration;

/// Frames of a capture, which is whole.
#[track_caller]
fn frames(octets: &[u8]) -> usize {
    let blocks = Reader::new(octets).all().expect("a capture");
    assert!(matches!(blocks.last(), Some(Block::Statistics { .. })), "{:?}", blocks.last());
    blocks.iter().filter(|b| matches!(b, Block::Frame(_))).count()
}

isolated! {
    fn the_service_pings() {
        if !devices("tasks::the_service_pings") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &TAP);
        for to in ["10.9.0.1", "fd09::1"] {
            let args = ["ping", "--count=20", "--interval=2ms", "--size=2000", "--json", to];
            let report: Value = serde_json::from_slice(&asked(&folder, &args).expect(0).stdout).expect("JSON");
            assert_eq!((&report["sent"], &report["received"], &report["corrupt"]), (&20.into(), &20.into(), &0.into()), "{report}");
            assert_eq!(report["link"], "the service default");
            assert!(report["round_trip_ns"]["p50"].as_u64() > Some(0), "{report}");
        }
        let text = asked(&folder, &["ping", "--count=2", "--interval=1ms", "10.9.0.1"]).expect(0).text();
        assert!(text.contains("56 octets from 10.9.0.1: number 1, ") && text.contains("2 sent, 2 answered, 0 lost"), "{text}");
        let lost = asked(&folder, &["ping", "--count=1", "--timeout=50ms", "10.9.0.77"]).expect(3).text();
        assert!(lost.contains("1 sent, 0 answered, 1 lost"), "{lost}");
        // Ctrl-C: what has come until then.
        let long = Tool::of(netstack(&folder, &["ping", "--count=60000", "--interval=10ms", "10.9.0.1"])).hears("number 3");
        long.signal(Signal::INT);
        let told = long.end().expect(0).text();
        assert!(told.contains(" 0 lost (0"), "{told}");
        for (code, args, words) in [
            (1, &["ping", "192.0.2.1"][..], &["cannot send to 192.0.2.1"][..]),
            (1, &["ping", "--name=other", "10.9.0.1"], &["no netstack service named other", "there are: default", "--link LINK"]),
            (2, &["ping", "--addr=10.9.0.5/24", "10.9.0.1"], &["--link LINK"]),
            (2, &["ping", "--name=default", "--link=tap:x", "10.9.0.1"], &["cannot be used with"]),
            (2, &["ping", "--count=0", "10.9.0.1"], &["--count"]),
        ] {
            let ended = asked(&folder, args).expect(code);
            assert!(words.iter().all(|word| ended.stderr.contains(word)), "{args:?}: {}", ended.stderr);
        }
        end(running);
    }
}

isolated! {
    fn the_service_captures() {
        if !devices("tasks::the_service_captures") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &TAP);
        let file = folder.join("lab.pcapng");
        let write = format!("--write={}", file.display());
        let ping = ["ping", "--count=5", "--interval=1ms", "10.9.0.1"];
        // The file is begun once the service writes down.
        let begun = || {
            let begin = std::time::Instant::now();
            while !std::fs::metadata(&file).is_ok_and(|m| m.len() > 0) {
                assert!(begin.elapsed() < Duration::from_secs(20));
                std::thread::yield_now();
            }
        };
        let capture = Tool::of(netstack(&folder, &["capture", &write, "--json", "--protocol=icmp"]));
        begun();
        asked(&folder, &ping).expect(0);
        capture.signal(Signal::INT);
        let report: Value = serde_json::from_slice(&capture.end().expect(0).stdout).expect("JSON");
        assert_eq!((&report["frames"], &report["dropped"]), (&10.into(), &0.into()), "{report}");
        assert_eq!(report["octets"], 10 * (14 + 20 + 8 + 56));
        assert_eq!(frames(&std::fs::read(&file).expect("a file")), 10);

        // To standard output, until so many have come.
        std::fs::remove_file(&file).expect("a file");
        let mut command = netstack(&folder, &["capture", "-w", "-", "--host=10.9.0.1", "--count=3"]);
        let three = command.stdout(Stdio::from(std::fs::File::create(&file).expect("a file"))).spawn().expect("a program");
        begun();
        asked(&folder, &ping).expect(0);
        let three = three.wait_with_output().expect("an end");
        assert!(three.status.success());
        assert_eq!(frames(&std::fs::read(&file).expect("a file")), 3);

        // A reader that goes, and a time that is over, end it.
        let ended = asked(&folder, &["capture", &write, "--time=20ms", "--port=9"]).expect(0);
        assert!(ended.stderr.contains("0 frames (") && ended.stderr.contains("0 dropped"), "{}", ended.stderr);
        assert_eq!(frames(&std::fs::read(&file).expect("a file")), 0);
        for (code, args, words) in [
            (2, &["capture"][..], &["--write"][..]),
            (2, &["capture", "-w", "-", "--json"], &["--json=FILE"]),
            (2, &["capture", &write, "--protocol=xyz"], &["tcp, udp, icmp, icmp6"]),
            (1, &["capture", &write, "--interface=eth7"], &["eth7: no such interface of the service; there are: lo, mine"]),
            (1, &["capture", &write, "--name=other"], &["no netstack service named other", "--link LINK"]),
            (1, &["capture", "--write=/nowhere/x", "--time=1s"], &["cannot write /nowhere/x"]),
        ] {
            let ended = asked(&folder, args).expect(code);
            assert!(words.iter().all(|word| ended.stderr.contains(word)), "{args:?}: {}", ended.stderr);
        }
        // Nobody is left who captures, and the service is well.
        asked(&folder, &ping).expect(0);
        end(running);
    }
}

isolated! {
    fn a_capture_without_a_service() {
        if !devices("tasks::a_capture_without_a_service") {
            return;
        }
        let folder = TempDir::new();
        let file = folder.join("own.pcapng");
        let write = format!("--write={}", file.display());
        let args = ["capture", &write, "--json", "--host=10.9.0.1", "--count=4", TAP[0], TAP[1]];
        let capture = Tool::of(netstack(&folder, &args));
        // It is asked who has the address, and for a connection: four frames.
        while !is_there("10.9.0.2") {}
        let report: Value = serde_json::from_slice(&capture.end().expect(0).stdout).expect("JSON");
        assert_eq!((&report["frames"], &report["dropped"]), (&4.into(), &0.into()), "{report}");
        assert_eq!(frames(&std::fs::read(&file).expect("a file")), 4);
    }
}

isolated! {
    fn addresses_routes_and_neighbours_are_changed_as_ip_does() {
        if !devices("tasks::addresses_routes_and_neighbours_are_changed_as_ip_does") {
            return;
        }
        let folder = TempDir::new();
        let running = service(&folder, &TAP);
        let does = |args: &[&str], told: &str| {
            let ended = asked(&folder, args).expect(0);
            assert!(ended.stderr.contains(told), "{args:?}: {}", ended.stderr);
        };
        let list = |what: &str| asked(&folder, &[what]).expect(0).text();
        does(&["addr", "add", "10.9.0.7/24", "dev", "mine", "--no-check"], "10.9.0.7/24 added");
        assert!(is_there("10.9.0.7") && list("addr").contains("10.9.0.7/24"));
        does(&["addr", "del", "10.9.0.7/24"], "10.9.0.7 removed");
        assert!(!is_there("10.9.0.7") && !list("addr").contains("10.9.0.7"));
        does(&["route", "add", "198.51.100.0/24", "via", "10.9.0.1", "metric", "5"], "route to 198.51.100.0/24 added");
        does(&["route", "add", "default", "via", "fd09::1"], "route to ::/0 added");
        let routes = list("route");
        assert!(routes.contains("198.51.100.0/24") && routes.contains("::/0"), "{routes}");
        does(&["route", "del", "198.51.100.0/24"], "removed");
        does(&["route", "del", "default", "via", "fd09::1", "--name=default"], "removed");
        assert!(is_there("10.9.0.2") && list("neigh").contains("10.9.0.1"));
        // Nobody has it: it is there when that is known.
        does(&["addr", "add", "10.9.0.6/24"], "asking others on mine whether 10.9.0.6 is free: 4 to 7 s\nbypath: 10.9.0.6/24 added");
        assert!(is_there("10.9.0.6"));
        let done = asked(&folder, &["neigh", "flush", "to", "10.9.0.1", "--json"]).expect(0);
        let done: Value = serde_json::from_slice(&done.stdout).expect("JSON");
        assert_eq!(done["done"], "1 neighbour(s) forgotten");
        does(&["neigh", "flush"], "forgotten");
        for (code, args, words) in [
            (1, &["addr", "add", "10.9.0.1/24"][..], &["the kernel has that address on mine"][..]),
            (1, &["addr", "add", "10.9.0.0/24"], &["but the network's; give one of it, such as 10.9.0.1/24"]),
            (1, &["addr", "add", "10.9.0.255/24"], &["everybody's there (broadcast)"]),
            (1, &["route", "add", "203.0.113.0/24", "via", "10.8.0.1"], &["route to 203.0.113.0/24 via 10.8.0.1: that router is in no network of the stack's addresses on mine"]),
            (1, &["addr", "add", "10.9.0.2/24"], &["the interface has this address already"]),
            (1, &["addr", "del", "10.9.0.99"], &["10.9.0.99 is no address of the interface"]),
            (1, &["addr", "add", "10.9.0.8/24", "dev", "eth7"], &["eth7: no such interface of the service; there are: lo, mine"]),
            (1, &["route", "del", "198.51.100.0/24"], &["there is no such route"]),
            (1, &["addr", "add", "10.9.0.8/24", "--name=other"], &["no netstack service named other"]),
            (2, &["addr", "add", "10.9.0.8"], &["10.9.0.2/24"]),
            (2, &["addr", "add", "10.9.0.8/24", "dev"], &["dev: what is to follow?"]),
            (2, &["route", "add", "default", "by", "10.9.0.1"], &["by: expected via ..., dev ..., metric ..."]),
            (2, &["route", "add", "default", "via", "home"], &["via home: expected the address of a router"]),
        ] {
            let ended = asked(&folder, args).expect(code);
            assert!(words.iter().all(|word| ended.stderr.contains(word)), "{args:?}: {}", ended.stderr);
        }
        end(running);
    }
}
