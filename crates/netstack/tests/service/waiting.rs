//! Octets that no program has: of connections that nobody has accepted, and of those that programs have closed. They count for their user,
//! and his bounds are met by nobody else.

use crate::program::{Program, Sock};
use crate::{LONGEST, Running, at, kernels, patient, users};
use bypath_netstack::service::Settings;
use bypath_stack::config::Config;
use nix::poll::PollFlags;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// A user whom the service is for.
const HOG: u32 = 65_004;
/// Octets of one user that wait in the stack.
const OCTETS: usize = 8 << 20;
/// Octets in the buffers of all.
const ALL: usize = 32 << 20;
/// What a connection has taken of it, however many the others have: of each buffer.
const LEAST: usize = 2048;
/// Nobody takes anything for so long: all that there was room for is there.
const QUIET: Duration = Duration::from_millis(600);

fn small(settings: &mut Settings) {
    (settings.users, settings.octets_per_user) = (Some(vec![HOG]), OCTETS);
}

fn config(octets: usize, orphans: usize) -> Config {
    let mut config = Config::default();
    (config.tcp.octets, config.tcp.orphans) = (octets, orphans);
    config
}

/// Writes to all of them until nothing is taken any more; how many octets were.
fn fill<'a, S: 'a>(streams: &'a [S]) -> usize
where
    &'a S: Write,
{
    let (mut taken, mut last) = (0, Instant::now());
    while last.elapsed() < QUIET {
        for mut stream in streams {
            while let Ok(more) = stream.write(&[7; 65_536]) {
                (taken, last) = (taken + more, Instant::now());
            }
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    taken
}

/// So many connections to a listener, as the kernel makes them.
fn calls(to: SocketAddr, count: usize) -> Vec<TcpStream> {
    let call = |_| {
        let stream = TcpStream::connect(to).expect("a connection");
        stream.set_nonblocking(true).expect("a socket");
        stream
    };
    (0..count).map(call).collect()
}

fn stat(running: &Running, name: &str) -> usize {
    let stats = running.query("stats");
    let row = stats.iter().find(|row| row["name"] == name).expect("a counter");
    row["value"].as_u64().expect("a number") as usize
}

fn of_user(running: &Running, uid: u32, field: &str) -> u64 {
    let service = running.query("service").remove(0);
    let users = service["users"].as_array().expect("users");
    users.iter().find(|user| user["uid"] == uid).map_or(0, |user| user[field].as_u64().expect("a number"))
}

/// Carries octets both ways between two sockets of a program: within a time that memory for others alone would not do.
fn goes_on(program: &Program) {
    const COUNT: usize = 4 << 20;
    let (listener, to) = program.listener(at("10.9.0.2:0"));
    let own = program.connect(to);
    let other = listener.accept().0;
    let begun = Instant::now();
    let (theirs, ours) = (&other.stream, &own.stream);
    std::thread::scope(|scope| {
        scope.spawn(|| { theirs }.write_all(&vec![3; COUNT]).expect("written"));
        scope.spawn(|| { ours }.write_all(&vec![4; COUNT]).expect("written"));
        scope.spawn(|| { theirs }.read_exact(&mut vec![0; COUNT]).expect("octets"));
        { ours }.read_exact(&mut vec![0; COUNT]).expect("octets");
    });
    assert!(begun.elapsed() < LONGEST / 4, "{:?}", begun.elapsed());
}

/// A listener of the kernel's whose connections take little that nobody reads.
fn slow() -> (TcpListener, SocketAddr) {
    let (listener, to) = kernels("10.9.0.1:0");
    setsockopt(&listener, sockopt::RcvBuf, &4096).expect("an option");
    (listener, to)
}

/// A listener with the largest window that can be asked for.
fn wide(program: &Program) -> (Sock<'_>, SocketAddr) {
    let listener = program.open(false).expect("a socket");
    assert_eq!(listener.set(libc::SOL_SOCKET, libc::SO_RCVBUF, &(4i32 << 20).to_ne_bytes()), 0);
    let to = listener.bind(at("10.9.0.2:0")).expect("a port");
    assert_eq!(listener.listen(128), 0);
    (listener, to)
}

users! {
    fn who_accepts_nothing_leaves_others_their_memory() {
        const CALLS: usize = 80;
        let running = Running::with(small, config(ALL, 1000));
        let hog = Program::of(&running.path, HOG);
        let (listener, to) = wide(&hog);
        let mut calls = calls(to, CALLS);
        fill(&calls);
        let held = stat(&running, "connection_octets");
        // Some have been accepted, if not by the program: they count as those that wait.
        assert!(held < OCTETS / 4 + CALLS * LEAST + (128 << 10), "{held}");
        goes_on(&running.program());
        // Nothing that was taken is lost, and who is accepted has his window at once.
        let (own, record) = listener.accept();
        let n = calls.iter().position(|call| call.local_addr().ok() == record.remote.0).expect("one of them");
        let call = patient(calls.swap_remove(n));
        call.set_nonblocking(false).expect("a socket");
        call.shutdown(std::net::Shutdown::Write).expect("an end");
        let mut got = Vec::new();
        { &own.stream }.read_to_end(&mut got).expect("an end");
        assert!(!got.is_empty() && got.iter().all(|octet| *octet == 7));
        // What others sent does not keep this user's own connections from going on.
        goes_on(&hog);
        drop((listener, own, calls, call));
        running.has_sockets(0);
        assert_eq!((of_user(&running, HOG, "callers"), of_user(&running, HOG, "octets")), (0, 0));
    }
}

users! {
    fn who_is_called_by_too_many_is_called_by_no_more_and_others_are() {
        const SOCKETS: usize = 20;
        let few = |settings: &mut Settings| {
            small(settings);
            settings.sockets_per_user = SOCKETS;
        };
        let running = Running::with(few, config(ALL, 1000));
        let hog = Program::of(&running.path, HOG);
        let listeners: Vec<_> = (0..4).map(|_| hog.listener(at("10.9.0.2:0"))).collect();
        // Descriptors on their way bound how many become sockets of his: the others wait.
        let many: Vec<_> = (0..4 * SOCKETS)
            .map_while(|n| {
                let to = listeners[n % 4].1;
                TcpStream::connect_timeout(&to, Duration::from_millis(2500)).ok()
            })
            .collect();
        assert!(many.len() >= SOCKETS && many.len() <= 2 * SOCKETS, "{}", many.len());
        assert_eq!(of_user(&running, HOG, "callers"), SOCKETS as u64);
        let program = running.program();
        let (listener, to) = program.listener(at("10.9.0.2:0"));
        let _call = TcpStream::connect_timeout(&to, LONGEST).expect("a connection");
        assert_eq!(listener.ready(PollFlags::POLLIN, LONGEST.as_millis() as u16), PollFlags::POLLIN);
        // There is room again where one is accepted or has gone.
        drop(many);
        let has_caller = |(listener, _): &&(Sock<'_>, SocketAddr)| listener.ready(PollFlags::POLLIN, 100) == PollFlags::POLLIN;
        while let Some((listener, _)) = listeners.iter().find(has_caller) {
            drop(listener.accept());
        }
        let first = &listeners[0];
        let call = patient(TcpStream::connect_timeout(&first.1, LONGEST).expect("a connection"));
        let (own, _) = first.0.accept();
        { &own.stream }.write_all(b"x").expect("written");
        { call }.read_exact(&mut [0; 1]).expect("an octet");
    }
}

users! {
    fn what_was_closed_and_is_not_sent_counts_for_who_closed_it() {
        let running = Running::with(small, config(ALL, 1000));
        let hog = Program::of(&running.path, HOG);
        let (listener, to) = slow();
        const COUNT: usize = 300;
        let mut kept = Vec::new();
        for _ in 0..COUNT {
            let own = hog.connect(to);
            kept.push(listener.accept().expect("a connection").0);
            { &own.stream }.write_all(&[9; 120_000]).expect("written");
        }
        let end = Instant::now() + LONGEST;
        while of_user(&running, HOG, "sockets") > 0 {
            assert!(Instant::now() < end, "sockets are there yet");
            std::thread::sleep(Duration::from_millis(2));
        }
        // What the kernel has not read waits here and goes on counting, as much as may; the rest was reset.
        let (held, orphans) = (stat(&running, "connection_octets"), stat(&running, "orphans"));
        assert!(held <= OCTETS / 2, "{held}");
        let of_hog = ["octets", "orphans", "sockets"].map(|field| of_user(&running, HOG, field) as usize);
        assert_eq!(of_hog, [held, orphans, 0]);
        assert!(orphans >= OCTETS / 2 / (128 << 10) && stat(&running, "tcp_orphans_reset") + orphans == COUNT);
        goes_on(&running.program());
        drop((kept, listener));
        running.has_sockets(0);
        assert_eq!((of_user(&running, HOG, "orphans"), of_user(&running, HOG, "octets")), (0, 0));
    }
}

users! {
    fn who_closes_too_much_is_reset_and_others_are_not() {
        /// Connections that are left and not over, of all.
        const ORPHANS: usize = 16;
        let running = Running::with(small, config(1 << 30, ORPHANS));
        let (listener, to) = slow();
        let leave = |program: &Program| {
            let own = program.connect(to);
            let kernel = patient(listener.accept().expect("a connection").0);
            { &own.stream }.write_all(&[8; 30_000]).expect("written");
            kernel
        };
        let hog = Program::of(&running.path, HOG);
        let left: Vec<_> = (0..3 * ORPHANS).map(|_| leave(&hog)).collect();
        let end = |mut kernel: TcpStream| {
            let mut got = Vec::new();
            kernel.read_to_end(&mut got).map(|_| got.len()).map_err(|e| e.kind())
        };
        let sockets = || of_user(&running, HOG, "sockets");
        let limit = Instant::now() + LONGEST;
        while sockets() > 0 {
            assert!(Instant::now() < limit, "{} sockets", sockets());
            std::thread::sleep(Duration::from_millis(2));
        }
        assert_eq!(of_user(&running, HOG, "orphans"), ORPHANS as u64 / 4);
        // Of another user all is sent.
        let kernel = leave(&running.program());
        assert_eq!(end(kernel), Ok(30_000));
        let ends: Vec<_> = left.into_iter().map(end).collect();
        let (sent, reset) = (Ok(30_000), Err(ErrorKind::ConnectionReset));
        assert_eq!(ends.iter().filter(|end| **end == sent).count(), ORPHANS / 4);
        assert_eq!(ends.iter().filter(|end| **end == reset).count(), 3 * ORPHANS - ORPHANS / 4);
    }
}
