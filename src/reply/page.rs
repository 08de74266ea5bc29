//! Pages: the headers of a reply whose body is HTML, and the files that pages load.

use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, HeaderMap, LAST_MODIFIED,
    REFERRER_POLICY,
};
use http::{HeaderName, HeaderValue, StatusCode};

use super::document::{document_conditions, tagged};
use super::parts::{BODY_NUMBER_MIN, Reply, with_body};
use crate::formats::{Asset, html};
use crate::intent::preconditions::Preconditions;
use crate::pages;
use crate::problem::Problem;

/// Pages load the stylesheet and the script of this server only, and send requests to it only.
const PAGE_POLICY: HeaderValue = HeaderValue::from_static(
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
);
/// Paths have ids, and queries have values.
const REFERRER: (HeaderName, HeaderValue) =
    (REFERRER_POLICY, HeaderValue::from_static("same-origin"));

/// The page in place of the JSON of a reply. Its tag is made from its bytes, because it shows more than the item
/// or the list.
pub fn into_page(reply: Reply, page: String, sent: &HeaderMap) -> Result<Reply, Problem> {
    let mut reply = with_page(reply, page);
    reply.headers.remove(LAST_MODIFIED);
    let mut reply = tagged(reply, &document_conditions(sent))?;
    // RFC 9111 §3.2: the headers of a 304 replace those of the stored page.
    add_policies(&mut reply.headers);
    Ok(reply)
}

/// The position in the change log that a list reflects, by its tag. The tag of a list under row-level security is
/// made from its bytes instead, and has a number that no log reaches.
pub fn list_position(reply: &Reply) -> Option<i64> {
    let tag = reply.headers.get(ETAG)?.to_str().ok()?;
    let number = tag.strip_prefix("W/\"")?.split('-').next()?;
    number.parse().ok().filter(|number| *number < BODY_NUMBER_MIN)
}

/// A page in place of the JSON of a reply, with its status and its other headers.
pub fn with_page(mut reply: Reply, page: String) -> Reply {
    reply.headers.insert(CONTENT_TYPE, html::FORMAT.content_type.clone());
    add_policies(&mut reply.headers);
    reply.headers.remove(ETAG);
    reply.body = page.into();
    reply
}

fn add_policies(headers: &mut HeaderMap) {
    headers.insert(CONTENT_SECURITY_POLICY, PAGE_POLICY);
    headers.insert(REFERRER.0, REFERRER.1);
}

/// A file that pages load. A page names its version, which is a hash of the content: such a response never changes.
pub fn asset(
    asset: Asset,
    version: Option<&str>,
    conditions: &Preconditions,
) -> Result<Reply, Problem> {
    let content = pages::asset_text(asset).as_bytes().to_vec();
    let reply = with_body(StatusCode::OK, asset.content_type(), content);
    let mut reply = tagged(reply, conditions)?;
    if version == Some(pages::asset_version(asset)) {
        let forever = HeaderValue::from_static("public, max-age=31536000, immutable");
        reply.headers.insert(CACHE_CONTROL, forever);
    }
    Ok(reply)
}
