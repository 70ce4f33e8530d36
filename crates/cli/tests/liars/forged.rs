//! Octets of a connection are those of its own rings: nobody puts others in their place in what `bypath dump` shows.

use crate::bells::{address, cookie};
use crate::common::{TempDir, bypath, workspace};
use crate::lab::{LONG, Running, Talk, has, until};
use crate::liar::{Liar, copy, within};
use crate::whose::{STRANGER, connections_of, has_ring, may_be_others};
use bypath_shm::arena::Geometry;
use bypath_shm::direction::Readable;
use bypath_shm::family::Addr;
use bypath_shm::region::OwnArena;
use bypath_sys::sock::Address;
use rustix::fs::fstat;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

const RING: u32 = 1 << 16;

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

#[test]
fn who_names_the_sockets_or_addresses_of_a_connection_is_not_shown_as_it() {
    let name = "forged::who_names_the_sockets_or_addresses_of_a_connection_is_not_shown_as_it";
    if !has(name, &["python3", "unshare"]) || !may_be_others(name) {
        return;
    }
    let mut talk = Talk::new();
    let own = &connections_of(talk.caller_pid())[0];
    let (local, remote) = (address(&own["local"]), address(&own["remote"]));
    let cookies = [cookie(&local, &remote), cookie(&remote, &local)];
    let turned = [cookies[1], cookies[0]];
    // Its cookies; from the other end; its addresses, of sockets of no number that there is; and as those of a netstack service.
    let free = |n: u64| [(1 << 40) + 2 * n, (1 << 40) + 2 * n + 1];
    let named: [[u64; 2]; 6] = [cookies, turned, free(1), free(2), free(3), free(4)];
    let liar = Liar::new();
    let arenas = named.map(|cookies| arena(cookies, b"FORGED"));
    let memory = arenas.each_ref().map(|(_, memory)| memory);
    let _stranger = stranger(&liar, &memory, &["python3"]);
    // In a network of his own the kernel knows no socket at these addresses.
    let abroad = liar.and_another();
    let _abroad = stranger(&abroad, &memory, &["unshare", "--net", "python3"]);
    for (number, cookies) in named.into_iter().enumerate() {
        let names = if number % 2 == 0 { [&local, &remote] } else { [&remote, &local] };
        for liar in [&liar, &abroad] {
            says(liar, number, &arenas[number].1, cookies, names);
            if number >= 4 {
                liar.family.ends[number].service.set("lab");
            }
        }
    }
    // A service's socket, which has the number of one of the connection's.
    let elsewhere = Address { port: 1, ..local };
    says(&abroad, named.len(), &arenas[0].1, [cookies[0]; 2], [&elsewhere, &remote]);
    abroad.family.ends[named.len()].service.set("lab");
    let folder = TempDir::new();
    let [by_port, by_pid] =
        [["port".to_owned(), talk.port.to_string()], ["--pid".to_owned(), talk.server_pid().to_string()]]
            .map(|which| {
                let files = ["shown", "said"].map(|name| folder.join(name));
                let mut dump = bypath(["dump", "--seconds", "1"]);
                dump.args(which);
                dump.stdout(File::create(&files[0]).expect("a file"));
                dump.stderr(File::create(&files[1]).expect("a file"));
                let mut dump = Running(dump.spawn().expect("bypath starts"));
                until("it has ended", || {
                    talk.does("echo 1");
                    dump.0.try_wait().expect("a child").is_some()
                });
                files.map(|file| std::fs::read_to_string(file).expect("text"))
            });
    for [text, said] in [&by_port, &by_pid] {
        assert!(text.contains("ECHO") && !text.contains("FORGED"), "{said}: {text:.2000}");
    }
    let note = format!("user {STRANGER} shows connections whose addresses are those of somebody else's");
    assert_eq!(by_port[1].matches(&note).count(), 1, "{}", by_port[1]);
}

/// The kernel knows whose it is where no program shows it; and what is his own is shown.
#[test]
fn who_names_a_socket_that_is_not_his_is_not_shown() {
    let name = "forged::who_names_a_socket_that_is_not_his_is_not_shown";
    if !has(name, &["python3"]) || !may_be_others(name) {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("an address");
    let own = TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (peer, _) = listener.accept().expect("a connection");
    let [local, remote]: [Address; 2] =
        [own.local_addr(), own.peer_addr()].map(|at| at.expect("an address").into());
    let cookies = [cookie(&local, &remote), cookie(&remote, &local)];
    let liar = Liar::new();
    let forged = arena(cookies, b"FORGED");
    let _stranger = stranger(&liar, &[&forged.1], &["python3"]);
    says(&liar, 0, &forged.1, cookies, [&local, &remote]);
    let port = local.port.to_string();
    let dump = || within(LONG, bypath(["dump", "--seconds", "0.5", "port", &port]));
    let text = String::from_utf8_lossy(&dump().stdout).into_owned();
    assert!(text.is_empty(), "{text}");
    // The same where it is his: he has made it.
    rustix::fs::fchown(&own, Some(rustix::fs::Uid::from_raw(STRANGER)), None).expect("root gives away");
    let text = String::from_utf8_lossy(&dump().stdout).into_owned();
    assert_eq!(text.matches("FORGED").count(), 2, "{text}");
    // What stands in memory of a connection that was reset is shown, though the kernel knows nothing of it, and another socket listens there.
    rustix::net::sockopt::set_socket_linger(&peer, Some(Duration::ZERO)).expect("a socket");
    drop(peer);
    for names in [[&local, &remote], [&remote, &local]] {
        says(&liar, 0, &forged.1, cookies, names);
        let text = String::from_utf8_lossy(&dump().stdout).into_owned();
        assert_eq!(text.matches("FORGED").count(), 2, "{text}");
    }
}
