//! The key-value table `nouns_system`.

use crate::store::driver::Driver;
use crate::store::error::{InternalError, StatementError};
use crate::store::sql::ddl;
use crate::store::sql::dialect::Dialect;
use crate::store::statement::{Bind, Columns};

/// Writes a value.
pub async fn write<D: Driver>(
    driver: &mut D,
    dialect: &Dialect,
    name: &str,
    value: &str,
) -> Result<(), StatementError> {
    let binds = [Bind::Text(name), Bind::Text(value)];
    driver.execute(&ddl::upsert_system_value(dialect), &binds).await.map(|_| ())
}

/// Removes a value.
pub async fn remove<D: Driver>(
    driver: &mut D,
    dialect: &Dialect,
    name: &str,
) -> Result<(), StatementError> {
    driver.execute(&ddl::forget(dialect), &[Bind::Text(name)]).await.map(drop)
}

/// Writes a value unless the key exists; returns the value that is stored then.
pub async fn write_if_absent<D: Driver>(
    driver: &mut D,
    dialect: &Dialect,
    name: &str,
    value: &str,
) -> Result<String, StatementError> {
    let binds = [Bind::Text(name), Bind::Text(value)];
    driver.execute(&ddl::insert_system_value_if_absent(dialect), &binds).await?;
    let kept = read(driver, dialect, name).await?;
    kept.ok_or_else(|| {
        StatementError::Internal(InternalError(format!("{name} was stored and is missing")))
    })
}

/// Reads a value.
pub async fn read<D: Driver>(
    driver: &mut D,
    dialect: &Dialect,
    name: &str,
) -> Result<Option<String>, StatementError> {
    let read = |row: &dyn Columns| Ok(row.text(0)?.map(str::to_owned));
    Ok(driver
        .query(&ddl::select_system_value(dialect), &[Bind::Text(name)], read)
        .await?
        .pop()
        .flatten())
}
