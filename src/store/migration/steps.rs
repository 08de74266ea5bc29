//! The plan of a migration: its steps in order, and the stored items that are in the way.

use crate::model::conversion::{RowConversion, UnfitPart};
use crate::model::diff::{Difference, MigrationEffect, ModelChange};
use crate::model::{Field, Model, Resource, UniqueRule, UniqueScope};
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::migration::pair::{ChangedResource, ModelPair};
use crate::store::migration::scan::{self, BrokenItems, count};
use crate::store::sql::migration;

/// The steps of a migration.
#[derive(Debug)]
pub struct MigrationPlan {
    pub steps: Vec<MigrationStep>,
    /// Whether the database records this model already.
    pub is_same_model: bool,
}

/// One step.
#[derive(Debug)]
pub struct MigrationStep {
    pub action: StepAction,
    /// The changed part, such as `customer.name`.
    pub path: String,
    /// The change, in words.
    pub reason: String,
    /// Whether it adds a resource, or a field that is not computed: it may be the new name of one that was removed.
    pub is_new: bool,
    /// The number of items of its resource.
    pub items: i64,
    /// Whether every row of the table is written.
    pub rewrites_table: bool,
    /// The number of items whose values are lost.
    pub lost: i64,
    pub broken: BrokenItems,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepAction {
    /// Made by startup too.
    Add,
    Rename,
    Remove,
    Rewrite,
    /// Only texts that follow from the values are written.
    Derive,
    Check,
    /// The table has no items and is made anew.
    Rebuild,
    /// Cannot be done while there are items.
    Refuse,
}

impl StepAction {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Add => "add",
            Self::Rename => "rename",
            Self::Remove => "remove",
            Self::Rewrite => "rewrite",
            Self::Derive => "derive",
            Self::Check => "check",
            Self::Rebuild => "rebuild",
            Self::Refuse => "refuse",
        }
    }
}

impl MigrationStep {
    /// Whether an operator has to allow it by name, because values are lost.
    pub fn is_destructive(&self) -> bool {
        self.lost > 0
    }

    /// Whether the model of before, with the data of after, is as it was.
    pub fn can_be_undone(&self) -> bool {
        match self.action {
            StepAction::Add
            | StepAction::Rename
            | StepAction::Derive
            | StepAction::Check
            | StepAction::Rebuild => true,
            StepAction::Remove => self.lost == 0,
            StepAction::Rewrite | StepAction::Refuse => false,
        }
    }

    /// Whether it can be applied, except for lost values.
    pub fn is_blocked(&self) -> bool {
        self.action == StepAction::Refuse || self.broken.count > 0
    }
}

impl MigrationPlan {
    pub fn same_model() -> Self {
        Self { steps: Vec::new(), is_same_model: true }
    }

    /// Whether startup makes all of it.
    pub fn is_additive(&self) -> bool {
        self.steps.iter().all(|step| step.action == StepAction::Add)
    }
}

/// Compares the models and scans the items. Changes nothing.
pub async fn make<D: Driver>(
    driver: &mut D,
    pair: &ModelPair<'_>,
) -> Result<MigrationPlan, StatementError> {
    let mut steps = Vec::new();
    for difference in &pair.differences {
        let (path, reason) = match difference {
            Difference::AddResource(index) => {
                let resource = pair.new.resource(*index);
                (resource.name.to_string(), "the resource is new".to_owned())
            }
            Difference::AddField(index, at) => {
                let resource = pair.new.resource(*index);
                let field = resource.fields.get(*at).map_or("", |field| &*field.name);
                (format!("{}.{field}", resource.name), "the field is new".to_owned())
            }
            Difference::Change(_) => continue,
        };
        steps.push(MigrationStep {
            action: StepAction::Add,
            path,
            reason,
            is_new: true,
            items: 0,
            rewrites_table: false,
            lost: 0,
            broken: BrokenItems::default(),
        });
    }
    for changed in pair.changed_resources(driver).await? {
        steps.extend(resource_steps(driver, pair, &changed).await?);
    }
    Ok(MigrationPlan { steps, is_same_model: false })
}

async fn resource_steps<D: Driver>(
    driver: &mut D,
    pair: &ModelPair<'_>,
    changed: &ChangedResource<'_>,
) -> Result<Vec<MigrationStep>, StatementError> {
    let ChangedResource { before, after, changes, items } = changed;
    let mut broken = match after {
        Some(after) if *items > 0 => {
            let conversion = RowConversion::new(before, after, changes);
            match conversion.is_needed() {
                true => scan::find_broken(driver, (pair.old, before), &conversion).await?,
                false => Default::default(),
            }
        }
        _ => Default::default(),
    };
    let mut steps = Vec::new();
    for change in changes {
        let mut step = MigrationStep {
            action: action(change.effect, *items),
            path: change.path.clone(),
            reason: change.reason.clone(),
            is_new: false,
            items: *items,
            rewrites_table: *items > 0 && rewrites_table::<D>(changed, change),
            lost: count_lost(driver, changed, change).await?,
            broken: BrokenItems::default(),
        };
        let field = change.field.and_then(|at| after.as_ref()?.fields.get(at));
        let has_former = |field: &Field| field.find_former(&before.fields).is_some();
        step.is_new = field.is_some_and(|field| field.computed.is_none() && !has_former(field));
        let is_values = !matches!(change.effect, MigrationEffect::Rename | MigrationEffect::Refuse);
        let field = field.filter(|_| is_values);
        let part = match change.effect {
            MigrationEffect::CheckItem(index) => Some(UnfitPart::Check(index)),
            _ => field.map(|field| UnfitPart::Field(field.name.to_string())),
        };
        if let Some(found) = part.and_then(|part| broken.remove(&part)) {
            step.broken = found;
        }
        if let (MigrationEffect::CheckUnique(index), Some(after)) = (change.effect, after) {
            step.broken = find_duplicates(driver, pair.old, (before, after), index).await?;
        }
        steps.push(step);
    }
    if changes.iter().any(|change| change.effect == MigrationEffect::Refuse) {
        return Ok(steps);
    }
    // Faults of fields that only depend on changed ones, such as an overflow of a computed field.
    if let Some(step) = steps.last_mut() {
        for (_, found) in broken {
            step.broken.count += found.count;
            step.broken.examples.extend(found.examples);
        }
    }
    Ok(steps)
}

/// Whether a change writes every row. SQLite does so when it drops a column.
fn rewrites_table<D: Driver>(changed: &ChangedResource<'_>, change: &ModelChange) -> bool {
    match change.effect {
        MigrationEffect::Rewrite | MigrationEffect::Overwrite | MigrationEffect::Derive => true,
        MigrationEffect::Remove => {
            changed.after.is_some()
                && (change.field.is_some() || D::DIALECT.drops_columns_by_rewriting)
        }
        _ => false,
    }
}

fn action(effect: MigrationEffect, items: i64) -> StepAction {
    match effect {
        MigrationEffect::Rename => StepAction::Rename,
        MigrationEffect::Remove => StepAction::Remove,
        MigrationEffect::Rewrite | MigrationEffect::Overwrite => StepAction::Rewrite,
        MigrationEffect::Derive => StepAction::Derive,
        MigrationEffect::Check
        | MigrationEffect::CheckUnique(_)
        | MigrationEffect::CheckItem(_) => StepAction::Check,
        MigrationEffect::Refuse if items == 0 => StepAction::Rebuild,
        MigrationEffect::Refuse => StepAction::Refuse,
    }
}

/// The number of items that lose a value.
async fn count_lost<D: Driver>(
    driver: &mut D,
    changed: &ChangedResource<'_>,
    change: &ModelChange,
) -> Result<i64, StatementError> {
    let ChangedResource { before, after, items, .. } = changed;
    let table = &before.table;
    let is_loss = matches!(change.effect, MigrationEffect::Remove | MigrationEffect::Overwrite);
    if !is_loss || *items == 0 {
        return Ok(0);
    }
    let Some(after) = after else { return Ok(*items) };
    let column: Option<&Field> = match change.field.and_then(|at| after.fields.get(at)) {
        Some(field) => field.find_former(&before.fields).map(|(_, field)| field),
        None => {
            before.fields.iter().find(|field| change.path.ends_with(&format!(".{}", field.name)))
        }
    };
    match column {
        Some(column) => count(driver, &migration::count_values(table, &column.name)).await,
        None => Ok(*items),
    }
}

/// The items whose values a unique rule does not allow. Values that the migration writes are checked when they are
/// written.
async fn find_duplicates<D: Driver>(
    driver: &mut D,
    old: &Model,
    (before, after): (&Resource, &Resource),
    index: usize,
) -> Result<BrokenItems, StatementError> {
    let Some(unique) = after.unique.get(index) else { return Ok(BrokenItems::default()) };
    let columns: Option<Vec<String>> = unique
        .fields
        .iter()
        .map(|at| {
            let field = after.fields.get(*at)?;
            let (_, former) = field.find_former(&before.fields)?;
            let is_same =
                former.kind.name == field.kind.name && former.rules.scale == field.rules.scale;
            is_same.then(|| former.name.to_string())
        })
        .collect();
    let Some(columns) = columns else { return Ok(BrokenItems::default()) };
    let columns = unique_columns(unique, before, columns);
    duplicates(driver, (old, before), &columns).await
}

/// The columns of a unique rule in the table of a resource.
pub fn unique_columns(
    unique: &UniqueRule,
    resource: &Resource,
    fields: Vec<String>,
) -> Vec<String> {
    let parent = resource.parent_key.as_deref().filter(|_| unique.scope == UniqueScope::Parent);
    parent.map(str::to_owned).into_iter().chain(fields).collect()
}

pub async fn duplicates<D: Driver>(
    driver: &mut D,
    owner: (&Model, &Resource),
    columns: &[String],
) -> Result<BrokenItems, StatementError> {
    let table = &owner.1.table;
    let sql = |limit| migration::select_duplicates(table, columns, limit);
    scan::find_by_statement(driver, owner, &sql, "another item has the same value").await
}
