//! Channels whose counters come to where they have more than 32 bits, or to where positions in rings wrap, and whose sleepers' tickets wrap.

use crate::{Channel, Datagrams};
use std::io::{Read, Write};
use std::thread;
use std::time::Duration;

/// Octets of the rings.
const RING: u32 = 4096;
/// Where positions have another bit, and where they wrap (`bypath_shm::direction::position`).
const PLACES: [u64; 2] = [1 << 32, 1 << 62];
/// So many octets before that counters begin.
const BEFORE: [u64; 4] = [8, 1000, 4096, 50_000];
/// What goes each way: far beyond.
const OCTETS: u64 = 200_000;
const LONG: Option<Duration> = Some(Duration::from_secs(60));

/// Both ends of an old channel.
fn old(position: u64) -> [Channel; 2] {
    let (here, remote) = Channel::pair(RING).unwrap();
    let mut ends = [here, remote.open().unwrap()];
    for end in &mut ends {
        end.sender.0.age(position);
        end.receiver.0.age(position);
        end.set_timeout(LONG);
    }
    ends
}

fn octet(n: u64) -> u8 {
    (n.wrapping_mul(2_654_435_761) >> 13) as u8
}

/// A length that changes from one to the next, from 0 to below `most`.
fn length(n: u64, most: u64) -> usize {
    (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as usize % most as usize
}

/// Each place, distance and way to wait: looking at first, or asleep at once, where each wait takes a ticket.
fn everywhere(run: impl Fn([Channel; 2])) {
    for place in PLACES {
        for before in BEFORE {
            for spin in [Duration::ZERO, Duration::from_micros(50)] {
                let mut ends = old(place - before);
                ends.iter_mut().for_each(|end| end.set_spin(spin));
                run(ends);
            }
        }
    }
}

#[test]
fn octets_go_on_behind_the_wrap_both_ways() {
    everywhere(|ends| {
        let halves = ends.map(Channel::split);
        thread::scope(|scope| {
            for (mut sender, mut receiver) in halves {
                scope.spawn(move || {
                    let (mut sent, mut n) = (0, 0);
                    while sent < OCTETS {
                        n += 1;
                        let piece: Vec<u8> = (sent..sent + length(n, 3000) as u64).map(octet).collect();
                        sender.write_all(&piece).unwrap();
                        sent += piece.len() as u64;
                    }
                    drop(sender);
                });
                scope.spawn(move || {
                    let (mut got, mut room) = (0u64, [0; 2500]);
                    loop {
                        let most = 1 + length(got, 2500);
                        let n = receiver.read(&mut room[..most]).unwrap();
                        if n == 0 {
                            break;
                        }
                        for seen in &room[..n] {
                            assert_eq!(*seen, octet(got), "octet {got}");
                            got += 1;
                        }
                    }
                    assert!(got >= OCTETS, "{got}");
                });
            }
        });
    });
}

#[test]
fn octets_are_shown_where_they_lie_across_the_wrap() {
    for place in PLACES {
        let [mut here, mut there] = old(place - 10);
        for turn in 0..40u64 {
            let mut room = here.sender.reserve(1000).unwrap();
            let piece: Vec<u8> = (turn..turn + 1000).map(octet).collect();
            assert_eq!(room.put(0, &piece), 1000);
            room.commit(1000);
            let seen = there.receiver.peek(1000).unwrap();
            let mut copy = [0; 1000];
            assert_eq!(seen.copy_to(0, &mut copy), 1000);
            seen.release(1000);
            assert_eq!(copy[..], piece[..], "turn {turn}");
        }
    }
}

#[test]
fn datagrams_go_on_behind_the_wrap_both_ways() {
    const MOST: u64 = 1900;
    everywhere(|ends| {
        // Records begin at places that are multiples of eight, as all of these are.
        let halves = ends.map(|end| Datagrams::from((end.sender, end.receiver)).split());
        thread::scope(|scope| {
            for (mut sender, mut receiver) in halves {
                scope.spawn(move || {
                    for n in 0..400 {
                        let datagram: Vec<u8> = (n..n + length(n, MOST) as u64).map(octet).collect();
                        sender.send(&datagram).unwrap();
                    }
                    drop(sender);
                });
                scope.spawn(move || {
                    let (mut n, mut room) = (0, [0; MOST as usize]);
                    while let Some(len) = receiver.receive(&mut room).unwrap() {
                        assert_eq!(len, length(n, MOST), "datagram {n}");
                        let wanted = (n..n + len as u64).map(octet);
                        assert!(room[..len].iter().copied().eq(wanted), "datagram {n}");
                        n += 1;
                    }
                    assert_eq!(n, 400);
                });
            }
        });
    });
}
