//! The context of every transaction: the model with its statements, and the statements of a resource for the access
//! scope of a caller (row-level security).
//!
//! For a caller with access to all rows these are the statements made at startup. For others they are made on
//! first use, and cached for all callers with the same rights.

use std::convert::Infallible;
use std::sync::Arc;

use quick_cache::sync::Cache;

use crate::fault::OrBug;
use crate::intent::PathForm;
use crate::metrics::Counter;
use crate::model::{GrantVerb, Model, ResourceIndex};
use crate::permit::AccessScope;
use crate::plan::Collection;
use crate::store::change_hint::ChangeHint;
use crate::store::error::{InternalError, StatementError};
use crate::store::rows;
use crate::store::sql::columns::columns;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::read_statements::{FlatStatements, ReadStatements};
use crate::store::sql::statements::SqlStatements;
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::{Id, Item};

/// A write of more rows than this gets a separate commit.
pub const GROUPED_ROWS_MAX: usize = 100;
/// Capacity of the cache of filtered statements: a few kilobytes each.
const FILTERED_MAX: usize = 1_000;

/// The model, its SQL statements and the cache of filtered statements.
#[derive(Debug)]
pub struct StoreContext {
    pub model: Arc<Model>,
    pub sql: SqlStatements,
    /// Cache of filtered statements, by the fingerprint of the rights, the verb and the resource.
    filtered: Cache<(u128, GrantVerb, ResourceIndex), Arc<ReadStatements>>,
    /// Notified after each commit of this process.
    pub change_hint: Arc<ChangeHint>,
    /// Metric: stored items that could not be decoded.
    pub damaged_items: Arc<Counter>,
}

impl StoreContext {
    pub fn new(
        model: &Arc<Model>,
        dialect: &'static Dialect,
        damaged_items: Arc<Counter>,
    ) -> Arc<Self> {
        Arc::new(Self {
            model: Arc::clone(model),
            sql: SqlStatements::new(model, dialect),
            filtered: Cache::new(FILTERED_MAX),
            change_hint: Arc::default(),
            damaged_items,
        })
    }
}

/// Whether a write shares its commit with others (group commit); one that does must be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommitMode {
    Grouped,
    Exclusive,
}

/// The statements of one resource within an access scope.
#[derive(Debug)]
pub struct ScopedStatements<'a> {
    unfiltered: &'a ReadStatements,
    filtered: Option<Arc<ReadStatements>>,
    scope: &'a AccessScope,
}

/// The operation for which a transaction locks a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLock {
    /// To change the item: others may insert children meanwhile.
    Update,
    Delete,
}

impl StoreContext {
    pub fn scoped_statements<'a>(
        &'a self,
        resource: ResourceIndex,
        scope: &'a AccessScope,
    ) -> ScopedStatements<'a> {
        ScopedStatements {
            unfiltered: &self.sql.table_statements(resource).read,
            filtered: self.filtered_statements(resource, scope),
            scope,
        }
    }

    /// Decodes a row into an item. A damaged row is counted, and the error names its id.
    pub fn read_item(
        &self,
        resource: ResourceIndex,
        row: &dyn Columns,
    ) -> Result<Item, InternalError> {
        let resource = self.model.resource(resource);
        rows::read_item(&self.model, resource, row).inspect_err(|_| self.damaged_items.add(1))
    }

    /// As `read_item`, with the ids of the item's ancestors, the top-level one first; those above the parent are after
    /// the columns of the item.
    pub fn read_located_item(
        &self,
        resource: ResourceIndex,
        row: &dyn Columns,
    ) -> Result<(Item, Vec<Id>), InternalError> {
        let item = self.read_item(resource, row)?;
        let resource = self.model.resource(resource);
        let mut ancestors = Vec::from_iter(item.parent);
        let above = resource.ancestor_keys.iter().skip(1);
        for (at, key) in (columns(resource).count()..).zip(above) {
            let id = row.id(at, key.id)?;
            ancestors.push(id.ok_or_else(|| InternalError("an ancestor without an id".into()))?);
        }
        ancestors.reverse();
        Ok((item, ancestors))
    }

    /// Checks the lists and objects of an item that a decision depends on. A damaged one is counted.
    pub fn check_lists_and_objects(
        &self,
        resource: ResourceIndex,
        item: &Item,
    ) -> Result<(), StatementError> {
        let checked = rows::check_lists_and_objects(self.model.resource(resource), item);
        let checked = checked.inspect_err(|_| self.damaged_items.add(1));
        checked.map_err(StatementError::Internal)
    }

    /// The error for an item with an invalid stored value, which is counted.
    pub fn damaged_item(
        &self,
        resource: ResourceIndex,
        item: &Item,
        cause: &str,
    ) -> StatementError {
        self.damaged_items.add(1);
        let resource = self.model.resource(resource);
        StatementError::Internal(rows::damaged_item(resource, Some(item.id), cause))
    }

    /// The parent item of a collection, if it has one of its own: its statements, its id and the ids of its ancestors.
    pub fn parent_statements<'a>(
        &'a self,
        collection: &'a Collection,
        seen: &'a AccessScope,
    ) -> Option<(ScopedStatements<'a>, Id, &'a [Id])> {
        if collection.is_flat() {
            return None;
        }
        let parent = self.model.resource(collection.resource).parent?;
        let (id, above) = collection
            .ancestors
            .split_last()
            .or_bug("a nested collection has the id of its parent");
        Some((self.scoped_statements(parent, seen), *id, above))
    }

    /// `None` if the caller has access to all rows.
    fn filtered_statements(
        &self,
        resource: ResourceIndex,
        scope: &AccessScope,
    ) -> Option<Arc<ReadStatements>> {
        if !scope.has_row_filter(&self.model, resource) {
            return None;
        }
        let (rights, verb) = scope.rights_key().or_bug("a scope with row filters has rights");
        let make = || {
            let (model, dialect) = (&self.model, self.sql.dialect);
            let made = ReadStatements::new(model, dialect, model.resource(resource), scope);
            Ok::<_, Infallible>(Arc::new(made))
        };
        let Ok(statements) = self.filtered.get_or_insert_with(&(rights, verb, resource), make);
        Some(statements)
    }
}

impl ScopedStatements<'_> {
    fn read(&self) -> &ReadStatements {
        self.filtered.as_deref().unwrap_or(self.unfiltered)
    }

    pub fn item(&self, id: Id, ancestors: &[Id]) -> Statement<'_> {
        self.statement(&self.read().item, &[Bind::Id(id)], ancestors)
    }

    /// Reads the item and locks its row until the transaction ends.
    pub fn locked_item(&self, id: Id, ancestors: &[Id], lock: RowLock) -> Statement<'_> {
        let sql = match lock {
            RowLock::Update => &self.read().item_for_update,
            RowLock::Delete => &self.read().item_for_delete,
        };
        self.statement(sql, &[Bind::Id(id)], ancestors)
    }

    pub fn exists(&self, id: Id, ancestors: &[Id]) -> Statement<'_> {
        self.statement(&self.read().exists, &[Bind::Id(id)], ancestors)
    }

    pub fn exists_anywhere(&self, id: Id) -> Statement<'_> {
        self.statement(&self.read().exists_anywhere, &[Bind::Id(id)], &[])
    }

    pub fn item_anywhere(&self, id: Id) -> Statement<'_> {
        self.statement(&self.read().item_anywhere, &[Bind::Id(id)], &[])
    }

    /// The item under any parent, with the ids of its ancestors above the parent after its columns.
    pub fn flat_item(&self, id: Id) -> Statement<'_> {
        self.statement(&self.flat().item, &[Bind::Id(id)], &[])
    }

    /// `limit` rows, after an id (keyset pagination) or from the first one.
    pub fn page(&self, limit: i64, after: Option<Id>, collection: &Collection) -> Statement<'_> {
        let (page, page_after) = match collection.form {
            PathForm::Nested => (&self.read().page, &self.read().page_after),
            PathForm::Flat => (&self.flat().page, &self.flat().page_after),
        };
        let (limit, ancestors) = (Bind::Integer(limit), &collection.ancestors);
        match after {
            None => self.statement(page, &[limit], ancestors),
            Some(after) => self.statement(page_after, &[limit, Bind::Id(after)], ancestors),
        }
    }

    fn flat(&self) -> &FlatStatements {
        self.read().flat.as_ref().or_bug("only a nested resource is read across parents")
    }

    /// Finds another row with the values of an item in the columns of a unique rule, given by its index.
    pub fn unique_conflict<'s>(
        &'s self,
        rule: usize,
        id: Id,
        columns: &[Bind<'s>],
    ) -> Statement<'s> {
        let sql = self.read().unique_conflicts.get(rule).or_bug("a statement for each unique rule");
        self.statement(sql, &[&[Bind::Id(id)], columns].concat(), &[])
    }

    /// A statement with its parameters: the first ones, the ids of the ancestors from the nearest, the
    /// parameters of the conditions.
    fn statement<'s>(
        &'s self,
        sql: &'s str,
        first: &[Bind<'s>],
        ancestors: &[Id],
    ) -> Statement<'s> {
        let mut binds = first.to_vec();
        binds.extend(ancestors.iter().rev().map(|id| Bind::Id(*id)));
        binds.extend(self.read().condition_binds(self.scope));
        Statement::new(sql, binds)
    }
}
