//! Ids for new items: UUIDs of version 7 (RFC 9562), in the order they are asked for.
//!
//! Within a millisecond, and while the clock is behind, each is a random step larger than the last
//! (§6.2, method 2). The one surprising thing: randomness is drawn from the system in advance, so
//! that an id costs no system call.

use std::cell::RefCell;
use std::fmt;

use uuid::{Builder, Uuid};

use crate::value::Moment;

/// RFC 9562 §5.7: what remains of 128 bits beside time, version and variant.
const RANDOM_BITS: u32 = 74;
const DRAWN_BYTES: usize = 1_024;

/// Makes ids; each thread has its own.
#[derive(Default)]
pub(super) struct Ids(RefCell<State>);

#[derive(Default)]
struct State {
    millis: u64,
    random: u128,
    /// From the system; bytes from `used` on were never given out.
    drawn: Vec<u8>,
    used: usize,
}

impl fmt::Debug for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ids")
    }
}

impl Ids {
    /// The next id. Fails only when the system has no randomness.
    pub(super) fn next(&self, now: Moment) -> Result<Uuid, getrandom::Error> {
        let mut state = self.0.borrow_mut();
        let (seconds, nanos) = now.since_1970();
        let millis = seconds * 1_000 + u64::from(nanos / 1_000_000);
        let step = state.draw::<4>()?;
        let next = state.random + 1 + u128::from(u32::from_le_bytes(step));
        if millis > state.millis || next >> RANDOM_BITS != 0 {
            state.millis = millis.max(state.millis + 1);
            // Half of the numbers stay free above it.
            state.random = u128::from_le_bytes(state.draw()?) >> (128 - RANDOM_BITS + 1);
        } else {
            state.random = next;
        }
        // 12 bits beside the version, 62 beside the variant.
        let high = u16::try_from(state.random >> 62).unwrap_or(0);
        let low = u64::try_from(state.random & ((1 << 62) - 1)).unwrap_or(0);
        let mut bytes = [0; 10];
        let (before, after) = bytes.split_at_mut(2);
        before.copy_from_slice(&high.to_be_bytes());
        after.copy_from_slice(&low.to_be_bytes());
        Ok(Builder::from_unix_timestamp_millis(state.millis, &bytes).into_uuid())
    }
}

impl State {
    fn draw<const N: usize>(&mut self) -> Result<[u8; N], getrandom::Error> {
        if self.drawn.len() < self.used + N {
            self.drawn.resize(DRAWN_BYTES, 0);
            getrandom::fill(&mut self.drawn)?;
            self.used = 0;
        }
        let from = self.used;
        self.used += N;
        let bytes = self.drawn.get(from..self.used).and_then(|bytes| bytes.try_into().ok());
        Ok(bytes.unwrap_or([0; N]))
    }
}

#[cfg(test)]
mod tests {
    use uuid::{Variant, Version};

    use super::*;

    #[test]
    fn ids_grow_within_a_millisecond_and_when_the_clock_is_set_back() {
        let (ids, later) = (Ids::default(), Moment::from_micros(1_700_000_000_123_999).unwrap());
        let earlier = Moment::from_micros(1_600_000_000_000_000).unwrap();
        let mut last = Uuid::nil();
        for number in 0..10_000 {
            let next = ids.next(if number % 7 == 3 { earlier } else { later }).unwrap();
            assert!(next > last, "{next} after {last}");
            assert_eq!(next.get_version(), Some(Version::SortRand));
            assert_eq!(next.get_variant(), Variant::RFC4122);
            assert_eq!(next.get_timestamp().unwrap().to_unix(), (1_700_000_000, 123_000_000));
            last = next;
        }
    }

    #[test]
    fn a_millisecond_that_is_used_up_is_followed_by_the_next() {
        let (ids, now) = (Ids::default(), Moment::from_micros(1_700_000_000_123_000).unwrap());
        let first = ids.next(now).unwrap();
        ids.0.borrow_mut().random = (1 << RANDOM_BITS) - 1;
        let second = ids.next(now).unwrap();
        assert!(second > first);
        assert_eq!(second.get_timestamp().unwrap().to_unix(), (1_700_000_000, 124_000_000));
    }

    #[test]
    fn two_threads_make_different_ids() {
        let now = Moment::from_micros(1_700_000_000_000_000).unwrap();
        let (one, other) = (Ids::default(), Ids::default());
        assert_ne!(one.next(now).unwrap(), other.next(now).unwrap());
    }
}
