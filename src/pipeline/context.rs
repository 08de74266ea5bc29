//! What the stages of a request share: the state of the server, and the request with what is known about it.

use std::cell::{Cell, OnceCell};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::HeaderValue;
use http::request::Parts;

use super::streaming::StreamRights;
use crate::admission::{self, AdmissionControl, MemoryReservation};
use crate::auth::{Authenticator, IdentifiedCaller};
use crate::formats::accept::Accept;
use crate::formats::coding::CodingChoice;
use crate::log::Logger;
use crate::metrics::{Metrics, ThreadMetrics};
use crate::model::{Model, Network, ResourceIndex};
use crate::problem::{self, Problem};
use crate::rate_window::WindowState;
use crate::reply::ReplyBuilder;
use crate::store;
use crate::wire::{CorsOrigin, PeerConnection, RequestBody, RequestId, Sender};

/// Parsing a body of this size or more would block the event loop for noticeably long, so a blocking thread
/// does it, as it does for the serialization of large outcomes (`Outcome::is_large`).
pub(super) const BLOCKING_BODY_BYTES_MIN: usize = 64 << 10;

/// State that all worker threads share.
#[derive(Debug)]
pub struct SharedState {
    pub model: Arc<Model>,
    pub auth: Authenticator,
    pub replies: ReplyBuilder,
    pub admission: AdmissionControl,
    pub log: Logger,
    pub metrics: Arc<Metrics>,
    /// The `--listen` addresses: names that an open server accepts in `Host`.
    pub listen_names: Vec<String>,
    /// Peers whose `Forwarded` headers we trust.
    pub trusted_proxies: Vec<Network>,
    /// The HTTPS port, for redirects.
    pub https_port: u16,
    /// `Strict-Transport-Security`, if it is configured.
    pub hsts: Option<HeaderValue>,
}

/// The state with which one worker thread answers requests.
#[derive(Debug)]
pub struct App {
    pub shared: Arc<SharedState>,
    pub store: store::StoreWorker,
    pub metrics: ThreadMetrics,
}

/// Reads the whole body, within its limits of size and time.
pub(super) async fn read_body(
    asked: &RequestContext<'_>,
    (body, memory): (&mut RequestBody, &MemoryReservation<'_>),
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    body.read(bytes_max, asked.body_deadline, memory).await
}

pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    admission::spawn_blocking(work).await.map_err(|_| Problem::new(&problem::BUSY))
}

/// A request and the facts that the pipeline has learned about it so far.
pub(super) struct RequestContext<'a> {
    pub(super) parts: &'a Parts,
    pub(super) accept: Accept<'a>,
    /// The content coding of the response; mostly none.
    pub(super) content_coding: Option<CodingChoice>,
    pub(super) id: RequestId,
    /// When the body must have arrived, and when the outcome must be known.
    pub(super) body_deadline: Instant,
    pub(super) deadline: Instant,
    pub(super) way: PeerConnection,
    /// The client that sent the request, according to the trusted proxies.
    pub(super) sender: Sender,
    pub(super) visitor: CorsOrigin,
    pub(super) now: Instant,
    /// Set by step 4; the log and the response use it too.
    pub(super) identified: OnceCell<IdentifiedCaller>,
    /// The caller with fresh rights, where these changed while the body was read.
    pub(super) refreshed: OnceCell<IdentifiedCaller>,
    /// When the rights were last checked.
    pub(super) rights_checked_at: Cell<Instant>,
    /// The rights that a streaming response depends on.
    pub(super) stream_rights: OnceCell<Arc<StreamRights>>,
    /// The caller's rate window, if the caller is rate-limited.
    pub(super) rate_window: Cell<Option<WindowState>>,
    /// Set by step 2, for the metrics.
    pub(super) resource: Cell<Option<ResourceIndex>>,
    /// The kind of a replayed problem, for the log.
    pub(super) replayed_problem: Cell<Option<&'static problem::ProblemKind>>,
}

impl RequestContext<'_> {
    /// The caller by the last check of the rights; `None` before step 4.
    pub(super) fn latest_identified(&self) -> Option<&IdentifiedCaller> {
        self.refreshed.get().or_else(|| self.identified.get())
    }
}
