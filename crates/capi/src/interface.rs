//! The interfaces of this machine.

use crate::boundary::{guarded, slice_mut, text, writable, write};
use crate::mac::bypath_mac;
use crate::status::{bypath_error, bypath_status};
use crate::types::fixed;
use bypath_link::{Interface, interface};
use std::ffi::c_char;

/// Octets of an interface's name, terminating zero included.
pub const BYPATH_INTERFACE_NAME: usize = 16;
/// Octets of the name of a queueing discipline, terminating zero included.
pub const BYPATH_QUEUEING_NAME: usize = 32;

/// An interface.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_interface {
    /// Number, from 1.
    pub index: u32,
    /// Largest payload of a frame in octets.
    pub mtu: u32,
    /// IFF_... of netdevice(7).
    pub flags: u32,
    /// Speed in Mbit/s; 0 where the driver does not tell one.
    pub speed: u32,
    /// Whether a cable, or a peer, is there: 1 or 0; -1 where that is not told, or it is down.
    pub carrier: i32,
    /// 1 if it is switched on, 0 if not.
    pub up: u8,
    /// 1 for the loopback interface.
    pub loopback: u8,
    /// 1 if it carries Ethernet frames.
    pub ethernet: u8,
    /// Hardware address.
    pub mac: bypath_mac,
    /// Name, such as `eth0`.
    pub name: [c_char; BYPATH_INTERFACE_NAME],
    /// Queueing discipline of sent frames, such as `noqueue`, `fq` or `mq`.
    pub queueing: [c_char; BYPATH_QUEUEING_NAME],
}

impl From<&Interface> for bypath_interface {
    fn from(i: &Interface) -> bypath_interface {
        bypath_interface {
            index: i.index,
            mtu: i.mtu,
            flags: i.flags,
            speed: i.speed().unwrap_or(0),
            carrier: i.carrier.map_or(-1, i32::from),
            up: i.up.into(),
            loopback: i.loopback.into(),
            ethernet: i.ethernet.into(),
            mac: i.mac.into(),
            name: fixed(&i.name),
            queueing: fixed(&i.queueing),
        }
    }
}

/// All interfaces of the calling thread's network namespace, by index.
///
/// Writes up to `capacity` of them into `list`, and into `count` how many there are, which may be more. With a capacity
/// of 0 `list` may be NULL.
///
/// Fails with `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_interfaces(
    list: *mut bypath_interface,
    capacity: usize,
    count: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(count, "count")?;
        let places = slice_mut(list, capacity, "list")?;
        let all = interface::list()?;
        for (place, found) in places.iter_mut().zip(&all) {
            *place = found.into();
        }
        write(count, "count", all.len())
    })
}

/// The interface of this name.
///
/// Fails with `BYPATH_E_UNKNOWN`, `BYPATH_E_NAME`, `BYPATH_E_INVALID`, `BYPATH_E_SYSTEM`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_interface_named(
    name: *const c_char,
    found: *mut bypath_interface,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        writable(found, "found")?;
        write(found, "found", (&Interface::named(text(name, "name")?)?).into())
    })
}
