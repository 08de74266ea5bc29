//! A format, and the part of an item that it writes.

use std::collections::HashMap;

use http::HeaderValue;

use super::accept::MediaType;
use crate::model::Resource;
use crate::value::{Id, Item, Page, Value};

/// A media type that items can be sent as.
#[derive(Debug)]
pub struct Format {
    pub media: MediaType,
    /// The value of `Content-Type`.
    pub content_type: HeaderValue,
    pub item: fn(&mut Vec<u8>, ItemView<'_>, &Item),
    pub items: fn(&mut Vec<u8>, ItemView<'_>, &[Item]),
    /// The last argument is the cursor of the next page, if there is one.
    pub page: fn(&mut Vec<u8>, ItemView<'_>, &Page, Option<&str>),
    /// How a whole collection is streamed, item by item; a format that has this is for collections only.
    pub stream_writer: Option<&'static StreamWriter>,
}

/// Streaming output of a collection, item by item.
#[derive(Debug)]
pub struct StreamWriter {
    /// Writes the text before the first item.
    pub head: fn(&mut Vec<u8>, ItemView<'_>),
    pub line: fn(&mut Vec<u8>, ItemView<'_>, &Item),
    /// Whether a line can have related items.
    pub has_related: bool,
}

pub fn write_stream(lines: &StreamWriter, out: &mut Vec<u8>, view: ItemView<'_>, items: &[Item]) {
    (lines.head)(out, view);
    for item in items {
        (lines.line)(out, view, item);
    }
}

/// A resource with the fields that the client can see and has selected.
#[derive(Debug, Clone, Copy)]
pub struct ItemView<'a> {
    pub resource: &'a Resource,
    /// Indices of the hidden fields.
    pub hidden: &'a [usize],
    /// The selected members; `None`: all. The id is always shown.
    pub selected_members: Option<&'a [ItemMember]>,
    /// Whether secrets are shown, all of which are `Value::ClearText` then: in the response to the request that has set
    /// them.
    pub shows_secrets: bool,
    /// The related items that are shown with each item.
    pub related: &'a [RelatedView<'a>],
}

/// A member of an item, apart from its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemMember {
    Parent,
    Field(usize),
    CreatedAt,
    UpdatedAt,
    Version,
}

impl<'a> ItemView<'a> {
    /// A view that shows the secrets of these items, if the request has set all of them.
    pub fn with_secrets_of(self, items: &[Item]) -> Self {
        let is_new = |item: &Item| {
            let mut secrets = self.resource.fields.iter().zip(&item.values);
            secrets.all(|(field, value)| !field.secret || matches!(value, Value::ClearText(_)))
        };
        let has_secrets = self.resource.fields.iter().any(|field| field.secret);
        Self { shows_secrets: has_secrets && items.iter().all(is_new), ..self }
    }

    /// A view with nothing hidden.
    pub fn all_fields(resource: &'a Resource) -> Self {
        Self { resource, hidden: &[], selected_members: None, shows_secrets: false, related: &[] }
    }

    /// Whether a member is shown. A stored secret is never shown, neither in a response nor in the change log.
    pub fn is_shown(&self, member: ItemMember) -> bool {
        let is_known = match member {
            ItemMember::Field(at) => {
                let is_secret = self.resource.fields.get(at).is_none_or(|field| field.secret);
                (!is_secret || self.shows_secrets) && !self.hidden.contains(&at)
            }
            ItemMember::Parent
            | ItemMember::CreatedAt
            | ItemMember::UpdatedAt
            | ItemMember::Version => true,
        };
        is_known && self.selected_members.is_none_or(|chosen| chosen.contains(&member))
    }
}

/// The member of an item that has related items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RelatedMember {
    /// The item that it is in, under the name of its resource.
    Parent,
    /// The items inside it, under their plural.
    Children,
    /// The items that a field refers to, in place of their ids. The index is that of the field.
    Field(usize),
}

impl RelatedMember {
    /// Its name. `resource` is that of the item, `target` that of the related ones.
    pub fn name<'m>(self, resource: &'m Resource, target: &'m Resource) -> &'m str {
        match self {
            Self::Parent => &target.name,
            Self::Children => &target.plural,
            Self::Field(at) => resource.fields.get(at).map_or("", |field| &field.name),
        }
    }
}

/// The related items in one member of the items of a response, with the fields that the client can see.
#[derive(Debug)]
pub struct RelatedView<'a> {
    pub member: RelatedMember,
    pub resource: &'a Resource,
    /// Indices of the hidden fields.
    pub hidden: &'a [usize],
    pub selected_members: Option<&'a [ItemMember]>,
    pub items: &'a RelatedItems,
    pub inner: Vec<RelatedView<'a>>,
}

impl RelatedView<'_> {
    pub fn view(&self) -> ItemView<'_> {
        let Self { resource, hidden, selected_members, inner, .. } = self;
        ItemView {
            hidden,
            selected_members: *selected_members,
            related: inner,
            ..ItemView::all_fields(resource)
        }
    }
}

/// The items of one relation, of all items of a response together.
#[derive(Debug, PartialEq)]
pub struct RelatedItems {
    /// Children by the id of their parent; a parent, or an item that is referred to, by its own id.
    pub groups: HashMap<Id, RelatedGroup>,
    /// The relations of these items that are followed too, in the order of the query.
    pub inner: Vec<RelatedItems>,
}

/// Related items that are shown together.
#[derive(Debug, PartialEq, Default)]
pub struct RelatedGroup {
    pub items: Vec<Item>,
    /// The address of the children that are not here, if there are more.
    pub next: Option<String>,
}

impl RelatedItems {
    /// The children of an item.
    pub fn group(&self, parent: Id) -> Option<&RelatedGroup> {
        self.groups.get(&parent)
    }

    /// A parent, or an item that is referred to.
    pub fn item(&self, id: Id) -> Option<&Item> {
        self.groups.get(&id)?.items.first()
    }
}
