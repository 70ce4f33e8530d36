//! The hostile end of an accelerated connection: it speaks the real handshake, in either role, and has the memory mapped then.

use crate::dice::Dice;
use bypath_shm::arena::{Control, Geometry};
use bypath_shm::direction::{Direction, Readable};
use bypath_shm::inbox::{BELL, MESSAGE_VERSION, MESSAGE_WORDS};
use bypath_shm::region::{Arena, OwnInbox};
use bypath_shm::ring::Ring;
use bypath_sys::unix::{self, Received};
use bypath_sys::{fd, process, sock, sockdiag};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

pub const HELLO: u64 = 0x6f6c6c6548;
pub const WELCOME: u64 = 0x656d6f636c6557;
/// How long the other end is given to come.
const PATIENCE: Duration = Duration::from_millis(300);

pub type Message = [u64; MESSAGE_WORDS];

pub fn octets(message: &Message) -> Vec<u8> {
    message.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

fn words<const N: usize>(octets: &[u8]) -> Option<[u64; N]> {
    let mut message = [0; N];
    if octets.len() != 8 * N {
        return None;
    }
    for (word, chunk) in message.iter_mut().zip(octets.chunks_exact(8)) {
        *word = u64::from_ne_bytes(chunk.try_into().expect("eight octets"));
    }
    Some(message)
}

pub fn bell(number: u32) -> Message {
    let mut message = [0; MESSAGE_WORDS];
    (message[0], message[1], message[2]) = (BELL, MESSAGE_VERSION, number.into());
    message
}

fn owned(received: &Received) -> Vec<OwnedFd> {
    let all = received.fds[..received.fd_count].iter();
    // SAFETY: the kernel made them for us just now.
    all.map(|&fd| unsafe { OwnedFd::from_raw_fd(fd) }).collect()
}

pub fn own(fd: i32) -> OwnedFd {
    // SAFETY: a descriptor that was made just now, and that nobody else has.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// A connection to the victim, and what both its ends are called.
pub struct Line {
    pub stream: TcpStream,
    pub cookie: u64,
    pub theirs: u64,
}

impl Line {
    pub fn to(port: u16) -> Line {
        Line::of(TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).expect("connect"))
    }

    pub fn of(stream: TcpStream) -> Line {
        stream.set_nonblocking(true).expect("a socket that does not wait");
        let s = stream.as_raw_fd();
        let cookie = sock::option_u64(s, libc::SOL_SOCKET, libc::SO_COOKIE).expect("SO_COOKIE");
        let netlink = own(sockdiag::open(3).expect("sock_diag"));
        let (local, remote) =
            (sock::local_address(s).expect("bound"), sock::remote_address(s).expect("connected"));
        let found = sockdiag::tcp(netlink.as_raw_fd(), &remote, &local).expect("sock_diag");
        Line { stream, cookie, theirs: found.map_or(0, |found| found.cookie) }
    }

    /// Without waiting: what does not fit is not said.
    pub fn say(&self, octets: &[u8]) -> usize {
        use std::io::Write;
        (&self.stream).write(octets).unwrap_or(0)
    }

    pub fn hear(&self) -> usize {
        use std::io::Read;
        (&self.stream).read(&mut [0; 65536]).unwrap_or(0)
    }
}

pub fn name(cookie: u64) -> Vec<u8> {
    format!("bypath/1/{cookie:016x}").into_bytes()
}

/// Asks `get` until it has something, for a while; meanwhile `wake` makes the victim look.
pub fn until_patience_ends<T>(mut wake: impl FnMut(), mut get: impl FnMut() -> Option<T>) -> Option<T> {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(got) = get() {
            return Some(got);
        }
        if Instant::now() > until {
            return None;
        }
        wake();
        // The victim has a processor meanwhile.
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// The same; the victim is made to look by what `line` brings.
pub fn patiently<T>(line: &Line, get: impl FnMut() -> Option<T>) -> Option<T> {
    let wake = || {
        line.say(b"look");
        line.hear();
    };
    until_patience_ends(wake, get)
}

/// A message with its descriptors.
pub fn receive(s: &OwnedFd) -> Option<(Message, Vec<OwnedFd>)> {
    receive_words(s)
}

/// The same of another length.
pub fn receive_words<const N: usize>(s: &OwnedFd) -> Option<([u64; N], Vec<OwnedFd>)> {
    let mut room = [0; 256];
    let received = unix::recv(s.as_raw_fd(), &mut room, 3).ok()??;
    let fds = owned(&received);
    Some((words(&room[..received.len])?, fds))
}

pub fn send(s: &OwnedFd, octets: &[u8], fds: &[&OwnedFd]) -> bool {
    let fds: Vec<i32> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    unix::send(s.as_raw_fd(), octets, &fds).is_ok()
}

/// With as many descriptors as the kernel allows.
pub fn send_many<'a>(s: &OwnedFd, octets: &[u8], fds: impl Iterator<Item = &'a OwnedFd>) -> bool {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let fds: Vec<_> = fds.map(AsFd::as_fd).collect();
    let mut room = [const { std::mem::MaybeUninit::uninit() }; rustix::cmsg_space!(ScmRights(253))];
    let mut control = SendAncillaryBuffer::new(&mut room);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)), "too many");
    sendmsg(s, &[std::io::IoSlice::new(octets)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)
        .is_ok()
}

/// What the victim takes once it has seen who calls; `None`: not yet.
pub fn first_words(s: &OwnedFd, octets: &[u8], fds: &[&OwnedFd]) -> Option<bool> {
    let fds: Vec<i32> = fds.iter().map(|fd| fd.as_raw_fd()).collect();
    match unix::send(s.as_raw_fd(), octets, &fds) {
        Err(bypath_sys::Errno::PERM) => None,
        sent => Some(sent.is_ok()),
    }
}

/// Who has called, who may send descriptors.
pub fn accepted(listener: &OwnedFd) -> bypath_sys::Result<Option<OwnedFd>> {
    let caller = unix::accept(listener.as_raw_fd(), 3)?.map(own);
    caller.iter().for_each(|caller| unix::take_descriptors(caller.as_raw_fd(), true));
    Ok(caller)
}

/// The victim's listener of this connection, connected to.
pub fn dial(line: &Line) -> Option<OwnedFd> {
    patiently(line, || unix::connect(&name(line.theirs), 3).ok().map(own))
}

/// Waits for the victim's call on our own name.
pub fn answer(line: &Line) -> Option<OwnedFd> {
    let listener = own(unix::listen(&name(line.cookie), 3).ok()?);
    patiently(line, || accepted(&listener).ok()?)
}

pub fn hello(line: &Line, token: u64, ring: u32) -> Message {
    let mut m = [0; MESSAGE_WORDS];
    (m[0], m[1], m[2], m[3], m[4]) = (HELLO, MESSAGE_VERSION, line.cookie, line.theirs, token);
    m[5..8].copy_from_slice(&process::namespaces());
    (m[8], m[9]) = (7, ring.into());
    m
}

pub fn welcome(pair: u64, token: u64, geometry: Geometry) -> Message {
    let mut m = [0; MESSAGE_WORDS];
    (m[0], m[1], m[2], m[3]) = (WELCOME, MESSAGE_VERSION, pair, token);
    m[5..8].copy_from_slice(&process::namespaces());
    m[8] = 7;
    m[9] = u64::from(geometry.slots) << 32 | u64::from(geometry.ring);
    m[10] = 1;
    m
}

/// Both ends have mapped the connection.
pub struct Mapped {
    pub channel: OwnedFd,
    pub inbox: OwnInbox,
    pub control: &'static Control,
    /// Index of the direction that we write.
    pub role: usize,
    pub ring: Ring,
    arena: Arena,
    /// What the victim wakes us by marks here.
    _ours: OwnInbox,
}

impl Mapped {
    pub fn out(&self) -> &'static Direction {
        &self.control.direction[self.role]
    }

    pub fn inc(&self) -> &'static Direction {
        &self.control.direction[1 - self.role]
    }

    /// Reads as an honest end would.
    pub fn listen(&self, line: &Line) {
        line.hear();
        match self.inc().readable(self.ring.size()) {
            Ok(Readable::Drain(head)) => {
                self.inc().drained(head);
            }
            Ok(Readable::Ring { head, available }) => {
                self.inc().commit(head, available);
            }
            _ => {}
        }
    }

    /// The first octets of the ring that the victim writes.
    pub fn written<const N: usize>(&self) -> [u8; N] {
        let mut octets = [0; N];
        self.arena.ring(0, 1 - self.role).expect("a ring").copy_to_slice(0, &mut octets);
        octets
    }

    /// Gives the mapping back. The memory's octets go for the victim, too.
    pub fn let_go(&self) {
        self.arena.release_all();
    }
}

/// A memfd whose size is sealed, or is not.
pub fn memfd(flags: u32, size: i64, seals: i32) -> Option<OwnedFd> {
    // SAFETY: integers and a name that outlives the call.
    let fd = unsafe { libc::memfd_create(c"odd".as_ptr(), flags | libc::MFD_ALLOW_SEALING) };
    let fd = if fd < 0 { return None } else { own(fd) };
    // SAFETY: integers only.
    let done = unsafe {
        libc::ftruncate(fd.as_raw_fd(), size) == 0
            && libc::fcntl(fd.as_raw_fd(), libc::F_ADD_SEALS, seals) == 0
    };
    done.then_some(fd)
}

pub const SEALED: i32 = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// One of huge pages, of which there are perhaps none: who touches it gets SIGBUS then.
pub fn huge() -> Option<OwnedFd> {
    memfd(libc::MFD_HUGETLB, 2 << 30, SEALED)
}

/// Descriptors that a message can bring instead of the right one.
pub fn odd(dice: &mut Dice) -> OwnedFd {
    match dice.below(9) {
        0 => huge().unwrap_or_else(|| bare_eventfd(0, 0)),
        // One that can still shrink, one that is too small, one that may not be written.
        1 => memfd(0, 1 << 24, 0).expect("a memfd"),
        2 => memfd(0, 4096, SEALED).expect("a memfd"),
        3 => memfd(0, 1 << 24, SEALED | libc::F_SEAL_WRITE).expect("a memfd"),
        // Bells that would make a writer wait: a full counter, and one that waits.
        4 => bare_eventfd(u64::MAX - 1, 0),
        5 => bare_eventfd(u64::MAX - 1, libc::EFD_NONBLOCK),
        // One whose writer gets SIGPIPE.
        6 => own(std::io::pipe().expect("a pipe").1.as_raw_fd_dup()),
        7 => own(std::os::unix::net::UnixStream::pair().expect("a pair").0.as_raw_fd_dup()),
        _ => std::fs::File::open("/dev/null").expect("/dev/null").into(),
    }
}

/// A duplicate whose original goes at the end of the statement.
trait Duplicate {
    fn as_raw_fd_dup(&self) -> i32;
}

impl<T: AsRawFd> Duplicate for T {
    fn as_raw_fd_dup(&self) -> i32 {
        fd::dup_high(self.as_raw_fd(), 3).expect("a descriptor")
    }
}

/// Memory that cannot shrink, of so many octets.
pub fn memory(octets: usize) -> OwnedFd {
    own(bypath_sys::memfd::create(c"bypath-inbox", octets, 3).expect("memory"))
}

pub fn bare_eventfd(count: u64, flags: i32) -> OwnedFd {
    // SAFETY: integers only.
    let fd = own(unsafe { libc::eventfd(0, flags) });
    if count > 0 {
        // SAFETY: eight octets of a local.
        unsafe { libc::write(fd.as_raw_fd(), (&raw const count).cast(), 8) };
    }
    fd
}

/// A connection whose last close waits for 40 s, and what keeps it from ending sooner.
pub fn lingering() -> (OwnedFd, impl Sized) {
    use std::io::Write;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("listen");
    let mut full = TcpStream::connect(listener.local_addr().expect("bound")).expect("connect");
    let (reader, _) = listener.accept().expect("a connection");
    full.set_nonblocking(true).expect("a socket that does not wait");
    while full.write(&[0; 65536]).is_ok() {}
    let linger = [1i32, 40].map(i32::to_ne_bytes).concat();
    sock::set_option(full.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger).expect("SO_LINGER");
    (full.into(), (listener, reader))
}

/// What one who is called hands out: memory that is ours.
pub struct Offer {
    geometry: Geometry,
    slot: u32,
    arena: Arena,
    pub file: OwnedFd,
    ours: OwnInbox,
    pub inbox: OwnedFd,
    /// The answer that goes with both.
    pub said: Vec<u8>,
}

impl Offer {
    pub fn new(geometry: Geometry, names: &mut Dice) -> Offer {
        let (arena, file) = Arena::new(geometry, 3).expect("an arena");
        let (ours, inbox) = OwnInbox::new().expect("an inbox");
        arena.control(0).expect("a slot").direction.iter().for_each(Direction::reset);
        let said = octets(&welcome(names.next(), names.next(), geometry));
        Offer { geometry, slot: 0, arena, file: own(file), ours, inbox, said }
    }

    /// Another slot of it than the first one.
    pub fn slot(mut self, slot: u32) -> Offer {
        self.slot = slot;
        self.said[32..40].copy_from_slice(&u64::from(slot).to_ne_bytes());
        self.arena.control(slot).expect("a slot").direction.iter().for_each(Direction::reset);
        self
    }

    /// What is mapped if the victim takes it; `theirs` is its inbox.
    pub fn taken(self, channel: OwnedFd, theirs: &OwnedFd) -> Option<Mapped> {
        let Offer { geometry, slot, arena, ours, .. } = self;
        debug_assert!(geometry.is_valid());
        let (control, ring) = (arena.control(slot).ok()?, arena.ring(slot, 1).ok()?);
        let inbox = OwnInbox::map(theirs.as_raw_fd()).ok()?;
        Some(Mapped { channel, inbox, control, role: 1, ring, arena, _ours: ours })
    }
}

/// Waits for the victim's call and its inbox.
pub fn called(line: &Line) -> Option<(OwnedFd, OwnedFd)> {
    let channel = answer(line)?;
    let (hello, fds) = patiently(line, || receive(&channel))?;
    Some((channel, fds.into_iter().next().filter(|_| hello[0] == HELLO)?))
}

/// How long a second thread writes into words after the last word of a handshake.
const BESIDE: Duration = Duration::from_millis(2);

/// Whether this attack has a second thread; what that does is no part of the first one's dice.
pub fn second(dice: &Dice) -> Option<Dice> {
    let mut own = Dice(dice.0 ^ 0x5ec0_4d00_5ec0_4d00);
    (own.below(4) == 0).then_some(own)
}

/// Lets another thread write again and again while `meanwhile` runs.
pub fn beside<T>(mut writes: impl FnMut() + Send, meanwhile: impl FnOnce() -> T) -> T {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = Over(&is_over);
        scope.spawn(|| {
            while !is_over.load(Relaxed) {
                writes();
            }
        });
        meanwhile()
    })
}

/// Anything in any word of a connection, but for numbers of bells: what a victim would ring is told elsewhere.
fn scribble(control: &Control, dice: &mut Dice) {
    let d = &control.direction[dice.below(2)];
    let number = dice.number();
    match dice.below(9) {
        0 => d.t.tail.store(number, Relaxed),
        1 => d.h.head.store(number, Relaxed),
        2 => d.wa.switch_k.store(number, Relaxed),
        3 => d.ra.ask.store(number as u32, Relaxed),
        4 => d.wa.flags.store(number as u32, Relaxed),
        5 => d.t.cpu.store(number as u32, Relaxed),
        6 => d.h.carrier_read.store(number, Relaxed),
        7 => control.cookies[dice.below(2)].store(number, Relaxed),
        _ => control.ends[dice.below(2)].store(number as u32, Relaxed),
    }
}

/// Scribbles until the victim has had some time to look, and leaves words behind as they are at the beginning.
fn scribbled<T>(line: &Line, control: &Control, dice: &mut Dice, meanwhile: impl FnOnce() -> T) -> T {
    let done = beside(
        || scribble(control, dice),
        || {
            let done = meanwhile();
            let until = Instant::now() + BESIDE;
            while Instant::now() < until {
                line.say(b"look");
                line.hear();
            }
            done
        },
    );
    control.direction.iter().for_each(Direction::reset);
    done
}

/// Our side of the handshake as the one who is called.
pub fn accept(line: &Line, dice: &mut Dice) -> Option<Mapped> {
    let (channel, theirs) = called(line)?;
    let geometry = Geometry { slots: 1 + dice.below(2) as u32, ring: 4096 << dice.below(3) };
    let mut offer = Offer::new(geometry, dice);
    let odd = odd(dice);
    let Offer { inbox, file, .. } = &offer;
    let mut said = offer.said.clone();
    let fds = match spoil(&mut said, dice) {
        false => vec![inbox, file],
        true => match dice.below(5) {
            0 => vec![&odd, file],
            1 => vec![inbox, &odd],
            2 => vec![inbox],
            3 => vec![],
            _ => vec![inbox, file],
        },
    };
    let twice = dice.below(16) == 0;
    let answer = || {
        send(&channel, &said, &fds);
        if twice {
            send(&channel, &said, &fds);
        }
    };
    match second(dice) {
        None => answer(),
        Some(mut own) => {
            let control = offer.arena.control(0).ok()?;
            scribbled(line, control, &mut own, answer);
        }
    }
    offer.said = said;
    offer.taken(channel, &theirs)
}

/// As [`accept`], in good order.
pub fn accept_well(line: &Line, geometry: Geometry) -> Mapped {
    let (channel, theirs) = called(line).expect("the victim calls");
    let offer = Offer::new(geometry, &mut Dice(line.cookie));
    assert!(send(&channel, &offer.said, &[&offer.inbox, &offer.file]));
    offer.taken(channel, &theirs).expect("mapped")
}

/// Our side of the handshake as the one who calls: the memory is the victim's.
pub fn call(line: &Line, dice: &mut Dice) -> Option<Mapped> {
    let channel = dial(line)?;
    let (ours, inbox) = OwnInbox::new().ok()?;
    let mut said = octets(&hello(line, dice.next(), 4096 << dice.below(4)));
    let odd = odd(dice);
    let fds = match spoil(&mut said, dice) {
        false => vec![&inbox],
        true => match dice.below(4) {
            0 => vec![],
            1 => vec![&inbox, &inbox],
            2 => vec![&inbox],
            _ => vec![&odd],
        },
    };
    patiently(line, || first_words(&channel, &said, &fds))?;
    if dice.below(16) == 0 {
        send(&channel, &said, &fds);
    }
    let (welcome, fds) = patiently(line, || receive(&channel))?;
    let [theirs, file] = &fds[..] else { return None };
    let geometry = Geometry { slots: (welcome[9] >> 32) as u32, ring: welcome[9] as u32 };
    let arena = Arena::map(file.as_raw_fd(), geometry).ok()?;
    let slot = welcome[4] as u32;
    let (control, ring) = (arena.control(slot).ok()?, arena.ring(slot, 0).ok()?);
    let inbox = OwnInbox::map(theirs.as_raw_fd()).ok()?;
    if let Some(mut own) = second(dice) {
        scribbled(line, control, &mut own, || ());
    }
    Some(Mapped { channel, inbox, control, role: 0, ring, arena, _ours: ours })
}

/// One message in four is not what it should be: cut, longer, with other words, or with its octets as they are and other
/// descriptors (the answer is true then).
fn spoil(said: &mut Vec<u8>, dice: &mut Dice) -> bool {
    match dice.below(16) {
        0 => said.truncate(dice.below(8 * MESSAGE_WORDS)),
        1 => said.extend([7; 8]),
        2 => {
            let (at, value) = (dice.below(11), dice.number());
            said[8 * at..8 * at + 8].copy_from_slice(&value.to_ne_bytes());
        }
        3 => return true,
        _ => {}
    }
    false
}
