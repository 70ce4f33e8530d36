//! The rings of a socket of datagrams: two mailboxes (`bypath_shm::mailbox`) in a slot of its process's arena. The program writes into the
//! first one, whose gate is open while the service is awake; the service writes into the second one while the program says that it looks.
//!
//! What stands there may be a lie. It costs the liar his rings: the socket goes on by its pair.

use super::super::neighbours::{Neighbour, Place};
use super::super::slab::Key;
use super::super::socket::{Hub, Phase, Socket};
use super::{Datagrams, Next};
use bypath_shm::datagram::{HEADER, Header};
use bypath_shm::dgram::{self, Octets, Slot};
use bypath_shm::mailbox::{Epoch, Pushed, Reader, Writer};
use bypath_stack::linux::errno::Result;
use bypath_sys::sock;
use std::collections::VecDeque;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How often a record that goes while it is looked at is looked for again.
const LOOKS: u32 = 64;
/// Of [`Header::tells`], in the service's ring: the record is naked where it goes by the pair.
const NAKED: u32 = 1 << 31;
/// Memory that a ring takes at once.
const STEP: u64 = 32 << 10;

/// What the service keeps of them for itself.
#[derive(Debug)]
pub struct Mail {
    at: Place,
    /// Octets ever put into the second ring.
    tail: AtomicU64,
    /// The epoch in which it is left alone.
    left: AtomicU64,
    /// The epoch in which the program did not read what it said it would.
    given_up: AtomicU64,
    /// The program may not have taken all that went by the pair.
    on_its_way: bool,
    /// So many of its first octets have memory.
    backed: u64,
    /// Records that were taken back out of it: they go through the pair before all others. Nothing is put into the ring while there are some, so they are
    /// no more than fit there.
    again: VecDeque<Vec<u8>>,
    /// Up to where all were: the program may write its head back.
    taken: u64,
    /// What these count.
    again_octets: usize,
    /// It stands in [`Hub::mail`]: its gate may be open.
    listed: bool,
    /// The gate was opened, or begun to be.
    opened: bool,
    /// Nobody uses them any more.
    over: bool,
    /// Datagrams that came by the first ring, ever, and that went by the second.
    came: u64,
    went: u64,
}

/// What a record that was taken back counts: its place in a list that has room for as many again, and the allocator's part, beside its memory.
const fn weight(record: &Vec<u8>) -> usize {
    record.capacity() + 64
}

impl Mail {
    pub fn new(at: Place) -> Box<Mail> {
        Box::new(Mail {
            at,
            tail: AtomicU64::new(0),
            left: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            on_its_way: true,
            backed: 0,
            again: VecDeque::new(),
            taken: 0,
            again_octets: 0,
            listed: false,
            opened: false,
            over: false,
            came: 0,
            went: 0,
        })
    }

    /// Whether datagrams go by the rings: the program's, and those for it.
    pub const fn are_used(&self) -> (bool, bool) {
        (!self.over && self.came > 0, !self.over && self.went > 0)
    }

    fn reader<'a>(&self, near: &'a Neighbour) -> Reader<'a, Slot<'a>> {
        let (mailbox, ring) = near.mailbox(self.at, 0);
        Reader::new(mailbox, ring)
    }

    fn end(&mut self, near: &Neighbour) {
        self.over = true;
        (0..2).for_each(|n| near.mailbox(self.at, n).0.kill());
    }

    /// The next record of the program.
    fn next(&mut self, near: &Neighbour, room: &mut [u8]) -> Option<usize> {
        if self.over {
            return None;
        }
        let reader = self.reader(near);
        for _ in 0..LOOKS {
            let peeked = match reader.peek() {
                Ok(None) => return None,
                Ok(Some(peeked)) if peeked.place.head_len() == HEADER => peeked,
                _ => break,
            };
            let (head, octets) = room.split_at_mut(HEADER);
            peeked.place.copy_head(reader.ring(), head);
            let len = peeked.place.copy(reader.ring(), octets);
            // Otherwise it was taken back by who wrote it.
            if reader.release(&peeked) {
                self.came += 1;
                return Some(HEADER + len);
            }
        }
        self.end(near);
        None
    }

    /// Whether its program could write into its ring if only the gate were open.
    pub(super) fn is_to_open(&self, near: &Neighbour) -> bool {
        !self.over && !self.reader(near).is_open()
    }

    fn has_more(&self, near: &Neighbour) -> bool {
        !self.over && !self.reader(near).is_empty()
    }

    fn open(&mut self, near: &Neighbour) -> Option<Epoch> {
        self.opened = !self.over;
        if self.over { None } else { self.reader(near).open_begin() }
    }

    /// A record for the program into its ring. False: it goes by the pair.
    fn push(&mut self, near: &Neighbour, end: i32, header: &Header, octets: &[u8]) -> bool {
        let (mailbox, ring) = near.mailbox(self.at, 1);
        let size = ring.size();
        let tail = self.tail.load(Relaxed);
        let to = (tail + dgram::span(HEADER, octets.len())).next_multiple_of(STEP).min(size);
        if self.over || self.backed < to && !near.back(self.at, self.backed, to) {
            return false;
        }
        self.backed = self.backed.max(to);
        let writer = Writer::sole(mailbox, ring, &self.tail);
        if self.on_its_way && writer.is_barred(&self.left) {
            self.on_its_way = sock::outq(end) != Ok(0);
        }
        let left = if self.on_its_way { &self.left } else { &self.given_up };
        match writer.push(left, &header.encode(), octets, size) {
            Pushed::Sent => {
                self.went += 1;
                true
            }
            Pushed::Kernel | Pushed::Full => false,
            Pushed::Poisoned => {
                self.end(near);
                false
            }
        }
    }

    /// A record went by the pair.
    fn went_by_pair(&mut self, near: &Neighbour) {
        self.on_its_way = true;
        if !self.over {
            let (mailbox, ring) = near.mailbox(self.at, 1);
            Writer::sole(mailbox, ring, &self.tail).sent_by_kernel(&self.left);
        }
    }

    /// Takes back what the program has not read, to be sent by the pair.
    pub fn take_back(&mut self, near: &Neighbour) {
        if self.over || self.unread(near).is_none() {
            return;
        }
        self.on_its_way = true;
        let (mailbox, ring) = near.mailbox(self.at, 1);
        let writer = Writer::sole(mailbox, ring, &self.tail);
        let (again, octets_again) = (&mut self.again, &mut self.again_octets);
        let mut is_sound = true;
        let taken = writer.take_all_back(&self.left, &mut self.taken, |ring, place| {
            // The program can write there, too: shorter ones would be more than are put there.
            if place.head_len() != HEADER {
                is_sound = false;
                return;
            }
            let mut record = vec![0; place.head_len() + place.len()];
            let (head, octets) = record.split_at_mut(place.head_len());
            place.copy_head(ring, head);
            place.copy(ring, octets);
            let header = head.first_chunk::<HEADER>().and_then(Header::decode);
            if header.is_some_and(|header| header.tells & NAKED != 0) {
                record.drain(..HEADER);
            }
            *octets_again += weight(&record);
            again.push_back(record);
        });
        self.given_up.store(self.left.load(Relaxed), Relaxed);
        if taken.is_err() || !is_sound {
            self.end(near);
        }
    }

    /// The first of what was taken back.
    fn first_again(&mut self) -> Option<Vec<u8>> {
        let Some(record) = self.again.pop_front() else {
            self.again = VecDeque::new();
            return None;
        };
        self.again_octets -= weight(&record);
        Some(record)
    }

    /// How far the program has read, if it has not read everything.
    fn unread(&self, near: &Neighbour) -> Option<u64> {
        let unread = near.mailbox(self.at, 1).0.unread();
        (!self.over && unread != 0).then(|| self.tail.load(Relaxed).wrapping_sub(unread))
    }
}

impl Datagrams {
    /// Whether something that was taken back waits for room in the pair.
    pub(super) fn owes_again(&self) -> bool {
        self.mail.as_ref().is_some_and(|mail| !mail.again.is_empty())
    }

    /// Octets that were taken back.
    pub fn taken_back(&self) -> usize {
        self.mail.as_ref().map_or(0, |mail| mail.again_octets)
    }
}

impl Socket {
    /// The next record: the ring's first, then the pair's.
    pub(super) fn next_of_both(&mut self, near: Option<&Neighbour>, room: &mut [u8]) -> Next {
        let Phase::Datagrams(of) = &mut self.phase else { return Next::Nothing };
        let (Some(near), Some(mail)) = (near, of.mail.as_mut().filter(|mail| !mail.over)) else {
            return self.next_record(room);
        };
        if let Some(len) = mail.next(near, room) {
            return Next::Record(len);
        }
        if !self.is.pair_news && !self.is.hung_up {
            return Next::Nothing;
        }
        // Before the pair is read nothing comes by the ring any more, and what has come there was earlier.
        if mail.reader(near).is_open() {
            mail.reader(near).close();
            if let Some(len) = mail.next(near, room) {
                return Next::Record(len);
            }
        }
        let epoch = mail.open(near);
        let next = self.next_record(room);
        let Phase::Datagrams(of) = &mut self.phase else { return next };
        let (Next::Nothing | Next::End, Some(mail)) = (next, of.mail.as_mut()) else { return next };
        self.is.pair_news = false;
        if let Some(epoch) = epoch.filter(|_| next == Next::Nothing) {
            mail.reader(near).open_finish(epoch);
        }
        // Who is gone may have written meanwhile; who is not, before it was begun to be opened.
        mail.next(near, room).map_or(next, Next::Record)
    }

    /// What was taken back goes by the pair. False: that has no room.
    pub(super) fn send_again(&mut self) -> bool {
        loop {
            let Phase::Datagrams(of) = &mut self.phase else { return true };
            let Some(record) = of.mail.as_mut().and_then(|mail| mail.first_again()) else { return true };
            if self.record_of([&record, &[]]) == Err(bypath_sys::Errno::AGAIN) {
                if let Phase::Datagrams(of) = &mut self.phase
                    && let Some(mail) = &mut of.mail
                {
                    mail.again_octets += weight(&record);
                    mail.again.push_front(record);
                }
                return false;
            }
            // Otherwise it was sent, or nobody reads it.
        }
    }

    /// One record for the program, whichever way. A naked one has its header where it goes by the ring.
    pub(super) fn tell_program(
        &mut self,
        near: Option<&Neighbour>,
        header: &Header,
        octets: &[u8],
        naked: bool,
    ) -> bypath_sys::Result<()> {
        if !self.send_again() {
            return Err(bypath_sys::Errno::AGAIN);
        }
        if let (Phase::Datagrams(of), Some(near)) = (&mut self.phase, near)
            && let Some(mail) = &mut of.mail
        {
            // Its header there is one that the program passes over.
            let tells = header.tells | if naked { NAKED } else { 0 };
            if mail.push(near, self.end.as_raw_fd(), &Header { tells, ..*header }, octets) {
                return Ok(());
            }
            // What is in the ring came before, and the program may be about to wait for the pair alone.
            mail.take_back(near);
            if !self.send_again() {
                return Err(bypath_sys::Errno::AGAIN);
            }
        }
        let sent =
            if naked { self.record_of([octets, &[]]) } else { self.record_of([&header.encode(), octets]) };
        if let (Phase::Datagrams(of), Some(near)) = (&mut self.phase, near)
            && let Some(mail) = &mut of.mail
        {
            mail.went_by_pair(near);
        }
        sent
    }

    /// How far the program has read in its ring, if there is more and nobody is known to wait for it.
    pub fn unread_in_ring(&self, near: &Neighbour) -> Option<u64> {
        match &self.phase {
            Phase::Datagrams(of) => of.mail.as_ref()?.unread(near),
            _ => self.rings.as_ref()?.unwatched(near),
        }
    }
}

impl Hub {
    /// After the turn of a socket: its gate may be open now. `awake`: the service looks for more for a while.
    pub(super) fn list_mail(&mut self, key: Key) {
        let Some(Phase::Datagrams(of)) = self.sockets.get_mut(key).map(|socket| &mut socket.phase) else {
            return;
        };
        if let Some(mail) = &mut of.mail
            && std::mem::take(&mut mail.opened)
            && !std::mem::replace(&mut mail.listed, true)
        {
            self.mail.push(key);
        }
    }

    /// Sockets whose program has written into its ring have something to do.
    pub fn look_at_mail(&mut self) {
        for at in 0..self.mail.len() {
            let key = self.mail[at];
            if self.has_mail(key) {
                self.activate(key);
            }
        }
    }

    /// Whether a program has written what nobody knows of yet.
    fn has_mail(&mut self, key: Key) -> bool {
        let Some(socket) = self.sockets.get_mut(key) else { return false };
        let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
        let (Some(near), Phase::Datagrams(of)) = (near, &socket.phase) else { return false };
        let Some(mail) = &of.mail else { return false };
        let new = !socket.is.pair_in && near.watched(|| mail.has_more(near));
        socket.is.pair_in |= new;
        new
    }

    /// The service is about to sleep: programs write to their pairs from now on. True: there is something to be read first.
    pub fn close_mail(&mut self) -> bool {
        let mut news = false;
        for key in std::mem::take(&mut self.mail) {
            let Some(socket) = self.sockets.get_mut(key) else { continue };
            let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
            let (Some(near), Phase::Datagrams(of)) = (near, &mut socket.phase) else { continue };
            let Some(mail) = &mut of.mail else { continue };
            mail.listed = false;
            if !mail.over {
                near.watched(|| mail.reader(near).close());
            }
            if self.has_mail(key) {
                self.activate(key);
                news = true;
            }
        }
        news
    }

    /// What is in the program's ring goes through the pair: the program is about to wait for that alone, or does not read.
    pub fn take_mail_back(&mut self, key: Key) -> Result<Vec<u8>> {
        let socket = self.sockets.get_mut(key).ok_or(libc::EBADF)?;
        let near = socket.rings.as_ref().and_then(|rings| self.neighbours.get(rings.with));
        if let (Some(near), Phase::Datagrams(of)) = (near, &mut socket.phase)
            && let Some(mail) = &mut of.mail
        {
            near.watched(|| mail.take_back(near));
        }
        socket.is.pair_out = socket.send_again();
        self.activate(key);
        Ok(0i32.to_ne_bytes().to_vec())
    }
}
