//! Memory of another process, read from outside: where its arenas are, and what stands there.

use crate::aside::{self, Pulse};
use crate::connections::descriptors::Process;
use crate::connections::is_trusted;
use bypath_shm::arena::{Control, Geometry, PAGE, slot_use};
use bypath_shm::direction::{Direction, HeadLine, TailLine};
use bypath_shm::mailbox::{self, Mailbox};
use bypath_shm::region::MailboxMap;
use bypath_sys::memfd;
use bypath_sys::process::shown_thread;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::fs::File;
use std::io::{self, BufRead, BufReader, IoSliceMut};
use std::mem::offset_of;
use std::time::{Duration, Instant};

/// Fills `to` with what stands at `pieces` (address and length) in a process, one after the other.
///
/// # Errors
/// EPERM: not allowed; ESRCH: it has ended; EFAULT: nothing is mapped there (any more); ETIMEDOUT: another user's process keeps whoever reads waiting.
pub fn read(from: Process, pieces: &[(usize, usize)], to: &mut [u8]) -> nix::Result<()> {
    let Process { pid, user } = from;
    if is_trusted(user) {
        return read_here(pid, pieces, to);
    }
    let (pieces, mut room) = (pieces.to_vec(), vec![0; to.len()]);
    let copied = aside::of(from, move |_| read_here(pid, &pieces, &mut room).map(|()| room));
    to.copy_from_slice(&copied.unwrap_or(Err(nix::Error::ETIMEDOUT))?);
    Ok(())
}

/// However long it takes.
fn read_here(pid: u32, pieces: &[(usize, usize)], to: &mut [u8]) -> nix::Result<()> {
    let remote: Vec<_> = pieces.iter().map(|&(base, len)| RemoteIoVec { base, len }).collect();
    let wanted = to.len();
    let mut read =
        |of: u32| process_vm_readv(Pid::from_raw(of.cast_signed()), &mut [IoSliceMut::new(to)], &remote);
    let got = match read(pid) {
        // Its first thread may have ended.
        Err(nix::Error::ESRCH) => read(shown_thread(pid))?,
        got => got?,
    };
    if got == wanted { Ok(()) } else { Err(nix::Error::EFAULT) }
}

/// An arena that a process maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arena {
    base: usize,
    size: usize,
    /// Number of its file: the same in every process that maps it.
    file: u64,
}

/// The arenas that a process maps, as far as its mappings can be looked at in this time.
///
/// # Errors
/// It has ended, or is another user's.
pub fn arenas(process: Process, most: Option<Duration>) -> io::Result<Vec<Arena>> {
    mapped(process, "bypath-arena", most)
}

/// The memfds of this name that a process maps from their beginning on, be it in parts, of which some cannot be touched. Anything may be called so: of a file of somebody's own
/// (FUSE) each look would have to wait for him, so only what is in the kernel's own file system counts.
fn mapped(process: Process, name: &'static str, most: Option<Duration>) -> io::Result<Vec<Arena>> {
    let (pid, device) = (process.pid, memfd::anonymous_device()?);
    let until = most.map(|most| Instant::now() + most);
    let all = aside::of(process, move |pulse| {
        let mut maps = BufReader::new(File::open(format!("/proc/{}/maps", shown_thread(pid)))?);
        let is_late = || {
            pulse.beat();
            until.is_some_and(|until| Instant::now() >= until)
        };
        named_in(&mut maps, name, device, is_late)
    });
    all.unwrap_or_else(|| Err(io::ErrorKind::TimedOut.into()))
}

fn named_in(
    maps: &mut impl BufRead,
    name: &str,
    (major, minor): (u32, u32),
    is_late: impl Fn() -> bool,
) -> io::Result<Vec<Arena>> {
    let (device, name) = (format!("{major:02x}:{minor:02x}"), format!("/memfd:{name}"));
    let (mut found, mut line) = (Vec::<Arena>::new(), Vec::new());
    // A line at a time: there may be as many as the kernel allows, each as long as a path can be.
    while !is_late() && maps.read_until(b'\n', &mut line)? > 0 {
        let part = str::from_utf8(&line).ok().and_then(|line| named(line, &name, &device));
        match (part, found.last_mut()) {
            (Some((0, arena)), _) => found.push(arena),
            (Some((offset, more)), Some(arena))
                if (arena.file, arena.base + arena.size, arena.size) == (more.file, more.base, offset) =>
            {
                arena.size += more.size;
            }
            _ => {}
        }
        line.clear();
    }
    Ok(found)
}

/// What a line says: range, rights, offset, device, inode, name. Where in its file it begins, and the range.
fn named(line: &str, name: &str, device: &str) -> Option<(usize, Arena)> {
    let mut words = line.split_whitespace();
    let (from, to) = words.next()?.split_once('-')?;
    let [_, offset, of, file] = [(); 4].map(|()| words.next());
    if of? != device || !words.eq([name, "(deleted)"]) {
        return None;
    }
    let (base, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
    let arena = Arena { base, size: to.checked_sub(base)?, file: file?.parse().ok()? };
    Some((usize::from_str_radix(offset?, 16).ok()?, arena))
}

/// One life of one slot: two connections that have it one after the other differ here, even if their sockets are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Life {
    file: u64,
    slot: u32,
    count: u32,
}

impl Life {
    /// Whether it is one of this slot of the arena that has this number.
    pub fn is_of(&self, arena: u64, slot: u32) -> bool {
        (self.file, self.slot) == (arena, slot)
    }

    /// Whether it is one in this arena.
    pub fn is_in(&self, arena: &Arena) -> bool {
        self.file == arena.file
    }
}

/// [`Control::in_use`] of a slot that both sides have.
const WHOLE: u32 = slot_use::ACCEPTER | slot_use::DIALLER;

/// Where one connection's control page and rings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the control page.
    control: usize,
    /// Bytes of one ring.
    pub ring: u32,
    /// Whose they are.
    pub life: Life,
    /// Whether both sides had the slot when it was found: one that an earlier image of a program had is left by the other side.
    pub whole: bool,
}

/// The slots in use of an arena whose rings have `ring` bytes, each with the sockets it is of; none if its rings have not.
///
/// # Errors
/// As [`read`].
pub fn slots(process: Process, arena: Arena, ring: u32) -> nix::Result<Vec<([u64; 2], Place)>> {
    let pid = process.pid;
    aside::of(process, move |pulse| slots_here(pid, arena, ring, pulse)).unwrap_or(Err(nix::Error::ETIMEDOUT))
}

fn slots_here(pid: u32, arena: Arena, ring: u32, pulse: &Pulse) -> nix::Result<Vec<([u64; 2], Place)>> {
    let Arena { base, size, file } = arena;
    let slot_size = Geometry { slots: 1, ring }.slot_size();
    let rest = size.checked_sub(PAGE).filter(|rest| rest.is_multiple_of(slot_size)).unwrap_or(0);
    let geometry = Geometry { slots: (rest / slot_size) as u32, ring };
    let mut all = Vec::new();
    if !geometry.is_valid() {
        return Ok(all);
    }
    for slot in 0..geometry.slots {
        let control = base + geometry.slot(slot);
        let mut raw = [0; Title::SIZE];
        match read_here(pid, &[(control, Title::SIZE)], &mut raw) {
            // A process opens the slots of its peer's arena as far as it was given some.
            Err(nix::Error::EFAULT) if slot > 0 => break,
            read => read?,
        }
        pulse.beat();
        let title = Title::decode(&raw);
        // Slots are handed out from the first one on: behind one that never was nothing else was, and pages there have no memory yet.
        if title.life == 0 {
            break;
        }
        if title.in_use != 0 {
            let life = Life { file, slot, count: title.life };
            let whole = title.in_use == WHOLE;
            all.push((title.cookies, Place { control, ring, life, whole }));
        }
    }
    Ok(all)
}

/// A mailbox that a process maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letterbox {
    base: usize,
    /// Octets of its ring.
    pub ring: u32,
    /// Number of its file: the same in every process that maps it.
    pub file: u64,
}

/// What its control words say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Letters {
    /// Of the socket whose it is.
    pub cookie: u64,
    /// Who writes; 0: nobody.
    pub lock: u32,
    /// Read behind the lock: whoever had written when nobody wrote has said so here.
    pub tail: u64,
    /// Where it is read next.
    pub head: u64,
}

/// The mailboxes that a process maps, as far as its mappings can be looked at in this time.
///
/// # Errors
/// As [`arenas`].
pub fn letterboxes(process: Process, most: Option<Duration>) -> io::Result<Vec<Letterbox>> {
    Ok(mapped(process, "bypath-mailbox", most)?.into_iter().filter_map(letterbox).collect())
}

/// A mailbox has a ring that is as long as one can be.
fn letterbox(Arena { base, size, file }: Arena) -> Option<Letterbox> {
    let ring = u32::try_from(size.checked_sub(PAGE)?).ok().filter(|ring| MailboxMap::is_ring(*ring))?;
    Some(Letterbox { base, ring, file })
}

impl Letterbox {
    /// Reads the control words.
    ///
    /// # Errors
    /// As [`read`].
    pub fn letters(&self, of: Process) -> nix::Result<Letters> {
        let at = |field: usize| self.base + offset_of!(mailbox::Page, mailbox) + field;
        let lock = offset_of!(Mailbox, writers) + offset_of!(mailbox::Writers, lock);
        let pieces = [
            (self.base + offset_of!(mailbox::Page, owner), 8),
            (at(lock), 4),
            (at(offset_of!(Mailbox, tail)), 8),
            (at(offset_of!(Mailbox, head)), 8),
        ];
        let mut raw = [0; 28];
        read(of, &pieces, &mut raw)?;
        let lock = u32::from_ne_bytes(raw[8..12].try_into().expect("four bytes"));
        Ok(Letters { cookie: word(&raw, 0), lock, tail: word(&raw, 12), head: word(&raw, 20) })
    }

    /// Reads octets of the ring from a position on, at most a ring of them.
    ///
    /// # Errors
    /// As [`read`].
    pub fn octets(&self, of: Process, from: u64, to: &mut [u8]) -> nix::Result<()> {
        let (ring, size) = (self.base + PAGE, self.ring as usize);
        let start = (from & (u64::from(self.ring) - 1)) as usize;
        let first = to.len().min(size - start);
        read(of, &[(ring + start, first), (ring, to.len() - first)], to)
    }
}

fn word(raw: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(raw[at..at + 8].try_into().expect("eight bytes"))
}

/// Whose a slot is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Title {
    in_use: u32,
    life: u32,
    cookies: [u64; 2],
}

impl Title {
    const SIZE: usize = offset_of!(Control, ends);

    fn decode(raw: &[u8]) -> Title {
        let half = |at: usize| u32::from_ne_bytes(raw[at..at + 4].try_into().expect("four bytes"));
        let cookies = offset_of!(Control, cookies);
        Title {
            in_use: half(offset_of!(Control, in_use)),
            life: half(offset_of!(Control, life)),
            cookies: [word(raw, cookies), word(raw, cookies + 8)],
        }
    }
}

/// What a control page says of both directions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Whether anybody has the slot still; if not, these words are the last ones.
    pub used: bool,
    /// Whether both sides have it.
    pub whole: bool,
    /// The tails: those of one moment, as far as that could be had.
    pub tails: [u64; 2],
    /// The head words.
    pub heads: [u64; 2],
    /// Up to where bytes are gone with memory that was given back.
    pub released: [u64; 2],
}

impl Place {
    /// Reads the words of both directions; `None` if the slot is not that of these sockets' connection any more.
    ///
    /// # Errors
    /// As [`read`].
    pub fn words(&self, of: Process, cookies: [u64; 2]) -> nix::Result<Option<Words>> {
        /// How often it is tried to see both tails as they were at one moment.
        const TRIES: usize = 8;
        const REST: usize = 2 * Title::SIZE;
        let line = |d: usize| self.control + offset_of!(Control, direction) + d * size_of::<Direction>();
        let tail = |d: usize| (line(d) + offset_of!(Direction, t) + offset_of!(TailLine, tail), 8);
        let released = |d: usize| (line(d) + offset_of!(Direction, t) + offset_of!(TailLine, released), 8);
        let head = |d: usize| (line(d) + offset_of!(Direction, h) + offset_of!(HeadLine, head), 8);
        let title = (self.control, Title::SIZE);
        // Pieces are copied in this order: where both looks at the first tail are the same, the other one was read between them.
        let pieces = [title, tail(0), tail(1), tail(0), head(0), head(1), released(0), released(1), title];
        let mut raw = [0; REST + 7 * 8];
        for _ in 0..TRIES {
            read(of, &pieces, &mut raw)?;
            if word(&raw, Title::SIZE) == word(&raw, Title::SIZE + 16) {
                break;
            }
        }
        let (before, after) = (Title::decode(&raw), Title::decode(&raw[Title::SIZE + 56..]));
        let ours = |t: Title| t.life == self.life.count && t.cookies == cookies;
        let at = |n: usize| word(&raw, Title::SIZE + 8 * n);
        Ok((ours(before) && ours(after)).then(|| Words {
            used: after.in_use != 0,
            whole: after.in_use == WHOLE,
            tails: [at(2), at(1)],
            heads: [at(3), at(4)],
            released: [at(5), at(6)],
        }))
    }

    /// The number of the dialler's end.
    #[cfg(test)]
    pub fn ends(&self, of: Process, to: &mut [u8; 4]) -> nix::Result<()> {
        read(of, &[(self.control + offset_of!(Control, ends), 4)], to)
    }

    /// Reads bytes of direction `d` from a position on, at most a ring of them.
    ///
    /// # Errors
    /// As [`read`].
    pub fn bytes(&self, of: Process, d: usize, from: u64, to: &mut [u8]) -> nix::Result<()> {
        let ring = self.control + PAGE + d * self.ring as usize;
        let start = (from & u64::from(self.ring - 1)) as usize;
        let first = to.len().min(self.ring as usize - start);
        read(of, &[(ring + start, first), (ring, to.len() - first)], to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    fn me() -> Process {
        Process::of(std::process::id()).unwrap()
    }

    #[test]
    fn arenas_are_found_among_mappings() {
        let maps = b"7f0000000000-7f0000211000 rw-s 00000000 00:01 1040 /memfd:bypath-arena (deleted)\n\
            7f0000400000-7f0000401000 rw-s 00000000 00:01 1041 /memfd:bypath-inbox (deleted)\n\
            7f0000500000-7f0000501000 rw-s 00001000 00:01 1040 /memfd:bypath-arena (deleted)\n\
            7f0000600000-7f0000811000 rw-s 00000000 00:2a 1040 /memfd:bypath-arena (deleted)\n\
            7f0000900000-7f0000b11000 rw-s 00000000 00:01 1042 /a/memfd:bypath-arena (deleted)\n\
            7f0000c00000-7f0000e11000 rw-s 00000000 00:01 1043 /memfd:bypath-arena (deleted) more\n\
            nonsense\n\xff";
        // Of these the third is a file of another file system, the fourth and the fifth have other names.
        let found = named_in(&mut &maps[..], "bypath-arena", (0, 1), || false).unwrap();
        assert_eq!(found, [Arena { base: 0x7f00_0000_0000, size: 0x21_1000, file: 1040 }]);
        let (own, fd) = bypath_shm::region::OwnArena::new(Geometry { slots: 1, ring: 4096 }).unwrap();
        assert!(arenas(me(), None).unwrap().iter().any(|arena| arena.size == own.geometry().size()));
        drop(fd);
    }

    #[test]
    fn an_arena_in_parts_is_one() {
        let maps = b"7f0000000000-7f0000004000 rw-s 00000000 00:01 1040 /memfd:bypath-arena (deleted)\n\
            7f0000004000-7f0000010000 ---s 00004000 00:01 1040 /memfd:bypath-arena (deleted)\n\
            7f0000010000-7f0000014000 rw-s 00000000 00:01 1040 /memfd:bypath-arena (deleted)\n\
            7f0000014000-7f0000018000 ---s 00004000 00:01 1041 /memfd:bypath-arena (deleted)\n\
            7f0000018000-7f000001c000 ---s 0000c000 00:01 1040 /memfd:bypath-arena (deleted)\n\
            7f0000020000-7f0000024000 ---s 00004000 00:01 1040 /memfd:bypath-arena (deleted)\n";
        let found = named_in(&mut &maps[..], "bypath-arena", (0, 1), || false).unwrap();
        let of = |base, size| Arena { base, size, file: 1040 };
        assert_eq!(found, [of(0x7f00_0000_0000, 0x1_0000), of(0x7f00_0001_0000, 0x4000)]);
    }

    #[test]
    fn mappings_are_not_read_after_their_time() {
        const LENGTH: u64 = 1 << 24;
        let mut maps = BufReader::new(io::repeat(b'\n').take(LENGTH));
        let found = named_in(&mut maps, "bypath-arena", (0, 1), || true).unwrap();
        assert!(found.is_empty() && maps.into_inner().limit() > 0);
    }

    #[test]
    fn no_mailbox_is_longer_than_one_can_be() {
        let of = |ring: usize| letterbox(Arena { base: 4096, size: PAGE + ring, file: 1 }).map(|l| l.ring);
        assert_eq!((of(4096), of(4 << 20)), (Some(4096), Some(4 << 20)));
        assert_eq!((of(2048), of(8 << 20), of(256 << 20), of(5000)), (None, None, None, None));
    }

    #[test]
    fn what_is_not_mapped_is_an_error() {
        assert_eq!(read(me(), &[(16, 8)], &mut [0; 8]), Err(nix::Error::EFAULT));
    }
}
