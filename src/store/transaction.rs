//! What happens inside one transaction, once for every backend.
//!
//! A write looks (what `decide` needs to know), decides (pure), and runs the script, each row with
//! its entry in the change log: there is no way to write one without the other. The caller begins,
//! commits and rolls back.

use std::sync::Arc;

use super::driver::{Bind, Columns, Driver, Failure};
use super::gather::{Gathering, is_referred_to};
use super::rows::{insert_binds, read_item, update_binds};
use super::sql::{READY, Sql, unique_by_columns};
use super::{Broken, StoreError};
use crate::formats;
use crate::intent::{Span, push_subject};
use crate::model::{ChangesKept, Model, Resource};
use crate::plan::decide::{lost, taken};
use crate::plan::{
    Action, By, Collection, Dependent, Found, Outcome, Read, Reference, Refusal, Refuse, Step,
    Write, decide,
};
use crate::value::{ChangeKind, Id, Item, Moment, Page};

/// The model and its statements.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) model: Arc<Model>,
    pub(super) sql: Sql,
}

/// Whether a transaction shares its commit with others; one that does must be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Shared,
    Alone,
}

/// More rows than this in one write, and it runs alone.
pub(super) const SHARED_ROWS_MAX: usize = 100;

/// A page of large items ends early: what is sent at once has a limit too.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Why a write did not happen.
#[derive(Debug)]
pub(super) enum Halt<T> {
    /// It has more rows than those who share its commit should wait for: run it again, alone.
    TooLong(T),
    Error(StoreError),
}

impl<T> From<Failure> for Halt<T> {
    fn from(failure: Failure) -> Self {
        Self::Error(failure.into())
    }
}

impl<T> From<Refusal> for Halt<T> {
    fn from(refusal: Refusal) -> Self {
        Self::Error(StoreError::Refused(refusal))
    }
}

pub(super) async fn read<D: Driver>(
    driver: &mut D,
    context: &Context,
    read: &Read,
) -> Result<Outcome, StoreError> {
    match read {
        Read::Ready => {
            driver.rows(READY, &[], |_| Ok(())).await?;
            Ok(Outcome::Ready)
        }
        Read::Item(collection, id) => {
            let item = item(driver, context, collection, *id).await?;
            item.map(Outcome::Item).ok_or(StoreError::Refused(Refusal::Missing))
        }
        Read::Page(collection, span) => {
            page(driver, context, collection, span).await.map(Outcome::Page)
        }
        Read::Refuse(refuse) => Err(StoreError::Refused(refused(driver, context, refuse).await?)),
    }
}

async fn item<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
    id: Id,
) -> Result<Option<Item>, Failure> {
    let resource = context.model.resource(collection.resource);
    let sql = &context.sql.table(collection.resource).item;
    let binds = chain(&[Bind::Id(id)], &collection.ancestors);
    let mut found =
        driver.rows(sql, &binds, |row| read_item(&context.model, resource, row)).await?;
    Ok(found.pop())
}

/// The parameters of a statement that ends with the chain: the ancestors, the nearest first.
fn chain<'a>(first: &[Bind<'a>], ancestors: &[Id]) -> Vec<Bind<'a>> {
    let mut binds = first.to_vec();
    binds.extend(ancestors.iter().rev().map(|id| Bind::Id(*id)));
    binds
}

async fn page<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
    span: &Span,
) -> Result<Page, StoreError> {
    let resource = context.model.resource(collection.resource);
    let table = context.sql.table(collection.resource);
    // One more than asked for tells whether there is a next page.
    let limit = Bind::Integer(i64::try_from(span.limit).unwrap_or(i64::MAX).saturating_add(1));
    let (sql, binds) = match span.after {
        None => (&table.page, chain(&[limit], &collection.ancestors)),
        Some(after) => (&table.page_after, chain(&[limit, Bind::Id(after)], &collection.ancestors)),
    };
    let read = |row: &dyn Columns| read_item(&context.model, resource, row);
    let mut bytes = 0;
    let mut is_full = false;
    let is_enough = |item: &Item| {
        bytes += item.bytes();
        is_full = bytes > PAGE_BYTES_MAX;
        is_full
    };
    let mut items = driver.rows_until(sql, &binds, read, is_enough).await?;
    // Items prove that their parents are there; an empty list does not.
    if items.is_empty() && !parents_exist(driver, context, collection).await? {
        return Err(StoreError::Refused(Refusal::Missing));
    }
    let more = is_full || items.len() > span.limit;
    items.truncate(span.limit);
    let next = items.last().map(|item| item.id).filter(|_| more);
    Ok(Page { items, limit: span.limit, next })
}

/// Whether the item that a collection lies under is there, in its place.
async fn parents_exist<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
) -> Result<bool, Failure> {
    let parent = context.model.resource(collection.resource).parent;
    let (Some(parent), Some((id, above))) = (parent, collection.ancestors.split_last()) else {
        return Ok(true);
    };
    let sql = &context.sql.table(parent).exists;
    let found = driver.rows(sql, &chain(&[Bind::Id(*id)], above), |_| Ok(())).await?;
    Ok(!found.is_empty())
}

/// The pointers of references that lead nowhere.
async fn lost_references<D: Driver>(
    driver: &mut D,
    context: &Context,
    references: impl Iterator<Item = &Reference>,
) -> Result<Vec<String>, Failure> {
    let mut lost = Vec::new();
    for Reference { to, id, pointer } in references {
        let sql = &context.sql.table(*to).exists_anywhere;
        if driver.rows(sql, &[Bind::Id(*id)], |_| Ok(())).await?.is_empty() {
            lost.push(pointer.clone());
        }
    }
    Ok(lost)
}

/// A body with faults: a missing item comes first, and all faults come together.
async fn refused<D: Driver>(
    driver: &mut D,
    context: &Context,
    refuse: &Refuse,
) -> Result<Refusal, StoreError> {
    let there = match refuse.item {
        Some(id) => item(driver, context, &refuse.collection, id).await?.is_some(),
        None => parents_exist(driver, context, &refuse.collection).await?,
    };
    if !there {
        return Ok(Refusal::Missing);
    }
    let lost_pointers = lost_references(driver, context, refuse.references.iter()).await?;
    let mut faults = refuse.faults.clone();
    faults.extend(lost(&lost_pointers));
    Ok(Refusal::Invalid(faults))
}

pub(super) async fn write<D: Driver>(
    driver: &mut D,
    context: &Context,
    write: Write,
    pace: Pace,
) -> Result<Outcome, Halt<Box<Write>>> {
    crate::fault::point("transaction");
    let found = match look(driver, context, &write, pace).await {
        Ok(found) => found,
        Err(Halt::TooLong(())) => return Err(Halt::TooLong(Box::new(write))),
        Err(Halt::Error(error)) => return Err(Halt::Error(error)),
    };
    let Write { collection, action, by } = write;
    let log = Log { collection: &collection, by: &by, now: found.now };
    let script = decide(&context.model, &collection, action, found)?;
    let mut items = Vec::with_capacity(script.steps.len());
    let mut gone = Vec::new();
    for step in script.steps {
        if let Step::Delete(dependent) = &step {
            gone.push((dependent.collection.resource, dependent.id));
        }
        items.extend(run(driver, context, &log, step).await?);
    }
    // A reference to what is gone would fail the commit, and with it everyone who shares it.
    if is_referred_to(driver, context, &gone).await? {
        return Err(broken("a removal that leaves a reference behind"));
    }
    let outcome = script.said.outcome(items);
    outcome.ok_or_else(|| broken("an update without a row"))
}

fn broken(what: &str) -> Halt<Box<Write>> {
    Halt::Error(StoreError::Broken(Broken(what.to_owned())))
}

async fn look<D: Driver>(
    driver: &mut D,
    context: &Context,
    write: &Write,
    pace: Pace,
) -> Result<Found, Halt<()>> {
    let collection = &write.collection;
    let mut found = Found {
        now: driver.now(),
        ids: Vec::new(),
        item: None,
        lost_references: Vec::new(),
        going: Vec::new(),
        restricted_by: None,
    };
    match &write.action {
        Action::Create { drafts, .. } => {
            if pace == Pace::Shared && drafts.len() > SHARED_ROWS_MAX {
                return Err(Halt::TooLong(()));
            }
            if !parents_exist(driver, context, collection).await? {
                return Err(Refusal::Missing.into());
            }
            let references = drafts.iter().flat_map(|draft| &draft.references);
            found.lost_references = lost_references(driver, context, references).await?;
            found.ids =
                driver.allocate(context.model.resource(collection.resource), drafts.len()).await?;
        }
        Action::Replace { id, draft } => {
            found.item = item(driver, context, collection, *id).await?;
            found.lost_references =
                lost_references(driver, context, draft.references.iter()).await?;
        }
        Action::Remove { id, dependents_max } => {
            found.item = item(driver, context, collection, *id).await?;
            if found.item.is_some() {
                let own = Dependent { collection: collection.clone(), id: *id };
                let mut gathering = Gathering::new(own, *dependents_max, pace);
                gathering.cascade(driver, context).await?;
                found.restricted_by = gathering.restricted(driver, context).await?;
                found.going = gathering.children_first(&context.model);
            }
        }
    }
    Ok(found)
}

/// What every entry that a write makes in the change log shares.
struct Log<'a> {
    collection: &'a Collection,
    by: &'a By,
    now: Moment,
}

/// Runs one step; what is there afterwards comes back.
async fn run<D: Driver>(
    driver: &mut D,
    context: &Context,
    log: &Log<'_>,
    step: Step,
) -> Result<Option<Item>, Halt<Box<Write>>> {
    let model = &context.model;
    let own = model.resource(log.collection.resource);
    let table = context.sql.table(own.index);
    match step {
        Step::Insert { item, root } => {
            let done = driver.execute(&table.insert, &insert_binds(&item)).await;
            done.map_err(|failure| blame(failure, own, &root))?;
            let entry = Entry {
                kind: ChangeKind::Created,
                changed: None,
                before: None,
                after: Some(&item),
            };
            record(driver, context, log, log.collection, entry).await?;
            Ok(Some(item))
        }
        Step::Update { before, after, changed, root } => {
            let sql = table.update(own, &changed);
            let done = driver.execute(&sql, &update_binds(&before, &after, &changed)).await;
            let count = done.map_err(|failure| blame(failure, own, &root))?;
            if count != 1 {
                return Err(Failure::Engine("the item changed while it was locked".into()).into());
            }
            let entry = Entry {
                kind: ChangeKind::Updated,
                changed: Some(&changed),
                before: Some(&before),
                after: Some(&after),
            };
            record(driver, context, log, log.collection, entry).await?;
            Ok(Some(after))
        }
        Step::Delete(Dependent { collection, id }) => {
            let resource = model.resource(collection.resource);
            let sql = &context.sql.table(collection.resource).delete;
            let gone =
                driver.rows(sql, &[Bind::Id(id)], |row| read_item(model, resource, row)).await?;
            for before in &gone {
                let entry = Entry {
                    kind: ChangeKind::Deleted,
                    changed: None,
                    before: Some(before),
                    after: None,
                };
                record(driver, context, log, &collection, entry).await?;
            }
            Ok(None)
        }
    }
}

fn blame(failure: Failure, resource: &Resource, root: &str) -> Halt<Box<Write>> {
    match failure {
        Failure::Taken(message) => match unique_by_columns(resource, &message) {
            Some(unique) => taken(resource, unique, root).into(),
            None => Failure::Engine(message).into(),
        },
        failure => failure.into(),
    }
}

/// What is particular to one entry of the change log.
struct Entry<'a> {
    kind: ChangeKind,
    changed: Option<&'a [usize]>,
    before: Option<&'a Item>,
    after: Option<&'a Item>,
}

async fn record<D: Driver>(
    driver: &mut D,
    context: &Context,
    log: &Log<'_>,
    collection: &Collection,
    entry: Entry<'_>,
) -> Result<(), Failure> {
    crate::fault::point("entry");
    let Some(item) = entry.after.or(entry.before) else { return Ok(()) };
    let resource = context.model.resource(collection.resource);
    let show = |item: Option<&Item>| match resource.changes {
        ChangesKept::Values => item.map(|item| formats::json::item_text(resource, item)),
        ChangesKept::Ids => None,
    };
    let (before, after) = (show(entry.before), show(entry.after));
    let name = |index: &usize| resource.fields.get(*index).map(|field| &*field.name);
    let changed =
        entry.changed.map(|changed| formats::json::names_text(changed.iter().filter_map(name)));
    let (id, parent) = (item.id.to_string(), item.parent.map(|id| id.to_string()));
    let mut subject = String::with_capacity(96);
    push_subject(
        &mut subject,
        &context.model.lineage(resource.index),
        &collection.ancestors,
        Some(item.id),
    );
    let binds = [
        Bind::Moment(log.now),
        Bind::Text(&resource.name),
        Bind::Text(&id),
        Bind::optional_text(parent.as_deref()),
        Bind::Text(&subject),
        Bind::Text(entry.kind.as_str()),
        Bind::Text(&log.by.actor),
        Bind::Text(&log.by.request_id),
        Bind::optional_text(changed.as_deref()),
        Bind::optional_text(before.as_deref()),
        Bind::optional_text(after.as_deref()),
    ];
    driver.execute(&context.sql.log, &binds).await.map(|_| ())
}
