//! TCP of a host, with calls that block: what listeners and streams have in common.

mod forwarder;
mod listener;
mod settings;
mod stream;

pub use forwarder::{TcpCall, TcpForwarder};
pub use listener::{Incoming, TcpListener};
pub use stream::TcpStream;

use crate::host::{Inner, Shared};
use crate::socket::{Socket, nothing};
use crate::udp::{bind_error, network_error};
use bypath_stack::Tcp;
use bypath_stack::path::Unreachable;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::error::{ConnectError, WriteError};
use bypath_stack::tcp::{Failure, Options, Settings, State};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;

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
        // Who does not ask for urgent octets apart is not to lose them (RFC 6093, 6).
        settings.urgent_inline = true;
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
            Some(State::Closed) | None => {
                Err(io::Error::new(ErrorKind::NotConnected, WriteError::NotConnected))
            }
            _ => Ok(Some(())),
        }
    }

    /// Calls the socket; frames that follow from it go out.
    fn with<T>(&self, call: impl FnOnce(&mut Tcp<'_>) -> T) -> io::Result<T> {
        let mut inner = self.shared.lock();
        let result = call(&mut tcp(&mut inner, self.id)?);
        self.shared.push(&mut inner);
        self.show(&mut inner);
        Ok(result)
    }
}

fn tcp(inner: &mut Inner, id: SocketId) -> io::Result<Tcp<'_>> {
    inner.engine()?.stack().tcp(id).ok_or_else(|| ErrorKind::BrokenPipe.into())
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
