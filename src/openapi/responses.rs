//! Responses of operations: their headers, and the problems by status.

use std::fmt::Write as _;

use super::components::{ComponentKind, Components};
use super::problems::{UNIVERSAL, problems};
use super::schemas::schema_reference;
use super::tree::JsonNode;
use super::viewer::Viewer;
use crate::intent::Route;
use crate::problem::{self as kinds, FaultCode, ProblemKind};

/// A header of responses: its name, its component and what it says.
type ResponseHeader = (&'static str, &'static str, &'static str);

pub const ETAG: ResponseHeader = (
    "ETag",
    "etag",
    "The validator of the response, for `If-None-Match` and, of an item, for `If-Match`.",
);
pub const LAST_MODIFIED: ResponseHeader =
    ("Last-Modified", "last-modified", "When the item was changed.");
pub const LOCATION: ResponseHeader = ("Location", "location", "The path of the new item.");
pub const LINK_NEXT: ResponseHeader =
    ("Link", "link-next", "The address of the next page (`rel=\"next\"`), if there is one.");
pub const LINK_SUCCESSOR: ResponseHeader = (
    "Link",
    "link-successor",
    "The collection to use instead (`rel=\"successor-version\"`), and in lists the next page (`rel=\"next\"`).",
);
pub const LINK_HISTORY: ResponseHeader = (
    "Link",
    "link-history",
    "The changes of the item (`rel=\"version-history\"`), if you may read them; of an item as it was, also the item (`rel=\"original\"`).",
);
pub const MEMENTO_DATETIME: ResponseHeader = (
    "Memento-Datetime",
    "memento-datetime",
    "When the item became as it was, with `version` or `as_of` (RFC 7089).",
);
pub const CONTENT_LOCATION: ResponseHeader = (
    "Content-Location",
    "content-location",
    "The address of the version, with `version` or `as_of`.",
);
pub const LINK_CANONICAL: ResponseHeader = (
    "Link",
    "link-canonical",
    "The item at its path under its parents (`rel=\"canonical\"`), where it can be changed; its changes (`rel=\"version-history\"`), if you may read them; of an item as it was, also the item (`rel=\"original\"`).",
);
pub const CONTENT_LOCATION_CANONICAL: ResponseHeader = (
    "Content-Location",
    "content-location-canonical",
    "The path of the item under its parents; with `version` or `as_of` the address of the version.",
);
pub const IDEMPOTENT_REPLAYED: ResponseHeader = (
    "Idempotent-Replayed",
    "idempotent-replayed",
    "`true` if this is the repeated response of an earlier request with the same `Idempotency-Key`.",
);
pub const DEPRECATION: ResponseHeader =
    ("Deprecation", "deprecation", "Since when a part of the response is deprecated (RFC 9745).");
pub const SUNSET: ResponseHeader =
    ("Sunset", "sunset", "When a deprecated part of the response goes away (RFC 8594).");
pub const CHANGES_POSITION: ResponseHeader = (
    "Changes-Position",
    "changes-position",
    "The number of a change up to which the page is complete.",
);
pub const CHANGES_OLDEST: ResponseHeader =
    ("Changes-Oldest", "changes-oldest", "The number of the oldest change that is kept.");
const REQUEST_ID: ResponseHeader =
    ("X-Request-Id", "x-request-id", "The id of the request, as in the log of the server.");
const CACHE_CONTROL: ResponseHeader = (
    "Cache-Control",
    "cache-control",
    "Responses are private, and must be validated before they are used again.",
);
const VARY: ResponseHeader = ("Vary", "vary", "The headers that the response depends on.");
const RETRY_AFTER: ResponseHeader = (
    "Retry-After",
    "retry-after",
    "The number of seconds to wait before the request is sent again.",
);
const WWW_AUTHENTICATE: ResponseHeader =
    ("WWW-Authenticate", "www-authenticate", "A challenge for each scheme that is offered.");
const RATE_LIMIT: ResponseHeader = (
    "RateLimit",
    "ratelimit",
    "How many requests are left (`r`), and the seconds until the number is reset (`t`).",
);
const RATE_LIMIT_POLICY: ResponseHeader = (
    "RateLimit-Policy",
    "ratelimit-policy",
    "How many requests (`q`) are allowed in how many seconds (`w`).",
);
const ACCEPT: ResponseHeader = ("Accept", "accept", "The media types that the request may have.");

/// The responses of one operation, in the order of their statuses.
#[derive(Debug)]
pub struct Responses<'v, 'a> {
    viewer: &'v Viewer<'a>,
    successes: Vec<(u16, JsonNode)>,
}

/// The body of a response: its media types with their schemas and examples.
#[derive(Debug, Default)]
pub struct DescribedBody(Vec<(&'static str, JsonNode)>);

impl DescribedBody {
    pub fn json(schema: JsonNode, example: Option<JsonNode>) -> Self {
        Self::default().and("application/json", schema, example)
    }

    #[must_use]
    pub fn and(mut self, media: &'static str, schema: JsonNode, example: Option<JsonNode>) -> Self {
        self.0.push((media, media_type(schema, example)));
        self
    }

    /// A media type whose text has one item after the other.
    #[must_use]
    pub fn and_items(mut self, media: &'static str, about: &str, item: Option<JsonNode>) -> Self {
        let schema = object! { "type": "string", "description": about };
        self.0.push((media, media_type(schema, None).with_some("x-item-schema", item)));
        self
    }
}

/// A media type object.
pub fn media_type(schema: JsonNode, example: Option<JsonNode>) -> JsonNode {
    object! { "schema": schema }.with_some("example", example)
}

impl<'v, 'a> Responses<'v, 'a> {
    pub fn new(viewer: &'v Viewer<'a>) -> Self {
        Self { viewer, successes: Vec::new() }
    }

    /// Adds a response that is no problem.
    pub fn add(
        &mut self,
        components: &mut Components,
        (status, about): (u16, &str),
        headers: &[ResponseHeader],
        body: DescribedBody,
    ) {
        let mut common = vec![REQUEST_ID, CACHE_CONTROL];
        if !body.0.is_empty() || status == 304 {
            common.push(VARY);
        }
        let all = common.iter().chain(headers);
        let response = object! {
            "description": about,
            "headers": response_headers(self.viewer, all, components),
        };
        let mut content = JsonNode::empty_object();
        for (media, node) in body.0 {
            content.add(media, node);
        }
        let response =
            response.with_some("content", Some(content).filter(|content| !content.is_empty()));
        self.successes.push((status, response));
    }

    /// All responses: those added before, and a problem for each status that the route can end with.
    pub fn finish(self, route: &Route, components: &mut Components) -> JsonNode {
        let found = problems(self.viewer, route);
        let mut all: Vec<(u16, JsonNode)> = self.successes;
        let mut statuses: Vec<u16> = found.iter().map(|kind| kind.status.as_u16()).collect();
        statuses.sort_unstable();
        statuses.dedup();
        for status in statuses {
            let of_status: Vec<&ProblemKind> =
                found.iter().copied().filter(|kind| kind.status.as_u16() == status).collect();
            let viewer = self.viewer;
            let reference = components.refer(
                ComponentKind::Responses,
                response_name(status, &of_status),
                |components| problem_response(viewer, status, &of_status, components),
            );
            all.push((status, reference));
        }
        all.sort_by_key(|(status, _)| *status);
        let mut responses = JsonNode::empty_object();
        for (status, response) in all {
            responses.add(status.to_string(), response);
        }
        responses
    }
}

/// The status, and the slugs that not every operation has.
fn response_name(status: u16, of_status: &[&ProblemKind]) -> String {
    let mut name = format!("problem.{status}");
    for kind in of_status.iter().filter(|kind| !UNIVERSAL.contains(kind)) {
        let _ = write!(name, ".{}", kind.slug);
    }
    name
}

fn problem_response(
    viewer: &Viewer<'_>,
    status: u16,
    of_status: &[&ProblemKind],
    components: &mut Components,
) -> JsonNode {
    let lines: Vec<String> =
        of_status.iter().map(|kind| format!("`{}`: {}.", kind.slug, kind.title)).collect();
    let mut headers = vec![REQUEST_ID, CACHE_CONTROL, VARY];
    let has = |wanted: &ProblemKind| of_status.contains(&wanted);
    match status {
        401 => headers.push(WWW_AUTHENTICATE),
        412 => headers.extend([ETAG, LAST_MODIFIED]),
        410 => headers.push(CHANGES_OLDEST),
        415 => headers.push(ACCEPT),
        429 | 503 => headers.push(RETRY_AFTER),
        409 if has(&kinds::REQUEST_UNDER_WAY) => headers.push(RETRY_AFTER),
        _ => {}
    }
    if [409, 422].contains(&status) && has(&kinds::REQUEST_UNDER_WAY)
        || has(&kinds::IDEMPOTENCY_KEY_USED)
    {
        headers.push(IDEMPOTENT_REPLAYED);
    }
    let mut examples = JsonNode::empty_object();
    for kind in of_status {
        examples.add(kind.slug, object! { "value": problem_example(viewer, kind) });
    }
    let schema = || schema_reference("server.problem");
    let problem = object! { "schema": schema(), "examples": examples };
    let logout_text =
        has(&kinds::LOGGED_OUT).then(|| object! { "schema": object! { "type": "string" } });
    object! {
        "description": lines.join("\n"),
        "headers": response_headers(viewer, headers.iter(), components),
        "content": object! {
            "application/problem+json": problem,
            "application/json": object! { "schema": schema() },
        }.with_some("text/plain", logout_text),
    }
}

fn problem_example(viewer: &Viewer<'_>, kind: &ProblemKind) -> JsonNode {
    let base_path = viewer.model.server.base_path.as_deref().unwrap_or("");
    let errors = (kind == &kinds::INVALID_FIELDS).then(|| {
        vec![object! {
            "pointer": "/item/field",
            "code": FaultCode::Required.as_str(),
            "detail": "expected a text, got nothing",
        }]
    });
    object! {
        "type": format!("{base_path}/-/problems/{}", kind.slug),
        "title": kind.title,
        "status": kind.status.as_u16(),
        "request_id": "01m7jbg30tj82g06vrrbvzs8a9",
    }
    .with_some("errors", errors)
}

fn response_headers<'h>(
    viewer: &Viewer<'_>,
    headers: impl Iterator<Item = &'h ResponseHeader>,
    components: &mut Components,
) -> JsonNode {
    let limited = viewer.caller.rights().rate_limit.is_some();
    let limits = [RATE_LIMIT, RATE_LIMIT_POLICY];
    let mut all = JsonNode::empty_object();
    for (name, key, about) in headers.copied().chain(limits.into_iter().filter(|_| limited)) {
        let schema = match key {
            "retry-after" | "changes-position" | "changes-oldest" => object! { "type": "integer" },
            _ => object! { "type": "string" },
        };
        let reference = components.refer(ComponentKind::Headers, format!("server.{key}"), |_| {
            object! { "description": about, "schema": schema }
        });
        all.add(name, reference);
    }
    all
}

/// The schema of problems (RFC 9457).
pub fn problem_schema() -> JsonNode {
    let text = |about: &str| object! { "type": "string", "description": about };
    let codes = JsonNode::texts(FaultCode::ALL.iter().map(|code| code.as_str()));
    let error = object! {
        "type": "object",
        "required": JsonNode::texts(["pointer", "code", "detail"]),
        "properties": object! {
            "pointer": text("A JSON pointer (RFC 6901) to the field in the body."),
            "code": text("What is wrong.").with("enum", codes),
            "detail": text("What was expected."),
        },
    };
    object! {
        "type": "object",
        "description": "An error (RFC 9457). `type` leads to an explanation.",
        "required": JsonNode::texts(["type", "title", "status", "request_id"]),
        "properties": object! {
            "type": text("The path of the explanation; its last segment names the kind of problem.")
                .with("format", "uri-reference"),
            "title": text("What the kind of problem means."),
            "status": object! { "type": "integer", "minimum": 400_i64, "maximum": 599_i64 },
            "detail": text("What is wrong with this request."),
            "instance": text("The path of the request."),
            "request_id": text("The id of the request, as in the log of the server."),
            "errors": object! { "type": "array", "items": error },
            "state": text("The current state of the item, where a transition is not allowed."),
            "allowed": object! {
                "type": "array", "items": object! { "type": "string" },
                "description": "The states that may follow.",
            },
        },
    }
}
