//! Execution of a script: each row is written with its entry in the change log.
//!
//! No function here writes one without the other. The one surprising thing: rows are deleted before their
//! entries are written, because an entry records what `DELETE … RETURNING` returns.

use super::Broken;
use super::driver::{Bind, Columns, Driver, Failure, Stopped, Stroke};
use super::gather::is_referred_to;
use super::rows::{insert_binds, read_item, unique_binds, update_binds};
use super::sql::{ENTRY_BINDS, is_unique_index, seen_holders, unique_rule};
use super::transaction::{Context, Halt, broken};
use crate::formats;
use crate::intent::push_subject;
use crate::model::{ChangesKept, Resource, Unique, UniqueScope};
use crate::permit::Reach;
use crate::plan::decide::taken;
use crate::plan::{By, Collection, Dependent, Refusal, Step, Write};
use crate::value::{ChangeKind, Id, Item, Moment};

/// Items deleted and logged per round trip; bounded, because their values are held in memory.
const REMOVED_MAX: usize = 100;

/// The columns that all change log entries of one write share.
#[derive(Debug)]
pub(super) struct Log<'a> {
    pub(super) collection: &'a Collection,
    pub(super) by: &'a By,
    pub(super) now: Moment,
}

/// Runs the steps of a script; returns the items as stored.
pub(super) async fn run<D: Driver>(
    driver: &mut D,
    context: &Context,
    log: &Log<'_>,
    steps: Vec<Step>,
) -> Result<Vec<Item>, Halt<Box<Write>>> {
    let (saving, going) = Saving::new(context, log.collection, steps);
    if going.is_empty() {
        save(driver, context, log, &saving).await?;
    } else {
        remove(driver, context, log, &going).await?;
    }
    Ok(saving.into_items())
}

/// Items to insert or update, each with its entry for the change log.
pub(super) struct Saving<'a> {
    saved: Vec<Saved>,
    entries: Vec<Entry<'a>>,
}

impl<'a> Saving<'a> {
    /// Splits steps into the items to save and the items to delete.
    pub(super) fn new(
        context: &'a Context,
        collection: &Collection,
        steps: Vec<Step>,
    ) -> (Self, Vec<Dependent>) {
        let mut going = Vec::new();
        let mut saved = Vec::with_capacity(steps.len());
        for step in steps {
            match step {
                Step::Insert { item, root } => {
                    saved.push(Saved { before: None, after: item, root });
                }
                Step::Update { before, after, changed, root } => {
                    saved.push(Saved { before: Some((before, changed)), after, root });
                }
                Step::Delete(dependent) => going.push(dependent),
            }
        }
        let entries = saved.iter().map(|one| one.entry(context, collection)).collect();
        (Self { saved, entries }, going)
    }

    /// The statements that write the items and their entries: the same number for each item.
    pub(super) fn strokes<'b>(&'b self, context: &'b Context, log: &'b Log<'_>) -> Vec<Stroke<'b>> {
        let resource = context.model.resource(log.collection.resource);
        let mut strokes = Vec::with_capacity(2 * self.saved.len());
        for (at, (one, entry)) in self.saved.iter().zip(&self.entries).enumerate() {
            let row = one.row(context, resource);
            context.sql.push_with_entry(&mut strokes, row, (&entry.binds(log), at == 0));
        }
        strokes
    }

    pub(super) fn into_items(self) -> Vec<Item> {
        self.saved.into_iter().map(|saved| saved.after).collect()
    }
}

/// One item to insert, or to update; an update has the former item and the indexes of the changed fields.
struct Saved {
    before: Option<(Item, Vec<usize>)>,
    after: Item,
    root: String,
}

impl Saved {
    fn entry<'a>(&self, context: &'a Context, collection: &Collection) -> Entry<'a> {
        let resource = context.model.resource(collection.resource);
        let (kind, before) = match &self.before {
            None => (ChangeKind::Created, None),
            Some((before, _)) => (ChangeKind::Updated, Some(before)),
        };
        let name = |index: &usize| resource.fields.get(*index).map(|field| &*field.name);
        let changed = self
            .before
            .as_ref()
            .map(|(_, changed)| formats::json::names_text(changed.iter().filter_map(name)));
        let entry = Entry::new(context, collection, kind, &self.after);
        Entry { changed, ..entry.show(before, Some(&self.after)) }
    }

    fn row<'a>(&'a self, context: &'a Context, resource: &Resource) -> Stroke<'a> {
        let table = context.sql.table(resource.index);
        match &self.before {
            None => Stroke::new(&table.insert, insert_binds(resource, &self.after)),
            Some((before, changed)) => Stroke::new(
                table.update(resource, changed),
                update_binds(resource, before, &self.after, changed),
            ),
        }
    }
}

async fn save<D: Driver>(
    driver: &mut D,
    context: &Context,
    log: &Log<'_>,
    saving: &Saving<'_>,
) -> Result<(), Halt<Box<Write>>> {
    let resource = context.model.resource(log.collection.resource);
    let (saved, strokes) = (&saving.saved, saving.strokes(context, log));
    let Err(Stopped { at, failure }) = driver.finish(&strokes).await else { return Ok(()) };
    let at = at * saved.len() / strokes.len().max(1);
    match (failure, saved.split_at_checked(at)) {
        (Failure::Taken(message), Some((before, [blamed, ..]))) => {
            let reach = &log.collection.reach;
            let Some(rule) = unique_rule(resource, &message) else {
                return Err(undeclared_rule(resource, reach, message));
            };
            let hidden = [reach.hidden(resource.index), reach.unseen_fields(resource.index)];
            let rules = broken_rules(driver, context, resource, (before, blamed)).await?;
            if !are_holders_seen(driver, context, reach, (&rules, &blamed.after)).await? {
                return Err(Refusal::Outside(Vec::new()).into());
            }
            let rules: Vec<_> = rules.into_iter().map(|rule| rule.unique).collect();
            // The conflicting row may have been deleted since.
            let rules = if rules.is_empty() { vec![rule] } else { rules };
            Err(taken(resource, &rules, (&blamed.root, &hidden.concat())).into())
        }
        (failure, _) => Err(failure.into()),
    }
}

/// A violation of a unique index that this server's model does not declare. A server with a newer model may
/// have added it to the same database; its fields are unknown here.
fn undeclared_rule(resource: &Resource, reach: &Reach, index: String) -> Halt<Box<Write>> {
    if !is_unique_index(resource, &index) {
        return Failure::Engine(index).into();
    }
    if reach.is_all() {
        Refusal::Taken(Vec::new()).into()
    } else {
        Refusal::Outside(Vec::new()).into()
    }
}

/// A unique rule that an item violates.
struct BrokenRule<'a> {
    resource: &'a Resource,
    unique: &'a Unique,
    /// The index of the rule in the resource.
    at: usize,
    /// Whether a stored item conflicts, and not only an item of the same request.
    is_stored: bool,
}

/// Whether the caller may see every stored item that conflicts with an item. One that has been deleted since
/// counts as invisible.
async fn are_holders_seen<D: Driver>(
    driver: &mut D,
    context: &Context,
    reach: &Reach,
    (rules, item): (&[BrokenRule<'_>], &Item),
) -> Result<bool, Failure> {
    let (model, seen) = (&context.model, reach.seen());
    if reach.is_all() {
        return Ok(true);
    }
    let Some(resource) = rules.first().map(|rule| rule.resource) else { return Ok(false) };
    let holders = seen_holders(model, context.sql.dialect, resource, &seen);
    let mut strokes = Vec::new();
    for rule in rules.iter().filter(|rule| rule.is_stored) {
        let (Some((sql, terms)), Some(columns)) =
            (holders.get(rule.at), unique_binds(resource, rule.unique, item))
        else {
            return Ok(false);
        };
        let terms = terms.iter().map(|term| term.bind(seen.user()));
        let binds = [Bind::Id(item.id)].into_iter().chain(columns).chain(terms);
        strokes.push(Stroke::new(sql, binds.collect()));
    }
    let found = driver.rows_each(&strokes, |_, _| Ok(())).await?;
    Ok(found.iter().all(|rows| !rows.is_empty()))
}

/// All unique rules that an item violates (an engine reports only one): against stored items, and against
/// earlier items of the same request.
async fn broken_rules<'a, D: Driver>(
    driver: &mut D,
    context: &Context,
    resource: &'a Resource,
    (before, blamed): (&[Saved], &Saved),
) -> Result<Vec<BrokenRule<'a>>, Failure> {
    driver.recover().await?;
    let item = &blamed.after;
    let mut asked = Vec::new();
    let mut strokes = Vec::new();
    let holders = &context.sql.table(resource.index).holders;
    for (at, (unique, sql)) in resource.unique.iter().zip(holders).enumerate() {
        // NULL is distinct from everything.
        if let Some(columns) = unique_binds(resource, unique, item) {
            asked.push((at, unique));
            strokes.push(Stroke::new(sql, [vec![Bind::Id(item.id)], columns].concat()));
        }
    }
    let held = driver.rows_each(&strokes, |_, _| Ok(())).await?;
    let is_same = |unique: &Unique, other: &Item| {
        (unique.scope == UniqueScope::Resource || other.parent == item.parent)
            && unique.fields.iter().all(|at| other.values.get(*at) == item.values.get(*at))
    };
    let broken = asked.into_iter().zip(held).filter_map(|((at, unique), rows)| {
        let is_stored = !rows.is_empty();
        let is_broken = is_stored || before.iter().any(|other| is_same(unique, &other.after));
        is_broken.then_some(BrokenRule { resource, unique, at, is_stored })
    });
    Ok(broken.collect())
}

async fn remove<D: Driver>(
    driver: &mut D,
    context: &Context,
    log: &Log<'_>,
    going: &[Dependent],
) -> Result<(), Halt<Box<Write>>> {
    let mut pieces = going.chunks(REMOVED_MAX).peekable();
    let mut is_first = true;
    while let Some(piece) = pieces.next() {
        let strokes = piece.iter().map(|dependent| {
            let table = context.sql.table(dependent.collection.resource);
            Stroke::new(&table.delete, vec![Bind::Id(dependent.id)])
        });
        let read = |at: usize, row: &dyn Columns| {
            let dependent = piece.get(at).ok_or_else(|| Broken("rows nobody asked for".into()))?;
            let resource = context.model.resource(dependent.collection.resource);
            read_item(&context.model, resource, row, &context.damaged_items)
        };
        let gone = driver.rows_each(&strokes.collect::<Vec<_>>(), read).await?;
        let entries = piece.iter().zip(&gone).flat_map(|(dependent, items)| {
            items.iter().map(|item| {
                Entry::new(context, &dependent.collection, ChangeKind::Deleted, item)
                    .show(Some(item), None)
            })
        });
        let entries: Vec<_> = entries.collect();
        let strokes = entries.iter().map(|entry| {
            let is_first = std::mem::take(&mut is_first);
            context.sql.entry(&entry.binds(log), is_first)
        });
        let strokes: Vec<_> = strokes.collect();
        let done = if pieces.peek().is_some() {
            driver.execute_each(&strokes).await
        } else {
            // A dangling reference would fail the commit of the whole group.
            if D::SHARES_COMMIT && is_referred_to(driver, context, going).await? {
                return Err(broken("a removal that leaves a reference behind"));
            }
            driver.finish(&strokes).await
        };
        done.map_err(|stopped| stopped.failure)?;
    }
    Ok(())
}

/// One entry of the change log, as text.
struct Entry<'a> {
    resource: &'a Resource,
    kind: ChangeKind,
    id: String,
    parent: Option<String>,
    subject: String,
    changed: Option<String>,
    before: Option<String>,
    after: Option<String>,
}

impl<'a> Entry<'a> {
    fn new(context: &'a Context, collection: &Collection, kind: ChangeKind, item: &Item) -> Self {
        crate::fault::point("entry");
        let resource = context.model.resource(collection.resource);
        let mut subject = String::with_capacity(96);
        let ids = (&*collection.ancestors, Some(item.id));
        push_subject(&mut subject, &context.model, resource.index, ids);
        let (id, parent) = (item.id.text(), item.parent.map(Id::text));
        Self { resource, kind, id, parent, subject, changed: None, before: None, after: None }
    }

    fn show(self, before: Option<&Item>, after: Option<&Item>) -> Self {
        let text = |item: Option<&Item>| match self.resource.changes {
            ChangesKept::Values => item.map(|item| formats::json::item_text(self.resource, item)),
            ChangesKept::Ids => None,
        };
        let (before, after) = (text(before), text(after));
        Self { before, after, ..self }
    }

    fn binds<'b>(&'b self, log: &'b Log<'_>) -> [Bind<'b>; ENTRY_BINDS] {
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
