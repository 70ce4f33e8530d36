//! Whether upgrades pay in this process.
//!
//! To move a connection costs both ends some hundred microseconds, which it earns back by a few hundred calls or a
//! mebibyte. Nobody knows how long a connection will last, but those of a process are alike: where moved connections end
//! before they have paid, the next ones must carry more before they are moved, up to 32 times as much; where they pay, less
//! again. At that level a connection has carried more than it costs, so one that goes on for long is never kept back for
//! good, and tells that it paid. An attempt that found nobody at the other end costs as well, and earns nothing.

use crate::peer::Conn;
use crate::table::Sock;
use std::sync::atomic::{AtomicU32, Ordering::*};

/// Calls by the ring (both directions) that pay for the upgrade.
const CALLS: u64 = 256;
/// Bytes by the ring that pay for it, however few the calls.
const BYTES: u64 = 1 << 20;
/// Connections that did not pay, until the thresholds are doubled.
const STEP: u32 = 4;
/// Doublings at most.
const MOST: u32 = 5;

/// Connections of this process that did not pay, less [`STEP`] for each that did. Changes under [`LIFE`](crate::state::LIFE).
static UNPAID: AtomicU32 = AtomicU32::new(0);

/// How many times the configured thresholds a connection has to reach before it is moved.
pub fn factor() -> u64 {
    1 << (UNPAID.load(Relaxed) / STEP)
}

/// `s` is closed, which this process had moved (then with what it was moved to), or had tried to.
pub fn ended(s: &Sock, conn: Option<&Conn>) {
    let end = s.end();
    let paid = conn.is_some_and(|conn| {
        let ring = end.w.tail.load(Relaxed).saturating_add(conn.inc().t.tail.load(Relaxed));
        let cold = end.w.kernel_bytes.load(Relaxed).saturating_add(end.r.kernel_bytes.load(Relaxed));
        has_paid(ring, cold, u64::from(end.r.calls.load(Relaxed)))
    });
    UNPAID.store(after(UNPAID.load(Relaxed), paid), Relaxed);
}

/// Judged by the bytes that went by the ring, and by the calls that they were: as large as those before the upgrade.
fn has_paid(ring: u64, cold: u64, calls: u64) -> bool {
    ring >= BYTES || ring / (cold / calls.max(1)).max(1) >= CALLS
}

fn after(unpaid: u32, paid: bool) -> u32 {
    if paid { unpaid.saturating_sub(STEP) } else { (unpaid + 1).min(STEP * (MOST + 1) - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_pays_by_calls_or_by_bytes() {
        // 16 calls of 64 bytes came before the upgrade.
        assert!(!has_paid(0, 1024, 16));
        assert!(!has_paid(64 * (CALLS - 1), 1024, 16));
        assert!(has_paid(64 * CALLS, 1024, 16));
        // Two calls of 32 KiB.
        assert!(!has_paid(BYTES - 1, 65536, 2));
        assert!(has_paid(BYTES, 65536, 2));
        // Nothing is known about the calls before.
        assert!(has_paid(CALLS, 0, 0) && !has_paid(CALLS - 1, 0, 0));
    }

    #[test]
    fn what_does_not_pay_is_moved_later_and_what_pays_earlier_again() {
        let mut unpaid = 0;
        for _ in 0..STEP - 1 {
            unpaid = after(unpaid, false);
        }
        assert_eq!(unpaid / STEP, 0);
        unpaid = after(unpaid, false);
        assert_eq!(unpaid / STEP, 1);
        for _ in 0..1000 {
            unpaid = after(unpaid, false);
        }
        assert_eq!(unpaid / STEP, MOST);
        for level in (0..MOST).rev() {
            unpaid = after(unpaid, true);
            assert_eq!(unpaid / STEP, level);
        }
        assert_eq!(after(after(unpaid, true), true), 0);
    }
}
