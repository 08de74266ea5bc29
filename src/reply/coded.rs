//! An answer as it goes out to a client that would have it coded.
//!
//! Here alone, so that no answer has a coding without the tag of that coding, or the other way round: all
//! before this speaks of the bytes as they are. A weak tag is left as it is, since it says the same of
//! every coding.

use http::HeaderValue;
use http::header::{CONTENT_ENCODING, ETAG};

use super::{Content, Reply};
use crate::formats::coding::Choice;

/// `body` is what came of its body, where that was coded.
pub fn coded(reply: &mut Reply, choice: Choice, body: Option<Content>) {
    if let Some(body) = body {
        reply.headers.insert(CONTENT_ENCODING, choice.name());
        reply.body = body;
    } else if reply.body.whole().is_none_or(|bytes| choice.covers(bytes.len())) {
        // It should have been, and could not: these are not the bytes that a strong tag would speak of.
        let is_strong = |tag: &HeaderValue| tag.as_bytes().starts_with(b"\"");
        if reply.headers.get(ETAG).is_some_and(is_strong) {
            reply.headers.remove(ETAG);
        }
    }
    if let Some(tag) = reply.headers.get_mut(ETAG)
        && let Some(marked) = tag.to_str().ok().and_then(|text| marked(text, choice.mark()))
    {
        *tag = marked;
    }
}

/// `"<version>-<f>"` with the coding in `f`.
fn marked(tag: &str, mark: u32) -> Option<HeaderValue> {
    let (version, f) = tag.strip_prefix('"')?.strip_suffix('"')?.rsplit_once('-')?;
    HeaderValue::try_from(format!("\"{version}-{}\"", mix(f, mark))).ok()
}

/// The hash in a tag, with something more that changes the bytes.
pub(super) fn mix(f: &str, mark: u32) -> String {
    let mixed = u32::from_str_radix(f, 16).unwrap_or_default() ^ mark;
    format!("{mixed:08x}")
}
