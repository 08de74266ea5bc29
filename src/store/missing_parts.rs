//! Tables, columns and indexes that the stored model has and the database lacks, because an operator dropped them; for
//! `nouns doctor`.

use crate::model::Model;
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::sql::database_move::{MovedTable, OWN_PREFIX};
use crate::store::sql::ddl;
use crate::store::{links, present_parts};

/// Names for messages.
#[derive(Debug, Default)]
pub struct MissingParts {
    /// Tables, and columns as `table.column`: their values are gone.
    pub tables: Vec<String>,
    /// Also tables of links, which follow from other values as indexes do. The next start of a server creates them again.
    pub indexes: Vec<String>,
}

pub async fn find<D: Driver>(
    driver: &mut D,
    model: &Model,
) -> Result<MissingParts, StatementError> {
    let found = present_parts::read_columns(driver).await?;
    let mut missing = MissingParts::default();
    // The server's own tables differ between versions, and a start completes them.
    let is_own = |table: &MovedTable| table.name.starts_with(OWN_PREFIX);
    for table in MovedTable::all(model).into_iter().filter(|table| !is_own(table)) {
        let has = |column: &str| found.contains(&(table.name.clone(), column.to_owned()));
        let lacks: Vec<&str> =
            table.columns.iter().map(|column| &*column.name).filter(|name| !has(name)).collect();
        match lacks.len() == table.columns.len() {
            true => missing.tables.push(table.name.clone()),
            false => {
                missing.tables.extend(lacks.iter().map(|name| format!("{}.{name}", table.name)));
            }
        }
    }
    let links =
        links::link_tables(model).filter(|table| !found.iter().any(|(name, _)| name == table));
    missing.indexes.extend(links);
    let present = present_parts::read_indexes(driver).await?;
    let is_present = |name: &str| present.iter().any(|(kept, is_valid)| kept == name && *is_valid);
    let wanted = model.declared().flat_map(|resource| ddl::indexes(resource, D::DIALECT));
    missing.indexes.extend(wanted.map(|index| index.name).filter(|name| !is_present(name)));
    Ok(missing)
}
