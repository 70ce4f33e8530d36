//! What README.md shows of raw Ethernet, and all of docs/raw-ethernet.md, works as it is typed.

mod blocks;
mod common;
mod readme;
mod tutorial;
