//! What kernels seldom do: octets with a SYN, urgent ones, tiny segments, probes of silent connections, marks in place of loss.

use super::{
    Net, ROLES, Wire, counted, exchange, exchange_all, kernel_calls, kernel_socket, pair_with, piece, set,
    write_all,
};
use crate::{LONGEST, at, isolated, namespace};
use bypath_link::tun::Offloads;
use bypath_netstack::{TcpListener, TcpStream};
use bypath_stack::config::Config;
use bypath_stack::tcp::{Keepalive, Settings, State};
use nix::sys::socket::{MsgFlags, recv, send, setsockopt, sockopt};
use std::io::{ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::Duration;

fn tap(offloads: Offloads) -> Net {
    Net::open(Wire::Tap(offloads), 1500, None, Config::default()).expect("a link")
}

isolated! {
    fn octets_that_come_with_a_syn_come_once() {
        let net = tap(Offloads::ALL);
        // As a client, and without a cookie.
        assert!(set("tcp_fastopen", "5"), "a setting");
        let listener = TcpListener::bind(net.host(), at("[::]:80")).expect("a listener");
        listener.set_timeout(Some(LONGEST));
        for (own, kernel) in [("10.9.0.2:80", "10.9.0.1:0"), ("[fd09::2]:80", "[fd09::1]:0")] {
            let socket = kernel_socket(at(kernel));
            setsockopt(&socket, sockopt::TcpFastOpenConnect, &true).expect("an option");
            let kernel = kernel_calls(socket, at(own));
            kernel.set_read_timeout(Some(LONGEST)).expect("a time-out");
            // This is what goes with the SYN.
            write_all(&kernel, 1000, 1000);
            let (own, _) = listener.accept().expect("a connection");
            own.set_timeout(Some(LONGEST));
            let mut room = [0; 1000];
            (&own).read_exact(&mut room).expect("octets");
            assert!(room == *piece(0, 1000));
            exchange(&own, &kernel, 100_000);
        }
        assert!(counted("TCPFastOpenActive") + counted("TCPFastOpenActiveFail") > 0, "no SYN had octets");
    }
}

isolated! {
    fn urgent_octets_stay_where_they_are() {
        let net = tap(Offloads::ALL);
        for role in ROLES {
            let (own, kernel) = pair_with(net.host(), role, |_| {}, |_| {});
            let mut sent = 0;
            for len in [1, 100, 3000, 5000] {
                for flags in [MsgFlags::empty(), MsgFlags::MSG_OOB] {
                    assert_eq!(send(kernel.as_raw_fd(), piece(sent, len), flags).expect("sent"), len);
                    sent += len;
                }
            }
            let mut room = vec![0; sent];
            (&own).read_exact(&mut room).expect("octets");
            assert!(room == *piece(0, sent), "{role:?}");
        }
    }
}

isolated! {
    fn urgent_octets_are_kept_apart_for_who_asks() {
        let net = tap(Offloads::ALL);
        for role in ROLES {
            let (own, kernel) = pair_with(net.host(), role, |settings| settings.urgent_inline = false, |_| {});
            let nothing = own.recv_out_of_band().map_err(|e| e.kind());
            assert_eq!(nothing, Err(ErrorKind::InvalidInput), "{role:?}");
            // The last of these comes apart, in either direction.
            assert_eq!(send(kernel.as_raw_fd(), b"abc!", MsgFlags::MSG_OOB).expect("sent"), 4);
            assert_eq!(own.send_out_of_band(b"cba?").expect("sent"), 4);
            write_all(&kernel, 3000, 3000);
            let mut room = [0; 3003];
            (&own).read_exact(&mut room[..3]).expect("octets");
            assert_eq!(&room[..3], b"abc");
            assert_eq!(own.recv_out_of_band().expect("an octet"), Some(b'!'), "{role:?}");
            (&own).read_exact(&mut room[..3000]).expect("octets");
            assert!(room[..3000] == *piece(0, 3000), "{role:?}");
            (&kernel).read_exact(&mut room[..3]).expect("octets");
            assert_eq!(&room[..3], b"cba");
            assert_eq!(recv(kernel.as_raw_fd(), &mut room, MsgFlags::MSG_OOB).expect("an octet"), 1);
            assert_eq!(room[0], b'?', "{role:?}");
        }
    }
}

isolated! {
    fn segments_may_be_tiny() {
        for offloads in [Offloads::ALL, Offloads::NONE] {
            let net = tap(offloads);
            let mut pairs = Vec::new();
            for role in ROLES {
                for mss in [88, 100, 536] {
                    let pair = pair_with(net.host(), role, |_| {}, |socket| {
                        setsockopt(socket, sockopt::TcpMaxSeg, &mss).expect("an option");
                    });
                    pairs.push((format!("{mss} {role:?}"), pair));
                }
            }
            exchange_all(&pairs, 50_000);
        }
    }
}

isolated! {
    fn silent_connections_are_looked_after_by_both_sides() {
        let net = tap(Offloads::ALL);
        // The kernel answers twice a second at most.
        let half = Duration::from_millis(600);
        let often = Keepalive { idle: half, interval: half, probes: 5 };
        let segments = |own: &TcpStream| own.statistics().expect("a connection").segments_in;
        let kernels = ROLES.map(|role| {
            pair_with(net.host(), role, |_| {}, |socket| {
                setsockopt(socket, sockopt::KeepAlive, &true).expect("an option");
                setsockopt(socket, sockopt::TcpKeepIdle, &1).expect("an option");
                setsockopt(socket, sockopt::TcpKeepInterval, &1).expect("an option");
                setsockopt(socket, sockopt::TcpKeepCount, &2).expect("an option");
            })
        });
        let stacks = ROLES.map(|role| pair_with(net.host(), role, |s| s.keepalive = Some(often), |_| {}));
        let before = stacks.each_ref().map(|(own, _)| segments(own));
        let end = std::time::Instant::now() + LONGEST;
        let answered = || stacks.iter().zip(before).all(|((own, _), before)| segments(own) > before + 2);
        while counted("TCPKeepAlive") < kernels.len() as u64 || !answered() {
            assert!(std::time::Instant::now() < end, "no probes");
            std::thread::sleep(Duration::from_millis(20));
        }
        for (own, kernel) in kernels.iter().chain(&stacks) {
            exchange(own, kernel, 1000);
        }
    }
}

isolated! {
    fn a_peer_that_has_gone_is_noticed() {
        let net = tap(Offloads::ALL);
        let often = Keepalive { idle: Duration::from_millis(50), interval: Duration::from_millis(50), probes: 3 };
        let wishes = |s: &mut Settings| s.keepalive = Some(often);
        let (own, kernel) = pair_with(net.host(), ROLES[0], wishes, |_| {});
        // The kernel does not take what is for this address any more.
        let output = Command::new("ip").args(["address", "del", "10.9.0.1/24", "dev", "mine"]).output();
        if !output.is_ok_and(|output| output.status.success()) {
            return namespace::skip("tcp::rarities::a_peer_that_has_gone_is_noticed", "no ip (iproute2)");
        }
        let gone = own.recv(&mut [0]).expect_err("nobody is there");
        assert!(matches!(gone.kind(), ErrorKind::TimedOut | ErrorKind::HostUnreachable), "{gone}");
        assert_eq!(own.statistics().map(|s| s.state).ok(), Some(State::Closed));
        drop(kernel);
    }
}

isolated! {
    fn a_kernel_that_asks_for_accurate_marks_gets_classic_ones() {
        let net = tap(Offloads::ALL);
        // AccECN (RFC 9768): asked for and granted, granted, asked for if that was granted before.
        for kind in ["3", "4", "5"] {
            if !set("tcp_ecn", kind) {
                println!("the kernel has no tcp_ecn={kind}");
                continue;
            }
            for ecn in [true, false] {
                for role in ROLES {
                    let (own, kernel) = pair_with(net.host(), role, |s| s.ecn = ecn, |_| {});
                    let asked = role.ours_calls || kind == "3";
                    let statistics = own.statistics().expect("a connection");
                    assert!(statistics.ecn == (ecn && asked) || kind != "3", "{kind} {role:?} {statistics:?}");
                    exchange(&own, &kernel, 50_000);
                }
            }
        }
    }
}

isolated! {
    fn routers_that_mark_are_heard_and_nothing_is_sent_again() {
        const NAME: &str = "tcp::rarities::routers_that_mark_are_heard_and_nothing_is_sent_again";
        let mark = |name: &str| {
            let args = ["qdisc", "add", "dev", name, "root", "fq_codel", "ce_threshold", "1us"];
            Command::new("tc").args(args).output().is_ok_and(|output| output.status.success())
        };
        let net = Net::open(Wire::Veth { offload: true }, 1500, None, Config::default()).expect("a link");
        assert!(set("tcp_ecn", "1"), "ECN");
        if !mark("right") || !net.at_home(|| mark("left")) {
            return namespace::skip(NAME, "no fq_codel (tc of iproute2, sch_fq_codel)");
        }
        for role in ROLES {
            let (own, kernel) = pair_with(net.host(), role, |s| s.ecn = true, |_| {});
            exchange(&own, &kernel, 500_000);
            let statistics = own.statistics().expect("a connection");
            println!("{role:?}: {} octets again, cwnd {}, ssthresh {}", statistics.octets_again, statistics.cwnd, statistics.ssthresh);
            assert!(statistics.ecn && statistics.ssthresh < u32::MAX, "the kernel told nothing of marks: {statistics:?}");
        }
        println!("{} of {} segments", counted("TCPDeliveredCE"), counted("TCPDelivered"));
        assert!(counted("TCPDeliveredCE") > 0, "the stack told nothing of marks");
    }
}
