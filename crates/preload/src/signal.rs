//! The program's signal handlers: they run between the engine's critical sections (docs/signals.md).

use crate::child::borrowed_memory;
use crate::errno::fail;
use crate::memory;
use crate::real::{cancellable, hook};
use bypath_sockets::hook;
use libc::{c_int, c_void, sighandler_t, siginfo_t, ucontext_t};
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicUsize, Ordering::*};

const SIGNALS: usize = 65;

/// What the program installed for one signal. A registration uses the side that the one before did not, so that the
/// kernel, which knows a function of ours for each side, replaces one by the other at once.
struct Handler {
    /// The side of the newest registration.
    newest: AtomicU32,
    sides: [Side; 2],
}

struct Side {
    handler: AtomicUsize,
    flags: AtomicI32,
}

static HANDLERS: [Handler; SIGNALS] = [const {
    Handler {
        newest: AtomicU32::new(0),
        sides: [const { Side { handler: AtomicUsize::new(0), flags: AtomicI32::new(0) } }; 2],
    }
}; SIGNALS];

/// Not interposed: signals that belong to the instruction that runs, and the C library's own.
fn is_direct(signal: c_int) -> bool {
    const FAULTS: [c_int; 7] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS, libc::SIGABRT];
    !(1..SIGNALS as c_int).contains(&signal) || matches!(signal, 32 | 33) || FAULTS.contains(&signal)
}

cancellable! { private!
    /// Stands in front of the handlers of side 0. (A handler may be left by pthread_cancel or longjmp.)
    unsafe fn first_side(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> () {
        // SAFETY: the kernel's own arguments.
        unsafe { arrived(0, signal, info, context) }
    }
}

cancellable! { private!
    /// As [`first_side`].
    unsafe fn second_side(signal: c_int, info: *mut siginfo_t, context: *mut c_void) -> () {
        // SAFETY: the kernel's own arguments.
        unsafe { arrived(1, signal, info, context) }
    }
}

fn stand_ins() -> [usize; 2] {
    [first_side as *const () as usize, second_side as *const () as usize]
}

/// Called by the constructor.
pub(crate) fn init() {
    hook::signals_init(stand_ins(), crate::cancel::is_enabled);
}

/// Runs the program's handler, or keeps the signal until the thread's call ends.
///
/// # Safety
/// The arguments are the kernel's.
#[inline(always)]
unsafe fn arrived(side: usize, signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
    let Some(h) = HANDLERS.get(signal as usize) else { return };
    let flags = h.sides[side].flags.load(Relaxed);
    // The kernel has forgotten a handler with SA_RESETHAND already: sent again, the signal would meet the default.
    if flags & libc::SA_RESETHAND == 0
        && let Some(waiting) = hook::signal_waits()
        // SAFETY: the kernel's arguments, in the handler that it called with them.
        && unsafe { waiting.keep(signal, info, context.cast::<ucontext_t>()) }
    {
        return;
    }
    let handler = h.sides[side].handler.load(Acquire);
    if handler > libc::SIG_IGN {
        let _interrupted = hook::signal_runs();
        // SAFETY: the program said that this is a handler. The kernel passes all three arguments whether SA_SIGINFO is
        // set or not, and so do we.
        unsafe {
            let handler = cancellable! { pointer! handler, (c_int, *mut siginfo_t, *mut c_void) -> () };
            handler(signal, info, context);
        }
    }
    hook::signal_handled(flags);
}

/// Installs `handler`, a function of the program or SIG_DFL or SIG_IGN, by `install`, which gets what the kernel is to
/// know instead. `flags` are those that the registration will have. Returns the result and the handler before this
/// one, should the kernel name one of ours.
fn replacing<R>(signal: c_int, handler: usize, flags: c_int, install: impl FnOnce(usize) -> R) -> (R, usize) {
    let h = &HANDLERS[signal as usize];
    let old = h.newest.load(Acquire) as usize;
    let before = h.sides[old].handler.load(Relaxed);
    if handler <= libc::SIG_IGN || borrowed_memory() {
        // A child in borrowed memory must leave the table alone: its handlers are installed as they are.
        return (install(handler), before);
    }
    let new = 1 - old;
    h.sides[new].handler.store(handler, Relaxed);
    h.sides[new].flags.store(flags, Release);
    h.newest.store(new as u32, Release);
    (install(stand_ins()[new]), before)
}

/// What the program is told where the kernel says `found`.
fn told(found: usize, before: usize) -> usize {
    if stand_ins().contains(&found) { before } else { found }
}

/// signal() and its kin, which answer the handler before.
fn simple(
    signal: c_int,
    handler: sighandler_t,
    flags: c_int,
    real: impl Fn(c_int, sighandler_t) -> sighandler_t,
) -> sighandler_t {
    const SIG_HOLD: usize = 2;
    if is_direct(signal) || handler == libc::SIG_ERR || handler == SIG_HOLD {
        return real(signal, handler);
    }
    let newest = HANDLERS[signal as usize].newest.load(Relaxed);
    let (found, before) = replacing(signal, handler, flags, |h| real(signal, h));
    let h = &HANDLERS[signal as usize];
    if found == libc::SIG_ERR {
        h.newest.store(newest, Relaxed);
    } else if let Some((_, flags)) = bypath_sys::signal::installed(signal) {
        // An earlier siginterrupt() changes what signal() does.
        h.sides[h.newest.load(Relaxed) as usize].flags.store(flags, Relaxed);
    }
    told(found, before)
}

hook! {
    /// `sigaction()`.
    fn sigaction(signal: c_int, action: *const libc::sigaction, old: *mut libc::sigaction) -> c_int, raw None; aka __sigaction; {
        if is_direct(signal) {
            return real(signal, action, old);
        }
        let h = &HANDLERS[signal as usize];
        let newest = h.newest.load(Relaxed);
        let mut found = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
        let (ret, before) = if action.is_null() {
            (real(signal, action, found.as_mut_ptr()), h.sides[newest as usize].handler.load(Relaxed))
        } else {
            let Some(mut wanted) = memory::trusted_read(action) else { return fail(libc::EFAULT) };
            let flags = wanted.sa_flags;
            replacing(signal, wanted.sa_sigaction, flags, |handler| {
                wanted.sa_sigaction = handler;
                real(signal, &raw const wanted, found.as_mut_ptr())
            })
        };
        if ret != 0 {
            h.newest.store(newest, Relaxed);
            return ret;
        }
        if !old.is_null() {
            // SAFETY: plain integers, zeroed and then filled by the real function.
            let mut found = unsafe { found.assume_init() };
            found.sa_sigaction = told(found.sa_sigaction, before);
            memory::trusted_write(old, found);
        }
        0
    }

    /// `signal()`.
    fn signal(signal: c_int, handler: sighandler_t) -> sighandler_t, raw None; aka bsd_signal; aka ssignal; {
        simple(signal, handler, libc::SA_RESTART, real)
    }

    /// `sysv_signal()`.
    fn sysv_signal(signal: c_int, handler: sighandler_t) -> sighandler_t, raw None; aka __sysv_signal; {
        simple(signal, handler, libc::SA_RESETHAND | libc::SA_NODEFER, real)
    }

    /// `sigset()`.
    fn sigset(signal: c_int, handler: sighandler_t) -> sighandler_t, raw None; {
        simple(signal, handler, 0, real)
    }

    /// `siginterrupt()`: changes the flags of the handler that is installed.
    fn siginterrupt(signal: c_int, interrupts: c_int) -> c_int, raw None; {
        let ret = real(signal, interrupts);
        if ret == 0 && !is_direct(signal) && !borrowed_memory() {
            let h = &HANDLERS[signal as usize];
            let side = &h.sides[h.newest.load(Relaxed) as usize];
            let flags = side.flags.load(Relaxed) & !libc::SA_RESTART;
            side.flags.store(if interrupts != 0 { flags } else { flags | libc::SA_RESTART }, Relaxed);
        }
        ret
    }
}
