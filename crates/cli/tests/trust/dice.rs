//! What is random, by a seed.

/// splitmix64.
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    /// A number that something is likely to be about.
    pub fn number(&mut self) -> u64 {
        let shift = self.below(64);
        let near = self.below(5) as u64;
        match self.below(8) {
            0 => self.next(),
            1 => self.next() >> shift,
            2 => near,
            3 => (1 << 32) - 2 + near,
            4 => (1 << 62) - 2 + near,
            5 => u64::MAX - near,
            6 => self.below(3) as u64 * 4096 + near,
            _ => 1 << shift,
        }
    }

    /// Octets that the victim can know for the peer's: without the top bit.
    pub fn octets(&mut self, most: usize) -> Vec<u8> {
        let len = 1 + self.below(most);
        let (first, add) = (self.next() as u8, self.next() as u8);
        (0..len).map(|i| first.wrapping_add(add.wrapping_mul(i as u8)) & 0x7f).collect()
    }
}
