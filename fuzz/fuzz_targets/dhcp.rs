#![no_main]

#[path = "../../crates/netstack/tests/fuzz/dhcp.rs"]
mod client;

libfuzzer_sys::fuzz_target!(|input: &[u8]| client::dhcp(input));
