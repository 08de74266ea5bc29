//! A model file, or two. What must hold is in `fuzz/oracles/model.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nouns::fuzz::model(data));
