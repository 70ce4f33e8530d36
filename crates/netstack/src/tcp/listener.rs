//! Connections that others ask for.

use super::stream::TcpStream;
use super::{BACKLOG, tcp};
use crate::Host;
use crate::descriptor::Side;
use crate::host::Inner;
use crate::socket::{Socket, Way, nothing};
use crate::udp::bind_error;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{AcceptError, ListenError};
use bypath_stack::tcp::{Options, Settings};
use std::fmt;
use std::io::{self, ErrorKind};
use std::iter::FusedIterator;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

/// Connections to a [`Host`], with the calls and errors of [`std::net::TcpListener`]. Several threads may use it at the same time.
///
/// ```
/// # use bypath_netstack::{Engine, Host, TcpListener, TcpStream};
/// # use bypath_stack::config::Config;
/// # let host = Host::run(Engine::new(Config::default()))?;
/// use std::io::{Read, Write};
///
/// let listener = TcpListener::bind(&host, "127.0.0.1:80".parse()?)?;
/// let mut client = TcpStream::connect(&host, listener.local_addr()?)?;
/// client.write_all(b"hello")?;
/// client.shutdown(std::net::Shutdown::Write)?;
///
/// let (mut server, from) = listener.accept()?;
/// assert_eq!(from, client.local_addr()?);
/// let mut text = String::new();
/// server.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TcpListener {
    pub(crate) socket: Arc<Socket>,
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
        Ok(TcpListener { socket: Arc::new(socket) })
    }

    /// The next connection, and who has called.
    ///
    /// # Errors
    /// TimedOut, WouldBlock; BrokenPipe: the host has ended.
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        self.socket.wait(Way::Read, |inner| self.try_accept(inner))
    }

    /// `None`: nobody has called.
    pub(crate) fn try_accept(&self, inner: &mut Inner) -> io::Result<Option<(TcpStream, SocketAddr)>> {
        let own = &self.socket;
        let accepted = tcp(inner, own.id)?.accept();
        own.show(inner);
        match accepted {
            Ok(id) => {
                let remote = tcp(inner, id)?.remote().ok_or(ErrorKind::NotConnected)?;
                let socket = Socket::register(Arc::clone(&own.shared), inner, id);
                Ok(Some((TcpStream::of(socket), remote)))
            }
            Err(AcceptError::Empty) => nothing(inner),
            Err(e) => Err(io::Error::new(ErrorKind::InvalidInput, e)),
        }
    }

    /// Connection after connection, as [`accept`](TcpListener::accept) gives them; it never ends.
    pub const fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Its address.
    ///
    /// # Errors
    /// The host has ended.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.with(|tcp| tcp.local())?.ok_or_else(|| ErrorKind::NotConnected.into())
    }

    /// The same listener once more: it is closed with the last one.
    ///
    /// # Errors
    /// None.
    pub fn try_clone(&self) -> io::Result<TcpListener> {
        Ok(TcpListener { socket: Arc::clone(&self.socket) })
    }

    /// Longest wait of [`accept`](TcpListener::accept); `None`: as long as it takes; zero: it does not wait, and answers WouldBlock.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.socket.set_timeout(timeout);
    }

    /// Whether calls answer WouldBlock where they would wait.
    ///
    /// # Errors
    /// None.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        self.socket.timeouts().nonblocking = nonblocking;
        Ok(())
    }

    /// A descriptor for poll(2) and its like: it is readable while there is a connection to be accepted, or the host has ended.
    /// Nothing but that is to be done with it.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn readable_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.socket.descriptor(Side::Readable)
    }

    /// The stack's name of it, for what [`Host::with`] does.
    pub fn id(&self) -> SocketId {
        self.socket.id
    }
}

/// Connections of a [`TcpListener`]: see [`incoming`](TcpListener::incoming).
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    fn next(&mut self) -> Option<io::Result<TcpStream>> {
        Some(self.listener.accept().map(|(stream, _)| stream))
    }
}

impl FusedIterator for Incoming<'_> {}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TcpListener").field(&self.socket.id).finish()
    }
}
