//! TCP (RFC 9293): one connection as a value. The stack does not know of it yet.

pub mod assembler;
pub mod buffer;
pub mod clock;
pub mod congestion;
mod ecn;
pub mod input;
pub mod output;
pub mod rack;
mod recovery;
pub mod rtt;
pub mod sent;
pub mod tcb;
#[cfg(test)]
mod tests;
