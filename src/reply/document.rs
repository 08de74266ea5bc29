//! Documents that describe the interface, and the tags of replies that are made from their bytes.

use http::header::{ETAG, HeaderMap};
use http::{HeaderValue, StatusCode};

use super::parts::{Reply, body_number, formatted_reply, not_modified};
use crate::fault::OrBug as _;
use crate::formats::Format;
use crate::intent::preconditions::{PreconditionResult, Preconditions};
use crate::problem::{self, Problem};

/// The part of a document's tag after its number.
pub const DOCUMENT_FORM: &str = "document";

/// A document that describes the interface. Its tag is weak, so that it is the same in every coding.
pub fn document(
    body: Vec<u8>,
    format: &Format,
    conditions: &Preconditions,
) -> Result<Reply, Problem> {
    tagged(formatted_reply(StatusCode::OK, format, body), conditions)
}

/// A reply with the tag of its body, or 304 if the client has it, or 412 if its condition fails.
pub fn tagged(mut reply: Reply, conditions: &Preconditions) -> Result<Reply, Problem> {
    let number = body_number(&reply.body);
    let tag = HeaderValue::try_from(format!("W/\"{number}-{DOCUMENT_FORM}\""));
    let tag = tag.or_bug("digits and letters are valid in a header");
    match conditions.evaluate_for_list(Some(number)) {
        PreconditionResult::Holds => {
            reply.headers.insert(ETAG, tag);
            Ok(reply)
        }
        PreconditionResult::NotModified => Ok(not_modified(Some(tag))),
        PreconditionResult::Fails => {
            Err(Problem::new(&problem::PRECONDITION_FAILED).header(ETAG, tag))
        }
    }
}

/// The conditions of a request for a document or a page.
pub fn document_conditions(headers: &HeaderMap) -> Preconditions {
    Preconditions::read(headers, || DOCUMENT_FORM.to_owned())
}
