//! Octets by rings in place of the pair: a program that plays its half of docs/switch-protocol.md, and one that lies.

use crate::program::{Answer, Sock};
use crate::{LONGEST, Program, Running, isolated, kernels};
use bypath_shm::arena::{Control, Geometry};
use bypath_shm::direction::{Direction, Head, Path, Readable, ask, writer_flag};
use bypath_shm::inbox::{BELL, MESSAGE_VERSION, MESSAGE_WORDS};
use bypath_shm::region::{Arena, OwnInbox, map_inbox};
use bypath_shm::ring::Ring;
use bypath_shm::service::{Body, Op, RingsGiven, RingsWanted};
use bypath_sys::eventfd;
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use std::cell::RefCell;
use std::io::{IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::atomic::Ordering::*;
use std::time::Instant;

/// What a process has been given with its first rings.
pub struct Process {
    token: u64,
    pair: u64,
    inbox: (OwnInbox, OwnedFd),
    introduction: Option<(&'static bypath_shm::inbox::Inbox, OwnedFd, OwnedFd)>,
}

/// A connection's rings, seen from the program.
pub struct Rings {
    pub control: &'static Control,
    pub tx: Ring,
    pub rx: Ring,
    tail: u64,
    arena: Arena,
}

impl Process {
    pub fn new(token: u64) -> Process {
        Process { token, pair: 0, inbox: OwnInbox::new().expect("memory"), introduction: None }
    }

    /// Asks for rings; what is answered.
    fn meet(&mut self, sock: &Sock<'_>, ring: u32) -> Result<Rings, i32> {
        self.meet_of(sock.program, sock.cookie, ring)
    }

    pub fn meet_of(&mut self, program: &Program, cookie: u64, ring: u32) -> Result<Rings, i32> {
        let wanted = RingsWanted { token: self.token, pair: self.pair, end: 5, ring };
        self.take(program.ask_with(Op::Rings, cookie, &wanted.encode(), Some(self.inbox.1.as_fd())))
    }

    /// The same of a program that shows a descriptor, whoever's socket it is.
    pub fn meet_with(
        &mut self,
        program: &Program,
        cookie: u64,
        end: BorrowedFd<'_>,
        ring: u32,
    ) -> Result<Rings, i32> {
        let wanted = RingsWanted { token: self.token, pair: self.pair, end: 5, ring };
        let with = [self.inbox.1.as_fd(), end];
        self.take(program.ask_with_all(Op::Rings, cookie, &wanted.encode(), &with))
    }

    fn take(&mut self, answer: Answer) -> Result<Rings, i32> {
        if answer.errno != 0 {
            return Err(answer.errno);
        }
        let given = RingsGiven::decode(&mut Body(&answer.body)).expect("rings");
        assert_eq!(
            (given.first == 1, answer.more.len()),
            (self.introduction.is_none(), 3 * given.first as usize)
        );
        self.pair = given.pair;
        let mut more = answer.more.into_iter();
        if let (Some(inbox), Some(bell), Some(control)) = (more.next(), more.next(), more.next()) {
            self.introduction = Some((map_inbox(inbox.as_raw_fd()).expect("an inbox"), bell, control));
        }
        let geometry = Geometry { slots: given.slots, ring: given.ring };
        let arena = Arena::map(answer.with.expect("an arena").as_raw_fd(), geometry).expect("an arena");
        Ok(Rings {
            control: arena.control(given.slot).expect("a slot"),
            tx: arena.ring(given.slot, 0).expect("a ring"),
            rx: arena.ring(given.slot, 1).expect("a ring"),
            tail: 0,
            arena,
        })
    }

    /// Marks a number, and rings.
    pub fn mark(&self, number: u32) {
        let (inbox, bell, _) = self.introduction.as_ref().expect("an introduction");
        inbox.mark(number);
        eventfd::ring(bell.as_raw_fd());
    }

    /// Sends these as bells.
    pub fn say(&self, files: &[RawFd]) {
        self.send(&[BELL, MESSAGE_VERSION, 3], files);
    }

    /// Sends the bell with this number.
    pub fn bell(&self, number: u64, bell: BorrowedFd<'_>) {
        let mut message = [0; MESSAGE_WORDS];
        message[..3].copy_from_slice(&[BELL, MESSAGE_VERSION, number]);
        self.send(&message, &[bell.as_raw_fd()]);
    }

    fn send(&self, words: &[u64], files: &[RawFd]) {
        let (_, _, control) = self.introduction.as_ref().expect("an introduction");
        let message: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let (octets, files) = ([IoSlice::new(&message)], [ControlMessage::ScmRights(files)]);
        until(|| sendmsg::<()>(control.as_raw_fd(), &octets, &files, MsgFlags::MSG_NOSIGNAL, None).ok());
    }

    /// Says that there is news of a connection.
    pub fn ring(&self, rings: &Rings) {
        self.mark(rings.control.ends[1].load(Relaxed));
    }
}

/// Waits for what must come.
#[track_caller]
pub fn until<R>(mut look: impl FnMut() -> Option<R>) -> R {
    let end = Instant::now() + LONGEST;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < end, "it did not come");
        std::thread::yield_now();
    }
}

impl Rings {
    /// Says that all slots of the arena are in use, whosever they are; how many octets its rings are.
    pub fn keep_all(&self) -> usize {
        let Geometry { slots, ring } = self.arena.geometry;
        (0..slots).for_each(|slot| self.arena.control(slot).expect("a slot").in_use.store(3, Relaxed));
        2 * (slots * ring) as usize
    }

    pub fn out(&self) -> &'static Direction {
        &self.control.direction[0]
    }

    fn inc(&self) -> &'static Direction {
        &self.control.direction[1]
    }

    /// The program writes into its ring from here on; so many octets went through the pair before.
    pub fn begin(&mut self, before: u64) {
        let out = self.out();
        until(|| out.consented().then_some(()));
        assert!(out.begin_ring(self.tail, before));
    }

    pub fn put(&mut self, process: &Process, octets: &[u8]) {
        let out = self.out();
        let (tail, size) = (self.tail, self.tx.size());
        until(|| (out.space(tail, size).expect("a position") >= octets.len() as u64).then_some(()));
        self.tx.copy_from_slice(tail, octets);
        self.tail += octets.len() as u64;
        out.publish(self.tail);
        process.ring(self);
    }

    /// Takes octets out of the service's ring.
    pub fn get(&self, process: &Process, octets: usize) -> Vec<u8> {
        let mut got = Vec::new();
        until(|| {
            match self.inc().readable(self.rx.size()).expect("a position") {
                Readable::Drain(head) => {
                    assert!(self.inc().drained(head));
                }
                Readable::Ring { head, available } if available > 0 => {
                    let mut piece = vec![0; available as usize];
                    self.rx.copy_to_slice(head.position(), &mut piece);
                    if self.inc().commit(head, available) {
                        got.extend(piece);
                        process.ring(self);
                    }
                }
                _ => {}
            }
            (got.len() >= octets).then_some(())
        });
        got
    }
}

/// A connection to a kernel's socket, with rings.
pub fn connected<'a>(program: &'a Program, process: &mut Process) -> (Sock<'a>, TcpStream, Rings) {
    let (listener, to) = kernels("10.9.0.1:0");
    let sock = program.connect(to);
    let peer = listener.accept().expect("a connection").0;
    peer.set_read_timeout(Some(LONGEST)).expect("a time-out");
    let rings = process.meet(&sock, 64 << 10).expect("rings");
    (sock, peer, rings)
}

pub fn received(from: &mut impl Read, octets: usize) -> Vec<u8> {
    let mut room = vec![0; octets];
    from.read_exact(&mut room).expect("octets");
    room
}

isolated! {
    fn octets_go_by_rings_and_back_by_the_pair_in_order() {
        let running = Running::new();
        let program = running.program();
        let mut process = Process::new(7);
        let (mut sock, mut peer, mut rings) = connected(&program, &mut process);

        sock.stream.write_all(b"pair ").expect("room");
        rings.begin(5);
        rings.put(&process, b"ring ");
        assert_eq!(received(&mut peer, 10), b"pair ring ");
        let row = running.query("sockets").remove(0);
        assert_eq!((&row["from_program"], &row["to_program"]), (&"ring".into(), &"pair".into()), "{row}");
        // More than the ring holds, in pieces.
        let many: Vec<u8> = (0..300_000u32).map(|n| (n / 7) as u8).collect();
        let reader = std::thread::spawn(move || (received(&mut peer, 300_000), peer));
        many.chunks(50_000).for_each(|piece| rings.put(&process, piece));
        let (got, mut peer) = reader.join().expect("no panic");
        assert!(got == many);

        // The program takes it back: what the service has not read goes again through the pair.
        let position = rings.out().claim().expect("a ring");
        assert_eq!(position, rings.tail);
        sock.stream.write_all(b"again").expect("room");
        assert_eq!(received(&mut peer, 5), b"again");
        // And begins anew, where the service has agreed once more.
        rings.begin(10);
        rings.put(&process, b" and again");
        assert_eq!(received(&mut peer, 10), b" and again");

        // The other way: the service begins when it has something.
        rings.inc().consent();
        peer.write_all(&many).expect("room");
        assert!(rings.get(&process, many.len()) == many);
        assert_eq!(running.query("sockets")[0]["to_program"], "ring");
        // What is not read when the program asks for it back comes through the pair.
        peer.write_all(b"left in the ring").expect("room");
        until(|| (rings.inc().t.tail.load(Acquire) == many.len() as u64 + 16).then_some(()));
        rings.inc().ask_recall(ask::RECALL);
        process.ring(&rings);
        assert_eq!(received(&mut sock.stream, 16), b"left in the ring");
        assert_eq!(rings.inc().path(), Path::Kernel);
        // The service says that it is done once the last octet is in the pair, which is read before that.
        until(|| (rings.inc().wa.flags.load(Acquire) & writer_flag::FLUSHING == 0).then_some(()));

        // Ends: the peer's comes behind what was given.
        rings.inc().withdraw_recall();
        rings.inc().consent();
        peer.write_all(b"last").expect("room");
        drop(peer);
        assert_eq!(received(&mut sock.stream, 4), b"last");
        assert_eq!(sock.stream.read(&mut [0; 4]).expect("an end"), 0);
        drop(sock);
        running.has_sockets(0);
    }
}

isolated! {
    fn what_a_killed_program_left_in_its_ring_is_sent() {
        let running = Running::new();
        let program = running.program();
        let mut process = Process::new(7);
        let (sock, mut peer, mut rings) = connected(&program, &mut process);
        rings.begin(0);
        // Nobody rings for these.
        rings.tx.copy_from_slice(0, b"unrung");
        rings.out().publish(6);
        drop(sock);
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an end");
        assert_eq!(all, b"unrung");
        drop(peer);

        // Killed in the middle of taking it back, before the service saw the ring; something came through the pair earlier.
        let (mut sock, mut peer, mut rings) = connected(&program, &mut process);
        sock.stream.write_all(b"pair ").expect("room");
        assert_eq!(received(&mut peer, 5), b"pair ");
        rings.begin(5);
        rings.out().wa.flags.fetch_or(writer_flag::FLUSHING, AcqRel);
        rings.tx.copy_from_slice(0, b"0123456789");
        let position = rings.out().claim().expect("a ring");
        rings.out().publish(10);
        assert_eq!(position, 0);
        sock.stream.write_all(b"0123").expect("room");
        drop(sock);
        let mut all = Vec::new();
        peer.read_to_end(&mut all).expect("an end");
        assert_eq!(all, b"0123456789");
        drop(peer);

        // Octets that it has not read make its end a reset.
        let (sock, mut peer, rings) = connected(&program, &mut process);
        rings.inc().consent();
        peer.write_all(b"unread").expect("room");
        until(|| (rings.inc().t.tail.load(Acquire) == 6).then_some(()));
        drop(sock);
        let end = peer.read(&mut [0; 8]);
        assert_eq!(end.expect_err("a reset").kind(), std::io::ErrorKind::ConnectionReset);
        drop(program);
        running.has_sockets(0);
    }
}

isolated! {
    fn rings_have_bounds_and_their_memory_is_given_back() {
        let running = Running::with(|settings| settings.octets_per_user = 300 << 10, bypath_stack::config::Config::default());
        let maps = || {
            let text = std::fs::read_to_string("/proc/self/maps").expect("a list");
            text.lines().filter(|line| line.contains("bypath-arena")).count()
        };
        let before = maps();
        {
            let program = running.program();
            let mut process = Process::new(7);
            let (one, two) = (connected(&program, &mut process), connected(&program, &mut process));
            assert!(maps() > before);
            let (listener, to) = kernels("10.9.0.1:0");
            let third = program.connect(to);
            let peer = listener.accept().expect("a connection").0;
            assert_eq!(process.meet(&third, 64 << 10).err(), Some(libc::ENOBUFS));
            assert_eq!(process.meet(&one.0, 64 << 10).err(), Some(libc::EBUSY));
            assert_eq!(process.meet(&third, 5000).err(), Some(libc::EINVAL));
            drop((one, peer));
            running.has_sockets(2);
            assert!(process.meet(&third, 4096).is_ok());
            let fresh = program.open(false).expect("a socket");
            assert_eq!(process.meet(&fresh, 4096).err(), Some(libc::ENOTCONN));
            // Something that is no inbox.
            let mut other = Process::new(8);
            other.inbox.1 = std::fs::File::open("/dev/null").expect("a file").into();
            assert!(other.meet(&two.0, 4096).is_err());
        }
        running.has_sockets(0);
        // What this process has mapped itself as a program stays, once for each connection that got rings.
        let end = Instant::now() + LONGEST; while maps() != before + 3 { assert!(Instant::now() < end, "{} {before}", maps()); std::thread::yield_now(); }

        drop(running);
        let none = Running::with(|settings| settings.ring_octets = 0, bypath_stack::config::Config::default());
        let program = none.program();
        let (listener, to) = kernels("10.9.0.1:0");
        let sock = program.connect(to);
        assert_eq!(Process::new(7).meet(&sock, 64 << 10).err(), Some(libc::EINVAL));
        drop((sock, listener));
    }
}

isolated! {
    fn who_lies_in_shared_memory_loses_his_own_connection_at_most() {
        let running = Running::new();
        let honest = running.program();
        let mut own = Process::new(1);
        let (_sock, peer, mut rings) = connected(&honest, &mut own);
        rings.begin(0);
        rings.inc().consent();
        let both = RefCell::new((peer, rings));
        let mut runner = TestRunner::new(Config { cases: 60, failure_persistence: None, ..Config::default() });
        let word = prop_oneof![
            any::<u64>(),
            (0u64..200_000, 0u64..4).prop_map(|(position, path)| position | path << 62),
            Just(0), Just(u64::MAX),
        ];
        let lies = proptest::collection::vec((0usize..18, word, any::<bool>()), 1..40);
        let result = runner.run(&lies, |lies| {
            let program = running.program();
            let mut process = Process::new(2);
            let (sock, mut liars, mut rings) = connected(&program, &mut process);
            if lies.len().is_multiple_of(2) {
                rings.begin(0);
                rings.inc().consent();
                let _ = liars.write_all(&[7; 5000]);
            }
            liars.set_nonblocking(true).expect("a socket");
            for (place, word, rings_bell) in lies {
                // Octets arrive meanwhile.
                let _ = liars.write(&[8; 3000]);
                let d = &rings.control.direction[place & 1];
                match place >> 1 {
                    0 => d.t.tail.store(word, Release),
                    1 => d.h.head.store(word, Release),
                    2 => d.wa.switch_k.store(word, Release),
                    3 => d.ra.ask.store(word as u32, Release),
                    4 => d.wa.flags.store(word as u32, Release),
                    5 => d.ra.wait.iter().for_each(|w| w.store(word, Release)),
                    6 => d.wa.wait[3].store(word, Release),
                    7 => d.wa.hold.store(word, Release),
                    _ => rings.control.ends[place & 1].store(word as u32, Release),
                }
                if rings_bell {
                    let (inbox, bell, _) = process.introduction.as_ref().expect("an introduction");
                    inbox.mark(word as u32);
                    inbox.asleep[1].store(word as u32, Relaxed);
                    eventfd::ring(bell.as_raw_fd());
                    process.ring(&rings);
                }
            }
            drop((sock, liars));
            // The honest one goes on, both ways.
            let (peer, rings) = &mut *both.borrow_mut();
            rings.put(&own, b"honest");
            assert_eq!(received(peer, 6), b"honest");
            peer.write_all(b"reply").expect("room");
            assert_eq!(rings.get(&own, 5), b"reply");
            Ok(())
        });
        result.expect("nothing to fail");
        running.has_sockets(1);
    }
}

/// A program that reads all of a stream, by the ring and by the pair, and asks for the pair after each so many octets of the ring.
#[derive(Default)]
pub struct Reader {
    pub got: Vec<u8>,
    /// Of them, those of the pair.
    came: u64,
    recalls: u32,
}

impl Reader {
    /// One look. `recall`: the pair is asked for after so many octets of the ring.
    pub fn look(
        &mut self,
        sock: &mut Sock<'_>,
        process: &Process,
        rings: &Rings,
        recall: usize,
        since: &mut usize,
    ) {
        let d = rings.inc();
        match d.readable(rings.rx.size()).expect("a position") {
            Readable::Kernel => {
                self.read_pair(sock, usize::MAX);
                if d.ra.ask.load(Relaxed) & ask::RECALL != 0 {
                    d.withdraw_recall();
                    self.recalls += 1;
                }
                d.consent();
                process.ring(rings);
            }
            Readable::Drain(head) => {
                let before = d.wa.switch_k.load(Acquire);
                self.read_pair(sock, (before - self.came) as usize);
                if self.came == before {
                    d.drained(head);
                }
            }
            Readable::Ring { head, available } if available > 0 => {
                let mut piece = vec![0; available as usize];
                rings.rx.copy_to_slice(head.position(), &mut piece);
                if d.commit(head, available) {
                    self.got.extend(piece);
                    *since += available as usize;
                }
                if *since > recall {
                    *since = 0;
                    d.ask_recall(ask::RECALL);
                }
                process.ring(rings);
            }
            Readable::Ring { .. } => std::thread::yield_now(),
        }
    }

    fn read_pair(&mut self, sock: &mut Sock<'_>, most: usize) {
        let mut room = [0; 16 << 10];
        let most = most.min(room.len());
        match sock.stream.read(&mut room[..most]) {
            Ok(n) => {
                self.got.extend(&room[..n]);
                self.came += n as u64;
            }
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => std::thread::yield_now(),
            Err(e) => panic!("{e}"),
        }
    }
}

isolated! {
    fn a_ring_is_taken_back_while_octets_arrive() {
        let running = Running::new();
        let program = running.program();
        let mut process = Process::new(7);
        let (listener, to) = kernels("10.9.0.1:0");
        let mut sock = program.connect(to);
        let mut peer = listener.accept().expect("a connection").0;
        let rings = process.meet(&sock, 256 << 10).expect("rings");
        sock.stream.set_nonblocking(true).expect("a socket");
        let all: Vec<u8> = (0..12_000_000u32).map(|n| (n / 13) as u8 ^ (n >> 16) as u8).collect();
        let sent = all.clone();
        let writer = std::thread::spawn(move || peer.write_all(&sent).map(|()| peer).expect("room"));
        let mut reader = Reader::default();
        let mut since = 0;
        until(|| {
            // Now soon after it has begun, now when the stream goes by the ring for long.
            let recall = [50_000, 1_000_000][reader.recalls as usize % 2];
            reader.look(&mut sock, &process, &rings, recall, &mut since);
            (reader.got.len() >= all.len()).then_some(())
        });
        assert!(reader.got == all, "another stream");
        assert!(reader.recalls > 3, "{} recalls, {} octets by the pair", reader.recalls, reader.came);
        drop(writer.join().expect("no panic"));
    }
}

/// Positions of heads are what they are written as.
#[test]
fn heads_keep_their_positions() {
    for path in [Path::Ring, Path::Drain, Path::Kernel] {
        assert_eq!((Head::new(9, path).position(), Head::new(9, path).path()), (9, path));
    }
}

isolated! {
    fn a_user_has_so_many_processes_with_rings() {
        /// `sharers::PROCESSES`.
        const MOST: usize = 1024;
        let running = Running::new();
        let program = running.program();
        let (listener, to) = kernels("10.9.0.1:0");
        let mut held = Vec::new();
        let mut meets = |token: usize| {
            let sock = program.connect(to);
            let _peer = listener.accept().expect("a connection").0;
            let mut process = Process::new(token as u64 + 1);
            let met = process.meet(&sock, 4096).map(|_| ());
            // The last thing that a process has is where it sends its bells.
            held.extend(process.introduction.map(|(_, _, control)| control));
            met
        };
        for token in 0..MOST {
            assert_eq!(meets(token), Ok(()), "{token}");
        }
        assert_eq!((meets(MOST), meets(MOST + 1)), (Err(libc::ENOBUFS), Err(libc::ENOBUFS)));
        held.truncate(MOST - 1);
        until(|| {
            let sock = program.connect(to);
            let _peer = listener.accept().expect("a connection").0;
            Process::new(7777).meet(&sock, 4096).ok().map(|_| ())
        });
    }
}

isolated! {
    fn octets_that_nobody_reads_in_a_ring_come_by_the_pair() {
        let running = Running::with(|settings| settings.ring_octets = 16 << 10, bypath_stack::config::Config::default());
        let program = running.program();
        let mut process = Process::new(7);
        let (mut sock, mut peer, rings) = connected(&program, &mut process);
        rings.inc().consent();
        let all: Vec<u8> = (0..400_000u32).map(|n| (n / 11) as u8).collect();
        let sent = all.clone();
        let writer = std::thread::spawn(move || peer.write_all(&sent).map(|()| peer).expect("room"));
        until(|| (rings.inc().t.tail.load(Acquire) == 16 << 10).then_some(()));
        // A program that knows nothing of rings has the descriptor now.
        assert!(received(&mut sock.stream, all.len()) == all);
        let mut peer = writer.join().expect("no panic");
        // And one that knows them goes on by the ring, from the position that it left.
        rings.inc().consent();
        peer.write_all(b"again").expect("room");
        assert_eq!(rings.get(&process, 5), b"again");
    }
}

isolated! {
    fn who_has_lost_what_he_was_given_gets_it_anew() {
        let running = Running::new();
        let program = running.program();
        let mut process = Process::new(7);
        let (_one, _peer, _rings) = connected(&program, &mut process);
        // The answer never came, as far as the process knows.
        let mut same = Process::new(7);
        let (_two, mut peer, mut rings) = connected(&program, &mut same);
        rings.begin(0);
        rings.put(&same, b"octets");
        assert_eq!(received(&mut peer, 6), b"octets");
    }
}
