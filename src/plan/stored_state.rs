//! The stored data that the decision of a write depends on, as the store loads it.

use uuid::Uuid;

use super::collection::Collection;
use super::validate::ItemDraft;
use crate::model::ResourceIndex;
use crate::value::{Id, Item, Moment};

/// The stored data that a write depends on, as the store loaded it.
#[derive(Debug, Clone)]
pub struct StoredState {
    pub now: Moment,
    /// The ids for new items, one for each draft.
    pub ids: Vec<Id>,
    /// The UUIDs for defaults of new items, `uuids_per_item` for each draft.
    pub uuids: Vec<Uuid>,
    /// The item to replace or remove.
    pub item: Option<Item>,
    /// The item after the patch.
    pub draft: Option<ItemDraft>,
    /// JSON pointers of references to items that do not exist.
    pub dangling_references: Vec<String>,
    /// The item to remove and everything its removal cascades to, children before their parents.
    pub items_to_delete: Vec<Dependent>,
    /// The references of other items that the removal clears.
    pub references_to_clear: Vec<ReferencesToClear>,
    /// A resource whose items reference the item and restrict its removal.
    pub restricted_by: Option<ResourceIndex>,
}

impl StoredState {
    /// The state before anything was loaded.
    pub fn empty(now: Moment) -> Self {
        Self {
            now,
            ids: Vec::new(),
            uuids: Vec::new(),
            item: None,
            draft: None,
            dangling_references: Vec::new(),
            items_to_delete: Vec::new(),
            references_to_clear: Vec::new(),
            restricted_by: None,
        }
    }
}

/// An item that depends on another one: a child of it, or an item that refers to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dependent {
    pub collection: Collection,
    pub id: Id,
}

/// The references of one item to items that are removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReferencesToClear {
    pub item: Dependent,
    /// The index of each field, with the id of a removed item.
    pub references: Vec<(usize, Id)>,
}
