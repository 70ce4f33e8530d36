//! Calls that move datagrams of a netstack service (docs/netstack-service.md): records of a pair of SEQPACKET, whose header is in front of
//! the program's buffers and whose control messages are made here.

use crate::child::borrowed_memory;
use crate::errno::{self, fail, kept};
use crate::memory;
use crate::served::{header, message};
use bypath_sockets::hook::mail::Step;
use bypath_sockets::hook::record::{Failure, HEADER, Header, Kind, MAGIC, tell};
use bypath_sockets::hook::{self, Address, SocketName, datagram, datagrams};
use bypath_sys::Errno;
use bypath_sys::user::IoVec;
use libc::{c_int, cmsghdr, iovec, msghdr, sockaddr, socklen_t};

/// Longest socket address that the kernel takes.
pub(crate) const MAX_ADDRESS: usize = 128;
/// Elements of a list beside the header's that need no memory but the stack's.
const FEW: usize = 31;
/// UIO_MAXIOV.
const MAX_IOV: usize = 1024;
/// Errors without one that a call passes over: another thread may have been told of some. A service that lies has no end of them.
const MOST_ERRORS: u32 = 1024;
/// Octets of a control message's header.
const CMSG: usize = size_of::<cmsghdr>();

/// Whether `fd` is a socket of datagrams that is a service's or may become one.
#[inline]
pub(crate) fn concerns(fd: c_int) -> bool {
    hook::serves() && datagram::of(fd).is_some()
}

/// What a call says beside the octets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    /// An address, or room for one.
    pub(crate) name: usize,
    pub(crate) name_len: usize,
    /// Control messages, or room for them.
    pub(crate) control: usize,
    pub(crate) control_len: usize,
}

impl Beside {
    /// Of a message's header. The kernel cuts a header's address length instead of refusing it, unless it is negative.
    pub(crate) fn of(m: &msghdr) -> Beside {
        let name_len = m.msg_namelen as usize;
        Beside {
            name: m.msg_name as usize,
            name_len: if (m.msg_namelen as c_int) < 0 { name_len } else { name_len.min(MAX_ADDRESS) },
            control: m.msg_control as usize,
            control_len: m.msg_controllen,
        }
    }

    /// The same of a message that is sent: an address of no octets in a header is none.
    pub(crate) fn sent(m: &msghdr) -> Beside {
        let beside = Beside::of(m);
        Beside { name: if beside.name_len == 0 { 0 } else { beside.name }, ..beside }
    }

    /// Of an address alone.
    pub(crate) fn address(at: *const sockaddr, len: socklen_t) -> Beside {
        Beside { name: at as usize, name_len: len as usize, ..Beside::default() }
    }
}

/// Calls `f` with the header's element and the program's list behind it.
fn with_list<R>(head: *mut u8, iov: &[IoVec], f: impl FnOnce(&[IoVec]) -> R) -> Option<R> {
    let first = IoVec { base: head as usize, len: HEADER };
    let iov = &iov[..iov.len().min(MAX_IOV - 1)];
    if iov.len() <= FEW {
        let mut list = [IoVec { base: 0, len: 0 }; FEW + 1];
        list[0] = first;
        list[1..=iov.len()].copy_from_slice(iov);
        return Some(f(&list[..=iov.len()]));
    }
    let mut scratch = hook::scratch((iov.len() + 1) * size_of::<IoVec>(), head as usize)?;
    let list = scratch.values::<IoVec>(iov.len() + 1);
    list[0] = first;
    list[1..].copy_from_slice(iov);
    Some(f(list))
}

fn octets(iov: &[IoVec]) -> usize {
    iov.iter().fold(0, |sum, v| sum.saturating_add(v.len))
}

/// Any call that sends a datagram; `None`: the real one.
#[cold]
#[inline(never)]
pub(crate) fn send(fd: c_int, iov: &[IoVec], beside: Beside, flags: c_int) -> Option<isize> {
    if borrowed_memory() {
        return None;
    }
    let mut room = [0u8; MAX_ADDRESS];
    let mut raw = None;
    if beside.name != 0 {
        let given = memory::slice(beside.name as *const u8, beside.name_len.min(MAX_ADDRESS));
        let Some(given) = given.filter(|_| beside.name_len <= MAX_ADDRESS) else {
            return datagrams::is_served(fd)
                .then(|| fail(if beside.name_len > MAX_ADDRESS { libc::EINVAL } else { libc::EFAULT }));
        };
        room[..given.len()].copy_from_slice(given);
        raw = Some(&room[..given.len()]);
    }
    let len = octets(iov);
    let mut header = match kept(|| datagrams::sending(fd, raw, len))? {
        Ok(header) => header,
        Err(e) => return Some(fail(e.raw_os_error())),
    };
    if flags & libc::MSG_OOB != 0 {
        return Some(fail(libc::EOPNOTSUPP));
    }
    if let Err(e) = said(&mut header, &beside) {
        return Some(fail(e));
    }
    let r = datagram::of(fd);
    if kept(|| r.is_some_and(|r| r.push(fd, &header, crate::io::user(iov), len))) {
        return Some(len as isize);
    }
    let mut head = header.encode();
    let how = flags & libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    let sent = with_list(head.as_mut_ptr(), iov, |list| {
        let mut m = self::header(list.as_ptr().cast::<iovec>(), list.len());
        // SAFETY: the program's own list, and a header of ours.
        unsafe { message::<{ crate::real::index("sendmsg") }>(fd, &raw mut m, how) }
    });
    Some(match sent {
        None => fail(libc::ENOMEM),
        Some(n) if n < 0 => {
            let e = Errno::from_raw_os_error(errno::get());
            let told = kept(|| datagram::of(fd).map_or(e, |r| r.send_failed(fd, e)));
            fail(told.raw_os_error())
        }
        Some(n) => {
            if let Some(r) = r {
                kept(|| r.went_by_pair(n as usize - HEADER));
            }
            n - HEADER as isize
        }
    })
}

fn number(at: usize, len: usize) -> Result<u32, c_int> {
    if len < size_of::<c_int>() {
        return Err(libc::EINVAL);
    }
    memory::read(at as *const u32).ok_or(libc::EFAULT)
}

/// The program's control messages into the header. Others than these are passed over.
fn said(header: &mut Header, beside: &Beside) -> Result<(), c_int> {
    let (start, all) = (beside.control, beside.control_len);
    if start == 0 || all < CMSG {
        return Ok(());
    }
    let mut at = 0;
    while all.saturating_sub(at) >= CMSG {
        let m = memory::read((start + at) as *const cmsghdr).ok_or(libc::EFAULT)?;
        if m.cmsg_len < CMSG || m.cmsg_len > all - at {
            return Err(libc::EINVAL);
        }
        let (data, len) = (start + at + CMSG, m.cmsg_len - CMSG);
        match (m.cmsg_level, m.cmsg_type) {
            (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                // struct in_pktinfo: the interface, the address to send from, and another one.
                header.interface = number(data, len)?;
                let from =
                    memory::read((data + 4) as *const [u8; 4]).filter(|_| len >= 12).ok_or(libc::EINVAL)?;
                header.local = Address(Some((std::net::Ipv4Addr::from(from), 0).into()));
                header.tells |= tell::INFO;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                let from = memory::read(data as *const [u8; 16]).filter(|_| len >= 20).ok_or(libc::EINVAL)?;
                header.local = Address(Some((std::net::Ipv6Addr::from(from), 0).into()));
                header.interface = number(data + 16, len - 16)?;
                header.tells |= tell::INFO_V6;
            }
            (libc::IPPROTO_IP, libc::IP_TTL) => {
                header.hops = number(data, len)?;
                if !(1..=255).contains(&header.hops) {
                    return Err(libc::EINVAL);
                }
                header.tells |= tell::HOPS;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                let hops = number(data, len)? as i32;
                if !(-1..=255).contains(&hops) {
                    return Err(libc::EINVAL);
                }
                if hops >= 0 {
                    header.hops = hops as u32;
                    header.tells |= tell::HOPS_V6;
                }
            }
            (libc::IPPROTO_IP, libc::IP_TOS) => {
                header.class = match len {
                    0 => return Err(libc::EINVAL),
                    1..4 => memory::read(data as *const u8).ok_or(libc::EFAULT)?.into(),
                    _ => number(data, len)? & 255,
                };
                header.tells |= tell::CLASS;
            }
            (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                let class = number(data, len)? as i32;
                if !(-1..=255).contains(&class) {
                    return Err(libc::EINVAL);
                }
                if class >= 0 {
                    header.class = class as u32;
                    header.tells |= tell::CLASS_V6;
                }
            }
            (libc::IPPROTO_UDP, libc::UDP_SEGMENT) => {
                let size = memory::read(data as *const u16).filter(|_| len >= 2).ok_or(libc::EINVAL)?;
                header.segment = size.into();
                header.tells |= tell::SEGMENT;
            }
            _ => {}
        }
        at += m.cmsg_len.next_multiple_of(size_of::<usize>());
    }
    Ok(())
}

/// What a receive has beside its octets.
#[derive(Debug)]
pub(crate) struct Came {
    /// What the call returns.
    pub(crate) len: isize,
    /// Who has sent it.
    pub(crate) from: Option<SocketName>,
    /// Octets of control messages.
    pub(crate) control: usize,
    /// MSG_*.
    pub(crate) flags: c_int,
}

/// Any call that receives a datagram; `None`: the real one. A failure has set errno, and a length below 0.
#[cold]
#[inline(never)]
pub(crate) fn receive(fd: c_int, iov: &[IoVec], beside: Beside, flags: c_int) -> Option<Came> {
    let datagrams::Way::Records(r) = datagrams::receiving(fd) else { return None };
    let failed = |e: c_int| Some(Came { len: fail(e), from: None, control: 0, flags: 0 });
    if borrowed_memory() {
        return None;
    }
    if flags & libc::MSG_ERRQUEUE != 0 {
        let told =
            kept(|| r.next_failure(fd, |failure, octets| failed_datagram(r, failure, octets, iov, &beside)));
        return match told {
            Ok(came) => Some(came),
            Err(e) => failed(e.raw_os_error()),
        };
    }
    // UDP passes that flag over.
    if flags & libc::MSG_OOB != 0 && r.pings() {
        return failed(libc::EOPNOTSUPP);
    }
    let how = flags & (libc::MSG_DONTWAIT | libc::MSG_PEEK) | libc::MSG_TRUNC;
    let most = octets(iov);
    // A call that succeeds leaves it as it was, whatever was tried before.
    let errno_before = errno::get();
    let mut tried = false;
    let mut errors_left = MOST_ERRORS;
    loop {
        if errors_left == 0 {
            return failed(libc::ENETDOWN);
        }
        let mut head = [0u8; HEADER];
        if r.is_away()
            && let Err(e) = kept(|| r.wait_for_service(fd, flags & libc::MSG_DONTWAIT != 0))
        {
            return failed(e.raw_os_error());
        }
        match kept(|| r.take(crate::io::user(iov), most, flags & libc::MSG_PEEK != 0)) {
            Some(Ok((header, _))) if header.kind == Kind::Error => {
                if flags & libc::MSG_PEEK != 0 {
                    r.drop_error();
                }
                match kept(|| r.take_error()) {
                    Some(e) => return failed(e.raw_os_error()),
                    None => {
                        errors_left -= 1;
                        continue;
                    }
                }
            }
            Some(Ok((header, len))) => return Some(came(r, Some(header), len, most, &beside, flags)),
            Some(Err(e)) => return failed(e.raw_os_error()),
            None => {}
        }
        let step = kept(|| r.step(fd, flags & libc::MSG_DONTWAIT != 0, &mut tried));
        let how = match &step {
            Step::Again => continue,
            Step::Try(_) => how | libc::MSG_DONTWAIT,
            Step::Pair | Step::Sleep(_) => how,
        };
        let got = with_list(head.as_mut_ptr(), iov, |list| {
            let mut m = self::header(list.as_ptr().cast::<iovec>(), list.len());
            // SAFETY: the program's own list, and a header of ours.
            unsafe { message::<{ crate::real::index("recvmsg") }>(fd, &raw mut m, how) }
        });
        let n = match got {
            None => return failed(libc::ENOMEM),
            Some(n) if n < 0 => match step {
                Step::Try(opening) if errno::get() == libc::EAGAIN => {
                    tried = !kept(|| r.found_empty(opening));
                    errno::set(errno_before);
                    continue;
                }
                // Another thread was first: the service is gone, and a timer has the place.
                _ if errno::get() == libc::ENOTSOCK && r.is_away() => {
                    errno::set(errno_before);
                    continue;
                }
                _ => return Some(Came { len: n, from: None, control: 0, flags: 0 }),
            },
            Some(n) => n as usize,
        };
        if n == 0 {
            return match kept(|| r.ended(fd, flags & libc::MSG_DONTWAIT != 0)) {
                Ok(()) => Some(Came { len: 0, from: None, control: 0, flags: 0 }),
                Err(e) => failed(e.raw_os_error()),
            };
        }
        let decoded = Header::decode(&head).filter(|_| n >= HEADER && head.starts_with(&MAGIC));
        if decoded.is_some_and(|header| header.kind == Kind::Error) {
            if flags & libc::MSG_PEEK != 0 {
                bypath_sys::sock::drop_record(fd);
            }
            match kept(|| r.take_error()) {
                Some(e) => return failed(e.raw_os_error()),
                None => {
                    errors_left -= 1;
                    continue;
                }
            }
        }
        let len = match &decoded {
            Some(_) => n - HEADER,
            None => {
                shift(iov, &head, n.min(most));
                n
            }
        };
        if flags & libc::MSG_PEEK == 0 {
            kept(|| r.came_by_pair(len));
        }
        return Some(came(r, decoded, len, most, &beside, flags));
    }
}

/// What is told of a datagram of `len` octets that was copied to the program's list, which has room for `most`.
fn came(
    r: &datagram::Record,
    decoded: Option<Header>,
    len: usize,
    most: usize,
    beside: &Beside,
    flags: c_int,
) -> Came {
    let cut = if len > most { libc::MSG_TRUNC } else { 0 };
    let from = (beside.name != 0)
        .then(|| kept(|| decoded.map_or_else(|| r.sender(), |header| r.as_name(header.peer))))
        .flatten();
    let (control, more) = match &decoded {
        Some(header) => tell(header, r.is_v6(), beside),
        None => (0, 0),
    };
    let told = if flags & libc::MSG_TRUNC != 0 { len } else { len.min(most) };
    let flags = cut | more | flags & libc::MSG_CMSG_CLOEXEC;
    Came { len: told as isize, from, control, flags }
}

/// What is told of a datagram that did not get there (`struct sock_extended_err`, and who says so): its octets are the program's.
fn failed_datagram(
    r: &datagram::Record,
    failure: &Failure,
    octets: &[u8],
    iov: &[IoVec],
    beside: &Beside,
) -> Came {
    let mut done = 0;
    for v in iov {
        let piece = &octets[done..][..v.len.min(octets.len() - done)];
        let Some(room) = memory::slice_mut(v.base as *mut u8, piece.len()) else { break };
        room.copy_from_slice(piece);
        done += piece.len();
    }
    let mut out = Out::new(beside);
    tell_into(&mut out, &failure.header, r.is_v6());
    let from = r.as_name(failure.from);
    let from = from.as_ref().map_or(&[][..], SocketName::as_bytes);
    // Behind 16 octets a sockaddr of the socket's family.
    let (mut all, len) = ([0; 44], if r.is_v6() { 44 } else { 32 });
    all[..4].copy_from_slice(&failure.errno.to_ne_bytes());
    all[4..7].copy_from_slice(&[failure.origin, failure.kind, failure.code]);
    all[8..12].copy_from_slice(&failure.info.to_ne_bytes());
    all[16..16 + from.len().min(28)].copy_from_slice(&from[..from.len().min(28)]);
    let (level, kind) = match r.is_v6() {
        true => (libc::IPPROTO_IPV6, libc::IPV6_RECVERR),
        false => (libc::IPPROTO_IP, libc::IP_RECVERR),
    };
    out.put(level, kind, &all[..len]);
    let cut = if done < octets.len() { libc::MSG_TRUNC } else { 0 };
    let name = (beside.name != 0).then(|| r.as_name(failure.header.peer)).flatten();
    Came { len: done as isize, from: name, control: out.used, flags: cut | out.flags | libc::MSG_ERRQUEUE }
}

/// A naked record of `len` octets, as far as they are wanted, has its first ones in `head`: they go to the front of the list, and those that
/// are there further back.
fn shift(iov: &[IoVec], head: &[u8; HEADER], len: usize) {
    // Piece by piece, from the last octet on: the place of an octet is HEADER places behind where it is now.
    let mut end = len;
    let mut before = octets(iov);
    for v in iov.iter().rev() {
        before -= v.len;
        while end > before {
            let (from, to) = source(iov, before, end);
            let count = end - from;
            let at = (v.base + (from - before)) as *mut u8;
            match to {
                // SAFETY: the kernel has just written to this memory, which the program left to the call, or to the list behind it.
                Some(base) => unsafe { std::ptr::copy(base as *const u8, at, count) },
                None if memory::writable(at, count) => {
                    // SAFETY: it can be written, and the octets are a local's.
                    unsafe { std::ptr::copy_nonoverlapping(head[from..].as_ptr(), at, count) };
                }
                None => {}
            }
            end = from;
        }
    }
}

/// Of the octets `before..end` of a datagram, the last ones that lie in one piece: from which one on, and where; `None`: in the header's room.
fn source(iov: &[IoVec], before: usize, end: usize) -> (usize, Option<usize>) {
    if end <= HEADER {
        return (before, None);
    }
    // Where the last of them lies in the list.
    let last = end - 1 - HEADER;
    let mut start = 0;
    for v in iov {
        if last < start + v.len {
            let first = before.max(start + HEADER);
            return (first, Some(v.base + (first - HEADER - start)));
        }
        start += v.len;
    }
    (before.max(HEADER), None)
}

/// Writes the control messages that the socket wants: how many octets they take, and MSG_CTRUNC.
fn tell(header: &Header, v6: bool, beside: &Beside) -> (usize, c_int) {
    let mut out = Out::new(beside);
    tell_into(&mut out, header, v6);
    (out.used, out.flags)
}

fn tell_into(out: &mut Out, header: &Header, v6: bool) {
    let wants = |bit: u32| header.tells & bit != 0;
    let (seconds, ns) = (header.stamp / 1_000_000_000, header.stamp % 1_000_000_000);
    if wants(tell::STAMP) {
        out.put(
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMP,
            &[seconds.to_ne_bytes(), (ns / 1000).to_ne_bytes()].concat_16(),
        );
    }
    if wants(tell::STAMP_NS) {
        out.put(
            libc::SOL_SOCKET,
            libc::SO_TIMESTAMPNS,
            &[seconds.to_ne_bytes(), ns.to_ne_bytes()].concat_16(),
        );
    }
    let here = header.local.ip();
    let as_v4 = here.and_then(|ip| match ip.to_canonical() {
        std::net::IpAddr::V4(v4) => Some(v4),
        std::net::IpAddr::V6(_) => None,
    });
    // In the order of udp_recvmsg and udpv6_recvmsg; of a datagram of IPv4 a socket of IPv6 is told no more of IPv6 than its address.
    if wants(tell::SEGMENT) && header.segment > 0 {
        out.put(libc::IPPROTO_UDP, libc::UDP_GRO, &header.segment.to_ne_bytes());
    }
    if v6
        && wants(tell::INFO_V6)
        && let Some(std::net::IpAddr::V6(ip)) = here
    {
        let mut info = [0; 20];
        info[..16].copy_from_slice(&ip.octets());
        info[16..].copy_from_slice(&header.interface.to_ne_bytes());
        out.put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
    }
    if let Some(v4) = as_v4 {
        if wants(tell::INFO) {
            // Who was asked answers from there; of a group and of everybody that is not told.
            let own =
                if v4.is_multicast() || v4.is_broadcast() { std::net::Ipv4Addr::UNSPECIFIED } else { v4 };
            let mut info = [0; 12];
            info[..4].copy_from_slice(&header.interface.to_ne_bytes());
            info[4..8].copy_from_slice(&own.octets());
            info[8..].copy_from_slice(&v4.octets());
            out.put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        if wants(tell::HOPS) {
            out.put(libc::IPPROTO_IP, libc::IP_TTL, &header.hops.to_ne_bytes());
        }
        if wants(tell::CLASS) {
            out.put(libc::IPPROTO_IP, libc::IP_TOS, &[header.class as u8]);
        }
    }
    if v6 && as_v4.is_none() && here.is_some() {
        if wants(tell::HOPS_V6) {
            out.put(libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT, &header.hops.to_ne_bytes());
        }
        if wants(tell::CLASS_V6) {
            out.put(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &header.class.to_ne_bytes());
        }
    }
}

/// Two words in one piece.
trait Concat {
    fn concat_16(&self) -> [u8; 16];
}

impl Concat for [[u8; 8]; 2] {
    fn concat_16(&self) -> [u8; 16] {
        let mut all = [0; 16];
        all[..8].copy_from_slice(&self[0]);
        all[8..].copy_from_slice(&self[1]);
        all
    }
}

/// Room for control messages.
pub(crate) struct Out {
    at: usize,
    left: usize,
    /// Octets that they take.
    pub(crate) used: usize,
    /// MSG_CTRUNC, if they had not room enough.
    pub(crate) flags: c_int,
}

impl Out {
    /// The program's.
    pub(crate) fn new(beside: &Beside) -> Out {
        let left = if beside.control == 0 { 0 } else { beside.control_len };
        Out { at: beside.control, left, used: 0, flags: 0 }
    }

    /// As the kernel does it: what does not fit is cut, and MSG_CTRUNC says so.
    pub(crate) fn put(&mut self, level: c_int, kind: c_int, data: &[u8]) {
        if self.left < CMSG {
            self.flags |= libc::MSG_CTRUNC;
            return;
        }
        let whole = CMSG + data.len();
        let len = whole.min(self.left);
        if len < whole {
            self.flags |= libc::MSG_CTRUNC;
        }
        // SAFETY: zeroes are a valid value.
        let mut m: cmsghdr = unsafe { std::mem::zeroed() };
        (m.cmsg_len, m.cmsg_level, m.cmsg_type) = (len, level, kind);
        if !memory::write(self.at as *mut cmsghdr, m) {
            return;
        }
        if let Some(to) = memory::slice_mut((self.at + CMSG) as *mut u8, len - CMSG) {
            to.copy_from_slice(&data[..len - CMSG]);
        }
        let space = whole.next_multiple_of(size_of::<usize>()).min(self.left);
        self.at += space;
        self.left -= space;
        self.used += space;
    }
}

/// `recvfrom()` and its like: the address goes where the program wants it.
pub(crate) fn receive_from(
    fd: c_int,
    iov: &[IoVec],
    flags: c_int,
    at: *mut sockaddr,
    at_len: *mut socklen_t,
) -> Option<isize> {
    let beside = Beside { name: at as usize, ..Beside::default() };
    let came = receive(fd, iov, beside, flags)?;
    if came.len < 0 || at.is_null() {
        return Some(came.len);
    }
    Some(match came.from {
        Some(from) if crate::served::store(&from, at, at_len) < 0 => -1,
        None if !memory::write(at_len, 0) => fail(libc::EFAULT),
        _ => came.len,
    })
}

/// `recvmsg()`: the same with control messages, and a header that is written.
pub(crate) fn receive_message(
    fd: c_int,
    to: *mut msghdr,
    m: &msghdr,
    iov: &[IoVec],
    flags: c_int,
) -> Option<isize> {
    let came = receive(fd, iov, Beside::of(m), flags)?;
    if came.len < 0 {
        return Some(came.len);
    }
    let mut out = *m;
    if !m.msg_name.is_null() {
        let name = came.from.as_ref().map_or(&[][..], SocketName::as_bytes);
        let cut = &name[..name.len().min(m.msg_namelen as usize)];
        match memory::slice_mut(m.msg_name.cast::<u8>(), cut.len()) {
            Some(room) => room.copy_from_slice(cut),
            None => return Some(fail(libc::EFAULT)),
        }
        out.msg_namelen = name.len() as socklen_t;
    }
    out.msg_controllen = came.control;
    out.msg_flags = came.flags;
    Some(if memory::write(to, out) { came.len } else { fail(libc::EFAULT) })
}
