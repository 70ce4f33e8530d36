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

    #[test]
    fn a_conversation_bears_packets_that_were_changed_on_the_way(seed in 1u64.., rate in 0..400u64) {
        conversation(seed, rate);
    }
}

#[test]
fn a_conversation_without_changes_is_held_to_its_end() {
    (1..40).for_each(|seed| conversation(seed * 0x9e37_79b9, 0));
}

/// Both ends ask for everything, and of 1000 packets `rate` are changed, their ICRC right all the same.
fn conversation(seed: u64, rate: u64) {
    let mut state = seed;
    let mut below = move |limit: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % limit
    };
    let config = Config { reads: 3, timeout: 100_000, retries: 3, rnr_timer: 1, window: 16, ..config(256) };
    let mut pair = Pair::of(config, Faults::NONE, 0, false, true);
    const SIZE: usize = 3000;
    // What the other end may use, what it may not, and the place for what it answers.
    const OWN: u32 = 0x3333;
    const ANSWERS: std::ops::Range<usize> = 1000..2000;
    let pairs = [ONE, TWO];
    for (device, pair) in pair.ends.iter_mut().zip(pairs) {
        device.memory.register(THERE, octets(SIZE, 7), BASE, Access::ALL).unwrap();
        device.memory.register(OWN, octets(SIZE, 8), 0, Access::LOCAL).unwrap();
        for id in 0..6 {
            // Places for messages are in memory that the other end may use.
            let to = Local { key: THERE, address: BASE + 100, len: 600 };
            device.receive(pair, Receive { id, to }).unwrap();
        }
    }
    let mut posted = 0;
    for id in 0..16 {
        let own = Local { key: OWN, address: below(900), len: below(900) as u32 };
        let answers = Local { address: ANSWERS.start as u64, ..own };
        let request = match below(5) {
            0 => Request::Send { from: Local { len: own.len.min(600), ..own }, beside: Beside::Immediate(1) },
            1 => Request::Write { from: own, to: remote(below(2000)), immediate: None },
            2 => Request::Write { from: own, to: remote(below(2000)), immediate: Some(2) },
            3 => Request::Read { from: remote(below(2000)), to: answers },
            _ => Request::FetchAdd { at: remote(below(300) * 8), add: 1 },
        };
        for (device, pair) in pair.ends.iter_mut().zip(pairs) {
            device.post(pair, id, request).unwrap();
        }
        posted += 1;
    }
    let (mut now, mut given, mut taken) = (0, [0u64; 2], [0u64; 2]);
    let mut events = [Vec::new(), Vec::new()];
    for _ in 0..400 {
        for side in 0..2 {
            let mut room = vec![0; pair.ends[side].longest()];
            let mut packets = Vec::new();
            while let Some(len) = pair.ends[side].poll_transmit(now, &mut room) {
                taken[side] += 1;
                packets.push(room[14..len].to_vec());
                assert!(packets.len() < 10_000, "seed {seed}: it does not end");
            }
            for packet in packets {
                for packet in changed_on_the_way(side, &packet, rate, &mut below) {
                    given[1 - side] += 1;
                    pair.ends[1 - side].handle(now, &packet);
                }
            }
        }
        for (device, events) in pair.ends.iter_mut().zip(&mut events) {
            events.extend(std::iter::from_fn(|| device.poll_event()));
        }
        let Some(due) = pair.ends.iter().filter_map(Device::poll_timeout).min() else { break };
        now = due.max(now + 1000);
        pair.ends.iter_mut().for_each(|device| device.handle_timeout(now));
    }
    for side in 0..2 {
        let device = &pair.ends[side];
        let own = device.memory.octets(Local { key: OWN, address: 0, len: SIZE as u32 }).unwrap();
        let before = octets(SIZE, 8);
        assert!(own[..ANSWERS.start] == before[..ANSWERS.start], "seed {seed}: memory that nobody was given");
        assert!(own[ANSWERS.end..] == before[ANSWERS.end..], "seed {seed}: memory that nobody was given");
        // Each request is over once at most, each place was used once at most, the end was told once at most.
        let mut over = vec![0; posted];
        let (mut received, mut broken) = ([0; 6], 0);
        for event in &events[side] {
            match event.what {
                What::Over { id, .. } => over[id as usize] += 1,
                What::Received(message) => received[message.id as usize] += 1,
                What::Broken(_) => broken += 1,
            }
        }
        assert!(
            over.iter().chain(&received).chain([&broken]).all(|n| *n <= 1),
            "seed {seed}: {:?}",
            events[side]
        );
        let c = device.counters();
        assert_eq!((c.received, c.sent), (given[side], taken[side]), "seed {seed}");
        assert_eq!((c.malformed, c.wrong_icrc, c.other), (0, 0, 0), "seed {seed}");
        let dropped = c.unknown_pair + c.wrong_address + c.wrong_partition + c.wrong_service + c.wrong_qkey;
        let dropped = dropped + c.broken + c.ahead + c.duplicates + c.stale_answers;
        assert!(dropped <= c.received + c.duplicates, "seed {seed}: {c:?}");
        if rate == 0 {
            let all =
                over.iter().sum::<usize>() == posted || c.not_ready_sent > 0 || c.not_ready_received > 0;
            assert!(
                all && broken == 0 && dropped == c.duplicates + c.ahead,
                "seed {seed}: {c:?} {:?}",
                events[side]
            );
        }
    }
}

/// What becomes of a packet: itself, another one, several, or none.
fn changed_on_the_way(
    side: usize,
    packet: &[u8],
    rate: u64,
    below: &mut impl FnMut(u64) -> u64,
) -> Vec<Vec<u8>> {
    if below(1000) >= rate {
        return vec![packet.to_vec()];
    }
    let parsed = Packet::parse(packet).expect("a packet");
    let (mut headers, mut payload) = (parsed.headers, parsed.payload.to_vec());
    let near = |value: u64, below: &mut dyn FnMut(u64) -> u64| match below(4) {
        0 => value.wrapping_add(below(8)),
        1 => value.wrapping_sub(below(8)),
        2 => 1 << below(64),
        _ => u64::MAX - below(3),
    };
    match below(9) {
        0 => return Vec::new(),
        1 => return vec![packet.to_vec(); 2],
        2 => headers.bth.psn = headers.bth.psn + below(5) as u32,
        3 => headers.bth.psn = headers.bth.psn - below(300) as u32,
        4 => {
            // Another operation with the same headers.
            let same = |o: &Opcode| o.extension() == headers.bth.opcode.extension();
            let all: Vec<Opcode> = (0..=255).filter_map(Opcode::from_octet).filter(same).collect();
            headers.bth.opcode = all[below(all.len() as u64) as usize];
        }
        5 => {
            let more = if below(2) == 0 { 4 } else { 1 };
            payload.resize(
                if below(2) == 0 { payload.len() + more } else { payload.len().saturating_sub(more) },
                9,
            );
        }
        6 => payload = octets([0, 1, 255, 256, 257, 4096][below(6) as usize], 5),
        _ => match &mut headers.extended {
            Extended::Reth(reth) | Extended::RethImmediate(reth, _) => match below(3) {
                0 => reth.address = near(reth.address, below),
                1 => reth.length = near(reth.length.into(), below) as u32,
                _ => reth.key = [0, THERE, 0x3333][below(3) as usize],
            },
            Extended::Atomic(atomic) => atomic.address = near(atomic.address, below),
            Extended::Aeth(aeth) | Extended::AtomicAck(aeth, _) => {
                let octet = below(128) as u8;
                aeth.syndrome = Syndrome::from_octet(octet).unwrap_or(Syndrome::DONE);
            }
            _ => headers.bth.ack_request ^= true,
        },
    }
    let mut buffer = vec![0; 6000];
    let made = way(side, false, false).emit(&mut buffer, &headers, &payload);
    // What no packet can be does not get through a sender; the parser's tests have such.
    made.map_or_else(|_| vec![packet.to_vec()], |len| vec![buffer[..len].to_vec()])
}
