//! `/-/changes`: a page of the change log.

use std::sync::Arc;

use super::context::{RequestContext, RequestFacts, run_blocking, too_many_responses};
use super::identity::{self, ChangedRights};
use super::write;
use crate::fault::bug;
use crate::formats::Format;
use crate::intent::RouteError;
use crate::intent::preconditions::{PreconditionResult, Preconditions};
use crate::log::StageTimes;
use crate::plan::{ChangesRead, Outcome, ReadPlan};
use crate::problem::{self, Problem};
use crate::reply::{self, Reply};

/// Answers a request for a page. The log has no validators, because every page may be different.
pub(super) async fn answer(
    request: &RequestContext<'_>,
    read: ChangesRead,
    (format, conditions): (&'static Format, &Preconditions),
    facts: &mut RequestFacts,
    stages: &mut StageTimes,
) -> Result<Reply, RouteError> {
    let shared = &request.app.shared;
    let again = ChangesRead { scope: read.scope.clone(), query: Arc::clone(&read.query) };
    let done = write::fetch(request, ReadPlan::Changes(Box::new(again))).await;
    stages.mark("store");
    identity::confirm_rights(request, facts, stages.now(), ChangedRights::Refuse).await?;
    let outcome = done.map_err(|error| reply::failure(&shared.model, None, error))?;
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
