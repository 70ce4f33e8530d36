//! What happens while a connection is in the middle of what it has begun to say: 16 segments on a link that does not cut.

use super::*;
use bypath_stack::counters::Counters;
use bypath_wire::meta::ChecksumState;
use bypath_wire::tcp::{TcpFlags, TcpHeader};
use bypath_wire::{EthernetHeader, FrameMeta, Ipv4Header, Ipv6Header};

const OCTETS: usize = 30_000;

/// A connection with an open window that has written [`OCTETS`], of which it has said `frames`.
fn begun(remote: &str, frames: usize) -> (World, SocketId, SocketId, Vec<Vec<u8>>) {
    let mut world = World::new(2, 1);
    let (client, accepted) = pair(&mut world, remote);
    exchange(&mut world, [(0, client), (1, accepted)], 100_000, 10);
    let octets: Vec<u8> = (0..OCTETS).map(octet).collect();
    assert_eq!(tcp(&mut world, 0, client).write(&octets), Ok(OCTETS));
    let said = (0..frames).map(|_| say(&mut world).expect("more to say")).collect();
    (world, client, accepted, said)
}

/// The next frame of the first host.
fn say(world: &mut World) -> Option<Vec<u8>> {
    let (now, iface) = (world.now(), world.hosts[0].iface);
    let mut room = vec![0; 2000];
    let (len, meta) = world.hosts[0].stack.poll_transmit(now, iface, &mut room)?;
    assert_eq!((meta.checksum, meta.gso), (ChecksumState::Unknown, None));
    room.truncate(len);
    Some(room)
}

/// Header and payload of a frame whose checksums are right.
fn parsed(frame: &[u8]) -> (TcpHeader, Vec<u8>) {
    let (_, packet) = EthernetHeader::parse(frame).unwrap();
    let (addresses, segment) = if packet[0] >> 4 == 4 {
        let (header, segment) = Ipv4Header::parse(packet).unwrap();
        (header.addresses(), segment)
    } else {
        let (header, segment) = Ipv6Header::parse(packet).unwrap();
        (header.addresses(), segment)
    };
    assert!(bypath_wire::tcp::verify(&addresses, segment));
    let (header, payload) = TcpHeader::parse(segment).unwrap();
    (header, payload.to_vec())
}

fn counters(world: &World) -> Counters {
    *world.hosts[0].stack.counters()
}

#[test]
fn each_segment_has_its_own_number_and_the_last_of_a_burst_is_pushed() {
    for remote in ["10.0.0.2:80", "[fd00::2]:80"] {
        let (mut world, _, _, mut said) = begun(remote, 0);
        let before = counters(&world);
        while let Some(frame) = say(&mut world) {
            said.push(frame);
        }
        let first = parsed(&said[0]).0.seq;
        let (mut at, mut burst, mut bursts) = (0, 0, Vec::new());
        for (n, frame) in said.iter().enumerate() {
            let (header, payload) = parsed(frame);
            assert_eq!(header.seq, first + at as u32, "{n}");
            burst += 1;
            if header.flags.has(TcpFlags::PSH) {
                bursts.push(std::mem::take(&mut burst));
            }
            assert!(payload.iter().enumerate().all(|(k, found)| *found == octet(at + k)), "{n}");
            at += payload.len();
        }
        // As many as a turn has, or as half of the window takes, and what is left.
        assert_eq!((burst, bursts[0]), (0, 16), "{bursts:?}");
        assert!(bursts.iter().all(|segments| *segments <= 16), "{bursts:?}");
        // What is left beyond whole segments may wait for an acknowledgement.
        let segment = parsed(&said[0]).1.len();
        assert_eq!(said.len(), at.div_ceil(segment));
        assert!(at <= OCTETS && at + segment > OCTETS, "{at}");
        let sent = counters(&world).tcp_sent - before.tcp_sent;
        assert_eq!(sent, said.len() as u64);
    }
}

#[test]
fn a_connection_that_is_aborted_says_no_more_but_that() {
    let (mut world, client, accepted, _) = begun("10.0.0.2:80", 3);
    tcp(&mut world, 0, client).abort();
    let (header, payload) = parsed(&say(&mut world).unwrap());
    assert!(header.flags.has(TcpFlags::RST) && payload.is_empty());
    assert_eq!(say(&mut world), None);
    world.hosts[0].stack.close(client);
    world.secs(1);
    assert_eq!(world.hosts[0].stack.usage().connections, 0);
    assert_eq!(state(&mut world, 1, accepted), State::Established);
}

#[test]
fn who_closes_says_the_rest() {
    let (mut world, client, accepted, said) = begun("10.0.0.2:80", 3);
    world.hosts[0].stack.close(client);
    for frame in said {
        world.hand(1, &frame, &FrameMeta::default());
    }
    world.secs(1);
    let (read, finished) = read(&mut world, 1, accepted);
    assert!(finished && read.iter().enumerate().all(|(k, found)| *found == octet(k)));
    assert_eq!(read.len(), OCTETS);
}

#[test]
fn what_is_acknowledged_before_it_was_said_is_not_said() {
    let (mut world, client, _, said) = begun("10.0.0.2:80", 3);
    let before = counters(&world);
    let (header, _) = parsed(&said[0]);
    let mut answer = TcpHeader::new(header.destination_port, header.source_port);
    // All of it, though most has not left.
    (answer.seq, answer.ack, answer.flags) = (header.ack, header.seq + 16 * 1448, TcpFlags::ACK);
    answer.window = 5000;
    let (_, packet) = EthernetHeader::parse(&said[0]).unwrap();
    let (ip, _) = Ipv4Header::parse(packet).unwrap();
    let mut frame = [0; 200];
    let (own, other) = (said[0][6..12].to_vec(), said[0][0..6].to_vec());
    frame[0..6].copy_from_slice(&own);
    frame[6..12].copy_from_slice(&other);
    frame[12..14].copy_from_slice(&[8, 0]);
    let back = Ipv4Header::new(ip.destination, ip.source, bypath_wire::IpProtocol::TCP);
    let at = 14 + back.emit(&mut frame[14..], answer.len()).unwrap();
    let len = at + answer.emit_with(&mut frame[at..], &back.addresses(), &[]).unwrap();
    world.hand(0, &frame[..len], &FrameMeta::default());
    let next = parsed(&say(&mut world).expect("the rest"));
    assert_eq!(next.0.seq, header.seq + 16 * 1448);
    assert_eq!(counters(&world).link_drop_no_room, before.link_drop_no_room);
    assert_eq!(tcp(&mut world, 0, client).statistics().unwrap().unacknowledged, OCTETS - 16 * 1448);
}

#[test]
fn a_length_that_cannot_be_is_malformed_though_the_headers_are_known() {
    for len in [0, 10, 19, 20, 39, 2000] {
        let (mut world, _, accepted, said) = begun("10.0.0.2:80", 2);
        // The headers are those of the connection that octets came on last.
        world.hand(1, &said[0], &FrameMeta::default());
        let mut frame = said[1].clone();
        assert!(bypath_wire::ipv4::set_total_len(&mut frame[14..], len));
        world.hand(1, &frame, &FrameMeta::default());
        let before = tcp(&mut world, 1, accepted).statistics().unwrap().octets_received;
        world.hand(1, &said[1], &FrameMeta::default());
        let after = tcp(&mut world, 1, accepted).statistics().unwrap().octets_received;
        assert_eq!(after - before, 1448, "{len}");
        let drops: Vec<_> = world.drops(1).iter().map(|(name, _)| *name).collect();
        let cut_off = if (20..2000).contains(&len) { "tcp_drop_malformed" } else { "ipv4_drop_malformed" };
        assert_eq!(drops, [cut_off], "{len}");
    }
}

/// A segment of the first host's connection with another number of what it acknowledges, and the right checksum.
fn acknowledging(frame: &[u8], change: impl Fn(u32) -> u32) -> Vec<u8> {
    let (_, packet) = EthernetHeader::parse(frame).unwrap();
    let (ip, segment) = Ipv4Header::parse(packet).unwrap();
    let (mut header, payload) = TcpHeader::parse(segment).unwrap();
    header.ack.0 = change(header.ack.0);
    let mut forged = frame[..frame.len() - segment.len()].to_vec();
    let at = forged.len();
    forged.resize(frame.len(), 0);
    header.emit_with(&mut forged[at..], &ip.addresses(), payload).unwrap();
    forged
}

#[test]
fn octets_that_were_never_sent_are_not_acknowledged_though_the_headers_are_known() {
    for ahead in [1, 100_000] {
        let (mut world, _, accepted, said) = begun("10.0.0.2:80", 3);
        world.hand(1, &said[0], &FrameMeta::default());
        let before = tcp(&mut world, 1, accepted).statistics().unwrap();
        // RFC 5961, 5.2: it is thrown away and answered.
        world.hand(1, &acknowledging(&said[1], |ack| ack.wrapping_add(ahead)), &FrameMeta::default());
        let after = tcp(&mut world, 1, accepted).statistics().unwrap();
        assert_eq!(after.octets_received, before.octets_received, "{ahead}");
        assert_eq!(after.octets_acknowledged, before.octets_acknowledged, "{ahead}");
        assert_eq!(world.hosts[1].stack.counters().tcp_challenges_sent, 1, "{ahead}");
        world.hand(1, &acknowledging(&said[1], |ack| ack), &FrameMeta::default());
        let after = tcp(&mut world, 1, accepted).statistics().unwrap();
        assert_eq!(after.octets_received - before.octets_received, 1448, "{ahead}");
    }
}
