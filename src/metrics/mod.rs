//! Metrics: what the server counts, and how `/-/metrics` exposes it.
//!
//! Every number is allocated before the first request: whoever counts holds the handle, and counting is an
//! addition. Numbers that other modules keep anyway (admission control, the log, the store) are not counted
//! twice: the scrape passes them in, as `ScrapeGauges`. The one surprising thing: the metrics of a backend
//! exist only once the backend has asked for their handles.

mod count;
mod process;
mod requests;
mod scrape;
mod text;

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::SystemTime;

pub use count::{Count, Gauge, Histogram};
pub use requests::{Answered, Local};

use crate::clock;
use crate::model::Model;
use crate::plan::Positions;
use count::{SIZES, TIMES};
use requests::{Shard, Statuses};

/// All metrics of one process.
#[derive(Debug)]
pub struct Metrics {
    started: SystemTime,
    /// The labels of the resources, by index.
    resources: Box<[Box<str>]>,
    /// One for each worker thread; locked when one starts and at a scrape.
    shards: Mutex<Vec<Arc<Shard>>>,
    pub server: Server,
    /// Entries that the sweep deleted from the change log.
    pub changes_swept: Count,
    /// Reads of items whose stored value could not be decoded.
    pub damaged_items: Arc<Count>,
    /// Exports that hold a snapshot open.
    pub exports: Gauge,
    writer: OnceLock<Arc<Writer>>,
    pool: OnceLock<Arc<Pool>>,
}

/// Connections, TLS handshakes and streams, and refusals before a request exists.
#[derive(Debug, Default)]
pub struct Server {
    pub accepted: Count,
    pub open: Gauge,
    /// Over the limit of connections.
    pub refused: Count,
    pub streams_refused: Count,
    pub cut_unread: Count,
    pub cut_revoked: Count,
    /// Answers that went on, by how they ended.
    pub flows_whole: Count,
    pub flows_left: Count,
    pub flows_cut: Count,
    pub cut_streams: Count,
    pub cut_frames: Count,
    pub cut_handshake: Count,
    pub handshakes_full: Count,
    pub handshakes_resumed: Count,
    pub handshakes_failed: Count,
    /// Plain HTTP on a TLS port.
    pub handshakes_plain: Count,
    /// Unix seconds, once there is a certificate.
    certificate_end: OnceLock<Gauge>,
    refusals: Statuses,
}

impl Server {
    pub fn set_certificate_end(&self, seconds: u64) {
        let gauge = self.certificate_end.get_or_init(Gauge::default);
        gauge.set(usize::try_from(seconds).unwrap_or(usize::MAX));
    }

    /// Counts a response to something that never became a request.
    pub fn count_refusal(&self, status: u16) {
        if let Some(count) = self.refusals.of(status) {
            count.add(1);
        }
    }
}

/// Metrics of a backend with one writer thread.
#[derive(Debug)]
pub struct Writer {
    pub waiting: Gauge,
    /// Requests in a commit group.
    pub group_requests: Histogram,
    pub commit: Histogram,
    pub checkpoint: Histogram,
    pub log_pages: Gauge,
    /// How often long reads were held back until the WAL could be reset, and how often in vain.
    pub log_resets: Count,
    pub log_resets_given_up: Count,
    /// Set when a commit failed with an unknown outcome: no more writes are accepted.
    pub stopped: Arc<AtomicBool>,
}

/// Metrics of a backend with a connection pool.
#[derive(Debug)]
pub struct Pool {
    pub open: Gauge,
    pub idle: Gauge,
    /// Requests that wait for a connection.
    pub waiting: Gauge,
    /// How long a request waited for its connection.
    pub wait: Histogram,
    /// Creates that one multi-row INSERT writes, of those that may be batched.
    pub group_requests: Histogram,
    pub opened: Count,
    /// Connections that the server did not close itself.
    pub lost: Count,
}

impl Default for Pool {
    fn default() -> Self {
        Self {
            open: Gauge::default(),
            idle: Gauge::default(),
            waiting: Gauge::default(),
            wait: Histogram::new(&TIMES),
            group_requests: Histogram::new(&SIZES),
            opened: Count::default(),
            lost: Count::default(),
        }
    }
}

/// Numbers that other modules keep, at the moment of a scrape.
#[derive(Debug)]
pub struct Now {
    pub under_way: usize,
    pub waiting: usize,
    pub held_bytes: usize,
    pub connection_bytes: usize,
    pub flows: usize,
    pub log_lines_dropped: u64,
    /// `None` when the store does not answer.
    pub positions: Option<Positions>,
}

impl Metrics {
    pub fn new(model: &Model) -> Arc<Self> {
        Arc::new(Self {
            started: clock::system(),
            resources: model.resources.iter().map(|resource| resource.label.clone()).collect(),
            shards: Mutex::default(),
            server: Server::default(),
            changes_swept: Count::default(),
            damaged_items: Arc::default(),
            exports: Gauge::default(),
            writer: OnceLock::new(),
            pool: OnceLock::new(),
        })
    }

    /// A handle for one more worker thread.
    pub fn local(&self) -> Local {
        let shard = Arc::new(Shard::new(self.resources.len()));
        self.shards().push(Arc::clone(&shard));
        Local::new(shard)
    }

    /// A handle for a backend that has a writer thread.
    pub fn writer(&self) -> Arc<Writer> {
        Arc::clone(self.writer.get_or_init(|| {
            Arc::new(Writer {
                waiting: Gauge::default(),
                group_requests: Histogram::new(&SIZES),
                commit: Histogram::new(&TIMES),
                checkpoint: Histogram::new(&TIMES),
                log_pages: Gauge::default(),
                log_resets: Count::default(),
                log_resets_given_up: Count::default(),
                stopped: Arc::default(),
            })
        }))
    }

    /// A handle for a backend that has a connection pool.
    pub fn pool(&self) -> Arc<Pool> {
        Arc::clone(self.pool.get_or_init(Arc::default))
    }

    fn shards(&self) -> MutexGuard<'_, Vec<Arc<Shard>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
