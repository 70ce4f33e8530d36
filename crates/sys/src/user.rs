//! Memory that the calling program passed to a socket call: addresses as given, never Rust references.

use crate::page::{Access, Pages};
use crate::{Errno, Result};
use std::marker::PhantomData;

/// One element of a scatter/gather list, laid out as `struct iovec`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct IoVec {
    /// Address as the program gave it.
    pub base: usize,
    /// Length in bytes.
    pub len: usize,
}

/// A scatter/gather list of the calling program.
///
/// Holding one means: its creator vouches that these are the addresses that the program passed to a call that
/// is still running. The kernel checks them itself; copies by our own code come after [`UserVec::admit`] and [`UserVec::reach`].
#[derive(Clone, Copy, Debug)]
pub struct UserVec<'a> {
    iov: &'a [IoVec],
    _program: PhantomData<*const u8>,
}

/// End of user space, as long as a program does not ask for higher addresses.
#[cfg(target_arch = "x86_64")]
const USER_END: usize = 0x7fff_ffff_f000;
#[cfg(not(target_arch = "x86_64"))]
const USER_END: usize = 1 << 48;

/// Most bytes of one call (MAX_RW_COUNT); the kernel cuts longer ones.
pub const MAX_BYTES: usize = 0x7fff_f000;

/// Whether `len` bytes at `base` lie in user space, mapped or not: the kernel's access_ok.
#[inline]
pub const fn in_user_space(base: usize, len: usize) -> bool {
    match base.checked_add(len) {
        Some(end) => end <= USER_END,
        None => false,
    }
}

impl<'a> UserVec<'a> {
    /// Wraps the program's list.
    ///
    /// # Safety
    /// The addresses are those that the program passed; if they are mapped, the program allows them to be
    /// accessed (read for a send, written for a receive) until the call returns.
    pub const unsafe fn new(iov: &'a [IoVec]) -> Self {
        UserVec { iov, _program: PhantomData }
    }

    /// The elements.
    pub const fn elements(&self) -> &'a [IoVec] {
        self.iov
    }

    /// What the kernel checks before it looks at the socket. Returns how many bytes the call is about.
    ///
    /// # Errors
    /// EINVAL for a length above `isize::MAX` anywhere in the list, then EFAULT for an element that is not in user
    /// space.
    #[inline]
    pub fn admit(&self) -> Result<usize> {
        if self.iov.iter().any(|v| v.len > isize::MAX as usize) {
            return Err(Errno::INVAL);
        }
        let mut sum = 0;
        for v in self.iov {
            if !in_user_space(v.base, v.len) {
                return Err(Errno::FAULT);
            }
            // No overflow: both are below 2^63.
            sum = (sum + v.len).min(MAX_BYTES);
        }
        Ok(sum)
    }

    /// Writes octets behind the first `skip` bytes, as many as there is room for. [`UserVec::reach`] has said that they can be written.
    pub fn fill(&self, mut skip: usize, mut octets: &[u8]) {
        for v in self.iov {
            if skip >= v.len {
                skip -= v.len;
                continue;
            }
            let (now, rest) = octets.split_at((v.len - skip).min(octets.len()));
            // SAFETY: who made this vouches for the addresses, and no more than the element's octets are written.
            unsafe { std::ptr::copy_nonoverlapping(now.as_ptr(), (v.base + skip) as *mut u8, now.len()) };
            (skip, octets) = (0, rest);
        }
    }

    /// How many of the `n` bytes from `skip` on come before the first one whose page cannot be accessed so.
    #[inline]
    pub fn reach<const N: usize>(&self, skip: usize, n: usize, access: Access, seen: &Pages<N>) -> usize {
        let (mut skip, mut done) = (skip, 0);
        for v in self.iov {
            if done == n {
                break;
            }
            if skip >= v.len {
                skip -= v.len;
                continue;
            }
            let len = (v.len - skip).min(n - done);
            let good = seen.reach(v.base + skip, len, access);
            done += good;
            if good < len {
                break;
            }
            skip = 0;
        }
        done
    }
}

impl UserVec<'_> {
    /// Calls `f` with what follows the first `skip` bytes; the list is built in `room` and cut to its length.
    pub fn after<R>(&self, skip: usize, room: &mut [IoVec], f: impl FnOnce(UserVec<'_>) -> R) -> R {
        let (mut skip, mut used) = (skip, 0);
        for v in self.iov {
            if skip >= v.len {
                skip -= v.len;
                continue;
            }
            let Some(place) = room.get_mut(used) else { break };
            *place = IoVec { base: v.base + skip, len: v.len - skip };
            used += 1;
            skip = 0;
        }
        f(UserVec { iov: &room[..used], _program: PhantomData })
    }
}

/// The room for control messages that the calling program gave to a receive, and what the kernel stored there.
#[derive(Debug)]
pub struct UserControl {
    base: usize,
    room: usize,
    told: Option<(usize, i32)>,
}

impl UserControl {
    /// Wraps the program's room; nothing is stored yet.
    ///
    /// # Safety
    /// The address is the one that the program passed; if it is mapped, the program allows it to be written until the
    /// call returns.
    pub const unsafe fn new(base: usize, room: usize) -> Self {
        UserControl { base, room, told: None }
    }

    /// What the kernel answered to the last receive: how many bytes of control messages it stored, and `MSG_*` flags.
    /// `None` if it was not asked.
    pub const fn told(&self) -> Option<(usize, i32)> {
        self.told
    }

    pub(crate) const fn room(&self) -> (usize, usize) {
        (self.base, self.room)
    }

    pub(crate) const fn stored(&mut self, used: usize, flags: i32) {
        self.told = Some((used, flags));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn admit(list: &[(usize, usize)]) -> Result<usize> {
        let iov: Vec<IoVec> = list.iter().map(|&(base, len)| IoVec { base, len }).collect();
        // SAFETY: nothing is accessed.
        unsafe { UserVec::new(&iov) }.admit()
    }

    #[test]
    fn ranges_are_judged_as_the_kernel_does() {
        assert_eq!(admit(&[]), Ok(0));
        assert_eq!(admit(&[(0, 10), (1, 5)]), Ok(15));
        assert_eq!(admit(&[(4096, usize::MAX)]), Err(Errno::INVAL));
        assert_eq!(admit(&[(4096, isize::MAX as usize)]), Err(Errno::FAULT));
        // A bad length counts before a bad address, wherever it stands.
        assert_eq!(admit(&[(usize::MAX, 10), (4096, usize::MAX)]), Err(Errno::INVAL));
        assert_eq!(admit(&[(USER_END - 10, 10)]), Ok(10));
        assert_eq!(admit(&[(USER_END - 10, 11)]), Err(Errno::FAULT));
        assert_eq!(admit(&[(4096, 1 << 31), (4096, 1 << 31)]), Ok(MAX_BYTES));
    }

    #[test]
    fn octets_are_written_behind_what_is_there() {
        let mut room = [0u8; 12];
        let at = room.as_mut_ptr() as usize;
        let iov = [(at, 3), (0, 0), (at + 4, 4), (at + 9, 3)].map(|(base, len)| IoVec { base, len });
        // SAFETY: live bytes.
        let list = unsafe { UserVec::new(&iov) };
        list.fill(2, b"abcdef");
        list.fill(9, b"xyz");
        list.fill(10, b"z");
        assert_eq!(&room, b"\0\0a\0bcde\0f\0x");
    }

    #[test]
    fn reach_counts_over_elements() {
        let good = [0u8; 64];
        let at = good.as_ptr() as usize;
        let iov = [(at, 10), (0, 0), (at + 10, 20), (0, 5), (at, 5)].map(|(base, len)| IoVec { base, len });
        // SAFETY: live bytes; nothing is accessed through the others.
        let list = unsafe { UserVec::new(&iov) };
        let seen = Pages::<16>::new();
        assert_eq!(list.reach(0, 30, Access::Read, &seen), 30);
        assert_eq!(list.reach(0, 31, Access::Read, &seen), 30);
        assert_eq!(list.reach(12, 25, Access::Read, &seen), 18);
        assert_eq!(list.reach(30, 5, Access::Read, &seen), 0);
        assert_eq!(list.reach(35, 5, Access::Read, &seen), 5);
    }
}
