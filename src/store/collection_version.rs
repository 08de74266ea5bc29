//! The version of a collection: the number of its last entry in the change log, from which list ETags are
//! made.
//!
//! Written once for both backends. It reads no list and writes nothing.
//! The invariant: a version is given out only at or below the low-water mark, which is read before the list.
//! So the list contains every change up to its version, and while no larger number appears, the list is
//! unchanged.

use super::driver::{Bind, Columns, DatabaseDriver, Statement};
use super::transaction::StoreContext;
use super::{InternalError, StoreError};
use crate::intent::ListQuery;
use crate::intent::preconditions::PreconditionResult;
use crate::plan::{Collection, RequestRefusal};
use crate::value::Page;

/// A collection as the change log identifies it.
#[derive(Debug)]
pub(super) struct CollectionKey<'a> {
    sql: &'a str,
    resource: &'a str,
    parent: Option<String>,
}

/// The last change of a collection, and the low-water mark of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogPosition {
    last_change: i64,
    settled: i64,
}

/// A row of one of the two statements.
enum VersionRow {
    Position(LogPosition),
    Parent,
}

impl<'a> CollectionKey<'a> {
    /// `None` for callers with a row filter: they must not learn of changes to rows that they cannot see.
    pub(super) fn new(context: &'a StoreContext, collection: &Collection) -> Option<Self> {
        let Collection { resource, ancestors, scope: reach } = collection;
        if !reach.row_filters(*resource).is_empty() {
            return None;
        }
        let parent = ancestors.last().map(ToString::to_string);
        let [top, nested] = &context.sql.collection_versions;
        let sql = if parent.is_some() { nested } else { top };
        Some(Self { sql, resource: &context.model.resource(*resource).label, parent })
    }

    /// The statement that reads the position; it needs a newer low-water mark only above the known one.
    pub(super) fn statement(&self, settled: i64) -> Statement<'_> {
        let mut binds = vec![Bind::Integer(settled), Bind::Text(self.resource)];
        binds.extend(self.parent.as_deref().map(Bind::Text));
        Statement::new(self.sql, binds)
    }
}

pub(super) fn read(row: &dyn Columns) -> Result<LogPosition, InternalError> {
    let number = |at| {
        let missing = || InternalError("a change log position without a number".to_owned());
        row.integer(at)?.ok_or_else(missing)
    };
    Ok(LogPosition { last_change: number(0)?, settled: number(1)? })
}

/// The version, if it is at or below the low-water mark.
pub(super) fn stable_version<D: DatabaseDriver>(driver: &D, found: &[LogPosition]) -> Option<i64> {
    let LogPosition { last_change: at, settled } = *found.first()?;
    driver.raise_low_watermark(settled);
    (at <= settled).then_some(at)
}

/// Answers a conditional request without reading the list: a page without items if the list is unchanged. A
/// missing parent takes precedence.
pub(super) async fn not_modified_page<D: DatabaseDriver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    list: &ListQuery,
) -> Result<Option<Page>, StoreError> {
    if list.preconditions.is_none() {
        return Ok(None);
    }
    let Some(standing) = CollectionKey::new(context, collection) else { return Ok(None) };
    let seen = collection.scope.for_reading();
    let parent = context.parent_statements(collection, &seen);
    // An ETag is given out only at or below the low-water mark, so there is no need to check that
    // again.
    let place = standing.statement(i64::MAX);
    let look = parent.as_ref().map(|(parent, id, above)| parent.exists(*id, above));
    let strokes: Vec<_> = [place].into_iter().chain(look).collect();
    let read = |at: usize, row: &dyn Columns| match at {
        0 => read(row).map(VersionRow::Position),
        _ => Ok(VersionRow::Parent),
    };
    let rows = driver.query_each(&strokes, read).await?;
    if rows.iter().skip(1).any(Vec::is_empty) {
        return Err(StoreError::Refused(RequestRefusal::Missing));
    }
    let found = rows.into_iter().flatten().find_map(|seen| match seen {
        VersionRow::Position(found) => Some(found.last_change),
        VersionRow::Parent => None,
    });
    let position = found
        .filter(|at| list.preconditions.evaluate_for_list(Some(*at)) != PreconditionResult::Holds);
    Ok(position.map(|position| Page {
        items: Vec::new(),
        limit: list.limit,
        next: None,
        total: None,
        position: Some(position),
    }))
}

#[cfg(test)]
mod tests;
