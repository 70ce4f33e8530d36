//! One mailbox that is followed: the datagrams that were put there, each with its head.
//!
//! As with streams (`tap`) a reader outside takes part in nothing, and what may have been overwritten while it was copied counts as missed. Records have
//! lengths of their own: behind a gap the first one is where a chain of records begins that ends at the tail.

use super::memory::{Letterbox, Letters};
use super::tap::{Over, PATIENCE};
use crate::connections::descriptors::Process;
use bypath::clock::monotonic_ns;
use bypath_shm::dgram::{ALIGN, HEADS, LONGEST, MARK, Record, WORD, span};
use std::ops::Range;

/// How often it is asked at once whether a writer has finished.
const LOOKS: usize = 20;

/// A mailbox.
#[derive(Debug)]
pub struct Mail {
    /// In whose memory it is read.
    pub process: Process,
    /// Where.
    pub place: Letterbox,
    /// The socket whose it is.
    pub cookie: u64,
    /// Up to where it is known.
    seen: Option<u64>,
    /// A writer was in the middle of writing when it was looked at last: the tail, and since when (ns).
    busy: Option<(u64, u64)>,
    /// What comes next may have been overwritten.
    gap: bool,
}

/// A datagram: where its head and its octets are.
pub type Letter = (Range<usize>, Range<usize>);

/// New datagrams.
#[derive(Debug, PartialEq, Eq)]
pub struct Post {
    /// Octets of records missed before them.
    pub missed: u64,
    /// They, in what was read.
    pub letters: Vec<Letter>,
    /// There are more behind them.
    pub has_more: bool,
}

/// Octets of the longest record.
pub const MOST: usize = span(HEADS, LONGEST) as usize;

impl Mail {
    /// One that is read in the memory of a process. `from`: up to where it is known; `None`: it begins with what waits there.
    pub fn new(process: Process, place: Letterbox, cookie: u64, from: Option<u64>) -> Mail {
        Mail { process, place, cookie, seen: from, busy: None, gap: false }
    }

    /// Up to where it is known.
    pub fn seen(&self) -> Option<u64> {
        self.seen
    }

    /// There is something whose writer is about to finish.
    pub fn is_busy(&self) -> bool {
        self.busy.is_some()
    }

    /// Reads what is new into `room`, at most so many octets of it (at least [`MOST`]): the rest waits for the next time, and of
    /// what does not fit into the ring the last ones are read.
    ///
    /// # Errors
    /// It is over.
    pub fn read(&mut self, room: &mut Vec<u8>, most: usize) -> Result<Option<Post>, Over> {
        let first = self.look()?;
        let (tail, size) = (first.tail, u64::from(self.place.ring));
        let waits = tail.wrapping_sub(first.head);
        let seen = *self.seen.get_or_insert(if waits <= size { first.head } else { tail });
        // A tail behind what was seen is a liar's.
        let new = Some(tail.wrapping_sub(seen)).filter(|n| *n < 1 << 61).unwrap_or(0);
        if new == 0 || !(tail | seen).is_multiple_of(ALIGN) {
            self.busy = None;
            return Ok(None);
        }
        let wanted = new.min(size).min(most as u64);
        // Behind a gap no record is known but by those that follow it up to the tail.
        let last = if new > size || self.gap { tail } else { seen.wrapping_add(wanted) };
        let new = last.wrapping_sub(seen);
        room.resize(wanted as usize, 0);
        self.place.octets(self.process, last.wrapping_sub(wanted), room)?;
        let Some(kept) = self.kept(last)? else { return Ok(None) };
        let kept = kept.min(wanted);
        self.gap = kept < new && last != tail;
        if self.gap {
            return Ok(Some(Post { missed: 0, letters: Vec::new(), has_more: true }));
        }
        let begin = (wanted - kept) as usize;
        // What follows a gap begins anywhere.
        let begin = begin + if kept == new { 0 } else { first_record(&room[begin..]) };
        let letters = records(room, begin);
        let end = letters.last().map_or(begin, |(_, octets)| octets.end.next_multiple_of(ALIGN as usize));
        let at = last.wrapping_sub((room.len() - end) as u64);
        // Of a record that only begins here the rest waits; behind what is none nothing is known up to the tail.
        let is_cut = last != tail && (end == room.len() || title(room, end).is_some());
        let seen = if is_cut { at } else { tail };
        let missed = new - (room.len() - begin) as u64 + seen.wrapping_sub(at);
        self.seen = Some(seen);
        Ok(Some(Post { missed, letters, has_more: seen != tail }))
    }

    /// What its control words say.
    fn look(&self) -> Result<Letters, Over> {
        let words = self.place.letters(self.process)?;
        if words.cookie == self.cookie { Ok(words) } else { Err(Over::Gone) }
    }

    /// Of the octets before `tail`, how many of the last were certainly still there when they were copied just now; `None`: that will be
    /// known soon.
    fn kept(&mut self, tail: u64) -> Result<Option<u64>, Over> {
        let size = u64::from(self.place.ring);
        let first = self.look()?;
        let mut now = first;
        for _ in 0..LOOKS {
            // Who was writing while we copied has said how far, once nobody does or the tail has moved on.
            if now.lock == 0 || now.tail != first.tail {
                self.busy = None;
                return Ok(Some(size.saturating_sub(now.tail.wrapping_sub(tail))));
            }
            now = self.look()?;
        }
        let at = monotonic_ns();
        let since = self.busy.filter(|(tail, _)| *tail == first.tail).map_or(at, |(_, since)| since);
        self.busy = Some((first.tail, since));
        if at - since < PATIENCE {
            return Ok(None);
        }
        // A writer that is stopped half-way, or dead: it may have written anywhere that was free.
        self.busy = None;
        Ok(Some(Some(tail.wrapping_sub(now.head)).filter(|waits| *waits <= size).unwrap_or(0)))
    }
}

/// What is said of the record that begins at `at`: octets of its head, and its own.
fn title(octets: &[u8], at: usize) -> Option<(usize, usize)> {
    let word: [u8; WORD as usize] = octets.get(at..at + WORD as usize)?.try_into().ok()?;
    let record = Record::decode(word);
    let (head, len) = (usize::from(record.head), record.octets as usize);
    (record.mark == MARK && head <= HEADS && len <= LONGEST).then_some((head, len))
}

/// The record that begins at `at`, of which all lies in there: where its head and its octets are, and where the next one begins.
fn record(octets: &[u8], at: usize) -> Option<(Letter, usize)> {
    let (head, len) = title(octets, at)?;
    let end = at + span(head, len) as usize;
    let start = at + WORD as usize;
    (end <= octets.len()).then_some(((start..start + head, start + head..start + head + len), end))
}

/// All records from one of them on.
fn records(octets: &[u8], mut at: usize) -> Vec<Letter> {
    let mut all = Vec::new();
    while let Some((letter, end)) = record(octets, at) {
        all.push(letter);
        at = end;
    }
    all
}

/// Where the first record begins of those that follow each other up to the end.
fn first_record(octets: &[u8]) -> usize {
    let step = ALIGN as usize;
    let places = octets.len() / step;
    let mut is_begin = vec![false; places + 1];
    is_begin[places] = true;
    for place in (0..places).rev() {
        is_begin[place] = record(octets, place * step).is_some_and(|(_, end)| is_begin[end / step]);
    }
    is_begin.iter().position(|begin| *begin).unwrap_or(places) * step
}

#[cfg(test)]
mod tests {
    use super::super::memory;
    use super::*;
    use bypath_shm::dgram::Octets as _;
    use bypath_shm::mailbox::{Pushed, Reader, Writer};
    use bypath_shm::region::MailboxMap;
    use std::sync::atomic::{AtomicU64, Ordering::*};

    const RING: u32 = 16384;

    /// A mailbox of this process that is open.
    struct Lab {
        map: MailboxMap,
        fd: i32,
        cookie: u64,
    }

    impl Lab {
        fn new() -> Lab {
            Lab::with(RING)
        }

        fn with(ring: u32) -> Lab {
            static NEXT: AtomicU64 = AtomicU64::new(0x7e57_0000_0000);
            let (map, fd) = MailboxMap::new(ring, 3).unwrap();
            let cookie = NEXT.fetch_add(1, Relaxed) + u64::from(std::process::id());
            map.owner().store(cookie, Relaxed);
            let reader = Reader::new(map.mailbox(), map.ring());
            let epoch = reader.open_begin().unwrap();
            assert!(reader.open_finish(epoch));
            Lab { map, fd, cookie }
        }

        fn sends(&self, octets: &[u8]) {
            let pushed = Writer::new(self.map.mailbox(), self.map.ring(), 1).push(
                &AtomicU64::new(0),
                b"from",
                octets,
                u64::MAX,
            );
            assert_eq!(pushed, Pushed::Sent);
        }

        fn takes(&self) {
            let reader = Reader::new(self.map.mailbox(), self.map.ring());
            let peeked = reader.peek().unwrap().expect("a datagram");
            assert!(reader.release(&peeked));
        }

        fn mail(&self, from: Option<u64>) -> Mail {
            let me = Process::of(std::process::id()).unwrap();
            let all = memory::letterboxes(me, None).unwrap();
            let ours = |place: &Letterbox| place.letters(me).is_ok_and(|words| words.cookie == self.cookie);
            Mail::new(me, all.into_iter().find(ours).expect("the mailbox"), self.cookie, from)
        }
    }

    impl Drop for Lab {
        fn drop(&mut self) {
            bypath_sys::fd::close(self.fd);
        }
    }

    /// What is read now: octets missed, and the datagrams.
    fn read(mail: &mut Mail) -> (u64, Vec<Vec<u8>>) {
        let mut room = Vec::new();
        let post = mail.read(&mut room, usize::MAX).unwrap().expect("news");
        let letters = post.letters.iter().map(|(head, octets)| {
            assert_eq!(&room[head.clone()], b"from");
            room[octets.clone()].to_vec()
        });
        (post.missed, letters.collect())
    }

    #[test]
    fn datagrams_are_seen_whether_they_were_read_or_not() {
        let lab = Lab::new();
        lab.sends(b"before");
        lab.takes();
        lab.sends(b"one");
        let mut mail = lab.mail(None);
        lab.sends(b"");
        lab.sends(&[7; 5000]);
        assert_eq!(read(&mut mail), (0, vec![b"one".to_vec(), vec![], vec![7; 5000]]));
        lab.takes();
        lab.sends(b"more");
        lab.takes();
        assert_eq!(read(&mut mail), (0, vec![b"more".to_vec()]));
        assert_eq!(mail.read(&mut Vec::new(), usize::MAX), Ok(None));
    }

    #[test]
    fn behind_a_gap_the_first_whole_record_is_found() {
        let lab = Lab::new();
        let mut mail = lab.mail(Some(0));
        for n in 0..40u8 {
            lab.sends(&[n; 1001]);
            lab.takes();
        }
        let (missed, letters) = read(&mut mail);
        let one = span(4, 1001);
        let there = u64::from(RING) / one;
        assert_eq!(letters, (40 - there as u8..40).map(|n| vec![n; 1001]).collect::<Vec<_>>());
        assert_eq!(missed, (40 - there) * one);
    }

    /// What one read gave: octets missed, datagrams, and whether there is more.
    type Piece = (u64, usize, bool);

    /// What reads give, each of at most so many octets, and all datagrams.
    fn pieces(mail: &mut Mail, most: usize) -> (Vec<Piece>, Vec<Vec<u8>>) {
        let (mut room, mut all, mut octets) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..100 {
            let Some(post) = mail.read(&mut room, most).unwrap() else { break };
            assert!(room.len() <= most);
            all.push((post.missed, post.letters.len(), post.has_more));
            octets.extend(post.letters.iter().map(|(_, octets)| room[octets.clone()].to_vec()));
        }
        (all, octets)
    }

    #[test]
    fn what_is_read_in_pieces_is_whole() {
        let lab = Lab::with(1 << 20);
        let mut mail = lab.mail(Some(0));
        let sent: Vec<_> = (0..40u8).map(|n| vec![n; 20_001]).collect();
        sent.iter().for_each(|octets| lab.sends(octets));
        let (read, octets) = pieces(&mut mail, MOST);
        assert_eq!(octets, sent);
        assert_eq!(read[..12], [(0, 3, true); 12]);
        assert_eq!(read[12..], [(0, 3, true), (0, 1, false)]);

        // What was overwritten meanwhile is missed, and behind it the last ones are read.
        lab.sends(b"seen");
        assert_eq!(pieces(&mut mail, MOST).1, [b"seen"]);
        for n in 0..60u8 {
            lab.takes();
            lab.sends(&[n; 20_001]);
        }
        let (read, octets) = pieces(&mut mail, MOST);
        assert_eq!(octets, (57..60).map(|n| vec![n; 20_001]).collect::<Vec<_>>());
        assert_eq!(read, [(57 * span(4, 20_001), 3, false)]);
    }

    #[test]
    fn a_piece_that_a_writer_may_have_touched_is_read_from_the_other_end() {
        let lab = Lab::with(1 << 20);
        let mut mail = lab.mail(Some(0));
        for n in 0..40u8 {
            lab.sends(&[n; 20_001]);
            lab.takes();
        }
        // Somebody was stopped in the middle: all that was taken is as it may be.
        lab.map.mailbox().writers.lock.store(5, Relaxed);
        assert_eq!(mail.read(&mut Vec::new(), MOST), Ok(None));
        for _ in 0..2 {
            mail.busy.get_or_insert((lab.map.mailbox().tail.0.load(Relaxed), 0)).1 = 0;
            let post = mail.read(&mut Vec::new(), MOST).unwrap().expect("news");
            assert_eq!(post.letters, []);
            assert_eq!(post.missed, if post.has_more { 0 } else { 40 * span(4, 20_001) });
        }
        assert_eq!(mail.seen(), Some(40 * span(4, 20_001)));
    }

    #[test]
    fn nonsense_in_a_piece_is_missed_up_to_the_tail() {
        let lab = Lab::with(1 << 20);
        let mut mail = lab.mail(Some(0));
        let one = span(4, 20_001);
        (0..40).for_each(|_| lab.sends(&[7; 20_001]));
        lab.map.ring().put(one, &[0; 8]);
        let (read, octets) = pieces(&mut mail, MOST);
        assert_eq!((read, octets.len()), (vec![(39 * one, 1, false)], 1));
        lab.takes();
        lab.sends(b"more");
        assert_eq!(pieces(&mut mail, MOST).1, [b"more"]);
    }

    #[test]
    fn while_somebody_writes_what_he_may_have_touched_is_not_believed() {
        let lab = Lab::new();
        let mut mail = lab.mail(Some(0));
        lab.sends(b"read");
        lab.takes();
        lab.sends(b"waits");
        let lock = &lab.map.mailbox().writers.lock;
        lock.store(5, Relaxed);
        assert_eq!(mail.read(&mut Vec::new(), usize::MAX), Ok(None));
        assert!(mail.is_busy());
        mail.busy.as_mut().expect("since when").1 -= PATIENCE;
        assert_eq!(read(&mut mail), (span(4, 4), vec![b"waits".to_vec()]));
        lock.store(0, Relaxed);
        lab.sends(b"more");
        assert_eq!(read(&mut mail), (0, vec![b"more".to_vec()]));
    }

    #[test]
    fn what_makes_no_sense_is_nothing() {
        let lab = Lab::new();
        lab.sends(b"one");
        let mut mail = lab.mail(Some(0));
        let tail = &lab.map.mailbox().tail.0;
        for (seen, wrong) in [1, 12, u64::MAX, 1 << 63, 1 << 61, 1 << 60]
            .map(|n| (0, n))
            .into_iter()
            .chain([(8u64.wrapping_neg(), 8)])
        {
            mail.seen = Some(seen);
            tail.store(wrong, Relaxed);
            let post = mail.read(&mut Vec::new(), usize::MAX).expect("it is there");
            assert!(post.is_none_or(|post| post.letters.len() <= 1), "{wrong}");
        }
        lab.map.owner().store(1, Relaxed);
        assert_eq!(mail.read(&mut Vec::new(), usize::MAX), Err(Over::Gone));
    }
}
