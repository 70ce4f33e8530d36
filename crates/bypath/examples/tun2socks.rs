//! Carries every TCP connection that this machine sends into a TUN device on through a SOCKS5 proxy (RFC 1928), whatever its
//! destination, and without the programs knowing.
//!
//! ```sh
//! sudo tun2socks bp0 127.0.0.1:1080 &
//! sudo ip route add 198.51.100.0/24 dev bp0        # for whom it shall be; the proxy's own ways must not lead there
//! curl http://198.51.100.7/
//! ```
//!
//! Whoever calls is answered when the proxy has reached whom he calls, and refused when it has not.

use bypath::netstack::{Engine, Host, TcpCall, TcpForwarder};
use bypath::stack::{config::Config, prefix::Prefix, route::Route};
use bypath::tun::Device;
use std::io::{self, Error, Read, Write, copy};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Connections at most: further ones are refused.
const MOST: usize = 1000;
/// The proxy has so long for its answer.
const PATIENCE: Duration = Duration::from_secs(30);

static CONNECTIONS: AtomicUsize = AtomicUsize::new(0);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [name, proxy] = &arguments[..] else { return Err("usage: tun2socks DEVICE PROXY:PORT".into()) };
    let proxy: SocketAddr = proxy.parse()?;

    // The kernel has an address at its end of the device, from which it calls; the stack has the other one.
    let mut engine = Engine::new(Config::default());
    let tun =
        Device::tun(name).address("10.255.78.1".parse()?, 30).address("fdff:78::1".parse()?, 64).open()?;
    let iface = engine.add_link(name, Box::new(tun))?;
    for own in ["10.255.78.2/30", "fdff:78::2/64"] {
        engine.stack().add_address(Engine::now(), iface, own.parse()?)?;
    }
    // Whoever calls is on the other side of the device, whatever his address.
    for prefix in [Prefix::ALL_V4, Prefix::ALL_V6] {
        engine.stack().add_route(Route { prefix, iface, via: None, metric: 0, source: None })?;
    }
    let host = Host::run(engine)?;
    let forwarder = TcpForwarder::open(&host)?;
    println!("what is routed to {name} goes through {proxy}");
    loop {
        let call = forwarder.accept()?;
        let (from, to) = (call.from(), call.to());
        let work = Place::take().map(|place| {
            move || {
                let _place = place;
                if let Err(e) = carry(call, proxy) {
                    eprintln!("{from} to {to}: {e}");
                }
            }
        });
        // What is not begun is dropped, and so refused.
        match work.map(|work| std::thread::Builder::new().spawn(work)) {
            Some(Ok(_)) => {}
            _ => eprintln!("{from} to {to}: there are too many connections"),
        }
    }
}

/// A place among the connections, given back when it is dropped.
struct Place;

impl Place {
    fn take() -> Option<Place> {
        let place = Place;
        (CONNECTIONS.fetch_add(1, Ordering::Relaxed) < MOST).then_some(place)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        CONNECTIONS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One connection, from the call to both its ends. A call that is dropped is refused.
fn carry(call: TcpCall, proxy: SocketAddr) -> io::Result<()> {
    let there = ask(proxy, call.to())?;
    let here = call.accept()?;
    // What comes goes on as it came.
    here.set_nodelay(true)?;
    std::thread::scope(|scope| {
        // Each direction has an end of its own, which is passed on; an error ends both.
        let back = scope.spawn(|| {
            pass(&there, &here, || here.shutdown(Shutdown::Write)).inspect_err(|_| drop(here.abort()))
        });
        let sent = pass(&here, &there, || there.shutdown(Shutdown::Write))
            .inspect_err(|_| drop(there.shutdown(Shutdown::Both)));
        back.join().unwrap_or_else(|_| Err(Error::other("the thread that reads the proxy ended"))).and(sent)
    })
}

/// Passes octets on up to the end, and then the end.
fn pass(mut from: impl Read, mut to: impl Write, finish: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    copy(&mut from, &mut to)?;
    finish()
}

/// A connection through the proxy, without a password (RFC 1928, 3 to 6).
fn ask(proxy: SocketAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&proxy, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    stream.write_all(&[5, 1, 0])?;
    let mut chosen = [0; 2];
    stream.read_exact(&mut chosen)?;
    if chosen != [5, 0] {
        return Err(Error::other("the proxy wants a password, or is none"));
    }
    let mut request = vec![5, 1, 0];
    match to {
        SocketAddr::V4(v4) => request.extend([&[1][..], &v4.ip().octets()].concat()),
        SocketAddr::V6(v6) => request.extend([&[4][..], &v6.ip().octets()].concat()),
    }
    request.extend(to.port().to_be_bytes());
    stream.write_all(&request)?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer)?;
    let rest = match answer[3] {
        1 => 4 + 2,
        4 => 16 + 2,
        _ => return Err(Error::other("the proxy's answer is none")),
    };
    stream.read_exact(&mut [0; 18][..rest])?;
    match answer[1] {
        0 => stream.set_read_timeout(None).map(|()| stream),
        code => Err(Error::other(format!("the proxy has not reached it: code {code} of RFC 1928, 6"))),
    }
}
