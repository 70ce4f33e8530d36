//! kill -9 while a sender and a receiver of datagrams meet, and while one is read (docs/udp.md, "Crash points"): who is left goes on by the kernel,
//! and by memory with who comes next; nothing comes twice, or damaged, and no port stays taken.

use crate::mailbox::{Reader, Writer, has_all, meet, until};
use crate::program::{Place, Program};
use rustix::process::{WaitId, WaitIdOptions, waitid};
use std::net::UdpSocket;

/// Points of receivers, and of senders.
pub const POINTS: &[&str] = &[
    "mailbox-made",
    "mailbox-asked-for",
    "mailbox-given",
    "datagram-copied",
    "datagram-released",
    "mailbox-called-for",
    "mailbox-mapped",
];

/// Whether it has ended, which is not taken from who waits for it.
fn is_over(program: &Program) -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    waitid(WaitId::Pid(program.pid()), options).expect("waitid").is_some()
}

#[track_caller]
fn reader_dies(point: &str) {
    let place = Place::new();
    let mut reader = Reader::start(&place, "reader", 0, "kept", &[("BYPATH_TEST_KILL", point)]);
    let mut writer = Writer::start(&place, 0, reader.port, "connected", &[]);
    let (held, port) = (reader.socket(), reader.port);
    until("it comes to the point", || {
        reader.program.tell("look");
        writer.sends(20);
        // It answers, or it is gone.
        while !reader.program.has_spoken() && !is_over(&reader.program) {}
        let lives = !is_over(&reader.program);
        if lives {
            reader.program.expect("got");
        }
        !lives
    });
    assert!(reader.program.was_killed(), "{point}");
    // By the kernel, which has the socket still, once the writer has seen that nobody reads.
    while held.recv(&mut [0; 100]).is_ok() {}
    until("the kernel has them", || {
        writer.sends(5);
        std::iter::from_fn(|| held.recv(&mut [0; 100]).ok()).count() == 5
    });
    drop(held);
    goes_on_with_another(&place, &mut writer, port);
    writer.program.finish();
}

/// Another receiver has the port now.
#[track_caller]
fn goes_on_with_another(place: &Place, writer: &mut Writer, port: u16) {
    let mut again = Reader::start(place, "again", port, "kept", &[]);
    let before = again.seen(0).received;
    meet(&mut again, writer);
    let seen = again.seen(0);
    assert!(seen.received > before && (seen.twice, seen.damaged) == (0, 0), "{seen:?}");
    again.program.finish();
}

#[test]
fn as_it_makes_a_mailbox_the_receiver_dies() {
    reader_dies("mailbox-made");
}

#[test]
fn as_it_gives_a_mailbox_the_receiver_dies() {
    reader_dies("mailbox-asked-for");
    reader_dies("mailbox-given");
}

#[test]
fn as_it_reads_a_datagram_the_receiver_dies() {
    for point in ["datagram-copied:1", "datagram-copied:7", "datagram-released:1", "datagram-released:7"] {
        reader_dies(point);
    }
}

#[test]
fn as_it_gets_a_mailbox_the_sender_dies() {
    for point in ["mailbox-called-for", "mailbox-mapped"] {
        let place = Place::new();
        let mut reader = Reader::start(&place, "reader", 0, "kept", &[]);
        let writer = Writer::start(&place, 0, reader.port, "connected", &[("BYPATH_TEST_KILL", point)]);
        let (mut program, port) = (writer.program, writer.port);
        until("it comes to the point", || {
            program.tell("send 20");
            while !program.has_spoken() && !is_over(&program) {
                reader.looks();
            }
            let lives = !is_over(&program);
            if lives {
                program.expect("sent");
            }
            !lives
        });
        assert!(program.was_killed(), "{point}");
        assert!(UdpSocket::bind(("127.0.0.1", port)).is_ok(), "{point}: its port is taken");
        // Others meet the receiver, more often than it has places.
        for id in 1..4 {
            let mut other = Writer::start(&place, id, reader.port, "connected", &[]);
            meet(&mut reader, &mut other);
            has_all(&mut reader, &other, 0);
            other.program.finish();
        }
        let seen = reader.seen(0);
        assert_eq!((seen.twice, seen.damaged, seen.disorder), (0, 0, 0), "{point}");
        reader.program.finish();
    }
}
