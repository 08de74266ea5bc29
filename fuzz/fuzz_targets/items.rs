//! New items without a wrapper. What must hold is in `fuzz/oracles/items.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nouns::fuzz::items(data));
