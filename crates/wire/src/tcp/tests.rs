use super::*;
use crate::tcp_options::{KnownTcpOptions, SackBlock, SackBlocks, TcpOption};
use core::net::{Ipv4Addr, Ipv6Addr};
use std::format;
use std::vec::Vec;

const V4: Addresses =
    Addresses::V4 { source: Ipv4Addr::new(10, 0, 0, 1), destination: Ipv4Addr::new(10, 0, 0, 2) };
const V6: Addresses = Addresses::V6 { source: Ipv6Addr::LOCALHOST, destination: Ipv6Addr::LOCALHOST };

/// The options of a Linux SYN.
const SYN_OPTIONS: [TcpOption; 5] = [
    TcpOption::MaxSegmentSize(1460),
    TcpOption::SackPermitted,
    TcpOption::Timestamps { value: 0x0102_0304, echo: 0 },
    TcpOption::Nop,
    TcpOption::WindowScale(7),
];

fn options(list: &[TcpOption]) -> TcpOptions {
    let mut options = TcpOptions::new();
    assert!(list.iter().all(|o| options.push(o)), "{list:?}");
    options
}

fn header(list: &[TcpOption]) -> TcpHeader {
    TcpHeader {
        seq: SeqNumber(0xffff_fff0),
        ack: SeqNumber(0x1020_3040),
        flags: TcpFlags::PSH | TcpFlags::ACK,
        window: 502,
        options: options(list),
        ..TcpHeader::new(43210, 443)
    }
}

#[test]
fn header_and_payload_are_written_and_read() {
    for addresses in [V4, V6] {
        for list in [&[][..], &SYN_OPTIONS, &[TcpOption::WindowScale(3)]] {
            for len in [0, 1, 100, 1459, 1460] {
                let (header, payload) = (header(list), &[0xa5; 1460][..len]);
                let mut segment = [0xee; 1520];
                let all = header.emit_with(&mut segment, &addresses, payload).unwrap();
                let segment = &mut segment[..all];
                assert!(verify(&addresses, segment));
                assert_eq!(TcpHeader::parse(segment), Ok((header, payload)));
                let written = segment.to_vec();
                segment[16..18].fill(0x77);
                fill(&addresses, segment);
                assert_eq!(segment, written);
                segment[all - 1] ^= 1;
                assert!(!verify(&addresses, segment));
            }
        }
    }
}

#[test]
fn a_syn_looks_as_linux_writes_it() {
    let syn = TcpHeader { flags: TcpFlags::SYN, ack: SeqNumber(0), window: 64240, ..header(&SYN_OPTIONS) };
    let mut bytes = [0; 40];
    assert_eq!(syn.emit(&mut bytes), Ok(40));
    assert_eq!(bytes[12..16], [0xa0, 0x02, 0xfa, 0xf0]);
    let expected = [2, 4, 5, 0xb4, 4, 2, 8, 10, 1, 2, 3, 4, 0, 0, 0, 0, 1, 3, 3, 7];
    assert_eq!(bytes[20..], expected);
    let known = syn.options.known();
    let timestamps = Some((0x0102_0304, 0));
    let expected = KnownTcpOptions {
        mss: Some(1460),
        window_scale: Some(7),
        sack_permitted: true,
        timestamps,
        ..KnownTcpOptions::default()
    };
    assert_eq!(known, expected);
    assert_eq!(syn.options.iter().map(|o| o.unwrap()).collect::<Vec<_>>(), SYN_OPTIONS);
}

#[test]
fn the_short_way_to_timestamps_finds_the_same() {
    let both = TcpOption::Timestamps { value: 7, echo: 9 };
    let short = options(&[TcpOption::Nop, TcpOption::Nop, both]);
    let long = options(&[both]);
    assert_eq!(short.known(), long.known());
    assert_eq!(short.known().timestamps, Some((7, 9)));
}

#[test]
fn sack_blocks_keep_their_order() {
    let mut blocks = SackBlocks::new();
    for left in [5000, 100, 3000, 1000] {
        assert!(blocks.push(SackBlock { left: SeqNumber(left), right: SeqNumber(left + 500) }));
    }
    assert!(!blocks.push(SackBlock::default()));
    let all = options(&[TcpOption::Nop, TcpOption::Nop, TcpOption::Sack(blocks)]);
    assert_eq!(all.as_bytes().len(), 36);
    assert_eq!(all.known().sack, blocks);
}

#[test]
fn unknown_options_and_wrong_lengths_are_kept() {
    let odd = [
        TcpOption::Other { kind: 254, data: &[0xf9, 0x89, 1] },
        TcpOption::Other { kind: 2, data: &[1] },
        TcpOption::Other { kind: 5, data: &[1, 2, 3, 4, 5, 6, 7] },
        TcpOption::Other { kind: 4, data: &[0] },
        TcpOption::Other { kind: 5, data: &[] },
    ];
    let kept = header(&odd);
    let mut bytes = [0; 60];
    let len = kept.emit(&mut bytes).unwrap();
    let (read, _) = TcpHeader::parse(&bytes[..len]).unwrap();
    assert_eq!(read, kept);
    assert_eq!(read.options.iter().map(|o| o.unwrap()).collect::<Vec<_>>(), odd);
    assert_eq!(read.options.known(), KnownTcpOptions::default());
    let mut full = options(&odd);
    assert!(!full.push(&TcpOption::Other { kind: 9, data: &[0; 40] }));
    assert_eq!(full.as_bytes(), options(&odd).as_bytes());
}

#[test]
fn an_impossible_length_ends_the_options() {
    for bytes in [&[1, 3, 0, 1][..], &[1, 3, 1, 1], &[1, 3, 4, 1], &[1, 1, 1, 3]] {
        let options = TcpOptions::from_bytes(bytes).unwrap();
        let at = bytes.iter().position(|b| *b == 3).unwrap();
        let last = options.iter().last().unwrap();
        assert_eq!(last, Err(ParseError::Option { part: Part::Tcp, kind: 3, at }));
        assert!(options.known().broken);
    }
    let ended = TcpOptions::from_bytes(&[3, 3, 9, 0, 2, 4, 1, 1]).unwrap();
    assert_eq!(ended.iter().collect::<Vec<_>>(), [Ok(TcpOption::WindowScale(9))]);
}

#[test]
fn data_offsets_are_checked() {
    let mut bytes = [0; 24];
    header(&[]).emit(&mut bytes).unwrap();
    bytes[12] = 4 << 4;
    assert_eq!(TcpHeader::parse(&bytes), Err(ParseError::Length { part: Part::Tcp, found: 16, least: 20 }));
    bytes[12] = 7 << 4;
    assert_eq!(TcpHeader::parse(&bytes), Err(ParseError::Truncated { part: Part::Tcp, need: 28, have: 24 }));
    assert_eq!(TcpHeader::parse_fixed(&bytes).unwrap().1, 28);
    assert_eq!(
        TcpHeader::parse(&bytes[..19]),
        Err(ParseError::Truncated { part: Part::Tcp, need: 20, have: 19 })
    );
    let room = EmitError::Room { part: Part::Tcp, need: 40, have: 39 };
    assert_eq!(header(&SYN_OPTIONS).emit(&mut [0; 39]), Err(room));
}

#[test]
fn reserved_bits_are_not_flags() {
    let mut bytes = [0; 20];
    header(&[]).emit(&mut bytes).unwrap();
    bytes[12] |= 0x0f;
    bytes[13] = 0xff;
    let flags = TcpHeader::parse(&bytes).unwrap().0.flags;
    assert_eq!(format!("{flags}"), "FSRP.UEWe");
    assert_eq!(flags.bits(), 0x1ff);
    assert_eq!(format!("{}", TcpFlags::NONE), "none");
    assert!(flags.has(TcpFlags::SYN | TcpFlags::ACK) && !flags.without(TcpFlags::ACK).has(TcpFlags::ACK));
    assert!(
        !TcpFlags::SYN.has(TcpFlags::SYN | TcpFlags::ACK)
            && TcpFlags::SYN.has_any(TcpFlags::SYN | TcpFlags::ACK)
    );
}

#[test]
fn syn_and_fin_take_sequence_space() {
    let mut header = header(&[]);
    assert_eq!(header.sequence_len(10), 10);
    header.flags = TcpFlags::SYN | TcpFlags::FIN;
    assert_eq!(header.sequence_len(10), 12);
}

#[test]
fn a_device_completes_a_partial_sum() {
    for addresses in [V4, V6] {
        let mut segment = [0x11; 99];
        let len = header(&[]).emit(&mut segment).unwrap();
        assert_eq!(len, 20);
        fill_partial(&addresses, &mut segment);
        assert!(!verify(&addresses, &segment));
        let check = crate::checksum::checksum(&segment);
        segment[CHECKSUM_OFFSET as usize..][..2].copy_from_slice(&check.to_be_bytes());
        assert!(verify(&addresses, &segment));
    }
}
