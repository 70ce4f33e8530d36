//! What happens when nothing does: octets are sent again, probes go out, and in the end it is over.

use super::mtu::{BLACK_HOLE, MtuProbing};
use super::recovery::Phase;
use super::tcb::{Connection, Failure, Resend, State};
use crate::time::{Instant, sooner};
use core::time::Duration;

/// Times that octets are sent again before it is over: net.ipv4.tcp_retries2 of Linux, which is 15 minutes at least
/// (RFC 9293, 3.8.3: 100 s at least).
pub const RETRIES: u32 = 15;
/// Times that a SYN is sent again: net.ipv4.tcp_syn_retries of Linux (RFC 9293, 3.8.3: 3 minutes at least). Answers to one:
/// net.ipv4.tcp_synack_retries.
pub const SYN_RETRIES: u32 = 6;
/// See [`SYN_RETRIES`].
pub const SYN_ACK_RETRIES: u32 = 5;
/// How long an acknowledgement waits for octets to go with (RFC 9293, 3.8.6.3: less than 0.5 s): Linux's TCP_DELACK_MIN.
pub(super) const DELAYED_ACK: Duration = Duration::from_millis(40);
/// DEVIATION RFC 9293 3.4.2: twice the maximum segment lifetime is 4 min there; a minute is Linux's TCP_TIMEWAIT_LEN.
pub const TIME_WAIT: Duration = Duration::from_secs(60);
/// WCDelAckT of RFC 8985, 7.2.
const WORST_DELAYED_ACK: Duration = Duration::from_millis(200);

impl Connection {
    /// When [`Connection::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let d = &self.deadlines;
        sooner(sooner(d.resend.map(|(_, at)| at), d.reorder), sooner(d.ack, d.life))
    }

    /// Does what is due by now.
    pub fn handle_timeout(&mut self, now: Instant) {
        let is_due = |at: Instant| at <= now;
        if self.deadlines.ack.is_some_and(is_due) {
            self.deadlines.ack = None;
            self.wanted.ack = true;
            // Nothing was there to go with it.
            self.rcv.answers = false;
        }
        if self.deadlines.reorder.is_some_and(is_due) {
            self.deadlines.reorder = None;
            let flight = self.sent.octets();
            if self.look(now) && self.recovery.phase == Phase::Open {
                self.reordered_no_more(now, flight);
            }
        }
        if let Some((what, at)) = self.deadlines.resend
            && is_due(at)
        {
            self.deadlines.resend = None;
            match what {
                Resend::Timeout => self.retransmit(now),
                Resend::TailProbe => {
                    self.wanted.tail = true;
                    self.deadlines.resend = Some((Resend::Timeout, self.time_out(now)));
                }
                Resend::WindowProbe => self.probe_window(now),
            }
        }
        if self.deadlines.life.is_some_and(is_due) {
            self.deadlines.life = None;
            self.grow_old(now);
        }
    }

    fn retransmit(&mut self, now: Instant) {
        self.tries += 1;
        let (most, failure) = match self.state {
            State::SynSent => (SYN_RETRIES, Failure::TimedOut),
            State::SynReceived => (SYN_ACK_RETRIES, Failure::TimedOut),
            _ => (RETRIES, Failure::TimedOut),
        };
        let gone = self.patience().is_some_and(|until| until <= now);
        // Who waits for an answer to a SYN has both bounds, as in Linux.
        let counts = self.patience().is_none() || !self.is_synchronized();
        if gone || counts && self.tries > most {
            return self.end(Some(failure));
        }
        self.rtt.back_off();
        if matches!(self.state, State::SynSent | State::SynReceived) {
            self.wanted.syn = true;
        } else {
            self.lost_all(now);
            if self.tries > BLACK_HOLE && self.settings.mtu_probing != MtuProbing::Off {
                self.shrink(now);
            }
        }
        self.deadlines.resend = Some((Resend::Timeout, self.time_out(now)));
    }

    /// Until when what is waited for may come, if there is such a bound (RFC 5482).
    fn patience(&self) -> Option<Instant> {
        self.waiting.zip(self.settings.user_timeout).map(|(since, timeout)| since + timeout)
    }

    /// When what goes now is given up: not later than all of it, as in Linux.
    pub(super) fn time_out(&self, now: Instant) -> Instant {
        let at = now + self.rtt.rto();
        self.patience().map_or(at, |until| at.min(until.max(now)))
    }

    /// RFC 9293, 3.8.6.1: a window that is closed is asked for, again and again, as long as the other side answers.
    fn probe_window(&mut self, now: Instant) {
        if self.snd.nxt.before(self.snd.una + self.snd.wnd) {
            // It is not closed: what was too short to be sent has waited long enough (3.8.6.2.1).
            self.wanted.short = true;
            return;
        }
        self.tries += 1;
        let silent = match self.settings.user_timeout {
            Some(timeout) => now.since(self.heard) >= timeout,
            None => self.tries > RETRIES && now.since(self.heard) >= self.rtt.rto(),
        };
        if silent {
            return self.end(Some(Failure::TimedOut));
        }
        self.rtt.back_off();
        self.wanted.probe = true;
        self.deadlines.resend = Some((Resend::WindowProbe, now + self.rtt.rto()));
    }

    /// Keep-alive (RFC 9293, 3.8.4), or the end of TIME-WAIT.
    fn grow_old(&mut self, now: Instant) {
        if self.state == State::TimeWait {
            return self.end(None);
        }
        let Some(keepalive) = self.settings.keepalive else { return };
        let silence = now.since(self.heard);
        if silence < keepalive.idle || !self.sent.is_empty() {
            let since = if silence < keepalive.idle { self.heard } else { now };
            self.deadlines.life = Some(since + keepalive.idle);
            return;
        }
        if self.tries >= keepalive.probes {
            self.wanted.rst = Some((self.snd.nxt, Some(self.rcv.nxt)));
            return self.end(Some(Failure::TimedOut));
        }
        self.tries += 1;
        self.wanted.probe = true;
        self.deadlines.life = Some(now + keepalive.interval);
    }

    /// Probes when nothing happens begin, if they are wanted.
    pub(super) fn look_after(&mut self, now: Instant) {
        if let Some(keepalive) = self.settings.keepalive
            && self.is_synchronized()
            && self.state != State::TimeWait
        {
            self.deadlines.life = Some(now + keepalive.idle);
        }
    }

    /// Sets the first timer to what is waited for now: octets were sent, or acknowledged.
    pub(super) fn wait_for_answer(&mut self, now: Instant, advanced: bool) {
        if self.sent.is_empty() {
            self.waiting = None;
            // Octets that a closed window, or Nagle's algorithm, keeps back: nothing else will ask.
            let kept_back = !self.tx.is_empty() || self.finished && self.snd.fin.is_none();
            self.deadlines.resend = match self.deadlines.resend {
                Some((Resend::WindowProbe, at)) if kept_back => Some((Resend::WindowProbe, at)),
                _ if kept_back && self.is_synchronized() => Some((Resend::WindowProbe, now + self.rtt.rto())),
                _ => None,
            };
            return;
        }
        self.waiting.get_or_insert(now);
        // RFC 8985, 7.2: not while something is being recovered, nor before a round trip is known.
        let probes = self.sack
            && self.recovery.phase == Phase::Open
            && self.recovery.probe.is_none()
            && self.is_synchronized()
            && self.sent.sacked() == 0;
        if let (true, Some(srtt)) = (probes, self.rtt.srtt()) {
            let alone = self.sent.octets() <= self.snd.mss;
            let pto = 2 * srtt + if alone { WORST_DELAYED_ACK } else { Duration::from_millis(2) };
            // RFC 8985, 7.2: "If the time at which an RTO would fire is sooner than the computed time for the PTO, then a probe
            // SHOULD be scheduled to be sent at that earlier time." Octets that follow do not put that off.
            let since = if advanced { now } else { self.sent.first_at().unwrap_or(now) };
            let timeout = (since + self.rtt.rto()).max(now);
            self.deadlines.resend = Some((Resend::TailProbe, timeout.min(now + pto)));
        } else if advanced || !matches!(self.deadlines.resend, Some((Resend::Timeout, _))) {
            // RFC 6298, 5.1 and 5.3.
            self.deadlines.resend = Some((Resend::Timeout, self.time_out(now)));
        }
    }
}
