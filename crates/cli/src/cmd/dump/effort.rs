//! How long is spent on what processes of one user map.

/// In one look for connections: 50 ms on one other user's, 200 ms on all other users'.
pub type Effort = crate::effort::Effort<50, 200>;
