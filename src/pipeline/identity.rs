//! Authentication and authorization: steps 4 and 5 of the order of checks, and both again after a wait.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Method;

use super::context::{App, CallerIdentity, RequestContext, RequestFacts};
use super::rate_limit;
use super::streaming::StreamRights;
use crate::admission::MemoryReservation;
use crate::auth::{self, CallerStatus, Identification, IdentifiedCaller};
use crate::intent::{RequestVerb, Route, RouteError, RouteTarget};
use crate::model::{GrantVerb, RealmIndex};
use crate::permit::{self, AccessDenied, Caller};
use crate::store::StoreError;
use crate::wire::{ReadPurpose, RequestBody};
use crate::{clock, fault, problem};

/// The effect that a cross-site navigation to this route would have.
pub(super) fn cross_site_purpose(route: &Route) -> ReadPurpose {
    if matches!(route.target, RouteTarget::Logout(_)) {
        ReadPurpose::Logout
    } else {
        ReadPurpose::Read
    }
}

/// Step 4: authenticates the caller. Returns the body, where the credentials cover it (Digest `auth-int`)
/// and it had to be read for that.
pub(super) async fn identify(
    request: &RequestContext<'_>,
    route: &Route,
    body: (&mut RequestBody, &MemoryReservation<'_>),
    facts: &mut RequestFacts,
) -> Result<Option<Bytes>, RouteError> {
    let auth = &request.app.shared.auth;
    let credentials = request.auth_request(realm(request, route));
    if matches!(
        (route.verb, &route.target),
        (RequestVerb::Get | RequestVerb::Head, RouteTarget::Logout(_))
    ) {
        return Err(request.auth_problem(Box::pin(auth.log_out(&credentials)).await));
    }
    let mut learn = |known| {
        facts.identity = Some(CallerIdentity { known, rights_checked_at: request.now });
    };
    if permit::is_public(route) {
        learn(auth.anonymous());
        return Ok(None);
    }
    let stop = |error| request.auth_problem(error);
    match auth.identify(&credentials, None).await.map_err(stop)? {
        Identification::Known(known) => {
            learn(known);
            Ok(None)
        }
        Identification::NeedsBody => {
            // The caller is not authenticated yet, so a list of new items is limited to the size of one
            // item.
            let bytes_max = request.app.shared.model.server.limits.body_bytes_max;
            let bytes = request.read_body(body, bytes_max).await?;
            // Reading the body may have taken long, and users may have changed meanwhile.
            let credentials = auth::AuthRequest { now: clock::now(), ..credentials };
            match auth.identify(&credentials, Some(&bytes)).await.map_err(stop)? {
                Identification::Known(known) => learn(known),
                Identification::NeedsBody => fault::bug("the body was passed"),
            }
            Ok(Some(bytes))
        }
    }
}

/// Step 5: authorizes the caller and counts the request. An anonymous caller whose role does not grant the
/// request gets 401 with a challenge, or 403 where the realm could only offer Basic in clear text.
pub(super) async fn permit(
    request: &RequestContext<'_>,
    route: &Route,
    facts: &mut RequestFacts,
) -> Result<(), RouteError> {
    let caller = facts.identity().known.caller.clone();
    if caller.is_authenticated() {
        rate_limit::count_request(request, &caller, facts)?;
    }
    match permit::check(&caller, route) {
        Ok(()) => {
            if !caller.is_authenticated() && !permit::is_public(route) {
                rate_limit::count_request(request, &caller, facts)?;
            }
            Ok(())
        }
        Err(AccessDenied::Unauthenticated) => {
            let credentials = request.auth_request(realm(request, route));
            let auth = &request.app.shared.auth;
            let stop = auth.unauthorized(&credentials, &problem::CREDENTIALS_NEEDED);
            Err(request.auth_problem(Box::pin(stop).await))
        }
        Err(denied @ AccessDenied::NotGranted) => Err(denied.problem().into()),
    }
}

/// The realm that a route is in.
pub(super) fn realm(request: &RequestContext<'_>, route: &Route) -> RealmIndex {
    let model = &request.app.shared.model;
    match (&route.target, route.resource()) {
        (RouteTarget::Logout(realm), _) => *realm,
        (_, Some(resource)) => model.resource(resource).realm,
        (_, None) => model.server_realm(),
    }
}

/// Repeats steps 4 and 5, where reading the body took longer than the lease on the rights. A caller whose
/// rights have changed continues with the new ones, if these still permit the request.
pub(super) async fn confirm_rights<'f>(
    request: &RequestContext<'_>,
    route: &Route,
    now: Instant,
    facts: &'f mut RequestFacts,
) -> Result<&'f Caller, RouteError> {
    if !is_within_lease(facts, now)
        && let Some(renewed) = Box::pin(recheck_rights(request, facts)).await?
    {
        permit::check(&renewed.caller, route).map_err(AccessDenied::problem)?;
        facts.identity().known.renew(renewed);
    }
    Ok(&facts.identity().known.caller)
}

/// After the store: if it took longer than the lease, the rights must be unchanged, since the result of the
/// read or the refusal depends on them.
pub(super) async fn require_unchanged_rights(
    request: &RequestContext<'_>,
    now: Instant,
    facts: &mut RequestFacts,
) -> Result<(), RouteError> {
    if is_within_lease(facts, now) {
        return Ok(());
    }
    Box::pin(refuse_changed_rights(request, facts)).await
}

/// Answers 401 or 403 if the caller may no longer do what they requested, and 503 if they may do it with
/// different rights now.
pub(super) async fn refuse_changed_rights(
    request: &RequestContext<'_>,
    facts: &mut RequestFacts,
) -> Result<(), RouteError> {
    let Some(renewed) = recheck_rights(request, facts).await? else { return Ok(()) };
    let target = facts.resource.zip(grant_verb(&request.parts.method));
    let is_denied = |(resource, verb)| renewed.caller.rights().access(resource, verb).is_none();
    if target.is_some_and(is_denied) {
        return Err(AccessDenied::NotGranted.problem().into());
    }
    Err(request.store_problem(StoreError::RightsChanged).into())
}

fn grant_verb(method: &Method) -> Option<GrantVerb> {
    match *method {
        Method::GET | Method::HEAD => Some(GrantVerb::Get),
        Method::POST => Some(GrantVerb::Post),
        Method::PUT => Some(GrantVerb::Put),
        Method::PATCH => Some(GrantVerb::Patch),
        Method::DELETE => Some(GrantVerb::Delete),
        _ => None,
    }
}

fn is_within_lease(facts: &mut RequestFacts, now: Instant) -> bool {
    now < facts.identity().rights_checked_at + auth::LEASE
}

/// The caller with fresh rights, if these have changed; 401 if the user no longer exists.
async fn recheck_rights(
    request: &RequestContext<'_>,
    facts: &mut RequestFacts,
) -> Result<Option<IdentifiedCaller>, RouteError> {
    let App { shared, store, .. } = request.app;
    let now = clock::now();
    let status = shared.auth.caller_status(store, &facts.identity().known).await;
    let renewed = match status.map_err(|error| request.store_problem(error))? {
        CallerStatus::Unchanged => None,
        CallerStatus::Changed(renewed) => Some(renewed),
        CallerStatus::Gone => {
            let realm = match facts.resource {
                Some(resource) => shared.model.resource(resource).realm,
                None => shared.model.server_realm(),
            };
            let credentials = request.auth_request(realm);
            let stop = shared.auth.unauthorized(&credentials, &problem::CREDENTIALS_WRONG).await;
            return Err(request.auth_problem(stop));
        }
    };
    facts.identity().rights_checked_at = now;
    Ok(renewed)
}

/// Ends the streams whose callers no longer have the rights that they began with.
pub async fn end_revoked(app: &App, streams: Vec<Arc<StreamRights>>) {
    let (auth, store) = (&app.shared.auth, &app.store);
    // If the read fails, the next sweep retries.
    if auth.renew_lease(store).await.is_err() {
        return;
    }
    for stream in streams {
        match auth.caller_status(store, &stream.known).await {
            Ok(CallerStatus::Unchanged) | Err(_) => {}
            Ok(CallerStatus::Changed(_) | CallerStatus::Gone) => stream.revoke(),
        }
    }
}
