//! The change log by item and by time.
//!
//! The index of an item's entries leaves out `created`. That entry has the creation time of the item, and the
//! order of numbers is nearly that of times, so that a bisection over the primary key finds it.

use std::time::Duration;

use crate::fault::OrBug as _;
use crate::intent::{ItemPath, LoggedChange};
use crate::permit::AccessScope;
use crate::plan::LogMarks;
use crate::store::change_log::read_change;
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::sql::changes::{
    LogItem, creation_entry, entry_time, item_deletions, next_item_entry,
};
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::{Change, Id, Item, Moment};

/// How far the times of neighbouring entries may be out of order: a transaction takes its time before it waits
/// for locks, and the clocks of servers differ.
pub const TIME_DISORDER_MAX: Duration = Duration::from_secs(60);
/// The numbers that a search for the creation of an item examines.
const CREATION_SEARCH_MAX: i64 = 20_000;
/// The deletions of one item whose next creation is searched for.
const DELETIONS_MAX: i64 = 100;

pub fn log_item<'a>(context: &'a StoreContext, path: &ItemPath) -> LogItem<'a> {
    LogItem { resource: &context.model.resource(path.resource).label, id: path.id.text() }
}

/// The stored item, for any caller. Its lists and objects are not checked: a row filter that reads a damaged one
/// does not hold.
pub async fn read_item_row<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
) -> Result<Option<Item>, StatementError> {
    let scope = AccessScope::default();
    let reached = context.scoped_statements(path.resource, &scope);
    let statement = reached.item(path.id, &path.ancestors);
    let read = |row: &dyn Columns| context.read_item(path.resource, row);
    Ok(driver.query_statement(&statement, read).await?.pop())
}

/// The first number from which on entries are at `time` or later, as far as the order of numbers is that of
/// times.
pub async fn bisect<D: Driver>(
    driver: &mut D,
    marks: LogMarks,
    time: Moment,
) -> Result<i64, StatementError> {
    let sql = entry_time(D::DIALECT);
    // Entries below `low` are earlier; from `high` on they are not.
    let (mut low, mut high) = (marks.oldest.unwrap_or(0), marks.low_watermark + 1);
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
    marks: LogMarks,
    (from, until): (Option<Moment>, Option<Moment>),
) -> Result<(i64, i64), StatementError> {
    let disorder = i64::try_from(TIME_DISORDER_MAX.as_micros()).or_bug("a minute fits");
    let first = match from.and_then(|from| Moment::from_micros(from.micros() - disorder)) {
        Some(from) => bisect(driver, marks, from).await?,
        None => 0,
    };
    let last = match until.and_then(|until| Moment::from_micros(until.micros() + disorder)) {
        Some(until) => bisect(driver, marks, until).await? - 1,
        None => marks.low_watermark,
    };
    Ok((first, last))
}

/// The entries of an item's creations, in order: the first one, and those by imports of the deleted item.
pub async fn find_creations<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
    marks: LogMarks,
) -> Result<Vec<Change>, StatementError> {
    let mut found = Vec::from_iter(find_creation(driver, context, path, marks).await?);
    let item = log_item(context, path);
    let binds = [Bind::Text(item.resource), Bind::Text(&item.id), Bind::Integer(DELETIONS_MAX)];
    let deletions = driver.query(&item_deletions(D::DIALECT), &binds, read_change).await?;
    for deletion in deletions {
        let next = find_next_creation(driver, context, path, (marks, deletion.sequence)).await?;
        found.extend(next);
    }
    found.dedup_by_key(|change| change.sequence);
    Ok(found)
}

/// The entry of the first creation after a deletion.
async fn find_next_creation<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
    (marks, deletion): (LogMarks, i64),
) -> Result<Option<Change>, StatementError> {
    let item = log_item(context, path);
    let binds = [Bind::Text(item.resource), Bind::Text(&item.id), Bind::Integer(deletion)];
    let next = driver.query_one(&next_item_entry(D::DIALECT), &binds, read_change).await?;
    let first = match next {
        // Its first state ended with the next entry.
        Some(next) => {
            let number = next.sequence;
            match LoggedChange::new(&context.model, next).before(&context.model) {
                Some(first) => first.clone(),
                None => {
                    let range = (deletion.max(number - CREATION_SEARCH_MAX), number);
                    return find_creation_between(driver, context, path, range).await;
                }
            }
        }
        None => match read_item_row(driver, context, path).await? {
            Some(row) => row,
            None => return Ok(None),
        },
    };
    let found = find_creation_near(driver, context, path, (marks, first.updated_at)).await?;
    Ok(found.filter(|found| found.sequence > deletion))
}

/// The entry of an item's first creation, if it is kept and near the time of creation, or, where that is unknown, near the
/// first of its other entries. The search examines a bounded range of numbers.
pub async fn find_creation<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
    marks: LogMarks,
) -> Result<Option<Change>, StatementError> {
    if let Some(created_at) = path.id.created_at() {
        let found = find_creation_near(driver, context, path, (marks, created_at)).await?;
        if found.is_some() {
            return Ok(found);
        }
    }
    match find_creation_time(driver, context, path).await? {
        CreationTime::Known(created_at) => {
            find_creation_near(driver, context, path, (marks, created_at)).await
        }
        CreationTime::Before(number) => {
            let range = (number - CREATION_SEARCH_MAX, number);
            find_creation_between(driver, context, path, range).await
        }
        CreationTime::Unknown => Ok(None),
    }
}

/// The same at about this time: first from that time on, where it nearly always is, and then before it.
async fn find_creation_near<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
    (marks, time): (LogMarks, Moment),
) -> Result<Option<Change>, StatementError> {
    let middle = bisect(driver, marks, time).await?;
    let (first, last) = bisect_range(driver, marks, (Some(time), Some(time))).await?;
    let half = CREATION_SEARCH_MAX / 2;
    let (first, last) = (first.max(middle - half), last.min(middle + half));
    let found = find_creation_between(driver, context, path, (middle, last)).await?;
    match found {
        None => find_creation_between(driver, context, path, (first, middle - 1)).await,
        found => Ok(found),
    }
}

async fn find_creation_between<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
    range: (i64, i64),
) -> Result<Option<Change>, StatementError> {
    let item = log_item(context, path);
    let binds = vec![
        Bind::Integer(range.0),
        Bind::Integer(range.1),
        Bind::Text(item.resource),
        Bind::Text(&item.id),
    ];
    let statement = Statement::new(creation_entry(D::DIALECT), binds);
    Ok(driver.query_statement(&statement, read_change).await?.pop())
}

/// When an item was created, as its first version says: an imported one keeps its id, and was created here later than
/// the id says.
enum CreationTime {
    Known(Moment),
    /// Before the entry with this number, which has no values.
    Before(i64),
    /// There is no such item, and no entry of one.
    Unknown,
}

async fn find_creation_time<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    path: &ItemPath,
) -> Result<CreationTime, StatementError> {
    let row = read_item_row(driver, context, path).await?;
    if let Some(row) = row.filter(|row| row.version == 1) {
        return Ok(CreationTime::Known(row.updated_at));
    }
    let item = log_item(context, path);
    let binds = [Bind::Text(item.resource), Bind::Text(&item.id), Bind::Integer(0)];
    let first = driver.query_one(&next_item_entry(D::DIALECT), &binds, read_change).await?;
    let Some(first) = first else { return Ok(CreationTime::Unknown) };
    let number = first.sequence;
    let first = LoggedChange::new(&context.model, first);
    let first_time = |item: &Item| match path.id {
        Id::Integer(_) => Some(item.created_at),
        Id::Uuid(_) => (item.version == 1).then_some(item.updated_at),
    };
    Ok(match first.before(&context.model) {
        Some(before) => first_time(before).map_or(CreationTime::Unknown, CreationTime::Known),
        None => CreationTime::Before(number),
    })
}
