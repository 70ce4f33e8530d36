//! Which frame is the first one after a loss.

use crate::common::{MODES, builder, until, veth};
use bypath_link::Link;
use bypath_link::capture::Capture;
use bypath_link::l2::{Mode, Socket};
use bypath_link::packet::Receive;
use bypath_link::pcapng::Reader;
use bypath_link::pcapng::reader::Block;

/// What of the queue or ring a flood is larger than.
const QUEUE: usize = 256 << 10;
const FLOOD: u32 = 4000;

/// The number in a frame, behind its header.
fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(frame[14..18].try_into().unwrap())
}

/// Floods a link that nobody reads, reads it empty and sends two more, one by one; this twice. Returns number and mark of
/// every frame in the file.
fn flooded(what: &str, mode: Mode) -> Vec<(u32, u64)> {
    let mut left = Socket::builder("left").ethertype(crate::common::TYPE).send_only().open().unwrap();
    let right =
        builder("right", mode).receive_queue(QUEUE).receive_ring(QUEUE).block(QUEUE / 4).open().unwrap();
    let to = right.mac();
    let mut capture = Capture::new(right.into_link(), "right", Vec::new(), usize::MAX, || 7).unwrap();
    let mut next = 0u32;
    for _ in 0..2 {
        for _ in 0..FLOOD {
            left.send(to, &next.to_be_bytes()).unwrap();
            next += 1;
        }
        // In pieces, so that the counter is read while frames wait that were there before the loss.
        while capture.receive(64, &mut |_, _| {}).unwrap() > 0 {}
        for _ in 0..2 {
            left.send(to, &next.to_be_bytes()).unwrap();
            until(what, || {
                let mut came = false;
                capture.receive(64, &mut |frame, _| came |= number(frame) == next).unwrap();
                came
            });
            next += 1;
            assert_eq!(capture.receive(64, &mut |_, _| {}), Ok(0), "{what}");
        }
    }
    let (_, file) = capture.finish().unwrap();
    let blocks = Reader::new(&file[..]).all().unwrap();
    blocks
        .into_iter()
        .filter_map(|b| {
            if let Block::Frame(f) = b { Some((number(&f.bytes), f.lost.unwrap_or(0))) } else { None }
        })
        .collect()
}

isolated! {
    fn no_frame_before_a_loss_is_marked_and_the_loss_is_told_in_every_mode() {
        veth();
        for (what, mode) in MODES {
            let (mut expected, mut lost, mut told) = (0, 0, 0);
            for (number, mark) in flooded(what, mode) {
                let gap = u64::from(number - expected);
                if matches!(mode.receive, Receive::Plain | Receive::Mmsg) {
                    assert_eq!(mark, gap, "{what}: before frame {number}, expected {expected}");
                }
                (expected, lost, told) = (number + 1, lost + gap, told + mark);
                assert!(told <= lost, "{what}: {told} were lost before frame {number}, and only {lost} are missing");
            }
            assert!(lost > 1000 && told == lost && expected == 2 * FLOOD + 4, "{what}: {told} of {lost}, {expected}");
        }
    }
}
