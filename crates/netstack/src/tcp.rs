//! TCP of a host, with calls that block.

use crate::Host;
use crate::host::{Inner, Shared};
use crate::socket::{Socket, nothing};
use crate::udp::{bind_error, network_error};
use bypath_stack::Tcp;
use bypath_stack::path::Unreachable;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{AcceptError, ConnectError, ListenError, ReadError, WriteError};
use bypath_stack::tcp::{Failure, Options, Settings, State, Statistics};
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Connections that wait to be accepted, if nobody says how many: as the standard library has it.
const BACKLOG: usize = 128;

impl Socket {
    /// A new one.
    fn open(shared: &Arc<Shared>, change: impl FnOnce(&mut Options, &mut Settings)) -> io::Result<Socket> {
        let mut inner = shared.lock();
        let stack = inner.running()?.stack();
        let id = stack.open_tcp().map_err(|e| io::Error::new(ErrorKind::OutOfMemory, e))?;
        let mut tcp = tcp(&mut inner, id)?;
        let (mut options, mut settings) = (tcp.options(), tcp.settings());
        change(&mut options, &mut settings);
        tcp.set_options(options);
        tcp.set_settings(crate::Engine::now(), settings);
        Ok(Socket::register(Arc::clone(shared), &mut inner, id))
    }

    /// One that calls.
    pub(crate) fn call(
        shared: &Arc<Shared>,
        to: SocketAddr,
        from: Option<SocketAddr>,
        change: impl FnOnce(&mut Options, &mut Settings),
    ) -> io::Result<Socket> {
        let socket = Socket::open(shared, change)?;
        if let Some(from) = from {
            socket.with(|tcp| tcp.bind(from).map_err(bind_error))??;
        }
        socket.with(|tcp| tcp.connect(crate::Engine::now(), to).map_err(connect_error))??;
        Ok(socket)
    }

    /// `None`: it is not open yet.
    pub(crate) fn try_open(&self, inner: &mut Inner) -> io::Result<Option<()>> {
        let mut tcp = tcp(inner, self.id)?;
        if let Some(failure) = tcp.take_error() {
            return Err(failed(failure));
        }
        match tcp.state() {
            Some(State::SynSent | State::SynReceived) => nothing(inner),
            _ => Ok(Some(())),
        }
    }

    /// Calls the socket; frames that follow from it go out.
    fn with<T>(&self, call: impl FnOnce(&mut Tcp<'_>) -> T) -> io::Result<T> {
        let mut inner = self.shared.lock();
        let result = call(&mut tcp(&mut inner, self.id)?);
        self.shared.push(&mut inner);
        Ok(result)
    }
}

fn tcp(inner: &mut Inner, id: SocketId) -> io::Result<Tcp<'_>> {
    inner.engine()?.stack().tcp(id).ok_or_else(|| ErrorKind::BrokenPipe.into())
}

/// Connections to a [`Host`], with the calls and errors of [`std::net::TcpListener`]. Several threads may use it at the same time.
pub struct TcpListener {
    pub(crate) socket: Socket,
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
        let socket = Socket::open(host.shared(), |options, settings| {
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
        self.socket.wait(|inner| self.try_accept(inner))
    }

    /// `None`: nobody has called.
    pub(crate) fn try_accept(&self, inner: &mut Inner) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let own = &self.socket;
        match tcp(inner, own.id)?.accept() {
            Ok(id) => {
                let remote = tcp(inner, id)?.remote().ok_or(ErrorKind::NotConnected)?;
                let socket = Socket::register(Arc::clone(&own.shared), inner, id);
                Ok(Some((TcpStream::of(socket), remote)))
            }
            Err(AcceptError::Empty) => nothing(inner),
            Err(e) => Err(io::Error::new(ErrorKind::InvalidInput, e)),
        }
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
    pub(crate) socket: Socket,
    /// Nothing more is read.
    deaf: AtomicBool,
}

impl TcpStream {
    pub(crate) const fn of(socket: Socket) -> TcpStream {
        TcpStream { socket, deaf: AtomicBool::new(false) }
    }

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
        let socket = Socket::call(host.shared(), to, from, change)?;
        socket.set_timeout(timeout);
        socket.wait(|inner| socket.try_open(inner))?;
        socket.set_timeout(None);
        Ok(TcpStream::of(socket))
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
        self.socket.wait(|inner| self.try_recv(inner, room))
    }

    /// The same, and they stay.
    ///
    /// # Errors
    /// The same.
    pub fn peek(&self, room: &mut [u8]) -> io::Result<usize> {
        self.socket.wait(|inner| self.try_peek(inner, room))
    }

    /// `None`: no octets have come.
    pub(crate) fn try_recv(&self, inner: &mut Inner, room: &mut [u8]) -> io::Result<Option<usize>> {
        self.take(inner, |tcp| tcp.read(room))
    }

    /// `None`: no octets have come.
    pub(crate) fn try_peek(&self, inner: &mut Inner, room: &mut [u8]) -> io::Result<Option<usize>> {
        self.take(inner, |tcp| tcp.peek(room))
    }

    fn take(
        &self,
        inner: &mut Inner,
        take: impl FnOnce(&mut Tcp<'_>) -> Result<usize, ReadError>,
    ) -> io::Result<Option<usize>> {
        if self.deaf.load(Ordering::Relaxed) {
            return Ok(Some(0));
        }
        let taken = take(&mut tcp(inner, self.socket.id)?);
        match taken {
            Ok(n) => {
                // The window may have to be told.
                self.socket.shared.push(inner);
                Ok(Some(n))
            }
            Err(ReadError::Empty) => nothing(inner),
            Err(ReadError::Failed(failure)) => Err(failed(failure)),
            Err(e) => Err(io::Error::new(ErrorKind::NotConnected, e)),
        }
    }

    /// Queues octets to be sent, as many as there is room for; how many. Waits for room.
    ///
    /// # Errors
    /// BrokenPipe: the connection is over, was shut down, or the host has ended; ConnectionReset and its like; TimedOut,
    /// WouldBlock.
    pub fn send(&self, octets: &[u8]) -> io::Result<usize> {
        self.socket.wait(|inner| self.try_send(inner, octets))
    }

    /// `None`: there is no room.
    pub(crate) fn try_send(&self, inner: &mut Inner, octets: &[u8]) -> io::Result<Option<usize>> {
        let written = tcp(inner, self.socket.id)?.write(octets);
        self.sent(inner, written)
    }

    /// Several pieces, one behind the other. `None`: there is no room.
    #[cfg(feature = "tokio")]
    pub(crate) fn try_send_pieces(
        &self,
        inner: &mut Inner,
        pieces: &[io::IoSlice<'_>],
    ) -> io::Result<Option<usize>> {
        let mut tcp = tcp(inner, self.socket.id)?;
        // All that goes into one segment is to be there before it is sent.
        let (mut octets, mut refused) = (0, None);
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            match tcp.write(piece) {
                Ok(n) => {
                    octets += n;
                    if n < piece.len() {
                        break;
                    }
                }
                Err(e) => {
                    refused = Some(e);
                    break;
                }
            }
        }
        let written = refused.filter(|_| octets == 0).map_or(Ok(octets), Err);
        self.sent(inner, written)
    }

    fn sent(&self, inner: &mut Inner, written: Result<usize, WriteError>) -> io::Result<Option<usize>> {
        match written {
            Ok(n) => {
                self.socket.shared.push(inner);
                Ok(Some(n))
            }
            Err(WriteError::Full) => nothing(inner),
            Err(WriteError::Failed(failure)) => Err(failed(failure)),
            Err(e @ WriteError::NotConnected) => Err(io::Error::new(ErrorKind::NotConnected, e)),
            Err(e) => Err(io::Error::new(ErrorKind::BrokenPipe, e)),
        }
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
