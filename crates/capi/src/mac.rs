//! Hardware addresses.

use crate::boundary::{guarded, slice_mut, text, write};
use crate::status::{Failure, bypath_error, bypath_status, put_text};
use bypath_link::MacAddr;
use std::ffi::c_char;

/// A hardware address, in the order in which it is sent.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct bypath_mac {
    /// Its octets.
    pub octets: [u8; 6],
}

/// Octets of an address's text, terminating zero included.
pub const BYPATH_MAC_TEXT: usize = 18;

impl From<MacAddr> for bypath_mac {
    fn from(mac: MacAddr) -> bypath_mac {
        bypath_mac { octets: mac.0 }
    }
}

impl From<bypath_mac> for MacAddr {
    fn from(mac: bypath_mac) -> MacAddr {
        MacAddr(mac.octets)
    }
}

/// The address of everybody.
#[unsafe(no_mangle)]
pub extern "C" fn bypath_mac_broadcast() -> bypath_mac {
    MacAddr::BROADCAST.into()
}

/// Reads an address such as `02:00:5e:10:00:01`, or with `-`.
///
/// Fails with `BYPATH_E_INVALID`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_mac_parse(
    address: *const c_char,
    mac: *mut bypath_mac,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let address = text(address, "address")?;
        let parsed = address.parse::<MacAddr>().map_err(|e| Failure::invalid(format!("`{address}`: {e}")))?;
        write(mac, "mac", parsed.into())
    })
}

/// Writes an address as text, such as `02:00:5e:10:00:01`, into `BYPATH_MAC_TEXT` octets.
///
/// Fails with `BYPATH_E_INVALID` if `address` is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_mac_format(
    mac: bypath_mac,
    address: *mut c_char,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        put_text(slice_mut(address, BYPATH_MAC_TEXT, "address")?, &MacAddr::from(mac).to_string());
        Ok(())
    })
}
