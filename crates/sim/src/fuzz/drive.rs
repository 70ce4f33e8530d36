//! Mutations without a look at what they reach: deterministic, so that a round can be repeated, and good enough to be run with
//! every change.

use super::{input, pieces};
use crate::dice::Dice;

/// Octets and pieces of an input at most.
const LONGEST: usize = 16 << 10;
const MOST: usize = 40;
/// Values that limits are at.
const EDGES: [u8; 8] = [0, 1, 4, 0x7f, 0x80, 0xfe, 0xff, 0x20];

/// How a target is driven.
#[derive(Clone, Copy, Debug)]
pub struct Drive {
    /// All chance follows from it.
    pub seed: u64,
    /// Inputs beside those of the corpus.
    pub rounds: u64,
}

/// Gives `target` each input of a corpus, and what mutations make of them, until `goes_on` says no. How many they were.
pub fn drive(
    drive: Drive,
    corpus: &[Vec<u8>],
    mut target: impl FnMut(&[u8]),
    mut goes_on: impl FnMut() -> bool,
) -> u64 {
    let mut dice = Dice::new(drive.seed);
    corpus.iter().for_each(|input| target(input));
    let mut done = corpus.len() as u64;
    for _ in 0..drive.rounds {
        if !goes_on() {
            break;
        }
        target(&mutate(&mut dice, corpus));
        done += 1;
    }
    done
}

/// An input of the corpus, changed.
pub fn mutate(dice: &mut Dice, corpus: &[Vec<u8>]) -> Vec<u8> {
    let some = |dice: &mut Dice| corpus.get(dice.index(corpus.len())).map_or(&[][..], Vec::as_slice);
    let mut all: Vec<Vec<u8>> = pieces(some(dice)).take(MOST).map(<[u8]>::to_vec).collect();
    for _ in 0..1 + dice.index(6) {
        if all.is_empty() {
            all.push(vec![0; dice.index(100)]);
        }
        let at = dice.index(all.len());
        match dice.index(12) {
            0 => {
                let other: Vec<_> = pieces(some(dice)).map(<[u8]>::to_vec).collect();
                if !other.is_empty() && all.len() < MOST {
                    all.insert(at, other[dice.index(other.len())].clone());
                }
            }
            1 if all.len() < MOST => all.insert(at, all[at].clone()),
            2 => {
                all.remove(at);
            }
            3 => {
                let other = dice.index(all.len());
                all.swap(at, other);
            }
            _ => change(dice, &mut all[at], some),
        }
    }
    let mut made = input(all.iter().map(Vec::as_slice));
    made.truncate(LONGEST);
    made
}

/// Changes a piece.
fn change<'a>(dice: &mut Dice, piece: &mut Vec<u8>, some: impl Fn(&mut Dice) -> &'a [u8]) {
    // Mostly where headers are.
    let near = if dice.chance(0.8) { piece.len().min(90) } else { piece.len() };
    let at = dice.index(near.max(1));
    match dice.index(8) {
        0 => piece.truncate(at),
        1 => {
            let more = dice.index(64);
            piece.extend(std::iter::repeat_n(dice.roll() as u8, more));
        }
        2 => {
            let other = some(dice);
            let from = dice.index(other.len());
            let len = dice.index(other.len() - from + 1).min(piece.len().saturating_sub(at));
            piece[at..at + len].copy_from_slice(&other[from..from + len]);
        }
        3 if at + 1 < piece.len() => {
            let number = EDGES[dice.index(EDGES.len())];
            piece[at..at + 2].copy_from_slice(&[dice.roll() as u8 & 1, number]);
        }
        4 if at < piece.len() => piece[at] = EDGES[dice.index(EDGES.len())],
        5 if at < piece.len() => piece[at] = piece[at].wrapping_add(if dice.chance(0.5) { 1 } else { 255 }),
        6 if at < piece.len() => piece[at] = dice.roll() as u8,
        _ if at < piece.len() => piece[at] ^= 1 << dice.index(8),
        _ => piece.push(dice.roll() as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_makes_the_same_inputs_of_bounded_length() {
        let corpus = [input([&b"one"[..], b"two"]), input([&[7; 3000][..]]), Vec::new()];
        let run = |seed| {
            let (mut all, mut left) = (Vec::new(), 500);
            let goes_on = || {
                left -= 1;
                left > 0
            };
            let done =
                drive(Drive { seed, rounds: 1000 }, &corpus, |input| all.push(input.to_vec()), goes_on);
            assert_eq!(done as usize, all.len());
            all
        };
        assert_eq!(run(1), run(1));
        assert!(run(1) != run(2) && run(1).len() == 502);
        assert!(run(1).iter().all(|input| input.len() <= LONGEST));
        let there: Vec<_> = pieces(&corpus[0]).collect();
        assert_eq!(there, [&b"one"[..], b"two"]);
    }
}
