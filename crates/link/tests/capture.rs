//! Capture files, read by the programs that people read them with: tshark and capinfos; and files that those wrote, read
//! by ours.

use bypath_link::capture::Capture;
use bypath_link::pair::{End, pair};
use bypath_link::pcapng::reader::{Block, Frame};
use bypath_link::pcapng::{Direction, Reader};
use bypath_link::{Link, Statistics};
use bypath_wire::FrameMeta;
use bypath_wire::meta::VlanTag;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::process::Command;

const WHEN: u64 = 1_800_000_000_123_456_789;

/// Says that a test did not run, and why.
fn skip(name: &str, reason: &str) {
    println!("skipped: {name}: {reason}");
    if let Some(path) = std::env::var_os("BYPATH_TEST_SKIPS") {
        let mut file =
            std::fs::OpenOptions::new().append(true).create(true).open(path).expect("the list of skips");
        // One write of one line: tests append at the same time.
        file.write_all(format!("capture::{name}\t{reason}\n").as_bytes()).expect("the list of skips");
    }
}

/// Whether the program is there; if not the test is skipped.
fn there(test: &str, program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok();
    if !there {
        skip(test, &format!("{program} is not installed (Debian package tshark)"));
    }
    there
}

/// A file of this name in the tests' directory.
fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}.pcapng", std::process::id()))
}

/// What `program` prints for these arguments and the file.
fn output(program: &str, args: &[&str], file: &PathBuf) -> String {
    let output = Command::new(program).args(args).arg(file).output().expect("the program");
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("UTF-8")
}

fn put(link: &mut dyn Link, frames: &[(Vec<u8>, FrameMeta)]) {
    let mut rest = frames.iter();
    let sent = link.send(usize::MAX, &mut |slot| {
        let (frame, meta) = rest.next()?;
        slot[..frame.len()].copy_from_slice(frame);
        Some((frame.len(), *meta))
    });
    assert_eq!(sent, Ok(frames.len()));
}

/// An Ethernet header, and `len` octets of payload.
fn frame(to: [u8; 6], from: [u8; 6], ethertype: u16, len: usize) -> Vec<u8> {
    let payload = (0..len).map(|n| (n * 7) as u8).collect::<Vec<_>>();
    [&to[..], &from, &ethertype.to_be_bytes(), &payload].concat()
}

/// Writes a conversation: an untagged frame and a tagged one out, one in and a broadcast.
fn conversation(file: &PathBuf) -> Vec<Vec<u8>> {
    let (a, mut b): (End, End) = pair(1500, 100);
    let (mine, other) = (a.mac().0, b.mac().0);
    let mut now = WHEN;
    let clock = || {
        now += 1_000_000_007;
        now
    };
    let out = BufWriter::new(std::fs::File::create(file).expect("a file"));
    let mut capture = Capture::new(a, "pair0", out, usize::MAX, clock).expect("a capture");
    let vlan = Some(VlanTag { tpid: 0x8100, pcp: 7, dei: false, vid: 10 });
    let sent = [
        (frame(other, mine, 0x88b5, 46), FrameMeta::default()),
        (frame(other, mine, 0x88b5, 1500), FrameMeta { vlan, ..FrameMeta::default() }),
    ];
    put(&mut capture, &sent);
    let received = [
        (frame(mine, other, 0x88b6, 47), FrameMeta::default()),
        (frame([0xff; 6], other, 0x88b6, 1), FrameMeta::default()),
    ];
    put(&mut b, &received);
    assert_eq!(capture.receive(10, &mut |_, _| {}), Ok(2));
    assert_eq!(capture.statistics(), Statistics { dropped: 0, ..capture.inner().statistics() });
    let (_, out) = capture.finish().expect("a whole file");
    drop(out);
    let tagged = [&sent[1].0[..12], &[0x81, 0, 0xe0, 10], &sent[1].0[12..]].concat();
    vec![sent[0].0.clone(), tagged, received[0].0.clone(), received[1].0.clone()]
}

#[test]
fn tshark_reads_frames_times_tags_and_directions() {
    const NAME: &str = "tshark_reads_frames_times_tags_and_directions";
    if !there(NAME, "tshark") {
        return;
    }
    let file = path("tshark");
    let frames = conversation(&file);
    let fields = [
        "frame.time_epoch",
        "frame.interface_name",
        "frame.len",
        "frame.packet_flags_direction",
        "frame.packet_flags_reception_type",
        "eth.type",
        "vlan.id",
        "vlan.priority",
        "vlan.etype",
    ];
    let mut args = vec!["-n", "-T", "fields", "-E", "separator=,"];
    args.extend(fields.iter().flat_map(|f| ["-e", f]));
    args.push("-r");
    let lines = output("tshark", &args, &file);
    let lines: Vec<Vec<&str>> = lines.lines().map(|l| l.split(',').collect()).collect();
    let column = |n: usize| lines.iter().map(|l| l[n]).collect::<Vec<_>>();
    // The clock is read when the capture begins, when frames are sent, and when they are received.
    assert_eq!(
        column(0),
        ["1800000002.123456803", "1800000002.123456803", "1800000003.123456810", "1800000003.123456810"]
    );
    assert_eq!(column(1), ["pair0"; 4]);
    assert_eq!(column(2), frames.iter().map(|f| f.len().to_string()).collect::<Vec<_>>());
    let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).expect("a number");
    assert_eq!(column(3).into_iter().map(number).collect::<Vec<_>>(), [2, 2, 1, 1]);
    assert_eq!(column(4).into_iter().map(number).collect::<Vec<_>>(), [0, 0, 1, 3]);
    assert_eq!(column(5), ["0x88b5", "0x8100", "0x88b6", "0x88b6"]);
    let tag: Vec<_> = (6..9).map(column).collect();
    assert_eq!(tag, [["", "10", "", ""], ["", "7", "", ""], ["", "0x88b5", "", ""]]);
    // Every octet.
    let dump = output("tshark", &["-n", "-T", "jsonraw", "-J", "frame", "-r"], &file);
    for frame in &frames {
        let hex: String = frame.iter().map(|b| format!("{b:02x}")).collect();
        assert!(dump.contains(&hex), "{hex}");
    }
    std::fs::remove_file(&file).expect("a file");
}

#[test]
fn capinfos_counts_frames_and_reads_the_interface() {
    const NAME: &str = "capinfos_counts_frames_and_reads_the_interface";
    if !there(NAME, "capinfos") {
        return;
    }
    let file = path("capinfos");
    let frames = conversation(&file);
    let text = output("capinfos", &["-M"], &file);
    let value = |name: &str| {
        let line = text.lines().find(|l| l.trim_start().starts_with(name));
        line.unwrap_or_else(|| panic!("{name}: {text}"))
            .split_once(['=', ':'])
            .expect("a value")
            .1
            .trim()
            .to_owned()
    };
    assert!(value("File type").contains("pcapng"), "{text}");
    assert_eq!(value("File encapsulation"), "ether");
    assert!(value("File timestamp precision").contains("nanoseconds"), "{text}");
    assert_eq!(value("Number of packets"), "4");
    let octets: usize = frames.iter().map(Vec::len).sum();
    assert!(value("Data size").starts_with(&octets.to_string()), "{text}");
    assert_eq!(value("Name"), "pair0");
    assert_eq!(value("Number of stat entries"), "1");
    assert!(value("Capture application").starts_with("bypath "), "{text}");
    std::fs::remove_file(&file).expect("a file");
}

#[test]
fn what_wireshark_writes_is_read() {
    const NAME: &str = "what_wireshark_writes_is_read";
    if !there(NAME, "tshark") {
        return;
    }
    let (ours, theirs) = (path("ours"), path("theirs"));
    let frames = conversation(&ours);
    output("tshark", &["-F", "pcapng", "-w", theirs.to_str().expect("UTF-8"), "-r"], &ours);
    let read = |file: &PathBuf| -> Vec<Frame> {
        let blocks = Reader::new(std::fs::File::open(file).expect("the file")).all().expect("a capture file");
        assert!(matches!(blocks[0], Block::Section { .. }));
        blocks.into_iter().filter_map(|b| if let Block::Frame(f) = b { Some(f) } else { None }).collect()
    };
    let (ours_read, theirs_read) = (read(&ours), read(&theirs));
    assert_eq!(theirs_read.iter().map(|f| f.bytes.clone()).collect::<Vec<_>>(), frames);
    assert_eq!(theirs_read[3].direction, Direction::In);
    assert_eq!(ours_read, theirs_read);
    for file in [ours, theirs] {
        std::fs::remove_file(file).expect("a file");
    }
}
