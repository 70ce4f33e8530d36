//! BSD socket semantics over rings: which path a byte takes, and the switch between paths.

pub mod config;
pub mod hook;
