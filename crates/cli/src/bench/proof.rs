//! Proof that bytes went through shared memory: the counters that `bypath run --stats FILE` leaves behind.

use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::path::Path;

/// What the processes of a run counted together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Proof {
    ring: u64,
    all: u64,
    /// Connections that were upgraded, in the process that has the fewest.
    upgraded: u64,
}

impl Proof {
    /// Reads the counters; nothing counts as nothing.
    pub fn read(stats: &Path) -> Proof {
        let raw = std::fs::read(stats).unwrap_or_default();
        let records: Vec<_> = raw.chunks_exact(RECORD_SIZE).filter_map(StatsSnapshot::decode).collect();
        let mut proof = Proof::default();
        for bytes in records.iter().map(|r| r.bytes) {
            proof.ring += bytes.ring_tx + bytes.ring_rx;
            proof.all += bytes.sent() + bytes.received();
        }
        proof.upgraded = records.iter().map(|r| r.upgraded).min().unwrap_or(0);
        proof
    }

    /// What a reader of the figure should know: nothing if nearly all bytes went through rings.
    pub fn note(self) -> Option<String> {
        if self.all == 0 {
            return Some("no bytes were counted by Bypath".into());
        }
        let share = self.ring as f64 / self.all as f64;
        (share < 0.95).then(|| format!("{:.1} % of the bytes went through the ring", share * 100.0))
    }

    /// The same for connections that carry few bytes: nothing if at least `n` were upgraded.
    pub fn note_of_connections(self, n: u64) -> Option<String> {
        (self.upgraded < n).then(|| format!("{} of {n} connections were upgraded", self.upgraded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_is_told_when_the_ring_was_not_used() {
        let note = |ring, all| Proof { ring, all, upgraded: 3 }.note();
        assert_eq!(note(99, 100), None);
        assert_eq!(note(20, 100).unwrap(), "20.0 % of the bytes went through the ring");
        assert!(note(0, 0).is_some() && Proof::read(Path::new("/nonexistent")).note().is_some());
        let proof = Proof { ring: 1, all: 1, upgraded: 3 };
        assert_eq!((proof.note_of_connections(3), proof.note_of_connections(4).is_some()), (None, true));
    }
}
