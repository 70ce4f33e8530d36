//! `bypath roce decode`: right, wrong, malformed, cut off, and no capture at all.

use crate::common::TempDir;
use crate::network::{Ended, Tool};
use crate::witnesses::{every_opcode, pcap};
use crate::{json, text};
use std::path::Path;

fn decode(path: &Path, more: &[&str]) -> Ended {
    Tool::start(&[&["roce", "decode", text(path)], more].concat()).end()
}

#[test]
fn packets_are_explained_and_judged() {
    let directory = TempDir::new();
    let path = directory.join("some.pcap");
    let all = every_opcode(false);
    let (mut wrong, mut malformed, mut other) = (all[4].clone(), all[4].clone(), all[4].clone());
    wrong[60] ^= 1;
    // A version that is not 0.
    malformed[43] |= 1;
    // Another port.
    other[36] ^= 1;
    pcap(&path, &[all[4].clone(), wrong, malformed, other]);
    let ended = decode(&path, &[]).expect(3);
    let out = ended.text();
    let lines: Vec<_> = out.lines().map(|l| l.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
    let says = "IPv4 10.0.0.1.49152 > 10.0.0.2.4791: UDP RoCE RC SEND only, qp 0x456, psn 16777215";
    assert_eq!(lines.len(), 3, "{out}");
    assert_eq!(lines[0], format!("1 0 ns ICRC right {says}, length 61"));
    assert_eq!(lines[1], format!("2 1.0 us ICRC WRONG {says} [wrong ICRC], length 61"));
    assert!(
        lines[2].starts_with("3 2.0 us MALFORMED") && lines[2].contains("the version field says 1"),
        "{out}"
    );
    let summary = "4 frames, 3 of them RoCEv2: ICRC right 1, wrong 1, not to be checked 0; malformed 1";
    assert!(ended.stderr.contains(summary), "{}", ended.stderr);
    let report = json(&decode(&path, &["--json"]).expect(3));
    assert_eq!(
        (&report["frames"], &report["wrong"], &report["malformed"]),
        (&4.into(), &1.into(), &1.into())
    );
    let judged: Vec<_> =
        report["packets"].as_array().unwrap().iter().map(|p| p["icrc"].as_str().unwrap()).collect();
    assert_eq!(judged, ["right", "wrong", "malformed"]);
}

#[test]
fn a_checksum_that_a_device_was_to_finish_is_not_called_wrong() {
    let directory = TempDir::new();
    let path = directory.join("loopback.pcap");
    let (mut unfinished, mut wrong) = (every_opcode(false)[4].clone(), every_opcode(false)[4].clone());
    let addresses = bypath::wire::Ipv4Header::parse_header(&unfinished[14..]).unwrap().0.addresses();
    bypath::wire::udp::fill_partial(&addresses, &mut unfinished[34..]);
    wrong[40] ^= 1;
    pcap(&path, &[unfinished, wrong]);
    let out = decode(&path, &[]).expect(0).text();
    let marked: Vec<_> = out.lines().map(|line| line.contains("[wrong checksum]")).collect();
    assert_eq!(marked, [false, true], "{out}");
}

#[test]
fn frames_that_the_capture_cut_are_not_judged() {
    let directory = TempDir::new();
    let path = directory.join("cut.pcap");
    let frame = &every_opcode(false)[4];
    pcap(&path, &[frame[..100].to_vec(), frame[..50].to_vec()]);
    // What there was, as a capture with a limit tells it.
    let mut octets = std::fs::read(&path).unwrap();
    let whole = (frame.len() as u32).to_le_bytes();
    octets[36..40].copy_from_slice(&whole);
    octets[40 + 100 + 12..40 + 100 + 16].copy_from_slice(&whole);
    std::fs::write(&path, octets).unwrap();
    let ended = decode(&path, &[]).expect(0);
    let summary = "right 0, wrong 0, not to be checked 2; malformed 0; 2 cut by the capture (tcpdump -s 0";
    assert!(ended.stderr.contains(summary), "{}", ended.stderr);
    // What is there of the headers is told: of the second one not all.
    let out = ended.text();
    let lines: Vec<_> = out.lines().collect();
    assert!(
        lines[0].contains("ICRC ?") && lines[0].contains("RC SEND only, qp 0x456, psn 16777215"),
        "{out}"
    );
    assert!(lines.iter().all(|line| line.contains("octets missing]")), "{out}");
    let report = json(&decode(&path, &["--json"]).expect(0));
    let first = &report["packets"][0];
    assert_eq!((&first["opcode"], &first["qpn"]), (&"RC SEND only".into(), &0x456.into()));
    assert_eq!((&first["psn"], &first["cut"], &report["cut"]), (&16_777_215.into(), &true.into(), &2.into()));
}

#[test]
fn what_is_no_capture_is_said_with_a_remedy() {
    let directory = TempDir::new();
    let says = |octets: &[u8]| {
        let path = directory.join("file");
        std::fs::write(&path, octets).unwrap();
        decode(&path, &[]).expect(1).stderr
    };
    assert!(says(b"hello, world").contains("tcpdump -w"));
    assert!(says(b"hi").contains("less than 4 octets"));
    // IEEE 802.11.
    let mut radio = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 105u32] {
        radio.extend(word.to_le_bytes());
    }
    assert!(says(&radio).contains("link type 105"));
    // Linux cooked.
    let mut cooked = radio.clone();
    cooked[20] = 113;
    let whole = Tool::start(&["roce", "decode", "-"]).give(&cooked).end().expect(1);
    assert!(whole.stderr.contains("capture on one (tcpdump -i eth0)"), "{}", whole.stderr);
    let gone = decode(&directory.join("gone"), &[]).expect(1);
    assert!(gone.stderr.contains("No such file"), "{}", gone.stderr);
    // A file that ends in the middle: what is whole is explained.
    let path = directory.join("half.pcap");
    pcap(&path, &every_opcode(false)[..2]);
    let octets = std::fs::read(&path).unwrap();
    std::fs::write(&path, &octets[..octets.len() - 1]).unwrap();
    let ended = decode(&path, &[]).expect(1);
    assert_eq!(ended.text().lines().count(), 1);
    assert!(ended.stderr.contains("what is before it is whole"), "{}", ended.stderr);
}
