//! A forwarder of UDP, as VPNs and proxies have one: whatever this machine sends into a TUN device, to any host, goes out
//! through another interface from a socket of this program, and comes back as from that host.
//!
//! ```sh
//! cargo build --release -p bypath-netstack --example udp_forward
//! sudo target/release/examples/udp_forward bp0 eth0 &
//! sudo ip route add 192.0.2.0/24 dev bp0        # for whom it shall be
//! ```
//!
//! A flow, that is a sender and a destination, has a socket and a thread until it was quiet for a minute. The routes of the other
//! interface must lead to the destination, too, as the sockets are bound to it: otherwise what they send would come back here.

use bypath_link::tun::Device;
use bypath_netstack::{Engine, Host, UdpForwarder};
use bypath_stack::config::Config;
use bypath_stack::prefix::Prefix;
use bypath_stack::route::Route;
use nix::sys::socket::{setsockopt, sockopt};
use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// A flow that was quiet for so long is forgotten.
const QUIET: Duration = Duration::from_secs(60);
/// Flows at most: what begins further ones is lost.
const MOST: usize = 1000;

/// Sockets, by who sends and for whom.
type Flows = Arc<Mutex<HashMap<(SocketAddr, SocketAddr), Arc<UdpSocket>>>>;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [device, out] = &arguments[..] else {
        return Err("usage: udp_forward DEVICE INTERFACE".into());
    };

    // The device: the kernel has an address at its end, which it sends from, and the stack one at the other.
    let mut engine = Engine::new(Config::default());
    let tun = Device::tun(device).address("10.255.77.1".parse()?, 30).address("fdff:77::1".parse()?, 64);
    let iface = engine.add_link(device, Box::new(tun.open()?))?;
    for own in ["10.255.77.2/30", "fdff:77::2/64"] {
        engine.stack().add_address(Engine::now(), iface, own.parse()?)?;
    }
    // Whoever sends is on the other side of the device, whatever his address.
    for prefix in [Prefix::ALL_V4, Prefix::ALL_V6] {
        engine.stack().add_route(Route { prefix, iface, via: None, metric: 0, source: None })?;
    }

    let host = Host::run(engine)?;
    let forwarder = Arc::new(UdpForwarder::open(&host)?);
    let flows = Flows::default();
    let mut room = vec![0; 65_535];
    println!("forwarding what is routed to {device} through {out}");
    loop {
        let got = forwarder.recv(&mut room)?;
        let flow = (got.from, got.to);
        let known = flows.lock().unwrap_or_else(PoisonError::into_inner).get(&flow).cloned();
        let socket = match known {
            Some(socket) => Ok(socket),
            None => begin(&forwarder, &flows, flow, out),
        };
        // What the network said of an earlier datagram is no reason to end; UDP may lose this one.
        if let Err(e) = socket.and_then(|socket| socket.send(&room[..got.len])) {
            eprintln!("{} to {}: {e}", got.from, got.to);
        }
    }
}

/// A socket of this machine that talks to whom a flow is for, and a thread that brings the answers back.
fn begin(
    forwarder: &Arc<UdpForwarder>,
    flows: &Flows,
    flow: (SocketAddr, SocketAddr),
    out: &str,
) -> io::Result<Arc<UdpSocket>> {
    let (from, to) = flow;
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        SocketAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let socket = Arc::new(UdpSocket::bind(any)?);
    setsockopt(&socket, sockopt::BindToDevice, &out.into()).map_err(io::Error::from)?;
    socket.connect(to)?;
    socket.set_read_timeout(Some(QUIET))?;
    {
        let mut flows = flows.lock().unwrap_or_else(PoisonError::into_inner);
        if flows.len() >= MOST {
            return Err(io::Error::other(format!("there are {MOST} flows already")));
        }
        flows.insert(flow, Arc::clone(&socket));
    }
    let (forwarder, flows, answers) = (Arc::clone(forwarder), Arc::clone(flows), Arc::clone(&socket));
    std::thread::spawn(move || {
        let mut room = vec![0; 65_535];
        // Until it is quiet, refused, or the host has ended.
        while let Ok(len) = answers.recv(&mut room) {
            if forwarder.answer(&room[..len], to, from).is_err() {
                break;
            }
        }
        flows.lock().unwrap_or_else(PoisonError::into_inner).remove(&flow);
    });
    Ok(socket)
}
