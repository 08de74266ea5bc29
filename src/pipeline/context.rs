//! The context that the stages of a request share: the state of the server, the request, and the facts about it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderValue, header};

use crate::admission::{self, AdmissionControl, MemoryReservation};
use crate::auth::{AuthError, AuthRequest, Authenticator, IdentifiedCaller};
use crate::clock;
use crate::events::Feed;
use crate::events::webhook::WebhookEngine;
use crate::fault::OrBug;
use crate::formats::accept::{self, Accept};
use crate::formats::coding::{self, CodingChoice};
use crate::formats::json::ProblemContext;
use crate::intent::RouteError;
use crate::log::Logger;
use crate::metrics::{Metrics, ThreadMetrics};
use crate::model::settings::RateLimit;
use crate::model::{Model, Network, RealmIndex, ResourceIndex};
use crate::plan::RightsLease;
use crate::problem::{self, Problem, ProblemKind};
use crate::rate_window::WindowState;
use crate::reply::{self, Reply, ReplyBuilder};
use crate::store::{StoreError, StoreWorker};
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
    pub admission: Arc<AdmissionControl>,
    pub feed: Arc<Feed>,
    /// Sends the webhooks.
    pub webhooks: Arc<WebhookEngine>,
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

impl SharedState {
    /// The response to a request that has this problem.
    pub(super) fn problem_reply(
        &self,
        problem: &Problem,
        accept: &Accept<'_>,
        path: &str,
        id: &RequestId,
    ) -> Reply {
        let base_path = self.model.server.base_path.as_deref().unwrap_or("");
        let context = ProblemContext { base_path, path: Some(path), request_id: id.as_str() };
        reply::problem(problem, accept, context)
    }
}

/// The state with which one worker thread answers requests.
#[derive(Debug)]
pub struct App {
    pub shared: Arc<SharedState>,
    pub store: StoreWorker,
    pub metrics: ThreadMetrics,
}

pub(super) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    admission::spawn_blocking(work).await.map_err(|_| Problem::new(&problem::BUSY))
}

/// A request as it arrived: nothing here changes while it is answered.
pub(super) struct RequestContext<'a> {
    pub(super) app: &'a App,
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
    pub(super) exchange: &'a dyn ExchangeObserver,
}

/// Learns what a request does, so that its connection can be judged.
pub trait ExchangeObserver {
    /// The request does nothing but wait for changes, or no longer.
    fn set_waiting(&self, is_waiting: bool);
}

/// A request that waits for changes: as a stream it has limits of its own, and does not count as a request that its
/// connection has not finished.
pub(super) struct IdleWait<'a>(&'a dyn ExchangeObserver);

impl<'a> IdleWait<'a> {
    pub(super) fn begin(exchange: &'a dyn ExchangeObserver) -> Self {
        exchange.set_waiting(true);
        Self(exchange)
    }
}

impl Drop for IdleWait<'_> {
    fn drop(&mut self) {
        self.0.set_waiting(false);
    }
}

impl<'a> RequestContext<'a> {
    pub(super) fn new(
        app: &'a App,
        parts: &'a Parts,
        id: RequestId,
        (way, sender, exchange): (PeerConnection, Sender, &'a dyn ExchangeObserver),
        visitor: CorsOrigin,
    ) -> Self {
        let lines = |name| parts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let limits = &app.shared.model.server.limits;
        let now = clock::now();
        let within = |seconds: u32| now + Duration::from_secs(seconds.into());
        Self {
            app,
            parts,
            accept: accept::parse(lines(header::ACCEPT)),
            content_coding: coding::choose(lines(header::ACCEPT_ENCODING)),
            id,
            body_deadline: within(limits.body_seconds_max),
            deadline: within(limits.request_seconds_max),
            way,
            sender,
            visitor,
            now,
            exchange,
        }
    }

    /// Reads the whole body, within its limits of size and time.
    pub(super) async fn read_body(
        &self,
        (body, memory): (&mut RequestBody, &MemoryReservation<'_>),
        bytes_max: usize,
    ) -> Result<Bytes, Problem> {
        body.read(bytes_max, self.body_deadline, memory).await
    }

    /// The response if this problem ends the request.
    pub(super) fn problem_reply(&self, problem: &Problem) -> Reply {
        let path = self.parts.uri.path();
        self.app.shared.problem_reply(problem, &self.accept, path, &self.id)
    }

    /// The problem of an error that no resource is known for.
    pub(super) fn store_problem(&self, error: StoreError) -> Problem {
        reply::failure(&self.app.shared.model, None, error)
    }

    pub(super) fn auth_problem(&self, error: AuthError) -> RouteError {
        match error {
            AuthError::Problem(problem) => problem.into(),
            AuthError::Store(error) => self.store_problem(error).into(),
        }
    }

    /// The parts of the request that authentication needs.
    pub(super) fn auth_request(&self, realm: RealmIndex) -> AuthRequest<'_> {
        AuthRequest {
            store: &self.app.store,
            parts: self.parts,
            id: self.id.as_str(),
            realm,
            address: self.sender.address,
            is_private: self.sender.is_private(),
            now: self.now,
        }
    }
}

/// The facts that the steps have found out about a request, for later steps, the log, the metrics and the headers
/// of the response. `handle_request` owns it, so that it survives an error or a panic of `answer`.
#[derive(Default)]
pub(super) struct RequestFacts {
    /// Set by step 2.
    pub(super) resource: Option<ResourceIndex>,
    /// Set by step 4.
    pub(super) identity: Option<CallerIdentity>,
    /// Set by step 5, if the caller is rate-limited.
    pub(super) rate: Option<RateUse>,
    /// The path under its ancestors of an item with a flat path; set by step 10.
    pub(super) canonical_path: Option<String>,
    /// The kind of a replayed problem.
    pub(super) replayed_problem: Option<&'static ProblemKind>,
}

/// The caller, with the rights by the last check of them.
pub(super) struct CallerIdentity {
    pub(super) known: IdentifiedCaller,
    pub(super) rights_checked_at: Instant,
}

/// A rate limit that counts the request, and its window.
pub(super) struct RateUse {
    pub(super) limit: RateLimit,
    pub(super) window: WindowState,
}

impl RequestFacts {
    /// The caller, from step 4 on.
    pub(super) fn identity(&mut self) -> &mut CallerIdentity {
        self.identity.as_mut().or_bug("step 4 identifies the caller")
    }

    /// The user name of the caller; none before step 4 and for an anonymous caller.
    pub(super) fn user_name(&self) -> Option<&str> {
        self.identity.as_ref().and_then(|identity| identity.known.caller.user_name())
    }

    /// The name of the caller, for the log.
    pub(super) fn caller_name(&self) -> &str {
        self.identity.as_ref().map_or("-", |identity| identity.known.caller.name())
    }

    /// The lease for checking the caller's rights again in a write.
    pub(super) fn rights_lease(&self) -> Option<RightsLease> {
        let CallerIdentity { known, rights_checked_at } = self.identity.as_ref()?;
        known.mandate(*rights_checked_at)
    }
}

/// The problem of a response for which there is no memory.
pub(super) fn too_many_responses() -> Problem {
    Problem::new(&problem::BUSY).detail("too many large responses in memory")
}
