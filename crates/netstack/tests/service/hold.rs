//! TCP_CORK and TCP_NODELAY that a program says beside its ring, and asks nobody for: what goes, and what waits.

use crate::program::Sock;
use crate::rings::{Process, Rings, connected, received};
use crate::{LONGEST, Program, Running, isolated, kernels};
use bypath_shm::hold::{Hold, Wish};
use bypath_shm::service::{Header, Op};
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::Ordering::*;
use std::time::{Duration, Instant};

const TCP: i32 = libc::IPPROTO_TCP;

/// Says an option, behind everything that was written so far, and rings nobody.
fn say(rings: &Rings, wish: Wish, on: bool) {
    let word = &rings.out().wa.hold;
    let said = Hold::from_raw(word.load(Relaxed));
    if let Some(next) = said.with(wish, on, rings.out().t.tail.load(Relaxed)) {
        word.store(next.raw(), Release);
    }
}

/// What is corked goes after 200 ms: who looks later has seen nothing.
const IN_TIME: Duration = Duration::from_millis(150);

/// The machine was busy.
#[derive(Debug)]
struct Late;

/// Waits until so many octets wait in the stack, which have not been sent.
fn unsent(running: &Running, octets: u64) -> Result<(), Late> {
    let since = Instant::now();
    while running.query("sockets")[0]["unsent"].as_u64() != Some(octets) {
        if since.elapsed() > IN_TIME {
            return Err(Late);
        }
    }
    Ok(())
}

/// Does it until it was done in time, each time with another connection.
#[track_caller]
fn in_time(story: fn(&Running, &Program, &mut Process) -> Result<(), Late>) {
    let running = Running::new();
    let program = running.program();
    let mut process = Process::new(7);
    let told = (0..20).any(|_| {
        let told = story(&running, &program, &mut process);
        running.has_sockets(0);
        told.is_ok()
    });
    assert!(told, "what was corked went each time");
}

/// Octets that one call of recv(2) gets of what is there, without waiting.
fn there(peer: &TcpStream) -> usize {
    peer.set_nonblocking(true).expect("a socket");
    let n = peer.peek(&mut [0; 100_000]).unwrap_or(0);
    peer.set_nonblocking(false).expect("a socket");
    n
}

isolated! {
    fn what_is_corked_beside_the_ring_waits_and_goes_when_that_is_said() {
        in_time(|running, program, process| {
            let (sock, mut peer, mut rings) = connected(program, process);
            rings.begin(0);
            rings.put(process, b"before ");
            assert_eq!(received(&mut peer, 7), b"before ");
            say(&rings, Wish::Cork, true);
            rings.put(process, b"corked ");
            unsent(running, 7)?;
            assert_eq!(there(&peer), 0);
            // Who asks is told what was said.
            assert_eq!(sock.get(TCP, libc::TCP_CORK), Ok(vec![1, 0, 0, 0]));
            rings.put(process, b"and more");
            unsent(running, 15)?;
            say(&rings, Wish::Cork, false);
            process.ring(&rings);
            assert_eq!(received(&mut peer, 15), b"corked and more");
            assert_eq!(sock.get(TCP, libc::TCP_CORK), Ok(vec![0; 4]));

            // TCP_NODELAY lets go of what is corked, and what follows is corked all the same.
            say(&rings, Wish::Cork, true);
            rings.put(process, b"pushed");
            unsent(running, 6)?;
            say(&rings, Wish::NoDelay, true);
            process.ring(&rings);
            assert_eq!(received(&mut peer, 6), b"pushed");
            rings.put(process, b"held");
            unsent(running, 4)?;
            // A question says it, too, whatever was said beside the ring before.
            say(&rings, Wish::NoDelay, false);
            assert_eq!(sock.set(TCP, libc::TCP_CORK, &0i32.to_ne_bytes()), 0);
            assert_eq!(received(&mut peer, 4), b"held");
            assert_eq!(sock.get(TCP, libc::TCP_NODELAY), Ok(vec![0; 4]));
            Ok(())
        });
    }
}

isolated! {
    fn octets_before_a_cork_go_and_those_behind_it_wait() {
        in_time(|running, program, process| {
            let (_sock, mut peer, mut rings) = connected(program, process);
            rings.begin(0);
            rings.put(process, b"x");
            assert_eq!(received(&mut peer, 1), b"x");
            let lay = |rings: &mut Rings, octets: &[u8], at: u64| {
                rings.tx.copy_from_slice(at, octets);
                rings.out().publish(at + octets.len() as u64);
            };
            // All of it is there before the service hears of anything: what was written before the change goes, what was behind it waits.
            // First with nothing that was said before, then where the cork was taken away and set again.
            lay(&mut rings, b"free ", 1);
            say(&rings, Wish::Cork, true);
            lay(&mut rings, b"held ", 6);
            process.ring(&rings);
            assert_eq!(received(&mut peer, 5), b"free ");
            unsent(running, 5)?;
            lay(&mut rings, b"too ", 11);
            say(&rings, Wish::Cork, false);
            say(&rings, Wish::Cork, true);
            lay(&mut rings, b"again", 15);
            process.ring(&rings);
            assert_eq!(received(&mut peer, 9), b"held too ");
            unsent(running, 5)?;
            assert_eq!(there(&peer), 0);
            // Nothing is written between: what waits goes.
            say(&rings, Wish::Cork, false);
            say(&rings, Wish::NoDelay, true);
            say(&rings, Wish::NoDelay, false);
            say(&rings, Wish::Cork, true);
            process.ring(&rings);
            assert_eq!(received(&mut peer, 5), b"again");
            Ok(())
        });
    }
}

/// Says an option in a message that nobody waits for.
fn tell(sock: &Sock<'_>, name: i32, on: bool) {
    let header = Header { op: Op::Say, serial: 0, socket: sock.cookie, errno: 0 };
    let body = [TCP, name, on.into()].map(i32::to_ne_bytes);
    sock.program.say(&[&header.encode()[..], body.as_flattened()].concat()).expect("a service that listens");
}

isolated! {
    fn what_is_said_without_an_answer_is_done_in_order() {
        in_time(|running, program, _| {
            let (listener, to) = kernels("10.9.0.1:0");
            let mut sock = program.connect(to);
            let mut peer = listener.accept().expect("a connection").0;
            peer.set_read_timeout(Some(LONGEST)).expect("a time-out");
            tell(&sock, libc::TCP_CORK, true);
            // An answer is the question's: there is no other one before it.
            assert_eq!(sock.get(TCP, libc::TCP_CORK), Ok(vec![1, 0, 0, 0]));
            sock.stream.write_all(b"corked").expect("room");
            unsent(running, 6)?;
            assert_eq!(there(&peer), 0);
            // What was held goes between two that are one behind the other, and what follows waits.
            tell(&sock, libc::TCP_CORK, false);
            tell(&sock, libc::TCP_CORK, true);
            assert_eq!(received(&mut peer, 6), b"corked");
            sock.stream.write_all(b"again").expect("room");
            unsent(running, 5)?;
            tell(&sock, libc::TCP_NODELAY, true);
            assert_eq!(received(&mut peer, 5), b"again");
            // More than a turn of questions.
            for n in 0..150 {
                tell(&sock, libc::TCP_CORK, n % 2 == 1);
            }
            tell(&sock, libc::TCP_CORK, false);
            assert_eq!(sock.get(TCP, libc::TCP_CORK), Ok(vec![0; 4]));
            // Octets that are in the pair when it is asked go before it is done.
            sock.stream.write_all(b"before").expect("room");
            assert_eq!(sock.set(TCP, libc::TCP_CORK, &1i32.to_ne_bytes()), 0);
            assert_eq!(received(&mut peer, 6), b"before");
            Ok(())
        });
    }
}

isolated! {
    fn what_may_not_be_said_changes_nothing_and_has_no_answer() {
        let running = Running::new();
        let program = running.program();
        let (listener, to) = kernels("10.9.0.1:0");
        let sock = program.connect(to);
        let _peer = listener.accept().expect("a connection").0;
        // There is no such socket, no such value.
        let said = |socket, body: &[i32]| {
            let header = Header { op: Op::Say, serial: 0, socket, errno: 0 };
            let body: Vec<u8> = body.iter().flat_map(|n| n.to_ne_bytes()).collect();
            program.say(&[&header.encode()[..], &body].concat()).expect("a service that listens");
        };
        said(1, &[TCP, libc::TCP_CORK, 1]);
        said(sock.cookie, &[TCP, libc::TCP_CORK]);
        said(sock.cookie, &[TCP, libc::TCP_KEEPCNT, 128]);
        assert_eq!(sock.get(TCP, libc::TCP_CORK), Ok(vec![0; 4]));
        // What makes no sense ends the connection for questions, as ever; so does an option that is asked for.
        said(sock.cookie, &[libc::IPPROTO_IP, libc::IP_TTL, 9]);
        assert!(program.hear().is_none());
    }
}
