//! Entity tags of lists, and `304 Not Modified` for a client that has the list already.
//!
//! Pure. The tag is weak: it is made from the list's position in the change log, which tells whether anything
//! was changed, and not from the bytes. Only under row-level security is the tag made from the bytes, because
//! the position would reveal when a row changes that the caller cannot see.

use http::StatusCode;
use http::header::ETAG;
use sha2::{Digest, Sha256};

use super::{
    Reply, ReplyBuilder, VARY, VARY_ACCEPT_AND_ENCODING, empty_reply, entity_tag, page_reply, view,
};
use crate::formats::Format;
use crate::intent::ListQuery;
use crate::intent::preconditions::{PreconditionResult, Preconditions};
use crate::model::Model;
use crate::plan::{Collection, RequestRefusal};
use crate::problem::Problem;
use crate::store::StoreError;
use crate::value::Page;

impl ReplyBuilder {
    /// The suffix of our list tags, after the number.
    pub fn list_form_hash(&self, format: &Format, mark: u32, seal: u32) -> String {
        format!("{}{seal:08x}", self.form_hash(format, mark).unwrap_or_default())
    }

    /// A page, or 304 if the client has it, or 412 if its condition fails.
    pub fn page_or_not_modified(
        &self,
        model: &Model,
        (collection, list): (&Collection, Option<&ListQuery>),
        (format, conditions): (&Format, &Preconditions),
        page: &Page,
    ) -> Result<Reply, Problem> {
        let view = view(model, collection, list);
        let whole = || page_reply(model, (collection, list), (format, view), page);
        // A page that the client has was not read from the store, so it is not serialized either.
        let (number, written) = match page.position {
            Some(position) => (position, None),
            None => {
                let reply = whole();
                (body_number(reply.body.whole().map_or(&[], |bytes| bytes)), Some(reply))
            }
        };
        let tag = entity_tag(
            "W/",
            number,
            &self.list_form_hash(
                format,
                collection.hidden_fields_hash(),
                list.map_or(0, |list| list.query_hash),
            ),
        );
        match conditions.evaluate_for_list(Some(number)) {
            PreconditionResult::Holds => {
                let mut reply = written.unwrap_or_else(whole);
                reply.headers.insert(ETAG, tag);
                Ok(reply)
            }
            PreconditionResult::NotModified => {
                let mut reply = empty_reply(StatusCode::NOT_MODIFIED);
                reply.headers.insert(VARY, VARY_ACCEPT_AND_ENCODING);
                reply.headers.insert(ETAG, tag);
                Ok(reply)
            }
            PreconditionResult::Fails => {
                let unmet = StoreError::Refused(RequestRefusal::PreconditionFailed(None));
                Err(self.failure(model, (Some(collection), list), format, unmet).header(ETAG, tag))
            }
        }
    }
}

/// A number larger than any position in the log will ever be.
fn body_number(body: &[u8]) -> i64 {
    let hash = Sha256::digest(body);
    let number = hash.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    number & i64::MAX | 1 << 62
}
