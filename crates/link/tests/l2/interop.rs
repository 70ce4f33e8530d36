//! scapy and tshark, which know nothing of us, read what we write and write what we read.

use crate::common::{LONG, MODES, TYPE, builder, payload, skip, veth};
use bypath_link::l2::{Header, MacAddr, Mode, Socket, TPID_SERVICE, TPID_VLAN, VlanTag};
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

/// Debian's Python: the one that its scapy package is for.
const PYTHON: &str = "/usr/bin/python3";

fn has_scapy(test: &str) -> bool {
    let there = Command::new(PYTHON).args(["-c", "import scapy.all"]).stderr(Stdio::null()).status();
    if there.is_ok_and(|s| s.success()) {
        return true;
    }
    skip(test, "scapy is not installed (Debian package python3-scapy)");
    false
}

/// A program that is killed if the test ends before it does.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn start(command: &mut Command) -> Running {
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    Running(child.expect("a program that starts"))
}

/// Reads frames of the interface `right` and prints them in hexadecimal, and what scapy makes of them.
const SCAPY_READS: &str = r"
import sys
from scapy.all import Ether, Dot1Q, Dot1AD, Raw, conf
s = conf.L2socket(iface='right')
print('ready', flush=True)
left = int(sys.argv[1])
while left:
    p = s.recv(65535)
    # The kernel speaks IPv6 from the same address.
    if p is None or p.src != sys.argv[2] or p.type == 0x86dd:
        continue
    tags = []
    q = p.payload
    while isinstance(q, (Dot1Q, Dot1AD)):
        tags.append('%d/%d/%d' % (q.vlan, q.prio, q.id if hasattr(q, 'id') else q.dei))
        kind = q.type
        q = q.payload
    if not tags:
        kind = p.type
    print(p.dst, '%04x' % kind, ','.join(tags) or '-', bytes(q).hex(), flush=True)
    left -= 1
";

fn tag(tpid: u16, vid: u16, pcp: u8, dei: bool) -> VlanTag {
    VlanTag { tpid, pcp, dei, vid }
}

/// Headers of every kind.
fn headers(to: MacAddr, from: MacAddr) -> Vec<Header> {
    let plain =
        Header { destination: to, source: from, vlan: None, inner_vlan: None, ethertype: TYPE, at: None };
    let outer = Some(tag(TPID_SERVICE, 200, 3, true));
    vec![
        plain,
        Header { ethertype: 0xaaaa, destination: MacAddr::BROADCAST, ..plain },
        Header { vlan: Some(tag(TPID_VLAN, 10, 7, false)), ..plain },
        Header { vlan: Some(tag(TPID_VLAN, 4094, 0, true)), ..plain },
        Header { vlan: outer, inner_vlan: Some(tag(TPID_VLAN, 10, 7, false)), ..plain },
    ]
}

isolated! {
    fn scapy_reads_what_we_write() {
        if !has_scapy("interop::scapy_reads_what_we_write") {
            return;
        }
        veth();
        for (what, mode) in MODES {
            let mut left = builder("left", mode).open().unwrap();
            let headers = headers(MacAddr([2, 0, 0, 0, 0, 9]), left.mac());
            let source = left.mac().to_string();
            let mut scapy = start(Command::new(PYTHON).args(["-c", SCAPY_READS, &headers.len().to_string(), &source]));
            let mut lines = BufReader::new(scapy.0.stdout.take().unwrap()).lines();
            assert_eq!(lines.next().unwrap().unwrap(), "ready");
            for (n, header) in headers.iter().enumerate() {
                let payload = payload(n as u32, 50 + 300 * n);
                left.send_with(header, &payload).unwrap();
                let tags: Vec<_> = [header.vlan, header.inner_vlan]
                    .into_iter()
                    .flatten()
                    .map(|t| format!("{}/{}/{}", t.vid, t.pcp, u8::from(t.dei)))
                    .collect();
                let tags = if tags.is_empty() { "-".to_owned() } else { tags.join(",") };
                let hex: String = payload.iter().map(|b| format!("{b:02x}")).collect();
                let expected = format!("{} {:04x} {tags} {hex}", header.destination, header.ethertype);
                assert_eq!(lines.next().unwrap().unwrap(), expected, "{what}");
            }
        }
    }
}

/// Sends frames that are given as lines: destination, EtherType, tags, payload.
const SCAPY_WRITES: &str = r"
import sys
from scapy.all import Ether, Dot1Q, Dot1AD, Raw, conf
s = conf.L2socket(iface='left')
for line in sys.stdin:
    dst, kind, tags, data = line.split()
    p = Ether(dst=dst, src='02:00:00:00:00:07', type=int(kind, 16))
    tags = [] if tags == '-' else [t.split('/') for t in tags.split(',')]
    if tags:
        p.type = 0x88a8 if len(tags) == 2 else 0x8100
    for at, (vlan, prio, dei) in enumerate(tags):
        last = at == len(tags) - 1
        p = p / Dot1Q(vlan=int(vlan), prio=int(prio), id=int(dei), type=int(kind, 16) if last else 0x8100)
    s.send(p / Raw(bytes.fromhex(data)))
";

isolated! {
    fn we_read_what_scapy_writes() {
        if !has_scapy("interop::we_read_what_scapy_writes") {
            return;
        }
        veth();
        for (what, mode) in MODES {
            let mut right = builder("right", mode).ethertype(0xaaaa).open().unwrap();
            let headers = headers(right.mac(), MacAddr([2, 0, 0, 0, 0, 7]));
            let mut scapy = start(Command::new(PYTHON).args(["-c", SCAPY_WRITES]));
            let mut stdin = scapy.0.stdin.take().unwrap();
            for (n, header) in headers.iter().enumerate() {
                let tags: Vec<_> = [header.vlan, header.inner_vlan]
                    .into_iter()
                    .flatten()
                    .map(|t| format!("{}/{}/{}", t.vid, t.pcp, u8::from(t.dei)))
                    .collect();
                let tags = if tags.is_empty() { "-".to_owned() } else { tags.join(",") };
                let hex: String = payload(n as u32, 50 + 300 * n).iter().map(|b| format!("{b:02x}")).collect();
                writeln!(stdin, "{} {:04x} {tags} {hex}", header.destination, header.ethertype).unwrap();
            }
            drop(stdin);
            for (n, header) in headers.iter().enumerate() {
                let mut buffer = [0; 1500];
                let got = right.receive(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e}"));
                assert_eq!((got.destination, got.source), (header.destination, header.source), "{what}");
                assert_eq!((got.vlan, got.inner_vlan), (header.vlan, header.inner_vlan), "{what}");
                assert_eq!(got.ethertype, header.ethertype, "{what}");
                assert!(buffer[..got.len] == payload(n as u32, 50 + 300 * n), "{what}");
            }
        }
    }
}

isolated! {
    fn tshark_sees_tag_priority_type_and_payload() {
        let there = Command::new("tshark").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if there.is_err() {
            return skip(
                "interop::tshark_sees_tag_priority_type_and_payload",
                "tshark is not installed (Debian package tshark)",
            );
        }
        veth();
        for (what, mode) in [("plain", Mode::PLAIN), ("mmsg", Mode::MMSG), ("ring", Mode::RING)] {
            let mut left: Socket = builder("left", mode).vlan(10, 7).open().unwrap();
            let to = MacAddr([2, 0, 0, 0, 0, 9]);
            // The kernel sends frames of its own from the same interface: group memberships of IPv6.
            let filter = format!("ether src {} and ether dst {to}", left.mac());
            let fields = ["eth.dst", "eth.src", "vlan.priority", "vlan.dei", "vlan.id", "vlan.etype", "data.data"];
            let mut command = Command::new("tshark");
            command.args(["-l", "-n", "-i", "right", "-f", &filter, "-c", "3", "-T", "fields"]);
            for field in fields {
                command.args(["-e", field]);
            }
            let mut tshark = start(&mut command);
            // Its first words come before it captures: the frame is repeated until it has seen enough.
            let body = payload(1, 64);
            let end = bypath_sys::clock::monotonic_ns() + LONG.as_nanos() as u64;
            while tshark.0.try_wait().unwrap().is_none() {
                assert!(bypath_sys::clock::monotonic_ns() < end, "{what}: tshark sees nothing");
                left.send(to, &body).unwrap();
                bypath_sys::poll::ppoll(&mut [], Some(10_000_000), 0).unwrap();
            }
            let (mut text, mut errors) = (String::new(), String::new());
            tshark.0.stdout.take().unwrap().read_to_string(&mut text).unwrap();
            tshark.0.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
            let hex: String = body.iter().map(|b| format!("{b:02x}")).collect();
            let expected = format!("{to}\t{}\t7\t0\t10\t0x88b5\t{hex}", left.mac());
            let lines: Vec<_> = text.lines().collect();
            assert!(lines.len() == 3, "{what}: {text}{errors}");
            for line in lines {
                assert_eq!(line.replace("False", "0"), expected, "{what}");
            }
        }
    }
}
