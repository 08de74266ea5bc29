//! Past states of an item, by version or by time: past data, judged with the current rights.
//!
//! Each past state is the `before` of the entry that replaced it; the current state is the row. So the entry of the
//! creation is not needed (the index of an item's entries does not contain it). Versions have no gaps and each was
//! replaced by one entry, so that entry is found by counting.
//!
//! A refusal says why there is no such state only to callers who may read the nearest state that is known. For all
//! others the item does not exist.

use crate::intent::{ItemPath, LoggedChange, PastState};
use crate::permit::change_visibility::can_read_ancestors;
use crate::permit::{AccessScope, FactReader};
use crate::plan::{Collection, HistoryRefusal, PastRead, RequestRefusal};
use crate::store::change_log::item_log::{log_item, read_item_row};
use crate::store::change_log::read_change;
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{StatementError, StoreError};
use crate::store::related_facts::{FactMoment, evaluate_with_facts};
use crate::store::sql::changes::{earlier_item_entry, next_item_entry, next_item_entry_by_time};
use crate::store::statement::Bind;
use crate::value::{ChangeKind, Item, Moment};

/// Reads an item as it was.
pub async fn read_past_item<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    read: &PastRead,
) -> Result<Item, StoreError> {
    let Collection { resource, ancestors, scope, .. } = &read.collection;
    let path = ItemPath { resource: *resource, ancestors: ancestors.clone(), id: read.id };
    let mut history = ItemHistory { driver, context, path: &path };
    let found = match read.state {
        PastState::Version(version) => history.find_version(version).await?,
        PastState::AsOf(time) => history.find_as_of(time).await?,
    };
    let missing = StoreError::Refused(RequestRefusal::Missing);
    let Some(found) = found else { return Err(missing) };
    if !is_visible(driver, context, (scope, &path), &found).await? {
        return Err(missing);
    }
    match found {
        StateLookup { refusal: None, item: Some(item), .. } => Ok(item),
        StateLookup { refusal: Some(refusal), .. } => {
            Err(StoreError::Refused(RequestRefusal::History(refusal)))
        }
        StateLookup { refusal: None, item: None, .. } => {
            Err(StoreError::Refused(RequestRefusal::History(HistoryRefusal::NoValues)))
        }
    }
}

/// A state of an item.
#[derive(Debug)]
struct StateLookup {
    /// The state; with a refusal, the nearest one that is known. `None`: the log has no values of it.
    item: Option<Item>,
    /// When the states of the ancestors decide whether it is visible.
    at: LogMoment,
    refusal: Option<HistoryRefusal>,
}

#[derive(Debug, Clone, Copy)]
enum LogMoment {
    Now,
    /// Directly before the entry with this number.
    Before(i64),
    Time(Moment),
}

impl StateLookup {
    fn current(item: Item) -> Self {
        Self { item: Some(item), at: LogMoment::Now, refusal: None }
    }

    /// The state that an entry ended.
    fn ended_by(entry: &LoggedChange, context: &StoreContext) -> Self {
        let item = entry.before(&context.model).cloned();
        Self { item, at: LogMoment::Before(entry.change.sequence), refusal: None }
    }

    fn refuse(self, refusal: HistoryRefusal) -> Self {
        Self { refusal: Some(refusal), ..self }
    }

    /// The refusal of everything before this state, which is the oldest that is known.
    fn refuse_earlier(self) -> Self {
        let refusal = match &self.item {
            Some(Item { version, updated_at, .. }) => {
                HistoryRefusal::Swept { oldest: *version, since: *updated_at }
            }
            None => HistoryRefusal::NoValues,
        };
        self.refuse(refusal)
    }
}

/// The row of an item and its entries in the log.
struct ItemHistory<'a, D> {
    driver: &'a mut D,
    context: &'a StoreContext,
    path: &'a ItemPath,
}

impl<D: Driver> ItemHistory<'_, D> {
    async fn find_version(&mut self, version: i64) -> Result<Option<StateLookup>, StoreError> {
        // The row is read before the log: a change between the two is in the log.
        let row = read_item_row(self.driver, self.context, self.path).await?;
        let row = match row {
            Some(row) if row.version == version => return Ok(Some(StateLookup::current(row))),
            row => row,
        };
        let sql = earlier_item_entry(D::DIALECT);
        let last = self.find_entry(&sql, &[i64::MAX, 0].map(Bind::Integer)).await?;
        let Some(last) = last else {
            return Ok(row.map(|row| {
                let latest = row.version;
                let state = StateLookup::current(row);
                match version > latest {
                    true => state.refuse(HistoryRefusal::NoSuchVersion { latest }),
                    false => state.refuse_earlier(),
                }
            }));
        };
        if !self.is_here(&last) {
            return Ok(None);
        }
        let model = &self.context.model;
        let is_deleted = last.kind == Some(ChangeKind::Deleted);
        // The version that the entry ended; without values in the log, the row has the one after it.
        let after = last.after(model).or(row.as_ref()).filter(|_| !is_deleted);
        let ended = match (last.before(model), after) {
            (Some(before), _) => before.version,
            (None, Some(after)) => after.version - 1,
            (None, None) => {
                let state = StateLookup::ended_by(&last, self.context);
                return Ok(Some(state.refuse(HistoryRefusal::NoValues)));
            }
        };
        if version > ended {
            let (latest, state) = match after {
                Some(after) => (ended + 1, StateLookup::current(after.clone())),
                None => (ended, StateLookup::ended_by(&last, self.context)),
            };
            return Ok(Some(match version == latest {
                true => state,
                false => state.refuse(HistoryRefusal::NoSuchVersion { latest }),
            }));
        }
        let place = [last.change.sequence, ended - version].map(Bind::Integer);
        let Some(entry) = self.find_entry(&sql, &place).await? else {
            let oldest = self.find_entry(&next_item_entry(D::DIALECT), &[Bind::Integer(0)]).await?;
            let oldest = oldest.unwrap_or(last);
            return Ok(Some(StateLookup::ended_by(&oldest, self.context).refuse_earlier()));
        };
        let state = StateLookup::ended_by(&entry, self.context);
        match &state.item {
            Some(item) if item.version != version => {
                let (found, ItemPath { resource, .. }) = (item.version, self.path);
                let cause = format!(
                    "the change log has version {found} where it should have version {version}"
                );
                Err(self.context.damaged_item(*resource, item, &cause).into())
            }
            _ => Ok(Some(state)),
        }
    }

    async fn find_as_of(&mut self, time: Moment) -> Result<Option<StateLookup>, StoreError> {
        let row = read_item_row(self.driver, self.context, self.path).await?;
        let sql = next_item_entry_by_time(D::DIALECT);
        let next = self.find_entry(&sql, &[Bind::Moment(time)]).await?;
        let state = match (next, row) {
            (Some(next), _) if !self.is_here(&next) => return Ok(None),
            (Some(next), _) => StateLookup::ended_by(&next, self.context),
            (None, Some(row)) => StateLookup::current(row),
            (None, None) => {
                let place = [i64::MAX, 0].map(Bind::Integer);
                let last = self.find_entry(&earlier_item_entry(D::DIALECT), &place).await?;
                let last = last.filter(|last| self.is_here(last));
                return Ok(last.map(|last| {
                    let deleted_at = last.change.time;
                    let refusal = HistoryRefusal::AlreadyDeleted { deleted_at };
                    StateLookup::ended_by(&last, self.context).refuse(refusal)
                }));
            }
        };
        Ok(Some(match &state.item {
            Some(Item { updated_at, .. }) if *updated_at <= time => {
                StateLookup { at: LogMoment::Time(time), ..state }
            }
            Some(Item { created_at, .. }) if *created_at > time => {
                let created_at = *created_at;
                state.refuse(HistoryRefusal::NotYetCreated { created_at })
            }
            Some(_) => state.refuse_earlier(),
            None => state.refuse(HistoryRefusal::NoValues),
        }))
    }

    /// One entry. The binds are those after the resource and the id.
    async fn find_entry(
        &mut self,
        sql: &str,
        place: &[Bind<'_>],
    ) -> Result<Option<LoggedChange>, StatementError> {
        let item = log_item(self.context, self.path);
        let mut binds = vec![Bind::Text(item.resource), Bind::Text(&item.id)];
        binds.extend_from_slice(place);
        let found = self.driver.query_one(sql, &binds, read_change).await?;
        Ok(found.map(|change| LoggedChange::new(&self.context.model, change)))
    }

    /// Whether an entry of the item has its path. The path of a top-level item may have had another name.
    fn is_here(&self, entry: &LoggedChange) -> bool {
        match &entry.path {
            Some(path) => path == self.path,
            None => self.path.ancestors.is_empty(),
        }
    }
}

/// Whether the caller may see the state, and saw or would have seen its ancestors.
async fn is_visible<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    (scope, path): (&AccessScope, &ItemPath),
    state: &StateLookup,
) -> Result<bool, StoreError> {
    let resource = context.model.resource(path.resource);
    let moment = match state.at {
        LogMoment::Now => FactMoment::After(i64::MAX),
        LogMoment::Before(number) => FactMoment::After(number - 1),
        LogMoment::Time(time) => FactMoment::Time(time),
    };
    let is_visible = |facts: &FactReader<'_>| {
        let (is_shown, is_known) = facts.attempt(|facts| match &state.item {
            Some(item) => scope.can_read_item(resource, item, facts),
            None => scope.read_access(path.resource).row_filters.is_empty(),
        });
        (is_shown || !is_known) && can_read_ancestors(scope, path, facts)
    };
    Ok(evaluate_with_facts(driver, context, moment, is_visible).await?)
}
