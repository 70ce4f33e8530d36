//! select and pselect, answered by poll where a descriptor is followed.

use crate::errno;
use crate::memory;
use crate::message::now;
use crate::real::hook;
use bypath_sockets::hook::{self, PollFd, Reason, Verdict};
use bypath_sys::fd;
use bypath_sys::thread::stack_address;
use libc::{c_int, fd_set, sigset_t, timespec, timeval};

/// Descriptors that one call can name here; beyond that, followed ones go back to the kernel.
const MAX: usize = 1024;
/// So many find room on the stack, which may be that of a small thread.
const FEW: usize = 8;
const BITS: usize = 64;

// The kernel's sets (fs/select.c): which poll events count for which set.
const READ: i16 =
    libc::POLLIN | libc::POLLRDNORM | libc::POLLRDBAND | libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;
const WRITE: i16 = libc::POLLOUT | libc::POLLWRNORM | libc::POLLWRBAND | libc::POLLERR | libc::POLLNVAL;
const EXCEPT: i16 = libc::POLLPRI | libc::POLLNVAL;
/// poll() reports these unasked.
const UNASKED: i16 = libc::POLLHUP | libc::POLLERR | libc::POLLNVAL;

hook! {
    /// `select()`. As Linux does, the time left is stored in `timeout`.
    fn select(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *mut timeval) -> c_int,
    raw Some(libc::SYS_select); aka __select; {
        let _waiting = errno::kept(hook::mail::rest);
        let sets = Sets::new(count, read, write, except);
        if !sets.any_followed() {
            return real(count, read, write, except, timeout);
        }
        let limit = if timeout.is_null() {
            None
        } else {
            match memory::read(timeout).and_then(nanoseconds) {
                Some(ns) => Some(ns),
                None => return real(count, read, write, except, timeout),
            }
        };
        let started = now();
        let Some(ret) = sets.wait(limit, 0) else { return real(count, read, write, except, timeout) };
        if let Some(limit) = limit {
            let left = limit.saturating_sub(now() - started);
            let left = timeval { tv_sec: (left / 1_000_000_000) as i64, tv_usec: (left % 1_000_000_000 / 1000) as i64 };
            memory::write(timeout, left);
        }
        ret
    }

    /// `pselect()`.
    fn pselect(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set, timeout: *const timespec, mask: *const sigset_t) -> c_int,
    raw None; {
        let _waiting = errno::kept(hook::mail::rest);
        let sets = Sets::new(count, read, write, except);
        if !sets.any_followed() {
            return real(count, read, write, except, timeout, mask);
        }
        let Ok(limit) = memory::nanoseconds(timeout) else { return real(count, read, write, except, timeout, mask) };
        match sets.wait(limit, mask as usize) {
            Some(ret) => ret,
            None => real(count, read, write, except, timeout, mask),
        }
    }
}

/// A relative time; `None` where the kernel answers EINVAL. Microseconds above a second count, as in the C library.
fn nanoseconds(t: timeval) -> Option<u64> {
    if t.tv_sec < 0 || t.tv_usec < 0 {
        return None;
    }
    let us = (t.tv_sec as u64).saturating_mul(1_000_000).saturating_add(t.tv_usec as u64);
    Some(us.saturating_mul(1000))
}

/// The three bit sets of a call, as arrays of words; absent ones are NULL.
pub(crate) struct Sets {
    words: usize,
    last_mask: u64,
    set: [*mut u64; 3],
}

impl Sets {
    pub(crate) fn new(count: c_int, read: *mut fd_set, write: *mut fd_set, except: *mut fd_set) -> Self {
        let count = usize::try_from(count).unwrap_or(0);
        let words = count.div_ceil(BITS);
        let last_mask = if count % BITS == 0 { u64::MAX } else { (1 << (count % BITS)) - 1 };
        let set = [read, write, except].map(|p| p.cast::<u64>());
        if set.iter().all(|p| p.is_null() || memory::readable(*p, words)) {
            Sets { words, last_mask, set }
        } else {
            // One that the kernel refuses: none of them counts here.
            Sets { words: 0, last_mask, set: [std::ptr::null_mut(); 3] }
        }
    }

    /// Word `i` of one set, without bits beyond the call's count.
    fn word(&self, set: usize, i: usize) -> u64 {
        if self.set[set].is_null() {
            return 0;
        }
        // SAFETY: `i` is below `words`, and the program's set has that many.
        let word = unsafe { self.set[set].add(i).read_unaligned() };
        if i + 1 == self.words { word & self.last_mask } else { word }
    }

    /// Every descriptor that is in a set.
    fn members(&self) -> impl Iterator<Item = c_int> + '_ {
        (0..self.words).flat_map(move |i| {
            let mut left = self.word(0, i) | self.word(1, i) | self.word(2, i);
            std::iter::from_fn(move || {
                (left != 0).then(|| {
                    let bit = left.trailing_zeros() as usize;
                    left &= left - 1;
                    (i * BITS + bit) as c_int
                })
            })
        })
    }

    fn has(&self, set: usize, fd: c_int) -> bool {
        self.word(set, fd as usize / BITS) & (1 << (fd as usize % BITS)) != 0
    }

    pub(crate) fn any_followed(&self) -> bool {
        crate::poll::ask_first();
        self.members().any(hook::is_overlaid)
    }

    /// Waits by poll; `None`: the kernel must answer.
    fn wait(&self, limit: Option<u64>, mask: usize) -> Option<c_int> {
        let count = self.members().count();
        if count <= FEW {
            let mut fds = [PollFd::default(); FEW];
            return Some(self.wait_for(&mut fds[..count], limit, mask));
        }
        if count > MAX {
            self.members().filter(|fd| hook::is_followed(*fd)).for_each(|fd| {
                hook::recall(fd, Reason::RecalledWaiters, true);
            });
            return None;
        }
        let Some(mut scratch) = hook::scratch(count * size_of::<PollFd>(), stack_address()) else {
            return Some(errno::fail(libc::ENOMEM));
        };
        Some(self.wait_for(scratch.values(count), limit, mask))
    }

    /// The same in `fds`, with an entry for each member.
    fn wait_for(&self, fds: &mut [PollFd], limit: Option<u64>, mask: usize) -> c_int {
        // Another thread may change the sets at any time: fewer members than entries are possible.
        fds.fill(PollFd { fd: -1, ..PollFd::default() });
        for (entry, fd) in fds.iter_mut().zip(self.members()) {
            *entry = PollFd { fd, ..PollFd::default() };
            for (set, events) in [READ, WRITE, EXCEPT].into_iter().enumerate() {
                if self.has(set, fd) {
                    entry.events |= events & !UNASKED;
                }
            }
        }
        for entry in
            fds.iter_mut().filter(|f| f.fd >= 0 && !hook::is_followed(f.fd) && fd::is_cloexec(f.fd).is_err())
        {
            if !beyond_the_table(entry.fd) {
                return errno::fail(libc::EBADF);
            }
            entry.fd = -1;
        }
        let deadline = limit.map(|ns| now().saturating_add(ns));
        loop {
            let left = deadline.map(|d| d.saturating_sub(now()));
            let ready = match hook::poll(fds, left, mask) {
                Verdict::NotOurs | Verdict::Served => kernel_poll(fds, left, mask),
                Verdict::Kernel(cold) | Verdict::ServedKernel(cold) => {
                    let ret = kernel_poll(fds, left, mask);
                    cold.finish(ret as isize);
                    ret
                }
                Verdict::Done(moved) => errno::answer(moved.result()),
            };
            if ready < 0 {
                return -1;
            }
            if ready == 0 {
                return self.store(fds);
            }
            let mut counts = false;
            for f in fds.iter_mut().filter(|f| f.fd >= 0 && f.revents != 0) {
                if f.revents & self.wanted(f.fd) != 0 {
                    counts = true;
                } else {
                    // A hang-up or error that none of its sets asks for lasts: poll would return at once for ever.
                    f.fd = -1;
                }
            }
            if counts {
                return self.store(fds);
            }
        }
    }

    /// Poll events that count for `fd` in one of its sets.
    fn wanted(&self, fd: c_int) -> i16 {
        [READ, WRITE, EXCEPT]
            .into_iter()
            .enumerate()
            .filter(|(set, _)| self.has(*set, fd))
            .fold(0, |a, (_, e)| a | e)
    }

    /// Stores the answer and counts its bits.
    fn store(&self, fds: &[PollFd]) -> c_int {
        if !self.set.iter().all(|p| p.is_null() || memory::writable(*p, self.words)) {
            return errno::fail(libc::EFAULT);
        }
        let mut bits = 0;
        for (set, events) in [READ, WRITE, EXCEPT].into_iter().enumerate() {
            if self.set[set].is_null() {
                continue;
            }
            for i in 0..self.words {
                let asked = self.word(set, i);
                let mut word = 0u64;
                for f in fds.iter().filter(|f| f.fd >= 0 && f.fd as usize / BITS == i) {
                    if f.revents & events != 0 {
                        word |= 1 << (f.fd as usize % BITS);
                    }
                }
                word &= asked;
                bits += word.count_ones() as c_int;
                // SAFETY: as in `word`; the kernel, too, stores whole words.
                unsafe { self.set[set].add(i).write_unaligned(word) };
            }
        }
        bits
    }
}

/// Whether the kernel ignores `fd` in a set, because the process's descriptor table has never been that long: a
/// closed one below is EBADF.
fn beyond_the_table(fd: c_int) -> bool {
    let mut set = [0u64; MAX / BITS];
    let Some(word) = set.get_mut(fd as usize / BITS) else { return false };
    *word = 1 << (fd as usize % BITS);
    let at_once = timeval { tv_sec: 0, tv_usec: 0 };
    let args = [fd as usize + 1, set.as_ptr() as usize, 0, 0, &raw const at_once as usize, 0];
    // SAFETY: a live set of more than `fd` bits and a live time.
    unsafe { crate::raw::syscall(libc::SYS_select, args) == 0 }
}

/// ppoll by the C library, so that it stays a cancellation point.
fn kernel_poll(fds: &mut [PollFd], limit: Option<u64>, mask: usize) -> c_int {
    let time = limit
        .map(|ns| timespec { tv_sec: (ns / 1_000_000_000) as i64, tv_nsec: (ns % 1_000_000_000) as i64 });
    let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: a live array laid out as `struct pollfd`; the mask is the program's.
    unsafe {
        crate::poll::real_ppoll(fds.as_mut_ptr().cast(), fds.len() as u64, time, mask as *const sigset_t)
    }
}
