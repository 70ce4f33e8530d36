//! The architecture, as an ordinary test: who may depend on whom, where `unsafe` may stand, what the preload
//! library exports and carries along. Each check is a function that is also shown bad input.

mod closure;
#[path = "../common/mod.rs"]
mod common;
mod edges;
mod sources;
mod symbols;
