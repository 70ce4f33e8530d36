//! `bypath dump`, as tshark reads it: whole exchanges in order, right addresses, gaps that are told.

use crate::common::{TempDir, bypath, stderr, stdout};
use crate::lab::{LONG, Running, Talk, has};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Fields of all packets that tshark shows, a line each.
pub fn tshark(file: &Path, arguments: &[&str], fields: &[&str]) -> Vec<String> {
    let mut command = Command::new("tshark");
    // Names of hosts are nobody's business; the user's own settings neither.
    command.args(["-n", "-r"]).arg(file).args(arguments).args(["-T", "fields"]);
    for field in fields {
        command.args(["-e", field]);
    }
    let output = command.env("HOME", "/nonexistent").output().expect("tshark starts");
    assert!(output.status.success(), "{}", stderr(&output));
    stdout(&output).lines().map(str::to_owned).collect()
}

/// Follows a process while `body` runs, then ends it as by Ctrl-C; what it said.
fn dump(file: &Path, pid: u32, talk: &mut Talk, body: impl FnOnce(&mut Talk)) -> String {
    let child = bypath(["dump", "-w"])
        .arg(file)
        .args(["--pid", &pid.to_string()])
        .stderr(Stdio::piped())
        .spawn()
        .expect("bypath starts");
    let mut child = Running(child);
    // It is there once it has found one exchange of ours, both ways of which go through rings: its file grows.
    let begun = Instant::now();
    let length = || std::fs::metadata(file).map_or(0, |m| m.len());
    let mut empty = 0;
    while length() <= empty || empty == 0 || !goes_by_rings(pid) {
        empty = if empty == 0 { length() } else { empty };
        talk.does("resp 1");
        assert!(begun.elapsed() < LONG, "nothing was written");
        assert!(child.0.try_wait().expect("a child").is_none());
    }
    body(talk);
    let pid = Pid::from_raw(child.0.id().cast_signed()).expect("a number");
    kill_process(pid, Signal::INT).expect("a child");
    assert!(child.0.wait().expect("a child").success());
    let mut said = String::new();
    let mut from = BufReader::new(child.0.stderr.take().expect("a pipe"));
    while from.read_line(&mut said).is_ok_and(|n| n > 0) {}
    said
}

/// Bytes that came to a process through rings.
fn received(pid: u32) -> u64 {
    bytes(pid, "ring_rx")
}

/// Whether a process has sent and received through rings.
fn goes_by_rings(pid: u32) -> bool {
    bytes(pid, "ring_rx") > 0 && bytes(pid, "ring_tx") > 0
}

fn bytes(pid: u32, which: &str) -> u64 {
    let output = bypath(["ss", "--json", "--pid", &pid.to_string()]).output().expect("bypath starts");
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
    list[0]["bytes"][which].as_u64().expect("a number")
}

#[test]
fn tshark_reads_requests_and_answers() {
    requests_and_answers("dump::tshark_reads_requests_and_answers", "127.0.0.1", "ip");
}

#[test]
fn tshark_reads_requests_and_answers_of_ipv6() {
    requests_and_answers("dump::tshark_reads_requests_and_answers_of_ipv6", "::1", "ipv6");
}

/// `protocol`: of the addresses, as tshark calls it.
fn requests_and_answers(test: &str, address: &str, protocol: &str) {
    if !has(test, &["python3", "tshark"]) {
        return;
    }
    let mut talk = Talk::at(address);
    let folder = TempDir::new();
    let file = folder.join("http.pcapng");
    let server = talk.server_pid();
    let said = dump(&file, server, &mut talk, |talk| talk.does("http 40 3000"));
    let port = talk.port.to_string();
    assert!(said.contains(" 0 octets missed"), "{said}");

    let as_http = format!("tcp.port=={port},http");
    // What came between two looks stands in one packet, and tshark lists its messages with commas.
    let all = |filter: &str, field: &str| -> Vec<String> {
        let rows = tshark(&file, &["-d", &as_http, "-Y", filter], &[field]);
        rows.iter().flat_map(|row| row.split(',').map(str::to_owned)).collect()
    };
    assert_eq!(all("http.response", "http.response.code"), vec!["200"; 40]);
    assert_eq!(all("http.request", "http.request.uri"), vec!["/3000"; 40]);
    let elsewhere = format!("!(tcp.port=={port} && {protocol}.src=={address} && {protocol}.dst=={address})");
    assert!(tshark(&file, &["-Y", &elsewhere], &["frame.number"]).is_empty());
    let as_resp = format!("tcp.port=={port},resp");
    assert!(!tshark(&file, &["-d", &as_resp, "-Y", "resp.string==\"PONG\""], &["frame.number"]).is_empty());
    // Checksums, numbers that follow each other, times that do not go back, answers behind requests.
    let checks = ["-o", "tcp.check_checksum:TRUE", "-o", "ip.check_checksum:TRUE"];
    let wrong = "tcp.checksum.status==0 || ip.checksum.status==0 || tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment \
        || tcp.analysis.retransmission || tcp.analysis.out_of_order || frame.time_delta < 0";
    let wrong =
        tshark(&file, &[&checks[..], &["-Y", wrong]].concat(), &["frame.number", "tcp.seq", "_ws.expert"]);
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn tshark_counts_every_request_and_answer_of_resp() {
    if !has("dump::tshark_counts_every_request_and_answer_of_resp", &["python3", "tshark"]) {
        return;
    }
    const COUNT: usize = 60;
    let mut talk = Talk::new();
    let folder = TempDir::new();
    let file = folder.join("resp.pcapng");
    let server = talk.server_pid();
    let said = dump(&file, server, &mut talk, |talk| talk.does(&format!("echo {COUNT}")));
    assert!(said.contains(" 0 octets missed"), "{said}");
    let port = talk.port.to_string();
    let as_resp = format!("tcp.port=={port},resp");
    // What came between two looks stands in one packet, and tshark lists its messages with commas.
    let all = |filter: &str, field: &str| -> Vec<String> {
        let rows = tshark(&file, &["-d", &as_resp, "-Y", filter], &[field]);
        rows.iter().flat_map(|row| row.split(',').map(str::to_owned)).collect()
    };
    let hex = |text: &str| text.bytes().map(|b| format!("{b:02x}")).collect::<String>();
    let number = |n: usize| hex(&format!("{n:06}"));
    let requests: Vec<_> = (0..COUNT).flat_map(|n| [hex("ECHO"), number(n)]).collect();
    // Those before were requests without numbers.
    let asked = all(&format!("resp && tcp.dstport=={port}"), "resp.bulk_string.value");
    let pings = asked.iter().take_while(|word| **word == hex("PING")).count();
    assert_eq!(asked[pings..], requests);
    let answers: Vec<_> = (0..COUNT).map(number).collect();
    assert_eq!(
        all(&format!("resp.bulk_string.value && tcp.srcport=={port}"), "resp.bulk_string.value"),
        answers
    );
    // The first one's question may have come before the look.
    let pongs = all("resp.string", "resp.string");
    assert!(
        pongs.iter().all(|word| word == "PONG") && (pings..=pings + 1).contains(&pongs.len()),
        "{pongs:?}"
    );
}

#[test]
fn what_was_overwritten_is_a_gap_of_known_size() {
    if !has("dump::what_was_overwritten_is_a_gap_of_known_size", &["python3", "tshark"]) {
        return;
    }
    let mut talk = Talk::new();
    let folder = TempDir::new();
    let file = folder.join("gap.pcapng");
    let caller = talk.caller_pid();
    // More than any ring holds at once, over and over: an observer who is stopped cannot have it all.
    let mut went = 0;
    let said = dump(&file, caller, &mut talk, |talk| {
        let before = received(caller);
        talk.does("http 2 50000000");
        went = received(caller) - before;
    });
    let missed: u64 =
        said.split(", ").nth(1).and_then(|s| s.split(' ').next()?.parse().ok()).expect("a count");
    let port = talk.port.to_string();
    let filter = format!("tcp.srcport=={port}");
    let rows = tshark(
        &file,
        &["-o", "tcp.relative_sequence_numbers:FALSE", "-Y", &filter],
        &["tcp.seq_raw", "tcp.len"],
    );
    let numbers = |row: &String| {
        let mut fields = row.split('\t').map(|f| f.parse::<u64>().expect("a number"));
        (fields.next().expect("a field"), fields.next().expect("a field"))
    };
    let seen: Vec<(u64, u64)> = rows.iter().map(numbers).collect();
    // What is there and what is missing are the stream.
    let gaps: u64 = seen.windows(2).map(|w| w[1].0 - (w[0].0 + w[0].1)).sum();
    assert_eq!(gaps, missed, "{said}");
    let whole = seen.last().map(|l| l.0 + l.1).expect("a segment") - seen[0].0;
    assert!(whole >= went && went > 1_000_000, "{whole} of {went}");
    // Bodies are all x: a byte of another time would be, too, but none of memory that was given back.
    let payload = tshark(
        &file,
        &["-Y", &format!("{filter} && tcp.len > 4096 && tcp.payload contains 00")],
        &["frame.number"],
    );
    assert!(payload.is_empty(), "{payload:?}");
}

#[test]
fn lines_are_printed_without_a_file() {
    if !has("dump::lines_are_printed_without_a_file", &["python3"]) {
        return;
    }
    let mut talk = Talk::new();
    let child = bypath(["dump", "--port", &talk.port.to_string(), "--count", "6"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bypath starts");
    let mut child = Running(child);
    let begun = Instant::now();
    while child.0.try_wait().expect("a child").is_none() {
        talk.does("resp 1");
        assert!(begun.elapsed() < LONG);
    }
    let text: Vec<_> =
        BufReader::new(child.0.stdout.take().expect("a pipe")).lines().map_while(Result::ok).collect();
    assert_eq!(text.len(), 6, "{text:?}");
    assert!(
        text.iter().any(|l| l.contains("*1..$4..PING..")) && text.iter().any(|l| l.contains("+PONG..")),
        "{text:?}"
    );
    let server = format!("127.0.0.1:{}", talk.port);
    assert!(text.iter().all(|l| l.contains(&server)), "{text:?}");
}

/// The same two sockets get rings anew when one end becomes another program image: the stream goes on, in other memory.
#[test]
fn rings_that_the_same_sockets_get_anew_are_followed_from_their_first_byte() {
    if !has(
        "dump::rings_that_the_same_sockets_get_anew_are_followed_from_their_first_byte",
        &["python3", "tshark"],
    ) {
        return;
    }
    let mut talk = Talk::new();
    let folder = TempDir::new();
    let file = folder.join("again.pcapng");
    let caller = talk.caller_pid();
    let said = dump(&file, caller, &mut talk, |talk| {
        talk.does("resp 200");
        talk.does("exec 0");
        let begun = Instant::now();
        while !goes_by_rings(caller) {
            // Who was taken back once comes up again after 64 KiB.
            talk.does("http 1 20000");
            assert!(begun.elapsed() < LONG, "never on rings again");
        }
        talk.does("http 7 2000");
    });
    let port = talk.port.to_string();
    assert!(said.contains(" 0 octets missed"), "{said}");
    let as_http = format!("tcp.port=={port},http");
    let count = |field: &str, value: &str| {
        let rows = tshark(&file, &["-d", &as_http, "-Y", field], &[field]);
        rows.iter().flat_map(|row| row.split(',')).filter(|v| *v == value).count()
    };
    assert_eq!((count("http.request.uri", "/2000"), count("http.content_length_header", "2000")), (7, 7));
    let wrong = "tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment || tcp.analysis.retransmission || tcp.analysis.out_of_order";
    let wrong = tshark(&file, &["-Y", wrong], &["frame.number", "tcp.seq", "_ws.expert"]);
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_filter_lets_one_direction_through_and_not_the_other() {
    if !has("dump::a_filter_lets_one_direction_through_and_not_the_other", &["python3"]) {
        return;
    }
    let mut talk = Talk::new();
    let filter = format!("src port {} and comm python3 and not (pid 1 or host ::1)", talk.port);
    let child = bypath(["dump", "--count", "4"])
        .args(filter.split(' '))
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("bypath starts");
    let mut child = Running(child);
    let begun = Instant::now();
    while child.0.try_wait().expect("a child").is_none() {
        talk.does("resp 1");
        assert!(begun.elapsed() < LONG);
    }
    let text: Vec<_> =
        BufReader::new(child.0.stdout.take().expect("a pipe")).lines().map_while(Result::ok).collect();
    let from_server = format!(" 127.0.0.1:{} > 127.0.0.1:", talk.port);
    assert!(
        text.len() == 4 && text.iter().all(|l| l.contains(&from_server) && l.contains("+PONG")),
        "{text:?}"
    );
    for (command, bad, part) in [
        ("dump", "port 80 or pid 1 and tcp", "parentheses"),
        ("ss", "prot 80", "'port'"),
        ("top", "host example.org", "not looked up"),
    ] {
        let output = bypath([command]).args(bad.split(' ')).output().expect("bypath starts");
        assert_eq!((output.status.code(), stderr(&output).contains(part)), (Some(2), true), "{output:?}");
    }
    // The same words, of connections.
    let count = |command: &[&str], filter: &str| {
        let output = bypath(command).arg("--json").args(filter.split(' ')).output().expect("bypath starts");
        let list: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON");
        list.as_array().expect("a list").len()
    };
    for (filter, expected) in [
        (format!("port {} and path ring", talk.port), 2),
        (format!("sport = :{}", talk.port), 1),
        (format!("port {} and pid {}", talk.port, talk.caller_pid()), 1),
        (format!("port {} and not comm python3", talk.port), 0),
        (format!("port {} and udp", talk.port), 0),
    ] {
        assert_eq!(count(&["ss"], &filter), expected, "{filter}");
        assert_eq!(count(&["top", "--once", "-d", "0.1"], &filter), expected, "{filter}");
    }
}

#[test]
fn a_process_that_is_not_there_is_told() {
    let output = bypath(["dump", "--pid", "4294967"]).output().expect("bypath starts");
    assert_eq!((output.status.code(), stderr(&output).contains("no process")), (Some(1), true));
    // One that can never have rings is not waited for.
    let mut plain = Running(Command::new("sleep").arg("60").spawn().expect("sleep starts"));
    let pid = plain.0.id().to_string();
    let output = bypath(["dump", "--pid", &pid]).output().expect("bypath starts");
    let said = stderr(&output);
    let words = format!(
        "nothing of process {pid} (sleep) goes through rings, as it is not under Bypath: the library is not loaded"
    );
    assert_eq!((output.status.code(), said.contains(&words)), (Some(1), true), "{said}");
    plain.0.kill().expect("a child");
}

/// Waits for a child's end, and what it said.
fn ended(child: &mut Running) -> (Option<i32>, String) {
    let begun = Instant::now();
    let status = loop {
        match child.0.try_wait().expect("a child") {
            Some(status) => break status,
            None => thread::sleep(Duration::from_millis(5)),
        }
        assert!(begun.elapsed() < LONG, "it does not end");
    };
    let mut said = String::new();
    child.0.stderr.take().expect("a pipe").read_to_string(&mut said).expect("text");
    (status.code(), said)
}

#[test]
fn a_fifo_is_waited_for_no_longer_than_it_is_asked_to() {
    let place = TempDir::new();
    let fifo = place.join("fifo");
    rustix::fs::mkfifoat(rustix::fs::CWD, &fifo, 0o600.into()).expect("a FIFO");
    let start = |seconds: &str| {
        let child = bypath(["dump", "--seconds", seconds, "-w"]).arg(&fifo).stderr(Stdio::piped()).spawn();
        Running(child.expect("bypath starts"))
    };
    // Nobody reads it.
    let words = "nobody reads this FIFO";
    let (status, said) = ended(&mut start("0.2"));
    assert_eq!((status, said.contains(words)), (Some(1), true), "{said}");
    for signal in [Signal::INT, Signal::TERM] {
        let mut child = start("1000");
        takes_signals(&child);
        tell(&child, signal);
        let (status, said) = ended(&mut child);
        assert_eq!((status, said.contains(words)), (Some(1), true), "{said}");
    }
    // Somebody does, who comes later.
    let mut child = start("1000");
    takes_signals(&child);
    let (mut file, mut magic) = (File::open(&fifo).expect("a FIFO"), [0; 4]);
    file.read_exact(&mut magic).expect("a capture");
    assert_eq!(magic, [0x0a, 0x0d, 0x0d, 0x0a]);
    tell(&child, Signal::INT);
    file.read_to_end(&mut Vec::new()).expect("the rest");
    assert_eq!(ended(&mut child).0, Some(0));
}

/// Waits until a command takes signals: the thread that says so is the last thing that it prepares for them.
fn takes_signals(child: &Running) {
    let begun = Instant::now();
    let threads = || std::fs::read_dir(format!("/proc/{}/task", child.0.id())).expect("a child").count();
    while threads() < 2 {
        assert!(begun.elapsed() < LONG, "it takes no signals");
        thread::yield_now();
    }
}

fn tell(child: &Running, signal: Signal) {
    kill_process(Pid::from_raw(child.0.id().cast_signed()).expect("a number"), signal).expect("a child");
}

#[test]
fn seconds_may_be_parts_of_one_and_options_stand_before_the_filter() {
    let begun = Instant::now();
    let output = bypath(["dump", "--seconds", "0.2", "port", "1"]).output().expect("bypath starts");
    assert!(output.status.success() && begun.elapsed().as_millis() >= 200, "{output:?}");
    for wrong in ["0", "-1", "x", "1e300"] {
        let output = bypath(["dump", &format!("--seconds={wrong}")]).output().expect("bypath starts");
        assert_eq!(
            (output.status.code(), stderr(&output).contains("such as 10 or 0.5")),
            (Some(2), true),
            "{output:?}"
        );
    }
    let output = bypath(["ss", "port", "80", "--json"]).output().expect("bypath starts");
    let words = "'--json' is an option, and these stand before the filter: --json port 80";
    assert_eq!((output.status.code(), stderr(&output).contains(words)), (Some(2), true), "{output:?}");
}
