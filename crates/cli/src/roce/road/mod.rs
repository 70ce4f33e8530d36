//! Ways for RoCEv2 packets in and out of this host.

mod ethernet;
mod tun;
mod udp;

use crate::output::Failure;
use crate::raw;
use bypath::l2::MacAddr;
use bypath::link::{Each, Error, FrameMeta, Link};
use bypath::roce::Device;
use bypath::wire::roce::Envelope;
use bypath::wire::{IpProtocol, Ipv4Header, Ipv6Header, Network, TrafficClass};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// A way for IP packets.
pub trait Road {
    /// What it is, for people.
    fn name(&self) -> String;

    /// The interface whose MTU it has.
    fn interface(&self) -> String;

    /// Octets of an IP packet at most.
    fn mtu(&self) -> usize;

    /// Packets that may be on their way without an acknowledgement: as many as a receiver's queue holds.
    fn window(&self) -> u32;

    /// What packets to this address begin with; `None`: not known yet, ask again.
    ///
    /// # Errors
    /// There is no way to it.
    fn way(&mut self, to: IpAddr) -> Result<Option<Envelope>, Failure>;

    /// Gives what has arrived to the device; returns how many packets.
    ///
    /// # Errors
    /// The interface is gone, or another error of the system.
    fn receive(&mut self, device: &mut Device, now: u64) -> Result<usize, Failure>;

    /// Sends what the device has to send, as far as there is room; returns how many packets.
    ///
    /// # Errors
    /// As [`Road::receive`].
    fn send(&mut self, device: &mut Device, now: u64) -> Result<usize, Failure>;

    /// To be waited for.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;

    /// Whether something waits for room.
    fn is_full(&self) -> bool;

    /// The last error in sending that passes, as the end of a sentence; nothing if there was none.
    fn trouble(&self) -> String {
        String::new()
    }
}

/// Which way packets go.
#[derive(Debug, clap::Args)]
pub struct Which {
    /// This host's address: with it the packets are sent and received [default: what the routes say; recv: any, of IPv4 and IPv6]
    #[arg(long, value_name = "IP")]
    bind: Option<IpAddr>,

    /// Not through a UDP socket: as raw Ethernet frames of this interface, with --bind as the address. Best one that the
    /// kernel does not have
    #[arg(long, value_name = "IFACE", requires = "bind")]
    iface: Option<String>,

    /// Not through a UDP socket: through a TUN device that is made, of this name (`tun%d`: of the first free number). --bind is
    /// the program's end of it [default: the address after the kernel's]
    #[arg(long, value_name = "DEVICE", conflicts_with = "iface", requires = "net")]
    tun: Option<String>,

    /// The kernel's end of the TUN device, with the length of the network's prefix
    #[arg(long, value_name = "ADDRESS/PREFIX", requires = "tun", value_parser = crate::cmd::tun::network)]
    net: Option<(IpAddr, u8)>,

    /// The peer's hardware address, where it cannot be asked for (IPv6)
    #[arg(long, value_name = "MAC", requires = "iface", value_parser = crate::raw::mac)]
    to_mac: Option<MacAddr>,
}

/// Packets that are moved in one go at most.
const BATCH: usize = 64;

/// The IP header between two addresses.
fn between(from: IpAddr, to: IpAddr, class: TrafficClass) -> Result<Network, Failure> {
    match (from, to) {
        (IpAddr::V4(a), IpAddr::V4(b)) => {
            Ok(Network::V4(Ipv4Header { class, ..Ipv4Header::new(a, b, IpProtocol::UDP) }))
        }
        (IpAddr::V6(a), IpAddr::V6(b)) => {
            Ok(Network::V6(Ipv6Header { class, ..Ipv6Header::new(a, b, IpProtocol::UDP) }))
        }
        _ => Err(Failure::new(2, format_args!("{from} and {to} are not of one IP version"))),
    }
}

/// A source port for a flow of its own, in the range for that (RFC 6335, 6).
fn own_port() -> u16 {
    0xc000 | (bypath_sys::process::random_u64() as u16 & 0x3fff)
}

/// Whether an IP packet says that it is to this address.
fn is_to(packet: &[u8], address: IpAddr) -> bool {
    let version = packet.first().map(|first| first >> 4);
    match address {
        IpAddr::V4(own) => version == Some(4) && packet.get(16..20) == Some(&own.octets()),
        IpAddr::V6(own) => version == Some(6) && packet.get(24..40) == Some(&own.octets()),
    }
}

/// Gives what has arrived on a link to `each`; returns how many frames.
fn receive_by(link: &mut impl Link, each: &mut Each<'_>) -> Result<usize, Failure> {
    match link.receive(BATCH, each) {
        Err(Error::WouldBlock | Error::Interrupted) => Ok(0),
        other => other.map_err(raw::failed),
    }
}

/// Sends on a link what `next` writes, as long as it does; returns how many frames, and whether something waits for room.
fn send_by(
    link: &mut impl Link,
    next: &mut dyn FnMut(&mut [u8]) -> Option<usize>,
) -> Result<(usize, bool), Failure> {
    let mut more = true;
    let sent = link.send(BATCH, &mut |room| {
        let len = next(room);
        more = len.is_some();
        len.map(|len| (len, FrameMeta::default()))
    });
    let (sent, pending) = match sent.and_then(|sent| Ok((sent, link.flush()?))) {
        // Lost as on any network: it is sent again.
        Err(Error::QueueFull { .. } | Error::WouldBlock | Error::Interrupted) => (0, 1),
        other => other.map_err(raw::failed)?,
    };
    Ok((sent, pending > 0 || (more && sent < BATCH)))
}

impl Which {
    /// Opens it. `peer`: whom it is to reach, if that is known.
    ///
    /// # Errors
    /// The address or interface cannot be used.
    pub fn open(&self, peer: Option<IpAddr>) -> Result<Box<dyn Road>, Failure> {
        if let (Some(a), Some(b)) = (self.bind, peer)
            && a.is_ipv4() != b.is_ipv4()
        {
            return Err(Failure::new(2, format_args!("--bind {a} and --to {b} are not of one IP version")));
        }
        if let (Some(name), Some(net)) = (&self.tun, self.net) {
            let address = self.bind.unwrap_or_else(|| crate::cmd::tun::beside(net));
            return Ok(Box::new(tun::Tun::open(name, net, address)?));
        }
        match (&self.iface, self.bind) {
            (Some(interface), Some(address)) => {
                Ok(Box::new(ethernet::Ethernet::open(interface, address, self.to_mac)?))
            }
            (_, bind) => {
                let road = match (bind, peer) {
                    (Some(bind), _) => udp::Udp::open(bind, peer.is_none())?,
                    (None, Some(peer)) => udp::Udp::open(udp::source_towards(peer)?, false)?,
                    (None, None) => udp::Udp::open_any()?,
                };
                Ok(Box::new(road))
            }
        }
    }
}
