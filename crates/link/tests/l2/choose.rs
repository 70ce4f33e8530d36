//! What a socket receives, and what it does not: EtherTypes, addresses, groups, its own frames, its share of a group's.

use crate::common::{GROUP, MODES, TYPE, both, builder, nothing_arrives, veth};
use bypath_link::l2::{Addressed, Error, Fanout, Header, MacAddr, Mode, Socket};
use bypath_sys::netns;

isolated! {
    fn several_ethertypes_arrive_on_one_socket_and_no_others() {
        veth();
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b.ethertype(0xaaaa).ethertype(0x88b6));
            let to = right.mac();
            for ethertype in [TYPE, 0x0800, 0xaaaa, 0x86dd, 0x88b7, 0x88b6, 0x0806, 0x0040] {
                let header = Header { ethertype, ..left.header(to) };
                left.send_with(&header, &[1; 60]).unwrap();
            }
            for expected in [TYPE, 0xaaaa, 0x88b6] {
                assert_eq!(right.receive(&mut [0; 60]).unwrap().ethertype, expected, "{what}");
            }
            nothing_arrives(&mut right);
        }
    }
}

isolated! {
    fn a_socket_without_an_ethertype_receives_every_one_and_sends_none_of_its_own() {
        veth();
        let mut left = builder("left", Mode::PLAIN).open().unwrap();
        let mut right = Socket::builder("right").timeout(crate::common::LONG).open().unwrap();
        let header = Header { ethertype: 0x1234, ..left.header(right.mac()) };
        left.send_with(&header, &[1; 60]).unwrap();
        // The kernel's own neighbour discovery may come in between.
        let mut ethertype = 0;
        while ethertype != 0x1234 {
            ethertype = right.receive(&mut [0; 60]).unwrap().ethertype;
        }
        assert!(matches!(right.send(left.mac(), &[1]), Err(Error::Invalid(_))));
    }
}

isolated! {
    fn frames_to_others_are_seen_when_asked_for_only() {
        veth();
        let other = MacAddr([2, 0, 0, 0, 0, 0x55]);
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b);
            let mut foreign = builder("right", mode).foreign().open().unwrap();
            let mut promiscuous = builder("right", mode).promiscuous().open().unwrap();
            left.send(other, &[1; 60]).unwrap();
            left.send(right.mac(), &[2; 60]).unwrap();
            for socket in [&mut foreign, &mut promiscuous] {
                let got = socket.receive(&mut [0; 60]).unwrap();
                assert_eq!((got.destination, got.addressed), (other, Addressed::OtherHost), "{what}");
                assert_eq!(socket.receive(&mut [0; 60]).unwrap().addressed, Addressed::Host);
            }
            assert_eq!(right.receive(&mut [0; 60]).unwrap().addressed, Addressed::Host, "{what}");
            nothing_arrives(&mut right);
        }
    }
}

isolated! {
    fn groups_are_received_when_joined_only() {
        veth();
        let other = MacAddr([0x03, 0, 0, 0, 0x12, 0x35]);
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b);
            let mut joined = builder("right", mode).group(GROUP).open().unwrap();
            let mut all = builder("right", mode).all_groups().open().unwrap();
            let send = |left: &mut Socket| {
                for to in [GROUP, other, MacAddr::BROADCAST] {
                    left.send(to, &[1; 60]).unwrap();
                }
            };
            let seen = |socket: &mut Socket, count: usize| -> Vec<MacAddr> {
                let seen = (0..count).map(|_| socket.receive(&mut [0; 60]).unwrap().destination).collect();
                nothing_arrives(socket);
                seen
            };
            send(&mut left);
            assert_eq!(seen(&mut right, 1), [MacAddr::BROADCAST], "{what}");
            assert_eq!(seen(&mut joined, 2), [GROUP, MacAddr::BROADCAST], "{what}");
            assert_eq!(seen(&mut all, 3), [GROUP, other, MacAddr::BROADCAST], "{what}");
            right.join(other).unwrap();
            joined.leave(GROUP).unwrap();
            send(&mut left);
            assert_eq!(seen(&mut right, 2), [other, MacAddr::BROADCAST], "{what}");
            assert_eq!(seen(&mut joined, 1), [MacAddr::BROADCAST], "{what}");
            assert!(matches!(joined.leave(GROUP), Err(Error::Invalid(_))));
            assert!(matches!(right.join(MacAddr([2; 6])), Err(Error::Invalid(_))));
        }
    }
}

isolated! {
    fn everybody_is_everybody_on_loopback_too() {
        netns::set_up("lo", true).unwrap();
        for (what, mode) in MODES {
            let mut lo = builder("lo", mode).open().unwrap();
            lo.send(GROUP, &[1; 60]).unwrap();
            lo.send(MacAddr::BROADCAST, &[2; 60]).unwrap();
            let mut buffer = [0; 60];
            let got = lo.receive(&mut buffer).unwrap();
            assert_eq!((got.destination, got.addressed), (MacAddr::BROADCAST, Addressed::Broadcast), "{what}");
            assert_eq!(buffer, [2; 60]);
            nothing_arrives(&mut lo);
        }
    }
}

isolated! {
    fn a_group_that_was_joined_is_known_to_the_device() {
        veth();
        let known = || std::fs::read_to_string("/proc/net/dev_mcast").unwrap().contains("030000001234");
        let mut socket = builder("right", Mode::PLAIN).open().unwrap();
        assert!(!known());
        socket.join(GROUP).unwrap();
        assert!(known());
        socket.leave(GROUP).unwrap();
        assert!(!known());
        assert_eq!(promiscuity("right"), 0);
        let promiscuous = builder("right", Mode::PLAIN).promiscuous().open().unwrap();
        assert_eq!(promiscuity("right"), 1);
        drop(promiscuous);
        crate::common::until("a device that is left alone", || promiscuity("right") == 0);
    }
}

/// How many ask this device for everything (IFLA_PROMISCUITY).
fn promiscuity(name: &str) -> u32 {
    use bypath_sys::netlink::{Netlink, Request, attributes};
    let mut fixed = [0; 16];
    fixed[4..8].copy_from_slice(&bypath_link::Interface::named(name).unwrap().index.to_ne_bytes());
    let mut found = None;
    let mut each = |_, body: &[u8]| {
        let value = attributes(&body[16..]).find(|&(kind, _)| kind == 30).map(|(_, value)| value.to_vec());
        found = value.and_then(|v| v.try_into().ok()).map(u32::from_ne_bytes);
    };
    Netlink::open().unwrap().ask(Request::new(libc::RTM_GETLINK, 0, &fixed), &mut each).unwrap();
    found.expect("a count")
}

isolated! {
    fn on_loopback_each_frame_is_seen_once() {
        netns::set_up("lo", true).unwrap();
        for (what, mode) in MODES {
            let mut one = builder("lo", mode).open().unwrap();
            let mut other = builder("lo", mode).open().unwrap();
            one.send(MacAddr::UNSPECIFIED, &[1; 60]).unwrap();
            for socket in [&mut other, &mut one] {
                socket.receive(&mut [0; 60]).unwrap_or_else(|e| panic!("{what}: {e}"));
                nothing_arrives(socket);
            }
        }
    }
}

isolated! {
    fn frames_of_this_host_are_seen_when_asked_for_only() {
        veth();
        for (what, mode) in MODES {
            let mut looking = builder("left", mode).outgoing().open().unwrap();
            let (mut left, _right) = both(mode, |b| b);
            left.send(MacAddr::BROADCAST, &[1; 60]).unwrap();
            let got = looking.receive(&mut [0; 60]).unwrap();
            assert_eq!((got.addressed, got.source), (Addressed::Outgoing, left.mac()), "{what}");
            nothing_arrives(&mut left);
        }
    }
}

isolated! {
    fn frames_that_bypass_the_queueing_discipline_arrive() {
        veth();
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b.qdisc_bypass());
            assert!(left.obtained().qdisc_bypass);
            crate::common::exchange(&mut left, &mut right, what, (46..1500).step_by(100));
        }
    }
}

isolated! {
    fn a_fanout_group_shares_frames_and_loses_none() {
        veth();
        const COUNT: u32 = 200;
        for (what, mode) in MODES {
            for fanout in [Fanout::RoundRobin, Fanout::Hash, Fanout::Random, Fanout::Cpu, Fanout::Queue] {
                let mut left = builder("left", Mode::PLAIN).open().unwrap();
                let open = || builder("right", mode).fanout(7, fanout).open().unwrap();
                let mut members = [open(), open()];
                let to = members[0].mac();
                for n in 0..COUNT {
                    left.send(to, &crate::common::payload(n, 100)).unwrap();
                }
                let mut seen: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
                for socket in &mut members {
                    socket.set_wait(bypath_link::l2::Wait::Never);
                }
                crate::common::until(what, || {
                    for (socket, seen) in members.iter_mut().zip(&mut seen) {
                        let _ = socket.receive_batch(1000, |f| {
                            let n = u32::from_be_bytes(f.payload[..4].try_into().unwrap());
                            assert_eq!(f.payload, crate::common::payload(n, 100));
                            seen.push(n);
                        });
                    }
                    seen[0].len() + seen[1].len() >= COUNT as usize
                });
                if fanout == Fanout::RoundRobin {
                    assert_eq!((seen[0].len(), seen[1].len()), (COUNT as usize / 2, COUNT as usize / 2), "{what}");
                }
                let mut all = seen.concat();
                all.sort_unstable();
                assert_eq!(all, (0..COUNT).collect::<Vec<_>>(), "{what}");
                // Those that are about to be closed must not get a share of the next group's frames.
                drop(members);
            }
        }
    }
}

isolated! {
    fn two_programs_on_one_ethertype_each_get_every_frame() {
        veth();
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b);
            let mut second = builder("right", mode).open().unwrap();
            let to = right.mac();
            for n in 0..50 {
                left.send(to, &crate::common::payload(n, 100)).unwrap();
            }
            for socket in [&mut right, &mut second] {
                for n in 0..50 {
                    let mut buffer = [0; 100];
                    socket.receive(&mut buffer).unwrap();
                    assert!(buffer[..] == crate::common::payload(n, 100), "{what}");
                }
                nothing_arrives(socket);
            }
        }
    }
}

isolated! {
    fn frames_that_are_short_or_end_in_a_tag_harm_nobody() {
        veth();
        for (what, mode) in MODES {
            let mut left = builder("left", mode).open().unwrap();
            let mut right = Socket::builder("right").mode(mode).timeout(crate::common::LONG).open().unwrap();
            let header = [right.mac().0, left.mac().0].concat();
            for len in 0..14 {
                assert_eq!(left.send_octets(&vec![0; len]), Err(Error::TooShort { len }), "{what}");
            }
            let mut expected = Vec::new();
            for kind in [[0x88, 0xb5], [0x81, 0x00], [0x88, 0xa8], [0x00, 0x10]] {
                for rest in 0..12 {
                    let frame = [&header[..], &kind, &vec![0x81; rest]].concat();
                    left.send_octets(&frame).unwrap();
                    // A tag needs four octets behind its first two, and the kernel wants a header behind it.
                    if kind == [0x88, 0xb5] || kind == [0x00, 0x10] {
                        expected.push((u16::from_be_bytes(kind), rest));
                    }
                }
            }
            left.send(right.mac(), b"the end").unwrap();
            let mut seen = Vec::new();
            let (from, mut ended) = (left.mac(), false);
            while !ended {
                right
                    .receive_batch(100, |f| {
                        if f.source == from && f.payload.starts_with(b"the end") {
                            ended = true;
                        } else if f.source == from && f.vlan.is_none() && f.ethertype != 0x86dd {
                            seen.push((f.ethertype, f.payload.len()));
                        }
                    })
                    .unwrap();
            }
            assert_eq!(seen, expected, "{what}");
        }
    }
}

isolated! {
    fn values_that_cannot_be_are_refused_with_a_reason() {
        veth();
        let reason = |builder: bypath_link::l2::Builder| match builder.open().map(|_| ()) {
            Err(Error::Invalid(text)) => text,
            other => panic!("{other:?}"),
        };
        let left = || Socket::builder("left");
        assert!(reason(left().ethertype(0x8100)).contains("VLAN tag"));
        assert!(reason(left().ethertype(0x05ff)).contains("length"));
        assert!(reason(left().ethertype(TYPE).vlan(4095, 0)).contains("0 to 4094"));
        assert!(reason(left().ethertype(TYPE).vlan(10, 8)).contains("0 to 7"));
        assert!(reason(left().ethertype(TYPE).group(MacAddr([2; 6]))).contains("group"));
        assert!(reason(left().ethertype(TYPE).batch(0)).contains("1 to 1024"));
        let many = (0..51).fold(left(), |b, n| b.ethertype(0x9000 + n));
        assert!(reason(many).contains("50"));
    }
}
