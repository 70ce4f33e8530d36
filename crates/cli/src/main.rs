//! The `bypath` command.
fn main() {}
