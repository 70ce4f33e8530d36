//! Opens the channel that the arguments name.

use super::channel::{Channel, Pipes, Sock};
use super::{Line, PeerArgs, Role, Transport};
use nix::sys::socket::{
    AddressFamily, SockFlag, SockType, SockaddrStorage, connect, getsockopt, setsockopt, socket, sockopt,
};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io;
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;

/// A conversation, generic over what carries it (so that each carrier gets its own machine code).
pub trait Conversation {
    /// What it yields.
    type Output;
    /// Has it.
    fn over<C: Channel>(self, channel: C) -> io::Result<Self::Output>;
}

/// Opens the channel and has the conversation on it.
pub fn open<T: Conversation>(args: &PeerArgs, talk: T) -> io::Result<T::Output> {
    let close_tcp = |s: &TcpStream| s.shutdown(Shutdown::Write);
    let close_unix = |s: &UnixStream| s.shutdown(Shutdown::Write);
    match (args.transport, args.role) {
        (Transport::Tcp, Role::Serve) => {
            let listener = listen_tcp(args)?;
            let (socket, _) = listener.accept()?;
            talk.over(Sock { cc: tune(&socket, args)?, socket, close: close_tcp })
        }
        (Transport::Tcp, Role::Drive) => {
            let socket = connect_tcp(args)?;
            talk.over(Sock { cc: tune(&socket, args)?, socket, close: close_tcp })
        }
        (Transport::Udp, _) => super::udp::open(args, talk),
        (Transport::Unix, Role::Serve) => {
            let listener = listen_unix(args)?;
            let (socket, _) = listener.accept()?;
            socket.set_nonblocking(args.spin)?;
            talk.over(Sock { socket, close: close_unix, cc: None })
        }
        (Transport::Unix, Role::Drive) => {
            let socket = UnixStream::connect(&args.addr)?;
            socket.set_nonblocking(args.spin)?;
            talk.over(Sock { socket, close: close_unix, cc: None })
        }
        (Transport::Pipe, role) => talk.over(pipes(args, role)?),
        (Transport::Ring, _) => super::ring::open(args, talk),
        (Transport::Channel, _) => super::shared::open(args, talk),
        (Transport::ChannelDatagrams, _) => super::shared::open_datagrams(args, talk),
        (Transport::InProcess, _) => super::in_process::open(args, talk),
    }
}

/// Listens on the address and says so.
pub fn listen_tcp(args: &PeerArgs) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(&args.addr)?;
    // Accepted sockets inherit it: also the handshake's segments count for the kernel.
    ask_for_cc(&listener, args)?;
    Line::Ready(listener.local_addr()?.to_string()).print();
    Ok(listener)
}

/// Connects to the address. What the arguments ask for counts from the first segment on: what a connection has begun with leaves traces
/// (of one that was BBR's the kernel goes on to space the segments by a timer).
pub fn connect_tcp(args: &PeerArgs) -> io::Result<TcpStream> {
    connect_tcp_to(args, args.addr.parse().map_err(|e| io::Error::new(io::ErrorKind::InvalidInput, e))?)
}

/// The same with another address.
pub fn connect_tcp_to(args: &PeerArgs, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
    let new = socket(family, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    ask_for_cc(&new, args)?;
    connect(new.as_raw_fd(), &SockaddrStorage::from(to))?;
    Ok(TcpStream::from(new))
}

/// As [`listen_tcp`], for a path.
pub fn listen_unix(args: &PeerArgs) -> io::Result<UnixListener> {
    let listener = UnixListener::bind(&args.addr)?;
    Line::Ready(args.addr.clone()).print();
    Ok(listener)
}

/// Sets what the arguments ask for on a connected socket; returns the congestion control in force.
pub fn tune(socket: &TcpStream, args: &PeerArgs) -> io::Result<Option<String>> {
    ask_for_cc(socket, args)?;
    if args.nodelay {
        socket.set_nodelay(true)?;
    }
    socket.set_nonblocking(args.spin)?;
    let name = getsockopt(socket, sockopt::TcpCongestion)?;
    Ok(Some(name.to_string_lossy().trim_end_matches('\0').to_owned()))
}

fn ask_for_cc(socket: &impl AsFd, args: &PeerArgs) -> io::Result<()> {
    if let Some(cc) = &args.cc {
        setsockopt(socket, sockopt::TcpCongestion, &OsString::from(cc))
            .map_err(|e| io::Error::new(io::Error::from(e).kind(), format!("TCP_CONGESTION {cc}: {e}")))?;
    }
    Ok(())
}

fn pipes(args: &PeerArgs, role: Role) -> io::Result<Pipes> {
    let folder = Path::new(&args.addr);
    let (to_server, to_driver) = (folder.join("to-server"), folder.join("to-driver"));
    let read = |path: &Path| File::open(path);
    let write = |path: &Path| OpenOptions::new().write(true).open(path);
    // Opening waits for the other end, so both sides open in the same order.
    let pipes = match role {
        Role::Serve => {
            for path in [&to_server, &to_driver] {
                nix::unistd::mkfifo(path, nix::sys::stat::Mode::S_IRWXU)?;
            }
            Line::Ready(args.addr.clone()).print();
            let rx = read(&to_server)?;
            Pipes { rx, tx: Some(write(&to_driver)?) }
        }
        Role::Drive => {
            let tx = write(&to_server)?;
            Pipes { rx: read(&to_driver)?, tx: Some(tx) }
        }
    };
    if args.spin {
        for file in [&pipes.rx, pipes.tx.as_ref().expect("just opened")] {
            let flags = nix::fcntl::OFlag::from_bits_truncate(nix::fcntl::fcntl(file, nix::fcntl::F_GETFL)?);
            nix::fcntl::fcntl(file, nix::fcntl::F_SETFL(flags | nix::fcntl::OFlag::O_NONBLOCK))?;
        }
    }
    Ok(pipes)
}
