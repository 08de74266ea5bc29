//! A page of a list: its rows, the end of a page of large items, and the check of its cursor.

use std::ops::ControlFlow;

use crate::intent::ListQuery;
use crate::model::{ResourceIndex, SORTED_CHARS_MAX};
use crate::plan::Collection;
use crate::store::change_log::{CollectionKey, LogPosition, read_position, stable_version};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{StatementError, StoreError};
use crate::store::existence::require_parents;
use crate::store::sql::condition::row_conditions::SelectedBy;
use crate::store::sql::list::ListStatements;
use crate::store::statement::{Columns, Statement};
use crate::value::{Id, Item, Page, Value};

/// A page of large items ends early: the size of a response is bounded too.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// The rows of a page, as they are loaded.
struct PageRows<'a> {
    context: &'a StoreContext,
    resource: ResourceIndex,
    items: Vec<Item>,
    bytes: usize,
    position: Option<LogPosition>,
    /// The ids of the ancestors of each item, where the statement returns them.
    ancestors: Option<Vec<Vec<Id>>>,
}

impl PageRows<'_> {
    /// Runs the statement that reads the position, if there is one, and one that reads items, in one round trip.
    async fn load<D: Driver>(
        &mut self,
        driver: &mut D,
        position: Option<Statement<'_>>,
        page: Statement<'_>,
    ) -> Result<(), StatementError> {
        let Self { context, resource, items, bytes, position: found, ancestors } = self;
        let has_position = position.is_some();
        let statements: Vec<_> = position.into_iter().chain([page]).collect();
        let mut read = |at: usize, row: &dyn Columns| {
            if at == 0 && has_position {
                *found = Some(read_position(row)?);
                return Ok(ControlFlow::Continue(()));
            }
            let item = match ancestors {
                None => context.read_item(*resource, row)?,
                Some(all) => {
                    let (item, above) = context.read_located_item(*resource, row)?;
                    all.push(above);
                    item
                }
            };
            *bytes += item.approximate_bytes();
            items.push(item);
            Ok(if *bytes > PAGE_BYTES_MAX {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        };
        driver.read_rows(&statements, &mut read).await
    }

    fn is_full(&self, limit: usize) -> bool {
        self.bytes > PAGE_BYTES_MAX || self.items.len() > limit
    }
}

/// A page to be read.
pub struct PageRead<'a> {
    pub context: &'a StoreContext,
    pub collection: &'a Collection,
    pub list: &'a ListQuery,
    /// For the position of the page in the change log.
    pub key: Option<CollectionKey<'a>>,
}

impl<'a> PageRead<'a> {
    pub fn new(context: &'a StoreContext, collection: &'a Collection, list: &'a ListQuery) -> Self {
        Self { context, collection, list, key: CollectionKey::new(context, collection, list) }
    }

    pub async fn load<D: Driver>(&self, driver: &mut D) -> Result<Page, StoreError> {
        Ok(self.load_rows(driver, None).await?.0)
    }

    /// With the ids of the ancestors of each item, the top-level one first.
    pub async fn load_located<D: Driver>(
        &self,
        driver: &mut D,
    ) -> Result<(Page, Vec<Vec<Id>>), StoreError> {
        let is_flat = self.collection.is_flat();
        let (page, ancestors) = self.load_rows(driver, is_flat.then(Vec::new)).await?;
        let count = page.items.len();
        let above = || vec![self.collection.ancestors.clone(); count];
        Ok((page, ancestors.unwrap_or_else(above)))
    }

    async fn load_rows<D: Driver>(
        &self,
        driver: &mut D,
        ancestors: Option<Vec<Vec<Id>>>,
    ) -> Result<(Page, Option<Vec<Vec<Id>>>), StoreError> {
        let Self { context, collection, list, key } = self;
        // One row more than the limit shows whether there is a next page.
        let limit = i64::try_from(list.limit).unwrap_or(i64::MAX).saturating_add(1);
        let mut position = key.as_ref().map(|key| key.statement_for(driver));
        let resource = collection.resource;
        let is_located = ancestors.is_some();
        let mut rows =
            PageRows { context, resource, items: Vec::new(), bytes: 0, position: None, ancestors };
        if list.is_whole_by_id() && !is_located {
            let reached = context.scoped_statements(collection.resource, &collection.scope);
            let after = list.after.as_ref().map(|after| after.id);
            let page = reached.page(limit, after, collection);
            rows.load(driver, position, page).await?;
        } else {
            let by = SelectedBy::Condition;
            let listing = match is_located {
                true => located_statements(context, collection, list, by),
                false => list_statements(context, collection, list, by),
            };
            for section in listing.sections() {
                let found = i64::try_from(rows.items.len()).unwrap_or(i64::MAX);
                let page = listing.page(section, limit.saturating_sub(found));
                rows.load(driver, position.take(), page).await?;
                if rows.is_full(list.limit) {
                    break;
                }
            }
        }
        let position = rows.position.and_then(|found| stable_version(driver, found));
        // Items prove that their parents exist; an empty list does not.
        if rows.items.is_empty() {
            require_parents(driver, context, collection).await?;
        }
        let total = match list.is_counted {
            true => Some(count_items(driver, context, collection, list).await?),
            false => None,
        };
        let has_more = rows.is_full(list.limit);
        let mut items = rows.items;
        items.truncate(list.limit);
        let last = items.last().filter(|_| has_more);
        if let Some(item) = last {
            check_cursor_values(context, resource, list, item)?;
        }
        let next = last.map(|item| item.id);
        Ok((Page { items, limit: list.limit, next, total, position }, rows.ancestors))
    }
}

/// Checks the values of the last item of a page, which become the cursor of the next one: another program may
/// have damaged an object, or stored a longer text than the model allows.
pub fn check_cursor_values(
    context: &StoreContext,
    resource: ResourceIndex,
    list: &ListQuery,
    item: &Item,
) -> Result<(), StatementError> {
    if list.sorts_inside_objects() {
        context.check_lists_and_objects(resource, item)?;
    }
    let values = list.position_after(context.model.resource(resource), item).values;
    let is_too_long = |value: &Value| matches!(value, Value::Text(text) if text.chars().count() > SORTED_CHARS_MAX);
    match values.iter().any(is_too_long) {
        true => Err(context.damaged_item(resource, item, "a text is longer than its field allows")),
        false => Ok(()),
    }
}

pub fn list_statements<'a>(
    context: &'a StoreContext,
    collection: &'a Collection,
    list: &'a ListQuery,
    by: SelectedBy,
) -> ListStatements<'a> {
    ListStatements::new(&context.model, context.sql.dialect, collection, list, by)
}

/// As `list_statements`, with the ids of the ancestors of each item of a flat collection.
pub fn located_statements<'a>(
    context: &'a StoreContext,
    collection: &'a Collection,
    list: &'a ListQuery,
    by: SelectedBy,
) -> ListStatements<'a> {
    ListStatements::located(&context.model, context.sql.dialect, collection, list, by)
}

/// The total number of items of a list, over all pages.
async fn count_items<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    list: &ListQuery,
) -> Result<i64, StoreError> {
    let listing = list_statements(context, collection, list, SelectedBy::Condition);
    let count = driver.query_statement(&listing.count(), |row| row.required_integer(0)).await?;
    count.first().copied().ok_or_else(|| StoreError::internal("a count without a row"))
}
