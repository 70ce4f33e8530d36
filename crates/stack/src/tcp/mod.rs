//! TCP (RFC 9293): parts of a connection. Not reachable from the stack yet.

pub mod assembler;
pub mod buffer;
pub mod congestion;
pub mod rack;
pub mod rtt;
pub mod sent;
