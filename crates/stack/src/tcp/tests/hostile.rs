//! Segments that nobody honest sends.

use super::*;
use bypath_wire::tcp_options::{SackBlock, SackBlocks, TcpOption, TcpOptions};
use proptest::prelude::*;

/// A number near one that matters, or any.
fn near(at: SeqNumber) -> impl Strategy<Value = SeqNumber> {
    prop_oneof![
        6 => (-3i32..4).prop_map(move |d| SeqNumber(at.0.wrapping_add(d as u32))),
        3 => (-70_000i32..70_000).prop_map(move |d| SeqNumber(at.0.wrapping_add(d as u32))),
        1 => any::<u32>().prop_map(SeqNumber),
    ]
}

/// Numbers are distances that are added to the victim's.
#[derive(Clone, Debug)]
struct Forged {
    seq: SeqNumber,
    ack: SeqNumber,
    flags: u16,
    window: u16,
    blocks: Vec<(u32, u32)>,
    timestamps: Option<(u32, u32)>,
    len: usize,
    urgent: u16,
}

/// What a stranger, or a liar, may send.
fn segments() -> impl Strategy<Value = Forged> {
    let numbers = (near(SeqNumber(0)), near(SeqNumber(0)), any::<u16>());
    let window = prop_oneof![Just(0u16), Just(1), any::<u16>()];
    let blocks = prop::collection::vec((0..100_000u32, 0..100_000u32), 0..4);
    let timestamps = prop::option::of((any::<u32>(), any::<u32>()));
    let len = prop_oneof![Just(0usize), 0..3usize, 0..1460usize];
    let urgent = prop_oneof![0..4u16, any::<u16>()];
    (numbers, window, blocks, timestamps, len, urgent).prop_map(
        |((seq, ack, flags), window, blocks, timestamps, len, urgent)| Forged {
            seq,
            ack,
            flags,
            window,
            blocks,
            timestamps,
            len,
            urgent,
        },
    )
}

fn packet(c: &Connection, forged: Forged) -> Packet {
    let Forged { seq, ack, flags, window, blocks, timestamps, len, urgent } = forged;
    let mut header = TcpHeader::new(2, 1);
    header.seq = c.rcv.nxt + seq.0;
    header.ack = c.snd.una + ack.0;
    header.flags = TcpFlags::from_bits(flags);
    (header.window, header.urgent) = (window, urgent);
    let mut options = TcpOptions::new();
    if let Some((value, echo)) = timestamps {
        let _fits = options.push(&TcpOption::Timestamps { value, echo });
    }
    let mut sack = SackBlocks::new();
    for (left, right) in blocks {
        let _fits = sack.push(SackBlock { left: c.snd.una + left, right: c.snd.una + right });
    }
    if !sack.as_slice().is_empty() {
        let _fits = options.push(&TcpOption::Sack(sack));
    }
    header.options = options;
    Packet { header, payload: std::vec![0xaa; len], ect: false, marked: flags & 0x8000 != 0 }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    #[test]
    fn nothing_that_comes_breaks_a_connection_or_makes_it_hold_more_than_it_may(
        seed in any::<u8>(),
        sack in any::<bool>(),
        timestamps in any::<bool>(),
        when in 0..3usize,
        forged in prop::collection::vec((segments(), 0..2usize, 0..40u64), 1..60),
    ) {
        let settings =
            Settings { sack, timestamps, ecn: true, receive_octets: 60_000, send_octets: 60_000, ..Settings::default() };
        let path = Path { loss: 50, jitter: Duration::from_millis(3), ..Path::default() };
        // Before, in, and after the handshake.
        let mut pair = if when == 0 { Pair::new(settings, path, seed) } else { Pair::open(settings, path, seed) };
        pair.transmit(0);
        for (segment, side, pause) in forged {
            if let Some(end) = &mut pair.ends[side] {
                end.write(&[1; 5000]);
                if when == 2 {
                    end.finish();
                }
                let forged = packet(end, segment);
                pair.arrive(side, &forged);
            }
            pair.transmit(side);
            pair.pass(Duration::from_millis(pause));
            for end in pair.ends.iter().flatten() {
                prop_assert!(end.rx.capacity() <= 131_072 && end.tx.capacity() <= 65_536);
            }
        }
    }

    /// Who is not on the path does not know the numbers: whatever he sends, octets arrive as they were sent.
    #[test]
    fn a_stranger_who_does_not_know_the_numbers_changes_nothing(
        seed in any::<u8>(),
        forged in prop::collection::vec((any::<u32>(), any::<u32>(), any::<u16>(), 0..100usize), 1..40),
    ) {
        let mut pair = Pair::open(Settings::default(), Path::default(), seed);
        for (seq, ack, flags, len) in forged {
            for side in 0..2 {
                let mut header = TcpHeader::new(2, 1);
                (header.seq, header.ack) = (SeqNumber(seq), SeqNumber(ack));
                (header.flags, header.window) = (TcpFlags::from_bits(flags), 9000);
                let c = pair.end(side);
                // A window's width beside the window.
                let far = |a: SeqNumber, b: SeqNumber| a.distance(b).unsigned_abs() > 20_000_000;
                if far(header.seq, c.rcv.nxt) {
                    pair.arrive(side, &Packet { header, payload: std::vec![7; len], ect: false, marked: false });
                }
            }
            pair.transfer(0, 3000, Duration::from_secs(9));
        }
        pair.transfer(1, 3000, Duration::from_secs(9));
    }
}
