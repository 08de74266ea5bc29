//! Stage 4, reply: outcomes and problems as HTTP responses.
//!
//! Pure. A `Reply` is status, headers and body; the server adds only `Date` and the headers of the
//! connection. `Location` and `Link` hold absolute paths: the request's Host is never trusted.

mod builder;
mod changes;
mod content_coding;
mod deprecation;
mod document;
mod failure;
mod history;
mod page;
mod parts;
mod related_views;
mod slow_query_hint;

pub use builder::{ReplyBuilder, ResponseContext, view};
pub use changes::changes_page;
pub use content_coding::{CodingResult, apply_coding};
pub use failure::failure;
pub use page::{into_page, list_position, with_page};
pub use parts::{Reply, event_stream, not_modified};

use http::header::{ALLOW, LINK, LOCATION, VARY, WWW_AUTHENTICATE};
use http::{HeaderName, HeaderValue, StatusCode};

use crate::fault::OrBug as _;
use crate::formats::accept::Accept;
use crate::formats::{self, Format, json};
use crate::intent::preconditions::Preconditions;
use crate::intent::{PathForm, RouteTarget, allow_header};
use crate::model::Model;
use crate::openapi::{self, DocumentPart};
use crate::plan::StaticContent;
use crate::problem::{self, Problem};
use parts::{empty_reply, insert_header, json_reply, with_body};

const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");

const PLAIN_TEXT_TYPE: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// The response to a readiness check that the store has answered.
pub fn ready() -> Reply {
    json_reply(json::health_status("ready"))
}

/// The response to a scrape.
pub fn metrics(text: String) -> Reply {
    with_body(StatusCode::OK, formats::METRICS_TYPE, text.into_bytes())
}

/// Builds a reply that needs only the model.
pub fn static_reply(
    model: &Model,
    saying: &StaticContent,
    (format, conditions): (&Format, &Preconditions),
) -> Result<Reply, Problem> {
    Ok(match saying {
        StaticContent::Home(reach) => {
            let can_read = |index| reach.can_read(index) && reach.can_read_ancestors(model, index);
            json_reply(json::home(model, |index| reach.has_any_grant(index), can_read))
        }
        StaticContent::OpenApi(caller) => {
            let document = openapi::document(model, caller);
            return document::document(document, format, conditions);
        }
        StaticContent::Docs(caller, resource) => {
            let part = resource.map_or(DocumentPart::Server, DocumentPart::Resource);
            let document = openapi::document_part(model, caller, part);
            return document::document(document, format, conditions);
        }
        StaticContent::Schema(caller, resource) => {
            let schema = openapi::resource_schema(model, caller, *resource);
            return document::document(schema, format, conditions);
        }
        StaticContent::Asset(asset, version) => {
            return page::asset(*asset, version.as_deref(), conditions);
        }
        StaticContent::Health => json_reply(json::health_status("ok")),
        StaticContent::ExplainProblem(kind) => json_reply(json::problem_documentation(kind)),
        StaticContent::Options(place) => {
            let mut reply = empty_reply(StatusCode::NO_CONTENT);
            reply.headers.insert(ALLOW, allow_header(model, place));
            if let RouteTarget::Collection(_) = place {
                reply.headers.insert(formats::ACCEPT_QUERY, formats::ACCEPTED_QUERY_TYPE);
            }
            match place {
                RouteTarget::Collection(path) | RouteTarget::Item(path)
                    if path.form == PathForm::Flat => {}
                RouteTarget::Collection(path) if !model.resource(path.resource).is_server_made => {
                    reply.headers.insert(ACCEPT_POST, formats::accepted_types());
                }
                RouteTarget::Item(_) => {
                    reply.headers.insert(formats::ACCEPT_PATCH, formats::accepted_patch_types());
                }
                _ => {}
            }
            reply
        }
    })
}

/// 204, with the given headers.
pub fn no_content(headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Reply {
    let mut reply = empty_reply(StatusCode::NO_CONTENT);
    reply.headers.extend(headers);
    reply
}

/// 308: the same request, at the URL without the slash.
pub fn permanent_redirect(to: &str) -> Reply {
    let mut reply = empty_reply(StatusCode::PERMANENT_REDIRECT);
    insert_header(&mut reply, LOCATION, HeaderValue::try_from(to).ok());
    reply
}

/// 307: the page of an item is at its path under its ancestors, where its forms work.
pub fn redirect_to_canonical(path: &str, query: Option<&str>) -> Reply {
    let mut reply = empty_reply(StatusCode::TEMPORARY_REDIRECT);
    let to = query.map_or_else(|| path.to_owned(), |query| format!("{path}?{query}"));
    insert_header(&mut reply, LOCATION, HeaderValue::try_from(to).ok());
    reply.headers.insert(VARY, parts::VARY_ACCEPT_AND_ENCODING);
    reply
}

/// The reason phrase of a status, as RFC 9110 §15 has it, where the library has an older one.
pub fn reason_phrase(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => Some("Content Too Large"),
        StatusCode::UNPROCESSABLE_ENTITY => Some("Unprocessable Content"),
        _ => None,
    }
}

/// A 500 without a body, for when even a problem cannot be serialized.
pub fn bare_internal_error() -> Reply {
    empty_reply(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A problem in a format that the client listed, or without a body when none fits.
pub fn problem(
    problem: &Problem,
    accept: &Accept<'_>,
    occasion: json::ProblemContext<'_>,
) -> Reply {
    crate::fault::point("problem");
    let parts = problem.parts();
    let mut reply = match formats::choose_for_problem(accept) {
        _ if parts.kind == &problem::LOGGED_OUT && formats::prefers_plain_text(accept) => {
            let words = format!("{}.\n\n{}\n", parts.kind.title, parts.kind.help);
            with_body(parts.kind.status, PLAIN_TEXT_TYPE, words.into_bytes())
        }
        Some(content_type) => {
            with_body(parts.kind.status, content_type, json::problem(parts, occasion))
        }
        None => {
            let mut reply = empty_reply(parts.kind.status);
            reply.headers.insert(VARY, HeaderValue::from_static("Accept"));
            // RFC 6903 §6: the type of the problem, which a body would have in its member `type`.
            let kind = json::problem_type(parts.kind, occasion.base_path);
            let link = HeaderValue::try_from(format!("<{kind}>; rel=\"type\""));
            reply.headers.insert(LINK, link.or_bug("a path is valid in a header"));
            reply
        }
    };
    for (name, value) in &parts.headers {
        // Each challenge is a separate header line; of any other header the last one counts.
        if name == WWW_AUTHENTICATE {
            reply.headers.append(name, value.clone());
        } else {
            reply.headers.insert(name, value.clone());
        }
    }
    reply
}
