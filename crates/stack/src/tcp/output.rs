//! Segments that go (RFC 9293, 3.8).

use super::clock::DELAYED_ACK;
use super::mtu::Attempt;
use super::recovery::{Phase, Trial};
use super::tcb::{Connection, Resend, State, milliseconds};
use crate::time::Instant;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::TcpFlags;
use bypath_wire::tcp_options::{TcpOption, TcpOptions};

/// One segment, or several to be cut out of one by whoever sends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// SEG.SEQ.
    pub seq: SeqNumber,
    /// SEG.ACK.
    pub ack: SeqNumber,
    /// Control bits.
    pub flags: TcpFlags,
    /// SEG.WND, as it stands in the header.
    pub window: u16,
    /// SEG.UP, with URG.
    pub urgent: u16,
    /// Options.
    pub options: TcpOptions,
    /// The payload: octets of [`Connection::octets`] from here on.
    pub from: usize,
    /// So many.
    pub len: usize,
    /// Octets of payload of each segment that is cut out of it.
    pub cut: usize,
    /// Routers may mark it (RFC 3168, 6.1.5: octets that are sent for the first time).
    pub ect: bool,
}

impl Connection {
    /// The payload of a segment that was asked for just now, in up to two pieces.
    pub fn octets(&self, segment: &Segment) -> (&[u8], &[u8]) {
        self.tx.slices(segment.from, segment.len)
    }

    /// Octets that were written, from this number on; `None`: not so many are there (any more).
    #[inline]
    pub(crate) fn octets_at(&self, seq: SeqNumber, len: u32) -> Option<(&[u8], &[u8])> {
        let from = usize::try_from(seq.distance(self.first_octet())).ok()?;
        (from + len as usize <= self.tx.len()).then(|| self.tx.slices(from, len as usize))
    }

    /// ISS.
    pub(crate) const fn first_number(&self) -> SeqNumber {
        self.snd.iss
    }

    /// The next segment to be sent, if there is one; `most`: octets of payload of all that is cut out of it.
    pub fn poll_transmit(&mut self, now: Instant, most: usize) -> Option<Segment> {
        if let Some((seq, ack)) = self.wanted.rst.take() {
            return Some(self.reset(now, seq, ack));
        }
        let most = if self.urgent.is_some() { self.uncut(most) } else { most };
        match self.state {
            State::Closed => return None,
            State::SynReceived if self.held => return None,
            State::SynSent | State::SynReceived => return self.open(now),
            _ => {}
        }
        // RFC 5682, 2.1, step 2 b.
        let new = self.recovery.trial == Trial::New;
        let first = if new { self.fresh(now, most) } else { None };
        let segment = first
            .or_else(|| self.lost(now, most))
            .or_else(|| self.tail(now, most))
            .or_else(|| self.fresh(now, most));
        if segment.is_some() {
            return segment;
        }
        if self.wanted.probe {
            if self.urgent.is_some() && self.probe_urges() {
                return Some(self.header(now, self.snd.una, TcpFlags::ACK));
            }
            self.wanted.probe = false;
            let mut probe = self.header(now, self.snd.una - 1, TcpFlags::ACK);
            probe.ack = self.rcv.nxt;
            return Some(probe);
        }
        if !self.wanted.ack {
            return None;
        }
        self.wanted.vain = self.wanted.vain.saturating_sub(1);
        Some(self.header(now, self.snd.nxt, TcpFlags::ACK))
    }

    /// A header with what is to be told now; nothing more has to be acknowledged afterwards.
    pub(super) fn header(&mut self, now: Instant, seq: SeqNumber, mut flags: TcpFlags) -> Segment {
        let mut options = match self.timestamps {
            Some(ts) => TcpOptions::timestamps(self.tsval(now), ts.recent),
            None => TcpOptions::new(),
        };
        if self.ahead.has_news() && self.sack {
            // Two octets of padding before it, as Linux has it.
            let room = if options.is_empty() { 4 } else { 3 };
            let blocks = self.ahead.blocks(room);
            let _ = options.push(&TcpOption::Nop) && options.push(&TcpOption::Nop);
            let _fits = options.push(&TcpOption::Sack(blocks));
        }
        if self.ecn.echo {
            flags |= TcpFlags::ECE;
        }
        let mut urgent = 0;
        if self.urgent.is_some()
            && let Some(pointer) = self.pointer(seq)
        {
            flags |= TcpFlags::URG;
            urgent = pointer;
        }
        let window = self.tell_window();
        self.wanted.ack = self.wanted.vain > 0;
        self.deadlines.ack = None;
        self.rcv.unacked = 0;
        if let Some(ts) = &mut self.timestamps {
            ts.last_ack = self.rcv.nxt;
        }
        Segment {
            seq,
            ack: self.rcv.nxt,
            flags,
            window,
            urgent,
            options,
            from: 0,
            len: 0,
            cut: 0,
            ect: false,
        }
    }

    /// The window that is told: its right edge never moves to the left (RFC 9293, 3.8.6, SHLD-14), and to the right by a
    /// segment or half of the buffer at least (3.8.6.2.2).
    fn tell_window(&mut self) -> u16 {
        let told = self.rcv.edge.distance(self.rcv.nxt).max(0) as u32;
        let free = self.window();
        let step = (self.rcv.room / 2).min(self.rcv.mss);
        let window = if free >= told + step { free } else { told };
        let field = (window >> self.rcv.shift).min(65_535);
        let edge = self.rcv.nxt + (field << self.rcv.shift);
        self.rcv.edge = self.rcv.edge.later(edge);
        field as u16
    }

    fn reset(&mut self, now: Instant, seq: SeqNumber, ack: Option<SeqNumber>) -> Segment {
        // RFC 7323, 3.2: a reset may have them; one that nobody asked for has, as in Linux.
        let options = match self.timestamps.filter(|_| ack.is_some()) {
            Some(ts) => TcpOptions::timestamps(self.tsval(now), ts.recent),
            None => TcpOptions::new(),
        };
        let flags = if ack.is_some() { TcpFlags::RST | TcpFlags::ACK } else { TcpFlags::RST };
        Segment {
            seq,
            ack: ack.unwrap_or_default(),
            flags,
            window: 0,
            urgent: 0,
            options,
            from: 0,
            len: 0,
            cut: 0,
            ect: false,
        }
    }

    /// SYN, SYN and ACK, or what is acknowledged before that was.
    fn open(&mut self, now: Instant) -> Option<Segment> {
        if !self.wanted.syn {
            return (self.wanted.ack && self.state == State::SynReceived)
                .then(|| self.header(now, self.snd.nxt, TcpFlags::ACK));
        }
        self.wanted.syn = false;
        let active = self.state == State::SynSent;
        let mut options = TcpOptions::new();
        let mut all = options.push(&TcpOption::MaxSegmentSize(self.own_mss));
        // In Linux's order: MSS, SACK and timestamps, padding and scale.
        let (sack, timestamps) = if active {
            (self.settings.sack, self.settings.timestamps)
        } else {
            (self.sack, self.timestamps.is_some())
        };
        if timestamps {
            if sack {
                all &= options.push(&TcpOption::SackPermitted);
            } else {
                all &= options.push(&TcpOption::Nop) && options.push(&TcpOption::Nop);
            }
            let echo = self.timestamps.map_or(0, |ts| ts.recent);
            all &= options.push(&TcpOption::Timestamps { value: self.tsval(now), echo });
        } else if sack {
            all &= options.push(&TcpOption::Nop) && options.push(&TcpOption::Nop);
            all &= options.push(&TcpOption::SackPermitted);
        }
        if self.rcv.shift > 0 || active && self.settings.window_scale || self.snd.shift > 0 {
            all &= options.push(&TcpOption::Nop);
            all &= options.push(&TcpOption::WindowScale(self.rcv.shift));
        }
        debug_assert!(all, "options of a SYN fit");
        // RFC 7323, 2.2: the window of a SYN is never scaled.
        let window = self.window().min(65_535) as u16;
        let (mut flags, ack) = if active {
            (TcpFlags::SYN, SeqNumber(0))
        } else {
            (TcpFlags::SYN | TcpFlags::ACK, self.rcv.nxt)
        };
        match active {
            // RFC 3168, 6.1.1; a SYN that was lost may have been lost for them.
            true if self.settings.ecn && self.tries < 2 => flags |= TcpFlags::ECE | TcpFlags::CWR,
            false if self.ecn.on => flags |= TcpFlags::ECE,
            _ => {}
        }
        self.rcv.edge = self.rcv.nxt + u32::from(window);
        if self.snd.nxt == self.snd.iss {
            self.snd.nxt = self.snd.iss + 1;
            self.sent.push(now, self.snd.iss, self.snd.nxt, 1);
        } else {
            self.sent.again(now, self.snd.iss, 1);
        }
        self.waiting.get_or_insert(now);
        if self.deadlines.resend.is_none() {
            self.deadlines.resend = Some((Resend::Timeout, self.time_out(now)));
        }
        (self.wanted.ack, self.deadlines.ack) = (false, None);
        let seq = self.snd.iss;
        Some(Segment { seq, ack, flags, window, urgent: 0, options, from: 0, len: 0, cut: 0, ect: false })
    }

    /// Octets of payload of one segment with these options.
    fn payload_of(&self, options: &TcpOptions) -> u32 {
        self.snd.mss.saturating_sub(options.padded().len() as u32).max(1)
    }

    /// Octets that are lost, once more.
    fn lost(&mut self, now: Instant, most: usize) -> Option<Segment> {
        let (seq, len) = self.sent.first_lost()?;
        let pipe = self.sent.pipe();
        let cwnd = self.congestion.cwnd();
        if pipe > 0 && pipe + self.snd.mss.min(len) > cwnd {
            return None;
        }
        let may = cwnd.saturating_sub(pipe).max(self.snd.mss);
        Some(self.repeat(now, seq, len.min(may), most))
    }

    /// The last octets once more, or the next ones (RFC 8985, 7.3).
    fn tail(&mut self, now: Instant, most: usize) -> Option<Segment> {
        if !core::mem::take(&mut self.wanted.tail) || self.sent.is_empty() {
            return None;
        }
        // RFC 8985, 7.2: one probe, and then the time-out.
        self.recovery.probe = Some((self.snd.nxt, true));
        if self.snd.nxt.before(self.last_octet())
            && self.snd.nxt.before(self.snd.una + self.snd.wnd)
            && let Some(segment) = self.data(now, most.min(self.snd.mss as usize), true)
        {
            self.recovery.probe = Some((self.snd.nxt, false));
            return Some(segment);
        }
        let (seq, len) = self.sent.last(self.payload_now(), self.snd.fin.is_some())?;
        Some(self.repeat(now, seq, len, most))
    }

    /// Sends octets, and a FIN, that were sent before.
    fn repeat(&mut self, now: Instant, seq: SeqNumber, len: u32, most: usize) -> Segment {
        let mut segment = self.header(now, seq, TcpFlags::ACK);
        let cut = self.payload_of(&segment.options);
        let mut len = len.min((most as u32).max(cut));
        if len > cut {
            len -= len % cut;
        }
        self.sent.again(now, seq, len);
        if self.search.is_some() {
            self.search_is_disturbed();
        }
        let fin = self.snd.fin.is_some_and(|fin| fin == seq + (len - 1));
        let payload = len - u32::from(fin);
        segment.from = seq.since(self.first_octet()) as usize;
        (segment.len, segment.cut) = (payload as usize, cut as usize);
        if fin {
            segment.flags |= TcpFlags::FIN;
        }
        if payload > 0 && segment.from + segment.len == self.tx.len() || payload > cut {
            segment.flags |= TcpFlags::PSH;
        }
        self.recovery.out += len;
        self.counts.again += u64::from(len);
        if self.recovery.phase != Phase::Open {
            self.recovery.stamp.get_or_insert(milliseconds(now));
        }
        self.wrote = now;
        self.wait_for_answer(now, false);
        segment
    }

    /// Octets that were not sent before.
    fn fresh(&mut self, now: Instant, most: usize) -> Option<Segment> {
        if self.sent.is_empty() && self.snd.nxt.before(self.last_octet()) {
            self.congestion.idle(now.since(self.wrote), self.rtt.rto());
        }
        if self.search.is_some() {
            match self.try_longer(now) {
                Attempt::Goes(segment) => return Some(segment),
                Attempt::Waits => return None,
                Attempt::Nothing => {}
            }
        }
        let pipe = self.sent.pipe();
        let cwnd = self.congestion.cwnd();
        if pipe > 0 && pipe + self.snd.mss > cwnd && pipe >= cwnd && !self.is_last() {
            return None;
        }
        // At once no more than half of the window, as Linux has it: who cuts it would send a burst.
        let may = cwnd.saturating_sub(pipe).min(cwnd / 2).max(self.snd.mss.min(cwnd));
        self.data(now, most.min(may as usize), false)
    }

    /// All that is left is one segment with the FIN. The window of the path does not hold it back, as in Linux: nothing follows.
    fn is_last(&self) -> bool {
        let waiting = self.last_octet().distance(self.snd.nxt).max(0) as u32;
        self.finished && self.snd.fin.is_none() && self.may_finish() && waiting <= self.snd.mss
    }

    /// The next octets and the FIN, `most` of them, as the window and Nagle's algorithm allow; `probe`: for nothing else.
    fn data(&mut self, now: Instant, most: usize, probe: bool) -> Option<Segment> {
        let last = self.last_octet();
        let waiting = last.distance(self.snd.nxt).max(0) as u32;
        let finishes = self.finished && self.snd.fin.is_none() && self.may_finish();
        if waiting == 0 && !finishes {
            return None;
        }
        let edge = self.snd.una + self.snd.wnd;
        let room = edge.distance(self.snd.nxt).max(0) as u32;
        if room == 0 {
            self.keep_waiting(now);
            return None;
        }
        let cut = self.payload_now();
        let most = if most as u32 >= cut { most as u32 - most as u32 % cut } else { most as u32 };
        let mut len = waiting.min(room).min(most.max(1));
        if len > cut && len < waiting {
            len -= len % cut;
        }
        let fin = finishes && len == waiting && len < room;
        let short = core::mem::take(&mut self.wanted.short);
        if !probe && !short && !self.is_worth_it(len, waiting, cut, fin) {
            self.keep_waiting(now);
            return None;
        }
        if len % cut != 0 && len > cut && !fin && !short && self.nagle_holds() {
            // The full ones go, and what is left over waits.
            len -= len % cut;
        }
        let mut segment = self.header(now, self.snd.nxt, TcpFlags::ACK);
        segment.from = self.snd.nxt.since(self.first_octet()) as usize;
        (segment.len, segment.cut) = (len as usize, cut as usize);
        segment.ect = self.ecn.on && !probe;
        // RFC 9293, 3.9.1.2: the end of what was written; and of what is cut out of one piece, as in Linux: whoever puts it
        // together again need not wait for more.
        if len == waiting && len > 0 && (short || !self.more.unmarked) || len > cut {
            segment.flags |= TcpFlags::PSH;
        }
        let mut end = self.snd.nxt + len;
        if fin {
            segment.flags |= TcpFlags::FIN;
            self.snd.fin = Some(end);
            end += 1;
            self.fin_goes();
        }
        if core::mem::take(&mut self.ecn.reduced) && segment.ect {
            segment.flags |= TcpFlags::CWR;
        }
        if len % cut != 0 {
            self.snd.short = Some(end);
        }
        self.rcv.answers |= len > 0 && now.since(self.rcv.at) < DELAYED_ACK;
        self.went(now, end, cut);
        Some(segment)
    }

    /// What was not sent before goes, up to there, in segments of so many octets.
    #[inline]
    pub(super) fn went(&mut self, now: Instant, end: SeqNumber, segment: u32) {
        self.sent.push(now, self.snd.nxt, end, segment);
        if self.recovery.phase == Phase::Fast {
            self.recovery.out += end.since(self.snd.nxt);
        }
        self.snd.nxt = end;
        self.wrote = now;
        self.wait_for_answer(now, false);
    }

    /// Octets of the options that every segment has.
    pub(super) const fn overhead(&self) -> u32 {
        if self.timestamps.is_some() { 12 } else { 0 }
    }

    /// SMSS of RFC 5681, 2: options are not part of it.
    pub(super) const fn smss(&self) -> u32 {
        let octets = self.snd.mss.saturating_sub(self.overhead());
        if octets > 0 { octets } else { 1 }
    }

    /// Octets of payload of the next segment: its options decide how much it takes. Nothing is told if none is sent.
    pub(super) fn payload_now(&self) -> u32 {
        let overhead = self.overhead() + if self.ahead.has_news() && self.sack { self.sack_len() } else { 0 };
        self.snd.mss.saturating_sub(overhead).max(1)
    }

    /// Nothing new was sent. What is waited for already is not waited for any longer for that.
    fn keep_waiting(&mut self, now: Instant) {
        if self.deadlines.resend.is_none() {
            self.wait_for_answer(now, false);
        }
    }

    fn sack_len(&self) -> u32 {
        // Two octets of padding, two of the option, eight of each block.
        if self.timestamps.is_some() { 28 } else { 36 }
    }

    /// A FIN may go in this state.
    const fn may_finish(&self) -> bool {
        matches!(self.state, State::Established | State::CloseWait)
    }

    fn fin_goes(&mut self) {
        self.state = match self.state {
            State::CloseWait => State::LastAck,
            _ => State::FinWait1,
        };
    }

    /// Avoids silly windows (RFC 9293, 3.8.6.2.1), and holds back what is short (3.7.4).
    fn is_worth_it(&self, len: u32, waiting: u32, cut: u32, fin: bool) -> bool {
        if len >= cut || fin {
            return true;
        }
        if len < waiting {
            // The window is what is short: half of what it ever was is worth it.
            return len >= self.snd.max_wnd / 2;
        }
        !self.nagle_holds()
    }

    /// What is short waits.
    fn nagle_holds(&self) -> bool {
        if self.finished || self.more.pushed || self.urges() {
            return false;
        }
        self.settings.cork
            || self.more.waits
            || !self.settings.nodelay && self.snd.short.is_some_and(|short| short.after(self.snd.una))
    }
}
