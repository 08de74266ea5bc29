//! Security schemes: the schemes of each realm, and which of them an operation takes.

use std::collections::BTreeMap;

use super::tree::JsonNode;
use super::viewer::Viewer;
use crate::intent::{RequestVerb, Route, RouteTemplate};
use crate::model::{AuthScheme, Realm, RealmIndex};
use crate::permit;

/// The schemes that operations refer to, by name.
#[derive(Debug, Default)]
pub struct SecuritySchemes(BTreeMap<String, JsonNode>);

impl SecuritySchemes {
    /// The requirements of an operation: one of the schemes of its realm, or none where nobody needs one.
    pub fn requirements(
        &mut self,
        viewer: &Viewer<'_>,
        template: &RouteTemplate<'_>,
        verb: RequestVerb,
    ) -> JsonNode {
        let route = Route { verb, target: template.target.clone() };
        if viewer.caller.is_open() || permit::is_public(&route) {
            return JsonNode::List(Vec::new());
        }
        let index = viewer.realm(&template.target);
        let realm = viewer.model.realm(index);
        let mut all = Vec::new();
        for scheme in &realm.schemes {
            let (word, scheme) = match scheme {
                AuthScheme::Basic => ("basic", "Basic"),
                AuthScheme::Digest => ("digest", "Digest"),
            };
            let name = format!("{}.{word}", realm_name(realm, index));
            let about = format!("{scheme} authentication in the realm `{}`.", realm.name);
            all.push(JsonNode::empty_object().with(name.clone(), JsonNode::List(Vec::new())));
            let scheme = object! { "type": "http", "scheme": word, "description": about };
            self.0.entry(name).or_insert(scheme);
        }
        if viewer.is_public(template, verb) {
            all.push(JsonNode::empty_object());
        }
        JsonNode::List(all)
    }

    pub fn into_json(self) -> JsonNode {
        JsonNode::Object(self.0.into_iter().map(|(name, node)| (name.into(), node)).collect())
    }
}

/// The name of a realm in the names of components, which have letters, digits and a few signs only.
fn realm_name(realm: &Realm, index: RealmIndex) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    match realm.name.chars().all(is_plain) {
        true => realm.name.to_string(),
        false => format!("realm.{}", index.0 + 1),
    }
}
