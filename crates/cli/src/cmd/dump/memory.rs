//! Memory of another process, read from outside: where its arenas are, and what stands there.

use bypath_shm::arena::{Control, Geometry, PAGE};
use bypath_shm::direction::{Direction, HeadLine, TailLine};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;
use std::io::{self, IoSliceMut};
use std::mem::offset_of;

/// Fills `to` with what stands at `pieces` (address and length) in a process.
///
/// # Errors
/// EPERM: not allowed; ESRCH: it has ended; EFAULT: nothing is mapped there (any more).
pub fn read(pid: u32, pieces: &[(usize, usize)], to: &mut [u8]) -> nix::Result<()> {
    let remote: Vec<_> = pieces.iter().map(|&(base, len)| RemoteIoVec { base, len }).collect();
    let wanted = to.len();
    let got = process_vm_readv(Pid::from_raw(pid.cast_signed()), &mut [IoSliceMut::new(to)], &remote)?;
    if got == wanted { Ok(()) } else { Err(nix::Error::EFAULT) }
}

/// The arenas that a process maps: address and size.
///
/// # Errors
/// It has ended, or is another user's.
pub fn arenas(pid: u32) -> io::Result<Vec<(usize, usize)>> {
    Ok(arenas_in(&std::fs::read_to_string(format!("/proc/{pid}/maps"))?))
}

fn arenas_in(maps: &str) -> Vec<(usize, usize)> {
    maps.lines()
        .filter_map(|line| {
            let (range, rest) = line.split_once(' ')?;
            if !rest.contains("/memfd:bypath-arena") || rest.split_whitespace().nth(1)? != "00000000" {
                return None;
            }
            let (from, to) = range.split_once('-')?;
            let (from, to) = (usize::from_str_radix(from, 16).ok()?, usize::from_str_radix(to, 16).ok()?);
            Some((from, to.checked_sub(from)?))
        })
        .collect()
}

/// Where one connection's control page and rings are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Address of the control page.
    pub control: usize,
    /// Bytes of one ring.
    pub ring: u32,
}

/// Looks for the slot of a connection in an arena whose rings have `ring` bytes.
///
/// # Errors
/// As [`read`].
pub fn find(pid: u32, arena: (usize, usize), ring: u32, cookies: [u64; 2]) -> nix::Result<Option<Place>> {
    let (base, size) = arena;
    let slot_size = Geometry { slots: 1, ring }.slot_size();
    let Some(slots) =
        size.checked_sub(PAGE).filter(|rest| rest.is_multiple_of(slot_size)).map(|rest| rest / slot_size)
    else {
        return Ok(None);
    };
    let geometry = Geometry { slots: slots as u32, ring };
    if !geometry.is_valid() {
        return Ok(None);
    }
    for slot in 0..geometry.slots {
        let control = base + geometry.slot(slot);
        let mut raw = [0; 16];
        read(pid, &[(control + offset_of!(Control, cookies), 16)], &mut raw)?;
        let [first, second] = [word(&raw, 0), word(&raw, 8)];
        // Slots are handed out from the first one on: behind one that never was nothing else was, and pages there have no memory yet.
        if first == 0 && second == 0 {
            break;
        }
        if [first, second] == cookies {
            return Ok(Some(Place { control, ring }));
        }
    }
    Ok(None)
}

fn word(raw: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(raw[at..at + 8].try_into().expect("eight bytes"))
}

/// What a control page says of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Words {
    /// Whether the slot is in use, by the connection of these cookies.
    pub cookies: Option<[u64; 2]>,
    /// The tail.
    pub tail: u64,
    /// The head word.
    pub head: u64,
}

impl Place {
    /// Reads the words of direction `d`.
    ///
    /// # Errors
    /// As [`read`].
    pub fn words(&self, pid: u32, d: usize) -> nix::Result<Words> {
        let direction = self.control + offset_of!(Control, direction) + d * size_of::<Direction>();
        let mut raw = [0; 36];
        let pieces = [
            (direction + offset_of!(Direction, t) + offset_of!(TailLine, tail), 8),
            (direction + offset_of!(Direction, h) + offset_of!(HeadLine, head), 8),
            (self.control + offset_of!(Control, cookies), 16),
            (self.control + offset_of!(Control, in_use), 4),
        ];
        read(pid, &pieces, &mut raw)?;
        let used = raw[32..] != [0; 4];
        Ok(Words {
            tail: word(&raw, 0),
            head: word(&raw, 8),
            cookies: used.then(|| [word(&raw, 16), word(&raw, 24)]),
        })
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
        assert_eq!(arenas_in(maps), [(0x7f00_0000_0000, 0x21_1000)]);
    }

    #[test]
    fn what_is_not_mapped_is_an_error() {
        assert_eq!(read(std::process::id(), &[(16, 8)], &mut [0; 8]), Err(nix::Error::EFAULT));
    }
}
