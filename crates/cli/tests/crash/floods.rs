//! Others come to have a socket in the middle of a flood: what was sent is read once, by whoever has the socket then, or counted as lost: by the
//! kernel at its queue, by a writer at the mailbox.

use crate::mailbox::{Memory, OCTETS, Reader, Writer, meet, numbers, until};
use crate::program::Place;
use bypath_shm::mailbox::phase;
use serde_json::Value;
use std::net::UdpSocket;
use std::process::Command;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

/// Datagrams that lie in the ring at least when the recall begins.
const WAITING: u64 = 20;
/// Those that are read while the flood goes on, afterwards.
const SOME: u64 = 500;
/// How long a writer waits for a reader that recalls, in microseconds: behind that it sends ahead of what is recalled.
const WAIT_US: u64 = 20_000;

/// What its sockets have lost at full mailboxes.
pub fn lost(writer: &Writer) -> u64 {
    let pid = writer.program.pid().as_raw_nonzero().to_string();
    let output =
        Command::new(env!("CARGO_BIN_EXE_bypath")).args(["ss", "-u", "--json", "--pid", &pid]).output();
    let output = output.expect("bypath starts");
    let list: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {output:?}"));
    list[0]["lost"]["tx"].as_u64().unwrap_or_else(|| panic!("{list}"))
}

/// Sends again and again, until it [ends].
pub fn floods(writer: &mut Writer) {
    writer.program.tell("flood");
    writer.program.expect("flooding");
}

pub fn ends(writer: &mut Writer) {
    writer.program.tell("");
    writer.has_sent();
}

/// Whether writers use it.
fn is_open(memory: &Memory) -> bool {
    memory.0.mailbox().gate.0.load(SeqCst) & 3 == phase::OPEN
}

/// Its mailbox, once at least so many are in it, while writers go on and nobody reads. `alone`: of one writer, whose next ones go there, too, as the
/// gate is open, and before which the kernel has nothing. `None`: they go by the kernel.
fn flooded(reader: &Reader, held: &UdpSocket, count: u64, alone: bool) -> Option<Memory> {
    let memory = reader.mailbox()?;
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(50) {
        if memory.unread() >= count && (!alone || is_open(&memory) && held.peek(&mut [0; OCTETS]).is_err()) {
            return Some(memory);
        }
    }
    None
}

/// Lets all send until enough lies in the ring, as nobody reads.
#[track_caller]
fn begins(reader: &mut Reader, writers: &mut [Writer]) -> Memory {
    let mut found = None;
    let held = reader.socket();
    until("the ring is full enough", || {
        while reader.looks() > 0 {}
        writers.iter_mut().for_each(floods);
        found = flooded(reader, &held, WAITING, writers.len() == 1);
        if found.is_none() {
            writers.iter_mut().for_each(ends);
        }
        found.is_some()
    });
    found.expect("a mailbox")
}

/// Whether all came in their order: of one writer they do, unless a machine that stood still has let it go on before the recall was over.
#[track_caller]
fn flood(action: &str, how: &str, bound: &[&str]) -> bool {
    let place = Place::new();
    let mut reader = Reader::start(&place, "reader", 0, how, &[]);
    let mut writers: Vec<Writer> =
        (0..).zip(bound).map(|(id, bound)| Writer::start(&place, id, reader.port, bound, &[])).collect();
    for writer in &mut writers {
        meet(&mut reader, writer);
    }
    let alone = writers.len() == 1;
    let memory = begins(&mut reader, &mut writers);
    reader.program.tell(action);
    match action {
        "inherit" => drop(reader.program.expect("took")),
        _ => reader.is_there(),
    }
    let left = memory.unread();
    assert!(left == 0 || !alone, "{left} were not recalled though the kernel had nothing");
    reader.program.tell(&format!("take {SOME}"));
    reader.program.expect("got");
    writers.iter_mut().for_each(ends);
    while reader.looks() > 0 {}
    if action == "heir" {
        // What has stayed in the ring is its parent's.
        reader.program.tell("end");
        reader.program.expect("status 0");
        while reader.looks() > 0 {}
    }
    reader.program.tell("drops");
    let [drops] = numbers(&mut reader.program, "drops");
    let (mut sent, mut received, mut dropped) = (0, 0, drops);
    for writer in &writers {
        let seen = reader.seen(writer.id);
        assert_eq!((seen.twice, seen.damaged), (0, 0), "{action}: {seen:?}");
        sent += writer.sent;
        received += seen.received;
        dropped += lost(writer);
    }
    assert_eq!(
        received + dropped,
        sent,
        "{action}: {received} received, {drops} dropped by the kernel, {dropped} in all"
    );
    let in_order = writers.iter().all(|writer| reader.seen(writer.id).disorder == 0);
    let waited = writers.iter().any(|writer| writer.longest >= WAIT_US);
    assert!(in_order || waited || !alone, "{action}: {:?}", reader.seen(0));
    writers.into_iter().for_each(|writer| writer.program.finish());
    reader.program.finish();
    in_order
}

/// One writer: in its order.
#[track_caller]
fn one(action: &str, how: &str) {
    let mut in_order = 0;
    for bound in ["connected", "bound", "everywhere"].into_iter().cycle().take(12) {
        // Who has its port at every address is stood in for only where the mailbox was one that could be inherited.
        if bound != "everywhere" || how == "passed" {
            in_order += u32::from(flood(action, how, &[bound]));
        }
        if in_order == 3 {
            return;
        }
    }
    assert_ne!(in_order, 0, "never in order");
}

/// Several, whose order is not promised where one of them has the ring's lock.
#[track_caller]
fn several(action: &str, how: &str) {
    let bound: &[&str] = if how == "passed" {
        &["connected", "bound", "everywhere", "everywhere"]
    } else {
        &["connected", "bound", "connected", "bound"]
    };
    for _ in 0..3 {
        flood(action, how, bound);
    }
}

#[test]
fn a_socket_is_made_inheritable_in_a_flood() {
    one("inherit", "kept");
}

#[test]
fn a_reader_becomes_another_image_in_a_flood() {
    one("exec", "passed");
}

#[test]
fn a_child_becomes_a_reader_in_a_flood() {
    one("heir", "passed");
}

#[test]
fn a_socket_is_made_inheritable_in_a_flood_of_several() {
    several("inherit", "kept");
}

#[test]
fn a_reader_becomes_another_image_in_a_flood_of_several() {
    several("exec", "passed");
}

#[test]
fn a_child_becomes_a_reader_in_a_flood_of_several() {
    several("heir", "passed");
}
