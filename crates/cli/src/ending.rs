//! SIGINT and SIGTERM: the user's wish that a command ends in an orderly way, or, the second time, at once.

use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// The signals.
pub const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];
/// Exit status of a command that was ended at once.
const AT_ONCE: i32 = 130;
/// What comes so soon after the first signal is the same wish: timeout(1) sends one to the command and one to its process group.
const SAME_WISH: Duration = Duration::from_secs(1);

/// From now on the first signal sets `asked`, and a later one ends the process.
///
/// # Errors
/// No more descriptors, no more threads.
pub fn watch(asked: &Arc<AtomicBool>) -> std::io::Result<()> {
    let impatient = Arc::new(AtomicBool::new(false));
    let (mut bell, ringer) = UnixStream::pair()?;
    for signal in SIGNALS {
        signal_hook::flag::register_conditional_shutdown(signal, AT_ONCE, Arc::clone(&impatient))?;
        signal_hook::flag::register(signal, Arc::clone(asked))?;
        signal_hook::low_level::pipe::register(signal, ringer.try_clone()?)?;
    }
    std::thread::Builder::new().name("signals".into()).spawn(move || {
        // Without a bell no signal is the first one.
        if bell.read_exact(&mut [0]).is_ok() {
            std::thread::sleep(SAME_WISH);
            impatient.store(true, SeqCst);
        }
    })?;
    Ok(())
}
