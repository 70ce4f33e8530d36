//! Counters that a thread raises while it is in a call of the C library's own, which may block.
//!
//! A call that returns is reported, and the counter lowered. One that pthread_cancel or pthread_exit ends, or a longjmp
//! out of a signal handler, is not: its frames are gone, and nothing of ours ran. So the thread notes what it raised and
//! in which frame. What a dead frame left up is lowered by the thread's next raise, or at its end.

use crate::epoll;
use crate::table::{self, Sock};
use crate::thread::{self, Record};
use crate::udp;
use bypath_sys::signal;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*, compiler_fence};

/// What is raised.
#[derive(Clone, Copy, Debug)]
pub enum Counter {
    /// `in_kernel` of the incoming direction.
    Receiving(&'static Sock),
    /// `in_kernel` of the outgoing direction.
    Sending(&'static Sock),
    /// Both.
    Polling(&'static Sock),
    /// The blind waits of an epoll set.
    Blind(u32),
    /// Those that sleep on a UDP socket.
    Datagrams(&'static udp::Record),
}

/// A raised counter.
#[derive(Debug)]
#[must_use = "lower it"]
pub struct Raised {
    word: u64,
    frame: usize,
    /// Whether the thread has noted it.
    noted: bool,
}

/// Places of a thread: a poll of so many sockets, and what its signal handlers do meanwhile. What finds none is not noted.
const PLACES: usize = 72;

/// A place that is about to be used; as a word it names nothing.
const TAKEN: u64 = 1;

/// What a thread has raised, and in which frame.
#[derive(Debug)]
pub struct Notes {
    places: [(AtomicU64, AtomicUsize); PLACES],
    /// Places from here on are empty.
    used: AtomicUsize,
}

impl Default for Notes {
    fn default() -> Notes {
        Notes {
            places: [const { (AtomicU64::new(0), AtomicUsize::new(0)) }; PLACES],
            used: AtomicUsize::new(0),
        }
    }
}

const KIND_SHIFT: u32 = 61;
const AGE_SHIFT: u32 = 32;
const AGE: u64 = (1 << (KIND_SHIFT - AGE_SHIFT)) - 1;
/// No frames of one stack are farther from each other: an address beyond that is on another one.
const REACH: usize = 1 << 20;

impl Counter {
    /// In one word, never 0. The age tells a socket from a later one with its number.
    fn word(self) -> u64 {
        let of = |kind: u64, s: &Sock| {
            let age = u64::from(s.end().generation.load(Relaxed)) & AGE;
            kind << KIND_SHIFT | age << AGE_SHIFT | u64::from(s.number.load(Relaxed))
        };
        match self {
            Counter::Receiving(s) => of(1, s),
            Counter::Sending(s) => of(2, s),
            Counter::Polling(s) => of(3, s),
            Counter::Blind(set) => 4 << KIND_SHIFT | u64::from(set),
            Counter::Datagrams(r) => {
                5 << KIND_SHIFT | (u64::from(r.generation()) & AGE) << AGE_SHIFT | u64::from(r.number())
            }
        }
    }
}

/// Lowers what `word` names, unless it was given up and its record used anew since.
fn lower(word: u64) {
    let number = word as u32;
    let kind = word >> KIND_SHIFT;
    if kind == 4 {
        return epoll::blind_wait_ended(number);
    }
    if kind == 5 {
        if let Some(r) = udp::record(number) {
            r.sleeper_goes((word >> AGE_SHIFT & AGE) as u32);
        }
        return;
    }
    let Some(s) = table::by_number(number) else { return };
    let end = s.end();
    if u64::from(end.generation.load(Relaxed)) & AGE != word >> AGE_SHIFT & AGE {
        return;
    }
    if kind & 1 != 0 {
        end.r.in_kernel.fetch_sub(1, SeqCst);
    }
    if kind & 2 != 0 {
        end.w.in_kernel.fetch_sub(1, SeqCst);
    }
}

/// Before counters are raised by the frame at `frame`: lowers what dead frames of the thread left up.
#[inline]
pub fn lower_dead(frame: usize) {
    if let Some(notes) = thread::existing().map(Record::notes)
        && notes.used.load(Relaxed) != 0
    {
        notes.lower_dead(frame);
    }
}

/// Raises a counter for the call that the frame at `frame` makes.
pub fn raise(counter: Counter, frame: usize) -> Raised {
    match counter {
        Counter::Receiving(s) => {
            s.end().r.in_kernel.fetch_add(1, SeqCst);
        }
        Counter::Sending(s) => {
            s.end().w.in_kernel.fetch_add(1, SeqCst);
        }
        Counter::Polling(s) => {
            s.end().r.in_kernel.fetch_add(1, SeqCst);
            s.end().w.in_kernel.fetch_add(1, SeqCst);
        }
        Counter::Blind(set) => epoll::blind_wait_begins(set),
        Counter::Datagrams(r) => r.sleeper_comes(),
    }
    let word = counter.word();
    let noted = thread::mine().is_some_and(|t| t.notes().note(word, frame));
    Raised { word, frame, noted }
}

impl Raised {
    /// The call returned.
    pub fn lower(self) {
        if !self.noted {
            return lower(self.word);
        }
        if thread::existing().is_some_and(|t| t.notes().strike(self.word, self.frame)) {
            lower(self.word);
        }
    }
}

/// Counters that one frame raises for many sockets.
#[derive(Debug)]
pub struct Several<'a> {
    /// What is raised for each, 0 = nothing.
    words: &'a mut [u64],
    /// A bit for each that the thread has noted.
    noted: u64,
    frame: usize,
}

impl<'a> Several<'a> {
    /// For as many sockets as there are places in `words`, 64 at most.
    pub fn new(words: &'a mut [u64], frame: usize) -> Self {
        words.fill(0);
        Several { words, noted: 0, frame }
    }

    /// Raises a counter for the socket at place `i`; false if there is none.
    pub fn raise(&mut self, i: usize, counter: impl FnOnce() -> Counter) -> bool {
        let Some(place) = self.words.get_mut(i) else { return false };
        let raised = raise(counter(), self.frame);
        *place = raised.word;
        self.noted |= u64::from(raised.noted) << i;
        true
    }

    /// The call returned.
    pub fn lower(self) {
        for (i, word) in self.words.iter().enumerate().filter(|(_, word)| **word != 0) {
            Raised { word: *word, frame: self.frame, noted: self.noted >> i & 1 != 0 }.lower();
        }
    }
}

impl Notes {
    /// Enters a counter; false if all places are taken.
    fn note(&self, word: u64, frame: usize) -> bool {
        let from = self.used.load(Relaxed);
        let free = |at: &usize| self.places[*at].0.load(Relaxed) == 0;
        let Some(at) = (from..PLACES).find(free) else { return false };
        let (w, f) = &self.places[at];
        // A handler of this thread may take and leave places at any time; each step keeps it off this one.
        w.store(TAKEN, Relaxed);
        compiler_fence(SeqCst);
        f.store(frame, Relaxed);
        compiler_fence(SeqCst);
        w.store(word, Relaxed);
        compiler_fence(SeqCst);
        self.used.store(self.used.load(Relaxed).max(at + 1), Relaxed);
        true
    }

    /// Takes a counter out; false if it is not there.
    fn strike(&self, word: u64, frame: usize) -> bool {
        let own = |(w, f): &(AtomicU64, AtomicUsize)| {
            w.load(Relaxed) == word && f.load(Relaxed) == frame && {
                w.store(0, Relaxed);
                true
            }
        };
        let used = self.used.load(Relaxed).min(PLACES);
        let found = self.places[..used].iter().rev().any(own);
        self.trim();
        found
    }

    fn trim(&self) {
        let used = self.used.load(Relaxed).min(PLACES);
        let left = self.places[..used].iter().rposition(|(w, _)| w.load(Relaxed) != 0).map_or(0, |i| i + 1);
        self.used.store(left, Relaxed);
    }

    /// Frames at lower addresses than a running one are gone, if they were on its stack.
    #[cold]
    fn lower_dead(&self, here: usize) {
        for (w, f) in &self.places[..self.used.load(Relaxed).min(PLACES)] {
            let (word, frame) = (w.load(Relaxed), f.load(Relaxed));
            let dead = word != 0 && frame <= here && here - frame < REACH;
            if dead && !signal::is_on_alternate_stack() {
                w.store(0, Relaxed);
                lower(word);
            }
        }
        self.trim();
    }

    /// The thread has ended.
    pub fn lower_all(&self) {
        for (w, _) in &self.places[..self.used.swap(0, Relaxed).min(PLACES)] {
            match w.swap(0, Relaxed) {
                0 => {}
                word => lower(word),
            }
        }
    }

    /// In a forked child: its epoll sets and its threads begin anew.
    pub fn forget(&self) {
        let used = self.used.load(Relaxed).min(PLACES);
        if used != 0 {
            self.places[..used].iter().for_each(|(w, _)| w.store(0, Relaxed));
            self.used.store(0, Relaxed);
        }
    }
}
