//! How connections end.

use super::{Net, ROLES, Role, Wire, nothing_is_left, pair_with, patient, piece, read_all, write_all};
use crate::{LONGEST, isolated};
use bypath_link::tun::Offloads;
use bypath_netstack::TcpStream;
use bypath_stack::config::Config;
use nix::sys::socket::{setsockopt, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream as KernelStream};
use std::time::{Duration, Instant};

const WIRES: [Wire; 2] = [Wire::Tap(Offloads::ALL), Wire::Veth { offload: true }];

/// What is done with both ends of a connection.
type Case = fn(&Net, TcpStream, KernelStream);

/// Each for every role over two wires, which are then empty.
fn everywhere(cases: &[Case]) {
    for wire in WIRES {
        let net = Net::open(wire, 1500, None, Config::default()).expect("a link");
        for role in ROLES {
            for case in cases {
                let pair = pair_of(&net, role);
                case(&net, pair.0, pair.1);
                nothing_is_left(net.host(), 0);
            }
        }
    }
}

fn pair_of(net: &Net, role: Role) -> (TcpStream, KernelStream) {
    let pair = pair_with(net.host(), role, |_| {}, |_| {});
    patient(&pair);
    pair
}

/// Reads until there is an error.
fn error_of(mut from: impl Read) -> ErrorKind {
    let mut room = [0; 10_000];
    loop {
        match from.read(&mut room) {
            Ok(0) => panic!("an end, and no error"),
            Ok(_) => {}
            Err(e) => return e.kind(),
        }
    }
}

isolated! {
    fn one_direction_goes_on_after_the_other_one_has_ended() {
        everywhere(&[
        |_, own, kernel| {
            write_all(&own, 1000, 1000);
            own.shutdown(Shutdown::Write).expect("a connection");
            read_all(&kernel, 1000);
            // The other end knows, and goes on.
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    write_all(&kernel, 300_000, 10_000);
                    kernel.shutdown(Shutdown::Write).expect("a connection");
                });
                read_all(&own, 300_000);
            });
            assert_eq!(own.send(b"?").expect_err("it has ended").kind(), ErrorKind::BrokenPipe);
        },
        |_, own, kernel| {
            write_all(&kernel, 1000, 1000);
            kernel.shutdown(Shutdown::Write).expect("a connection");
            read_all(&own, 1000);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    write_all(&own, 300_000, 10_000);
                    own.shutdown(Shutdown::Write).expect("a connection");
                });
                read_all(&kernel, 300_000);
            });
        },
        ]);
    }
}

isolated! {
    fn both_may_end_at_the_same_time() {
        everywhere(&[
        |_, own, kernel| {
            std::thread::scope(|scope| {
                scope.spawn(|| own.shutdown(Shutdown::Write).expect("a connection"));
                kernel.shutdown(Shutdown::Write).expect("a connection");
            });
            read_all(&own, 0);
            read_all(&kernel, 0);
        },
        ]);
    }
}

isolated! {
    fn what_was_written_arrives_though_nobody_holds_the_connection_any_more() {
        everywhere(&[
        |_, own, kernel| {
            // As much as there is room for.
            write_all(&own, 120_000, 10_000);
            drop(own);
            read_all(&kernel, 120_000);
        },
        |_, own, kernel| {
            std::thread::scope(|scope| {
                scope.spawn(move || write_all(kernel, 1_000_000, 100_000));
                read_all(&own, 1_000_000);
            });
        },
        ]);
    }
}

isolated! {
    fn a_reset_ends_both_directions_and_is_told_once() {
        everywhere(&[
        // The kernel's, by SO_LINGER.
        |_, own, kernel| {
            let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
            setsockopt(&kernel, sockopt::Linger, &at_once).expect("an option");
            drop(kernel);
            assert_eq!(error_of(&own), ErrorKind::ConnectionReset);
            assert_eq!(own.recv(&mut [0]).expect("the end"), 0);
            assert_eq!(own.send(b"?").expect_err("it is over").kind(), ErrorKind::BrokenPipe);
        },
        // Ours.
        |net, own, kernel| {
            net.host().with(|engine| engine.stack().tcp(own.id()).expect("a socket").abort());
            assert_eq!(error_of(&kernel), ErrorKind::ConnectionReset);
            assert_eq!((&kernel).write(b"?").expect_err("it is over").kind(), ErrorKind::BrokenPipe);
        },
        // Who closes and has not read all that came.
        |_, own, kernel| {
            write_all(&own, 1000, 1000);
            kernel.peek(&mut [0]).expect("octets");
            drop(kernel);
            assert_eq!(error_of(&own), ErrorKind::ConnectionReset);
        },
        |_, own, kernel| {
            write_all(&kernel, 1000, 1000);
            own.peek(&mut [0]).expect("octets");
            drop(own);
            assert_eq!(error_of(&kernel), ErrorKind::ConnectionReset);
        },
        // What comes to who has closed.
        |_, own, kernel| {
            drop(own);
            read_all(&kernel, 0);
            assert!(fails(&kernel));
        },
        |_, own, kernel| {
            drop(kernel);
            read_all(&own, 0);
            assert!(fails(&own));
        },
        ]);
    }
}

/// Writes until it is told that nobody reads.
fn fails(mut to: impl Write) -> bool {
    let end = Instant::now() + LONGEST;
    while Instant::now() < end {
        std::thread::sleep(Duration::from_millis(1));
        match to.write(b"?") {
            Ok(n) => assert_eq!(n, 1),
            Err(e) => return matches!(e.kind(), ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
        }
    }
    false
}

isolated! {
    fn what_came_before_a_reset_can_be_read() {
        for wire in WIRES {
            let net = Net::open(wire, 1500, None, Config::default()).expect("a link");
            for role in ROLES {
                let (own, kernel) = pair_of(&net, role);
                write_all(&kernel, 1000, 1000);
                own.peek(&mut [0]).expect("octets");
                let at_once = nix::libc::linger { l_onoff: 1, l_linger: 0 };
                setsockopt(&kernel, sockopt::Linger, &at_once).expect("an option");
                drop(kernel);
                let ended = Instant::now() + LONGEST;
                while net.host().with(|e| e.stack().tcp(own.id()).expect("a socket").state()) != Some(bypath_stack::tcp::State::Closed) {
                    assert!(Instant::now() < ended, "no reset");
                    std::thread::sleep(Duration::from_millis(1));
                }
                let mut room = [0; 2000];
                assert_eq!(own.recv(&mut room).expect("what came before"), 1000);
                assert!(room[..1000] == *piece(0, 1000));
                assert_eq!(own.recv(&mut room).expect_err("it was reset").kind(), ErrorKind::ConnectionReset);
            }
        }
    }
}
