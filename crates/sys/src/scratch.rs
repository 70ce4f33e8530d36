//! Working memory of a thread, for calls that would need much of its stack: that may be small.

use crate::mem::Mapping;
use crate::poll::PollFd;
use crate::signal;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Bytes that a thread keeps in a slot; more are mapped for one call.
pub const SIZE: usize = 16 * 1024;
/// No frames of one stack are farther from each other: an address beyond that is on another one.
const REACH: usize = 1 << 20;

/// Types of which any bytes are a value.
///
/// # Safety
/// Exactly that.
pub unsafe trait Plain: Copy {}
// SAFETY: an integer.
unsafe impl Plain for u8 {}
// SAFETY: an integer.
unsafe impl Plain for u64 {}
// SAFETY: integers without padding.
unsafe impl Plain for PollFd {}
// SAFETY: two integers.
unsafe impl Plain for crate::user::IoVec {}

/// Working memory for one kind of call of one thread, mapped at the first use and kept. Calls of that kind nest only by
/// signal handlers.
#[derive(Debug, Default)]
pub struct Slot {
    /// Address of the memory, 0 = none yet.
    at: AtomicUsize,
    /// Stack address of the frame that uses it, 0 = none.
    frame: AtomicUsize,
}

impl Slot {
    /// `len` bytes for the frame at `frame` (see [`crate::thread::stack_address`]) of the slot's thread, zeroes or what an earlier
    /// call left there; `None` if there is no memory.
    pub fn take(&self, len: usize, frame: usize) -> Option<Scratch<'_>> {
        if len > SIZE || !self.enter(frame) {
            return Scratch::of_one_call(len);
        }
        if self.at.load(Relaxed) == 0 {
            match Mapping::private(SIZE) {
                Ok(map) => self.at.store(map.addr() as usize, Relaxed),
                Err(_) => {
                    self.frame.store(0, Relaxed);
                    return None;
                }
            }
        }
        Some(Scratch { at: self.at.load(Relaxed), len, slot: Some((self, frame)) })
    }

    /// Makes `frame` the one that uses the slot; false if a living one does, which a signal handler interrupted.
    fn enter(&self, frame: usize) -> bool {
        let Err(user) = self.frame.compare_exchange(0, frame, Relaxed, Relaxed) else { return true };
        // Frames at lower addresses than a running one are gone, by a longjmp, if they were on its stack.
        let dead = user <= frame && frame - user < REACH && !signal::is_on_alternate_stack();
        dead && self.frame.compare_exchange(user, frame, Relaxed, Relaxed).is_ok()
    }

    /// Another thread has it from now on: no frame uses it.
    pub fn hand_over(&self) {
        self.frame.store(0, Relaxed);
    }
}

/// Working memory in use.
#[derive(Debug)]
pub struct Scratch<'a> {
    at: usize,
    len: usize,
    /// Where it is kept, and for which frame; `None`: it is unmapped afterwards.
    slot: Option<(&'a Slot, usize)>,
}

impl Scratch<'_> {
    /// `len` bytes that are kept nowhere.
    pub fn of_one_call(len: usize) -> Option<Self> {
        let map = Mapping::private(len.max(1)).ok()?;
        Some(Scratch { at: map.addr() as usize, len, slot: None })
    }

    /// `count` values in it.
    ///
    /// # Panics
    /// If it is too small for them.
    pub fn values<T: Plain>(&mut self, count: usize) -> &mut [T] {
        self.two::<T, u8>(count, 0).0
    }

    /// `first` values of one type in it, and `second` of another.
    ///
    /// # Panics
    /// If it is too small for them.
    pub fn two<A: Plain, B: Plain>(&mut self, first: usize, second: usize) -> (&mut [A], &mut [B]) {
        let middle = (first * size_of::<A>()).next_multiple_of(align_of::<B>());
        assert!(middle + second * size_of::<B>() <= self.len, "as many as were asked for");
        // SAFETY: two ranges of the mapping, which begins at a page, side by side; any bytes are values of these types.
        // Nobody else has references to them: the slot is its thread's, and this is the frame that entered it.
        unsafe {
            (
                std::slice::from_raw_parts_mut(self.at as *mut A, first),
                std::slice::from_raw_parts_mut((self.at + middle) as *mut B, second),
            )
        }
    }
}

impl Drop for Scratch<'_> {
    fn drop(&mut self) {
        match self.slot {
            Some((slot, frame)) => {
                let _ = slot.frame.compare_exchange(frame, 0, Relaxed, Relaxed);
            }
            None => {
                // SAFETY: made by `of_one_call`, and what borrowed from this value is gone.
                unsafe { Mapping::of(self.at, self.len.max(1)).unmap() };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thread::stack_address;

    #[test]
    fn a_slot_is_kept_and_used_again() {
        let slot = Slot::default();
        let here = stack_address();
        let mut first = slot.take(100, here).unwrap();
        first.values::<u8>(100).fill(7);
        drop(first);
        let mut second = slot.take(SIZE, here).unwrap();
        assert!(second.values::<u8>(100).iter().all(|b| *b == 7));
        let (fds, words) = second.two::<PollFd, u64>(3, 5);
        assert_eq!((fds.len(), words.len()), (3, 5));
        fds.fill(PollFd { fd: -1, events: -1, revents: -1 });
        assert!(words.iter().all(|w| *w == u64::from_ne_bytes([7; 8])));
    }

    #[test]
    fn what_interrupts_a_living_frame_gets_memory_of_its_own() {
        let slot = Slot::default();
        let here = stack_address();
        let mut outer = slot.take(8, here).unwrap();
        outer.values::<u64>(1)[0] = 1;
        let mut inner = slot.take(8, here - 256).unwrap();
        inner.values::<u64>(1)[0] = 2;
        drop(inner);
        assert_eq!(outer.values::<u64>(1)[0], 1);
        // One that returned nowhere is taken over by the frames above it.
        std::mem::forget(outer);
        let mut next = slot.take(8, here + 64).unwrap();
        assert_eq!(next.values::<u64>(1)[0], 1);
        drop(next);
        assert_eq!(slot.frame.load(Relaxed), 0);
    }

    #[test]
    fn more_than_a_slot_holds_is_mapped_for_the_call() {
        let slot = Slot::default();
        let mut large = slot.take(4 * SIZE, stack_address()).unwrap();
        assert!(large.values::<u64>(SIZE / 2).iter().all(|w| *w == 0));
        assert_eq!(slot.at.load(Relaxed), 0);
    }

    #[test]
    #[should_panic(expected = "as many as were asked for")]
    fn values_beyond_the_end_are_refused() {
        Slot::default().take(16, stack_address()).unwrap().two::<u64, u8>(2, 1);
    }
}
