//! Stored responses for `Idempotency-Key`, as text: status, headers, an empty line, the body.
//!
//! The first client gets the stored form too, so that every retry gets the same response. Headers that
//! belong to the request rather than to the response (request id, date, CORS) are added after this step, and
//! are new every time.

use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use crate::auth::Authenticator;
use crate::formats::{Format, accept};
use crate::intent::preconditions::Preconditions;
use crate::pipeline::context::{RequestContext, SharedState};
use crate::plan::{Collection, IdempotentResponse, Outcome, RenderResponse};
use crate::problem::{self, Problem, ProblemKind};
use crate::reply::{Reply, ResponseContext};
use crate::store::StoreError;

const IDEMPOTENT_REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// A stored response as a reply, and the kind of its problem.
pub fn replay(
    auth: &Authenticator,
    IdempotentResponse { text, is_replay }: IdempotentResponse,
) -> Result<(Reply, Option<&'static ProblemKind>), Problem> {
    // A response has several lines; one with a secret in it is sealed, in base64.
    let text = match text.contains('\n') {
        true => Some(text),
        false => auth.open_response(&text),
    };
    let (mut reply, kind) = text.and_then(parse).ok_or_else(|| {
        Problem::new(&problem::INTERNAL)
            .cause("the response stored under the idempotency key cannot be parsed")
    })?;
    if is_replay {
        reply.headers.insert(IDEMPOTENT_REPLAYED, HeaderValue::from_static("true"));
    }
    Ok((reply, kind))
}

/// Removes the items from a response to a write, as in one to a caller who cannot read them.
pub fn remove_items(reply: &mut Reply) {
    reply.body = Bytes::new();
    reply.headers.remove(header::CONTENT_TYPE);
    reply.headers.remove(header::ETAG);
    if reply.status == StatusCode::OK {
        reply.status = StatusCode::NO_CONTENT;
    }
}

/// Renders the response in the form in which the store keeps it.
pub fn response_renderer(
    request: &RequestContext<'_>,
    format: &'static Format,
    about: &Collection,
) -> RenderResponse {
    let (shared, about) = (Arc::clone(&request.app.shared), about.clone());
    let accepted = request.parts.headers.get_all(header::ACCEPT);
    let accepted: Vec<HeaderValue> = accepted.iter().cloned().collect();
    let (path, id) = (request.parts.uri.path().to_owned(), request.id);
    Arc::new(move |done| {
        let SharedState { model, replies, .. } = &*shared;
        // The conditions were evaluated when the item was changed.
        let conditions = Preconditions::default();
        let about = ResponseContext {
            model,
            collection: &about,
            list: None,
            conditions: &conditions,
            format,
        };
        let reply = match done {
            Ok(outcome) => {
                // A patch of a user or a webhook ends as a replacement.
                let outcome = match outcome {
                    Outcome::Updated(item) => Outcome::Patched(item),
                    outcome => outcome,
                };
                replies.outcome(&about, &outcome)
            }
            Err(refusal) => Err(replies.failure(&about, StoreError::Refused(refusal))),
        };
        match reply {
            Ok(reply) => serialize(&reply, None),
            Err(problem) => {
                let accept = accept::parse(accepted.iter().map(HeaderValue::as_bytes));
                let reply = shared.problem_reply(&problem, &accept, &path, &id);
                serialize(&reply, Some(problem.kind()))
            }
        }
    })
}

/// The text of a reply, and the kind of its problem. `None`, if it is not all text.
fn serialize(reply: &Reply, kind: Option<&ProblemKind>) -> Option<String> {
    let body = str::from_utf8(&reply.body).ok()?;
    let mut text = String::with_capacity(body.len() + 512);
    text.push_str(reply.status.as_str());
    text.push(' ');
    text.push_str(kind.map_or("", |kind| kind.slug));
    for (name, value) in &reply.headers {
        text.push('\n');
        text.push_str(name.as_str());
        text.push_str(": ");
        text.push_str(value.to_str().ok()?);
    }
    text.push_str("\n\n");
    text.push_str(body);
    Some(text)
}

/// Parses a stored response.
fn parse(text: String) -> Option<(Reply, Option<&'static ProblemKind>)> {
    let (head, _) = text.split_once("\n\n")?;
    let mut lines = head.lines();
    let (status, slug) = lines.next()?.split_once(' ')?;
    let status = StatusCode::from_bytes(status.as_bytes()).ok()?;
    let kind = problem::find_by_slug(slug);
    let mut headers = HeaderMap::with_capacity(12);
    for line in lines {
        let (name, value) = line.split_once(": ")?;
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        headers.append(name, HeaderValue::from_str(value).ok()?);
    }
    let body_at = head.len() + 2;
    let body = Bytes::from(text).slice(body_at..);
    Some((Reply { status, headers, body }, kind))
}

#[cfg(test)]
mod tests {
    use http::header::{CONTENT_TYPE, ETAG, LINK};

    use super::*;

    #[test]
    fn stored_response_round_trips() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(ETAG, HeaderValue::from_static("\"1-0011aabb\""));
        headers.append(LINK, HeaderValue::from_static("<a>; rel=\"x\""));
        headers.append(LINK, HeaderValue::from_static("<b>; rel=\"y: z\""));
        for body in ["", "{}\n", "\n\n201 \n\n", "é\r\n\r\n"] {
            for kind in [None, Some(&problem::TAKEN)] {
                let (status, body) = (StatusCode::CREATED, Bytes::from(body));
                let reply = Reply { status, headers: headers.clone(), body };
                let (read, read_kind) = parse(serialize(&reply, kind).unwrap()).unwrap();
                assert_eq!((read.status, &read.headers), (reply.status, &reply.headers));
                assert_eq!((read.body, read_kind), (reply.body, kind));
            }
        }
        let bare =
            Reply { status: StatusCode::CONFLICT, headers: HeaderMap::new(), body: Bytes::new() };
        assert_eq!(serialize(&bare, None).as_deref(), Some("409 \n\n"));
    }

    #[test]
    fn stored_response_rejects_binary_bodies_and_malformed_text() {
        let body = Bytes::from_static(b"\xff");
        let reply = Reply { status: StatusCode::OK, headers: HeaderMap::new(), body };
        assert_eq!(serialize(&reply, None), None);
        for text in ["", "200", "200 \n", "x \n\n", "200 \nno header\n\n", "99 \n\n"] {
            assert!(parse(text.to_owned()).is_none(), "{text:?}");
        }
    }
}
