//! The parts of a document that several operations refer to, each with its own name.
//!
//! Only what an operation refers to is in the document, in the order of the names.

use std::collections::BTreeMap;

use super::tree::JsonNode;

/// A kind of component.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComponentKind {
    /// The wrappers of bodies; the schemas of items are always in the document.
    Schemas,
    Parameters,
    Headers,
    Responses,
}

impl ComponentKind {
    const OTHERS: [Self; 3] = [Self::Parameters, Self::Headers, Self::Responses];

    fn as_str(self) -> &'static str {
        match self {
            Self::Schemas => "schemas",
            Self::Parameters => "parameters",
            Self::Headers => "headers",
            Self::Responses => "responses",
        }
    }
}

#[derive(Debug, Default)]
pub struct Components(BTreeMap<(ComponentKind, String), JsonNode>);

impl Components {
    /// Adds a component, unless it is there, and refers to it.
    pub fn refer(
        &mut self,
        kind: ComponentKind,
        name: impl Into<String>,
        make: impl FnOnce(&mut Self) -> JsonNode,
    ) -> JsonNode {
        let name = name.into();
        let reference = object! { "$ref": format!("#/components/{}/{name}", kind.as_str()) };
        let key = (kind, name);
        if !self.0.contains_key(&key) {
            let made = make(self);
            self.0.insert(key, made);
        }
        reference
    }

    /// The components of one kind, by their names.
    fn of_kind(&self, kind: ComponentKind) -> JsonNode {
        let mut all = JsonNode::empty_object();
        for ((_, name), node) in self.0.iter().filter(|((known, _), _)| *known == kind) {
            all.add(name.clone(), node.clone());
        }
        all
    }

    /// The schemas, after those of items, and one object for each other kind that has members.
    pub fn into_json(self, schemas: JsonNode) -> JsonNode {
        let schemas = schemas.with_all(self.of_kind(ComponentKind::Schemas));
        let mut all = object! { "schemas": schemas };
        for kind in ComponentKind::OTHERS {
            let of_kind = self.of_kind(kind);
            if !of_kind.is_empty() {
                all.add(kind.as_str(), of_kind);
            }
        }
        all
    }
}
