//! tshark and scapy, which know nothing of us, find nothing wrong with what we send: every mode, both families, in
//! fragments, and what the kernel makes of super-packets on the way through.

use crate::common::{LONG, device, over, payload, skip, sysctl};
use bypath_link::Link;
use bypath_link::capture::Capture;
use bypath_link::tun::{Checksum, Device, Mode, Offloads};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

/// Debian's Python: the one that its scapy package is for.
const PYTHON: &str = "/usr/bin/python3";

/// Lengths of each round; the last two do not fit into the MTU.
const LENGTHS: [usize; 8] = [1, 2, 17, 512, 1000, 1400, 3000, 20_000];
/// Datagrams of five rounds: the first lengths are cut into 1, 2, 5, 4, 4 and 4.
const DATAGRAMS: usize = 5 * 22;

fn there(program: &str, args: &[&str], test: &str, package: &str) -> bool {
    let found = Command::new(program).args(args).output();
    if found.is_ok_and(|o| o.status.success()) {
        return true;
    }
    skip(test, &format!("{program} with {args:?} does not start (Debian package {package})"));
    false
}

/// Sends in every mode through the kernel, as a router, to a second device that takes nothing unfinished, and writes what
/// comes out of that into a file. Returns its path and how many packets are in it.
fn captured(family: usize, peer: SocketAddr) -> (PathBuf, usize) {
    sysctl("net/ipv4/ip_forward", "1");
    sysctl("net/ipv6/conf/all/forwarding", "1");
    let path = std::env::temp_dir().join(format!("bypath-tun-{}-{family}.pcapng", std::process::id()));
    let beyond = Device::tun("beyond").offloads(Offloads::NONE).address("10.8.0.1".parse().unwrap(), 24);
    let beyond = beyond.address("fd08::1".parse().unwrap(), 64).open().unwrap();
    let file = std::fs::File::create(&path).unwrap();
    let mut beyond = Capture::new(beyond, "beyond", file, 65_535, bypath_sys::clock::realtime_ns).unwrap();
    let mut packets = 0;
    for (mode, checksum) in [
        (Mode::Assemble, Checksum::Own),
        (Mode::Assemble, Checksum::Kernel),
        (Mode::Pieces, Checksum::Own),
        (Mode::Pieces, Checksum::Kernel),
        (Mode::Super, Checksum::Kernel),
    ] {
        let mut udp =
            over(device(1500).open().unwrap(), family, |b| b.mode(mode).checksum(checksum).dscp(10));
        for len in LENGTHS {
            let size = if len > 1400 { len } else { len.max(4) / 4 };
            let sent = payload(len as u32, len);
            let count = udp.send_cut(peer, &sent, size).unwrap();
            // All of it arrives, in pieces or not.
            let (mut octets, mut datagrams) = (0, 0);
            while octets < len {
                assert!(beyond.inner().wait(Some(LONG)).unwrap(), "{mode:?}, {len}: {octets} octets arrived");
                beyond
                    .receive(1000, &mut |packet, _| {
                        let ours = packet[0] >> 4 == 4 && packet[9] == 17
                            || packet[0] >> 4 == 6 && matches!(packet[6], 17 | 44);
                        let fragment = packet[0] >> 4 == 6 && packet[6] == 44;
                        let first = if fragment {
                            packet[42..44] == [0, 0] || packet[42..44] == [0, 1]
                        } else {
                            packet[0] >> 4 == 6 || packet[6] & 0x1f == 0 && packet[7] == 0
                        };
                        if ours {
                            let ip = if packet[0] >> 4 == 4 { 20 } else { 40 + if fragment { 8 } else { 0 } };
                            octets += packet.len() - ip - if first { 8 } else { 0 };
                            datagrams += usize::from(first);
                        }
                        packets += 1;
                    })
                    .unwrap();
            }
            assert_eq!((octets, datagrams), (len, count), "{mode:?}, {len}");
        }
    }
    let (_, _) = beyond.finish().unwrap();
    (path, packets)
}

const PEERS: [&str; 2] = ["10.8.0.2:9000", "[fd08::2]:9000"];

isolated! {
    fn tshark_has_nothing_to_complain_about() {
        if !there("tshark", &["--version"], "outside::tshark_has_nothing_to_complain_about", "tshark") {
            return;
        }
        for (family, peer) in PEERS.iter().enumerate() {
            let (path, packets) = captured(family, peer.parse().unwrap());
            let mut tshark = Command::new("tshark");
            // Nobody's own settings.
            tshark.env("HOME", std::env::temp_dir()).env_remove("XDG_CONFIG_HOME");
            tshark.args(["-r", path.to_str().unwrap(), "-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"]);
            tshark.args(["-T", "fields", "-E", "separator=|", "-E", "occurrence=f"]);
            for field in ["frame.protocols", "udp.checksum.status", "ip.checksum.status", "_ws.expert.message", "udp.dstport", "ip.dsfield.dscp"] {
                tshark.args(["-e", field]);
            }
            let output = tshark.output().unwrap();
            std::fs::remove_file(&path).unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            assert_eq!(text.lines().count(), packets);
            let mut datagrams = 0;
            for line in text.lines() {
                let fields: Vec<_> = line.split('|').collect();
                let [protocols, udp, ip, complaint, port, dscp] = fields[..] else { panic!("{line}") };
                assert!(protocols.starts_with("raw:ip"), "{line}");
                assert!(!protocols.starts_with("raw:ip:") || ip == "1", "{line}");
                if port == "9000" {
                    datagrams += 1;
                    assert_eq!(udp, "1", "{line}");
                    assert!(family == 1 || dscp == "10", "{line}");
                    assert_eq!(complaint, "", "{line}");
                }
            }
            assert_eq!(datagrams, DATAGRAMS, "of {packets} packets");
        }
    }
}

/// Reads packets, takes out every checksum, has scapy compute it, and compares; puts fragments together.
const SCAPY: &str = r"
import itertools, sys
from scapy.all import PcapNgReader, IP, IPv6, UDP, IPv6ExtHdrFragment, PacketList, defragment, defragment6
checked = 0
def check(p, kind):
    global checked
    q = kind(bytes(p))
    if UDP not in q or (kind is IP and (q.flags.MF or q.frag)):
        return
    was = q[UDP].chksum
    q[UDP].chksum = None
    if kind is IP:
        ip, q[IP].chksum = q[IP].chksum, None
    again = kind(bytes(q))
    assert again[UDP].chksum == was, (hex(again[UDP].chksum), hex(was))
    if kind is IP:
        assert again[IP].chksum == ip
        assert again[IP].tos >> 2 == 10 and again[IP].ttl == 63
    checked += 1
kind = IP if sys.argv[2] == '0' else IPv6
whole, pieces = [], []
for p in PcapNgReader(sys.argv[1]):
    p = kind(bytes(p)) if bytes(p)[0] >> 4 == (4 if kind is IP else 6) else None
    if p is None:
        continue
    fragment = IPv6ExtHdrFragment in p or (kind is IP and (p.flags.MF or p.frag))
    (pieces if fragment else whole).append(p)
for p in whole:
    check(p, kind)
# Fragments of one packet follow each other, and scapy's function for IPv6 takes those of one.
by = itertools.groupby(pieces, lambda p: p.id if kind is IP else p[IPv6ExtHdrFragment].id)
for _, group in by:
    group = list(group)
    if kind is IP:
        (p,) = defragment(PacketList(group))
        p.flags, p.frag = 0, 0
        del p.chksum, p.len
        p = IP(bytes(p))
        p.ttl = 63
    else:
        p = defragment6(PacketList(group))
    check(p, kind)
print(checked)
";

isolated! {
    fn scapy_computes_the_same_checksums() {
        if !there(PYTHON, &["-c", "import scapy.all"], "outside::scapy_computes_the_same_checksums", "python3-scapy") {
            return;
        }
        for (family, peer) in PEERS.iter().enumerate() {
            let (path, _) = captured(family, peer.parse().unwrap());
            let output = Command::new(PYTHON).args(["-c", SCAPY, path.to_str().unwrap(), &family.to_string()]).output().unwrap();
            std::fs::remove_file(&path).unwrap();
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{errors}");
            let checked: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
            assert_eq!(checked, DATAGRAMS);
        }
    }
}
