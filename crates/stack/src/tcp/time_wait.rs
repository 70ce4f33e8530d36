//! TIME-WAIT (RFC 9293, 3.3.2): what is kept of a connection that both sides have finished, so that what is still under way is
//! not taken for the next one's. An entry has no buffers and no timer of its own: as all stay for the same time, they stand in a
//! list.

use super::clock::TIME_WAIT;
use super::ends::Ends;
use super::tcb::Timestamps;
use crate::iface::IfaceId;
use crate::time::Instant;
use crate::udp::demux::Binding;
use alloc::vec::Vec;
use bypath_wire::seq::SeqNumber;
use bypath_wire::tcp::{TcpFlags, TcpHeader};
use bypath_wire::tcp_options::KnownTcpOptions;
use core::time::Duration;

/// Answers to what does not belong there come no faster (RFC 5961, 10).
const CHALLENGE: Duration = Duration::from_millis(500);
/// A new connection of ours between the same ends may begin when the clock of timestamps has gone on by so much (Linux's
/// net.ipv4.tcp_tw_reuse).
const REUSE: Duration = Duration::from_secs(1);
/// No place.
const NONE: u32 = u32::MAX;

/// A connection that was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub ends: Ends,
    pub snd_nxt: SeqNumber,
    pub rcv_nxt: SeqNumber,
    /// As it stands in the header.
    pub window: u16,
    pub timestamps: Option<Timestamps>,
    pub ts_offset: u32,
    /// When it was put here; when it goes.
    pub since: Instant,
    pub until: Instant,
    pub challenged: Option<Instant>,
    /// What its socket said of its port.
    pub iface: Option<IfaceId>,
    pub reuse_address: bool,
    pub reuse_port: bool,
}

/// What is to be done with a segment of a connection that was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Nothing,
    /// It is acknowledged once more.
    Acknowledge,
    /// It begins a new connection, whose numbers begin here.
    Begin(SeqNumber),
}

impl Waiting {
    /// How it has its port.
    pub fn here(&self) -> Binding {
        let (reuse_address, reuse_port) = (self.reuse_address, self.reuse_port);
        Binding { iface: self.iface, reuse_address, reuse_port, ..Binding::new(self.ends.local()) }
    }

    /// A segment came (RFC 9293, 3.10.7.4; RFC 6191; RFC 1337).
    pub fn handle(
        &mut self,
        now: Instant,
        header: &TcpHeader,
        options: &KnownTcpOptions,
        len: usize,
    ) -> Verdict {
        let flags = header.flags;
        // RFC 1337, 3 (F1): a reset does not end it.
        if flags.has(TcpFlags::RST) {
            return Verdict::Nothing;
        }
        if flags.has(TcpFlags::SYN) && !flags.has(TcpFlags::ACK) && self.is_newer(header, options) {
            return Verdict::Begin(self.next_iss());
        }
        let len = header.sequence_len(len);
        // The last FIN once more: our acknowledgement was lost.
        if flags.has(TcpFlags::FIN) && header.seq + len == self.rcv_nxt {
            self.until = now + TIME_WAIT;
            return self.challenge(now);
        }
        if len == 0 && header.seq == self.rcv_nxt { Verdict::Nothing } else { self.challenge(now) }
    }

    /// RFC 6191, 2: by its timestamp, else by its number.
    fn is_newer(&self, header: &TcpHeader, options: &KnownTcpOptions) -> bool {
        match (self.timestamps, options.timestamps) {
            (Some(ts), Some((value, _))) => {
                let ahead = value.wrapping_sub(ts.recent) as i32;
                ahead > 0 || ahead == 0 && header.seq.after(self.rcv_nxt)
            }
            _ => header.seq.after(self.rcv_nxt),
        }
    }

    fn challenge(&mut self, now: Instant) -> Verdict {
        if self.challenged.is_some_and(|at| now.since(at) < CHALLENGE) {
            return Verdict::Nothing;
        }
        self.challenged = Some(now);
        Verdict::Acknowledge
    }

    /// Whether we may begin a new connection between the same ends: what is under way is told by its timestamps.
    pub fn may_begin(&self, now: Instant) -> bool {
        self.timestamps.is_some() && now.since(self.since) > REUSE
    }

    /// Beyond anything that was under way: a window without scale, as Linux has it (RFC 6191, 2, asks for a larger one).
    pub fn next_iss(&self) -> SeqNumber {
        self.snd_nxt + 65_537
    }
}

#[derive(Debug)]
struct Place {
    entry: Option<Waiting>,
    before: u32,
    behind: u32,
}

/// All of them, in the order in which they go.
#[derive(Debug)]
pub(crate) struct Waits {
    places: Vec<Place>,
    free: Vec<u32>,
    first: u32,
    last: u32,
    len: usize,
}

impl Default for Waits {
    fn default() -> Waits {
        Waits { places: Vec::new(), free: Vec::new(), first: NONE, last: NONE, len: 0 }
    }
}

impl Waits {
    pub const fn len(&self) -> usize {
        self.len
    }

    pub fn get(&self, at: u32) -> Option<&Waiting> {
        self.places.get(at as usize)?.entry.as_ref()
    }

    pub fn get_mut(&mut self, at: u32) -> Option<&mut Waiting> {
        self.places.get_mut(at as usize)?.entry.as_mut()
    }

    /// Adds one; its place.
    pub fn add(&mut self, entry: Waiting) -> u32 {
        let place = Place { entry: Some(entry), before: NONE, behind: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.places[at as usize] = place;
                at
            }
            None => {
                self.places.push(place);
                (self.places.len() - 1) as u32
            }
        };
        self.len += 1;
        self.append(at);
        at
    }

    /// Every one, in no order.
    pub fn all(&self) -> impl Iterator<Item = &Waiting> {
        self.places.iter().filter_map(|place| place.entry.as_ref())
    }

    /// It stays longer than all others from now on.
    pub fn renew(&mut self, at: u32) {
        self.unlink(at);
        self.append(at);
    }

    pub fn remove(&mut self, at: u32) -> Option<Waiting> {
        let entry = self.places.get_mut(at as usize)?.entry.take()?;
        self.unlink(at);
        self.free.push(at);
        self.len -= 1;
        Some(entry)
    }

    /// The one that goes first.
    pub fn first(&self) -> Option<(u32, &Waiting)> {
        Some((self.first, self.get(self.first)?))
    }

    fn append(&mut self, at: u32) {
        (self.places[at as usize].before, self.places[at as usize].behind) = (self.last, NONE);
        match self.places.get_mut(self.last as usize) {
            Some(last) => last.behind = at,
            None => self.first = at,
        }
        self.last = at;
    }

    fn unlink(&mut self, at: u32) {
        let Place { before, behind, .. } = self.places[at as usize];
        match self.places.get_mut(before as usize) {
            Some(place) => place.behind = behind,
            None => self.first = behind,
        }
        match self.places.get_mut(behind as usize) {
            Some(place) => place.before = before,
            None => self.last = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Instant {
        Instant::from_nanos(seconds * 1_000_000_000)
    }

    fn waiting(port: u16, timestamps: bool) -> Waiting {
        let remote = std::format!("10.0.0.2:{port}").parse().unwrap();
        Waiting {
            ends: Ends::between("10.0.0.1:80".parse().unwrap(), remote, IfaceId::LOOPBACK).unwrap(),
            snd_nxt: SeqNumber(100),
            rcv_nxt: SeqNumber(200),
            window: 1000,
            timestamps: timestamps.then_some(Timestamps {
                recent: 5000,
                recent_at: at(0),
                last_ack: SeqNumber(200),
            }),
            ts_offset: 0,
            since: at(0),
            until: at(60),
            challenged: None,
            iface: None,
            reuse_address: false,
            reuse_port: false,
        }
    }

    fn segment(flags: TcpFlags, seq: u32) -> TcpHeader {
        let mut header = TcpHeader::new(9, 80);
        (header.flags, header.seq) = (flags, SeqNumber(seq));
        header
    }

    fn stamped(value: u32) -> KnownTcpOptions {
        KnownTcpOptions { timestamps: Some((value, 0)), ..KnownTcpOptions::default() }
    }

    #[test]
    fn a_newer_syn_begins_anew_and_an_older_one_is_acknowledged() {
        let none = KnownTcpOptions::default();
        let syn = |seq| segment(TcpFlags::SYN, seq);
        let begin = Verdict::Begin(SeqNumber(100 + 65_537));
        assert_eq!(waiting(9, false).handle(at(1), &syn(201), &none, 0), begin);
        assert_eq!(waiting(9, false).handle(at(1), &syn(199), &none, 0), Verdict::Acknowledge);
        assert_eq!(waiting(9, true).handle(at(1), &syn(1), &stamped(5001), 0), begin);
        assert_eq!(waiting(9, true).handle(at(1), &syn(300), &stamped(4999), 0), Verdict::Acknowledge);
    }

    #[test]
    fn the_last_fin_is_acknowledged_again_and_a_reset_does_nothing() {
        let none = KnownTcpOptions::default();
        let mut w = waiting(9, false);
        let fin = segment(TcpFlags::FIN | TcpFlags::ACK, 199);
        assert_eq!(w.handle(at(10), &fin, &none, 0), Verdict::Acknowledge);
        assert_eq!((w.until, w.handle(at(10), &fin, &none, 0)), (at(70), Verdict::Nothing));
        assert_eq!(w.handle(at(20), &segment(TcpFlags::RST, 200), &none, 0), Verdict::Nothing);
        assert_eq!(w.handle(at(20), &segment(TcpFlags::ACK, 200), &none, 0), Verdict::Nothing);
        assert_eq!(w.handle(at(20), &segment(TcpFlags::ACK, 150), &none, 20), Verdict::Acknowledge);
    }

    #[test]
    fn they_go_in_their_order_and_their_places_are_used_again() {
        let mut waits = Waits::default();
        let places: Vec<_> = (0..4).map(|port| waits.add(waiting(port, false))).collect();
        waits.remove(places[0]);
        waits.remove(places[2]);
        waits.renew(places[1]);
        let again = waits.add(waiting(7, false));
        assert!(places.contains(&again) && waits.len() == 3);
        let order: Vec<_> = core::iter::from_fn(|| {
            let (at, entry) = waits.first()?;
            let port = entry.ends.remote_port;
            waits.remove(at);
            Some(port)
        })
        .collect();
        assert_eq!((order, waits.len()), (std::vec![3, 1, 7], 0));
    }
}
