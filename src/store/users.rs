//! The users table: created at startup on both backends, and queried by name.
//!
//! It belongs to the program and not to the model, so it is not part of the model's shape. The stamp records
//! that it exists: a number that a trigger changes with every change of the table, by any program. In
//! SQLite, where one server owns the file, the stamp counts up; in PostgreSQL it is random, so that it does
//! not repeat after a failover that lost changes.
//! The index of the table is not among those that startup reconciles, so that an older program that does not
//! know the table leaves the index alone.

use crate::model::builtin::{DECLARED, is_enabled_admin};
use crate::model::{Field, FieldRules, Model, types};
use crate::plan::{RequestRefusal, ScriptStep};
use crate::store::context::StoreContext;
use crate::store::driver::Driver;
use crate::store::error::{InternalError, MigrationError, StatementError, WriteError};
use crate::store::sql::{ddl, statements};
use crate::store::statement::{Bind, Columns};
use crate::store::system_values;
use crate::value::Item;

/// The key of the stamp in `nouns_system`.
pub const STAMP_KEY: &str = "users_stamp";
/// The key of the columns of declared fields in `nouns_system`: a line for each, with its name and storage class.
pub const FIELDS_KEY: &str = "users_fields";

/// The lines of the declared fields.
fn field_lines(model: &Model) -> Vec<(&Field, String)> {
    let declared = model.resource(model.users).fields.iter().skip(DECLARED);
    let line =
        |field: &Field| format!("{} {:?} {}", field.name, field.storage_class(), field.rules.scale);
    declared.map(|field| (field, line(field))).collect()
}

/// The declared fields that the database has no column for, by the stored lines.
pub fn missing_fields(model: &Model, stored: &str) -> Vec<Box<str>> {
    let missing = field_lines(model).into_iter();
    let missing = missing.filter(|(_, line)| !stored.lines().any(|stored| stored == line));
    missing.map(|(field, _)| field.name.clone()).collect()
}

/// The fields that the stored lines name, those that the model no longer declares among them. A type stands for each
/// storage class, because the database does not record the others.
pub fn stored_fields(stored: &str) -> Result<Vec<Field>, StatementError> {
    let read = |line: &str| {
        let [name, class, scale]: [&str; 3] =
            line.split(' ').collect::<Vec<_>>().try_into().ok()?;
        let kind = types::ALL.iter().find(|kind| format!("{:?}", kind.class) == class)?;
        let rules = FieldRules { scale: scale.parse().ok()?, ..FieldRules::default() };
        Some(Field { rules, ..Field::new(name, kind) })
    };
    let unreadable = |line| {
        StatementError::Internal(InternalError(format!("{FIELDS_KEY}: cannot read {line:?}")))
    };
    stored.lines().map(|line| read(line).ok_or_else(|| unreadable(line))).collect()
}

/// Adds the columns of declared fields. None is ever dropped, so that a field that is declared again has its values.
pub async fn add_fields<D: Driver>(driver: &mut D, model: &Model) -> Result<(), MigrationError> {
    let stored = system_values::read(driver, FIELDS_KEY).await?.unwrap_or_default();
    let mut lines: Vec<String> = stored.lines().map(str::to_owned).collect();
    for (field, line) in field_lines(model) {
        if lines.contains(&line) {
            continue;
        }
        let begins = format!("{} ", field.name);
        if let Some(other) = lines.iter().find(|other| other.starts_with(&begins)) {
            let name = &field.name;
            return Err(MigrationError::Refused(vec![format!(
                "users.fields.{name}: expected the type that it is stored with ({}), got `{}`; \
                 give the field another name",
                other.trim_start_matches(&begins).to_lowercase(),
                field.kind.name
            )]));
        }
        let users = model.resource(model.users);
        driver.execute(&ddl::add_column(model, users, field, D::DIALECT), &[]).await?;
        lines.push(line);
        system_values::write(driver, FIELDS_KEY, &lines.join("\n")).await?;
    }
    Ok(())
}

/// Creates the table, unless it exists. Replaces the trigger function of an older version.
pub async fn create<D: Driver>(driver: &mut D, model: &Model) -> Result<(), StatementError> {
    let dialect = D::DIALECT;
    let is_there = system_values::read(driver, STAMP_KEY).await?.is_some();
    if let Some(function) = &dialect.users_function
        && !driver.query_is_true(function.is_current).await?
    {
        driver.execute(function.create, &[]).await?;
    }
    if is_there {
        return Ok(());
    }
    let resource = model.resource(model.users);
    driver.execute(&ddl::create_table(model, resource, dialect), &[]).await?;
    for index in ddl::indexes(resource, dialect) {
        driver.execute(&index.create, &[]).await?;
    }
    system_values::write(driver, STAMP_KEY, "0").await?;
    let lines: Vec<String> = field_lines(model).into_iter().map(|(_, line)| line).collect();
    if !lines.is_empty() {
        system_values::write(driver, FIELDS_KEY, &lines.join("\n")).await?;
    }
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
    let read = |row: &dyn Columns| context.read_item(context.model.users, row);
    driver.query_one(&context.sql.user, &[Bind::Text(name)], read).await
}

/// Reads the stamp, which every change of the users changes.
pub async fn read_stamp<D: Driver>(driver: &mut D) -> Result<i64, StatementError> {
    let stamp = driver.query_one(statements::USERS_STAMP, &[], |row| row.required_integer(0));
    stamp.await?.ok_or_else(|| {
        StatementError::Internal(InternalError(format!("the database has no {STAMP_KEY}")))
    })
}

/// Refuses steps after which no enabled user has the role `admin`. `user` is the changed user, whose row is
/// locked.
///
/// Two admins who are removed concurrently are different rows, so each transaction would still see the other
/// one (write skew). So both first lock the row of the stamp, which every change of the users writes at its
/// end: the second waits for the first to commit, and then checks. All changes lock the user first and the
/// stamp last, so there is no deadlock.
pub async fn require_remaining_admin<D: Driver>(
    driver: &mut D,
    context: &StoreContext,
    user: &Item,
    steps: &[ScriptStep],
) -> Result<(), WriteError> {
    let stays = match steps.first() {
        Some(ScriptStep::Update { after, .. }) => is_enabled_admin(after),
        Some(ScriptStep::ClearReferences(_) | ScriptStep::Delete(_)) => false,
        Some(ScriptStep::Insert { .. }) | None => true,
    };
    if stays || !is_enabled_admin(user) {
        return Ok(());
    }
    if let Some(lock) = D::DIALECT.users_lock {
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
        Ok(RoleGroup {
            roles: row.optional_text(0)?.unwrap_or_default(),
            is_disabled: row.required_integer(1)? == 1,
            count: row.required_integer(2)?,
            example: row.optional_text(3)?.unwrap_or_default(),
        })
    };
    driver.query(&statements::role_groups_query(model.resource(model.users)), &[], read).await
}
