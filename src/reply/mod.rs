//! Stage 4 of the pipeline, said: outcomes and problems as HTTP responses.
//!
//! Pure. A `Reply` is status, headers and body; the server adds only `Date` and the headers of the
//! connection. `Location` and `Link` hold absolute paths: the request's Host is never trusted.

mod coded;
mod content;
mod deprecation;
mod failure;
pub mod kept;
mod listed;
mod slow;
mod unseen;

pub use coded::coded;
pub use content::{Content, Cut, Flow, Pieces};
pub use failure::failure;

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{
    ALLOW, CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, LAST_MODIFIED, LINK, LOCATION, VARY,
    WWW_AUTHENTICATE, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderName, HeaderValue, StatusCode};
use sha2::{Digest, Sha256};

use crate::formats::accept::Accept;
use crate::formats::coding::Choice;
use crate::formats::{self, Format, View, json};
use crate::intent::conditions::{Conditions, Validators, Verdict};
use crate::intent::{List, Place, allow, path};
use crate::model::Model;
use crate::plan::{Collection, Outcome, Plan, Read, Refusal, Saying};
use crate::problem::{self, Problem};
use crate::store::StoreError;
use crate::value::Page;

const ACCEPT_POST: HeaderName = HeaderName::from_static("accept-post");

/// The headers that every response with a body varies by, also one that is too small to be compressed: the
/// next one from the same URL may be large.
const BOTH: HeaderValue = HeaderValue::from_static("Accept, Accept-Encoding");

const WORDS_TYPE: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

/// A response before the server sends it.
#[derive(Debug)]
pub struct Reply {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: Content,
}

/// What the replies of one model have in common.
#[derive(Debug)]
pub struct Replies {
    /// For each format, a short hash of it and the model: an item's representation depends on both.
    forms: Vec<(&'static str, String)>,
    /// By resource: whether a response about it may involve something deprecated.
    may_be_deprecated: Vec<bool>,
}

impl Replies {
    pub fn new(model: &Model) -> Self {
        let form = |format: &&Format| {
            let essence = format.media.essence;
            let hash = Sha256::new().chain_update(&model.shape).chain_update(essence).finalize();
            (essence, hash.iter().take(4).map(|byte| format!("{byte:02x}")).collect())
        };
        Self {
            forms: formats::ALL.iter().map(form).collect(),
            may_be_deprecated: deprecation::may_be(model),
        }
    }

    /// `"<version>-<f>"`, where `f` is the hash of the representation: equal tags, equal bytes. Hidden
    /// fields change the bytes, so `mark`, which identifies them, changes the hash.
    fn etag(&self, format: &Format, mark: u32, version: i64) -> Option<HeaderValue> {
        Some(tag("", version, &self.form(format, mark)?))
    }

    fn form(&self, format: &Format, mark: u32) -> Option<Cow<'_, str>> {
        let (_, f) = self.forms.iter().find(|(essence, _)| *essence == format.media.essence)?;
        Some(match mark {
            0 => Cow::Borrowed(f),
            mark => Cow::Owned(coded::mix(f, mark)),
        })
    }

    /// The conditions of a request, for a response in some format and coding. The tag of a list is weak, so
    /// that it is the same in every coding.
    pub fn conditions(
        &self,
        headers: &HeaderMap,
        plan: &Plan,
        format: &Format,
        coding: Option<Choice>,
    ) -> Conditions {
        let mark = || plan.about().map_or(0, Collection::mark);
        let coding = || coding.map_or(0, Choice::mark);
        Conditions::read(headers, || match (plan, plan.list()) {
            (Plan::Read(Read::Page(..)), Some(list)) => self.list_form(format, mark(), list.seal),
            (_, list) => {
                let mark = mark() ^ seal_of(list.map(|list| &**list)) ^ coding();
                self.form(format, mark).unwrap_or_default().into_owned()
            }
        })
    }

    /// Maps an error of the store to a problem. A failed precondition gets the current validators.
    pub fn failure(
        &self,
        model: &Model,
        (about, list): (Option<&Collection>, Option<&List>),
        format: &Format,
        error: StoreError,
    ) -> Problem {
        let now = match error {
            StoreError::Refused(Refusal::Unmet(now)) => now,
            StoreError::TimedOut => {
                let asked = about.zip(list);
                return slow::hint(model, asked, failure(model, about, error));
            }
            _ => None,
        };
        let problem = failure(model, about, error);
        let Some((now, about)) = now.zip(about) else { return problem };
        let mark = about.mark() ^ seal_of(list);
        let tag = self.etag(format, mark, now.version).map(|tag| (ETAG, tag));
        let date = date(now.updated).map(|date| (LAST_MODIFIED, date));
        let headers = tag.into_iter().chain(date);
        headers.fold(problem, |problem, (name, value)| problem.header(name, value))
    }

    /// Builds the reply to an outcome.
    pub fn outcome(
        &self,
        model: &Model,
        (about, list, conditions): (Option<Collection>, Option<&List>, &Conditions),
        format: &Format,
        outcome: &Outcome,
    ) -> Result<Reply, Problem> {
        crate::fault::point("reply");
        // Only the readiness check has no collection.
        let Some(collection) = about else { return Ok(document(json::status("ready"))) };
        let mut reply = match (outcome, judge(outcome, conditions)) {
            (Outcome::Page(page), _) => {
                self.listed(model, (&collection, list), (format, conditions), page)?
            }
            (_, Verdict::Holds) if !unseen::is_shown(model, &collection, outcome) => {
                return Ok(self.unseen(model, &collection, outcome));
            }
            (_, Verdict::Holds) => self.found(model, (&collection, list), format, outcome),
            (_, Verdict::NotModified) => {
                self.not_modified(collection.mark() ^ seal_of(list), format, outcome)
            }
            (_, Verdict::Fails) => {
                let unmet = StoreError::Refused(Refusal::Unmet(validators(outcome)));
                return Err(self.failure(model, (Some(&collection), list), format, unmet));
            }
        };
        if self.may_be_deprecated.get(collection.resource.0) == Some(&true) {
            deprecation::note(&mut reply.headers, model, &collection, Some(outcome.items()));
        }
        Ok(reply)
    }

    /// Builds the reply that streams a whole collection. It has no validators.
    pub fn export(
        &self,
        model: &Model,
        (about, conditions): (&Collection, &Conditions),
        format: &Format,
        content: Content,
    ) -> Result<Reply, Problem> {
        match conditions.judge(None, true) {
            Verdict::Holds => {}
            Verdict::NotModified => {
                let mut reply = bare(StatusCode::NOT_MODIFIED);
                reply.headers.insert(VARY, BOTH);
                return Ok(reply);
            }
            Verdict::Fails => {
                let unmet = StoreError::Refused(Refusal::Unmet(None));
                return Err(self.failure(model, (Some(about), None), format, unmet));
            }
        }
        let mut reply = data(StatusCode::OK, format, Vec::new());
        reply.body = content;
        if self.may_be_deprecated.get(about.resource.0) == Some(&true) {
            deprecation::note(&mut reply.headers, model, about, None);
        }
        Ok(reply)
    }

    /// RFC 9110 §15.4.5: the headers of the 200 response that caches need.
    fn not_modified(&self, mark: u32, format: &Format, outcome: &Outcome) -> Reply {
        let mut reply = bare(StatusCode::NOT_MODIFIED);
        reply.headers.insert(VARY, BOTH);
        if let Some(now) = validators(outcome) {
            set(&mut reply, ETAG, self.etag(format, mark, now.version));
            set(&mut reply, LAST_MODIFIED, date(now.updated));
        }
        reply
    }

    fn found(
        &self,
        model: &Model,
        (collection, list): (&Collection, Option<&List>),
        format: &Format,
        outcome: &Outcome,
    ) -> Reply {
        let mark = collection.mark() ^ seal_of(list);
        let view = view(model, collection, list);
        let mut body = Vec::with_capacity(512);
        match outcome {
            // These have no collection.
            Outcome::Ready | Outcome::Positions(_) | Outcome::User(_) | Outcome::Stamp(_) => {
                document(json::status("ready"))
            }
            // A stored response, which `pipeline::idempotency` has replayed already.
            Outcome::Said(_) => speechless(),
            Outcome::Item(item) => {
                (format.item)(&mut body, view, item);
                let mut reply = data(StatusCode::OK, format, body);
                set(&mut reply, ETAG, self.etag(format, mark, item.version));
                set(&mut reply, LAST_MODIFIED, date(item.updated_at.seconds()));
                reply
            }
            Outcome::Page(page) => page_reply(model, (collection, list), (format, view), page),
            Outcome::Created(item) => {
                (format.item)(&mut body, view, item);
                let mut reply = data(StatusCode::CREATED, format, body);
                let location =
                    path(model, collection.resource, &collection.ancestors, Some(item.id));
                set(&mut reply, LOCATION, HeaderValue::try_from(location).ok());
                set(&mut reply, ETAG, self.etag(format, mark, item.version));
                reply
            }
            Outcome::CreatedMany(items) => {
                (format.items)(&mut body, view, items);
                data(StatusCode::CREATED, format, body)
            }
            // RFC 9110 §9.3.4: no ETag, since the data was not stored as it was sent.
            Outcome::Updated(item) => {
                (format.item)(&mut body, view, item);
                data(StatusCode::OK, format, body)
            }
            Outcome::Amended(item) => {
                (format.item)(&mut body, view, item);
                let mut reply = data(StatusCode::OK, format, body);
                set(&mut reply, ETAG, self.etag(format, mark, item.version));
                reply
            }
            Outcome::Removed => bare(StatusCode::NO_CONTENT),
        }
    }
}

/// The conditions of a write were evaluated in its transaction.
fn judge(outcome: &Outcome, conditions: &Conditions) -> Verdict {
    match outcome {
        Outcome::Item(_) => conditions.judge(validators(outcome), true),
        _ => Verdict::Holds,
    }
}

fn validators(outcome: &Outcome) -> Option<Validators> {
    match outcome {
        Outcome::Item(item) => Some(Validators::of(item)),
        _ => None,
    }
}

/// What a selection of members changes in the tag of an item.
fn seal_of(list: Option<&List>) -> u32 {
    list.map_or(0, |list| list.seal)
}

/// A resource as GET shows it to the caller, restricted to the members that a list selects.
pub fn view<'a>(model: &'a Model, collection: &'a Collection, list: Option<&'a List>) -> View<'a> {
    let hidden = collection.reach.unseen_fields(collection.resource);
    let chosen = list.and_then(|list| list.chosen.as_deref());
    View { resource: model.resource(collection.resource), hidden, chosen }
}

fn page_reply(
    model: &Model,
    (collection, list): (&Collection, Option<&List>),
    (format, view): (&Format, View<'_>),
    page: &Page,
) -> Reply {
    let last = page.items.last().filter(|_| page.next.is_some());
    let onward = last.zip(list).map(|(last, list)| {
        let path = path(model, collection.resource, &collection.ancestors, None);
        list.onward(&path, view.resource, last)
    });
    let cursor = onward.as_ref().map(|(cursor, _)| cursor.as_str());
    let mut body = Vec::with_capacity(256 + 256 * page.items.len());
    (format.page)(&mut body, view, page, cursor);
    let mut reply = data(StatusCode::OK, format, body);
    if let Some((_, address)) = onward {
        let link = format!("<{address}>; rel=\"next\"");
        set(&mut reply, LINK, HeaderValue::try_from(link).ok());
    }
    reply
}

/// `before` is `W/` for a weak tag.
fn tag(before: &str, number: i64, form: &str) -> HeaderValue {
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

fn date(seconds: i64) -> Option<HeaderValue> {
    let seconds = u64::try_from(seconds).ok()?;
    let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
    HeaderValue::try_from(httpdate::fmt_http_date(time)).ok()
}

fn set(reply: &mut Reply, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        reply.headers.insert(name, value);
    }
}

fn bare(status: StatusCode) -> Reply {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Reply { status, headers, body: Content::Whole(Bytes::new()) }
}

/// A response with a body, in a format chosen by `Accept`.
fn with_body(status: StatusCode, content_type: HeaderValue, body: Vec<u8>) -> Reply {
    let mut reply = bare(status);
    reply.headers.insert(CONTENT_TYPE, content_type);
    reply.headers.insert(VARY, BOTH);
    reply.headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply.body = body.into();
    reply
}

fn data(status: StatusCode, format: &Format, body: Vec<u8>) -> Reply {
    with_body(status, format.content_type.clone(), body)
}

fn document(body: Vec<u8>) -> Reply {
    data(StatusCode::OK, &json::FORMAT, body)
}

/// The response to a scrape.
pub fn metrics(text: String) -> Reply {
    with_body(StatusCode::OK, formats::METRICS_TYPE, text.into_bytes())
}

/// Builds a reply that needs only the model.
pub fn saying(model: &Model, saying: &Saying) -> Reply {
    match saying {
        Saying::Home(reach) => document(json::home(model, |index| reach.knows(index))),
        Saying::Health => document(json::status("ok")),
        Saying::Explain(kind) => document(json::explanation(kind)),
        Saying::Options(place) => {
            let mut reply = bare(StatusCode::NO_CONTENT);
            reply.headers.insert(ALLOW, allow(place));
            match place {
                Place::Collection(_) => {
                    reply.headers.insert(ACCEPT_POST, formats::readable());
                }
                Place::Item(_) => {
                    reply.headers.insert(formats::ACCEPT_PATCH, formats::patchable());
                }
                _ => {}
            }
            reply
        }
    }
}

/// 204, with the given headers.
pub fn nothing(headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Reply {
    let mut reply = bare(StatusCode::NO_CONTENT);
    reply.headers.extend(headers);
    reply
}

/// 308: the same request, at the URL without the slash.
pub fn moved(to: &str) -> Reply {
    let mut reply = bare(StatusCode::PERMANENT_REDIRECT);
    set(&mut reply, LOCATION, HeaderValue::try_from(to).ok());
    reply
}

/// The reason phrase of a status, as RFC 9110 §15 has it, where the library has an older one.
pub fn reason(status: StatusCode) -> Option<&'static str> {
    match status {
        StatusCode::PAYLOAD_TOO_LARGE => Some("Content Too Large"),
        StatusCode::UNPROCESSABLE_ENTITY => Some("Unprocessable Content"),
        _ => None,
    }
}

/// A 500 without a body, for when even a problem cannot be serialized.
pub fn speechless() -> Reply {
    bare(StatusCode::INTERNAL_SERVER_ERROR)
}

/// A problem in a format that the client listed, or without a body when none fits.
pub fn problem(problem: &Problem, accept: &Accept<'_>, occasion: json::Occasion<'_>) -> Reply {
    crate::fault::point("problem");
    let parts = problem.parts();
    let mut reply = match formats::choose_for_problem(accept) {
        _ if parts.kind == &problem::LOGGED_OUT && formats::prefers_words(accept) => {
            let words = format!("{}.\n\n{}\n", parts.kind.title, parts.kind.help);
            with_body(parts.kind.status, WORDS_TYPE, words.into_bytes())
        }
        Some(content_type) => {
            with_body(parts.kind.status, content_type, json::problem(parts, occasion))
        }
        None => {
            let mut reply = bare(parts.kind.status);
            reply.headers.insert(VARY, HeaderValue::from_static("Accept"));
            reply
        }
    };
    for (name, value) in &parts.headers {
        // Each challenge is a header line of its own; of any other header the last one counts.
        if name == WWW_AUTHENTICATE {
            reply.headers.append(name, value.clone());
        } else {
            reply.headers.insert(name, value.clone());
        }
    }
    reply
}
