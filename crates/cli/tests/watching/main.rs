//! What can be seen of programs from outside while they talk through rings: `bypath metrics`, `top` and `dump`.

#[path = "../common/mod.rs"]
mod common;

mod dump;
mod lab;
mod letters;
mod metrics;
mod quiet;
mod stamps;
mod still;
mod still_letters;
mod terminal;
mod told;
mod top;
mod udp;
mod undisturbed;
mod words;
