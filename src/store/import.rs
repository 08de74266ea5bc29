//! Import: batches of rows, each row written with its change log entry.
//!
//! Written once for both backends; the caller begins the transaction, of all batches or of one. A batch is written
//! under a savepoint. When a unique index refuses a row, the batch is rolled back to the savepoint and written again
//! without that row, so that one run reports all refused rows. The caller rolls back a transaction with any fault.

mod stored_rows;

use uuid::Uuid;

use crate::fault::OrBug as _;
use crate::intent::preconditions::Preconditions;
use crate::model::expr::{RowVersion, UserValues};
use crate::model::{Resource, ResourceIndex};
use crate::permit::{AccessScope, FactReader, StoredRow};
use crate::plan::stored_faults::{dangling_faults, unique_violation};
use crate::plan::{
    ChangeAuthor, Collection, ImportRow, NewItemOrigin, ScriptStep, StoredState, UpsertKey,
    WriteAction, WriteRequest, decide, new_item, reference_faults, refusal_faults, uuids_per_item,
};
use crate::problem::{FaultCode, FieldFault};
use crate::store::change_log::ChangeLogContext;
use crate::store::context::StoreContext;
use crate::store::driver::{Driver, Then};
use crate::store::error::{FailedStatement, StatementError, StoreError};
use crate::store::import::stored_rows::StoredRows;
use crate::store::related_facts::{FactMoment, evaluate_with_facts};
use crate::store::script::ItemWrites;
use crate::store::sql::columns::quote_name;
use crate::store::sql::transfer::lock_system_value;
use crate::store::sql::unique::violated_unique_rule;
use crate::store::statement::Bind;
use crate::store::{integer_ids, system_values, uuid_v7};
use crate::value::{INTEGER_MAX, Id, IdKind, Item, Moment};

/// The parameters of an import, which all of its batches share.
#[derive(Debug)]
pub struct ImportJob {
    pub resource: ResourceIndex,
    pub upsert: Option<UpsertKey>,
    pub author: ChangeAuthor,
    /// The largest integer id of the file: ids that are allocated for its other rows are above it.
    pub last_id: Option<i64>,
    /// Whether the caller rolls all batches back.
    pub is_dry_run: bool,
}

/// The result of one batch.
#[derive(Debug, Default)]
pub struct ImportedBatch {
    pub created: u64,
    pub updated: u64,
    pub unchanged: u64,
    /// The rows that the stored data does not allow; their pointers begin with the line number.
    pub faults: Vec<FieldFault>,
}

/// Where the rows come from, and what becomes of a batch.
pub trait ImportSource {
    /// The next rows, in the order of the file; none at its end.
    fn next_batch(&mut self) -> Result<Vec<ImportRow>, String>;

    fn record(&mut self, batch: ImportedBatch);

    /// Whether the transaction is to be rolled back: for its faults, or because nothing is to be written.
    fn is_rolled_back(&self) -> bool;

    /// Whether the rest need not be examined.
    fn is_over(&self) -> bool;
}

/// How a transaction of an import ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImportEnd {
    Committed,
    RolledBack,
}

/// Writes all batches of a source.
pub async fn write_all<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    job: &ImportJob,
    source: &mut dyn ImportSource,
) -> Result<ImportEnd, StoreError> {
    check_model(driver, context, job).await?;
    let mut is_first = true;
    while !source.is_over() {
        let rows = source.next_batch().map_err(StoreError::Unavailable)?;
        if rows.is_empty() {
            break;
        }
        let batch = write_batch(driver, context, job, (&rows, is_first)).await?;
        is_first &= batch.created + batch.updated == 0;
        source.record(batch);
    }
    Ok(match source.is_rolled_back() {
        true => ImportEnd::RolledBack,
        false => ImportEnd::Committed,
    })
}

/// The stored position of a resumable import: its name in `nouns_system`, its former and its next value.
#[derive(Debug)]
pub struct PositionStep<'a> {
    pub name: &'a str,
    pub before: Option<&'a str>,
    pub after: &'a str,
}

/// Writes one batch and its position. `None`: another import has changed the position.
pub async fn write_step<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    job: &ImportJob,
    (rows, position): (&[ImportRow], &PositionStep<'_>),
) -> Result<Option<ImportedBatch>, StoreError> {
    check_model(driver, context, job).await?;
    driver.execute(&lock_system_value(D::DIALECT), &[Bind::Text(position.name)]).await?;
    let stored = system_values::read(driver, position.name).await?;
    if stored.as_deref() != position.before {
        return Ok(None);
    }
    let batch = match rows {
        [] => ImportedBatch::default(),
        rows => write_batch(driver, context, job, (rows, true)).await?,
    };
    system_values::write(driver, position.name, position.after).await?;
    Ok(Some(batch))
}

/// A server or a migration may have changed the tables to another model meanwhile. From here on none can: the table
/// is locked against it before the model is read.
async fn check_model<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    job: &ImportJob,
) -> Result<(), StoreError> {
    if let Some(lock) = D::DIALECT.lock_for_inserts {
        let table = quote_name(&context.model.resource(job.resource).table);
        driver.execute(&lock(&table), &[]).await?;
    }
    match system_values::read(driver, "model").await?.as_ref() == Some(&context.model.shape) {
        true => Ok(()),
        false => Err(StoreError::Unavailable("the database has another model".to_owned())),
    }
}

/// A row that is ready to be written.
struct PlannedRow<'a> {
    root: &'a str,
    is_new: bool,
    writes: ItemWrites<'a>,
}

async fn write_batch<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    job: &ImportJob,
    (rows, is_first): (&[ImportRow], bool),
) -> Result<ImportedBatch, StoreError> {
    let resource = context.model.resource(job.resource);
    let now = driver.now();
    let mut batch = ImportedBatch::default();
    let stored = StoredRows::load(driver, context, (job.resource, job.upsert), rows).await?;
    let ids = assign_ids(driver, (resource, job), (rows, &stored, now)).await?;
    let rows = rows.iter().zip(ids).collect();
    let mut planned =
        plan_rows(driver, (context, resource), (rows, &stored, now), &mut batch).await?;
    let any = Collection::nested(job.resource, Vec::new(), AccessScope::default());
    let log = ChangeLogContext { collection: &any, by: &job.author, now };
    driver.begin_nested().await?;
    while !planned.is_empty() {
        let (mut statements, mut ends) = (Vec::new(), Vec::with_capacity(planned.len()));
        for (at, row) in planned.iter().enumerate() {
            statements.extend(row.writes.statements(context, &log, is_first && at == 0));
            ends.push(statements.len());
        }
        let Err(FailedStatement { at, failure }) =
            driver.execute_all(&statements, Then::Continue).await
        else {
            break;
        };
        let at = ends.iter().take_while(|end| **end <= at).count();
        drop(statements);
        let StatementError::UniqueViolation(message) = failure else { return Err(failure.into()) };
        driver.rollback_to_savepoint().await?;
        let refused = planned.remove(at.min(planned.len() - 1));
        batch.faults.extend(unique_faults(resource, refused.root, &message));
    }
    driver.release_nested().await?;
    let new = planned.iter().filter(|row| row.is_new).count();
    batch.created += u64::try_from(new).unwrap_or(u64::MAX);
    batch.updated += u64::try_from(planned.len() - new).unwrap_or(u64::MAX);
    Ok(batch)
}

/// The faults of a row that a unique index has refused.
fn unique_faults(resource: &Resource, root: &str, message: &str) -> Vec<FieldFault> {
    if let Some(rule) = violated_unique_rule(resource, message) {
        return refusal_faults(resource, root, unique_violation(resource, &[rule], (root, &[])));
    }
    // SQLite names the column, PostgreSQL the constraint.
    let table = &resource.table;
    let is_key = message.ends_with(&format!("{table}.id")) || *message == *format!("{table}_pkey");
    let (pointer, detail) = match is_key {
        true => (format!("{root}/id"), format!("another {} has this id", resource.name)),
        false => (root.to_owned(), format!("another {} has some of its values", resource.name)),
    };
    vec![FieldFault { pointer, code: FaultCode::Taken, detail }]
}

/// Decides each row; those that are refused become faults.
async fn plan_rows<'a, D: Driver>(
    driver: &mut D,
    (context, resource): (&'a StoreContext, &'a Resource),
    (rows, stored, now): (Vec<(&'a ImportRow, Option<Id>)>, &StoredRows, Moment),
    batch: &mut ImportedBatch,
) -> Result<Vec<PlannedRow<'a>>, StoreError> {
    let mut planned = Vec::with_capacity(rows.len());
    for ((row, id), item) in rows.into_iter().zip(&stored.items) {
        let uuids = &uuid_v7::random_uuids(uuids_per_item(resource))?;
        let plan = RowPlan { context, resource, stored, now, uuids };
        let decide = |facts: &FactReader<'_>| plan.decide(row, item.as_ref(), id, facts);
        let decided = evaluate_with_facts(driver, context, FactMoment::Now, decide).await?;
        match decided {
            Ok(Some(row)) => planned.push(row),
            Ok(None) => batch.unchanged += 1,
            Err(faults) => batch.faults.extend(faults),
        }
    }
    Ok(planned)
}

/// The id of each row: that of the file, or for a new item without one an allocated one.
async fn assign_ids<D: Driver>(
    driver: &mut D,
    (resource, job): (&Resource, &ImportJob),
    (rows, stored, now): (&[ImportRow], &StoredRows, Moment),
) -> Result<Vec<Option<Id>>, StatementError> {
    let needs_id = |(row, item): &(&ImportRow, &Option<Item>)| item.is_none() && row.id.is_none();
    let pairs = || rows.iter().zip(&stored.items);
    let count = pairs().filter(needs_id).count();
    let ids = match resource.id {
        // No sequence is changed, which would stay so. The server never allocates such an id.
        IdKind::Integer if job.is_dry_run => {
            let lines = pairs().filter(needs_id).map(|(row, _)| i64::try_from(row.line));
            lines.map(|line| Id::Integer(INTEGER_MAX + line.or_bug("lines are counted"))).collect()
        }
        IdKind::Integer => {
            if let Some(last) = job.last_id {
                integer_ids::raise_last(driver, resource, last).await?;
            }
            integer_ids::allocate(driver, resource, count).await?
        }
        IdKind::Uuid => uuid_v7::next_ids(count, now)?,
    };
    let mut ids = ids.into_iter();
    Ok(pairs().map(|pair| if needs_id(&pair) { ids.next() } else { pair.0.id }).collect())
}

/// The model and the stored rows that the decision about an imported row needs.
struct RowPlan<'a, 'b> {
    context: &'a StoreContext,
    resource: &'a Resource,
    stored: &'b StoredRows,
    now: Moment,
    /// UUIDs for defaults of a new item.
    uuids: &'b [Uuid],
}

impl<'a> RowPlan<'a, '_> {
    /// `None`: the item has these values already.
    fn decide(
        &self,
        row: &'a ImportRow,
        item: Option<&Item>,
        id: Option<Id>,
        facts: &FactReader<'_>,
    ) -> Result<Option<PlannedRow<'a>>, Vec<FieldFault>> {
        let Self { context, resource, stored, now, uuids } = self;
        let draft = match item {
            Some(_) => row.change.as_ref().or_bug("only an upsert finds items"),
            None => row.new.as_ref().map_err(Clone::clone)?,
        };
        let parent = item.map_or(row.parent, |item| item.parent);
        let ancestors = match parent {
            None => Vec::new(),
            Some(id) => stored.ancestors.get(&id).cloned().flatten().ok_or_else(|| {
                let key = resource.parent_key.as_deref().unwrap_or_default();
                dangling_faults(&[format!("{}/{key}", row.root)])
            })?,
        };
        let collection = Collection::nested(resource.index, ancestors, AccessScope::default());
        let dangling = stored.dangling_pointers(draft);
        let steps = match item {
            None if !dangling.is_empty() => return Err(dangling_faults(&dangling)),
            None => {
                let id = id.or_bug("each new item has an id");
                let deleted = stored.deleted_versions.get(&id);
                let origin = NewItemOrigin {
                    id,
                    // No client may take it for the deleted item.
                    version: deleted.map_or(1, |version| version + 1),
                    is_id_kept: row.id.is_some(),
                    parent,
                    now: *now,
                    uuids,
                };
                let item = new_item(resource, draft, origin)?;
                let place = (&*row.root, &[][..]);
                let new = StoredRow { version: RowVersion::Requested, ..StoredRow::of(&item) };
                let faults = reference_faults(resource, place, new, |_| true, facts);
                if !faults.is_empty() {
                    return Err(faults);
                }
                vec![ScriptStep::Insert { item, root: row.root.clone() }]
            }
            Some(item) => {
                self.refuse_other_place(row, item)?;
                let action = &WriteAction::Replace { id: item.id, draft: draft.clone() };
                let conditions = &Preconditions::if_version(item.version);
                let found = StoredState {
                    item: Some(item.clone()),
                    dangling_references: dangling,
                    ..StoredState::empty(*now)
                };
                let request = WriteRequest { action, conditions, user: UserValues::default() };
                let script = decide(facts, &collection, request, found);
                script.map_err(|refusal| refusal_faults(resource, &row.root, refusal))?.steps
            }
        };
        if steps.is_empty() {
            return Ok(None);
        }
        let (writes, _) = ItemWrites::new(context, &collection, steps);
        Ok(Some(PlannedRow { root: &row.root, is_new: item.is_none(), writes }))
    }

    /// An item keeps its id and its parent.
    fn refuse_other_place(&self, row: &ImportRow, item: &Item) -> Result<(), Vec<FieldFault>> {
        let name = &self.resource.name;
        let key = self.resource.parent_key.as_deref().unwrap_or_default();
        let is_other = |sent: Option<Id>, stored: Option<Id>| sent.is_some() && sent != stored;
        let other = [
            ("id", is_other(row.id, Some(item.id)), Some(item.id)),
            (key, is_other(row.parent, item.parent), item.parent),
        ];
        let fault = |(member, id): (&str, Option<Id>)| FieldFault {
            pointer: format!("{}/{member}", row.root),
            code: FaultCode::Mismatch,
            detail: match id {
                Some(id) => format!("the stored {name} has {id}, and keeps it"),
                None => format!("the stored {name} has none"),
            },
        };
        let other = other.into_iter().filter(|(_, is_other, _)| *is_other);
        let faults: Vec<_> = other.map(|(member, _, id)| fault((member, id))).collect();
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}
