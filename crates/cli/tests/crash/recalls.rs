//! kill -9 and SIGSTOP while the datagrams of a mailbox are recalled (docs/udp.md, "Recall"): of the reader at each point, and of a writer in
//! its turn. What is lost is what the reader had in hand, or had not sent yet; nobody waits longer than is said there; no port stays taken.

use crate::mailbox::{Memory, Reader, Writer, datagram, fill, has_all, meet, numbers, queued, until};
use crate::program::Place;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};
use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

/// Datagrams that wait when the recall begins.
const WAITING: u64 = 20;
/// How long a writer and a reader wait for each other, in microseconds (`WAIT_MS` in recall.rs).
const WAIT_US: u64 = 20_000;
/// What a busy machine may add to that.
const LATE_US: u64 = 1_500_000;
/// The same of a processor's time.
const MORE_US: u64 = 20_000;

/// Every point that is tested here: the last one is a writer's.
pub const POINTS: &[&str] =
    &["recall-begun", "writers-out", "stood-in", "taken-out", "sent-again", "recall-over", "in-its-turn"];

/// Whether a reader stands in for its writers at this address, as /proc/net/udp has it: in 127.64.0.0/10.
fn is_home(address: &str) -> bool {
    u32::from_str_radix(address, 16).is_ok_and(|octets| u32::from_be(octets) & 0xffc0_0000 == 0x7f40_0000)
}

/// What makes others come to have the socket, how the reader has made it, and how the writer is bound: stood in for in each of the ways.
const WAYS: [(&str, &str, &str); 4] = [
    ("inherit", "kept", "connected"),
    ("rest", "kept", "bound"),
    ("exec", "passed", "everywhere"),
    ("exec", "passed", "connected"),
];

/// Whether a socket has that port, at such an address.
fn is_taken(is_such: fn(&str) -> bool, port: u16) -> bool {
    let all = std::fs::read_to_string("/proc/net/udp").expect("sockets");
    all.lines().skip(1).any(|line| {
        let own = line.split_whitespace().nth(1).and_then(|own| own.split_once(':')).expect("an address");
        own.1 == format!("{port:04X}") && is_such(own.0)
    })
}

fn signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).expect("a child");
}

/// What is sent later arrives, and by memory but where a program has inherited the socket.
#[track_caller]
fn goes_on(action: &str, reader: &mut Reader, writer: &mut Writer) {
    if action == "exec" {
        writer.sends(WAITING);
    } else {
        meet(reader, writer);
    }
    has_all(reader, writer, 0);
}

/// Waits until it is stopped.
#[track_caller]
fn is_stopped(pid: Pid) {
    let options = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    let status = waitid(WaitId::Pid(pid), options).expect("waitid").expect("a state");
    assert!(status.stopped(), "it ended before it was stopped");
}

/// A reader that is killed at `point`, after `sent` of what waits.
#[track_caller]
fn reader_dies(point: &str, sent: u64) {
    for (action, how, bound) in WAYS {
        let what = format!("{point}, {action}, {bound}");
        let place = Place::new();
        let mut reader = Reader::start(&place, "reader", 0, how, &[("BYPATH_TEST_KILL", point)]);
        let mut writer = Writer::start(&place, 0, reader.port, bound, &[]);
        meet(&mut reader, &mut writer);
        drop(fill(&mut reader, &mut writer, WAITING));
        let held = reader.socket();
        let port = reader.port;
        reader.program.tell(action);
        assert!(reader.program.was_killed(), "{what}");
        // What the kernel has is what the reader had sent, in the writer's name and order.
        let from = SocketAddr::from(([127, 0, 0, 1], writer.port));
        let expected: Vec<_> = (0..sent).map(|i| (from, writer.sent - WAITING + i)).collect();
        assert_eq!(queued(&held), expected, "{what}");
        // Its writer goes on by the kernel, after one wait.
        writer.sends(5);
        assert!(writer.longest < WAIT_US + LATE_US, "{what}: {} us", writer.longest);
        assert_eq!(queued(&held).len(), 5, "{what}");
        drop(held);
        // No port stays taken: neither the reader's, nor where it stood in for the writer.
        let mut again = Reader::start(&place, "again", port, how, &[]);
        assert!(bound == "everywhere" || !is_taken(is_home, writer.port), "{what}");
        let before = again.seen(0).received;
        meet(&mut again, &mut writer);
        drop(fill(&mut again, &mut writer, WAITING));
        let seen = again.seen(0);
        assert!(seen.received > before && (seen.twice, seen.damaged) == (0, 0), "{what}: {seen:?}");
        let its = writer.port;
        writer.program.finish();
        assert!(!is_taken(|_| true, its), "{what}: the writer's port");
        again.program.finish();
    }
}

macro_rules! reader_dies {
    ($($test:ident $point:literal $sent:expr;)*) => {$(
        #[test]
        fn $test() {
            reader_dies($point, $sent);
        }
    )*};
}

reader_dies! {
    as_a_recall_begins_the_reader_dies "recall-begun" 0;
    with_the_writers_lock_the_reader_dies "writers-out" 0;
    as_it_stands_in_the_reader_dies "stood-in" 0;
    with_the_first_in_hand_the_reader_dies "taken-out:1" 0;
    with_the_seventh_in_hand_the_reader_dies "taken-out:7" 6;
    after_the_first_the_reader_dies "sent-again:1" 1;
    after_the_seventh_the_reader_dies "sent-again:7" 7;
    after_all_the_reader_dies "recall-over" WAITING;
}

/// A vfork child that recalls for its parent, and dies: the parent has the ring still, and reads the rest there.
#[test]
fn a_child_that_dies_as_it_recalls_leaves_the_rest_to_its_parent() {
    for (point, lost) in [
        ("recall-begun:1:child", 0),
        ("writers-out:1:child", 0),
        ("stood-in:1:child", 0),
        ("taken-out:1:child", 1),
        ("taken-out:7:child", 1),
        ("sent-again:7:child", 0),
        ("recall-over:1:child", 0),
    ] {
        let place = Place::new();
        let mut reader = Reader::start(&place, "reader", 0, "passed", &[("BYPATH_TEST_KILL", point)]);
        let mut writer = Writer::start(&place, 0, reader.port, "everywhere", &[]);
        meet(&mut reader, &mut writer);
        drop(fill(&mut reader, &mut writer, WAITING));
        reader.program.tell("vfork");
        reader.program.expect("status 9");
        has_all(&mut reader, &writer, lost);
        writer.sends(WAITING);
        assert!(writer.longest < WAIT_US + LATE_US, "{point}: {} us", writer.longest);
        has_all(&mut reader, &writer, lost);
        writer.program.finish();
        reader.program.finish();
    }
}

/// Brings a writer to its turn, where it stands, while what `other` has sent lies in the ring, and nothing in the kernel's queue.
#[track_caller]
fn stands_in_its_turn(reader: &mut Reader, other: &mut Writer, writer: &mut Writer) -> Memory {
    let options =
        WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
    let pid = writer.program.pid();
    let mut memory = None;
    until("it is in its turn", || {
        memory = Some(fill(reader, other, WAITING));
        writer.program.tell("send 1");
        let stands = || waitid(WaitId::Pid(pid), options).expect("waitid").is_some();
        until("it has sent, or stands", || writer.program.has_spoken() || stands());
        if stands() {
            return true;
        }
        writer.has_sent();
        false
    });
    memory.expect("a mailbox")
}

/// The reader recalls what was whole before a writer stood still in its turn, and waits for that one no longer than it says.
#[track_caller]
fn writer_stands(event: &str) {
    for (action, how, bound) in WAYS {
        let what = format!("{event}, {action}, {bound}");
        let place = Place::new();
        let mut reader = Reader::start(&place, "reader", 0, how, &[]);
        let mut other = Writer::start(&place, 1, reader.port, bound, &[]);
        meet(&mut reader, &mut other);
        let mut writer = Writer::start(&place, 0, reader.port, bound, &[(event, "in-its-turn")]);
        let memory = stands_in_its_turn(&mut reader, &mut other, &mut writer);
        let begun = Instant::now();
        reader.program.tell(action);
        match action {
            "inherit" => {
                let [wall, processor] = numbers(&mut reader.program, "took");
                assert!((WAIT_US..WAIT_US + LATE_US).contains(&wall), "{what}: {wall} us");
                assert!(processor < WAIT_US + MORE_US, "{what}: {processor} us of a processor");
            }
            "exec" => reader.is_there(),
            _ => drop(reader.program.expect("status 0")),
        }
        let took = begun.elapsed().as_micros() as u64;
        assert!((WAIT_US..WAIT_US + LATE_US).contains(&took), "{what}: {took} us");
        assert_eq!(memory.unread(), 0, "{what}");
        has_all(&mut reader, &other, 0);
        assert_eq!(reader.seen(other.id).disorder, 0, "{what}");
        if event == "BYPATH_TEST_STOP" {
            signal(writer.program.pid(), Signal::CONT);
            writer.has_sent();
            has_all(&mut reader, &writer, 0);
            goes_on(action, &mut reader, &mut writer);
            writer.program.finish();
        } else {
            has_all(&mut reader, &writer, 0);
            let its = writer.port;
            assert!(writer.program.was_killed());
            assert!(!is_taken(|_| true, its), "{what}: its port");
        }
        goes_on(action, &mut reader, &mut other);
        other.program.finish();
        reader.program.finish();
    }
}

#[test]
fn a_writer_that_dies_in_its_turn_is_waited_for_as_long_as_is_said() {
    writer_stands("BYPATH_TEST_KILL");
}

#[test]
fn a_writer_that_is_stopped_in_its_turn_is_waited_for_as_long_as_is_said() {
    writer_stands("BYPATH_TEST_STOP");
}

/// What the kernel has may be newer than what is in the ring: then all of that stays, and is read first, the record of a writer that stood
/// in its turn meanwhile as well.
#[test]
fn what_stays_is_read_as_is_what_a_writer_had_in_hand() {
    let place = Place::new();
    let mut reader = Reader::start(&place, "reader", 0, "kept", &[]);
    let mut other = Writer::start(&place, 1, reader.port, "connected", &[]);
    meet(&mut reader, &mut other);
    let stops = [("BYPATH_TEST_STOP", "in-its-turn")];
    let mut writer = Writer::start(&place, 0, reader.port, "connected", &stops);
    let memory = stands_in_its_turn(&mut reader, &mut other, &mut writer);
    let plain = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    plain.send_to(&datagram(2, 0), ("127.0.0.1", reader.port)).expect("a send");
    reader.program.tell("inherit");
    reader.program.expect("took");
    assert_eq!(memory.unread(), WAITING);
    signal(writer.program.pid(), Signal::CONT);
    writer.has_sent();
    for one in [&other, &writer] {
        has_all(&mut reader, one, 0);
        assert_eq!(reader.seen(one.id).disorder, 0);
    }
    assert_eq!((reader.seen(2).received, reader.seen(2).twice), (1, 0));
    for program in [other.program, writer.program, reader.program] {
        program.finish();
    }
}

/// Who sends while the reader stands still in a recall waits for it once, and goes on by the kernel; nothing is missing when that goes on.
#[test]
fn a_reader_that_is_stopped_as_it_recalls_is_waited_for_once() {
    /// With those that wait as many as the kernel queues.
    const MORE: u64 = 200;
    for point in ["recall-begun", "writers-out", "stood-in", "taken-out:7", "sent-again:20", "recall-over"] {
        for (action, how, bound) in WAYS {
            let what = format!("{point}, {action}, {bound}");
            let place = Place::new();
            let mut reader = Reader::start(&place, "reader", 0, how, &[("BYPATH_TEST_STOP", point)]);
            let mut writer = Writer::start(&place, 0, reader.port, bound, &[]);
            meet(&mut reader, &mut writer);
            drop(fill(&mut reader, &mut writer, WAITING));
            reader.program.tell(action);
            is_stopped(reader.program.pid());
            let begun = Instant::now();
            writer.sends(MORE);
            assert!((WAIT_US..WAIT_US + LATE_US).contains(&writer.longest), "{what}: {} us", writer.longest);
            let (took, each) = (begun.elapsed(), Duration::from_micros(MORE * WAIT_US));
            assert!(took < each / 2, "{what}: {took:?}");
            signal(reader.program.pid(), Signal::CONT);
            if action == "exec" {
                reader.is_there();
            } else {
                reader.program.line();
            }
            has_all(&mut reader, &writer, 0);
            goes_on(action, &mut reader, &mut writer);
            writer.program.finish();
            reader.program.finish();
        }
    }
}
