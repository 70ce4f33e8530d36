//! One connection that is followed: what was read of each direction, and what was missed.
//!
//! A reader outside takes part in nothing. Bytes stay in a ring until they are overwritten by those a whole ring later, or
//! their memory is given back, so after bytes were copied it is asked how far both may have come meanwhile: what they may
//! have touched counts as missed.

use super::authors::Author;
use super::memory::{Place, Words};
use super::taps::{Named, named};
use crate::connections::Writing;
use crate::connections::descriptors::Process;
use bypath::clock::monotonic_ns;
use bypath_shm::direction::{Head, Path, position};
use std::net::SocketAddr;

/// How often it is asked at once whether a writer has finished.
const LOOKS: usize = 20;
/// For so long (ns) who is in the middle of writing is waited for; then he counts as stopped, or dead.
pub const PATIENCE: u64 = 100_000_000;

/// Octets in a nanosecond, several times what a processor core copies: a tail that is said to have gone further is a liar's.
const FASTEST: u64 = 64;
/// For so long (ns) a connection may have gone on before it was found.
pub const UNSEEN: u64 = 60_000_000_000;

/// A connection.
#[derive(Debug)]
pub struct Tap {
    /// In whose memory it is read.
    pub pid: u32,
    /// The netstack service whose socket it is, if it is one's.
    pub service: Option<String>,
    /// Its user.
    pub user: u32,
    /// When its process started.
    pub started: u64,
    /// Where.
    pub place: Place,
    /// Its sockets: that of the dialler and that of the accepter; on a netstack service its socket, twice: the program dials.
    pub cookies: [u64; 2],
    /// Their addresses.
    pub addresses: [SocketAddr; 2],
    /// Which directions are asked for.
    pub wanted: [bool; 2],
    /// Which of them are still, once what came until now has been read.
    pub stays: [bool; 2],
    /// Which are shown at the rings of the other end, a program of the same service.
    pub elsewhere: [bool; 2],
    /// Who writes, if that can be asked.
    pub writers: [Option<Author>; 2],
    /// How far each direction is known.
    pub known: Known,
    /// Whose writer was in the middle of writing when it was looked at last: the tail, and since when (ns).
    pub busy: [Option<(u64, u64)>; 2],
    /// Only one side has the slot.
    pub left: bool,
    /// Which direction there was something in last.
    pub last: usize,
    /// Until when (ns) what came in each direction is known: no writer is faster than [`FASTEST`].
    pub until: [u64; 2],
}

/// What is known of a connection, also while it is not followed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// Bytes of each direction that went through earlier rings.
    pub before: [u64; 2],
    /// Up to where each direction of these rings is known.
    pub seen: [Option<u64>; 2],
}

impl Known {
    /// Where the stream of direction `d` stands.
    pub fn position(&self, d: usize) -> u64 {
        self.before[d].wrapping_add(self.seen[d].unwrap_or(0))
    }

    /// The stream of direction `d` stands there.
    pub fn go_on_at(&mut self, d: usize, position: u64) {
        self.before[d] = position.wrapping_sub(self.seen[d].unwrap_or(0));
    }

    /// The same sockets have other rings now, of which everything is news; `turned`: the other one of them dialled.
    pub fn anew(&self, turned: bool) -> Known {
        let first = usize::from(turned);
        Known { before: [self.position(first), self.position(1 - first)], seen: [Some(0); 2] }
    }
}

/// New bytes of a direction.
#[derive(Debug, PartialEq, Eq)]
pub struct News<'a> {
    /// Position of the first one in the stream.
    pub position: u64,
    /// Bytes missed before it.
    pub missed: u64,
    /// The bytes.
    pub bytes: &'a [u8],
}

/// Why it is followed no longer.
#[derive(Debug, PartialEq, Eq)]
pub enum Over {
    /// The slot has been given back, and its memory with it.
    Closed,
    /// The slot is another connection's: what came last here is not known.
    Replaced,
    /// The process is gone, or maps it no more.
    Gone,
    /// It may not be read.
    Forbidden,
}

impl From<nix::Error> for Over {
    fn from(e: nix::Error) -> Over {
        if e == nix::Error::EPERM { Over::Forbidden } else { Over::Gone }
    }
}

impl Tap {
    /// Which connection it is.
    pub fn named(&self) -> Named {
        named(self.cookies)
    }

    fn process(&self) -> Process {
        Process { pid: self.pid, user: self.user }
    }

    /// Whether direction `d` is shown.
    pub fn shows(&self, d: usize) -> bool {
        self.wanted[d] && !self.elsewhere[d]
    }

    /// These directions are asked for now. What came before the others were not, and has not been read yet, is shown: a program that
    /// becomes another one holds its sockets in no view meanwhile, and had sent that before.
    pub fn asks(&mut self, wanted: [bool; 2]) {
        self.stays = wanted;
        for (is, new) in self.wanted.iter_mut().zip(wanted) {
            // At a service's rings it may be shown at the other end from now on.
            *is = new || *is && self.service.is_none();
        }
    }

    /// Everything was read that was there.
    pub fn is_read(&mut self) {
        for d in 0..2 {
            // But for what somebody is about to finish.
            self.wanted[d] &= self.stays[d] || self.busy[d].is_some();
        }
    }

    /// How far both directions have come.
    ///
    /// # Errors
    /// It is over, with the last words if there are any.
    pub fn words(&self) -> Result<Words, Over> {
        self.place.words(self.process(), self.cookies)?.ok_or(Over::Replaced)
    }

    /// The directions in the order in which there was probably something in them: who has spoken last has been answered since.
    pub fn order(&self) -> [usize; 2] {
        [1 - self.last, self.last]
    }

    /// Reads what is new in direction `d` (0 from the dialler, 1 from the accepter) up to where `words` says.
    ///
    /// # Errors
    /// It is over.
    pub fn read<'a>(
        &mut self,
        words: &Words,
        d: usize,
        room: &'a mut Vec<u8>,
    ) -> Result<Option<News<'a>>, Over> {
        let (tail, size) = (words.tails[d], u64::from(self.place.ring));
        let seen = *self.known.seen[d].get_or_insert_with(|| begin(words.heads[d], tail, size));
        let now = monotonic_ns();
        // A tail behind what was seen is a liar's.
        let new = self.since(d, seen, tail, now).unwrap_or(0);
        if new == 0 {
            self.busy[d] = None;
            return Ok(None);
        }
        // What is gone need not be copied.
        let wanted = new.min(size).min(since_release(words.released[d], tail));
        room.resize(wanted as usize, 0);
        self.place.bytes(self.process(), d, position::back(tail, wanted), room)?;
        let Some(kept) = self.kept(d, tail)? else { return Ok(None) };
        let kept = kept.min(wanted);
        let missed = new - kept;
        let at = self.known.position(d).wrapping_add(missed);
        self.known.seen[d] = Some(tail);
        self.until[d] = now;
        self.last = d;
        Ok(Some(News { position: at, missed, bytes: &room[(wanted - kept) as usize..] }))
    }

    /// Nobody asks for direction `d`.
    pub fn pass_over(&mut self, words: &Words, d: usize) {
        self.known.seen[d] = Some(words.tails[d]);
    }

    /// Octets of direction `d` from what was seen to this tail, if that can be so.
    fn since(&self, d: usize, seen: u64, tail: u64, now: u64) -> Option<u64> {
        let most =
            now.saturating_sub(self.until[d]).saturating_mul(FASTEST).saturating_add(self.place.ring.into());
        behind(seen, tail).filter(|new| *new <= most)
    }

    /// Bytes of direction `d` that had not been read when its rings were given back.
    pub fn unread(&mut self, words: &Words, d: usize) -> Option<News<'static>> {
        let seen = self.known.seen[d]?;
        let now = monotonic_ns();
        let missed = self.since(d, seen, words.tails[d], now).filter(|missed| *missed > 0)?;
        self.until[d] = now;
        self.known.seen[d] = Some(words.tails[d]);
        Some(News { position: self.known.position(d), missed, bytes: &[] })
    }

    /// Of the bytes before `tail`, how many of the last were certainly still there when they were copied just now; `None`: that will be
    /// known soon.
    fn kept(&mut self, d: usize, tail: u64) -> Result<Option<u64>, Over> {
        let size = u64::from(self.place.ring);
        let first = self.used()?;
        if matches!(self.writers[d], Some(Author::Stranger)) {
            // Whether he writes just now only he could say; so much was free to write that he can have done so in the older half at most, in one call
            // of an honest program. Another one may change what stands there at any time.
            let words = self.used()?;
            let moved = position::distance(tail, words.tails[d]);
            let waits = behind(Head::from_raw(words.heads[d]).position(), tail).unwrap_or(0);
            let half = (size / 2).saturating_sub(moved);
            return Ok(Some(half.max(waits.min(size)).min(since_release(words.released[d], tail))));
        }
        for _ in 0..LOOKS {
            let writing = self.writers[d].as_ref().map(Author::look);
            let words = self.used()?;
            // Who was writing while we copied has said how far, once the lock is free or the tail has moved on.
            let settled = matches!(writing, Some(Writing::Nobody | Writing::Paused));
            if settled || words.tails[d] != first.tails[d] {
                self.busy[d] = None;
                let not_reached = size.saturating_sub(position::distance(tail, words.tails[d]));
                return Ok(Some(not_reached.min(since_release(words.released[d], tail))));
            }
            if writing.is_none() {
                break;
            }
        }
        let now = monotonic_ns();
        let since = self.busy[d].filter(|(tail, _)| *tail == first.tails[d]).map_or(now, |(_, since)| since);
        self.busy[d] = Some((first.tails[d], since));
        if now - since < PATIENCE && self.writers[d].is_some() {
            return Ok(None);
        }
        // A writer that is stopped half-way, or dead: it may have written anywhere that was free.
        self.busy[d] = None;
        let words = self.used()?;
        let waits = behind(Head::from_raw(words.heads[d]).position(), tail).unwrap_or(0);
        Ok(Some(waits.min(since_release(words.released[d], tail))))
    }

    /// The words of a slot that has memory.
    fn used(&self) -> Result<Words, Over> {
        self.words().and_then(|words| if words.used { Ok(words) } else { Err(Over::Closed) })
    }
}

/// Bytes from one position to another one, which is not before it.
fn behind(from: u64, to: u64) -> Option<u64> {
    Some(position::distance(from, to)).filter(|n| *n < 1 << 61)
}

/// Bytes that came after the ring's memory was given back last.
fn since_release(released: u64, tail: u64) -> u64 {
    // 0: it never was.
    if released == 0 { u64::MAX } else { behind(released, tail).unwrap_or(0) }
}

/// Where following begins: with what waits in the ring.
fn begin(head: u64, tail: u64, size: u64) -> u64 {
    let head = Head::from_raw(head);
    let waits = position::distance(head.position(), tail);
    if head.path() == Path::Ring && waits <= size { head.position() } else { tail }
}

#[cfg(test)]
mod tests {
    use super::super::memory;
    use super::*;
    use crate::connections::Writer;
    use bypath_shm::arena::{Control, Geometry};
    use bypath_shm::direction::Readable;
    use bypath_shm::family::{End, WriterLine, end_state};
    use bypath_shm::region::OwnArena;
    use std::fs::File;
    use std::mem::offset_of;
    use std::os::fd::OwnedFd;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::{AtomicU32, Ordering::*};

    const RING: u32 = 16384;
    const COOKIES: [u64; 2] = [7, 8];

    /// A connection within this process, of which only the dialler writes.
    struct Lab {
        arena: OwnArena,
        _file: OwnedFd,
        /// The writer's record.
        record: File,
        tail: u64,
    }

    impl Lab {
        fn new() -> Lab {
            let (arena, file) = OwnArena::new(Geometry { slots: 2, ring: RING }).unwrap();
            let record: OwnedFd =
                rustix::fs::memfd_create("record", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            let lab = Lab { arena, _file: file, record: record.into(), tail: 0 };
            let put = |at: usize, half: u32| lab.record.write_all_at(&half.to_ne_bytes(), at as u64).unwrap();
            put(offset_of!(End, state), end_state::WARM);
            put(offset_of!(End, generation), 3);
            lab.lock(0);
            lab
        }

        fn lock(&self, owner: u64) {
            let at = (offset_of!(End, w) + offset_of!(WriterLine, lock)) as u64;
            self.record.write_all_at(&owner.to_ne_bytes(), at).unwrap();
        }

        fn control(&self) -> &Control {
            self.arena.control(0)
        }

        /// The slot is handed out, and the dialler's direction goes up.
        fn begin(&mut self) {
            self.control().begin();
            self.control().name(COOKIES);
            self.tail = 0;
            let d = &self.control().direction[0];
            d.consent();
            assert!(d.begin_ring(0, 0));
            let Ok(Readable::Drain(head)) = d.readable(RING.into()) else { panic!() };
            assert!(d.drained(head));
        }

        /// Writes bytes of this value, which are read at once.
        fn goes(&mut self, n: usize, value: u8) {
            self.arena.copy_in(0, 0, self.tail, &vec![value; n]);
            self.tail += n as u64;
            let d = &self.control().direction[0];
            d.publish(self.tail);
            let Ok(Readable::Ring { head, available }) = d.readable(RING.into()) else { panic!() };
            assert!(d.commit(head, available));
        }

        fn release(&self) {
            self.control().direction[0].releasing(self.tail);
            self.arena.release_rings(0);
        }

        /// One that knows the connection from its beginning.
        fn tap(&self) -> Tap {
            let pid = std::process::id();
            let me = Process::of(pid).unwrap();
            let slots = memory::arenas(me, None)
                .unwrap()
                .into_iter()
                .flat_map(|a| memory::slots(me, a, RING).unwrap_or_default());
            // Other tests have arenas, too, which may go meanwhile: ours is the one that shows what stands here.
            let ours = |place: &Place| {
                // What stands in none of theirs.
                static NEXT: AtomicU32 = AtomicU32::new(1 << 16);
                let own = NEXT.fetch_add(1, Relaxed);
                self.control().ends[0].store(own, Relaxed);
                let mut raw = [0; 4];
                place.ends(me, &mut raw).is_ok() && u32::from_ne_bytes(raw) == own
            };
            let place = slots.map(|(_, place)| place).find(ours).expect("the arena");
            let address = "127.0.0.1:1".parse().unwrap();
            Tap {
                pid,
                user: 0,
                started: 0,
                place,
                cookies: COOKIES,
                addresses: [address; 2],
                service: None,
                wanted: [true; 2],
                stays: [true; 2],
                elsewhere: [false; 2],
                writers: [
                    Some(Author::Programs(Writer::at_start_of(self.record.try_clone().unwrap(), 3))),
                    None,
                ],
                known: Known::default().anew(false),
                busy: [None; 2],
                left: false,
                last: 1,
                until: [monotonic_ns().saturating_sub(UNSEEN); 2],
            }
        }
    }

    /// What is read now: position, missed, and bytes.
    fn read(tap: &mut Tap) -> (u64, u64, Vec<u8>) {
        let words = tap.words().unwrap();
        read_to(tap, &words)
    }

    fn read_to(tap: &mut Tap, words: &Words) -> (u64, u64, Vec<u8>) {
        let mut room = Vec::new();
        let news = tap.read(words, 0, &mut room).unwrap().expect("news");
        (news.position, news.missed, news.bytes.to_vec())
    }

    #[test]
    fn what_was_read_by_others_already_is_seen_until_it_is_overwritten() {
        let mut lab = Lab::new();
        lab.begin();
        let mut tap = lab.tap();
        lab.goes(100, 1);
        lab.goes(50, 2);
        assert_eq!(read(&mut tap), (0, 0, [vec![1; 100], vec![2; 50]].concat()));
        lab.goes(10_000, 3);
        lab.goes(10_000, 4);
        let size = RING as usize;
        assert_eq!(
            read(&mut tap),
            (20_150 - RING as u64, 20_000 - RING as u64, [vec![3; size - 10_000], vec![4; 10_000]].concat())
        );
    }

    #[test]
    fn memory_that_was_given_back_is_missed_and_not_zeroes() {
        let mut lab = Lab::new();
        lab.begin();
        let mut tap = lab.tap();
        lab.goes(100, 1);
        lab.release();
        lab.goes(50, 2);
        assert_eq!(read(&mut tap), (100, 100, vec![2; 50]));
        // Given back a second time in the same page, and between two looks.
        lab.goes(20, 3);
        let words = tap.words().unwrap();
        lab.release();
        assert_eq!(read_to(&mut tap, &words), (170, 20, vec![]));
        lab.goes(5, 4);
        assert_eq!(read(&mut tap), (170, 0, vec![4; 5]));
    }

    #[test]
    fn what_came_before_nobody_asked_any_more_is_shown() {
        let mut lab = Lab::new();
        lab.begin();
        let mut tap = lab.tap();
        lab.goes(100, 1);
        tap.asks([false; 2]);
        assert!(tap.shows(0));
        assert_eq!(read(&mut tap), (0, 0, vec![1; 100]));
        tap.is_read();
        assert!(!tap.shows(0));
        tap.asks([true, false]);
        assert!(tap.shows(0) && !tap.shows(1));
        // At a service's rings it may be shown elsewhere at once.
        tap.service = Some("lab".into());
        tap.asks([false; 2]);
        assert!(!tap.shows(0));
    }

    #[test]
    fn a_slot_that_the_same_sockets_have_again_is_other_rings() {
        let mut lab = Lab::new();
        lab.begin();
        let mut tap = lab.tap();
        lab.goes(100, 1);
        read(&mut tap);
        // It comes further than the old rings before anybody looks.
        lab.begin();
        lab.goes(300, 2);
        assert_eq!(tap.words(), Err(Over::Replaced));
        let mut next = lab.tap();
        assert_ne!(next.place.life, tap.place.life);
        next.known = tap.known.anew(false);
        assert_eq!(read(&mut next), (100, 0, vec![2; 300]));
        assert_eq!(next.known.position(0), 400);
        // While it is handed out it is nobody's.
        lab.control().begin();
        assert_eq!(next.words(), Err(Over::Replaced));
    }

    #[test]
    fn what_was_not_read_when_the_slot_was_given_back_is_missed() {
        let mut lab = Lab::new();
        lab.begin();
        let mut tap = lab.tap();
        lab.goes(100, 1);
        read(&mut tap);
        lab.goes(30, 2);
        let words = tap.words().unwrap();
        lab.control().in_use.store(0, Release);
        lab.arena.release_rings(0);
        assert_eq!(tap.read(&words, 0, &mut Vec::new()), Err(Over::Closed));
        let words = tap.words().unwrap();
        assert!(!words.used);
        assert_eq!(tap.unread(&words, 0), Some(News { position: 130, missed: 30, bytes: &[] }));
        assert_eq!(tap.unread(&words, 0), None);
    }

    #[test]
    fn who_stands_still_while_it_writes_may_have_overwritten_what_was_read() {
        let mut lab = Lab::new();
        lab.begin();
        let mut tap = lab.tap();
        lab.goes(100, 1);
        lab.lock(1 << 32 | 42);
        // It may be about to finish; then nothing is lost.
        let (words, mut room) = (tap.words().unwrap(), Vec::new());
        assert_eq!(tap.read(&words, 0, &mut room), Ok(None));
        assert_eq!(tap.known.seen[0], Some(0));
        lab.lock(0);
        assert_eq!(read(&mut tap), (0, 0, vec![1; 100]));
        lab.goes(100, 5);
        lab.lock(1 << 32 | 42);
        let words = tap.words().unwrap();
        assert_eq!(tap.read(&words, 0, &mut room), Ok(None));
        tap.busy[0].as_mut().expect("since when").1 -= PATIENCE;
        assert_eq!(read(&mut tap), (200, 100, vec![]));
        // What waits still cannot be overwritten by anybody.
        lab.arena.copy_in(0, 0, 200, &[2; 60]);
        lab.control().direction[0].publish(260);
        assert_eq!(tap.read(&tap.words().unwrap(), 0, &mut room), Ok(None));
        tap.busy[0].as_mut().expect("since when").1 -= PATIENCE;
        assert_eq!(read(&mut tap), (200, 0, vec![2; 60]));
        // The record is another socket's: its writer has closed it.
        lab.tail = 260;
        lab.goes(40, 3);
        lab.record.write_all_at(&4u32.to_ne_bytes(), offset_of!(End, generation) as u64).unwrap();
        assert_eq!(read(&mut tap), (260, 0, vec![3; 40]));
    }

    #[test]
    fn positions_go_on_behind_their_wrap() {
        let mut lab = Lab::new();
        lab.begin();
        let mut tap = lab.tap();
        lab.tail = (1 << 62) - 100;
        let d = &lab.control().direction[0];
        d.t.tail.store(lab.tail, Relaxed);
        d.h.head.store(lab.tail, Relaxed);
        tap.known.seen[0] = Some(lab.tail);
        lab.arena.copy_in(0, 0, lab.tail, &[5; 300]);
        lab.control().direction[0].publish(200);
        let (at, missed, bytes) = read(&mut tap);
        // Sequence numbers do not notice.
        assert_eq!((at as u32, missed, bytes), (0u32.wrapping_sub(100), 0, vec![5; 300]));
        assert_eq!((tap.known.seen[0], tap.known.position(0) as u32), (Some(200), 200));
    }

    #[test]
    fn tails_that_make_no_sense_are_nothing() {
        let mut lab = Lab::new();
        lab.begin();
        let mut tap = lab.tap();
        lab.goes(100, 1);
        read(&mut tap);
        for tail in [99, 0, u64::MAX, 1 << 63, 1 << 61, 1 << 60] {
            tap.known.seen[0] = Some(100);
            lab.control().direction[0].t.tail.store(tail, Relaxed);
            let words = tap.words().unwrap();
            match tap.read(&words, 0, &mut Vec::new()) {
                Ok(news) => assert!(news.is_none_or(|news| news.bytes.len() <= RING as usize), "{tail}"),
                Err(over) => panic!("{tail}: {over:?}"),
            }
        }
    }

    #[test]
    fn a_tail_that_no_writer_can_have_come_to_is_not_counted() {
        let mut lab = Lab::new();
        lab.begin();
        let mut tap = lab.tap();
        lab.goes(100, 1);
        assert_eq!(read(&mut tap), (0, 0, vec![1; 100]));
        // As another program with the memory would; an hour at the highest rate is less.
        for tail in [1 << 50, (1 << 60) + 7, 1 << 61] {
            lab.control().direction[0].publish(tail);
            let words = tap.words().unwrap();
            assert_eq!(tap.read(&words, 0, &mut Vec::new()), Ok(None), "{tail}");
            assert_eq!(tap.unread(&words, 0), None, "{tail}");
        }
        lab.goes(100, 2);
        assert_eq!(read(&mut tap), (100, 0, vec![2; 100]));
    }
}
