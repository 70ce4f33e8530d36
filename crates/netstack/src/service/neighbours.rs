//! Processes that share memory with the service: their arenas, inboxes and bells. What stands in that memory is hostile; and who is neither
//! root nor the user that the service runs as, a *stranger*, may make it wait there, which is counted (`sharers.rs`).
//!
//! Who sleeps is told by a bell, an eventfd. A program that finds the service's wait word in a direction of a connection marks the
//! connection in the service's inbox of that process, and rings if the service says there that it sleeps.

use super::debts::PIECE;
use super::limits::{Account, Charge, Unwanted};
use super::sharers::{INBOXES, Sharer, Sharers};
use super::slab::{Key, Slab};
use super::watch::{Token, Watch};
use bypath_shm::arena::{Control, Geometry, slot_use};
use bypath_shm::dgram::Slot;
use bypath_shm::inbox::{BELL, MARKED_BELL, MESSAGE_VERSION, MESSAGE_WORDS};
use bypath_shm::mailbox::Mailbox;
use bypath_shm::region::{OwnArena, OwnInbox};
use bypath_sys::aio::Ringer;
use bypath_sys::eventfd::{self, Bell};
use bypath_sys::{Errno, Result, clock, process, seqpacket, thread};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*, fence};

/// Number of the service's bell in every inbox.
const OWN_BELL: u32 = 1;
/// What wait words of the service name.
pub const WAKES: u32 = MARKED_BELL | OWN_BELL;
/// Slots of a process's first arena, and of the later ones.
const SLOTS: [u32; 8] = [16, 64, 256, 1024, 1024, 1024, 1024, 1024];
/// Slots of a stranger's first arena, and of the later ones: the service waits no longer than it takes to give one back. Whole arenas count as
/// his, so a process with few connections has a small one.
const STRANGERS_FIRST: u32 = 4;
const STRANGERS_SLOTS: u32 = 16;
const STRANGERS_ARENAS: usize = 32;
/// Bells of one process at most.
const BELLS: usize = 1024;
/// Messages that are read at once: more than can wait.
const MESSAGES: usize = 8192;

/// Where the rings of a connection are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub arena: usize,
    pub slot: u32,
}

/// One process.
pub struct Neighbour {
    pub uid: u32,
    /// Random name of the process.
    pub token: u64,
    /// Random name of what it shares with the service.
    pub pair: u64,
    /// Where it sends its bells.
    control: OwnedFd,
    /// What programs mark.
    ours: OwnInbox,
    theirs: OwnInbox,
    bell: Bell,
    bells: RefCell<HashMap<u32, (OwnedFd, Charge)>>,
    arenas: Vec<Slots>,
    /// Connections by the number that is marked.
    ends: Vec<Option<Key>>,
    free: Vec<u32>,
    /// Nobody has the other end of `control`.
    gone: Cell<bool>,
    /// There is more than could be heard at once.
    unheard: Cell<bool>,
    /// What came along with it, and is no bell.
    files: RefCell<Vec<Unwanted>>,
    /// Of the last sleep that was announced.
    ticket: Cell<u32>,
    /// It stands in [`Neighbours::awake`].
    awake: bool,
    /// Its user.
    sharer: Arc<Sharer>,
    /// Where his descriptors and rings are counted, and what this process has of them beside bells and arenas.
    account: Arc<Account>,
    _charge: Charge,
    /// The processor of a thread that looks for octets again and again.
    spinner: Cell<Option<u32>>,
    /// It is a stranger's: who rings its bells, which might wait.
    ringer: Option<Arc<Ringer>>,
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        self.sharer.leave(self.bells.borrow().len());
    }
}

struct Slots {
    arena: OwnArena,
    file: OwnedFd,
    /// Slots of connections, with the octets that they count.
    busy: Vec<Option<Charge>>,
    /// The arena's descriptor; a stranger's octets are those of the whole arena, whatever its slots are used for: it is he who says, and who may
    /// fill them.
    _charge: Charge,
}

/// What a process gets with its first rings.
pub struct Introduction {
    pub inbox: OwnedFd,
    pub control: OwnedFd,
}

impl Neighbour {
    /// Octets of the rings of this slot's arena.
    pub fn ring(&self, at: Place) -> u64 {
        self.arenas[at.arena].arena.geometry().ring.into()
    }

    /// Geometry and descriptor of an arena.
    pub fn arena(&self, at: Place) -> (Geometry, &OwnedFd) {
        let slots = &self.arenas[at.arena];
        (slots.arena.geometry(), &slots.file)
    }

    /// The service's bell.
    pub fn bell(&self) -> &Bell {
        &self.bell
    }

    pub fn control(&self, at: Place) -> &Control {
        self.arenas[at.arena].arena.control(at.slot)
    }

    /// The mailbox of a ring of a slot (0: what the program writes), and the ring.
    pub fn mailbox(&self, at: Place, direction: usize) -> (&Mailbox, Slot<'_>) {
        let arena = &self.arenas[at.arena].arena;
        (&self.control(at).mailbox[direction], Slot { arena, slot: at.slot, direction })
    }

    /// From a program's ring.
    pub fn copy_out(&self, at: Place, position: u64, to: &mut [u8]) {
        self.arenas[at.arena].arena.copy_out(at.slot, 0, position, to);
    }

    /// Into the service's ring.
    pub fn copy_in(&self, at: Place, position: u64, from: &[u8]) {
        self.arenas[at.arena].arena.copy_in(at.slot, 1, position, from);
    }

    /// Its user, if that is neither root nor the one that the service runs as.
    pub fn stranger(&self) -> Option<Arc<Sharer>> {
        self.ringer.is_some().then(|| Arc::clone(&self.sharer))
    }

    /// Does what touches its memory.
    pub fn watched<R>(&self, f: impl FnOnce() -> R) -> R {
        if self.ringer.is_some() { self.sharer.watched(f) } else { f() }
    }

    /// Takes a slot with rings of `ring` octets.
    ///
    /// # Errors
    /// ENOMEM, EMFILE; ENOSPC: there are too many; ENOBUFS: its user has as many octets of rings, or descriptors of the service, as he may.
    fn take(&mut self, ring: u32) -> Result<Place> {
        if self.ringer.is_none() && !self.account.may_have_rings(2 * ring as usize) {
            return Err(Errno::NOBUFS);
        }
        for (arena, slots) in self.arenas.iter_mut().enumerate() {
            if slots.arena.geometry().ring != ring {
                continue;
            }
            // A program that holds a slot longer than its connection keeps nobody else from anything.
            let is_free = |slot: &usize| {
                slots.busy[*slot].is_none() && slots.arena.control(*slot as u32).in_use.load(Acquire) == 0
            };
            if let Some(slot) = (0..slots.busy.len()).find(is_free) {
                return self.prepare(Place { arena, slot: slot as u32 });
            }
        }
        let count = match self.ringer.is_some() {
            true if self.arenas.is_empty() => Some(STRANGERS_FIRST),
            true => (self.arenas.len() < STRANGERS_ARENAS).then_some(STRANGERS_SLOTS),
            false => SLOTS.get(self.arenas.len()).copied(),
        };
        let count = count.ok_or(Errno::NOSPC)?;
        let octets = if self.ringer.is_some() { 2 * count as usize * ring as usize } else { 0 };
        if !self.account.may_have_rings(octets) {
            return Err(Errno::NOBUFS);
        }
        let (arena, file) = OwnArena::new(Geometry { slots: count, ring })?;
        if !self.account.may_have(file.as_raw_fd(), 1) {
            return Err(Errno::NOBUFS);
        }
        let busy = (0..count).map(|_| None).collect();
        self.arenas.push(Slots { arena, file, busy, _charge: self.account.charge(1, octets) });
        self.prepare(Place { arena: self.arenas.len() - 1, slot: 0 })
    }

    fn prepare(&mut self, at: Place) -> Result<Place> {
        let slots = &mut self.arenas[at.arena];
        let both = if self.ringer.is_some() { 0 } else { 2 * slots.arena.geometry().ring as usize };
        slots.busy[at.slot as usize] = Some(self.account.charge(0, both));
        let control = slots.arena.control(at.slot);
        control.begin();
        control.mailbox.iter().for_each(|mailbox| mailbox.reset());
        Ok(at)
    }

    /// A slot and a number for a connection, both of whose ends know each other then.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn enter(&mut self, key: Key, cookie: u64, end: u32, ring: u32) -> Result<(Place, u32)> {
        let at = self.take(ring)?;
        let number = self.free.pop().unwrap_or_else(|| {
            self.ends.push(None);
            self.ends.len() as u32 - 1
        });
        self.ends[number as usize] = Some(key);
        let control = self.control(at);
        control.name([cookie; 2]);
        control.ends[0].store(end, Relaxed);
        control.ends[1].store(number, Relaxed);
        Ok((at, number))
    }

    /// The connection is over, or its rings never were. `gone`: nobody has the program's end any more.
    pub fn leave(&mut self, at: Place, number: u32, gone: bool) {
        self.ends[number as usize] = None;
        self.free.push(number);
        // A slot of one who is barred is nobody's.
        if self.sharer.is_barred() {
            // His memory is not touched any more.
            return;
        }
        let slots = &mut self.arenas[at.arena];
        let control = slots.arena.control(at.slot);
        let left = control.in_use.fetch_and(!slot_use::ACCEPTER, AcqRel) & slot_use::DIALLER != 0;
        // That takes the lock of the file, which a stranger could hold.
        if (gone || !left) && self.ringer.is_none() {
            slots.arena.release_rings(at.slot);
        }
        slots.busy[at.slot as usize] = None;
    }

    /// Wakes who sleeps behind `bell`, for the end with this number. False: that bell is not known.
    pub fn ring_bell(&self, bell: u32, end: u32) -> bool {
        let number = bell & !MARKED_BELL;
        if !self.bells.borrow().contains_key(&number) {
            self.hear();
        }
        let bells = self.bells.borrow();
        let Some((fd, _)) = bells.get(&number) else { return false };
        if bell & MARKED_BELL == 0 {
            return self.strike(fd);
        }
        let inbox = self.theirs.get();
        inbox.mark(end);
        let Some(asleep) = inbox.asleep.get(number as usize) else { return false };
        let ticket = asleep.load(SeqCst);
        if ticket != 0 {
            if !self.strike(fd) {
                return false;
            }
            let _ = asleep.compare_exchange(ticket, 0, AcqRel, Relaxed);
        }
        true
    }

    /// False: the bell could not be rung.
    fn strike(&self, bell: &OwnedFd) -> bool {
        match &self.ringer {
            // The kernel finds out whether it is one.
            Some(ringer) => ringer.ring(bell.as_fd()).is_ok(),
            None => {
                eventfd::ring(bell.as_raw_fd());
                true
            }
        }
    }

    /// Somebody of the process is to look at the end with this number.
    pub fn demand_attention(&self, end: u32) {
        self.theirs.get().mark(end);
        self.hear();
        let inbox = self.theirs.get();
        let sleeps =
            |number: &u32| inbox.asleep.get(*number as usize).is_some_and(|word| word.load(SeqCst) != 0);
        if let Some((_, (fd, _))) = self.bells.borrow().iter().find(|(number, _)| sleeps(number)) {
            self.strike(fd);
        }
    }

    /// There is more than was heard.
    fn leave_unheard(&self) {
        self.unheard.set(true);
        self.sharer.leave_unheard();
    }

    /// Takes the bells that wait. Nothing else is said there.
    fn hear(&self) {
        let mut room = [0; 8 * MESSAGE_WORDS];
        let began = clock::monotonic_ns();
        for n in 0..MESSAGES {
            if n > 0 && self.ringer.is_some() && clock::monotonic_ns() - began >= PIECE {
                return self.leave_unheard();
            }
            // What is left waits there until what he sent before is closed.
            if !self.account.may_send() {
                return self.leave_unheard();
            }
            let (len, fds) = match seqpacket::receive_all(self.control.as_fd(), &mut room) {
                Ok(Some(whole)) if whole.len > 0 || !whole.fds.is_empty() => (whole.len, whole.fds),
                Ok(None) => return,
                Ok(Some(_)) | Err(_) => {
                    self.gone.set(true);
                    return;
                }
            };
            // One bell at a time. A descriptor that finds no place is a bell that is not known.
            if fds.len() > 1 || !fds.iter().all(|file| is_eventfd(file.as_fd())) {
                // The service closes them with care, and hears the rest then.
                self.files.borrow_mut().extend(fds.into_iter().map(|file| self.account.unwanted(file)));
                return self.leave_unheard();
            }
            let word = |n: usize| u64::from_ne_bytes(room[8 * n..8 * n + 8].try_into().unwrap_or_default());
            let is_bell = len == room.len() && word(0) == BELL && word(1) == MESSAGE_VERSION;
            let has_room = |number: &u32, fd: i32| {
                let bells = self.bells.borrow();
                let may_have = || bells.len() < BELLS && self.account.may_have_bell(fd);
                bells.contains_key(number) || may_have() && self.sharer.add_bell()
            };
            let number = word(2) as u32;
            if let Some(fd) = fds.into_iter().next().filter(|_| is_bell)
                && is_eventfd(fd.as_fd())
                && has_room(&number, fd.as_raw_fd())
            {
                self.bells.borrow_mut().insert(number, (fd, self.account.charge(1, 0)));
            }
        }
    }

    /// Calls `f` with the connections that are marked. A number that was never handed out is marked by nobody who means well.
    fn take_marks(&self, f: &mut impl FnMut(Key)) {
        let inbox = self.ours.get();
        if !inbox.is_marked() {
            return;
        }
        let mut marks = 0;
        let honest = inbox.drain_below(self.ends.len() as u32, |number| {
            marks += 1;
            if let Some(Some(key)) = self.ends.get(number as usize) {
                f(*key);
            }
        });
        self.sharer.found(marks);
        if !honest && self.ringer.is_some() {
            self.sharer.bar();
        }
    }

    /// A thread of the process, on this processor, spins. What strangers do moves nobody.
    pub fn spins(&self, cpu: u32) {
        if self.ringer.is_none() && cpu != u32::MAX {
            self.spinner.set(Some(cpu));
        }
    }

    /// Says that the service sleeps from now on. True: there is something to do first.
    fn announce(&self) -> bool {
        let inbox = self.ours.get();
        let asleep = &inbox.asleep[OWN_BELL as usize];
        // Another one each time: who was about to wake an earlier sleep takes no later one away.
        self.ticket.set(self.ticket.get().wrapping_add(1).max(1));
        // Said first, looked second: who marks looks the other way round.
        asleep.store(self.ticket.get(), SeqCst);
        fence(SeqCst);
        let marked = inbox.is_marked();
        if marked {
            asleep.store(0, Relaxed);
        }
        marked
    }

    /// Takes memory for octets of the service's ring. False: there is none.
    pub fn back(&self, at: Place, from: u64, to: u64) -> bool {
        self.arenas[at.arena].arena.back(at.slot, 1, from, to).is_ok()
    }

    /// From the service's own ring: what is sent again through the pair.
    pub fn copy_again(&self, at: Place, position: u64, to: &mut [u8]) {
        self.arenas[at.arena].arena.copy_out(at.slot, 1, position, to);
    }
}

/// Writes down where the service runs.
pub fn runs_here(word: &AtomicU32) {
    let cpu = thread::cpu();
    if word.load(Relaxed) != cpu {
        word.store(cpu, Relaxed);
    }
}

/// Whether a descriptor is an eventfd: a write to something else might wait, or end up anywhere.
fn is_eventfd(fd: BorrowedFd<'_>) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd()));
    link.is_ok_and(|name| name.as_os_str() == "anon_inode:[eventfd]")
}

impl fmt::Debug for Neighbour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Neighbour")
            .field("uid", &self.uid)
            .field("bells", &self.bells.borrow().len())
            .finish_non_exhaustive()
    }
}

/// All of them.
#[derive(Debug)]
pub struct Neighbours {
    all: Slab<Neighbour>,
    by_token: HashMap<(u32, u64), Key>,
    /// Those of which there was news since the service last slept: they are looked at without being asked to.
    awake: Vec<Key>,
    /// Counts the looks at inboxes: each user has his turn in each of them.
    turn: u64,
    /// Those that had theirs: memory that is used again.
    looked_at: Vec<Key>,
    /// Random name of the service.
    pub token: u64,
    sharers: Sharers,
    /// What came from processes that are gone, and is to be closed with care.
    files: Vec<Unwanted>,
    /// Who rings the bells of strangers; not made before there is one.
    ringer: Option<Arc<Ringer>>,
}

impl Neighbours {
    pub fn new() -> Neighbours {
        Neighbours {
            all: Slab::new(),
            by_token: HashMap::new(),
            awake: Vec::new(),
            turn: 0,
            looked_at: Vec::new(),
            token: process::random_u64(),
            sharers: Sharers::default(),
            files: Vec::new(),
            ringer: None,
        }
    }

    /// Who rings the bells of this user, if they are not to be rung as one's own.
    ///
    /// # Errors
    /// EPERM: it cannot be done without waiting, or memory of his could not be touched without danger.
    fn ringer(&mut self, uid: u32) -> Result<Option<Arc<Ringer>>> {
        if uid == 0 || uid == process::euid() {
            return Ok(None);
        }
        if self.ringer.is_none() {
            // Where the kernel promises no more memory than it has, a page that was given back may not be had again: SIGBUS.
            let promises =
                std::fs::read_to_string("/proc/sys/vm/overcommit_memory").map_err(|_| Errno::PERM)?;
            if promises.trim() == "2" {
                return Err(Errno::PERM);
            }
            self.ringer = Some(Arc::new(Ringer::new().map_err(|_| Errno::PERM)?));
        }
        Ok(self.ringer.clone())
    }

    /// Whether some user has lost his rings since this was asked last.
    pub fn has_barred(&self) -> bool {
        self.sharers.has_news()
    }

    /// Whether this user has no rings any more.
    pub fn is_barred(&self, uid: u32) -> bool {
        self.sharers.is_barred(uid)
    }

    pub fn get_mut(&mut self, key: Key) -> Option<&mut Neighbour> {
        self.all.get_mut(key)
    }

    pub fn get(&self, key: Key) -> Option<&Neighbour> {
        self.all.get(key)
    }

    /// The process of this user with this name, which may be new: then what it is to get is told, too.
    ///
    /// # Errors
    /// EINVAL, EPERM: what it sent is no inbox, or its user may have no rings; ENOBUFS: he has too many processes, or descriptors of the service; EMFILE,
    /// ENOMEM.
    pub fn meet(
        &mut self,
        (uid, token, pair): (u32, u64, u64),
        inbox: &OwnedFd,
        watch: &Watch,
        account: Arc<Account>,
    ) -> Result<(Key, Option<Introduction>)> {
        // One that knows nothing of what it has been given has lost it: it gets another one.
        let known = self.by_token.get(&(uid, token)).copied();
        if let Some(known) = known.filter(|known| self.all.get(*known).is_some_and(|n| n.pair == pair)) {
            return Ok((known, None));
        }
        let ringer = self.ringer(uid)?;
        let sharer = self.sharers.of(uid);
        if !sharer.may_meet() {
            return Err(if sharer.is_barred() { Errno::PERM } else { Errno::NOBUFS });
        }
        let map = || OwnInbox::map(inbox.as_raw_fd());
        let theirs = if ringer.is_some() { sharer.watched(map) } else { map() }?;
        let (ours, file) = OwnInbox::new()?;
        let (control, other) = seqpacket::pair()?;
        let bell = Bell::new()?;
        // Its end of the pair, and the bell.
        if !account.may_have(bell.as_fd().as_raw_fd(), 2) {
            return Err(Errno::NOBUFS);
        }
        sharer.enter();
        let key = self.all.insert(Neighbour {
            uid,
            token,
            pair: process::random_u64(),
            control,
            ours,
            theirs,
            bell,
            bells: RefCell::default(),
            arenas: Vec::new(),
            ends: Vec::new(),
            free: Vec::new(),
            gone: Cell::new(false),
            unheard: Cell::new(false),
            files: RefCell::default(),
            ticket: Cell::new(0),
            awake: false,
            spinner: Cell::new(None),
            sharer,
            _charge: account.charge(2, 0),
            account,
            ringer,
        });
        let told = self.all.get(key).ok_or(Errno::NOMEM).and_then(|new| {
            watch.edge(new.bell.as_fd(), Token::Bells(key))?;
            watch.edge(new.control.as_fd(), Token::Neighbour(key))
        });
        if let Err(e) = told {
            self.all.remove(key);
            return Err(e);
        }
        self.by_token.insert((uid, token), key);
        self.wake(key);
        Ok((key, Some(Introduction { inbox: file, control: other })))
    }

    /// There is news of it.
    pub fn wake(&mut self, key: Key) {
        if let Some(neighbour) = self.all.get_mut(key)
            && !neighbour.sharer.is_barred()
            && !std::mem::replace(&mut neighbour.awake, true)
        {
            self.awake.push(key);
        }
    }

    /// It said something, or is gone: then what it has is given up with its last connection.
    pub fn heard(&mut self, key: Key) {
        if let Some(neighbour) = self.all.get_mut(key) {
            neighbour.hear();
        }
        self.sweep(key);
    }

    /// Processes that were not heard out since this was asked, and files that came along with what was heard.
    pub fn take_unheard(&mut self) -> (Vec<Key>, Vec<Unwanted>) {
        let (mut unheard, mut files) = (Vec::new(), Vec::new());
        if self.sharers.take_unheard() {
            files.append(&mut self.files);
            for key in self.all.keys() {
                let Some(neighbour) = self.all.get(key) else { continue };
                files.append(&mut neighbour.files.borrow_mut());
                if neighbour.unheard.take() {
                    unheard.push(key);
                }
            }
        }
        (unheard, files)
    }

    /// Gives up one that is gone and has no connection.
    pub fn sweep(&mut self, key: Key) {
        let is_over = |n: &Neighbour| n.gone.get() && n.ends.len() == n.free.len();
        if let Some(over) = self.all.get(key).filter(|neighbour| is_over(neighbour)) {
            let name = (over.uid, over.token);
            if self.by_token.get(&name) == Some(&key) {
                self.by_token.remove(&name);
            }
            self.files.append(&mut over.files.borrow_mut());
            self.all.remove(key);
        }
    }

    /// Whether some connection was marked by one of those of which there was news. Of a user who has many some are asked, and others the
    /// next time.
    pub fn is_marked(&mut self) -> bool {
        self.turn += 1;
        let turn = self.turn;
        let mut awake = self.awake.iter().filter_map(|key| self.all.get(*key));
        let found = awake.any(|neighbour| {
            neighbour.sharer.has_turn(turn) && neighbour.watched(|| neighbour.ours.get().is_marked())
        });
        if !found && self.awake.len() > INBOXES {
            self.awake.rotate_left(INBOXES);
        }
        found
    }

    /// The processor of a thread of some process that spins, as was seen since this was asked.
    pub fn spinner(&self) -> Option<u32> {
        let awake = self.awake.iter().filter_map(|key| self.all.get(*key));
        awake.fold(None, |seen, neighbour| neighbour.spinner.take().or(seen))
    }

    /// Connections that were marked. Of a user who has many inboxes, or marks, some are taken; others are the first ones the next time.
    pub fn marked(&mut self, mut f: impl FnMut(Key)) {
        self.turn += 1;
        let (all, looked_at) = (&self.all, &mut self.looked_at);
        self.awake.retain(|key| {
            let Some(neighbour) = all.get(*key) else { return false };
            if !neighbour.sharer.has_turn(self.turn) {
                return true;
            }
            neighbour.watched(|| neighbour.take_marks(&mut f));
            looked_at.push(*key);
            false
        });
        self.awake.append(looked_at);
    }

    /// The service is about to sleep: everybody is told. True: somebody has marked something meanwhile, and it must not.
    pub fn rest(&mut self) -> bool {
        for n in 0..self.awake.len() {
            let Some(neighbour) = self.all.get_mut(self.awake[n]) else { continue };
            neighbour.spinner.set(None);
            neighbour.awake = !neighbour.sharer.is_barred() && neighbour.watched(|| neighbour.announce());
            if neighbour.awake {
                // It does not sleep: the others need not ring.
                self.awake.drain(..n);
                return true;
            }
        }
        self.awake.clear();
        false
    }
}

#[cfg(test)]
mod tests {
    use super::super::limits::Users;
    use super::*;

    /// Processes of one user, each with one connection: its number among them, beyond `first`.
    struct Crowd(Vec<(OwnedFd, &'static bypath_shm::inbox::Inbox)>);

    impl Crowd {
        fn new(all: &mut Neighbours, watch: &Watch, uid: u32, first: u32, count: u32) -> Crowd {
            let one = |n: u32| {
                let (_own, inbox) = OwnInbox::new().expect("memory");
                let account = Users::new(1 << 20, 1 << 30).account(uid);
                let (key, given) = all.meet((uid, n.into(), 0), &inbox, watch, account).expect("a process");
                let given = given.expect("the first time");
                let shown = bypath_shm::region::map_inbox(given.inbox.as_raw_fd()).expect("an inbox");
                let end = Key { index: first + n, generation: 0 };
                all.get_mut(key).expect("it").enter(end, n.into(), 0, 4096).expect("a slot");
                (given.control, shown)
            };
            Crowd((0..count).map(one).collect())
        }

        fn mark(&self, number: u32) {
            self.0.iter().for_each(|(_, inbox)| inbox.mark(number));
        }
    }

    fn marked(all: &mut Neighbours) -> Vec<u32> {
        let mut found = Vec::new();
        all.marked(|key| found.push(key.index));
        found
    }

    const MANY: u32 = 3 * INBOXES as u32;
    const ONE: u32 = 100_000;

    #[test]
    fn marks_of_a_user_without_number_wait_for_their_turn_and_others_do_not() {
        bypath_sys::thread::init();
        let (mut all, watch) = (Neighbours::new(), Watch::new().expect("epoll"));
        let crowd = Crowd::new(&mut all, &watch, 7, 0, MANY);
        let other = Crowd::new(&mut all, &watch, 8, ONE, 1);
        let mut seen = Vec::new();
        for turn in 0..3 {
            crowd.mark(0);
            other.mark(0);
            assert!(all.is_marked() && all.rest());
            let found = marked(&mut all);
            assert_eq!((found.len(), found.contains(&ONE)), (INBOXES + 1, true), "turn {turn}");
            seen.extend(found.into_iter().filter(|end| *end != ONE));
        }
        // Everybody had his turn, and nobody twice.
        seen.sort_unstable();
        assert_eq!(seen, (0..MANY).collect::<Vec<_>>());
        // What the first two thirds have marked again since keeps it from sleeping, and then nothing does.
        (0..2).for_each(|_| assert!(all.rest() && !marked(&mut all).is_empty()));
        assert!(!all.is_marked() && !all.rest() && all.awake.is_empty());
    }

    #[test]
    fn a_mark_among_many_who_have_none_is_found() {
        bypath_sys::thread::init();
        let (mut all, watch) = (Neighbours::new(), Watch::new().expect("epoll"));
        let crowd = Crowd::new(&mut all, &watch, 7, 0, MANY);
        for last in [0, MANY - 1] {
            crowd.0[last as usize].1.mark(0);
            assert!((0..=3).any(|_| all.is_marked()), "{last}");
            assert!((0..3).any(|_| marked(&mut all) == [last]), "{last}");
        }
        crowd.0[INBOXES].1.mark(0);
        assert!(all.rest(), "it was marked before the service slept");
        assert_eq!(marked(&mut all), [INBOXES as u32]);
    }

    #[test]
    fn a_strangers_numbers_that_are_no_end_are_not_read_and_bar_him() {
        bypath_sys::thread::init();
        let (mut all, watch) = (Neighbours::new(), Watch::new().expect("epoll"));
        let liars = Crowd::new(&mut all, &watch, 7, 0, 2);
        let other = Crowd::new(&mut all, &watch, 8, ONE, 1);
        // Of root's, or the own user's, they are passed over.
        let own = Crowd::new(&mut all, &watch, 0, ONE + 1, 1);
        (0..=65_535).for_each(|number| own.mark(number));
        assert_eq!(marked(&mut all), [ONE + 1]);
        assert!(!all.is_barred(0));
        (0..=65_535).for_each(|number| liars.0[0].1.mark(number));
        liars.0[1].1.mark(0);
        other.mark(0);
        assert_eq!(marked(&mut all), [0, ONE]);
        assert!(all.is_barred(7) && !all.is_barred(8) && all.has_barred());
        let low = &liars.0[0].1.marks.low;
        assert!(low[1..].iter().all(|word| word.load(Relaxed) == u64::MAX));
        // What he has is not looked at any more.
        assert!(!all.is_marked() && !all.rest() && all.awake.is_empty());
        own.mark(0);
        assert!(marked(&mut all).is_empty());
    }
}
