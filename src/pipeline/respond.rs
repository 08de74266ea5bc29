//! The end of every request: its response, its log line and its metrics.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};
use hyper::ext::ReasonPhrase;

use super::context::{App, RequestContext, RequestFacts};
use super::streaming::{ResponseBody, StreamLog};
use crate::clock;
use crate::log::{RequestLine, StageTimes};
use crate::metrics::{RequestSample, ScrapeGauges};
use crate::problem::Problem;
use crate::reply::{self, Reply};
use crate::wire::{self, ConnectionReuse, CorsOrigin, PeerConnection, RequestId, Sender};

/// Adds `Strict-Transport-Security` to the response to a request that the server refuses before the
/// pipeline.
pub fn add_hsts_to_refusal(
    app: &App,
    (way, sent): (PeerConnection, &HeaderMap),
    headers: &mut HeaderMap,
) {
    add_hsts(app, wire::find_sender(way, sent, &app.shared.trusted_proxies), headers);
}

/// RFC 6797 §7.2: only responses over HTTPS carry `Strict-Transport-Security`.
pub(super) fn add_hsts(app: &App, sender: Sender, headers: &mut HeaderMap) {
    if let Some(hsts) = app.shared.hsts.as_ref().filter(|_| sender.is_https == Some(true)) {
        headers.insert(header::STRICT_TRANSPORT_SECURITY, hsts.clone());
    }
}

/// Logs the request, unless its stream does so at its end, and counts it.
pub(super) fn log_and_count(
    request: &RequestContext<'_>,
    facts: &RequestFacts,
    (reply, problem): (&mut Reply<ResponseBody>, Option<&Problem>),
    stages: &StageTimes,
) {
    let answered = RequestSample {
        resource: facts.resource,
        verb: request.parts.method.as_str(),
        status: reply.status.as_u16(),
        took: stages.total(),
    };
    let app = request.app;
    if let ResponseBody::Stream(stream) = &mut reply.body
        && request.parts.method != Method::HEAD
    {
        stream.log_at_end(StreamLog {
            shared: Arc::clone(&app.shared),
            request_id: request.id,
            peer: request.way.peer,
            client: request.sender.address,
            method: request.parts.method.clone(),
            path: request.parts.uri.path().into(),
            status: reply.status.as_u16(),
            caller: facts.caller_name().into(),
            stages: stages.clone(),
        });
        return app.metrics.record(&answered, stages.iter());
    }
    app.shared.log.request(&RequestLine {
        time: clock::moment(),
        request_id: request.id.as_str(),
        peer: request.way.peer,
        client: request.sender.address,
        method: request.parts.method.as_str(),
        path: request.parts.uri.path(),
        status: reply.status.as_u16(),
        caller: facts.caller_name(),
        bytes: reply.body.whole().map_or(0, Bytes::len),
        duration: stages.total(),
        problem: problem.map(Problem::kind).or(facts.replayed_problem).map(|kind| kind.slug),
        cause: problem.and_then(|problem| problem.parts().cause.as_deref()),
        is_cut: false,
        stages,
    });
    // Last, because `serve` counts a request that panics before this line.
    app.metrics.record(&answered, stages.iter());
}

pub(super) fn build_response(
    reply: Reply<ResponseBody>,
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

/// The metrics in the Prometheus text format. A scrape bypasses admission control, and does not fail when the
/// store does: metrics matter most when a server is in trouble.
pub(super) async fn scrape(app: &App) -> String {
    let bounds = app.store.change_log_bounds().await;
    let shared = &app.shared;
    shared.metrics.render(&ScrapeGauges {
        in_flight: shared.admission.in_flight(),
        waiting: shared.admission.waiting(),
        reserved_bytes: shared.admission.reserved_bytes(),
        connection_bytes: shared.admission.connection_bytes(),
        streams: shared.admission.streams.count(),
        log_lines_dropped: shared.log.dropped_lines(),
        newest_change: bounds.as_ref().and_then(|bounds| bounds.newest),
        oldest_change: bounds.and_then(|bounds| bounds.oldest),
    })
}
