//! VLAN tags and priorities leave right and arrive right.

use crate::common::{LONG, MODES, TYPE, both, builder, nothing_arrives, veth};
use bypath_link::l2::{Header, MacAddr, Mode, Socket, TPID_SERVICE, TPID_VLAN, Vlan, VlanTag};

const fn tag(vid: u16, pcp: u8, dei: bool) -> VlanTag {
    VlanTag { tpid: TPID_VLAN, pcp, dei, vid }
}

isolated! {
    fn tag_priority_and_drop_eligibility_arrive_as_they_were_sent() {
        veth();
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b);
            let to = right.mac();
            for vid in [0, 1, 10, 4094] {
                for pcp in 0..8 {
                    for dei in [false, true] {
                        let sent = tag(vid, pcp, dei);
                        let header = Header { vlan: Some(sent), ..left.header(to) };
                        left.send_with(&header, &[vid as u8; 100]).unwrap();
                        let mut buffer = [0; 100];
                        let got = right.receive(&mut buffer).unwrap();
                        assert_eq!((got.vlan, got.inner_vlan, got.ethertype), (Some(sent), None, TYPE), "{what}");
                        assert_eq!((got.source, got.destination, got.whole), (left.mac(), to, 100));
                        assert_eq!(buffer, [vid as u8; 100]);
                    }
                }
            }
        }
    }
}

isolated! {
    fn the_tag_is_in_the_octets_that_leave() {
        veth();
        // What a device would put on the wire: frames as they are sent, seen by a socket that looks on.
        for (what, mode) in MODES {
            let mut left = builder("left", mode).vlan(10, 7).open().unwrap();
            let mut looking = Socket::builder("left").ethertype(TYPE).outgoing().foreign().timeout(LONG).open().unwrap();
            let to = MacAddr([2, 0, 0, 0, 0, 0x77]);
            left.send(to, &[5; 64]).unwrap();
            let mut seen = Vec::new();
            use bypath_link::Link;
            while seen.is_empty() {
                looking.link().receive(1, &mut |octets, _| seen = octets.to_vec()).unwrap();
            }
            let expected =
                [&to.0[..], &left.mac().0, &[0x81, 0x00, 0xe0, 0x0a, 0x88, 0xb5], &[5; 64]].concat();
            assert_eq!(seen, expected, "{what}");
        }
    }
}

isolated! {
    fn two_tags_arrive_in_their_order() {
        veth();
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b.receive_vlan(Vlan::Id(200)));
            let outer = VlanTag { tpid: TPID_SERVICE, pcp: 3, dei: true, vid: 200 };
            let header = Header { vlan: Some(outer), inner_vlan: Some(tag(10, 7, false)), ..left.header(right.mac()) };
            left.send_with(&header, &[1; 80]).unwrap();
            let mut buffer = [0; 80];
            let got = right.receive(&mut buffer).unwrap();
            assert_eq!((got.vlan, got.inner_vlan), (Some(outer), Some(tag(10, 7, false))), "{what}");
            assert_eq!((got.ethertype, buffer), (TYPE, [1; 80]), "{what}");
        }
    }
}

isolated! {
    fn a_socket_of_a_vlan_sees_frames_of_this_vlan_only() {
        veth();
        for (what, mode) in MODES {
            let (mut left, mut right) = both(mode, |b| b.vlan(10, 7));
            let to = right.mac();
            for vlan in [None, Some(tag(11, 7, false)), Some(tag(0, 7, false)), Some(tag(10, 1, false))] {
                let header = Header { vlan, ..left.header(to) };
                left.send_with(&header, &[1; 60]).unwrap();
            }
            left.send(to, &[2; 60]).unwrap();
            let priority = |s: &mut Socket| s.receive(&mut [0; 60]).unwrap().vlan.map(|t| (t.vid, t.pcp));
            assert_eq!(priority(&mut right), Some((10, 1)), "{what}");
            assert_eq!(priority(&mut right), Some((10, 7)), "{what}");
            nothing_arrives(&mut right);
        }
    }
}

isolated! {
    fn a_socket_without_a_vlan_sees_all_or_only_untagged_frames() {
        veth();
        let mut left = builder("left", Mode::PLAIN).open().unwrap();
        let mut all = builder("right", Mode::PLAIN).open().unwrap();
        let mut untagged = builder("right", Mode::PLAIN).receive_vlan(Vlan::None).open().unwrap();
        let mut priority_only = builder("right", Mode::PLAIN).vlan(0, 5).open().unwrap();
        let to = all.mac();
        let tags = [None, Some(tag(0, 5, false)), Some(tag(10, 7, false))];
        for vlan in tags {
            let header = Header { vlan, ..left.header(to) };
            left.send_with(&header, &[1; 60]).unwrap();
        }
        for expected in tags {
            assert_eq!(all.receive(&mut [0; 60]).unwrap().vlan, expected);
        }
        for socket in [&mut untagged, &mut priority_only] {
            for expected in &tags[..2] {
                assert_eq!(socket.receive(&mut [0; 60]).unwrap().vlan, *expected);
            }
            nothing_arrives(socket);
        }
    }
}
