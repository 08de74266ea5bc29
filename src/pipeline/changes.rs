//! `/-/changes`: a page of the change log, at once or as soon as it has something (long polling).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::context::{
    App, IdleWait, RequestContext, RequestFacts, SharedState, run_blocking, too_many_responses,
};
use super::identity::{self, ChangedRights};
use super::watch;
use crate::admission::{CallerKey, LongPollPermits};
use crate::clock;
use crate::events::{LogWait, Subscription, WaitEnd};
use crate::fault::bug;
use crate::formats::Format;
use crate::intent::preconditions::{PreconditionResult, Preconditions};
use crate::intent::{ChangesQuery, RouteError};
use crate::log::StageTimes;
use crate::plan::{ChangesPage, ChangesRead, Outcome, ReadPlan};
use crate::problem::{self, Problem};
use crate::reply::{self, Reply};
use crate::store::StoreError;

/// How often the rights of a caller who waits are checked.
const RIGHTS_CHECK_EVERY: Duration = Duration::from_secs(1);

/// Answers a request for a page. The log has no validators, because every page may be different.
pub(super) async fn answer(
    request: &RequestContext<'_>,
    read: ChangesRead,
    (format, conditions): (&'static Format, &Preconditions),
    facts: &mut RequestFacts,
    stages: &mut StageTimes,
) -> Result<Reply, RouteError> {
    let shared = &request.app.shared;
    let query = (&read, Arc::clone(&read.query));
    let page = read_page(request, query, None, facts).await?;
    let page = page.map_err(|error| request.store_problem(error))?;
    stages.mark("store");
    let page = match read.query.wait {
        Some(time) if page.changes.is_empty() && page.next.is_none() => {
            let waited = Box::pin(wait_for_changes(request, (&read, page), time, facts)).await?;
            stages.mark("wait");
            waited
        }
        _ => page,
    };
    let outcome = Outcome::Changes(page);
    match conditions.evaluate(None, true) {
        PreconditionResult::Holds => {}
        PreconditionResult::NotModified => return Ok(reply::not_modified(None)),
        PreconditionResult::Fails => {
            return Err(Problem::new(&problem::PRECONDITION_FAILED).into());
        }
    }
    let reservation = shared.admission.reserve_memory();
    if outcome.is_large() && !reservation.grow(outcome.approximate_bytes()) {
        return Err(too_many_responses().into());
    }
    let is_large = outcome.is_large();
    let (app, memory) = (Arc::clone(shared), reservation.share());
    let build = move || {
        let _held = memory;
        let Outcome::Changes(page) = &outcome else {
            bug("the outcome of a read of the change log is a page of it")
        };
        reply::changes_page(&app.model, &read, page, format)
    };
    let reply = if is_large { run_blocking(build).await? } else { build() };
    match shared.admission.has_memory_for(reply.body.len()) {
        true => Ok(reply),
        false => Err(too_many_responses().into()),
    }
}

/// Reads a page, and refuses it if the caller's rights have changed meanwhile. A long poll that a change has woken
/// reads it in its turn, until the wait is over.
async fn read_page(
    request: &RequestContext<'_>,
    (read, query): (&ChangesRead, Arc<ChangesQuery>),
    woken_until: Option<Instant>,
    facts: &mut RequestFacts,
) -> Result<Result<ChangesPage, StoreError>, RouteError> {
    let App { shared, store, .. } = request.app;
    let admission = &shared.admission;
    let read = ReadPlan::Changes(Box::new(ChangesRead { scope: read.scope.clone(), query }));
    let done = match woken_until {
        None => match admission.admit(request.deadline).await {
            Ok(permit) => store.read_in(Some(permit), read).await,
            Err(error) => Err(error),
        },
        Some(over_at) => match admission.admit_long_poll(over_at).await {
            Some(LongPollPermits { request, _turn }) => store.read_in(Some(request), read).await,
            None => Err(StoreError::Busy),
        },
    };
    identity::confirm_rights(request, facts, clock::now(), ChangedRights::Refuse).await?;
    Ok(done.map(|outcome| match outcome {
        Outcome::Changes(page) => page,
        _ => bug("the outcome of a read of the change log is a page of it"),
    }))
}

/// Waits until the log has something for the caller, or the time is over, or the server shuts down. A wait is a
/// stream for the limits, and ends when the rights of the caller change.
async fn wait_for_changes(
    request: &RequestContext<'_>,
    (read, mut page): (&ChangesRead, ChangesPage),
    time: Duration,
    facts: &mut RequestFacts,
) -> Result<ChangesPage, RouteError> {
    let SharedState { model, feed, .. } = &*request.app.shared;
    let over_at = clock::now() + time;
    let caller = CallerKey::new(facts.user_name(), request.sender.address);
    let _permit = watch::acquire_stream(request, &caller).await?;
    let _idle = IdleWait::begin(request.exchange);
    let subscription = Subscription::new(model, read.scope.clone());
    let mut wait = LogWait::begin(feed, subscription, caller, page.position);
    loop {
        let now = clock::now();
        identity::confirm_rights(request, facts, now, ChangedRights::Refuse).await?;
        let left = over_at.saturating_duration_since(now);
        match wait.changed(left.min(RIGHTS_CHECK_EVERY)).await {
            Some(WaitEnd::Changed) => {
                let query = (read, Arc::new(read.query.continued_after(wait.position())));
                match read_page(request, query, Some(over_at), facts).await? {
                    Ok(found) if !found.changes.is_empty() || found.next.is_some() => {
                        return Ok(found);
                    }
                    Ok(found) => page = found,
                    // The server is busy, and the client need not know: it has time.
                    Err(StoreError::Busy | StoreError::TimedOut) => {}
                    Err(error) => return Err(request.store_problem(error).into()),
                }
                if clock::now() >= over_at {
                    break;
                }
                wait.go_on_after(page.position).await;
            }
            None if left > RIGHTS_CHECK_EVERY => {}
            Some(WaitEnd::Closed) | None => break,
        }
    }
    page.position = page.position.max(wait.position());
    Ok(page)
}
