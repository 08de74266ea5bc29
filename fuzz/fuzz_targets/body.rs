//! A JSON body. What must hold is in `src/fuzz/body.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nouns::fuzz::body(data));
