//! Numbers that nobody can guess who does not know the seed: ChaCha with eight rounds (RFC 8439, 2.3, has twenty; eight are
//! what the fast generators of operating systems and libraries use).

/// Quarter rounds of a double round: columns, then diagonals (RFC 8439, 2.3).
const QUARTERS: [[usize; 4]; 8] = [
    [0, 4, 8, 12],
    [1, 5, 9, 13],
    [2, 6, 10, 14],
    [3, 7, 11, 15],
    [0, 5, 10, 15],
    [1, 6, 11, 12],
    [2, 7, 8, 13],
    [3, 4, 9, 14],
];

/// A generator.
#[derive(Debug)]
pub struct Random {
    key: [u32; 8],
    block: u64,
    words: [u32; 16],
    used: usize,
}

impl Random {
    /// The same seed gives the same numbers.
    pub fn new(seed: [u8; 32]) -> Random {
        let mut key = [0; 8];
        for (word, octets) in key.iter_mut().zip(seed.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*octets);
        }
        Random { key, block: 0, words: [0; 16], used: 16 }
    }

    /// The next 32 bits.
    pub fn next_u32(&mut self) -> u32 {
        if self.used == self.words.len() {
            self.words = block(&self.key, self.block, 0, 8);
            (self.block, self.used) = (self.block + 1, 0);
        }
        self.used += 1;
        self.words[self.used - 1]
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        u64::from(self.next_u32()) << 32 | u64::from(self.next_u32())
    }

    /// A number that follows from two others and the seed, and not from what was asked before: a keyed function (RFC 8439, 2.3,
    /// with one as the counter and the other as the nonce). Of a generator that is asked for this alone.
    pub fn function(&self, a: u64, b: u64) -> u64 {
        let words = block(&self.key, a, b, 8);
        u64::from(words[0]) << 32 | u64::from(words[1])
    }

    /// A number below `end`, each as likely as the others but for one part in 2^32 / `end`; 0 if that is 0.
    pub fn below(&mut self, end: u32) -> u32 {
        ((u64::from(self.next_u32()) * u64::from(end)) >> 32) as u32
    }
}

fn block(key: &[u32; 8], count: u64, nonce: u64, rounds: usize) -> [u32; 16] {
    let mut start = [0; 16];
    start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
    start[4..12].copy_from_slice(key);
    (start[12], start[13]) = (count as u32, (count >> 32) as u32);
    (start[14], start[15]) = (nonce as u32, (nonce >> 32) as u32);
    let mut state = start;
    for _ in 0..rounds / 2 {
        for [a, b, c, d] in QUARTERS {
            for (turn, left) in [16, 12, 8, 7].into_iter().enumerate() {
                let (x, y, z) = if turn % 2 == 0 { (a, b, d) } else { (c, d, b) };
                state[x] = state[x].wrapping_add(state[y]);
                state[z] = (state[z] ^ state[x]).rotate_left(left);
            }
        }
    }
    for (word, first) in state.iter_mut().zip(start) {
        *word = word.wrapping_add(first);
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 8439, A.1, test vector 1: a key of zeros, twenty rounds.
    #[test]
    fn the_block_is_that_of_the_rfc() {
        let words = block(&[0; 8], 0, 0, 20);
        assert_eq!(words[..4], [0xade0_b876, 0x903d_f1a0, 0xe56a_5d40, 0x28bd_8653]);
        assert_eq!(words[15], 0x8665_eeb2);
    }

    #[test]
    fn numbers_follow_from_the_seed_and_stay_below_the_end() {
        let (mut a, mut b, mut c) = (Random::new([1; 32]), Random::new([1; 32]), Random::new([2; 32]));
        let first: [u64; 40] = core::array::from_fn(|_| a.next_u64());
        assert_eq!(first, core::array::from_fn(|_| b.next_u64()));
        assert_ne!(first[0], c.next_u64());
        assert!((0..1000).all(|_| a.below(7) < 7) && a.below(0) == 0);
    }
}
