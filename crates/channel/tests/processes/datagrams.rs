//! Channels of datagrams: killed processes, names, descriptors that travel, and a peer that lies.

use crate::{Folder, LONG, Other, errno, heir, inherited, liars, lie, octet};
use bypath_channel::{Channel, DatagramReceiver, DatagramSender, Datagrams, Listener, Remote};
use std::io::ErrorKind;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::thread;
use std::time::Duration;

/// Datagram `n` of a flood: some have no octets.
fn datagram(n: u64) -> Vec<u8> {
    (n..n + n * 97 % 1013).map(octet).collect()
}

/// What the other process does.
pub fn other(what: &str, name: &str) {
    let channel = match what {
        "inherits" | "waits" => inherited(name).open_datagrams().expect("an end"),
        "listen" => {
            let listener = Listener::bind(name).expect("a name");
            println!("\nready");
            listener.accept_datagrams().expect("a caller")
        }
        _ => Datagrams::connect(name, LONG).expect("a listener"),
    };
    let (mut sender, mut receiver) = channel.split();
    match what {
        "flood" => flood(&mut sender),
        "drain" => while receiver.peek().is_ok_and(|it| it.map(|it| it.release()).is_some()) {},
        "waits" => {
            sender.send(b"ready").expect("room");
            loop {
                thread::park();
            }
        }
        _ => echo(&mut sender, &mut receiver),
    }
}

/// Octet by octet where they lie, so that most of the time a datagram is there in part.
fn flood(sender: &mut DatagramSender) {
    for n in 0.. {
        let text = datagram(n);
        let Ok(room) = sender.reserve(1013) else { return };
        for (place, octet) in room.runs().into_iter().flatten().zip(&text) {
            place.store(*octet, Relaxed);
        }
        room.commit(text.len());
    }
}

fn echo(sender: &mut DatagramSender, receiver: &mut DatagramReceiver) {
    let mut room = vec![0; receiver.longest()];
    while let Some(n) = receiver.receive(&mut room).expect("a datagram or the end") {
        sender.send(&room[..n]).expect("room");
    }
}

fn accept(listener: &Listener) -> Datagrams {
    let mut channel = listener.accept_datagrams().unwrap();
    channel.set_timeout(LONG);
    channel
}

fn echoes(channel: &mut Datagrams) {
    let most = channel.receiver.longest();
    let mut room = vec![0; most];
    for len in [0, 1, 14, 0, 1400, most, 7, 8] {
        let text: Vec<u8> = (0..len as u64).map(octet).collect();
        channel.sender.send(&text).unwrap();
        assert_eq!(channel.receiver.receive(&mut room).unwrap(), Some(len));
        assert_eq!(&room[..len], text);
    }
}

#[test]
fn two_processes_meet_at_a_name() {
    let folder = Folder::new("datagrams-meet");
    let name = folder.name("echo");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_ring(4096);
    listener.set_timeout(LONG);
    assert!(listener.try_accept_datagrams().unwrap().is_none());
    let others: Vec<Other> =
        (0..3).map(|_| Other::start(&format!("datagrams-echo {name}"), |_| {})).collect();
    let mut channels: Vec<Datagrams> = others.iter().map(|_| accept(&listener)).collect();
    channels.iter_mut().for_each(echoes);
    drop(channels);
    others.into_iter().for_each(Other::ends_well);
    drop(listener);
    // The other way round.
    let mut other = Other::start(&format!("datagrams-listen {name}"), |_| {});
    other.line("ready");
    let mut channel = Datagrams::connect(&name, LONG).unwrap();
    channel.set_timeout(LONG);
    echoes(&mut channel);
    drop(channel);
    other.ends_well();
}

#[test]
fn an_end_is_inherited() {
    let (mut channel, remote) = Datagrams::pair(8192).unwrap();
    channel.set_timeout(LONG);
    let other = heir("datagrams-inherits", remote);
    echoes(&mut channel);
    drop(channel);
    other.ends_well();
}

#[test]
fn an_end_goes_through_a_socket() {
    let (a, b) = UnixStream::pair().unwrap();
    let (mut here, remote) = Datagrams::pair(4096).unwrap();
    remote.send(&a).unwrap();
    let mut there = Remote::receive(&b, LONG).unwrap().open_datagrams().unwrap();
    here.sender.send(b"over").unwrap();
    assert_eq!(there.receiver.receive(&mut [0; 4]).unwrap(), Some(4));
}

#[test]
fn who_calls_for_the_other_kind_is_told_so() {
    let folder = Folder::new("datagrams-kinds");
    let name = folder.name("x");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_timeout(LONG);
    thread::scope(|s| {
        let caller = s.spawn(|| Channel::connect(&name, LONG));
        let mut given = accept(&listener);
        assert_eq!(errno(caller.join().unwrap()), libc::EPROTOTYPE);
        assert_eq!(given.receiver.receive(&mut [0]).unwrap(), None);
        let caller = s.spawn(|| Datagrams::connect(&name, LONG));
        listener.accept().unwrap();
        assert_eq!(errno(caller.join().unwrap()), libc::EPROTOTYPE);
        // One name gives both.
        let caller = s.spawn(|| Datagrams::connect(&name, LONG));
        accept(&listener).sender.send(b"x").unwrap();
        assert_eq!(caller.join().unwrap().unwrap().receiver.receive(&mut [0]).unwrap(), Some(1));
    });
}

#[test]
fn a_killed_writer_leaves_whole_datagrams_and_then_the_end() {
    let folder = Folder::new("datagrams-writer");
    let name = folder.name("x");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_timeout(LONG);
    for round in 0..40u64 {
        listener.set_ring([4096, 1 << 18][round as usize % 2]);
        let mut other = Other::start(&format!("datagrams-flood {name}"), |_| {});
        let mut channel = accept(&listener);
        channel.set_spin(Duration::from_micros(round % 3 * 50));
        let (mut n, mut killed) = (0u64, false);
        let mut room = vec![0; 1013];
        loop {
            if n >= round * round && !killed {
                killed = true;
                other.0.kill().unwrap();
            }
            let Some(len) = channel.receiver.receive(&mut room).expect("a datagram or the end") else {
                break;
            };
            assert_eq!(room[..len], datagram(n), "round {round}, datagram {n}");
            n += 1;
        }
        assert!(killed, "it ended after {n} by itself");
        assert_eq!(channel.receiver.receive(&mut room).unwrap(), None);
    }
}

#[test]
fn a_killed_reader_ends_the_writer() {
    let folder = Folder::new("datagrams-reader");
    let name = folder.name("x");
    let mut listener = Listener::bind(&name).unwrap();
    listener.set_timeout(LONG);
    listener.set_ring(4096);
    for round in 0..40u64 {
        let mut other = Other::start(&format!("datagrams-drain {name}"), |_| {});
        let mut channel = accept(&listener);
        channel.set_spin(Duration::from_micros(round % 3 * 50));
        let mut killed = false;
        let error = (0..)
            .find_map(|n| {
                if n >= round * round && !killed {
                    killed = true;
                    other.0.kill().unwrap();
                }
                channel.sender.send(&datagram(n)).err()
            })
            .unwrap();
        assert!(killed && error.kind() == ErrorKind::BrokenPipe, "{error}");
    }
}

#[test]
fn sleepers_are_woken_by_the_end_of_one_who_did_nothing_and_was_killed() {
    let (mut channel, remote) = Datagrams::pair(4096).unwrap();
    channel.set_timeout(LONG);
    channel.set_spin(Duration::ZERO);
    let mut other = heir("datagrams-waits", remote);
    assert_eq!(channel.receiver.receive(&mut [0; 8]).unwrap(), Some(5));
    let (mut sender, mut receiver) = channel.split();
    thread::scope(|s| {
        let reads = s.spawn(|| receiver.receive(&mut [0; 8]));
        let writes = s.spawn(|| (0..).find_map(|_| sender.send(&[7; 100]).err()).unwrap());
        other.kill();
        assert_eq!(reads.join().unwrap().unwrap(), None);
        assert_eq!(writes.join().unwrap().kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn lies_give_errors_and_nothing_worse() {
    static LIES: AtomicU64 = AtomicU64::new(0);
    for seed in liars() {
        let (mut here, remote) = Datagrams::pair(4096).unwrap();
        let fds = remote.into_fds();
        let stop = AtomicBool::new(false);
        here.set_timeout(Some(Duration::from_micros(300)));
        thread::scope(|s| {
            s.spawn(|| lie(&fds, seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1, &stop));
            let mut room = [0; 2040];
            for turn in 0..3000usize {
                let len = turn * 7 % 2041;
                let told = match turn % 6 {
                    0 => here.receiver.receive(&mut room).map(Option::unwrap_or_default),
                    1 => here.sender.send(&room[..len]).map(|()| len),
                    2 => here.receiver.peek().map(|there| {
                        there.map_or(0, |there| {
                            let most = there.len();
                            let n = there.runs().iter().flat_map(|run| run.iter()).count();
                            assert_eq!((n, there.copy_to(0, &mut room)), (most, most));
                            there.release();
                            most
                        })
                    }),
                    3 => here.sender.reserve(len).map(|room| {
                        room.runs().iter().flat_map(|run| run.iter()).for_each(|o| o.store(1, Relaxed));
                        room.commit(len / 2);
                        len
                    }),
                    4 => here.receiver.arm().map(usize::from),
                    _ => here.sender.arm(len).map(usize::from),
                };
                match told {
                    Ok(n) => assert!(n <= 2040),
                    Err(e) => {
                        let e = e.raw_os_error().unwrap();
                        assert!([libc::EPROTO, libc::ETIMEDOUT].contains(&e), "{e}");
                        LIES.fetch_add(u64::from(e == libc::EPROTO), Relaxed);
                    }
                }
            }
            stop.store(true, Relaxed);
        });
    }
    assert!(LIES.load(Relaxed) > 100, "few lies were found: {LIES:?}");
}
