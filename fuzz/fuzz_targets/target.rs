//! A method and a request target. What must hold is in `fuzz/oracles/target.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nouns::fuzz::target(data));
