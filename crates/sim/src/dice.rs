//! Chance that can be repeated: SplitMix64 (Steele, Lea, Flood 2014). Not for secrets.

/// A sequence of numbers that look like chance, and follow from a seed.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// The same seed gives the same numbers.
    pub const fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// Another sequence, which follows from this one's seed and a number: draws of one do not shift the other's.
    pub fn fork(&self, number: u64) -> Dice {
        Dice(Dice(self.0 ^ number.wrapping_mul(0xd6e8_feb8_6659_fd93)).roll())
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// One below `end`; 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(end)) >> 64) as u64
    }

    /// One below `end`, for what is counted in memory.
    pub fn index(&mut self, end: usize) -> usize {
        self.below(end as u64) as usize
    }

    /// True with this probability. Draws once, whatever it is.
    pub fn chance(&mut self, probability: f64) -> bool {
        const SCALE: f64 = 1.0 / (1u64 << 53) as f64;
        ((self.roll() >> 11) as f64 * SCALE) < probability
    }

    /// A secret for a stack.
    pub fn secret(&mut self) -> [u8; 32] {
        let mut secret = [0; 32];
        secret.as_chunks_mut::<8>().0.iter_mut().for_each(|octets| *octets = self.roll().to_le_bytes());
        secret
    }
}
