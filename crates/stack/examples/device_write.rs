//! What a UDP write through the whole stack costs: socket, route, neighbour, IPv4 and Ethernet headers, into a buffer; past the
//! interface's queue (`Udp::send_through`) and through it (`Udp::send`, `Stack::poll_transmit`).
//!
//! ```sh
//! cargo build --release -p bypath-stack --example device_write
//! taskset -c 1 target/release/examples/device_write
//! ```
//!
//! One line for each payload and mode: name, iterations, ns/op of the fastest and of the middle of the rounds.

use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, Medium, Offload};
use bypath_stack::time::Instant;
use bypath_wire::MacAddr;
use std::hint::black_box;
use std::net::SocketAddr;

const ROUNDS: usize = 15;
const WRITES: u32 = 200_000;

struct Writer {
    stack: Stack,
    iface: bypath_stack::iface::IfaceId,
    socket: bypath_stack::socket::SocketId,
    to: SocketAddr,
    room: Vec<u8>,
    now: u64,
    /// Past the queue, straight into the buffer.
    through: bool,
}

impl Writer {
    fn new(checksum: bool, through: bool) -> Writer {
        let now = Instant::ZERO;
        let mut stack = Stack::new(Config::default(), [7; 32]);
        let offload = Offload { checksum, segmentation: false };
        let medium = Medium::Ethernet(MacAddr([2, 0, 0, 0, 0, 1]));
        let iface = stack.add_iface(IfaceConfig { medium, mtu: 65_535, offload }).expect("an interface");
        let own = "10.0.0.1/24".parse().expect("an address");
        stack.add_address(now, iface, own).expect("the address");
        let to: SocketAddr = "10.0.0.2:9".parse().expect("an address");
        // What was heard of a neighbour, as of any other.
        stack.set_neighbor(iface, to.ip(), MacAddr([2, 0, 0, 0, 0, 2]));
        let socket = stack.open_udp().expect("a socket");
        let mut room = vec![0; 65_553];
        while stack.poll_transmit(now, iface, &mut room).is_some() {}
        Writer { stack, iface, socket, to, room, now: 0, through }
    }

    fn write(&mut self, payload: &[u8]) -> usize {
        self.now += 100;
        let now = Instant::from_nanos(self.now);
        let mut udp = self.stack.udp(self.socket).expect("the socket");
        if self.through {
            let (to, room) = (Some(self.to), &mut self.room[..]);
            let sent = udp.send_through(now, black_box(payload), to, self.iface, room).expect("sent");
            if let Some((len, meta)) = sent {
                black_box((&self.room[..len], meta));
                return len;
            }
        } else {
            udp.send(black_box(payload), Some(self.to)).expect("sent");
        }
        let (len, meta) = self.stack.poll_transmit(now, self.iface, &mut self.room).expect("a frame");
        black_box((&self.room[..len], meta));
        len
    }
}

fn main() {
    // `--once CHECKSUM LEN WRITES`: nothing but these writes, for a profiler.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [once, checksum, len, writes] = &arguments[..]
        && once == "--once"
    {
        let (len, writes): (usize, u32) = (len.parse().expect("octets"), writes.parse().expect("a number"));
        let (mut writer, payload) =
            (Writer::new(checksum.contains("offload"), checksum.contains("through")), vec![1; len]);
        for _ in 0..writes {
            writer.write(&payload);
        }
        return;
    }
    let payload: Vec<u8> = (0..2048).map(|n| n as u8).collect();
    for (checksum, through) in [(false, true), (true, true), (false, false), (true, false)] {
        for len in [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048] {
            let mut writer = Writer::new(checksum, through);
            let mut rounds: Vec<f64> = (0..ROUNDS)
                .map(|_| {
                    let start = std::time::Instant::now();
                    for _ in 0..WRITES {
                        writer.write(&payload[..len]);
                    }
                    start.elapsed().as_nanos() as f64 / f64::from(WRITES)
                })
                .collect();
            rounds.sort_by(f64::total_cmp);
            let mode = if checksum { "offload" } else { "checksum" };
            let way = if through { "through" } else { "queue" };
            let (best, middle) = (rounds[0], rounds[ROUNDS / 2]);
            println!(
                "WritePacket/{way}/{mode}/{len:<5} {WRITES:>8} {best:>8.1} ns/op (best) {middle:>8.1} ns/op (median)"
            );
        }
    }
}
