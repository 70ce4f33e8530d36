//! Channels of octets.

use crate::{LONG, SMALL, Seed, errno, is_readable};
use bypath_channel::{Channel, Receiver, Remote, Sender};
use bypath_shm::region::OwnSlot;
use bypath_sys::poll;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

fn both(ring: u32) -> (Channel, Channel) {
    let (mut here, remote) = Channel::pair(ring).unwrap();
    let mut there = remote.open().unwrap();
    here.set_timeout(LONG);
    there.set_timeout(LONG);
    (here, there)
}

fn octet(position: u64) -> u8 {
    (position.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Sleeps until the bell rings.
fn poll_bell(end: &impl AsFd) {
    let mut one = [poll::PollFd { fd: end.as_fd().as_raw_fd(), events: libc::POLLIN, revents: 0 }];
    assert_eq!(poll::ppoll(&mut one, Some(60_000_000_000), 0), Ok(1), "nobody rang");
}

fn would_block<T>(result: &io::Result<T>) -> bool {
    result.as_ref().is_err_and(|e| e.kind() == ErrorKind::WouldBlock)
}

fn write_all_ways(mut sender: Sender, total: u64, mut seed: Seed) {
    let mut at = 0;
    while at < total {
        let most = 1 + seed.below(6000).min((total - at) as usize - 1);
        let wanted: Vec<u8> = (at..at + most as u64).map(octet).collect();
        // Up to half of the ring, or what is to follow.
        let least = most.min(SMALL as usize / 2);
        at += match seed.below(5) {
            0 => sender.write(&wanted).unwrap(),
            1 => match sender.try_write(&wanted) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    thread::yield_now();
                    0
                }
                n => n.unwrap(),
            },
            2 => {
                let mut room = sender.reserve(least).unwrap();
                let n = room.put(0, &wanted);
                room.commit(n);
                n
            }
            3 => {
                while would_block(&sender.try_reserve(least)) {
                    if sender.arm(least).unwrap() {
                        poll_bell(&sender);
                    }
                }
                let mut room = sender.try_reserve(least).unwrap();
                let n = room.put(0, &wanted[..least]);
                room.commit(n);
                n
            }
            _ => {
                let room = sender.reserve(1).unwrap();
                let n = room.len().min(most);
                let places = room.runs().into_iter().flatten();
                for (place, octet) in places.zip(&wanted) {
                    place.store(*octet, Relaxed);
                }
                room.commit(n);
                n
            }
        } as u64;
    }
}

fn read_all_ways(mut receiver: Receiver, total: u64, mut seed: Seed) {
    let mut at = 0;
    let mut room = vec![0; 6000];
    loop {
        let most = 1 + seed.below(6000);
        let least = most.min(SMALL as usize / 2);
        let got = match seed.below(5) {
            0 => receiver.read(&mut room[..most]).unwrap(),
            1 => match receiver.try_read(&mut room[..most]) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    thread::yield_now();
                    continue;
                }
                n => n.unwrap(),
            },
            2 => {
                let there = receiver.peek(1).unwrap();
                let n = there.copy_to(0, &mut room[..most]);
                there.release(n);
                n
            }
            3 => {
                while would_block(&receiver.try_peek(least)) {
                    if receiver.arm(least).unwrap() {
                        poll_bell(&receiver);
                    }
                }
                let there = receiver.try_peek(least).unwrap();
                assert!(there.len() >= least || at + there.len() as u64 == total);
                let n = there.copy_to(0, &mut room[..most]);
                there.release(n);
                n
            }
            _ => {
                let there = receiver.peek(least).unwrap();
                assert!(there.len() >= least || at + there.len() as u64 == total);
                let n = there.len().min(most);
                let places = there.runs().into_iter().flatten();
                room.iter_mut().zip(places).take(n).for_each(|(o, place)| *o = place.load(Relaxed));
                there.release(n);
                n
            }
        };
        if got == 0 {
            break;
        }
        for octet_there in &room[..got] {
            assert_eq!(*octet_there, octet(at), "at {at}");
            at += 1;
        }
    }
    assert_eq!(at, total);
}

#[test]
fn every_octet_comes_once_and_in_order_both_ways_however_it_is_written_and_read() {
    for (seed, spin) in [(1, 0), (2, 50), (3, 0)] {
        let (mut here, mut there) = both(SMALL);
        here.set_spin(Duration::from_micros(spin));
        there.set_spin(Duration::from_micros(spin));
        let total = 3_000_000;
        thread::scope(|s| {
            for (at, channel) in [here, there].into_iter().enumerate() {
                let (sender, receiver) = channel.split();
                let seed = move |n| Seed(0x1234_5678_9ABC * seed + 7 * at as u64 + n);
                s.spawn(move || write_all_ways(sender, total, seed(1)));
                s.spawn(move || read_all_ways(receiver, total, seed(2)));
            }
        });
    }
}

#[test]
fn the_end_comes_after_all_octets_and_stays() {
    let (here, mut there) = both(SMALL);
    let (mut sender, receiver) = here.split();
    sender.write_all(b"last words").unwrap();
    drop(sender);
    let mut all = Vec::new();
    assert_eq!(there.receiver.peek(2000).unwrap().len(), 10);
    there.read_to_end(&mut all).unwrap();
    assert_eq!(all, b"last words");
    assert_eq!(there.read(&mut [0; 8]).unwrap(), 0);
    assert_eq!(there.receiver.try_read(&mut [0; 8]).unwrap(), 0);
    assert!(there.receiver.try_peek(1).unwrap().is_empty());
    assert!(!there.receiver.arm(1).unwrap());
    // The other direction goes on.
    there.write_all(b"still").unwrap();
    let mut receiver = receiver;
    receiver.read_exact(&mut [0; 5]).unwrap();
    drop(receiver);
    let error = loop {
        match there.write(&[0; 512]) {
            Ok(n) => assert!(n > 0),
            Err(e) => break e,
        }
    };
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(errno(there.sender.try_write(b"x")), libc::EPIPE);
    assert_eq!(errno(there.sender.reserve(1).map(|_| ())), libc::EPIPE);
    assert!(!there.sender.arm(1).unwrap());
}

#[test]
fn a_spinning_reader_and_a_spinning_writer_learn_of_the_end() {
    let (here, mut there) = both(SMALL);
    while there.sender.try_write(&[1; 100]).is_ok() {}
    drop(here);
    let ended = (0..3000).any(|_| there.receiver.try_read(&mut [0]).is_ok_and(|n| n == 0));
    assert!(ended);
    let refused = (0..3000).any(|_| errno(there.sender.try_write(b"x")) == libc::EPIPE);
    assert!(refused);
}

#[test]
fn what_would_wait_says_so_and_a_limit_ends_a_wait() {
    let (mut here, mut there) = both(SMALL);
    assert_eq!(errno(there.receiver.try_read(&mut [0])), libc::EAGAIN);
    assert_eq!(errno(there.receiver.try_peek(1).map(|_| ())), libc::EAGAIN);
    there.set_timeout(Some(Duration::from_millis(5)));
    for spin in [Duration::ZERO, Duration::from_micros(20), Duration::MAX] {
        there.set_spin(spin);
        assert_eq!(there.read(&mut [0]).unwrap_err().kind(), ErrorKind::TimedOut);
        assert_eq!(errno(there.receiver.peek(100).map(|_| ())), libc::ETIMEDOUT);
    }
    here.set_timeout(Some(Duration::from_millis(5)));
    assert_eq!(here.write(&[7; 5000]).unwrap(), 4096);
    assert_eq!(here.write(&[7; 5000]).unwrap_err().kind(), ErrorKind::TimedOut);
    assert_eq!(errno(here.sender.try_write(&[7])), libc::EAGAIN);
    // Fewer than wished for are still there.
    assert_eq!(there.receiver.peek(2000).unwrap().len(), 4096);
    assert_eq!((there.read(&mut []).unwrap(), here.write(&[]).unwrap()), (0, 0));
    for wrong in [0, 2049, usize::MAX] {
        assert_eq!(errno(there.receiver.peek(wrong).map(|_| ())), libc::EINVAL);
        assert_eq!(errno(here.sender.try_reserve(wrong).map(|_| ())), libc::EINVAL);
    }
}

#[test]
fn the_descriptor_is_readable_once_there_is_something_and_not_before() {
    let (mut here, mut there) = both(SMALL);
    assert!(there.receiver.arm(1).unwrap());
    assert!(!is_readable(&there.receiver));
    here.write_all(b"x").unwrap();
    assert!(is_readable(&there.receiver));
    assert!(!there.receiver.arm(1).unwrap());
    assert_eq!(there.receiver.try_read(&mut [0; 8]).unwrap(), 1);
    // Not armed: nobody rings.
    here.write_all(b"y").unwrap();
    assert!(!is_readable(&there.receiver));
    assert_eq!(there.receiver.try_read(&mut [0; 8]).unwrap(), 1);
    // More is waited for.
    assert!(there.receiver.arm(100).unwrap());
    here.write_all(&[0; 100]).unwrap();
    assert!(is_readable(&there.receiver));
    assert!(!there.receiver.arm(100).unwrap());
    // A writer's.
    while here.sender.try_write(&[0; 512]).is_ok() {}
    assert!(here.sender.arm(1).unwrap());
    assert!(!is_readable(&here.sender));
    let mut all = vec![0; 2048];
    there.read_exact(&mut all).unwrap();
    assert!(is_readable(&here.sender));
    assert!(!here.sender.arm(1).unwrap());
    assert!(there.receiver.peek(1).is_ok());
    // The end rings as well.
    while there.receiver.try_read(&mut all).is_ok() {}
    assert!(there.receiver.arm(1).unwrap());
    drop(here);
    assert!(is_readable(&there.receiver));
    assert_eq!(there.receiver.try_read(&mut all).unwrap_or(0), 0);
    assert!(!there.receiver.arm(1).unwrap());
    assert_eq!(there.receiver.try_read(&mut all).unwrap(), 0);
}

#[test]
fn a_reader_that_waits_for_more_than_there_is_wakes_the_writer_that_waits_for_room() {
    /// How a reader says that it waits; `true`: it does.
    type Wait = fn(&mut Receiver, usize) -> bool;
    fn arms(receiver: &mut Receiver, least: usize) -> bool {
        receiver.arm(least).unwrap()
    }
    fn looks(receiver: &mut Receiver, least: usize) -> bool {
        would_block(&receiver.try_peek(least))
    }
    fn sleeps(receiver: &mut Receiver, least: usize) -> bool {
        receiver.set_spin(Duration::ZERO);
        receiver.set_timeout(Some(Duration::from_millis(1)));
        receiver.peek(least).is_err_and(|e| e.kind() == ErrorKind::TimedOut)
    }
    // Where the ring stands, what is written, what room is waited for, what is read, and what is waited for then.
    let mut waits = 0;
    for at in [0, 1, 500, 1023, 1024, 2000, 4000] {
        for [written, room, read, least] in
            [[2100, 2000, 100, 2048], [2049, 2048, 2, 2048], [3000, 1500, 999, 2048], [2500, 2048, 700, 1900]]
        {
            for wait in [arms as Wait, looks, sleeps] {
                let (mut here, mut there) = both(SMALL);
                let mut octets = vec![0; 4096];
                here.write_all(&octets[..at]).unwrap();
                there.read_exact(&mut octets[..at]).unwrap();
                here.write_all(&octets[..written]).unwrap();
                assert!(here.sender.arm(room).unwrap());
                there.read_exact(&mut octets[..read]).unwrap();
                if !wait(&mut there.receiver, least) {
                    continue;
                }
                assert!(is_readable(&here.sender), "at {at}: {written} {room} {read} {least}");
                assert!(here.sender.try_reserve(room).is_ok());
                waits += 1;
            }
        }
    }
    assert!(waits > 50, "{waits}");
}

#[test]
fn a_reader_that_looks_for_ever_wakes_the_writer_that_sleeps() {
    let (mut here, mut there) = both(SMALL);
    here.write_all(&[0; 2100]).unwrap();
    assert!(here.sender.arm(2000).unwrap());
    there.read_exact(&mut [0; 100]).unwrap();
    there.set_spin(Duration::MAX);
    there.set_timeout(Some(Duration::from_millis(1)));
    assert_eq!(errno(there.receiver.peek(2048)), libc::ETIMEDOUT);
    assert!(is_readable(&here.sender));
}

#[test]
fn what_goes_back_behind_what_was_shown_is_found_out() {
    let (mut here, remote) = Channel::pair(SMALL).unwrap();
    let [memory, bells @ ..] = remote.into_fds();
    let memory = OwnSlot::map(memory.as_raw_fd()).unwrap();
    let [incoming, outgoing] = &memory.control().direction;
    incoming.publish(1000);
    assert_eq!(here.receiver.try_peek(1).unwrap().len(), 1000);
    for tail in [999, 1, 0] {
        incoming.publish(tail);
        assert_eq!(errno(here.receiver.arm(2)), libc::EPROTO, "{tail}");
        assert_eq!(errno(here.receiver.try_peek(1001)), libc::EPROTO, "{tail}");
    }
    // What was shown stays.
    here.receiver.try_peek(1).unwrap().release(1000);
    here.write_all(&[0; 3000]).unwrap();
    outgoing.h.head.store(3000, Relaxed);
    assert_eq!(here.sender.try_reserve(2000).unwrap().len(), 4096);
    for head in [2999, 0] {
        outgoing.h.head.store(head, Relaxed);
        assert_eq!(errno(here.sender.arm(2000)), libc::EPROTO, "{head}");
    }
    here.sender.try_reserve(2000).unwrap().commit(2000);
    drop(bells);
}

#[test]
fn what_is_looked_at_and_what_is_written_stays_until_it_is_given_back() {
    let (mut here, mut there) = both(SMALL);
    assert!(here.sender.reserve(10).unwrap().len() >= 10);
    let mut room = here.sender.reserve(10).unwrap();
    assert_eq!(room.put(2, b"cd"), 2);
    assert_eq!(room.put(0, b"ab"), 2);
    assert_eq!(room.put(4096, b"ab"), 0);
    room.commit(4);
    for _ in 0..2 {
        let there = there.receiver.peek(4).unwrap();
        let mut text = [0; 9];
        assert_eq!((there.copy_to(1, &mut text), &text[..3]), (3, &b"bcd"[..]));
        assert_eq!(there.copy_to(5, &mut text), 0);
    }
    there.receiver.peek(1).unwrap().release(3);
    let mut text = [0; 9];
    assert_eq!((there.read(&mut text).unwrap(), text[0]), (1, b'd'));
}

#[test]
#[should_panic(expected = "5 octets of 4 are released")]
fn more_than_there_is_cannot_be_released() {
    let (mut here, mut there) = both(SMALL);
    here.write_all(b"four").unwrap();
    there.receiver.peek(1).unwrap().release(5);
}

#[test]
fn what_is_no_channel_cannot_be_opened() {
    for ring in [0, 4095, 6000, 2 << 20, u32::MAX] {
        assert_eq!(errno(Channel::pair(ring)), libc::EINVAL, "{ring}");
    }
    let fds = || Channel::pair(SMALL).unwrap().1.into_fds();
    let [memory, sends, receives] = fds();
    assert_eq!(errno(Remote::from_fds([sends, memory, receives]).open()), libc::EINVAL);
    let [memory, sends, _] = fds();
    let file = std::fs::File::open("/dev/null").unwrap().into();
    assert_eq!(errno(Remote::from_fds([memory, sends, file]).open()), libc::EINVAL);
    // Memory of a channel's size that is none.
    let [_, sends, receives] = fds();
    let (_slot, memory) = bypath_shm::region::OwnSlot::new(SMALL).unwrap();
    assert_eq!(errno(Remote::from_fds([memory, sends, receives]).open()), libc::EINVAL);
}
