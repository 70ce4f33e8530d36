//! Sending again, and seeing what comes again: packet by packet.

use super::*;
use Operation::{
    Acknowledge, AtomicAcknowledge, FetchAdd, ReadFirst, ReadLast, ReadMiddle, ReadOnly, ReadRequest,
    SendOnly, WriteOnly,
};

/// The first end alone, with these requests.
fn asking(config: Config, requests: &[Request]) -> Pair {
    let mut pair = Pair::new(config, Faults::NONE, 0).with_memory(octets(2000, 1), vec![], Access::LOCAL);
    for (n, request) in requests.iter().enumerate() {
        pair.post(n as u64, *request);
    }
    pair
}

/// What the first end sends now: opcodes and how far from its first PSN.
fn asks(pair: &mut Pair) -> Vec<(Operation, u32)> {
    let now = pair.clock.get();
    let packets = sent(&mut pair.ends[0], now);
    packets.into_iter().map(|(h, _)| (h.bth.opcode.operation(), h.bth.psn.since(PSN[0]))).collect()
}

/// Gives the first end an answer.
fn answer(pair: &mut Pair, operation: Operation, psn: u32, extended: Extended, payload: &[u8]) {
    let packet = changed(operation, PSN[0] + psn, extended, payload, |h, e| {
        h.bth.destination = ONE;
        *e = Envelope { link: None, ..way(1, false, false) };
    });
    let now = pair.clock.get();
    pair.ends[0].handle(now, &packet);
    while let Some(event) = pair.ends[0].poll_event() {
        pair.events[0].push(event.what);
    }
}

fn acknowledge(pair: &mut Pair, psn: u32, syndrome: Syndrome) {
    answer(pair, Acknowledge, psn, aeth(syndrome, 0), b"");
}

const W: Operation = WriteOnly;

fn writes(n: usize) -> Vec<Request> {
    vec![write(0, 10, 0); n]
}

#[test]
fn silence_is_waited_for_asked_again_and_in_the_end_an_error() {
    let config = Config { retries: 2, timeout: 1000, ..config(256) };
    let mut pair = asking(config, &writes(2));
    // Twice as long each time.
    for due in [1000, 3000, 7000] {
        assert_eq!(asks(&mut pair), [(W, 0), (W, 1)], "{due}");
        assert_eq!(pair.ends[0].poll_timeout(), Some(due));
        // Not before its time.
        pair.ends[0].handle_timeout(due - 1);
        assert_eq!(asks(&mut pair), []);
        pair.clock.set(due);
        pair.ends[0].handle_timeout(due);
    }
    assert_eq!(asks(&mut pair), []);
    pair.settle();
    assert_eq!(pair.events[0], [failed(0, Failure::Silence), failed(1, Failure::Flushed)]);
    assert_eq!(pair.ends[0].poll_timeout(), None);
    assert_eq!((pair.counters()[0].timeouts, pair.counters()[0].repeated), (3, 4));
}

#[test]
fn progress_gives_the_full_number_of_retries_back() {
    let config = Config { retries: 1, timeout: 1000, ..config(256) };
    let mut pair = asking(config, &writes(5));
    asks(&mut pair);
    for n in 0..5 {
        let due = pair.ends[0].poll_timeout().expect("a deadline");
        pair.clock.set(due);
        pair.ends[0].handle_timeout(due);
        assert_eq!(asks(&mut pair).first(), Some(&(W, n)));
        acknowledge(&mut pair, n, Syndrome::DONE);
    }
    assert_eq!(pair.events[0], [0, 1, 2, 3, 4].map(done));
}

#[test]
fn an_acknowledgement_is_of_everything_before_it_and_a_stale_one_of_nothing() {
    let mut pair = asking(config(256), &writes(4));
    asks(&mut pair);
    acknowledge(&mut pair, 2, Syndrome::DONE);
    assert_eq!(pair.events[0], [0, 1, 2].map(done));
    acknowledge(&mut pair, 1, Syndrome::DONE);
    // Of what was never sent.
    acknowledge(&mut pair, 4, Syndrome::DONE);
    acknowledge(&mut pair, 1 << 23, Syndrome::DONE);
    assert_eq!((pair.events[0].len(), pair.counters()[0].stale_answers), (3, 3));
    acknowledge(&mut pair, 3, Syndrome::DONE);
    assert_eq!(pair.events[0].last(), Some(&done(3)));
    assert_eq!(pair.ends[0].poll_timeout(), None);
}

#[test]
fn a_sequence_error_goes_back_to_what_is_missing() {
    let mut pair = asking(config(256), &writes(4));
    asks(&mut pair);
    acknowledge(&mut pair, 2, nak(Nak::SequenceError));
    assert_eq!(pair.events[0], [0, 1].map(done));
    assert_eq!(asks(&mut pair), [(W, 2), (W, 3)]);
}

#[test]
fn who_is_not_ready_is_left_alone_for_the_time_he_asks_for() {
    let mut pair = asking(config(256), &[send(0, 10), send(0, 10), send(0, 10)]);
    asks(&mut pair);
    // Code 1: 10 us.
    acknowledge(&mut pair, 1, Syndrome::NotReady { timer: 1 });
    assert_eq!(pair.events[0], [done(0)]);
    assert_eq!(asks(&mut pair), []);
    assert_eq!(pair.ends[0].poll_timeout(), Some(10_000));
    pair.clock.set(10_000);
    pair.ends[0].handle_timeout(10_000);
    assert_eq!(asks(&mut pair), [(SendOnly, 1), (SendOnly, 2)]);
    assert_eq!(pair.ends[0].poll_timeout(), Some(10_000 + Config::DEFAULT.timeout));
}

#[test]
fn who_is_never_ready_is_given_up_after_the_retries_allowed() {
    for (rnr_retries, tries) in [(0, 1), (2, 3), (6, 7), (7, 100)] {
        let mut pair = asking(Config { rnr_retries, ..config(256) }, &[send(0, 10)]);
        for n in 0..tries {
            assert!(pair.events[0].is_empty(), "{rnr_retries}: {n}");
            assert_eq!(asks(&mut pair), [(SendOnly, 0)], "{rnr_retries}: {n}");
            acknowledge(&mut pair, 0, Syndrome::NotReady { timer: 1 });
            pair.clock.set(pair.clock.get() + 10_000);
        }
        let given_up = pair.events[0] == [failed(0, Failure::NotReady)];
        assert_eq!(given_up, rnr_retries < 7, "{rnr_retries}");
    }
}

#[test]
fn progress_gives_the_full_number_of_not_ready_back() {
    let requests = [send(0, 10), send(0, 10), send(0, 10)];
    let mut pair = asking(Config { rnr_retries: 1, ..config(256) }, &requests);
    for n in 0..3 {
        assert_eq!(asks(&mut pair).first(), Some(&(SendOnly, n)));
        acknowledge(&mut pair, n, Syndrome::NotReady { timer: 1 });
        pair.clock.set(pair.clock.get() + 10_000);
        assert_eq!(asks(&mut pair).first(), Some(&(SendOnly, n)));
        acknowledge(&mut pair, n, Syndrome::DONE);
        assert_eq!(pair.events[0].last(), Some(&done(n.into())));
        // What follows was on its way, and is dropped by who was not ready.
        acknowledge(&mut pair, n + 1, nak(Nak::SequenceError));
    }
}

#[test]
fn a_read_that_comes_slowly_is_progress() {
    let config = Config { retries: 0, timeout: 1000, ..config(256) };
    let mut pair = asking(config, &[read(0, 0, 1024)]);
    asks(&mut pair);
    for (n, operation) in [ReadFirst, ReadMiddle, ReadMiddle, ReadLast].into_iter().enumerate() {
        // Each just in time.
        pair.clock.set(pair.clock.get() + 999);
        let now = pair.clock.get();
        pair.ends[0].handle_timeout(now);
        let extended = if operation == ReadMiddle { Extended::None } else { aeth(Syndrome::DONE, 0) };
        answer(&mut pair, operation, n as u32, extended, &[7; 256]);
    }
    assert_eq!(pair.events[0], [done(0)]);
    assert_eq!(pair.counters()[0].timeouts, 0);
}

#[test]
fn of_a_read_only_what_is_missing_is_asked_again() {
    let mut pair = asking(config(256), &[read(100, 0, 1000), write(0, 10, 0)]);
    assert_eq!(asks(&mut pair), [(ReadRequest, 0), (W, 4)]);
    let part = |n: usize| octets(1000, 9)[n * 256..1000.min(n * 256 + 256)].to_vec();
    answer(&mut pair, ReadFirst, 0, aeth(Syndrome::DONE, 0), &part(0));
    // The second packet is lost: the third one shows it, once.
    answer(&mut pair, ReadMiddle, 2, Extended::None, &part(2));
    answer(&mut pair, ReadLast, 3, aeth(Syndrome::DONE, 0), &part(3));
    let now = pair.clock.get();
    let again = sent(&mut pair.ends[0], now);
    assert_eq!(again.len(), 2);
    let (headers, _) = &again[0];
    assert_eq!((headers.bth.psn.since(PSN[0]), headers.extended), (1, reth(100 + 256, 1000 - 256)));
    assert_eq!(again[1].0.bth.psn.since(PSN[0]), 4);
    answer(&mut pair, ReadFirst, 1, aeth(Syndrome::DONE, 0), &part(1));
    answer(&mut pair, ReadMiddle, 2, Extended::None, &part(2));
    answer(&mut pair, ReadLast, 3, aeth(Syndrome::DONE, 0), &part(3));
    assert_eq!(pair.events[0], [done(0)]);
    assert_eq!(pair.here()[..1000], octets(1000, 9));
    acknowledge(&mut pair, 4, Syndrome::DONE);
    assert_eq!((pair.events[0].len(), pair.counters()[0].gaps), (2, 1));
}

#[test]
fn an_acknowledgement_behind_a_read_tells_that_its_answer_is_lost() {
    let mut pair = asking(config(256), &[write(0, 10, 0), read(0, 0, 10), write(0, 10, 0)]);
    assert_eq!(asks(&mut pair), [(W, 0), (ReadRequest, 1), (W, 2)]);
    acknowledge(&mut pair, 2, Syndrome::DONE);
    assert_eq!(pair.events[0], [done(0)]);
    assert_eq!(asks(&mut pair), [(ReadRequest, 1), (W, 2)]);
    // Again the same says nothing new.
    acknowledge(&mut pair, 2, Syndrome::DONE);
    assert_eq!(asks(&mut pair), []);
    // The answer says that the WRITE before it is done, too.
    answer(&mut pair, ReadOnly, 1, aeth(Syndrome::DONE, 0), b"0123456789");
    acknowledge(&mut pair, 2, Syndrome::DONE);
    assert_eq!(pair.events[0], [0, 1, 2].map(done));
}

#[test]
fn answers_that_cannot_be_are_an_error() {
    let done_ack = aeth(Syndrome::DONE, 0);
    let read = read(0, 0, 300);
    let add = Request::FetchAdd { at: remote(0), add: 1 };
    let refused = aeth(nak(Nak::RemoteAccess), 0);
    let no_atomic = Extended::AtomicAck(Aeth { syndrome: Syndrome::NotReady { timer: 1 }, msn: 0 }, 1);
    let cases: [(&str, Request, Operation, Extended, &[u8]); 9] = [
        ("first that is no acknowledgement", read, ReadFirst, refused, &[1; 256]),
        ("atomic that is no acknowledgement", add, AtomicAcknowledge, no_atomic, b""),
        ("first too short", read, ReadFirst, done_ack, &[1; 252]),
        ("last too early", read, ReadLast, done_ack, &[1; 256]),
        ("only", read, ReadOnly, done_ack, &[1; 44]),
        ("atomic to a READ", read, AtomicAcknowledge, Extended::AtomicAck(done_aeth(), 1), b""),
        ("READ to a WRITE", write(0, 10, 0), ReadOnly, done_ack, b"0123456789"),
        ("READ to an atomic", add, ReadOnly, done_ack, b"01234567"),
        ("atomic to a WRITE", write(0, 10, 0), AtomicAcknowledge, Extended::AtomicAck(done_aeth(), 1), b""),
    ];
    for (name, request, operation, extended, payload) in cases {
        let mut pair = asking(config(256), &[request]);
        asks(&mut pair);
        let before = pair.here().to_vec();
        answer(&mut pair, operation, 0, extended, payload);
        assert_eq!(pair.events[0], [failed(0, Failure::BadAnswer)], "{name}");
        assert!(pair.here() == before, "{name}");
    }
}

fn done_aeth() -> Aeth {
    Aeth { syndrome: Syndrome::DONE, msn: 0 }
}

#[test]
fn no_more_is_sent_than_the_window_allows_and_its_last_packet_asks() {
    let config = Config { window: 5, ack_every: 100, ..config(256) };
    let mut pair = asking(config, &[write(0, 2000, 0)]);
    let packets = sent(&mut pair.ends[0], 0);
    let asked: Vec<_> = packets.iter().map(|(h, _)| h.bth.ack_request).collect();
    assert_eq!(asked, [false, false, false, false, true]);
    acknowledge(&mut pair, 1, Syndrome::DONE);
    assert_eq!(asks(&mut pair).len(), 2);
    acknowledge(&mut pair, 6, Syndrome::DONE);
    assert_eq!(asks(&mut pair).len(), 1);
    acknowledge(&mut pair, 7, Syndrome::DONE);
    assert_eq!(pair.events[0], [done(0)]);
}

/// The second end alone.
fn answering() -> Pair {
    let config = Config { reads: 2, ..config(256) };
    let there = octets(2000, 2);
    let mut pair = Pair::new(config, Faults::NONE, 0).with_memory(vec![], there, Access::ALL);
    for n in 0..3 {
        pair.receive(n, 0, 100);
    }
    pair
}

fn answers(pair: &mut Pair, packet: &[u8]) -> Vec<(Headers, Vec<u8>)> {
    pair.ends[1].handle(0, packet);
    sent(&mut pair.ends[1], 0)
}

fn shape(answers: &[(Headers, Vec<u8>)]) -> Vec<(Operation, u32, Option<Syndrome>)> {
    let one = |(h, _): &(Headers, Vec<u8>)| {
        let psn = h.bth.psn.since(PSN[0]);
        (h.bth.opcode.operation(), psn, h.extended.aeth().map(|a| a.syndrome))
    };
    answers.iter().map(one).collect()
}

const DONE: Option<Syndrome> = Some(Syndrome::DONE);

#[test]
fn a_repeated_send_or_write_is_acknowledged_and_not_executed() {
    let mut pair = answering();
    let send = by_hand(SendOnly, PSN[0], Extended::None, b"one");
    let write = by_hand(WriteOnly, PSN[0] + 1, reth(500, 3), b"two");
    assert_eq!(shape(&answers(&mut pair, &send)), [(Acknowledge, 0, DONE)]);
    assert_eq!(shape(&answers(&mut pair, &write)), [(Acknowledge, 1, DONE)]);
    let other = by_hand(WriteOnly, PSN[0] + 2, reth(500, 3), b"six");
    answers(&mut pair, &other);
    // Both again: everything that is done is acknowledged.
    for again in [send, write] {
        assert_eq!(shape(&answers(&mut pair, &again)), [(Acknowledge, 2, DONE)]);
    }
    assert_eq!(pair.there()[500..503], *b"six");
    pair.settle();
    assert_eq!((pair.events[1].len(), pair.counters()[1].duplicates), (1, 2));
}

#[test]
fn what_is_ahead_is_asked_for_once() {
    let mut pair = answering();
    let send = |n| by_hand(SendOnly, PSN[0] + n, Extended::None, b"x");
    let missing = Some(nak(Nak::SequenceError));
    assert_eq!(shape(&answers(&mut pair, &send(1))), [(Acknowledge, 0, missing)]);
    assert_eq!(shape(&answers(&mut pair, &send(2))), []);
    assert_eq!(shape(&answers(&mut pair, &send(0))), [(Acknowledge, 0, DONE)]);
    // A new gap, a new word.
    assert_eq!(shape(&answers(&mut pair, &send(2))), [(Acknowledge, 1, missing)]);
    assert_eq!((pair.counters()[1].ahead, pair.counters()[1].nak_sequence_sent), (3, 2));
}

#[test]
fn a_repeated_read_is_executed_again_with_all_checks() {
    let mut pair = answering();
    let read = |psn, offset, len| by_hand(ReadRequest, PSN[0] + psn, reth(offset, len), b"");
    let whole = [(ReadFirst, 0, DONE), (ReadMiddle, 1, None), (ReadLast, 2, DONE)];
    assert_eq!(shape(&answers(&mut pair, &read(0, 0, 600))), whole);
    let change = Local { key: THERE, address: BASE + 256, len: 3 };
    pair.ends[1].memory.octets_mut(change).unwrap().copy_from_slice(b"new");
    let rest = answers(&mut pair, &read(1, 256, 344));
    assert_eq!(shape(&rest), [(ReadFirst, 1, DONE), (ReadLast, 2, DONE)]);
    assert_eq!(rest[0].1[..3], *b"new");
    // More than was asked for the first time.
    assert_eq!(shape(&answers(&mut pair, &read(1, 256, 600))), []);
    // Memory that may no longer be read.
    assert!(pair.ends[1].memory.deregister(THERE).is_some());
    let refused = Some(nak(Nak::RemoteAccess));
    assert_eq!(shape(&answers(&mut pair, &read(2, 512, 88))), [(Acknowledge, 2, refused)]);
    // That is the end of the queue pair, and it is told, once.
    assert!(!pair.ends[1].is_well(TWO));
    pair.settle();
    assert_eq!(pair.events[1], [What::Broken(Nak::RemoteAccess)]);
    assert_eq!(answers(&mut pair, &read(0, 0, 600)), []);
}

#[test]
fn the_end_of_a_queue_pair_is_told_once() {
    let mut pair = answering();
    pair.ends[1].handle(0, &by_hand(ReadRequest, PSN[0], reth(0, 1), b""));
    // A refusal waits behind the answer, whose memory is taken away.
    pair.ends[1].handle(0, &by_hand(Operation::SendLast, PSN[0] + 1, Extended::None, b"x"));
    assert!(pair.ends[1].memory.deregister(THERE).is_some());
    assert_eq!(sent(&mut pair.ends[1], 0).len(), 1);
    pair.settle();
    assert_eq!(pair.events[1], [What::Broken(Nak::InvalidRequest)]);
}

#[test]
fn half_the_circle_behind_is_a_repetition() {
    for (behind, duplicates, ahead) in [(1, 1, 0), (1 << 23, 1, 0), ((1 << 23) + 1, 0, 1)] {
        let mut pair = answering();
        pair.ends[1].handle(0, &by_hand(SendOnly, PSN[0] - behind, Extended::None, b"x"));
        let counters = pair.counters()[1];
        assert_eq!((counters.duplicates, counters.ahead), (duplicates, ahead), "{behind}");
    }
}

#[test]
fn a_repeated_read_that_is_longer_than_a_message_can_be_is_none() {
    let config = Config { window: 1 << 20, ..config(4096) };
    let mut pair = Pair::new(config, Faults::NONE, 0).with_memory(vec![], vec![0; 4096], Access::ALL);
    // As far behind as the longest message is.
    let packet = by_hand(ReadRequest, PSN[0] - (1 << 19), reth(0, u32::MAX), b"");
    assert_eq!(answers(&mut pair, &packet), []);
    assert_eq!((pair.counters()[1].stale_answers, pair.ends[1].is_well(TWO)), (1, true));
}

#[test]
fn a_read_that_is_repeated_while_it_is_answered_begins_again_and_keeps_its_place() {
    let mut pair = answering();
    let read = by_hand(ReadRequest, PSN[0], reth(0, 600), b"");
    pair.ends[1].handle(0, &read);
    let mut buffer = vec![0; pair.ends[1].longest()];
    assert!(pair.ends[1].poll_transmit(0, &mut buffer).is_some());
    pair.ends[1].handle(0, &by_hand(WriteOnly, PSN[0] + 3, reth(0, 1), b"x"));
    let expected = [(ReadFirst, 0, DONE), (ReadMiddle, 1, None), (ReadLast, 2, DONE), (Acknowledge, 3, DONE)];
    assert_eq!(shape(&answers(&mut pair, &read)), expected);
}

#[test]
fn repeated_reads_that_nobody_fetches_the_answers_of_are_not_piled_up() {
    let mut pair = answering();
    let read = |psn: u32, len| by_hand(ReadRequest, PSN[0] + psn, reth(u64::from(psn) * 256, len), b"");
    assert_eq!(answers(&mut pair, &read(0, 2000)).len(), 8);
    for psn in 0..8 {
        pair.ends[1].handle(0, &read(psn, 1));
    }
    // As many as READs may be on their way.
    assert_eq!(shape(&sent(&mut pair.ends[1], 0)), [(ReadOnly, 0, DONE), (ReadOnly, 1, DONE)]);
}

#[test]
fn repeated_reads_give_way_to_a_new_one() {
    let mut pair = answering();
    let read = |psn: u32| by_hand(ReadRequest, PSN[0] + psn, reth(u64::from(psn) * 256, 1), b"");
    // Two are answered, as many as may be on their way; the answers are late, and both are asked for again.
    for psn in 0..2 {
        assert_eq!(shape(&answers(&mut pair, &read(psn))), [(ReadOnly, psn, DONE)]);
    }
    pair.ends[1].handle(0, &read(0));
    pair.ends[1].handle(0, &read(1));
    // Then they arrived after all: the next two show that nobody waits for the others any more.
    pair.ends[1].handle(0, &read(2));
    assert_eq!(shape(&answers(&mut pair, &read(3))), [(ReadOnly, 2, DONE), (ReadOnly, 3, DONE)]);
    assert_eq!(pair.counters()[1].nak_invalid_sent, 0);
    // One that is repeated does not push out a new one.
    pair.ends[1].handle(0, &read(4));
    pair.ends[1].handle(0, &read(5));
    assert_eq!(shape(&answers(&mut pair, &read(3))), [(ReadOnly, 4, DONE), (ReadOnly, 5, DONE)]);
}

#[test]
fn a_repeated_atomic_operation_is_answered_from_memory_until_it_is_forgotten() {
    let mut pair = answering();
    let word = Local { key: THERE, address: BASE, len: 8 };
    pair.ends[1].memory.octets_mut(word).unwrap().fill(0);
    let add = |psn| {
        let atomic = bypath_wire::roce::AtomicEth { address: BASE, key: THERE, swap_or_add: 1, compare: 0 };
        by_hand(FetchAdd, PSN[0] + psn, Extended::Atomic(atomic), b"")
    };
    let was = |answers: Vec<(Headers, Vec<u8>)>| -> Vec<u64> {
        let was = |e| if let Extended::AtomicAck(_, was) = e { was } else { panic!("{e:?}") };
        answers.into_iter().map(|(h, _)| was(h.extended)).collect()
    };
    for psn in 0..3u32 {
        assert_eq!(was(answers(&mut pair, &add(psn))), [u64::from(psn)]);
    }
    // Two are remembered, as many as may be on their way.
    assert_eq!(was(answers(&mut pair, &add(2))), [2]);
    assert_eq!(was(answers(&mut pair, &add(1))), [1]);
    assert_eq!(was(answers(&mut pair, &add(0))), [0; 0]);
    assert_eq!((pair.counters()[1].forgotten, pair.counters()[1].duplicates), (1, 3));
    assert_eq!(pair.there()[..8], 3u64.to_ne_bytes());
}
