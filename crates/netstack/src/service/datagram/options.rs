//! setsockopt(2) and getsockopt(2) of sockets of datagrams. docs/netstack-service.md has the table.

use super::{Datagrams, LEAST_BUFFER, MOST_BUFFER};
use crate::Engine;
use crate::service::model::{self, Kind};
use crate::service::options::cut;
use crate::service::slab::Key;
use crate::service::socket::{Hub, Phase, Socket};
use crate::service::table::{self, What as OfStreams};
use bypath_shm::datagram::tell;
use bypath_stack::Udp;
use bypath_stack::group::NoGroup;
use bypath_stack::iface::IfaceId;
use bypath_stack::linux::errno::{self, Result};
use bypath_stack::socket::{Fragmentation, Options};
use bypath_sys::pair;
use bypath_wire::TrafficClass;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::AsFd;

/// What becomes of an option that is not as it is of a stream.
#[derive(Clone, Copy, Debug)]
enum What {
    /// It acts; the functions below say how.
    Acts,
    /// It is told, as the functions below say, and can be set to what it is.
    Told,
    /// Neither set nor told: this errno.
    Refused(i32),
}
use What::{Acts, Refused, Told};

const SOL: i32 = libc::SOL_SOCKET;
const IP: i32 = libc::IPPROTO_IP;
const IPV6: i32 = libc::IPPROTO_IPV6;
const UDP: i32 = libc::IPPROTO_UDP;
/// linux/in.h and linux/udp.h, where the C library's have no name for it.
const MCAST_JOIN_GROUP: i32 = 42;
const MCAST_LEAVE_GROUP: i32 = 45;
/// Octets of struct group_req of linux/in.h.
const GROUP_REQ: usize = 136;
const SO_BINDTOIFINDEX: i32 = 62;
const IP_MTU: i32 = 14;
/// Linux tells the port.
const IP_PROTOCOL: i32 = 52;
const IPV6_MTU: i32 = 24;
const IPV6_MULTICAST_ALL: i32 = 29;

/// Options that are not as those of streams (`table.rs`); what acts on streams and is not here is kept of datagrams. Others are ENOPROTOOPT.
#[rustfmt::skip]
const TABLE: &[(i32, i32, &str, What)] = &[
    (SOL, libc::SO_REUSEADDR, "SO_REUSEADDR", Acts),
    (SOL, libc::SO_REUSEPORT, "SO_REUSEPORT", Acts),
    (SOL, libc::SO_BROADCAST, "SO_BROADCAST", Acts),
    (SOL, libc::SO_SNDBUF, "SO_SNDBUF", Acts),
    (SOL, libc::SO_RCVBUF, "SO_RCVBUF", Acts),
    (SOL, libc::SO_BINDTODEVICE, "SO_BINDTODEVICE", Acts),
    (SOL, SO_BINDTOIFINDEX, "SO_BINDTOIFINDEX", Acts),
    (SOL, libc::SO_TIMESTAMP, "SO_TIMESTAMP", Acts),
    (SOL, libc::SO_TIMESTAMPNS, "SO_TIMESTAMPNS", Acts),
    (SOL, libc::SO_TYPE, "SO_TYPE", Told),
    (SOL, libc::SO_DOMAIN, "SO_DOMAIN", Told),
    (SOL, libc::SO_PROTOCOL, "SO_PROTOCOL", Told),
    (SOL, libc::SO_ACCEPTCONN, "SO_ACCEPTCONN", Told),
    (SOL, libc::SO_ERROR, "SO_ERROR", Told),
    (UDP, libc::UDP_SEGMENT, "UDP_SEGMENT", Acts),
    (UDP, libc::UDP_GRO, "UDP_GRO", Acts),
    (UDP, libc::UDP_CORK, "UDP_CORK", Refused(libc::ENOPROTOOPT)),
    (UDP, 10, "UDPLITE_SEND_CSCOV", Refused(libc::ENOPROTOOPT)),
    (UDP, 11, "UDPLITE_RECV_CSCOV", Refused(libc::ENOPROTOOPT)),
    (UDP, 100, "UDP_ENCAP", Refused(libc::ENOPROTOOPT)),
    (UDP, 101, "UDP_NO_CHECK6_TX", Refused(libc::ENOPROTOOPT)),
    (UDP, 102, "UDP_NO_CHECK6_RX", Refused(libc::ENOPROTOOPT)),
    (IP, libc::IP_TOS, "IP_TOS", Acts),
    (IP, libc::IP_TTL, "IP_TTL", Acts),
    (IP, libc::IP_PKTINFO, "IP_PKTINFO", Acts),
    (IP, libc::IP_RECVTTL, "IP_RECVTTL", Acts),
    (IP, libc::IP_RECVTOS, "IP_RECVTOS", Acts),
    (IP, libc::IP_RECVERR, "IP_RECVERR", Acts),
    (IP, libc::IP_MTU_DISCOVER, "IP_MTU_DISCOVER", Acts),
    (IP, IP_MTU, "IP_MTU", Told),
    (IP, IP_PROTOCOL, "IP_PROTOCOL", Told),
    (IP, libc::IP_MULTICAST_TTL, "IP_MULTICAST_TTL", Acts),
    (IP, libc::IP_MULTICAST_LOOP, "IP_MULTICAST_LOOP", Acts),
    (IP, libc::IP_MULTICAST_IF, "IP_MULTICAST_IF", Acts),
    (IP, libc::IP_MULTICAST_ALL, "IP_MULTICAST_ALL", Acts),
    (IP, libc::IP_ADD_MEMBERSHIP, "IP_ADD_MEMBERSHIP", Acts),
    (IP, libc::IP_DROP_MEMBERSHIP, "IP_DROP_MEMBERSHIP", Acts),
    (IP, MCAST_JOIN_GROUP, "MCAST_JOIN_GROUP", Acts),
    (IP, MCAST_LEAVE_GROUP, "MCAST_LEAVE_GROUP", Acts),
    (IPV6, libc::IPV6_V6ONLY, "IPV6_V6ONLY", Acts),
    (IPV6, libc::IPV6_TCLASS, "IPV6_TCLASS", Acts),
    (IPV6, libc::IPV6_UNICAST_HOPS, "IPV6_UNICAST_HOPS", Acts),
    (IPV6, libc::IPV6_RECVPKTINFO, "IPV6_RECVPKTINFO", Acts),
    (IPV6, libc::IPV6_RECVHOPLIMIT, "IPV6_RECVHOPLIMIT", Acts),
    (IPV6, libc::IPV6_RECVTCLASS, "IPV6_RECVTCLASS", Acts),
    (IPV6, libc::IPV6_RECVERR, "IPV6_RECVERR", Acts),
    (IPV6, libc::IPV6_MTU_DISCOVER, "IPV6_MTU_DISCOVER", Acts),
    (IPV6, IPV6_MTU, "IPV6_MTU", Told),
    (IPV6, libc::IPV6_MULTICAST_HOPS, "IPV6_MULTICAST_HOPS", Acts),
    (IPV6, libc::IPV6_MULTICAST_LOOP, "IPV6_MULTICAST_LOOP", Acts),
    (IPV6, libc::IPV6_MULTICAST_IF, "IPV6_MULTICAST_IF", Acts),
    (IPV6, IPV6_MULTICAST_ALL, "IPV6_MULTICAST_ALL", Acts),
    (IPV6, libc::IPV6_ADD_MEMBERSHIP, "IPV6_ADD_MEMBERSHIP", Acts),
    (IPV6, libc::IPV6_DROP_MEMBERSHIP, "IPV6_DROP_MEMBERSHIP", Acts),
    (IPV6, MCAST_JOIN_GROUP, "MCAST_JOIN_GROUP", Acts),
    (IPV6, MCAST_LEAVE_GROUP, "MCAST_LEAVE_GROUP", Acts),
];

/// SO_SNDBUF and SO_RCVBUF at most, as they are set, and what they tell when nothing was: Linux's net.core.wmem_max and wmem_default.
const MOST: i32 = 4 << 20;
const USUAL: i32 = 212_992;

/// Which option tells what beside datagrams.
const TELLS: &[(i32, i32, u32)] = &[
    (SOL, libc::SO_TIMESTAMP, tell::STAMP),
    (SOL, libc::SO_TIMESTAMPNS, tell::STAMP_NS),
    (IP, libc::IP_PKTINFO, tell::INFO),
    (IP, libc::IP_RECVTTL, tell::HOPS),
    (IP, libc::IP_RECVTOS, tell::CLASS),
    (IPV6, libc::IPV6_RECVPKTINFO, tell::INFO_V6),
    (IPV6, libc::IPV6_RECVHOPLIMIT, tell::HOPS_V6),
    (IPV6, libc::IPV6_RECVTCLASS, tell::CLASS_V6),
    (UDP, libc::UDP_GRO, tell::SEGMENT),
];

fn find(level: i32, name: i32) -> Option<What> {
    TABLE.iter().find(|row| (row.0, row.1) == (level, name)).map(|row| row.3)
}

/// What an option is called that is not as those of streams.
pub fn name(level: i32, name: i32) -> Option<&'static str> {
    TABLE.iter().find(|row| (row.0, row.1) == (level, name)).map(|row| row.2)
}

/// What is done with an option that is as those of streams.
fn as_of_streams(level: i32, name: i32) -> Result<OfStreams> {
    table::find(level, name).filter(|_| matches!(level, SOL | IP | IPV6)).ok_or(libc::ENOPROTOOPT)
}

fn told_by(level: i32, name: i32) -> Option<u32> {
    TELLS.iter().find(|row| (row.0, row.1) == (level, name)).map(|row| row.2)
}

/// The number of a value.
fn int(value: &[u8]) -> Result<i32> {
    value.first_chunk().map(|four| i32::from_ne_bytes(*four)).ok_or(libc::EINVAL)
}

/// One octet of what the kernel tells.
fn octet(n: i32) -> Result<u8> {
    u8::try_from(n).map_err(|_| libc::EINVAL)
}

impl Hub {
    /// # Errors
    /// As setsockopt(2).
    pub fn set_of_datagrams(
        &mut self,
        engine: &mut Engine,
        key: Key,
        level: i32,
        name: i32,
        value: &[u8],
    ) -> Result<()> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        if level == IPV6 && !socket.v6 {
            return Err(libc::ENOPROTOOPT);
        }
        if level == SOL && value.len() < 4 && name != libc::SO_BINDTODEVICE {
            return Err(libc::EINVAL);
        }
        let (kind, option) = (Kind { v6: socket.v6, datagrams: true }, (level, name));
        if find(level, name).is_some_and(|what| matches!(what, Acts)) {
            return Of { engine, socket }.set(level, name, value);
        }
        let value = value.get(..model::LONGEST).unwrap_or(value);
        let as_it_is = |errno| model::is_same(kind, option, value)?.then_some(()).ok_or(errno);
        match find(level, name) {
            Some(Told) => return as_it_is(libc::ENOPROTOOPT),
            Some(Refused(errno)) => return Err(errno),
            Some(Acts) | None => {}
        }
        match as_of_streams(level, name)? {
            OfStreams::Refused(_, errno) => Err(errno),
            OfStreams::Told(errno) => as_it_is(errno),
            OfStreams::KeptHere(_) => {
                socket.wishes.keep(option, int(value)?.to_ne_bytes().to_vec());
                Ok(())
            }
            OfStreams::Kept | OfStreams::Acts => {
                if let Some(told) = model::after(kind, option, value)? {
                    socket.wishes.keep(option, told);
                }
                Ok(())
            }
        }
    }

    /// # Errors
    /// As getsockopt(2). SO_ERROR is asked elsewhere.
    pub fn of_datagrams(
        &mut self,
        engine: &mut Engine,
        key: Key,
        (level, name): (i32, i32),
        room: usize,
    ) -> Result<Vec<u8>> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        // As Linux has it, of IPv4 alone.
        if !socket.v6 && !matches!(level, SOL | IP | UDP) {
            return Err(libc::EOPNOTSUPP);
        }
        match find(level, name) {
            Some(Refused(errno)) => return Err(errno),
            Some(Acts | Told) => {
                let mut value = Of { engine, socket }.get(level, name)?;
                if (level, name) != (IP, libc::IP_MULTICAST_IF) {
                    return Ok(cut(level, value, room));
                }
                // An address, and no number.
                value.truncate(room);
                return Ok(value);
            }
            None => {}
        }
        let kept = socket.wishes.kept((level, name));
        match (as_of_streams(level, name)?, kept) {
            (OfStreams::Refused(errno, _), _) => Err(errno),
            (_, Some(value)) => Ok(cut(level, value, room)),
            (OfStreams::KeptHere(first), None) => Ok(cut(level, first.to_ne_bytes().to_vec(), room)),
            (_, None) => model::first(Kind { v6: socket.v6, datagrams: true }, (level, name), room),
        }
    }
}

/// A socket and its stack.
struct Of<'a> {
    engine: &'a mut Engine,
    socket: &'a mut Socket,
}

impl Of<'_> {
    fn udp(&mut self) -> Result<Udp<'_>> {
        self.engine.stack().udp(self.socket.id).ok_or(libc::EBADF)
    }

    fn own(&mut self) -> Result<&mut Datagrams> {
        match &mut self.socket.phase {
            Phase::Datagrams(of) => Ok(of),
            _ => Err(libc::EBADF),
        }
    }

    fn options(&mut self, change: impl FnOnce(&mut Options)) -> Result<()> {
        let mut udp = self.udp()?;
        let mut options = udp.options();
        change(&mut options);
        udp.set_options(options);
        Ok(())
    }

    fn set(&mut self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        match (level, name) {
            (SOL, libc::SO_BINDTODEVICE) => return self.set_device(value),
            (IP, libc::IP_MULTICAST_IF) => return self.set_group_iface(value),
            (IP, libc::IP_ADD_MEMBERSHIP | libc::IP_DROP_MEMBERSHIP)
            | (IPV6, libc::IPV6_ADD_MEMBERSHIP | libc::IPV6_DROP_MEMBERSHIP)
            | (_, MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP) => return self.change_group(level, name, value),
            _ => {}
        }
        let n = match (level, name) {
            // An index is one of the stack's.
            (SOL | UDP, _) | (IPV6, libc::IPV6_MULTICAST_IF) => int(value)?,
            // Which octets it may have, and what becomes of them, is the kernel's to say.
            _ => {
                let kind = Kind { v6: self.socket.v6, datagrams: true };
                int(&model::after(kind, (level, name), value)?.ok_or(libc::EINVAL)?)?
            }
        };
        if let Some(bit) = told_by(level, name) {
            self.tell(bit, n != 0)?;
        }
        match (level, name) {
            (SOL, libc::SO_REUSEADDR) => self.options(|o| o.reuse_address = n != 0),
            (SOL, libc::SO_REUSEPORT) => self.options(|o| o.reuse_port = n != 0),
            (SOL, libc::SO_BROADCAST) => self.options(|o| o.broadcast = n != 0),
            (SOL, libc::SO_SNDBUF) => {
                let octets = u32::try_from(n).map_or(MOST, |n| n.clamp(2304, MOST as u32) as i32);
                self.socket.wishes.buffers.0 = octets as u32;
                // A record has to go in.
                let octets = 2 * octets.max(LEAST_BUFFER) as usize;
                self.udp()?.set_send_octets(octets);
                Ok(())
            }
            (SOL, libc::SO_RCVBUF) => {
                let octets = u32::try_from(n).map_or(MOST, |n| n.clamp(1152, MOST as u32) as i32);
                self.socket.wishes.buffers.1 = octets as u32;
                // The rest waits in the stack, where it counts as the user's.
                let octets = octets.clamp(LEAST_BUFFER, MOST_BUFFER);
                let end = self.socket.end.as_fd();
                pair::set_send_buffer(end, octets).map_err(|e| e.raw_os_error())
            }
            (SOL, SO_BINDTOIFINDEX) => {
                let iface = self.iface(u32::try_from(n).map_err(|_| libc::EINVAL)?)?;
                let name = self.engine.links().find(|(link, _)| Some(*link) == iface);
                self.socket.wishes.device = name.map_or_else(Vec::new, |(_, name)| name.as_bytes().to_vec());
                self.options(|o| o.iface = iface)
            }
            (UDP, libc::UDP_SEGMENT) => {
                self.own()?.segment = u16::try_from(n).map_err(|_| libc::EINVAL)?;
                Ok(())
            }
            (UDP, libc::UDP_GRO) => self.options(|o| o.gro = n != 0),
            (IP, libc::IP_TOS) => self.options(|o| o.class = TrafficClass(n as u8)),
            (IPV6, libc::IPV6_TCLASS) => {
                let class = octet(n)?;
                self.options(|o| o.class = TrafficClass(class))
            }
            (IP, libc::IP_TTL) | (IPV6, libc::IPV6_UNICAST_HOPS) => {
                let hops = octet(n)?;
                self.options(|o| o.hop_limit = (hops > 0).then_some(hops))
            }
            (IP, libc::IP_RECVERR) | (IPV6, libc::IPV6_RECVERR) => self.options(|o| o.all_errors = n != 0),
            (IP, libc::IP_MTU_DISCOVER) | (IPV6, libc::IPV6_MTU_DISCOVER) => {
                let fragmentation = match n {
                    0 | 5 => Fragmentation::Anywhere,
                    1 => Fragmentation::Here,
                    2..=4 => Fragmentation::Never,
                    _ => return Err(libc::EINVAL),
                };
                self.socket.wishes.keep((level, name), n.to_ne_bytes().to_vec());
                self.options(|o| o.fragmentation = fragmentation)
            }
            (IP, libc::IP_MULTICAST_TTL) | (IPV6, libc::IPV6_MULTICAST_HOPS) => {
                let hops = octet(n)?;
                self.options(|o| o.group_hop_limit = hops)
            }
            (IP, libc::IP_MULTICAST_LOOP) | (IPV6, libc::IPV6_MULTICAST_LOOP) => {
                self.options(|o| o.group_loop = n != 0)
            }
            (IP, libc::IP_MULTICAST_ALL) => self.options(|o| o.group_all = n != 0),
            (IPV6, IPV6_MULTICAST_ALL) => self.options(|o| o.group_all_v6 = n != 0),
            (IPV6, libc::IPV6_MULTICAST_IF) => {
                let iface = self.iface(n as u32)?;
                self.options(|o| o.group_iface = iface)
            }
            (IPV6, libc::IPV6_V6ONLY) if self.udp()?.local().is_some() => Err(libc::EINVAL),
            (IPV6, libc::IPV6_V6ONLY) => self.options(|o| o.only_v6 = n != 0),
            // Those that tell something.
            _ => Ok(()),
        }
    }

    fn tell(&mut self, bit: u32, on: bool) -> Result<()> {
        // The two kinds of time stamps are one setting.
        let others =
            if on && bit & (tell::STAMP | tell::STAMP_NS) != 0 { tell::STAMP | tell::STAMP_NS } else { bit };
        let of = self.own()?;
        of.tells &= !others;
        of.tells |= if on { bit } else { 0 };
        Ok(())
    }

    fn set_device(&mut self, value: &[u8]) -> Result<()> {
        let name = value.split(|octet| *octet == 0).next().unwrap_or_default();
        let iface = match name {
            b"" => None,
            name => {
                let found = self.engine.links().find(|(_, link)| link.as_bytes() == name);
                Some(found.ok_or(libc::ENODEV)?.0)
            }
        };
        self.socket.wishes.device = name.to_vec();
        self.options(|o| o.iface = iface)
    }

    /// An interface by its number; 0: any.
    fn iface(&mut self, number: u32) -> Result<Option<IfaceId>> {
        if number == 0 {
            return Ok(None);
        }
        let iface = IfaceId::from_scope(number).ok_or(libc::ENODEV)?;
        let known = iface == IfaceId::LOOPBACK || self.engine.links().any(|(link, _)| link == iface);
        if known { Ok(Some(iface)) } else { Err(libc::ENODEV) }
    }

    /// The interface that has an address.
    fn iface_of(&mut self, address: Ipv4Addr) -> Result<Option<IfaceId>> {
        if address.is_unspecified() {
            return Ok(None);
        }
        let all: Vec<_> = self.engine.links().map(|(iface, _)| iface).collect();
        let stack = self.engine.stack();
        let has = |iface: &IfaceId| stack.addresses(*iface).iter().any(|a| a.prefix.address() == address);
        all.into_iter().find(has).map(Some).ok_or(libc::ENODEV)
    }

    /// The interface for a group where none was said: the one that the way there takes, else the first.
    fn iface_for(&mut self, group: IpAddr) -> Result<IfaceId> {
        let first = self.engine.links().next().map(|(iface, _)| iface);
        let way = self.engine.stack().path(group, None, None).ok().map(|path| path.iface);
        way.filter(|iface| *iface != IfaceId::LOOPBACK).or(first).ok_or(libc::ENODEV)
    }

    /// Of `struct ip_mreqn`, `ip_mreq`, or an address.
    fn set_group_iface(&mut self, value: &[u8]) -> Result<()> {
        let v4 = |at: usize| value.get(at..at + 4).and_then(|raw| raw.first_chunk::<4>().copied());
        let (address, number) = match value.len() {
            12.. => (v4(4), v4(8).map_or(0, u32::from_ne_bytes)),
            8.. => (v4(4), 0),
            4.. => (v4(0), 0),
            _ => return Err(libc::EINVAL),
        };
        let address = Ipv4Addr::from(address.unwrap_or_default());
        let iface = match self.iface(number)? {
            Some(iface) => Some(iface),
            None => self.iface_of(address).map_err(|_| libc::EADDRNOTAVAIL)?,
        };
        self.socket.wishes.keep((IP, libc::IP_MULTICAST_IF), address.octets().to_vec());
        self.options(|o| o.group_iface = iface)
    }

    fn change_group(&mut self, level: i32, name: i32, value: &[u8]) -> Result<()> {
        let four = |at: usize| value.get(at..at + 4).and_then(|raw| raw.first_chunk::<4>().copied());
        let sixteen = |at: usize| value.get(at..at + 16).and_then(|raw| raw.first_chunk::<16>().copied());
        let leaves = matches!(
            (level, name),
            (_, MCAST_LEAVE_GROUP) | (IP, libc::IP_DROP_MEMBERSHIP) | (IPV6, libc::IPV6_DROP_MEMBERSHIP)
        );
        let (group, iface): (IpAddr, _) = match (level, name) {
            (_, MCAST_JOIN_GROUP | MCAST_LEAVE_GROUP) => {
                // struct group_req: a number, and a socket address from octet 8 on.
                if value.len() < GROUP_REQ {
                    return Err(libc::EINVAL);
                }
                let number = u32::from_ne_bytes(four(0).ok_or(libc::EINVAL)?);
                let family = value.get(8..10).and_then(|raw| raw.first_chunk::<2>()).ok_or(libc::EINVAL)?;
                let group = match i32::from(u16::from_ne_bytes(*family)) {
                    libc::AF_INET => Ipv4Addr::from(four(12).ok_or(libc::EINVAL)?).into(),
                    libc::AF_INET6 => Ipv6Addr::from(sixteen(16).ok_or(libc::EINVAL)?).into(),
                    _ => return Err(libc::EADDRNOTAVAIL),
                };
                (group, self.iface(number)?)
            }
            (IP, _) => {
                let group = Ipv4Addr::from(four(0).ok_or(libc::EINVAL)?);
                let number = four(8).map_or(0, u32::from_ne_bytes);
                let address = Ipv4Addr::from(four(4).ok_or(libc::EINVAL)?);
                if !leaves && !group.is_multicast() {
                    return Err(libc::EINVAL);
                }
                let iface = match self.iface(number) {
                    Ok(None) => self.iface_of(address),
                    found => found,
                };
                // Who leaves was nowhere.
                (group.into(), iface.map_err(|e| if leaves { libc::EADDRNOTAVAIL } else { e })?)
            }
            _ => {
                let group = Ipv6Addr::from(sixteen(0).ok_or(libc::EINVAL)?);
                (group.into(), self.iface(u32::from_ne_bytes(four(16).ok_or(libc::EINVAL)?))?)
            }
        };
        if leaves && level == IP && !group.is_multicast() {
            return Err(libc::EADDRNOTAVAIL);
        }
        if !group.is_multicast() || group.is_ipv6() != (level == IPV6) {
            return Err(libc::EINVAL);
        }
        let iface = match iface {
            Some(iface) => iface,
            None => self.iface_for(group)?,
        };
        let mut udp = self.udp()?;
        if leaves {
            return if udp.leave(iface, group) { Ok(()) } else { Err(libc::EADDRNOTAVAIL) };
        }
        udp.join(Engine::now(), iface, group).map_err(|e| match e {
            NoGroup::Joined => libc::EADDRINUSE,
            NoGroup::NoIface => libc::ENODEV,
            // As where the memory of one socket for such is full.
            NoGroup::Full { .. } if group.is_ipv6() => libc::ENOMEM,
            NoGroup::Full { .. } => libc::ENOBUFS,
            _ => libc::EINVAL,
        })
    }

    fn get(&mut self, level: i32, name: i32) -> Result<Vec<u8>> {
        if let Some(bit) = told_by(level, name) {
            let on = self.own()?.tells & bit != 0;
            return Ok(i32::from(on).to_ne_bytes().to_vec());
        }
        let v6 = self.socket.v6;
        let buffers = self.socket.wishes.buffers;
        let told = |half: u32| if half == 0 { USUAL } else { (half * 2) as i32 };
        let segment = self.own()?.segment;
        let is_ping = self.own()?.ping.is_some();
        let options = self.udp()?.options();
        let scope = options.group_iface.map_or(0, IfaceId::scope) as i32;
        let n: i32 = match (level, name) {
            (SOL, libc::SO_REUSEADDR) => options.reuse_address.into(),
            (SOL, libc::SO_REUSEPORT) => options.reuse_port.into(),
            (SOL, libc::SO_BROADCAST) => options.broadcast.into(),
            (SOL, libc::SO_SNDBUF) => told(buffers.0),
            (SOL, libc::SO_RCVBUF) => told(buffers.1),
            (SOL, libc::SO_BINDTODEVICE) => return Ok(self.socket.wishes.device.clone()),
            (SOL, SO_BINDTOIFINDEX) => options.iface.map_or(0, |iface| iface.scope() as i32),
            (SOL, libc::SO_TYPE) => libc::SOCK_DGRAM,
            (SOL, libc::SO_DOMAIN) => {
                if v6 {
                    libc::AF_INET6
                } else {
                    libc::AF_INET
                }
            }
            (SOL, libc::SO_PROTOCOL) => match (is_ping, v6) {
                (false, _) => libc::IPPROTO_UDP,
                (true, false) => libc::IPPROTO_ICMP,
                (true, true) => libc::IPPROTO_ICMPV6,
            },
            (SOL, libc::SO_ACCEPTCONN) => 0,
            (IP, IP_PROTOCOL) => self.udp()?.local().map_or(0, |local| local.port().into()),
            (UDP, libc::UDP_SEGMENT) => segment.into(),
            (IP, libc::IP_TOS) | (IPV6, libc::IPV6_TCLASS) => options.class.0.into(),
            (IP, libc::IP_TTL) | (IPV6, libc::IPV6_UNICAST_HOPS) => options.hop_limit.unwrap_or(64).into(),
            (IP, libc::IP_RECVERR) | (IPV6, libc::IPV6_RECVERR) => options.all_errors.into(),
            (IP, libc::IP_MTU_DISCOVER) | (IPV6, libc::IPV6_MTU_DISCOVER) => {
                let kept = self.socket.wishes.kept((level, name));
                return Ok(kept.unwrap_or_else(|| 1i32.to_ne_bytes().to_vec()));
            }
            (IP, IP_MTU) | (IPV6, IPV6_MTU) => {
                let mut udp = self.udp()?;
                let remote = udp.remote().ok_or(libc::ENOTCONN)?;
                udp.reach(remote).map_err(errno::send)? as i32
            }
            (IP, libc::IP_MULTICAST_TTL) | (IPV6, libc::IPV6_MULTICAST_HOPS) => {
                options.group_hop_limit.into()
            }
            (IP, libc::IP_MULTICAST_LOOP) | (IPV6, libc::IPV6_MULTICAST_LOOP) => options.group_loop.into(),
            (IP, libc::IP_MULTICAST_ALL) => options.group_all.into(),
            (IPV6, IPV6_MULTICAST_ALL) => options.group_all_v6.into(),
            (IP, libc::IP_MULTICAST_IF) => {
                let kept = self.socket.wishes.kept((level, name));
                return Ok(kept.unwrap_or_else(|| vec![0; 4]));
            }
            (IPV6, libc::IPV6_MULTICAST_IF) => scope,
            (IPV6, libc::IPV6_V6ONLY) => options.only_v6.into(),
            _ => return Err(libc::ENOPROTOOPT),
        };
        Ok(n.to_ne_bytes().to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_says_what_is_done_with_each_option() {
        let text = include_str!("../../../../../docs/netstack-service.md");
        let heads = ["act on datagrams", "are told of datagrams", "are refused of datagrams"];
        let row = |head: &str| {
            let row = text.lines().find(|line| line.starts_with(&format!("| {head} |")));
            row.unwrap_or_else(|| panic!("no row {head}"))
        };
        for (_, _, name, what) in TABLE {
            let head = match what {
                Acts => heads[0],
                Told => heads[1],
                Refused(_) => heads[2],
            };
            assert!(row(head).contains(&format!("`{name}`")), "{name} is not in the row: {head}");
        }
        let named: usize = heads.iter().map(|head| row(head).matches('`').count() / 2).sum();
        // Two stand there once and are of two levels.
        assert_eq!(named, TABLE.len() - 2);
    }

    #[test]
    fn no_option_stands_there_twice() {
        for (n, row) in TABLE.iter().enumerate() {
            assert!(TABLE[..n].iter().all(|other| (other.0, other.1) != (row.0, row.1)), "{}", row.2);
        }
    }
}
