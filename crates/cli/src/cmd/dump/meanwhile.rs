//! What is followed is read while something else takes its time.

use crate::output::Failure;
use bypath::clock::monotonic_ns;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// For so long after the last news rings are looked at without a pause.
const EAGER_NS: u64 = 200_000;
/// Longest pause between two looks.
const PAUSE: Duration = Duration::from_micros(500);

/// When one looks again: soon after there was something.
pub struct Pace {
    /// When there was something last.
    news: u64,
}

impl Pace {
    /// There is something now.
    pub fn new() -> Pace {
        Pace { news: monotonic_ns() }
    }

    /// There was something, or nothing: waits accordingly.
    pub fn rest(&mut self, any: bool) {
        let now = monotonic_ns();
        let since = now.saturating_sub(self.news);
        if any {
            self.news = now;
        } else if since > EAGER_NS {
            thread::sleep(PAUSE.min(Duration::from_nanos(since / 4)));
        }
    }
}

/// Does something, and `look`s again and again until that is done, in a thread of its own; without one if there is none to be had.
///
/// # Errors
/// Those of `look`.
pub fn meanwhile<R>(
    mut look: impl FnMut() -> Result<bool, Failure> + Send,
    f: impl FnOnce() -> R,
) -> Result<R, Failure> {
    /// Also where `f` panics.
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let again_and_again = || {
            let mut pace = Pace::new();
            while !over.load(Ordering::Relaxed) {
                pace.rest(look()?);
            }
            Ok(())
        };
        let reader = thread::Builder::new().name("rings".into()).spawn_scoped(scope, again_and_again);
        let done = {
            let _over = Over(&over);
            f()
        };
        if let Ok(reader) = reader {
            reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        }
        Ok(done)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn it_is_looked_until_it_is_done() {
        let (looks, seen) = mpsc::channel();
        let mut n = 0;
        let look = || {
            n += 1;
            let _ = looks.send(n);
            Ok(n % 2 == 0)
        };
        assert_eq!(meanwhile(look, || seen.iter().find(|n| *n == 100)).unwrap(), Some(100));
        let failed = meanwhile(|| Err(Failure::new(1, "no")), || 7);
        assert!(failed.is_err() || failed.is_ok_and(|done| done == 7));
    }
}
