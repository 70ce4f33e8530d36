//! A conversation: both ways together, timers, the end, and when to give up.

use super::control::{Control, Decoder, Hello, Malformed, RANGES, Report, VERSION};
use super::data::{self, Piece, Read};
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use super::{Lie, WINDOW};
use bypath::l2::MacAddr;

const MS: u64 = 1_000_000;
/// The first word of the other end is waited for so long.
const HELLO: u64 = 5_000 * MS;
/// An end that says nothing for so long is taken for dead.
const SILENCE: u64 = 5_000 * MS;
/// How often it is said that this end lives.
const PING: u64 = 1_000 * MS;
/// Frames that are missing, and do not come for so long, do not come at all.
const STALL: u64 = 10_000 * MS;
/// After so long without a further piece it is told how far they went: the last ones may be lost.
const TELL: u64 = 3 * MS;
/// What arrived is reported after so long, or after a quarter of the window.
const REPORT: u64 = 2 * MS;
/// A gap is asked for when it is so old: frames may overtake each other.
const GRACE: u64 = 2 * MS;
/// It is asked for again after so long, and twice the round trip; then after twice as long, up to the second one.
const AGAIN: [u64; 2] = [10 * MS, 500 * MS];
/// Octets that wait for the connection at most; beyond, nothing is said that can be said later.
const BACKLOG: usize = 64 << 10;

/// Why a conversation cannot go on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The first word did not come.
    #[error("the other end did not say who it is for 5 s; is it bypath chat that listens on this port?")]
    NoHello,
    /// Another version.
    #[error(
        "the other end speaks version {0} of the protocol, and this one version {VERSION}; use the same release"
    )]
    Version(u16),
    /// The ends do not fit together.
    #[error("{0}")]
    Mismatch(String),
    /// It is not bypath chat.
    #[error("the other end sent {0} on the connection: it is not bypath chat, or it is broken")]
    Malformed(#[from] Malformed),
    /// It said what cannot be.
    #[error("the other end cannot be trusted: {0}")]
    Lie(String),
    /// It says nothing any more.
    #[error("the other end has been silent for 5 s: it hangs, its host is down, or the network is cut")]
    Silent,
    /// Its connection ended in the middle.
    #[error("the other end died: its connection ended without a goodbye")]
    Died,
    /// It does not want to.
    #[error("the other end refused: {0}")]
    Refused(String),
    /// It gave up.
    #[error("the other end gave up: {0}")]
    Quit(String),
    /// Frames do not arrive here.
    #[error(
        "the connection is alive, and frames that were sent to this end do not arrive: look at the cable, at the VLAN in the \
         switches between, and whether both ends named the interfaces that face each other{0}"
    )]
    Deaf(String),
    /// Frames do not arrive there.
    #[error(
        "the connection is alive, and the other end takes none of the frames that were sent to it: look at the cable, at the \
         VLAN in the switches between, and whether both ends named the interfaces that face each other"
    )]
    Unheard,
}

impl From<Lie> for Fault {
    fn from(lie: Lie) -> Fault {
        Fault::Lie(lie.to_string())
    }
}

/// Which end this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It was called, and names the conversation.
    Server,
    /// It calls.
    Client,
}

/// Frames that are not the other end's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Foreign {
    /// Not of this protocol, or of another conversation.
    pub others: u64,
    /// Of this conversation, from another hardware address.
    pub elsewhere: u64,
    /// With changed octets.
    pub corrupt: u64,
    /// Where the last one with another address came from.
    from: Option<MacAddr>,
}

/// One end of a conversation.
#[derive(Debug)]
pub struct Session {
    role: Role,
    own: Hello,
    peer: Option<Hello>,
    /// Longest payload of a frame to the other end, as it said last.
    peer_mtu: usize,
    decoder: Decoder,
    control: Vec<u8>,
    outgoing: Outgoing,
    incoming: Incoming,
    /// Frames that are not the other end's.
    pub foreign: Foreign,
    begun: u64,
    /// When something was heard on the connection.
    heard: u64,
    ping_at: u64,
    ping: (u64, u64),
    /// The round trip of the connection, in ns.
    rtt: u64,
    /// When the last piece was given out.
    last: u64,
    /// Told to the other end as sent.
    told: u64,
    /// When the other end reported more than before, or began to owe a report.
    moved: u64,
    /// Reported to the other end: position and limit.
    reported: (u64, u64),
    report_at: Option<u64>,
    ask_at: Option<u64>,
    ask_wait: u64,
    /// When this end began to miss what it misses.
    missing_since: u64,
    end_told: bool,
    /// Messages given to the user that were not written yet.
    taken: u64,
    done: bool,
    peer_done: bool,
    piece: Vec<u8>,
}

impl Session {
    /// A conversation that begins now. `own`: who this end is; of a client the session is 0.
    pub fn new(role: Role, own: Hello, now: u64) -> Session {
        let own = Hello { version: VERSION, window: WINDOW as u32, ..own };
        let mut control = Vec::new();
        Control::Hello(own).write(&mut control);
        Session {
            role,
            own,
            peer: None,
            peer_mtu: 0,
            decoder: Decoder::default(),
            control,
            outgoing: Outgoing::new(0),
            incoming: Incoming::new(),
            foreign: Foreign::default(),
            begun: now,
            heard: now,
            ping_at: now + PING,
            ping: (0, now),
            rtt: 0,
            last: now,
            told: 0,
            moved: now,
            reported: (0, WINDOW),
            report_at: None,
            ask_at: None,
            ask_wait: 0,
            missing_since: now,
            end_told: false,
            taken: 0,
            done: false,
            peer_done: false,
            piece: Vec::new(),
        }
    }

    /// Who the other end is, once it said so.
    pub const fn peer(&self) -> Option<&Hello> {
        self.peer.as_ref()
    }

    /// The conversation's number.
    pub fn number(&self) -> u64 {
        match (self.role, &self.peer) {
            (Role::Client, Some(peer)) => peer.session,
            _ => self.own.session,
        }
    }

    /// What was sent.
    pub const fn sending(&self) -> &Outgoing {
        &self.outgoing
    }

    /// What was received.
    pub const fn receiving(&self) -> &Incoming {
        &self.incoming
    }

    /// The round trip of the connection in ns, if it was measured.
    pub fn round_trip(&self) -> Option<u64> {
        Some(self.rtt).filter(|&ns| ns > 0)
    }

    // ---- what the user says and hears

    /// Whether a message may be given now.
    pub fn has_room(&self) -> bool {
        self.peer.is_some() && self.outgoing.has_room()
    }

    /// Sends a message of 1 to [`LONGEST`](super::LONGEST) octets.
    pub fn message(&mut self, octets: &[u8]) {
        if !octets.is_empty() {
            self.outgoing.message(octets);
        }
    }

    /// There are no further messages.
    pub fn finish(&mut self) {
        self.outgoing.finish();
    }

    /// The next message; [`written`](Session::written) is called when the user has it.
    pub fn take(&mut self) -> Option<Vec<u8>> {
        let message = self.incoming.take();
        self.taken += u64::from(message.is_some());
        message
    }

    /// The user has all messages that were taken.
    pub const fn written(&mut self) {
        self.taken = 0;
    }

    /// Whether everything was said, heard, written, and both ends know.
    pub const fn is_complete(&self) -> bool {
        self.done && self.peer_done
    }

    /// Whether the other end has said all that it says.
    pub fn peer_ended(&self) -> bool {
        self.incoming.is_complete()
    }

    // ---- the connection

    /// What is to be written to the connection. What was written is taken out.
    pub const fn control(&mut self) -> &mut Vec<u8> {
        &mut self.control
    }

    /// Tells the other end why this one gives up.
    pub fn quit(&mut self, why: &str) {
        Control::Quit(why.to_owned()).write(&mut self.control);
    }

    /// Takes what came on the connection.
    ///
    /// # Errors
    /// The conversation cannot go on.
    pub fn connection(&mut self, now: u64, octets: &[u8]) -> Result<(), Fault> {
        self.decoder.push(octets);
        while let Some(message) = self.decoder.next()? {
            self.heard = now;
            self.said(now, message)?;
        }
        Ok(())
    }

    /// The connection has ended.
    ///
    /// # Errors
    /// It should not have.
    pub const fn ended(&self) -> Result<(), Fault> {
        if self.is_complete() { Ok(()) } else { Err(Fault::Died) }
    }

    fn said(&mut self, now: u64, message: Control) -> Result<(), Fault> {
        match message {
            Control::Hello(hello) if self.peer.is_none() => return self.greeted(now, hello),
            Control::Refuse(why) => return Err(Fault::Refused(why)),
            Control::Quit(why) => return Err(Fault::Quit(why)),
            _ if self.peer.is_none() => return Err(Malformed::Magic.into()),
            Control::Hello(_) => return Err(Lie::new("it says twice who it is").into()),
            Control::Report(report) => {
                if self.outgoing.report(&report)? {
                    self.moved = now;
                }
            }
            Control::Sent(position) => {
                self.incoming.sent(position)?;
                self.look_for_gaps(now, false);
            }
            Control::Ping(token, mtu) => {
                self.peer_mtu = usable(mtu)?;
                if self.control.len() < BACKLOG {
                    Control::Pong(token).write(&mut self.control);
                }
            }
            Control::Pong(token) if token == self.ping.0 => self.rtt = (now - self.ping.1).max(1),
            Control::Pong(_) => {}
            Control::End(end) => self.incoming.ends(end)?,
            Control::Done => {
                if !self.end_told {
                    return Err(Lie::new("it has everything before everything was said").into());
                }
                let (next, limit) = (self.outgoing.finish(), self.outgoing.limit());
                self.outgoing.report(&Report { next, limit, wanted: Vec::new() })?;
                self.peer_done = true;
            }
        }
        self.look_for_the_end();
        Ok(())
    }

    fn greeted(&mut self, now: u64, peer: Hello) -> Result<(), Fault> {
        if peer.version != VERSION {
            return Err(Fault::Version(peer.version));
        }
        let own = &self.own;
        if peer.vlan != own.vlan {
            let name = |v: Option<u16>| v.map_or("none".to_owned(), |v| v.to_string());
            let (theirs, ours) = (name(peer.vlan), name(own.vlan));
            let text =
                format!("the other end's VLAN is {theirs}, and this one's {ours}; give both the same --vlan");
            return Err(Fault::Mismatch(text));
        }
        if peer.ethertype != own.ethertype {
            let text = format!(
                "the other end's EtherType is {:#06x}, and this one's {:#06x}; give both the same --ethertype",
                peer.ethertype, own.ethertype
            );
            return Err(Fault::Mismatch(text));
        }
        if peer.mac == own.mac && own.mac != MacAddr::UNSPECIFIED {
            let text = format!(
                "both ends have the hardware address {}: an interface does not hear itself; on one host use the interface lo",
                own.mac
            );
            return Err(Fault::Mismatch(text));
        }
        if peer.mac.is_multicast() || (peer.mac == MacAddr::UNSPECIFIED) != (own.mac == MacAddr::UNSPECIFIED)
        {
            return Err(Lie::new(format_args!("it says that its hardware address is {}", peer.mac)).into());
        }
        if (peer.session == 0) != (self.role == Role::Server) {
            return Err(Lie::new("its number of the conversation cannot be").into());
        }
        self.peer_mtu = usable(peer.mtu)?;
        // More than this end would hold is of no use.
        self.outgoing = Outgoing::new(u64::from(peer.window).min(WINDOW));
        self.peer = Some(peer);
        (self.moved, self.missing_since) = (now, now);
        Ok(())
    }

    // ---- frames

    /// Takes a frame of the EtherType and VLAN agreed on.
    ///
    /// # Errors
    /// The stream has what cannot be.
    pub fn frame(&mut self, now: u64, source: MacAddr, payload: &[u8]) -> Result<(), Fault> {
        let Some(peer) = self.peer else {
            self.foreign.others += 1;
            return Ok(());
        };
        let from_other = |piece: &Piece<'_>| piece.of_server == (self.role == Role::Client);
        match data::read(payload) {
            Read::Piece(piece) if piece.session == self.number() && source != peer.mac => {
                self.foreign.elsewhere += 1;
                self.foreign.from = Some(source);
            }
            Read::Piece(piece) if piece.session == self.number() && from_other(&piece) => {
                if self.incoming.piece(piece.position, piece.octets)? {
                    if self.incoming.next() > self.reported.0 {
                        self.missing_since = now;
                        self.ask_wait = 0;
                    }
                    let unreported = self.incoming.next() - self.reported.0;
                    let at = if unreported >= WINDOW / 4 { now } else { now + REPORT };
                    self.report_at = Some(self.report_at.map_or(at, |before| before.min(at)));
                    self.look_for_gaps(now, false);
                    self.look_for_the_end();
                }
            }
            // On loopback an end hears itself.
            Read::Piece(piece) if piece.session == self.number() => {}
            Read::Corrupt => self.foreign.corrupt += 1,
            Read::Piece(_) | Read::Foreign => self.foreign.others += 1,
        }
        Ok(())
    }

    /// Whether there is a frame to be sent.
    pub fn has_frame(&self) -> bool {
        self.peer.is_some() && self.outgoing.has_next()
    }

    /// Writes the payload of the next frame, which is not longer than the other end's interface and this one's, of `mtu`
    /// octets, carry. The piece's position and length.
    pub fn next_frame(&mut self, now: u64, mtu: usize, out: &mut Vec<u8>) -> Option<(u64, usize)> {
        self.peer?;
        let most = mtu.min(self.peer_mtu).saturating_sub(data::OVERHEAD).min(data::LONGEST);
        let mut octets = std::mem::take(&mut self.piece);
        octets.clear();
        let waited = self.outgoing.acked() == self.outgoing.sent();
        let given = self.outgoing.next(most, &mut octets);
        if let Some(position) = given {
            let (session, of_server) = (self.number(), self.role == Role::Server);
            Piece { session, of_server, position, octets: &octets }.write(out);
            self.last = now;
            if waited {
                self.moved = now;
            }
        }
        self.piece = octets;
        given.map(|position| (position, self.piece.len()))
    }

    /// A frame of [`next_frame`](Session::next_frame) could not be sent; it is cut anew.
    pub fn refused(&mut self, (position, octets): (u64, usize)) {
        self.outgoing.refused(position, octets);
    }

    // ---- time

    /// When [`tick`](Session::tick) is to be called next.
    pub fn next_tick(&self) -> u64 {
        let mut at = self.ping_at.min(self.heard + SILENCE);
        if self.peer.is_none() {
            at = at.min(self.begun + HELLO);
        }
        if self.is_untold() {
            at = at.min(self.last + TELL);
        }
        if self.outgoing.acked() < self.outgoing.sent() {
            at = at.min(self.moved + STALL);
        }
        [self.report_at, self.ask_at].into_iter().flatten().fold(at, u64::min)
    }

    /// Does what is due. `mtu` is what this end's interface carries now.
    ///
    /// # Errors
    /// The conversation cannot go on.
    pub fn tick(&mut self, now: u64, mtu: usize) -> Result<(), Fault> {
        if self.peer.is_none() {
            return if now >= self.begun + HELLO { Err(Fault::NoHello) } else { Ok(()) };
        }
        if now >= self.heard + SILENCE {
            return Err(Fault::Silent);
        }
        if self.incoming.is_behind() && now >= self.missing_since + STALL {
            let from = self.foreign.from.map_or(String::new(), |mac| {
                format!(
                    " ({} came from {mac}, which is not the address that it told)",
                    self.foreign.elsewhere
                )
            });
            return Err(Fault::Deaf(from));
        }
        if self.outgoing.acked() < self.outgoing.sent() && now >= self.moved + STALL {
            return Err(Fault::Unheard);
        }
        let may_speak = self.control.len() < BACKLOG;
        if now >= self.ping_at {
            self.ping_at = now + PING;
            if may_speak {
                self.ping = (self.ping.0 + 1, now);
                Control::Ping(self.ping.0, mtu as u32).write(&mut self.control);
            }
        }
        if self.is_untold() && now >= self.last + TELL {
            self.told = self.outgoing.sent();
            Control::Sent(self.told).write(&mut self.control);
        }
        if self.ask_at.is_some_and(|at| now >= at) {
            self.look_for_gaps(now, true);
        } else if self.report_at.is_some_and(|at| now >= at) && may_speak {
            self.report(Vec::new());
        }
        // The user took messages: the other end may send again.
        let limit = self.incoming.limit();
        if limit > self.reported.1 && limit >= self.reported.1 + WINDOW / 4 && may_speak {
            self.report(Vec::new());
        }
        self.look_for_the_end();
        Ok(())
    }

    fn is_untold(&self) -> bool {
        self.outgoing.sent() > self.told && self.outgoing.sent() > self.outgoing.acked()
    }

    fn report(&mut self, wanted: Vec<(u64, u64)>) {
        let report = Report { next: self.incoming.next(), limit: self.incoming.limit(), wanted };
        self.reported = (report.next, report.limit);
        self.report_at = None;
        Control::Report(report).write(&mut self.control);
    }

    /// Asks for what is missing, if it is time to.
    fn look_for_gaps(&mut self, now: u64, due: bool) {
        if !self.incoming.is_behind() {
            self.ask_at = None;
            self.ask_wait = 0;
            self.missing_since = now;
            return;
        }
        if due && self.control.len() < BACKLOG {
            let wanted: Vec<_> = self.incoming.missing().take(RANGES).collect();
            self.report(wanted);
            let least = AGAIN[0] + 2 * self.rtt;
            self.ask_wait = (2 * self.ask_wait).clamp(least, AGAIN[1].max(least));
            self.ask_at = Some(now + self.ask_wait);
        } else if due || self.ask_at.is_none() {
            self.ask_at = Some(now + GRACE);
        }
    }

    /// Says what is to be said at the end.
    fn look_for_the_end(&mut self) {
        if self.peer.is_none() {
            return;
        }
        if let (Some(end), false) = (self.outgoing.end(), self.end_told) {
            Control::End(end).write(&mut self.control);
            self.end_told = true;
        }
        let all = self.incoming.is_complete() && !self.incoming.has_message() && self.taken == 0;
        if all && !self.done {
            Control::Done.write(&mut self.control);
            self.done = true;
        }
    }
}

/// The longest payload that an interface is said to carry.
fn usable(mtu: u32) -> Result<usize, Fault> {
    // The least that IPv4 allows (RFC 791): nothing that carries Ethernet frames has less.
    const LEAST: u32 = 68;
    if mtu < LEAST {
        return Err(
            Lie::new(format_args!("it says that its interface carries {mtu} octets in a frame")).into()
        );
    }
    Ok(mtu as usize)
}
