//! `--on-unsupported` in a running program: a connection stays on the kernel, or goes back to it, because of something
//! that Bypath cannot serve.

use crate::config::{LogLevel, OnUnsupported};
use crate::{log, state};
use bypath_shm::reason::Reason;
use bypath_sys::process;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Reasons that were told already, one bit each.
static TOLD: AtomicU64 = AtomicU64::new(0);

/// Says so, once for each reason, as the user wants to hear it.
#[cold]
pub fn tell(fd: i32, reason: Reason) {
    let how = state::config().map_or(OnUnsupported::Fallback, |c| c.on_unsupported);
    let level = match how {
        OnUnsupported::Fallback => return,
        OnUnsupported::Warn => LogLevel::Warn,
        OnUnsupported::Error | OnUnsupported::Abort => LogLevel::Error,
    };
    let bit = 1 << (reason as u16 % 64);
    if TOLD.fetch_or(bit, Relaxed) & bit != 0 {
        return;
    }
    log::always(level, format_args!("fd {fd} stays on the kernel: {} ({})", reason.text(), reason.code()));
    if how == OnUnsupported::Abort {
        process::abort();
    }
}
