//! The connections of this process by which it asks services: one for each service, one question at a time.
//!
//! A descriptor of ours above the numbers that programs use, close-on-exec. It is remade where it is no longer ours: in a forked
//! child, or when the program has closed the number by means that nobody sees; and once if the service is another one now.

use super::place::{Folder, LONGEST_PATH};
use super::{ServiceName, place};
use crate::config::LogLevel;
use crate::lock::Lock;
use crate::{log, state, table};
use bypath_shm::service::{Address, Body, HEADER, Header, Op, VERSION};
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::unix::MAX_FDS;
use bypath_sys::{Errno, Result, clock, fd, mem, process, seqpacket, strangers, turn, unix};
use std::ffi::{CStr, OsStr};
use std::net::SocketAddr;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// A service that says nothing for so long is gone.
const LONGEST_NS: u64 = 10_000_000_000;
/// A service that let one question wait too long is asked none of its kind for so long: who asks may hold up the whole process.
const SLOW_NS: u64 = 10_000_000_000;
/// Between attempts while the service's queue of connections is full.
const PAUSE_NS: u64 = 1_000_000;
/// Services that a process can know.
const SERVICES: usize = 8;
/// Octets of a question or an answer that this process has use for: what is behind them is cut.
const ROOM: usize = 640;

/// Where services are; empty before [`init`].
static FOLDERS: OnceLock<Vec<Folder>> = OnceLock::new();
static KNOWN: [Service; SERVICES] = [const { Service::new() }; SERVICES];

/// What was said of services that do not answer, four bits for each: processes that are forked from this one know of it, too.
static SAID: OnceLock<&'static AtomicU32> = OnceLock::new();
/// The same where there is no memory for that.
static SAID_HERE: AtomicU32 = AtomicU32::new(0);

/// Once, with where services are, and those that are known to be used: these find their places, whatever else comes.
pub fn init(folders: Vec<place::Folder>, used: impl Iterator<Item = ServiceName>) {
    let _ = FOLDERS.set(folders);
    let _ = SAID.set(mem::family_word().unwrap_or(&SAID_HERE));
    used.for_each(|name| {
        number(name);
    });
}

fn said() -> &'static AtomicU32 {
    SAID.get().copied().unwrap_or(&SAID_HERE)
}

/// Bits of all that can be said of a service.
const fn all_of(service: u32) -> u32 {
    0xf << (4 * (service % SERVICES as u32))
}

#[derive(Debug)]
struct Service {
    name: OnceLock<ServiceName>,
    /// Whose turn it is to ask.
    turn: Lock,
    fd: AtomicI32,
    /// Device and inode of that.
    file: [AtomicU64; 2],
    /// The process that made it.
    maker: AtomicU32,
    /// In whose name it asked then: the service hears nobody else there.
    asker: AtomicU32,
    serial: AtomicU32,
    /// Whose it was when it answered; `OVERFLOW_UID`: it has not.
    user: AtomicU32,
    /// It has answered this process, or the one that forked it.
    met: AtomicBool,
    /// It has not answered this process about a socket of another user's, or is not for its user: questions show that it holds the socket.
    shows: AtomicBool,
    /// Random name of what this process shares with it, 0: nothing.
    pair: AtomicU64,
    /// How many connections for questions there were.
    greeted: AtomicU32,
    /// It let somebody wait in vain who may wait only for a while: until when nobody else does.
    slow_until: AtomicU64,
}

/// The number of a service; `None`: this process knows too many.
pub fn number(name: ServiceName) -> Option<u32> {
    KNOWN.iter().position(|s| *s.name.get_or_init(|| name) == name).map(|n| n as u32)
}

/// The same of a service that a socket says it is of, which anybody can have made: it is one that this process knows, or has a socket in a folder where
/// services are.
pub fn number_if_there(name: ServiceName) -> Option<u32> {
    let is_it = |s: &Service| s.name.get() == Some(&name);
    let known = KNOWN.iter().position(is_it).map(|n| n as u32);
    known.or_else(|| if is_there(name.as_str()) { number(name) } else { None })
}

/// Whether the pair that `end` is of can be of the service of that name: anybody can give such a name to his end of a pair, be it one that root or the own user has
/// made and left him. So the process that has made it is to be the one that listens in a folder of services; if it has ended, it is asked only whose it was: root's,
/// the own user's, and whose the service is that answered here or that has its socket there, are believed.
pub fn may_be_of(name: &str, end: i32) -> bool {
    let Ok(maker) = unix::peer_credentials(end) else { return false };
    let paths = || {
        let folders = FOLDERS.get().into_iter().flatten().filter(|folder| folder.has_services_of(maker.uid));
        folders.filter_map(|folder| {
            let (mut room, mut path) = ([0; LONGEST_PATH], [0; LONGEST_PATH + 1]);
            let found = folder.socket(name, &mut room)?;
            path[..found.len()].copy_from_slice(found);
            Some(path)
        })
    };
    let mut is_anothers = false;
    for path in paths() {
        let text = path.split(|octet| *octet == 0).next().unwrap_or_default();
        // In the middle of a fork, too, where there is no memory of malloc to be had: as it stands there.
        match place::has_made(seqpacket::connect(Path::new(OsStr::from_bytes(text))), end) {
            Some(true) => return true,
            Some(false) => is_anothers = true,
            None => {}
        }
    }
    if is_anothers {
        return false;
    }
    let is_it = |s: &&Service| s.name.get().is_some_and(|known| known.as_str() == name);
    let answered = KNOWN.iter().find(is_it).filter(|s| s.met.load(Relaxed));
    maker.uid == 0
        || maker.uid == process::euid()
        || answered.is_some_and(|s| s.user.load(Relaxed) == maker.uid)
        || paths().any(|path| {
            CStr::from_bytes_until_nul(&path).is_ok_and(|path| fd::owner_of(path) == Ok(maker.uid))
        })
}

/// Whether there is a socket of this name, whoever listens.
fn is_there(name: &str) -> bool {
    FOLDERS.get().into_iter().flatten().any(|folder| {
        let mut room = [0; LONGEST_PATH];
        let path = folder.socket(name, &mut room).map(|path| Path::new(OsStr::from_bytes(path)));
        let asked = path.map(seqpacket::connect);
        matches!(asked, Some(Ok(_) | Err(Errno::AGAIN | Errno::ACCESS | Errno::CONNREFUSED)))
    })
}

/// The name of the service with this number.
pub fn name(service: u32) -> Option<ServiceName> {
    KNOWN.get(service as usize)?.name.get().copied()
}

/// The name of what this process shares with a service, if it ever shared something.
pub fn pair(service: u32) -> Option<u64> {
    KNOWN.get(service as usize).map(|s| s.pair.load(Relaxed)).filter(|pair| *pair != 0)
}

/// It shares something.
pub fn met(service: u32, pair: u64) {
    if let Some(s) = KNOWN.get(service as usize) {
        s.pair.store(pair, Relaxed);
    }
}

/// Which connection it is by which a service is asked now: what it was told on that, it is told on no other.
pub fn connection(service: u32) -> u32 {
    KNOWN.get(service as usize).map_or(0, |s| s.greeted.load(Relaxed))
}

/// Whether a service is shown each socket that it is asked about.
pub fn shows(service: u32) -> bool {
    KNOWN.get(service as usize).is_some_and(|s| s.shows.load(Relaxed))
}

/// A question, and its answer.
#[derive(Debug)]
pub struct Message {
    op: Op,
    socket: u64,
    out: [u8; ROOM],
    len: usize,
    with: Option<i32>,
    /// The socket's, beside that.
    shown: Option<i32>,
    /// How long an answer is waited for (ns).
    longest: u64,
    answer: [u8; ROOM],
}

/// Descriptors that came with an answer.
#[derive(Clone, Copy, Debug)]
pub struct Files {
    all: [i32; MAX_FDS],
    count: usize,
}

impl Files {
    /// They, in order.
    pub fn numbers(&self) -> &[i32] {
        &self.all[..self.count]
    }

    /// Closes them. Whatever they are, nobody waits for that: a service may be another user's, and mean harm.
    pub fn close(&self) {
        strangers::close_files(self.numbers());
    }
}

/// What a service answered.
#[derive(Debug)]
pub struct Answer<'a> {
    /// The socket that it is about.
    pub socket: u64,
    /// What came with it, which is the receiver's from now on.
    pub files: Files,
    /// The rest.
    pub body: Body<'a>,
}

impl Message {
    /// A question about a socket, 0: about none.
    pub fn new(op: Op, socket: u64) -> Message {
        Message {
            op,
            socket,
            out: [0; ROOM],
            len: HEADER,
            with: None,
            shown: None,
            longest: LONGEST_NS,
            answer: [0; ROOM],
        }
    }

    /// With these octets behind the others; what has no room is left out.
    pub fn octets(mut self, octets: &[u8]) -> Message {
        let end = (self.len + octets.len()).min(ROOM);
        self.out[self.len..end].copy_from_slice(&octets[..end - self.len]);
        self.len = end;
        self
    }

    /// With an option of a new socket; false: there is no room for it.
    pub fn option(&mut self, level: i32, name: i32, value: &[u8]) -> bool {
        let head = [level, name, value.len() as i32].map(i32::to_ne_bytes);
        let all = [head.as_flattened(), value];
        if self.len + all.map(<[u8]>::len).iter().sum::<usize>() > ROOM {
            return false;
        }
        for octets in all {
            self.out[self.len..self.len + octets.len()].copy_from_slice(octets);
            self.len += octets.len();
        }
        true
    }

    /// With this descriptor beside it.
    pub fn with(self, fd: i32) -> Message {
        Message { with: Some(fd), ..self }
    }

    /// An answer that comes later than this (ns) is of no use any more; the service is not gone for that.
    pub fn within(self, longest: u64) -> Message {
        Message { longest, ..self }
    }

    /// With this number.
    pub fn number(self, number: i32) -> Message {
        self.octets(&number.to_ne_bytes())
    }

    /// With this address.
    pub fn address(self, address: SocketAddr) -> Message {
        self.octets(&Address(Some(address)).encode())
    }

    /// Shows by a descriptor of its own that this process holds the socket, whoever opened it; false: there is one with it, or
    /// none to be had.
    fn show(&mut self) -> bool {
        // What else comes along with a question about a socket is its own descriptor.
        let has_its = self.shown.is_some() || self.with.is_some() && self.op != Op::Rings;
        if self.socket == 0 || has_its {
            return false;
        }
        self.shown = super::descriptor(self.socket);
        self.shown.is_some()
    }

    /// Whether this user was answered that he may not ask that.
    fn is_refused(&self, len: usize) -> bool {
        let header = self.answer.get(..len).and_then(Header::decode);
        header.is_some_and(|(header, _)| matches!(header.errno, libc::EPERM | libc::EACCES))
    }

    /// Whether a service was reached, and has answered that this user may not ask that.
    pub fn was_refused(&self) -> bool {
        self.is_refused(ROOM)
    }

    /// Says it on the connection `on`, and waits for nothing; `fd` is the socket's. False: it is to be asked.
    pub fn say(mut self, service: u32, on: u32, fd: i32) -> bool {
        if state::is_sealed() || state::is_borrowed() {
            return false;
        }
        let Some(service) = KNOWN.get(service as usize) else { return false };
        let Some(_turn) = service.turn.lock(table::tid()) else { return false };
        let shows = service.shows.load(Relaxed);
        if !service.is_ours() || !shows && service.greeted.load(Relaxed) != on {
            return false;
        }
        let serial = service.serial.fetch_add(1, Relaxed).wrapping_add(1);
        let header = Header { op: self.op, serial, socket: self.socket, errno: 0 };
        self.out[..HEADER].copy_from_slice(&header.encode());
        let files = if shows { &[fd][..] } else { &[] };
        unix::send_as_principal(service.fd.load(Relaxed), &self.out[..self.len], files).is_ok()
    }

    /// Asks the service.
    ///
    /// # Errors
    /// What it answers; ENETDOWN where it does not, or nothing that makes sense; EACCES: it is not for this user; EPROTO where the answer lacks something;
    /// EMFILE where there is no descriptor for it.
    pub fn ask(&mut self, service: u32) -> Result<Answer<'_>> {
        if state::is_sealed() || state::is_borrowed() {
            return Err(Errno::NETDOWN);
        }
        let number = service;
        let service = KNOWN.get(service as usize).ok_or(Errno::NETDOWN)?;
        let _turn = service.turn.lock(table::tid()).ok_or(Errno::DEADLK)?;
        let is_short = self.longest < LONGEST_NS;
        if is_short && clock::monotonic_ns() < service.slow_until.load(Relaxed) {
            return Err(Errno::TIMEDOUT);
        }
        if service.shows.load(Relaxed) {
            self.show();
        }
        let mut answered = service.ask(self);
        if let Ok((len, files)) = &answered
            && self.is_refused(*len)
        {
            if self.op == Op::Open {
                // Of what it answers nothing else tells whom it is for.
                service.complain(number, Errno::ACCESS);
            } else if self.show() {
                files.close();
                service.shows.store(true, Relaxed);
                answered = service.ask(self);
            }
        } else if answered.is_ok()
            && !service.shows.load(Relaxed)
            && said().load(Relaxed) & all_of(number) != 0
        {
            said().fetch_and(!all_of(number), Relaxed);
        }
        let (len, files) = match answered {
            Ok(answered) => answered,
            Err(Errno::TIMEDOUT) if is_short => {
                service.slow_until.store(clock::monotonic_ns() + SLOW_NS, Relaxed);
                return Err(Errno::TIMEDOUT);
            }
            Err(e) => {
                service.complain(number, e);
                return Err(match e {
                    Errno::MFILE | Errno::ACCESS => e,
                    Errno::PERM => Errno::ACCESS,
                    _ => Errno::NETDOWN,
                });
            }
        };
        let close = |e| {
            files.close();
            Err(e)
        };
        let Some((header, body)) = Header::decode(&self.answer[..len]) else { return close(Errno::PROTO) };
        match header.errno {
            0 => Ok(Answer { socket: header.socket, files, body: Body(body) }),
            errno @ 1..=4095 => close(Errno::from_raw_os_error(errno)),
            _ => close(Errno::PROTO),
        }
    }
}

/// Whether at the other end there is a service that can be in that folder.
fn is_of(folder: &Folder, connected: i32) -> bool {
    unix::peer_credentials(connected).is_ok_and(|peer| folder.has_services_of(peer.uid))
}

/// Why there is no answer.
enum Failure {
    /// The connection is over: another one may work.
    Lost,
    /// Nothing is to be gained by trying again.
    Final(Errno),
}

impl From<Errno> for Failure {
    fn from(errno: Errno) -> Failure {
        match errno {
            Errno::PIPE | Errno::CONNRESET | Errno::NOTCONN => Failure::Lost,
            other => Failure::Final(other),
        }
    }
}

impl Service {
    const fn new() -> Service {
        Service {
            name: OnceLock::new(),
            turn: Lock::new(),
            fd: AtomicI32::new(-1),
            file: [const { AtomicU64::new(0) }; 2],
            maker: AtomicU32::new(0),
            asker: AtomicU32::new(0),
            serial: AtomicU32::new(0),
            user: AtomicU32::new(process::OVERFLOW_UID),
            met: AtomicBool::new(false),
            shows: AtomicBool::new(false),
            pair: AtomicU64::new(0),
            greeted: AtomicU32::new(0),
            slow_until: AtomicU64::new(0),
        }
    }

    fn name(&self) -> &str {
        self.name.get().map_or("", ServiceName::as_str)
    }

    /// Length of the answer, and the descriptors that came with it.
    fn ask(&self, message: &mut Message) -> Result<(usize, Files)> {
        let until = clock::monotonic_ns() + message.longest;
        let mut result = Err(Failure::Lost);
        if self.is_ours() {
            result = self.exchange(self.fd.load(Relaxed), message, until);
        }
        if matches!(result, Err(Failure::Lost)) {
            // There was none, or the service has been started anew.
            self.disconnect();
            result = self.exchange(self.connect(until)?, message, until);
        }
        result.map_err(|failure| {
            let errno = failure.errno();
            if errno != Errno::TIMEDOUT || message.longest == LONGEST_NS {
                self.disconnect();
            }
            errno
        })
    }

    /// Whether there is a connection that this process made and still has.
    fn is_ours(&self) -> bool {
        let fd = self.fd.load(Relaxed);
        if fd < 0 {
            return false;
        }
        let file = (self.file[0].load(Relaxed), self.file[1].load(Relaxed));
        if fd::identity(fd) != Ok(file) {
            // The number is somebody else's.
            self.fd.store(-1, Relaxed);
            return false;
        }
        if self.maker.load(Relaxed) != process::pid() || self.asker.load(Relaxed) != process::principal() {
            self.disconnect();
            return false;
        }
        true
    }

    fn disconnect(&self) {
        let fd = self.fd.swap(-1, Relaxed);
        if fd >= 0 && self.maker.load(Relaxed) == process::pid() {
            // With whatever was sent there and not received.
            strangers::close_caller(fd);
        } else if fd >= 0 {
            fd::close(fd);
        }
    }

    fn connect(&self, until: u64) -> Result<i32> {
        let fd = self.dial(until)?;
        let file = fd::identity(fd).unwrap_or_default();
        self.file[0].store(file.0, Relaxed);
        self.file[1].store(file.1, Relaxed);
        self.maker.store(process::pid(), Relaxed);
        self.asker.store(process::principal(), Relaxed);
        // Before it is greeted: who is forked meanwhile closes it.
        self.fd.store(fd, Release);
        if let Err(e) = self.greet(fd, until) {
            self.disconnect();
            return Err(e);
        }
        self.user.store(unix::peer_credentials(fd).map_or(process::OVERFLOW_UID, |peer| peer.uid), Relaxed);
        self.met.store(true, Relaxed);
        self.greeted.fetch_add(1, Relaxed);
        Ok(fd)
    }

    /// Connects to the socket in the first folder that has one where somebody listens.
    fn dial(&self, until: u64) -> Result<i32> {
        let mut last = Errno::NOENT;
        for folder in FOLDERS.get().into_iter().flatten() {
            let mut room = [0; LONGEST_PATH];
            let Some(path) = folder.socket(self.name(), &mut room) else { continue };
            let path = Path::new(OsStr::from_bytes(path));
            loop {
                match turn::high(state::floor(), || seqpacket::connect(path).map(IntoRawFd::into_raw_fd)) {
                    Ok(service) if is_of(folder, service) => return Ok(service),
                    Ok(stranger) => {
                        strangers::close(&[stranger]);
                        last = Errno::CONNREFUSED;
                        break;
                    }
                    Err(Errno::AGAIN) if clock::monotonic_ns() < until => {
                        let _ = ppoll(&mut [], Some(PAUSE_NS), 0);
                    }
                    Err(Errno::NOENT | Errno::NOTDIR) => break,
                    Err(e) => {
                        last = e;
                        break;
                    }
                }
            }
        }
        Err(last)
    }

    /// The version, and whether this is the service that is meant.
    fn greet(&self, fd: i32, until: u64) -> Result<()> {
        let mut hello = Message::new(Op::Hello, 0).number(VERSION as i32);
        let (len, files) = self.exchange(fd, &mut hello, until).map_err(Failure::errno)?;
        files.close();
        let (header, body) = Header::decode(&hello.answer[..len]).ok_or(Errno::PROTO)?;
        let mut body = Body(body);
        let (version, _pid) = (body.u32(), body.u32());
        let is_meant = header.errno == 0 && version == Some(VERSION) && body.rest() == self.name().as_bytes();
        match header.errno {
            libc::EACCES => Err(Errno::ACCESS),
            _ if is_meant => Ok(()),
            _ => Err(Errno::PROTO),
        }
    }

    fn exchange(
        &self,
        fd: i32,
        message: &mut Message,
        until: u64,
    ) -> std::result::Result<(usize, Files), Failure> {
        let serial = self.serial.fetch_add(1, Relaxed).wrapping_add(1);
        let header = Header { op: message.op, serial, socket: message.socket, errno: 0 };
        message.out[..HEADER].copy_from_slice(&header.encode());
        let mut files = [-1; 2];
        let all = message.with.into_iter().chain(message.shown);
        let count = files.iter_mut().zip(all).map(|(place, file)| *place = file).count();
        loop {
            match unix::send_as_principal(fd, &message.out[..message.len], &files[..count]) {
                Ok(()) => break,
                Err(Errno::AGAIN) => wait(fd, libc::POLLOUT, until)?,
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
        loop {
            let got = match unix::recv_relied_on(fd, &mut message.answer, state::floor()) {
                Ok(Some(got)) => got,
                Ok(None) => {
                    wait(fd, libc::POLLIN, until)?;
                    continue;
                }
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            if got.len == 0 {
                return Err(Failure::Lost);
            }
            let answered = Header::decode(&message.answer[..got.len])
                .is_some_and(|(header, _)| header.op == message.op && header.serial == serial);
            let wanted = match message.op {
                Op::Open | Op::Again if answered => 1,
                Op::Rings if answered => MAX_FDS,
                _ => 0,
            };
            strangers::close_files(got.fds[..got.fd_count].get(wanted..).unwrap_or_default());
            if !answered {
                // Of a question that nobody waits for any more, or nonsense.
                if Header::decode(&message.answer[..got.len]).is_none() || clock::monotonic_ns() >= until {
                    return Err(Failure::Final(Errno::PROTO));
                }
                continue;
            }
            return Ok((got.len, Files { all: got.fds, count: got.fd_count.min(wanted) }));
        }
    }

    /// Says what can be done, once until it answers again, whoever of the processes that were forked from one asks.
    #[cold]
    fn complain(&self, number: u32, errno: Errno) {
        let (kind, what) = match errno {
            // The last two: while it was asked.
            Errno::NOENT | Errno::CONNREFUSED | Errno::CONNRESET | Errno::PIPE if self.met.load(Relaxed) => (
                0,
                "has ended, and its connections with it; once it is started again, new sockets are served, and those that listen or are of datagrams serve again",
            ),
            Errno::NOENT | Errno::CONNREFUSED => (0, "is not running"),
            Errno::ACCESS | Errno::PERM => (
                1,
                "is not for this user: start it with --users NAME, or name the user in `users` under [limits] of its file",
            ),
            Errno::TIMEDOUT => (2, "does not answer; is it stopped?"),
            Errno::MFILE | Errno::NFILE | Errno::INVAL => (
                3,
                "cannot be asked, as there is no descriptor left; raise the limit of open files (ulimit -n)",
            ),
            Errno::PROTO => (
                3,
                "is another one, or speaks another version; start it and this program from the same version",
            ),
            _ => (0, "is gone"),
        };
        let bit = 1 << kind << all_of(number).trailing_zeros();
        if said().fetch_or(bit, Relaxed) & bit != 0 {
            return;
        }
        let name = self.name();
        let flag = if name == ServiceName::DEFAULT { ["", ""] } else { [" --name ", name] };
        let remedy = Remedy(kind == 0, flag);
        log::line(LogLevel::Error, format_args!("the netstack service {name} {what}{remedy}"));
    }
}

/// What starts a service.
struct Remedy<'a>(bool, [&'a str; 2]);

impl std::fmt::Display for Remedy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Remedy(is_of_use, [flag, name]) = self;
        if *is_of_use {
            write!(f, ": start it with `bypath netstack{flag}{name} --link LINK`")
        } else {
            Ok(())
        }
    }
}

impl Failure {
    fn errno(self) -> Errno {
        match self {
            Failure::Lost => Errno::CONNRESET,
            Failure::Final(errno) => errno,
        }
    }
}

/// Waits until `fd` is ready. The program's handlers wait as well: a signal that comes is kept, and ends one sleep only.
fn wait(fd: i32, events: i16, until: u64) -> Result<()> {
    loop {
        let left = until.saturating_sub(clock::monotonic_ns());
        if left == 0 {
            return Err(Errno::TIMEDOUT);
        }
        match ppoll(&mut [PollFd { fd, events, revents: 0 }], Some(left), 0) {
            Ok(1..) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// In a forked child: the connections are the parent's, and so were those who waited for a turn.
pub fn enter_child() {
    for service in &KNOWN {
        service.turn.reset();
        service.shows.store(false, Relaxed);
        if service.fd.load(Relaxed) >= 0 {
            service.disconnect();
        }
    }
}

/// Nothing is asked any more.
pub fn leave() {
    for service in &KNOWN {
        if service.fd.load(Relaxed) >= 0
            && let Some(_turn) = service.turn.lock(table::tid())
        {
            service.disconnect();
        }
    }
}

/// Every such connection.
pub fn descriptors(mut f: impl FnMut(i32)) {
    for service in &KNOWN {
        f(service.fd.load(Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, AsRawFd};

    #[test]
    fn names_that_anybody_can_make_up_take_no_places_of_services() {
        let folder = std::env::temp_dir().join(format!("bypath-known-{}", process::pid()));
        std::fs::create_dir(&folder).unwrap();
        let only = |name: &str| (name == place::VARIABLE).then(|| folder.clone().into_os_string());
        let name = |name: &str| ServiceName::new(name).unwrap();
        init(place::folders(only, 0, 0), [name("used")].into_iter());
        for n in 0..2 * SERVICES {
            assert_eq!(number_if_there(name(&format!("nobodys{n}"))), None);
        }
        let listener = seqpacket::bind(&folder.join("lab")).unwrap();
        seqpacket::listen(listener.as_fd(), 1).unwrap();
        let lab = number_if_there(name("lab"));
        assert!(lab.is_some() && lab == number(name("lab")) && lab != number_if_there(name("used")));
        // Who has made a pair is asked, too: this process is not who listens there, or it is.
        let (own, _theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(may_be_of("lab", own.as_raw_fd()));
        let mut other = std::process::Command::new("python3");
        let code = "import socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\ns.bind(sys.argv[1])\ns.listen(9)\nprint(flush=True)\nsys.stdin.read()";
        other.args(["-c", code]).arg(folder.join("taken"));
        let other = other.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped()).spawn();
        if let Ok(mut other) = other {
            std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut [0]).unwrap();
            assert!(!may_be_of("taken", own.as_raw_fd()) && may_be_of("lab", own.as_raw_fd()));
            drop(other.stdin.take());
            other.wait().unwrap();
            // Nobody can tell.
            assert!(may_be_of("taken", own.as_raw_fd()));
        }
        // A service that was killed leaves its socket behind.
        drop(listener);
        assert_eq!(number_if_there(name("lab")), lab);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_was_said_of_one_service_is_not_what_was_said_of_another() {
        let all: Vec<u32> = (0..SERVICES as u32).map(all_of).collect();
        assert_eq!(all.iter().fold(0, |one, other| one | other), u32::MAX);
        assert_eq!(all.iter().map(|bits| bits.count_ones()).sum::<u32>(), u32::BITS);
    }

    #[test]
    fn what_a_service_sends_along_and_nobody_wants_is_closed_at_once() {
        use std::io::{Read, Write};
        use std::net::{TcpListener, TcpStream};
        use std::time::{Duration, Instant};

        const SECONDS: i32 = 20;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut lingers = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        // It does not read meanwhile.
        let (mut reader, _) = listener.accept().unwrap();
        lingers.set_nonblocking(true).unwrap();
        while lingers.write(&[0; 65_536]).is_ok() {}
        let linger = [1, SECONDS].map(i32::to_ne_bytes).concat();
        bypath_sys::sock::set_option(lingers.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger)
            .unwrap();
        let files = Files { all: [lingers.into_raw_fd(), -1, -1, -1], count: 1 };
        let began = Instant::now();
        files.close();
        assert!(began.elapsed() < Duration::from_secs(SECONDS as u64) / 2, "{:?}", began.elapsed());
        // Closed it is.
        reader.set_read_timeout(Some(Duration::from_secs(SECONDS as u64))).unwrap();
        assert!(reader.read_to_end(&mut Vec::new()).is_ok());
    }
}
