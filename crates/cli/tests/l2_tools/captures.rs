//! `bypath l2 recv -w`: scapy writes frames, and tshark, scapy and our own reader find them in the file as they were.

use crate::common::TempDir;
use crate::network::{LONG, Tool, socket, tool, veth};
use crate::outsiders::{PYTHON, has_scapy, has_tshark, lines};
use bypath::l2::MacAddr;
use bypath::link::pcapng::Reader;
use bypath::link::pcapng::reader::Block;
use bypath_sys::{clock, poll};
use std::cell::Cell;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Instant;

/// Sends frames of every kind from `left`, as scapy makes them, and prints each in hexadecimal, without padding.
const SCAPY_WRITES: &str = r"
import sys
from scapy.all import Ether, Dot1Q, Dot1AD, Raw, conf
s = conf.L2socket(iface='left')
to, me = sys.argv[1], '02:00:00:00:00:07'
def e(kind, dst=to):
    return Ether(dst=dst, src=me, type=kind)
body = bytes(range(256)) * 5
for p in [
    e(0x88b5) / Raw(body[:100]),
    e(0x8100) / Dot1Q(vlan=10, prio=7, id=0, type=0x88b5) / Raw(body[:64]),
    e(0x8100) / Dot1Q(vlan=10, prio=7, id=1, type=0x88b5) / Raw(body[:65]),
    e(0x8100) / Dot1Q(vlan=0, prio=5, id=0, type=0x88b5) / Raw(body[:66]),
    e(0x8100) / Dot1Q(vlan=4095, prio=0, id=1, type=0x88b5) / Raw(body[:67]),
    e(0x88a8) / Dot1AD(vlan=200, prio=3, id=1, type=0x8100) / Dot1Q(vlan=11, prio=2, id=0, type=0xaaaa) / Raw(body[:68]),
    e(0x88a8) / Dot1Q(vlan=1, prio=1, type=0x8100) / Dot1Q(vlan=2, prio=2, type=0x8100) / Dot1Q(vlan=3, prio=3, type=0x88b5) / Raw(body[:69]),
    e(0x88b5, 'ff:ff:ff:ff:ff:ff') / Raw(body[:70]),
    e(0x88b5, '03:00:00:00:00:01') / Raw(body[:71]),
    e(0x88b5, '02:00:00:00:00:09') / Raw(body[:72]),
    e(0x88b5) / Raw((body * 2)[:1500]),
]:
    s.send(p)
    print(bytes(p).hex(), flush=True)
";

/// Prints every frame of a file in hexadecimal, and its time in ns.
const SCAPY_READS: &str = r"
import sys
from scapy.all import RawPcapNgReader
for data, meta in RawPcapNgReader(sys.argv[1]):
    print(data.hex(), ((meta.tshigh << 32) + meta.tslow) * 10**9 // meta.tsresol, flush=True)
";

const FIELDS: [&str; 12] = [
    "eth.dst",
    "eth.src",
    "eth.type",
    "vlan.priority",
    "vlan.dei",
    "vlan.id",
    "vlan.etype",
    "ieee8021ad.id",
    "ieee8021ad.priority",
    "ieee8021ad.dei",
    "frame.len",
    "data.data",
];

/// What tshark reads of the frames of scapy in a file.
fn tshark(file: &Path, fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    command
        .args(["-n", "-Y", "eth.src == 02:00:00:00:00:07 && !(eth.type == 0x9999)", "-T", "fields", "-r"])
        .arg(file);
    for field in fields {
        command.args(["-e", field]);
    }
    lines(&mut command)
}

/// A tshark that captures on `right` into a file, and what it printed of it, a line per frame.
struct Tshark(std::process::Child, mpsc::Receiver<String>);

impl Tshark {
    /// Begins; returns when it captures.
    fn capture(file: &Path) -> Tshark {
        let mut command = Command::new("tshark");
        command.args(["-l", "-n", "-i", "right", "-f", "ether src 02:00:00:00:00:07", "-P", "-w"]).arg(file);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("tshark");
        let (sender, seen) = mpsc::channel();
        let stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        std::thread::spawn(move || stdout.lines().map_while(Result::ok).try_for_each(|l| sender.send(l)));
        let tshark = Tshark(child, seen);
        let mut left = bypath::l2::Socket::builder("left").ethertype(0x9999).send_only().open().unwrap();
        let header =
            bypath::l2::Header { source: MacAddr([2, 0, 0, 0, 0, 7]), ..left.header(MacAddr::BROADCAST) };
        // It says that it captures before it does: frames until it has seen one.
        let end = Instant::now() + LONG;
        while tshark.1.try_recv().is_err() {
            assert!(Instant::now() < end, "tshark sees nothing");
            left.send_with(&header, b"are you there").unwrap();
            poll::ppoll(&mut [], Some(10_000_000), 0).unwrap();
        }
        tshark
    }

    /// Waits until it has captured so many frames of scapy's, and ends it.
    fn end(self, frames: usize) {
        let end = Instant::now() + 2 * LONG;
        let mut seen = 0;
        while seen < frames {
            let line = self.1.recv_timeout(end.saturating_duration_since(Instant::now()));
            seen += usize::from(!line.expect("tshark captures everything").contains("0x9999"));
        }
    }
}

impl Drop for Tshark {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        // Its child that captures ends with it.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::INT);
        let _ = self.0.wait();
    }
}

fn write_with_scapy(to: MacAddr) -> Vec<String> {
    lines(Command::new(PYTHON).args(["-c", SCAPY_WRITES, &to.to_string()]))
}

isolated! {
    fn what_scapy_writes_is_in_the_file_as_it_was() {
        let test = "captures::what_scapy_writes_is_in_the_file_as_it_was";
        if !has_scapy(test, "all") {
            return;
        }
        let (_, right) = veth();
        let directory = TempDir::new();
        let file = directory.join("ours.pcapng");
        let path = file.to_str().unwrap();
        let recv = ["l2", "recv", "right", "--ethertype=any", "--promiscuous", "--from=02:00:00:00:00:07", "--count=11",
            "--timeout=2min", "--comment=seen by us", "-w", path];
        let before = clock::realtime_ns();
        let recv = Tool::start(&recv).says("receiving on right");
        // A second one, of the same frames.
        let other = ["l2", "recv", "right", "--ethertype=any", "--promiscuous", "--from=02:00:00:00:00:07", "--count=11",
            "--timeout=2min", "--json"];
        let other = Tool::start(&other).says("receiving on right");
        let sent = write_with_scapy(right);
        assert_eq!(sent.len(), 11);
        let ended = recv.end().expect(0);
        assert!(ended.stdout.is_empty() && ended.stderr.contains("11 frames"), "{}{}", ended.text(), ended.stderr);
        let after = clock::realtime_ns();
        // scapy reads what it wrote, at its time to the nanosecond.
        let read = lines(Command::new(PYTHON).args(["-c", SCAPY_READS, path]));
        let mut odd = 0;
        for (line, sent) in read.iter().zip(&sent) {
            let (octets, ns) = line.split_once(' ').unwrap();
            assert_eq!(octets, sent);
            let ns: u64 = ns.parse().unwrap();
            assert!((before..=after).contains(&ns), "{before} {ns} {after}");
            odd += u32::from(!ns.is_multiple_of(1000));
        }
        assert!(read.len() == 11 && odd > 0, "{read:?}");
        // Our own reader: interface, direction, remark, counts.
        let blocks = Reader::new(std::fs::File::open(&file).unwrap()).all().unwrap();
        let kinds = blocks.iter().filter(|b| matches!(b, Block::Frame(f) if f.interface == 0)).count();
        assert!(kinds == 11 && matches!(blocks.last(), Some(Block::Statistics { .. })), "{blocks:?}");
        let octets = std::fs::read(&file).unwrap();
        let holds = |text: &[u8]| octets.windows(text.len()).any(|w| w == text);
        assert!(holds(b"seen by us") && holds(b"right"));
        // The one that prints has seen the same tags.
        let mut seen = Vec::new();
        for line in other.end().expect(0).text().lines() {
            let frame: serde_json::Value = serde_json::from_str(line).unwrap();
            let tags = frame["tags"].as_array().unwrap();
            seen.push(tags.iter().map(|t| format!("{}/{}/{}", t["vlan"], t["priority"], t["drop_eligible"])).collect::<Vec<_>>().join(","));
        }
        let expected = ["", "10/7/false", "10/7/true", "0/5/false", "4095/0/true", "200/3/true,11/2/false", "1/1/false,2/2/false,3/3/false",
            "", "", "", ""];
        assert_eq!(seen, expected);
    }
}

isolated! {
    fn tshark_reads_in_our_file_what_it_captured_itself() {
        let test = "captures::tshark_reads_in_our_file_what_it_captured_itself";
        if !has_scapy(test, "all") || !has_tshark(test) {
            return;
        }
        let (_, right) = veth();
        let directory = TempDir::new();
        let (ours, theirs) = (directory.join("ours.pcapng"), directory.join("theirs.pcapng"));
        let tshark_runs = Tshark::capture(&theirs);
        let recv = ["l2", "recv", "right", "--ethertype=any", "--promiscuous", "--from=02:00:00:00:00:07", "--count=11",
            "--timeout=2min", "--comment=a remark", "-w", ours.to_str().unwrap()];
        let recv = Tool::start(&recv).says("receiving on right");
        let sent = write_with_scapy(right);
        recv.end().expect(0);
        tshark_runs.end(sent.len());
        let (ours_read, theirs_read) = (tshark(&ours, &FIELDS), tshark(&theirs, &FIELDS));
        assert_eq!(ours_read, theirs_read);
        let tags = tshark(&ours, &["vlan.id", "vlan.priority", "vlan.dei"]).join("\n").replace("True", "1").replace("False", "0");
        for line in ["10\t7\t0", "10\t7\t1", "0\t5\t0", "4095\t0\t1"] {
            assert!(tags.lines().any(|l| l == line), "{line}: {tags}");
        }
        let names = tshark(&ours, &["frame.interface_name", "frame.time_epoch"]);
        assert!(names.iter().all(|l| l.starts_with("right\t")), "{names:?}");
    }
}

isolated! {
    fn standard_output_is_a_file_too_and_may_be_closed() {
        let test = "captures::standard_output_is_a_file_too_and_may_be_closed";
        let (left, right) = veth();
        let recv = Tool::start(&["l2", "recv", "right", "--count=2", "-w", "-"]).says("receiving");
        let dst = right.to_string();
        tool(&["l2", "send", "left", "--dst", &dst, "--vlan=10", "--priority=6", "--drop-eligible", "--count=2", "--payload=to a pipe"]).expect(0);
        let file = recv.end().expect(0).stdout;
        let frames: Vec<_> = Reader::new(&file[..]).all().unwrap().into_iter()
            .filter_map(|b| if let Block::Frame(f) = b { Some(f.bytes) } else { None }).collect();
        let header = [&right.0[..], &left.0, &[0x81, 0, 0xd0, 10, 0x88, 0xb5], b"to a pipe"].concat();
        assert!(frames.len() == 2 && frames.iter().all(|f| f.starts_with(&header)), "{frames:x?}");
        if has_tshark(test) {
            let mut command = Command::new("tshark");
            command.args(["-n", "-r", "-", "-T", "fields", "-e", "vlan.id", "-e", "vlan.priority", "-e", "vlan.dei"]);
            let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
            child.stdin.take().unwrap().write_all(&file).unwrap();
            let text = String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap();
            assert_eq!(text.replace("True", "1"), "10\t6\t1\n10\t6\t1\n");
        }
        // Nobody reads it any more.
        let mut command = crate::common::bypath(["l2", "recv", "right", "-w", "-"]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        said.read_line(&mut String::new()).unwrap();
        drop(child.stdout.take());
        let mut left = socket("left");
        let end = Instant::now() + LONG;
        let status = loop {
            left.send(right, b"x").unwrap();
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            assert!(Instant::now() < end, "it goes on");
            poll::ppoll(&mut [], Some(1_000_000), 0).unwrap();
        };
        assert!(status.success());
    }
}

isolated! {
    fn a_file_that_cannot_be_written_is_told() {
        veth();
        let ended = tool(&["l2", "recv", "right", "-w", "/nowhere/file"]).expect(1);
        assert!(ended.stderr.contains("cannot write /nowhere/file: No such file"), "{}", ended.stderr);
        let ended = tool(&["l2", "recv", "right", "-w", "/dev/full"]).expect(1);
        assert!(ended.stderr.contains("cannot write /dev/full: No space left"), "{}", ended.stderr);
        for wrong in [&["-w", "x", "--hex"][..], &["-w", "x", "--json"], &["--comment=x"]] {
            tool(&[&["l2", "recv", "right"], wrong].concat()).expect(2);
        }
    }
}

isolated! {
    fn the_first_frame_after_a_loss_says_how_many_were_lost() {
        let (_, right) = veth();
        let directory = TempDir::new();
        let file = directory.join("lossy.pcapng");
        let recv = Tool::start(&["l2", "recv", "right", "-w", file.to_str().unwrap()]).says("receiving on right");
        let mut left = socket("left");
        let next = Cell::new(0u32);
        // Returns the number of the next one.
        let mut send = |count: u32| {
            for _ in 0..count {
                left.send(right, &next.get().to_be_bytes()).unwrap();
                next.set(next.get() + 1);
            }
            next.get()
        };
        let numbers = || -> Vec<(u32, Option<u64>)> {
            // The last block may be half written while it runs.
            let mut reader = Reader::new(std::fs::File::open(&file).unwrap());
            let mut frames = Vec::new();
            while let Ok(Some(block)) = reader.next() {
                if let Block::Frame(f) = block {
                    frames.push((u32::from_be_bytes(f.bytes[14..18].try_into().unwrap()), f.lost));
                }
            }
            frames
        };
        // Stopped, flooded and woken, twice; then frames without a pause until one of them has come through.
        for _ in 0..2 {
            recv.signal(rustix::process::Signal::STOP);
            let flooded = send(20_000);
            recv.signal(rustix::process::Signal::CONT);
            let end = Instant::now() + LONG;
            while numbers().last().is_none_or(|&(last, _)| last < flooded) {
                assert!(Instant::now() < end, "nothing comes through");
                send(10);
            }
        }
        recv.signal(rustix::process::Signal::INT);
        let ended = recv.end().expect(3);
        let (mut expected, mut lost, mut gaps) = (0, 0, 0);
        for (number, told) in numbers() {
            let gap = u64::from(number - expected);
            assert_eq!(told.unwrap_or(0), gap, "before frame {number}, expected {expected}");
            (expected, lost, gaps) = (number + 1, lost + gap, gaps + u32::from(gap > 0));
        }
        assert!(gaps >= 2 && lost > 20_000, "{gaps} gaps, {lost} frames");
        // Those behind the last frame of the file stand in the counts only.
        assert!(ended.stderr.contains(&format!(", {} lost because", lost + u64::from(next.get() - expected))), "{}", ended.stderr);
    }
}
