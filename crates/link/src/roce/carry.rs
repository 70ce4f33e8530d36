//! Packets between a device and a link of Ethernet frames.

use super::Device;
use crate::{Link, Result};
use bypath_wire::{EtherType, EthernetHeader, FrameMeta};

/// What was carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// Frames from the link.
    pub received: usize,
    /// Frames to the link.
    pub sent: usize,
}

/// Gives what has arrived on a link to a device, up to `most` frames, and sends up to `most` of what the device has to send.
/// The ways of its queue pairs must begin with an Ethernet header.
///
/// # Errors
/// Those of the link.
pub fn carry(device: &mut Device, link: &mut impl Link, now: u64, most: usize) -> Result<Carried> {
    let received = link.receive(most, &mut |frame, _| {
        if let Ok((header, packet)) = EthernetHeader::parse(frame)
            && matches!(header.ethertype, EtherType::IPV4 | EtherType::IPV6)
        {
            device.handle(now, packet);
        }
    })?;
    let sent =
        link.send(most, &mut |room| device.poll_transmit(now, room).map(|len| (len, FrameMeta::default())))?;
    link.flush()?;
    Ok(Carried { received, sent })
}
