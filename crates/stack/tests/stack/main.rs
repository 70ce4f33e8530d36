//! Stacks that are joined, in virtual time: what goes out of one comes into the others.

mod allocations;
mod documents;
mod errors;
mod fragments;
mod groups;
mod hostile;
mod neighbors;
mod offload;
mod reach;
mod routers;
mod shares;
mod tcp;
mod udp;
mod unproven;
mod world;
