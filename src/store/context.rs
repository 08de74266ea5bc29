//! What every transaction needs: the model with its statements, and the statements of a resource for the access
//! scope of a caller (row-level security).
//!
//! For a caller with access to all rows these are the statements made at startup. For others they are made on
//! first use, and cached for all callers with the same rights.

use std::convert::Infallible;
use std::sync::Arc;

use quick_cache::sync::Cache;

use crate::metrics::Counter;
use crate::model::{GrantVerb, Model, ResourceIndex};
use crate::permit::AccessScope;
use crate::plan::Collection;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::row_filter::RowFilter;
use crate::store::sql::statements::{SqlStatements, TableStatements};
use crate::store::statement::{Bind, Statement};
use crate::value::Id;

/// A write of more rows than this gets a separate commit.
pub const GROUPED_ROWS_MAX: usize = 100;
/// Capacity of the cache of row filters: a few kilobytes each.
pub const ROW_FILTERS_MAX: usize = 1_000;

/// The model, its SQL statements and the cache of row filters.
#[derive(Debug)]
pub struct StoreContext {
    pub model: Arc<Model>,
    pub sql: SqlStatements,
    /// Cache of row filters, by the fingerprint of the rights, the verb and the resource.
    pub row_filters: Cache<(u128, GrantVerb, ResourceIndex), Arc<RowFilter>>,
    /// Metric: stored items that could not be decoded.
    pub damaged_items: Arc<Counter>,
}

impl StoreContext {
    pub fn new(model: &Arc<Model>, dialect: &'static Dialect) -> Arc<Self> {
        Self::with_metrics(model, dialect, Arc::default())
    }

    /// A context with the metric of a server.
    pub fn with_metrics(
        model: &Arc<Model>,
        dialect: &'static Dialect,
        damaged_items: Arc<Counter>,
    ) -> Arc<Self> {
        let (sql, parts) = (SqlStatements::new(model, dialect), Cache::new(ROW_FILTERS_MAX));
        Arc::new(Self { model: Arc::clone(model), sql, row_filters: parts, damaged_items })
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
    table: &'a TableStatements,
    part: Option<Arc<RowFilter>>,
    access_scope: &'a AccessScope,
}

/// The operation for which a transaction locks a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RowLock {
    /// To change the item: others may insert children meanwhile.
    Update,
    Delete,
}

/// The statement for all rows, and a function that picks its counterpart from a row filter.
type StatementPair<'a> = (&'a str, fn(&RowFilter) -> &String);

impl StoreContext {
    pub fn scoped_statements<'a>(
        &'a self,
        resource: ResourceIndex,
        reach: &'a AccessScope,
    ) -> ScopedStatements<'a> {
        ScopedStatements {
            table: self.sql.table_statements(resource),
            part: self.row_filter(resource, reach),
            access_scope: reach,
        }
    }

    /// The parent item of a collection, if it has one: its statements, its id and the ids of its ancestors.
    pub fn parent_statements<'a>(
        &'a self,
        collection: &'a Collection,
        seen: &'a AccessScope,
    ) -> Option<(ScopedStatements<'a>, Id, &'a [Id])> {
        let parent = self.model.resource(collection.resource).parent?;
        let (id, above) = collection.ancestors.split_last()?;
        Some((self.scoped_statements(parent, seen), *id, above))
    }

    /// `None` if the caller has access to all rows.
    fn row_filter(&self, resource: ResourceIndex, reach: &AccessScope) -> Option<Arc<RowFilter>> {
        if !reach.has_row_filter(&self.model, resource) {
            return None;
        }
        let (rights, verb) = reach.rights_key()?;
        let make = || {
            let (model, dialect) = (&self.model, self.sql.dialect);
            let part = RowFilter::new(model, dialect, model.resource(resource), reach);
            Ok::<_, Infallible>(Arc::new(part))
        };
        self.row_filters.get_or_insert_with(&(rights, verb, resource), make).ok()
    }
}

impl ScopedStatements<'_> {
    pub fn item(&self, id: Id, ancestors: &[Id]) -> Statement<'_> {
        self.statement((&self.table.item, |part| &part.item), &[Bind::Id(id)], ancestors)
    }

    /// Reads the item and locks its row until the transaction ends.
    pub fn locked_item(&self, id: Id, ancestors: &[Id], lock: RowLock) -> Statement<'_> {
        let texts: StatementPair<'_> = match lock {
            RowLock::Update => (&self.table.item_for_update, |part| &part.item_for_update),
            RowLock::Delete => (&self.table.item_for_delete, |part| &part.item_for_delete),
        };
        self.statement(texts, &[Bind::Id(id)], ancestors)
    }

    pub fn exists(&self, id: Id, ancestors: &[Id]) -> Statement<'_> {
        self.statement((&self.table.exists, |part| &part.exists), &[Bind::Id(id)], ancestors)
    }

    pub fn exists_anywhere(&self, id: Id) -> Statement<'_> {
        let texts: StatementPair<'_> = (&self.table.exists_anywhere, |part| &part.exists_anywhere);
        self.statement(texts, &[Bind::Id(id)], &[])
    }

    /// `limit` rows, after an id (keyset pagination) or from the first one.
    pub fn page(&self, limit: i64, after: Option<Id>, ancestors: &[Id]) -> Statement<'_> {
        let limit = Bind::Integer(limit);
        match after {
            None => self.statement((&self.table.page, |part| &part.page), &[limit], ancestors),
            Some(after) => {
                let texts: StatementPair<'_> = (&self.table.page_after, |part| &part.page_after);
                self.statement(texts, &[limit, Bind::Id(after)], ancestors)
            }
        }
    }

    /// The statement for all rows or that of the row filter. Its parameters: the first ones, the ids of the
    /// ancestors from the nearest, the parameters of the conditions.
    fn statement<'s>(
        &'s self,
        (whole, pick): StatementPair<'s>,
        first: &[Bind<'s>],
        ancestors: &[Id],
    ) -> Statement<'s> {
        let mut binds = first.to_vec();
        binds.extend(ancestors.iter().rev().map(|id| Bind::Id(*id)));
        match &self.part {
            None => Statement::new(whole, binds),
            Some(part) => {
                binds.extend(part.binds(self.access_scope));
                Statement::new(pick(part), binds)
            }
        }
    }
}
