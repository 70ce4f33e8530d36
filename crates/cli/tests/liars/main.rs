//! The tools read what processes say of themselves, and some lie: names that lead elsewhere, bells that make who rings them wait,
//! more of everything than there can be.

#[path = "../common/mod.rs"]
mod common;
#[path = "../watching/lab.rs"]
#[expect(dead_code, reason = "a part is needed here")]
mod lab;

mod begins;
mod bells;
mod crowds;
mod forged;
mod liar;
mod names;
mod otherwise;
mod services;
mod slow;
mod unusual;
mod whose;
