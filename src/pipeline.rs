//! The request pipeline: one request from its first byte to its last.
//!
//! ```text
//!  wire ──► Intent ──► Plan ══► Outcome ──► Reply ──► wire
//!           asked      decided   done        said
//!                                (only here: I/O, one transaction)
//! ```
//!
//! `answer` is the table of contents of the whole server: read it first. The numbers are the order of
//! checks, the same for every resource and on every backend.

mod context;
mod execute;
mod write;
mod changes;
mod content_coding;
mod export;
mod identity;
#[cfg(test)]
mod grants;
mod parse_and_plan;
mod idempotency;
mod page;
mod path_hint;
mod rate_limit;
mod redirect;
mod respond;
mod streaming;
mod watch;
mod webhook_secrets;

use std::fmt::Display;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;

use http::request::Parts;
use http::{Method, Request, Response, Version};
use hyper::body::Incoming;

pub use self::context::{App, ExchangeObserver, SharedState};
use self::context::{RequestContext, RequestFacts};
use self::execute::{PlannedRequest, ResponseChoice};
use self::identity::ChangedRights;
pub use self::identity::end_revoked;
pub use self::redirect::redirect;
pub use self::respond::add_hsts_to_refusal;
use self::respond::{add_hsts, build_response, log_and_count};
pub use self::streaming::{ResponseBody, StreamAborted, StreamRights, StreamingResponse};
use self::write::BodyReservation;
use crate::box_future::box_future;
use crate::formats::ResponseOffer;
use crate::intent::{RequestVerb, Route, RouteError};
use crate::log::{Level, StageTimes};
use crate::problem::{self, Problem};
use crate::reply::Reply;
use crate::wire::{
    self, Authority, ConnectionReuse, CorsOrigin, PeerConnection, RequestBody, RequestId, Sender,
};
use crate::{fault, formats, intent, reply};

/// Runs all stages of one request; `facts` holds what they learn about it.
async fn answer(
    request: &RequestContext<'_>,
    body: &mut RequestBody,
    facts: &mut RequestFacts,
    stages: &mut StageTimes,
) -> Result<Reply<ResponseBody>, RouteError> {
    let SharedState { model, admission, .. } = &*request.app.shared;
    let (parts, limits) = (request.parts, &model.server.limits);

    // 1  is it well-formed HTTP?                          400 414 417 431 501
    let whom = wire::check_head(parts, limits)?;
    //    is it a CORS preflight?                          204
    if request.visitor.is_preflight(parts) {
        let methods = intent::preflight_methods(model, parts.uri.path());
        return Ok(reply::no_content(wire::preflight_headers(methods)).into());
    }
    // 2  routing: is there such a path and method?        501 404 308 405
    let route = path_hint::route(request, whom.as_ref(), facts).await?;
    facts.resource = route.resource();
    // 3  is it same-site (fetch metadata), and for us?    403 421
    check_site(request, &route, whom.as_ref())?;
    // 4  authentication: who is the caller?               401 429
    let memory = admission.reserve_memory();
    let early = identity::identify(request, &route, (body, &memory), facts).await?;
    // 5  authorization and rate limit                     401 429 403
    identity::permit(request, &route, facts).await?;
    // 6  content negotiation of the response              406
    // 7  can we read the request's media type?            415 400
    let (route, choice) = negotiate(request, route)?;
    stages.mark("head");

    // 8  is the body complete, in time, and intact?       413 408 400
    // 9  is the query valid?                              400
    let bytes = match early {
        Some(bytes) => bytes,
        None => request.read_body((body, &memory), route.body_bytes_max(limits)).await?,
    };
    let body = BodyReservation { bytes: &bytes, memory: &memory };
    stages.mark("body");
    // 4 and 5 again after a wait: the rights that count are those at the moment of the effect
    let changed = ChangedRights::Adopt(&route);
    identity::confirm_rights(request, facts, stages.last_mark(), changed).await?;
    let caller = &facts.identity().known.caller;

    // 10 to 13, as far as the request alone decides them
    let page = choice.page_of(&route);
    let plan = parse_and_plan::plan(request, route, body, caller).await?;
    let planned = PlannedRequest::new(request, plan, choice)?;
    stages.mark("plan");
    let page = match page {
        Some(target) => Some(Box::pin(page::begin(request, target)).await),
        None => None,
    };

    //    is it a retry (Idempotency-Key)?                 409 422
    // 10 do the item and its parents exist?               404
    // 11 do the conditions hold?                          428 412
    // 12 are the fields valid?                            422
    // 13 does it conflict with stored data?               409
    let reply = execute::execute(request, planned, body, facts, stages).await?;
    match (page, &facts.canonical_path) {
        (None, _) => Ok(reply),
        (Some(_), Some(path)) => Ok(reply::redirect_to_canonical(path, parts.uri.query()).into()),
        (Some(page), None) => Box::pin(page::render(request, page, reply, facts, stages)).await,
    }
}

/// Step 3. `whom` is the host that the request names.
fn check_site(
    request: &RequestContext<'_>,
    route: &Route,
    whom: Option<&Authority<'_>>,
) -> Result<(), Problem> {
    let SharedState { model, auth, listen_names, .. } = &*request.app.shared;
    if !request.visitor.is_declared() {
        let base_url = model.server.base_url.as_deref();
        wire::check_cross_site(request.parts, base_url, request.sender.is_https)?;
        wire::check_fetch_metadata(request.parts, identity::cross_site_purpose(route))?;
    }
    if auth.is_open() {
        wire::check_host_is_local(request.parts, whom, listen_names)?;
    }
    Ok(())
}

/// Steps 6 and 7. A list of new items is answered with a list, so step 7 runs first; its error is returned
/// later.
fn negotiate<'a>(
    request: &RequestContext<'a>,
    route: Route,
) -> Result<(Route, ResponseChoice<'a>), Problem> {
    let Parts { method, headers, .. } = request.parts;
    let readable = route.check_readable(headers);
    let offer = readable.as_ref().map_or(ResponseOffer::Data, Route::response_offer);
    let format = formats::choose(&request.accept, offer)?;
    let key = idempotency::parse_key(method, headers)?;
    let mut route = readable?;
    if formats::event_stream::is_chosen(format) {
        route.verb = RequestVerb::Watch { last_event_id: intent::read_last_event_id(headers)? };
    }
    Ok((route, ResponseChoice { format, key }))
}

/// Answers one request in every case, also after a problem or a panic.
pub async fn serve(
    app: &App,
    request: Box<Request<Incoming>>,
    way: PeerConnection,
    exchange: &dyn ExchangeObserver,
) -> Response<ResponseBody> {
    let (id, version) = (RequestId::new(), request.version());
    let sender = wire::find_sender(way, request.headers(), &app.shared.trusted_proxies);
    let visitor =
        CorsOrigin::from_headers(request.headers(), &app.shared.model.server.cors_origins);
    // Boxed in place: the future is large, and would be copied into each future around it.
    let copy = visitor.clone();
    let mut handling =
        box_future(|| handle_request(app, request, id, (way, sender, exchange), copy));
    let answered = catch_panic(handling.as_mut()).await;
    let mut response = answered.unwrap_or_else(|cause| {
        let pairs: [(&str, &dyn Display); 2] = [("request_id", &id.as_str()), ("cause", &cause)];
        app.shared.log.event(Level::Error, "panic while building the response", &pairs);
        app.shared.metrics.count_refusal(problem::INTERNAL.status.as_u16());
        let after = if version < Version::HTTP_2 {
            ConnectionReuse::Close
        } else {
            ConnectionReuse::KeepAlive
        };
        build_response(reply::bare_internal_error().into(), &Method::GET, &id, (after, visitor))
    });
    add_hsts(app, sender, response.headers_mut());
    response
}

/// Handles one request; a panic of `answer` becomes an internal problem.
async fn handle_request(
    app: &App,
    request: Box<Request<Incoming>>,
    id: RequestId,
    (way, sender, exchange): (PeerConnection, Sender, &dyn ExchangeObserver),
    visitor: CorsOrigin,
) -> Response<ResponseBody> {
    let (parts, incoming) = request.into_parts();
    let mut body = RequestBody::new(&parts, incoming);
    let asked = RequestContext::new(app, &parts, id, (way, sender, exchange), visitor);
    let mut facts = RequestFacts::default();
    let mut stages = StageTimes::start(asked.now);

    let answered = catch_panic(pin!(answer(&asked, &mut body, &mut facts, &mut stages))).await;
    let internal = |cause| Err(Problem::new(&problem::INTERNAL).cause(cause).into());
    let (mut reply, problem) = match answered.unwrap_or_else(internal) {
        Ok(reply) => (reply, None),
        Err(RouteError::Redirect(to)) => (reply::permanent_redirect(&to).into(), None),
        Err(RouteError::Problem(problem)) => {
            (page::problem_reply(&asked, &facts, &problem).into(), Some(problem))
        }
    };
    if let Some(choice) = asked.content_coding {
        Box::pin(content_coding::encode_reply(&app.shared, &mut reply, choice)).await;
    }
    let after = body.finish().await;
    stages.mark("reply");
    // The `rspauth` of `Authentication-Info` covers the bytes as they are sent.
    let whole = reply.body.whole().map(|bytes| &**bytes);
    let sent = if parts.method == Method::HEAD { Some(&[][..]) } else { whole };
    let identity = facts.identity.as_ref();
    if let Some((name, value)) =
        identity.and_then(|identity| identity.known.authentication_info(&parts, sent))
    {
        reply.headers.insert(name, value);
    }
    rate_limit::add_headers(&facts, &mut reply.headers);
    log_and_count(&asked, &facts, (&mut reply, problem.as_ref()), &stages);
    build_response(reply, &parts.method, &asked.id, (after, asked.visitor))
}

/// Catches a panic of one request and returns its message, so that the process continues. The future is
/// pinned where it was made, because it is large and each call would move it.
fn catch_panic<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
) -> impl Future<Output = Result<T, String>> {
    poll_fn(move |context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(fault::panic_message(&*panic))),
        }
    })
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::formats::accept::Accept;
    use crate::formats::json::ProblemContext;

    #[test]
    fn panic_gives_500_and_its_message_goes_to_the_log_only() {
        let planted = pin!(async { panic!("planted") });
        let mut work = pin!(catch_panic(planted));
        let polled: Poll<Result<(), _>> =
            work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Err("panic: planted".to_owned())));
        let problem = Problem::new(&problem::INTERNAL).cause("panic: planted");
        let occasion = ProblemContext { base_path: "", path: Some("/"), request_id: "r1" };
        let reply = reply::problem(&problem, &Accept::ANYTHING, occasion);
        assert_eq!(
            str::from_utf8(&reply.body),
            Ok(
                r#"{"type":"/-/problems/internal","title":"Something went wrong here","status":500,"instance":"/","request_id":"r1"}"#
            )
        );
    }
}
