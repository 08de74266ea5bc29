//! Entity tags of lists, and `304 Not Modified` for a client that has the list already.
//!
//! Pure. The tag is weak: it is made of the list's position in the change log, which says that nothing was
//! changed, and not of the bytes. The one surprising thing: under row-level security a list gets a tag of
//! its bytes. A tag of the log would reveal when a row changes that the caller cannot see.

use http::StatusCode;
use http::header::ETAG;
use sha2::{Digest, Sha256};

use super::{BOTH, Replies, Reply, VARY, bare, page_reply, tag, view};
use crate::formats::Format;
use crate::intent::List;
use crate::intent::conditions::{Conditions, Verdict};
use crate::model::Model;
use crate::plan::{Collection, Refusal};
use crate::problem::Problem;
use crate::store::StoreError;
use crate::value::Page;

impl Replies {
    /// What our list tags have after the number.
    pub(super) fn list_form(&self, format: &Format, mark: u32, seal: u32) -> String {
        format!("{}{seal:08x}", self.form(format, mark).unwrap_or_default())
    }

    /// A page, or 304 if the client has it, or 412 if its condition fails.
    pub(super) fn listed(
        &self,
        model: &Model,
        (collection, list): (&Collection, Option<&List>),
        (format, conditions): (&Format, &Conditions),
        page: &Page,
    ) -> Result<Reply, Problem> {
        let view = view(model, collection, list);
        let whole = || page_reply(model, (collection, list), (format, view), page);
        // A page that the client has was not read from the store, so it is not serialized either.
        let (number, written) = match page.position {
            Some(position) => (position, None),
            None => {
                let reply = whole();
                (digest(reply.body.whole().map_or(&[], |bytes| bytes)), Some(reply))
            }
        };
        let tag = tag(
            "W/",
            number,
            &self.list_form(format, collection.mark(), list.map_or(0, |list| list.seal)),
        );
        match conditions.judge_list(Some(number)) {
            Verdict::Holds => {
                let mut reply = written.unwrap_or_else(whole);
                reply.headers.insert(ETAG, tag);
                Ok(reply)
            }
            Verdict::NotModified => {
                let mut reply = bare(StatusCode::NOT_MODIFIED);
                reply.headers.insert(VARY, BOTH);
                reply.headers.insert(ETAG, tag);
                Ok(reply)
            }
            Verdict::Fails => {
                let unmet = StoreError::Refused(Refusal::Unmet(None));
                Err(self.failure(model, (Some(collection), list), format, unmet).header(ETAG, tag))
            }
        }
    }
}

/// A number larger than any position in the log will ever be.
fn digest(body: &[u8]) -> i64 {
    let hash = Sha256::digest(body);
    let number = hash.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    number & i64::MAX | 1 << 62
}
