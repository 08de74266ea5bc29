//! Lines of `Accept`. What must hold is in `fuzz/oracles/accept.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nouns::fuzz::accept(data));
