//! The headers of an item's history: the link to its changes (RFC 5829), and those of an item as it was (RFC 7089).

use bytes::Bytes;
use http::header::{CONTENT_LOCATION, LINK};
use http::{HeaderName, HeaderValue};

use super::parts::{Reply, http_date, insert_header};
use crate::fault::OrBug as _;
use crate::formats::ItemMember;
use crate::intent::{format_path, push_unprefixed_path};
use crate::model::{ChangeLogDetail, Model, Resource};
use crate::plan::Collection;
use crate::value::{Id, Item};

const MEMENTO_DATETIME: HeaderName = HeaderName::from_static("memento-datetime");
const VERSION_HISTORY: &str = ">; rel=\"version-history\"";

/// The parts of the links that all items of a model have in common.
#[derive(Debug)]
pub struct HistoryLinks {
    /// The link up to the path of the item.
    start: Box<str>,
    /// For each resource: whether the change log has values.
    has_values: Vec<bool>,
}

impl HistoryLinks {
    pub fn new(model: &Model) -> Self {
        let base_path = model.server.base_path.as_deref().unwrap_or("");
        let has_values = |resource: &Resource| matches!(resource.changes, ChangeLogDetail::Values);
        Self {
            start: format!("<{base_path}/-/changes?subject={base_path}").into(),
            has_values: model.resources.iter().map(has_values).collect(),
        }
    }

    /// Adds the link to the changes of an item, for callers who may read them.
    pub fn add_link(&self, reply: &mut Reply, model: &Model, collection: &Collection, id: Id) {
        let has_values = self.has_values.get(collection.resource.0) == Some(&true);
        if !has_values || !collection.scope.can_read_changes() {
            return;
        }
        // Enough for two ids. Each GET of an item has this header, so it is made without formatting.
        let mut link = String::with_capacity(self.start.len() + VERSION_HISTORY.len() + 128);
        link.push_str(&self.start);
        let ids = (&*collection.ancestors, Some(id));
        push_unprefixed_path(&mut link, model, collection.resource, ids);
        link.push_str(VERSION_HISTORY);
        let value = HeaderValue::from_maybe_shared(Bytes::from(link));
        reply.headers.append(LINK, value.or_bug("a path is valid in a header"));
    }

    /// Adds the headers of an item as it was (a memento), of which its own URL is the original resource.
    pub fn add_memento(
        &self,
        reply: &mut Reply,
        (model, collection): (&Model, &Collection),
        selection: Option<&[ItemMember]>,
        item: &Item,
    ) {
        let original =
            format_path(model, collection.resource, &collection.ancestors, Some(item.id));
        insert_header(reply, MEMENTO_DATETIME, http_date(item.updated_at.seconds()));
        let mut location = format!("{original}?version={}", item.version);
        if let Some(selected) = selection {
            let resource = model.resource(collection.resource);
            location.push_str("&fields=");
            location.push_str(&member_names(resource, selected));
        }
        insert_header(reply, CONTENT_LOCATION, HeaderValue::try_from(location).ok());
        let link = format!("<{original}>; rel=\"original\"");
        insert_header(reply, LINK, HeaderValue::try_from(link).ok());
        self.add_link(reply, model, collection, item.id);
    }
}

/// The selected members, as the value of `fields`.
pub fn member_names(resource: &Resource, selected: &[ItemMember]) -> String {
    let names = selected.iter().map(|member| member_name(resource, *member));
    ["id"].into_iter().chain(names).collect::<Vec<_>>().join(",")
}

fn member_name(resource: &Resource, member: ItemMember) -> &str {
    match member {
        ItemMember::Parent => resource.parent_key.as_deref().or_bug("selected, so there is one"),
        ItemMember::Field(at) => &resource.fields.get(at).or_bug("a selected field exists").name,
        ItemMember::CreatedAt => "created_at",
        ItemMember::UpdatedAt => "updated_at",
        ItemMember::Version => "version",
    }
}
