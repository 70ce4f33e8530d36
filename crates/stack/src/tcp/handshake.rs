//! How connections begin (RFC 9293, 3.5): what a SYN says, and what follows when it is answered.

use super::input::Arrival;
use super::recovery::Told;
use super::tcb::{Connection, Resend, Shared, State, Timestamps};
use crate::time::Instant;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::TcpFlags;

/// MSS if the other side says nothing (RFC 9293, 3.7.1, MUST-15).
const DEFAULT_MSS: u16 = 536;
/// The smallest MSS that is believed: less makes headers of everything. Linux's TCP_MIN_SND_MSS.
const LEAST_MSS: u16 = 48;

impl Connection {
    /// A passive open: a SYN came, and is to be answered.
    pub fn accept(
        now: Instant,
        settings: impl Into<Shared>,
        iss: SeqNumber,
        ts_offset: u32,
        syn: &Arrival,
    ) -> Connection {
        let mut c = Connection::new(now, settings.into(), State::SynReceived, iss, ts_offset);
        c.take_syn(now, syn);
        let asks = TcpFlags::ECE | TcpFlags::CWR;
        c.ecn.on = c.settings.ecn && syn.header.flags.has(asks);
        c.snd.wnd = u32::from(syn.header.window);
        (c.snd.wl1, c.snd.wl2, c.snd.max_wnd) = (syn.header.seq, iss, c.snd.wnd);
        c
    }

    /// The SYN is not answered before [`Connection::admit`].
    pub(super) const fn hold(&mut self) {
        self.held = true;
    }

    /// It is answered now, if nothing ended the connection meanwhile.
    pub(super) const fn admit(&mut self) {
        if self.held {
            self.held = false;
            (self.wanted.syn, self.wanted.ack) = (true, false);
        }
    }

    /// A passive open whose SYN was answered when nothing was kept of it (a cookie): an acknowledgement of the answer is to follow.
    /// `syn`: as far as it is still known.
    pub fn accept_answered(
        now: Instant,
        settings: impl Into<Shared>,
        iss: SeqNumber,
        ts_offset: u32,
        syn: &Arrival,
    ) -> Connection {
        let mut c = Connection::accept(now, settings, iss, ts_offset, syn);
        c.wanted.syn = false;
        c.snd.nxt = iss + 1;
        // Sent again, as far as is known: no round trip is measured.
        c.sent.push(now, iss, c.snd.nxt, 1);
        c.sent.again(now, iss, 1);
        c.rcv.edge = c.rcv.nxt + c.window().min(65_535);
        c.deadlines.resend = Some((Resend::Timeout, now + c.rtt.rto()));
        c
    }

    /// What a SYN says.
    pub(super) fn take_syn(&mut self, now: Instant, syn: &Arrival) {
        let (header, options) = (syn.header, syn.options);
        self.rcv.irs = header.seq;
        self.rcv.nxt = header.seq + 1;
        self.rcv.edge = self.rcv.nxt;
        let most = self.settings.mss;
        let mss = options.mss.unwrap_or(DEFAULT_MSS).clamp(LEAST_MSS.min(most), most);
        self.snd.peer = u32::from(mss);
        self.snd.mss = self.snd.peer.min(self.snd.path);
        self.rcv.mss = u32::from(mss).min(self.rcv.mss.max(DEFAULT_MSS.into()));
        self.sack = self.settings.sack && options.sack_permitted;
        match options.window_scale.filter(|_| self.settings.window_scale) {
            Some(shift) => self.snd.shift = shift.min(bypath_wire::tcp_options::MOST_WINDOW_SHIFT),
            // RFC 7323, 2.2: both or none.
            None => (self.snd.shift, self.rcv.shift) = (0, 0),
        }
        if let (Some((value, _)), true) = (options.timestamps, self.settings.timestamps) {
            self.timestamps = Some(Timestamps { recent: value, recent_at: now, last_ack: self.rcv.nxt });
        }
        self.congestion.set_smss(self.smss());
    }

    /// The handshake is done.
    pub(super) fn opened(&mut self, now: Instant, told: &Told) {
        if let Some(rtt) = told.delivered.rtt {
            self.rtt.measured(rtt);
        }
        self.rtt.established();
        (self.tries, self.deadlines.resend) = (0, None);
        self.look_after(now);
        self.wait_for_answer(now, true);
    }
}
