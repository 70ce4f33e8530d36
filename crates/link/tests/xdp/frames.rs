//! Frames arrive as they were sent: every length, every mode, both ways.

use crate::common::{
    TYPE, exchange, frame, mac, nothing_arrives, open, program_attached, receive, send, settled, until, veth,
};
use bypath_link::capture::Capture;
use bypath_link::fault::{FaultInjector, Faults};
use bypath_link::l2::{self, Settings, Socket, Wait};
use bypath_link::packet::{self, PacketLink};
use bypath_link::pcapng::Reader;
use bypath_link::pcapng::reader::Block;
use bypath_link::xdp::{BusyPoll, Place, Transfer};
use bypath_link::{Error, Link, MacAddr};
use bypath_sys::{clock, netns};
use bypath_wire::FrameMeta;
use bypath_wire::meta::{Addressed, ChecksumState, VlanTag};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The other side is not waited for any longer: it has failed.
const PATIENCE: Duration = Duration::from_secs(10);

fn packet_link(interface: &str) -> PacketLink {
    let ethertypes = vec![TYPE];
    PacketLink::open(&packet::Config { ethertypes, foreign: true, ..packet::Config::new(interface) })
        .expect("a packet link")
}

apart! {
    fn every_length_arrives_byte_for_byte_both_ways() {
        veth(1500);
        for place in [None, Some(Place::Driver), Some(Place::Generic)] {
            for need_wakeup in [true, false] {
                let what = format!("{place:?} {need_wakeup}");
                let mut left = open("left", |c| (c.place, c.need_wakeup) = (place, need_wakeup));
                let mut right = open("right", |c| (c.place, c.need_wakeup) = (place, need_wakeup));
                for link in [&left, &right] {
                    let got = link.obtained();
                    assert_eq!((got.place_asked, got.place), (place, place.unwrap_or(Place::Driver)), "{what}");
                    assert_eq!((got.transfer, got.need_wakeup), (Transfer::Copy, need_wakeup));
                    assert_eq!((got.multi_buffer, got.buffer), (false, 2048));
                    assert!(got.notes.is_empty(), "{:?}", got.notes);
                }
                exchange(&mut left, &mut right, &what, 1..=1500);
                exchange(&mut right, &mut left, &what, 1..=1500);
                assert_eq!((left.statistics().sent, left.statistics().received), (1500, 1500));
                assert_eq!(right.statistics().received_octets, (1..=1500).map(|n| n + 14).sum::<u64>());
                assert_eq!((right.statistics().dropped, right.statistics().refused), (0, 0));
            }
        }
    }
}

apart! {
    fn jumbo_frames_lie_in_several_buffers() {
        veth(9000);
        let edges = [1, 1770, 3824, 3825, 3826, 3827, 4018, 4019, 4082, 4083, 7921, 7922, 8115, 8178, 8999, 9000];
        for place in [Place::Driver, Place::Generic] {
            let mut left = open("left", |c| c.place = Some(place));
            let mut right = open("right", |c| c.place = Some(place));
            let got = right.obtained();
            assert_eq!((got.place, got.multi_buffer, got.longest_received), (place, true, 9022));
            let lengths = || edges.into_iter().chain((1..=9000).step_by(17));
            exchange(&mut left, &mut right, "jumbo", lengths());
            exchange(&mut right, &mut left, "jumbo", lengths());
            assert_eq!((right.statistics().dropped, right.statistics().cut), (0, 0));
        }
    }
}

apart! {
    fn frames_of_a_page_fit_one_large_buffer() {
        veth(3800);
        let mut left = open("left", |_| {});
        let mut right = open("right", |_| {});
        assert_eq!((right.obtained().multi_buffer, right.obtained().buffer), (false, 4096));
        exchange(&mut left, &mut right, "3800", (1..=3800).step_by(7).chain([3799, 3800]));
    }
}

apart! {
    fn loopback_gives_back_what_is_sent_up_to_its_mtu() {
        netns::set_up("lo", true).unwrap();
        let mut lo = open("lo", |_| {});
        let got = lo.obtained().clone();
        assert_eq!((got.place_asked, got.place, got.multi_buffer), (None, Place::Generic, true));
        assert_eq!(got.notes.len(), 1, "{:?}", got.notes);
        let lengths = [1, 46, 1500, 3825, 9000, 32_000, 65_000, 65_535, 65_536];
        for (n, len) in lengths.into_iter().enumerate() {
            let sent = frame(mac("lo"), mac("lo"), n as u32, len);
            send(&mut lo, std::slice::from_ref(&sent));
            let received = receive(&mut lo, 1);
            assert!(received[0].0 == sent, "{len}: {}", received[0].0.len());
        }
        nothing_arrives(&mut lo);
    }
}

apart! {
    fn a_packet_link_on_the_other_side_sees_the_same_frames() {
        veth(1500);
        let mut left = open("left", |_| {});
        let mut right = packet_link("right");
        exchange(&mut left, &mut right, "to the packet link", (1..=1500).step_by(13));
        exchange(&mut right, &mut left, "from the packet link", (1..=1500).step_by(13));
    }
}

apart! {
    fn a_tag_beside_the_frame_goes_into_its_bytes() {
        veth(1500);
        let vlan = VlanTag { tpid: 0x8100, pcp: 7, dei: true, vid: 10 };
        let (mut left, mut right) = (open("left", |_| {}), open("right", |_| {}));
        for len in [1, 60, 1500] {
            let plain = frame(mac("right"), mac("left"), 1, len);
            let mut once = Some(FrameMeta { vlan: Some(vlan), ..FrameMeta::default() });
            let sent = left.send(1, &mut |slot| {
                slot[..plain.len()].copy_from_slice(&plain);
                once.take().map(|meta| (plain.len(), meta))
            });
            assert_eq!(sent, Ok(1));
            let (got, meta) = receive(&mut right, 1).remove(0);
            assert_eq!(got, [&plain[..12], &[0x81, 0, 0xf0, 10], &plain[12..]].concat());
            assert_eq!((meta.vlan, meta.addressed), (None, Addressed::Host));
        }
        drop(right);
        // While its driver stops to look at frames, veth loses some.
        until("an interface without a program", || !program_attached("right"));
        settled();
        let mut right = packet_link("right");
        let plain = frame(mac("right"), mac("left"), 1, 100);
        let tagged = [&plain[..12], &[0x81, 0, 0xf0, 10], &plain[12..]].concat();
        send(&mut left, &[tagged]);
        let (got, meta) = receive(&mut right, 1).remove(0);
        assert_eq!((got, meta.vlan), (plain, Some(vlan)));
    }
}

apart! {
    fn frames_that_cannot_go_are_refused_and_counted() {
        veth(1500);
        let (mut left, mut right) = (open("left", |_| {}), open("right", |_| {}));
        let one = |left: &mut dyn Link, len: usize, meta: FrameMeta| {
            let bytes = frame(mac("right"), mac("left"), 9, len.saturating_sub(14));
            let mut once = true;
            left.send(4, &mut |slot| {
                let room = len.min(slot.len());
                slot[..room].copy_from_slice(&bytes[..room]);
                std::mem::take(&mut once).then_some((len, meta))
            })
        };
        let none = FrameMeta::default();
        let long = Error::TooLong { interface: "left".to_owned(), payload: 1501, mtu: 1500 };
        assert_eq!(one(&mut left, 1515, none), Err(long));
        assert!(matches!(one(&mut left, 100_000, none), Err(Error::TooLong { .. })));
        assert_eq!(one(&mut left, 13, none), Err(Error::TooShort { len: 13 }));
        let partial = ChecksumState::Partial { start: 34, offset: 6 };
        let offload = FrameMeta { checksum: partial, ..none };
        assert!(matches!(one(&mut left, 100, offload), Err(Error::Invalid(_))));
        assert_eq!((left.statistics().sent, left.statistics().refused), (4, 4));
        // The link goes on, and nothing of them arrives.
        exchange(&mut left, &mut right, "afterwards", [1500]);
        nothing_arrives(&mut right);
    }
}

apart! {
    fn rings_go_round_many_times() {
        veth(1500);
        let mut left = open("left", |c| c.send = 8);
        let mut right = open("right", |c| c.receive = 64);
        let lengths = (0..5000usize).map(|n| 1 + n * 7919 % 1500);
        exchange(&mut left, &mut right, "many", lengths);
        assert_eq!(right.statistics().received, 5000);
    }
}

apart! {
    fn a_flood_arrives_in_order_while_both_sides_work() {
        veth(1500);
        const COUNT: u32 = 20_000;
        for place in [Place::Driver, Place::Generic] {
            let mut left = open("left", |c| c.place = Some(place));
            // Few buffers: each goes round many times, and is given back while the kernel is at work.
            let mut right = open("right", |c| (c.place, c.receive) = (Some(place), 64));
            let (to, from) = (mac("right"), mac("left"));
            let (done, turns) = (AtomicBool::new(false), AtomicU32::new(0));
            let (mut got, mut last) = (0u64, None);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut frames: Vec<_> = (0..COUNT).map(|n| numbered(to, from, n)).collect();
                    let mut burst = 0;
                    while !frames.is_empty() {
                        // Bursts that a reader keeps up with: it gives chunks back while the kernel takes others.
                        burst = burst % 7 + 1;
                        let rest = frames.split_off(burst.min(frames.len()));
                        send(&mut left, &frames);
                        frames = rest;
                        // Where processors are busy it would be over before the reader had one.
                        let (turn, until) = (turns.load(Ordering::Acquire), Instant::now() + PATIENCE);
                        while burst == 7 && turns.load(Ordering::Acquire) == turn && Instant::now() < until {
                            std::thread::yield_now();
                        }
                    }
                    done.store(true, Ordering::Release);
                });
                loop {
                    let finished = done.load(Ordering::Acquire);
                    turns.fetch_add(1, Ordering::Release);
                    let mut each = |bytes: &[u8], _: &FrameMeta| {
                        let n = u32::from_be_bytes(bytes[14..18].try_into().unwrap());
                        if n % 16 == 0 {
                            assert!(bytes == numbered(to, from, n), "frame {n} is not as it was sent");
                        }
                        assert!(last < Some(n), "{n} after {last:?}");
                        (got, last) = (got + 1, Some(n));
                    };
                    if right.receive(64, &mut each).expect("received") == 0 && finished {
                        break;
                    }
                }
            });
            let sent = u64::from(COUNT);
            assert_eq!((left.statistics().sent, right.statistics().received), (sent, got));
            assert!(got > sent / 100 && got + right.statistics().dropped <= sent, "{got} of {sent}");
        }
    }
}

/// A frame whose number stands in its first octets of payload, and decides about the rest.
fn numbered(to: MacAddr, from: MacAddr, n: u32) -> Vec<u8> {
    let mut bytes = frame(to, from, n, 4 + n as usize * 31 % 300);
    bytes[14..18].copy_from_slice(&n.to_be_bytes());
    bytes
}

apart! {
    fn what_is_not_read_in_time_is_counted_as_dropped() {
        veth(1500);
        let mut left = open("left", |_| {});
        let mut right = open("right", |c| c.receive = 64);
        let frames: Vec<_> = (0..200).map(|n| frame(mac("right"), mac("left"), n, 100)).collect();
        send(&mut left, &frames);
        until("200 frames, dropped ones included", || right.statistics().dropped + 64 >= 200);
        let got = receive(&mut right, 64);
        assert!(got.iter().zip(&frames).all(|((got, _), sent)| got == sent), "the first ones are kept");
        nothing_arrives(&mut right);
        assert_eq!(right.statistics().dropped, 136);
        exchange(&mut left, &mut right, "afterwards", 1..100);
    }
}

apart! {
    fn spinning_and_polling_the_device_receive_too() {
        veth(1500);
        let busy_poll = Some(BusyPoll { microseconds: 20, budget: 64 });
        let mut left = open("left", |c| c.busy_poll = busy_poll);
        let mut right = open("right", |c| c.busy_poll = busy_poll);
        assert!(left.obtained().busy_poll && right.obtained().busy_poll);
        for n in 0..300 {
            let sent = frame(mac("right"), mac("left"), n, 50);
            send(&mut left, std::slice::from_ref(&sent));
            let mut got = Vec::new();
            until("a frame", || right.receive(1, &mut |f, _| got = f.to_vec()).unwrap() > 0);
            assert_eq!(got, sent);
        }
    }
}

apart! {
    fn whom_a_frame_was_addressed_to_is_told() {
        veth(1500);
        let (mut left, mut right) = (open("left", |_| {}), open("right", |_| {}));
        let group = MacAddr([3, 0, 0, 0, 0, 1]);
        let other = MacAddr([2, 0, 0, 0, 0, 0x77]);
        let to = [mac("right"), MacAddr::BROADCAST, group, other];
        send(&mut left, &to.map(|to| frame(to, mac("left"), 1, 60)));
        let seen: Vec<_> = receive(&mut right, 4).into_iter().map(|(_, meta)| meta.addressed).collect();
        assert_eq!(seen, [Addressed::Host, Addressed::Broadcast, Addressed::Multicast, Addressed::OtherHost]);
    }
}

apart! {
    fn a_socket_goes_over_such_a_link() {
        veth(1500);
        let tag = VlanTag { tpid: l2::TPID_VLAN, pcp: 7, dei: false, vid: 10 };
        let settings = Settings {
            ethertype: Some(TYPE),
            tag: Some(tag),
            timeout: Some(Duration::from_secs(20)),
            ..Settings::default()
        };
        let mut left = Socket::over(open("left", |_| {}), settings);
        let mut right = Socket::over(open("right", |_| {}), settings);
        for (number, wait) in [Wait::Sleep, Wait::Spin].into_iter().enumerate() {
            right.set_wait(wait);
            let sent = [number as u8; 60];
            left.send(right.mac(), &sent).unwrap();
            let mut buffer = [0; 1500];
            let got = right.receive(&mut buffer).unwrap();
            assert_eq!(buffer[..got.len], sent);
            assert_eq!((got.vlan, got.ethertype, got.source), (Some(tag), TYPE, mac("left")));
            assert_eq!(left.send_batch(right.mac(), [&sent[..]; 20]).unwrap(), 20);
            let mut count = 0;
            while count < 20 {
                count += right.receive_batch(20 - count, |f| assert_eq!(f.payload, sent)).unwrap();
            }
            right.set_timeout(Some(Duration::from_millis(1)));
            assert!(matches!(right.receive(&mut buffer), Err(Error::TimedOut { .. })));
            right.set_timeout(settings.timeout);
        }
        assert_eq!(right.into_link().statistics().received, 42);
    }
}

apart! {
    fn a_capture_around_faults_around_a_link_has_what_went_through() {
        veth(1500);
        let loss = Faults { loss: 0.3, ..Faults::NONE };
        let faulty = FaultInjector::new(open("right", |_| {}), loss, Faults::NONE, 5, clock::monotonic_ns).unwrap();
        let before = clock::realtime_ns();
        let mut right = Capture::new(faulty, "right", Vec::new(), usize::MAX, clock::realtime_ns).unwrap();
        let mut left = open("left", |_| {});
        settled();
        let frames: Vec<_> = (0..200).map(|n| frame(mac("right"), mac("left"), n, 60 + n as usize)).collect();
        let mut got = Vec::new();
        for part in frames.chunks(20) {
            send(&mut left, part);
            let came = right.inner().ingress().entered + part.len() as u64;
            until("the frames", || {
                right.receive(20, &mut |f, _| got.push(f.to_vec())).unwrap();
                right.inner().ingress().entered == came
            });
        }
        let lost = right.inner().ingress().lost as usize;
        assert!((20..100).contains(&lost) && got.len() + lost == 200, "{lost}");
        let (_, file) = right.finish().unwrap();
        let blocks = Reader::new(&file[..]).all().unwrap();
        let written: Vec<_> = blocks.iter().filter_map(|b| if let Block::Frame(f) = b { Some(f) } else { None }).collect();
        assert!(written.iter().map(|f| &f.bytes).eq(&got));
        assert!(written.iter().all(|f| (before..=clock::realtime_ns()).contains(&f.ns)));
    }
}
