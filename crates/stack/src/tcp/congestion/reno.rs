//! Reno's growth (RFC 5681, 3.1): a segment for each window that was acknowledged, counted in octets.

/// Octets that were acknowledged and have not made the window grow yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reno {
    counted: u32,
}

impl Reno {
    /// The window after this acknowledgement.
    pub fn acked(&mut self, mut cwnd: u32, smss: u32, octets: u32) -> u32 {
        self.counted = self.counted.saturating_add(octets);
        while self.counted >= cwnd {
            self.counted -= cwnd;
            cwnd = cwnd.saturating_add(smss);
        }
        cwnd
    }
}
