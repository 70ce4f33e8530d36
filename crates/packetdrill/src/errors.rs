//! What goes wrong, as Linux's errno says it.

use bypath_stack::path::Unreachable;
use bypath_stack::socket::{BindError, ReceiveError, SendError, SocketError};
use bypath_stack::tcp::error::{AcceptError, ConnectError, ListenError, ReadError, WriteError};
use bypath_stack::tcp::{Failure, UrgentError};

/// An errno.
pub type Errno = i32;

/// Of a call.
pub type Result<T> = std::result::Result<T, Errno>;

pub fn failure(error: Failure) -> Errno {
    match error {
        Failure::Refused => libc::ECONNREFUSED,
        Failure::Reset => libc::ECONNRESET,
        Failure::TimedOut => libc::ETIMEDOUT,
        Failure::Network(error) => network(error),
    }
}

/// Of a connection; half closed: the other side had finished, and we had not. Who writes to it writes to a broken pipe.
pub fn of_connection(is_half_closed: bool, error: Failure) -> Errno {
    match error {
        Failure::Reset if is_half_closed => libc::EPIPE,
        error => failure(error),
    }
}

pub fn network(error: SocketError) -> Errno {
    match error {
        SocketError::PortUnreachable => libc::ECONNREFUSED,
        SocketError::HostUnreachable => libc::EHOSTUNREACH,
        SocketError::NetUnreachable => libc::ENETUNREACH,
        SocketError::ProtocolUnreachable => libc::ENOPROTOOPT,
        SocketError::Prohibited => libc::EACCES,
        SocketError::TooBig { .. } => libc::EMSGSIZE,
        _ => libc::EPROTO,
    }
}

pub fn bind(error: BindError) -> Errno {
    match error {
        BindError::InUse(_) | BindError::NoPort => libc::EADDRINUSE,
        BindError::NotOurs => libc::EADDRNOTAVAIL,
        _ => libc::EINVAL,
    }
}

pub fn listen(error: ListenError) -> Errno {
    match error {
        ListenError::Bind(error) => bind(error),
        _ => libc::EINVAL,
    }
}

pub fn accept(error: AcceptError) -> Errno {
    match error {
        AcceptError::Empty => libc::EAGAIN,
        _ => libc::EINVAL,
    }
}

fn unreachable(error: Unreachable) -> Errno {
    match error {
        Unreachable::NotOurs => libc::EADDRNOTAVAIL,
        _ => libc::ENETUNREACH,
    }
}

pub fn connect(error: ConnectError) -> Errno {
    match error {
        ConnectError::Connected | ConnectError::Listening => libc::EISCONN,
        ConnectError::Port => libc::EINVAL,
        ConnectError::Kind => libc::EAFNOSUPPORT,
        ConnectError::InUse => libc::EADDRNOTAVAIL,
        ConnectError::Unreachable(error) => unreachable(error),
        _ => libc::ENETUNREACH,
    }
}

pub fn read(error: ReadError) -> Errno {
    match error {
        ReadError::Empty => libc::EAGAIN,
        ReadError::Failed(error) => failure(error),
        _ => libc::ENOTCONN,
    }
}

pub fn urgent(error: UrgentError) -> Errno {
    match error {
        UrgentError::Awaited => libc::EAGAIN,
        UrgentError::NotConnected => libc::ENOTCONN,
        _ => libc::EINVAL,
    }
}

pub fn write(error: WriteError) -> Errno {
    match error {
        WriteError::Full => libc::EAGAIN,
        WriteError::Failed(error) => failure(error),
        // tcp(7) has no ENOTCONN here: a pipe that was never laid is broken.
        _ => libc::EPIPE,
    }
}

pub fn send(error: SendError) -> Errno {
    match error {
        SendError::Full => libc::EAGAIN,
        SendError::TooLong { .. } => libc::EMSGSIZE,
        SendError::NoDestination => libc::EDESTADDRREQ,
        SendError::Kind => libc::EAFNOSUPPORT,
        SendError::Broadcast => libc::EACCES,
        SendError::Unreachable(error) => unreachable(error),
        SendError::Network(error) => network(error),
        SendError::Bind(_) => libc::EAGAIN,
        SendError::Closed => libc::EBADF,
        _ => libc::EINVAL,
    }
}

pub fn receive(error: ReceiveError) -> Errno {
    match error {
        ReceiveError::Network(error) => network(error),
        _ => libc::EAGAIN,
    }
}
