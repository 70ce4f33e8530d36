//! Network namespaces, and what stands in a private one: veth pairs, addresses, links that are up. For tests, tools and
//! measurements that need a network of their own, without root where the kernel lets users make namespaces.

use crate::netif::{IFLA_IFNAME, IFLA_MTU, by_name};
use crate::netlink::{Netlink, Request};
use crate::process::proc_path;
use crate::syscall::{check, syscall};
use crate::{Errno, Result};
use std::ffi::CStr;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets `command` start in a user and a network namespace of its own, where it is root. Where users may not make
/// namespaces and the caller is root, it gets a network namespace only. If neither is possible `spawn` fails with EPERM
/// (ENOSPC where there are too many namespaces, EINVAL where the kernel has none).
pub fn isolated(command: &mut Command) -> &mut Command {
    starts_in(command, [libc::CLONE_NEWUSER | libc::CLONE_NEWNET, libc::CLONE_NEWNET])
}

/// As [`isolated`], but a caller who may make one gets a network namespace only: in it he keeps his rights over the whole
/// machine, without which no BPF program is loaded.
pub fn apart(command: &mut Command) -> &mut Command {
    starts_in(command, [libc::CLONE_NEWNET, libc::CLONE_NEWUSER | libc::CLONE_NEWNET])
}

/// In the first of these kinds of namespaces that can be made.
fn starts_in(command: &mut Command, kinds: [i32; 2]) -> &mut Command {
    let (uid, gid) = (crate::process::euid(), egid());
    let maps = [
        (c"/proc/self/setgroups", b"deny".to_vec()),
        (c"/proc/self/uid_map", format!("0 {uid} 1").into_bytes()),
        (c"/proc/self/gid_map", format!("0 {gid} 1").into_bytes()),
    ];
    let enter = move || -> std::io::Result<()> {
        let mut refused = Errno::PERM;
        for kind in kinds {
            match unshare(kind) {
                Ok(()) if kind & libc::CLONE_NEWUSER == 0 => return Ok(()),
                Ok(()) => {
                    return maps.iter().try_for_each(|(path, text)| write_once(path, text)).map_err(as_io);
                }
                // What users and their namespaces may says more than that root is needed.
                Err(e) if kind & libc::CLONE_NEWUSER != 0 => refused = e,
                Err(_) => {}
            }
        }
        Err(as_io(refused))
    };
    // SAFETY: after the fork it makes system calls on memory that was made before, and nothing else.
    unsafe { command.pre_exec(enter) }
}

fn as_io(e: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(e.raw_os_error())
}

fn egid() -> u32 {
    // SAFETY: no arguments.
    unsafe { syscall(libc::SYS_getegid, [0; 6]) as u32 }
}

fn unshare(flags: i32) -> Result<()> {
    // SAFETY: integers only.
    check(unsafe { syscall(libc::SYS_unshare, [flags as usize, 0, 0, 0, 0, 0]) }).map(|_| ())
}

/// Writes a file of /proc, without allocating.
fn write_once(path: &std::ffi::CStr, text: &[u8]) -> Result<()> {
    let flags = (libc::O_WRONLY | libc::O_CLOEXEC) as usize;
    // SAFETY: a NUL-terminated path.
    let fd = check(unsafe {
        syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0])
    })?;
    // SAFETY: write reads the slice.
    let written =
        check(unsafe { syscall(libc::SYS_write, [fd, text.as_ptr() as usize, text.len(), 0, 0, 0]) });
    crate::fd::close(fd as i32);
    written.map(|_| ())
}

/// A network namespace, held by a descriptor: it ends with the last descriptor, thread and socket in it.
pub struct Namespace(OwnedFd);

impl Namespace {
    /// A new, empty one with a loopback interface that is down. The calling thread stays where it is.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN over the current user namespace; ENOSPC; those of a thread that cannot be started.
    pub fn new() -> Result<Namespace> {
        std::thread::scope(|scope| {
            let made = std::thread::Builder::new()
                .spawn_scoped(scope, || unshare(libc::CLONE_NEWNET).and_then(|()| Namespace::current()))
                .map_err(|_| Errno::AGAIN)?;
            made.join().unwrap_or(Err(Errno::IO))
        })
    }

    /// The one of the calling thread.
    ///
    /// # Errors
    /// As open(2) of `/proc/thread-self/ns/net`.
    pub fn current() -> Result<Namespace> {
        Namespace::open(c"/proc/thread-self/ns/net")
    }

    /// The one of a process.
    ///
    /// # Errors
    /// ESRCH if there is none; EACCES if it may not be looked at.
    pub fn of(pid: u32) -> Result<Namespace> {
        let mut path = [0; 32];
        Namespace::open(proc_path(&mut path, pid, b"/ns/net\0").ok_or(Errno::SRCH)?)
    }

    fn open(path: &CStr) -> Result<Namespace> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        // SAFETY: a NUL-terminated path.
        let fd = check(unsafe {
            syscall(libc::SYS_openat, [libc::AT_FDCWD as usize, path.as_ptr() as usize, flags, 0, 0, 0])
        })?;
        // SAFETY: the kernel made this descriptor for us just now.
        Ok(Namespace(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Moves the calling thread into it. Sockets made before stay where they are.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    pub fn enter(&self) -> Result<()> {
        let kind = libc::CLONE_NEWNET as usize;
        // SAFETY: integers only.
        check(unsafe { syscall(libc::SYS_setns, [self.0.as_raw_fd() as usize, kind, 0, 0, 0, 0]) })
            .map(|_| ())
    }

    /// Lets `command` start inside. The namespace stays as long as the command can be started.
    ///
    /// # Errors
    /// EMFILE. `spawn` fails with EPERM without CAP_SYS_ADMIN.
    pub fn start<'c>(&self, command: &'c mut Command) -> Result<&'c mut Command> {
        let held = self.0.try_clone().map_err(|_| Errno::MFILE)?;
        let enter = move || {
            let fd = held.as_raw_fd() as usize;
            // SAFETY: integers only.
            let entered =
                check(unsafe { syscall(libc::SYS_setns, [fd, libc::CLONE_NEWNET as usize, 0, 0, 0, 0]) });
            entered.map(|_| ()).map_err(as_io)
        };
        // SAFETY: after the fork it makes one system call, and nothing else.
        Ok(unsafe { command.pre_exec(enter) })
    }

    /// Runs `f` inside, on a thread of its own, and returns what it returns.
    ///
    /// # Errors
    /// Those of [`enter`](Namespace::enter), and of a thread that cannot be started; EIO if `f` panics.
    pub fn run<R: Send>(&self, f: impl FnOnce() -> R + Send) -> Result<R> {
        std::thread::scope(|scope| {
            let inside = std::thread::Builder::new()
                .spawn_scoped(scope, || self.enter().map(|()| f()))
                .map_err(|_| Errno::AGAIN)?;
            inside.join().unwrap_or(Err(Errno::IO))
        })
    }
}

/// `struct ifinfomsg` that sets and clears flags of the interface `index`.
fn info(index: u32, flags: u32, change: u32) -> [u8; 16] {
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    fixed[8..12].copy_from_slice(&flags.to_ne_bytes());
    fixed[12..16].copy_from_slice(&change.to_ne_bytes());
    fixed
}

fn with_nul(name: &str) -> Vec<u8> {
    let mut value = name.as_bytes().to_vec();
    value.push(0);
    value
}

// linux/if_link.h and linux/veth.h
const IFLA_LINKINFO: u16 = 18;
const IFLA_INFO_KIND: u16 = 1;
const IFLA_INFO_DATA: u16 = 2;
const IFLA_NET_NS_FD: u16 = 28;
const VETH_INFO_PEER: u16 = 1;

/// Makes two interfaces, `a` and `b`, each of which receives what the other one sends. Both are down. `b` is put into
/// `namespace` if one is given.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN; EEXIST; EOPNOTSUPP without veth in the kernel.
pub fn veth(a: &str, b: &str, namespace: Option<&Namespace>) -> Result<()> {
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let request = Request::new(libc::RTM_NEWLINK, flags, &info(0, 0, 0))
        .attribute(IFLA_IFNAME, &with_nul(a))
        .nested(IFLA_LINKINFO, |r| {
            r.attribute(IFLA_INFO_KIND, b"veth").nested(IFLA_INFO_DATA, |r| {
                r.nested(VETH_INFO_PEER, |r| {
                    let r = r.fixed(&info(0, 0, 0)).attribute(IFLA_IFNAME, &with_nul(b));
                    match namespace {
                        Some(n) => r.attribute(IFLA_NET_NS_FD, &n.0.as_raw_fd().to_ne_bytes()),
                        None => r,
                    }
                })
            })
        });
    Netlink::open()?.change(request)
}

/// Makes a bridge, which is up, between these interfaces: each receives what the others send.
///
/// # Errors
/// ENODEV; EPERM without CAP_NET_ADMIN; EEXIST; EOPNOTSUPP without bridges in the kernel; EBUSY for one that is in another bridge.
pub fn bridge(name: &str, members: &[&str]) -> Result<()> {
    const IFLA_MASTER: u16 = 10;
    let flags = libc::NLM_F_CREATE | libc::NLM_F_EXCL;
    let request = Request::new(libc::RTM_NEWLINK, flags, &info(0, 0, 0))
        .attribute(IFLA_IFNAME, &with_nul(name))
        .nested(IFLA_LINKINFO, |r| r.attribute(IFLA_INFO_KIND, b"bridge"));
    let netlink = Netlink::open()?;
    netlink.change(request)?;
    let bridge = by_name(name)?.index.to_ne_bytes();
    for member in members {
        let fixed = info(by_name(member)?.index, 0, 0);
        netlink.change(Request::new(libc::RTM_NEWLINK, 0, &fixed).attribute(IFLA_MASTER, &bridge))?;
    }
    set_up(name, true)
}

/// Switches an interface on or off.
///
/// # Errors
/// ENODEV; EPERM without CAP_NET_ADMIN.
pub fn set_up(name: &str, up: bool) -> Result<()> {
    let flag = libc::IFF_UP as u32;
    let fixed = info(by_name(name)?.index, if up { flag } else { 0 }, flag);
    Netlink::open()?.change(Request::new(libc::RTM_NEWLINK, 0, &fixed))
}

/// Sets the largest payload of an interface's frames.
///
/// # Errors
/// ENODEV; EPERM without CAP_NET_ADMIN; EINVAL beyond what the device carries.
pub fn set_mtu(name: &str, mtu: u32) -> Result<()> {
    let fixed = info(by_name(name)?.index, 0, 0);
    Netlink::open()?
        .change(Request::new(libc::RTM_NEWLINK, 0, &fixed).attribute(IFLA_MTU, &mtu.to_ne_bytes()))
}

/// Removes an interface; of a veth pair both go.
///
/// # Errors
/// ENODEV; EPERM without CAP_NET_ADMIN; EOPNOTSUPP for one that cannot be removed (lo, a real device).
pub fn remove(name: &str) -> Result<()> {
    let fixed = info(by_name(name)?.index, 0, 0);
    Netlink::open()?.change(Request::new(libc::RTM_DELLINK, 0, &fixed))
}

/// Gives an interface an address and the route to its network. IPv6 addresses are usable at once: duplicate address
/// detection is left out.
///
/// # Errors
/// ENODEV; EPERM without CAP_NET_ADMIN; EEXIST; EINVAL for a prefix that is too long.
pub fn add_address(name: &str, address: IpAddr, prefix: u8) -> Result<()> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const IFA_F_NODAD: u8 = 2;
    const RTM_NEWADDR: u16 = 20;
    let (family, flags, octets) = match address {
        IpAddr::V4(a) => (libc::AF_INET, 0, a.octets().to_vec()),
        IpAddr::V6(a) => (libc::AF_INET6, IFA_F_NODAD, a.octets().to_vec()),
    };
    // struct ifaddrmsg: family, prefix length, flags, scope, index.
    let mut fixed = [family as u8, prefix, flags, 0, 0, 0, 0, 0];
    fixed[4..].copy_from_slice(&by_name(name)?.index.to_ne_bytes());
    let request = Request::new(RTM_NEWADDR, libc::NLM_F_CREATE | libc::NLM_F_EXCL, &fixed)
        .attribute(IFA_LOCAL, &octets)
        .attribute(IFA_ADDRESS, &octets);
    Netlink::open()?.change(request)
}

/// Waits until the kernel uses the IPv6 addresses of an interface that is up: it begins a moment after they were added, and
/// until then throws away what comes to them.
///
/// # Errors
/// ENODEV; ETIMEDOUT after `patience_ns`; EADDRINUSE where another host has one.
pub fn settle_addresses(name: &str, patience_ns: u64) -> Result<()> {
    const RTM_NEWADDR: u16 = 20;
    const RTM_GETADDR: u16 = 22;
    const IFA_F_DADFAILED: u8 = 0x08;
    const IFA_F_TENTATIVE: u8 = 0x40;
    /// The kernel tells a change to those who listen, but not what was already so: looking again is simpler.
    const PAUSE_NS: u64 = 200_000;
    let index = by_name(name)?.index;
    let netlink = Netlink::open()?;
    let end = crate::clock::monotonic_ns() + patience_ns;
    loop {
        let mut flags = 0;
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let request =
            Request::new(RTM_GETADDR, libc::NLM_F_DUMP, &[libc::AF_INET6 as u8, 0, 0, 0, 0, 0, 0, 0]);
        let asked = netlink.ask(request, &mut |kind, body| {
            if kind == RTM_NEWADDR && body.get(4..8) == Some(&index.to_ne_bytes()[..]) {
                flags |= body[2];
            }
        });
        match asked {
            Ok(()) if flags & IFA_F_DADFAILED != 0 => return Err(Errno::ADDRINUSE),
            Ok(()) if flags & IFA_F_TENTATIVE == 0 => return Ok(()),
            // It changed while it was listed.
            Ok(()) | Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
        if crate::clock::monotonic_ns() > end {
            return Err(Errno::TIMEDOUT);
        }
        let _ = crate::poll::ppoll(&mut [], Some(PAUSE_NS), 0);
    }
}
