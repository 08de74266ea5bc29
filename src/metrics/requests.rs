//! Request metrics: counters by resource, verb and status, and a histogram for each stage.
//!
//! Each worker thread has a separate table, made once, from the model: two threads never write to the same
//! cache line, and nothing a client sends can make the table larger. A status or verb without a column is not
//! dropped; it counts as `other`.

use std::array;
use std::cell::Cell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use super::instruments::{Counter, DURATION_BUCKETS, Histogram};
use crate::model::ResourceIndex;

/// The label of values without a dedicated column.
pub const OTHER: &str = "other";

pub const VERBS: [&str; 8] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", OTHER];

/// Every status that is sent, and those that the order of checks reserves.
const STATUSES: [u16; 27] = [
    200, 201, 204, 304, 308, 400, 401, 403, 404, 405, 406, 408, 409, 412, 413, 414, 415, 417, 421,
    422, 428, 429, 431, 500, 501, 503, 505,
];
const COLUMNS: usize = STATUSES.len() + 1;

/// The stages of a request as `log::StageTimes` names them.
pub const STAGES: [&str; 6] = ["head", "body", "plan", "store", "reply", OTHER];

const STATUS_MAX: usize = 600;

/// The column of each status.
static STATUS_COLUMN: [u8; STATUS_MAX] = status_columns();

#[expect(clippy::indexing_slicing, reason = "done by the compiler, which would say so")]
#[expect(clippy::cast_possible_truncation, reason = "there are few columns")]
const fn status_columns() -> [u8; STATUS_MAX] {
    let mut columns = [STATUSES.len() as u8; STATUS_MAX];
    let mut at = 0;
    while at < STATUSES.len() {
        columns[STATUSES[at] as usize] = at as u8;
        at += 1;
    }
    columns
}

fn status_column(status: u16) -> usize {
    STATUS_COLUMN.get(usize::from(status)).copied().map_or(STATUSES.len(), usize::from)
}

fn verb_index(verb: &str) -> usize {
    match verb {
        "GET" => 0,
        "HEAD" => 1,
        "POST" => 2,
        "PUT" => 3,
        "PATCH" => 4,
        "DELETE" => 5,
        "OPTIONS" => 6,
        _ => 7,
    }
}

fn stage_index(name: &str) -> usize {
    match name {
        "head" => 0,
        "body" => 1,
        "plan" => 2,
        "store" => 3,
        "reply" => 4,
        _ => 5,
    }
}

/// The number of requests by status.
#[derive(Debug, Default)]
pub struct StatusCounters([Counter; COLUMNS]);

impl StatusCounters {
    pub fn counter(&self, status: u16) -> Option<&Counter> {
        self.0.get(status_column(status))
    }

    /// Adds these counts to sums by column.
    fn add_to(&self, sums: &mut [u64; COLUMNS]) {
        for (sum, count) in sums.iter_mut().zip(&self.0) {
            *sum += count.value();
        }
    }
}

/// The counters of one resource, by verb. Aligned, so that the shards of two threads share no cache line, nor
/// the pair of lines that the processor prefetches together (false sharing).
#[derive(Debug, Default)]
#[repr(align(128))]
struct ResourceCounters([StatusCounters; VERBS.len()]);

/// The counters of one thread.
#[derive(Debug)]
#[repr(align(128))]
pub struct MetricsShard {
    total: Histogram,
    stages: [Histogram; STAGES.len()],
    /// By resource; the last one is for requests without a resource.
    rows: Box<[ResourceCounters]>,
}

impl MetricsShard {
    pub fn new(resources: usize) -> Self {
        Self {
            total: Histogram::new(&DURATION_BUCKETS),
            stages: array::from_fn(|_| Histogram::new(&DURATION_BUCKETS)),
            rows: (0..=resources).map(|_| ResourceCounters::default()).collect(),
        }
    }

    pub fn total(&self) -> &Histogram {
        &self.total
    }

    pub fn stage(&self, at: usize) -> Option<&Histogram> {
        self.stages.get(at)
    }
}

/// The requests of a row and a verb: each status with its count, where it is not zero.
pub fn by_status(
    shards: &[Arc<MetricsShard>],
    row: usize,
    verb: usize,
    refusals: Option<&StatusCounters>,
) -> impl Iterator<Item = (Option<u16>, u64)> {
    let mut sums = [0; COLUMNS];
    let counted = shards.iter().filter_map(|shard| shard.rows.get(row)?.0.get(verb));
    for statuses in counted.chain(refusals) {
        statuses.add_to(&mut sums);
    }
    let names = STATUSES.into_iter().map(Some).chain([None]);
    names.zip(sums).filter(|(_, count)| *count > 0)
}

/// One answered request.
#[derive(Debug)]
pub struct RequestSample<'a> {
    /// The resource of its path; `None` where there is none.
    pub resource: Option<ResourceIndex>,
    pub verb: &'a str,
    pub status: u16,
    pub took: Duration,
}

/// One thread's handle to count its requests. It can be moved to a thread, but not shared by two.
#[derive(Debug)]
pub struct ThreadMetrics {
    shard: Arc<MetricsShard>,
    _not_sync: PhantomData<Cell<()>>,
}

impl ThreadMetrics {
    pub fn new(shard: Arc<MetricsShard>) -> Self {
        Self { shard, _not_sync: PhantomData }
    }

    pub fn record(
        &self,
        answered: &RequestSample<'_>,
        stages: impl Iterator<Item = (&'static str, Duration)>,
    ) {
        let shard = &*self.shard;
        let last = shard.rows.len().saturating_sub(1);
        let row = answered.resource.map_or(last, |resource| resource.0.min(last));
        let statuses = shard.rows.get(row).and_then(|row| row.0.get(verb_index(answered.verb)));
        if let Some(count) = statuses.and_then(|statuses| statuses.counter(answered.status)) {
            count.add_single_writer(1);
        }
        shard.total.observe_time_single_writer(answered.took);
        for (name, took) in stages {
            if let Some(histogram) = shard.stages.get(stage_index(name)) {
                histogram.observe_time_single_writer(took);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem;

    #[test]
    fn every_problem_status_has_a_column() {
        for kind in problem::ALL {
            assert!(status_column(kind.status.as_u16()) < STATUSES.len(), "{kind:?}");
        }
        for (at, status) in STATUSES.into_iter().enumerate() {
            assert_eq!(status_column(status), at);
        }
        for status in [0, 199, 299, 599, 600, u16::MAX] {
            assert_eq!(status_column(status), STATUSES.len(), "{status}");
        }
    }

    #[test]
    fn every_verb_and_stage_has_an_index() {
        for (at, verb) in VERBS.into_iter().enumerate() {
            assert_eq!(verb_index(verb), at);
        }
        for (at, name) in STAGES.into_iter().enumerate() {
            assert_eq!(stage_index(name), at);
        }
        assert_eq!(verb_index("get"), verb_index(OTHER));
    }

    #[test]
    fn shards_share_no_cache_line() {
        assert_eq!((align_of::<ResourceCounters>(), align_of::<MetricsShard>()), (128, 128));
        assert_eq!((size_of::<ResourceCounters>() % 128, size_of::<MetricsShard>() % 128), (0, 0));
    }

    #[test]
    fn unknown_resource_counts_as_none() {
        let shard = Arc::new(MetricsShard::new(1));
        let local = ThreadMetrics::new(Arc::clone(&shard));
        for resource in [None, Some(ResourceIndex(1)), Some(ResourceIndex(9))] {
            let answered =
                RequestSample { resource, verb: "GET", status: 200, took: Duration::ZERO };
            local.record(&answered, [("head", Duration::ZERO)].into_iter());
        }
        let shards = [shard];
        let counted = |row| by_status(&shards, row, 0, None).collect::<Vec<_>>();
        assert_eq!(counted(1), [(Some(200), 3)]);
        assert_eq!(counted(0), []);
    }
}
