//! What happens when octets are lost: fast recovery (RFC 6675, RFC 6582) with proportional rate reduction (RFC 6937),
//! probes for the tail (RFC 8985, 7), and taking it back when nothing was lost (RFC 3522, RFC 5682, RFC 4015).

use super::congestion::{Acked, initial_window};
use super::rack::DUP_THRESH;
use super::sent::Delivered;
use super::tcb::{Connection, Resend};
use crate::time::Instant;
use bypath_wire::seq::SeqNumber;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing is known to be lost.
    #[default]
    Open,
    /// Octets are lost, and acknowledgements tell that others arrive.
    Fast,
    /// Nothing was heard in time.
    Loss,
}

/// What is being found out after a time-out, where there are no timestamps (F-RTO, RFC 5682).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Trial {
    /// Nothing, or no more.
    #[default]
    None,
    /// The first octets, and no others, were sent again (2.1 and 3.1, step 1).
    First,
    /// They were acknowledged: new octets go before those that may be lost (step 2 b).
    New,
}

/// State of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Recovery {
    pub phase: Phase,
    pub trial: Trial,
    /// RecoveryPoint: it is over when this is acknowledged.
    pub point: SeqNumber,
    /// prr_delivered, prr_out and RecoverFS of RFC 6937, 2.
    delivered: u32,
    pub out: u32,
    flight: u32,
    /// Acknowledgements in vain, one after the other: without SACK.
    dups: u32,
    /// TSval of the first octets that were sent again: an answer to an older one was to those sent first.
    pub stamp: Option<u32>,
    /// Something was acknowledged since: it is known whether anything was lost.
    pub judged: bool,
    /// A probe of the tail is out: where it ended, and whether it was sent before.
    pub probe: Option<(SeqNumber, bool)>,
}

/// What an acknowledgement told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    pub delivered: Delivered,
    /// Octets between `snd.una` and `snd.nxt` before it.
    pub flight: u32,
    /// It acknowledged nothing new, and no octets or window came with it (RFC 5681, 2).
    pub duplicate: bool,
    /// It tells of octets that arrived twice (RFC 2883).
    pub dsack: bool,
    /// TSecr.
    pub tsecr: Option<u32>,
    /// ECE.
    pub ece: bool,
}

impl Recovery {
    /// Neither is a probe of the tail out, nor does anything hint at a loss.
    pub const fn is_undisturbed(&self) -> bool {
        self.dups == 0 && self.probe.is_none()
    }
}

impl Connection {
    /// An acknowledgement was taken; `snd.una` and the scoreboard know of it.
    pub(super) fn recover(&mut self, now: Instant, told: &Told) {
        let advanced = told.delivered.acked > 0;
        let grows = self.grows(told);
        if advanced {
            self.sent.in_vain_over(told.delivered.acked);
            self.recovery.dups = 0;
        }
        if self.arrived_before(told) || advanced && self.was_for_nothing(told) {
            self.sent.find_all();
            self.congestion.undo();
            self.recovery.phase = Phase::Open;
        }
        if advanced {
            self.recovery.judged = true;
        }
        if told.dsack {
            self.sent.rack_mut().dsack(self.snd.una, self.snd.nxt);
        }
        self.tail_answered(now, told);
        let mut burst = false;
        if self.recovery.phase != Phase::Open && self.snd.una.at_or_after(self.recovery.point) {
            if self.recovery.phase == Phase::Fast {
                // RFC 6937, 3.1, the end; RFC 6582, 3.2, step 3: measures are to be taken against a burst where little is on its way.
                let (most, all) =
                    (self.sent.pipe() + initial_window(self.snd.mss), self.congestion.ssthresh());
                burst = most < all;
                self.congestion.set_cwnd(most.min(all));
            }
            self.recovery.phase = Phase::Open;
            self.sent.rack_mut().recovered();
        }
        let found = if self.sack { self.look(now) } else { self.count(told) };
        if found && self.recovery.phase == Phase::Open && !self.longer_is_lost(now) {
            self.enter_fast(now, told.flight);
        }
        match self.recovery.phase {
            Phase::Fast => self.reduce(told),
            // RFC 3168, 6.1.2: the window grows by acknowledgements without ECE.
            // What ends a recovery may acknowledge all that was on its way: that is no measure for what may go.
            _ if advanced && !burst && !(told.ece && self.ecn.on) => {
                let limited = if self.congestion.is_slow_start() {
                    told.flight >= self.congestion.cwnd() / 2
                } else {
                    told.flight + self.snd.mss >= self.congestion.cwnd()
                };
                let acked = Acked {
                    octets: grows,
                    una: self.snd.una,
                    nxt: self.snd.nxt,
                    rtt: told.delivered.rtt,
                    srtt: self.srtt(),
                    limited,
                };
                self.congestion.acked(now, &acked);
            }
            _ => {}
        }
        if told.ece {
            self.marked(now);
        }
    }

    /// Octets by which the window may grow. Where nothing was lost, those that were not known to have arrived, as in Linux: what was told of
    /// before was no reason to grow then (RFC 5681, 3.1: acknowledgements of new data are), and is none for a burst now.
    fn grows(&self, told: &Told) -> u32 {
        let acked = told.delivered.acked;
        if self.recovery.phase != Phase::Open {
            return acked;
        }
        if self.sack {
            return told.delivered.octets;
        }
        // Each duplicate told of one segment, the acknowledgement itself of one at least.
        let before = self.recovery.dups.saturating_mul(self.snd.mss);
        acked.saturating_sub(before).max(self.snd.mss.min(acked))
    }

    /// RFC 3522, 3.2, step 5: the answer is to what was sent first.
    fn was_for_nothing(&self, told: &Told) -> bool {
        self.recovery.phase != Phase::Open
            && !self.recovery.judged
            && matches!((self.recovery.stamp, told.tsecr), (Some(stamp), Some(tsecr)) if (tsecr.wrapping_sub(stamp) as i32) < 0)
    }

    /// RFC 5682, 2.1 and 3.1, steps 2 and 3: something arrives that was sent before the time-out, and not again.
    fn arrived_before(&mut self, told: &Told) -> bool {
        let (trial, point) = (core::mem::take(&mut self.recovery.trial), self.recovery.point);
        // Who acknowledges everything does not say which copies arrived (step 2 a).
        if trial == Trial::None || self.recovery.phase != Phase::Loss || self.snd.una.at_or_after(point) {
            return false;
        }
        // What a receiver told of before the time-out is not told of again; without SACK, an acknowledgement of the copy is one of
        // whatever follows it.
        let before = told.delivered.once.is_some_and(|end| end.at_or_before(point));
        if before && (self.sack || !told.delivered.again) {
            return true;
        }
        self.recovery.trial = match trial {
            Trial::First if told.delivered.acked > 0 && self.has_new() => Trial::New,
            Trial::First if told.delivered.acked == 0 && (self.sack || !told.duplicate) => Trial::First,
            _ => Trial::None,
        };
        false
    }

    /// There are octets that were never sent, and the window takes some.
    fn has_new(&self) -> bool {
        self.snd.nxt.before(self.last_octet()) && self.snd.nxt.before(self.snd.una + self.snd.wnd)
    }

    /// What is lost by time; whether there is something new.
    pub(super) fn look(&mut self, now: Instant) -> bool {
        if self.sent.sacked() == 0 && self.recovery.phase == Phase::Open {
            self.deadlines.reorder = None;
            return false;
        }
        let segments = self.sent.sacked() / self.snd.mss.max(1);
        let recovering = self.recovery.phase != Phase::Open;
        let window = self.sent.rack().window(recovering, segments, self.srtt());
        let (found, again) = self.sent.detect(now, window);
        self.deadlines.reorder = again;
        found
    }

    /// Without SACK: RFC 5681, 3.2, and RFC 6582.
    fn count(&mut self, told: &Told) -> bool {
        if told.duplicate {
            self.recovery.dups += 1;
            self.sent.in_vain(self.snd.mss);
            if self.recovery.dups == DUP_THRESH && self.recovery.phase == Phase::Open {
                self.sent.lose_first(self.snd.mss);
                return true;
            }
        } else if told.delivered.acked > 0 && self.recovery.phase == Phase::Fast {
            // A partial acknowledgement: what follows was lost, too.
            self.sent.lose_first(self.snd.mss);
        }
        false
    }

    /// The time in which segments may overtake each other is over, and some were not heard of.
    pub(super) fn reordered_no_more(&mut self, now: Instant, flight: u32) {
        if self.longer_is_lost(now) {
            return;
        }
        self.enter_fast(now, flight);
        self.reduce(&Told::default());
    }

    fn enter_fast(&mut self, now: Instant, flight: u32) {
        self.congestion.congested(now, flight);
        self.recovery =
            Recovery { phase: Phase::Fast, point: self.snd.nxt, flight: flight.max(1), ..self.recovery };
        (self.recovery.delivered, self.recovery.out) = (0, 0);
        (self.recovery.stamp, self.recovery.judged) = (None, false);
        (self.recovery.probe, self.ecn.reduced) = (None, self.ecn.on);
    }

    /// RFC 6937, 3.1: how much may be sent follows from how much arrives.
    fn reduce(&mut self, told: &Told) {
        let mss = self.snd.mss;
        let arrived = told.delivered.octets + if told.duplicate && !self.sack { mss } else { 0 };
        let r = &mut self.recovery;
        r.delivered += arrived;
        let (pipe, ssthresh) = (self.sent.pipe(), self.congestion.ssthresh());
        let may = if pipe > ssthresh {
            let part = (u64::from(r.delivered) * u64::from(ssthresh)).div_ceil(u64::from(r.flight)) as u32;
            part.saturating_sub(r.out)
        } else {
            // PRR-SSRB, where an acknowledgement that gets on shows that nothing more is lost; else PRR-CRB.
            let more = if told.delivered.acked > 0 { mss } else { 0 };
            let limit = r.delivered.saturating_sub(r.out).max(arrived) + more;
            (ssthresh - pipe).min(limit)
        };
        // The first octets are sent again whatever the window is; and, without SACK, those that follow an acknowledgement which gets
        // on only in part (RFC 6582, 3.2, step 3).
        let partial = !self.sack && told.delivered.acked > 0;
        let may = if r.out == 0 || partial { may.max(mss) } else { may };
        self.congestion.set_cwnd(pipe + may);
    }

    /// RFC 8985, 7.4.2: whether what a probe of the tail repaired had been lost.
    fn tail_answered(&mut self, now: Instant, told: &Told) {
        let Some((end, again)) = self.recovery.probe else { return };
        if self.snd.una.before(end) {
            return;
        }
        let arrived_twice = told.dsack || self.snd.una == end && told.duplicate;
        if !again || arrived_twice {
            self.recovery.probe = None;
        } else if self.snd.una.after(end) {
            self.recovery.probe = None;
            if self.recovery.phase == Phase::Open {
                self.congestion.congested(now, told.flight);
                self.congestion.set_cwnd(self.congestion.ssthresh());
            }
        }
    }

    /// A router has marked a packet (RFC 3168, 6.1.2): once a round trip it counts as a loss.
    fn marked(&mut self, now: Instant) {
        if !self.ecn.on || self.recovery.phase != Phase::Open {
            return;
        }
        if self.ecn.until.is_some_and(|until| self.snd.una.before(until)) {
            return;
        }
        self.congestion.congested(now, self.sent.octets());
        self.congestion.set_cwnd(self.congestion.ssthresh());
        (self.ecn.until, self.ecn.reduced) = (Some(self.snd.nxt), true);
    }

    /// What is on its way will not arrive, and that is not the window's fault.
    pub(super) fn resend_all(&mut self, now: Instant) {
        self.sent.lose_all();
        self.resend_lost(now);
    }

    /// The same of what is lost already.
    pub(super) fn resend_lost(&mut self, now: Instant) {
        if self.recovery.phase == Phase::Open {
            // Nothing that was reduced could be taken back.
            self.recovery =
                Recovery { phase: Phase::Loss, point: self.snd.nxt, judged: true, ..Recovery::default() };
        }
        self.deadlines.reorder = None;
        self.deadlines.resend = Some((Resend::Timeout, now + self.rtt.rto()));
    }

    /// Nothing was heard in time (RFC 6298, 5.4 to 5.7; RFC 8985, 6.3).
    pub(super) fn lost_all(&mut self, now: Instant) {
        let again = self.recovery.phase == Phase::Loss;
        // Of what was sent again already nothing can be said (RFC 5682, 2.1, step 1); timestamps say it at once.
        let is_first = self.recovery.phase == Phase::Open || again && !self.recovery.judged;
        let trial = if is_first && self.timestamps.is_none() { Trial::First } else { Trial::None };
        self.congestion.timed_out(now, self.sent.octets(), again);
        self.sent.lose_all();
        self.recovery = Recovery { phase: Phase::Loss, trial, point: self.snd.nxt, ..Recovery::default() };
        self.ecn.reduced = self.ecn.on;
        self.deadlines.reorder = None;
    }
}
