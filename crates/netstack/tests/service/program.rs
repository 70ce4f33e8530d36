//! A program that speaks the protocol of docs/netstack-service.md, as the preload library does.

use crate::LONGEST;
use bypath_shm::service::{ACCEPTED, Accepted, Address, Body, HEADER, Header, MESSAGE, Op};
use bypath_sys::seqpacket;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{ControlMessage, ControlMessageOwned, MsgFlags, recvmsg, sendmsg};
use std::io::{IoSlice, IoSliceMut};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Mutex;

/// Its connection for questions.
pub struct Program {
    end: Mutex<(OwnedFd, u32)>,
    /// Of whose thread it was made: the service hears him alone there, and root may send in his name.
    uid: u32,
}

/// What was answered.
#[derive(Debug)]
pub struct Answer {
    pub errno: i32,
    pub socket: u64,
    pub body: Vec<u8>,
    pub with: Option<OwnedFd>,
    /// What came behind the first descriptor.
    pub more: Vec<OwnedFd>,
}

/// This thread, which ends soon, and no other is another user's. Root may be anybody.
pub fn become_user(uid: u32) {
    // SAFETY: numbers alone. The C library would have all threads change.
    let changed = unsafe { libc::syscall(libc::SYS_setresuid, uid, uid, uid) };
    assert_eq!(changed, 0, "root's right");
}

/// What poll(2) says within this time (ms).
pub fn ready(fd: BorrowedFd<'_>, wanted: PollFlags, ms: u16) -> PollFlags {
    let mut fds = [PollFd::new(fd, wanted)];
    poll(&mut fds, PollTimeout::from(ms)).expect("poll");
    fds[0].revents().expect("flags that are known")
}

impl Program {
    pub fn new(path: &Path) -> Program {
        // SAFETY: no arguments. It is the thread's, which the C library would not change alone.
        let uid = unsafe { libc::syscall(libc::SYS_getuid) } as u32;
        Program { end: Mutex::new((seqpacket::connect(path).expect("a service"), 0)), uid }
    }

    /// The same of another user's. Root may be anybody.
    pub fn of(path: &Path, uid: u32) -> Program {
        let path = path.to_owned();
        let dials = move || {
            become_user(uid);
            Program::new(&path)
        };
        std::thread::spawn(dials).join().expect("a program")
    }

    /// The same connection, once more.
    pub fn own(&self) -> OwnedFd {
        self.end.lock().expect("unbroken").0.try_clone().expect("a descriptor")
    }

    /// Sends any octets.
    pub fn say(&self, message: &[u8]) -> bypath_sys::Result<()> {
        self.send(self.end.lock().expect("unbroken").0.as_fd(), message, &[])
    }

    /// As its user, whichever thread this is.
    fn send(&self, end: BorrowedFd<'_>, message: &[u8], with: &[RawFd]) -> bypath_sys::Result<()> {
        // SAFETY: no arguments.
        let gid = unsafe { libc::getgid() };
        let sender = libc::ucred { pid: std::process::id() as i32, uid: self.uid, gid }.into();
        let all = [ControlMessage::ScmCredentials(&sender), ControlMessage::ScmRights(with)];
        let all = &all[..1 + usize::from(!with.is_empty())];
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        let sent = sendmsg::<()>(end.as_raw_fd(), &[IoSlice::new(message)], all, flags, None);
        sent.map(|_| ()).map_err(|e| bypath_sys::Errno::from_raw_os_error(e as i32))
    }

    /// Sends any octets, and as many descriptors as the kernel lets pass. Whether the service still listens is not asked.
    pub fn say_with_numbers(&self, message: &[u8], with: &[RawFd]) {
        let end = self.end.lock().expect("unbroken");
        let _ = self.send(end.0.as_fd(), message, with);
    }

    /// The next message; `None`: the service has closed the connection.
    pub fn hear(&self) -> Option<(Vec<u8>, Option<OwnedFd>)> {
        let (message, files) = hear(self.end.lock().expect("unbroken").0.as_fd())?;
        Some((message, files.into_iter().next()))
    }

    pub fn ask_with(&self, op: Op, socket: u64, body: &[u8], with: Option<BorrowedFd<'_>>) -> Answer {
        self.ask_with_all(op, socket, body, with.as_slice())
    }

    pub fn ask_with_all(&self, op: Op, socket: u64, body: &[u8], with: &[BorrowedFd<'_>]) -> Answer {
        let mut end = self.end.lock().expect("unbroken");
        end.1 += 1;
        let header = Header { op, serial: end.1, socket, errno: 0 };
        let message = [&header.encode()[..], body].concat();
        let with: Vec<RawFd> = with.iter().map(AsRawFd::as_raw_fd).collect();
        self.send(end.0.as_fd(), &message, &with).expect("a service that listens");
        let (message, files) = hear(end.0.as_fd()).expect("an answer");
        let mut files = files.into_iter();
        let (with, more) = (files.next(), files.collect());
        let (answer, body) = Header::decode(&message).expect("a header");
        assert_eq!((answer.op, answer.serial), (op, header.serial));
        Answer { errno: answer.errno, socket: answer.socket, body: body.to_vec(), with, more }
    }

    pub fn ask(&self, op: Op, socket: u64, body: &[u8]) -> Answer {
        self.ask_with(op, socket, body, None)
    }

    /// A new socket.
    pub fn open(&self, v6: bool) -> Result<Sock<'_>, i32> {
        let domain = if v6 { libc::AF_INET6 } else { libc::AF_INET };
        let body = [domain, libc::SOCK_STREAM, 0].map(i32::to_ne_bytes).concat();
        let answer = self.ask(Op::Open, 0, &body);
        if answer.errno != 0 {
            return Err(answer.errno);
        }
        Ok(Sock::of(self, answer.with.expect("a descriptor"), answer.socket))
    }

    /// A new socket with options that connects at once: errno, and the socket where there is one.
    pub fn dial(&self, to: SocketAddr, options: &[(i32, i32, &[u8])]) -> (i32, Option<Sock<'_>>) {
        let domain = if to.is_ipv6() { libc::AF_INET6 } else { libc::AF_INET };
        let mut body = [domain, libc::SOCK_STREAM, 0].map(i32::to_ne_bytes).concat();
        body.extend(Address(Some(to)).encode());
        for (level, name, value) in options {
            body.extend([*level, *name, value.len() as i32].map(i32::to_ne_bytes).concat());
            body.extend(*value);
        }
        let answer = self.ask(Op::Open, 0, &body);
        assert_eq!(answer.errno, 0);
        let errno = Body(&answer.body).i32().expect("an errno");
        (errno, answer.with.map(|end| Sock::of(self, end, answer.socket)))
    }

    /// A socket of the family of this address.
    pub fn socket(&self, like: SocketAddr) -> Sock<'_> {
        self.open(like.is_ipv6()).expect("a socket")
    }

    /// One that listens there, and where.
    pub fn listener(&self, local: SocketAddr) -> (Sock<'_>, SocketAddr) {
        let socket = self.socket(local);
        let local = socket.bind(local).expect("a port");
        assert_eq!(socket.listen(128), 0);
        (socket, local)
    }

    /// One that is connected.
    pub fn connect(&self, to: SocketAddr) -> Sock<'_> {
        let socket = self.socket(to);
        assert_eq!(socket.connect(to), 0);
        socket
    }
}

fn hear(end: BorrowedFd<'_>) -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    let mut room = vec![0; MESSAGE];
    loop {
        match seqpacket::receive_relied_on(end, &mut room) {
            Ok(Some((0, _))) | Err(_) => return None,
            Ok(Some((len, fds))) => return Some((room[..len].to_vec(), fds)),
            Ok(None) => {
                let patience = LONGEST.as_millis() as u16;
                assert!(!ready(end, PollFlags::POLLIN, patience).is_empty(), "no answer");
            }
        }
    }
}

/// A socket of the service's.
pub struct Sock<'a> {
    pub program: &'a Program,
    pub stream: UnixStream,
    pub cookie: u64,
}

impl<'a> Sock<'a> {
    pub fn of(program: &'a Program, fd: OwnedFd, cookie: u64) -> Sock<'a> {
        let stream = UnixStream::from(fd);
        stream.set_read_timeout(Some(LONGEST)).expect("a time-out");
        stream.set_write_timeout(Some(LONGEST)).expect("a time-out");
        Sock { program, stream, cookie }
    }

    pub fn ask(&self, op: Op, body: &[u8]) -> Answer {
        self.program.ask(op, self.cookie, body)
    }

    pub fn bind(&self, to: SocketAddr) -> Result<SocketAddr, i32> {
        let answer = self.ask(Op::Bind, &Address(Some(to)).encode());
        if answer.errno != 0 {
            return Err(answer.errno);
        }
        Ok(Body(&answer.body).address().expect("an address").0.expect("of a family"))
    }

    pub fn listen(&self, backlog: i32) -> i32 {
        let body = backlog.to_ne_bytes();
        self.program.ask_with(Op::Listen, self.cookie, &body, Some(self.stream.as_fd())).errno
    }

    /// Asks for a connection; what is answered.
    pub fn begin(&self, to: SocketAddr) -> i32 {
        let body = Address(Some(to)).encode();
        self.program.ask_with(Op::Connect, self.cookie, &body, Some(self.stream.as_fd())).errno
    }

    /// connect(2) that waits.
    pub fn connect(&self, to: SocketAddr) -> i32 {
        match self.begin(to) {
            libc::EINPROGRESS => {
                let patience = LONGEST.as_millis() as u16;
                assert!(
                    !ready(self.stream.as_fd(), PollFlags::POLLOUT, patience).is_empty(),
                    "no connection"
                );
                self.error()
            }
            errno => errno,
        }
    }

    /// SO_ERROR.
    pub fn error(&self) -> i32 {
        let answer = self.ask(Op::Error, &[]);
        assert_eq!(answer.errno, 0);
        Body(&answer.body).i32().expect("a number")
    }

    /// Own address, the other end's, and the state.
    pub fn names(&self) -> (Option<SocketAddr>, Option<SocketAddr>, u32) {
        let answer = self.ask(Op::Names, &[]);
        assert_eq!(answer.errno, 0);
        let mut body = Body(&answer.body);
        let (local, remote) = (body.address().expect("one"), body.address().expect("one"));
        (local.0, remote.0, body.u32().expect("a state"))
    }

    pub fn set(&self, level: i32, name: i32, value: &[u8]) -> i32 {
        self.ask(Op::Set, &[&level.to_ne_bytes()[..], &name.to_ne_bytes(), value].concat()).errno
    }

    pub fn get(&self, level: i32, name: i32) -> Result<Vec<u8>, i32> {
        let answer = self.ask(Op::Get, &[level, name, 128].map(i32::to_ne_bytes).concat());
        if answer.errno == 0 { Ok(answer.body) } else { Err(answer.errno) }
    }

    /// With room for so many octets.
    pub fn get_of(&self, level: i32, name: i32, room: u32) -> Result<Vec<u8>, i32> {
        let answer = self.ask(Op::Get, &[level, name, room as i32].map(i32::to_ne_bytes).concat());
        if answer.errno == 0 { Ok(answer.body) } else { Err(answer.errno) }
    }

    /// accept(2).
    pub fn accept(&self) -> (Sock<'a>, Accepted) {
        let (fd, record) = accept(&self.stream).expect("a connection");
        (Sock::of(self.program, fd, record.cookie), record)
    }

    pub fn ready(&self, wanted: PollFlags, ms: u16) -> PollFlags {
        ready(self.stream.as_fd(), wanted, ms)
    }
}

/// Takes a record; `None`: nobody listens any more.
pub fn accept(stream: &UnixStream) -> Option<(OwnedFd, Accepted)> {
    let mut record = [0; ACCEPTED];
    let mut space = nix::cmsg_space!(i32);
    let (len, fd) = {
        let mut parts = [IoSliceMut::new(&mut record)];
        let got = recvmsg::<()>(stream.as_raw_fd(), &mut parts, Some(&mut space), MsgFlags::MSG_CMSG_CLOEXEC)
            .expect("a record");
        let fd = got.cmsgs().expect("control messages").find_map(|message| match message {
            ControlMessageOwned::ScmRights(fds) => fds.first().copied(),
            _ => None,
        });
        (got.bytes, fd)
    };
    if len == 0 {
        return None;
    }
    assert_eq!(len, ACCEPTED);
    // SAFETY: it was received just now and is nobody else's.
    let fd = unsafe { OwnedFd::from_raw_fd(fd.expect("a descriptor")) };
    Some((fd, Accepted::decode(&record).expect("a record")))
}

const _: () = assert!(HEADER < MESSAGE);
