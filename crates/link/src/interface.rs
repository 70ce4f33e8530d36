//! The interfaces of this machine.

use crate::{Error, MacAddr, Result};
use bypath_sys::{Errno, netif};

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Number, from 1.
    pub index: u32,
    /// Name, such as `eth0`.
    pub name: String,
    /// Hardware address.
    pub mac: MacAddr,
    /// Largest payload of a frame in octets.
    pub mtu: u32,
    /// IFF_... of netdevice(7).
    pub flags: u32,
    /// Whether it is switched on.
    pub up: bool,
    /// Whether a cable, or a peer, is there; `None` where that is not told, or it is down.
    pub carrier: Option<bool>,
    /// Whether it is the loopback interface.
    pub loopback: bool,
    /// Whether it carries Ethernet frames.
    pub ethernet: bool,
    /// Queueing discipline of sent frames, such as `noqueue`, `fq` or `mq`.
    pub queueing: String,
}

impl From<netif::Interface> for Interface {
    fn from(i: netif::Interface) -> Interface {
        Interface {
            index: i.index,
            mac: MacAddr(i.mac),
            mtu: i.mtu,
            flags: i.flags,
            up: i.is_up(),
            carrier: i.carrier,
            loopback: i.is_loopback(),
            ethernet: i.is_ethernet(),
            name: i.name,
            queueing: i.queueing,
        }
    }
}

impl Interface {
    /// Whether an interface can have such a name: 1 to 15 octets, without slash, colon or space, and neither `.` nor `..`.
    pub fn is_name(name: &str) -> bool {
        let odd = |c: char| c == '/' || c == ':' || c == '\0' || c.is_whitespace();
        (1..=netif::LONGEST_NAME).contains(&name.len()) && name != "." && name != ".." && !name.contains(odd)
    }

    /// The interface of this name.
    ///
    /// # Errors
    /// [`Error::Unknown`] with the names there are; [`Error::NameTooLong`]; others of the system.
    pub fn named(name: &str) -> Result<Interface> {
        match netif::by_name(name) {
            Ok(found) => Ok(found.into()),
            Err(Errno::NAMETOOLONG) => Err(Error::NameTooLong { interface: name.to_owned() }),
            Err(Errno::NODEV) => {
                let names = list().map(|all| all.into_iter().map(|i| i.name).collect()).unwrap_or_default();
                Err(Error::Unknown { interface: name.to_owned(), known: names })
            }
            Err(e) => Err(Error::system("ask for the interface", e)),
        }
    }

    /// Speed in Mbit/s; `None` where the driver does not tell one.
    pub fn speed(&self) -> Option<u32> {
        netif::speed(&self.name)
    }
}

/// All interfaces of the calling thread's network namespace, by index.
///
/// # Errors
/// [`Error::System`].
pub fn list() -> Result<Vec<Interface>> {
    let found = netif::list().map_err(|e| Error::system("list the interfaces", e))?;
    Ok(found.into_iter().map(Interface::from).collect())
}
