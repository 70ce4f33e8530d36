//! `bypath chat`: two ends that are ours, on veth pairs and loopback.

use crate::bridge::Bridge;
use crate::network::{Tool, address, hosts, octets, socket, tool, veth};
use bypath::link::fault::Faults;
use bypath_sys::netns;
use rustix::process::Signal;
use serde_json::Value;
use std::process::{Command, Stdio};

/// A server on `right`, and a client on `left` that has found it.
pub fn both(server: &[&str], client: &[&str]) -> (Tool, Tool) {
    let server = Tool::start(&[&["chat", "right", "server"], server].concat()).says("waiting on right");
    let client = Tool::start(&[&["chat", "left", "client", "127.0.0.1"], client].concat());
    (server.says("conversation"), client.says("conversation"))
}

isolated! {
    fn files_pass_both_ways_octet_for_octet_and_both_end() {
        veth();
        let (server, client) = both(&["--whole"], &["--whole"]);
        let files = [octets(3 << 20 | 5), octets(1 << 20)];
        let (server, client) = (server.give(&files[0]), client.give(&files[1]));
        let (server, client) = (server.end().expect(0), client.end().expect(0));
        assert!(client.stdout == files[0] && server.stdout == files[1], "{}{}", client.stderr, server.stderr);
        assert!(client.stderr.contains("1 messages with 1048576 octets sent"), "{}", client.stderr);
        assert!(server.stderr.contains("VLAN 10 with priority 7, 1500 octets in a frame"), "{}", server.stderr);
    }
}

isolated! {
    fn lines_are_messages_with_the_tag_that_was_asked_for() {
        let (left, right) = veth();
        let mut see = bypath::l2::Socket::builder("left").promiscuous().outgoing().timeout(crate::network::LONG).open().unwrap();
        let (server, client) = both(&["--vlan=200", "--json"], &["--vlan=200", "--priority=3", "--whole"]);
        let long = "x".repeat(100_000);
        let said = format!("one\n\n{long}");
        let client = client.give(said.as_bytes());
        let mut buffer = vec![0; 1500];
        let (got, kind) = loop {
            let got = see.receive(&mut buffer).unwrap();
            if got.ethertype == 0x88b5 {
                break (got, buffer[3]);
            }
        };
        let tag = got.vlan.expect("a tag");
        assert_eq!((got.source, got.destination, tag.vid, tag.pcp, kind), (left, right, 200, 3, 8));
        let ended = server.give(b"a\nb").end().expect(0);
        let messages: Vec<Value> = ended.text().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        assert_eq!((messages.len(), &messages[0]["octets"]), (1, &said.len().into()));
        let client = client.end().expect(0);
        assert_eq!(client.text(), "a\nb");
        assert!(client.stderr.contains("2 messages with 3 octets received"), "{}", client.stderr);
    }
}

isolated! {
    fn frames_without_a_tag_and_loopback_and_jumbo_frames_work() {
        veth();
        for name in ["left", "right"] {
            netns::set_mtu(name, 9000).unwrap();
        }
        let file = octets(300_000);
        let (server, client) = both(&["--vlan=none"], &["--vlan=none", "--whole"]);
        let server = server.quiet();
        let ended = client.give(&file).end().expect(0);
        assert!(ended.stderr.contains("no VLAN, 9000 octets"), "{}", ended.stderr);
        assert!(server.end().expect(0).stdout == file);
        let server = Tool::start(&["chat", "lo", "server"]).quiet().says("waiting on lo");
        Tool::start(&["chat", "lo", "client", "::1", "--whole"]).give(&file).end().expect(0);
        assert!(server.end().expect(0).stdout == file);
    }
}

isolated! {
    fn what_a_bad_network_loses_doubles_and_changes_is_repaired() {
        let bad = Faults { loss: 0.1, duplication: 0.05, corruption: 0.03, reordering: 0.1, ..Faults::NONE };
        let bridge = Bridge::new(bad, 5);
        let files = [octets(600_000), octets(200_000)];
        let (server, client) = both(&["--whole"], &["--whole"]);
        let (server, client) = (server.give(&files[0]), client.give(&files[1]));
        let (server, client) = (server.end().expect(0), client.end().expect(0));
        assert!(client.stdout == files[0] && server.stdout == files[1], "{}{}", client.stderr, server.stderr);
        let lost = bridge.end();
        assert!(lost > 20, "{lost} frames lost");
        assert!(!client.stderr.contains(" 0 of them again"), "{}", client.stderr);
    }
}

isolated! {
    fn a_cut_data_plane_is_told_by_both() {
        let bridge = Bridge::new(Faults { loss: 1.0, ..Faults::NONE }, 6);
        let (server, client) = both(&[], &[]);
        let ended = client.give(b"nobody hears this\n").end().expect(3);
        assert!(ended.stderr.contains("frames that were sent to this end do not arrive")
            || ended.stderr.contains("takes none of the frames"), "{}", ended.stderr);
        let ended = server.end().expect(3);
        assert!(ended.stderr.contains("look at the cable, at the VLAN"), "{}", ended.stderr);
        bridge.end();
    }
}

isolated! {
    fn a_killed_end_is_noticed_at_once_and_a_stopped_one_in_time() {
        veth();
        let (server, client) = both(&[], &[]);
        client.signal(Signal::KILL);
        let ended = server.end().expect(3);
        assert!(ended.stderr.contains("the other end died"), "{}", ended.stderr);
        let (server, client) = both(&[], &[]);
        server.signal(Signal::KILL);
        let ended = client.end().expect(3);
        assert!(ended.stderr.contains("the other end died"), "{}", ended.stderr);
        let (server, client) = both(&[], &[]);
        server.signal(Signal::STOP);
        let ended = client.end().expect(3);
        assert!(ended.stderr.contains("has been silent for 5 s"), "{}", ended.stderr);
    }
}

isolated! {
    fn an_interface_that_goes_down_and_comes_back_loses_nothing() {
        veth();
        let (server, mut client) = both(&[], &[]);
        client.write(b"before\n");
        let mut server = server.hears("before\n");
        netns::set_up("right", false).unwrap();
        server = server.says("right: the interface is down");
        client = client.says("left: no carrier");
        client.write(b"while it is down\n");
        netns::set_up("right", true).unwrap();
        (server, client) = (server.says("right: it is up again"), client.says("left: it is up again"));
        client.write(b"after\n");
        server = server.hears("after\n").quiet();
        client.end().expect(0);
        assert_eq!(server.end().expect(0).text(), "before\nwhile it is down\nafter\n");
    }
}

isolated! {
    fn an_interface_that_is_removed_is_told() {
        veth();
        let (server, client) = both(&[], &[]);
        netns::remove("left").unwrap();
        let ended = client.end().expect(1);
        assert!(ended.stderr.contains("the interface was removed"), "{}", ended.stderr);
        assert!(server.end().code().is_some_and(|c| c == 1 || c == 3));
    }
}

isolated! {
    fn two_hosts_talk_and_a_pulled_cable_is_told() {
        let there = hosts();
        let server = there.run(|| Tool::start(&["chat", "right", "server"]).says("waiting")).unwrap();
        let mut client = Tool::start(&["chat", "left", "client", "10.0.0.2"]);
        client.write(b"over the cable\n");
        let mut server = server.hears("over the cable\n");
        server.write(b"and back\n");
        let client = client.hears("and back\n");
        there.run(|| netns::set_up("right", false)).unwrap().unwrap();
        for end in [server, client] {
            let ended = end.end().expect(3);
            assert!(ended.stderr.contains("silent for 5 s") && ended.stderr.contains("or the network is cut"), "{}", ended.stderr);
        }
    }
}

isolated! {
    fn an_mtu_that_falls_in_the_middle_loses_nothing() {
        veth();
        let file = octets(200_000);
        // This end's, and then the other one's: which is told of it only.
        for name in ["left", "right"] {
            let (server, mut client) = both(&[], &["--whole"]);
            client.write(&vec![b'x'; 1 << 20]);
            let server = server.hears("x").quiet();
            netns::set_mtu(name, 600).unwrap();
            client.write(&file);
            let ended = client.end().expect(0);
            let heard = server.end().expect(0).stdout;
            assert!(heard.len() == (1 << 20) + file.len() && heard.ends_with(&file), "{name}: {}", ended.stderr);
            netns::set_mtu(name, 1500).unwrap();
        }
    }
}

isolated! {
    fn two_conversations_on_one_ethertype_do_not_disturb_each_other() {
        let (_, right) = veth();
        let files = [octets(400_000), octets(500_000)];
        let pairs = ["--port=9001", "--port=9002"].map(|port| both(&[port], &[port, "--whole"]));
        // And a stranger who says anything.
        let mut stranger = bypath::l2::Socket::builder("left").ethertype(0x88b5).vlan(10, 7).open().unwrap();
        for n in 0..100 {
            stranger.send(right, &octets(20 + n)).unwrap();
        }
        let [a, b] = pairs;
        let (a, b) = ((a.0.quiet(), a.1.give(&files[0])), (b.0.quiet(), b.1.give(&files[1])));
        for ((server, client), file) in [a, b].into_iter().zip(&files) {
            client.end().expect(0);
            let ended = server.end().expect(0);
            assert!(ended.stdout == *file, "{}", ended.stderr);
            assert!(!ended.stderr.contains(" 0 of others ignored"), "{}", ended.stderr);
        }
    }
}

isolated! {
    fn a_second_client_is_told_to_come_later() {
        veth();
        let (server, client) = both(&[], &[]);
        let ended = tool(&["chat", "left", "client", "127.0.0.1"]).expect(1);
        assert!(ended.stderr.contains("it talks to another one; call again later"), "{}", ended.stderr);
        let server = server.quiet();
        client.end().expect(0);
        server.end().expect(0);
    }
}

isolated! {
    fn ctrl_c_ends_both_and_leaves_nothing() {
        veth();
        let (server, client) = both(&[], &[]);
        client.signal(Signal::INT);
        let ended = client.end().expect(3);
        assert!(ended.stderr.contains("0 messages with 0 octets sent"), "{}", ended.stderr);
        let ended = server.end().expect(3);
        assert!(ended.stderr.contains("gave up: its user ended it"), "{}", ended.stderr);
        let waiting = Tool::start(&["chat", "left", "server"]).says("waiting");
        waiting.signal(Signal::TERM);
        waiting.end().expect(3);
        crate::network::nothing_is_left();
    }
}

isolated! {
    fn ends_that_do_not_fit_are_told_what_to_do() {
        veth();
        let server = Tool::start(&["chat", "right", "server", "--vlan=20"]).says("waiting");
        let ended = tool(&["chat", "left", "client", "127.0.0.1"]).expect(1);
        assert!(ended.stderr.contains("give both the same --vlan"), "{}", ended.stderr);
        let server = server.says("no conversation with").quiet();
        let ended = tool(&["chat", "left", "client", "127.0.0.1", "--vlan=20", "--ethertype=0x88b6"]).expect(1);
        assert!(ended.stderr.contains("give both the same --ethertype"), "{}", ended.stderr);
        let ended = tool(&["chat", "right", "client", "127.0.0.1", "--vlan=20"]).expect(1);
        assert!(ended.stderr.contains("on one host use the interface lo"), "{}", ended.stderr);
        // It still waits for one that fits.
        tool(&["chat", "left", "client", "127.0.0.1", "--vlan=20"]).expect(0);
        server.end().expect(0);
    }
}

isolated! {
    fn mistakes_are_answered_with_what_to_do() {
        veth();
        let chat = |more: &[&str]| tool(&[&["chat"], more].concat());
        for (args, code, words) in [
            (&["nowhere", "server"][..], 1, "no such interface; there are: lo"),
            (&["left", "client", "127.0.0.1", "--wait=0ms"], 1, "start `bypath chat IFACE server` there first"),
            (&["left", "server", "--listen=192.0.2.9"], 1, "it is not an address of this host"),
            (&["left"], 2, "server"),
            (&["left", "client"], 2, "SERVER_IP"),
            (&["left", "client", "somewhere"], 2, "SERVER_IP"),
            (&["left", "server", "--vlan=4095"], 2, "expected a VLAN"),
            (&["left", "server", "--priority=8"], 2, "0..=7"),
            (&["left", "server", "--port=0"], 2, "1.."),
        ] {
            let ended = chat(args).expect(code);
            assert!(ended.stderr.contains(words), "{args:?}: {}", ended.stderr);
        }
        let taken = std::net::TcpListener::bind("[::]:9000").unwrap();
        let ended = chat(&["left", "server"]).expect(1);
        assert!(ended.stderr.contains("choose another one on both ends, --port"), "{}", ended.stderr);
        drop(taken);
        let client = Tool::start(&["chat", "left", "client", "127.0.0.1", "--wait=20s"]).quiet();
        // The server comes later.
        let server = Tool::start(&["chat", "right", "server"]).says("conversation").quiet();
        client.end().expect(0);
        server.end().expect(0);
    }
}

isolated! {
    fn nobody_steers_the_terminal_of_another_and_ctrl_d_ends() {
        let there = Command::new("script").arg("--version").stdout(Stdio::null()).status();
        if !there.is_ok_and(|s| s.success()) {
            return crate::network::skip("chat::nobody_steers_the_terminal_of_another_and_ctrl_d_ends",
                "script is not installed (Debian package bsdutils)");
        }
        veth();
        address("left", "10.0.0.1");
        let line = format!("{} chat right server", crate::common::BYPATH);
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env("BYPATH_CONFIG", "none");
        let terminal = Tool::of(command).hears("waiting on right");
        let client = Tool::start(&["chat", "left", "client", "10.0.0.1"]).give(b"\x1b[2Jhello\tthere\n\x07");
        let mut terminal = terminal.hears("?[2Jhello").hears("Ctrl-D ends this side");
        terminal.write(b"typed\n\x04");
        assert_eq!(client.end().expect(0).text(), "typed\n");
        let ended = terminal.end().expect(0);
        assert!(!ended.text().contains('\x1b') && ended.text().contains("there"), "{}", ended.text());
    }
}

isolated! {
    fn without_the_capability_it_is_told_what_to_do() {
        veth();
        let mut see = socket("right");
        crate::network::without_net_raw(|| {
            for args in [&["chat", "left", "server"][..], &["l2", "recv", "left"], &["l2", "send", "left", "--dst=broadcast",
                "--payload=x"], &["l2", "ping", "left", "--dst=02:00:00:00:00:09"], &["l2", "echo", "left"], &["ipc", "send"], &["ipc", "recv"],
                &["l2", "jitter", "left", "--receive"]] {
                let ended = tool(args).expect(1);
                assert!(ended.stderr.contains("CAP_NET_RAW") && ended.stderr.contains("setcap"), "{args:?}: {}", ended.stderr);
            }
        });
        see.set_timeout(Some(std::time::Duration::ZERO));
        assert!(see.receive(&mut [0; 100]).is_err());
    }
}
