//! Fragments in any order, more than once or not at all: whole datagrams, or nothing.

use crate::traffic::{cases, payload, seeds};
use bypath_sim::link::LinkConfig;
use bypath_sim::{NodeId, Simulation};
use bypath_wire::ipv6_ext::FragmentHeader;
use bypath_wire::{
    Addresses, EtherType, EthernetHeader, FrameMeta, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, UdpHeader,
};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

const V4: (Ipv4Addr, Ipv4Addr) = (Ipv4Addr::new(10, 0, 0, 9), Ipv4Addr::new(10, 0, 0, 1));
const V6: (Ipv6Addr, Ipv6Addr) =
    (Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 9), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));

/// Frames with the fragments of a datagram to port 7.
fn fragments(to: MacAddr, v6: bool, id: u64, len: usize, step: usize) -> Vec<Vec<u8>> {
    let addresses = if v6 {
        Addresses::V6 { source: V6.0, destination: V6.1 }
    } else {
        Addresses::V4 { source: V4.0, destination: V4.1 }
    };
    let octets = payload(id, 0, len);
    let mut whole = vec![0; 8 + octets.len()];
    UdpHeader { source_port: 9, destination_port: 7 }.emit_with(&mut whole, &addresses, &octets).unwrap();
    let station = MacAddr([2, 9, 9, 9, 9, 9]);
    let mut frames = Vec::new();
    for (n, part) in whole.chunks(step).enumerate() {
        let (offset, more) = ((n * step) as u16, (n + 1) * step < whole.len());
        let ethertype = if v6 { EtherType::IPV6 } else { EtherType::IPV4 };
        let mut frame = vec![0; 14 + 48 + part.len()];
        EthernetHeader::new(to, station, ethertype).emit(&mut frame).unwrap();
        let header = if v6 {
            let header = Ipv6Header::new(V6.0, V6.1, IpProtocol::FRAGMENT);
            header.emit(&mut frame[14..], 8 + part.len()).unwrap();
            let fragment = FragmentHeader { offset, more, identification: id as u32 };
            fragment.emit(&mut frame[54..], IpProtocol::UDP).unwrap();
            48
        } else {
            let header = Ipv4Header {
                identification: id as u16,
                dont_fragment: false,
                more_fragments: more,
                fragment_offset: offset,
                ..Ipv4Header::new(V4.0, V4.1, IpProtocol::UDP)
            };
            header.emit(&mut frame[14..], part.len()).unwrap()
        };
        frame[14 + header..14 + header + part.len()].copy_from_slice(part);
        frame.truncate(14 + header + part.len());
        frames.push(frame);
    }
    frames
}

fn host(sim: &mut Simulation) -> NodeId {
    let lan = sim.link("lan", LinkConfig::default());
    let host = sim.host("a");
    sim.attach(host, lan, &["10.0.0.1/24", "fd00::1/64", "fe80::1/64"]);
    sim.run(Duration::from_secs(4));
    host
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn fragments_in_any_order_are_whole_datagrams_or_nothing(seed in seeds()) {
        let mut sim = Simulation::new("fragments_in_any_order_are_whole_datagrams_or_nothing", seed);
        let host = host(&mut sim);
        let mac = sim.mac(host, 0);
        let server = sim.stack(host).open_udp().unwrap();
        sim.stack(host).udp(server).unwrap().set_receive_octets(32 << 20);
        sim.stack(host).udp(server).unwrap().bind("[::]:7".parse().unwrap()).unwrap();
        let mut all = Vec::new();
        // How often each piece of each datagram comes.
        let mut times: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
        for id in 1..=1 + sim.dice().below(8) {
            let (v6, len) = (sim.dice().chance(0.5), 2000 + sim.dice().index(8000));
            // Few enough pieces that do not touch each other.
            let step = 8 * (8 + sim.dice().index(170)).max(len / 8 / 100);
            let (lossy, copies) = (sim.dice().chance(0.3), 1 + sim.dice().below(3));
            for frame in fragments(mac, v6, id, len, step) {
                let lost = lossy && sim.dice().chance(0.1);
                let count = if lost { 0 } else { 1 + sim.dice().below(copies) };
                times.entry(id).or_default().push(count);
                all.extend(std::iter::repeat_n(frame, count as usize));
            }
        }
        for at in (1..all.len()).rev() {
            let other = sim.dice().index(at + 1);
            all.swap(at, other);
        }
        for frame in &all {
            sim.hand(host, 0, frame, &FrameMeta::default());
            if sim.dice().chance(0.1) {
                sim.run(Duration::from_millis(5));
            }
        }
        let mut delivered: BTreeMap<u64, u64> = BTreeMap::new();
        let mut room = vec![0; 65_536];
        while let Ok(received) = sim.stack(host).udp(server).unwrap().receive(&mut room) {
            let octets = &room[..received.len];
            let id = u64::from_be_bytes(octets[..8].try_into().unwrap());
            assert!(times.contains_key(&id) && octets == payload(id, 0, octets.len()));
            *delivered.entry(id).or_default() += 1;
        }
        for (id, times) in &times {
            let (came, least) = (delivered.get(id).copied().unwrap_or(0), *times.iter().min().unwrap());
            assert!(came <= least, "{id}: {came} times, of {times:?}");
            assert!(least == 0 || came > 0, "{id} is whole, and did not come");
        }
        // What is not whole is given up.
        sim.run(Duration::from_secs(40));
        assert_eq!(sim.stack(host).usage().fragment_octets, 0);
    }
}
