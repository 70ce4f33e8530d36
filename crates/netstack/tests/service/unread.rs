//! Descriptors that programs have not received: the kernel counts them as the service's user's, whose other processes send none while they
//! are too many.

use crate::namespace::skip;
use crate::program::Program;
use crate::{LONGEST, Running, at, users};
use bypath_netstack::service::Settings;
use bypath_shm::service::{Header, Op};
use bypath_stack::config::Config;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;

/// Whom the service is for, too.
const GUEST: u32 = 65_531;
const OTHER: u32 = 65_530;
/// Descriptors on their way, as docs/netstack-service.md has it.
const OF_ONE: u64 = 16;
const OF_USER: u64 = 128;

/// Sends a descriptor as most processes do: without rights, and with the usual limit of open files.
const SENDER: &str = "import array, resource, socket
hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (min(1024, hard), hard))
a, b = socket.socketpair()
try:
    a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])
    print('sent')
except OSError as e:
    print(e)";

/// What becomes of a descriptor that another process of this user sends; `None`: there is no such process.
fn sender() -> Option<String> {
    let mut command = Command::new("setpriv");
    command.args(["--bounding-set=-all", "--inh-caps=-all", "python3", "-c", SENDER]);
    let output = command.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8(output.stdout).expect("text").trim().to_owned())
}

/// False: this cannot be tested here, as is said.
fn can_send(name: &str) -> bool {
    match sender().as_deref() {
        Some("sent") => return true,
        Some(other) => skip(name, &format!("this user sends no descriptors: {other}")),
        None => skip(name, "needs setpriv and python3"),
    }
    false
}

fn for_guests(settings: &mut Settings) {
    settings.users = Some(vec![GUEST, OTHER]);
}

/// Asks for a socket, and reads no answer.
fn asks(program: &Program, serial: u32) {
    let header = Header { op: Op::Open, serial, socket: 0, errno: 0 };
    let body = [libc::AF_INET, libc::SOCK_STREAM, 0].map(i32::to_ne_bytes).concat();
    program.say(&[&header.encode()[..], &body].concat()).expect("room for a question");
}

/// All that was asked has had its turn: whoever has something to ask has one before this program's next question is heard.
fn all_had_their_turn(running: &Running) {
    let program = running.program();
    for _ in 0..32 {
        assert_eq!(program.ask(Op::Hello, 0, &1u32.to_ne_bytes()).errno, 0);
    }
}

/// Each of them is answered so many questions for a socket, in order, whoever reads first.
fn answers_come(programs: &[Program], questions: u32) {
    let ends: Vec<_> = programs.iter().map(Program::own).collect();
    let mut heard = vec![0; programs.len()];
    loop {
        let left: Vec<_> = (0..programs.len()).filter(|n| heard[*n] < questions).collect();
        if left.is_empty() {
            return;
        }
        let mut waits: Vec<_> =
            left.iter().map(|n| PollFd::new(ends[*n].as_fd(), PollFlags::POLLIN)).collect();
        let come = poll(&mut waits, PollTimeout::from(LONGEST.as_millis() as u16)).expect("poll");
        assert!(come > 0, "no answers; there were {heard:?}");
        for (n, _) in left.iter().zip(&waits).filter(|(_, wait)| wait.any() == Some(true)) {
            let (n, program) = (*n, &programs[*n]);
            let (message, with) = program.hear().expect("an answer");
            let answer = Header::decode(&message).expect("a header").0;
            assert_eq!((answer.serial, answer.errno, with.is_some()), (heard[n], 0, true));
            heard[n] += 1;
        }
    }
}

/// Sockets of a user.
fn sockets(running: &Running, uid: u32) -> u64 {
    let row = running.query("service").remove(0);
    let users = row["users"].as_array().expect("users");
    let user = users.iter().find(|user| user["uid"] == u64::from(uid));
    user.map_or(0, |user| user["sockets"].as_u64().expect("a number"))
}

users! {
    fn who_reads_no_answers_takes_no_descriptors_from_the_services_user() {
        if !can_send("unread::who_reads_no_answers_takes_no_descriptors_from_the_services_user") {
            return;
        }
        let running = Running::with(for_guests, Config::default());
        let first = Program::of(&running.path, GUEST);
        (0..64).for_each(|n| asks(&first, n));
        all_had_their_turn(&running);
        let opened = sockets(&running, GUEST);
        assert!((1..=OF_ONE).contains(&opened), "{opened} of one connection");
        let more: Vec<_> = (0..59).map(|_| Program::of(&running.path, GUEST)).collect();
        more.iter().for_each(|program| (0..64).for_each(|n| asks(program, n)));
        all_had_their_turn(&running);
        assert_eq!(sender().as_deref(), Some("sent"));
        let opened = sockets(&running, GUEST);
        assert!((OF_ONE..=OF_USER).contains(&opened), "{opened} of one user");
        // Others wait for nobody.
        let other = Program::of(&running.path, OTHER);
        for program in [&other, &running.program()] {
            let kept: Vec<_> = (0..200).map(|_| program.open(false).expect("a socket")).collect();
            drop(kept);
        }
        // What needs no descriptor is answered to one who has read his, and every question is in the end.
        let last = Program::of(&running.path, GUEST);
        assert_eq!(last.ask(Op::Hello, 0, &1u32.to_ne_bytes()).errno, 0);
        let all: Vec<_> = std::iter::once(first).chain(more).collect();
        answers_come(&all, 64);
        drop(last.open(false).expect("a socket"));
        drop((all, last, other));
        running.has_sockets(0);
    }
}

users! {
    fn a_connection_that_the_service_has_ended_counts_as_long_as_its_answers_are_unread() {
        if !can_send("unread::a_connection_that_the_service_has_ended_counts_as_long_as_its_answers_are_unread") {
            return;
        }
        let running = Running::with(for_guests, Config::default());
        let ended: Vec<_> = (0..250).map(|_| {
            let program = Program::of(&running.path, GUEST);
            (0..8).for_each(|n| asks(&program, n));
            program.say(b"nonsense").expect("room for a message");
            program
        }).collect();
        all_had_their_turn(&running);
        assert_eq!(sender().as_deref(), Some("sent"));
        let opened = sockets(&running, GUEST);
        assert!((OF_ONE..=OF_USER).contains(&opened), "{opened} of one user");
        // Who was ended reads what he was answered before; who waits has his turn then.
        answers_come(&ended, 8);
        assert!(ended.iter().all(|program| program.hear().is_none()));
        drop(ended);
        running.has_sockets(0);
    }
}

users! {
    fn a_connection_that_its_maker_has_sent_to_the_service_ends_with_him() {
        let (running, ()) = Running::asked(for_guests, Config::default(), |path| {
            let guest = Program::of(path, GUEST);
            asks(&guest, 1);
            guest.say(b"nonsense").expect("room");
            (0..3).for_each(|_| guest.say(b"").expect("room"));
            // Behind what ends it: nobody receives it, and with it the answer, and the socket, would be held for ever.
            let hello = Header { op: Op::Hello, serial: 2, socket: 0, errno: 0 }.encode();
            guest.say_with_numbers(&hello, &[guest.own().as_raw_fd()]);
        });
        running.has_sockets(0);
    }
}

users! {
    fn connections_that_nobody_accepts_take_no_descriptors_from_the_services_user() {
        if !can_send("unread::connections_that_nobody_accepts_take_no_descriptors_from_the_services_user") {
            return;
        }
        let running = Running::with(for_guests, Config::default());
        let program = Program::of(&running.path, GUEST);
        let mut calls = Vec::new();
        let mut listeners: Vec<_> = (0..350).map(|n| {
            let (listener, to) = program.listener(at("10.9.0.2:0"));
            calls.push((0..4).map(|_| TcpStream::connect(to).expect("a connection")).collect::<Vec<_>>());
            if n % 2 == 0 {
                // The records stay where they are.
                let how = libc::SHUT_RD.to_ne_bytes();
                let answer = program.ask_with(Op::Shutdown, listener.cookie, &how, Some(listener.stream.as_fd()));
                assert_eq!(answer.errno, 0);
            }
            listener
        }).collect();
        all_had_their_turn(&running);
        assert_eq!(sender().as_deref(), Some("sent"));
        // Sockets can be opened yet, and somebody else's listener has his calls.
        drop(program.open(false).expect("a socket"));
        let other = Program::of(&running.path, OTHER);
        let (busy, to) = other.listener(at("10.9.0.2:0"));
        for _ in 0..300 {
            let call = TcpStream::connect(to).expect("a connection");
            assert_eq!(busy.accept().1.remote.0, call.local_addr().ok());
        }
        // As soon as others were accepted, those of the last listener come as well.
        let last = listeners.pop().expect("one");
        drop(listeners);
        for call in calls.pop().expect("its calls") {
            assert_eq!(last.accept().1.remote.0, call.local_addr().ok());
        }
    }
}
