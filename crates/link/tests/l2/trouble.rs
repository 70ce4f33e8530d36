//! Interfaces that are down, vanish, or never were; queues that are full; rights that are missing; time that is over.

use crate::common::{LONG, MODES, both, builder, exchange, nothing_arrives, payload, settled, until, veth};
use bypath_link::l2::{Error, Mode, Socket, Wait};
use bypath_link::packet::Receive;
use bypath_sys::{clock, netns};
use std::time::{Duration, Instant};

isolated! {
    fn an_unknown_interface_is_told_with_those_there_are() {
        veth();
        let open = |name: &str| Socket::builder(name).open().map(|_| ()).unwrap_err();
        let error = open("eth9");
        assert!(matches!(&error, Error::Unknown { known, .. } if known.len() == 3), "{error:?}");
        assert_eq!(error.to_string(), "eth9: no such interface; there are: lo, right, left");
        let error = open("an-interface-name-of-many-octets");
        assert!(matches!(error, Error::NameTooLong { .. }) && error.to_string().contains("15 octets"), "{error}");
        assert!(matches!(open(""), Error::Unknown { .. }));
    }
}

isolated! {
    fn an_interface_that_is_down_is_told_at_once_unless_it_may_be() {
        veth();
        netns::set_up("left", false).unwrap();
        for (what, mode) in MODES {
            let error = builder("left", mode).open().map(|_| ()).unwrap_err();
            assert_eq!(error, Error::Down { interface: "left".into() });
            assert!(error.to_string().contains("ip link set dev left up"), "{error}");
            let mut left = builder("left", mode).may_be_down().open().unwrap();
            let mut right = builder("right", mode).open().unwrap();
            assert_eq!(left.send(right.mac(), &[1; 60]), Err(Error::Down { interface: "left".into() }), "{what}");
            netns::set_up("left", true).unwrap();
            settled();
            exchange(&mut left, &mut right, what, [100, 200]);
            exchange(&mut right, &mut left, what, [100, 200]);
            netns::set_up("left", false).unwrap();
        }
    }
}

/// Receives in another thread, and waits until that thread waits.
fn blocked(
    mut socket: Socket,
    frames: usize,
) -> std::thread::JoinHandle<(Socket, Vec<Result<usize, Error>>)> {
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        tell.send(bypath_sys::thread::tid()).unwrap();
        let results = (0..frames).map(|_| socket.receive(&mut [0; 1500]).map(|r| r.whole)).collect();
        (socket, results)
    });
    let tid = told.recv().unwrap();
    until("a thread that waits", || {
        let state = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
        state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
    });
    thread
}

isolated! {
    fn an_interface_that_goes_down_ends_the_wait_and_works_again_when_it_is_up() {
        veth();
        for (what, mode) in MODES {
            let (mut left, right) = both(mode, |b| b);
            let waiting = blocked(right, 1);
            netns::set_up("right", false).unwrap();
            let (mut right, results) = waiting.join().unwrap();
            assert_eq!(results, [Err(Error::Down { interface: "right".into() })], "{what}");
            assert_eq!(right.send(left.mac(), &[1; 60]), Err(Error::Down { interface: "right".into() }), "{what}");
            netns::set_up("right", true).unwrap();
            settled();
            exchange(&mut left, &mut right, what, [300, 301]);
            exchange(&mut right, &mut left, what, [300, 301]);
        }
    }
}

isolated! {
    fn an_interface_that_is_removed_ends_the_wait_for_good() {
        for (what, mode) in MODES {
            veth();
            let (mut left, right) = both(mode, |b| b);
            let waiting = blocked(right, 2);
            netns::remove("right").unwrap();
            let (mut right, results) = waiting.join().unwrap();
            let gone = |interface: &str| Error::Gone { interface: interface.into() };
            // It goes down before it goes.
            let down = Err(Error::Down { interface: "right".into() });
            assert!(results[0] == down || results[0] == Err(gone("right")), "{what}: {results:?}");
            assert_eq!(results[1], Err(gone("right")), "{what}");
            assert_eq!(right.send(left.mac(), &[1; 60]), Err(gone("right")), "{what}");
            assert_eq!(right.receive(&mut [0; 60]).map(|_| ()), Err(gone("right")), "{what}");
            let ended = (0..3).find_map(|_| left.send(right.mac(), &[1; 60]).err().filter(|e| *e == gone("left")));
            assert_eq!(ended, Some(gone("left")), "{what}");
            assert!(gone("left").to_string().contains("open it anew"));
        }
    }
}

isolated! {
    fn an_interface_that_is_removed_while_it_is_down_is_noticed_though_the_kernel_does_not_tell() {
        for (what, mode) in MODES {
            veth();
            let (_left, right) = both(mode, |b| b);
            let waiting = blocked(right, 2);
            netns::set_up("right", false).unwrap();
            until("the thread that saw it go down", || {
                // It waits again: there is nothing else to be seen from outside.
                bypath_link::Interface::named("right").is_ok_and(|i| !i.up)
            });
            netns::remove("right").unwrap();
            let (_, results) = waiting.join().unwrap();
            assert_eq!(results[1], Err(Error::Gone { interface: "right".into() }), "{what}: {results:?}");
        }
    }
}

isolated! {
    fn what_does_not_fit_into_queue_or_ring_is_counted() {
        veth();
        const COUNT: u64 = 3000;
        for (what, mode) in MODES {
            let mut left = builder("left", Mode::PLAIN).open().unwrap();
            // A ring of 4 blocks, or of the fewest slots: less than the frames that follow.
            let mut right = builder("right", mode).receive_queue(100_000).receive_ring(1).open().unwrap();
            let to = right.mac();
            for n in 0..COUNT {
                left.send(to, &payload(n as u32, 1400)).unwrap();
            }
            let (mut next, mut seen) = (0, 0);
            right.set_wait(Wait::Never);
            // The last block of a ring is given over by time.
            until(what, || {
                let _ = right.receive_batch(10_000, |f| {
                    let n = u32::from_be_bytes(f.payload[..4].try_into().unwrap());
                    assert!(n >= next, "{what}: frame {n} after {next}");
                    assert_eq!(f.payload, payload(n, 1400), "{what}");
                    next = n + 1;
                    seen += 1;
                });
                let s = right.statistics();
                s.received + s.dropped >= COUNT
            });
            let s = right.statistics();
            assert!(s.dropped > 0 && s.received > 0, "{what}: {s:?}");
            assert_eq!((s.received + s.dropped, s.received), (COUNT, seen), "{what}: {s:?}");
            assert_eq!((s.cut, s.received_octets), (0, seen * 1414));
            // It goes on as if nothing had been.
            right.set_wait(Wait::Sleep);
            exchange(&mut left, &mut right, what, [100, 1500]);
        }
    }
}

isolated! {
    fn sending_more_than_the_receiver_takes_ends_with_an_error_or_a_drop_and_never_with_a_broken_frame() {
        veth();
        for (what, mode) in MODES {
            let (left, right) = both(mode, |b| b.nonblocking());
            let (mut left, mut right) = (left, right);
            let to = right.mac();
            let mut taken = 0u32;
            for _ in 0..2000 {
                match left.send(to, &payload(taken, 1000)) {
                    Ok(()) => taken += 1,
                    // veth keeps a send ring's frame until it was received.
                    Err(Error::WouldBlock) => break,
                    Err(e) => panic!("{what}: {e}"),
                }
            }
            assert!(taken > 0);
            let mut next = 0;
            until(what, || {
                let _ = right.receive_batch(10_000, |f| {
                    let n = u32::from_be_bytes(f.payload[..4].try_into().unwrap());
                    assert!(n >= next && f.payload == payload(n, 1000), "{what}: frame {n} after {next}");
                    next = n + 1;
                });
                let s = right.statistics();
                s.received + s.dropped >= u64::from(taken)
            });
            let s = left.statistics();
            assert_eq!(s.sent - s.refused, u64::from(taken), "{what}: {s:?}");
        }
    }
}

isolated! {
    fn without_the_capability_the_error_says_how_to_get_it() {
        netns::set_up("lo", true).unwrap();
        // Capabilities are a thread's own.
        let error = std::thread::spawn(|| {
            let mut sets = rustix::thread::capabilities(None).unwrap();
            sets.effective -= rustix::thread::CapabilitySet::NET_RAW;
            rustix::thread::set_capabilities(None, sets).unwrap();
            Socket::builder("lo").open().map(|_| ()).unwrap_err()
        });
        let error = error.join().unwrap();
        assert_eq!(error, Error::NotAllowed);
        for way in ["CAP_NET_RAW", "setcap", "unshare"] {
            assert!(error.to_string().contains(way), "{error}");
        }
    }
}

isolated! {
    fn time_outs_are_kept_and_shorter_than_the_kernels_own() {
        veth();
        let asked = Duration::from_micros(300);
        let elapsed = |f: &mut dyn FnMut()| {
            let before = clock::monotonic_ns();
            f();
            Duration::from_nanos(clock::monotonic_ns() - before)
        };
        // A time-out of the socket itself is rounded up to the kernel's tick.
        netns::set_up("lo", true).unwrap();
        let plain = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        plain.set_read_timeout(Some(asked)).unwrap();
        let kernels = (0..10).map(|_| elapsed(&mut || assert!(plain.recv(&mut [0]).is_err())));
        let kernels = kernels.min().unwrap();
        for (what, mode) in MODES {
            for wait in [Wait::Sleep, Wait::Spin] {
                let mut right = builder("right", mode).timeout(asked).open().unwrap();
                right.set_wait(wait);
                let ours: Vec<_> = (0..20)
                    .map(|_| {
                        elapsed(&mut || {
                            let outcome = right.receive(&mut [0; 60]).map(|_| ());
                            assert_eq!(outcome, Err(Error::TimedOut { waited: asked }));
                        })
                    })
                    .collect();
                assert!(ours.iter().all(|&t| t >= asked), "{what}: {ours:?}");
                assert!(*ours.iter().min().unwrap() < kernels, "{what}: {ours:?} against {kernels:?}");
            }
            let mut right = builder("right", mode).nonblocking().open().unwrap();
            assert_eq!(right.receive(&mut [0; 60]).map(|_| ()), Err(Error::WouldBlock));
        }
    }
}

isolated! {
    fn a_lone_frame_in_a_ring_of_blocks_is_given_over_by_time() {
        veth();
        let (mut left, mut right) = both(Mode::RING, |b| b);
        assert_eq!(right.obtained().mode.receive, Receive::Ring);
        for _ in 0..20 {
            left.send(right.mac(), &[1; 60]).unwrap();
            right.set_timeout(Some(LONG));
            assert_eq!(right.receive(&mut [0; 60]).unwrap().whole, 60);
        }
    }
}

/// Lets `left` send so many bits a second, with so many octets waiting. False, and said so: this cannot be done here.
fn slow(test: &str, rate: &str, waiting: &str) -> bool {
    let parts =
        ["qdisc", "replace", "dev", "left", "root", "tbf", "rate", rate, "burst", "5000", "limit", waiting];
    let made = std::process::Command::new("tc").args(parts).output();
    let there = made.is_ok_and(|o| o.status.success());
    if !there {
        let reason = "no queueing discipline tbf (the kernel's sch_tbf, Debian package iproute2)";
        crate::common::skip(test, reason);
    }
    there
}

/// Frames that the kernel dropped between `left` and `right`.
fn lost_on_the_way() -> u64 {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").expect("the interfaces' counters");
    let line = table.lines().find_map(|l| l.trim().strip_prefix("right:")).expect("right");
    // Received: octets, frames, errors, drops (proc_net(5)).
    line.split_whitespace().nth(3).and_then(|n| n.parse().ok()).expect("a number")
}

/// Numbered frames of 1000 octets that arrive in any order. The kernel keeps theirs up to the device only: a delayed frame
/// is sent by whichever processor's timer is over, and each processor has a queue of its own to the other interface.
#[derive(Default)]
struct Arrivals {
    seen: Vec<bool>,
    count: u32,
}

impl Arrivals {
    /// Notes a frame: one of the first `sent`, whole, and not there before.
    fn note(&mut self, what: &str, frame: &[u8], sent: u32) {
        let number = u32::from_be_bytes(frame[..4].try_into().unwrap());
        assert!(number < sent && frame == payload(number, 1000), "{what}: frame {number}");
        self.seen.resize(sent as usize, false);
        assert!(!std::mem::replace(&mut self.seen[number as usize], true), "{what}: {number} came twice");
        self.count += 1;
    }
}

/// The order in which `left` took the frames up to this one.
fn order_at_the_device(seen_by: &mut Socket, what: &str, count: u32) -> Vec<u32> {
    let mut order = Vec::new();
    let watched = |watching: &mut Socket, order: &[u32]| order.len() as u64 + watching.statistics().dropped;
    while watched(seen_by, &order) < u64::from(count) {
        let got = seen_by
            .receive_batch(1000, |f| order.push(u32::from_be_bytes(f.payload[..4].try_into().unwrap())));
        got.unwrap_or_else(|e| panic!("{what}: {e}, looking on, at {}", order.len()));
    }
    order
}

isolated! {
    fn a_device_that_is_slower_than_its_sender_loses_nothing_and_keeps_the_order() {
        veth();
        if !slow("trouble::a_device_that_is_slower_than_its_sender_loses_nothing_and_keeps_the_order", "400mbit", "64mb") {
            return;
        }
        const COUNT: u32 = 3000;
        for (what, mode) in MODES {
            for batch in [1, 100] {
                let (mut left, mut right) = both(mode, |b| b.receive_queue(64 << 20).receive_ring(32 << 20));
                let watching = builder("left", Mode::RING).outgoing().receive_ring(32 << 20);
                let mut watching = watching.open().expect("a socket that looks on");
                right.set_timeout(Some(Duration::from_millis(50)));
                let (to, lost_before) = (right.mac(), lost_on_the_way());
                // The send queue of a socket holds a tenth of these frames: it has to wait again and again.
                let sender = std::thread::spawn(move || {
                    let all: Vec<_> = (0..COUNT).map(|n| payload(n, 1000)).collect();
                    for part in all.chunks(batch) {
                        assert_eq!(left.send_batch(to, part.iter().map(Vec::as_slice)), Ok(part.len()));
                    }
                    left
                });
                let mut arrivals = Arrivals::default();
                let mut quiet_since = Instant::now();
                while arrivals.count < COUNT && quiet_since.elapsed() < Duration::from_secs(10) {
                    match right.receive_batch(1000, |f| arrivals.note(what, f.payload, COUNT)) {
                        Ok(_) => quiet_since = Instant::now(),
                        Err(Error::TimedOut { .. }) => {
                            // The last ones may be those that are missing.
                            let over = sender.is_finished() && quiet_since.elapsed() > Duration::from_secs(1);
                            if over && lost_on_the_way() + right.statistics().dropped > lost_before {
                                break;
                            }
                        }
                        Err(e) => panic!("{what}: {e} at {}", arrivals.count),
                    }
                }
                let s = sender.join().unwrap().statistics();
                assert_eq!((s.sent, s.refused), (u64::from(COUNT), 0), "{what}");
                // The kernel between the two interfaces has a queue of its own, and drops when it gets no processor.
                let missing = COUNT - arrivals.count;
                let lost = lost_on_the_way() - lost_before + right.statistics().dropped;
                assert!(u64::from(missing) <= lost, "{what}: {missing} missing, {lost} accounted for");
                assert!(missing < COUNT / 2, "{what}: {missing} missing");
                let order = order_at_the_device(&mut watching, what, COUNT);
                assert!(order.is_sorted() && order.len() > COUNT as usize / 2, "{what}: {order:?}");
            }
        }
    }
}

isolated! {
    fn without_room_a_socket_that_does_not_wait_says_so_and_what_it_took_arrives() {
        veth();
        if !slow("trouble::without_room_a_socket_that_does_not_wait_says_so_and_what_it_took_arrives", "50mbit", "64mb") {
            return;
        }
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b.receive_queue(64 << 20).receive_ring(32 << 20));
            let to = right.mac();
            left.set_wait(Wait::Never);
            let mut taken = 0;
            let refused = loop {
                match left.send(to, &payload(taken, 1000)) {
                    Ok(()) => taken += 1,
                    Err(e) => break e,
                }
            };
            assert_eq!(refused, Error::WouldBlock, "{what}");
            // The frame that was refused is not sent later; one in a batch that is cut short is not either.
            let all: Vec<_> = (taken..taken + 2000).map(|n| payload(n, 1000)).collect();
            left.set_wait(Wait::Sleep);
            left.set_timeout(Some(Duration::from_millis(5)));
            let cut_short = match left.send_batch(to, all.iter().map(Vec::as_slice)) {
                Ok(count) => count as u32,
                Err(e) => {
                    assert!(matches!(e, Error::TimedOut { .. }), "{what}: {e}");
                    0
                }
            };
            assert!(cut_short < 2000, "{what}");
            left.set_timeout(Some(LONG));
            // One more, which has the next number.
            let sent = taken + cut_short + 1;
            left.send(to, &payload(sent - 1, 1000)).unwrap_or_else(|e| panic!("{what}: {e}"));
            let mut arrivals = Arrivals::default();
            while arrivals.count < sent {
                let got = right.receive_batch(1000, |f| arrivals.note(what, f.payload, sent));
                got.unwrap_or_else(|e| panic!("{what}: {e} at {}", arrivals.count));
            }
            nothing_arrives(&mut right);
        }
    }
}

isolated! {
    fn frames_that_the_devices_queue_throws_away_are_told_and_counted() {
        veth();
        if !slow("trouble::frames_that_the_devices_queue_throws_away_are_told_and_counted", "20mbit", "20000") {
            return;
        }
        for (what, mode) in MODES {
            if mode.send == bypath_link::packet::Send::Ring {
                // The kernel offers the frame again: it is late, not lost.
                continue;
            }
            let (mut left, mut right) = both(mode, |b| b);
            let to = right.mac();
            let mut refused = 0;
            for n in 0..200 {
                match left.send(to, &payload(n, 1000)) {
                    Ok(()) => {}
                    Err(e) => {
                        assert_eq!(e, Error::QueueFull { interface: "left".into(), payload: 1000 }, "{what}");
                        assert!(e.to_string().contains("txqueuelen"), "{e}");
                        refused += 1;
                    }
                }
            }
            assert!(refused > 0, "{what}");
            assert_eq!((left.statistics().sent, left.statistics().refused), (200, refused));
            let mut arrivals = Arrivals::default();
            for _ in refused..200 {
                let mut buffer = [0; 1000];
                right.receive(&mut buffer).unwrap_or_else(|e| panic!("{what}: {e} {:?}", right.statistics()));
                arrivals.note(what, &buffer, 200);
            }
        }
    }
}

isolated! {
    fn a_frame_that_the_other_end_does_not_carry_is_told_with_its_length_and_both_causes() {
        veth();
        netns::set_mtu("right", 600).unwrap();
        for (what, mode) in MODES {
            // A send ring's frame is offered again for a while, as a full queue would have sent one by then.
            let (mut left, mut right) = both(mode, |b| b);
            let to = right.mac();
            let error = left.send(to, &payload(1, 1000)).unwrap_err();
            assert_eq!(error, Error::QueueFull { interface: "left".into(), payload: 1000 }, "{what}");
            let told = error.to_string();
            assert!(told.contains("does not tell why") && told.contains("same MTU"), "{told}");
            assert_eq!((left.statistics().sent, left.statistics().refused), (1, 1), "{what}");
            // In a batch, those before it go.
            let batch: [&[u8]; 3] = [&[1; 600], &[2; 1000], &[3; 600]];
            assert_eq!(left.send_batch(to, batch), Ok(1), "{what}");
            let mut buffer = [0; 600];
            assert_eq!(right.receive(&mut buffer).map(|r| (r.whole, buffer[0])), Ok((600, 1)), "{what}");
            // It is not in the way of those that follow.
            exchange(&mut left, &mut right, what, [100, 600]);
        }
    }
}
