//! What happens inside one transaction, once for every backend.
//!
//! A write looks (what `decide` needs to know), decides (pure), and runs the script, each row with
//! its entry in the change log: there is no way to write one without the other. Who begins and commits
//! is the backend's business: SQLite's writer for a whole group, PostgreSQL's driver with the statements.

use std::borrow::Cow;
use std::cell::Cell;
use std::sync::Arc;

use quick_cache::sync::Cache;

use super::driver::{Columns, Driver, Failure, Stroke};
use super::gather::Gathering;
use super::once;
use super::place::{self, Standing};
use super::positions;
use super::reached::PARTS_MAX;
use super::rows::read_item;
use super::script::{self, Log};
use super::sql::{Dialect, Listing, Part, READY, Sql};
use super::{Broken, StoreError, users};
use crate::intent::List;
use crate::model::{Model, Resource, ResourceIndex, Verb};
use crate::permit::Reach;
use crate::plan::decide::{lost, require, require_of};
use crate::plan::{
    Action, Collection, Dependent, Found, Outcome, Read, Reference, Refusal, Refuse, Write, decide,
    patched,
};
use crate::value::{Id, IdKind, Item, Page, Value};

/// The model and its statements.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) model: Arc<Model>,
    pub(super) sql: Sql,
    /// By the rights, the verb and the resource.
    pub(super) parts: Cache<(u128, Verb, ResourceIndex), Arc<Part>>,
}

impl Context {
    pub(super) fn new(model: &Arc<Model>, dialect: &'static Dialect) -> Arc<Self> {
        let (sql, parts) = (Sql::new(model, dialect), Cache::new(PARTS_MAX));
        Arc::new(Self { model: Arc::clone(model), sql, parts })
    }
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
        Read::Positions => Ok(Outcome::Positions(positions::read(driver).await?)),
        Read::User(name) => Ok(Outcome::User(users::user(driver, context, name).await?)),
        Read::UsersStamp => Ok(Outcome::Stamp(users::stamp(driver, context).await?)),
        Read::Kept(kept) => once::read(driver, context, kept).await,
        Read::Item(collection, id) => {
            let reached = context.reached(collection.resource, &collection.reach);
            let stroke = reached.item(*id, &collection.ancestors);
            let item = item(driver, context, collection.resource, stroke).await?;
            item.map(Outcome::Item).ok_or(StoreError::Refused(Refusal::Missing))
        }
        Read::Page(collection, list) => {
            let known = place::unchanged(driver, context, collection, list).await?;
            let page = match known {
                Some(page) => page,
                None => page(driver, context, collection, list).await?,
            };
            Ok(Outcome::Page(page))
        }
        Read::Refuse(refuse) => Err(StoreError::Refused(refused(driver, context, refuse).await?)),
    }
}

/// One item, by the statement that only reads it or by the one that locks it.
async fn item<D: Driver>(
    driver: &mut D,
    context: &Context,
    resource: ResourceIndex,
    stroke: Stroke<'_>,
) -> Result<Option<Item>, Failure> {
    let resource = context.model.resource(resource);
    let read = |row: &dyn Columns| read_item(&context.model, resource, row);
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
    // One more than asked for tells whether there is a next page.
    let limit = i64::try_from(list.limit).unwrap_or(i64::MAX).saturating_add(1);
    let read = |row: &dyn Columns| read_item(model, resource, row);
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
    // Items prove that their parents are there; an empty list does not.
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

/// How many items a list has, on all of its pages.
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

/// The items that a collection lies under have to be there.
pub(super) async fn require_parents<D: Driver>(
    driver: &mut D,
    context: &Context,
    collection: &Collection,
) -> Result<(), StoreError> {
    let place = Place::Collection(collection);
    let (has_parents, _) = surroundings(driver, context, place, &[]).await?;
    if has_parents { Ok(()) } else { Err(StoreError::Refused(Refusal::Missing)) }
}

/// What must be there for a request to make sense.
enum Place<'a> {
    /// Nothing that is not looked at anyway.
    Nowhere(&'a Reach),
    /// The item that a collection lies under, if it does.
    Collection(&'a Collection),
    Item(&'a Collection, Id),
}

impl<'a> Place<'a> {
    fn reach(&self) -> &'a Reach {
        match self {
            Self::Nowhere(reach) => reach,
            Self::Collection(collection) | Self::Item(collection, _) => &collection.reach,
        }
    }
}

/// Finds out, all at once, whether a place is there, and which references lead nowhere: what is out of
/// the caller's sight is not there.
async fn surroundings<D: Driver>(
    driver: &mut D,
    context: &Context,
    place: Place<'_>,
    references: &[&Reference],
) -> Result<(bool, Vec<String>), Failure> {
    let (reach, seen) = (place.reach(), place.reach().seen());
    let item = match place {
        Place::Nowhere(_) => None,
        Place::Collection(collection) => context.parent(collection, &seen),
        Place::Item(Collection { resource, ancestors, .. }, id) => {
            Some((context.reached(*resource, reach), id, &**ancestors))
        }
    };
    let look = item.as_ref().map(|(reached, id, above)| reached.exists(*id, above));
    let is_looked_for = look.is_some();
    let targets: Vec<_> =
        references.iter().map(|reference| context.reached(reference.to, &seen)).collect();
    let looks = references.iter().zip(&targets);
    let looks = looks.map(|(reference, target)| target.exists_anywhere(reference.id));
    let strokes: Vec<_> = look.into_iter().chain(looks).collect();
    if strokes.is_empty() {
        return Ok((true, Vec::new()));
    }
    let mut found = driver.rows_each(&strokes, |_, _| Ok(())).await?.into_iter();
    let is_there = !is_looked_for || found.next().is_some_and(|rows| !rows.is_empty());
    let lost = references.iter().zip(found).filter(|(_, rows)| rows.is_empty());
    Ok((is_there, lost.map(|(reference, _)| reference.pointer.clone()).collect()))
}

/// A body with faults: a missing item comes first, and all faults come together.
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
        if let Err(refusal) = require_of(declared, &refuse.conditions, &stored) {
            return Ok(refusal);
        }
        let kept =
            references.iter().filter(|one| !reach.is_all() && is_stored(declared, &stored, one));
        let kept: Vec<&str> = kept.map(|one| &*one.pointer).collect();
        lost_pointers.retain(|pointer| !kept.contains(&&**pointer));
    }
    let mut faults = refuse.faults.clone();
    faults.extend(lost(&lost_pointers));
    Ok(Refusal::Invalid(faults))
}

/// Whether a reference is what is stored: that may stay, also where it leads out of sight.
fn is_stored(resource: &Resource, stored: &Item, reference: &Reference) -> bool {
    let name = reference.pointer.rsplit('/').next().unwrap_or_default();
    let value = resource.field(name).and_then(|(index, _)| stored.values.get(index));
    match (value, reference.id) {
        (Some(Value::Text(text)), id @ Id::Uuid(_)) => IdKind::Uuid.parse(text) == Some(id),
        (Some(Value::Integer(number)), Id::Integer(id)) => *number == id,
        (_, _) => false,
    }
}

pub(super) async fn write<D: Driver>(
    driver: &mut D,
    context: &Context,
    write: Cow<'_, Write>,
    pace: Pace,
) -> Result<Outcome, Halt<Box<Write>>> {
    match write.once.clone() {
        None => perform(driver, context, write, pace).await,
        Some(once) => Box::pin(once::write(driver, context, (&once, write), pace)).await,
    }
}

/// What is only lent may be tried again; of it the action is copied, which the decision uses up.
pub(super) async fn perform<D: Driver>(
    driver: &mut D,
    context: &Context,
    write: Cow<'_, Write>,
    pace: Pace,
) -> Result<Outcome, Halt<Box<Write>>> {
    crate::fault::point("transaction");
    if write.has_clear(&context.model) {
        return Err(broken("a secret on its way to the disk as it was sent"));
    }
    let mut found = match look(driver, context, &write, pace).await {
        Ok(found) => found,
        Err(Halt::TooLong(())) => return Err(Halt::TooLong(Box::new(write.into_owned()))),
        Err(Halt::Error(error)) => return Err(Halt::Error(error)),
    };
    let owned;
    let (collection, by, action) = match write {
        Cow::Borrowed(Write { collection, action, conditions, by, .. }) => {
            (collection, by, (action.clone(), conditions))
        }
        Cow::Owned(Write { collection, action, conditions, by, .. }) => {
            owned = (collection, by, conditions);
            (&owned.0, &owned.1, (action, &owned.2))
        }
    };
    let log = Log { collection, by, now: found.now };
    let (action, conditions) = action;
    let amended = found.draft.take();
    let is_amended = amended.is_some();
    let action = match (action, amended) {
        (Action::Amend { id, .. }, Some(draft)) => Action::Replace { id, draft },
        (action, _) => action,
    };
    let script = decide(&context.model, collection, (action, conditions), found)?;
    let items = script::run(driver, context, &log, script.steps).await?;
    match script.said.outcome(items) {
        Some(Outcome::Updated(item)) if is_amended => Ok(Outcome::Amended(item)),
        outcome => outcome.ok_or_else(|| broken("an update without a row")),
    }
}

pub(super) fn broken<T>(what: &str) -> Halt<T> {
    Halt::Error(StoreError::Broken(Broken(what.to_owned())))
}

async fn look<D: Driver>(
    driver: &mut D,
    context: &Context,
    write: &Write,
    pace: Pace,
) -> Result<Found, Halt<()>> {
    let collection = &write.collection;
    let reached = context.reached(collection.resource, &collection.reach);
    let locked = |id| reached.locked_item(id, &collection.ancestors);
    let mut found = Found {
        now: driver.now(),
        ids: Vec::new(),
        item: None,
        draft: None,
        lost_references: Vec::new(),
        going: Vec::new(),
        restricted_by: None,
    };
    match &write.action {
        Action::Create { drafts, .. } => {
            if pace == Pace::Shared && drafts.len() > SHARED_ROWS_MAX {
                return Err(Halt::TooLong(()));
            }
            let references: Vec<_> = drafts.iter().flat_map(|draft| &draft.references).collect();
            let place = Place::Collection(collection);
            let (has_parents, lost) = surroundings(driver, context, place, &references).await?;
            if !has_parents {
                return Err(Refusal::Missing.into());
            }
            found.lost_references = lost;
            found.ids =
                driver.allocate(context.model.resource(collection.resource), drafts.len()).await?;
        }
        Action::Replace { id, draft, .. } => {
            found.item = item(driver, context, collection.resource, locked(*id)).await?;
            let references: Vec<_> = draft.references.iter().collect();
            let place = Place::Nowhere(&collection.reach);
            (_, found.lost_references) = surroundings(driver, context, place, &references).await?;
        }
        Action::Amend { id, patch } => {
            let stored = item(driver, context, collection.resource, locked(*id)).await?;
            let stored = stored.ok_or(Refusal::Missing)?;
            let model = &context.model;
            require_of(model.resource(collection.resource), &write.conditions, &stored)?;
            let draft = patched(model, collection, patch, &stored)?;
            if draft.has_clear() {
                return Err(broken("a secret on its way to the disk as it was sent"));
            }
            let references: Vec<_> = draft.references.iter().collect();
            let place = Place::Nowhere(&collection.reach);
            (_, found.lost_references) = surroundings(driver, context, place, &references).await?;
            (found.item, found.draft) = (Some(stored), Some(draft));
        }
        Action::Remove { id, dependents_max } => {
            found.item = item(driver, context, collection.resource, locked(*id)).await?;
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
