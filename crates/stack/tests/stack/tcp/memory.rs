//! What a connection costs: nothing for a segment once warm, and less than 1 KiB while nothing happens.

use crate::allocations::{held, taken};
use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, IfaceId, Medium, Offload};
use bypath_stack::socket::SocketId;
use bypath_stack::time::Instant;
use bypath_wire::{FrameMeta, MacAddr};
use std::net::SocketAddr;

struct Pair {
    stacks: [(Stack, IfaceId); 2],
    room: Vec<u8>,
    now: u64,
}

impl Pair {
    fn new() -> Pair {
        let stacks = [1, 2].map(|n| {
            let mut stack = Stack::new(Config::default(), [n; 32]);
            let medium = Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, n]));
            let shape = IfaceConfig { medium, mtu: 1500, offload: Offload::default() };
            let iface = stack.add_iface(shape).unwrap();
            let prefix = format!("10.0.0.{n}/24").parse().unwrap();
            stack.add_address(Instant::ZERO, iface, prefix).unwrap();
            (stack, iface)
        });
        let mut pair = Pair { stacks, room: vec![0; 2000], now: 0 };
        pair.carry(5_000_000_000);
        pair
    }

    fn now(&self) -> Instant {
        Instant::from_nanos(self.now)
    }

    /// Carries all frames, and lets so many nanoseconds go by.
    fn carry(&mut self, time: u64) {
        self.now += time;
        let now = self.now();
        let mut moved = true;
        while moved {
            moved = false;
            for from in 0..2 {
                let [a, b] = &mut self.stacks;
                let ((from, iface), (to, on)) = if from == 0 { (a, b) } else { (b, a) };
                if from.poll_timeout().is_some_and(|due| due <= now) {
                    from.handle_timeout(now);
                }
                while let Some((len, meta)) = from.poll_transmit(now, *iface, &mut self.room) {
                    moved = true;
                    to.handle_frame(now, *on, &self.room[..len], &FrameMeta { gso: None, ..meta });
                }
                while from.poll_event().is_some() {}
            }
        }
    }

    fn listen(&mut self) -> SocketId {
        super::listener(&mut self.stacks[1].0, "0.0.0.0:80", 128)
    }

    fn call(&mut self, server: SocketId) -> (SocketId, SocketId) {
        let now = self.now();
        let remote: SocketAddr = "10.0.0.2:80".parse().unwrap();
        let client = self.stacks[0].0.open_tcp().unwrap();
        self.stacks[0].0.tcp(client).unwrap().connect(now, remote).unwrap();
        self.carry(1000);
        (client, self.stacks[1].0.tcp(server).unwrap().accept().unwrap())
    }

    fn send(&mut self, from: usize, by: SocketId, to: SocketId, octets: &[u8]) {
        let mut room = [0; 5000];
        assert_eq!(self.stacks[from].0.tcp(by).unwrap().write(octets), Ok(octets.len()));
        self.carry(1000);
        let mut got = 0;
        while got < octets.len() {
            got += self.stacks[1 - from].0.tcp(to).unwrap().read(&mut room).unwrap();
        }
    }
}

#[test]
fn a_segment_takes_no_memory_once_warm() {
    let mut pair = Pair::new();
    let server = pair.listen();
    let (client, accepted) = pair.call(server);
    let octets = [3; 40_000];
    let mut room = [0; 9000];
    let mut round = |pair: &mut Pair| {
        for _ in 0..10 {
            let (one, other) = (&mut pair.stacks[0].0, 3000);
            assert_eq!(one.tcp(client).unwrap().write(&octets[..other]), Ok(other));
            pair.carry(100_000);
            let mut left = other;
            while left > 0 {
                let most = left.min(room.len());
                left -= pair.stacks[1].0.tcp(accepted).unwrap().read(&mut room[..most]).unwrap();
            }
        }
    };
    for _ in 0..20 {
        round(&mut pair);
    }
    let before = taken();
    for _ in 0..200 {
        round(&mut pair);
    }
    // Now and then buffers that are empty are given back, and taken again with the next octets.
    let segments = 200 * 10 * 3;
    assert!(taken() - before <= 10, "{} for {segments} segments", taken() - before);
}

#[test]
fn an_idle_connection_is_less_than_a_kibibyte() {
    const COUNT: usize = 2000;
    let mut pair = Pair::new();
    let server = pair.listen();
    let warm = pair.call(server);
    pair.send(0, warm.0, warm.1, b"question");
    let before = held();
    let all: Vec<_> = (0..COUNT).map(|_| pair.call(server)).collect();
    for (client, accepted) in &all {
        pair.send(0, *client, *accepted, b"question");
        pair.send(1, *accepted, *client, &[5; 4000]);
    }
    // Everything is acknowledged, and no timer is left.
    for _ in 0..20 {
        pair.carry(100_000_000);
    }
    let each = (held() - before) as usize / (2 * COUNT);
    assert!(each < 1024, "{each} octets");
    for (stack, _) in &pair.stacks {
        assert_eq!(stack.usage().connection_octets, 0);
    }
}
