//! Two programs of one netstack service that speak to each other: each direction goes by rings of both, and is shown once.
//!
//! Their rings count what went by them, each for itself, so that what is shown changes its place only where the old one has nothing to show.

use super::tap::Tap;
use crate::connections::{Sockets, Word};
use bypath_shm::view::Path;
use std::collections::HashMap;

/// What is known of one direction at the rings of one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    /// Somebody asks for it.
    wanted: bool,
    /// It is shown there.
    shown: bool,
    /// It goes by the ring now.
    on_ring: bool,
}

/// Whether a direction is shown where it is received, and not where it is sent.
fn where_received(sent: Place, received: Place) -> bool {
    let stays = |at: Place, other: Place| at.wanted && at.shown && (at.on_ring || !other.on_ring);
    if !(sent.wanted && received.wanted) {
        return received.wanted;
    }
    match (stays(sent, received), stays(received, sent)) {
        // Both were found at once.
        (true, true) => false,
        (true, false) => false,
        (false, true) => true,
        (false, false) => !sent.on_ring && received.on_ring,
    }
}

/// Says of each direction at which end it is shown.
pub fn share(taps: &mut [Tap], sockets: &Sockets, word: Word) {
    let named = |tap: &Tap| Some((tap.service.clone()?, tap.addresses[0], tap.addresses[1]));
    let by_name: HashMap<_, _> =
        taps.iter().enumerate().filter_map(|(at, tap)| Some((named(tap)?, at))).collect();
    for sender in 0..taps.len() {
        let Some((service, local, remote)) = named(&taps[sender]) else { continue };
        let Some(&receiver) = by_name.get(&(service, remote, local)) else {
            // The other end's rings are no more: what they showed is shown here.
            taps[sender].elsewhere = [false; 2];
            continue;
        };
        let place = |at: usize, d: usize| {
            let tap = &taps[at];
            let end = sockets.believed(word, tap.cookies[0]).map(|(_, end)| end);
            let direction = end.map(|end| if d == 0 { end.outgoing } else { end.incoming });
            let on_ring = direction.is_some_and(|direction| direction.path == Path::Ring);
            Place { wanted: tap.wanted[d], shown: tap.shows(d), on_ring }
        };
        let (sent, received) = (place(sender, 0), place(receiver, 1));
        let there = where_received(sent, received);
        let moves = if there { sent.shown && !received.shown } else { received.shown && !sent.shown };
        if moves {
            let [old, new] = if there { [(sender, 0), (receiver, 1)] } else { [(receiver, 1), (sender, 0)] };
            let position = taps[old.0].known.position(old.1);
            taps[new.0].known.go_on_at(new.1, position);
        }
        taps[sender].elsewhere[0] = there;
        taps[receiver].elsewhere[1] = !there && sent.wanted;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: Place = Place { wanted: true, shown: false, on_ring: false };
    const BUSY: Place = Place { wanted: true, shown: false, on_ring: true };

    #[test]
    fn a_direction_is_shown_where_it_goes_by_a_ring_and_stays_there() {
        let shown = |at: Place| Place { shown: true, ..at };
        // Found at once, or both anew.
        assert!(!where_received(BUSY, BUSY) && !where_received(shown(BUSY), shown(BUSY)));
        assert!(!where_received(IDLE, IDLE) && where_received(IDLE, BUSY));
        // Shown at one end already.
        assert!(where_received(BUSY, shown(BUSY)) && !where_received(shown(BUSY), BUSY));
        assert!(where_received(IDLE, shown(IDLE)) && !where_received(shown(IDLE), IDLE));
        // The ring there is not used any more, the other one is.
        assert!(!where_received(BUSY, shown(IDLE)) && where_received(shown(IDLE), BUSY));
        // Only one of them is asked for.
        let unwanted = Place { wanted: false, ..BUSY };
        assert!(where_received(unwanted, IDLE) && !where_received(shown(IDLE), unwanted));
    }
}
