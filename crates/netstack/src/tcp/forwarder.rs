//! Connections that are for others: whoever runs a proxy or a tunnel gets all TCP that comes through the links, to whatever
//! address and port, and decides about each call before anything answers it.

use super::{TcpListener, TcpStream};
use crate::Host;
use crate::host::Inner;
use crate::socket::Way;
use bypath_stack::tcp::{Options, Settings};
use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Calls that wait for a decision, if nobody says how many.
const BACKLOG: usize = 1024;

/// What gets the TCP connections that come through a [`Host`]'s links and are for nobody there. A host has one at most.
///
/// Nothing answers a call before [`TcpCall::accept`] does: whoever calls learns that somebody is there when that was found out. The
/// stack needs a route to callers, such as one for everybody through the link that they are on.
///
/// ```no_run
/// # use bypath_netstack::{Engine, Host};
/// # let host: Host = unimplemented!();
/// use bypath_netstack::TcpForwarder;
/// use std::net::TcpStream;
///
/// let forwarder = TcpForwarder::open(&host)?;
/// loop {
///     let call = forwarder.accept()?;
///     std::thread::spawn(move || -> std::io::Result<()> {
///         // Dropping the call refuses it. (The kernel's way to there must not lead back here.)
///         let there = TcpStream::connect(call.to())?;
///         let here = call.accept()?;
///         let (mut from_there, mut from_here) = (there.try_clone()?, here.try_clone()?);
///         std::thread::spawn(move || std::io::copy(&mut from_there, &mut &here));
///         std::io::copy(&mut from_here, &mut &there)?;
///         there.shutdown(std::net::Shutdown::Write)
///     });
/// }
/// # #[allow(unreachable_code)]
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct TcpForwarder {
    listener: TcpListener,
}

impl TcpForwarder {
    /// From now on, calls to others come here.
    ///
    /// # Errors
    /// AddrInUse: the host has one; OutOfMemory: the stack has as many sockets as it may; BrokenPipe: the host has ended.
    pub fn open(host: &Host) -> io::Result<TcpForwarder> {
        TcpForwarder::open_with(host, BACKLOG, |_, _| {})
    }

    /// The same with what connections want of the stack; `backlog`: calls that wait to be taken. Further ones are not heard, and
    /// come again.
    ///
    /// # Errors
    /// Those of [`open`](TcpForwarder::open).
    pub fn open_with(
        host: &Host,
        backlog: usize,
        change: impl FnOnce(&mut Options, &mut Settings),
    ) -> io::Result<TcpForwarder> {
        // Of both kinds of addresses. Who calls the port of ours that it is bound to comes here, too.
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0));
        let listener = TcpListener::bind_with(host, any, backlog, |options, settings| {
            change(options, settings);
            options.admits = true;
        })?;
        host.with(|engine| {
            let stack = engine.stack();
            if stack.tcp_forwarder().is_some() {
                return Err(io::Error::new(ErrorKind::AddrInUse, "the host has a forwarder already"));
            }
            stack.set_tcp_forwarder(Some(listener.id()));
            Ok(())
        })?;
        Ok(TcpForwarder { listener })
    }

    /// The next call.
    ///
    /// # Errors
    /// TimedOut, WouldBlock; BrokenPipe: the host has ended.
    pub fn accept(&self) -> io::Result<TcpCall> {
        self.listener.socket.wait(Way::Read, |inner| self.try_accept(inner))
    }

    /// `None`: nobody has called.
    pub(crate) fn try_accept(&self, inner: &mut Inner) -> io::Result<Option<TcpCall>> {
        let Some((stream, from)) = self.listener.try_accept(inner)? else { return Ok(None) };
        let to = super::tcp(inner, stream.socket.id)?.local().ok_or(ErrorKind::NotConnected)?;
        Ok(Some(TcpCall { stream, from, to }))
    }

    #[cfg(feature = "tokio")]
    pub(crate) fn socket(&self) -> &crate::socket::Socket {
        &self.listener.socket
    }

    /// Longest wait of [`accept`](TcpForwarder::accept); `None`: as long as it takes; zero: it does not wait, and answers WouldBlock.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.listener.set_timeout(timeout);
    }

    /// A descriptor for poll(2) and its like: it is readable while there is a call to be taken, or the host has ended. Nothing but
    /// that is to be done with it.
    ///
    /// # Errors
    /// No descriptor is to be had.
    pub fn readable_fd(&self) -> io::Result<BorrowedFd<'_>> {
        self.listener.readable_fd()
    }
}

/// Somebody calls somebody else. He is not answered yet; dropping this refuses him, as where nobody listens.
pub struct TcpCall {
    pub(crate) stream: TcpStream,
    from: SocketAddr,
    to: SocketAddr,
}

impl TcpCall {
    /// Who calls.
    pub const fn from(&self) -> SocketAddr {
        self.from
    }

    /// Whom he calls.
    pub const fn to(&self) -> SocketAddr {
        self.to
    }

    /// Answers as whom he calls, and waits until the connection is open.
    ///
    /// # Errors
    /// ConnectionRefused, ConnectionReset: he calls no more; TimedOut: nothing is heard of him, for a minute; BrokenPipe: the host
    /// has ended.
    pub fn accept(self) -> io::Result<TcpStream> {
        self.stream.admit()?;
        self.stream.finish_connect()?;
        Ok(self.stream)
    }

    /// Refuses him.
    pub fn refuse(self) {
        drop(self);
    }
}

impl fmt::Debug for TcpCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpCall").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}
