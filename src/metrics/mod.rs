//! Metrics: the server's counters, and their exposition at `/-/metrics`.
//!
//! `families!` declares each metric once: its handle, its name, its kind and its help. Every number is allocated
//! before the first request: the counting code holds the handle, and counting is an addition. Numbers that other
//! modules keep anyway (admission control, the log, the store) are not counted twice: the scrape passes them in,
//! as `ScrapeGauges`. The metrics of a backend exist only once the backend has asked for their handles.

mod families;
mod instruments;
mod process;
mod requests;
mod text;

use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

pub use families::{
    FeedMetrics, PoolMetrics, ScrapeGauges, ServerMetrics, WebhookMetrics, WriterMetrics,
};
pub use instruments::{Counter, Gauge};
pub use requests::{RequestSample, ThreadMetrics};

use crate::clock;
use crate::model::Model;
use families::{ProcessGauges, StoreMetrics};
use requests::RequestMetrics;
use text::PrometheusText;

/// All metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    started: SystemTime,
    requests: RequestMetrics,
    pub server: ServerMetrics,
    pub store: StoreMetrics,
    pub feed: Arc<FeedMetrics>,
    pub webhooks: Arc<WebhookMetrics>,
    writer: OnceLock<Arc<WriterMetrics>>,
    pool: OnceLock<Arc<PoolMetrics>>,
}

impl Metrics {
    pub fn new(model: &Model) -> Arc<Self> {
        Arc::new(Self {
            started: clock::system_time(),
            requests: RequestMetrics::new(model),
            server: ServerMetrics::default(),
            store: StoreMetrics::default(),
            feed: Arc::default(),
            webhooks: Arc::default(),
            writer: OnceLock::new(),
            pool: OnceLock::new(),
        })
    }

    /// A handle for one more worker thread.
    pub fn thread_metrics(&self) -> ThreadMetrics {
        self.requests.add_thread()
    }

    /// Counts a response to something that never became a request.
    pub fn count_refusal(&self, status: u16) {
        self.requests.count_refusal(status);
    }

    /// A handle for a backend that has a writer thread.
    pub fn writer(&self) -> Arc<WriterMetrics> {
        Arc::clone(self.writer.get_or_init(Arc::default))
    }

    /// A handle for a backend that has a connection pool.
    pub fn pool(&self) -> Arc<PoolMetrics> {
        Arc::clone(self.pool.get_or_init(Arc::default))
    }

    /// All metrics in the Prometheus text format.
    pub fn render(&self, now: &ScrapeGauges) -> String {
        let mut text = PrometheusText::with_capacity(16 << 10);
        text.family("nouns_build_info", "gauge", "Version of the server");
        text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        self.requests.write(&mut text);
        ScrapeGauges::write(Some(now), &mut text);
        ServerMetrics::write(Some(&self.server), &mut text);
        StoreMetrics::write(Some(&self.store), &mut text);
        FeedMetrics::write(Some(&self.feed), &mut text);
        WebhookMetrics::write(Some(&self.webhooks), &mut text);
        WriterMetrics::write(self.writer.get().map(|writer| &**writer), &mut text);
        PoolMetrics::write(self.pool.get().map(|pool| &**pool), &mut text);
        let started = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        ProcessGauges::write(Some(&process::read_gauges(started)), &mut text);
        text.finish()
    }
}
