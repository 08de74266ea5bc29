//! Wrappers: the objects that hold the items of a JSON body under the name of their resource.
//!
//! Each is a component with its own name, because generators of clients name classes after components, and
//! number those that have no name.

use super::components::{ComponentKind, Components};
use super::schemas::{component, schema_reference};
use super::tree::JsonNode;
use crate::model::Resource;

/// The schema of the items in a wrapper.
#[derive(Debug, Clone, Copy)]
pub enum Wrapped {
    Item,
    Selection,
    Create,
    Replace,
    Patch,
}

impl Wrapped {
    /// The name of the component.
    fn component(self, resource: &Resource) -> String {
        let own = component(resource);
        match self {
            Self::Item => own,
            Self::Selection => format!("{own}.selection"),
            Self::Create => format!("{own}.create"),
            Self::Replace => format!("{own}.replace"),
            Self::Patch => format!("{own}.patch"),
        }
    }

    pub fn reference(self, resource: &Resource) -> JsonNode {
        schema_reference(&self.component(resource))
    }

    /// Whether the wrapper has no other members: the server refuses them in requests.
    fn is_closed(self) -> bool {
        match self {
            Self::Create | Self::Replace | Self::Patch => true,
            Self::Item | Self::Selection => false,
        }
    }
}

/// The wrappers of one resource.
#[derive(Debug)]
pub struct Wrappers<'a> {
    pub resource: &'a Resource,
    /// The largest number of items in a request.
    pub items_max: usize,
}

impl Wrappers<'_> {
    /// One item under the singular: `customer.body`, `customer.create.body`.
    pub fn single(&self, wrapped: Wrapped, components: &mut Components) -> JsonNode {
        let name = format!("{}.body", wrapped.component(self.resource));
        let item = wrapped.reference(self.resource);
        components.refer(ComponentKind::Schemas, name, |_| {
            wrapper(&[(&self.resource.name, item)], wrapped.is_closed())
        })
    }

    /// One item under the singular, or several under the plural: `customer.create.body`.
    ///
    /// Two members of which one is there, instead of `oneOf`: the code that generators make for `oneOf` tries
    /// one class after the other, and those that ignore unknown members find that both fit.
    pub fn create(&self, components: &mut Components) -> JsonNode {
        let item = Wrapped::Create.reference(self.resource);
        let name = format!("{}.body", Wrapped::Create.component(self.resource));
        components.refer(ComponentKind::Schemas, name, |_| {
            let items = object! { "type": "array", "minItems": 1_i64, "maxItems": self.items_max };
            self.one_or_several(item, items)
                .with("maxProperties", 1_i64)
                .with("additionalProperties", false)
        })
    }

    /// The body of a 201, with one item or several, as in the request: `customer.created`.
    pub fn created(&self, components: &mut Components) -> JsonNode {
        let item = Wrapped::Item.reference(self.resource);
        let name = format!("{}.created", component(self.resource));
        components.refer(ComponentKind::Schemas, name, |_| {
            self.one_or_several(item, object! { "type": "array" })
        })
    }

    fn one_or_several(&self, item: JsonNode, items: JsonNode) -> JsonNode {
        let properties = JsonNode::empty_object()
            .with(self.resource.name.to_string(), item.clone())
            .with(self.resource.plural.to_string(), items.with("items", item));
        object! {
            "type": "object",
            "description": "One item, or several of them.",
            "properties": properties,
            "minProperties": 1_i64,
        }
    }

    /// A page of a list: `customer.list`.
    pub fn page(&self, components: &mut Components) -> JsonNode {
        let name = format!("{}.list", component(self.resource));
        let item = Wrapped::Selection.reference(self.resource);
        components.refer(ComponentKind::Schemas, name, |_| {
            let items = object! { "type": "array", "items": item };
            let page = schema_reference("server.page");
            wrapper(&[(&self.resource.plural, items), ("page", page)], false)
        })
    }

    /// An item under the singular, as an example.
    pub fn example(&self, item: Option<JsonNode>) -> Option<JsonNode> {
        item.map(|item| JsonNode::empty_object().with(self.resource.name.to_string(), item))
    }
}

/// An object with these required members.
fn wrapper(members: &[(&str, JsonNode)], is_closed: bool) -> JsonNode {
    let mut properties = JsonNode::empty_object();
    for (name, schema) in members {
        properties.add((*name).to_owned(), schema.clone());
    }
    object! {
        "type": "object",
        "required": JsonNode::texts(members.iter().map(|(name, _)| name)),
        "properties": properties,
    }
    .with_some("additionalProperties", is_closed.then_some(false))
}
