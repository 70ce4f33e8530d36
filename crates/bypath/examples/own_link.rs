//! A link of one's own: Ethernet frames in datagrams of the kernel's, between two hosts of ours. What they say to each other, ARP and
//! all, goes through 127.0.0.1; nothing but the two sockets needs the kernel, and no right is needed.
//!
//!     cargo run --example own_link

use bypath::link::{
    Capabilities, Each, Error, FrameMeta, Link, MacAddr, Medium, Next, Statistics, Timestamps,
};
use bypath::netstack::{self, Engine, Host};
use bypath::stack::config::Config;
use std::net::UdpSocket;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Octets of a packet at most.
const MTU: usize = 1400;
/// Octets of headers in front of it: Ethernet and a VLAN tag.
const HEADERS: usize = 18;

/// One end. The socket is connected to the other one.
struct Tunnel {
    socket: UdpSocket,
    mac: MacAddr,
    statistics: Statistics,
}

impl Tunnel {
    fn new(socket: UdpSocket, last: u8) -> std::io::Result<Tunnel> {
        // No call of a link waits.
        socket.set_nonblocking(true)?;
        Ok(Tunnel { socket, mac: MacAddr([2, 0, 0, 0, 0, last]), statistics: Statistics::default() })
    }
}

impl Link for Tunnel {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            medium: Medium::Ethernet,
            mac: self.mac,
            mtu: MTU,
            tagged_mtu: MTU,
            longest: MTU + HEADERS,
            // Nobody but the stack computes checksums, or cuts.
            checksum: false,
            segmentation: false,
            timestamps: Timestamps::None,
            send_time: false,
            batch: 64,
            // It does not go down.
            wakes_at_end: true,
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn receive(&mut self, most: usize, each: &mut Each<'_>) -> Result<usize, Error> {
        let mut frame = [0; MTU + HEADERS];
        for received in 0..most {
            // Whatever the socket says, there is nothing for now: the other end may not be there.
            let Ok(len) = self.socket.recv(&mut frame) else { return Ok(received) };
            self.statistics.received += 1;
            self.statistics.received_octets += len as u64;
            each(&frame[..len], &FrameMeta::default());
        }
        Ok(most)
    }

    fn send(&mut self, most: usize, next: &mut Next<'_>) -> Result<usize, Error> {
        let mut frame = [0; MTU + HEADERS];
        for sent in 0..most {
            let Some((len, _)) = next(&mut frame) else { return Ok(sent) };
            // What the kernel does not take is lost, as on any network.
            match self.socket.send(&frame[..len]) {
                Ok(_) => self.statistics.sent += 1,
                Err(_) => self.statistics.refused += 1,
            }
            self.statistics.sent_octets += len as u64;
        }
        Ok(most)
    }

    fn flush(&mut self) -> Result<usize, Error> {
        // Nothing is kept for later.
        Ok(0)
    }

    fn forget(&mut self) -> usize {
        0
    }

    fn statistics(&mut self) -> Statistics {
        self.statistics
    }
}

fn host(link: Tunnel, address: &str) -> Result<Host, Box<dyn std::error::Error>> {
    let mut engine = Engine::new(Config::default());
    let iface = engine.add_link("tunnel", Box::new(link))?;
    engine.stack().add_address(Engine::now(), iface, address.parse()?)?;
    Ok(Host::run(engine)?)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (one, two) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    one.connect(two.local_addr()?)?;
    two.connect(one.local_addr()?)?;
    let alice = host(Tunnel::new(one, 1)?, "10.0.0.1/24")?;
    let bob = host(Tunnel::new(two, 2)?, "10.0.0.2/24")?;

    let server = netstack::UdpSocket::bind(&bob, "10.0.0.2:7".parse()?)?;
    let client = netstack::UdpSocket::bind(&alice, "10.0.0.1:0".parse()?)?;
    server.set_timeout(Some(Duration::from_secs(5)));
    // Longer than a packet: it is cut, and put together again.
    client.send_to(&[7; 5000], "10.0.0.2:7".parse()?)?;
    let mut buffer = [0; 65_535];
    let (len, from) = server.recv_from(&mut buffer)?;
    println!("{}: {len} octets", from.ip());
    Ok(())
}
