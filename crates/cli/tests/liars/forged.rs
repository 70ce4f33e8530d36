//! Octets of a connection are those of its own rings: nobody puts others in their place in what `bypath dump` shows.

use crate::bells::{address, cookie};
use crate::common::{BYPATH, TempDir, bypath, preload_library, workspace};
use crate::lab::{LONG, Running, Talk, has, until};
use crate::liar::{Liar, copy, within};
use crate::whose::{STRANGER, connections_of, has_ring, may_be_others};
use bypath_shm::arena::Geometry;
use bypath_shm::direction::Readable;
use bypath_shm::family::{Addr, datagram_path};
use bypath_shm::mailbox::{Pushed, Reader, Writer};
use bypath_shm::region::{MailboxMap, OwnArena};
use bypath_sys::sock::Address;
use rustix::fs::fstat;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const RING: u32 = 1 << 16;

/// Octets of a record's head that names a sender.
const HEAD: usize = 24;

/// An arena whose first slot says that it is this connection's, and what has gone through it.
fn arena(cookies: [u64; 2], text: &[u8]) -> (OwnArena, OwnedFd) {
    let (arena, memory) = OwnArena::new(Geometry { slots: 2, ring: RING }).expect("an arena");
    let control = arena.control(0);
    control.begin();
    control.name(cookies);
    for d in 0..2 {
        control.direction[d].consent();
        assert!(control.direction[d].begin_ring(0, 0));
        let Ok(Readable::Drain(head)) = control.direction[d].readable(RING.into()) else { panic!("no ring") };
        assert!(control.direction[d].drained(head));
        arena.copy_in(0, d, 0, text);
        control.direction[d].publish(text.len() as u64);
    }
    (arena, memory)
}

fn set(place: &Addr, address: &Address) {
    place.set(address.family, address.port, address.bytes);
}

/// What `dump` shows of this process, and what it says.
fn shown(more: &[&str]) -> [String; 2] {
    let pid = std::process::id().to_string();
    let output = within(LONG, bypath([&["dump", "--seconds", "0.5", "--pid", &pid], more].concat()));
    [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned())
}

/// As by an allowed user, in the arena that he shares with a program which has a connection to somebody else.
#[test]
fn who_shares_another_arena_with_a_program_writes_into_no_connection_of_it() {
    let cookies = [(1 << 40) + 1, (1 << 40) + 2];
    let liar = Liar::new();
    has_ring(&liar, 0, cookies);
    let end = &liar.family.ends[0];
    end.holders.store(1, Relaxed);
    end.ring_size.store(RING, Relaxed);
    end.local.set(2, 80, [127; 16]);
    end.remote.set(2, 81, [127; 16]);
    // In whichever order they are mapped.
    let (before, _before) = arena(cookies, b"FORGED");
    let (_own, memory) = arena(cookies, b"GENUINE");
    let (_after, _memory) = arena([cookies[1], cookies[0]], b"FORGED");
    let (_again, _memory) = arena(cookies, b"FORGED");
    end.arena.store(fstat(&memory).expect("its number").st_ino, Relaxed);
    let [text, said] = shown(&[]);
    assert!(text.matches("GENUINE").count() == 2 && !text.contains("FORGED"), "{said}: {text}");
    // The record names a slot that is not the connection's, as the other end wrote there.
    end.arena.store(fstat(&memory).expect("its number").st_ino, Relaxed);
    end.slot.store(1, Relaxed);
    let [text, said] = shown(&[]);
    assert!(text.is_empty(), "{said}: {text}");
    // A program of an earlier version does not say where its rings are.
    end.arena.store(0, Relaxed);
    let [text, said] = shown(&[]);
    assert!(text.is_empty(), "{said}: {text}");
    drop(before);
}

/// A process of [`STRANGER`]'s, started by such a command, that has the liar's region open, at place 1 of its table, and this memory mapped.
fn stranger(liar: &Liar, memory: &[&OwnedFd], by: &[&str]) -> Running {
    let mut maps = Command::new(by[0]);
    maps.args(&by[1..]).arg(workspace().join("crates/cli/tests/liars/mapped.py"));
    maps.args([STRANGER.to_string(), std::process::id().to_string()]);
    maps.args(memory.iter().map(|memory| memory.as_raw_fd().to_string()));
    maps.stdin(Stdio::piped()).stdout(copy(liar)).stderr(Stdio::piped());
    let mut maps = Running(maps.spawn().expect("python3 starts"));
    let mut line = String::new();
    BufReader::new(maps.0.stderr.take().expect("a pipe")).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    liar.has_member(1, maps.0.id());
    maps
}

/// The stranger says that his process has this end, on rings.
fn says(liar: &Liar, number: usize, memory: &OwnedFd, cookies: [u64; 2], names: [&Address; 2]) {
    has_ring(liar, number, cookies);
    let end = &liar.family.ends[number];
    end.ring_size.store(RING, Relaxed);
    end.arena.store(fstat(memory).expect("its number").st_ino, Relaxed);
    set(&end.local, names[0]);
    set(&end.remote, names[1]);
}

/// A mailbox in which a datagram waits, from port 7 of loopback.
fn mailbox(cookie: u64, octets: &[u8]) -> (MailboxMap, OwnedFd) {
    let (map, fd) = MailboxMap::new(1 << 14, 3).expect("a mailbox");
    map.owner().store(cookie, Relaxed);
    let reader = Reader::new(map.mailbox(), map.ring());
    let epoch = reader.open_begin().expect("it is ours");
    assert!(reader.open_finish(epoch));
    let mut head = [0; HEAD];
    head[..16].copy_from_slice(&Ipv4Addr::LOCALHOST.to_ipv6_mapped().octets());
    head[16..18].copy_from_slice(&7u16.to_ne_bytes());
    let writer = Writer::new(map.mailbox(), map.ring(), 1);
    assert_eq!(writer.push(&AtomicU64::new(0), &head, octets, u64::MAX), Pushed::Sent);
    let file = File::options().read(true).write(true).open(format!("/proc/self/fd/{fd}"));
    bypath_sys::fd::close(fd);
    (map, file.expect("our memory").into())
}

/// What `dump` shows in a second, in which there is something to be seen of a conversation, and what it says.
fn dumped(folder: &TempDir, talk: &mut Talk, which: &[&str]) -> [String; 2] {
    let files = ["shown", "said"].map(|name| folder.join(name));
    let mut dump = bypath(["dump", "--seconds", "1"]);
    dump.args(which);
    dump.stdout(File::create(&files[0]).expect("a file")).stderr(File::create(&files[1]).expect("a file"));
    let mut dump = Running(dump.spawn().expect("bypath starts"));
    until("it has ended", || {
        talk.does("echo 1");
        dump.0.try_wait().expect("a child").is_some()
    });
    files.map(|file| std::fs::read_to_string(file).expect("text"))
}

/// Whatever he names, and wherever he is: his word is not root's.
#[test]
fn what_another_user_shows_is_shown_as_his_alone() {
    let name = "forged::what_another_user_shows_is_shown_as_his_alone";
    if !has(name, &["python3", "unshare"]) || !may_be_others(name) {
        return;
    }
    let mut talk = Talk::new();
    let own = &connections_of(talk.caller_pid())[0];
    let (local, remote) = (address(&own["local"]), address(&own["remote"]));
    let cookies = [cookie(&local, &remote), cookie(&remote, &local)];
    let mapped =
        |at: &Address| Address::from(SocketAddr::from((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), at.port)));
    let nobodys = |at: &Address| Address { port: at.port ^ 1, ..*at };
    // Of each: the sockets (0: of no number that there is), the addresses, and the service.
    let ways: [([u64; 2], [Address; 2], &str); 10] = [
        (cookies, [local, remote], ""),
        ([cookies[1], cookies[0]], [remote, local], ""),
        // As of a connection that comes up later, or of one that is bound to a device.
        ([0; 2], [local, remote], ""),
        ([0; 2], [remote, local], ""),
        ([0; 2], [local, remote], "lab"),
        ([0; 2], [remote, local], "lab"),
        ([cookies[0]; 2], [nobodys(&local), remote], "lab"),
        ([0; 2], [mapped(&local), mapped(&remote)], ""),
        ([0; 2], [mapped(&local), remote], ""),
        ([0; 2], [nobodys(&local), remote], ""),
    ];
    let numbered = ways.iter().enumerate().map(|(n, (cookies, ..))| match cookies {
        [0, 0] => [(1 << 40) + 2 * n as u64, (1 << 40) + 2 * n as u64 + 1],
        named => *named,
    });
    let sockets: Vec<_> = numbered.collect();
    let arenas: Vec<_> = sockets.iter().map(|cookies| arena(*cookies, b"FORGED")).collect();
    let letters = mailbox(1 << 41, b"FORGED");
    let memory: Vec<_> = arenas.iter().map(|(_, memory)| memory).chain([&letters.1]).collect();
    let liar = Liar::new();
    let his = stranger(&liar, &memory, &["python3"]);
    // In a network of his own the kernel knows no socket at these addresses.
    let abroad = liar.and_another();
    let _abroad = stranger(&abroad, &memory, &["unshare", "--net", "python3"]);
    for (number, (_, names, service)) in ways.iter().enumerate() {
        for liar in [&liar, &abroad] {
            says(liar, number, memory[number], sockets[number], names.each_ref());
            liar.family.ends[number].service.set(service);
        }
    }
    let datagrams = &liar.family.datagrams[0];
    datagrams.cookie.store(1 << 41, Relaxed);
    set(&datagrams.local, &remote);
    datagrams.paths.store(datagram_path::RECEIVES, Relaxed);
    datagrams.rx.ring.store(1, Relaxed);
    datagrams.holder.store(2, Relaxed);
    let folder = TempDir::new();
    let pids = [talk.server_pid(), his.0.id()].map(|pid| pid.to_string());
    let (port, user) = (talk.port.to_string(), STRANGER.to_string());
    let note = "note: connections of other users' programs are left out; --user NAME shows those of one";
    for (which, is_his, notes) in [
        (&["port", &port][..], false, 1),
        (&["--pid", &pids[0]], false, 0),
        (&["--user", "root", "port", &port], false, 0),
        (&["--user", &user, "port", &port], true, 0),
        (&["--pid", &pids[1]], true, 0),
    ] {
        let [text, said] = dumped(&folder, &mut talk, which);
        let seen = ["FORGED", ": UDP 6  FORGED", "ECHO"].map(|word| text.contains(word));
        assert_eq!(seen, [is_his, is_his, !is_his], "{which:?}: {said}: {text:.2000}");
        assert_eq!(said.matches(note).count(), notes, "{which:?}: {said}");
    }
}

/// The number of a process that was asked for is another one's, before anybody has looked again.
#[test]
fn who_has_the_number_of_a_process_that_has_ended_is_not_followed() {
    let name = "forged::who_has_the_number_of_a_process_that_has_ended_is_not_followed";
    if !has(name, &["python3", "unshare"]) || !may_be_others(name) {
        return;
    }
    let mut apart = Command::new("unshare");
    apart.args(["--pid", "--fork", "--mount-proc", "--kill-child", "python3"]);
    apart.arg(workspace().join("crates/cli/tests/liars/number.py")).arg(BYPATH);
    apart.env("BYPATH_CONFIG", "none").env("BYPATH_LIBRARY", preload_library());
    let output = within(LONG, apart);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("has ended"), "{said}");
}

#[test]
fn a_user_that_is_not_there_is_told() {
    for (which, status, words) in [
        (&["--user", "no-such-user"][..], 2, "there is no such user; give a name or a number"),
        (&["--user", "0", "--pid", "1"], 2, "cannot be used with"),
    ] {
        let output = bypath([&["dump"], which].concat()).output().expect("bypath starts");
        assert_eq!(output.status.code(), Some(status), "{which:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words), "{which:?}: {output:?}");
    }
}
