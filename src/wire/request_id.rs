//! Request ids: 26 characters that sort by time and identify one request in responses, logs and changes.
//!
//! They are not secret and prove nothing. Each thread has its own random generator, seeded once from the
//! system, so that an id costs no system call.

use std::cell::Cell;
use std::hash::{BuildHasher, RandomState};
use std::str;

use http::HeaderValue;

use crate::clock;
use crate::fault::OrBug;

/// Crockford's base 32: without i, l, o and u.
const DIGITS: [u8; 32] = *b"0123456789abcdefghjkmnpqrstvwxyz";
const LENGTH: usize = 26;

/// 48 bits of milliseconds, then 80 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId([u8; LENGTH]);

thread_local! {
    static STATE: Cell<u64> = Cell::new(seed());
}

impl RequestId {
    pub fn new() -> Self {
        Self::from_bits(clock::unix_millis(), next_random(), next_random())
    }

    fn from_bits(millis: u64, high: u64, low: u64) -> Self {
        let random = (u128::from(high & 0xffff) << 64) | u128::from(low);
        let bits = (u128::from(millis) << 80) | random;
        let mut text = [b'0'; LENGTH];
        let mut rest = bits;
        for slot in text.iter_mut().rev() {
            *slot = *DIGITS.get((rest & 31) as usize).or_bug("there are 32 digits");
            rest >>= 5;
        }
        Self(text)
    }

    pub fn as_str(&self) -> &str {
        str::from_utf8(&self.0).or_bug("digits are ASCII")
    }

    pub fn header(&self) -> HeaderValue {
        HeaderValue::from_bytes(&self.0).or_bug("digits are ASCII")
    }
}

fn seed() -> u64 {
    // Without system randomness ids may repeat, which is better than not serving.
    getrandom::u64().unwrap_or_else(|_| RandomState::new().hash_one(clock::unix_millis()))
}

/// SplitMix64: a counter and a mixer; every state is valid.
fn next_random() -> u64 {
    STATE.with(|state| {
        let next = state.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
        state.set(next);
        let mixed = (next ^ (next >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::thread;

    use super::*;

    #[test]
    fn request_id_encodes_time_then_random_bits() {
        let show = |millis, high, low| RequestId::from_bits(millis, high, low).as_str().to_owned();
        assert_eq!(show(0, 0, 0), "0".repeat(26));
        assert_eq!(show(0, 0, 31), format!("{}z", "0".repeat(25)));
        assert_eq!(show(1, 0, 0), format!("0000000001{}", "0".repeat(16)));
        assert_eq!(show((1 << 48) - 1, u64::MAX, u64::MAX), format!("7{}", "z".repeat(25)));
    }

    #[test]
    fn request_ids_sort_by_time_and_are_unique() {
        assert!(RequestId::from_bits(1, 0xffff, u64::MAX) < RequestId::from_bits(2, 0, 0));
        let draw = || (0..10_000).map(|_| RequestId::new().as_str().to_owned()).collect::<Vec<_>>();
        let other = thread::spawn(draw).join().unwrap();
        let all: HashSet<String> = draw().into_iter().chain(other).collect();
        assert_eq!(all.len(), 20_000);
        assert!(all.iter().all(|id| id.len() == 26 && id.bytes().all(|b| DIGITS.contains(&b))));
    }
}
