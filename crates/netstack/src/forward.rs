//! Datagrams that are for others: whoever runs a proxy, a tunnel or a NAT gets all UDP that comes through the links, to whatever
//! address and port, and answers as if he were there.
//!
//! ```no_run
//! use bypath_netstack::{Engine, Host, UdpForwarder};
//! use bypath_link::tun::Device;
//! use bypath_stack::config::Config;
//! use bypath_stack::prefix::Prefix;
//! use bypath_stack::route::Route;
//!
//! let mut engine = Engine::new(Config::default());
//! let device = Device::tun("tun0").address("10.9.0.1".parse()?, 24).open()?;
//! let iface = engine.add_link("tun0", Box::new(device))?;
//! engine.stack().add_address(Engine::now(), iface, "10.9.0.2/24".parse()?)?;
//! // Answers to anybody go out there.
//! engine.stack().add_route(Route { prefix: Prefix::ALL_V4, iface, via: None, metric: 0, source: None })?;
//!
//! let host = Host::run(engine)?;
//! let forwarder = UdpForwarder::open(&host)?;
//! let mut room = [0; 65_535];
//! loop {
//!     let got = forwarder.recv(&mut room)?;
//!     println!("{} asks {}", got.from, got.to);
//!     forwarder.answer(b"nobody is here", got.to, got.from)?;
//! }
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use crate::{Host, UdpSocket};
use bypath_stack::SendTo;
use bypath_stack::socket::Datagram;
use std::io::{self, ErrorKind};
use std::net::{Ipv6Addr, SocketAddr};
use std::time::Duration;

/// A datagram for somebody else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Forwarded {
    /// Its octets, as far as they fit into the room; the rest is lost.
    pub len: usize,
    /// Who sent it. A link-local address has its interface as scope.
    pub from: SocketAddr,
    /// For whom it is.
    pub to: SocketAddr,
    /// What else is known of it: through which interface it came, its hop limit and traffic class.
    pub datagram: Datagram,
}

/// What gets the UDP datagrams of a [`Host`]'s links that are for nobody there. A host has one at most. What is for groups, and
/// for everybody on a link, does not come here, nor do fragments over IPv6.
pub struct UdpForwarder {
    socket: UdpSocket,
}

impl UdpForwarder {
    /// From now on, what is for others comes here.
    ///
    /// # Errors
    /// AddrInUse: the host has one; OutOfMemory: the stack has as many sockets as it may.
    pub fn open(host: &Host) -> io::Result<UdpForwarder> {
        // Of both kinds of addresses. What is sent to the port of ours that it is bound to comes here, too.
        let socket = UdpSocket::bind(host, SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)))?;
        host.with(|engine| {
            let stack = engine.stack();
            if stack.udp_forwarder().is_some() {
                return Err(io::Error::new(ErrorKind::AddrInUse, "the host has a forwarder already"));
            }
            stack.set_udp_forwarder(Some(socket.id()));
            Ok(())
        })?;
        Ok(UdpForwarder { socket })
    }

    /// Waits for a datagram.
    ///
    /// # Errors
    /// TimedOut; BrokenPipe: the host has ended.
    pub fn recv(&self, room: &mut [u8]) -> io::Result<Forwarded> {
        let received = self.socket.receive(room)?;
        let datagram = received.datagram;
        Ok(Forwarded { len: received.len.min(room.len()), from: datagram.from, to: datagram.to, datagram })
    }

    /// Sends a datagram to `to` as if `from` had sent it. Waits for room.
    ///
    /// # Errors
    /// NetworkUnreachable: no route of the stack leads to `to`. InvalidInput: it is too long, or the addresses are not of one
    /// kind. TimedOut. BrokenPipe: the host has ended.
    pub fn answer(&self, octets: &[u8], from: SocketAddr, to: SocketAddr) -> io::Result<usize> {
        let how = SendTo {
            to: Some(to),
            source: Some(from.ip()),
            source_port: Some(from.port()),
            ..SendTo::default()
        };
        self.socket.send_with(octets, &how)
    }

    /// Longest wait of a call; `None`: it waits as long as it takes.
    pub fn set_timeout(&self, timeout: Option<Duration>) {
        self.socket.set_timeout(timeout);
    }

    /// Octets of datagrams that wait to be read at most: what comes while it is full is lost.
    ///
    /// # Errors
    /// BrokenPipe: the host has ended.
    pub fn set_receive_octets(&self, octets: usize) -> io::Result<()> {
        self.socket.set_receive_octets(octets)
    }
}
