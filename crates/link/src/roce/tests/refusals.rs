//! What is dropped, what is refused, and with which words.

use super::*;
use bypath_wire::roce::{AtomicEth, Deth};
use bypath_wire::{Ecn, TrafficClass};

/// The second end alone, with a region of 2000 octets.
fn alone(access: Access, receives: &[u32]) -> Pair {
    let config = Config { reads: 2, ..config(256) };
    let mut pair = Pair::new(config, Faults::NONE, 0).with_memory(vec![], vec![0; 2000], access);
    for (n, len) in receives.iter().enumerate() {
        pair.receive(n as u64, 0, *len);
    }
    pair
}

/// What the second end answers to a packet.
fn answers(pair: &mut Pair, packet: &[u8]) -> Vec<(Headers, Vec<u8>)> {
    pair.ends[1].handle(0, packet);
    sent(&mut pair.ends[1], 0)
}

/// The only answer: its PSN and what it says.
#[track_caller]
fn says(pair: &mut Pair, packet: &[u8]) -> (Psn, Syndrome) {
    let answers = answers(pair, packet);
    assert_eq!(answers.len(), 1, "{answers:?}");
    let headers = answers[0].0;
    assert_eq!(headers.bth.destination, ONE);
    (headers.bth.psn, headers.extended.aeth().expect("an acknowledgement").syndrome)
}

use Operation::{
    Acknowledge, FetchAdd, ReadRequest, SendFirst, SendLast, SendMiddle, SendOnly, WriteFirst, WriteLast,
    WriteMiddle, WriteOnly, WriteOnlyImmediate,
};

/// A packet that is made by hand.
type Made<'a> = (Operation, Extended, &'a [u8]);

#[test]
fn requests_that_cannot_be_are_refused_and_change_nothing() {
    let whole = [7; 256];
    let none = Extended::None;
    // Packets in order, the last one of which is refused.
    let cases: Vec<(&str, Vec<Made<'_>>)> = vec![
        ("middle without first", vec![(SendMiddle, none, &whole)]),
        ("last without first", vec![(SendLast, none, b"x")]),
        ("WRITE middle without first", vec![(WriteMiddle, none, &whole)]),
        ("first inside a message", vec![(SendFirst, none, &whole), (SendFirst, none, &whole)]),
        ("only inside a message", vec![(SendFirst, none, &whole), (SendOnly, none, b"x")]),
        ("WRITE inside a SEND", vec![(SendFirst, none, &whole), (WriteLast, none, b"x")]),
        ("SEND inside a WRITE", vec![(WriteFirst, reth(0, 300), &whole), (SendLast, none, b"x")]),
        ("READ inside a SEND", vec![(SendFirst, none, &whole), (ReadRequest, reth(0, 1), b"")]),
        ("first that is no path MTU", vec![(SendFirst, none, &[7; 128])]),
        ("first beyond the path MTU", vec![(SendFirst, none, &[7; 512])]),
        ("only beyond the path MTU", vec![(SendOnly, none, &[7; 257])]),
        ("WRITE longer than told", vec![(WriteOnly, reth(0, 3), b"abcd")]),
        ("WRITE shorter than told", vec![(WriteOnly, reth(0, 5), b"abcd")]),
        ("WRITE first that is all", vec![(WriteFirst, reth(0, 256), &whole)]),
        ("WRITE last too short", vec![(WriteFirst, reth(0, 300), &whole), (WriteLast, none, b"x")]),
        ("WRITE middle too many", vec![(WriteFirst, reth(0, 300), &whole), (WriteMiddle, none, &whole)]),
        ("SEND beyond its buffer", vec![(SendOnly, none, &[7; 201])]),
        ("READ too long", vec![(ReadRequest, reth(0, (1 << 31) + 1), b"")]),
    ];
    for (name, packets) in cases {
        // Long enough for two packets, but where it must not be.
        let room = if name.contains("buffer") { 200 } else { 600 };
        let mut pair = alone(Access::ALL, &[room, room]);
        let mut said = Vec::new();
        let before_last = packets.len() - 1;
        for (n, (operation, extended, payload)) in packets.into_iter().enumerate() {
            let there = pair.there().to_vec();
            let psn = PSN[0] + n as u32;
            said.push(says(&mut pair, &by_hand(operation, psn, extended, payload)));
            assert_eq!(pair.there() == there, n == before_last, "{name}");
        }
        assert_eq!(said.pop(), Some((PSN[0] + before_last as u32, nak(Nak::InvalidRequest))), "{name}");
        assert!(said.iter().all(|(_, s)| *s == Syndrome::DONE), "{name}");
        pair.settle();
        assert_eq!(pair.events[1], [What::Broken(Nak::InvalidRequest)], "{name}");
        // From now on there is silence.
        let next = by_hand(SendOnly, PSN[0] + before_last as u32, none, b"x");
        assert_eq!(answers(&mut pair, &next), [], "{name}");
        assert_eq!((pair.counters()[1].broken, pair.counters()[1].nak_invalid_sent), (1, 1), "{name}");
    }
}

#[test]
fn memory_is_given_with_its_key_within_its_bounds_and_as_agreed_only() {
    let atomic = |offset: u64, key| {
        let address = BASE + offset;
        Extended::Atomic(AtomicEth { address, key, swap_or_add: 1, compare: 0 })
    };
    let other = |key| Extended::Reth(Reth { address: BASE, key, length: 4 });
    let all = Access::ALL;
    let cases: [(&str, Access, Operation, Extended, &[u8]); 12] = [
        ("WRITE, wrong key", all, WriteOnly, other(1), b"abcd"),
        ("WRITE, local key", Access::LOCAL, WriteOnly, reth(0, 4), b"abcd"),
        ("WRITE, no right", Access { write: false, ..all }, WriteOnly, reth(0, 4), b"abcd"),
        ("WRITE, end", all, WriteOnly, reth(1997, 4), b"abcd"),
        ("WRITE, beginning", all, WriteOnly, reth(0u64.wrapping_sub(1), 4), b"abcd"),
        ("WRITE, far away", all, WriteFirst, reth(0, u32::MAX), &[7; 256]),
        ("READ, wrong key", all, ReadRequest, other(1), b""),
        ("READ, no right", Access { read: false, ..all }, ReadRequest, reth(0, 4), b""),
        ("READ, end", all, ReadRequest, reth(1999, 2), b""),
        ("atomic, wrong key", all, FetchAdd, atomic(0, 1), b""),
        ("atomic, no right", Access { atomic: false, ..all }, FetchAdd, atomic(0, THERE), b""),
        ("atomic, end", all, FetchAdd, atomic(2000, THERE), b""),
    ];
    for (name, access, operation, extended, payload) in cases {
        let mut pair = alone(access, &[]);
        let said = says(&mut pair, &by_hand(operation, PSN[0], extended, payload));
        assert_eq!(said, (PSN[0], nak(Nak::RemoteAccess)), "{name}");
        assert_eq!(pair.there(), [0; 2000], "{name}");
        assert_eq!(pair.counters()[1].nak_access_sent, 1, "{name}");
    }
    let mut pair = alone(all, &[]);
    let said = says(&mut pair, &by_hand(FetchAdd, PSN[0], atomic(4, THERE), b""));
    assert_eq!(said, (PSN[0], nak(Nak::InvalidRequest)));
    // Of nothing nobody asks for a key.
    for operation in [WriteOnly, ReadRequest] {
        let mut pair = alone(Access::LOCAL, &[]);
        let none = Extended::Reth(Reth { address: 1, key: 2, length: 0 });
        assert_eq!(says(&mut pair, &by_hand(operation, PSN[0], none, b"")), (PSN[0], Syndrome::DONE));
    }
}

#[test]
fn more_reads_at_a_time_than_agreed_are_refused() {
    let mut pair = alone(Access::ALL, &[]);
    for n in 0..3 {
        pair.ends[1].handle(0, &by_hand(ReadRequest, PSN[0] + n, reth(0, 1), b""));
    }
    let said: Vec<_> = sent(&mut pair.ends[1], 0)
        .into_iter()
        .map(|(h, _)| (h.bth.psn, h.extended.aeth().expect("an answer").syndrome))
        .collect();
    let refused = (PSN[0] + 2, nak(Nak::InvalidRequest));
    assert_eq!(said, [(PSN[0], Syndrome::DONE), (PSN[0] + 1, Syndrome::DONE), refused]);
}

#[test]
fn without_a_buffer_it_is_not_ready_and_takes_the_same_packet_later() {
    let mut pair = alone(Access::ALL, &[]);
    let timer = Config::DEFAULT.rnr_timer;
    let send = by_hand(SendOnly, PSN[0], Extended::None, b"hello");
    assert_eq!(says(&mut pair, &send), (PSN[0], Syndrome::NotReady { timer }));
    // What follows is dropped without another word, as it will come again.
    assert_eq!(answers(&mut pair, &by_hand(SendOnly, PSN[0] + 1, Extended::None, b"next")), []);
    // A WRITE with immediate data needs one, too, and writes nothing without.
    let Extended::Reth(to) = reth(0, 4) else { unreachable!() };
    let write = by_hand(WriteOnlyImmediate, PSN[0], Extended::RethImmediate(to, 1), b"abcd");
    assert_eq!(says(&mut pair, &write), (PSN[0], Syndrome::NotReady { timer }));
    assert_eq!(pair.there(), [0; 2000]);
    pair.receive(5, 0, 10);
    assert_eq!(says(&mut pair, &send), (PSN[0], Syndrome::DONE));
    assert_eq!(pair.there()[..5], *b"hello");
    assert_eq!(pair.counters()[1].not_ready_sent, 2);
}

/// The UDP datagram of an IPv4 packet in one that RoCEv2 has not: with an option (4), or in IPv6 behind an extension header of
/// this number.
fn extended(kind: u8, packet: &[u8]) -> Vec<u8> {
    let datagram = &packet[20..];
    if kind == 4 {
        let mut made = packet[..20].to_vec();
        made[0] = 0x46;
        made[2..4].copy_from_slice(&(packet.len() as u16 + 4).to_be_bytes());
        made.extend([1; 4]);
        made[10..12].fill(0);
        let check = bypath_wire::checksum::checksum(&made);
        made[10..12].copy_from_slice(&check.to_be_bytes());
        return [&made, datagram].concat();
    }
    let ip = Ipv6Header::new(1u128.into(), 2u128.into(), IpProtocol(kind));
    let mut made = vec![0; 48];
    ip.emit(&mut made, 8 + datagram.len()).unwrap();
    made[40] = 17;
    if kind != 44 {
        // Padding.
        made[42..44].copy_from_slice(&[1, 4]);
    }
    [&made, datagram].concat()
}

#[test]
fn packets_that_fail_a_check_are_dropped_and_counted() {
    let other_way = |envelope: &mut Envelope, from: [u8; 4], to: [u8; 4]| {
        envelope.network = Network::V4(Ipv4Header::new(from.into(), to.into(), IpProtocol::UDP));
    };
    let send = |change: &dyn Fn(&mut Headers, &mut Envelope)| {
        changed(SendOnly, PSN[0], Extended::None, b"hello", change)
    };
    let good = send(&|_, _| ());
    let mut wrong_icrc = good.clone();
    wrong_icrc[45] ^= 1;
    let mut wrong_port = good.clone();
    wrong_port[23] ^= 1;
    let mut wrong_version = good.clone();
    wrong_version[29] |= 1;
    let mut elsewhere = good.clone();
    elsewhere[23] ^= 1;
    let uc = Opcode::new(bypath_wire::roce::Service::Uc, SendOnly).unwrap();
    let ud = Opcode::new(bypath_wire::roce::Service::Ud, SendOnly).unwrap();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("wrong_icrc", wrong_icrc),
        ("other", wrong_port),
        ("extended", extended(4, &good)),
        ("extended", extended(0, &good)),
        ("extended", extended(60, &good)),
        ("extended", extended(44, &good)),
        ("other", extended(44, &elsewhere)),
        ("malformed", wrong_version),
        ("malformed", good[..good.len() - 1].to_vec()),
        ("malformed", good[..30].to_vec()),
        ("malformed", vec![]),
        ("unknown_pair", send(&|h, _| h.bth.destination = Qpn::new(3))),
        ("wrong_partition", send(&|h, _| h.bth.pkey = 0x8001)),
        ("wrong_address", send(&|_, e| other_way(e, [10, 0, 0, 3], [10, 0, 0, 2]))),
        ("wrong_address", send(&|_, e| other_way(e, [10, 0, 0, 1], [10, 0, 0, 4]))),
        ("wrong_service", send(&|h, _| h.bth.opcode = uc)),
        (
            "wrong_service",
            send(&|h, _| {
                h.bth.opcode = ud;
                h.extended = Extended::Deth(Deth { qkey: 0, source: ONE });
            }),
        ),
        ("stale_answers", by_hand(Acknowledge, PSN[1], aeth(Syndrome::DONE, 0), b"")),
    ];
    for (counter, packet) in cases {
        let mut pair = alone(Access::ALL, &[100]);
        assert_eq!(answers(&mut pair, &packet), [], "{counter}");
        pair.settle();
        assert!(pair.events[1].is_empty() && pair.there() == [0; 2000], "{counter}");
        let counted: Vec<_> =
            pair.counters()[1].all().into_iter().filter(|(name, n)| *n > 0 && *name != "received").collect();
        assert_eq!(counted, [(counter, 1)]);
        // And the queue pair goes on as if nothing had been.
        assert_eq!(says(&mut pair, &good), (PSN[0], Syndrome::DONE));
    }
    // A limited member of the partition is one.
    let mut pair = alone(Access::ALL, &[100]);
    let limited = send(&|h, _| h.bth.pkey = 0x7fff);
    assert_eq!(says(&mut pair, &limited), (PSN[0], Syndrome::DONE));
}

#[test]
fn congestion_is_told_once_in_a_while_and_counted() {
    let mut pair = alone(Access::ALL, &[100, 100, 100]);
    let marked = |psn| {
        changed(SendOnly, psn, Extended::None, b"x", |h, e| {
            h.bth.ack_request = false;
            if let Network::V4(header) = &mut e.network {
                header.class = TrafficClass::new(0, Ecn::Experienced);
            }
        })
    };
    let mut told = Vec::new();
    for (n, now) in [0, 49_999, 50_000].into_iter().enumerate() {
        pair.ends[1].handle(now, &marked(PSN[0] + n as u32));
        let packets = sent(&mut pair.ends[1], now);
        told.push(packets.len());
        if let Some((headers, _)) = packets.first() {
            assert_eq!((headers.bth.opcode, headers.bth.becn), (Opcode::CNP, true));
            assert_eq!(headers.bth.destination, ONE);
        }
    }
    assert_eq!(told, [1, 0, 1]);
    assert_eq!((pair.counters()[1].congested, pair.counters()[1].notifications_sent), (3, 2));
    let notice = changed(Operation::Congestion, Psn::new(0), Extended::Congestion, b"", |h, _| {
        h.bth.becn = true;
    });
    assert_eq!(answers(&mut pair, &notice), []);
    assert_eq!(pair.counters()[1].notifications_received, 1);
}

#[test]
fn a_refused_request_fails_and_those_behind_it_are_flushed() {
    let access = Access { write: true, ..Access::LOCAL };
    let mut pair =
        Pair::new(config(256), Faults::NONE, 0).with_memory(octets(2000, 1), vec![0; 2000], access);
    pair.post(1, write(0, 1000, 0));
    pair.post(2, write(0, 1000, 1001));
    pair.post(3, write(0, 1000, 0));
    pair.run();
    let refused = failed(2, Failure::Refused(Nak::RemoteAccess));
    assert_eq!(pair.events[0], [done(1), refused, failed(3, Failure::Flushed)]);
    assert_eq!(pair.events[1], [What::Broken(Nak::RemoteAccess)]);
    assert_eq!(pair.there()[..1000], octets(2000, 1)[..1000]);
    assert_eq!(pair.there()[1000..], [0; 1000]);
    assert!(!pair.ends[0].is_well(ONE) && !pair.ends[1].is_well(TWO));
}

#[test]
fn a_queue_pair_whose_requests_failed_serves_no_more() {
    let mut pair = alone(Access::ALL, &[100]);
    let none = Remote { key: 1, address: 0 };
    let own = Local { key: THERE, address: BASE, len: 8 };
    pair.ends[1].post(TWO, 1, Request::Read { from: none, to: own }).expect("a place");
    assert_eq!(sent(&mut pair.ends[1], 0).len(), 1);
    let refused = by_hand(Acknowledge, PSN[1], aeth(nak(Nak::RemoteAccess), 0), b"");
    assert_eq!(answers(&mut pair, &refused), []);
    assert_eq!(answers(&mut pair, &by_hand(SendOnly, PSN[0], Extended::None, b"hello")), []);
    pair.settle();
    assert_eq!(pair.events[1], [failed(1, Failure::Refused(Nak::RemoteAccess))]);
    assert_eq!((pair.counters()[1].broken, pair.there()), (1, &[0; 2000][..]));
}
