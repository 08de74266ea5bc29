//! Responses to writes whose item the caller may not read: status and `Location` only.
//!
//! Pure. Write verbs are granted separately from GET, so a caller may change items that they cannot read; the
//! response must not reveal these.

use http::header::LOCATION;
use http::{HeaderValue, StatusCode};

use super::{Reply, ReplyBuilder, deprecation, empty_reply, insert_header};
use crate::intent::format_path;
use crate::model::Model;
use crate::plan::{Collection, Outcome};

impl ReplyBuilder {
    /// The response to a write whose item a GET by the same caller would not show: status and `Location`
    /// only.
    pub fn write_only_reply(
        &self,
        model: &Model,
        collection: &Collection,
        outcome: &Outcome,
    ) -> Reply {
        let mut reply = match outcome {
            Outcome::Created(item) => {
                let mut reply = empty_reply(StatusCode::CREATED);
                let location =
                    format_path(model, collection.resource, &collection.ancestors, Some(item.id));
                insert_header(&mut reply, LOCATION, HeaderValue::try_from(location).ok());
                reply
            }
            Outcome::CreatedMany(_) => empty_reply(StatusCode::CREATED),
            _ => empty_reply(StatusCode::NO_CONTENT),
        };
        if self.may_be_deprecated.get(collection.resource.0) == Some(&true) {
            deprecation::add_headers(&mut reply.headers, model, collection, Some(&[]));
        }
        reply
    }
}

/// Whether the caller may read all items of an outcome. Items that were read have passed the rules of GET.
pub fn is_readable(model: &Model, collection: &Collection, outcome: &Outcome) -> bool {
    let resource = model.resource(collection.resource);
    match outcome {
        Outcome::Created(_)
        | Outcome::CreatedMany(_)
        | Outcome::Updated(_)
        | Outcome::Patched(_) => {
            outcome.items().iter().all(|item| collection.scope.can_read_item(resource, item))
        }
        Outcome::Ready
        | Outcome::ChangeLogBounds(_)
        | Outcome::User(_)
        | Outcome::Stamp(_)
        | Outcome::Item(_)
        | Outcome::Page(_)
        | Outcome::Removed
        | Outcome::Idempotent(_) => true,
    }
}
