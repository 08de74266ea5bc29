//! The visibility of a change for a reader: judged with the data at the time of the change and with the current rights.
//!
//! Lists, streams, long polls and webhooks use this one function, so that two readers with the same rights see
//! the same events, whenever and wherever they read. It fails closed: a value that cannot be read satisfies no
//! row filter and no list filter.

use std::sync::Arc;

use super::access_scope::AccessScope;
use super::related_facts::{FactReader, FactTime, ItemLookup, KnownFacts, RelatedFact};
use crate::formats::ItemView;
use crate::formats::logged_item::LoggedView;
use crate::intent::{Filter, ItemPath, ListQuery, LogFilter, LoggedChange, matches};
use crate::model::{Model, Resource, ResourceIndex};
use crate::value::{ChangeKind, EventKind, Id, Item};

/// The changes that one reader follows.
#[derive(Debug, Clone)]
pub struct ChangeScope {
    /// The reader's access; the verb does not matter.
    pub access: AccessScope,
    pub target: ChangeTarget,
}

/// The items whose changes a reader follows.
#[derive(Debug, Clone)]
pub enum ChangeTarget {
    /// Everything in the log that the filter selects.
    All(Arc<LogFilter>),
    /// The items of a resource, under any parent, that match the list query's filters.
    Resource(ResourceIndex, Arc<ListQuery>),
    /// A collection, with the ids of its ancestors, the top-level one first.
    Collection(ResourceIndex, Vec<Id>, Arc<ListQuery>),
    /// With a list query if only some of the members are selected.
    Item(ItemPath, Option<Arc<ListQuery>>),
}

impl ChangeTarget {
    /// Whether the change is about one of the items, whatever its values are.
    fn includes(&self, logged: &LoggedChange) -> bool {
        match self {
            Self::All(filter) => filter.selects(logged),
            Self::Resource(resource, _) => logged.resource == Some(*resource),
            Self::Collection(resource, ancestors, _) => logged
                .path
                .as_ref()
                .is_some_and(|path| path.resource == *resource && path.ancestors == *ancestors),
            Self::Item(path, _) => logged.path.as_ref() == Some(path),
        }
    }

    /// The resource of the items; `None`: items of every resource.
    pub fn resource(&self) -> Option<ResourceIndex> {
        match self {
            Self::All(_) => None,
            Self::Resource(resource, _) | Self::Collection(resource, ..) => Some(*resource),
            Self::Item(path, _) => Some(path.resource),
        }
    }

    fn selects_kind(&self, kind: EventKind) -> bool {
        match self {
            Self::All(filter) => filter.selects_kind(kind),
            Self::Resource(..) | Self::Collection(..) | Self::Item(..) => true,
        }
    }

    fn list(&self) -> Option<&ListQuery> {
        match self {
            Self::All(_) => None,
            Self::Resource(_, list) | Self::Collection(_, _, list) => Some(list),
            Self::Item(_, selection) => selection.as_deref(),
        }
    }
}

impl ChangeScope {
    /// The members that the reader sees of an item; `None`: the model does not declare its resource any more. There
    /// are none of a resource that the reader may not read.
    pub fn view<'a>(&'a self, resource: Option<&'a Resource>) -> LoggedView<'a> {
        let readable = resource.filter(|resource| self.access.can_read(resource.index));
        let item = readable.map(|resource| ItemView {
            resource,
            hidden: &self.access.read_access(resource.index).hidden,
            selected_members: self.target.list().and_then(|list| list.selected_members.as_deref()),
            shows_secrets: false,
            related: &[],
        });
        LoggedView { item, shows_undeclared: self.access.is_unrestricted() }
    }

    fn shows(
        &self,
        resource: &Resource,
        (item, ancestors): (&Item, &[Id]),
        filters: &[Filter],
        facts: &FactReader<'_>,
    ) -> bool {
        matches(filters, resource, item, ancestors)
            && self.access.can_read_item(resource, item, facts)
    }
}

/// The visibility of a change.
#[derive(Debug, Clone, PartialEq)]
pub enum Visibility {
    Hidden,
    Visible {
        kind: EventKind,
        /// Whether the item before the change was visible too.
        shows_before: bool,
    },
    /// These facts decide: items at the time of the change, and current memberships.
    NeedsFacts(Vec<RelatedFact>),
}

/// Judges whether a reader may see a change, and how much of it.
pub fn judge(
    model: &Model,
    scope: &ChangeScope,
    logged: &LoggedChange,
    known: &dyn KnownFacts,
) -> Visibility {
    let Some(stored) = logged.kind.filter(|_| scope.target.includes(logged)) else {
        return Visibility::Hidden;
    };
    let access = &scope.access;
    let is_granted = logged.path.as_ref().is_some_and(|path| {
        access.can_read(path.resource) && access.can_read_ancestors(model, path.resource)
    });
    if !access.is_unrestricted() && !is_granted {
        return Visibility::Hidden;
    }
    let facts = FactReader::new(model, known, FactTime::Past);
    let judged = judge_values(scope, logged, stored, &facts);
    if facts.has_needed() {
        return Visibility::NeedsFacts(facts.into_needed());
    }
    let Some((kind, shows_before)) = judged else { return Visibility::Hidden };
    if !scope.target.selects_kind(kind) {
        return Visibility::Hidden;
    }
    let path = logged.path.as_ref();
    if !path.is_none_or(|path| can_read_ancestors(access, path, &facts)) {
        return Visibility::Hidden;
    }
    match facts.has_needed() {
        true => Visibility::NeedsFacts(facts.into_needed()),
        false => Visibility::Visible { kind, shows_before },
    }
}

/// The kind of the event, and whether the item before is shown; `None`: the item was not visible before and is
/// not visible after the change.
fn judge_values(
    scope: &ChangeScope,
    logged: &LoggedChange,
    stored: ChangeKind,
    facts: &FactReader<'_>,
) -> Option<(EventKind, bool)> {
    let model = facts.model();
    let filters = scope.target.list().map_or(&[][..], |list| &list.filters);
    let resource = logged.resource.map(|index| model.resource(index));
    let has_row_filter = resource
        .is_some_and(|resource| !scope.access.read_access(resource.index).row_filters.is_empty());
    let (is_before_shown, is_after_shown) = match resource {
        Some(resource) if has_row_filter || !filters.is_empty() => {
            let ancestors = logged.path.as_ref().map_or(&[][..], |path| &path.ancestors);
            let is_shown = |item: Option<&Item>| {
                item.is_some_and(|item| scope.shows(resource, (item, ancestors), filters, facts))
            };
            (is_shown(logged.before(model)), is_shown(logged.after(model)))
        }
        _ => (true, true),
    };
    match (stored, is_before_shown, is_after_shown) {
        (ChangeKind::Created, _, true) => Some((EventKind::Created, false)),
        (ChangeKind::Updated, shows_before, true) => Some((EventKind::Updated, shows_before)),
        (ChangeKind::Updated, true, false) => Some((EventKind::Left, false)),
        (ChangeKind::Deleted, true, _) => Some((EventKind::Deleted, true)),
        (ChangeKind::Created | ChangeKind::Updated | ChangeKind::Deleted, _, _) => None,
    }
}

/// Whether the reader sees all ancestors of an item, as far as the facts are known: one that the known facts hide is
/// not seen.
pub fn can_read_ancestors(access: &AccessScope, path: &ItemPath, facts: &FactReader<'_>) -> bool {
    if access.is_unrestricted() {
        return true;
    }
    let mut levels = facts.model().lineage(path.resource).into_iter().zip(&path.ancestors);
    levels.all(|(resource, id)| {
        if access.read_access(resource.index).row_filters.is_empty() {
            return true;
        }
        match facts.item(resource.index, *id) {
            ItemLookup::Unknown => true,
            ItemLookup::Absent => false,
            ItemLookup::Present(item) => {
                let (can_read, is_known) =
                    facts.attempt(|facts| access.can_read_item(resource, item, facts));
                can_read || !is_known
            }
        }
    })
}

#[cfg(test)]
mod tests;
