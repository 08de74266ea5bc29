//! Authentication and authorization: steps 4 and 5 of the order of checks.

use std::time::Instant;

use bytes::Bytes;
use http::Method;

use super::{App, Asked, Shared, quota};
use crate::auth::{self, Identity, Known, Standing};
use crate::gate::Room;
use crate::intent::{Place, Route, Stop, Verb};
use crate::permit::{self, Caller, Denied};
use crate::store::StoreError;
use crate::wire::{Body, Purpose};
use crate::{clock, model, reply};

/// The effect that a cross-site navigation to this route would have.
pub(super) fn purpose(route: &Route) -> Purpose {
    if matches!(route.place, Place::Logout(_)) { Purpose::End } else { Purpose::Look }
}

/// Step 4: authenticates the caller. Returns the body, where the credentials cover it (Digest `auth-int`)
/// and it had to be read for that.
pub(super) async fn identify(
    app: &App,
    asked: &Asked<'_>,
    route: &Route,
    body: (&mut Body, &Room<'_>),
) -> Result<Option<Bytes>, Stop> {
    let Shared { auth, .. } = &*app.shared;
    if matches!((route.verb, &route.place), (Verb::Get | Verb::Head, Place::Logout(_))) {
        let request = request(app, asked, route);
        let stop = Box::pin(auth.log_out(&app.store, &request)).await;
        return Err(refused(app, stop));
    }
    if permit::is_open(route) {
        let _ = asked.known.set(auth.nobody());
        return Ok(None);
    }
    let request = request(app, asked, route);
    let stop = |stop| refused(app, stop);
    match auth.identify(&app.store, &request, None).await.map_err(stop)? {
        Identity::Known(known) => {
            let _ = asked.known.set(known);
            Ok(None)
        }
        Identity::WantsBody => {
            // The caller is not authenticated yet, so a list of new items is limited to the size of one
            // item.
            let bytes_max = app.shared.model.server.limits.body_bytes_max;
            let bytes = super::read_body(asked, body, bytes_max).await?;
            // Reading the body may have taken long, and users may have changed meanwhile.
            let request = auth::Request { now: clock::now(), ..request };
            let identity = auth.identify(&app.store, &request, Some(&bytes)).await;
            if let Identity::Known(known) = identity.map_err(stop)? {
                let _ = asked.known.set(known);
            }
            Ok(Some(bytes))
        }
    }
}

/// Step 5: authorizes the caller and counts the request. An anonymous caller without the grant is
/// challenged.
pub(super) async fn permit(app: &App, asked: &Asked<'_>, route: &Route) -> Result<(), Stop> {
    let Shared { auth, .. } = &*app.shared;
    let caller = &asked.known.get_or_init(|| auth.nobody()).caller;
    if caller.is_proved() {
        quota::count(app, asked, caller)?;
    }
    match permit::check(caller, route) {
        Ok(()) => {
            if !caller.is_proved() && !permit::is_open(route) {
                quota::count(app, asked, caller)?;
            }
            Ok(())
        }
        Err(Denied::Unproved) => {
            let request = request(app, asked, route);
            let stop = Box::pin(auth.ask_for_credentials(&app.store, &request)).await;
            Err(refused(app, stop))
        }
        Err(denied @ Denied::NotGranted) => Err(denied.problem().into()),
    }
}

/// Repeats steps 4 and 5, where reading the body took longer than the lease on the rights. A caller whose
/// rights have changed goes on with the new ones, if these still permit the request.
pub(super) async fn confirm<'a>(
    app: &App,
    asked: &'a Asked<'_>,
    route: &Route,
    now: Instant,
) -> Result<&'a Caller, Stop> {
    if is_recent(asked, now) {
        let known = asked.known.get_or_init(|| app.shared.auth.nobody());
        return Ok(&known.caller);
    }
    Box::pin(confirm_later(app, asked, route)).await
}

async fn confirm_later<'a>(
    app: &App,
    asked: &'a Asked<'_>,
    route: &Route,
) -> Result<&'a Caller, Stop> {
    let known = asked.known.get_or_init(|| app.shared.auth.nobody());
    match look_again(app, asked, known).await? {
        None => Ok(&known.caller),
        Some(renewed) => {
            permit::check(&renewed.caller, route).map_err(Denied::problem)?;
            Ok(&asked.renewed.get_or_init(|| renewed).caller)
        }
    }
}

/// After the store: where it took longer than the lease, the rights must be unchanged, since what was read
/// or refused depends on them.
pub(super) async fn require_unchanged(
    app: &App,
    asked: &Asked<'_>,
    now: Instant,
) -> Result<(), Stop> {
    if is_recent(asked, now) { Ok(()) } else { Box::pin(refuse_changed(app, asked)).await }
}

/// Answers 401 or 403 if the caller may no longer do what they requested, and 503 if they may do it with
/// different rights now.
pub(super) async fn refuse_changed(app: &App, asked: &Asked<'_>) -> Result<(), Stop> {
    let Some(known) = asked.known() else { return Ok(()) };
    let Some(renewed) = look_again(app, asked, known).await? else { return Ok(()) };
    let verb = granted_verb(&asked.parts.method);
    let is_granted =
        asked.resource.get().zip(verb).is_none_or(|(resource, verb)| {
            renewed.caller.rights().access(resource, verb).is_some()
        });
    if !is_granted {
        return Err(Denied::NotGranted.problem().into());
    }
    Err(reply::failure(&app.shared.model, None, StoreError::RightsChanged).into())
}

fn granted_verb(method: &Method) -> Option<model::Verb> {
    match *method {
        Method::GET | Method::HEAD => Some(model::Verb::Get),
        Method::POST => Some(model::Verb::Post),
        Method::PUT => Some(model::Verb::Put),
        Method::PATCH => Some(model::Verb::Patch),
        Method::DELETE => Some(model::Verb::Delete),
        _ => None,
    }
}

fn is_recent(asked: &Asked<'_>, now: Instant) -> bool {
    now < asked.checked.get() + auth::LEASE
}

/// The caller with fresh rights, if these have changed; 401 where the user is gone.
async fn look_again(app: &App, asked: &Asked<'_>, known: &Known) -> Result<Option<Known>, Stop> {
    let Shared { auth, model, .. } = &*app.shared;
    let now = clock::now();
    let standing = auth.standing(&app.store, known).await;
    match standing.map_err(|error| reply::failure(model, None, error))? {
        Standing::Same => {
            asked.checked.set(now);
            Ok(None)
        }
        Standing::Changed(renewed) => {
            asked.checked.set(now);
            Ok(Some(renewed))
        }
        Standing::Gone => {
            let resource = asked.resource.get();
            let realm =
                resource.map_or(model.server_realm(), |resource| model.resource(resource).realm);
            let request = request_at(asked, realm);
            Err(refused(app, auth.turn_away(&app.store, &request).await))
        }
    }
}

pub(super) fn request<'a>(app: &App, asked: &'a Asked<'_>, route: &Route) -> auth::Request<'a> {
    let model = &app.shared.model;
    let realm = match (&route.place, route.resource()) {
        (Place::Logout(realm), _) => *realm,
        (_, Some(resource)) => model.resource(resource).realm,
        (_, None) => model.server_realm(),
    };
    request_at(asked, realm)
}

fn request_at<'a>(asked: &'a Asked<'_>, realm: usize) -> auth::Request<'a> {
    auth::Request {
        parts: asked.parts,
        id: asked.id.as_str(),
        realm,
        address: asked.sender.address,
        is_private: asked.sender.is_private(),
        now: asked.now,
    }
}

fn refused(app: &App, stop: auth::Stop) -> Stop {
    match stop {
        auth::Stop::Problem(problem) => problem.into(),
        auth::Stop::Store(error) => reply::failure(&app.shared.model, None, error).into(),
    }
}
