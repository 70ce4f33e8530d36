//! TCP of a host, with calls that block.

use crate::Host;
use crate::host::{Inner, Shared, Waiters};
use crate::signal::Signal;
use crate::udp::{bind_error, network_error};
use bypath_stack::Tcp;
use bypath_stack::path::Unreachable;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{AcceptError, ConnectError, ListenError, ReadError, WriteError};
use bypath_stack::tcp::{Failure, Options, Settings, State, Statistics};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Connections that wait to be accepted, if nobody says how many: as the standard library has it.
const BACKLOG: usize = 128;

/// A socket of the stack, and who waits for it. Dropping it closes the socket.
struct Socket {
    shared: Arc<Shared>,
    id: SocketId,
    news: Arc<Signal>,
    timeout: Mutex<Option<Duration>>,
}

impl Socket {
    /// The socket, from now on one that can be waited for.
    fn register(shared: Arc<Shared>, inner: &mut Inner, id: SocketId) -> Socket {
        let waiters = Waiters::default();
        let news = Arc::clone(&waiters.threads);
        inner.waiters.insert(id, waiters);
        Socket { shared, id, news, timeout: Mutex::new(None) }
    }

    /// A new one.
    fn open(host: &Host, change: impl FnOnce(&mut Options, &mut Settings)) -> io::Result<Socket> {
        let shared = Arc::clone(host.shared());
        let mut inner = shared.lock();
        let stack = inner.running()?.stack();
        let id = stack.open_tcp().map_err(|e| io::Error::new(ErrorKind::OutOfMemory, e))?;
        let mut tcp = tcp(&mut inner, id)?;
        let (mut options, mut settings) = (tcp.options(), tcp.settings());
        change(&mut options, &mut settings);
        tcp.set_options(options);
        tcp.set_settings(crate::Engine::now(), settings);
        let own = Arc::clone(&shared);
        Ok(Socket::register(own, &mut inner, id))
    }

    fn set_timeout(&self, timeout: Option<Duration>) {
        *self.timeout.lock().unwrap_or_else(PoisonError::into_inner) = timeout;
    }

    /// Calls the socket; frames that follow from it go out.
    fn with<T>(&self, call: impl FnOnce(&mut Tcp<'_>) -> T) -> io::Result<T> {
        let mut inner = self.shared.lock();
        let result = call(&mut tcp(&mut inner, self.id)?);
        self.shared.push(&mut inner);
        Ok(result)
    }

    /// Tries, and waits while there is nothing.
    fn wait<T>(&self, mut attempt: impl FnMut(&mut Inner) -> io::Result<Option<T>>) -> io::Result<T> {
        let timeout = *self.timeout.lock().unwrap_or_else(PoisonError::into_inner);
        let end = timeout.and_then(|t| Instant::now().checked_add(t));
        loop {
            let mut inner = self.shared.lock();
            if let Some(done) = attempt(&mut inner)? {
                return Ok(done);
            }
            // What was there can be read after the end, and nothing more comes.
            inner.running()?;
            let seen = self.news.count();
            drop(inner);
            if timeout.is_some_and(|t| t.is_zero()) {
                return Err(ErrorKind::WouldBlock.into());
            }
            if !self.news.wait(seen, end) {
                return Err(ErrorKind::TimedOut.into());
            }
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        let waiters = inner.waiters.remove(&self.id);
        if let Ok(engine) = inner.engine() {
            engine.stack().close(self.id);
        }
        self.shared.push(&mut inner);
        drop(inner);
        drop(waiters);
    }
}

fn tcp(inner: &mut Inner, id: SocketId) -> io::Result<Tcp<'_>> {
    inner.engine()?.stack().tcp(id).ok_or_else(|| ErrorKind::BrokenPipe.into())
}

/// Connections to a [`Host`], with the calls and errors of [`std::net::TcpListener`]. Several threads may use it at the same time.
pub struct TcpListener {
    socket: Socket,
}

impl TcpListener {
    /// Listens to an address of the host; 0.0.0.0 and :: stand for all, port 0 for one that is free.
    ///
    /// # Errors
    /// AddrInUse, AddrNotAvailable; OutOfMemory: the stack has as many sockets as it may; BrokenPipe: the host has ended.
    pub fn bind(host: &Host, local: SocketAddr) -> io::Result<TcpListener> {
        TcpListener::bind_with(host, local, BACKLOG, |_, _| {})
    }

    /// The same with what it, and its connections, want of the stack; `backlog`: connections that wait to be accepted.
    ///
    /// # Errors
    /// Those of [`bind`](TcpListener::bind).
    pub fn bind_with(
        host: &Host,
        local: SocketAddr,
        backlog: usize,
        change: impl FnOnce(&mut Options, &mut Settings),
    ) -> io::Result<TcpListener> {
        // As the standard library has it: connections of an earlier listener are not in the way.
        let socket = Socket::open(host, |options, settings| {
            options.reuse_address = true;
            change(options, settings);
        })?;
        socket.with(|tcp| tcp.bind(local).map_err(bind_error))??;
        socket.with(|tcp| {
            tcp.listen(backlog).map_err(|e| match e {
                ListenError::Bind(e) => bind_error(e),
                e => io::Error::new(ErrorKind::InvalidInput, e),
            })
        })??;
        Ok(TcpListener { socket })
    }

    /// The next connection, and who has called.
    ///
    /// # Errors
    /// TimedOut, WouldBlock; BrokenPipe: the host has ended.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let own = &self.socket;
        own.wait(|inner| match tcp(inner, own.id)?.accept() {
            Ok(id) => {
                let socket = Socket::register(Arc::clone(&own.shared), inner, id);
                let remote = tcp(inner, id)?.remote();
                let remote = remote.ok_or(ErrorKind::NotConnected)?;
                Ok(Some((TcpStream { socket, deaf: AtomicBool::new(false) }, remote)))
            }
            Err(AcceptError::Empty) => Ok(None),
            Err(e) => Err(io::Error::new(ErrorKind::InvalidInput, e)),
        })
    }

    /// Its address.
    ///
    /// # Errors
    /// The host has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with(|tcp| tcp.local())?.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Longest wait of [`accept`](TcpListener::accept); `None`: as long as it takes; zero: it does not wait, and answers WouldBlock.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.socket.set_timeout(timeout);
    }

    /// The stack's name of it, for what [`Host::with`] does.
    pub const fn id(&self) -> SocketId {
        self.socket.id
    }
}

/// A connection of a [`Host`], with the calls and errors of [`std::net::TcpStream`]. Several threads may use it at the same time.
pub struct TcpStream {
    socket: Socket,
    /// Nothing more is read.
    deaf: AtomicBool,
}

impl TcpStream {
    /// Calls, and waits until the connection is open.
    ///
    /// # Errors
    /// ConnectionRefused, ConnectionReset, TimedOut, HostUnreachable, NetworkUnreachable; AddrNotAvailable: no port is free;
    /// OutOfMemory: the stack has as many sockets as it may; BrokenPipe: the host has ended.
    pub fn connect(host: &Host, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_with(host, to, None, None, |_, _| {})
    }

    /// The same from an address, for no longer than `timeout`, with what it wants of the stack.
    ///
    /// # Errors
    /// Those of [`connect`](TcpStream::connect), and AddrInUse.
    pub fn connect_with(
        host: &Host,
        to: SocketAddr,
        from: Option<SocketAddr>,
        timeout: Option<Duration>,
        change: impl FnOnce(&mut Options, &mut Settings),
    ) -> io::Result<TcpStream> {
        let socket = Socket::open(host, change)?;
        if let Some(from) = from {
            socket.with(|tcp| tcp.bind(from).map_err(bind_error))??;
        }
        socket.with(|tcp| tcp.connect(crate::Engine::now(), to).map_err(connect_error))??;
        socket.set_timeout(timeout);
        socket.wait(|inner| {
            let mut tcp = tcp(inner, socket.id)?;
            if let Some(failure) = tcp.take_error() {
                return Err(failed(failure));
            }
            let waits = matches!(tcp.state(), Some(State::SynSent | State::SynReceived));
            Ok((!waits).then_some(()))
        })?;
        socket.set_timeout(None);
        Ok(TcpStream { socket, deaf: AtomicBool::new(false) })
    }

    /// Whom it is connected with.
    ///
    /// # Errors
    /// The host has ended.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with(|tcp| tcp.remote())?.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Its own end.
    ///
    /// # Errors
    /// The host has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with(|tcp| tcp.local())?.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Longest wait of a call; `None`: it waits as long as it takes; zero: it does not wait, and answers WouldBlock.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.socket.set_timeout(timeout);
    }

    /// Octets that came, as many as there are and fit; 0: the other side has finished.
    ///
    /// # Errors
    /// ConnectionReset and its like; TimedOut, WouldBlock; BrokenPipe: the host has ended.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<usize> {
        self.take(|tcp| tcp.read(room))
    }

    /// The same, and they stay.
    ///
    /// # Errors
    /// The same.
    pub fn peek(&self, room: &mut [u8]) -> io::Result<usize> {
        self.take(|tcp| tcp.peek(room))
    }

    fn take(&self, mut take: impl FnMut(&mut Tcp<'_>) -> Result<usize, ReadError>) -> io::Result<usize> {
        if self.deaf.load(Ordering::Relaxed) {
            return Ok(0);
        }
        let own = &self.socket;
        own.wait(|inner| {
            let taken = take(&mut tcp(inner, own.id)?);
            match taken {
                Ok(n) => {
                    // The window may have to be told.
                    own.shared.push(inner);
                    Ok(Some(n))
                }
                Err(ReadError::Empty) => Ok(None),
                Err(ReadError::Failed(failure)) => Err(failed(failure)),
                Err(e) => Err(io::Error::new(ErrorKind::NotConnected, e)),
            }
        })
    }

    /// Queues octets to be sent, as many as there is room for; how many. Waits for room.
    ///
    /// # Errors
    /// BrokenPipe: the connection is over, was shut down, or the host has ended; ConnectionReset and its like; TimedOut,
    /// WouldBlock.
    pub fn send(&self, octets: &[u8]) -> io::Result<usize> {
        let own = &self.socket;
        own.wait(|inner| match tcp(inner, own.id)?.write(octets) {
            Ok(n) => {
                own.shared.push(inner);
                Ok(Some(n))
            }
            Err(WriteError::Full) => Ok(None),
            Err(WriteError::Failed(failure)) => Err(failed(failure)),
            Err(e @ WriteError::NotConnected) => Err(io::Error::new(ErrorKind::NotConnected, e)),
            Err(e) => Err(io::Error::new(ErrorKind::BrokenPipe, e)),
        })
    }

    /// Writes no more, reads no more, or both: see [`std::net::TcpStream::shutdown`].
    ///
    /// # Errors
    /// NotConnected; BrokenPipe: the host has ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.deaf.store(true, Ordering::Relaxed);
            self.socket.news.raise();
        }
        if how != Shutdown::Read {
            let finished = self.socket.with(|tcp| tcp.finish())?;
            finished.map_err(|e| io::Error::new(ErrorKind::NotConnected, e))?;
        }
        Ok(())
    }

    /// Wants something of the stack: see [`Options`] and [`Settings`].
    ///
    /// # Errors
    /// The host has ended.
    pub fn set(&self, change: impl FnOnce(&mut Options, &mut Settings)) -> io::Result<()> {
        self.socket.with(|tcp| {
            let (mut options, mut settings) = (tcp.options(), tcp.settings());
            change(&mut options, &mut settings);
            tcp.set_options(options);
            tcp.set_settings(crate::Engine::now(), settings);
        })
    }

    /// Short segments are sent at once, or collected: TCP_NODELAY.
    ///
    /// # Errors
    /// The host has ended.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.set(|_, settings| settings.nodelay = nodelay)
    }

    /// How it does, in the manner of TCP_INFO.
    ///
    /// # Errors
    /// The host has ended.
    pub fn statistics(&self) -> io::Result<Statistics> {
        self.socket.with(|tcp| tcp.statistics())?.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// Why it is over; it is forgotten.
    ///
    /// # Errors
    /// The host has ended.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        Ok(self.socket.with(|tcp| tcp.take_error())?.map(failed))
    }

    /// The stack's name of it, for what [`Host::with`] does.
    pub const fn id(&self) -> SocketId {
        self.socket.id
    }
}

impl Read for &TcpStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.recv(room)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.send(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.recv(room)
    }
}

impl Write for TcpStream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.send(octets)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpListener").field(&self.socket.id).finish()
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpStream").field(&self.socket.id).finish()
    }
}

fn failed(failure: Failure) -> io::Error {
    let kind = match failure {
        Failure::Refused => ErrorKind::ConnectionRefused,
        Failure::Reset => ErrorKind::ConnectionReset,
        Failure::TimedOut => ErrorKind::TimedOut,
        Failure::Network(e) => return network_error(e),
    };
    io::Error::new(kind, failure)
}

fn connect_error(e: ConnectError) -> io::Error {
    let kind = match e {
        ConnectError::Unreachable(Unreachable::Route | Unreachable::Scope) | ConnectError::NotAHost => {
            ErrorKind::NetworkUnreachable
        }
        ConnectError::Unreachable(_) | ConnectError::InUse => ErrorKind::AddrNotAvailable,
        _ => ErrorKind::InvalidInput,
    };
    io::Error::new(kind, e)
}
