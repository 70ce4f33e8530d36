//! The stack in simulated networks.

mod routers;
