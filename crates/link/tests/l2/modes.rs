//! Every way of moving frames carries every octet, whatever the length.

use crate::common::{LONG, MODES, TYPE, both, builder, exchange, payload, until, veth, veth_with_mtu};
use bypath_link::l2::{Addressed, Builder, Error, MacAddr, Mode, Socket, VlanTag, Wait};
use bypath_link::packet::{Receive, Send};
use bypath_link::{Link, Timestamps};
use bypath_sys::packet::frame::{Departure, HEADROOM};
use bypath_sys::{Errno, netns, packet};

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
    fn a_tag_counts_on_loopback_and_the_mtu_says_so() {
        netns::set_up("lo", true).unwrap();
        for (what, mode) in MODES {
            let with = |b: Builder| b.vlan(10, 7).padding(false).ring_on_loopback();
            let mut from = with(builder("lo", mode)).send_only().open().unwrap();
            let mut to = with(builder("lo", mode)).open().unwrap();
            assert_eq!((from.mtu(), to.mtu()), (65_532, 65_532), "{what}");
            let can = from.link().capabilities();
            assert_eq!((can.mtu, can.tagged_mtu), (65_536, 65_532));
            exchange(&mut from, &mut to, what, [2, 46, 1500, 65_531, 65_532]);
            let long = Error::TooLong { interface: "lo".to_owned(), payload: 65_533, mtu: 65_532 };
            assert_eq!(from.send(MacAddr::UNSPECIFIED, &vec![0; 65_533]), Err(long), "{what}");
            // The second tag is payload.
            let mut header = from.header(MacAddr::UNSPECIFIED);
            header.inner_vlan = header.vlan;
            let mut buffer = vec![0; 65_536];
            from.send_with(&header, &vec![7; 65_528]).unwrap();
            assert_eq!(to.receive(&mut buffer).map(|f| (f.len, f.inner_vlan)), Ok((65_528, header.vlan)), "{what}");
            assert!(matches!(from.send_with(&header, &vec![7; 65_529]), Err(Error::TooLong { .. })), "{what}");
        }
        assert_eq!(builder("lo", Mode::PLAIN).open().unwrap().mtu(), 65_536);
    }
}

isolated! {
    /// The limits are the kernel's: it refuses what the link refuses, whoever sends it.
    fn the_kernel_carries_on_loopback_what_the_mtu_says_and_no_more() {
        netns::set_up("lo", true).unwrap();
        let index = bypath_link::Interface::named("lo").unwrap().index;
        let socket = packet::Socket::open().unwrap();
        socket.bind(index, false).unwrap();
        for (tags, most) in [(0, 65_536), (1, 65_532), (2, 65_528)] {
            let send = |payload: usize| {
                let mut buffer = vec![0; HEADROOM + 12];
                for _ in 0..tags {
                    buffer.extend([0x81, 0, 0xe0, 10]);
                }
                buffer.extend(TYPE.to_be_bytes());
                buffer.resize(buffer.len() + payload, 0);
                let len = buffer.len() - HEADROOM;
                socket.send(&mut buffer, len, &Departure::default(), false)
            };
            assert_eq!(send(most), Ok(()), "{tags} tags");
            assert_eq!(send(most + 1), Err(Errno::MSGSIZE), "{tags} tags");
        }
    }
}

isolated! {
    fn a_send_ring_on_loopback_is_only_made_when_asked_for() {
        netns::set_up("lo", true).unwrap();
        let socket = builder("lo", Mode::RING).open().unwrap();
        assert_eq!(socket.obtained().mode, Mode { receive: Receive::Ring, send: Send::Mmsg });
        assert!(socket.obtained().notes.iter().any(|n| n.contains("loopback")), "{:?}", socket.obtained());
        let mut from = builder("lo", Mode::RING).ring_on_loopback().send_only().open().unwrap();
        let mut to = builder("lo", Mode::RING).ring_on_loopback().open().unwrap();
        assert_eq!(to.obtained().mode, Mode::RING);
        exchange(&mut from, &mut to, "rings on loopback", (46..65_000).step_by(517));
        // However few were asked for, there is room for one.
        let mut from = builder("lo", Mode::RING).ring_on_loopback().send_only().send_ring(1).open().unwrap();
        exchange(&mut from, &mut to, "a ring of few", (46..65_000).step_by(5170));
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
    fn an_mtu_that_is_raised_while_a_receiver_is_open_costs_no_frame() {
        for (what, mode) in MODES {
            veth_with_mtu(1000);
            for tagged in [false, true] {
                let with = |b: Builder| if tagged { b.vlan(10, 7) } else { b };
                let mut right = with(builder("right", mode)).open().unwrap();
                for mtu in [9000, 65_535] {
                    for name in ["left", "right"] {
                        netns::set_mtu(name, mtu).unwrap();
                    }
                    let mut left = with(builder("left", Mode::PLAIN)).open().unwrap();
                    let most = mtu as usize;
                    let lengths = [most, 100, most - 1, most, 1000, 1001, most];
                    exchange(&mut left, &mut right, what, lengths);
                    // Sent while nobody takes them, they come in their order, too.
                    let all: Vec<_> = (0..7).map(|n| payload(n, lengths[n as usize])).collect();
                    assert_eq!(left.send_batch(right.mac(), all.iter().map(Vec::as_slice)), Ok(7));
                    let mut next = all.iter();
                    while next.len() > 0 {
                        let tag = with_tag(tagged);
                        let taken = right.receive_batch(7, |f| {
                            assert!(Some(f.payload) == next.next().map(Vec::as_slice), "{what}: {} octets", f.payload.len());
                            assert_eq!((f.vlan, f.addressed), (tag, Addressed::Host), "{what}");
                            assert!(f.timestamp.is_some_and(|t| t.ns > 0), "{what}");
                        });
                        taken.unwrap_or_else(|e| panic!("{what}: {e}"));
                    }
                }
                assert_eq!((right.statistics().cut, right.statistics().dropped), (0, 0), "{what}");
                for name in ["left", "right"] {
                    netns::set_mtu(name, 1000).unwrap();
                }
            }
            netns::remove("left").unwrap();
        }
    }
}

/// The tag of the frames of a test.
fn with_tag(tagged: bool) -> Option<VlanTag> {
    tagged.then_some(VlanTag { tpid: 0x8100, pcp: 7, dei: false, vid: 10 })
}

isolated! {
    fn a_frame_longer_than_a_block_is_counted_and_never_given_out_in_part() {
        veth_with_mtu(1000);
        let mut right = builder("right", Mode::RING).block(32 << 10).open().unwrap();
        for name in ["left", "right"] {
            netns::set_mtu(name, 65_535).unwrap();
        }
        let mut left = builder("left", Mode::PLAIN).open().unwrap();
        for n in 0..3u8 {
            left.send(right.mac(), &vec![n; 60_000]).unwrap();
            left.send(right.mac(), &[n; 100]).unwrap();
        }
        let mut got = Vec::new();
        while got.len() < 3 {
            right.receive_batch(9, |f| got.push((f.payload[0], f.payload.len()))).unwrap();
        }
        assert_eq!(got, [(0, 100), (1, 100), (2, 100)]);
        assert_eq!(right.statistics().cut, 3);
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
        assert_eq!(got.mode.send, Send::Mmsg, "a ring's frames carry no time");
        // More memory than there is.
        let asked = builder("left", Mode::RING).receive_ring(1 << 45).open().unwrap();
        let got = asked.obtained();
        assert_eq!(got.mode, Mode { receive: Receive::Mmsg, send: Send::Mmsg });
        assert!(got.notes.iter().any(|n| n.starts_with("no ring")), "{got:?}");
    }
}

isolated! {
    fn a_ring_has_blocks_of_the_size_that_was_asked_for() {
        veth();
        // Four blocks at least, each a power of two that holds the longest frame, none above 4 MiB.
        for (asked, block) in [(0, 32 << 10), (100 << 10, 128 << 10), (512 << 10, 512 << 10), (1 << 30, 4 << 20)] {
            let socket = builder("left", Mode::RING).receive_ring(1).block(asked).open().unwrap();
            assert_eq!(socket.obtained().receive_ring, 4 * block, "{asked}");
        }
        let (mut left, mut right) = both(Mode::RING, |b| b.receive_ring(1).block(4 << 20));
        for n in 0..200u32 {
            left.send(right.mac(), &n.to_be_bytes()).unwrap();
            let mut buffer = [0; 60];
            right.receive(&mut buffer).unwrap();
            assert_eq!(buffer[..4], n.to_be_bytes());
        }
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
