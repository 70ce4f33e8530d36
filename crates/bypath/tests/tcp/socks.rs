//! A tiny SOCKS5 server (RFC 1928): whoever is asked for is the loopback address with the same last octet.

use std::io::{self, Read, Write, copy};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};

/// Connections that it has at the moment, and had in all.
#[derive(Debug, Default)]
pub struct Counts {
    pub now: AtomicUsize,
    pub all: AtomicUsize,
}

/// Serves for ever.
pub fn serve(listener: &TcpListener, counts: &'static Counts) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || {
            counts.now.fetch_add(1, Ordering::SeqCst);
            counts.all.fetch_add(1, Ordering::SeqCst);
            // What goes wrong is seen by who has asked.
            let _ = carry(&stream);
            drop(stream);
            counts.now.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

fn read<const N: usize>(mut from: &TcpStream) -> io::Result<[u8; N]> {
    let mut octets = [0; N];
    from.read_exact(&mut octets)?;
    Ok(octets)
}

fn carry(client: &TcpStream) -> io::Result<()> {
    client.set_nodelay(true)?;
    let [version, methods] = read(client)?;
    assert_eq!(version, 5, "a client of SOCKS5");
    for _ in 0..methods {
        let [_] = read(client)?;
    }
    (&mut &*client).write_all(&[5, 0])?;
    let [5, 1, 0, kind] = read(client)? else { panic!("a request to connect") };
    let last = match kind {
        1 => Ipv4Addr::from(read::<4>(client)?).octets()[3],
        4 => Ipv6Addr::from(read::<16>(client)?).octets()[15],
        other => panic!("an address of kind {other}"),
    };
    let to = SocketAddr::new(IpAddr::from([127, 0, 0, last]), u16::from_be_bytes(read(client)?));
    let server = match TcpStream::connect(to) {
        Ok(server) => server,
        Err(_) => return (&mut &*client).write_all(&[5, 5, 0, 1, 0, 0, 0, 0, 0, 0]),
    };
    (&mut &*client).write_all(&[5, 0, 0, 1, 127, 0, 0, 1, 0, 0])?;
    std::thread::scope(|scope| {
        scope.spawn(|| pass(&server, client));
        pass(client, &server)
    })
}

/// Passes octets and their end on; an error ends both sides.
fn pass(mut from: &TcpStream, mut to: &TcpStream) -> io::Result<()> {
    let passed = copy(&mut from, &mut to).and_then(|_| to.shutdown(Shutdown::Write));
    if passed.is_err() {
        let _ = from.shutdown(Shutdown::Both);
        let _ = to.shutdown(Shutdown::Both);
    }
    passed
}
