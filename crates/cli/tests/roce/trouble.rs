//! What can go wrong: a clear word, the right exit status, nothing left behind.

use crate::common::TempDir;
use crate::network::{LONG, Tool, hosts, octets, veths, without_net_raw};
use crate::{file, json, receiver, send, text};
use bypath::wire::roce::{Bth, Deth, Envelope, Extended, Headers, Opcode, Operation, Psn, Qpn, Service};
use bypath::wire::{IpProtocol, Ipv4Header, Network};
use bypath_sys::netns;
use rustix::process::Signal;
use std::net::UdpSocket;
use std::time::Instant;

isolated! {
    fn nobody_there_is_said_with_what_to_do() {
        netns::set_up("lo", true).unwrap();
        let directory = TempDir::new();
        let (from, _) = file(&directory, "from", 10);
        let to = ["--to=127.0.0.1", "--bind=127.0.0.2", "--wait=300ms"];
        let ended = send(&[&[text(&from)], &to[..]].concat()).expect(3);
        assert!(ended.stderr.contains("nobody answered at 127.0.0.1: start `bypath roce recv`"), "{}", ended.stderr);
        let ended = Tool::start(&["roce", "recv", "--bind=127.0.0.1", "--wait=100ms"]).end().expect(3);
        assert!(ended.stderr.contains("nobody sent anything in time"), "{}", ended.stderr);
    }
}

isolated! {
    fn what_cannot_be_used_is_named() {
        veths(&[("left", "right")]);
        let directory = TempDir::new();
        let (from, _) = file(&directory, "from", 10);
        let path = text(&from);
        let says = |args: &[&str], code: i32, what: &str| {
            let ended = Tool::start(&[&["roce"], args].concat()).end().expect(code);
            assert!(ended.stderr.contains(what), "{args:?}: {}", ended.stderr);
        };
        says(&["send", "/nowhere", "--to=127.0.0.1"], 1, "cannot read /nowhere: No such file");
        says(&["send", path, "--to=127.0.0.1", "--bind=10.9.9.9"], 1, "does not have that address");
        says(&["send", path, "--to=10.9.9.9"], 1, "there is no way to 10.9.9.9");
        says(&["send", path, "--to=fd00::1", "--bind=127.0.0.1"], 2, "not of one IP version");
        says(&["recv", "--iface=eth9", "--bind=10.0.0.1"], 1, "eth9: no such interface; there are:");
        says(&["recv", "--iface=right"], 2, "--bind");
        says(&["send", path, "--to=fd00::1", "--bind=fd00::2", "--iface=left"], 2, "--to-mac");
        says(&["recv", "--tun=rdma"], 2, "--net");
        says(&["recv", "--tun=rdma", "--net=10.9.0.1/24", "--bind=10.9.0.1"], 2, "two addresses of one IP version");
        says(&["send", path, "--to=127.0.0.1", "--mtu=1500"], 2, "expected 256, 512, 1024, 2048 or 4096");
        says(&["send", "--to=127.0.0.1", "--add=1"], 2, "--op atomic takes");
        says(&["send", path, "--to=127.0.0.1", "--op=atomic"], 2, "--op atomic takes");
        says(&["send", "--to=127.0.0.1", "--op=atomic"], 2, "--op atomic takes --add N");
        says(&["send", "--to=127.0.0.1", "--op=read"], 2, "FILE");
        says(&["recv", "--output=/nowhere/at/all"], 1, "there is no directory /nowhere/at; make it first");
        says(&["send", "--to=127.0.0.1"], 2, "FILE");
        let _taken = UdpSocket::bind("127.0.0.1:4791").unwrap();
        says(&["recv", "--bind=127.0.0.1"], 1, "another program has it");
        netns::set_mtu("right", 600).unwrap();
        says(&["recv", "--iface=right", "--bind=10.0.0.1"], 1, "ip link set dev right mtu 1500");
        netns::set_up("right", false).unwrap();
        says(&["recv", "--iface=right", "--bind=10.0.0.1"], 1, "ip link set dev right up");
        without_net_raw(|| says(&["recv", "--iface=left", "--bind=10.0.0.1"], 1, "CAP_NET_RAW"));
    }
}

isolated! {
    fn a_receiver_refuses_what_it_cannot_keep_and_says_why() {
        netns::set_up("lo", true).unwrap();
        let directory = TempDir::new();
        let (from, _) = file(&directory, "from", (1 << 20) + 1);
        let (there, before) = file(&directory, "there", 5);
        let to = ["--to=127.0.0.1", "--bind=127.0.0.2"];
        let small = receiver(&["--bind=127.0.0.1", "--most=1", "--output", text(&directory.join("to"))]);
        let ended = send(&[&[text(&from)], &to[..]].concat()).expect(1);
        assert!(ended.stderr.contains("127.0.0.1 refused: 1048577 octets are too many"), "{}", ended.stderr);
        // It goes on, and what fits is taken.
        send(&[&[text(&there)], &to[..]].concat()).expect(0);
        small.end().expect(0);
        let exists = receiver(&["--bind=127.0.0.1", "--output", text(&there)]);
        let ended = send(&[&[text(&from)], &to[..]].concat()).expect(1);
        assert!(ended.stderr.contains("is there already"), "{}", ended.stderr);
        assert_eq!(std::fs::read(&there).unwrap(), before);
        exists.signal(Signal::INT);
        exists.end().expect(3);
        // A place that is gone by the time is told by the one who knows.
        let gone = directory.join("gone");
        std::fs::create_dir(&gone).unwrap();
        let nowhere = receiver(&["--bind=127.0.0.1", "--output", text(&gone.join("to"))]);
        std::fs::remove_dir(&gone).unwrap();
        let ended = send(&[&[text(&from)], &to[..]].concat()).expect(3);
        assert!(ended.stderr.contains("the receiver cannot write"), "{}", ended.stderr);
        nowhere.end().expect(3);
    }
}

isolated! {
    fn strangers_packets_are_dropped_and_counted_and_the_transfer_goes_on() {
        netns::set_up("lo", true).unwrap();
        let directory = TempDir::new();
        let (from, octets_sent) = file(&directory, "from", 200_000);
        let to = directory.join("to");
        let receiver = receiver(&["--bind=127.0.0.1", "--json", "--output", text(&to)]);
        let stranger = UdpSocket::bind("127.0.0.3:0").unwrap();
        let noise = octets(600);
        for len in (0..600).step_by(7) {
            stranger.send_to(&noise[..len], "127.0.0.1:4791").unwrap();
        }
        // Well formed but for the ICRC.
        for opcode in [0x04, 0x0a, 0x11, 0x64, 0x81] {
            let mut packet = vec![opcode, 0x40, 0xff, 0xff, 0, 0x42, 0x59, 0x50, 0, 0, 0, 0];
            packet.resize(64, 0);
            stranger.send_to(&packet, "127.0.0.1:4791").unwrap();
        }
        send(&[text(&from), "--to=127.0.0.1", "--bind=127.0.0.2"]).expect(0);
        let report = json(&receiver.end().expect(0));
        assert_eq!(report[0]["ok"], true);
        assert_eq!(std::fs::read(&to).unwrap(), octets_sent);
    }
}

isolated! {
    fn who_cannot_be_answered_does_not_end_a_receiver() {
        let there = hosts();
        // A host that this one has no way to, and whose packets it takes all the same.
        for path in ["all", "left"] {
            std::fs::write(format!("/proc/sys/net/ipv4/conf/{path}/rp_filter"), "0").unwrap();
        }
        there.run(|| netns::add_address("right", "10.7.7.7".parse().unwrap(), 32)).unwrap().unwrap();
        let directory = TempDir::new();
        let (from, _) = file(&directory, "from", 10);
        let receiver = receiver(&["--output", text(&directory.join("to"))]);
        let send = |more: &[&str]| {
            there.run(|| send(&[&[text(&from), "--to=10.0.0.1", "--wait=700ms"], more].concat())).unwrap()
        };
        send(&["--bind=10.7.7.7"]).expect(3);
        // It goes on: it waits for the one whom it believes.
        let ended = send(&[]).expect(1);
        assert!(ended.stderr.contains("another transfer is going on"), "{}", ended.stderr);
        receiver.signal(Signal::INT);
        receiver.end().expect(3);
    }
}

isolated! {
    fn senders_come_one_after_the_other_by_raw_frames_over_ipv6() {
        veths(&[("left", "right")]);
        let directory = TempDir::new();
        let (from, octets) = file(&directory, "from", 5000);
        let inbox = directory.join("inbox");
        std::fs::create_dir(&inbox).unwrap();
        let args = ["--iface=right", "--bind=fd00::2", "--count=3", "--force", "--output", text(&inbox)];
        let receiver = receiver(&args);
        let mac = bypath::l2::Interface::named("right").unwrap().mac;
        for bind in ["fd00::1", "fd00::3", "fd00::4"] {
            let (bind, mac) = (format!("--bind={bind}"), format!("--to-mac={mac}"));
            send(&[text(&from), "--to=fd00::2", "--iface=left", &bind, &mac]).expect(0);
        }
        receiver.end().expect(0);
        assert_eq!(std::fs::read(inbox.join("from")).unwrap(), octets);
    }
}

isolated! {
    fn frames_to_another_address_are_not_taken() {
        veths(&[("left", "right")]);
        let directory = TempDir::new();
        let (from, octets) = file(&directory, "from", 5000);
        let to = directory.join("to");
        let receiver = receiver(&["--iface=right", "--bind=10.0.0.2", "--output", text(&to)]);
        let mac = format!("--to-mac={}", bypath::l2::Interface::named("right").unwrap().mac);
        let send = |address: &str| {
            send(&[text(&from), address, "--iface=left", "--bind=10.0.0.1", &mac, "--wait=500ms"])
        };
        // To the same hardware, but another host.
        send("--to=10.0.0.9").expect(3);
        send("--to=10.0.0.2").expect(0);
        receiver.end().expect(0);
        assert_eq!(std::fs::read(&to).unwrap(), octets);
    }
}

isolated! {
    fn a_sender_that_is_ended_says_so_and_nothing_is_left() {
        let there = hosts();
        let directory = TempDir::new();
        let (from, _) = file(&directory, "from", 64 << 20);
        let inbox = directory.join("inbox");
        std::fs::create_dir(&inbox).unwrap();
        for op in ["write", "send"] {
            let receiver = there.run(|| receiver(&["--output", text(&inbox)])).unwrap();
            let sender = Tool::start(&["roce", "send", text(&from), "--to=10.0.0.2", "--op", op]);
            // In the middle of it: the receiver's interface has taken some.
            let begun = Instant::now();
            let received = || {
                let text = there.run(|| std::fs::read_to_string("/proc/thread-self/net/dev")).unwrap().unwrap();
                let line = text.lines().find(|l| l.trim_start().starts_with("right:")).unwrap().to_owned();
                line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
            };
            let before = received();
            while received() < before + (1 << 20) {
                assert!(begun.elapsed() < LONG, "nothing is sent");
                std::thread::yield_now();
            }
            sender.signal(Signal::INT);
            let ended = sender.end();
            let received = receiver.end();
            // Unless it was over by then.
            if ended.code() != Some(0) {
                assert_eq!(ended.code(), Some(3), "{}", ended.stderr);
                assert_eq!(received.code(), Some(3), "{}", received.stderr);
                assert!(received.stderr.contains("the sender gave up: its user ended it"), "{}", received.stderr);
                assert_eq!(std::fs::read_dir(&inbox).unwrap().count(), 0);
            }
            std::fs::remove_dir_all(&inbox).unwrap();
            std::fs::create_dir(&inbox).unwrap();
        }
    }
}

isolated! {
    fn a_way_that_goes_and_comes_back_costs_nothing_but_time() {
        let there = hosts();
        let directory = TempDir::new();
        let (from, octets) = file(&directory, "from", 24 << 20);
        for op in ["write", "read"] {
            let to = directory.join(op);
            let receiver = there.run(|| receiver(&["--output", text(&to)])).unwrap();
            let sender = Tool::start(&["roce", "send", text(&from), "--to=10.0.0.2", "--op", op]);
            for _ in 0..20 {
                netns::set_up("left", false).unwrap();
                netns::set_up("left", true).unwrap();
            }
            sender.end().expect(0);
            receiver.end().expect(0);
            assert!(std::fs::read(&to).unwrap() == octets);
        }
    }
}

isolated! {
    fn a_receiver_without_an_address_is_reached_by_both_ip_versions() {
        let there = hosts();
        there.run(|| crate::network::address("right", "fd00::2")).unwrap();
        crate::network::address("left", "fd00::1");
        let directory = TempDir::new();
        let (from, octets) = file(&directory, "from", 300_000);
        let to = directory.join("to");
        let args = ["--count=2", "--force", "--json", "--output", text(&to)];
        let receiver = there.run(|| receiver(&args)).unwrap();
        for address in ["--to=10.0.0.2", "--to=fd00::2"] {
            send(&[text(&from), address]).expect(0);
        }
        let report = json(&receiver.end().expect(0));
        let froms = [&report[0]["from"], &report[1]["from"]];
        assert_eq!(froms, ["10.0.0.1", "fd00::1"]);
        assert_eq!((&report[0]["wrong_icrc"], &report[1]["wrong_icrc"]), (&0.into(), &0.into()));
        assert_eq!(std::fs::read(&to).unwrap(), octets);
    }
}

/// An offer of so many octets by RDMA WRITE, from 127.0.0.3 to 127.0.0.1, as it is in a datagram.
fn offer(session: u64, size: u64) -> Vec<u8> {
    let end = serde_json::json!({"qpn": 0x80_0001, "psn": 0, "mtu": 1024, "key": 1, "address": 0});
    let offer = serde_json::json!({
        "session": session, "op": "write", "size": size, "name": "large", "sha256": "00", "end": end
    });
    let said = serde_json::json!({ "hello": offer }).to_string();
    let ud = Opcode::new(Service::Ud, Operation::SendOnly).expect("an opcode");
    let bth = Bth::new(ud, Qpn::new(0x42_5950), Psn::new(0));
    let extended = Extended::Deth(Deth { qkey: 0x4259_5031, source: Qpn::new(0x42_5950) });
    let network = Network::V4(Ipv4Header::new([127, 0, 0, 3].into(), [127, 0, 0, 1].into(), IpProtocol::UDP));
    let mut packet = vec![0; 1500];
    let made = Envelope::new(network, 4791).emit(&mut packet, &Headers { bth, extended }, said.as_bytes());
    packet.truncate(made.expect("a packet"));
    // The headers of IP and UDP are the kernel's.
    packet.split_off(28)
}

/// What is answered in a datagram: `welcome` or `refused`, and the session.
fn answer(to: &UdpSocket) -> (String, u64) {
    let mut packet = [0; 2000];
    let mut len = 0;
    // Datagrams only: the last word of a transfer that was given up is a message of a connection.
    while packet[0] != 0x64 {
        len = to.recv(&mut packet).expect("an answer");
    }
    // Between BTH and DETH in front, padding and ICRC behind.
    let said = String::from_utf8_lossy(&packet[20..len - 4]).trim_end_matches('\0').to_owned();
    let said: serde_json::Value = serde_json::from_str(&said).unwrap_or_else(|e| panic!("{e}: {said}"));
    let (what, inside) = said.as_object().and_then(|o| o.iter().next()).expect("a message");
    (what.clone(), inside["session"].as_u64().expect("a session"))
}

/// KiB that a process had in memory at most.
fn peak(tool: &Tool) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", tool.id())).expect("a process");
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("a peak");
    line.trim().trim_end_matches(" kB").parse().expect("a number")
}

isolated! {
    fn an_offer_alone_takes_little_memory_and_others_are_answered_at_once() {
        netns::set_up("lo", true).unwrap();
        let directory = TempDir::new();
        let stranger = UdpSocket::bind("127.0.0.3:4791").unwrap();
        stranger.connect("127.0.0.1:4791").unwrap();
        stranger.set_read_timeout(Some(LONG)).unwrap();
        for (prepare, size) in [(false, 1u64 << 30), (true, 96 << 20)] {
            let to = directory.join("to");
            let mut args = vec!["--bind=127.0.0.1", "--output", text(&to)];
            args.extend(prepare.then_some("--prepare"));
            let receiver = receiver(&args);
            let before = peak(&receiver);
            stranger.send(&offer(1, size)).unwrap();
            assert_eq!(answer(&stranger), ("welcome".to_owned(), 1));
            // What is to be prepared is by the time that some others were answered.
            for session in 2..100 {
                stranger.send(&offer(session, 1)).unwrap();
                assert_eq!(answer(&stranger), ("refused".to_owned(), session));
            }
            let took = peak(&receiver) - before;
            let least = if prepare { size >> 10 } else { 0 };
            let most = if prepare { (size >> 10) + (20 << 10) } else { 60 << 10 };
            assert!((least..most).contains(&took), "{prepare}: {took} KiB");
            receiver.signal(Signal::INT);
            let ended = receiver.end().expect(3);
            assert!(ended.stderr.contains("stopped here"), "{}", ended.stderr);
        }
    }
}

isolated! {
    fn names_are_kept_as_they_are_and_what_cannot_be_offered_is_told_at_once() {
        use std::os::unix::ffi::OsStrExt;
        netns::set_up("lo", true).unwrap();
        let directory = TempDir::new();
        let inbox = directory.join("inbox");
        std::fs::create_dir(&inbox).unwrap();
        let (from, octets) = file(&directory, "a\\b", 100);
        let to = ["--to=127.0.0.1", "--bind=127.0.0.2", "--wait=10s"];
        let receiver = receiver(&["--bind=127.0.0.1", "--output", text(&inbox)]);
        send(&[&[text(&from)], &to[..]].concat()).expect(0);
        receiver.end().expect(0);
        assert_eq!(std::fs::read(inbox.join("a\\b")).unwrap(), octets);
        // Nobody is there: before anything else is done.
        let says = |path: &std::path::Path, what: &str| {
            let mut command = crate::common::bypath(["roce", "send", "--to=127.0.0.1", "--bind=127.0.0.2"]);
            command.arg(path);
            let ended = Tool::of(command).end().expect(1);
            assert!(ended.stderr.contains(what), "{}", ended.stderr);
        };
        let foreign = directory.join(std::ffi::OsStr::from_bytes(b"a\xff"));
        std::fs::write(&foreign, b"x").unwrap();
        says(&foreign, "the name is not UTF-8");
        let large = directory.join("large");
        std::fs::File::create(&large).unwrap().set_len((4095 << 20) + 1).unwrap();
        says(&large, "too many for a transfer, which carries 4293918720");
    }
}

isolated! {
    fn what_came_is_reported_though_nobody_came_after_it() {
        netns::set_up("lo", true).unwrap();
        let directory = TempDir::new();
        let (from, _) = file(&directory, "from", 100);
        let to = directory.join("to");
        let receiver = receiver(&["--bind=127.0.0.1", "--count=2", "--wait=2s", "--json", "--output", text(&to)]);
        send(&[text(&from), "--to=127.0.0.1", "--bind=127.0.0.2"]).expect(0);
        let ended = receiver.end().expect(3);
        assert!(ended.stderr.contains("nobody sent anything in time"), "{}", ended.stderr);
        let report = json(&ended);
        assert_eq!((report.as_array().map(Vec::len), &report[0]["ok"]), (Some(1), &true.into()));
    }
}
