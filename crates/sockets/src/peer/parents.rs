//! What a forked child has of its parent's connections: everything that was mapped then, whatever it has closed.

use super::{PEERS, PEERS_USED};
use crate::table;
use bypath_shm::region;
use bypath_sys::{fd, strangers};
use std::sync::atomic::Ordering::*;

/// In a forked child that is about to become another user, or may: what it has of its parent's connections it keeps no longer, but
/// for those that it holds itself. Called under [`state::LIFE`].
pub fn let_go_of_parents() {
    let all = (0..PEERS_USED.load(Acquire)).filter_map(|i| PEERS.get(i as usize));
    for p in all.filter(|p| p.alive.load(Acquire) && p.is_inherited()) {
        let mut is_held = false;
        for record in p.ours.iter().chain(&p.theirs) {
            // By it the memory could be mapped again.
            let kept = record.fd.swap(0, AcqRel);
            if kept > 0 {
                fd::close(kept - 1);
            }
            let Some(arena) = record.arena.get() else { continue };
            let holds = |slot| {
                let mut found = false;
                table::each_sock(|s| {
                    found |= s.conn.get().is_some_and(|c| std::ptr::eq(c.arena, arena) && c.slot == slot);
                });
                found
            };
            let mut any = false;
            table::each_sock(|s| any |= s.conn.get().is_some_and(|c| std::ptr::eq(c.arena, arena)));
            is_held |= any;
            arena.let_go(|slot| any && holds(slot));
        }
        if !is_held && let Some(inbox) = p.inbox.get() {
            // The parent has it, too, if it lives.
            p.close_descriptors(|control| strangers::close(&[control]));
            p.inbox.set(None);
            region::let_go_of_inbox(inbox);
        }
    }
}
