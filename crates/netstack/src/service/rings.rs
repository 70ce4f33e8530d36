//! The rings of a connection, seen from the service: it reads what the program writes, and writes what the program reads. The protocol
//! is that of two programs on one host (docs/switch-protocol.md); the pair is the carrier.
//!
//! Everything that stands in shared memory may be a lie. Positions are checked against those that the service keeps for itself; who lies
//! loses his connection.

use super::neighbours::{Neighbour, Place, WAKES, runs_here};
use super::slab::Key;
use bypath_shm::direction::{Direction, Head, Path, Poisoned, Readable, ask, wait, writer_flag};
use bypath_shm::hold::Hold;
use bypath_sys::{Errno, pair};
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering::*, fence};

/// How often a state that changes under our eyes is looked at again, before it counts as a lie.
const LOOKS: u32 = 64;
/// Octets that are sent again through the pair at once.
const PIECE: usize = 16 << 10;

/// How long a program may leave octets in the ring that nobody waits for, the first time (ns).
const PATIENCE: u64 = 100_000_000;
/// Doublings of that at most.
const MOST_GIVEN_UP: u32 = 6;
/// Memory that a ring takes at once.
const STEP: u64 = 32 << 10;

/// Where the next octets of the program are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the pair.
    Pair,
    /// In the pair, and in the ring once that is empty: the program wrote to the pair before it wrote to the ring.
    Drain(Head),
    /// In the ring.
    Ring {
        /// What taking them is committed against.
        head: Head,
        available: u64,
    },
    /// Nowhere yet: the ring is empty, and tells when it is not.
    Empty,
}

/// Where the next octets for the program go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sink {
    Pair,
    /// Into the ring, so many at most.
    Ring(u64),
    /// Nowhere: the ring is full, and tells when it is not.
    Full,
    /// Nowhere: what was in the ring goes through the pair first, which has no room.
    Flushing,
}

/// The way of the octets for the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Pair,
    Ring,
    /// From the ring to the pair, from this position on.
    Flush(u64),
}

#[derive(Debug)]
pub struct Rings {
    /// The process that has them.
    pub with: Key,
    pub at: Place,
    /// What is marked in the service's inbox.
    pub number: u32,
    /// What is marked in the program's inbox.
    end: u32,
    way: Way,
    /// Octets that had come through the pair when the program's ring was begun.
    came_before: u64,
    /// The program was gone, or reads no more, before it had all octets of the ring.
    lost: bool,
    /// Octets ever put into the service's ring.
    tail: u64,
    /// So many of its first octets have memory.
    backed: u64,
    ticket: u32,
    /// Words that the service has entered where it waits for octets, and for room.
    waits: [u64; 2],
    /// How often it was taken back as nobody read.
    given_up: u32,
    /// What the program's looks were when it was last seen that it spins.
    looks: u32,
    /// What the program has said of octets that fill no segment, as far as it was done.
    held: u64,
    /// What was said last, if octets that were written before it are on their way already.
    pub sent_before: Option<Hold>,
    /// Somebody has written to the pair whom the program does not know: the pair it is, from now on.
    pub spoiled: bool,
}

/// Enters a word where the program looks after each change; what there is must be looked at once more after this. False: there is no
/// place, which only a liar brings about.
fn pauses(places: &[AtomicU64; 4], word: &mut u64, ticket: &mut u32) -> bool {
    // An old word never counts: who was woken by it may take it away only now.
    wait::disarm(places, *word);
    *ticket = ticket.wrapping_add(1).max(1);
    *word = wait::word(WAKES, *ticket);
    wait::arm(places, *word)
}

fn incoming(near: &Neighbour, at: Place) -> &Direction {
    &near.control(at).direction[0]
}

fn outgoing(near: &Neighbour, at: Place) -> &Direction {
    &near.control(at).direction[1]
}

impl Rings {
    pub fn new(with: Key, at: Place, number: u32, end: u32) -> Rings {
        Rings {
            with,
            at,
            number,
            end,
            way: Way::Pair,
            came_before: 0,
            lost: false,
            tail: 0,
            backed: 0,
            ticket: 0,
            waits: [0; 2],
            given_up: 0,
            looks: 0,
            held: 0,
            sent_before: None,
            spoiled: false,
        }
    }

    /// Whether octets go through the rings: the program's, and those for it.
    pub fn are_used(&self, near: &Neighbour) -> (bool, bool) {
        (incoming(near, self.at).path() != Path::Kernel, self.way == Way::Ring)
    }

    // ---- what the program writes

    /// Where the next octets are.
    ///
    /// # Errors
    /// [`Poisoned`]: the program lies.
    pub fn source(&mut self, near: &Neighbour) -> Result<Source, Poisoned> {
        let (d, size) = (incoming(near, self.at), near.ring(self.at));
        for _ in 0..LOOKS {
            match d.readable(size)? {
                Readable::Kernel => return Ok(Source::Pair),
                Readable::Drain(head) => return Ok(Source::Drain(head)),
                Readable::Ring { head, available } if available > 0 => {
                    return Ok(Source::Ring { head, available });
                }
                Readable::Ring { head, .. } => {
                    if !pauses(&d.ra.wait, &mut self.waits[0], &mut self.ticket) {
                        return Err(Poisoned);
                    }
                    if matches!(d.readable(size)?, Readable::Ring { head: now, available: 0 } if now == head)
                    {
                        return Ok(Source::Empty);
                    }
                }
            }
        }
        Err(Poisoned)
    }

    /// What was said of octets that fill no segment, before and now, if that is not done yet.
    pub fn said(&self, near: &Neighbour) -> Option<(Hold, Hold)> {
        // Acquire pairs with the writer's store, which comes before the octets that follow.
        let now = incoming(near, self.at).wa.hold.load(Acquire);
        (now != self.held).then(|| (Hold::from_raw(self.held), Hold::from_raw(now)))
    }

    /// That is done.
    pub fn heard(&mut self, said: Hold) {
        (self.held, self.sent_before) = (said.raw(), None);
    }

    /// The pair was found empty after [`Source::Drain`] was told: the ring is next. (What counts is that it is empty, and not how
    /// much came: a program that nobody sees may have written, too.)
    pub fn drained(&mut self, near: &Neighbour, head: Head, came: u64) {
        if incoming(near, self.at).drained(head) {
            self.came_before = came;
            self.wake_writers(near);
        }
    }

    /// Takes octets out of the ring, into `to`. False: they go another way now, and what is in `to` counts for nothing.
    pub fn take(&mut self, near: &Neighbour, head: Head, to: &mut [u8]) -> bool {
        near.copy_out(self.at, head.position(), to);
        let d = incoming(near, self.at);
        runs_here(&d.h.cpu);
        self.look_for_spinner(near);
        d.commit(head, to.len() as u64)
    }

    /// Octets were taken: wakes who waits for room, once half of the ring is free. More of it is taken soon, and a program that is woken for
    /// less does not fill it before the next turn.
    pub fn make_room(&self, near: &Neighbour) {
        let size = near.ring(self.at);
        let unread = match incoming(near, self.at).readable(size) {
            Ok(Readable::Ring { available, .. }) => available,
            _ => 0,
        };
        if unread <= size / 2 {
            self.wake_writers(near);
        }
    }

    /// Wakes who waits for room, if there is some.
    pub fn wake_writers(&self, near: &Neighbour) {
        let d = incoming(near, self.at);
        fence(SeqCst);
        if wait::any(&d.wa.wait) {
            wait::wake(&d.wa.wait, |bell| {
                near.ring_bell(bell, self.end);
            });
        }
    }

    /// Octets came through the pair: where the ring is the way, from somebody who knows of none, and the program is to write to the pair,
    /// too.
    pub fn came_by_pair(&mut self, near: &Neighbour) {
        let d = incoming(near, self.at);
        if d.path() == Path::Ring && !self.spoiled {
            self.spoiled = true;
            d.ask_recall(ask::RECALL);
            near.demand_attention(self.end);
        }
    }

    /// The pair is empty, and the path: the program may use its ring from here on. True: it does already.
    pub fn consent(&mut self, near: &Neighbour) -> bool {
        let d = incoming(near, self.at);
        if self.spoiled || d.path() != Path::Kernel || d.wa.flags.load(Relaxed) & writer_flag::SHUT != 0 {
            return d.path() != Path::Kernel;
        }
        if !pauses(&d.ra.wait, &mut self.waits[0], &mut self.ticket) {
            return false;
        }
        let asked = d.ra.ask.load(Relaxed);
        if asked == 0 || asked == ask::RECALL {
            d.withdraw_recall();
            d.consent();
        }
        d.path() != Path::Kernel
    }

    /// The pair has ended on its own path. True: octets that were to come through it are in the ring, as the program was killed
    /// while it took them back.
    pub fn inherit(&self, near: &Neighbour, came: u64) -> bool {
        let d = incoming(near, self.at);
        let is_unfinished = d.wa.flags.load(Acquire) & writer_flag::FLUSHING != 0;
        // Where the ring was given up before the pair was empty the program's own count tells what went before.
        let before = self.came_before.max(d.wa.switch_k.load(Relaxed));
        let resent = came.checked_sub(before).filter(|_| is_unfinished);
        resent.is_some_and(|resent| d.inherit(resent, near.ring(self.at)))
    }

    /// Whether the ring has octets.
    pub fn has_more(&self, near: &Neighbour) -> bool {
        let readable = incoming(near, self.at).readable(near.ring(self.at));
        matches!(readable, Ok(Readable::Ring { available: 1.., .. }))
    }

    /// The pair has ended, and the ring is empty: who writes there all the same is to find it out.
    pub fn end_incoming(&self, near: &Neighbour) {
        if incoming(near, self.at).path() != Path::Kernel {
            self.close_incoming(near);
        }
    }

    /// Whether what is for the program goes into the ring.
    pub fn is_given(&self) -> bool {
        self.way == Way::Ring
    }

    /// Nobody takes what the program writes any more: it is to find that out from the pair.
    pub fn close_incoming(&self, near: &Neighbour) {
        incoming(near, self.at).ask_recall(ask::CLOSED);
        near.demand_attention(self.end);
    }

    // ---- what the program reads

    /// Where the next octets go; `went` have gone through the pair.
    ///
    /// # Errors
    /// [`Poisoned`]: the program lies.
    pub fn sink(&mut self, near: &Neighbour, end: BorrowedFd<'_>, went: &mut u64) -> Result<Sink, Poisoned> {
        let (d, size) = (outgoing(near, self.at), near.ring(self.at));
        for _ in 0..LOOKS {
            match self.way {
                Way::Pair if !self.spoiled && d.consented() && d.begin_ring(self.tail, *went) => {
                    self.way = Way::Ring;
                }
                Way::Pair => return Ok(Sink::Pair),
                Way::Ring if d.ra.ask.load(Relaxed) & (ask::RECALL | ask::CLOSED) != 0 => self.claim(near)?,
                Way::Ring => {
                    let free = d.space(self.tail, size)?;
                    if free > 0 && !self.back(near, free.min(STEP)) {
                        // The pair's memory is the kernel's.
                        self.spoiled = true;
                        self.claim(near)?;
                        continue;
                    }
                    if free > 0 {
                        let backed = if self.backed < size { self.backed - self.tail } else { free };
                        return Ok(Sink::Ring(free.min(backed)));
                    }
                    if !pauses(&d.wa.wait, &mut self.waits[1], &mut self.ticket) {
                        return Err(Poisoned);
                    }
                    let asked = d.ra.ask.load(Relaxed) & (ask::RECALL | ask::CLOSED);
                    if asked == 0 && d.space(self.tail, size)? == 0 {
                        return Ok(Sink::Full);
                    }
                }
                Way::Flush(_) => {
                    if !self.flush(near, end, went) {
                        return Ok(Sink::Flushing);
                    }
                }
            }
        }
        Err(Poisoned)
    }

    /// Does what the program asks for beside octets: takes the way back from the ring, and goes on with that. False: the pair has
    /// no room for it yet.
    ///
    /// # Errors
    /// [`Poisoned`]: the program lies.
    pub fn answer(
        &mut self,
        near: &Neighbour,
        end: BorrowedFd<'_>,
        went: &mut u64,
    ) -> Result<bool, Poisoned> {
        let asked = outgoing(near, self.at).ra.ask.load(Acquire) & (ask::RECALL | ask::CLOSED) != 0;
        if self.way == Way::Ring && asked {
            self.claim(near)?;
        }
        Ok(self.flush(near, end, went))
    }

    /// Takes memory for the next octets behind the tail, a ring's first round only. False: there is none.
    fn back(&mut self, near: &Neighbour, octets: u64) -> bool {
        let size = near.ring(self.at);
        let to = (self.tail + octets).next_multiple_of(STEP).min(size);
        if self.backed >= to {
            return true;
        }
        let done = near.back(self.at, self.backed, to);
        if done {
            self.backed = to;
        }
        done
    }

    /// Octets that can be [put](Rings::put) into the ring at once, where it is the way and the program asks for nothing else. Who lies is
    /// found out by [`Rings::sink`].
    pub fn room(&self, near: &Neighbour) -> u64 {
        let d = outgoing(near, self.at);
        if self.way != Way::Ring || d.ra.ask.load(Acquire) & (ask::RECALL | ask::CLOSED) != 0 {
            return 0;
        }
        let (free, size) = (d.space(self.tail, near.ring(self.at)).unwrap_or(0), near.ring(self.at));
        if self.backed < size { free.min(self.backed - self.tail) } else { free }
    }

    /// Puts octets into the ring; there is room for them.
    pub fn put(&mut self, near: &Neighbour, octets: &[u8]) {
        near.copy_in(self.at, self.tail, octets);
        self.tail += octets.len() as u64;
        let d = outgoing(near, self.at);
        runs_here(&d.t.cpu);
        d.publish(self.tail);
        self.look_for_spinner(near);
    }

    /// Whether the program has looked in vain more than once since the octets before: an event loop that reads until there is nothing does so
    /// once for each.
    fn look_for_spinner(&mut self, near: &Neighbour) {
        let h = &outgoing(near, self.at).h;
        let looks = h.looks.load(Relaxed);
        if std::mem::replace(&mut self.looks, looks) != looks {
            near.spins(h.cpu.load(Relaxed));
        }
    }

    /// After octets were put: wakes who waits for them. False: he cannot be rung, and [`Rings::answer`] wakes him by the pair.
    ///
    /// # Errors
    /// [`Poisoned`]: the program lies.
    pub fn wake_readers(&mut self, near: &Neighbour) -> Result<bool, Poisoned> {
        let d = outgoing(near, self.at);
        fence(SeqCst);
        let mut unknown = false;
        if wait::any(&d.ra.wait) {
            wait::wake(&d.ra.wait, |bell| unknown |= !near.ring_bell(bell, self.end));
        }
        if unknown && self.way == Way::Ring {
            self.claim(near)?;
        }
        Ok(!unknown)
    }

    /// Takes the way back from the ring.
    fn claim(&mut self, near: &Neighbour) -> Result<(), Poisoned> {
        let d = outgoing(near, self.at);
        d.wa.flags.fetch_or(writer_flag::FLUSHING, AcqRel);
        let position = d.claim()?;
        if self.tail.wrapping_sub(position) > near.ring(self.at) {
            return Err(Poisoned);
        }
        self.way = Way::Flush(position);
        Ok(())
    }

    /// Goes on with that: sends what was not read through the pair. True: it is done.
    fn flush(&mut self, near: &Neighbour, end: BorrowedFd<'_>, went: &mut u64) -> bool {
        let Way::Flush(mut at) = self.way else { return true };
        let mut room = [0; PIECE];
        while at != self.tail {
            let piece = &mut room[..PIECE.min((self.tail - at) as usize)];
            near.copy_again(self.at, at, piece);
            match pair::send(end, piece) {
                Ok(n) => {
                    at += n as u64;
                    *went += n as u64;
                    self.way = Way::Flush(at);
                }
                Err(Errno::AGAIN) => return false,
                // Nobody reads it.
                Err(_) => {
                    self.lost = true;
                    break;
                }
            }
        }
        outgoing(near, self.at).wa.flags.fetch_and(!writer_flag::FLUSHING, AcqRel);
        self.way = Way::Pair;
        true
    }

    /// Everything goes through the pair from now on, and nothing is left in the ring. False: the pair has no room for it yet.
    ///
    /// # Errors
    /// [`Poisoned`]: the program lies.
    pub fn empty(&mut self, near: &Neighbour, end: BorrowedFd<'_>, went: &mut u64) -> Result<bool, Poisoned> {
        if self.way == Way::Ring {
            self.claim(near)?;
        }
        Ok(self.flush(near, end, went))
    }

    /// The same, for good: no octets for the program go into the ring any more.
    ///
    /// # Errors
    /// [`Poisoned`]: the program lies.
    pub fn leave(&mut self, near: &Neighbour, end: BorrowedFd<'_>, went: &mut u64) -> Result<Sink, Poisoned> {
        self.spoiled = true;
        Ok(if self.empty(near, end, went)? { Sink::Pair } else { Sink::Flushing })
    }

    /// Whether octets wait in the ring, and nobody is known to wait for them: how far the reader is.
    pub fn unwatched(&self, near: &Neighbour) -> Option<u64> {
        let d = outgoing(near, self.at);
        let position = Head::from_raw(d.h.head.load(Acquire)).position();
        (self.way == Way::Ring && position != self.tail && !wait::any(&d.ra.wait)).then_some(position)
    }

    /// Nobody has read for long. The program may be one that knows nothing of rings by now: it gets the octets by the pair.
    ///
    /// # Errors
    /// [`Poisoned`]: the program lies.
    pub fn give_up(&mut self, near: &Neighbour) -> Result<(), Poisoned> {
        self.given_up = (self.given_up + 1).min(MOST_GIVEN_UP);
        if self.way == Way::Ring { self.claim(near) } else { Ok(()) }
    }

    /// How long a reader may rest (ns): twice as long each time that it was in vain.
    pub fn patience(&self) -> u64 {
        PATIENCE << self.given_up
    }

    /// The end of the octets for the program is told by the pair.
    pub fn finish(&self, near: &Neighbour) {
        outgoing(near, self.at).wa.flags.fetch_or(writer_flag::SHUT, AcqRel);
    }

    /// Whether the program has not read everything that it was given beside the pair.
    pub fn has_unread(&self, near: &Neighbour) -> bool {
        match self.way {
            Way::Pair => self.lost,
            Way::Ring => Head::from_raw(outgoing(near, self.at).h.head.load(Acquire)).position() != self.tail,
            Way::Flush(at) => at != self.tail,
        }
    }
}
