//! Every way of moving frames carries every octet, whatever the length.

use crate::common::{LONG, MODES, both, builder, exchange, payload, until, veth, veth_with_mtu};
use bypath_link::Timestamps;
use bypath_link::l2::{Error, MacAddr, Mode, Socket, Wait};
use bypath_link::packet::{Receive, Send};
use bypath_sys::netns;

isolated! {
    fn every_length_arrives_both_ways_on_veth() {
        veth();
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b.padding(false));
            exchange(&mut left, &mut right, what, 1..=1500);
            exchange(&mut right, &mut left, what, (1..=1500).rev());
        }
    }
}

isolated! {
    fn every_mode_reads_what_every_other_writes() {
        veth();
        for (a, one) in MODES {
            for (b, other) in MODES {
                let mut left = builder("left", one).vlan(10, 7).open().unwrap();
                let mut right = builder("right", other).vlan(10, 7).open().unwrap();
                exchange(&mut left, &mut right, &format!("{a} to {b}"), (46..1500).step_by(97));
            }
        }
    }
}

isolated! {
    fn every_length_arrives_on_loopback() {
        netns::set_up("lo", true).unwrap();
        for (what, mode) in MODES {
            let mut from = builder("lo", mode).padding(false).send_only().open().unwrap();
            let mut to = builder("lo", mode).padding(false).open().unwrap();
            exchange(&mut from, &mut to, what, (1..=1500).chain([4000, 9000, 30_000, 65_535, 65_536]));
            assert!(matches!(from.send(MacAddr::UNSPECIFIED, &vec![0; 65_537]), Err(Error::TooLong { mtu: 65_536, .. })));
        }
    }
}

isolated! {
    fn a_send_ring_on_loopback_is_only_made_when_asked_for() {
        netns::set_up("lo", true).unwrap();
        let socket = builder("lo", Mode::RING).open().unwrap();
        assert_eq!(socket.obtained().mode, Mode { receive: Receive::Ring, send: Send::Batch });
        assert!(socket.obtained().notes.iter().any(|n| n.contains("loopback")), "{:?}", socket.obtained());
        let mut from = builder("lo", Mode::RING).ring_on_loopback().send_only().open().unwrap();
        let mut to = builder("lo", Mode::RING).ring_on_loopback().open().unwrap();
        assert_eq!(to.obtained().mode, Mode::RING);
        exchange(&mut from, &mut to, "rings on loopback", (46..65_000).step_by(517));
    }
}

isolated! {
    fn jumbo_frames_pass_up_to_the_mtu_and_not_beyond() {
        veth_with_mtu(9000);
        for (what, mode) in MODES {
            for tagged in [false, true] {
                let (mut left, mut right) = both(mode, |b| if tagged { b.vlan(10, 7) } else { b });
                exchange(&mut left, &mut right, what, [46, 1500, 1501, 4096, 8000, 8999, 9000]);
                let to = right.mac();
                let expected = Error::TooLong { interface: "left".into(), payload: 9001, mtu: 9000 };
                assert_eq!(left.send(to, &[7; 9001]), Err(expected.clone()), "{what}");
                assert!(expected.to_string().contains("ip link set dev left mtu 9001"), "{expected}");
                exchange(&mut left, &mut right, what, [9000]);
                assert_eq!(left.statistics().refused, 1);
            }
        }
    }
}

isolated! {
    fn an_mtu_that_changes_while_a_socket_is_open_is_noticed() {
        veth_with_mtu(2000);
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b);
            let to = right.mac();
            exchange(&mut left, &mut right, what, [2000]);
            netns::set_mtu("left", 1000).unwrap();
            let refused = left.send(to, &[1; 1500]);
            assert_eq!(refused, Err(Error::TooLong { interface: "left".into(), payload: 1500, mtu: 1000 }), "{what}");
            exchange(&mut left, &mut right, what, [1000, 999]);
            // In the middle of a batch: those before it go, those behind it are not sent.
            netns::set_mtu("left", 900).unwrap();
            let batch: [&[u8]; 3] = [&[1; 900], &[2; 1000], &[3; 900]];
            assert_eq!(left.send_batch(to, batch), Ok(1), "{what}");
            let mut buffer = [0; 2000];
            assert_eq!(right.receive(&mut buffer).map(|r| (r.whole, buffer[0])), Ok((900, 1)), "{what}");
            for name in ["left", "right"] {
                netns::set_mtu(name, 3000).unwrap();
            }
            // Up to what there is room for, a raised MTU is used.
            let grown = left.send(to, &[1; 2500]);
            assert_eq!(grown, Err(Error::Grown { interface: "left".into(), payload: 2500, room: 2000 }), "{what}");
            exchange(&mut left, &mut right, what, [2000]);
            for name in ["left", "right"] {
                netns::set_mtu(name, 2000).unwrap();
            }
        }
    }
}

isolated! {
    fn a_frame_longer_than_the_receiver_has_room_for_is_counted_and_never_given_out_in_part() {
        veth_with_mtu(1000);
        for (what, mode) in MODES {
            let mut right = builder("right", mode).open().unwrap();
            for name in ["left", "right"] {
                netns::set_mtu(name, 9000).unwrap();
            }
            let mut left = builder("left", Mode::PLAIN).open().unwrap();
            let to = right.mac();
            for n in 0..3u8 {
                left.send(to, &vec![n; 8000]).unwrap();
                left.send(to, &[n; 100]).unwrap();
            }
            let mut got = Vec::new();
            while got.iter().filter(|&&(_, len)| len == 100).count() < 3 {
                right.receive_batch(9, |f| got.push((f.payload[0], f.payload.len()))).unwrap();
            }
            let long = got.iter().filter(|&&(_, len)| len == 8000).count() as u64;
            assert!(got.iter().all(|&(_, len)| len == 100 || len == 8000), "{what}: {got:?}");
            assert_eq!(right.statistics().cut + long, 3, "{what}");
            for name in ["left", "right"] {
                netns::set_mtu(name, 1000).unwrap();
            }
        }
    }
}

isolated! {
    fn short_payloads_are_padded_with_zeroes_to_46_octets_with_and_without_a_tag() {
        veth();
        for (what, mode) in MODES {
            for tagged in [false, true] {
                let (mut left, mut right) = both(mode, |b| if tagged { b.vlan(10, 7) } else { b });
                let mut buffer = [0xee; 100];
                for len in [0, 1, 45, 46, 47] {
                    left.send(right.mac(), &[9; 47][..len]).unwrap();
                    let got = right.receive(&mut buffer).unwrap();
                    assert_eq!((got.len, got.whole), (len.max(46), len.max(46)), "{what}");
                    assert!(buffer[..len].iter().all(|&b| b == 9) && buffer[len..got.len].iter().all(|&b| b == 0));
                }
            }
        }
    }
}

isolated! {
    fn a_buffer_that_is_too_short_gets_the_beginning_and_the_whole_length() {
        veth();
        let (mut left, mut right) = both(Mode::PLAIN, |b| b);
        left.send(right.mac(), b"0123456789").unwrap();
        let mut buffer = [0; 4];
        let got = right.receive(&mut buffer).unwrap();
        assert_eq!((got.len, got.whole, &buffer), (4, 46, b"0123"));
    }
}

isolated! {
    fn every_frame_has_a_time_between_its_sending_and_its_receipt() {
        veth();
        let wall = || std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b);
            assert_eq!(right.obtained().timestamps, Timestamps::Software);
            let mut last = 0;
            for n in 0..50u8 {
                let before = wall();
                left.send(right.mac(), &[n; 60]).unwrap();
                let stamp = right.receive(&mut [0; 60]).unwrap().timestamp.expect("a time");
                // A clock that is set while the test runs would be no fault of ours; it is slewed, not set.
                assert!(stamp.ns >= before.saturating_sub(1_000_000) && stamp.ns <= wall() + 1_000_000, "{what}");
                assert!(stamp.ns >= last, "{what}");
                last = stamp.ns;
            }
            let (mut left, mut right) = both(mode, |b| b.timestamps(Timestamps::None));
            left.send(right.mac(), &[1; 60]).unwrap();
            assert_eq!(right.receive(&mut [0; 60]).unwrap().timestamp, None, "{what}");
        }
    }
}

isolated! {
    fn what_the_device_cannot_do_is_said() {
        veth();
        let asked = builder("left", Mode::PLAIN).timestamps(Timestamps::Hardware).open().unwrap();
        let got = asked.obtained();
        assert_eq!((got.timestamps_asked, got.timestamps), (Timestamps::Hardware, Timestamps::Software));
        assert!(got.notes.iter().any(|n| n.contains("device takes none")), "{got:?}");
        let asked = builder("left", Mode::RING).send_time(bypath_link::l2::Clock::Monotonic).open().unwrap();
        let got = asked.obtained();
        assert!(!got.send_time && got.notes.iter().any(|n| n.contains("noqueue")), "{got:?}");
        assert_eq!(got.mode.send, Send::Batch, "a ring's frames carry no time");
        // More memory than there is.
        let asked = builder("left", Mode::RING).receive_ring(1 << 45).open().unwrap();
        let got = asked.obtained();
        assert_eq!(got.mode, Mode { receive: Receive::Batch, send: Send::Batch });
        assert!(got.notes.iter().any(|n| n.starts_with("no ring")), "{got:?}");
    }
}

isolated! {
    fn a_spinning_and_a_sleeping_socket_answer_each_other() {
        veth();
        for (what, mode) in MODES {
            let (mut left, right) = both(mode, |b| b.spin());
            let mut right = right;
            right.set_wait(bypath_link::l2::Wait::Sleep);
            let (a, b) = (left.mac(), right.mac());
            let echo = std::thread::spawn(move || {
                let mut buffer = [0; 1500];
                for _ in 0..20 {
                    let got = right.receive(&mut buffer).unwrap();
                    right.send(a, &buffer[..got.len]).unwrap();
                }
            });
            let mut buffer = [0; 1500];
            for n in 0..20u8 {
                left.send(b, &[n; 500]).unwrap();
                let got = left.receive(&mut buffer).unwrap();
                assert!(got.len == 500 && buffer[..500] == [n; 500], "{what}");
            }
            echo.join().unwrap();
        }
    }
}

isolated! {
    fn more_frames_than_any_ring_holds_arrive_in_order() {
        veth();
        for (what, mode) in MODES {
            let (mut left, right) = both(mode, |b| b.receive_queue(64 << 20));
            let to = right.mac();
            let reader = std::thread::spawn(move || {
                let mut right: Socket = right;
                let mut next = 0u32;
                while next < 20_000 {
                    right
                        .receive_batch(1000, |f| {
                            assert_eq!(f.payload, payload(next, 200), "frame {next}");
                            next += 1;
                        })
                        .unwrap();
                    right.send(MacAddr::BROADCAST, &next.to_be_bytes()).unwrap();
                }
            });
            // The reader tells how far it is: no more is on the way than its queue holds.
            left.set_timeout(Some(LONG));
            let (mut sent, mut done) = (0u32, 0u32);
            while done < 20_000 {
                let part: Vec<_> = (sent..20_000.min(done + 400)).map(|n| payload(n, 200)).collect();
                let count = left.send_batch(to, part.iter().map(Vec::as_slice)).unwrap();
                assert_eq!(count, part.len(), "{what}");
                sent += count as u32;
                left.receive_batch(100, |f| done = u32::from_be_bytes(f.payload[..4].try_into().unwrap())).unwrap();
            }
            reader.join().unwrap();
        }
    }
}

isolated! {
    fn a_reader_that_falls_far_behind_gets_whole_frames() {
        // A send ring's slot must not be used again while somebody may still read the frame that was in it.
        veth();
        netns::set_up("lo", true).unwrap();
        const COUNT: u32 = 700;
        for (what, mode) in MODES {
            for (from, to) in [("lo", "lo"), ("left", "right")] {
                let mut from = builder(from, mode).send_ring(64).send_only().open().unwrap();
                let mut to = builder(to, mode).receive_ring(64 << 20).open().unwrap();
                let destination = to.mac();
                for n in 0..COUNT {
                    from.send(destination, &payload(n, 100)).unwrap();
                }
                let (mut next, mut seen) = (0, 0);
                to.set_wait(Wait::Never);
                until(what, || {
                    let _ = to.receive_batch(1000, |f| {
                        let n = u32::from_be_bytes(f.payload[..4].try_into().unwrap());
                        assert!(n >= next && f.payload == payload(n, 100), "{what}: frame {n} after {next}");
                        (next, seen) = (n + 1, seen + 1);
                    });
                    seen + to.statistics().dropped >= u64::from(COUNT)
                });
                assert!(seen > 128, "{what}: {seen} frames are fewer than two send rings");
            }
        }
    }
}
