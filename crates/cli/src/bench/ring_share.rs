//! Proof that bytes went through shared memory: the counters that `bypath run --stats FILE` leaves behind.

use bypath_shm::stats::{RECORD_SIZE, StatsSnapshot};
use std::path::Path;

/// Share of the bytes (0 to 1) that went through rings; `None` if no TCP bytes were counted.
pub fn ring_share(stats: &Path) -> Option<f64> {
    let raw = std::fs::read(stats).ok()?;
    let (mut ring, mut all) = (0, 0);
    for record in raw.chunks_exact(RECORD_SIZE).filter_map(StatsSnapshot::decode) {
        let b = record.bytes;
        ring += b.ring_tx + b.ring_rx;
        all += b.ring_tx + b.ring_rx + b.kernel_tx + b.kernel_rx;
    }
    (all > 0).then(|| ring as f64 / all as f64)
}

/// What a reader of the figure should know: nothing if nearly all bytes went through rings.
pub fn note(share: Option<f64>) -> Option<String> {
    match share {
        Some(share) if share >= 0.95 => None,
        Some(share) => Some(format!("{:.1} % of the bytes went through the ring", share * 100.0)),
        None => Some("no bytes were counted by Bypath".into()),
    }
}
