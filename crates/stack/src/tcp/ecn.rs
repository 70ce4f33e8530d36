//! Explicit congestion notification (RFC 3168, 6.1): routers mark packets instead of dropping them.

use bypath_wire::seq::SeqNumber;

/// State of one connection.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ecn {
    /// Both sides have said that they do it.
    pub on: bool,
    /// A marked packet came: every acknowledgement says so until the other side has answered (6.1.3).
    pub echo: bool,
    /// The window was reduced: the next octets say so (6.1.2).
    pub reduced: bool,
    /// Marks count again when this is acknowledged: once a round trip.
    pub until: Option<SeqNumber>,
}
