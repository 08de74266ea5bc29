//! The users table: created at startup on both backends, and queried by name.
//!
//! It belongs to the program and not to the model, so it is not part of the model's shape. The stamp records
//! that it exists: a number that a trigger changes with every change of the table, by any program. In
//! SQLite, where one server owns the file, the stamp counts up; in PostgreSQL it is random, so that it does
//! not repeat after a failover that lost changes.
//! The index of the table is not among those that startup reconciles, so that an older program that does not
//! know the table leaves the index alone.

use crate::model::Model;
use crate::model::builtin::is_enabled_admin;
use crate::plan::{RequestRefusal, ScriptStep};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{StatementError, WriteError};
use crate::store::rows::read_item;
use crate::store::sql::dialect::Dialect;
use crate::store::sql::{ddl, statements};
use crate::store::statement::{Bind, Columns};
use crate::store::system_values;
use crate::value::Item;

/// The key of the stamp in `nouns_system`.
pub const STAMP_KEY: &str = "users_stamp";

/// Creates the table, unless it exists. Replaces the trigger function of an older version.
pub async fn create<D: Driver>(
    driver: &mut D,
    model: &Model,
    dialect: &Dialect,
) -> Result<(), StatementError> {
    let is_there = system_values::read(driver, dialect, STAMP_KEY).await?.is_some();
    if let Some(function) = &dialect.users_function {
        let read = |row: &dyn Columns| row.boolean(0);
        let current = driver.query(function.is_current, &[], read).await?;
        if current.first() != Some(&Some(true)) {
            driver.execute(function.create, &[]).await?;
        }
    }
    if is_there {
        return Ok(());
    }
    let resource = model.resource(model.users);
    driver.execute(&ddl::create_table(model, resource, dialect), &[]).await?;
    for index in ddl::indexes(resource, dialect) {
        driver.execute(&index.create, &[]).await?;
    }
    system_values::write(driver, dialect, STAMP_KEY, "0").await?;
    for trigger in dialect.users_triggers {
        driver.execute(trigger, &[]).await?;
    }
    Ok(())
}

/// Reads a user by name, with the stored secret.
pub async fn find_by_name<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    name: &str,
) -> Result<Option<Item>, StatementError> {
    let resource = context.model.resource(context.model.users);
    let read = |row: &dyn Columns| read_item(&context.model, resource, row, &context.damaged_items);
    Ok(driver.query(&context.sql.user, &[Bind::Text(name)], read).await?.pop())
}

/// Reads the stamp, which every change of the users changes.
pub async fn read_stamp<D: Driver>(driver: &mut D) -> Result<i64, StatementError> {
    let read = |row: &dyn Columns| row.integer(0);
    let stamp = driver.query(statements::USERS_STAMP, &[], read).await?;
    stamp.into_iter().flatten().next().ok_or_else(|| {
        StatementError::Internal(super::InternalError(format!("the database has no {STAMP_KEY}")))
    })
}

/// Refuses steps after which no enabled user has the role `admin`. `user` is the changed user, whose row is
/// locked.
///
/// Two admins who are removed concurrently are different rows, so each transaction would still see the other
/// one (write skew). So both first lock the row of the stamp, which every change of the users writes at its
/// end: the second waits for the first to commit, and then checks. All changes lock the user first and the
/// stamp last, so there is no deadlock.
pub async fn require_remaining_admin<D: Driver, T>(
    driver: &mut D,
    context: &StoreContext,
    user: &Item,
    steps: &[ScriptStep],
) -> Result<(), WriteError<T>> {
    let stays = match steps.first() {
        Some(ScriptStep::Update { after, .. }) => is_enabled_admin(after),
        Some(ScriptStep::Delete(_)) => false,
        Some(ScriptStep::Insert { .. }) | None => true,
    };
    if stays || !is_enabled_admin(user) {
        return Ok(());
    }
    if let Some(lock) = context.sql.dialect.users_lock {
        driver.query(lock, &[], |_| Ok(())).await?;
    }
    let others = driver.query(&context.sql.other_admin, &[Bind::Id(user.id)], |_| Ok(())).await?;
    match others.is_empty() {
        true => Err(RequestRefusal::LastAdmin.into()),
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
pub async fn role_groups<D: Driver>(
    driver: &mut D,
    model: &Model,
) -> Result<Vec<RoleGroup>, StatementError> {
    let read = |row: &dyn Columns| {
        let text = |at| Ok::<_, super::InternalError>(row.text(at)?.unwrap_or_default().to_owned());
        Ok(RoleGroup {
            roles: text(0)?,
            is_disabled: row.integer(1)? == Some(1),
            count: row.integer(2)?.unwrap_or_default(),
            example: text(3)?,
        })
    };
    driver.query(&statements::role_groups_query(model.resource(model.users)), &[], read).await
}
