//! Authentication and authorization: steps 4 and 5 of the order of checks.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use http::Method;

use super::context::{App, RequestContext, SharedState, read_body};
use super::rate_limit;
use super::streaming::StreamRights;
use crate::admission::MemoryReservation;
use crate::auth::{self, CallerStatus, Identification, IdentifiedCaller};
use crate::intent::{RequestVerb, Route, RouteError, RouteTarget};
use crate::model::RealmIndex;
use crate::permit::{self, AccessDenied, Caller};
use crate::problem;
use crate::store::StoreError;
use crate::wire::{ReadPurpose, RequestBody};
use crate::{clock, fault, model, reply};

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
    app: &App,
    asked: &RequestContext<'_>,
    route: &Route,
    body: (&mut RequestBody, &MemoryReservation<'_>),
) -> Result<Option<Bytes>, RouteError> {
    let SharedState { auth, .. } = &*app.shared;
    if matches!(
        (route.verb, &route.target),
        (RequestVerb::Get | RequestVerb::Head, RouteTarget::Logout(_))
    ) {
        let request = auth_request(app, asked, route);
        let stop = Box::pin(auth.log_out(&request)).await;
        return Err(auth_error_to_stop(app, stop));
    }
    if permit::is_public(route) {
        let _ = asked.identified.set(auth.anonymous());
        return Ok(None);
    }
    let request = auth_request(app, asked, route);
    let stop = |stop| auth_error_to_stop(app, stop);
    match auth.identify(&request, None).await.map_err(stop)? {
        Identification::Known(known) => {
            let _ = asked.identified.set(known);
            Ok(None)
        }
        Identification::NeedsBody => {
            // The caller is not authenticated yet, so a list of new items is limited to the size of one
            // item.
            let bytes_max = app.shared.model.server.limits.body_bytes_max;
            let bytes = read_body(asked, body, bytes_max).await?;
            // Reading the body may have taken long, and users may have changed meanwhile.
            let request = auth::AuthRequest { now: clock::now(), ..request };
            let identity = auth.identify(&request, Some(&bytes)).await;
            match identity.map_err(stop)? {
                Identification::Known(known) => {
                    let _ = asked.identified.set(known);
                }
                Identification::NeedsBody => fault::bug("the body was passed"),
            }
            Ok(Some(bytes))
        }
    }
}

/// Step 5: authorizes the caller and counts the request. An anonymous caller whose role does not grant the
/// request gets 401 with a challenge, or 403 where the realm could only offer Basic in clear text.
pub(super) async fn permit(
    app: &App,
    asked: &RequestContext<'_>,
    route: &Route,
) -> Result<(), RouteError> {
    let SharedState { auth, .. } = &*app.shared;
    let caller = &asked.identified.get_or_init(|| auth.anonymous()).caller;
    if caller.is_authenticated() {
        rate_limit::count_request(app, asked, caller)?;
    }
    match permit::check(caller, route) {
        Ok(()) => {
            if !caller.is_authenticated() && !permit::is_public(route) {
                rate_limit::count_request(app, asked, caller)?;
            }
            Ok(())
        }
        Err(AccessDenied::Unauthenticated) => {
            let request = auth_request(app, asked, route);
            let stop = Box::pin(auth.unauthorized(&request, &problem::CREDENTIALS_NEEDED)).await;
            Err(auth_error_to_stop(app, stop))
        }
        Err(denied @ AccessDenied::NotGranted) => Err(denied.problem().into()),
    }
}

/// Repeats steps 4 and 5, where reading the body took longer than the lease on the rights. A caller whose
/// rights have changed continues with the new ones, if these still permit the request.
pub(super) async fn confirm_rights<'a>(
    app: &App,
    asked: &'a RequestContext<'_>,
    route: &Route,
    now: Instant,
) -> Result<&'a Caller, RouteError> {
    if is_within_lease(asked, now) {
        let known = asked.identified.get_or_init(|| app.shared.auth.anonymous());
        return Ok(&known.caller);
    }
    Box::pin(confirm_rights_after_lease(app, asked, route)).await
}

async fn confirm_rights_after_lease<'a>(
    app: &App,
    asked: &'a RequestContext<'_>,
    route: &Route,
) -> Result<&'a Caller, RouteError> {
    let known = asked.identified.get_or_init(|| app.shared.auth.anonymous());
    match recheck_rights(app, asked, known).await? {
        None => Ok(&known.caller),
        Some(renewed) => {
            permit::check(&renewed.caller, route).map_err(AccessDenied::problem)?;
            Ok(&asked.refreshed.get_or_init(|| renewed).caller)
        }
    }
}

/// After the store: if it took longer than the lease, the rights must be unchanged, since the result of the
/// read or the refusal depends on them.
pub(super) async fn require_unchanged_rights(
    app: &App,
    asked: &RequestContext<'_>,
    now: Instant,
) -> Result<(), RouteError> {
    if is_within_lease(asked, now) {
        Ok(())
    } else {
        Box::pin(refuse_changed_rights(app, asked)).await
    }
}

/// Answers 401 or 403 if the caller may no longer do what they requested, and 503 if they may do it with
/// different rights now.
pub(super) async fn refuse_changed_rights(
    app: &App,
    asked: &RequestContext<'_>,
) -> Result<(), RouteError> {
    let Some(known) = asked.latest_identified() else { return Ok(()) };
    let Some(renewed) = recheck_rights(app, asked, known).await? else { return Ok(()) };
    let verb = model_verb(&asked.parts.method);
    let is_granted =
        asked.resource.get().zip(verb).is_none_or(|(resource, verb)| {
            renewed.caller.rights().access(resource, verb).is_some()
        });
    if !is_granted {
        return Err(AccessDenied::NotGranted.problem().into());
    }
    Err(reply::failure(&app.shared.model, None, StoreError::RightsChanged).into())
}

fn model_verb(method: &Method) -> Option<model::GrantVerb> {
    match *method {
        Method::GET | Method::HEAD => Some(model::GrantVerb::Get),
        Method::POST => Some(model::GrantVerb::Post),
        Method::PUT => Some(model::GrantVerb::Put),
        Method::PATCH => Some(model::GrantVerb::Patch),
        Method::DELETE => Some(model::GrantVerb::Delete),
        _ => None,
    }
}

fn is_within_lease(asked: &RequestContext<'_>, now: Instant) -> bool {
    now < asked.rights_checked_at.get() + auth::LEASE
}

/// The caller with fresh rights, if these have changed; 401 if the user no longer exists.
async fn recheck_rights(
    app: &App,
    asked: &RequestContext<'_>,
    known: &IdentifiedCaller,
) -> Result<Option<IdentifiedCaller>, RouteError> {
    let SharedState { auth, model, .. } = &*app.shared;
    let now = clock::now();
    let standing = auth.caller_status(&app.store, known).await;
    match standing.map_err(|error| reply::failure(model, None, error))? {
        CallerStatus::Unchanged => {
            asked.rights_checked_at.set(now);
            Ok(None)
        }
        CallerStatus::Changed(renewed) => {
            asked.rights_checked_at.set(now);
            Ok(Some(renewed))
        }
        CallerStatus::Gone => {
            let resource = asked.resource.get();
            let realm =
                resource.map_or(model.server_realm(), |resource| model.resource(resource).realm);
            let request = auth_request_in_realm(app, asked, realm);
            Err(auth_error_to_stop(
                app,
                auth.unauthorized(&request, &problem::CREDENTIALS_WRONG).await,
            ))
        }
    }
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

pub(super) fn auth_request<'a>(
    app: &'a App,
    asked: &'a RequestContext<'_>,
    route: &Route,
) -> auth::AuthRequest<'a> {
    let model = &app.shared.model;
    let realm = match (&route.target, route.resource()) {
        (RouteTarget::Logout(realm), _) => *realm,
        (_, Some(resource)) => model.resource(resource).realm,
        (_, None) => model.server_realm(),
    };
    auth_request_in_realm(app, asked, realm)
}

fn auth_request_in_realm<'a>(
    app: &'a App,
    asked: &'a RequestContext<'_>,
    realm: RealmIndex,
) -> auth::AuthRequest<'a> {
    auth::AuthRequest {
        store: &app.store,
        parts: asked.parts,
        id: asked.id.as_str(),
        realm,
        address: asked.sender.address,
        is_private: asked.sender.is_private(),
        now: asked.now,
    }
}

fn auth_error_to_stop(app: &App, stop: auth::AuthError) -> RouteError {
    match stop {
        auth::AuthError::Problem(problem) => problem.into(),
        auth::AuthError::Store(error) => reply::failure(&app.shared.model, None, error).into(),
    }
}
