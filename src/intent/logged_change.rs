//! A change of the log in terms of the model: its resource, the ids in its subject, its items.
//!
//! The entry may be older than the model, which then does not know its resource or its path.

use std::sync::OnceLock;

use super::target::{PathIds, RouteTarget, find_unprefixed_target};
use crate::formats::logged_item;
use crate::model::{Model, ResourceIndex};
use crate::value::{Change, ChangeKind, Id, Item};

/// The path of an item.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ItemPath {
    pub resource: ResourceIndex,
    /// The ids of the items in the path, the top-level one first.
    pub ancestors: Vec<Id>,
    pub id: Id,
}

impl ItemPath {
    /// Parses a path without the deployment's prefix, such as the subject of a change.
    pub fn parse_unprefixed(model: &Model, path: &str) -> Option<Self> {
        match find_unprefixed_target(model, path)? {
            RouteTarget::Item(target) => {
                let PathIds { ancestors, item } = target.ids?;
                Some(Self { resource: target.resource, ancestors, id: item? })
            }
            _ => None,
        }
    }
}

/// A change with its path; its items are parsed when they are needed, at most once.
#[derive(Debug, PartialEq)]
pub struct LoggedChange {
    pub change: Change,
    /// `None`: a kind that this version does not know.
    pub kind: Option<ChangeKind>,
    /// `None`: the model does not declare the resource any more.
    pub resource: Option<ResourceIndex>,
    /// `None`: the model has no such path any more.
    pub path: Option<ItemPath>,
    before: OnceLock<Option<Item>>,
    after: OnceLock<Option<Item>>,
}

impl LoggedChange {
    pub fn new(model: &Model, change: Change) -> Self {
        let resource = model.resources.iter().find(|known| *known.label == *change.resource);
        let resource = resource.map(|resource| resource.index);
        let path = ItemPath::parse_unprefixed(model, &change.subject);
        let path = path.filter(|path| Some(path.resource) == resource);
        let kind = ChangeKind::parse(&change.kind);
        let (before, after) = (OnceLock::new(), OnceLock::new());
        Self { change, kind, resource, path, before, after }
    }

    /// The item before the change; `None` if there was none, or if its values are not stored or not readable.
    pub fn before(&self, model: &Model) -> Option<&Item> {
        self.before.get_or_init(|| self.parse(model, self.change.before.as_deref())).as_ref()
    }

    /// The item after the change; `None` as for `before`.
    pub fn after(&self, model: &Model) -> Option<&Item> {
        self.after.get_or_init(|| self.parse(model, self.change.after.as_deref())).as_ref()
    }

    fn parse(&self, model: &Model, text: Option<&str>) -> Option<Item> {
        logged_item::parse(model, model.resource(self.resource?), text?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model;
    use crate::value::Moment;

    const MODEL: &str = r#"
title = "Shop"
[server]
base_path = "/shop"
[resources.customer]
id = "integer"
[resources.customer.fields]
name = { type = "text" }
[resources.order]
parent = "customer"
id = "integer"
[resources.order.fields]
text = { type = "text" }
"#;

    fn change(resource: &str, subject: &str) -> Change {
        Change {
            sequence: 7,
            time: Moment::parse("2026-11-17T03:20:01Z").unwrap(),
            resource: resource.to_owned(),
            id: "2".to_owned(),
            subject: subject.to_owned(),
            kind: "updated".to_owned(),
            actor: "ann".to_owned(),
            request_id: "r".to_owned(),
            changed: None,
            before: None,
            after: Some(r#"{"id":2,"customer_id":1,"text":"a","created_at":"2026-11-17T03:20:01Z","updated_at":"2026-11-17T03:20:01Z","version":3}"#.to_owned()),
        }
    }

    #[test]
    fn logged_change_finds_its_path_and_parses_its_items() {
        let model = model::read("m.toml", MODEL).unwrap();
        let logged = LoggedChange::new(&model, change("order", "/customers/1/orders/2"));
        let (resource, ancestors) = (ResourceIndex(1), vec![Id::Integer(1)]);
        assert_eq!(logged.path, Some(ItemPath { resource, ancestors, id: Id::Integer(2) }));
        assert_eq!(logged.kind, Some(ChangeKind::Updated));
        assert_eq!(logged.after(&model).unwrap().version, 3);
        assert_eq!(logged.before(&model), None);
    }

    #[test]
    fn logged_change_of_an_older_model_has_no_path() {
        let model = model::read("m.toml", MODEL).unwrap();
        for (resource, subject, is_declared) in [
            ("order", "/orders/2", true),
            ("order", "/customers/1/purchases/2", true),
            ("order", "/customers/1", true),
            ("order", "/customers/1/orders", true),
            ("order", "/customers/x/orders/2", true),
            ("order", "/shop/customers/1/orders/2", true),
            ("purchase", "/customers/1/orders/2", false),
        ] {
            let logged = LoggedChange::new(&model, change(resource, subject));
            assert_eq!(logged.path, None, "{subject}");
            assert_eq!(logged.resource.is_some(), is_declared, "{subject}");
            assert_eq!(logged.after(&model).is_some(), is_declared, "{subject}");
        }
    }
}
