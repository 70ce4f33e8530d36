//! Interfaces and their addresses, for a program all of whose sockets but those of loopback are a netstack service's: the stack's,
//! beside the kernel's loopback. What else the kernel has is not listed, but can be asked about: programs that ask by netlink see it.
//!
//! These functions allocate, as those of the C library do, in one piece, which `freeifaddrs` gives back; the requests of ioctl do not.

use crate::errno::{fail, kept};
use crate::memory;
use crate::real::hook;
use bypath_sockets::hook::interfaces::{Address, Interface, each};
use bypath_sockets::hook::{self, SocketName, served};
use bypath_sys::sock;
use libc::{c_char, c_int, c_uint, c_ulong, ifaddrs, sockaddr, sockaddr_in};
use std::mem::{offset_of, zeroed};
use std::net::{IpAddr, SocketAddr};

hook! {
    /// `getifaddrs()`.
    fn getifaddrs(out: *mut *mut ifaddrs) -> c_int, raw None; only hook::serves(); {
        if memory::writable(out, 1) && let Some(own) = own_interfaces() {
            return list(out, &own, real);
        }
        real(out)
    }

    /// `if_nametoindex()`.
    fn if_nametoindex(name: *const c_char) -> c_uint, raw None; only hook::serves(); {
        let Some(name) = name_at(name as usize) else { return real(name) };
        match find(|interface| interface.name == name) {
            Some(Some(interface)) => interface.index,
            _ => real(name.as_ptr().cast()),
        }
    }

    /// `if_indextoname()`.
    fn if_indextoname(index: c_uint, name: *mut c_char) -> *mut c_char, raw None; only hook::serves(); {
        match find(|interface| interface.index == index) {
            Some(Some(interface)) if memory::write(name.cast(), interface.name) => name,
            Some(Some(_)) => fail(libc::EFAULT),
            _ => real(index, name),
        }
    }

    /// `if_nameindex()`.
    fn if_nameindex() -> *mut libc::if_nameindex, raw None; only hook::serves(); {
        match own_interfaces() {
            Some(own) => names(&own, real),
            None => real(),
        }
    }
}

/// An interface's name, as the C library and the kernel have it.
type Name = [u8; 16];
/// An interface, and its addresses.
type Own = (Interface, Vec<Address>);

/// The name at an address, up to its zero; `None`: it is none.
fn name_at(at: usize) -> Option<Name> {
    let mut name: Name = [0; 16];
    for (n, octet) in name.iter_mut().enumerate() {
        *octet = memory::read((at + n) as *const u8)?;
        if *octet == 0 {
            return Some(name);
        }
    }
    None
}

/// Whether the kernel has an interface of this name that is its loopback.
fn is_loopback(name: &Name) -> bool {
    name.starts_with(b"lo\0")
}

/// The stack's interface for which this holds; `None`: the kernel is to be asked.
fn find(mut is_it: impl FnMut(&Interface) -> bool) -> Option<Option<Interface>> {
    let mut found = None;
    let asked = kept(|| {
        each(|interface, _| {
            if is_it(interface) {
                found = Some(*interface);
            }
            found.is_some()
        })
    });
    asked.is_ok().then_some(found)
}

fn own_interfaces() -> Option<Vec<Own>> {
    let mut all: Vec<Own> = Vec::new();
    let asked = kept(|| {
        each(|interface, address| {
            match address {
                None => all.push((*interface, Vec::new())),
                Some(address) => all.last_mut().into_iter().for_each(|(_, held)| held.push(address)),
            }
            false
        })
    });
    asked.ok().map(|()| all)
}

/// Longest address that is told: that of a packet socket.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Room([u8; 32]);

/// An element of the list, with all that it points at. The counters of the kernel's elements (`struct rtnl_link_stats`) are zero.
#[repr(C)]
#[derive(Clone, Copy)]
struct Node {
    element: ifaddrs,
    name: Name,
    address: Room,
    mask: Room,
    other: Room,
    counters: [u32; 24],
}

fn room(octets: &[u8]) -> Room {
    let mut room = Room([0; 32]);
    let len = octets.len().min(room.0.len());
    room.0[..len].copy_from_slice(&octets[..len]);
    room
}

fn sockaddr_of(address: SocketAddr) -> Room {
    let family = if address.is_ipv4() { libc::AF_INET } else { libc::AF_INET6 };
    room(SocketName::new(address, family).as_bytes())
}

/// The first so many bits of an address like this one, or its last host.
fn of_network(like: SocketAddr, len: u32, host: bool) -> SocketAddr {
    let ip = match like.ip() {
        IpAddr::V4(ip) => {
            let mask = u32::MAX.checked_shl(32 - len.min(32)).unwrap_or(0);
            IpAddr::V4((if host { u32::from(ip) | !mask } else { mask }).into())
        }
        IpAddr::V6(_) => IpAddr::V6(u128::MAX.checked_shl(128 - len.min(128)).unwrap_or(0).into()),
    };
    SocketAddr::new(ip, 0)
}

impl Node {
    /// What it points at is told by [`link`], once it stands where it stays.
    fn new(interface: &Interface) -> Node {
        // SAFETY: zeroes are a valid value of each field.
        let mut node: Node = unsafe { zeroed() };
        node.element.ifa_flags = interface.flags;
        node.name = interface.name;
        node
    }

    fn of_packets(interface: &Interface) -> Node {
        let mut node = Node::new(interface);
        let link = |mac: [u8; 6]| {
            // struct sockaddr_ll.
            let mut octets = [0; 20];
            octets[..2].copy_from_slice(&(libc::AF_PACKET as u16).to_ne_bytes());
            octets[4..8].copy_from_slice(&interface.index.to_ne_bytes());
            octets[8..10].copy_from_slice(&interface.kind.to_ne_bytes());
            octets[11] = if interface.kind == libc::ARPHRD_ETHER { 6 } else { 0 };
            octets[12..18].copy_from_slice(&mac);
            room(&octets)
        };
        (node.address, node.other) = (link(interface.mac), link([0xff; 6]));
        node
    }

    fn of_address(interface: &Interface, (address, len): Address) -> Node {
        let mut node = Node::new(interface);
        node.address = sockaddr_of(address);
        node.mask = sockaddr_of(of_network(address, len, false));
        if address.is_ipv4() {
            node.other = sockaddr_of(of_network(address, len, true));
        }
        node
    }
}

/// The kernel's list of its loopback interface, then the stack's, in one piece of memory.
fn list(out: *mut *mut ifaddrs, own: &[Own], real: fn(*mut *mut ifaddrs) -> c_int) -> c_int {
    let mut kernels = std::ptr::null_mut();
    let ret = real(&raw mut kernels);
    if ret != 0 {
        return ret;
    }
    let mut nodes = Vec::new();
    let mut at = kernels;
    while let Some(element) = memory::read(at) {
        if element.ifa_flags & libc::IFF_LOOPBACK as c_uint != 0
            && let Some(name) = name_at(element.ifa_name as usize)
        {
            let copy = |from: *const sockaddr| memory::read(from.cast::<Room>()).unwrap_or(Room([0; 32]));
            let mut node = Node::new(&Interface { name, flags: element.ifa_flags, ..Interface::default() });
            (node.address, node.mask) = (copy(element.ifa_addr), copy(element.ifa_netmask));
            nodes.push(node);
        }
        at = element.ifa_next;
    }
    // SAFETY: the list that the real function has made just now.
    unsafe { libc::freeifaddrs(kernels) };
    nodes.extend(own.iter().map(|(interface, _)| Node::of_packets(interface)));
    let held =
        own.iter().flat_map(|(interface, held)| held.iter().map(move |a| Node::of_address(interface, *a)));
    nodes.extend(held);
    let Some(first) = piece(&nodes) else { return fail(libc::ENOMEM) };
    (0..nodes.len()).for_each(|n| link(first, n, nodes.len()));
    memory::write(out, first.cast());
    0
}

/// A copy in memory that `free` gives back; NULL for nothing.
fn piece<T: Copy>(all: &[T]) -> Option<*mut T> {
    if all.is_empty() {
        return Some(std::ptr::null_mut());
    }
    // SAFETY: a size; the program frees it.
    let to = unsafe { libc::malloc(size_of_val(all)) }.cast::<T>();
    if to.is_null() {
        return None;
    }
    // SAFETY: so many octets were allocated just now, and malloc's memory is aligned for any C type.
    unsafe { std::ptr::copy_nonoverlapping(all.as_ptr(), to, all.len()) };
    Some(to)
}

/// Has the n-th node point at what it has, and at the next one.
fn link(first: *mut Node, n: usize, len: usize) {
    let at = first.wrapping_add(n);
    let part = |offset: usize| at.cast::<u8>().wrapping_add(offset);
    let Some(mut node) = memory::read(at) else { return };
    let known = |room: &Room, offset: usize| -> *mut sockaddr {
        if room.0[..2] == [0; 2] { std::ptr::null_mut() } else { part(offset).cast() }
    };
    node.element.ifa_next = if n + 1 < len { at.wrapping_add(1).cast() } else { std::ptr::null_mut() };
    node.element.ifa_name = part(offset_of!(Node, name)).cast();
    node.element.ifa_addr = known(&node.address, offset_of!(Node, address));
    node.element.ifa_netmask = known(&node.mask, offset_of!(Node, mask));
    node.element.ifa_ifu = known(&node.other, offset_of!(Node, other));
    if node.address.0[..2] == (libc::AF_PACKET as u16).to_ne_bytes() {
        node.element.ifa_data = part(offset_of!(Node, counters)).cast();
    }
    memory::write(at, node);
}

/// The list of names: each one a piece of its own, as `if_freenameindex` gives them back.
fn names(own: &[Own], real: fn() -> *mut libc::if_nameindex) -> *mut libc::if_nameindex {
    let kernels = real();
    let mut all: Vec<(c_uint, Name)> = Vec::new();
    let mut at = kernels;
    while let Some(known) = memory::read(at).filter(|known| known.if_index != 0) {
        all.extend(name_at(known.if_name as usize).filter(is_loopback).map(|name| (known.if_index, name)));
        at = at.wrapping_add(1);
    }
    if kernels.is_null() {
        return kernels;
    }
    // SAFETY: the list that the real function has made just now.
    unsafe { libc::if_freenameindex(kernels) };
    all.extend(own.iter().map(|(interface, _)| (interface.index, interface.name)));
    let mut list: Vec<libc::if_nameindex> = Vec::new();
    for (if_index, name) in all {
        let Some(name) = piece(&name) else { break };
        list.push(libc::if_nameindex { if_index, if_name: name.cast() });
    }
    list.push(libc::if_nameindex { if_index: 0, if_name: std::ptr::null_mut() });
    piece(&list).unwrap_or_else(|| fail(libc::ENOBUFS))
}

/// linux/sockios.h: from SIOCGIFNAME to SIOCGIFTXQLEN, what of an interface is told.
const SIOCGIFNAME: c_ulong = 0x8910;
const SIOCGIFCONF: c_ulong = 0x8912;
const SIOCGIFFLAGS: c_ulong = 0x8913;
const SIOCGIFADDR: c_ulong = 0x8915;
const SIOCGIFDSTADDR: c_ulong = 0x8917;
const SIOCGIFBRDADDR: c_ulong = 0x8919;
const SIOCGIFNETMASK: c_ulong = 0x891b;
const SIOCGIFMETRIC: c_ulong = 0x891d;
const SIOCGIFMTU: c_ulong = 0x8921;
const SIOCGIFHWADDR: c_ulong = 0x8927;
const SIOCGIFINDEX: c_ulong = 0x8933;
const SIOCGIFTXQLEN: c_ulong = 0x8942;
const ASKED_FOR: [c_ulong; 12] = [
    SIOCGIFNAME,
    SIOCGIFCONF,
    SIOCGIFFLAGS,
    SIOCGIFADDR,
    SIOCGIFDSTADDR,
    SIOCGIFBRDADDR,
    SIOCGIFNETMASK,
    SIOCGIFMETRIC,
    SIOCGIFMTU,
    SIOCGIFHWADDR,
    SIOCGIFINDEX,
    SIOCGIFTXQLEN,
];

/// Whether an ioctl asks about interfaces.
#[inline]
pub(crate) fn is_asked_for(request: c_ulong) -> bool {
    ASKED_FOR.contains(&c_ulong::from(request as u32))
}

/// `struct ifreq`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Request {
    name: Name,
    value: [u8; 24],
}

impl Request {
    fn put(&mut self, octets: &[u8]) {
        self.value = [0; 24];
        self.value[..octets.len()].copy_from_slice(octets);
    }
}

/// `struct ifconf`.
#[repr(C)]
#[derive(Clone, Copy)]
struct All {
    len: c_int,
    at: *mut Request,
}

/// Carries out such an ioctl; `None`: it is none, or the kernel's.
pub(crate) fn control(
    fd: c_int,
    request: c_ulong,
    arg: usize,
    real: fn(c_int, c_ulong, usize) -> c_int,
) -> Option<c_int> {
    let request = c_ulong::from(request as u32);
    if !is_asked_for(request) {
        return None;
    }
    // What is no socket says so itself, and that addresses are those of IPv4.
    let mut domain = [0; 4];
    let told = kept(|| served::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, &mut domain));
    let domain = match told {
        Some(told) => told.ok().map(|_| c_int::from_ne_bytes(domain)),
        None => sock::option(fd, libc::SOL_SOCKET, libc::SO_DOMAIN).ok(),
    }?;
    let of_addresses = [SIOCGIFADDR, SIOCGIFDSTADDR, SIOCGIFBRDADDR, SIOCGIFNETMASK];
    if domain != libc::AF_INET && of_addresses.contains(&request) {
        return None;
    }
    if request == SIOCGIFCONF {
        return every(fd, arg as *mut All, real);
    }
    let at = arg as *mut Request;
    let mut asked = memory::read(at)?;
    asked.name[15] = 0;
    let asked_index = u32::from_ne_bytes([asked.value[0], asked.value[1], asked.value[2], asked.value[3]]);
    let by_index = request == SIOCGIFNAME;
    if !by_index && is_loopback(&asked.name) {
        return None;
    }
    let mut known: Option<Interface> = None;
    let mut held: Option<Address> = None;
    let told = kept(|| {
        each(|interface, address| {
            let is_it = match by_index {
                true => interface.index == asked_index,
                false => plain(&interface.name) == plain(&asked.name),
            };
            if is_it {
                known = Some(*interface);
                held = held.or(address.filter(|(address, _)| address.is_ipv4()));
            }
            false
        })
    });
    told.ok()?;
    // The kernel's can be asked about all the same: who lists them by netlink has their numbers.
    let interface = known?;
    let network = |host| held.map(|(address, len)| of_network(address, len, host));
    let address = match request {
        SIOCGIFADDR | SIOCGIFDSTADDR => Some(held.map(|(address, _)| address)),
        SIOCGIFBRDADDR => Some(network(true)),
        SIOCGIFNETMASK => Some(network(false)),
        _ => None,
    };
    match (request, address) {
        (_, Some(None)) => return Some(fail(libc::EADDRNOTAVAIL)),
        (_, Some(Some(address))) => asked.put(&sockaddr_of(address).0[..size_of::<sockaddr_in>()]),
        (SIOCGIFNAME, _) => asked.name = interface.name,
        (SIOCGIFFLAGS, _) => asked.put(&(interface.flags as u16).to_ne_bytes()),
        (SIOCGIFMTU, _) => asked.put(&interface.mtu.to_ne_bytes()),
        (SIOCGIFINDEX, _) => asked.put(&interface.index.to_ne_bytes()),
        (SIOCGIFTXQLEN, _) => asked.put(&1000i32.to_ne_bytes()),
        (SIOCGIFHWADDR, _) => {
            asked.put(&interface.kind.to_ne_bytes());
            asked.value[2..8].copy_from_slice(&interface.mac);
        }
        _ => asked.put(&[0; 4]),
    }
    memory::write(at, asked);
    Some(0)
}

/// A name without what an alias has behind it, and a colon before that.
fn plain(name: &Name) -> Option<&[u8]> {
    name.split(|octet| matches!(octet, 0 | b':')).next()
}

/// SIOCGIFCONF: one element for each IPv4 address; without room, how many octets it takes.
fn every(fd: c_int, at: *mut All, real: fn(c_int, c_ulong, usize) -> c_int) -> Option<c_int> {
    let mut all = memory::read(at)?;
    // The kernel's loopback, as far as this socket is told of it: only those of IPv4 are told addresses.
    let mut loopback = Request { name: *b"lo\0\0\0\0\0\0\0\0\0\0\0\0\0\0", value: [0; 24] };
    let mut has_loopback = kept(|| real(fd, SIOCGIFADDR, &raw mut loopback as usize)) == 0;
    if !has_loopback && kept(|| real(fd, SIOCGIFFLAGS, &raw mut loopback as usize)) == 0 {
        has_loopback = loopback.value[0] & libc::IFF_UP as u8 != 0;
        loopback.put(&sockaddr_of(SocketAddr::from(([127, 0, 0, 1], 0))).0[..size_of::<sockaddr_in>()]);
    }
    let room = if all.at.is_null() {
        usize::MAX
    } else {
        usize::try_from(all.len).unwrap_or(0) / size_of::<Request>()
    };
    let (mut count, mut written) = (0, true);
    let mut put = |one: Request| {
        if count < room {
            written &= all.at.is_null() || memory::write(all.at.wrapping_add(count), one);
            count += 1;
        }
    };
    if has_loopback {
        put(loopback);
    }
    let told = kept(|| {
        each(|interface, address| {
            if let Some((address, _)) = address.filter(|(address, _)| address.is_ipv4()) {
                let mut one = Request { name: interface.name, value: [0; 24] };
                one.put(&sockaddr_of(address).0[..size_of::<sockaddr_in>()]);
                put(one);
            }
            false
        })
    });
    told.ok()?;
    if !written {
        return Some(fail(libc::EFAULT));
    }
    all.len = (count * size_of::<Request>()) as c_int;
    memory::write(at, all);
    Some(0)
}
