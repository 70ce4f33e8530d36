//! Sends to a socket, or of one, that other processes have, too, or may get (`holders`): a datagram is *offered*. It is in the ring only
//! while its send goes on; what nobody takes meanwhile goes by the kernel. So it never waits where only one of several can find it.

use super::Record as Socket;
use super::holders;
use super::route::Route;
use crate::state;
use bypath_shm::mailbox::{Pushed, Writer};
use bypath_shm::ring::Ring;
use bypath_sys::clock;
use std::sync::atomic::Ordering::*;

/// An offer stands so long (microseconds): a receiver that looks takes it in a fraction of that.
const OFFER_US: u64 = 10;
/// Offers in vain are followed by 2^n sends without one, up to this n.
const OFFERS: u32 = 6;

impl Socket {
    /// A datagram that is not to lie in the ring: only while somebody takes it.
    pub(super) fn offer(
        &self,
        route: &Route,
        writer: &Writer<'static, Ring>,
        head: &[u8],
        len: usize,
        fill: impl FnOnce(&Ring, u64),
    ) -> Pushed {
        let left_out = route.offers_left_out.load(Relaxed);
        if left_out > 0 {
            route.offers_left_out.store(left_out - 1, Relaxed);
            return Pushed::Kernel;
        }
        let (start, bound) = (clock::ticks(), OFFER_US * state::ticks_per_us());
        let mut is_in_vain = false;
        let waits = || {
            std::hint::spin_loop();
            is_in_vain = clock::ticks().wrapping_sub(start) >= bound;
            !is_in_vain
        };
        let pushed = writer.offer_with(&route.left, head, len, fill, waits);
        if pushed == Pushed::Sent {
            route.offers_in_vain.store(0, Relaxed);
        } else if is_in_vain {
            let in_vain = (route.offers_in_vain.load(Relaxed) + 1).min(OFFERS);
            route.offers_in_vain.store(in_vain, Relaxed);
            route.offers_left_out.store(1 << in_vain, Relaxed);
        }
        pushed
    }

    /// By the kernel though there is a mailbox: now and then it is asked whether others still hold the socket. What they have sent may not have been
    /// read yet, so the route is not used on, but made anew.
    pub(super) fn ask_whether_careful(&self, route: &Route) {
        if !route.is_careful.load(Relaxed) || self.spread.load(Relaxed) {
            return;
        }
        let sends = route.sends.load(Relaxed).wrapping_add(1);
        route.sends.store(sends, Relaxed);
        if holders::is_to_ask(sends) {
            let is_shared = state::LIFE.try_lock(crate::table::tid()).is_none_or(|_life| self.is_shared());
            if !is_shared {
                self.drop_route(route);
            }
        }
    }
}
