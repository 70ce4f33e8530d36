//! Octets of a connection: from the pair to the stack and back, each copied once by us.

use super::slab::Key;
use super::socket::{Hub, Socket};
use bypath_stack::Stack;
use bypath_stack::tcp::error::{ReadError, WriteError};
use bypath_sys::{Errno, pair, sock};
use std::os::fd::{AsFd, AsRawFd};
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
}

impl Hub {
    /// Moves octets, and does what follows of their ends. True: there may be more to do.
    pub fn pump(&mut self, stack: &mut Stack, key: Key) -> bool {
        let full = self.sockets.get(key).is_some_and(|socket| self.users.is_full(socket.uid));
        let Some(socket) = self.sockets.get_mut(key) else { return false };
        let Some(mut tcp) = stack.tcp(socket.id) else { return false };
        let half_closed = tcp.is_finished() && !tcp.is_shut();
        if let Some(failure) = tcp.take_error() {
            socket.fail(failure, half_closed);
            socket.is.stack_in = true;
        }
        if socket.is.hung_up {
            let unread = socket.is.unread || tcp.unread() > 0;
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
        let held = socket.is.held && full;
        socket.is.held = held;
        let mut more = false;
        if socket.is.pair_in && socket.is.stack_out && !socket.is.shut && !socket.is.failed {
            match socket.write(stack, full) {
                Way::Waits => {}
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
            sock::shutdown(socket.end.as_raw_fd(), libc::SHUT_RD);
        }
        if socket.is.stack_in && socket.is.pair_out && !socket.is.finished {
            more |= socket.read(stack) == Way::More;
        }
        self.after(stack, key, full, more)
    }

    /// What follows of what was moved.
    fn after(&mut self, stack: &mut Stack, key: Key, full: bool, more: bool) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else { return false };
        if socket.is.shut && socket.is.finished {
            self.release(stack, key);
            return false;
        }
        let octets = socket.count(stack);
        let (uid, before, wanted) =
            (socket.uid, std::mem::replace(&mut socket.counted, octets), !socket.is.pair_out);
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
            let goes_on = |socket: &Socket| socket.counted < OWN || !self.users.is_full(socket.uid);
            if self.sockets.get(key).is_some_and(goes_on) {
                self.starved.remove(&key);
                self.activate(key);
            }
        }
        Some(now + RECOUNT)
    }
}

impl Socket {
    /// From the pair to the stack.
    fn write(&mut self, stack: &mut Stack, full: bool) -> Way {
        let Some(mut tcp) = stack.tcp(self.id) else { return Way::Failed };
        let end = self.end.as_fd();
        let mut moved = 0;
        while moved < TURN {
            if full && moved + self.counted >= OWN {
                self.is.held = true;
                return Way::Waits;
            }
            let mut got = Ok(0);
            let mut room = 0;
            let written = tcp.write_with(self.piece.min(TURN - moved), false, |piece| {
                room = piece.len();
                got = pair::receive(end, piece);
                got.unwrap_or(0)
            });
            match (written, got) {
                (Err(WriteError::Full), _) => {
                    self.is.stack_out = false;
                    return Way::Waits;
                }
                (Err(WriteError::Failed(failure)), _) => {
                    self.fail(failure, false);
                    return Way::Failed;
                }
                // It is over, and that was told.
                (Err(_), _) => {
                    self.is.failed = true;
                    return Way::Failed;
                }
                (Ok(_), Ok(0)) => {
                    self.is.pair_in = false;
                    return Way::End;
                }
                (Ok(_), Ok(n)) => {
                    moved += n;
                    if n == room {
                        self.piece = (self.piece * 4).min(MOST);
                    }
                    // A program that has written has been given the connection.
                    self.of = None;
                }
                (Ok(_), Err(Errno::AGAIN)) => {
                    self.is.pair_in = false;
                    if moved < self.piece / 4 {
                        self.piece = LEAST;
                    }
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

    /// From the stack to the pair.
    fn read(&mut self, stack: &mut Stack) -> Way {
        let Some(mut tcp) = stack.tcp(self.id) else { return Way::Failed };
        let (end, deaf) = (self.end.as_fd(), self.is.deaf);
        let mut moved = 0;
        while moved < TURN {
            let mut given = None;
            let read = tcp.read_with(TURN - moved, |octets| {
                // At the end there are none.
                if octets.is_empty() {
                    return 0;
                }
                let sent = if deaf { Ok(octets.len()) } else { pair::send(end, octets) };
                given = Some(sent);
                sent.unwrap_or(0)
            });
            match (read, given) {
                (Ok(n), Some(Ok(_))) if n > 0 => moved += n,
                (_, Some(Err(Errno::AGAIN))) => {
                    self.is.pair_out = false;
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
                    // The end came, and everything before it was given.
                    self.is.finished = true;
                    sock::shutdown(self.end.as_raw_fd(), libc::SHUT_WR);
                    return Way::Waits;
                }
            }
        }
        Way::More
    }

    /// Octets of it that the stack holds.
    pub fn count(&self, stack: &mut Stack) -> usize {
        if let Some(mut udp) = stack.udp(self.id) {
            let (unread, unsent) = udp.queued();
            return unread + unsent;
        }
        stack.tcp(self.id).map_or(0, |mut tcp| tcp.unread() + tcp.unacknowledged())
    }
}
