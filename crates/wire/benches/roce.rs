//! What a RoCEv2 packet costs to build and to check, on one core: `cargo bench -p bypath-wire --bench roce`.
//!
//! Each line is the best of many short rounds, with payload, headers and packet in the cache. `build` writes every header,
//! copies the payload and computes the ICRC; `parse` reads the headers and checks the ICRC; `crc` is the CRC alone, and
//! `copy` the copy alone, as bounds.

use bypath_wire::roce::{Bth, Envelope, Extended, Headers, Opcode, Operation, Packet, Psn, Qpn};
use bypath_wire::{IpProtocol, Ipv4Header, Ipv6Header, Network};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 60;
const TARGET_NS: f64 = 200_000.0;

/// Nanoseconds per call in the best of many rounds.
fn best(mut work: impl FnMut()) -> f64 {
    let mut round = |calls: usize| {
        let start = Instant::now();
        for _ in 0..calls {
            work();
        }
        start.elapsed().as_nanos() as f64 / calls as f64
    };
    let calls = (TARGET_NS / round(64).max(0.5)) as usize + 1;
    (0..ROUNDS).map(|_| round(calls)).fold(f64::INFINITY, f64::min)
}

fn main() {
    let v4 = Network::V4(Ipv4Header::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into(), IpProtocol::UDP));
    let v6 = Network::V6(Ipv6Header::new(1u128.into(), 2u128.into(), IpProtocol::UDP));
    println!("                   ns per packet             GB/s of payload");
    println!("ip  octets   build  parse    crc   copy     build  parse    crc");
    for (name, network) in [("v4", v4), ("v6", v6)] {
        // IPv6 wants UDP's checksum, too.
        let envelope = Envelope::new(network, 0xc000);
        for len in [0, 64, 256, 512, 1024, 2048, 4096] {
            let opcode = Opcode::rc(Operation::SendOnly);
            let bth = Bth::new(opcode, Qpn::new(0x11), Psn::new(0));
            let mut headers = Headers { bth, extended: Extended::None };
            let payload: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut buffer = vec![0; len + 100];
            let build = best(|| {
                headers.bth.psn = headers.bth.psn + 1;
                let made = envelope.emit(black_box(&mut buffer), &headers, black_box(&payload));
                assert!(black_box(made).is_ok());
            });
            let total = envelope.emit(&mut buffer, &headers, &payload).expect("room");
            let packet = &buffer[..total];
            let parse = best(|| assert!(black_box(Packet::parse(black_box(packet))).is_ok()));
            let crc = best(|| _ = black_box(crc32fast::hash(black_box(packet))));
            let mut to = vec![0; len];
            let copy = best(|| black_box(&mut to).copy_from_slice(black_box(&payload)));
            let rate = |ns: f64| len as f64 / ns;
            println!(
                "{name}  {len:6}  {build:6.1} {parse:6.1} {crc:6.1} {copy:6.1}    {:6.1} {:6.1} {:6.1}",
                rate(build),
                rate(parse),
                rate(crc)
            );
        }
    }
}
