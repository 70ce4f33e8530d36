//! The protocol of `bypath chat`: two ends, a TCP connection to agree by, raw frames for what is said. No socket, no
//! clock: bytes and frames go in and out, time is an argument. docs/l2-tools.md is the text that this is the code of.

pub mod control; //  what is said on the connection
pub mod data; //     a frame with a piece of the stream
mod incoming; //     pieces become messages; what is missing
mod outgoing; //     messages become pieces; what the other end has
mod ranges; //       sets of positions
pub mod session; //  both ways together: timers, the end, and when to give up
#[cfg(test)]
mod simulation;

/// Longest message.
pub const LONGEST: usize = 16 << 20;
/// Octets of a message's length in the stream.
const PREFIX: usize = 4;
/// Octets that a receiver holds beyond what is complete, and that may be on their way.
const WINDOW: u64 = 1 << 20;

/// What no honest peer says, in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lie(String);

impl Lie {
    fn new(text: impl std::fmt::Display) -> Lie {
        Lie(text.to_string())
    }
}

impl std::fmt::Display for Lie {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}
