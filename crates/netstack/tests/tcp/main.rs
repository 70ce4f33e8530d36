//! TCP of one host with itself: what the calls are, without a kernel at the other end.

mod descriptors;
mod ending;
mod forwarding;
mod streams;
mod wishes;

use bypath_netstack::{Engine, Host, TcpListener, TcpStream};
use bypath_stack::config::Config;
use std::net::SocketAddr;
use std::time::Duration;

/// Longest wait for what must come.
const LONGEST: Duration = Duration::from_secs(20);

fn host() -> Host {
    Host::run(Engine::with_seed(Config::default(), [1; 32])).expect("a thread")
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address and a port")
}

/// A listener at port 80.
fn listener(host: &Host) -> TcpListener {
    let listener = TcpListener::bind(host, at("127.0.0.1:80")).expect("a listener");
    listener.set_timeout(Some(LONGEST));
    listener
}

/// Who has called, and who was called.
fn pair(host: &Host) -> (TcpStream, TcpStream) {
    let listener = listener(host);
    let client = TcpStream::connect(host, at("127.0.0.1:80")).expect("a connection");
    let server = listener.accept().expect("a connection").0;
    for stream in [&client, &server] {
        stream.set_timeout(Some(LONGEST));
    }
    (client, server)
}

/// Octets that tell a position.
fn octets(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 7 + n / 251) as u8).collect()
}
