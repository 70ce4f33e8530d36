//! What the device says of itself (ethtool): coalescing, rings, offloads that merge or strip, flow control, sleep.

use super::{Finding, word};
use bypath_sys::ethtool::Device;
use bypath_sys::{Errno, Result};

/// What was found about the device of this name.
///
/// # Errors
/// It is gone, or cannot be asked.
pub fn findings(name: &str) -> Result<Vec<Finding>> {
    let device = Device::open(name)?;
    let name = &word(name);
    let mut found = vec![coalescing(&device, name)?, rings(&device, name)?];
    found.extend(offloads(&device, name)?);
    found.push(pause(&device, name)?);
    found.push(sleep(&device, name)?);
    Ok(found)
}

/// `None`: the device has no such thing.
fn if_any<T>(answer: Result<T>) -> Result<Option<T>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(None),
        Err(e) => Err(e),
    }
}

fn coalescing(device: &Device, name: &str) -> Result<Finding> {
    const CHECK: &str = "coalescing";
    Ok(match if_any(device.coalescing())? {
        None => Finding::good(CHECK, "the device has none"),
        Some(c) if c.rx_usecs == 0 && !c.rx_adaptive => Finding::good(CHECK, "off"),
        Some(c) => {
            let adaptive = if c.rx_adaptive { ", adaptive" } else { "" };
            Finding::hurts(CHECK, format!("{} us, {} frames{adaptive}", c.rx_usecs, c.rx_frames))
                .why("a received frame waits for others before the interrupt")
                .remedy(format!("ethtool -C {name} adaptive-rx off rx-usecs 0"))
        }
    })
}

fn rings(device: &Device, name: &str) -> Result<Finding> {
    const CHECK: &str = "receive-ring";
    Ok(match if_any(device.rings())? {
        None => Finding::good(CHECK, "the device has none"),
        Some(r) if r.rx >= r.rx_most => Finding::good(CHECK, format!("{} frames, its most", r.rx)),
        Some(r) => Finding::note(CHECK, format!("{} of {} frames", r.rx, r.rx_most))
            .why("a burst that comes while the processor is busy is lost beyond it")
            .remedy(format!("ethtool -G {name} rx {}", r.rx_most)),
    })
}

fn offloads(device: &Device, name: &str) -> Result<[Finding; 3]> {
    let Some(o) = if_any(device.offloads())? else {
        return Ok(
            ["gro", "lro", "vlan-stripping"].map(|check| Finding::unknown(check, "the device does not tell"))
        );
    };
    let gro = if o.gro {
        Finding::note("gro", "on")
            .why("raw sockets see TCP and UDP segments merged into frames longer than the MTU; other EtherTypes are left alone")
            .remedy(format!("ethtool -K {name} gro off"))
    } else {
        Finding::good("gro", "off")
    };
    let lro = if o.lro {
        Finding::hurts("lro", "on")
            .why("the device merges TCP segments: what was on the wire cannot be told any more")
            .remedy(format!("ethtool -K {name} lro off"))
    } else {
        Finding::good("lro", "off")
    };
    let vlan = if o.rx_vlan {
        Finding::note("vlan-stripping", "on")
            .why("the tag is not in the frame: it has to be asked for (PACKET_AUXDATA), as bypath does")
            .remedy(format!("ethtool -K {name} rxvlan off"))
    } else {
        Finding::good("vlan-stripping", "off")
    };
    Ok([gro, lro, vlan])
}

fn pause(device: &Device, name: &str) -> Result<Finding> {
    const CHECK: &str = "flow-control";
    Ok(match if_any(device.obeys_pause())? {
        None => Finding::good(CHECK, "the device has none"),
        Some(false) => Finding::good(CHECK, "off"),
        Some(true) => Finding::note(CHECK, "PAUSE frames are obeyed")
            .why("a busy neighbour can hold up everything that is sent, urgent frames too")
            .remedy(format!("ethtool -A {name} autoneg off rx off")),
    })
}

fn sleep(device: &Device, name: &str) -> Result<Finding> {
    const CHECK: &str = "energy-efficient-ethernet";
    Ok(match if_any(device.sleeps())? {
        None => Finding::good(CHECK, "the device has none"),
        Some(false) => Finding::good(CHECK, "not active"),
        Some(true) => Finding::hurts(CHECK, "active")
            .why("the first frame after a pause waits for the transmitter to wake, 16 us and more")
            .remedy(format!("ethtool --set-eee {name} eee off")),
    })
}
