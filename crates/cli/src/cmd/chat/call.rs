//! How two ends come together: listening, and calling.

use super::talk::{Talk, Terms};
use super::{Args, Client, Common, Server};
use crate::chat::control::{Control, Hello};
use crate::chat::session::Role;
use crate::output::{self, Failure, Outcome};
use crate::raw::{
    self,
    wait::{READ, Stop, WRITE},
};
use bypath::l2::{Interface, Socket};
use bypath_sys::{clock, process};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, connect, socket};
use std::collections::VecDeque;
use std::io::{ErrorKind, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV6, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::process::ExitCode;

/// Between two attempts to reach the server.
const AGAIN: u64 = 100_000_000;
/// Clients that were told to come later, and may still read it.
const TURNED_AWAY: usize = 8;

/// The port that others call.
pub struct Door {
    listener: TcpListener,
    turned_away: VecDeque<TcpStream>,
}

impl Door {
    fn open(server: &Server) -> Result<Door, Failure> {
        let port = server.common.port;
        let listen = |address: IpAddr| TcpListener::bind(SocketAddr::new(address, port));
        let bound = match listen(server.listen) {
            // A host without IPv6.
            Err(e)
                if server.listen.is_unspecified()
                    && e.raw_os_error() == Some(rustix::io::Errno::AFNOSUPPORT.raw_os_error()) =>
            {
                listen(Ipv4Addr::UNSPECIFIED.into())
            }
            other => other,
        };
        let failed = |e: std::io::Error| {
            let remedy = match e.kind() {
                ErrorKind::AddrInUse => "; another program has it: choose another one on both ends, --port",
                ErrorKind::AddrNotAvailable => "; it is not an address of this host: see `ip address`",
                ErrorKind::PermissionDenied => "; ports below 1024 need root: choose another one, --port",
                _ => "",
            };
            Failure::new(1, format_args!("cannot listen on {} port {port}: {e}{remedy}", server.listen))
        };
        let listener = bound.map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        Ok(Door { listener, turned_away: VecDeque::new() })
    }

    /// Tells everybody who calls meanwhile to come later.
    pub fn turn_away(&mut self) {
        while let Ok((mut caller, _)) = self.listener.accept() {
            let mut text = Vec::new();
            Control::Refuse("it talks to another one; call again later".into()).write(&mut text);
            // A fresh connection has room for that; who cannot be told learns it from the end of the connection.
            let _ = caller.set_nonblocking(true).and_then(|()| caller.write_all(&text));
            let _ = caller.shutdown(std::net::Shutdown::Write);
            self.turned_away.push_back(caller);
            if self.turned_away.len() > TURNED_AWAY {
                self.turned_away.pop_front();
            }
        }
    }
}

impl AsFd for Door {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

fn terms<'a>(args: &'a Args, common: &'a Common, role: Role, socket: &Socket) -> Terms<'a> {
    let session = match role {
        // 0 is what a client says.
        Role::Server => process::random_u64().max(1),
        Role::Client => 0,
    };
    let own = Hello {
        version: 0,
        session,
        mac: socket.mac(),
        ethertype: common.ethertype,
        vlan: common.vlan.0,
        priority: common.priority,
        mtu: socket.mtu() as u32,
        window: 0,
    };
    Terms { interface: &args.interface, role, own, whole: common.whole, json: common.json }
}

/// Waits for a client, and talks to it.
pub fn serve(args: &Args, server: &Server, mut socket: Socket, stop: &Stop) -> Outcome {
    let mut door = Door::open(server)?;
    output::message(format_args!(
        "waiting on {} ({}) for a client on port {}",
        args.interface,
        socket.mac(),
        server.common.port
    ));
    loop {
        if stop.asked() {
            return Ok(ExitCode::from(raw::LOST));
        }
        match door.listener.accept() {
            Ok((stream, from)) => {
                let terms = terms(args, &server.common, Role::Server, &socket);
                let mut talk = Talk::new(terms, &mut socket, stream, Some(&mut door), stop)?;
                match talk.run() {
                    Err(failure) if !talk.has_begun() && !stop.asked() => {
                        output::message(format_args!(
                            "no conversation with {from}: {failure}; still waiting"
                        ));
                    }
                    other => return other,
                }
            }
            Err(e)
                if matches!(
                    e.kind(),
                    ErrorKind::WouldBlock | ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                ) =>
            {
                stop.wait([(door.as_fd(), READ)], None);
            }
            Err(e) => return Err(Failure::new(1, format_args!("cannot take a connection: {e}"))),
        }
    }
}

/// Calls a server, and talks to it.
pub fn call(args: &Args, client: &Client, mut socket: Socket, stop: &Stop) -> Outcome {
    let to = match client.server {
        // Such an address says nothing without an interface.
        IpAddr::V6(ip) if ip.is_unicast_link_local() => {
            let scope = Interface::named(&args.interface).map_err(raw::failed)?.index;
            SocketAddrV6::new(ip, client.common.port, 0, scope).into()
        }
        ip => SocketAddr::new(ip, client.common.port),
    };
    let until = clock::monotonic_ns().saturating_add(client.wait.as_nanos() as u64);
    let Some(stream) = reach(to, until, stop)? else { return Ok(ExitCode::from(raw::LOST)) };
    let terms = terms(args, &client.common, Role::Client, &socket);
    Talk::new(terms, &mut socket, stream, None, stop)?.run()
}

/// Connects, and tries again while nobody listens; `None` after Ctrl-C.
fn reach(to: SocketAddr, until: u64, stop: &Stop) -> Result<Option<TcpStream>, Failure> {
    loop {
        let tried = clock::monotonic_ns();
        let refused = match attempt(to, until, stop) {
            Ok(stream) => return Ok(Some(stream)),
            Err(_) if stop.asked() => return Ok(None),
            Err(e) => e,
        };
        let now = clock::monotonic_ns();
        if refused.kind() != ErrorKind::ConnectionRefused || now >= until {
            let text = format!(
                "cannot reach {} port {}: {refused}; start `bypath chat IFACE server` there first, or wait for it longer: \
                 --wait 1min",
                to.ip(),
                to.port()
            );
            return Err(Failure::new(1, text));
        }
        stop.sleep((tried + AGAIN).min(until));
    }
}

/// Connects once.
fn attempt(to: SocketAddr, until: u64, stop: &Stop) -> std::io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let flags = SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC;
    let stream = TcpStream::from(socket(family, SockType::Stream, flags, None)?);
    match connect(stream.as_raw_fd(), &SockaddrStorage::from(to)) {
        Ok(()) => return Ok(stream),
        Err(nix::errno::Errno::EINPROGRESS) => {}
        Err(e) => return Err(e.into()),
    }
    while !stop.wait([(stream.as_fd(), WRITE)], Some(until))[0] {
        if stop.asked() {
            return Err(ErrorKind::Interrupted.into());
        }
        if clock::monotonic_ns() >= until {
            return Err(std::io::Error::new(ErrorKind::TimedOut, "no answer"));
        }
    }
    match stream.take_error()? {
        Some(e) => Err(e),
        None => Ok(stream),
    }
}
