//! The far end on another host: found by IP address, or by hardware address with a question as a raw frame.

use super::serve::{ANSWER, ETHERTYPE, PORT, QUESTION};
use super::stage::End;
use bypath::l2::{Error, Interface, MacAddr, Socket};
use std::net::{IpAddr, SocketAddr, SocketAddrV6, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

/// How long a connection, and an answer, is waited for.
const PATIENCE: Duration = Duration::from_secs(3);

/// Who the peer is, as it was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A hardware address.
    Mac(MacAddr),
    /// Address and port, or a name.
    Host(String),
}

/// Reads one.
pub fn peer(text: &str) -> Result<Peer, String> {
    if let Ok(mac) = text.parse() {
        return Ok(Peer::Mac(mac));
    }
    match text.is_empty() {
        true => Err("expected a hardware address, an IP address or a host's name".into()),
        false => Ok(Peer::Host(text.to_owned())),
    }
}

/// A peer that was found.
pub struct Remote {
    /// Our interface.
    pub iface: String,
    /// Our address, as the peer sees it.
    pub own: IpAddr,
    at: SocketAddr,
}

impl Remote {
    /// Looks for it.
    ///
    /// # Errors
    /// With what to do.
    pub fn find(peer: &Peer, iface: &str) -> Result<Remote, String> {
        let interface = Interface::named(iface).map_err(|e| e.to_string())?;
        let candidates = match peer {
            Peer::Mac(mac) => ask(*mac, &interface)?,
            Peer::Host(text) => resolve(text)?,
        };
        let mut reasons = Vec::new();
        for at in candidates {
            match TcpStream::connect_timeout(&at, PATIENCE).and_then(|s| s.local_addr()) {
                Ok(own) => return Ok(Remote { iface: iface.to_owned(), own: own.ip(), at }),
                Err(e) => reasons.push(format!("{at}: {e}")),
            }
        }
        Err(format!(
            "no connection to the other host ({}): run `bypath bench serve --iface INTERFACE` there, and let TCP port {PORT} pass",
            reasons.join("; ")
        ))
    }

    /// Connects.
    ///
    /// # Errors
    /// Nobody is there, or somebody else is measured.
    pub fn connect(&self) -> Result<End, String> {
        let fail = |e: std::io::Error| format!("{}: {e}", self.at);
        let stream = TcpStream::connect_timeout(&self.at, PATIENCE).map_err(fail)?;
        stream.set_nodelay(true).map_err(fail)?;
        End::afar("far end (is another measurement going on there?)", stream).map_err(fail)
    }
}

fn resolve(text: &str) -> Result<Vec<SocketAddr>, String> {
    let fail = |e: std::io::Error| format!("{text}: {e}");
    let found = match text.parse::<IpAddr>() {
        Ok(ip) => vec![SocketAddr::new(ip, PORT)],
        Err(_) if text.parse::<SocketAddr>().is_ok() || text.contains(':') => {
            text.to_socket_addrs().map_err(fail)?.collect()
        }
        Err(_) => (text, PORT).to_socket_addrs().map_err(fail)?.collect(),
    };
    Ok(found)
}

/// Asks the host with this hardware address where its end is.
fn ask(mac: MacAddr, interface: &Interface) -> Result<Vec<SocketAddr>, String> {
    let mut socket = Socket::builder(&interface.name)
        .ethertype(ETHERTYPE)
        .timeout(Duration::from_millis(100))
        .open()
        .map_err(|e| e.to_string())?;
    let until = Instant::now() + PATIENCE;
    while Instant::now() < until {
        socket.send(mac, QUESTION).map_err(|e| e.to_string())?;
        let mut lines = None;
        let got = socket.receive_batch(1, |frame| {
            lines = frame.payload.strip_prefix(ANSWER).map(|rest| String::from_utf8_lossy(rest).into_owned());
        });
        match got {
            Ok(_) | Err(Error::TimedOut { .. } | Error::Interrupted) => {}
            Err(e) => return Err(e.to_string()),
        }
        if let Some(lines) = lines {
            let scoped = |at: SocketAddr| match at {
                SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() => {
                    SocketAddrV6::new(*v6.ip(), v6.port(), 0, interface.index).into()
                }
                other => other,
            };
            let found: Vec<_> = lines.lines().filter_map(|l| l.parse().ok()).map(scoped).collect();
            if found.is_empty() {
                return Err(format!("{mac} answers, and has no IP address on its interface: give it one"));
            }
            return Ok(found);
        }
    }
    Err(format!(
        "{mac} does not answer on {}: run `bypath bench serve --iface INTERFACE` on the other host, and look whether both \
         interfaces are of one network",
        interface.name
    ))
}
