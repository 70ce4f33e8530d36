//! What the stack and applications ask of a connection.

use super::answer::Sizes;
use super::buffer::LEAST;
use super::clock::TIME_WAIT;
use super::congestion::Algorithm;
use super::ends::Ends;
use super::input::Arrival;
use super::table::Options;
use super::tcb::{Connection, Failure, Settings, State};
use super::time_wait::Waiting;
use crate::socket::SocketError;
use crate::time::Instant;
use alloc::sync::Arc;
use core::time::Duration;

/// How a connection does, in the manner of TCP_INFO (tcp(7)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// RFC 9293, 3.3.2.
    pub state: State,
    /// Smoothed round trip; `None`: not measured yet.
    pub srtt: Option<Duration>,
    /// Its variance.
    pub rttvar: Duration,
    /// The shortest of the last minutes.
    pub min_rtt: Option<Duration>,
    /// How long an acknowledgement is waited for.
    pub rto: Duration,
    /// Which congestion control.
    pub algorithm: Algorithm,
    /// Octets that may be on their way.
    pub cwnd: u32,
    /// The largest number until something was lost.
    pub ssthresh: u32,
    /// Octets of payload of a segment that is sent, options not counted off.
    pub mss: u32,
    /// The largest that came, as far as is known.
    pub rcv_mss: u32,
    /// Octets that the other side takes.
    pub snd_wnd: u32,
    /// Octets that the other side was told it may send.
    pub rcv_wnd: u32,
    /// Octets that were written and are not acknowledged.
    pub unacknowledged: usize,
    /// Of those, octets that were not sent yet.
    pub unsent: usize,
    /// Octets on their way.
    pub in_flight: u32,
    /// Octets that are lost and were not sent again yet.
    pub lost: u32,
    /// Octets that arrived beyond gaps.
    pub sacked: u32,
    /// Octets that came and were not read, urgent ones included.
    pub unread: usize,
    /// Octets that may be written and not acknowledged, and that may come and not be read, at present: see [`Settings::tune_send`].
    pub rooms: (usize, usize),
    /// Octets that were acknowledged, in all.
    pub octets_acknowledged: u64,
    /// Octets that came in their order, in all.
    pub octets_received: u64,
    /// Octets that were sent again, in all.
    pub octets_again: u64,
    /// Segments that came, and were sent; the stack counts them.
    pub segments_in: u64,
    /// See there.
    pub segments_out: u64,
    /// Agreed on: SACK, timestamps, ECN.
    pub sack: bool,
    /// See there.
    pub timestamps: bool,
    /// See there.
    pub ecn: bool,
    /// How far windows are shifted, theirs and ours.
    pub shifts: (u8, u8),
}

impl Connection {
    /// How it does.
    pub fn statistics(&self) -> Statistics {
        let unsent = self.last_octet().distance(self.snd.nxt).max(0) as usize;
        Statistics {
            state: self.state,
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            min_rtt: self.sent.rack().min_rtt(),
            rto: self.rtt.rto(),
            algorithm: self.congestion.algorithm(),
            cwnd: self.congestion.cwnd(),
            ssthresh: self.congestion.ssthresh(),
            mss: self.snd.mss,
            rcv_mss: self.rcv.mss,
            snd_wnd: self.snd.wnd,
            rcv_wnd: self.rcv.edge.distance(self.rcv.nxt).max(0) as u32,
            unacknowledged: self.tx.len(),
            unsent: unsent.min(self.tx.len()),
            in_flight: self.sent.pipe(),
            lost: self.sent.lost(),
            sacked: self.sent.sacked(),
            unread: self.rx.len(),
            rooms: (self.snd.room as usize, self.rcv.room as usize),
            octets_acknowledged: self.counts.acked,
            octets_received: self.counts.received,
            octets_again: self.counts.again,
            segments_in: 0,
            segments_out: 0,
            sack: self.sack,
            timestamps: self.timestamps.is_some(),
            ecn: self.ecn.on,
            shifts: (self.snd.shift, self.rcv.shift),
        }
    }

    /// Whether [`Connection::poll_transmit`] may have a segment. It may have none, as windows and timers are not looked at.
    #[inline]
    pub fn wants_transmit(&self) -> bool {
        let wanted = &self.wanted;
        if wanted.rst.is_some() {
            return true;
        }
        match self.state {
            State::Closed => false,
            State::SynSent => wanted.syn,
            State::SynReceived => !self.held && (wanted.syn || wanted.ack),
            _ => {
                wanted.ack
                    || wanted.probe
                    || wanted.tail
                    || self.sent.lost() > 0
                    || self.snd.nxt.before(self.last_octet())
                    || self.finished && self.snd.fin.is_none()
            }
        }
    }

    /// The other side has finished, and everything of it is there.
    #[inline]
    pub fn is_finished(&self) -> bool {
        self.rcv.fin.is_some_and(|fin| self.rcv.nxt.after(fin))
    }

    /// The application has finished.
    pub const fn is_shut(&self) -> bool {
        self.finished
    }

    /// There is a failure to be told.
    pub const fn has_failed(&self) -> bool {
        self.failure.is_some()
    }

    /// Octets that may be written and not acknowledged.
    pub fn most_unacknowledged(&self) -> usize {
        self.snd.room as usize
    }

    /// Copies octets that came; they stay.
    pub fn peek(&self, room: &mut [u8]) -> usize {
        if self.urgent.is_some() {
            return self.peek_to_mark(room);
        }
        self.rx.copy_out(0, room)
    }

    /// Octets of memory in its buffers.
    #[inline]
    pub fn octets_held(&self) -> usize {
        self.tx.capacity() + self.rx.capacity()
    }

    /// How long nothing has come, and no octets went.
    pub fn silence(&self, now: Instant) -> Duration {
        now.since(self.heard.max(self.wrote))
    }

    /// Gives the memory of empty buffers back: nothing has happened for a while, or there is not enough.
    pub fn release(&mut self) {
        self.tx.release();
        self.sent.release();
        if self.ahead.is_empty() {
            self.rx.release();
        }
        self.ahead.release();
        self.tuning = None;
        if self.sent.is_empty() {
            self.congestion.release();
        }
    }

    /// Octets that can be written without more memory than every buffer may have.
    pub fn spare_room(&self) -> usize {
        self.tx.capacity().max(LEAST) - self.tx.len()
    }

    /// Octets at the front of a segment that need no more memory than every buffer may have.
    pub fn affordable(&self, a: &Arrival) -> usize {
        let spare = self.rx.capacity().max(LEAST) - self.rx.len();
        let ahead = (self.rcv.nxt + spare as u32).distance(a.header.seq).max(0) as usize;
        ahead.min(a.payload.len())
    }

    /// Octets of payload of a segment, options included.
    pub const fn mss(&self) -> usize {
        self.snd.mss as usize
    }

    /// The next octets say that the window was reduced (RFC 3168, 6.1.2).
    pub const fn tells_of_reduction(&self) -> bool {
        self.ecn.reduced
    }

    /// Bounds and wishes.
    pub fn settings(&self) -> Settings {
        Settings { mss: self.own_mss, ..*self.settings }
    }

    /// Others; what was agreed on stays.
    pub fn set_settings(&mut self, now: Instant, settings: Settings) {
        let before = *self.settings;
        let Settings { mss, sack, timestamps, window_scale, ecn, keepalive, nodelay, mtu_probing, .. } =
            before;
        if settings.nodelay && !nodelay {
            // As Linux has it: also what is corked.
            self.push();
        }
        let chosen = settings.chosen(&before);
        self.settings = Arc::new(Settings { mss, sack, timestamps, window_scale, ecn, ..chosen });
        self.resize(&before);
        self.congestion.set_algorithm(settings.algorithm);
        if settings.mtu_probing != mtu_probing {
            self.search_changed(now);
        }
        if settings.keepalive != keepalive && self.state != State::TimeWait {
            self.deadlines.life = None;
            self.look_after(now);
        }
    }

    /// What has to be kept of it in TIME-WAIT.
    pub(super) fn waiting(&self, now: Instant, ends: Ends, options: &Options) -> Waiting {
        let window = self.rcv.edge.distance(self.rcv.nxt).max(0) as u32 >> self.rcv.shift;
        Waiting {
            ends,
            snd_nxt: self.snd.nxt,
            rcv_nxt: self.rcv.nxt,
            window: window.min(65_535) as u16,
            timestamps: self.timestamps,
            ts_offset: self.ts_offset,
            since: now,
            until: self.deadlines.life.unwrap_or(now + TIME_WAIT),
            challenged: self.challenged,
            iface: options.iface,
            reuse_address: options.reuse_address,
            reuse_port: options.reuse_port,
        }
    }

    // What the network says.

    /// Whether an octet, or a SYN or FIN, with this number is on its way (RFC 5927, 4.1).
    pub fn is_on_its_way(&self, seq: bypath_wire::seq::SeqNumber) -> bool {
        seq.is_within(self.snd.una, self.snd.nxt.since(self.snd.una))
    }

    /// What is known of its way, before anything was sent.
    pub(super) fn set_sizes(&mut self, sizes: &Sizes) {
        if let Some(segments) = sizes.initial_window {
            self.congestion.set_initial(segments);
        }
        self.set_path_mss(sizes.path);
    }

    /// Octets of payload that a packet of the path takes, before anything was sent.
    pub fn set_path_mss(&mut self, mss: u16) {
        self.snd.path = mss.into();
        self.snd.mss = self.usable_mss();
        self.congestion.set_smss(self.smss());
    }

    /// The path takes packets of another length. What is on its way in longer ones is sent again in shorter ones (RFC 1191, 6.5);
    /// the window stays as it is, as nothing was congested.
    pub fn path_changed(&mut self, now: Instant, mss: u16) {
        let before = self.snd.mss;
        if u32::from(mss) == self.snd.path {
            return;
        }
        self.set_path_mss(mss);
        if self.snd.mss < before && self.is_synchronized() && !self.sent.is_empty() {
            self.resend_all(now);
        } else {
            self.longer_is_too_long(now);
        }
    }

    /// It cannot go on: the network says why. Only one that is not open yet ends by it (RFC 5927, 5.2; RFC 1122, 4.2.3.9). True:
    /// it does.
    pub fn network_failed(&mut self, error: SocketError) -> bool {
        let ends = matches!(self.state, State::SynSent | State::SynReceived);
        if ends {
            self.end(Some(match error {
                SocketError::PortUnreachable => Failure::Refused,
                other => Failure::Network(other),
            }));
        }
        ends
    }

    /// Nobody has the address that it is sent to: one that is open has lost what it would have said.
    pub fn host_is_not_there(&mut self, now: Instant) {
        if !self.network_failed(SocketError::HostUnreachable) {
            self.lose_one(now);
        }
    }

    /// What it would have said next is lost.
    pub fn lose_one(&mut self, now: Instant) {
        let _lost = self.poll_transmit(now, self.mss());
    }
}
