//! Requests from the stack, and requests to it.

use crate::devices;
use crate::network::{Tool, address, hosts, tool, veth};
use serde_json::Value;

/// Pings, which must all come back.
#[track_caller]
fn comes_back(args: &[&str], count: u32) {
    let count_text = count.to_string();
    let all = [&["netstack", "ping", "--json", "--interval=5ms", "--count", &count_text], args].concat();
    let ended = tool(&all).expect(0);
    let report: Value = serde_json::from_slice(&ended.stdout).expect("JSON");
    assert_eq!((&report["sent"], &report["received"]), (&count.into(), &count.into()), "{args:?}: {report}");
    assert_eq!((&report["corrupt"], &report["duplicate"]), (&0.into(), &0.into()), "{args:?}: {report}");
    assert!(report["round_trip_ns"]["p50"].as_u64().is_some_and(|ns| ns > 0), "{report}");
}

isolated! {
    fn the_kernel_answers_at_every_size_in_both_families() {
        if !devices("pings::the_kernel_answers_at_every_size_in_both_families") {
            return;
        }
        for link in ["--link=tap:mine", "--link=tun:mine"] {
            for (net, to) in [("--net=10.9.0.1/24", "10.9.0.1"), ("--net=fd09::1/64", "fd09::1")] {
                for size in ["8", "56", "1000", "1452", "1472", "1473", "9000", "65400"] {
                    comes_back(&[link, net, "--size", size, to], 3);
                }
                comes_back(&[link, net, "--mtu=9000", "--size=20000", to], 3);
                comes_back(&[link, net, "--mtu=1280", "--size=20000", to], 3);
            }
        }
    }
}

isolated! {
    fn a_stack_that_stands_on_an_interface_asks_and_answers() {
        veth();
        address("right", "10.0.0.2");
        bypath_sys::netns::add_address("right", "fd00::2".parse().expect("an address"), 64).expect("an address");
        comes_back(&["--link=packet:left", "--addr=10.0.0.1/24", "10.0.0.2"], 20);
        comes_back(&["--link=packet:left", "--addr=fd00::1/64", "fd00::2"], 20);
        comes_back(&["--link=packet:left", "--addr=10.0.0.1/24", "--size=20000", "10.0.0.2"], 5);
        // Two stacks, and the kernel between them only as a cable.
        let mut echo = Tool::start(&["netstack", "udp-echo", "--link=packet:right", "--addr=10.1.0.2/24", "--addr=fd01::2/64"]);
        echo = echo.says("answering on right");
        comes_back(&["--link=packet:left", "--addr=10.1.0.1/24", "10.1.0.2"], 50);
        comes_back(&["--link=packet:left", "--addr=fd01::1/64", "--size=3000", "fd01::2"], 50);
        echo.signal(rustix::process::Signal::INT);
        echo.end().expect(0);
    }
}

isolated! {
    fn routers_are_used_and_what_they_say_is_told() {
        let _other = hosts();
        // `left` is a router of this namespace between the stack's network and that of `right`.
        std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").expect("a setting of this namespace");
        if !devices("pings::routers_are_used_and_what_they_say_is_told") {
            return;
        }
        let link = ["--link=tap:mine", "--net=10.9.0.1/24"];
        comes_back(&[link[0], link[1], "--gateway=10.9.0.1", "10.0.0.1"], 3);
        let ended = tool(&[&["netstack", "ping", "--count=1", "--timeout=300ms", "--gateway=10.9.0.1"], &link[..], &["203.0.113.1"]].concat()).expect(3);
        assert!(ended.stderr.contains("10.9.0.1 says: the destination cannot be reached"), "{}", ended.stderr);
        let ended = tool(&[&["netstack", "ping", "--count=1", "--timeout=300ms", "--gateway=10.9.0.1", "--ttl=1"], &link[..], &["10.0.0.2"]].concat()).expect(3);
        assert!(ended.stderr.contains("too many routers"), "{}", ended.stderr);
    }
}
