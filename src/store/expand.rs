//! Related items: what `expand` adds to an item or a page. All of it is of one snapshot, and each relation is one
//! statement, however many items it is followed from. Only children on SQLite are one for each parent: it would sort all
//! of them in memory before it returns the first, and needs no round trips.
//!
//! The statements have the conditions of a flat read by the same caller, so that a response shows no item, and counts
//! none, that the caller would not find otherwise.

use std::collections::HashMap;
use std::slice;

use crate::formats::json::referenced_ids;
use crate::formats::{RelatedGroup, RelatedItems, RelatedMember};
use crate::intent::preconditions::PreconditionResult;
use crate::intent::{Expansion, ListQuery, PathForm};
use crate::model::ResourceIndex;
use crate::permit::AccessScope;
use crate::plan::{Collection, ExpandedPage, ExpandedRead, Outcome, RelatedLimits, RequestRefusal};
use crate::store::change_log::read_log_version;
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{InternalError, StoreError};
use crate::store::list_page::{PageRead, check_cursor_values, list_statements, located_statements};
use crate::store::sql::condition::row_conditions::SelectedBy;
use crate::store::statement::{Columns, Statement};
use crate::value::{Id, Item, Page};

/// The limits of the related items of a response, each counted as often as the response shows it.
const RELATED_ITEMS_MAX: usize = 10_000;
const RELATED_BYTES_MAX: usize = 8 << 20;

/// Reads an item or a page with related items.
pub async fn read_expanded<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    read: &ExpandedRead,
) -> Result<Outcome, StoreError> {
    // Before the snapshot: see `change_log`.
    let position = match is_tagged_by_log(context, read) {
        true => read_log_version(driver).await?,
        false => None,
    };
    let expanded = if position.is_some_and(|position| is_unchanged(&read.list, position)) {
        ExpandedPage { page: one_page(Vec::new(), position), related: Vec::new(), bytes: 0 }
    } else {
        driver.begin_snapshot();
        let loaded = load(driver, context, read, position).await;
        let ended = driver.end_snapshot().await;
        let loaded = loaded?;
        ended?;
        loaded
    };
    Ok(match read.item {
        Some(id) => Outcome::ExpandedItem(id, expanded),
        None => Outcome::ExpandedPage(expanded),
    })
}

/// Whether the entity tag is a position in the change log. A caller with a row filter must not learn of changes to rows
/// that they cannot see, and changes to items that the server makes are not in the log.
fn is_tagged_by_log(context: &StoreContext, read: &ExpandedRead) -> bool {
    let model = &context.model;
    read.resources().into_iter().all(|resource| {
        let is_logged = !model.resource(resource).is_server_made;
        is_logged && !read.collection.scope.has_row_filter(model, resource)
    })
}

/// Whether the client has the response of this position. `If-None-Match: *` needs to know that the item exists.
fn is_unchanged(list: &ListQuery, position: i64) -> bool {
    list.preconditions.evaluate_for_list(None) == PreconditionResult::Holds
        && list.preconditions.evaluate_for_list(Some(position)) == PreconditionResult::NotModified
}

fn one_page(items: Vec<Item>, position: Option<i64>) -> Page {
    Page { items, limit: 1, next: None, total: None, position }
}

async fn load<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    read: &ExpandedRead,
    position: Option<i64>,
) -> Result<ExpandedPage, StoreError> {
    let ExpandedRead { collection, item, list } = read;
    let (mut page, ancestors) = match item {
        Some(id) => {
            let reached = context.scoped_statements(collection.resource, &collection.scope);
            let statement = reached.item(*id, &collection.ancestors);
            let row = |row: &dyn Columns| context.read_item(collection.resource, row);
            let found = driver.query_statement(&statement, row).await?;
            if found.is_empty() {
                return Err(StoreError::Refused(RequestRefusal::Missing));
            }
            (one_page(found, position), vec![collection.ancestors.clone()])
        }
        None => {
            let read = PageRead { context, collection, list, key: None };
            let (page, ancestors) = read.load_located(driver).await?;
            (Page { position, ..page }, ancestors)
        }
    };
    let own_bytes: usize = page.items.iter().map(Item::approximate_bytes).sum();
    let shown = page.items.into_iter().zip(ancestors);
    let shown = shown.map(|(item, ancestors)| ShownItem { item, ancestors, count: 1 });
    let shown: Vec<ShownItem> = shown.collect();
    let scope = &collection.scope;
    let mut reader = RelatedReader { driver, context, scope, items: 0, bytes: 0 };
    let related = reader.read_all(&shown, &list.expand).await?;
    let bytes = own_bytes + reader.bytes;
    page.items = shown.into_iter().map(|one| one.item).collect();
    Ok(ExpandedPage { page, related, bytes })
}

/// An item of the response.
struct ShownItem {
    item: Item,
    /// The ids of its ancestors, the top-level one first.
    ancestors: Vec<Id>,
    /// How often the response shows it.
    count: usize,
}

/// Reads the related items of one response, within its limits.
struct RelatedReader<'a, D> {
    driver: &'a mut D,
    context: &'a StoreContext,
    scope: &'a AccessScope,
    items: usize,
    bytes: usize,
}

impl<D: Driver> RelatedReader<'_, D> {
    async fn read_all(
        &mut self,
        from: &[ShownItem],
        expand: &[Expansion],
    ) -> Result<Vec<RelatedItems>, StoreError> {
        let mut all = Vec::with_capacity(expand.len());
        for expansion in expand {
            let mut next = HashMap::new();
            let found = match expansion.relation.member {
                RelatedMember::Children => self.read_children(from, expansion, &mut next).await?,
                RelatedMember::Parent => {
                    let id = |item: &Item| item.parent.into_iter().collect();
                    self.read_targets(from, expansion, id).await?
                }
                RelatedMember::Field(at) => {
                    let ids =
                        |item: &Item| item.values.get(at).map(referenced_ids).unwrap_or_default();
                    self.read_targets(from, expansion, ids).await?
                }
            };
            let inner = Box::pin(self.read_all(&found, &expansion.inner)).await?;
            let mut groups: HashMap<Id, RelatedGroup> = HashMap::new();
            for ShownItem { item, .. } in found {
                let key = match expansion.relation.member {
                    RelatedMember::Children => item.parent.unwrap_or(item.id),
                    RelatedMember::Parent | RelatedMember::Field(_) => item.id,
                };
                groups.entry(key).or_default().items.push(item);
            }
            for (key, address) in next {
                groups.entry(key).or_default().next = Some(address);
            }
            all.push(RelatedItems { groups, inner });
        }
        Ok(all)
    }

    /// The parents of items, or the items that they refer to: each once.
    async fn read_targets(
        &mut self,
        from: &[ShownItem],
        expansion: &Expansion,
        target_ids: impl Fn(&Item) -> Vec<Id>,
    ) -> Result<Vec<ShownItem>, StoreError> {
        let (mut ids, mut counts) = (Vec::new(), HashMap::new());
        for one in from {
            for id in target_ids(&one.item) {
                *counts.entry(id).or_insert(0) += one.count;
                if counts.len() > ids.len() {
                    ids.push(id);
                }
            }
            // A list of references may be long; the items would be counted later.
            if ids.len() > RELATED_ITEMS_MAX {
                return Err(too_many());
            }
        }
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (context, target) = (self.context, expansion.relation.target);
        let collection = self.all_items(target);
        check_parameters(&ids)?;
        let listing = located_statements(context, &collection, &expansion.list, SelectedBy::Key);
        let row = |row: &dyn Columns| context.read_located_item(target, row);
        let mut found = FoundRows::default();
        self.rows(&mut found, &listing.with_ids(&ids), ids.len(), row).await?;
        let shown = found.rows.into_iter().map(|(item, ancestors)| {
            let count = counts.get(&item.id).copied().unwrap_or(1);
            self.count_item(ShownItem { item, ancestors, count })
        });
        shown.collect()
    }

    /// The first children of each item, in the order of their list; `next` gets the addresses of the others.
    async fn read_children(
        &mut self,
        from: &[ShownItem],
        expansion: &Expansion,
        next: &mut HashMap<Id, String>,
    ) -> Result<Vec<ShownItem>, StoreError> {
        if from.is_empty() {
            return Ok(Vec::new());
        }
        let (context, list) = (self.context, &expansion.list);
        let (target, model) = (expansion.relation.target, &context.model);
        let collection = self.all_items(target);
        let ids: Vec<Id> = from.iter().map(|one| one.item.id).collect();
        check_parameters(&ids)?;
        // One row more than the limit shows whether there are more.
        let limit = i64::try_from(list.limit).unwrap_or(i64::MAX).saturating_add(1);
        let listing = list_statements(context, &collection, list, SelectedBy::Key);
        let row = |row: &dyn Columns| Ok((context.read_item(target, row)?, Vec::new()));
        let mut found = FoundRows::default();
        if context.sql.dialect.has_lateral {
            self.rows(&mut found, &listing.of_parents(&ids, limit), ids.len(), row).await?;
        } else {
            for id in &ids {
                self.rows(&mut found, &listing.of_parent(*id, limit), ids.len(), row).await?;
            }
        }
        let mut by_parent: HashMap<Id, Vec<Item>> = HashMap::new();
        for (item, _) in found.rows {
            by_parent.entry(item.parent.unwrap_or(item.id)).or_default().push(item);
        }
        let mut all = Vec::new();
        for parent in from {
            let Some(mut items) = by_parent.remove(&parent.item.id) else { continue };
            let mut ancestors = parent.ancestors.clone();
            ancestors.push(parent.item.id);
            if items.len() > list.limit {
                items.truncate(list.limit);
                if let Some(last) = items.last() {
                    check_cursor_values(context, target, list, last)?;
                    let collection =
                        Collection::nested(target, ancestors.clone(), self.scope.clone());
                    let path = collection.path(model);
                    let (_, address) = list.next_page(&path, model.resource(target), last);
                    self.count(0, parent.count * address.len())?;
                    next.insert(parent.item.id, address);
                }
            }
            for item in items {
                let ancestors = ancestors.clone();
                all.push(self.count_item(ShownItem { item, ancestors, count: parent.count })?);
            }
        }
        Ok(all)
    }

    /// The items of a resource under all parents, as the caller sees them.
    fn all_items(&self, resource: ResourceIndex) -> Collection {
        let (form, scope) = (PathForm::Flat, self.scope.clone());
        Collection { resource, form, ancestors: Vec::new(), scope }
    }

    /// Adds the rows of a statement, unless they are too many: `extra` is the number of rows that may not be shown.
    async fn rows(
        &mut self,
        found: &mut FoundRows,
        statement: &Statement<'_>,
        extra: usize,
        read: impl Fn(&dyn Columns) -> Result<(Item, Vec<Id>), InternalError>,
    ) -> Result<(), StoreError> {
        let (mut rows, mut bytes) = (found.rows.len(), found.bytes);
        let mut is_over = false;
        let is_enough = |(item, _): &(Item, Vec<Id>)| {
            rows += 1;
            bytes += item.approximate_bytes();
            is_over = rows > RELATED_ITEMS_MAX + extra || bytes > RELATED_BYTES_MAX;
            is_over
        };
        let statements = slice::from_ref(statement);
        let read = self.driver.query_all(statements, |_, row| read(row), is_enough).await?;
        found.rows.extend(read.into_iter().flatten());
        found.bytes = bytes;
        match is_over {
            true => Err(too_many()),
            false => Ok(()),
        }
    }

    /// Counts an item that the response shows, as often as it does.
    fn count_item(&mut self, shown: ShownItem) -> Result<ShownItem, StoreError> {
        self.count(shown.count, shown.count * shown.item.approximate_bytes())?;
        Ok(shown)
    }

    fn count(&mut self, items: usize, bytes: usize) -> Result<(), StoreError> {
        self.items += items;
        self.bytes += bytes;
        match self.items > RELATED_ITEMS_MAX || self.bytes > RELATED_BYTES_MAX {
            true => Err(too_many()),
            false => Ok(()),
        }
    }
}

/// The rows of one relation, with the ids of their ancestors where the statement has them.
#[derive(Default)]
struct FoundRows {
    rows: Vec<(Item, Vec<Id>)>,
    bytes: usize,
}

/// Refuses ids that would be too many parameters of a statement. A page may be larger than the related items may be.
fn check_parameters(ids: &[Id]) -> Result<(), StoreError> {
    match ids.len() > RELATED_ITEMS_MAX {
        true => Err(too_many()),
        false => Ok(()),
    }
}

fn too_many() -> StoreError {
    let limits = RelatedLimits { items_max: RELATED_ITEMS_MAX, bytes_max: RELATED_BYTES_MAX };
    StoreError::Refused(RequestRefusal::TooManyRelated(limits))
}

#[cfg(test)]
mod tests;
