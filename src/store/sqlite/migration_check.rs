//! Migration check in an in-memory database: whether SQLite accepts the DDL and SQL of a model. For tests and
//! fuzzing.

use rusqlite::Connection;

use crate::model::Model;
use crate::store::driver::poll_once;
use crate::store::error::MigrationError;
use crate::store::schema;
use crate::store::sql::columns::quote_name;
use crate::store::sql::dialect::SQLITE;
use crate::store::sql::statements::SqlStatements;
use crate::store::sqlite::connection::configure_connection;
use crate::store::sqlite::driver::SqliteDriver;

/// Creates the tables of one model and migrates them to another. Without items that always succeeds; with an
/// item of each resource it may be refused (false). Then prepares every statement of the resulting model.
pub fn check_migration(before: &Model, after: &Model) -> Result<bool, String> {
    match create_and_migrate(before, after, false)? {
        true => create_and_migrate(before, after, true),
        false => Err("refused although nothing is stored".to_owned()),
    }
}

fn create_and_migrate(before: &Model, after: &Model, has_items: bool) -> Result<bool, String> {
    let failed = |error: rusqlite::Error| error.to_string();
    let connection = Connection::open_in_memory().map_err(failed)?;
    configure_connection(&connection, 1_000).map_err(failed)?;
    let mut driver = SqliteDriver { connection: &connection };
    connection.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
    let made = poll_once(schema::create(&mut driver, before));
    if !matches!(made, Some(Ok(()))) {
        return Err(format!("{made:?}"));
    }
    if has_items {
        insert_items(&connection, before).map_err(failed)?;
    }
    let is_applied = match poll_once(schema::migrate(&mut driver, after, &[])) {
        Some(Ok(_)) => true,
        Some(Err(MigrationError::Refused(_))) => false,
        other => return Err(format!("{other:?}")),
    };
    connection.execute_batch("COMMIT").map_err(failed)?;
    let served = if is_applied { after } else { before };
    for sql in SqlStatements::new(served, &SQLITE).all_texts(served) {
        connection.prepare(&sql).map_err(failed)?;
    }
    Ok(is_applied)
}

/// Inserts an item of each resource, with no value in any field.
fn insert_items(connection: &Connection, model: &Model) -> rusqlite::Result<()> {
    let mut resources: Vec<_> = model.declared().collect();
    resources.sort_by_key(|resource| resource.depth);
    for resource in resources {
        let parent = resource.parent_key.as_deref().map(quote_name);
        let columns = [quote_name("id")].into_iter().chain(parent);
        let columns = columns.collect::<Vec<_>>().join(", ");
        let ids = if resource.parent_key.is_some() { "1, 1" } else { "1" };
        let table = quote_name(&resource.table);
        connection.execute(
            &format!(
                "INSERT INTO {table} ({columns}, \"created_at\", \"updated_at\", \"version\") \
                 VALUES ({ids}, '2020-01-01T00:00:00Z', '2020-01-01T00:00:00Z', 1)"
            ),
            [],
        )?;
    }
    Ok(())
}
