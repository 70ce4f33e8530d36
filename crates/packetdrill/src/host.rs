//! A machine with one link: POSIX's socket calls, the packets that leave it and come to it, and its clock.
//!
//! Any thread may call. A call that waits gives the lock away. In real time a thread of its own does what is due; in virtual
//! time whoever lets time pass does, and lets calls that wait look at what happened before it goes on.

use crate::address;
use crate::file::{File, Kind, Socket};
use crate::flags::{Flags, Time};
use crate::io::Received;
use crate::machine::{Machine, Packet};
use crate::pipe::Pipe;
use crate::waiting::{Guard, OVER, Shared};
use bypath_stack::linux::errno::{self as errors, Result};
use bypath_stack::tcp::State;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// How long a thread whose call is over has for what it does next, before virtual time goes on.
const SETTLE: Duration = Duration::from_millis(10);
/// A machine. It is gone when this is dropped.
pub struct Host {
    shared: Arc<Shared>,
    timer: Option<JoinHandle<()>>,
}

impl Host {
    /// A new machine.
    ///
    /// # Errors
    /// What the flags want that cannot be.
    pub fn new(flags: Flags) -> std::result::Result<Host, String> {
        let time = flags.time;
        let seed = match time {
            Time::Virtual => [7; 32],
            Time::Real => {
                let mut seed = [0; 32];
                seed[..8].copy_from_slice(&bypath_sys::clock::realtime_ns().to_ne_bytes());
                seed[8..16].copy_from_slice(&bypath_sys::clock::ticks().to_ne_bytes());
                seed
            }
        };
        let machine = Mutex::new(Machine::new(flags, seed)?);
        let shared = Arc::new(Shared { machine, changed: Condvar::new(), maker: thread::current().id() });
        let timer = (time == Time::Real).then(|| {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.keep_time())
        });
        Ok(Host { shared, timer })
    }

    /// A call that never waits.
    pub(crate) fn call<T>(&self, call: impl FnOnce(&mut Machine) -> T) -> T {
        let mut machine = self.shared.lock();
        machine.run();
        let result = call(&mut machine);
        drop(self.shared.tell(machine));
        result
    }

    /// Tries until it is done; see [`Shared::until`].
    fn until<T>(
        &self,
        waits: bool,
        most: Option<Duration>,
        attempt: impl FnMut(&mut Machine) -> Result<T>,
    ) -> Result<T> {
        let mut machine = self.shared.lock();
        machine.run();
        self.shared.until(machine, waits, most, attempt)
    }

    // The link and the clock.

    /// A packet comes.
    pub fn netdev_send(&self, packet: &[u8]) {
        self.call(|machine| machine.take(packet));
    }

    /// The next packet that leaves, and when it did, in microseconds since 1970.
    ///
    /// # Errors
    /// EAGAIN: none did for as long as the flags say.
    pub fn netdev_receive(&self) -> Result<(Vec<u8>, i64)> {
        let mut machine = self.shared.lock();
        let most = machine.flags.patience;
        let end = machine.now() + most;
        loop {
            machine.run();
            if let Some(Packet { octets, at }) = machine.left.pop_front() {
                return Ok((octets, machine.clock.wall(at)));
            }
            let now = machine.now();
            if now >= end {
                return Err(libc::EAGAIN);
            }
            if machine.clock.is_virtual() {
                let next = machine.next().unwrap_or(end).min(end);
                machine = self.shared.pass(machine, next);
            } else {
                machine = self.shared.wait(machine, Some(end.since(now)));
            }
        }
    }

    /// Time passes.
    pub fn usleep(&self, time: Duration) {
        let machine = self.shared.lock();
        if !machine.clock.is_virtual() {
            drop(machine);
            return thread::sleep(time);
        }
        let mut machine = self.let_settle(machine);
        let until = machine.now() + time;
        machine = self.shared.pass(machine, until);
        drop(self.let_settle(machine));
    }

    /// A thread whose call is over has to tell whoever waits for that.
    fn let_settle<'a>(&'a self, mut machine: Guard<'a>) -> Guard<'a> {
        if !std::mem::take(&mut machine.returned) {
            return machine;
        }
        drop(machine);
        thread::sleep(SETTLE);
        self.shared.lock()
    }

    /// Microseconds since 1970. In virtual time a microsecond passes; a thread whose call is over is told when that was, once.
    pub fn wall(&self) -> i64 {
        let mut machine = self.shared.lock();
        if machine.clock.is_virtual() {
            if let Some(at) = OVER.take() {
                return machine.clock.wall(at);
            }
            let until = machine.now() + Duration::from_micros(1);
            machine = self.shared.pass(machine, until);
        }
        machine.clock.wall(machine.now())
    }

    // Sockets.

    /// # Errors
    /// EAFNOSUPPORT, ESOCKTNOSUPPORT, EPROTONOSUPPORT, ENFILE.
    pub fn socket(&self, domain: i32, kind: i32, protocol: i32) -> Result<i32> {
        let v6 = match domain {
            libc::AF_INET => false,
            libc::AF_INET6 => true,
            _ => return Err(libc::EAFNOSUPPORT),
        };
        let (nonblock, cloexec) = (kind & libc::SOCK_NONBLOCK != 0, kind & libc::SOCK_CLOEXEC != 0);
        let udp = match (kind & !(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC), protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => false,
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => true,
            (libc::SOCK_STREAM | libc::SOCK_DGRAM, _) => return Err(libc::EPROTONOSUPPORT),
            _ => return Err(libc::ESOCKTNOSUPPORT),
        };
        self.call(|machine| {
            let opened = if udp { machine.stack.open_udp() } else { machine.stack.open_tcp() };
            let id = opened.map_err(|_| libc::ENFILE)?;
            let mut socket = Socket::new(id, v6);
            if !udp {
                machine.set_up(&mut socket);
            }
            let kind = if udp { Kind::Udp } else { Kind::Tcp };
            Ok(machine.files.add(File { nonblock, cloexec, ..File::new(kind, Some(socket)) }))
        })
    }

    /// # Errors
    /// EBADF, ENOTSOCK, EINVAL, EADDRINUSE, EADDRNOTAVAIL, EAFNOSUPPORT.
    pub fn bind(&self, fd: i32, to: &[u8]) -> Result<()> {
        self.call(|machine| {
            let socket = machine.files.socket(fd)?;
            let (id, local) = (socket.id, address::read(to, socket.v6)?);
            let bound = match machine.stack.tcp(id) {
                Some(mut tcp) => tcp.bind(local),
                None => machine.stack.udp(id).ok_or(libc::EBADF)?.bind(local),
            };
            machine.files.socket(fd)?.bound = Some(bound.map_err(errors::bind)?);
            Ok(())
        })
    }

    /// # Errors
    /// EBADF, ENOTSOCK, EOPNOTSUPP, EINVAL, EADDRINUSE.
    pub fn listen(&self, fd: i32, backlog: i32) -> Result<()> {
        self.call(|machine| {
            let socket = machine.files.socket(fd)?;
            let (id, ecn) = (socket.id, socket.ecn_for_callers);
            let now = machine.now();
            let mut tcp = machine.stack.tcp(id).ok_or(libc::EOPNOTSUPP)?;
            if ecn {
                let settings = tcp.settings();
                tcp.set_settings(now, bypath_stack::tcp::Settings { ecn, ..settings });
            }
            tcp.listen(usize::try_from(backlog).unwrap_or(4096)).map_err(errors::listen)
        })
    }

    /// A connection, and who called.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK, EOPNOTSUPP, EINVAL, EAGAIN.
    pub fn accept(&self, fd: i32) -> Result<(i32, Vec<u8>)> {
        let (waits, most) = self.patience(fd, true)?;
        self.until(waits, most, |machine| {
            let id = machine.files.socket(fd)?.id;
            let mut tcp = machine.stack.tcp(id).ok_or(libc::EOPNOTSUPP)?;
            let called = tcp.accept().map_err(errors::accept)?;
            let remote = machine.stack.tcp(called).and_then(|mut tcp| tcp.remote());
            let socket = machine.files.socket(fd)?.heir(called);
            let v6 = socket.v6;
            let fd = machine.files.add(File::new(Kind::Tcp, Some(socket)));
            Ok((fd, remote.map_or(Vec::new(), |remote| address::write(remote, v6))))
        })
    }

    /// # Errors
    /// As connect(2).
    pub fn connect(&self, fd: i32, to: &[u8]) -> Result<()> {
        let (waits, most) = self.patience(fd, false)?;
        let done = self.until(waits, most, |machine| machine.connect(fd, to));
        match done {
            Err(libc::EAGAIN) => Err(libc::EINPROGRESS),
            other => other,
        }
    }

    /// Whether a call on it waits, and for how long.
    fn patience(&self, fd: i32, receives: bool) -> Result<(bool, Option<Duration>)> {
        let mut machine = self.shared.lock();
        let file = machine.files.get(fd)?;
        let (receive, send) = file.socket.as_ref().map_or((None, None), |socket| socket.patience);
        Ok((!file.nonblock, if receives { receive } else { send }))
    }

    /// # Errors
    /// As recv(2).
    pub fn receive(&self, fd: i32, most: usize, flags: i32) -> Result<Received> {
        self.receive_into(fd, most, flags, |_, _| Ok(()))
    }

    /// The same; octets of a connection are taken when the caller could put them where they belong, behind so many others.
    ///
    /// # Errors
    /// As recv(2), or the caller's, if there were no octets before.
    pub fn receive_into(
        &self,
        fd: i32,
        most: usize,
        flags: i32,
        mut put: impl FnMut(usize, &[u8]) -> Result<()>,
    ) -> Result<Received> {
        let (waits, patience) = self.patience(fd, true)?;
        let waits = waits && flags & (libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE) == 0;
        let peeks = flags & libc::MSG_PEEK != 0;
        let mut so_far = Received::default();
        let done = self.until(waits, patience, |machine| {
            // What is looked at is looked at from the beginning.
            if peeks {
                so_far = Received::default();
            }
            let least = machine.least(fd, most, flags)?;
            let begin = so_far.octets.len();
            let mut received = machine.receive(fd, most - begin, flags | libc::MSG_PEEK)?;
            put(begin, &received.octets)?;
            if !peeks {
                received = machine.receive(fd, received.octets.len(), flags)?;
            }
            let left = if peeks { received.octets.len() } else { 0 };
            let end = received.octets.is_empty() || machine.is_last(fd, left);
            so_far.octets.extend_from_slice(&received.octets);
            (so_far.len, so_far.from, so_far.inq) = (so_far.len + received.len, received.from, received.inq);
            if !end && so_far.octets.len() < least { Err(libc::EAGAIN) } else { Ok(()) }
        });
        match done {
            Err(_) if !so_far.octets.is_empty() => Ok(so_far),
            done => done.map(|()| so_far),
        }
    }

    /// # Errors
    /// As send(2).
    pub fn send(&self, fd: i32, octets: &[u8], flags: i32, to: Option<&[u8]>) -> Result<usize> {
        let (waits, patience) = self.patience(fd, false)?;
        let waits = waits && flags & libc::MSG_DONTWAIT == 0;
        let to = self.call(|machine| machine.destination(fd, to))?;
        let (mut sent, mut full) = (0, false);
        let done = self.until(waits, patience, |machine| {
            // Who waits for room waits until it is worth it, as Linux has it.
            if full && machine.is_full(fd)? {
                return Err(libc::EAGAIN);
            }
            full = true;
            sent += machine.send(fd, &octets[sent..], flags, to)?;
            if sent < octets.len() { Err(libc::EAGAIN) } else { Ok(()) }
        });
        match done {
            Err(_) if sent > 0 => Ok(sent),
            done => done.map(|()| sent),
        }
    }

    /// # Errors
    /// As splice(2), with EINVAL where no end is a pipe.
    pub fn splice(&self, from: i32, to: i32, most: usize, flags: u32) -> Result<usize> {
        let waits = flags & libc::SPLICE_F_NONBLOCK == 0;
        let waits = waits && self.patience(from, true)?.0 && self.patience(to, false)?.0;
        self.until(waits, None, |machine| machine.splice(from, to, most))
    }

    /// The end that is read, and the one that is written.
    pub fn pipe(&self) -> (i32, i32) {
        self.call(|machine| {
            machine.files.pipes.push(Pipe::new());
            let pipe = machine.files.pipes.len() - 1;
            let mut end = |writes| machine.files.add(File::new(Kind::Pipe(pipe, writes), None));
            (end(false), end(true))
        })
    }

    /// # Errors
    /// EBADF.
    pub fn close(&self, fd: i32) -> Result<()> {
        self.call(|machine| {
            let file = machine.files.remove(fd).ok_or(libc::EBADF)?;
            machine.unwatch(fd);
            match file.kind {
                Kind::Pipe(pipe, true) => machine.files.pipes[pipe].open.1 = false,
                Kind::Pipe(pipe, false) => machine.files.pipes[pipe].open.0 = false,
                _ => {}
            }
            if let Some(socket) = file.socket {
                machine.stack.close(socket.id);
            }
            Ok(())
        })
    }

    /// # Errors
    /// EBADF, ENOTSOCK, EINVAL, ENOTCONN.
    pub fn shutdown(&self, fd: i32, how: i32) -> Result<()> {
        self.call(|machine| machine.shutdown(fd, how))
    }

    /// The own end, or the other one.
    ///
    /// # Errors
    /// EBADF, ENOTSOCK, ENOTCONN.
    pub fn name(&self, fd: i32, of_peer: bool) -> Result<Vec<u8>> {
        self.call(|machine| {
            let socket = machine.files.socket(fd)?;
            let (id, v6) = (socket.id, socket.v6);
            let found = match machine.stack.tcp(id) {
                // What was a connection has no other end, even if it is in TIME-WAIT.
                Some(mut tcp) if of_peer => match tcp.state() {
                    None | Some(State::Closed | State::SynSent | State::TimeWait) => None,
                    _ => tcp.remote(),
                },
                Some(mut tcp) => tcp.local(),
                None => {
                    let mut udp = machine.stack.udp(id).ok_or(libc::EBADF)?;
                    if of_peer { udp.remote() } else { udp.local() }
                }
            };
            let nobody: SocketAddr = if v6 { ([0u16; 8], 0).into() } else { ([0u8; 4], 0).into() };
            match found {
                None if of_peer => Err(libc::ENOTCONN),
                found => Ok(address::write(found.unwrap_or(nobody), v6)),
            }
        })
    }

    /// # Errors
    /// As setsockopt(2).
    pub fn set_option(&self, fd: i32, level: i32, name: i32, value: &[u8]) -> Result<()> {
        self.call(|machine| machine.set_option(fd, level, name, value))
    }

    /// # Errors
    /// As getsockopt(2).
    pub fn option(&self, fd: i32, level: i32, name: i32) -> Result<Vec<u8>> {
        self.call(|machine| machine.option(fd, level, name))
    }

    /// # Errors
    /// EBADF, EINVAL.
    pub fn fcntl(&self, fd: i32, command: i32, value: i32) -> Result<i32> {
        self.call(|machine| machine.fcntl(fd, command, value))
    }

    /// One that tells a number: SIOCINQ, SIOCOUTQ, SIOCOUTQNSD.
    ///
    /// # Errors
    /// EBADF, EINVAL, ENOTTY.
    pub fn ioctl(&self, fd: i32, request: u64) -> Result<i32> {
        self.call(|machine| machine.ioctl(fd, request))
    }

    // Waiting for several.

    /// Fills in what each is ready for; how many are. Milliseconds; less than 0: for ever.
    ///
    /// # Errors
    /// None.
    pub fn poll(&self, fds: &mut [libc::pollfd], most: i32) -> Result<usize> {
        let patience = u64::try_from(most).ok().map(Duration::from_millis);
        // One that is closed while it is waited for wakes nobody, and is told of beside others.
        let (mut ready, mut gone, mut is_first) = (0, 0, true);
        let done = self.until(most != 0, patience, |machine| {
            (ready, gone) = (0, 0);
            for fd in fds.iter_mut() {
                let wanted = fd.events as u16 as u32 | (libc::POLLERR | libc::POLLHUP) as u32;
                fd.revents = match machine.readiness(fd.fd) {
                    _ if fd.fd < 0 => 0,
                    Ok(mask) => (mask & wanted) as i16,
                    Err(_) => libc::POLLNVAL,
                };
                let closed = !is_first && fd.revents == libc::POLLNVAL;
                gone += usize::from(closed);
                ready += usize::from(fd.revents != 0 && !closed);
            }
            is_first = false;
            if ready == 0 { Err(libc::EAGAIN) } else { Ok(()) }
        });
        match done {
            Err(libc::EAGAIN) => Ok(gone),
            done => done.map(|()| ready + gone),
        }
    }

    /// A new set of descriptors.
    pub fn epoll_create(&self) -> i32 {
        self.call(Machine::epoll_create)
    }

    /// # Errors
    /// EBADF, EINVAL, EEXIST, ENOENT.
    pub fn epoll_ctl(&self, epfd: i32, what: i32, fd: i32, event: Option<(u32, u64)>) -> Result<()> {
        self.call(|machine| machine.epoll_ctl(epfd, what, fd, event))
    }

    /// What a set has to tell: events and data.
    ///
    /// # Errors
    /// EBADF, EINVAL.
    pub fn epoll_wait(&self, epfd: i32, events: usize, most: i32) -> Result<Vec<(u32, u64)>> {
        if events == 0 {
            return Err(libc::EINVAL);
        }
        let patience = u64::try_from(most).ok().map(Duration::from_millis);
        match self.until(most != 0, patience, |machine| machine.epoll_poll(epfd, events)) {
            Err(libc::EAGAIN) => Ok(Vec::new()),
            told => told,
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.shared.lock().over = true;
        self.shared.changed.notify_all();
        if let Some(timer) = self.timer.take() {
            let _ = timer.join();
        }
    }
}
