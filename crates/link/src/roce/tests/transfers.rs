//! Everything that can be asked for, on a link without faults.

use super::*;

const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Lengths around every edge of a path MTU.
fn lengths(mtu: u32) -> [u32; 9] {
    [0, 1, 3, mtu - 1, mtu, mtu + 1, 2 * mtu, 3 * mtu + 5, 100 * mtu + 7]
}

fn quiet(pair: &Pair) {
    for counters in pair.counters() {
        let Counters { repeated, duplicates, timeouts, gaps, stale_answers, naks_received, .. } = counters;
        assert_eq!([repeated, duplicates, timeouts, gaps, stale_answers, naks_received], [0; 6]);
    }
}

#[test]
fn sends_arrive_in_their_buffers_and_say_what_goes_beside() {
    for (mtu, v6) in MTUS.into_iter().flat_map(|mtu| [(mtu, false), (mtu, true)]) {
        let longest = 100 * mtu + 7;
        let data = octets(longest as usize, 1);
        for len in lengths(mtu) {
            for immediate in [None, Some(0xdead_beef)] {
                let mut pair = Pair::of(config(mtu), Faults::NONE, 0, v6, true).with_memory(
                    data.clone(),
                    vec![0; longest as usize + 10],
                    Access::LOCAL,
                );
                pair.receive(70, 5, longest);
                let beside = immediate.map_or(Beside::Nothing, Beside::Immediate);
                pair.post(1, Request::Send { from: local(0, len), beside });
                pair.run();
                let received = Received { id: 70, len, written: false, immediate, source: None };
                assert_eq!(pair.events, [vec![done(1)], vec![What::Received(received)]]);
                let mut expected = vec![0; longest as usize + 10];
                expected[5..5 + len as usize].copy_from_slice(&data[..len as usize]);
                assert!(pair.there() == expected, "mtu {mtu} len {len}");
                assert_eq!(pair.counters()[0].sent, u64::from(len.div_ceil(mtu).max(1)));
                quiet(&pair);
            }
        }
    }
}

#[test]
fn writes_arrive_where_they_are_told_and_only_immediate_data_is_told() {
    for mtu in MTUS {
        for len in lengths(mtu) {
            for immediate in [None, Some(7)] {
                let size = len as usize + 20;
                let access = Access { write: true, ..Access::LOCAL };
                let mut pair = Pair::new(config(mtu), Faults::NONE, 0).with_memory(
                    octets(size, 2),
                    vec![0; size],
                    access,
                );
                pair.receive(70, 0, 0);
                pair.post(1, Request::Write { from: local(3, len), to: remote(10), immediate });
                pair.run();
                let told = immediate.map(|_| {
                    What::Received(Received { id: 70, len, written: true, immediate, source: None })
                });
                assert_eq!(pair.events, [vec![done(1)], told.into_iter().collect()]);
                let mut expected = vec![0; size];
                expected[10..10 + len as usize].copy_from_slice(&octets(size, 2)[3..3 + len as usize]);
                assert!(pair.there() == expected, "mtu {mtu} len {len}");
                quiet(&pair);
            }
        }
    }
}

#[test]
fn reads_fetch_what_is_there() {
    for mtu in MTUS {
        for len in lengths(mtu) {
            let size = len as usize + 20;
            let access = Access { read: true, ..Access::LOCAL };
            let mut pair =
                Pair::new(config(mtu), Faults::NONE, 0).with_memory(vec![0; size], octets(size, 3), access);
            pair.post(1, read(10, 3, len));
            pair.run();
            assert_eq!(pair.events, [vec![done(1)], vec![]]);
            let mut expected = vec![0; size];
            expected[3..3 + len as usize].copy_from_slice(&octets(size, 3)[10..10 + len as usize]);
            assert!(pair.here() == expected, "mtu {mtu} len {len}");
            quiet(&pair);
            // One packet asks, the answers are the acknowledgement.
            assert_eq!((pair.counters()[0].sent, pair.counters()[1].acks_sent), (1, 0));
        }
    }
}

#[test]
fn atomic_operations_tell_what_was_there_and_change_it() {
    let access = Access { atomic: true, ..Access::LOCAL };
    let there = [5u64, 7].map(u64::to_ne_bytes).concat();
    let mut pair = Pair::new(config(256), Faults::NONE, 0).with_memory(vec![], there, access);
    let swap = |compare, swap| Request::CompareSwap { at: remote(0), compare, swap };
    pair.post(1, swap(5, 50));
    pair.post(2, swap(5, 51));
    pair.post(3, Request::FetchAdd { at: remote(8), add: 3 });
    pair.post(4, Request::FetchAdd { at: remote(8), add: u64::MAX });
    pair.run();
    let was = |id, value| What::Over { id, result: Ok(Done::Was(value)) };
    assert_eq!(pair.events[0], [was(1, 5), was(2, 50), was(3, 7), was(4, 10)]);
    assert_eq!(pair.there(), [50u64, 9].map(u64::to_ne_bytes).concat());
    quiet(&pair);
}

#[test]
fn requests_of_all_kinds_are_done_in_order_beyond_the_window_and_the_reads_allowed() {
    let config = Config { window: 8, reads: 2, ack_every: 3, ..config(256) };
    let mut pair =
        Pair::new(config, Faults::NONE, 0).with_memory(octets(4000, 4), vec![0; 4000], Access::ALL);
    for n in 0..60u64 {
        pair.receive(1000 + n, 3000, 1000);
        pair.post(
            n,
            match n % 4 {
                0 => write(n, 1000, 0),
                1 => read(0, 2000, 1000),
                2 => send(n, 600),
                _ => Request::FetchAdd { at: remote(1016), add: 1 },
            },
        );
    }
    pair.run();
    let ids = pair.events[0].iter().map(|e| match e {
        What::Over { id, result: Ok(_) } => *id,
        other => panic!("{other:?}"),
    });
    assert!(ids.eq(0..60));
    assert_eq!(
        &pair.here()[2000..3000],
        &octets(4000, 4)[56..1056],
        "the last READ is behind the last WRITE"
    );
    // No WRITE reaches it.
    assert_eq!(pair.there()[1016..1024], 15u64.to_ne_bytes());
    quiet(&pair);
}

#[test]
fn acknowledgements_that_are_due_together_are_one() {
    let mut pair =
        Pair::new(config(256), Faults::NONE, 0).with_memory(octets(256, 5), vec![0; 256], Access::ALL);
    for n in 0..20 {
        pair.post(n, write(0, 256, 0));
    }
    pair.run();
    assert_eq!(pair.events[0].len(), 20);
    assert_eq!((pair.counters()[0].sent, pair.counters()[1].acks_sent), (20, 1));
}

#[test]
fn a_send_that_invalidates_takes_the_key_from_others() {
    let mut pair =
        Pair::new(config(256), Faults::NONE, 0).with_memory(octets(256, 5), vec![0; 256], Access::ALL);
    pair.ends[1].memory.register(0x33, vec![0; 10], 0, Access::ALL).unwrap();
    pair.receive(1, 0, 10);
    pair.post(1, Request::Send { from: local(0, 10), beside: Beside::Invalidate(0x33) });
    pair.post(2, Request::Read { from: Remote { key: 0x33, address: 0 }, to: local(0, 1) });
    pair.run();
    assert_eq!(pair.events[0], [done(1), failed(2, Failure::Refused(Nak::RemoteAccess))]);
}

#[test]
fn unreliable_connections_deliver_what_arrives_whole() {
    let mut pair = Pair::of(config(256), Faults::NONE, 0, false, false).with_memory(
        octets(4000, 6),
        vec![0; 4000],
        Access::ALL,
    );
    pair.receive(70, 0, 1000);
    pair.receive(71, 2000, 10);
    pair.post(1, send(0, 1000));
    pair.post(2, Request::Write { from: local(7, 700), to: remote(1000), immediate: Some(9) });
    let refused = pair.ends[0].post(ONE, 3, read(0, 0, 1));
    assert_eq!(refused, Err(NotPosted::Service));
    pair.run();
    assert_eq!(pair.events[0], [done(1), done(2)]);
    let received = |id, len, written, immediate| Received { id, len, written, immediate, source: None };
    let told = [received(70, 1000, false, None), received(71, 700, true, Some(9))].map(What::Received);
    assert_eq!(pair.events[1], told);
    assert_eq!(pair.there()[..1000], octets(4000, 6)[..1000]);
    assert_eq!(pair.there()[1000..1700], octets(4000, 6)[7..707]);
}

#[test]
fn unreliable_messages_with_a_gap_are_not_delivered_and_the_next_one_is() {
    let mut pair = Pair::of(config(256), Faults::NONE, 0, false, false).with_memory(
        octets(4000, 6),
        vec![0; 4000],
        Access::ALL,
    );
    for n in 0..3 {
        pair.receive(70 + n, n * 1000, 1000);
        pair.post(n, send(n, 1000));
    }
    let mut buffer = vec![0; pair.ends[0].longest()];
    // Of twelve packets the sixth is lost: the second message's second one.
    for n in 0..12 {
        let len = pair.ends[0].poll_transmit(0, &mut buffer).expect("a packet");
        if n != 5 {
            pair.ends[1].handle(0, &buffer[14..len]);
        }
    }
    pair.settle();
    let ids: Vec<_> = pair.events[1]
        .iter()
        .map(|e| if let What::Received(r) = e { (r.id, r.len) } else { panic!("{e:?}") })
        .collect();
    // The second message's buffer is the third one's.
    assert_eq!(ids, [(70, 1000), (71, 1000)]);
    assert_eq!(pair.there()[1000..2000], octets(4000, 6)[2..1002]);
    // Behind the gap came two packets of the second message, which belong to nothing.
    assert_eq!((pair.counters()[1].incomplete, pair.counters()[1].headless), (1, 2));
}

#[test]
fn datagrams_arrive_with_their_source_and_only_with_the_key() {
    let (mut here, mut there) = (Device::new(), Device::new());
    here.datagrams(ONE, 5, Mtu::LARGEST).unwrap();
    there.datagrams(TWO, 0x8001_0000, Mtu::LARGEST).unwrap();
    here.memory.register(HERE, octets(5000, 1), 0, Access::LOCAL).unwrap();
    there.memory.register(THERE, vec![0; 5000], BASE, Access::LOCAL).unwrap();
    for (id, len) in [(1, 5), (2, 4096)] {
        there.receive(TWO, Receive { id, to: Local { key: THERE, address: BASE, len } }).unwrap();
    }
    let to = |qkey| To { envelope: way(0, false, false), pair: TWO, qkey };
    let post = |here: &mut Device, qkey, len, immediate| {
        here.post_datagram(ONE, 9, to(qkey), local(0, len), immediate)
    };
    // A wrong key; one longer than the first buffer; one that fits; one for which there is no buffer left behind it.
    for (qkey, len, immediate) in
        [(1, 5, None), (0x8001_0000, 6, None), (0x8001_0000, 5, Some(3)), (0x8001_0000, 4096, None)]
    {
        assert_eq!(post(&mut here, qkey, len, immediate), Ok(()));
    }
    assert_eq!(post(&mut here, 1, 4097, None), Err(NotPosted::TooLong { len: 4097, most: 4096 }));
    let mut buffer = vec![0; here.longest()];
    while let Some(len) = here.poll_transmit(0, &mut buffer) {
        there.handle(0, &buffer[..len]);
    }
    let source = Some(Source { address: [10, 0, 0, 1].into(), port: 0xc001, pair: ONE });
    let received =
        |id, len, immediate| What::Received(Received { id, len, written: false, immediate, source });
    let events: Vec<_> = std::iter::from_fn(|| there.poll_event()).map(|e| e.what).collect();
    assert_eq!(events, [received(1, 5, Some(3)), received(2, 4096, None)]);
    assert_eq!((there.counters().wrong_qkey, there.counters().no_room), (1, 1));
    assert_eq!(std::iter::from_fn(|| here.poll_event()).filter(|e| e.what == done(9)).count(), 4);
}

#[test]
fn what_cannot_be_is_not_taken() {
    let mut device = Device::new();
    let make =
        |device: &mut Device, config| device.connect(ONE, TWO, way(0, false, false), config, PSN[0], PSN[1]);
    for wrong in [
        Config { window: 0, ..Config::DEFAULT },
        Config { ack_every: 0, ..Config::DEFAULT },
        Config { timeout: 0, ..Config::DEFAULT },
        Config { reads: 0, ..Config::DEFAULT },
        Config { reads: 129, ..Config::DEFAULT },
    ] {
        assert!(matches!(make(&mut device, wrong), Err(NotMade::Invalid(_))));
    }
    make(&mut device, Config::DEFAULT).unwrap();
    assert_eq!(make(&mut device, Config::DEFAULT), Err(NotMade::Taken));
    assert_eq!(device.post(TWO, 1, send(0, 0)), Err(NotPosted::Unknown));
    assert_eq!(device.post(ONE, 1, send(0, 1)), Err(NotPosted::Memory));
    device.memory.register(HERE, vec![0; 9], 0, Access::LOCAL).unwrap();
    for n in 0..4096 {
        assert_eq!(device.post(ONE, n, send(0, 9)), Ok(()));
    }
    assert_eq!(device.post(ONE, 1, send(0, 9)), Err(NotPosted::Full));
    // Too little room for a packet: nothing happens.
    assert_eq!(device.poll_transmit(0, &mut [0; 100]), None);
    // The memory goes away under the requests.
    assert!(device.memory.deregister(HERE).is_some());
    assert!(sent(&mut device, 0).is_empty());
    let first = device.poll_event().expect("an event").what;
    assert_eq!(first, failed(0, Failure::Memory));
    assert!(
        std::iter::from_fn(|| device.poll_event())
            .all(|e| { matches!(e.what, What::Over { result: Err(Failure::Flushed), .. }) })
    );
    assert_eq!(device.post(ONE, 1, send(0, 0)), Err(NotPosted::Broken));
    assert!(!device.is_well(ONE) && device.remove(ONE) && !device.remove(ONE));
}

#[test]
fn path_mtus_fit_into_links() {
    let within = |octets| Mtu::within(octets).map(Mtu::octets);
    assert_eq!([within(1500), within(9000), within(4180), within(4179)], [1024, 4096, 4096, 2048].map(Some));
    assert_eq!(within(300), None);
    assert_eq!((Mtu::new(1500), Mtu::new(0)), (None, None));
}
