//! Mappings: shared, private, of files; what they may cost, and what holds when memory is short.

use crate::page::PAGE;
use crate::syscall::{check, syscall};
use crate::{Errno, Result, fd};
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

/// Whether the kernel promises no more memory than it has (vm.overcommit_memory is 2), or does not say: a page of a memfd that somebody has
/// given back may not be had again then, and who touches it gets SIGBUS.
pub fn may_be_missed() -> bool {
    let mut text = [0; 8];
    match fd::read_file(c"/proc/sys/vm/overcommit_memory", &mut text) {
        Ok(len) => text[..len].first() != Some(&b'0') && text[..len].first() != Some(&b'1'),
        Err(_) => true,
    }
}

/// Has the kernel back a part of memory before it is used, in huge pages where there are some: `len` octets from the octet
/// `from` on, and the rest of the huge page that they end in. Returns up to which octet that was tried; what is not backed,
/// as the kernel has no memory or is older than 5.14, is when it is touched.
pub fn prepare(octets: &mut [u8], from: usize, len: usize) -> usize {
    /// Of x86-64, and of AArch64 with pages of 4 KiB. Where they are larger, parts of them are small pages.
    const HUGE: usize = 2 << 20;
    /// MADV_POPULATE_WRITE, Linux 5.14.
    const POPULATE_WRITE: usize = 23;
    let first = octets.as_ptr() as usize;
    let last = first + octets.len();
    let begin = first + from.min(octets.len());
    let end = begin.saturating_add(len).min(last).next_multiple_of(HUGE).min(last);
    let at = begin.next_multiple_of(PAGE);
    let whole = (end & !(PAGE - 1)).saturating_sub(at);
    if whole > 0 {
        for advice in [libc::MADV_HUGEPAGE as usize, POPULATE_WRITE] {
            // SAFETY: whole pages inside the slice; what they hold stays the same.
            let _ = check(unsafe { syscall(libc::SYS_madvise, [at, whole, advice, 0, 0, 0]) });
        }
    }
    end - first
}

/// A word that is this process's own: it reads 0 in any process that got a copy of this memory, by whatever system call
/// (MADV_WIPEONFORK, Linux 4.14). One that shares the memory (vfork) sees the same word.
pub fn own_word() -> Option<&'static AtomicU32> {
    /// MADV_WIPEONFORK.
    const WIPE_ON_FORK: usize = 18;
    let page = Mapping::private(4096).ok()?;
    // SAFETY: the mapping was made just now.
    check(unsafe { syscall(libc::SYS_madvise, [page.addr, page.len, WIPE_ON_FORK, 0, 0, 0]) }).ok()?;
    // SAFETY: aligned, zeroed, never unmapped.
    Some(unsafe { &*(page.addr as *const AtomicU32) })
}

/// A word that this process shares with those that are forked from it from now on.
pub fn family_word() -> Option<&'static AtomicU32> {
    let page = Mapping::shared_anonymous(4096).ok()?;
    // SAFETY: aligned, zeroed, never unmapped.
    Some(unsafe { &*(page.addr as *const AtomicU32) })
}

/// Whether what is let go has to go.
static INSISTS: AtomicBool = AtomicBool::new(false);

/// There are addresses that were let go of and are nobody's, or somebody else's by now.
static HAS_HOLES: AtomicBool = AtomicBool::new(false);

/// From now on, or not any more, what is [let go](Mapping::let_go) goes even where zeroes that can be written are refused: it can be read only then.
pub fn insist(on: bool) {
    INSISTS.store(on, Relaxed);
}

/// Types of which zeroes are a value, and which need no drop.
///
/// # Safety
/// Exactly that.
pub(crate) unsafe trait Zeroes {}

/// A value, zeroes at first, in memory of its own: what is long does not fit on a small stack.
#[derive(Debug)]
pub(crate) struct InPages<T: Zeroes>(Mapping, PhantomData<T>);

impl<T: Zeroes> InPages<T> {
    /// `None`: there is no memory.
    pub(crate) fn new() -> Option<InPages<T>> {
        const { assert!(align_of::<T>() <= 4096 && !std::mem::needs_drop::<T>()) };
        Some(InPages(Mapping::private(size_of::<T>()).ok()?, PhantomData))
    }

    /// It stays where it is.
    pub(crate) fn get(&mut self) -> &mut T {
        // SAFETY: it is aligned to a page, as long as it has to be, and zeroes, or what was written there, are a value. Nobody else has it.
        unsafe { &mut *self.0.addr().cast() }
    }
}

impl<T: Zeroes> Drop for InPages<T> {
    fn drop(&mut self) {
        // SAFETY: made by `new`; what borrowed from this value is gone.
        unsafe { self.0.unmap() };
    }
}

/// A shared mapping: its address and length. It is never unmapped on drop; see [`Mapping::unmap`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    addr: usize,
    len: usize,
}

impl Mapping {
    /// Maps `len` bytes of `fd` at `offset`, shared, readable and writable. Pages come when they are touched, and can be
    /// given back, also in a process that locks what it maps (mlockall(2), MCL_FUTURE).
    ///
    /// # Errors
    /// As mmap(2).
    pub fn shared(fd: i32, offset: u64, len: usize) -> Result<Mapping> {
        let map = Self::closed(fd, offset, len)?;
        map.open().inspect_err(|_| {
            // SAFETY: nobody has seen it.
            unsafe { map.unmap() };
        })?;
        Ok(map)
    }

    /// As [`shared`](Mapping::shared), but nobody may touch it before it, or a part of it, is [opened](Mapping::open): so nothing fills it, also where
    /// the process locks all that it has mapped.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn closed(fd: i32, offset: u64, len: usize) -> Result<Mapping> {
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        // The kernel fills a locked mapping at once, unless nobody may access it.
        let args = [0, len, libc::PROT_NONE as usize, flags as usize, fd as usize, offset as usize];
        // SAFETY: a fresh mapping chosen by the kernel touches nothing that exists.
        let addr = check(unsafe { syscall(libc::SYS_mmap, args) })?;
        let map = Mapping { addr, len };
        map.settle();
        Ok(map)
    }

    /// What is advised of a mapping that holds nothing yet, and that nobody may access.
    fn settle(&self) {
        self.unlock();
        self.keep_out_of_cores();
    }

    /// From now on it may be read and written.
    ///
    /// # Errors
    /// As mprotect(2).
    pub fn open(&self) -> Result<()> {
        let access = (libc::PROT_READ | libc::PROT_WRITE) as usize;
        // SAFETY: more may be done with it than before.
        check(unsafe { syscall(libc::SYS_mprotect, [self.addr, self.len, access, 0, 0, 0]) }).map(|_| ())
    }

    /// Maps `fd` in place of what was [let go](Mapping::let_go): addresses into it mean the new memory. What is there is plain
    /// bytes and atomics, as for [`Mapping::release`].
    ///
    /// # Errors
    /// As mmap(2); the zeroes stay then, as long as it is memory of a [sealed size](crate::memfd::sealed_size). ENOMEM: where there are none.
    pub fn refill(&self, fd: i32) -> Result<()> {
        self.refill_closed(fd)?;
        self.open().inspect_err(|_| {
            let _ = self.let_go();
        })
    }

    /// As [`refill`](Mapping::refill), but nobody may touch it before it, or a part of it, is [opened](Mapping::open).
    ///
    /// # Errors
    /// As [`refill`](Mapping::refill).
    pub fn refill_closed(&self, fd: i32) -> Result<()> {
        if HAS_HOLES.load(Relaxed) {
            return Err(Errno::NOMEM);
        }
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let args = [self.addr, self.len, libc::PROT_NONE as usize, flags as usize, fd as usize, 0];
        // SAFETY: the range is this mapping's, and what replaces it is as long.
        check(unsafe { syscall(libc::SYS_mmap, args) }).inspect_err(|e| {
            // What is limited is found before anything is unmapped; of others nobody knows.
            if *e != Errno::NOMEM {
                HAS_HOLES.store(true, Relaxed);
            }
        })?;
        self.settle();
        Ok(())
    }

    /// Maps zeroes in its place, shared with processes that are forked from now on; who has the old memory keeps what is there. Addresses into it mean the
    /// new memory. What is there is plain bytes and atomics, as for [`Mapping::release`].
    ///
    /// # Errors
    /// As mmap(2); nothing has changed then.
    pub fn renew(&self) -> Result<()> {
        let rights = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_SHARED | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        let args = [self.addr, self.len, rights as usize, kind as usize, usize::MAX, 0];
        // SAFETY: the range is this mapping's, and what replaces it is as long.
        check(unsafe { syscall(libc::SYS_mmap, args) })?;
        self.keep_out_of_cores();
        Ok(())
    }

    /// What is shared with others is no part of a core dump: that would have the kernel fill every page of it, and tell what is said on
    /// other connections, too. A kernel that does not know the advice dumps it.
    fn keep_out_of_cores(&self) {
        // SAFETY: changes no contents.
        unsafe { syscall(libc::SYS_madvise, [self.addr, self.len, libc::MADV_DONTDUMP as usize, 0, 0, 0]) };
    }

    /// Unlocks it if it is locked, and gives back what fills it. Only for a mapping that holds nothing yet.
    fn unlock(&self) {
        let give_back = || {
            let args = [self.addr, self.len, libc::MADV_DONTNEED as usize, 0, 0, 0];
            // SAFETY: what is given back was never written.
            check(unsafe { syscall(libc::SYS_madvise, args) })
        };
        // Locked pages cannot be given back: so the kernel tells of them, by a call that every filter allows.
        if give_back() == Err(Errno::INVAL) {
            // SAFETY: changes no contents.
            unsafe { syscall(libc::SYS_munlock, [self.addr, self.len, 0, 0, 0, 0]) };
            let _ = give_back();
        }
    }

    /// Maps `len` bytes of zeroes, shared with processes forked from this one, without a descriptor.
    ///
    /// # Errors
    /// As mmap(2).
    pub fn shared_anonymous(len: usize) -> Result<Mapping> {
        Self::anonymous(len, libc::MAP_SHARED).inspect(Mapping::keep_out_of_cores)
    }

    fn anonymous(len: usize, kind: i32) -> Result<Mapping> {
        // SAFETY: a fresh mapping chosen by the kernel touches nothing that exists.
        let addr = check(unsafe {
            syscall(
                libc::SYS_mmap,
                [
                    0,
                    len,
                    (libc::PROT_READ | libc::PROT_WRITE) as usize,
                    (kind | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize,
                    usize::MAX,
                    0,
                ],
            )
        })?;
        Ok(Mapping { addr, len })
    }

    /// Maps `len` bytes of zeroes, private to this process (copied at fork).
    ///
    /// # Errors
    /// As mmap(2).
    pub fn private(len: usize) -> Result<Mapping> {
        Self::anonymous(len, libc::MAP_PRIVATE)
    }

    /// The mapping of `len` bytes at `addr`.
    ///
    /// # Safety
    /// It is one that another value of this type stood for, and only plain bytes and atomics are kept there.
    pub const unsafe fn of(addr: usize, len: usize) -> Mapping {
        Mapping { addr, len }
    }

    /// The part of it, in whole pages, from the octet `from` on; as much as there is of it.
    pub fn part(&self, from: usize, len: usize) -> Mapping {
        let from = from.min(self.len);
        Mapping { addr: self.addr + from, len: len.min(self.len - from) }
    }

    /// First address.
    pub const fn addr(&self) -> *mut u8 {
        self.addr as *mut u8
    }

    /// Length in bytes.
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it is empty (it never is).
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Puts zeroes in its place that are private to this process: what it was mapped from is let go, while addresses into it
    /// stay valid. Neighbours that were let go become one mapping, of which a process may have so many only. Contents are
    /// plain bytes and atomics, as for [`Mapping::release`].
    ///
    /// # Errors
    /// As mmap(2), of which ENOMEM is where the limit of data (RLIMIT_DATA) is reached; all is as it was then, but for who [insists](insist).
    pub fn let_go(&self) -> Result<()> {
        if self.len == 0 {
            return Ok(());
        }
        self.put_zeroes().or_else(|e| if INSISTS.load(Relaxed) { self.put_nothing() } else { Err(e) })
    }

    /// Beside it first: what is refused there leaves this as it is. They begin as one page: where everything is locked (mlockall(2)) it alone is locked at
    /// first, and has to have room in RLIMIT_MEMLOCK.
    fn put_zeroes(&self) -> Result<()> {
        let mut zeroes = Mapping::untouchable(0, PAGE, 0)?;
        zeroes.settle();
        let moved = zeroes.open().and_then(|()| {
            let how = libc::MREMAP_MAYMOVE as usize;
            let args = [zeroes.addr, PAGE, self.len, how, 0, 0];
            // SAFETY: nobody has seen that page.
            let addr = check(unsafe { syscall(libc::SYS_mremap, args) })?;
            zeroes = Mapping { addr, len: self.len };
            let how = how | libc::MREMAP_FIXED as usize;
            let args = [addr, self.len, self.len, how, self.addr, 0];
            // SAFETY: the range is this mapping's, and what replaces it is as long, readable and writable.
            check(unsafe { syscall(libc::SYS_mremap, args) })
        });
        if moved.is_err() {
            // SAFETY: nobody has seen it.
            unsafe { zeroes.unmap() };
        }
        moved.map(|_| ())
    }

    /// Zeroes that can be read only are no data, and nobody limits them, but where the process has more addresses already than it may: it has none here then.
    fn put_nothing(&self) -> Result<()> {
        if Mapping::untouchable(self.addr, self.len, libc::MAP_FIXED).is_err() {
            HAS_HOLES.store(true, Relaxed);
            // SAFETY: what is let go nobody uses any more; who does all the same ends, and reads nothing that is another user's.
            return check(unsafe { syscall(libc::SYS_munmap, [self.addr, self.len, 0, 0, 0, 0]) })
                .map(|_| ());
        }
        self.unlock();
        // SAFETY: the mapping was made just now.
        check(unsafe {
            syscall(libc::SYS_mprotect, [self.addr, self.len, libc::PROT_READ as usize, 0, 0, 0])
        })
        .map(|_| ())
    }

    /// Private memory that nobody may access yet. `how`: MAP_FIXED, in place of a mapping that is as long.
    fn untouchable(addr: usize, len: usize, how: i32) -> Result<Mapping> {
        let kind = how | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        let args = [addr, len, libc::PROT_NONE as usize, kind as usize, usize::MAX, 0];
        // SAFETY: a fresh mapping chosen by the kernel, or the caller's own range.
        let addr = check(unsafe { syscall(libc::SYS_mmap, args) })?;
        Ok(Mapping { addr, len })
    }

    /// Unmaps it.
    ///
    /// # Safety
    /// Nobody in this process holds a reference or pointer into it, or ever uses one again.
    pub unsafe fn unmap(self) {
        // SAFETY: the caller's contract.
        unsafe { syscall(libc::SYS_munmap, [self.addr, self.len, 0, 0, 0, 0]) };
    }

    /// Backs `[offset, offset + len)` with memory now, so that touching it cannot raise SIGBUS.
    ///
    /// # Errors
    /// ENOMEM or EFAULT when there is no memory; EINVAL on kernels before 5.14 (callers treat it as done).
    pub fn populate(&self, offset: usize, len: usize) -> Result<()> {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return Err(Errno::INVAL);
        }
        /// MADV_POPULATE_WRITE, Linux 5.14.
        const POPULATE_WRITE: usize = 23;
        // SAFETY: populating shared pages changes no contents.
        check(unsafe { syscall(libc::SYS_madvise, [self.addr + offset, len, POPULATE_WRITE, 0, 0, 0]) })
            .map(|_| ())
    }

    /// Gives the pages of `[offset, offset + len)` back to the kernel; they read as zeroes afterwards.
    pub fn release(&self, offset: usize, len: usize) {
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            return;
        }
        // SAFETY: the range lies inside this mapping, whose contents are plain bytes and atomics.
        unsafe { syscall(libc::SYS_madvise, [self.addr + offset, len, libc::MADV_REMOVE as usize, 0, 0, 0]) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memfd;

    /// Octets that are backed, in whole pages.
    fn backed(octets: &[u8]) -> usize {
        let first = (octets.as_ptr() as usize).next_multiple_of(PAGE);
        let pages = (octets.as_ptr() as usize + octets.len() - first) / PAGE;
        let mut there = vec![0u8; pages];
        let args = [first, pages * PAGE, there.as_mut_ptr() as usize, 0, 0, 0];
        // SAFETY: one octet for each page.
        check(unsafe { syscall(libc::SYS_mincore, args) }).expect("mincore");
        there.iter().filter(|page| **page & 1 == 1).count() * PAGE
    }

    #[test]
    fn memory_is_prepared_piece_by_piece_and_no_further() {
        const MIB: usize = 1 << 20;
        let mut octets = vec![0u8; 64 * MIB];
        assert!(backed(&octets) < MIB);
        let mut at = 0;
        let mut pieces = 0;
        while at < octets.len() {
            let end = prepare(&mut octets, at, 2 * MIB);
            assert!(end > at && end <= at + 4 * MIB, "{at} {end}");
            (at, pieces) = (end, pieces + 1);
            // All of it, and nothing but it; no more than the pages at the ends are not its own.
            let there = backed(&octets);
            assert!(there <= at + PAGE && there + 2 * PAGE >= at, "{there} of {at}");
        }
        assert!((16..=33).contains(&pieces), "{pieces}");
        assert!(octets.iter().all(|octet| *octet == 0));
    }

    /// Whether this is a process for this test alone; else one is made, and has passed it.
    fn is_alone(test: &str) -> bool {
        const CHILD: &str = "BYPATH_TEST_ALONE";
        if std::env::var_os(CHILD).is_some() {
            return true;
        }
        let out = std::process::Command::new(std::env::current_exe().expect("this program"))
            .args([test, "--exact", "--nocapture"])
            .env(CHILD, "1")
            .output()
            .expect("starts");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        false
    }

    /// Octets of this process that are locked, of those that it has mapped.
    fn locked() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
        let line = status.lines().find_map(|l| l.strip_prefix("VmLck:")).expect("VmLck");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    }

    /// Octets of this process that were in memory at most.
    fn most_resident() -> usize {
        let status = std::fs::read_to_string("/proc/self/status").expect("/proc is there");
        let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:")).expect("VmHWM");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number") << 10
    }

    /// In a process of its own, whose data has a limit from now on.
    #[test]
    fn who_insists_lets_go_where_there_may_be_no_more_data() {
        const LEN: usize = 64 << 20;
        if !is_alone("mem::tests::who_insists_lets_go_where_there_may_be_no_more_data") {
            return;
        }
        let fd = memfd::create(c"test", LEN, 3).expect("memfd");
        let map = Mapping::shared(fd, 0, LEN).expect("mapped");
        // SAFETY: mapped, and seen by nobody else.
        let octet = unsafe { &*map.addr().cast::<std::sync::atomic::AtomicU8>() };
        octet.store(7, Relaxed);
        let limit = libc::rlimit { rlim_cur: 32 << 20, rlim_max: 32 << 20 };
        // SAFETY: changes no contents.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_DATA, &limit) }, 0);
        assert_eq!(map.let_go(), Err(Errno::NOMEM));
        assert_eq!(octet.load(Relaxed), 7, "all is as it was");
        insist(true);
        assert_eq!(map.let_go(), Ok(()));
        assert_eq!(octet.load(Relaxed), 0);
    }

    /// In a process of its own, which has more addresses from now on than it may.
    #[test]
    fn who_insists_lets_go_where_there_may_be_no_addresses_at_all() {
        const LEN: usize = 1 << 20;
        if !is_alone("mem::tests::who_insists_lets_go_where_there_may_be_no_addresses_at_all") {
            return;
        }
        let fd = memfd::create(c"bypath-test-addresses", LEN, 3).expect("memfd");
        let map = Mapping::shared(fd, 0, LEN).expect("mapped");
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc is there");
            maps.contains("bypath-test-addresses")
        };
        assert!(is_mapped());
        let limit = libc::rlimit { rlim_cur: 4096, rlim_max: 4096 };
        // SAFETY: changes no contents.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limit) }, 0);
        assert_eq!(map.let_go(), Err(Errno::NOMEM));
        insist(true);
        assert_eq!(map.let_go(), Ok(()));
        assert!(!is_mapped());
        // Those addresses may be something else's by now.
        assert_eq!(map.refill(fd), Err(Errno::NOMEM));
    }

    /// What the kernel says of the mapping that begins at this address: `dd` is one that it does not dump.
    fn flags(map: &Mapping) -> String {
        let all = std::fs::read_to_string("/proc/self/smaps").expect("/proc is there");
        let within = |line: &str| {
            let (from, to) = line.split_whitespace().next()?.split_once('-')?;
            let [from, to] = [from, to].map(|end| usize::from_str_radix(end, 16).ok());
            Some((from?..to?).contains(&map.addr))
        };
        let mut rest = all.lines().skip_while(|line| within(line) != Some(true));
        rest.find_map(|line| line.strip_prefix("VmFlags:")).expect("flags").to_owned()
    }

    #[test]
    fn what_is_shared_is_in_no_core_dump() {
        const LEN: usize = 1 << 20;
        let is_dumped = |map: &Mapping| !flags(map).contains(" dd");
        let fd = memfd::create(c"test", LEN, 3).expect("memfd");
        let map = Mapping::shared(fd, 0, LEN).expect("mapped");
        assert!(!is_dumped(&map));
        map.let_go().expect("let go");
        assert!(!is_dumped(&map));
        map.refill(fd).expect("mapped again");
        assert!(!is_dumped(&map));
        map.renew().expect("renewed");
        assert!(!is_dumped(&map));
        assert!(!is_dumped(&Mapping::shared_anonymous(LEN).expect("mapped")));
        // What is the process's own is.
        assert!(is_dumped(&Mapping::private(LEN).expect("mapped")));
    }

    /// In a process of its own: the lock is one of the whole process.
    #[test]
    fn what_is_mapped_is_not_locked_where_everything_is() {
        // An ordinary user may lock 8 MiB.
        const LEN: usize = 1 << 20;
        if !is_alone("mem::tests::what_is_mapped_is_not_locked_where_everything_is") {
            return;
        }
        // SAFETY: changes no contents.
        let done = unsafe { libc::mlockall(libc::MCL_FUTURE) };
        assert_eq!(done, 0, "mlockall: {}", std::io::Error::last_os_error());
        let before = locked();
        let fd = memfd::create(c"test", LEN, 3).expect("memfd");
        let maps: Vec<_> = (0..4).map(|_| Mapping::shared(fd, 0, LEN).expect("mapped")).collect();
        for map in &maps {
            // SAFETY: mapped, and seen by nobody else.
            let octets = unsafe { std::slice::from_raw_parts_mut(map.addr(), LEN) };
            assert_eq!(backed(octets), 0);
            octets[5] = 1;
            assert!(backed(octets) > 0);
            map.release(0, LEN);
            assert_eq!(backed(octets), 0);
        }
        let resident = most_resident();
        for map in &maps {
            map.let_go().expect("let go");
            // SAFETY: as above: zeroes of this process's own.
            assert_eq!(backed(unsafe { std::slice::from_raw_parts(map.addr(), LEN) }), 0);
        }
        assert!(
            most_resident() < resident + LEN,
            "{} {resident}: zeroes were put in all of it",
            most_resident()
        );
        // Whatever else was mapped meanwhile is less than one of them.
        assert!(locked() < before + LEN, "{} {before}", locked());
        let own = vec![0u8; LEN];
        assert!(locked() >= before + LEN && own[LEN - 1] == 0, "nothing is locked: this test shows nothing");
    }

    /// In a process of its own, which has locked all that it may but for a few pages.
    #[test]
    fn what_is_mapped_is_let_go_where_nothing_more_may_be_locked() {
        const LEN: usize = 4 << 20;
        if !is_alone("mem::tests::what_is_mapped_is_let_go_where_nothing_more_may_be_locked") {
            return;
        }
        let fd = memfd::create(c"test", LEN, 3).expect("memfd");
        let map = Mapping::shared(fd, 0, LEN).expect("mapped");
        // SAFETY: mapped, and seen by nobody else.
        let octet = unsafe { &*map.addr().cast::<std::sync::atomic::AtomicU8>() };
        octet.store(7, Relaxed);
        // Who may lock without a limit (CAP_IPC_LOCK) is another user from here on, who may not.
        // SAFETY: changes no contents.
        let done = unsafe {
            libc::mlockall(libc::MCL_FUTURE) == 0
                && libc::setrlimit(
                    libc::RLIMIT_MEMLOCK,
                    &libc::rlimit { rlim_cur: 1 << 20, rlim_max: 1 << 20 },
                ) == 0
                && (libc::geteuid() != 0 || libc::syscall(libc::SYS_setresuid, 65533, 65533, 65533) == 0)
        };
        assert!(done, "{}", std::io::Error::last_os_error());
        assert!(Mapping::private(LEN).is_err(), "it may lock that much: this test shows nothing");
        assert_eq!(map.let_go(), Ok(()));
        assert_eq!(octet.load(Relaxed), 0);
        octet.store(8, Relaxed);
        assert_eq!(octet.load(Relaxed), 8);
    }

    #[test]
    fn what_memory_holds_is_the_same_when_it_was_prepared() {
        let mut octets: Vec<u8> = (0..3_000_000u32).map(|n| n as u8).collect();
        let before = octets.clone();
        for (from, len) in [(0, 0), (5, 1), (PAGE, 3 * PAGE + 1), (2_999_999, 1), (1_000_000, usize::MAX)] {
            let end = prepare(&mut octets, from, len);
            assert!(end >= from && end <= before.len(), "{from} {len}: {end}");
        }
        for from in [3_000_000, 3_000_001, usize::MAX] {
            assert_eq!(prepare(&mut octets, from, 4096), 3_000_000);
        }
        assert_eq!(prepare(&mut [], 0, 4096), 0);
        assert!(octets == before);
    }
}
