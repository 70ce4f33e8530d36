//! Once warm, a datagram takes no memory: neither the sender's stack nor the receiver's asks for any.

use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::socket::SocketId;
use bypath_stack::time::Instant;
use bypath_wire::{FrameMeta, MacAddr};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::net::SocketAddr;

/// The system's allocator, counting what this thread takes.
struct Counting;

thread_local! {
    static TAKEN: Cell<u64> = const { Cell::new(0) };
    static HELD: Cell<i64> = const { Cell::new(0) };
}

/// How often this thread has taken memory.
pub fn taken() -> u64 {
    TAKEN.get()
}

/// Octets that this thread has taken and not given back.
pub fn held() -> i64 {
    HELD.get()
}

// SAFETY: everything is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that is ending has no counter any more.
        let _counted = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        let _counted = HELD.try_with(|held| held.set(held.get() + layout.size() as i64));
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        let _counted = HELD.try_with(|held| held.set(held.get() - layout.size() as i64));
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(address, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Pair {
    stacks: [(Stack, IfaceId); 2],
    client: SocketId,
    server: SocketId,
    room: Vec<u8>,
    now: u64,
}

impl Pair {
    fn new() -> Pair {
        let stacks = [1, 2].map(|n| {
            let mut stack = Stack::new(Config::default(), [n; 32]);
            let medium = Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, n]));
            let config = IfaceConfig { medium, mtu: 1500, offload: Offload::default() };
            let iface = stack.add_iface(config).unwrap();
            for network in ["10.0.0.", "fd00::"] {
                let prefix = format!("{network}{n}/24").parse().unwrap();
                stack.add_address(Instant::ZERO, iface, prefix).unwrap();
            }
            (stack, iface)
        });
        let room = vec![0; 2000];
        let [(mut a, on_a), (mut b, on_b)] = stacks;
        let (client, server) = (a.open_udp().unwrap(), b.open_udp().unwrap());
        b.udp(server).unwrap().bind("[::]:7".parse().unwrap()).unwrap();
        a.udp(client).unwrap().bind("[::]:9".parse().unwrap()).unwrap();
        let mut pair = Pair { stacks: [(a, on_a), (b, on_b)], client, server, room, now: 0 };
        pair.carry(5_000_000_000);
        pair
    }

    /// Carries all frames for so many nanoseconds, in steps of a second or less.
    fn carry(&mut self, time: u64) {
        let end = self.now + time;
        while self.now < end {
            self.now = (self.now + 250_000_000).min(end);
            let now = Instant::from_nanos(self.now);
            for _ in 0..4 {
                for from in 0..2 {
                    let [a, b] = &mut self.stacks;
                    let ((from, iface), (to, on)) = if from == 0 { (a, b) } else { (b, a) };
                    from.handle_timeout(now);
                    while let Some((len, meta)) = from.poll_transmit(now, *iface, &mut self.room) {
                        to.handle_frame(now, *on, &self.room[..len], &FrameMeta { gso: None, ..meta });
                    }
                }
            }
        }
    }

    fn datagram(&mut self, octets: &[u8], to: SocketAddr, into: &mut [u8]) {
        let (a, _) = &mut self.stacks[0];
        a.udp(self.client).unwrap().send(octets, Some(to)).unwrap();
        self.carry(1000);
        let (b, _) = &mut self.stacks[1];
        while b.poll_event().is_some() {}
        let got = b.udp(self.server).unwrap().receive(into).unwrap();
        assert!(got.len == octets.len() || octets.len() == 1000);
    }
}

#[test]
fn a_datagram_takes_no_memory_once_warm() {
    let mut pair = Pair::new();
    let destinations: [SocketAddr; 2] = ["10.0.0.2:7".parse().unwrap(), "[fd00::2]:7".parse().unwrap()];
    let octets = vec![3; 20_000];
    let mut into = vec![0; 20_000];
    // Datagrams in one frame, and in fragments.
    let lens = [0, 1, 500, 1400, 3000, 20_000];
    let mut round = |pair: &mut Pair| {
        for to in destinations.into_iter().rev() {
            for len in lens.into_iter().rev() {
                pair.datagram(&octets[..len], to, &mut into);
            }
        }
    };
    for _ in 0..20 {
        round(&mut pair);
    }
    let before = TAKEN.get();
    for _ in 0..200 {
        round(&mut pair);
        let (a, iface) = &mut pair.stacks[0];
        let (to, now) = (Some(destinations[0]), Instant::from_nanos(pair.now));
        let sent = a.udp(pair.client).unwrap().send_through(now, &octets[..1400], to, *iface, &mut pair.room);
        assert!(sent.is_ok_and(|sent| sent.is_some()));
    }
    assert_eq!(TAKEN.get() - before, 0);
}

#[test]
fn what_waits_for_a_neighbour_uses_the_memory_of_what_waited_before() {
    let mut pair = Pair::new();
    let to: SocketAddr = "10.0.0.2:7".parse().unwrap();
    let mut into = [0; 2000];
    let mut taken = Vec::new();
    for _ in 0..10 {
        let (a, iface) = &mut pair.stacks[0];
        a.remove_neighbor(*iface, to.ip());
        let before = TAKEN.get();
        for _ in 0..19 {
            a.udp(pair.client).unwrap().send(&[2; 1000], Some(to)).unwrap();
        }
        pair.datagram(&[1; 1000], to, &mut into);
        let (b, _) = &mut pair.stacks[1];
        let others = (0..19).map(|_| b.udp(pair.server).unwrap().receive(&mut into).is_ok());
        assert!(others.into_iter().all(|received| received));
        taken.push(TAKEN.get() - before);
    }
    // The list of those that wait, which grows to 32 places; no octets.
    assert!(taken[5..].iter().all(|taken| *taken <= 5), "{taken:?}");
}
