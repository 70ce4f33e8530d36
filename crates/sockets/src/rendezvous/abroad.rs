//! A rendezvous with another network namespace, if both sides ask for it (`--rendezvous`): names are files of a folder that
//! both have, made of the connection's addresses. Nobody sees both ends, so each end shows its own by a sock_diag socket of its
//! namespace, and by a socket that says whose it is. See docs/switch-protocol.md, "Across network namespaces".

use crate::config::OVERFLOW_UID;
use crate::state;
use crate::table::{Sock, flag};
use bypath_shm::reason::Reason;
use bypath_sys::folder::Folder;
use bypath_sys::sock::Address;
use bypath_sys::tcp_info::TcpInfo;
use bypath_sys::{Errno, fd, process, sock, sockdiag, strangers, unix};
use std::sync::atomic::Ordering::*;

/// linux/netlink.h.
const NETLINK_SOCK_DIAG: i32 = 4;
/// Connections whose octets move while they are looked at are looked at again.
const LOOKS: u32 = 4;

/// The folder of `--rendezvous`, if one is named.
fn folder() -> Option<Result<Folder, Reason>> {
    let path = state::config()?.rendezvous.as_bytes();
    if path.is_empty() {
        return None;
    }
    let mut room = [0u8; 257];
    room[..path.len()].copy_from_slice(path);
    let path = std::ffi::CStr::from_bytes_until_nul(&room).ok()?;
    let opened = Folder::open(path, state::floor()).map_err(reason);
    Some(opened.and_then(|folder| {
        if folder.is_safe(process::euid()) { Ok(folder) } else { Err(Reason::RendezvousFolder) }
    }))
}

fn reason(e: Errno) -> Reason {
    match e {
        Errno::MFILE | Errno::NFILE | Errno::INVAL => Reason::NoDescriptors,
        Errno::NOMEM => Reason::NoMemory,
        _ => Reason::RendezvousFolder,
    }
}

/// What the folder is called in messages, 0 = there is none: who says the same was asked for the same.
pub fn folder_name() -> u64 {
    let Some(Ok(folder)) = folder() else { return 0 };
    let (device, inode) = folder.identity();
    let octets = device.to_ne_bytes().into_iter().chain(inode.to_ne_bytes());
    hash(octets) | 1
}

/// Whether the other end, which says this [`folder_name`], may be in other pid, user and mount namespaces.
pub fn is_asked_for(name: u64) -> bool {
    name != 0 && name == folder_name()
}

/// FNV-1a: names need not be secret, only spread.
fn hash(octets: impl Iterator<Item = u8>) -> u64 {
    octets.fold(0xcbf2_9ce4_8422_2325, |h, octet| (h ^ u64::from(octet)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Address and port in one order; an IPv4 address as a mapped one.
type Name = [u8; 18];

fn name(address: &Address) -> Name {
    let mut name = [0; 18];
    if i32::from(address.family) == libc::AF_INET {
        name[10..12].copy_from_slice(&[0xff; 2]);
        name[12..16].copy_from_slice(&address.bytes[..4]);
    } else {
        name[..16].copy_from_slice(&address.bytes);
    }
    name[16..].copy_from_slice(&address.port.to_be_bytes());
    name
}

/// Both names of a connection, the own end's first.
fn names(s: &Sock) -> Option<[Name; 2]> {
    let fd = s.carrier();
    Some([name(&sock::local_address(fd).ok()?), name(&sock::remote_address(fd).ok()?)])
}

fn is_loopback(name: &Name) -> bool {
    let mapped = name[..12] == [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];
    name[..16] == std::net::Ipv6Addr::LOCALHOST.octets() || mapped && name[12] == 127
}

/// `bypath-1-` and what both addresses make, as seen from the end at the first one.
fn file_name(own: &Name, other: &Name) -> [u8; 25] {
    let mut file = *b"bypath-1-0000000000000000";
    let h = hash(own.iter().chain(other).copied());
    for (i, digit) in file[9..].iter_mut().enumerate() {
        *digit = b"0123456789abcdef"[(h >> (60 - 4 * i)) as usize & 15];
    }
    file
}

/// Where the ends of a connection look for each other.
#[derive(Debug)]
pub struct Way {
    folder: Folder,
    own: [u8; 25],
    theirs: [u8; 25],
}

impl Way {
    /// Of a connection whose other end is not in this network namespace.
    ///
    /// # Errors
    /// `PeerRemote`: no folder is named, or the other end's address is one of this namespace alone. Why the folder cannot be used.
    pub fn of(s: &Sock) -> Result<Way, Reason> {
        let folder = folder().ok_or(Reason::PeerRemote)?;
        if s.has(flag::LOCAL) {
            return Err(Reason::PeerRemote);
        }
        let [own, other] = names(s).ok_or(Reason::NotConnected)?;
        if is_loopback(&other) || own[..16] == other[..16] {
            return Err(Reason::PeerRemote);
        }
        Ok(Way { folder: folder?, own: file_name(&own, &other), theirs: file_name(&other, &own) })
    }

    /// A listener with the own name, and the name's inode.
    ///
    /// # Errors
    /// `Squatter`: the name is another user's. Why the folder cannot be used.
    pub fn listen(&self) -> Result<(i32, u64), Reason> {
        match self.folder.listen(&self.own, state::floor()) {
            Err(Errno::ADDRINUSE) => Err(Reason::Squatter),
            other => other.map_err(reason),
        }
    }

    /// Calls the other end; `None`: it is not there, or is another user's.
    ///
    /// # Errors
    /// `Squatter`: somebody else answers. Why the folder cannot be used.
    pub fn dial(&self) -> Result<Option<i32>, Reason> {
        let uid = process::euid();
        match self.folder.connect(&self.theirs, uid, state::floor()) {
            Ok(dialled) => match is_own_user(dialled) {
                Ok(()) => {
                    unix::take_descriptors(dialled, true);
                    Ok(Some(dialled))
                }
                Err(_) => {
                    strangers::close_stranger(dialled);
                    Err(Reason::Squatter)
                }
            },
            Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN) => Ok(None),
            Err(e) => Err(reason(e)),
        }
    }
}

/// The rendezvous is over: its name goes, whose listener is still open. In a child it is the parent's.
pub fn remove_name(s: &Sock) {
    let inode = s.abroad.swap(0, AcqRel);
    if inode != 0
        && let Ok(way) = Way::of(s)
    {
        way.folder.remove(&way.own, inode);
    }
}

/// Of two crossed calls, whether the one of this end counts.
pub fn is_first(s: &Sock) -> bool {
    names(s).is_some_and(|[own, other]| own > other)
}

/// Only the own user counts: what a namespace says of other users nobody can check from outside of it.
///
/// # Errors
/// `PolicyUid`.
pub fn is_own_user(s: i32) -> Result<(), Reason> {
    let own = process::euid();
    match unix::peer_credentials(s) {
        Ok(c) if c.uid == own && own != OVERFLOW_UID => Ok(()),
        _ => Err(Reason::PolicyUid),
    }
}

fn namespace_of(socket: i32) -> Result<u64, Reason> {
    // Before 5.14 there is none.
    sock::network_namespace(socket).map_err(|_| Reason::ForbiddenCall)
}

/// What an end shows of itself. Closed when it was sent.
#[derive(Debug)]
pub struct Shown {
    /// A fresh sock_diag socket, and one that tells whose it is.
    pub sockets: [i32; 2],
    /// Their network namespace (SO_NETNS_COOKIE).
    pub namespace: u64,
}

impl Drop for Shown {
    fn drop(&mut self) {
        self.sockets.into_iter().for_each(fd::close);
    }
}

/// What shows this end to the other one.
///
/// # Errors
/// `PeerRemote`: this process has moved to another namespace than the connection's. No descriptors.
pub fn show(s: &Sock) -> Result<Shown, Reason> {
    let floor = state::floor();
    let namespace = namespace_of(s.carrier())?;
    let diag = sockdiag::open(floor).map_err(super::errno_reason)?;
    let Ok(probe) = unix::unnamed(floor) else {
        fd::close(diag);
        return Err(Reason::NoDescriptors);
    };
    let shown = Shown { sockets: [diag, probe], namespace };
    if namespace_of(diag)? != namespace { Err(Reason::PeerRemote) } else { Ok(shown) }
}

fn is(socket: i32, name: i32, value: i32) -> bool {
    sock::option(socket, libc::SOL_SOCKET, name) == Ok(value)
}

/// Whether the process that has sent these two sockets (of the own user, as the kernel says of who is behind the message) has
/// the other end of the connection, whose cookie and namespace it says.
///
/// # Errors
/// `PeerUnproven`; `ForbiddenCall` where the kernel does not tell (before 5.14).
pub fn verify(s: &Sock, cookie: u64, namespace: u64, [diag, probe]: [i32; 2]) -> Result<(), Reason> {
    let unproven = |_: Errno| Reason::PeerUnproven;
    // Another namespace than ours: of ours nobody need tell.
    let is_diag = is(diag, libc::SO_DOMAIN, libc::AF_NETLINK)
        && is(diag, libc::SO_PROTOCOL, NETLINK_SOCK_DIAG)
        && is(probe, libc::SO_DOMAIN, libc::AF_UNIX);
    if !is_diag
        || namespace_of(diag)? != namespace
        || namespace_of(probe)? != namespace
        || namespace_of(s.carrier())? == namespace
    {
        return Err(Reason::PeerUnproven);
    }
    // The number that the user has there, in whatever user namespace.
    let (_, inode) = fd::identity(probe).map_err(unproven)?;
    let own = sock::option_u64(probe, libc::SOL_SOCKET, libc::SO_COOKIE).map_err(unproven)?;
    let inode = u32::try_from(inode).map_err(|_| Reason::PeerUnproven)?;
    let seen = sockdiag::unix_owner(diag, inode).map_err(unproven)?;
    let (_, uid) = seen.filter(|(cookie, _)| *cookie == own).ok_or(Reason::PeerUnproven)?;
    if fd::owner(probe) != Ok(process::euid()) || uid == OVERFLOW_UID {
        return Err(Reason::PeerUnproven);
    }
    let local = sock::local_address(s.carrier()).map_err(unproven)?;
    let remote = sock::remote_address(s.carrier()).map_err(unproven)?;
    let there = || -> Result<TcpInfo, Reason> {
        let (found, info) =
            sockdiag::tcp_with_info(diag, &remote, &local).map_err(unproven)?.ok_or(Reason::PeerUnproven)?;
        let is_it = found.cookie == cookie && found.inode != 0 && found.uid == uid;
        info.filter(|_| is_it).ok_or(Reason::PeerUnproven)
    };
    for _ in 0..LOOKS {
        let before = there()?;
        let here = TcpInfo::of(s.carrier()).map_err(unproven)?;
        let after = there()?;
        if here.is_mirrored([&before, &after]) {
            return Ok(());
        }
    }
    Err(Reason::PeerUnproven)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> Address {
        let mut bytes = [0; 16];
        let (family, port) = match text.parse().unwrap() {
            std::net::SocketAddr::V4(a) => {
                bytes[..4].copy_from_slice(&a.ip().octets());
                (libc::AF_INET, a.port())
            }
            std::net::SocketAddr::V6(a) => {
                bytes = a.ip().octets();
                (libc::AF_INET6, a.port())
            }
        };
        Address { family: family as u16, port, bytes, scope: 0 }
    }

    #[test]
    fn both_ends_make_the_same_names_of_their_addresses() {
        let [a, b] = ["10.0.0.1:80", "10.0.0.2:4000"].map(|t| name(&address(t)));
        assert_eq!(name(&address("[::ffff:10.0.0.1]:80")), a);
        assert_eq!(file_name(&a, &b), file_name(&a, &b));
        assert_ne!(file_name(&a, &b), file_name(&b, &a));
        let other = name(&address("10.0.0.2:4001"));
        assert_ne!(file_name(&a, &b), file_name(&a, &other));
        assert!(file_name(&a, &b).starts_with(b"bypath-1-"));
    }

    #[test]
    fn loopback_is_nobody_elses() {
        for (text, is) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("10.127.0.1:1", false),
            ("[7f00::1]:1", false),
            ("[fe80::1]:1", false),
        ] {
            assert_eq!(is_loopback(&name(&address(text))), is, "{text}");
        }
    }
}
