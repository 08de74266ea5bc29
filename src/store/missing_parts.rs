//! What a database lacks of its own model, because somebody dropped it by hand; for `nouns doctor`.

use std::collections::BTreeSet;

use crate::model::Model;
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::sql::database_move::{MovedTable, OWN_PREFIX};
use crate::store::sql::ddl;
use crate::store::statement::Columns;

/// Names for messages.
#[derive(Debug, Default)]
pub struct MissingParts {
    /// Tables, and columns as `table.column`: their values are gone.
    pub tables: Vec<String>,
    /// The next start of a server creates them again.
    pub indexes: Vec<String>,
}

pub async fn find<D: Driver>(
    driver: &mut D,
    model: &Model,
) -> Result<MissingParts, StatementError> {
    let read = |row: &dyn Columns| Ok((row.required_text(0)?, row.required_text(1)?));
    let found = driver.query(D::DIALECT.table_columns, &[], read).await?;
    let found: BTreeSet<(String, String)> = found.into_iter().collect();
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
    let read = |row: &dyn Columns| Ok((row.required_text(0)?, row.boolean(1)?));
    let present = driver.query(D::DIALECT.index_names, &[], read).await?;
    let is_present =
        |name: &str| present.iter().any(|(kept, valid)| kept == name && *valid == Some(true));
    let wanted = model.declared().flat_map(|resource| ddl::indexes(resource, D::DIALECT));
    missing.indexes = wanted.map(|index| index.name).filter(|name| !is_present(name)).collect();
    Ok(missing)
}
