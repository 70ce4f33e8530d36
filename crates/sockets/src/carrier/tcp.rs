//! TCP: the kernel counts every byte (TCP_INFO), knows both ends by their addresses, and can reset a connection.

use super::{Backend, Course, Standing, untold};
use crate::table::Sock;
use crate::{options, state, whose};
use bypath_shm::reason::Reason;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::sock::Address;
use bypath_sys::sockdiag::{self, Found};
use bypath_sys::tcp_info::TcpInfo;
use bypath_sys::{Result, fd, process, sock};
use std::sync::atomic::Ordering::Relaxed;

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
        // Of two ends of one connection this always holds.
        let here = TcpInfo::of(fd).map_err(untold)?;
        let agrees = here.agrees([&before; 2]) || {
            // It may have gone on meanwhile.
            let (again, after) = there()?;
            again.cookie == found.cookie && after.is_some_and(|after| here.agrees([&before, &after]))
        };
        let is_it = agrees
            && (is_own || here.is_open_with(&before) && is_proven(s, netlink, &found, [&remote, &local])?);
        if is_it { Ok(found) } else { Err(Reason::PeerUnproven) }
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

    fn tells_after_fin(&self, s: &Sock) -> bool {
        // In another network namespace nobody can be asked for it.
        s.abroad.load(Relaxed) == 0
    }

    fn is_left(&self, s: &Sock) -> bool {
        let fd = s.carrier();
        let found = state::netlink().and_then(|netlink| {
            sockdiag::tcp(netlink, &sock::remote_address(fd)?, &sock::local_address(fd)?)
        });
        let known = s.end().peer_cookie.load(Relaxed);
        !matches!(found, Ok(Some(found)) if found.inode != 0 && found.cookie == known)
    }

    fn reset(&self, s: &Sock) {
        linger_zero(s);
        sock::shutdown(whose::carrier(s), libc::SHUT_RDWR);
    }

    fn dissolve(&self, s: &Sock) -> bool {
        // ECONNRESET once, then ENOTCONN.
        sock::disconnect(whose::carrier(s)).is_ok()
    }

    fn has_finished(&self, s: &Sock) -> bool {
        // TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK and CLOSING (net/tcp_states.h).
        sock::tcp_counts(s.carrier()).map_or(true, |counts| matches!(counts.state, 6..=9 | 11))
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

/// Whether the socket of another user that was found is the other end, and none that he has made beside it or in its place (ADR 0039): it alone has these
/// addresses in the network namespace whose own they are, and the other end has acknowledged octets that this one was given later, so that it was there. So it
/// takes two questions. `ends`: its address, and this end's.
fn is_proven(
    s: &Sock,
    netlink: i32,
    found: &Found,
    ends: [&Address; 2],
) -> std::result::Result<bool, Reason> {
    let (carrier, [there, here]) = (s.carrier(), ends);
    let acknowledged = || TcpInfo::of(carrier).map(|here| here.acknowledged()).map_err(untold);
    let is_alone = || sockdiag::is_the_only_one(netlink, there, here, found.cookie) == Ok(true);
    if s.seen.load(Relaxed) == found.cookie {
        // Asked once more: who made way for the other end, which the kernel had no socket of then, finds that beside it when it comes again.
        return Ok(acknowledged()? > s.seen_at.load(Relaxed) && is_alone());
    }
    if is_own_address(carrier, there)? && is_alone() {
        // In this order: what is acknowledged in between counts twice.
        let waiting = sock::outq(carrier).map_err(untold)? as u64;
        s.seen_at.store(acknowledged()?.saturating_add(waiting), Relaxed);
        s.seen.store(found.cookie, Relaxed);
    }
    Ok(false)
}

/// Whether an address is one of the network namespace of `carrier`: that of another host may have been one.
fn is_own_address(carrier: i32, address: &Address) -> std::result::Result<bool, Reason> {
    let probe = sock::datagrams(address.family.into(), 0, state::floor()).map_err(untold)?;
    let networks = [carrier, probe].map(sock::network_namespace);
    let is_bound = sock::bind(probe, &Address { port: 0, ..*address }).is_ok();
    fd::close(probe);
    Ok(is_bound && matches!(networks, [Ok(own), Ok(asked)] if own == asked))
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
    let _ = sock::set_option(whose::carrier(s), libc::SOL_SOCKET, libc::SO_LINGER, &linger);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    /// A record of the socket, which [`table::remove`] ends.
    fn followed(fd: i32) -> &'static Sock {
        let s = table::ensure(fd as u32).unwrap();
        s.number.store(fd as u32, Relaxed);
        s.fd.store(fd, Relaxed);
        s.seen.store(0, Relaxed);
        table::alias(fd, s);
        s
    }

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
    fn another_users_end_is_proven_by_what_it_acknowledges_after_it_was_found_alone() {
        let netlink = sockdiag::open(3).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        let s = followed(client.as_raw_fd());
        let here = sock::local_address(client.as_raw_fd()).unwrap();
        let there = sock::remote_address(client.as_raw_fd()).unwrap();
        let found = sockdiag::tcp(netlink, &there, &here).unwrap().unwrap();
        let is_proven = |found: &Found| is_proven(s, netlink, found, [&there, &here]).unwrap();
        let mut says = |octets: usize| {
            let before = TcpInfo::of(client.as_raw_fd()).unwrap().acknowledged();
            client.write_all(&vec![1; octets]).unwrap();
            server.read_exact(&mut vec![0; octets]).unwrap();
            server.write_all(&[1]).unwrap();
            client.read_exact(&mut [0]).unwrap();
            // With the answer at the latest.
            assert_eq!(TcpInfo::of(client.as_raw_fd()).unwrap().acknowledged(), before + octets as u64);
        };
        says(1000);
        let other = Found { cookie: found.cookie + 1, ..found };
        assert!(!is_proven(&other) && s.seen.load(Relaxed) == 0, "another one has these addresses");
        assert!(!is_proven(&found) && !is_proven(&found), "it may have gone before it was looked for");
        says(1);
        assert!(is_proven(&found) && is_proven(&found));
        assert!(!is_proven(&other), "that is another one");
        table::remove(client.as_raw_fd());
        bypath_sys::fd::close(netlink);
    }

    /// Waits until all that was sent is acknowledged, which the kernel tells nobody of.
    #[track_caller]
    fn acknowledged(client: &TcpStream) {
        let begin = std::time::Instant::now();
        while sock::outq(client.as_raw_fd()) != Ok(0) {
            assert!(begin.elapsed().as_secs() < 20, "it was received");
            std::thread::yield_now();
        }
    }

    #[test]
    fn what_is_not_acknowledged_when_it_is_found_alone_proves_nothing() {
        let netlink = sockdiag::open(3).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // Small buffers, that are full.
        sock::set_option(listener.as_raw_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, &4096i32.to_ne_bytes())
            .unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut server = listener.accept().unwrap().0;
        client.set_nonblocking(true).unwrap();
        let written = std::iter::from_fn(|| client.write(&[1; 8192]).ok()).sum::<usize>();
        let s = followed(client.as_raw_fd());
        let here = sock::local_address(client.as_raw_fd()).unwrap();
        let there = sock::remote_address(client.as_raw_fd()).unwrap();
        let found = sockdiag::tcp(netlink, &there, &here).unwrap().unwrap();
        let is_proven = || is_proven(s, netlink, &found, [&there, &here]).unwrap();
        assert!(!is_proven());
        server.read_exact(&mut vec![0; written]).unwrap();
        acknowledged(&client);
        assert!(!is_proven(), "that was sent before");
        client.write_all(&[1]).unwrap();
        acknowledged(&client);
        assert!(is_proven());
        table::remove(client.as_raw_fd());
        bypath_sys::fd::close(netlink);
    }

    #[test]
    fn an_address_of_another_host_is_none_of_the_own_ones() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = |bytes: &[u8], family: i32| {
            let mut address = Address { family: family as u16, port: 7, bytes: [0; 16], scope: 0 };
            address.bytes[..bytes.len()].copy_from_slice(bytes);
            is_own_address(socket.as_raw_fd(), &address).unwrap()
        };
        assert!(own(&[127, 0, 0, 1], libc::AF_INET) && own(&[127, 9, 9, 9], libc::AF_INET));
        assert!(!own(&[192, 0, 2, 1], libc::AF_INET));
        let mapped = |last: [u8; 4]| [&[0; 10][..], &[0xff; 2], &last].concat();
        assert!(
            own(&mapped([127, 0, 0, 1]), libc::AF_INET6) && !own(&mapped([192, 0, 2, 1]), libc::AF_INET6)
        );
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
