//! `bypath l2 ping` and `echo`.

use crate::network::{Tool, socket, tool, veth};
use bypath::l2::{Header, MacAddr};
use rustix::process::Signal;
use serde_json::Value;

/// Header of the tools' protocol by hand: docs/l2-tools.md.
fn request(session: u64, seq: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    let fixed = [0x42, 0x59, 1, 1];
    [&fixed[..], &session.to_be_bytes(), &seq.to_be_bytes(), &[0; 6], &length, body].concat()
}

isolated! {
    fn every_frame_comes_back() {
        let (_, right) = veth();
        for more in [&["--vlan=10", "--priority=7", "--size=1500"][..], &["--spin", "--interval=0us"]] {
            let spin: &[&str] = if more[0] == "--spin" { &["--spin"] } else { &["--vlan=10"] };
            let echo = Tool::start(&[&["l2", "echo", "right"], spin].concat()).says("answering on right");
            let dst = right.to_string();
            let ping = [&["l2", "ping", "left", "--dst", &dst, "--count=50", "--json"], more].concat();
            let report: Value = serde_json::from_slice(&tool(&ping).expect(0).stdout).unwrap();
            assert_eq!((&report["sent"], &report["received"], &report["lost"]), (&50.into(), &50.into(), &0.into()));
            let times = ["min", "p50", "p99", "p99.9", "max"].map(|k| report["round_trip_ns"][k].as_u64().unwrap());
            assert!(times[0] > 0 && times.is_sorted(), "{report}");
            echo.signal(Signal::INT);
            let ended = echo.end().expect(0);
            assert!(ended.stderr.contains("50 frames answered, 0 frames of others"), "{}", ended.stderr);
        }
    }
}

isolated! {
    fn answers_are_those_of_the_protocol_and_others_are_ignored() {
        let (left, right) = veth();
        let echo = Tool::start(&["l2", "echo", "right", "--count=1"]).says("answering");
        let mut socket = socket("left");
        let good = request(7, 9, b"body");
        let mut answer = good.clone();
        answer[3] = 2;
        let mut long = good.clone();
        long[22] = 0xff;
        let mut newer = good.clone();
        newer[2] = 2;
        for bad in [&[][..], b"BY", &answer, &long, &newer] {
            socket.send(right, bad).unwrap();
        }
        // To somebody else: the device gives it to us, and it is not ours.
        socket.send(MacAddr([2, 0, 0, 0, 0, 9]), &good).unwrap();
        socket.send(right, &good).unwrap();
        let mut buffer = [0; 1500];
        let got = socket.receive(&mut buffer).unwrap();
        assert_eq!((got.source, got.destination, got.vlan), (right, left, None));
        assert_eq!(buffer[..answer.len()], answer);
        let ended = echo.end().expect(0);
        assert!(ended.stderr.contains("1 frames answered, 5 frames of others ignored"), "{}", ended.stderr);
    }
}

isolated! {
    fn lost_and_forged_answers_are_told() {
        let (left, right) = veth();
        let mut there = socket("right");
        let dst = right.to_string();
        let ping =
            Tool::start(&["l2", "ping", "left", "--dst", &dst, "--count=4", "--timeout=300ms", "--json"]);
        let mut buffer = [0; 1500];
        for n in 0..4 {
            let got = there.receive(&mut buffer).unwrap();
            let mut answer = buffer[..got.len].to_vec();
            answer[3] = 2;
            match n {
                // Lost.
                0 => {}
                // One octet of another value.
                1 => {
                    answer[30] ^= 1;
                    there.send(left, &answer).unwrap();
                }
                // From somebody else.
                2 => {
                    let header = Header { source: MacAddr([2, 0, 0, 0, 0, 9]), ..there.header(left) };
                    there.send_with(&header, &answer).unwrap();
                }
                _ => there.send(left, &answer).unwrap(),
            }
        }
        let report: Value = serde_json::from_slice(&ping.end().expect(3).stdout).unwrap();
        assert_eq!((&report["received"], &report["lost"]), (&1.into(), &3.into()), "{report}");
        assert_eq!((&report["corrupt"], &report["ignored"]), (&1.into(), &1.into()), "{report}");
    }
}

isolated! {
    fn nobody_there_is_told_with_what_to_look_at() {
        veth();
        let ping = ["l2", "ping", "left", "--dst=02:00:00:00:00:09", "--count=2", "--timeout=20ms"];
        let ended = tool(&ping).expect(3);
        assert!(ended.text().contains("2 lost (100.0 %)"), "{}", ended.text());
        assert!(ended.stderr.contains("does `bypath l2 echo IFACE` run there"), "{}", ended.stderr);
        let ended = tool(&["l2", "ping", "left", "--dst=02:00:00:00:00:09", "--size=1501"]).expect(1);
        assert!(ended.stderr.contains("1501 octets is too long"), "{}", ended.stderr);
    }
}

isolated! {
    fn what_cannot_be_answered_or_sent_is_refused_with_what_to_do() {
        veth();
        bypath_sys::netns::set_mtu("lo", 65_536).unwrap();
        for group in ["broadcast", "ff:ff:ff:ff:ff:ff", "03:00:00:00:00:01"] {
            let ended = tool(&["l2", "ping", "left", "--dst", group]).expect(2);
            assert!(ended.stderr.contains("one interface answers: give its hardware address"), "{}", ended.stderr);
        }
        for (interface, size, carries) in [("left", "70000", 1500), ("left", "1501", 1500), ("lo", "65537", 65_536)] {
            for tool in ["ping", "jitter"] {
                let ended = crate::network::tool(&["l2", tool, interface, "--dst=02:00:00:00:00:09", "--size", size]).expect(1);
                let told = format!("a payload of {size} octets is too long: {interface} carries {carries} in a frame; send less");
                assert!(ended.stderr.contains(&told) && ended.stdout.is_empty(), "{}", ended.stderr);
            }
        }
        let ended = tool(&["l2", "ping", "", "--dst=02:00:00:00:00:09"]).expect(1);
        assert!(ended.stderr.contains("the interface's name is empty; name one; there are: lo"), "{}", ended.stderr);
        // The longest one of loopback comes back.
        let echo = Tool::start(&["l2", "echo", "lo", "--count=1"]).says("answering");
        tool(&["l2", "ping", "lo", "--dst=00:00:00:00:00:00", "--size=65536", "--count=1"]).expect(0);
        echo.end().expect(0);
    }
}
