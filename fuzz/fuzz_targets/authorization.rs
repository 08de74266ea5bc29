//! The value of `Authorization`. What must hold is in `fuzz/oracles/authorization.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nouns::fuzz::authorization(data));
