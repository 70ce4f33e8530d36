#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| bypath_sim::fuzz::session(input));
