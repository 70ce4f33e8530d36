//! When memory goes back to the kernel: allocators keep what lies below something that is still in use, so that a service would stay
//! as large as it ever was.

use bypath_sys::heap;

/// Octets that nobody has, below which they are kept for who comes next.
const LEAST: usize = 16 << 20;
/// How long nobody has taken them again (ns).
const REST: u64 = 1_000_000_000;
/// Octets of a socket beside those of its connection, or that wait for it, about.
pub const OF_SOCKET: usize = 8 << 10;

/// What there was since memory was last given back.
#[derive(Debug, Default)]
pub struct Memory {
    most: usize,
    due: Option<u64>,
}

impl Memory {
    /// So many octets are held now (ns); when to look again.
    pub fn look(&mut self, held: usize, now: u64) -> Option<u64> {
        if self.is_due(held, now) {
            heap::give_back();
        }
        self.due
    }

    /// Whether it is time: half of what there was is free, and was for a while.
    fn is_due(&mut self, held: usize, now: u64) -> bool {
        self.most = self.most.max(held);
        if self.most - held < LEAST || held > self.most / 2 {
            self.due = None;
            return false;
        }
        let due = *self.due.get_or_insert(now + REST);
        if now < due {
            return false;
        }
        (self.most, self.due) = (held, None);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_goes_back_once_when_half_of_it_is_free_for_a_while() {
        let mut memory = Memory::default();
        let much = 8 * LEAST;
        for (held, now, due) in [
            (much, 0, false),
            (much / 2 + 1, 1, false),
            // It is taken again in time.
            (much / 2, 2, false),
            (much, REST, false),
            (0, REST + 1, false),
            (0, 2 * REST, false),
            (0, 2 * REST + 1, true),
            (0, 9 * REST, false),
            (LEAST - 1, 10 * REST, false),
            (0, 11 * REST, false),
            (0, 20 * REST, false),
        ] {
            assert_eq!(memory.is_due(held, now), due, "{held} at {now}");
        }
        assert_eq!(memory.look(0, 21 * REST), None);
        memory.look(much, 22 * REST);
        assert_eq!(memory.look(0, 23 * REST), Some(24 * REST));
        assert_eq!(memory.look(0, 24 * REST), None);
    }
}
