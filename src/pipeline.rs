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

mod act;
mod amend;
mod coded;
mod export;
mod identity;
#[cfg(test)]
mod grants;
mod meaning;
mod measure;
mod once;
mod path_hint;
mod quota;
mod redirect;
mod revocation;
mod tail;

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

use self::act::SentBody;
pub use self::redirect::redirect;
pub use self::revocation::{StreamRights, end_revoked};
use crate::auth::{Auth, Known};
use crate::boxed::boxed;
use crate::formats::Offer;
use crate::formats::accept::{self, Accept};
use crate::formats::coding::{self, Choice};
use crate::formats::json::Occasion;
use crate::gate::{self, Gate, Room};
use crate::intent::{Route, Stop};
use crate::log::{Level, Log, RequestLine, Stages};
use crate::metrics::{Answered, Local, Metrics};
use crate::model::{Model, Network, ResourceIndex};
use crate::plan::{By, Plan, Read};
use crate::problem::{self, Problem};
use crate::reply::{Content, Replies, Reply};
use crate::windows::Seen;
use crate::wire::{self, After, Body, RequestId, Sender, Visitor, Way};
use crate::{clock, fault, formats, intent, reply, store};

/// Parsing a body of this size or more would block the event loop for noticeably long, so a blocking thread
/// does it, as it does for the serialization of large outcomes (`Outcome::is_large`).
const ASIDE_BODY_BYTES: usize = 64 << 10;

/// State that all worker threads share.
#[derive(Debug)]
pub struct Shared {
    pub model: Arc<Model>,
    pub auth: Auth,
    pub replies: Replies,
    pub gate: Gate,
    pub log: Log,
    pub metrics: Arc<Metrics>,
    /// The `--listen` addresses: names that an open server accepts in `Host`.
    pub listen: Vec<String>,
    /// Peers whose `Forwarded` headers we trust.
    pub proxies: Vec<Network>,
    /// The HTTPS port, for redirects.
    pub secure_port: u16,
    /// `Strict-Transport-Security`, if it is configured.
    pub hsts: Option<HeaderValue>,
}

/// What one worker thread needs to answer requests.
#[derive(Debug)]
pub struct App {
    pub shared: Arc<Shared>,
    pub store: store::Worker,
    pub metrics: Local,
}

/// Runs all stages of one request.
async fn answer(
    app: &App,
    asked: &Asked<'_>,
    body: &mut Body,
    stages: &mut Stages,
) -> Result<Reply, Stop> {
    let Shared { model, auth, replies, gate, listen, .. } = &*app.shared;
    let (parts, limits) = (asked.parts, &model.server.limits);
    let (path, query) = (parts.uri.path(), parts.uri.query());

    // 1  is it well-formed HTTP?                          400 414 417 431 501
    let whom = wire::check_head(parts, limits)?;
    //    is it a CORS preflight?                          204
    if asked.visitor.asks_first(parts) {
        return Ok(reply::nothing(wire::preflight(intent::methods(model, path))));
    }
    // 2  routing: is there such a path and method?        501 404 308 405
    let route = path_hint::route(app, asked, whom.as_ref()).await?;
    asked.resource.set(route.resource());
    // 3  is it same-site (fetch metadata), and for us?    403 421
    if !asked.visitor.is_declared() {
        wire::check_site(parts, model.server.base_url.as_deref(), asked.sender.is_https)?;
        wire::check_reader(parts, identity::purpose(&route))?;
    }
    if auth.is_open() {
        wire::check_host_is_ours(parts, whom.as_ref(), listen)?;
    }
    // 4  authentication: who is the caller?               401 429
    let room = gate.room();
    let early = identity::identify(app, asked, &route, (body, &room)).await?;
    // 5  authorization and rate limit                     401 429 403
    identity::permit(app, asked, &route).await?;
    // 6  content negotiation of the response              406
    //    A list of new items is answered with a list, so step 7 is evaluated first; its error waits.
    let readable = route.check_readable(&parts.headers);
    let offer = readable.as_ref().map_or(Offer::Data, Route::offer);
    let format = formats::choose(&asked.accept, offer)?;
    // 7  can we read the request's media type?            415 400
    let key = intent::key(&parts.method, &parts.headers)?;
    let route = readable?;
    stages.mark("head");

    // 8  is the body complete, in time, and intact?       413 408 400
    // 9  is the query valid?                              400
    let bytes = match early {
        Some(bytes) => bytes,
        None => read_body(asked, (body, &room), route.body_bytes_max(limits)).await?,
    };
    stages.mark("body");
    // 4 and 5 again after a wait: the rights that count are those at the moment of the effect
    let caller = identity::confirm(app, asked, &route, stages.now()).await?;

    // 10 to 13, as far as the request alone decides them
    let by = || By { actor: caller.name().into(), request_id: asked.id.as_str().into() };
    let plan = meaning::plan(app, route, (query, &bytes, &room), caller, by).await?;
    export::check(format, plan.list())?;
    let conditions = replies.conditions(&parts.headers, &plan, format, asked.coding);
    let plan = plan.only_if(&conditions);
    let (about, list) = (plan.about().cloned(), plan.list().cloned());
    let is_read = matches!(plan, Plan::Read(_));
    stages.mark("plan");

    //    is it a retry (Idempotency-Key)?                 409 422
    // 10 do the item and its parents exist?               404
    // 11 do the conditions hold?                          428 412
    // 12 are the fields valid?                            422
    // 13 does it conflict with stored data?               409
    let done = match plan {
        Plan::Say(saying) => return Ok(reply::saying(model, &saying)),
        Plan::Measure => return Ok(reply::metrics(Box::pin(measure::text(app)).await)),
        Plan::Read(Read::Page(collection, list))
            if let Some(lines) = export::lines(format, &list) =>
        {
            let (list, format) = ((collection, list), (format, lines));
            return Box::pin(export::begin(app, asked, list, format, stages)).await;
        }
        Plan::Read(read) => act::read(app, asked, read, stages).await?,
        Plan::Write(write) => match key {
            Some(key) => {
                let sent = (write, &bytes, &room);
                return Box::pin(once::write(app, asked, (&key, format), sent, stages)).await;
            }
            None => act::write(app, asked, write, SentBody::new(&bytes, &room), stages).await?,
        },
    };
    let reply = act::say(app, (about, list, conditions), format, done).await?;
    // The outcome of a write must be reported; a read can be repeated.
    if is_read && !gate.has_room(reply.body.held_bytes()) {
        return Err(Problem::new(&problem::BUSY).detail("too many large answers at once").into());
    }
    Ok(reply)
}

/// Reads the whole body, within its limits of size and time.
async fn read_body(
    asked: &Asked<'_>,
    (body, room): (&mut Body, &Room<'_>),
    bytes_max: usize,
) -> Result<Bytes, Problem> {
    body.read(bytes_max, asked.body_until, room).await
}

async fn aside<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Problem> {
    gate::aside(work).await.map_err(|_| Problem::new(&problem::BUSY))
}

/// A request and what the pipeline has learned about it so far.
struct Asked<'a> {
    parts: &'a Parts,
    accept: Accept<'a>,
    /// The content coding of the response; mostly none.
    coding: Option<Choice>,
    id: RequestId,
    /// When the body must have arrived, and when the outcome must be known.
    body_until: Instant,
    until: Instant,
    way: Way,
    /// Who sent the request, according to the trusted proxies.
    sender: Sender,
    visitor: Visitor,
    now: Instant,
    /// Set by step 4; the log and the response use it too.
    known: OnceCell<Known>,
    /// The caller with fresh rights, where these changed while the body was read.
    renewed: OnceCell<Known>,
    /// When the rights were last checked.
    checked: Cell<Instant>,
    /// The rights that a streaming response depends on.
    stream: OnceCell<Arc<StreamRights>>,
    /// The caller's rate window, if the caller is rate-limited.
    counted: Cell<Option<Seen>>,
    /// Set by step 2, for the metrics.
    resource: Cell<Option<ResourceIndex>>,
    /// The kind of a replayed problem, for the log.
    said: Cell<Option<&'static problem::Kind>>,
}

impl Asked<'_> {
    /// The caller by the last check of the rights; `None` before step 4.
    fn known(&self) -> Option<&Known> {
        self.renewed.get().or_else(|| self.known.get())
    }
}

/// Answers one request in every case: a problem is an answer, and so is a panic.
pub async fn serve(app: &App, request: Box<Request<Incoming>>, way: Way) -> Response<Content> {
    let (id, version) = (RequestId::new(), request.version());
    let sender = wire::sender(way, request.headers(), &app.shared.proxies);
    let visitor = Visitor::of(request.headers(), &app.shared.model.server.cors_origins);
    // Boxed in place: the future is large, and would be copied into each future around it.
    let copy = visitor.clone();
    let mut exchange = boxed(|| exchange(app, request, id, (way, sender), copy));
    let answered = catch(exchange.as_mut()).await;
    let mut response = answered.unwrap_or_else(|cause| {
        let pairs: [(&str, &dyn Display); 2] = [("request_id", &id.as_str()), ("cause", &cause)];
        app.shared.log.event(Level::Error, "a request ended without its answer", &pairs);
        app.shared.metrics.server.count_refusal(problem::INTERNAL.status.as_u16());
        let after = if version < Version::HTTP_2 { After::Close } else { After::KeepAlive };
        respond(reply::speechless(), &Method::GET, &id, (after, visitor))
    });
    mark_secure(app, sender, response.headers_mut());
    response
}

/// Adds `Strict-Transport-Security` to the response to a request that the server refuses before the
/// pipeline.
pub fn secure(app: &App, (way, asked): (Way, &HeaderMap), headers: &mut HeaderMap) {
    mark_secure(app, wire::sender(way, asked, &app.shared.proxies), headers);
}

/// RFC 6797 §7.2: only responses over HTTPS carry `Strict-Transport-Security`.
fn mark_secure(app: &App, sender: Sender, headers: &mut HeaderMap) {
    if let Some(hsts) = app.shared.hsts.as_ref().filter(|_| sender.is_https == Some(true)) {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
}

/// Handles one request; a panic of `answer` becomes an internal problem.
async fn exchange(
    app: &App,
    request: Box<Request<Incoming>>,
    id: RequestId,
    (way, sender): (Way, Sender),
    visitor: Visitor,
) -> Response<Content> {
    let (parts, incoming) = request.into_parts();
    let mut body = Body::new(&parts, incoming);
    let lines = |name| parts.headers.get_all(name).iter().map(HeaderValue::as_bytes);
    let limits = &app.shared.model.server.limits;
    let now = clock::now();
    let within = |seconds: u32| now + Duration::from_secs(seconds.into());
    let asked = Asked {
        parts: &parts,
        accept: accept::parse(lines(header::ACCEPT)),
        coding: coding::choose(lines(header::ACCEPT_ENCODING)),
        id,
        body_until: within(limits.body_seconds_max),
        until: within(limits.request_seconds_max),
        way,
        sender,
        visitor,
        now,
        known: OnceCell::new(),
        renewed: OnceCell::new(),
        checked: Cell::new(now),
        stream: OnceCell::new(),
        counted: Cell::new(None),
        resource: Cell::new(None),
        said: Cell::new(None),
    };
    let mut stages = Stages::start(now);

    let answered = catch(pin!(answer(app, &asked, &mut body, &mut stages))).await;
    let internal = |cause| Err(Problem::new(&problem::INTERNAL).cause(cause).into());
    let (mut reply, problem) = match answered.unwrap_or_else(internal) {
        Ok(reply) => (reply, None),
        Err(Stop::Moved(to)) => (reply::moved(&to), None),
        Err(Stop::Problem(problem)) => {
            let base_path = app.shared.model.server.base_path.as_deref().unwrap_or("");
            let occasion =
                Occasion { base_path, path: Some(parts.uri.path()), request_id: asked.id.as_str() };
            (reply::problem(&problem, &asked.accept, occasion), Some(problem))
        }
    };
    if let Some(choice) = asked.coding {
        Box::pin(coded::code(&app.shared, &mut reply, choice)).await;
    }
    let after = body.finish().await;
    stages.mark("reply");
    // The `rspauth` of `Authentication-Info` covers the bytes as they are sent.
    let whole = reply.body.whole().map(|bytes| &**bytes);
    let sent = if parts.method == Method::HEAD { Some(&[][..]) } else { whole };
    if let Some((name, value)) = asked.known.get().and_then(|known| known.info(&parts, sent)) {
        reply.headers.insert(name, value);
    }
    quota::tell(&asked, &mut reply.headers);
    record(app, &asked, (&mut reply, problem.as_ref()), &stages);
    let mut response = respond(reply, &parts.method, &asked.id, (after, asked.visitor));
    if let Some(rights) = asked.stream.into_inner() {
        response.extensions_mut().insert(rights);
    }
    response
}

fn record(app: &App, asked: &Asked<'_>, said: (&mut Reply, Option<&Problem>), stages: &Stages) {
    let (reply, problem) = said;
    let answered = Answered {
        resource: asked.resource.get(),
        verb: asked.parts.method.as_str(),
        status: reply.status.as_u16(),
        took: stages.total(),
    };
    if tail::put_off(&app.shared, asked, reply, stages) {
        return app.metrics.count(&answered, stages.iter());
    }
    app.shared.log.request(&RequestLine {
        time: clock::moment(),
        request_id: asked.id.as_str(),
        peer: asked.way.peer,
        client: asked.sender.address,
        method: asked.parts.method.as_str(),
        path: asked.parts.uri.path(),
        status: reply.status.as_u16(),
        caller: asked.known.get().map_or("-", |known| known.caller.name()),
        bytes: reply.body.held_bytes(),
        duration: stages.total(),
        problem: problem.map(Problem::kind).or(asked.said.get()).map(|kind| kind.slug),
        cause: problem.and_then(|problem| problem.parts().cause.as_deref()),
        is_cut: false,
        stages,
    });
    // Last, because `serve` counts a request that panics before this line.
    app.metrics.count(&answered, stages.iter());
}

fn respond(
    reply: Reply,
    method: &Method,
    id: &RequestId,
    (after, visitor): (After, Visitor),
) -> Response<Content> {
    const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
    let mut response = Response::new(Content::Whole(Bytes::new()));
    *response.status_mut() = reply.status;
    if let Some(reason) = reply::reason(reply.status) {
        response.extensions_mut().insert(ReasonPhrase::from_static(reason.as_bytes()));
    }
    *response.headers_mut() = reply.headers;
    response.headers_mut().insert(X_REQUEST_ID, id.header());
    wire::keep_apart(response.headers_mut());
    visitor.mark(response.headers_mut());
    // RFC 9110 §9.3.2: as GET without the content, but with `Content-Length` where it is known.
    if *method != Method::HEAD || reply.status == StatusCode::NOT_MODIFIED {
        *response.body_mut() = reply.body;
    } else if let Some(whole) = reply.body.whole() {
        response.headers_mut().insert(header::CONTENT_LENGTH, whole.len().into());
    }
    if after == After::Close {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Catches a panic of one request and returns its message, so that the process goes on. The future is
/// pinned where it was made, because it is large and each call would move it.
fn catch<T>(
    mut work: Pin<&mut impl Future<Output = T>>,
) -> impl Future<Output = Result<T, String>> {
    poll_fn(move |context| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context)));
        match polled {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(fault::words(&*panic))),
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
        let mut work = pin!(catch(planted));
        let polled: Poll<Result<(), _>> =
            work.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert_eq!(polled, Poll::Ready(Err("panic: planted".to_owned())));
        let problem = Problem::new(&problem::INTERNAL).cause("panic: planted");
        let occasion = Occasion { base_path: "", path: Some("/"), request_id: "r1" };
        let reply = reply::problem(&problem, &Accept::Anything, occasion);
        assert_eq!(
            str::from_utf8(reply.body.whole().unwrap()),
            Ok(
                r#"{"type":"/-/problems/internal","title":"Something went wrong here","status":500,"instance":"/","request_id":"r1"}"#
            )
        );
    }
}
