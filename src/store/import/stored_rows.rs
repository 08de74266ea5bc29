//! The stored data that the rows of a batch of an import depend on, read and locked for all of them at once.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::OrBug as _;
use crate::intent::LoggedChange;
use crate::model::ResourceIndex;
use crate::permit::AccessScope;
use crate::plan::{ImportRow, ItemDraft, UpsertKey, partial_values};
use crate::store::change_log::read_change;
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::StoreError;
use crate::store::rows::unique_binds;
use crate::store::sql::changes::earlier_item_entry;
use crate::store::sql::transfer::{ancestor_ids, locked_item, locked_item_by_rule};
use crate::store::statement::{Bind, Columns, Statement};
use crate::value::{Id, Item, Moment};

/// The stored data that the rows of a batch depend on.
#[derive(Debug)]
pub struct StoredRows {
    /// For each row the item that an upsert found.
    pub items: Vec<Option<Item>>,
    /// The ancestors of the items under each parent, the top-level one first; `None` if there is no such parent.
    pub ancestors: BTreeMap<Id, Option<Vec<Id>>>,
    /// The items that rows refer to and that do not exist.
    dangling: BTreeSet<(usize, Id)>,
    /// The last versions of deleted items whose ids new rows have.
    pub deleted_versions: BTreeMap<Id, i64>,
}

impl StoredRows {
    pub async fn load<D: Driver>(
        driver: &mut D,
        context: &StoreContext,
        (resource, upsert): (ResourceIndex, Option<UpsertKey>),
        rows: &[ImportRow],
    ) -> Result<Self, StoreError> {
        let items = load_items(driver, context, (resource, upsert), rows).await?;
        let parents = rows.iter().zip(&items).filter_map(|(row, item)| match item {
            Some(item) => item.parent,
            None => row.parent,
        });
        let parents: BTreeSet<Id> = parents.collect();
        let ancestors = load_ancestors(driver, context, resource, parents).await?;
        let drafts = rows.iter().zip(&items).filter_map(|(row, item)| chosen_draft(row, item));
        let references = drafts.flat_map(|draft| &draft.references);
        let references: BTreeMap<(usize, Id), ResourceIndex> =
            references.map(|reference| ((reference.to.0, reference.id), reference.to)).collect();
        let scope = AccessScope::default();
        let targets: Vec<_> =
            references.values().map(|to| context.scoped_statements(*to, &scope)).collect();
        let looks = references.keys().zip(&targets);
        let looks = looks.map(|((_, id), target)| target.exists_anywhere(*id));
        let found = driver.have_rows(&looks.collect::<Vec<_>>()).await?;
        let dangling = references.into_keys().zip(found).filter(|(_, is_found)| !is_found);
        let dangling = dangling.map(|(key, _)| key).collect();
        let new = rows.iter().zip(&items).filter(|(_, item)| item.is_none());
        let ids = new.filter_map(|(row, _)| row.id).collect();
        let deleted_versions = load_deleted_versions(driver, context, resource, ids).await?;
        Ok(Self { items, ancestors, dangling, deleted_versions })
    }

    pub fn dangling_pointers(&self, draft: &ItemDraft) -> Vec<String> {
        let references = draft.references.iter();
        let lost =
            references.filter(|reference| self.dangling.contains(&(reference.to.0, reference.id)));
        lost.map(|reference| reference.pointer.clone()).collect()
    }
}

/// The draft that is written: the change of the item that was found, or a new item.
fn chosen_draft<'a>(row: &'a ImportRow, item: &Option<Item>) -> Option<&'a ItemDraft> {
    match item {
        Some(_) => row.change.as_ref(),
        None => row.new.as_ref().ok(),
    }
}

/// Finds and locks the items that an upsert changes.
async fn load_items<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    (index, upsert): (ResourceIndex, Option<UpsertKey>),
    rows: &[ImportRow],
) -> Result<Vec<Option<Item>>, StoreError> {
    let resource = context.model.resource(index);
    let Some(key) = upsert else { return Ok(rows.iter().map(|_| None).collect()) };
    let drafts: Vec<Item> = rows.iter().map(key_item).collect();
    let statements: Vec<Statement<'_>> = match key {
        UpsertKey::Id => {
            let sql = locked_item(resource, D::DIALECT);
            let binds = drafts.iter().map(|item| vec![Bind::Id(item.id)]);
            binds.map(|binds| Statement::new(sql.clone(), binds)).collect()
        }
        UpsertKey::Rule { rule, .. } => {
            let rule = resource.unique.get(rule).or_bug("the index of a unique rule");
            let sql = locked_item_by_rule(resource, rule, D::DIALECT);
            let binds = drafts.iter().map(|item| {
                unique_binds(resource, rule, item).or_bug("a row of an upsert has its key")
            });
            binds.map(|binds| Statement::new(sql.clone(), binds)).collect()
        }
    };
    let read = |_, row: &dyn Columns| context.read_item(index, row);
    let found = driver.query_all(&statements, read, |_| false).await?;
    let items: Vec<Option<Item>> = found.into_iter().map(|mut items| items.pop()).collect();
    for item in items.iter().flatten() {
        context.check_lists_and_objects(index, item)?;
    }
    Ok(items)
}

/// A row with the values of its key, as an item.
fn key_item(row: &ImportRow) -> Item {
    let moment = Moment::from_micros(0).or_bug("0 is a moment");
    Item {
        id: row.id.unwrap_or(Id::Integer(0)),
        parent: row.parent,
        created_at: moment,
        updated_at: moment,
        version: 0,
        values: row.change.as_ref().map(partial_values).unwrap_or_default(),
    }
}

async fn load_ancestors<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    resource: ResourceIndex,
    parents: BTreeSet<Id>,
) -> Result<BTreeMap<Id, Option<Vec<Id>>>, StoreError> {
    let model = &context.model;
    let Some(parent) = model.resource(resource).parent else { return Ok(BTreeMap::new()) };
    let sql = ancestor_ids(model, model.resource(parent), D::DIALECT);
    let statements = parents.iter().map(|id| Statement::new(&*sql, vec![Bind::Id(*id)]));
    let statements: Vec<_> = statements.collect();
    // From the parent upwards.
    let kinds: Vec<_> = model.lineage(parent).iter().rev().map(|level| level.id).collect();
    let read = |_, row: &dyn Columns| {
        let ids = kinds.iter().enumerate().map(|(at, kind)| row.id(at, *kind));
        let mut ids: Vec<Id> = ids.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        ids.reverse();
        Ok(ids)
    };
    let found = driver.query_all(&statements, read, |_| false).await?;
    let found = found.into_iter().map(|mut chains| chains.pop());
    Ok(parents.iter().copied().zip(found).collect())
}

/// The last versions of deleted items, as far as the change log has entries of them. Where an entry has no values, its
/// number stands for the version: no item has more versions than the log had entries.
async fn load_deleted_versions<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    resource: ResourceIndex,
    ids: Vec<Id>,
) -> Result<BTreeMap<Id, i64>, StoreError> {
    let (model, sql) = (&context.model, earlier_item_entry(D::DIALECT));
    let label = &model.resource(resource).label;
    let texts: Vec<String> = ids.iter().map(|id| id.text()).collect();
    let statements = texts.iter().map(|id| {
        let last = [Bind::Integer(i64::MAX), Bind::Integer(0)];
        Statement::new(&*sql, [Bind::Text(label), Bind::Text(id)].into_iter().chain(last).collect())
    });
    let statements: Vec<_> = statements.collect();
    let found = driver.query_all(&statements, |_, row| read_change(row), |_| false).await?;
    let versions = ids.into_iter().zip(found).filter_map(|(id, mut entries)| {
        let entry = LoggedChange::new(model, entries.pop()?);
        let values = entry.after(model).or(entry.before(model));
        Some((id, values.map_or(entry.change.sequence, |item| item.version)))
    });
    Ok(versions.collect())
}
