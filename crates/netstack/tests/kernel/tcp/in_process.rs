//! A host without a thread: what its calls do is all that happens.

use super::{MOST, Net, ROLES, Role, WIRES, Wire, kernel_calls, kernel_socket, patient, piece};
use crate::{LONGEST, at, isolated};
use bypath_link::fault::Faults;
use bypath_link::tun::Offloads;
use bypath_netstack::{Host, TcpListener, TcpStream, UdpSocket};
use bypath_stack::config::Config;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener as KernelListener, TcpStream as KernelStream};
use std::thread::{JoinHandle, scope, spawn};
use std::time::{Duration, Instant};

/// `None`: what it takes is not there.
fn net(wire: Wire, faults: Option<[Faults; 2]>) -> Option<Net> {
    Net::open_as(wire, 1500, faults, Config::default(), Host::in_process)
}

/// The ends of a connection. Who waits for the kernel's does so on a thread: nobody else moves frames.
fn pair(host: &Host, role: Role) -> (TcpStream, KernelStream) {
    let (own, kernel) = if role.v6 { ("[fd09::2]:0", "[fd09::1]:0") } else { ("10.9.0.2:0", "10.9.0.1:0") };
    let pair = if role.ours_calls {
        let listener = KernelListener::bind(kernel).expect("a listener of the kernel");
        let to = listener.local_addr().expect("an address");
        let own = TcpStream::connect_timeout(host, to, LONGEST).expect("a connection");
        (own, listener.accept().expect("a connection").0)
    } else {
        let listener = TcpListener::bind(host, at(own)).expect("a listener of the stack");
        listener.set_timeout(Some(LONGEST));
        let (to, socket) = (listener.local_addr().expect("an address"), kernel_socket(at(kernel)));
        scope(|scope| {
            let kernel = scope.spawn(move || kernel_calls(socket, to));
            let (own, _) = listener.accept().expect("a connection");
            // Open, for the kernel, with what the call that accepts has sent already.
            (own, kernel.join().expect("the kernel's end"))
        })
    };
    patient(&pair);
    pair
}

/// A service of the kernel's that sends back what comes.
fn echo() -> SocketAddr {
    let listener = KernelListener::bind("10.9.0.1:0").expect("a listener of the kernel");
    let at = listener.local_addr().expect("an address");
    spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("an option");
        let _ = std::io::copy(&mut stream.try_clone().expect("a descriptor"), &mut stream);
    });
    at
}

/// Sends back all of so many octets once it has them.
fn returns(mut kernel: KernelStream, octets: usize) -> JoinHandle<()> {
    spawn(move || {
        let mut all = vec![0; octets];
        kernel.read_exact(&mut all).expect("all octets");
        assert!(all == piece(0, octets));
        kernel.write_all(&all).expect("written");
    })
}

/// So many octets to the kernel and back, by one thread for both directions: it never waits for one of them alone.
#[track_caller]
fn there_and_back(own: &TcpStream, kernel: KernelStream, octets: usize) {
    own.set_nonblocking(true).expect("an option");
    let back = returns(kernel, octets);
    let (mut written, mut read, mut room) = (0, 0, vec![0; 100_000]);
    let end = Instant::now() + LONGEST;
    while read < octets {
        assert!(Instant::now() < end, "{written} octets written, {read} read");
        if written < octets {
            match own.send(&piece(0, octets)[written..]) {
                Ok(n) => written += n,
                Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
            }
        }
        match own.recv(&mut room) {
            Ok(n) => {
                assert!(room[..n] == *piece(read, n), "octets from {read} on");
                read += n;
            }
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
    }
    back.join().expect("the kernel's end");
}

isolated! {
    fn octets_pass_on_every_wire_in_both_roles_and_no_thread_is_made() {
        for wire in WIRES {
            let Some(net) = net(wire, None) else { continue };
            for role in ROLES {
                let (own, kernel) = pair(net.host(), role);
                let task = || std::fs::read_dir("/proc/self/task").expect("threads").flatten();
                let names = || task().filter_map(|t| std::fs::read_to_string(t.path().join("comm")).ok());
                assert!(!names().any(|name| name == "netstack\n"));
                there_and_back(&own, kernel, MOST);
            }
        }
    }
}

isolated! {
    fn threads_may_share_it() {
        let net = net(Wire::Tap(Offloads::ALL), None).expect("a device");
        let (own, kernel) = pair(net.host(), ROLES[1]);
        let back = returns(kernel, MOST);
        scope(|scope| {
            scope.spawn(|| (&own).write_all(piece(0, MOST)).expect("written"));
            let mut all = vec![0; MOST];
            (&own).read_exact(&mut all).expect("all octets");
            assert!(all == piece(0, MOST));
        });
        back.join().expect("the kernel's end");
    }
}

isolated! {
    fn what_is_lost_is_sent_again_by_who_waits() {
        let faults = Faults { loss: 0.02, reordering: 0.02, ..Faults::NONE };
        let net = net(Wire::Tap(Offloads::NONE), Some([faults, faults])).expect("a device");
        let (own, kernel) = pair(net.host(), ROLES[1]);
        there_and_back(&own, kernel, 1_000_000);
        assert!(own.statistics().expect("a connection").octets_again > 0);
    }
}

isolated! {
    fn calls_wait_as_long_as_they_may() {
        let net = net(Wire::Veth { offload: true }, None).expect("a pair");
        let (own, mut kernel) = pair(net.host(), ROLES[1]);
        own.set_nonblocking(true).expect("an option");
        assert_eq!(own.recv(&mut [0; 9]).map_err(|e| e.kind()), Err(ErrorKind::WouldBlock));
        own.set_nonblocking(false).expect("an option");
        let (began, longest) = (Instant::now(), Duration::from_millis(30));
        own.set_timeout(Some(longest));
        assert_eq!(own.recv(&mut [0; 9]).map_err(|e| e.kind()), Err(ErrorKind::TimedOut));
        assert!(began.elapsed() >= longest);
        kernel.write_all(b"now").expect("written");
        // It is in the link already: the call that does not wait looks there.
        own.set_nonblocking(true).expect("an option");
        let end = Instant::now() + LONGEST;
        let mut room = [0; 9];
        let read = loop {
            match own.recv(&mut room) {
                Err(e) if e.kind() == ErrorKind::WouldBlock => assert!(Instant::now() < end),
                other => break other.expect("octets"),
            }
        };
        assert_eq!(&room[..read], b"now");
        // Who sleeps wakes up for what comes, and not before.
        while net.host().poll().expect("a link") {}
        net.host().wait(Some(Duration::from_millis(1))).expect("a link");
        kernel.write_all(b"again").expect("written");
        net.host().wait(Some(LONGEST)).expect("a link");
        assert_eq!(own.recv(&mut room).expect("octets"), 5);
        assert!(began.elapsed() < LONGEST);
        let refused = TcpStream::connect(net.host(), at("10.9.0.1:9")).map_err(|e| e.kind());
        assert!(matches!(refused, Err(ErrorKind::ConnectionRefused)), "{refused:?}");
    }
}

isolated! {
    fn datagrams_pass_and_errors_are_told() {
        for wire in WIRES {
            let Some(net) = net(wire, None) else { continue };
            let own = UdpSocket::bind(net.host(), at("10.9.0.2:0")).expect("a socket");
            own.set_timeout(Some(LONGEST));
            let kernel = std::net::UdpSocket::bind("10.9.0.1:0").expect("a socket of the kernel");
            kernel.set_read_timeout(Some(LONGEST)).expect("a time-out");
            own.connect(kernel.local_addr().expect("an address")).expect("a way");
            let mut room = [0; 9000];
            for len in [0, 1, 1472, 8000] {
                // The first one asks who has the address, and nobody hears the answer before a call: who polls.
                own.send(piece(0, len)).expect("sent");
                kernel.set_nonblocking(true).expect("an option");
                let (got, from) = loop {
                    net.host().poll().expect("a link");
                    match kernel.recv_from(&mut room) {
                        Err(e) if e.kind() == ErrorKind::WouldBlock => {}
                        other => break other.expect("a datagram"),
                    }
                };
                assert!(room[..got] == *piece(0, len), "{wire:?} {len}");
                kernel.send_to(&room[..got], from).expect("sent");
                assert_eq!(own.recv(&mut room).expect("a datagram"), len);
            }
            drop(kernel);
            own.send(b"anybody?").expect("sent");
            assert_eq!(own.recv(&mut room).map_err(|e| e.kind()), Err(ErrorKind::ConnectionRefused));
        }
    }
}

isolated! {
    fn one_octet_goes_there_and_back() {
        let net = net(Wire::Veth { offload: true }, None).expect("a pair");
        let mut own = TcpStream::connect(net.host(), echo()).expect("a connection");
        own.set_nodelay(true).expect("an option");
        own.set_timeout(Some(LONGEST));
        for n in 0..1000u32 {
            own.write_all(&[n as u8]).expect("written");
            let mut one = [0];
            own.read_exact(&mut one).expect("an octet");
            assert_eq!(one, [n as u8]);
        }
    }
}

isolated! {
    fn a_link_that_goes_ends_all_calls() {
        let net = net(Wire::Veth { offload: true }, None).expect("a pair");
        let own = TcpStream::connect(net.host(), echo()).expect("a connection");
        own.set_timeout(Some(LONGEST));
        net.at_home(|| bypath_sys::netns::remove("left")).expect("removed");
        assert_eq!(own.recv(&mut [0; 9]).map_err(|e| e.kind()), Err(ErrorKind::BrokenPipe));
        assert_eq!(net.host().poll().map_err(|e| e.kind()), Err(ErrorKind::BrokenPipe));
        assert!(net.host().ended().is_some());
        // There is nothing left to be removed.
        std::mem::forget(net);
    }
}
