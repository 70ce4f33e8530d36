//! `bypath l2 jitter`.

use crate::network::{Tool, socket, tool, veth};
use serde_json::Value;

/// A frame of the tools' protocol by hand: docs/l2-tools.md.
fn frame(kind: u8, seq: u32, body: &[u8]) -> Vec<u8> {
    let length = (body.len() as u16).to_be_bytes();
    [&[0x42, 0x59, 1, kind], &[7; 8][..], &seq.to_be_bytes(), &[0; 6], &length, body].concat()
}

/// One of a cyclic sender's, of 1 ms.
fn cycle(seq: u32) -> Vec<u8> {
    let fill: Vec<u8> = (0..20).map(|i| (31 * seq + 7 * i) as u8).collect();
    frame(3, seq, &[&1_000_000u64.to_be_bytes()[..], &fill].concat())
}

isolated! {
    fn every_frame_of_a_cycle_is_counted_on_both_sides() {
        let (_, right) = veth();
        let receiver = Tool::start(&["l2", "jitter", "right", "--receive", "--json"]).says("receiving on right");
        let dst = right.to_string();
        let send = ["l2", "jitter", "left", "--dst", &dst, "--cycle=250us", "--count=200", "--vlan=10", "--priority=7", "--json"];
        let sender: Value = serde_json::from_slice(&tool(&send).expect(0).stdout).unwrap();
        let receiver: Value = serde_json::from_slice(&receiver.end().expect(0).stdout).unwrap();
        // Each tells what it can know.
        for (count, side, other) in
            ["lost", "out_of_order", "twice", "corrupt", "ignored"].map(|c| (c, &receiver, &sender)).into_iter()
                .chain([("missed_cycles", &sender, &receiver)])
        {
            assert!(side[count].is_u64() && other[count].is_null(), "{count}: {side} {other}");
        }
        assert_eq!(receiver["lost"], 0);
        for report in [&sender, &receiver] {
            assert_eq!((&report["frames"], &report["cycle_ns"]), (&200.into(), &250_000.into()));
            let buckets = report["lateness_ns"]["buckets"].as_array().unwrap();
            assert_eq!(buckets.iter().map(|b| b["frames"].as_u64().unwrap()).sum::<u64>(), 200, "{report}");
            // What was not to be had is said.
            let scheduling = report["scheduling"].as_str().unwrap();
            assert!(scheduling == "SCHED_FIFO, priority 80" || scheduling.starts_with("ordinary; no SCHED_FIFO: "), "{scheduling}");
            let memory = report["memory"].as_str().unwrap();
            assert!(memory == "locked" || memory.starts_with("not locked: "), "{memory}");
        }
    }
}

isolated! {
    fn what_is_wrong_with_frames_is_told_apart() {
        let (_, right) = veth();
        let receiver = Tool::start(&["l2", "jitter", "right", "--receive", "--json"]).says("receiving");
        let mut left = socket("left");
        let mut changed = cycle(6);
        changed[40] ^= 1;
        let mut other = cycle(7);
        other[4] = 8;
        // 2 is lost, 6 is changed.
        for f in [cycle(0), cycle(1), cycle(4), cycle(3), cycle(3), cycle(5), changed, other, cycle(7), frame(7, 9, &[])] {
            left.send(right, &f).unwrap();
        }
        let report: Value = serde_json::from_slice(&receiver.end().expect(3).stdout).unwrap();
        let count = |what: &str| report[what].as_u64().unwrap();
        assert_eq!(["frames", "lost", "out_of_order", "twice", "corrupt", "ignored"].map(count), [6, 3, 1, 1, 1, 1]);
    }
}

isolated! {
    fn a_sender_that_is_silent_is_told() {
        let (_, right) = veth();
        let receiver = Tool::start(&["l2", "jitter", "right", "--receive", "--timeout=300ms"]).says("receiving");
        socket("left").send(right, &cycle(0)).unwrap();
        let text = receiver.end().expect(3).text();
        assert!(text.contains("1 frames, 0 lost") && text.contains("the end did not come"), "{text}");
    }
}

isolated! {
    fn what_only_the_sender_decides_is_refused_of_a_receiver_with_what_to_do() {
        for option in ["--count=5", "--cycle=1ms", "--size=100"] {
            let (name, _) = option.split_once('=').unwrap();
            let ended = tool(&["l2", "jitter", "lo", "--receive", option]).expect(2);
            assert!(ended.stderr.contains(&format!("{name} is the sender's")) && ended.stderr.contains("give it there"), "{}", ended.stderr);
        }
        let (_, right) = veth();
        let text = tool(&["l2", "jitter", "left", "--dst", &right.to_string(), "--count=2"]).expect(0).text();
        assert!(text.contains(": 2 frames sent, ") && !text.contains("lost"), "{text}");
    }
}
