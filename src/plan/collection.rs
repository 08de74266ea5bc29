//! Collections: where a request reads or writes, with the caller's access scope.

use crate::model::{Model, ResourceIndex};
use crate::permit::AccessScope;
use crate::value::Id;

/// The items of a resource under one parent, within the caller's access scope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Collection {
    pub resource: ResourceIndex,
    /// The ids of the items in the path, the top-level one first.
    pub ancestors: Vec<Id>,
    pub scope: AccessScope,
}

impl Collection {
    /// All users, with unrestricted access, for the server itself.
    pub fn users(model: &Model) -> Self {
        Self { resource: model.users, ancestors: Vec::new(), scope: AccessScope::default() }
    }

    /// A hash of the hidden fields, part of the entity tag, since hidden fields change the bytes of an item.
    /// Responses show what GET shows, so they have the tags of GET.
    pub fn hidden_fields_hash(&self) -> u32 {
        self.scope.read_access(self.resource).hidden_hash
    }
}
