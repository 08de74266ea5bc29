//! What proxies say of their clients. What must hold is in `fuzz/oracles/forwarded.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| nouns::fuzz::forwarded(data));
