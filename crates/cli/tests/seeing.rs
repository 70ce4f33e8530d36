//! `bypath ss`, `why` and `stats` on regions and files made here, good ones and bad ones.

mod common;

use bypath_shm::family::{self, VIEW_NAME, end_state, wpath};
use bypath_shm::reason::Reason;
use bypath_shm::stats::{RECORD_SIZE, STATS_MAGIC, StatsRecord};
use bypath_shm::view;
use common::{BYPATH, TempDir, bypath, stderr, stdout};
use rustix::fs::MemfdFlags;
use serde_json::{Value, json};
use std::ffi::CStr;
use std::fs::{self, File};
use std::mem::offset_of;
use std::net::TcpListener;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};

/// This process shows at most one set of regions at a time.
fn one_at_a_time() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn region(name: &CStr) -> File {
    let fd: OwnedFd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).expect("a memfd");
    fd.into()
}

fn put(file: &File, at: u64, bytes: &[u8]) {
    file.write_all_at(bytes, at).expect("a write");
}

fn start_time(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("stat");
    stat[stat.rfind(')').expect("a name") + 2..]
        .split(' ')
        .nth(19)
        .expect("a field")
        .parse()
        .expect("a number")
}

fn write_process(file: &File, slot: usize, pid: u32, start: u64) {
    let at = (offset_of!(family::Header, processes) + slot * size_of::<family::Process>()) as u64;
    put(file, at + offset_of!(family::Process, pid) as u64, &pid.to_ne_bytes());
    put(file, at + offset_of!(family::Process, ready) as u64, &1u32.to_ne_bytes());
    put(file, at + offset_of!(family::Process, start_time) as u64, &start.to_ne_bytes());
    put(file, at + offset_of!(family::Process, command) as u64, b"te\x1bst\0");
}

/// A region whose process table names this process (slot 0) and a dead one (slot 1).
fn view(ends: u32) -> File {
    let file = region(VIEW_NAME);
    let pid = std::process::id();
    write_process(&file, 0, pid, start_time(pid));
    write_process(&file, 1, pid, 1);
    put(&file, offset_of!(family::Header, ends_used) as u64, &ends.to_ne_bytes());
    put(&file, view::end_offset(ends as usize), &[0]);
    put(&file, offset_of!(family::Header, magic) as u64, b"BYPVIEW1");
    file
}

struct End {
    number: usize,
    fd: i32,
    holders: u64,
    cookies: (u64, u64),
    reasons: (Reason, Reason),
    ring_sent: u64,
    ring_received: u64,
}

fn write_end(file: &File, end: &End) {
    let base = view::end_offset(end.number);
    let set = |offset: usize, bytes: &[u8]| put(file, base + offset as u64, bytes);
    let (out, incoming) = end.reasons;
    let ring = out == Reason::Ring || incoming == Reason::Ring;
    let state = if ring { end_state::WARM } else { end_state::COLD };
    set(offset_of!(family::End, state), &state.to_ne_bytes());
    set(offset_of!(family::End, fd), &end.fd.to_ne_bytes());
    set(offset_of!(family::End, reason), &(out as u16).to_ne_bytes());
    set(offset_of!(family::End, rx_reason), &(incoming as u16).to_ne_bytes());
    set(offset_of!(family::End, holders), &end.holders.to_ne_bytes());
    set(offset_of!(family::End, r.leaving), &0u64.to_ne_bytes());
    set(offset_of!(family::End, cookie), &end.cookies.0.to_ne_bytes());
    set(offset_of!(family::End, peer_cookie), &end.cookies.1.to_ne_bytes());
    set(offset_of!(family::End, ring_size), &65536u32.to_ne_bytes());
    let path = if out == Reason::Ring { wpath::RING } else { wpath::KERNEL };
    set(offset_of!(family::End, w.path), &path.to_ne_bytes());
    set(offset_of!(family::End, w.ring_bytes), &end.ring_sent.to_ne_bytes());
    set(offset_of!(family::End, r.ring_bytes), &end.ring_received.to_ne_bytes());
    set(offset_of!(family::End, w.kernel_bytes), &5u64.to_ne_bytes());
    set(offset_of!(family::End, r.kernel_bytes), &5u64.to_ne_bytes());
    let address = offset_of!(family::End, local);
    set(address + offset_of!(family::Addr, family), &2u16.to_ne_bytes());
    set(address + offset_of!(family::Addr, port), &6379u16.to_ne_bytes());
    set(address + offset_of!(family::Addr, bytes), &[127, 0, 0, 1]);
}

/// Two ends of one connection, one plain connection, one of a dead process.
fn sample() -> File {
    let file = view(4);
    use Reason::{BelowThreshold, PeerPlain, RecalledRingFull, Ring};
    for end in [
        End {
            number: 0,
            fd: 50,
            holders: 1,
            cookies: (7, 8),
            reasons: (Ring, Ring),
            ring_sent: 3000,
            ring_received: 10,
        },
        End {
            number: 1,
            fd: 51,
            holders: 3,
            cookies: (8, 7),
            reasons: (RecalledRingFull, Ring),
            ring_sent: 10,
            ring_received: 2000,
        },
        End {
            number: 2,
            fd: 52,
            holders: 1,
            cookies: (9, 0),
            reasons: (PeerPlain, Reason::None),
            ring_sent: 0,
            ring_received: 0,
        },
        End {
            number: 3,
            fd: 53,
            holders: 2,
            cookies: (10, 0),
            reasons: (BelowThreshold, Reason::None),
            ring_sent: 0,
            ring_received: 0,
        },
    ] {
        write_end(&file, &end);
    }
    file
}

fn of_this_process(command: &str, more: &[&str]) -> Output {
    let pid = std::process::id().to_string();
    let args: &[&str] = if command == "ss" { &["ss", "--pid", &pid] } else { &[command, &pid] };
    bypath(args.iter().chain(more)).output().expect("bypath starts")
}

fn json_of(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"))
}

#[test]
fn ss_lists_connections_of_living_processes() {
    let _lock = one_at_a_time();
    let _region = sample();
    let output = of_this_process("ss", &["--json"]);
    assert!(output.status.success());
    let list = json_of(&output);
    let direction = |path: &str, reason: &str| json!({ "path": path, "reason": reason });
    assert_eq!(list.as_array().map(Vec::len), Some(3), "{list}");
    assert_eq!(
        list[0],
        json!({
            "pid": std::process::id(), "command": "te\u{1b}st", "fd": 50,
            "local": "127.0.0.1:6379", "remote": null,
            "path": "ring", "reason": "ring", "service": null,
            "tx": direction("ring", "ring"), "rx": direction("ring", "ring"),
            "bytes": { "ring_tx": 3000, "ring_rx": 10, "kernel_tx": 5, "kernel_rx": 5, "pair_tx": 0, "pair_rx": 0 },
            "ring_size": 65536, "ring_fill": { "tx": 1000, "rx": null }, "holders": 1
        })
    );
    assert_eq!(
        (&list[1]["path"], &list[1]["reason"]),
        (&json!("kernel/ring"), &json!("recalled-ring-full/ring"))
    );
    assert_eq!(list[1]["ring_fill"], json!({ "tx": null, "rx": 1000 }));
    assert_eq!((&list[2]["path"], &list[2]["reason"]), (&json!("kernel"), &json!("peer-plain")));
    assert_eq!(list[2]["ring_size"], Value::Null);

    let text = stdout(&of_this_process("ss", &[]));
    assert!(
        text.trim_start().starts_with("PID") && text.contains("te?st") && !text.contains('\u{1b}'),
        "{text}"
    );
    assert!(
        text.contains("peer-plain: the other end does not run under Bypath, or has not answered yet"),
        "{text}"
    );
    assert!(text.contains("2.9K"), "{text}");
    // A process that this one is not: nothing of ours.
    let output = bypath(["ss", "--pid", "1", "--json"]).output().expect("bypath starts");
    assert_eq!(stdout(&output), "[]\n");
}

#[test]
fn a_connection_stands_once_for_each_process_that_holds_it() {
    let _lock = one_at_a_time();
    let file = sample();
    // The child gets the region as its standard output; `cat` keeps it until its input ends.
    let mut child = Command::new("cat")
        .stdin(Stdio::piped())
        .stdout(file.try_clone().expect("a copy"))
        .spawn()
        .expect("cat starts");
    write_process(&file, 2, child.id(), start_time(child.id()));
    let end = End {
        number: 0,
        fd: 50,
        holders: 0b101,
        cookies: (7, 8),
        reasons: (Reason::Ring, Reason::Ring),
        ring_sent: 0,
        ring_received: 0,
    };
    write_end(&file, &end);
    let rows = || {
        let list = json_of(&bypath(["ss", "--json"]).output().expect("bypath starts"));
        let ours = [u64::from(std::process::id()), u64::from(child.id())];
        let mut rows: Vec<_> = list
            .as_array()
            .expect("a list")
            .iter()
            .filter(|c| c["fd"] == 50 && ours.contains(&c["pid"].as_u64().expect("a number")))
            .map(|c| (c["pid"].as_u64().expect("a number") == ours[1], c["holders"].as_u64()))
            .collect();
        rows.sort();
        rows
    };
    assert_eq!(rows(), [(false, Some(2)), (true, Some(2))]);
    // A process of that id, but a later one.
    write_process(&file, 2, child.id(), start_time(child.id()) + 1);
    assert_eq!(rows(), [(false, Some(1))]);
    drop(child.stdin.take());
    assert!(child.wait().expect("it ends").success());
}

#[test]
fn json_goes_to_a_file_if_one_is_named() {
    let _lock = one_at_a_time();
    let _region = sample();
    let dir = TempDir::new();
    let file = dir.join("out.json");
    let output = of_this_process("ss", &[&format!("--json={}", file.display())]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(0), 0));
    let list: Value = serde_json::from_slice(&fs::read(&file).expect("the file")).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(3));
    let output = of_this_process("ss", &["--json=/no/such/dir/x"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write /no/such/dir/x"));
}

#[test]
fn why_explains_each_connection_and_what_to_do() {
    let _lock = one_at_a_time();
    let _region = sample();
    let output = of_this_process("why", &[]);
    let text = stdout(&output);
    assert!(output.status.success(), "{}", stderr(&output));
    for part in [
        "3 connections, 2 through shared memory",
        "Descriptor 50: 127.0.0.1:6379 to an unknown address",
        "Both directions: shared memory.",
        "taken back because the ring stayed full (recalled-ring-full)",
        "Start the program at the other end with: bypath run",
        "1000 of 64.0K in the outgoing ring",
    ] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
    let one = bypath(["why", &format!("{}:52", std::process::id())]).output().expect("bypath starts");
    assert!(one.status.success() && stdout(&one).starts_with("Descriptor 52"), "{}", stdout(&one));

    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let subject = format!("{}:{}", std::process::id(), listener.as_raw_fd());
    let output = bypath(["why", &subject]).output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("TCP socket that Bypath does not follow"), "{}", stdout(&output));
}

#[test]
fn why_tells_why_a_process_is_not_under_bypath() {
    let _lock = one_at_a_time();
    let output = of_this_process("why", &[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("the library is not loaded. Start the program with: bypath run"));
    // The first kernel thread, where /proc shows the host's processes.
    if fs::read_to_string("/proc/2/comm").is_ok_and(|name| name.trim() == "kthreadd") {
        let output = bypath(["why", "2"]).output().expect("bypath starts");
        assert!(matches!(output.status.code(), Some(1 | 3)), "{output:?}");
    }
    let output = bypath(["why", "2147483647"]).output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(3));
    assert!(stderr(&output).contains("there is no process"));
    for bad in ["x", "0", "-1", "1:", "1:-2", ""] {
        let output = bypath(["why", bad]).output().expect("bypath starts");
        assert_eq!(output.status.code(), Some(2), "{bad}: {output:?}");
    }
}

#[test]
fn why_knows_a_program_without_sockets() {
    let _lock = one_at_a_time();
    let mut program = common::run(["--", "sh", "-c", "echo up; read line"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bypath starts");
    let mut line = [0; 3];
    std::io::Read::read_exact(program.stdout.as_mut().expect("a pipe"), &mut line).expect("it is up");
    let output = bypath(["why", &program.id().to_string()]).output().expect("bypath starts");
    assert!(stdout(&output).contains("(sh) is under Bypath and has opened no socket yet"), "{output:?}");
    assert!(output.status.success(), "{output:?}");
    drop(program.stdin.take());
    program.wait().expect("it ends");
}

#[test]
fn regions_with_other_content_are_noted_and_skipped() {
    let _lock = one_at_a_time();
    let make = |content: &[u8]| {
        let file = region(VIEW_NAME);
        put(&file, 0, content);
        file
    };
    let mut other_version = vec![0; 4096];
    other_version[..8].copy_from_slice(b"BYPVIEW2");
    for (content, note) in [
        (&b""[..], Some("shorter than its own header")),
        (&[0; 4096], None),
        (&[0xff; 8192], Some("not written by Bypath")),
        (&other_version, Some("another version of Bypath (format '2')")),
    ] {
        let _bad = make(content);
        let _good = sample();
        let output = of_this_process("ss", &["--json"]);
        let text = stderr(&output);
        assert!(output.status.success(), "{text}");
        assert_eq!(json_of(&output).as_array().map(Vec::len), Some(3), "the good region is read");
        match note {
            Some(note) => assert!(text.contains(note), "{text}"),
            None => assert!(!text.contains("its view cannot be read"), "{text}"),
        }
    }
}

#[test]
fn garbage_behind_a_good_header_is_shown_as_unknown() {
    let _lock = one_at_a_time();
    let file = view(3);
    put(&file, view::end_offset(0), &vec![0xff; 3 * view::END_SIZE]);
    write_end(
        &file,
        &End {
            number: 1,
            fd: -1,
            holders: u64::MAX,
            cookies: (1, 1),
            reasons: (Reason::Ring, Reason::Ring),
            ring_sent: u64::MAX,
            ring_received: 0,
        },
    );
    // The header promises more ends than the file has.
    put(&file, offset_of!(family::Header, ends_used) as u64, &u32::MAX.to_ne_bytes());
    put(&file, view::end_offset(1) + offset_of!(family::End, reason) as u64, &9999u16.to_ne_bytes());
    let output = of_this_process("ss", &["--json"]);
    let list = json_of(&output);
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    assert_eq!(list[0]["reason"], "unknown/ring");
    assert_eq!(list[0]["ring_fill"]["tx"], 65536);
    assert!(of_this_process("ss", &[]).status.success() && of_this_process("why", &[]).status.success());
}

#[test]
fn a_closed_pipe_is_no_error() {
    let _lock = one_at_a_time();
    let _region = sample();
    let pid = std::process::id().to_string();
    for args in [
        vec!["ss", "--pid", &pid],
        vec!["ss", "--json"],
        vec!["why", &pid],
        vec!["completions", "bash"],
        vec!["man"],
        vec!["run", "--help"],
    ] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let output = bypath(&args).stdout(writer).output().expect("bypath starts");
        let text = stderr(&output);
        assert!(output.status.success() && !text.contains("panicked"), "{args:?}: {output:?}");
    }
}

#[test]
fn a_full_disk_is_an_error() {
    let full = File::options().write(true).open("/dev/full").expect("/dev/full");
    let output = bypath(["man"]).stdout(full).output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot write to standard output"), "{}", stderr(&output));
}

fn record() -> Vec<u8> {
    let mut raw = vec![0; RECORD_SIZE];
    let mut set = |at: usize, bytes: &[u8]| raw[at..at + bytes.len()].copy_from_slice(bytes);
    set(0, &STATS_MAGIC.to_le_bytes());
    set(offset_of!(StatsRecord, pid), &42u32.to_ne_bytes());
    set(offset_of!(StatsRecord, state), &2u32.to_ne_bytes());
    set(offset_of!(StatsRecord, command), b"server");
    set(offset_of!(StatsRecord, connections), &9u64.to_ne_bytes());
    set(offset_of!(StatsRecord, upgraded), &8u64.to_ne_bytes());
    let recalled = offset_of!(StatsRecord, recalled) + 8 * Reason::RecalledClose as usize;
    set(recalled, &8u64.to_ne_bytes());
    set(offset_of!(StatsRecord, not_upgraded) + 8 * Reason::PeerPlain as usize, &1u64.to_ne_bytes());
    for (i, n) in [700u64, 200, 50, 50].into_iter().enumerate() {
        set(offset_of!(StatsRecord, bytes) + 8 * i, &n.to_ne_bytes());
    }
    raw
}

#[test]
fn stats_prints_the_agreed_json_and_a_table() {
    let dir = TempDir::new();
    let file = dir.join("counters");
    fs::write(&file, [record(), record()].concat()).expect("a file");
    let output = bypath(["stats"]).arg(&file).arg("--json").output().expect("bypath starts");
    let expected = json!({
        "pid": 42, "command": "server", "connections": 9, "upgraded": 8,
        "recalled": { "recalled-close": 8 }, "not_upgraded": { "peer-plain": 1 },
        "bytes": { "ring_tx": 700, "ring_rx": 200, "kernel_tx": 50, "kernel_rx": 50, "pair_tx": 0, "pair_rx": 0 }
    });
    assert_eq!(json_of(&output), json!([expected, expected]));
    let output = bypath(["stats"]).arg(&file).output().expect("bypath starts");
    let text = stdout(&output);
    for part in ["total", "90.0 % of all bytes", "42 server, recalled: recalled-close 8", "ended", "1.4K"] {
        assert!(text.contains(part), "{part} is not in:\n{text}");
    }
}

#[test]
fn stats_explains_files_it_cannot_read() {
    let dir = TempDir::new();
    let file = |name: &str, content: &[u8]| {
        let path = dir.join(name);
        fs::write(&path, content).expect("a file");
        path
    };
    let mut hostile = record();
    hostile[8..].fill(0xff);
    for (path, part) in [
        (dir.join("missing"), "bypath run --stats"),
        (dir.path().to_owned(), "Is a directory"),
        (file("empty", b""), "is empty"),
        (file("foreign", &[b'x'; 20000]), "not a statistics file"),
        (file("cut", &record()[..5000]), "ends inside record 1"),
    ] {
        let output = bypath(["stats"]).arg(&path).output().expect("bypath starts");
        let text = stderr(&output);
        assert_eq!((output.status.code(), text.contains(part)), (Some(1), true), "{text}");
    }
    // What has no end, or somebody else's, is not waited for.
    let pipe = dir.join("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("mkfifo").success());
    for path in [pipe.as_path(), Path::new("/dev/zero")] {
        let mut stats = Command::new("timeout");
        stats.args(["20", BYPATH, "stats"]).arg(path).env("BYPATH_CONFIG", "none");
        let output = stats.output().expect("timeout starts");
        let text = stderr(&output);
        assert_eq!((output.status.code(), text.contains("is no regular file")), (Some(1), true), "{text}");
    }
    let output = bypath(["stats"]).arg(file("hostile", &hostile)).output().expect("bypath starts");
    assert!(output.status.success(), "{}", stderr(&output));
}

#[test]
fn completions_and_man_pages_know_every_setting() {
    let dir = TempDir::new();
    assert!(bypath(["man"]).arg(dir.path()).status().expect("bypath starts").success());
    let page = fs::read_to_string(dir.join("bypath-run.1")).expect("the page");
    let scripts: Vec<String> = ["bash", "zsh", "fish"]
        .iter()
        .map(|shell| stdout(&bypath(["completions", shell]).output().expect("bypath starts")))
        .collect();
    for setting in bypath_sockets::config::SETTINGS {
        assert!(page.contains(&setting.flag.replace('-', "\\-")), "{} in the man page", setting.flag);
        for script in &scripts {
            assert!(script.contains(setting.flag), "{}", setting.flag);
        }
    }
    for page in ["bypath.1", "bypath-ss.1", "bypath-why.1", "bypath-stats.1"] {
        assert!(dir.join(page).exists(), "{page}");
    }
    let output = bypath(["man", "/no/such/directory"]).output().expect("bypath starts");
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(bypath(["completions", "tcsh"]).output().expect("bypath starts").status.code(), Some(2));
}
