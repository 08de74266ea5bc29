//! The hint in a 404 for a nested resource that is requested without its parents, such as `/orders`.
//!
//! An unknown path is refused before the caller is authenticated, so that clients cannot enumerate the
//! names of resources. The hint names the parents, so only callers with some grant on all of them get it;
//! all other callers get a bare 404. Wrong credentials do not lead to 401 here: they are checked as for any
//! other path, failed logins are counted, and there is no hint.

use super::context::{App, RequestContext, SharedState};
use super::identity;
use crate::auth::Identification;
use crate::formats::json::path_template;
use crate::intent::{self, RequestVerb, ResourcePath, Route, RouteError, RouteTarget};
use crate::model::Resource;
use crate::problem;
use crate::wire::{self, Authority};

/// Step 2 of the order of checks. `whom` is the host that the request names.
pub(super) async fn route(
    app: &App,
    asked: &RequestContext<'_>,
    whom: Option<&Authority<'_>>,
) -> Result<Route, RouteError> {
    let (method, uri) = (&asked.parts.method, &asked.parts.uri);
    match intent::route(&app.shared.model, method, uri.path(), uri.query()) {
        Ok(route) => Ok(route),
        Err(stop) => Err(Box::pin(add_hint(app, asked, whom, stop)).await),
    }
}

async fn add_hint(
    app: &App,
    asked: &RequestContext<'_>,
    whom: Option<&Authority<'_>>,
    stop: RouteError,
) -> RouteError {
    let model = &app.shared.model;
    let RouteError::Problem(problem) = stop else { return stop };
    if problem.kind() != &problem::NO_SUCH_PATH {
        return problem.into();
    }
    let Some(resource) = intent::find_nested_by_plural(model, asked.parts.uri.path()) else {
        return problem.into();
    };
    if !passes_origin_checks(app, asked, whom) || !has_grants_on_lineage(app, asked, resource).await
    {
        return problem.into();
    }
    let (plural, path) = (&resource.plural, path_template(model, resource));
    problem.detail(format!("{plural} live at {path}")).into()
}

/// Step 3 of the order of checks, which this request has not reached.
fn passes_origin_checks(
    app: &App,
    asked: &RequestContext<'_>,
    whom: Option<&Authority<'_>>,
) -> bool {
    let SharedState { model, auth, listen_names: listen, .. } = &*app.shared;
    let base_url = model.server.base_url.as_deref();
    let is_site = asked.visitor.is_declared()
        || wire::check_cross_site(asked.parts, base_url, asked.sender.is_https).is_ok();
    is_site && (!auth.is_open() || wire::check_host_is_local(asked.parts, whom, listen).is_ok())
}

/// Whether the caller has some grant on the resource and on all its ancestors.
async fn has_grants_on_lineage(app: &App, asked: &RequestContext<'_>, resource: &Resource) -> bool {
    let SharedState { model, auth, .. } = &*app.shared;
    let place = RouteTarget::Collection(ResourcePath { resource: resource.index, ids: None });
    let request =
        identity::auth_request(app, asked, &Route { verb: RequestVerb::Get, target: place });
    let Ok(Identification::Known(known)) = auth.identify(&request, None).await else {
        return false;
    };
    let rights = asked.identified.get_or_init(|| known).caller.rights();
    model.lineage(resource.index).iter().all(|level| rights.has_any_grant(level.index))
}
