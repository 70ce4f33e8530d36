//! Files arrive octet for octet, by every operation and road.

use crate::common::TempDir;
use crate::network::{Tool, address, hosts, skip, veths};
use crate::{file, json, receiver, send, text};
use bypath_sys::netns;
use rustix::process::Signal;

const OPS: [&str; 3] = ["send", "write", "read"];

/// Sends files of many lengths by every operation from one road to another.
fn all_lengths(recv: &[&str], sender: &[&str], mtus: &[&str], there: Option<&netns::Namespace>) {
    for op in OPS {
        for (len, mtu) in [0, 1, 1023, 4097, 1 << 20, (3 << 20) + 7].into_iter().zip(mtus.iter().cycle()) {
            let directory = TempDir::new();
            let (from, octets) = file(&directory, "from", len);
            let to = directory.join("to");
            let recv = [recv, &["--output", text(&to), "--json"]].concat();
            let receiver = match there {
                Some(there) => there.run(|| receiver(&recv)).expect("the other host"),
                None => receiver(&recv),
            };
            let sent = send(&[&[text(&from), "--op", op, "--mtu", mtu, "--json"], sender].concat()).expect(0);
            let received = receiver.end().expect(0);
            assert!(std::fs::read(&to).expect("a file") == octets, "{op} {len}");
            let (sent, received) = (json(&sent), json(&received));
            assert_eq!(received[0]["sha256"], sent["sha256"], "{op} {len}");
            assert_eq!(
                (&received[0]["ok"], &received[0]["octets"]),
                (&true.into(), &len.into()),
                "{op} {len}"
            );
            assert_eq!(sent["mtu"].to_string(), *mtu);
            for report in [&sent, &received[0]] {
                assert_eq!((&report["wrong_icrc"], &report["malformed"]), (&0.into(), &0.into()), "{report}");
            }
            // Nothing but the two files.
            assert_eq!(std::fs::read_dir(text(&directory.join("."))).expect("a directory").count(), 2);
        }
    }
}

isolated! {
    fn through_udp_sockets_of_one_host() {
        netns::set_up("lo", true).unwrap();
        all_lengths(&["--bind=127.0.0.1"], &["--to=127.0.0.1", "--bind=127.0.0.2"], &["256", "1024", "4096"], None);
    }
}

isolated! {
    fn through_udp_sockets_under_ipv6() {
        netns::set_up("lo", true).unwrap();
        for n in 1..=2 {
            netns::add_address("lo", format!("fd00::{n}").parse().unwrap(), 128).unwrap();
        }
        all_lengths(&["--bind=fd00::1"], &["--to=fd00::1", "--bind=fd00::2"], &["1024", "4096", "256"], None);
    }
}

isolated! {
    fn through_udp_sockets_of_two_hosts_without_naming_an_address_of_ones_own() {
        let there = hosts();
        all_lengths(&[], &["--to=10.0.0.2"], &["1024"], Some(&there));
    }
}

isolated! {
    // One that its routes would not choose.
    fn through_udp_sockets_to_another_address_of_the_host() {
        let there = hosts();
        there.run(|| address("right", "10.0.0.9")).unwrap();
        all_lengths(&[], &["--to=10.0.0.9"], &["1024"], Some(&there));
    }
}

isolated! {
    fn as_raw_frames_with_addresses_that_no_kernel_has() {
        veths(&[("left", "right")]);
        for name in ["left", "right"] {
            netns::set_mtu(name, 9000).unwrap();
        }
        let recv = ["--iface=right", "--bind=192.0.2.2"];
        let sender = ["--iface=left", "--bind=192.0.2.1", "--to=192.0.2.2"];
        all_lengths(&recv, &sender, &["4096", "512"], None);
    }
}

isolated! {
    fn as_raw_frames_under_ipv6() {
        let (_, right) = crate::network::veth();
        let mac = right.to_string();
        let recv = ["--iface=right", "--bind=fd00::2"];
        let sender = ["--iface=left", "--bind=fd00::1", "--to=fd00::2", "--to-mac", &mac];
        all_lengths(&recv, &sender, &["1024"], None);
    }
}

isolated! {
    // The kernel's own IP headers against those that are made here, both ways: every ICRC covers them.
    fn between_a_udp_socket_and_raw_frames() {
        let there = hosts();
        all_lengths(&[], &["--to=10.0.0.2", "--iface=left", "--bind=10.0.0.77"], &["1024"], Some(&there));
        let raw = ["--iface=right", "--bind=10.0.0.88"];
        all_lengths(&raw, &["--to=10.0.0.88"], &["1024"], Some(&there));
    }
}

isolated! {
    fn counters_count_across_senders_until_the_user_has_enough() {
        netns::set_up("lo", true).unwrap();
        let receiver = receiver(&["--bind=127.0.0.1", "--count=0", "--json"]);
        let count = |args: &[&str]| {
            let args = [&["--op=atomic", "--to=127.0.0.1", "--bind=127.0.0.2"], args].concat();
            let ended = send(&args).expect(0);
            (ended.text(), ended.stderr)
        };
        let (before, said) = count(&["--add=5", "--count=3"]);
        assert_eq!(before, "0\n5\n10\n");
        assert!(said.contains("it is 15 now"), "{said}");
        let (before, _) = count(&["--compare=15", "--swap=100"]);
        assert_eq!(before, "15\n");
        let (before, said) = count(&["--compare=15", "--swap=7"]);
        assert_eq!(before, "100\n");
        assert!(said.contains("it is 100 now"), "{said}");
        let (before, _) = count(&["--add=18446744073709551615"]);
        assert_eq!(before, "100\n");
        let receiver = receiver.says("99");
        receiver.signal(Signal::INT);
        let values: Vec<_> = json(&receiver.end().expect(0))
            .as_array().unwrap().iter().map(|r| r["value"].as_u64().unwrap()).collect();
        assert_eq!(values, [15, 100, 100, 99]);
    }
}

isolated! {
    fn one_receiver_takes_several_files_into_a_directory_by_their_names() {
        netns::set_up("lo", true).unwrap();
        let (here, inbox) = (TempDir::new(), TempDir::new());
        let inbox_path = inbox.join(".");
        let receiver = receiver(&["--bind=127.0.0.1", "--count=3", "--output", text(&inbox_path)]);
        for (name, op) in [("one", "send"), ("two", "write"), ("three", "read")] {
            let (from, octets) = file(&here, name, 70_000);
            send(&[text(&from), "--op", op, "--to=127.0.0.1", "--bind=127.0.0.2"]).expect(0);
            assert_eq!(std::fs::read(inbox.join(name)).unwrap(), octets);
        }
        receiver.end().expect(0);
    }
}

isolated! {
    fn a_device_is_written_to_and_stays_one() {
        use std::os::unix::fs::FileTypeExt;
        netns::set_up("lo", true).unwrap();
        let receiver = receiver(&["--bind=127.0.0.1", "--output=/dev/null"]);
        let sender = Tool::start(&["roce", "send", "-", "--to=127.0.0.1", "--bind=127.0.0.2"]).give(b"gone");
        receiver.end().expect(0);
        sender.end().expect(0);
        assert!(std::fs::metadata("/dev/null").unwrap().file_type().is_char_device());
        assert!(!std::path::Path::new("/dev/null.part").exists());
    }
}

isolated! {
    fn standard_input_goes_to_standard_output() {
        netns::set_up("lo", true).unwrap();
        let octets = crate::network::octets(300_000);
        let receiver = receiver(&["--bind=127.0.0.1", "--output=-"]);
        let sender = Tool::start(&["roce", "send", "-", "--to=127.0.0.1", "--bind=127.0.0.2"]).give(&octets);
        let ended = receiver.end().expect(0);
        assert!(ended.stdout == octets);
        sender.end().expect(0);
    }
}

/// Whether TUN devices can be made here; says which test is skipped where they cannot.
fn tun_is_there(test: &str) -> bool {
    let opened = std::fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    opened.map_err(|e| skip(test, &format!("no TUN devices: {e}"))).is_ok()
}

isolated! {
    fn between_a_tun_device_and_a_udp_socket() {
        if !tun_is_there("transfers::between_a_tun_device_and_a_udp_socket") {
            return;
        }
        let mtus = ["4096", "256", "1024"];
        all_lengths(&["--tun=rdma", "--net=10.9.0.1/24"], &["--to=10.9.0.2"], &mtus, None);
        let sender = ["--tun=rdma", "--net=10.9.0.1/24", "--bind=10.9.0.7", "--to=10.9.0.1"];
        // The receiver's socket is bound before its address is there.
        all_lengths(&[], &sender, &["1024"], None);
    }
}

isolated! {
    fn between_a_tun_device_and_a_udp_socket_under_ipv6() {
        if !tun_is_there("transfers::between_a_tun_device_and_a_udp_socket_under_ipv6") {
            return;
        }
        all_lengths(&["--tun=rdma", "--net=fd09::1/64"], &["--to=fd09::2"], &["4096", "1024"], None);
    }
}
