//! The visibility of a change for a reader: judged with the data at the time of the change and with the current rights.
//!
//! Lists, streams, long polls and webhooks use this one function, so that two readers with the same rights see
//! the same events, whenever and wherever they read. It fails closed: a value that cannot be read satisfies no
//! row filter and no list filter.

use std::sync::Arc;

use super::access_scope::AccessScope;
use crate::formats::ItemView;
use crate::formats::logged_item::LoggedView;
use crate::intent::{Filter, ItemPath, ListQuery, LogFilter, LoggedChange, matches};
use crate::model::{ChangeLogDetail, Model, Resource, ResourceIndex};
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
    ) -> bool {
        self.access.can_read_item(resource, item) && matches(filters, resource, item, ancestors)
    }
}

/// The visibility of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Visibility {
    Hidden,
    Visible {
        kind: EventKind,
        /// Whether the item before the change was visible too.
        shows_before: bool,
    },
    /// The states of these items at the time of the change decide.
    NeedsAncestors(Vec<(ResourceIndex, Id)>),
}

/// The states of items at the time of a change.
pub trait AncestorStates {
    fn state(&self, resource: ResourceIndex, id: Id) -> AncestorState<'_>;
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AncestorState<'a> {
    Unknown,
    /// There was no such item, or its values cannot be read.
    Absent,
    Present(&'a Item),
}

/// For readers whose ancestors need no states, and to find out which states are needed.
#[derive(Debug, Clone, Copy)]
pub struct NoAncestorStates;

impl AncestorStates for NoAncestorStates {
    fn state(&self, _: ResourceIndex, _: Id) -> AncestorState<'_> {
        AncestorState::Unknown
    }
}

/// Judges whether a reader may see a change, and how much of it.
pub fn judge(
    model: &Model,
    scope: &ChangeScope,
    logged: &LoggedChange,
    ancestors: &dyn AncestorStates,
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
    let Some((kind, shows_before)) = judge_values(model, scope, logged, stored) else {
        return Visibility::Hidden;
    };
    if !scope.target.selects_kind(kind) {
        return Visibility::Hidden;
    }
    let visible = Visibility::Visible { kind, shows_before };
    logged.path.as_ref().map_or(visible.clone(), |path| {
        match judge_ancestors(model, access, path, ancestors) {
            AncestorVisibility::Hidden => Visibility::Hidden,
            AncestorVisibility::Visible => visible,
            AncestorVisibility::NeedsStates(of) => Visibility::NeedsAncestors(of),
        }
    })
}

/// The kind of the event, and whether the item before is shown; `None`: the item was not visible before and is
/// not visible after the change.
fn judge_values(
    model: &Model,
    scope: &ChangeScope,
    logged: &LoggedChange,
    stored: ChangeKind,
) -> Option<(EventKind, bool)> {
    let filters = scope.target.list().map_or(&[][..], |list| &list.filters);
    let resource = logged.resource.map(|index| model.resource(index));
    let has_row_filter = resource
        .is_some_and(|resource| !scope.access.read_access(resource.index).row_filters.is_empty());
    let (is_before_shown, is_after_shown) = match resource {
        Some(resource) if has_row_filter || !filters.is_empty() => {
            let ancestors = logged.path.as_ref().map_or(&[][..], |path| &path.ancestors);
            let is_shown = |item: Option<&Item>| {
                item.is_some_and(|item| scope.shows(resource, (item, ancestors), filters))
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

/// Whether the row filters of the ancestors' resources show the ancestors.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AncestorVisibility {
    Hidden,
    Visible,
    /// The states of these ancestors decide.
    NeedsStates(Vec<(ResourceIndex, Id)>),
}

/// Whether the reader sees all ancestors of an item.
pub fn judge_ancestors(
    model: &Model,
    access: &AccessScope,
    path: &ItemPath,
    states: &dyn AncestorStates,
) -> AncestorVisibility {
    if access.is_unrestricted() {
        return AncestorVisibility::Visible;
    }
    let mut needed = Vec::new();
    for (resource, id) in model.lineage(path.resource).into_iter().zip(&path.ancestors) {
        if access.read_access(resource.index).row_filters.is_empty() {
            continue;
        }
        // Without values in the log, nothing could tell what the ancestor was like.
        if resource.changes == ChangeLogDetail::Ids {
            return AncestorVisibility::Hidden;
        }
        match states.state(resource.index, *id) {
            AncestorState::Unknown => needed.push((resource.index, *id)),
            AncestorState::Present(item) if access.can_read_item(resource, item) => {}
            AncestorState::Present(_) | AncestorState::Absent => {
                return AncestorVisibility::Hidden;
            }
        }
    }
    match needed.is_empty() {
        true => AncestorVisibility::Visible,
        false => AncestorVisibility::NeedsStates(needed),
    }
}

#[cfg(test)]
mod tests;
