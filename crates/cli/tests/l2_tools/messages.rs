//! `bypath ipc`.

use crate::network::{LONG, Tool, octets, tool, veth};
use bypath::l2::{Error, MacAddr, Socket};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read};
use std::process::Stdio;
use std::time::{Duration, Instant};

/// What receivers listen to, and senders: docs/l2-tools.md.
const RECEIVERS: MacAddr = MacAddr([3, 0x42, 0x59, 0, 0, 1]);
const SENDERS: MacAddr = MacAddr([3, 0x42, 0x59, 0, 0, 2]);

/// After what time a receiver that says nothing is left behind.
const SILENCE: Duration = Duration::from_secs(5);

/// A frame of the tools' protocol by hand.
fn frame(kind: u8, seq: u32, message: u32, flags: u16, body: &[u8]) -> Vec<u8> {
    let session = 0x0102_0304_0506_0708u64.to_be_bytes();
    let length = (body.len() as u16).to_be_bytes();
    let numbers = [seq.to_be_bytes(), message.to_be_bytes()].concat();
    [&[0x42, 0x59, 1, kind], &session[..], &numbers, &flags.to_be_bytes(), &length, body].concat()
}

fn loopback() -> Socket {
    Socket::builder("lo").ethertype(0xaaaa).group(SENDERS).timeout(LONG).open().expect("a socket")
}

isolated! {
    fn a_file_reaches_all_receivers_octet_for_octet() {
        veth();
        let receivers = [(); 2].map(|()| Tool::start(&["ipc", "recv"]).says("receiving"));
        // Isolated: a real interface sees nothing of it.
        let mut right = Socket::builder("right").promiscuous().ethertype(0xaaaa).nonblocking().open().unwrap();
        let file = octets(5 << 20 | 17);
        let ended = Tool::start(&["ipc", "send", "--whole"]).give(&file).end();
        assert!(ended.stderr.contains("6 messages with 5242897 octets sent to"), "{}", ended.stderr);
        ended.expect(0);
        for receiver in receivers {
            let ended = receiver.end().expect(0);
            assert!(ended.stdout == file, "{} octets, {}", ended.stdout.len(), ended.stderr);
            assert!(ended.stderr.contains("0 messages lost, 0 frames missing"), "{}", ended.stderr);
        }
        assert!(matches!(right.receive(&mut [0; 100]), Err(Error::WouldBlock)));
    }
}

isolated! {
    fn lines_are_messages_and_long_ones_are_put_together() {
        veth();
        let receiver = Tool::start(&["ipc", "recv", "--json"]).says("receiving");
        let long = "x".repeat(200_000);
        let input = format!("one\n\n{long}\nno newline");
        Tool::start(&["ipc", "send"]).give(input.as_bytes()).end().expect(0);
        let text = receiver.end().expect(0).text();
        let messages: Vec<Value> = text.lines().map(|l| serde_json::from_str(l).unwrap()).collect();
        let lengths: Vec<_> = messages.iter().map(|m| m["octets"].as_u64().unwrap()).collect();
        assert_eq!(lengths, [4, 1, 200_001, 10]);
        assert_eq!(messages[0]["payload"], "6f6e650a");
        assert_eq!(messages[3]["message"], 3);
    }
}

isolated! {
    fn a_frame_that_is_missing_is_told_and_its_message_left_out() {
        veth();
        let receiver = Tool::start(&["ipc", "recv"]).says("receiving");
        let mut socket = loopback();
        for f in [
            frame(4, 0, 0, 0, b""),
            frame(5, 0, 0, 3, b"whole "),
            frame(5, 1, 1, 1, b"be"),
            // Number 2 does not arrive.
            frame(5, 3, 1, 2, b"gun"),
            b"not of this protocol".to_vec(),
            frame(6, 0, 0, 0, b"an answer"),
            frame(5, 4, 2, 3, b"again"),
            frame(5, 4, 2, 3, b"again"),
            frame(7, 5, 3, 0, b""),
        ] {
            socket.send(RECEIVERS, &f).unwrap();
        }
        let mut buffer = [0; 100];
        // It says how far it is until it has all, the end included.
        loop {
            let got = socket.receive(&mut buffer).unwrap();
            assert!(got.len >= 32 && buffer[3] == 6, "{:?}", &buffer[..got.len]);
            if buffer[12..16] == 6u32.to_be_bytes() {
                break;
            }
        }
        let ended = receiver.end().expect(3);
        assert_eq!(ended.text(), "whole again");
        let told = "1 messages lost, 1 frames missing, 0 of them not taken in time; 2 frames of others ignored";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
}

isolated! {
    fn who_answers_in_the_first_moment_counts() {
        veth();
        let mut socket = Socket::builder("lo").ethertype(0xaaaa).group(RECEIVERS).timeout(LONG).open().expect("a socket");
        let sender = Tool::start(&["ipc", "send"]).give(b"line\n");
        let mut buffer = [0; 2000];
        let mut hellos = 0;
        // Two receivers: the second one answers the second question, which comes before any data.
        loop {
            let got = socket.receive(&mut buffer).unwrap();
            let (kind, session) = (buffer[3], buffer[4..12].to_vec());
            assert!(got.len >= 24 && [4, 5, 7].contains(&kind), "{:?}", &buffer[..got.len]);
            assert!(kind == 4 || hellos >= 2, "kind {kind} after {hellos} hellos");
            hellos += u32::from(kind == 4);
            let expected = match kind {
                4 => 0,
                5 => 1,
                _ => 2,
            };
            for id in 1..=hellos.min(2) {
                let mut ack = frame(6, expected, 0, 0, &u64::from(id).to_be_bytes());
                ack[4..12].copy_from_slice(&session);
                socket.send(SENDERS, &ack).unwrap();
            }
            if kind == 7 {
                break;
            }
        }
        let ended = sender.end().expect(0);
        assert!(ended.stderr.contains("1 messages with 5 octets sent to 2 receivers"), "{}", ended.stderr);
    }
}

isolated! {
    fn a_receiver_that_comes_later_is_told_apart() {
        veth();
        // Opened before the sender's socket, it is given frames after that one.
        let mut watch = loopback();
        let first = Tool::start(&["ipc", "recv"]).says("receiving");
        let mut sender = Tool::start(&["ipc", "send"]);
        sender.write(b"one\n");
        let first = first.hears("one\n");
        let second = Tool::start(&["ipc", "recv"]).says("receiving");
        sender.write(b"two\n");
        let (first, second) = (first.hears("two\n"), second.hears("two\n"));
        // It writes before it answers; a sender that ends before the answer does not know of it.
        let (mut ids, mut buffer) = (BTreeSet::new(), [0; 100]);
        while ids.len() < 2 {
            let got = watch.receive(&mut buffer).unwrap();
            assert!(got.len >= 32 && buffer[3] == 6, "{:?}", &buffer[..got.len]);
            ids.insert(buffer[24..32].to_vec());
        }
        let ended = sender.end().expect(0);
        let told = "sent to 2 receivers, 1 of which answered late; 0 fell silent";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
        assert_eq!(first.end().expect(0).text(), "one\ntwo\n");
        let ended = second.end().expect(3);
        assert_eq!(ended.text(), "two\n");
        let told = "; 1 messages lost, 1 frames missing, 0 of them not taken in time;";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
    }
}

/// The numbers in a line of text.
fn numbers(text: &str) -> Vec<u64> {
    text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
}

isolated! {
    fn what_a_stopped_receiver_missed_adds_up() {
        veth();
        let running = Tool::start(&["ipc", "recv"]).says("receiving");
        let stopped = Tool::start(&["ipc", "recv"]).says("receiving");
        stopped.stop();
        let ended = Tool::start(&["ipc", "send", "--whole"]).give(&octets(30 << 20)).end().expect(0);
        // It could not answer: it does not count.
        let told = "30 messages with 31457280 octets sent to 1 receivers, 0 of which answered late";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
        let _ = running.end().expect(0);
        stopped.signal(Signal::CONT);
        let ended = stopped.end().expect(3);
        let line = ended.stderr.lines().last().expect("a line");
        assert!(line.contains("; at least ") && line.contains(", at least "), "{line}");
        let n = numbers(line);
        let [messages, octets, senders, lost, missing, not_taken, others] = n[..] else { panic!("{line}") };
        assert_eq!((senders, others), (1, 0), "{line}");
        assert_eq!((messages << 20, ended.stdout.len() as u64), (octets, octets), "{line}");
        assert!(messages + lost <= 30 && lost >= 1, "{line}");
        // All but what its queue holds.
        assert!(missing >= not_taken && not_taken > 100, "{line}");
    }
}

isolated! {
    fn a_receiver_that_leaves_says_so_and_what_it_did_not_take_is_told() {
        veth();
        // It has all that there is: nobody waits for it, and nothing is lost.
        let receiver = Tool::start(&["ipc", "recv", "--count=3"]).says("receiving");
        let began = Instant::now();
        let ended = Tool::start(&["ipc", "send"]).give(b"one\ntwo\nthree\n").end().expect(0);
        assert!(began.elapsed() < SILENCE, "{:?}", began.elapsed());
        let told = "3 messages with 14 octets sent to 1 receivers, 0 of which answered late; 0 fell silent, 0 left before the end, \
                    0 messages not acknowledged by these";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
        assert_eq!(receiver.end().expect(0).text(), "one\ntwo\nthree\n");

        // One has had enough of it, one stays.
        let few = Tool::start(&["ipc", "recv", "--count=2"]).says("receiving");
        let all = Tool::start(&["ipc", "recv"]).says("receiving");
        let lines: String = (0..1000).map(|n| format!("{n}\n")).collect();
        let began = Instant::now();
        let ended = Tool::start(&["ipc", "send"]).give(lines.as_bytes()).end().expect(3);
        assert!(began.elapsed() < SILENCE, "{:?}", began.elapsed());
        let told = "sent to 1 receivers, 0 of which answered late; 0 fell silent, 1 left before the end, 998 messages not acknowledged";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
        assert_eq!(few.end().expect(0).text(), "0\n1\n");
        assert_eq!(all.end().expect(0).text(), lines);

        // Who came later does not count, whenever it leaves.
        let all = Tool::start(&["ipc", "recv"]).says("receiving");
        let mut sender = Tool::start(&["ipc", "send"]);
        sender.write(b"one\n");
        let all = all.hears("one\n");
        let late = Tool::start(&["ipc", "recv", "--count=1"]).says("receiving");
        sender.write(b"two\n");
        assert_eq!(late.end().expect(3).text(), "two\n");
        let ended = sender.give(b"three\n").end().expect(0);
        let told = "sent to 1 receivers, 0 of which answered late; 0 fell silent, 1 left before the end, 1 messages not acknowledged";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
        assert_eq!(all.end().expect(0).text(), "one\ntwo\nthree\n");

        // Nobody is left in the middle of it: what is not sent is not called sent.
        let few = Tool::start(&["ipc", "recv", "--count=1"]).says("receiving");
        let mut sender = Tool::start(&["ipc", "send"]);
        sender.write(b"one\n");
        assert_eq!(few.end().expect(0).text(), "one\n");
        let ended = sender.give(b"two\n").end().expect(3);
        assert!(ended.stderr.contains("1 messages with 4 octets sent to 1 receivers"), "{}", ended.stderr);
        assert!(ended.stderr.contains("no receiver is left; start `bypath ipc recv` anew"), "{}", ended.stderr);
    }
}

isolated! {
    fn a_receiver_says_that_it_leaves_however_it_ends() {
        veth();
        for how in ["--timeout=300ms", "Ctrl-C", "no reader"] {
            let mut command = crate::common::bypath(["ipc", "recv", if how.starts_with("--") { how } else { "--follow" }]);
            let mut receiver = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
            let mut said = BufReader::new(receiver.stderr.take().unwrap()).lines();
            while !said.next().unwrap().unwrap().contains("receiving") {}
            let mut socket = loopback();
            socket.send(RECEIVERS, &frame(5, 0, 0, 3, b"message")).unwrap();
            let mut stdout = receiver.stdout.take().unwrap();
            stdout.read_exact(&mut [0; 7]).unwrap();
            match how {
                "Ctrl-C" => {
                    let pid = rustix::process::Pid::from_child(&receiver);
                    rustix::process::kill_process(pid, Signal::INT).unwrap();
                }
                "no reader" => drop(stdout),
                _ => {}
            }
            let mut buffer = [0; 100];
            loop {
                let got = socket.receive(&mut buffer).unwrap_or_else(|e| panic!("{how}: {e}"));
                assert!(got.len >= 32 && buffer[3] == 6, "{:?}", &buffer[..got.len]);
                // What it had, and that it leaves.
                if buffer[20..22] == [0, 8] {
                    assert_eq!(buffer[12..16], [0, 0, 0, 1]);
                    break;
                }
            }
            assert_eq!(receiver.wait().unwrap().code(), Some(if how.starts_with("--") { 3 } else { 0 }), "{how}");
        }
    }
}

isolated! {
    fn what_a_silent_receiver_did_not_acknowledge_is_told() {
        veth();
        let mut watch = loopback();
        let stopped = Tool::start(&["ipc", "recv"]).says("receiving");
        let other = Tool::start(&["ipc", "recv"]).says("receiving");
        let mut sender = Tool::start(&["ipc", "send"]);
        sender.write(b"one\n");
        let (stopped, other) = (stopped.hears("one\n"), other.hears("one\n"));
        let (mut ids, mut buffer) = (BTreeSet::new(), [0; 100]);
        while ids.len() < 2 {
            watch.receive(&mut buffer).unwrap();
            if buffer[12..16] == [0, 0, 0, 1] {
                ids.insert(buffer[24..32].to_vec());
            }
        }
        stopped.stop();
        let lines: String = (0..100).map(|n| format!("{n}\n")).collect();
        let ended = sender.give(lines.as_bytes()).end().expect(3);
        let told = "101 messages with 294 octets sent to 1 receivers, 0 of which answered late; 1 fell silent, 0 left before the end, \
                    100 messages not acknowledged";
        assert!(ended.stderr.contains(told), "{}", ended.stderr);
        assert_eq!(other.end().expect(0).text(), format!("one\n{lines}"));
    }
}

isolated! {
    fn without_receivers_the_sender_says_so() {
        veth();
        let ended = tool(&["ipc", "send", "--wait=50ms"]).expect(3);
        assert!(ended.stderr.contains("start `bypath ipc recv` first"), "{}", ended.stderr);
        let ended = tool(&["ipc", "recv", "--timeout=50ms"]).expect(3);
        assert!(ended.stderr.contains("0 messages with 0 octets received from 0 senders"), "{}", ended.stderr);
    }
}

isolated! {
    fn the_dead_are_noticed() {
        veth();
        let receiver = Tool::start(&["ipc", "recv"]).says("receiving");
        let mut watch = loopback();
        let sender = Tool::start(&["ipc", "send"]);
        // The receiver knows it.
        watch.receive(&mut [0; 100]).unwrap();
        sender.signal(Signal::KILL);
        let ended = receiver.end().expect(3);
        assert!(ended.stderr.contains("fell silent"), "{}", ended.stderr);

        let receiver = Tool::start(&["ipc", "recv", "--follow"]).says("receiving");
        let sender = Tool::start(&["ipc", "send", "--whole", "--wait=20s"]);
        watch.set_timeout(Some(Duration::from_secs(10)));
        watch.receive(&mut [0; 100]).unwrap();
        receiver.signal(Signal::KILL);
        let _ = receiver.end();
        let ended = sender.give(&octets(4 << 20)).end().expect(3);
        assert!(ended.stderr.contains("1 receivers fell silent"), "{}", ended.stderr);
    }
}

isolated! {
    fn ctrl_c_ends_both_with_the_counts() {
        veth();
        let receiver = Tool::start(&["ipc", "recv", "--follow"]).says("receiving");
        let mut watch = loopback();
        let sender = Tool::start(&["ipc", "send"]);
        watch.receive(&mut [0; 100]).unwrap();
        sender.signal(Signal::INT);
        let ended = sender.end().expect(3);
        assert!(ended.stderr.contains("0 messages with 0 octets sent to"), "{}", ended.stderr);
        receiver.signal(Signal::INT);
        let ended = receiver.end().expect(0);
        assert!(ended.stderr.contains("0 messages with 0 octets received from 1 senders"), "{}", ended.stderr);
    }
}
