//! The stack in simulated networks: routers, faults by seed, attacks, and whatever a mutation makes of a frame.

mod attacks;
mod black_holes;
mod determinism;
mod faults;
mod fragments;
mod goodput;
mod routers;
mod sessions;
mod streams;
mod tcp_attacks;
mod traffic;
