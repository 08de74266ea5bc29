//! Output formats and content negotiation: one file for each format, one line in `ALL`.
//!
//! A format only serializes; it decides nothing. Domain types know no format.

pub mod accept;
pub mod cloud_event;
pub mod coding;
pub mod change;
mod csv;
pub mod event_stream;
mod format;
pub mod html;
pub mod json;
pub mod logged_item;
mod ndjson;
pub mod csv_input;

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::fault::OrBug as _;
use crate::problem::{self, Problem};
use accept::{Accept, MediaType, parse_content_type};
use change::ChangesView;
pub use format::{
    Format, ItemMember, ItemView, RelatedGroup, RelatedItems, RelatedMember, RelatedView,
    StreamWriter,
};
pub use html::Asset;

/// The kinds of body that a route can respond with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseOffer {
    /// No body, so there is nothing to negotiate.
    NoBody,
    /// An item, or a document.
    Data,
    /// A document that is a page for people too.
    DataOrPage,
    /// A collection: in any format.
    List,
    /// As `List`, or a page, or an event stream of the collection or the change log.
    ListOrEvents,
    /// As `DataOrPage`, or an event stream of the item.
    DataOrEvents,
    /// The OpenAPI document.
    OpenApi,
    /// A part of it, or the API reference as a page.
    OpenApiOrPage,
    /// The JSON Schema of a resource.
    Schema,
    /// Metrics in the text format of Prometheus.
    Metrics,
    /// A file of the pages.
    Asset(Asset),
}

/// The Prometheus text format; a client that asks only for another version of it gets 406.
const METRICS: MediaType = MediaType { essence: "text/plain", parameters: &[("version", "0.0.4")] };
pub const METRICS_TYPE: HeaderValue =
    HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");

/// The formats of files with items.
pub static CSV: &Format = &csv::FORMAT;
pub static NDJSON: &Format = &ndjson::FORMAT;

/// Every format, the preferred one first.
pub static ALL: &[&Format] = &[&json::FORMAT, &ndjson::FORMAT, &csv::FORMAT];

/// The formats of an item or a document.
static ITEM_FORMATS: &[&Format] = &[&json::FORMAT];

/// The same with pages and event streams, which a client gets only if it lists and prefers them.
static LIST_FORMATS_AND_EVENTS: &[&Format] =
    &[&json::FORMAT, &ndjson::FORMAT, &csv::FORMAT, &html::FORMAT, &event_stream::FORMAT];
static ITEM_FORMATS_AND_EVENTS: &[&Format] = &[&json::FORMAT, &html::FORMAT, &event_stream::FORMAT];
static ITEM_FORMATS_AND_PAGE: &[&Format] = &[&json::FORMAT, &html::FORMAT];

/// The documents that describe the interface: JSON, also under the names that their standards have registered.
static OPENAPI_FORMATS: &[&Format] = &[&json::FORMAT, &json::OPENAPI_FORMAT];
static OPENAPI_FORMATS_AND_PAGE: &[&Format] =
    &[&json::FORMAT, &json::OPENAPI_FORMAT, &html::FORMAT];
static SCHEMA_FORMATS: &[&Format] = &[&json::FORMAT, &json::SCHEMA_FORMAT];

/// Writes a page of the change log in one of the formats of lists.
pub fn write_changes(out: &mut Vec<u8>, format: &Format, page: &ChangesView<'_>) {
    if std::ptr::eq(format, &csv::FORMAT) {
        csv::write_changes(out, page);
    } else if std::ptr::eq(format, &ndjson::FORMAT) {
        change::write_lines(out, page);
    } else {
        change::write_json_page(out, page);
    }
}

/// Step 6: negotiates the response's format. The specification requires one of the listed types in
/// `Content-Type`; a response without a body has no type to refuse.
pub fn choose(accept: &Accept<'_>, offer: ResponseOffer) -> Result<&'static Format, Problem> {
    crate::fault::point("negotiate");
    let formats = match offer {
        // No item is written, so the format does not matter.
        ResponseOffer::NoBody => return Ok(&json::FORMAT),
        ResponseOffer::Metrics if accept.choose(&[METRICS]).is_some() => return Ok(&json::FORMAT),
        ResponseOffer::Asset(asset) if accept.choose(&[asset.media()]).is_some() => {
            return Ok(&json::FORMAT);
        }
        ResponseOffer::Metrics | ResponseOffer::Asset(_) => &[],
        ResponseOffer::Data => ITEM_FORMATS,
        ResponseOffer::DataOrPage => ITEM_FORMATS_AND_PAGE,
        ResponseOffer::OpenApi => OPENAPI_FORMATS,
        ResponseOffer::OpenApiOrPage => OPENAPI_FORMATS_AND_PAGE,
        ResponseOffer::Schema => SCHEMA_FORMATS,
        ResponseOffer::List => ALL,
        ResponseOffer::ListOrEvents => LIST_FORMATS_AND_EVENTS,
        ResponseOffer::DataOrEvents => ITEM_FORMATS_AND_EVENTS,
    };
    let types = formats.iter().map(|format| &format.media);
    // A stream has no end, and a page is for people: `text/*` selects neither.
    let is_eligible = |format: &&&Format| match format {
        format if html::is_chosen(format) => html::is_wanted(accept),
        format if event_stream::is_chosen(format) => accept.names(&format.media),
        _ => true,
    };
    let eligible = formats.iter().filter(is_eligible);
    let index = accept.choose(eligible.clone().map(|format| &format.media));
    let chosen = index.and_then(|index| eligible.clone().nth(index));
    chosen.copied().ok_or_else(|| {
        let other = match offer {
            ResponseOffer::Metrics => Some(METRICS),
            ResponseOffer::Asset(asset) => Some(asset.media()),
            _ => None,
        };
        let offered: Vec<&str> = types.copied().chain(other).map(|media| media.essence).collect();
        let offered = offered.join(", ");
        Problem::new(&problem::NOT_ACCEPTABLE).detail(format!("what can be sent: {offered}"))
    })
}

const PROBLEM_TYPES: [MediaType; 2] = [
    MediaType { essence: "application/problem+json", parameters: &[] },
    MediaType { essence: "application/json", parameters: &[] },
];

/// The media type of a problem; `None` when the client accepts neither.
pub fn choose_for_problem(accept: &Accept<'_>) -> Option<HeaderValue> {
    let chosen = accept.choose(&PROBLEM_TYPES).and_then(|index| PROBLEM_TYPES.get(index));
    chosen.map(|media| HeaderValue::from_static(media.essence))
}

/// Whether the client prefers a page to a problem in JSON. It has to list the type by name.
pub fn prefers_page(accept: &Accept<'_>) -> bool {
    let page = &html::FORMAT.media;
    let offered = PROBLEM_TYPES.iter().chain([page]);
    html::is_wanted(accept) && accept.choose(offered) == Some(PROBLEM_TYPES.len())
}

/// Whether the client prefers plain text, so that a problem for a person is better sent as text.
pub fn prefers_plain_text(accept: &Accept<'_>) -> bool {
    let words = MediaType { essence: "text/plain", parameters: &[] };
    accept.choose([&words].into_iter().chain(&PROBLEM_TYPES)) == Some(0)
}

/// The form of a body with new items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyForm {
    /// JSON under a wrapper key, one item or a list.
    Wrapped,
    /// NDJSON: one JSON object a line, without a wrapper.
    Ndjson,
    /// CSV: a header line, then one row for each item.
    Csv,
}

/// The media types of new items. PUT accepts only the first, JSON.
const BODY_TYPES: [(&str, BodyForm); 3] = [
    ("application/json", BodyForm::Wrapped),
    ("application/x-ndjson", BodyForm::Ndjson),
    ("text/csv", BodyForm::Csv),
];

/// The media types of a body, as the response headers `Accept` and `Accept-Post` list them.
pub fn accepted_types() -> HeaderValue {
    join_types(&BODY_TYPES)
}

/// The form of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchForm {
    /// JSON Merge Patch (RFC 7396).
    MergePatch,
    /// JSON Patch (RFC 6902).
    JsonPatch,
}

impl PatchForm {
    /// The media types of a patch. Plain JSON is treated as a merge patch.
    pub const ALL: [(&'static str, Self); 3] = [
        ("application/merge-patch+json", Self::MergePatch),
        ("application/json-patch+json", Self::JsonPatch),
        ("application/json", Self::MergePatch),
    ];
}

/// The media types of a patch, as `Accept-Patch` lists them (RFC 5789 §3.1).
pub const ACCEPT_PATCH: HeaderName = HeaderName::from_static("accept-patch");
pub fn accepted_patch_types() -> HeaderValue {
    join_types(&PatchForm::ALL)
}

fn join_types<T>(types: &[(&str, T)]) -> HeaderValue {
    let types: Vec<&str> = types.iter().map(|(essence, _)| *essence).collect();
    HeaderValue::try_from(types.join(", ")).or_bug("the names of media types are ASCII")
}

/// Step 7: whether the server can parse the new items.
pub fn check_body_type(headers: &HeaderMap) -> Result<BodyForm, Problem> {
    find_body_form(headers, &BODY_TYPES)?.ok_or_else(|| unsupported_type(&BODY_TYPES))
}

/// Step 7, for PUT.
pub fn check_json_type(headers: &HeaderMap) -> Result<(), Problem> {
    let types = [("application/json", ())];
    find_body_form(headers, &types)?.ok_or_else(|| unsupported_type(&types))
}

/// Step 7, for a patch.
pub fn check_patch_type(headers: &HeaderMap) -> Result<PatchForm, Problem> {
    find_body_form(headers, &PatchForm::ALL)?.ok_or_else(|| {
        unsupported_type(&PatchForm::ALL).header(ACCEPT_PATCH, accepted_patch_types())
    })
}

/// The media types of a query, as `Accept-Query` lists them (RFC 10008 §3).
pub const ACCEPT_QUERY: HeaderName = HeaderName::from_static("accept-query");
pub const ACCEPTED_QUERY_TYPE: HeaderValue = HeaderValue::from_static("application/json");

/// Step 7, for QUERY. RFC 10008 §2: a query without a type is refused.
pub fn check_query_type(headers: &HeaderMap) -> Result<(), Problem> {
    let types = [("application/json", ())];
    let found = find_body_form(headers, &types)?.filter(|()| headers.contains_key(CONTENT_TYPE));
    found.ok_or_else(|| unsupported_type(&types).header(ACCEPT_QUERY, ACCEPTED_QUERY_TYPE))
}

/// 415, with the accepted types: in a response, `Accept` lists them (RFC 9110 §12.5.1).
fn unsupported_type<T>(types: &[(&str, T)]) -> Problem {
    let types = join_types(types);
    let listed = types.to_str().or_bug("the names of media types are ASCII");
    Problem::new(&problem::UNSUPPORTED_TYPE)
        .detail(format!("what can be read here: {listed}"))
        .header(ACCEPT, types)
}

/// The form that belongs to the type of the body. A body without a type is parsed as JSON.
fn find_body_form<T: Copy>(headers: &HeaderMap, types: &[(&str, T)]) -> Result<Option<T>, Problem> {
    let codings = headers.get_all(CONTENT_ENCODING).iter();
    if codings.into_iter().any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity")) {
        // RFC 9110 §12.5.3: a 415 lists the accepted codings.
        let identity = HeaderValue::from_static("identity");
        return Err(Problem::new(&problem::UNSUPPORTED_CODING)
            .detail("what can be read here: identity, which is no coding")
            .header(ACCEPT_ENCODING, identity));
    }
    let find = |is_sent: &dyn Fn(&str) -> bool| {
        types.iter().find(|(essence, _)| is_sent(essence)).map(|(_, form)| *form)
    };
    let mut sent = headers.get_all(CONTENT_TYPE).iter();
    Ok(match (sent.next(), sent.next()) {
        (None, _) => find(&|essence| essence == "application/json"),
        // Nearly all clients send the bare name.
        (Some(value), None) => find(&|essence| value == essence).or_else(|| {
            let sent = value.to_str().ok().and_then(parse_content_type)?;
            // RFC 4180 §3: CSV may have no header line, but then the columns have no names.
            let is_nameless =
                sent.has_essence("text/csv") && sent.has_parameter("header", "absent");
            find(&|essence| sent.is_utf8() && !is_nameless && sent.has_essence(essence))
        }),
        (Some(_), Some(_)) => None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_negotiate_to_their_own_content_type() {
        for (index, format) in ALL.iter().enumerate() {
            assert!(format.content_type.as_bytes().starts_with(format.media.essence.as_bytes()));
            assert!(ALL[index + 1..].iter().all(|other| other.media != format.media), "{format:?}");
            let only = [format.media.essence.as_bytes()];
            let chosen = choose(&accept::parse(only), ResponseOffer::List).unwrap();
            assert_eq!(chosen.media, format.media);
            let of_an_item = choose(&accept::parse(only), ResponseOffer::Data);
            assert_eq!(of_an_item.is_ok(), format.stream_writer.is_none(), "{format:?}");
        }
    }

    #[test]
    fn metrics_offer_only_the_prometheus_format() {
        let sent = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;\
            version=0.0.1;q=0.4,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.3,\
            text/plain;version=0.0.4;q=0.2,*/*;q=0.1";
        let is_fine = |sent: &str, offer| choose(&accept::parse([sent.as_bytes()]), offer).is_ok();
        for sent in [sent, "*/*", "text/plain", "text/*", "text/plain; charset=utf-8"] {
            assert!(is_fine(sent, ResponseOffer::Metrics), "{sent}");
        }
        for sent in ["application/json", "text/plain;version=1.0.0", "text/html", "*/*;q=0"] {
            assert!(!is_fine(sent, ResponseOffer::Metrics), "{sent}");
            assert!(is_fine(sent, ResponseOffer::NoBody), "{sent}");
        }
        assert!(!is_fine("text/plain", ResponseOffer::Data));
    }
}
