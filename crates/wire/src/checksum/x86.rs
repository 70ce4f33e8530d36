//! The sums for x86-64 processors with AVX2 or AVX-512: the portable loops compiled for wider registers, and a masked
//! load for the last octets. Asked once per process, remembered by the standard library.

use super::{copy_here, half, sum_here};
use core::arch::x86_64::*;
use std::arch::is_x86_feature_detected;

/// From so many octets on it is worth asking what the processor can do.
pub(super) const WIDE: usize = 64;

/// As `sum_here`, on the widest registers of this processor.
pub(super) fn sum(data: &[u8]) -> u64 {
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { sum_avx512(data) };
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: as above.
        return unsafe { sum_avx2(data) };
    }
    sum_here(data)
}

/// As `copy_here`, on the widest registers of this processor. The lengths are equal.
pub(super) fn copy(to: &mut [u8], from: &[u8]) -> u64 {
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
        // SAFETY: the processor has what the function is compiled for.
        return unsafe { copy_avx512(to, from) };
    }
    if is_x86_feature_detected!("avx2") {
        // SAFETY: as above.
        return unsafe { copy_avx2(to, from) };
    }
    copy_here(to, from)
}

#[target_feature(enable = "avx2")]
pub(super) fn sum_avx2(data: &[u8]) -> u64 {
    sum_here(data)
}

#[target_feature(enable = "avx2")]
pub(super) fn copy_avx2(to: &mut [u8], from: &[u8]) -> u64 {
    copy_here(to, from)
}

/// Octets in a register.
const BLOCK: usize = 64;

/// The two numbers of `super::joined`, in eight lanes.
#[derive(Clone, Copy)]
struct Lanes {
    all: __m512i,
    upper: __m512i,
}

impl Lanes {
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn new() -> Lanes {
        Lanes { all: _mm512_setzero_si512(), upper: _mm512_setzero_si512() }
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn add(&mut self, words: __m512i) {
        self.all = _mm512_add_epi64(self.all, words);
        self.upper = _mm512_add_epi64(self.upper, _mm512_srli_epi64::<32>(words));
    }

    /// The sum of both, folded once.
    #[target_feature(enable = "avx512f")]
    #[inline]
    fn sum(self, other: Lanes) -> u64 {
        let upper = _mm512_add_epi64(self.upper, other.upper);
        let all = _mm512_add_epi64(self.all, other.all);
        let lower = _mm512_sub_epi64(all, _mm512_slli_epi64::<32>(upper));
        half(_mm512_reduce_add_epi64(_mm512_add_epi64(lower, upper)) as u64)
    }
}

/// Which octets of a block a rest of `len` octets fills.
fn filled(len: usize) -> __mmask64 {
    (1u64 << len) - 1
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn sum_avx512(data: &[u8]) -> u64 {
    let (mut even, mut odd) = (Lanes::new(), Lanes::new());
    let (blocks, rest) = data.as_chunks::<BLOCK>();
    let (pairs, last) = blocks.as_chunks::<2>();
    for [first, second] in pairs {
        // SAFETY: a block is 64 readable octets; the load asks for no alignment.
        even.add(unsafe { _mm512_loadu_si512(first.as_ptr().cast()) });
        // SAFETY: as above.
        odd.add(unsafe { _mm512_loadu_si512(second.as_ptr().cast()) });
    }
    if let [block] = last {
        // SAFETY: as above.
        even.add(unsafe { _mm512_loadu_si512(block.as_ptr().cast()) });
    }
    if !rest.is_empty() {
        // SAFETY: `rest` is shorter than a block, and octets whose bit is not set are not touched.
        odd.add(unsafe { _mm512_maskz_loadu_epi8(filled(rest.len()), rest.as_ptr().cast()) });
    }
    even.sum(odd)
}

/// From so many octets on, a copy begins with those before the first whole block of memory that it writes: a store that spans two
/// lines of the cache costs more than one step.
const ALIGNED: usize = 4 * BLOCK;

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn copy_avx512(to: &mut [u8], from: &[u8]) -> u64 {
    let head = to.as_ptr().align_offset(BLOCK);
    if from.len() < ALIGNED || head == 0 || head >= BLOCK {
        return copy_blocks(to, from);
    }
    let ((first, behind), (first_to, behind_to)) = (from.split_at(head), to.split_at_mut(head));
    let mut lanes = Lanes::new();
    lanes.add(copy_rest(first_to, first));
    let sum = copy_blocks(behind_to, behind);
    // Behind an odd number of octets each one is the other one of its word.
    half(lanes.sum(Lanes::new()) + half(if head % 2 == 1 { sum.rotate_left(8) } else { sum }))
}

#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn copy_blocks(to: &mut [u8], from: &[u8]) -> u64 {
    let (mut even, mut odd) = (Lanes::new(), Lanes::new());
    let (blocks, rest) = from.as_chunks::<BLOCK>();
    let (blocks_to, rest_to) = to.as_chunks_mut::<BLOCK>();
    let (pairs, last) = blocks.as_chunks::<2>();
    let (pairs_to, last_to) = blocks_to.as_chunks_mut::<2>();
    for ([first, second], [first_to, second_to]) in pairs.iter().zip(pairs_to) {
        // SAFETY: a block is 64 readable octets; the load asks for no alignment.
        let words = unsafe { _mm512_loadu_si512(first.as_ptr().cast()) };
        // SAFETY: as above.
        let others = unsafe { _mm512_loadu_si512(second.as_ptr().cast()) };
        // SAFETY: a block is 64 writable octets; the store asks for no alignment.
        unsafe { _mm512_storeu_si512(first_to.as_mut_ptr().cast(), words) };
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(second_to.as_mut_ptr().cast(), others) };
        even.add(words);
        odd.add(others);
    }
    if let ([block], [block_to]) = (last, last_to) {
        // SAFETY: as above.
        let words = unsafe { _mm512_loadu_si512(block.as_ptr().cast()) };
        even.add(words);
        // SAFETY: as above.
        unsafe { _mm512_storeu_si512(block_to.as_mut_ptr().cast(), words) };
    }
    if !rest.is_empty() {
        odd.add(copy_rest(rest_to, rest));
    }
    even.sum(odd)
}

/// Copies less than a block; the octets.
#[target_feature(enable = "avx512f,avx512bw")]
#[inline]
fn copy_rest(to: &mut [u8], from: &[u8]) -> __m512i {
    assert!(from.len() < BLOCK && to.len() == from.len());
    let mask = filled(from.len());
    // SAFETY: `from` is shorter than a block, and octets whose bit is not set are not touched.
    let words = unsafe { _mm512_maskz_loadu_epi8(mask, from.as_ptr().cast()) };
    // SAFETY: `to` is as long as `from`, and octets whose bit is not set are not touched.
    unsafe { _mm512_mask_storeu_epi8(to.as_mut_ptr().cast(), mask, words) };
    words
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::checksum::Sum;
    use crate::checksum::tests::Way;
    use std::vec::Vec;

    fn folded(native: u64) -> u16 {
        Sum::new().with(native, 0).folded()
    }

    /// The implementations that this processor can run, whichever of them is dispatched to.
    pub fn ways() -> Vec<Way> {
        let mut ways: Vec<Way> = Vec::new();
        if is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2.
            ways.push((
                "avx2",
                |d| folded(unsafe { sum_avx2(d) }),
                |t, f| {
                    // SAFETY: as above.
                    folded(unsafe { copy_avx2(t, f) })
                },
            ));
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512bw") {
            // SAFETY: the processor has AVX-512 F and BW.
            ways.push((
                "avx512",
                |d| folded(unsafe { sum_avx512(d) }),
                |t, f| {
                    // SAFETY: as above.
                    folded(unsafe { copy_avx512(t, f) })
                },
            ));
        }
        ways
    }
}
