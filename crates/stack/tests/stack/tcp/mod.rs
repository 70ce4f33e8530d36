//! TCP through whole stacks.

mod admitting;
mod apart;
mod attacks;
mod bursts;
mod closing;
mod direct;
mod memory;
mod neighbors;
mod opening;
mod paths;
mod scarce;
mod strangers;
mod streams;
mod urgent;
mod users;

use crate::world::World;
use bypath_stack::event::Event;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::State;
use bypath_stack::tcp::error::{ReadError, WriteError};
use bypath_stack::{Stack, Tcp};

/// A host's TCP socket.
pub fn tcp(world: &mut World, host: usize, id: SocketId) -> Tcp<'_> {
    world.hosts[host].stack.tcp(id).expect("a socket that is open")
}

/// A listener.
pub fn listen(world: &mut World, host: usize, local: &str) -> SocketId {
    listener(&mut world.hosts[host].stack, local, 128)
}

pub fn listener(stack: &mut Stack, local: &str, backlog: usize) -> SocketId {
    let id = stack.open_tcp().unwrap();
    let mut socket = stack.tcp(id).unwrap();
    socket.bind(local.parse().unwrap()).unwrap();
    socket.listen(backlog).unwrap();
    id
}

/// A socket that has asked for a connection.
pub fn call(world: &mut World, host: usize, remote: &str) -> SocketId {
    let now = world.now();
    let stack = &mut world.hosts[host].stack;
    let id = stack.open_tcp().unwrap();
    stack.tcp(id).unwrap().connect(now, remote.parse().unwrap()).unwrap();
    id
}

pub fn state(world: &mut World, host: usize, id: SocketId) -> State {
    tcp(world, host, id).state().expect("a connection")
}

/// Both ends of a connection that is open, from host 0 to host 1.
pub fn pair(world: &mut World, remote: &str) -> (SocketId, SocketId) {
    let port = remote.rsplit(':').next().unwrap();
    let server = listen(world, 1, &format!("[::]:{port}"));
    let client = call(world, 0, remote);
    world.millis(1000);
    let accepted = tcp(world, 1, server).accept().expect("an open connection");
    assert_eq!(
        (state(world, 0, client), state(world, 1, accepted)),
        (State::Established, State::Established)
    );
    world.hosts[1].stack.close(server);
    (client, accepted)
}

/// What can be read of a socket, and whether the other side has finished.
pub fn read(world: &mut World, host: usize, id: SocketId) -> (Vec<u8>, bool) {
    let (mut all, mut room) = (Vec::new(), vec![0; 65_536]);
    loop {
        match tcp(world, host, id).read(&mut room) {
            Ok(0) => return (all, true),
            Ok(n) => all.extend_from_slice(&room[..n]),
            Err(ReadError::Empty) => return (all, false),
            Err(error) => panic!("{error}"),
        }
    }
}

/// The octet at a place of a stream.
pub fn octet(at: usize) -> u8 {
    (at * 7 + at / 251) as u8
}

/// Carries octets both ways at once, until each side has got all of them.
pub fn exchange(world: &mut World, ends: [(usize, SocketId); 2], octets: usize, patience: u64) {
    let mut written = [0; 2];
    let mut got = [0; 2];
    let end = world.now().as_nanos() + patience * 1_000_000_000;
    while got != [octets; 2] {
        for side in 0..2 {
            let (host, id) = ends[side];
            while written[side] < octets {
                let until = octets.min(written[side] + 50_000);
                let piece: Vec<u8> = (written[side]..until).map(octet).collect();
                match tcp(world, host, id).write(&piece) {
                    Ok(n) => written[side] += n,
                    Err(WriteError::Full) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            let (came, _) = read(world, host, id);
            for (n, found) in came.iter().enumerate() {
                assert_eq!(*found, octet(got[side] + n), "octet {} of side {side}", got[side] + n);
            }
            got[side] += came.len();
        }
        world.run(std::time::Duration::from_micros(200));
        assert!(world.now().as_nanos() < end, "{got:?} of {octets} after {patience} s");
    }
}

/// What a host was told of a socket since it was last asked.
pub fn told(world: &mut World, host: usize, id: SocketId) -> (bool, bool, bool) {
    world.run(std::time::Duration::ZERO);
    let mut all = (false, false, false);
    for event in std::mem::take(&mut world.hosts[host].events) {
        match event {
            Event::Socket { id: other, ready } if other == id => {
                all.0 |= ready.readable;
                all.1 |= ready.writable;
                all.2 |= ready.error;
            }
            other => world.hosts[host].events.push(other),
        }
    }
    all
}
