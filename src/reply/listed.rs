//! The tag of a list, and what is said to whom has it already.
//!
//! Pure. The tag is weak: it is made of the place of the list in the change log, which says that nothing
//! was changed, and not of the bytes.
//! The one surprising thing: who reaches only some rows gets a tag of the bytes. A tag of the log would
//! tell them when a row changes that is out of their reach.

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
    /// What our tags of a list have after the number.
    pub(super) fn list_form(&self, format: &Format, mark: u32, seal: u32) -> String {
        format!("{}{seal:08x}", self.form(format, mark).unwrap_or_default())
    }

    /// A page, unless the client has it, or does not want it.
    pub(super) fn listed(
        &self,
        model: &Model,
        (collection, list): (&Collection, Option<&List>),
        (format, conditions): (&Format, &Conditions),
        page: &Page,
    ) -> Result<Reply, Problem> {
        let view = view(model, collection, list);
        let whole = || page_reply(model, (collection, list), (format, view), page);
        // A page that the client has was not read, so it is not written either.
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

/// Larger than any place in the log will ever be.
fn digest(body: &[u8]) -> i64 {
    let hash = Sha256::digest(body);
    let number = hash.first_chunk().map_or(0, |bytes| i64::from_be_bytes(*bytes));
    number & i64::MAX | 1 << 62
}
