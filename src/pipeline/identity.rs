//! Authentication and authorization: steps 4 and 5 of the order of checks, and both again after a wait.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Method;

use super::context::{App, CallerIdentity, RequestContext, RequestFacts};
use super::rate_limit;
use super::streaming::StreamRights;
use crate::admission::MemoryReservation;
use crate::auth::{self, CallerStatus, Identification};
use crate::intent::{LOGIN_QUERY, RequestVerb, Route, RouteError, RouteTarget};
use crate::model::{GrantVerb, RealmIndex};
use crate::permit::{self, AccessDenied, Caller};
use crate::problem::{self, Problem};
use crate::store::StoreError;
use crate::wire::{ReadPurpose, RequestBody};
use crate::{clock, fault};

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
        Ok(()) if is_login(request, route) && !caller.is_authenticated() && !caller.is_open() => {
            Err(challenge(request, route).await)
        }
        Ok(()) => {
            if !caller.is_authenticated() && !permit::is_public(route) {
                rate_limit::count_request(request, &caller, facts)?;
            }
            Ok(())
        }
        Err(AccessDenied::Unauthenticated) => Err(challenge(request, route).await),
        Err(denied @ AccessDenied::NotGranted) => Err(denied.problem().into()),
    }
}

/// Whether a visitor asked to log in.
fn is_login(request: &RequestContext<'_>, route: &Route) -> bool {
    matches!(route.target, RouteTarget::Home) && request.parts.uri.query() == Some(LOGIN_QUERY)
}

async fn challenge(request: &RequestContext<'_>, route: &Route) -> RouteError {
    let credentials = request.auth_request(realm(request, route));
    let stop = request.app.shared.auth.unauthorized(&credentials, &problem::CREDENTIALS_NEEDED);
    request.auth_problem(Box::pin(stop).await)
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

/// How a request continues when its caller's rights have changed since they were checked.
#[derive(Clone, Copy)]
pub(super) enum ChangedRights<'a> {
    /// Before the plan: it continues with the new rights, if these still permit the request.
    Adopt(&'a Route),
    /// After the store: its result depended on the old rights, so it is refused.
    Refuse,
}

/// Repeats steps 4 and 5, where the last check of the rights is older than their lease.
pub(super) async fn confirm_rights(
    request: &RequestContext<'_>,
    facts: &mut RequestFacts,
    now: Instant,
    changed: ChangedRights<'_>,
) -> Result<(), RouteError> {
    if now < facts.identity().rights_checked_at + auth::LEASE {
        return Ok(());
    }
    Box::pin(recheck_rights(request, facts, changed)).await
}

/// Repeats steps 4 and 5: 401 if the user no longer exists.
pub(super) async fn recheck_rights(
    request: &RequestContext<'_>,
    facts: &mut RequestFacts,
    changed: ChangedRights<'_>,
) -> Result<(), RouteError> {
    let App { shared, store, .. } = request.app;
    let now = clock::now();
    let status = shared.auth.caller_status(store, &facts.identity().known).await;
    match (status.map_err(|error| request.store_problem(error))?, changed) {
        (CallerStatus::Unchanged, _) => {}
        (CallerStatus::Changed(renewed), ChangedRights::Adopt(route)) => {
            permit::check(&renewed.caller, route).map_err(AccessDenied::problem)?;
            facts.identity().known.renew(renewed);
        }
        (CallerStatus::Changed(renewed), ChangedRights::Refuse) => {
            return Err(refuse_changed_rights(request, facts, &renewed.caller).into());
        }
        (CallerStatus::Gone, _) => {
            let realm = match facts.resource {
                Some(resource) => shared.model.resource(resource).realm,
                None => shared.model.server_realm(),
            };
            let credentials = request.auth_request(realm);
            let stop = shared.auth.unauthorized(&credentials, &problem::CREDENTIALS_WRONG).await;
            return Err(request.auth_problem(stop));
        }
    }
    facts.identity().rights_checked_at = now;
    Ok(())
}

/// 403 if the caller may no longer do what they requested, and 503 if they may do it with different rights
/// now.
fn refuse_changed_rights(
    request: &RequestContext<'_>,
    facts: &RequestFacts,
    caller: &Caller,
) -> Problem {
    let verb = match request.parts.method {
        Method::GET | Method::HEAD => Some(GrantVerb::Get),
        Method::POST => Some(GrantVerb::Post),
        Method::PUT => Some(GrantVerb::Put),
        Method::PATCH => Some(GrantVerb::Patch),
        Method::DELETE => Some(GrantVerb::Delete),
        _ => None,
    };
    let is_denied = |(resource, verb)| caller.rights().access(resource, verb).is_none();
    if facts.resource.zip(verb).is_some_and(is_denied) {
        return AccessDenied::NotGranted.problem();
    }
    request.store_problem(StoreError::RightsChanged)
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
