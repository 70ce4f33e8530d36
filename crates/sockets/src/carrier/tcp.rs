//! TCP: the kernel counts every byte (TCP_INFO), knows both ends by their addresses, and can reset a connection.

use super::{Backend, Course, Standing, untold};
use crate::options;
use crate::table::Sock;
use bypath_shm::reason::Reason;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::sockdiag::{self, Found};
use bypath_sys::tcp_info::TcpInfo;
use bypath_sys::{Result, process, sock};

/// A TCP connection.
#[derive(Debug)]
pub struct Tcp;

impl Backend for Tcp {
    fn eligible(&self, fd: i32) -> std::result::Result<(), Reason> {
        let mut ulp = [0u8; 16];
        let layered = sock::option_bytes(fd, libc::IPPROTO_TCP, libc::TCP_ULP, &mut ulp).is_ok_and(|n| n > 0);
        if layered || options::has_inq(fd) {
            return Err(Reason::SocketOption);
        }
        if is_of_a_device(fd) { Err(Reason::BoundDevice) } else { Ok(()) }
    }

    fn record_names(&self, s: &Sock) -> bool {
        let fd = s.carrier();
        let (Ok(local), Ok(remote)) = (sock::local_address(fd), sock::remote_address(fd)) else {
            return false;
        };
        let end = s.end();
        end.local.set(local.family, local.port, local.bytes);
        end.remote.set(remote.family, remote.port, remote.bytes);
        true
    }

    fn peer(&self, s: &Sock, netlink: i32) -> std::result::Result<Found, Reason> {
        let fd = s.carrier();
        let local = sock::local_address(fd).map_err(untold)?;
        let remote = sock::remote_address(fd).map_err(untold)?;
        let there = || {
            let found = sockdiag::tcp_with_info(netlink, &remote, &local).map_err(untold)?;
            found.ok_or(Reason::PeerRemote)
        };
        let is_there = is_asked_there(fd, netlink)?;
        let (found, before) = there()?;
        if found.inode == 0 {
            return Ok(found);
        }
        let before = before.ok_or(Reason::ForbiddenCall)?;
        let is_own = found.uid == process::euid();
        if !is_there && !is_own {
            return Err(Reason::OtherNamespace);
        }
        let was_heard = |here: &TcpInfo| is_own || here.was_heard_by(&before);
        // Another user may make a socket whose counts agree, beside the other end or in its place (ADR 0039). Looked for before this end's state that counts: while
        // this end is open the other one is there. All connections are gone through for it, so what is cheap is asked before that, too.
        let is_alone =
            || is_own || sockdiag::is_the_only_one(netlink, &remote, &local, found.cookie) == Ok(true);
        if !was_heard(&TcpInfo::of(fd).map_err(untold)?) || !is_alone() {
            return Err(Reason::PeerUnproven);
        }
        // Of two ends of one connection this always holds.
        let here = TcpInfo::of(fd).map_err(untold)?;
        let agrees = here.agrees([&before; 2]) || {
            // It may have gone on meanwhile.
            let (again, after) = there()?;
            again.cookie == found.cookie && after.is_some_and(|after| here.agrees([&before, &after]))
        };
        if agrees && was_heard(&here) { Ok(found) } else { Err(Reason::PeerUnproven) }
    }

    fn standing(&self, s: &Sock) -> Result<Standing> {
        const ESTABLISHED: u8 = 1;
        const CLOSE_WAIT: u8 = 8;
        let counts = sock::tcp_counts(s.carrier())?;
        let course = match counts.state {
            ESTABLISHED => Course::Open,
            CLOSE_WAIT => Course::PeerFinished,
            _ => Course::Over,
        };
        Ok(Standing { given: counts.written, course })
    }

    fn arrived(&self, s: &Sock, position: u64, unread: usize) -> bool {
        let Ok(counts) = sock::tcp_counts(s.carrier()) else { return false };
        // A FIN that is in counts one.
        (counts.received == position || Some(counts.received) == position.checked_add(1))
            && sock::inq(s.carrier()) == Ok(unread)
    }

    fn received(&self, s: &Sock) -> Result<u64> {
        Ok(sock::tcp_counts(s.carrier())?.received)
    }

    fn moved(&self, s: &Sock) -> Result<(u64, u64)> {
        let counts = sock::tcp_counts(s.carrier())?;
        let waiting = sock::inq(s.carrier())? as u64;
        Ok((counts.written, counts.received.saturating_sub(waiting)))
    }

    fn has_mark_within(&self, s: &Sock, want: usize) -> bool {
        let fd = s.carrier();
        let queued = sock::inq(fd).unwrap_or(0);
        let Ok(seen) = sock::peek_length(fd, want) else { return false };
        // SIOCINQ counts up to an urgent byte that is apart, which POLLPRI tells of, and beyond one that is in line.
        let mut pending = [PollFd { fd, events: libc::POLLPRI, revents: 0 }];
        seen < want && (seen < queued || seen == queued && matches!(ppoll(&mut pending, Some(0), 0), Ok(1..)))
    }

    fn acknowledge(&self, s: &Sock) {
        // A delayed acknowledgement (40 ms) would hold up a small write behind Nagle's algorithm.
        let _ = sock::set_option(s.carrier(), libc::IPPROTO_TCP, libc::TCP_QUICKACK, &1i32.to_ne_bytes());
    }

    fn urge(&self, s: &Sock) -> bool {
        // These bytes were sent a while ago: Nagle's algorithm has no say in them.
        let holds_back = sock::option(s.carrier(), libc::IPPROTO_TCP, libc::TCP_NODELAY) == Ok(0);
        if holds_back {
            set_nodelay(s, 1);
        }
        holds_back
    }

    fn relax(&self, s: &Sock) {
        set_nodelay(s, 0);
    }

    fn lost(&self, _s: &Sock, error: Option<i32>) -> Option<i32> {
        // What poll saw stays in the socket for the program.
        error
    }

    fn send_reports_errors(&self) -> bool {
        true
    }

    fn shutdown_is_gentle(&self) -> bool {
        true
    }

    fn reset(&self, s: &Sock) {
        linger_zero(s);
        sock::shutdown(s.carrier(), libc::SHUT_RDWR);
    }

    fn dissolve(&self, s: &Sock) -> bool {
        // ECONNRESET once, then ENOTCONN.
        sock::disconnect(s.carrier()).is_ok()
    }

    fn discardable(&self, s: &Sock) -> usize {
        sock::unsent(s.carrier()).unwrap_or(0)
    }

    fn close_unread(&self, s: &Sock) {
        linger_zero(s);
    }
}

/// Whether the socket is in the network namespace where this netlink socket asks: the same addresses are others' in another one. False: nobody knows (before
/// Linux 5.14).
fn is_asked_there(fd: i32, netlink: i32) -> std::result::Result<bool, Reason> {
    match [fd, netlink].map(sock::network_namespace) {
        [Ok(own), Ok(asked)] if own != asked => Err(Reason::OtherNamespace),
        [own, asked] => Ok(own.is_ok() && asked.is_ok()),
    }
}

/// Whether it is bound to a device, but for that of its link-local addresses: what is not bound to that may have the same addresses beside it.
fn is_of_a_device(fd: i32) -> bool {
    let mut name = [0; libc::IFNAMSIZ];
    let is_bound = sock::option_bytes(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &mut name);
    is_bound.is_ok_and(|len| len > 0) && sock::local_address(fd).is_ok_and(|local| local.scope == 0)
}

fn set_nodelay(s: &Sock, on: i32) {
    let _ = sock::set_option(s.carrier(), libc::IPPROTO_TCP, libc::TCP_NODELAY, &on.to_ne_bytes());
}

/// Linger 0 makes the kernel reset the connection when it is closed or shut down.
fn linger_zero(s: &Sock) {
    let mut linger = [0; 8];
    linger[..4].copy_from_slice(&1i32.to_ne_bytes());
    let _ = sock::set_option(s.carrier(), libc::SOL_SOCKET, libc::SO_LINGER, &linger);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn who_is_bound_to_a_device_is_told() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let fd = client.as_raw_fd();
        assert!(!is_of_a_device(fd) && Tcp.eligible(fd).is_ok());
        sock::set_option(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, b"lo\0").unwrap();
        assert!(is_of_a_device(fd));
        assert_eq!(Tcp.eligible(fd), Err(Reason::BoundDevice));
    }

    #[test]
    fn the_other_end_is_asked_for_where_the_socket_is() {
        let netlink = sockdiag::open(3).unwrap();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(is_asked_there(socket.as_raw_fd(), netlink), Ok(true));
        // What cannot be asked tells nothing.
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(is_asked_there(file.as_raw_fd(), netlink), Ok(false));
        bypath_sys::fd::close(netlink);
    }
}
