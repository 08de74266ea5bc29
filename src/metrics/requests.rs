//! Request metrics: counters by resource, verb and status, and a histogram for each stage.
//!
//! Each worker thread has a separate table (shard), made once, from the model: two threads never write to the same
//! cache line, and nothing a client sends can make the table larger. A status or verb without a column is not
//! dropped; it counts as `other`.

use std::array;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::instruments::{Counter, Histogram, TimeHistogram};
use super::text::PrometheusText;
use crate::model::{Model, ResourceIndex};

/// The label of values without a dedicated column.
const OTHER: &str = "other";
/// The label of requests without a resource; no resource can have this name.
const NO_RESOURCE: &str = "-";

const VERBS: [&str; 9] =
    ["GET", "HEAD", "QUERY", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", OTHER];

/// The stages of a request as `log::StageTimes` names them.
const STAGES: [&str; 6] = ["head", "body", "plan", "store", "reply", OTHER];

/// Every status that is sent, and those that the order of checks reserves. One more column is for any other.
const STATUSES: [u16; 28] = [
    200, 201, 204, 304, 308, 400, 401, 403, 404, 405, 406, 408, 409, 410, 412, 413, 414, 415, 417,
    421, 422, 428, 429, 431, 500, 501, 503, 505,
];

/// The index of a label; the last label is for values that have none.
fn label_index(labels: &[&str], value: &str) -> usize {
    labels.iter().position(|label| *label == value).unwrap_or(labels.len() - 1)
}

fn status_column(status: u16) -> usize {
    STATUSES.iter().position(|known| *known == status).unwrap_or(STATUSES.len())
}

/// The counters of one resource, by verb and status. Aligned, so that the shards of two threads share no cache
/// line, nor the pair of lines that the processor prefetches together (false sharing).
#[derive(Debug, Default)]
#[repr(align(128))]
struct ResourceCounters([[Counter; STATUSES.len() + 1]; VERBS.len()]);

impl ResourceCounters {
    fn count(&self, verb: &str, status: u16) {
        let counters = self.0.get(label_index(&VERBS, verb));
        if let Some(counter) = counters.and_then(|row| row.get(status_column(status))) {
            counter.add(1);
        }
    }
}

/// The counters of one thread.
#[derive(Debug)]
#[repr(align(128))]
struct MetricsShard {
    total: TimeHistogram,
    stages: [TimeHistogram; STAGES.len()],
    /// By resource; the last one is for requests without a resource.
    rows: Box<[ResourceCounters]>,
}

impl MetricsShard {
    fn new(rows: usize) -> Self {
        Self {
            total: TimeHistogram::default(),
            stages: array::from_fn(|_| TimeHistogram::default()),
            rows: (0..rows).map(|_| ResourceCounters::default()).collect(),
        }
    }
}

/// The request metrics of all threads.
#[derive(Debug)]
pub struct RequestMetrics {
    /// The labels of the rows.
    resources: Box<[Box<str>]>,
    /// One for each worker thread, and one for refusals; locked when a thread starts and at a scrape.
    shards: Mutex<Vec<Arc<MetricsShard>>>,
    /// The shard of refusals before a request exists.
    refusals: Arc<MetricsShard>,
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

/// One thread's handle to count its requests.
#[derive(Debug)]
pub struct ThreadMetrics(Arc<MetricsShard>);

impl ThreadMetrics {
    pub fn record(
        &self,
        answered: &RequestSample<'_>,
        stages: impl Iterator<Item = (&'static str, Duration)>,
    ) {
        let shard = &*self.0;
        let last = shard.rows.len() - 1;
        let row = answered.resource.map_or(last, |resource| resource.0.min(last));
        if let Some(row) = shard.rows.get(row) {
            row.count(answered.verb, answered.status);
        }
        shard.total.observe_time(answered.took);
        for (name, took) in stages {
            if let Some(histogram) = shard.stages.get(label_index(&STAGES, name)) {
                histogram.observe_time(took);
            }
        }
    }
}

impl RequestMetrics {
    pub fn new(model: &Model) -> Self {
        let labels = model.resources.iter().map(|resource| resource.label.clone());
        let resources: Box<[_]> = labels.chain([NO_RESOURCE.into()]).collect();
        let refusals = Arc::new(MetricsShard::new(resources.len()));
        Self { resources, shards: Mutex::new(vec![Arc::clone(&refusals)]), refusals }
    }

    pub fn add_thread(&self) -> ThreadMetrics {
        let shard = Arc::new(MetricsShard::new(self.resources.len()));
        self.shards.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&shard));
        ThreadMetrics(shard)
    }

    pub fn write(&self, text: &mut PrometheusText) {
        let shards = self.shards.lock().unwrap_or_else(PoisonError::into_inner);
        text.family(
            "nouns_requests_total",
            "counter",
            "Requests answered, by resource (- for none), verb and status",
        );
        for (row, resource) in self.resources.iter().enumerate() {
            for (verb_at, verb) in VERBS.iter().enumerate() {
                for at in 0..=STATUSES.len() {
                    let counters = shards
                        .iter()
                        .filter_map(|shard| shard.rows.get(row)?.0.get(verb_at)?.get(at));
                    let count: u64 = counters.map(Counter::value).sum();
                    if count > 0 {
                        let status = STATUSES.get(at).map_or(OTHER.to_owned(), u16::to_string);
                        let labels =
                            [("resource", &**resource), ("verb", verb), ("status", &status)];
                        text.sample(&labels, count);
                    }
                }
            }
        }
        let help = "Time from the headers of a request to its response";
        text.family("nouns_request_seconds", "histogram", help);
        let seen = Histogram::snapshot(shards.iter().map(|shard| &*shard.total));
        seen.iter().for_each(|seen| text.histogram(&[], seen));
        let help = "Time of requests in each stage of the pipeline";
        text.family("nouns_stage_seconds", "histogram", help);
        for (at, stage) in STAGES.iter().enumerate() {
            let histograms = shards.iter().filter_map(|shard| shard.stages.get(at));
            let seen = Histogram::snapshot(histograms.map(|histogram| &**histogram));
            if let Some(seen) = seen.filter(|seen| seen.count() > 0) {
                text.histogram(&[("stage", stage)], &seen);
            }
        }
    }

    /// Counts a response to something that never became a request: no resource, and no known verb.
    pub fn count_refusal(&self, status: u16) {
        if let Some(row) = self.refusals.rows.last() {
            row.count(OTHER, status);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use crate::problem;

    #[test]
    fn every_problem_status_has_a_column() {
        for kind in problem::ALL {
            assert!(status_column(kind.status.as_u16()) < STATUSES.len(), "{kind:?}");
        }
        for status in [0, 199, 299, 599, 600, u16::MAX] {
            assert_eq!(status_column(status), STATUSES.len(), "{status}");
        }
    }

    #[test]
    fn label_without_a_column_is_other() {
        assert_eq!(VERBS[label_index(&VERBS, "PATCH")], "PATCH");
        assert_eq!(VERBS[label_index(&VERBS, "get")], OTHER);
    }

    #[test]
    fn shards_share_no_cache_line() {
        assert_eq!((align_of::<ResourceCounters>(), align_of::<MetricsShard>()), (128, 128));
        assert_eq!((size_of::<ResourceCounters>() % 128, size_of::<MetricsShard>() % 128), (0, 0));
    }

    #[test]
    fn unknown_resource_counts_as_none() {
        let model = "title = \"A\"\n[resources.thing.fields]\nname = { type = \"text\" }";
        let metrics = RequestMetrics::new(&model::read("model.toml", model).unwrap());
        let local = metrics.add_thread();
        let last = ResourceIndex(metrics.resources.len() - 1);
        for resource in [None, Some(last), Some(ResourceIndex(99))] {
            let answered =
                RequestSample { resource, verb: "GET", status: 200, took: Duration::ZERO };
            local.record(&answered, [("head", Duration::ZERO)].into_iter());
        }
        metrics.count_refusal(400);
        let mut text = PrometheusText::with_capacity(64);
        metrics.write(&mut text);
        let text = text.finish();
        let counted: Vec<&str> =
            text.lines().filter(|line| line.starts_with("nouns_requests_total")).collect();
        assert_eq!(
            counted,
            [
                r#"nouns_requests_total{resource="-",verb="GET",status="200"} 3"#,
                r#"nouns_requests_total{resource="-",verb="other",status="400"} 1"#,
            ]
        );
    }
}
