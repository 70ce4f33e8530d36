//! A whole session between two stacks, from the handshake to the end, in which octets decide what becomes of each frame, and what
//! applications do in between. Whatever that is: nothing contradicts itself, memory is bounded, octets arrive in their order or somebody is
//! told, and who calls afterwards is served.

mod app;
mod forge;
mod side;

use super::pieces;
use crate::attack::PORT;
use crate::check;
use app::Trust;
use bypath_stack::tcp::Options;
use bypath_stack::time::Instant;
use bypath_wire::FrameMeta;
use bypath_wire::meta::ChecksumState;
use forge::{Octets, Said, Shape};
use side::{Side, Wishes};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::Duration;

/// The port of the first who calls.
const CALLER: u16 = 2000;
/// Steps after which a session is never done.
const STEPS: usize = 200_000;
/// Frames that can be said again.
const REMEMBERED: usize = 64;
/// Connections beside the first one at most.
const MORE: u16 = 3;
/// Octets that those who call afterwards write.
const AFTERWARDS: usize = 3000;

#[derive(Clone, Debug)]
struct Frame {
    to: usize,
    octets: Vec<u8>,
    meta: FrameMeta,
}

struct World<'a> {
    wishes: Wishes,
    shape: Shape,
    sides: [Side; 2],
    now: Instant,
    /// Frames on their way.
    flights: Vec<(Instant, u64, Frame)>,
    order: u64,
    pieces: Box<dyn Iterator<Item = &'a [u8]> + 'a>,
    /// Nothing is decided any more.
    silent: bool,
    /// The next so many frames of each side are left alone, or lost.
    left_alone: [u8; 2],
    lost: [u8; 2],
    /// Nothing is decided before then, if nothing is sent.
    waits: Instant,
    said: [Said; 2],
    remembered: VecDeque<Frame>,
    trust: Trust,
    /// Frames that were lost; 100 for whatever else may end a connection.
    losses: usize,
    more: u16,
    steps: usize,
    /// What happens is printed.
    told: bool,
    room: Vec<u8>,
}

/// The first piece says of what kind hosts and applications are; the others decide, one for each segment that is sent and not left alone.
/// Their first octet says what is done:
///
/// 0, the next so many are left alone; 1, it is lost; 2, it comes twice; 3, it comes late; 4, it is changed; 5, it comes, and as it is
/// changed, too; 6, it is cut or made longer; 7, something forged comes behind it; 8, before it; 9, a router complains; 10, a while passes;
/// 11, an application does something; 12, so many are lost; 13, an older one comes again, 14, changed.
pub fn session(input: &[u8]) {
    let mut pieces = pieces(input);
    let wishes = Wishes::new(Octets(pieces.next().unwrap_or_default()));
    let mut world = World::new(wishes, Box::new(pieces));
    world.begins();
    world.goes_on_until(None);
    world.falls_silent();
    world.serves();
    world.ends();
}

impl<'a> World<'a> {
    fn new(wishes: Wishes, pieces: Box<dyn Iterator<Item = &'a [u8]> + 'a>) -> World<'a> {
        let now = Instant::ZERO + Duration::from_secs(10);
        World {
            wishes,
            shape: wishes.shape,
            sides: [0, 1].map(|n| Side::new(n, now, &wishes)),
            now,
            flights: Vec::new(),
            order: 0,
            pieces,
            silent: false,
            left_alone: [0; 2],
            lost: [0; 2],
            waits: now,
            said: [Said::default(); 2],
            remembered: VecDeque::new(),
            trust: Trust::All,
            losses: 0,
            more: 0,
            steps: 0,
            told: std::env::var_os("BYPATH_FUZZ_TRACE").is_some(),
            room: vec![0; 65_600],
        }
    }

    const fn ports(&self) -> [u16; 2] {
        [CALLER, if self.wishes.both_call { CALLER + 1 } else { PORT }]
    }

    fn begins(&mut self) {
        let (now, ports) = (self.now, self.ports());
        for side in 0..=usize::from(self.wishes.both_call) {
            let to = SocketAddr::new(self.shape.address(1 - side), ports[1 - side]);
            self.sides[side].calls(now, ports[side], to, self.wishes.octets[side]);
            if let Some(end) = self.sides[side].ends.last_mut() {
                end.key = CALLER;
            }
        }
    }

    /// Lets things happen until the input is over and nothing more happens, or until then.
    fn goes_on_until(&mut self, end: Option<Instant>) {
        loop {
            self.settle();
            self.steps += 1;
            assert!(self.steps < STEPS, "it is never done");
            let timers = self.sides.iter().filter_map(|side| side.stack.poll_timeout());
            let next = self.flights.iter().map(|(at, ..)| *at).chain(timers).min();
            if !self.silent && self.flights.is_empty() && next.is_none_or(|next| next > self.waits) {
                // Nothing is on its way that could be decided about.
                self.now = self.now.max(self.waits);
                match self.pieces.next() {
                    Some(piece) => self.decide(piece, None),
                    None => return,
                }
                continue;
            }
            let Some(next) = next.filter(|next| end.is_none_or(|end| *next <= end)) else { break };
            self.now = self.now.max(next);
            self.arrive();
        }
        self.now = end.map_or(self.now, |end| self.now.max(end));
    }

    fn arrive(&mut self) {
        let now = self.now;
        let due = self.flights.iter().enumerate().filter(|(_, (at, ..))| *at <= now);
        let Some((at, _)) = due.min_by_key(|(_, (at, order, _))| (*at, *order)) else { return };
        let (_, _, frame) = self.flights.swap_remove(at);
        self.hand(&frame);
    }

    fn tell(&self, what: &str, frame: &Frame) {
        if self.told {
            let now = Duration::from_nanos(self.now.as_nanos());
            let segment = self.shape.segment(&frame.octets).map(|(header, len)| {
                let (seq, ack) = (header.seq.0, header.ack.0);
                let known = header.options.known();
                let (ports, flags) = ((header.source_port, header.destination_port), header.flags);
                format!(
                    "{ports:?} {flags} {seq}+{len} ack {ack} win {} {:?} {:?}",
                    header.window, known.timestamps, known.sack
                )
            });
            println!("{now:?} {what} {} {}", frame.to, segment.unwrap_or_default());
        }
    }

    fn hand(&mut self, frame: &Frame) {
        self.tell("comes to", frame);
        let side = &mut self.sides[frame.to];
        side.stack.handle_frame(self.now, side.iface, &frame.octets, &frame.meta);
        side.check();
    }

    fn settle(&mut self) {
        let mut busy = true;
        while busy {
            busy = false;
            for n in 0..2 {
                busy |= self.sides[n].settle(self.now, self.trust);
                let mut room = std::mem::take(&mut self.room);
                while let Some((len, meta)) = self.sides[n].transmits(self.now, &mut room) {
                    busy = true;
                    self.steps += 1;
                    assert!(self.steps < STEPS, "it is never done");
                    self.looks(n, &room[..len], &meta);
                    let meta = FrameMeta { checksum: meta.checksum, gso: meta.gso, ..FrameMeta::default() };
                    self.sent(n, Frame { to: 1 - n, octets: room[..len].to_vec(), meta });
                }
                self.room = room;
            }
        }
    }

    /// A frame that was sent is as it has to be.
    fn looks(&mut self, from: usize, frame: &[u8], meta: &FrameMeta) {
        if self.shape.ethernet {
            let fits = check::frame(frame, meta, self.sides[from].mtu());
            fits.unwrap_or_else(|wrong| panic!("{wrong}"));
        } else {
            assert!(frame.len() <= self.sides[from].mtu() || meta.gso.is_some(), "a packet that is too long");
        }
        let Some((header, len)) = self.shape.segment(frame) else { return };
        let ports = self.ports();
        if (header.source_port, header.destination_port) == (ports[from], ports[1 - from]) {
            self.said[from] = Said {
                seq: header.seq,
                next: header.seq + header.sequence_len(len),
                ack: header.ack,
                window: header.window,
                timestamps: header.options.known().timestamps,
            };
        }
    }

    fn fly(&mut self, frame: Frame, later: Duration) {
        self.order += 1;
        self.flights.push((self.now + self.wishes.delay + later, self.order, frame));
    }

    fn sent(&mut self, from: usize, frame: Frame) {
        self.tell("goes to", &frame);
        if self.remembered.len() == REMEMBERED {
            self.remembered.pop_front();
        }
        self.remembered.push_back(frame.clone());
        if self.silent || self.shape.segment(&frame.octets).is_none() {
            return self.fly(frame, Duration::ZERO);
        }
        if self.lost[from] > 0 {
            self.lost[from] -= 1;
            self.losses += 1;
        } else if self.left_alone[from] > 0 {
            self.left_alone[from] -= 1;
            self.fly(frame, Duration::ZERO);
        } else if let Some(piece) = self.pieces.next() {
            self.decide(piece, Some(frame));
        } else {
            self.fly(frame, Duration::ZERO);
        }
    }

    fn distrust(&mut self, trust: Trust) {
        self.trust = self.trust.max(trust);
    }

    /// What becomes of a frame, or of whatever else there is.
    fn decide(&mut self, piece: &[u8], frame: Option<Frame>) {
        let mut octets = Octets(piece);
        let what = octets.next();
        if self.told {
            println!("{:?}: {piece:02x?}", what & 15);
        }
        let late = |octets: &mut Octets<'_>| Duration::from_millis(u64::from(octets.pair() & 0xfff));
        match (what & 15, frame) {
            (1, Some(_)) => self.losses += 1,
            (2, Some(frame)) => {
                let late = late(&mut octets);
                self.fly(frame.clone(), Duration::ZERO);
                self.fly(frame, late);
            }
            (3, Some(frame)) => {
                let late = late(&mut octets);
                self.fly(frame, late);
            }
            (what @ 4..=6, Some(frame)) => {
                let changed = self.changed(frame.clone(), &mut octets, what == 6);
                if what == 5 {
                    self.hand(&frame);
                }
                self.hand(&changed);
            }
            (7, frame) => {
                if let Some(frame) = frame {
                    self.hand(&frame);
                }
                self.forge(&mut octets, what);
            }
            (8, frame) => {
                self.forge(&mut octets, what);
                if let Some(frame) = frame {
                    self.fly(frame, Duration::ZERO);
                }
            }
            (9, frame) => {
                self.distrust(Trust::Places);
                let to = usize::from(what >> 7);
                let ports = self.ports();
                if let Some(frame) = forge::complaint(self.shape, to, ports, &self.said, &mut octets) {
                    self.hand(&Frame { to, octets: frame, meta: FrameMeta::default() });
                }
                if let Some(frame) = frame {
                    self.fly(frame, Duration::ZERO);
                }
            }
            (10, frame) => {
                // From a millisecond to two minutes.
                self.waits = self.now + Duration::from_millis(1 << (octets.next() % 18));
                if let Some(frame) = frame {
                    self.fly(frame, Duration::ZERO);
                }
            }
            (11, frame) => {
                self.application(&mut octets);
                if let Some(frame) = frame {
                    self.fly(frame, Duration::ZERO);
                }
            }
            (12, frame) => {
                self.lost[usize::from(what >> 7)] = octets.next() & 15;
                if let Some(frame) = frame {
                    self.fly(frame, Duration::ZERO);
                }
            }
            (what @ 13..=14, frame) => {
                let back = usize::from(octets.next());
                if let Some(old) = self.remembered.iter().rev().nth(back % REMEMBERED).cloned() {
                    let old = if what == 14 { self.changed(old, &mut octets, false) } else { old };
                    self.hand(&old);
                }
                if let Some(frame) = frame {
                    self.fly(frame, Duration::ZERO);
                }
            }
            (_, frame) => {
                self.left_alone = [octets.next(), octets.next()];
                if let Some(frame) = frame {
                    self.fly(frame, Duration::ZERO);
                }
            }
        }
    }

    fn changed(&mut self, mut frame: Frame, octets: &mut Octets<'_>, cut: bool) -> Frame {
        self.distrust(Trust::Nothing);
        frame.meta.checksum = ChecksumState::Unknown;
        if cut {
            forge::cut(self.shape, &mut frame.octets, octets);
        } else {
            forge::change(self.shape, &mut frame.octets, octets);
        }
        frame
    }

    fn forge(&mut self, octets: &mut Octets<'_>, what: u8) {
        let from = usize::from(what >> 7);
        let ports = self.ports();
        if let Some((frame, begins)) = forge::segment(self.shape, from, ports, &self.said, octets) {
            self.distrust(if begins { Trust::Nothing } else { Trust::Places });
            self.hand(&Frame { to: 1 - from, octets: frame, meta: FrameMeta::default() });
        }
    }

    /// An application does something of its own accord.
    fn application(&mut self, octets: &mut Octets<'_>) {
        let (who, now, trust) = (octets.next(), self.now, self.trust);
        let n = usize::from(who & 1);
        let to = SocketAddr::new(self.shape.address(1 - n), PORT);
        let side = &mut self.sides[n];
        let count = usize::from(octets.pair());
        match who >> 4 {
            0 => side.lazy = true,
            1 => side.lazy = false,
            2 if self.more < MORE => {
                self.more += 1;
                side.calls(now, CALLER + 10 + self.more, to, count);
            }
            3 => {
                // Who is not let in yet is refused.
                self.losses += 100;
                side.listens_anew(now);
            }
            _ => {}
        }
        let which = usize::from(who >> 1 & 3);
        if let Some(end) = side.ends.get_mut(which).filter(|end| !end.closed) {
            let id = end.id;
            match who >> 4 {
                4 if !end.finished => end.most += count,
                5 => end.most = end.written,
                6 => {
                    end.left = true;
                    end.closes(&mut side.stack);
                }
                7 => {
                    end.left = true;
                    side.stack.tcp(id).expect("it is there").abort();
                }
                8 | 9 => {
                    let linger = Some(Duration::from_millis(if who & 16 == 0 { 0 } else { count as u64 }));
                    let mut tcp = side.stack.tcp(id).expect("it is there");
                    let options = Options { linger, ..tcp.options() };
                    tcp.set_options(options);
                    end.left = true;
                    end.closes(&mut side.stack);
                }
                10 | 11 => {
                    let mut tcp = side.stack.tcp(id).expect("it is there");
                    let wanted = app::settings((count as u16).to_le_bytes(), tcp.settings());
                    self.losses += if app::is_impatient(count as u8) { 100 } else { 0 };
                    tcp.set_settings(now, wanted);
                }
                12 => {
                    let mut tcp = side.stack.tcp(id).expect("it is there");
                    let _none = tcp.peek(&mut [0; 100]);
                    let _none = (tcp.statistics(), tcp.unread(), tcp.warning(), tcp.remote());
                }
                _ => {}
            }
        }
        side.all_go_on(trust);
    }

    /// From here on nothing goes wrong any more: what can end ends.
    fn falls_silent(&mut self) {
        self.silent = true;
        (self.lost, self.left_alone) = ([0; 2], [0; 2]);
        for side in &mut self.sides {
            side.lazy = false;
            side.all_go_on(self.trust);
        }
        let end = self.now + Duration::from_secs(4000);
        self.goes_on_until(Some(end));
        if self.trust == Trust::All {
            self.is_whole();
        }
    }

    /// Every octet has arrived, or somebody was told.
    fn is_whole(&mut self) {
        let few = self.losses <= 4 && self.wishes.is_generous();
        for n in 0..2 {
            let [a, b] = &mut self.sides;
            let (side, there) = if n == 0 { (a, b) } else { (b, a) };
            for end in side.ends.iter().filter(|end| !end.left) {
                let other = there.ends.iter().find(|other| other.key == end.key);
                let left = other.is_some_and(|other| other.left);
                let done = other.is_some_and(|other| end.is_done(other));
                let told = end.failed || other.is_some_and(|other| other.failed);
                assert!(done || left || !few, "after {} losses not whole: {end:?} {other:?}", self.losses);
                if done || end.closed && (left || told) {
                    continue;
                }
                // Who has said everything, and heard nothing since, may wait for somebody who has given up.
                let open = there.ends.iter().filter(|other| !other.closed).count();
                let gone = there.stack.usage().connections == 1 + open;
                let gave_up = other.is_none_or(|other| other.closed) && gone;
                let waits = end.closed
                    || side
                        .stack
                        .tcp(end.id)
                        .and_then(|mut tcp| tcp.statistics())
                        .is_some_and(|s| s.unacknowledged == 0);
                assert!(gave_up && waits, "neither whole nor told of: {end:?} {other:?}");
            }
        }
    }

    /// Who calls now is served, on both sides.
    fn serves(&mut self) {
        for n in 0..2 {
            let (now, key) = (self.now, CALLER + 100 + n as u16);
            let to = SocketAddr::new(self.shape.address(1 - n), PORT);
            // What the session has left must not keep others out.
            assert!(self.sides[n].calls(now, key, to, AFTERWARDS), "no room for a socket");
            self.goes_on_until(Some(now + Duration::from_secs(300)));
            let end = |side: &Side| side.ends.iter().position(|end| end.key == key);
            let (Some(a), Some(b)) = (end(&self.sides[0]), end(&self.sides[1])) else {
                panic!("who calls side {} afterwards is not let in", 1 - n);
            };
            let (a, b) = (&self.sides[0].ends[a], &self.sides[1].ends[b]);
            assert!(a.is_done(b) && b.is_done(a), "who calls afterwards is not served: {a:?} {b:?}");
        }
    }

    /// What is left, applications give up: then nothing is.
    fn ends(&mut self) {
        for side in &mut self.sides {
            for end in side.ends.iter_mut().filter(|end| !end.closed) {
                side.stack.tcp(end.id).expect("it is there").abort();
                end.closes(&mut side.stack);
            }
            side.check();
        }
        let end = self.now + Duration::from_secs(4000);
        self.goes_on_until(Some(end));
        for side in &self.sides {
            side.is_forgotten().unwrap_or_else(|left| panic!("{left}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_nobody_disturbs_is_whole() {
        for first in 0..=255 {
            session(&super::super::input([&[first, first & 15, 0, 0, 0, 0, 200, 100][..]]));
        }
    }
}
