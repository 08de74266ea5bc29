//! Metrics: the server's counters, and their exposition at `/-/metrics`.
//!
//! Every number is allocated before the first request: the counting code holds the handle, and counting is an
//! addition. Numbers that other modules keep anyway (admission control, the log, the store) are not counted
//! twice: the scrape passes them in, as `ScrapeGauges`. The metrics of a backend exist only once the backend
//! has asked for their handles.

mod instruments;
mod process;
mod requests;
mod scrape;
mod text;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

pub use instruments::{Counter, Gauge, Histogram};
pub use requests::{RequestSample, ThreadMetrics};

use crate::clock;
use crate::model::Model;
use crate::plan::ChangeLogBounds;
use instruments::{DURATION_BUCKETS, GROUP_SIZE_BUCKETS};
use requests::{MetricsShard, StatusCounters};

/// All metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    started: SystemTime,
    /// The labels of the resources, by index.
    resources: Box<[Box<str>]>,
    /// One shard for each worker thread; locked when a thread starts and at a scrape.
    shards: Mutex<Vec<Arc<MetricsShard>>>,
    pub server: ServerMetrics,
    /// Entries that the sweep deleted from the change log.
    pub changes_swept: Counter,
    /// Reads of items whose stored value could not be decoded.
    pub damaged_items: Arc<Counter>,
    /// Exports that hold a snapshot open.
    pub exports: Gauge,
    writer: OnceLock<Arc<WriterMetrics>>,
    pool: OnceLock<Arc<PoolMetrics>>,
}

/// Connections, TLS handshakes and streams, and refusals before a request exists.
#[derive(Debug, Default)]
pub struct ServerMetrics {
    pub connections_accepted: Counter,
    pub connections_open: Gauge,
    /// Connections refused because of the limit.
    pub connections_refused: Counter,
    pub streams_refused: Counter,
    pub aborted_unread: Counter,
    pub cut_revoked: Counter,
    /// Streaming responses, by how they ended.
    pub streams_completed: Counter,
    pub streams_abandoned: Counter,
    pub streams_aborted: Counter,
    pub aborted_open_streams: Counter,
    pub aborted_frame_flood: Counter,
    pub aborted_slow_handshake: Counter,
    pub handshakes_full: Counter,
    pub handshakes_resumed: Counter,
    pub handshakes_failed: Counter,
    /// Plain HTTP on a TLS port.
    pub handshakes_plain_http: Counter,
    /// Unix seconds, once there is a certificate.
    certificate_expiry: OnceLock<Gauge>,
    refusals: StatusCounters,
}

impl ServerMetrics {
    pub fn set_certificate_expiry(&self, seconds: u64) {
        let gauge = self.certificate_expiry.get_or_init(Gauge::default);
        gauge.set(usize::try_from(seconds).unwrap_or(usize::MAX));
    }

    /// Counts a response to something that never became a request.
    pub fn count_refusal(&self, status: u16) {
        if let Some(count) = self.refusals.counter(status) {
            count.add(1);
        }
    }
}

/// Metrics of a backend with one writer thread.
#[derive(Debug)]
pub struct WriterMetrics {
    pub waiting: Gauge,
    /// Requests in a commit group.
    pub group_requests: Histogram,
    pub commit: Histogram,
    pub checkpoint: Histogram,
    pub wal_pages: Gauge,
    /// How often scans were held back so that the WAL could be reset, and how often that failed.
    pub wal_resets: Counter,
    pub wal_resets_given_up: Counter,
    /// Set when a commit failed with an unknown outcome: no more writes are accepted.
    pub stopped: Arc<AtomicBool>,
}

/// Metrics of a backend with a connection pool.
#[derive(Debug)]
pub struct PoolMetrics {
    pub open: Gauge,
    pub idle: Gauge,
    /// Requests that wait for a connection.
    pub waiting: Gauge,
    /// How long a request waited for its connection.
    pub wait: Histogram,
    /// Creates that one multi-row INSERT writes, of those that may be batched.
    pub insert_batch_requests: Histogram,
    pub opened: Counter,
    /// Connections that the server did not close itself.
    pub lost: Counter,
}

impl Default for PoolMetrics {
    fn default() -> Self {
        Self {
            open: Gauge::default(),
            idle: Gauge::default(),
            waiting: Gauge::default(),
            wait: Histogram::new(&DURATION_BUCKETS),
            insert_batch_requests: Histogram::new(&GROUP_SIZE_BUCKETS),
            opened: Counter::default(),
            lost: Counter::default(),
        }
    }
}

/// Numbers that other modules keep, at the moment of a scrape.
#[derive(Debug)]
pub struct ScrapeGauges {
    pub in_flight: usize,
    pub waiting: usize,
    pub reserved_bytes: usize,
    pub connection_bytes: usize,
    pub streams: usize,
    pub log_lines_dropped: u64,
    /// `None` when the store does not answer.
    pub positions: Option<ChangeLogBounds>,
}

impl Metrics {
    pub fn new(model: &Model) -> Arc<Self> {
        Arc::new(Self {
            started: clock::system_time(),
            resources: model.resources.iter().map(|resource| resource.label.clone()).collect(),
            shards: Mutex::default(),
            server: ServerMetrics::default(),
            changes_swept: Counter::default(),
            damaged_items: Arc::default(),
            exports: Gauge::default(),
            writer: OnceLock::new(),
            pool: OnceLock::new(),
        })
    }

    /// A handle for one more worker thread.
    pub fn thread_metrics(&self) -> ThreadMetrics {
        let shard = Arc::new(MetricsShard::new(self.resources.len()));
        self.shards().push(Arc::clone(&shard));
        ThreadMetrics::new(shard)
    }

    /// A handle for a backend that has a writer thread.
    pub fn writer(&self) -> Arc<WriterMetrics> {
        Arc::clone(self.writer.get_or_init(|| {
            Arc::new(WriterMetrics {
                waiting: Gauge::default(),
                group_requests: Histogram::new(&GROUP_SIZE_BUCKETS),
                commit: Histogram::new(&DURATION_BUCKETS),
                checkpoint: Histogram::new(&DURATION_BUCKETS),
                wal_pages: Gauge::default(),
                wal_resets: Counter::default(),
                wal_resets_given_up: Counter::default(),
                stopped: Arc::default(),
            })
        }))
    }

    /// A handle for a backend that has a connection pool.
    pub fn pool(&self) -> Arc<PoolMetrics> {
        Arc::clone(self.pool.get_or_init(Arc::default))
    }

    fn shards(&self) -> MutexGuard<'_, Vec<Arc<MetricsShard>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
