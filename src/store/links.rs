//! Link tables, which follow from the lists of references: they are created with their resources, dropped before
//! tables change, and made again where they are missing.

use crate::model::{Field, Model, ReferenceTarget, Resource};
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::present_parts::read_columns;
use crate::store::sql::ddl;
use crate::store::sql::ddl::link_table;
use crate::store::sql::links::{create_link_table, linked_fields};

/// All fields of declared resources that have links.
fn all_linked(model: &Model) -> impl Iterator<Item = (&Resource, &Field, ReferenceTarget)> {
    model.declared().flat_map(|resource| {
        linked_fields(resource).map(move |(_, field, target)| (resource, field, target))
    })
}

/// The names of all link tables of a model.
pub fn link_tables(model: &Model) -> impl Iterator<Item = String> {
    all_linked(model).map(|(resource, field, _)| link_table(resource, field))
}

/// Creates and fills the link tables that the model asks for and the database lacks.
pub async fn create_missing<D: Driver>(
    driver: &mut D,
    model: &Model,
) -> Result<(), StatementError> {
    if all_linked(model).next().is_none() {
        return Ok(());
    }
    let present = read_columns(driver).await?;
    for (resource, field, target) in all_linked(model) {
        let table = link_table(resource, field);
        if present.iter().any(|(name, _)| *name == table) {
            continue;
        }
        for statement in create_link_table(model, (resource, field), target, D::DIALECT) {
            driver.execute(&statement, &[]).await?;
        }
    }
    Ok(())
}

/// Drops the link tables from and to some of the resources.
pub async fn drop_affected<D: Driver>(
    driver: &mut D,
    model: &Model,
    is_affected: impl Fn(&Resource) -> bool,
) -> Result<(), StatementError> {
    let present = match all_linked(model).next() {
        Some(_) => read_columns(driver).await?,
        None => return Ok(()),
    };
    for (resource, field, target) in all_linked(model) {
        let table = link_table(resource, field);
        let is_present = present.iter().any(|(name, _)| *name == table);
        if is_present && (is_affected(resource) || is_affected(model.resource(target.resource))) {
            driver.execute(&ddl::drop_table(&table), &[]).await?;
        }
    }
    Ok(())
}
