//! How large the buffers of a connection are (autotuning): they begin small, and grow with what the path and the application
//! take, up to what the settings say.
//!
//! A receive buffer is to hold what comes in the time in which the other side hears of its window: a round trip. How much
//! that is, is what the application reads in one; it has room for twice that, so that what was lost can be sent again
//! meanwhile, and for more while it becomes more from one round trip to the next (slow start doubles it). A send buffer has
//! room for two congestion windows: what is on its way, and what goes next.

use super::tcb::{Connection, Settings};
use crate::time::Instant;
use alloc::boxed::Box;
use bypath_wire::seq::SeqNumber;

/// Octets that a receive buffer takes at first: the second number of Linux's net.ipv4.tcp_rmem.
const FIRST_RECEIVE: usize = 131_072;
/// Octets that a send buffer takes at first: with Linux's net.ipv4.tcp_wmem it has come to about as much when a connection is open.
const FIRST_SEND: usize = 131_072;
/// Octets that a connection may have which nobody has accepted, whatever its listener wants: what Linux begins with, and the largest window
/// that the answer to a SYN can tell.
const OF_CALLER: u32 = 65_536;
/// The largest window that can be told (RFC 7323, 2.3), octets.
const MOST: usize = 1 << 30;
/// Connections over which less has come do not need more than they begin with.
const LITTLE: u64 = 65_536;
/// Round trips by timestamps, which count milliseconds, say nothing below, nanoseconds.
const COARSE: u64 = 2_000_000;

/// What is measured of a connection over which much comes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tuning {
    /// When this round trip began.
    begun: Instant,
    /// Octets that were read since.
    read: u32,
    /// The most that was read in one before.
    before: u32,
    /// Round trips by the echoes of our timestamps, smoothed, nanoseconds.
    by_echo: Option<u64>,
    /// The shortest time that a whole window took, nanoseconds: the other side had to hear of a newer one, so no round trip takes
    /// longer.
    by_window: Option<u64>,
    /// The right edge of the window as it was then.
    edge: SeqNumber,
    edge_at: Instant,
}

impl Tuning {
    fn new(now: Instant, edge: SeqNumber, mss: u32) -> Tuning {
        // Ten segments are what anybody begins with (RFC 6928).
        let before = 10 * mss;
        Tuning { begun: now, read: 0, before, by_echo: None, by_window: None, edge, edge_at: now }
    }

    /// Octets came with an echo of a timestamp that was ours so many milliseconds ago.
    #[inline]
    pub fn echoed(&mut self, milliseconds: u32) {
        let rtt = u64::from(milliseconds) * 1_000_000;
        self.by_echo = Some(self.by_echo.map_or(rtt, |smoothed| smoothed - smoothed / 8 + rtt / 8));
    }

    /// A round trip, as far as is known, nanoseconds.
    fn rtt(&self) -> Option<u64> {
        self.by_echo.filter(|rtt| *rtt >= COARSE).or(self.by_window)
    }
}

/// What the buffers for sending and receiving take at first.
pub(super) fn first(settings: &Settings) -> (u32, u32) {
    let begin = |size: usize, tuned: bool, first: usize| {
        let size = size.min(MOST);
        (if tuned { size.min(first) } else { size }) as u32
    };
    (
        begin(settings.send_octets, settings.tune_send, FIRST_SEND),
        begin(settings.receive_octets, settings.tune_receive, FIRST_RECEIVE),
    )
}

impl Connection {
    /// Nobody has accepted it: as long as that is so its window is a small one.
    pub(super) fn limit_caller(&mut self) {
        self.rcv.room = self.rcv.room.min(OF_CALLER);
    }

    /// It is accepted: the window is what its listener wants.
    pub(super) fn accepted(&mut self) {
        self.rcv.room = self.rcv.room.max(first(&self.settings).1);
        // Who can go on hears of it with what he sends next; who cannot, or soon, at once.
        if self.rcv.edge.distance(self.rcv.nxt) < OF_CALLER as i32 / 2 {
            self.offer_more();
        }
    }

    /// The congestion window may have grown.
    #[inline]
    pub(super) fn tune_send(&mut self) {
        let want = self.congestion.cwnd().saturating_mul(2);
        if want > self.snd.room && self.settings.tune_send {
            self.snd.room = want.min(self.settings.send_octets.min(MOST) as u32);
        }
    }

    /// Its window may grow with what is read.
    #[inline]
    pub(super) fn tunes(&self) -> bool {
        let most = self.settings.receive_octets.min(MOST) as u32;
        self.rcv.room < most && self.settings.tune_receive && self.counts.received >= LITTLE
    }

    /// The application has read so many octets. `spare`: so many more may be promised to the other side.
    #[inline]
    pub fn tune_receive(&mut self, now: Instant, octets: usize, spare: usize) {
        if self.tunes() {
            let most = self.settings.receive_octets.min(MOST) as u32;
            self.measure(now, octets, spare.min((most - self.rcv.room) as usize) as u32);
        }
    }

    fn measure(&mut self, now: Instant, octets: usize, most: u32) {
        let (edge, nxt, mss) = (self.rcv.edge, self.rcv.nxt, self.rcv.mss);
        if most == 0 || !self.is_synchronized() {
            return;
        }
        let tuning = self.tuning.get_or_insert_with(|| Box::new(Tuning::new(now, edge, mss)));
        tuning.read = tuning.read.saturating_add(octets as u32);
        if nxt.after(tuning.edge) {
            let took = now.since(tuning.edge_at).as_nanos() as u64;
            tuning.by_window = Some(tuning.by_window.map_or(took, |shortest| shortest.min(took)));
            (tuning.edge, tuning.edge_at) = (edge, now);
        }
        let Some(rtt) = tuning.rtt() else { return };
        if (now.since(tuning.begun).as_nanos() as u64) < rtt {
            return;
        }
        let (read, before) = (u64::from(tuning.read.min(MOST as u32)), u64::from(tuning.before.max(1)));
        (tuning.begun, tuning.read) = (now, 0);
        if read <= before {
            return;
        }
        tuning.before = read as u32;
        // What is told now is heard when the next round trip is under way already, and counts for the one after that: of
        // what grows twofold now, there will be four times as much then, and half as much again may be lost meanwhile.
        let want = 2 * read + 4 * read * (read - before).min(before) / before + 16 * u64::from(mss);
        let more = want.saturating_sub(self.rcv.room.into()).min(most.into());
        self.rcv.room += more as u32;
        if more > 0 {
            self.offer_more();
        }
    }

    /// Sizes that an application has chosen stay; of others it begins anew. A window is never taken back all the same.
    pub(super) fn resize(&mut self, before: &Settings) {
        let (send, receive) = first(&self.settings);
        let now = &self.settings;
        if now.send_octets != before.send_octets || now.tune_send != before.tune_send {
            self.snd.room = send;
        }
        if now.receive_octets != before.receive_octets || now.tune_receive != before.tune_receive {
            (self.rcv.room, self.tuning) = (receive, None);
        }
    }
}

impl Settings {
    /// These, where others were before: a size that is another one is what the application wants, and is not tuned.
    pub(super) const fn chosen(self, before: &Settings) -> Settings {
        Settings {
            tune_send: self.tune_send && self.send_octets == before.send_octets,
            tune_receive: self.tune_receive && self.receive_octets == before.receive_octets,
            ..self
        }
    }
}
