//! The problems that an operation can return.
//!
//! Problems of HTTP itself, such as 400 for a malformed request line, are included: any operation can return them.

use super::viewer::Viewer;
use crate::formats::ResponseOffer;
use crate::intent::{PathForm, RequestVerb, Route, RouteTarget};
use crate::model::{AuthScheme, ChangeLogDetail, GrantVerb, OnDelete, Resource};
use crate::permit::{self, Access};
use crate::problem::{self as kinds, ProblemKind};

/// The problems of every operation.
pub const UNIVERSAL: &[&ProblemKind] = &[
    &kinds::BAD_REQUEST,
    &kinds::BAD_HOST,
    &kinds::HTTP_VERSION_NOT_SUPPORTED,
    &kinds::TARGET_TOO_LONG,
    &kinds::HEADERS_TOO_LARGE,
    &kinds::UNKNOWN_TRANSFER_CODING,
    &kinds::EXPECTATION_FAILED,
    &kinds::CROSS_SITE,
    &kinds::TOO_LARGE,
    &kinds::TOO_SLOW,
    &kinds::INTERNAL,
    &kinds::BUSY,
];

/// The problems of a body with an item.
const BODY: &[&ProblemKind] = &[
    &kinds::UNSUPPORTED_CODING,
    &kinds::UNSUPPORTED_TYPE,
    &kinds::BAD_JSON,
    &kinds::BAD_WRAPPER,
    &kinds::INVALID_FIELDS,
];

const IDEMPOTENCY: &[&ProblemKind] =
    &[&kinds::BAD_IDEMPOTENCY_KEY, &kinds::IDEMPOTENCY_KEY_USED, &kinds::REQUEST_UNDER_WAY];

const STREAMS: &[&ProblemKind] =
    &[&kinds::POSITION_GONE, &kinds::POSITION_NOT_REACHED, &kinds::TOO_MANY_STREAMS];

const WRITES: &[&ProblemKind] = &[&kinds::TIMED_OUT, &kinds::UNAVAILABLE, &kinds::OUTCOME_UNKNOWN];

/// All problems of an operation, in the order of the checks.
pub fn problems(viewer: &Viewer<'_>, route: &Route) -> Vec<&'static ProblemKind> {
    let mut found: Vec<&ProblemKind> = UNIVERSAL.to_vec();
    if viewer.caller.is_open() {
        found.push(&kinds::WRONG_HOST);
    } else if !permit::is_public(route) {
        add_authentication(viewer, route, &mut found);
    }
    if viewer.caller.rights().rate_limit.is_some() && !permit::is_public(route) {
        found.push(&kinds::TOO_MANY_REQUESTS);
    }
    if route.response_offer() != ResponseOffer::NoBody {
        found.push(&kinds::NOT_ACCEPTABLE);
    }
    if !permit::is_public(route) {
        found.push(&kinds::BAD_QUERY);
    }
    match &route.target {
        RouteTarget::Collection(path) | RouteTarget::Item(path) => {
            let resource = viewer.model.resource(path.resource);
            let is_item = matches!(route.target, RouteTarget::Item(_));
            if is_item || resource.parent.is_some() && path.form == PathForm::Nested {
                found.extend([&kinds::NOT_FOUND, &kinds::NO_SUCH_PATH]);
            }
            add_resource(viewer, (resource, is_item), route.verb, &mut found);
        }
        RouteTarget::Changes => {
            found.extend(STREAMS);
            found.extend([
                &kinds::BAD_CURSOR,
                &kinds::PRECONDITION_FAILED,
                &kinds::NOT_OBSERVABLE,
                &kinds::TIMED_OUT,
                &kinds::UNAVAILABLE,
            ]);
        }
        RouteTarget::OpenApi => found.push(&kinds::PRECONDITION_FAILED),
        RouteTarget::Docs(None) => found.push(&kinds::PRECONDITION_FAILED),
        RouteTarget::Docs(Some(_)) => {
            found.extend([&kinds::NO_SUCH_PATH, &kinds::PRECONDITION_FAILED]);
        }
        RouteTarget::Schema(_) => found.extend([&kinds::NO_SUCH_PATH, &kinds::PRECONDITION_FAILED]),
        RouteTarget::ProblemPage(_) => found.push(&kinds::NO_SUCH_PATH),
        RouteTarget::Asset(_) => found.extend([&kinds::NO_SUCH_PATH, &kinds::PRECONDITION_FAILED]),
        RouteTarget::Logout(_) => {
            found.extend([&kinds::NO_SUCH_PATH, &kinds::LOGGED_OUT, &kinds::PASSWORD_IN_CLEAR]);
        }
        RouteTarget::Ready => found.extend([&kinds::TIMED_OUT, &kinds::UNAVAILABLE]),
        RouteTarget::Home | RouteTarget::Health | RouteTarget::Metrics | RouteTarget::Server => {}
    }
    kinds::ALL.iter().copied().filter(|kind| found.contains(kind)).collect()
}

fn add_authentication(viewer: &Viewer<'_>, route: &Route, found: &mut Vec<&'static ProblemKind>) {
    found.extend([
        &kinds::CREDENTIALS_NEEDED,
        &kinds::BAD_CREDENTIALS,
        &kinds::CREDENTIALS_WRONG,
        &kinds::TOO_MANY_LOGINS,
        &kinds::FORBIDDEN,
    ]);
    let realm = viewer.model.realm(viewer.realm(&route.target));
    for scheme in &realm.schemes {
        found.push(match scheme {
            AuthScheme::Basic => &kinds::PASSWORD_IN_CLEAR,
            AuthScheme::Digest => &kinds::STALE_NONCE,
        });
    }
}

fn add_resource(
    viewer: &Viewer<'_>,
    (resource, is_item): (&Resource, bool),
    verb: RequestVerb,
    found: &mut Vec<&'static ProblemKind>,
) {
    found.push(&kinds::PRECONDITION_FAILED);
    match verb {
        RequestVerb::Get | RequestVerb::Head | RequestVerb::Watch { .. } | RequestVerb::Query => {
            found.extend(STREAMS);
            found.extend([&kinds::TIMED_OUT, &kinds::UNAVAILABLE]);
            if is_item {
                found.extend([&kinds::NO_HISTORY, &kinds::NO_SUCH_VERSION, &kinds::VERSION_GONE]);
            } else {
                found.push(&kinds::BAD_CURSOR);
            }
            let lineage = viewer.model.lineage(resource.index);
            if resource.is_server_made
                || lineage.iter().any(|level| {
                    level.changes == ChangeLogDetail::Ids && viewer.may_miss_rows(level.index)
                })
            {
                found.push(&kinds::NOT_OBSERVABLE);
            }
        }
        RequestVerb::Post | RequestVerb::PostItems(_) => {
            found.extend(BODY);
            found.extend(IDEMPOTENCY);
            found.push(&kinds::BAD_LINES);
            add_write(viewer, resource, GrantVerb::Post, found);
        }
        RequestVerb::Put => {
            found.extend(BODY);
            found.push(&kinds::PARTIAL_PUT);
            add_write(viewer, resource, GrantVerb::Put, found);
        }
        RequestVerb::Patch(_) => {
            found.extend(BODY);
            found.extend(IDEMPOTENCY);
            found.extend([&kinds::BAD_PATCH, &kinds::PATCH_FAILED]);
            add_write(viewer, resource, GrantVerb::Patch, found);
        }
        RequestVerb::Delete => {
            found.extend(WRITES);
            if resource.require_if_match {
                found.push(&kinds::PRECONDITION_REQUIRED);
            }
            add_removal(viewer, resource, found);
        }
        RequestVerb::Options => {}
    }
}

fn add_write(
    viewer: &Viewer<'_>,
    resource: &Resource,
    verb: GrantVerb,
    found: &mut Vec<&'static ProblemKind>,
) {
    found.extend(WRITES);
    let none = Access::none();
    let access = viewer.access(resource.index, verb).unwrap_or(&none);
    if verb != GrantVerb::Post && resource.require_if_match {
        found.push(&kinds::PRECONDITION_REQUIRED);
    }
    if !access.readonly_or_limited.is_empty() {
        found.push(&kinds::READ_ONLY_FIELD);
    }
    if !access.row_filters.is_empty() {
        found.push(&kinds::OUTSIDE_GRANT);
    }
    if resource.state_field().is_some_and(|(at, _)| !access.hidden.contains(&at)) {
        found.push(&kinds::TRANSITION_NOT_ALLOWED);
        if verb != GrantVerb::Post && !access.barred_transitions.is_empty() {
            found.push(&kinds::TRANSITION_NOT_GRANTED);
        }
    }
    if !resource.unique.is_empty() {
        found.push(&kinds::TAKEN);
    }
    if resource.index == viewer.model.webhooks {
        found.extend([&kinds::TOO_MANY_WEBHOOKS, &kinds::NO_SERVER_KEY]);
    }
    if is_users(viewer, resource) && verb != GrantVerb::Post {
        found.push(&kinds::LAST_ADMIN);
    }
}

fn add_removal(viewer: &Viewer<'_>, resource: &Resource, found: &mut Vec<&'static ProblemKind>) {
    let children = resource.children.iter().map(|child| viewer.model.resource(*child).on_delete);
    let referrers = resource.referrers.iter().map(|referrer| referrer.on_delete);
    for on_delete in children.chain(referrers) {
        match on_delete {
            OnDelete::Restrict => found.push(&kinds::REFERENCED),
            // A child that is deleted too may itself be referenced.
            OnDelete::Cascade => found.extend([&kinds::TOO_MANY_CHILDREN, &kinds::REFERENCED]),
            OnDelete::Clear => found.push(&kinds::TOO_MANY_CHILDREN),
            OnDelete::DeleteLater => {}
        }
    }
    if is_users(viewer, resource) {
        found.push(&kinds::LAST_ADMIN);
    }
}

fn is_users(viewer: &Viewer<'_>, resource: &Resource) -> bool {
    resource.index == viewer.model.users
}
