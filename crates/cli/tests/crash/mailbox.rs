//! A mailbox of which the test knows what is in it: a reader and writers of numbered datagrams (`agent/recall.c`), its memory, and a copy of its
//! socket that outlives the reader and shows what the kernel has.

use crate::program::{Place, Program};
use crate::programs;
use bypath_shm::dgram::span;
use bypath_shm::region::MailboxMap;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs::File;
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Octets of a datagram (`WORDS` in recall.c).
pub const OCTETS: usize = 64;
/// Octets of a record's head: who has sent it.
const HEAD: usize = 24;
/// Longest that anything takes here on a busy machine.
const LONG: Duration = Duration::from_secs(20);

fn program() -> &'static str {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let path = PROGRAM.get_or_init(|| programs::compile("recall", &["recall.c"], &[]));
    path.to_str().expect("a plain path")
}

/// Asks until it is so.
#[track_caller]
pub fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "never: {what}");
    }
}

/// Numbers behind the first word of a line.
#[track_caller]
pub fn numbers<const N: usize>(program: &mut Program, label: &str) -> [u64; N] {
    let line = program.expect(label);
    let all: Vec<u64> = line.split(' ').map(|word| word.parse().expect("a number")).collect();
    all.try_into().unwrap_or_else(|_| panic!("{label} {line}"))
}

/// What came of one writer's, whoever received it (`struct seen` in recall.c).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub received: u64,
    pub twice: u64,
    pub disorder: u64,
    pub damaged: u64,
}

/// Whoever receives.
pub struct Reader {
    pub program: Program,
    pub port: u16,
    fd: i32,
    file: PathBuf,
}

impl Reader {
    /// At this port, 0: any. `how`: `kept` or `passed` to other programs.
    pub fn start(place: &Place, name: &str, port: u16, how: &str, environment: &[(&str, &str)]) -> Reader {
        let file = place.path("seen");
        let words = [program(), "reader", file.to_str().expect("a plain path"), &port.to_string(), how];
        let program = Program::start(place, name, &words, environment);
        let mut reader = Reader { program, port, fd: 0, file };
        reader.is_there();
        reader
    }

    /// Another image, or process, has the socket now and says so.
    #[track_caller]
    pub fn is_there(&mut self) {
        let [port, fd] = numbers(&mut self.program, "port");
        (self.port, self.fd) = (port as u16, fd as i32);
    }

    /// Takes what is there.
    #[track_caller]
    pub fn looks(&mut self) -> u64 {
        self.program.tell("look");
        let [got] = numbers(&mut self.program, "got");
        got
    }

    /// What came of the writer with this number, in the life of the file.
    pub fn seen(&self, writer: u64) -> Seen {
        /// `sizeof(struct seen)` in recall.c.
        const SIZE: usize = 5 * 8 + (1 << 22) / 8;
        let raw = std::fs::read(&self.file).expect("what was seen");
        let word = |i: usize| {
            let at = writer as usize * SIZE + 8 * i;
            u64::from_ne_bytes(raw[at..at + 8].try_into().expect("8 octets"))
        };
        Seen { received: word(0), twice: word(1), disorder: word(2), damaged: word(3) }
    }

    /// Its socket, which so lives on, and shows what the kernel has.
    pub fn socket(&self) -> UdpSocket {
        let reader = pidfd_open(self.program.pid(), PidfdFlags::empty()).expect("a child");
        let socket = pidfd_getfd(&reader, self.fd, PidfdGetfdFlags::empty()).expect("its socket");
        let socket = UdpSocket::from(socket);
        socket.set_nonblocking(true).expect("a socket");
        socket
    }

    /// Its mailbox, if it has one.
    pub fn mailbox(&self) -> Option<Memory> {
        Memory::of(self.program.pid())
    }
}

/// The mailbox of a process, seen from here.
pub struct Memory(pub MailboxMap);

impl Memory {
    fn of(pid: Pid) -> Option<Memory> {
        let all = std::fs::read_dir(format!("/proc/{}/fd", pid.as_raw_nonzero())).ok()?;
        let is_one = |path: &PathBuf| {
            std::fs::read_link(path).is_ok_and(|to| to.to_string_lossy().contains("memfd:bypath-mailbox"))
        };
        let path = all.flatten().map(|entry| entry.path()).find(is_one)?;
        let file = File::options().read(true).write(true).open(path).ok()?;
        Some(Memory(MailboxMap::map(file.as_raw_fd()).expect("a mailbox")))
    }

    /// Datagrams that nobody has read.
    pub fn unread(&self) -> u64 {
        self.0.mailbox().unread() / span(HEAD, OCTETS)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.0.let_go();
    }
}

/// Whoever sends.
pub struct Writer {
    pub program: Program,
    pub id: u64,
    pub port: u16,
    /// All that it has sent.
    pub sent: u64,
    /// Its longest send of the last time, in microseconds.
    pub longest: u64,
}

impl Writer {
    /// `how`: `connected`, `bound`, or `everywhere`.
    pub fn start(place: &Place, id: u64, to: u16, how: &str, environment: &[(&str, &str)]) -> Writer {
        let words = [program(), "writer", &id.to_string(), &to.to_string(), how];
        let mut program = Program::start(place, &format!("writer{id}"), &words, environment);
        let [port] = numbers(&mut program, "port");
        Writer { program, id, port: port as u16, sent: 1, longest: 0 }
    }

    /// So many.
    #[track_caller]
    pub fn sends(&mut self, count: u64) {
        self.program.tell(&format!("send {count}"));
        self.has_sent();
    }

    #[track_caller]
    pub fn has_sent(&mut self) {
        [self.sent, self.longest] = numbers(&mut self.program, "sent");
    }

    /// Octets that it has sent by memory.
    pub fn by_ring(&self) -> u64 {
        self.program.stats().bytes.ring_tx
    }
}

/// Lets them meet: what is sent goes through the reader's mailbox.
#[track_caller]
pub fn meet(reader: &mut Reader, writer: &mut Writer) {
    let before = writer.by_ring();
    until("they meet", || {
        reader.looks();
        writer.sends(20);
        writer.by_ring() > before
    });
}

/// So many of the writer's, and nothing else, are in the reader's mailbox then, and nothing in the kernel's queue.
#[track_caller]
pub fn fill(reader: &mut Reader, writer: &mut Writer, count: u64) -> Memory {
    let mut found = None;
    let held = reader.socket();
    until("they lie there", || {
        while reader.looks() > 0 {}
        writer.sends(count);
        found = reader.mailbox().filter(|memory| memory.unread() == count);
        found.is_some() && held.peek(&mut [0; OCTETS]).is_err()
    });
    found.expect("a mailbox")
}

/// All that was sent was received, each once, but for so many.
#[track_caller]
pub fn has_all(reader: &mut Reader, writer: &Writer, but: u64) {
    let mut seen = None;
    until("all is received", || {
        reader.looks();
        seen = Some(reader.seen(writer.id));
        seen.is_some_and(|seen| seen.received + but >= writer.sent)
    });
    let Seen { received, twice, damaged, .. } = seen.expect("a look");
    assert_eq!((received, twice, damaged), (writer.sent - but, 0, 0));
}

/// What the kernel has: who sent it, and its number.
pub fn queued(socket: &UdpSocket) -> Vec<(SocketAddr, u64)> {
    let mut words = [0; OCTETS + 1];
    let one = || {
        let (n, from) = socket.recv_from(&mut words).ok()?;
        assert_eq!(n, OCTETS, "from {from}");
        Some((from, u64::from_ne_bytes(words[8..16].try_into().expect("8 octets"))))
    };
    std::iter::from_fn(one).collect()
}

/// One as the writer with this number would send it (`send_one` in recall.c).
pub fn datagram(id: u64, number: u64) -> Vec<u8> {
    let rest = (2..8).map(|i| (id + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).wrapping_add(number * i));
    [id, number].into_iter().chain(rest).flat_map(u64::to_ne_bytes).collect()
}
