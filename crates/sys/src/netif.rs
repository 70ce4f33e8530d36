//! Network interfaces: which there are, and what they are.

use crate::netlink::{Netlink, Request, attributes};
use crate::syscall::{check, syscall};
use crate::{Errno, Result};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Longest name of an interface (IFNAMSIZ without the NUL).
pub const LONGEST_NAME: usize = 15;

/// What the kernel tells about an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Number, from 1.
    pub index: u32,
    /// Name, such as `eth0`. Bytes that are no UTF-8 are replaced.
    pub name: String,
    /// Hardware address; zeroes where it has none or another kind.
    pub mac: [u8; 6],
    /// Largest payload of a frame in octets.
    pub mtu: u32,
    /// IFF_... of netdevice(7).
    pub flags: u32,
    /// ARPHRD_...: 1 = Ethernet, 772 = loopback.
    pub hardware: u16,
    /// Whether a cable, or a peer, is there; `None` where it is not told.
    pub carrier: Option<bool>,
    /// Queueing discipline of sent frames, such as `noqueue`, `fq` or `mq`.
    pub queueing: String,
    /// Frames that the queueing discipline may hold (txqueuelen).
    pub send_queue: u32,
}

impl Interface {
    /// Whether it is switched on (IFF_UP).
    pub const fn is_up(&self) -> bool {
        self.flags & libc::IFF_UP as u32 != 0
    }

    /// Whether it is the loopback interface.
    pub const fn is_loopback(&self) -> bool {
        self.flags & libc::IFF_LOOPBACK as u32 != 0
    }

    /// Whether its frames are Ethernet frames (loopback carries the same header).
    pub const fn is_ethernet(&self) -> bool {
        self.hardware == libc::ARPHRD_ETHER || self.hardware == libc::ARPHRD_LOOPBACK
    }
}

/// `struct ifinfomsg`.
const INFO: usize = 16;
// linux/if_link.h
const IFLA_ADDRESS: u16 = 1;
pub(crate) const IFLA_IFNAME: u16 = 3;
pub(crate) const IFLA_MTU: u16 = 4;
const IFLA_QDISC: u16 = 6;
const IFLA_TXQLEN: u16 = 13;
const IFLA_CARRIER: u16 = 33;

fn parse(body: &[u8]) -> Option<Interface> {
    let word = |b: &[u8]| b.get(..4).and_then(|b| b.try_into().ok()).map(u32::from_ne_bytes);
    let fixed = body.get(..INFO)?;
    let mut found = Interface {
        hardware: u16::from_ne_bytes([fixed[2], fixed[3]]),
        index: word(&fixed[4..])?,
        flags: word(&fixed[8..])?,
        name: String::new(),
        mac: [0; 6],
        mtu: 0,
        carrier: None,
        queueing: String::new(),
        send_queue: 0,
    };
    let text = |value: &[u8]| {
        let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
        String::from_utf8_lossy(&value[..end]).into_owned()
    };
    for (kind, value) in attributes(&body[INFO..]) {
        match kind {
            IFLA_IFNAME => found.name = text(value),
            IFLA_QDISC => found.queueing = text(value),
            IFLA_ADDRESS => found.mac = value.try_into().unwrap_or([0; 6]),
            IFLA_MTU => found.mtu = word(value)?,
            IFLA_TXQLEN => found.send_queue = word(value)?,
            // Only a device that is up knows its carrier.
            IFLA_CARRIER if found.is_up() => found.carrier = value.first().map(|&c| c != 0),
            _ => {}
        }
    }
    Some(found)
}

/// All interfaces of the calling thread's network namespace, by index.
///
/// # Errors
/// Those of a netlink socket (EMFILE, ENFILE, EPERM under a filter).
pub fn list() -> Result<Vec<Interface>> {
    let netlink = Netlink::open()?;
    // The list may change while it is read; a few tries get one in peace.
    for _ in 0..16 {
        let mut found = Vec::new();
        let request = Request::new(libc::RTM_GETLINK, libc::NLM_F_DUMP, &[0; INFO]);
        match netlink.ask(request, &mut |_, body| found.extend(parse(body))) {
            Ok(()) => {
                found.sort_by_key(|i| i.index);
                return Ok(found);
            }
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::AGAIN)
}

fn one(request: Request) -> Result<Interface> {
    let mut found = None;
    Netlink::open()?.ask(request, &mut |_, body| found = parse(body))?;
    found.ok_or(Errno::PROTO)
}

/// The interface of this name.
///
/// # Errors
/// ENODEV if there is none; ENAMETOOLONG beyond [`LONGEST_NAME`] octets; those of [`list`].
pub fn by_name(name: &str) -> Result<Interface> {
    if name.len() > LONGEST_NAME {
        return Err(Errno::NAMETOOLONG);
    }
    if name.is_empty() || name.contains('\0') {
        return Err(Errno::NODEV);
    }
    let mut value = name.as_bytes().to_vec();
    value.push(0);
    one(Request::new(libc::RTM_GETLINK, 0, &[0; INFO]).attribute(IFLA_IFNAME, &value))
}

/// The interface of this index.
///
/// # Errors
/// ENODEV if there is none; those of [`list`].
pub fn by_index(index: u32) -> Result<Interface> {
    let mut fixed = [0; INFO];
    fixed[4..8].copy_from_slice(&index.to_ne_bytes());
    one(Request::new(libc::RTM_GETLINK, 0, &fixed))
}

/// The interface of the calling thread's network namespace on which the kernel has this address, if it has it.
///
/// # Errors
/// Those of [`list`].
pub fn holder(address: IpAddr) -> Result<Option<String>> {
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    const RTM_NEWADDR: u16 = 20;
    const RTM_GETADDR: u16 = 22;
    let (family, octets) = match address {
        IpAddr::V4(v4) => (libc::AF_INET, v4.octets().to_vec()),
        IpAddr::V6(v6) => (libc::AF_INET6, v6.octets().to_vec()),
    };
    let netlink = Netlink::open()?;
    for _ in 0..16 {
        let mut index = None;
        // struct ifaddrmsg: family, prefix length, flags, scope, index.
        let request = Request::new(RTM_GETADDR, libc::NLM_F_DUMP, &[family as u8, 0, 0, 0, 0, 0, 0, 0]);
        let asked = netlink.ask(request, &mut |kind, body| {
            let Some((fixed, rest)) = body.split_at_checked(8).filter(|_| kind == RTM_NEWADDR) else {
                return;
            };
            let all: Vec<_> = attributes(rest).collect();
            // Of an address with a partner the other one is the partner's.
            let own = all.iter().find(|(kind, _)| *kind == IFA_LOCAL);
            let own = own.or_else(|| all.iter().find(|(kind, _)| *kind == IFA_ADDRESS));
            if own.is_some_and(|(_, value)| *value == octets) {
                index = fixed[4..8].try_into().ok().map(u32::from_ne_bytes);
            }
        });
        match asked {
            Ok(()) => return index.map(|index| by_index(index).map(|interface| interface.name)).transpose(),
            // It changed while it was listed.
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Err(Errno::AGAIN)
}

/// `struct ifreq`: a name and a union.
#[repr(C)]
struct IfReq {
    name: [u8; 16],
    data: [u64; 3],
}

impl IfReq {
    fn named(name: &str) -> Result<IfReq> {
        let mut req = IfReq { name: [0; 16], data: [0; 3] };
        let target = req.name[..LONGEST_NAME].get_mut(..name.len()).ok_or(Errno::NAMETOOLONG)?;
        target.copy_from_slice(name.as_bytes());
        Ok(req)
    }
}

const SIOCETHTOOL: usize = 0x8946;

/// Asks the driver of the interface through any socket of its network namespace.
pub(crate) fn ethtool(socket: BorrowedFd<'_>, name: &str, command: &mut [u32]) -> Result<()> {
    let mut req = IfReq::named(name)?;
    req.data[0] = command.as_mut_ptr() as u64;
    // SAFETY: every caller's array is as long as the structure of the command in its first word.
    check(unsafe {
        syscall(libc::SYS_ioctl, [socket.as_raw_fd() as usize, SIOCETHTOOL, &raw mut req as usize, 0, 0, 0])
    })
    .map(|_| ())
}

/// Speed in Mbit/s as the driver tells it; `None` where it does not (no cable, a virtual device).
pub fn speed(name: &str) -> Option<u32> {
    const ETHTOOL_GSET: u32 = 1;
    // struct ethtool_cmd: command, supported, advertising, speed and duplex, ..., speed_hi, ...
    let mut command = [0u32; 11];
    command[0] = ETHTOOL_GSET;
    let netlink = Netlink::open().ok()?;
    ethtool(netlink.descriptor(), name, &mut command).ok()?;
    let half = |word: u32, at: usize| {
        let bytes = word.to_ne_bytes();
        u32::from(u16::from_ne_bytes([bytes[at], bytes[at + 1]]))
    };
    let speed = half(command[3], 0) | half(command[7], 0) << 16;
    (speed != 0 && speed != u32::MAX && speed != 0xffff).then_some(speed)
}

/// What the driver can do about timestamps: SOF_TIMESTAMPING_... bits, and HWTSTAMP_FILTER_... bits by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampAbilities {
    /// SOF_TIMESTAMPING_... bits.
    pub flags: u32,
    /// One bit for each receive filter of the device; bit 0 (none) alone: no hardware stamps.
    pub receive_filters: u32,
}

/// Asks the driver for its abilities (ETHTOOL_GET_TS_INFO).
///
/// # Errors
/// ENODEV; EOPNOTSUPP.
pub fn timestamp_abilities(socket: BorrowedFd<'_>, name: &str) -> Result<TimestampAbilities> {
    const ETHTOOL_GET_TS_INFO: u32 = 0x41;
    // struct ethtool_ts_info: command, so_timestamping, phc_index, tx_types, 3 reserved, rx_filters, 3 reserved.
    let mut command = [0u32; 11];
    command[0] = ETHTOOL_GET_TS_INFO;
    ethtool(socket, name, &mut command)?;
    Ok(TimestampAbilities { flags: command[1], receive_filters: command[7] })
}

/// Asks the device to stamp every received frame (SIOCSHWTSTAMP). Returns whether it does so now.
///
/// # Errors
/// EPERM without CAP_NET_ADMIN; EOPNOTSUPP, ERANGE, EINVAL where the device cannot.
pub fn stamp_in_hardware(socket: BorrowedFd<'_>, name: &str) -> Result<bool> {
    const SIOCSHWTSTAMP: usize = 0x89b0;
    const FILTER_NONE: u32 = 0;
    const FILTER_ALL: u32 = 1;
    // struct hwtstamp_config: flags, tx_type, rx_filter.
    let mut config = [0u32, 0, FILTER_ALL];
    let mut req = IfReq::named(name)?;
    req.data[0] = config.as_mut_ptr() as u64;
    // SAFETY: the kernel reads and writes twelve bytes of a local.
    check(unsafe {
        syscall(libc::SYS_ioctl, [socket.as_raw_fd() as usize, SIOCSHWTSTAMP, &raw mut req as usize, 0, 0, 0])
    })?;
    Ok(config[2] != FILTER_NONE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_by_name_and_number() {
        let all = list().unwrap();
        let lo = all.iter().find(|i| i.is_loopback()).expect("a loopback interface");
        assert_eq!((lo.name.as_str(), lo.mac, lo.hardware), ("lo", [0; 6], libc::ARPHRD_LOOPBACK));
        assert!(lo.is_ethernet() && lo.mtu > 0);
        assert_eq!(&by_name("lo").unwrap(), lo);
        assert_eq!(&by_index(lo.index).unwrap(), lo);
    }

    #[test]
    fn names_that_cannot_be_are_told_apart_from_those_that_are_not() {
        assert_eq!(by_name("nosuchinterface"), Err(Errno::NODEV));
        assert_eq!(by_name("nosuchinterface0"), Err(Errno::NAMETOOLONG));
        assert_eq!(by_name(""), Err(Errno::NODEV));
        assert_eq!(by_name("l\0o"), Err(Errno::NODEV));
        assert_eq!(by_index(0x7fff_fff0), Err(Errno::NODEV));
        assert_eq!(speed("lo"), None);
    }
}
