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

mod execute;
mod patch_user;
mod content_coding;
mod export;
mod identity;
#[cfg(test)]
mod grants;
mod parse_and_plan;
mod record_metrics;
mod idempotency;
mod path_hint;
mod rate_limit;
mod redirect;
mod revocation;
mod stream_log;

use std::cell::{Cell, OnceCell};
use std::fmt::Display;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::request::Parts;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header,
};
use hyper::body::Incoming;
use hyper::ext::ReasonPhrase;

use self::execute::BodyReservation;
pub use self::redirect::redirect;
pub use self::revocation::{StreamRights, end_revoked};
use crate::admission::{self, AdmissionControl, MemoryReservation};
use crate::auth::{Authenticator, IdentifiedCaller};
use crate::box_future::box_future;
use crate::formats::ResponseOffer;
use crate::formats::accept::{self, Accept};
use crate::formats::coding::{self, CodingChoice};
use crate::formats::json::ProblemContext;
use crate::intent::{Route, RouteError};
use crate::log::{Level, Logger, RequestLine, StageTimes};
use crate::metrics::{Metrics, RequestSample, ThreadMetrics};
use crate::model::{Model, Network, ResourceIndex};
use crate::plan::{ChangeAuthor, Plan, ReadPlan};
use crate::problem::{self, Problem};
use crate::rate_window::WindowState;
use crate::reply::{Reply, ReplyBuilder, ResponseBody};
use crate::wire::{
    self, ConnectionReuse, CorsOrigin, PeerConnection, RequestBody, RequestId, Sender,
};
use crate::{clock, fault, formats, intent, reply, store};

/// Parsing a body of this size or more would block the event loop for noticeably long, so a blocking thread
/// does it, as it does for the serialization of large outcomes (`Outcome::is_large`).
const BLOCKING_BODY_BYTES_MIN: usize = 64 << 10;

/// State that all worker threads share.
#[derive(Debug)]
pub struct SharedState {
    pub model: Arc<Model>,
    pub auth: Authenticator,
    pub replies: ReplyBuilder,
    pub admission: AdmissionControl,
    pub log: Logger,
    pub metrics: Arc<Metrics>,
    /// The `--listen` addresses: names that an open server accepts in `Host`.
    pub listen_names: Vec<String>,
    /// Peers whose `Forwarded` headers we trust.
    pub trusted_proxies: Vec<Network>,
    /// The HTTPS port, for redirects.
    pub https_port: u16,
    /// `Strict-Transport-Security`, if it is configured.
    pub hsts: Option<HeaderValue>,
}

/// The state with which one worker thread answers requests.
#[derive(Debug)]
pub struct App {
    pub shared: Arc<SharedState>,
    pub store: store::StoreWorker,
    pub metrics: ThreadMetrics,
}

/// Runs all stages of one request.
async fn answer(
    app: &App,
    asked: &RequestContext<'_>,
    body: &mut RequestBody,
    stages: &mut StageTimes,
) -> Result<Reply, RouteError> {
    let SharedState { model, auth, replies, admission, .. } = &*app.shared;
    let (parts, limits) = (asked.parts, &model.server.limits);
    let (path, query) = (parts.uri.path(), parts.uri.query());

    // 1  is it well-formed HTTP?                          400 414 417 431 501
    let whom = wire::check_head(parts, limits)?;
    //    is it a CORS preflight?                          204
    if asked.visitor.is_preflight(parts) {
        let methods = intent::preflight_methods(model, path);
        return Ok(reply::no_content(wire::preflight_headers(methods)));
    }
    // 2  routing: is there such a path and method?        501 404 308 405
    let route = path_hint::route(app, asked, whom.as_ref()).await?;
    asked.resource.set(route.resource());
    // 3  is it same-site (fetch metadata), and for us?    403 421
    if !asked.visitor.is_declared() {
        wire::check_cross_site(parts, model.server.base_url.as_deref(), asked.sender.is_https)?;
        wire::check_fetch_metadata(parts, identity::cross_site_purpose(&route))?;
    }
    if auth.is_open() {
        wire::check_host_is_local(parts, whom.as_ref(), &app.shared.listen_names)?;
    }
    // 4  authentication: who is the caller?               401 429
    let memory = admission.reserve_memory();
    let early = identity::identify(app, asked, &route, (body, &memory)).await?;
    // 5  authorization and rate limit                     401 429 403
    identity::permit(app, asked, &route).await?;
    // 6  content negotiation of the response              406
    //    A list of new items is answered with a list, so step 7 runs first; its error is returned later.
    let readable = route.check_readable(&parts.headers);
    let offer = readable.as_ref().map_or(ResponseOffer::Data, Route::response_offer);
    let format = formats::choose(&asked.accept, offer)?;
    // 7  can we read the request's media type?            415 400
    let key = intent::idempotency_key(&parts.method, &parts.headers)?;
    let route = readable?;
    stages.mark("head");

    // 8  is the body complete, in time, and intact?       413 408 400
    // 9  is the query valid?                              400
    let bytes = match early {
        Some(bytes) => bytes,
        None => read_body(asked, (body, &memory), route.body_bytes_max(limits)).await?,
    };
    stages.mark("body");
    // 4 and 5 again after a wait: the rights that count are those at the moment of the effect
    let caller = identity::confirm_rights(app, asked, &route, stages.now()).await?;

    // 10 to 13, as far as the request alone decides them
    let by = || ChangeAuthor { actor: caller.name().into(), request_id: asked.id.as_str().into() };
    let plan = parse_and_plan::plan(app, route, (query, &bytes, &memory), caller, by).await?;
    export::check_format(format, plan.list())?;
    let conditions = replies.conditions(&parts.headers, &plan, format, asked.content_coding);
    let plan = plan.with_preconditions(&conditions);
    let (about, list) = (plan.collection().cloned(), plan.list().cloned());
    let is_read = matches!(plan, Plan::Read(_));
    stages.mark("plan");

    //    is it a retry (Idempotency-Key)?                 409 422
    // 10 do the item and its parents exist?               404
    // 11 do the conditions hold?                          428 412
    // 12 are the fields valid?                            422
    // 13 does it conflict with stored data?               409
    let done = match plan {
        Plan::Static(saying) => return Ok(reply::static_reply(model, &saying)),
        Plan::Metrics => return Ok(reply::metrics(Box::pin(record_metrics::scrape(app)).await)),
        Plan::Read(ReadPlan::Page(collection, list))
            if let Some(lines) = export::streamed_format(format, &list) =>
        {
            let (list, format) = ((collection, list), (format, lines));
            return Box::pin(export::start_export(app, asked, list, format, stages)).await;
        }
        Plan::Read(read) => execute::read(app, asked, read, stages).await?,
        Plan::Write(write) => match key {
            Some(key) => {
                let (key, sent) = ((&*key, format), (write, &bytes, &memory));
                return Box::pin(idempotency::write(app, asked, key, sent, stages)).await;
            }
            None => {
                execute::write(app, asked, write, BodyReservation::new(&bytes, &memory), stages)
                    .await?
            }
        },
    };
    let reply = execute::build_reply(app, (about, list, conditions), format, done).await?;
    // The outcome of a write must be reported; a read can be repeated.
    if is_read && !admission.has_memory_for(reply.body.buffered_bytes()) {
        return Err(Problem::new(&problem::BUSY)
            .detail("too many large responses in memory")
            .into());
    }
    Ok(reply)
}

/// Reads the whole body, within its limits of size and time.
async fn read_body(
    asked: &RequestContext<'_>,
    (body, memory): (&mut RequestBody, &MemoryReservation<'_>),
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    body.read(bytes_max, asked.body_deadline, memory).await
}

async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    admission::spawn_blocking(work).await.map_err(|_| Problem::new(&problem::BUSY))
}

/// A request and the facts that the pipeline has learned about it so far.
struct RequestContext<'a> {
    parts: &'a Parts,
    accept: Accept<'a>,
    /// The content coding of the response; mostly none.
    content_coding: Option<CodingChoice>,
    id: RequestId,
    /// When the body must have arrived, and when the outcome must be known.
    body_deadline: Instant,
    deadline: Instant,
    way: PeerConnection,
    /// The client that sent the request, according to the trusted proxies.
    sender: Sender,
    visitor: CorsOrigin,
    now: Instant,
    /// Set by step 4; the log and the response use it too.
    identified: OnceCell<IdentifiedCaller>,
    /// The caller with fresh rights, where these changed while the body was read.
    refreshed: OnceCell<IdentifiedCaller>,
    /// When the rights were last checked.
    rights_checked_at: Cell<Instant>,
    /// The rights that a streaming response depends on.
    stream_rights: OnceCell<Arc<StreamRights>>,
    /// The caller's rate window, if the caller is rate-limited.
    rate_window: Cell<Option<WindowState>>,
    /// Set by step 2, for the metrics.
    resource: Cell<Option<ResourceIndex>>,
    /// The kind of a replayed problem, for the log.
    replayed_problem: Cell<Option<&'static problem::ProblemKind>>,
}

impl RequestContext<'_> {
    /// The caller by the last check of the rights; `None` before step 4.
    fn latest_identified(&self) -> Option<&IdentifiedCaller> {
        self.refreshed.get().or_else(|| self.identified.get())
    }
}

/// Answers one request in every case, also after a problem or a panic.
pub async fn serve(
    app: &App,
    request: Box<Request<Incoming>>,
    way: PeerConnection,
) -> Response<ResponseBody> {
    let (id, version) = (RequestId::new(), request.version());
    let sender = wire::find_sender(way, request.headers(), &app.shared.trusted_proxies);
    let visitor =
        CorsOrigin::from_headers(request.headers(), &app.shared.model.server.cors_origins);
    // Boxed in place: the future is large, and would be copied into each future around it.
    let copy = visitor.clone();
    let mut exchange = box_future(|| handle_request(app, request, id, (way, sender), copy));
    let answered = catch_panic(exchange.as_mut()).await;
    let mut response = answered.unwrap_or_else(|cause| {
        let pairs: [(&str, &dyn Display); 2] = [("request_id", &id.as_str()), ("cause", &cause)];
        app.shared.log.event(Level::Error, "panic while building the response", &pairs);
        app.shared.metrics.server.count_refusal(problem::INTERNAL.status.as_u16());
        let after = if version < Version::HTTP_2 {
            ConnectionReuse::Close
        } else {
            ConnectionReuse::KeepAlive
        };
        build_response(reply::bare_internal_error(), &Method::GET, &id, (after, visitor))
    });
    add_hsts(app, sender, response.headers_mut());
    response
}

/// Adds `Strict-Transport-Security` to the response to a request that the server refuses before the
/// pipeline.
pub fn add_hsts_to_refusal(
    app: &App,
    (way, asked): (PeerConnection, &HeaderMap),
    headers: &mut HeaderMap,
) {
    add_hsts(app, wire::find_sender(way, asked, &app.shared.trusted_proxies), headers);
}

/// RFC 6797 §7.2: only responses over HTTPS carry `Strict-Transport-Security`.
fn add_hsts(app: &App, sender: Sender, headers: &mut HeaderMap) {
    if let Some(hsts) = app.shared.hsts.as_ref().filter(|_| sender.is_https == Some(true)) {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
}

/// Handles one request; a panic of `answer` becomes an internal problem.
async fn handle_request(
    app: &App,
    request: Box<Request<Incoming>>,
    id: RequestId,
    (way, sender): (PeerConnection, Sender),
    visitor: CorsOrigin,
) -> Response<ResponseBody> {
    let (parts, incoming) = request.into_parts();
    let mut body = RequestBody::new(&parts, incoming);
    let lines = |name| parts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let limits = &app.shared.model.server.limits;
    let now = clock::now();
    let within = |seconds: u32| now + Duration::from_secs(seconds.into());
    let asked = RequestContext {
        parts: &parts,
        accept: accept::parse(lines(header::ACCEPT)),
        content_coding: coding::choose(lines(header::ACCEPT_ENCODING)),
        id,
        body_deadline: within(limits.body_seconds_max),
        deadline: within(limits.request_seconds_max),
        way,
        sender,
        visitor,
        now,
        identified: OnceCell::new(),
        refreshed: OnceCell::new(),
        rights_checked_at: Cell::new(now),
        stream_rights: OnceCell::new(),
        rate_window: Cell::new(None),
        resource: Cell::new(None),
        replayed_problem: Cell::new(None),
    };
    let mut stages = StageTimes::start(now);

    let answered = catch_panic(pin!(answer(app, &asked, &mut body, &mut stages))).await;
    let internal = |cause| Err(Problem::new(&problem::INTERNAL).cause(cause).into());
    let (mut reply, problem) = match answered.unwrap_or_else(internal) {
        Ok(reply) => (reply, None),
        Err(RouteError::Redirect(to)) => (reply::permanent_redirect(&to), None),
        Err(RouteError::Problem(problem)) => {
            let base_path = app.shared.model.server.base_path.as_deref().unwrap_or("");
            let occasion = ProblemContext {
                base_path,
                path: Some(parts.uri.path()),
                request_id: asked.id.as_str(),
            };
            (reply::problem(&problem, &asked.accept, occasion), Some(problem))
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
    if let Some((name, value)) =
        asked.identified.get().and_then(|known| known.authentication_info(&parts, sent))
    {
        reply.headers.insert(name, value);
    }
    rate_limit::add_headers(&asked, &mut reply.headers);
    log_and_count(app, &asked, (&mut reply, problem.as_ref()), &stages);
    let mut response = build_response(reply, &parts.method, &asked.id, (after, asked.visitor));
    if let Some(rights) = asked.stream_rights.into_inner() {
        response.extensions_mut().insert(rights);
    }
    response
}

fn log_and_count(
    app: &App,
    asked: &RequestContext<'_>,
    (reply, problem): (&mut Reply, Option<&Problem>),
    stages: &StageTimes,
) {
    let answered = RequestSample {
        resource: asked.resource.get(),
        verb: asked.parts.method.as_str(),
        status: reply.status.as_u16(),
        took: stages.total(),
    };
    if stream_log::defer_to_stream_end(&app.shared, asked, reply, stages) {
        return app.metrics.record(&answered, stages.iter());
    }
    app.shared.log.request(&RequestLine {
        time: clock::moment(),
        request_id: asked.id.as_str(),
        peer: asked.way.peer,
        client: asked.sender.address,
        method: asked.parts.method.as_str(),
        path: asked.parts.uri.path(),
        status: reply.status.as_u16(),
        caller: asked.identified.get().map_or("-", |known| known.caller.name()),
        bytes: reply.body.buffered_bytes(),
        duration: stages.total(),
        problem: problem.map(Problem::kind).or(asked.replayed_problem.get()).map(|kind| kind.slug),
        cause: problem.and_then(|problem| problem.parts().cause.as_deref()),
        is_cut: false,
        stages,
    });
    // Last, because `serve` counts a request that panics before this line.
    app.metrics.record(&answered, stages.iter());
}

fn build_response(
    reply: Reply,
    method: &Method,
    id: &RequestId,
    (after, visitor): (ConnectionReuse, CorsOrigin),
) -> Response<ResponseBody> {
    const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    let mut response = Response::new(ResponseBody::Whole(Bytes::new()));
    *response.status_mut() = reply.status;
    if let Some(reason) = reply::reason_phrase(reply.status) {
        response.extensions_mut().insert(ReasonPhrase::from_static(reason.as_bytes()));
    }
    *response.headers_mut() = reply.headers;
    response.headers_mut().insert(X_REQUEST_ID, id.header());
    wire::add_cross_origin_isolation(response.headers_mut());
    visitor.add_headers(response.headers_mut());
    // RFC 9110 §9.3.2: as GET without the content, but with `Content-Length` where it is known.
    if *method != Method::HEAD || reply.status == StatusCode::NOT_MODIFIED {
        *response.body_mut() = reply.body;
    } else if let Some(whole) = reply.body.whole() {
        response.headers_mut().insert(header::CONTENT_LENGTH, whole.len().into());
    }
    if after == ConnectionReuse::Close {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
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

    #[test]
    fn panic_gives_500_and_its_message_goes_to_the_log_only() {
        let planted = pin!(async { panic!("planted") });
        let mut work = pin!(catch_panic(planted));
        let polled: Poll<Result<(), _>> =
            work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Err("panic: planted".to_owned())));
        let problem = Problem::new(&problem::INTERNAL).cause("panic: planted");
        let occasion = ProblemContext { base_path: "", path: Some("/"), request_id: "r1" };
        let reply = reply::problem(&problem, &Accept::Anything, occasion);
        assert_eq!(
            str::from_utf8(reply.body.whole().unwrap()),
            Ok(
                r#"{"type":"/-/problems/internal","title":"Something went wrong here","status":500,"instance":"/","request_id":"r1"}"#
            )
        );
    }
}
