//! `Content-Encoding` and the entity tag of an encoded response.
//!
//! Only this code sets them, so that no response has a coding without the tag of that coding, or the other
//! way round: all code before this point deals with the unencoded bytes. A weak tag stays as it is, since
//! it means the same in every coding.

use http::HeaderValue;
use http::header::{CONTENT_ENCODING, ETAG};

use super::parts::Reply;
use super::response_body::ResponseBody;
use crate::formats::coding::CodingChoice;

/// Applies the chosen coding to the headers. `body` is the encoded body, if it was encoded.
pub fn apply_coding(reply: &mut Reply, choice: CodingChoice, body: Option<ResponseBody>) {
    if let Some(body) = body {
        reply.headers.insert(CONTENT_ENCODING, choice.name());
        reply.body = body;
    } else if reply.body.whole().is_none_or(|bytes| choice.applies_to(bytes.len())) {
        // The body should be encoded and could not be: the strong tag would name other bytes than these.
        let is_strong = |tag: &HeaderValue| tag.as_bytes().starts_with(b"\"");
        if reply.headers.get(ETAG).is_some_and(is_strong) {
            reply.headers.remove(ETAG);
        }
    }
    if let Some(tag) = reply.headers.get_mut(ETAG)
        && let Some(marked) =
            tag.to_str().ok().and_then(|text| tag_with_coding(text, choice.tag_number()))
    {
        *tag = marked;
    }
}

/// `"<version>-<f>"` with the coding mixed into `f`.
fn tag_with_coding(tag: &str, mark: u32) -> Option<HeaderValue> {
    let (version, f) = tag.strip_prefix('"')?.strip_suffix('"')?.rsplit_once('-')?;
    let hash = u32::from_str_radix(f, 16).ok()? ^ mark;
    HeaderValue::try_from(format!("\"{version}-{hash:08x}\"")).ok()
}
