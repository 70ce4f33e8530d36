//! `bypath dump` of datagrams between programs, as tshark reads it.

use crate::common::{TempDir, bypath, stdout};
use crate::dump::tshark;
use crate::lab::{LONG, Running, has, signal, until};
use crate::udp::{Post, shown};
use rustix::process::Signal;
use std::io::Read;
use std::process::Stdio;
use std::time::Instant;

/// Octets that a datagram of up to eight octets takes in a mailbox.
const SPAN: u64 = 40;

/// Datagrams that came to a process through shared memory.
fn by_ring(pid: u32) -> u64 {
    shown(pid)["datagrams"]["ring_rx"].as_u64().expect("a number")
}

/// Two that talk, of which both have got datagrams through shared memory.
fn awake() -> Post {
    awake_with(Post::new())
}

fn awake_with(mut post: Post) -> Post {
    let pids = [post.server.0.id(), post.caller.0.id()];
    until("datagrams go through shared memory both ways", || {
        post.talks(200);
        pids.iter().all(|pid| by_ring(*pid) > 0)
    });
    post
}

#[test]
fn tshark_reads_datagrams_of_both_ways_whole() {
    both_ways("letters::tshark_reads_datagrams_of_both_ways_whole", "127.0.0.1", ["ip.src", "ip.dst"]);
}

#[test]
fn tshark_reads_datagrams_of_ipv6() {
    both_ways("letters::tshark_reads_datagrams_of_ipv6", "::1", ["ipv6.src", "ipv6.dst"]);
}

fn both_ways(test: &str, address: &str, [source, destination]: [&str; 2]) {
    if !has(test, &["python3", "tshark", "taskset"]) {
        return;
    }
    let mut post = awake_with(Post::at(address, &[]));
    let server = post.server.0.id();
    let folder = TempDir::new();
    let file = folder.join("udp.pcapng");
    let mut child = bypath(["dump", "-w"]);
    child.arg(&file).args(["--pid", &server.to_string()]).stderr(Stdio::piped());
    let mut dump = Running(child.spawn().expect("bypath starts"));
    let length = || std::fs::metadata(&file).map_or(0, |m| m.len());
    until("the file is begun", || length() > 0);
    let empty = length();
    until("the mailboxes are followed", || {
        post.talks(50);
        length() > empty
    });
    let mut went = 0;
    until("enough of them go through shared memory", || {
        let before = by_ring(server);
        post.talks(500);
        went += by_ring(server) - before;
        went > 500
    });
    signal(dump.0.id(), Signal::INT);
    assert!(dump.0.wait().expect("a child").success());
    let mut said = String::new();
    dump.0.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    let missed = said.split(", ").nth(1).and_then(|s| s.split(' ').next()?.parse::<u64>().ok());
    let missed = missed.unwrap_or_else(|| panic!("{said}"));

    let fields = [source, "udp.srcport", destination, "udp.dstport", "udp.length", "udp.payload"];
    let rows = tshark(&file, &["-d", &format!("udp.port=={},data", post.port), "-Y", "udp"], &fields);
    let (mut asked, mut answered) = (0, 0);
    for row in &rows {
        let fields: Vec<_> = row.split('\t').collect();
        assert_eq!((fields[0], fields[2]), (address, address), "{row}");
        // "again", "yes"
        match (fields[3] == post.port, fields[1] == post.port) {
            (true, false) => {
                assert_eq!(fields[4..], ["13", "616761696e"], "{row}");
                asked += 1;
            }
            (false, true) => {
                assert_eq!(fields[4..], ["11", "796573"], "{row}");
                answered += 1;
            }
            _ => panic!("{row}"),
        }
    }
    assert!(asked + missed / SPAN >= went && answered > 0, "{asked} and {answered} of {went}: {said}");
    let wrong = "udp.checksum.status==0 || ip.checksum.status==0 || frame.time_delta < 0 || tcp";
    let checks = ["-o", "udp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE", "-Y", wrong];
    assert!(tshark(&file, &checks, &["frame.number"]).is_empty());
    let count = asked + answered;
    assert!(said.contains(&format!("0 segments and {count} datagrams, ")), "{count}: {said}");
}

/// Nanoseconds since 1970 of a text such as 1700000000.123456789.
fn nanoseconds(text: &str) -> u64 {
    let (seconds, rest) = text.split_once('.').unwrap_or_else(|| panic!("{text}"));
    let parts =
        [seconds, &format!("{rest:0<9}")].map(|n| n.parse::<u64>().unwrap_or_else(|_| panic!("{text}")));
    parts[0] * 1_000_000_000 + parts[1]
}

/// What a capture of so many questions has: when it says that each was sent, and when its sender says so, in their order.
fn times(server: &[&str]) -> Vec<[u64; 2]> {
    let mut post = awake_with(Post::at("127.0.0.1", server));
    let server = post.server.0.id();
    let folder = TempDir::new();
    let file = folder.join("times.pcapng");
    let mut child = bypath(["dump", "-w"]);
    child.arg(&file).args(["--pid", &server.to_string()]).stderr(Stdio::null());
    let mut dump = Running(child.spawn().expect("bypath starts"));
    let length = || std::fs::metadata(&file).map_or(0, |m| m.len());
    until("the file is begun", || length() > 0);
    until("enough of them go through shared memory, and are seen", || {
        let before = (by_ring(server), length());
        post.does("times 400");
        by_ring(server) > before.0 + 100 && length() > before.1
    });
    signal(dump.0.id(), Signal::INT);
    assert!(dump.0.wait().expect("a child").success());
    let filter = format!("udp.dstport=={}", post.port);
    let rows = tshark(
        &file,
        &["-d", &format!("udp.port=={},data", post.port), "-Y", &filter],
        &["frame.time_epoch", "udp.payload"],
    );
    let octets = |hex: &str| -> String {
        hex.as_bytes()
            .chunks(2)
            .map(|two| u8::from_str_radix(std::str::from_utf8(two).expect("text"), 16).expect("hex") as char)
            .collect()
    };
    let all = rows.iter().filter_map(|row| {
        let (time, payload) = row.split_once('\t').expect("two fields");
        Some([nanoseconds(time), octets(payload).parse().ok()?])
    });
    all.collect()
}

#[test]
fn a_datagram_has_the_time_of_its_send_where_the_receiver_asks_for_stamps() {
    const NAME: &str = "letters::a_datagram_has_the_time_of_its_send_where_the_receiver_asks_for_stamps";
    if !has(NAME, &["python3", "tshark", "taskset"]) {
        return;
    }
    let all = times(&["stamps"]);
    assert!(all.len() > 100, "{}", all.len());
    // Each was sent after its sender read its clock, and before it did so for the next one.
    for [now, next] in all.windows(2).map(|two| [two[0], two[1]]) {
        assert!(now[1] <= now[0] && now[0] <= next[1], "{now:?} {next:?}");
    }
}

#[test]
fn a_datagram_has_the_time_of_the_look_otherwise() {
    if !has("letters::a_datagram_has_the_time_of_the_look_otherwise", &["python3", "tshark", "taskset"]) {
        return;
    }
    let begun = bypath::clock::realtime_ns();
    let all = times(&[]);
    let ended = bypath::clock::realtime_ns();
    assert!(all.len() > 100, "{}", all.len());
    for [seen, sent] in &all {
        assert!(begun <= *sent && sent <= seen && *seen <= ended, "{seen} {sent}");
    }
    // None is seen before the one that was sent before it.
    assert!(all.is_sorted());
}

#[test]
fn filters_count_and_snap_are_those_of_segments() {
    if !has("letters::filters_count_and_snap_are_those_of_segments", &["python3", "tshark", "taskset"]) {
        return;
    }
    let mut post = awake();
    let folder = TempDir::new();
    let file = folder.join("cut.pcapng");
    let filter = format!("udp and src port {} and comm python3 and pid {}", post.port, post.caller.0.id());
    let mut child = bypath(["dump", "--count", "5", "--snap", "44", "-w"]);
    child.arg(&file).args(filter.split(' ')).stderr(Stdio::null());
    let mut dump = Running(child.spawn().expect("bypath starts"));
    let begun = Instant::now();
    while dump.0.try_wait().expect("a child").is_none() {
        post.talks(50);
        assert!(begun.elapsed() < LONG, "never five");
    }
    let rows = tshark(&file, &[], &["frame.len", "frame.cap_len", "udp.srcport"]);
    assert_eq!(rows, vec![format!("45\t44\t{}", post.port); 5]);

    // As lines; a filter of streams has none of them.
    let run = |filter: &[&str]| {
        let mut child = bypath(["dump", "--count", "3", "--seconds", "20"]);
        Running(
            child.args(filter).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().expect("bypath starts"),
        )
    };
    let mut lines = run(&["dst", "port", &post.port]);
    while lines.0.try_wait().expect("a child").is_none() {
        post.talks(50);
        assert!(begun.elapsed() < LONG, "never three");
    }
    let mut text = String::new();
    lines.0.stdout.take().expect("a pipe").read_to_string(&mut text).expect("text");
    let one = format!(" > 127.0.0.1:{}: UDP 5  again", post.port);
    assert_eq!(text.lines().filter(|line| line.ends_with(&one)).count(), 3, "{text}");
    let mut none = bypath(["dump", "--seconds", "0.5", "tcp", "and", "port", &post.port]);
    let none = none.stdout(Stdio::piped()).spawn().expect("bypath starts");
    post.talks(500);
    assert_eq!(stdout(&none.wait_with_output().expect("it ends")), "");
}
