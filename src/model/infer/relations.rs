//! Which foreign keys become a parent, which become references, and in which order rows are imported.

use std::collections::BTreeSet;

use crate::model::database_tables::{ColumnKind, DeleteAction, TableDefinition, TableReference};

/// The most resources in a path.
const LEVELS_MAX: usize = 16;

/// The id of a resource that a table becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InferredId {
    /// The key is a number.
    Integer,
    /// The key is a UUID.
    Uuid,
    /// The items get new ids, because the key is something else.
    New,
}

/// A foreign key whose ids stay valid.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ItemReference {
    pub column: String,
    /// The index of the other table.
    pub target: usize,
    pub on_delete: DeleteAction,
}

/// The relations of one table.
#[derive(Debug)]
pub struct TableRelations {
    pub id: InferredId,
    pub parent: Option<ItemReference>,
    pub references: Vec<ItemReference>,
}

pub fn infer_id(table: &TableDefinition) -> InferredId {
    let [key] = &*table.primary_key else { return InferredId::New };
    match table.column(key).map(|column| &column.kind) {
        Some(ColumnKind::Integer) => InferredId::Integer,
        Some(ColumnKind::Uuid) => InferredId::Uuid,
        _ => InferredId::New,
    }
}

/// The relations of all tables, in their order.
pub fn infer(tables: &[TableDefinition]) -> Vec<TableRelations> {
    let mut all: Vec<TableRelations> = tables
        .iter()
        .map(|table| {
            let references =
                table.foreign_keys.iter().filter_map(|key| item_reference(tables, key));
            let mut columns = BTreeSet::new();
            let references: Vec<_> =
                references.filter(|one| columns.insert(one.column.clone())).collect();
            TableRelations { id: infer_id(table), parent: None, references }
        })
        .collect();
    for (at, table) in tables.iter().enumerate() {
        let Some(relations) = all.get(at) else { continue };
        let Some(parent) = find_parent(at, table, relations) else { continue };
        if depth(&all, parent.target) + depth_below(&all, at) >= LEVELS_MAX
            || is_above(&all, at, parent.target)
        {
            continue;
        }
        if let Some(relations) = all.get_mut(at) {
            relations.references.retain(|one| one.column != parent.column);
            relations.parent = Some(parent);
        }
    }
    all
}

/// A foreign key to the key of a table, where that key is the id of its items.
fn item_reference(tables: &[TableDefinition], key: &TableReference) -> Option<ItemReference> {
    let [(column, target_column)] = &*key.columns else { return None };
    let target = tables.iter().position(|table| table.name == key.target)?;
    let table = tables.get(target)?;
    let is_id = table.primary_key == [target_column.clone()] && infer_id(table) != InferredId::New;
    is_id.then(|| ItemReference { column: column.clone(), target, on_delete: key.on_delete })
}

/// The one foreign key without which a row cannot be, and with which it is deleted. The rules of the table must be
/// expressible within a parent.
fn find_parent(
    at: usize,
    table: &TableDefinition,
    relations: &TableRelations,
) -> Option<ItemReference> {
    let is_owner = |one: &&ItemReference| {
        let column = table.column(&one.column);
        let is_key = table.primary_key == [one.column.clone()];
        one.on_delete == DeleteAction::Cascade
            && one.target != at
            && !is_key
            && column.is_some_and(|column| column.is_required)
    };
    let mut owners = relations.references.iter().filter(is_owner);
    let (owner, other) = (owners.next()?, owners.next());
    let mut groups = table.unique.iter().chain([&table.primary_key]);
    let is_expressible = groups.all(|group| !group.contains(&owner.column) || group.len() == 2);
    (other.is_none() && is_expressible).then(|| owner.clone())
}

fn parent(all: &[TableRelations], at: usize) -> Option<usize> {
    all.get(at)?.parent.as_ref().map(|parent| parent.target)
}

/// The number of resources from the top to this one.
fn depth(all: &[TableRelations], at: usize) -> usize {
    std::iter::successors(Some(at), |at| parent(all, *at)).count()
}

/// The number of levels below and including this one.
fn depth_below(all: &[TableRelations], at: usize) -> usize {
    let depth_of_this = depth(all, at);
    let below = (0..all.len()).filter(|other| is_above(all, at, *other));
    below.map(|other| depth(all, other) - depth_of_this + 1).max().unwrap_or(1)
}

/// Whether one resource is the other one, or above it.
fn is_above(all: &[TableRelations], one: usize, other: usize) -> bool {
    std::iter::successors(Some(other), |at| parent(all, *at)).any(|at| at == one)
}

/// The order of an import: a table after those that it refers to. References that cannot be in this order, of rows to
/// rows of the same table or in a circle, are imported afterwards.
#[derive(Debug, Default)]
pub struct ImportOrder {
    pub tables: Vec<usize>,
    /// Table and column.
    pub deferred: BTreeSet<(usize, String)>,
}

pub fn import_order(
    all: &[&TableRelations],
    can_wait: impl Fn(usize, &ItemReference) -> bool,
) -> ImportOrder {
    let mut order = ImportOrder::default();
    let mut left: BTreeSet<usize> = (0..all.len()).collect();
    while !left.is_empty() {
        let waits_for = |at: usize, deferred: &BTreeSet<(usize, String)>| {
            let relations = all.get(at);
            let references = relations.into_iter().flat_map(|one| {
                one.references.iter().chain(&one.parent).filter(|one| {
                    left.contains(&one.target) && !deferred.contains(&(at, one.column.clone()))
                })
            });
            references.cloned().collect::<Vec<_>>()
        };
        if let Some(at) = left.iter().copied().find(|at| waits_for(*at, &order.deferred).is_empty())
        {
            order.tables.push(at);
            left.remove(&at);
            continue;
        }
        // All are in circles, or behind one: defer an optional reference, else give up on one table.
        let optional = left.iter().copied().find_map(|at| {
            let waiting = waits_for(at, &order.deferred);
            waiting.iter().find(|one| can_wait(at, one)).map(|one| (at, one.column.clone()))
        });
        match optional {
            Some(deferred) => drop(order.deferred.insert(deferred)),
            None => order.tables.extend(left.pop_first()),
        }
    }
    order
}
