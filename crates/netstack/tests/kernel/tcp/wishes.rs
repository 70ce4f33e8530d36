//! What the kernel, or the stack, is set to: options, congestion notification, cookies, buffers.

use super::{Net, ROLES, Role, Wire, counted, exchange_all, pair_with, patient, piece, read_all, set};
use crate::isolated;
use bypath_link::fault::Faults;
use bypath_link::tun::Offloads;
use bypath_netstack::TcpStream;
use bypath_stack::config::Config;
use bypath_stack::tcp::Settings;
use nix::sys::socket::{setsockopt, sockopt};
use std::net::{Shutdown, TcpStream as KernelStream};

const LOSSY: Faults = Faults { loss: 0.01, reordering: 0.01, overtaken_within: 2_000_000, ..Faults::NONE };

/// SACK, timestamps, larger windows, ECN.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Wishes([bool; 4]);

impl Wishes {
    fn all() -> impl Iterator<Item = Wishes> {
        (0..16).map(|bits| Wishes([0, 1, 2, 3].map(|bit| bits & 1 << bit != 0)))
    }

    fn of_the_kernel(self) {
        let names = ["tcp_sack", "tcp_timestamps", "tcp_window_scaling", "tcp_ecn"];
        for (name, on) in names.into_iter().zip(self.0) {
            assert!(set(name, if on { "1" } else { "0" }), "{name}");
        }
    }

    fn of_the_stack(self, settings: &mut Settings) {
        [settings.sack, settings.timestamps, settings.window_scale, settings.ecn] = self.0;
    }

    /// What was agreed on is what both wanted. A kernel whose first SYN was lost does not ask for ECN again; it had sent again
    /// `before` as many SYNs and answers to SYNs.
    #[track_caller]
    fn agreed(self, own: &TcpStream, before: u64) {
        let s = own.statistics().expect("a connection");
        let [sack, timestamps, scale, ecn] = self.0;
        assert_eq!((s.sack, s.timestamps, s.shifts.0 > 0), (sack, timestamps, scale), "{s:?}");
        assert!(s.ecn == ecn || ecn && counted("TCPSynRetrans") > before, "{s:?}");
    }
}

type Named = (String, (TcpStream, KernelStream));

fn named(net: &Net, name: String, role: Role, wishes: impl FnOnce(&mut Settings)) -> Named {
    let pair = pair_with(net.host(), role, wishes, |_| {});
    patient(&pair);
    (name, pair)
}

isolated! {
    fn either_side_may_do_without_any_option() {
        let net = Net::open(Wire::Tap(Offloads::NONE), 1500, Some([LOSSY; 2]), Config::default()).expect("a link");
        let mut pairs = Vec::new();
        let roles = [ROLES[0], ROLES[3]];
        for wishes in Wishes::all() {
            wishes.of_the_kernel();
            for role in roles {
                let before = counted("TCPSynRetrans");
                let pair = named(&net, format!("kernel {wishes:?} {role:?}"), role, |s| s.ecn = true);
                wishes.agreed(&pair.1.0, before);
                pairs.push(pair);
            }
        }
        Wishes([true; 4]).of_the_kernel();
        for wishes in Wishes::all() {
            for role in roles {
                let before = counted("TCPSynRetrans");
                let pair = named(&net, format!("stack {wishes:?} {role:?}"), role, |s| wishes.of_the_stack(s));
                wishes.agreed(&pair.1.0, before);
                pairs.push(pair);
            }
        }
        exchange_all(&pairs, 40_000);
    }
}

isolated! {
    fn a_kernel_that_answers_with_cookies_is_a_peer_as_any_other() {
        let net = Net::open(Wire::Tap(Offloads::ALL), 1500, None, Config::default()).expect("a link");
        assert!(set("tcp_syncookies", "2"), "cookies");
        let mut pairs = Vec::new();
        for wishes in Wishes::all() {
            wishes.of_the_kernel();
            for v6 in [false, true] {
                let role = Role { v6, ours_calls: true };
                let (name, pair) = named(&net, format!("{wishes:?} v6 {v6}"), role, |s| s.ecn = true);
                let s = pair.0.statistics().expect("a connection");
                let [sack, timestamps, scale, ecn] = wishes.0;
                // A cookie has room for options in the timestamp only.
                let expected = (sack && timestamps, timestamps, scale && timestamps, ecn && timestamps);
                assert_eq!((s.sack, s.timestamps, s.shifts.0 > 0, s.ecn), expected, "{name}");
                pairs.push((name, pair));
            }
        }
        assert!(counted("SyncookiesRecv") >= 32);
        exchange_all(&pairs, 100_000);
    }
}

isolated! {
    fn small_buffers_make_slow_connections_and_no_others() {
        let net = Net::open(Wire::Tap(Offloads::NONE), 1500, None, Config::default()).expect("a link");
        for (send, receive) in [(4608, 2304), (20_000, 5000), (4608, 200_000), (200_000, 2304)] {
            let mut pairs = Vec::new();
            for role in ROLES {
                let pair = pair_with(net.host(), role, |_| {}, |socket| {
                    setsockopt(socket, sockopt::SndBuf, &send).expect("an option");
                    setsockopt(socket, sockopt::RcvBuf, &receive).expect("an option");
                });
                pairs.push((format!("kernel {send} {receive} {role:?}"), pair));
                let own = |s: &mut Settings| (s.send_octets, s.receive_octets) = (send, receive);
                pairs.push(named(&net, format!("stack {send} {receive} {role:?}"), role, own));
            }
            exchange_all(&pairs, 60_000);
        }
    }
}

isolated! {
    fn a_reader_that_pauses_stops_the_writer_whoever_it_is() {
        let net = Net::open(Wire::Tap(Offloads::ALL), 1500, None, Config::default()).expect("a link");
        // Both write until nothing goes any more, and read only then.
        let filled = |stream: &mut dyn std::io::Write| {
            let mut written = 0;
            while let Ok(n) = stream.write(piece(written, 50_000)) {
                written += n;
            }
            written
        };
        for role in ROLES {
            let ends = pair_with(net.host(), role, |s| s.receive_octets = 100_000, |_| {});
            let (own, kernel) = (&ends.0, &ends.1);
            let short = std::time::Duration::from_millis(100);
            own.set_timeout(Some(short));
            kernel.set_write_timeout(Some(short)).expect("a time-out");
            let (by_own, by_kernel) = std::thread::scope(|scope| {
                let by_kernel = scope.spawn(move || filled(&mut &*kernel));
                (filled(&mut &*own), by_kernel.join().expect("the kernel's"))
            });
            assert!(by_own >= 100_000 && by_kernel >= 100_000, "{by_own} {by_kernel}");
            patient(&ends);
            own.shutdown(Shutdown::Write).expect("a connection");
            kernel.shutdown(Shutdown::Write).expect("a connection");
            read_all(own, by_kernel);
            read_all(kernel, by_own);
        }
    }
}
