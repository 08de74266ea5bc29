//! The redirect to HTTPS of a request that arrives without TLS at a redirecting listener.
//!
//! This code uses neither the model nor the store, and reads no body: the response is 308 with the same
//! path and query, or a problem with the head. Every response closes its connection, since the client sends
//! its next request to another port.

use std::panic::{AssertUnwindSafe, catch_unwind};

use http::request::Parts;
use http::{HeaderValue, Request, Response, header};
use hyper::body::Incoming;

use super::context::App;
use super::respond::build_response;
use crate::formats::accept;
use crate::formats::json::ProblemContext;
use crate::log::{RequestLine, StageTimes};
use crate::metrics::RequestSample;
use crate::problem::{self, Problem};
use crate::reply::{Reply, ResponseBody};
use crate::wire::{self, ConnectionReuse, CorsOrigin, PeerConnection, RequestId};
use crate::{clock, fault, reply};

/// Answers one request without reading its body.
pub fn redirect(
    app: &App,
    request: Request<Incoming>,
    way: PeerConnection,
) -> Response<ResponseBody> {
    let mut stages = StageTimes::start(clock::now());
    let (id, (parts, _)) = (RequestId::new(), request.into_parts());
    let target = catch_unwind(AssertUnwindSafe(|| https_location(app, &parts)));
    let internal = |panic: Box<dyn std::any::Any + Send>| {
        Err(Problem::new(&problem::INTERNAL).cause(fault::panic_message(&*panic)))
    };
    let (reply, problem) = match target.unwrap_or_else(internal) {
        Ok(to) => (reply::permanent_redirect(&to), None),
        Err(problem) => {
            let accepted = parts.headers.get_all(header::ACCEPT).iter().map(HeaderValue::as_bytes);
            let base_path = app.shared.model.server.base_path.as_deref().unwrap_or("");
            let occasion =
                ProblemContext { base_path, path: Some(parts.uri.path()), request_id: id.as_str() };
            (reply::problem(&problem, &accept::parse(accepted), occasion), Some(problem))
        }
    };
    stages.mark("head");
    log_and_count(app, (&parts, &id, way), (&reply, problem.as_ref()), &stages);
    // No cross-origin page may read this response.
    build_response(reply, &parts.method, &id, (ConnectionReuse::Close, CorsOrigin::Disabled))
}

fn https_location(app: &App, parts: &Parts) -> Result<String, Problem> {
    let server = &app.shared.model.server;
    wire::check_head(parts, &server.limits)?;
    wire::https_url(parts, server.base_url.as_deref(), app.shared.https_port)
}

fn log_and_count(
    app: &App,
    (parts, id, way): (&Parts, &RequestId, PeerConnection),
    (reply, problem): (&Reply, Option<&Problem>),
    stages: &StageTimes,
) {
    let (verb, status) = (parts.method.as_str(), reply.status.as_u16());
    app.shared.log.request(&RequestLine {
        time: clock::moment(),
        request_id: id.as_str(),
        peer: way.peer,
        client: wire::find_sender(way, &parts.headers, &app.shared.trusted_proxies).address,
        method: verb,
        path: parts.uri.path(),
        status,
        caller: "-",
        bytes: reply.body.buffered_bytes(),
        duration: stages.total(),
        problem: problem.map(|problem| problem.kind().slug),
        cause: problem.and_then(|problem| problem.parts().cause.as_deref()),
        is_cut: false,
        stages,
    });
    let answered = RequestSample { resource: None, verb, status, took: stages.total() };
    app.metrics.record(&answered, stages.iter());
}
