//! What receiving a UDP datagram costs while other sockets are open that nobody sends to.
//!
//! ```sh
//! cargo build --release -p bypath-stack --example receive_udp
//! taskset -c 1 target/release/examples/receive_udp
//! ```
//!
//! One line for each number of idle sockets: ns/op of the fastest and of the middle of the rounds.

use bypath_stack::Stack;
use bypath_stack::config::Config;
use bypath_stack::iface::{IfaceConfig, Medium, Offload};
use bypath_stack::time::Instant;
use bypath_wire::meta::ChecksumState;
use bypath_wire::{
    EtherType, EthernetHeader, FrameMeta, Headers, IpProtocol, Ipv4Header, MacAddr, Network, Transport,
    UdpHeader,
};
use std::hint::black_box;
use std::net::{Ipv4Addr, SocketAddr};

const ROUNDS: usize = 15;
const READS: u32 = 100_000;
const OWN: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

fn main() {
    let (own, peer) = (Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2));
    let headers = Headers {
        link: Some(EthernetHeader::new(OWN, MacAddr([2, 0, 0, 0, 0, 2]), EtherType::IPV4)),
        network: Network::V4(Ipv4Header::new(peer, own, IpProtocol::UDP)),
        transport: Transport::Udp(UdpHeader { source_port: 5000, destination_port: 7 }),
    };
    let mut frame = [0; 200];
    let len = headers.emit(&mut frame, &[1; 64]).expect("a frame");
    for idle in [1u32, 100, 10_000, 100_000, 1_000_000] {
        let mut stack = Stack::new(Config { sockets: 2_000_000, ..Config::default() }, [7; 32]);
        let medium = Medium::Ethernet(OWN);
        let config = IfaceConfig { medium, mtu: 1500, offload: Offload::default() };
        let iface = stack.add_iface(config).expect("an interface");
        stack
            .add_address(Instant::ZERO, iface, "10.0.0.1/24".parse().expect("an address"))
            .expect("the address");
        let server = stack.open_udp().expect("a socket");
        stack.udp(server).expect("it").bind(SocketAddr::from((own, 7))).expect("bound");
        for n in 0..idle {
            let id = stack.open_udp().expect("a socket");
            let port = 1024 + (n % 60_000) as u16;
            let local = SocketAddr::from((Ipv4Addr::from_bits(0x7f00_0001 + n / 60_000), port));
            stack.udp(id).expect("it").bind(local).expect("bound");
        }
        let meta = FrameMeta { checksum: ChecksumState::Unknown, ..FrameMeta::default() };
        let (mut room, mut now) = ([0; 200], 0);
        let mut rounds: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let start = std::time::Instant::now();
                for _ in 0..READS {
                    now += 100;
                    stack.handle_frame(Instant::from_nanos(now), iface, black_box(&frame[..len]), &meta);
                    black_box((stack.poll_event(), stack.poll_timeout()));
                    let mut udp = stack.udp(server).expect("it");
                    black_box(udp.receive(&mut room).expect("a datagram"));
                }
                start.elapsed().as_nanos() as f64 / f64::from(READS)
            })
            .collect();
        rounds.sort_by(f64::total_cmp);
        let (best, middle) = (rounds[0], rounds[ROUNDS / 2]);
        println!(
            "ReceiveUdp/idle-{idle:<8} {READS:>8} {best:>8.1} ns/op (best) {middle:>8.1} ns/op (median)"
        );
    }
}
