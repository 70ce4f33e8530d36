//! Sockets of the builder in mode XDP: what they give is what packet sockets give, and what they cannot do is told.

use crate::apart::{kernel_answers, two_hosts};
use crate::common::{TYPE, mac, open, program_attached, settled, until, veth};
use bypath_link::l2::{
    Builder, BusyPoll, Clock, Fanout, MacAddr, Mode, Place, Socket, TPID_SERVICE, TPID_VLAN, Timestamps,
    Transfer, Vlan, VlanTag,
};
use bypath_link::packet::{Receive, Send};
use bypath_link::xdp::Refused;
use bypath_link::{Error, Link};
use bypath_sys::netns;
use std::process::Command;
use std::time::Duration;

const LONG: Duration = Duration::from_secs(20);
const GROUP: MacAddr = MacAddr([3, 0, 0, 0, 0x12, 0x34]);

/// The usual socket of a test.
fn builder(interface: &str, mode: Mode) -> Builder {
    Socket::builder(interface).ethertype(TYPE).mode(mode).timeout(LONG)
}

fn opened(builder: Builder) -> Socket {
    let socket = builder.open().unwrap_or_else(|e| panic!("{e}"));
    settled();
    socket
}

/// Sends payloads of these lengths, and checks each that arrives.
fn exchange(
    from: &mut Socket,
    to: &mut Socket,
    tag: Option<VlanTag>,
    lengths: impl IntoIterator<Item = usize>,
) {
    let (source, destination) = (from.mac(), to.mac());
    let payloads: Vec<_> = lengths.into_iter().map(|len| vec![len as u8 ^ (len >> 8) as u8; len]).collect();
    for part in payloads.chunks(16) {
        assert_eq!(from.send_batch(destination, part.iter().map(Vec::as_slice)), Ok(part.len()));
        let mut next = part.iter();
        while next.len() > 0 {
            let got = to.receive_batch(next.len(), |frame| {
                let expected = next.next().expect("no more than was asked for");
                assert!(frame.payload == expected, "{} octets", expected.len());
                assert_eq!((frame.source, frame.destination), (source, destination));
                assert_eq!((frame.ethertype, frame.vlan), (TYPE, tag));
            });
            got.expect("received");
        }
    }
}

apart! {
    fn frames_pass_between_an_xdp_socket_and_a_packet_socket() {
        veth(1500);
        let tag = VlanTag { tpid: TPID_VLAN, pcp: 7, dei: false, vid: 10 };
        for place in [Place::Driver, Place::Generic] {
            for tag in [None, Some(tag)] {
                let with = |name, mode| {
                    let b = builder(name, mode).padding(false);
                    if let Some(tag) = tag { b.tag(tag) } else { b }
                };
                let mut left = opened(with("left", Mode::XDP).place(place));
                let mut right = opened(with("right", Mode::RING));
                assert_eq!((left.mtu(), left.mac()), (1500, mac("left")));
                // The kernel throws tagged frames of one octet away.
                exchange(&mut left, &mut right, tag, 2..=1500);
                exchange(&mut right, &mut left, tag, 1..=1500);
                let counted = left.statistics();
                assert_eq!((counted.sent, counted.received, counted.dropped), (1499, 1500, 0));
                left.set_timeout(Some(Duration::from_millis(1)));
                assert!(matches!(left.receive(&mut [0; 10]), Err(Error::TimedOut { .. })));
                let long = Error::TooLong { interface: "left".to_owned(), payload: 1501, mtu: 1500 };
                assert_eq!(left.send(right.mac(), &[0; 1501]), Err(long));
                left.close();
                until("an interface without a program", || !program_attached("left"));
                settled();
            }
        }
    }
}

apart! {
    fn what_was_asked_and_obtained_is_told_as_for_packet_sockets() {
        veth(1500);
        let socket = opened(builder("left", Mode::XDP));
        let got = socket.obtained();
        assert_eq!((got.asked, got.mode), (Mode::XDP, Mode::XDP));
        assert_eq!((got.timestamps_asked, got.timestamps), (Timestamps::None, Timestamps::None));
        assert_eq!((got.receive_queue, got.receive_ring, got.send_ring), (0, 2048 * 2048, 512));
        assert!(got.qdisc_bypass && !got.offload && !got.send_time && got.notes.is_empty(), "{:?}", got.notes);
        let xdp = got.xdp.as_ref().unwrap();
        assert_eq!((xdp.queue, xdp.transfer_asked, xdp.transfer), (0, None, Transfer::Copy));
        assert_eq!((xdp.place_asked, xdp.place), (None, Place::Driver));
        assert!(xdp.need_wakeup_asked && xdp.need_wakeup && !xdp.busy_poll && !xdp.multi_buffer);
        assert_eq!((xdp.busy_poll_asked, xdp.multi_buffer_asked), (None, false));
        assert_eq!(opened(builder("right", Mode::PLAIN)).obtained().xdp, None);
        drop(socket);

        netns::set_mtu("left", 9000).unwrap();
        let poll = BusyPoll { microseconds: 20, budget: 64 };
        let asked = builder("left", Mode::XDP)
            .transfer(Transfer::Copy)
            .place(Place::Generic)
            .need_wakeup(false)
            .busy_poll(poll)
            .receive_ring(256 * 4096)
            .send_ring(32);
        let socket = opened(asked);
        let got = socket.obtained();
        assert_eq!((got.receive_ring, got.send_ring), (256 * 4096, 32));
        let xdp = got.xdp.as_ref().unwrap();
        assert_eq!((xdp.transfer_asked, xdp.transfer), (Some(Transfer::Copy), Transfer::Copy));
        assert_eq!((xdp.place_asked, xdp.place), (Some(Place::Generic), Place::Generic));
        assert!(!xdp.need_wakeup_asked && !xdp.need_wakeup && xdp.busy_poll);
        assert_eq!((xdp.busy_poll_asked, xdp.multi_buffer_asked), (Some(poll), true));
        // Since Linux 6.6; an older kernel says so.
        assert_eq!(xdp.multi_buffer, xdp.notes.is_empty());
        assert_eq!(got.notes, xdp.notes);
    }
}

apart! {
    fn where_the_driver_cannot_look_at_frames_the_way_round_is_noted() {
        netns::set_up("lo", true).unwrap();
        let mut lo = opened(builder("lo", Mode::XDP).vlan(10, 7).padding(false));
        let got = lo.obtained();
        assert_eq!(got.xdp.as_ref().unwrap().place, Place::Generic);
        assert!(got.notes.iter().any(|n| n.contains("behind the driver of lo")), "{:?}", got.notes);
        // A tag counts there.
        assert_eq!(lo.mtu(), 65_532);
        let mut buffer = vec![0; 65_536];
        for len in [1, 1500, 65_531, 65_532] {
            lo.send(MacAddr::UNSPECIFIED, &vec![0x5a; len]).unwrap();
            let got = lo.receive(&mut buffer).unwrap();
            assert_eq!((got.len, got.vlan.map(|t| (t.vid, t.pcp))), (len, Some((10, 7))));
            assert!(buffer[..len].iter().all(|&octet| octet == 0x5a));
        }
        let long = Error::TooLong { interface: "lo".to_owned(), payload: 65_533, mtu: 65_532 };
        assert_eq!(lo.send(MacAddr::UNSPECIFIED, &vec![0; 65_533]), Err(long));
    }
}

/// What a socket on `right` gives of `frames`, by their numbers, when they are sent from `left`.
fn given(sender: &mut Socket, receiver: Builder, frames: &[Vec<u8>]) -> Vec<u8> {
    let mut receiver = opened(receiver);
    for frame in frames {
        sender.send_octets(frame).unwrap();
    }
    let mut numbers = Vec::new();
    // The last one is for everybody.
    while numbers.last() != Some(&(frames.len() as u8 - 1)) {
        receiver.receive_batch(1, |frame| numbers.push(frame.payload[0])).unwrap();
    }
    assert_eq!(receiver.statistics().received, numbers.len() as u64);
    let octets: usize = numbers.iter().map(|&n| frames[usize::from(n)].len()).sum();
    if receiver.obtained().mode == Mode::XDP {
        // A packet socket has the tag beside the octets.
        assert_eq!(receiver.statistics().received_octets, octets as u64);
    }
    numbers
}

apart! {
    fn an_xdp_socket_gives_what_a_packet_socket_gives() {
        veth(1500);
        let (here, there) = (mac("left"), mac("right"));
        let to = [there, MacAddr::BROADCAST, GROUP, MacAddr([3, 0, 0, 0, 0, 9]), MacAddr([2, 0, 0, 0, 0, 0x77])];
        let tags: [&[(u16, u16)]; 7] = [
            &[],
            &[(TPID_VLAN, 0xe000)],
            &[(TPID_VLAN, 0xe00a)],
            &[(TPID_VLAN, 11)],
            &[(TPID_SERVICE, 10)],
            &[(TPID_SERVICE, 10), (TPID_VLAN, 11)],
            &[(TPID_SERVICE, 11), (TPID_VLAN, 10)],
        ];
        let frame = |to: MacAddr, tags: &[(u16, u16)], kind: u16, number: usize| {
            let mut frame = [to.0, here.0].concat();
            for (tpid, tci) in tags {
                frame.extend(tpid.to_be_bytes());
                frame.extend(tci.to_be_bytes());
            }
            frame.extend(kind.to_be_bytes());
            frame.resize(frame.len() + 60, number as u8);
            frame
        };
        type With = fn(Builder) -> Builder;
        let wishes: [(With, &[(u16, u16)]); 8] = [
            (|b| b, &[]),
            (|b| b.receive_vlan(Vlan::None), &[]),
            (|b| b.vlan(10, 7), tags[2]),
            (|b| b.vlan(10, 7).receive_vlan(Vlan::Any), &[]),
            (|b| b.vlan(0, 7).group(GROUP), &[]),
            (Builder::all_groups, &[]),
            (Builder::foreign, &[]),
            (Builder::promiscuous, &[]),
        ];
        let mut left = opened(builder("left", Mode::PLAIN));
        for (n, (with, last)) in wishes.into_iter().enumerate() {
            let mut frames = Vec::new();
            for kind in [TYPE, 0x88b6] {
                for to in to {
                    for tags in tags {
                        frames.push(frame(to, tags, kind, frames.len()));
                    }
                }
            }
            frames.push(frame(there, last, TYPE, frames.len()));
            let by_packet = given(&mut left, with(builder("right", Mode::PLAIN)), &frames);
            let by_xdp = given(&mut left, with(builder("right", Mode::XDP)), &frames);
            assert_eq!(by_xdp, by_packet, "wish {n}");
            until("an interface without a program", || !program_attached("right"));
            settled();
        }
    }
}

apart! {
    fn other_frames_stay_with_the_kernel() {
        let there = two_hosts();
        let mut left = opened(builder("left", Mode::XDP).vlan(10, 7));
        let mut right = there.run(|| opened(builder("right", Mode::XDP).vlan(10, 7))).unwrap();
        let other = || Socket::builder("right").ethertype(0x88b6).timeout(LONG).open().unwrap();
        let mut other_type = there.run(other).unwrap();
        let other_vlan = || builder("right", Mode::PLAIN).receive_vlan(Vlan::Id(11)).open().unwrap();
        let mut other_vlan = there.run(other_vlan).unwrap();
        settled();
        let tag = Some(VlanTag { tpid: TPID_VLAN, pcp: 7, dei: false, vid: 10 });
        let mut buffer = [0; 100];
        for n in 0..5 {
            exchange(&mut left, &mut right, tag, [50, 1400]);
            kernel_answers(&there, 7000 + n);
            let mut header = left.header(right.mac());
            header.ethertype = 0x88b6;
            left.send_with(&header, b"another type").unwrap();
            assert_eq!(other_type.receive(&mut buffer).unwrap().vlan, tag);
            header = left.header(right.mac());
            header.vlan = tag.map(|t| VlanTag { vid: 11, ..t });
            left.send_with(&header, b"another VLAN").unwrap();
            assert_eq!(other_vlan.receive(&mut buffer).unwrap().ethertype, TYPE);
        }
        right.set_timeout(Some(Duration::from_millis(20)));
        assert!(matches!(right.receive(&mut buffer), Err(Error::TimedOut { .. })));
    }
}

apart! {
    fn groups_are_joined_and_left_while_it_is_open() {
        veth(1500);
        let known = || std::fs::read_to_string("/proc/thread-self/net/dev_mcast").unwrap().contains("030000001234");
        let mut left = opened(builder("left", Mode::PLAIN));
        let mut right = opened(builder("right", Mode::XDP));
        assert!(matches!(right.join(mac("left")), Err(Error::Invalid(_))));
        assert!(matches!(right.leave(GROUP), Err(Error::Invalid(_))));
        let mut buffer = [0; 100];
        for _ in 0..2 {
            left.send(GROUP, b"before").unwrap();
            right.join(GROUP).unwrap();
            // Once is enough, and once is enough to leave.
            right.join(GROUP).unwrap();
            assert!(known());
            left.send(GROUP, b"between").unwrap();
            let got = right.receive(&mut buffer).unwrap();
            // What came before is looked at when it is received.
            if buffer.starts_with(b"before") {
                right.receive(&mut buffer).unwrap();
            }
            assert!(buffer.starts_with(b"between") && got.destination == GROUP);
            right.leave(GROUP).unwrap();
            assert!(!known());
            left.send(GROUP, b"after").unwrap();
            left.send(MacAddr::BROADCAST, b"to all").unwrap();
            right.receive(&mut buffer).unwrap();
            assert!(buffer.starts_with(b"to all"));
        }
    }
}

apart! {
    fn what_af_xdp_cannot_do_is_told_with_what_to_do() {
        veth(1500);
        let half = Mode { receive: Receive::Xdp, send: Send::Mmsg };
        type With = fn(Builder) -> Builder;
        let wrong: [(With, &str); 8] = [
            (|b| b.fanout(1, Fanout::Hash), "fanout is not to be had with AF_XDP: a device queue has one"),
            (|b| b.timestamps(Timestamps::Software), "timestamps is not"),
            (|b| b.timestamps(Timestamps::Hardware), "ask for none, or for mode RING"),
            (Builder::outgoing, "open another socket for that, in mode RING"),
            (Builder::send_only, "or ask for mode RING"),
            (|b| b.send_time(Clock::Tai), "ask for mode PLAIN, and the queueing discipline"),
            (|b| b.receive_queue(1 << 20), "give the length of that"),
            (|b| b.receive_ring(1), "from 64 to 65536 buffers"),
        ];
        let refused = |b: Builder| match b.open() {
            Ok(socket) => panic!("opened: {:?}", socket.obtained()),
            Err(e @ Error::Invalid(_)) => e.to_string(),
            Err(e) => panic!("{e}"),
        };
        for (with, text) in wrong {
            let said = refused(with(builder("left", Mode::XDP)));
            assert!(said.contains(text), "{said}");
        }
        let said = refused(builder("left", half));
        assert!(said.contains("both ways"), "{said}");
        let said = refused(Socket::builder("left").mode(Mode::XDP));
        assert!(said.contains("say which EtherTypes are meant"), "{said}");
        let said = refused(Socket::builder("left").ethertype(TPID_VLAN).mode(Mode::XDP));
        assert!(said.contains("choose frames by VLAN"), "{said}");
        let alone: [With; 5] = [
            |b| b.queue(0),
            |b| b.transfer(Transfer::Copy),
            |b| b.place(Place::Driver),
            |b| b.need_wakeup(true),
            |b| b.busy_poll(BusyPoll { microseconds: 1, budget: 1 }),
        ];
        for with in alone {
            let said = refused(with(builder("left", Mode::RING)));
            assert!(said.contains("ask for mode XDP"), "{said}");
        }
        let config = bypath_link::packet::Config { mode: Mode::XDP, ..bypath_link::packet::Config::new("left") };
        assert!(matches!(bypath_link::packet::PacketLink::open(&config), Err(Error::Invalid(_))));
        // Nothing of all that is left behind.
        assert!(!program_attached("left"));
        opened(builder("left", Mode::XDP).timestamps(Timestamps::None).qdisc_bypass().batch(8));
    }
}

apart! {
    fn what_is_not_there_or_in_use_is_told() {
        veth(1500);
        let refused = |b: Builder| b.open().map(|_| ()).unwrap_err();
        assert!(matches!(refused(builder("nosuch", Mode::XDP)), Error::Unknown { .. }));
        assert!(matches!(refused(builder("a-name-that-is-too-long", Mode::XDP)), Error::NameTooLong { .. }));
        let none = Refused::Queue { interface: "left".to_owned(), queue: 7 };
        assert_eq!(refused(builder("left", Mode::XDP).queue(7)), none.into());
        let zero = refused(builder("left", Mode::XDP).transfer(Transfer::ZeroCopy));
        assert!(matches!(zero, Error::Xdp(Refused::Driver { .. })), "{zero}");
        let link = open("left", |_| {});
        let busy = Refused::QueueBusy { interface: "left".to_owned(), queue: 0 };
        assert_eq!(refused(builder("left", Mode::XDP)), busy.into());
        drop(link);
        // Closed and opened anew at once, again and again.
        let mut right = opened(builder("right", Mode::XDP));
        for _ in 0..5 {
            let mut left = opened(builder("left", Mode::XDP));
            exchange(&mut right, &mut left, None, [100]);
        }
        netns::set_up("left", false).unwrap();
        assert!(matches!(refused(builder("left", Mode::XDP)), Error::Down { .. }));
        let mut left = builder("left", Mode::XDP).may_be_down().open().unwrap();
        netns::set_up("left", true).unwrap();
        settled();
        exchange(&mut right, &mut left, None, [100]);
    }
}

apart! {
    fn another_queue_is_opened_by_its_number() {
        let end = ["numrxqueues", "2", "numtxqueues", "2"];
        let mut ip = Command::new("ip");
        ip.args(["link", "add", "left"]).args(end).args(["type", "veth", "peer", "name", "right"]).args(end);
        if !ip.status().is_ok_and(|s| s.success()) {
            let test = "builder::another_queue_is_opened_by_its_number";
            return crate::common::skip(test, "ip is not installed (Debian package iproute2)");
        }
        for name in ["left", "right"] {
            netns::set_up(name, true).unwrap();
        }
        settled();
        let mut left = opened(builder("left", Mode::XDP).queue(1));
        let mut right = opened(builder("right", Mode::XDP).queue(1));
        let got = right.obtained();
        assert_eq!(got.xdp.as_ref().unwrap().queue, 1);
        let note = "right has 2 receive queues, and frames that come through another one than 1 stay with the kernel";
        assert!(got.notes.iter().any(|n| n.starts_with(note)), "{:?}", got.notes);
        // veth: what one end sends on a queue arrives at the same queue of the other end.
        exchange(&mut left, &mut right, None, [1, 100, 1500].map(|n: usize| n.max(46)));
        assert_eq!(right.link().statistics().received, 3);
    }
}

apart! {
    fn who_sleeps_learns_that_the_interface_is_down_and_that_it_is_gone() {
        // What the kernel does, then what the sleeper is told.
        for (remove, told) in [(false, Error::Down { interface: "right".into() }), (true, Error::Gone { interface: "right".into() })] {
            for timeout in [None, Some(LONG)] {
                veth(1500);
                let mut right = opened(builder("right", Mode::XDP));
                right.set_timeout(timeout);
                let (tell, tid) = std::sync::mpsc::channel();
                let sleeper = std::thread::spawn(move || {
                    tell.send(bypath_sys::thread::tid()).unwrap();
                    let mut wait = || right.receive(&mut [0; 1500]).map(|_| ());
                    // An interface goes down before it goes: a look in between tells that first.
                    wait().or_else(|e| if remove && matches!(e, Error::Down { .. }) { wait() } else { Err(e) })
                });
                let tid = tid.recv().unwrap();
                until("a thread that sleeps", || {
                    let state = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
                    state.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
                });
                if remove {
                    netns::remove("right").unwrap();
                } else {
                    netns::set_up("right", false).unwrap();
                }
                assert_eq!(sleeper.join().unwrap(), Err(told.clone()), "{timeout:?}");
                if !remove {
                    netns::remove("right").unwrap();
                }
            }
        }
    }
}

apart! {
    fn who_spins_waits_no_less_than_asked_and_learns_that_the_interface_is_gone() {
        veth(1500);
        let mut right = opened(builder("right", Mode::XDP).spin());
        for ns in [1, 1_000_000, 70_000_000] {
            let longest = std::time::Duration::from_nanos(ns);
            right.set_timeout(Some(longest));
            let begun = std::time::Instant::now();
            assert_eq!(right.receive(&mut [0; 1500]).map(|_| ()), Err(Error::TimedOut { waited: longest }));
            assert!(begun.elapsed() >= longest && begun.elapsed() < LONG, "{longest:?}: {:?}", begun.elapsed());
        }
        right.set_timeout(Some(LONG));
        netns::remove("right").unwrap();
        let mut wait = || right.receive(&mut [0; 1500]).map(|_| ());
        // An interface goes down before it goes: a look in between tells that first.
        let told = wait().or_else(|e| if matches!(e, Error::Down { .. }) { wait() } else { Err(e) });
        assert_eq!(told, Err(Error::Gone { interface: "right".into() }));
    }
}
