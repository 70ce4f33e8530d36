//! How long a segment may be, found out by longer ones that arrive or do not (packetization layer path MTU discovery, RFC 4821):
//! what routers say of a path that is too narrow (`network.rs`) may never come (RFC 2923, 2.1).
//!
//! Lengths are those of the MSS: octets of payload and options.

use super::output::Segment;
use super::rack::DUP_THRESH;
use super::recovery::Phase;
use super::tcb::Connection;
use crate::time::Instant;
use alloc::boxed::Box;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::TcpFlags;
use core::time::Duration;

/// Whether longer segments than those that are known to arrive are tried (RFC 4821): net.ipv4.tcp_mtu_probing of Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MtuProbing {
    /// Never: what routers say of the path is all that is known of it.
    #[default]
    Off,
    /// When several time-outs in a row have shown that something on the way may swallow long segments: from short ones on.
    AfterTimeouts,
    /// Always. Who calls begins with short ones; who is called, with what the path is said to take.
    Always,
}

/// Octets of payload of the shortest segments: Linux's net.ipv4.tcp_mtu_probe_floor. DEVIATION RFC 4821 7.7: with IPv6 packets would be no
/// shorter than 1280 octets, which any link takes; as in Linux there may be something on the way that takes less.
const FLOOR: u32 = 48;
/// A range that is narrower is not searched any further (RFC 4821, 7.3): Linux's net.ipv4.tcp_probe_threshold.
const THRESHOLD: u32 = 8;
/// Paths change: so long after a search began there may be another one (RFC 4821, 7.3). Linux's net.ipv4.tcp_probe_interval.
const INTERVAL: Duration = Duration::from_secs(600);
/// Segments of the congestion window without which nothing is tried: as in Linux.
const WINDOW: u32 = 11;
/// Time-outs in a row that may be those of a black hole (RFC 4821, 7.7) are more: R1 of RFC 1122, 4.2.3.5, as in Linux
/// (net.ipv4.tcp_retries1).
pub(super) const BLACK_HOLE: u32 = 3;

/// What is known of lengths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Search {
    /// Such segments arrive: search_low.
    low: u32,
    /// Longer ones do not, or nobody takes them: search_high.
    pub(super) high: u32,
    /// Longer ones are sent to try them alone.
    most: u32,
    /// One is on its way.
    probe: Option<Probe>,
    /// When the search began.
    since: Instant,
}

/// A segment that is longer than others.
#[derive(Clone, Copy, Debug)]
struct Probe {
    seq: SeqNumber,
    end: SeqNumber,
    mss: u32,
}

/// What becomes of octets that could go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Attempt {
    /// Those in this segment are tried.
    Goes(Segment),
    /// They wait for a window that takes a long segment, and for what shows whether it arrived.
    Waits,
    /// They go as they would.
    Nothing,
}

impl Connection {
    /// Octets of payload and options that a segment has at most.
    pub(super) fn usable_mss(&self) -> u32 {
        let most = self.search.as_ref().map_or(u32::MAX, |search| search.most);
        self.snd.peer.min(self.snd.path).min(most)
    }

    /// What is short enough for any path.
    fn base_mss(&self) -> u32 {
        u32::from(self.settings.base_mss).max(FLOOR) + self.overhead()
    }

    /// The connection is open: a search begins, if it is wanted. `calls`: this side has asked for it.
    pub(super) fn begin_search(&mut self, now: Instant, calls: bool) {
        if self.settings.mtu_probing != MtuProbing::Always {
            return;
        }
        let low = self.base_mss().min(self.snd.peer);
        let most = if calls { low.min(self.snd.mss) } else { self.snd.mss };
        self.search = Some(Box::new(Search { low, high: self.snd.peer, most, probe: None, since: now }));
        if most < self.snd.mss {
            self.snd.mss = most;
            self.congestion.set_smss(self.smss());
        }
    }

    /// The application wants something else.
    pub(super) fn search_changed(&mut self, now: Instant) {
        match self.settings.mtu_probing {
            MtuProbing::Off => {
                self.search = None;
                self.snd.mss = self.usable_mss();
                self.congestion.rescale(self.smss());
            }
            MtuProbing::Always if self.search.is_none() && self.is_synchronized() => {
                self.begin_search(now, false);
            }
            _ => {}
        }
    }

    /// Nothing is lost, overtaken or marked, and headers are as they always are: what happens to a long segment is its length's
    /// doing (RFC 4821, 7.4: not while something is recovered).
    fn is_calm(&self) -> bool {
        self.recovery.phase == Phase::Open
            && self.recovery.is_undisturbed()
            && self.sent.lost() == 0
            && self.sent.sacked() == 0
            && !self.ahead.has_news()
            && !self.ecn.reduced
            && self.ecn.until.is_none()
    }

    /// The next octets in a segment that is longer than others, if it is time to try that (RFC 4821, 7.3 to 7.5).
    #[cold]
    pub(super) fn try_longer(&mut self, now: Instant) -> Attempt {
        let calm = self.is_calm();
        let (overhead, mss, path) = (self.overhead(), self.snd.mss, self.snd.path);
        let (cwnd, pipe) = (self.congestion.cwnd(), self.sent.pipe());
        let (peer, waiting) = (self.snd.peer, self.last_octet().distance(self.snd.nxt).max(0) as u32);
        let Some(search) = self.search.as_deref_mut() else { return Attempt::Nothing };
        if search.probe.is_some() || !calm || cwnd < WINDOW * mss.saturating_sub(overhead) {
            return Attempt::Nothing;
        }
        let middle = |search: &Search| u32::midpoint(search.low, search.high.min(path));
        if middle(search) <= mss {
            // As long as those that go all the time.
            search.low = search.low.max(mss);
        }
        let size = middle(search);
        if size <= mss || search.high.min(path) < search.low + THRESHOLD {
            if now.since(search.since) >= INTERVAL {
                (search.low, search.high, search.since) = (mss, peer, now);
            }
            return Attempt::Nothing;
        }
        // As many must follow as show that it is lost, if it is.
        let len = size.saturating_sub(overhead);
        let needed = len + (DUP_THRESH + 1) * mss.saturating_sub(overhead);
        if len == 0 || waiting < needed || self.snd.wnd < needed || size > cwnd {
            return Attempt::Nothing;
        }
        let edge = self.snd.una + self.snd.wnd;
        if (self.snd.nxt + needed).after(edge) || pipe + size > cwnd {
            return if pipe == 0 { Attempt::Nothing } else { Attempt::Waits };
        }
        let end = self.snd.nxt + len;
        search.probe = Some(Probe { seq: self.snd.nxt, end, mss: size });
        let mut segment = self.header(now, self.snd.nxt, TcpFlags::ACK);
        segment.from = self.snd.nxt.since(self.first_octet()) as usize;
        (segment.len, segment.cut, segment.ect) = (len as usize, len as usize, self.ecn.on);
        self.went(now, end, len);
        Attempt::Goes(segment)
    }

    /// Something was acknowledged: if it is all of the long segment, all may be as long (RFC 4821, 7.6.1). The window stays what it
    /// is, in octets.
    #[cold]
    pub(super) fn longer_arrived(&mut self) {
        let una = self.snd.una;
        let Some(search) = self.search.as_deref_mut() else { return };
        let Some(probe) = search.probe.take_if(|probe| una.at_or_after(probe.end)) else { return };
        (search.low, search.most) = (probe.mss, probe.mss);
        self.snd.mss = self.usable_mss();
        self.congestion.rescale(self.smss());
    }

    /// Something is sent again: whatever arrives says nothing of the long segment (RFC 4821, 7.6.4).
    #[cold]
    pub(super) fn search_is_disturbed(&mut self) {
        if let Some(search) = self.search.as_deref_mut() {
            search.probe = None;
        }
    }

    /// Octets are lost: true if they are those of the long segment alone, which was too long, and is no sign of
    /// congestion (RFC 4821, 7.6.2).
    pub(super) fn longer_is_lost(&mut self, now: Instant) -> bool {
        let una = self.snd.una;
        let Some(search) = self.search.as_deref_mut() else { return false };
        let Some(probe) = search.probe.take_if(|probe| probe.seq == una) else { return false };
        self.sent.lose_between(probe.seq, probe.end);
        // RFC 4821, 7.6.4: with others it may have been congestion. Linux takes it for too long all the same.
        if self.sent.lost() > probe.end.since(probe.seq) {
            return false;
        }
        search.high = probe.mss - 1;
        self.resend_lost(now);
        true
    }

    /// The path is said to take less than the long segment has: it is lost.
    #[cold]
    pub(super) fn longer_is_too_long(&mut self, now: Instant) {
        let path = self.snd.path;
        let Some(search) = self.search.as_deref_mut() else { return };
        let Some(probe) = search.probe.take_if(|probe| probe.mss > path) else { return };
        self.sent.lose_between(probe.seq, probe.end);
        self.resend_lost(now);
    }

    /// Nothing was heard for several time-outs: something on the way may swallow long segments and say nothing of it (RFC 4821, 7.7;
    /// RFC 2923, 2.1). Shorter ones go, and shorter still if those are not heard of, either.
    #[cold]
    pub(super) fn shrink(&mut self, now: Instant) {
        let (overhead, mss, high, base) = (self.overhead(), self.snd.mss, self.snd.peer, self.base_mss());
        let shorter =
            if mss > base { base } else { (mss.saturating_sub(overhead) / 2).max(FLOOR) + overhead }.min(mss);
        let search = self.search.get_or_insert_with(|| {
            Box::new(Search { low: shorter, high, most: shorter, probe: None, since: now })
        });
        (search.low, search.most, search.probe) = (shorter, shorter, None);
        self.snd.mss = shorter;
        self.congestion.rescale(self.smss());
        // RFC 5681, 3.1: the loss window is one segment.
        self.congestion.set_cwnd(shorter);
    }
}
