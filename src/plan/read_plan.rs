//! Reads, planned: what the store looks up for a request or for the server itself.

use std::sync::Arc;

use super::collection::Collection;
use super::idempotency::IdempotentRequest;
use super::validate::Reference;
use crate::intent::preconditions::Preconditions;
use crate::intent::{ChangesQuery, Expansion, ListQuery, PastState, is_index_range, tests_in};
use crate::model::{Model, ResourceIndex};
use crate::permit::RelatedFact;
use crate::permit::change_visibility::ChangeScope;
use crate::problem::FieldFault;
use crate::value::Id;

#[derive(Debug)]
pub enum ReadPlan {
    /// Whether the store can serve requests.
    Ready,
    /// The bounds of the change log.
    ChangeLogBounds,
    /// A page of the change log.
    Changes(Box<ChangesRead>),
    /// The entries of the change log after a position, of limited number and size.
    ChangeBatch {
        after: i64,
        bytes_max: usize,
    },
    /// The marks of the change log.
    LogMarks,
    /// Facts about items directly after the entry with this number, and about current memberships.
    RelatedFacts {
        facts: Vec<RelatedFact>,
        sequence: i64,
    },
    /// Whether the items of a collection, or one item, can be watched, and the marks of the change log.
    WatchStart(Collection, Option<Id>),
    /// A user by name, with the password hash.
    User(Box<str>),
    /// A number that changes with every change of the users.
    UsersStamp,
    /// The model that the database was last migrated to.
    ModelInForce,
    /// The position and the queue of each webhook.
    WebhookQueues,
    /// How far one webhook is.
    WebhookProgress(Id),
    /// Where the deliveries of a webhook begin.
    WebhookStart(Id),
    /// The stored response of an idempotent request.
    IdempotentResponse(Box<IdempotentRequest>),
    /// With a list query if only some of the members are shown.
    Item(Collection, Id, Option<Arc<ListQuery>>),
    /// An item as it was.
    PastItem(Box<PastRead>),
    Page(Collection, Arc<ListQuery>),
    /// An item or a page with related items.
    Expanded(Box<ExpandedRead>),
    /// The body has faults, but 404 comes before 422 in the order of checks.
    InvalidWrite(Box<InvalidWrite>),
}

impl ReadPlan {
    /// A page of users, with unrestricted access, for the server itself.
    pub fn users(model: &Model, limit: usize, after: Option<Id>) -> Self {
        Self::Page(Collection::users(model), ListQuery::by_id(limit, after).into())
    }

    /// The item with a flat path that it is about, if any.
    pub fn flat_item(&self) -> Option<(&Collection, Id)> {
        let (collection, id) = match self {
            Self::Item(collection, id, _) | Self::WatchStart(collection, Some(id)) => {
                (collection, *id)
            }
            Self::PastItem(read) => (&read.collection, read.id),
            Self::Expanded(read) => (&read.collection, read.item?),
            _ => return None,
        };
        collection.is_flat().then_some((collection, id))
    }

    /// The same read of an item, under these ancestors.
    pub fn under(&self, ancestors: Vec<Id>) -> Option<Self> {
        Some(match self {
            Self::Item(collection, id, selection) => {
                Self::Item(collection.under(ancestors), *id, selection.clone())
            }
            Self::WatchStart(collection, item) => {
                Self::WatchStart(collection.under(ancestors), *item)
            }
            Self::PastItem(read) => Self::PastItem(Box::new(PastRead {
                collection: read.collection.under(ancestors),
                id: read.id,
                state: read.state,
                selection: read.selection.clone(),
            })),
            Self::Expanded(read) => Self::Expanded(Box::new(ExpandedRead {
                collection: read.collection.under(ancestors),
                item: read.item,
                list: Arc::clone(&read.list),
            })),
            _ => return None,
        })
    }

    /// Whether all of its statements must see the same state of the database.
    pub fn needs_snapshot(&self) -> bool {
        matches!(self, Self::Expanded(_))
    }

    /// Whether it may scan a whole table, so that its duration has no useful bound.
    pub fn is_full_scan(&self, model: &Model) -> bool {
        match self {
            Self::Page(collection, list) => is_page_scan(model, collection, list),
            Self::Expanded(read) => read.is_full_scan(model),
            // Bounded, but not short.
            Self::Changes(_) | Self::PastItem(_) => true,
            _ => false,
        }
    }

    /// Whether it reads one or two rows by their keys, so that it can share a pipelined connection without
    /// much head-of-line blocking. Health checks use a separate connection.
    pub fn is_point_lookup(&self) -> bool {
        match self {
            Self::Ready | Self::ChangeLogBounds | Self::Changes(_) | Self::LogMarks => false,
            Self::Page(..) | Self::PastItem(_) | Self::InvalidWrite(_) => false,
            Self::Expanded(_) => false,
            Self::ChangeBatch { .. } | Self::RelatedFacts { .. } | Self::WatchStart(..) => false,
            Self::WebhookQueues | Self::WebhookStart(_) | Self::ModelInForce => false,
            Self::WebhookProgress(_) => false,
            Self::User(_) | Self::UsersStamp | Self::IdempotentResponse(_) | Self::Item(..) => true,
        }
    }
}

/// Whether a page may be found by reading all rows.
fn is_page_scan(model: &Model, collection: &Collection, list: &ListQuery) -> bool {
    let scope = &collection.scope;
    let has_row_filters = match collection.is_flat() {
        true => !scope.is_unrestricted(),
        false => {
            !list.is_whole_by_id() && !scope.access(collection.resource).row_filters.is_empty()
        }
    };
    let resource = model.resource(collection.resource);
    has_row_filters || !is_index_range(list, resource) || list.is_counted
}

/// An item or a page with related items, all of one snapshot.
#[derive(Debug)]
pub struct ExpandedRead {
    pub collection: Collection,
    /// `None`: a page of the collection.
    pub item: Option<Id>,
    pub list: Arc<ListQuery>,
}

impl ExpandedRead {
    /// The resources of all items in the response, and of those that decide which items it has.
    pub fn resources(&self) -> Vec<ResourceIndex> {
        let mut all = vec![self.collection.resource];
        push_filtered_by(&mut all, &self.list);
        push_targets(&mut all, &self.list.expand);
        all
    }

    fn is_full_scan(&self, model: &Model) -> bool {
        let is_page_scan = self.item.is_none() && is_page_scan(model, &self.collection, &self.list);
        is_page_scan || !self.collection.scope.is_unrestricted() || reads_all(&self.list.expand)
    }
}

fn push_targets(all: &mut Vec<ResourceIndex>, expand: &[Expansion]) {
    for one in expand {
        all.push(one.relation.target);
        push_filtered_by(all, &one.list);
        push_targets(all, &one.inner);
    }
}

fn push_filtered_by(all: &mut Vec<ResourceIndex>, list: &ListQuery) {
    let steps = tests_in(&list.filters).into_iter().flat_map(|test| &test.relations);
    all.extend(steps.map(|step| step.to));
}

/// Whether all children of an item may have to be read to find those to show.
fn reads_all(expand: &[Expansion]) -> bool {
    expand.iter().any(|one| !one.list.is_whole_by_id() || reads_all(&one.inner))
}

/// A page of the change log, as one caller sees it.
#[derive(Debug)]
pub struct ChangesRead {
    pub scope: ChangeScope,
    pub query: Arc<ChangesQuery>,
}

/// An item as it was, as one caller sees it.
#[derive(Debug)]
pub struct PastRead {
    pub collection: Collection,
    pub id: Id,
    pub state: PastState,
    /// With a list query if only some of the members are shown.
    pub selection: Option<Arc<ListQuery>>,
}

/// A write that is refused because its body has faults.
#[derive(Debug)]
pub struct InvalidWrite {
    pub collection: Collection,
    pub item: Option<Id>,
    pub references: Vec<Reference>,
    pub faults: Vec<FieldFault>,
    pub preconditions: Preconditions,
}
