//! Runs the stack: [`Engine`] carries frames between it and links, and [`dhcp`] gets it addresses.

#![forbid(unsafe_code)]

pub mod dhcp;
mod engine;
mod leasing;

pub use engine::{Engine, Error, News};
