//! Steps 10 to 13: execution of the plan, and the reply to its outcome.

use std::borrow::Cow;
use std::sync::Arc;

use super::changes;
use super::context::{RequestContext, RequestFacts, SharedState, run_blocking, too_many_responses};
use super::export::{self, ExportJob};
use super::identity::{self, ChangedRights};
use super::streaming::ResponseBody;
use super::write::{self, BodyReservation};
use super::{idempotency, respond, watch};
use crate::formats::{Format, html, json};
use crate::intent::preconditions::Preconditions;
use crate::intent::{ListQuery, Route, RouteError, RouteTarget, format_path};
use crate::log::StageTimes;
use crate::model::Model;
use crate::plan::{Collection, Outcome, Plan, ReadPlan};
use crate::problem::Problem;
use crate::reply::{self, Reply, ResponseContext};
use crate::store::StoreError;

/// The form of the response, as the request determines it.
pub(super) struct ResponseChoice<'a> {
    pub(super) format: &'static Format,
    /// The `Idempotency-Key`, if the client sent one.
    pub(super) key: Option<Cow<'a, str>>,
}

impl ResponseChoice<'_> {
    /// The target, if the response is a page of it.
    pub(super) fn page_of(&self, route: &Route) -> Option<RouteTarget> {
        html::is_chosen(self.format).then(|| route.target.clone())
    }
}

/// The subject of a request: a collection, maybe a list of it, and the conditions.
struct RequestSubject {
    collection: Option<Collection>,
    list: Option<Arc<ListQuery>>,
    conditions: Preconditions,
}

impl RequestSubject {
    /// Adds the ancestors of an item with a flat path, which the store has found.
    fn locate(mut self, done: Result<Outcome, StoreError>) -> (Self, Result<Outcome, StoreError>) {
        let done = done.map(|outcome| {
            let (ancestors, outcome) = outcome.into_located();
            if let (Some(ancestors), Some(collection)) = (ancestors, &mut self.collection) {
                collection.ancestors = ancestors;
            }
            outcome
        });
        (self, done)
    }

    /// The path under its ancestors of an item with a flat path.
    fn canonical_path(&self, model: &Model, outcome: Option<&Outcome>) -> Option<String> {
        let collection = self.collection.as_ref().filter(|collection| collection.is_flat())?;
        let outcome = outcome?;
        let is_item = !matches!(outcome, Outcome::Page(_) | Outcome::ExpandedPage(_));
        let item = outcome.items().first().filter(|_| is_item)?;
        let Collection { resource, ancestors, .. } = collection;
        Some(format_path(model, *resource, ancestors, Some(item.id)))
    }
}

/// A planned request, ready to be executed.
pub(super) struct PlannedRequest<'a> {
    plan: Plan,
    subject: RequestSubject,
    choice: ResponseChoice<'a>,
}

impl<'a> PlannedRequest<'a> {
    pub(super) fn new(
        request: &RequestContext<'_>,
        plan: Plan,
        choice: ResponseChoice<'a>,
    ) -> Result<Self, Problem> {
        export::check_format(choice.format, plan.list())?;
        let (headers, coding) = (&request.parts.headers, request.content_coding);
        let replies = &request.app.shared.replies;
        // An event stream has no state that a client could have already.
        // A page is made from the whole reply in JSON, and has a tag of its own.
        let is_page = html::is_chosen(choice.format);
        let choice =
            if is_page { ResponseChoice { format: &json::FORMAT, ..choice } } else { choice };
        let conditions = match plan {
            Plan::Watch(_) => Preconditions::default(),
            _ if is_page => Preconditions::default(),
            _ => replies.conditions(headers, &plan, choice.format, coding),
        };
        let plan = plan.with_preconditions(&conditions);
        let (collection, list) = (plan.collection().cloned(), plan.list().cloned());
        Ok(Self { plan, subject: RequestSubject { collection, list, conditions }, choice })
    }
}

/// The one place where a plan is executed.
pub(super) async fn execute(
    request: &RequestContext<'_>,
    PlannedRequest { plan, subject, choice }: PlannedRequest<'_>,
    body: BodyReservation<'_>,
    facts: &mut RequestFacts,
    stages: &mut StageTimes,
) -> Result<Reply<ResponseBody>, RouteError> {
    let ResponseChoice { format, key } = choice;
    let shared = &request.app.shared;
    match plan {
        Plan::Static(content) => {
            let form = (format, &subject.conditions);
            Ok(reply::static_reply(&shared.model, &content, form)?.into())
        }
        Plan::Metrics => Ok(reply::metrics(Box::pin(respond::scrape(request.app)).await).into()),
        Plan::Watch(plan) => Box::pin(watch::start(request, plan, facts, stages)).await,
        Plan::Read(ReadPlan::Page(collection, list))
            if let Some(lines) = export::streamed_format(format, &list) =>
        {
            let job = ExportJob { collection, list, format, lines };
            Box::pin(job.start(request, facts, stages)).await
        }
        Plan::Read(ReadPlan::Changes(read)) => {
            let conditions = &subject.conditions;
            let reply =
                Box::pin(changes::answer(request, *read, (format, conditions), facts, stages));
            Ok(reply.await?.into())
        }
        Plan::Read(read) => {
            let done = write::fetch(request, read).await;
            stages.mark("store");
            identity::confirm_rights(request, facts, stages.last_mark(), ChangedRights::Refuse)
                .await?;
            let (subject, done) = subject.locate(done);
            facts.canonical_path = subject.canonical_path(&shared.model, done.as_ref().ok());
            let reply = build_reply(request, subject, format, done).await?;
            // The outcome of a write must be reported; a read can be repeated.
            match shared.admission.has_memory_for(reply.body.len()) {
                true => Ok(reply.into()),
                false => Err(too_many_responses().into()),
            }
        }
        Plan::Write(plan) => match key {
            Some(key) => {
                let job = idempotency::IdempotentWrite { key: &key, format, plan, body };
                Ok(Box::pin(job.execute(request, facts, stages)).await?.into())
            }
            None => {
                let done = write::write(request, plan, body, facts, stages).await?;
                Ok(build_reply(request, subject, format, done).await?.into())
            }
        },
    }
}

/// Builds the reply to an outcome; a blocking thread serializes a large one.
async fn build_reply(
    request: &RequestContext<'_>,
    RequestSubject { collection, list, conditions }: RequestSubject,
    format: &'static Format,
    done: Result<Outcome, StoreError>,
) -> Result<Reply, Problem> {
    let SharedState { model, replies, admission, .. } = &*request.app.shared;
    let Some(collection) = collection else {
        // Only the readiness check has no collection.
        return done.map(|_| reply::ready()).map_err(|error| reply::failure(model, None, error));
    };
    let about = ResponseContext {
        model,
        collection: &collection,
        list: list.as_deref(),
        conditions: &conditions,
        format,
    };
    let outcome = done.map_err(|error| replies.failure(&about, error))?;
    if !outcome.is_large() {
        return replies.outcome(&about, &outcome);
    }
    // Reserves memory while the outcome waits for a thread: hundreds may wait, each with a full page.
    let reservation = admission.reserve_memory();
    let has_room = reservation.grow(outcome.approximate_bytes());
    let is_read = matches!(
        outcome,
        Outcome::Item(_)
            | Outcome::PastItem(_)
            | Outcome::Page(_)
            | Outcome::ExpandedItem(..)
            | Outcome::ExpandedPage(_)
    );
    if !has_room && is_read {
        return Err(too_many_responses());
    }
    let (shared, memory) = (Arc::clone(&request.app.shared), reservation.share());
    let build = move || {
        let _held = memory;
        let about = ResponseContext {
            model: &shared.model,
            collection: &collection,
            list: list.as_deref(),
            conditions: &conditions,
            format,
        };
        shared.replies.outcome(&about, &outcome)
    };
    Box::pin(run_blocking(build)).await?
}
