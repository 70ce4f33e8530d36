//! What goes wrong, as Linux's errno says it: of all mappings the one.

use crate::path::Unreachable;
use crate::socket::{BindError, ReceiveError, SendError, SocketError};
use crate::tcp::error::{AcceptError, ConnectError, ListenError, ReadError, WriteError};
use crate::tcp::{Failure, UrgentError};

/// An errno.
pub type Errno = i32;

/// Of a call.
pub type Result<T> = core::result::Result<T, Errno>;

// include/uapi/asm-generic/errno.h: the same on every architecture that we run on.
const EBADF: Errno = 9;
const EAGAIN: Errno = 11;
const EACCES: Errno = 13;
const EINVAL: Errno = 22;
const EPIPE: Errno = 32;
const EPROTO: Errno = 71;
const EDESTADDRREQ: Errno = 89;
const EMSGSIZE: Errno = 90;
const ENOPROTOOPT: Errno = 92;
const EAFNOSUPPORT: Errno = 97;
const EADDRINUSE: Errno = 98;
const EADDRNOTAVAIL: Errno = 99;
const ENETUNREACH: Errno = 101;
const ECONNRESET: Errno = 104;
const EISCONN: Errno = 106;
const ENOTCONN: Errno = 107;
const ETIMEDOUT: Errno = 110;
const ECONNREFUSED: Errno = 111;
const EHOSTUNREACH: Errno = 113;

/// Why a connection is over.
pub const fn failure(error: Failure) -> Errno {
    match error {
        Failure::Refused => ECONNREFUSED,
        Failure::Reset => ECONNRESET,
        Failure::TimedOut => ETIMEDOUT,
        Failure::Network(error) => network(error),
    }
}

/// Of a connection; half closed: the other side had finished, and we had not. Who writes to it writes to a broken pipe.
pub const fn of_connection(is_half_closed: bool, error: Failure) -> Errno {
    match error {
        Failure::Reset if is_half_closed => EPIPE,
        error => failure(error),
    }
}

/// What the network said.
pub const fn network(error: SocketError) -> Errno {
    match error {
        SocketError::PortUnreachable => ECONNREFUSED,
        SocketError::HostUnreachable => EHOSTUNREACH,
        SocketError::NetUnreachable => ENETUNREACH,
        SocketError::ProtocolUnreachable => ENOPROTOOPT,
        SocketError::Prohibited => EACCES,
        SocketError::TooBig { .. } => EMSGSIZE,
        _ => EPROTO,
    }
}

/// Of bind(2).
pub const fn bind(error: BindError) -> Errno {
    match error {
        BindError::InUse(_) | BindError::Crowded(_) | BindError::NoPort => EADDRINUSE,
        BindError::NotOurs => EADDRNOTAVAIL,
        _ => EINVAL,
    }
}

/// Of listen(2).
pub const fn listen(error: ListenError) -> Errno {
    match error {
        ListenError::Bind(error) => bind(error),
        _ => EINVAL,
    }
}

/// Of accept(2).
pub const fn accept(error: AcceptError) -> Errno {
    match error {
        AcceptError::Empty => EAGAIN,
        _ => EINVAL,
    }
}

const fn unreachable(error: Unreachable) -> Errno {
    match error {
        Unreachable::NotOurs => EADDRNOTAVAIL,
        _ => ENETUNREACH,
    }
}

/// Of connect(2).
pub const fn connect(error: ConnectError) -> Errno {
    match error {
        ConnectError::Connected | ConnectError::Listening => EISCONN,
        ConnectError::Kind => EAFNOSUPPORT,
        ConnectError::InUse => EADDRNOTAVAIL,
        ConnectError::Unreachable(error) => unreachable(error),
        _ => ENETUNREACH,
    }
}

/// Of recv(2) and a connection.
pub const fn read(error: ReadError) -> Errno {
    match error {
        ReadError::Empty => EAGAIN,
        ReadError::Failed(error) => failure(error),
        _ => ENOTCONN,
    }
}

/// Of a receive of an urgent octet.
pub const fn urgent(error: UrgentError) -> Errno {
    match error {
        UrgentError::Awaited => EAGAIN,
        UrgentError::NotConnected => ENOTCONN,
        _ => EINVAL,
    }
}

/// Of send(2) and a connection.
pub const fn write(error: WriteError) -> Errno {
    match error {
        WriteError::Full => EAGAIN,
        WriteError::Failed(error) => failure(error),
        // tcp(7) has no ENOTCONN here: a pipe that was never laid is broken.
        _ => EPIPE,
    }
}

/// Of send(2) and datagrams.
pub const fn send(error: SendError) -> Errno {
    match error {
        SendError::Full => EAGAIN,
        SendError::TooLong { .. } => EMSGSIZE,
        SendError::NoDestination => EDESTADDRREQ,
        SendError::Kind => EAFNOSUPPORT,
        SendError::Broadcast => EACCES,
        SendError::Unreachable(error) => unreachable(error),
        SendError::Network(error) => network(error),
        SendError::Bind(BindError::Crowded(_)) => EADDRINUSE,
        SendError::Bind(_) => EAGAIN,
        SendError::Closed => EBADF,
        _ => EINVAL,
    }
}

/// Of recv(2) and datagrams.
pub const fn receive(error: ReceiveError) -> Errno {
    match error {
        ReceiveError::Network(error) => network(error),
        _ => EAGAIN,
    }
}
