//! Numbers that threads count and a scrape reads: plain counts, gauges and histograms.
//!
//! Nothing here locks, hashes or allocates, and nothing is put in order: a scrape sees each number as it
//! stood at some moment, not all of them at one.
//! The one surprising thing: `…_alone` loads and stores where others would add. It is for numbers that
//! have one thread to write them, and spares that thread a locked instruction.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

const NANOS: u64 = 1_000_000_000;

/// The most bounds a scale has.
const BOUNDS_MAX: usize = 16;

/// What only grows.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Ordering::Relaxed);
    }

    /// As `add`, by the only thread that writes it.
    pub fn add_alone(&self, count: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(count), Ordering::Relaxed);
    }

    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// What grows and shrinks.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    pub fn raise(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn lower(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn set(&self, value: usize) {
        self.0.store(i64::try_from(value).unwrap_or(i64::MAX), Ordering::Relaxed);
    }

    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// The bounds of a histogram's buckets, from small to large, and what one is measured in.
#[derive(Debug)]
pub struct Scale {
    bounds: &'static [u64],
    /// So many of what is counted are one of what is shown.
    unit: u64,
}

/// 100 µs to 10 s.
pub static TIMES: Scale = Scale {
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

/// How many requests share something.
pub static SIZES: Scale = Scale { bounds: &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512], unit: 1 };

impl Scale {
    /// A value as it is shown.
    #[expect(clippy::cast_precision_loss, reason = "shown to people and graphs")]
    pub fn shown(&self, value: u64) -> f64 {
        value as f64 / self.unit as f64
    }
}

/// How often which sizes were seen.
#[derive(Debug)]
pub struct Histogram {
    scale: &'static Scale,
    /// By bound; the one after the last bound is for everything larger.
    buckets: [Count; BOUNDS_MAX + 1],
    sum: Count,
}

impl Histogram {
    pub fn new(scale: &'static Scale) -> Self {
        Self { scale, buckets: Default::default(), sum: Count::default() }
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

    /// As `observe_time`, by the only thread that writes it.
    pub fn observe_time_alone(&self, took: Duration) {
        let value = nanos(took);
        if let Some(bucket) = self.bucket(value) {
            bucket.add_alone(1);
        }
        self.sum.add_alone(value);
    }

    /// Most values are small: the first bound is nearly always the only one looked at.
    fn bucket(&self, value: u64) -> Option<&Count> {
        let bounds = self.scale.bounds;
        match bounds.first() {
            Some(first) if value <= *first => self.buckets.first(),
            _ => self.buckets.get(bounds.partition_point(|bound| *bound < value)),
        }
    }
}

/// Enough for five hundred years.
#[expect(clippy::cast_possible_truncation, reason = "no request takes that long")]
fn nanos(took: Duration) -> u64 {
    took.as_nanos() as u64
}

/// What one or more histograms of one scale have seen.
#[derive(Debug)]
pub struct Seen {
    pub scale: &'static Scale,
    buckets: [u64; BOUNDS_MAX + 1],
    pub sum: u64,
}

impl Seen {
    /// `None` when there is no histogram at all.
    pub fn by<'a>(histograms: impl IntoIterator<Item = &'a Histogram>) -> Option<Self> {
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

    /// Of how many.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Each bound, and how many were not over it.
    pub fn up_to(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
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
    fn scales_go_up_and_fit() {
        for scale in [&TIMES, &SIZES] {
            assert!(scale.bounds.is_sorted_by(|one, next| one < next), "{scale:?}");
            assert!(scale.bounds.len() <= BOUNDS_MAX);
        }
        assert_eq!(TIMES.shown(TIMES.bounds[1]), 0.000_25);
    }

    #[test]
    fn a_bound_belongs_to_its_bucket_and_nothing_is_lost_above() {
        let (one, other) = (Histogram::new(&SIZES), Histogram::new(&SIZES));
        for value in [1, 2, 3, 512] {
            one.observe(value);
        }
        other.observe(513);
        let seen = Seen::by([&one, &other]).unwrap();
        let counts: Vec<u64> = seen.up_to().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 2, 3, 3, 3, 3, 3, 3, 3, 4]);
        assert_eq!((seen.count(), seen.sum), (5, 1031));
        assert!(Seen::by([]).is_none());
    }

    #[test]
    fn alone_counts_the_same() {
        let (shared, alone) = (Histogram::new(&TIMES), Histogram::new(&TIMES));
        for micros in [0, 100, 101, 999_999, 20_000_000] {
            let took = Duration::from_micros(micros);
            shared.observe_time(took);
            alone.observe_time_alone(took);
        }
        let all = |histogram| {
            let seen = Seen::by([histogram]).unwrap();
            (seen.up_to().collect::<Vec<_>>(), seen.count(), seen.sum)
        };
        assert_eq!(all(&shared), all(&alone));
        assert_eq!(all(&shared).0[0], (100_000, 2));
    }

    #[test]
    fn a_gauge_goes_both_ways() {
        let gauge = Gauge::default();
        gauge.raise();
        gauge.raise();
        gauge.lower();
        assert_eq!(gauge.value(), 1);
        gauge.set(7);
        assert_eq!(gauge.value(), 7);
    }
}
