//! What views see of a socket of datagrams of a service: as of the kernel's (`udp/shown.rs`), with the name of the service.

use super::super::rings::LONGEST_NS;
use super::super::shown;
use super::Record;
use crate::state;
use crate::table;
use crate::thread::Call;
use crate::udp::shown::{Shown, count};
use bypath_shm::family::datagram_path::{RECEIVES, SENDS};
use bypath_shm::reason::Reason;
use bypath_shm::service::Op;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering::*};

/// From this call on it is shown: one who asks and is answered once has gone before anybody looks.
const FROM: u32 = 4;

/// The part of a record that is about views.
#[derive(Debug, Default)]
pub(super) struct View {
    place: Shown,
    /// Calls until it is shown.
    calls: AtomicU32,
    /// Why it has no rings, or [`Reason::Ring`], until it is shown.
    reason: AtomicU16,
}

/// Which way a datagram goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Way {
    In,
    Out,
}

impl View {
    /// Of a new socket.
    pub fn reset(&self) {
        self.place.forget();
        self.calls.store(0, Relaxed);
        self.begins_with(Reason::BelowThreshold);
    }

    /// Why it has no rings, to begin with.
    pub fn begins_with(&self, reason: Reason) {
        self.reason.store(reason as u16, Relaxed);
    }

    /// It is gone. Under `state::LIFE`.
    pub fn hide(&self) {
        self.place.hide();
    }
}

impl Record {
    /// A call that sends or receives.
    #[inline]
    pub fn seen(&self, fd: i32) {
        if self.shown.calls.load(Relaxed) <= FROM {
            self.one_of_the_first(fd);
        }
    }

    #[cold]
    fn one_of_the_first(&self, fd: i32) {
        let calls = self.shown.calls.fetch_add(1, Relaxed) + 1;
        if calls < FROM || !self.is_served() || state::is_borrowed() {
            return;
        }
        {
            let Some(_life) = state::LIFE.try_lock(table::tid()) else { return };
            let reason = Reason::from_value(self.shown.reason.load(Relaxed)).unwrap_or(Reason::None);
            let reason = state::hindrance().unwrap_or(reason);
            let Some(end) = self.shown.place.begin(fd, reason) else { return };
            shown::name(&end.service, self.service.load(Relaxed));
            self.show_reason(reason);
        }
        self.show_names();
    }

    /// Its addresses are others now, or shown for the first time.
    pub(super) fn show_names(&self) {
        let Some(end) = self.shown.place.end() else { return };
        // No longer than views are worth.
        let mut question = self.question(Op::Names).within(LONGEST_NS);
        let Ok(mut body) = question.ask(self.service.load(Relaxed)).map(|answer| answer.body) else { return };
        let (Some(local), Some(remote)) = (body.address(), body.address()) else { return };
        shown::address(&end.local, local.0, self.family());
        shown::address(&end.remote, remote.0, self.family());
    }

    /// Why it has no rings, or [`Reason::Ring`].
    pub(super) fn show_reason(&self, reason: Reason) {
        self.shown.reason.store(reason as u16, Relaxed);
        let Some(end) = self.shown.place.end() else { return };
        end.reason.store(reason as u16, Relaxed);
        end.rx_reason.store(reason as u16, Relaxed);
        end.paths.store(if reason == Reason::Ring { SENDS | RECEIVES } else { 0 }, Relaxed);
    }

    /// Counts a datagram of `len` octets.
    #[inline]
    pub(super) fn count(&self, way: Way, by_ring: bool, len: usize, call: &Call) {
        if let Some(end) = self.shown.place.end() {
            count(if matches!(way, Way::In) { &end.rx } else { &end.tx }, by_ring, len);
        }
        call.thread.count(
            |b| match (way, by_ring) {
                (Way::In, true) => &b.ring_rx,
                (Way::In, false) => &b.pair_rx,
                (Way::Out, true) => &b.ring_tx,
                (Way::Out, false) => &b.pair_tx,
            },
            len as u64,
        );
    }

    /// A datagram of `len` octets came by the pair.
    #[inline]
    pub fn came_by_pair(&self, len: usize) {
        if let Some(call) = Call::enter() {
            self.count(Way::In, false, len, &call);
        }
    }
}

/// In a forked child: what views see is its parent's.
pub(super) fn enter_child() {
    (0..super::USED.load(Acquire)).filter_map(super::record).for_each(|r| {
        r.shown.place.forget();
        // It is shown again where it is used here.
        r.shown.calls.store(0, Relaxed);
    });
}
