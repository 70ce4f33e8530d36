//! The C interface as C programs meet it: header, symbols, installation, examples.

mod common;
mod examples;
mod header;
mod symbols;
mod written;
