//! The change log: its entries, its bounds, the version of a collection, and reading it in order.
//!
//! Written once for both backends. `page` reads it for `/-/changes`, `item_log` by item and by time, `history` for
//! an item as it was.
//!
//! The version of a collection is the number of its last entry, from which list ETags are made. The invariant: a
//! version is given out only at or below the low-water mark, which is read before the list. So the list contains
//! every change up to its version, and while no larger number appears, the list is unchanged.
//!
//! A reader never misses a change that commits late with a smaller number: it reads only up to the low-water mark
//! (`Dialect::low_watermark`).

pub mod history;
pub mod item_log;
pub mod page;

use std::sync::atomic::Ordering;

use crate::formats;
use crate::intent::preconditions::PreconditionResult;
use crate::intent::{ListQuery, push_unprefixed_path};
use crate::model::{ChangeLogDetail, Resource};
use crate::plan::{
    ChangeAuthor, ChangeBatch, ChangeLogBounds, Collection, LogMarks, RequestRefusal,
};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{InternalError, StatementError, StoreError};
use crate::store::sql::insert::ENTRY_BINDS;
use crate::store::sql::statements::{
    CHANGE_LOG_BOUNDS, CHANGES_OLDEST, CHANGES_SWEPT, changes_between, numbers_after,
    raise_system_number,
};
use crate::store::statement::{Bind, Columns, Statement};
use crate::store::system_values;
use crate::value::{Change, ChangeKind, Id, Item, Moment, Page};

/// Changes per batch.
pub const BATCH_CHANGES_MAX: i64 = 500;

/// The columns that all change log entries of one write share.
#[derive(Debug)]
pub struct ChangeLogContext<'a> {
    pub collection: &'a Collection,
    pub by: &'a ChangeAuthor,
    pub now: Moment,
}

/// One entry of the change log, as text.
pub struct ChangeLogEntry<'a> {
    pub resource: &'a Resource,
    pub kind: ChangeKind,
    pub id: String,
    pub parent: Option<String>,
    pub subject: String,
    pub changed: Option<String>,
    pub before: Option<String>,
    pub after: Option<String>,
}

impl<'a> ChangeLogEntry<'a> {
    pub fn new(
        context: &'a StoreContext,
        collection: &Collection,
        kind: ChangeKind,
        item: &Item,
    ) -> Self {
        crate::fault::point("entry");
        let resource = context.model.resource(collection.resource);
        let mut subject = String::with_capacity(96);
        let ids = (&*collection.ancestors, Some(item.id));
        push_unprefixed_path(&mut subject, &context.model, resource.index, ids);
        let (id, parent) = (item.id.text(), item.parent.map(Id::text));
        Self { resource, kind, id, parent, subject, changed: None, before: None, after: None }
    }

    pub fn with_values(self, before: Option<&Item>, after: Option<&Item>) -> Self {
        let text = |item: Option<&Item>| match self.resource.changes {
            ChangeLogDetail::Values => {
                item.map(|item| formats::json::item_text(self.resource, item))
            }
            ChangeLogDetail::Ids => None,
        };
        let (before, after) = (text(before), text(after));
        Self { before, after, ..self }
    }

    pub fn binds<'b>(&'b self, log: &'b ChangeLogContext<'_>) -> [Bind<'b>; ENTRY_BINDS] {
        [
            Bind::Moment(log.now),
            Bind::Text(&self.resource.label),
            Bind::Text(&self.id),
            Bind::optional_text(self.parent.as_deref()),
            Bind::Text(&self.subject),
            Bind::Text(self.kind.as_str()),
            Bind::Text(&log.by.actor),
            Bind::Text(&log.by.request_id),
            Bind::optional_text(self.changed.as_deref()),
            Bind::optional_text(self.before.as_deref()),
            Bind::optional_text(self.after.as_deref()),
        ]
    }
}

/// Reads the bounds, for the metrics.
pub async fn read_bounds<D: Driver>(driver: &mut D) -> Result<ChangeLogBounds, StatementError> {
    let read = |row: &dyn Columns| {
        Ok(ChangeLogBounds { oldest: row.integer(0)?, newest: row.integer(1)? })
    };
    let found = driver.query_one(CHANGE_LOG_BOUNDS, &[], read).await?;
    Ok(found.unwrap_or(ChangeLogBounds { oldest: None, newest: None }))
}

/// Reads the low-water mark first: every change up to it is visible to the statements after it. The mark of one
/// call may be lower than that of an earlier one, which stays valid.
///
/// Numbers above the newest visible entry, of transactions that were rolled back, may be drawn again after a crash or a
/// failover, because nothing that was committed depends on them. So no reader gets a position there.
pub async fn read_marks<D: Driver>(driver: &mut D) -> Result<LogMarks, StatementError> {
    let known_before = driver.low_watermark().map_or(0, |known| known.load(Ordering::Relaxed));
    let statements = [D::DIALECT.low_watermark, D::DIALECT.log_marks];
    let statements = statements.map(|sql| Statement::new(sql, Vec::new()));
    let read = |at: usize, row: &dyn Columns| match at {
        0 => Ok([row.integer(0)?, None, None, None, None]),
        _ => Ok([
            row.integer(0)?,
            row.integer(1)?,
            row.integer(2)?,
            row.integer(3)?,
            row.integer(4)?,
        ]),
    };
    let rows = driver.query_all(&statements, read, |_| false).await?;
    let mut rows = rows.into_iter().flatten();
    let [low_watermark, ..] = rows.next().unwrap_or_default();
    let [oldest, swept, reached, newest, incarnation] = rows.next().unwrap_or_default();
    let (found, swept) = (low_watermark.unwrap_or(0), swept.unwrap_or(0));
    let reached = reached.unwrap_or(0).max(found).max(swept);
    let low_watermark = driver.low_watermark().map_or(found, |known| {
        if known_before > reached {
            // The mark of another log: a standby was promoted that had not received all entries.
            known.store(0, Ordering::Relaxed);
        }
        known.fetch_max(found, Ordering::Relaxed).max(found)
    });
    let reached = reached.max(low_watermark);
    Ok(LogMarks {
        oldest,
        swept,
        reached,
        low_watermark: low_watermark.min(newest.unwrap_or(0).max(swept)),
        has_in_flight: reached > low_watermark,
        incarnation: incarnation.unwrap_or(0),
    })
}

/// Records that entries up to this number were deleted.
pub async fn raise_swept<D: Driver>(driver: &mut D, swept: i64) -> Result<(), StatementError> {
    let swept = swept.to_string();
    let binds = [Bind::Text(CHANGES_SWEPT), Bind::Text(&swept)];
    driver.execute(&raise_system_number(D::DIALECT), &binds).await.map(drop)
}

/// Records what was deleted from the log of a database of an earlier version, which did not record it.
pub async fn record_swept_if_absent<D: Driver>(driver: &mut D) -> Result<(), StatementError> {
    // Checking first: another session may hold a lock on the log.
    if system_values::read(driver, CHANGES_SWEPT).await?.is_some() {
        return Ok(());
    }
    let oldest = read_marks(driver).await?.oldest;
    raise_swept(driver, oldest.map_or(0, |oldest| oldest - 1)).await
}

/// Notices what a server of an earlier version has deleted without recording it: the entry that was the oldest is
/// gone. The number of the oldest entry alone does not tell, because rolled-back transactions leave gaps.
pub async fn record_foreign_sweep<D: Driver>(driver: &mut D) -> Result<(), StatementError> {
    let LogMarks { oldest, swept, .. } = read_marks(driver).await?;
    let Some(oldest) = oldest else { return Ok(()) };
    let stored = system_values::read(driver, CHANGES_OLDEST).await?;
    let stored: Option<i64> = stored.and_then(|text| text.parse().ok());
    if stored.is_some_and(|stored| swept < stored && stored < oldest) {
        raise_swept(driver, oldest - 1).await?;
    }
    if stored != Some(oldest) {
        system_values::write(driver, CHANGES_OLDEST, &oldest.to_string()).await?;
    }
    Ok(())
}

/// A collection as the change log identifies it.
#[derive(Debug)]
pub struct CollectionKey<'a> {
    sql: &'a str,
    resource: &'a str,
    parent: Option<String>,
}

/// The last change of a collection, and the low-water mark of the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogPosition {
    last_change: i64,
    low_watermark: i64,
}

impl<'a> CollectionKey<'a> {
    /// `None` for callers with a row filter: they must not learn of changes to rows that they cannot see. `None` for
    /// items that the server changes, too: these changes are not in the log. `None` for the items of all parents: no
    /// index finds their last change. `None` for a list that is filtered by related items, whose changes count too.
    pub fn new(
        context: &'a StoreContext,
        collection: &Collection,
        list: &ListQuery,
    ) -> Option<Self> {
        let Collection { resource, ancestors, scope, .. } = collection;
        let is_logged = !context.model.resource(*resource).is_server_made;
        let is_restricted = !scope.access(*resource).row_filters.is_empty();
        if !is_logged || collection.is_flat() || is_restricted || list.filters_by_related() {
            return None;
        }
        let parent = ancestors.last().map(ToString::to_string);
        let [top, nested] = context.sql.dialect.collection_versions;
        let sql = if parent.is_some() { nested } else { top };
        Some(Self { sql, resource: &context.model.resource(*resource).label, parent })
    }

    /// The statement that reads the position; it needs a newer low-water mark only above the known one.
    pub fn statement_for<D: Driver>(&self, driver: &D) -> Statement<'_> {
        let known = driver.low_watermark();
        self.statement(known.map_or(i64::MAX, |known| known.load(Ordering::Relaxed)))
    }

    fn statement(&self, low_watermark: i64) -> Statement<'_> {
        let mut binds = vec![Bind::Integer(low_watermark), Bind::Text(self.resource)];
        binds.extend(self.parent.as_deref().map(Bind::Text));
        Statement::new(self.sql, binds)
    }
}

pub fn read_position(row: &dyn Columns) -> Result<LogPosition, InternalError> {
    Ok(LogPosition {
        last_change: row.required_integer(0)?,
        low_watermark: row.required_integer(1)?,
    })
}

/// The version, if it is at or below the low-water mark.
pub fn stable_version<D: Driver>(driver: &D, found: LogPosition) -> Option<i64> {
    let LogPosition { last_change, low_watermark } = found;
    if let Some(known) = driver.low_watermark() {
        known.fetch_max(low_watermark, Ordering::Relaxed);
    }
    (last_change <= low_watermark).then_some(last_change)
}

/// Reads the newest number of the log, if it is at or below the low-water mark. What is read after it has every change
/// up to it.
pub async fn read_log_version<D: Driver>(driver: &mut D) -> Result<Option<i64>, StatementError> {
    let known = driver.low_watermark().map_or(i64::MAX, |known| known.load(Ordering::Relaxed));
    let binds = [Bind::Integer(known)];
    let found = driver.query_one(D::DIALECT.log_version, &binds, read_position).await?;
    Ok(found.and_then(|found| stable_version(driver, found)))
}

/// Answers a conditional request without reading the list: a page without items if the list is unchanged. A
/// missing parent takes precedence.
pub async fn not_modified_page<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    list: &ListQuery,
) -> Result<Option<Page>, StoreError> {
    if list.preconditions.is_none() {
        return Ok(None);
    }
    let Some(standing) = CollectionKey::new(context, collection, list) else { return Ok(None) };
    let seen = collection.scope.for_reading();
    let parent = context.parent_statements(collection, &seen);
    // An ETag is given out only at or below the low-water mark, so there is no need to check that
    // again.
    let place = standing.statement(i64::MAX);
    let look = parent.as_ref().map(|(parent, id, above)| parent.exists(*id, above));
    let statements: Vec<_> = [place].into_iter().chain(look).collect();
    let read = |at: usize, row: &dyn Columns| match at {
        0 => read_position(row).map(Some),
        _ => Ok(None),
    };
    let rows = driver.query_all(&statements, read, |_| false).await?;
    if rows.iter().skip(1).any(Vec::is_empty) {
        return Err(StoreError::Refused(RequestRefusal::Missing));
    }
    let found = rows.into_iter().flatten().flatten().next().map(|found| found.last_change);
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

/// Reads the changes after a position, up to a limit. Two statements, in this order: the second must see every
/// change up to the low-water mark that the first returns.
pub async fn read_changes_after<D: Driver>(
    driver: &mut D,
    sequence: i64,
) -> Result<Vec<Change>, StatementError> {
    let low_watermark =
        driver.query_one(D::DIALECT.low_watermark, &[], |row| row.integer(0)).await?;
    let low_watermark = low_watermark.flatten().unwrap_or(0);
    if low_watermark <= sequence {
        return Ok(Vec::new());
    }
    let binds =
        [Bind::Integer(sequence), Bind::Integer(low_watermark), Bind::Integer(BATCH_CHANGES_MAX)];
    driver.query(&changes_between(D::DIALECT), &binds, read_change).await
}

/// The numbers of the visible entries after a position, in order, also above the low-water mark.
pub async fn read_numbers_after<D: Driver>(
    driver: &mut D,
    position: i64,
    count_max: usize,
) -> Result<Vec<i64>, StatementError> {
    let limit = i64::try_from(count_max).unwrap_or(i64::MAX);
    let binds = [Bind::Integer(position), Bind::Integer(limit)];
    driver.query(&numbers_after(D::DIALECT), &binds, |row| row.required_integer(0)).await
}

/// Reads the entries after a position, of limited number and size: a batch of large items ends early. As in
/// `read_changes_after`, the low-water mark comes first.
pub async fn read_log_batch<D: Driver>(
    driver: &mut D,
    after: i64,
    bytes_max: usize,
) -> Result<ChangeBatch, StatementError> {
    let marks = read_marks(driver).await?;
    let mut batch = ChangeBatch { changes: Vec::new(), end: after.max(marks.low_watermark), marks };
    if marks.low_watermark <= after {
        return Ok(batch);
    }
    let sql = changes_between(D::DIALECT);
    let binds = [after, marks.low_watermark, BATCH_CHANGES_MAX].map(Bind::Integer);
    let statement = Statement::new(&sql, binds.to_vec());
    let mut bytes = 0;
    let is_enough = |change: &Change| {
        let texts = [&change.changed, &change.before, &change.after];
        bytes += texts.into_iter().flatten().map(String::len).sum::<usize>();
        bytes > bytes_max
    };
    let read = |_, row: &dyn Columns| read_change(row);
    let rows = driver.query_all(std::slice::from_ref(&statement), read, is_enough).await?;
    batch.changes = rows.into_iter().flatten().collect();
    let is_full = bytes > bytes_max
        || i64::try_from(batch.changes.len()).is_ok_and(|count| count >= BATCH_CHANGES_MAX);
    if let Some(last) = batch.changes.last().filter(|_| is_full) {
        batch.end = last.sequence;
    }
    // A sweep after the marks were read may have removed entries, the oldest ones first.
    if batch.changes.first().is_none_or(|first| first.sequence > after + 1) {
        batch.marks.swept = read_marks(driver).await?.swept.max(marks.swept);
    }
    Ok(batch)
}

pub fn read_change(row: &dyn Columns) -> Result<Change, InternalError> {
    Ok(Change {
        sequence: row.required_integer(0)?,
        time: row.required_moment(1)?,
        resource: row.required_text(2)?,
        id: row.required_text(3)?,
        subject: row.required_text(4)?,
        kind: row.required_text(5)?,
        actor: row.required_text(6)?,
        request_id: row.required_text(7)?,
        changed: row.optional_text(8)?,
        before: row.optional_text(9)?,
        after: row.optional_text(10)?,
    })
}

#[cfg(test)]
mod tests;
