//! Which tables, columns and indexes the database has.

use std::collections::BTreeSet;

use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::statement::Columns;

/// The names of all indexes that models ask for, and whether each is valid: completely built.
pub async fn read_indexes<D: Driver>(
    driver: &mut D,
) -> Result<Vec<(String, bool)>, StatementError> {
    let read = |row: &dyn Columns| Ok((row.required_text(0)?, row.boolean(1)? == Some(true)));
    driver.query(D::DIALECT.index_names, &[], read).await
}

/// The tables that applications can use, each with its columns.
pub async fn read_columns<D: Driver>(
    driver: &mut D,
) -> Result<BTreeSet<(String, String)>, StatementError> {
    let read = |row: &dyn Columns| Ok((row.required_text(0)?, row.required_text(1)?));
    Ok(driver.query(D::DIALECT.table_columns, &[], read).await?.into_iter().collect())
}
