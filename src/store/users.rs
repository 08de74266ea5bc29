//! The table of the users: made at start, once for every backend, and read by name.
//!
//! It comes with the program and not with the model, so it is in no shape: that it is there is told by
//! the number that grows with every change of it, whoever makes the change. A trigger counts it up.
//! The one surprising thing: its index is not among those that a start reconciles, so that a program
//! that does not know the users yet leaves it alone.

use super::driver::{Bind, Columns, Driver, Failure};
use super::rows::read_item;
use super::schema::{recall, remember};
use super::sql::{self, Dialect};
use super::transaction::Context;
use crate::model::Model;
use crate::value::Item;

/// Under this name `nouns_system` keeps the number.
pub(super) const STAMP: &str = "users_stamp";

/// Makes the table, unless it is there.
pub(super) async fn create<D: Driver>(
    driver: &mut D,
    model: &Model,
    dialect: &Dialect,
) -> Result<(), Failure> {
    if recall(driver, dialect, STAMP).await?.is_some() {
        return Ok(());
    }
    let resource = model.resource(model.users);
    driver.execute(&sql::create_table(model, resource, dialect), &[]).await?;
    for index in sql::indexes(resource, dialect) {
        driver.execute(&index.create, &[]).await?;
    }
    remember(driver, dialect, STAMP, "0").await?;
    for trigger in dialect.users_triggers {
        driver.execute(trigger, &[]).await?;
    }
    Ok(())
}

/// A user by name, with the secret.
pub(super) async fn user<D: Driver>(
    driver: &mut D,
    context: &Context,
    name: &str,
) -> Result<Option<Item>, Failure> {
    let resource = context.model.resource(context.model.users);
    let read = |row: &dyn Columns| read_item(&context.model, resource, row, &context.damaged_items);
    Ok(driver.rows(&context.sql.user, &[Bind::Text(name)], read).await?.pop())
}

/// The number that grows with every change of the users.
pub(super) async fn stamp<D: Driver>(driver: &mut D, context: &Context) -> Result<i64, Failure> {
    let read = |row: &dyn Columns| row.integer(0);
    let stamp = driver.rows(context.sql.stamp, &[], read).await?;
    stamp.into_iter().flatten().next().ok_or_else(|| {
        Failure::Broken(super::Broken(format!("the database does not keep {STAMP}")))
    })
}
