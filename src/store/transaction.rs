//! Reads and writes inside one transaction, written once for both backends.
//!
//! A write loads the stored state that `decide` needs, decides (pure), and runs the resulting script. Each
//! row is written with its entry in the change log; no function writes one without the other. The backend
//! begins and commits: SQLite's writer thread for a whole commit group, PostgreSQL's driver together with the
//! statements.

use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;

use quick_cache::sync::Cache;

use super::driver::{Columns, Driver, Failure, Stroke};
use super::look::{Place, look, surroundings};
use super::once;
use super::place::{self, Standing};
use super::positions;
use super::reached::PARTS_MAX;
use super::rows::read_item;
use super::script::{self, Log};
use super::sql::{Dialect, Listing, Part, READY, Sql};
use super::{StoreError, users};
use crate::clock;
use crate::intent::List;
use crate::intent::conditions::Conditions;
use crate::metrics::Count;
use crate::model::{Model, Resource, ResourceIndex, Verb};
use crate::permit::Unseen;
use crate::plan::decide::{Script, lost, require, require_of};
use crate::plan::{
    Action, Collection, Found, Outcome, Read, Reference, Refusal, Refuse, Write, decide,
};
use crate::value::{Id, IdKind, Item, Page, Value};

/// The model, its SQL statements and the cache of row filters.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) model: Arc<Model>,
    pub(super) sql: Sql,
    /// Cache of row filters, by the fingerprint of the rights, the verb and the resource.
    pub(super) parts: Cache<(u128, Verb, ResourceIndex), Arc<Part>>,
    /// Metric: stored items that could not be decoded.
    pub(super) damaged_items: Arc<Count>,
}

impl Context {
    pub(super) fn new(model: &Arc<Model>, dialect: &'static Dialect) -> Arc<Self> {
        Self::counted(model, dialect, Arc::default())
    }

    /// With the metric of a server.
    pub(super) fn counted(
        model: &Arc<Model>,
        dialect: &'static Dialect,
        damaged_items: Arc<Count>,
    ) -> Arc<Self> {
        let (sql, parts) = (Sql::new(model, dialect), Cache::new(PARTS_MAX));
        Arc::new(Self { model: Arc::clone(model), sql, parts, damaged_items })
    }
}

/// Whether a write shares its commit with others (group commit); one that does must be short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pace {
    Shared,
    Alone,
}

/// A write of more rows than this gets a commit of its own.
pub(super) const SHARED_ROWS_MAX: usize = 100;

/// A page of large items ends early: the size of a response is bounded too.
const PAGE_BYTES_MAX: usize = 8 << 20;

/// Why a write was not executed.
#[derive(Debug)]
pub(super) enum Halt<T> {
    /// It has more rows than a commit group should wait for: run it again with `CommitMode::Exclusive`.
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

/// A write to execute: borrowed where it may be retried, owned where it is executed once.
pub(super) enum Given<'a> {
    Lent(&'a Write),
    Whole(Box<Write>),
}

impl Given<'_> {
    fn into_whole(self) -> Box<Write> {
        match self {
            Self::Lent(write) => Box::new(write.clone()),
            Self::Whole(write) => write,
        }
    }
}

impl Deref for Given<'_> {
    type Target = Write;

    fn deref(&self) -> &Write {
        match self {
            Self::Lent(write) => write,
            Self::Whole(write) => write,
        }
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
        Read::Positions => Ok(Outcome::Positions(positions::read(driver).await?)),
        Read::User(name) => Ok(Outcome::User(users::user(driver, context, name).await?)),
        Read::UsersStamp => Ok(Outcome::Stamp(users::stamp(driver, context).await?)),
        Read::Kept(kept) => once::read(driver, context, kept).await,
        Read::Item(collection, id, _) => {
            let reached = context.reached(collection.resource, &collection.reach);
            let stroke = reached.item(*id, &collection.ancestors);
            let item = item(driver, context, collection.resource, stroke).await?;
            item.map(Outcome::Item).ok_or(StoreError::Refused(Refusal::Missing))
        }
        Read::Page(collection, list) => {
            let known = place::unchanged(driver, context, collection, list).await?;
            let page = match known {
                Some(page) => page,
                // Boxed: otherwise the future of a single item would be as large as that of a page.
                None => Box::pin(page(driver, context, collection, list)).await?,
            };
            Ok(Outcome::Page(page))
        }
        Read::Refuse(refuse) => Err(StoreError::Refused(refused(driver, context, refuse).await?)),
    }
}

/// Reads one item, with the statement that only reads it or the one that locks it.
pub(super) async fn item<D: Driver>(
    driver: &mut D,
    context: &Context,
    resource: ResourceIndex,
    stroke: Stroke<'_>,
) -> Result<Option<Item>, Failure> {
    let resource = context.model.resource(resource);
    let read = |row: &dyn Columns| read_item(&context.model, resource, row, &context.damaged_items);
    Ok(driver.rows(&stroke.sql, &stroke.binds, read).await?.pop())
}

async fn page<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
    list: &List,
) -> Result<Page, StoreError> {
    let model = &context.model;
    let resource = model.resource(collection.resource);
    // One row more than the limit shows whether there is a next page.
    let limit = i64::try_from(list.limit).unwrap_or(i64::MAX).saturating_add(1);
    let read = |row: &dyn Columns| read_item(model, resource, row, &context.damaged_items);
    let bytes = Cell::new(0);
    let is_full = || bytes.get() > PAGE_BYTES_MAX;
    let is_enough = |item: &Item| {
        bytes.set(bytes.get() + item.bytes());
        is_full()
    };
    let standing = Standing::of(context, collection);
    let place = standing.as_ref().map(|standing| standing.stroke(driver.settled()));
    let (place, mut items) = if list.is_plain() {
        let reached = context.reached(collection.resource, &collection.reach);
        let after = list.after.as_ref().map(|after| after.id);
        let stroke = reached.page(limit, after, &collection.ancestors);
        match &place {
            Some(place) => {
                driver.rows_behind((place, place::read), &stroke, read, is_enough).await?
            }
            None => {
                let items = driver.rows_until(&stroke.sql, &stroke.binds, read, is_enough).await?;
                (Vec::new(), items)
            }
        }
    } else {
        let place = match &place {
            Some(place) => driver.rows(&place.sql, &place.binds, place::read).await?,
            None => Vec::new(),
        };
        let listing = listing(context, collection, list);
        let mut items: Vec<Item> = Vec::new();
        for section in listing.sections() {
            let found = i64::try_from(items.len()).unwrap_or(i64::MAX);
            let stroke = listing.page(section, limit.saturating_sub(found));
            items.extend(driver.rows_once(&stroke, read, is_enough).await?);
            if is_full() || items.len() > list.limit {
                break;
            }
        }
        (place, items)
    };
    let position = place::settled(driver, &place);
    // Items prove that their parents exist; an empty list does not.
    if items.is_empty() {
        require_parents(driver, context, collection).await?;
    }
    let total = match list.is_counted {
        true => Some(count(driver, context, collection, list).await?),
        false => None,
    };
    let more = is_full() || items.len() > list.limit;
    items.truncate(list.limit);
    let next = items.last().map(|item| item.id).filter(|_| more);
    Ok(Page { items, limit: list.limit, next, total, position })
}

pub(super) fn listing<'a>(
    context: &'a Context,
    collection: &'a Collection,
    list: &'a List,
) -> Listing<'a> {
    let Collection { resource, ancestors, reach } = collection;
    let resource = (context.model.resource(*resource), ancestors.as_slice());
    Listing::new(&context.model, context.sql.dialect, resource, reach, list)
}

/// The total number of items of a list, over all pages.
async fn count<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
    list: &List,
) -> Result<i64, StoreError> {
    let listing = listing(context, collection, list);
    let read = |row: &dyn Columns| row.integer(0);
    let counts = driver.rows_once(&listing.count(), read, |_| false).await?;
    Ok(counts.into_iter().flatten().next().unwrap_or_default())
}

/// Refuses a collection whose parent items do not exist.
pub(super) async fn require_parents<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
) -> Result<(), StoreError> {
    let place = Place::Collection(collection);
    let (has_parents, _) = surroundings(driver, context, place, &[]).await?;
    if has_parents { Ok(()) } else { Err(StoreError::Refused(Refusal::Missing)) }
}

/// The refusal of an invalid body: a missing item takes precedence, and all faults are reported together.
async fn refused<D: Driver>(
    driver: &mut D,
    context: &Context,
    refuse: &Refuse,
) -> Result<Refusal, StoreError> {
    let place = match refuse.item {
        Some(id) => Place::Item(&refuse.collection, id),
        None => Place::Collection(&refuse.collection),
    };
    let references: Vec<_> = refuse.references.iter().collect();
    let (is_there, mut lost_pointers) = surroundings(driver, context, place, &references).await?;
    if !is_there {
        return Ok(Refusal::Missing);
    }
    let Collection { resource, ancestors, reach } = &refuse.collection;
    if let (None, Err(refusal)) = (refuse.item, require(&refuse.conditions, None)) {
        return Ok(refusal);
    }
    let declared = context.model.resource(*resource);
    let is_conditional = declared.require_if_match || !refuse.conditions.is_none();
    let is_doubtful = !reach.is_all() && !lost_pointers.is_empty();
    if let Some(id) = refuse.item.filter(|_| is_conditional || is_doubtful) {
        let reached = context.reached(*resource, reach);
        let stored = item(driver, context, *resource, reached.item(id, ancestors)).await?;
        let Some(stored) = stored else { return Ok(Refusal::Missing) };
        let required = require_of(&context.model, &refuse.collection, &refuse.conditions, &stored);
        if let Err(refusal) = required {
            return Ok(refusal);
        }
        let unseen = reach.unseen(declared, &stored);
        let kept = references
            .iter()
            .filter(|one| !reach.is_all() && is_stored((declared, unseen), &stored, one));
        let kept: Vec<&str> = kept.map(|one| &*one.pointer).collect();
        lost_pointers.retain(|pointer| !kept.contains(&&**pointer));
    }
    let mut faults = refuse.faults.clone();
    faults.extend(lost(&lost_pointers));
    Ok(Refusal::Invalid(faults))
}

/// Whether a reference equals the stored one: that is allowed, even if its target is not visible to the
/// caller. Never true for a field that the caller may not read.
fn is_stored(
    (resource, unseen): (&Resource, Unseen<'_>),
    stored: &Item,
    reference: &Reference,
) -> bool {
    let name = reference.pointer.rsplit('/').next().unwrap_or_default();
    let field = resource.field(name).filter(|(index, _)| !unseen.contains(*index));
    let value = field.and_then(|(index, _)| stored.values.get(index));
    match (value, reference.id) {
        (Some(Value::Text(text)), id @ Id::Uuid(_)) => IdKind::Uuid.parse(text) == Some(id),
        (Some(Value::Integer(number)), Id::Integer(id)) => *number == id,
        (_, _) => false,
    }
}

pub(super) async fn write<D: Driver>(
    driver: &mut D,
    context: &Context,
    write: Given<'_>,
    pace: Pace,
) -> Result<Outcome, Halt<Box<Write>>> {
    match write.once.clone() {
        None => perform(driver, context, write, pace).await,
        Some(once) => {
            // Authorization comes first: a stored answer is not replayed to a caller who has lost the rights.
            if is_due(&write) {
                Box::pin(confirm(driver, context, &write)).await?;
            }
            Box::pin(once::write(driver, context, (&once, write), pace)).await
        }
    }
}

/// Executes a write. The decision consumes the action, so that of a borrowed write is cloned.
pub(super) async fn perform<D: Driver>(
    driver: &mut D,
    context: &Context,
    write: Given<'_>,
    pace: Pace,
) -> Result<Outcome, Halt<Box<Write>>> {
    crate::fault::point("transaction");
    if write.has_clear(&context.model) {
        return Err(broken("a secret on its way to the disk as it was sent"));
    }
    let found = match look(driver, context, &write, pace).await {
        Ok(found) => found,
        Err(Halt::TooLong(())) => return Err(Halt::TooLong(write.into_whole())),
        Err(Halt::Error(error)) => return Err(Halt::Error(error)),
    };
    // After the lookup, which may have waited for a row lock.
    if is_due(&write) {
        Box::pin(confirm(driver, context, &write)).await?;
    }
    let is_guarded = write.collection.resource == context.model.users && !write.is_forced;
    let user = found.item.as_ref().filter(|_| is_guarded).cloned();
    let owned;
    let (collection, by, action) = match write {
        Given::Lent(Write { collection, action, conditions, by, .. }) => {
            (collection, by, (action.clone(), conditions))
        }
        Given::Whole(write) => {
            let Write { collection, action, conditions, by, .. } = *write;
            owned = (collection, by, conditions);
            (&owned.0, &owned.1, (action, &owned.2))
        }
    };
    let log = Log { collection, by, now: found.now };
    let is_amended = found.draft.is_some();
    let script = decided(context, collection, action, found)?;
    if let Some(user) = user {
        Box::pin(users::keep_an_admin(driver, context, &user, &script.steps)).await?;
    }
    let items = script::run(driver, context, &log, script.steps).await?;
    match script.said.outcome(items) {
        Some(Outcome::Updated(item)) if is_amended => Ok(Outcome::Amended(item)),
        outcome => outcome.ok_or_else(|| broken("an update without a row")),
    }
}

/// Whether the rights that permitted the write are due for a recheck.
pub(super) fn is_due(write: &Write) -> bool {
    write.mandate.as_ref().is_some_and(|mandate| clock::now() >= mandate.good_until)
}

/// Refuses a write whose caller's rights have changed since it was permitted.
async fn confirm<D: Driver>(
    driver: &mut D,
    context: &Context,
    write: &Write,
) -> Result<(), Halt<Box<Write>>> {
    let Some(mandate) = &write.mandate else { return Ok(()) };
    let stored = users::user(driver, context, mandate.user.name()).await?;
    match mandate.user.is_still(stored.as_ref()) {
        true => Ok(()),
        false => Err(Halt::Error(StoreError::RightsChanged)),
    }
}

/// Decides a write. A patched item is written as a replacement.
fn decided(
    context: &Context,
    collection: &Collection,
    (action, conditions): (Action, &Conditions),
    mut found: Found,
) -> Result<Script, Refusal> {
    let action = match (action, found.draft.take()) {
        (Action::Amend { id, .. }, Some(draft)) => Action::Replace { id, draft },
        (action, _) => action,
    };
    decide(&context.model, collection, (action, conditions), found)
}

pub(super) fn broken<T>(what: &str) -> Halt<T> {
    Halt::Error(StoreError::broken(what))
}
