//! More of everything than there can be: regions, sockets, mappings.

use crate::common::{TempDir, bypath, stderr, stdout, workspace};
use crate::lab::{LONG, Running, Talk, has, skip};
use crate::liar::{Liar, copy, within};
use crate::whose::{STRANGER, holder, may_be_others};
use bypath_shm::dgram::{Octets as _, Record};
use bypath_shm::family::datagram_path;
use bypath_shm::region::MailboxMap;
use rustix::fs::MemfdFlags;
use serde_json::Value;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

#[test]
fn regions_without_number_take_no_descriptors_from_those_of_others() {
    let honest = Liar::new();
    honest.has_end(0, 77, 78);
    let crowd: Vec<OwnedFd> = (0..500)
        .map(|_| {
            let fd = rustix::fs::memfd_create("bypath-view", MemfdFlags::CLOEXEC).expect("a memfd");
            let mut file = File::from(fd);
            file.write_all(b"BYPVIEW1").and_then(|()| file.set_len(4096)).expect("a header");
            file.into()
        })
        .collect();
    let mut few = Command::new("sh");
    few.args(["-c", "ulimit -n 64; exec \"$0\" ss --json --pid \"$1\"", crate::common::BYPATH]);
    few.arg(std::process::id().to_string()).env("BYPATH_CONFIG", "none");
    let output = within(LONG, few);
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}\n{}", stderr(&output));
    assert!(!stderr(&output).contains("Too many"), "{}", stderr(&output));
    drop(crowd);
}

/// How many sockets a user has, as `bypath metrics` says.
fn sockets_of(user: u32, text: &str) -> usize {
    let name = format!("bypath_sockets{{user=\"{user}\"}} ");
    text.lines().find_map(|l| l.strip_prefix(&name)).expect("a line").parse().expect("a number")
}

#[test]
fn what_another_user_shows_is_bounded_and_the_own_is_shown_whole() {
    let name = "crowds::what_another_user_shows_is_bounded_and_the_own_is_shown_whole";
    if !has(name, &["setpriv", "sleep"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip(name, "only root has other users' processes");
    }
    // Eight processes of another user say that each of them holds every socket that there can be.
    const PROCESSES: usize = 8;
    let liar = Liar::new();
    let others: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut other = Command::new("setpriv");
            other.args(["--reuid=12345", "--regid=12345", "--clear-groups", "sleep", "1000"]);
            Running(other.stdout(copy(&liar)).spawn().expect("setpriv starts"))
        })
        .collect();
    for (place, other) in others.iter().enumerate() {
        liar.has_member(place, other.0.id());
    }
    for number in 0..liar.family.ends.len() {
        liar.has_end(number, 0, 0);
        liar.family.ends[number].holders.store((1 << PROCESSES) - 1, Relaxed);
    }
    let honest = liar.and_another();
    honest.has_end(0, 77, 78);
    // This process has both open, and is a member of the honest one alone; that the other one is root's too makes nobody trust it.
    let status = |pid: u32| std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it lives");
    while others.iter().any(|other| !status(other.0.id()).contains("Uid:\t12345")) {
        std::thread::yield_now();
    }
    let output = within(LONG, bypath(["metrics"]));
    let text = stdout(&output);
    let sockets = sockets_of(12345, &text);
    assert!((1..=(1 << 17) / PROCESSES + 100).contains(&sockets), "{sockets}");
    // Whatever others say, the own number is the own one.
    assert!((1..1000).contains(&sockets_of(0, &text)), "{text}");
    assert!(text.contains("bypath_processes{user=\"12345\",command=\"liar\"} 8"), "{text}");
    assert!(text.contains("bypath_processes{user=\"0\",command=\"liar\"} 1"), "{text}");
    let mut ss = bypath(["ss", "--json", "--pid"]);
    ss.arg(std::process::id().to_string());
    let output = within(LONG, ss);
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    assert!(stderr(&output).contains("user 12345 shows more sockets"), "{}", stderr(&output));
}

#[test]
fn each_place_of_a_region_is_one_process_alone() {
    let name = "crowds::each_place_of_a_region_is_one_process_alone";
    if !has(name, &["setpriv", "cat", "unshare"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip(name, "only root has other users' processes");
    }
    if !Command::new("unshare").args(["--pid", "--fork", "true"]).status().is_ok_and(|s| s.success()) {
        return skip(name, "no pid namespaces of one's own");
    }
    // Each is the first of a pid namespace, and the region says of the one at its place not when it began.
    const PROCESSES: usize = 8;
    const ENDS: usize = 1000;
    let liar = Liar::new();
    let others: Vec<_> = (0..PROCESSES)
        .map(|_| {
            let mut other = Command::new("unshare");
            other.args(["--pid", "--fork", "setpriv", "--reuid=12345", "--regid=12345", "--clear-groups"]);
            // It ends with its input.
            other.arg("cat").stdin(Stdio::piped()).stdout(copy(&liar));
            Running(other.spawn().expect("unshare starts"))
        })
        .collect();
    let member = &liar.family.header.processes[0];
    member.pid.store(1, Relaxed);
    member.start_time.store(0, Relaxed);
    (0..ENDS).for_each(|number| liar.has_end(number, 77, 78));
    let firsts: Vec<u32> = others.iter().map(|other| first_of(other.0.id())).collect();
    let text = stdout(&within(LONG, bypath(["metrics"])));
    assert!(text.contains("bypath_processes{user=\"12345\",command=\"liar\"} 1\n"), "{text}");
    let rows = |pid: &u32| {
        let output = within(LONG, bypath(["ss", "--json", "--pid", &pid.to_string()]));
        let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        list.as_array().map_or(0, Vec::len)
    };
    assert_eq!(firsts.iter().map(rows).sum::<usize>(), ENDS);
}

/// The process that this one has begun, once it is the other user's.
fn first_of(pid: u32) -> u32 {
    let begun = Instant::now();
    let field = |pid: u32, name: &str| {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        text.lines().find_map(|line| Some(line.strip_prefix(name)?.trim().to_owned())).unwrap_or_default()
    };
    while begun.elapsed() < LONG {
        let all = std::fs::read_dir("/proc").expect("processes").flatten();
        let mut pids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
        let is_it = |of: &u32| {
            field(*of, "PPid:") == pid.to_string() && field(*of, "Uid:").starts_with("12345\t12345\t")
        };
        if let Some(first) = pids.find(is_it) {
            return first;
        }
    }
    panic!("{pid} has begun nothing");
}

/// Who listens stands before all connections in the kernel's table, which takes longer than it is read for.
#[test]
fn sockets_without_number_hide_no_connection_of_who_is_trusted() {
    let name = "crowds::sockets_without_number_hide_no_connection_of_who_is_trusted";
    if !has(name, &["python3"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip(name, "only root has other users' processes");
    }
    const PROCESSES: usize = 4;
    const COUNT: usize = 10_000;
    let mut other = Command::new("python3");
    other.arg(workspace().join("crates/cli/tests/liars/listens.py")).args([
        "12345".to_owned(),
        PROCESSES.to_string(),
        COUNT.to_string(),
    ]);
    other.stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut other = Running(other.spawn().expect("python3 starts"));
    let mut line = String::new();
    BufReader::new(other.0.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    if line.trim() != (PROCESSES * COUNT).to_string() {
        return skip(name, "no process may have 10000 sockets");
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a listener");
    let stream = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let liar = Liar::new();
    liar.has_end(0, 77, 78);
    // It has not tried to come up, so its record has no addresses.
    liar.family.ends[0].fd.store(stream.as_raw_fd(), Relaxed);
    let local = stream.local_addr().expect("an address");
    let ss = bypath(["ss", "--json", "port", &local.port().to_string()]);
    let output = within(LONG, ss);
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}\n{}", stderr(&output));
    assert!(list[0].to_string().contains(&local.to_string()), "{list}");
    assert!(!stderr(&output).contains("are not known"), "{}", stderr(&output));
}

/// Processes of this user, each with a region open so many times more.
pub fn often(liar: &Liar, user: u32, times: u32, processes: u32) -> Running {
    let mut other = Command::new("python3");
    other.arg(workspace().join("crates/cli/tests/liars/often.py"));
    other.args([user, times, processes].map(|n| n.to_string()));
    other.stdin(Stdio::piped()).stdout(copy(liar)).stderr(Stdio::piped());
    let mut other = Running(other.spawn().expect("python3 starts"));
    let mut line = String::new();
    BufReader::new(other.0.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    liar.has_member(1, other.0.id());
    liar.family.ends[0].holders.store(2, Relaxed);
    other
}

#[test]
fn a_region_that_is_open_very_often_hides_nobody() {
    let name = "crowds::a_region_that_is_open_very_often_hides_nobody";
    if !has(name, &["python3"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip(name, "only root has other users' processes");
    }
    let own = Liar::new();
    own.has_end(0, 77, 78);
    // One user has one region open a thousand times in each of eight processes, another one as anybody has it.
    let (stranger, neighbour) = (own.and_another(), own.and_another());
    stranger.has_end(0, 79, 80);
    neighbour.has_end(0, 81, 82);
    let crowd = often(&stranger, 12345, 1000, 8);
    let other = often(&neighbour, 12346, 0, 1);
    for pid in [std::process::id(), other.0.id(), crowd.0.id()] {
        let output = within(LONG, bypath(["ss", "--json", "--pid", &pid.to_string()]));
        let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(list.as_array().map(Vec::len), Some(1), "{pid}: {list}");
        let said = stderr(&output);
        // How many are looked at in part depends on how fast this machine is: he is given so much time.
        let looked_at: Vec<u32> = said
            .split_once("note: user 12345 has more descriptors than are looked at: ")
            .and_then(|(_, said)| said.lines().next())
            .map(|said| said.split(' ').filter_map(|word| word.parse().ok()).collect())
            .unwrap_or_default();
        assert!(looked_at.len() == 2 && looked_at.iter().sum::<u32>() == 8, "{said}");
        assert!(!said.contains("user 12346"), "{said}");
    }
}

/// As many processes as a region can have.
const PROCESSES: usize = 64;

/// As many processes of the own user as there can be, which hold every socket that there can be, they say.
fn with_all_there_can_be() -> (Liar, Vec<Running>) {
    let liar = Liar::new();
    let others: Vec<_> = (0..PROCESSES)
        .map(|_| Running(Command::new("sleep").arg("1000").stdout(copy(&liar)).spawn().expect("sleep")))
        .collect();
    for (place, other) in others.iter().enumerate() {
        liar.has_member(place, other.0.id());
    }
    for number in 0..liar.family.ends.len() {
        liar.has_end(number, 0, 0);
        liar.family.ends[number].holders.store(u64::MAX, Relaxed);
    }
    (liar, others)
}

/// With few addresses, `ss` shows this process's one connection, and says that it has left out others.
fn is_shown_with_few_addresses() {
    let mut ss = Command::new("sh");
    ss.args(["-c", "ulimit -v 300000; exec \"$0\" ss --json --pid \"$1\"", crate::common::BYPATH]);
    ss.arg(std::process::id().to_string()).env("BYPATH_CONFIG", "none");
    let output = within(LONG, ss);
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list}");
    assert!(stderr(&output).contains("shows more sockets than are looked at"), "{}", stderr(&output));
}

#[test]
fn what_a_process_of_the_own_user_shows_is_bounded() {
    if !has("crowds::what_a_process_of_the_own_user_shows_is_bounded", &["sleep"]) {
        return;
    }
    let (liar, _others) = with_all_there_can_be();
    let honest = liar.and_another();
    honest.has_end(0, 77, 78);
    is_shown_with_few_addresses();
    let text = stdout(&within(LONG, bypath(["metrics"])));
    let sockets = sockets_of(rustix::process::geteuid().as_raw(), &text);
    assert!((1..=(1 << 17) / PROCESSES + 100).contains(&sockets), "{sockets}");
}

/// Each has a thread of its own that looks.
#[test]
fn users_without_number_take_no_addresses_from_who_looks() {
    let name = "crowds::users_without_number_take_no_addresses_from_who_looks";
    if !has(name, &["setpriv", "sleep"]) || !may_be_others(name) {
        return;
    }
    let (liar, _others) = with_all_there_can_be();
    let honest = liar.and_another();
    honest.has_end(0, 77, 78);
    let _users: Vec<_> = (0..20).map(|n| holder(&liar.and_another(), STRANGER + 1 + n)).collect();
    is_shown_with_few_addresses();
}

/// Asking has its time; what became of them is looked at in one region that is open.
#[test]
fn connections_without_number_are_not_each_opened_to_be_looked_at() {
    let name = "crowds::connections_without_number_are_not_each_opened_to_be_looked_at";
    if !has(name, &["strace"]) {
        return;
    }
    const CONNECTIONS: usize = 5000;
    let liar = Liar::new();
    for number in 0..CONNECTIONS {
        liar.has_end(number, 1000 + number as u64, 0);
        let end = &liar.family.ends[number];
        end.local.set(2, 1000, [127; 16]);
        end.remote.set(2, 80, [127; 16]);
    }
    let folder = TempDir::new();
    let calls = folder.join("calls");
    let mut recall = Command::new("strace");
    recall.args(["-f", "-qq", "-e", "trace=openat", "-o"]).arg(&calls).arg(crate::common::BYPATH);
    recall.args(["recall", "--wait", "0", &std::process::id().to_string()]).env("BYPATH_CONFIG", "none");
    let output = within(2 * LONG, recall);
    assert_eq!(output.status.code(), Some(4), "{}", stderr(&output));
    assert_eq!(stdout(&output).lines().count(), CONNECTIONS + 1);
    // That it is to be read alone, anew: for each of those that were asked it was opened to be written to.
    let calls = std::fs::read_to_string(calls).expect("calls");
    let read_only = calls.lines().filter(|line| line.contains("O_RDONLY|O_NOCTTY|O_NONBLOCK"));
    let opened = read_only.count();
    assert!((1..50).contains(&opened), "{opened} of {}", calls.lines().count());
}

#[test]
fn sizes_that_no_ring_has_are_not_looked_for() {
    if !has("crowds::sizes_that_no_ring_has_are_not_looked_for", &["python3"]) {
        return;
    }
    let liar = Liar::new();
    let mut maps = Command::new("python3");
    maps.arg(workspace().join("crates/cli/tests/liars/maps.py")).arg("2000");
    maps.stdin(Stdio::piped()).stdout(copy(&liar)).stderr(Stdio::piped());
    let mut maps = Running(maps.spawn().expect("python3 starts"));
    let mut line = String::new();
    BufReader::new(maps.0.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    liar.has_member(0, maps.0.id());
    for number in 0..32_768 {
        liar.has_end(number, 2 * number as u64 + 1, 2 * number as u64 + 2);
        let end = &liar.family.ends[number];
        end.ring_size.store(number as u32 + 1, Relaxed);
        for address in [&end.local, &end.remote] {
            address.family.store(2, Relaxed);
            address.port.store(9, Relaxed);
        }
    }
    let output = within(LONG / 2, bypath(["dump", "--seconds", "0.2"]));
    assert!(output.status.success(), "{}", stderr(&output));
}

/// A mailbox that is full of datagrams without octets, as long as one can be.
fn full(number: u64) -> (MailboxMap, i32) {
    const RING: u32 = 1 << 22;
    let (map, fd) = MailboxMap::new(RING, 3).expect("a mailbox");
    map.owner().store(number, Relaxed);
    let records = Record::plain(0).encode().repeat(RING as usize / 8);
    map.ring().put(0, &records);
    map.mailbox().tail.0.store(RING.into(), Relaxed);
    (map, fd)
}

#[test]
fn what_goes_through_rings_is_seen_beside_mailboxes_that_are_always_full() {
    let name = "crowds::what_goes_through_rings_is_seen_beside_mailboxes_that_are_always_full";
    if !has(name, &["python3"]) {
        return;
    }
    if !rustix::process::geteuid().is_root() {
        return skip(name, "only root has other users' processes");
    }
    let mut talk = Talk::new();
    let liar = Liar::new();
    let boxes: Vec<_> = (0..24).map(full).collect();
    let mut mapped = Command::new("python3");
    mapped.arg(workspace().join("crates/cli/tests/liars/mapped.py"));
    mapped
        .args(["12345".to_owned(), std::process::id().to_string()])
        .args(boxes.iter().map(|(_, fd)| fd.to_string()));
    mapped.stdin(Stdio::piped()).stdout(copy(&liar)).stderr(Stdio::piped());
    let mut mapped = Running(mapped.spawn().expect("python3 starts"));
    let mut line = String::new();
    BufReader::new(mapped.0.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    liar.has_member(0, mapped.0.id());
    for (number, (map, _)) in boxes.iter().enumerate() {
        let end = &liar.family.datagrams[number];
        map.owner().store(1000 + number as u64, Relaxed);
        end.cookie.store(1000 + number as u64, Relaxed);
        end.local.family.store(2, Relaxed);
        end.local.port.store(9, Relaxed);
        end.paths.store(datagram_path::RECEIVES, Relaxed);
        end.rx.ring.store(1, Relaxed);
        end.holder.store(1, Relaxed);
    }
    let folder = TempDir::new();
    let file = folder.join("lines");
    let mut dump = bypath(["dump", "port", &talk.port.to_string()]);
    let _dump = Running(dump.stdout(File::create(&file).expect("a file")).spawn().expect("bypath starts"));
    let lines =
        || std::fs::read_to_string(&file).expect("lines").lines().filter(|l| !l.starts_with('(')).count();
    let begun = Instant::now();
    let is_late = || begun.elapsed() > LONG / 2;
    let over = AtomicBool::new(false);
    let late = std::thread::scope(|scope| {
        // There is always as much again as a ring takes.
        scope.spawn(|| {
            while !over.load(Relaxed) {
                boxes.iter().for_each(|(map, _)| {
                    map.mailbox().tail.0.fetch_add(1 << 22, Relaxed);
                });
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        while lines() == 0 && !is_late() {
            talk.does("resp 1");
        }
        // Each exchange is shown, before the next one begins.
        for _ in 0..200 {
            let before = lines();
            talk.does("resp 1");
            while lines() < before + 2 && !is_late() {
                std::thread::yield_now();
            }
        }
        over.store(true, Relaxed);
        is_late()
    });
    assert!(!late, "{} lines after {:?}", lines(), begun.elapsed());
    boxes.iter().for_each(|(_, fd)| bypath_sys::fd::close(*fd));
}

#[test]
fn names_do_not_steer_a_terminal() {
    let liar = Liar::new();
    liar.has_end(0, 77, 78);
    let name = "\u{9b}31m\u{202e}x\u{2066}";
    let mut words = [0; 16];
    words[..name.len()].copy_from_slice(name.as_bytes());
    let command = &liar.family.header.processes[0].command;
    for (word, octets) in command.iter().zip(words.chunks_exact(8)) {
        word.store(u64::from_ne_bytes(octets.try_into().expect("8")), Relaxed);
    }
    let pid = std::process::id().to_string();
    for args in [&["ss", "--pid", &pid][..], &["ss", "--json", "--pid", &pid], &["why", &pid], &["metrics"]] {
        let text = stdout(&within(LONG, bypath(args)));
        assert!(text.contains("31m"), "{args:?}: {text}");
        assert!(!text.contains(['\u{9b}', '\u{202e}', '\u{2066}']), "{args:?}: {text:?}");
    }
    let list: Value =
        serde_json::from_str(&stdout(&within(LONG, bypath(["ss", "--json", "--pid", &pid])))).expect("JSON");
    assert_eq!(list[0]["command"], name);
}

/// They say that very many places were used.
#[test]
fn views_full_of_nothing_take_no_more_time_than_a_user_is_given() {
    let name = "crowds::views_full_of_nothing_take_no_more_time_than_a_user_is_given";
    if !has(name, &["setpriv", "sleep"]) || !may_be_others(name) {
        return;
    }
    let own = Liar::new();
    own.has_end(0, 77, 78);
    // Reading one takes a millisecond or two.
    let crowd: Vec<_> = (0..400).map(|_| own.and_another()).collect();
    for liar in &crowd {
        liar.family.header.ends_used.store(u32::MAX, Relaxed);
    }
    let _holders: Vec<_> = crowd.iter().map(|liar| holder(liar, STRANGER)).collect();
    let output = within(LONG, bypath(["ss", "--json", "--pid", &std::process::id().to_string()]));
    let list: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let said = stderr(&output);
    assert_eq!(list.as_array().map(Vec::len), Some(1), "{list} {said}");
    assert!(said.contains(&format!("user {STRANGER} has views that take longer to be read")), "{said}");
}
