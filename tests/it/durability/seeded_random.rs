//! A seeded random number generator: equal seeds give equal choices.
//!
//! It is SplitMix64, and only for tests.
//! `NOUNS_SEED` sets the seed of a run; without it the clock does.

use std::time::{SystemTime, UNIX_EPOCH};

#[derive(Debug, Clone)]
pub struct SeededRandom(u64);

impl SeededRandom {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(end).unwrap()).unwrap()
    }

    /// One of these, if there are any.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> Option<&'a T> {
        if of.is_empty() { None } else { Some(&of[self.below(of.len())]) }
    }
}

/// The seed of this run, printed so that a failed run can be repeated.
pub fn print_seed(of: &str) -> u64 {
    let seed = match std::env::var("NOUNS_SEED") {
        Ok(text) => text.parse().expect("NOUNS_SEED is a whole number"),
        Err(_) => {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
            u64::from(now.subsec_nanos()) ^ (now.as_secs() << 20)
        }
    };
    println!("{of}: NOUNS_SEED={seed}");
    seed
}
