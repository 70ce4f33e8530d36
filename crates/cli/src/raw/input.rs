//! Standard input becomes messages.

use crate::output::Failure;

/// Longest message.
pub const LONGEST: usize = 16 << 20;
/// Octets of a message of `--whole`.
const PIECE: usize = 1 << 20;

/// Standard input, read piece by piece.
pub struct Input {
    whole: bool,
    held: Vec<u8>,
    chunk: Vec<u8>,
}

impl Input {
    /// Lines, or, with `whole`, pieces of 1 MiB.
    pub fn new(whole: bool) -> Input {
        Input { whole, held: Vec::new(), chunk: vec![0; 64 << 10] }
    }

    /// Reads once, and gives the messages that are complete to `each`. Whether it was the end.
    ///
    /// # Errors
    /// Standard input cannot be read, a line is too long, or an error of `each`.
    pub fn read(&mut self, mut each: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<bool, Failure> {
        let read = match rustix::io::read(std::io::stdin(), &mut self.chunk) {
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => return Ok(false),
            read => read.map_err(|e| Failure::new(1, format_args!("cannot read standard input: {e}")))?,
        };
        self.held.extend_from_slice(&self.chunk[..read]);
        let mut from = 0;
        while let Some(len) = piece(&self.held[from..], self.whole, read == 0) {
            if len > LONGEST {
                return Err(Failure::new(1, "a line is longer than 16 MiB; send it with --whole"));
            }
            each(&self.held[from..from + len])?;
            from += len;
        }
        self.held.drain(..from);
        Ok(read == 0)
    }
}

/// How long the next message is, if it is there. `last`: no more octets come.
fn piece(held: &[u8], whole: bool, last: bool) -> Option<usize> {
    if held.is_empty() {
        return None;
    }
    let there = if whole {
        (held.len() >= PIECE).then_some(PIECE)
    } else {
        let newline = held.iter().position(|b| *b == b'\n').map(|at| at + 1);
        newline.or((held.len() > LONGEST).then_some(held.len()))
    };
    there.or(last.then_some(held.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_pieces_are_told_apart() {
        assert_eq!((piece(b"", false, true), piece(b"ab", false, false)), (None, None));
        assert_eq!((piece(b"ab\nc", false, false), piece(b"ab", false, true)), (Some(3), Some(2)));
        assert_eq!((piece(b"ab\nc", true, false), piece(b"ab\nc", true, true)), (None, Some(4)));
        let long = vec![b'x'; LONGEST + 1];
        assert_eq!((piece(&long, false, false), piece(&long, true, false)), (Some(LONGEST + 1), Some(PIECE)));
    }
}
