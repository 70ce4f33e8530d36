//! Segments that come: a function for each numbered step of RFC 9293, 3.10.7.

use super::clock::{DELAYED_ACK, TIME_WAIT};
use super::recovery::Told;
use super::tcb::{Connection, Failure, State, milliseconds};
use crate::time::Instant;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::{TcpFlags, TcpHeader};
use bypath_wire::tcp_options::{KnownTcpOptions, SackBlock};
use core::time::Duration;

/// A segment that came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Its header.
    pub header: &'a TcpHeader,
    /// Its options.
    pub options: &'a KnownTcpOptions,
    /// Its octets.
    pub payload: &'a [u8],
    /// A router has marked its packet (RFC 3168, 5: CE).
    pub marked: bool,
    /// It was put together from so many.
    pub segments: u32,
}

/// What a segment acknowledges, and what stands beside that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Says<'a> {
    pub seq: SeqNumber,
    pub ack: SeqNumber,
    /// As it stands in the header.
    pub window: u16,
    /// TSecr.
    pub echo: Option<u32>,
    pub sack: &'a [SackBlock],
    pub ece: bool,
    pub fin: bool,
    /// It brings octets.
    pub brings: bool,
}

/// Answers to unacceptable segments come no faster (RFC 5961, 10: they are to be limited); for each connection, so that
/// nobody learns of one by another. net.ipv4.tcp_invalid_ratelimit of Linux.
const CHALLENGE: Duration = Duration::from_millis(500);
/// A timestamp older than that says nothing (RFC 7323, 5.5).
const TS_OLD: Duration = Duration::from_secs(24 * 24 * 3600);

/// Whether to go on with the next step.
enum Step {
    GoOn,
    Done,
}

impl Connection {
    /// A segment came.
    pub fn handle_segment(&mut self, now: Instant, arrival: &Arrival) {
        self.more.waits = false;
        match self.state {
            State::Closed => {}
            State::SynSent => self.syn_sent(now, arrival),
            _ => self.synchronized(now, arrival),
        }
    }

    /// RFC 9293, 3.10.7.3.
    fn syn_sent(&mut self, now: Instant, arrival: &Arrival) {
        let header = arrival.header;
        let flags = header.flags;
        // First, the ACK bit.
        if flags.has(TcpFlags::ACK)
            && (header.ack.at_or_before(self.snd.iss) || header.ack.after(self.snd.nxt))
        {
            if !flags.has(TcpFlags::RST) {
                self.wanted.rst = Some((header.ack, None));
            }
            return;
        }
        // Second, the RST bit.
        if flags.has(TcpFlags::RST) {
            if flags.has(TcpFlags::ACK) {
                self.end(Some(Failure::Refused));
            }
            return;
        }
        // Fourth, the SYN bit; the third step is about security that nobody has.
        if !flags.has(TcpFlags::SYN) {
            return;
        }
        self.heard = now;
        self.take_syn(now, arrival);
        // What our SYN told counts from here on.
        self.rcv.edge = self.rcv.nxt + self.window().min(65_535);
        self.snd.wnd = u32::from(header.window);
        (self.snd.wl1, self.snd.wl2, self.snd.max_wnd) = (header.seq, header.ack, self.snd.wnd);
        if !flags.has(TcpFlags::ACK) {
            // Both have called each other (RFC 9293, 3.5, figure 7).
            self.state = State::SynReceived;
            self.wanted.syn = true;
            return;
        }
        self.ecn.on = self.settings.ecn && flags.has(TcpFlags::ECE) && !flags.has(TcpFlags::CWR);
        self.state = State::Established;
        let mut told = Told::default();
        self.snd.una = header.ack;
        self.sent.ack(now, header.ack, &mut told.delivered);
        self.opened(now, &told);
        self.begin_search(now, true);
        self.wanted.ack = true;
        if flags.has(TcpFlags::URG) {
            self.urgent_bit(header, arrival.payload);
        }
        if !arrival.payload.is_empty() || flags.has(TcpFlags::FIN) {
            self.text(now, header.seq + 1, arrival.payload);
            self.fin(now, header.seq + 1 + arrival.payload.len() as u32, flags);
        }
    }

    /// RFC 9293, 3.10.7.4.
    fn synchronized(&mut self, now: Instant, arrival: &Arrival) {
        let header = arrival.header;
        let mut steps = [
            |c: &mut Connection, now, a: &Arrival| c.sequence(now, a),
            |c: &mut Connection, now, a: &Arrival| c.reset_bit(now, a),
            |c: &mut Connection, now, a: &Arrival| c.syn_bit(now, a),
            |c: &mut Connection, now, a: &Arrival| c.ack_bit(now, a),
        ]
        .into_iter();
        if steps.any(|step| matches!(step(self, now, arrival), Step::Done)) {
            return;
        }
        self.heard = now;
        self.note_timestamp(now, header.seq, arrival.options.timestamps.map(|(value, _)| value));
        self.note_marks(arrival);
        let seq = header.seq;
        if self.deaf && self.is_news(seq, arrival.payload.len()) {
            // RFC 9293, 3.6.1: nobody will read it. The number is one that the other side expects (RFC 5961, 3.2).
            self.wanted.rst = Some((header.ack, None));
            return self.end(Some(Failure::Reset));
        }
        if header.flags.has(TcpFlags::URG) || self.urgent.is_some() {
            self.urgent_bit(header, arrival.payload);
        }
        self.text(now, seq, arrival.payload);
        self.came_together(arrival.segments);
        self.fin(now, seq + arrival.payload.len() as u32, header.flags);
    }

    /// First, the sequence number, and before it the timestamp (RFC 7323, 5.3).
    fn sequence(&mut self, now: Instant, a: &Arrival) -> Step {
        let header = a.header;
        let len = header.sequence_len(a.payload.len());
        let is_old = self.is_old(now, a) && !header.flags.has(TcpFlags::RST);
        // Both have called each other, and this answers: its number is that of the SYN that came before (RFC 9293, 3.5,
        // figure 7; table 6 would not take it).
        let answer = TcpFlags::SYN | TcpFlags::ACK;
        if self.state == State::SynReceived
            && header.flags.has(answer)
            && header.seq == self.rcv.irs
            && !is_old
        {
            return Step::GoOn;
        }
        if !is_old && self.is_acceptable(header.seq, len) {
            return Step::GoOn;
        }
        if header.flags.has(TcpFlags::RST) {
            return Step::Done;
        }
        // RFC 2883, 4: octets that came twice.
        if !a.payload.is_empty() && header.seq.before(self.rcv.nxt) {
            let end = (header.seq + a.payload.len() as u32).earlier(self.rcv.nxt);
            if header.seq.before(end) {
                self.ahead.duplicate(header.seq, end);
            }
        }
        // A SYN that was answered is answered once more: the answer was lost.
        if self.state == State::SynReceived && header.flags.has(TcpFlags::SYN) && header.seq == self.rcv.irs {
            self.wanted.syn = true;
            return Step::Done;
        }
        // What asks for an answer gets one: octets at once, anything else now and then.
        if len > 0 && header.seq.before(self.rcv.nxt) || self.probes_us(header.seq) {
            if self.state == State::TimeWait {
                self.deadlines.life = Some(now + TIME_WAIT);
            }
            self.wanted.ack = true;
        } else {
            self.challenge(now);
        }
        // What an old segment acknowledges counts all the same if its number is just behind the window: the other side's
        // window is closed, or ours is.
        if !is_old && header.flags.has(TcpFlags::ACK) && len == 0 {
            let _ = self.ack_bit(now, a);
        }
        Step::Done
    }

    /// A keep-alive or a probe of our window.
    fn probes_us(&self, seq: SeqNumber) -> bool {
        seq + 1 == self.rcv.nxt || seq == self.rcv.nxt
    }

    /// RFC 9293, 3.4, table 6.
    fn is_acceptable(&self, seq: SeqNumber, len: u32) -> bool {
        let window = self.rcv.edge.distance(self.rcv.nxt).max(0) as u32;
        match (len, window) {
            (0, 0) => seq == self.rcv.nxt,
            (0, _) => seq.is_within(self.rcv.nxt, window),
            (_, 0) => false,
            (..) => {
                let last = seq + (len - 1);
                seq.is_within(self.rcv.nxt, window) || last.is_within(self.rcv.nxt, window)
                    // Longer than the window on both sides.
                    || seq.before(self.rcv.nxt) && last.after(self.rcv.nxt)
            }
        }
    }

    /// PAWS (RFC 7323, 5.3, R1).
    fn is_old(&self, now: Instant, a: &Arrival) -> bool {
        match (self.timestamps, a.options.timestamps) {
            (Some(ts), Some((value, _))) => {
                (value.wrapping_sub(ts.recent) as i32) < 0 && now.since(ts.recent_at) < TS_OLD
            }
            // RFC 7323, 3.2: without the option it is dropped silently; Linux takes it, and so do we.
            _ => false,
        }
    }

    /// Second, the RST bit (RFC 5961, 3.2).
    fn reset_bit(&mut self, now: Instant, a: &Arrival) -> Step {
        if !a.header.flags.has(TcpFlags::RST) {
            return Step::GoOn;
        }
        if a.header.seq != self.rcv.nxt {
            self.challenge(now);
            return Step::Done;
        }
        // RFC 1337: TIME-WAIT is not ended by it.
        match self.state {
            State::TimeWait => {}
            State::Closing | State::LastAck => self.end(None),
            State::SynReceived => self.end(Some(Failure::Refused)),
            _ => self.end(Some(Failure::Reset)),
        }
        Step::Done
    }

    /// Fourth, the SYN bit (RFC 5961, 4.2); the third step is about security that nobody has.
    fn syn_bit(&mut self, now: Instant, a: &Arrival) -> Step {
        if !a.header.flags.has(TcpFlags::SYN) {
            return Step::GoOn;
        }
        // Both have called each other, and this answers.
        if self.state == State::SynReceived && a.header.seq == self.rcv.irs {
            return Step::GoOn;
        }
        self.challenge(now);
        Step::Done
    }

    /// Fifth, the ACK field.
    fn ack_bit(&mut self, now: Instant, a: &Arrival) -> Step {
        let header = a.header;
        if !header.flags.has(TcpFlags::ACK) {
            return Step::Done;
        }
        if self.state == State::SynReceived {
            if !(header.ack.after(self.snd.una) && header.ack.at_or_before(self.snd.nxt)) {
                self.wanted.rst = Some((header.ack, None));
                return Step::Done;
            }
            self.state = State::Established;
            self.snd.wnd = u32::from(header.window) << self.snd.shift;
            (self.snd.wl1, self.snd.wl2) = (header.seq, header.ack);
            self.snd.max_wnd = self.snd.wnd;
            let mut told = Told::default();
            self.snd.una = header.ack;
            self.sent.ack(now, header.ack, &mut told.delivered);
            self.opened(now, &told);
            self.begin_search(now, false);
            return Step::GoOn;
        }
        // RFC 5961, 5.2: too old, or of octets that were never sent.
        if header.ack.after(self.snd.nxt) || header.ack.before(self.snd.una - self.snd.max_wnd) {
            self.challenge(now);
            return Step::Done;
        }
        let says = Says {
            seq: header.seq,
            ack: header.ack,
            window: header.window,
            echo: a.options.timestamps.map(|(_, echo)| echo),
            sack: a.options.sack.as_slice(),
            ece: header.flags.has(TcpFlags::ECE),
            fin: header.flags.has(TcpFlags::FIN),
            brings: !a.payload.is_empty(),
        };
        self.acknowledge(now, &says);
        if self.snd.fin.is_some_and(|fin| self.snd.una.after(fin)) {
            self.fin_acknowledged(now);
        }
        if self.state == State::Closed { Step::Done } else { Step::GoOn }
    }

    /// Takes an acknowledgement that is neither too old nor of octets that were never sent.
    #[inline]
    pub(super) fn acknowledge(&mut self, now: Instant, says: &Says<'_>) {
        let flight = self.sent.octets();
        let first = self.first_octet();
        let mut told = Told { flight, ece: says.ece, ..Told::default() };
        let echo = says.echo.filter(|_| self.timestamps.is_some());
        told.tsecr = echo.map(|echo| echo.wrapping_sub(self.ts_offset));
        told.delivered.echo = told.tsecr;
        if says.brings {
            self.note_echo(now, told.tsecr);
        }
        let window = u32::from(says.window) << self.snd.shift;
        told.duplicate =
            says.ack == self.snd.una && flight > 0 && !says.brings && !says.fin && window == self.snd.wnd;
        if says.ack.after(self.snd.una) {
            self.sent.ack(now, says.ack, &mut told.delivered);
            self.snd.una = says.ack;
            self.tx.pop(says.ack.since(first) as usize);
            self.tx.rewind();
            self.tries = 0;
            self.waiting = None;
            self.counts.acked += u64::from(told.delivered.acked);
            self.forget_marks();
            if self.search.is_some() {
                self.longer_arrived();
            }
        }
        if self.sack {
            self.take_sack(now, says, &mut told);
        }
        // RFC 9293, 3.10.7.4: not from an old segment.
        if says.ack.at_or_after(self.snd.una)
            && (self.snd.wl1.before(says.seq)
                || self.snd.wl1 == says.seq && self.snd.wl2.at_or_before(says.ack))
        {
            self.snd.wnd = window;
            (self.snd.wl1, self.snd.wl2) = (says.seq, says.ack);
            self.snd.max_wnd = self.snd.max_wnd.max(window);
            // Probes were answered. Octets that are sent again and again are not, unless it is they that are acknowledged (RFC 9293,
            // 3.8.3).
            if window > 0 && self.sent.is_empty() {
                self.tries = 0;
            }
        }
        let advanced = told.delivered.acked > 0;
        match told.delivered.rtt {
            Some(rtt) if !told.delivered.again => self.rtt.measured(rtt),
            _ if advanced => match told.tsecr {
                // RFC 7323, 4.1: the echo tells which copy was answered.
                Some(echo) if told.delivered.again => {
                    let elapsed = milliseconds(now).wrapping_sub(echo);
                    if elapsed < 1 << 30 {
                        self.rtt.measured(Duration::from_millis(elapsed.into()));
                    }
                }
                _ => self.rtt.answered(),
            },
            _ => {}
        }
        if flight > 0 {
            self.recover(now, &told);
            self.tune_send();
        }
        if advanced || flight == 0 || told.delivered.sacked {
            self.wait_for_answer(now, advanced);
        }
    }

    /// Octets came, in answer to what we said at that time of our own clock.
    #[inline]
    pub(super) fn note_echo(&mut self, now: Instant, tsecr: Option<u32>) {
        if let (Some(tuning), Some(echo)) = (&mut self.tuning, tsecr) {
            let elapsed = milliseconds(now).wrapping_sub(echo);
            if elapsed < 1 << 30 {
                tuning.echoed(elapsed);
            }
        }
    }

    /// Numbers that were passed mean nothing any more: half a circle later they would lie ahead.
    fn forget_marks(&mut self) {
        let una = self.snd.una;
        self.snd.short = self.snd.short.filter(|short| short.after(una));
        self.ecn.until = self.ecn.until.filter(|until| until.after(una));
        if self.urgent.is_some() {
            self.forget_urged();
        }
    }

    fn take_sack(&mut self, now: Instant, says: &Says<'_>, told: &mut Told) {
        for (n, block) in says.sack.iter().enumerate() {
            let below = block.right.at_or_before(says.ack);
            let inside = n == 0
                && says.sack.get(1).is_some_and(|second| {
                    second.left.at_or_before(block.left) && second.right.at_or_after(block.right)
                });
            // RFC 2883, 4: the first block lies below the acknowledgement, or in the second one.
            if n == 0 && (below || inside) {
                told.dsack = true;
                if below {
                    continue;
                }
            }
            self.sent.sack(now, *block, &mut told.delivered);
        }
    }

    /// Our FIN is acknowledged.
    fn fin_acknowledged(&mut self, now: Instant) {
        match self.state {
            State::FinWait1 => self.state = State::FinWait2,
            State::Closing => self.wait_out(now),
            State::LastAck => self.end(None),
            _ => {}
        }
    }

    /// TIME-WAIT begins.
    fn wait_out(&mut self, now: Instant) {
        self.state = State::TimeWait;
        self.deadlines = Default::default();
        self.deadlines.life = Some(now + TIME_WAIT);
    }

    /// TS.Recent (RFC 7323, 4.3).
    #[inline]
    pub(super) fn note_timestamp(&mut self, now: Instant, seq: SeqNumber, value: Option<u32>) {
        if let (Some(ts), Some(value)) = (&mut self.timestamps, value)
            && (value.wrapping_sub(ts.recent) as i32) >= 0
            && seq.at_or_before(ts.last_ack)
        {
            (ts.recent, ts.recent_at) = (value, now);
        }
    }

    /// RFC 3168, 6.1.3.
    fn note_marks(&mut self, a: &Arrival) {
        if self.ecn.on {
            if a.header.flags.has(TcpFlags::CWR) {
                self.ecn.echo = false;
            }
            if a.marked {
                self.ecn.echo = true;
                self.wanted.ack = true;
            }
        }
    }

    /// Seventh, the octets.
    fn text(&mut self, now: Instant, seq: SeqNumber, payload: &[u8]) {
        if payload.is_empty() || !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2)
        {
            return;
        }
        let end = seq + payload.len() as u32;
        // What was there before, and what is beyond the window, is cut off.
        let left = seq.later(self.rcv.nxt);
        let right = end.earlier(self.rcv.edge);
        if self.sack && seq.before(self.rcv.nxt) {
            self.ahead.duplicate(seq, end.earlier(self.rcv.nxt));
            self.wanted.ack = true;
        }
        if !left.before(right) {
            self.wanted.ack = true;
            return;
        }
        let octets = &payload[left.since(seq) as usize..right.since(seq) as usize];
        if left == self.rcv.nxt {
            self.rx.write_ahead(0, octets);
            let filled = !self.ahead.is_empty();
            let more = if filled { self.ahead.take(right) } else { 0 };
            let len = octets.len() as u32;
            self.more_came(now, len, more, filled);
        } else if self.ahead.add(left, right).is_ok() {
            self.rx.write_ahead(left.since(self.rcv.nxt) as usize, octets);
            self.out_of_order();
        } else {
            self.out_of_order();
        }
    }

    /// The next `len` octets, ahead of the queue, are there; and with them so many `more`, which came before. `filled`: there was a gap.
    #[inline]
    pub(super) fn more_came(&mut self, now: Instant, len: u32, more: u32, filled: bool) {
        self.rx.extend((len + more) as usize);
        self.advance(now, len, more, filled);
    }

    /// The next `len` octets came, and the application has them.
    #[inline]
    pub(super) fn came_and_went(&mut self, now: Instant, len: u32) {
        self.advance(now, len, 0, false);
        self.has_read();
    }

    #[inline]
    fn advance(&mut self, now: Instant, len: u32, more: u32, filled: bool) {
        self.rcv.nxt += len + more;
        self.wanted.vain = 0;
        self.counts.received += u64::from(len + more);
        self.owe(now, len, filled);
    }

    /// What came was put together from so many segments.
    #[inline]
    pub(super) fn came_together(&mut self, segments: u32) {
        self.rcv.quick = self.rcv.quick.saturating_sub((segments - 1).min(255) as u8);
    }

    /// Octets that did not come before.
    fn is_news(&self, seq: SeqNumber, len: usize) -> bool {
        len > 0
            && matches!(self.state, State::Established | State::FinWait1 | State::FinWait2)
            && (seq + len as u32).after(self.rcv.nxt)
    }

    /// Octets are to be acknowledged: every second full segment at once, others soon (RFC 9293, 3.8.6.3).
    fn owe(&mut self, now: Instant, octets: u32, at_once: bool) {
        self.rcv.mss = self.rcv.mss.max(octets.min(u32::from(self.own_mss)));
        self.rcv.unacked += octets;
        self.rcv.short = octets < self.rcv.mss;
        self.rcv.at = now;
        let quick = self.rcv.quick > 0 && !self.rcv.answers;
        self.rcv.quick = self.rcv.quick.saturating_sub(1);
        if at_once || quick || self.rcv.unacked >= 2 * self.rcv.mss {
            self.wanted.ack = true;
        } else {
            self.deadlines.ack.get_or_insert(now + DELAYED_ACK);
        }
    }

    /// Eighth, the FIN bit.
    fn fin(&mut self, now: Instant, seq: SeqNumber, flags: TcpFlags) {
        if flags.has(TcpFlags::FIN) && seq.before(self.rcv.edge + 1) && self.state != State::Closed {
            self.rcv.fin.get_or_insert(seq);
        }
        // It counts when everything before it is there.
        if self.rcv.fin != Some(self.rcv.nxt) {
            return;
        }
        self.rcv.nxt += 1;
        self.rcv.edge = self.rcv.edge.later(self.rcv.nxt);
        self.wanted.ack = true;
        match self.state {
            State::Established => self.state = State::CloseWait,
            // Our own is not acknowledged: with it this would be FIN-WAIT-2.
            State::FinWait1 => self.state = State::Closing,
            State::FinWait2 => self.wait_out(now),
            _ => {}
        }
    }

    /// RFC 5681, 4.2: what is out of order is told at once, each segment of it. With SACK one answer tells of all.
    fn out_of_order(&mut self) {
        self.wanted.ack = true;
        if !self.sack {
            self.wanted.vain = self.wanted.vain.saturating_add(1);
        }
    }

    /// An acknowledgement of what is expected, now and then (RFC 5961, 7).
    fn challenge(&mut self, now: Instant) {
        if self.challenged.is_none_or(|at| now.since(at) >= CHALLENGE) {
            self.challenged = Some(now);
            self.wanted.ack = true;
        }
    }
}
