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

use super::context::{App, BLOCKING_BODY_BYTES_MIN, RequestContext, SharedState, run_blocking};
use super::write::{self, BodyReservation};
use crate::admission::{KeyedMutexGuard, MemoryReservation};
use crate::auth;
use crate::clock;
use crate::formats::json::ProblemContext;
use crate::formats::{self, Format, accept};
use crate::intent::RouteError;
use crate::intent::preconditions::Preconditions;
use crate::log::StageTimes;
use crate::plan::{
    Collection, IdempotentRequest, IdempotentResponse, Outcome, RenderResponse, RequestRefusal,
    WritePlan,
};
use crate::problem::{self, Problem};
use crate::reply::idempotent_replay::{self, IDEMPOTENT_REPLAYED};
use crate::reply::{self, Reply};
use crate::store::StoreError;

/// Headers that are part of the request's fingerprint, beside the body.
const FINGERPRINTED_HEADERS: [header::HeaderName; 5] = [
    header::CONTENT_TYPE,
    header::IF_MATCH,
    header::IF_NONE_MATCH,
    header::IF_MODIFIED_SINCE,
    header::IF_UNMODIFIED_SINCE,
];

/// Executes a write, or replays the response of its first execution.
pub(super) async fn write(
    app: &App,
    asked: &RequestContext<'_>,
    (key, format): (&str, &'static Format),
    (mut write, bytes, reservation): (Box<WritePlan>, &Bytes, &MemoryReservation<'_>),
    stages: &mut StageTimes,
) -> Result<Reply, RouteError> {
    let SharedState { model, replies, .. } = &*app.shared;
    let about = write.collection.clone();
    let scope = IdempotencyScope::new(asked, key);
    let _turn = attach_key(app, asked, (&scope, format), (&mut write, bytes, reservation)).await?;
    let done =
        write::write(app, asked, write, BodyReservation::new(bytes, reservation), stages).await?;
    match done.map_err(|error| replies.failure(model, (Some(&about), None), format, error))? {
        Outcome::Idempotent(stored) => replay(asked, stored),
        _ => Err(Problem::new(&problem::INTERNAL)
            .cause("the response was not stored under its idempotency key")
            .into()),
    }
}

/// Attaches the key to a write, once no other request with this key is in flight.
async fn attach_key<'a>(
    app: &'a App,
    asked: &RequestContext<'_>,
    (scope, format): (&'a IdempotencyScope, &'static Format),
    (write, bytes, reservation): (&mut WritePlan, &Bytes, &MemoryReservation<'_>),
) -> Result<KeyedMutexGuard<'a>, RouteError> {
    let SharedState { model, auth, admission, .. } = &*app.shared;
    if write.collection.resource == model.users && !auth.has_mac_key() {
        let detail = "expected none here: this server has no secret key to protect passwords with";
        return Err(Problem::new(&problem::BAD_IDEMPOTENCY_KEY).detail(detail).into());
    }
    let wait = Duration::from_secs(model.server.limits.idempotency_wait_seconds_max.into());
    let wait_until = asked.deadline.min(clock::now() + wait);
    let turn = admission.idempotency_locks.lock(&scope.text, wait_until).await;
    let turn = turn.ok_or_else(|| {
        reply::failure(model, None, StoreError::Refused(RequestRefusal::IdempotencyKeyInFlight))
    })?;
    let about = &write.collection;
    let once = IdempotentRequest {
        fingerprints: fingerprint_request(app, asked, (format, about), (bytes, reservation))
            .await?,
        lock_number: scope.number,
        scope: scope.text.as_str().into(),
        wait_max: wait_until.saturating_duration_since(clock::now()),
        // A user is read and patched outside the store.
        can_store_refusals: !write.is_patch_of(model.users),
        render: response_renderer(app, asked, format, about),
    };
    write.idempotency = Some(Box::new(once));
    Ok(turn)
}

/// The stored response as a reply.
fn replay(asked: &RequestContext<'_>, stored: IdempotentResponse) -> Result<Reply, RouteError> {
    let unread = || {
        Problem::new(&problem::INTERNAL)
            .cause("the response stored under the idempotency key cannot be parsed")
    };
    let (mut reply, kind) = idempotent_replay::parse(stored.text).ok_or_else(unread)?;
    if stored.is_replay {
        reply.headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    asked.replayed_problem.set(kind);
    Ok(reply)
}

/// The scope of a key: the caller, the method and the path. Anonymous callers share one scope.
struct IdempotencyScope {
    text: String,
    number: i64,
}

impl IdempotencyScope {
    fn new(asked: &RequestContext<'_>, key: &str) -> Self {
        let user = asked.identified.get().and_then(|known| known.caller.user_name());
        let kind: &[u8] = if user.is_some() { b"user" } else { b"" };
        let (method, path) = (asked.parts.method.as_str(), asked.parts.uri.path());
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

/// The fingerprints of a request: its content, and the formats of its response.
async fn fingerprint_request(
    app: &App,
    asked: &RequestContext<'_>,
    (format, about): (&Format, &Collection),
    (bytes, reservation): (&Bytes, &MemoryReservation<'_>),
) -> Result<Vec<Box<str>>, Problem> {
    let headers = &asked.parts.headers;
    let problem_type = formats::choose_for_problem(&asked.accept);
    let mut parts = vec![
        Bytes::copy_from_slice(asked.parts.uri.query().unwrap_or("").as_bytes()),
        Bytes::from_static(format.media.essence.as_bytes()),
        problem_type.map_or_else(Bytes::new, |value| Bytes::copy_from_slice(value.as_bytes())),
        // Part of the fingerprint: a caller who has lost read access must not get the earlier, fuller
        // response.
        Bytes::copy_from_slice(
            &about.scope.read_access_hash(&app.shared.model, about.resource).to_be_bytes(),
        ),
    ];
    for name in &FINGERPRINTED_HEADERS {
        let mut all = Vec::new();
        let values: Vec<_> = headers.get_all(name).iter().map(HeaderValue::as_bytes).collect();
        auth::update_length_prefixed(&values, |bytes| all.extend_from_slice(bytes));
        parts.push(all.into());
    }
    parts.push(bytes.clone());
    let (shared, memory) = (Arc::clone(&app.shared), reservation.share());
    let work = move || {
        let _held = memory;
        let parts: Vec<&[u8]> = parts.iter().map(|part| &**part).collect();
        shared.auth.request_fingerprints(&parts)
    };
    if bytes.len() < BLOCKING_BODY_BYTES_MIN { Ok(work()) } else { run_blocking(work).await }
}

/// Renders the response in the form in which the store keeps it.
fn response_renderer(
    app: &App,
    asked: &RequestContext<'_>,
    format: &'static Format,
    about: &Collection,
) -> RenderResponse {
    let (shared, about) = (Arc::clone(&app.shared), about.clone());
    let accepted = asked.parts.headers.get_all(header::ACCEPT);
    let accepted: Vec<HeaderValue> = accepted.iter().cloned().collect();
    let (path, id) = (asked.parts.uri.path().to_owned(), asked.id);
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
                let base_path = model.server.base_path.as_deref().unwrap_or("");
                let occasion =
                    ProblemContext { base_path, path: Some(&path), request_id: id.as_str() };
                let accept = accept::parse(accepted.iter().map(HeaderValue::as_bytes));
                let reply = reply::problem(&problem, &accept, occasion);
                idempotent_replay::serialize(&reply, Some(problem.kind()))
            }
        }
    })
}
