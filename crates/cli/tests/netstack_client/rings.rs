//! Rings of a service: whose they are, what they are given back with, and users that mean harm with them.

use super::users::{ONE, OTHER, PYTHON, Stage};
use super::{HERE, Process, Service, common, is_possible, script, skip};
use std::io::Write;
use std::process::Stdio;
use std::time::{Duration, Instant};

/// Answers each one who calls, in a process of its own.
const ECHO: &str = "import socket, sys, threading
heard = socket.create_server((sys.argv[1], 0), backlog=64)
print(heard.getsockname()[1], flush=True)
def echo(s):
    try:
        while part := s.recv(65536): s.sendall(part)
    except OSError: pass
    s.close()
while True: threading.Thread(target=echo, args=(heard.accept()[0],), daemon=True).start()";

/// Connections that a child ends: by a close, by its own end, by being killed.
const FORKS: &str = "import os, signal, socket, sys
def talk(s):
    s.sendall(b'x' * 100)
    got = 0
    while got < 100: got += len(s.recv(100))
for n in range(int(sys.argv[3])):
    s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    for _ in range(8): talk(s)
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(ready, 1)
        talk(s)
        if n % 3 == 0: s.close()
        if n % 3 == 1: os.kill(os.getpid(), signal.SIGKILL)
        os._exit(0)
    s.close()
    os.write(go, b'x')
    os.close(ready)
    os.close(go)
    os.waitpid(child, 0)
print('done', flush=True)
input()";

fn arenas(service: &Service) -> usize {
    let pid = service.process.as_ref().expect("a service").0.id();
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).expect("a list");
    maps.lines().filter(|line| line.contains("bypath-arena")).count()
}

fn real(name: &str) -> Option<Service> {
    if !is_possible(name, &[]) {
        return None;
    }
    let service = Service::both(name).into_iter().nth(1);
    if service.is_none() {
        skip(name, "bypath netstack cannot be started");
    }
    service
}

#[test]
fn slots_of_connections_that_children_end_are_used_again() {
    let Some(service) = real("rings::slots_of_connections_that_children_end_are_used_again") else { return };
    let (_server, port) = service.serve(&["python3", "-c", ECHO, HERE]);
    let mut client =
        service.run(&["--netstack=lab", "--upgrade=eager"], &["python3", "-c", FORKS, HERE, &port, "60"]);
    let child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bypath");
    let mut client = Process(child);
    assert_eq!(client.line(), "done");
    // The client's 60 connections, one after the other, had the 16 slots of its first arena. (The server's are closed by itself.)
    assert_eq!(arenas(&service), 2, "arenas: the server's, and the client's");
}

/// Has connections, waits, and tells how many ms it took to write to each of them as often as makes it ask for rings.
const WRITES: &str = "import socket, sys, time
all = [socket.create_connection((sys.argv[1], int(sys.argv[2]))) for _ in range(16)]
print('ready', flush=True)
input()
begun = time.monotonic()
for s in all:
    for _ in range(40): s.send(b'x')
print(int((time.monotonic() - begun) * 1000), flush=True)";

#[test]
fn a_service_that_is_stopped_holds_a_program_up_once() {
    let Some(service) = real("rings::a_service_that_is_stopped_holds_a_program_up_once") else { return };
    let (_server, port) = service.serve(&["python3", "-c", ECHO, HERE]);
    let mut client = service.program(&["python3", "-c", WRITES, HERE, &port]);
    let child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("bypath");
    let mut client = Process(child);
    assert_eq!(client.line(), "ready");
    let pid = service.process.as_ref().expect("a service").0.id().to_string();
    let tell = |signal: &str| {
        assert!(std::process::Command::new("kill").args([signal, &pid]).status().expect("kill").success());
    };
    tell("-STOP");
    client.0.stdin.take().expect("a pipe").write_all(b"\n").expect("a program that reads");
    let took: u32 = client.line().parse().expect("a number");
    tell("-CONT");
    // One question waits 300 ms; sixteen of them would have waited 4800.
    assert!((250..2400).contains(&took), "{took} ms");
}

/// `input` to a program that has said that it is ready, and its answers.
fn deeds(mut process: Process, input: &[&str]) -> Vec<String> {
    assert_eq!(process.line(), "ready");
    let mut to = process.0.stdin.take().expect("a pipe");
    let answers = input.iter().map(|deed| {
        to.write_all(format!("{deed}\n").as_bytes()).expect("a program that reads");
        process.line()
    });
    answers.collect()
}

/// Says how long the longest of so many answers took, in ms.
const ROUNDS: &str = "import socket, sys, time
s = socket.create_connection((sys.argv[1], int(sys.argv[2])))
longest = 0
print('ready', flush=True)
while True:
    begun = time.monotonic()
    s.sendall(b'x')
    s.recv(1)
    longest = max(longest, time.monotonic() - begun)
    print(int(longest * 1000), flush=True) if sys.stdin.readline() else sys.exit()";

#[test]
fn other_users_have_rings_too() {
    let Some(stage) = Stage::new("rings::other_users_have_rings_too") else { return };
    let _service = stage.service("users = [61001]\n");
    let (_server, port) = stage.serve(0, ECHO, &[HERE]);
    let mut client = stage.bypath(
        ONE,
        &[],
        &["run", "--netstack=lab", "--upgrade=eager", "--", PYTHON, "-c", ROUNDS, HERE, &port],
    );
    let child = client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv");
    let mut client = Process(child);
    assert_eq!(client.line(), "ready");
    let mut to = client.0.stdin.take().expect("a pipe");
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        to.write_all(b"\n").expect("a program that reads");
        assert!(client.line().parse::<u64>().is_ok());
        let mut sockets = stage.bypath(0, &[], &["netstack", "sockets", "--name=lab", "--json"]);
        let rows = common::stdout(&sockets.output().expect("bypath")).replace([' ', '\n'], "");
        let own = rows.split('}').find(|row| row.contains("\"uid\":61001")).expect("a socket").to_owned();
        if own.contains("\"from_program\":\"ring\"") && own.contains("\"to_program\":\"ring\"") {
            break;
        }
        assert!(Instant::now() < end, "{own}");
    }
}

#[test]
fn a_user_who_means_harm_with_rings_stops_nobody() {
    let Some(stage) = Stage::new("rings::a_user_who_means_harm_with_rings_stops_nobody") else { return };
    let _service = stage.service("users = [61001, 61002]\n");
    let (_server, port) = stage.serve(0, ECHO, &[HERE]);
    let villain = |uid| {
        let file = stage.copy(&script("villain.py"));
        let mut command = stage.alone(uid, &[&file, HERE, &port]);
        Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("setpriv"))
    };
    // A bell that is none is not known, and the octets come by the pair.
    assert_eq!(deeds(villain(ONE), &["bell", "bell", "pipe"]), ["rung", "rung", "rung"]);
    // Root's program goes on.
    let good = |uid| common::stdout(&stage.python(uid, ONE_ROUND, &[HERE, &port]));
    assert_eq!(good(0), "answered\n");
    assert_eq!(deeds(villain(OTHER), &["holes"]), ["reset, then EPERM"]);
    assert_eq!(
        (good(0), good(ONE), good(OTHER)),
        ("answered\n".into(), "answered\n".into(), "answered\n".into())
    );
    // The other one has rings as ever.
    assert_eq!(deeds(villain(ONE), &["bell"]), ["rung"]);
}

const ONE_ROUND: &str = "import socket, sys
s = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=10)
for _ in range(100):
    s.sendall(b'x')
    assert s.recv(1) == b'x'
print('answered')";
