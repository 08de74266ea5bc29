//! Execution of a script: each row is written with its entry in the change log.
//!
//! No function here writes one without the other. Rows are deleted before their entries are written, because
//! an entry records what `DELETE … RETURNING` returns.

use std::collections::BTreeSet;

use crate::fault::OrBug;
use crate::formats;
use crate::model::{Field, Resource, UniqueConflict, UniqueRule, UniqueScope};
use crate::permit::AccessScope;
use crate::plan::stored_faults::unique_violation;
use crate::plan::{
    Collection, Dependent, ReferencesToClear, RequestRefusal, ScriptStep,
    clear_references as cleared_item, reference_ids,
};
use crate::store::change_log::{ChangeLogContext, ChangeLogEntry};
use crate::store::context::{RowLock, StoreContext};
use crate::store::driver::{Driver, Then};
use crate::store::error::{FailedStatement, StatementError, WriteError};
use crate::store::rows::{insert_binds, unique_binds, update_binds, with_valid_json};
use crate::store::sql::unique::{is_unique_index, violated_unique_rule};
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::{ChangeKind, Id, Item, Value};

/// Items deleted and logged per round trip; bounded, because their values are held in memory.
const DELETE_BATCH_MAX: usize = 100;

/// Runs the steps of a script; returns the items as stored.
pub async fn run<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    log: &ChangeLogContext<'_>,
    steps: Vec<ScriptStep>,
    then: Then,
) -> Result<Vec<Item>, WriteError> {
    let (saving, removal) = ItemWrites::new(context, log.collection, steps);
    if removal.going.is_empty() {
        save_items(driver, context, log, (&saving, then)).await?;
    } else {
        let is_first = clear_references(driver, context, log, &removal.cleared).await?;
        delete_items(driver, context, log, (&removal.going, is_first, then)).await?;
    }
    Ok(saving.into_items())
}

/// Items to delete, and references to them.
#[derive(Default)]
pub struct ItemRemoval {
    going: Vec<Dependent>,
    cleared: Vec<ReferencesToClear>,
}

/// Items to insert or update, each with its entry for the change log.
pub struct ItemWrites<'a> {
    writes: Vec<ItemWrite>,
    entries: Vec<ChangeLogEntry<'a>>,
}

impl<'a> ItemWrites<'a> {
    /// Splits steps into the items to save and the items to delete.
    pub fn new(
        context: &'a StoreContext,
        collection: &Collection,
        steps: Vec<ScriptStep>,
    ) -> (Self, ItemRemoval) {
        let resource = context.model.resource(collection.resource);
        let mut removal = ItemRemoval::default();
        let mut saved = Vec::with_capacity(steps.len());
        for step in steps {
            match step {
                ScriptStep::Insert { item, root } => {
                    saved.push(ItemWrite::new(context, resource, (None, item, root)));
                }
                ScriptStep::Update { before, after, changed, root } => {
                    let before = Some((before, changed));
                    saved.push(ItemWrite::new(context, resource, (before, after, root)));
                }
                ScriptStep::ClearReferences(clear) => removal.cleared.push(clear),
                ScriptStep::Delete(dependent) => removal.going.push(dependent),
            }
        }
        let entries = saved.iter().map(|one| one.change_log_entry(context, collection)).collect();
        (Self { writes: saved, entries }, removal)
    }

    /// The statements that write the items, their entries and their links. `is_first`: no entry of
    /// the transaction was written before.
    pub fn statements<'b>(
        &'b self,
        context: &'b StoreContext,
        log: &'b ChangeLogContext<'_>,
        is_first: bool,
    ) -> Vec<Statement<'b>> {
        let resource = context.model.resource(log.collection.resource);
        let mut statements = Vec::with_capacity(2 * self.writes.len());
        for (at, (one, entry)) in self.writes.iter().zip(&self.entries).enumerate() {
            let row = one.row_statement(context, resource);
            context.sql.push_with_entry(
                &mut statements,
                row,
                (&entry.binds(log), is_first && at == 0),
            );
            statements.extend(one.link_statements(context, resource));
        }
        statements
    }

    /// The item that one of the statements is about, by its index.
    fn item_of_statement(&self, context: &StoreContext, resource: &Resource, at: usize) -> usize {
        let mut end = 0;
        let is_before = |one: &&ItemWrite| {
            let links = one.link_statements(context, resource).count();
            end += context.sql.statements_per_row() + links;
            end <= at
        };
        self.writes.iter().take_while(is_before).count()
    }

    pub fn into_items(self) -> Vec<Item> {
        self.writes.into_iter().map(|saved| saved.after).collect()
    }
}

/// One item to insert, or to update; an update has the former item and the indexes of the changed fields.
struct ItemWrite {
    before: Option<(Item, Vec<usize>)>,
    after: Item,
    root: String,
    links: Vec<LinkChange>,
}

/// The links that an item loses and gets, as JSON lists of their targets. Both are in the order of ids, so that
/// concurrent writes lock the targets in the same order.
struct LinkChange {
    /// The index of the link table among those of the resource.
    at: usize,
    removed: Option<String>,
    added: Option<String>,
}

impl LinkChange {
    fn new(at: usize, field: &Field, before: Option<&Value>, after: Option<&Value>) -> Self {
        let ids = |value: Option<&Value>| {
            value.map_or_else(BTreeSet::new, |value| reference_ids(field, value))
        };
        let (before, after) = (ids(before), ids(after));
        let list = |ids: BTreeSet<&Id>| {
            let element = |id: &Id| match id {
                Id::Uuid(_) => format!("\"{id}\""),
                Id::Integer(number) => number.to_string(),
            };
            let elements: Vec<String> = ids.into_iter().map(element).collect();
            (!elements.is_empty()).then(|| format!("[{}]", elements.join(",")))
        };
        let removed = list(before.difference(&after).collect());
        Self { at, removed, added: list(after.difference(&before).collect()) }
    }
}

impl ItemWrite {
    fn new(
        context: &StoreContext,
        resource: &Resource,
        (before, after, root): (Option<(Item, Vec<usize>)>, Item, String),
    ) -> Self {
        let links = context.sql.table_statements(resource.index).links.iter().enumerate();
        let links = links.filter_map(|(at, link)| {
            let stored = before.as_ref().and_then(|(item, _)| item.values.get(link.field));
            let (field, value) = (resource.fields.get(link.field)?, after.values.get(link.field));
            (stored != value).then(|| LinkChange::new(at, field, stored, value))
        });
        let links = links.collect();
        Self { before, after, root, links }
    }

    fn change_log_entry<'a>(
        &self,
        context: &'a StoreContext,
        collection: &Collection,
    ) -> ChangeLogEntry<'a> {
        let resource = context.model.resource(collection.resource);
        let (kind, before) = match &self.before {
            None => (ChangeKind::Created, None),
            Some((before, _)) => (ChangeKind::Updated, Some(before)),
        };
        let name = |index: &usize| {
            &*resource.fields.get(*index).or_bug("a changed field is one of the resource").name
        };
        let changed = self.before.as_ref();
        let changed =
            changed.map(|(_, changed)| formats::json::names_text(changed.iter().map(name)));
        let entry = ChangeLogEntry::new(context, collection, kind, &self.after);
        ChangeLogEntry { changed, ..entry.with_values(before, Some(&self.after)) }
    }

    /// The statements that write the links of lists of references, if they change.
    fn link_statements<'a>(
        &'a self,
        context: &'a StoreContext,
        resource: &Resource,
    ) -> impl Iterator<Item = Statement<'a>> {
        let tables = &context.sql.table_statements(resource.index).links;
        self.links.iter().flat_map(move |change| {
            let table = tables.get(change.at).or_bug("the link table of a field");
            let statement = |sql: &'a str, targets: &'a Option<String>| {
                let binds = vec![Bind::Id(self.after.id), Bind::Text(targets.as_deref()?)];
                Some(Statement::new(sql, binds).with_any_rows())
            };
            let removed = statement(&table.delete, &change.removed);
            removed.into_iter().chain(statement(&table.insert, &change.added))
        })
    }

    fn row_statement<'a>(
        &'a self,
        context: &'a StoreContext,
        resource: &Resource,
    ) -> Statement<'a> {
        let table = context.sql.table_statements(resource.index);
        match &self.before {
            None => Statement::new(&table.insert, insert_binds(resource, &self.after)),
            Some((before, changed)) => Statement::new(
                table.update_statement(resource, changed),
                update_binds(resource, before, &self.after, changed),
            ),
        }
    }
}

async fn save_items<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    log: &ChangeLogContext<'_>,
    (saving, then): (&ItemWrites<'_>, Then),
) -> Result<(), WriteError> {
    let resource = context.model.resource(log.collection.resource);
    let (saved, statements) = (&saving.writes, saving.statements(context, log, true));
    let Err(FailedStatement { at, failure }) = driver.execute_all(&statements, then).await else {
        return Ok(());
    };
    let at = saving.item_of_statement(context, resource, at);
    match (failure, saved.split_at_checked(at)) {
        (StatementError::UniqueViolation(message), Some((before, [blamed, ..]))) => {
            let scope = &log.collection.scope;
            let Some(rule) = violated_unique_rule(resource, &message) else {
                return Err(undeclared_rule_error(resource, scope, message));
            };
            let (written, read) = (scope.access(resource.index), scope.read_access(resource.index));
            let hidden = [&*written.hidden, &read.hidden];
            let rules = violated_rules(driver, context, resource, (before, blamed)).await?;
            let is_told = resource.conflict == UniqueConflict::Tell;
            let blame = (&*rules, &blamed.after);
            if !is_told && !are_conflicts_visible(driver, context, log.collection, blame).await? {
                return Err(RequestRefusal::OutsideRowFilter(Vec::new()).into());
            }
            let rules: Vec<_> = rules.into_iter().map(|rule| rule.unique).collect();
            // The conflicting row may have been deleted since.
            let rules = if rules.is_empty() { vec![rule] } else { rules };
            Err(unique_violation(resource, &rules, (&blamed.root, &hidden.concat())).into())
        }
        (failure, _) => Err(failure.into()),
    }
}

/// A violation of a unique index that this server's model does not declare. A server with a newer model may
/// have added it to the same database; its fields are unknown here.
fn undeclared_rule_error(resource: &Resource, scope: &AccessScope, index: String) -> WriteError {
    if !is_unique_index(resource, &index) {
        return StatementError::Engine(index).into();
    }
    if scope.is_unrestricted() {
        RequestRefusal::NotUnique(Vec::new()).into()
    } else {
        RequestRefusal::OutsideRowFilter(Vec::new()).into()
    }
}

/// A unique rule that an item violates.
struct ViolatedRule<'a> {
    unique: &'a UniqueRule,
    /// The index of the rule in the resource.
    at: usize,
    columns: Vec<Bind<'a>>,
    /// Whether a stored item conflicts, and not only an item of the same request.
    is_stored: bool,
}

/// Whether the caller may see every stored item that conflicts with an item. One that has been deleted since
/// counts as invisible.
async fn are_conflicts_visible<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    collection: &Collection,
    (rules, item): (&[ViolatedRule<'_>], &Item),
) -> Result<bool, StatementError> {
    if collection.scope.is_unrestricted() {
        return Ok(true);
    }
    if rules.is_empty() {
        return Ok(false);
    }
    let seen = collection.scope.for_reading();
    let reached = context.scoped_statements(collection.resource, &seen);
    let stored = rules.iter().filter(|rule| rule.is_stored);
    let statements = stored.map(|rule| reached.unique_conflict(rule.at, item.id, &rule.columns));
    let found = driver.have_rows(&statements.collect::<Vec<_>>()).await?;
    Ok(found.into_iter().all(|is_found| is_found))
}

/// All unique rules that an item violates (an engine reports only one): against stored items, and against
/// earlier items of the same request.
async fn violated_rules<'a, D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    resource: &'a Resource,
    (before, blamed): (&[ItemWrite], &'a ItemWrite),
) -> Result<Vec<ViolatedRule<'a>>, StatementError> {
    driver.recover().await?;
    let item = &blamed.after;
    let is_same = |unique: &UniqueRule, other: &Item| {
        (unique.scope == UniqueScope::Resource || other.parent == item.parent)
            && unique.fields.iter().all(|at| other.values.get(*at) == item.values.get(*at))
    };
    // NULL is distinct from everything, so a rule with one is not violated.
    let rules = resource.unique.iter().enumerate().filter_map(|(at, unique)| {
        let columns = unique_binds(resource, unique, item)?;
        Some(ViolatedRule { unique, at, columns, is_stored: false })
    });
    let mut rules: Vec<_> = rules.collect();
    let all_rows = AccessScope::default();
    let reached = context.scoped_statements(resource.index, &all_rows);
    let statements =
        rules.iter().map(|rule| reached.unique_conflict(rule.at, item.id, &rule.columns));
    let found = driver.have_rows(&statements.collect::<Vec<_>>()).await?;
    for (rule, is_found) in rules.iter_mut().zip(found) {
        rule.is_stored = is_found;
    }
    rules.retain(|rule| {
        rule.is_stored || before.iter().any(|other| is_same(rule.unique, &other.after))
    });
    Ok(rules)
}

/// Clears references of items, with an entry in the change log for each item. Returns whether there was no entry.
async fn clear_references<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    log: &ChangeLogContext<'_>,
    all: &[ReferencesToClear],
) -> Result<bool, WriteError> {
    let everything = AccessScope::default();
    let mut is_first = true;
    for piece in all.chunks(DELETE_BATCH_MAX) {
        let reached = piece.iter().map(|ReferencesToClear { item, .. }| {
            (context.scoped_statements(item.collection.resource, &everything), item)
        });
        let reached: Vec<_> = reached.collect();
        let statements = reached.iter().map(|(reached, item)| {
            reached.locked_item(item.id, &item.collection.ancestors, RowLock::Update)
        });
        let read = |at: usize, row: &dyn Columns| {
            let clear = piece.get(at).or_bug("the row of one of the statements");
            context.read_item(clear.item.collection.resource, row)
        };
        let stored = driver.query_all(&statements.collect::<Vec<_>>(), read, |_| false).await?;
        let mut writes = Vec::with_capacity(piece.len());
        for (ReferencesToClear { item, references }, before) in piece.iter().zip(stored) {
            let Some(before) = before.into_iter().next() else { continue };
            let resource = context.model.resource(item.collection.resource);
            context.check_lists_and_objects(resource.index, &before)?;
            let by = (log.by.user.as_deref(), log.now);
            let Some((after, changed)) = cleared_item(resource, &before, references, by) else {
                continue;
            };
            let update = ScriptStep::Update { before, after, changed, root: String::new() };
            let (write, _) = ItemWrites::new(context, &item.collection, vec![update]);
            writes.push((write, ChangeLogContext { collection: &item.collection, ..*log }));
        }
        let mut statements = Vec::new();
        for (write, log) in &writes {
            statements.extend(write.statements(context, log, std::mem::take(&mut is_first)));
        }
        let Err(FailedStatement { at, failure }) =
            driver.execute_all(&statements, Then::Continue).await
        else {
            continue;
        };
        let StatementError::UniqueViolation(_) = failure else { return Err(failure.into()) };
        // A computed value without the reference is taken: the items keep it, and the deletion is refused.
        let resource = piece.get(at.min(piece.len() - 1)).map(|one| one.item.collection.resource);
        return Err(RequestRefusal::Referenced(resource).into());
    }
    Ok(is_first)
}

async fn delete_items<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    log: &ChangeLogContext<'_>,
    (going, mut is_first, then): (&[Dependent], bool, Then),
) -> Result<(), WriteError> {
    let mut pieces = going.chunks(DELETE_BATCH_MAX).peekable();
    while let Some(piece) = pieces.next() {
        let statements = piece.iter().map(|dependent| {
            let table = context.sql.table_statements(dependent.collection.resource);
            Statement::new(&table.delete, vec![Bind::Id(dependent.id)])
        });
        let read = |at: usize, row: &dyn Columns| {
            let dependent = piece.get(at).or_bug("the row of one of the statements");
            context.read_item(dependent.collection.resource, row)
        };
        let gone = driver.query_all(&statements.collect::<Vec<_>>(), read, |_| false).await?;
        let entries = piece.iter().zip(&gone).flat_map(|(dependent, items)| {
            items.iter().map(|item| {
                ChangeLogEntry::new(context, &dependent.collection, ChangeKind::Deleted, item)
                    .with_values(Some(&with_valid_json(item)), None)
            })
        });
        let entries: Vec<_> = entries.collect();
        let statements = entries.iter().map(|entry| {
            let is_first = std::mem::take(&mut is_first);
            context.sql.entry_statement(&entry.binds(log), is_first)
        });
        let statements: Vec<_> = statements.collect();
        let then = if pieces.peek().is_some() { Then::Continue } else { then };
        driver.execute_all(&statements, then).await?;
    }
    Ok(())
}
