//! The hints where a nested resource is requested without its parents: in the 404 of `/orders/7/lines`, or of `/orders`
//! where the resource has no flat collection there, and in the 405 of a write to a flat collection.
//!
//! Both are refused before the caller is authenticated. The hint names the parents, so only callers with some grant on all
//! of them get it, and clients cannot enumerate the names of resources; all other callers get a bare 404 or 405. Wrong credentials do not lead to 401 here: they are checked as for any
//! other path, failed logins are counted, and there is no hint.

use super::context::{CallerIdentity, RequestContext, RequestFacts, SharedState};
use crate::auth::Identification;
use crate::formats::json::path_template;
use crate::intent::{self, Route, RouteError};
use crate::model::Resource;
use crate::problem;
use crate::wire::{self, Authority};

/// Step 2 of the order of checks. `whom` is the host that the request names.
pub(super) async fn route(
    request: &RequestContext<'_>,
    whom: Option<&Authority<'_>>,
    facts: &mut RequestFacts,
) -> Result<Route, RouteError> {
    let (method, uri) = (&request.parts.method, &request.parts.uri);
    match intent::route(&request.app.shared.model, method, uri.path(), uri.query()) {
        Ok(route) => Ok(route),
        Err(stop) => Err(Box::pin(add_hint(request, whom, facts, stop)).await),
    }
}

async fn add_hint(
    request: &RequestContext<'_>,
    whom: Option<&Authority<'_>>,
    facts: &mut RequestFacts,
    stop: RouteError,
) -> RouteError {
    let RouteError::Problem(problem) = stop else { return stop };
    let (model, path) = (&request.app.shared.model, request.parts.uri.path());
    let found = if problem.kind() == &problem::NO_SUCH_PATH {
        intent::find_nested_by_plural(model, path).map(|resource| (resource, false))
    } else if problem.kind() == &problem::METHOD_NOT_ALLOWED {
        intent::find_flat(model, path)
    } else {
        None
    };
    let Some((resource, is_item)) = found else { return problem.into() };
    if !passes_origin_checks(request, whom)
        || !has_grants_on_lineage(request, resource, facts).await
    {
        return problem.into();
    }
    let (plural, path) = (&resource.plural, path_template(model, resource));
    let detail = if problem.kind() == &problem::METHOD_NOT_ALLOWED {
        let item = if is_item { format!("/{{{}_id}}", resource.name) } else { String::new() };
        format!("{plural} can only be read here; write to {path}{item}")
    } else {
        match intent::format_flat_path(model, resource, None) {
            Some(flat) => format!("{plural} live at {path}, and are read across parents at {flat}"),
            None => format!("{plural} live at {path}"),
        }
    };
    problem.detail(detail).into()
}

/// Step 3 of the order of checks, which this request has not reached.
fn passes_origin_checks(request: &RequestContext<'_>, whom: Option<&Authority<'_>>) -> bool {
    let SharedState { model, auth, listen_names: listen, .. } = &*request.app.shared;
    let base_url = model.server.base_url.as_deref();
    let is_site = request.visitor.is_declared()
        || wire::check_cross_site(request.parts, base_url, request.sender.is_https).is_ok();
    is_site && (!auth.is_open() || wire::check_host_is_local(request.parts, whom, listen).is_ok())
}

/// Whether the caller has some grant on the resource and on all its ancestors.
async fn has_grants_on_lineage(
    request: &RequestContext<'_>,
    resource: &Resource,
    facts: &mut RequestFacts,
) -> bool {
    let SharedState { model, auth, .. } = &*request.app.shared;
    let credentials = request.auth_request(resource.realm);
    let Ok(Identification::Known(known)) = auth.identify(&credentials, None).await else {
        return false;
    };
    let identity = CallerIdentity { known, rights_checked_at: request.now };
    let rights = facts.identity.insert(identity).known.caller.rights();
    model.lineage(resource.index).iter().all(|level| rights.has_any_grant(level.index))
}
