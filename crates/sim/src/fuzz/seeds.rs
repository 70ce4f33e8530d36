//! Inputs to begin with that are made by hand: what attackers say as somebody who is connected, and sessions.

use super::input;
use crate::dice::Dice;
use bypath_wire::{TcpFlags, tcp};
use std::collections::BTreeMap;

/// Inputs by name.
type Inputs = BTreeMap<String, Vec<u8>>;

/// A segment without ports, whose numbers are so far from those that are expected.
fn segment(seq: i32, ack: i32, flags: TcpFlags, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = (tcp::HEADER_LEN + options.len()) / 4;
    let [reserved, bits] = flags.bits().to_be_bytes();
    let mut segment = vec![0; 4];
    segment.extend_from_slice(&seq.to_be_bytes());
    segment.extend_from_slice(&ack.to_be_bytes());
    segment.extend_from_slice(&[(words as u8) << 4 | reserved, bits, 0xea, 0x60, 0, 0, 0, 0]);
    segment.extend_from_slice(options);
    segment.extend_from_slice(payload);
    segment
}

/// Of the target `segments`.
pub(super) fn segments() -> Inputs {
    let ack = TcpFlags::ACK;
    let blocks = [1, 1, 5, 10, 0, 0, 0, 9, 0, 0, 0, 99];
    let timestamps = [1, 1, 8, 10, 0, 1, 0, 0, 0, 0, 0, 0];
    let all = [
        (
            "octets",
            vec![segment(0, 0, ack, &[], b"forged"), segment(3, 0, ack | TcpFlags::PSH, &[], b"other")],
        ),
        ("octets-ahead", vec![segment(50, 0, ack, &[], &[7; 60]), segment(20, 0, ack, &[], &[8; 60])]),
        (
            "resets",
            vec![segment(1, 0, TcpFlags::RST, &[], &[]), segment(0, 0, TcpFlags::RST | ack, &[], &[])],
        ),
        (
            "calls",
            vec![
                segment(0, 0, TcpFlags::SYN, &[2, 4, 0, 1], &[]),
                segment(-1, 0, TcpFlags::SYN | ack, &[], &[]),
            ],
        ),
        (
            "ends",
            vec![
                segment(9, 0, TcpFlags::FIN | ack, &[], &[]),
                segment(0, 0, TcpFlags::FIN | ack, &[], b"end"),
            ],
        ),
        (
            "acknowledgements",
            vec![
                segment(0, 1, ack, &[], &[]),
                segment(0, -1000, ack, &[], &[]),
                segment(0, -1, ack, &[], b"x"),
            ],
        ),
        ("blocks", vec![segment(0, 0, ack, &blocks, &[])]),
        ("timestamps", vec![segment(0, 0, ack, &timestamps, b"new"), segment(0, 0, ack, &[], b"none")]),
        ("options", vec![segment(0, 0, ack, &[8, 0, 1, 1], b"x"), segment(0, 0, ack, &[5, 255, 0, 0], &[])]),
        ("urgent", vec![segment(0, 0, ack | TcpFlags::URG, &[], b"now")]),
        ("marks", vec![segment(0, 0, ack | TcpFlags::ECE | TcpFlags::CWR, &[], b"x")]),
    ];
    let mut inputs = Inputs::new();
    for (name, segments) in all {
        for (kind, how) in [("", 0), ("-unacknowledged", 64 | 32)] {
            let pieces: Vec<_> = (0..4)
                .flat_map(|which| segments.iter().map(move |s| [&[which | how], &s[..]].concat()))
                .collect();
            inputs.insert(format!("{name}{kind}"), input(pieces.iter().map(Vec::as_slice)));
        }
    }
    // Packets as a whole, lengths, and what is changed in the peer's own.
    let own = segment(0, 0, ack, &[], b"whole");
    let v4 = [&[0x45, 0, 0, 45, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1][..], &own].concat();
    let v6 = [&[0x60, 0, 0, 0, 0, 25, 6, 64][..], &[0; 32], &own].concat();
    let pieces = [[&[4][..], &v4].concat(), [&[5][..], &v6].concat()];
    inputs.insert("packets".into(), input(pieces.iter().map(Vec::as_slice)));
    let pieces = [[&[8, 0, 45][..], &own].concat(), [&[9, 0, 25][..], &own].concat()];
    inputs.insert("lengths".into(), input(pieces.iter().map(Vec::as_slice)));
    let wrong = [0u16, 10, 19, 20, 39, 2000];
    let pieces = wrong.map(|said| [&[8][..], &said.to_be_bytes(), &own].concat());
    inputs.insert("lengths-that-cannot-be".into(), input(pieces.iter().map(Vec::as_slice)));
    let pieces: Vec<_> = (0..4).map(|which| [12 | which, 1, 0, 6, 0, 8, 0, 33, 2]).collect();
    inputs.insert("changes".into(), input(pieces.iter().map(|piece| &piece[..])));
    inputs
}

/// Of the target `session`: hosts and applications of each kind, and one of each thing that can be done.
pub(super) fn sessions() -> Inputs {
    let mut inputs = Inputs::new();
    let kinds: [(&str, [u8; 8]); 6] = [
        ("plain", [0, 0, 0, 0, 0, 0, 60, 40]),
        ("ipv6-ethernet", [3, 0, 0, 0, 0, 0, 60, 40]),
        ("both-call", [4, 1, 0, 0, 0, 0, 60, 40]),
        ("cut-by-the-link", [16, 1, 0, 0, 0, 0, 200, 40]),
        ("no-options", [128, 1, 0x13, 0, 0x13, 0, 30, 30]),
        ("little-memory", [0xc4, 0x20, 0, 0, 0, 0, 130, 240]),
    ];
    let decisions: [&[u8]; 15] = [
        &[0, 2, 2],
        &[1],
        &[2, 9],
        &[3, 200],
        &[4, 33, 2],
        &[5, 47, 1],
        &[6, 0, 60],
        &[7, 0, 0, 0, 5, 0, 0, 0, 0, 0, 4],
        &[0x87, 1, 0],
        &[9, 0, 4, 0, 0, 0, 0, 0, 0, 2],
        &[10, 9],
        &[11, 0x40, 200],
        &[0x8c, 3],
        &[13, 5],
        &[14, 3, 33, 1],
    ];
    for (name, kind) in kinds {
        let few = |which: &[usize]| {
            let chosen = which.iter().map(|n| decisions[*n]);
            input([&kind[..]].into_iter().chain(chosen))
        };
        inputs.insert(name.into(), few(&[]));
        inputs.insert(format!("{name}-faults"), few(&[0, 1, 0, 2, 3, 11, 10, 12, 13, 0, 1]));
        inputs.insert(format!("{name}-attacks"), few(&[0, 7, 0, 9, 5, 0, 14, 4, 6, 0, 8]));
    }
    inputs
}

/// A session of chance: with faults alone, or with everything that attackers can do.
pub fn any_session(dice: &mut Dice) -> Vec<u8> {
    const FAULTS: [u8; 8] = [1, 2, 3, 10, 11, 12, 13, 0];
    let hostile = dice.chance(0.5);
    let octet = |dice: &mut Dice| if dice.chance(0.3) { 0 } else { dice.roll() as u8 };
    let mut pieces: Vec<Vec<u8>> = vec![(0..8).map(|_| octet(dice)).collect()];
    if dice.chance(0.5) {
        // Nobody who gives up soon, and memory enough.
        pieces[0][2] &= 0x3f;
        pieces[0][4] &= 0x3f;
        pieces[0][1] &= 0x0f;
    }
    let rare = dice.chance(0.5);
    for _ in 0..dice.index(if rare { 6 } else { 60 }) {
        let what = if hostile { dice.roll() as u8 & 15 } else { FAULTS[dice.index(8)] };
        let mut piece = vec![what | (dice.roll() as u8 & 0x80)];
        let len = 2 * dice.index(10);
        piece.extend((0..len).map(|_| octet(dice)));
        if what == 0 {
            piece.truncate(3);
            piece.iter_mut().skip(1).for_each(|octet| *octet &= 0x1f);
        }
        pieces.push(piece);
    }
    input(pieces.iter().map(Vec::as_slice))
}
