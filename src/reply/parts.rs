//! A response before it is sent, and how its parts are made.

use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, HeaderMap, VARY, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderName, HeaderValue, StatusCode};
use sha2::{Digest as _, Sha256};

use crate::fault::OrBug as _;
use crate::formats::{Format, event_stream, json};

/// The headers that every response with a body varies by, also one that is too small to be compressed: the
/// next one from the same URL may be large.
pub const VARY_ACCEPT_AND_ENCODING: HeaderValue =
    HeaderValue::from_static("Accept, Accept-Encoding");

/// Makes nginx pass on each chunk at once.
const X_ACCEL_BUFFERING: HeaderName = HeaderName::from_static("x-accel-buffering");

/// A response before the server sends it.
#[derive(Debug)]
pub struct Reply<B = Bytes> {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub body: B,
}

impl<B> Reply<B> {
    /// The same response with another kind of body.
    pub fn map<C>(self, convert: impl FnOnce(B) -> C) -> Reply<C> {
        let Self { status, headers, body } = self;
        Reply { status, headers, body: convert(body) }
    }
}

pub fn http_date(seconds: i64) -> Option<HeaderValue> {
    let seconds = u64::try_from(seconds).ok()?;
    let time = UNIX_EPOCH + Duration::from_secs(seconds);
    HeaderValue::try_from(httpdate::fmt_http_date(time)).ok()
}

pub fn insert_header(reply: &mut Reply, name: HeaderName, value: Option<HeaderValue>) {
    if let Some(value) = value {
        reply.headers.insert(name, value);
    }
}

pub fn empty_reply(status: StatusCode) -> Reply {
    let mut headers = HeaderMap::with_capacity(12);
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, no-cache"));
    Reply { status, headers, body: Bytes::new() }
}

/// RFC 9110 §15.4.5: the headers of the 200 response that caches need.
pub fn not_modified(tag: Option<HeaderValue>) -> Reply {
    let mut reply = empty_reply(StatusCode::NOT_MODIFIED);
    reply.headers.insert(VARY, VARY_ACCEPT_AND_ENCODING);
    insert_header(&mut reply, ETAG, tag);
    reply
}

/// A response with a body, in a format chosen by `Accept`.
pub fn with_body(status: StatusCode, content_type: HeaderValue, body: Vec<u8>) -> Reply {
    let mut reply = empty_reply(status);
    reply.headers.insert(CONTENT_TYPE, content_type);
    reply.headers.insert(VARY, VARY_ACCEPT_AND_ENCODING);
    reply.headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    reply.body = body.into();
    reply
}

/// A response that streams events. No cache and no proxy may hold them back or change them.
pub fn event_stream<B>(body: B) -> Reply<B> {
    let mut reply = formatted_reply(StatusCode::OK, &event_stream::FORMAT, Vec::new());
    let headers = &mut reply.headers;
    let uncached = HeaderValue::from_static("private, no-cache, no-transform");
    headers.insert(CACHE_CONTROL, uncached);
    headers.insert(X_ACCEL_BUFFERING, HeaderValue::from_static("no"));
    reply.map(|_| body)
}

pub fn formatted_reply(status: StatusCode, format: &Format, body: Vec<u8>) -> Reply {
    with_body(status, format.content_type.clone(), body)
}

pub fn json_reply(body: Vec<u8>) -> Reply {
    formatted_reply(StatusCode::OK, &json::FORMAT, body)
}

fn hex_digit(number: u8) -> u8 {
    if number < 10 { b'0' + number } else { b'a' + number - 10 }
}

/// An entity tag; `before` is `W/` for a weak one.
pub fn entity_tag(before: &str, number: i64, hashes: &[u32]) -> HeaderValue {
    let mut digits = itoa::Buffer::new();
    let number = digits.format(number).as_bytes();
    // The exact capacity, so that the header value is made without a copy.
    let mut tag = Vec::with_capacity(before.len() + number.len() + 8 * hashes.len() + 3);
    tag.extend_from_slice(before.as_bytes());
    tag.push(b'"');
    tag.extend_from_slice(number);
    tag.push(b'-');
    for hash in hashes {
        tag.extend(
            hash.to_be_bytes().iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_digit),
        );
    }
    tag.push(b'"');
    HeaderValue::from_maybe_shared(Bytes::from(tag)).or_bug("digits are valid in a header")
}

/// ETag numbers that are made from a body are at or above this one; positions in the change log are below it.
pub const BODY_NUMBER_MIN: i64 = 1 << 62;

/// The number of an ETag that is made from a body.
pub fn body_number(body: &[u8]) -> i64 {
    let hash: [u8; 32] = Sha256::digest(body).into();
    let first = hash.first_chunk().or_bug("a SHA-256 hash has 32 bytes");
    i64::from_be_bytes(*first) & i64::MAX | BODY_NUMBER_MIN
}
