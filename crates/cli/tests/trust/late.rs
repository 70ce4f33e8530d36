//! Octets that stand in a ring when the connection is over.

use crate::allowed;
use crate::dice::Dice;
use crate::known::{alone, port, ring_to_victim, until};
use crate::peer::{self, Line, Mapped};
use crate::programs;
use crate::victim::{PATIENCE, Process, late_program, program};
use bypath_shm::arena::Geometry;
use bypath_shm::direction::{Head, Path, ask, writer_flag};
use bypath_sys::sock;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

const LARGE: Geometry = Geometry { slots: 1, ring: 1 << 18 };
/// A connection whose octets go through the ring to a server that only reads.
struct Flood {
    line: Line,
    m: Mapped,
    bell: OwnedFd,
}

impl Flood {
    fn to(port: u16) -> Flood {
        let line = Line::to(port);
        let m = peer::accept_well(&line, LARGE);
        let bell = allowed::own_bell(&line, &m);
        ring_to_victim(&line, &m);
        Flood { line, m, bell }
    }

    /// Octets `what` without end: a reader finds some each time.
    fn pours(m: &Mapped, bell: &OwnedFd, what: u8) -> impl FnMut() + Send {
        let mut tail = m.out().t.tail.load(SeqCst);
        let octets = vec![what; m.ring.size() as usize];
        move || {
            if let Ok(space @ 1..) = m.out().space(tail, m.ring.size()) {
                m.ring.copy_from_slice(tail, &octets[..space as usize]);
                tail += space;
                m.out().publish(tail);
                let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
            }
        }
    }
}

#[test]
fn an_allowed_user_cannot_keep_a_reader_from_the_end_by_octets_without_end() {
    let name = "an_allowed_user_cannot_keep_a_reader_from_the_end_by_octets_without_end";
    let Some(folder) = allowed::folder(name) else { return };
    let mut server = Process::by(folder.command(), &["sink"]);
    let Flood { line, m, bell } = Flood::to(port(&mut server));
    let over = peer::beside(Flood::pours(&m, &bell, 1), || {
        std::thread::sleep(Duration::from_millis(200));
        server.is_well("while octets come");
        let linger = [1i32, 0].map(i32::to_ne_bytes).concat();
        sock::set_option(line.stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger)
            .expect("SO_LINGER");
        drop(line);
        server.next_line(PATIENCE)
    });
    assert_eq!(over.as_deref(), Some("end"));
}

/// As whoever wants to be rid of a peer shuts it down.
#[test]
fn who_goes_on_in_the_ring_of_a_connection_that_is_shut_down_is_heard_no_more() {
    let (mut server, port) = alone("sink");
    let Flood { line, m, bell } = Flood::to(port);
    let over = peer::beside(Flood::pours(&m, &bell, 0x7f), || server.next_line(PATIENCE));
    assert_eq!(over.as_deref(), Some("end"));
    drop(line);
}

/// What the victim does after which the kernel gives the program nothing more, or not without another look.
const WAYS: [&str; 13] = [
    "key",
    "filter",
    "ttl",
    "child",
    "child-in-memory",
    "spawn",
    "message",
    "taking",
    "end",
    "end-of-child",
    "ring",
    "closing",
    "closing-in-ring",
];

fn read_later(said: &str) -> [&str; 3] {
    let words: Vec<_> = said.strip_prefix("later ").expect("how many").split(' ').collect();
    words.try_into().expect("octets, those of another connection, and an end")
}

/// What it took back, and did not send again, a filter might have let pass or not: nobody takes what came for all.
#[test]
fn who_is_killed_while_it_takes_back_what_a_filter_looks_at_ends_in_a_reset() {
    for sent_again in [100, 1000] {
        let mut server = Process::of(late_program(), &["late-filter"]);
        let Flood { line, m, bell } = Flood::to(port(&mut server));
        let ring = || {
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        };
        until("the victim has not read all", || {
            ring();
            m.out().path() == Path::Ring
        });
        let tail = m.out().t.tail.load(SeqCst);
        m.ring.copy_from_slice(tail, &[0x7f]);
        m.out().publish(tail + 1);
        ring();
        until("the victim reads no more", || {
            Head::from_raw(m.out().h.head.load(SeqCst)).position() == tail + 1
        });
        m.ring.copy_from_slice(tail + 1, &[1; 1000]);
        m.out().publish(tail + 1001);
        m.out().wa.flags.fetch_or(writer_flag::FLUSHING, SeqCst);
        assert_eq!(m.out().claim(), Ok(tail + 1));
        assert_eq!(line.say(&vec![1; sent_again]), sent_again);
        if sent_again == 1000 {
            m.out().wa.flags.fetch_and(!writer_flag::FLUSHING, SeqCst);
        }
        drop(line);
        let said = server.line("how it ended");
        let end = if sent_again == 1000 { "end" } else { "reset" };
        assert_eq!(read_later(&said), [&sent_again.to_string(), "0", end]);
    }
}

#[test]
fn of_what_comes_by_a_ring_that_was_taken_back_no_more_is_read_than_stood_there() {
    for way in WAYS {
        let mut server = Process::of(late_program(), &[way]);
        let port = port(&mut server);
        let Flood { line, m, bell } = Flood::to(port);
        // Whom the victim accepts next, if it does.
        let mut next = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
        next.write_all(&[b'w'; 100]).expect("octets");
        let said = peer::beside(Flood::pours(&m, &bell, 0x7f), || server.line(way));
        let [later, others, _] = read_later(&said);
        let others_come = way.starts_with("closing");
        assert_eq!(others == "100", others_come, "{way}: {others} octets of another connection");
        let mut heard = Vec::new();
        next.set_read_timeout(Some(PATIENCE)).expect("a limit");
        let end = next.read_to_end(&mut heard);
        if others_come {
            // What was left unread was the other one's: it is no reset.
            assert_eq!(
                (end.ok(), heard.as_slice()),
                (Some(1), &b"w"[..]),
                "{way}: what it says to whom has the number"
            );
        }
        // Behind another one's number there are none; else what stood in the ring.
        let most = if others_come { 0 } else { m.ring.size() };
        assert!(later.parse::<u64>().expect("a count") <= most, "{way}: {later} octets");
        drop(line);
    }
}

/// What a connection still has to say, as the kernel has no room for it, and the other end can change.
#[test]
fn what_waits_for_room_is_said_to_nobody_who_has_the_number_next() {
    let mut server = Process::of(late_program(), &["closing-full-in-ring"]);
    let port = port(&mut server);
    let Flood { line, m, bell } = Flood::to(port);
    let mut next = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("connect");
    m.inc().ra.ask.store(ask::RECALL, SeqCst);
    let tail = m.out().t.tail.load(SeqCst);
    m.ring.copy_from_slice(tail, &[0x7f]);
    m.out().publish(tail + 1);
    // The kernel's room is filled, and a ring begun that has more.
    let mut waiting = 0;
    until("the victim goes on", || {
        let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        std::thread::sleep(Duration::from_millis(50));
        let now = sock::inq(line.stream.as_raw_fd()).expect("FIONREAD");
        now > 0 && std::mem::replace(&mut waiting, now) == now
    });
    let (inc, size) = (m.inc(), m.ring.size());
    until("no ring begins", || {
        inc.ra.ask.store(ask::CONSENT, SeqCst);
        line.hear();
        inc.path() != Path::Kernel
    });
    let begun = inc.t.tail.load(SeqCst);
    until("nothing comes by the ring", || {
        let tail = inc.t.tail.load(SeqCst);
        inc.h.head.store(Head::new(tail, Path::Ring).raw(), SeqCst);
        tail > begun + size
    });
    // It is full, and all of it is unread again.
    until("the ring is not taken back", || {
        let tail = inc.t.tail.load(SeqCst);
        std::thread::sleep(Duration::from_millis(5));
        if inc.path() != Path::Kernel && inc.t.tail.load(SeqCst) == tail {
            inc.h.head.store(Head::new(tail - size, Path::Ring).raw(), SeqCst);
        }
        inc.path() == Path::Kernel
    });
    server.line("the victim");
    let mut heard = Vec::new();
    next.set_read_timeout(Some(PATIENCE)).expect("a limit");
    assert_eq!((next.read_to_end(&mut heard).ok(), heard.as_slice()), (Some(1), &b"w"[..]));
}

/// What poll told is not there when it is received: nobody else is served until then, where one thread serves all.
#[test]
fn an_allowed_user_cannot_keep_who_was_told_of_octets_waiting_for_them() {
    let name = "an_allowed_user_cannot_keep_who_was_told_of_octets_waiting_for_them";
    let Some(folder) = allowed::folder(name) else { return };
    let mut server = Process::by(folder.command(), &["poll"]);
    let port = port(&mut server);
    let mut dice = Dice(1);
    let mut left = Vec::new();
    for _ in 0..20 {
        let Flood { line, m, bell } = Flood::to(port);
        let (out, mut at) = (m.out(), m.out().t.tail.load(SeqCst));
        let goes = |at: u64, from: Path, to: Path| {
            let [from, to] = [from, to].map(|path| Head::new(at, path).raw());
            out.h.head.compare_exchange(from, to, SeqCst, SeqCst).is_ok()
        };
        m.ring.copy_from_slice(at, &[1; 64]);
        out.h.head.store(Head::new(at, Path::Ring).raw(), SeqCst);
        let mut spins = |least| (0..least + dice.below(1000)).for_each(|_| std::hint::spin_loop());
        // There is an octet for a moment, and then there was none. Once the victim waits for one it hears no bell.
        for _ in 0..10 {
            out.publish(at + 1);
            let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
            let until = Instant::now() + Duration::from_millis(10);
            while Instant::now() < until {
                if !goes(at, Path::Ring, Path::Kernel) {
                    at += 1;
                    out.h.head.store(Head::new(at, Path::Kernel).raw(), SeqCst);
                    out.publish(at + 1);
                }
                spins(10);
                goes(at, Path::Kernel, Path::Ring);
                spins(10);
            }
            goes(at, Path::Ring, Path::Kernel);
            m.listen(&line);
        }
        left.push((line, m));
    }
    let until = Instant::now() + Duration::from_secs(7);
    while let Some(line) = server.next_line(until.saturating_duration_since(Instant::now())) {
        assert_eq!(line, "end");
    }
    // Those that still wait say for how long they did.
    left.iter().for_each(|(line, _)| drop(line.stream.shutdown(std::net::Shutdown::Write)));
    while let Some(line) = server.next_line(Duration::from_secs(2)) {
        assert_eq!(line, "end");
    }
}

/// The victim goes on to something else. Where the ring ends then.
fn ends_echo(m: &Mapped, bell: &OwnedFd) -> u64 {
    let tail = m.out().t.tail.load(SeqCst);
    m.ring.copy_from_slice(tail, &[0x7f]);
    m.out().publish(tail + 1);
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
    tail + 1
}

/// Each receive gets what poll told, after a while.
#[test]
fn an_allowed_user_cannot_hold_one_receive_after_another() {
    let Some(folder) = allowed::folder("an_allowed_user_cannot_hold_one_receive_after_another") else {
        return;
    };
    let mut server = Process::by(folder.command(), &["octets"]);
    let Flood { line, m, bell } = Flood::to(port(&mut server));
    let at = ends_echo(&m, &bell);
    let shows = |at: u64, path: Path| m.out().h.head.store(Head::new(at, path).raw(), SeqCst);
    let mut heard = Vec::new();
    until("the echo does not end", || m.out().h.head.load(SeqCst) == Head::new(at, Path::Ring).raw());
    while heard.iter().all(|said| said == "received") && heard.len() < 5 {
        m.out().publish(at + 1);
        shows(at, Path::Ring);
        let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
        server.expect("octets", "a poll");
        shows(at, Path::Kernel);
        server.tell("go");
        std::thread::sleep(Duration::from_millis(900));
        line.say(&[1]);
        heard.push(server.line("a receive"));
    }
    assert_eq!(heard, ["received", "received", "Connection reset by peer"]);
}

/// Where there was room there is none by the time of the send.
#[test]
fn an_allowed_user_cannot_keep_who_was_told_of_room_waiting_for_it() {
    let name = "an_allowed_user_cannot_keep_who_was_told_of_room_waiting_for_it";
    let Some(folder) = allowed::folder(name) else { return };
    let mut server = Process::by(folder.command(), &["room"]);
    let Flood { line, m, bell } = Flood::to(port(&mut server));
    let (inc, size) = (m.inc(), m.ring.size());
    ends_echo(&m, &bell);
    let sends = |server: &mut Process| {
        server.expect("room", "a poll");
        server.tell("go");
    };
    let shows = |position: u64| inc.h.head.store(Head::new(position, Path::Ring).raw(), SeqCst);
    until("no ring begins", || {
        sends(&mut server);
        server.expect("sent", "a send to one who reads");
        inc.ra.ask.store(ask::CONSENT, SeqCst);
        line.hear();
        inc.path() != Path::Kernel
    });
    until("not enough comes by the ring", || {
        sends(&mut server);
        server.expect("sent", "a send to one who reads by the ring");
        let tail = inc.t.tail.load(SeqCst);
        shows(tail);
        tail > size
    });
    // It is full, for a moment half of it is read, and by the time of the send nothing was; and reading goes on.
    server.expect("room", "a poll");
    server.tell("fill");
    server.expect("sent", "sends for which there is room");
    let reads = || {
        inc.h.carrier_read.fetch_add(1, SeqCst);
        let _ = rustix::io::write(&bell, &1u64.to_ne_bytes());
    };
    let said = peer::beside(reads, || {
        let tail = inc.t.tail.load(SeqCst);
        shows(tail - size / 2);
        server.expect("room", "a poll");
        shows(tail - size);
        server.tell("go");
        server.line_within(Duration::from_secs(1))
    });
    assert_eq!((said.as_deref(), inc.path()), (Some("sent"), Path::Ring));
}

/// Each thread is told of what another one gets, and waits: nobody has taken anything back.
#[test]
fn who_is_told_of_what_another_thread_receives_is_told_of_no_reset() {
    let name = "who_is_told_of_what_another_thread_receives_is_told_of_no_reset";
    let Some(folder) = allowed::folder(name) else { return };
    let mut server = Process::by(folder.command(), &["herd"]);
    let port = port(&mut server);
    let mut command = Command::new(program());
    command.env("LD_PRELOAD", programs::library()).env("BYPATH_ALLOW_UID", allowed::ANNE.to_string());
    let mut client = Process::by(command, &["drip", &port.to_string()]);
    client.expect("dripped", "the other end");
}
