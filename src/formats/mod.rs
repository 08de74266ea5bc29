//! How things look on the wire: one file a format, one line in `ALL`.
//!
//! A format writes what it is given into bytes; it decides nothing. Domain types know no format.

pub mod accept;
pub mod json;

use std::fmt;

use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue};

use crate::model::{Model, Resource};
use crate::problem::{self, Problem};
use crate::value::{Item, Page};
use accept::{Accept, Media, content_type};

/// A media type that items can be sent as.
pub struct Format {
    pub media: Media,
    /// The value of `Content-Type`.
    pub content_type: HeaderValue,
    pub item: fn(&mut Vec<u8>, &Model, &Resource, &Item),
    pub items: fn(&mut Vec<u8>, &Model, &Resource, &[Item]),
    /// The cursor of the next page, if there is one, comes as text.
    pub page: fn(&mut Vec<u8>, &Model, &Resource, &Page, Option<&str>),
}

impl fmt::Debug for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.media.essence)
    }
}

/// Every format, the preferred one first.
pub static ALL: &[&Format] = &[&json::FORMAT];

/// Step 6: what to answer with. The specification says that `Content-Type` is one of the listed
/// types; where there is no body, there is nothing to refuse.
pub fn choose(accept: &Accept<'_>, has_answer: bool) -> Result<&'static Format, Problem> {
    if !has_answer {
        return Ok(&json::FORMAT);
    }
    let offered: [Media; 1] = [json::FORMAT.media];
    let chosen = accept::choose(accept, &offered).and_then(|index| ALL.get(index));
    chosen.copied().ok_or_else(|| {
        Problem::new(&problem::NOT_ACCEPTABLE).detail("application/json can be sent")
    })
}

/// The types a problem can be sent as: `None` when the client listed neither.
pub fn choose_for_problem(accept: &Accept<'_>) -> Option<HeaderValue> {
    let media = |essence| Media { essence, parameters: &[] };
    let offered = [media("application/problem+json"), media("application/json")];
    accept::choose(accept, &offered)
        .and_then(|index| offered.get(index))
        .map(|media| HeaderValue::from_static(media.essence))
}

/// Step 7: can the body be read? A body without a type is taken as JSON.
pub fn check_readable(headers: &HeaderMap, has_body: bool) -> Result<(), Problem> {
    if !has_body {
        return Ok(());
    }
    let coding = headers
        .get_all(CONTENT_ENCODING)
        .iter()
        .any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"));
    if coding {
        // RFC 9110 §12.5.3: says which codings would have been fine.
        let identity = HeaderValue::from_static("identity");
        return Err(Problem::new(&problem::UNSUPPORTED_CODING).header(ACCEPT_ENCODING, identity));
    }
    let mut types = headers.get_all(CONTENT_TYPE).iter();
    let readable = match (types.next(), types.next()) {
        (None, _) => true,
        (Some(value), None) => value
            .to_str()
            .ok()
            .and_then(content_type)
            .is_some_and(|sent| sent.is(json::FORMAT.media.essence) && sent.is_utf8()),
        (Some(_), Some(_)) => false,
    };
    if readable {
        return Ok(());
    }
    // RFC 9110 §12.5.1: in an answer, Accept says what can be read.
    let accept = HeaderValue::from_static(json::FORMAT.media.essence);
    Err(Problem::new(&problem::UNSUPPORTED_TYPE).header(ACCEPT, accept))
}
