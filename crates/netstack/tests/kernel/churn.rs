//! Neighbours that change while datagrams go on: the kernel gets another hardware address, forgets ours, goes down and comes up.

use crate::{Config, Offloads, at, isolated, kernels, octets, ours};
use bypath_stack::neighbor;
use std::net::SocketAddr;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Sends everything back until it is told to end.
fn echo(
    stop: &AtomicBool,
    mut receive: impl FnMut(&mut [u8]) -> Option<(usize, SocketAddr)>,
    send: impl Fn(&[u8], SocketAddr),
) {
    let mut room = [0; 2000];
    while !stop.load(Relaxed) {
        if let Some((len, from)) = receive(&mut room) {
            send(&room[..len], from);
        }
    }
}

/// Sends numbered datagrams until `wanted` in a row were answered; how many were lost before, `None`: more than may be.
fn settled(
    send: &dyn Fn(&[u8]),
    receive: &dyn Fn(&mut [u8]) -> Option<usize>,
    wanted: u32,
    number: &mut u32,
) -> Option<u32> {
    let end = Instant::now() + Duration::from_secs(15);
    let (mut row, mut lost) = (0, 0);
    let mut content = octets(600);
    let mut room = [0; 2000];
    while Instant::now() < end {
        *number += 1;
        content[..4].copy_from_slice(&number.to_be_bytes());
        send(&content);
        // Late answers of earlier ones are passed over.
        let answered = loop {
            match receive(&mut room) {
                Some(len) if room[..len] == content => break true,
                Some(_) => {}
                None => break false,
            }
        };
        row = if answered { row + 1 } else { 0 };
        lost += u32::from(!answered);
        if row == wanted {
            return Some(lost);
        }
    }
    None
}

fn ip(arguments: &str) {
    let output = Command::new("ip").args(arguments.split(' ')).output().expect("ip");
    assert!(output.status.success(), "ip {arguments}: {}", String::from_utf8_lossy(&output.stderr));
}

isolated! {
    fn datagrams_go_on_whatever_becomes_of_the_neighbour() {
        if Command::new("ip").arg("-V").output().is_err() {
            return crate::namespace::skip("churn", "no ip (iproute2)");
        }
        // Quicker than hosts are, so that the test ends soon.
        let neighbors = neighbor::Config {
            reachable: Duration::from_millis(300),
            delay: Duration::from_millis(100),
            retransmit: Duration::from_millis(100),
            ..neighbor::Config::default()
        };
        let (host, iface) = crate::host(Config { neighbors, ..Config::default() }, Offloads::NONE);
        // Addresses outlive a device that is down; no need to tell others that they are back.
        std::fs::write("/proc/sys/net/ipv6/conf/mine/keep_addr_on_down", "1").expect("a setting of this namespace");
        let host = Arc::new(host);
        let stop = Arc::new(AtomicBool::new(false));
        let mut threads = Vec::new();
        for address in ["10.9.0.1:7", "[fd09::1]:7"] {
            let (stop, socket) = (Arc::clone(&stop), kernels(address));
            socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
            threads.push(std::thread::spawn(move || {
                // What the kernel cannot send is lost.
                echo(&stop, |room| socket.recv_from(room).ok(), |octets, to| _ = socket.send_to(octets, to));
            }));
        }
        for address in ["10.9.0.2:7", "[fd09::2]:7"] {
            let (stop, socket) = (Arc::clone(&stop), ours(&host, address));
            socket.set_timeout(Some(Duration::from_millis(50)));
            threads.push(std::thread::spawn(move || {
                echo(&stop, |room| socket.recv_from(room).ok(), |octets, to| _ = socket.send_to(octets, to));
            }));
        }
        // Somebody sends all the time, while the device is down, too.
        let (talk, talker) = (Arc::clone(&stop), ours(&host, "[::]:0"));
        threads.push(std::thread::spawn(move || {
            let mut room = [0; 2000];
            talker.set_timeout(Some(Duration::from_millis(1)));
            while !talk.load(Relaxed) {
                for to in ["10.9.0.1:7", "[fd09::1]:7"] {
                    if let Err(e) = talker.send_to(&[1; 100], at(to)) {
                        assert_ne!(e.kind(), std::io::ErrorKind::BrokenPipe, "{e}");
                    }
                    let _ = talker.recv(&mut room);
                }
            }
        }));
        let before = host.with(|engine| engine.stack().neighbor(iface, at("10.9.0.1:1").ip())).map(|(_, mac)| mac);
        let changes = [
            "-V",
            "link set mine address 02:aa:00:00:00:01",
            "neigh flush dev mine",
            "link set mine address 02:aa:00:00:00:02",
            "link set mine down;link set mine up",
            "link set mine down;link set mine address 02:aa:00:00:00:03;link set mine up",
            "link set mine arp off;link set mine arp on",
        ];
        let mut number = 0;
        for change in changes {
            change.split(';').for_each(ip);
            for (own, kernel) in [("10.9.0.2:0", "10.9.0.1:7"), ("[fd09::2]:0", "[fd09::1]:7")] {
                // From the stack.
                let socket = ours(&host, own);
                socket.set_timeout(Some(Duration::from_millis(50)));
                let send = |octets: &[u8]| _ = socket.send_to(octets, at(kernel));
                let receive = |room: &mut [u8]| socket.recv(room).ok();
                let lost = settled(&send, &receive, 50, &mut number);
                let lost = lost.unwrap_or_else(|| panic!("{change}: nothing from {own} to {kernel} any more"));
                println!("{change}: {lost} of the stack's lost");
            }
            for (own, stack) in [("10.9.0.1:0", "10.9.0.2:7"), ("[fd09::1]:0", "[fd09::2]:7")] {
                // From the kernel.
                let socket = kernels(own);
                socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a time-out");
                let send = |octets: &[u8]| _ = socket.send_to(octets, stack);
                let receive = |room: &mut [u8]| socket.recv(room).ok();
                let lost = settled(&send, &receive, 50, &mut number);
                let lost = lost.unwrap_or_else(|| panic!("{change}: nothing from {own} to {stack} any more"));
                println!("{change}: {lost} of the kernel's lost");
            }
        }
        let after = host.with(|engine| engine.stack().neighbor(iface, at("10.9.0.1:1").ip())).map(|(_, mac)| mac);
        assert_ne!(before, after);
        assert_eq!(after, Some(bypath_link::MacAddr([2, 0xaa, 0, 0, 0, 3])));
        stop.store(true, Relaxed);
        threads.into_iter().for_each(|thread| thread.join().expect("an echo"));
    }
}
