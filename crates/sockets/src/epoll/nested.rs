//! Sets that the kernel looks at from outside: another set holds them, or poll and select are asked about them.
//!
//! Their sockets go back to the kernel. Until the other end has seen that it is to write there, which takes a call of its own, bytes
//! may lie in a ring, of which whoever looks from outside must learn: the set's bell, which is in the kernel's set, says so as long as
//! it is true.

use super::hot::would_report;
use super::{LOCK, REGS_USED, SETS_CAPACITY, Set, reg, regs_of, set};
use crate::others;
use crate::switch;
use crate::table::{self, Sock};
use bypath_shm::reason::Reason;
use std::sync::atomic::{AtomicBool, Ordering::*};

/// There is such a set, or was.
static NESTED: AtomicBool = AtomicBool::new(false);

/// Longest sleep in such a set with a ring (ns): its bell may be silenced just when it is rung.
pub const LONGEST_SLEEP_NS: u64 = 100_000_000;

/// The kernel looks at the set from outside: the sockets in it stay on the kernel, and what their rings still have is shown.
pub fn keep_on_kernel(number: u32) {
    let Some(s) = set(number) else { return };
    if !s.foreign.swap(true, AcqRel) {
        NESTED.store(true, SeqCst);
        recall_all(number);
        crate::udp::wait::leave_set(number);
    }
    show(number, s, true);
}

fn recall_all(number: u32) {
    let mut socks = [None; 64];
    let mut n = 0;
    if let Some(_held) = LOCK.lock(table::tid()) {
        for i in 0..REGS_USED.load(Relaxed) {
            if let Some(r) = reg(i)
                && r.set.load(Relaxed) == number + 1
                && let Some(sock) = table::by_number(r.sock.load(Relaxed))
                && n < socks.len()
            {
                socks[n] = Some(sock);
                n += 1;
            }
        }
    }
    for s in socks.iter().flatten() {
        switch::recall_both(s, Reason::RecalledEpoll, false);
    }
    if n == socks.len() {
        // More than fit: the rest one by one, as they are found through their own registrations.
        table::each_sock(|s| {
            if is_in(s, number) {
                switch::recall_both(s, Reason::RecalledEpoll, false);
            }
        });
    }
}

fn is_in(s: &Sock, number: u32) -> bool {
    LOCK.lock(table::tid()).is_some_and(|_held| regs_of(s).any(|(_, r)| r.set.load(Relaxed) == number + 1))
}

/// The bell says whether rings of the set have something to tell, whoever rang it. `anew`: also to who was told already.
fn show(number: u32, s: &'static Set, anew: bool) {
    if s.warm.load(SeqCst) == 0 || !s.has_bell.load(Relaxed) {
        return;
    }
    let tells = || {
        // Pairs with the fence of a writer between his bytes and his look at what he is asked.
        std::sync::atomic::fence(SeqCst);
        (0..REGS_USED.load(Relaxed)).filter_map(reg).any(|r| {
            r.set.load(Relaxed) == number + 1
                && table::by_number(r.sock.load(Relaxed))
                    .is_some_and(|sock| sock.conn.get().is_some_and(|conn| would_report(sock, conn, r)))
        })
    };
    let Some(_held) = LOCK.lock(table::tid()) else { return };
    let bell = s.bell_fd.load(Relaxed);
    if tells() {
        if anew || !s.shown.load(Relaxed) {
            s.shown.store(true, Relaxed);
            others::ring(bell);
        }
        return;
    }
    // Other ends ring it, too, and not only for what is there yet. Who sleeps in the set itself has to hear that.
    let sleeps = s.sleepers.load(SeqCst) != 0 || s.blind_waits.load(SeqCst) != 0;
    if !s.shown.swap(false, Relaxed) && sleeps {
        return;
    }
    others::silence(bell);
    if tells() {
        // It was rung for that just before.
        s.shown.store(true, Relaxed);
        others::ring(bell);
    }
}

/// Before the kernel is asked about a set that may hold others: of those, none says more than there is.
#[inline]
pub fn settle() {
    if NESTED.load(Relaxed) {
        settle_all();
    }
}

#[cold]
fn settle_all() {
    for number in 0..SETS_CAPACITY {
        let Some(s) = set(number) else { break };
        if s.in_use.load(Acquire) && s.foreign.load(Relaxed) {
            show(number, s, false);
        }
    }
}

/// A wait of the program in the set has ended, which takes the bell's edge away.
pub fn waited(number: u32, s: &'static Set) {
    if s.foreign.load(Relaxed) {
        show(number, s, true);
    }
}

/// Bytes were taken out of a ring.
#[inline]
pub fn taken(sock: &'static Sock) {
    if NESTED.load(Relaxed) {
        look(sock);
    }
}

#[cold]
fn look(sock: &'static Sock) {
    let mut sets = [0; 8];
    let mut n = 0;
    if let Some(_held) = LOCK.lock(table::tid()) {
        for (slot, (_, r)) in sets.iter_mut().zip(regs_of(sock)) {
            *slot = r.set.load(Relaxed);
            n += 1;
        }
    }
    for number in sets[..n].iter().filter_map(|n| n.checked_sub(1)) {
        if let Some(s) = set(number).filter(|s| s.foreign.load(Relaxed)) {
            show(number, s, false);
        }
    }
}
