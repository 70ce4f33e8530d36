//! Packets through a TUN device: the kernel's end is one host, the program's end is another one, with an address of its own.

use super::{Road, between, is_to, own_port, receive_by, send_by};
use crate::output::Failure;
use crate::raw;
use bypath::link::Link;
use bypath::roce::Device as Pairs;
use bypath::tun::{Device, Offloads};
use bypath::wire::TrafficClass;
use bypath::wire::roce::Envelope;
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
        Ok(Tun { device, address, port: own_port(), full: false })
    }
}

impl Road for Tun {
    fn name(&self) -> String {
        format!("TUN device {}, address {}", self.device.name(), self.address)
    }

    fn interface(&self) -> String {
        self.device.name().to_string()
    }

    fn mtu(&self) -> usize {
        self.device.mtu()
    }

    fn window(&self) -> u32 {
        // The other end is a socket.
        32
    }

    fn way(&mut self, to: IpAddr) -> Result<Option<Envelope>, Failure> {
        Ok(Some(Envelope::new(between(self.address, to, TrafficClass(0))?, self.port)))
    }

    fn receive(&mut self, pairs: &mut Pairs, now: u64) -> Result<usize, Failure> {
        let address = self.address;
        receive_by(&mut self.device, &mut |packet, _| {
            if is_to(packet, address) {
                pairs.handle(now, packet);
            }
        })
    }

    fn send(&mut self, pairs: &mut Pairs, now: u64) -> Result<usize, Failure> {
        let (sent, full) = send_by(&mut self.device, &mut |room| pairs.poll_transmit(now, room))?;
        self.full = full;
        Ok(sent)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.device.descriptor()
    }

    fn is_full(&self) -> bool {
        self.full
    }
}
