//! What is counted while serving, and how it is shown at `/-/metrics`.
//!
//! Every number has its place before the first request: whoever counts holds the handle, and counting
//! is an addition. What others keep anyway (the gate, the log, the store) is not counted twice: it comes
//! with the scrape, as `Now`.
//! The one surprising thing: the numbers of a backend's own parts are there only once the backend has
//! asked for their handles.

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

/// All numbers of one process.
#[derive(Debug)]
pub struct Metrics {
    started: SystemTime,
    /// What the resources are called here, by index.
    resources: Box<[Box<str>]>,
    /// One for each thread that answers; locked when one starts and at a scrape.
    shards: Mutex<Vec<Arc<Shard>>>,
    pub server: Server,
    /// Entries that the sweep took from the change log.
    pub changes_swept: Count,
    /// Reads of items that could not be read as they are stored.
    pub damaged_items: Arc<Count>,
    /// Exports that hold a state of the data.
    pub exports: Gauge,
    writer: OnceLock<Arc<Writer>>,
    pool: OnceLock<Arc<Pool>>,
}

/// Connections, and what is answered before it is a request.
#[derive(Debug, Default)]
pub struct Server {
    pub accepted: Count,
    pub open: Gauge,
    /// Over the limit.
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
    /// Plain HTTP where TLS is spoken.
    pub handshakes_plain: Count,
    /// Seconds since 1970, once there is one.
    certificate_end: OnceLock<Gauge>,
    refusals: Statuses,
}

impl Server {
    pub fn set_certificate_end(&self, seconds: u64) {
        let gauge = self.certificate_end.get_or_init(Gauge::default);
        gauge.set(usize::try_from(seconds).unwrap_or(usize::MAX));
    }

    /// An answer to something that never became a request.
    pub fn count_refusal(&self, status: u16) {
        if let Some(count) = self.refusals.of(status) {
            count.add(1);
        }
    }
}

/// A backend with one thread that writes.
#[derive(Debug)]
pub struct Writer {
    pub waiting: Gauge,
    /// Requests in a commit.
    pub group_requests: Histogram,
    pub commit: Histogram,
    pub checkpoint: Histogram,
    pub log_pages: Gauge,
    /// How often long reads were held back until the log file could begin anew, and how often in vain.
    pub log_resets: Count,
    pub log_resets_given_up: Count,
    /// Set when a commit failed in a way that leaves its outcome open: nothing is written any more.
    pub stopped: Arc<AtomicBool>,
}

/// A backend with connections to a database server.
#[derive(Debug)]
pub struct Pool {
    pub open: Gauge,
    pub idle: Gauge,
    /// Requests that wait for a connection.
    pub waiting: Gauge,
    /// How long a request waited for its connection.
    pub wait: Histogram,
    /// Creates that one statement writes, of those that may go together.
    pub group_requests: Histogram,
    pub opened: Count,
    /// Connections that ended otherwise than by us.
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

/// What stands elsewhere, at the moment of a scrape.
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

    /// For one more thread that answers requests.
    pub fn local(&self) -> Local {
        let shard = Arc::new(Shard::new(self.resources.len()));
        self.shards().push(Arc::clone(&shard));
        Local::new(shard)
    }

    /// For a backend that has a writer thread.
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

    /// For a backend that has a pool of connections.
    pub fn pool(&self) -> Arc<Pool> {
        Arc::clone(self.pool.get_or_init(Arc::default))
    }

    fn shards(&self) -> MutexGuard<'_, Vec<Arc<Shard>>> {
        self.shards.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
