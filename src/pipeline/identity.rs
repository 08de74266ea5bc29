//! Who is asking, before anything else is done: steps 4 and 5 of the order of checks.

use bytes::Bytes;

use super::{App, Asked, Shared, quota};
use crate::auth::{self, Identity};
use crate::gate::Room;
use crate::intent::{Place, Route, Stop, Verb};
use crate::permit::{self, Caller, Denied};
use crate::wire::{Body, Purpose};
use crate::{clock, reply};

/// What a page of another site would do if it led somebody here.
pub(super) fn purpose(route: &Route) -> Purpose {
    if matches!(route.place, Place::Logout(_)) { Purpose::End } else { Purpose::Look }
}

/// 4: who is asking. The body, where the proof covers it and it had to be read for that.
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
            // Nobody has proved anything yet: a list of new items has to do with what one item may have.
            let bytes_max = app.shared.model.server.limits.body_bytes_max;
            let bytes = super::read_body(asked, body, bytes_max).await?;
            // The body may have taken its time, and users may have changed meanwhile.
            let request = auth::Request { now: clock::now(), ..request };
            let identity = auth.identify(&app.store, &request, Some(&bytes)).await;
            if let Identity::Known(known) = identity.map_err(stop)? {
                let _ = asked.known.set(known);
            }
            Ok(Some(bytes))
        }
    }
}

/// 5: may they, and so often. A caller whom nobody knows is asked who they are.
pub(super) async fn permit<'a>(
    app: &App,
    asked: &'a Asked<'_>,
    route: &Route,
) -> Result<&'a Caller, Stop> {
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
            Ok(caller)
        }
        Err(Denied::Unproved) => {
            let request = request(app, asked, route);
            let stop = Box::pin(auth.ask_for_credentials(&app.store, &request)).await;
            Err(refused(app, stop))
        }
        Err(denied @ Denied::NotGranted) => Err(denied.problem().into()),
    }
}

pub(super) fn request<'a>(app: &App, asked: &'a Asked<'_>, route: &Route) -> auth::Request<'a> {
    let model = &app.shared.model;
    let realm = match (&route.place, route.resource()) {
        (Place::Logout(realm), _) => *realm,
        (_, Some(resource)) => model.resource(resource).realm,
        (_, None) => model.server_realm(),
    };
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
