//! `bypath ipc`.

use crate::network::{LONG, Tool, octets, tool, veth};
use bypath::l2::{Error, MacAddr, Socket};
use rustix::process::Signal;
use serde_json::Value;
use std::time::Duration;

/// What receivers listen to, and senders: docs/l2-tools.md.
const RECEIVERS: MacAddr = MacAddr([3, 0x42, 0x59, 0, 0, 1]);
const SENDERS: MacAddr = MacAddr([3, 0x42, 0x59, 0, 0, 2]);

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
