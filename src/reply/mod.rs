//! Stage 4, reply: outcomes and problems as HTTP responses.
//!
//! Pure. A `Reply` is status, headers and body; the server adds only `Date` and the headers of the
//! connection. `Location` and `Link` hold absolute paths: the request's Host is never trusted.

mod content_coding;
mod response_body;
mod deprecation;
mod failure;
mod list_etag;
mod slow_query_hint;
mod write_only;

pub use content_coding::apply_coding;
pub use failure::failure;
pub use response_body::{BodyChunks, BodyStream, ResponseBody, StreamAborted};

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, LAST_MODIFIED, LINK, LOCATION, VARY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use crate::formats::accept::Accept;
use crate::formats::coding::CodingChoice;
use crate::formats::{self, Format, ItemView, json};
use crate::intent::preconditions::{PreconditionResult, Preconditions, Validators};
use crate::intent::{ListQuery, RouteTarget, allow_header, format_path};
use crate::model::Model;
use crate::plan::{Collection, Outcome, Plan, ReadPlan, RequestRefusal, StaticContent};
use crate::problem::{self, Problem};
use crate::store::StoreError;
use crate::value::Page;

const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");

/// The headers that every response with a body varies by, also one that is too small to be compressed: the
/// next one from the same URL may be large.
const VARY_ACCEPT_AND_ENCODING: HeaderValue = HeaderValue::from_static("Accept, Accept-Encoding");

const PLAIN_TEXT_TYPE: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A response before the server sends it.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: ResponseBody,
}

/// The parts that the replies of one model have in common.
#[derive(Debug)]
pub struct ReplyBuilder {
    /// For each format, a short hash of it and the model: an item's representation depends on both.
    form_hashes: Vec<(&'static str, String)>,
    /// For each resource: whether a response about it may involve something deprecated.
    may_be_deprecated: Vec<bool>,
}

impl ReplyBuilder {
    pub fn new(model: &Model) -> Self {
        let form = |format: &&Format| {
            let essence = format.media.essence;
            let hash = Sha256::new().chain_update(&model.shape).chain_update(essence).finalize();
            (essence, hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect())
        };
        Self {
            form_hashes: formats::ALL.iter().map(form).collect(),
            may_be_deprecated: deprecation::flags_by_resource(model),
        }
    }

    /// `"<version>-<f>"`, where `f` is the hash of the representation: equal tags, equal bytes. Hidden
    /// fields change the bytes, so `mark`, which identifies them, changes the hash.
    fn etag(&self, format: &Format, mark: u32, version: i64) -> Option<HeaderValue> {
        Some(entity_tag("", version, &self.form_hash(format, mark)?))
    }

    fn form_hash(&self, format: &Format, mark: u32) -> Option<Cow<'_, str>> {
        let (_, f) =
            self.form_hashes.iter().find(|(essence, _)| *essence == format.media.essence)?;
        Some(match mark {
            0 => Cow::Borrowed(f),
            mark => Cow::Owned(content_coding::mix_hash(f, mark)),
        })
    }

    /// The conditions of a request, for a response in some format and coding. The tag of a list is weak, so
    /// that it is the same in every coding.
    pub fn conditions(
        &self,
        headers: &HeaderMap,
        plan: &Plan,
        format: &Format,
        coding: Option<CodingChoice>,
    ) -> Preconditions {
        let mark = || plan.collection().map_or(0, Collection::hidden_fields_hash);
        let coding = || coding.map_or(0, CodingChoice::tag_number);
        Preconditions::read(headers, || match (plan, plan.list()) {
            (Plan::Read(ReadPlan::Page(..)), Some(list)) => {
                self.list_form_hash(format, mark(), list.query_hash)
            }
            (_, list) => {
                let mark = mark() ^ selection_hash(list.map(|list| &**list)) ^ coding();
                self.form_hash(format, mark).unwrap_or_default().into_owned()
            }
        })
    }

    /// Maps an error of the store to a problem. A failed precondition gets the current validators.
    pub fn failure(
        &self,
        model: &Model,
        (about, list): (Option<&Collection>, Option<&ListQuery>),
        format: &Format,
        error: StoreError,
    ) -> Problem {
        let now = match error {
            StoreError::Refused(RequestRefusal::PreconditionFailed(now)) => now,
            StoreError::TimedOut => {
                let asked = about.zip(list);
                return slow_query_hint::add_hint(model, asked, failure(model, about, error));
            }
            _ => None,
        };
        let problem = failure(model, about, error);
        let Some((now, about)) = now.zip(about) else { return problem };
        let mark = about.hidden_fields_hash() ^ selection_hash(list);
        let tag = self.etag(format, mark, now.version).map(|tag| (ETAG, tag));
        let date = http_date(now.updated_seconds).map(|date| (LAST_MODIFIED, date));
        let headers = tag.into_iter().chain(date);
        headers.fold(problem, |problem, (name, value)| problem.header(name, value))
    }

    /// Builds the reply to an outcome.
    pub fn outcome(
        &self,
        model: &Model,
        (about, list, conditions): (Option<Collection>, Option<&ListQuery>, &Preconditions),
        format: &Format,
        outcome: &Outcome,
    ) -> Result<Reply, Problem> {
        crate::fault::point("reply");
        // Only the readiness check has no collection.
        let Some(collection) = about else { return Ok(json_reply(json::health_status("ready"))) };
        let mut reply = match (outcome, evaluate_conditions(outcome, conditions)) {
            (Outcome::Page(page), _) => {
                self.page_or_not_modified(model, (&collection, list), (format, conditions), page)?
            }
            (_, PreconditionResult::Holds)
                if !write_only::is_readable(model, &collection, outcome) =>
            {
                return Ok(self.write_only_reply(model, &collection, outcome));
            }
            (_, PreconditionResult::Holds) => {
                self.success(model, (&collection, list), format, outcome)
            }
            (_, PreconditionResult::NotModified) => self.not_modified(
                collection.hidden_fields_hash() ^ selection_hash(list),
                format,
                outcome,
            ),
            (_, PreconditionResult::Fails) => {
                let unmet =
                    StoreError::Refused(RequestRefusal::PreconditionFailed(validators(outcome)));
                return Err(self.failure(model, (Some(&collection), list), format, unmet));
            }
        };
        if self.may_be_deprecated.get(collection.resource.0) == Some(&true) {
            deprecation::add_headers(&mut reply.headers, model, &collection, Some(outcome.items()));
        }
        Ok(reply)
    }

    /// Builds the reply that streams a whole collection. It has no validators.
    pub fn export(
        &self,
        model: &Model,
        (about, conditions): (&Collection, &Preconditions),
        format: &Format,
        content: ResponseBody,
    ) -> Result<Reply, Problem> {
        match conditions.evaluate(None, true) {
            PreconditionResult::Holds => {}
            PreconditionResult::NotModified => {
                let mut reply = empty_reply(StatusCode::NOT_MODIFIED);
                reply.headers.insert(VARY, VARY_ACCEPT_AND_ENCODING);
                return Ok(reply);
            }
            PreconditionResult::Fails => {
                let unmet = StoreError::Refused(RequestRefusal::PreconditionFailed(None));
                return Err(self.failure(model, (Some(about), None), format, unmet));
            }
        }
        let mut reply = formatted_reply(StatusCode::OK, format, Vec::new());
        reply.body = content;
        if self.may_be_deprecated.get(about.resource.0) == Some(&true) {
            deprecation::add_headers(&mut reply.headers, model, about, None);
        }
        Ok(reply)
    }

    /// RFC 9110 §15.4.5: the headers of the 200 response that caches need.
    fn not_modified(&self, mark: u32, format: &Format, outcome: &Outcome) -> Reply {
        let mut reply = empty_reply(StatusCode::NOT_MODIFIED);
        reply.headers.insert(VARY, VARY_ACCEPT_AND_ENCODING);
        if let Some(now) = validators(outcome) {
            insert_header(&mut reply, ETAG, self.etag(format, mark, now.version));
            insert_header(&mut reply, LAST_MODIFIED, http_date(now.updated_seconds));
        }
        reply
    }

    fn success(
        &self,
        model: &Model,
        (collection, list): (&Collection, Option<&ListQuery>),
        format: &Format,
        outcome: &Outcome,
    ) -> Reply {
        let mark = collection.hidden_fields_hash() ^ selection_hash(list);
        let view = view(model, collection, list);
        let mut body = Vec::with_capacity(512);
        match outcome {
            // These have no collection.
            Outcome::Ready | Outcome::ChangeLogBounds(_) | Outcome::User(_) | Outcome::Stamp(_) => {
                json_reply(json::health_status("ready"))
            }
            // A stored response, which `pipeline::idempotency` has replayed already.
            Outcome::Idempotent(_) => bare_internal_error(),
            Outcome::Item(item) => {
                (format.item)(&mut body, view, item);
                let mut reply = formatted_reply(StatusCode::OK, format, body);
                insert_header(&mut reply, ETAG, self.etag(format, mark, item.version));
                insert_header(&mut reply, LAST_MODIFIED, http_date(item.updated_at.seconds()));
                reply
            }
            Outcome::Page(page) => page_reply(model, (collection, list), (format, view), page),
            Outcome::Created(item) => {
                (format.item)(&mut body, view, item);
                let mut reply = formatted_reply(StatusCode::CREATED, format, body);
                let location =
                    format_path(model, collection.resource, &collection.ancestors, Some(item.id));
                insert_header(&mut reply, LOCATION, HeaderValue::try_from(location).ok());
                insert_header(&mut reply, ETAG, self.etag(format, mark, item.version));
                reply
            }
            Outcome::CreatedMany(items) => {
                (format.items)(&mut body, view, items);
                formatted_reply(StatusCode::CREATED, format, body)
            }
            // RFC 9110 §9.3.4: no ETag, since the data was not stored as it was sent.
            Outcome::Updated(item) => {
                (format.item)(&mut body, view, item);
                formatted_reply(StatusCode::OK, format, body)
            }
            Outcome::Patched(item) => {
                (format.item)(&mut body, view, item);
                let mut reply = formatted_reply(StatusCode::OK, format, body);
                insert_header(&mut reply, ETAG, self.etag(format, mark, item.version));
                reply
            }
            Outcome::Removed => empty_reply(StatusCode::NO_CONTENT),
        }
    }
}

/// Evaluates the conditions of a read. Those of a write were evaluated in its transaction.
fn evaluate_conditions(outcome: &Outcome, conditions: &Preconditions) -> PreconditionResult {
    match outcome {
        Outcome::Item(_) => conditions.evaluate(validators(outcome), true),
        _ => PreconditionResult::Holds,
    }
}

fn validators(outcome: &Outcome) -> Option<Validators> {
    match outcome {
        Outcome::Item(item) => Some(Validators::of_item(item)),
        _ => None,
    }
}

/// The part of an item's tag that depends on the selection of members.
fn selection_hash(list: Option<&ListQuery>) -> u32 {
    list.map_or(0, |list| list.query_hash)
}

/// A resource as GET shows it to the caller, restricted to the members that a list selects.
pub fn view<'a>(
    model: &'a Model,
    collection: &'a Collection,
    list: Option<&'a ListQuery>,
) -> ItemView<'a> {
    let hidden = &collection.scope.read_access(collection.resource).hidden;
    let chosen = list.and_then(|list| list.selected_members.as_deref());
    ItemView { resource: model.resource(collection.resource), hidden, selected_members: chosen }
}

fn page_reply(
    model: &Model,
    (collection, list): (&Collection, Option<&ListQuery>),
    (format, view): (&Format, ItemView<'_>),
    page: &Page,
) -> Reply {
    let last = page.items.last().filter(|_| page.next.is_some());
    let onward = last.zip(list).map(|(last, list)| {
        let path = format_path(model, collection.resource, &collection.ancestors, None);
        list.next_page(&path, view.resource, last)
    });
    let cursor = onward.as_ref().map(|(cursor, _)| cursor.as_str());
    let mut body = Vec::with_capacity(256 + 256 * page.items.len());
    (format.page)(&mut body, view, page, cursor);
    let mut reply = formatted_reply(StatusCode::OK, format, body);
    if let Some((_, address)) = onward {
        let link = format!("<{address}>; rel=\"next\"");
        insert_header(&mut reply, LINK, HeaderValue::try_from(link).ok());
    }
    reply
}

/// `before` is `W/` for a weak tag.
fn entity_tag(before: &str, number: i64, form: &str) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    let number = digits.format(number).as_bytes();
    // The exact capacity, so that the header value is made without a copy.
    let mut tag = Vec::with_capacity(before.len() + number.len() + form.len() + 3);
    tag.extend_from_slice(before.as_bytes());
    tag.push(b'"');
    tag.extend_from_slice(number);
    tag.push(b'-');
    tag.extend_from_slice(form.as_bytes());
    tag.push(b'"');
    HeaderValue::from_maybe_shared(Bytes::from(tag)).unwrap_or(HeaderValue::from_static("\"\""))
}

fn http_date(seconds: i64) -> Option<HeaderValue> {
    let seconds = u64::try_from(seconds).ok()?;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    HeaderValue::try_from(httpdate::fmt_http_date(time)).ok()
}

fn insert_header(reply: &mut Reply, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        reply.headers.insert(name, value);
    }
}

fn empty_reply(status: StatusCode) -> Reply {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Reply { status, headers, body: ResponseBody::Whole(Bytes::new()) }
}

/// A response with a body, in a format chosen by `Accept`.
fn with_body(status: StatusCode, content_type: HeaderValue, body: Vec<u8>) -> Reply {
    let mut reply = empty_reply(status);
    reply.headers.insert(CONTENT_TYPE, content_type);
    reply.headers.insert(VARY, VARY_ACCEPT_AND_ENCODING);
    reply.headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply.body = body.into();
    reply
}

fn formatted_reply(status: StatusCode, format: &Format, body: Vec<u8>) -> Reply {
    with_body(status, format.content_type.clone(), body)
}

fn json_reply(body: Vec<u8>) -> Reply {
    formatted_reply(StatusCode::OK, &json::FORMAT, body)
}

/// The response to a scrape.
pub fn metrics(text: String) -> Reply {
    with_body(StatusCode::OK, formats::METRICS_TYPE, text.into_bytes())
}

/// Builds a reply that needs only the model.
pub fn static_reply(model: &Model, saying: &StaticContent) -> Reply {
    match saying {
        StaticContent::Home(reach) => {
            json_reply(json::home(model, |index| reach.has_any_grant(index)))
        }
        StaticContent::Health => json_reply(json::health_status("ok")),
        StaticContent::ExplainProblem(kind) => json_reply(json::problem_page(kind)),
        StaticContent::Options(place) => {
            let mut reply = empty_reply(StatusCode::NO_CONTENT);
            reply.headers.insert(ALLOW, allow_header(place));
            match place {
                RouteTarget::Collection(_) => {
                    reply.headers.insert(ACCEPT_POST, formats::accepted_types());
                }
                RouteTarget::Item(_) => {
                    reply.headers.insert(formats::ACCEPT_PATCH, formats::accepted_patch_types());
                }
                _ => {}
            }
            reply
        }
    }
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
