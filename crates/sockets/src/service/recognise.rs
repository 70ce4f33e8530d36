//! Sockets of a service that this process did not make: inherited, or passed to it.

use super::{ServiceName, control, stage};
use crate::{state, table};
use bypath_shm::service::of_end_name;
use bypath_sys::poll::{PollFd, ppoll};
use bypath_sys::{fd, poll, sock, unix};
use std::sync::atomic::{AtomicBool, Ordering::*};

/// Numbers that are looked at when a program starts: what it inherits has low ones.
const INHERITED: usize = 256;

/// There are some that may outlive their service, of which it was not asked yet what is to be done again then.
static UNASKED: AtomicBool = AtomicBool::new(false);

/// Whether there are such sockets.
#[inline]
pub fn are_unasked() -> bool {
    UNASKED.load(Relaxed)
}

/// Before a fork, and a wait in poll or select, either of which may be the last call before the service ends: asks about them. (Those of epoll are asked about when
/// they are registered.)
#[cold]
pub fn ask_about_all() {
    UNASKED.store(false, Relaxed);
    super::each_unknown(|r| {
        if r.is_listening() {
            r.is_to_last(None);
        }
    });
    super::datagram::are_to_last();
}

/// Whether `fd`, which nothing is known of, is a stream of a service. From here on it is known; one of datagrams is, too.
pub fn recognise(fd: i32) -> bool {
    let mut room = [0; 110];
    let Some((service, cookie)) = told_by_its_name(fd, &mut room) else { return false };
    let Some(service) = ServiceName::new(service).and_then(control::number_if_there) else { return false };
    if state::is_borrowed() {
        return false;
    }
    let Some(_life) = state::LIFE.lock(table::tid()) else { return false };
    if table::entry(fd).is_some() {
        return table::served(fd).is_some();
    }
    if sock::option(fd, libc::SOL_SOCKET, libc::SO_TYPE) == Ok(libc::SOCK_SEQPACKET) {
        super::datagram::recognised(fd, service, cookie);
        UNASKED.store(true, Relaxed);
        return false;
    }
    let known = super::by_cookie(cookie);
    // One more descriptor of a socket that is followed here.
    let mut followed = None;
    table::each_sock(|s| {
        if known.is_some() && s.served() == known {
            followed = Some(s);
        }
    });
    if let Some(s) = followed {
        table::alias(fd, s);
        return true;
    }
    let Some(record) = known.or_else(|| super::new_record(service, cookie, 0, stage::UNKNOWN)) else {
        return false;
    };
    super::alias(fd, record);
    let is_known = table::served(fd).is_some();
    if !is_known && known.is_none() {
        super::discard(record);
    }
    if is_known && known.is_none() && poll::now(fd, libc::POLLOUT) & libc::POLLOUT == 0 {
        // As one that listens, which never has room.
        UNASKED.store(true, Relaxed);
    }
    is_known
}

/// The service that the other end's name tells of, and the socket's cookie. Anybody may choose a name, and learn the number of a socket (sock_diag): it is
/// asked who has made the pair, too.
fn told_by_its_name(fd: i32, room: &mut [u8; 110]) -> Option<(&str, u64)> {
    // Asked first, as it takes no lock: getpeername(2) of a connection waits for whoever holds it locked, who may have sent it.
    if sock::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN) != Ok(libc::AF_UNIX) {
        return None;
    }
    let (service, cookie) = unix::peer_name(fd, room).and_then(of_end_name)?;
    let is_its = sock::option_u64(fd, libc::SOL_SOCKET, libc::SO_COOKIE) == Ok(cookie)
        && control::may_be_of(service, fd);
    is_its.then_some((service, cookie))
}

/// Looks at what the program inherits.
pub fn inherited() {
    each_open(|fd| {
        recognise(fd);
    });
}

/// Whether an image that this process, which borrows its memory, is about to become inherits a socket of some service.
#[cold]
pub fn are_any_inherited() -> bool {
    let mut any = false;
    each_open(|number| {
        any = any || fd::is_cloexec(number) == Ok(false) && told_by_its_name(number, &mut [0; 110]).is_some();
    });
    any
}

/// Each open one of the low numbers. One call tells which these are.
fn each_open(mut f: impl FnMut(i32)) {
    let mut all: [PollFd; INHERITED] =
        std::array::from_fn(|fd| PollFd { fd: fd as i32, ..PollFd::default() });
    let looked_at = usize::try_from(fd::limits().0).unwrap_or(INHERITED).min(INHERITED);
    if ppoll(&mut all[..looked_at], Some(0), 0).is_err() {
        return;
    }
    for open in all[..looked_at].iter().filter(|p| p.revents & libc::POLLNVAL == 0) {
        f(open.fd);
    }
}
