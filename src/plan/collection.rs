//! Collections: where a request reads or writes, with the caller's access scope.

use crate::intent::{PathForm, format_collection_path};
use crate::model::{Model, ResourceIndex};
use crate::permit::AccessScope;
use crate::value::Id;

/// The items of a resource under one parent, or under all of them, within the caller's access scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    pub resource: ResourceIndex,
    pub form: PathForm,
    /// The ids of the items in the path, the top-level one first. A flat path has none; those of an item with a flat
    /// path are added when the store has found it.
    pub ancestors: Vec<Id>,
    pub scope: AccessScope,
}

impl Collection {
    /// The items under these ancestors.
    pub fn nested(resource: ResourceIndex, ancestors: Vec<Id>, scope: AccessScope) -> Self {
        Self { resource, form: PathForm::Nested, ancestors, scope }
    }

    /// All users, with unrestricted access, for the server itself.
    pub fn users(model: &Model) -> Self {
        Self::nested(model.users, Vec::new(), AccessScope::default())
    }

    /// Whether it has the items of all parents.
    pub fn is_flat(&self) -> bool {
        self.form == PathForm::Flat
    }

    /// The same items under these ancestors.
    pub fn under(&self, ancestors: Vec<Id>) -> Self {
        Self::nested(self.resource, ancestors, self.scope.clone())
    }

    /// Its path, as in `Link`.
    pub fn path(&self, model: &Model) -> String {
        format_collection_path(model, self.resource, (self.form, &self.ancestors))
    }

    /// A hash of the hidden fields, part of the entity tag, since hidden fields change the bytes of an item.
    /// Responses show what GET shows, so they have the tags of GET.
    pub fn hidden_fields_hash(&self) -> u32 {
        self.scope.read_access(self.resource).hidden_hash
    }
}
