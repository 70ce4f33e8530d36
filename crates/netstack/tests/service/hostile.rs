//! Programs that do anything at all: valid messages on any sockets in any order, nonsense, descriptors of every kind, memory that is written
//! to at random, floods, and ends that nobody reads. Others' connections keep their octets meanwhile, and nothing is left of them in the end.
//!
//! The same sequences in each run; `BYPATH_FUZZ_SECONDS=600` is another number of seconds, with another seed.

use crate::bodies::{self, Learned};
use crate::program::{Program, ready};
use crate::rings::{Process, Reader, connected, until};
use crate::{Running, at, isolated, kernels, patient, users};
use bypath_netstack::service::{Service, Settings};
use bypath_shm::inbox::{BELL, Inbox, MESSAGE_VERSION};
use bypath_shm::service::{ACCEPTED, HEADER, Header, MESSAGE, Op};
use bypath_stack::config::Config;
use bypath_sys::seqpacket;
use nix::poll::PollFlags;
use nix::sys::socket::{ControlMessage, MsgFlags, recv, sendmsg};
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Sockets that one of them keeps.
const SOCKETS: usize = 40;
/// Descriptors of each other kind.
const KEPT: usize = 8;
/// Connections for questions of one of them.
const CONTROLS: usize = 12;
/// Answers are mostly waited for, so that something comes of what is asked: so long at most (ms).
const PATIENCE: u16 = 20;
/// Who do harm at once.
const HOSTILE: u64 = 3;
/// Descriptors that the kernel lets pass in one message.
const MOST_PASSED: usize = 253;

/// Whether this kernel can refuse descriptors that are sent to a pair.
static REFUSES: AtomicBool = AtomicBool::new(false);

/// Numbers that look random: splitmix64.
pub struct Dice(u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    pub fn octets(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1);
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// One that something is likely to be about.
    pub fn number(&mut self) -> i32 {
        let any = self.next() as i32;
        self.one_of(&[any, -1, 0, 1, 2, 3, 4, 6, 10, 13, 41, 64, 4096, 65_536, i32::MAX, i32::MIN])
    }
}

/// One of them.
struct Villain<'a> {
    dice: Dice,
    path: &'a Path,
    /// Connections for questions; some are read from and some are not.
    controls: Vec<OwnedFd>,
    sockets: Vec<(u64, UnixStream)>,
    /// Sockets of all of them.
    known: &'a Mutex<Vec<u64>>,
    places: &'a [SocketAddr],
    learned: Learned,
    /// Memory that it shares with the service, or says that it does.
    memory: VecDeque<OwnedFd>,
    /// Where it sends bells.
    bells: VecDeque<OwnedFd>,
    /// Ends of captures that nobody reads.
    captures: VecDeque<OwnedFd>,
    /// What was done for one of them.
    done: &'a [AtomicU64; Op::ALL.len()],
}

/// One more, and one fewer where there are many.
fn keep(all: &mut VecDeque<OwnedFd>, one: OwnedFd) {
    all.push_back(one);
    if all.len() > KEPT {
        all.pop_front();
    }
}

impl Villain<'_> {
    fn control(&mut self) -> Option<usize> {
        if self.controls.is_empty() || self.controls.len() < CONTROLS && self.dice.below(20) == 0 {
            self.controls.push(seqpacket::connect(self.path).ok()?);
        }
        Some(self.dice.below(self.controls.len()))
    }

    fn cookie(&mut self) -> u64 {
        let random = self.dice.next();
        let others = self.known.lock().expect("unbroken");
        match self.dice.below(20) {
            0 => random,
            1 => 0,
            2..6 if !others.is_empty() => others[random as usize % others.len()],
            _ => self.sockets.get(random as usize % self.sockets.len().max(1)).map_or(0, |socket| socket.0),
        }
    }

    /// Something is asked, with any descriptors beside it.
    fn ask(&mut self) {
        let op = match self.dice.below(3) {
            0 => self.dice.one_of(&[Op::Open, Op::Connect, Op::Rings, Op::Reach]),
            _ => self.dice.one_of(&Op::ALL),
        };
        let mut body = bodies::body(&mut self.dice, op, self.places, &self.learned);
        match self.dice.below(20) {
            0 => body = self.dice.octets(MESSAGE),
            1 => body.truncate(self.dice.below(body.len() + 1)),
            _ => {}
        }
        let own =
            self.sockets.get(self.dice.below(self.sockets.len())).map(|(own, end)| (*own, end.as_raw_fd()));
        let socket = own.filter(|_| self.dice.below(3) > 0).map_or_else(|| self.cookie(), |own| own.0);
        let own = own.map(|own| own.1);
        let header = Header { op, serial: self.dice.next() as u32, socket, errno: self.dice.number() };
        let mut message = header.encode().to_vec();
        if self.dice.below(40) == 0 {
            message = self.dice.octets(HEADER);
        }
        message.extend(body);
        let Some(n) = self.control() else { return };
        let things = Things::new();
        if op == Op::Rings {
            keep(&mut self.memory, bodies::memory(&mut self.dice));
        }
        let capture = (op == Op::Query).then(|| UnixStream::pair().expect("a pair"));
        let inbox = self.memory.back().map(AsRawFd::as_raw_fd);
        let kinds = [
            &things.0.iter().map(AsRawFd::as_raw_fd).collect::<Vec<RawFd>>()[..],
            &[self.controls[n].as_raw_fd()],
            inbox.as_slice(),
        ]
        .concat();
        let passed: Vec<RawFd> = match (self.dice.below(10), own) {
            (0, _) => (0..self.dice.below(4)).map(|_| self.dice.one_of(&kinds)).collect(),
            (1, _) if self.dice.below(20) == 0 => vec![self.dice.one_of(&kinds); MOST_PASSED],
            (_, Some(own)) if matches!(op, Op::Connect | Op::Listen | Op::Shutdown | Op::Again) => vec![own],
            (2..5, own) if op == Op::Rings => inbox.into_iter().chain(own).collect(),
            (_, _) if op == Op::Rings => inbox.into_iter().collect(),
            _ => capture.iter().map(|(one, _)| one.as_raw_fd()).collect(),
        };
        let control: Vec<ControlMessage<'_>> =
            if passed.is_empty() { Vec::new() } else { vec![ControlMessage::ScmRights(&passed)] };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let sent =
            sendmsg::<()>(self.controls[n].as_raw_fd(), &[IoSlice::new(&message)], &control, flags, None);
        if sent.is_err_and(|e| e != nix::Error::EAGAIN && e != nix::Error::ETOOMANYREFS) {
            self.controls.swap_remove(n);
        } else if self.dice.below(8) > 0 {
            ready(self.controls[n].as_fd(), PollFlags::POLLIN, PATIENCE);
            self.hear_of(n);
        }
        if let Some((_, other)) = capture {
            keep(&mut self.captures, other.into());
        }
    }

    /// Answers of one of the connections; of the others nobody reads them.
    fn hear(&mut self) {
        let n = self.dice.below(self.controls.len());
        self.hear_of(n);
    }

    fn hear_of(&mut self, n: usize) {
        let Some(control) = self.controls.get(n) else { return };
        let mut room = vec![0; MESSAGE];
        for _ in 0..20 {
            match seqpacket::receive_relied_on(control.as_fd(), &mut room) {
                Ok(Some((len, fds))) if len > 0 => {
                    let (header, body) = Header::decode(&room[..len]).expect("a header");
                    if matches!(header.errno, 0 | libc::EINPROGRESS) {
                        let place = Op::ALL.iter().position(|op| *op == header.op).expect("an operation");
                        self.done[place].fetch_add(1, Relaxed);
                        self.learned.hear(header.op, body);
                    }
                    let mut fds = fds.into_iter();
                    if header.op == Op::Rings {
                        // With the first rings an inbox comes behind the arena, and a bell before the place for bells.
                        fds.by_ref().take(2).for_each(|one| keep(&mut self.memory, one));
                        fds.by_ref().skip(1).for_each(|one| keep(&mut self.bells, one));
                    }
                    let opened = fds.next().filter(|_| header.op == Op::Open);
                    if let Some(end) = opened.map(UnixStream::from) {
                        end.set_nonblocking(true).expect("a socket");
                        self.known.lock().expect("unbroken").push(header.socket);
                        self.sockets.push((header.socket, end));
                    }
                }
                Ok(None) => break,
                _ => {
                    self.controls.swap_remove(n);
                    break;
                }
            }
        }
        while self.sockets.len() > SOCKETS {
            let last = self.dice.below(self.sockets.len());
            let (cookie, _) = self.sockets.swap_remove(last);
            self.known.lock().expect("unbroken").retain(|known| *known != cookie);
        }
    }

    /// Something is written where rings are, or said where bells are.
    fn scribble(&mut self) {
        let word = self.dice.next();
        let (small, any) = (word % 4096, self.dice.number() as u64);
        let word = self.dice.one_of(&[word, small, small, any, 0, 1, u64::MAX, 1 << 62, 3 << 62]);
        if self.dice.below(8) == 0 {
            let n = self.dice.below(self.bells.len());
            let Some(bells) = self.bells.get(n) else { return };
            let mut words =
                [BELL, MESSAGE_VERSION, self.dice.number() as u32 as u64].map(u64::to_ne_bytes).concat();
            words.extend(self.dice.octets(200));
            words.resize(14 * 8, 0);
            let things = Things::new();
            let passed = [self.dice.one_of(&things.0.iter().map(AsRawFd::as_raw_fd).collect::<Vec<_>>())];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let files = [ControlMessage::ScmRights(&passed)];
            let _ = sendmsg::<()>(bells.as_raw_fd(), &[IoSlice::new(&words)], &files, flags, None);
            return;
        }
        let n = self.dice.below(self.memory.len());
        let Some(memory) = self.memory.get(n) else { return };
        // Words of an inbox, and those of the first slots of an arena.
        let most = if self.dice.below(2) == 0 { size_of::<Inbox>() } else { 3 * 4096 };
        let at = self.dice.below(most / 8) * 8;
        let octets = word.to_ne_bytes();
        let len = self.dice.one_of(&[8, 8, 4]);
        // What is sealed, or so short, stays as it is.
        if nix::sys::stat::fstat(memory).is_ok_and(|stat| stat.st_size > at as i64) {
            let _ = nix::sys::uio::pwrite(memory, &octets[..len], at as i64);
        }
    }

    /// Something is done to a pair.
    fn touch(&mut self) {
        let n = self.dice.below(self.sockets.len());
        let (what, piece) = (self.dice.below(9), self.dice.octets(5000));
        let Some((_, end)) = self.sockets.get(n) else { return };
        let mut end = end;
        if what == 8 {
            if !REFUSES.load(Relaxed) {
                return;
            }
            // Itself, so that it would be open for as long as nobody takes it.
            let passed = [end.as_raw_fd()];
            let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
            let message = [IoSlice::new(&piece)];
            let _ =
                sendmsg::<()>(end.as_raw_fd(), &message, &[ControlMessage::ScmRights(&passed)], flags, None);
            return;
        }
        match what {
            0 | 1 => drop(end.write(&piece)),
            2 => drop(end.read(&mut [0; 4096])),
            // A part of a record, and what came with it.
            3 => drop(recv(end.as_raw_fd(), &mut [0; ACCEPTED / 2], MsgFlags::MSG_DONTWAIT)),
            4 => drop(end.shutdown(Shutdown::Write)),
            5 => drop(end.shutdown(Shutdown::Both)),
            6 => {
                let size = self.dice.number().to_ne_bytes();
                let name = self.dice.one_of(&[
                    libc::SO_SNDBUF,
                    libc::SO_RCVBUF,
                    libc::SO_RCVLOWAT,
                    libc::SO_PEEK_OFF,
                ]);
                let _ = bypath_sys::sock::set_option(end.as_raw_fd(), libc::SOL_SOCKET, name, &size);
            }
            _ => {
                let (cookie, _) = self.sockets.swap_remove(n);
                self.known.lock().expect("unbroken").retain(|known| *known != cookie);
            }
        }
    }

    /// Questions without end, whose answers nobody hears.
    fn flood(&mut self) {
        let Ok(control) = seqpacket::connect(self.path) else { return };
        let header = Header { op: Op::Hello, serial: 1, socket: 0, errno: 0 };
        let message = [&header.encode()[..], &1u32.to_ne_bytes()].concat();
        for _ in 0..2000 {
            if seqpacket::send(control.as_fd(), &message, None).is_err() {
                break;
            }
        }
        if self.dice.below(2) == 0 && self.controls.len() < 8 {
            self.controls.push(control);
        }
    }

    fn does_anything(&mut self) {
        match self.dice.below(100) {
            0 => self.flood(),
            1 => {
                let n = self.dice.below(self.controls.len());
                if n < self.controls.len() {
                    self.controls.swap_remove(n);
                }
            }
            2..35 => self.hear(),
            35..50 => self.touch(),
            50..60 => self.scribble(),
            _ => self.ask(),
        }
    }
}

/// How long a close waits for octets that nobody takes.
const LINGER: Duration = Duration::from_secs(60);

/// A descriptor whose last close waits, as nobody takes its octets, and what it takes that nobody does.
fn lingering() -> (OwnedFd, [OwnedFd; 2]) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a listener");
    let mut sender =
        std::net::TcpStream::connect(listener.local_addr().expect("a name")).expect("a connection");
    let (reader, _) = listener.accept().expect("a connection");
    sender.set_nonblocking(true).expect("a socket");
    while sender.write(&[0; 65_536]).is_ok() {}
    let linger = nix::libc::linger { l_onoff: 1, l_linger: LINGER.as_secs() as i32 };
    nix::sys::socket::setsockopt(&sender, nix::sys::socket::sockopt::Linger, &linger).expect("a socket");
    (sender.into(), [reader.into(), listener.into()])
}

/// Descriptors that are no sockets of the service.
struct Things(Vec<OwnedFd>);

impl Things {
    fn new() -> Things {
        let (read, write) = nix::unistd::pipe().expect("a pipe");
        let (one, _) = UnixStream::pair().expect("a pair");
        let epoll =
            nix::sys::epoll::Epoll::new(nix::sys::epoll::EpollCreateFlags::empty()).expect("an epoll set");
        let file = std::fs::File::open("/dev/null").expect("a file");
        let bell = nix::sys::eventfd::EventFd::from_flags(nix::sys::eventfd::EfdFlags::EFD_NONBLOCK);
        Things(vec![read, write, one.into(), epoll.0, file.into(), bell.expect("an eventfd").into()])
    }
}

/// Sends back what comes, until its end.
fn echoed(mut kernel: TcpStream) {
    let mut room = [0; 8192];
    loop {
        match kernel.read(&mut room).expect("octets, or their end") {
            0 => return,
            len => kernel.write_all(&room[..len]).expect("written"),
        }
    }
}

/// Somebody who does nothing wrong: octets go to the kernel and come back right until this ends, which are counted.
fn echoes(program: &Program, until: &AtomicBool, count: &AtomicU64) {
    let (listener, to) = kernels("10.9.0.1:0");
    let own = program.connect(to);
    let kernel = patient(listener.accept().expect("a connection").0);
    let echo = std::thread::spawn(move || echoed(kernel));
    let mut dice = Dice(7);
    while !until.load(Relaxed) {
        let piece = [vec![count.load(Relaxed) as u8], dice.octets(3000)].concat();
        (&own.stream).write_all(&piece).expect("written");
        let mut back = vec![0; piece.len()];
        (&own.stream).read_exact(&mut back).expect("octets");
        assert!(back == piece, "other octets came back");
        count.fetch_add(1, Relaxed);
    }
    drop(own);
    echo.join().expect("no panic");
}

/// The same of one whose octets go by rings, both ways.
fn echoes_by_rings(program: &Program, done: &AtomicBool, count: &AtomicU64) {
    let mut process = Process::new(u64::MAX - 1);
    let (mut sock, peer, mut rings) = connected(program, &mut process);
    sock.stream.set_nonblocking(true).expect("a socket");
    let echo = std::thread::spawn(move || echoed(patient(peer)));
    rings.begin(0);
    let (mut dice, mut reader, mut since) = (Dice(8), Reader::default(), 0);
    while !done.load(Relaxed) {
        let piece = [vec![count.load(Relaxed) as u8], dice.octets(3000)].concat();
        rings.put(&process, &piece);
        until(|| {
            reader.look(&mut sock, &process, &rings, usize::MAX, &mut since);
            (reader.got.len() >= piece.len()).then_some(())
        });
        assert!(reader.got == piece, "other octets came back");
        reader.got.clear();
        count.fetch_add(1, Relaxed);
    }
    drop(sock);
    echo.join().expect("no panic");
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

/// The kernel's ends of some of their connections, where octets come and go.
#[derive(Default)]
struct Peers(VecDeque<TcpStream>);

impl Peers {
    fn turn(&mut self, listener: &TcpListener) {
        if let Ok((peer, _)) = listener.accept() {
            peer.set_nonblocking(true).expect("a socket");
            self.0.push_back(peer);
        }
        if self.0.len() > SOCKETS {
            self.0.pop_front();
        }
        if let Some(mut peer) = self.0.pop_front() {
            let mut room = [0; 3000];
            // Who was reset is not there any more.
            let is_there = peer.read(&mut room).map_or_else(|e| e.kind() == ErrorKind::WouldBlock, |n| n > 0);
            if is_there && peer.write(&room).map_or_else(|e| e.kind() == ErrorKind::WouldBlock, |_| true) {
                self.0.push_back(peer);
            }
        }
    }
}

/// Villains do what they can, each as this user if one is said, and good programs are not harmed. `must`: what has to be done for a villain at least
/// once.
fn harm(running: &Running, uid: Option<u32>, usual: u64, must: &[Op]) {
    running.has_sockets(0);
    let (_, end) = bypath_sys::pair::new().expect("a pair");
    REFUSES.store(bypath_sys::pair::refuse_descriptors(end.as_fd()), Relaxed);
    let before = descriptors();
    let chosen = std::env::var("BYPATH_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    let seed = chosen.map_or(1, |_: u64| std::process::id().into());
    let time = Duration::from_secs(chosen.unwrap_or(usual));
    let (listener, to) = kernels("10.9.0.1:0");
    let places = [
        to,
        to,
        to,
        at("10.9.0.2:0"),
        at("10.9.0.2:7777"),
        at("0.0.0.0:0"),
        at("[::]:7777"),
        at("[fd09::2]:0"),
        at("127.0.0.1:0"),
        at("10.9.0.255:9"),
        at("[::ffff:10.9.0.1]:9"),
        at("224.0.0.1:5"),
    ];
    let (done, asked) = (AtomicBool::new(false), AtomicU64::new(0));
    let answered = [const { AtomicU64::new(0) }; Op::ALL.len()];
    let good = [const { AtomicU64::new(0) }; 3];
    let never = || -> Vec<&Op> {
        let all = Op::ALL.iter().zip(&answered);
        all.filter(|(op, times)| must.contains(op) && times.load(Relaxed) == 0).map(|(op, _)| op).collect()
    };
    let known = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        let (done, good) = (&done, &good);
        let echoing = [
            scope.spawn(move || echoes(&running.program(), done, &good[0])),
            scope.spawn(move || echoes(&running.program(), done, &good[1])),
            scope.spawn(move || echoes_by_rings(&running.program(), done, &good[2])),
        ];
        let villains: Vec<_> = (0..HOSTILE)
            .map(|n| {
                let mut villain = Villain {
                    dice: Dice(seed * 1000 + n),
                    path: &running.path,
                    controls: Vec::new(),
                    sockets: Vec::new(),
                    known: &known,
                    places: &places,
                    learned: Learned::default(),
                    memory: VecDeque::new(),
                    bells: VecDeque::new(),
                    captures: VecDeque::new(),
                    done: &answered,
                };
                let asked = &asked;
                scope.spawn(move || {
                    uid.into_iter().for_each(crate::program::become_user);
                    while !done.load(Relaxed) {
                        villain.does_anything();
                        asked.fetch_add(1, Relaxed);
                    }
                })
            })
            .collect();
        let end = Instant::now() + time;
        listener.set_nonblocking(true).expect("a listener");
        let mut peers = Peers::default();
        // On a machine that is busy all of it takes longer.
        let is_enough = || {
            let all = |times: &[AtomicU64], most| times.iter().all(|times| times.load(Relaxed) > most);
            all(good, 10) && all(std::slice::from_ref(&asked), 1000) && never().is_empty()
        };
        while Instant::now() < end || !is_enough() && Instant::now() < end + crate::LONGEST {
            peers.turn(&listener);
            std::thread::yield_now();
        }
        done.store(true, Relaxed);
        villains.into_iter().for_each(|one| one.join().unwrap_or_else(|_| panic!("seed {seed}")));
        for (one, count) in echoing.into_iter().zip(good) {
            one.join().unwrap_or_else(|_| panic!("seed {seed}: another program was harmed"));
            assert!(count.load(Relaxed) > 10, "seed {seed}: {count:?} pieces came back");
        }
    });
    assert!(asked.load(Relaxed) > 1000, "it hardly did anything");
    let never = never();
    assert!(never.is_empty(), "seed {seed}: never done: {never:?}");
    drop(listener);
    running.has_sockets(0);
    // Its ends of connections for questions go when the service has seen that the others did. What rings strangers' bells it keeps, once it had to.
    let before = before + usize::from(uid.is_some());
    let end = Instant::now() + crate::LONGEST;
    while descriptors() > before {
        assert!(Instant::now() < end, "seed {seed}: {before} descriptors, and then {}", descriptors());
        std::thread::yield_now();
    }
}

isolated! {
    fn whatever_a_program_does_harms_no_other() {
        harm(&Running::new(), None, 2, &[Op::Open, Op::Connect, Op::Set, Op::Query, Op::Rings, Op::Reach]);
    }
}

users! {
    fn whatever_a_stranger_does_harms_no_other() {
        const STRANGER: u32 = 65_533;
        let running = Running::with(|settings| settings.users = Some(vec![STRANGER]), Config::default());
        // Once it was barred it has no rings.
        harm(&running, Some(STRANGER), 1, &[Op::Open, Op::Connect, Op::Set, Op::Query, Op::Reach]);
    }
}

/// Callers send descriptors whose close waits: one of several, more than the service has a use for, and behind something senseless, so
/// that nobody receives it. The service answers another program meanwhile.
pub fn callers_send_what_lingers(running: &Running, is_of_another_user: bool, caller: impl Fn() -> Program) {
    let other = running.program();
    let hello = Header { op: Op::Hello, serial: 1, socket: 0, errno: 0 }.encode();
    let unread = is_of_another_user.then_some((Some(b"nonsense"), 1));
    for (first, copies) in [(None, 1), (None, 200)].into_iter().chain(unread) {
        let (lingers, _kept) = lingering();
        let caller = caller();
        if let Some(first) = first {
            let _ = caller.say(first);
        }
        caller.say_with_numbers(&hello, &vec![lingers.as_raw_fd(); copies]);
        // If the service was quicker it is this close that would wait.
        bypath_sys::strangers::close(&[lingers.into_raw_fd()]);
        let began = Instant::now();
        drop(other.open(false).expect("a socket"));
        drop(caller);
        drop(other.open(false).expect("a socket"));
        assert!(began.elapsed() < LINGER / 2, "the service stood for {:?}", began.elapsed());
    }
}

isolated! {
    fn what_a_caller_sends_along_holds_nobody_up() {
        let running = Running::new();
        callers_send_what_lingers(&running, false, || running.program());
    }
}

isolated! {
    fn what_callers_have_sent_along_and_nobody_has_received_does_not_hold_up_the_services_end() {
        let folder = crate::folder();
        let settings = Settings { name: "lab".to_owned(), folder: folder.clone(), ..Settings::default() };
        // It never looks at its callers.
        let service = Service::open(crate::engine(Config::default()), settings).expect("a service");
        let hello = Header { op: Op::Hello, serial: 1, socket: 0, errno: 0 }.encode();
        let (lingers, _kept) = lingering();
        let caller = Program::new(&folder.join("lab"));
        caller.say_with_numbers(&hello, &[lingers.as_raw_fd()]);
        // The one that is on its way is the last one.
        bypath_sys::strangers::close(&[lingers.into_raw_fd()]);
        let began = Instant::now();
        service.finish(Duration::ZERO);
        assert!(began.elapsed() < LINGER / 2, "the end took {:?}", began.elapsed());
        drop(caller);
        std::fs::remove_dir_all(folder).expect("a folder");
    }
}
