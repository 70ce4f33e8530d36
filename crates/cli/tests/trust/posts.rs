//! Attacks on mailboxes by seed on one victim, one to four of them at once: see `fake.rs` for what they do. After each the victim lives, has
//! told of nothing that cannot be, gets what the kernel has for the socket that was attacked, or sends by it again, and its other
//! sockets are served as ever.
//!
//! `BYPATH_TRUST_SECONDS` and `BYPATH_TEST_SEED` are as in `fuzz.rs`.

use crate::allowed::skip;
use crate::fake::{self, End, Fake, Reached};
use crate::fuzz::{LEFT, at_once, number, seconds, together, turn};
use crate::known::until;
use crate::mail;
use crate::peer;
use crate::victim::{PATIENCE, Process, mail_program};
use bypath_shm::region::MailboxMap;
use bypath_sys::{poll, unix};
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, OwnedFd};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

/// Attacks on one process: it makes 4096 mailboxes and routes in its life, and an attack may cost it a few.
const EACH: u64 = 500;
/// What only an honest sender says, and by the kernel.
const END: [u8; 8] = [0xff, 0xfe, 0xfd, 0xfc, 0xfb, 0xfa, 0xf9, 0xf8];

/// The program that is attacked, with an honest process that talks to another socket of it.
struct Office {
    server: Process,
    talker: Process,
    plain: UdpSocket,
}

impl Office {
    fn start() -> Office {
        let mut server = Process::of(mail_program(), &[]);
        let line = server.line("the victim");
        let port = line.strip_prefix("echo ").expect("a port").to_owned();
        let mut talker = Process::of(mail_program(), &["talk", &port]);
        talker.expect("talking", "the honest process");
        Office { server, talker, plain: mail::socket() }
    }

    fn receive(&mut self, how: &str, what: &str) -> u16 {
        self.server.tell(&format!("receive {how}"));
        let line = self.server.line(what);
        line.strip_prefix("port ")
            .and_then(|port| port.parse().ok())
            .unwrap_or_else(|| panic!("{what}: {line}"))
    }

    /// What the kernel brings is received: one of it ends the socket.
    #[track_caller]
    fn end_receiver(&mut self, port: u16, what: &str) {
        let until = Instant::now() + PATIENCE;
        loop {
            let _ = self.plain.send_to(&END, ("127.0.0.1", port));
            match self.server.line_within(Duration::from_millis(10)) {
                Some(line) => return assert_eq!(line, "end", "{what}"),
                None => assert!(
                    Instant::now() < until,
                    "{what}: what the kernel has is not read: {}",
                    self.server.describe()
                ),
            }
        }
    }

    /// What it sends comes by the kernel again.
    #[track_caller]
    fn sends_by_kernel(&mut self, socket: &UdpSocket, what: &str) {
        while socket.recv(&mut [0; 64]).is_ok() {}
        socket.set_nonblocking(false).expect("one that waits");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time");
        let mut room = vec![0; 65_536];
        // The queue had room for a few that were on the way.
        for _ in 0..8 {
            let n = socket.recv(&mut room).unwrap_or_else(|e| {
                panic!("{what}: nothing comes by the kernel: {e}: {}", self.server.describe())
            });
            assert!(room[..n].iter().all(|octet| *octet == 0x91), "{what}: octets that it has not sent");
        }
    }

    #[track_caller]
    fn is_well(&mut self, what: &str) {
        self.server.is_well(what);
        self.talker.is_well(&format!("{what}: the honest process"));
    }
}

/// Kinds of receivers.
const HOW: [&str; 5] = ["threads", "timed", "poll", "epoll", "edges"];

/// All of them on one socket.
fn on_receiver(office: &mut Office, seeds: &[u64]) -> Vec<Reached> {
    let how = HOW[seeds[0] as usize % HOW.len()];
    let what = format!("{how}, seeds {seeds:?}");
    let port = office.receive(how, &what);
    // An honest writer shares the mailbox with the liar.
    let with_sender = seeds[0].is_multiple_of(3);
    if with_sender {
        office.server.tell(&format!("send {port}"));
        office.server.expect("sending", &what);
    }
    let pid = office.server.pid();
    let reached = together(seeds, |seed| {
        let mut fake = Fake::new(End::Sender(port), mail::socket(), pid, seed);
        fake.run();
        fake.end().1
    });
    if with_sender {
        office.server.tell("stop");
        office.server.expect("sent", &what);
    }
    office.end_receiver(port, &what);
    office.is_well(&what);
    reached
}

/// Each on a socket of its own.
fn on_sender(office: &mut Office, seeds: &[u64]) -> Vec<Reached> {
    let what = format!("senders, seeds {seeds:?}");
    let sockets: Vec<UdpSocket> = seeds.iter().map(|_| mail::socket()).collect();
    for socket in &sockets {
        office.server.tell(&format!("send {}", mail::port_of(socket)));
        office.server.expect("sending", &what);
    }
    let pid = office.server.pid();
    let all: Vec<usize> = (0..seeds.len()).collect();
    let ends = together(&all, |at| {
        let socket = sockets[at].try_clone().expect("a descriptor");
        let mut fake = Fake::new(End::Receiver, socket, pid, seeds[at]);
        fake.run();
        fake.end()
    });
    let mut reached = Vec::new();
    for (socket, one) in &ends {
        office.sends_by_kernel(socket, &what);
        reached.push(*one);
    }
    office.server.tell("stop");
    for _ in seeds {
        office.server.expect("sent", &what);
    }
    office.is_well(&what);
    reached
}

fn attacks(one: fn(&mut Office, &[u64]) -> Vec<Reached>) {
    let _turn = turn();
    let end = Instant::now() + Duration::from_secs(seconds());
    let mut seeds = number("BYPATH_TEST_SEED").unwrap_or(1)..;
    let (mut rounds, mut times, mut reached) = (0, 0, Reached::default());
    // How many get to the ring is the machine's affair, as its gate is open while the victim runs.
    let goes_on = |ring: u64| {
        let now = Instant::now();
        now < end || ring == 0 && now < end + PATIENCE
    };
    while goes_on(reached.ring) {
        let mut office = Office::start();
        let (before, next) = (office.server.descriptors(), rounds + EACH);
        while rounds < next {
            let now: Vec<u64> = seeds.by_ref().take(at_once(times)).collect();
            times += 1;
            for one in one(&mut office, &now) {
                reached.mapped += one.mapped;
                reached.ring += one.ring;
                rounds += 1;
            }
            if !goes_on(reached.ring) {
                break;
            }
        }
        let left = office.server.descriptors().saturating_sub(before);
        assert!(left <= LEFT, "{left} descriptors are left");
    }
    println!("{rounds} attacks, {reached:?}");
    // An attack that does not get as far as memory attacks nothing.
    assert!(reached.mapped * 4 > rounds && reached.ring > 0, "{reached:?} of {rounds}");
}

#[test]
fn receivers_survive_hostile_senders() {
    attacks(on_receiver);
}

#[test]
fn senders_survive_hostile_receivers() {
    attacks(on_sender);
}

/// Who writes more than anybody reads, whatever the gate says, does not keep the receiver from what the kernel has.
#[test]
fn a_flood_that_never_ends_hides_nothing_of_the_kernels() {
    let mut office = Office::start();
    for (how, seed) in HOW.into_iter().zip(0..) {
        let what = format!("{how}, flooded");
        let port = office.receive(how, &what);
        let (socket, mut dice) = (mail::socket(), crate::dice::Dice(seed));
        let shared = (0..20).find_map(|_| mail::ask(&socket, port, &mut dice));
        let mail::Shared { map, head, .. } = shared.expect("the victim's mailbox");
        let (mailbox, size) = (map.mailbox(), map.ring().size());
        fake::fill(&map.ring(), &head);
        let (start, is_over) = (mailbox.head.0.load(Relaxed), AtomicBool::new(false));
        let before = std::thread::scope(|scope| {
            let _over = Over(&is_over);
            for _ in 0..2 {
                scope.spawn(|| {
                    while !is_over.load(Relaxed) {
                        fake::keep_full(mailbox, size);
                    }
                });
            }
            until("the victim does not read the flood", || {
                // What sleeps in the kernel looks when it wakes.
                let _ = socket.send_to(b"look", ("127.0.0.1", port));
                mailbox.head.0.load(Relaxed) != start
            });
            let before = mailbox.head.0.load(Relaxed);
            office.end_receiver(port, &what);
            before
        });
        let read = mailbox.head.0.load(Relaxed).wrapping_sub(before);
        // Four times what the kernel's queue would hold, which is an eighth of the ring, and what was read before it had anything.
        assert!(
            read <= size / 2,
            "{what}: {read} octets of a ring of {size} were read before what the kernel had"
        );
        office.is_well(&what);
    }
}

/// Memory that can shrink, or that may not be there, is no mailbox: who sends there hangs up.
#[test]
fn memory_that_may_go_away_is_no_mailbox() {
    let mut office = Office::start();
    let size = 4096 + 65_536;
    let shrinks = peer::memfd(0, size, 0);
    let read_only = peer::memfd(0, size, peer::SEALED | libc::F_SEAL_WRITE);
    let good = peer::memfd(0, size, peer::SEALED);
    for (kind, memory) in
        [("shrinks", shrinks), ("read only", read_only), ("huge", peer::huge()), ("good", good)]
    {
        let Some(memory) = memory else {
            skip("posts::memory_that_may_go_away_is_no_mailbox", "no memfd of huge pages here");
            continue;
        };
        let socket = mail::socket();
        office.server.tell(&format!("send {}", mail::port_of(&socket)));
        office.server.expect("sending", kind);
        let channel = mail::asked(&socket).expect("the victim asks");
        assert!(peer::send(&channel, &mail::welcome(212_992, 0, 0), &[&memory]));
        let end = Instant::now() + Duration::from_secs(if kind == "good" { 1 } else { 20 });
        let mut hung_up = false;
        while !hung_up && Instant::now() < end {
            let _ = socket.recv(&mut [0; 64]);
            hung_up = unix::peek(channel.as_raw_fd(), &mut [0]) == Some(0);
        }
        assert_eq!(hung_up, kind != "good", "{kind}");
        drop(channel);
        office.sends_by_kernel(&socket, kind);
        office.server.tell("stop");
        office.server.expect("sent", kind);
        office.is_well(kind);
    }
}

/// Who lets itself be called and says nothing takes none of the eight places that a socket has for whom it sends to.
#[test]
fn a_receiver_that_never_answers_is_waited_for_ten_seconds() {
    let mut office = Office::start();
    let socket = mail::socket();
    office.server.tell(&format!("send {}", mail::port_of(&socket)));
    office.server.expect("sending", "to who is silent");
    let channel = mail::asked(&socket).expect("the victim asks");
    let begun = Instant::now();
    let mut hung_up = false;
    while !hung_up && begun.elapsed() < Duration::from_secs(30) {
        let _ = socket.recv(&mut [0; 64]);
        hung_up = unix::peek(channel.as_raw_fd(), &mut [0]) == Some(0);
    }
    assert!(hung_up, "it waits after {:?}", begun.elapsed());
    assert!(begun.elapsed() > Duration::from_secs(8), "it has not waited: {:?}", begun.elapsed());
    drop(channel);
    office.sends_by_kernel(&socket, "to who is silent");
    office.server.tell("stop");
    office.server.expect("sent", "to who is silent");
    office.is_well("to who is silent");
}

/// As many senders as a process likes to be, and as there are places for at a socket.
#[test]
fn senders_without_number_leave_descriptors_to_others() {
    let (most, room) = (256, 64);
    let mut limited = Command::new("prlimit");
    limited.arg(format!("--nofile={most}")).arg(mail_program());
    limited.env("LD_PRELOAD", crate::programs::library());
    let mut server = Process::by(limited, &[]);
    let line = server.line("the victim");
    let echo = line.strip_prefix("echo ").expect("a port");
    server.tell("receive poll");
    let line = server.line("the socket that is attacked");
    let port = line.strip_prefix("port ").and_then(|port| port.parse().ok()).expect("a port");
    let ask = |_| {
        let socket = mail::socket();
        mail::ask_well(&socket, port).map(|shared| (socket, shared))
    };
    let given: Vec<_> = (0..64).map_while(ask).collect();
    assert!((room / 4..=room / 2).contains(&given.len()), "{} mailboxes", given.len());
    let honest = Process::of(mail_program(), &["talk", echo]);
    until("nothing is left for an honest process", || honest.maps("bypath-mailbox") > 1);
}

/// A socket whose last close waits stays unread in the channel of a sender: who is gone, who is there when the receiver's socket is closed.
#[test]
fn what_lingers_in_a_senders_channel_holds_no_receiver_up() {
    let mut office = Office::start();
    let asked = |port| mail::ask_well(&mail::socket(), port).expect("the victim's mailbox").channel;
    for is_gone in [true, false] {
        let what = format!("what lingers, and its sender is gone: {is_gone}");
        let port = office.receive("poll", &what);
        let channel = asked(port);
        let _kept = leave_what_lingers(&channel);
        let channel = if is_gone {
            drop(channel);
            // Whoever comes has it look who is gone.
            asked(port)
        } else {
            channel
        };
        office.end_receiver(port, &what);
        office.is_well(&what);
        drop(channel);
    }
}

/// The same of a receiver, which says then that its mailbox is over.
#[test]
fn what_lingers_in_a_receivers_channel_holds_no_sender_up() {
    let mut office = Office::start();
    let socket = mail::socket();
    office.server.tell(&format!("send {}", mail::port_of(&socket)));
    office.server.expect("sending", "to who leaves something");
    let channel = mail::asked(&socket).expect("the victim asks");
    let (map, memory) = MailboxMap::new(65_536, 3).expect("a mailbox");
    assert!(peer::send(&channel, &mail::welcome(212_992, 0, 0), &[&peer::own(memory)]));
    let _kept = leave_what_lingers(&channel);
    map.mailbox().kill();
    keeps_no_route(&socket, &channel);
    office.sends_by_kernel(&socket, "to who has left something");
    office.server.tell("stop");
    office.server.expect("sent", "to who has left something");
    office.is_well("to who has left something");
}

/// A receiver that says that it recalls its mailbox, and then that it does not, has each send wait for it no more than once.
#[test]
fn who_recalls_a_mailbox_has_it_used_no_more() {
    let mut office = Office::start();
    let socket = mail::socket();
    office.server.tell(&format!("send {}", mail::port_of(&socket)));
    office.server.expect("sending", "to who recalls");
    let channel = mail::asked(&socket).expect("the victim asks");
    let (map, memory) = MailboxMap::new(65_536, 3).expect("a mailbox");
    assert!(peer::send(&channel, &mail::welcome(212_992, 0, 0), &[&peer::own(memory)]));
    let gate = &map.mailbox().gate.0;
    let closed = gate.load(SeqCst);
    let is_hung_up = || poll::now(channel.as_raw_fd(), libc::POLLIN) & libc::POLLHUP != 0;
    // Who is waited for in vain, for 20 ms, has it used no more in any case.
    let rounds = (0..50).take_while(|_| {
        while socket.recv(&mut [0; 64]).is_ok() {}
        map.mailbox().recall();
        std::thread::sleep(Duration::from_millis(5));
        gate.store(closed, SeqCst);
        until("nothing is sent", || socket.recv(&mut [0; 64]).is_ok());
        !is_hung_up()
    });
    assert!(rounds.count() < 50, "it keeps its route");
    office.sends_by_kernel(&socket, "to who recalls");
    office.server.tell("stop");
    office.server.expect("sent", "to who recalls");
    office.is_well("to who recalls");
}

/// The victim that sends to `socket` hangs up.
#[track_caller]
fn keeps_no_route(socket: &UdpSocket, channel: &OwnedFd) {
    until("it keeps its route", || {
        let _ = socket.recv(&mut [0; 64]);
        poll::now(channel.as_raw_fd(), libc::POLLIN) & libc::POLLHUP != 0
    });
}

/// Unread, behind what is expected.
fn leave_what_lingers(channel: &OwnedFd) -> impl Sized + use<> {
    let (lingers, kept) = peer::lingering();
    assert!(peer::send(channel, &[b'x'; 96], &[&lingers]), "nothing can be left");
    kept
}

/// Says so when it goes, by a panic, too.
struct Over<'a>(&'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
