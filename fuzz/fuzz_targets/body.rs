//! A JSON body. What must hold is in `fuzz/oracles/body.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nouns::fuzz::body(data));
