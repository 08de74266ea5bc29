//! Stored items that a changed model does not allow: how many there are, and the addresses of some.

use std::collections::BTreeMap;

use crate::fault::OrBug as _;
use crate::intent::push_unprefixed_path;
use crate::model::conversion::{RowConversion, UnfitPart};
use crate::model::{Model, Resource};
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::rows::read_item;
use crate::store::sql::columns::AncestorJoin;
use crate::store::sql::migration;
use crate::store::statement::{Bind, Columns};
use crate::value::{Id, IdKind, Item};

/// Rows of one read.
pub const BATCH_ROWS: usize = 500;
/// Items that a message names.
const EXAMPLES_MAX: usize = 5;

/// Items that violate a rule of the new model.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct BrokenItems {
    pub count: i64,
    /// The first few.
    pub examples: Vec<BrokenItem>,
}

/// The path of an item, and the fault of its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BrokenItem {
    pub path: String,
    pub fault: String,
}

impl BrokenItems {
    /// A line for a message.
    pub fn describe(&self) -> String {
        let examples = self.examples.iter().map(|item| format!("{} ({})", item.path, item.fault));
        let examples = examples.collect::<Vec<_>>().join(", ");
        let (count, verb) = (self.count, if self.count == 1 { "item is" } else { "items are" });
        let more = if i64::try_from(self.examples.len()) == Ok(count) { "" } else { ", …" };
        format!("{count} {verb} in the way: {examples}{more}")
    }
}

/// Reads all items of a resource from its table in batches, in the order of their ids. `each` gets a batch.
pub async fn for_each_batch<D: Driver>(
    driver: &mut D,
    (model, resource, table): (&Model, &Resource, &str),
    mut each: impl AsyncFnMut(&mut D, Vec<Item>) -> Result<(), StatementError>,
) -> Result<(), StatementError> {
    let mut last: Option<Id> = None;
    loop {
        let sql =
            migration::select_batch((resource, table), last.is_none(), BATCH_ROWS, D::DIALECT);
        let binds: Vec<Bind<'_>> = last.map(Bind::Id).into_iter().collect();
        let read = |row: &dyn Columns| read_item(model, resource, row);
        let items = driver.query(&sql, &binds, read).await?;
        let Some(end) = items.last() else { return Ok(()) };
        last = Some(end.id);
        each(driver, items).await?;
    }
}

/// Converts all items without writing them. Returns the broken items by the part of the model that they do not fit.
pub async fn find_broken<D: Driver>(
    driver: &mut D,
    (model, resource): (&Model, &Resource),
    conversion: &RowConversion<'_>,
) -> Result<BTreeMap<UnfitPart, BrokenItems>, StatementError> {
    let mut broken: BTreeMap<UnfitPart, (i64, Vec<(Id, String)>)> = BTreeMap::new();
    for_each_batch(driver, (model, resource, &resource.table), async |_: &mut D, items| {
        for item in items {
            let Err(faults) = conversion.convert(&item.values) else { continue };
            let mut counted: Vec<UnfitPart> = Vec::new();
            for fault in faults {
                if counted.contains(&fault.part) {
                    continue;
                }
                let (count, examples) = broken.entry(fault.part.clone()).or_default();
                *count += 1;
                if examples.len() < EXAMPLES_MAX {
                    examples.push((item.id, fault.detail));
                }
                counted.push(fault.part);
            }
        }
        Ok(())
    })
    .await?;
    let mut described = BTreeMap::new();
    for (part, (count, ids)) in broken {
        let mut examples = Vec::new();
        for (id, fault) in ids {
            let path = find_item_path(driver, (model, resource), id).await?;
            examples.push(BrokenItem { path, fault });
        }
        described.insert(part, BrokenItems { count, examples });
    }
    Ok(described)
}

/// Runs `sql(limit)`, which returns rows of an id as text and the count of all, and describes the items with `fault`.
pub async fn find_by_statement<D: Driver>(
    driver: &mut D,
    (model, resource): (&Model, &Resource),
    sql: &dyn Fn(usize) -> String,
    fault: &str,
) -> Result<BrokenItems, StatementError> {
    let read = |row: &dyn Columns| Ok((row.required_text(0)?, row.required_integer(1)?));
    let rows = driver.query(&sql(EXAMPLES_MAX), &[], read).await?;
    let count = rows.first().map_or(0, |(_, count)| *count);
    let mut examples = Vec::new();
    for (id, _) in rows {
        let id = resource.id.parse(&id).or_bug("an id has the form of its kind");
        let path = find_item_path(driver, (model, resource), id).await?;
        examples.push(BrokenItem { path, fault: fault.to_owned() });
    }
    Ok(BrokenItems { count, examples })
}

/// The path of an item.
async fn find_item_path<D: Driver>(
    driver: &mut D,
    (model, resource): (&Model, &Resource),
    id: Id,
) -> Result<String, StatementError> {
    let join = AncestorJoin::of_rows(model, resource);
    let mut kinds: Vec<IdKind> =
        model.lineage(resource.index).iter().rev().skip(1).map(|above| above.id).collect();
    kinds.truncate(join.columns.len());
    let mut ancestors = Vec::new();
    if !join.columns.is_empty() {
        let (columns, from) = (join.columns.join(", "), &join.from);
        let sql =
            format!("SELECT {columns} FROM {from} WHERE t0.\"id\" = {}1", D::DIALECT.placeholder);
        let read = |row: &dyn Columns| {
            kinds
                .iter()
                .enumerate()
                .map(|(at, kind)| row.id(at, *kind))
                .collect::<Result<Vec<_>, _>>()
        };
        let ids = driver.query_one(&sql, &[Bind::Id(id)], read).await?.unwrap_or_default();
        ancestors = ids.into_iter().flatten().collect();
        ancestors.reverse();
    }
    let mut path = String::new();
    push_unprefixed_path(&mut path, model, resource.index, (&ancestors, Some(id)));
    Ok(path)
}

/// The result of a statement that counts.
pub async fn count<D: Driver>(driver: &mut D, sql: &str) -> Result<i64, StatementError> {
    Ok(driver.query_one(sql, &[], |row| row.required_integer(0)).await?.unwrap_or(0))
}
