//! Programs that do anything at all: valid messages on any sockets in any order, nonsense, descriptors of every kind, floods, and
//! ends that nobody reads. Others' connections keep their octets meanwhile, and nothing is left of them in the end.
//!
//! The same sequences in each run; `BYPATH_FUZZ_SECONDS=600` is another number of seconds, with another seed.

use crate::program::Program;
use crate::{Running, at, isolated, kernels, patient};
use bypath_netstack::service::{Service, Settings};
use bypath_shm::service::{ACCEPTED, Address, HEADER, Header, MESSAGE, Op};
use bypath_stack::config::Config;
use bypath_sys::seqpacket;
use nix::sys::socket::{ControlMessage, MsgFlags, recv, sendmsg};
use std::io::{IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Sockets that one of them keeps.
const SOCKETS: usize = 40;
/// Who do harm at once.
const HOSTILE: u64 = 3;
/// Descriptors that the kernel lets pass in one message.
const MOST_PASSED: usize = 253;

/// Whether this kernel can refuse descriptors that are sent to a pair.
static REFUSES: AtomicBool = AtomicBool::new(false);

/// Numbers that look random: splitmix64.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    fn octets(&mut self, most: usize) -> Vec<u8> {
        let len = self.below(most + 1);
        (0..len).map(|_| self.next() as u8).collect()
    }

    /// One that something is likely to be about.
    fn number(&mut self) -> i32 {
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
}

impl Villain<'_> {
    fn control(&mut self) -> Option<usize> {
        if self.controls.is_empty() || self.dice.below(100) == 0 {
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

    fn body(&mut self, op: Op) -> Vec<u8> {
        let numbers = |dice: &mut Dice, n: usize| -> Vec<u8> {
            (0..n).flat_map(|_| dice.number().to_ne_bytes()).collect()
        };
        let dice = &mut self.dice;
        match op {
            Op::Open => {
                let kind = dice.one_of(&[1, 1, 1, 1, 2, 3, 5, 2049]);
                [dice.one_of(&[2, 10, 2, 10, 1]), kind, dice.one_of(&[0, 6, 0, 17])]
                    .map(i32::to_ne_bytes)
                    .concat()
            }
            Op::Bind | Op::Connect => {
                let place = dice.one_of(self.places);
                Address(Some(place)).encode().to_vec()
            }
            Op::Set => {
                let mut body =
                    [dice.one_of(&[0, 1, 6, 41]), dice.below(90) as i32].map(i32::to_ne_bytes).concat();
                body.extend(dice.octets(80));
                body
            }
            Op::Say => {
                let options = [libc::TCP_CORK, libc::TCP_NODELAY, libc::TCP_QUICKACK, libc::TCP_KEEPIDLE];
                let mut body = [libc::IPPROTO_TCP, dice.one_of(&options)].map(i32::to_ne_bytes).concat();
                body.extend(dice.octets(80));
                body
            }
            Op::Get => {
                let level = dice.one_of(&[0, 1, 6, 41, bypath_shm::service::LEVEL]);
                [level, dice.below(90) as i32, dice.number()].map(i32::to_ne_bytes).concat()
            }
            Op::Query => {
                let what = ["service", "sockets", "stats", "addresses", "routes", "neighbors", "links", "x"];
                serde_json::json!({ "what": dice.one_of(&what) }).to_string().into_bytes()
            }
            _ => numbers(dice, 2),
        }
    }

    /// Something is asked, with any descriptors beside it.
    fn ask(&mut self) {
        let op = self.dice.one_of(&Op::ALL);
        let mut body = self.body(op);
        match self.dice.below(20) {
            0 => body = self.dice.octets(MESSAGE),
            1 => body.truncate(self.dice.below(body.len() + 1)),
            _ => {}
        }
        let header =
            Header { op, serial: self.dice.next() as u32, socket: self.cookie(), errno: self.dice.number() };
        let mut message = header.encode().to_vec();
        if self.dice.below(40) == 0 {
            message = self.dice.octets(HEADER);
        }
        message.extend(body);
        let Some(n) = self.control() else { return };
        let things = Things::new();
        let own = self.sockets.get(self.dice.below(self.sockets.len())).map(|socket| socket.1.as_raw_fd());
        let kinds = [
            &things.0.iter().map(AsRawFd::as_raw_fd).collect::<Vec<RawFd>>()[..],
            &[self.controls[n].as_raw_fd()],
        ]
        .concat();
        let passed: Vec<RawFd> = match (self.dice.below(10), own) {
            (0, _) => (0..self.dice.below(4)).map(|_| self.dice.one_of(&kinds)).collect(),
            (1, _) if self.dice.below(20) == 0 => vec![self.dice.one_of(&kinds); MOST_PASSED],
            (_, Some(own)) if op == Op::Connect => vec![own],
            _ => Vec::new(),
        };
        let control: Vec<ControlMessage<'_>> =
            if passed.is_empty() { Vec::new() } else { vec![ControlMessage::ScmRights(&passed)] };
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        let sent =
            sendmsg::<()>(self.controls[n].as_raw_fd(), &[IoSlice::new(&message)], &control, flags, None);
        if sent.is_err_and(|e| e != nix::Error::EAGAIN && e != nix::Error::ETOOMANYREFS) {
            self.controls.swap_remove(n);
        }
    }

    /// Answers of one of the connections; of the others nobody reads them.
    fn hear(&mut self) {
        let n = self.dice.below(self.controls.len());
        let Some(control) = self.controls.get(n) else { return };
        let mut room = vec![0; MESSAGE];
        for _ in 0..20 {
            match seqpacket::receive(control.as_fd(), &mut room) {
                Ok(Some((len, fds))) if len > 0 => {
                    let header = Header::decode(&room[..len]).expect("a header").0;
                    let opened = fds.into_iter().next().filter(|_| header.op == Op::Open);
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
            2..40 => self.hear(),
            40..60 => self.touch(),
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
        Things(vec![read, write, one.into(), epoll.0, file.into()])
    }
}

/// Somebody who does nothing wrong: octets go to the kernel and come back right until this ends; how many.
fn echoes(program: &Program, until: &AtomicBool) -> u64 {
    let (listener, to) = kernels("10.9.0.1:0");
    let own = program.connect(to);
    let mut kernel = patient(listener.accept().expect("a connection").0);
    let echo = std::thread::spawn(move || {
        let mut room = [0; 8192];
        loop {
            match kernel.read(&mut room).expect("octets, or their end") {
                0 => return,
                len => kernel.write_all(&room[..len]).expect("written"),
            }
        }
    });
    let mut dice = Dice(7);
    let mut count = 0;
    while !until.load(Relaxed) {
        let piece = [vec![count as u8], dice.octets(3000)].concat();
        (&own.stream).write_all(&piece).expect("written");
        let mut back = vec![0; piece.len()];
        (&own.stream).read_exact(&mut back).expect("octets");
        assert!(back == piece, "other octets came back");
        count += 1;
    }
    drop(own);
    echo.join().expect("no panic");
    count
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("descriptors").count()
}

isolated! {
    fn whatever_a_program_does_harms_no_other() {
        let running = Running::new();
        running.has_sockets(0);
        let (_, end) = bypath_sys::pair::new().expect("a pair");
        REFUSES.store(bypath_sys::pair::refuse_descriptors(end.as_fd()), Relaxed);
        let before = descriptors();
        let chosen = std::env::var("BYPATH_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
        let seed = chosen.map_or(1, |_: u64| std::process::id().into());
        let time = Duration::from_secs(chosen.unwrap_or(2));
        let (listener, to) = kernels("10.9.0.1:0");
        let places = [
            to, at("10.9.0.2:0"), at("10.9.0.2:7777"), at("0.0.0.0:0"), at("[::]:7777"), at("[fd09::2]:0"),
            at("127.0.0.1:0"), at("10.9.0.255:9"), at("[::ffff:10.9.0.1]:9"), at("224.0.0.1:5"),
        ];
        let (done, asked) = (AtomicBool::new(false), AtomicU64::new(0));
        let known = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            let good: Vec<_> = (0..2).map(|_| scope.spawn(|| echoes(&running.program(), &done))).collect();
            let villains: Vec<_> = (0..HOSTILE).map(|n| {
                let dice = Dice(seed * 1000 + n);
                let (path, known, places) = (&*running.path, &known, &places[..]);
                let mut villain = Villain { dice, path, controls: Vec::new(), sockets: Vec::new(), known, places };
                let (done, asked) = (&done, &asked);
                scope.spawn(move || {
                    while !done.load(Relaxed) {
                        villain.does_anything();
                        asked.fetch_add(1, Relaxed);
                    }
                })
            }).collect();
            let end = Instant::now() + time;
            listener.set_nonblocking(true).expect("a listener");
            while Instant::now() < end {
                let _ = listener.accept();
                std::thread::yield_now();
            }
            done.store(true, Relaxed);
            villains.into_iter().for_each(|one| one.join().unwrap_or_else(|_| panic!("seed {seed}")));
            for one in good {
                let count = one.join().unwrap_or_else(|_| panic!("seed {seed}: another program was harmed"));
                assert!(count > 10, "seed {seed}: {count} pieces came back");
            }
        });
        assert!(asked.load(Relaxed) > 1000, "it hardly did anything");
        drop(listener);
        running.has_sockets(0);
        // Its ends of connections for questions go when the service has seen that the others did.
        let end = Instant::now() + crate::LONGEST;
        while descriptors() > before {
            assert!(Instant::now() < end, "seed {seed}: {before} descriptors, and then {}", descriptors());
            std::thread::yield_now();
        }
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
