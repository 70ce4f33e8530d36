//! Every way to sum against the RFC's own words, taken literally.

use super::*;
use std::vec;
use std::vec::Vec;

/// RFC 1071, 1: adjacent octets are paired to 16-bit integers, and their one's complement sum is formed; an odd octet
/// is the high half of a last one.
fn naive(data: &[u8]) -> u16 {
    let mut sum: u32 = 0;
    for pair in data.chunks(2) {
        sum += (pair[0] as u32) << 8 | *pair.get(1).unwrap_or(&0) as u32;
        if sum > 0xffff {
            sum -= 0xffff;
        }
    }
    sum as u16
}

/// A fixed stream of octets (xorshift64).
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    core::iter::repeat_with(next).take(len).collect()
}

/// The name of an implementation, how it sums, and how it copies while summing.
pub(super) type Way = (&'static str, fn(&[u8]) -> u16, fn(&mut [u8], &[u8]) -> u16);

/// Every implementation that this machine can run.
fn ways() -> Vec<Way> {
    let mut ways: Vec<Way> = vec![
        ("portable", |d| portable::sum(d).folded(), |t, f| portable::copy(t, f).folded()),
        ("dispatched", |d| Sum::new().bytes(d).folded(), |t, f| copy(t, f).folded()),
    ];
    #[cfg(all(feature = "std", target_arch = "x86_64"))]
    ways.extend(x86::tests::ways());
    ways
}

/// Lengths around every border of the loops, and a few long ones.
fn lengths() -> impl Iterator<Item = usize> {
    (0..=400).chain([511, 512, 513, 1459, 1460, 1461, 1500, 2047, 8999, 9000, 65535, 65536])
}

#[test]
fn the_example_of_rfc_1071_section_3() {
    let data = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::new().bytes(&data).folded(), 0xddf2);
    assert_eq!(checksum(&data), 0x220d);
}

#[test]
fn every_length_at_every_offset_is_the_naive_sum() {
    let data = noise(65536 + 64);
    for (name, sum, _) in ways() {
        for len in lengths() {
            let offsets = if len > 2048 { 0..9 } else { 0..64 };
            for at in offsets {
                let piece = &data[at..at + len];
                assert_eq!(sum(piece), naive(piece), "{name}, {len} octets at {at}");
            }
        }
    }
}

#[test]
fn the_largest_words_do_not_overflow() {
    for (name, sum, _) in ways() {
        for len in lengths().chain([1 << 22]) {
            let data = vec![0xff; len];
            assert_eq!(sum(&data), naive(&data), "{name}, {len} octets");
            let data = vec![0; len];
            assert_eq!(sum(&data), 0, "{name}, {len} zeros");
        }
    }
}

#[test]
fn a_copy_has_the_sum_and_the_octets_and_touches_nothing_else() {
    let data = noise(9000 + 64);
    for (name, _, copy) in ways() {
        for len in lengths().filter(|l| *l <= 9000) {
            for (from, to) in [(0, 0), (1, 0), (0, 1), (3, 5), (17, 33)] {
                let source = &data[from..from + len];
                let mut room = vec![0xa5; len + 64];
                assert_eq!(copy(&mut room[to..to + len], source), naive(source), "{name}, {len} octets");
                assert_eq!(&room[to..to + len], source, "{name}, {len} octets");
                let around = room[..to].iter().chain(&room[to + len..]);
                assert!(around.copied().all(|b| b == 0xa5), "{name}, {len} octets: wrote beside");
            }
        }
    }
}

#[test]
fn a_copy_into_less_room_is_cut() {
    let mut room = [0; 3];
    assert_eq!(copy(&mut room, &[1, 2, 3, 4]).folded(), naive(&[1, 2, 3]));
    assert_eq!(room, [1, 2, 3]);
    assert_eq!(portable::copy(&mut [0; 8], &[1, 2, 3, 4]).folded(), naive(&[1, 2, 3, 4]));
}

#[test]
fn pieces_of_any_length_add_up() {
    let data = noise(700);
    for first in 0..200 {
        for second in [0, 1, 2, 3, 63, 64, 65, 128, 129, 301] {
            let (a, rest) = data.split_at(first);
            let (b, c) = rest.split_at(second);
            assert_eq!(Sum::new().bytes(a).bytes(b).bytes(c).folded(), naive(&data), "{first}, {second}");
            let mut room = vec![0; b.len()];
            assert_eq!(Sum::new().bytes(a).copy(&mut room, b).bytes(c).folded(), naive(&data));
        }
    }
    let sum = Sum::new().bytes(&[1]).word(0x0203).long(0x0405_0607).bytes(&[8]);
    assert_eq!(sum.folded(), naive(&[1, 2, 3, 4, 5, 6, 7, 8]));
}

#[test]
fn an_update_is_the_sum_over_the_changed_data() {
    // RFC 1624, 4: a header with 0x5555 changed to 0x3285 under the checksum 0xdd2f.
    assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    let mut data = noise(40);
    for at in (0..40).step_by(2) {
        let before = checksum(&data);
        let old = [data[at], data[at + 1]];
        for new in [0x0000u16, 0x0001, 0x7fff, 0x8000, 0xfffe, 0xffff] {
            data[at..at + 2].copy_from_slice(&new.to_be_bytes());
            assert_eq!(update(before, u16::from_be_bytes(old), new), checksum(&data));
            assert_eq!(update_bytes(before, &old, &new.to_be_bytes()), checksum(&data));
        }
        data[at..at + 2].copy_from_slice(&old);
    }
    let before = checksum(&data);
    let old: Vec<u8> = data[8..24].to_vec();
    data[8..24].copy_from_slice(&[7; 16]);
    assert_eq!(update_bytes(before, &old, &[7; 16]), checksum(&data));
}

#[test]
fn a_flipped_bit_is_found() {
    let mut data = noise(1460);
    let check = checksum(&data);
    data.extend(check.to_be_bytes());
    assert!(is_valid(&data));
    for bit in 0..data.len() * 8 {
        data[bit / 8] ^= 1 << (bit % 8);
        assert!(!is_valid(&data), "bit {bit}");
        data[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn pseudo_headers_are_summed_as_drawn() {
    let (a, b) = (Ipv4Addr::new(192, 168, 0, 31), Ipv4Addr::new(192, 168, 0, 30));
    let drawn = [192, 168, 0, 31, 192, 168, 0, 30, 0, 17, 0, 10];
    assert_eq!(pseudo_v4(a, b, 17, 10).folded(), naive(&drawn));
    let (a, b) = (Ipv6Addr::new(0xfe80, 0, 0, 0, 1, 2, 3, 4), Ipv6Addr::LOCALHOST);
    let mut drawn = a.octets().to_vec();
    drawn.extend(b.octets());
    drawn.extend([0, 1, 0, 2, 0, 0, 0, 58]);
    assert_eq!(pseudo_v6(a, b, 58, 0x1_0002).folded(), naive(&drawn));
}
