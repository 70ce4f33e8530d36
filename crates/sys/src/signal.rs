//! Signal handlers of the program.

use crate::syscall::{check, syscall};

/// `struct kernel_sigaction`.
#[repr(C)]
#[derive(Default)]
struct KernelAction {
    handler: usize,
    flags: u64,
    restorer: usize,
    mask: u64,
}

/// Whether every signal that has a handler has it with SA_RESTART (and at least one has).
///
/// The kernel restarts an interrupted receive or send by the flags of the handler that ran; which one ran
/// cannot be told afterwards, so a mixed set counts as "do not restart": EINTR is what a program that installs a
/// handler without SA_RESTART waits for.
pub fn every_handler_restarts() -> bool {
    let mut any = false;
    for signal in 1..=64usize {
        let mut action = KernelAction::default();
        // SAFETY: the kernel writes one structure.
        let r =
            check(unsafe { syscall(libc::SYS_rt_sigaction, [signal, 0, &raw mut action as usize, 8, 0, 0]) });
        if r.is_err() || action.handler == libc::SIG_DFL || action.handler == libc::SIG_IGN {
            continue;
        }
        // Handlers of the C library's own signals (32, 33) restart.
        if action.flags & libc::SA_RESTART as u64 == 0 {
            return false;
        }
        any = true;
    }
    any
}
