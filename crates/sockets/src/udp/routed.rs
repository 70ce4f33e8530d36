//! Which sockets have a route that is up: those that are looked after before a sleep. Of these, only who has sent something that is not known to have
//! been read is *lively*: nothing of the others can be lost with a receiver.

use super::Record;
use super::places::{Place, Places};
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Sockets with a route that is up; and how many of them have found no place.
static ROUTED: Places = Places::new();
static MORE: AtomicU32 = AtomicU32::new(0);

/// Looks after those that have sent something lately, and that `is_meant`.
#[inline]
pub fn look_after(is_meant: impl Fn(&Record) -> bool) {
    if MORE.load(Relaxed) != 0 {
        return super::each(|r| {
            if r.has_routes() && is_meant(r) {
                r.look_after_routes();
            }
        });
    }
    for (at, r) in ROUTED.lively().filter(|(_, r)| is_meant(r)) {
        // Before the look: who sends meanwhile, and finds it lively still, has this look.
        ROUTED.calm(at);
        if r.look_after_routes() {
            stir(&r.outbound.place);
        }
    }
}

/// A socket has a route now, and had none.
pub fn comes(place: &Place, number: u32) {
    if !ROUTED.take(place, number) {
        MORE.fetch_add(1, AcqRel);
    }
}

/// It has none any more.
pub fn goes(place: &Place) {
    if !ROUTED.leave(place) {
        MORE.fetch_sub(1, AcqRel);
    }
}

/// It has sent something.
#[inline]
pub fn stir(place: &Place) {
    ROUTED.stir(place);
}
