//! Tasks that wait for a socket.

use std::task::Waker;

/// Those that wait, each with a number of its own.
#[derive(Debug, Default)]
pub struct Tasks {
    waiting: Vec<(u64, Waker)>,
    #[cfg(feature = "tokio")]
    next: u64,
}

impl Tasks {
    /// All of them are to be woken: each looks for itself, and waits again if others were quicker. So a task that is given up
    /// after it was woken keeps no news from the others.
    pub fn wake(&mut self, woken: &mut Vec<Waker>) {
        woken.extend(self.waiting.drain(..).map(|(_, waker)| waker));
    }

    /// A task waits, under the number that it had before or gets now. What is returned is to be dropped without the stack: whatever
    /// goes with it may use that.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn wait(&mut self, number: &mut Option<u64>, waker: &Waker) -> Option<Waker> {
        let number = *number.get_or_insert_with(|| {
            self.next += 1;
            self.next
        });
        match self.waiting.iter_mut().find(|(n, _)| *n == number) {
            Some((_, old)) if old.will_wake(waker) => None,
            Some((_, old)) => Some(std::mem::replace(old, waker.clone())),
            None => {
                self.waiting.push((number, waker.clone()));
                None
            }
        }
    }

    /// A task waits no more. What is returned is to be dropped without the stack.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub fn forget(&mut self, number: u64) -> Option<Waker> {
        let at = self.waiting.iter().position(|(n, _)| *n == number)?;
        Some(self.waiting.swap_remove(at).1)
    }

    #[cfg(all(test, feature = "tokio"))]
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}
