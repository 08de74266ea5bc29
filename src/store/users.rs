//! The users table: created at startup on both backends, and queried by name.
//!
//! It belongs to the program and not to the model, so it is not part of the model's shape. The stamp records
//! that it exists: a number that a trigger changes with every change of the table, whoever makes it. In
//! SQLite, where one server owns the file, the stamp counts up; in PostgreSQL it is random, so that it does
//! not repeat after a failover that lost changes.
//! The one surprising thing: its index is not among those that startup reconciles, so that an older program
//! that does not know the table leaves the index alone.

use super::driver::{Bind, Columns, Driver, Failure};
use super::rows::read_item;
use super::schema::{recall, remember};
use super::sql::{self, Dialect};
use super::transaction::{Context, Halt};
use crate::model::Model;
use crate::model::own::is_enabled_admin;
use crate::plan::{Refusal, Step};
use crate::value::Item;

/// The key of the stamp in `nouns_system`.
pub(super) const STAMP: &str = "users_stamp";

/// Creates the table, unless it exists. Replaces the trigger function of an older version.
pub(super) async fn create<D: Driver>(
    driver: &mut D,
    model: &Model,
    dialect: &Dialect,
) -> Result<(), Failure> {
    let is_there = recall(driver, dialect, STAMP).await?.is_some();
    if let Some(function) = &dialect.users_function {
        let read = |row: &dyn Columns| row.boolean(0);
        let current = driver.rows(function.is_current, &[], read).await?;
        if current.first() != Some(&Some(true)) {
            driver.execute(function.create, &[]).await?;
        }
    }
    if is_there {
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

/// Reads a user by name, with the stored secret.
pub(super) async fn user<D: Driver>(
    driver: &mut D,
    context: &Context,
    name: &str,
) -> Result<Option<Item>, Failure> {
    let resource = context.model.resource(context.model.users);
    let read = |row: &dyn Columns| read_item(&context.model, resource, row, &context.damaged_items);
    Ok(driver.rows(&context.sql.user, &[Bind::Text(name)], read).await?.pop())
}

/// Reads the stamp, which every change of the users changes.
pub(super) async fn stamp<D: Driver>(driver: &mut D, context: &Context) -> Result<i64, Failure> {
    let read = |row: &dyn Columns| row.integer(0);
    let stamp = driver.rows(context.sql.stamp, &[], read).await?;
    stamp.into_iter().flatten().next().ok_or_else(|| {
        Failure::Broken(super::Broken(format!("the database does not keep {STAMP}")))
    })
}

/// Refuses steps after which no enabled user has the role `admin`. `user` is the changed user, whose row is
/// locked.
///
/// Two admins who are removed concurrently are different rows, so each transaction would still see the other
/// one (write skew). So both first lock the row of the stamp, which every change of the users writes at its
/// end: the second waits for the first to commit, and then checks. All changes lock the user first and the
/// stamp last, so there is no deadlock.
pub(super) async fn keep_an_admin<D: Driver, T>(
    driver: &mut D,
    context: &Context,
    user: &Item,
    steps: &[Step],
) -> Result<(), Halt<T>> {
    let stays = match steps.first() {
        Some(Step::Update { after, .. }) => is_enabled_admin(after),
        Some(Step::Delete(_)) => false,
        Some(Step::Insert { .. }) | None => true,
    };
    if stays || !is_enabled_admin(user) {
        return Ok(());
    }
    if let Some(lock) = context.sql.dialect.users_lock {
        driver.rows(lock, &[], |_| Ok(())).await?;
    }
    let others = driver.rows(&context.sql.other_admin, &[Bind::Id(user.id)], |_| Ok(())).await?;
    match others.is_empty() {
        true => Err(Refusal::LastAdmin.into()),
        false => Ok(()),
    }
}

/// Users with the same roles.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleGroup {
    /// A JSON array of names.
    pub roles: String,
    pub is_disabled: bool,
    pub count: i64,
    /// The first of their names.
    pub example: String,
}

/// Groups the users by their roles, the largest group first.
pub(super) async fn role_groups<D: Driver>(
    driver: &mut D,
    model: &Model,
) -> Result<Vec<RoleGroup>, Failure> {
    let read = |row: &dyn Columns| {
        let text = |at| Ok::<_, super::Broken>(row.text(at)?.unwrap_or_default().to_owned());
        Ok(RoleGroup {
            roles: text(0)?,
            is_disabled: row.integer(1)? == Some(1),
            count: row.integer(2)?.unwrap_or_default(),
            example: text(3)?,
        })
    };
    driver.rows(&sql::role_groups(model.resource(model.users)), &[], read).await
}
