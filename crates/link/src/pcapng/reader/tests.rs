use super::*;
use crate::pcapng::Writer;
use crate::pcapng::writer::{Frame as Written, Interface};

const WHEN: u64 = 1_800_000_000_123_456_789;

fn file() -> Vec<u8> {
    let mut w = Writer::new(Vec::new(), "a test", 100).unwrap();
    let one = w.interface("eth0", Some(MacAddr([2, 0, 0, 0, 0, 1]))).unwrap();
    let two = w.interface("lo", None).unwrap();
    for (n, direction) in [Direction::Unknown, Direction::In, Direction::Out].into_iter().enumerate() {
        let (head, tail) = ([n as u8; 14], vec![0xee; 40 * n + n]);
        let pieces = [&head[..], &[], &tail];
        let (ns, reception) = (WHEN + n as u64, Reception::Multicast);
        let (lost, comment) = (Some(n as u64), Some("a remark"));
        let interface = two - n as u32 / 2;
        let original = None;
        w.frame(&Written { interface, ns, pieces, original, direction, reception, lost, comment }).unwrap();
    }
    let counts = Counts { start: Some(WHEN), end: Some(WHEN + 9), received: Some(12), dropped: Some(3) };
    w.statistics(one, WHEN + 9, &counts).unwrap();
    w.into_inner()
}

#[test]
fn what_is_written_is_read() {
    let blocks = Reader::new(&file()[..]).all().unwrap();
    let interface =
        |name: &str, mac| Block::Interface { link_type: 1, snap: 100, name: Some(name.to_owned()), mac };
    let mac = Some(MacAddr([2, 0, 0, 0, 0, 1]));
    let head = [
        Block::Section { application: Some("a test".to_owned()) },
        interface("eth0", mac),
        interface("lo", None),
    ];
    assert_eq!(blocks[..3], head);
    for (n, direction) in [Direction::Unknown, Direction::In, Direction::Out].into_iter().enumerate() {
        let bytes = [vec![n as u8; 14], vec![0xee; 41 * n]].concat();
        let expected = Frame {
            interface: 1 - n as u32 / 2,
            ns: WHEN + n as u64,
            original: bytes.len() as u32,
            bytes,
            direction,
            reception: Reception::Multicast,
            lost: Some(n as u64),
            comments: vec!["a remark".to_owned()],
        };
        assert_eq!(blocks[3 + n], Block::Frame(expected));
    }
    let counts = Counts { start: Some(WHEN), end: Some(WHEN + 9), received: Some(12), dropped: Some(3) };
    assert_eq!(blocks[6..], [Block::Statistics { interface: 0, ns: WHEN + 9, counts }]);
}

#[test]
fn frames_are_cut_to_what_is_kept_and_their_length_is_told() {
    for len in 90..110 {
        let mut w = Writer::new(Vec::new(), "", 100).unwrap();
        let interface = w.interface("x", None).unwrap();
        let bytes: Vec<u8> = (0..len).collect();
        let (a, b) = bytes.split_at(37);
        w.frame(&Written { interface, pieces: [a, b, &[]], ..Written::default() }).unwrap();
        let blocks = Reader::new(&w.into_inner()[..]).all().unwrap();
        let Block::Frame(frame) = &blocks[2] else { panic!("{blocks:?}") };
        assert_eq!((&frame.bytes[..], frame.original), (&bytes[..usize::from(len.min(100))], u32::from(len)));
    }
}

#[test]
fn beginnings_of_frames_and_other_kinds_of_interfaces_are_written_as_what_they_are() {
    let mut writer = Writer::new(Vec::new(), "test", usize::MAX).unwrap();
    let raw = Interface { name: "tun0", link_type: 101, mac: None, comment: None };
    assert_eq!(writer.describe(&raw).unwrap(), 0);
    let part = Written { pieces: [&[0x45; 20], &[], &[]], original: Some(1400), ..Written::default() };
    writer.frame(&part).unwrap();
    let more = Written { original: Some(19), ..part };
    assert_eq!(writer.frame(&more).unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    let file = writer.into_inner();
    let blocks = Reader::new(&file[..]).all().unwrap();
    assert!(matches!(&blocks[1], Block::Interface { link_type: 101, name: Some(n), .. } if n == "tun0"));
    assert!(matches!(&blocks[2], Block::Frame(f) if f.bytes == [0x45; 20] && f.original == 1400));
    assert_eq!(blocks.len(), 3);
}

#[test]
fn interfaces_that_were_not_described_are_refused() {
    let mut w = Writer::new(Vec::new(), "", 100).unwrap();
    assert!(w.frame(&Written::default()).is_err());
    assert!(w.statistics(0, 1, &Counts::default()).is_err());
}

#[test]
fn a_file_that_ends_early_says_where_its_whole_part_ends() {
    let file = file();
    let mut ends = vec![0];
    let mut reader = Reader::new(&file[..]);
    while reader.next().unwrap().is_some() {
        ends.push(reader.at as usize);
    }
    for len in 0..file.len() {
        let whole = ends.iter().rev().find(|&&end| end <= len).unwrap();
        match Reader::new(&file[..len]).all() {
            Ok(blocks) => {
                assert_eq!((len, blocks.len()), (*whole, ends.iter().position(|e| e == whole).unwrap()))
            }
            Err(Error::Truncated { at }) => assert_eq!(at as usize, *whole),
            Err(e) => panic!("{len}: {e}"),
        }
    }
}

#[test]
fn any_octet_may_be_wrong_without_harm() {
    let file = file();
    let mut errors = 0;
    for at in 0..file.len() {
        for value in [0, 1, 0x7f, 0x80, 0xff, file[at] ^ 4] {
            let mut wrong = file.clone();
            wrong[at] = value;
            errors += usize::from(Reader::new(&wrong[..]).all().is_err());
        }
    }
    assert!(errors > file.len(), "lengths, numbers and order are looked at: {errors}");
}

/// A block of this type and body, in big-endian order.
fn big(kind: u32, body: &[u8]) -> Vec<u8> {
    let len = (body.len() as u32 + 12).to_be_bytes();
    [&kind.to_be_bytes()[..], &len, body, &len].concat()
}

const BIG_SECTION: &[u8] =
    &[0x1a, 0x2b, 0x3c, 0x4d, 0, 1, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];

#[test]
fn the_other_byte_order_and_coarser_times_are_read() {
    // Microseconds, the format's default; 10^-3 s one day before; 2^-10 s.
    let interfaces = [
        big(1, &[0, 1, 0, 0, 0, 0, 0, 0]),
        big(
            1,
            &[
                0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 3, 0, 0, 0, 0, 14, 0, 8, 0xff, 0xff, 0xff, 0xff, 0xff,
                0xfe, 0xae, 0x80,
            ],
        ),
        big(1, &[0, 113, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0x8a, 0, 0, 0, 0, 0, 0, 0]),
    ];
    let frame = |interface: u8, time: [u8; 8]| {
        let fixed =
            [0, 0, 0, interface, time[0], time[1], time[2], time[3], time[4], time[5], time[6], time[7]];
        big(6, &[&fixed[..], &[0, 0, 0, 2, 0, 0, 0, 60, 0xab, 0xcd, 0, 0]].concat())
    };
    let file = [
        big(SECTION, BIG_SECTION),
        interfaces.concat(),
        big(0x0bad, &[1, 2, 3, 4]),
        frame(0, [0, 0, 0, 1, 0, 0, 0, 0]),
        frame(1, (86_400_000u64 + 5).to_be_bytes()),
        frame(2, 3072u64.to_be_bytes()),
    ]
    .concat();
    let blocks = Reader::new(&file[..]).all().unwrap();
    assert_eq!(blocks[4], Block::Other(0x0bad));
    let times: Vec<_> = blocks[5..]
        .iter()
        .map(|b| {
            if let Block::Frame(f) = b {
                (f.interface, f.ns, &f.bytes[..], f.original)
            } else {
                panic!("{b:?}")
            }
        })
        .collect();
    let bytes: &[u8] = &[0xab, 0xcd];
    let expected =
        [(0, 4_294_967_296_000, bytes, 60), (1, 5_000_000, bytes, 60), (2, 3_000_000_000, bytes, 60)];
    assert_eq!(times, expected);
}

#[test]
fn what_the_format_forbids_is_refused() {
    let section = big(SECTION, BIG_SECTION);
    let interface = big(1, &[0, 1, 0, 0, 0, 0, 0, 10]);
    let frame = |captured: u8, original: u8, rest: &[u8]| {
        let fixed = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, captured, 0, 0, 0, original];
        big(6, &[&fixed[..], rest].concat())
    };
    let mut other_trailer = interface.clone();
    *other_trailer.last_mut().unwrap() = 24;
    let mut version = section.clone();
    version[13] = 2;
    for (what, file) in [
        ("no pcapng file", vec![0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0]),
        ("no pcapng file", interface.clone()),
        ("no pcapng file", big(SECTION, &[1; 16])),
        ("a version", version),
        ("two lengths differ", [section.clone(), other_trailer].concat()),
        ("impossible length", [&section[..], &[0, 0, 0, 1, 0, 0, 0, 13]].concat()),
        ("impossible length", [&section[..], &[0, 0, 0, 1, 0, 0, 0, 8]].concat()),
        ("impossible length", [&section[..], &[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfc]].concat()),
        ("not described", [section.clone(), frame(0, 0, &[])].concat()),
        (
            "more octets of a frame than it had",
            [section.clone(), interface.clone(), frame(3, 2, &[0; 4])].concat(),
        ),
        ("than are kept", [section.clone(), interface.clone(), frame(11, 11, &[0; 12])].concat()),
        ("longer than its block", [section.clone(), interface.clone(), frame(9, 9, &[0; 8])].concat()),
        (
            "option that is longer",
            [section.clone(), interface.clone(), frame(0, 0, &[0, 1, 0, 9, 0, 0, 0, 0])].concat(),
        ),
        (
            "behind the end",
            [section.clone(), interface.clone(), frame(0, 0, &[0, 0, 0, 0, 0, 1, 0, 0])].concat(),
        ),
        (
            "no UTF-8",
            [section.clone(), interface.clone(), frame(0, 0, &[0, 1, 0, 1, 0xff, 0, 0, 0])].concat(),
        ),
        ("not known", [section.clone(), interface.clone(), frame(0, 0, &[0, 2, 0, 4, 0, 0, 0, 28])].concat()),
        ("too fine", [section.clone(), big(1, &[0, 1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 30, 0, 0, 0])].concat()),
    ] {
        match Reader::new(&file[..]).all() {
            Err(e @ Error::Malformed { .. }) => assert!(e.to_string().contains(what), "{what}: {e}"),
            other => panic!("{what}: {other:?}"),
        }
    }
}
