//! Which pages of the calling program can be accessed: what the kernel finds out when it copies, asked beforehand.
//!
//! Pages that were good are remembered and not asked for again: a program that takes a page away and then passes
//! it to a call again gets its SIGSEGV here instead of EFAULT.

use crate::syscall::{check, syscall};
use crate::{Errno, Result, clock};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Smallest page of both architectures; larger ones are asked about in parts.
pub(crate) const PAGE: usize = 4096;

/// What is going to be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Bytes are read from it.
    Read,
    /// Bytes are stored to it.
    Write,
}

/// No question may be put to the kernel any more.
static SEALED: AtomicBool = AtomicBool::new(false);

/// From now on nobody asks: pages that are not known to be good cannot be accessed, so that calls about them go to the
/// kernel as they are.
pub fn seal() {
    SEALED.store(true, Relaxed);
}

/// Low bits of an entry.
const READABLE: usize = 1;
const WRITABLE: usize = 2;

/// Pages that were good when they were last asked about: `N` (a power of two) entries, found by the page's number.
///
/// Every entry is true by itself, so threads and signal handlers may share it without any order.
#[derive(Debug)]
pub struct Pages<const N: usize>([AtomicUsize; N]);

impl<const N: usize> Default for Pages<N> {
    fn default() -> Self {
        Self::new()
    }
}

impl<const N: usize> Pages<N> {
    /// None known.
    pub const fn new() -> Self {
        const { assert!(N.is_power_of_two()) };
        Pages([const { AtomicUsize::new(0) }; N])
    }

    /// Forgets all (in a forked child some pages may be missing).
    pub fn forget(&self) {
        // Written only where need be: it may be the first write since a fork.
        self.0.iter().filter(|e| e.load(Relaxed) != 0).for_each(|e| e.store(0, Relaxed));
    }

    #[inline]
    fn entry(&self, page: usize) -> &AtomicUsize {
        &self.0[(page / PAGE) & (N - 1)]
    }

    #[inline]
    fn knows(&self, page: usize, access: Access) -> bool {
        let e = self.entry(page).load(Relaxed);
        match access {
            Access::Read => e & !WRITABLE == page | READABLE,
            Access::Write => e == page | READABLE | WRITABLE,
        }
    }

    fn learn(&self, page: usize, access: Access) {
        let bits = if access == Access::Write { READABLE | WRITABLE } else { READABLE };
        // A page known as writable stays so.
        if !self.knows(page, access) {
            self.entry(page).store(page | bits, Relaxed);
        }
    }

    /// Whether the `len` bytes at `base` are known to be accessible: nobody is asked.
    #[inline]
    pub fn is_known(&self, base: usize, len: usize, access: Access) -> bool {
        let page = base & !(PAGE - 1);
        len == 0 || base - page + len <= PAGE && self.knows(page, access)
    }

    /// How many of the `len` bytes at `base` lie before the first byte that cannot be accessed. The range is
    /// inside the address space ([`crate::user::in_user_space`]).
    #[inline]
    pub fn reach(&self, base: usize, len: usize, access: Access) -> usize {
        if self.is_known(base, len, access) { len } else { self.reach_far(base, len, access) }
    }

    #[inline(never)]
    fn reach_far(&self, base: usize, len: usize, access: Access) -> usize {
        if SEALED.load(Relaxed) {
            return 0;
        }
        let end = base + len;
        let mut page = base & !(PAGE - 1);
        while page < end {
            if self.knows(page, access) {
                page += PAGE;
                continue;
            }
            // Several pages at once; where that fails (or is unknown, before Linux 5.14) each for itself.
            if end - page > PAGE && populate(page, end - page, access).is_ok() {
                (page..end).step_by(PAGE).for_each(|p| self.learn(p, access));
                return len;
            }
            if !probe(page.max(base), access) {
                return page.saturating_sub(base);
            }
            self.learn(page, access);
            page += PAGE;
        }
        len
    }
}

/// Makes the kernel touch the pages from `page` on that make up `len` bytes.
#[cold]
fn populate(page: usize, len: usize, access: Access) -> Result<()> {
    /// MADV_POPULATE_READ and MADV_POPULATE_WRITE, Linux 5.14.
    const POPULATE: [usize; 2] = [22, 23];
    let advice = POPULATE[usize::from(access == Access::Write)];
    let len = len.next_multiple_of(PAGE);
    // SAFETY: it faults pages in as the copy that follows would, and changes no contents.
    check(unsafe { syscall(libc::SYS_madvise, [page, len, advice, 0, 0, 0]) }).map(|_| ())
}

/// Whether the kernel can access the memory at `at`. It changes nothing there, and needs no call that a sandbox
/// would forbid; anything but EFAULT counts as yes.
#[cold]
fn probe(at: usize, access: Access) -> bool {
    if at < PAGE {
        // Never mapped; and NULL would mean "no set" to the call below.
        return false;
    }
    if !clock::has_vdso()
        && let r @ (Ok(()) | Err(Errno::FAULT | Errno::NOMEM)) = populate(at & !(PAGE - 1), 1, access)
    {
        // An interpreter of machine code looks at the arguments of the calls below by itself, and complains of them.
        return r.is_ok();
    }
    match access {
        Access::Read => {
            // The set is copied in before the unknown operation is refused.
            let set = at & !7;
            // SAFETY: no signal mask is changed: there is no such operation.
            let r = check(unsafe { syscall(libc::SYS_rt_sigprocmask, [usize::MAX, set, 0, 8, 0, 0]) });
            r != Err(Errno::FAULT)
        }
        Access::Write => {
            static NOBODY: AtomicU32 = AtomicU32::new(0);
            /// FUTEX_OP_OR with 0 leaves the word as it is; sleepers there are woken only if it were -2048.
            const OR_NOTHING_IF_EQUAL: usize = 2 << 28 | 0x800;
            let word = at & !3;
            let operation = (libc::FUTEX_WAKE_OP | libc::FUTEX_PRIVATE_FLAG) as usize;
            // SAFETY: an atomic OR with nothing on a word of the program.
            let r = check(unsafe {
                syscall(
                    libc::SYS_futex,
                    [NOBODY.as_ptr() as usize, operation, 0, 0, word, OR_NOTHING_IF_EQUAL],
                )
            });
            r != Err(Errno::FAULT)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `count` fresh pages with the protection `last` on the last one.
    fn pages(count: usize, last: i32) -> usize {
        let len = count * PAGE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a fresh mapping.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        assert_ne!(at, libc::MAP_FAILED);
        // SAFETY: the last page of that mapping.
        assert_eq!(unsafe { libc::mprotect(at.byte_add(len - PAGE), PAGE, last) }, 0);
        at as usize
    }

    #[test]
    fn reach_ends_at_the_first_bad_page() {
        let at = pages(4, libc::PROT_NONE);
        for access in [Access::Read, Access::Write] {
            let seen = Pages::<16>::new();
            for _ in 0..2 {
                assert_eq!(seen.reach(at + 10, 100, access), 100);
                assert_eq!(seen.reach(at + 10, 4 * PAGE - 10, access), 3 * PAGE - 10);
                assert_eq!(seen.reach(at + 3 * PAGE - 5, 10, access), 5);
                assert_eq!(seen.reach(at + 3 * PAGE, 1, access), 0);
                assert_eq!(seen.reach(at, 3 * PAGE, access), 3 * PAGE);
            }
        }
    }

    #[test]
    fn read_only_memory_is_not_writable_though_it_is_known() {
        let at = pages(2, libc::PROT_READ);
        let seen = Pages::<16>::new();
        assert_eq!(seen.reach(at, 2 * PAGE, Access::Read), 2 * PAGE);
        assert_eq!(seen.reach(at, 2 * PAGE, Access::Write), PAGE);
        assert_eq!(seen.reach(at + PAGE, 1, Access::Write), 0);
        assert_eq!(seen.reach(at + PAGE, 1, Access::Read), 1);
    }

    #[test]
    fn low_and_unmapped_addresses_are_bad() {
        // Below everything that a position-independent program maps: nothing that another test maps comes here.
        let at = 1 << 20;
        let seen = Pages::<16>::new();
        for access in [Access::Read, Access::Write] {
            assert_eq!(seen.reach(0, 1, access), 0);
            assert_eq!(seen.reach(1, 10, access), 0);
            assert_eq!(seen.reach(at, 1, access), 0);
            assert_eq!(seen.reach(at, 0, access), 0);
        }
    }

    #[test]
    fn asking_changes_no_byte() {
        let at = pages(2, libc::PROT_READ | libc::PROT_WRITE);
        // SAFETY: two pages of our own, which nobody else uses.
        let bytes = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, 2 * PAGE) };
        bytes.fill(0x5a);
        for (from, len) in [(0, 1), (PAGE - 1, 1), (3, 2 * PAGE - 3)] {
            let seen = Pages::<4>::new();
            assert_eq!(seen.reach(at + from, len, Access::Read), len);
            assert_eq!(seen.reach(at + from, len, Access::Write), len);
        }
        assert!(bytes.iter().all(|b| *b == 0x5a));
    }

    #[test]
    fn more_pages_than_entries() {
        let at = pages(9, libc::PROT_NONE);
        let seen = Pages::<4>::new();
        for _ in 0..2 {
            assert_eq!(seen.reach(at, 8 * PAGE, Access::Write), 8 * PAGE);
            assert_eq!(seen.reach(at, 9 * PAGE, Access::Write), 8 * PAGE);
        }
    }
}
