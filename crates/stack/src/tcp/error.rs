//! What goes wrong with sockets of TCP. The errno that stands beside each is what the kernel's sockets tell.

use super::tcb::Failure;
use crate::path::Unreachable;
use crate::socket::{BindError, TooMany};

/// No connection is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// EISCONN, or EALREADY while it is not open yet.
    #[error("the socket is connected, or was")]
    Connected,
    /// EISCONN.
    #[error("the socket listens")]
    Listening,
    /// EAFNOSUPPORT.
    #[error("the socket and the destination are not of one kind, IPv4 or IPv6")]
    Kind,
    /// ENETUNREACH.
    #[error("groups and broadcast addresses are no hosts")]
    NotAHost,
    /// EADDRNOTAVAIL: all ports, or the one that the socket is bound to, are in use to there.
    #[error("there is a connection from that address and port to there already")]
    InUse,
    /// ENETUNREACH, or EADDRNOTAVAIL.
    #[error(transparent)]
    Unreachable(#[from] Unreachable),
}

/// Nobody is listened to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// EINVAL.
    #[error("the socket is connected, or was")]
    Connected,
    /// EADDRINUSE.
    #[error(transparent)]
    Bind(#[from] BindError),
}

/// No connection is accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// EAGAIN.
    #[error("nobody has called")]
    Empty,
    /// EINVAL.
    #[error("the socket does not listen")]
    NotListening,
}

/// Nothing is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// EAGAIN.
    #[error("no octets have come")]
    Empty,
    /// ENOTCONN.
    #[error("the socket is not connected")]
    NotConnected,
    /// See there.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// Nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// EAGAIN; an event tells when there is room.
    #[error("as much as the socket may have is not acknowledged yet")]
    Full,
    /// ENOTCONN.
    #[error("the socket is not connected")]
    NotConnected,
    /// EPIPE.
    #[error("the socket has finished writing, or the connection is over")]
    Finished,
    /// See there.
    #[error(transparent)]
    Failed(#[from] Failure),
}

/// The socket was not opened.
pub type OpenError = TooMany;
