//! Both roles over every kind of link, and packets of several lengths.

use super::{
    MOST, Net, ROLES, WIRES, Wire, exchange, exchange_all, kernel_calls, kernel_socket, pair_with, piece,
    read_all,
};
use crate::{LONGEST, at, isolated, namespace};
use bypath_link::tun::Offloads;
use bypath_netstack::{TcpListener, TcpStream};
use bypath_stack::config::Config;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener as KernelListener, TcpStream as KernelStream};

fn questions(own: &TcpStream, mut kernel: &KernelStream, count: u32) {
    kernel.set_nodelay(true).expect("an option");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut room = [0; 100];
            loop {
                let n = own.recv(&mut room).expect("read");
                if n == 0 {
                    return own.shutdown(Shutdown::Write).expect("a connection");
                }
                assert_eq!(own.send(&room[..n]).expect("written"), n);
            }
        });
        for n in 0..count {
            let asked = [n as u8; 7];
            let mut room = [0; 7];
            kernel.write_all(&asked).expect("written");
            kernel.read_exact(&mut room).expect("an answer");
            assert_eq!(room, asked);
        }
        kernel.shutdown(Shutdown::Write).expect("a connection");
        read_all(kernel, 0);
    });
}

isolated! {
    fn every_wire_carries_octets_both_ways_in_both_roles() {
        const NAME: &str = "tcp::wires::every_wire_carries_octets_both_ways_in_both_roles";
        for wire in WIRES {
            let Some(net) = Net::open(wire, 1500, None, Config::default()) else {
                namespace::skip(NAME, "ethtool is not installed: no veth without offloads");
                continue;
            };
            for role in ROLES {
                let (own, kernel) = pair_with(net.host(), role, |_| {}, |_| {});
                exchange(&own, &kernel, 2_000_000);
                let statistics = own.statistics().expect("a connection");
                assert!(statistics.sack && statistics.timestamps && statistics.shifts.0 > 0, "{statistics:?}");
                assert_eq!(statistics.octets_received, 2_000_000);
                let (own, kernel) = pair_with(net.host(), role, |_| {}, |_| {});
                questions(&own, &kernel, 100);
            }
            super::nothing_is_left(net.host(), 0);
        }
    }
}

isolated! {
    fn one_write_may_be_larger_than_all_buffers() {
        for wire in [Wire::Tap(Offloads::ALL), Wire::Veth { offload: true }] {
            let net = Net::open(wire, 1500, None, Config::default()).expect("a link");
            for role in ROLES {
                // Small ones on both sides: the write waits for room again and again.
                let wishes = |s: &mut bypath_stack::tcp::Settings| (s.send_octets, s.receive_octets) = (50_000, 30_000);
                let (own, kernel) = pair_with(net.host(), role, wishes, |_| {});
                std::thread::scope(|scope| {
                    scope.spawn(|| {
                        (&own).write_all(piece(0, MOST)).expect("written");
                        own.shutdown(Shutdown::Write).expect("a connection");
                    });
                    read_all(&kernel, MOST);
                    scope.spawn(|| {
                        (&kernel).write_all(piece(0, MOST)).expect("written");
                        kernel.shutdown(Shutdown::Write).expect("a connection");
                    });
                    read_all(&own, MOST);
                });
            }
        }
    }
}

isolated! {
    fn packets_are_as_long_as_the_link_takes_them() {
        let [tap, plain_tap, veth, plain_veth] = WIRES;
        for (wire, mtus) in [(tap, &[9000, 576][..]), (plain_tap, &[1280]), (veth, &[9000]), (plain_veth, &[576])] {
            for mtu in mtus.iter().copied() {
                let Some(net) = Net::open(wire, mtu, None, Config::default()) else { continue };
                let roles: Vec<_> = ROLES.into_iter().filter(|role| mtu >= 1280 || !role.v6).collect();
                let pairs: Vec<_> = roles
                    .iter()
                    .map(|role| (format!("{wire:?} {mtu} {role:?}"), pair_with(net.host(), *role, |_| {}, |_| {})))
                    .collect();
                exchange_all(&pairs, 300_000);
                for (role, (name, (own, _))) in roles.iter().zip(&pairs) {
                    let statistics = own.statistics().expect("a connection");
                    assert_eq!(statistics.mss, mtu - if role.v6 { 60 } else { 40 }, "{name}");
                }
            }
        }
    }
}

isolated! {
    fn a_thousand_connections_call_at_once_over_a_pair_of_interfaces() {
        const EACH: usize = 250;
        const ASKED: usize = 3000;
        let net = Net::open(Wire::Veth { offload: true }, 1500, None, Config::default()).expect("a link");
        let host = net.host();
        let listener = TcpListener::bind_with(host, at("[fd09::2]:80"), 1000, |_, _| {}).expect("a listener");
        listener.set_timeout(Some(LONGEST));
        let kernels = KernelListener::bind(at("10.9.0.1:81")).expect("a listener");
        // What an echo does with one connection.
        let echo = |mut stream: Box<dyn ReadWrite>| {
            let mut room = [0; ASKED];
            stream.read_exact(&mut room).expect("octets");
            stream.write_all(&room).expect("written");
        };
        let ask = |mut stream: Box<dyn ReadWrite>, n: usize| {
            stream.write_all(piece(n, ASKED)).expect("written");
            stream
        };
        let hear = |mut stream: Box<dyn ReadWrite>, n: usize| {
            let mut room = [0; ASKED];
            stream.read_exact(&mut room).expect("an answer");
            assert!(room == *piece(n, ASKED), "{n}");
            assert_eq!(stream.read(&mut room).expect("the end"), 0);
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let all: Vec<_> = (0..4 * EACH).map(|_| listener.accept().expect("a connection").0).collect();
                all.into_iter().for_each(|own| {
                    own.set_timeout(Some(LONGEST));
                    echo(Box::new(own));
                });
            });
            scope.spawn(|| {
                let all: Vec<_> = (0..4 * EACH).map(|_| kernels.accept().expect("a connection").0).collect();
                all.into_iter().for_each(|kernel| {
                    kernel.set_read_timeout(Some(LONGEST)).expect("a time-out");
                    echo(Box::new(kernel));
                });
            });
            for thread in 0..4 {
                scope.spawn(move || {
                    let all: Vec<_> = (0..EACH)
                        .map(|n| {
                            let kernel = kernel_calls(kernel_socket(at("[fd09::1]:0")), at("[fd09::2]:80"));
                            kernel.set_read_timeout(Some(LONGEST)).expect("a time-out");
                            (ask(Box::new(kernel), thread * EACH + n), thread * EACH + n)
                        })
                        .collect();
                    all.into_iter().for_each(|(stream, n)| hear(stream, n));
                });
                scope.spawn(move || {
                    let all: Vec<_> = (0..EACH)
                        .map(|n| {
                            let own = TcpStream::connect(host, at("10.9.0.1:81")).expect("a connection");
                            own.set_timeout(Some(LONGEST));
                            (ask(Box::new(own), thread * EACH + n), thread * EACH + n)
                        })
                        .collect();
                    all.into_iter().for_each(|(stream, n)| hear(stream, n));
                });
            }
        });
        drop(listener);
        super::nothing_is_left(host, 0);
    }
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}
