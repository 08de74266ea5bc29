//! Writes with an `Idempotency-Key`: executed once, however often the client retries.
//!
//! The key is looked up after all checks that need only the request (steps 1 to 9). So a caller who gets a
//! stored response has been authenticated and authorized again, and a malformed request uses up no key. Of
//! all requests with the same key only one at a time accesses the store, which holds the stored responses.
//!
//! `key` parses the header, `fingerprint` recognizes a retry, and `stored_response` is the form in which the
//! store keeps a response. The store's half is `store::idempotency`; what both share is `plan::idempotency`.

mod fingerprint;
mod key;
mod stored_response;

pub(super) use self::key::parse_key;

use std::time::Duration;

use http::header;

use self::fingerprint::IdempotencyScope;
use super::context::{RequestContext, RequestFacts, SharedState};
use super::write::{self, BodyReservation};
use crate::admission::KeyedMutexGuard;
use crate::clock;
use crate::fault;
use crate::formats::Format;
use crate::intent::RouteError;
use crate::intent::preconditions::Preconditions;
use crate::log::StageTimes;
use crate::plan::{
    Cardinality, Collection, IdempotentRequest, Outcome, ReadPlan, RequestRefusal, WriteAction,
    WritePlan,
};
use crate::problem::{self, Problem};
use crate::reply::{self, Reply, ResponseContext};
use crate::store::StoreError;
use crate::value::Id;

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
        let SharedState { model, replies, auth, .. } = &*request.app.shared;
        let scope = IdempotencyScope::new(request, facts, self.key);
        let _turn = self.attach_key(request, &scope).await?;
        let Self { format, plan, body, .. } = self;
        let (collection, conditions) = (plan.collection.clone(), Preconditions::default());
        let written = WrittenItem::of(&plan.action);
        let about = ResponseContext {
            model,
            collection: &collection,
            list: None,
            conditions: &conditions,
            format,
        };
        let done = write::write(request, plan, body, facts, stages).await?;
        match done.map_err(|error| replies.failure(&about, error))? {
            Outcome::Idempotent(stored) => {
                let is_replay = stored.is_replay;
                let (mut reply, problem) = stored_response::replay(auth, stored)?;
                facts.replayed_problem = problem;
                if is_replay && problem.is_none() {
                    Box::pin(written.hide_unless_readable(&mut reply, request, collection, facts))
                        .await?;
                }
                Ok(reply)
            }
            _ => fault::bug("a write with an idempotency key has a stored response"),
        }
    }

    /// Attaches the key to the write, once no other request with this key is in flight.
    async fn attach_key<'a>(
        &mut self,
        request: &RequestContext<'a>,
        scope: &'a IdempotencyScope,
    ) -> Result<KeyedMutexGuard<'a>, RouteError> {
        let SharedState { model, auth, admission, .. } = &*request.app.shared;
        let about = &self.plan.collection;
        let has_secret = [model.users, model.webhooks].contains(&about.resource);
        if has_secret && !auth.has_server_key() {
            let detail =
                "expected none here: this server has no secret key to protect secrets with";
            return Err(Problem::new(&problem::BAD_IDEMPOTENCY_KEY).detail(detail).into());
        }
        let wait = Duration::from_secs(model.server.limits.idempotency_wait_seconds_max.into());
        let wait_until = request.deadline.min(clock::now() + wait);
        let turn = admission.idempotency_locks.lock(&scope.text, wait_until).await;
        let turn = turn.ok_or_else(|| {
            request.store_problem(StoreError::Refused(RequestRefusal::IdempotencyKeyInFlight))
        })?;
        let once = IdempotentRequest {
            fingerprints: fingerprint::fingerprints(request, self.format, about, self.body).await?,
            lock_number: scope.number,
            scope: scope.text.as_str().into(),
            wait_max: wait_until.saturating_duration_since(clock::now()),
            // A user or a webhook is read and patched outside the store. A refusal may tell something about items that
            // the caller can no longer see.
            can_store_refusals: !self.plan.is_patch_with_secret(model)
                && !about.scope.for_reading().has_row_filter(model, about.resource),
            render: stored_response::response_renderer(request, self.format, about),
        };
        self.plan.idempotency = Some(Box::new(once));
        Ok(turn)
    }
}

/// The items that a stored response shows.
enum WrittenItem {
    /// A new item, whose id is in the `Location` of the response.
    New,
    Known(Id),
    Several,
}

impl WrittenItem {
    fn of(action: &WriteAction) -> Self {
        match action {
            WriteAction::Create { count: Cardinality::One, .. } => Self::New,
            WriteAction::Create { count: Cardinality::Many, .. } => Self::Several,
            WriteAction::Replace { id, .. }
            | WriteAction::Patch { id, .. }
            | WriteAction::Remove { id, .. } => Self::Known(*id),
        }
    }

    /// Removes the items from a replayed response unless the caller can still see them: a row filter depends on the
    /// items, and on others such as memberships, which may have changed since. Several are not looked up.
    async fn hide_unless_readable(
        self,
        stored: &mut Reply,
        request: &RequestContext<'_>,
        mut collection: Collection,
        facts: &mut RequestFacts,
    ) -> Result<(), RouteError> {
        let SharedState { model, .. } = &*request.app.shared;
        collection.scope = collection.scope.for_reading();
        if stored.body.is_empty() || !collection.scope.has_row_filter(model, collection.resource) {
            return Ok(());
        }
        let id = match self {
            Self::Known(id) => Some(id),
            Self::Several => None,
            Self::New => {
                let location = stored.headers.get(header::LOCATION);
                let location = location.and_then(|value| value.to_str().ok());
                let id = location.and_then(|path| path.rsplit('/').next());
                id.and_then(|id| model.resource(collection.resource).id.parse(id))
            }
        };
        let is_readable = match id {
            None => false,
            Some(id) => {
                let read = ReadPlan::Item(collection.clone(), id, None);
                match write::fetch_with_rights(request, read, facts).await? {
                    Ok(_) => true,
                    Err(StoreError::Refused(RequestRefusal::Missing)) => false,
                    Err(error) => {
                        return Err(reply::failure(model, Some(&collection), error).into());
                    }
                }
            }
        };
        if !is_readable {
            stored_response::remove_items(stored);
        }
        Ok(())
    }
}
