//! Once warm, a host without a thread moves messages without allocating.

use bypath_link::pair::{End, pair};
use bypath_netstack::{Engine, Host, TcpListener, TcpStream, UdpSocket};
use bypath_stack::config::Config;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;

/// The system's allocator, counting what this thread takes.
struct Counting;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _counted = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What this thread allocates while `f` runs.
fn allocations(f: impl FnOnce()) -> u64 {
    let before = TAKEN.get();
    f();
    TAKEN.get() - before
}

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

/// Two hosts with a cable between them, both of which this thread moves.
fn hosts() -> [Host; 2] {
    let host = |link: End, address: &str, seed| {
        let mut engine = Engine::with_seed(Config::default(), [seed; 32]);
        let iface = engine.add_link("cable", Box::new(link)).expect("an interface");
        let prefix = address.parse().expect("an address");
        engine.stack().add_address(Engine::now(), iface, prefix).expect("an address");
        Host::in_process(engine)
    };
    let (a, b) = pair(1500, 256);
    [host(a, "10.0.0.1/24", 1), host(b, "10.0.0.2/24", 2)]
}

/// What a call that does not wait finds at last, while the other host has its turns.
fn until<T>(other: &Host, mut call: impl FnMut() -> std::io::Result<T>) -> T {
    loop {
        match call() {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                other.poll().expect("a cable");
            }
            done => return done.expect("what is waited for"),
        }
    }
}

#[test]
fn the_counter_counts() {
    assert_eq!(allocations(|| {}), 0);
    assert_eq!(allocations(|| drop(std::hint::black_box(vec![1u8; 100]))), 1);
}

#[test]
fn messages_on_a_connection_take_no_memory() {
    let [a, b] = hosts();
    let listener = TcpListener::bind(&b, at("10.0.0.2:7")).expect("a listener");
    listener.set_nonblocking(true).expect("an option");
    let mut near = TcpStream::begin_connect(&a, at("10.0.0.2:7"), None, |_, _| {}).expect("a call");
    near.set_nonblocking(true).expect("an option");
    let (mut far, _) = until(&a, || listener.accept());
    far.set_nonblocking(true).expect("an option");
    until(&b, || near.finish_connect());
    near.set_nodelay(true).expect("an option");
    far.set_nodelay(true).expect("an option");
    let mut room = [0; 2000];
    let mut round = |len: usize| {
        until(&b, || near.write(&[7; 2000][..len]));
        let mut read = 0;
        while read < len {
            read += until(&a, || far.read(&mut room[read..len]));
        }
        until(&a, || far.write(&room[..len]));
        let mut read = 0;
        while read < len {
            read += until(&b, || near.read(&mut room[read..len]));
        }
    };
    let mut many = || (0..2000).for_each(|n| round([1, 100, 1448, 2000][n % 4]));
    many();
    assert_eq!(allocations(many), 0);
}

#[test]
fn datagrams_take_no_memory() {
    let [a, b] = hosts();
    let bind = |host, address| {
        let socket = UdpSocket::bind(host, at(address)).expect("a socket");
        socket.set_timeout(Some(std::time::Duration::ZERO));
        socket
    };
    let (near, far) = (bind(&a, "10.0.0.1:9"), bind(&b, "10.0.0.2:9"));
    let mut room = [0; 2000];
    let mut round = || {
        until(&b, || near.send_to(&[7; 1000], at("10.0.0.2:9")));
        let (len, from) = until(&a, || far.recv_from(&mut room));
        until(&a, || far.send_to(&room[..len], from));
        assert_eq!(until(&b, || near.recv(&mut room)), 1000);
    };
    let mut many = || (0..2000).for_each(|_| round());
    many();
    assert_eq!(allocations(many), 0);
}
