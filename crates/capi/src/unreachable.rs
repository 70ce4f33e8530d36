//! What goes wrong in a netstack and with its sockets, as statuses.

use crate::status::{
    BYPATH_E_CLOSED, BYPATH_E_GONE, BYPATH_E_IN_USE, BYPATH_E_INVALID, BYPATH_E_NO_ROUTE,
    BYPATH_E_NOT_ALLOWED, BYPATH_E_REFUSED, BYPATH_E_RESET, BYPATH_E_SYSTEM, BYPATH_E_TIMED_OUT,
    BYPATH_E_TOO_LONG, BYPATH_E_UNREACHABLE, BYPATH_E_WOULD_BLOCK, Failure,
};
use bypath_netstack::SetupError;
use bypath_stack::group::NoGroup;
use bypath_stack::path::Unreachable;
use bypath_stack::socket::{BindError, SendError, SocketError};
use bypath_stack::tcp::Failure as Ended;
use bypath_stack::tcp::error::{ConnectError, ReadError, WriteError};
use std::io::{self, ErrorKind};

// asm-generic/errno-base.h, asm-generic/errno.h
const EIO: i32 = 5;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const ENODEV: i32 = 19;
const EINVAL: i32 = 22;
const ENFILE: i32 = 23;
const EPIPE: i32 = 32;
const EPROTO: i32 = 71;
const EDESTADDRREQ: i32 = 89;
const EMSGSIZE: i32 = 90;
const ENOPROTOOPT: i32 = 92;
const EAFNOSUPPORT: i32 = 97;
const EADDRINUSE: i32 = 98;
const EADDRNOTAVAIL: i32 = 99;
const ENETUNREACH: i32 = 101;
const ECONNRESET: i32 = 104;
const EISCONN: i32 = 106;
const ENOTCONN: i32 = 107;
const ETIMEDOUT: i32 = 110;
const ECONNREFUSED: i32 = 111;
const EHOSTUNREACH: i32 = 113;

/// Status and errno of what a socket's call answered. The errors within are those of the stack, as `bypath_netstack` wraps them.
fn of_stack(e: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<(i32, i32)> {
    if let Some(e) = e.downcast_ref::<SocketError>() {
        return Some(match e {
            SocketError::PortUnreachable => (BYPATH_E_UNREACHABLE, ECONNREFUSED),
            SocketError::HostUnreachable => (BYPATH_E_NO_ROUTE, EHOSTUNREACH),
            SocketError::NetUnreachable => (BYPATH_E_NO_ROUTE, ENETUNREACH),
            SocketError::ProtocolUnreachable => (BYPATH_E_UNREACHABLE, ENOPROTOOPT),
            SocketError::Prohibited => (BYPATH_E_NOT_ALLOWED, EACCES),
            SocketError::TooBig { .. } => (BYPATH_E_TOO_LONG, EMSGSIZE),
            _ => (BYPATH_E_SYSTEM, EPROTO),
        });
    }
    if let Some(e) = e.downcast_ref::<SendError>() {
        return Some(match e {
            SendError::Full => (BYPATH_E_WOULD_BLOCK, EAGAIN),
            SendError::TooLong { .. } => (BYPATH_E_TOO_LONG, EMSGSIZE),
            SendError::NoDestination => (BYPATH_E_INVALID, EDESTADDRREQ),
            SendError::Kind => (BYPATH_E_INVALID, EAFNOSUPPORT),
            SendError::Broadcast => (BYPATH_E_NOT_ALLOWED, EACCES),
            SendError::Unreachable(Unreachable::Source | Unreachable::NotOurs) => {
                (BYPATH_E_NO_ROUTE, EADDRNOTAVAIL)
            }
            SendError::Unreachable(Unreachable::Route) => (BYPATH_E_NO_ROUTE, ENETUNREACH),
            _ => (BYPATH_E_INVALID, EINVAL),
        });
    }
    if let Some(e) = e.downcast_ref::<BindError>() {
        return Some(match e {
            BindError::NotOurs => (BYPATH_E_INVALID, EADDRNOTAVAIL),
            BindError::Bound => (BYPATH_E_INVALID, EINVAL),
            _ => (BYPATH_E_IN_USE, EADDRINUSE),
        });
    }
    if let Some(e) = e.downcast_ref::<NoGroup>() {
        return Some(match e {
            NoGroup::NotAGroup => (BYPATH_E_INVALID, EINVAL),
            NoGroup::NoIface => (BYPATH_E_INVALID, ENODEV),
            NoGroup::Joined => (BYPATH_E_IN_USE, EADDRINUSE),
            _ => (BYPATH_E_SYSTEM, ENFILE),
        });
    }
    of_tcp(e)
}

/// The same of TCP.
fn of_tcp(e: &(dyn std::error::Error + Send + Sync + 'static)) -> Option<(i32, i32)> {
    if let Some(e) = e.downcast_ref::<Ended>() {
        return match e {
            Ended::Refused => Some((BYPATH_E_REFUSED, ECONNREFUSED)),
            Ended::Reset => Some((BYPATH_E_RESET, ECONNRESET)),
            Ended::TimedOut => Some((BYPATH_E_TIMED_OUT, ETIMEDOUT)),
            Ended::Network(e) => of_stack(e),
        };
    }
    if let Some(e) = e.downcast_ref::<ConnectError>() {
        return Some(match e {
            ConnectError::Connected | ConnectError::Listening => (BYPATH_E_INVALID, EISCONN),
            ConnectError::Kind => (BYPATH_E_INVALID, EAFNOSUPPORT),
            ConnectError::InUse => (BYPATH_E_IN_USE, EADDRNOTAVAIL),
            ConnectError::Unreachable(Unreachable::Source | Unreachable::NotOurs) => {
                (BYPATH_E_NO_ROUTE, EADDRNOTAVAIL)
            }
            ConnectError::NotAHost | ConnectError::Unreachable(Unreachable::Route) => {
                (BYPATH_E_NO_ROUTE, ENETUNREACH)
            }
            _ => (BYPATH_E_INVALID, EINVAL),
        });
    }
    if let Some(e) = e.downcast_ref::<WriteError>() {
        return Some(match e {
            WriteError::NotConnected => (BYPATH_E_CLOSED, ENOTCONN),
            _ => (BYPATH_E_CLOSED, EPIPE),
        });
    }
    e.downcast_ref::<ReadError>().map(|_| (BYPATH_E_CLOSED, ENOTCONN))
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        let (status, system) = e.get_ref().and_then(of_stack).unwrap_or_else(|| match e.kind() {
            ErrorKind::TimedOut => (BYPATH_E_TIMED_OUT, ETIMEDOUT),
            ErrorKind::WouldBlock => (BYPATH_E_WOULD_BLOCK, EAGAIN),
            ErrorKind::BrokenPipe => (BYPATH_E_GONE, EPIPE),
            ErrorKind::NotConnected => (BYPATH_E_INVALID, ENOTCONN),
            ErrorKind::OutOfMemory => (BYPATH_E_SYSTEM, ENFILE),
            // Of ours, and no call's of the kernel.
            ErrorKind::AddrInUse if e.raw_os_error().is_none() => (BYPATH_E_IN_USE, EADDRINUSE),
            _ => (BYPATH_E_SYSTEM, e.raw_os_error().unwrap_or(EIO)),
        });
        let text = match status {
            BYPATH_E_TIMED_OUT if e.get_ref().is_none() => {
                "nothing came in time, or there was no room in time".into()
            }
            BYPATH_E_WOULD_BLOCK => {
                "it would have to wait, and the socket does not: nothing has come, or there is no room".into()
            }
            BYPATH_E_NOT_ALLOWED if matches!(inner(&e), Some(SendError::Broadcast)) => {
                format!("{e}: bind it with BYPATH_UDP_BROADCAST")
            }
            _ => e.to_string(),
        };
        Failure { status, system, text: text.into() }
    }
}

fn inner(e: &io::Error) -> Option<&SendError> {
    e.get_ref()?.downcast_ref()
}

impl From<SetupError> for Failure {
    fn from(e: SetupError) -> Failure {
        let (status, system) = match e {
            SetupError::Link(e) => return e.into(),
            SetupError::Engine(bypath_netstack::Error::Link { source, .. }) => return source.into(),
            SetupError::Thread(e) => return e.into(),
            SetupError::Taken { .. } => (BYPATH_E_IN_USE, EADDRINUSE),
            SetupError::NoServer { .. } | SetupError::NotReady { .. } => (BYPATH_E_TIMED_OUT, ETIMEDOUT),
            SetupError::Ended(_) => (BYPATH_E_GONE, ENODEV),
            _ => (BYPATH_E_INVALID, EINVAL),
        };
        Failure { status, system, text: e.to_string().into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_stack_keep_their_meaning() {
        let told = |e: io::Error| {
            let failure = Failure::from(e);
            assert!(!failure.text.is_empty() && failure.system > 0);
            (failure.status, failure.system)
        };
        let wrapped = |e: SendError| told(io::Error::new(ErrorKind::InvalidInput, e));
        assert_eq!(wrapped(SendError::TooLong { len: 2, most: 1 }), (BYPATH_E_TOO_LONG, EMSGSIZE));
        assert_eq!(wrapped(SendError::Broadcast), (BYPATH_E_NOT_ALLOWED, EACCES));
        let refused = io::Error::new(ErrorKind::ConnectionRefused, SocketError::PortUnreachable);
        assert_eq!(told(refused), (BYPATH_E_UNREACHABLE, ECONNREFUSED));
        let not_ours = io::Error::new(ErrorKind::AddrNotAvailable, BindError::NotOurs);
        assert_eq!(told(not_ours), (BYPATH_E_INVALID, EADDRNOTAVAIL));
        assert_eq!(told(ErrorKind::BrokenPipe.into()), (BYPATH_E_GONE, EPIPE));
        let finished = io::Error::new(ErrorKind::BrokenPipe, WriteError::Finished);
        assert_eq!(told(finished), (BYPATH_E_CLOSED, EPIPE));
        let tcp = |e: Ended| told(io::Error::new(ErrorKind::ConnectionReset, e));
        assert_eq!(tcp(Ended::Reset), (BYPATH_E_RESET, ECONNRESET));
        assert_eq!(tcp(Ended::Refused), (BYPATH_E_REFUSED, ECONNREFUSED));
        assert_eq!(tcp(Ended::Network(SocketError::HostUnreachable)), (BYPATH_E_NO_ROUTE, EHOSTUNREACH));
        assert_eq!(told(io::Error::from_raw_os_error(24)), (BYPATH_E_SYSTEM, 24));
        assert_eq!(told(ErrorKind::AddrInUse.into()), (BYPATH_E_IN_USE, EADDRINUSE));
    }
}
