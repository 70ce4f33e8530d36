//! Sockets from which a receiver sends again what another one has sent it: they have that one's port, at an address which nobody uses, and say at each send
//! from which address it is. Which one is drawn by lot: every user may bind each of them at each port, but nobody all.
//!
//! Where the sender has an address of its own, or is gone, the port is free at that one, and the receiver makes such a socket when it needs it. Who sends
//! from every address has the port at that one, too: he makes the socket and *lends* it. It gives the port back when his own socket is closed: that works
//! only for ports that the kernel has chosen.

use super::inbound::{Inbound, SENDERS};
use super::{Name, Record};
use crate::state;
use bypath_sys::sock::{self, Address};
use bypath_sys::{Errno, Result, fd, process, strangers, unix};
use libc::{IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET};
use std::sync::atomic::Ordering::*;

/// Addresses that are tried: who has taken one of them has hardly taken all.
const TRIES: usize = 8;
/// linux/in6.h.
const IPV6_FREEBIND: i32 = 78;
/// linux/in.h, since Linux 6.3: the ports of which the kernel chooses one, the lowest and, above that, the highest.
const IP_LOCAL_PORT_RANGE: i32 = 51;

/// One of them.
#[derive(Debug)]
pub(super) struct StandIn {
    fd: i32,
    family: i32,
    whose: Whose,
}

#[derive(Clone, Copy, Debug)]
enum Whose {
    /// Made here.
    Own,
    /// It was lent, and stood there.
    Lent(usize),
    /// It stands there still: who uses it has the memory of another process, and descriptors of its own.
    Borrowed,
}

/// Where they are, and send nothing from: in 127.64.0.0/10.
fn home(family: i32, port: u16) -> Address {
    let [.., a, b, c] = process::random_u64().to_ne_bytes();
    let bytes = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 64 | a & 63, b, c];
    match family {
        libc::AF_INET => Name::new(bytes, port).to_address(),
        _ => Address { family: family as u16, port, bytes, scope: 0 },
    }
}

/// Where those are that stand in for a source of IPv6, whose port others may have at every address of IPv4: in 100::/64, which is no host's (RFC 6666).
fn home_of_v6(port: u16) -> Address {
    let mut bytes = [0; 16];
    bytes[0] = 1;
    bytes[8..].copy_from_slice(&process::random_u64().to_ne_bytes());
    Address { family: libc::AF_INET6 as u16, port, bytes, scope: 0 }
}

/// At the first of these addresses that nobody has.
fn bind_free(own: i32, mut home: impl FnMut() -> Address) -> Result<()> {
    for _ in 1..TRIES {
        match sock::bind(own, &home()) {
            Err(Errno::ADDRINUSE) => {}
            bound => return bound,
        }
    }
    sock::bind(own, &home())
}

fn family_of(source: &Name) -> i32 {
    if source.is_v4() { libc::AF_INET } else { libc::AF_INET6 }
}

/// A socket of this port there, which may share it where its other holders let it; 0: of the one in `range`, whose holder [shares](share) it just now.
fn make(family: i32, port: u16, range: Option<u16>) -> Option<i32> {
    let own = sock::datagrams(family, 0, state::floor()).ok()?;
    let on = 1i32.to_ne_bytes();
    let ranged = range.map_or(Ok(()), |port| {
        let both = u32::from(port) | u32::from(port) << 16;
        sock::set_option(own, IPPROTO_IP, IP_LOCAL_PORT_RANGE, &both.to_ne_bytes())
    });
    let made = ranged
        .and_then(|()| sock::set_option(own, SOL_SOCKET, libc::SO_REUSEADDR, &on))
        .and_then(|()| range.map_or(Ok(()), |_| sock::set_option(own, SOL_SOCKET, libc::SO_REUSEPORT, &on)))
        .and_then(|()| {
            if family == libc::AF_INET6 && range.is_none() {
                sock::set_option(own, IPPROTO_IPV6, IPV6_FREEBIND, &on)?;
                return bind_free(own, || home_of_v6(port));
            }
            bind_free(own, || home(family, port))
        })
        .and_then(|()| sock::local_address(own));
    let wanted = range.unwrap_or(port);
    if made.is_ok_and(|name| name.port == wanted) {
        return Some(own);
    }
    fd::close(own);
    None
}

impl StandIn {
    /// For `source`, whose port is free there, where the socket `to` is: this thread may be in another network namespace.
    pub(super) fn new(source: &Name, to: i32) -> Option<StandIn> {
        let family = family_of(source);
        // Port 0 would be any.
        let fd = (source.port != 0).then(|| make(family, source.port, None))??;
        Some(StandIn { fd, family, whose: Whose::Own }).filter(|own| place(own.fd) == place(to))
    }

    /// What `source` has lent, of what came with its message, if `fd` may need it. The others are closed.
    pub(super) fn of_message(received: &unix::Received, source: &Name, to: i32) -> Option<StandIn> {
        let fds = &received.fds[..received.fd_count];
        let at = fds.iter().position(|own| is_stand_in(*own, source, to));
        let (before, found) = fds.split_at(at.unwrap_or(fds.len()));
        let (found, behind) = found.split_at(found.len().min(1));
        // Whatever they are, nobody waits for that.
        [before, behind].into_iter().for_each(strangers::close_files);
        let found = found.first().copied();
        let family = sock::option(found?, SOL_SOCKET, libc::SO_DOMAIN).ok()?;
        Some(StandIn { fd: found?, family, whose: Whose::Own })
    }

    pub(super) fn fd(&self) -> i32 {
        self.fd
    }

    pub(super) fn family(&self) -> i32 {
        self.family
    }

    /// It is somebody else's from here on.
    pub(super) fn into_fd(mut self) -> i32 {
        self.whose = Whose::Borrowed;
        self.fd
    }
}

impl Drop for StandIn {
    fn drop(&mut self) {
        if !matches!(self.whose, Whose::Borrowed) {
            fd::close(self.fd);
        }
    }
}

/// Its network namespace; `None` before Linux 5.14.
fn place(fd: i32) -> Option<u64> {
    sock::network_namespace(fd).ok()
}

/// Whether it is a socket of UDP with that port, where `other` is one.
fn is_stand_in(own: i32, source: &Name, other: i32) -> bool {
    let option = |name: i32| sock::option(own, SOL_SOCKET, name);
    option(libc::SO_DOMAIN)
        .is_ok_and(|domain| matches!(domain, libc::AF_INET6) || domain == family_of(source))
        && option(libc::SO_TYPE) == Ok(libc::SOCK_DGRAM)
        && option(libc::SO_PROTOCOL) == Ok(libc::IPPROTO_UDP)
        && sock::local_address(own).is_ok_and(|name| name.port == source.port)
        && place(own).is_some_and(|own| place(other) == Some(own))
}

impl Inbound {
    /// What the sender of that port has lent.
    pub(super) fn lent_by(&self, source: &Name) -> Option<StandIn> {
        for (at, word) in self.lent[..SENDERS].iter().enumerate() {
            let found = word.load(Acquire);
            let own = found - 1;
            // It has none any more if its sender has closed his socket.
            let is_its = own >= 0 && sock::local_address(own).is_ok_and(|name| name.port == source.port);
            let Some(family) = is_its.then(|| sock::option(own, SOL_SOCKET, libc::SO_DOMAIN).ok()).flatten()
            else {
                continue;
            };
            if state::is_memory_of_another() {
                return Some(StandIn { fd: own, family, whose: Whose::Borrowed });
            }
            if word.compare_exchange(found, 0, AcqRel, Relaxed).is_ok() {
                return Some(StandIn { fd: own, family, whose: Whose::Lent(at) });
            }
        }
        None
    }

    /// It is not needed just now, and may be again.
    pub(super) fn give_back_lent(&self, stand_in: StandIn) {
        if let Whose::Lent(at) = stand_in.whose
            && self.lent[at].compare_exchange(0, stand_in.fd + 1, AcqRel, Relaxed).is_ok()
        {
            stand_in.into_fd();
        }
    }
}

/// Others may bind the port of `fd`, too, or no longer. Only this user's: SO_REUSEADDR would let any user who tries it again and again come to the port, and
/// get what is sent there.
fn share(fd: i32, on: bool) -> bool {
    sock::set_option(fd, SOL_SOCKET, libc::SO_REUSEPORT, &i32::from(on).to_ne_bytes()).is_ok()
}

/// To whom this socket sends may need one to send it again: made once, and kept, as it is to give its port back. `None`: it can do without, or there can be
/// none. Under [`state::LIFE`].
pub(super) fn lend(r: &Record, fd: i32, source: &Name) -> Option<i32> {
    let kept = &r.outbound.lent;
    if let Some(own) = Some(kept.load(Relaxed) - 1).filter(|own| *own >= 0) {
        if sock::local_address(own).is_ok_and(|name| name.port == source.port) {
            return Some(own);
        }
        // A parent, or a child, has given its port back as it closed the socket, or ended.
        kept.store(0, Relaxed);
        fd::close(own);
    }
    let is_everywhere = sock::local_address(fd).is_ok_and(|own| Name::of(&own).is_unspecified());
    let is_chosen = !r.has_chosen_port.load(Relaxed);
    if !is_everywhere || !is_chosen || r.shares_port() || r.is_shared() {
        return None;
    }
    // For the moment of the other one's bind.
    if !share(fd, true) {
        return None;
    }
    let made = make(r.family(), 0, Some(source.port));
    share(fd, false);
    let own = made?;
    kept.store(own + 1, Relaxed);
    Some(own)
}

/// The socket is closed, or gets another name: nobody keeps its port.
pub(super) fn take_back(r: &Record) {
    let own = r.outbound.lent.swap(0, AcqRel) - 1;
    if own >= 0 {
        let _ = sock::disconnect(own);
        fd::close(own);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bypath_shm::region::own_ring;
    use std::net::{TcpListener, UdpSocket};
    use std::os::fd::AsRawFd;

    fn name_of(socket: &UdpSocket, ip: &str) -> Name {
        let octets = match ip.parse().unwrap() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
            std::net::IpAddr::V6(v6) => v6.octets(),
        };
        Name::new(octets, socket.local_addr().unwrap().port())
    }

    fn says(by: &StandIn, source: &Name, to: &UdpSocket, ip: &str) {
        let mut raw = [0; super::super::LONGEST];
        let len = name_of(to, ip).emit(by.family(), &mut raw);
        let ring = own_ring(4096).unwrap();
        ring.copy_from_slice(4094, b"said");
        let sent = ring.with_pieces(4094, 4, |octets| {
            sock::send_from(by.fd(), by.family(), octets, &raw[..len], source.octets(), 0)
        });
        assert_eq!(sent, Ok(4));
        let mut got = [0; 9];
        let (n, from) = to.recv_from(&mut got).unwrap();
        assert_eq!((&got[..n], from.ip(), from.port()), (&b"said"[..], source.address(), source.port));
    }

    #[test]
    fn who_has_one_address_or_none_any_more_is_stood_in_for() {
        for ip in ["127.0.0.1", "::1"] {
            let bind = || UdpSocket::bind((ip, 0)).unwrap();
            let (receiver, sender) = (bind(), bind());
            let source = name_of(&sender, ip);
            let of_living = StandIn::new(&source, receiver.as_raw_fd()).expect("the port is free there");
            says(&of_living, &source, &receiver, ip);
            drop((of_living, sender));
            let of_dead = StandIn::new(&source, receiver.as_raw_fd()).expect("it is free everywhere");
            says(&of_dead, &source, &receiver, ip);
        }
    }

    #[test]
    fn an_address_that_somebody_has_taken_is_passed_over() {
        let taken = UdpSocket::bind("127.70.1.2:0").unwrap();
        let port = taken.local_addr().unwrap().port();
        let at = |last: u8| Name::new([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 70, 1, last], port);
        let bound = |homes: &[u8]| {
            let (own, mut left) = (sock::datagrams(libc::AF_INET, 0, 0).unwrap(), homes.iter());
            let told = bind_free(own, || at(*left.next().unwrap_or(&2)).to_address());
            fd::close(own);
            (told, left.len())
        };
        assert_eq!(bound(&[2, 2, 3, 4]), (Ok(()), 1));
        assert_eq!(bound(&[2; 9]), (Err(Errno::ADDRINUSE), 9 - TRIES), "it does not try for ever");
        let (one, other) = (home(libc::AF_INET, 7), home(libc::AF_INET, 7));
        assert!(one.bytes != other.bytes && home_of_v6(7).bytes != home_of_v6(7).bytes);
    }

    #[test]
    fn who_has_every_address_of_ipv4_is_not_in_the_way_of_ipv6() {
        let receiver = UdpSocket::bind("[::1]:0").unwrap();
        // A port that is free on both.
        let both = || {
            let stranger = UdpSocket::bind("0.0.0.0:0").ok()?;
            let sender = UdpSocket::bind(("::1", stranger.local_addr().ok()?.port())).ok()?;
            Some((stranger, sender))
        };
        let (_stranger, sender) = (0..100).find_map(|_| both()).expect("a port");
        let source = name_of(&sender, "::1");
        let own = StandIn::new(&source, receiver.as_raw_fd()).expect("a port of IPv6");
        says(&own, &source, &receiver, "::1");
    }

    #[test]
    fn who_has_every_address_lends_what_gives_the_port_back() {
        for (any, ip, family) in [
            ("0.0.0.0", "127.0.0.1", libc::AF_INET),
            ("::", "::1", libc::AF_INET6),
            ("::", "127.0.0.1", libc::AF_INET6),
        ] {
            let (receiver, sender) = (UdpSocket::bind((ip, 0)).unwrap(), UdpSocket::bind((any, 0)).unwrap());
            let source = name_of(&sender, ip);
            assert!(
                StandIn::new(&source, receiver.as_raw_fd()).is_none(),
                "the port is taken at every address"
            );
            assert!(make(family, 0, Some(source.port)).is_none(), "as long as it is not shared");
            assert!(share(sender.as_raw_fd(), true));
            assert!(make(family, source.port, None).is_none(), "not with those who share it with any user");
            let lent = make(family, 0, Some(source.port)).expect("for the moment it is");
            assert!(share(sender.as_raw_fd(), false));
            assert!(make(family, 0, Some(source.port)).is_none(), "and it is over");
            assert!(is_stand_in(lent, &source, receiver.as_raw_fd()));
            says(&StandIn { fd: lent, family, whose: Whose::Borrowed }, &source, &receiver, ip);
            drop(sender);
            assert!(UdpSocket::bind((any, source.port)).is_err(), "it holds the port");
            sock::disconnect(lent).unwrap();
            UdpSocket::bind((any, source.port)).expect("it holds it no longer");
            assert!(!is_stand_in(lent, &source, receiver.as_raw_fd()), "nor would it send from there");
            fd::close(lent);
        }
    }

    #[test]
    fn what_is_lent_is_made_anew_where_it_has_lost_its_port() {
        let sender = UdpSocket::bind("0.0.0.0:0").unwrap();
        let (r, source) = (Box::<Record>::default(), name_of(&sender, "127.0.0.1"));
        r.family.store(libc::AF_INET, Relaxed);
        let lent = lend(&r, sender.as_raw_fd(), &source).expect("its port was chosen by the kernel");
        assert_eq!(lend(&r, sender.as_raw_fd(), &source), Some(lent));
        // As a child does that closes its copy of the socket, or ends.
        sock::disconnect(lent).unwrap();
        let anew = lend(&r, sender.as_raw_fd(), &source).unwrap();
        assert!(is_stand_in(anew, &source, sender.as_raw_fd()));
        take_back(&r);
    }

    #[test]
    fn what_is_no_socket_of_that_port_is_not_used() {
        // A port that TCP has free, too.
        let both = || {
            let one = UdpSocket::bind("127.0.0.1:0").ok()?;
            let stream = TcpListener::bind(one.local_addr().ok()?).ok()?;
            Some((one, stream))
        };
        let (one, stream) = (0..100).find_map(|_| both()).expect("a port");
        let other = UdpSocket::bind("127.0.0.1:0").unwrap();
        let source = name_of(&one, "127.0.0.1");
        assert!(is_stand_in(one.as_raw_fd(), &source, other.as_raw_fd()));
        assert!(!is_stand_in(other.as_raw_fd(), &source, other.as_raw_fd()), "another port");
        assert!(!is_stand_in(stream.as_raw_fd(), &source, other.as_raw_fd()), "of TCP");
        assert!(!is_stand_in(std::io::stdin().as_raw_fd(), &source, other.as_raw_fd()), "no socket");
        let of_ipv6 = name_of(&one, "::1");
        assert!(!is_stand_in(one.as_raw_fd(), &of_ipv6, other.as_raw_fd()), "of IPv4 alone");
    }
}
