//! Metric instruments: counters, gauges and histograms that threads update and a scrape reads.
//!
//! Nothing here locks, hashes or allocates, and all memory accesses are relaxed: a scrape sees each number
//! as of some moment, not all of them as of the same one. `…_single_writer` loads and stores instead of
//! adding atomically. It is for numbers that only one thread writes, and spares that thread a locked
//! instruction.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

const NANOS: u64 = 1_000_000_000;

/// The maximum number of buckets of a scale.
const BOUNDS_MAX: usize = 16;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// As `add`, for the only thread that writes this counter.
    pub fn add_single_writer(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn decrement(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn set(&self, value: usize) {
        self.0.store(i64::try_from(value).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bounds of a histogram's buckets, from small to large, and their unit.
#[derive(Debug)]
pub struct BucketScale {
    bounds: &'static [u64],
    /// The number of counted units in one displayed unit.
    unit: u64,
}

/// 100 µs to 10 s.
pub static DURATION_BUCKETS: BucketScale = BucketScale {
    bounds: &[
        NANOS / 10_000,
        NANOS / 4_000,
        NANOS / 2_000,
        NANOS / 1_000,
        NANOS / 400,
        NANOS / 200,
        NANOS / 100,
        NANOS / 40,
        NANOS / 20,
        NANOS / 10,
        NANOS / 4,
        NANOS / 2,
        NANOS,
        NANOS * 5 / 2,
        NANOS * 5,
        NANOS * 10,
    ],
    unit: NANOS,
};

/// The number of requests in a batch or a commit group.
pub static GROUP_SIZE_BUCKETS: BucketScale =
    BucketScale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], unit: 1 };

impl BucketScale {
    /// A value in the displayed unit.
    #[expect(clippy::cast_precision_loss, reason = "shown to people and graphs")]
    pub fn to_unit(&self, value: u64) -> f64 {
        value as f64 / self.unit as f64
    }
}

/// A distribution of values over buckets.
#[derive(Debug)]
pub struct Histogram {
    scale: &'static BucketScale,
    /// By bound; the bucket after the last bound holds everything larger.
    buckets: [Counter; BOUNDS_MAX + 1],
    sum: Counter,
}

impl Histogram {
    pub fn new(scale: &'static BucketScale) -> Self {
        Self { scale, buckets: Default::default(), sum: Counter::default() }
    }

    pub fn observe(&self, value: u64) {
        if let Some(bucket) = self.bucket(value) {
            bucket.add(1);
        }
        self.sum.add(value);
    }

    pub fn observe_time(&self, took: Duration) {
        self.observe(nanos(took));
    }

    /// As `observe_time`, for the only thread that writes this histogram.
    pub fn observe_time_single_writer(&self, took: Duration) {
        let value = nanos(took);
        if let Some(bucket) = self.bucket(value) {
            bucket.add_single_writer(1);
        }
        self.sum.add_single_writer(value);
    }

    /// Most values are small: the first bound is nearly always the only one compared.
    fn bucket(&self, value: u64) -> Option<&Counter> {
        let bounds = self.scale.bounds;
        match bounds.first() {
            Some(first) if value <= *first => self.buckets.first(),
            _ => self.buckets.get(bounds.partition_point(|bound| *bound < value)),
        }
    }
}

/// Nanoseconds; 64 bits are enough for five hundred years.
#[expect(clippy::cast_possible_truncation, reason = "no request takes that long")]
fn nanos(took: Duration) -> u64 {
    took.as_nanos() as u64
}

/// The sum of one or more histograms of one scale, at one moment.
#[derive(Debug)]
pub struct HistogramSnapshot {
    pub scale: &'static BucketScale,
    buckets: [u64; BOUNDS_MAX + 1],
    pub sum: u64,
}

impl HistogramSnapshot {
    /// `None` when there is no histogram at all.
    pub fn merge<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Option<Self> {
        let mut seen: Option<Self> = None;
        for histogram in histograms {
            let fresh = Self { scale: histogram.scale, buckets: [0; BOUNDS_MAX + 1], sum: 0 };
            let seen = seen.get_or_insert(fresh);
            for (bucket, count) in seen.buckets.iter_mut().zip(&histogram.buckets) {
                *bucket += count.value();
            }
            seen.sum = seen.sum.wrapping_add(histogram.sum.value());
        }
        seen
    }

    /// The number of observations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Each bound, and the number of observations up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let bounds = self.scale.bounds.iter().copied();
        bounds.zip(&self.buckets).scan(0, |count, (bound, bucket)| {
            *count += bucket;
            Some((bound, *count))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bucket_bounds_are_ascending_and_fit() {
        for scale in [&DURATION_BUCKETS, &GROUP_SIZE_BUCKETS] {
            assert!(scale.bounds.is_sorted_by(|one, next| one < next), "{scale:?}");
            assert!(scale.bounds.len() <= BOUNDS_MAX);
        }
        assert_eq!(DURATION_BUCKETS.to_unit(DURATION_BUCKETS.bounds[1]), 0.000_25);
    }

    #[test]
    fn histogram_bound_is_inclusive_and_last_bucket_catches_the_rest() {
        let (one, other) =
            (Histogram::new(&GROUP_SIZE_BUCKETS), Histogram::new(&GROUP_SIZE_BUCKETS));
        for value in [1, 2, 3, 512] {
            one.observe(value);
        }
        other.observe(513);
        let seen = HistogramSnapshot::merge([&one, &other]).unwrap();
        let counts: Vec<u64> = seen.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 2, 3, 3, 3, 3, 3, 3, 3, 4]);
        assert_eq!((seen.count(), seen.sum), (5, 1031));
        assert!(HistogramSnapshot::merge([]).is_none());
    }

    #[test]
    fn single_writer_histogram_counts_like_the_shared_one() {
        let (shared, alone) =
            (Histogram::new(&DURATION_BUCKETS), Histogram::new(&DURATION_BUCKETS));
        for micros in [0, 100, 101, 999_999, 20_000_000] {
            let took = Duration::from_micros(micros);
            shared.observe_time(took);
            alone.observe_time_single_writer(took);
        }
        let all = |histogram| {
            let seen = HistogramSnapshot::merge([histogram]).unwrap();
            (seen.cumulative().collect::<Vec<_>>(), seen.count(), seen.sum)
        };
        assert_eq!(all(&shared), all(&alone));
        assert_eq!(all(&shared).0[0], (100_000, 2));
    }

    #[test]
    fn gauge_increments_decrements_and_sets() {
        let gauge = Gauge::default();
        gauge.increment();
        gauge.increment();
        gauge.decrement();
        assert_eq!(gauge.value(), 1);
        gauge.set(7);
        assert_eq!(gauge.value(), 7);
    }
}
