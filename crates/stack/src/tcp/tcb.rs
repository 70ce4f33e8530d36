//! One connection (RFC 9293, 3.3.1: the transmission control block). Segments come in (`input.rs`), are asked for
//! (`output.rs`), and time passes (`clock.rs`); octets go in and out here.

use super::assembler::Assembler;
use super::buffer::{Buffer, LEAST};
use super::congestion::{Algorithm, Congestion};
use super::mtu::{MtuProbing, Search};
use super::recovery::Recovery;
use super::rtt::Rtt;
use super::sent::Sent;
use super::tune::{self, Tuning};
use super::urgent::Urgent;
use crate::socket::SocketError;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::sync::Arc;
use bypath_wire::seq::SeqNumber;
use core::time::Duration;

/// States of RFC 9293, 3.3.2, but LISTEN, which is a listener's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum State {
    /// A SYN was sent.
    SynSent,
    /// A SYN came, and one was sent.
    SynReceived,
    /// Both directions are open.
    Established,
    /// We have finished.
    FinWait1,
    /// We have finished, and the other side knows.
    FinWait2,
    /// The other side has finished.
    CloseWait,
    /// Both have finished, and the other side does not know of us.
    Closing,
    /// As `Closing`, and the other side was first.
    LastAck,
    /// Both have finished and know it: segments may still be under way.
    TimeWait,
    /// Over.
    Closed,
}

/// Why a connection is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// Nobody listens there: ECONNREFUSED.
    #[error("connection refused: nobody listens at that port")]
    Refused,
    /// The other side has aborted it: ECONNRESET.
    #[error("connection reset by the other side")]
    Reset,
    /// Nothing was heard for too long: ETIMEDOUT.
    #[error("connection timed out: nothing was heard of the other side")]
    TimedOut,
    /// The other side cannot be reached: what stands there.
    #[error(transparent)]
    Network(#[from] SocketError),
}

/// Looking after a connection on which nothing happens (RFC 9293, 3.8.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Between probes.
    pub interval: Duration,
    /// Probes without an answer that end it.
    pub probes: u32,
}

/// Bounds and wishes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Congestion control.
    pub algorithm: Algorithm,
    /// Octets of payload that a packet of the path takes at most, if the header has no options.
    pub mss: u16,
    /// Octets that were written and are not acknowledged at most.
    pub send_octets: usize,
    /// Octets that have not been read at most: the largest window.
    pub receive_octets: usize,
    /// It begins with fewer octets to be sent, and takes as many more as the path does.
    pub tune_send: bool,
    /// It begins with a smaller window, which grows with what the application reads.
    pub tune_receive: bool,
    /// Short segments are sent at once (TCP_NODELAY).
    pub nodelay: bool,
    /// Short segments are not sent (TCP_CORK).
    pub cork: bool,
    /// Ask for selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Ask for timestamps (RFC 7323).
    pub timestamps: bool,
    /// Ask for larger windows (RFC 7323).
    pub window_scale: bool,
    /// Ask for explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// Probes when nothing happens.
    pub keepalive: Option<Keepalive>,
    /// Urgent octets are read in their place (SO_OOBINLINE). A read stops before the last one all the same.
    pub urgent_inline: bool,
    /// Whether longer segments than those that are known to arrive are tried (RFC 4821).
    pub mtu_probing: MtuProbing,
    /// Octets of payload that a packet of any path takes, as far as is known: where [`mtu_probing`](Settings::mtu_probing) begins. 48 at
    /// least. Linux's net.ipv4.tcp_base_mss.
    pub base_mss: u16,
    /// Octets that are not acknowledged for so long end the connection (RFC 5482). `None`: after
    /// [`RETRIES`](super::clock::RETRIES).
    pub user_timeout: Option<Duration>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            algorithm: Algorithm::default(),
            mss: 1460,
            send_octets: 4 << 20,
            receive_octets: 6 << 20,
            tune_send: true,
            tune_receive: true,
            nodelay: false,
            cork: false,
            sack: true,
            timestamps: true,
            window_scale: true,
            ecn: false,
            keepalive: None,
            urgent_inline: false,
            mtu_probing: MtuProbing::Off,
            base_mss: 1024,
            user_timeout: None,
        }
    }
}

/// Settings that many connections have in common, but for the MSS, which is that of the path.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Of all of them.
    pub settings: Arc<Settings>,
    /// In place of [`Settings::mss`], for what comes.
    pub mss: u16,
}

impl From<Settings> for Shared {
    fn from(settings: Settings) -> Shared {
        Shared { mss: settings.mss, settings: Arc::new(settings) }
    }
}

/// Send sequence variables.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Snd {
    pub iss: SeqNumber,
    pub una: SeqNumber,
    pub nxt: SeqNumber,
    /// Scaled.
    pub wnd: u32,
    pub wl1: SeqNumber,
    pub wl2: SeqNumber,
    /// The largest window ever offered: Max(SND.WND).
    pub max_wnd: u32,
    /// Octets of payload and options that the other side and the path take at most: the smaller one of both.
    pub mss: u32,
    pub peer: u32,
    pub path: u32,
    pub shift: u8,
    /// End of the last short segment that was sent: Minshall's variation of Nagle's algorithm.
    pub short: Option<SeqNumber>,
    /// The number of our FIN, when it was sent.
    pub fin: Option<SeqNumber>,
    /// Octets that may be written and not acknowledged now.
    pub room: u32,
}

/// Receive sequence variables.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rcv {
    pub irs: SeqNumber,
    pub nxt: SeqNumber,
    /// The right edge of the window as it was told: RCV.NXT + RCV.WND.
    pub edge: SeqNumber,
    pub shift: u8,
    /// The longest payload that came lately: what a full segment is.
    pub mss: u32,
    /// The other side has finished: the sequence number of its FIN.
    pub fin: Option<SeqNumber>,
    /// Octets that came since the last acknowledgement.
    pub unacked: u32,
    /// Segments that are acknowledged at once yet.
    pub quick: u8,
    /// What comes is answered with octets: acknowledgements go with them.
    pub answers: bool,
    /// What came last was shorter than a segment: a message's end.
    pub short: bool,
    /// Octets that may wait to be read now.
    pub room: u32,
    /// When octets came last.
    pub at: Instant,
}

/// Timestamps in use (RFC 7323, 4).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timestamps {
    /// TS.Recent, and when it came.
    pub recent: u32,
    pub recent_at: Instant,
    /// Last.ACK.sent.
    pub last_ack: SeqNumber,
}

/// What is due when.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Deadlines {
    /// Retransmission, a probe for the tail, or a probe of a closed window: see `resend`.
    pub resend: Option<(Resend, Instant)>,
    /// RACK's reordering timer.
    pub reorder: Option<Instant>,
    /// The delayed acknowledgement.
    pub ack: Option<Instant>,
    /// Keep-alive; TIME-WAIT; FIN-WAIT-2 without an application.
    pub life: Option<Instant>,
}

/// What the first of the timers is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resend {
    /// RFC 6298.
    Timeout,
    /// RFC 8985, 7.
    TailProbe,
    /// RFC 9293, 3.8.6.1.
    WindowProbe,
}

/// Segments that are to be sent whatever else there is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Wanted {
    /// SYN, or SYN and ACK.
    pub syn: bool,
    pub ack: bool,
    /// Acknowledgements in vain that are owed, one for each segment that came out of order: without SACK they are counted.
    pub vain: u8,
    /// Without octets, just before what was acknowledged: it has to be answered.
    pub probe: bool,
    /// Octets at the end once more (RFC 8985, 7.3).
    pub tail: bool,
    /// Octets that were too few to be sent (RFC 9293, 3.8.6.2.1).
    pub short: bool,
    /// RST with this number, and this one acknowledged.
    pub rst: Option<(SeqNumber, Option<SeqNumber>)>,
}

/// What the application has said of octets that follow.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct More {
    /// More follows soon (MSG_MORE), and nothing was heard since.
    pub waits: bool,
    /// More follows what was written last: it is not to be pushed (RFC 9293, 3.9.1.2).
    pub unmarked: bool,
    /// What was written is to go at once.
    pub pushed: bool,
}

/// A connection.
#[derive(Debug)]
pub struct Connection {
    pub(super) state: State,
    pub(super) settings: Arc<Settings>,
    /// Octets of payload that we take at most in a segment: its own part of the settings.
    pub(super) own_mss: u16,
    pub(super) snd: Snd,
    pub(super) rcv: Rcv,
    /// Octets from `snd.una` on.
    pub(super) tx: Buffer,
    /// Octets up to `rcv.nxt` that have not been read.
    pub(super) rx: Buffer,
    pub(super) ahead: Assembler,
    pub(super) sent: Sent,
    pub(super) rtt: Rtt,
    pub(super) congestion: Congestion,
    pub(super) tuning: Option<Box<Tuning>>,
    /// There is no memory for more octets than its buffer has: no more are promised.
    pub(super) scarce: bool,
    pub(super) recovery: Recovery,
    /// Longer segments are tried.
    pub(super) search: Option<Box<Search>>,
    pub(super) timestamps: Option<Timestamps>,
    /// Ours are so much ahead of the clock (RFC 7323, 5.4).
    pub(super) ts_offset: u32,
    pub(super) sack: bool,
    pub(super) ecn: super::ecn::Ecn,
    pub(super) deadlines: Deadlines,
    pub(super) wanted: Wanted,
    /// A SYN came and is not answered before the application has decided.
    pub(super) held: bool,
    /// The application has finished writing.
    pub(super) finished: bool,
    pub(super) more: More,
    /// The application reads no more.
    pub(super) deaf: bool,
    pub(super) failure: Option<Failure>,
    /// When something came last.
    pub(super) heard: Instant,
    /// When octets were sent last.
    pub(super) wrote: Instant,
    /// Since when octets are not acknowledged.
    pub(super) waiting: Option<Instant>,
    /// Keep-alive or window probes without an answer; tries of a SYN.
    pub(super) tries: u32,
    /// When an unacceptable segment was answered last.
    pub(super) challenged: Option<Instant>,
    /// `None`: nothing is urgent, on either side.
    pub(super) urgent: Option<Box<Urgent>>,
    pub(super) counts: Counts,
}

/// What a connection has counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    /// Octets of the stream that were acknowledged.
    pub acked: u64,
    /// Octets of the stream that came.
    pub received: u64,
    /// Octets that were sent again.
    pub again: u64,
}

impl Connection {
    pub(super) fn new(
        now: Instant,
        Shared { settings, mss: own_mss }: Shared,
        state: State,
        iss: SeqNumber,
        ts_offset: u32,
    ) -> Connection {
        let shift = if settings.window_scale { window_shift(settings.receive_octets) } else { 0 };
        let mss = u32::from(own_mss);
        let (send, receive) = tune::first(&settings);
        Connection {
            state,
            snd: Snd {
                iss,
                una: iss,
                nxt: iss,
                mss,
                peer: mss,
                path: u32::MAX,
                room: send,
                ..Snd::default()
            },
            rcv: Rcv { shift, mss: 536, quick: QUICK, room: receive, ..Rcv::default() },
            tx: Buffer::default(),
            rx: Buffer::default(),
            ahead: Assembler::default(),
            sent: Sent::default(),
            rtt: Rtt::default(),
            congestion: Congestion::new(settings.algorithm, mss),
            tuning: None,
            scarce: false,
            recovery: Recovery::default(),
            search: None,
            timestamps: None,
            ts_offset,
            sack: false,
            ecn: super::ecn::Ecn::default(),
            deadlines: Deadlines::default(),
            wanted: Wanted { syn: true, ..Wanted::default() },
            held: false,
            finished: false,
            more: More::default(),
            deaf: false,
            failure: None,
            heard: now,
            wrote: now,
            waiting: None,
            tries: 0,
            challenged: None,
            urgent: None,
            counts: Counts::default(),
            settings,
            own_mss,
        }
    }

    /// An active open: a SYN is to be sent. `iss` and `ts_offset` are such that nobody can guess them (RFC 6528).
    pub fn connect(now: Instant, settings: impl Into<Shared>, iss: SeqNumber, ts_offset: u32) -> Connection {
        Connection::new(now, settings.into(), State::SynSent, iss, ts_offset)
    }

    /// The state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Why it is over, once.
    pub fn take_failure(&mut self) -> Option<Failure> {
        self.failure.take()
    }

    /// Octets may be written.
    pub const fn is_writable(&self) -> bool {
        !self.finished && matches!(self.state, State::Established | State::CloseWait)
    }

    /// Everything that comes was read, and nothing more will come.
    pub fn is_at_end(&self) -> bool {
        self.unread() == 0
            && (self.rcv.fin.is_some_and(|fin| self.rcv.nxt.after(fin)) || self.state == State::Closed)
    }

    /// Octets that can be read.
    #[inline]
    pub fn unread(&self) -> usize {
        match self.urgent {
            None => self.rx.len(),
            Some(_) => self.rx.len() - self.kept_apart(),
        }
    }

    /// Octets that were written and are not acknowledged.
    pub const fn unacknowledged(&self) -> usize {
        self.tx.len()
    }

    /// Octets that can be written now.
    pub fn room(&self) -> usize {
        if self.finished { 0 } else { (self.snd.room as usize).saturating_sub(self.tx.len()) }
    }

    /// Queues octets to be sent, as many as there is room for; how many.
    pub fn write(&mut self, bytes: &[u8]) -> usize {
        if self.finished || self.state == State::Closed {
            0
        } else {
            self.tx.push(bytes, self.snd.room as usize)
        }
    }

    /// Has octets written where they are sent from, `most` of them; how many. `None`: there is no room.
    pub fn write_with(&mut self, most: usize, fill: impl FnOnce(&mut [u8]) -> usize) -> Option<usize> {
        if self.finished || self.state == State::Closed {
            None
        } else {
            self.tx.push_with(most, self.snd.room as usize, fill)
        }
    }

    /// Whether the application has said that more will follow what is written next.
    pub(super) const fn expect_more(&mut self, more: bool) {
        self.more = More { waits: more, unmarked: more, pushed: false };
    }

    /// What was written goes at once, however short it is.
    pub(super) const fn push(&mut self) {
        self.more.pushed = true;
    }

    /// Takes octets that came, as many as there are and fit; how many.
    pub fn read(&mut self, room: &mut [u8]) -> usize {
        if self.urgent.is_some() {
            return self.copy_to_mark(room);
        }
        let n = self.rx.copy_out(0, room);
        self.taken(n);
        n
    }

    /// Shows octets that came, `most` of them, or fewer that lie in one piece; as many are taken as `take` says.
    pub fn read_with(&mut self, most: usize, take: impl FnOnce(&[u8]) -> usize) -> usize {
        if self.urgent.is_some() {
            return self.read_to_mark(most, take);
        }
        let (piece, _) = self.rx.slices(0, most);
        let n = take(piece).min(piece.len());
        self.taken(n);
        n
    }

    /// The application has so many octets.
    pub(super) fn taken(&mut self, n: usize) {
        self.rx.pop(n);
        if self.ahead.is_empty() {
            self.rx.rewind();
        }
        if n > 0 {
            self.has_read();
        }
    }

    /// The application has octets that it had not before.
    pub(super) fn has_read(&mut self) {
        self.offer_more();
        if self.deadlines.ack.is_some() {
            self.answer_reader();
        }
    }

    /// An acknowledgement that waits for company goes with a read, as in Linux: more than a segment is owed one; or a message was read to its
    /// end, and the application does not answer those: who sent it may wait with the next one (RFC 9293, 3.7.4).
    fn answer_reader(&mut self) {
        let read = self.rx.is_empty() && self.rcv.short && !self.rcv.answers;
        if read || self.rcv.unacked > self.rcv.mss {
            self.wanted.ack = true;
        }
    }

    /// The window has become so much larger that the other side should hear of it (RFC 9293, 3.8.6.2.2: at least a full
    /// segment, or half of it all).
    pub(super) fn offer_more(&mut self) {
        let told = self.rcv.edge.distance(self.rcv.nxt).max(0) as u32;
        let more = self.window().saturating_sub(told);
        let half = self.rcv.room / 2;
        if more >= half.min(2 * self.rcv.mss) && told < half && self.is_synchronized() {
            self.wanted.ack = true;
        }
    }

    /// Octets of the window that may be told now.
    pub(super) fn window(&self) -> u32 {
        let unread = u32::try_from(self.rx.len()).unwrap_or(u32::MAX);
        let room = if self.scarce { self.rx.capacity().max(LEAST) as u32 } else { self.rcv.room };
        room.min(self.rcv.room).saturating_sub(unread).min(65_535 << self.rcv.shift)
    }

    /// Nothing more will be written: a FIN follows what was.
    pub fn finish(&mut self) {
        self.finished = true;
    }

    /// Nothing more will be read: what comes from now on is answered with a reset (RFC 9293, 3.6.1, MUST-16).
    pub fn close(&mut self) {
        let unread = !self.rx.is_empty();
        (self.finished, self.deaf) = (true, true);
        match self.state {
            State::SynSent => self.end(None),
            State::SynReceived if self.held => self.abort(),
            // RFC 2525, 2.17: what was not read is lost, and the other side has to know.
            _ if unread => self.abort(),
            _ => {}
        }
    }

    /// Ends it at once, with a reset (RFC 9293, 3.10.5).
    pub fn abort(&mut self) {
        if self.is_synchronized() && !matches!(self.state, State::TimeWait | State::Closed) {
            self.wanted.rst = Some((self.snd.nxt, Some(self.rcv.nxt)));
        } else if self.held {
            // As where nobody listens (RFC 9293, 3.10.7.1).
            self.wanted.rst = Some((SeqNumber(0), Some(self.rcv.nxt)));
        }
        self.end(None);
    }

    /// Nobody is to be told that it is over.
    pub(super) fn forget_reset(&mut self) {
        self.wanted.rst = None;
    }

    /// It is over. What was received can still be read.
    pub(super) fn end(&mut self, failure: Option<Failure>) {
        self.state = State::Closed;
        self.held = false;
        self.failure = self.failure.or(failure);
        self.tx = Buffer::default();
        self.sent = Sent::default();
        self.deadlines = Deadlines::default();
        self.wanted = Wanted { rst: self.wanted.rst, ..Wanted::default() };
        self.forget_urged();
    }

    /// Both sides know both initial sequence numbers.
    pub(super) const fn is_synchronized(&self) -> bool {
        !matches!(self.state, State::SynSent | State::SynReceived | State::Closed)
    }

    /// The sequence number of the first octet in `tx`.
    pub(super) fn first_octet(&self) -> SeqNumber {
        // Not by the number alone: after 4 GiB it is the first one again.
        match self.state {
            State::SynSent | State::SynReceived => self.snd.iss + 1,
            _ => self.snd.una,
        }
    }

    /// The sequence number behind the last octet that was written: that of the FIN.
    pub(super) fn last_octet(&self) -> SeqNumber {
        self.first_octet() + self.tx.len() as u32
    }

    /// TSval (RFC 7323, 4): milliseconds.
    pub(super) const fn tsval(&self, now: Instant) -> u32 {
        milliseconds(now).wrapping_add(self.ts_offset)
    }

    /// SRTT, or a second.
    pub(super) fn srtt(&self) -> Duration {
        self.rtt.srtt().unwrap_or(Duration::from_secs(1))
    }
}

/// Segments that are acknowledged at once when a connection begins, as the other side's window grows with each: Linux's
/// TCP_MAX_QUICKACKS.
pub(super) const QUICK: u8 = 16;

/// The clock of timestamps.
pub(super) const fn milliseconds(now: Instant) -> u32 {
    (now.as_nanos() / 1_000_000) as u32
}

/// How far windows are shifted so that one of `octets` can be told (RFC 7323, 2.2).
pub(super) fn window_shift(octets: usize) -> u8 {
    (0..bypath_wire::tcp_options::MOST_WINDOW_SHIFT)
        .find(|shift| octets <= 65_535 << shift)
        .unwrap_or(bypath_wire::tcp_options::MOST_WINDOW_SHIFT)
}
