//! Inputs to begin with: frames as inputs of the target of their layer.

use super::input;
use crate::Simulation;
use crate::attack::{self, Attack};
use crate::link::LinkConfig;
use bypath_wire::ipv6_ext::{Extension, ExtensionWalk};
use bypath_wire::{EtherType, EthernetHeader, IpProtocol, Ipv4Header, Ipv6Header};
use std::collections::BTreeMap;
use std::time::Duration;

/// Frames of an attack that go into one input, and octets of an input.
const FRAMES: usize = 4;
const OCTETS: usize = 4096;

/// Inputs of all targets, by target and name.
pub type Corpus = BTreeMap<&'static str, BTreeMap<String, Vec<u8>>>;

/// Those made of the attacks, and what attackers say as somebody who is connected.
pub fn of_attacks() -> Corpus {
    let mut corpus = Corpus::new();
    for Attack { name, frames, .. } in attack::corpus(50_053) {
        let name: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
        add(&mut corpus, &name, frames.iter().map(Vec::as_slice));
    }
    corpus.insert("segments", super::seeds::segments());
    corpus.insert("session", super::seeds::sessions());
    corpus
}

/// Those of a simulated link with what hosts say on it.
pub fn of_a_run() -> Corpus {
    let mut sim = Simulation::new("corpus", 1);
    let lan = sim.link("lan", LinkConfig::default());
    let hosts = [1, 2].map(|n| {
        let host = sim.host("host");
        let addresses = [format!("10.0.0.{n}/8"), format!("fd00::{n}/64"), format!("fe80::{n}/64")];
        let iface = sim.attach(host, lan, &addresses.each_ref().map(String::as_str));
        let now = sim.now();
        sim.stack(host).autoconfigure(now, iface);
        host
    });
    sim.run(Duration::from_secs(4));
    let now = sim.now();
    let iface = sim.ifaces(hosts[0])[0];
    for host in hosts {
        let id = sim.stack(host).open_udp().expect("room for a socket");
        let mut udp = sim.stack(host).udp(id).expect("it is there");
        udp.bind("[::]:7".parse().expect("an address")).expect("a free port");
        for group in ["239.1.2.3", "ff15::99"] {
            udp.join(now, iface, group.parse().expect("a group")).expect("room for a group");
        }
        for to in ["10.0.0.1:7", "10.0.0.2:8", "[fd00::1]:7", "[fd00::2]:8", "239.1.2.3:7", "[ff15::99]:7"] {
            for len in [0, 20, 2000] {
                let _lost = udp.send(&vec![5; len], to.parse().ok());
            }
        }
    }
    sim.run(Duration::from_secs(3));
    let frames: Vec<_> = sim.record().frames().map(|sent| sent.frame.clone()).collect();
    let mut corpus = Corpus::new();
    for (n, some) in frames.chunks(6).enumerate() {
        let name = format!("run-{n:02}");
        add(&mut corpus, &name, some.iter().map(Vec::as_slice));
        let whole = input(some.iter().map(Vec::as_slice));
        corpus.entry("ethernet").or_default().insert(name, whole);
    }
    corpus
}

fn add<'a>(corpus: &mut Corpus, name: &str, frames: impl Iterator<Item = &'a [u8]>) {
    let mut by_target: BTreeMap<&'static str, Vec<Vec<u8>>> = BTreeMap::new();
    for frame in frames {
        for (target, piece) in targets(frame) {
            by_target.entry(target).or_default().push(piece);
        }
    }
    for (target, pieces) in by_target {
        let mut left = OCTETS;
        let few = pieces.iter().take(FRAMES).take_while(|piece| {
            left = left.saturating_sub(piece.len() + 2);
            left > 0
        });
        let made = input(few.map(Vec::as_slice));
        if !made.is_empty() {
            corpus.entry(target).or_default().insert(name.to_owned(), made);
        }
    }
}

/// As what, and of which targets, a frame is an input.
fn targets(frame: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    let Ok((link, packet)) = EthernetHeader::parse(frame) else { return vec![("ethernet", frame.to_vec())] };
    match link.ethertype {
        EtherType::ARP => vec![("arp", packet.to_vec())],
        EtherType::IPV4 if link.tags.is_empty() => {
            let mut all = vec![("ipv4", packet.to_vec())];
            all.extend(v4(packet));
            all
        }
        EtherType::IPV6 => {
            let mut all = vec![("ipv6", packet.to_vec())];
            all.extend(v6(packet));
            all
        }
        _ => vec![("ethernet", frame.to_vec())],
    }
}

fn behind(front: &[u8], rest: &[u8]) -> Vec<u8> {
    [front, rest].concat()
}

/// As a fragment.
fn fragment(first: u8, more: bool, identification: u32, offset: u16, octets: &[u8]) -> Vec<u8> {
    let [a, b] = (offset >> 3).to_be_bytes();
    behind(&[first | if more { 2 } else { 0 }, identification as u8, a, b], octets)
}

fn v4(packet: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    let (header, payload) = Ipv4Header::parse(packet).ok()?;
    if header.is_fragment() {
        let (more, id, offset) = (header.more_fragments, header.identification, header.fragment_offset);
        return Some(("fragments", fragment(0, more, id.into(), offset, payload)));
    }
    match header.protocol {
        IpProtocol::ICMP => Some(("icmp", behind(&[0], payload))),
        IpProtocol::IGMP => Some(("groups", behind(&[0], payload))),
        IpProtocol::UDP => Some(("udp", behind(&[0], payload))),
        _ => None,
    }
}

fn v6(packet: &[u8]) -> Option<(&'static str, Vec<u8>)> {
    let (header, payload) = Ipv6Header::parse(packet).ok()?;
    let mut walk = ExtensionWalk::new(header.next_header, payload);
    for step in walk.by_ref() {
        if let Ok(step) = step
            && let Extension::Fragment(f) = step.extension
        {
            let octets = &payload[step.at + step.len..];
            return Some(("fragments", fragment(1, f.more, f.identification, f.offset, octets)));
        }
    }
    let (protocol, _, rest) = walk.rest();
    let group = u8::from(header.destination.is_multicast());
    match (protocol, rest.first()) {
        (IpProtocol::ICMPV6, Some(133..=137)) => Some(("ndp", behind(&[group], rest))),
        (IpProtocol::ICMPV6, Some(130..=132 | 143)) => Some(("groups", behind(&[1], rest))),
        (IpProtocol::ICMPV6, _) => Some(("icmp", behind(&[1], rest))),
        (IpProtocol::UDP, _) => Some(("udp", behind(&[1], rest))),
        _ => None,
    }
}
