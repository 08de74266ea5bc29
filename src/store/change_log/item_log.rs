//! The change log by item and by time.
//!
//! The index of an item's entries leaves out `created`. That entry has the creation time of the item, and the
//! order of numbers is nearly that of times, so that a bisection over the primary key finds it.

use std::time::Duration;

use crate::fault::OrBug as _;
use crate::intent::{ItemPath, LoggedChange};
use crate::permit::{AccessScope, ItemState};
use crate::store::change_log::{LogBounds, read_change};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::sql::changes::{LogItem, creation_entry, entry_time, next_item_entry};
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::{Change, Item, Moment};

/// How far the times of neighbouring entries may be out of order: a transaction takes its time before it waits
/// for locks, and the clocks of servers differ.
pub const TIME_DISORDER_MAX: Duration = Duration::from_secs(60);

pub fn log_item<'a>(context: &'a StoreContext, path: &ItemPath) -> LogItem<'a> {
    LogItem { resource: &context.model.resource(path.resource).label, id: path.id.text() }
}

/// The state of an item directly after the entry with this number. The row is read before the log: a change
/// between the two is in the log, with the former values.
pub async fn item_at<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
    sequence: i64,
) -> Result<ItemState, StatementError> {
    let row = read_item_row(driver, context, path).await?;
    let item = log_item(context, path);
    let binds = [Bind::Text(item.resource), Bind::Text(&item.id), Bind::Integer(sequence)];
    let next = driver.query_one(&next_item_entry(D::DIALECT), &binds, read_change).await?;
    Ok(match next {
        None => ItemState { item: row, until: None },
        Some(change) => {
            let until = Some(change.sequence);
            let logged = LoggedChange::new(&context.model, change);
            ItemState { item: logged.before(&context.model).cloned(), until }
        }
    })
}

/// The stored item, for any caller.
pub async fn read_item_row<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
) -> Result<Option<Item>, StatementError> {
    let scope = AccessScope::default();
    let reached = context.scoped_statements(path.resource, &scope);
    let statement = reached.item(path.id, &path.ancestors);
    let read = |row: &dyn Columns| context.read_item(path.resource, row);
    let item = driver.query_statement(&statement, read).await?.pop();
    if let Some(item) = &item {
        context.check_lists_and_objects(path.resource, item)?;
    }
    Ok(item)
}

/// The first number from which on entries are at `time` or later, as far as the order of numbers is that of
/// times.
pub async fn bisect<D: Driver>(
    driver: &mut D,
    bounds: LogBounds,
    time: Moment,
) -> Result<i64, StatementError> {
    let sql = entry_time(D::DIALECT);
    // Entries below `low` are earlier; from `high` on they are not.
    let (mut low, mut high) = (bounds.oldest.unwrap_or(0), bounds.mark + 1);
    while low < high {
        let middle = low + (high - low) / 2;
        let read = |row: &dyn Columns| Ok((row.required_integer(0)?, row.required_moment(1)?));
        match driver.query_one(&sql, &[Bind::Integer(middle)], read).await? {
            Some((sequence, found)) if sequence < high && found < time => low = sequence + 1,
            _ => high = middle,
        }
    }
    Ok(low)
}

/// The numbers between which all entries with times from `from` to `until` are, both included.
pub async fn bisect_range<D: Driver>(
    driver: &mut D,
    bounds: LogBounds,
    (from, until): (Option<Moment>, Option<Moment>),
) -> Result<(i64, i64), StatementError> {
    let disorder = i64::try_from(TIME_DISORDER_MAX.as_micros()).or_bug("a minute fits");
    let first = match from.and_then(|from| Moment::from_micros(from.micros() - disorder)) {
        Some(from) => bisect(driver, bounds, from).await?,
        None => 0,
    };
    let last = match until.and_then(|until| Moment::from_micros(until.micros() + disorder)) {
        Some(until) => bisect(driver, bounds, until).await? - 1,
        None => bounds.mark,
    };
    Ok((first, last))
}

/// The entry of an item's creation, if it is kept.
pub async fn find_creation<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
    bounds: LogBounds,
) -> Result<Option<Change>, StatementError> {
    let created_at = match path.id.created_at() {
        Some(created_at) => Some(created_at),
        None => item_at(driver, context, path, 0).await?.item.map(|item| item.created_at),
    };
    let Some(created_at) = created_at else { return Ok(None) };
    let range = (Some(created_at), Some(created_at));
    let (first, last) = bisect_range(driver, bounds, range).await?;
    let item = log_item(context, path);
    let binds = vec![
        Bind::Integer(first),
        Bind::Integer(last),
        Bind::Text(item.resource),
        Bind::Text(&item.id),
    ];
    let statement = Statement::new(creation_entry(D::DIALECT), binds);
    Ok(driver.query_statement(&statement, read_change).await?.pop())
}
