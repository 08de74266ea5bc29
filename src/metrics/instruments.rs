//! Metric instruments: counters, gauges and histograms that threads update and a scrape reads.
//!
//! Nothing here locks, hashes or allocates, and all memory accesses are relaxed: a scrape sees each number
//! as of some moment, not all of them as of the same one.

use std::ops::Deref;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub fn is_used(&self) -> bool {
        self.value() > 0
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
    unit: f64,
}

/// The maximum number of bounds.
const BOUNDS_MAX: usize = 16;

/// 100 µs to 10 s, in nanoseconds.
static DURATION_BUCKETS: BucketScale = BucketScale {
    bounds: &[
        100_000,
        250_000,
        500_000,
        1_000_000,
        2_500_000,
        5_000_000,
        10_000_000,
        25_000_000,
        50_000_000,
        100_000_000,
        250_000_000,
        500_000_000,
        1_000_000_000,
        2_500_000_000,
        5_000_000_000,
        10_000_000_000,
    ],
    unit: 1e9,
};

/// The number of requests in a batch or a commit group.
static GROUP_SIZE_BUCKETS: BucketScale =
    BucketScale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], unit: 1.0 };

/// A distribution of values over buckets.
#[derive(Debug)]
pub struct Histogram {
    scale: &'static BucketScale,
    /// By bound; the bucket after the last bound holds everything larger.
    buckets: [Counter; BOUNDS_MAX + 1],
    sum: Counter,
}

impl Histogram {
    fn new(scale: &'static BucketScale) -> Self {
        Self { scale, buckets: Default::default(), sum: Counter::default() }
    }

    pub fn observe(&self, value: u64) {
        let bucket = self.scale.bounds.partition_point(|bound| *bound < value);
        if let Some(bucket) = self.buckets.get(bucket) {
            bucket.add(1);
        }
        self.sum.add(value);
    }

    pub fn observe_time(&self, took: Duration) {
        self.observe(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    /// The counts of several histograms of one scale, added up.
    pub fn snapshot<'a>(all: impl IntoIterator<Item = &'a Self>) -> Option<HistogramSnapshot> {
        let mut all = all.into_iter();
        let first = all.next()?;
        let mut seen =
            HistogramSnapshot { scale: first.scale, buckets: [0; BOUNDS_MAX + 1], sum: 0 };
        for histogram in [first].into_iter().chain(all) {
            for (bucket, count) in seen.buckets.iter_mut().zip(&histogram.buckets) {
                *bucket += count.value();
            }
            seen.sum = seen.sum.wrapping_add(histogram.sum.value());
        }
        Some(seen)
    }
}

/// A histogram of durations.
#[derive(Debug)]
pub struct TimeHistogram(Histogram);

impl Default for TimeHistogram {
    fn default() -> Self {
        Self(Histogram::new(&DURATION_BUCKETS))
    }
}

impl Deref for TimeHistogram {
    type Target = Histogram;

    fn deref(&self) -> &Histogram {
        &self.0
    }
}

/// A histogram of the sizes of batches and commit groups.
#[derive(Debug)]
pub struct BatchHistogram(Histogram);

impl Default for BatchHistogram {
    fn default() -> Self {
        Self(Histogram::new(&GROUP_SIZE_BUCKETS))
    }
}

impl Deref for BatchHistogram {
    type Target = Histogram;

    fn deref(&self) -> &Histogram {
        &self.0
    }
}

/// The sum of one or more histograms of one scale, at one moment.
#[derive(Debug)]
pub struct HistogramSnapshot {
    scale: &'static BucketScale,
    buckets: [u64; BOUNDS_MAX + 1],
    sum: u64,
}

#[expect(clippy::cast_precision_loss, reason = "shown to people and graphs")]
impl HistogramSnapshot {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    pub fn sum(&self) -> f64 {
        self.sum as f64 / self.scale.unit
    }

    /// Each bound, and the number of observations up to it.
    pub fn cumulative(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let mut count = 0;
        self.scale.bounds.iter().zip(&self.buckets).map(move |(bound, bucket)| {
            count += bucket;
            (*bound as f64 / self.scale.unit, count)
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
    }

    #[test]
    fn histogram_bound_is_inclusive_and_last_bucket_catches_the_rest() {
        let (one, other) = (BatchHistogram::default(), BatchHistogram::default());
        for value in [1, 2, 3, 512] {
            one.observe(value);
        }
        other.observe(513);
        let seen = Histogram::snapshot([&*one, &*other]).unwrap();
        let counts: Vec<u64> = seen.cumulative().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 2, 3, 3, 3, 3, 3, 3, 3, 4]);
        assert_eq!((seen.count(), seen.sum()), (5, 1031.0));
        assert!(Histogram::snapshot([]).is_none());
    }

    #[test]
    fn time_histogram_shows_seconds() {
        let histogram = TimeHistogram::default();
        for micros in [0, 100, 101, 999_899, 20_000_000] {
            histogram.observe_time(Duration::from_micros(micros));
        }
        let seen = Histogram::snapshot([&*histogram]).unwrap();
        let counts: Vec<(f64, u64)> = seen.cumulative().collect();
        assert_eq!(counts[..2], [(0.000_1, 2), (0.000_25, 3)]);
        assert_eq!((seen.count(), seen.sum()), (5, 21.000_1));
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
