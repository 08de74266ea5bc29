//! The redirect to HTTPS of a request that arrives without TLS at a redirecting listener.
//!
//! This code uses neither the model nor the store, and reads no body: the response is 308 with the same
//! path and query, or a problem with the head. Every response closes its connection, since the client sends
//! its next request to another port.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::request::Parts;
use http::{Request, Response};
use hyper::body::Incoming;

use super::context::{App, ExchangeObserver, RequestContext, RequestFacts};
use super::respond;
use super::streaming::ResponseBody;
use crate::log::StageTimes;
use crate::problem::{self, Problem};
use crate::wire::{self, ConnectionReuse, CorsOrigin, PeerConnection, RequestId};
use crate::{fault, reply};

/// Answers one request without reading its body.
pub fn redirect(
    app: &App,
    request: Request<Incoming>,
    way: PeerConnection,
    exchange: &dyn ExchangeObserver,
) -> Response<ResponseBody> {
    let (id, (parts, _)) = (RequestId::new(), request.into_parts());
    let sender = wire::find_sender(way, &parts.headers, &app.shared.trusted_proxies);
    // No cross-origin page may read this response.
    let origin = (way, sender, exchange);
    let request = RequestContext::new(app, &parts, id, origin, CorsOrigin::Disabled);
    let mut stages = StageTimes::start(request.now);
    let target = catch_unwind(AssertUnwindSafe(|| https_location(app, &parts)));
    let internal = |panic: Box<dyn std::any::Any + Send>| {
        Err(Problem::new(&problem::INTERNAL).cause(fault::panic_message(&*panic)))
    };
    let (mut reply, problem) = match target.unwrap_or_else(internal) {
        Ok(to) => (reply::permanent_redirect(&to).into(), None),
        Err(problem) => (request.problem_reply(&problem).into(), Some(problem)),
    };
    stages.mark("head");
    let facts = RequestFacts::default();
    respond::log_and_count(&request, &facts, (&mut reply, problem.as_ref()), &stages);
    let sent = (ConnectionReuse::Close, CorsOrigin::Disabled);
    respond::build_response(reply, &parts.method, &id, sent)
}

fn https_location(app: &App, parts: &Parts) -> Result<String, Problem> {
    let server = &app.shared.model.server;
    wire::check_head(parts, &server.limits)?;
    wire::https_url(parts, server.base_url.as_deref(), app.shared.https_port)
}
