//! Packets through a TUN device: the kernel's end is one host, the program's end is another one, with an address of its own.

use super::{BATCH, Road};
use crate::output::Failure;
use crate::raw;
use bypath::link::{Error, FrameMeta, Link};
use bypath::roce::Device as Pairs;
use bypath::tun::{Device, Offloads};
use bypath::wire::roce::Envelope;
use bypath::wire::{IpProtocol, Ipv4Header, Ipv6Header, Network};
use std::net::IpAddr;
use std::os::fd::BorrowedFd;

/// Octets of an IP packet: a path MTU of 4096, and headers.
const MTU: u32 = 4200;

/// A device, and the address of the program's end.
pub struct Tun {
    device: Device,
    address: IpAddr,
    port: u16,
    full: bool,
}

impl Tun {
    pub fn open(name: &str, kernel: (IpAddr, u8), address: IpAddr) -> Result<Tun, Failure> {
        if kernel.0.is_ipv4() != address.is_ipv4() || kernel.0 == address {
            let text = format!(
                "--bind {address} is the program's end of the device and --net {}/{} the kernel's: two addresses of one IP \
                 version",
                kernel.0, kernel.1
            );
            return Err(Failure::new(2, text));
        }
        // Nobody sends super-packets to it, and the checksums that count are made here.
        let device = Device::tun(name).mtu(MTU).address(kernel.0, kernel.1).offloads(Offloads::NONE);
        let device = device.open().map_err(raw::failed)?;
        // Some flow of its own, in the range for that (RFC 6335, 6).
        let port = 0xc000 | (bypath_sys::process::random_u64() as u16 & 0x3fff);
        Ok(Tun { device, address, port, full: false })
    }
}

impl Road for Tun {
    fn name(&self) -> String {
        format!("TUN device {}, address {}", self.device.name(), self.address)
    }

    fn mtu(&self) -> usize {
        self.device.mtu()
    }

    fn window(&self) -> u32 {
        // The other end is a socket.
        32
    }

    fn way(&mut self, to: IpAddr) -> Result<Option<Envelope>, Failure> {
        let network = match (self.address, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => Network::V4(Ipv4Header::new(from, to, IpProtocol::UDP)),
            (IpAddr::V6(from), IpAddr::V6(to)) => Network::V6(Ipv6Header::new(from, to, IpProtocol::UDP)),
            (from, to) => {
                return Err(Failure::new(2, format_args!("{from} and {to} are not of one IP version")));
            }
        };
        Ok(Some(Envelope::new(network, self.port)))
    }

    fn receive(&mut self, pairs: &mut Pairs, now: u64) -> Result<usize, Failure> {
        match self.device.receive(BATCH, &mut |packet, _| pairs.handle(now, packet)) {
            Err(Error::WouldBlock | Error::Interrupted) => Ok(0),
            other => other.map_err(raw::failed),
        }
    }

    fn send(&mut self, pairs: &mut Pairs, now: u64) -> Result<usize, Failure> {
        let mut more = true;
        let sent = self.device.send(BATCH, &mut |room| {
            let len = pairs.poll_transmit(now, room);
            more = len.is_some();
            len.map(|len| (len, FrameMeta::default()))
        });
        let sent = sent.and_then(|sent| Ok((sent, self.device.flush()?)));
        let (sent, pending) = match sent {
            Err(Error::QueueFull { .. } | Error::WouldBlock | Error::Interrupted) => (0, 1),
            other => other.map_err(raw::failed)?,
        };
        self.full = pending > 0 || (more && sent < BATCH);
        Ok(sent)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.descriptor()
    }

    fn is_full(&self) -> bool {
        self.full
    }
}
