//! Integer ids: their allocation, and the last allocated id, which outlives a table.
//!
//! An id is never allocated twice while the change log has entries of its item. A sequence of PostgreSQL does not take
//! part in transactions: a rollback does not lower it again.

use crate::model::{Model, Resource};
use crate::store::driver::Driver;
use crate::store::error::StatementError;
use crate::store::sql::ddl;
use crate::store::statement::{Bind, Columns};
use crate::value::{Id, IdKind};

/// Allocates ids for new items.
pub async fn allocate<D: Driver>(
    driver: &mut D,
    resource: &Resource,
    count: usize,
) -> Result<Vec<Id>, StatementError> {
    let count = i64::try_from(count).unwrap_or(i64::MAX);
    let binds = [Bind::Text(&resource.table), Bind::Integer(count)];
    let read = |row: &dyn Columns| row.required_integer(0).map(Id::Integer);
    driver.query(D::DIALECT.next_ids, &binds, read).await
}

/// The last allocated id of a table.
pub async fn read_last<D: Driver>(
    driver: &mut D,
    resource: &Resource,
) -> Result<Option<i64>, StatementError> {
    read_integer(driver, D::DIALECT.last_id, &resource.table).await
}

/// Raises the last allocated id of a table to this one.
pub async fn raise_last<D: Driver>(
    driver: &mut D,
    resource: &Resource,
    last: i64,
) -> Result<(), StatementError> {
    let binds = [Bind::Text(&resource.table), Bind::Integer(last)];
    driver.query(D::DIALECT.raise_last_id, &binds, |_| Ok(())).await.map(drop)
}

/// Creates the table of a resource. An earlier resource of its name may have left entries in the change log: their ids are
/// not allocated again.
pub async fn create_table<D: Driver>(
    driver: &mut D,
    model: &Model,
    resource: &Resource,
) -> Result<(), StatementError> {
    driver.execute(&ddl::create_table(model, resource, D::DIALECT), &[]).await?;
    if resource.id == IdKind::Integer {
        let last = read_integer(driver, D::DIALECT.last_logged_id, &resource.label).await?;
        if let Some(last) = last {
            raise_last(driver, resource, last).await?;
        }
    }
    Ok(())
}

async fn read_integer<D: Driver>(
    driver: &mut D,
    sql: &str,
    name: &str,
) -> Result<Option<i64>, StatementError> {
    Ok(driver.query_one(sql, &[Bind::Text(name)], |row| row.integer(0)).await?.flatten())
}
