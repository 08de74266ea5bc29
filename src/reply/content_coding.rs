//! `Content-Encoding` and the entity tag of an encoded response.
//!
//! Only this code sets them, so that no response has a coding without the tag of that coding, or the other
//! way round: all code before this point deals with the unencoded bytes. A weak tag stays as it is, since
//! it means the same in every coding.

use http::HeaderValue;
use http::header::{CONTENT_ENCODING, ETAG, HeaderMap};

use crate::formats::coding::CodingChoice;

/// The result of encoding a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodingResult {
    Encoded,
    /// It is sent as it is, because it is small.
    TooSmall,
    /// It is sent as it is, although it should be encoded.
    NoMemory,
}

/// Applies the chosen coding to the headers of a response.
pub fn apply_coding(headers: &mut HeaderMap, choice: CodingChoice, result: CodingResult) {
    match result {
        CodingResult::Encoded => {
            headers.insert(CONTENT_ENCODING, choice.name());
        }
        CodingResult::TooSmall => {}
        CodingResult::NoMemory => {
            // The strong tag would name other bytes than these.
            let is_strong = |tag: &HeaderValue| tag.as_bytes().starts_with(b"\"");
            if headers.get(ETAG).is_some_and(is_strong) {
                headers.remove(ETAG);
            }
        }
    }
    if let Some(tag) = headers.get_mut(ETAG)
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
