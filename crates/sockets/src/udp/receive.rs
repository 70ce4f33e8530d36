//! Receive: the mailbox first, then the kernel. The gate is open only while a thread looks.

use super::address::Name;
use super::inbound::End;
use super::news::Known;
use super::told::{self, Told};
use super::{Record, meet, queue, shown, wait};
use crate::raised::{self, Counter, Raised};
use crate::thread::Call;
use crate::wait::{may_spin, spin};
use crate::{epoll, fault, rendezvous, signals, state};
use bypath_shm::dgram::Octets;
use bypath_shm::reason::Reason;
use bypath_sys::page::Access;
use bypath_sys::user::UserVec;
use bypath_sys::{Errno, clock, sock, strangers, thread};
use std::sync::atomic::Ordering::*;

/// Octets of a record's head: the source's address, its port, the processor it was sent on.
pub const HEAD: usize = 24;
/// Of which these say who it is.
pub const SOURCE: usize = 18;
/// With what is told beside it (`told`).
pub const HEAD_LONG: usize = 48;
/// The kernel is asked at every such record that is read with the gate open, if it was not a moment ago.
const KERNEL_EVERY: u32 = 32;
/// Looks of a spin between two readings of the clock, which says whether the kernel is to be asked: without pauses, and with.
const CLOCK_LOOKS: [u32; 2] = [256, 16];
/// Looks at the ring before a loop of receives that do not block is told again that there is nothing: shorter than the loop takes.
const LINGERS: u32 = 64;
/// Datagrams by the kernel between two looks for senders who ask for the mailbox.
const LOOK_EVERY: u32 = 8;
/// Generations that are told apart.
const GENERATIONS: u32 = (1 << 29) - 1;
/// Takings of a record that others were faster with, until the kernel is asked.
const TRIES: u32 = 64;
/// Looks of one call at a ring that has something and then has nothing, until it is not waited for any more...
const WAITED: u32 = 64;
/// ... and until somebody lies.
const ROUNDS: u32 = 1000;

/// A datagram that came through the mailbox.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// Octets that it has.
    pub len: usize,
    /// Octets that found room.
    pub copied: usize,
    /// Who sent it.
    pub from: Name,
    /// What is told beside it.
    pub told: Told,
}

/// What is to be done with a receive.
#[derive(Debug)]
pub enum Receiving {
    /// The program's own call, whose result is reported.
    Real(RealReceive),
    /// It is done.
    Done(Result<Taken, Errno>),
}

/// A receive of the kernel's.
#[derive(Debug)]
#[must_use = "report the result with finish()"]
pub struct RealReceive {
    record: &'static Record,
    raised: Option<Raised>,
    peeks: bool,
}

/// Why nothing was taken.
enum Not {
    /// There is nothing.
    Empty,
    /// The program's memory cannot be written to; the datagram is gone, as with the kernel.
    Fault,
    /// What the kernel has comes first.
    Behind,
    /// The memory is not what a correct sender writes.
    Poisoned,
}

/// What a receive does that has found nothing in the ring.
enum Next {
    /// Something is there now, and nothing else has changed.
    Look,
    /// It begins again.
    Again,
    /// That is its answer.
    Answer(Receiving),
}

impl From<Option<Receiving>> for Next {
    fn from(answer: Option<Receiving>) -> Next {
        answer.map_or(Next::Again, Next::Answer)
    }
}

/// What came of an attempt to open the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// It is open.
    Open,
    /// The kernel has something, or the ring: it is closed.
    News,
    /// It may not be opened now.
    Refused,
}

impl Record {
    /// Whether there is a mailbox, open or not.
    #[inline]
    pub fn has_mailbox(&self) -> bool {
        self.inbound.mailbox.get().is_some()
    }

    /// Octets of the next datagram, if the mailbox has one.
    pub fn next_len(&self) -> Option<usize> {
        let _call = Call::enter()?;
        self.inbound.reader()?.peek().ok()?.map(|peeked| peeked.place.len())
    }

    /// What `f` sees in the mailbox, if there is one: who has looked at it is inside a call, so that it is not let go meanwhile.
    #[inline]
    fn look_into<T>(&self, f: impl FnOnce(&End) -> T) -> Option<T> {
        if !self.has_mailbox() {
            return None;
        }
        let _call = Call::enter()?;
        self.inbound.reader().map(|reader| f(&reader))
    }

    /// Whether the mailbox has something to read.
    #[inline]
    pub fn has_unread(&self) -> bool {
        self.look_into(|reader| !reader.is_empty()).unwrap_or(false)
    }

    /// How much has come so far, by the ring and from this host by the kernel: a number that changes with it.
    pub(super) fn traffic(&self) -> u32 {
        self.inbound.reads.load(Relaxed).wrapping_add(self.inbound.near.load(Relaxed))
    }

    /// Whether the mailbox's gate is not closed, or there is something in it.
    pub(super) fn may_tell(&self) -> bool {
        self.look_into(|reader| !reader.is_closed() || !reader.is_empty()).unwrap_or(false)
    }

    /// Where the mailbox's records end, for who looks for edges.
    pub(super) fn tail(&self) -> u64 {
        let _call = Call::enter();
        self.inbound.mailbox.get().map_or(0, |map| map.mailbox().tail.0.load(Acquire))
    }

    /// Nothing more comes through the mailbox; senders are told. What is in it is read as ever.
    pub(super) fn end_mailbox(&self, reason: Reason) {
        let _call = Call::enter();
        let Some(map) = self.inbound.mailbox.get() else { return };
        map.mailbox().kill();
        let inbound = &self.inbound;
        let listener = inbound.listener.swap(0, AcqRel) - 1;
        if listener >= 0 {
            rendezvous::STRANGERS.after(|| strangers::close_listener(listener));
        }
        inbound.close_all();
        inbound.near.store(0, Relaxed);
        inbound.due.store(0, Relaxed);
        self.show_rx_reason(self.stays().unwrap_or(reason));
    }

    /// A mailbox that ended, and is empty, is no more.
    pub(super) fn forget_mailbox(&self) {
        self.show_lost();
        self.inbound.lost.store(0, Relaxed);
        let Some(map) = self.inbound.mailbox.take() else { return };
        wait::goes(self);
        meet::give_back(map);
    }

    /// What its mailbox had no room for since the last time is counted.
    fn show_lost(&self) {
        if !self.has_mailbox() {
            return;
        }
        let _call = Call::enter();
        let (Some(map), Some(end)) = (self.inbound.mailbox.get(), self.shown()) else { return };
        let now = map.mailbox().lost();
        let was = self.inbound.lost.fetch_max(now, Relaxed);
        // Who writes there may have counted back.
        end.rx.lost.fetch_add(now.saturating_sub(was), Relaxed);
    }

    /// Whether a thread sleeps on it, or may be about to.
    pub(super) fn has_sleepers(&self) -> bool {
        self.sleepers.load(SeqCst) > 0
            || self.registrations.iter().any(|one| one.set().is_some_and(epoll::datagrams::has_sleepers))
    }

    /// A sleep on it begins.
    pub fn sleeper_comes(&self) {
        self.show_lost();
        self.sleepers.fetch_add(1, SeqCst);
    }

    /// A sleep of the socket that had this generation has ended.
    pub fn sleeper_goes(&self, generation: u32) {
        // As many bits of it as there is room for in who remembers it.
        if self.generation() & GENERATIONS == generation & GENERATIONS {
            self.sleepers.fetch_sub(1, SeqCst);
        }
    }

    /// Tells a socket from a later one with its number.
    pub fn generation(&self) -> u32 {
        self.generation.load(Relaxed)
    }

    /// Its number.
    pub fn number(&self) -> u32 {
        self.number.load(Relaxed)
    }

    /// Closes the gate. Whether something is in the ring: then nobody may sleep.
    pub fn close_gate(&self) -> bool {
        self.show_lost();
        self.look_after_lenders();
        let has_more = self.look_into(|reader| {
            reader.close();
            !reader.is_empty()
        });
        has_more.unwrap_or(false)
    }

    /// Opens the gate, if nobody sleeps and the kernel has nothing.
    pub(super) fn open_gate(&self, fd: i32) -> Opening {
        let opening = self.look_into(|reader| match reader.is_open() {
            true => Opening::Open,
            false => self.open(fd, reader),
        });
        opening.unwrap_or(Opening::Refused)
    }

    fn open(&self, fd: i32, reader: &End) -> Opening {
        if self.has_sleepers() {
            return Opening::Refused;
        }
        let Some(epoch) = reader.open_begin() else {
            return if reader.is_open() { Opening::Open } else { Opening::Refused };
        };
        // Before it is looked whether somebody sleeps: who does later closes it.
        wait::stir(self);
        fault::between("gate-opening");
        self.show_lost();
        if self.inbound.news.ask(fd) {
            reader.close();
            return Opening::News;
        }
        self.inbound.forgive();
        if self.has_sleepers() {
            reader.close();
            return Opening::Refused;
        }
        if reader.open_finish(epoch) {
            return Opening::Open;
        }
        reader.close();
        if reader.is_empty() { Opening::Refused } else { Opening::News }
    }

    /// The next datagram of the ring.
    #[inline]
    fn take(
        &self,
        call: &Call,
        fd: i32,
        reader: &End,
        buf: UserVec<'_>,
        want: usize,
        peeks: bool,
    ) -> Result<Taken, Not> {
        for _ in 0..TRIES {
            let peeked = reader.peek().map_err(|_| Not::Poisoned)?;
            // Asked behind that: who finds what follows a record that was sent again finds this, too.
            if self.inbound.recaller.load(Acquire) != 0 {
                self.wait_for_recaller();
                continue;
            }
            let Some(peeked) = peeked else { return Err(Not::Empty) };
            let place = peeked.place;
            let is_long = place.head_len() == HEAD_LONG;
            if !is_long && place.head_len() != HEAD {
                if !reader.stands(&peeked) {
                    continue;
                }
                return Err(Not::Poisoned);
            }
            let mut head = [0; HEAD_LONG];
            if is_long {
                reader.ring().get(place.head_at(), &mut head);
            } else {
                let mut short = [0; HEAD];
                reader.ring().get(place.head_at(), &mut short);
                head[..HEAD].copy_from_slice(&short);
            }
            if self.inbound.offers.load(Relaxed) && self.is_changed_elsewhere() {
                self.learns_changes(fd);
                return Err(Not::Empty);
            }
            if told::is_behind(&head) && self.inbound.news.ask(fd) {
                return Err(Not::Behind);
            }
            let n = place.len().min(want);
            let is_writable = n == 0 || buf.reach(0, n, Access::Write, &call.thread.pages) == n;
            if n > 0 && is_writable {
                reader.ring().copy_out(place.at(), buf, 0, n);
            }
            fault::point("datagram-copied");
            if !(if peeks { reader.stands(&peeked) } else { reader.release(&peeked) }) {
                continue;
            }
            fault::point("datagram-released");
            if !is_writable {
                return Err(Not::Fault);
            }
            let (from, cpu) = from_head(&head);
            if !peeks {
                self.inbound.sender_cpu.store(cpu, Relaxed);
                self.inbound.has_taken.store(true, Relaxed);
                if let Some(end) = self.shown() {
                    shown::count(&end.rx, true, place.len());
                }
                call.thread.count(|b| &b.ring_rx, place.len() as u64);
                self.inbound.news.goes_on(call);
                if !self.look_at_kernel(fd, reader, place.len()) {
                    // What was taken was taken.
                    self.keep(Reason::PeerMemoryInvalid);
                    self.forget_mailbox();
                }
            }
            let told = if is_long {
                Told::decode(&head)
            } else {
                let own = &self.inbound.own;
                Told { wants: 0, to: [own[0].load(Relaxed), own[1].load(Relaxed)], stamp: 0 }
            };
            return Ok(Taken { len: place.len(), copied: n, from, told });
        }
        Err(Not::Empty)
    }

    /// A datagram of `len` octets was taken. Now and then the kernel is asked, whoever opens and closes the gate: if it has something, what is
    /// in the ring comes first, and nothing more gets there until the kernel's was read.
    /// False: writers do not stop.
    #[inline]
    fn look_at_kernel(&self, fd: i32, reader: &End, len: usize) -> bool {
        let (reads, overdue) = (&self.inbound.reads, &self.inbound.overdue);
        let now = reads.load(Relaxed).wrapping_add(1);
        reads.store(now, Relaxed);
        let seen = overdue.load(Relaxed);
        if seen == 0 {
            if now.is_multiple_of(KERNEL_EVERY) && self.inbound.news.ask_now_and_then(clock::ticks(), fd) {
                // First: who opens it again after the close has read what the kernel has.
                overdue.store(queue::true_size(len, true), Relaxed);
                reader.close();
            }
            return true;
        }
        // Not where another thread has just asked the kernel.
        let _ = overdue.compare_exchange(seen, seen + queue::true_size(len, true), Relaxed, Relaxed);
        if seen > queue::most_left(self.inbound.room.load(Relaxed)) {
            overdue.store(0, Relaxed);
            return !self.inbound.news.ask(fd);
        }
        true
    }

    fn real(&'static self, raised: Option<Raised>, peeks: bool) -> Receiving {
        if !peeks {
            self.inbound.forgive();
        }
        Receiving::Real(RealReceive { record: self, raised, peeks })
    }

    /// Before a call of the kernel's that may sleep. `None`: something is in the ring that is not `behind` what the kernel has.
    fn sleep(&'static self, frame: usize, peeks: bool, behind: bool) -> Option<Receiving> {
        let raised = (!thread::is_the_only_one()).then(|| {
            raised::lower_dead(frame);
            raised::raise(Counter::Datagrams(self), frame)
        });
        // Closed after the sleep was announced: who opens it later has seen that. Who offers something takes it back then.
        if self.close_gate() && !behind {
            raised.into_iter().for_each(Raised::lower);
            return None;
        }
        fault::between("gate-closed");
        self.look_after_routes();
        Some(self.real(raised, peeks))
    }

    /// A receive. `buf` is the program's; its memory is written to only where it can be.
    #[inline]
    pub fn receive(&'static self, fd: i32, buf: UserVec<'_>, flags: i32) -> Receiving {
        if signals::is_cancelled() {
            return Receiving::Done(Err(Errno::INTR));
        }
        let peeks = flags & libc::MSG_PEEK != 0;
        let frame = thread::stack_address();
        if flags & libc::MSG_ERRQUEUE != 0 {
            return self.real(None, true);
        }
        let mut rounds = 0;
        'again: loop {
            if !self.has_mailbox() {
                // Else the kernel says whether it waits.
                if self.is_known_nonblocking(flags) {
                    return self.real(None, peeks);
                }
                match self.sleep(frame, peeks, false) {
                    Some(real) => return real,
                    None => continue,
                }
            }
            let Some(call) = Call::enter() else { return self.real(None, peeks) };
            // From here on: what is given back before is not looked at.
            let Some(reader) = self.inbound.reader() else { continue };
            let Ok(want) = buf.admit() else { return self.real(None, peeks) };
            loop {
                rounds += 1;
                let found = self.take(&call, fd, &reader, buf, want, peeks);
                match if rounds > ROUNDS { found.or(Err(Not::Poisoned)) } else { found } {
                    Ok(taken) => return Receiving::Done(Ok(taken)),
                    Err(Not::Fault) => return Receiving::Done(Err(Errno::FAULT)),
                    Err(Not::Behind) => match self.sleep(frame, peeks, true) {
                        Some(real) => return real,
                        None => continue 'again,
                    },
                    Err(Not::Empty) if !reader.is_dead() => {}
                    Err(Not::Empty) => {
                        self.end_mailbox(Reason::RecalledPeerClosed);
                        self.forget_mailbox();
                        continue 'again;
                    }
                    Err(Not::Poisoned) => {
                        self.keep(Reason::PeerMemoryInvalid);
                        self.forget_mailbox();
                        continue 'again;
                    }
                }
                let (nonblocking, waits) = (self.is_nonblocking(fd, flags), rounds <= WAITED);
                match self.empty(&call, fd, &reader, (nonblocking, peeks, waits), frame) {
                    Next::Answer(answer) => return answer,
                    Next::Again => continue 'again,
                    Next::Look => {}
                }
            }
        }
    }

    /// Nothing is in the ring.
    fn empty(
        &'static self,
        call: &Call,
        fd: i32,
        reader: &End,
        (nonblocking, peeks, waits): (bool, bool, bool),
        frame: usize,
    ) -> Next {
        let mut asked = false;
        if self.inbound.overdue.load(Relaxed) != 0 || !waits {
            // The kernel's turn, whatever the gate says.
            reader.close();
        }
        let real = || if reader.is_empty() { Next::Answer(self.real(None, peeks)) } else { Next::Again };
        if !reader.is_open() {
            let opening =
                if waits && (nonblocking || may_spin()) { self.open(fd, reader) } else { Opening::Refused };
            match opening {
                Opening::Open => asked = true,
                _ if nonblocking => return real(),
                _ => return self.sleep(frame, peeks, false).into(),
            }
        }
        if nonblocking {
            let known =
                if asked { Known::Nothing } else { self.inbound.news.ask_again(call, clock::ticks(), fd) };
            if known == Known::News {
                reader.close();
                return real();
            }
            // Who asks in a loop is not told at once: in most of its time it would not look.
            if known == Known::StillNothing && (0..LINGERS).any(|_| !reader.is_empty_so_far()) {
                return Next::Look;
            }
            return Next::Answer(Receiving::Done(Err(Errno::AGAIN)));
        }
        let (mut looks, mut news) = (0u32, false);
        let pause = if self.inbound.sent_last.load(Relaxed) { 0 } else { 2 };
        let clock_looks = CLOCK_LOOKS[usize::from(pause > 0)];
        let found = spin(call, &self.inbound.spins, self.inbound.sender_cpu.load(Relaxed), pause, || {
            looks = looks.wrapping_add(1);
            if !reader.is_empty_so_far() || !reader.is_open() {
                return true;
            }
            // At the first one, too: what is waited for has most likely not been sent yet.
            news = looks % clock_looks == 1 && self.inbound.news.ask_now_and_then(clock::ticks(), fd);
            news
        });
        if found && !news {
            return if reader.is_empty() { Next::Again } else { Next::Look };
        }
        if !found && call.is_wanted() {
            // Handlers run now, as they do in the kernel's call.
            let has_limit = || sock::option_time(fd, libc::SO_RCVTIMEO).unwrap_or(0) != 0;
            return match call.parked(|| Ok(())) {
                // Others may have set it.
                Err(e) if !signals::restarts(call.thread, has_limit()) => {
                    Next::Answer(Receiving::Done(Err(e)))
                }
                _ => Next::Again,
            };
        }
        self.sleep(frame, peeks, false).into()
    }
}

/// The source that a record's head tells, and the processor.
pub(super) fn from_head(head: &[u8; HEAD_LONG]) -> (Name, u32) {
    let half = |at: usize| u16::from_ne_bytes([head[at], head[at + 1]]);
    let word = |at: usize| u64::from_ne_bytes(head[at..at + 8].try_into().unwrap_or_default());
    let cpu = half(18);
    (Name { ip: [word(0), word(8)], port: half(16) }, if cpu == u16::MAX { u32::MAX } else { cpu.into() })
}

/// The head of what `source` sends.
pub(super) fn head_of(source: &Name) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..8].copy_from_slice(&source.ip[0].to_ne_bytes());
    head[8..16].copy_from_slice(&source.ip[1].to_ne_bytes());
    head[16..18].copy_from_slice(&source.port.to_ne_bytes());
    head
}

impl Record {
    /// Before a call of the kernel's that receives many. `None`: a mailbox was made just now, and it is not reported.
    pub fn whole_receive(&'static self) -> Option<WholeReceive> {
        let frame = thread::stack_address();
        raised::lower_dead(frame);
        let raised = raised::raise(Counter::Datagrams(self), frame);
        Some(WholeReceive(raised))
    }

    /// One of many that the kernel has brought.
    pub fn one_received(&self, fd: i32, len: usize, source: Option<&[u8]>) {
        if !state::is_sealed() {
            self.received(fd, len, source);
        }
    }
}

/// A call of the kernel's for many datagrams.
#[derive(Debug)]
#[must_use = "lower it"]
pub struct WholeReceive(Raised);

impl WholeReceive {
    /// The call returned.
    pub fn lower(self) {
        self.0.lower();
    }
}

impl RealReceive {
    /// Whether the source is wanted where the program does not ask for it.
    pub fn wants_source(&self) -> bool {
        self.record.stays().is_none() && !self.peeks
    }

    /// Reports the kernel's result, and who has sent that, as far as that is known.
    pub fn finish(self, fd: i32, ret: isize, source: Option<&[u8]>) {
        if let Some(raised) = self.raised {
            raised.lower();
        }
        if self.peeks || state::is_sealed() {
            return;
        }
        if let Ok(len) = usize::try_from(ret) {
            self.record.received(fd, len, source);
        }
    }
}

impl Record {
    /// The kernel has brought a datagram.
    fn received(&self, fd: i32, len: usize, source: Option<&[u8]>) {
        self.inbound.sent_last.store(false, Relaxed);
        self.count_by_kernel(fd, false, len);
        if let Some(call) = Call::enter() {
            call.thread.count(|b| &b.kernel_rx, len as u64);
        }
        if self.stays().is_some() {
            return;
        }
        let source = source.and_then(|raw| Name::parse(raw, self.family()));
        let Some(source) = source.or_else(|| self.peer()).filter(|source| self.is_near(source)) else {
            return;
        };
        self.inbound.remember(source.hash());
        let near = self.inbound.near.load(Relaxed).saturating_add(1).min(u32::MAX - 1);
        self.inbound.near.store(near, Relaxed);
        if !self.has_mailbox() {
            if near >= self.inbound.due.load(Relaxed) {
                meet::announce(self, fd, near);
            }
            return;
        }
        wait::stir(self);
        let until = self.inbound.until_look.load(Relaxed);
        if until > 0 {
            self.inbound.until_look.store(until - 1, Relaxed);
        } else {
            self.inbound.until_look.store(LOOK_EVERY - 1, Relaxed);
            meet::look(self, fd);
        }
    }
}
