//! Channels of datagrams.

use crate::{LONG, SMALL, Seed, errno, is_readable};
use bypath_channel::{DatagramReceiver, DatagramSender, Datagrams};
use bypath_shm::dgram::{MARK, Record};
use bypath_shm::region::OwnSlot;
use bypath_sys::epoll;
use std::io::ErrorKind;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

/// Half of the small ring, but a word.
const LONGEST: usize = 2040;

fn both(ring: u32) -> (Datagrams, Datagrams) {
    let (mut here, remote) = Datagrams::pair(ring).unwrap();
    let mut there = remote.open_datagrams().unwrap();
    here.set_timeout(LONG);
    there.set_timeout(LONG);
    (here, there)
}

/// Datagram `n`: its length and its octets.
fn datagram(n: u64) -> Vec<u8> {
    let mut seed = Seed((n + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let most = [20, 20, 200, LONGEST + 1][seed.below(4)];
    let len = seed.below(most);
    (0..len).map(|_| seed.next() as u8).collect()
}

fn send_all_ways(mut sender: DatagramSender, total: u64, mut seed: Seed) {
    for n in 0..total {
        let wanted = datagram(n);
        match seed.below(4) {
            0 => sender.send(&wanted).unwrap(),
            1 => loop {
                match sender.try_send(&wanted) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                    sent => break sent.unwrap(),
                }
            },
            2 => {
                // More room than is used.
                let mut room = sender.reserve((wanted.len() + 100).min(LONGEST)).unwrap();
                assert_eq!(room.put(0, &wanted), wanted.len());
                room.commit(wanted.len());
            }
            _ => {
                let room = sender.reserve(wanted.len()).unwrap();
                assert_eq!(room.len(), wanted.len());
                let places = room.runs().into_iter().flatten();
                places.zip(&wanted).for_each(|(place, octet)| place.store(*octet, Relaxed));
                room.commit(wanted.len());
            }
        }
    }
}

fn receive_all_ways(mut receiver: DatagramReceiver, total: u64, mut seed: Seed) {
    let mut room = vec![0; LONGEST];
    for n in 0..total {
        let wanted = datagram(n);
        let len = match seed.below(4) {
            0 => receiver.receive(&mut room).unwrap().expect("not the end"),
            1 => loop {
                match receiver.try_receive(&mut room) {
                    Err(e) if e.kind() == ErrorKind::WouldBlock => thread::yield_now(),
                    got => break got.unwrap().expect("not the end"),
                }
            },
            2 => {
                let there = receiver.peek().unwrap().expect("not the end");
                let n = there.copy_to(0, &mut room);
                there.release();
                n
            }
            _ => {
                // Looked at twice.
                let len = receiver.peek().unwrap().expect("not the end").len();
                let there = receiver.peek().unwrap().expect("not the end");
                let places = there.runs().into_iter().flatten();
                room.iter_mut().zip(places).for_each(|(o, place)| *o = place.load(Relaxed));
                there.release();
                len
            }
        };
        assert_eq!(room[..len], wanted, "datagram {n}");
    }
    assert_eq!(receiver.receive(&mut room).unwrap(), None);
}

#[test]
fn every_datagram_comes_once_whole_and_in_order_both_ways_however_it_is_sent_and_received() {
    for (seed, spin) in [(1, 0), (2, 50), (3, 0)] {
        let (mut here, mut there) = both(SMALL);
        here.set_spin(Duration::from_micros(spin));
        there.set_spin(Duration::from_micros(spin));
        thread::scope(|s| {
            for (at, channel) in [here, there].into_iter().enumerate() {
                let (sender, receiver) = channel.split();
                let seed = move |n| Seed(0x1234_5678_9ABC * seed + 7 * at as u64 + n);
                s.spawn(move || send_all_ways(sender, 10_000, seed(1)));
                s.spawn(move || receive_all_ways(receiver, 10_000, seed(2)));
            }
        });
    }
}

#[test]
fn a_datagram_without_octets_is_not_the_end() {
    let (mut here, mut there) = both(SMALL);
    here.sender.send(b"").unwrap();
    here.sender.reserve(0).unwrap().commit(0);
    here.sender.reserve(10).unwrap().commit(0);
    // Room that is given up sends nothing.
    assert_eq!(here.sender.reserve(10).unwrap().put(0, b"nothing"), 7);
    drop(here);
    assert!(there.receiver.peek().unwrap().unwrap().is_empty());
    for _ in 0..3 {
        assert_eq!(there.receiver.receive(&mut []).unwrap(), Some(0));
    }
    assert_eq!(there.receiver.receive(&mut []).unwrap(), None);
    assert_eq!(there.receiver.try_receive(&mut []).unwrap(), None);
    assert!(!there.receiver.arm().unwrap());
}

#[test]
fn what_is_too_long_is_refused_and_what_does_not_fit_stays() {
    for (ring, longest) in [(SMALL, LONGEST), (1 << 16, 32_760), (1 << 17, 65_527), (1 << 20, 65_527)] {
        let (mut here, mut there) = both(ring);
        assert_eq!((here.sender.longest(), there.receiver.longest()), (longest, longest));
        let long = vec![5; longest + 1];
        assert_eq!(errno(here.sender.send(&long)), libc::EMSGSIZE);
        assert_eq!(errno(here.sender.try_send(&long)), libc::EMSGSIZE);
        for wrong in [longest + 1, usize::MAX] {
            assert_eq!(errno(here.sender.reserve(wrong).map(|_| ())), libc::EMSGSIZE);
            assert_eq!(errno(here.sender.try_reserve(wrong).map(|_| ())), libc::EMSGSIZE);
            assert_eq!(errno(here.sender.arm(wrong)), libc::EMSGSIZE);
        }
        here.sender.send(&long[1..]).unwrap();
        here.sender.send(b"next").unwrap();
        let mut room = vec![0; longest];
        for _ in 0..2 {
            assert_eq!(errno(there.receiver.receive(&mut room[1..])), libc::EMSGSIZE);
            assert_eq!(errno(there.receiver.try_receive(&mut [])), libc::EMSGSIZE);
        }
        assert_eq!(there.receiver.peek().unwrap().unwrap().len(), longest);
        assert_eq!(there.receiver.receive(&mut room).unwrap(), Some(longest));
        assert_eq!(room, &long[1..]);
        assert_eq!(there.receiver.receive(&mut room).unwrap(), Some(4));
    }
}

#[test]
fn a_full_ring_loses_nothing() {
    let (mut here, mut there) = both(SMALL);
    here.set_timeout(Some(Duration::from_millis(5)));
    let full = (0u64..).find_map(|n| here.sender.try_send(&n.to_ne_bytes()).err().map(|e| (n, e)));
    let (sent, error) = full.unwrap();
    assert_eq!((sent, error.kind()), (256, ErrorKind::WouldBlock));
    assert_eq!(errno(here.sender.send(b"")), libc::ETIMEDOUT);
    assert_eq!(errno(here.sender.try_reserve(0).map(|_| ())), libc::EAGAIN);
    assert_eq!(errno(here.sender.reserve(1).map(|_| ())), libc::ETIMEDOUT);
    let mut word = [0; 8];
    assert_eq!(there.receiver.receive(&mut word).unwrap(), Some(8));
    assert_eq!(u64::from_ne_bytes(word), 0);
    // Room for this one, and for none of eight octets more.
    assert_eq!(errno(here.sender.try_send(&[0; 9])), libc::EAGAIN);
    here.sender.try_send(&sent.to_ne_bytes()).unwrap();
    for n in 1..=sent {
        assert_eq!(there.receiver.try_receive(&mut word).unwrap(), Some(8));
        assert_eq!(u64::from_ne_bytes(word), n);
    }
    assert_eq!(errno(there.receiver.try_receive(&mut word)), libc::EAGAIN);
    assert_eq!(errno(there.receiver.try_peek().map(|_| ())), libc::EAGAIN);
    there.set_timeout(Some(Duration::from_millis(5)));
    for spin in [Duration::ZERO, Duration::from_micros(20), Duration::MAX] {
        there.set_spin(spin);
        assert_eq!(errno(there.receiver.receive(&mut word)), libc::ETIMEDOUT);
    }
}

#[test]
fn who_sleeps_for_the_longest_datagram_is_woken_wherever_the_ring_begins_anew() {
    for shift in (0..SMALL as usize).step_by(24) {
        let (mut here, mut there) = both(SMALL);
        here.set_spin(Duration::ZERO);
        let mut room = vec![0; LONGEST];
        // The positions begin here.
        for _ in 0..shift / 24 {
            here.sender.send(&[0; 10]).unwrap();
            there.receiver.receive(&mut room).unwrap();
        }
        while here.sender.try_send(&[1; 30]).is_ok() {}
        thread::scope(|s| {
            s.spawn(|| here.sender.send(&[2; LONGEST]).unwrap());
            while there.receiver.receive(&mut room).unwrap() != Some(LONGEST) {}
        });
        assert_eq!(room, [2; LONGEST]);
    }
}

#[test]
fn the_end_comes_after_all_datagrams_and_a_reader_that_goes_ends_the_writer() {
    let (here, mut there) = both(SMALL);
    let (mut sender, receiver) = here.split();
    sender.send(b"last words").unwrap();
    drop(sender);
    let mut room = [0; 100];
    assert_eq!(there.receiver.receive(&mut room).unwrap(), Some(10));
    assert_eq!(there.receiver.receive(&mut room).unwrap(), None);
    // The other direction goes on.
    there.sender.send(b"still").unwrap();
    let mut receiver = receiver;
    assert_eq!(receiver.receive(&mut room).unwrap(), Some(5));
    drop(receiver);
    let error = (0..).find_map(|_| there.sender.send(&[0; 512]).err()).unwrap();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(errno(there.sender.try_send(b"x")), libc::EPIPE);
    assert_eq!(errno(there.sender.reserve(1).map(|_| ())), libc::EPIPE);
    assert!(!there.sender.arm(1).unwrap());
}

#[test]
fn who_only_looks_learns_of_the_end() {
    let (here, mut there) = both(SMALL);
    while there.sender.try_send(&[1; 100]).is_ok() {}
    drop(here);
    assert!((0..3000).any(|_| there.receiver.try_receive(&mut [0]).is_ok_and(|n| n.is_none())));
    assert!((0..3000).any(|_| errno(there.sender.try_send(&[1; 100])) == libc::EPIPE));
}

#[test]
fn the_descriptor_is_readable_once_there_is_something_and_not_before() {
    let (mut here, mut there) = both(SMALL);
    assert!(there.receiver.arm().unwrap());
    assert!(!is_readable(&there.receiver));
    here.sender.send(b"").unwrap();
    assert!(is_readable(&there.receiver));
    assert!(!there.receiver.arm().unwrap());
    assert_eq!(there.receiver.try_receive(&mut []).unwrap(), Some(0));
    // Not armed: nobody rings.
    here.sender.send(b"y").unwrap();
    assert!(!is_readable(&there.receiver));
    assert_eq!(there.receiver.try_receive(&mut [0]).unwrap(), Some(1));
    // A writer's.
    while here.sender.try_send(&[0; 512]).is_ok() {}
    assert!(here.sender.arm(512).unwrap());
    assert!(!is_readable(&here.sender));
    for _ in 0..4 {
        there.receiver.receive(&mut [0; 512]).unwrap();
    }
    assert!(is_readable(&here.sender));
    assert!(!here.sender.arm(512).unwrap());
    // The end rings as well.
    while there.receiver.try_receive(&mut [0; 512]).is_ok() {}
    assert!(there.receiver.arm().unwrap());
    drop(here);
    assert!(is_readable(&there.receiver));
    assert_eq!(there.receiver.try_receive(&mut []).unwrap_or(None), None);
    assert!(!there.receiver.arm().unwrap());
}

#[test]
fn an_epoll_set_serves_many_channels() {
    const CHANNELS: usize = 20;
    const EACH: u64 = 200;
    let (mut senders, mut receivers) = (Vec::new(), Vec::new());
    for _ in 0..CHANNELS {
        let (here, there) = both(SMALL);
        senders.push(here.split().0);
        receivers.push(there.split().1);
    }
    thread::scope(|s| {
        s.spawn(move || {
            for n in 0..EACH {
                senders.iter_mut().for_each(|sender| sender.send(&n.to_ne_bytes()).unwrap());
            }
        });
        let set = epoll::Set::new().unwrap();
        for (at, receiver) in receivers.iter().enumerate() {
            set.add(receiver.as_fd(), libc::EPOLLIN as u32, at as u64).unwrap();
        }
        let mut next = [0; CHANNELS];
        let mut ended = [false; CHANNELS];
        while ended.contains(&false) {
            let mut asleep = 0;
            for (at, receiver) in
                receivers.iter_mut().enumerate().filter(|(at, _)| !ended[*at]).collect::<Vec<_>>()
            {
                let mut word = [0; 8];
                match receiver.try_receive(&mut word) {
                    Ok(Some(8)) => {
                        assert_eq!(u64::from_ne_bytes(word), next[at]);
                        next[at] += 1;
                    }
                    Ok(None) => {
                        ended[at] = true;
                        set.remove(receiver.as_fd().as_raw_fd());
                    }
                    Err(e) if e.kind() == ErrorKind::WouldBlock => {
                        asleep += usize::from(receiver.arm().unwrap())
                    }
                    other => panic!("{other:?}"),
                }
            }
            if asleep > 0 && asleep == ended.iter().filter(|ended| !**ended).count() {
                let mut events = [epoll::Event { events: 0, data: 0 }; CHANNELS];
                assert!(set.wait(&mut events, Some(60_000_000_000)).unwrap() > 0, "nobody rang");
            }
        }
        assert_eq!(next, [EACH; CHANNELS]);
    });
}

#[test]
fn what_was_shown_stays_though_the_other_end_changes_it() {
    let (mut here, memory) = with_memory();
    let incoming = &memory.control().direction[0];
    memory.copy_in(0, 0, &Record::plain(8).encode());
    incoming.publish(16);
    assert_eq!(here.receiver.peek().unwrap().unwrap().len(), 8);
    memory.copy_in(0, 0, &Record::plain(2000).encode());
    assert_eq!(here.receiver.peek().unwrap().unwrap().len(), 8);
    here.receiver.try_peek().unwrap().unwrap().release();
    assert_eq!(errno(here.receiver.try_peek().map(|_| ())), libc::EAGAIN);
}

#[test]
fn what_was_shown_stays_though_the_other_end_takes_it_back() {
    let (mut here, memory) = with_memory();
    let incoming = &memory.control().direction[0];
    memory.copy_in(0, 0, &Record::plain(8).encode());
    incoming.publish(16);
    assert_eq!(errno(here.receiver.try_receive(&mut [])), libc::EMSGSIZE);
    incoming.publish(0);
    assert!(!here.receiver.arm().unwrap(), "there is one, to be received");
    assert_eq!(here.receiver.try_receive(&mut [0; 8]).unwrap(), Some(8));
    assert_eq!(errno(here.receiver.try_receive(&mut [0; 8])), libc::EPROTO);
    assert_eq!(errno(here.receiver.arm()), libc::EPROTO);
}

/// One end, and the memory that the other one has.
fn with_memory() -> (Datagrams, OwnSlot) {
    let (here, remote) = Datagrams::pair(SMALL).unwrap();
    let [memory, bells @ ..] = remote.into_fds();
    // They stay open: the other end lives.
    std::mem::forget(bells);
    (here, OwnSlot::map(memory.as_raw_fd()).unwrap())
}

#[test]
fn what_no_correct_end_writes_is_found_out() {
    for (record, tail) in [
        // Longer than what came, or than any.
        (Record::plain(9), 16),
        (Record::plain(u32::MAX as usize), 16),
        (Record::plain(LONGEST + 1), 4096),
        // A head, no mark.
        (Record { head: 8, ..Record::plain(0) }, 16),
        (Record { mark: !MARK, ..Record::plain(8) }, 16),
        // A tail within a word, or a record, or too far away.
        (Record::plain(0), 9),
        (Record::plain(0), 4),
        (Record::plain(8), 8),
        (Record::plain(8), 4104),
        (Record::plain(8), u64::MAX - 7),
    ] {
        let (mut here, memory) = with_memory();
        memory.copy_in(0, 0, &record.encode());
        memory.control().direction[0].publish(tail);
        assert_eq!(errno(here.receiver.try_peek().map(|_| ())), libc::EPROTO, "{record:?} {tail}");
        assert_eq!(errno(here.receiver.receive(&mut [])), libc::EPROTO, "{record:?} {tail}");
    }
    // A head ahead of what was sent, or of another path.
    for head in [8, u64::MAX - 7] {
        let (mut here, memory) = with_memory();
        memory.control().direction[1].h.head.store(head, Relaxed);
        assert_eq!(errno(here.sender.arm(0)), libc::EPROTO);
    }
}

#[test]
#[should_panic(expected = "5 octets are committed in room for 4")]
fn more_than_there_is_room_for_cannot_be_sent() {
    both(SMALL).0.sender.reserve(4).unwrap().commit(5);
}

#[test]
fn the_kinds_are_told_apart() {
    let (_, remote) = Datagrams::pair(SMALL).unwrap();
    assert_eq!(errno(remote.open()), libc::EPROTOTYPE);
    let (_, remote) = bypath_channel::Channel::pair(SMALL).unwrap();
    assert_eq!(errno(remote.open_datagrams()), libc::EPROTOTYPE);
    assert_eq!(errno(Datagrams::pair(5000)), libc::EINVAL);
}
