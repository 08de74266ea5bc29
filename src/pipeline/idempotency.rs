//! Writes with an `Idempotency-Key`: executed once, however often the client retries.
//!
//! The key is looked up after all checks that need only the request (steps 1 to 9). So a caller who gets a
//! stored response has been authenticated and authorized again, and a malformed request uses up no key. Of
//! all requests with the same key only one at a time accesses the store, which holds the stored responses.
//! A response is stored in one format, so the negotiated format is part of the request's fingerprint: a
//! client never gets a type that it did not list.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use http::{HeaderValue, header};
use sha2::{Digest, Sha256};

use super::context::{
    BLOCKING_BODY_BYTES_MIN, RequestContext, RequestFacts, SharedState, run_blocking,
};
use super::write::{self, BodyReservation};
use crate::admission::KeyedMutexGuard;
use crate::auth;
use crate::clock;
use crate::formats::{self, Format, accept};
use crate::intent::RouteError;
use crate::intent::preconditions::Preconditions;
use crate::log::StageTimes;
use crate::plan::{
    Collection, IdempotentRequest, IdempotentResponse, Outcome, RenderResponse, RequestRefusal,
    WritePlan,
};
use crate::problem::{self, Problem};
use crate::reply::Reply;
use crate::reply::idempotent_replay::{self, IDEMPOTENT_REPLAYED};
use crate::store::StoreError;

/// Headers that are part of the request's fingerprint, beside the body.
const FINGERPRINTED_HEADERS: [header::HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// A write with an `Idempotency-Key`.
pub(super) struct IdempotentWrite<'a> {
    pub(super) key: &'a str,
    pub(super) format: &'static Format,
    pub(super) plan: Box<WritePlan>,
    pub(super) body: BodyReservation<'a>,
}

impl IdempotentWrite<'_> {
    /// Executes the write, or replays the response of its first execution.
    pub(super) async fn execute(
        mut self,
        request: &RequestContext<'_>,
        facts: &mut RequestFacts,
        stages: &mut StageTimes,
    ) -> Result<Reply, RouteError> {
        let SharedState { model, replies, .. } = &*request.app.shared;
        let scope = IdempotencyScope::new(request, facts, self.key);
        let _turn = self.attach_key(request, &scope).await?;
        let Self { format, plan, body, .. } = self;
        let about = plan.collection.clone();
        let done = write::write(request, plan, body, facts, stages).await?;
        match done.map_err(|error| replies.failure(model, (Some(&about), None), format, error))? {
            Outcome::Idempotent(stored) => replay(stored, facts),
            _ => Err(Problem::new(&problem::INTERNAL)
                .cause("the response was not stored under its idempotency key")
                .into()),
        }
    }

    /// Attaches the key to the write, once no other request with this key is in flight.
    async fn attach_key<'a>(
        &mut self,
        request: &RequestContext<'a>,
        scope: &'a IdempotencyScope,
    ) -> Result<KeyedMutexGuard<'a>, RouteError> {
        let SharedState { model, auth, admission, .. } = &*request.app.shared;
        if self.plan.collection.resource == model.users && !auth.has_mac_key() {
            let detail =
                "expected none here: this server has no secret key to protect passwords with";
            return Err(Problem::new(&problem::BAD_IDEMPOTENCY_KEY).detail(detail).into());
        }
        let wait = Duration::from_secs(model.server.limits.idempotency_wait_seconds_max.into());
        let wait_until = request.deadline.min(clock::now() + wait);
        let turn = admission.idempotency_locks.lock(&scope.text, wait_until).await;
        let turn = turn.ok_or_else(|| {
            request.store_problem(StoreError::Refused(RequestRefusal::IdempotencyKeyInFlight))
        })?;
        let once = IdempotentRequest {
            fingerprints: self.fingerprints(request).await?,
            lock_number: scope.number,
            scope: scope.text.as_str().into(),
            wait_max: wait_until.saturating_duration_since(clock::now()),
            // A user is read and patched outside the store.
            can_store_refusals: !self.plan.is_patch_of(model.users),
            render: response_renderer(request, self.format, &self.plan.collection),
        };
        self.plan.idempotency = Some(Box::new(once));
        Ok(turn)
    }

    /// The fingerprints of the request: its content, and the formats of its response.
    async fn fingerprints(&self, request: &RequestContext<'_>) -> Result<Vec<Box<str>>, Problem> {
        let (headers, about) = (&request.parts.headers, &self.plan.collection);
        let problem_type = formats::choose_for_problem(&request.accept);
        let model = &request.app.shared.model;
        let mut parts = vec![
            Bytes::copy_from_slice(request.parts.uri.query().unwrap_or("").as_bytes()),
            Bytes::from_static(self.format.media.essence.as_bytes()),
            problem_type.map_or_else(Bytes::new, |value| Bytes::copy_from_slice(value.as_bytes())),
            // Part of the fingerprint: a caller who has lost read access must not get the earlier, fuller
            // response.
            Bytes::copy_from_slice(
                &about.scope.read_access_hash(model, about.resource).to_be_bytes(),
            ),
        ];
        for name in &FINGERPRINTED_HEADERS {
            let mut all = Vec::new();
            let values: Vec<_> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
            auth::update_length_prefixed(&values, |bytes| all.extend_from_slice(bytes));
            parts.push(all.into());
        }
        let BodyReservation { bytes, memory } = self.body;
        parts.push(bytes.clone());
        let (shared, memory) = (Arc::clone(&request.app.shared), memory.share());
        let work = move || {
            let _held = memory;
            let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
            shared.auth.request_fingerprints(&parts)
        };
        if bytes.len() < BLOCKING_BODY_BYTES_MIN { Ok(work()) } else { run_blocking(work).await }
    }
}

/// The stored response as a reply.
fn replay(stored: IdempotentResponse, facts: &mut RequestFacts) -> Result<Reply, RouteError> {
    let unread = || {
        Problem::new(&problem::INTERNAL)
            .cause("the response stored under the idempotency key cannot be parsed")
    };
    let (mut reply, kind) = idempotent_replay::parse(stored.text).ok_or_else(unread)?;
    if stored.is_replay {
        reply.headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    facts.replayed_problem = kind;
    Ok(reply)
}

/// The scope of a key: the caller, the method and the path. Anonymous callers share one scope.
struct IdempotencyScope {
    text: String,
    number: i64,
}

impl IdempotencyScope {
    fn new(request: &RequestContext<'_>, facts: &RequestFacts, key: &str) -> Self {
        let user = facts.user_name();
        let kind: &[u8] = if user.is_some() { b"user" } else { b"" };
        let (method, path) = (request.parts.method.as_str(), request.parts.uri.path());
        let mut hash = Sha256::new();
        let parts = [user.unwrap_or(""), method, path, key].map(str::as_bytes);
        auth::update_length_prefixed(&[kind], |bytes| hash.update(bytes));
        auth::update_length_prefixed(&parts, |bytes| hash.update(bytes));
        let hash: [u8; 32] = hash.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = hash;
        let number = i64::from_be_bytes([a, b, c, d, e, f, g, h]);
        Self { text: URL_SAFE_NO_PAD.encode(hash), number }
    }
}

/// Renders the response in the form in which the store keeps it.
fn response_renderer(
    request: &RequestContext<'_>,
    format: &'static Format,
    about: &Collection,
) -> RenderResponse {
    let (shared, about) = (Arc::clone(&request.app.shared), about.clone());
    let accepted = request.parts.headers.get_all(header::ACCEPT);
    let accepted: Vec<HeaderValue> = accepted.iter().cloned().collect();
    let (path, id) = (request.parts.uri.path().to_owned(), request.id);
    Arc::new(move |done| {
        let SharedState { model, replies, .. } = &*shared;
        let reply = match done {
            Ok(outcome) => {
                // A patch of a user ends as a replacement.
                let outcome = match outcome {
                    Outcome::Updated(item) => Outcome::Patched(item),
                    outcome => outcome,
                };
                // The conditions were evaluated when the item was changed.
                let about = (Some(about.clone()), None, &Preconditions::default());
                replies.outcome(model, about, format, &outcome)
            }
            Err(refusal) => {
                let refused = StoreError::Refused(refusal);
                Err(replies.failure(model, (Some(&about), None), format, refused))
            }
        };
        match reply {
            Ok(reply) => idempotent_replay::serialize(&reply, None),
            Err(problem) => {
                let accept = accept::parse(accepted.iter().map(HeaderValue::as_bytes));
                let reply = shared.problem_reply(&problem, &accept, &path, &id);
                idempotent_replay::serialize(&reply, Some(problem.kind()))
            }
        }
    })
}
