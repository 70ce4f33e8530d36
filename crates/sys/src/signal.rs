//! Signal handlers of the program: what is installed, and signals that wait for a better moment.

use crate::syscall::{check, syscall};
use crate::{clock, fd, futex, process, thread};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::*};

/// `struct kernel_sigaction`.
#[repr(C)]
#[derive(Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Handler and SA_* flags of a signal as the kernel knows them; `None` if there is no such signal.
pub fn installed(signal: i32) -> Option<(usize, i32)> {
    let mut action = KernelAction::default();
    // SAFETY: the kernel writes one structure.
    let r = check(unsafe {
        syscall(libc::SYS_rt_sigaction, [signal as usize, 0, &raw mut action as usize, 8, 0, 0])
    });
    r.ok()?;
    Some((action.handler, action.flags as i32))
}

/// Whether every signal has SA_RESTART whose handler is none of `known` (nor the C library's own, 32 and 33).
///
/// The kernel restarts an interrupted receive or send by the flags of the handler that ran. Which of those handlers ran
/// cannot be told afterwards, so a mixed set counts as "do not restart": EINTR is what a program that installs a
/// handler without SA_RESTART waits for.
pub fn others_restart(known: [usize; 2]) -> bool {
    (1..=64).filter(|signal| !matches!(signal, 32 | 33)).filter_map(installed).all(|(handler, flags)| {
        handler == libc::SIG_DFL
            || handler == libc::SIG_IGN
            || known.contains(&handler)
            || flags & libc::SA_RESTART != 0
    })
}

/// Whether the calling thread runs on its alternate signal stack.
pub fn is_on_alternate_stack() -> bool {
    /// Offset of `ss_flags` in `stack_t`, in words.
    const FLAGS: usize = 1;
    let mut stack = [0usize; 3];
    // SAFETY: the kernel writes one `stack_t` of three words.
    let asked =
        check(unsafe { syscall(libc::SYS_sigaltstack, [0, stack.as_mut_ptr() as usize, 0, 0, 0, 0]) });
    asked.is_ok() && stack[FLAGS] as i32 & libc::SS_ONSTACK != 0
}

/// Interrupts whatever system call the thread `tid` of this process sleeps in, by the signal that the C library has for
/// pthread_cancel; false if it has not installed it. Where cancellation is deferred its handler does nothing.
pub fn nudge(tid: u32) -> bool {
    /// SIGCANCEL of glibc.
    const CANCEL: i32 = 32;
    if installed(CANCEL).is_none_or(|(handler, _)| handler == libc::SIG_DFL || handler == libc::SIG_IGN) {
        return false;
    }
    // SAFETY: plain values.
    let sent = check(unsafe {
        syscall(libc::SYS_tgkill, [process::pid() as usize, tid as usize, CANCEL as usize, 0, 0, 0])
    });
    sent.is_ok()
}

/// But SIGCANCEL and SIGSETXID of glibc: 32 and 33.
const ALL_BUT_INTERNAL: u64 = !(0b11 << 31);

/// Keeps signals from the calling thread until it is dropped, and for ever from threads that are started meanwhile. Those of
/// the C library pass: setuid and pthread_cancel wait for every thread.
#[derive(Debug)]
pub struct Blocked {
    before: u64,
    /// The mask is the thread's.
    not_send: std::marker::PhantomData<*const ()>,
}

impl Blocked {
    /// From now on.
    pub fn new() -> Blocked {
        Blocked { before: set_mask(ALL_BUT_INTERNAL), not_send: std::marker::PhantomData }
    }

    /// Those of the C library, too: for microseconds.
    pub(crate) fn all() -> Blocked {
        Blocked { before: set_mask(u64::MAX), not_send: std::marker::PhantomData }
    }
}

impl Default for Blocked {
    fn default() -> Blocked {
        Blocked::new()
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        leave_to_others(!self.before);
        set_mask(self.before);
    }
}

/// Waits while one of these signals is pending that the kernel has chosen the first thread for, which waits for a processor. Whoever unblocks it before that one
/// runs gets it instead; there are programs whose first thread sleeps until a signal interrupts it (Python).
fn leave_to_others(signals: u64) {
    /// How long the first thread may wait for its processor, and where `/proc` does not tell whether it is to get one.
    const LONGEST: u64 = 1_000_000_000;
    const UNSEEN: u64 = 2_000_000;
    const NAPS: [u64; 2] = [50_000, 2_000_000];
    // Those of the C library are sent to a thread.
    let signals = signals & ALL_BUT_INTERNAL;
    if signals == 0 || pending() & signals == 0 || thread::tid() == process::pid() {
        return;
    }
    let (asleep, began, mut nap) = (AtomicU32::new(0), clock::monotonic_ns(), NAPS[0]);
    while pending() & signals != 0 {
        let patience = match is_for_the_first(signals) {
            Some(true) => LONGEST,
            Some(false) => return,
            None => UNSEEN,
        };
        if clock::monotonic_ns() - began > patience {
            return;
        }
        futex::wait(&asleep, 0, nap);
        nap = (2 * nap).min(NAPS[1]);
    }
}

/// Whether one of these was sent to the process, and its first thread takes it: the kernel wakes that one wherever it does not block it. `None`: nobody says.
fn is_for_the_first(signals: u64) -> Option<bool> {
    const STATUS: &std::ffi::CStr = c"/proc/self/status";
    let [state] = fd::after_in_file(STATUS, b"\nState:\t").ok()??;
    // What was sent to the thread, to its process, and what it blocks: a line each.
    const LINE: usize = 25;
    let sets: [u8; 2 * LINE + 16] = fd::after_in_file(STATUS, b"\nSigPnd:\t").ok()??;
    let set =
        |line: usize| u64::from_str_radix(std::str::from_utf8(&sets[line * LINE..][..16]).ok()?, 16).ok();
    let (sent, blocks) = (set(1)?, set(2)?);
    // Programs cannot block those of the C library: where they are blocked all are, for a moment.
    let is_blocked = blocks & !ALL_BUT_INTERNAL == 0 && sent & signals & !blocks == 0;
    Some(sent & signals != 0 && !is_blocked && !matches!(state, b'Z' | b'X'))
}

/// The signals that the calling thread, or the process, would get if it did not block them.
fn pending() -> u64 {
    let mut set = 0u64;
    // SAFETY: the kernel writes one set of 64 signals.
    let asked = check(unsafe { syscall(libc::SYS_rt_sigpending, [&raw mut set as usize, 8, 0, 0, 0, 0]) });
    if asked.is_ok() { set } else { 0 }
}

/// Replaces the calling thread's mask, and returns the one before.
fn set_mask(mask: u64) -> u64 {
    let mut before = 0u64;
    let arguments = [libc::SIG_SETMASK as usize, &raw const mask as usize, &raw mut before as usize, 8, 0, 0];
    // SAFETY: the kernel reads one set of 64 signals and writes another.
    let changed = check(unsafe { syscall(libc::SYS_rt_sigprocmask, arguments) });
    debug_assert!(changed.is_ok(), "there is such an operation, and such a set");
    before
}

/// Words of a `siginfo_t`.
const INFO_WORDS: usize = 16;
const PLACES: usize = 8;

/// Signals that arrived where their handlers must not run: kept with their `siginfo_t` and blocked until
/// [`Deferred::deliver`]. Used by one thread and its signal handlers.
#[derive(Debug, Default)]
pub struct Deferred {
    /// Bit n = place n is taken.
    taken: AtomicU32,
    signals: [AtomicU32; PLACES],
    infos: [[AtomicU64; INFO_WORDS]; PLACES],
}

impl Deferred {
    /// Whether a signal waits.
    #[inline]
    pub fn any(&self) -> bool {
        self.taken.load(Relaxed) != 0
    }

    /// Keeps the signal that a handler was called with, and blocks it in the mask to which the handler returns. False
    /// if there is no place.
    ///
    /// # Safety
    /// `info` and `context` are what the kernel called the handler of `signal` with, and that handler is still running.
    pub unsafe fn keep(
        &self,
        signal: i32,
        info: *const libc::siginfo_t,
        context: *mut libc::ucontext_t,
    ) -> bool {
        // Another signal's handler may interrupt this one anywhere: the place is taken before it is filled.
        let free = |taken: u32| (taken.trailing_ones() < PLACES as u32).then_some(taken | (taken + 1));
        let Ok(taken) = self.taken.fetch_update(Relaxed, Relaxed, free) else { return false };
        let place = taken.trailing_ones() as usize;
        // SAFETY: the kernel's siginfo_t has 128 bytes, and the mask of a ucontext_t 8.
        unsafe {
            for (i, word) in self.infos[place].iter().enumerate() {
                word.store(info.cast::<u64>().add(i).read(), Relaxed);
            }
            let mask = (&raw mut (*context).uc_sigmask).cast::<u64>();
            mask.write(mask.read() | bit(signal));
        }
        self.signals[place].store(signal as u32, Relaxed);
        true
    }

    /// Sends the kept signals to this thread again and unblocks them: their handlers run before this returns, or leave
    /// by longjmp.
    #[cold]
    pub fn deliver(&self) {
        let kept: [Option<(i32, [u64; INFO_WORDS])>; PLACES] = std::array::from_fn(|place| {
            (self.taken.load(Relaxed) & 1 << place != 0).then(|| {
                let signal = self.signals[place].load(Relaxed) as i32;
                (signal, std::array::from_fn(|i| self.infos[place][i].load(Relaxed)))
            })
        });
        // The places are free from here on: a handler of another signal may run at any time.
        self.taken.store(0, Relaxed);
        let (pid, tid) = (process::pid() as usize, thread::tid() as usize);
        let mut mask = 0;
        for (signal, info) in kept.iter().flatten() {
            mask |= bit(*signal);
            let to = [pid, tid, *signal as usize, info.as_ptr() as usize, 0, 0];
            // SAFETY: the kernel reads 128 bytes of `info`. A thread may send itself any siginfo_t.
            if check(unsafe { syscall(libc::SYS_rt_tgsigqueueinfo, to) }).is_err() {
                // The queue is full (RLIMIT_SIGPENDING): the signal comes without its siginfo_t, as from the kernel.
                // SAFETY: plain values.
                let _ = unsafe { syscall(libc::SYS_tgkill, to) };
            }
        }
        unblock(mask);
    }

    /// In a forked child, where the kept signals are the parent's: forgets them, and unblocks them here.
    pub fn forget(&self) {
        if self.taken.load(Relaxed) == 0 {
            return;
        }
        let taken = self.taken.swap(0, Relaxed);
        let mask = (0..PLACES)
            .filter(|p| taken & 1 << p != 0)
            .fold(0, |mask, p| mask | bit(self.signals[p].load(Relaxed) as i32));
        unblock(mask);
    }
}

fn unblock(mask: u64) {
    let how = libc::SIG_UNBLOCK as usize;
    // SAFETY: the kernel reads one mask of 8 bytes.
    let _ = unsafe { syscall(libc::SYS_rt_sigprocmask, [how, &raw const mask as usize, 0, 8, 0, 0]) };
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}
