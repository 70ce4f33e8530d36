//! Fragments that do not fit together.

use super::*;

/// Fragments (RFC 791, 1858, 3128, 5722).
pub(super) fn all() -> Vec<Attack> {
    let part = [0x66; 1024];
    let both = |each: &dyn Fn(bool) -> Vec<Vec<u8>>| [each(false), each(true)].concat();
    let hundred = |each: &dyn Fn(bool, u32) -> Vec<Vec<u8>>| {
        both(&|is_v6| (0..100).flat_map(|id| each(is_v6, id)).collect())
    };
    vec![
        attack(
            "overlap",
            "fragments_drop_overlap",
            200,
            hundred(&|six, id| vec![fragment(six, id, 0, &part, true), fragment(six, id, 1016, &part, true)]),
        ),
        attack(
            "overlap that rewrites the ports",
            "fragments_drop_overlap",
            200,
            hundred(&|six, id| {
                vec![fragment(six, id, 0, &part[..16], true), fragment(six, id, 0, &[0x77; 16], true)]
            }),
        ),
        attack(
            "teardrop",
            "fragments_drop_overlap",
            200,
            hundred(&|six, id| {
                vec![fragment(six, id, 0, &part[..40], true), fragment(six, id, 24, &part[..4], false)]
            }),
        ),
        attack(
            "bonk: an end before what is there",
            "fragments_drop_overlap",
            200,
            hundred(&|six, id| {
                vec![fragment(six, id, 800, &part, true), fragment(six, id, 8, &part[..8], false)]
            }),
        ),
        attack(
            "two ends",
            "fragments_drop_overlap",
            200,
            hundred(&|six, id| {
                vec![fragment(six, id, 800, &part[..8], false), fragment(six, id, 1600, &part[..8], false)]
            }),
        ),
        attack(
            "ping of death",
            "fragments_drop_too_long",
            200,
            hundred(&|six, id| vec![fragment(six, id, 65_520, &part, false)]),
        ),
        attack(
            "jolt: long ones without an end",
            "fragments_drop_given_up",
            1,
            hundred(&|six, id| (0..20).map(|n| fragment(six, id, n * 1024, &part, true)).collect()),
        ),
        // RFC 1858, 3: ports in one fragment, the rest in others. It is put together, and then is an ordinary datagram.
        attack(
            "tiny fragments",
            "fragments_whole",
            200,
            hundred(&|six, id| {
                let addresses = if six { addresses_v6(EVIL_V6) } else { addresses_v4(EVIL_V4) };
                let whole = datagram(&addresses, 1000, 9999, 100);
                let parts = whole.chunks(8).enumerate();
                parts
                    .map(|(n, part)| fragment(six, id, n as u16 * 8, part, (n + 1) * 8 < whole.len()))
                    .collect()
            }),
        ),
        attack(
            "no multiple of eight",
            "fragments_drop_length",
            200,
            hundred(&|six, id| vec![fragment(six, id, 0, &part[..13], true)]),
        ),
        attack(
            "nothing in it",
            "fragments_drop_length",
            200,
            hundred(&|six, id| vec![fragment(six, id, 8, &[], true)]),
        ),
        attack(
            "rose: two ends and nothing between",
            "fragments_drop_given_up",
            1000,
            both(&|six| {
                let ends = |id| {
                    [fragment(six, id, 0, &part[..8], true), fragment(six, id, 65_000, &part[..8], false)]
                };
                (0..2000).flat_map(ends).collect()
            }),
        ),
        attack(
            "pieces that touch nothing",
            "fragments_drop_pieces",
            20,
            both(&|six| {
                let pieces = |id| (0..200u16).map(move |n| fragment(six, id, n * 16, &part[..8], true));
                (0..10).flat_map(pieces).collect()
            }),
        ),
        attack(
            "one number again and again",
            "fragments_drop_overlap",
            4000,
            both(&|six| {
                let pair =
                    |_| [fragment(six, 1, 0, &part[..16], true), fragment(six, 1, 8, &part[..16], true)];
                (0..2000).flat_map(pair).collect()
            }),
        ),
    ]
}
