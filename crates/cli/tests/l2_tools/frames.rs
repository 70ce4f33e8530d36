//! `bypath l2 list`, `send` and `recv`.

use crate::network::{Tool, skip, tool, veth};
use rustix::process::Signal;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

isolated! {
    fn interfaces_are_listed() {
        let (left, _) = veth();
        let all: Value = serde_json::from_slice(&tool(&["l2", "list", "--json"]).expect(0).stdout).unwrap();
        let found = all.as_array().unwrap().iter().find(|i| i["name"] == "left").unwrap();
        assert_eq!((&found["mac"], &found["mtu"]), (&left.to_string().into(), &1500.into()));
        assert_eq!((&found["up"], &found["ethernet"], &found["loopback"]), (&true.into(), &true.into(), &false.into()));
        let text = tool(&["l2", "list"]).expect(0).text();
        let line = text.lines().find(|l| l.contains("left")).unwrap();
        assert!(line.contains(&left.to_string()) && line.contains("1500") && line.contains("up"), "{text}");
    }
}

isolated! {
    fn what_is_sent_is_received_with_its_tag() {
        let (left, right) = veth();
        let recv = ["l2", "recv", "right", "--vlan", "10", "--count", "3", "--timeout", "20s", "--json"];
        let recv = Tool::start(&recv).says("receiving on right");
        let octets: Vec<u8> = (0..=255).cycle().take(1500).collect();
        let hex: String = octets.iter().map(|b| format!("{b:02x}")).collect();
        let (dst, tag) = (right.to_string(), ["--vlan", "10", "--priority", "7"]);
        let send = ["l2", "send", "left", "--dst", &dst, "--count", "2", "--interval", "1ms", "--hex", &hex];
        let sent = tool(&[&send[..], &tag].concat()).expect(0);
        assert!(sent.stderr.contains("2 of 2 frames of 1500 octets"), "{}", sent.stderr);
        // Not of this VLAN.
        tool(&["l2", "send", "left", "--dst", &dst, "--payload", "x"]).expect(0);
        let file = ["l2", "send", "left", "--dst", "broadcast", "--vlan=10", "--file", "-"];
        Tool::start(&file).give(b"a\0b").end().expect(0);
        let seen = recv.end().expect(0);
        let frames: Vec<Value> = seen.text().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!(frames.len(), 3, "{}", seen.text());
        for frame in &frames[..2] {
            assert_eq!(frame["payload"], hex.as_str());
            assert_eq!((&frame["source"], &frame["destination"]), (&left.to_string().into(), &dst.clone().into()));
            assert_eq!((&frame["tags"][0]["vlan"], &frame["tags"][0]["priority"]), (&10.into(), &7.into()));
            assert_eq!((&frame["ethertype"], &frame["addressed"]), (&0x88b5.into(), &"host".into()));
        }
        assert_eq!(frames[2]["addressed"], "broadcast");
        assert_eq!(frames[2]["payload"], format!("610062{}", "00".repeat(43)));
    }
}

isolated! {
    fn others_are_left_out_and_too_few_is_told() {
        let (left, right) = veth();
        let recv = ["l2", "recv", "right", "--from", "02:00:00:00:00:09", "--count", "2", "--timeout", "1s", "--hex"];
        let recv = Tool::start(&recv).says("receiving");
        let dst = right.to_string();
        tool(&["l2", "send", "left", "--dst", &dst, "--payload", "x"]).expect(0);
        tool(&["l2", "send", "left", "--dst", &dst, "--src", "02:00:00:00:00:09", "--hex", "cafe"]).expect(0);
        let seen = recv.end().expect(3);
        assert_eq!(seen.text().lines().count(), 1, "{}", seen.text());
        assert!(seen.text().contains(": cafe") && !seen.text().contains(&left.to_string()), "{}", seen.text());
        assert!(seen.stderr.contains("1 frames") && seen.stderr.contains("1 from others left out"), "{}", seen.stderr);
    }
}

isolated! {
    fn ctrl_c_ends_with_the_counts() {
        veth();
        let recv = Tool::start(&["l2", "recv", "right"]).says("receiving");
        recv.signal(Signal::INT);
        let ended = recv.end().expect(0);
        assert!(ended.stderr.contains("0 frames with 0 octets"), "{}", ended.stderr);
        let send = ["l2", "send", "left", "--dst=broadcast", "--payload=x", "--count=1000", "--interval=1min"];
        let mut right = crate::network::socket("right");
        let send = Tool::start(&send);
        right.receive(&mut [0; 1500]).unwrap();
        send.signal(Signal::TERM);
        let ended = send.end().expect(3);
        assert!(ended.stderr.contains("1 of 1000 frames"), "{}", ended.stderr);
    }
}

isolated! {
    fn mistakes_are_answered_with_what_to_do() {
        veth();
        let send = |more: &[&str]| tool(&[&["l2", "send"], more].concat());
        let ended = send(&["nowhere", "--dst=broadcast", "--payload=x"]).expect(1);
        assert!(ended.stderr.contains("no such interface; there are: lo,") && ended.stderr.contains("left"), "{}", ended.stderr);
        let long = "x".repeat(1501);
        let ended = send(&["left", "--dst=broadcast", "--payload", &long]).expect(1);
        assert!(ended.stderr.contains("1501 octets is too long: left carries 1500"), "{}", ended.stderr);
        let ended = Tool::start(&["l2", "send", "left", "--dst=broadcast", "--file=-"]).give(long.as_bytes()).end().expect(1);
        assert!(ended.stderr.contains("longer than the 1500 octets that left carries"), "{}", ended.stderr);
        for wrong in [
            &["left", "--dst=broadcast"][..],
            &["left", "--dst=broadcast", "--payload=x", "--hex=00"],
            &["left", "--dst=02:00", "--payload=x"],
            &["left", "--dst=broadcast", "--hex=0"],
            &["left", "--dst=broadcast", "--payload=x", "--vlan=4095"],
            &["left", "--dst=broadcast", "--payload=x", "--ethertype=0x5ff"],
        ] {
            send(wrong).expect(2);
        }
        bypath_sys::netns::set_up("left", false).unwrap();
        let ended = send(&["left", "--dst=broadcast", "--payload=x"]).expect(1);
        assert!(ended.stderr.contains("ip link set dev left up"), "{}", ended.stderr);
    }
}

/// Prints the first frame that has a payload of ours, as scapy reads it.
const SCAPY: &str = r"
from scapy.all import Dot1Q, conf
s = conf.L2socket(iface='right')
print('ready', flush=True)
while True:
    p = s.recv(65535)
    if p is not None and b'seen by another' in bytes(p):
        q = p.getlayer(Dot1Q)
        print(p.dst, p.src, hex(p.type), q.vlan, q.prio, hex(q.type), flush=True)
        break
";

isolated! {
    fn scapy_sees_the_tag() {
        // Debian's Python: the one that its scapy package is for.
        let python = "/usr/bin/python3";
        let there = Command::new(python).args(["-c", "import scapy.all"]).stderr(Stdio::null()).status();
        if !there.is_ok_and(|s| s.success()) {
            return skip("frames::scapy_sees_the_tag", "scapy is not installed (Debian package python3-scapy)");
        }
        let (left, right) = veth();
        let mut scapy = Command::new(python).args(["-c", SCAPY]).stdout(Stdio::piped()).spawn().unwrap();
        let mut output = BufReader::new(scapy.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        let dst = right.to_string();
        tool(&["l2", "send", "left", "--dst", &dst, "--vlan=10", "--priority=7", "--payload=seen by another"]).expect(0);
        line.clear();
        output.read_to_string(&mut line).unwrap();
        assert_eq!(line, format!("{right} {left} 0x8100 10 7 0x88b5\n"));
        assert!(scapy.wait().unwrap().success());
    }
}

isolated! {
    fn a_reader_that_goes_away_ends_it_at_once_and_is_no_error() {
        let (_, right) = veth();
        for args in [&["l2", "recv", "right"][..], &["l2", "recv", "right", "-w", "-"]] {
            let mut command = crate::common::bypath(args);
            let mut recv = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut said = BufReader::new(recv.stderr.take().unwrap()).lines();
            while !said.next().unwrap().unwrap().contains("receiving") {}
            crate::network::socket("left").send(right, b"the only one").unwrap();
            let mut stdout = recv.stdout.take().unwrap();
            assert!(stdout.read(&mut [0; 10]).unwrap() > 0);
            drop(stdout);
            assert_eq!(recv.wait().unwrap().code(), Some(0));
        }
    }
}
