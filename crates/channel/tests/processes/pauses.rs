//! Calls that a signal interrupts, and an other end that is stopped for a while.

use crate::{Folder, LONG, Other, errno, octet};
use bypath_channel::{Channel, Datagrams, Listener};
use std::io::{Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::thread;
use std::time::Duration;

const SHORT: Option<Duration> = Some(Duration::from_millis(30));

extern "C" fn nothing(_: libc::c_int) {}

/// What a call says that waits while one signal after the other comes to its thread.
fn interrupted<T>(call: impl FnOnce() -> T) -> T {
    // SAFETY: integers only.
    let this = unsafe { libc::pthread_self() };
    let is_over = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            while !is_over.load(Acquire) {
                // SAFETY: the thread lives until this one has ended.
                unsafe { libc::pthread_kill(this, libc::SIGUSR1) };
                // How often, not for how long.
                thread::sleep(Duration::from_millis(1));
            }
        });
        let said = call();
        is_over.store(true, Release);
        said
    })
}

/// Handlers of both kinds: a call that has slept is not begun again for either.
fn handle(flags: libc::c_int) {
    // SAFETY: an all-zero action is one.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    (action.sa_sigaction, action.sa_flags) = (nothing as *const () as usize, flags);
    // SAFETY: the handler does nothing.
    assert_eq!(unsafe { libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()) }, 0);
}

/// Each handler is the process's: one test.
#[test]
fn a_signal_ends_a_wait_and_nothing_is_lost() {
    for flags in [0, libc::SA_RESTART] {
        handle(flags);
        for spin in [Duration::ZERO, Duration::from_micros(50)] {
            octets(spin);
            datagrams(spin);
        }
    }
}

fn octets(spin: Duration) {
    let (mut here, remote) = Channel::pair(4096).unwrap();
    let mut there = remote.open().unwrap();
    for end in [&mut here, &mut there] {
        end.set_timeout(LONG);
        end.set_spin(spin);
    }
    assert_eq!(interrupted(|| errno(here.read(&mut [0; 8]))), libc::EINTR);
    let mut written = 0u64;
    let stopped = loop {
        let text: Vec<u8> = (written..written + 100).map(octet).collect();
        match interrupted(|| here.write(&text)) {
            Ok(n) => written += n as u64,
            Err(e) => break e,
        }
    };
    assert_eq!((stopped.raw_os_error(), written), (Some(libc::EINTR), 4096));
    let mut all = vec![0; 4096];
    there.read_exact(&mut all).unwrap();
    assert!(all.iter().zip(0..).all(|(o, at)| *o == octet(at)));
    there.write_all(b"answer").unwrap();
    let mut answer = [0; 6];
    interrupted(|| here.read_exact(&mut answer)).unwrap();
    assert_eq!(&answer, b"answer");
}

fn datagrams(spin: Duration) {
    let (mut here, remote) = Datagrams::pair(4096).unwrap();
    let mut there = remote.open_datagrams().unwrap();
    for end in [&mut here, &mut there] {
        end.set_timeout(LONG);
        end.set_spin(spin);
    }
    let mut room = [0; 1000];
    assert_eq!(interrupted(|| errno(here.receiver.receive(&mut room))), libc::EINTR);
    let mut sent = 0u64;
    let text = |n: u64| (n..n + 100 + n % 7).map(octet).collect::<Vec<u8>>();
    let stopped = loop {
        match interrupted(|| here.sender.send(&text(sent))) {
            Ok(_) => sent += 1,
            Err(e) => break e,
        }
    };
    assert_eq!(stopped.raw_os_error(), Some(libc::EINTR));
    assert!(sent > 10);
    for n in 0..sent {
        let len = there.receiver.receive(&mut room).unwrap().expect("a datagram");
        assert_eq!(room[..len], text(n));
    }
    here.sender.send(b"after").unwrap();
    assert_eq!(there.receiver.receive(&mut room).unwrap(), Some(5));
}

/// Stops the other process where it is, or lets it go on.
fn signal(other: &Other, signal: libc::c_int) {
    // SAFETY: a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(other.0.id().cast_signed(), signal) }, 0);
}

#[test]
fn a_stopped_writer_is_waited_for_and_goes_on_where_it_was() {
    let folder = Folder::new("stopped-writer");
    let name = folder.name("x");
    let listener = Listener::bind(&name).unwrap();
    let other = Other::start(&format!("flood {name}"), |_| {});
    let mut channel = listener.accept().unwrap();
    channel.set_timeout(SHORT);
    let (mut at, mut room) = (0u64, [0; 3000]);
    for _ in 0..20 {
        signal(&other, libc::SIGSTOP);
        let stopped = loop {
            match channel.read(&mut room) {
                Ok(n) => {
                    assert!(n > 0 && room[..n].iter().zip(at..).all(|(o, at)| *o == octet(at)), "at {at}");
                    at += n as u64;
                }
                Err(e) => break e,
            }
        };
        assert_eq!(stopped.raw_os_error(), Some(libc::ETIMEDOUT));
        let before = at;
        signal(&other, libc::SIGCONT);
        while at < before + 10_000 {
            let n = channel.read(&mut room).unwrap_or(0);
            assert!(room[..n].iter().zip(at..).all(|(o, at)| *o == octet(at)), "at {at}");
            at += n as u64;
        }
    }
}

#[test]
fn a_stopped_reader_is_waited_for_and_misses_nothing() {
    let folder = Folder::new("stopped-reader");
    let name = folder.name("x");
    let listener = Listener::bind(&name).unwrap();
    let other = Other::start(&format!("echo {name}"), |_| {});
    let (mut sender, mut receiver) = listener.accept().unwrap().split();
    let text: Vec<u8> = (0..200_000).map(octet).collect();
    for _ in 0..10 {
        signal(&other, libc::SIGSTOP);
        sender.set_timeout(SHORT);
        let mut written = 0;
        let stopped = loop {
            // As long as somebody reads there is room; then there is none.
            match sender.write(&text[written % text.len()..]) {
                Ok(n) => written += n,
                Err(e) => break e,
            }
        };
        assert_eq!(stopped.raw_os_error(), Some(libc::ETIMEDOUT));
        signal(&other, libc::SIGCONT);
        receiver.set_timeout(LONG);
        let (mut read, mut room) = (0, [0; 3000]);
        while read < written {
            let n = receiver.read(&mut room).unwrap();
            assert!(n > 0 && room[..n].iter().enumerate().all(|(i, o)| *o == text[(read + i) % text.len()]));
            read += n;
        }
        assert_eq!(read, written);
    }
}

#[test]
fn a_stopped_process_keeps_its_datagrams() {
    let folder = Folder::new("stopped-datagrams");
    let name = folder.name("x");
    let listener = Listener::bind(&name).unwrap();
    let other = Other::start(&format!("datagrams-echo {name}"), |_| {});
    let (mut sender, mut receiver) = listener.accept_datagrams().unwrap().split();
    let text = |n: u64| (n..n + n * 97 % 1013).map(octet).collect::<Vec<u8>>();
    let (mut sent, mut received) = (0, 0);
    for _ in 0..10 {
        signal(&other, libc::SIGSTOP);
        sender.set_timeout(SHORT);
        let stopped = loop {
            match sender.send(&text(sent)) {
                Ok(_) => sent += 1,
                Err(e) => break e,
            }
        };
        assert_eq!(stopped.raw_os_error(), Some(libc::ETIMEDOUT));
        signal(&other, libc::SIGCONT);
        receiver.set_timeout(LONG);
        let mut room = [0; 2000];
        while received < sent {
            let len = receiver.receive(&mut room).unwrap().expect("a datagram");
            assert_eq!(room[..len], text(received));
            received += 1;
        }
    }
}
