//! What is on the wire, read by others: scapy computes each ICRC again, tshark takes every packet apart.

use crate::common::TempDir;
use crate::network::{Tool, hosts};
use crate::outsiders::{PYTHON, has_scapy, has_tshark, lines};
use crate::{file, json, receiver, send, text};
use bypath::wire::roce::{
    Aeth, Amount, AtomicEth, Bth, Deth, Envelope, Extended, Extension, Headers, Opcode, Psn, Qpn, Reth,
    Syndrome,
};
use bypath::wire::{EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, Network};
use rustix::process::Signal;
use std::path::Path;
use std::process::Command;

/// Prints, of every RoCEv2 packet of a file under IPv4, identification, flags, opcode, the ICRC in it and the one computed.
const SCAPY: &str = r"
import sys
from scapy.all import Ether, IP, UDP, PcapNgReader, PcapReader
from scapy.contrib.roce import BTH
reader = PcapNgReader if sys.argv[1].endswith('ng') else PcapReader
for p in reader(sys.argv[1]):
    if UDP in p and p[UDP].dport == 4791 and IP in p:
        raw = bytes(p[IP])
        q = IP(raw)
        told = raw[q.len - 4:q.len].hex()
        b = q[BTH]
        b.icrc = None
        print(q.id, q.flags, b.opcode, told, bytes(q)[q.len - 4:q.len].hex())
";

/// What scapy says of a file: how many packets, and that every ICRC is the one that it computes.
fn scapy(path: &Path) -> Vec<String> {
    let told = lines(Command::new(PYTHON).args(["-c", SCAPY]).arg(path));
    for line in &told {
        let words: Vec<_> = line.split(' ').collect();
        assert_eq!(words[3], words[4], "{line}");
    }
    told
}

/// Checks that tshark sees so many RoCEv2 packets in a file, and has nothing to say against any.
fn tshark(path: &Path, packets: usize) {
    let read = |filter: &str| lines(Command::new("tshark").args(["-n", "-Y", filter, "-r"]).arg(path));
    assert_eq!(read("infiniband.bth && udp.dstport == 4791").len(), packets);
    let wrong = "udp.port == 4791 && (_ws.malformed || _ws.short || _ws.expert.severity >= 0x00600000)";
    assert_eq!(read(wrong), Vec::<String>::new());
}

/// A transfer through UDP sockets between two hosts, captured where its packets arrive: at the receiver, at the sender.
fn captured(directory: &TempDir, op: &str) -> [std::path::PathBuf; 2] {
    let there = hosts();
    let (from, octets) = file(directory, "from", 100_003);
    let to = directory.join(format!("{op}-to"));
    let paths = ["right", "left"].map(|name| directory.join(format!("{op}-{name}.pcapng")));
    let capture = |name: &str, path: &Path| {
        let args = ["l2", "recv", name, "--ethertype=0x0800", "-w", text(path)];
        Tool::start(&args).says(&format!("receiving on {name}"))
    };
    let captures = [there.run(|| capture("right", &paths[0])).unwrap(), capture("left", &paths[1])];
    let receiver = there.run(|| receiver(&["--output", text(&to)])).unwrap();
    send(&[text(&from), "--op", op, "--to=10.0.0.2"]).expect(0);
    receiver.end().expect(0);
    assert_eq!(std::fs::read(&to).unwrap(), octets);
    for capture in captures {
        capture.signal(Signal::INT);
        capture.end().expect(0);
    }
    paths
}

isolated! {
    fn packets_of_a_udp_socket_have_the_icrc_of_the_kernels_headers() {
        let test = "witnesses::packets_of_a_udp_socket_have_the_icrc_of_the_kernels_headers";
        let directory = TempDir::new();
        let paths = captured(&directory, "write");
        let (scapy_is_there, tshark_is_there) = (has_scapy(test, "contrib.roce"), has_tshark(test));
        // 98 packets of the file to the one; welcome, acknowledgements and the last word to the other.
        for (path, least) in paths.iter().zip([98, 3]) {
            let ended = Tool::start(&["roce", "decode", text(path), "--json"]).end().expect(0);
            let report = json(&ended);
            let packets = report["roce"].as_u64().unwrap() as usize;
            assert!(packets >= least && report["right"] == report["roce"], "{report}");
            if scapy_is_there {
                let told = scapy(path);
                assert_eq!(told.len(), packets);
                // Why it can be right: identification 0 and "don't fragment", in every packet of either host.
                assert!(told.iter().all(|line| line.starts_with("0 DF ")), "{told:?}");
            }
            if tshark_is_there {
                tshark(path, packets);
            }
        }
    }
}

/// Writes frames as a pcap file.
pub fn pcap(path: &Path, frames: &[Vec<u8>]) {
    let mut octets = Vec::new();
    for word in [0xa1b2_c3d4, 0x0004_0002, 0, 0, 65_535, 1u32] {
        octets.extend(word.to_le_bytes());
    }
    for (n, frame) in frames.iter().enumerate() {
        for word in [1, n as u32, frame.len() as u32, frame.len() as u32] {
            octets.extend(word.to_le_bytes());
        }
        octets.extend(frame);
    }
    std::fs::write(path, octets).expect("a file");
}

/// A packet of every opcode, under IPv4 or IPv6.
pub fn every_opcode(v6: bool) -> Vec<Vec<u8>> {
    let reth = Reth { address: 0x1122_3344_5566_7788, key: 0x99aa_bbcc, length: 5000 };
    let aeth = Aeth { syndrome: Syndrome::DONE, msn: 7 };
    let atomic = AtomicEth { address: 8, key: 1, swap_or_add: 2, compare: 3 };
    let deth = Deth { qkey: 0x8001_0000, source: Qpn::new(0x123) };
    let network = if v6 {
        Network::V6(Ipv6Header::new(1u128.into(), 2u128.into(), IpProtocol::UDP))
    } else {
        Network::V4(Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP))
    };
    let link = EthernetHeader::new(MacAddr([2; 6]), MacAddr([4; 6]), EtherType::IPV4);
    let envelope = Envelope { link: Some(link), ..Envelope::new(network, 0xc000) };
    let packet = |opcode: Opcode| {
        let extended = match opcode.extension() {
            Extension::None => Extended::None,
            Extension::Immediate => Extended::Immediate(9),
            Extension::Invalidate => Extended::Invalidate(9),
            Extension::Reth => Extended::Reth(reth),
            Extension::RethImmediate => Extended::RethImmediate(reth, 9),
            Extension::Atomic => Extended::Atomic(atomic),
            Extension::Aeth => Extended::Aeth(aeth),
            Extension::AtomicAck => Extended::AtomicAck(aeth, 9),
            Extension::Deth => Extended::Deth(deth),
            Extension::DethImmediate => Extended::DethImmediate(deth, 9),
            Extension::Congestion => Extended::Congestion,
        };
        let payload = crate::network::octets(match opcode.operation().amount() {
            Amount::None => 0,
            Amount::Whole => 1024,
            Amount::Some | Amount::Any => 61,
        });
        let headers = Headers { bth: Bth::new(opcode, Qpn::new(0x456), Psn::new(u32::MAX)), extended };
        let mut frame = vec![0; 1200];
        let len = envelope.emit(&mut frame, &headers, &payload).expect("a packet");
        frame.truncate(len);
        frame
    };
    (0..=255).filter_map(Opcode::from_octet).map(packet).collect()
}

#[test]
fn packets_of_every_opcode_are_right_to_all_witnesses() {
    let test = "witnesses::packets_of_every_opcode_are_right_to_all_witnesses";
    let directory = TempDir::new();
    let (v4, v6) = (every_opcode(false), every_opcode(true));
    let count = v4.len();
    assert_eq!(count, 38);
    let path = directory.join("all.pcap");
    pcap(&path, &[v4, v6].concat());
    let ended = Tool::start(&["roce", "decode", text(&path)]).end().expect(0);
    assert!(ended.stderr.contains("76 of them RoCEv2: ICRC right 76"), "{}", ended.stderr);
    if has_tshark(test) {
        tshark(&path, 2 * count);
    }
    if has_scapy(test, "contrib.roce") {
        assert_eq!(scapy(&path).len(), count);
    }
}
