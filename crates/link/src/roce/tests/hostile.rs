//! Packets with right checksums and wrong intentions: nothing panics, no memory that was not given changes, no queue grows.

use super::*;
use bypath_wire::roce::AtomicEth;
use proptest::prelude::*;

fn any_extended(kind: bypath_wire::roce::Extension) -> BoxedStrategy<Extended> {
    use bypath_wire::roce::{Deth, Extension as Kind};
    // Near the region's edges, or anywhere.
    let address = prop_oneof![
        (0..3000u64).prop_map(|at| BASE + at - 500),
        (0..200u64).prop_map(|at| BASE + at * 8),
        any::<u64>()
    ];
    let key = prop_oneof![4 => Just(THERE), 1 => Just(HERE), 1 => any::<u32>()];
    let length = prop_oneof![0..10u32, 0..3000u32, any::<u32>()];
    let reth = (address.clone(), key.clone(), length).prop_map(|(address, key, length)| Reth {
        address,
        key,
        length,
    });
    let syndrome = prop_oneof![
        any::<u8>().prop_map(|c| Syndrome::Ack { credits: c & 31 }),
        any::<u8>().prop_map(|t| Syndrome::NotReady { timer: t & 31 }),
        Just(nak(Nak::SequenceError)),
        Just(nak(Nak::RemoteAccess)),
    ];
    let aeth = (syndrome, 0..1u32 << 24).prop_map(|(syndrome, msn)| Aeth { syndrome, msn });
    match kind {
        Kind::None => Just(Extended::None).boxed(),
        Kind::Immediate => any::<u32>().prop_map(Extended::Immediate).boxed(),
        Kind::Invalidate => key.prop_map(Extended::Invalidate).boxed(),
        Kind::Reth => reth.prop_map(Extended::Reth).boxed(),
        Kind::RethImmediate => (reth, any::<u32>()).prop_map(|(r, i)| Extended::RethImmediate(r, i)).boxed(),
        Kind::Atomic => (address, key, any::<u64>(), any::<u64>())
            .prop_map(|(address, key, swap_or_add, compare)| {
                Extended::Atomic(AtomicEth { address, key, swap_or_add, compare })
            })
            .boxed(),
        Kind::Aeth => aeth.prop_map(Extended::Aeth).boxed(),
        Kind::AtomicAck => (aeth, any::<u64>()).prop_map(|(a, o)| Extended::AtomicAck(a, o)).boxed(),
        Kind::Deth => any::<u32>().prop_map(|qkey| Extended::Deth(Deth { qkey, source: ONE })).boxed(),
        Kind::DethImmediate => any::<(u32, u32)>()
            .prop_map(|(qkey, i)| Extended::DethImmediate(Deth { qkey, source: ONE }, i))
            .boxed(),
        Kind::Congestion => Just(Extended::Congestion).boxed(),
    }
}

/// A packet: how far its PSN is from where the circle of the requests, or of the answers, is.
#[derive(Debug, Clone)]
struct Hostile {
    opcode: Opcode,
    extended: Extended,
    payload: Vec<u8>,
    /// Mostly the next one, from the last one that was near.
    ahead: i32,
}

fn hostile() -> impl Strategy<Value = Hostile> {
    use bypath_wire::roce::Amount;
    let opcodes: Vec<Opcode> = (0..=255).filter_map(Opcode::from_octet).collect();
    prop::sample::select(opcodes).prop_flat_map(|opcode| {
        let len = match opcode.operation().amount() {
            Amount::None => Just(0).boxed(),
            Amount::Whole => prop::sample::select(&[256usize, 256, 256, 512, 4][..]).boxed(),
            Amount::Some => (1..300usize).boxed(),
            Amount::Any => (0..300usize).boxed(),
        };
        let ahead = prop_oneof![6 => Just(0), 2 => -20..20i32, 1 => any::<i32>()];
        (any_extended(opcode.extension()), len, ahead).prop_map(move |(extended, len, ahead)| Hostile {
            opcode,
            extended,
            payload: octets(len, 3),
            ahead,
        })
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn a_connection_bears_any_packets(
        packets in prop::collection::vec(hostile(), 1..60), access in any::<[bool; 3]>(), reliable: bool,
    ) {
        let [read, write, atomic] = access;
        let access = Access { read, write, atomic };
        let config = Config { reads: 3, ..config(256) };
        let mut pair = Pair::of(config, Faults::NONE, 0, false, reliable)
            .with_memory(vec![], octets(2000, 7), access);
        // Memory of this end's own, beside what was given, also where the buffers for messages are not.
        pair.ends[1].memory.register(HERE, octets(2000, 8), 0, Access::LOCAL).unwrap();
        pair.ends[1].memory.register(1, vec![0; 400], 0, Access::LOCAL).unwrap();
        let buffer = Local { key: 1, address: 100, len: 200 };
        for id in 0..4 {
            pair.ends[1].receive(TWO, Receive { id, to: buffer }).unwrap();
        }
        // Something of its own to ask for.
        let own = |address, len| Local { key: HERE, address, len };
        let to = Remote { key: 5, address: 0 };
        let target = Local { key: 1, address: 300, len: 50 };
        let write_request = Request::Write { from: own(0, 1000), to, immediate: None };
        pair.ends[1].post(TWO, 1, write_request).unwrap();
        if reliable {
            pair.ends[1].post(TWO, 2, Request::Read { from: to, to: target }).unwrap();
            pair.ends[1].post(TWO, 3, Request::FetchAdd { at: to, add: 1 }).unwrap();
        }
        sent(&mut pair.ends[1], 0);
        let mut next = [PSN[0], PSN[1]];
        let mut now = 0;
        for packet in packets {
            let is_request = packet.opcode.operation().is_request();
            let base = &mut next[usize::from(!is_request)];
            let psn = *base + packet.ahead as u32;
            if packet.ahead.abs() < 20 {
                *base = psn + 1;
            }
            let bth = Bth { ack_request: true, ..Bth::new(packet.opcode, TWO, psn) };
            let headers = Headers { bth, extended: packet.extended };
            let mut buffer = vec![0; 1000];
            let len = way(0, false, false).emit(&mut buffer, &headers, &packet.payload).expect("a packet");
            pair.ends[1].handle(now, &buffer[..len]);
            now += 1000;
        }
        // A READ can be long: what it sends is bounded by what may be read, what is left is counted up to there.
        let mut room = vec![0; pair.ends[1].longest()];
        let answers = std::iter::from_fn(|| pair.ends[1].poll_transmit(now, &mut room)).take(200).count();
        prop_assert!(answers < 200);
        let whole = |key, len, base| pair.ends[1].memory.octets(Local { key, address: base, len }).unwrap();
        prop_assert!(whole(HERE, 2000, 0) == octets(2000, 8));
        prop_assert!(whole(1, 100, 0).iter().all(|b| *b == 0) && whole(1, 50, 350).iter().all(|b| *b == 0));
        if !write && !atomic {
            prop_assert!(pair.there() == octets(2000, 7));
        }
        let events = std::iter::from_fn(|| pair.ends[1].poll_event()).count();
        prop_assert!(events <= 9);
    }

    #[test]
    fn changed_octets_never_reach_a_queue_pair(
        at in any::<prop::sample::Index>(), bit in 0..8u8, cut in any::<prop::sample::Index>(), is_cut: bool,
    ) {
        let mut pair = Pair::new(config(256), Faults::NONE, 0).with_memory(vec![], vec![0; 100], Access::ALL);
        let mut packet = by_hand(Operation::WriteOnly, PSN[0], reth(0, 9), b"some text");
        let at = at.index(packet.len());
        packet[at] ^= 1 << bit;
        // Fields that may change on the way; the sum of the IP header does not let its own change pass.
        let may_change = matches!(at, 26 | 27 | 32);
        if is_cut {
            packet.truncate(cut.index(packet.len()));
        }
        pair.ends[1].handle(0, &packet);
        prop_assert_eq!(pair.there() != [0; 100], may_change && !is_cut);
    }
}
