//! sock_diag: what the kernel knows about a socket that is named by what the other end knows: a TCP socket by its
//! addresses, a UDP socket by those of what it would get, an AF_UNIX socket by being the other one's peer.

use crate::sock::Address;
use crate::syscall::{check, syscall};
use crate::tcp_info::TcpInfo;
use crate::{Errno, Result, fd, process, turn};

/// A socket of this network namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// SO_COOKIE of the socket.
    pub cookie: u64,
    /// User that created it, in our user namespace.
    pub uid: u32,
    /// Inode, 0 = no process holds it (not accepted yet, or orphaned), or of TCP: it is no end of a connection, as it has had no answer (anybody makes one such, of
    /// any address of the other end).
    pub inode: u32,
    /// TCP state (1 = established).
    pub state: u8,
}

/// Opens a netlink socket for [`tcp`] above `floor`.
///
/// # Errors
/// EMFILE; EPROTONOSUPPORT without CONFIG_INET_DIAG; EPERM under a filter.
pub fn open(floor: i32) -> Result<i32> {
    const NETLINK_SOCK_DIAG: usize = 4;
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    turn::high(floor, || {
        // SAFETY: integers only.
        check(unsafe {
            syscall(libc::SYS_socket, [libc::AF_NETLINK as usize, kind as usize, NETLINK_SOCK_DIAG, 0, 0, 0])
        })
        .map(|made| made as i32)
    })
}

/// Looks up the TCP socket whose local address is `local` and whose remote address is `remote`.
/// `None` if this network namespace has none.
///
/// # Errors
/// Errors of the netlink socket.
pub fn tcp(netlink: i32, local: &Address, remote: &Address) -> Result<Option<Found>> {
    asked(netlink, libc::IPPROTO_TCP, local, remote, 0).map(|found| found.map(|(found, _)| found))
}

/// As [`tcp`], with what the kernel tells of the connection, if it does: not of one that is over, or has not begun. `netlink` may be another process's, who means
/// harm: only answers of the kernel to this question count.
///
/// # Errors
/// Errors of the netlink socket; EINVAL for an answer that is none to this question.
pub fn tcp_with_info(
    netlink: i32,
    local: &Address,
    remote: &Address,
) -> Result<Option<(Found, Option<TcpInfo>)>> {
    // linux/inet_diag.h: INET_DIAG_INFO is 2, and is asked for by the bit before.
    const INFO: u8 = 1 << 1;
    asked(netlink, libc::IPPROTO_TCP, local, remote, INFO)
}

/// Whether no other TCP connection of this network namespace, in whatever state, has the addresses of the one with this cookie: beside a socket that is bound to a device there may be one.
/// The kernel goes through all of its connections.
///
/// # Errors
/// Errors of the netlink socket; EMSGSIZE: so many have these ports that it cannot be told.
pub fn is_the_only_one(netlink: i32, local: &Address, remote: &Address, cookie: u64) -> Result<bool> {
    let wanted = [mapped(local.family, &local.bytes), mapped(remote.family, &remote.bytes)];
    // One of IPv6 may have mapped addresses, beside one of IPv4.
    for family in [libc::AF_INET, libc::AF_INET6] {
        let mut request = [0u8; 72];
        header(&mut request);
        let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
        request[6..8].copy_from_slice(&flags.to_ne_bytes());
        request[16] = family as u8;
        request[17] = libc::IPPROTO_TCP as u8;
        let states = CONNECTIONS.iter().fold(0u32, |states, state| states | 1 << state);
        request[20..24].copy_from_slice(&states.to_ne_bytes());
        request[24..26].copy_from_slice(&local.port.to_be_bytes());
        request[26..28].copy_from_slice(&remote.port.to_be_bytes());
        let mut is_alone = true;
        each_told(netlink, &request, |message| {
            let (family, own) = (u16::from(message[0]), word(message, 44));
            let found = [&message[8..24], &message[24..40]].map(|octets| mapped(family, octets));
            let is_it = u64::from(own) | u64::from(word(message, 48)) << 32 == cookie;
            is_alone &= is_it || found != wanted;
        })?;
        if !is_alone {
            return Ok(false);
        }
    }
    Ok(true)
}

/// An address as one of IPv6.
fn mapped(family: u16, octets: &[u8]) -> [u8; 16] {
    let mut address = [0; 16];
    if i32::from(family) == libc::AF_INET {
        address[10..12].copy_from_slice(&[0xff; 2]);
        address[12..].copy_from_slice(&octets[..4]);
    } else {
        address.copy_from_slice(&octets[..16]);
    }
    address
}

/// Looks up the UDP socket that gets what is sent from `source` to `to`: the kernel's own look-up. `None` if this network
/// namespace has none.
///
/// # Errors
/// As [`tcp`].
pub fn udp(netlink: i32, source: &Address, to: &Address) -> Result<Option<Found>> {
    asked(netlink, libc::IPPROTO_UDP, source, to, 0).map(|found| found.map(|(found, _)| found))
}

/// All states of connections: those, SYN_SENT, SYN_RECV and NEW_SYN_RECV, of which a connected socket may come (TCP_DEFER_ACCEPT keeps one so until there are octets), and
/// TIME_WAIT.
const CONNECTIONS: [u8; 10] = [1, 2, 3, 4, 5, 6, 8, 9, 11, 12];

/// States in which both ends have heard of each other (RFC 9293, 3.4), and the kernel still has the connection: ESTABLISHED, FIN_WAIT1, FIN_WAIT2, CLOSE_WAIT, LAST_ACK
/// and CLOSING of include/net/tcp_states.h.
const SYNCHRONIZED: [u8; 6] = [1, 4, 5, 8, 9, 11];

fn asked(
    netlink: i32,
    protocol: i32,
    local: &Address,
    remote: &Address,
    more: u8,
) -> Result<Option<(Found, Option<TcpInfo>)>> {
    // struct nlmsghdr (16) + struct inet_diag_req_v2 (56).
    let mut request = [0u8; 72];
    header(&mut request);
    request[18] = more;
    let put = |m: &mut [u8; 72], at: usize, bytes: &[u8]| m[at..at + bytes.len()].copy_from_slice(bytes);
    request[16] = local.family as u8;
    request[17] = protocol as u8;
    put(&mut request, 20, &u32::MAX.to_ne_bytes()); // all states
    put(&mut request, 24, &local.port.to_be_bytes());
    put(&mut request, 26, &remote.port.to_be_bytes());
    put(&mut request, 28, &local.bytes);
    put(&mut request, 44, &remote.bytes);
    put(&mut request, 60, &local.scope.to_ne_bytes());
    put(&mut request, 64, &[0xff; 8]); // no cookie given

    let mut answer = [0u8; 2048];
    let Some(len) = ask(netlink, &request, &mut answer)? else { return Ok(None) };
    // struct inet_diag_msg: family, state, timer, retrans, inet_diag_sockid (48), expires, rqueue, wqueue, uid, inode.
    if len < 16 + 72 {
        return Err(Errno::INVAL);
    }
    let half = |at| word(&answer, at);
    // Where there is no such connection a listener at that port is told, which has no other end.
    if protocol == libc::IPPROTO_TCP && answer[20..24] != request[24..28] {
        return Ok(None);
    }
    let state = answer[17];
    let is_end = protocol != libc::IPPROTO_TCP || SYNCHRONIZED.contains(&state);
    let found = Found {
        state,
        cookie: u64::from(half(16 + 4 + 40)) | u64::from(half(16 + 4 + 44)) << 32,
        uid: half(16 + 64),
        inode: if is_end { half(16 + 68) } else { 0 },
    };
    let mut info = None;
    attributes(&answer[88..len], |kind, value| {
        if kind == 2 && info.is_none() {
            info = TcpInfo::parse(value);
        }
    });
    Ok(Some((found, info)))
}

/// The cookie and the user of an AF_UNIX socket, by its inode, as seen by who opened `netlink`. `None` if its network namespace has
/// none.
///
/// # Errors
/// Errors of the netlink socket; EPROTO where the kernel does not show users (before 5.3).
pub fn unix_owner(netlink: i32, inode: u32) -> Result<Option<(u64, u32)>> {
    let Some(found) = unix(netlink, inode)? else { return Ok(None) };
    Ok(Some((found.cookie, found.uid.ok_or(Errno::PROTO)?)))
}

/// Looks up the socket at the other end of the AF_UNIX stream socket `fd`. `None` if it vanished meanwhile.
///
/// # Errors
/// ENOTCONN; errors of the netlink socket; EPROTO where the kernel does not show users (before 5.3).
pub fn unix_peer(netlink: i32, fd: i32) -> Result<Option<Found>> {
    let own = fd::identity(fd)?.1 as u32;
    let Some(here) = unix(netlink, own)? else { return Ok(None) };
    let there = here.peer.ok_or(Errno::NOTCONN)?;
    if there == 0 {
        // Still in the listener's queue: no process holds it, and nothing names it.
        return Ok(Some(Found { cookie: 0, uid: 0, inode: 0, state: here.state }));
    }
    // Inodes are used anew: the socket found counts only while it has this one at its other end.
    let found = unix(netlink, there)?.filter(|f| f.peer == Some(own));
    let Some(f) = found else { return Ok(None) };
    Ok(Some(Found { cookie: f.cookie, uid: f.uid.ok_or(Errno::PROTO)?, inode: there, state: f.state }))
}

/// The other end of an AF_UNIX socket, by its name.
#[derive(Debug)]
pub struct UnixPeer {
    /// Cookie of the socket itself.
    pub own_cookie: u64,
    /// The user of the other end: who made it.
    pub uid: u32,
    name: [u8; LONGEST_NAME],
    len: usize,
}

impl UnixPeer {
    /// Its name in the abstract namespace, without the NUL before it; `None`: it has none there.
    pub fn abstract_name(&self) -> Option<&[u8]> {
        self.name[..self.len].strip_prefix(b"\0")
    }
}

/// What is at the other end of the AF_UNIX socket with this inode, as seen by who opened `netlink`. `None` if its network namespace has none such, or it is
/// not connected.
///
/// # Errors
/// Errors of the netlink socket; EPROTO where the kernel does not show users (before 5.3).
pub fn named_peer(netlink: i32, inode: u32) -> Result<Option<UnixPeer>> {
    let Some(own) = unix(netlink, inode)? else { return Ok(None) };
    let Some(there) = own.peer.filter(|there| *there != 0) else { return Ok(None) };
    let found = unix(netlink, there)?.filter(|f| f.peer == Some(inode));
    let Some(f) = found else { return Ok(None) };
    let uid = f.uid.ok_or(Errno::PROTO)?;
    Ok(Some(UnixPeer { own_cookie: own.cookie, uid, name: f.name, len: f.len }))
}

/// Octets of a name of an AF_UNIX socket at most (unix(7)).
const LONGEST_NAME: usize = 108;

/// What unix_diag tells about one socket.
struct UnixSocket {
    state: u8,
    cookie: u64,
    name: [u8; LONGEST_NAME],
    /// Of the name; 0 = it has none.
    len: usize,
    /// Inode of the socket at the other end, 0 = no process holds that one; `None` = not connected.
    peer: Option<u32>,
    uid: Option<u32>,
}

fn unix(netlink: i32, inode: u32) -> Result<Option<UnixSocket>> {
    // Attributes and what asks for them (linux/unix_diag.h).
    const SHOW_NAME: u32 = 1;
    const SHOW_PEER: u32 = 4;
    const SHOW_UID: u32 = 64;
    const NAME: u16 = 0;
    const PEER: u16 = 2;
    const UID: u16 = 7;
    // struct nlmsghdr (16) + struct unix_diag_req (24).
    let mut request = [0u8; 40];
    header(&mut request);
    request[16] = libc::AF_UNIX as u8;
    request[20..24].copy_from_slice(&u32::MAX.to_ne_bytes()); // all states
    request[24..28].copy_from_slice(&inode.to_ne_bytes());
    request[28..32].copy_from_slice(&(SHOW_NAME | SHOW_PEER | SHOW_UID).to_ne_bytes());
    request[32..40].copy_from_slice(&[0xff; 8]); // no cookie given
    let mut answer = [0u8; 2048];
    let Some(len) = ask(netlink, &request, &mut answer)? else { return Ok(None) };
    // struct unix_diag_msg: family, type, state, pad, inode, cookie; then attributes.
    if len < 16 + 16 || word(&answer, 20) != inode {
        return Err(Errno::INVAL);
    }
    let mut found = UnixSocket {
        state: answer[18],
        cookie: u64::from(word(&answer, 24)) | u64::from(word(&answer, 28)) << 32,
        name: [0; LONGEST_NAME],
        len: 0,
        peer: None,
        uid: None,
    };
    attributes(&answer[32..len], |kind, value| match (kind, value.len()) {
        (NAME, len @ 1..=LONGEST_NAME) => {
            found.name[..len].copy_from_slice(value);
            found.len = len;
        }
        (PEER, 4) => found.peer = Some(word(value, 0)),
        (UID, 4) => found.uid = Some(word(value, 0)),
        _ => {}
    });
    Ok(Some(found))
}

/// Calls `f` with each attribute's kind and value.
fn attributes(mut rest: &[u8], mut f: impl FnMut(u16, &[u8])) {
    while let [a, b, c, d, ..] = *rest {
        let (size, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        let Some(value) = rest.get(4..size) else { break };
        f(kind, value);
        rest = rest.get(size.next_multiple_of(4)..).unwrap_or(&[]);
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes)
}

const SOCK_DIAG_BY_FAMILY: u16 = 20;

/// Fills in struct nlmsghdr.
fn header(request: &mut [u8]) {
    let len = request.len() as u32;
    request[..4].copy_from_slice(&len.to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&(libc::NLM_F_REQUEST as u16).to_ne_bytes());
    // The number of the question, which nobody guesses who may use the socket, too.
    request[8..12].copy_from_slice(&(process::random_u64() as u32).to_ne_bytes());
}

/// Sends a query for one socket and takes the answer; returns its length, `None` if there is no such socket.
fn ask(netlink: i32, request: &[u8], answer: &mut [u8; 2048]) -> Result<Option<usize>> {
    say(netlink, request, answer)?;
    let (len, is_kernel) = receive(netlink, answer)?;
    if !(20..=answer.len()).contains(&len) || !is_kernel || answer[8..12] != request[8..12] {
        return Err(Errno::INVAL);
    }
    let kind = u16::from_ne_bytes([answer[4], answer[5]]);
    if kind == libc::NLMSG_ERROR as u16 {
        let code = -(word(answer, 16) as i32);
        return if code == libc::ENOENT { Ok(None) } else { Err(Errno::from_raw_os_error(code)) };
    }
    // A socket of one Internet family may be found by an address of the other one.
    let is_unix = |message: &[u8]| message[16] == libc::AF_UNIX as u8;
    if kind != SOCK_DIAG_BY_FAMILY || is_unix(&answer[..]) != is_unix(request) {
        return Err(Errno::INVAL);
    }
    Ok(Some(len))
}

/// Calls `f` with each struct inet_diag_msg, and what follows it, of a listing.
fn each_told(netlink: i32, request: &[u8], mut f: impl FnMut(&[u8])) -> Result<()> {
    /// Messages of a listing at most.
    const MOST: u32 = 64;
    let mut answer = [0u8; 4096];
    say(netlink, request, &mut answer)?;
    for _ in 0..MOST {
        let (len, is_kernel) = receive(netlink, &mut answer)?;
        let mut rest = answer.get(..len).ok_or(Errno::MSGSIZE)?;
        while rest.len() >= 16 {
            let size = word(rest, 0) as usize;
            let message = rest.get(..size).filter(|m| m.len() >= 16).ok_or(Errno::INVAL)?;
            if !is_kernel || message[8..12] != request[8..12] {
                return Err(Errno::INVAL);
            }
            match i32::from(u16::from_ne_bytes([message[4], message[5]])) {
                libc::NLMSG_DONE => return Ok(()),
                libc::NLMSG_ERROR => return Err(Errno::from_raw_os_error(-(word(message, 16) as i32))),
                _ if message.len() >= 16 + 72 => f(&message[16..]),
                _ => return Err(Errno::INVAL),
            }
            rest = rest.get(size.next_multiple_of(4)..).unwrap_or(&[]);
        }
    }
    Err(Errno::MSGSIZE)
}

/// Sends a question. Answers of an earlier, interrupted query may still wait, or those of another user of the socket: a limited number is thrown away, in `room`.
fn say(netlink: i32, request: &[u8], room: &mut [u8]) -> Result<()> {
    for _ in 0..16 {
        if receive(netlink, room).is_err() {
            break;
        }
    }
    // sockaddr_nl of the kernel, whatever the socket is connected to.
    let mut to = [0u8; NAME];
    to[..2].copy_from_slice(&(libc::AF_NETLINK as u16).to_ne_bytes());
    let (at, len) = (request.as_ptr() as usize, request.len());
    let flags = (libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL) as usize;
    // SAFETY: the kernel reads the request and the name, a local.
    check(unsafe {
        syscall(libc::SYS_sendto, [netlink as usize, at, len, flags, to.as_ptr() as usize, NAME])
    })
    .map(drop)
}

/// Octets of struct sockaddr_nl.
const NAME: usize = 12;

/// The kernel answers a sock_diag query before sendto returns, so this does not wait, but for a listing that somebody else who has the socket is just being
/// told. More octets than there is room for: it was longer. Also whether it was the kernel.
fn receive(netlink: i32, buf: &mut [u8]) -> Result<(usize, bool)> {
    let mut from = [0xffu8; NAME];
    let mut len = NAME as u32;
    // SAFETY: the kernel writes into the slice, the name and its length.
    let got = check(unsafe {
        syscall(
            libc::SYS_recvfrom,
            [
                netlink as usize,
                buf.as_mut_ptr() as usize,
                buf.len(),
                (libc::MSG_DONTWAIT | libc::MSG_TRUNC) as usize,
                from.as_mut_ptr() as usize,
                &raw mut len as usize,
            ],
        )
    })?;
    // nl_pid: 0 is the kernel.
    Ok((got, len == NAME as u32 && word(&from, 4) == 0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn finds_the_other_end_by_the_reversed_addresses() {
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let listener = TcpListener::bind(bind).unwrap();
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let local = crate::sock::local_address(client.as_raw_fd()).unwrap();
            let remote = crate::sock::remote_address(client.as_raw_fd()).unwrap();
            let netlink = open(3).unwrap();
            let found = tcp(netlink, &remote, &local).unwrap().expect("the accepted socket");
            let cookie =
                crate::sock::option_u64(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE).unwrap();
            assert_eq!((found.cookie, found.state, found.uid), (cookie, 1, crate::process::euid()));
            assert_ne!(found.inode, 0);
            let (again, there) = tcp_with_info(netlink, &remote, &local).unwrap().expect("the same");
            assert_eq!(again, found);
            let there = there.expect("its counts");
            assert!(TcpInfo::of(client.as_raw_fd()).unwrap().is_mirrored([&there; 2]));
            assert_eq!(is_the_only_one(netlink, &remote, &local, cookie), Ok(true));
            assert_eq!(
                is_the_only_one(netlink, &remote, &local, cookie + 1),
                Ok(false),
                "beside another one"
            );
            let nobody = Address { port: 1, ..local };
            assert_eq!(is_the_only_one(netlink, &remote, &nobody, cookie + 1), Ok(true));
            assert_eq!(tcp(netlink, &remote, &nobody).unwrap(), None, "the listener");
            let nobody = Address { port: 1, ..remote };
            assert_eq!(tcp(netlink, &nobody, &local).unwrap(), None);
            assert_eq!(tcp_with_info(netlink, &nobody, &local).unwrap(), None);
            fd::close(netlink);
        }
    }

    #[test]
    fn one_of_another_family_is_seen_beside_it() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        let (server, _) = listener.accept().unwrap();
        let address = |mine: bool| match mine {
            true => crate::sock::local_address(client.as_raw_fd()).unwrap(),
            false => crate::sock::remote_address(client.as_raw_fd()).unwrap(),
        };
        let cookie = crate::sock::option_u64(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE).unwrap();
        let netlink = open(3).unwrap();
        assert_eq!(is_the_only_one(netlink, &address(false), &address(true), cookie), Ok(true));
        assert_eq!(is_the_only_one(netlink, &address(false), &address(true), 0), Ok(false));
        fd::close(netlink);
    }

    /// A client is connected to it by what it knows.
    #[test]
    fn an_end_that_waits_for_its_first_octets_is_seen() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let seconds = 30i32.to_ne_bytes();
        let deferred = libc::TCP_DEFER_ACCEPT;
        crate::sock::set_option(listener.as_raw_fd(), libc::IPPROTO_TCP, deferred, &seconds).unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let here = crate::sock::local_address(client.as_raw_fd()).unwrap();
        let there = crate::sock::remote_address(client.as_raw_fd()).unwrap();
        let netlink = open(3).unwrap();
        assert!(tcp(netlink, &there, &here).unwrap().is_none_or(|found| found.inode == 0));
        // To whomever is asked about.
        assert_eq!(is_the_only_one(netlink, &there, &here, 1), Ok(false));
        std::io::Write::write_all(&mut client, b"first").unwrap();
        let (server, _) = listener.accept().unwrap();
        let cookie = crate::sock::option_u64(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE).unwrap();
        assert_eq!(is_the_only_one(netlink, &there, &here, cookie), Ok(true));
        fd::close(netlink);
    }

    /// A socket that connects to a port of 127.0.0.1, and is not waited for.
    fn connecting(port: u16) -> std::os::fd::OwnedFd {
        use std::os::fd::FromRawFd;
        let mut to = [0u8; 16];
        to[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        to[2..4].copy_from_slice(&port.to_be_bytes());
        to[4..8].copy_from_slice(&[127, 0, 0, 1]);
        // SAFETY: integers, and an address that outlives the call; the socket is nobody else's.
        unsafe {
            let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_NONBLOCK, 0);
            assert!(fd >= 0);
            assert_eq!(libc::connect(fd, to.as_ptr().cast(), 16), -1);
            std::os::fd::OwnedFd::from_raw_fd(fd)
        }
    }

    #[test]
    fn what_still_connects_is_nobodys_end() {
        use crate::sock::local_address;
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        // SAFETY: integers only.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let remote = local_address(listener.as_raw_fd()).unwrap();
        let netlink = open(3).unwrap();
        // Until the queue has no room, and a SYN is dropped.
        let mut streams = Vec::new();
        let found = loop {
            assert!(streams.len() < 8, "all were taken");
            streams.push(connecting(remote.port));
            let local = local_address(streams[streams.len() - 1].as_raw_fd()).unwrap();
            let found = tcp(netlink, &local, &remote).unwrap().expect("what connects");
            if found.state != 1 {
                break found;
            }
            assert_ne!(found.inode, 0);
        };
        assert_eq!((found.state, found.inode), (2, 0));
        fd::close(netlink);
    }

    #[test]
    fn finds_the_udp_socket_that_gets_what_is_sent() {
        use std::net::UdpSocket;
        for (bind, to) in [
            ("127.0.0.1:0", "127.0.0.1"),
            ("0.0.0.0:0", "127.0.0.1"),
            ("[::]:0", "127.0.0.1"),
            ("[::]:0", "::1"),
        ] {
            let receiver = UdpSocket::bind(bind).unwrap();
            let port = receiver.local_addr().unwrap().port();
            let to = std::net::SocketAddr::new(to.parse().unwrap(), port);
            let sender = UdpSocket::bind(if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).unwrap();
            sender.connect(to).unwrap();
            let source = crate::sock::local_address(sender.as_raw_fd()).unwrap();
            let address = crate::sock::remote_address(sender.as_raw_fd()).unwrap();
            let netlink = open(3).unwrap();
            let cookie =
                crate::sock::option_u64(receiver.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE).unwrap();
            let found = udp(netlink, &source, &address).unwrap().expect("the receiver");
            assert_eq!((found.cookie, found.uid), (cookie, crate::process::euid()), "{bind}, {to}");
            let nobody = Address { port: 1, ..address };
            assert_eq!(udp(netlink, &source, &nobody).unwrap(), None);
            fd::close(netlink);
        }
    }

    #[test]
    fn finds_the_other_end_of_a_unix_stream() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
        let name = format!("bypath-sockdiag-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).unwrap();
        let listener = UnixListener::bind_addr(&address).unwrap();
        let netlink = open(3).unwrap();
        assert_eq!(unix_peer(netlink, listener.as_raw_fd()), Err(Errno::NOTCONN));
        let client = UnixStream::connect_addr(&address).unwrap();
        let queued = unix_peer(netlink, client.as_raw_fd()).unwrap().expect("the socket in the queue");
        assert_eq!(queued.inode, 0);
        let (server, _) = listener.accept().unwrap();
        let found = unix_peer(netlink, client.as_raw_fd()).unwrap().expect("the accepted socket");
        let cookie = crate::sock::option_u64(server.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE).unwrap();
        assert_eq!((found.cookie, found.state, found.uid), (cookie, 1, crate::process::euid()));
        assert_ne!(found.inode, 0);
        let (cookie, uid) = unix_owner(netlink, found.inode).unwrap().expect("the accepted socket");
        assert_eq!((cookie, uid), (found.cookie, found.uid));
        drop(server);
        assert_eq!(unix_peer(netlink, client.as_raw_fd()).map(|f| f.map_or(0, |f| f.inode)), Ok(0));
        fd::close(netlink);
    }

    #[test]
    fn counters_tell_what_was_written_and_received() {
        use std::io::{Read, Write};
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        client.write_all(&[7; 12345]).unwrap();
        let mut buf = [0; 12345];
        server.read_exact(&mut buf).unwrap();
        assert_eq!(crate::sock::tcp_counts(client.as_raw_fd()).unwrap().written, 12345);
        assert_eq!(crate::sock::tcp_counts(server.as_raw_fd()).unwrap().received, 12345);
    }

    #[test]
    fn the_other_end_of_a_pair_is_told_by_name_and_user() {
        use std::os::linux::net::SocketAddrExt;
        use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
        let name = format!("bypath-test-peer-{}\nline", process::pid());
        let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let near = UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let (far, _) = listener.accept().unwrap();
        let netlink = open(3).unwrap();
        let inode = |s: &UnixStream| fd::identity(s.as_raw_fd()).unwrap().1 as u32;
        let there = named_peer(netlink, inode(&near)).unwrap().expect("the accepted one");
        assert_eq!((there.abstract_name(), there.uid), (Some(name.as_bytes()), process::euid()));
        let own = crate::sock::option_u64(near.as_raw_fd(), libc::SOL_SOCKET, libc::SO_COOKIE);
        assert_eq!(own, Ok(there.own_cookie));
        let there = named_peer(netlink, inode(&far)).unwrap().expect("who connected");
        assert_eq!(there.abstract_name(), None);
        fd::close(netlink);
    }
}
