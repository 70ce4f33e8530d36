//! Segments of connections that are open, forged by somebody who knows their ends: each comes right after one of the connection's own,
//! whose headers the stack remembers.

use super::victim::Victim;
use super::{mend, pieces};
use crate::attack::{MAC, PORT, V4, V6};
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::State;
use bypath_wire::{
    EtherType, EthernetHeader, Headers, IpProtocol, Ipv4Header, Ipv6Header, MacAddr, Network, SeqNumber,
    TcpFlags, TcpHeader, TcpOption, TcpOptions, Transport,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

const STATION: MacAddr = MacAddr([2, 0, 0, 0, 1, 0]);
const PEER_V4: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
const PEER_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2);
/// Octets of the link's header.
const LINK: usize = 14;

/// Somebody honest with a connection to the victim.
#[derive(Debug)]
struct Peer {
    v6: bool,
    timestamps: bool,
    port: u16,
    /// Its next octet's number, and that of the victim's.
    seq: SeqNumber,
    ack: SeqNumber,
    /// The victim's last timestamp.
    echo: u32,
    /// The victim's end.
    end: Option<SocketId>,
}

struct Scene {
    victim: Victim,
    peers: [Peer; 4],
}

/// Frames behind an octet that says which connection they are of, 1: IPv6, 2: with timestamps; what follows it, 0: a segment, whose numbers
/// count from those that are expected; 4: a whole packet; 8: two octets of length that the packet is to say, and a segment; 12: pairs of
/// a place and what is changed there in a frame that the connection's own peer would send. 16: with the checksum that it has; 32: not
/// after a frame of the connection's own; 64: the victim writes, before.
pub fn segments(input: &[u8]) {
    let mut scene = Scene::new();
    for piece in pieces(input) {
        if let Some((how, rest)) = piece.split_first() {
            scene.takes(*how, rest);
        }
    }
    scene.serves();
}

impl Scene {
    fn new() -> Scene {
        let mut victim = Victim::new(false);
        victim.sent = Some(Vec::new());
        for peer in [PEER_V4.into(), PEER_V6.into()] {
            victim.stack.set_neighbor(victim.iface, peer, STATION);
        }
        let peers = [0, 1, 2, 3].map(|n: u16| Peer {
            v6: n & 1 != 0,
            timestamps: n & 2 != 0,
            port: 1000 * (n + 1),
            seq: SeqNumber(0xffff_ff00),
            ack: SeqNumber(0),
            echo: 0,
            end: None,
        });
        Scene { victim, peers }
    }

    /// A frame as the peer would send it.
    fn frame(&self, which: usize, flags: TcpFlags, octets: &[u8]) -> Vec<u8> {
        let peer = &self.peers[which];
        let mut header = TcpHeader::new(peer.port, PORT);
        (header.seq, header.ack, header.flags, header.window) = (peer.seq, peer.ack, flags, 60_000);
        let now = (self.victim.now.as_nanos() / 1_000_000) as u32;
        let mut options = TcpOptions::new();
        let syn = flags.has(TcpFlags::SYN);
        let mut fits = !syn || options.push(&TcpOption::MaxSegmentSize(1400));
        if peer.timestamps {
            fits &= options.push(&TcpOption::Nop) && options.push(&TcpOption::Nop);
            fits &= options.push(&TcpOption::Timestamps { value: now, echo: peer.echo });
        }
        assert!(fits, "options fit");
        header.options = options;
        let network = if peer.v6 {
            Network::V6(Ipv6Header::new(PEER_V6, V6, IpProtocol::TCP))
        } else {
            Network::V4(Ipv4Header::new(PEER_V4, V4, IpProtocol::TCP))
        };
        let link = Some(EthernetHeader::new(MAC, STATION, EtherType::IPV4));
        let mut frame = vec![0; 200 + octets.len()];
        let headers = Headers { link, network, transport: Transport::Tcp(header) };
        let len = headers.emit(&mut frame, octets).expect("it fits");
        frame.truncate(len);
        frame
    }

    /// Peers hear what the victim has said; those whose connection is over know it.
    fn listen(&mut self) {
        let sent = self.victim.sent.replace(Vec::new()).unwrap_or_default();
        for frame in sent {
            let Some((address, header, len)) = heard(&frame) else { continue };
            let peer = self.peers.iter_mut().find(|p| p.port == header.destination_port);
            let Some(peer) = peer.filter(|peer| peer.v6 == address.is_ipv6()) else { continue };
            if header.flags.has(TcpFlags::SYN) {
                peer.ack = header.seq + 1;
            }
            if header.flags.has(TcpFlags::ACK) {
                peer.seq = peer.seq.later(header.ack);
            }
            let end = header.seq + header.sequence_len(len);
            peer.ack = peer.ack.later(end);
            if let Some((value, _)) = header.options.known().timestamps {
                peer.echo = value;
            }
        }
    }

    /// The victim reads what there is, and lets in who has called.
    fn reads(&mut self) {
        let stack = &mut self.victim.stack;
        while let Ok(id) = stack.tcp(self.victim.listener).expect("it listens").accept() {
            let from = stack.tcp(id).and_then(|mut tcp| tcp.remote()).expect("a caller");
            let peer = self.peers.iter_mut().find(|peer| peer.port == from.port() && peer.end.is_none());
            match peer {
                Some(peer) => peer.end = Some(id),
                None => {
                    stack.close(id);
                }
            }
        }
        let mut room = [0; 4096];
        for end in self.peers.iter().filter_map(|peer| peer.end) {
            while stack.tcp(end).is_some_and(|mut tcp| tcp.read(&mut room).is_ok_and(|n| n > 0)) {}
        }
    }

    fn settle(&mut self) {
        self.victim.settle();
        self.listen();
        self.reads();
        self.victim.settle();
        self.listen();
    }

    fn is_open(&mut self, which: usize) -> bool {
        let Some(id) = self.peers[which].end else { return false };
        self.victim.stack.tcp(id).is_some_and(|mut tcp| tcp.state() == Some(State::Established))
    }

    /// The peer has a connection that is open. False: it was not let in.
    fn opens(&mut self, which: usize) -> bool {
        if self.is_open(which) {
            return true;
        }
        self.begins(which)
    }

    /// The peer begins anew.
    fn begins(&mut self, which: usize) -> bool {
        if let Some(end) = self.peers[which].end.take() {
            self.victim.stack.close(end);
            self.settle();
        }
        let peer = &mut self.peers[which];
        (peer.port, peer.seq, peer.echo) = (peer.port + 1, peer.seq + 100_000, 0);
        let syn = self.frame(which, TcpFlags::SYN, &[]);
        self.victim.hears(&syn);
        self.peers[which].seq += 1;
        self.settle();
        let ack = self.frame(which, TcpFlags::ACK, &[]);
        self.victim.hears(&ack);
        self.settle();
        self.is_open(which)
    }

    /// The peer's next octet.
    fn says(&mut self, which: usize) {
        let frame = self.frame(which, TcpFlags::ACK | TcpFlags::PSH, b"x");
        self.victim.hears(&frame);
        self.peers[which].seq += 1;
    }

    fn takes(&mut self, how: u8, rest: &[u8]) {
        let which = usize::from(how & 3);
        if !self.opens(which) {
            return;
        }
        if how & 64 != 0
            && let Some(id) = self.peers[which].end
        {
            let _full = self.victim.stack.tcp(id).map(|mut tcp| tcp.write(&[0x55; 3000]));
            self.settle();
        }
        if how & 32 == 0 {
            self.says(which);
        }
        if let Some(frame) = self.forged(how, rest) {
            self.victim.takes(&frame);
        }
        self.listen();
        self.reads();
        self.settle();
    }

    fn forged(&self, how: u8, rest: &[u8]) -> Option<Vec<u8>> {
        let which = usize::from(how & 3);
        let peer = &self.peers[which];
        let own = self.frame(which, TcpFlags::ACK, b"y");
        let ends = if peer.v6 { LINK + 8..LINK + 40 } else { LINK + 12..LINK + 20 };
        let begin = ends.end;
        let mut frame = match how >> 2 & 3 {
            1 => {
                let mut frame = [&own[..LINK], rest].concat();
                // From whom it is, and to whom, stays; and which kind it is, mostly.
                if frame.len() >= begin + 4 {
                    frame[ends.clone()].copy_from_slice(&own[ends]);
                    frame[begin..begin + 4].copy_from_slice(&own[begin..begin + 4]);
                }
                frame
            }
            3 => {
                let mut frame = own;
                for [at, change] in rest.as_chunks::<2>().0 {
                    let at = LINK + usize::from(*at);
                    if at < frame.len() && !ends.contains(&at) && !(begin..begin + 4).contains(&at) {
                        frame[at] ^= change;
                    }
                }
                frame
            }
            form => {
                let (said, segment) = if form == 2 { rest.split_at_checked(2)? } else { (&[][..], rest) };
                let mut frame = [&own[..begin], segment].concat();
                if let Some(numbers) = frame.get_mut(begin..begin + 12) {
                    numbers[..4].copy_from_slice(&own[begin..begin + 4]);
                    for (at, from) in [(4, peer.seq), (8, peer.ack)] {
                        let delta = u32::from_be_bytes([
                            numbers[at],
                            numbers[at + 1],
                            numbers[at + 2],
                            numbers[at + 3],
                        ]);
                        numbers[at..at + 4].copy_from_slice(&(from + delta).0.to_be_bytes());
                    }
                }
                let right = frame.len() - LINK - if peer.v6 { 40 } else { 0 };
                let said = said.try_into().map_or(right as u16, u16::from_be_bytes);
                let at = if peer.v6 { LINK + 4 } else { LINK + 2 };
                frame[at..at + 2].copy_from_slice(&said.to_be_bytes());
                frame
            }
        };
        if how & 16 == 0 {
            mend::packet(&mut frame[LINK..]);
        } else if !peer.v6 {
            mend::header(&mut frame[LINK..]);
        }
        Some(frame)
    }

    /// Whoever is honest is served.
    fn serves(&mut self) {
        self.victim.serves();
        self.listen();
        self.reads();
        for which in 0..self.peers.len() {
            assert!(self.begins(which), "a new connection is let in");
            let id = self.peers[which].end.expect("it is open");
            self.says(which);
            let read = self.victim.stack.tcp(id).expect("it is there").read(&mut [0; 10]);
            assert!(read == Ok(1), "what is sent is read: {read:?}");
            let wrote = self.victim.stack.tcp(id).expect("it is there").write(b"answer");
            assert!(wrote == Ok(6), "it can be answered: {wrote:?}");
            let before = self.peers[which].ack;
            self.settle();
            assert!(self.peers[which].ack == before + 6, "the answer is sent");
        }
    }
}

/// To whom a segment is that the victim sent, its header, and octets of its payload.
fn heard(frame: &[u8]) -> Option<(IpAddr, TcpHeader, usize)> {
    let (link, packet) = EthernetHeader::parse(frame).ok()?;
    let (to, protocol, segment): (IpAddr, _, _) = match link.ethertype {
        EtherType::IPV4 => {
            let (ip, segment) = Ipv4Header::parse(packet).ok()?;
            (ip.destination.into(), ip.protocol, segment)
        }
        EtherType::IPV6 => {
            let (ip, segment) = Ipv6Header::parse(packet).ok()?;
            (ip.destination.into(), ip.next_header, segment)
        }
        _ => return None,
    };
    let (header, payload) = TcpHeader::parse(segment).ok().filter(|_| protocol == IpProtocol::TCP)?;
    Some((to, header, payload.len()))
}
