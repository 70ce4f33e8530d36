//! Octets of a connection: from the pair or a ring to the stack, and back.

use super::hold::Next;
use super::neighbours::Neighbour;
use super::rings::{Sink, Source};
use super::sharers::Sharer;
use super::slab::Key;
use super::socket::{Hub, Phase, Socket};
use super::urgent;
use crate::Engine;
use bypath_shm::direction::Poisoned;
use bypath_stack::Stack;
use bypath_stack::socket::SocketId;
use bypath_stack::tcp::direct::Direct;
use bypath_stack::tcp::error::{ReadError, WriteError};
use bypath_sys::{Errno, pair, sock};
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::time::Duration;

/// Octets that one turn moves each way: the others have their turn.
const TURN: usize = 256 << 10;
/// Octets that are read from a pair at once, of which the stack takes memory before it is known how many there are: few at first, more
/// where there are more.
pub const LEAST: usize = 4 << 10;
const MOST: usize = 128 << 10;
/// Octets of a socket that are its own, however many its user has: each connection gets on.
pub const OWN: usize = 64 << 10;
/// The window of a socket whose user has more octets than he may.
const SQUEEZED: usize = 64 << 10;

/// So much has come that a larger window would make a difference.
const MUCH: u64 = 32 << 10;

/// Changes of a program's way within a turn that move nothing, at most.
const VAIN: u32 = 64;

/// How often octets are counted anew while somebody has too many (ns).
const RECOUNT: u64 = 10_000_000;

/// What became of a way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// It goes on with the next event.
    Waits,
    /// There may be more.
    More,
    /// The program has finished.
    End,
    /// The connection has failed.
    Failed,
    /// The program has written into shared memory what no program writes.
    Lies,
}

impl From<Poisoned> for Way {
    fn from(_: Poisoned) -> Way {
        Way::Lies
    }
}

impl Hub {
    /// So many octets that the program is about to write will be followed by others (MSG_MORE).
    ///
    /// # Errors
    /// ENOTCONN.
    pub fn followed(&mut self, engine: &mut Engine, key: Key, octets: usize) -> Result<(), i32> {
        let socket = self.sockets.get_mut(key).filter(|socket| matches!(socket.phase, Phase::Open));
        socket.ok_or(libc::ENOTCONN)?.is.pair_in = true;
        // What it wrote before is not meant.
        self.work(engine, key);
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.followed = octets;
        }
        Ok(())
    }

    /// Moves octets, and does what follows of their ends. True: there may be more to do.
    pub fn pump(&mut self, stack: &mut Stack, key: Key) -> bool {
        let Some(sharer) = self.stranger(key) else { return self.move_octets(stack, key) };
        if sharer.is_barred() {
            self.abort(stack, key);
            return false;
        }
        sharer.watched(|| self.move_octets(stack, key))
    }

    /// The user of a socket who shares memory with the service, and might make it wait there.
    pub fn stranger(&self, key: Key) -> Option<Arc<Sharer>> {
        let rings = self.sockets.get(key)?.rings.as_ref()?;
        self.neighbours.get(rings.with)?.stranger()
    }

    /// Connections of users that made the service wait too often are reset.
    pub fn reset_barred(&mut self) {
        if !self.neighbours.has_barred() {
            return;
        }
        for key in self.sockets.keys() {
            if self.stranger(key).is_some_and(|sharer| sharer.is_barred()) {
                self.activate(key);
            }
        }
    }

    fn move_octets(&mut self, stack: &mut Stack, key: Key) -> bool {
        let full = self.sockets.get(key).is_some_and(|socket| self.is_full(stack, socket.uid));
        let Some(socket) = self.sockets.get_mut(key) else { return false };
        let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
        let Some(mut tcp) = stack.tcp(socket.id) else { return false };
        let half_closed = tcp.is_finished() && !tcp.is_shut();
        if let Some(failure) = tcp.take_error() {
            socket.fail(failure, half_closed);
            socket.is.stack_in = true;
        }
        if socket.is.hung_up {
            let unread = socket.is.unread || tcp.unread() > 0 || socket.has_unread(near);
            let refused = socket.of.is_some() && self.was_refused(key);
            let Some(mut tcp) = self.sockets.get(key).and_then(|socket| stack.tcp(socket.id)) else {
                return false;
            };
            // Who lingers no time does not wait for what is unsent either.
            if unread || refused || tcp.options().linger == Some(Duration::ZERO) {
                tcp.abort();
                self.release(stack, key);
                return false;
            }
        }
        let Some(socket) = self.sockets.get_mut(key) else { return false };
        let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
        let held = socket.is.held && full;
        socket.is.held = held;
        let mut more = false;
        if near.is_some_and(|near| socket.answer(near).is_err()) {
            self.abort(stack, key);
            return false;
        }
        if socket.is.pair_in && socket.is.stack_out && !socket.is.shut && !socket.is.failed {
            match socket.write(stack, full, near) {
                Way::Waits => {}
                Way::Lies => {
                    self.abort(stack, key);
                    return false;
                }
                Way::More => more = true,
                Way::Failed => socket.is.stack_in = true,
                Way::End if socket.is.hung_up => {
                    self.release(stack, key);
                    return false;
                }
                Way::End => {
                    // A close is more than an end, and its event may be on its way yet.
                    let (gone, unread) = socket.looks_gone();
                    if gone {
                        (socket.is.hung_up, socket.is.unread, socket.is.pair_in) = (true, unread, true);
                        return true;
                    }
                    socket.is.shut = true;
                    if let Some(mut tcp) = stack.tcp(socket.id) {
                        if socket.is.asked {
                            tcp.stop_reading();
                        }
                        let _ = tcp.finish();
                    }
                }
            }
        } else if socket.is.hung_up && (socket.is.failed || socket.is.shut) {
            self.release(stack, key);
            return false;
        }
        if socket.is.failed && !socket.is.shut {
            // Writes fail at once, whatever is still to be read.
            socket.is.shut = true;
            // The ring first: the pair's hang-up is told before anybody looks there.
            if let (Some(rings), Some(near)) = (&socket.rings, near) {
                rings.close_incoming(near);
            }
            sock::shutdown(socket.end.as_raw_fd(), libc::SHUT_RD);
        }
        if socket.is.given || socket.reads() {
            match socket.read(stack, near) {
                Way::Lies => {
                    self.abort(stack, key);
                    return false;
                }
                way => more |= way == Way::More,
            }
        }
        self.after(stack, key, full, more)
    }

    /// A connection whose record the program may not have taken. Of one to which more and more comes it is asked.
    fn look_at_offered(&mut self, stack: &mut Stack, key: Key) {
        if let Some(Socket { of: Some(listener), went: MUCH.., .. }) = self.sockets.get(key) {
            self.count_accepted(*listener);
        }
        if let Some(socket) = self.sockets.get_mut(key).filter(|socket| socket.of.is_none())
            && let Some(mut tcp) = stack.tcp(socket.id)
        {
            socket.is.offered = false;
            tcp.take_offered();
        }
    }

    /// The connection is reset, and its program hears of that.
    pub fn abort(&mut self, stack: &mut Stack, key: Key) {
        if let Some(socket) = self.sockets.get_mut(key) {
            socket.errno = libc::ECONNRESET;
            if let Some(mut tcp) = stack.tcp(socket.id) {
                tcp.abort();
            }
        }
        self.release(stack, key);
    }

    /// What follows of what was moved.
    fn after(&mut self, stack: &mut Stack, key: Key, full: bool, more: bool) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else { return false };
        if socket.is.shut && socket.is.finished {
            self.release(stack, key);
            return false;
        }
        if socket.is.offered {
            self.look_at_offered(stack, key);
        }
        let Some(socket) = self.sockets.get_mut(key) else { return false };
        let octets = socket.count(stack);
        let wanted = !socket.is.pair_out && !socket.is.ring_full;
        let (uid, before) = (socket.uid, std::mem::replace(&mut socket.counted, octets));
        if full
            && octets > SQUEEZED
            && !std::mem::replace(&mut socket.is.squeezed, true)
            && let Some(mut tcp) = stack.tcp(socket.id)
        {
            let settings = tcp.settings();
            let squeezed = settings.receive_octets.min(SQUEEZED);
            tcp.set_settings(
                crate::Engine::now(),
                bypath_stack::tcp::Settings { receive_octets: squeezed, ..settings },
            );
        }
        let held = socket.is.held;
        self.watch_reader(key);
        self.users.count(uid, before, octets);
        self.tell_room(key, wanted);
        if held {
            self.starved.insert(key);
        }
        more
    }

    /// Who was held as his user had too many octets goes on, if he has fewer now. Acknowledgements tell nobody, so octets are counted
    /// anew, a hundred times a second at most; when the next time is.
    pub fn release_held(&mut self, stack: &mut Stack, now: u64) -> Option<u64> {
        let is_held = |hub: &Hub, key: &Key| hub.sockets.get(*key).is_some_and(|socket| socket.is.held);
        let held: Vec<Key> = self.starved.iter().copied().filter(|key| is_held(self, key)).collect();
        if held.is_empty() {
            return None;
        }
        if now < self.counted + RECOUNT {
            return Some(self.counted + RECOUNT);
        }
        self.counted = now;
        for key in self.sockets.keys() {
            let Some(socket) = self.sockets.get_mut(key) else { continue };
            if socket.counted > 0 {
                let octets = socket.count(stack);
                let before = std::mem::replace(&mut socket.counted, octets);
                self.users.count(socket.uid, before, octets);
            }
        }
        for key in held {
            let goes_on = |socket: &Socket| socket.counted < OWN || !self.is_full(stack, socket.uid);
            if self.sockets.get(key).is_some_and(goes_on) {
                self.starved.remove(&key);
                self.activate(key);
            }
        }
        Some(now + RECOUNT)
    }
}

/// Octets go from their frame into the ring of the program, which is told in its socket's turn.
impl Direct for Hub {
    fn room(&mut self, id: SocketId) -> usize {
        let Some(key) = self.by_id.get(&id).copied() else { return 0 };
        let Some(socket) = self.sockets.get(key).filter(|_| !self.is_owed_for(key)) else { return 0 };
        let rings = socket.rings.as_ref();
        let near = rings.and_then(|rings| Some((rings, self.neighbours.get(rings.with)?)));
        near.map_or(0, |(rings, near)| usize::try_from(rings.room(near)).unwrap_or(usize::MAX))
    }

    fn take(&mut self, id: SocketId, octets: &[u8]) {
        let Some(key) = self.by_id.get(&id).copied() else { return };
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let Some(rings) = &mut socket.rings else { return };
        if let Some(near) = self.neighbours.get(rings.with) {
            near.watched(|| rings.put(near, octets));
            socket.is.given = true;
        }
        self.activate(key);
    }
}

impl Socket {
    /// Whether it has a connection that the program has neither closed nor finished.
    pub fn is_unfinished(&self) -> bool {
        matches!(self.phase, Phase::Open) && !self.is.shut && !self.is.hung_up && !self.looks_gone().0
    }

    /// Whether the program has left something in its ring, or on the way from there to the pair.
    fn has_unread(&self, near: Option<&Neighbour>) -> bool {
        self.rings.as_ref().zip(near).is_some_and(|(rings, near)| rings.has_unread(near))
    }

    /// Does what the program asks for beside octets.
    fn answer(&mut self, near: &Neighbour) -> Result<(), Poisoned> {
        let Some(rings) = &mut self.rings else { return Ok(()) };
        if !rings.answer(near, self.end.as_fd(), &mut self.went)? {
            (self.is.pair_out, self.is.ring_full) = (false, false);
        } else if self.is.ring_full && !rings.is_given() {
            // It is the pair that may have room now.
            (self.is.pair_out, self.is.ring_full) = (true, false);
        }
        Ok(())
    }

    /// Where the program's next octets are.
    fn source(&mut self, near: Option<&Neighbour>) -> Result<Source, Poisoned> {
        let (Some(rings), Some(near)) = (&mut self.rings, near) else { return Ok(Source::Pair) };
        match rings.source(near)? {
            // Its end is told by the pair, and so are octets of somebody who knows of no ring.
            Source::Empty if self.is.pair_news => Ok(Source::Pair),
            source => Ok(source),
        }
    }

    /// From the program to the stack. Who waits for room is told once.
    fn write(&mut self, stack: &mut Stack, full: bool, near: Option<&Neighbour>) -> Way {
        let mut taken = false;
        let way = self.write_all(stack, full, near, &mut taken);
        if let (true, Some(rings), Some(near)) = (taken, &self.rings, near) {
            rings.make_room(near);
        }
        way
    }

    fn write_all(
        &mut self,
        stack: &mut Stack,
        full: bool,
        near: Option<&Neighbour>,
        taken: &mut bool,
    ) -> Way {
        let Some(mut tcp) = stack.tcp(self.id) else { return Way::Failed };
        let (mut moved, mut vain) = (0, 0);
        while moved < TURN {
            // An honest program changes the way once or twice; whoever does it all the time has his turns, as others have.
            if vain > VAIN || moved > 0 && self.is_late() {
                return Way::More;
            }
            if full && moved + self.counted >= OWN {
                self.is.held = true;
                return Way::Waits;
            }
            let source = match self.source(near) {
                Ok(source) => source,
                Err(poisoned) => return poisoned.into(),
            };
            // Looked at after the octets: what was said before they were written is known with them.
            let next = match self.hold(&mut tcp, near, source, moved > 0) {
                Next::Octets(next) => next,
                Next::Sent => return Way::More,
            };
            let most = match source {
                Source::Empty => {
                    self.is.pair_in = false;
                    return Way::Waits;
                }
                Source::Pair | Source::Drain(_) => self.piece,
                Source::Ring { available, .. } => {
                    usize::try_from(available.min(next)).unwrap_or(MOST).min(MOST)
                }
            };
            let by_pair = matches!(source, Source::Pair | Source::Drain(_));
            let urged = if by_pair && self.is.urgent { self.take_urgent(&mut tcp) } else { None };
            let mut got = Ok(0);
            let mut room = 0;
            let followed = self.followed > 0;
            let most = if followed { most.min(self.followed) } else { most };
            let written = if let Some((written, taken)) = urged {
                got = taken;
                written
            } else {
                let (end, rings) = (self.end.as_fd(), &mut self.rings);
                tcp.write_with(most.min(TURN - moved), followed, |piece| {
                    room = piece.len();
                    got = match (source, rings.as_mut(), near) {
                        (Source::Ring { head, .. }, Some(rings), Some(near)) => {
                            if rings.take(near, head, piece) { Ok(room) } else { Err(Errno::INTR) }
                        }
                        _ => pair::receive(end, piece),
                    };
                    got.unwrap_or(0)
                })
            };
            match (written, got) {
                (Err(WriteError::Full), _) => {
                    self.is.stack_out = false;
                    return Way::Waits;
                }
                (Err(WriteError::Failed(failure)), _) => {
                    let half_closed = tcp.is_finished() && !tcp.is_shut();
                    self.fail(failure, half_closed);
                    return Way::Failed;
                }
                // It is over, and that was told.
                (Err(_), _) => {
                    self.is.failed = true;
                    return Way::Failed;
                }
                // The program has just taken it back from the ring.
                (Ok(_), Err(Errno::INTR)) => vain += 1,
                (Ok(_), Ok(0)) => {
                    if let (Some(rings), Some(near)) = (&mut self.rings, near) {
                        vain += 1;
                        if let Source::Drain(head) = source {
                            rings.drained(near, head, self.came);
                            continue;
                        }
                        // Octets may have come into the ring since it was looked at.
                        if rings.inherit(near, self.came) || rings.has_more(near) {
                            continue;
                        }
                        rings.end_incoming(near);
                    }
                    self.is.pair_in = false;
                    return Way::End;
                }
                (Ok(_), Ok(n)) => {
                    moved += n;
                    self.followed = self.followed.saturating_sub(n);
                    // A program that has written has been given the connection.
                    self.of = None;
                    if matches!(source, Source::Ring { .. }) {
                        *taken = true;
                        continue;
                    }
                    self.came += n as u64;
                    if let (Some(rings), Some(near)) = (&mut self.rings, near) {
                        rings.came_by_pair(near);
                    }
                    if n == room {
                        self.piece = (self.piece * 4).min(MOST);
                    }
                }
                (Ok(_), Err(Errno::AGAIN)) => {
                    self.is.pair_news = false;
                    if moved < self.piece / 4 {
                        self.piece = LEAST;
                    }
                    vain += 1;
                    if let (Some(rings), Some(near)) = (&mut self.rings, near) {
                        if let Source::Drain(head) = source {
                            rings.drained(near, head, self.came);
                            continue;
                        }
                        if rings.consent(near) {
                            continue;
                        }
                    }
                    self.is.pair_in = false;
                    return Way::Waits;
                }
                (Ok(_), Err(_)) => {
                    // The program has gone and left octets unread.
                    (self.is.hung_up, self.is.unread) = (true, true);
                    return Way::More;
                }
            }
        }
        Way::More
    }

    /// Whether octets may be on their way to the program.
    const fn reads(&self) -> bool {
        self.is.stack_in && self.is.pair_out && !self.is.finished
    }

    /// From the stack to the program. Who waits for octets is told once.
    fn read(&mut self, stack: &mut Stack, near: Option<&Neighbour>) -> Way {
        let mut given = std::mem::take(&mut self.is.given);
        let way = if self.reads() { self.read_all(stack, near, &mut given) } else { Way::Waits };
        if let (true, Some(rings), Some(near)) = (given, &mut self.rings, near) {
            match rings.wake_readers(near) {
                Ok(true) => {}
                Ok(false) if self.answer(near).is_ok() => return Way::More,
                _ => return Way::Lies,
            }
        }
        way
    }

    fn read_all(&mut self, stack: &mut Stack, near: Option<&Neighbour>, any: &mut bool) -> Way {
        let Some(mut tcp) = stack.tcp(self.id) else { return Way::Failed };
        let deaf = self.is.deaf;
        let mut moved = 0;
        while moved < TURN {
            if moved > 0 && self.is_late() {
                return Way::More;
            }
            if self.is.asked && tcp.unread() > 0 {
                // The pair takes no more. It hangs up all the same where the connection is over.
                if self.is.failed {
                    sock::shutdown(self.end.as_raw_fd(), libc::SHUT_WR);
                }
                self.is.stack_in = false;
                return Way::Waits;
            }
            let end = self.end.as_fd();
            let urgent = urgent::is_next(&mut tcp);
            self.is.marked |= urgent;
            let sink = match (&mut self.rings, near) {
                (Some(rings), Some(near)) if urgent => rings.leave(near, end, &mut self.went),
                (Some(rings), Some(near)) => rings.sink(near, end, &mut self.went),
                _ => Ok(Sink::Pair),
            };
            let most = match sink {
                Ok(Sink::Pair) if urgent => 1,
                Ok(Sink::Pair) => usize::MAX,
                Ok(Sink::Ring(free)) => usize::try_from(free).unwrap_or(usize::MAX),
                Ok(full) => {
                    (self.is.pair_out, self.is.ring_full) = (false, full == Sink::Full);
                    return Way::Waits;
                }
                Err(poisoned) => return poisoned.into(),
            };
            let mut given = None;
            let rings = &mut self.rings;
            let read = tcp.read_with(most.min(TURN - moved), |octets| {
                // At the end there are none.
                if octets.is_empty() {
                    return 0;
                }
                let sent = match (sink, rings.as_mut(), near) {
                    (Ok(Sink::Ring(_)), Some(rings), Some(near)) => {
                        rings.put(near, octets);
                        Ok(octets.len())
                    }
                    _ if deaf => Ok(octets.len()),
                    _ if urgent => pair::send_urgent(end, octets[0]),
                    _ => pair::send(end, octets),
                };
                given = Some(sent);
                sent.unwrap_or(0)
            });
            match (read, given) {
                (Ok(n), Some(Ok(_))) if n > 0 => {
                    moved += n;
                    if matches!(sink, Ok(Sink::Ring(_))) {
                        *any = true;
                    } else {
                        self.went += n as u64;
                    }
                }
                (_, Some(Err(Errno::AGAIN))) => {
                    (self.is.pair_out, self.is.ring_full) = (false, false);
                    return Way::Waits;
                }
                // It reads no more, or is gone, which an event tells.
                (_, Some(_)) => {
                    self.is.deaf = true;
                    return Way::More;
                }
                (Err(ReadError::Empty), None) => {
                    self.is.stack_in = false;
                    return Way::Waits;
                }
                (Err(ReadError::Failed(failure)), None) => {
                    self.fail(failure, false);
                    return Way::More;
                }
                (_, None) => {
                    // The end came. It is told by the pair, behind everything that was given.
                    if let (Some(rings), Some(near)) = (&mut self.rings, near) {
                        match rings.empty(near, self.end.as_fd(), &mut self.went) {
                            Ok(true) => rings.finish(near),
                            Ok(false) => {
                                (self.is.pair_out, self.is.ring_full) = (false, false);
                                return Way::Waits;
                            }
                            Err(poisoned) => return poisoned.into(),
                        }
                    }
                    self.is.finished = true;
                    sock::shutdown(self.end.as_raw_fd(), libc::SHUT_WR);
                    return Way::Waits;
                }
            }
        }
        Way::More
    }

    /// Octets of it that the stack holds, or that are kept for it.
    pub fn count(&self, stack: &mut Stack) -> usize {
        if let Phase::Datagrams(of) = &self.phase {
            let kept = of.kept() + of.taken_back();
            let Some(mut udp) = stack.udp(self.id) else { return kept };
            let (unread, unsent) = udp.queued();
            return unread + unsent + udp.report_octets() + kept;
        }
        stack.tcp(self.id).map_or(0, |mut tcp| tcp.unread() + tcp.unacknowledged())
    }
}
