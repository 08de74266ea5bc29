//! Pages: the page in place of the JSON of a reply, and the reads beside that reply which a page needs.
//!
//! Each of these reads is a GET that the same caller could send: it is routed, authorized and planned like one,
//! so that a page shows nothing that its reader cannot read otherwise. A read that fails leaves its part of the
//! page out.

use std::sync::Arc;

use bytes::Bytes;
use http::Method;

use super::context::{RequestContext, RequestFacts, SharedState, run_blocking, too_many_responses};
use super::identity::{self, ChangedRights};
use super::streaming::ResponseBody;
use super::write;
use crate::clock;
use crate::fault::bug;
use crate::formats::{self, accept, json};
use crate::intent::preconditions::Preconditions;
use crate::intent::{self, RouteError, RouteTarget};
use crate::log::StageTimes;
use crate::model::RealmIndex;
use crate::openapi::Viewer;
use crate::pages::{self, PageContext, PageData, RelatedReply};
use crate::permit::{self, Caller};
use crate::plan::{self, ChangesRead, Outcome, Plan, ReadPlan};
use crate::problem::Problem;
use crate::reply::{self, Reply, ResponseContext};
use crate::store::StoreError;
use crate::wire;

/// Rendering this much JSON would block the event loop for noticeably long.
const BLOCKING_PAGE_BYTES_MIN: usize = 64 << 10;

/// A page is at most this many times as long as the JSON that it is made from.
const PAGE_GROWTH_MAX: usize = 8;

/// A larger reply is left out of the page that it is read for.
const RELATED_BYTES_MAX: usize = 256 << 10;

/// A page whose reply is not read yet.
pub(super) struct PageStart {
    target: RouteTarget,
    /// A position that the change log had before the reads of the page; `None` if the page follows no changes.
    position: Option<i64>,
}

/// Begins the page of a target, before its reply is read.
pub(super) async fn begin(request: &RequestContext<'_>, target: RouteTarget) -> PageStart {
    let (model, parts) = (&request.app.shared.model, request.parts);
    let is_read = matches!(parts.method, Method::GET | Method::HEAD);
    let mut position = None;
    if is_read && pages::can_follow_changes(model, (&target, parts.uri.query())) {
        // Without it the page would follow changes from the start of its stream.
        if let Ok(Outcome::LogMarks(marks)) = write::fetch(request, ReadPlan::LogMarks).await {
            position = Some(marks.low_watermark);
        }
    }
    PageStart { target, position }
}

/// Renders a page from the JSON of its reply.
pub(super) async fn render(
    request: &RequestContext<'_>,
    PageStart { target, position }: PageStart,
    reply: Reply<ResponseBody>,
    facts: &mut RequestFacts,
    stages: &mut StageTimes,
) -> Result<Reply<ResponseBody>, RouteError> {
    let Reply { status, headers, body } = reply;
    let ResponseBody::Whole(json) = body else { bug("a reply in JSON is no stream") };
    let reply = Reply { status, headers, body: json.clone() };
    let caller = facts.identity().known.caller.clone();
    // The position that the tag of a list names does not change with every write elsewhere.
    let position = reply::list_position(&reply).or(position);
    let mut data = PageData { position, json, related: Vec::new() };
    let model = &request.app.shared.model;
    let realm = match facts.resource {
        Some(resource) => model.resource(resource).realm,
        None => model.server_realm(),
    };
    let query = request.parts.uri.query();
    for address in pages::related_addresses(model, &caller, (&target, query), &data.json) {
        match read_related(request, (&caller, realm), &address).await {
            Ok(Some(json)) if json.len() <= RELATED_BYTES_MAX => {
                data.related.push(RelatedReply { address, json });
            }
            // The server has no time for the other parts of the page.
            Err(StoreError::Busy | StoreError::TimedOut) => break,
            Ok(_) | Err(_) => {}
        }
    }
    if !data.related.is_empty() {
        stages.mark("store");
        let changed = ChangedRights::Refuse;
        identity::confirm_rights(request, facts, clock::now(), changed).await?;
    }
    let page = render_within_memory(request, &target, caller, data).await?;
    let reply = reply::into_page(reply, page, &request.parts.headers)?;
    match request.app.shared.admission.has_memory_for(reply.body.len()) {
        true => Ok(reply.into()),
        false => Err(too_many_responses().into()),
    }
}

/// Renders on this thread, or on a blocking thread if there is much to render.
async fn render_within_memory(
    request: &RequestContext<'_>,
    target: &RouteTarget,
    caller: Caller,
    data: PageData,
) -> Result<String, Problem> {
    let (origin, uri) = (origin(request), &request.parts.uri);
    let (path, query) = (uri.path().to_owned(), uri.query().map(str::to_owned));
    let (shared, target) = (Arc::clone(&request.app.shared), target.clone());
    let bytes = data.json.len() + data.related.iter().map(|one| one.json.len()).sum::<usize>();
    let reservation = request.app.shared.admission.reserve_memory();
    if bytes >= BLOCKING_PAGE_BYTES_MIN && !reservation.grow(bytes * PAGE_GROWTH_MAX) {
        return Err(too_many_responses());
    }
    let memory = reservation.share();
    let work = move || {
        let _held = memory;
        let model = &shared.model;
        let viewer = Viewer::new(model, &caller);
        let (viewer, query) = (Some(&viewer), query.as_deref());
        let context = PageContext { model, viewer, origin: &origin, path: &path, query };
        pages::render(&context, &target, &data)
    };
    if bytes < BLOCKING_PAGE_BYTES_MIN { Ok(work()) } else { run_blocking(work).await }
}

/// The plan of a GET of this address by the caller; `None` if it is refused. The credentials of the caller were
/// checked for one realm, and admit it to no other.
fn plan_related(
    request: &RequestContext<'_>,
    (caller, realm): (&Caller, RealmIndex),
    address: &str,
) -> Option<Plan> {
    let model = &request.app.shared.model;
    let (path, query) = match address.split_once('?') {
        Some((path, query)) => (path, Some(query)),
        None => (address, None),
    };
    let route = intent::route(model, &Method::GET, path, query).ok()?;
    permit::check(caller, &route).ok()?;
    if identity::realm(request, &route) != realm {
        return None;
    }
    let intent = intent::read(model, route, (query, caller), b"").ok()?;
    plan::make(model, intent, caller, || bug("a GET writes nothing")).ok()
}

/// The reply to a GET of this address by the same caller, in JSON; `None` if it is refused.
async fn read_related(
    request: &RequestContext<'_>,
    caller: (&Caller, RealmIndex),
    address: &str,
) -> Result<Option<Bytes>, StoreError> {
    let SharedState { model, replies, .. } = &*request.app.shared;
    let Some(plan) = plan_related(request, caller, address) else { return Ok(None) };
    let (collection, list) = (plan.collection().cloned(), plan.list().cloned());
    let Plan::Read(read) = plan else { return Ok(None) };
    if let ReadPlan::Changes(read) = read {
        let ChangesRead { scope, query } = *read;
        let kept = ChangesRead { scope: scope.clone(), query: Arc::clone(&query) };
        let read = ReadPlan::Changes(Box::new(ChangesRead { scope, query }));
        let Outcome::Changes(page) = write::fetch(request, read).await? else { return Ok(None) };
        return Ok(Some(reply::changes_page(model, &kept, &page, &json::FORMAT).body));
    }
    let Some(mut collection) = collection else { return Ok(None) };
    let (ancestors, outcome) = write::fetch(request, read).await?.into_located();
    if let Some(ancestors) = ancestors {
        collection.ancestors = ancestors;
    }
    let about = ResponseContext {
        model,
        collection: &collection,
        list: list.as_deref(),
        conditions: &Preconditions::default(),
        format: &json::FORMAT,
    };
    Ok(replies.outcome(&about, &outcome).ok().map(|reply| reply.body))
}

/// The response if this problem ends the request: a page, if the client prefers one.
pub(super) fn problem_reply(
    request: &RequestContext<'_>,
    facts: &RequestFacts,
    problem: &Problem,
) -> Reply {
    if !formats::prefers_page(&request.accept) {
        return request.problem_reply(problem);
    }
    let (shared, uri) = (&request.app.shared, &request.parts.uri);
    let json_only = accept::parse([&b"application/problem+json"[..]]);
    let reply = shared.problem_reply(problem, &json_only, uri.path(), &request.id);
    let caller = facts.identity.as_ref().map(|identity| &identity.known.caller);
    let (origin, model) = (origin(request), &shared.model);
    let viewer = caller.map(|caller| Viewer::new(model, caller));
    let viewer = viewer.as_ref();
    let context =
        PageContext { model, viewer, origin: &origin, path: uri.path(), query: uri.query() };
    let page = pages::render_problem(&context, problem.kind(), &reply.body);
    reply::with_page(reply, page)
}

/// Scheme and host for the command lines that a page shows to the client that asked for it; nothing else is made
/// from the `Host` header.
fn origin(request: &RequestContext<'_>) -> String {
    if let Some(base_url) = &request.app.shared.model.server.base_url {
        return base_url.clone();
    }
    let scheme = if request.sender.is_https == Some(true) { "https" } else { "http" };
    format!("{scheme}://{}", wire::authority(request.parts).unwrap_or("localhost"))
}
