//! Fuzz target: a method, a space and a request target, as routing and the query parser see it.
//!
//! Properties: no panic; a route has one path, which leads back to it; a redirect leads to a path that does
//! not redirect; a page size is within its limits; decoding and encoding a cursor returns the same cursor.

use http::{Method, Uri};

use super::MODELS;
use crate::intent::{self, Intent, PathForm, Route, RouteError, RouteTarget, cursor};
use crate::model::Model;
use crate::permit::Caller;
use crate::plan::{self, ChangeAuthor};

pub fn target(data: &[u8]) {
    let Ok(line) = str::from_utf8(data) else { return };
    let Some((method, target)) = line.split_once(' ') else { return };
    let (Ok(method), Ok(target)) = (Method::from_bytes(method.as_bytes()), Uri::try_from(target))
    else {
        return;
    };
    for model in MODELS.iter() {
        follow(model, &method, target.path(), target.query());
    }
}

fn follow(model: &Model, method: &Method, path: &str, query: Option<&str>) {
    match intent::route(model, method, path, query) {
        Ok(route) => {
            check_path_round_trip(model, method, &route);
            check_query(model, route, query);
        }
        Err(RouteError::Redirect(to)) => {
            let (to, _) = to.split_once('?').unwrap_or((&to, ""));
            assert!(to.len() < path.len(), "{path} moved to {to}");
            let there = intent::route(model, method, to, query);
            assert!(!matches!(there, Err(RouteError::Redirect(_))), "{path} to {to} to {there:?}");
        }
        Err(RouteError::Problem(problem)) => {
            assert!(problem.kind().status.is_client_error() || problem.kind().status == 501);
        }
    }
}

fn check_path_round_trip(model: &Model, method: &Method, route: &Route) {
    let (RouteTarget::Collection(address) | RouteTarget::Item(address)) = &route.target else {
        return;
    };
    let Some(ids) = &address.ids else { return };
    let resource = model.resource(address.resource);
    let path = match address.form {
        PathForm::Nested => {
            Some(intent::format_path(model, address.resource, &ids.ancestors, ids.item))
        }
        PathForm::Flat => intent::format_flat_path(model, resource, ids.item),
    };
    let path = path.unwrap_or_default();
    let again = intent::route(model, method, &path, None);
    assert!(again.as_ref().is_ok_and(|again| again == route), "{path}: {again:?} {route:?}");
}

fn check_query(model: &Model, route: Route, query: Option<&str>) {
    let by = || ChangeAuthor::without_user("-", "-");
    // Errors in the query and the body are problems; everything else is a plan.
    let Ok(intent) = intent::read(model, route, (query, &intent::AllReadable), b"{}") else {
        return;
    };
    if let Intent::List(address, span) = &intent {
        assert!((1..=model.server.limits.page_items_max).contains(&span.limit), "{span:?}");
        if let (Some(after), Some(list)) = (&span.after, address.collection_path(model)) {
            let resource = model.resource(address.resource);
            let sealed = cursor::encode(after, span.list_hash(&list, resource));
            assert!(
                query.is_some_and(|query| query_values(query).any(|text| text == sealed)),
                "{sealed}"
            );
        }
    }
    let _ = plan::make(model, intent, &Caller::open(model), by);
}

/// Every value of the query, decoded in the simplest way.
fn query_values(query: &str) -> impl Iterator<Item = String> {
    query.split('&').filter_map(|pair| {
        let (_, value) = pair.split_once('=')?;
        let mut decoded = Vec::new();
        let mut bytes = value.bytes();
        while let Some(byte) = bytes.next() {
            decoded.push(match byte {
                b'+' => b' ',
                b'%' => {
                    let digits = [bytes.next()?, bytes.next()?];
                    u8::from_str_radix(str::from_utf8(&digits).ok()?, 16).ok()?
                }
                byte => byte,
            });
        }
        String::from_utf8(decoded).ok()
    })
}
