//! Memory that the calling program passed to a socket call: addresses as given, never Rust references.

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
/// is still running. The kernel checks them itself; copies by our own code go through [`UserVec::plausible`].
#[derive(Clone, Copy, Debug)]
pub struct UserVec<'a> {
    iov: &'a [IoVec],
    _program: PhantomData<*const u8>,
}

/// Lowest address that can be mapped (vm.mmap_min_addr is at least one page) and end of user space.
const USER_START: usize = 4096;
const USER_END: usize = 0x7fff_ffff_f000;

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

    /// Sum of the lengths; `None` if it exceeds `isize::MAX` (the kernel answers EINVAL).
    pub fn total(&self) -> Option<usize> {
        let mut sum = 0usize;
        for v in self.iov {
            sum = sum.checked_add(v.len).filter(|s| *s <= isize::MAX as usize)?;
        }
        Some(sum)
    }

    /// Whether every non-empty element lies in user space; otherwise the kernel would answer EFAULT.
    pub fn plausible(&self) -> bool {
        self.iov.iter().all(|v| {
            v.len == 0
                || (v.base >= USER_START && v.base.checked_add(v.len).is_some_and(|end| end <= USER_END))
        })
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
