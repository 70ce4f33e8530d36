//! Who gets a datagram hangs on the host's links, addresses, routes and rules. A route by memory is as old as what the kernel said of it: when any of those
//! has changed since, it is over, and the kernel is asked anew.

use crate::{state, table};
use bypath_shm::reason::Reason;
use bypath_sys::{changes, clock, sock};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// So long (microseconds) what was heard of changes is relied on.
const LOOK_US: u64 = 100;

/// Changes so far, wrapping.
static CHANGES: AtomicU32 = AtomicU32::new(0);
/// When (ticks) it was last asked for them.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// Before the kernel is asked for a route.
#[derive(Clone, Copy, Debug)]
pub struct Network {
    /// Changes so far.
    pub changes: u32,
    /// Octets of a packet from this host to itself, at most.
    pub mtu: u32,
}

impl Network {
    /// As it is now. Under [`state::LIFE`].
    ///
    /// # Errors
    /// Nothing is heard of changes; the loopback device is down.
    pub fn look() -> Result<Network, Reason> {
        let watch = state::watch().map_err(crate::rendezvous::errno_reason)?;
        hear(watch);
        let changes = CHANGES.load(Acquire);
        changes::loopback_mtu(watch).map(|mtu| Network { changes, mtu }).ok_or(Reason::NotConnected)
    }
}

/// Of who asks for a socket: the other one, which is where the thread was that made it, is where that one is.
///
/// # Errors
/// `OtherNamespace`: it is elsewhere, or nobody knows (before Linux 5.14).
pub(super) fn is_where(fd: i32, other: i32) -> Result<(), Reason> {
    let [own, other] = [fd, other].map(|fd| sock::network_namespace(fd).map_err(|_| Reason::OtherNamespace));
    if own? == other? { Ok(()) } else { Err(Reason::OtherNamespace) }
}

/// Whether nothing has changed since there were so many changes.
#[inline]
pub fn is_as_at(number: u32, now: u64) -> bool {
    if now.wrapping_sub(LOOKED.load(Relaxed)) > LOOK_US * state::ticks_per_us() {
        look();
    }
    CHANGES.load(Acquire) == number
}

/// Nothing is known of before: another process, or another namespace.
pub fn forget() {
    CHANGES.fetch_add(1, AcqRel);
}

#[cold]
fn look() {
    // Who has the lock is about to ask, or to forget.
    let Some(_life) = state::LIFE.try_lock(table::tid()) else { return };
    match state::watch() {
        Ok(watch) => hear(watch),
        Err(_) => forget(),
    }
}

fn hear(watch: i32) {
    let now = clock::ticks();
    if changes::any(watch) {
        forget();
    }
    LOOKED.store(now, Relaxed);
}
