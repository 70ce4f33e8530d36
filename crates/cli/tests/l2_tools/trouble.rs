//! What goes wrong while the tools run: interfaces that go down, change or vanish, frames of strangers, several programs
//! at once, Ctrl-C.

use crate::network::{Tool, nothing_is_left, octets, socket, they_run, tool, veth};
use bypath::l2::{Header, MacAddr, Socket, VlanTag};
use bypath_sys::netns;
use rustix::process::Signal;
use serde_json::Value;

/// Tools that receive on an interface, and what each says when it does.
const RECEIVERS: [(&[&str], &str); 4] = [
    (&["l2", "recv", "right"], "receiving"),
    (&["l2", "recv", "right", "--promiscuous", "--ethertype=any", "-w", "/dev/null"], "receiving"),
    (&["l2", "echo", "right"], "answering"),
    (&["l2", "jitter", "right", "--receive"], "receiving"),
];

isolated! {
    fn an_interface_that_goes_down_is_named_with_what_to_do() {
        veth();
        for (args, says) in RECEIVERS {
            let receiver = Tool::start(args).says(says);
            netns::set_up("right", false).unwrap();
            let ended = receiver.end().expect(1);
            assert!(ended.stderr.contains("right: the interface is down; switch it on: ip link set dev right up"), "{args:?} {}", ended.stderr);
            netns::set_up("right", true).unwrap();
        }
        let receiver = Tool::start(&["ipc", "recv"]).says("receiving");
        netns::set_up("lo", false).unwrap();
        let ended = receiver.end().expect(1);
        assert!(ended.stderr.contains("ip link set dev lo up"), "{}", ended.stderr);
        // Nor does it begin.
        for tool in ["recv", "send"] {
            let ended = crate::network::tool(&["ipc", tool]).expect(1);
            assert!(ended.stderr.contains("ip link set dev lo up"), "{}", ended.stderr);
        }
    }
}

isolated! {
    fn an_interface_that_vanishes_is_named() {
        for (args, says) in RECEIVERS {
            veth();
            let receiver = Tool::start(args).says(says);
            netns::remove("left").unwrap();
            let ended = receiver.end().expect(1);
            assert!(ended.stderr.contains("right: the interface was removed"), "{args:?} {}", ended.stderr);
        }
    }
}

isolated! {
    fn an_unplugged_peer_loses_frames_and_hangs_nobody() {
        let (_, right) = veth();
        let mut there = socket("right");
        let dst = right.to_string();
        let ping = ["l2", "ping", "left", "--dst", &dst, "--count=6", "--timeout=100ms", "--interval=50ms", "--json"];
        let ping = Tool::start(&ping);
        there.receive(&mut [0; 1500]).unwrap();
        netns::set_up("right", false).unwrap();
        let report: Value = serde_json::from_slice(&ping.end().expect(3).stdout).unwrap();
        assert_eq!((&report["sent"], &report["lost"]), (&6.into(), &6.into()), "{report}");
    }
}

isolated! {
    fn no_carrier_is_told_once_at_the_beginning_and_on_the_way() {
        let (_, right) = veth();
        let dst = right.to_string();
        let told = "left: no carrier: what is sent is thrown away, without an error; plug the cable in";
        let senders: [&[&str]; 3] = [
            &["l2", "send", "left", "--dst", &dst, "--payload=x", "--count=30", "--interval=20ms"],
            &["l2", "ping", "left", "--dst", &dst, "--count=30", "--interval=20ms", "--timeout=20ms"],
            &["l2", "jitter", "left", "--dst", &dst, "--count=30", "--cycle=20ms"],
        ];
        for sender in senders {
            let ended = tool(sender);
            assert!(!ended.stderr.contains("carrier"), "{sender:?} {}", ended.stderr);
            let mut there = socket("right");
            let running = Tool::start(sender);
            there.receive(&mut [0; 1500]).unwrap();
            netns::set_up("right", false).unwrap();
            for ended in [running.end(), tool(sender)] {
                assert_eq!(ended.stderr.matches(told).count(), 1, "{sender:?} {}", ended.stderr);
                assert!(ended.stderr.contains("ip link set dev PEER up"), "{}", ended.stderr);
            }
            netns::set_up("right", true).unwrap();
            they_run();
        }
    }
}

isolated! {
    fn a_frame_that_the_other_end_does_not_carry_is_not_called_a_full_queue() {
        let (_, right) = veth();
        netns::set_mtu("right", 600).unwrap();
        let (dst, hex) = (right.to_string(), "ab".repeat(1000));
        let senders: [(&[&str], &str); 3] = [
            (&["l2", "send", "left", "--dst", &dst, "--hex", &hex, "--count=3"], "0 of 3 frames of 1000 octets"),
            (&["l2", "ping", "left", "--dst", &dst, "--size=1000", "--count=3"], "0 frames of 1000 octets sent"),
            (&["l2", "jitter", "left", "--dst", &dst, "--size=1000", "--count=3"], ": 0 frames sent"),
        ];
        for (sender, count) in senders {
            let ended = tool(sender).expect(1);
            let (said, printed) = (&ended.stderr, ended.text());
            assert!(said.contains("threw away a frame with a payload of 1000 octets, and does not tell why"), "{said}");
            assert!(said.contains("if its queue is full,") && said.contains("give both the same MTU"), "{said}");
            assert!(said.contains(count) || printed.contains(count), "{said}{printed}");
        }
    }
}

isolated! {
    fn a_sender_that_fails_on_the_way_tells_how_far_it_came() {
        let (_, right) = veth();
        let dst = right.to_string();
        for json in [false, true] {
            let mut there = socket("right");
            let more: &[&str] = if json { &["--json"] } else { &[] };
            let send = ["l2", "send", "left", "--dst", &dst, "--payload=x", "--count=1000", "--interval=100ms"];
            let sender = Tool::start(&[&send, more].concat());
            for _ in 0..3 {
                there.receive(&mut [0; 1500]).unwrap();
            }
            netns::set_up("left", false).unwrap();
            let ended = sender.end().expect(1);
            assert!(ended.stderr.contains("left: the interface is down"), "{}", ended.stderr);
            let sent = if json {
                let report: Value = serde_json::from_slice(&ended.stdout).unwrap();
                assert_eq!(report["asked"], 1000);
                report["frames"].as_u64().unwrap()
            } else {
                let (count, _) = ended.stderr.split_once(" of 1000 frames").expect("a count");
                count.rsplit(' ').next().unwrap().parse().unwrap()
            };
            assert!((3..1000).contains(&sent), "{sent}");
            netns::set_up("left", true).unwrap();
            they_run();
        }
    }
}

isolated! {
    fn an_mtu_that_falls_while_frames_are_sent_is_named() {
        let (_, right) = veth();
        let dst = right.to_string();
        for tool in [
            &["l2", "ping", "left", "--dst", &dst, "--size=1500", "--timeout=10ms"][..],
            &["l2", "jitter", "left", "--dst", &dst, "--size=1500"],
        ] {
            let mut there = socket("right");
            let sender = Tool::start(tool);
            assert_eq!(there.receive(&mut [0; 1500]).unwrap().len, 1500);
            netns::set_mtu("left", 600).unwrap();
            let ended = sender.end().expect(1);
            let told = "a payload of 1500 octets is too long: left carries 600 in a frame";
            assert!(ended.stderr.contains(told), "{tool:?} {}", ended.stderr);
            netns::set_mtu("left", 1500).unwrap();
        }
    }
}

isolated! {
    fn frames_longer_than_when_it_began_are_received_whole() {
        let (_, right) = veth();
        let receiver = Tool::start(&["l2", "recv", "right", "--hex"]).says("receiving");
        for name in ["left", "right"] {
            netns::set_mtu(name, 9000).unwrap();
        }
        let mut left = socket("left");
        left.send(right, &octets(9000)).unwrap();
        let hex: String = octets(9000).iter().map(|b| format!("{b:02x}")).collect();
        let receiver = receiver.hears(&format!("9000 octets: {hex}"));
        receiver.signal(Signal::INT);
        receiver.end().expect(0);
    }
}

isolated! {
    fn broken_and_foreign_frames_are_printed_or_left_out_and_harm_nobody() {
        let (_, right) = veth();
        let of_vlan = Tool::start(&["l2", "recv", "right", "--vlan=10"]).says("receiving");
        let of_none = Tool::start(&["l2", "recv", "right", "--vlan=none", "--hex"]).says("receiving");
        let all = Tool::start(&["l2", "recv", "right", "--ethertype=any", "--promiscuous", "--json"]).says("receiving");
        let mut left = socket("left");
        let head = |kind: &[u8]| [&right.0[..], &[2, 0, 0, 0, 0, 7], kind].concat();
        for octets in [
            // Nothing behind the header; a tag that is cut; a tag in a tag in a tag; a length in place of a type.
            head(&[0x88, 0xb5]),
            head(&[0x81, 0, 0]),
            head(&[0x81, 0, 0xe0, 10]),
            head(&[0x88, 0xa8, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 10, 0x88, 0xb5]),
            [head(&[0, 4]), b"llc!".to_vec()].concat(),
            [head(&[0x88, 0xb5]), octets(1500)].concat(),
        ] {
            left.send_octets(&octets).unwrap();
        }
        let tag = |vid| Some(VlanTag { tpid: 0x8100, pcp: 7, dei: false, vid });
        let header = left.header(right);
        for header in [
            Header { vlan: tag(11), ..header },
            Header { vlan: tag(0), ..header },
            Header { ethertype: 0x88b6, vlan: tag(10), ..header },
            Header { destination: MacAddr([2, 0, 0, 0, 0, 9]), vlan: tag(10), ..header },
            Header { vlan: tag(10), ..header },
            header,
        ] {
            left.send_with(&header, b"the last one").unwrap();
        }
        // The last frame of each: everything before it was looked at.
        let last: String = b"the last one".iter().map(|b| format!("{b:02x}")).collect();
        let of_vlan = of_vlan.hears("the last one");
        let of_none = of_none.hears(&format!(" 0x88b5 46 octets: {last}"));
        let all = all.hears(&format!("\"tags\":[],\"ethertype\":34997,\"addressed\":\"host\",\"octets\":46,\"payload\":\"{last}"));
        for receiver in [&of_vlan, &of_none, &all] {
            receiver.signal(Signal::INT);
        }
        let ended = of_vlan.end().expect(0);
        assert_eq!(ended.text().lines().count(), 1, "{}", ended.text());
        // Without a tag, or only with a priority.
        let ended = of_none.end().expect(0);
        let tags = ended.text().lines().map(|l| l.contains("vlan 0 priority 7")).collect::<Vec<_>>();
        assert_eq!(tags, [false, false, true, false], "{}", ended.text());
        let text = all.end().expect(0).text();
        let frames: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert!(frames.iter().any(|f| f["tags"].as_array().unwrap().len() == 3 && f["ethertype"] == 0x88b5), "{text}");
        assert!(frames.iter().any(|f| f["ethertype"] == 4) && frames.iter().any(|f| f["addressed"] == "otherhost"), "{text}");
    }
}

isolated! {
    fn two_programs_on_one_ethertype_both_see_every_frame() {
        let (_, right) = veth();
        let both = [(); 2].map(|()| Tool::start(&["l2", "recv", "right", "--count=3"]).says("receiving"));
        let mut left = socket("left");
        for text in ["first", "second", "third"] {
            left.send(right, text.as_bytes()).unwrap();
        }
        for receiver in both {
            let text = receiver.end().expect(0).text();
            assert!(text.contains("first") && text.contains("second") && text.contains("third"), "{text}");
        }
        // Two that answer: the second answer is not taken for the next frame's.
        let both = [(); 2].map(|()| Tool::start(&["l2", "echo", "right", "--count=20"]).says("answering"));
        let dst = right.to_string();
        let ping = ["l2", "ping", "left", "--dst", &dst, "--count=20", "--json"];
        let report: Value = serde_json::from_slice(&crate::network::tool(&ping).expect(3).stdout).unwrap();
        assert_eq!((&report["received"], &report["lost"], &report["corrupt"]), (&20.into(), &0.into(), &0.into()), "{report}");
        assert!(report["late"].as_u64().unwrap() >= 19, "{report}");
        both.into_iter().for_each(|echo| drop(echo.end().expect(0)));
    }
}

isolated! {
    fn ctrl_c_leaves_nothing_behind() {
        veth();
        let mut all: Vec<Tool> = RECEIVERS.iter().map(|(args, says)| Tool::start(args).says(says)).collect();
        all.push(Tool::start(&["ipc", "recv", "--follow"]).says("receiving"));
        all.push(Tool::start(&["ipc", "recv", "--follow", "--via=ring"]).says("receiving"));
        all.push(Tool::start(&["chat", "left", "server"]).says("waiting"));
        let mut see = Socket::builder("right").ethertype(0x88b5).promiscuous().timeout(crate::network::LONG).open().unwrap();
        for sender in [&["l2", "ping", "left", "--dst=02:00:00:00:00:09", "--timeout=1min"][..],
            &["l2", "jitter", "left", "--dst=02:00:00:00:00:09", "--cycle=10ms", "--count=1000000"]] {
            all.push(Tool::start(sender));
            // A ping, or one of a cycle: it is past its beginning.
            let (mut buffer, kind) = ([0; 1500], if sender[1] == "ping" { 1 } else { 3 });
            while see.receive(&mut buffer).unwrap().len < 24 || buffer[3] != kind {}
        }
        drop(see);
        for (n, running) in all.iter().enumerate() {
            running.signal(if n % 2 == 0 { Signal::INT } else { Signal::TERM });
        }
        for running in all {
            let ended = running.end();
            assert!(ended.code().is_some(), "{}", ended.stderr);
        }
        nothing_is_left();
        let names = std::fs::read_to_string("/proc/net/unix").unwrap();
        assert!(!names.contains("bypath"), "{names}");
    }
}
