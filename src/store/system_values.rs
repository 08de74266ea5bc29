//! The key-value table `nouns_system`.

use crate::store::driver::Driver;
use crate::store::error::{InternalError, StatementError};
use crate::store::sql::ddl;
use crate::store::statement::Bind;

/// Writes a value.
pub async fn write<D: Driver>(
    driver: &mut D,
    name: &str,
    value: &str,
) -> Result<(), StatementError> {
    let binds = [Bind::Text(name), Bind::Text(value)];
    driver.execute(&ddl::upsert_system_value(D::DIALECT), &binds).await.map(|_| ())
}

/// Removes a value.
pub async fn remove<D: Driver>(driver: &mut D, name: &str) -> Result<(), StatementError> {
    driver.execute(&ddl::delete_system_value(D::DIALECT), &[Bind::Text(name)]).await.map(drop)
}

/// Writes a value unless the key exists; returns the value that is stored then.
pub async fn write_if_absent<D: Driver>(
    driver: &mut D,
    name: &str,
    value: &str,
) -> Result<String, StatementError> {
    let binds = [Bind::Text(name), Bind::Text(value)];
    driver.execute(&ddl::insert_system_value_if_absent(D::DIALECT), &binds).await?;
    let kept = read(driver, name).await?;
    kept.ok_or_else(|| {
        StatementError::Internal(InternalError(format!("{name} was stored and is missing")))
    })
}

/// Reads a value.
pub async fn read<D: Driver>(driver: &mut D, name: &str) -> Result<Option<String>, StatementError> {
    let select = ddl::select_system_value(D::DIALECT);
    Ok(driver.query_one(&select, &[Bind::Text(name)], |row| row.optional_text(0)).await?.flatten())
}
