//! What a network device says of itself by `ioctl(SIOCETHTOOL)` (linux/ethtool.h): interrupt coalescing, ring sizes,
//! offloads, flow control, energy-efficient Ethernet. Reading needs no privilege, changing CAP_NET_ADMIN.

use crate::netif::{LONGEST_NAME, ethtool};
use crate::netlink::Netlink;
use crate::{Errno, Result};

const GET_DRIVER: u32 = 0x03;
const GET_COALESCE: u32 = 0x0e;
const GET_RINGS: u32 = 0x10;
const GET_PAUSE: u32 = 0x12;
const SET_TX_CHECKSUM: u32 = 0x17;
const GET_FLAGS: u32 = 0x25;
const GET_GRO: u32 = 0x2b;
const GET_CHANNELS: u32 = 0x3c;
const GET_EEE: u32 = 0x44;

const FLAG_RX_VLAN: u32 = 1 << 8;
const FLAG_LRO: u32 = 1 << 15;

/// Interrupt coalescing (`ethtool -c`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Coalescing {
    /// Microseconds that a received frame may wait for others before an interrupt.
    pub rx_usecs: u32,
    /// Received frames after which the interrupt comes at once; 0 counts as no limit with some drivers.
    pub rx_frames: u32,
    /// The device chooses the delay by load.
    pub rx_adaptive: bool,
}

/// Descriptor rings (`ethtool -g`), in frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rings {
    /// Receive descriptors in use.
    pub rx: u32,
    /// Receive descriptors that the device could have.
    pub rx_most: u32,
}

/// Offloads that merge frames or take parts out of them (`ethtool -k`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// The kernel merges received TCP and UDP segments (generic receive offload).
    pub gro: bool,
    /// The device merges received TCP segments (large receive offload).
    pub lro: bool,
    /// The device takes the VLAN tag out of received frames.
    pub rx_vlan: bool,
}

/// A device that can be asked.
pub struct Device {
    socket: Netlink,
    name: String,
}

impl Device {
    /// The device of this name in the caller's network namespace. Whether it exists, the first question tells.
    ///
    /// # Errors
    /// EINVAL: empty, longer than 15 octets, or with a NUL; as socket(2).
    pub fn open(name: &str) -> Result<Device> {
        if name.is_empty() || name.len() > LONGEST_NAME || name.contains('\0') {
            return Err(Errno::INVAL);
        }
        Ok(Device { socket: Netlink::open()?, name: name.to_owned() })
    }

    /// Asks one question; `N` words are filled in, the first is the question.
    fn ask<const N: usize>(&self, question: u32) -> Result<[u32; N]> {
        let mut words = [0; N];
        words[0] = question;
        ethtool(self.socket.descriptor(), &self.name, &mut words)?;
        Ok(words)
    }

    /// Interrupt coalescing.
    ///
    /// # Errors
    /// EOPNOTSUPP: the device has none; ENODEV: no such device.
    pub fn coalescing(&self) -> Result<Coalescing> {
        // struct ethtool_coalesce: the command and 22 words.
        let w: [u32; 23] = self.ask(GET_COALESCE)?;
        Ok(Coalescing { rx_usecs: w[1], rx_frames: w[2], rx_adaptive: w[10] != 0 })
    }

    /// Descriptor rings.
    ///
    /// # Errors
    /// As [`Device::coalescing`].
    pub fn rings(&self) -> Result<Rings> {
        // struct ethtool_ringparam.
        let w: [u32; 9] = self.ask(GET_RINGS)?;
        Ok(Rings { rx: w[5], rx_most: w[1] })
    }

    /// Queues through which it receives (`ethtool -l`: those of both ways, and those for receiving only).
    ///
    /// # Errors
    /// As [`Device::coalescing`].
    pub fn receive_queues(&self) -> Result<u32> {
        // struct ethtool_channels: command, four most counts, then receive, transmit, other, combined.
        let w: [u32; 9] = self.ask(GET_CHANNELS)?;
        Ok(w[5].saturating_add(w[8]))
    }

    /// Offloads on the receiving side.
    ///
    /// # Errors
    /// As [`Device::coalescing`].
    pub fn offloads(&self) -> Result<Offloads> {
        // struct ethtool_value, twice.
        let [_, gro] = self.ask(GET_GRO)?;
        let [_, flags] = self.ask(GET_FLAGS)?;
        Ok(Offloads { gro: gro != 0, lro: flags & FLAG_LRO != 0, rx_vlan: flags & FLAG_RX_VLAN != 0 })
    }

    /// Whether checksums of what is sent may be left to the device (`ethtool -K NAME tx on|off`). Without, none is left out, and
    /// nothing longer than its MTU is given to it.
    ///
    /// # Errors
    /// EPERM without CAP_NET_ADMIN; as [`Device::coalescing`].
    pub fn set_transmit_checksums(&self, on: bool) -> Result<()> {
        // struct ethtool_value.
        ethtool(self.socket.descriptor(), &self.name, &mut [SET_TX_CHECKSUM, on.into()])
    }

    /// Name of its driver, such as `veth` (`ethtool -i`).
    ///
    /// # Errors
    /// As [`Device::coalescing`].
    pub fn driver(&self) -> Result<String> {
        // struct ethtool_drvinfo: the command, five names of 32 octets each, two fillers, five words.
        let w: [u32; 49] = self.ask(GET_DRIVER)?;
        let octets: Vec<u8> =
            w[1..9].iter().flat_map(|w| w.to_ne_bytes()).take_while(|&octet| octet != 0).collect();
        Ok(String::from_utf8_lossy(&octets).into_owned())
    }

    /// Whether the device obeys PAUSE frames of its neighbour (IEEE 802.3, annex 31B).
    ///
    /// # Errors
    /// As [`Device::coalescing`].
    pub fn obeys_pause(&self) -> Result<bool> {
        // struct ethtool_pauseparam: command, autonegotiation, receive, transmit.
        let w: [u32; 4] = self.ask(GET_PAUSE)?;
        Ok(w[2] != 0)
    }

    /// Whether the device lets its transmitter sleep between frames (IEEE 802.3az).
    ///
    /// # Errors
    /// As [`Device::coalescing`].
    pub fn sleeps(&self) -> Result<bool> {
        // struct ethtool_eee: command, three masks, active, enabled, ...
        let w: [u32; 10] = self.ask(GET_EEE)?;
        Ok(w[4] != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_device_answers_what_every_device_knows() {
        let lo = Device::open("lo").unwrap();
        let offloads = lo.offloads().unwrap();
        assert!(!offloads.lro && !offloads.rx_vlan);
        assert_eq!(lo.driver(), Err(Errno::OPNOTSUPP));
        assert_eq!(lo.coalescing(), Err(Errno::OPNOTSUPP));
        assert_eq!(lo.rings(), Err(Errno::OPNOTSUPP));
        assert_eq!(lo.receive_queues(), Err(Errno::OPNOTSUPP));
    }

    #[test]
    fn names_that_cannot_be() {
        assert!(matches!(Device::open(""), Err(Errno::INVAL)));
        assert!(matches!(Device::open("a-name-of-16-oct"), Err(Errno::INVAL)));
        assert!(matches!(Device::open("a\0b"), Err(Errno::INVAL)));
        assert_eq!(Device::open("no-such-device").unwrap().offloads(), Err(Errno::NODEV));
    }
}
