//! Connections that are for others, for tasks.

use super::TcpStream;
use super::tcp::wait;
use crate::{Host, tcp};
use bypath_stack::tcp::{Options, Settings};
use std::io;
use std::net::SocketAddr;

/// What gets the TCP connections that come through a [`Host`]'s links and are for nobody there: see
/// [the other one](crate::TcpForwarder).
#[derive(Debug)]
pub struct TcpForwarder {
    forwarder: tcp::TcpForwarder,
}

impl From<tcp::TcpForwarder> for TcpForwarder {
    /// Its time-out means nothing any more: `tokio::time::timeout` bounds a wait.
    fn from(forwarder: tcp::TcpForwarder) -> TcpForwarder {
        TcpForwarder { forwarder }
    }
}

impl TcpForwarder {
    /// From now on, calls to others come here.
    ///
    /// # Errors
    /// AddrInUse: the host has one; OutOfMemory: the stack has as many sockets as it may; BrokenPipe: the host has ended.
    pub fn open(host: &Host) -> io::Result<TcpForwarder> {
        tcp::TcpForwarder::open(host).map(TcpForwarder::from)
    }

    /// The same with what connections want of the stack; `backlog`: calls that wait to be taken.
    ///
    /// # Errors
    /// Those of [`open`](TcpForwarder::open).
    pub fn open_with(
        host: &Host,
        backlog: usize,
        change: impl FnOnce(&mut Options, &mut Settings),
    ) -> io::Result<TcpForwarder> {
        tcp::TcpForwarder::open_with(host, backlog, change).map(TcpForwarder::from)
    }

    /// The next call. A future that is given up takes none.
    ///
    /// # Errors
    /// BrokenPipe: the host has ended.
    pub async fn accept(&self) -> io::Result<TcpCall> {
        let call = wait(self.forwarder.socket(), |inner| self.forwarder.try_accept(inner)).await?;
        Ok(TcpCall { call })
    }
}

/// Somebody calls somebody else. He is not answered yet; dropping this refuses him, as where nobody listens.
#[derive(Debug)]
pub struct TcpCall {
    call: tcp::TcpCall,
}

impl TcpCall {
    /// Who calls.
    pub const fn from(&self) -> SocketAddr {
        self.call.from()
    }

    /// Whom he calls.
    pub const fn to(&self) -> SocketAddr {
        self.call.to()
    }

    /// Answers as whom he calls, and waits until the connection is open. A future that is given up ends it.
    ///
    /// # Errors
    /// ConnectionRefused, ConnectionReset: he calls no more; TimedOut: nothing is heard of him, for a minute; BrokenPipe: the host
    /// has ended.
    pub async fn accept(self) -> io::Result<TcpStream> {
        let stream = self.call.stream;
        stream.admit()?;
        wait(&stream.socket, |inner| stream.socket.try_open(inner)).await?;
        Ok(stream.into())
    }

    /// Refuses him.
    pub fn refuse(self) {
        drop(self);
    }
}
