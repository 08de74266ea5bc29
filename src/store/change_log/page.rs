//! Pages of the change log, as one caller sees them.
//!
//! A page examines a bounded range of numbers, whatever its filters and the caller's rights leave of it. So a
//! page may be short, or empty, although there is a next one; in return no filter needs an index.

use crate::intent::LoggedChange;
use crate::permit::FactCache;
use crate::permit::change_visibility::{Visibility, judge};
use crate::plan::{ChangesPage, ChangesRead, LogMarks, RequestRefusal, VisibleChange};
use crate::store::change_log::item_log::{bisect_range, find_creations, log_item};
use crate::store::change_log::{BATCH_CHANGES_MAX, read_change, read_marks};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{StatementError, StoreError};
use crate::store::related_facts::{FactMoment, look_up};
use crate::store::sql::changes::{LogItem, LogRange, entries_in_range};
use crate::value::Change;

/// Numbers that a page examines.
const EXAMINED_MAX: i64 = 20_000;
/// A page of large values ends early, and so does a batch.
const PAGE_BYTES_MAX: usize = 8 << 20;
/// A page that needs more facts about other items ends early.
const FACT_LOOKUPS_MAX: usize = 250;

pub async fn read_page<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    read: &ChangesRead,
) -> Result<ChangesPage, StoreError> {
    let marks = read_marks(driver).await?;
    check_position(read, marks)?;
    let filter = &read.query.filter;
    let times = (filter.from, filter.until);
    let (first, last) = bisect_range(driver, marks, times).await?;
    let window = LogWindow {
        // Deleted entries do not count towards the entries that one page may examine.
        lowest: read.query.since.unwrap_or(0).max(first - 1).max(marks.swept),
        highest: last.min(marks.low_watermark),
    };
    let creations = match &filter.subject {
        Some(path) => find_creations(driver, context, path, marks).await?,
        None => Vec::new(),
    };
    let (changes, states) = (Vec::new(), FactCache::default());
    let mut scan = PageScan { context, read, creations, states, lookups: 0, changes, bytes: 0 };
    let item = filter.subject.as_ref().map(|path| log_item(context, path));
    let next = match read.query.is_descending {
        true => scan.descend(driver, window, item.as_ref()).await?,
        false => {
            let after = window.lowest.max(read.query.after.unwrap_or(0));
            scan.ascend(driver, (after, window.highest), item.as_ref()).await?
        }
    };
    // A sweep during the scan may have removed entries before they were read.
    check_position(read, read_marks(driver).await?)?;
    // A later page from newest to oldest has nothing of what was written after the first one.
    let newest = read
        .query
        .after
        .filter(|_| read.query.is_descending)
        .map_or(i64::MAX, |at| at.saturating_sub(1));
    let complete = marks.low_watermark.max(read.query.since.unwrap_or(0)).min(newest);
    let position = next.filter(|_| !read.query.is_descending).unwrap_or(complete);
    Ok(ChangesPage { changes: scan.changes, next, oldest: marks.oldest, position })
}

/// Refuses a position behind which changes are missing, and one that the log has not reached.
fn check_position(read: &ChangesRead, marks: LogMarks) -> Result<(), StoreError> {
    let LogMarks { oldest, swept, reached, .. } = marks;
    if read.query.since.is_some_and(|since| since > reached) {
        return Err(StoreError::Refused(RequestRefusal::PositionNotReached { reached }));
    }
    let cursor = read.query.after.filter(|_| !read.query.is_descending);
    match read.query.since.max(cursor) {
        Some(after) if 0 < after && after < swept => {
            Err(StoreError::Refused(RequestRefusal::PositionGone { oldest }))
        }
        _ => Ok(()),
    }
}

/// The numbers that a list can contain: above `lowest`, and up to `highest`.
#[derive(Debug, Clone, Copy)]
struct LogWindow {
    lowest: i64,
    highest: i64,
}

/// A page while it is read.
struct PageScan<'a> {
    context: &'a StoreContext,
    read: &'a ChangesRead,
    /// The creations of the item whose entries are read, which its index does not have.
    creations: Vec<Change>,
    states: FactCache,
    /// The states of ancestors that were looked up.
    lookups: usize,
    changes: Vec<VisibleChange>,
    bytes: usize,
}

/// A batch of entries, in order.
struct LogBatch {
    changes: Vec<Change>,
    /// Whether the range may have more entries.
    has_more: bool,
}

impl PageScan<'_> {
    fn is_full(&self) -> bool {
        self.changes.len() >= self.read.query.limit
            || self.bytes > PAGE_BYTES_MAX
            || self.lookups >= FACT_LOOKUPS_MAX
    }

    /// Returns the number up to which entries were examined, if there may be more.
    async fn ascend<D: Driver>(
        &mut self,
        driver: &mut D,
        (after, highest): (i64, i64),
        item: Option<&LogItem<'_>>,
    ) -> Result<Option<i64>, StoreError> {
        let mut examined = after;
        // The entries of one item are found by their index, wherever they are.
        let end = match item {
            Some(_) => highest,
            None => highest.min(examined.saturating_add(EXAMINED_MAX)),
        };
        let mut batches = 0;
        while examined < end && !self.is_full() && batches < EXAMINED_MAX / BATCH_CHANGES_MAX {
            batches += 1;
            let range = LogRange {
                after: examined,
                up_to: end,
                is_descending: false,
                entries_max: BATCH_CHANGES_MAX,
            };
            let LogBatch { changes, has_more } = self.read_batch(driver, item, range).await?;
            for change in changes {
                examined = change.sequence;
                self.examine(driver, change).await?;
                if self.is_full() {
                    break;
                }
            }
            if !has_more && !self.is_full() {
                examined = end;
            }
        }
        Ok(Some(examined).filter(|examined| *examined < highest))
    }

    /// Returns the number down to which entries were examined, if there may be more.
    async fn descend<D: Driver>(
        &mut self,
        driver: &mut D,
        LogWindow { lowest, highest }: LogWindow,
        item: Option<&LogItem<'_>>,
    ) -> Result<Option<i64>, StoreError> {
        // Entries from this number on were examined.
        let mut examined = self.read.query.after.unwrap_or(i64::MAX).clamp(0, highest + 1);
        let end = match item {
            Some(_) => lowest,
            None => lowest.max(examined - 1 - EXAMINED_MAX),
        };
        let mut batches = 0;
        while examined - 1 > end && !self.is_full() && batches < EXAMINED_MAX / BATCH_CHANGES_MAX {
            batches += 1;
            let range = LogRange {
                after: end,
                up_to: examined - 1,
                is_descending: true,
                entries_max: BATCH_CHANGES_MAX,
            };
            let LogBatch { changes, has_more } = self.read_batch(driver, item, range).await?;
            for change in changes {
                examined = change.sequence;
                self.examine(driver, change).await?;
                if self.is_full() {
                    break;
                }
            }
            if !has_more && !self.is_full() {
                examined = end + 1;
            }
        }
        Ok(Some(examined).filter(|examined| examined - 1 > lowest))
    }

    async fn read_batch<D: Driver>(
        &self,
        driver: &mut D,
        item: Option<&LogItem<'_>>,
        range: LogRange,
    ) -> Result<LogBatch, StatementError> {
        let statement = entries_in_range(D::DIALECT, &self.read.query.filter, item, range);
        let mut bytes = 0;
        let is_enough = |change: &Change| {
            bytes += [&change.before, &change.after]
                .into_iter()
                .flatten()
                .map(String::len)
                .sum::<usize>();
            bytes > PAGE_BYTES_MAX
        };
        let statements = std::slice::from_ref(&statement);
        let rows = driver.query_all(statements, |_, row| read_change(row), is_enough).await?;
        let mut changes: Vec<Change> = rows.into_iter().flatten().collect();
        let is_whole = i64::try_from(changes.len()).is_ok_and(|count| count < range.entries_max);
        let has_more = !is_whole || bytes > PAGE_BYTES_MAX;
        let LogRange { mut after, mut up_to, is_descending, .. } = range;
        match changes.last().filter(|_| has_more) {
            Some(last) if is_descending => after = last.sequence,
            Some(last) => up_to = last.sequence,
            None => {}
        }
        let is_read = |change: &&Change| after < change.sequence && change.sequence <= up_to;
        changes.extend(self.creations.iter().filter(is_read).cloned());
        changes
            .sort_by_key(|change| if is_descending { -change.sequence } else { change.sequence });
        Ok(LogBatch { changes, has_more })
    }

    async fn examine<D: Driver>(
        &mut self,
        driver: &mut D,
        change: Change,
    ) -> Result<(), StatementError> {
        let model = &self.context.model;
        let sequence = change.sequence;
        let logged = LoggedChange::new(model, change);
        self.states.move_to(sequence);
        let mut found = judge(model, &self.read.scope, &logged, &self.states);
        while let Visibility::NeedsFacts(needed) = found {
            for fact in needed {
                let moment = FactMoment::After(sequence);
                let answer = look_up(driver, self.context, &fact, moment).await?;
                self.lookups += 1;
                answer.add_to(&mut self.states, fact);
            }
            found = judge(model, &self.read.scope, &logged, &self.states);
        }
        if let Visibility::Visible { kind, shows_before } = found {
            let visible = VisibleChange { logged, kind, shows_before };
            self.bytes += visible.approximate_bytes();
            self.changes.push(visible);
        }
        Ok(())
    }
}
