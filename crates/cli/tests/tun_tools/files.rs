//! Files go over and come back byte for byte: through devices and sockets, in every mode.

use crate::network::{Tool, octets, without};
use crate::{Place, devices, nothing_is_left, routes, tree};
use bypath::tun::Device;
use bypath_sys::netns;
use rustix::thread::CapabilitySet;
use serde_json::Value;
use std::net::UdpSocket;
use std::path::Path;

/// A directory with files of many lengths.
fn source() -> Place {
    let place = Place::new();
    for len in [0, 1, 1400, 65_507, 65_508, 200_000] {
        place.file(&format!("dir/{len}"), &octets(len));
    }
    place.file("dir/below/deep/ünï code", b"in a directory of its own");
    place
}

/// Receives and sends; both must succeed, agree, and leave the same files.
fn goes_over(recv: &[&str], send: &[&str]) -> Value {
    let from = source();
    let to = Place::new();
    let (out, dir) = (to.join("copy"), from.join("dir"));
    let receiver =
        Tool::start(&[&["tun", "recv", "--json", "--out", &out], recv].concat()).says("receiving at");
    let sent = Tool::start(&[&["tun", "send", &dir, "--json"], send].concat()).end().expect(0);
    let received = receiver.end().expect(0);
    let sent: Value = serde_json::from_slice(&sent.stdout).unwrap();
    let received: Value = serde_json::from_slice(&received.stdout).unwrap();
    for report in [&sent, &received] {
        assert_eq!(
            (&report["files"], &report["octets"], &report["complete"]),
            (&7.into(), &332_441.into(), &true.into()),
            "{report}"
        );
    }
    assert_eq!(sent["sha256"], received["sha256"]);
    assert!(tree(Path::new(&out)) == tree(Path::new(&dir)), "{send:?}");
    sent
}

isolated! {
    fn every_pair_of_ways_and_families() {
        if !devices("files::every_pair_of_ways_and_families") {
            return;
        }
        routes();
        for (recv, send) in [
            (&["--via=socket"][..], &["--to=10.9.0.1:9000"][..]),
            (&[], &["--via=socket", "--to=10.10.0.2:9000"]),
            (&[], &["--to=10.10.0.2:9000"]),
            (&["--via=socket"], &["--via=socket", "--to=127.0.0.1:9000"]),
            (&["--via=socket", "--listen=[::]:9000"], &["--to=[fd09::1]:9000"]),
            (&["--net=fd10::1/64"], &["--via=socket", "--to=[fd10::2]:9000"]),
            (&["--net=fd10::1/64"], &["--to=[fd10::2]:9000"]),
            (&["--listen=10.20.0.9:1234", "--net=10.20.0.1/24", "--device=mine"],
             &["--from=10.30.0.7:77", "--net=10.30.0.1/16", "--to=10.20.0.9:1234"]),
        ] {
            goes_over(recv, send);
            nothing_is_left();
        }
    }
}

isolated! {
    fn every_mode_size_and_checksum() {
        if !devices("files::every_mode_size_and_checksum") {
            return;
        }
        routes();
        let to = "--to=10.9.0.1:9000";
        let socket = &["--via=socket"][..];
        for more in [
            &["--mode=assemble"][..],
            &["--mode=writev"],
            &["--mode=super"],
            &["--mode=assemble", "--checksum=own"],
            &["--mode=writev", "--checksum=own", "--ttl=1", "--dscp=46"],
            &["--checksum=none"],
            &["--mtu=9000"],
            &["--mtu=65535"],
            &["--mtu=1500", "--size=20000", "--mode=writev"],
            &["--size=65507"],
            &["--size=600", "--dont-fragment"],
            &["--mtu=576"],
        ] {
            goes_over(socket, &[&[to], more].concat());
        }
        // A short one takes fewer datagrams.
        let many = goes_over(socket, &[to, "--size=1000"])["datagrams"].as_u64().unwrap();
        let few = goes_over(socket, &[to, "--mtu=65535"])["datagrams"].as_u64().unwrap();
        assert!(many > 300 && few < 60, "{many} and {few}");
    }
}

isolated! {
    fn standard_input_and_one_file_to_standard_output() {
        routes();
        let input = octets(300_000);
        let receiver = Tool::start(&["tun", "recv", "--via=socket"]).says("receiving at");
        let sender = Tool::start(&["tun", "send", "-", "--via=socket", "--to=127.0.0.1:9000"]).give(&input);
        let sent = sender.end().expect(0);
        assert!(sent.stderr.contains("1 files with 300000 octets") && sent.stderr.contains("the hashes agree"), "{}", sent.stderr);
        assert!(receiver.end().expect(0).stdout == input);
        let place = Place::new();
        let file = place.file("one", &input[..1000]);
        let receiver = Tool::start(&["tun", "recv", "--via=socket"]).says("receiving at");
        Tool::start(&["tun", "send", &file, "--via=socket", "--to=127.0.0.1:9000"]).end().expect(0);
        assert!(receiver.end().expect(0).stdout == input[..1000]);
        // Progress is told where there is time for it.
        let receiver = Tool::start(&["tun", "recv", "--via=socket"]).says("receiving at");
        let mut sender = Tool::start(&["tun", "send", "-", "--via=socket", "--to=127.0.0.1:9000"]);
        for _ in 0..3 {
            sender.write(&input[..65_536]);
            std::thread::sleep(std::time::Duration::from_millis(600));
        }
        let ended = sender.quiet().end().expect(0);
        assert!(ended.stderr.lines().any(|l| l.ends_with(" sent") && l.contains("K")), "{}", ended.stderr);
        receiver.end().expect(0);
    }
}

isolated! {
    fn raw_datagrams_are_the_files_and_nothing_else() {
        if !devices("files::raw_datagrams_are_the_files_and_nothing_else") {
            return;
        }
        routes();
        let place = Place::new();
        let lens = [0, 1, 1472, 1473, 9000, 65_507];
        for (n, len) in lens.iter().enumerate() {
            place.file(&format!("dir/{n}"), &octets(*len));
        }
        let dir = place.join("dir");
        let socket = UdpSocket::bind("0.0.0.0:9000").unwrap();
        socket.set_read_timeout(Some(crate::network::LONG)).unwrap();
        for more in [&["--mode=assemble"][..], &["--mode=super"], &["--mtu=65535"]] {
            Tool::start(&[&["tun", "send", &dir, "--raw", "--to=10.9.0.1:9000"], more].concat()).end().expect(0);
            for len in lens {
                let mut buffer = vec![0; 65_536];
                let got = socket.recv(&mut buffer).unwrap();
                assert!(buffer[..got] == octets(len), "{len}: {got}");
            }
        }
        drop(socket);
        // And back: what an ordinary program sends, each as a file.
        let out = place.join("out");
        let receiver = Tool::start(&["tun", "recv", "--raw", "--count=6", "--out", &out]).says("receiving at");
        Tool::start(&["tun", "send", &dir, "--raw", "--via=socket", "--to=10.10.0.2:9000"]).end().expect(0);
        receiver.end().expect(0);
        for (n, len) in lens.iter().enumerate() {
            assert!(std::fs::read(format!("{out}/{}", n + 1)).unwrap() == octets(*len), "{len}");
        }
        nothing_is_left();
    }
}

isolated! {
    fn a_device_that_belongs_to_the_user_needs_no_right() {
        if !devices("files::a_device_that_belongs_to_the_user_needs_no_right") {
            return;
        }
        routes();
        let user = rustix::process::geteuid().as_raw();
        let made = Device::tun("mine").persistent(true).owner(user).address("10.9.0.1".parse().unwrap(), 24);
        drop(made.open().unwrap());
        // As an ordinary user without a namespace of his own.
        let rights = CapabilitySet::NET_ADMIN | CapabilitySet::NET_RAW | CapabilitySet::SYS_ADMIN;
        without(rights | CapabilitySet::DAC_OVERRIDE, || {
            let sent = goes_over(&["--via=socket"], &["--to=10.9.0.1:9000", "--device=mine", "--attach"]);
            assert_eq!(sent["via"], "tun");
            let place = Place::new();
            let file = place.file("file", b"content");
            let ended = Tool::start(&["tun", "send", &file, "--to=10.8.0.1:9000"]).end().expect(1);
            assert!(ended.stderr.contains("CAP_NET_ADMIN"), "{}", ended.stderr);
        });
        netns::remove("mine").unwrap();
    }
}
