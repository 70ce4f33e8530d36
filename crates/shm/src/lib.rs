//! Rings and shared structures: everything that lives in memory seen by more than one process.

pub mod family;
pub mod reason;
pub mod stats;
