//! Generator of UUIDv7 ids for new items (RFC 9562), monotonic within a thread.
//!
//! An id begins with the creation time of its item to the microsecond (§6.2, method 3), so that sorting by id
//! sorts by creation time, on every server, even if their clocks differ.
//! Within a microsecond, and while the clock is behind, each id is larger than the last by a random increment
//! (method 2). Random bytes are drawn from the system in blocks, so that an id costs no system call.

use std::cell::RefCell;

use uuid::{Builder, Uuid};

use crate::fault::OrBug;
use crate::store::error::StatementError;
use crate::value::{Id, Moment};

/// RFC 9562 §5.7: the bits that remain beside time, version and variant, when the 12 bits after the version
/// hold a part of the time too.
const RANDOM_BITS: u32 = 62;
const RANDOM_POOL_BYTES: usize = 1_024;

thread_local! {
    static GENERATOR: UuidGenerator = UuidGenerator::default();
}

/// Ids of new items, made at `now`.
pub fn next_ids(count: usize, now: Moment) -> Result<Vec<Id>, StatementError> {
    let next = |generator: &UuidGenerator| generator.next(now).map(Id::Uuid);
    let ids: Result<_, _> = GENERATOR.with(|ids| (0..count).map(|_| next(ids)).collect());
    ids.map_err(|error: getrandom::Error| StatementError::Engine(error.to_string()))
}

/// Random UUIDs (RFC 9562 §5.4), which do not contain the time.
pub fn random_uuids(count: usize) -> Result<Vec<Uuid>, StatementError> {
    let next = |generator: &UuidGenerator| {
        generator
            .0
            .borrow_mut()
            .take_random()
            .map(|bytes| Builder::from_random_bytes(bytes).into_uuid())
    };
    let uuids: Result<_, _> = GENERATOR.with(|one| (0..count).map(|_| next(one)).collect());
    uuids.map_err(|error: getrandom::Error| StatementError::Engine(error.to_string()))
}

/// Generates ids; each thread has its own generator.
#[derive(Default)]
struct UuidGenerator(RefCell<GeneratorState>);

#[derive(Default)]
struct GeneratorState {
    micros: u64,
    random: u64,
    /// Random bytes from the system; those from `used` on are unused.
    random_pool: Vec<u8>,
    used: usize,
}

impl UuidGenerator {
    /// The next id. Fails only if the system's random source fails.
    fn next(&self, now: Moment) -> Result<Uuid, getrandom::Error> {
        let mut state = self.0.borrow_mut();
        let (seconds, nanos) = now.since_1970();
        let micros = seconds * 1_000_000 + u64::from(nanos / 1_000);
        let step = state.take_random::<4>()?;
        let next = state.random + 1 + u64::from(u32::from_le_bytes(step));
        if micros > state.micros || next >> RANDOM_BITS != 0 {
            state.micros = micros.max(state.micros + 1);
            // The upper half of the range stays free for increments.
            state.random = u64::from_le_bytes(state.take_random()?) >> (64 - RANDOM_BITS + 1);
        } else {
            state.random = next;
        }
        let (millis, micros) = (state.micros / 1_000, state.micros % 1_000);
        // 4,096 fractions of a millisecond: more than the 1,000 microseconds, so that these stay distinct.
        let part = u16::try_from(micros * 4_096 / 1_000).unwrap_or(0);
        let mut bytes = [0; 10];
        let (before, after) = bytes.split_at_mut(2);
        before.copy_from_slice(&part.to_be_bytes());
        after.copy_from_slice(&state.random.to_be_bytes());
        Ok(Builder::from_unix_timestamp_millis(millis, &bytes).into_uuid())
    }
}

impl GeneratorState {
    fn take_random<const N: usize>(&mut self) -> Result<[u8; N], getrandom::Error> {
        if self.random_pool.len() < self.used + N {
            self.random_pool.resize(RANDOM_POOL_BYTES, 0);
            getrandom::fill(&mut self.random_pool)?;
            self.used = 0;
        }
        let from = self.used;
        self.used += N;
        let bytes = self.random_pool.get(from..self.used).and_then(|bytes| bytes.try_into().ok());
        Ok(bytes.or_bug("the pool of random bytes holds as many as are drawn"))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use uuid::{Variant, Version};

    use super::*;

    #[test]
    fn uuid_is_monotonic_within_a_microsecond_and_after_clock_set_back() {
        let (ids, later) =
            (UuidGenerator::default(), Moment::from_micros(1_700_000_000_123_999).unwrap());
        let earlier = Moment::from_micros(1_600_000_000_000_000).unwrap();
        let mut last = Uuid::nil();
        for number in 0..10_000 {
            let next = ids.next(if number % 7 == 3 { earlier } else { later }).unwrap();
            assert!(next > last, "{next} after {last}");
            assert_eq!(next.get_version(), Some(Version::SortRand));
            assert_eq!(next.get_variant(), Variant::RFC4122);
            assert_eq!(next.get_timestamp().unwrap().to_unix(), (1_700_000_000, 123_000_000));
            assert_eq!(Id::Uuid(next).created_at(), Some(later));
            last = next;
        }
    }

    #[test]
    fn uuid_random_bits_exhausted_moves_to_the_next_microsecond() {
        let (ids, now) =
            (UuidGenerator::default(), Moment::from_micros(1_700_000_000_123_999).unwrap());
        let first = ids.next(now).unwrap();
        ids.0.borrow_mut().random = (1 << RANDOM_BITS) - 1;
        let second = ids.next(now).unwrap();
        assert!(second > first);
        let next = Moment::from_micros(1_700_000_000_124_000).unwrap();
        assert_eq!(Id::Uuid(second).created_at(), Some(next));
    }

    proptest! {
        /// Ids of different servers sort by their times as well.
        #[test]
        fn uuids_of_two_servers_sort_by_time(one in 0..4_000_000_000_000_000_i64, more in 0..3_000_i64) {
            let (one, other) = (Moment::from_micros(one).unwrap(), Moment::from_micros(one + more).unwrap());
            let ids = [one, other].map(|now| UuidGenerator::default().next(now).unwrap());
            let times = ids.map(|id| Id::Uuid(id).created_at().unwrap());
            prop_assert_eq!(times, [one, other]);
            prop_assert!(more == 0 || ids[0] < ids[1]);
        }
    }

    #[test]
    fn uuid_generators_of_two_threads_differ() {
        let now = Moment::from_micros(1_700_000_000_000_000).unwrap();
        let (one, other) = (UuidGenerator::default(), UuidGenerator::default());
        assert_ne!(one.next(now).unwrap(), other.next(now).unwrap());
    }
}
