//! Where a socket sends: its routes to mailboxes, and to whom it is connected.

use super::address::Name;
use super::inbound::take;
use super::network::Network;
use super::places::Place;
use crate::peer::Kept;
use bypath_shm::mailbox::Writer;
use bypath_shm::region::{MailboxMap, StaticCell};
use bypath_shm::ring::Ring;
use bypath_sys::{poll, strangers};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, Ordering::*};

/// Destinations of a socket that are looked after at a time.
const ROUTES: usize = 8;

/// What a route is.
pub(super) mod stage {
    /// Nobody's.
    pub const FREE: u32 = 0;
    /// Sends are counted.
    pub const COUNTING: u32 = 1;
    /// The receiver was asked.
    pub const ASKED: u32 = 2;
    /// There is a mailbox.
    pub const UP: u32 = 3;
    /// There was one: a thread may still be about to use it.
    pub const DOWN: u32 = 4;
}

/// A destination.
#[derive(Debug, Default)]
pub(super) struct Route {
    pub(super) stage: AtomicU32,
    pub(super) ip: [AtomicU64; 2],
    pub(super) port: AtomicU32,
    /// Sends so far, and how many there have to be for the next attempt, or look.
    pub(super) sends: AtomicU32,
    pub(super) due: AtomicU32,
    /// The connection to the receiver, plus one.
    pub(super) connection: AtomicI32,
    /// As whose it counts here.
    pub(super) share: Kept,
    /// The effective user of this process as it dialled.
    pub(super) asked_by: AtomicU32,
    /// He has not been told HELLO yet.
    pub(super) is_unsaid: AtomicBool,
    pub(super) mailbox: StaticCell<MailboxMap>,
    pub(super) left: AtomicU64,
    /// The source as the receiver knows it.
    pub(super) source: [AtomicU64; 3],
    /// SO_RCVBUF of the receiver.
    pub(super) room: AtomicU32,
    /// What a record's head has beside the source (`want`).
    pub(super) heads: AtomicU32,
    /// When (ticks) the receiver was asked, or looked after last.
    pub(super) checked: AtomicU64,
    /// Ticks from one look whether the receiver is there to the next.
    pub(super) every: AtomicU64,
    /// The receiver's SO_COOKIE, and whether others may have its port.
    pub(super) cookie: AtomicU64,
    pub(super) shares: AtomicBool,
    /// Nothing is to lie in the ring: the receiver's socket is another's, too, or may be.
    pub(super) offers: AtomicBool,
    /// Octets of a datagram at most; the kernel has to say something about longer ones.
    pub(super) longest: AtomicU32,
    /// Changes of the network before the kernel was asked for it.
    pub(super) changes: AtomicU32,
    /// This socket is another's, too, of whom nobody knows what he sends.
    pub(super) is_careful: AtomicBool,
    /// Of what a receiver that was killed has not read the first has gone by the kernel.
    pub(super) was_sent_again: AtomicBool,
    pub(super) offers_left_out: AtomicU32,
    pub(super) offers_in_vain: AtomicU32,
    /// Something went there that is not known to have been read.
    pub(super) fresh: AtomicBool,
    /// Who held the writers' lock when it was last found held.
    pub(super) holder: AtomicU32,
    /// The receiver's gate as the last datagram went by the kernel.
    pub(super) gate_before: AtomicU64,
    pub(super) pauses_left_out: AtomicU32,
    pub(super) pauses_in_vain: AtomicU32,
    /// Of [`Outbound::by_children`], those that it is known to come behind.
    pub(super) by_children: AtomicU32,
}

/// Where a socket sends.
#[derive(Debug, Default)]
pub struct Outbound {
    pub(super) routes: [Route; ROUTES],
    /// Routes that are up.
    pub(super) up: AtomicU32,
    /// Sends of children in this process's memory (vfork), wrapping: all by the kernel.
    pub(super) by_children: AtomicU32,
    /// Its place among those that have some.
    pub(super) place: Place,
    /// What it has lent (`stand_in`), plus one.
    pub(super) lent: AtomicI32,
    /// To whom it is connected: 0 not known, 1 nobody, 2 that one.
    pub(super) peer_known: AtomicU32,
    /// How often that was forgotten, and whether a thread is about to know it.
    pub(super) peer_forgotten: AtomicU32,
    pub(super) peer_asked: AtomicBool,
    pub(super) peer_ip: [AtomicU64; 2],
    /// When (ticks) it was last asked whether an error waits to be told; 0: something went by the kernel since.
    pub(super) error_asked: AtomicU64,
    pub(super) peer_port: AtomicU32,
}

impl Route {
    pub(super) fn name(&self) -> Name {
        Name {
            ip: [self.ip[0].load(Relaxed), self.ip[1].load(Relaxed)],
            port: self.port.load(Relaxed) as u16,
        }
    }

    /// From where its datagrams come.
    pub(super) fn own_source(&self) -> Name {
        let [high, low, port] = &self.source;
        Name { ip: [high.load(Relaxed), low.load(Relaxed)], port: port.load(Relaxed) as u16 }
    }

    #[inline]
    pub(super) fn is_to(&self, to: &Name) -> bool {
        self.ip[1].load(Relaxed) == to.ip[1]
            && self.port.load(Relaxed) == u32::from(to.port)
            && self.ip[0].load(Relaxed) == to.ip[0]
    }

    /// What is asked for now is as the network is.
    pub(super) fn is_asked_for(&self, network: &Network, is_v4: bool, refuses_pieces: bool) {
        let (most, headers) = if is_v4 { (65_507, 20 + 8) } else { (65_527, 40 + 8) };
        let whole = if refuses_pieces { network.mtu.saturating_sub(headers) } else { most };
        self.longest.store(most.min(whole), Relaxed);
        self.changes.store(network.changes, Relaxed);
    }

    pub(super) fn begin(&self, to: &Name, due: u32) {
        self.ip[0].store(to.ip[0], Relaxed);
        self.ip[1].store(to.ip[1], Relaxed);
        self.port.store(u32::from(to.port), Relaxed);
        let pauses = [&self.pauses_left_out, &self.pauses_in_vain];
        let offers = [&self.offers_left_out, &self.offers_in_vain];
        for word in [&self.sends, &self.holder].into_iter().chain(pauses).chain(offers) {
            word.store(0, Relaxed);
        }
        self.gate_before.store(0, Relaxed);
        self.was_sent_again.store(false, Relaxed);
        self.due.store(due, Relaxed);
        self.stage.store(stage::COUNTING, Release);
    }

    #[inline]
    pub(super) fn writer(&self, owner: u32) -> Option<(Writer<'static, Ring>, MailboxMap)> {
        let map = *self.mailbox.get()?;
        Some((Writer::new(map.mailbox(), map.ring(), owner.max(1)), map))
    }

    pub(super) fn close(&self) {
        take(&self.connection).into_iter().for_each(strangers::close_caller);
        drop(self.share.take());
    }

    /// Whether the receiver is to be looked after at this time (ticks).
    #[inline]
    pub(super) fn is_due(&self, now: u64) -> bool {
        now.wrapping_sub(self.checked.load(Relaxed)) > self.every.load(Relaxed)
    }

    /// Whether the receiver is gone, where it is to be looked after.
    #[inline]
    pub(super) fn is_found_orphaned(&self, now: u64) -> bool {
        self.is_due(now) && {
            self.checked.store(now, Relaxed);
            self.is_orphaned()
        }
    }

    /// Whether the receiver is gone.
    pub(super) fn is_orphaned(&self) -> bool {
        let own = self.connection.load(Relaxed) - 1;
        own < 0 || poll::now(own, 0) != 0
    }
}

impl Outbound {
    pub(super) fn reset(&self) {
        for route in &self.routes {
            route.stage.store(stage::FREE, Relaxed);
            route.connection.store(0, Relaxed);
            drop(route.share.take());
            route.mailbox.set(None);
        }
        self.up.store(0, Relaxed);
        self.lent.store(0, Relaxed);
        self.error_asked.store(0, Relaxed);
        self.forget_peer();
    }

    pub(super) fn forget_peer(&self) {
        // First: who has asked before this does not keep what he was told.
        self.peer_forgotten.fetch_add(1, SeqCst);
        self.peer_known.store(0, SeqCst);
    }

    pub(super) fn descriptors(&self, mut f: impl FnMut(i32)) {
        for word in self.routes.iter().map(|route| &route.connection).chain([&self.lent]) {
            if let Some(fd) = Some(word.load(Relaxed) - 1).filter(|fd| *fd >= 0) {
                f(fd);
            }
        }
    }

    pub(super) fn count(&self) -> u32 {
        self.routes.iter().filter(|route| route.stage.load(Relaxed) == stage::UP).count() as u32
    }

    #[inline]
    pub(super) fn route(&self, to: &Name) -> Option<&Route> {
        self.routes.iter().find(|route| route.stage.load(Acquire) == stage::UP && route.is_to(to))
    }
}
