//! A packet that is to be made.

use super::memory::Local;
use bypath_wire::roce::{Extended, Operation, Psn};

/// What a requester or responder wants to have sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outgoing {
    pub operation: Operation,
    pub psn: Psn,
    pub ack_request: bool,
    /// Somebody waits for it at the other end.
    pub solicited: bool,
    pub extended: Extended,
    /// Octets of this end's memory; none if there are none.
    pub payload: Option<Local>,
}

impl Outgoing {
    /// Without extended headers and payload.
    pub const fn new(operation: Operation, psn: Psn) -> Outgoing {
        Outgoing {
            operation,
            psn,
            ack_request: false,
            solicited: false,
            extended: Extended::None,
            payload: None,
        }
    }
}
