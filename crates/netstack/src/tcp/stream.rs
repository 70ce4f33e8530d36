//! Connections.

use super::{failed, tcp};
use crate::Host;
use crate::descriptor::Side;
use crate::host::Inner;
use crate::socket::{Socket, Way, nothing};
use bypath_stack::Tcp;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{ReadError, WriteError};
use bypath_stack::tcp::{Options, Settings, Statistics, UrgentError};
use std::fmt;
use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// A connection of a [`Host`], with the calls and errors of [`std::net::TcpStream`]. Several threads may use it at the same time, such
/// as one that reads and one that writes, by reference or by [`try_clone`](TcpStream::try_clone). What was written is still sent when
/// it is dropped; octets that were not read make that a reset.
///
/// ```
/// # use bypath_netstack::{Engine, Host, TcpListener, TcpStream};
/// # use bypath_stack::config::Config;
/// # let host = Host::run(Engine::new(Config::default()))?;
/// # let listener = TcpListener::bind(&host, "127.0.0.1:80".parse()?)?;
/// use std::net::Shutdown;
/// use std::time::Duration;
///
/// # let thread = std::thread::spawn(move || {
/// // Here it sends back what comes; std::io::copy does all of it.
/// let (stream, _) = listener.accept()?;
/// std::io::copy(&mut &stream, &mut &stream)?;
/// # drop(stream);
/// # Ok::<(), std::io::Error>(())
/// # });
/// let stream = TcpStream::connect_timeout(&host, "127.0.0.1:80".parse()?, Duration::from_secs(5))?;
/// stream.set_nodelay(true)?;
/// let mut reader = stream.try_clone()?;
/// let reads = std::thread::spawn(move || std::io::copy(&mut reader, &mut std::io::sink()));
/// std::io::copy(&mut &[7; 1_000_000][..], &mut &stream)?;
/// stream.shutdown(Shutdown::Write)?;
/// assert_eq!(reads.join().unwrap()?, 1_000_000);
/// # thread.join().unwrap()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpStream {
    pub(crate) socket: Arc<Socket>,
}

impl TcpStream {
    pub(crate) fn of(socket: Socket) -> TcpStream {
        TcpStream { socket: Arc::new(socket) }
    }

    /// Calls, and waits until the connection is open.
    ///
    /// # Errors
    /// ConnectionRefused, ConnectionReset, TimedOut, HostUnreachable, NetworkUnreachable; AddrNotAvailable: no port is free;
    /// OutOfMemory: the stack has as many sockets as it may; BrokenPipe: the host has ended.
    pub fn connect(host: &Host, to: SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect_with(host, to, None, None, |_, _| {})
    }

    /// The same, for no longer than that.
    ///
    /// # Errors
    /// Those of [`connect`](TcpStream::connect); InvalidInput: no time at all.
    pub fn connect_timeout(host: &Host, to: SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
        TcpStream::connect_with(host, to, None, some_time(Some(timeout))?, |_, _| {})
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
        let stream = TcpStream::begin_connect(host, to, from, change)?;
        stream.set_timeout(timeout);
        stream.finish_connect()?;
        stream.set_timeout(None);
        Ok(stream)
    }

    /// Calls, and does not wait: the connection is open when [`finish_connect`](TcpStream::finish_connect) says so, and the stream
    /// [writable](TcpStream::writable_fd) when that has something to say.
    ///
    /// # Errors
    /// Those of [`connect_with`](TcpStream::connect_with) that are known at once.
    pub fn begin_connect(
        host: &Host,
        to: SocketAddr,
        from: Option<SocketAddr>,
        change: impl FnOnce(&mut Options, &mut Settings),
    ) -> io::Result<TcpStream> {
        Socket::call(host.shared(), to, from, change).map(TcpStream::of)
    }

    /// Waits until the connection is open, as long as writing may wait.
    ///
    /// # Errors
    /// Those of [`connect`](TcpStream::connect), once; WouldBlock; NotConnected: it has failed, and that was told.
    pub fn finish_connect(&self) -> io::Result<()> {
        self.socket.wait(Way::Write, |inner| {
            let open = self.socket.try_open(inner);
            self.socket.show(inner);
            open
        })
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

    /// The same connection once more: time-outs and options are common to both, and it is closed with the last one.
    ///
    /// # Errors
    /// None.
    pub fn try_clone(&self) -> io::Result<TcpStream> {
        Ok(self.again())
    }

    pub(crate) fn again(&self) -> TcpStream {
        TcpStream { socket: Arc::clone(&self.socket) }
    }

    /// Longest wait of a call; `None`: it waits as long as it takes; zero: it does not wait, and answers WouldBlock.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.socket.set_timeout(timeout);
    }

    /// Longest waits of calls that read and of calls that write, each as [`set_timeout`](TcpStream::set_timeout) has it.
    pub fn set_timeouts(&self, read: Option<Duration>, write: Option<Duration>) {
        let mut timeouts = self.socket.timeouts();
        (timeouts.read, timeouts.write) = (read, write);
    }

    /// Longest wait of calls that read; `None`: as long as it takes. Beyond, they answer TimedOut.
    ///
    /// # Errors
    /// InvalidInput: no time at all.
    pub fn set_read_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.timeouts().read = some_time(timeout)?;
        Ok(())
    }

    /// Longest wait of calls that write.
    ///
    /// # Errors
    /// InvalidInput: no time at all.
    pub fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        self.socket.timeouts().write = some_time(timeout)?;
        Ok(())
    }

    /// See [`set_read_timeout`](TcpStream::set_read_timeout).
    ///
    /// # Errors
    /// None.
    pub fn read_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeouts().read)
    }

    /// See [`set_write_timeout`](TcpStream::set_write_timeout).
    ///
    /// # Errors
    /// None.
    pub fn write_timeout(&self) -> io::Result<Option<Duration>> {
        Ok(self.socket.timeouts().write)
    }

    /// Whether calls answer WouldBlock where they would wait. Time-outs count again when they wait.
    ///
    /// # Errors
    /// None.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.timeouts().nonblocking = nonblocking;
        Ok(())
    }

    /// A descriptor for poll(2) and its like: it is readable while a call that reads would not wait, be it that it fails.
    /// Nothing but that is to be done with it.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn readable_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.socket.descriptor(Side::Readable)
    }

    /// Another one, which is readable (not writable) while a call that writes would not wait, and when a connection that was
    /// begun is open or has failed. After a write that found no room for everything: when half of the room is free.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn writable_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.socket.descriptor(Side::Writable)
    }

    /// Octets that came, as many as there are and fit; 0: the other side has finished.
    ///
    /// # Errors
    /// ConnectionReset and its like; TimedOut, WouldBlock; BrokenPipe: the host has ended.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<usize> {
        self.socket.wait(Way::Read, |inner| self.try_recv(inner, room))
    }

    /// The same into several pieces of room, one after the other.
    ///
    /// # Errors
    /// The same.
    pub fn recv_vectored(&self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        if pieces.iter().all(|piece| piece.is_empty()) {
            return Ok(0);
        }
        self.socket.wait(Way::Read, |inner| self.take(inner, |tcp| read_pieces(tcp, pieces)))
    }

    /// The same, and they stay.
    ///
    /// # Errors
    /// The same.
    pub fn peek(&self, room: &mut [u8]) -> io::Result<usize> {
        self.socket.wait(Way::Read, |inner| self.try_peek(inner, room))
    }

    /// Takes the urgent octet that is kept [apart](TcpStream::set_out_of_band_inline) (MSG_OOB); it never waits. `None`: one was announced,
    /// and nothing more will come.
    ///
    /// # Errors
    /// WouldBlock: one was announced, and has not come; InvalidInput: there is none, it was read, or urgent octets are read in their
    /// place; NotConnected; BrokenPipe: the host has ended.
    pub fn recv_out_of_band(&self) -> io::Result<Option<u8>> {
        match self.socket.with(|tcp| tcp.read_urgent())? {
            Ok(octet) => Ok(Some(octet)),
            Err(UrgentError::Finished) => Ok(None),
            Err(e) => Err(io::Error::new(
                match e {
                    UrgentError::Awaited => ErrorKind::WouldBlock,
                    UrgentError::NotConnected => ErrorKind::NotConnected,
                    _ => ErrorKind::InvalidInput,
                },
                e,
            )),
        }
    }

    /// `None`: no octets have come.
    pub(crate) fn try_recv(&self, inner: &mut Inner, room: &mut [u8]) -> io::Result<Option<usize>> {
        if room.is_empty() {
            return Ok(Some(0));
        }
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
        let socket = &self.socket;
        if socket.is_deaf() {
            return Ok(Some(0));
        }
        let taken = take(&mut tcp(inner, socket.id)?);
        let done = match taken {
            Ok(n) => {
                // The window may have to be told.
                socket.shared.push(inner);
                Ok(Some(n))
            }
            Err(ReadError::Empty) => nothing(inner),
            Err(ReadError::Failed(failure)) => Err(failed(failure)),
            Err(e) => Err(io::Error::new(ErrorKind::NotConnected, e)),
        };
        socket.show(inner);
        done
    }

    /// Queues octets to be sent, as many as there is room for; how many. Waits for room.
    ///
    /// # Errors
    /// BrokenPipe: the connection is over, was shut down, or the host has ended; ConnectionReset and its like; TimedOut,
    /// WouldBlock.
    pub fn send(&self, octets: &[u8]) -> io::Result<usize> {
        self.socket.wait(Way::Write, |inner| self.try_send(inner, octets))
    }

    /// The same; the last octet is urgent: the other side hears of it before those that it has to read first (MSG_OOB).
    ///
    /// # Errors
    /// The same.
    pub fn send_out_of_band(&self, octets: &[u8]) -> io::Result<usize> {
        self.socket.wait(Way::Write, |inner| {
            let written = tcp(inner, self.socket.id)?.write_urgent(octets, false);
            self.sent(inner, written)
        })
    }

    /// The same with several pieces, one behind the other.
    ///
    /// # Errors
    /// Those of [`send`](TcpStream::send).
    pub fn send_vectored(&self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.socket.wait(Way::Write, |inner| self.try_send_pieces(inner, pieces))
    }

    /// `None`: there is no room.
    pub(crate) fn try_send(&self, inner: &mut Inner, octets: &[u8]) -> io::Result<Option<usize>> {
        let written = tcp(inner, self.socket.id)?.write(octets);
        self.sent(inner, written)
    }

    /// Several pieces, one behind the other. `None`: there is no room.
    pub(crate) fn try_send_pieces(
        &self,
        inner: &mut Inner,
        pieces: &[IoSlice<'_>],
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
        let socket = &self.socket;
        let done = match written {
            Ok(n) => {
                socket.shared.push(inner);
                Ok(Some(n))
            }
            Err(WriteError::Full) => nothing(inner),
            Err(WriteError::Failed(failure)) => Err(failed(failure)),
            Err(e @ WriteError::NotConnected) => Err(io::Error::new(ErrorKind::NotConnected, e)),
            Err(e) => Err(io::Error::new(ErrorKind::BrokenPipe, e)),
        };
        socket.show(inner);
        done
    }

    /// Writes no more, reads no more, or both: see [`std::net::TcpStream::shutdown`].
    ///
    /// # Errors
    /// NotConnected; BrokenPipe: the host has ended.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        if how != Shutdown::Write {
            self.socket.deafen();
        }
        if how != Shutdown::Read {
            let finished = self.socket.with(|tcp| tcp.finish())?;
            finished.map_err(|e| io::Error::new(ErrorKind::NotConnected, e))?;
        }
        Ok(())
    }

    /// Ends the connection at once, with a reset: what was written and not acknowledged is lost. What came can still be read.
    ///
    /// # Errors
    /// The host has ended.
    pub fn abort(&self) -> io::Result<()> {
        self.socket.with(|tcp| tcp.abort())
    }

    /// Answers who has called, where that waits for our word.
    pub(crate) fn admit(&self) -> io::Result<()> {
        self.socket.with(|tcp| tcp.admit(crate::Engine::now()))
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

    /// What it wants of the stack.
    ///
    /// # Errors
    /// The host has ended.
    pub fn settings(&self) -> io::Result<(Options, Settings)> {
        self.socket.with(|tcp| (tcp.options(), tcp.settings()))
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
    pub fn id(&self) -> SocketId {
        self.socket.id
    }
}

/// As the standard library has it: no time at all is no time-out.
fn some_time(timeout: Option<Duration>) -> io::Result<Option<Duration>> {
    match timeout {
        Some(Duration::ZERO) => Err(io::Error::new(ErrorKind::InvalidInput, "a time-out of no time at all")),
        timeout => Ok(timeout),
    }
}

/// Reads into one piece after the other, as far as there are octets.
fn read_pieces(tcp: &mut Tcp<'_>, pieces: &mut [IoSliceMut<'_>]) -> Result<usize, ReadError> {
    let mut octets = 0;
    for piece in pieces.iter_mut().filter(|piece| !piece.is_empty()) {
        octets += tcp.read(piece)?;
        // Asked for more, it would tell of its end, or go on behind an urgent octet.
        if tcp.unread() == 0 || tcp.mark() == Some(0) {
            break;
        }
    }
    Ok(octets)
}

impl Read for &TcpStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.recv(room)
    }

    fn read_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_vectored(pieces)
    }
}

impl Write for &TcpStream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.send(octets)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for TcpStream {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        self.recv(room)
    }

    fn read_vectored(&mut self, pieces: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        self.recv_vectored(pieces)
    }
}

impl Write for TcpStream {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        self.send(octets)
    }

    fn write_vectored(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
        self.send_vectored(pieces)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpStream").field(&self.socket.id).finish()
    }
}
