//! Urgent octets (RFC 9293, 3.8.5), as Linux has them: the last one is kept apart from the stream, one at a time. Its place in the
//! stream is a mark: whoever reads stops before it, and who reads on from there does not get the octet, unless urgent octets are to
//! [stay in line](super::tcb::Settings::urgent_inline).
//!
//! DEVIATION RFC 6093 section 4: urgent data are not to be taken out of line; whoever has an application for it expects the octet
//! there, and who has not asks for them in line (6).

use super::error::WriteError;
use super::socket::Tcp;
use super::tcb::{Connection, State};
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::{TcpFlags, TcpHeader};

/// What is urgent in both directions. Who has nothing urgent has none of it, and is asked nothing but that.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Urgent {
    mark: Option<Mark>,
    /// SND.UP: behind the last urgent octet that was written, as long as that is not acknowledged.
    up: Option<SeqNumber>,
    /// The other side's window is closed, and it was told of urgent octets behind it.
    probed: bool,
    /// An urgent octet was announced, or came, and nobody was told of it.
    news: bool,
    /// An urgent octet that was kept apart is one of the stream again.
    back: bool,
}

/// An urgent octet that was announced and is not passed.
#[derive(Clone, Copy, Debug)]
struct Mark {
    seq: SeqNumber,
    octet: Octet,
}

#[derive(Clone, Copy, Debug)]
enum Octet {
    /// It was announced.
    Awaited,
    Here(u8),
    Read,
}

/// No urgent octet is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UrgentError {
    /// EINVAL.
    #[error("there is no urgent octet, it was read or passed, or urgent octets stay in the stream")]
    Nothing,
    /// EAGAIN, however long the caller would wait.
    #[error("an urgent octet was announced and has not come")]
    Awaited,
    /// An end: nothing was read, and nothing will come.
    #[error("an urgent octet was announced and will not come")]
    Finished,
    /// ENOTCONN.
    #[error("the connection is over")]
    NotConnected,
}

impl Urgent {
    const fn is_over(&self) -> bool {
        self.mark.is_none() && self.up.is_none()
    }
}

// What comes.
impl Connection {
    /// Sixth, the URG bit (RFC 9293, 3.10.7.4); and whether a segment brings the octet that an earlier one has announced.
    #[cold]
    pub(super) fn urgent_bit(&mut self, header: &TcpHeader, payload: &[u8]) {
        // "This should not occur since a FIN has been received from the remote side. Ignore the URG."
        if !matches!(self.state, State::Established | State::FinWait1 | State::FinWait2) {
            return;
        }
        if header.flags.has(TcpFlags::URG) {
            // RFC 9293, 3.1: "The urgent pointer points to the sequence number of the octet following the urgent data." One that
            // points at the segment's first octet is taken for the one behind, as Linux does.
            self.announced(header.seq + u32::from(header.urgent).saturating_sub(1));
        }
        let first = header.seq + u32::from(header.flags.has(TcpFlags::SYN));
        let edge = self.rcv.edge;
        let Some(urgent) = self.urgent.as_deref_mut() else { return };
        if let Some(mark) = &mut urgent.mark
            && matches!(mark.octet, Octet::Awaited)
            // Beyond the window it will be cut off, and come again.
            && mark.seq.before(edge)
            && let Ok(at) = usize::try_from(mark.seq.distance(first))
            && let Some(octet) = payload.get(at)
        {
            mark.octet = Octet::Here(*octet);
            urgent.news = true;
        }
    }

    /// The octet with this number is urgent.
    fn announced(&mut self, seq: SeqNumber) {
        // What came before in line stays there, and a mark only moves on.
        let mark = self.urgent.as_ref().and_then(|urgent| urgent.mark);
        if seq.before(self.rcv.nxt) || mark.is_some_and(|mark| !seq.after(mark.seq)) {
            return;
        }
        // An octet that would have been passed next is not to come back into the stream. One further on does.
        let back = !self.skip_mark() && self.kept_apart() > 0;
        let urgent = self.urgent.get_or_insert_default();
        urgent.back |= back;
        // RFC 9293, 3.8.5 (MUST-32): whenever the pointer advances.
        (urgent.mark, urgent.news) = (Some(Mark { seq, octet: Octet::Awaited }), true);
    }

    /// The number of the octet that is read next.
    pub(super) fn next_unread(&self) -> SeqNumber {
        self.rcv.nxt - u32::from(self.is_finished()) - self.rx.len() as u32
    }

    /// Octets that come and came before the mark.
    pub(super) fn before_mark(&self) -> Option<usize> {
        let mark = self.urgent.as_ref()?.mark?;
        Some(mark.seq.since(self.next_unread()) as usize)
    }

    /// Octets that came and are not read in line.
    #[cold]
    pub(super) fn kept_apart(&self) -> usize {
        let apart = self.before_mark().is_some_and(|n| n < self.rx.len());
        usize::from(apart && !self.settings.urgent_inline)
    }

    /// Octets that a read takes at most from here on, behind so many that it leaves out.
    fn reach(&self) -> (usize, usize) {
        match self.before_mark() {
            Some(0) => (self.kept_apart(), usize::MAX),
            Some(n) => (0, n),
            None => (0, usize::MAX),
        }
    }

    /// Leaves out an urgent octet that is the next one. False: it is not.
    fn skip_mark(&mut self) -> bool {
        let skips = self.before_mark() == Some(0) && self.kept_apart() > 0;
        if skips {
            self.taken(1);
        }
        skips
    }

    /// Something is to be read: an urgent octet that is the next one is passed, be it that nobody has read it. False: none is.
    #[cold]
    pub(super) fn pass_mark(&mut self) -> bool {
        let passed = self.skip_mark();
        self.forget_passed();
        passed
    }

    fn forget_passed(&mut self) {
        let next = self.next_unread();
        if let Some(urgent) = &mut self.urgent {
            urgent.mark = urgent.mark.filter(|mark| next.at_or_before(mark.seq));
            if urgent.is_over() {
                self.urgent = None;
            }
        }
    }

    /// [`Connection::read_with`], up to the mark.
    #[cold]
    pub(super) fn read_to_mark(&mut self, most: usize, take: impl FnOnce(&[u8]) -> usize) -> usize {
        if most > 0 {
            self.pass_mark();
        }
        let (piece, _) = self.rx.slices(0, most.min(self.reach().1));
        let n = take(piece).min(piece.len());
        self.taken(n);
        self.forget_passed();
        n
    }

    /// [`Connection::peek`], up to the mark.
    #[cold]
    pub(super) fn peek_to_mark(&self, room: &mut [u8]) -> usize {
        let (from, most) = self.reach();
        let most = most.min(room.len());
        self.rx.copy_out(from, &mut room[..most])
    }

    /// [`Connection::read`], up to the mark.
    #[cold]
    pub(super) fn copy_to_mark(&mut self, room: &mut [u8]) -> usize {
        if room.is_empty() {
            return 0;
        }
        self.pass_mark();
        let n = self.peek_to_mark(room);
        self.taken(n);
        self.forget_passed();
        n
    }

    /// The urgent octet; once, unless it is only looked at.
    ///
    /// # Errors
    /// [`UrgentError`].
    pub fn urgent_octet(&mut self, stays: bool) -> Result<u8, UrgentError> {
        let finished = self.is_finished();
        let over = self.state == State::Closed;
        let inline = self.settings.urgent_inline;
        let mark = self.urgent.as_mut().and_then(|urgent| urgent.mark.as_mut()).filter(|_| !inline);
        match mark {
            None | Some(Mark { octet: Octet::Read, .. }) => Err(UrgentError::Nothing),
            Some(_) if over && !finished => Err(UrgentError::NotConnected),
            Some(Mark { octet: Octet::Awaited, .. }) if over || finished || self.deaf => {
                Err(UrgentError::Finished)
            }
            Some(Mark { octet: Octet::Awaited, .. }) => Err(UrgentError::Awaited),
            Some(Mark { octet, .. }) => {
                let Octet::Here(found) = *octet else { return Err(UrgentError::Nothing) };
                if !stays {
                    *octet = Octet::Read;
                }
                Ok(found)
            }
        }
    }

    /// An urgent octet is there that was neither read apart nor passed.
    #[inline]
    pub fn has_urgent(&self) -> bool {
        let mark = self.urgent.as_ref().and_then(|urgent| urgent.mark);
        mark.is_some_and(|mark| matches!(mark.octet, Octet::Here(_)))
    }

    /// What is to be told, once: octets can be read that could not, whether there are more of them (`came`) or an urgent one is one of
    /// the stream again; an urgent octet was announced or has come.
    #[cold]
    pub(super) fn urgent_news(&mut self, came: bool) -> (bool, bool) {
        let unread = self.unread();
        let Some(urgent) = &mut self.urgent else { return (came, false) };
        let more = came || core::mem::take(&mut urgent.back);
        (more && unread > 0, core::mem::take(&mut urgent.news))
    }
}

// What goes.
impl Connection {
    /// The last octet that was written is urgent.
    pub(super) fn urge(&mut self) {
        let up = self.last_octet();
        let urgent = self.urgent.get_or_insert_default();
        (urgent.up, urgent.probed) = (Some(up), false);
    }

    /// Urgent octets are not acknowledged: what is short does not wait.
    #[inline]
    pub(super) fn urges(&self) -> bool {
        self.urgent.as_ref().is_some_and(|urgent| urgent.up.is_some())
    }

    /// The urgent pointer of a segment that begins there. `None`: urgent octets are not behind it, or too far.
    #[cold]
    pub(super) fn pointer(&self, seq: SeqNumber) -> Option<u16> {
        let up = self.urgent.as_ref()?.up?;
        let ahead = u32::try_from(up.distance(seq)).ok().filter(|ahead| *ahead > 0)?;
        // As far as it goes; of what is sent again another segment will tell.
        let last = (seq + 0xffff).after(self.snd.nxt).then_some(0xffff);
        u16::try_from(ahead).ok().or(last)
    }

    /// A segment is told where its own urgent octets end: none is cut into several.
    #[cold]
    pub(super) fn uncut(&self, most: usize) -> usize {
        if self.urges() { most.min(self.payload_now() as usize) } else { most }
    }

    /// A probe of a closed window is to be sent. It is no segment that says anything, so another one goes before it (Linux's
    /// tcp_write_wakeup), once each time: RFC 9293, 3.8.5: urgent octets are told of however closed the window is.
    #[cold]
    pub(super) fn probe_urges(&mut self) -> bool {
        let una = self.snd.una;
        let Some(urgent) = &mut self.urgent else { return false };
        // Those behind the window, as far as a pointer goes.
        let told = urgent.up.is_some_and(|up| up.after(una) && up.at_or_before(una + 0xffff));
        let goes = told && !urgent.probed;
        urgent.probed = goes;
        goes
    }

    /// Octets were acknowledged, or will never be.
    #[cold]
    pub(super) fn forget_urged(&mut self) {
        let (una, over) = (self.snd.una, self.state == State::Closed);
        if let Some(urgent) = &mut self.urgent {
            urgent.up = urgent.up.filter(|up| up.after(una) && !over);
            if urgent.is_over() {
                self.urgent = None;
            }
        }
    }

    /// What contradicts itself.
    pub(super) fn urgent_contradiction(&self) -> Option<&'static str> {
        let urgent = self.urgent.as_deref()?;
        let (next, last) = (self.next_unread(), self.last_octet());
        let wrong = [
            ("nothing is urgent, and it is remembered", urgent.is_over()),
            ("a mark was passed", urgent.mark.is_some_and(|mark| mark.seq.before(next))),
            ("an octet is urgent that was not written", urgent.up.is_some_and(|up| up.after(last))),
            ("an octet is urgent that was acknowledged", urgent.up.is_some_and(|up| !up.after(self.snd.una))),
        ];
        wrong.into_iter().find(|(_, is)| *is).map(|(what, _)| what)
    }
}

impl Tcp<'_> {
    /// As [`write`](Tcp::write); the last octet that is taken is urgent (MSG_OOB): the other side hears at once that it is
    /// on its way, wherever it stands in the stream, and nothing up to it waits for more. One is urgent at a time: the next one takes
    /// its place. `more`: more will follow soon, and its end is not to be pushed (MSG_MORE).
    ///
    /// # Errors
    /// [`WriteError`].
    pub fn write_urgent(&mut self, octets: &[u8], more: bool) -> Result<usize, WriteError> {
        let all = octets.len();
        self.queue(all, |c, most| {
            c.expect_more(more);
            let n = c.write(&octets[..most]);
            if n > 0 {
                c.urge();
            }
            (n > 0 || all == 0).then_some(n)
        })
    }

    /// Takes the urgent octet that is kept apart from the stream (RFC 9293, 3.8.5): recv with MSG_OOB, which never waits.
    ///
    /// # Errors
    /// [`UrgentError`].
    pub fn read_urgent(&mut self) -> Result<u8, UrgentError> {
        self.urgent_octet(false)
    }

    /// The same, and it stays: MSG_PEEK.
    ///
    /// # Errors
    /// [`UrgentError`].
    pub fn peek_urgent(&mut self) -> Result<u8, UrgentError> {
        self.urgent_octet(true)
    }

    fn urgent_octet(&mut self, stays: bool) -> Result<u8, UrgentError> {
        let entry = self.stack.tcp.entry_mut(self.index).ok_or(UrgentError::Nothing)?;
        entry.connection.urgent_octet(stays)
    }

    /// Octets of the stream before an urgent one that was announced, whether they came or not; 0: it is the next one, be it read
    /// already (SIOCATMARK). `None`: none was announced, or it was passed. A read that begins before it ends there.
    pub fn mark(&mut self) -> Option<usize> {
        self.stack.tcp.entry(self.index)?.connection.before_mark()
    }

    /// Passes an urgent octet that is kept apart and is the next one, as a read does that begins there.
    pub fn pass_mark(&mut self) {
        if let Some(entry) = self.stack.tcp.entry_mut(self.index)
            && entry.connection.urgent.is_some()
            && entry.connection.pass_mark()
        {
            // The window may have to be told, whatever can be read.
            self.stack.list(self.index);
        }
    }

    /// An urgent octet is there that was neither read apart nor passed: POLLPRI.
    pub fn has_urgent(&mut self) -> bool {
        self.stack.tcp.entry(self.index).is_some_and(|entry| entry.connection.has_urgent())
    }
}
