//! Memory of another process, read from outside: where its arenas are, and what stands there.

use bypath_shm::arena::{Control, Geometry, PAGE, slot_use};
use bypath_shm::direction::{Direction, HeadLine, TailLine};
use bypath_shm::mailbox::{self, Mailbox};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::{self, IoSliceMut};
use std::mem::offset_of;

/// Fills `to` with what stands at `pieces` (address and length) in a process, one after the other.
///
/// # Errors
/// EPERM: not allowed; ESRCH: it has ended; EFAULT: nothing is mapped there (any more).
pub fn read(pid: u32, pieces: &[(usize, usize)], to: &mut [u8]) -> nix::Result<()> {
    let remote: Vec<_> = pieces.iter().map(|&(base, len)| RemoteIoVec { base, len }).collect();
    let wanted = to.len();
    let got = process_vm_readv(Pid::from_raw(pid.cast_signed()), &mut [IoSliceMut::new(to)], &remote)?;
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

/// The arenas that a process maps.
///
/// # Errors
/// It has ended, or is another user's.
pub fn arenas(pid: u32) -> io::Result<Vec<Arena>> {
    Ok(arenas_in(&maps(pid)?))
}

fn maps(pid: u32) -> io::Result<String> {
    std::fs::read_to_string(format!("/proc/{pid}/maps"))
}

fn arenas_in(maps: &str) -> Vec<Arena> {
    named_in(maps, "bypath-arena")
}

/// The memfds of this name that are mapped from their beginning on.
fn named_in(maps: &str, name: &str) -> Vec<Arena> {
    let name = format!("/memfd:{name}");
    maps.lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            let mut words = rest.split_whitespace();
            if !rest.contains(&name) || words.nth(1)? != "00000000" {
                return None;
            }
            let file = words.nth(1)?.parse().ok()?;
            let (from, to) = range.split_once('-')?;
            let (base, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
            Some(Arena { base, size: to.checked_sub(base)?, file })
        })
        .collect()
}

/// One life of one slot: two connections that have it one after the other differ here, even if their sockets are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    file: u64,
    slot: u32,
    count: u32,
}

impl Life {
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
pub fn slots(pid: u32, arena: Arena, ring: u32) -> nix::Result<Vec<([u64; 2], Place)>> {
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
        read(pid, &[(control, Title::SIZE)], &mut raw)?;
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

/// The mailboxes that a process maps.
///
/// # Errors
/// As [`arenas`].
pub fn letterboxes(pid: u32) -> io::Result<Vec<Letterbox>> {
    let all = named_in(&maps(pid)?, "bypath-mailbox").into_iter();
    Ok(all
        .filter_map(|Arena { base, size, file }| {
            let ring = u32::try_from(size.checked_sub(PAGE)?).ok().filter(|ring| ring.is_power_of_two())?;
            Some(Letterbox { base, ring, file })
        })
        .collect())
}

impl Letterbox {
    /// Reads the control words.
    ///
    /// # Errors
    /// As [`read`].
    pub fn letters(&self, pid: u32) -> nix::Result<Letters> {
        let at = |field: usize| self.base + offset_of!(mailbox::Page, mailbox) + field;
        let lock = offset_of!(Mailbox, writers) + offset_of!(mailbox::Writers, lock);
        let pieces = [
            (self.base + offset_of!(mailbox::Page, owner), 8),
            (at(lock), 4),
            (at(offset_of!(Mailbox, tail)), 8),
            (at(offset_of!(Mailbox, head)), 8),
        ];
        let mut raw = [0; 28];
        read(pid, &pieces, &mut raw)?;
        let lock = u32::from_ne_bytes(raw[8..12].try_into().expect("four bytes"));
        Ok(Letters { cookie: word(&raw, 0), lock, tail: word(&raw, 12), head: word(&raw, 20) })
    }

    /// Reads octets of the ring from a position on, at most a ring of them.
    ///
    /// # Errors
    /// As [`read`].
    pub fn octets(&self, pid: u32, from: u64, to: &mut [u8]) -> nix::Result<()> {
        let (ring, size) = (self.base + PAGE, self.ring as usize);
        let start = (from & (u64::from(self.ring) - 1)) as usize;
        let first = to.len().min(size - start);
        read(pid, &[(ring + start, first), (ring, to.len() - first)], to)
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
    pub fn words(&self, pid: u32, cookies: [u64; 2]) -> nix::Result<Option<Words>> {
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
            read(pid, &pieces, &mut raw)?;
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
    pub fn ends(&self, pid: u32, to: &mut [u8; 4]) -> nix::Result<()> {
        read(pid, &[(self.control + offset_of!(Control, ends), 4)], to)
    }

    /// Reads bytes of direction `d` from a position on, at most a ring of them.
    ///
    /// # Errors
    /// As [`read`].
    pub fn bytes(&self, pid: u32, d: usize, from: u64, to: &mut [u8]) -> nix::Result<()> {
        let ring = self.control + PAGE + d * self.ring as usize;
        let start = (from & u64::from(self.ring - 1)) as usize;
        let first = to.len().min(self.ring as usize - start);
        read(pid, &[(ring + start, first), (ring, to.len() - first)], to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arenas_are_found_among_mappings() {
        let maps = "7f0000000000-7f0000211000 rw-s 00000000 00:01 1040 /memfd:bypath-arena (deleted)\n\
            7f0000400000-7f0000401000 rw-s 00000000 00:01 1041 /memfd:bypath-inbox (deleted)\n\
            7f0000500000-7f0000501000 rw-s 00001000 00:01 1040 /memfd:bypath-arena (deleted)\n\
            nonsense\n";
        assert_eq!(arenas_in(maps), [Arena { base: 0x7f00_0000_0000, size: 0x21_1000, file: 1040 }]);
    }

    #[test]
    fn what_is_not_mapped_is_an_error() {
        assert_eq!(read(std::process::id(), &[(16, 8)], &mut [0; 8]), Err(nix::Error::EFAULT));
    }
}
