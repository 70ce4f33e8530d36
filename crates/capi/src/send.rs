//! Frames out.

use crate::boundary::{guarded, octets, read, slice, write};
use crate::mac::bypath_mac;
use crate::socket::{bypath_l2_socket, with};
use crate::status::{Failure, bypath_error, bypath_status};
use crate::types::bypath_vlan_tag;
use bypath_link::l2::Header;
use std::ffi::c_void;

/// What stands before the payload of a frame to be sent. Fill it by `bypath_l2_header_init`.
#[repr(C)]
pub struct bypath_l2_header {
    /// When it is to be sent, in ns of the clock asked for by `send_clock`; 0: at once.
    pub at_ns: u64,
    /// To whom.
    pub destination: bypath_mac,
    /// From whom.
    pub source: bypath_mac,
    /// The VLAN tag.
    pub vlan: bypath_vlan_tag,
    /// A second tag, behind the first.
    pub inner_vlan: bypath_vlan_tag,
    /// What the payload is.
    pub ethertype: u16,
}

/// Octets to be sent.
#[repr(C)]
pub struct bypath_octets {
    /// Where they are; may be NULL if there are none.
    pub data: *const c_void,
    /// How many.
    pub len: usize,
}

/// Fills a header with what `bypath_l2_send` would send: the own address, tag and EtherType of the socket (0 if it has
/// none), at once.
///
/// Fails with `BYPATH_E_INVALID`, `BYPATH_E_BUSY`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_header_init(
    socket: *mut bypath_l2_socket,
    to: bypath_mac,
    header: *mut bypath_l2_header,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let h = with(socket, |s| Ok(s.header(to.into())))?;
        let filled = bypath_l2_header {
            at_ns: 0,
            destination: h.destination.into(),
            source: h.source.into(),
            vlan: h.vlan.into(),
            inner_vlan: h.inner_vlan.into(),
            ethertype: h.ethertype,
        };
        write(header, "header", filled)
    })
}

/// Sends one frame, with the socket's EtherType and tag. Short payloads are padded with zeroes to
/// `BYPATH_SHORTEST_PAYLOAD` octets; the receiver cannot tell padding from payload.
///
/// Fails with `BYPATH_E_TOO_LONG` beyond the MTU, `BYPATH_E_TIMED_OUT`, `BYPATH_E_WOULD_BLOCK`, `BYPATH_E_INTERRUPTED`,
/// `BYPATH_E_QUEUE_FULL`, `BYPATH_E_DOWN`, `BYPATH_E_GONE`, `BYPATH_E_INVALID`, `BYPATH_E_BUSY`, `BYPATH_E_SYSTEM`; the
/// frame was not sent then.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_send(
    socket: *mut bypath_l2_socket,
    to: bypath_mac,
    payload: *const c_void,
    len: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let payload = octets(payload, len, "payload")?;
        with(socket, |s| Ok(s.send(to.into(), payload)?))
    })
}

/// Sends one frame with a header of your own. Fails as `bypath_l2_send` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_send_with(
    socket: *mut bypath_l2_socket,
    header: *const bypath_l2_header,
    payload: *const c_void,
    len: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let header = read(header, "header")?;
        let payload = octets(payload, len, "payload")?;
        let (vlan, inner_vlan) = (header.vlan.checked()?, header.inner_vlan.checked()?);
        if vlan.is_none() && inner_vlan.is_some() {
            return Err(Failure::invalid("an `inner_vlan` needs a `vlan` before it"));
        }
        let header = Header {
            destination: header.destination.into(),
            source: header.source.into(),
            vlan,
            inner_vlan,
            ethertype: header.ethertype,
            at: (header.at_ns != 0).then_some(header.at_ns),
        };
        with(socket, |s| Ok(s.send_with(&header, payload)?))
    })
}

/// Sends a whole frame as it is: header included, without frame check sequence; no tag and no padding is added.
///
/// Fails as `bypath_l2_send` does, and with `BYPATH_E_TOO_SHORT` for less than `BYPATH_HEADER` octets.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_send_octets(
    socket: *mut bypath_l2_socket,
    frame: *const c_void,
    len: usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        let frame = octets(frame, len, "frame")?;
        with(socket, |s| Ok(s.send_octets(frame)?))
    })
}

/// Sends many frames to one address, with as few system calls as the mode needs.
///
/// `*sent` is how many were sent: fewer than `count` if the time was over, or something went wrong after the first ones;
/// 0 if it fails. Fails as `bypath_l2_send` does.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn bypath_l2_send_batch(
    socket: *mut bypath_l2_socket,
    to: bypath_mac,
    payloads: *const bypath_octets,
    count: usize,
    sent: *mut usize,
    error: *mut bypath_error,
) -> bypath_status {
    guarded(error, || {
        write(sent, "sent", 0)?;
        let payloads = slice(payloads, count, "payloads")?;
        for payload in payloads {
            octets(payload.data, payload.len, "data")?;
        }
        // All of them are as they should be: none is left out.
        let all = payloads.iter().filter_map(|p| octets(p.data, p.len, "data").ok());
        write(sent, "sent", with(socket, |s| Ok(s.send_batch(to.into(), all)?))?)
    })
}
